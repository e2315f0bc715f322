"""Tasks in a file, which outlive their process, and which several processes of one machine may share.

The file is SQLite with a write-ahead log. A read takes some ten microseconds, and a write of a few KiB waits for no disk, so
both are done right in the event loop; a large result is written by a thread. A commit survives the end of the process,
however sudden; the last ones before a power cut may be lost (`synchronous = NORMAL`).

A process that runs tasks holds a lock on a file of its own beside the database. The system lets go of it when the process
ends, whichever way: whoever gets the lock knows that nobody runs those tasks any more.

The file is for its owner alone, for it holds what was asked and answered. It does not grow beyond `Limits.task_bytes`; room
that is free again is used again, and given back from time to time.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, TypeVar

import msgspec

from ...errors import ConfigError, Overloaded
from ...limits import DEFAULT, KIB, Limits
from .store import Letter, Record, decode, encode, full, full_bytes, full_each

LARGE = 64 * KIB
"""What is longer is written by a thread."""
BUSY = 2.0
"""Seconds that a write waits for that of another process."""
PAGE = 4096

SCHEMA = """
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 4194304;
CREATE TABLE IF NOT EXISTS tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    session TEXT NOT NULL,
    expires REAL NOT NULL,
    runner TEXT,
    data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS tasks_owner ON tasks (owner, number);
