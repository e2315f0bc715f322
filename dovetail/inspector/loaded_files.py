"""The files of a server, as its process reports them (`python_target/report.py`)."""

import os
import shutil
import tempfile
from pathlib import Path

from ..python_target.report import REPORT_VARIABLE
from .watch import FileState, Snapshot, read_state

PROJECT_MARKERS = ("pyproject.toml", "setup.py", ".git")
"""A folder that contains one of these is the folder of a project."""


class LoadedFiles:
    """Reads the report of the server's processes.

    Args:
        project: The folder of the project. Files outside of it are left out, and so are files in
            hidden folders such as `.venv`.
    """

    def __init__(self, project: Path) -> None:
        self._project = os.path.realpath(project)
        self._folder = tempfile.mkdtemp(prefix="dovetail-dev-")  # only this user can read it
        self._path = os.path.join(self._folder, "report")
        Path(self._path).touch(mode=0o600)
        self._position = 0
        self._rest = b""
        self.files: Snapshot = {}
        """The files of the newest process and of those that were started beside it, as they were
        when they were first loaded."""
        self._previous: Snapshot = {}
        self._is_starting = True
        """Whether the next process is a new one of the server, and not a further one, which
        serves a comparison or tries a revision."""
        self.failure: str | None = None
        """Why the newest process serves nothing: a traceback, or a message."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make a server's process report its files."""
        return {REPORT_VARIABLE: self._path}

    def read(self) -> None:
        """Read what was reported since the last time."""
        try:
            with open(self._path, "rb") as report:
                report.seek(self._position)
                data = report.read()
        except OSError:
            return
        self._position += len(data)
        *records, self._rest = (self._rest + data).split(b"\0")
        for record in records:
            kind, _, text = os.fsdecode(record).partition(" ")
            self._use(kind, text)

    def begin(self) -> None:
        """Prepare for a new process: until it reports its files, those of the last process are
        watched from now on."""
        self.files, self.failure = _read_again(self.files), None
        self._is_starting = True

    def close(self) -> None:
        """Remove the report."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _use(self, kind: str, text: str) -> None:
        if kind == "start":
            self.failure = None
            if self._is_starting:
                self._previous, self.files, self._is_starting = self.files, {}, False
        elif kind == "failed":
            # A change to any file of the last process is a reason to try again, but a change
            # that this process did not get to is not.
            self.files = _read_again(self._previous) | self.files
            self.failure = text
        elif kind == "missing":
            self._add(text, None)
        elif kind == "file":
            modified, size, inode, path = text.split(" ", 3)
            self._add(path, FileState(int(modified), int(size), int(inode)))

    def _add(self, path: str, state: FileState | None) -> None:
        if is_project_file(path, self._project):
            self.files.setdefault(path, state)


def _read_again(files: Snapshot) -> Snapshot:
    return {path: read_state(path) for path in files}


def is_project_file(path: str, project: str) -> bool:
    """Return whether a file is below the project's folder, but not in a hidden folder.

    Args:
        path: The file.
        project: The folder, with its symbolic links resolved.
    """
    try:
        below = os.path.relpath(os.path.realpath(path), project)
    except ValueError:  # on another drive
        return False
    return not any(part.startswith(".") for part in below.split(os.sep)[:-1])


def find_project(folder: Path) -> Path:
    """Return the folder of the project that a folder belongs to: the nearest one at or above it
    that has a file such as `pyproject.toml`, otherwise the folder itself."""
    folder = folder.resolve()
    marked = (
        each
        for each in (folder, *folder.parents)
        if any((each / name).exists() for name in PROJECT_MARKERS)
    )
    return next(marked, folder)
