"""The types, decoding and encoding of the four JSON-RPC 2.0 messages and of the batch that one
revision of MCP allows.

Params and results remain raw bytes in this module. The code that handles the method decodes them
once, directly into the method's type.

Incoming: msgspec makes one pass over the envelope and leaves params and result raw. For any input,
the outcome is a message, a batch, or `Malformed` with the ErrorResponse to send back; no other
exception is raised. msgspec skips raw parts without checking their UTF-8, so input that is not
plain ASCII is first checked as a whole, at memory speed. msgspec's recursion guard limits the
depth, including raw parts.

Outgoing: msgspec encodes in one pass. Callers handle values that cannot be encoded
(`connection/encode.py`).
"""

import re
from typing import Any, TypeAlias, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

Id: TypeAlias = int | str
NO_PARAMS = Raw()
"""The value for absent params, which is recognised by identity and omitted on the wire."""


class Request(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    """A request, which is answered with the same `id`."""

    id: Id
    method: str
    params: Any = NO_PARAMS


class Notification(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    """A notification, which is never answered."""

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


@final
class ErrorResponse(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """The response to a request that failed. The id is null only if it could not be read."""

    id: Id | None
    error: Error


Message: TypeAlias = Request | Notification | Response | ErrorResponse


class Batch(Struct):
    """Several messages that were sent as one. An item that was not a message is replaced by the
    ErrorResponse to send back."""

    messages: list[Message]
    refused: list[ErrorResponse]


PARSE_ERROR, INVALID_REQUEST = -32700, -32600


class Malformed(Exception):
    """The bytes are not a message.

    `failure` is the reply to the sender. `reply` is True if the bytes were a malformed reply, and
    None if it is unknown whether they were a reply.
    """

    def __init__(
        self, code: int, text: str, id: Id | None = None, reply: bool | None = False
    ) -> None:
        super().__init__(text)
        self.failure = ErrorResponse(id, Error(code, text))
        self.reply = reply


_ABSENT = Raw()
"""Compared by identity: `bytes(result)` would copy the whole result."""


class _Envelope(Struct, gc=False):
    jsonrpc: str = ""
    id: Id | None | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = NO_PARAMS
    result: Raw = _ABSENT
    error: Raw = _ABSENT


class _Error(Struct, gc=False):
    code: int
    message: str = ""
    data: Any = None


_envelope = msgspec.json.Decoder(_Envelope).decode
_error = msgspec.json.Decoder(_Error).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_any = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode
"""Encode any message or part of a message."""

_WHITESPACE = b" \t\r\n"
_ID = rb'"id"\s*:\s*(-?\d{1,20}(?=[\s,}])|"[^"\\]{0,100}")'


def decode(data: bytes) -> Message | Batch:
    """Decode one message or batch. Raise Malformed if the bytes are neither."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise Malformed(
                PARSE_ERROR, f"The message is not valid UTF-8 (byte {error.start})"
            ) from None
    try:
        envelope = _envelope(data)
    except msgspec.ValidationError as error:
        if data.lstrip(_WHITESPACE)[:1] == b"[":
            return _batch(data)
        raise _invalid(data, error) from None
    except RecursionError:
        raise Malformed(PARSE_ERROR, "The message is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(PARSE_ERROR, f"The message is not valid JSON: {error}") from None
    return _message(envelope)


def _message(envelope: _Envelope) -> Message:
    id, method = envelope.id, envelope.method
    if envelope.jsonrpc != "2.0":
        has_answer = envelope.result is not _ABSENT or envelope.error is not _ABSENT
        raise Malformed(
            INVALID_REQUEST,
            'Not a JSON-RPC 2.0 message: "jsonrpc" must be "2.0"',
            _known(id),
            method is UNSET and has_answer,
        )
    if method is not UNSET:
        if id is UNSET:
            return Notification(method, envelope.params)
        if id is None:
            raise Malformed(
                INVALID_REQUEST, "A request id must be a string or an integer, not null"
            )
        return Request(id, method, envelope.params)
    if envelope.error is not _ABSENT and bytes(envelope.error) != b"null":
        # Some peers send a null error with the result.
        try:
            error = _error(envelope.error)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise Malformed(
                INVALID_REQUEST, f"The error in the reply is malformed: {problem}", _known(id), True
            ) from None
        return ErrorResponse(_known(id), Error(error.code, error.message, error.data))
    if envelope.result is not _ABSENT and isinstance(id, (int, str)):
        return Response(id, envelope.result)
    raise Malformed(INVALID_REQUEST, "Not a request, notification or reply", _known(id), None)


def peek_id(head: bytes) -> tuple[Id | None, bool | None]:
    """Return the id of an overlong message, read from its first bytes, and whether it was a
    reply."""
    found = re.search(_ID, head)
    try:
        return (None, None) if found is None else (_any(found[1]), b'"method"' not in head)
    except (msgspec.DecodeError, UnicodeDecodeError):  # what looks like an id may not be one
        return None, None


def _known(id: Id | None | UnsetType) -> Id | None:
    return None if id is UNSET else id


def _batch(data: bytes) -> Batch:
    try:
        items = _items(data)
    except RecursionError:
        raise Malformed(PARSE_ERROR, "The message is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise Malformed(PARSE_ERROR, f"The message is not valid JSON: {error}") from None
    if not items:
        raise Malformed(INVALID_REQUEST, "A batch must not be empty")
    batch = Batch([], [])
    for item in items:
        try:
            batch.messages.append(_message(_envelope(item)))
            continue
        except Malformed as error:
            malformed = error
        except msgspec.MsgspecError as error:
            malformed = _invalid(bytes(item), error)
        # A broken reply fails the request that it answers; it must not be answered itself.
        (batch.messages if malformed.reply else batch.refused).append(malformed.failure)
    return batch


def _invalid(data: bytes, error: msgspec.MsgspecError) -> Malformed:
    """Explain why a JSON value is not a message, using its id if it can be read."""
    id: Id | None = None
    reply = False
    try:
        value = _any(data)
    except RecursionError:
        return Malformed(PARSE_ERROR, "The message is nested too deeply")
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return Malformed(PARSE_ERROR, f"The message is not valid JSON: {problem}")
    if isinstance(value, dict):
        found = value.get("id")
        if isinstance(found, str) or type(found) is int:
            id = found
        elif "id" in value:
            return Malformed(
                INVALID_REQUEST, "A request id must be a string or an integer, not null"
            )
        reply = "method" not in value
    return Malformed(INVALID_REQUEST, f"Not a valid message: {error}", id, reply)
