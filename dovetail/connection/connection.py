"""A channel, and the exchange of requests and replies over it: typed calls both ways, deadlines,
cancellation, progress.

The channel pushes each message in. Everything up to the start of a handler happens in that same
call, without a queue in between. A request is then answered in its own task; a reply sets the
result of the future that waits for it. What the messages mean is up to the `MessageHandler`: a
`ServerSession` or a `ClientSession`.

    channel ─→ receive ─→ request       ─→ handler.on_request ─→ task: answer ─→ channel.send
                        ├→ notification ─→ handler.on_notification
                        └→ reply        ─→ the future in `exchange.asked`
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from ..errors import (
    BY_CODE,
    ConnectionClosed,
    DovetailError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    ProtocolError,
    TimedOut,
    TooLarge,
)
from ..jsonrpc.framing import TooLong
from ..jsonrpc.messages import (
    NO_PARAMS,
    Batch,
    ErrorResponse,
    Id,
    Malformed,
    Message,
    Notification,
    OpenRequests,
    Request,
    Response,
    decode,
    encode,
    peek_id,
)
from ..limits import Limits
from ..ports import Call, Channel, Incoming, LostReply
from ..protocol.base import PROGRESS_TOKEN, Meta, Params
from ..protocol.lifecycle import CancelledParams, ProgressParams
from ..protocol.methods import METHODS, Method
from ..protocol.tasks import related_task_meta
from ..revisions import Revision
from .answer import cancel
from .encode import MessageEncoder
from .notifications import run_callback

log = logging.getLogger("dovetail.connection")

Reply = Callable[[Call | None, bytes | None], None]
"""Sends the reply to a call, or to a request that never became one."""
OnProgress = Callable[[ProgressParams], Any]
CANCELLED = METHODS["notifications/cancelled"]


class MessageHandler(Protocol):
    """One side of a session: what requests and notifications mean to it."""

    reports_malformed: bool
    """Whether what is not a message at all is answered with an error. A server must do so; a client
    that did would answer a stray `print` of its server."""

    @property
    def answers_requests(self) -> bool:
        """Whether this side answers requests at all."""

    @property
    def revision(self) -> Revision | None:
        """The revision agreed on, once there is one."""

    def on_request(self, request: Request) -> Call | bytes:
        """Make a call of a request, or return its reply; a ProtocolError refuses it."""

    def start(self, call: Call, reply: "Reply") -> None:
        """Answer a call in its own task."""

    def on_notification(self, notification: Notification) -> None:
        """Act on a notification."""

    def on_close(self, reason: Exception | None) -> None:
        """End the session."""


class _PendingRequest:
    """A request that waits for its reply."""

    __slots__ = ("future", "left", "limit", "method", "on_progress", "seen", "timeout", "timer")

    def __init__(
        self, method: Method, future: "asyncio.Future[Any]", on_progress: OnProgress | None
    ) -> None:
        self.method = method
        self.future = future
        self.on_progress = on_progress
        self.timer: asyncio.TimerHandle | None = None
        self.timeout = self.limit = 0.0
        self.left: float | None = None
        """The seconds that were left when its deadline was paused."""
        self.seen = float("-inf")


class Connection:
    """A channel with its open requests, in both directions."""

    def __init__(self, channel: Channel, limits: Limits, outgoing: MessageEncoder) -> None:
        self.channel = channel
        self.limits = limits
        self.encoder = outgoing
        self.exchange: OpenRequests[_PendingRequest, Call] = OpenRequests()
        self.closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Done when the channel has ended; the result is the reason."""
        self._loop = asyncio.get_running_loop()
        self._idle: asyncio.Event | None = None
        self._holding, self._held = 0, 0.0
        self._warned: set[str] = set()
        self._handler: MessageHandler

    def start(self, end: MessageHandler) -> None:
        """Start to receive."""
        self._handler = end
        self.channel.start(self.receive, self._on_close)

    # incoming messages

    def receive(self, data: Incoming) -> None:
        """Handle one message from the channel."""
        if isinstance(data, LostReply):
            asked = self.exchange.settle(data.id)
            if asked is not None:
                self._fail(asked, data.error)
            return
        try:
            message = decode(data) if not isinstance(data, TooLong) else self._too_long(data)
        except Malformed as malformed:
            self._reject_malformed(malformed)
            return
        if type(message) is Request:
            self._on_request(message, self._reply)
        elif isinstance(message, Batch):
            self._on_batch(message)
        else:
            self._on_other(message)

    def _too_long(self, line: TooLong) -> Message:
        text = f"The message is longer than the limit of {self.limits.incoming} bytes"
        raise Malformed(TooLarge.code, text, *peek_id(line.head))

    def _on_other(self, message: Message) -> None:
        if isinstance(message, Notification):
            try:
                self._handler.on_notification(message)
            except InvalidParams as error:
                self._warn("Ignored a malformed %s: %s", message.method, error)
            except ProtocolError as refusal:
                self._warn("Refused a %s: %s", message.method, refusal)
            except (DovetailError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                self._warn("Ignored a malformed %s: %s", message.method, error)
            except Exception:
                log.exception("Could not handle %s", message.method)
        elif isinstance(message, Response | ErrorResponse):
            self._resolve(message)

    def _on_request(self, request: Request, reply: Reply) -> None:
        handler = self._handler
        if not handler.answers_requests:
            self._warn("Ignored a request for %s: this client answers no requests", request.method)
            return
        try:
            call = handler.on_request(request)
        except Exception as error:
            refusal = error if isinstance(error, ProtocolError) else _unforeseen(request)
            revision = handler.revision
            code = revision.code(refusal) if revision else refusal.code
            reply(None, self.encoder.encode_failure(request.id, refusal, code))
            return
        if isinstance(call, bytes):
            reply(None, call)
        else:
            handler.start(call, reply)

    def _reply(self, call: Call | None, data: bytes | None) -> None:
        if data is not None:
            self.channel.send(data)
        if self._idle is not None and not self.exchange.answering:
            self._idle.set()

    def _on_batch(self, batch: Batch) -> None:
        revision = self._handler.revision
        if revision is None or not revision.batching:
            version = f" in revision {revision.version}" if revision else " before `initialize`"
            self._reject_malformed(
                Malformed(InvalidRequest.code, f"There are no JSON-RPC batches{version}")
            )
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
                gather(None, self.encoder.encode_failure(message.id, error, error.code))
            else:
                self._on_request(message, gather)
        if not requests and replies:
            self.channel.send(b"[" + b",".join(replies) + b"]")

    def _reject_malformed(self, malformed: Malformed) -> None:
        if malformed.reply is not False:
            # A broken reply ends the request that it answers; it must not be answered itself.
            failure = malformed.failure
            asked = self.exchange.settle(failure.id)
            if asked is not None:
                self._fail(
                    asked, BY_CODE.get(failure.error.code, ProtocolError)(failure.error.message)
                )
                return
            if malformed.reply or not self._handler.reports_malformed:
                self._warn("Ignored a malformed reply: %s", malformed)
                return
        revision = self._handler.revision
        failure = malformed.failure
        if not self._handler.answers_requests or (
            failure.id is None and not self._handler.reports_malformed
        ):
            self._warn("Ignored something that is not a message: %s", malformed)
            return
        error = ProtocolError(failure.error.code, failure.error.message)
        unnamed = revision is not None and revision.unnamed_errors
        self.channel.send(
            self.encoder.encode_failure(failure.id, error, error.code, unnamed=unnamed)
        )

    def _warn(self, text: str, *args: Any) -> None:
        """Log a mistake of the peer: as a warning only once, since it may repeat it at will."""
        log.log(logging.DEBUG if text in self._warned else logging.WARNING, text, *args)
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
    ) -> Any:
        """Send a request and wait for its result, as raw bytes. A timeout or a cancellation is
        passed on to the peer. `started` is called with the id of the request."""
        if self.closed.done():
            raise _closed(self.closed.result())
        loop = self._loop
        asked = _PendingRequest(method, loop.create_future(), on_progress)
        id = self.exchange.ask(asked)
        if started is not None:
            started(id)
        try:
            wire = revision.lower_params(method, _with_token(params, id) if on_progress else params)
            request = Request(
                id, revision.wire_name(method.name), NO_PARAMS if wire is None else wire
            )
            self.channel.send(self.encoder.encode(request))
            if timeout is not None:
                asked.timeout = timeout
                asked.limit = loop.time() + max(timeout, self.limits.timeout_max)
                asked.timer = loop.call_later(timeout, self._timed_out, asked)
            # No drain is needed: the caller waits for this one message anyway.
            return await asked.future
        except (asyncio.CancelledError, TimedOut) as error:
            if cancellable and self.exchange.asked.get(id) is asked:
                reason = str(error) or "The caller no longer waits"
                self._cancel_at_peer(revision, id, reason, related_task_meta(params))
            raise
        finally:
            self.exchange.asked.pop(id, None)
            if asked.timer is not None:
                asked.timer.cancel()

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
        asked = self.exchange.settle(message.id)
        if asked is None:
            log.debug("Ignored a reply to %r: no request with this id is open", message.id)
        elif isinstance(message, ErrorResponse):
            if message.error.code == -32700 or message.id is None:
                log.warning("The peer could not read a message: %s", message.error.message)
            self._fail(
                asked, PeerError(message.error.code, message.error.message, message.error.data)
            )
        elif not asked.future.done():
            asked.future.set_result(message.result)

    def _fail(self, asked: _PendingRequest, error: Exception) -> None:
        if not asked.future.done():
            asked.future.set_exception(error)

    def _timed_out(self, asked: _PendingRequest) -> None:
        allowed = (
            asked.timeout
            if self._loop.time() < asked.limit
            else max(asked.timeout, self.limits.timeout_max)
        )
        self._fail(asked, TimedOut(f"{asked.method.name}: no answer within {allowed:g} s"))

    def time_left(self, id: Id) -> float | None:
        """Return how many seconds a request still has; None if it has no deadline."""
        asked = self.exchange.asked.get(id)
        if asked is None or asked.timer is None:
            return None
        return (
            max(0.0, asked.timer.when() - self._loop.time()) if asked.left is None else asked.left
        )

    def pause_deadlines(self, paused: bool) -> None:
        """Pause the deadlines of our requests while the peer waits for us, or resume them."""
        before = self._holding
        self._holding += 1 if paused else -1
        if bool(before) == bool(self._holding):
            return
        now = self._loop.time()
        for asked in self.exchange.asked.values():
            if asked.timer is None:
                continue
            if paused:
                asked.left = max(0.0, asked.timer.when() - now)
                asked.timer.cancel()
            elif asked.left is not None:
                asked.limit += now - self._held
                asked.timer = self._loop.call_later(asked.left, self._timed_out, asked)
                asked.left = None
        self._held = now

    def on_progress(self, update: ProgressParams) -> bool:
        """Pass the progress of a request on, and extend its deadline. False if no such request is
        open."""
        asked = self.exchange.asked.get(update.progress_token)
        if asked is None or asked.future.done():
            return False
        if asked.timer is not None and not self._holding:
            asked.timer.cancel()
            left = max(0.0, min(asked.timeout, asked.limit - self._loop.time()))
            asked.timer = self._loop.call_later(left, self._timed_out, asked)
        if asked.on_progress is not None and update.progress > asked.seen:
            asked.seen = update.progress
            run_callback(asked.on_progress, update)
        return True

    def fail_request(self, id: Id | None, method: str, reason: Exception) -> None:
        """End a request that the peer will not answer, if it is one of this method."""
        asked = self.exchange.asked.get(id) if id is not None else None
        if asked is not None and asked.method.name == method:
            self._fail(asked, reason)

    def cancel(self, id: Id | None, reason: str | None) -> None:
        """Cancel a call, because the peer no longer waits for it."""
        call = self.exchange.answering.get(id) if id is not None else None
        if call is None or call.method.name == "initialize":
            return
        log.info("%s was cancelled by the peer: %s", call.name, reason or "no reason given")
        cancel(call)

    # the end

    def _on_close(self, reason: Exception | None) -> None:
        if self.closed.done():
            return
        self.closed.set_result(reason)
        for asked in list(self.exchange.asked.values()):
            self._fail(asked, _closed(reason))
        self._handler.on_close(reason)

    def disconnect(self) -> None:
        """Behave as if the peer had closed the channel."""
        self._on_close(None)

    async def finish_calls(self, grace: float | None) -> None:
        """Wait until all calls are answered; after `grace` seconds cancel the rest."""
        if self.exchange.answering:
            self._idle = asyncio.Event()
            try:
                await asyncio.wait_for(self._idle.wait(), grace)
            except TimeoutError:
                log.warning(
                    "Cancelling %d calls that are still running", len(self.exchange.answering)
                )
        self.cancel_calls()

    def cancel_calls(self) -> None:
        """Cancel all calls."""
        for call in list(self.exchange.answering.values()):
            cancel(call)

    async def close(self, reason: Exception | None = None) -> None:
        """Close the channel. May be called twice, and from any task."""
        calls = [
            call.task
            for call in self.exchange.answering.values()
            if call.task is not asyncio.current_task()
        ]
        self.cancel_calls()
        if reason is not None:
            self._on_close(reason)
        await self.channel.close()
        self._on_close(None)
        if tasks := [task for task in calls if task is not None]:
            await asyncio.wait(
                tasks, timeout=self.limits.shutdown
            )  # what was cancelled may clean up


