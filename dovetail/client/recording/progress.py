"""The progress of the requests in a replay.

Servers join progress notifications that follow each other quickly, so their number depends on the
time. Only the last one about each request is the same in every run.
"""

from typing import Any

from msgspec import Struct

from ...protocol.base import PROGRESS_TOKEN

METHOD = "notifications/progress"


class LastProgress(Struct):
    """The last progress notification about one request."""

    request_id: Any
    line: int = 0
    """The line of `recorded`."""
    recorded: dict[str, Any] | None = None
    """That of the recording."""
    replayed: dict[str, Any] | None = None
    """That of the new run."""


class ProgressLog:
    """The last progress notifications about each request that asks for them."""

    def __init__(self) -> None:
        self.all: list[LastProgress] = []
        self._by_token: dict[Any, LastProgress] = {}

    def add_request(self, request: dict[str, Any]) -> None:
        """Begin with a request, which may use the token of an earlier one.

        Args:
            request: The request.
        """
        token = _read_token(_read_object(request.get("params")).get("_meta"))
        if token is not None:
            self._by_token[token] = LastProgress(request["id"])
            self.all.append(self._by_token[token])

    def find(self, message: dict[str, Any]) -> LastProgress | None:
        """Return where a notification belongs; None if it is not about the progress of a request
        that asks for it.

        Args:
            message: The notification.
        """
        if message.get("method") != METHOD:
            return None
        return self._by_token.get(_read_token(message.get("params")))


def _read_token(holder: Any) -> Any:
    token = _read_object(holder).get(PROGRESS_TOKEN)
    return token if isinstance(token, str | int) else None


def _read_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
