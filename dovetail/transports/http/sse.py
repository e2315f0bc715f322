"""The HTTP+SSE transport (2024-11-05) for servers and clients. Streamable HTTP has replaced this
transport, whose code is all in this file.

A client opens an event stream with GET. The first event, `endpoint`, contains the URL for POST
requests. All messages from the server arrive as `message` events. The session ends when the stream
ends, and nothing can be resumed.

    GET /sse          ──→  SseServer.open  ──→  event: endpoint, data: /message?session_id=…
    POST /message?…   ──→  SseServer.post  ──→  202; the message goes to the stream's process

A POST may arrive at a process that does not have the stream. That process forwards the message over
the bus. Each POST has its own token, which must belong to the user who opened the stream. The
scopes of that token apply to the message. The output queued for a client is limited. A client that
sends messages but does not read has to wait, and then receives a 503. This transport can carry any
revision.
https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import convert, to_builtins

from ...errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InternalError,
    Overloaded,
    TooLarge,
    Unauthorized,
)
from ...jsonrpc.framing import HEAD_BYTES, TooLong
from ...jsonrpc.messages import Malformed, Request, decode
from ...limits import Limits
from ...net import split_origin
from ...ports import HTTP, Bus, Channel, LostReply, Principal, Receive, RequestIdentity
from ..send_with_auth import AUTH_STATUSES, explain_refusal
from ..stream_adapter import AsgiReceive, AsgiSend, Drain, StreamAdapter
from .event_stream import COMMENT, Event, EventStreamParser, event
from .server.asgi import TEXT, begin_stream, send_body, wait_disconnected
from .server.sessions import digest_principal

if TYPE_CHECKING:
    from .client.http_transport import HttpReply, HttpTransport

Header: TypeAlias = tuple[bytes, bytes]

EVENT_STREAM: Final = "text/event-stream"
SESSION_PARAMETER: Final = "session_id"
"""The query parameter in which a POST names its session."""
SESSION_ID_BYTES: Final = 32
SESSION_ID_CHARS: Final = len(token_urlsafe(SESSION_ID_BYTES))
TOPIC: Final = "sse"
READ_TIMEOUT_SECONDS: Final = 10.0
"""How long a POST waits for the client to read the stream."""
RETRY_LATER: Final = (b"retry-after", b"1")
MAX_REDIRECTS: Final = 3
ERRORS_BY_STATUS: Final[Mapping[int, type[DovetailError]]] = {
    401: Unauthorized, 403: Unauthorized, 413: TooLarge, 429: Overloaded, 503: Overloaded,
}  # fmt: skip
"""The error for a rejected message, keyed by status. Any other status is a server failure."""


# server


class SseServer:
    """The open streams in one application. `serve` runs a session over a channel until the session
    ends."""

    def __init__(
        self,
        limits: Limits,
        serve: Callable[[Channel, RequestIdentity], Awaitable[None]],
        bus: Bus,
    ) -> None:
        self._limits, self._serve, self._bus = limits, serve, bus
        self._streams: dict[str, tuple[_SseStream, StreamAdapter, bytes]] = {}
        bus.on(TOPIC, self._on_forwarded)

    def __len__(self) -> int:
        return len(self._streams)

    async def open(
        self,
        scope: Mapping[str, Any],
        receive: AsgiReceive,
        send: AsgiSend,
        message_path: str,
        headers: Sequence[Header],
        identity: RequestIdentity,
    ) -> None:
        """Answer a GET by serving a session until the client disconnects. `message_path` is the
        path for the client's POSTs."""
        from urllib.parse import quote

        if len(self._streams) >= self._limits.streams:
            text = f"All {self._limits.streams} event streams are in use. Try again later."
            await send_body(send, text.encode(), 503, [RETRY_LATER, *headers], kind=TEXT)
            return
        session = token_urlsafe(SESSION_ID_BYTES)
        path = quote(scope.get("root_path", "").rstrip("/") + message_path)
        endpoint = f"{path}?{SESSION_PARAMETER}={session}"
        stream = _SseStream(receive, send, endpoint, self._limits.keepalive, headers)
        channel = StreamAdapter(stream, self._limits)
        channel.identity = identity
        self._streams[session] = stream, channel, digest_principal(identity.principal)
        try:
            await self._serve(channel, identity)
        finally:
            del self._streams[session]
            await channel.close()

    async def post(
        self,
        send: AsgiSend,
        session: str,
        body: bytes,
        headers: Sequence[Header],
        identity: RequestIdentity,
    ) -> None:
        """Answer a POST by passing its message to the session, which may be in another process. The
        session must belong to the same user."""
        if session in self._streams:
            await self._wait_for_room(session)
        status = self._deliver(session, body, identity)
        if status is None and len(session) == SESSION_ID_CHARS:
            principal = to_builtins(identity.principal, enc_hook=str)
            try:
                status = await self._bus.ask(TOPIC, (session, body, identity.address, principal))
            except TooLarge as error:
                await send_body(send, error.message.encode(), 413, headers, kind=TEXT)
                return
        later = [RETRY_LATER] if status == 503 else []
        await send_body(
            send, self._explain(status).encode(), status or 404, [*later, *headers], kind=TEXT
        )

    async def _wait_for_room(self, session: str) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                await self._streams[session][1].drain()
        except TimeoutError:
            pass

    def _on_forwarded(self, payload: Any) -> int | None:
        """Deliver a message that another process forwarded."""
        session, body, address, principal = payload
        return self._deliver(
            session, body, RequestIdentity(address, convert(principal, Principal | None))
        )

    def _deliver(self, session: str, body: bytes, identity: RequestIdentity) -> int | None:
        """Deliver a message and return the status. Return None if the session is not in this
        process or belongs to another user."""
        if session not in self._streams:
            return None
        stream, channel, principal_digest = self._streams[session]
        if stream.deliver is None or principal_digest != digest_principal(identity.principal):
            return None
        if channel.full:
            return 503
        channel.identity = identity
        limit = self._limits.max_body
        stream.deliver(body if len(body) <= limit else TooLong(body[:HEAD_BYTES], limit))
        return 202

    def _explain(self, status: int | None) -> str:
        if status == 202:
            return "Accepted"
        if status is not None:
            return "The client is not reading this session's event stream. Read it, then retry."
        text = "This session does not exist or has ended. Open a new one with GET."
        if self._bus.alone:
            text += " If the server runs several processes, use workers= or a shared bus."
        return text


