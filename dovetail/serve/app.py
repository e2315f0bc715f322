"""The ASGI application of a server: streamable HTTP in every era and, if switched on, HTTP+SSE
(2024-11-05) and WebSocket.

`App` needs no ASGI lifespan. The first request in an event loop creates a `LoopState`, which holds
everything that is bound to that loop, and whose own task holds the server's lifespan until the
loop ends. If the ASGI server does send lifespan events, the application starts and ends with them.
One application may serve several loops at once. `routes.py` answers at all paths but the endpoint.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from ..aio import TaskSet
from ..connection.bus import NoBus
from ..connection.dispatcher import Dispatcher
from ..connection.encode import MessageEncoder
from ..errors import InternalError
from ..jsonrpc.messages import encode
from ..ports import MEMBERS_CHANGED, Bus, Channel, Guard, RequestIdentity, Service
from ..protocol.base import Params
from ..revisions import decode
from ..sealing import KeyRing, key_ring
from ..transports.http.server.asgi import Headers, Receive, Scope, Send
from ..transports.http.server.endpoint import EarlyRequest, Endpoint
from ..transports.http.server.event_store import MemoryEventStore
from ..transports.http.server.get_streams import GetStreams
from ..transports.http.server.policy import Policy, Rejection
from ..transports.http.server.sessions import SessionTable
from .auth_gate import AuthGate
from .channel import Lifespan, OnChange, serve_channel
from .metrics import Metrics, MetricsPage
from .options import ServeOptions
from .routes import Routes, send_error

if TYPE_CHECKING:
    from ..transports.http.sse import SseServer

log = logging.getLogger("dovetail.http")

Address = tuple[str, int | None] | None
START_FAILED = "The server could not be started"
_LIFESPANS = TaskSet()
"""Strong references to the lifespan tasks: an event loop keeps only weak ones, and an application
that nothing refers to any more still runs until its loop ends."""


class App:
    """The ASGI application of one server."""

    def __init__(self, service: Service, lifespan: Lifespan, options: ServeOptions) -> None:
        self._service, self._lifespan, self._options = service, lifespan, options
        self._rules, self._ring = options.rules(service), key_ring(options.keys)
        self._states: dict[asyncio.AbstractEventLoop, LoopState] = {}
        self._current: LoopState | None = None
        """The started state that was used last: nearly always that of the only loop."""
        self._paths = options.paths
        self._endpoint = self._paths.endpoint
        self._gate = None if service.guard is None else self._make_gate(service.guard)
        self._routes = Routes(service, options, self._paths, self._rules, self._gate)
        self._metrics = Metrics() if options.metrics else None
        if self._metrics is not None:
            options.check_metrics_auth(service.guard)
            service.observe(self._metrics)
        needs_scope = self._gate is not None or self._endpoint == self._paths.sse
        self.fast_path = None if needs_scope else self._endpoint.encode()
        """The URL of requests that `begin` accepts; None if every request needs an ASGI scope."""

    def _make_gate(self, guard: Guard) -> AuthGate:
        at = self._paths
        pairs = (
            (at.endpoint, at.endpoint),
            (at.sse, at.sse),
            (at.message, at.sse),
            (at.websocket, at.websocket),
        )
        paths = {path: base for path, base in pairs if path is not None and base is not None}
        return AuthGate(
            self._service, guard, self._rules, self._ring, self._options.public_url, paths
        )

    def begin(
        self, headers: Headers, server: Address, client: Address, body: bytes
    ) -> EarlyRequest | None:
        """Begin to answer a complete POST to the endpoint, before it has an ASGI scope.

        Returns None, without any effect, if the request needs the ordinary way.
        """
        current = self._current
        if current is None or current.loop is not asyncio.get_running_loop():
            return None
        return current.endpoint.begin(headers, server and server[0], client and client[0], body)

    def count_success(self) -> None:
        """Count a request that `begin` accepted and that was answered with a result."""
        if self._metrics is not None:
            self._metrics.count_response("POST", 200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI scope."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._follow_lifespan(receive, send)
            return
        if self._metrics is not None and kind == "http":
            send = self._metrics.counting_send(scope["method"], send)
        path = scope["path"]
        if path != self._endpoint or scope.get("root_path"):
            path = _path_below_mount(scope)
        current = self._current
        if current is None or current.loop is not asyncio.get_running_loop():
            try:
                current = await self.start()
            except Exception:
                log.exception(START_FAILED)
                await _refuse(scope, send)
                return
        if kind == "websocket":
            await self._routes.accept_websocket(current, path, scope, receive, send)
        elif path == self._endpoint != self._paths.sse:
            await current.endpoint(scope, path, receive, send)
        else:
            await self._routes(current, path, scope, receive, send)

    async def start(self) -> "LoopState":
        """Enter the server's lifespan, unless that has been done in this event loop."""
        loop = asyncio.get_running_loop()
        state = self._states.get(loop)
        if state is None or state.closing:
            state = self._states[loop] = LoopState(
                self._service,
                self._lifespan,
                self._options,
                self._rules,
                self._ring,
                self._gate,
                self._metrics,
            )
            state.task.add_done_callback(partial(self._forget, state))
        await asyncio.shield(state.ready)
        self._current = state
        return state

    def _forget(self, state: "LoopState", task: "asyncio.Task[None]") -> None:
        # Also if it failed to start: the next request tries again.
        if self._states.get(state.loop) is state:
            del self._states[state.loop]
        if self._current is not None and self._current.loop is state.loop:
            self._current = None

    async def close(self) -> None:
        """End every stream, session and call of this event loop, then the server's lifespan."""
        state = self._states.get(asyncio.get_running_loop())
        if state is not None:
            await state.close(self._service.limits.shutdown)

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    log.exception(START_FAILED)
                    reason = f"{type(error).__name__}: {error}"
                    await send({"type": "lifespan.startup.failed", "message": reason})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


