"""A task store in a file that several processes on one machine may share.

The file is an SQLite database with a write-ahead log. A read takes about ten microseconds and never
waits for a writer, and a write of a few KiB hardly ever waits for the disk. So the event loop does
both directly. Slow work is done in a thread: writing a large result, writing while another process
writes, and deleting expired tasks. Deletion runs in batches, so that other writers do not wait
long. A write returns when it is committed, together with the others of the same iteration of the
event loop (`group_commit.py`). A commit survives a crash of the process; the last commits before a
power cut may be lost (`synchronous=NORMAL`).

A process that runs tasks holds a lock on its own file next to the database. If another process can
acquire that lock, no process is running those tasks any more. The operating system releases the
lock even if the process crashes.

Only the owner of the file may read it, because it contains the arguments and answers of tasks. The
file does not grow beyond `Limits.task_bytes`. Free pages are reused, and periodically returned to
the file system.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from functools import partial
from glob import escape
from itertools import islice
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, TypeVar

import msgspec

from ...databases import close_before_fork, connect, create_private_file
from ...errors import ConfigError, Overloaded, ProtocolError, TooLarge
from ...file_lock import try_lock
from ...limits import DEFAULT, KIB, Limits
from ...logs import get_logger
from .group_commit import GroupCommit, Write
from .store import (
    CanRun,
    Claim,
    Lease,
    TaskMessage,
    TaskRecord,
    TaskStore,
    TaskStoreBroken,
    TaskStoreFull,
    can_run_all,
    out_of_room,
    pack,
    quota_error,
    quota_key,
    unpack,
)

log = get_logger("tasks")

LARGE_BYTES = 64 * KIB
"""Records above this size are written in a thread."""
BUSY_SECONDS = 2.0
"""How long a write waits for another process to finish writing."""
BATCH_SIZE = 250
"""The maximum number of expired tasks, and of free pages, that are removed in one batch."""
PAGE_BYTES = 4096
MAX_NAME_ATTEMPTS = 10
LEASE_SECONDS = 60.0
"""Processes look for orphaned tasks four times in this time. The leases of this store do not end
while their process is alive."""
NO_PROCESS = "none"
"""The name of a process that never runs, so that its tasks are orphans."""

SCHEMA_VERSION = int.from_bytes(b"tsk1", "big")
"""Marks a file that already has the schema. Creating the schema again would require a lock."""
# Existing files have these names: `letters` are task messages, a `payer` is a quota key.
SCHEMA = f"""
PRAGMA page_size = {PAGE_BYTES};
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
CREATE TABLE IF NOT EXISTS letters (
    number INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL, data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS letters_task ON letters (task);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON tasks BEGIN
    INSERT INTO counts VALUES (new.payer, 1), ('all', 1)
    ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON tasks BEGIN
    UPDATE counts SET tasks = tasks - 1 WHERE payer IN (old.payer, 'all');
    DELETE FROM counts WHERE payer = old.payer AND tasks = 0;
    DELETE FROM letters WHERE task = old.id;
END;
PRAGMA user_version = {SCHEMA_VERSION};
"""
PRAGMAS = """
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 4194304;
PRAGMA busy_timeout = 0; -- threads set a longer one
"""
ADD = (
    "INSERT INTO tasks (id, owner, session, payer, expires, runner, over, data, result) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
END = "UPDATE tasks SET over = ?, data = ?, result = ? WHERE id = ? AND NOT over"
PUT = f"{END} AND runner = ?"
GET = "SELECT data, result FROM tasks WHERE id = ? AND expires > ?"
LIST = """
SELECT number, id, data FROM tasks
WHERE owner = ? AND number > ? AND ? IN ('', session) AND expires > ?
ORDER BY number LIMIT ?
"""
RELEASE = "UPDATE tasks SET runner = ? WHERE id = ? AND runner = ?"
CLAIM = "UPDATE tasks SET runner = ? WHERE id = ? AND runner = ? AND NOT over AND expires > ?"
OTHER_RUNNERS = "SELECT DISTINCT runner FROM tasks WHERE NOT over AND runner NOT IN ('', ?)"
ORPHANS = "SELECT id, data FROM tasks WHERE runner = ? AND NOT over AND expires > ?"
SEND = """
INSERT INTO letters (task, data)
SELECT id, ? FROM tasks WHERE id = ? AND (SELECT count(*) FROM letters WHERE task = tasks.id) < ?
"""
RECEIVE = (
    "SELECT l.number, l.data FROM letters AS l JOIN tasks ON tasks.id = l.task WHERE "
    "runner = ? ORDER BY l.number"
)
DELETE_EXPIRED = (
    "DELETE FROM tasks WHERE number IN (SELECT number FROM tasks WHERE expires <= ? LIMIT ?)"
)
DELETE_FINISHED = (
    "DELETE FROM tasks WHERE number IN "
    "(SELECT number FROM tasks WHERE owner = '' AND over ORDER BY number LIMIT ?)"
)
FINISHED_BATCH_SIZE = 10
"""The number of finished tasks of anonymous callers that are deleted together if the file is
full."""

T = TypeVar("T")
_FAILURES = (sqlite3.DatabaseError, ConfigError)
"""The errors of a file that cannot be used."""
_decode_message = msgspec.msgpack.Decoder(TaskMessage).decode


class _Busy(Overloaded):
    """Another process is writing."""


class SqliteStore(TaskStore):
    """A task store in an SQLite file that outlives the process.

    Several processes may share the file. Each server needs its own `SqliteStore` object.

    Args:
        path: The path of the file. The file is created if it does not exist, and only its owner can
            read it. Files named `PATH-….lock` appear next to it while processes run tasks.
    """

    shared = True
    lease_seconds = LEASE_SECONDS

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._limits = DEFAULT
        # A server may run on several loops, in several threads.
        self._read_lock, self._write_lock = Lock(), Lock()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._runner, self._lock_fd = "", -1
        """The name of this process in the database, and its lock, until the store is closed."""
        self._was_open, self._is_broken = False, False
        """Whether the file has been opened since the last `close`, and whether an error has been
        logged because the file is unusable."""
        self._unreadable: set[str] = set()
        """The rows that have already been logged as unreadable."""
        self._group, self._in_group = GroupCommit(self._commit), False
        close_before_fork(self)

    def bind(self, limits: Limits) -> None:
        self._limits = limits

    async def add(self, record: TaskRecord, *, claim: bool = True) -> Lease | None:
        data = pack(record)
        await self._write(self._add, record, data, claim, size=len(data) + len(record.result))
        return Lease(record.id) if claim else None

    async def get(self, id: str) -> TaskRecord | None:
        rows = self._read(GET, id, time.time())
        return self._record(id, *rows[0]) if rows else None

    async def put(self, record: TaskRecord, lease: Lease) -> bool:
        # The file names the process that runs a task, so a lease needs no token.
        return await self._replace(record, own=True)

    async def end(self, record: TaskRecord) -> bool:
        return await self._replace(record, own=False)

    async def remove(self, id: str) -> None:
        await self._write(self._execute, "DELETE FROM tasks WHERE id = ?", id)

    async def list_page(
        self, owner: str, session: str, after: int, count: int
    ) -> list[tuple[int, TaskRecord]]:
        page: list[tuple[int, TaskRecord]] = []
        while len(page) < count and (
            rows := self._read(LIST, owner, after, session, time.time(), count - len(page))
        ):
            after = rows[-1][0]
            records = ((number, self._record(id, data)) for number, id, data in rows)
            page += [(number, record) for number, record in records if record is not None]
        return page

    async def claim(self, id: str) -> Claim | None:
        record = await self._write(self._claim, id, "")
        return None if record is None else (record, Lease(id))

    async def claim_orphans(
        self, *, include_own: bool, can_run: CanRun = can_run_all, room: int | None = None
    ) -> list[Claim]:
        records = await self._write_in_thread(self._claim_orphans, include_own, can_run, room)
        return [(record, Lease(record.id)) for record in records]

    async def give_back(self, lease: Lease) -> None:
        await self._write(lambda: self._execute(RELEASE, NO_PROCESS, lease.id, self._runner))

    async def release(self, lease: Lease, *, queue: bool = False) -> None:
        await self._write(lambda: self._execute(RELEASE, "", lease.id, self._runner))

    async def send_message(self, message: TaskMessage) -> None:
        data = msgspec.msgpack.encode(message)
        values = data, message.id, self._limits.asks
        done = await self._write(self._execute_with_room, SEND, *values, size=len(data))
        if not done.rowcount:
            raise Overloaded(
                f"The task {message.id} no longer exists or has too many unread messages; try "
                "again later"
            )

    async def receive_messages(self, ids: Collection[str]) -> list[tuple[int, TaskMessage]]:
        messages = (
            (number, self._decode(f"message {number}", _decode_message, data))
            for number, data in self._read(RECEIVE, self._runner)
        )
        return [
            (number, message)
            for number, message in messages
            if message is not None and message.id in ids
        ]

    async def delete_message(self, id: str, number: int) -> None:
        await self._write(self._execute, "DELETE FROM letters WHERE number = ?", number)

    async def delete_expired(self) -> None:
        """Delete expired tasks, and return free pages to the file system."""
        while await self._write_in_thread(self._delete_batch):
            pass

    async def close(self) -> None:
        """Close the file and release the tasks of this process. The next call opens the file
        again."""
        with self._write_lock, self._read_lock:
            self._disconnect()
            if self._lock_fd >= 0:
                _remove_lock(self._lock_fd, self._lock_path(self._runner))
            self._runner, self._lock_fd = "", -1
            self._was_open = self._is_broken = False

    # reading and writing

    async def _replace(self, record: TaskRecord, *, own: bool) -> bool:
        data, result = pack(record), record.result
        values = record.over, data, result, record.id

        def replace() -> sqlite3.Cursor:
            if own:
                return self._execute_with_room(PUT, *values, self._runner)
            return self._execute_with_room(END, *values)

        return (await self._write(replace, size=len(data) + len(result))).rowcount > 0

    def _record(self, id: str, data: bytes, result: bytes = b"") -> TaskRecord | None:
        return self._decode(f"task {id[:8]}…", unpack, data, result)

    def _decode(self, what: str, decode: Callable[..., T], *row: Any) -> T | None:
        """Decode a row. A row that cannot be decoded is logged once and skipped, so that the others
        can be read."""
        try:
            return decode(*row)
        except Exception as error:
            if what not in self._unreadable:
                self._unreadable.add(what)
                log.error("%s: skipping %s, which cannot be read: %s", self.path, what, error)
            return None

    def _read(self, statement: str, *values: Any) -> list[Any]:
        try:
            with self._read_lock:
                if self._reader is not None:
                    return self._execute_on(self._reader, statement, values).fetchall()
            with self._write_lock:
                self._open()
        except _FAILURES as error:
            raise self._report_failure(error) from None
        return self._read(statement, *values)

    def _report_failure(self, error: Exception) -> Exception:
        """Log a corrupt file once, and return the same short error each time it is used."""
        is_explained = isinstance(error, ConfigError)
        if is_explained and not self._was_open:
            return error  # the server does not start
        if not self._is_broken:
            self._is_broken = True
            log.error("%s", error if is_explained else self._explain(error))
        return TaskStoreBroken("This server's task store is damaged")

    def _explain(self, error: Exception) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return (
                f"The task file {self.path} is damaged ({error}). Stop the server, restore the "
                "file from a backup or move it away, and restart the server. Tasks fail until then"
            )
        return (
            f"Tasks cannot be stored in {self.path} ({error}); choose a file that this user can "
            "write to"
        )

    async def _write(self, function: Callable[..., T], *args: Any, size: int = 0) -> T:
        """Write directly if that is quick, or in a thread if the data is large or another process
        is writing."""
        if size < LARGE_BYTES:
            try:
                done: T = await self._group.add(partial(function, *args))
                return done
            except _Busy:
                pass
        return await self._write_in_thread(function, *args)

    async def _write_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        writing = asyncio.get_running_loop().run_in_executor(
            None, partial(self._write_patiently, function, *args)
        )
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])  # so that a later write cannot overtake it
            raise

    def _write_patiently(self, function: Callable[..., T], *args: Any) -> T:
        with self._write_lock:
            try:
                self._open()
                self._execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
                try:
                    return function(*args)
                finally:
                    self._execute("PRAGMA busy_timeout = 0")
            except _FAILURES as error:
                raise self._report_failure(error) from None

    def _commit(self, writes: Sequence[Write]) -> Sequence[Any]:
        """Perform writes in one transaction. If it fails, perform each alone."""
        if not self._write_lock.acquire(blocking=False):
            raise _Busy("Another thread is writing")
        try:
            self._open()
            together = self._commit_together(writes) if len(writes) > 1 else None
            return [self._try_alone(write) for write in writes] if together is None else together
        except _FAILURES as error:
            raise self._report_failure(error) from None
        finally:
            self._write_lock.release()

    def _execute_on(
        self, connection: sqlite3.Connection, statement: str, values: Any
    ) -> sqlite3.Cursor:
        try:
            return connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            if self._in_group and connection is self._writer:
                raise  # SQLite may have rolled back the transaction
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise self._full_error(connection, values) from None
            kind = _Busy if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY else Overloaded
            raise kind(f"The task store is not available: {error}") from None

    def _full_error(self, connection: sqlite3.Connection, values: tuple[Any, ...]) -> ProtocolError:
        """Return the error for a full file or a full disk, which SQLite reports as the same
        error."""
        names = "page_count", "freelist_count", "max_page_count"
        pages, free, limit = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        size = sum(len(value) for value in values if isinstance(value, bytes | str))
        if pages - free + size // PAGE_BYTES + 8 >= limit:
            return out_of_room(self._limits)
        return Overloaded(
            "The task store's disk is full; try again after the operator has freed space"
        )

    # with the write lock held

    def _commit_together(self, writes: Sequence[Write]) -> list[Any] | None:
        """Return the result or the error of each write; None if nothing was written, because
        SQLite refused one of them."""
        self._execute("BEGIN IMMEDIATE")
        assert self._writer is not None
        self._in_group = True
        try:
            outcomes = [self._try_in_group(write) for write in writes]
            self._execute("COMMIT")
            return outcomes
        except BaseException as error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                return None
            raise
        finally:
            self._in_group = False

    def _try_in_group(self, write: Write) -> Any:
        try:
            return write()
        except sqlite3.Error:
            raise
        except Exception as error:
            return error

    def _try_alone(self, write: Write) -> Any:
        try:
            return write()
        except _FAILURES as error:
            return self._report_failure(error)
        except Exception as error:
            return error

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        assert self._writer is not None
        return self._execute_on(self._writer, statement, values)

    def _execute_with_room(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement; if the file is full, delete expired tasks first, then the oldest
        finished tasks of anonymous callers."""
        while True:
            try:
                return self._execute(statement, *values)
            except TooLarge:
                size = sum(len(value) for value in values if isinstance(value, bytes))
                fits = size <= self._limits.task_bytes
                if not self._delete_expired_tasks() and not (fits and self._delete_finished()):
                    raise

    def _add(self, record: TaskRecord, data: bytes, claim: bool) -> None:
        key = quota_key(record)
        while (error := self._quota_error(key)) is not None:
            is_full = isinstance(error, TaskStoreFull)
            if not self._delete_expired_tasks() and not (is_full and self._delete_finished()):
                raise error
        columns = record.id, record.owner, record.session, key, record.expires
        runner = self._runner if claim else ""
        self._execute_with_room(ADD, *columns, runner, record.over, data, record.result)

    def _quota_error(self, key: str) -> Overloaded | None:
        statement = "SELECT payer, tasks FROM counts WHERE payer IN (?, 'all')"
        counts = dict(self._execute(statement, key).fetchall())
        return quota_error(self._limits, counts.get("all", 0), counts.get(key, 0) if key else 0)

    def _delete_expired_tasks(self) -> int:
        return self._execute(DELETE_EXPIRED, time.time(), BATCH_SIZE).rowcount

    def _delete_finished(self) -> int:
        return self._execute(DELETE_FINISHED, FINISHED_BATCH_SIZE).rowcount

    def _delete_batch(self) -> bool:
        """Delete a batch of expired tasks and a batch of free pages; return whether there are
        more."""
        deleted, free = self._delete_expired_tasks(), self._free_pages()
        # It returns a row for each page.
        self._execute(f"PRAGMA incremental_vacuum({BATCH_SIZE})").fetchall()
        return deleted == BATCH_SIZE or 0 < self._free_pages() < free

    def _free_pages(self) -> int:
        return int(self._execute("PRAGMA freelist_count").fetchone()[0])

    def _claim(self, id: str, runner: str) -> TaskRecord | None:
        """Take over a task from this runner; an empty name means that the task was released."""
        now = time.time()
        if not self._execute(CLAIM, self._runner, id, runner, now).rowcount:
            return None
        row = self._execute(GET, id, now).fetchone()
        return None if row is None else self._record(id, *row)

    def _claim_orphans(
        self, include_own: bool, can_run: CanRun, room: int | None
    ) -> list[TaskRecord]:
        assert self._writer is not None
        self._execute("BEGIN IMMEDIATE")
        with self._writer:
            claimed = self._claim_all_of(self._runner, can_run, room) if include_own else []
            for (runner,) in self._execute(OTHER_RUNNERS, self._runner).fetchall():
                path = self._lock_path(runner)
                if (lock := _lock_file(path)) is not None:  # else that process is alive
                    left = None if room is None else room - len(claimed)
                    try:
                        claimed += self._claim_all_of(runner, can_run, left)
                    finally:  # else nobody could claim the rest while this process runs
                        _remove_lock(lock, path)
        return claimed

    def _claim_all_of(self, runner: str, can_run: CanRun, room: int | None) -> list[TaskRecord]:
        rows = self._execute(ORPHANS, runner, time.time()).fetchall()
        records = (self._record(id, data) for id, data in rows)
        claimed = (
            record
            for record in records
            if record is not None and can_run(record) and self._claim(record.id, runner) is not None
        )
        return list(islice(claimed, room))

    def _lock_path(self, runner: str) -> str:
        return f"{self.path}-{runner}.lock"

    def _open(self) -> None:
        if self._writer is not None:
            return
        try:
            with ExitStack() as opening:
                create_private_file(Path(self.path))
                writer, reader = (
                    opening.enter_context(closing(connect(self.path, BUSY_SECONDS, self)))
                    for _ in range(2)
                )
                if writer.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                    writer.executescript(SCHEMA)
                writer.executescript(PRAGMAS)
                max_pages = max(64, self._limits.task_bytes // PAGE_BYTES)
                writer.execute(f"PRAGMA max_page_count = {max_pages}")
                reader.execute("PRAGMA query_only = 1")
                if self._lock_fd < 0:
                    self._register()
                opening.pop_all()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(self._explain(error)) from None
        self._reader, self._writer, self._was_open = reader, writer, True

    def _disconnect(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    def _register(self) -> None:
        """Choose a name for this process and lock its file; remove the lock files of dead
        processes. Try again if another process mistakes our lock file for that of a dead
        process."""
        for _ in range(MAX_NAME_ATTEMPTS):
            self._runner = token_hex(8)
            if (lock := _lock_file(self._lock_path(self._runner))) is not None:
                break
        else:
            raise OSError("no lock file can be created next to it")
        self._lock_fd = lock
        for path in Path(self.path).parent.glob(f"{escape(Path(self.path).name)}-*.lock"):
            if (dead := _lock_file(os.fspath(path), create=False)) is not None:
                _remove_lock(dead, os.fspath(path))

    # forks (`databases.py`)

    def before_fork(self) -> None:
        """Close the file, and prevent it from being opened."""
        self._write_lock.acquire()
        self._read_lock.acquire()
        self._disconnect()

    def after_fork(self, *, child: bool) -> None:
        """Allow the file to be opened again. A child process chooses its own name."""
        if child and self._lock_fd >= 0:
            os.close(self._lock_fd)  # else the parent's lock would last as long as the child
            self._runner, self._lock_fd = "", -1
        if child:
            self._group.clear()
        self._read_lock.release()
        self._write_lock.release()


def _lock_file(path: str, *, create: bool = True) -> int | None:
    """Open a file and lock it until it is closed or the process ends; return None if it is already
    locked."""
    try:
        fd = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    try:
        is_locked = try_lock(fd)
        is_removed = os.name != "nt" and os.fstat(fd).st_nlink == 0
    except OSError:
        is_locked = is_removed = False
    if is_locked and not is_removed:
        return fd
    os.close(fd)
    return _lock_file(path, create=create) if is_locked else None  # its holder has removed it


def _remove_lock(fd: int, path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # Windows cannot remove an open file
    os.close(fd)
