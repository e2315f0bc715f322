"""The old pair of HTTP and server-sent events, both sides. It has been superseded; this file can be
deleted with it.

A client opens an event stream with GET. The first event, `endpoint`, names the address to POST
messages to; whatever the server says comes as `message` events. The stream is the conversation:
when it ends, so does that, and nothing is resumed.

    GET /sse          ──→  Pairs.open  ──→  event: endpoint, data: /message?session_id=…
    POST /message?…   ──→  Pairs.post  ──→  202, and the message goes where that stream is held

A POST may land in a process that does not hold the stream; it is then passed on over the bus. Each
comes with a token of its own: it must be of the user who opened the stream, and its scopes are
those of its message. A client that posts without reading is kept waiting, then put off: what waits
to be read is bounded. Which revision is spoken does not matter here.
https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from io import BytesIO
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import convert, to_builtins

from ...errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InternalError,
    Overloaded,
    TooLarge,
    Unauthorized,
)
from ...jsonrpc.codec import Malformed, decode
from ...jsonrpc.framing import HEAD_BYTES, TooLong
from ...jsonrpc.messages import Request
from ...limits import Limits
from ...net import without_password
from ...ports import HTTP, Bus, Channel, Credentials, LostReply, Principal, Receive, RequestIdentity
from ..send_with_auth import AUTH_STATUSES, explain_refusal, send_with_auth
from ..stream_adapter import AsgiReceive, AsgiSend, Drain, StreamAdapter, describe_os_error
from .event_stream import Event, EventStreamParser, comment, event
from .server.asgi import TEXT, begin_stream, reply
from .server.sessions import who_is

if TYPE_CHECKING:
    import aiohttp

Header: TypeAlias = tuple[bytes, bytes]

SESSION: Final = "session_id"
"""The query parameter that says which conversation a POST belongs to."""
TOKEN: Final = 32
LETTERS: Final = len(token_urlsafe(TOKEN))
TOPIC: Final = "sse"
NOBODY: Final = RequestIdentity()
PATIENCE: Final = 10.0
"""Seconds that a POST waits for a client to read what it has been sent."""
LATER: Final = (b"retry-after", b"1")
REDIRECTS: Final = 3
REFUSALS: Final[Mapping[int, type[DovetailError]]] = {
    401: Unauthorized, 403: Unauthorized, 413: TooLarge, 429: Overloaded, 503: Overloaded,
}  # fmt: skip
"""What a status means to whoever sent the message; anything else is a failure of the server."""


# the server's side


class SseServer:
    """The open pairs of one application. `serve` holds a conversation over a channel until it
    ends."""

    def __init__(
        self,
        limits: Limits,
        serve: Callable[[Channel, RequestIdentity], Awaitable[None]],
        bus: Bus,
        *,
        limit: int,
        keepalive: float,
    ) -> None:
        self._limits, self._serve, self._bus = limits, serve, bus
        self._limit, self._keepalive = limit, keepalive
        self._pairs: dict[str, tuple[_SseStream, StreamAdapter, bytes]] = {}
        bus.on(TOPIC, self._take)

    def __len__(self) -> int:
        return len(self._pairs)

    async def open(
        self,
        scope: Mapping[str, Any],
        receive: AsgiReceive,
        send: AsgiSend,
        message_path: str,
        headers: Sequence[Header] = (),
        visitor: RequestIdentity = NOBODY,
    ) -> None:
        """Answer a GET: hold a conversation until the client goes away. `message_path` is where its
        POSTs go."""
        from urllib.parse import quote

        if len(self._pairs) >= self._limit:
            text = f"{self._limit} event streams are open, which is the limit; try again later"
            await reply(send, text.encode(), 503, [LATER, *headers], kind=TEXT)
            return
        session = token_urlsafe(TOKEN)
        endpoint = (
            f"{quote(scope.get('root_path', '').rstrip('/') + message_path)}?{SESSION}={session}"
        )
        stream = _SseStream(receive, send, endpoint, self._keepalive, headers)
        channel = StreamAdapter(stream, self._limits)
        channel.identity = visitor
        self._pairs[session] = stream, channel, who_is(visitor.principal)
        try:
            await self._serve(channel, visitor)
        finally:
            del self._pairs[session]
            await channel.close()

    async def post(
        self,
        send: AsgiSend,
        session: str,
        body: bytes,
        headers: Sequence[Header] = (),
        visitor: RequestIdentity = NOBODY,
    ) -> None:
        """Answer a POST: the message goes to its conversation, wherever that is held, if it is
        whose that is."""
        if session in self._pairs:
            await self._room(session)
        status = self._deliver(session, body, visitor)
        if status is None and len(session) == LETTERS:
            principal = to_builtins(visitor.principal, enc_hook=str)
            status = await self._bus.ask(TOPIC, (session, body, visitor.address, principal))
        later = [LATER] if status == 503 else []
        await reply(
            send, self._words(status).encode(), status or 404, [*later, *headers], kind=TEXT
        )

    async def _room(self, session: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._pairs[session][1].drain()
        except TimeoutError:
            pass

    def _take(self, payload: Any) -> int | None:
        """Deliver a message that was passed on."""
        session, body, address, principal = payload
        return self._deliver(
            session, body, RequestIdentity(address, convert(principal, Principal | None))
        )

    def _deliver(self, session: str, body: bytes, visitor: RequestIdentity) -> int | None:
        """Deliver a message; None where its conversation is not held here, or is another user's."""
        stream, channel, who = self._pairs.get(session, (None, None, b""))
        if (
            stream is None
            or channel is None
            or stream.deliver is None
            or who != who_is(visitor.principal)
        ):
            return None
        if channel.full:
            return 503
        channel.identity = visitor
        stream.deliver(body if len(body) <= self._limits.incoming else TooLong(body[:HEAD_BYTES]))
        return 202

    def _words(self, status: int | None) -> str:
        if status == 202:
            return "Accepted"
        if status is not None:
            return (
                "The event stream of this conversation is not being read; read it, then try again"
            )
        gone = (
            "There is no such conversation: it has ended, or never began; open a new one with GET"
        )
        alone = ". If the server has several processes, give it workers= or a bus that they share"
        return gone + alone if self._bus.alone else gone


