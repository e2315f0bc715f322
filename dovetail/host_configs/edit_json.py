"""Change one value in a JSON text, which may have comments and trailing commas.

New text has the line ends, the indentation and the trailing comma of its neighbours. An object on
one line stays on one line. A comment at the end of a line stays with the entry of that line.
"""

import json
import re
from typing import Any, NamedTuple

from ..jsonc import JsoncError, JsonDocument, JsonNode, scan as scan_json
from .splice import (
    DEFAULT_INDENT,
    LINE_BREAK,
    MAX_LINE_CHARS,
    EditError,
    KeyPath,
    Span,
    Splice,
    apply,
    break_before,
    find_line_break,
    indent_of,
    line_start,
    starts_line,
    wrap,
)

_SPACE = " \t\r\n"
_BLOCK_COMMENT = r"/\*(?s:.*?)\*/"
# Atomic groups, because a possessive group (`(…)*+`) does not match correctly before Python 3.11.3.
_COMMENTS_ON_LINE = re.compile(rf"(?>(?:[ \t]*+(?:{_BLOCK_COMMENT}|//[^\r\n]*+))*)")
_COMMENTS = re.compile(rf"(?>(?:[ \t\r\n]*+(?:{_BLOCK_COMMENT}|//[^\r\n]*+))*)")
_BLANKS = re.compile(r"[ \t]*")
_INDENTED_KEY = re.compile(r'[\r\n]([ \t]+)"')


class JsonLayout(NamedTuple):
    """How new text is written."""

    line_break: str
    indent: str
    """The white space before the new entry."""
    unit: str
    """The additional white space of each level."""


def scan(text: str) -> JsonDocument:
    """Decode a text and find its values. A text without a value is an empty object.

    Args:
        text: The text.
    """
    try:
        return scan_json(text)
    except JsoncError as error:
        if _has_no_value(text):
            return JsonDocument(text, {}, JsonNode(0, len(text), len(text), len(text), None, {}))
        raise EditError(f"not valid JSON: {error}") from None


def _has_no_value(text: str) -> bool:
    try:
        return scan_json(f"{text}\n0").root.start == len(text) + 1
    except JsoncError:
        return False


def set_value(document: JsonDocument, path: KeyPath, value: Any) -> list[Splice]:
    """Return the changes that add a value or replace it.

    Args:
        document: The text, whose objects on the path are objects or missing.
        path: The keys that lead to the value.
        value: The value.
    """
    text, node = document.text, document.root
    if node.start == len(text):
        return [_fill(text, wrap(path, value))]
    for depth, key in enumerate(path):
        child = node.children.get(key)
        if child is None:
            return _insert(text, node, key, wrap(path[depth + 1 :], value))
        node = child
    return [_replace(text, node, value)]


def remove_value(document: JsonDocument, path: KeyPath) -> list[Splice]:
    """Return the changes that remove a value. If its key occurs more than once, all of them go.

    Args:
        document: The text, which has the value.
        path: The keys that lead to the value.
    """
    text = document.text
    splices = _remove(document, path)
    after = apply(text, splices).text
    rest = scan(after)
    if rest.find(*path) is None:
        return splices
    after = apply(after, remove_value(rest, path)).text
    return [_difference(text, after)]


def append_element(document: JsonDocument, key: str, value: Any) -> list[Splice]:
    """Return the changes that add a value to a list at the top level, after its last element.

    Args:
        document: The text, which has the list.
        key: The key of the list.
        value: The value.
    """
    return _insert(document.text, document.root.children[key], None, value)


def remove_element(document: JsonDocument, key: str, index: int) -> list[Splice]:
    """Return the changes that remove an element of a list at the top level.

    Args:
        document: The text, which has the list.
        key: The key of the list.
        index: The index of the element.
    """
    return _remove(document, (key, index))


def _difference(before: str, after: str) -> Splice:
    """Return one change that turns a text into another one."""
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    end = next(
        (at for at in range(shorter - start) if before[-1 - at] != after[-1 - at]), shorter - start
    )
    return Splice(start, len(before) - end, after[start : len(after) - end])


def _fill(text: str, value: Any) -> Splice:
    """Write the value of a text that has none: at the start, or after the comments."""
    line_break = find_line_break(text)
    written = _write(value, JsonLayout(line_break, "", DEFAULT_INDENT))
    if text.strip(_SPACE):  # comments
        first = "" if text.endswith(("\n", "\r")) else line_break
        return Splice(len(text), len(text), first + written + line_break)
    return Splice(0, 0, written + ("" if LINE_BREAK.search(text) else line_break))


def _insert(text: str, parent: JsonNode, key: str | None, value: Any) -> list[Splice]:
    """Add an entry to an object, or an element without a key to a list, after the last one."""
    if not parent.children:
        return _insert_first(text, parent, key, value)
    last = list(parent.children.values())[-1]
    after = last.end if last.comma is None else last.comma + 1
    comments = _COMMENTS_ON_LINE.match(text, after)
    at = comments.end() if comments else after
    is_one_line = not (
        LINE_BREAK.search(text, last.lead, last.entry)
        or LINE_BREAK.search(text, last.end, parent.end)
    )
    if is_one_line:
        space = "" if _is_compact(text, last) else " "
        written = _write_on_line(key, value, space)
        new = f",{space}{written}" if last.comma is None else f"{space}{written},"
        return [Splice(at, at, new)]
    layout = _layout_in(text, parent, last)
    new = layout.line_break + layout.indent + _write_entry(key, value, layout)
    if last.comma is not None:
        return [Splice(at, at, new + ",")]
    if at == after:
        return [Splice(at, at, "," + new)]
    return [Splice(after, after, ","), Splice(at, at, new)]


