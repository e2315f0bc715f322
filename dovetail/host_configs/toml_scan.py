"""Find the statements of a TOML text: its table headers, and its keys with their values.

`tomllib` checks the text and decodes it, but does not say where its parts are. This scanner relies
on that check, so it only has to recognise strings, comments and brackets.
"""

import re
import tomllib
from typing import Any, NamedTuple

from .splice import EditError, KeyPath

# Atomic groups, because a possessive group (`(…)*+`) does not match correctly before Python 3.11.3.
_STRING = (
    r'"""(?>(?:[^"\\]++|\\(?s:.)|"{1,2}(?!"))*)"{3,5}'
    r"|'''(?>(?:[^']++|'{1,2}(?!'))*)'{3,5}"
    r'|"(?>(?:[^"\\\r\n]++|\\.)*)"'
    r"|'[^'\r\n]*+'"
)
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<comment>\#[^\r\n]*+)|(?P<line_break>\r?\n)|(?P<space>[ \t]++)"
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<comma>,)|(?P<other>[^\s\"'#\[\]{},]++|.)"
)
_KEY = rf"(?:{_STRING}|[A-Za-z0-9_-]++)"
_ONE_KEY = re.compile(_KEY)
_KEYS = re.compile(rf"{_KEY}(?>(?:[ \t]*+\.[ \t]*+{_KEY})*)")
_ASSIGNMENT = re.compile(r"[ \t]*+=[ \t]*+")
_NOT_A_STATEMENT = re.compile(r"(?>(?:[ \t\r\n]++|\#[^\r\n]*+)*)")
_HEADER = re.compile(r"(\[\[?)[ \t]*+")
_REST_OF_LINE = re.compile(r"[^\r\n]*+")
_POSITION = re.compile(r" \(at (line \d+, column \d+|end of document)\)$")


class TomlStatement(NamedTuple):
    """A table header, or a key with its value, in a table or in an inline table."""

    kind: str
    """`[` for a header, `[[` for a header of an array of tables, `=` for a key with its value."""
    table: KeyPath
    """The table that contains the key. For a header, its own path."""
    path: KeyPath
    """The table that starts here, or the full path of the key."""
    start: int
    value: int
    """The start of the value."""
    end: int
    """The end of the value or header, before a comment."""


class TomlDocument(NamedTuple):
    """A text, its value, and its statements in order."""

    text: str
    value: dict[str, Any]
    statements: tuple[TomlStatement, ...]


def scan(text: str) -> TomlDocument:
    """Decode a text and find its statements.

    Args:
        text: The text.
    """
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _POSITION.search(str(error))
        what = _POSITION.sub("", str(error))
        at = where[1] if where else "end of document"
        if at == "end of document":
            lines = text.rstrip("\r\n").split("\n")
            at = f"line {len(lines)}, column {len(lines[-1]) + 1}"
        raise EditError(f"not valid TOML: {at}: {what}") from None
    except RecursionError:
        raise EditError("not valid TOML: it is nested too deeply") from None
    return TomlDocument(text, value, tuple(_find_statements(text)))


def line_end(text: str, at: int) -> int:
    """Return the end of the line of a position, before its line break.

    Args:
        text: The text.
        at: The position, which is not inside a value.
    """
    found = _REST_OF_LINE.match(text, at)
    return found.end() if found else at


def scan_inline_table(text: str, start: int) -> tuple[list[TomlStatement], int]:
    """Return the keys of an inline table, and the position of its closing bracket.

    Args:
        text: The text.
        start: The position of its opening bracket.
    """
    entries = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        entry = _read_assignment(text, at, (), is_inline=True)
        entries.append(entry)
        at = _skip(text, entry.end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return entries, at


def _find_statements(text: str) -> list[TomlStatement]:
    found: list[TomlStatement] = []
    table: KeyPath = ()
    at = _skip(text, 0)
    while at < len(text):
        header = _HEADER.match(text, at)
        if header is None:
            found.append(_read_assignment(text, at, table, is_inline=False))
        else:
            table, end = _read_keys(text, header.end())
            end = text.index("]", end) + len(header[1])
            found.append(TomlStatement(header[1], table, table, at, end, end))
        at = _skip(text, found[-1].end)
    return found


def _skip(text: str, at: int) -> int:
    """Return where the next statement starts, after white space and comments."""
    found = _NOT_A_STATEMENT.match(text, at)
    return found.end() if found else at


def _read_assignment(text: str, at: int, table: KeyPath, is_inline: bool) -> TomlStatement:
    keys, end = _read_keys(text, at)
    sign = _ASSIGNMENT.match(text, end)
    value = sign.end() if sign else end
    return TomlStatement("=", table, table + keys, at, value, _value_end(text, value, is_inline))


def _read_keys(text: str, at: int) -> tuple[KeyPath, int]:
    """Return the keys of a dotted key, and where it ends."""
    found = _KEYS.match(text, at)
    if found is None:  # tomllib would have refused the text
        raise EditError("not valid TOML: a key is missing")
    return tuple(_decode_key(each[0]) for each in _ONE_KEY.finditer(found[0])), found.end()


def _decode_key(written: str) -> str:
    if written[0] not in "\"'":
        return written
    if "\\" not in written:
        return written[1:-1]
    key: str = tomllib.loads(f"key = {written}")["key"]
    return key


def _value_end(text: str, at: int, is_inline: bool) -> int:
    """Return where a value ends that starts at a position."""
    depth, end = 0, at
    for token in _TOKEN.finditer(text, at):
        kind = token.lastgroup
        if depth == 0 and (
            kind in ("line_break", "comment") or (is_inline and kind in ("comma", "close"))
        ):
            break
        depth += (kind == "open") - (kind == "close")
        if kind not in ("space", "line_break", "comment"):
            end = token.end()
    return end
