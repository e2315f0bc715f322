"""The state of calls that ask questions. Dovetail seals it; only the keys are settings."""

from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError


class InvalidRequestState(Exception):
    """A state that this server has not sealed."""


class RequestStateSecurity:
    """The keys that seal states. Without keys, only this process can read its states."""

    def __init__(self, *, keys: Sequence[str | bytes] | None = None, **options: Any) -> None:
        if options.pop("codec", None) is not None:
            raise ConfigError("RequestStateSecurity has no option codec=; use keys=")
        self.keys = keys

    ephemeral = classmethod(lambda cls, **ignored: cls())


class RequestStateBoundary:
    """Middleware that does nothing, because the server itself seals states."""

    def __init__(self, security: RequestStateSecurity, **ignored: Any) -> None:
        if security.keys:
            raise ConfigError("RequestStateBoundary accepts no keys; set DOVETAIL_KEYS instead")

    async def __call__(self, context: Any, call_next: Any) -> Any:
        """Answer the request."""
        return await call_next(context)
