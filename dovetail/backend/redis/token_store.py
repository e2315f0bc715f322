"""The logins of clients (`auth.client.store.Store`) in Redis.

The logins of a user are one hash, with a field for each server. Its names are digests, and a value
is sealed for its user and server. Logins do not expire.

A lock is a key with the token of its holder. The holder renews it, so it ends a few seconds after a
process that was killed. If Redis is away for longer than that, or loses the key, two processes may
hold the lock. Then both may renew the same tokens, as two programs would that share no store.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from secrets import token_hex

import msgspec

from ...aio import TaskSet
from ...auth.client.store import Store, poll_lock
from ...errors import BackendAway, ConfigError
from ...logs import get_logger
from ...sealing import KeyRing
from .client import RedisClient
from .scripts import KEEP_LOCK, milliseconds
from .sealed import SealedValues

LOCK_SECONDS = 15.0
"""How long a lock holds after its holder was killed."""
LONGEST_PAUSE_SECONDS = 0.5
"""The longest pause between attempts to acquire a lock."""

log = get_logger("backend")
_decode = msgspec.msgpack.Decoder(tuple[str, bytes]).decode
_renewals = TaskSet()


class RedisTokenStore(Store):
    """Stores the logins of one user.

    Args:
        client: The connections.
        ring: The keys that seal the logins.
        prefix: What all keys begin with.
        user: Whose logins these are.
    """

    def __init__(self, client: RedisClient, ring: KeyRing, prefix: str, user: str) -> None:
        self._client, self._user = client, user
        self._hash = f"{prefix}tokens:{_digest(user)}"
        self._lock_prefix = f"{prefix}token-lock:"
        self._values = SealedValues(ring, "client tokens")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._client.address)!r})"

    async def load(self, key: str) -> bytes | None:
        with self._explain_errors():
            found = await self._client.run("HGET", self._hash, _digest(key))
        data = self._values.open(self._place(_digest(key)), found)
        return None if data is None else _decode(data)[1]

    async def save(self, key: str, data: bytes) -> None:
        field = _digest(key)
        sealed = self._values.seal(self._place(field), msgspec.msgpack.encode((key, data)))
        with self._explain_errors():
            await self._client.run("HSET", self._hash, field, sealed, durable=True)

    async def delete(self, key: str) -> None:
        with self._explain_errors():
            await self._client.run("HDEL", self._hash, _digest(key), durable=True)

    async def keys(self) -> list[str]:
        with self._explain_errors():
            reply = await self._client.run("HGETALL", self._hash)
        fields, values = reply[::2], reply[1::2]
        opened = [
            self._values.open(self._place(field.decode(errors="replace")), value)
            for field, value in zip(fields, values, strict=True)
        ]
        return sorted(_decode(data)[0] for data in opened if data is not None)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        name, token = self._lock_prefix + _digest(self._user, key), token_hex(16)
        try:
            with self._explain_errors():
                await poll_lock(lambda: self._acquire(name, token), key, LONGEST_PAUSE_SECONDS)
            renewing = _renewals.start(self._renew(name, token))
            try:
                yield
            finally:
                renewing.cancel()
        finally:
            # An attempt that was cancelled may have succeeded.
            with suppress(BackendAway):
                await self._client.run_script(KEEP_LOCK, [name], token, 0)

    async def _acquire(self, name: str, token: str) -> bool:
        return (
            await self._client.run("SET", name, token, "NX", "PX", milliseconds(LOCK_SECONDS))
            is not None
        )

    async def _renew(self, name: str, token: str) -> None:
        is_held = True
        while is_held:
            await asyncio.sleep(LOCK_SECONDS / 4)
            with suppress(BackendAway):  # it may work the next time
                life = milliseconds(LOCK_SECONDS)
                is_held = await self._client.run_script(KEEP_LOCK, [name], token, life) == 1
        log.warning("A lock for the tokens of a client was lost. Another process may renew them")

    def _place(self, field: str) -> str:
        return f"{self._hash} {field}"

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except BackendAway:
            raise ConfigError(
                f"Cannot read or store logins: Redis at {self._client.address} cannot be reached. "
                "Check it with: dovetail backend check"
            ) from None


def _digest(*parts: str) -> str:
    return sha256(msgspec.json.encode(parts)).hexdigest()
