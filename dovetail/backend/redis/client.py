"""Commands to Redis, and when to stop sending them. This is the only module that imports redis-py.

**Connections.** A command waits in a queue until a connection of its event loop is free, and
connections are opened as needed, up to a few. A connection sends all commands that are waiting in
one write. So a busy process needs fewer system calls, and a caller that is cancelled does not spoil
a connection. Commands that block, and durable ones, which wait for replicas (`?wait=1`), have
connections of their own, so that other commands do not wait for them.

**Deadlines.** Redis has `Limits.backend_timeout` to answer what was sent in one write, and a little
longer for large values. A command that got no reply may or may not have been executed, so nothing
is sent twice.

**Breaker.** One timeout, or three lost connections in a row, mean that Redis is away. From then on,
commands fail immediately. A background task, not a caller, finds out when Redis is back: it tries
at once, then after pauses of up to 4 seconds. A hung Redis thus costs a caller one timeout, once.

Every failure is a `BackendAway`. The log names the address, never a password.
"""

import asyncio
import os
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct, field
from redis.asyncio import Connection, SSLConnection
from redis.exceptions import (
    AuthenticationError,
    ConnectionError as LostConnection,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError as SlowConnection,
)

from ...aio import TaskSet, backoff
from ...connection.instrumentation import BACKEND_BUCKETS
from ...errors import BackendAway
from ...logs import get_logger
from ..protocols import BackendState
from .address import RedisAddress
from .problems import describe_problem, describe_silence
from .scripts import Argument, Script

MAX_CONNECTIONS = 4
"""The number of connections of one pool."""
MAX_BATCH, MAX_BATCH_BYTES = 64, 1024 * 1024
"""The number of requests, and of bytes, that are sent in one write. A longer request is sent
alone."""
MIN_BYTES_PER_SECOND = 8 * 1024 * 1024
"""The lowest expected speed, which extends the deadline of large values."""
MAX_WAITING = 4096
"""The number of commands that may wait for a connection in one event loop."""
MAX_FAILURES = 3
"""The number of lost connections in a row that open the breaker."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 4.0
"""The first and longest pauses between two attempts to reach Redis, in seconds."""
WAIT_SHARE = 0.8
"""The part of a command's deadline for which a durable write waits for replicas."""

Command: TypeAlias = Sequence[Argument]
_Connection: TypeAlias = Any
"""A `redis.asyncio.Connection`, whose annotations differ from version to version."""
_FAILURES = (TimeoutError, RedisError, OSError)
"""The errors that mean that Redis was not reached, or did not answer."""
_TIMEOUTS = (TimeoutError, SlowConnection)

log = get_logger("backend")
_running = TaskSet()
"""The tasks of all clients. A client that is forgotten without being closed keeps its connections
until the event loop ends."""


class CommandRefused(BackendAway):
    """Redis answered a command with an error. A script may have made some of its changes."""


class BackendStats(Struct):
    """What a process has sent to its backend, for metrics."""

    commands: int = 0
    """The number of commands."""
    errors: int = 0
    """The number of requests that failed, also those that were not sent because Redis was away, and
    of lost subscriptions and failed attempts to reach Redis. So it grows as long as Redis is away,
    even if nobody needs it."""
    durations: list[float] = field(default_factory=lambda: [0.0] * (len(BACKEND_BUCKETS) + 2))
    """How long requests took, each of one or several commands, including their time in the queue:
    the count in each bucket (the last one has no upper bound), and the sum. Requests that block are
    not counted."""

    @property
    def seconds(self) -> float:
        """How long all requests took in total."""
        return self.durations[-1]

    def add_duration(self, seconds: float) -> None:
        self.durations[bisect_left(BACKEND_BUCKETS, seconds)] += 1
        self.durations[-1] += seconds