class _SseStream:
    """The server's end of an event stream, over ASGI."""

    network = HTTP

    def __init__(
        self,
        receive: AsgiReceive,
        send: AsgiSend,
        endpoint: str,
        keepalive: float,
        headers: Sequence[Header],
    ) -> None:
        self._receive, self._send, self._endpoint = receive, send, endpoint
        self._keepalive, self._headers = keepalive, headers
        self.deliver: Receive | None = None
        """The receiver of posted messages, or None while the client is not connected."""

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Send the `endpoint` event, then wait until the client disconnects."""
        self.deliver = receive
        await begin_stream(self._send, list(self._headers))
        await self._send_chunk(event(self._endpoint.encode(), name="endpoint"))
        keepalive = asyncio.get_running_loop().create_task(self._send_keepalives())
        try:
            await wait_disconnected(self._receive)
        finally:
            self.deliver = None
            keepalive.cancel()

    async def write(self, data: bytes) -> None:
        """Send one event."""
        await self._send_chunk(event(data, name="message"))

    async def close(self) -> None:
        """End the response if it has begun and the client is still connected."""
        if self.deliver is not None:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_chunk(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _send_keepalives(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._keepalive)
                await self._send_chunk(COMMENT)
        except Exception:
            pass  # the client has disconnected; `listen` notices it, too


# client


async def connect_sse(transport: "HttpTransport", limits: Limits, timeout: float) -> Channel:
    """Open a server's event stream. Headers and credentials are sent only to the origin of the
    server's URL."""
    name = transport.shown
    reply: HttpReply | None = None
    try:
        async with asyncio.timeout(timeout):
            reply, url = await _get(transport, name)
            chunks = reply.read_chunks()
            events = EventStreamParser(limits.incoming)
            endpoint, early = await _endpoint(chunks, events, url, name)
        stream = _SseClientStream(transport, reply, chunks, endpoint, events, early, timeout)
        reply = None
        return StreamAdapter(stream, limits)
    except TimeoutError:
        raise ConnectFailed(f"{name}: no `endpoint` event within {timeout:g} s") from None
    except ConnectionClosed as problem:
        raise ConnectFailed(str(problem), transient=True) from None
    finally:
        if reply is not None:
            reply.close()


