"""A server's ASGI application, which serves streamable HTTP in every era and, if enabled, HTTP+SSE
(2024-11-05) and WebSocket.

`App` needs no ASGI lifespan. The first request in an event loop starts a `LoopLifespan`. The
`LoopLifespan` keeps the server's lifespan open until the loop ends, and creates the `LoopState`,
which holds everything that is bound to that loop. If the ASGI server does send lifespan events, the
application starts and stops when it receives them. One application may serve several loops at the
same time. `routes.py` answers requests to all paths except the endpoint.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from socket import gethostname
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..aio import TaskSet
from ..connection.bus import NoBus
from ..connection.connection import choose_ping_interval
from ..connection.dispatcher import Dispatcher
from ..connection.encode import MessageEncoder
from ..connection.multi_round_trip import MultiRoundTrip
from ..errors import ConfigError, InternalError, InvalidRequest
from ..limits import Limits
from ..logs import get_logger
from ..net import TrustedProxies
from ..ports import (
    MEMBERS_CHANGED,
    Bus,
    ChangeListener,
    Channel,
    HttpRequest,
    HttpResponse,
    RequestIdentity,
    Service,
)
from ..sealing import key_ring
from ..transports.http.server.asgi import Receive, Scope, Send, encode_headers
from ..transports.http.server.endpoint import EarlyRequest, Endpoint
from ..transports.http.server.event_store import EventStore, MemoryEventStore
from ..transports.http.server.get_streams import GetStreams
from ..transports.http.server.policy import Rejection
from ..transports.http.server.sessions import SessionTable
from .auth_gate import AuthGate
from .channel import Lifespan, serve_channel
from .metrics import Metrics, MetricsPage, Series
from .options import ServeOptions
from .routes import Routes, replay_body, send_error
from .shared_changes import SharedChanges

if TYPE_CHECKING:
    from ..transports.http.server.logged_events import LoggedEventStore
    from ..transports.http.server.shared_sessions import SharedSessions
    from ..transports.http.sse import SseServer


log = get_logger("http")

START_FAILED = "The server failed to start"
_LIFESPANS = TaskSet()
"""Strong references to the lifespan tasks. An event loop keeps only weak references, and an
application must run until its loop ends, even if nothing refers to the application."""


class App:
    """The ASGI application of one server."""

    def __init__(self, service: Service, lifespan: Lifespan, options: ServeOptions) -> None:
        self.service, self.server_lifespan, self.options = service, lifespan, options
        self.rules, self.ring = options.rules(service), key_ring(options.keys)
        self.paths = options.paths
        self._proxies = TrustedProxies(options.trusted_proxies) if options.trusted_proxies else None
        self.gate = (
            None
            if service.guard is None
            else AuthGate(service, service.guard, self.rules, self.ring, options)
        )
        self.metrics = Metrics() if options.metrics else None
        if self.metrics is not None:
            options.check_metrics_auth(service.guard)
            service.observe(self.metrics)
        self._routes = Routes(self)
        self._lifespans: dict[asyncio.AbstractEventLoop, LoopLifespan] = {}
        self._logged_failure = ""
        self._current: LoopState | None = None
        """The most recently used state. Usually, there is only one loop."""
        may_begin = self.gate is None or self.gate.can_admit_now
        may_begin = may_begin and self.paths.endpoint != self.paths.sse
        self.fast_path = self.paths.endpoint.encode() if may_begin else None
        """The URL of the requests that `begin` accepts, or None if it accepts none."""

    @property
    def limits(self) -> Limits:
        """The limits of the server."""
        return self.service.limits

    @property
    def has_websocket(self) -> bool:
        """Whether clients may connect over WebSocket."""
        return bool(self.options.websocket)

    def begin(self, scope: Scope, body: bytes) -> EarlyRequest | None:
        """Start answering a complete POST request to the endpoint before its ASGI task exists. The
        scope may lack the method and the path.

        Returns None, without side effects, if the request must be handled through ASGI.
        """
        current = self._current
        if current is None or current.loop is not asyncio.get_running_loop():
            return None
        if self._proxies is not None:
            scope = _with_client(scope, self._proxies)
        return current.endpoint.begin(scope, self.paths.endpoint, body)

    def count_success(self) -> None:
        """Count a request that `begin` accepted and that was answered with a result."""
        if self.metrics is not None:
            self.metrics.count_response("POST", 200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        kind, paths = scope["type"], self.paths
        if kind == "lifespan":
            await self._follow_lifespan(receive, send)
            return
        if self.metrics is not None and kind == "http":
            send = self.metrics.counting_send(scope["method"], send)
        if self._proxies is not None:
            scope = _with_client(scope, self._proxies)
        path = scope["path"]
        if path != paths.endpoint or scope.get("root_path"):
            path = _path_below_mount(scope)
        current = self._current
        if current is None or current.loop is not asyncio.get_running_loop():
            try:
                current = await self.start()
            except Exception as error:
                self._log_start_failure(error)
                await _refuse(scope, send)
                return
        if kind == "websocket":
            await self._routes.accept_websocket(current, path, scope, receive, send)
        elif path == paths.endpoint != paths.sse:
            await current.endpoint(scope, path, receive, send)
        else:
            await self._routes(current, path, scope, receive, send)

    async def start(self) -> "LoopState":
        """Enter the server's lifespan, unless it is already open in this event loop."""
        loop = asyncio.get_running_loop()
        lifespan = self._lifespans.get(loop)
        if lifespan is None or lifespan.closing is not None:
            lifespan = self._lifespans[loop] = LoopLifespan(self)
            lifespan.task.add_done_callback(partial(self._forget, lifespan))
        state = self._current = await asyncio.shield(lifespan.ready)
        return state

    async def join_bus(self) -> Bus:
        """Join the bus that connects the processes of this server."""
        join = self.options.bus
        if join is None and self.service.backend:
            join = self.service.backend.bus
        return NoBus() if join is None else await join()

    def _log_start_failure(self, error: Exception) -> None:
        """Log why a request could not start the server. An invalid setting is logged without a
        traceback, and only once, although the next request tries again."""
        if not isinstance(error, ConfigError):
            log.exception(START_FAILED)
        elif str(error) != self._logged_failure:
            self._logged_failure = str(error)
            log.error("%s: %s", START_FAILED, error)

    def _forget(self, lifespan: "LoopLifespan", task: "asyncio.Task[None]") -> None:
        # Forget it even if it failed to start: the next request tries again.
        if self._lifespans.get(lifespan.loop) is lifespan:
            del self._lifespans[lifespan.loop]
        if self._current is not None and self._current.loop is lifespan.loop:
            self._current = None

    async def close(self) -> None:
        """End every stream, session and call in this event loop, and then the server's lifespan."""
        lifespan = self._lifespans.get(asyncio.get_running_loop())
        if lifespan is not None:
            await lifespan.close()

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    if not isinstance(error, ConfigError):  # else the reason says everything
                        log.exception(START_FAILED)
                    reason = f"{type(error).__name__}: {error}"
                    await send({"type": "lifespan.startup.failed", "message": reason})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


