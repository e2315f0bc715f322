"""WebSocket, both sides: a message is a text frame (a binary one is read just the same), the
subprotocol is `mcp`.

**Pings** are the business of the WebSocket library below, ours (`KEEPALIVE`) and the server's: a
peer that vanished without a word is noticed. Messages are not compressed. JSON of a few hundred
bytes gains nothing from it, each connection would hold windows of its own, and a small frame could
grow into a large message before its size is known.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError, ConnectFailed, ConnectionClosed, DovetailError, missing_extra
from ..jsonrpc.framing import HEAD_BYTES, TooLong
from ..limits import Limits
from ..net import without_password
from ..ports import WEBSOCKET, Channel, Credentials, HttpResponse, Receive
from .send_with_auth import AUTH_STATUSES, explain_refusal, send_with_auth
from .stream_adapter import AsgiReceive, AsgiSend, Drain, StreamAdapter, describe_os_error

if TYPE_CHECKING:
    import ssl

    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import ConnectionClosed as Closed
    from websockets.exceptions import InvalidStatus

    from ..net import PeerAddresses

SUBPROTOCOL: Final = "mcp"
KEEPALIVE: Final = 20.0
"""Seconds between the client's pings, and how long it waits for a pong."""
DONE, AWAY, POLICY = 1000, 1001, 1008
SAID: Final = {
    1002: "a protocol error",
    1005: "no reason given",
    1006: "it vanished without a word",
    1007: "text that is not UTF-8",
    1008: "a policy forbids it",
    1009: "a message that is too long",
    1011: "a failure inside",
    1012: "a restart",
    1013: "too much to do",
}
"""What a close code means, where it comes without words of its own."""


# the server's side


async def accept(
    scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend, limits: Limits
) -> Channel | None:
    """Answer the opening handshake of an ASGI scope. None where it was refused, or the client is
    gone already."""
    if (await receive())["type"] != "websocket.connect":
        return None
    offered = scope.get("subprotocols") or ()
    if offered and SUBPROTOCOL not in offered:
        others = ", ".join(offered)
        await refuse(
            scope,
            send,
            400,
            f"The subprotocol here is {SUBPROTOCOL!r}, or none; the client offered {others}",
        )
        return None
    await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None})
    return StreamAdapter(_AsgiWebSocket(receive, send, limits.incoming), limits)


