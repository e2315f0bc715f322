"""A client's channel over HTTP, for every era.

Each message is a POST of its own, in a task of its own; what comes back, one JSON body or an event
stream, is handed to `receive`. What the eras differ in:

    stateless   the version stands in each request and is repeated in headers, as are its method, name and some arguments;
                closing the connection cancels
    handshake   `initialize` goes first and alone, its reply brings the version and the session of all that follows; a
                stream of its own (GET) carries what the server says unasked; a stream that breaks is resumed where it broke
    the pair    a server of the first revision is found by its refusal of `initialize`; from then on `sse.py` has the word

**A request that gets no reply** is told so at once (`Lost`), with what that means: `sent` is False
where it never arrived. Where nothing at all can arrive any more, because the server cannot be
reached or has forgotten the session, the channel ends, and whoever owns it opens another. What is
in flight at that moment is first given a moment to find out for itself.

**Refusals** are rows of a table, by status. A body that is a JSON-RPC error speaks for itself,
unless the status says that nobody looked at the message (401, 403, 429 and 5xx on opening): that
tells nothing about the server's era.
"""  # noqa: E501

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any

import msgspec

from ....aio import BoundedDict, TaskSet, backoff
from ....errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    SchemaError,
    TooLarge,
    Unauthorized,
)
from ....jsonrpc.codec import encode
from ....jsonrpc.framing import TooLong
from ....jsonrpc.messages import Error, ErrorResponse, Id
from ....limits import Limits
from ....net import PeerAddresses
from ....ports import HTTP, Channel, Credentials, LostReply, OnClose, Receive
from ....protocol.base import PROTOCOL_VERSION
from ....protocol.methods import METHODS, Method
from ....protocol.tools import Tool
from ....revisions import ALL
from ..event_stream import Event
from ..headers import HeaderParam, encode_value, find_header_params, values
from .client_errors import MODERN, NO_VERDICT, PAIR, PASSING, later, meaning
from .http_transport import HttpReply, HttpTransport
from .peek import BROKEN, OutgoingMessage, each, failure_in, named, peek, replies, version_in

log = logging.getLogger("dovetail.transports")

JSON, STREAM = "application/json", "text/event-stream"
INITIALIZE, DISCOVER = "initialize", "server/discover"
INITIALIZED = {revision.wire_name("notifications/initialized") for revision in ALL}
CANCELLED = {revision.wire_name("notifications/cancelled") for revision in ALL}
ALONE = {INITIALIZE} | INITIALIZED
"""What has to be through before anything else may leave."""
GRACE = 1.0
"""Seconds that requests in flight are given to find out for themselves that the session is gone."""
GOODBYE = 2.0
"""Seconds that ending a session may take."""
RETRY = 1.0
"""Seconds before a broken stream is resumed, where the server did not say."""
SOON = 0.01
"""Seconds before that at least, whatever the server said."""
PATIENCE = 30.0
"""Seconds between two attempts, at most."""
ATTEMPTS = 10
"""How often in a row something is tried in vain."""
LASTING = 0.5
"""Seconds after which a stream that broke counts as having worked."""
TOOLS = 10_000
"""Tools whose mirrored parameters are remembered."""


async def connect(
    url: str,
    limits: Limits,
    *,
    headers: Mapping[str, str] | None = None,
    verify: Any = True,
    proxy: str | None = None,
    long_polling: bool = False,
    mirrors: BoundedDict[str, tuple[HeaderParam, ...]] | None = None,
    auth: Credentials | None = None,
    peers: PeerAddresses | None = None,
) -> Channel:
    """A channel to the server at this URL. Nothing is sent yet. `mirrors` is what channels before
    it learned of its tools, and where this one writes what it learns; `peers` notes where the
    server is found."""
    wire = HttpTransport(
        url, limits, headers=headers, verify=verify, proxy=proxy, auth=auth, peers=peers
    )
    return HttpChannel(wire, limits, long_polling, mirrors)


