"""What the provider has to remember: grants, tokens, sessions, registrations.

It is a table of rows that expire: key, bytes, time of expiry, and perhaps a parent. A row cannot be
added without its parent, and is deleted with it. That is all that revocation needs: access tokens
are children of their grant. Three calls are atomic between all processes (`add`, `change`, `take`),
and everything that must happen only once is built on them.

A key is `kind:digest`, made of the issuer and the secret (`row_key`). So servers may share one
file, and a person who reads the file finds nothing to log in with.

The default is SQLite with a write-ahead log. A read takes about 10 microseconds and a write waits
for no disk, so both are done in the event loop. Another `Storage` may wait as long as it likes.
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
"""If there are more, adding rows of that kind is refused until some have expired."""
PUBLIC_KINDS = ("client", "visit")
"""Kinds that anyone can add to, without a login. If there are too many, a tenth is deleted, the
first to expire: a client that was not used yet, a login that takes long. Otherwise strangers could
keep everyone out."""
SWEEP_INTERVAL_SECONDS = 60.0
SWEEP_ADDS = 1000
"""Expired rows are deleted after this many seconds, or this many new rows."""
BUSY_TIMEOUT_SECONDS = 2.0
"""How long a write waits for that of another process."""
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
    """Where a provider stores its rows. `Provider(storage=…)` takes any object with these
    methods."""

    async def get(self, key: str) -> bytes | None:
        """Return the data of a row; None if there is none, or if it has expired.

        Args:
            key: The key of the row.
        """

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        """Add a row. Returns False if the key is taken, or if the parent does not exist.

        Args:
            key: The key of the row.
            data: Its data.
            expires: When it expires, as `time.time()` counts.
            parent: The key of the row with which it is deleted (default: none).

        Raises:
            Overloaded: There are too many rows of this kind.
        """

    async def change(self, key: str, old: bytes, new: bytes, expires: float) -> bool:
        """Replace the data of a row. Returns False if its data is not `old`, or if it has expired.

        Args:
            key: The key of the row.
            old: The data that it must have now.
            new: The new data.
            expires: When it expires from now on, as `time.time()` counts.
        """

    async def take(self, key: str) -> bytes | None:
        """Delete a row and return its data. If several callers take it, only one gets the data.

        Args:
            key: The key of the row.
        """

    async def delete(self, key: str) -> None:
        """Delete a row, and all of its children.

        Args:
            key: The key of the row.
        """


def digest_of(secret: str) -> str:
    """Return what is stored in place of a secret."""
    return sha256(secret.encode()).hexdigest()


def row_key(kind: str, *parts: str) -> str:
    """Return the key of a row, from which nobody can tell its parts."""
    return f"{kind}:{sha256(msgspec.json.encode(parts)).hexdigest()}"


class SqliteStorage:
    """Stores rows in an SQLite file that only its owner may read.

    Args:
        path: The file (default: `provider.sqlite` in the user's folder for application data).
            `":memory:"` stores rows in memory, for one process, until it ends.
        rows: How many rows of one kind there may be (default: 100,000). If there are more, adding
            one raises Overloaded.
        now: The clock (default: `time.time`).
    """

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
        """Return the data of a row; None if there is none, or if it has expired.

        Args:
            key: The key of the row.
        """
        with self._lock:
            return self._get(key)

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        """Add a row. Returns False if the key is taken, or if the parent does not exist.

        Args:
            key: The key of the row.
            data: Its data.
            expires: When it expires, as `time.time()` counts.
            parent: The key of the row with which it is deleted (default: none).

        Raises:
            Overloaded: There are too many rows of this kind.
        """
        with self._lock:
            self._sweep()
            if key.partition(":")[0] in self._full:
                raise Overloaded("There are too many unfinished requests. Try again later.")
            values = {
                "key": key,
                "data": data,
                "expires": expires,
                "parent": parent,
                "now": self._now(),
            }
            return self._do(ADD, values).rowcount == 1

    async def change(self, key: str, old: bytes, new: bytes, expires: float) -> bool:
        """Replace the data of a row. Returns False if its data is not `old`, or if it has expired.

        Args:
            key: The key of the row.
            old: The data that it must have now.
            new: The new data.
            expires: When it expires from now on, as `time.time()` counts.
        """
        statement = (
            "UPDATE rows SET data = ?, expires = ? WHERE key = ? AND data = ? AND expires > ?"
        )
        with self._lock:
            return self._do(statement, (new, expires, key, old, self._now())).rowcount == 1

    async def take(self, key: str) -> bytes | None:
        """Delete a row and return its data. If several callers take it, only one gets the data.

        Args:
            key: The key of the row.
        """
        with self._lock:
            data = self._get(key)
            gone = self._do("DELETE FROM rows WHERE key = ? AND data = ?", (key, data)).rowcount
        return data if gone else None

    async def delete(self, key: str) -> None:
        """Delete a row, and all of its children.

        Args:
            key: The key of the row.
        """
        with self._lock:
            self._do("DELETE FROM rows WHERE key = ?", (key,))

    def close(self) -> None:
        """Close the file. The next call opens it again."""
        with self._lock:
            self._disconnect()

    def before_fork(self) -> None:
        """Close the file, and keep others from opening it."""
        self._lock.acquire()
        if self.path != MEMORY:
            self._disconnect()

    def after_fork(self, *, child: bool) -> None:
        """Allow the file to be opened again.

        Args:
            child: Whether this is the new process. Rows in memory stay with its parent.
        """
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
            raise ConfigError(
                f"{self.path}: the provider cannot store its data there ({error}). Pass "
                'Provider(storage="…") with a file that this user may write, or ":memory:".'
            ) from None
        self._connection = connection
        return connection
