"""Elicitation: a server asks the user. https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation"""

from typing import Any, Literal

from .base import Params, Result


class ElicitParams(Params, kw_only=True):
    """Asks for a form to be filled in, or for a URL to be visited."""

    message: str
    mode: str | None = None
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    task: Any = None

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the form must look like."""
        return self.requested_schema


class ElicitResult(Result, kw_only=True):
    """What the user did, and the form's content if they accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ElicitationCompleteParams(Params, kw_only=True):
    """What was to be done at a URL is done."""

    elicitation_id: str
