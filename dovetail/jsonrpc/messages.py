"""The four messages of JSON-RPC 2.0, and the batch of them that one revision of MCP allows.

Params and results stay raw bytes here: whoever knows the method decodes them, once, straight into
its type.
"""

from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Raw, Struct

Id: TypeAlias = int | str
NO_PARAMS = Raw()
"""Params that are not there. One object: it is known, and left out on the wire, by its identity."""


class Request(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    """Asks for an answer under `id`."""

    id: Id
    method: str
    params: Any = NO_PARAMS


class Notification(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    """Tells something; never answered."""

    method: str
    params: Any = NO_PARAMS


class Response(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """Answers a request."""

    id: Id
    result: Any


class Error(Struct, omit_defaults=True, gc=False):
    """What went wrong, for programs (`code`), people (`message`) and both (`data`)."""

    code: int
    message: str
    data: Any = None


class ErrorResponse(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """Answers a request that failed. The id is null only where it could not be read."""

    id: Id | None
    error: Error


Message: TypeAlias = Request | Notification | Response | ErrorResponse


class Batch(Struct):
    """Several messages in one; what in it was no message is a Failure to be sent back."""

    messages: list[Message]
    refused: list[ErrorResponse]


Asked = TypeVar("Asked")
Answering = TypeVar("Answering")


class OpenRequests(Generic[Asked, Answering]):
    """Two tables and a counter."""

    __slots__ = ("_next", "answering", "asked")

    def __init__(self) -> None:
        self._next = 0
        self.asked: dict[Id, Asked] = {}
        self.answering: dict[Id, Answering] = {}

    def ask(self, entry: Asked) -> Id:
        """A fresh id, under which `entry` now waits for its reply."""
        self._next += 1
        self.asked[self._next] = entry
        return self._next

    def settle(self, id: Id | None) -> Asked | None:
        """The entry that this reply answers, or None for a late, forged or repeated one."""
        return self.asked.pop(id, None) if id is not None else None
