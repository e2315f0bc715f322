"""HTTP over ASGI: reading bodies, and sending bodies, errors and event streams."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from ....aio import Sweeper
from ....errors import InvalidRequest, Overloaded, ProtocolError, TooLarge
from ....limits import Limits
from ....logs import get_logger
from ....ports import HttpResponse
from ....revisions import Revision
from ...stream_adapter import AsgiReceive, AsgiSend
from ..event_stream import COMMENT, event
from .event_store import EventStream, MessagesDropped
from .message_checks import rejection_for
from .policy import BODY_LIMITS, Policy, Rejection, RequestHead, cors as cors

log = get_logger("http")

Scope = MutableMapping[str, Any]
Receive = AsgiReceive
Send = AsgiSend
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
TEXT = (b"content-type", b"text/plain; charset=utf-8")
CLOSE = (b"connection", b"close")
EVENTS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class RequestRefused(Exception):
    """The request is rejected, and its client receives the error."""

    def __init__(self, reject: Rejection, id: Any = None, revision: Revision | None = None) -> None:
        super().__init__(reject.error.message)
        self.reject, self.id, self.revision = reject, id, revision


def refuse(
    error: ProtocolError, id: Any = None, revision: Revision | None = None
) -> RequestRefused:
    """Return the RequestRefused for an error, with the status from the tables in
    `message_checks.py`."""
    stateless = revision is not None and revision.stateless
    return RequestRefused(rejection_for(error, stateless), id, revision)


class ClientGone(Exception):
    """The client disconnected before its request was complete, so no response is sent."""


class BodyTimeouts:
    """A time limit for request bodies. One timer watches all bodies, because a timer for each
    request would cost more than reading most bodies."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0
        """The number of bytes received for incomplete bodies."""
        self._waiting: dict[asyncio.Task[Any], float] = {}
        self._sweeper = Sweeper(limits.body_timeout / 4, self._cancel_late)

    def begin(self, task: "asyncio.Task[Any]") -> None:
        """Watch a task that waits for the first chunk of a body."""
        self._waiting[task] = asyncio.get_running_loop().time() + self._limits.body_timeout
        self._sweeper.start()

    def end(self, task: "asyncio.Task[Any]") -> bool:
        """Stop watching a task, and return whether it was cancelled because it took too long."""
        return not self._waiting.pop(task)

    def _cancel_late(self) -> bool:
        now = asyncio.get_running_loop().time()
        for task, until in self._waiting.items():
            if 0 < until < now:
                self._waiting[task] = 0.0
                task.cancel()
        return bool(self._waiting)


async def read_body(receive: Receive, limits: Limits, body_timeouts: BodyTimeouts) -> bytes:
    """Read the whole body of a request. Raise RequestRefused if the body is too long or too slow,
    or if too many bytes are arriving at the same time."""
    task = asyncio.current_task()
    assert task is not None
    body_timeouts.begin(task)
    timed_out = False
    try:
        try:
            message = await receive()
        finally:
            timed_out = body_timeouts.end(task)
        body: bytes = message.get("body", b"")
        _check_size(len(body), limits)
        if message.get("more_body"):
            async with asyncio.timeout(limits.body_timeout):
                body = await _rest(body, receive, limits, body_timeouts)
        elif message["type"] == "http.disconnect":
            raise ClientGone
    except (TimeoutError, asyncio.CancelledError) as end:
        if isinstance(end, asyncio.CancelledError):
            if not timed_out:
                raise
            task.uncancel()
        text = f"The body did not arrive within {limits.body_timeout:g} s"
        raise RequestRefused(Rejection(408, InvalidRequest(text), (CLOSE,))) from None
    return body


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.max_body:
        text = f"The body is larger than {limits.max_body} bytes ({BODY_LIMITS})"
        raise RequestRefused(Rejection(413, TooLarge(text), (CLOSE,)))


async def _rest(
    first: bytes, receive: Receive, limits: Limits, body_timeouts: BodyTimeouts
) -> bytes:
    parts, size = [first], len(first)
    body_timeouts.held += size
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            body_timeouts.held += len(part)
            _check_size(size, limits)
            if body_timeouts.held > limits.bodies:
                text = (
                    f"The request bodies being received exceed {limits.bodies} bytes in total "
                    "(Limits.bodies). Try again later."
                )
                raise RequestRefused(
                    Rejection(503, Overloaded(text), ((b"retry-after", b"1"), CLOSE))
                )
            if not message.get("more_body"):
                return b"".join(parts)
    finally:
        body_timeouts.held -= size


