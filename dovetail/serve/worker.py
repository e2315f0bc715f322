"""A process that runs the tasks of a server and serves no clients.

It is the server's application without an endpoint: it has the server's lifespan, is a member of its
bus, and pulls tasks. If it listens on a port, it answers health checks and requests for metrics
there.
"""

import asyncio
import re
import signal
import sys
import threading
from typing import Any

from ..errors import ConfigError, InvalidRequest
from ..net import is_loopback
from ..ports import Service
from ..text import escape_unsafe
from ..transports.http.server.asgi import Receive, Scope, Send
from ..transports.http.server.policy import Rejection
from .app import App, LoopState
from .channel import Lifespan, exit_after, exit_now
from .options import ServeOptions
from .routes import send_error

HEALTH, METRICS = "/health", "/metrics"
HEALTH_HOST = "127.0.0.1"
"""Where health checks are answered by default, because nobody has to log in to read the metrics."""


class WorkerApp(App):
    """The application of a worker."""

    _is_announced = False

    def __init__(self, service: Service, lifespan: Lifespan, host: str = HEALTH_HOST) -> None:
        # Web pages cannot read the metrics of this machine by another name for it. What listens on
        # other addresses has names that this process does not know.
        hosts = [] if is_loopback(host) else ["*"]
        options = ServeOptions.create(
            path="/mcp", health=HEALTH, metrics=METRICS, metrics_auth=False, hosts=hosts
        )
        super().__init__(service, lifespan, options)
        self.gate = None  # there is nobody to admit
        self.fast_path = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "http" and scope["path"] not in (HEALTH, METRICS):
            error = InvalidRequest(
                "This is a worker, which runs tasks and serves no clients. Connect to a process "
                "that serves them (dovetail run)"
            )
            await send_error(send, Rejection(404, error))
        else:
            await super().__call__(scope, receive, send)

    async def start(self) -> LoopState:
        """Enter the server's lifespan, and say so."""
        state = await super().start()
        if not self._is_announced and sys.stderr is not None:
            self._is_announced = True
            hint = " (press Ctrl-C to stop)" if sys.stderr.isatty() else ""
            name = escape_unsafe(self.service.info.name)
            print(f"Running the tasks of {name}{hint}", file=sys.stderr, flush=True)
        return state


def run_worker(service: Service, lifespan: Lifespan, health: int | str | None) -> None:
    """Run tasks until a signal arrives.

    Args:
        service: The server.
        lifespan: Its lifespan.
        health: The port for health checks, or a string "HOST:PORT" (default: no port is opened).
    """
    sys.setswitchinterval(0.001)  # see `run_stdio`
    if health is None:
        asyncio.run(_work(WorkerApp(service, lifespan)))
        return
    from .http import serve_app

    host, port = _parse_address(health)
    serve_app(WorkerApp(service, lifespan, host), host, port)


def _parse_address(health: int | str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:(.+):)?(\d{1,9})", str(health), re.ASCII)
    if found is None:
        raise ConfigError(
            f"{health!r} is not an address for health checks. Name a port on this machine (8001), "
            "or HOST:PORT (0.0.0.0:8001 for all addresses)"
        )
    host, port = found.groups(HEALTH_HOST)
    return host.removeprefix("[").removesuffix("]"), int(port)


async def _work(app: App) -> None:
    """Run tasks until a signal arrives. A second signal ends the process."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    timers: list[threading.Timer] = []

    def on_signal(number: int, frame: Any) -> None:
        if timers:
            exit_now(130)
        timers.append(exit_after(2 * max(1.0, app.service.limits.shutdown)))
        loop.call_soon_threadsafe(stopped.set)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        await app.start()
        await stopped.wait()
        await app.close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for timer in timers:
            timer.cancel()
