"""SQLite files that only their owner can read, and that are safe to open twice in a process and to
use across forks.

On POSIX, a lock belongs to a process and a file. When a process closes the file through any
descriptor, it loses all its locks on that file. A forked child holds no locks, although the SQLite
state that it inherits says otherwise. A process that has lost its locks seems to have exited, so
the next process that closes the file removes the write-ahead log and everything written since. So
only SQLite opens an existing file (`create_private_file`), and no file is open while the process
forks (`close_before_fork`).
https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_
"""

import errno
import os
import sqlite3
import stat
import time
from pathlib import Path
from threading import Lock, RLock
from typing import Protocol
from weakref import WeakSet, finalize

MEMORY = ":memory:"
"""The path of a database without a file."""
RETRY_SECONDS = 0.01
"""How long to wait before a file that another process is switching is tried again."""


class ForkSafe(Protocol):
    """An object that closes its connections before the process forks."""

    def before_fork(self) -> None:
        """Close all connections and block new connections."""

    def after_fork(self, *, child: bool) -> None:
        """Allow connections again. This method is called in the parent and in the child."""


class _OwnedConnection(sqlite3.Connection):
    finalizer: "finalize[..., object]"

    def close(self) -> None:
        self.finalizer.detach()
        super().close()


def connect(path: str, timeout: float, owner: object) -> sqlite3.Connection:
    """Open a connection that any thread may use and that waits up to `timeout` seconds for locks.

    If its owner does not close it, the connection is closed when the owner is garbage-collected or
    the process exits.
    """
    connection = sqlite3.connect(
        path,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        factory=_OwnedConnection,
    )
    connection.finalizer = finalize(owner, connection.close)
    return connection


def use_write_ahead_log(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch a file to a write-ahead log, so that readers do not wait for writers.

    SQLite does not wait for another process that is doing the same, so this function tries again
    for up to `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)


def create_private_file(path: Path) -> None:
    """Create a file if it does not exist, and make sure that only its owner can read it.

    Raises:
        OSError: That is not possible, or another user has placed a link there, or one of the files
            that SQLite would read instead.
    """
    # SQLite creates its other files next to this one with the same permissions.
    if path.is_symlink():
        _check_owner(path, path.parent.stat().st_uid)
    path = path.resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _creating:  # otherwise another thread might lock the file before it is closed here
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            mode = path.stat().st_mode
            if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
                path.chmod(0o600)
    for suffix in ("-wal", "-shm", "-journal"):
        _check_owner(path.with_name(path.name + suffix), path.stat().st_uid)


def _check_owner(path: Path, owner: int) -> None:
    """Raise PermissionError if a file exists and belongs to a user who is not trusted: neither this
    one, nor the administrator, nor `owner`."""
    if os.name != "posix":
        return
    try:
        found = path.lstat().st_uid
    except FileNotFoundError:
        return
    if found not in (0, os.geteuid(), owner):
        raise PermissionError(errno.EPERM, f"{path.name} belongs to another user", str(path))


def close_before_fork(store: ForkSafe) -> None:
    """Close a store's connections at every fork for as long as the store exists."""
    with _forking:
        _stores.add(store)


class SqliteFile:
    """A file with one connection, which is opened on first use and closed before the process forks.
    Subclasses open it while they hold `_lock`.

    Args:
        path: The path of the file, or `":memory:"`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        close_before_fork(self)

    def close(self) -> None:
        """Close the file. The next call opens it again."""
        with self._lock:
            self._disconnect()

    def before_fork(self) -> None:
        """Close the file, and prevent other threads from opening it."""
        self._lock.acquire()
        if self.path != MEMORY:
            self._disconnect()

    def after_fork(self, *, child: bool) -> None:
        """Allow the file to be opened again.

        Args:
            child: Whether this process is the child. What is in memory stays in the parent process.
        """
        if child:
            self._disconnect()
        self._lock.release()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


_creating = Lock()
_forking = RLock()  # otherwise two forking threads might wait for each other's stores
_stores: WeakSet[ForkSafe] = WeakSet()
_closed: list[ForkSafe] = []
"""The stores that were closed for the current fork."""


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
