"""The ways to serve a service: `run`, `run_async`, `asgi`, `handle` and `serve`.

Transports and asyncio are imported when a service is run, not when it is defined.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Unpack, get_args

from ..errors import ConfigError
from ..lazy import paused_collector
from ..ports import Channel, HttpRequest, HttpResponse
from .service import BaseService

if TYPE_CHECKING:
    from ..serve.app import App
    from .options import AsgiOptions, HandleOptions, RunOptions, Transport

UNGUARDED = (
    "scopes= has no effect over HTTP without authentication, because no token is checked; add "
    "Server(auth=…)"
)


class RunnableService(BaseService):
    """A service that can be served over every transport."""

    _lifespan: Callable[..., AbstractAsyncContextManager[Any]] | None = None
    _networked = False
    """Whether callers may come from a network."""

    _refusal = ""
    """Why this service cannot be served over a network."""

    def run(self, transport: Transport = "stdio", **options: Unpack[RunOptions]) -> None:
        """Serve until the client disconnects (stdio), or until the process is stopped.

        Args:
            transport: "stdio", "http" (streamable HTTP), "sse" (HTTP+SSE from 2024-11-05) or
                "websocket". The only option for stdio is `quiet`.
            host: The address to bind to (default: "127.0.0.1", only this machine).
            port: The port to bind to (default: 8000; 0 picks a free port).
            path: The path of the endpoint (default: "/mcp", "/sse" or "/ws").
            workers: The number of worker processes (default: 1).
            certfile: The file with the TLS certificate (default: no TLS).
            keyfile: The file with the certificate's private key.
            ready: A function that is called with the URL when clients can connect (default: the URL
                is printed to stderr).
            quiet: Whether to suppress the URL and, for stdio at a terminal, the instructions
                (default: False).
            endpoint: For "sse" and "websocket", the path of the streamable HTTP endpoint (default:
                "/mcp").
            **options: The options of `asgi`.

        Raises:
            ConfigError: An option is unknown or not valid, or the port is in use.
        """
        _check_transport(transport, options)
        _refuse_running_loop()
        if "DOVETAIL_ISOLATED" in os.environ:
            return  # this is the child process of an isolated tool, which needs only the tool
        from ..python_target.run_hook import choose_transport

        transport = choose_transport(self, transport)
        if transport == "stdio":
            with paused_collector():
                from ..serve.channel import run_stdio

            run_stdio(self, self.lifespan, options.get("quiet", False))
        else:
            from ..serve.http import run_http

            self._prepare_for_network(options)
            run_http(self, self.lifespan, transport, options)

    async def run_async(
        self, transport: Transport = "stdio", **options: Unpack[RunOptions]
    ) -> None:
        """Serve in the running event loop until the client disconnects or this call is cancelled.
        Signals are not handled.

        Args:
            transport: "stdio", "http", "sse" or "websocket".
            **options: The options of `run`, except `workers`.

        Raises:
            ConfigError: An option is unknown or not valid, or the port is in use.
        """
        from ..python_target.run_hook import choose_transport

        _check_transport(transport, options)
        transport = choose_transport(self, transport)
        if transport == "stdio":
            from ..serve.channel import serve_stdio

            await serve_stdio(self, self.lifespan)
        else:
            from ..serve.http import serve_http

            self._prepare_for_network(options)
            await serve_http(self, self.lifespan, transport, options)

    def asgi(self, path: str = "", **options: Unpack[AsgiOptions]) -> App:
        """Return an ASGI application that serves every revision over HTTP, to be run by any ASGI
        server or mounted in another application.

        Args:
            path: The path of the endpoint, below the mount point (default: the mount point).
            sse: Whether, or at which path, to serve HTTP+SSE from 2024-11-05 (True: "/sse", with
                "/message").
            websocket: Whether, or at which path, to serve WebSocket (True: "/ws").
            health: The path of the health check (default: "/health"; None disables it).
            metrics: The path of the Prometheus metrics (default: None, metrics are not served).
            metrics_auth: The scope that a caller needs to read the metrics, and the details of the
                health check, if the server has `auth=`; False lets anyone read them.
            hosts: Host names that requests may be sent to, besides the bound address and localhost;
                "*" allows any host.
            origins: Origins of web pages that may call the server (CORS); "*" allows any origin.
            public_url: The URL at which clients reach the server. Its host and origin are allowed.
            trusted_proxies: Addresses and networks of proxies whose `Forwarded` or
                `X-Forwarded-For` header contains the client's address (default: none). This address
                is used for rate limits, audit records and logins.
            sessions: Whether clients in the handshake era receive a session (default: True).
                Without a session, they have neither GET streams nor resumption.
            json_only: Whether to answer every POST with a single JSON body. Notifications during a
                call are then dropped.
            long_polling: How long a GET request that accepts only JSON waits for messages, in
                seconds (default: None, long polling is disabled).
            keys: Secrets that seal session ids and tickets, newest first (default: the environment
                variable DOVETAIL_KEYS, or otherwise random keys for this process and its workers).
            events: A function that creates the store for event streams (default: a bounded store in
                memory).
            bus: A function that connects the processes of one server (`run(workers=…)` provides
                one).
            routes: An ASGI application that handles requests for all other paths. This application
                receives no lifespan events.

        Raises:
            ConfigError: An option is unknown or not valid.
        """
        from ..serve.app import App
        from ..serve.options import ServeOptions

        self._prepare_for_network(options)
        return App(self, self.lifespan, ServeOptions.create(path=path, **options))

    async def handle(self, request: HttpRequest, **options: Unpack[HandleOptions]) -> HttpResponse:
        """Answer one HTTP request and leave nothing running, as serverless functions require. The
        response is a single JSON body.

        Args:
            request: The request.
            **options: The options of `asgi`.

        Raises:
            ConfigError: An option is unknown or not valid.
        """
        from ..serve.app import handle

        self._prepare_for_network(options, single_process=False)
        return await handle(self, self.lifespan, request, options)

    async def serve(self, channel: Channel) -> None:
        """Serve one client over a custom channel until the client disconnects.

        Args:
            channel: The channel, which transfers messages as bytes; see `dovetail.ports.Channel`.
        """
        from ..serve import serve_channel

        await serve_channel(self, channel, self.lifespan, grace=self.limits.shutdown)

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return the context manager that is entered before the first request and exited after the
        last request; its value is `ctx.state`."""
        inner, backend = self._inner_lifespan(), self.backend
        if not backend:
            return inner
        self._share_backend()
        if self._shared_limiter is not None:
            inner = self._shared_limiter.run_with(inner)
        return backend.run_with(inner, self._backend_required)

    def _inner_lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return the lifespan of everything that may use the backend."""
        from contextlib import nullcontext
        from inspect import signature

        if self._lifespan is None:
            return nullcontext()
        takes_server = bool(signature(self._lifespan).parameters)
        return self._lifespan(self) if takes_server else self._lifespan()

    def _find_refusal(self) -> str:
        """Return why this service cannot be served over a network; empty if it can."""
        return self._refusal

    def _require_servable(self) -> None:
        if refusal := self._find_refusal():
            raise ConfigError(refusal)

    def _prepare_for_network(
        self, options: Mapping[str, Any], *, single_process: bool = True
    ) -> None:
        """Check the settings for callers from a network. `single_process` means that all requests
        reach this process."""
        self._require_servable()
        self._keys = options.get("keys", self._keys)
        self._share_backend()
        if self.guard is None and self.scopes:
            raise ConfigError(UNGUARDED)
        self._networked = True


def _check_transport(transport: str, options: Mapping[str, Any]) -> None:
    if transport == "stdio":
        if unknown := [name for name in options if name != "quiet"]:
            raise ConfigError(
                f"The stdio transport supports only the option quiet; remove {', '.join(unknown)}"
            )
        return
    from .options import Transport

    known = get_args(Transport)
    if transport not in known:
        raise ConfigError(f"Unknown transport {transport!r}; use one of {', '.join(known)}")


def _refuse_running_loop() -> None:
    """Raise ConfigError if `run` is called in a thread that already has a running event loop."""
    if "asyncio" not in sys.modules:
        return
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(
        "server.run() starts an event loop, but this thread already has a running event loop. Use "
        "`await server.run_async()` with the same arguments"
    )
