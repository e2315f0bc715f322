"""The connection to a server: opened when it is first needed, and opened again when it breaks.

A `Connector` owns at most one session and at most one attempt to open one. The attempt is a
separate task: code that needs the session waits for that task, and may be cancelled without
affecting it. Consecutive losses are counted. After the first loss, the connector reconnects
immediately; after each further loss, it waits longer. After `Limits.restarts` losses, the connector
gives up until the next request. A server at a URL may be restarting. If the client was connected to
it before, the connector does not give up while a request is waiting. `state` is new, connecting,
connected, reconnecting, disconnected or closed.

**Logging in** can take a user several minutes, so it happens in a separate task and outside any
deadline (`with_login`). Requests that are refused in the meantime wait for the same login. A
refused request had no effect, so it is sent again afterwards.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from .. import aio
from ..aio import BoundedDict, TaskSet
from ..connection.client_session import ClientSession, OnNotification
from ..connection.connection import Connection, choose_ping_interval, send_heartbeats
from ..connection.encode import MessageEncoder
from ..connection.era_detection import ProbeFailed
from ..connection.extension import Extensions
from ..errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    NoCommonRevision,
    Overloaded,
    ProtocolError,
    TimedOut,
    Unauthorized,
)
from ..jsonrpc.messages import encode
from ..limits import Limits
from ..logs import get_logger
from ..ports import WEBSOCKET, Channel
from ..protocol.base import Implementation
from ..protocol.methods import METHODS
from ..protocol.raw import RawObject
from ..protocol.tools import ListToolsResult, Tool
from ..protocol.utilities import Level, SetLevelParams
from ..revisions import Revision, decode
from .callbacks import Callbacks
from .targets import Target

log = get_logger("client")

MAX_REMEMBERED_ERAS = 1000
_handshake_servers: BoundedDict[str, bool] = BoundedDict(MAX_REMEMBERED_ERAS)
"""Whether each server uses the handshake. The key is the `era_key` of the server's target."""
TRANSIENT_ERRORS = (ConnectionClosed, ConnectFailed, TimedOut, Overloaded)
"""Errors after which the next attempt may succeed."""
SET_LEVEL_SECONDS = 1.0
"""How long to wait for the answer to `logging/setLevel` while opening a connection."""
MAX_LOGINS_PER_CALL = 3
"""The maximum number of logins per call. More than one is needed if the call requires additional
scopes."""
T = TypeVar("T")
LearnTool = Callable[[Tool], bool]
"""A function that tells a channel about a tool, and returns whether the channel can call it."""


