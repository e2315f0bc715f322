"""The tokens with which a gateway uses servers on behalf of its users.

Each user has one record for each server (`auth/client/store.py`). A record belongs to one user, one
entry and one URL, and is sealed for exactly these: the record of another user, or of another entry
with the same name, cannot be opened in its place. The client's registration at an authorization
server belongs to the entry, so the gateway registers once and not once for each user.

All workers use the same file, and all replicas the same backend. A row is also the lock for a
renewal, because a refresh token may be used only once.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import msgspec

from ...aio import backoff
from ...auth.client.store import ClientRegistration, TokenSet, read_record
from ...auth.provider.storage import Storage, row_key
from ...errors import Overloaded, TimedOut
from ...logs import get_logger
from ...sealing import Forged, KeyRing

if TYPE_CHECKING:
    from ...backend.protocols import Rows

log = get_logger("gateway")

TOKEN_SECONDS: Final = 180 * 86400.0
"""How long tokens that are neither used nor renewed are kept."""
LOCK_SECONDS: Final = 10.0
"""How long a lock holds if its process dies. While the process lives, it extends the lock."""
LOCK_WAIT_SECONDS: Final = 30.0
LOCK_RETRY_SECONDS: Final = (0.005, 0.1)
_PURPOSE: Final = "user tokens"
_decode_registrations = msgspec.json.Decoder(dict[str, ClientRegistration]).decode


class UserTokens:
    """The tokens of all users.

    Args:
        storage: Where they are stored, or a function that returns that when it is first used.
        ring: Returns the keys that seal them.
    """

    def __init__(
        self, storage: Storage | Callable[[], Storage], ring: Callable[[], KeyRing]
    ) -> None:
        self._find_storage, self._make_ring = storage, ring
        self.now: Callable[[], float] = time.time

    @cached_property
    def storage(self) -> Storage:
        """Where the rows are."""
        found = self._find_storage
        return found() if callable(found) else found

    @cached_property
    def ring(self) -> KeyRing:
        """The keys."""
        return self._make_ring()

    def store(self, user: str, server: str, digest: str) -> "UserTokenStore":
        """Return the store for the record of one user and one server.

        Args:
            user: The id of the user.
            server: The name of the server.
            digest: The digest of its entry.
        """
        return UserTokenStore(self, user, server, digest)

    async def load(self, *parts: str) -> bytes | None:
        """Return a row, or None if there is none that can be opened."""
        row = await self.storage.get(row_key("token", *parts))
        if row is None:
            return None
        try:
            return self.ring.open(_PURPOSE, row.decode("ascii"), bound=_bound(parts))
        except (Forged, UnicodeDecodeError):  # the keys have changed
            return None

    async def save(self, data: bytes, *parts: str, life: float = TOKEN_SECONDS) -> None:
        """Replace a row."""
        key, expires = row_key("token", *parts), self.now() + life
        new = self.ring.seal(_PURPOSE, data, bound=_bound(parts)).encode()
        old = await self.storage.get(key)
        if old is not None and await self.storage.change(key, old, new, expires):
            return
        await self.storage.delete(key)
        await self.storage.add(key, new, expires)

    async def delete(self, *parts: str) -> None:
        """Delete a row."""
        await self.storage.delete(row_key("token", *parts))

    @asynccontextmanager
    async def lock(self, *parts: str) -> AsyncIterator[None]:
        """Hold the lock for a row, which all tasks and processes share.

        Raises:
            TimedOut: The lock was not released in time.
        """
        key, owner = row_key("lock", *parts), token_hex(8).encode()
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        for attempt in count():
            if await self.storage.add(key, owner, self.now() + LOCK_SECONDS):
                break
            if time.monotonic() > deadline:
                raise TimedOut("Another call has been renewing these tokens for too long")
            await asyncio.sleep(backoff(attempt, *LOCK_RETRY_SECONDS))
        extending = asyncio.create_task(self._extend_lock(key, owner))
        try:
            yield
        finally:
            extending.cancel()
            with suppress(Overloaded):  # it expires soon anyway
                # By now, it may be the lock of another task.
                await self.storage.change(key, owner, b"", self.now())

    async def _extend_lock(self, key: str, owner: bytes) -> None:
        is_held = True
        while is_held:
            await asyncio.sleep(LOCK_SECONDS / 4)
            expires = self.now() + LOCK_SECONDS
            try:
                is_held = await self.storage.change(key, owner, owner, expires)
            except Overloaded as problem:  # it may work the next time
                log.warning("The lock for the tokens of a user was not extended: %s", problem)


class RowStorage:
    """The rows of a shared backend as a `Storage`. There are no parents.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: "Rows") -> None:
        self._rows = rows

    async def get(self, key: str) -> bytes | None:
        """Return the data of a row, or None."""
        return await self._rows.get(key)

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        """Add a row. Returns False if it exists."""
        assert parent is None
        return await self._rows.add(key, data, _life(expires))

    async def change(self, key: str, old: bytes, new: bytes, expires: float) -> bool:
        """Replace the data of a row. Returns False if the data is not `old`."""
        return await self._rows.change(key, old, new, _life(expires))

    async def take(self, key: str) -> bytes | None:
        """Delete a row and return its data."""
        return await self._rows.take(key)

    async def delete(self, key: str) -> None:
        """Delete a row."""
        await self._rows.delete(key)


def _life(expires: float) -> float:
    """Return how long a row lives. The time was computed a moment ago, by the same clock."""
    return max(0.0, expires - time.time())


class UserTokenStore:
    """The record of one user and one server (`auth.client.store.Store`)."""

    def __init__(self, tokens: UserTokens, user: str, server: str, digest: str) -> None:
        self._tokens, self._entry = tokens, (server, digest)
        self._user = user

    async def find(self, key: str) -> TokenSet | None:
        """Return the tokens, or None if the user has to log in.

        Args:
            key: The URL of the server.
        """
        data = await self._tokens.load(*self._parts(key))
        return read_record(data).tokens

    async def load(self, key: str) -> bytes | None:
        """Return the record, with the registrations of all users.

        Args:
            key: The URL of the server.
        """
        record = read_record(await self._tokens.load(*self._parts(key)))
        shared = await self._tokens.load("", *self._entry, key)
        if shared is not None:
            record.registrations = _decode_registrations(shared)
        return record.encode()

    async def save(self, key: str, data: bytes) -> None:
        """Store the record.

        Args:
            key: The URL of the server.
            data: The record.
        """
        registrations = msgspec.json.encode(read_record(data).registrations)
        if registrations != await self._tokens.load("", *self._entry, key):
            await self._tokens.save(registrations, "", *self._entry, key)
        await self._tokens.save(data, *self._parts(key))

    async def delete(self, key: str) -> None:
        """Delete the record.

        Args:
            key: The URL of the server.
        """
        await self._tokens.delete(*self._parts(key))

    async def keys(self) -> list[str]:
        """Return nothing: the keys are digests."""
        return []

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Hold the lock for the record.

        Args:
            key: The URL of the server, with an optional suffix.
        """
        if key.endswith("#login"):  # a user may start again while an earlier attempt is open
            yield
            return
        async with self._tokens.lock(*self._parts(key)):
            yield

    def _parts(self, key: str) -> tuple[str, ...]:
        return f"user {self._user}", *self._entry, key


def _bound(parts: tuple[str, ...]) -> bytes:
    return msgspec.msgpack.encode(parts)
