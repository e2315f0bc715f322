"""The names of the headers in MCP over HTTP, and the encoding of their values.

In the stateless era, parts of the body are repeated in headers, so that proxies can route a request
without reading its body. These parts are the method (`Mcp-Method`), its main parameter (`Mcp-Name`,
see `Method.named`), and the tool parameters that are marked in the schema. For example,
`x-mcp-header: Region` produces `Mcp-Param-Region`. A header cannot hold every JSON string, so a
value that is not printable ASCII is encoded as `=?base64?…?=`. Plain text that already has this
form is also encoded.

The client writes these headers (`encode_params`) and the server compares them with the body
(`matches`), so both sides share this file.
https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#request-metadata
"""

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ...errors import ConfigError
from ...protocol.header_params import HeaderParam

# As in ASGI, names are lowercase bytes.
HOST: Final = b"host"
ORIGIN: Final = b"origin"
ACCEPT: Final = b"accept"
AUTHORIZATION: Final = b"authorization"
CONTENT_TYPE: Final = b"content-type"
CONTENT_LENGTH: Final = b"content-length"
CONTENT_ENCODING: Final = b"content-encoding"
LAST_EVENT_ID: Final = b"last-event-id"
MCP: Final = b"mcp-"
VERSION: Final = b"mcp-protocol-version"
SESSION: Final = b"mcp-session-id"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
PARAM: Final = b"mcp-param-"


def spell_header(header: bytes) -> str:
    """Return the usual spelling of a header name."""
    return _SPELLINGS.get(header) or header.decode("latin-1").title()


_SPELLINGS = {VERSION: "MCP-Protocol-Version", LAST_EVENT_ID: "Last-Event-ID"}


# headers that an intermediary passes on

_passed_on: ContextVar[Mapping[str, str] | None] = ContextVar("passed_on", default=None)
_known_params: ContextVar[tuple[HeaderParam, ...]] = ContextVar("known_params", default=())


@contextmanager
def pass_on_headers(
    headers: Mapping[str, str], params: tuple[HeaderParam, ...] = ()
) -> Iterator[None]:
    """Add headers to the tool call that a client sends in this block. This is how they pass the
    layers that know nothing about HTTP. `params` are the header parameters of the tool, for a
    client that has not listed it."""
    before = _passed_on.set(headers), _known_params.set(params)
    try:
        yield
    finally:
        _passed_on.reset(before[0])
        _known_params.reset(before[1])


def known_params() -> tuple[HeaderParam, ...]:
    """Return the header parameters of the tool that is being called, if the caller knows them."""
    return _known_params.get()


def passes_on_headers() -> bool:
    """Return whether this code runs in a block of `pass_on_headers`."""
    return bool(_passed_on.get() or _known_params.get())


def with_passed_on(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a tool call with those that are passed on and that it does not have."""
    more = _passed_on.get()
    if not more:
        return headers
    own = {name.lower() for name in headers}
    return {**headers, **{name: more[name] for name in more if name.lower() not in own}}


# requests

FRAMING: Final = frozenset({"content-length", "transfer-encoding"})
"""The headers that say where a message ends."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def check_headers(headers: Mapping[str, str], shown: str) -> None:
    """Raise ConfigError if a header cannot be sent, because it could end the header, the headers or
    the request early. Names are in lower case. `shown` is what the error is about."""
    # Nearly all headers pass these tests of all names and values at once: 2 µs instead of 7 µs.
    names = "".join(headers)
    if (
        names.isascii()
        and names.replace("-", "").isalnum()
        and "".join(headers.values()).isprintable()
        and FRAMING.isdisjoint(headers)
        and "" not in headers
    ):
        return
    for name, value in headers.items():
        if name in FRAMING:
            raise ConfigError(f"{shown}: {name!r} is set by the client itself")
        if not _NAME.fullmatch(name) or _FORBIDDEN.search(value):
            raise ConfigError(
                f"{shown}: {name!r} contains characters that are not allowed in headers"
            )


# values

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON parser represents exactly."""
_OPEN, _CLOSE = "=?base64?", "?="


def encode_value(value: str | int | bool) -> str:
    """Encode a value from the body for a header. Raise ValueError for an integer that is too
    large."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise ValueError("An integer outside ±(2^53 - 1) cannot be sent in a header")
        return str(value)
    plain = value.isascii() and value.isprintable() and value == value.strip(" ")
    if plain and not (value.startswith(_OPEN) and value.endswith(_CLOSE)):
        return value
    return f"{_OPEN}{b2a_base64(value.encode(), newline=False).decode()}{_CLOSE}"


def decode_value(text: str) -> str:
    """Decode a header value. Raise ValueError if the value has the form of Base64 but is not
    Base64-encoded UTF-8."""
    text = text.strip(" \t")
    if not (text.startswith(_OPEN) and text.endswith(_CLOSE)) or len(text) < len(_OPEN) + len(
        _CLOSE
    ):
        return text
    return a2b_base64(text[len(_OPEN) : -len(_CLOSE)].encode("latin-1"), strict_mode=True).decode()


# header parameters of tools


def is_encodable(value: Any) -> bool:
    """Return whether a value can be sent in a header. Any other value has the wrong type, and the
    tool itself reports that."""
    return isinstance(value, (str, int)) or (isinstance(value, float) and value.is_integer())


def encode_params(mirrors: tuple[HeaderParam, ...], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameter headers for a tool call. Raise ValueError for an integer that is too
    large."""
    found = ((mirror, mirror.value(arguments)) for mirror in mirrors)
    return {
        f"{spell_header(PARAM)}{mirror.name}": encode_value(
            int(value) if isinstance(value, float) else value
        )
        for mirror, value in found
        if is_encodable(value)
    }


_INTEGER = re.compile(r"(-?[0-9]{1,16})(?:\.0*)?")


def matches(value: Any, text: str) -> bool:
    """Return whether a received header has the same value as the body. Numbers are compared by
    value, so `42.0` equals 42."""
    text = decode_value(text)
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == encode_value(value)
    number = _INTEGER.fullmatch(text)
    return (
        number is not None
        and is_encodable(value)
        and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
        and int(number[1]) == value
    )
