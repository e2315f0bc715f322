"""SQLite files that only their owner may read, in a process that may open one twice and may fork.

On POSIX, a lock belongs to a process and a file. When a process closes the file, through any
descriptor, it loses all its locks on it. A forked child has no locks, although the memory of SQLite
that it inherits says that it does. A process without its locks seems to be gone: the next process
that closes the file removes its write-ahead log, with everything that was written since. So nothing
but SQLite opens a file that exists (`create_private_file`), and no file is open while the process
forks (`close_before_fork`).
https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_
"""

import os
import sqlite3
import stat
from pathlib import Path
from threading import Lock, RLock
from typing import Protocol
from weakref import WeakSet, finalize


class ForkSafe(Protocol):
    """Closes its connections before the process forks."""

    def before_fork(self) -> None:
        """Close all connections, and let nobody open one."""

    def after_fork(self, *, child: bool) -> None:
        """Allow connections again. Called in the parent and in the child."""


class _OwnedConnection(sqlite3.Connection):
    finalizer: "finalize[..., object]"

    def close(self) -> None:
        self.finalizer.detach()
        super().close()


def connect(path: str, timeout: float, owner: object) -> sqlite3.Connection:
    """Open a connection for use in any thread, which waits up to `timeout` seconds for locks. It is
    closed at the latest when its owner is collected or the process ends."""
    connection = sqlite3.connect(
        path,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        factory=_OwnedConnection,
    )
    connection.finalizer = finalize(owner, connection.close)
    return connection


def create_private_file(path: Path) -> None:
    """Create a file if it does not exist, and make sure that nobody else may read it."""
    # SQLite gives the files that it creates beside this one the same permissions.
    path = path.resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _creating:  # else another thread might have locks on the file before it is closed here
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            mode = path.stat().st_mode
            if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
                path.chmod(0o600)


def close_before_fork(store: ForkSafe) -> None:
    """Close the connections of a store at every fork, for as long as the store exists."""
    with _forking:
        _stores.add(store)


_creating = Lock()
_forking = RLock()  # else two threads that fork might wait for each other's stores
_stores: WeakSet[ForkSafe] = WeakSet()
_closed: list[ForkSafe] = []
"""The stores that are closed for the current fork."""


def _before_fork() -> None:
    _forking.acquire()
    _closed.extend(_stores)
    for store in _closed:
        store.before_fork()


def _after_fork(*, child: bool) -> None:
    for store in _closed:
        store.after_fork(child=child)
    _closed.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(child=False),
        after_in_child=lambda: _after_fork(child=True),
    )
