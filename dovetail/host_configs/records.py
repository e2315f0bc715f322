"""What `install` wrote, so that `uninstall` can remove it and nothing else.

The records are in `installed.json` in the state folder. For each file they hold a digest of its
text, the parts of the text that Dovetail wrote, and a digest of each entry. They hold no text.

While the digest of the text matches, the parts are known exactly. When the last entry of a file is
removed, all of these parts are deleted, so the file is again as it was before the first entry. If
another program changed the file, only the entry is removed.
"""

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..config.state_folder import state_folder
from ..errors import ConfigError
from ..text import quote
from .edit import Format, find_entry, parse, remove_entry, removes_only
from .files import write_file
from .inputs import remove_inputs, without_inputs
from .splice import Edit, EditError, KeyPath, Span, move_spans, remove_spans

_MISSING = object()


class EntryRecord(msgspec.Struct, frozen=True):
    """An entry that was written."""

    host: str
    """The id of the host."""
    path: KeyPath
    """The keys that lead to the entry."""
    digest: str
    """The digest of the entry."""
    inputs: tuple[str, ...] = ()
    """The ids of the inputs that were added for the entry."""


class FileRecord(msgspec.Struct, frozen=True):
    """A file to which entries were written."""

    digest: str
    """The digest of the text after the last write."""
    existed: bool
    """Whether there was a file before the first entry was written."""
    inserted: tuple[Span, ...]
    """The parts of the text that Dovetail wrote."""
    entries: tuple[EntryRecord, ...]
    folders: tuple[str, ...] = ()
    """The folders that were created for the file, the innermost first."""

    def find(self, path: KeyPath) -> EntryRecord | None:
        """Return the record of an entry.

        Args:
            path: The keys that lead to the entry.
        """
        return next((entry for entry in self.entries if entry.path == path), None)


class InstallRecords(msgspec.Struct, frozen=True):
    """All records, by the path of the file."""

    files: dict[str, FileRecord] = {}

    def find(self, file: Path) -> FileRecord | None:
        """Return the record of a file.

        Args:
            file: The file, or a symbolic link to it.
        """
        return self.files.get(os.path.realpath(file))

    def with_file(self, file: Path, record: FileRecord | None) -> "InstallRecords":
        """Return the records with another record of a file.

        Args:
            file: The file, or a symbolic link to it.
            record: The new record; None to remove it.
        """
        name = os.path.realpath(file)
        others = {key: value for key, value in self.files.items() if key != name}
        return InstallRecords(others if record is None else others | {name: record})


class Removal(NamedTuple):
    """What removes an entry."""

    text: str | None
    """The new text; None if the file is to be deleted."""
    record: FileRecord | None
    """The new record of the file."""


def records_file() -> Path:
    """Return the file of the records.

    Raises:
        ConfigError: There is no home folder.
    """
    return state_folder() / "installed.json"


def read_records() -> InstallRecords:
    """Return all records; none if nothing was installed.

    Raises:
        ConfigError: The file cannot be read.
    """
    file = records_file()
    try:
        return msgspec.json.decode(file.read_bytes(), type=InstallRecords)
    except FileNotFoundError:
        return InstallRecords()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError:
        raise ConfigError(
            f"{file} is damaged. Delete it; then `dovetail uninstall` needs --force."
        ) from None


def write_records(records: InstallRecords) -> None:
    """Replace all records. Hold the lock when you call this.

    Args:
        records: The records.

    Raises:
        ConfigError: The file cannot be written.
    """
    file = records_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(records), indent=2)
        write_file(file, data + b"\n", None)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None


def digest_text(text: str) -> str:
    """Return the digest of a file's text.

    Args:
        text: The text.
    """
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def digest_entry(entry: Any) -> str:
    """Return the digest of an entry, however it is written.

    Args:
        entry: The entry.
    """
    encoded = msgspec.json.encode(entry, order="sorted", enc_hook=str)
    return f"sha256:{sha256(encoded).hexdigest()}"


