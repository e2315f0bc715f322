"""Change one value in a YAML text.

New entries of a block mapping are lines with the indentation of their neighbours. An entry of a
mapping in brackets is written in brackets. The text is spliced, because a round trip through
`ruamel.yaml` changes the indentation and the spaces before comments in the whole file.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..yaml_loader import YamlEntry, YamlError, YamlNode, scan_yaml
from .splice import (
    EditError,
    KeyPath,
    Splice,
    break_after,
    break_before,
    find_line_break,
    line_end,
    line_start,
    starts_line,
    wrap,
)

DEFAULT_UNIT = 2
MAX_CHARS = 256 * 1024
"""The longest text that is read. A longer one would take many seconds, because it is parsed several
times; files of hosts have a few thousand characters."""
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Words that some version of YAML does not read as strings."""
_TO_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_COMMENT_LINE = re.compile(r"\r?\n([ \t]*+)#[^\r\n]*+")
_COLON = re.compile(r"[ \t]*:")


class YamlDocument(NamedTuple):
    """A text, its value, and the position of each part."""

    text: str
    value: Any
    root: YamlNode | None


def scan(text: str) -> YamlDocument:
    """Decode a text and find its values. A text without a value is an empty mapping.

    Args:
        text: The text.
    """
    if len(text) > MAX_CHARS:
        raise EditError(
            f"has more than {MAX_CHARS // 1024:,} Ki characters, which takes too long in YAML. "
            "Paste the entry that `dovetail install … --print` shows."
        )
    try:
        root = scan_yaml(text)
    except YamlError as error:
        raise EditError(f"not valid YAML: {error}") from None
    if root is None or (root.start == root.end and not root.has_properties):
        return YamlDocument(text, {}, None)
    return YamlDocument(text, root.value, root)


def set_value(document: YamlDocument, path: KeyPath, value: Any) -> list[Splice]:
    """Return the changes that add a value or replace it.

    Args:
        document: The text, whose values on the path are mappings, null or missing.
        path: The keys that lead to the value.
        value: The value.
    """
    text, root = document.text, document.root
    if root is None:
        return [_append(text, path[0], wrap(path[1:], value))]
    parent = root
    for depth, key in enumerate(path):
        entries = _entries(parent, path[:depth])
        rest = wrap(path[depth + 1 :], value)
        unit = _find_unit(text, parent, root)
        if key not in entries:
            return [_insert(text, parent, key, rest, unit)]
        if depth == len(path) - 1 or entries[key].value.value is None:
            return [_replace(text, parent, entries[key], rest, unit)]
        parent = entries[key].value
    raise AssertionError("the path is empty")


def remove_value(document: YamlDocument, path: KeyPath) -> list[Splice]:
    """Return the changes that remove a value.

    Args:
        document: The text, which has the value.
        path: The keys that lead to the value.
    """
    text, parent, parent_key = document.text, document.root, None
    for depth, key in enumerate(path[:-1]):
        parent_key, parent = _entries(parent, path[:depth])[key]
    entries = _entries(parent, path[:-1])
    if parent is not None and parent.style == "flow":
        return [_remove_flow(text, list(entries.values()), entries[path[-1]])]
    splices = [_remove_lines(text, entries[path[-1]])]
    if len(entries) == 1 and parent_key is not None:  # null is not what a host expects
        colon = _COLON.match(text, parent_key.end)
        at = colon.end() if colon else parent_key.end
        splices.append(Splice(at, at, " {}"))
    return splices


def _entries(node: YamlNode | None, path: KeyPath) -> dict[str, YamlEntry]:
    """Return the entries of the mapping at a path."""
    if node is None or node.entries is None:
        name = ".".join(path) or "The top level of the file"
        raise EditError(f"{name} is an alias or null, so it cannot be changed. Do it by hand.")
    return node.entries


def _append(text: str, key: str, value: Any) -> Splice:
    """Write the first entry of a text that has no value, but may have comments."""
    line_break = find_line_break(text)
    lines = line_break.join(_write_lines(key, value, "", " " * DEFAULT_UNIT))
    if not text.strip():
        return Splice(0, 0, lines + ("" if "\n" in text else line_break))
    first = "" if text.endswith("\n") else line_break
    return Splice(len(text), len(text), first + lines + line_break)