class _SseStream:
    """An open event stream of an ASGI server."""

    network = HTTP

    def __init__(
        self,
        receive: AsgiReceive,
        send: AsgiSend,
        endpoint: str,
        keepalive: float,
        headers: Sequence[Header],
    ) -> None:
        self._receive, self._send, self._endpoint, self._keepalive = (
            receive,
            send,
            endpoint,
            keepalive,
        )
        self._headers = headers
        self.deliver: Receive | None = None
        """Takes the messages that are posted, as long as the client is there."""

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Say where to post, now that somebody listens; then wait until the client goes away."""
        self.deliver = receive
        await begin_stream(self._send, list(self._headers))
        await self._say(event(self._endpoint.encode(), name="endpoint"))
        beating = asyncio.get_running_loop().create_task(self._beat())
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        finally:
            self.deliver = None
            beating.cancel()

    async def write(self, data: bytes) -> None:
        """Send one event."""
        await self._say(event(data, name="message"))

    async def leave(self) -> None:
        """End the response, where it began and somebody still hears it."""
        if self.deliver is not None:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _say(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _beat(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._keepalive)
                await self._say(comment())
        except Exception:
            pass  # the client is gone, which the listener hears too


# the client's side


async def connect_sse(
    session: "aiohttp.ClientSession",
    url: str,
    headers: Mapping[str, str],
    limits: Limits,
    timeout: float,
    auth: Credentials | None = None,
) -> Channel:
    """Open the pair behind a URL. The headers and what vouches for us go to that origin and no
    other."""
    import aiohttp

    name = without_password(url)
    response: aiohttp.ClientResponse | None = None
    try:
        async with asyncio.timeout(timeout):
            response = await _get(session, url, headers, name, auth)
            events = EventStreamParser(limits.incoming)
            endpoint, early = await _endpoint(response, events, name)
            way = _SseClientStream(
                session, response, endpoint, headers, events, early, name, timeout, auth
            )
            response = None
            return StreamAdapter(way, limits)
    except aiohttp.InvalidURL:
        raise ConfigError(f"{name} is no URL") from None
    except TimeoutError:
        raise ConnectFailed(f"{name}: no `endpoint` event within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as problem:
        raise ConnectFailed(f"{name}: {_why(problem)}") from None
    finally:
        if response is not None:
            response.close()


async def _get(
    session: "aiohttp.ClientSession",
    url: str,
    headers: Mapping[str, str],
    name: str,
    auth: Credentials | None,
) -> "aiohttp.ClientResponse":
    """The event stream. Redirects are followed by hand: within the origin, and not for long."""
    from aiohttp import ClientTimeout
    from yarl import URL

    from .client.http_transport import head, let_go

    async def send(vouching: Mapping[str, str]) -> "aiohttp.ClientResponse":
        return await session.get(
            target,
            headers={
                **vouching,
                **headers,
                "Accept": "text/event-stream",
                "Cache-Control": "no-store",
            },
            timeout=ClientTimeout(total=None),
            allow_redirects=False,
        )

    target = URL(url)
    for _ in range(REDIRECTS):
        response = await send_with_auth(auth, "GET", str(target), send, head, let_go)
        if response.ok and response.content_type == "text/event-stream" and response.status == 200:
            return response
        response.close()
        location = response.headers.get("Location")
        if location is None or not 300 < response.status < 400:
            break
        target = _within(target, location, f"{name}: HTTP {response.status} sends us on to")
    if response.status in AUTH_STATUSES:
        raise explain_refusal(name, head(response), headers)
    said = f"HTTP {response.status} {response.reason or ''}".rstrip()
    if response.status == 200:
        said += f" with {response.content_type}"
    raise ConnectFailed(
        f"{name}: asked for an event stream, got {said}; is this the address of an SSE server?"
    )


async def _endpoint(
    response: "aiohttp.ClientResponse", events: EventStreamParser, name: str
) -> tuple[Any, list[Event]]:
    """Where to post, and what came in the same breath."""
    async for chunk in response.content.iter_any():
        heard = events.feed(chunk)
        for number, one in enumerate(heard):
            if one.name == "endpoint":
                address = one.data.decode(errors="replace") if isinstance(one.data, bytes) else ""
                return _within(
                    response.url, address, f"{name}: the server wants messages posted to"
                ), heard[number + 1 :]
    raise ConnectFailed(f"{name}: the event stream ended before it named an endpoint")


def _within(base: Any, address: str, complaint: str) -> Any:
    """An address that a server gave, if it is of the same origin: nobody else may see the
    credentials, or the messages."""
    from yarl import URL

    try:
        target = base.join(URL(address, encoded=True))
        if target.origin() == base.origin():
            return target
    except ValueError:
        pass
    raise ConnectFailed(f"{complaint} {address[:200]!r}, which is not of the same origin")


class _SseClientStream:
    """An open event stream of aiohttp, and where to post."""

    network = HTTP

    def __init__(
        self,
        session: "aiohttp.ClientSession",
        response: "aiohttp.ClientResponse",
        endpoint: Any,
        headers: Mapping[str, str],
        events: EventStreamParser,
        early: list[Event],
        name: str,
        timeout: float,
        auth: Credentials | None,
    ) -> None:
        self._session, self._response, self._endpoint, self._auth = (
            session,
            response,
            endpoint,
            auth,
        )
        self._headers = {**headers, "Content-Type": "application/json"}
        self._events, self._early = events, early
        self._name, self._timeout = name, timeout
        self._receive: Receive

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Deliver until the stream ends, which here is never in good order."""
        from aiohttp import ClientError

        self._receive = receive
        self._hear(self._early)
        try:
            async for chunk in self._response.content.iter_any():
                self._hear(self._events.feed(chunk))
        except (ClientError, OSError) as problem:
            raise ConnectionClosed(
                f"{self._name}: the event stream broke: {_why(problem)}"
            ) from None
        raise ConnectionClosed(f"{self._name}: the server ended the event stream")

    def _hear(self, events: list[Event]) -> None:
        for one in events:
            if one.name == "message" and one.data:
                self._receive(one.data)

    async def write(self, data: bytes) -> None:
        """Post one message, each after the one before: what is refused is lost alone, unless
        nothing works any more."""
        from aiohttp import ClientError

        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    status, words, pause = await self._post(data)
                    if pause is None:
                        break
                    await asyncio.sleep(pause)
        except TimeoutError:
            raise ConnectionClosed(
                f"{self._name}: a message was not taken within {self._timeout:g} s"
            ) from None
        except (ClientError, OSError) as problem:
            raise ConnectionClosed(
                f"{self._name}: a message could not be posted: {_why(problem)}"
            ) from None
        except DovetailError as problem:  # of the credentials
            self._lose(data, problem)
            return
        if status in (404, 410):
            raise ConnectionClosed(
                f"{self._name}: the server has forgotten this conversation: {words}"
            )
        if status >= 300:
            self._lose(
                data,
                REFUSALS.get(status, InternalError)(
                    f"{self._name}: the server refused a message: {words}"
                ),
            )

    async def _post(self, data: bytes) -> tuple[int, str, float | None]:
        """The status, what was said with it, and when to try again if that may help."""
        from .client.http_transport import head, let_go

        async def send(vouching: Mapping[str, str]) -> "aiohttp.ClientResponse":
            body = BytesIO(data)  # which aiohttp sends in pieces
            headers = {**vouching, **self._headers}
            return await self._session.post(
                self._endpoint, data=body, headers=headers, allow_redirects=False
            )

        async with await send_with_auth(
            self._auth, "POST", str(self._endpoint), send, head, let_go
        ) as response:
            said = (
                (await response.content.read(200)).decode(errors="replace").strip()
                if response.status >= 300
                else ""
            )
            words = f"HTTP {response.status} {response.reason or ''}".rstrip() + (
                f": {said}" if said else ""
            )
            later = response.headers.get("Retry-After", "")
            pause = float(later) if response.status in (429, 503) and later.isdecimal() else None
            return response.status, words, pause

    def _lose(self, data: bytes, error: DovetailError) -> None:
        try:
            message = decode(data)
        except Malformed:
            return
        if isinstance(message, Request):
            self._receive(LostReply(message.id, error))

    async def leave(self) -> None:
        """Let go of the stream, which tells the server."""
        self._response.close()


def _why(problem: Exception) -> str:
    inner = (
        getattr(problem, "certificate_error", None) or getattr(problem, "os_error", None) or problem
    )
    return (
        describe_os_error(inner)
        if isinstance(inner, OSError)
        else str(inner) or type(inner).__name__
    )
