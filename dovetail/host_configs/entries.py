"""Add an entry to the file of a host, or remove it, and remember what was done.

    change = install_entry(file, "json", ("mcpServers", "weather"), entry, host="cursor")
    change.old, change.new                                # to show the difference
    uninstall_entry(file, "json", ("mcpServers", "weather"))

Both read, change and write the file while they hold the lock, so that two commands at the same
time do not lose an entry. The record is written before the file. If the program is killed in
between, the file is as it was, and a later `uninstall` of another entry removes only that entry.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..text import quote
from .edit import Format, find_entry, parse, set_entry
from .files import hold_lock, list_missing_folders, read_text, remove, replace
from .inputs import add_inputs, list_ids, remove_inputs
from .records import (
    EntryRecord,
    InstallRecords,
    Removal,
    digest_entry,
    find_objection,
    plan_removal,
    read_records,
    record_install,
    write_records,
)
from .splice import Edit, KeyPath


class EntryExists(ConfigError):
    """The file already has an entry with this name, which `install` did not write."""


class FileChange(NamedTuple):
    """The text of a file before and after a change. None stands for no file."""

    old: str | None
    new: str | None

    @property
    def is_changed(self) -> bool:
        """Whether anything changed."""
        return self.old != self.new


def plan_install(
    file: Path,
    format: Format,
    path: KeyPath,
    entry: dict[str, Any],
    *,
    inputs: Sequence[dict[str, Any]] = (),
    force: bool = False,
) -> FileChange:
    """Return what `install_entry` would change.

    Args:
        file: The file of the host.
        format: Its format.
        path: The keys that lead to the entry, of which the last one is its name.
        entry: The entry, made of JSON values.
        inputs: The inputs that the entry names.
        force: Whether to replace an entry that `install` did not write, or that was changed since.

    Raises:
        ConfigError: The file cannot be read.
        EntryExists: An entry has this name, and `force` is needed to replace it.
        EditError: The text is not valid, or the entry cannot be added without changing more.
    """
    old, records = read_text(file), read_records()
    known = _find_record(records, file, path)
    edits = _edit(old or "", format, path, entry, inputs, known)
    if not force:
        _require_replaceable(file, old or "", format, path, entry, records)
    return FileChange(old, edits[-1].text if edits else old)


def install_entry(
    file: Path,
    format: Format,
    path: KeyPath,
    entry: dict[str, Any],
    *,
    host: str,
    inputs: Sequence[dict[str, Any]] = (),
    force: bool = False,
    inside: Path | None = None,
) -> FileChange:
    """Add an entry to a file, or replace the one that has its name. If an equal entry exists,
    nothing is written.

    Args:
        file: The file of the host.
        format: Its format.
        path: The keys that lead to the entry, of which the last one is its name.
        entry: The entry, made of JSON values.
        host: The id of the host, for the record.
        inputs: The inputs that the entry names. Those that exist are kept.
        force: Whether to replace an entry that `install` did not write, or that was changed since.
        inside: A folder that a symbolic link must not lead out of.

    Raises:
        ConfigError: The file or the record cannot be read or written. Nothing was changed.
        EntryExists: An entry has this name, and `force` is needed to replace it.
        EditError: The text is not valid, or the entry cannot be added without changing more.
    """
    with hold_lock():
        old, records = read_text(file), read_records()
        known = _find_record(records, file, path)
        edits = _edit(old or "", format, path, entry, inputs, known)
        if not edits:
            return FileChange(old, old)
        if not force:
            _require_replaceable(file, old or "", format, path, entry, records)
        own = _find_own_inputs(old or "", inputs, known)
        written = EntryRecord(host, path, digest_entry(entry), own)
        folders = tuple(map(str, list_missing_folders(file)))
        record = record_install(records.find(file), old, edits, format, written, folders)
        change = FileChange(old, edits[-1].text)
        _write(file, change, records, records.with_file(file, record), inside)
    return change


def plan_uninstall(file: Path, format: Format, path: KeyPath, *, force: bool = False) -> FileChange:
    """Return what `uninstall_entry` would change.

    Args:
        file: The file of the host.
        format: Its format.
        path: The keys that lead to the entry.
        force: Whether to remove an entry that `install` did not write, or that was changed since.

    Raises:
        ConfigError: The file or the record cannot be read, or the entry needs `force`.
        EditError: The text is not valid, or the entry cannot be removed without changing more.
    """
    old = read_text(file)
    return FileChange(old, _plan(file, old, format, path, read_records(), force).text)


def uninstall_entry(
    file: Path, format: Format, path: KeyPath, *, force: bool = False, inside: Path | None = None
) -> FileChange:
    """Remove an entry from a file. If there is no such entry, nothing is written.

    If the entry is the last one that `install` wrote, and no other program changed the file, the
    file becomes what it was before the first one. A file that `install` created is deleted then,
    and so are the folders that it created for the file, if they are empty.

    Args:
        file: The file of the host.
        format: Its format.
        path: The keys that lead to the entry.
        force: Whether to remove an entry that `install` did not write, or that was changed since.
        inside: A folder that a symbolic link must not lead out of.

    Raises:
        ConfigError: The file or the record cannot be read or written, or the entry needs `force`.
            Nothing was changed.
        EditError: The text is not valid, or the entry cannot be removed without changing more.
    """
    with hold_lock():
        old = read_text(file)
        records = read_records()
        removal = _plan(file, old, format, path, records, force)
        change = FileChange(old, removal.text)
        after = records.with_file(file, removal.record)
        if change.is_changed:
            _write(file, change, records, after, inside)
            if change.new is None and (known := records.find(file)) is not None:
                _remove_folders(known.folders)
        elif after != records:
            write_records(after)
    return change


def _remove_folders(folders: Sequence[str]) -> None:
    """Remove the folders that were created for a file, unless something else is in them."""
    with suppress(OSError):
        for one in folders:
            os.rmdir(one)


def _edit(
    text: str,
    format: Format,
    path: KeyPath,
    entry: dict[str, Any],
    inputs: Sequence[dict[str, Any]],
    known: EntryRecord | None,
) -> list[Edit]:
    """Return the edits that add an entry and its inputs, one after the other. Inputs that an
    earlier `install` added, and that are no longer needed, are removed."""
    edits = [set_entry(text, format, path, entry)]
    if known is not None and known.inputs:
        wanted = {one["id"] for one in inputs}
        stale = [one for one in known.inputs if one not in wanted]
        edits += remove_inputs(edits[-1].text, stale)
    if inputs:
        edits += add_inputs(edits[-1].text, inputs)
    return edits if any(edit.is_changed for edit in edits) else []


def _require_replaceable(
    file: Path,
    text: str,
    format: Format,
    path: KeyPath,
    entry: dict[str, Any],
    records: InstallRecords,
) -> None:
    """Refuse to replace an entry that `install` did not write, or that was edited since."""
    old = find_entry(parse(text, format), path, entry)
    if old == entry:
        return
    if objection := find_objection(path, old, records.find(file)):
        raise EntryExists(
            f"{file} already has a server {quote(path[-1])}, which {objection}. Use --name for a "
            "second entry, or --force to replace it."
        )


def _find_own_inputs(
    old: str, inputs: Sequence[dict[str, Any]], known: EntryRecord | None
) -> tuple[str, ...]:
    """Return the ids of the inputs that `install` has added, now or before."""
    if not inputs:
        return ()
    existing, own = list_ids(old), known.inputs if known else ()
    ids = [one["id"] for one in inputs]
    return tuple(one for one in ids if one not in existing or one in own)


def _find_record(records: InstallRecords, file: Path, path: KeyPath) -> EntryRecord | None:
    record = records.find(file)
    return record.find(path) if record else None


def _plan(
    file: Path, old: str | None, format: Format, path: KeyPath, records: InstallRecords, force: bool
) -> Removal:
    if old is None:
        return Removal(None, None)
    return plan_removal(old, format, path, records.find(file), force=force)


def _write(
    file: Path,
    change: FileChange,
    before: InstallRecords,
    after: InstallRecords,
    inside: Path | None,
) -> None:
    """Write the records, then the file. If the file cannot be written, restore the records."""
    write_records(after)
    try:
        if change.new is None:
            remove(file, change.old or "", inside=inside)
        else:
            replace(file, change.old, change.new, inside=inside)
    except BaseException:
        write_records(before)
        raise
