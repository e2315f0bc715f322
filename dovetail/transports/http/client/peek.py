"""What a client's transport reads of the messages that pass through it: enough to send them and to
know whose reply this is.

The params of most are left as they are; the conversation above decodes them.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from ....jsonrpc.framing import TooLong
from ....jsonrpc.messages import Id
from ....protocol.base import camel


class PeekedParams(Struct):
    """What of the params matters to those who carry them."""

    name: Any = None
    uri: Any = None
    arguments: Raw = Raw()
    request_id: Any = msgspec.field(name="requestId", default=None)
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class OutgoingMessage(Struct):
    """What has to be known of a message to send it."""

    id: Id | None = None
    method: str | None = None
    params: PeekedParams = msgspec.field(default_factory=PeekedParams)

    @property
    def asks(self) -> Id | None:
        """The id, if this is a request."""
        return self.id if self.method is not None else None


class _MessageParams(Struct):
    """A message with all of its params."""

    params: dict[str, Any] = {}


class PeekedError(Struct):
    """An error of JSON-RPC."""

    code: int
    message: str = ""
    data: Any = None


class IncomingMessage(Struct):
    """What has to be known of a message that came."""

    id: Id | None = None
    method: str | None = None
    result: Raw = Raw()
    error: PeekedError | None = None


class _InitializeResult(Struct):
    protocol_version: str = msgspec.field(name="protocolVersion", default="")


_outgoing = msgspec.json.Decoder(OutgoingMessage).decode
_incoming = msgspec.json.Decoder(IncomingMessage).decode
_whole = msgspec.json.Decoder(_MessageParams).decode
_several = msgspec.json.Decoder(list[IncomingMessage]).decode
_agreed = msgspec.json.Decoder(_InitializeResult).decode
each = msgspec.json.Decoder(list[Raw]).decode
BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def peek(data: bytes) -> OutgoingMessage:
    """What there is to know of a message."""
    try:
        return _outgoing(data)
    except BROKEN:
        return OutgoingMessage()  # a batch of replies, or what only the server can make sense of


def named(message: OutgoingMessage, data: bytes, field: str) -> Any:
    """What a request is about: a field of its params."""
    if field in PeekedParams.__struct_fields__:
        return getattr(message.params, field)
    return _whole(data).params.get(camel(field))


def replies(data: bytes) -> list[IncomingMessage]:
    """The replies in what came: one, none, or a batch of them."""
    try:
        messages = _several(data) if data.lstrip()[:1] == b"[" else [_incoming(data)]
    except BROKEN:
        return []
    return [one for one in messages if one.id is not None and one.method is None]


def version_in(reply: IncomingMessage) -> str | None:
    """The revision that the answer to `initialize` settles on."""
    try:
        return _agreed(reply.result).protocol_version or None
    except BROKEN:
        return None  # whoever reads the message itself will say so


def failure_in(body: bytes | TooLong) -> PeekedError | None:
    """The JSON-RPC error in a body, if that is what it is."""
    try:
        return _incoming(body).error if isinstance(body, bytes) else None
    except BROKEN:
        return None