class LoopLifespan:
    """The server's lifespan in one event loop. The lifespan runs in a separate task, because the
    request that started it may be cancelled.
    """

    def __init__(self, app: App) -> None:
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[LoopState] = self.loop.create_future()
        """The state once the lifespan has started, or the exception that it raised."""
        self.closing: asyncio.Task[None] | None = None
        self._limits = app.service.limits
        self._stop = asyncio.Event()
        self.task = self.loop.create_task(self._run(app))
        _LIFESPANS.difference_update([task for task in _LIFESPANS if task.get_loop().is_closed()])
        _LIFESPANS.hold(self.task)

    async def _run(self, app: App) -> None:
        grace = 0.0
        try:
            async with app.server_lifespan() as value:
                bus = await app.join_bus()
                state = LoopState(app, value, bus)
                self.ready.set_result(state)
                try:
                    await self._stop.wait()
                    grace = self._limits.shutdown / 2
                except asyncio.CancelledError:
                    pass  # the loop is ending
                await state.close(grace)
        except BaseException as error:
            ordinary = isinstance(error, Exception)
            if not self.ready.done():
                self.ready.set_exception(
                    error
                    if ordinary
                    else RuntimeError(f"The server's lifespan was interrupted by {error!r}")
                )
                self.ready.exception()  # mark as retrieved: the request may be gone
            elif ordinary:
                log.exception("The server's lifespan failed during shutdown")
            if not ordinary:
                raise

    async def close(self) -> None:
        """Shut down within `Limits.shutdown`, half of which is reserved for running calls."""
        if self.closing is None:
            self.closing = self.loop.create_task(self._close())
        await asyncio.shield(self.closing)

    async def _close(self) -> None:
        self._stop.set()
        timeout = self._limits.shutdown
        done, _ = await asyncio.wait([self.task], timeout=timeout)
        if not done:
            log.error(
                "Cancelling the server's lifespan: it did not finish within %g s (Limits.shutdown)",
                timeout,
            )
            self.task.cancel()


