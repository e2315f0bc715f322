"""The encoding of outgoing messages: valid JSON in UTF-8, within the size limit and without
secrets.

The common case costs one encoding and one comparison. If the encoding fails, each string in the
message is processed: lone surrogates become U+FFFD. If a `redact` rule is set, it is applied to
each string of the decoded message.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from ..errors import InternalError, ProtocolError, TooLarge
from ..jsonrpc.messages import (
    NO_PARAMS,
    Error,
    ErrorResponse,
    Id,
    Notification,
    Request,
    Response,
    encode,
)
from ..logs import get_logger
from ..ports import Redact
from ..protocol.methods import Method
from ..revisions import Revision

log = get_logger("connection")
_plain = msgspec.json.Decoder().decode


class MessageEncoder:
    """An encoder that follows the rules of one server or client."""

    def __init__(self, limit: int, redact: Redact | None = None) -> None:
        self._limit = limit
        self._redact = redact
        check: Callable[[bytes], bool] = getattr(redact, "is_clean_json", _never)
        self._is_clean = check if getattr(check, "rule", None) is redact else _never
        """Whether the rule certainly changes nothing in a message. A rule may offer this check,
        which is faster than decoding the message."""

    def encode(self, message: Any) -> bytes:
        """Return the message as bytes, or raise InternalError or TooLarge if it cannot be
        encoded."""
        try:
            try:
                data = encode(message)
            except UnicodeEncodeError:
                data = encode(replace_surrogates(message))
        except RecursionError:
            raise InternalError("The result is nested too deeply or refers to itself") from None
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise InternalError(f"The result cannot be encoded as JSON: {error}") from None
        if self._redact is not None and not self._is_clean(data):
            data = _redact_message(data, self._redact)
        if b"\n" in data:
            # The newline is between tokens of raw JSON; inside a string it would be escaped.
            data = data.replace(b"\n", b" ")
        if len(data) > self._limit:
            raise TooLarge(
                f"The message would be {len(data)} bytes long; the limit is {self._limit}"
            )
        return data

    def encode_result(self, id: Id, result: Any, is_redacted: bool = False) -> bytes:
        """Return the reply with a lowered result, or with an error if the result cannot be encoded.
        The `redact` rule is not applied to a result that is redacted already."""
        try:
            if self._redact is None or is_redacted:
                data = encode(Response(id, result))
                if len(data) <= self._limit and b"\n" not in data:
                    return data
        except Exception:
            pass  # the slow path below hits the same error and reports it
        try:
            return self.encode(Response(id, result))
        except ProtocolError as error:
            return self.encode_failure(id, error, None)

    def encode_request(self, id: Id, revision: Revision, method: Method, params: Any) -> bytes:
        """Return a request as bytes, or raise InternalError or TooLarge if it cannot be encoded."""
        name, wire = revision.lower_message(method, params)
        return self.encode(Request(id, name, NO_PARAMS if wire is None else wire))

    def encode_notification(self, revision: Revision, method: Method, params: Any) -> bytes | None:
        """Return a notification as bytes, or log the error and return None if it cannot be
        encoded."""
        try:
            name, wire = revision.lower_message(method, params)
            return self.encode(Notification(name, NO_PARAMS if wire is None else wire))
        except ProtocolError as error:
            log.warning("Could not send %s: %s", method.name, error)
            return None

    def encode_failure(
        self, id: Id | None, error: ProtocolError, revision: Revision | None
    ) -> bytes:
        """Return the reply with an error, using the code that the error has in this revision."""
        code = error.code if revision is None else revision.code(error)
        try:
            return self.encode(_reply(id, Error(code, error.message, error.data), revision))
        except ProtocolError:
            return encode(
                _reply(id, Error(code, "The error message could not be encoded"), revision)
            )


def _never(data: bytes) -> bool:
    return False


def redact_json(data: bytes, redact: Redact) -> bytes:
    """Apply a `redact` rule to the strings in a JSON value. Raise InternalError if the rule
    fails."""
    return encode(_apply(redact, _plain(data)))


def _redact_message(data: bytes, redact: Redact) -> bytes:
    message = _plain(data)
    content = {part: message[part] for part in ("params", "result", "error") if part in message}
    # Encoded again even if nothing was found: of two equal keys in raw JSON, only one was checked.
    return encode(message | _apply(redact, content))


def _apply(redact: Redact, value: Any) -> Any:
    """Return a value whose strings are redacted; if nothing is to be redacted, as in most messages,
    the value itself."""
    try:
        if all(redact(text) == text for text in _find_strings(value)):
            return value
        return _map_strings(value, redact)
    except Exception:
        _withhold()


def _find_strings(value: Any) -> set[str]:
    """Return the strings in a decoded value, except keys."""
    # Not recursive: this takes a third of the time.
    found, rest = set[str](), [value]
    while rest:
        item = rest.pop()
        kind = type(item)
        if kind is str:
            found.add(item)
        elif kind is dict:
            rest.extend(item.values())
        elif kind is list:
            rest.extend(item)
    return found


def _withhold() -> NoReturn:
    log.exception("A message was withheld: the redact rule raised an exception")
    raise InternalError(
        "The message was withheld because it could not be checked for secrets"
    ) from None


def _reply(id: Id | None, body: Error, revision: Revision | None) -> Any:
    if id is None and revision is not None and revision.unnamed_errors:
        return {"jsonrpc": "2.0", "error": body}
    return ErrorResponse(id, body)


def replace_surrogates(value: Any) -> Any:
    """Return the value as plain objects, with every lone surrogate replaced."""
    return _map_strings(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,)), _valid)


def _valid(text: str) -> str:
    """Replace surrogate pairs with their character, and lone surrogates with U+FFFD."""
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
