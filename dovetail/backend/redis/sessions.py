"""Sessions that many processes serve.

    ended:KEY     the mark of a session that was ended; it lives until the session's id expires
    seen:KEY      the mark of a session that was used lately
    settings:KEY  the settings of a session, each sealed for its key and name

The marks hold nothing, so they are not sealed. Somebody who can write to Redis can therefore end
sessions, and use an ended session again if they also have its id.
"""

from collections.abc import Collection, Mapping

from ...sealing import KeyRing
from ..protocols import SessionRecords
from .client import Command, RedisClient
from .scripts import CHANGE_SESSION, LOAD_SESSION, Argument, milliseconds
from .sealed import SealedValues

MAX_PIPELINE = 500
"""The number of commands that are sent together."""


class RedisSessions(SessionRecords):
    """The sessions of a server in Redis.

    Args:
        client: The connections.
        ring: The keys that seal the settings.
        prefix: What all keys of this server begin with.
    """

    def __init__(self, client: RedisClient, ring: KeyRing, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._values = SealedValues(ring, "backend session")

    async def load(self, key: str, started: float, idle: float) -> dict[str, bytes] | None:
        settings = self._key("settings", key)
        keys = [self._key("ended", key), self._key("seen", key), settings]
        life = milliseconds(idle)
        reply = await self._client.run_script(LOAD_SESSION, keys, life, milliseconds(started))
        if reply is None:
            return None
        found = {}
        for name, sealed in zip(reply[::2], reply[1::2], strict=True):
            field = name.decode(errors="replace")
            data = self._values.open(_place(settings, field), sealed)
            if data is not None:
                found[field] = data
        return found

    async def mark_used(self, keys: Collection[str], idle: float) -> None:
        life = milliseconds(idle)
        commands: list[Command] = []
        for key in keys:
            commands.append(("SET", self._key("seen", key), "", "PX", life))
            commands.append(("PEXPIRE", self._key("settings", key), life))
        for start in range(0, len(commands), MAX_PIPELINE):
            await self._client.pipeline(commands[start : start + MAX_PIPELINE])

    async def change(self, key: str, settings: Mapping[str, bytes | None], idle: float) -> None:
        full = self._key("settings", key)
        values: list[Argument] = []
        for name, data in settings.items():
            values += name, b"" if data is None else self._values.seal(_place(full, name), data)
        await self._client.run_script(CHANGE_SESSION, [full], milliseconds(idle), *values)

    async def end(self, key: str, life: float) -> None:
        await self._client.pipeline(
            [
                ("SET", self._key("ended", key), "", "PX", milliseconds(life)),
                ("UNLINK", self._key("seen", key), self._key("settings", key)),
            ],
            durable=True,
        )

    def _key(self, kind: str, key: str) -> str:
        return f"{self._prefix}{kind}:{key}"


def _place(key: str, name: str) -> str:
    return f"{key} {name}"