class Connector:
    """One client's connection to its server."""

    def __init__(
        self,
        target: Target,
        revisions: tuple[Revision, ...],
        info: Implementation,
        callbacks: Callbacks,
        extensions: Extensions,
        limits: Limits,
        timeout: float,
        *,
        on_notification: OnNotification,
        on_open: Callable[[ClientSession], Awaitable[None]],
        on_state: Callable[[str], None],
    ) -> None:
        self.target, self.callbacks, self.extensions = target, callbacks, extensions
        self.limits, self.timeout = limits, timeout
        self.open_timeout = timeout
        """Seconds to wait for the connection to open."""
        self.state = "new"
        self.session: ClientSession | None = None
        self.connection_id = ""
        """Identifies the session that was opened last."""
        self.log_level: str | None = None
        """The log level to request on a new connection."""
        self._revisions, self._info = revisions, info
        self._on_notification, self._on_open, self._on_state = on_notification, on_open, on_state
        self._opening: asyncio.Task[ClientSession] | None = None
        self._background = TaskSet()
        self._heartbeat: asyncio.Task[None] | None = None
        self._login: asyncio.Task[None] | None = None
        self.logins = 0
        """How many times a user has logged in."""
        self._losses = 0
        self._answers = 0
        """The number of requests that were answered."""
        self._was_connected = False
        self._opening_channel: Channel | None = None
        """The channel of the latest attempt to open a session."""
        self._waiting = 0
        """The number of callers that are waiting for the session."""
        self._failure: DovetailError | None = None
        """The reason why the latest attempt to open a session failed."""

    def for_revisions(self, revisions: tuple[Revision, ...], timeout: float) -> "Connector":
        """Return another connector to the same server, which uses these revisions and no tap.

        Args:
            revisions: The revisions, oldest first.
            timeout: Seconds to wait for its connection to open.
        """

        async def on_open(session: ClientSession) -> None: ...

        return Connector(
            self.target.untapped or self.target,
            revisions,
            self._info,
            self.callbacks,
            self.extensions,
            self.limits,
            timeout,
            on_notification=lambda method, params, request: None,
            on_open=on_open,
            on_state=lambda state: None,
        )

    @property
    def can_reconnect(self) -> bool:
        """Whether a broken connection can be opened again."""
        return self.target.can_reopen and self.state != "closed"

    async def get_session(self, timeout: float | None = None) -> ClientSession:
        """Return the session; open it first if there is none.

        Args:
            timeout: Seconds to wait for it (default: `open_timeout`).
        """
        if self.session is not None:
            return self.session
        limit = self.open_timeout if timeout is None else timeout
        return await self.with_login(partial(self._wait_for_session, limit))

    async def _wait_for_session(self, timeout: float) -> ClientSession:
        if self.state == "closed":
            raise ConnectionClosed(f"The client for {self.target.name} is closed")
        self._waiting += 1
        try:
            async with time_limit(timeout, f"{self.target.name}: no connection"):
                return await self._wait_for(self._opening or self._start_opening())
        except TimedOut as problem:
            if self._failure is None or not self._was_connected:
                raise TimedOut(self._with_last_lines(problem)) from None
            raise ConnectFailed(
                f"{self._failure} (retried for {timeout:g} s)", transient=True
            ) from None
        finally:
            self._waiting -= 1

    def _with_last_lines(self, problem: TimedOut) -> str:
        """Return the text of an error. If a server process is starting, add the last lines that it
        wrote to stderr."""
        text = str(problem)
        last_lines = getattr(self._opening_channel, "last_lines", str)()
        return text if text.endswith(last_lines) else text + last_lines

    async def _wait_for(self, task: "asyncio.Task[T]") -> T:
        """Wait for a task that this connector runs. The task continues if the caller is
        cancelled."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self.state == "closed":
                raise ConnectionClosed(f"The client for {self.target.name} is closed") from None
            raise

    async def with_login(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run `attempt`, and run it again after each login that it needs."""
        for refusals in count(1):
            logins = self.logins
            try:
                return await attempt()
            except Unauthorized as problem:
                await self.log_in_after(problem, refusals, logins)
        raise AssertionError  # not reached

    async def log_in_after(self, problem: Unauthorized, refusals: int, logins: int) -> None:
        """Have the user log in because a request was refused, so that it can be sent again. Raise
        the refusal if that does not help.

        Args:
            problem: The refusal.
            refusals: How often this request was refused.
            logins: The value of `logins` when the request was sent.
        """
        if not problem.curable or self.state == "closed" or refusals > MAX_LOGINS_PER_CALL:
            raise problem
        if logins == self.logins:  # otherwise another call has logged in meanwhile
            await self.log_in()

    async def log_in(self) -> None:
        """Have the user log in."""
        if self._login is None:
            self._login = asyncio.create_task(self._authorize())
            self._login.add_done_callback(self._login_done)
        await self._wait_for(self._login)

    async def _authorize(self) -> None:
        assert self.target.credentials is not None
        await self.target.credentials.authorize()
        self.logins += 1
        if self.session is not None:
            self._restore(self.session)  # reopen the streams that were refused

    def _login_done(self, task: "asyncio.Task[None]") -> None:
        self._login = None
        if not task.cancelled():
            task.exception()  # mark it as retrieved, in case nothing awaits it

    def register_tools(self, listed: Any) -> Any:
        """Pass the listed tools, typed or raw, to the channel; return the list without the tools
        that it cannot call."""
        channel = self.session and self.session.connection.channel
        learn: LearnTool | None = getattr(channel, "learn_tool", None)
        if learn is None:
            return listed
        if type(listed) is Raw:
            return _register_raw_tools(listed, learn)
        return replace(listed, tools=[tool for tool in listed.tools if learn(tool)])

    def reset_losses(self) -> None:
        """Reset the count of losses, because a request was answered."""
        self._losses = 0
        self._answers += 1

    async def close(self) -> None:
        """Close permanently. You may call this method repeatedly and from any task."""
        self._set_state("closed")
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        for task in (self._opening, self._login):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        session, self.session = self.session, None
        if session is not None:
            if "shutdown" in session.agreed_revision.methods:
                await self._shut_down_server(session)
            await session.connection.close()
        if self._background:
            await asyncio.wait(self._background)

    async def _ping(self, timeout: float) -> None:
        """Send a heartbeat ping if there is a session and its revision supports pings."""
        if self.session is not None and self.session.agreed_revision.pings:
            await self.session.request(METHODS[ping_method(self.session)], None, timeout=timeout)
            self.reset_losses()

    async def is_responding(self) -> bool:
        """Ping the server, and return whether it answers the ping or any other request within
        `Limits.ping_timeout`."""
        answers = self._answers
        try:
            await self._ping(self.limits.ping_timeout)
        except TimedOut:
            return self._answers > answers
        except DovetailError:
            pass  # an error is an answer too; a closed connection is handled elsewhere
        return True

    async def end_session(self, reason: Exception) -> None:
        """Close the session as if the connection had been lost, so that it is opened again.

        Args:
            reason: Why. Open requests fail with it.
        """
        if self.session is not None:
            await self.session.connection.close(reason)

    # opening

    def _start_opening(self) -> "asyncio.Task[ClientSession]":
        self._opening = asyncio.create_task(self._open_with_retries())
        self._opening.add_done_callback(self._opening_done)
        return self._opening

    def _opening_done(self, task: "asyncio.Task[ClientSession]") -> None:
        self._opening = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.debug("Could not open %s: %s", self.target.name, task.exception())
        elif self.session is None and self.state == "reconnecting":
            self._start_opening()  # the session was lost again during setup

    async def _open_with_retries(self) -> ClientSession:
        """Open a session. If the client was connected before, retry with increasing delays."""
        reopening = self.state in ("connected", "reconnecting")
        self._set_state("reconnecting" if reopening else "connecting")
        pause = backoff(self._losses - 1) if reopening else 0.0
        while True:
            if pause:
                await asyncio.sleep(pause)
            try:
                session = await self._open()
                break
            except DovetailError as problem:
                self._failure = problem
                self._losses += 1
                if not self._may_retry(problem, reopening):
                    self._set_state("disconnected")
                    raise
                pause = max(backoff(self._losses - 1), _retry_after(problem) or 0.0)
        self.session, self._was_connected, self._failure = session, True, None
        self.connection_id = token_hex(8)
        self._set_state("connected")
        await self._on_open(session)
        if hasattr(session.connection.channel, "set_on_stream_reopened"):
            session.connection.channel.set_on_stream_reopened(lambda: self._restore(session))
        network = getattr(session.connection.channel, "network", None)
        interval = choose_ping_interval(self.limits, is_long_connection=network == WEBSOCKET)
        if interval is not None and self._heartbeat is None:
            self._heartbeat = asyncio.create_task(
                send_heartbeats(self._ping, self._on_ping_failure, self.limits, interval)
            )
        return session

    def _may_retry(self, problem: DovetailError, reopening: bool) -> bool:
        """Return whether to try again after a failed attempt to open a session."""
        if not isinstance(problem, TRANSIENT_ERRORS):
            return False
        if isinstance(problem, ConnectFailed) and not problem.transient:
            return False
        if (wait := _retry_after(problem)) is not None:
            return wait <= self.limits.probe_timeout / 2 and self._losses <= self.limits.restarts
        awaited = self._was_connected and self.target.is_remote and self._waiting > 0
        return awaited or (reopening and self._losses <= self.limits.restarts)

    async def _open(self) -> ClientSession:
        # If the revisions fix the era, the outcome does not show which era the server prefers.
        undecided = len({revision.stateless for revision in self._revisions}) == 2
        key = self.target.era_key if undecided else None
        probe = not (key is not None and _handshake_servers.get(key))
        try:
            session = await self._open_session(probe)
        except ProbeFailed as problem:
            if not self.target.can_reopen:
                raise ConnectFailed(_with_hint(str(problem)), transient=True) from None
            log.warning("%s. Opening a new connection with initialize.", problem)
            session = await self._open_session(probe=False)
            session.era_is_known = problem.died
        except (ProtocolError, NoCommonRevision) as problem:
            if probe or isinstance(problem, Overloaded):
                raise
            session = await self._open_session(probe=True)  # the server's era has changed
        if key is not None and session.era_is_known:
            _handshake_servers[key] = not session.agreed_revision.stateless
        return session

    async def _open_session(self, probe: bool) -> ClientSession:
        channel = self._opening_channel = await self.target.open()
        encoder = MessageEncoder(self.limits.outgoing)
        connection = Connection(channel, self.limits, encoder, self.target.name)
        if hasattr(channel, "set_deadlines"):
            channel.set_deadlines(connection.pause_deadlines)
        if hasattr(channel, "set_methods"):
            channel.set_methods(partial(self.extensions.find_method, revision=None))
        session = ClientSession(
            connection,
            self._info,
            self.callbacks.capabilities,
            self.callbacks.client_tasks.answers,
            self._on_notification,
            self._on_session_end,
            self.extensions,
        )
        session.log_level = self.log_level
        try:
            await session.open(
                self._revisions,
                probe=probe,
                probe_timeout=self.limits.probe_timeout,
                timeout=self.open_timeout,
            )
            await self._start_setting_level(session)
        except BaseException as problem:
            await asyncio.shield(self._close_connection(connection))
            if not probe and self.target.era_key is not None:
                _handshake_servers.pop(self.target.era_key, None)
            if isinstance(problem, TimedOut):
                raise TimedOut(self._with_last_lines(problem)) from None
            if isinstance(problem, ConnectionClosed | ConnectFailed):
                transient = isinstance(problem, ConnectionClosed) or problem.transient
                raise ConnectFailed(_with_hint(str(problem)), transient=transient) from None
            raise
        return session

    def _restore(self, session: ClientSession) -> None:
        """Set the log level and subscribe again, because a server that restarted may have kept the
        session but lost both settings."""

        async def restore() -> None:
            try:
                await self._set_level(session)
                await self._on_open(session)
            except DovetailError as problem:
                log.debug(
                    "Could not restore the log level and subscriptions on %s: %s",
                    self.target.name,
                    problem,
                )

        self._background.start(restore())

    async def _start_setting_level(self, session: ClientSession) -> None:
        """Set the log level. Some servers never answer this request, so wait only briefly."""
        if self.log_level is None:
            return
        setting = self._background.start(self._set_level(session))
        await asyncio.wait([setting], timeout=SET_LEVEL_SECONDS)
        if setting.done():
            setting.result()
        else:
            setting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _set_level(self, session: ClientSession) -> None:
        if (
            self.log_level is None
            or not session.agreed_revision.set_level
            or session.server_capabilities.logging is None
        ):
            return
        try:
            params = SetLevelParams(level=cast(Level, self.log_level))
            await session.request(METHODS["logging/setLevel"], params, timeout=self.timeout)
        except (ProtocolError, TimedOut) as problem:
            log.warning(
                "%s offers logging, but did not accept the log level: %s",
                self.target.name,
                problem,
            )

    # ending

    def _on_session_end(self, session: ClientSession, reason: Exception | None) -> None:
        if self.session is not session:
            return
        self.session = None
        if self.state == "closed":
            return
        self._close_connection(session.connection)
        self._losses += 1
        reopen = self.target.can_reopen and self._losses <= self.limits.restarts
        self._set_state("reconnecting" if reopen else "disconnected")
        cause = str(reason or "it closed the connection").removeprefix(f"{self.target.name}: ")
        log.warning("Lost the connection to %s: %s", self.target.name, cause)
        if reopen and self._opening is None:
            self._start_opening()

    def _close_connection(self, connection: Connection) -> "asyncio.Task[None]":
        """Close a connection in the background; `close` waits for it."""
        return self._background.start(connection.close())

    async def _on_ping_failure(self) -> None:
        await self.end_session(ConnectionClosed(f"{self.target.name} is not answering pings"))

    async def _shut_down_server(self, session: ClientSession) -> None:
        try:
            await session.request(METHODS["shutdown"], None, timeout=self.limits.shutdown)
            session.notify("exit")
        except DovetailError:
            pass

    def _set_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._on_state(state)


