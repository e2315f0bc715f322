"""The provider's persistent data: grants, tokens, sessions and registrations.

The data is a table of rows that expire. A row has a key, bytes, an expiry time and an optional
parent. A row can be added only if its parent exists, and is deleted together with its parent. For
example, revoking a grant deletes its access tokens, which are its children. `add`, `change` and
`take` are atomic across processes. All operations that must happen only once use these methods.

A key has the form `kind:digest`, where the digest is made from the issuer and the secret
(`row_key`). Several servers can therefore share one file, and the file contains no usable secrets.

The default is SQLite with a write-ahead log. A read takes about 10 microseconds and a write does
not wait for the disk, so both run in the event loop. The methods are async so that another
`Storage` can do network I/O.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Set
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ...databases import MEMORY, SqliteFile, connect, create_private_file
from ...errors import ConfigError, Overloaded
from ...logs import get_logger
from ..client.store import data_folder

log = get_logger("auth")

MAX_ROWS_PER_KIND = 100_000
"""When there are this many rows of one kind, no more can be added until some have expired."""
PUBLIC_KINDS = ("client", "visit")
"""Kinds whose rows anyone can add without logging in. If there are too many rows, the 10 % that
expire first are deleted (usually unused clients and slow logins). Otherwise, anyone could block all
other users by filling the table."""
SWEEP_INTERVAL_SECONDS = 60.0
SWEEP_ADDS = 1000
"""Expired rows are deleted after this many seconds or this many new rows."""
BUSY_TIMEOUT_SECONDS = 2.0
"""How long a write waits for another process to finish writing."""

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
    """A place where a provider stores its rows. `Provider(storage=…)` accepts any object with these
    methods."""

    async def get(self, key: str) -> bytes | None:
        """Return the data of a row, or None if the row does not exist or has expired.

        Args:
            key: The key of the row.
        """

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        """Add a row. Returns False if the key already exists or the parent does not. A row that has
        expired does not exist.

        Args:
            key: The key of the row.
            data: The data of the row.
            expires: When the row expires, in seconds since the epoch.
            parent: The key of the parent row; deleting the parent also deletes this row (default:
                none).

        Raises:
            Overloaded: There are too many rows of this kind.
        """

    async def change(self, key: str, old: bytes, new: bytes, expires: float) -> bool:
        """Replace the data of a row. Returns False if the data is not `old` or the row has expired.

        Args:
            key: The key of the row.
            old: The data that the row must currently have.
            new: The new data.
            expires: The new expiry time, in seconds since the epoch.
        """

    async def take(self, key: str) -> bytes | None:
        """Delete a row and return its data. If several callers take the row concurrently, only one
        of them receives the data.

        Args:
            key: The key of the row.
        """

    async def delete(self, key: str) -> None:
        """Delete a row and all its children.

        Args:
            key: The key of the row.
        """


def digest_of(secret: str) -> str:
    """Return the digest that is stored instead of a secret."""
    return sha256(secret.encode()).hexdigest()


def row_key(kind: str, *parts: str) -> str:
    """Return the key of a row, which does not reveal its parts."""
    return f"{kind}:{sha256(msgspec.json.encode(parts)).hexdigest()}"


class SqliteStorage(SqliteFile):
    """Stores rows in an SQLite file that only its owner can read.

    Args:
        path: The file (default: `provider.sqlite` in the user's folder for application data).
            `":memory:"` keeps rows in this process's memory.
        rows: The maximum number of rows of one kind (default: 100,000). Adding more raises
            Overloaded.
        now: The clock (default: `time.time`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        rows: int = MAX_ROWS_PER_KIND,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(os.fspath(data_folder() / "provider.sqlite" if path is None else path))
        self._rows = rows
        self._now = now
        self._swept = 0.0
        self._adds = 0
        self._full: Set[str] = frozenset()
        self._opened = 0
        """How often the file was opened."""

    async def get(self, key: str) -> bytes | None:
        """Return the data of a row, or None if the row does not exist or has expired.

        Args:
            key: The key of the row.
        """
        with self._lock:
            return self._get(key)

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        """Add a row. Returns False if the key already exists or the parent does not.

        Args:
            key: The key of the row.
            data: The data of the row.
            expires: When the row expires, in seconds since the epoch.
            parent: The key of the parent row; deleting the parent also deletes this row (default:
                none).

        Raises:
            Overloaded: There are too many rows of this kind.
        """
        with self._lock:
            self._sweep()
            if key.partition(":")[0] in self._full:
                raise Overloaded("Too many requests are pending. Try again later.")
            now = self._now()
            self._do("DELETE FROM rows WHERE key = ? AND expires <= ?", (key, now))
            values = {"key": key, "data": data, "expires": expires, "parent": parent, "now": now}
            return self._do(ADD, values).rowcount == 1

    async def change(self, key: str, old: bytes, new: bytes, expires: float) -> bool:
        """Replace the data of a row. Returns False if the data is not `old` or the row has expired.

        Args:
            key: The key of the row.
            old: The data that the row must currently have.
            new: The new data.
            expires: The new expiry time, in seconds since the epoch.
        """
        statement = (
            "UPDATE rows SET data = ?, expires = ? WHERE key = ? AND data = ? AND expires > ?"
        )
        with self._lock:
            return self._do(statement, (new, expires, key, old, self._now())).rowcount == 1

    async def take(self, key: str) -> bytes | None:
        """Delete a row and return its data. If several callers take the row concurrently, only one
        of them receives the data.

        Args:
            key: The key of the row.
        """
        with self._lock:
            data = self._get(key)
            gone = self._do("DELETE FROM rows WHERE key = ? AND data = ?", (key, data)).rowcount
        return data if gone else None

    async def delete(self, key: str) -> None:
        """Delete a row and all its children.

        Args:
            key: The key of the row.
        """
        with self._lock:
            self._do("DELETE FROM rows WHERE key = ?", (key,))

    def version(self) -> tuple[int, int, int]:
        """Return a value that is different after every change to the rows, by this process or any
        other. Unlike `get`, it is not async, so a request whose token is cached need not wait.

        Raises:
            Overloaded: The file cannot be read now.
        """
        with self._lock:
            own_changes, changes_of_others = self._open().total_changes, 0
            if self.path != MEMORY:
                # https://sqlite.org/pragma.html#pragma_data_version counts the changes that other
                # connections have made since this one was opened.
                (changes_of_others,) = self._do("PRAGMA data_version").fetchone()
            return self._opened, own_changes, changes_of_others

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
            log.warning("%s: %s", self.path, error)
            raise Overloaded("The storage is not available now; try again later") from None

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
                f"Cannot store the provider's data in {self.path}: {error}. Pass "
                'Provider(storage="…") with a file that this user can write to, or ":memory:".'
            ) from None
        self._connection = connection
        self._opened += 1
        return connection
