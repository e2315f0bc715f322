"""Change one table in a TOML text.

A new entry is a table of its own, `[mcp_servers.NAME]`, after the last table of its group, or at
the end. Objects in it are sub-tables. If the group is an inline table, the entry is one, too.

`tomlkit` is not used for this. It counts the comments above a table header to the table before it,
so it removes them with that table, and writes new tables between a comment and its header.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from .splice import (
    MAX_LINE_CHARS,
    KeyPath,
    Splice,
    break_after,
    break_before,
    find_line_break,
    line_start,
)
from .toml_scan import TomlDocument, TomlStatement, line_end, scan, scan_inline_table

__all__ = ["remove_value", "scan", "set_value"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT_LINES = re.compile(r"(?>(?:\r?\n[ \t]*+\#[^\r\n]*+)*)")
_HEADER_LINE = re.compile(r"\r?\n[ \t]*\[")


def set_value(document: TomlDocument, path: KeyPath, value: Any) -> list[Splice]:
    """Return the changes that add a table or replace it.

    Args:
        document: The text.
        path: The keys that lead to the table.
        value: The table.
    """
    assigned = _find_assignment(document.statements, path)
    if assigned is not None:
        return _set_inline(document.text, assigned, path[len(assigned.path) :], value)
    runs = _find_runs(document.statements, path)
    if not runs:
        return [_insert(document, path, value)]
    return [
        _replace(document.text, runs[0], path, value),
        *(_remove_lines(document.text, run) for run in runs[1:]),
    ]


def remove_value(document: TomlDocument, path: KeyPath) -> list[Splice]:
    """Return the changes that remove a table, with its sub-tables.

    Args:
        document: The text, which has the table.
        path: The keys that lead to the table.
    """
    text = document.text
    assigned = _find_assignment(document.statements, path)
    if assigned is not None and assigned.path != path:
        return _remove_inline(text, assigned.value, path[len(assigned.path) :])
    return [_remove_lines(text, run) for run in _find_runs(document.statements, path)]


def _find_assignment(
    statements: tuple[TomlStatement, ...] | list[TomlStatement], path: KeyPath
) -> TomlStatement | None:
    """Return the key that has the value at this path, or a table that contains it."""
    matching = (
        each for each in statements if each.kind == "=" and path[: len(each.path)] == each.path
    )
    return next(matching, None)


def _find_runs(statements: tuple[TomlStatement, ...], path: KeyPath) -> list[list[TomlStatement]]:
    """Return the statements of a table, its keys and its sub-tables. Those without another one
    between them are together."""
    runs: list[list[TomlStatement]] = []
    is_inside = False
    for statement in statements:
        matches = statement.path[: len(path)] == path
        if matches and is_inside:
            runs[-1].append(statement)
        elif matches:
            runs.append([statement])
        is_inside = matches
    return runs


def _insert(document: TomlDocument, path: KeyPath, value: dict[str, Any]) -> Splice:
    text, statements = document.text, document.statements
    line_break = find_line_break(text)
    table = line_break.join(_write_table(path, value))
    group = [
        number for number, each in enumerate(statements) if each.path[: len(path) - 1] == path[:-1]
    ]
    if group:
        at = _section_end(text, statements[group[-1] :])
        return Splice(at, at, line_break * 2 + table)
    if not text.strip():
        return Splice(0, 0, table + ("" if "\n" in text else line_break))
    missing = max(0, 2 - text.count("\n", len(text.rstrip("\r\n"))))
    return Splice(len(text), len(text), line_break * missing + table + line_break)


def _section_end(text: str, statements: tuple[TomlStatement, ...]) -> int:
    """Return the end of the table that the first statement is in. Comments that follow without an
    empty line belong to it, unless a header comes next."""
    last, *following = statements
    for statement in following:
        if statement.kind != "=":
            break
        last = statement
    at = line_end(text, last.end)
    comments = _COMMENT_LINES.match(text, at)
    if comments is None or _HEADER_LINE.match(text, comments.end()):
        return at
    return comments.end()


def _replace(text: str, run: list[TomlStatement], path: KeyPath, value: dict[str, Any]) -> Splice:
    """Replace the statements of a table. Its header line stays if it has one."""
    first, line_break = run[0], find_line_break(text)
    end = line_end(text, run[-1].end)
    if first.kind == "=":
        key = _write_keys(path[len(first.table) :])
        return Splice(first.start, run[-1].end, f"{key} = {_write(value)}")
    header, *lines = _write_table(path, value)
    if first.kind == "[" and first.path == path:
        start = line_end(text, first.end)
        return Splice(start, end, "".join(line_break + line for line in lines))
    return Splice(first.start, end, line_break.join([header, *lines]))


def _remove_lines(text: str, run: list[TomlStatement]) -> Splice:
    """Remove statements with their lines, and one empty line before or after them."""
    start, end = line_start(text, run[0].start), line_end(text, run[-1].end)
    if start == 0:
        after = break_after(text, end)
        return Splice(start, break_after(text, after), "")
    before = break_before(text, start)
    return Splice(break_before(text, before), end, "")


def _set_inline(text: str, assigned: TomlStatement, rest: KeyPath, value: Any) -> list[Splice]:
    """Add a value to an inline table, or replace it."""
    if not rest:
        return [Splice(assigned.value, assigned.end, _write(value))]
    entries, closing = scan_inline_table(text, assigned.value)
    inner = _find_assignment(entries, rest)
    if inner is not None:
        return _set_inline(text, inner, rest[len(inner.path) :], value)
    new = f"{_write_keys(rest)} = {_write(value)}"
    old = [each for each in entries if each.path[: len(rest)] == rest]
    if old:
        return [
            Splice(old[0].start, old[0].end, new),
            *_remove_entries(entries, old[1:]),
        ]
    if entries:
        return [Splice(entries[-1].end, entries[-1].end, f", {new}")]
    at = assigned.value + 1
    return [Splice(at, at, f" {new}" if closing > at else f" {new} ")]


def _remove_inline(text: str, start: int, rest: KeyPath) -> list[Splice]:
    """Remove a value from an inline table."""
    entries, closing = scan_inline_table(text, start)
    inner = _find_assignment(entries, rest)
    if inner is not None and inner.path != rest:
        return _remove_inline(text, inner.value, rest[len(inner.path) :])
    old = [each for each in entries if each.path[: len(rest)] == rest]
    if len(old) == len(entries):
        return [Splice(start + 1, closing, "")]
    return _remove_entries(entries, old)


def _remove_entries(entries: list[TomlStatement], old: list[TomlStatement]) -> list[Splice]:
    """Remove entries of an inline table, of which one or more stay. The first entries are removed
    up to the one that stays, and others from the end of the one before them."""
    first = next(number for number, each in enumerate(entries) if each not in old)
    splices = [Splice(entries[0].start, entries[first].start, "")]
    pairs = zip(entries[first:], entries[first + 1 :], strict=False)
    return splices + [Splice(before.end, each.end, "") for before, each in pairs if each in old]


def _write_table(path: KeyPath, value: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table: its keys first, then its sub-tables."""
    yield f"[{_write_keys(path)}]"
    tables = {key: item for key, item in value.items() if isinstance(item, dict) and item}
    for key, item in value.items():
        if key not in tables:
            yield from _write_assignment(key, item)
    for key, item in tables.items():
        yield ""
        yield from _write_table((*path, key), item)


def _write_assignment(key: str, value: Any) -> Iterator[str]:
    line = f"{_write_keys((key,))} = {_write(value)}"
    if not isinstance(value, list) or len(line) <= MAX_LINE_CHARS:
        yield line
        return
    yield f"{_write_keys((key,))} = ["
    yield from (f"  {_write(item)}," for item in value)
    yield "]"


def _write_keys(path: KeyPath) -> str:
    return ".".join(key if _BARE_KEY.fullmatch(key) else _write(key) for key in path)


def _write(value: Any) -> str:
    """Write a value on one line."""
    if isinstance(value, dict):
        items = [f"{_write_keys((key,))} = {_write(item)}" for key, item in value.items()]
        return f"{{ {', '.join(items)} }}" if items else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_write, value))}]"
    if isinstance(value, str):  # JSON allows U+007F in a string, and TOML does not
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
