"""Show what changes in a file of a host.

The lines are made from the entry alone, with its secrets hidden: what the entry adds to the rest of
the file. Text of the file is never shown, because a neighbour on the same line may hold secrets.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .edit import Format, remove_entry, set_entry
from .entries import FileChange
from .hiding import hide_all, hide_values
from .records import digest_entry, read_records
from .splice import EditError, KeyPath


def describe_change(
    file: Path,
    format: Format,
    path: KeyPath,
    change: FileChange,
    old: Any,
    entry: dict[str, Any] | None,
) -> str:
    """Return the lines that are removed, after `-`, and those that are added, after `+`.

    Args:
        file: The file of the host.
        format: Its format.
        path: The keys that lead to the entry.
        change: The text of the file before and after.
        old: The entry that is replaced or removed; None if there is none.
        entry: The new entry; None if it is removed.
    """
    if not change.is_changed:
        return ""
    rest = change.new or "" if entry is None else _without(change.old or "", format, path)
    lines = []
    if isinstance(old, dict):
        hide = hide_values if _is_own(file, path, old) else hide_all
        lines += [f"-{line}" for line in _added_lines(rest, format, path, hide(old))]
    if entry is not None:
        lines += [f"+{line}" for line in _added_lines(rest, format, path, hide_values(entry))]
    return "\n".join(lines)


def _without(text: str, format: Format, path: KeyPath) -> str:
    with suppress(EditError):  # the entry cannot be removed alone, but it can be replaced
        return remove_entry(text, format, path).text
    return text


def _added_lines(text: str, format: Format, path: KeyPath, entry: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that an entry adds to a text."""
    try:
        edit = set_entry(text, format, path, entry)
    except EditError:
        edit = set_entry("", format, path, entry)
    for splice in edit.splices:
        lines = splice.text.lstrip(",").splitlines()
        yield from (line for line in lines if line.strip())


def _is_own(file: Path, path: KeyPath, entry: Any) -> bool:
    """Return whether `install` wrote an entry, and nobody changed it since."""
    record = read_records().find(file)
    known = record.find(path) if record else None
    return known is not None and known.digest == digest_entry(entry)
