"""The exchange of requests and replies over a channel: typed calls in both directions, deadlines,
cancellation and progress.

The channel passes each message to `receive`. The call to `receive` does everything up to the start
of a handler. A request is then answered in its own task. A reply sets the result of the future that
the caller awaits. The `MessageHandler`, which is a `ServerSession` or a `ClientSession`, interprets
the messages.

    channel ─→ receive ─→ request       ─→ handler.on_request ─→ task: answer ─→ channel.send
                        ├→ notification ─→ handler.on_notification
                        └→ reply        ─→ the future of a pending request

While `Limits.in_flight` calls are running, further calls wait in a queue, in the order of their
arrival. Everything else is handled immediately. If pings, replies or cancellations also had to
wait, the calls that depend on them would never end.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from itertools import count
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..aio import TaskSet
from ..errors import (
    BY_CODE,
    ConnectionClosed,
    DovetailError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    Overloaded,
    ParseError,
    ProtocolError,
    TimedOut,
    TooLarge,
)
from ..jsonrpc.framing import TooLong
from ..jsonrpc.messages import (
    Batch,
    ErrorResponse,
    Id,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode,
    peek_id,
)
from ..limits import Limits
from ..logs import get_logger
from ..ports import Call, Channel, Incoming, LostReply, PendingAdmission
from ..protocol.base import Meta
from ..protocol.lifecycle import CancelledParams, ProgressParams, with_progress_token
from ..protocol.methods import METHODS, Method
from ..protocol.tasks import related_task_meta
from ..revisions import Revision
from ..text import MAX_QUOTED_CHARS, quote
from .answer import cancel
from .encode import MessageEncoder
from .notifications import run_callback

log = get_logger("connection")

Reply = Callable[[Call | None, bytes | None], None]
"""A function that sends the reply to a call, or to a request that never became a call."""
OnProgress = Callable[[ProgressParams], Any]
CANCELLED = METHODS["notifications/cancelled"]
CALL_BYTES = 512
"""The number of bytes counted for a queued call in addition to its message. Without them, a queue
of small messages would use many times more memory than its limit."""
CLOCK_SECONDS = 0.001
"""The precision of timers: one may be due a little before its time."""
_background = TaskSet()
RETRY_SECONDS = 1
"""How long a peer is told to wait if the queue is full."""


class MessageHandler(Protocol):
    """One side of a session, which interprets requests and notifications."""

    reports_malformed: bool
    """Whether to answer malformed input with an error. A server must do so. A client must not
    report malformed input, because the output of a stray `print` in its server also arrives as
    input."""

    admission: PendingAdmission | None
    """The check that has to pass before the reply to `initialize` is sent, if it takes time."""

    def on_refused(self) -> None:
        """Take back what `initialize` did, because its check has failed."""

    @property
    def answers_requests(self) -> bool:
        """Whether this side answers requests."""

    @property
    def revision(self) -> Revision | None:
        """The agreed revision, or None before the handshake."""

    def on_request(self, request: Request) -> Call | bytes:
        """Turn a request into a call, or return its reply. Raise ProtocolError to reject the
        request."""

    def start(self, call: Call, reply: Reply) -> None:
        """Answer a call in its own task."""

    def forget(self, call: Call) -> None:
        """Remove an unstarted call from the in-flight table."""

    def on_notification(self, notification: Notification) -> None:
        """Handle a notification."""

    def on_close(self, reason: Exception | None) -> None:
        """End the session."""


class PendingRequest(Struct, eq=False):
    """A request that is waiting for its reply."""

    id: Id
    method: Method
    future: "asyncio.Future[Any]"
    on_progress: OnProgress | None
    timeout: float | None = None
    deadline: float = float("inf")
    """The time at which the request times out; infinity while its deadline is paused."""
    latest_end: float = 0.0
    """The time at which the request times out, even if it keeps reporting progress."""
    pauses: int = 0
    """The number of reasons why the request's deadline is paused."""
    is_paused_with_all: bool = False
    """Whether one of these reasons applies to all requests."""
    paused_at: float = 0.0
    seconds_left: float = 0.0
    """The number of seconds that were left when the request's deadline was paused."""
    progress: float = float("-inf")
    parent: Any = None
    """What the sender of the request passed as `parent`."""


class QueuedCall(Struct, eq=False):
    """A call that waits until fewer calls are running."""

    call: Call
    reply: Reply
    size: int
    context: Context
    """The context in which the call's message arrived."""


