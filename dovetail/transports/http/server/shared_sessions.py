"""What the processes of a server know about their sessions, in a shared backend.

A process reads the record of a session once, at its first request, and then follows the bus.
It writes in the background: that sessions are in use, and the settings that their clients change. A
change is announced after it is stored, so a process that misses the announcement finds it stored.
The end of a session is stored before its client is told.

While the backend is away, this process goes on with what it knows. It keeps the ends and changes of
sessions, and stores them when the backend is back.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ....errors import BackendAway
from ....limits import Limits

if TYPE_CHECKING:
    from ....backend.protocols import SessionRecords

CLOCK_MARGIN_SECONDS = 60.0
"""How long the end of a session is kept after its id has expired, because clocks differ."""


class SharedSessions:
    """The sessions of this process in a shared backend.

    Args:
        records: The records in the backend.
        limits: The limits of the server.
    """

    def __init__(self, records: "SessionRecords", limits: Limits) -> None:
        self._records, self._limits = records, limits
        # A use is reported only every quarter of this time.
        self._idle = limits.session_idle * 1.25
        self._used: set[str] = set()
        """The sessions whose use is not stored yet."""
        self._changes: dict[str, dict[str, bytes | None]] = {}
        """The settings that are not stored yet, by session."""
        self._in_flight: dict[str, dict[str, bytes | None]] = {}
        """The settings that are being stored."""
        self._ended: dict[str, float] = {}
        """The ended sessions that are not stored yet, and when their ids expire (`time.time()`)."""
        self._announcements: list[Callable[[], None]] = []
        self._writing: asyncio.Task[None] | None = None

    async def load(
        self, key: str, expires: float, *, in_use: bool = False
    ) -> dict[str, bytes | None] | None:
        """Return the settings of a session that is new to this process, or None if it has ended.
        None as a value means that the setting was removed.

        Args:
            key: The key of the session.
            expires: When its id expires (`time.time()`).
            in_use: Whether this process knows that the session was used lately. The backend may not
                know it, because it has lost its data.

        Raises:
            BackendAway: The backend is away.
        """
        started = expires if in_use else expires - self._limits.session_life
        settings = await self._records.load(key, started, self._idle)
        if settings is None:
            return None
        return {**settings, **self._in_flight.get(key, {}), **self._changes.get(key, {})}

    async def end(self, key: str, expires: float) -> None:
        """Store the end of a session.

        Raises:
            BackendAway: The backend is away. The end is stored when it is back.
        """
        try:
            await self._store_end(key, expires)
        except BackendAway:
            self._ended[key] = expires
            raise

    def mark_used(self, key: str) -> None:
        """Store soon that a session is in use."""
        self._used.add(key)
        self.write()

    def change(self, key: str, name: str, data: bytes | None, announce: Callable[[], None]) -> None:
        """Store a setting of a session soon, and announce it afterwards. None deletes it."""
        if key in self._changes or len(self._changes) < self._limits.sessions:
            self._changes.setdefault(key, {})[name] = data
        self._announcements.append(announce)
        self.write()

    def write(self) -> None:
        """Store soon what is not stored yet."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Store what is not stored yet."""
        self.write()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        """Store everything, until nothing is left or the backend is away."""
        is_away = False
        while not is_away and (self._used or self._changes or self._ended or self._announcements):
            used, self._used = self._used, set()
            changes = self._in_flight = self._changes
            self._changes = {}
            ended, self._ended = self._ended, {}
            announcements, self._announcements = self._announcements, []
            is_stored = await asyncio.gather(
                *(_try(self._records.change(key, new, self._idle)) for key, new in changes.items()),
                *(_try(self._store_end(key, expires)) for key, expires in ended.items()),
                _try(self._records.mark_used(used, self._idle)),
            )
            self._in_flight = {}
            for announce in announcements:
                announce()
            is_away = not all(is_stored)
            for key, stored in zip([*changes, *ended], is_stored, strict=False):
                if stored:
                    continue
                if key in changes:  # later changes override it
                    self._changes[key] = {**changes[key], **self._changes.get(key, {})}
                if key in ended:
                    self._ended[key] = ended[key]

    async def _store_end(self, key: str, expires: float) -> None:
        life = expires - time.time() + CLOCK_MARGIN_SECONDS
        if life > 0:
            await self._records.end(key, life)


async def _try(write: Coroutine[Any, Any, None]) -> bool:
    """Return whether something could be stored."""
    try:
        await write
    except BackendAway:
        return False
    return True
