"""Consent in an SQLite file that several programs may use at once.

A read takes less than 0.1 milliseconds and no answer is kept in memory, so a grant that one program
revokes is gone for all others at their next question. Writes are rare and wait for the disk,
because a revocation must survive a power cut. A file that cannot be read allows nothing.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...config.state_folder import state_folder
from ...databases import (
    MEMORY,
    SqliteFile,
    connect,
    create_private_file,
    use_write_ahead_log,
)
from ...errors import ConfigError, Overloaded
from .pins import MAX_DIGESTS
from .store import ConsentGrant, SeenItem

SESSION_SECONDS = 7 * 86400.0
"""When the grants of a session are deleted if its program ended without doing that."""
BUSY_SECONDS = 5.0
"""How long to wait for another program that is writing."""
SCHEMA_VERSION = int.from_bytes(b"cns1", "big")
TABLES = (
    """
    CREATE TABLE grants (
        server TEXT NOT NULL,
        digest TEXT NOT NULL,
        kind TEXT NOT NULL,
        principal TEXT NOT NULL,
        name TEXT NOT NULL,
        pin TEXT NOT NULL,
        session TEXT NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (server, digest, kind, principal, name, pin, session)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE items (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        server TEXT NOT NULL,
        digest TEXT NOT NULL,
        item TEXT NOT NULL,
        pin TEXT NOT NULL,
        content TEXT NOT NULL,
        seen REAL NOT NULL,
        approved REAL,
        UNIQUE (server, digest, item, pin)
    )
    """,
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
GRANT_KEY = ("server", "digest", "kind", "principal", "name", "pin", "session")
ITEM_KEY = ("server", "digest", "item", "pin")
FIND_ANY = "SELECT 1 FROM items WHERE server = ? AND digest = ?"
_SAME_ITEM = "server = :server AND digest = :digest AND item = :item"
DROP_SEEN = f"DELETE FROM items WHERE {_SAME_ITEM} AND pin != :pin AND approved IS NULL"
MAX_UNAPPROVED = 1_000
"""The number of versions of one server that are kept although they are not approved."""
DROP_UNAPPROVED = """
DELETE FROM items WHERE number IN (
    SELECT number FROM items WHERE server = ? AND digest = ? AND approved IS NULL
    ORDER BY seen DESC, number DESC LIMIT -1 OFFSET ?
)
"""
DROP_OLDEST = f"""
DELETE FROM items WHERE number IN (
    SELECT number FROM items WHERE {_SAME_ITEM} AND approved IS NOT NULL
    ORDER BY approved DESC, number DESC LIMIT -1 OFFSET :kept
)
"""


def default_store_path() -> Path:
    """Return the file in which consent is stored by default.

    Raises:
        ConfigError: There is no home folder.
    """
    try:
        return state_folder() / "consent.db"
    except ConfigError:
        raise ConfigError(
            "There is no home folder in which to store consent. Set XDG_STATE_HOME, or pass store=."
        ) from None


class SqliteConsentStore(SqliteFile):
    """Stores consent in an SQLite file that only its owner can read or write.

    Args:
        path: The file (default: `$XDG_STATE_HOME/dovetail/consent.db`). `":memory:"` keeps consent
            in this process's memory.
        now: The clock (default: `time.time`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        text = os.fspath(default_store_path() if path is None else path)
        is_file = text != MEMORY
        super().__init__(os.path.abspath(os.path.expanduser(text)) if is_file else text)
        self._now = now

    # grants

    def find_grants(
        self,
        *,
        server: str | None = None,
        digest: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        principal: str | None = None,
    ) -> list[ConsentGrant]:
        """Return the grants that match, oldest first.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
            kind: What was allowed.
            name: The tool, item, URI or URI prefix.
            principal: Who allowed it.
        """
        filters = {
            "server": server, "digest": digest, "kind": kind, "principal": principal, "name": name
        }  # fmt: skip
        return self._select("grants", ConsentGrant, filters, "created")

    def add_grant(self, grant: ConsentGrant) -> None:
        """Remember a grant.

        Args:
            grant: The grant.
        """
        fields = {name: getattr(grant, name) for name in ConsentGrant.__struct_fields__}
        fields["created"] = grant.created or self._now()
        with self._writing() as connection:
            connection.execute(insert_statement("INSERT OR REPLACE INTO grants", fields), fields)

    def remove_grants(self, grants: Iterable[ConsentGrant]) -> None:
        """Forget grants.

        Args:
            grants: The grants.
        """
        self._delete("grants", GRANT_KEY, grants)

    def end_session(self, session: str, principal: str | None = None) -> None:
        """Forget the grants of a session.

        Args:
            session: The session.
            principal: Whose grants to forget (default: all).
        """
        values = {"session": session, "principal": principal}
        used = [name for name, value in values.items() if value is not None]
        if session:
            with self._writing() as connection:
                connection.execute(f"DELETE FROM grants WHERE {where_equal(used)}", values)

    # items

    def find_items(
        self, *, server: str | None = None, digest: str | None = None, item: str | None = None
    ) -> list[SeenItem]:
        """Return the items that match. The latest version of each item comes last.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
            item: `tool:NAME`, `prompt:NAME` or `instructions`.
        """
        filters = {"server": server, "digest": digest, "item": item}
        return self._select("items", SeenItem, filters, "item, seen, number")

    def record_items(self, items: Iterable[SeenItem], *, approve_first: bool = False) -> None:
        """Remember what a server listed. Of each item, only the approved versions and the latest
        one are kept, and of items that are not listed any more, up to `MAX_UNAPPROVED`.

        Args:
            items: What the server listed.
            approve_first: Whether to approve it if nothing is known of the server yet.
        """
        listed = list(items)
        latest = {
            (*entry, one.item): one.pin
            for entry in {(one.server, one.digest) for one in listed}
            for one in self.find_items(server=entry[0], digest=entry[1])
        }
        news = [one for one in listed if latest.get((one.server, one.digest, one.item)) != one.pin]
        if news:
            with self._writing() as connection:
                now = self._now() if approve_first else None
                approved = {
                    place: None if connection.execute(FIND_ANY, place).fetchone() else now
                    for place in {(one.server, one.digest) for one in news}
                }
                for one in news:
                    self._put(connection, one, approved[one.server, one.digest])
                for server, digest in {(one.server, one.digest) for one in news}:
                    kept = max(MAX_UNAPPROVED, len(listed))
                    connection.execute(DROP_UNAPPROVED, (server, digest, kept))

    def approve_items(self, items: Iterable[SeenItem], *, only: bool = False) -> None:
        """Approve versions of items. The oldest of more than `pins.MAX_DIGESTS` is dropped.

        Args:
            items: The versions to approve.
            only: Whether to drop all other versions of these items.
        """
        with self._writing() as connection:
            for one in items:
                self._put(connection, one, approved=self._now())
                key = {name: getattr(one, name) for name in ITEM_KEY}
                connection.execute(DROP_OLDEST, {**key, "kept": 1 if only else MAX_DIGESTS})

    def remove_items(self, items: Iterable[SeenItem]) -> None:
        """Forget versions of items.

        Args:
            items: The versions to forget.
        """
        self._delete("items", ITEM_KEY, items)

    def _put(self, connection: sqlite3.Connection, one: SeenItem, approved: float | None) -> None:
        fields = {name: getattr(one, name) for name in SeenItem.__struct_fields__}
        fields |= {"seen": self._now(), "approved": approved}
        connection.execute(
            insert_statement("INSERT INTO items", fields)
            + " ON CONFLICT (server, digest, item, pin) DO UPDATE SET seen = excluded.seen,"
            " approved = coalesce(excluded.approved, approved)",
            fields,
        )
        connection.execute(DROP_SEEN, fields)

    # the file

    def _select(
        self, table: str, type_: type[Any], filters: dict[str, str | None], order: str
    ) -> list[Any]:
        names = type_.__struct_fields__
        used = {name: value for name, value in filters.items() if value is not None}
        statement = (
            f"SELECT {', '.join(names)} FROM {table} WHERE {where_equal(used)} ORDER BY {order}"
        )
        with self._lock, self._explaining():
            rows = self._open().execute(statement, used).fetchall()
        return [type_(**dict(zip(names, row, strict=True))) for row in rows]

    def _delete(self, table: str, key: tuple[str, ...], rows: Iterable[Any]) -> None:
        values = [{name: getattr(row, name) for name in key} for row in rows]
        if values:
            with self._writing() as connection:
                connection.executemany(f"DELETE FROM {table} WHERE {where_equal(key)}", values)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explaining():
            connection = self._open()
            with _transaction(connection):
                yield connection

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        if self.path != MEMORY:
            self._prepare_file()
        connection = connect(self.path, BUSY_SECONDS, self)
        try:
            use_write_ahead_log(connection, BUSY_SECONDS)
            connection.execute("PRAGMA synchronous = FULL")
            if _version(connection) != SCHEMA_VERSION:
                with _transaction(connection):
                    self._create_tables(connection)
            self._delete_old_sessions(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        version = _version(connection)  # another program may have created them meanwhile
        if version == SCHEMA_VERSION:
            return
        if version or connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise ConfigError(
                f"{self.path} is not a consent store, or was written by another version of "
                "Dovetail. Choose another file."
            )
        for statement in TABLES:
            connection.execute(statement)

    def _delete_old_sessions(self, connection: sqlite3.Connection) -> None:
        old = "FROM grants WHERE session != '' AND created < ?", (self._now() - SESSION_SECONDS,)
        if connection.execute(f"SELECT 1 {old[0]}", old[1]).fetchone():
            connection.execute(f"DELETE {old[0]}", old[1])

    def _prepare_file(self) -> None:
        """Create the file; refuse one that another user could have written."""
        path = Path(self.path)
        try:
            create_private_file(path)
            if os.name == "posix" and path.stat().st_uid != os.geteuid():
                raise ConfigError(
                    f"The consent store {path} belongs to another user, who could allow anything "
                    "in it. Remove the file, or choose another one."
                )
        except OSError as error:
            raise ConfigError(
                f"The consent store {path} cannot be used: {error.strerror}. Choose a file that "
                "this user can write to."
            ) from None

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn errors of SQLite into errors that say what to do. Nothing is allowed meanwhile."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                # Callers from a network see this error, so it does not name the file.
                raise Overloaded(
                    "The consent store is locked by another program; try again"
                ) from None
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_CORRUPT:
                raise ConfigError(
                    f"The consent store {self.path} cannot be used ({error}). Choose a file that "
                    "this user can write to. Nothing is allowed until then."
                ) from None
            raise ConfigError(
                f"The consent store {self.path} is damaged ({error}). Move the file away, and "
                "answer the questions again. Nothing is allowed until then."
            ) from None


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def where_equal(names: Iterable[str]) -> str:
    return " AND ".join(f"{name} = :{name}" for name in names) or "1"


def insert_statement(verb: str, fields: dict[str, Any]) -> str:
    return f"{verb} ({', '.join(fields)}) VALUES ({', '.join(f':{name}' for name in fields)})"