class RedisClient:
    """The connections of one process to Redis. Any event loop may use them.

    Args:
        address: Where Redis is.
        timeout: How long a command may take, in seconds, and how long connecting may take.
    """

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self.address, self.timeout = address, timeout
        self.stats = BackendStats()
        self._pools: dict[asyncio.AbstractEventLoop, _Pools] = {}
        """The connections of each event loop."""
        self._has_answered = False
        """Whether Redis has answered since it was last away."""
        self._failures = 0
        """The number of failures since the last answer."""
        self._breaker_open = False
        """Whether Redis is away, so that commands fail immediately."""
        self._trial: asyncio.Task[None] | None = None
        """The task that tries to reach Redis while the breaker is open."""
        self._trial_process = 0
        """The id of the process in which that task was started."""
        self._retry_at = 0.0
        """When the next attempt is made, by the monotonic clock."""
        self._logged: set[tuple[str, str]] = set()
        """The commands that Redis refused, and why."""
        self.problem = ""
        """Why Redis could not be reached last; empty if it always could."""

    def __repr__(self) -> str:
        return f"RedisClient({str(self.address)!r})"

    @property
    def state(self) -> BackendState:
        """Whether Redis can be reached. Before the first command it counts as away."""
        return "connected" if self._has_answered and not self._breaker_open else "away"

    async def connect(self, patience: float, *, required: bool = False) -> bool:
        """Try to reach Redis. Return whether it answers; if it does not, `problem` says why.

        Args:
            patience: How long to try, in seconds. A refused password ends it at once.
            required: Whether the caller gives up if Redis does not answer. Otherwise, the client
                says in the log that it works without it, and keeps trying in the background.
        """
        deadline = time.monotonic() + patience
        for attempt in count():
            error = await self._ping()
            if error is None:
                self._breaker_open = False
                self.on_answer()
                return True
            pause = backoff(attempt, 0.1, 1.0)
            is_final = isinstance(error, AuthenticationError)
            if is_final or time.monotonic() + pause > deadline:
                if required:
                    self.problem = self._describe(error)
                else:
                    self._open_breaker(error)
                return False
            await asyncio.sleep(pause)
        raise AssertionError  # the loop does not end

    async def run(self, *command: Argument, durable: bool = False, block: float = 0.0) -> Any:
        """Send a command and return its reply.

        Args:
            *command: The command and its arguments.
            durable: Whether to wait until the write has reached as many replicas as the URL
                demands (`?wait=N`).
            block: How many seconds the command itself may block.

        Raises:
            BackendAway: Redis did not answer in time, or is away.
            CommandRefused: Redis answered with an error.
        """
        return (await self.pipeline([command], durable=durable, block=block))[0]

    async def run_script(
        self, script: Script, keys: Sequence[str], *arguments: Argument, durable: bool = False
    ) -> Any:
        """Run a script and return its reply. See `run`."""
        return (await self.pipeline([script.call(keys, *arguments)], durable=durable))[0]

    async def try_commands(self, *commands: Command) -> list[Any]:
        """Send commands that this user of Redis may not be allowed to run. Return their replies,
        and the ResponseError of those that Redis refused. See `run`."""
        return await self._send(commands, False, 0.0)

    async def pipeline(
        self, commands: Sequence[Command], *, durable: bool = False, block: float = 0.0
    ) -> list[Any]:
        """Send several commands in order, over one connection, and return their replies. Other
        commands may run in between. See `run`."""
        replies = await self._send(commands, durable, block)
        for index, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):  # Redis was restarted, or its scripts flushed
                _, digest, *rest = commands[index]
                source = Script.by_digest[str(digest)].source
                [reply] = await self._send([("EVAL", source, *rest)], durable, block)
                replies[index] = reply
            if isinstance(reply, ResponseError):
                raise self._refusal(commands[index], reply)
        return replies

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> "AsyncIterator[RedisSubscription]":
        """Open a connection that receives what is published in these channels.

        Raises:
            BackendAway: Redis cannot be reached, or the connection was lost.
        """
        self.check_breaker()
        connection = None
        try:
            async with asyncio.timeout(self.timeout):
                connection = await self.open_connection()
                await connection.send_command("SUBSCRIBE", *channels, check_health=False)
                for _ in channels:
                    await connection.read_response()
            self.on_answer()
            yield RedisSubscription(connection)
        except ResponseError as error:  # Redis is there, but does not allow this
            raise self._refusal(("SUBSCRIBE",), error) from None
        except _FAILURES as error:
            self.stats.errors += 1
            self.on_failure(error)
            raise self.away_error() from None
        finally:
            if connection is not None:
                await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Close the connections of this event loop. The client may be used again."""
        loop = asyncio.get_running_loop()
        if (pools := self._pools.pop(loop, None)) is not None:
            for pool in pools:
                await pool.close()
        if self._trial is not None and self._trial.get_loop() is loop:
            self._trial.cancel()
            await asyncio.wait([self._trial])

    # sending

    async def _send(self, commands: Sequence[Command], durable: bool, block: float) -> list[Any]:
        loop = asyncio.get_running_loop()
        started, is_sent = loop.time(), False
        try:
            self.check_breaker()
            pools = self._pools.get(loop) or self._add_pools(loop)
            if block:
                pool = pools.blocking
            else:
                pool = pools.durable if durable and self.address.wait else pools.ordinary
            size = sum(len(part) for each in commands for part in each if isinstance(part, bytes))
            request = _Request(commands, loop.create_future(), size, block)
            pool.put(request)
            is_sent = True
            self.stats.commands += len(commands)
            return await request.replies
        except BackendAway:
            self.stats.errors += 1
            raise
        finally:
            if is_sent and not block:
                self.stats.add_duration(loop.time() - started)

    def _add_pools(self, loop: asyncio.AbstractEventLoop) -> "_Pools":
        self._pools = {one: pools for one, pools in self._pools.items() if not one.is_closed()}
        pools = self._pools[loop] = _Pools(
            _Pool(self), durable=_Pool(self, wait=self.address.wait), blocking=_Pool(self, batch=1)
        )
        return pools

    def _refusal(self, command: Command, error: ResponseError) -> BackendAway:
        """Count and log a command that Redis refused. Return the error for its caller."""
        self.stats.errors += 1
        if isinstance(error, ReadOnlyError):  # this Redis is no longer the master
            self.on_failure(error)
        script = Script.by_digest.get(str(command[1])) if len(command) > 1 else None
        name = script.name if script else str(command[0])
        is_expected = str(error).startswith("UNBLOCKED")  # the last process has closed the queue
        if not is_expected and (name, type(error).__name__) not in self._logged:
            self._logged.add((name, type(error).__name__))
            log.error("Redis at %s refused %r: %s", self.address, name, describe_problem(error))
        return self.away_error(kind=CommandRefused)

    # connecting

    async def open_connection(self) -> _Connection:
        """Return a new connection to Redis, or to the current master of the sentinels."""
        address = self.address
        if not address.master:
            return await self._connect_to(*address.hosts[0])
        connection = await self._connect_to(*await self._find_master())
        await connection.send_command("ROLE", check_health=False)
        if (await connection.read_response())[0] != b"master":
            await connection.disconnect(nowait=True)
            raise LostConnection("the sentinels name a server that is not the master")
        return connection

    async def _find_master(self) -> tuple[str, int]:
        """Ask the sentinels, one after the other, for the address of the master."""
        reason: Exception | None = None
        each = self.timeout / (len(self.address.hosts) + 1)
        for host, port in self.address.hosts:
            sentinel = None
            try:
                async with asyncio.timeout(each):
                    sentinel = await self._connect_to(host, port, is_sentinel=True)
                    await sentinel.send_command(
                        *("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.master),
                        check_health=False,
                    )
                    found = await sentinel.read_response()
                if found is not None:
                    return found[0].decode(), int(found[1])
                reason = LostConnection(f"no sentinel knows a master {self.address.master!r}")
            except _FAILURES as error:
                reason = reason or error
            finally:
                if sentinel is not None:
                    await sentinel.disconnect(nowait=True)
        raise LostConnection(str(reason) or "the sentinels do not answer")

    async def _connect_to(self, host: str, port: int, *, is_sentinel: bool = False) -> _Connection:
        address = self.address
        options: dict[str, Any] = {
            "host": host,
            "port": port,
            "protocol": 2,  # the replies are the same in all versions of redis-py
            "socket_timeout": None,  # deadlines are set here
            "socket_connect_timeout": self.timeout,
            "socket_keepalive": True,
        }
        if is_sentinel:
            options |= {"password": address.sentinel_password}
        else:
            options |= {
                "db": address.database,
                "username": address.username,
                "password": address.password,
            }
        if address.tls:  # old versions of redis-py do not check the name by default
            connection: _Connection = SSLConnection(ssl_check_hostname=True, **options)
        else:
            connection = Connection(**options)
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _ping(self) -> Exception | None:
        """Send PING over a new connection. Return the error if that fails."""
        connection = None
        try:
            async with asyncio.timeout(self.timeout):
                connection = await self.open_connection()
                await connection.send_command("PING", check_health=False)
                await connection.read_response()
        except _FAILURES as error:
            self.stats.errors += 1
            return error
        finally:
            if connection is not None:
                await connection.disconnect(nowait=True)
        return None

    # the breaker

    def check_breaker(self) -> None:
        """Raise BackendAway if Redis is away."""
        if not self._breaker_open:
            return
        # The event loop of the trial may have been closed, or this process forked.
        if self._trial is None or self._trial.done() or self._trial_process != os.getpid():
            self._start_trial()
        raise self.away_error(sent=False)

    def away_error(
        self, *, sent: bool = True, kind: type[BackendAway] = BackendAway
    ) -> BackendAway:
        """Return the error for the caller of a command.

        Args:
            sent: Whether the command may have been executed.
            kind: The class of the error.
        """
        seconds = max(1, round(self._retry_at - time.monotonic()) if self._breaker_open else 1)
        error = kind(
            f"The server cannot reach its shared state. Try again in {seconds} s",
            data={"retryAfter": seconds},
        )
        error.sent = sent
        return error

    def on_answer(self) -> None:
        """Note that Redis has answered."""
        self._failures = 0
        if not self._has_answered:
            self._has_answered = True
            if self.problem:  # as visible as the line that says that it is away
                log.warning("Redis at %s is back", self.address)
            else:
                log.info("Connected to Redis at %s", self.address)

    def on_failure(self, error: Exception) -> None:
        """Note that Redis has not answered. Open the breaker if that means that it is away."""
        self._failures += MAX_FAILURES if isinstance(error, _TIMEOUTS) else 1
        if self._failures >= MAX_FAILURES:
            self._open_breaker(error)

    def _open_breaker(self, error: Exception) -> None:
        if self._breaker_open:
            return
        self._breaker_open, self._has_answered = True, False
        self._retry_at = time.monotonic() + self.timeout
        self.problem = self._describe(error)
        log.warning(
            "Redis at %s is away: %s. Working without it until it is back",
            *(self.address, self.problem),
        )
        self._start_trial()

    def _describe(self, error: Exception) -> str:
        if isinstance(error, _TIMEOUTS):
            return describe_silence(self.timeout, tls=self.address.tls)
        return describe_problem(error)

    def _start_trial(self) -> None:
        self._trial_process = os.getpid()
        self._trial = _running.start(self._wait_until_back())

    async def _wait_until_back(self) -> None:
        for attempt in count():
            if await self._ping() is None:
                break
            pause = backoff(attempt, FIRST_PAUSE, LONGEST_PAUSE)
            self._retry_at = time.monotonic() + pause
            await asyncio.sleep(pause)
        self._breaker_open = False
        self.on_answer()


class RedisSubscription:
    """A connection that receives messages."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._unanswered = 0

    async def receive(self) -> tuple[bytes, bytes] | None:
        """Return the channel and data of the next message, or None for the answer to `ping`."""
        kind, *rest = await self._connection.read_response()
        self._unanswered = 0
        return (rest[0], rest[1]) if kind == b"message" else None

    async def ping(self) -> None:
        """Ask Redis to send something. Raise TimeoutError if the last two requests had no effect:
        then the connection is dead, although nobody has closed it."""
        if self._unanswered >= 2:
            raise TimeoutError
        self._unanswered += 1
        await self._connection.send_command("PING", check_health=False)