async def send_body(
    send: Send,
    body: bytes,
    status: int = 200,
    headers: Iterable[tuple[bytes, bytes]] = (),
    *,
    as_event: bool = False,
    kind: tuple[bytes, bytes] = JSON,
) -> None:
    """Send a response with one body or none. If `as_event` is true, the body is sent as an event,
    for a client that accepts only an event stream."""
    if as_event:
        await begin_stream(send, list(headers))
        await send({"type": "http.response.body", "body": event(body)})
        return
    sent = [kind, (b"content-length", b"%d" % len(body)), *headers] if body else list(headers)
    if not body and status != 204:
        sent.append((b"content-length", b"0"))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


def encode_headers(headers: Mapping[str, str]) -> Headers:
    """Return headers in ASGI format."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
    ]


async def send_response(
    send: Send, response: HttpResponse, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a guard's response."""
    sent = encode_headers(response.headers)
    if response.status != 204:
        sent.append((b"content-length", b"%d" % len(response.body)))
    await send(
        {"type": "http.response.start", "status": response.status, "headers": [*sent, *headers]}
    )
    await send({"type": "http.response.body", "body": response.body})


def preflight(rules: Policy, head: RequestHead) -> Headers:
    """Return the headers that answer a browser's preflight request (CORS)."""
    requested = head.headers.get(b"access-control-request-headers", b"*")
    return [
        *cors(rules, head),
        (b"access-control-allow-methods", ", ".join(rules.methods).encode()),
        (b"access-control-allow-headers", requested),
        (b"access-control-max-age", b"86400"),
    ]


async def begin_stream(send: Send, headers: Headers) -> None:
    """Send the status and headers of an event stream."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENTS + headers})


class QuietTimer:
    """Wakes the reader of a stream each time that nothing was sent for some time.

    A message only records when it was sent. A timer per message, as with `asyncio.wait`, took
    7 µs.
    """

    def __init__(self, seconds: float, wake: Callable[[], None]) -> None:
        self._seconds, self._wake = seconds, wake
        self._loop = asyncio.get_running_loop()
        self.is_due = False
        """Whether nothing was sent for that time."""
        self.restart()
        self._timer = self._loop.call_at(self._end, self._check)

    def restart(self) -> None:
        """Start counting again, because something was sent."""
        self._end, self.is_due = self._loop.time() + self._seconds, False

    def _check(self) -> None:
        if self._loop.time() >= self._end:
            self.is_due = True
            self._end += self._seconds
            self._wake()
        self._timer = self._loop.call_at(self._end, self._check)

    def close(self) -> None:
        """Stop."""
        self._timer.cancel()


async def send_stream(
    stream: EventStream,
    after: int,
    send: Send,
    limits: Limits,
    stop: Callable[[], bool],
    *,
    ids: bool,
    prime: bool,
) -> None:
    """Send a stream's messages until the stream ends, `stop` returns True, or another reader takes
    over."""
    reader: asyncio.Future[None] | None = stream.attach(after)
    waiting = reader
    chunks = []
    if prime:
        chunks.append(event(b"", id=f"{stream.id}-{after}", retry=int(limits.retry * 1000)))
    quiet = QuietTimer(limits.keepalive, stream.wake)
    try:
        while waiting is not None:
            reader = waiting
            for data in stream.since(after):
                after += 1
                chunks.append(event(data, id=f"{stream.id}-{after}" if ids else None))
            if chunks:
                await send(
                    {"type": "http.response.body", "body": b"".join(chunks), "more_body": True}
                )
                stream.mark_sent(after)
                quiet.restart()
                chunks = []
            if stop() or (stream.done and after == stream.count):
                break
            if after == stream.count:
                await waiting
                if quiet.is_due:
                    chunks.append(COMMENT)
            waiting = stream.next_wait(waiting)
    except MessagesDropped:
        log.warning("Closing an event stream: its client reads too slowly")
    finally:
        quiet.close()
        stream.detach(reader)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def wait_disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
