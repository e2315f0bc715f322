"""The one filter that everything passes on its way out: it can be encoded, it is valid UTF-8, it is
not too large, and what must not be seen is taken out of it.

The common case is one encode and one comparison. Only when that fails, or a `redact` rule is set,
is the message taken apart: a lone surrogate becomes U+FFFD, a redacted string what the rule makes
of it.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import InternalError, ProtocolError, TooLarge
from ..jsonrpc.codec import encode
from ..jsonrpc.messages import NO_PARAMS, Error, ErrorResponse, Id, Notification, Response
from ..ports import Redact
from ..protocol.methods import Method
from ..revisions import Revision

log = logging.getLogger("dovetail.connection")
_plain = msgspec.json.Decoder().decode


class MessageEncoder:
    """Messages to bytes, by the rules of one connection."""

    __slots__ = ("_limit", "_redact")

    def __init__(self, limit: int, redact: Redact | None = None) -> None:
        self._limit = limit
        self._redact = redact

    def encode(self, message: Any) -> bytes:
        """The message as bytes; InternalError or TooLarge where that cannot be."""
        try:
            try:
                data = encode(message)
            except UnicodeEncodeError:
                data = encode(replace_surrogates(message))
        except RecursionError:
            raise InternalError("The result is nested too deeply, or contains itself") from None
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise InternalError(f"The result cannot be written as JSON: {error}") from None
        if self._redact is not None:
            data = self._redacted(data)
        if b"\n" in data:
            data = data.replace(
                b"\n", b" "
            )  # between tokens of raw JSON: in a string it would be escaped
        if len(data) > self._limit:
            raise TooLarge(f"The message would be {len(data)} bytes; the limit is {self._limit}")
        return data

    def encode_result(self, id: Id, result: Any) -> bytes:
        """The reply with a result that is already lowered, or with the error that kept it from
        leaving."""
        try:
            if self._redact is None:
                data = encode(Response(id, result))
                if len(data) <= self._limit and b"\n" not in data:
                    return data
        except Exception:
            pass  # whatever it was, the thorough way below finds it again, and says it
        try:
            return self.encode(Response(id, result))
        except ProtocolError as error:
            return self.encode_failure(id, error, error.code)

    def encode_notification(self, revision: Revision, method: Method, params: Any) -> bytes | None:
        """A notification as bytes. Whatever cannot be told is logged, never raised: nobody waits
        for it."""
        try:
            wire = revision.lower_params(method, params)
            return self.encode(
                Notification(revision.wire_name(method.name), NO_PARAMS if wire is None else wire)
            )
        except ProtocolError as error:
            log.warning("Could not send %s: %s", method.name, error)
            return None

    def encode_failure(
        self, id: Id | None, error: ProtocolError, code: int, *, unnamed: bool = False
    ) -> bytes:
        """The reply with an error. `unnamed` leaves out the id of what could not be read."""
        body = Error(code, error.message, error.data)
        try:
            return self.encode(_reply(id, body, unnamed))
        except ProtocolError:
            return encode(_reply(id, Error(code, "The error could not be told"), unnamed))

    def _redacted(self, data: bytes) -> bytes:
        redact = self._redact
        assert redact is not None
        message = _plain(data)
        try:
            for part in ("params", "result", "error"):
                if part in message:
                    message[part] = _map_strings(message[part], redact)
        except Exception:
            log.exception("The redact rule failed, so a message was withheld")
            raise InternalError(
                "The message was withheld: it could not be checked for secrets"
            ) from None
        return encode(message)


def _reply(id: Id | None, body: Error, unnamed: bool) -> Any:
    if id is None and unnamed:
        return {"jsonrpc": "2.0", "error": body}
    return ErrorResponse(id, body)


def replace_surrogates(value: Any) -> Any:
    """The value with every lone surrogate in it replaced, as plain objects."""
    return _map_strings(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,)), _valid)


def _valid(text: str) -> str:
    """Surrogates that make a pair become the character they stand for, lone ones U+FFFD."""
    return (
        text
        if text.isascii()
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            _map_strings(key, _valid): _map_strings(item, change) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
