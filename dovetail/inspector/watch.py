"""Which files changed, by `os.stat`: no library, and no thread of its own.

A file is described by its modification time, size and inode. So a file that an editor replaces, a
file that is deleted, and a file that is only touched all count as changed.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

MAX_WATCHED_FILES = 10_000
"""How many files are watched below all `--watch` folders together."""
SKIPPED_FOLDERS = {"__pycache__", "node_modules", "venv"}
"""Folders that are not watched, in addition to hidden ones such as `.venv` and `.git`."""


class FileState(NamedTuple):
    """How a file looked at one moment."""

    modified_ns: int
    size: int
    inode: int


Snapshot = dict[str, FileState | None]
"""The state of each file, by its path; None if it does not exist."""


def read_state(path: str) -> FileState | None:
    """Return the state of a file; None if it does not exist or cannot be reached."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return FileState(found.st_mtime_ns, found.st_size, found.st_ino)


def read_folder(folder: str, max_files: int = MAX_WATCHED_FILES) -> Snapshot:
    """Return the state of the files below a folder.

    Args:
        folder: The folder. Symbolic links to folders are not followed.
        max_files: How many files to read at most. The others are left out.
    """
    found: Snapshot = {}
    waiting = [folder]
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name)
        except OSError:
            continue  # deleted meanwhile, or not readable
        for entry in entries:
            if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif len(found) < max_files:
                found[entry.path] = read_state(entry.path)
            else:
                return found
    return found


def find_changes(before: Mapping[str, FileState | None], after: Snapshot) -> list[str]:
    """Return the paths whose state differs. A path that is missing in one of them does not exist
    there."""
    paths = dict.fromkeys([*before, *after])
    return [path for path in paths if before.get(path) != after.get(path)]


class Watch:
    """Files and folders, and how they looked when the watch began.

    Args:
        paths: The files. They need not exist.
        folders: Folders whose files are watched, including those that are created later.
    """

    def __init__(
        self, paths: Iterable[str | Path] = (), folders: Iterable[str | Path] = ()
    ) -> None:
        self._paths = dict.fromkeys(os.path.abspath(path) for path in paths)
        self._folders = [os.path.abspath(folder) for folder in folders]
        self._loaded: Snapshot = {}
        self.state: Snapshot = self.look()
        """The state of all files at the last look."""
        self._before = self.state

    @property
    def is_full(self) -> bool:
        """Whether the folders have more files than are watched."""
        return sum(path not in self._paths for path in self._before) >= MAX_WATCHED_FILES

    def look(self) -> Snapshot:
        """Return the present state of the paths and of what is below the folders."""
        found = {path: read_state(path) for path in self._paths}
        room = MAX_WATCHED_FILES
        for folder in self._folders:
            below = read_folder(folder, room)
            room -= len(below)
            found |= below
        return found

    def begin(self) -> None:
        """Begin again: count what changes from now on."""
        self._before = self.look()

    def set_loaded(self, loaded: Snapshot) -> None:
        """Watch the files that the server has loaded, too.

        Args:
            loaded: The files as they were when the server loaded them.
        """
        self._loaded = dict(loaded)

    def changed(self) -> list[Path]:
        """Return the files that changed since the watch began or since the server loaded them."""
        before = self._before | self._loaded
        self.state = self.look() | {path: read_state(path) for path in self._loaded}
        return [Path(path) for path in find_changes(before, self.state)]
