"""Consent that all replicas of a gateway share, in the rows of their backend.

    rows              key: a digest of                      data
    consent-grants    server, entry digest, principal,      what this principal allowed
                      for one session or always
    consent-items     server, entry digest                  the versions of items, and which of them
                                                            are approved
    consent-texts     server, entry digest, item, pin       the content of a version

A decision must not wait for the backend in the middle of a list, so this store answers from a copy
in memory:

    before a decision     The rows that it depends on are read again (`read`). So a change counts
                          everywhere from the next call on, even if its announcement was lost.
    a change              It is made in the copy, and then stored (`write`). If another process has
                          changed the row meanwhile, the change is repeated on what is there now.
    after a change        It is announced, so that other processes read the row and update lists.
    the backend is away   What was read before counts. What was never read is not known, so nothing
                          is allowed that depends on it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...aio import TaskSet
from ...databases import MEMORY
from ...errors import BackendAway, Overloaded
from ...logs import get_logger
from .sqlite_store import ITEM_KEY, SqliteConsentStore, insert_statement, where_equal
from .store import ConsentGrant, SeenItem

if TYPE_CHECKING:
    from ...backend.protocols import Rows

log = get_logger("gateway")

SESSION: Final = "gateway"
"""The session of all replicas."""
SHARED_SESSION_SECONDS: Final = 86_400.0
"""How long an answer for the session of a caller holds."""
MAX_ROWS: Final = 10_000
"""The number of rows of which a process keeps a copy."""
MAX_TRIES: Final = 16
"""How often a change is tried again if other processes change the same row."""
_decode_grants = msgspec.msgpack.Decoder(list[ConsentGrant]).decode
_decode_items = msgspec.msgpack.Decoder(list[SeenItem]).decode


class ConsentRow(Struct, frozen=True):
    """One row."""

    server: str
    digest: str
    principal: str | None = None
    """Who has allowed something; None for the items of a server."""
    for_session: bool = False
    """Whether what was allowed holds for a session."""

    @property
    def key(self) -> str:
        """The key in the backend, which does not reveal the principal."""
        return _key(self.server, self.digest, self.principal, self.for_session)


Change = Callable[["_Copy"], None]
"""A function that makes a change in the copy. It may be called again after the row was read."""


class SharedConsentStore:
    """Stores consent in a shared backend (`store.ConsentStore`).

    Args:
        make_rows: Returns the rows of a kind (`Backend.rows`).
        command: The options with which `dovetail consent` uses this store.
    """

    def __init__(self, make_rows: "Callable[..., Rows]", command: tuple[str, ...] = ()) -> None:
        self.command = command
        self._grants: Rows = make_rows("consent-grants", durable=True)
        self._items: Rows = make_rows("consent-items", durable=True)
        self._texts: Rows = make_rows("consent-texts", durable=True)
        self.announce: Callable[[ConsentRow], None] = lambda row: None
        """Tells other processes that a row has changed."""
        self.store_changes: Callable[[], None] = self._write_in_background
        """Called after a change was made in the copy."""
        self._copy = _Copy()
        self._known: OrderedDict[ConsentRow, bytes | None] = OrderedDict()
        """The data of the rows in the copy, without changes that are not stored yet. The longest
        unused come first."""
        self._changes: dict[ConsentRow, list[Change]] = {}
        """The changes that are not stored yet."""
        self._reads: dict[ConsentRow, list[asyncio.Task[None]]] = {}
        """For each row, the read that is under way, and the one that follows."""
        self._locks: WeakValueDictionary[ConsentRow, asyncio.Lock] = WeakValueDictionary()
        """Held while a row is read or stored."""
        self._background = TaskSet()
        self._writer: asyncio.Task[None] | None = None
        self._is_complete = False
        """Whether the copy contains all rows."""

    # reading

    async def read(self, *rows: ConsentRow) -> None:
        """Read rows again. If the backend is away, they stay as they are.

        Args:
            rows: The rows.
        """
        reads = []
        for row in rows:
            running = self._reads.setdefault(row, [])
            if len(running) < 2:  # the one under way may have begun before the last change
                before = running[-1] if running else None
                running.append(self._background.start(self._read(row, before)))
            reads.append(asyncio.shield(running[-1]))
        await asyncio.gather(*reads)

    async def _read(self, row: ConsentRow, before: "asyncio.Task[None] | None") -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            if self._changes.get(row):
                await self._store(row)
                return
            async with self._lock(row):
                self._load(row, await self._rows_of(row).get(row.key))
        except Overloaded:
            pass
        finally:
            running = self._reads[row]
            running.pop(0)
            if not running:
                del self._reads[row]

    async def read_all(self) -> None:
        """Read all rows, for a command that shows them.

        Raises:
            BackendAway: The backend is away.
        """
        for rows, decode in ((self._grants, _decode_grants), (self._items, _decode_items)):
            keys = await rows.keys()
            for data in await asyncio.gather(*map(rows.get, keys)):
                found: list[Any] = [] if data is None else _decode(decode, data)
                if found:
                    self._load(_row_of(found[0]), data)
        items = self._copy.find_items()
        keys = [_key(one.server, one.digest, one.item, one.pin) for one in items]
        texts = await asyncio.gather(*map(self._texts.get, keys))
        for one, text in zip(items, texts, strict=True):
            self._copy.set_text(one, (text or b"null").decode())
        self._is_complete = True

    def _load(self, row: ConsentRow, data: bytes | None) -> None:
        """Put a row into the copy, with the changes that are not stored yet."""
        if row not in self._known or self._known[row] != data or self._changes.get(row):
            self._copy.load(row, data)
            for change in self._changes.get(row, ()):
                change(self._copy)
        self._known[row] = data
        self._known.move_to_end(row)
        if len(self._known) > MAX_ROWS:
            oldest = next(iter(self._known))
            if not self._changes.get(oldest):
                del self._known[oldest]
                self._copy.load(oldest, None)

    def _lock(self, row: ConsentRow) -> asyncio.Lock:
        return self._locks.setdefault(row, asyncio.Lock())

    def _rows_of(self, row: ConsentRow) -> "Rows":
        return self._items if row.principal is None else self._grants

    def _require(self, row: ConsentRow) -> None:
        if row not in self._known and not self._is_complete:
            raise BackendAway(
                "The gateway cannot reach its shared state, so it does not know what was allowed. "
                "Try again later",
                data={"retryAfter": 1},
            )

    def _require_all(self, rows: dict[ConsentRow, list[Any]]) -> dict[ConsentRow, list[Any]]:
        for row in rows:
            self._require(row)
        return rows

    # writing

    def _change(self, row: ConsentRow, change: Change) -> None:
        before = self._copy.dump(row)
        change(self._copy)
        if self._copy.dump(row) != before:
            self._changes.setdefault(row, []).append(change)

    def _change_all(self, rows: dict[ConsentRow, list[Any]], change: Callable[..., None]) -> None:
        for row, found in rows.items():
            self._change(row, partial(change, found))
        if self._changes:
            self.store_changes()

    def _write_in_background(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = self._background.start(self._write_quietly())

    async def _write_quietly(self) -> None:
        try:
            while self._changes:
                await self.write()
        except Overloaded as problem:
            log.warning("What was allowed or listed could not be stored: %s", problem)

    async def write(self, *rows: ConsentRow) -> None:
        """Store changes. A grant that cannot be stored is taken back; what servers list is stored
        later.

        Args:
            rows: The rows that have changed (default: all).

        Raises:
            Overloaded: The backend is away, or others change a row all the time.
        """
        chosen = [row for row in rows or list(self._changes) if self._changes.get(row)]
        results = await asyncio.gather(*map(self._store, chosen), return_exceptions=True)
        for row, problem in zip(chosen, results, strict=True):
            if isinstance(problem, Overloaded) and row.principal is not None:
                self._changes.pop(row, None)
                self._copy.load(row, self._known.get(row))
        for problem in results:
            if problem is not None:
                raise problem

    async def _store(self, row: ConsentRow) -> None:
        async with self._lock(row):
            is_unreadable = False
            for _ in range(MAX_TRIES):
                old = await self._rows_of(row).get(row.key)
                self._load(row, old)
                changes, new = len(self._changes.get(row, ())), self._copy.dump(row)
                if new == (old or _EMPTY):
                    self._changes.pop(row, None)
                    return
                dropped = await self._store_texts(row, old)
                if await self._replace(row, old, new, is_unreadable):
                    break
                is_unreadable = old is None  # unless another process has just added it
            else:
                raise Overloaded("Too many processes change the same consent; try again")
            del self._changes[row][:changes]
            if not self._changes[row]:
                del self._changes[row]
            self._known[row] = new
        self.announce(row)
        await self._texts.delete(*dropped)

    async def _replace(
        self, row: ConsentRow, old: bytes | None, new: bytes, is_unreadable: bool
    ) -> bool:
        rows, life = self._rows_of(row), SHARED_SESSION_SECONDS if row.for_session else inf
        if old is not None:
            return await rows.change(row.key, old, new, 1.0 if new == _EMPTY else life)
        if not is_unreadable:
            return await rows.add(row.key, new, life)
        await rows.put(row.key, new, life)  # only an attacker could have written what is there
        return True

    async def _store_texts(self, row: ConsentRow, old: bytes | None) -> list[str]:
        """Store the contents of new versions. Return the keys of those that are dropped."""
        if row.principal is not None:
            return []
        before = {(one.item, one.pin) for one in _decode(_decode_items, old or _EMPTY)}
        now = self._copy.find_items(server=row.server, digest=row.digest)
        place = row.server, row.digest
        await asyncio.gather(
            *(
                self._texts.put(_key(*place, one.item, one.pin), one.content.encode(), inf)
                for one in now
                if (one.item, one.pin) not in before
            )
        )
        gone = before - {(one.item, one.pin) for one in now}
        return [_key(*place, *version) for version in gone]

    # what `ConsentStore` does

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

        Raises:
            BackendAway: They are not known.
        """
        if server is not None and digest is not None and principal is not None:
            for row in grant_rows(server, digest, principal):
                self._require(row)
        return self._copy.find_grants(
            server=server, digest=digest, kind=kind, name=name, principal=principal
        )

    def add_grant(self, grant: ConsentGrant) -> None:
        """Remember a grant.

        Args:
            grant: The grant.
        """
        self._change_all({_row_of(grant): [grant]}, _add_grants)

    def remove_grants(self, grants: Iterable[ConsentGrant]) -> None:
        """Forget grants.

        Args:
            grants: The grants.
        """
        self._change_all(_by_row(grants), lambda found, copy: copy.remove_grants(found))

    def end_session(self, session: str, principal: str | None = None) -> None:
        """Forget the grants of a session.

        Args:
            session: The session.
            principal: Whose grants to forget (default: none, because other replicas run on).
        """
        if principal is None:
            return
        entries = {(row.server, row.digest) for row in self._known}
        rows = [ConsentRow(*entry, principal, True) for entry in entries]
        for row in rows:
            self._copy.load(row, None)
            self._changes.pop(row, None)
        if rows:
            self._background.start(self._delete(*(row.key for row in rows)))

    async def _delete(self, *keys: str) -> None:
        try:
            await self._grants.delete(*keys)
        except BackendAway:
            pass  # they expire

    def find_items(
        self, *, server: str | None = None, digest: str | None = None, item: str | None = None
    ) -> list[SeenItem]:
        """Return the items that match. The latest version of each item comes last. Their contents
        are known only after `read_all`.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
            item: `tool:NAME`, `prompt:NAME` or `instructions`.

        Raises:
            BackendAway: They are not known.
        """
        if server is not None and digest is not None:
            self._require(ConsentRow(server, digest))
        return self._copy.find_items(server=server, digest=digest, item=item)

    def record_items(self, items: Iterable[SeenItem], *, approve_first: bool = False) -> None:
        """Remember what a server listed.

        Args:
            items: What the server listed.
            approve_first: Whether to approve it if nothing is known of the server yet. If another
                process was the first, that is known only after the change was stored.
        """
        rows = self._require_all(_by_row(items))
        self._change_all(
            rows, lambda found, copy: copy.record_items(found, approve_first=approve_first)
        )

    def approve_items(self, items: Iterable[SeenItem], *, only: bool = False) -> None:
        """Approve versions of items.

        Args:
            items: The versions to approve.
            only: Whether to drop all other versions of these items.
        """
        rows = self._require_all(_by_row(items))
        self._change_all(rows, lambda found, copy: copy.approve_items(found, only=only))

    def remove_items(self, items: Iterable[SeenItem]) -> None:
        """Forget versions of items.

        Args:
            items: The versions to forget.
        """
        self._change_all(_by_row(items), lambda found, copy: copy.remove_items(found))

    async def finish(self) -> None:
        """Wait until all changes are stored, if the backend is there."""
        await self._background.wait()

    def close(self) -> None:
        """Forget the copy."""
        self._copy.close()
        self._known.clear()
        self._changes.clear()
        self._is_complete = False


