"""Which processes run."""

import os
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
HAS_PROC = (PROC / "self").exists()


def is_running(pid: int) -> bool:
    """Return whether a process runs. One that has ended and was not waited for does not."""
    if HAS_PROC:
        return _read_stat(pid)[:1] not in ([], ["Z"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def find_children(pid: int) -> list[int]:
    """Return the children of a process that run (Linux)."""
    return [each for each in _all() if _read_stat(each)[1:2] == [str(pid)] and is_running(each)]


def find_in_folder(folder: Path) -> list[int]:
    """Return the processes that run in a folder, whoever their parent is (Linux)."""
    found: list[int] = []
    for pid in _all():
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if os.readlink(PROC / str(pid) / "cwd") == str(folder.resolve()):
                found.append(pid)
    return found


def _all() -> list[int]:
    return sorted(int(path.name) for path in PROC.glob("[0-9]*"))


def _read_stat(pid: int) -> list[str]:
    """Return the state, the parent and so on; nothing if there is no such process."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
