"""The connections to one server, and who may use which of them.

A connection has a key. Callers with the same key share it, unless the key is exclusive: then each
call borrows a connection, and nobody else uses it until it is returned. `UpstreamServer.pool_key`
decides the key, so that a question from the server always reaches the caller whose call it belongs
to.

The number of connections is limited. If all are in use, further callers wait, and a connection that
nobody uses at the moment is closed to make room. One caller may use half of them for its calls and
open tasks, so that it cannot keep others from the server. Connections that are idle for long are
closed.
A connection with open tasks is neither closed nor given to another caller before they expire.

A server of the stateless era may ask a question that only the process that asked it can continue
from: its state is sealed with keys of that process. So a connection that has answered with a
question is kept for the answer, up to `Limits.parked_time`, unless its place is needed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from ..aio import Sweeper, TaskSet
from ..connection.notifications import CallerKey, counting_key
from ..errors import ConnectionClosed, Overloaded
from ..limits import Limits
from ..ports import Call, Caller

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


class ActiveCalls(list[Call]):
    """The calls that use a connection at the moment.

    Args:
        key: Who may use the connection.
    """

    def __init__(self, key: PoolKey) -> None:
        super().__init__()
        self._is_shared = key.kind == "shared"
        self._abandoned: list[Caller] = []
        """Whose calls ended without an answer: up to two callers."""
        self._before: tuple[Call, ...] | None = None
        """The calls that were sent before the last one was abandoned; None if the server has
        answered another call since."""

    def end(self, call: Call, *, answered: bool) -> None:
        """A call does not use the connection any more. If it ends without an answer, the server may
        still ask or say something about it.

        Args:
            call: The call.
            answered: Whether the server has answered it.
        """
        self.remove(call)
        if not answered:
            self._before = tuple(self)
            if len(self._abandoned) < 2 and call.caller not in self._abandoned:
                self._abandoned.append(call.caller)
        elif self._before is not None and call not in self._before:
            self._before = None

    def sole(self, *, for_task: bool = False) -> Call | None:
        """Return the call that a question belongs to if the transport does not say so: the newest
        call, if all calls are from the same caller. If callers share the connection and one of them
        abandoned a call, the question may be about that call, so nobody else gets it.

        Args:
            for_task: Whether the question is about a task (default: False). If callers share the
                connection, the task may be that of anybody.
        """
        if for_task and self._is_shared:
            return None
        return self._newest(self._abandoned)

    def likely(self) -> Call | None:
        """Return the call that a log message probably belongs to. This is as for a question, except
        that abandoned calls count only until a later call was answered: by then, the server knows
        that nobody waits for them."""
        return self._newest(self._abandoned if self._before is not None else ())

    def _newest(self, others: Sequence[Caller]) -> Call | None:
        callers = {id(call.caller) for call in self}
        if self._is_shared:
            callers.update(map(id, others))
        return self[-1] if self and len(callers) == 1 else None


class PooledClient(Struct, eq=False):
    """One connection of a pool."""

    client: "Client"
    key: PoolKey
    calls: ActiveCalls
    """The calls that use it at the moment."""
    idle_since: float = 0.0
    number: int = 0
    """Identifies the connection to its server; 0 for the main one."""
    tasks: dict[str, float] = {}
    """The open tasks that were started on it, and when they expire, by the clock of the loop."""
    ran_tasks: bool = False
    """Whether a task was ever started on it. If so, no other caller borrows it."""
    caller: CallerKey = ""
    """The caller that used it last; empty if callers share it, or are on this machine and not
    authenticated."""

    is_checked: bool = False
    """Whether the gateway is finding out whether the server still responds on it."""

    @property
    def has_tasks(self) -> bool:
        """Whether a task that was started on the connection is still open."""
        if not self.tasks:
            return False
        now = asyncio.get_running_loop().time()
        self.tasks = {id: expires for id, expires in self.tasks.items() if expires > now}
        return bool(self.tasks)

    def end_task(self, id: str, seconds: float) -> None:
        """Keep the connection no longer for a task that is over, except that its caller may ask
        for it again.

        Args:
            id: The server's own id of the task.
            seconds: How long the caller may take.
        """
        if id in self.tasks:
            latest = asyncio.get_running_loop().time() + seconds
            self.tasks[id] = min(self.tasks[id], latest)


OpenClient = Callable[[PoolKey, Call], PooledClient]
"""A function that returns a new connection for a key. The connection is opened when it is first
used."""


class ConnectionPool:
    """The connections to one server.

    Args:
        open_client: Returns a new connection.
        limits: `Limits.upstream_connections`, `upstream_idle` and `parked_time`.
        name: The name of the server, for errors.
    """

    def __init__(self, open_client: OpenClient, limits: Limits, name: str) -> None:
        self._open_client, self._limits, self._name = open_client, limits, name
        self._by_key: dict[PoolKey, PooledClient] = {}
        self._all: set[PooledClient] = set()
        self._unused: OrderedDict[PooledClient, None] = OrderedDict()
        """The connections that no call uses, the longest unused first."""
        self._kept: OrderedDict[PooledClient, None] = OrderedDict()
        """The connections that no call uses, but which have asked a question."""
        self._numbers = count(1)
        self._waiting: dict[asyncio.Future[None], CallerKey] = {}
        self._closing = TaskSet()
        self._is_closed = False
        self._sweeper = Sweeper(max(limits.upstream_idle / 4, 0.05), self._sweep)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[PooledClient]:
        return iter(list(self._all))

    async def acquire(self, key: PoolKey, call: Call, number: int = 0) -> PooledClient:
        """Return a connection for a key. Return it with `release`.

        Args:
            key: Who may use the connection.
            call: The call that uses it.
            number: The number of the connection that asked the question which the call answers. If
                it was closed meanwhile, another one is used (default: 0, any connection).

        Raises:
            Overloaded: Too many calls are waiting for a connection, or the tasks of the caller use
                all that it may have.
        """
        caller, waited = _caller_of(key, call), False
        while (pooled := self._find(key, number, caller)) is None:
            if self._is_closed:
                raise ConnectionClosed(f"{self._name} is closed", sent=False)
            if self._has_enough(caller):
                self._require_calls(caller)
                if waited:
                    self._wake_next()  # another caller may use the free place
            elif len(self._all) < self._limits.upstream_connections or self._close_unused():
                pooled = self._open_client(key, call)
                pooled.number = next(self._numbers)
                self._all.add(pooled)
                if not key.is_exclusive:
                    self._by_key[key] = pooled
                break
            await self._wait(caller)
            waited = True
        return self.use(pooled, call)

    def _has_enough(self, caller: CallerKey) -> bool:
        """Return whether a caller uses as many connections as one caller may."""
        if not caller:
            return False
        own = [one for one in self._all if one.caller == caller]
        used = sum(1 for one in own if one.calls or one.has_tasks)
        return used >= max(1, self._limits.upstream_connections // 2)

    def _has_calls(self, caller: CallerKey) -> bool:
        return any(one.calls for one in self._all if one.caller == caller)

    def _require_calls(self, caller: CallerKey) -> None:
        """Raise Overloaded if a caller uses its connections only for tasks, which may run for
        long."""
        if not self._has_calls(caller):
            raise Overloaded(
                f"Your open tasks use all connections to {self._name} that one caller may have "
                "(half of Limits.upstream_connections)",
                data={"retryAfter": 1},
            )

    def use(self, pooled: PooledClient, call: Call) -> PooledClient:
        """Use a connection of this pool for another call. Return it with `release`.

        Args:
            pooled: The connection.
            call: The call that uses it.
        """
        self._unused.pop(pooled, None)
        self._kept.pop(pooled, None)
        pooled.caller = _caller_of(pooled.key, call)
        pooled.calls.append(call)
        return pooled

    def _find(self, key: PoolKey, number: int, caller: CallerKey) -> PooledClient | None:
        if not key.is_exclusive:
            return self._by_key.get(key)
        if self._has_enough(caller):
            return None
        lendable = [one for one in self._unused if one.key == key and not one.ran_tasks]
        free = [*lendable, *(one for one in self._kept if one.key == key)] if number else ()
        same = next((one for one in free if one.number == number), None)
        return same or next(reversed(lendable), None)

    async def _wait(self, caller: CallerKey) -> None:
        if len(self._waiting) >= MAX_WAITING:
            raise Overloaded(
                f"All {self._limits.upstream_connections} connections to {self._name} are in use "
                "(Limits.upstream_connections)",
                data={"retryAfter": 1},
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = caller
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                del self._waiting[turn]
            else:
                self._wake_next()  # it was our turn, but nobody is waiting for it any more
            raise

    def release(
        self, pooled: PooledClient, call: Call, *, asked: bool = False, answered: bool = True
    ) -> None:
        """Return a connection.

        Args:
            pooled: The connection.
            call: The call that used it.
            asked: Whether the server has answered with a question.
            answered: Whether the server has answered the call.
        """
        pooled.calls.end(call, answered=answered)
        if not pooled.calls and pooled in self._all:
            pooled.idle_since = asyncio.get_running_loop().time()
            (self._kept if asked else self._unused)[pooled] = None
            self._sweeper.start()
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake the first caller that does not have to wait for its own calls."""
        for turn, caller in self._waiting.items():
            if not (turn.done() or (self._has_enough(caller) and self._has_calls(caller))):
                del self._waiting[turn]
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
        self._kept.pop(pooled, None)
        if not pooled.key.is_exclusive:
            del self._by_key[pooled.key]
        self._closing.start(pooled.client.close())
        self._wake_next()
        return True

    def of_session(self, id: str) -> list[PooledClient]:
        """Return the connections that only a caller's session uses.

        Args:
            id: The id of the session.
        """
        return [one for one in self._all if (one.key.kind, one.key.owner) == ("session", id)]

    def discard_session(self, id: str, keep_tasks: bool = False) -> None:
        """Close the connections of a caller's session.

        Args:
            id: The id of the session.
            keep_tasks: Whether to leave connections with open tasks until those expire.
        """
        for pooled in self.of_session(id):
            if not (keep_tasks and pooled.has_tasks):
                self.discard(pooled)

    def _close_unused(self) -> bool:
        """Close the connection that was unused for the longest time, if possible one without a
        question. Return False if there is none."""
        unused = (one for one in (*self._unused, *self._kept) if not one.has_tasks)
        oldest = next(unused, None)
        return oldest is not None and self.discard(oldest)

    def _sweep(self) -> bool:
        now = asyncio.get_running_loop().time()
        times = (self._limits.upstream_idle, self._limits.parked_time)
        for unused, seconds in zip((self._unused, self._kept), times, strict=True):
            for pooled in list(unused):
                if pooled.idle_since <= now - seconds and not pooled.has_tasks:
                    self.discard(pooled)
        return bool(self._unused or self._kept)

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._sweeper.cancel()
        for pooled in list(self._all):
            self.discard(pooled)
        while self._waiting:
            turn, _ = self._waiting.popitem()
            if not turn.done():
                turn.set_result(None)
        await self._closing.wait()


def _caller_of(key: PoolKey, call: Call) -> CallerKey:
    """Return the caller for whom a connection counts; empty if callers share it."""
    return "" if key.kind == "shared" else counting_key(call.caller)