class Connection:
    """A channel and the open requests on it, in both directions."""

    def __init__(
        self,
        channel: Channel,
        limits: Limits,
        encoder: MessageEncoder,
        peer: str = "the client",
    ) -> None:
        self.channel = channel
        self.peer = peer
        """The name of the other side in log messages."""
        self.limits = limits
        self.encoder = encoder
        self.open_calls: dict[Id, Call] = {}
        """The peer's open requests, running or queued. Their ids may also occur among our
        requests."""
        self._queue: OrderedDict[Id, QueuedCall] = OrderedDict()
        """The queued calls, oldest first."""
        self._queued_bytes = 0
        self._queue_task: asyncio.Task[None] | None = None
        self._max_in_flight = limits.in_flight
        self._pending: dict[Id | None, PendingRequest] = {}
        """Our open requests. A reply that is late, forged or repeated, or has no id, matches none
        of these requests."""
        self._ids = count(1)
        self.closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """A future that is done when the channel has closed. Its result is the reason."""
        self._loop = asyncio.get_running_loop()
        self._idle: asyncio.Event | None = None
        self._pauses = 0
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._warned: set[str] = set()
        self._handler: MessageHandler

    def start(self, handler: MessageHandler) -> None:
        """Start receiving messages."""
        self._handler = handler
        self.channel.start(self.receive, self._on_close)

    # incoming messages

    def receive(self, data: Incoming) -> None:
        """Handle one message from the channel."""
        # Types are compared here, because isinstance() is slow (0.2 µs) if the answer is no.
        if type(data) is LostReply:
            self._fail(self._pending.pop(data.id, None), data.error)
            return
        try:
            if type(data) is TooLong:
                limit = data.limit or self.limits.incoming
                text = f"The message exceeds the limit of {limit} bytes"
                raise Malformed(TooLarge.code, text, *peek_id(data.head))
            message = decode(data)
        except Malformed as malformed:
            self._reject_malformed(malformed, data.head if isinstance(data, TooLong) else data)
            return
        if type(message) is Response:
            self._resolve(message)
        elif type(message) is Request:
            self._on_request(message, self._reply, len(data))
        elif isinstance(message, Batch):
            self._on_batch(message, bytes(data))
        else:
            self._on_other(message)

    def _on_other(self, message: Message) -> None:
        if isinstance(message, Notification):
            try:
                self._handler.on_notification(message)
            except InvalidParams as error:
                self._warn("ignored a malformed %s: %s", message.method, error)
            except ProtocolError as refusal:
                self._warn("rejected a %s: %s", message.method, refusal)
            except (DovetailError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                self._warn("ignored a malformed %s: %s", message.method, error)
            except Exception:
                log.exception("Could not handle %s", message.method)
        elif isinstance(message, (Response, ErrorResponse)):
            self._resolve(message)

    def _on_request(self, request: Request, reply: Reply, size: int) -> None:
        handler = self._handler
        if not handler.answers_requests:
            self._warn(
                "ignored a request for %s: this client does not answer requests", request.method
            )
            return
        try:
            call = handler.on_request(request)
        except Exception as error:
            refusal = error if isinstance(error, ProtocolError) else _unforeseen(request)
            reply(None, self.encoder.encode_failure(request.id, refusal, handler.revision))
            return
        if type(call) is Call:
            if len(self.open_calls) > self._max_in_flight or self._queue:
                self._enqueue(call, reply, size)
            else:
                handler.start(call, reply)
        elif (admission := handler.admission) is None:
            reply(None, call)
        else:
            handler.admission = None
            _background.start(self._reply_after(admission, request, call, reply))

    async def _reply_after(
        self, admission: PendingAdmission, request: Request, data: bytes, reply: Reply
    ) -> None:
        """Send the reply to `initialize` after its check has passed."""
        try:
            await admission()
        except Exception as error:
            refusal = error if isinstance(error, ProtocolError) else _unforeseen(request)
            data = self.encoder.encode_failure(request.id, refusal, self._handler.revision)
            self._handler.on_refused()
        reply(None, data)

    def _reply(self, call: Call | None, data: bytes | None) -> None:
        if data is not None:
            self.channel.send(data)
        if self._queue and self._queue_task is None and self._can_start():
            self._queue_task = self._loop.create_task(self._start_queued())
        if self._idle is not None and not self.open_calls:
            self._idle.set()

    def _enqueue(self, call: Call, reply: Reply, size: int) -> None:
        """Queue a call, or reject it if the queue is full."""
        size += CALL_BYTES
        if self._queued_bytes + size <= self.limits.queued_bytes:
            self._queued_bytes += size
            self._queue[call.id] = QueuedCall(call, reply, size, copy_context())
            return
        self._handler.forget(call)
        text = (
            f"{len(self.open_calls) - len(self._queue)} requests are in flight; the limit is "
            f"{self._max_in_flight}. The queue is full ({len(self._queue)} requests)."
        )
        refusal = Overloaded(text, data={"retryAfter": RETRY_SECONDS})
        reply(None, self.encoder.encode_failure(call.id, refusal, call.revision))

    def _can_start(self) -> bool:
        return len(self.open_calls) - len(self._queue) < self._max_in_flight

    async def _start_queued(self) -> None:
        """Start queued calls as other calls end and the peer reads the replies."""
        try:
            while self._queue and self._can_start():
                queued = self._unqueue(next(iter(self._queue)))
                queued.context.run(self._handler.start, queued.call, queued.reply)
                await asyncio.sleep(0)  # calls that end at once must not block the event loop
                if getattr(self.channel, "full", False):
                    await self.channel.drain()
        finally:
            self._queue_task = None

    def _unqueue(self, id: Id) -> QueuedCall:
        queued = self._queue.pop(id)
        self._queued_bytes -= queued.size
        return queued

    def _drop_queue(self) -> None:
        while self._queue:
            self._handler.forget(self._unqueue(next(iter(self._queue))).call)

    def _on_batch(self, batch: Batch, data: bytes) -> None:
        revision = self._handler.revision
        if revision is None or not revision.batching:
            version = f" in revision {revision.version}" if revision else " before `initialize`"
            text = f"JSON-RPC batches are not supported{version}"
            self._reject_malformed(Malformed(InvalidRequest.code, text), data)
            return
        requests = [message for message in batch.messages if type(message) is Request]
        replies = [encode(failure) for failure in batch.refused]
        waiting = len(requests)

        def gather(call: Call | None, data: bytes | None) -> None:
            nonlocal waiting
            waiting -= 1
            if data is not None:
                replies.append(data)
            self._reply(None, b"[" + b",".join(replies) + b"]" if not waiting and replies else None)

        for message in batch.messages:
            if type(message) is not Request:
                self._on_other(message)
            elif message.method == "initialize":
                error = InvalidRequest("initialize must not be part of a batch")
                gather(None, self.encoder.encode_failure(message.id, error, revision))
            else:
                self._on_request(message, gather, len(data) // len(batch.messages))
        if not requests and replies:
            self.channel.send(b"[" + b",".join(replies) + b"]")

    def _reject_malformed(self, malformed: Malformed, data: bytes) -> None:
        handler, failure = self._handler, malformed.failure
        line = quote(data[: MAX_QUOTED_CHARS + 1])
        error = BY_CODE[failure.error.code](failure.error.message)
        if malformed.reply is not False:
            # A broken reply ends the request that it answers; it must not be answered itself.
            pending = self._pending.pop(failure.id, None)
            if pending is not None:
                self._fail(pending, error)
                return
            if malformed.reply or not handler.reports_malformed:
                self._warn("ignored a malformed reply (%s): %s", malformed, line)
                return
        if not handler.answers_requests or (failure.id is None and not handler.reports_malformed):
            self._warn("ignored input that is not a message (%s): %s", malformed, line)
            return
        self.channel.send(self.encoder.encode_failure(failure.id, error, handler.revision))

    def _warn(self, text: str, *args: Any) -> None:
        """Log a mistake made by the peer, as a warning the first time and as debug output
        afterwards."""
        level = logging.DEBUG if text in self._warned else logging.WARNING
        log.log(level, f"%s: {text}", self.peer, *args)
        self._warned.add(text)

    # our own requests

    async def request(
        self,
        revision: Revision,
        method: Method,
        params: Any,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        cancellable: bool = True,
        started: Callable[[Id], None] | None = None,
        parent: Any = None,
    ) -> Any:
        """Send a request and return its result as raw bytes. If the request times out or is
        cancelled, the peer is notified. `started` is called with the id of the request. `parent` is
        any object; see `current_parent`."""
        if self.closed.done():
            raise _closed(self.closed.result(), sent=False)
        loop = self._loop
        id = next(self._ids)
        pending = self._pending[id] = PendingRequest(
            id, method, loop.create_future(), on_progress, parent=parent
        )
        if started is not None:
            started(id)
        try:
            if on_progress:
                params = with_progress_token(params, id)
            data = self.encoder.encode_request(id, revision, method, params)
            if parent is not None and hasattr(self.channel, "parent"):  # a server in this process
                self.channel.send(data, parent)  # type: ignore[call-arg]
            else:
                self.channel.send(data)
            if timeout is not None:
                now, longest = loop.time(), self.limits.timeout_max
                pending.timeout = timeout
                pending.latest_end = now + (timeout if timeout > longest else longest)
                self._set_deadline(pending, now + timeout)
            # No drain is needed: the caller waits for this one message anyway.
            return await pending.future
        except (asyncio.CancelledError, TimedOut) as error:
            if cancellable and id in self._pending:
                reason = str(error) or "The caller is no longer waiting"
                self._cancel_at_peer(revision, id, reason, related_task_meta(params))
            raise
        finally:
            self._pending.pop(id, None)

    def is_waiting(self, id: Id) -> bool:
        """Return whether our request with this id is waiting for its reply."""
        return id in self._pending

    @property
    def current_request(self) -> PendingRequest | None:
        """Our request to which the message that is being received belongs, or None if the channel
        cannot tell: only HTTP has a stream for each request (`HttpChannel.request_id`)."""
        return self._pending.get(getattr(self.channel, "request_id", None))

    @property
    def current_parent(self) -> Any:
        """The `parent` of that request, or None."""
        request = self.current_request
        return None if request is None else request.parent

    def _cancel_at_peer(self, revision: Revision, id: Id, reason: str, meta: Meta | None) -> None:
        if not self.closed.done():
            self.notify(
                revision, CANCELLED, CancelledParams(request_id=id, reason=reason, meta=meta)
            )

    def notify(self, revision: Revision, method: Method, params: Any) -> None:
        """Send a notification."""
        data = self.encoder.encode_notification(revision, method, params)
        if data is not None:
            self.channel.send(data)

    def _resolve(self, message: Response | ErrorResponse) -> None:
        pending = self._pending.pop(message.id, None)
        if pending is None:
            log.debug("Ignored a reply with id %r: no request with this id is pending", message.id)
        elif type(message) is ErrorResponse:
            error = message.error
            if error.code == ParseError.code or message.id is None:
                log.warning("The peer could not read a message: %s", error.message)
            self._fail(pending, PeerError(error.code, error.message, error.data))
        elif not pending.future.done():
            pending.future.set_result(message.result)

    def _fail(self, pending: PendingRequest | None, error: Exception) -> None:
        if pending is not None and not pending.future.done():
            pending.future.set_exception(error)

    def _set_deadline(self, pending: PendingRequest, deadline: float) -> None:
        """Set the deadline of a request. One timer serves all requests: it runs until the first
        deadline, so that a request that is answered in time costs no timer of its own."""
        pending.deadline = deadline
        timer = self._deadline_timer
        if timer is not None and deadline < timer.when():
            timer.cancel()
            timer = None
        if timer is None:
            self._deadline_timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Fail the requests whose time is over, and wait for the next deadline."""
        self._deadline_timer = None
        now = self._loop.time() + CLOCK_SECONDS
        left = [one for one in self._pending.values() if not one.future.done()]
        for pending in left:
            if pending.deadline <= now:
                self._time_out(pending)
        first = min((one.deadline for one in left if one.deadline > now), default=float("inf"))
        if first < float("inf"):
            self._deadline_timer = self._loop.call_at(first, self._check_deadlines)

    def _time_out(self, pending: PendingRequest) -> None:
        assert pending.timeout is not None
        allowed = (
            pending.timeout
            if self._loop.time() < pending.latest_end
            else max(pending.timeout, self.limits.timeout_max)
        )
        self._fail(pending, TimedOut(f"{pending.method.name}: no answer within {allowed:g} s"))

    def pause_deadlines(self, paused: bool, only: PendingRequest | None = None) -> None:
        """Pause the deadlines of all our requests, or of only one, while the peer waits for us, or
        resume them afterwards."""
        if only is not None:
            self._pause_deadline(only, paused)
            return
        before = self._pauses
        self._pauses += 1 if paused else -1
        if bool(before) == bool(self._pauses):
            return
        for pending in self._pending.values():
            if paused or pending.is_paused_with_all:
                pending.is_paused_with_all = paused
                self._pause_deadline(pending, paused)

    def _pause_deadline(self, pending: PendingRequest, paused: bool) -> None:
        before = pending.pauses
        pending.pauses += 1 if paused else -1
        if bool(before) == bool(pending.pauses) or pending.timeout is None or pending.future.done():
            return
        now = self._loop.time()
        if paused:
            pending.seconds_left, pending.paused_at = max(0.0, pending.deadline - now), now
            pending.deadline = float("inf")
        else:
            pending.latest_end += now - pending.paused_at
            self._set_deadline(pending, now + pending.seconds_left)

    def on_progress(self, update: ProgressParams) -> bool:
        """Pass on the progress of a request and extend its deadline. Return False if no such
        request is open."""
        pending = self._pending.get(update.progress_token)
        if pending is None or pending.future.done():
            return False
        if pending.timeout is not None and not pending.pauses:
            end = min(self._loop.time() + pending.timeout, pending.latest_end)
            self._set_deadline(pending, end)
        if pending.on_progress is not None and update.progress > pending.progress:
            pending.progress = update.progress
            run_callback(pending.on_progress, update)
        return True

    def fail_request(self, id: Id | None, method: str, reason: Exception) -> None:
        """End the open request with this id and method, which the peer will not answer."""
        pending = self._pending.get(id)
        if pending is not None and pending.method.name == method:
            self._fail(pending, reason)

    def cancel(self, id: Id | None, reason: str | None) -> None:
        """Cancel a call that the peer is no longer waiting for."""
        call = None if id is None else self.open_calls.get(id)
        if call is None or call.method.name == "initialize":
            return
        log.info("%s was cancelled by the peer: %s", call.name, reason or "no reason given")
        cancel(call)
        if call.id in self._queue:  # starting a cancelled call ends it
            self._handler.start(call, self._unqueue(call.id).reply)

    # the end

    def _on_close(self, reason: Exception | None) -> None:
        if self.closed.done():
            return
        self.closed.set_result(reason)
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        for pending in self._pending.values():
            self._fail(pending, _closed(reason))
        if reason is not None:  # after a regular end, the peer may still read replies
            self._drop_queue()
        self._handler.on_close(reason)

    def disconnect(self) -> None:
        """Behave as if the peer had closed the channel."""
        self._on_close(None)

    async def finish_calls(self, grace: float | None) -> None:
        """Wait until all calls are answered; after `grace` seconds, cancel the rest."""
        if self.open_calls:
            self._idle = asyncio.Event()
            try:
                await asyncio.wait_for(self._idle.wait(), grace)
            except TimeoutError:
                log.warning("Cancelling %d unfinished calls", len(self.open_calls))
        self.cancel_calls()

    def cancel_calls(self) -> None:
        """Cancel all calls, and do not start any more."""
        self._drop_queue()
        if self._queue_task is not None:
            self._queue_task.cancel()
        for call in list(self.open_calls.values()):
            cancel(call)

    async def close(self, reason: Exception | None = None) -> None:
        """Close the channel. You may call this method more than once and from any task."""
        tasks = [call.task for call in self.open_calls.values() if call.task is not None]
        self.cancel_calls()
        if reason is not None:
            self._on_close(reason)
        await self.channel.close()
        self._on_close(None)
        others = [task for task in tasks if task is not asyncio.current_task()]
        if others:  # let cancelled calls clean up
            await asyncio.wait(others, timeout=self.limits.shutdown)


class PeerError(DovetailError):
    """An error in the peer's reply. The code that sent the request knows the method and translates
    the error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def _unforeseen(request: Request) -> ProtocolError:
    log.exception("Could not process the request %s", request.method)
    return InternalError(f"The request {request.method} could not be processed")


def _closed(reason: Exception | None, *, sent: bool = True) -> Exception:
    if reason is None:
        return ConnectionClosed("The connection is closed", sent=sent)
    if isinstance(reason, ConnectionClosed):
        return ConnectionClosed(str(reason), sent=sent)
    text = f"The connection was lost: {str(reason) or type(reason).__name__}"
    return ConnectionClosed(text, sent=sent)


PING_SECONDS = 30.0
"""The time between pings on long-lived network connections, unless `Limits.ping_interval` is
set."""


def choose_ping_interval(limits: Limits, *, is_long_connection: bool) -> float | None:
    """Return the number of seconds between pings, or None to disable pings."""
    if limits.ping_interval is None:
        return PING_SECONDS if is_long_connection else None
    return None if limits.ping_interval == float("inf") else limits.ping_interval


async def send_heartbeats(
    ping: Callable[[float], Awaitable[None]],
    on_timeout: Callable[[], Awaitable[None]],
    limits: Limits,
    interval: float,
) -> None:
    """Ping the peer at regular intervals to detect when it has silently disappeared.

    Run until cancelled. If the peer does not answer a ping before the timeout, call `on_timeout`.
    """
    while True:
        await asyncio.sleep(interval)
        try:
            await ping(limits.ping_timeout)
        except TimedOut:
            log.warning(
                "Closing the connection: no answer to a ping within %g s", limits.ping_timeout
            )
            await on_timeout()
        except DovetailError:
            pass  # an error is an answer too; a closed connection is handled elsewhere
