"""uvicorn with a custom shutdown, bounded connections, and a fast path for the most common request.

At shutdown, the event streams end first, so that nothing waits for clients that have no reason to
disconnect. A signal ends `run` but not the process that called it. The process ends only if
something keeps `run` from returning (such as a tool that ignores its cancellation), or if a second
signal arrives.

A connection is closed if its request head arrives too slowly or is too long, if its client does not
read the response, or if it is idle. Connections above the limit are refused. Trailers are dropped,
because they would become headers that no proxy has seen. A request to upgrade to HTTP/2 is answered
with HTTP/1.1. When a connection is lost, every request on that connection is notified, not only the
last one.

The most common request arrives complete, in one piece and alone on its connection, and is answered
with one JSON body after one iteration of the event loop. Such a request needs neither the ASGI task
that waits for a body nor any further events. The request is therefore held back from uvicorn until
it is complete, and the application starts it directly (`App.begin`). If the call finishes in the
next iteration, the response is written in one piece. Any other request is handed over to uvicorn as
soon as it is recognised, as if it had just arrived. Work that has already started is passed on in
the request's scope. `python -m bench.costs` measured 36 µs of CPU time per call instead of 59.
"""

import asyncio
import re
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..errors import ConfigError
from ..limits import Limits
from ..transports.http.server.endpoint import EARLY_REQUEST, EarlyRequest
from .channel import exit_after, exit_now
from .connection_limit import REFUSAL, ConnectionLimit

MAX_HEAD_BYTES, MAX_HEADERS = 64 * 1024, 200
"""The limits on a request head. Bytes that arrive in the first packet do not count."""
TOO_MANY_HEADERS = f"The request has more than {MAX_HEADERS} headers."
FAST_PATH_SECONDS = 0.5
"""How long a call may run before its request is handed over to uvicorn."""
KEEP_ALIVE_SECONDS = 75
"""How long a connection may be idle."""
VERSIONS = ("1.1", "1.0")
"""The HTTP versions that this server supports."""
PEER_CHECKS_SECONDS = (0.05, 0.2, 1.0, 4.0)
"""How long to wait, after a client stops sending, before each check of whether it has closed the
connection."""
_ABSOLUTE_URI = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE | re.DOTALL)
UPGRADE_HEADERS = (b"upgrade", b"http2-settings")


class ServedApp(Protocol):
    """An ASGI application that can be served: that of a server, or a `PlainApp`."""

    @property
    def limits(self) -> Limits:
        """The limits on connections, and on the time for a shutdown."""

    @property
    def has_websocket(self) -> bool:
        """Whether the application accepts WebSockets."""

    @property
    def fast_path(self) -> bytes | None:
        """The URL of the requests that `begin` accepts, if any."""

    def begin(self, scope: Any, body: bytes) -> EarlyRequest | None:
        """Start answering a complete request, or return None."""

    def count_success(self) -> None:
        """Count a request that `begin` accepted."""

    async def close(self) -> None:
        """End all streams, and then everything else."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""


class _Unacceptable(Exception):
    """Raised if a request head cannot be accepted. Holds the status of the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _HeldRequestParser:
    """The parser's state for a held-back request, saved because the parser may already be at the
    next request."""

    get_method = staticmethod(lambda: b"POST")
    get_http_version = staticmethod(lambda: "1.1")
    should_keep_alive = staticmethod(lambda: True)
    should_upgrade = staticmethod(lambda: False)