class _Copy(SqliteConsentStore):
    """The rows that a process has read, and a clock that is never behind them."""

    def __init__(self) -> None:
        super().__init__(MEMORY, now=lambda: max(time.time(), self._newest))
        self._newest = 0.0

    def load(self, row: ConsentRow, data: bytes | None) -> None:
        """Replace a row."""
        table, type_ = ("items", SeenItem) if row.principal is None else ("grants", ConsentGrant)
        decode: Any = _decode_items if row.principal is None else _decode_grants
        found: list[Any] = _decode(decode, data or _EMPTY)
        values = {"server": row.server, "digest": row.digest, "principal": row.principal}
        where = "server = :server AND digest = :digest"
        if row.principal is not None:
            is_session = "session != ''" if row.for_session else "session = ''"
            where += f" AND principal = :principal AND {is_session}"
        with self._writing() as connection:
            connection.execute(f"DELETE FROM {table} WHERE {where}", values)
            for one in found:
                fields = {name: getattr(one, name) for name in type_.__struct_fields__}
                connection.execute(
                    insert_statement(f"INSERT OR REPLACE INTO {table}", fields), fields
                )
                stamps = [fields.get(name) or 0.0 for name in ("created", "seen", "approved")]
                self._newest = max(self._newest, *stamps)

    def dump(self, row: ConsentRow) -> bytes:
        """Return the data of a row."""
        if row.principal is None:
            items = self.find_items(server=row.server, digest=row.digest)
            return msgspec.msgpack.encode([replace(one, content="") for one in items])
        grants = self.find_grants(server=row.server, digest=row.digest, principal=row.principal)
        kept = [one for one in grants if bool(one.session) == row.for_session]
        return msgspec.msgpack.encode(kept)

    def set_text(self, item: SeenItem, text: str) -> None:
        """Complete a version whose content was not known."""
        fields = {"content": text, **{name: getattr(item, name) for name in ITEM_KEY}}
        with self._writing() as connection:
            connection.execute(
                f"UPDATE items SET content = :content WHERE {where_equal(ITEM_KEY)}", fields
            )