CREATE INDEX IF NOT EXISTS tasks_expires ON tasks (expires);
CREATE INDEX IF NOT EXISTS tasks_runner ON tasks (runner) WHERE runner IS NOT NULL;
CREATE TABLE IF NOT EXISTS counts (owner TEXT PRIMARY KEY, tasks INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON tasks BEGIN
    INSERT INTO counts VALUES (new.owner, 1), (x'00', 1) ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON tasks BEGIN
    UPDATE counts SET tasks = tasks - 1 WHERE owner IN (old.owner, x'00');
    DELETE FROM counts WHERE owner = old.owner AND tasks = 0;
END;
CREATE TABLE IF NOT EXISTS letters (number INTEGER PRIMARY KEY, runner TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS letters_runner ON letters (runner);
"""
ALL = b"\0"
"""Counts all tasks; no owner is called that."""
ADD = "INSERT INTO tasks (id, owner, session, expires, runner, data) VALUES (?, ?, ?, ?, ?, ?)"
SET = "UPDATE tasks SET expires = ?, runner = ?, data = ? WHERE id = ? AND runner IS NOT NULL"
GET = "SELECT data FROM tasks WHERE id = ? AND expires > ?"
LIST = """
SELECT number, data FROM tasks WHERE owner = ? AND number > ? AND ? IN ('', session) AND expires > ? ORDER BY number LIMIT ?
"""

T = TypeVar("T")
_letter = msgspec.msgpack.Decoder(Letter).decode


class SqliteStore:
    """Tasks in a file that only its owner may read."""

    shared = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._name = ""
        self._limits = DEFAULT
        self._lock = Lock()  # servers may run on several loops, in several threads
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._held: int | None = None

    @property
    def runner(self) -> str:
        """What this process calls itself there: another name each time that it opens the file."""
        with self._lock:
            self._open()
            return self._name

    def bind(self, limits: Limits) -> None:
        """The bounds to keep."""
        self._limits = limits

    async def add(self, record: Record) -> None:
        """A new task."""
        data = encode(record)
        await self._run(self._add, record, data, size=len(data))

    async def get(self, id: str) -> Record | None:
        """A task."""
        with self._lock:
            row = self._do(GET, (id, time.time())).fetchone()
        return None if row is None else decode(row[0])

    async def put(self, record: Record) -> None:
        """A task as it is now."""
        data = encode(record)
        values = record.expires, None if record.over else record.runner, data, record.id
        await self._run(self._write, SET, values, size=len(data))

    async def remove(self, id: str) -> None:
        """Forget a task."""
        await self._run(self._write, "DELETE FROM tasks WHERE id = ?", (id,))

    async def page(self, owner: str, session: str, after: int, count: int) -> list[tuple[int, Record]]:
        """Tasks of one owner and conversation."""
        with self._lock:
            rows = self._do(LIST, (owner, after, session, time.time(), count)).fetchall()
        return [(number, decode(data)) for number, data in rows]

    async def orphans(self) -> list[Record]:
        """Tasks of processes that are gone; they are ours from now on."""
        with self._lock:
            return self._orphans()

    async def send(self, runner: str, letter: Letter) -> None:
        """A letter to another process."""
        data = msgspec.msgpack.encode(letter)
        await self._run(self._write, "INSERT INTO letters (runner, data) VALUES (?, ?)", (runner, data))

    async def receive(self) -> list[Letter]:
        """Letters to this one."""
        with self._lock:
            rows = self._do("SELECT number, data FROM letters WHERE runner = ?", (self._name,)).fetchall()
            if rows:
                self._do("DELETE FROM letters WHERE runner = ? AND number <= ?", (self._name, rows[-1][0]))
        return [_letter(data) for _, data in rows]

    async def sweep(self) -> None:
        """Forget what has expired, and give back room that is free."""
        await self._run(self._sweep)

    async def close(self) -> None:
        """Let go of the file and of what we run; the next call opens it again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
                if self._held is not None:
                    _release(self._held, self._lock_file(self._name))
            self._connection = self._held = None

    # under the lock

    async def _run(self, function: Callable[..., T], *args: Any, size: int = 0) -> T:
        def locked() -> T:
            with self._lock:
                return function(*args)

        return locked() if size < LARGE else await asyncio.to_thread(locked)

    def _add(self, record: Record, data: bytes) -> None:
        limits = self._limits
        counts = dict(self._do("SELECT owner, tasks FROM counts WHERE owner IN (?, ?)", (record.owner, ALL)).fetchall())
        if counts.get(ALL, 0) >= limits.tasks:
            self._sweep()
            (left,) = self._do("SELECT tasks FROM counts WHERE owner = ?", (ALL,)).fetchone()
            if left >= limits.tasks:
                raise full(limits)
        if record.owner and counts.get(record.owner, 0) >= limits.tasks_each:
            raise full_each(limits)
        runner = None if record.over else record.runner
        self._do(ADD, (record.id, record.owner, record.session, record.expires, runner, data))

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        self._do(statement, values)

    def _sweep(self) -> None:
        self._do("DELETE FROM tasks WHERE expires <= ?", (time.time(),))
        with suppress(sqlite3.OperationalError):  # somebody else writes; there will be another time
            self._open().executescript("PRAGMA incremental_vacuum")  # execute() would stop after the first page

    def _orphans(self) -> list[Record]:
        found: list[Record] = []
        for (runner,) in self._do("SELECT DISTINCT runner FROM tasks WHERE runner IS NOT NULL").fetchall():
            held = None if runner == self._name else _locked(self._lock_file(runner))
            if held is None and runner != self._name:
                continue  # it lives
            rows = self._do("SELECT data FROM tasks WHERE runner = ? AND expires > ?", (runner, time.time())).fetchall()
            found += [decode(data) for (data,) in rows]
            self._do("UPDATE tasks SET runner = ? WHERE runner = ?", (self._name, runner))
            if held is not None:
                self._do("DELETE FROM letters WHERE runner = ?", (runner,))
                _release(held, self._lock_file(runner))
        return found

    def _lock_file(self, runner: str) -> str:
        return f"{self.path}-{runner}.lock"

    def _do(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        connection = self._open()
        try:
            return connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise full_bytes(self._limits) from None
            raise Overloaded(f"The tasks cannot be reached: {error}") from None  # locked by another process

    def _open(self) -> sqlite3.Connection:
        # A connection must not be used on the other side of a fork: https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_
        if self._connection is not None and self._pid == os.getpid():
            return self._connection
        self._name = token_hex(8)
        try:
            _own(Path(self.path))
            connection = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None, check_same_thread=False)
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.executescript(SCHEMA)
            connection.execute(f"PRAGMA max_page_count = {max(64, self._limits.task_bytes // PAGE)}")
            self._held = _locked(self._lock_file(self._name))
            for left in Path(self.path).parent.glob(f"{Path(self.path).name}-*.lock"):
                if (held := _locked(os.fspath(left), create=False)) is not None:
                    _release(held, os.fspath(left))
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"{self.path}: cannot keep tasks there ({error}); name a file that this user may write"
            ) from None
        self._connection, self._pid = connection, os.getpid()
        return connection


def _own(path: Path) -> None:
    # SQLite gives the files that it puts beside this one the same permissions.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        if os.name == "posix" and os.fstat(file).st_mode & 0o077:
            os.fchmod(file, 0o600)
    finally:
        os.close(file)


def _locked(path: str, *, create: bool = True) -> int | None:
    """A file with a lock that ends with the process; None where another one has it."""
    try:
        file = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink == 0:  # whoever had it before us has removed it
                os.close(file)
                return _locked(path, create=create)
    except OSError:
        os.close(file)
        return None
    return file


def _release(file: int, path: str) -> None:
    """Remove a file that is locked, and let go of the lock."""
    try:
        os.unlink(path)
    except OSError:
        pass  # Windows removes nothing that is open
    os.close(file)
