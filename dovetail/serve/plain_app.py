"""Serve a plain ASGI application that is not an MCP server, such as the inspector's page.

The application runs on the same uvicorn as servers do: connections are bounded, and at Ctrl-C its
streams are closed first, so that open pages do not hold up the end. Loading uvicorn takes a while.
Work that does not need it, such as starting another program, can therefore begin before that.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
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
        start: Called in the event loop, before uvicorn is loaded.
        load: Returns what answers HTTP requests. Called in a thread.
        open: Called in the event loop, before the first request.
        close: Called when a signal arrives. It ends all streams and then everything else.
        limits: The limits on connections, and on the time for the shutdown.
    """

    fast_path = None
    has_websocket = False

    def __init__(
        self,
        start: Callable[[], None],
        load: Callable[[], Asgi],
        open: Callable[[], None],
        close: Callable[[], Awaitable[None]],
        limits: Limits = DEFAULT,
    ) -> None:
        self.start, self._load, self._open, self._close = start, load, open, close
        self.limits = limits
        self._app: Asgi | None = None

    def load(self) -> None:
        """Load what answers requests."""
        self._app = self._load()

    def begin(self, scope: Any, body: bytes) -> None:
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
        while (message := await receive())["type"] != "lifespan.shutdown":
            if message["type"] == "lifespan.startup":
                self._open()
                await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})


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
    with asyncio.Runner(loop_factory=_find_loop_factory()) as runner:
        server = runner.run(_start(app))
        with server.handle_signals(), tuned_gc():
            runner.run(server.serve(sockets))
            runner.close()  # waits for all tasks, so it needs the signals, too


async def _start(app: PlainApp) -> "HttpServer":
    """Start the application, and load the HTTP server meanwhile."""
    app.start()
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
