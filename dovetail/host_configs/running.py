"""Whether a host is running."""

import subprocess
import sys
from pathlib import Path

from .hosts import HostApp

_LISTS = {"darwin": ["ps", "-axo", "comm="], "win32": ["tasklist", "/fo", "csv", "/nh"]}
SECONDS = 5.0


def is_running(host: HostApp) -> bool:
    """Whether a process with one of the host's names runs on this machine. False if the processes
    cannot be listed.

    Args:
        host: The host.
    """
    return not set(host.processes).isdisjoint(list_processes())


def list_processes() -> set[str]:
    """Return the names of all processes on this machine; none if they cannot be listed."""
    if sys.platform in _LISTS:
        command = _LISTS[sys.platform]
        try:
            listed = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return set()
        if sys.platform == "win32":
            return {line.split(",")[0].strip('"') for line in listed.stdout.splitlines()}
        return {Path(line.strip()).name for line in listed.stdout.splitlines()}
    return {_read_name(one) for one in Path("/proc").glob("[0-9]*/comm")}


def _read_name(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:  # it ended
        return ""