class _Request(Struct, eq=False):
    """Commands that wait for their replies."""

    commands: Sequence[Command]
    replies: "asyncio.Future[list[Any]]"
    size: int
    """About how many bytes the commands have."""
    block: float
    """How many seconds Redis may wait before it answers."""

    def fail(self, error: BackendAway) -> None:
        if not self.replies.done():
            self.replies.set_exception(error)


class _Pool:
    """Connections of one event loop, and the queue of requests that they send.

    Args:
        client: Opens the connections.
        wait: How many replicas must have each write.
        batch: How many requests may be sent in one write.
    """

    def __init__(self, client: RedisClient, *, wait: int = 0, batch: int = MAX_BATCH) -> None:
        self._client, self._wait, self._batch = client, wait, batch
        self._queue: asyncio.Queue[_Request] = asyncio.Queue()
        self._workers = TaskSet()
        """One task for each connection."""
        self._idle = 0
        """The number of workers that wait for a request."""

    def put(self, request: _Request) -> None:
        if self._queue.qsize() >= MAX_WAITING:
            raise self._client.away_error(sent=False)
        self._queue.put_nowait(request)
        if not self._idle and len(self._workers) < MAX_CONNECTIONS:
            _running.hold(self._workers.start(self._work()))

    async def close(self) -> None:
        await self._workers.close()
        while not self._queue.empty():
            self._queue.get_nowait().fail(self._client.away_error(sent=False))

    async def _work(self) -> None:
        connection: _Connection = None
        try:
            while True:
                self._idle += 1
                try:
                    first = await self._queue.get()
                finally:
                    self._idle -= 1
                if batch := self._fill_batch(first):
                    connection = await self._exchange(connection, batch)
        finally:
            if connection is not None:
                await connection.disconnect()

    def _fill_batch(self, first: _Request) -> list[_Request]:
        """Return the first request and those that can be sent with it, except cancelled ones."""
        batch, size = [first], first.size
        while len(batch) < self._batch and size < MAX_BATCH_BYTES and not self._queue.empty():
            batch.append(self._queue.get_nowait())
            size += batch[-1].size
        return [request for request in batch if not request.replies.done()]

    async def _exchange(self, connection: _Connection, batch: list[_Request]) -> _Connection:
        """Send the commands of a batch and hand out the replies. Return the connection, or None if
        it must not be used again."""
        client, is_sent = self._client, False
        extra = sum(each.block + each.size / MIN_BYTES_PER_SECOND for each in batch)
        try:
            client.check_breaker()
            async with _deadline(client.timeout, extra):
                if connection is not None and await _is_stale(connection):
                    await connection.disconnect(nowait=True)
                    connection = None
                connection = connection or await client.open_connection()
                is_sent = True
                replies = await self._read_replies(connection, batch)
            client.on_answer()
        except BaseException as error:
            if connection is not None:
                await connection.disconnect(nowait=True)
            if isinstance(error, _FAILURES):
                client.on_failure(error)
            for request in batch:
                request.fail(client.away_error(sent=is_sent))
            if not isinstance(error, (BackendAway, *_FAILURES)):
                raise
            return None
        for request, got in zip(batch, replies, strict=True):
            if not request.replies.done():
                request.replies.set_result(got)
        if any(isinstance(reply, ReadOnlyError) for got in replies for reply in got):
            await connection.disconnect(nowait=True)  # the next connection finds the new master
            return None
        return connection

    async def _read_replies(self, connection: _Connection, batch: list[_Request]) -> list[Any]:
        commands = [command for request in batch for command in request.commands]
        if self._wait:
            # WAIT counts the replicas that have all writes of this connection.
            patience = int(self._client.timeout * WAIT_SHARE * 1000)
            commands.append(("WAIT", self._wait, patience))
        packed = connection.pack_commands(commands)
        await connection.send_packed_command(packed, check_health=False)
        replies = [[await _read_reply(connection) for _ in each.commands] for each in batch]
        if self._wait and await connection.read_response() < self._wait:
            log.warning(
                "A write was not confirmed in time by as many replicas as ?wait=%d demands. Check "
                "that Redis has this many, and that they are not behind",
                self._wait,
            )
            raise self._client.away_error()
        return replies


class _Pools(NamedTuple):
    """The pools of one event loop."""

    ordinary: _Pool
    durable: _Pool
    """For commands that wait for replicas."""
    blocking: _Pool
    """For commands that wait in Redis."""


@asynccontextmanager
async def _deadline(seconds: float, extra: float) -> AsyncIterator[None]:
    """Raise TimeoutError after some seconds and some extra ones. If the event loop itself was
    blocked for that long, replies may have arrived in the meantime. So half of the time is given
    after the loop has run again."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as timeout:
        halfway = loop.call_later(
            seconds / 2 + extra, lambda: timeout.reschedule(loop.time() + seconds / 2)
        )
        try:
            yield
        finally:
            halfway.cancel()


async def _read_reply(connection: _Connection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


async def _is_stale(connection: _Connection) -> bool:
    """Return whether Redis has closed a connection that was idle."""
    check = getattr(connection, "can_read", None) or connection.can_read_destructive
    try:
        return bool(await check())
    except (RedisError, OSError):
        return True