class UvicornProtocol(HttpToolsProtocol):
    """One connection, for which `make_protocol_class` sets the application and the limits."""

    served: "ServedApp"
    limits: Limits
    connection_limit: ConnectionLimit
    head_timer: asyncio.TimerHandle | None = None
    """Closes a connection whose request does not arrive or is not completed."""
    write_timer: asyncio.TimerHandle | None = None
    """Closes a connection whose client does not read."""
    received = 0
    """The number of bytes received since the first packet of the request, or since the last piece
    of its body."""
    in_head = in_request = False
    """Whether a head, or a request, has started to arrive but is not complete."""
    ignores_upgrade = False
    """Whether the request asks to upgrade to a protocol that this server does not support."""
    cycles: tuple[Any, ...] = ()
    """The requests on this connection that uvicorn has not finished."""
    is_half_closed = False
    """Whether the client has stopped sending but is still waiting for responses."""
    held: bytes | None = None
    """The body received so far for a request that is held back."""
    begun: EarlyRequest | None = None
    answer_timer: asyncio.TimerHandle | None = None
    """The timer that hands over a request whose call takes long. A call that is answered in time
    does not stop the timer, so that most calls do not need one of their own."""
    handover_time = 0.0
    """When the request that is waiting for its call is handed over."""

    def connection_made(self, transport: Any) -> None:
        """Start the head timeout for a new connection, or refuse the connection."""
        super().connection_made(transport)
        if self.connection_limit.is_exceeded(len(self.connections), transport):
            transport.write(REFUSAL)
            transport.close()
            return
        self.head_timer = self.loop.call_later(self.limits.body_timeout, transport.close)

    def data_received(self, data: bytes) -> None:
        """Parse a packet, then start or refuse the complete requests."""
        self.received += len(data) if self.in_request else 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._ignore_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self.logger.warning("Invalid HTTP request")
            if isinstance(error.__context__, _Unacceptable):
                self._refuse(error.__context__.status, str(error.__context__))
            else:
                self._refuse(400, "The request is not valid HTTP.")
            return
        if self.held is not None:
            self._begin()
        if self.in_request:
            self._check_incomplete()

    def _stop_head_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _check_incomplete(self) -> None:
        """Limit the size of a request head and the time it takes to arrive, and do the same for the
        rest of a refused request."""
        if self.transport.is_closing():
            return
        refused = self.cycle is not None and self.cycle.response_complete
        if self.head_timer is None and (self.in_head or refused):
            self.head_timer = self.loop.call_later(self.limits.body_timeout, self.transport.close)
        if self.in_head and len(self.headers) > MAX_HEADERS:
            self._refuse(400, TOO_MANY_HEADERS)
        elif self.received <= MAX_HEAD_BYTES:
            return
        elif self.in_head:
            self._refuse(400, f"The request head is longer than {MAX_HEAD_BYTES} bytes.")
        else:
            self.transport.abort()

    def _refuse(self, status: int, text: str) -> None:
        """Answer without ASGI, and close the connection."""
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close"
        body = text.encode()
        self.transport.write(STATUS_LINE[status] + head % len(body) + b"\r\n\r\n" + body)
        self.transport.close()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its Upgrade header, which a server may ignore.

        https://www.rfc-editor.org/rfc/rfc9110#section-7.8
        """
        parser = self.parser
        if not any(name == b"upgrade" for name, _ in self.headers):  # it is a CONNECT
            self._refuse(400, "CONNECT is not supported.")
            return
        lines = [b"%b: %b\r\n" % (name, _without_upgrade(value) if name == b"connection" else value)
                 for name, value in self.headers if name not in UPGRADE_HEADERS]  # fmt: skip
        start = b"%b %b HTTP/%b\r\n" % (
            parser.get_method(),
            self.url,
            parser.get_http_version().encode(),
        )
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join([start, *lines, b"\r\n", rest]))

    # callbacks of the parser

    def on_message_begin(self) -> None:
        """Hand over the previous request, because requests are answered in order."""
        if self.held is not None or self.begun is not None:
            self._hand_over()
        # Not in `data_received`: empty lines between requests do not make a connection busy.
        self._unset_keepalive_if_required()
        self.in_head = self.in_request = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, or drop a trailer."""
        if self.in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Hold the request back, or let uvicorn start it."""
        if self.head_timer is not None:
            self._stop_head_timer()
        self.received, self.in_head = 0, False
        version = self._check_head()
        self.ignores_upgrade = self.parser.should_upgrade() and not self._should_upgrade()
        if self.ignores_upgrade:
            return
        if version == "1.1" and self._takes_fast_path():
            self.held = b""
        else:
            self._start_in_uvicorn()

    def _check_head(self) -> str:
        """Check the number of headers and the Host header of a request, and return the HTTP
        version. The host in an absolute URI replaces the header.

        https://www.rfc-editor.org/rfc/rfc9112#section-3.2
        """
        version, headers = self.parser.get_http_version(), self.headers
        if version not in VERSIONS:
            raise _Unacceptable(505, f"HTTP/{version} is not supported. Use HTTP/1.1.")
        if len(headers) > MAX_HEADERS:
            raise _Unacceptable(400, TOO_MANY_HEADERS)
        hosts = []
        for pair in headers:
            if pair[0] == b"host":
                hosts.append(pair)
            elif pair[0] == b"expect":
                self.expect_100_continue = pair[1].lower() == b"100-continue"
        if not hosts and version == "1.1":
            raise _Unacceptable(400, "HTTP/1.1 requires a Host header.")
        if self.url[:1] != b"/" and (found := _ABSOLUTE_URI.fullmatch(self.url)):
            rest = [pair for pair in headers if pair[0] != b"host"]
            headers[:] = [(b"host", found[1]), *hosts[1:], *rest]
            self.url = found[2] if found[2].startswith(b"/") else b"/" + found[2]
        return version

    def on_body(self, body: bytes) -> None:
        """Process a piece of the body."""
        self.received = 0
        if self.held is None:
            super().on_body(body)
        else:
            self.held += body

    def on_message_complete(self) -> None:
        """Record that the request is complete."""
        if self.head_timer is not None:
            self._stop_head_timer()  # of the rest of a refused request
        self.in_request = False
        if self.held is None and not self.ignores_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the next request, or the timer for an idle connection."""
        super().on_response_complete()
        if self.is_half_closed and self._answering() is None:
            self.transport.close()
        if self.in_head:  # of the next request
            self._unset_keepalive_if_required()
        if self.in_request:  # or this one was refused before all of it arrived
            self._check_incomplete()

    def _start_in_uvicorn(self) -> None:
        super().on_headers_complete()
        self.cycles = tuple(
            cycle
            for cycle in {*self.cycles, self.cycle}
            if cycle is not None and not cycle.response_complete
        )

    # the fast path

    def _takes_fast_path(self) -> bool:
        """Return whether the head allows the fast path and nothing else is happening on this
        connection."""
        parser = self.parser
        return (
            self.url == self.served.fast_path
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and parser.get_method() == b"POST"
            and parser.should_keep_alive()
        )

    def _begin(self) -> None:
        """Start the request that is held back, if it is complete."""
        body = self.held
        begun = None if self.in_request or not body else self.served.begin(self.scope, body)
        if begun is None:
            self._hand_over()
            return
        self.held, self.begun = None, begun
        self.loop.call_soon(self._write_answer, begun)

    def _write_answer(self, begun: EarlyRequest) -> None:
        """Write the response if the call has finished, as most calls have at this point; otherwise,
        wait for a moment until it has."""
        if self.begun is not begun:
            return  # it was handed over
        answer = begun.answer
        if answer is None:
            if not begun.is_running:
                self._hand_over()
            elif begun.post.on_change is None:
                begun.post.on_change = partial(self._write_answer, begun)
                self.handover_time = self.loop.time() + FAST_PATH_SECONDS
                if self.answer_timer is None:
                    self.answer_timer = self.loop.call_later(FAST_PATH_SECONDS, self._end_wait)
            return
        self.begun = begun.post.on_change = None
        self.transport.write(answer)
        self.served.count_success()
        self.on_response_complete()

    def _end_wait(self) -> None:
        """Hand over the request that is waiting for its call, if it has waited long enough."""
        self.answer_timer = None
        if self.begun is None or self.begun.post.on_change is None:
            return
        left = self.handover_time - self.loop.time()
        if left > 0:
            self.answer_timer = self.loop.call_later(left, self._end_wait)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """Hand the held-back request over to uvicorn."""
        body, begun, self.held, self.begun = self.held, self.begun, None, None
        if begun is not None:
            begun.post.on_change = None
            cast(dict[str, Any], self.scope)[EARLY_REQUEST] = begun
        parser, self.parser = self.parser, cast(Any, _HeldRequestParser)
        try:
            self._start_in_uvicorn()
        finally:
            self.parser = parser
        if body:
            super().on_body(body)
        if not self.in_request:
            super().on_message_complete()

    # closing

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer the complete requests from a client that has stopped sending. Until data is sent,
        such a client cannot be distinguished from one that has closed the connection.
        """
        if self.begun is not None:
            self._hand_over()
        cycle = self._answering()
        if cycle is None or self.in_request or self.scheme == "https":  # asyncio ends TLS here
            return False
        if not cycle.response_started and cycle.scope["http_version"] == "1.1":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif cycle.response_started and cycle.chunked_encoding:
            self.transport.write(b"0")  # a leading zero of the size of the next chunk
        else:
            return False
        self.is_half_closed = True
        for seconds in PEER_CHECKS_SECONDS:
            self.loop.call_later(seconds, self._check_peer)
        return True

    def _answering(self) -> Any:
        """Return the request that is being answered, or None."""
        queued = [cycle for cycle, _ in self.pipeline]
        running = (cycle for cycle in self.cycles if not cycle.response_complete)
        return next((cycle for cycle in running if cycle not in queued), None)

    def _check_peer(self) -> None:
        """Close the connection if the client has closed it. After the client stops sending, only a
        socket error shows that it has closed the connection."""
        sock = self.transport.get_extra_info("socket")
        if not self.transport.is_closing() and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()

    def shutdown(self) -> None:
        """Close the connection after the requests that have begun are answered."""
        if self.begun is not None:
            self._hand_over()
        super().shutdown()

    def pause_writing(self) -> None:
        """Start a timeout for a client that reads too slowly."""
        super().pause_writing()
        self._check_progress()

    def _check_progress(self, before: int | None = None) -> None:
        left = self.transport.get_write_buffer_size()
        if before is not None and left >= before:
            self.transport.abort()
        else:
            self.write_timer = self.loop.call_later(
                self.limits.body_timeout, self._check_progress, left
            )

    def resume_writing(self) -> None:
        """Stop the timeout because the client is reading again."""
        if self.write_timer is not None:
            self.write_timer.cancel()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if the client has not read the last response."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, error: Exception | None) -> None:
        """Stop the timers, and notify every request on this connection."""
        # uvicorn does not cancel its timer after an error, and notifies only the last request.
        timers = (
            self.head_timer,
            self.write_timer,
            self.answer_timer,
            self.timeout_keep_alive_task,
        )
        for timer in timers:
            if timer is not None:
                timer.cancel()
        if self.begun is not None:
            self._hand_over()
        for cycle in self.cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(error)


def _without_upgrade(value: bytes) -> bytes:
    return b", ".join(
        word for word in value.split(b",") if word.strip().lower() not in UPGRADE_HEADERS
    )


def make_protocol_class(app: ServedApp) -> type[UvicornProtocol]:
    """Return the protocol class for connections to this application."""
    limits = app.limits
    attributes = {"served": app, "limits": limits, "connection_limit": ConnectionLimit(limits)}
    return type("Protocol", (UvicornProtocol,), attributes)


# the server


class HttpServer(uvicorn.Server):
    """uvicorn with a custom shutdown."""

    exit_timer: threading.Timer | None = None
    """The timer that ends the process if it does not stop after a signal."""

    def __init__(
        self, config: uvicorn.Config, app: ServedApp, protocol: type[UvicornProtocol]
    ) -> None:
        super().__init__(config)
        self._app, self._protocol = app, protocol
        self._error_handler: Any = None
        """The event loop's own error handler."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal arrives."""
        with self.handle_signals():
            super().run(sockets)

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Shut down at a signal, and end the process if that takes too long. This is for the whole
        run of the event loop: when uvicorn is done, asyncio still waits for every task."""
        numbers = (
            (signal.SIGINT, signal.SIGTERM)
            if threading.current_thread() is threading.main_thread()
            else ()
        )
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self.exit_timer is not None:
                self.exit_timer.cancel()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Start the shutdown on the first signal, and end the process on the second."""
        if self.exit_timer is not None:
            exit_now(130)
        timeout = max(1, self._app.limits.shutdown)
        self.exit_timer = exit_after(2 * timeout)  # twice as long as `shutdown` may take
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and write a one-line log message if connections cannot be accepted."""
        loop = asyncio.get_running_loop()
        self._error_handler = loop.get_exception_handler()
        loop.set_exception_handler(self._on_loop_error)
        await super().startup(sockets)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self._protocol.connection_limit.on_loop_error(context):
            return
        if self._error_handler is None:
            loop.default_exception_handler(context)
        else:
            self._error_handler(loop, context)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams and their connections, and then everything else."""
        closing = asyncio.create_task(self._app.close())
        await super().shutdown(sockets)
        await closing
        asyncio.get_running_loop().set_exception_handler(self._error_handler)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing, because `handle_signals` sets up the signal handlers. Otherwise, uvicorn
        would raise the signal again after the shutdown, and thereby end the caller of `run`."""
        yield


def make_server(app: ServedApp, tls: Mapping[str, str | None]) -> HttpServer:
    """Return the server for an application. Raises ConfigError if its options are invalid."""
    limits, protocol = app.limits, make_protocol_class(app)
    try:
        config = uvicorn.Config(
            cast(Any, app),
            http=protocol,
            ws=websocket_protocol() if app.has_websocket else "none",
            # Above this size uvicorn closes the connection; below it, we can send an error.
            ws_max_size=2 * limits.max_body,
            ws_per_message_deflate=False,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, int(limits.shutdown)),
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            ssl_certfile=tls["certfile"],
            ssl_keyfile=tls["keyfile"],
        )
        config.load()
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot start the HTTP server: {error}") from None
    return HttpServer(config, app, protocol)


def websocket_protocol() -> Any:
    """Return uvicorn's WebSocket protocol, changed to log no error for a refused handshake.

    uvicorn logs a refused handshake as if it had not been answered.
    """
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class RefusableWebSocket(WebSocketsSansIOProtocol):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
                self.handshake_complete = True

    return RefusableWebSocket
