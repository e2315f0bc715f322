"""The headers of MCP over HTTP: their names, and how values travel in them.

In the stateless era parts of the body are mirrored into headers, so that what stands between client
and server can route without reading it: the method (`Mcp-Method`), what it is about (`Mcp-Name`,
see `Method.named`), and those parameters of a tool whose schema says so (`x-mcp-header: Region`
makes `Mcp-Param-Region`). A header holds less than a JSON string does, so whatever is not plain
printable ASCII travels as `=?base64?…?=`; so does a plain text that looks like that.

The client writes these headers (`values`), the server compares them with the body (`same`): both
sides share this file.
https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#request-metadata
"""

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Any, Final

from ...protocol.header_params import HeaderParam as HeaderParam
from ...protocol.header_params import find_header_params as find_header_params

# As ASGI has them: bytes, lower case.
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


def spelled(header: bytes) -> str:
    """A header's name as people, and clients, write it."""
    return _SPELLED.get(header) or header.decode("latin-1").title()


_SPELLED = {VERSION: "MCP-Protocol-Version", LAST_EVENT_ID: "Last-Event-ID"}


# values

SAFE: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""
_OPEN, _CLOSE = "=?base64?", "?="


def encode_value(value: str | int | bool) -> str:
    """What stands in the header for a value of the body; ValueError for an integer that not every
    reader keeps."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -SAFE <= value <= SAFE:
            raise ValueError("An integer beyond ±(2^53 - 1) cannot be mirrored into a header")
        return str(value)
    plain = value.isascii() and value.isprintable() and value == value.strip(" ")
    if plain and not (value.startswith(_OPEN) and value.endswith(_CLOSE)):
        return value
    return f"{_OPEN}{b2a_base64(value.encode(), newline=False).decode()}{_CLOSE}"


def decode_value(text: str) -> str:
    """What a header stands for; ValueError where it has the Base64 form, but what is in there is
    not Base64 of UTF-8."""
    text = text.strip(" \t")
    if not (text.startswith(_OPEN) and text.endswith(_CLOSE)) or len(text) < len(_OPEN) + len(
        _CLOSE
    ):
        return text
    return a2b_base64(text[len(_OPEN) : -len(_CLOSE)].encode("latin-1"), strict_mode=True).decode()


# parameters of tools


def encodable(value: Any) -> bool:
    """Whether a value can stand in a header at all. What cannot has the wrong type, which the tool
    itself will say."""
    return isinstance(value, (str, int)) or (isinstance(value, float) and value.is_integer())


def values(mirrors: tuple[HeaderParam, ...], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that a client sends with a call; ValueError for an integer that is too large."""
    found = ((mirror, mirror.value(arguments)) for mirror in mirrors)
    return {
        f"{spelled(PARAM)}{mirror.name}": encode_value(
            int(value) if isinstance(value, float) else value
        )
        for mirror, value in found
        if encodable(value)
    }


_INTEGER = re.compile(r"(-?[0-9]{1,16})(?:\.0*)?")


def same(value: Any, text: str) -> bool:
    """Whether a header, as it came, stands for this value of the body. Numbers are compared as
    numbers: `42.0` is 42."""
    text = decode_value(text)
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == encode_value(value)
    number = _INTEGER.fullmatch(text)
    return (
        number is not None
        and encodable(value)
        and -SAFE <= value <= SAFE
        and int(number[1]) == value
    )