class HttpChannel:
    """One conversation over HTTP."""

    network = HTTP

    def __init__(
        self,
        wire: HttpTransport,
        limits: Limits,
        long_polling: bool = False,
        mirrors: BoundedDict[str, tuple[HeaderParam, ...]] | None = None,
    ) -> None:
        self._wire, self._limits, self._long_polling = wire, limits, long_polling
        self._loop = asyncio.get_running_loop()
        self._receive: Receive
        self._on_end: OnClose | None = None
        self._tasks = TaskSet()
        self._waiting: dict[Id, asyncio.Task[None]] = {}
        """The requests that have no reply yet."""
        self._room = asyncio.Semaphore(limits.in_flight)
        self._gate: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._version: str | None = None
        self._session: str | None = None
        self._stateless = False
        self._opened = False
        self._mirrors = BoundedDict(TOOLS) if mirrors is None else mirrors
        self._find: Callable[[str], Method | None] = METHODS.get
        self._held: list[Id] | None = None
        """Requests made while the channel ends: they never leave, which they are told at the
        end."""
        self._pair: Channel | None = None
        self._left: Callable[[Id], float | None] = lambda id: None
        self._closed = False
        self._unsaid: bytes | None = None
        """The end of the handshake, where it was turned away: it is said again before anything
        else."""
        self._shut_out = False
        """Whether the stream of news was refused for want of a login: it is asked for again once
        something is let in."""
        self.renewed: Callable[[], None] | None = None
        """Told when the stream of news stands again: whoever listens may have forgotten what was
        asked of it."""

    # the channel

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Begin to deliver."""
        self._receive, self._on_end = receive, ended

    def send(self, data: bytes) -> None:
        """Post one message."""
        if self._pair is not None:
            self._pair.send(data)
            return
        message = peek(data)
        asks = message.asks
        if self._closed or self._held is not None:
            if asks is not None and self._held is not None:
                self._held.append(asks)
            return
        if message.method in CANCELLED and self._stateless:
            self._drop(message.params.request_id)  # closing the connection is the message
            return
        if self._unsaid is not None and message.method not in ALONE:
            unsaid, self._unsaid = self._unsaid, None
            self.send(unsaid)
        task = self._start(self._deliver(message, data, self._gate))
        if asks is not None:
            self._waiting[asks] = task
        if message.method in ALONE:
            self._gate = task

    def pausing(self, pause: Callable[[bool], None], left: Callable[[Id], float | None]) -> None:
        """Tell `pause` when credentials begin and cease to look for a way in; `left` says how many
        seconds a request has."""
        self._wire.pause, self._left = pause, left

    def learn_methods(self, find: Callable[[str], Method | None]) -> None:
        """How the row of a method is found: whoever has extensions has more of them."""
        self._find = find

    async def drain(self) -> None:
        """Wait until there is room for another message."""
        if self._pair is not None:
            await self._pair.drain()
        while len(self._waiting) >= self._limits.in_flight:
            await asyncio.wait(self._waiting.values(), return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Drop what waits for a reply, send what does not, end the session."""
        if self._closed:
            return
        self._closed = True
        for task in [*self._waiting.values(), *([self._listener] if self._listener else [])]:
            task.cancel()
        if self._pair is not None:
            await self._pair.close()
        if others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=GOODBYE)
            for task in others:
                task.cancel()
        if self._session is not None and self._held is None:
            await self._say_goodbye()
        await self._wire.close()
        self._end(None)

    def learn(self, tools: list[Tool]) -> list[Tool]:
        """Take note of which parameters go into headers. Returns the tools that can be called: one
        that wants what is not allowed is left out."""
        if not self._stateless:
            return tools
        kept: list[Tool] = []
        for tool in tools:
            try:
                mirrors = find_header_params(tool.input_schema)
            except SchemaError as problem:
                log.warning("The tool %r is left out: %s", tool.name, problem)
                continue
            kept.append(tool)
            self._mirrors[tool.name] = mirrors
        return kept

    # one message

    async def _deliver(
        self, message: OutgoingMessage, data: bytes, gate: "asyncio.Task[None] | None"
    ) -> None:
        """Post it once the gate is open, and see to it that a request is settled one way or
        another."""
        asks = message.asks
        try:
            if gate is not None and not gate.done():
                await asyncio.wait([gate])
            if asks is None:
                await self._post(message, data)
            else:
                async with self._room:
                    await self._post(message, data)
        except DovetailError as problem:
            if (
                message.method in INITIALIZED
                and isinstance(problem, Unauthorized)
                and problem.curable
            ):
                self._unsaid = data
            self._lost(message, problem)
        except Exception as problem:
            log.exception("Could not send %s", message.method or "a reply")
            self._lost(message, InternalError(f"Could not send {message.method}: {problem}"))
        finally:
            if asks is not None and self._waiting.get(asks) is asyncio.current_task():
                del self._waiting[asks]
            if message.method in CANCELLED:
                self._drop(message.params.request_id)

    async def _post(self, message: OutgoingMessage, data: bytes) -> None:
        for attempt in range(ATTEMPTS):
            async with await self._wire.ask("POST", self._headers(message, data), data) as reply:
                pause = later(reply) if attempt + 1 < ATTEMPTS else None
                if pause is None or pause > self._patience(message):
                    await self._take(message, data, reply)
                    return
            await asyncio.sleep(min(pause, self._limits.timeout_max))

    def _patience(self, message: OutgoingMessage) -> float:
        """How long it may be put off by a server that is busy: who waits for it is told at once
        where that is too long."""
        left = None if message.asks is None else self._left(message.asks)
        opening = self._limits.probe_timeout / 2 if self._opening(message) else inf
        return min(opening, inf if left is None else left)

    def _headers(self, message: OutgoingMessage, data: bytes) -> dict[str, str]:
        headers = {"Accept": f"{JSON}, {STREAM}", "Content-Type": JSON}
        version = (message.params.meta or {}).get(PROTOCOL_VERSION)
        if isinstance(version, str) and (self._stateless or self._version is None):
            self._stateless, self._version = True, version
        elif message.method == INITIALIZE:
            self._stateless, self._version = False, None
        if not self._stateless:
            return headers | self._place()
        method = message.method or ""
        headers |= {**self._place(), "Mcp-Method": encode_value(method)}
        try:
            row = self._find(method)
            if (
                row is not None
                and row.named
                and isinstance(name := named(message, data, row.named), str)
            ):
                headers["Mcp-Name"] = encode_value(name)
            if method == "tools/call" and (mirrors := self._mirrors.get(message.params.name)):
                arguments = msgspec.json.decode(message.params.arguments or b"{}")
                headers |= values(mirrors, arguments)
        except ValueError as problem:
            raise InvalidParams(f"{method}: {problem}") from None
        return headers

    def _place(self) -> dict[str, str]:
        """Where in which conversation this belongs."""
        place = {}
        if self._version:
            place["MCP-Protocol-Version"] = self._version
        if self._session is not None:
            place["Mcp-Session-Id"] = self._session
        return place

    # what comes back

    async def _take(self, message: OutgoingMessage, data: bytes, reply: HttpReply) -> None:
        asks = message.asks
        if message.method == INITIALIZE and reply.status < 300:
            self._session = session_of(reply)
        if reply.status >= 300:
            await self._refused(message, data, reply)
            return
        if self._shut_out:
            self._shut_out, self._listener = False, self._start(self._listen())
        if asks is None:
            if message.method in INITIALIZED:
                self._listener = self._start(self._listen())
        elif reply.status in (202, 204):
            if (
                self._listener is None or self._listener.done()
            ):  # else the answer may come on the stream of news
                raise ConnectionClosed(
                    f"{reply.url}: {message.method} was accepted, but never answered"
                )
        elif reply.kind == JSON:
            self._opened = True
            body = await reply.body()
            if isinstance(body, TooLong):
                raise TooLarge(
                    f"The answer to {message.method} is longer than the limit of "
                    f"{self._limits.incoming} bytes"
                )
            self._hear(body)
            if asks in self._waiting:
                raise InvalidRequest(
                    f"{reply.url}: what came back for {message.method} is no reply to it"
                )
        elif reply.kind == STREAM:
            self._opened = True
            await self._follow(message, reply)
        else:
            raise InvalidRequest(
                f"{reply.url}: {message.method} was answered with {reply.kind or 'nothing'}, "
                "not with JSON"
            )

    def _hear(self, data: bytes | TooLong) -> None:
        """Deliver a message; a request that it answers waits no more."""
        for reply in replies(data) if isinstance(data, bytes) else ():
            assert reply.id is not None
            task = self._waiting.pop(reply.id, None)
            if task is not None and task is not asyncio.current_task():
                task.cancel()
            if (
                self._version is None
            ):  # the first reply of the handshake era is the one to `initialize`
                self._version = version_in(reply)
        self._receive(data)

    async def _follow(self, message: OutgoingMessage, reply: HttpReply) -> None:
        """Read the stream that answers a request; one that breaks is taken up again where that can
        be done."""
        place = _StreamPosition()

        def take(event: Event) -> bool:
            place.note(event)
            if event.name == "message" and event.data:
                self._hear(event.data)
            return message.asks not in self._waiting

        try:
            await reply.events(take)
            broken = ConnectionClosed(f"{reply.url}: the stream ended before the answer came")
        except ConnectionClosed as problem:
            broken = problem
        while message.asks in self._waiting:
            if place.last is None or self._stateless:
                raise broken
            await place.pause()
            try:
                refusal = await self._get(STREAM, place, lambda stream: stream.events(take))
            except (
                Unauthorized
            ) as problem:  # the request itself had been let in, so it must not be made again
                raise ConnectionClosed(f"{broken}; it cannot be resumed: {problem}") from None
            if refusal is not None:
                if refusal.status == 404 and self._session is not None:
                    self._break(_gone(refusal))
                raise ConnectionClosed(
                    f"{broken}; it cannot be resumed: {refusal.url} {refusal.said}"
                )

    async def _get(
        self, accept: str, place: "_StreamPosition", read: Callable[[HttpReply], Awaitable[None]]
    ) -> HttpReply | None:
        """Ask for what the server has to say from this place on, and read it. The refusal, where
        asking again is vain."""
        headers = {"Accept": accept, **self._place()}
        if place.last is not None:
            headers["Last-Event-ID"] = place.last
        try:
            async with await self._wire.ask("GET", headers) as reply:
                if reply.status == 200 and reply.kind == accept:
                    place.stood = True
                    await read(reply)
                elif not (reply.status == 204 or reply.status in PASSING):
                    return reply
        except Unauthorized:
            raise
        except DovetailError as problem:
            log.debug("A stream broke: %s", problem)
        return None

    # refusals

    async def _refused(self, message: OutgoingMessage, data: bytes, reply: HttpReply) -> None:
        failure = failure_in(await reply.body())
        opening = self._opening(message)
        if (
            reply.status == 404
            and self._session is not None
            and (failure is None or failure.code not in MODERN)
        ):
            raise _gone(reply)
        known = failure is not None and failure.code in MODERN
        if opening and message.method == INITIALIZE and reply.status in PAIR and not known:
            if await self._try_the_pair(
                message, data, self._limits.probe_timeout if failure else self._limits.timeout
            ):
                return
            if failure is None:
                raise ConnectFailed(f"{reply.url}: no MCP server answers there ({reply.said})")
        if failure is not None and (known or not (opening and reply.status in NO_VERDICT)):
            if message.asks is None:
                log.warning(
                    "The server refuses %s: %s", message.method or "a reply", failure.message
                )
            else:
                self._receive(
                    encode(
                        ErrorResponse(
                            message.asks, Error(failure.code, failure.message, failure.data)
                        )
                    )
                )
        else:
            raise meaning(message, reply, failure, opening, self._wire.headers)

    def _opening(self, message: OutgoingMessage) -> bool:
        return not self._opened and message.method in (DISCOVER, INITIALIZE)

    def _lost(self, message: OutgoingMessage, problem: DovetailError) -> None:
        """A message went nowhere: whoever waits for its reply hears so."""
        unreachable = (
            problem if isinstance(problem, ConnectionClosed) and not problem.sent else None
        )
        if message.asks is None:
            log.log(
                logging.DEBUG if self._closed else logging.WARNING,
                "%s: %s",
                message.method or "A reply",
                problem,
            )
        elif unreachable and self._opening(message):
            self._receive(LostReply(message.asks, ConnectFailed(str(problem))))
        else:
            self._receive(LostReply(message.asks, problem))
        if isinstance(problem, ConnectionClosed) and (unreachable or message.method in INITIALIZED):
            self._break(problem)  # a conversation that was never quite opened is opened anew

    # what the server says unasked

    async def _listen(self) -> None:
        """The stream of the conversation itself, again and again; a server that has none is left
        alone."""
        place, vain = _StreamPosition(), 0

        def take(event: Event) -> bool:
            place.note(event)
            if event.name == "message" and event.data:
                self._hear(event.data)
            return False

        async def poll(reply: HttpReply) -> None:
            body = await reply.body()
            try:
                messages = each(body if isinstance(body, bytes) else b"[]")
            except BROKEN as problem:
                log.warning("Ignored what is no list of messages: %s", problem)
                return
            for message in messages:
                take(Event(bytes(message)))

        times = 0

        async def stream(reply: HttpReply) -> None:
            nonlocal times
            times += 1
            if times > 1 and self.renewed is not None:
                self.renewed()
            await reply.events(take)

        accept, read = (JSON, poll) if self._long_polling else (STREAM, stream)
        if self._long_polling:
            place.retry = 0.0  # the server does the waiting
        while vain < ATTEMPTS:
            began, heard = self._loop.time(), place.heard
            try:
                refusal = await self._get(accept, place, read)
            except Unauthorized as problem:
                log.info("There is no stream of news for now: %s", problem)
                self._shut_out = problem.curable
                return
            if refusal is not None:
                if refusal.status == 404 and self._session is not None and place.stood:
                    self._break(_gone(refusal))
                return
            worked = place.heard > heard or self._loop.time() - began >= LASTING
            vain = 0 if worked else vain + 1
            place.tries = max(0, vain - 3)
            await place.pause()
        log.warning(
            "%s: the stream of news could not be kept; it is not asked for again", self._wire.url
        )

    # the old pair

    async def _try_the_pair(self, message: OutgoingMessage, data: bytes, timeout: float) -> bool:
        """The server takes no POST here: perhaps it is of the first revision. Returns whether it
        is."""
        from ..sse import connect_sse

        try:
            wire = self._wire
            pair = await connect_sse(
                wire.session, wire.url, wire.headers, self._limits, timeout, wire.auth
            )
        except Unauthorized:
            raise
        except DovetailError as problem:
            log.debug("There is no old pair either: %s", problem)
            return False
        if self._closed:
            await pair.close()
            return True
        if message.asks is not None:
            self._waiting.pop(message.asks, None)
        self._pair = pair
        pair.start(self._receive, self._end)
        pair.send(data)
        return True

    # the end

    def _start(self, work: Any) -> "asyncio.Task[None]":
        return self._tasks.start(work)

    def _drop(self, id: Any) -> None:
        task = self._waiting.pop(id, None) if isinstance(id, int | str) else None
        if task is not None:
            task.cancel()

    def _break(self, reason: ConnectionClosed) -> None:
        """Nothing can arrive any more: end, once the requests in flight have found out, or had
        their chance to."""
        if self._held is not None or self._closed:
            return
        self._held = []
        others = set(self._waiting.values()) - {asyncio.current_task()}
        if others:
            self._start(self._end_soon(others, reason))
        else:
            self._end(reason)

    async def _end_soon(self, others: "set[asyncio.Task[None]]", reason: ConnectionClosed) -> None:
        await asyncio.wait(others, timeout=GRACE)
        self._end(reason)

    def _end(self, reason: Exception | None) -> None:
        ended, self._on_end = self._on_end, None
        if ended is None:
            return
        for id in self._held or ():
            self._receive(LostReply(id, ConnectionClosed(str(reason), sent=False)))
        ended(reason)

    async def _say_goodbye(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE), await self._wire.ask("DELETE", self._place()):
                pass
        except (DovetailError, TimeoutError) as problem:
            log.debug("Could not end the session: %s", problem)


