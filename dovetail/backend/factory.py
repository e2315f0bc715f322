"""`Backend`: from a URL to the implementations of the protocols."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from ..errors import BackendAway, ConfigError, missing_extra
from ..limits import DEFAULT, Limits
from ..ports import WORKER_VARIABLE, Bus
from ..sealing import GENERATE_KEY, KEYS_VARIABLE, Key, KeyRing, key_ring
from .protocols import BackendState, CacheEntries, Counters, EventLog, Rows, SessionRecords

if TYPE_CHECKING:
    from ..auth.client.store import Store
    from ..auth.provider.attempts import LoginAttempts
    from ..auth.provider.storage import Storage
    from ..connection.instrumentation import Attributes
    from ..extensions.tasks.store import TaskStore
    from .redis.bus import RedisBus

T = TypeVar("T")

CONNECT_SECONDS = 3.0
"""How long a process tries to reach the backend when it starts."""


def prefix_of(name: str) -> str:
    """Return what all keys and channels of a server begin with. The prefix contains one hash tag.
    The ACL of the server is `~{dovetail:NAME}:*`, so NAME has no wildcards."""
    return f"{{dovetail:{quote(name, safe='')}}}:"


class Backend:
    """A shared backend, which makes the processes that use it act as one server.

    Creating it does not connect. All values are encrypted with the keys, so every process needs the
    same keys.

    Args:
        url: `redis://host:6379/0`, `rediss://…` for TLS, or
            `redis+sentinel://host:26379,…/master`. `?wait=N` makes important writes wait until N
            replicas have them.
        name: The name of the server. Servers with different names share nothing (default:
            "default").
        keys: The keys, of which the first encrypts and all decrypt (default: those in
            `DOVETAIL_KEYS`).
        limits: The limits. `backend_timeout` is the deadline of a command.

    Raises:
        ConfigError: The URL is not valid, there are no keys, or the extra `redis` is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "default",
        keys: Sequence[Key] | KeyRing | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        from .redis.address import parse_address

        address = parse_address(url)
        self.ring = keys if isinstance(keys, KeyRing) else key_ring(keys)
        """The keys that seal all values."""
        if self.ring.origin == "process":
            raise ConfigError(
                "A shared backend needs keys that all processes have in common. Set "
                f"{KEYS_VARIABLE} to the same value everywhere, or pass keys=. {GENERATE_KEY}"
            )
        try:
            from .redis.client import RedisClient
        except ImportError:
            raise missing_extra("A shared backend", "redis") from None
        if not self.ring.encrypts:
            raise missing_extra("A shared backend", "redis")
        self.client = RedisClient(address, limits.backend_timeout)
        """The connections to Redis."""
        self._bus: RedisBus | None = None
        """The bus that was joined last."""
        self._lifespans: dict[asyncio.AbstractEventLoop, int] = {}
        """The number of lifespans that use the connections, by event loop."""
        self._checks: list[Callable[[], Awaitable[None]]] = []
        """What to check before a lifespan begins, if Redis can be reached."""
        self._is_checked = False
        """Whether the settings of Redis were checked."""
        self.prefix = prefix_of(name)
        """What all keys and channels of this server begin with."""

    def __repr__(self) -> str:
        return f"Backend({str(self.client.address)!r})"

    @property
    def state(self) -> BackendState:
        """Whether Redis can be reached: "connected" or "away"."""
        return self.client.state

    async def connect(self, patience: float = CONNECT_SECONDS, *, required: bool = False) -> bool:
        """Try to reach Redis. Return whether it answers; if it does not, attempts continue in the
        background.

        Args:
            patience: How long to try, in seconds (default: 3).
            required: Whether to raise ConfigError if Redis does not answer (default: False).
        """
        if await self.client.connect(patience, required=required):
            return True
        if required:
            raise ConfigError(
                f"Redis at {self.client.address} cannot be reached: {self.client.problem}"
            )
        return False

    @asynccontextmanager
    async def run_with(
        self, inner: AbstractAsyncContextManager[T], required: bool = False
    ) -> AsyncIterator[T]:
        """Connect before a lifespan begins, and close the connections of this event loop after the
        last lifespan has ended.

        Args:
            inner: The lifespan.
            required: Whether to raise ConfigError if Redis cannot be reached (default: False).
        """
        loop = asyncio.get_running_loop()
        self._lifespans = {one: n for one, n in self._lifespans.items() if not one.is_closed()}
        is_first = loop not in self._lifespans
        self._lifespans[loop] = self._lifespans.get(loop, 0) + 1
        try:
            if is_first:
                await self._start(required)
            async with self._warning_about_settings(), inner as state:
                yield state
        finally:
            self._lifespans[loop] -= 1
            if not self._lifespans[loop]:
                del self._lifespans[loop]
                await self.close()

    async def _start(self, required: bool) -> None:
        try:
            is_there = await self.connect(required=required)
        except ConfigError as error:
            raise ConfigError(
                f"{error}. Not started, because workers need Redis, and so do servers with "
                "backend_required=True"
            ) from None
        if is_there:
            for check in self._checks:
                with suppress(BackendAway):
                    await check()

    @asynccontextmanager
    async def _warning_about_settings(self) -> AsyncIterator[None]:
        """Check the settings of Redis in the background, once in a process and its workers."""
        if self._is_checked or os.environ.get(WORKER_VARIABLE, "1") != "1":
            yield
            return
        from .redis.checks import warn_about_settings

        self._is_checked = True
        checking = asyncio.create_task(warn_about_settings(self.client))
        try:
            yield
        finally:
            checking.cancel()
            await asyncio.wait([checking])

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self.client.close()

    async def bus(self) -> Bus:
        """Join the bus of the server: `run(bus=backend.bus)`."""
        from .redis.bus import join_bus

        self._bus = bus = await join_bus(self.client, self.ring, self.prefix)
        return bus

    @property
    def members(self) -> int:
        """The number of processes on the bus, including this one, as this process last heard; 1 if
        it has not joined."""
        return 1 if self._bus is None else self._bus.member_count

    def rows(self, kind: str, *, durable: bool = False) -> Rows:
        """Return the rows of one kind.

        Args:
            kind: A word that no other part of the package uses.
            durable: Whether each write waits for the replicas that the URL demands.
        """
        from .redis.rows import RedisRows

        return RedisRows(self.client, self.ring, self._kind(kind), durable=durable)

    def rates(self) -> Counters:
        """Return the rate limits."""
        from .redis.rates import RedisCounters

        return RedisCounters(self.client, self._kind("rate"))

    def sessions(self) -> SessionRecords:
        """Return what all processes know about the sessions in use."""
        from .redis.sessions import RedisSessions

        return RedisSessions(self.client, self.ring, self.prefix)

    def events(self) -> EventLog:
        """Return the logs of event streams, from which any process resumes a stream."""
        from .redis.event_log import RedisEventLog

        return RedisEventLog(self.client, self.ring, self._kind("events"))

    def tasks(self) -> "TaskStore":
        """Return the task store of the server, in which any process finds and runs its tasks."""
        from .redis.task_store import RedisTaskStore

        return RedisTaskStore(self.client, self.ring, self._kind("tasks"))

    def storage(
        self, *, rows: int | None = None, now: Callable[[], float] = time.time
    ) -> "Storage":
        """Return the rows of an authorization server: `Provider(storage=…)`. A provider without
        storage uses those of the backend of its server.

        Args:
            rows: The maximum number of rows of one kind (default: 100,000).
            now: The clock of the provider (default: `time.time`).
        """
        from ..auth.provider.storage import MAX_ROWS_PER_KIND
        from .redis.storage import RedisStorage

        rows = MAX_ROWS_PER_KIND if rows is None else rows
        kind = self._kind("provider")
        storage = RedisStorage(self.client, self.ring, kind, rows=rows, now=now)
        self._checks.append(storage.check)
        return storage

    def login_attempts(self) -> "LoginAttempts":
        """Return the attempts to log in at an authorization server, which all processes count
        together."""
        from .login_attempts import SharedLoginAttempts

        return SharedLoginAttempts(self.rates(), self.ring)

    def tokens(self, user: str = "") -> "Store":
        """Return a store for the logins of clients: `OAuth(store=Backend(url).tokens())`. All
        processes that name the same backend share them, and one of them renews a token at a time.

        Args:
            user: The user whose logins these are, if the program has several users (default: one
                for all).
        """
        from .redis.token_store import RedisTokenStore

        return RedisTokenStore(self.client, self.ring, self.prefix, user)

    def series(self) -> "dict[str, dict[Attributes, float | list[float]]]":
        """Return the metrics of this process's use of the backend, by instrument and attributes."""
        stats = self.client.stats
        return {
            "mcp.backend.connected": {(): float(self.state == "connected")},
            "mcp.backend.commands": {(): stats.commands},
            "mcp.backend.errors": {(): stats.errors},
            "mcp.backend": {(): stats.durations},
        }

    def cache(self) -> CacheEntries:
        """Return the responses that clients share: `SharedCache(backend=…)`."""
        from .redis.cache_entries import RedisCacheEntries

        return RedisCacheEntries(self.client, self.ring, self.prefix)

    def _kind(self, kind: str) -> str:
        assert re.fullmatch(r"[a-z-]+", kind), kind
        return f"{self.prefix}{kind}:"
