"""The four messages of JSON-RPC 2.0, the batch that one revision of MCP allows, and a table of open
requests.

Params and results stay raw bytes here. The code that knows the method decodes them once, directly
into the method's type.
"""

from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Raw, Struct

Id: TypeAlias = int | str
NO_PARAMS = Raw()
"""Absent params. They are recognised by identity and left out on the wire."""


class Request(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    """A request, to be answered under `id`."""

    id: Id
    method: str
    params: Any = NO_PARAMS


class Notification(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    """A notification; never answered."""

    method: str
    params: Any = NO_PARAMS


class Response(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """A successful response."""

    id: Id
    result: Any


class Error(Struct, omit_defaults=True, gc=False):
    """An error: `code` for programs, `message` for people, `data` for both."""

    code: int
    message: str
    data: Any = None


class ErrorResponse(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """The response to a request that failed. The id is null only if it could not be read."""

    id: Id | None
    error: Error


Message: TypeAlias = Request | Notification | Response | ErrorResponse


class Batch(Struct):
    """Several messages in one. An item that was not a message is an ErrorResponse to send back."""

    messages: list[Message]
    refused: list[ErrorResponse]


Asked = TypeVar("Asked")
Answering = TypeVar("Answering")


class OpenRequests(Generic[Asked, Answering]):
    """The open requests of one conversation, in both directions. No I/O and no clock.

    `asked` holds what this side waits for, `answering` what the other side waits for. An id that is
    in flight is refused; once answered it may be used again. A reply without a request is late or
    forged and is dropped.
    """

    __slots__ = ("_next", "answering", "asked")

    def __init__(self) -> None:
        self._next = 0
        self.asked: dict[Id, Asked] = {}
        self.answering: dict[Id, Answering] = {}

    def ask(self, entry: Asked) -> Id:
        """Return a new id, under which `entry` waits for its reply."""
        self._next += 1
        self.asked[self._next] = entry
        return self._next

    def settle(self, id: Id | None) -> Asked | None:
        """Remove and return the entry that a reply answers; None for a late, forged or repeated
        reply."""
        return self.asked.pop(id, None) if id is not None else None
