"""Report the files that a server process loads to the process that started it.

`dovetail dev` restarts a server when one of its files changes, so it has to know them. It names a
file of its own, the report, in an environment variable, and the server process appends records to
it. Each record ends with a NUL byte, which is never part of a path:

    start PID                       a process begins
    file MTIME_NS SIZE INODE PATH   the process is about to load this file
    missing PATH                    the process looked for this file, but it does not exist
    failed TRACEBACK                the code could not be loaded, or did not serve

A file is reported before it is loaded, as it is at that moment. So the reader knows the file of an
import that fails, and notices a change that is saved while the server starts. Two hooks do this: a
finder for imports, and an audit hook for code that is executed in another way. Both also see what
is imported later.

The report is a file and not a pipe, because a file cannot be full, needs no reader, and works the
same on every system.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

REPORT_VARIABLE = "DOVETAIL_FILE_REPORT"
"""The environment variable that contains the path of the report."""
MAX_REPORTED_FILES = 20_000
STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
INSTALLED_FOLDERS = ("site-packages", "dist-packages")
LOADER = os.path.dirname(os.path.abspath(__file__)) + os.sep


class FileReport:
    """The report of this process. It never raises an exception into the server's code."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._reported = set[str]()
        self._append(f"start {os.getpid()}")

    def add_file(self, path: str) -> None:
        """Report a file that is about to be loaded, unless it is an installed library."""
        if path in self._reported or len(self._reported) >= MAX_REPORTED_FILES:
            return
        self._reported.add(path)
        path = os.path.abspath(path)
        if is_installed(path):
            return
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            self._append(f"missing {path}")
        else:
            self._append(f"file {found.st_mtime_ns} {found.st_size} {found.st_ino} {path}")

    def add_failure(self, error: BaseException) -> None:
        """Report the exception because of which the process serves nothing."""
        self._append(f"failed {_describe_failure(error)}")

    def _append(self, record: str) -> None:
        """Append a record. The report is opened for each record, because the server's code may
        close or reuse any descriptor."""
        flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(self._path, flags)
        except OSError:
            return  # its reader has ended
        try:
            os.write(descriptor, os.fsencode(record.replace("\0", "")) + b"\0")
        except (OSError, UnicodeError):
            pass
        finally:
            os.close(descriptor)


class ReportingFinder:
    """A finder that finds what `PathFinder` finds, and reports it."""

    def __init__(self, report: FileReport) -> None:
        self._report = report

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that `PathFinder` returns."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None:
            part = name.rpartition(".")[2]
            for folder in sys.path if path is None else path:
                self._report.add_file(os.path.join(folder, f"{part}.py"))
                self._report.add_file(os.path.join(folder, part, "__init__.py"))
        elif spec.has_location and spec.origin is not None:
            self._report.add_file(spec.origin)
        return spec


def start_report() -> FileReport | None:
    """Report the files that this process loads from now on, if its environment asks for that."""
    path = os.environ.pop(REPORT_VARIABLE, None)
    if path is None:
        return None
    report = FileReport(path)
    places = [index for index, finder in enumerate(sys.meta_path) if finder is PathFinder]
    sys.meta_path.insert(places[0] if places else 0, ReportingFinder(report))

    def on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec":
            name = getattr(arguments[0], "co_filename", "<")
            if not name.startswith("<"):  # such as <string>
                report.add_file(name)

    sys.addaudithook(on_audit_event)
    return report


def is_installed(path: str) -> bool:
    """Return whether a file belongs to Python or to an installed library."""
    folders = path.split(os.sep)
    return path.startswith(STDLIB) or any(name in folders for name in INSTALLED_FOLDERS)


def _describe_failure(error: BaseException) -> str:
    """Return the traceback of an exception without the frames that load the code; or only its
    message, if the exception says why there is nothing to serve."""
    from traceback import format_exception

    from ..errors import DovetailError

    if type(error) is DovetailError and error.__cause__ is not None:
        error = error.__cause__  # that of the user's code
    traceback = error.__traceback__
    while traceback is not None and _loads_code(traceback.tb_frame.f_code.co_filename):
        traceback = traceback.tb_next
    if traceback is None and isinstance(error, DovetailError):
        return str(error)
    return "".join(format_exception(type(error), error, traceback)).rstrip()


def _loads_code(path: str) -> bool:
    return path.startswith(("<frozen importlib", LOADER))