async def _get(transport: "HttpTransport", name: str) -> "tuple[HttpReply, str]":
    """Open the event stream. Return it with its URL. Follow redirects only within the same
    origin."""
    url = transport.url
    for _ in range(MAX_REDIRECTS):
        reply = await transport.exchange(
            "GET", url, {"Accept": EVENT_STREAM, "Cache-Control": "no-store"}
        )
        if reply.status == 200 and reply.content_type == EVENT_STREAM:
            return reply, url
        reply.close()
        location = reply.headers.get("location")
        if location is None or not 300 < reply.status < 400:
            break
        url = _resolve_same_origin(
            url, location, f"{name}: refused an HTTP {reply.status} redirect to"
        )
    if reply.status in AUTH_STATUSES:
        raise explain_refusal(name, reply.get_head(), transport.headers)
    outcome = f"HTTP {reply.status} {reply.reason}".rstrip()
    if reply.status == 200:
        outcome += f" with {reply.content_type or 'no Content-Type'}"
    raise ConnectFailed(
        f"{name}: expected an event stream, got {outcome}. Is this the URL of an HTTP+SSE server?"
    )


async def _endpoint(
    chunks: AsyncIterator[bytes], events: EventStreamParser, url: str, name: str
) -> tuple[str, list[Event]]:
    """Return the URL for POSTs, and the events that followed it in the same chunk."""
    async for chunk in chunks:
        arrived = events.feed(chunk)
        for index, item in enumerate(arrived):
            if item.name == "endpoint":
                address = item.data.decode(errors="replace") if isinstance(item.data, bytes) else ""
                return _resolve_same_origin(
                    url, address, f"{name}: rejected the message endpoint"
                ), arrived[index + 1 :]
    raise ConnectFailed(f"{name}: the event stream ended before its `endpoint` event")


def _resolve_same_origin(base: str, address: str, complaint: str) -> str:
    """Resolve a URL that the server sent. The URL must have the same origin, so that no other
    server sees the credentials or the messages."""
    from urllib.parse import urljoin

    from .client.http_transport import check_url

    try:
        target = check_url(urljoin(base, address))
        if split_origin(target) == split_origin(base):
            return target
    except ValueError:  # ConfigError is a ValueError
        pass
    raise ConnectFailed(f"{complaint} {address[:200]!r}, which has a different origin")


class _SseClientStream:
    """The client's end of an event stream, with the URL for POSTs."""

    network = HTTP

    def __init__(
        self,
        transport: "HttpTransport",
        reply: "HttpReply",
        chunks: AsyncIterator[bytes],
        endpoint: str,
        events: EventStreamParser,
        early: list[Event],
        timeout: float,
    ) -> None:
        self._transport, self._reply, self._chunks = transport, reply, chunks
        self._endpoint, self._events, self._early = endpoint, events, early
        self._name, self._timeout = reply.url, timeout
        self._receive: Receive

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Deliver messages until the stream ends, which is always an error in this transport."""
        self._receive = receive
        self._deliver_events(self._early)
        async for chunk in self._chunks:
            self._deliver_events(self._events.feed(chunk))
        raise ConnectionClosed(f"{self._name}: the server ended the event stream")

    def _deliver_events(self, events: list[Event]) -> None:
        for item in events:
            if item.name == "message" and item.data:
                self._receive(item.data)

    async def write(self, data: bytes) -> None:
        """Post one message. The adapter sends one message at a time. A rejection affects only that
        message, unless the session is lost."""
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    status, outcome, pause = await self._post(data)
                    if pause is None:
                        break
                    await asyncio.sleep(pause)
        except TimeoutError:
            raise ConnectionClosed(
                f"{self._name}: the server did not accept a message within {self._timeout:g} s"
            ) from None
        except ConnectionClosed:
            raise
        except DovetailError as problem:  # raised by the credentials
            self._report_lost(data, problem)
            return
        if status in (404, 410):
            raise ConnectionClosed(
                f"{self._name}: this session no longer exists on the server: {outcome}"
            )
        if status >= 300:
            self._report_lost(
                data,
                ERRORS_BY_STATUS.get(status, InternalError)(
                    f"{self._name}: the server rejected a message: {outcome}"
                ),
            )

    async def _post(self, data: bytes) -> tuple[int, str, float | None]:
        """Post the data. Return the status, an explanation, and the number of seconds to wait
        before a retry, if any."""
        headers = {"Content-Type": "application/json"}
        async with await self._transport.exchange("POST", self._endpoint, headers, data) as reply:
            outcome = f"HTTP {reply.status} {reply.reason}".rstrip()
            if reply.status >= 300:
                found = await anext(reply.read_chunks(), b"")
                text = found[:200].decode(errors="replace").strip()
                outcome += f": {text}" if text else ""
        return reply.status, outcome, reply.retry_after

    def _report_lost(self, data: bytes, error: DovetailError) -> None:
        try:
            message = decode(data)
        except Malformed:
            return
        if isinstance(message, Request):
            self._receive(LostReply(message.id, error))

    async def close(self) -> None:
        """Close the stream. The server notices the closed stream and ends the session."""
        self._reply.close()
