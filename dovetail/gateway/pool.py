"""The connections to one server, and who may use which of them.

A connection has a key. Callers with the same key share it, unless the key is exclusive: then each
call borrows a connection, and nobody else uses it until it is returned. `UpstreamServer.pool_key`
decides the key, so that a question from the server always reaches the caller whose call it belongs
to.

The number of connections is limited. If all are in use, further callers wait, and a connection that
nobody uses at the moment is closed to make room. Connections that are idle for long are closed.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from ..aio import Sweeper, TaskSet
from ..errors import ConnectionClosed, Overloaded
from ..limits import Limits
from ..ports import Call

if TYPE_CHECKING:
    from ..client.client import Client

MAX_WAITING: Final = 1000
"""The number of calls that may wait for a connection to one server."""


class PoolKey(Struct, frozen=True):
    """Who may use a connection."""

    kind: Literal["shared", "user", "session", "call"]
    """Whether all callers, one user, one session or one call at a time use the connection."""
    owner: str = ""
    """The id of the user or session."""
    declares: bytes = b""
    """What the connection declares that it can answer, encoded. In the handshake era, this holds
    for a whole connection, so callers that declare something else use another one."""
    headers: tuple[tuple[str, str], ...] = ()
    """The caller's headers that the connection carries (`forward`)."""

    @property
    def is_exclusive(self) -> bool:
        """Whether one call at a time borrows the connection."""
        return self.kind == "call"


SHARED: Final = PoolKey("shared")
"""The key of the main connection."""


class PooledClient(Struct, eq=False):
    """One connection of a pool."""

    client: "Client"
    key: PoolKey
    calls: list[Call] = []
    """The calls that use it at the moment."""
    idle_since: float = 0.0


OpenClient = Callable[[PoolKey, Call], PooledClient]
"""A function that returns a new connection for a key. The connection is opened when it is first
used."""


class ConnectionPool:
    """The connections to one server.

    Args:
        open_client: Returns a new connection.
        limits: `Limits.upstream_connections` and `Limits.upstream_idle`.
        name: The name of the server, for errors.
    """

    def __init__(self, open_client: OpenClient, limits: Limits, name: str) -> None:
        self._open_client, self._limits, self._name = open_client, limits, name
        self._by_key: dict[PoolKey, PooledClient] = {}
        self._all: set[PooledClient] = set()
        self._unused: OrderedDict[PooledClient, None] = OrderedDict()
        """The connections that no call uses, the longest unused first."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closing = TaskSet()
        self._is_closed = False
        self._sweeper = Sweeper(max(limits.upstream_idle / 4, 0.05), self._sweep)

    def __len__(self) -> int:
        return len(self._all)

    async def acquire(self, key: PoolKey, call: Call) -> PooledClient:
        """Return a connection for a key. Return it with `release`.

        Args:
            key: Who may use the connection.
            call: The call that uses it.

        Raises:
            Overloaded: Too many calls are waiting for a connection.
        """
        pooled = self._find(key)
        while pooled is None:
            if self._is_closed:
                raise ConnectionClosed(f"{self._name} is closed", sent=False)
            if len(self._all) < self._limits.upstream_connections or self._close_unused():
                pooled = self._open_client(key, call)
                self._all.add(pooled)
                if not key.is_exclusive:
                    self._by_key[key] = pooled
            else:
                await self._wait()
                pooled = self._find(key)
        self._unused.pop(pooled, None)
        pooled.calls.append(call)
        return pooled

    def _find(self, key: PoolKey) -> PooledClient | None:
        if not key.is_exclusive:
            return self._by_key.get(key)
        return next((one for one in reversed(self._unused) if one.key == key), None)

    async def _wait(self) -> None:
        if len(self._waiting) >= MAX_WAITING:
            raise Overloaded(
                f"All {self._limits.upstream_connections} connections to {self._name} are in use "
                "(Limits.upstream_connections)",
                data={"retryAfter": 1},
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:
                self._wake_next()  # it was our turn, but nobody is waiting for it any more
            raise

    def release(self, pooled: PooledClient, call: Call) -> None:
        """Return a connection.

        Args:
            pooled: The connection.
            call: The call that used it.
        """
        pooled.calls.remove(call)
        if not pooled.calls and pooled in self._all:
            pooled.idle_since = asyncio.get_running_loop().time()
            self._unused[pooled] = None
            self._sweeper.start()
            self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def discard(self, pooled: PooledClient) -> bool:
        """Close a connection and do not use it again. Its calls fail. Return False if that was
        already done.

        Args:
            pooled: The connection.
        """
        if pooled not in self._all:
            return False
        self._all.remove(pooled)
        self._unused.pop(pooled, None)
        if not pooled.key.is_exclusive:
            del self._by_key[pooled.key]
        self._closing.start(pooled.client.close())
        self._wake_next()
        return True

    def discard_session(self, id: str) -> None:
        """Close the connections of a caller's session.

        Args:
            id: The id of the session.
        """
        owned = [one for one in self._all if (one.key.kind, one.key.owner) == ("session", id)]
        for pooled in owned:
            self.discard(pooled)

    def _close_unused(self) -> bool:
        """Close the connection that was unused for the longest time. Return False if there is
        none."""
        if not self._unused:
            return False
        self.discard(next(iter(self._unused)))
        return True

    def _sweep(self) -> bool:
        oldest = asyncio.get_running_loop().time() - self._limits.upstream_idle
        while self._unused and next(iter(self._unused)).idle_since <= oldest:
            self._close_unused()
        return bool(self._unused)

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._sweeper.cancel()
        for pooled in list(self._all):
            self.discard(pooled)
        while self._waiting:
            self._wake_next()
        if self._closing:
            await asyncio.wait(self._closing)
