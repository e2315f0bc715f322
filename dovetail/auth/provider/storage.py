"""What the provider has to remember: grants, tokens, sessions, registrations.

It is a table of rows with an end: key, bytes, when it expires, and perhaps a parent, without which
a row cannot be added and with which it goes. That is all that revocation needs: access tokens are
children of their grant. Three calls are atomic among all processes (`add`, `change`, `take`), and
all that must happen only once is built on them.

Keys are `kind:digest`, made of the issuer and the secret (`key`), so that servers may share one
file, and whoever reads the file finds nothing to log in with.

The default is SQLite with a write-ahead log: a read takes about 10 microseconds and a write waits
for no disk, so both are done right in the event loop. Another `Storage` may wait as it likes.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Set
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import msgspec

from ...databases import close_before_fork, connect, create_private_file
from ...errors import ConfigError, Overloaded
from ..client.store import data_folder

MAX_ROWS_PER_KIND = 100_000
"""Rows of one kind. Whoever would add another is refused until some have expired."""
PUBLIC_KINDS = ("client", "visit")
"""Kinds that anybody can add to, without a login. There, a tenth makes room, of what would expire
first: a client that nobody has used yet, a visit that takes long. Else strangers could keep
everybody out."""
SWEEP_INTERVAL_SECONDS = 60.0
SWEEP_ADDS = 1000
"""Expired rows go after so many seconds, or so many new rows."""
BUSY_TIMEOUT_SECONDS = 2.0
"""Seconds that a write waits for that of another process."""
MEMORY = ":memory:"

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA foreign_keys = ON;
CREATE TABLE IF NOT EXISTS rows (
    key TEXT PRIMARY KEY,
    data BLOB NOT NULL,
    expires REAL NOT NULL,
    parent TEXT REFERENCES rows (key) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rows_expires ON rows (expires);
CREATE INDEX IF NOT EXISTS rows_parent ON rows (parent);
"""
ADD = """
INSERT OR IGNORE INTO rows SELECT :key, :data, :expires, :parent
WHERE :parent IS NULL OR EXISTS (SELECT 1 FROM rows WHERE key = :parent AND expires > :now)
"""
DELETE_OLDEST = (
    "DELETE FROM rows WHERE key IN (SELECT key FROM rows WHERE key GLOB ? ORDER BY expires LIMIT ?)"
)
COUNT_BY_KIND = "SELECT substr(key, 1, instr(key, ':') - 1), count(*) FROM rows GROUP BY 1"


class Storage(Protocol):
    """Where a provider keeps its rows. What has expired is never given back."""

    async def get(self, key: str) -> bytes | None:
        """The data of a row."""

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        """A new row; False where there is one of that key, or no such parent. Raises Overloaded
        where there are too many."""

    async def change(self, key: str, old: bytes, new: bytes, expires: float) -> bool:
        """Other data for a row, as long as it has the old; False where it has not."""

    async def take(self, key: str) -> bytes | None:
        """The data of a row, which is gone from now on: of all who ask, one gets it."""

    async def delete(self, key: str) -> None:
        """Remove a row, and all of which it is the parent."""


def row_key(kind: str, *parts: str) -> str:
    """The name of a row: nobody can tell the parts from it."""
    return f"{kind}:{sha256(msgspec.json.encode(parts)).hexdigest()}"


class SqliteStorage:
    """Rows in a file that only its owner may read, or in memory (`":memory:"`: one process, until
    it ends)."""

    __slots__ = (
        "__weakref__",
        "_adds",
        "_connection",
        "_full",
        "_lock",
        "_now",
        "_rows",
        "_swept",
        "path",
    )

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        rows: int = MAX_ROWS_PER_KIND,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = os.fspath(data_folder() / "provider.sqlite" if path is None else path)
        self._rows = rows
        self._now = now
        self._lock = Lock()  # servers may run on several loops, in several threads
        self._connection: sqlite3.Connection | None = None
        self._swept = 0.0
        self._adds = 0
        self._full: Set[str] = frozenset()
        close_before_fork(self)

    async def get(self, key: str) -> bytes | None:
        """The data of a row."""
        with self._lock:
            return self._get(key)

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        """A new row; False where there is one of that key, or no such parent. Raises Overloaded
        where there are too many."""
        with self._lock:
            self._sweep()
            if key.partition(":")[0] in self._full:
                raise Overloaded("too many are under way at once; try again later")
            values = {
                "key": key,
                "data": data,
                "expires": expires,
                "parent": parent,
                "now": self._now(),
            }
            return self._do(ADD, values).rowcount == 1

    async def change(self, key: str, old: bytes, new: bytes, expires: float) -> bool:
        """Other data for a row, as long as it has the old; False where it has not."""
        statement = (
            "UPDATE rows SET data = ?, expires = ? WHERE key = ? AND data = ? AND expires > ?"
        )
        with self._lock:
            return self._do(statement, (new, expires, key, old, self._now())).rowcount == 1

    async def take(self, key: str) -> bytes | None:
        """The data of a row, which is gone from now on: of all who ask, one gets it."""
        with self._lock:
            data = self._get(key)
            gone = self._do("DELETE FROM rows WHERE key = ? AND data = ?", (key, data)).rowcount
        return data if gone else None

    async def delete(self, key: str) -> None:
        """Remove a row, and all of which it is the parent."""
        with self._lock:
            self._do("DELETE FROM rows WHERE key = ?", (key,))

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        with self._lock:
            self._disconnect()

    def before_fork(self) -> None:
        """Nobody has the file open, and nobody opens it."""
        self._lock.acquire()
        if self.path != MEMORY:
            self._disconnect()

    def after_fork(self, *, child: bool) -> None:
        """A child is another process: what was in memory stays with its parent."""
        if child:
            self._disconnect()
        self._lock.release()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _get(self, key: str) -> bytes | None:
        statement = "SELECT data FROM rows WHERE key = ? AND expires > ?"
        row: tuple[bytes] | None = self._do(statement, (key, self._now())).fetchone()
        return None if row is None else row[0]

    def _sweep(self) -> None:
        self._adds += 1
        now = self._now()
        if now - self._swept < SWEEP_INTERVAL_SECONDS and self._adds < min(SWEEP_ADDS, self._rows):
            return
        self._do("DELETE FROM rows WHERE expires <= ?", (now,))
        counts = {kind: count for kind, count in self._do(COUNT_BY_KIND) if count >= self._rows}
        for kind in counts.keys() & set(PUBLIC_KINDS):
            self._do(DELETE_OLDEST, (f"{kind}:*", counts[kind] - self._rows * 9 // 10))
        self._full = counts.keys() - set(PUBLIC_KINDS)
        self._swept, self._adds = now, 0

    def _do(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        connection = self._open()
        try:
            return connection.execute(statement, values)
        except sqlite3.OperationalError as error:  # locked by another process, disk full
            raise Overloaded(f"{self.path}: {error}") from None

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        try:
            if self.path != MEMORY:
                create_private_file(Path(self.path))
            with ExitStack() as opening:
                connection = connect(self.path, BUSY_TIMEOUT_SECONDS, self)
                opening.callback(connection.close)
                connection.executescript(SCHEMA)
                opening.pop_all()
        except (OSError, sqlite3.Error) as error:
            remedy = (
                'name a file that this user may write, Provider(storage="…"), or '
                '":memory:" to forget all at the end'
            )
            raise ConfigError(
                f"{self.path}: cannot keep what the authorization server has to ({error}); {remedy}"
            ) from None
        self._connection = connection
        return connection
