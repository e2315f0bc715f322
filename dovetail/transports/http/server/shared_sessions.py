"""What the processes of a server know about their sessions, in a shared backend.

A process reads the record of a session once, at its first request, and then follows the bus.
It writes in the background: that sessions are in use, and the settings that their clients change. A
change is announced after it is stored, so a process that misses the announcement finds it stored.
The end of a session is stored before its client is told.

While the backend is away, this process goes on with what it knows. It keeps the ends and changes of
sessions, and stores them when the backend is back. Then it announces them, because the other
processes may never have been away, or may have read the record earlier.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ....errors import BackendAway
from ....limits import Limits
from ....ports import Bus

if TYPE_CHECKING:
    from ....backend.protocols import SessionRecords

CLOCK_MARGIN_SECONDS = 60.0
"""How long the end of a session is kept after its id has expired, because clocks differ."""
RETRY_SECONDS = 1.0
"""The pause after something could not be stored although the bus works."""


class SharedSessions:
    """The sessions of this process in a shared backend.

    Args:
        records: The records in the backend.
        limits: The limits of the server.
        bus: The bus to the other processes.
    """

    def __init__(self, records: "SessionRecords", limits: Limits, bus: Bus) -> None:
        self._records, self._limits, self._bus = records, limits, bus
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
        """What to announce when it is stored and the bus works."""
        self._writing: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closing = False

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
        """Store the end of a session, and announce it.

        Raises:
            BackendAway: The backend is away. The end is stored and announced again when it is back.
        """
        try:
            await self._store_end(key, expires)
        except (BackendAway, asyncio.CancelledError):  # or the client left
            self._ended[key] = expires
            self._bus.publish("session/ended", key)
            self._retry_later()
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
        self._closing = True
        if self._retry is not None:
            self._retry.cancel()
        self.write()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        """Store and announce everything, until nothing is left or the backend is away."""
        is_away = False
        while not is_away and self._has_work:
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
            is_away = not all(is_stored)
            if is_away or self._bus.alone:
                kept = [*announcements, *self._announcements]
                self._announcements = kept[-self._limits.tombstones :]
            else:
                for announce in announcements:
                    announce()
            for key, stored in zip([*changes, *ended], is_stored, strict=False):
                if stored:
                    continue
                if key in changes:  # later changes override it
                    self._changes[key] = {**changes[key], **self._changes.get(key, {})}
                if key in ended:
                    self._ended[key] = ended[key]
        if is_away:
            self._retry_later()

    @property
    def _has_work(self) -> bool:
        if self._used or self._changes or self._ended:
            return True
        return bool(self._announcements) and not self._bus.alone

    def _retry_later(self) -> None:
        """Try again soon. If the bus is away, too, its return is the time to try again."""
        if self._retry is None and not self._bus.alone and not self._closing:
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self.write()

    async def _store_end(self, key: str, expires: float) -> None:
        life = expires - time.time() + CLOCK_MARGIN_SECONDS
        if life > 0:
            await self._records.end(key, life)
        self._announcements.append(partial(self._bus.publish, "session/ended", key))
        self.write()


async def _try(write: Coroutine[Any, Any, None]) -> bool:
    """Return whether something could be stored."""
    try:
        await write
    except BackendAway:
        return False
    return True
