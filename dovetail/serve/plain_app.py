"""Serve a plain ASGI application that is not an MCP server, such as the inspector's page.

The application runs on the same uvicorn as servers do: connections are bounded, and at Ctrl-C its
streams are closed first, so that open pages do not hold up the end.
"""

import socket
from collections.abc import Awaitable, Callable
from typing import Any

from ..limits import DEFAULT, Limits
from .http import check_installed, listen, run_server

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class PlainApp:
    """An ASGI application with a beginning and an end.

    Args:
        app: Answers HTTP requests.
        open: Called in the event loop, before the first request.
        close: Called when a signal arrives. It ends all streams and then everything else.
        limits: The limits on connections, and on the time for the shutdown.
    """

    fast_path = None
    has_websocket = False

    def __init__(
        self,
        app: Asgi,
        open: Callable[[], None],
        close: Callable[[], Awaitable[None]],
        limits: Limits = DEFAULT,
    ) -> None:
        self._app, self._open, self._close, self.limits = app, open, close, limits

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
    check_installed()
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
    run_server(app, sockets)
