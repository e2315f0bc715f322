"""The WebSocket transport for servers and clients. Each message is a text frame, and the
subprotocol is `mcp`. Binary frames are also accepted.

**Pings** detect a peer that has vanished. In the client, the WebSocket library sends them every
`PING_SECONDS`; in the server, the ASGI server sends them.

**Compression** is off. Compressing a few hundred bytes of JSON saves little, each connection would
need its own windows, and a small frame could expand into a large message before its size is known.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import ConfigError, ConnectFailed, ConnectionClosed, DovetailError, missing_extra
from ..jsonrpc.framing import HEAD_BYTES, TooLong
from ..limits import Limits
from ..logs import get_logger
from ..net import is_loopback, shown_url, split_origin
from ..ports import WEBSOCKET, Channel, Credentials, HttpResponse, Receive, Tap
from ..text import one_line
from .send_with_auth import (
    AUTH_STATUSES,
    RESTARTING_STATUSES,
    explain_refusal,
    make_head,
    send_with_auth,
)
from .stream_adapter import AsgiReceive, AsgiSend, Drain, StreamAdapter, describe_os_error

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import ConnectionClosed as Closed, InvalidStatus

    from ..net import PeerAddresses

Handshake: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Any]]
"""A function that opens a connection with the headers of the credentials."""
SUBPROTOCOL: Final = "mcp"
PING_SECONDS: Final = 20.0
"""The number of seconds between the client's pings, which is also the time limit for a pong."""
NORMAL, GOING_AWAY, POLICY_VIOLATION = 1000, 1001, 1008
CLOSE_REASONS: Final = {
    1002: "protocol error",
    1005: "no reason given",
    1006: "without a close frame",
    1007: "text that is not UTF-8",
    1008: "policy violation",
    1009: "message too long",
    1011: "internal error",
    1012: "restarting",
    1013: "overloaded",
}
"""The meaning of a close code that comes without a reason."""


# server side


async def accept(
    scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend, limits: Limits
) -> Channel | None:
    """Accept the opening handshake in an ASGI scope. Return None if the handshake was rejected or
    the client has already disconnected."""
    if (await receive())["type"] != "websocket.connect":
        return None
    offered = scope.get("subprotocols") or ()
    if offered and SUBPROTOCOL not in offered:
        others = ", ".join(offered)
        await refuse(
            scope,
            send,
            400,
            f"This server supports the subprotocol {SUBPROTOCOL!r}; the client offered {others}",
        )
        return None
    await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None})
    return StreamAdapter(_AsgiWebSocket(receive, send, limits.max_body), limits)


async def refuse(
    scope: Mapping[str, Any],
    send: AsgiSend,
    status: int,
    reason: str,
    more: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Reject a client before `accept`, with an HTTP status if the ASGI server supports it,
    otherwise with a close code."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send(
            {
                "type": "websocket.close",
                "code": POLICY_VIOLATION,
                "reason": reason.encode()[:123].decode(errors="ignore"),
            }
        )
        return
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(reason.encode())),
    ]
    headers += more
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reason.encode()})