class PeerError(DovetailError):
    """The peer answered with an error. The caller, who knows the method, translates it."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def _unforeseen(request: Request) -> ProtocolError:
    log.exception("Could not accept %s", request.method)
    return InternalError(f"{request.method} could not be accepted")


def _closed(reason: Exception | None) -> Exception:
    if reason is None:
        return ConnectionClosed("The connection is closed")
    if isinstance(reason, ConnectionClosed):
        return ConnectionClosed(str(reason))
    return ConnectionClosed(f"The connection broke: {str(reason) or type(reason).__name__}")


def _with_token(params: Any, id: Id) -> Any:
    params = Params() if params is None else params
    return msgspec.structs.replace(params, meta={**(params.meta or {}), PROGRESS_TOKEN: id})


async def send_heartbeats(
    ping: Callable[[float], Awaitable[None]],
    on_timeout: Callable[[], Awaitable[None]],
    limits: Limits,
) -> None:
    """Ping at an interval, so that a peer that disappeared silently is noticed.

    Runs until cancelled. If a ping is not answered in time, `on_timeout` is called.
    """
    assert limits.ping_interval is not None
    while True:
        await asyncio.sleep(limits.ping_interval)
        try:
            await ping(limits.ping_timeout)
        except TimedOut:
            log.warning(
                "Closing the connection: no answer to a ping within %g s", limits.ping_timeout
            )
            await on_timeout()
        except DovetailError:
            pass  # an error is an answer too; a closed connection is handled elsewhere