async def refuse(
    scope: Mapping[str, Any],
    send: AsgiSend,
    status: int,
    reason: str,
    more: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Turn a client away before `accept`: with an HTTP status and the reason, where the ASGI server
    can do that."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send(
            {
                "type": "websocket.close",
                "code": POLICY,
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
    """An accepted WebSocket of an ASGI server. The server's own bound on messages is best a little
    above ours: it can only hang up, we can say what was wrong."""

    network = WEBSOCKET

    def __init__(self, receive: AsgiReceive, send: AsgiSend, limit: int) -> None:
        self._receive, self._send, self._limit = receive, send, limit
        self._gone = False

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Deliver until the client hangs up."""
        while (event := await self._receive())["type"] != "websocket.disconnect":
            text = event.get("text")
            data: bytes = event["bytes"] if text is None else text.encode()
            receive(data if len(data) <= self._limit else TooLong(data[:HEAD_BYTES]))
            await drain()
        self._gone = True
        code = event.get("code", 1005)
        if code not in (DONE, AWAY):
            raise ConnectionClosed(f"The client hung up ({_said(code, event.get('reason'))})")

    async def write(self, data: bytes) -> None:
        """Send one text frame."""
        await self._send({"type": "websocket.send", "text": data.decode()})

    async def leave(self) -> None:
        """Say that the server goes away."""
        if not self._gone:
            await self._send({"type": "websocket.close", "code": AWAY})


# the client's side


_quiet = logging.getLogger("dovetail.transports.handshake")
_quiet.setLevel(logging.INFO)  # below that, the library writes down all headers, and so the token


async def connect(
    url: str,
    limits: Limits,
    *,
    headers: Mapping[str, str] | None = None,
    verify: "ssl.SSLContext | str | os.PathLike[str] | bool" = True,
    proxy: str | None = None,
    timeout: float,
    auth: Credentials | None = None,
    peers: "PeerAddresses | None" = None,
) -> Channel:
    """Open a WebSocket. `verify` is a context, certificates to trust (a file or a folder), or
    whether to verify at all; `proxy` is a URL, in place of what the environment says; `peers` notes
    where the server is found."""
    from urllib.request import getproxies

    try:
        from websockets.asyncio import client
        from websockets.exceptions import InvalidStatus
        from websockets.typing import Subprotocol
    except ImportError:
        raise missing_extra(f"{without_password(url)}: WebSocket", "http") from None

    class Direct(client.connect):
        def process_redirect(self, exc: Exception) -> Exception:
            # whom the headers are meant for is decided by who gave them, not by who answers
            return exc

    direct = proxy is None and not getproxies()  # else the peer may be a proxy

    class Noted(client.ClientConnection):
        def connection_made(self, transport: Any) -> None:
            if peers is not None and direct and (peer := transport.get_extra_info("peername")):
                peers.record(peer[0])
            super().connection_made(transport)

    name = without_password(url)
    secure: dict[str, Any] = {"ssl": _context(verify)} if url.startswith("wss:") else {}

    async def shake_hands(vouching: Mapping[str, str]) -> "ClientConnection | InvalidStatus":
        try:
            return await Direct(
                url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                additional_headers={**vouching, **(headers or {})},
                proxy=proxy or True,
                open_timeout=timeout,
                ping_interval=KEEPALIVE,
                ping_timeout=KEEPALIVE,
                close_timeout=limits.shutdown,
                max_size=limits.incoming,
                logger=_quiet,
                create_connection=Noted,
                **secure,
            )
        except InvalidStatus as refusal:
            return refusal

    with _explained(name, timeout):
        socket = await send_with_auth(
            auth, "GET", url.replace("ws", "http", 1), shake_hands, _head, lambda shaken: None
        )
    if isinstance(socket, InvalidStatus):
        raise _refusal(name, socket, headers or {})
    return StreamAdapter(_ClientWebSocket(socket, name, limits), limits)


@contextmanager
def _explained(name: str, timeout: float) -> Iterator[None]:
    """What kept a WebSocket from being opened, as an error of ours."""
    from websockets.exceptions import InvalidURI, WebSocketException

    try:
        yield
    except InvalidURI as problem:
        raise ConfigError(f"{name} is no WebSocket URL: {problem.msg}") from None
    except DovetailError:
        raise  # of the credentials; a TimedOut among them would be taken for ours
    except TimeoutError:
        raise ConnectFailed(f"{name}: no connection within {timeout:g} s") from None
    except OSError as problem:
        raise ConnectFailed(f"{name}: {describe_os_error(problem)}") from None
    except (WebSocketException, ImportError, ValueError, EOFError) as problem:
        raise ConnectFailed(f"{name}: the opening handshake failed: {problem}") from None


class _ClientWebSocket:
    """A connection of the `websockets` library."""

    network = WEBSOCKET

    def __init__(self, socket: "ClientConnection", url: str, limits: Limits) -> None:
        self._socket, self._url, self._limits = socket, url, limits

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Deliver until the server hangs up."""
        from websockets.exceptions import ConnectionClosed as Closed
        from websockets.exceptions import ConnectionClosedOK

        try:
            while True:
                receive(await self._socket.recv(decode=False))
        except ConnectionClosedOK:
            return
        except Closed as closed:
            raise ConnectionClosed(f"{self._url}: {self._how(closed)}") from None

    def _how(self, closed: "Closed") -> str:
        ours = None if closed.rcvd_then_sent else closed.sent
        if ours is not None and ours.code == 1009:
            return (
                "the server sent a message longer than the limit of "
                f"{self._limits.incoming} bytes (Limits.incoming)"
            )
        if ours is not None and ours.code == 1011:
            return f"the server did not answer a ping within {KEEPALIVE:g} s"
        if ours is not None:
            return f"the server broke the WebSocket protocol ({_said(ours.code, ours.reason)})"
        if closed.rcvd is None:
            return f"the server hung up ({SAID[1006]})"
        return f"the server hung up ({_said(closed.rcvd.code, closed.rcvd.reason)})"

    async def write(self, data: bytes) -> None:
        """Send one text frame."""
        await self._socket.send(data, text=True)

    async def leave(self) -> None:
        """Close in good order; a server that does not answer is left."""
        try:
            await self._socket.close(DONE)
        finally:
            self._socket.transport.abort()


def _said(code: int, reason: str | None) -> str:
    words = reason or SAID.get(code, "")
    return f"code {code}: {words}" if words else f"code {code}"


def _head(shaken: Any) -> HttpResponse:
    """Status and headers of what answered the handshake."""
    response = shaken.response
    headers: dict[str, str] = {}
    for name, value in response.headers.raw_items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return HttpResponse(status=response.status_code, headers=headers)


def _refusal(name: str, refusal: "InvalidStatus", given: Iterable[str]) -> DovetailError:
    """A handshake that was answered with a status instead."""
    response = refusal.response
    said = (response.body or b"")[:200].decode(errors="replace").strip()
    if response.status_code in AUTH_STATUSES:
        return explain_refusal(name, _head(refusal), given, said)
    status = (
        f"{name}: the server refused with HTTP {response.status_code} {response.reason_phrase}"
    ).rstrip()
    if "Location" in response.headers:
        where = response.headers["Location"]
        return ConnectFailed(
            f"{status}; it sends us on to {where}: give that address, if you trust it"
        )
    return ConnectFailed(f"{status}: {said}" if said else status)


def _context(verify: "ssl.SSLContext | str | os.PathLike[str] | bool") -> "ssl.SSLContext":
    import ssl

    if isinstance(verify, ssl.SSLContext):
        return verify
    path = None if isinstance(verify, bool) else os.fspath(verify)
    folder = path is not None and os.path.isdir(path)
    try:
        context = ssl.create_default_context(
            cafile=None if folder else path, capath=path if folder else None
        )
    except OSError as problem:
        raise ConfigError(
            f"verify={path!r} holds no certificates: {describe_os_error(problem)}"
        ) from None
    if verify is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
