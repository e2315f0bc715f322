"""Responses that clients share, in Redis.

An entry is a string that expires. It is sealed for its key, together with the version of its group.
Its key is a digest that depends on the first of the keys, so after a rotation the cache is empty.
The version of a group is a random value, not a counter: a counter that is lost would start again,
and bring back entries that were dropped.
"""

from secrets import token_bytes

import msgspec

from ...sealing import KeyRing
from ..protocols import CachedEntry, CacheEntries
from .client import RedisClient
from .scripts import milliseconds
from .sealed import SealedValues

VERSION_SECONDS = 2 * 86400
"""How long a version is kept; longer than any entry lives."""

_decode = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


class RedisCacheEntries(CacheEntries):
    """Responses of all servers.

    Args:
        client: The connections.
        ring: The keys that seal the entries.
        prefix: What all keys begin with.
    """

    def __init__(self, client: RedisClient, ring: KeyRing, prefix: str) -> None:
        self._client, self._ring, self._prefix = client, ring, prefix
        self._values = SealedValues(ring, "cached response")

    async def version(self, group: str) -> bytes:
        found: bytes | None = await self._client.run("GET", self._version(group))
        return found or b""

    async def read(self, group: str, *keys: str) -> tuple[bytes, list[CachedEntry | None]]:
        places = [self._place(group, key) for key in keys]
        found, *lives = await self._client.pipeline(
            [("MGET", self._version(group), *places), *(("PTTL", place) for place in places)]
        )
        version = found[0] or b""
        entries: list[CachedEntry | None] = []
        for place, sealed, life in zip(places, found[1:], lives, strict=True):
            data = self._values.open(place, sealed)
            written, content = (b"", b"") if data is None else _decode(data)
            is_current = data is not None and written == version and life > 0
            entries.append(CachedEntry(content, life / 1000) if is_current else None)
        return version, entries

    async def write(self, group: str, key: str, data: bytes, life: float, version: bytes) -> None:
        place = self._place(group, key)
        sealed = self._values.seal(place, msgspec.msgpack.encode((version, data)))
        await self._client.run("SET", place, sealed, "PX", milliseconds(life))

    async def delete(self, group: str, *keys: str) -> None:
        await self._client.run("UNLINK", *(self._place(group, key) for key in keys))

    async def drop(self, group: str) -> tuple[bytes, bytes]:
        version = token_bytes(16)
        before: bytes | None = await self._client.run(
            "SET", self._version(group), version, "EX", VERSION_SECONDS, "GET"
        )
        return before or b"", version

    def _version(self, group: str) -> str:
        return f"{self._prefix}cache-version:{group}"

    def _place(self, group: str, key: str) -> str:
        # A key may be made from secrets that somebody could guess, such as a password.
        name = self._ring.digest("cached response", key.encode())
        return f"{self._prefix}cache:{group}:{name}"