def _insert(text: str, parent: YamlNode, key: str, value: Any, unit: str) -> Splice:
    """Add an entry to a mapping, after its last entry."""
    entries = list((parent.entries or {}).values())
    if parent.style == "flow":
        new = f"{_write(key)}: {_write(value)}"
        if not entries:
            at = parent.end - 1
            return Splice(at, at, new)
        at = entries[-1].value.end
        return Splice(at, at, f", {new}")
    column = _column(text, entries[0].key)
    at = line_end(text, entries[-1].value.end)
    while (comment := _COMMENT_LINE.match(text, at)) and len(comment[1]) > column:
        at = comment.end()  # it belongs to the last entry
    return Splice(at, at, _join(text, _write_lines(key, value, " " * column, unit)))


def _replace(text: str, parent: YamlNode, entry: YamlEntry, value: Any, unit: str) -> Splice:
    """Replace the value of an entry, and keep its style if it is a mapping."""
    old = entry.value
    is_written = old.start != old.end
    if is_written and old.style == "block" and old.entries and not old.has_properties:
        first = next(iter(old.entries.values())).key
        indent = " " * _column(text, first)
        start = break_before(text, line_start(text, first.start))
        return Splice(start, old.end, _join(text, _write_items(value, indent, unit)))
    if is_written or parent.style == "flow" or not value:
        space = "" if is_written else " " if text[old.start - 1] == ":" else ": "
        return Splice(old.start, old.end, space + _write(value))
    at = line_end(text, old.end)
    indent = " " * _column(text, entry.key) + unit
    return Splice(at, at, _join(text, _write_items(value, indent, unit)))


def _remove_lines(text: str, entry: YamlEntry) -> Splice:
    """Remove an entry of a block mapping with its lines."""
    if not starts_line(text, entry.key.start):
        raise EditError("The entry does not start on a line of its own. Remove it by hand.")
    start, end = line_start(text, entry.key.start), line_end(text, entry.value.end)
    if start == 0:
        return Splice(start, break_after(text, end), "")
    return Splice(break_before(text, start), end, "")


def _remove_flow(text: str, entries: list[YamlEntry], entry: YamlEntry) -> Splice:
    """Remove an entry of a mapping in brackets, with one comma."""
    number = entries.index(entry)
    start, end = entry.key.start, entry.value.end
    if number + 1 < len(entries):
        end = entries[number + 1].key.start
    elif number > 0:
        start = entries[number - 1].value.end
    if "#" in text[entry.value.end : end] or "#" in text[start : entry.key.start]:
        raise EditError("There is a comment next to the entry. Remove the entry by hand.")
    return Splice(start, end, "")


def _find_unit(text: str, parent: YamlNode, root: YamlNode) -> str:
    """Return the indentation of one level, as the neighbours have it, or else the top level."""
    for node in (parent, root):
        for entry in (node.entries or {}).values():
            if entry.value.style == "block" and entry.value.entries:
                first = next(iter(entry.value.entries.values()))
                return " " * (_column(text, first.key) - _column(text, entry.key))
    return " " * DEFAULT_UNIT


def _column(text: str, node: YamlNode) -> int:
    return node.start - line_start(text, node.start)


def _join(text: str, lines: Iterator[str]) -> str:
    line_break = find_line_break(text)
    return "".join(line_break + line for line in lines)


def _write_items(value: dict[str, Any], indent: str, unit: str) -> Iterator[str]:
    for key, item in value.items():
        yield from _write_lines(key, item, indent, unit)


def _write_lines(key: str, value: Any, indent: str, unit: str) -> Iterator[str]:
    """Yield the lines of an entry. Objects inside of lists are written in brackets."""
    if isinstance(value, dict) and value:
        yield f"{indent}{_write(key)}:"
        yield from _write_items(value, indent + unit, unit)
    elif isinstance(value, list) and value:
        yield f"{indent}{_write(key)}:"
        yield from (f"{indent}{unit}- {_write(item)}" for item in value)
    else:
        yield f"{indent}{_write(key)}: {_write(value)}"


def _write(value: Any) -> str:
    """Write a value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_write(key)}: {_write(value[key])}" for key in value) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_write, value))}]"
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        quoted = json.dumps(value, ensure_ascii=False)
        return _TO_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
    return json.dumps(value)
