"""The parts of messages that a client's transport needs: to send them, and to know which request a
response answers.

Most params are left undecoded; the session above decodes them.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from ....jsonrpc.framing import TooLong
from ....jsonrpc.messages import Id
from ....protocol.base import camel


class PeekedParams(Struct):
    """The params that matter for transport."""

    name: Any = None
    uri: Any = None
    arguments: Raw = Raw()
    request_id: Any = msgspec.field(name="requestId", default=None)
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class OutgoingMessage(Struct):
    """The parts of a message that are needed to send it."""

    id: Id | None = None
    method: str | None = None
    params: PeekedParams = msgspec.field(default_factory=PeekedParams)

    @property
    def request_id(self) -> Id | None:
        """The id, if this is a request."""
        return self.id if self.method is not None else None


class _MessageParams(Struct):
    """A message with all its params."""

    params: dict[str, Any] = {}


class PeekedError(Struct):
    """A JSON-RPC error."""

    code: int
    message: str = ""
    data: Any = None


class IncomingMessage(Struct):
    """The parts of a received message that matter for transport."""

    id: Id | None = None
    method: str | None = None
    result: Raw = Raw()
    error: PeekedError | None = None


class _InitializeResult(Struct):
    protocol_version: str = msgspec.field(name="protocolVersion", default="")


_outgoing = msgspec.json.Decoder(OutgoingMessage).decode
_incoming = msgspec.json.Decoder(IncomingMessage).decode
_params = msgspec.json.Decoder(_MessageParams).decode
_batch = msgspec.json.Decoder(list[IncomingMessage]).decode
_initialize_result = msgspec.json.Decoder(_InitializeResult).decode
split_batch = msgspec.json.Decoder(list[Raw]).decode
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def peek(data: bytes) -> OutgoingMessage:
    """Decode the parts of a message that are needed to send it."""
    try:
        return _outgoing(data)
    except DECODE_ERRORS:
        return OutgoingMessage()  # a batch of responses, or something that only the server knows


def get_param(message: OutgoingMessage, data: bytes, field: str) -> Any:
    """Return a field of the params of a request, by its Python name."""
    if field in PeekedParams.__struct_fields__:
        return getattr(message.params, field)
    return _params(data).params.get(camel(field))


def responses_in(data: bytes) -> list[IncomingMessage]:
    """Return the responses in received data: none, one or a batch of them."""
    try:
        messages = _batch(data) if data.lstrip()[:1] == b"[" else [_incoming(data)]
    except DECODE_ERRORS:
        return []
    return [message for message in messages if message.id is not None and message.method is None]


def agreed_version(response: IncomingMessage) -> str | None:
    """Return the version in the response to `initialize`."""
    try:
        return _initialize_result(response.result).protocol_version or None
    except DECODE_ERRORS:
        return None  # the session reports this error


def error_in(body: bytes | TooLong) -> PeekedError | None:
    """Return the JSON-RPC error in a body, if it is one."""
    try:
        return _incoming(body).error if isinstance(body, bytes) else None
    except DECODE_ERRORS:
        return None