class LoopState:
    """The parts of an application that are bound to one event loop."""

    def __init__(self, app: App, state: Any, bus: Bus) -> None:
        service, options, limits = app.service, app.options, app.service.limits
        self.loop = asyncio.get_running_loop()
        self._app, self._state, self._bus = app, state, bus
        self._channels = TaskSet()
        """One task for each WebSocket or HTTP+SSE client."""
        self._listeners: set[ChangeListener] = set()
        """The functions that notify clients of changes in other processes."""
        self._logged_events = _make_logged_events(service) if options.events is None else None
        events: EventStore
        if options.events is not None:
            events = options.events()
        elif self._logged_events is not None:
            events = self._logged_events
        else:
            events = MemoryEventStore(limits)
        self._round_trips = MultiRoundTrip(service, lambda: app.ring)
        self._round_trips.connect(bus)
        self.dispatcher = Dispatcher(
            service,
            state,
            MessageEncoder(limits.outgoing, service.redact),
            lambda method, params: self.get_streams.notify(method, params),
            self._round_trips,
        )
        self.get_streams = GetStreams(
            self.dispatcher,
            limits,
            events,
            bus,
            options.long_polling,
            choose_ping_interval(limits, is_long_connection=True),
            self._logged_events,
        )
        self.sessions: SessionTable | None = None
        if app.rules.sessions:
            if app.ring.origin == "process" and bus.alone and _is_foreign_worker():
                log.warning(
                    "The workers do not share a key for session ids. Set DOVETAIL_KEYS to the "
                    "same value for all workers"
                )
            self.sessions = SessionTable(
                *(self.dispatcher, app.ring, limits, bus, self.get_streams.ended),
                _make_shared_sessions(service, bus),
            )
        self.endpoint = Endpoint(
            self.dispatcher,
            app.rules,
            limits,
            sessions=self.sessions,
            get_streams=self.get_streams,
            events=events,
            bus=bus,
            json_only=options.json_only,
            gate=app.gate,
        )
        machine = gethostname() if service.backend else ""
        self.metrics_page = (
            None if app.metrics is None else MetricsPage(app.metrics, self._series, bus, machine)
        )
        bus.on(MEMBERS_CHANGED, self._on_bus_lost)
        service.connect_bus(bus)
        self._listeners.add(self.dispatcher.notify)
        self._changes = SharedChanges(service, bus, self._listeners)

    async def close(self, grace: float) -> None:
        """End all streams and sessions and, after `grace` seconds, the running calls."""
        self._app.service.begin_shutdown()
        self._changes.stop()
        self.dispatcher.close()
        self._round_trips.close()
        for task in list(self._channels):
            task.cancel()
        await self.endpoint.close(grace)
        if self._logged_events is not None:
            await self._logged_events.flush()
        if self.sessions is not None:
            await self.sessions.close()
        await self._bus.close()

    # WebSocket and HTTP+SSE clients

    async def serve_channel(self, channel: Channel, identity: RequestIdentity) -> None:
        """Serve a WebSocket or HTTP+SSE client until it disconnects or its access ends."""
        gate = self._app.gate
        serving = serve_channel(
            self._app.service,
            channel,
            lambda: nullcontext(self._state),
            grace=0,
            listeners=self._listeners,
            round_trips=self._round_trips,
            identity=identity,
        )
        task = self._channels.start(serving)
        expiry = [] if gate is None else [asyncio.create_task(gate.wait_expired(identity))]
        try:
            await asyncio.wait([task, *expiry], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for running in (task, *expiry):
                running.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    @property
    def is_full(self) -> bool:
        """Whether the limit on WebSocket clients has been reached (`Limits.streams`)."""
        return len(self._channels) >= self._app.service.limits.streams

    @cached_property
    def sse(self) -> "SseServer":
        """The endpoint for HTTP+SSE (2024-11-05) clients."""
        from ..transports.http.sse import SseServer

        return SseServer(self._app.service.limits, self.serve_channel, self._bus)

    def _series(self) -> Series:
        return {
            "mcp.server.sessions": {(): 0 if self.sessions is None else len(self.sessions)},
            "mcp.server.streams": {(): self.get_streams.open},
            "mcp.server.conversations": {(): len(self._channels)},
            **self._app.service.series(),
        }

    def _on_bus_lost(self, _: Any) -> None:
        self.get_streams.on_bus_lost()
        if self.sessions is not None:
            self.sessions.on_bus_lost()


def _make_shared_sessions(service: Service, bus: Bus) -> "SharedSessions | None":
    if not service.backend:
        return None
    from ..transports.http.server.shared_sessions import SharedSessions

    return SharedSessions(service.backend.sessions(), service.limits, bus)


def _make_logged_events(service: Service) -> "LoggedEventStore | None":
    if not (backend := service.backend):
        return None
    from ..transports.http.server.logged_events import LoggedEventStore

    return LoggedEventStore(service.limits, backend.events(), backend.rows("poll"))


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "http":
        await send_error(send, Rejection(500, InternalError(START_FAILED)))
    else:
        await send({"type": "websocket.close", "code": 1011, "reason": START_FAILED})


def _with_client(scope: Scope, proxies: TrustedProxies) -> Scope:
    """Return the scope with the address of the client in place of the address of its proxy."""
    client = scope.get("client")
    if not client:
        return scope
    address = proxies.client_of(client[0], scope["headers"])
    return {**scope, "client": (address, client[1] if address == client[0] else 0)}


def _path_below_mount(scope: Scope) -> str:
    """Return the path relative to the mount point, without a trailing slash."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path.rstrip("/")


def _is_foreign_worker() -> bool:
    """Return whether this process is probably one of several workers that another program
    started."""
    from multiprocessing import parent_process

    if parent_process() is not None:
        return False  # a multiprocessing child has its parent's key
    return (
        "gunicorn" in os.environ.get("SERVER_SOFTWARE", "")
        or int(os.environ.get("WEB_CONCURRENCY", "1") or 1) > 1
    )


# serverless functions, which start with a request and end after it


async def handle(
    service: Service, lifespan: Lifespan, request: HttpRequest, options: Mapping[str, Any]
) -> HttpResponse:
    """Answer one request with JSON, without keeping a session or leaving anything running."""
    if options.get("metrics"):
        raise ConfigError(
            "metrics= cannot be used with `handle`: the counters would be reset after each "
            "request. Use telemetry() instead"
        )
    response = HttpResponse()
    receive = replay_body(request.body, asyncio.Event().wait)  # the client never disconnects

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in message["headers"]
            }
        else:
            response.body += message.get("body", b"")

    app = App(
        service, lifespan, ServeOptions.create(**{"json_only": True, "sessions": False, **options})
    )
    try:
        scope = _scope(request, fixed_path=bool(options.get("path")))
    except UnicodeEncodeError:
        error = InvalidRequest("A header contains characters outside Latin-1")
        await send_error(send, Rejection(400, error))
        return response
    try:
        await app(scope, receive, send)
    finally:
        await app.close()
    return response


def _scope(request: HttpRequest, fixed_path: bool) -> dict[str, Any]:
    """Return the ASGI scope for a request. By default, the endpoint is the path at which the
    function is called, and its well-known documents are under that path.
    """
    headers = encode_headers(request.headers)
    url = urlsplit(request.url)
    if url.netloc and not any(name == b"host" for name, _ in headers):
        headers.append((b"host", url.netloc.encode("latin-1", "replace")))
    return {
        "type": "http",
        "scheme": url.scheme or "https",
        "method": request.method,
        "path": request.path,
        "root_path": "" if fixed_path else request.path.partition("/.well-known/")[0],
        "query_string": url.query.encode(),
        "headers": headers,
        "client": (request.address, 0) if request.address else None,
    }