class _StreamPosition:
    """Where in a stream we are, and when to take it up again."""

    def __init__(self) -> None:
        self.last: str | None = None
        """The id of the last event."""
        self.heard = 0
        self.tries = 0
        """Attempts in vain since then."""
        self.stood = False
        """Whether there ever was a stream."""
        self.retry = RETRY

    def note(self, event: Event) -> None:
        """An event came."""
        self.heard += 1
        self.tries = 0
        if event.id is not None:
            self.last = event.id or None
        if event.retry is not None:
            self.retry = max(event.retry / 1000, SOON)

    async def pause(self) -> None:
        """Wait as long as the server asked for, and longer with each attempt in vain."""
        grown = backoff(self.tries - 1, RETRY, PATIENCE) if self.tries else 0.0
        self.tries += 1
        await asyncio.sleep(max(self.retry, grown))


def _gone(refusal: HttpReply) -> ConnectionClosed:
    return ConnectionClosed(f"{refusal.url}: the session is gone", sent=False)


def session_of(reply: HttpReply) -> str | None:
    """The session that the answer to `initialize` begins. Its id is a secret, and never logged."""
    session = reply.headers.get("Mcp-Session-Id")
    if session is not None and not re.fullmatch(r"[\x21-\x7e]+", session):
        log.warning("%s gave a session id that no header can carry; it is not used", reply.url)
        return None
    return session
