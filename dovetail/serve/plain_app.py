"""Serve a plain ASGI application that is not an MCP server, such as the inspector's page.

The application runs on the same uvicorn as servers do: connections are bounded, and at Ctrl-C its
streams are closed first, so that open pages do not hold up the end. Loading uvicorn takes a while,
so the application begins before that. A client that connects meanwhile waits for its answer.
"""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..limits import DEFAULT, Limits
from .listening import check_installed, find_packages, listen, tuned_gc

if TYPE_CHECKING:
    from .uvicorn_server import HttpServer

Asgi = Callable[[Any, Any, Any], Awaitable[None]]
NO_TLS = {"certfile": None, "keyfile": None}


class PlainApp:
    """An ASGI application with a beginning and an end.

    Args:
        open: Called in the event loop, before anything else.
        load: Returns what answers HTTP requests. Called in a thread.
        close: Called when a signal arrives. It ends all streams and then everything else.
        limits: The limits on connections, and on the time for the shutdown.
    """

    fast_path = None
    has_websocket = False

    def __init__(
        self,
        open: Callable[[], None],
        load: Callable[[], Asgi],
        close: Callable[[], Awaitable[None]],
        limits: Limits = DEFAULT,
    ) -> None:
        self.open, self._load, self._close, self.limits = open, load, close, limits
        self._app: Asgi | None = None

    def load(self) -> None:
        """Load what answers requests."""
        self._app = self._load()

    def begin(self, headers: Any, server: Any, client: Any, body: bytes) -> None:
        """Leave every request to ASGI."""

    def count_success(self) -> None:
        """Do nothing: no request is answered without ASGI."""

    async def close(self) -> None:
        """End all streams, and then everything else."""
        await self._close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "lifespan":
            assert self._app is not None
            await self._app(scope, receive, send)
            return
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})


def open_port(host: str, port: int | None, preferred: int | None = None) -> socket.socket:
    """Return a listening socket.

    Args:
        host: The host to listen on.
        port: The port, or None for any free port.
        preferred: The port to use instead of any, if it is free.

    Raises:
        ConfigError: The port is in use, or packages are missing.
    """
    find_packages()
    if port is None and preferred is not None:
        from ..errors import ConfigError

        try:
            return listen(host, preferred)
        except ConfigError:
            pass  # another program has it now
    return listen(host, port or 0)


def run_plain_app(app: PlainApp, sockets: list[socket.socket]) -> None:
    """Serve an application until a signal arrives.

    Args:
        app: The application.
        sockets: Where it listens.
    """
    with _sigterm_as_sigint(), asyncio.Runner(loop_factory=_find_loop_factory()) as runner:
        try:
            server = runner.run(_start(app))
        except KeyboardInterrupt:
            runner.run(app.close())
            return
        with server.handle_signals(), tuned_gc():
            runner.run(server.serve(sockets))
            runner.close()  # waits for all tasks, so it needs the signals, too


@contextmanager
def _sigterm_as_sigint() -> Iterator[None]:
    """Let SIGTERM have the effect of Ctrl-C, until the HTTP server handles both."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _start(app: PlainApp) -> "HttpServer":
    """Open the application, and load the HTTP server meanwhile."""
    app.open()
    return await asyncio.to_thread(_load_server, app)


def _load_server(app: PlainApp) -> "HttpServer":
    check_installed()
    from .uvicorn_server import make_server

    app.load()
    return make_server(app, NO_TLS)


def _find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest event loop, as uvicorn would choose it."""
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
