"""Tasks in a file, which outlive their process, and which several processes of one machine may
share.

The file is SQLite with a write-ahead log. A read takes some ten microseconds and waits for no
writer, and a write of a few KiB hardly ever waits for the disk, so both are done right in the event
loop. What takes long is done by a thread: a large result, a write while somebody else writes, and
sweeping, which goes in pieces so that others get their turn. A commit survives the end of the
process, however sudden; the last ones before a power cut may be lost (`synchronous = NORMAL`).

A process that runs tasks holds a lock on a file of its own beside the database (`locks.py`):
whoever gets it knows that nobody runs those tasks any more.

The file is for its owner alone, for it holds what was asked and answered. It does not grow beyond
`Limits.task_bytes`; room that is free again is used again, and given back from time to time.
"""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from glob import escape
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, TypeVar

import msgspec

from ...databases import closed_at_fork, connected, own
from ...errors import ConfigError, Overloaded, ProtocolError, TooLarge
from ...limits import DEFAULT, KIB, Limits
from .locks import locked, release
from .store import Able, Letter, Record, full_bytes, pack, payer, refusal, unpack, whatever

log = logging.getLogger("dovetail.tasks")

LARGE = 64 * KIB
"""What is longer is written by a thread."""
BUSY = 2.0
"""Seconds that a write waits for that of another process."""
PIECE = 250
"""The tasks, and the pages, that are swept at once."""
PAGE = 4096
NAMES = 10
"""How often a process tries to take a name."""