class _AsgiWebSocket:
    """An accepted WebSocket connection on an ASGI server. The ASGI server's message limit should be
    slightly higher than ours, because the ASGI server can only close the connection, while we can
    send an error."""

    network = WEBSOCKET

    def __init__(self, receive: AsgiReceive, send: AsgiSend, limit: int) -> None:
        self._receive, self._send, self._limit = receive, send, limit
        self._gone = False

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Deliver messages until the client closes the connection."""
        while (event := await self._receive())["type"] != "websocket.disconnect":
            text = event.get("text")
            data: bytes = event["bytes"] if text is None else text.encode()
            receive(data if len(data) <= self._limit else TooLong(data[:HEAD_BYTES], self._limit))
            await drain()
        self._gone = True
        code = event.get("code", 1005)
        if code not in (NORMAL, GOING_AWAY):
            raise ConnectionClosed(
                f"The client closed the connection ({_describe_close(code, event.get('reason'))})"
            )

    async def write(self, data: bytes) -> None:
        """Send one text frame."""
        await self._send({"type": "websocket.send", "text": data.decode()})

    async def close(self) -> None:
        """Send a close frame, unless the client has already disconnected."""
        if not self._gone:
            await self._send({"type": "websocket.close", "code": GOING_AWAY})


# client side


_handshake_log = get_logger("transports.handshake")
_handshake_log.setLevel(logging.INFO)  # at DEBUG, the library logs all headers, including the token


async def connect(
    url: str,
    limits: Limits,
    *,
    headers: Mapping[str, str] | None = None,
    verify: Any = True,
    proxy: str | None = None,
    timeout: float,
    auth: Credentials | None = None,
    peers: "PeerAddresses | None" = None,
    shown: str | None = None,
    tap: Tap | None = None,
) -> Channel:
    """Open a WebSocket connection.

    `verify` is True, False, an SSL context, or the path of trusted certificates. `proxy` overrides
    the proxy from the environment. `peers` records the server's address. `shown` is the URL as it
    appears in messages (default: the URL without its query). `tap` sees the opening handshake.
    """
    from urllib.request import getproxies

    from .http.client.connect import make_ssl_context

    try:
        from websockets.asyncio import client
        from websockets.exceptions import InvalidStatus
        from websockets.typing import Subprotocol
    except ImportError:
        raise missing_extra(f"{shown or shown_url(url)}: WebSocket", "http") from None

    class ConnectWithoutRedirects(client.connect):
        def process_redirect(self, exc: Exception) -> Exception:
            return exc  # the user's headers must not be sent to a URL that the server chooses

    # Credentials are sent to this machine without TLS, so no proxy may see them.
    is_local = is_loopback(split_origin(url)[1])
    is_direct = proxy is None and (is_local or not getproxies())
    """Whether the peer is the server; otherwise it may be a proxy."""

    class RecordingConnection(client.ClientConnection):
        def connection_made(self, transport: Any) -> None:
            if peers is not None and is_direct and (peer := transport.get_extra_info("peername")):
                peers.record(peer[0])
            super().connection_made(transport)

    name = shown or shown_url(url)
    secure: dict[str, Any] = {"ssl": make_ssl_context(verify)} if url.startswith("wss:") else {}

    async def open_socket(auth_headers: Mapping[str, str]) -> "ClientConnection | InvalidStatus":
        try:
            return await ConnectWithoutRedirects(
                url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                additional_headers={**auth_headers, **(headers or {})},
                proxy=proxy or (None if is_local else True),
                open_timeout=timeout,
                ping_interval=PING_SECONDS,
                ping_timeout=PING_SECONDS,
                close_timeout=limits.shutdown,
                max_size=limits.incoming,
                logger=_handshake_log,
                create_connection=RecordingConnection,
                **secure,
            )
        except InvalidStatus as refusal:
            return refusal

    shake_hands: Handshake = open_socket
    if tap is not None:
        shake_hands = _tap_handshake(open_socket, tap, url, headers or {})
    with _translate_errors(name, timeout):
        socket = await send_with_auth(
            auth, "GET", url.replace("ws", "http", 1), shake_hands, _head, lambda result: None
        )
    if isinstance(socket, InvalidStatus):
        raise _refusal(name, socket, headers or {})
    return StreamAdapter(_ClientWebSocket(socket, name, limits), limits)


def _tap_handshake(
    shake_hands: Handshake, tap: Tap, url: str, headers: Mapping[str, str]
) -> Handshake:
    """Return a function that also reports the opening handshake to a tap."""
    from .http.client.tapped_client import ExchangeReport

    async def shake_hands_and_report(auth_headers: Mapping[str, str]) -> Any:
        sent = {name.lower(): value for name, value in {**auth_headers, **headers}.items()}
        report = ExchangeReport(tap, "GET", url, sent)
        try:
            result = await shake_hands(auth_headers)
        except BaseException as problem:
            report.fail(describe_os_error(problem) if isinstance(problem, OSError) else problem)
            raise
        head = _head(result)
        report.succeed(head.status, head.headers)
        return result

    return shake_hands_and_report


@contextmanager
def _translate_errors(name: str, timeout: float) -> Iterator[None]:
    """Translate the library's exceptions into our own."""
    from socket import gaierror
    from ssl import SSLError

    from websockets.exceptions import InvalidURI, WebSocketException

    try:
        yield
    except InvalidURI as problem:
        raise ConfigError(f"{name} is not a WebSocket URL: {problem.msg}") from None
    except DovetailError:
        raise  # from the credentials, whose TimedOut does not mean that the handshake timed out
    except TimeoutError:
        text = f"{name}: could not connect within {timeout:g} s"
        raise ConnectFailed(text, transient=True) from None
    except OSError as problem:
        lasting = isinstance(problem, gaierror | SSLError)  # an unknown host, or TLS
        text = f"{name}: {describe_os_error(problem)}"
        raise ConnectFailed(text, transient=not lasting) from None
    except (WebSocketException, ImportError, ValueError, EOFError) as problem:
        raise ConnectFailed(f"{name}: the opening handshake failed: {problem}") from None


