"""Show what changes in a file of a host.

The lines are made from the entry and its inputs alone, with their secrets hidden: what these add to
the rest of the file. Text of the file is never shown, because a neighbour on the same line may hold
secrets.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .edit import Format, parse, remove_entry, set_entry
from .entries import FileChange
from .hiding import HIDDEN, hide_all, hide_values
from .inputs import INPUT_FIELDS, KEY, add_inputs, remove_inputs
from .records import find_objection, read_records
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
    before, after = _list_inputs(change.old, format), _list_inputs(change.new, format)
    gone, new = _shown(before, after), _shown(after, before)
    rest = change.new or "" if entry is None else _without(change.old or "", format, path, gone)
    lines = []
    if isinstance(old, dict):
        is_own = find_objection(path, old, read_records().find(file)) is None
        hide = hide_values if is_own else hide_all
        lines += [f"-{line}" for line in _added_lines(rest, format, path, hide(old), gone)]
    if entry is not None:
        shown = hide_values(entry)
        lines += [f"+{line}" for line in _added_lines(rest, format, path, shown, new)]
    return "\n".join(lines)


def _without(text: str, format: Format, path: KeyPath, inputs: list[dict[str, Any]]) -> str:
    with suppress(EditError):  # the entry cannot be removed alone, but it can be replaced
        text = remove_entry(text, format, path).text
    with suppress(EditError):
        for edit in remove_inputs(text, [one["id"] for one in inputs]):
            text = edit.text
    return text


def _list_inputs(text: str | None, format: Format) -> list[Any]:
    value = parse(text or "", format) if text else None
    found = value.get(KEY) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _shown(inputs: list[Any], others: list[Any]) -> list[dict[str, Any]]:
    """Return the inputs that are not among the others, without fields that `install` never
    writes."""
    return [
        {key: value if key in INPUT_FIELDS else HIDDEN for key, value in one.items()}
        for one in inputs
        if one not in others and isinstance(one, dict) and "id" in one
    ]


def _added_lines(
    text: str,
    format: Format,
    path: KeyPath,
    entry: dict[str, Any],
    inputs: list[dict[str, Any]],
) -> Iterator[str]:
    """Yield the lines that an entry and its inputs add to a text."""
    try:
        edit = set_entry(text, format, path, entry)
    except EditError:
        edit = set_entry("", format, path, entry)
    edits = [edit, *(add_inputs(edit.text, inputs) if inputs else ())]
    for splice in (splice for edit in edits for splice in edit.splices):
        lines = splice.text.lstrip(",").splitlines()
        yield from (line for line in lines if line.strip())