def ping_method(session: ClientSession) -> str:
    """Return the method that checks whether a server responds."""
    return "ping" if "ping" in session.agreed_revision.methods else "server/discover"


@asynccontextmanager
async def time_limit(seconds: float, problem: str) -> AsyncIterator[None]:
    """Raise TimedOut with this problem if the block takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield
    except TimeoutError:
        if not timeout.expired():
            raise
        raise TimedOut(f"{problem} within {seconds:g} s") from None


def backoff(failures: int) -> float:
    """Return how long to wait after this many consecutive failures, in seconds; 0 if there were
    none."""
    return aio.backoff(failures - 1, 0.1, 2.0) if failures > 0 else 0.0


def _register_raw_tools(listed: Raw, learn: LearnTool) -> Raw:
    def can_call(item: Raw) -> bool:
        try:
            return learn(decode(item, Tool))
        except msgspec.MsgspecError:
            return True  # it is not for us to judge

    result = RawObject.parse(ListToolsResult, listed)
    try:
        items: list[Raw] = msgspec.json.decode(result.fields["tools"], type=list[Raw])
    except (KeyError, msgspec.MsgspecError):
        return listed
    kept = [item for item in items if can_call(item)]
    return listed if len(kept) == len(items) else Raw(encode({**result.fields, "tools": kept}))


def _retry_after(problem: DovetailError) -> float | None:
    return problem.retry_after if isinstance(problem, Overloaded) else None


def _with_hint(problem: str) -> str:
    """Add the most likely cause, if one is known."""
    code = "exited with code 0"
    if code in problem:
        return problem.replace(code, f"{code} (does it call server.run()?)", 1)
    if problem.endswith("connection refused"):
        return f"{problem} (is the server running?)"
    return problem