_EMPTY: Final = msgspec.msgpack.encode([])


def grant_rows(server: str, digest: str, principal: str) -> tuple[ConsentRow, ConsentRow]:
    """Return the rows with what a principal allowed at a server.

    Args:
        server: The name of the server in the configuration.
        digest: The digest of its entry.
        principal: Who allowed it.
    """
    return ConsentRow(server, digest, principal), ConsentRow(server, digest, principal, True)


def _add_grants(grants: list[ConsentGrant], copy: "_Copy") -> None:
    for grant in grants:
        copy.add_grant(grant)


def _row_of(one: ConsentGrant | SeenItem) -> ConsentRow:
    if isinstance(one, SeenItem):
        return ConsentRow(one.server, one.digest)
    return ConsentRow(one.server, one.digest, one.principal, bool(one.session))


def _by_row(found: Iterable[Any]) -> dict[ConsentRow, list[Any]]:
    rows: dict[ConsentRow, list[Any]] = {}
    for one in found:
        rows.setdefault(_row_of(one), []).append(one)
    return rows


def _key(*parts: Any) -> str:
    return sha256(msgspec.msgpack.encode(parts)).hexdigest()


def _decode(decode: Callable[[bytes], list[Any]], data: bytes) -> list[Any]:
    """Return what a row contains. Another version of Dovetail may have written it."""
    try:
        return decode(data)
    except msgspec.MsgspecError:
        log.warning(
            "Ignoring consent in the backend that cannot be decoded. Another version of Dovetail "
            "may have written it"
        )
        return []
