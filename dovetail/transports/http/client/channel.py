"""A client's HTTP channel, which supports every era.

Each message is sent in its own POST, by its own task. The response, either one JSON body or an
event stream, is passed to `receive`. The eras differ as follows:

    stateless   Each request repeats its version, method, name and some arguments in headers.
                Closing the connection cancels the request.
    handshake   `initialize` is sent first and alone; its response contains the version and the
                session for all later requests. The server's own messages arrive on a separate
                stream (GET). A broken stream is resumed from its last event.
    HTTP+SSE    A server of the first revision is recognised by its rejection of `initialize`. From
                then on, `sse.py` handles the session.

**A request without a response** fails immediately (`LostReply`). The error says whether the request
may have arrived (`sent`). If nothing more can arrive, because the server is unreachable or has
ended the session, the channel ends and its owner opens another. Requests in flight then have a
moment to finish or fail.

**Rejected messages** become errors according to their status (`error_for_status`). A body that is a
JSON-RPC error is passed on, unless the status shows that the server did not examine the message
(401, 403, 429 and 5xx during the handshake). Such a response says nothing about the server's era.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ....aio import TaskSet, backoff
from ....errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    HeaderMismatch,
    InternalError,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    TooLarge,
    Unauthorized,
    UnsupportedVersion,
)
from ....jsonrpc.framing import HEAD_BYTES, TooLong
from ....jsonrpc.messages import Error, ErrorResponse, Id, encode
from ....limits import Limits
from ....logs import get_logger
from ....ports import HTTP, Channel, LostReply, OnClose, Receive
from ....protocol.methods import Method
from ....protocol.tools import Tool
from ....revisions import ALL
from ..event_stream import Event
from .direct_post import DirectPost, DirectPoster, Slots
from .http_transport import (
    METHOD_KEEPING_REDIRECTS,
    HttpReply,
    HttpTransport,
    error_for_status,
)
from .messages import (
    DECODE_ERRORS,
    EVENT_STREAM,
    INITIALIZE,
    JSON,
    HeaderParams,
    OutgoingMessage,
    RequestHeaders,
    agreed_version,
    error_in,
    peek,
    responses_in,
    split_batch,
)

if TYPE_CHECKING:
    from .http1_connection import Http1Response

log = get_logger("transports")

DISCOVER = "server/discover"
INITIALIZED = {revision.wire_name("notifications/initialized") for revision in ALL}
CANCELLED = {revision.wire_name("notifications/cancelled") for revision in ALL}
OPENING = (DISCOVER, INITIALIZE)
HANDSHAKE = {INITIALIZE} | INITIALIZED
"""The messages that must have arrived before the next message is sent."""
STATELESS_ERROR_CODES = {
    error.code for error in (HeaderMismatch, MissingCapability, UnsupportedVersion, MethodNotFound)
}
"""The codes of the errors that a stateless-era server returns for messages that it understood."""
UNEXAMINED_STATUSES = {401, 403, 429, *range(500, 600)}
"""The statuses that say nothing about the era, because the server did not examine the message."""
SSE_SERVER_STATUSES = {400, 404, 405}
"""The statuses with which an HTTP+SSE server rejects a POST."""
TRANSIENT_STATUSES = {429, *range(500, 600)} - {501}
"""The statuses after which another attempt may succeed."""
GRACE_SECONDS = 1.0
"""How long requests in flight may take to finish or fail after the session is lost."""
CLOSE_SECONDS = 2.0
"""How long ending a session may take."""
RETRY_SECONDS = 1.0
"""How long to wait before resuming a broken stream, if the server does not specify a time."""
MIN_RETRY_SECONDS = 0.01
"""The minimum wait before resuming a stream, even if the server specifies a shorter wait."""
MAX_RETRY_SECONDS = 30.0
MAX_ATTEMPTS = 10
"""The maximum number of consecutive failed attempts."""
STABLE_SECONDS = 0.5
"""A stream that lasted this long counts as a successful attempt."""


class HttpChannel:
    """One session over HTTP.

    `header_params` maps the server's tools to their header parameters. The map contains entries
    from earlier channels, and this channel adds to it.
    """

    network = HTTP

    def __init__(
        self,
        transport: HttpTransport,
        limits: Limits,
        long_polling: bool,
        header_params: HeaderParams,
    ) -> None:
        self._transport, self._limits, self._long_polling = transport, limits, long_polling
        self._loop = asyncio.get_running_loop()
        self._headers = RequestHeaders(header_params)
        self._receive: Receive
        self._on_end: OnClose | None = None
        self._tasks = TaskSet()
        self._waiting: dict[Id, asyncio.Future[None]] = {}
        """The requests that have no response yet: their tasks, or direct posts."""
        self._slots = Slots(limits.in_flight)
        self._direct = DirectPoster(
            transport, self._headers, self._slots, self._on_body, self._on_other
        )
        self._handshake: asyncio.Task[None] | None = None
        """The task that sends the latest handshake message. All other messages wait for this
        task."""
        self._listener: asyncio.Task[None] | None = None
        self._opened = False
        self._unsent: list[Id] | None = None
        """Requests made while the channel is ending. They are never sent, and fail when it has
        ended."""
        self._sse: Channel | None = None
        self._tried_sse = False
        self._closed = False
        self._refused_initialized: bytes | None = None
        """The last handshake message, if the server rejected it because the user must log in. That
        message is sent again before any other message."""
        self._listener_needs_login = False
        """Whether the server rejected the request for a notification stream because the user must
        log in. The stream is requested again after the next accepted request."""
        self.request_id: Id | None = None
        """While a message is delivered: the id of the request whose response it arrived on, or None
        if it arrived elsewhere."""
        self._on_stream_reopened: Callable[[], None] | None = None
        """A function that is called when the notification stream has been reopened, because the
        server may have lost the subscriptions and the log level."""

    # the channel

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Start delivering messages."""
        self._receive, self._on_end = receive, ended

    @property
    def knows_requests(self) -> bool:
        """Whether `request_id` is set for messages that belong to a request. An HTTP+SSE server
        sends everything on one stream."""
        return self._sse is None

    def send(self, data: bytes) -> None:
        """Post one message."""
        if self._sse is not None:
            self._sse.send(data)
            return
        message = peek(data)
        request_id = message.request_id
        if self._closed or self._unsent is not None:
            if request_id is not None and self._unsent is not None:
                self._unsent.append(request_id)
            return
        if message.method in CANCELLED and self._headers.is_stateless:
            self._cancel(message.get_param("requestId"))  # closing the connection cancels it
            return
        if self._refused_initialized is not None and message.method not in HANDSHAKE:
            initialized, self._refused_initialized = self._refused_initialized, None
            self.send(initialized)
        if request_id is not None and self._can_post_directly(message):
            post = self._direct.post(message, data)
            if post is not None:
                self._waiting[request_id] = post
                return
        task = self._tasks.start(self._deliver(message, data, self._handshake))
        if request_id is not None:
            self._waiting[request_id] = task
        if message.method in HANDSHAKE:
            self._handshake = task

    def set_deadlines(self, pause: Callable[[bool], None]) -> None:
        """Call `pause` when the handling of a rejected request starts and when it ends."""
        self._transport.pause = pause

    def set_methods(self, find: Callable[[str], Method | None]) -> None:
        """Set the function that looks up a method. A client with extensions supports more
        methods."""
        self._headers.find_method = find

    def set_on_stream_reopened(self, reopened: Callable[[], None]) -> None:
        """Call `reopened` when the notification stream has been opened again."""
        self._on_stream_reopened = reopened

    def why_unsent(self, data: bytes) -> str | None:
        """Return why `send` would not send this message, or None if it would. A message that is
        replaced by something else has an empty reason."""
        message = peek(data)
        if self._sse is None and message.method in CANCELLED and self._headers.is_stateless:
            return ""  # closing the connection cancels the request
        if self._unsent is not None and message.request_id is not None:
            return None  # `receive` gets a LostReply when the channel has ended
        return "the connection is closed" if self._closed or self._unsent is not None else None

    def learn_tool(self, tool: Tool) -> bool:
        """Remember which parameters of a tool are sent in headers. Return whether the tool can be
        called."""
        return self._headers.learn_tool(tool)

    async def drain(self) -> None:
        """Wait until another message can be sent."""
        if self._sse is not None:
            await self._sse.drain()
        while len(self._waiting) >= self._limits.in_flight:
            await asyncio.wait(self._waiting.values(), return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Cancel the requests that are waiting for a response, send the other messages, and end the
        session."""
        if self._closed:
            return
        self._closed = True
        for task in [*self._waiting.values(), *([self._listener] if self._listener else [])]:
            task.cancel()
        if self._sse is not None:
            await self._sse.close()
        if others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=CLOSE_SECONDS)
            for task in others:
                task.cancel()
        if self._headers.session is not None and self._unsent is None:
            await self._end_session()
        await self._transport.close()
        self._end(None)

    # one message, without a task

    def _can_post_directly(self, message: OutgoingMessage) -> bool:
        is_open = self._opened and (self._handshake is None or self._handshake.done())
        return is_open and not self._listener_needs_login and message.method not in OPENING

    def _on_body(self, message: OutgoingMessage, body: bytes) -> None:
        """Handle the body of a direct post's response."""
        whole = body if len(body) <= self._limits.incoming else TooLong(body[:HEAD_BYTES])
        try:
            self._receive_body(message, self._transport.shown, whole)
        except Exception as problem:
            self._waiting.pop(message.request_id, None)  # type: ignore[arg-type]
            self._fail(message, problem)

    def _on_other(self, post: DirectPost) -> None:
        """Handle any other response to a direct post."""
        message = post.message
        task = self._tasks.start(self._deliver(message, post.data, None, post.response))
        if message.request_id in self._waiting:
            self._waiting[message.request_id] = task

    # one message

    async def _deliver(
        self,
        message: OutgoingMessage,
        data: bytes,
        handshake: "asyncio.Task[None] | None",
        response: "Http1Response | None" = None,
    ) -> None:
        """Post a message after the handshake, and make sure that a request receives a response or
        an error. `response` has begun if the message was already sent, and has a slot."""
        request_id = message.request_id
        try:
            if handshake is not None and not handshake.done():
                await asyncio.wait([handshake])
            if request_id is None or response is not None:
                await self._post(message, data, response)
            else:
                async with self._slots:
                    await self._post(message, data)
        except Exception as problem:
            can_log_in = isinstance(problem, Unauthorized) and problem.curable
            if message.method in INITIALIZED and can_log_in:
                self._refused_initialized = data
            self._fail(message, problem)
        finally:
            if response is not None:
                self._slots.release()
            if request_id is not None and self._waiting.get(request_id) is asyncio.current_task():
                del self._waiting[request_id]
            if message.method in CANCELLED:
                self._cancel(message.get_param("requestId"))

    def _fail(self, message: OutgoingMessage, problem: Exception) -> None:
        if isinstance(problem, DovetailError):
            self._lost(message, problem)
        else:
            log.error("Could not send %s", message.method or "a response", exc_info=problem)
            self._lost(message, InternalError(f"Could not send {message.method}: {problem}"))

    async def _post(
        self, message: OutgoingMessage, data: bytes, response: "Http1Response | None" = None
    ) -> None:
        """Send a message. If the server is busy, a notification or response is sent again later. A
        request fails instead, and the client repeats it within its timeout."""
        attempts = MAX_ATTEMPTS if message.request_id is None else 1
        for attempt in range(attempts):
            async with await self._get_reply(message, data, response) as reply:
                pause = reply.retry_after if attempt + 1 < attempts else None
                if pause is None:
                    await self._handle_reply(message, data, reply)
                    return
            await asyncio.sleep(min(pause, self._limits.timeout_max))

    async def _get_reply(
        self, message: OutgoingMessage, data: bytes, response: "Http1Response | None"
    ) -> HttpReply:
        if response is not None:
            response.raise_failure()
            reply = self._transport.read_reply(response)
            if reply.status not in METHOD_KEEPING_REDIRECTS:
                return reply
            reply.close()
        return await self._transport.request("POST", self._headers.for_message(message), data)

    # responses

    async def _handle_reply(self, message: OutgoingMessage, data: bytes, reply: HttpReply) -> None:
        if message.method == INITIALIZE and reply.status < 300:
            self._headers.begin_session(reply)
        if reply.status >= 300:
            await self._handle_refusal(message, data, reply)
            return
        if self._listener_needs_login:
            self._listener_needs_login = False
            self._listener = self._tasks.start(self._listen())
        if message.request_id is None:
            if message.method in INITIALIZED:
                self._listener = self._tasks.start(self._listen())
        elif reply.status in (202, 204):
            # If the listener is running, the response may arrive on its stream.
            if self._listener is None or self._listener.done():
                raise ConnectionClosed(
                    f"{reply.url}: the server accepted {message.method} but sent no response"
                )
        elif reply.content_type == JSON:
            await self._handle_body(message, reply)
        elif reply.content_type == EVENT_STREAM:
            self._opened = True
            await self._follow(message, reply)
        else:
            raise InvalidRequest(
                f"{reply.url}: the response to {message.method} is "
                f"{reply.content_type or 'empty'}, not JSON"
            )

    async def _handle_body(self, message: OutgoingMessage, reply: HttpReply) -> None:
        self._opened = True
        self._receive_body(message, reply.url, await reply.body())

    def _receive_body(self, message: OutgoingMessage, url: str, body: bytes | TooLong) -> None:
        if isinstance(body, TooLong):
            raise TooLarge(
                f"The response to {message.method} is larger than {self._limits.incoming} bytes "
                "(Limits.incoming)"
            )
        self._receive_message(body, message.request_id)
        if message.request_id in self._waiting:
            raise InvalidRequest(
                f"{url}: the body does not contain the response to {message.method}"
            )

    def _receive_message(self, data: bytes | TooLong, request_id: Id | None) -> None:
        """Deliver a message, which arrived on the response to the request with this id, and stop
        waiting for the requests that it answers."""
        for response in responses_in(data) if isinstance(data, bytes) else ():
            assert response.id is not None
            task = self._waiting.pop(response.id, None)
            if task is not None and not task.done() and task is not asyncio.current_task():
                task.cancel()
            if self._headers.version is None:  # this is the response to `initialize`
                self._headers.version = agreed_version(response)
        self.request_id = request_id
        try:
            self._receive(data)
        finally:
            self.request_id = None

    def _take(
        self, event: Event, position: "_StreamPosition", request_id: Id | None = None
    ) -> bool:
        """Handle an event from a stream, which answers the request with this id. Return False,
        because the stream continues."""
        position.advance(event)
        if event.name == "message" and event.data:
            self._receive_message(event.data, request_id)
        return False

    async def _follow(self, message: OutgoingMessage, reply: HttpReply) -> None:
        """Read the stream that answers a request, and resume it if it breaks and can be resumed."""
        position = _StreamPosition()

        def take(event: Event) -> bool:
            self._take(event, position, message.request_id)
            return message.request_id not in self._waiting

        try:
            await reply.events(take)
            broken = ConnectionClosed(f"{reply.url}: the stream ended before the response")
        except ConnectionClosed as problem:
            broken = problem
        while message.request_id in self._waiting:
            if position.last_event_id is None or self._headers.is_stateless:
                raise broken
            await position.pause()
            try:
                refusal = await self._get(
                    EVENT_STREAM, position, lambda stream: stream.events(take)
                )
            except Unauthorized as problem:
                # The request itself was accepted, so it must not be sent again after a login.
                raise ConnectionClosed(
                    f"{broken}; the stream cannot be resumed: {problem}"
                ) from None
            if refusal is not None:
                if refusal.status == 404 and self._headers.session is not None:
                    self._break(_session_lost(refusal))
                raise ConnectionClosed(
                    f"{broken}; the stream cannot be resumed: {refusal.url} {refusal.status_text}"
                )

    async def _get(
        self,
        content_type: str,
        position: "_StreamPosition",
        read: Callable[[HttpReply], Awaitable[None]],
    ) -> HttpReply | None:
        """Request a stream from the given position and read it. Return the response if it shows
        that another attempt would be useless."""
        headers = {"Accept": content_type, **self._headers.for_session()}
        if position.last_event_id is not None:
            headers["Last-Event-ID"] = position.last_event_id
        try:
            async with await self._transport.request("GET", headers) as reply:
                if reply.status == 200 and reply.content_type == content_type:
                    position.was_open = True
                    log.debug("A stream is open")
                    await read(reply)
                elif not (reply.status == 204 or reply.status in TRANSIENT_STATUSES):
                    return reply
        except Unauthorized:
            raise
        except DovetailError as problem:
            log.debug("A stream was interrupted: %s", problem)
        return None

    # refusals

    async def _handle_refusal(
        self, message: OutgoingMessage, data: bytes, reply: HttpReply
    ) -> None:
        error = error_in(await reply.body())
        opening = self._is_opening(message)
        is_stateless_error = error is not None and error.code in STATELESS_ERROR_CODES
        if reply.status == 404 and self._headers.session is not None and not is_stateless_error:
            raise _session_lost(reply)
        could_be_sse = message.method == INITIALIZE and reply.status in SSE_SERVER_STATUSES
        if opening and could_be_sse and not is_stateless_error and not self._tried_sse:
            timeout = self._limits.probe_timeout if error else self._limits.timeout
            if await self._try_sse(message, data, timeout):
                return
            if error is None:
                raise ConnectFailed(f"{reply.url}: this is not an MCP server ({reply.status_text})")
        was_examined = not (opening and reply.status in UNEXAMINED_STATUSES)
        if error is None or not (is_stateless_error or was_examined):
            text = "" if error is None else error.message
            raise error_for_status(reply, message.method, text, opening, self._transport.headers)
        if message.request_id is None:
            log.warning("The server rejected %s: %s", message.method or "a response", error.message)
        else:
            body = Error(error.code, error.message, error.data)
            self._receive(encode(ErrorResponse(message.request_id, body)))

    def _is_opening(self, message: OutgoingMessage) -> bool:
        return not self._opened and message.method in OPENING

    def _lost(self, message: OutgoingMessage, problem: DovetailError) -> None:
        """Report a message that was not delivered or not answered."""
        unreachable = isinstance(problem, ConnectionClosed) and not problem.sent
        if message.request_id is None:
            write = log.debug if self._closed else log.warning
            write("%s: %s", message.method or "A response", problem)
        elif unreachable and self._is_opening(message):
            self._receive(
                LostReply(message.request_id, ConnectFailed(str(problem), transient=True))
            )
        else:
            self._receive(LostReply(message.request_id, problem))
        if isinstance(problem, ConnectionClosed) and (unreachable or message.method in INITIALIZED):
            self._break(problem)  # without `initialized`, the handshake has to start again

    # notifications and requests of the server

    async def _listen(self) -> None:
        """Keep a stream open for messages that do not answer a request, or poll for them. Stop if
        the server supports neither."""
        position, failures, opened = _StreamPosition(), 0, 0

        async def poll(reply: HttpReply) -> None:
            body = await reply.body()
            try:
                messages = split_batch(body if isinstance(body, bytes) else b"[]")
            except DECODE_ERRORS as problem:
                log.warning("Ignored a poll response that is not a list of messages: %s", problem)
                return
            for message in messages:
                self._take(Event(bytes(message)), position)

        async def stream(reply: HttpReply) -> None:
            nonlocal opened
            opened += 1
            if opened > 1 and self._on_stream_reopened is not None:
                self._on_stream_reopened()
            await reply.events(lambda event: self._take(event, position))

        content_type, read = (JSON, poll) if self._long_polling else (EVENT_STREAM, stream)
        if self._long_polling:
            position.retry = 0.0  # the server waits instead
        while failures < MAX_ATTEMPTS:
            began, events = self._loop.time(), position.events
            try:
                refusal = await self._get(content_type, position, read)
            except Unauthorized as problem:
                log.info("The server rejected the request for a notification stream: %s", problem)
                self._listener_needs_login = problem.curable
                return
            if refusal is not None:
                session = self._headers.session
                if refusal.status == 404 and session is not None and position.was_open:
                    self._break(_session_lost(refusal))
                return
            worked = position.events > events or self._loop.time() - began >= STABLE_SECONDS
            failures = 0 if worked else failures + 1
            position.failures = max(0, failures - 3)
            await position.pause()
        log.warning(
            "%s: the notification stream failed %d times in a row; giving up",
            self._transport.shown,
            MAX_ATTEMPTS,
        )

    # HTTP+SSE

    async def _try_sse(self, message: OutgoingMessage, data: bytes, timeout: float) -> bool:
        """Try HTTP+SSE with a server that does not accept a POST at this URL, and return whether it
        works."""
        from ..sse import connect_sse

        self._tried_sse = True
        try:
            sse = await connect_sse(self._transport, self._limits, timeout)
        except Unauthorized:
            raise
        except DovetailError as problem:
            log.debug("This is not an HTTP+SSE server either: %s", problem)
            return False
        if self._closed:
            await sse.close()
            return True
        if message.request_id is not None:
            self._waiting.pop(message.request_id, None)
        self._sse = sse
        sse.start(self._receive, self._end)
        sse.send(data)
        return True

    # the end

    def _cancel(self, request_id: Any) -> None:
        known = isinstance(request_id, int | str)
        task = self._waiting.pop(request_id, None) if known else None
        if task is not None:
            task.cancel()

    def _break(self, reason: ConnectionClosed) -> None:
        """End the channel after a grace period for requests in flight, because nothing more can
        arrive."""
        if self._unsent is not None or self._closed:
            return
        self._unsent = []
        others = set(self._waiting.values()) - {asyncio.current_task()}
        if others:
            self._tasks.start(self._end_after(others, reason))
        else:
            self._end(reason)

    async def _end_after(
        self, others: "set[asyncio.Future[None]]", reason: ConnectionClosed
    ) -> None:
        await asyncio.wait(others, timeout=GRACE_SECONDS)
        self._end(reason)

    def _end(self, reason: Exception | None) -> None:
        ended, self._on_end = self._on_end, None
        if ended is None:
            return
        for request_id in self._unsent or ():
            self._receive(LostReply(request_id, ConnectionClosed(str(reason), sent=False)))
        ended(reason)

    async def _end_session(self) -> None:
        headers = self._headers.for_session()
        try:
            async with (
                asyncio.timeout(CLOSE_SECONDS),
                await self._transport.request("DELETE", headers),
            ):
                pass
        except (DovetailError, TimeoutError) as problem:
            log.debug("Could not end the session: %s", problem)


class _StreamPosition:
    """The position in a stream, and the delay before the stream is resumed."""

    def __init__(self) -> None:
        self.last_event_id: str | None = None
        self.events = 0
        self.failures = 0
        """The number of failed attempts since the last event."""
        self.was_open = False
        self.retry = RETRY_SECONDS

    def advance(self, event: Event) -> None:
        """Move past an event."""
        self.events += 1
        self.failures = 0
        if event.id is not None:
            self.last_event_id = event.id or None
        if event.retry is not None:
            self.retry = max(event.retry / 1000, MIN_RETRY_SECONDS)

    async def pause(self) -> None:
        """Wait for the time that the server specified, or longer after repeated failures."""
        failures, self.failures = self.failures, self.failures + 1
        grown = backoff(failures - 1, RETRY_SECONDS, MAX_RETRY_SECONDS) if failures else 0.0
        await asyncio.sleep(max(self.retry, grown))


def _session_lost(refusal: HttpReply) -> ConnectionClosed:
    return ConnectionClosed(
        f"{refusal.url}: the session no longer exists on the server", sent=False
    )