def record_install(
    record: FileRecord | None,
    old: str | None,
    edits: Sequence[Edit],
    format: Format,
    entry: EntryRecord,
    folders: tuple[str, ...] = (),
) -> FileRecord:
    """Return the record of a file after an entry was written.

    Args:
        record: The record before.
        old: The text before; None if there was no file.
        edits: The edits of the text, one after the other.
        format: The format of the text.
        entry: The entry.
        folders: The folders that are created for the file, the innermost first.
    """
    text = edits[-1].text if edits else old or ""
    others = _find_others(record, parse(text, format), entry.path)
    if record is None or old is None or record.digest != digest_text(old):
        existed, inserted = old is not None, _move_all((), edits)
    else:
        existed, inserted = record.existed, _move_all(record.inserted, edits)
    folders = folders or (record.folders if record else ())
    return FileRecord(digest_text(text), existed, inserted, (*others, entry), folders)


def plan_removal(
    text: str, format: Format, path: KeyPath, record: FileRecord | None, *, force: bool = False
) -> Removal:
    """Return what removes an entry from the text of a file. If the text has no such entry, the text
    stays the same.

    Args:
        text: The text of the file.
        format: The format of the file.
        path: The keys that lead to the entry.
        record: The record of the file.
        force: Whether to remove an entry that `install` did not write, or that was changed since.

    Raises:
        ConfigError: `install` did not write the entry, or it was changed since, and `force` is not
            set.
        EditError: The text is not valid, or the entry cannot be removed alone.
    """
    value = parse(text, format)
    found = find_entry(value, path, default=_MISSING)
    objection = None if found is _MISSING or force else find_objection(path, found, record)
    if objection is not None:
        raise ConfigError(f"{quote(path[-1])} {objection}. To remove it anyway, use --force.")
    if record is None:
        return Removal(remove_entry(text, format, path).text, None)
    is_known = record.digest == digest_text(text)
    others = _find_others(record, value, path)
    known = record.find(path)
    inputs = known.inputs if known else ()
    if is_known and not others and record.inserted:
        whole = remove_spans(text, record.inserted)
        if _removes_only(text, format, path, inputs, whole):
            return Removal(whole.text if whole.text or record.existed else None, None)
    edits = [remove_entry(text, format, path)]
    edits += remove_inputs(edits[0].text, inputs)
    rest = edits[-1].text
    inserted = _move_all(record.inserted, edits) if is_known else ()
    existed = record.existed or not is_known
    kept = FileRecord(digest_text(rest), existed, inserted, others, record.folders)
    return Removal(rest, kept if others else None)


def _move_all(spans: tuple[Span, ...], edits: Sequence[Edit]) -> tuple[Span, ...]:
    for edit in edits:
        spans = move_spans(spans, edit.splices)
    return spans


def _removes_only(
    text: str, format: Format, path: KeyPath, inputs: tuple[str, ...], edit: Edit
) -> bool:
    """Return whether an edit removes an entry and its inputs, and nothing else."""
    if inputs:
        try:
            text = without_inputs(text, inputs)
            edit = Edit(without_inputs(edit.text, inputs), ())
        except EditError:
            return False
    return removes_only(text, format, path, edit)


def _find_others(record: FileRecord | None, value: Any, path: KeyPath) -> tuple[EntryRecord, ...]:
    """Return the records of the other entries that are still in the file."""
    return tuple(
        entry
        for entry in (record.entries if record else ())
        if entry.path != path and find_entry(value, entry.path, _MISSING) is not _MISSING
    )


def find_objection(path: KeyPath, entry: Any, record: FileRecord | None) -> str | None:
    """Return why an entry must not be changed without being told so; None if `install` wrote it.

    Args:
        path: The keys that lead to the entry.
        entry: The entry in the file.
        record: The record of the file.
    """
    known = record.find(path) if record else None
    if known is None:
        return "was not written by `dovetail install`"
    if known.digest != digest_entry(entry):
        return "was changed since `dovetail install` wrote it"
    return None