def _insert_first(text: str, parent: JsonNode, key: str | None, value: Any) -> list[Splice]:
    """Add an entry to an object or a list that has none, but may have comments."""
    closing = parent.end - 1
    inner = text[parent.start + 1 : closing]
    comments = _COMMENTS.match(text, parent.start + 1)
    at = comments.end() if comments else parent.start + 1
    is_root = parent.entry == parent.start
    if not is_root and not LINE_BREAK.search(inner) and not starts_line(text, parent.entry):
        space = "" if _is_compact(text, parent) else " "
        written = _write_on_line(key, value, space)
        return [Splice(at, at, f" {written}" if inner else written)]
    layout = _layout_in(text, parent, None)
    new = layout.line_break + layout.indent + _write_entry(key, value, layout)
    if LINE_BREAK.search(text, at, closing):
        return [Splice(at, at, new)]
    return [Splice(closing, closing, new + layout.line_break + indent_of(text, parent.start))]


def _replace(text: str, node: JsonNode, value: Any) -> Splice:
    """Replace a value. It is written on one line if the old value is an object on one line, or if
    its entry is not at the start of a line."""
    old = text[node.start : node.end]
    if LINE_BREAK.search(old) or (starts_line(text, node.entry) and not node.children):
        indent = indent_of(text, node.entry)
        layout = JsonLayout(find_line_break(text), indent, _find_unit(text, node, indent))
        return Splice(node.start, node.end, _write(value, layout))
    space = "" if _is_compact(text, node) else " "
    return Splice(node.start, node.end, _dump(value, space))


def _remove(document: JsonDocument, path: tuple[str | int, ...]) -> list[Splice]:
    parent, node = document.find(*path[:-1]), document.find(*path)
    assert parent is not None and node is not None
    text, first, closing = document.text, parent.start + 1, parent.end - 1
    end = node.end if node.comma is None else node.comma + 1
    if not (text[first : node.entry].strip(_SPACE) or text[end:closing].strip(_SPACE)):
        return [Splice(first, closing, "")]
    start, end = _entry_lines(text, node, end)
    if node.comma is None and text[node.lead - 1] == ",":
        return [Splice(node.lead - 1, node.lead, ""), Splice(start, end, "")]
    return [Splice(start, end, "")]


def _entry_lines(text: str, node: JsonNode, end: int) -> Span:
    """Return the part of the text to remove with an entry, which ends, with its comma, at `end`."""
    if not starts_line(text, node.entry):
        if text[node.lead - 1] == "," or node.comma is None:
            return len(text[: node.entry].rstrip(" \t")), end
        return node.entry, _skip_blanks(text, end)
    start = max(break_before(text, line_start(text, node.entry)), node.lead)
    comments = _COMMENTS_ON_LINE.match(text, end)
    after = comments.end() if comments else end
    if LINE_BREAK.match(text, _skip_blanks(text, after)):
        return start, after
    if node.comma is None and "//" not in text[node.lead : node.entry]:
        return start, end
    return node.entry, _skip_blanks(text, end)


def _skip_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _layout_in(text: str, parent: JsonNode, last: JsonNode | None) -> JsonLayout:
    """Return how an entry of an object is written that is not on one line."""
    outer = indent_of(text, parent.start)
    if last is not None and LINE_BREAK.search(text, last.lead, last.entry):
        indent = indent_of(text, last.entry)
        return JsonLayout(find_line_break(text), indent, _find_unit(text, parent, indent))
    unit = _find_unit(text, parent, "")
    return JsonLayout(find_line_break(text), outer + unit, unit)


def _find_unit(text: str, node: JsonNode, indent: str) -> str:
    """Return the indentation of one level: by how much the entries of this object are indented,
    otherwise by how much the first indented key of the text is."""
    outer = indent_of(text, node.start)
    if indent.startswith(outer) and len(indent) > len(outer):
        return indent[len(outer) :]
    found = _INDENTED_KEY.search(text)
    return found[1] if found else DEFAULT_INDENT


def _is_compact(text: str, node: JsonNode) -> bool:
    """Return whether there is no space before the value of an entry."""
    return text[node.start - 1] == ":"


def _write_on_line(key: str | None, value: Any, space: str) -> str:
    written = _dump(value, space)
    return written if key is None else f"{_dump(key)}:{space}{written}"


def _write_entry(key: str | None, value: Any, layout: JsonLayout) -> str:
    written = _write(value, layout)
    return written if key is None else f"{_dump(key)}: {written}"


def _write(value: Any, layout: JsonLayout) -> str:
    """Write a value on several lines. Empty values, and lists that fit, are on one line."""
    is_short_list = isinstance(value, list) and not any(
        isinstance(item, dict | list) for item in value
    )
    line = _dump(value)
    if not isinstance(value, dict | list) or not value:
        return line
    if is_short_list and len(layout.indent) + len(line) < MAX_LINE_CHARS:
        return line
    inner = layout._replace(indent=layout.indent + layout.unit)
    if isinstance(value, dict):
        opening, closing = "{", "}"
        items = [_write_entry(key, item, inner) for key, item in value.items()]
    else:
        opening, closing = "[", "]"
        items = [_write(item, inner) for item in value]
    separator = layout.line_break + inner.indent
    content = f",{separator}".join(items)
    return f"{opening}{separator}{content}{layout.line_break}{layout.indent}{closing}"


def _dump(value: Any, space: str = " ") -> str:
    return json.dumps(value, ensure_ascii=False, separators=(f",{space}", f":{space}"))
