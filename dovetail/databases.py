"""SQLite files that are for their owner alone, in a process that may have one open twice, and may
fork.

On POSIX a lock belongs to a process and a file. Whoever closes the file, through any descriptor,
ends all locks that the process has on it; and a child that was forked has none, though SQLite's
memory, which it inherits, says that it has. Without its locks a process seems to be gone: the next
one that closes the file removes the log of it, with all that was written since. So nobody but
SQLite opens a file that is there already (`own`), and nothing is open while a process forks
(`Forks`).
https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_
"""

import os
import sqlite3
import stat
from pathlib import Path
from threading import Lock, RLock
from typing import Protocol
from weakref import WeakSet


class Forks(Protocol):
    """Has connections, which end before the process forks."""

    def before_fork(self) -> None:
        """Close them, and let nobody open any."""

    def after_fork(self, *, child: bool) -> None:
        """Now they may be opened again, in each of the two."""


def connected(path: str, patience: float) -> sqlite3.Connection:
    """A connection for any thread, which waits so many seconds for others."""
    return sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)


def own(path: Path) -> None:
    """Make a file, unless it is there, and see to it that nobody else may read it."""
    # SQLite gives the files that it puts beside this one the same permissions.
    path = path.resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _making:  # or another thread might have locks on it before we close it
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            mode = path.stat().st_mode
            if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
                path.chmod(0o600)


def closed_at_fork(store: Forks) -> None:
    """From now on, as long as it lives."""
    with _forking:
        _stores.add(store)


_making = Lock()
_forking = RLock()  # two that fork might wait for each other's stores
_stores: WeakSet[Forks] = WeakSet()
_waiting: list[Forks] = []


def _before() -> None:
    _forking.acquire()
    _waiting.extend(_stores)
    for store in _waiting:
        store.before_fork()


def _after(*, child: bool) -> None:
    for store in _waiting:
        store.after_fork(child=child)
    _waiting.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=lambda: _after(child=False),
        after_in_child=lambda: _after(child=True),
    )
