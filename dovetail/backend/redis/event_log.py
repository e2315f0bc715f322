"""The messages of event streams that wait for a client: one Redis stream for each.

The id of an entry is `0-NUMBER`. Redis bounds a stream by its number of entries, not by its size,
so a script counts the bytes. Each message is sealed for its log and number.
"""

from collections.abc import Sequence

from ...sealing import KeyRing
from ..protocols import EventLog
from .client import Command, RedisClient
from .scripts import APPEND_EVENTS, Argument, milliseconds
from .sealed import SealedValues

MAX_SCRIPT_BYTES = 1024 * 1024
"""The size of the messages that one script appends, because Redis does nothing else meanwhile. A
longer message is appended alone."""
MAX_NUMBER = 2**53
"""The numbers that Lua counts exactly."""


class RedisEventLog(EventLog):
    """The logs of a server in Redis.

    Args:
        client: The connections.
        ring: The keys that seal the messages.
        prefix: What the key of each log begins with.
    """

    def __init__(self, client: RedisClient, ring: KeyRing, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._values = SealedValues(ring, "backend event")

    async def append(
        self, key: str, messages: Sequence[tuple[int, bytes]], bound: int, life: float
    ) -> None:
        full = self._prefix + key
        commands: list[Command] = []
        arguments: list[Argument] = []
        size = 0
        for number, data in messages:
            sealed = self._values.seal(_place(full, number), data)
            if arguments and size + len(sealed) > MAX_SCRIPT_BYTES:
                commands.append(APPEND_EVENTS.call([full], bound, milliseconds(life), *arguments))
                arguments, size = [], 0
            arguments += number, len(data), sealed
            size += len(sealed)
        commands.append(APPEND_EVENTS.call([full], bound, milliseconds(life), *arguments))
        await self._client.pipeline(commands)

    async def read(self, key: str, after: int) -> list[tuple[int, bytes]] | None:
        if not 0 <= after < MAX_NUMBER:
            return None
        full = self._prefix + key
        last, entries = await self._client.pipeline(
            [
                ("XREVRANGE", full, "+", "-", "COUNT", 1),
                ("XRANGE", full, f"(0-{after}", "+"),
            ]
        )
        if not entries and (not last or last[0][0] != b"0-%d" % after):
            return None
        found: list[tuple[int, bytes]] = []
        for number, (id, fields) in enumerate(entries, after + 1):
            data = self._values.open(_place(full, number), fields[1])
            if id != b"0-%d" % number or data is None:
                return None
            found.append((number, data))
        return found

    async def delete(self, *keys: str) -> None:
        if keys:
            await self._client.run("UNLINK", *(self._prefix + key for key in keys))


def _place(key: str, number: int) -> str:
    return f"{key} {number}"