class LoopState:
    """The application in one event loop, from entering the server's lifespan to leaving it.

    A task of its own holds the lifespan, because the request that needed it first may be cancelled.
    `ready` is done when the other attributes are set, or fails with what the lifespan raised.
    """

    endpoint: Endpoint
    get_streams: GetStreams
    sessions: SessionTable | None
    metrics_page: MetricsPage | None
    dispatcher: Dispatcher
    _bus: Bus
    _state: Any
    _stop_listening: Callable[[], None]

    def __init__(
        self,
        service: Service,
        lifespan: Lifespan,
        options: ServeOptions,
        rules: Policy,
        ring: KeyRing,
        gate: AuthGate | None,
        metrics: Metrics | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.closing = False
        self._service, self._options, self._rules = service, options, rules
        self._ring, self._gate, self._metrics = ring, gate, metrics
        self._channels = TaskSet()
        """One task for each client of WebSocket or HTTP+SSE."""
        self._listeners: set[OnChange] = set()
        """Called with changes in other processes, to notify those clients."""
        self._sse: SseServer | None = None
        self._stop = asyncio.Event()
        self._grace = 0.0
        self._closing: asyncio.Task[None] | None = None
        self.task = self.loop.create_task(self._run(lifespan()))
        _LIFESPANS.difference_update([task for task in _LIFESPANS if task.get_loop().is_closed()])
        _LIFESPANS.hold(self.task)

    # start and end

    async def _run(self, lifespan: AbstractAsyncContextManager[Any]) -> None:
        try:
            async with lifespan as state:
                await self._open(state)
                self.ready.set_result(None)
                try:
                    await self._stop.wait()
                except asyncio.CancelledError:
                    pass  # the loop ends
                await self._end(self._grace)
        except BaseException as error:
            ordinary = isinstance(error, Exception)
            if not self.ready.done():
                self.ready.set_exception(
                    error if ordinary else RuntimeError(f"The server's lifespan ended by {error!r}")
                )
                self.ready.exception()  # mark it as retrieved: the request may be gone
            elif ordinary:
                log.exception("The server's lifespan failed at its end")
            if not ordinary:
                raise

    async def _open(self, state: Any) -> None:
        service, options, limits = self._service, self._options, self._service.limits
        events = MemoryEventStore(limits) if options.events is None else options.events()
        bus = self._bus = NoBus() if options.bus is None else await options.bus()
        self._state = state
        self.dispatcher = Dispatcher(
            service,
            state,
            MessageEncoder(limits.outgoing, service.redact),
            self._notify_sessions,
            self._key_ring,
        )
        self.get_streams = GetStreams(self.dispatcher, limits, events, bus, options.long_polling)
        self.sessions = None
        if self._rules.sessions:
            if self._ring.origin == "process" and bus.alone and _is_foreign_worker():
                log.warning(
                    "The workers do not share a key for session ids. Set DOVETAIL_KEYS to the "
                    "same value for all of them"
                )
            self.sessions = SessionTable(
                self.dispatcher, self._ring, limits, bus, self.get_streams.ended
            )
        self.endpoint = Endpoint(
            self.dispatcher,
            self._rules,
            limits,
            sessions=self.sessions,
            get_streams=self.get_streams,
            events=events,
            bus=bus,
            json_only=options.json_only,
            gate=self._gate,
        )
        bus.on("change", self._on_remote_change)
        bus.on(MEMBERS_CHANGED, self._on_bus_lost)
        self.metrics_page = (
            None if self._metrics is None else MetricsPage(self._metrics, self._gauges, bus)
        )
        self._stop_listening = (
            (lambda: None)
            if isinstance(bus, NoBus)
            # each process watches the files by itself
            else service.add_listener(self._on_local_change, watched=False)
        )

    async def close(self, timeout: float) -> None:
        """End within `timeout` seconds, half of which are for the calls that still run."""
        if self._closing is None:
            self.closing, self._grace = True, timeout / 2
            self._closing = self.loop.create_task(self._wait_closed(timeout))
        await asyncio.shield(self._closing)

    async def _wait_closed(self, timeout: float) -> None:
        self._stop.set()
        done, _ = await asyncio.wait([self.task], timeout=timeout)
        if not done:
            log.error(
                "Cancelling the server's lifespan: it did not end within %g s (Limits.shutdown)",
                timeout,
            )
            self.task.cancel()

    async def _end(self, grace: float) -> None:
        self._stop_listening()
        self.dispatcher.close()
        for task in list(self._channels):
            task.cancel()
        await self.endpoint.close(grace)
        await self._bus.close()

    # clients of WebSocket and HTTP+SSE

    async def serve_channel(self, channel: Channel, identity: RequestIdentity) -> None:
        """Serve a client of WebSocket or HTTP+SSE, until it leaves or may no longer stay."""
        serving = serve_channel(
            self._service,
            channel,
            lambda: nullcontext(self._state),
            grace=0,
            listeners=self._listeners,
            ring=self._key_ring,
            identity=identity,
        )
        task = self._channels.start(serving)
        expiry = (
            [] if self._gate is None else [asyncio.create_task(self._gate.wait_expired(identity))]
        )
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
        """Whether no more clients of WebSocket are accepted (`Limits.streams`)."""
        return len(self._channels) >= self._service.limits.streams

    @property
    def sse(self) -> "SseServer":
        """The clients of HTTP+SSE (2024-11-05)."""
        if self._sse is None:
            from ..transports.http.sse import SseServer

            limits = self._service.limits
            self._sse = SseServer(
                limits,
                self.serve_channel,
                self._bus,
                limit=limits.streams,
                keepalive=limits.keepalive,
            )
        return self._sse

    def _key_ring(self) -> KeyRing:
        return self._ring

    def _gauges(self) -> dict[str, float]:
        return {
            "mcp.server.sessions": 0 if self.sessions is None else len(self.sessions),
            "mcp.server.streams": self.get_streams.open,
            "mcp.server.conversations": len(self._channels),
        }

    # changes, in this process and in the others

    def _notify_sessions(self, method: str, params: Params) -> None:
        self.get_streams.notify(method, params)

    def _on_local_change(self, method: str, params: Params) -> None:
        """Publish a change in this process (on any thread) to the others."""
        try:
            self.loop.call_soon_threadsafe(self._bus.publish, "change", (method, encode(params)))
        except RuntimeError:
            pass  # the loop is closed

    def _on_remote_change(self, payload: Any) -> None:
        method, raw = payload
        row = self.dispatcher.find_method(method, None)
        if row is None:
            return  # of an extension that this process does not have
        params = decode(raw, row.params)
        for listener in (self.dispatcher.notify, *self._listeners):
            listener(method, params)

    def _on_bus_lost(self, _: Any) -> None:
        self.get_streams.on_bus_lost()
        if self.sessions is not None:
            self.sessions.on_bus_lost()


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "http":
        await send_error(send, Rejection(500, InternalError(START_FAILED)))
    else:
        await send({"type": "websocket.close", "code": 1011, "reason": START_FAILED})


def _path_below_mount(scope: Scope) -> str:
    """The path relative to the mount point, without a slash at the end."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path.rstrip("/")


def _is_foreign_worker() -> bool:
    """Whether this is probably one of several workers that another program started separately."""
    from multiprocessing import parent_process

    if parent_process() is not None:
        return False  # a child of multiprocessing has its parent's key
    return (
        "gunicorn" in os.environ.get("SERVER_SOFTWARE", "")
        or int(os.environ.get("WEB_CONCURRENCY", "1") or 1) > 1
    )