class _ClientWebSocket:
    """A connection from the `websockets` library."""

    network = WEBSOCKET

    def __init__(self, socket: "ClientConnection", url: str, limits: Limits) -> None:
        self._socket, self._url, self._limits = socket, url, limits

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Deliver messages until the server closes the connection."""
        from websockets.exceptions import ConnectionClosed as Closed, ConnectionClosedOK

        try:
            while True:
                receive(await self._socket.recv(decode=False))
        except ConnectionClosedOK:
            return
        except Closed as closed:
            raise ConnectionClosed(f"{self._url}: {self._describe_end(closed)}") from None

    def _describe_end(self, closed: "Closed") -> str:
        ours = None if closed.rcvd_then_sent else closed.sent
        if ours is not None and ours.code == 1009:
            return (
                f"the server sent a message larger than {self._limits.incoming} bytes "
                "(Limits.incoming)"
            )
        if ours is not None and ours.code == 1011:
            return f"the server did not answer a ping within {PING_SECONDS:g} s"
        if ours is not None:
            reason = _describe_close(ours.code, ours.reason)
            return f"the server violated the WebSocket protocol ({reason})"
        if closed.rcvd is None:
            return f"the server closed the connection ({CLOSE_REASONS[1006]})"
        reason = _describe_close(closed.rcvd.code, closed.rcvd.reason)
        return f"the server closed the connection ({reason})"

    async def write(self, data: bytes) -> None:
        """Send one text frame."""
        await self._socket.send(data, text=True)

    async def close(self) -> None:
        """Send a close frame. If the server does not answer the frame, abort the connection."""
        try:
            await self._socket.close(NORMAL)
        finally:
            self._socket.transport.abort()


def _describe_close(code: int, reason: str | None) -> str:
    meaning = reason or CLOSE_REASONS.get(code, "")
    return f"code {code}: {meaning}" if meaning else f"code {code}"


def _head(result: Any) -> HttpResponse:
    """Return the status and headers of the response to the handshake."""
    return make_head(result.response.status_code, result.response.headers.raw_items())


def _refusal(name: str, refusal: "InvalidStatus", user_headers: Iterable[str]) -> DovetailError:
    """Return the error for a handshake that the server rejected with an HTTP status."""
    response = refusal.response
    text = one_line((response.body or b"")[:200].decode(errors="replace"))
    if response.status_code in AUTH_STATUSES:
        return explain_refusal(name, _head(refusal), user_headers, text)
    status = (
        f"{name}: the server refused the connection with HTTP {response.status_code} "
        f"{one_line(response.reason_phrase)}"
    ).rstrip()
    if "Location" in response.headers:
        where = one_line(response.headers["Location"])
        return ConnectFailed(f"{status}. It redirects to {where}. Use that URL if you trust it.")
    return ConnectFailed(
        f"{status}: {text}" if text else status,
        transient=response.status_code in RESTARTING_STATUSES,
    )