EDITION = int.from_bytes(b"tsk1", "big")
"""Says of a file that it has the schema already, for that takes a lock."""
SCHEMA = f"""
PRAGMA page_size = {PAGE};
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    session TEXT NOT NULL,
    payer TEXT NOT NULL,
    expires REAL NOT NULL,
    runner TEXT NOT NULL,
    over INTEGER NOT NULL,
    data BLOB NOT NULL,
    result BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS tasks_owner ON tasks (owner, number);
CREATE INDEX IF NOT EXISTS tasks_expires ON tasks (expires);
CREATE INDEX IF NOT EXISTS tasks_runner ON tasks (runner) WHERE NOT over;
CREATE TABLE IF NOT EXISTS counts (payer TEXT PRIMARY KEY, tasks INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS letters (number INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS letters_task ON letters (task);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON tasks BEGIN
    INSERT INTO counts VALUES (new.payer, 1), ('all', 1) ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON tasks BEGIN
    UPDATE counts SET tasks = tasks - 1 WHERE payer IN (old.payer, 'all');
    DELETE FROM counts WHERE payer = old.payer AND tasks = 0;
    DELETE FROM letters WHERE task = old.id;
END;
PRAGMA user_version = {EDITION};
"""  # noqa: E501
SETTINGS = """
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 4194304;
PRAGMA busy_timeout = 0; -- a thread has more patience
"""
ADD = (
    "INSERT INTO tasks (id, owner, session, payer, expires, runner, over, data, result) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SET = "UPDATE tasks SET over = ?, data = ?, result = ? WHERE id = ? AND NOT over"
GET = "SELECT data, result FROM tasks WHERE id = ? AND expires > ?"
LIST = """
SELECT number, id, data FROM tasks WHERE owner = ? AND number > ? AND ? IN ('', session) AND expires > ?
ORDER BY number LIMIT ?
"""  # noqa: E501
RELEASE = "UPDATE tasks SET runner = '' WHERE id = ? AND runner = ?"
CLAIM = "UPDATE tasks SET runner = ? WHERE id = ? AND runner = ? AND NOT over AND expires > ?"
OTHERS = "SELECT DISTINCT runner FROM tasks WHERE NOT over AND runner NOT IN ('', ?)"
LEFT = "SELECT id, data FROM tasks WHERE runner = ? AND NOT over AND expires > ?"
SEND = """
INSERT INTO letters (task, data)
SELECT id, ? FROM tasks WHERE id = ? AND (SELECT count(*) FROM letters WHERE task = tasks.id) < ?
"""
RECEIVE = (
    "SELECT l.number, l.data FROM letters AS l JOIN tasks ON tasks.id = l.task WHERE "
    "runner = ? ORDER BY l.number"
)
EXPIRE = "DELETE FROM tasks WHERE number IN (SELECT number FROM tasks WHERE expires <= ? LIMIT ?)"

T = TypeVar("T")
_letter = msgspec.msgpack.Decoder(Letter).decode


class _Busy(Overloaded):
    """Somebody else writes."""


class SqliteStore:
    """Tasks in a file that only its owner may read."""

    shared = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._limits = DEFAULT
        self._reading, self._writing = (
            Lock(),
            Lock(),
        )  # servers may run on several loops, in several threads
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._name, self._held = "", -1
        """What this process calls itself, until it closes the store; and its lock."""
        self._unread: set[str] = set()
        """What was said to be unreadable."""
        closed_at_fork(self)

    def bind(self, limits: Limits) -> None:
        """The bounds to keep."""
        self._limits = limits

    async def add(self, record: Record) -> None:
        """A new task."""
        data = pack(record)
        await self._write(self._add, record, data, size=len(data) + len(record.result))

    async def get(self, id: str) -> Record | None:
        """A task."""
        rows = self._read(GET, id, time.time())
        return self._record(id, *rows[0]) if rows else None

    async def put(self, record: Record) -> bool:
        """A task as it is now."""
        data, result = pack(record), record.result
        done = await self._write(
            self._make_room, SET, record.over, data, result, record.id, size=len(data) + len(result)
        )
        return done.rowcount > 0

    async def remove(self, id: str) -> None:
        """Forget a task."""
        await self._write(self._do, "DELETE FROM tasks WHERE id = ?", id)

    async def page(
        self, owner: str, session: str, after: int, count: int
    ) -> list[tuple[int, Record]]:
        """Tasks of one owner and conversation."""
        found: list[tuple[int, Record]] = []
        while len(found) < count and (
            rows := self._read(LIST, owner, after, session, time.time(), count - len(found))
        ):
            after = rows[-1][0]
            records = ((number, self._record(id, data)) for number, id, data in rows)
            found += [(number, record) for number, record in records if record is not None]
        return found

    async def release(self, id: str) -> None:
        """Leave a task to whoever claims it."""
        await self._write(lambda: self._do(RELEASE, id, self._name))

    async def claim(self, id: str) -> Record | None:
        """A task that is ours from now on."""
        return await self._write(self._claim, id, "")

    async def orphans(self, *, own: bool, able: Able = whatever) -> list[Record]:
        """Tasks of processes that are gone; they are ours from now on."""
        return await self._by_thread(self._orphans, own, able)

    async def send(self, letter: Letter) -> None:
        """A letter to a task."""
        data = msgspec.msgpack.encode(letter)
        done = await self._write(
            self._make_room, SEND, data, letter.id, self._limits.asks, size=len(data)
        )
        if not done.rowcount:
            raise Overloaded(
                f"The task {letter.id} is gone, or has not read yet what it was told before; "
                "try again later"
            )

    async def receive(self) -> list[tuple[int, Letter]]:
        """Letters to our tasks."""
        rows = self._read(RECEIVE, self._name)
        letters = (
            (number, self._legible(f"the letter {number}", _letter, data)) for number, data in rows
        )
        return [(number, letter) for number, letter in letters if letter is not None]

    async def take(self, number: int) -> None:
        """A letter has done what it was to do."""
        await self._write(self._do, "DELETE FROM letters WHERE number = ?", number)

    async def sweep(self) -> None:
        """Forget what has expired, and give back room that is free."""
        while await self._by_thread(self._sweep):
            pass

    async def close(self) -> None:
        """Let go of the file and of what we run; the next call opens it again."""
        with self._writing, self._reading:
            self._disconnect()
            if self._held >= 0:
                release(self._held, self._lock_file(self._name))
            self._name, self._held = "", -1

    # how

    def _record(self, id: str, data: bytes, result: bytes = b"") -> Record | None:
        return self._legible(f"the task {id[:8]}…", unpack, data, result)

    def _legible(self, what: str, read: Callable[..., T], *row: Any) -> T | None:
        """What a row says. One that cannot be read is passed over, for the sake of the others, and
        that is said once."""
        try:
            return read(*row)
        except Exception as error:
            if what not in self._unread:
                self._unread.add(what)
                log.error("%s: %s cannot be read, and is passed over: %s", self.path, what, error)
            return None

    def _read(self, statement: str, *values: Any) -> list[Any]:
        with self._reading:
            if self._reader is not None:
                return self._execute(self._reader, statement, values).fetchall()
        with self._writing:
            self._open()
        return self._read(statement, *values)

    async def _write(self, function: Callable[..., T], *args: Any, size: int = 0) -> T:
        """Here and now where that takes no time; by a thread where it is much, or somebody else
        writes."""
        if size < LARGE and self._writing.acquire(blocking=False):
            try:
                self._open()
                return function(*args)
            except _Busy:
                pass
            finally:
                self._writing.release()
        return await self._by_thread(function, *args)

    async def _by_thread(self, function: Callable[..., T], *args: Any) -> T:
        writing = asyncio.get_running_loop().run_in_executor(
            None, partial(self._patiently, function, *args)
        )
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])  # or what is written next might come before it
            raise

    def _patiently(self, function: Callable[..., T], *args: Any) -> T:
        with self._writing:
            self._open()
            self._do(f"PRAGMA busy_timeout = {BUSY * 1000:.0f}")
            try:
                return function(*args)
            finally:
                self._do("PRAGMA busy_timeout = 0")

    def _execute(
        self, connection: sqlite3.Connection, statement: str, values: Any
    ) -> sqlite3.Cursor:
        try:
            return connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise self._no_room(connection, values) from None
            kind = _Busy if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY else Overloaded
            raise kind(f"The tasks cannot be reached: {error}") from None

    def _no_room(self, connection: sqlite3.Connection, values: tuple[Any, ...]) -> ProtocolError:
        """SQLite says the same where our bound is reached and where the disk is full."""
        names = "page_count", "freelist_count", "max_page_count"
        pages, free, most = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        wanted = sum(len(value) for value in values if isinstance(value, bytes | str)) // PAGE + 8
        if pages - free + wanted >= most:
            return full_bytes(self._limits)
        return Overloaded(
            "The disk that tasks are kept on is full; try again when its operator has made room"
        )

    # under the lock for writing

    def _do(self, statement: str, *values: Any) -> sqlite3.Cursor:
        assert self._writer is not None
        return self._execute(self._writer, statement, values)

    def _add(self, record: Record, data: bytes) -> None:
        while (refused := self._refusal(record)) is not None:
            if not self._expire():
                raise refused
        whose = record.id, record.owner, record.session, payer(record), record.expires
        self._make_room(ADD, *whose, self._name, record.over, data, record.result)

    def _make_room(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Do it, also where what has expired must go first."""
        while True:
            try:
                return self._do(statement, *values)
            except TooLarge:
                if not self._expire():
                    raise

    def _refusal(self, record: Record) -> Overloaded | None:
        who = payer(record)
        counts = dict(
            self._do("SELECT payer, tasks FROM counts WHERE payer IN (?, 'all')", who).fetchall()
        )
        return refusal(self._limits, counts.get("all", 0), counts.get(who, 0) if who else 0)

    def _expire(self) -> int:
        return self._do(EXPIRE, time.time(), PIECE).rowcount

    def _sweep(self) -> bool:
        """A piece of it; whether there is more."""
        gone, free = self._expire(), self._free()
        self._do(f"PRAGMA incremental_vacuum({PIECE})").fetchall()  # a row for each page
        return gone == PIECE or 0 < self._free() < free

    def _free(self) -> int:
        return int(self._do("PRAGMA freelist_count").fetchone()[0])

    def _claim(self, id: str, runner: str) -> Record | None:
        """A task that this one ran, or nobody."""
        now = time.time()
        if not self._do(CLAIM, self._name, id, runner, now).rowcount:
            return None
        row = self._do(GET, id, now).fetchone()
        return None if row is None else self._record(id, *row)

    def _orphans(self, own: bool, able: Able) -> list[Record]:
        assert self._writer is not None
        self._do("BEGIN IMMEDIATE")
        with self._writer:
            found = self._left(self._name, able) if own else []
            for (runner,) in self._do(OTHERS, self._name).fetchall():
                if (held := locked(self._lock_file(runner))) is not None:  # or it lives
                    try:
                        found += self._left(runner, able)
                    finally:  # or nobody would take them up for as long as we live
                        release(held, self._lock_file(runner))
        return found

    def _left(self, runner: str, able: Able) -> list[Record]:
        rows = self._do(LEFT, runner, time.time()).fetchall()
        left = (self._record(id, data) for id, data in rows)
        return [
            one
            for one in left
            if one is not None and able(one) and self._claim(one.id, runner) is not None
        ]

    def _lock_file(self, runner: str) -> str:
        return f"{self.path}-{runner}.lock"

    def _open(self) -> None:
        if self._writer is not None:
            return
        try:
            with ExitStack() as opening:
                own(Path(self.path))
                writer, reader = (
                    opening.enter_context(closing(connected(self.path, BUSY))) for _ in range(2)
                )
                if writer.execute("PRAGMA user_version").fetchone()[0] != EDITION:
                    writer.executescript(SCHEMA)
                writer.executescript(SETTINGS)
                writer.execute(
                    f"PRAGMA max_page_count = {max(64, self._limits.task_bytes // PAGE)}"
                )
                reader.execute("PRAGMA query_only = 1")
                if self._held < 0:
                    self._enrol()
                opening.pop_all()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"{self.path}: cannot keep tasks there ({error}); name a file that this user "
                "may write"
            ) from None
        self._reader, self._writer = reader, writer

    def _disconnect(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    def _enrol(self) -> None:
        """Take a name, and remove the locks of those who are gone; one of them may take ours for
        such a one once."""
        for _ in range(NAMES):
            self._name = token_hex(8)
            if (held := locked(self._lock_file(self._name))) is not None:
                break
        else:
            raise OSError("no file beside it can be locked")
        self._held = held
        for left in Path(self.path).parent.glob(f"{escape(Path(self.path).name)}-*.lock"):
            if (gone := locked(os.fspath(left), create=False)) is not None:
                release(gone, os.fspath(left))

    # while the process forks

    def before_fork(self) -> None:
        """Nobody has the file open, and nobody opens it."""
        self._writing.acquire()
        self._reading.acquire()
        self._disconnect()

    def after_fork(self, *, child: bool) -> None:
        """A child is another process, with a name of its own."""
        if child and self._held >= 0:
            os.close(self._held)  # or the parent's lock would last as long as we do
            self._name, self._held = "", -1
        self._reading.release()
        self._writing.release()
