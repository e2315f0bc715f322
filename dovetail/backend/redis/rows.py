"""Rows in Redis: one string for each row, sealed, with an expiry time.

A row is sealed for its full key, so a value that somebody moves to another key, changes or makes up
does not open. Such a row counts as missing, except that `add` does not replace it. Anyone who can
write to Redis can delete a row or put an old value of the same row back.
"""

from functools import partial
from math import inf

from ...sealing import KeyRing
from ..protocols import Rows
from .client import RedisClient
from .scripts import CHANGE_ROW, milliseconds
from .sealed import SealedValues

SCAN_COUNT = 1000
"""How many keys Redis looks at in one command."""


class RedisRows(Rows):
    """Rows of one kind.

    Args:
        client: The connections.
        ring: The keys that seal the rows.
        prefix: What the key of each row begins with.
        durable: Whether each write waits for the replicas that the URL demands (`?wait=N`).
    """

    def __init__(
        self, client: RedisClient, ring: KeyRing, prefix: str, *, durable: bool = False
    ) -> None:
        self._client, self._prefix, self._durable = client, prefix, durable
        self._values = SealedValues(ring, "backend row")

    async def get(self, key: str) -> bytes | None:
        full = self._prefix + key
        return self._values.open(full, await self._client.run("GET", full))

    async def put(self, key: str, data: bytes, life: float) -> None:
        await self._write(key, data, life)

    async def add(self, key: str, data: bytes, life: float) -> bool:
        return await self._write(key, data, life, "NX") is not None

    async def change(self, key: str, old: bytes, new: bytes, life: float) -> bool:
        full = self._prefix + key

        async def replace(found: bytes, sealed: bytes) -> bool:
            arguments = found, sealed, milliseconds(life)
            reply: int = await self._client.run_script(
                CHANGE_ROW, [full], *arguments, durable=self._durable
            )
            return reply == 1

        read = partial(self._client.run, "GET", full)
        return await self._values.change(full, old, new, read, replace)

    async def take(self, key: str) -> bytes | None:
        full = self._prefix + key
        return self._values.open(
            full, await self._client.run("GETDEL", full, durable=self._durable)
        )

    async def delete(self, *keys: str) -> None:
        if keys:
            full = [self._prefix + key for key in keys]
            await self._client.run("UNLINK", *full, durable=self._durable)

    async def keys(self) -> list[str]:
        found: dict[str, None] = {}  # SCAN may return a key twice
        cursor = b"0"
        while True:
            cursor, page = await self._client.run(
                *("SCAN", cursor, "MATCH", f"{self._prefix}*", "COUNT", SCAN_COUNT)
            )
            found |= dict.fromkeys(one.decode()[len(self._prefix) :] for one in page)
            if cursor == b"0":
                return list(found)

    async def _write(self, key: str, data: bytes, life: float, *condition: str) -> bytes | None:
        full = self._prefix + key
        sealed = self._values.seal(full, data)
        expiry = () if life == inf else ("PX", milliseconds(life))
        reply: bytes | None = await self._client.run(
            *("SET", full, sealed, *expiry, *condition), durable=self._durable
        )
        return reply
