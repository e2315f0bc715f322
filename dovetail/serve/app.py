"""The ASGI application of a server: every era, and where switched on the old SSE pair and
WebSocket, side by side.

It needs no ASGI lifespan: the first request starts it, a task of its own holds the server's
lifespan, and the end of the event loop ends it. Where the ASGI server does have a lifespan, it
starts and ends with that. Everything bound to a loop is in `Here`, one per event loop, so one
application may run on several. What is beside the endpoint is in `beside.py`.
"""

import asyncio
import logging
from functools import partial
from typing import Any

from ..connection.bus import Alone
from ..errors import InternalError
from ..ports import Guard, Service
from ..sealing import key_ring
from ..transports.http.policy import Reject
from ..transports.http.replies import Headers, Receive, Scope, Send
from ..transports.http.server import Begun
from ..transports.http.streams import MemoryEvents
from .beside import Beside, say
from .conversation import Lifespan
from .gate import Gate
from .here import Here
from .life import Life
from .metrics import Metrics
from .options import Options

log = logging.getLogger("dovetail.http")

Address = tuple[str, int | None] | None


class App:
    """The ASGI application of one server."""

    def __init__(self, service: Service, lifespan: Lifespan, options: Options) -> None:
        self._service, self._lifespan, self._options = service, lifespan, options
        self._rules, self._ring = options.rules(service), key_ring(options.keys)
        self._lives: dict[asyncio.AbstractEventLoop, Life[Here]] = {}
        self._here: Here | None = None
        self._places = options.places
        self._path = self._places.endpoint
        self._gate = None if service.guard is None else self._guarded(service.guard)
        self._beside = Beside(service, options, self._places, self._rules, self._gate)
        self._metrics = Metrics() if options.metrics else None
        if self._metrics is not None:
            options.check(service.guard)
            service.observe(self._metrics)
        looked_at = self._gate is not None or self._path == self._places.sse
        self.usual = None if looked_at else self._path.encode()
        """The URL of requests that `begin` may take; None where each has to be looked at in
        full."""

    def _guarded(self, guard: Guard) -> Gate:
        at = self._places
        pairs = (
            (at.endpoint, at.endpoint),
            (at.sse, at.sse),
            (at.message, at.sse),
            (at.websocket, at.websocket),
        )
        places = {path: place for path, place in pairs if path is not None and place is not None}
        return Gate(self._service, guard, self._rules, self._ring, self._options.public_url, places)

    def begin(
        self, headers: Headers, server: Address, client: Address, body: bytes
    ) -> Begun | None:
        """Begin the answer to a POST to the endpoint that came whole, before there is an ASGI scope
        for it; None, and nothing was done, where it takes more."""
        here = self._here
        if here is None or here.loop is not asyncio.get_running_loop():
            return None
        return here.endpoint.begin(headers, server and server[0], client and client[0], body)

    def answered(self) -> None:
        """A request that `begin` took was answered with a result."""
        if self._metrics is not None:
            self._metrics.responded("POST", 200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI scope."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(receive, send)
            return
        if self._metrics is not None and kind == "http":
            send = self._metrics.responding(scope["method"], send)
        path = scope["path"]
        if path != self._path or scope.get("root_path"):
            path = _path(scope)
        here = self._here
        if here is None or here.loop is not asyncio.get_running_loop():
            try:
                here = await self.start()
            except Exception:
                log.exception("The server could not be started")
                await self._sorry(scope, send)
                return
        if kind == "websocket":
            await self._beside.meet(here, path, scope, receive, send)
        elif path == self._path != self._places.sse:
            await here.endpoint(scope, path, receive, send)
        else:
            await self._beside(here, path, scope, receive, send)

    # its life

    async def start(self) -> Here:
        """Enter the server's lifespan, once per event loop; the first request does it if nobody
        else did."""
        loop = asyncio.get_running_loop()
        life = self._lives.get(loop)
        if life is None or life.closed:
            life = self._lives[loop] = Life(self._lifespan, self._make)
            life.task.add_done_callback(partial(self._over, loop, life))
        self._here = await asyncio.shield(life.here)
        return self._here

    def _over(
        self, loop: asyncio.AbstractEventLoop, life: "Life[Here]", task: "asyncio.Task[None]"
    ) -> None:
        """Let go of a life that has ended, and of its loop. Where it failed, the next request may
        have more luck."""
        if self._lives.get(loop) is life:
            del self._lives[loop]
        if self._here is not None and self._here.loop is loop:
            self._here = None

    async def _make(self, state: Any) -> Here:
        options = self._options
        events = MemoryEvents(self._service.limits) if options.events is None else options.events()
        bus = Alone() if options.bus is None else await options.bus()
        return Here(
            self._service,
            options,
            self._rules,
            self._ring,
            events,
            bus,
            state,
            self._gate,
            self._metrics,
        )

    async def close(self) -> None:
        """End every stream, every conversation and every call, then leave the server's lifespan."""
        life = self._lives.get(asyncio.get_running_loop())
        if life is not None:
            await life.close(self._service.limits.shutdown)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    log.exception("The server could not be started")
                    await send(
                        {
                            "type": "lifespan.startup.failed",
                            "message": f"{type(error).__name__}: {error}",
                        }
                    )
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _sorry(self, scope: Scope, send: Send) -> None:
        if scope["type"] == "http":
            await say(send, Reject(500, InternalError("The server could not be started")))
        else:
            await send(
                {
                    "type": "websocket.close",
                    "code": 1011,
                    "reason": "The server could not be started",
                }
            )


def _path(scope: Scope) -> str:
    """The path below the place that we are mounted at, without a slash at the end."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path.rstrip("/")
