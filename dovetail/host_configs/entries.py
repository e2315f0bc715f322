"""Add an entry to the file of a host, or remove it, and remember what was done.

    change = install_entry(file, "json", ("mcpServers", "weather"), entry, host="cursor")
    change.old, change.new                                # to show the difference
    uninstall_entry(file, "json", ("mcpServers", "weather"))

Both read, change and write the file while they hold the lock, so that two commands at the same
time do not lose an entry. The record is written before the file. If the program is killed in
between, the file is as it was, and a later `uninstall` of another entry removes only that entry.
"""

from pathlib import Path
from typing import Any, NamedTuple

from .edit import Format, set_entry
from .files import hold_lock, read_text, remove, replace
from .records import (
    EntryRecord,
    InstallRecords,
    Removal,
    digest_entry,
    plan_removal,
    read_records,
    record_install,
    write_records,
)
from .splice import KeyPath


class FileChange(NamedTuple):
    """The text of a file before and after a change. None stands for no file."""

    old: str | None
    new: str | None

    @property
    def is_changed(self) -> bool:
        """Whether anything changed."""
        return self.old != self.new


def plan_install(file: Path, format: Format, path: KeyPath, entry: dict[str, Any]) -> FileChange:
    """Return what `install_entry` would change.

    Args:
        file: The file of the host.
        format: Its format.
        path: The keys that lead to the entry, of which the last one is its name.
        entry: The entry, made of JSON values.

    Raises:
        ConfigError: The file cannot be read.
        EditError: The text is not valid, or the entry cannot be added without changing more.
    """
    old = read_text(file)
    edit = set_entry(old or "", format, path, entry)
    return FileChange(old, edit.text if edit.is_changed else old)


def install_entry(
    file: Path,
    format: Format,
    path: KeyPath,
    entry: dict[str, Any],
    *,
    host: str,
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
        inside: A folder that a symbolic link must not lead out of.

    Raises:
        ConfigError: The file or the record cannot be read or written. Nothing was changed.
        EditError: The text is not valid, or the entry cannot be added without changing more.
    """
    with hold_lock():
        old = read_text(file)
        edit = set_entry(old or "", format, path, entry)
        if not edit.is_changed:
            return FileChange(old, old)
        records = read_records()
        written = EntryRecord(host, path, digest_entry(entry))
        record = record_install(records.find(file), old, edit, format, written)
        change = FileChange(old, edit.text)
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
    file becomes what it was before the first one. A file that `install` created is deleted then.

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
        elif after != records:
            write_records(after)
    return change


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
