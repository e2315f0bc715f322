"""A server of its own on a port: uvicorn around the application, in one process or several.

uvicorn does what it does well; three things are ours. On the way down the event streams are ended
first, so that nothing waits for a client that has no reason to leave. A signal ends `run`, instead
of the process that called it; but where something keeps `run` from its end (a tool that takes no
notice of being cancelled, say), the process after all, and so does a second signal. And connections
have bounds, and a short way for the usual request (`uvicorn_protocol.py`).
"""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ..connection.bus import join
from ..errors import ConfigError, missing_extra
from ..limits import Limits
from ..ports import Bus, Service
from ..sealing import key_ring
from .app import App
from .channel import Lifespan
from .options import ServeOptions
from .stdio import exit_after

if TYPE_CHECKING:
    import uvicorn

PATHS = {"http": "/mcp", "sse": "/sse", "websocket": "/ws"}
"""Where each transport has its endpoint, unless `path=` says otherwise."""
WILDCARDS = ("", "0.0.0.0", "::")


class _Site(NamedTuple):
    """What to serve at, and how."""

    options: ServeOptions
    listening: socket.socket
    tls: Mapping[str, str | None]


def run_http(
    service: Service, lifespan: Lifespan, transport: str, given: Mapping[str, Any]
) -> None:
    """Serve until told to stop. `ready` is told the URL once clients can connect."""
    options = dict(given)
    workers = options.pop("workers", 1)
    site = _opened(service, transport, options)
    if workers == 1:
        _serve(service, lifespan, site)
        return
    from msgspec.structs import replace

    from .workers import run_workers

    def work(path: str) -> None:
        async def bus() -> Bus:
            return await join(path)

        _serve(service, lifespan, site._replace(options=replace(site.options, bus=bus)))

    code = run_workers(workers, [site.listening], work, grace=service.limits.shutdown)
    if code is not None:
        raise SystemExit(code)


async def serve_http(
    service: Service, lifespan: Lifespan, transport: str, given: Mapping[str, Any]
) -> None:
    """Serve in the loop that is running, until this is cancelled."""
    if given.get("workers", 1) != 1:
        raise ConfigError("workers= are processes, which only `run` starts")
    site = _opened(
        service, transport, {name: value for name, value in given.items() if name != "workers"}
    )
    server = _made(service, lifespan, site)
    serving = asyncio.ensure_future(server.serve(sockets=[site.listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


def _opened(service: Service, transport: str, options: dict[str, Any]) -> _Site:
    """Whatever may be wrong with what was given is found out now."""
    ready = options.pop("ready", None)
    host, port = options.pop("host", "127.0.0.1"), options.pop("port", 8000)
    tls = {name: options.pop(name, None) for name in ("certfile", "keyfile")}
    path = options.pop("path", None) or PATHS[transport]
    if transport == "sse":
        options.update(sse=path, path=options.pop("endpoint", "/mcp"))
    elif transport == "websocket":
        options.update(websocket=path, path=options.pop("endpoint", "/mcp"))
    else:
        options.update(path=path)
    if host not in WILDCARDS:
        options["bound"] = [host]
    else:
        options["bound"] = [socket.gethostname()]
    chosen = ServeOptions.create(**options)
    chosen.rules(service)  # which complains now rather than in a worker
    key_ring(chosen.keys)  # and so does this
    _need_uvicorn()
    _check(tls)
    listening = _listen(host, port)
    if ready is not None:
        ready(
            chosen.public_url
            or _url(transport, host, listening.getsockname()[1], path, secure=bool(tls["certfile"]))
        )
    return _Site(chosen, listening, tls)


@contextmanager
def _settled() -> Iterator[None]:
    """Look for garbage less often, and not at all among what has been there from the start: a
    request makes hundreds of objects that die with it, and hardly a cycle. Measured: 42 µs of CPU
    for a call instead of 49."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _need_uvicorn() -> None:
    try:
        import uvicorn  # noqa: F401
    except ImportError:
        raise missing_extra("Serving HTTP", "http") from None


def _check(tls: Mapping[str, str | None]) -> None:
    """Complain about a certificate now, rather than in a worker."""
    certificate, key = tls["certfile"], tls["keyfile"]
    if key is not None and certificate is None:
        raise ConfigError("keyfile= is given without certfile=")
    if certificate is not None:
        import ssl

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            raise ConfigError(f"The certificate {certificate} cannot be used: {error}") from None


def _listen(host: str, port: int) -> socket.socket:
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise ConfigError(f"port={port!r}: a port is a number from 0 to 65535")
    try:
        family = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = (
            os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        )
        raise ConfigError(f"Cannot listen on {host} port {port}: {reason}") from None


def _url(transport: str, host: str, port: int, path: str, *, secure: bool) -> str:
    """Where clients find it."""
    scheme = ("ws" if transport == "websocket" else "http") + ("s" if secure else "")
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"


def _serve(service: Service, lifespan: Lifespan, site: _Site) -> None:
    sys.setswitchinterval(0.001)  # as on stdio: threads that compute must not keep the loop waiting
    server = _made(service, lifespan, site)
    with _settled():
        server.run(sockets=[site.listening])


def _made(service: Service, lifespan: Lifespan, site: _Site) -> "uvicorn.Server":
    import uvicorn

    app, limits, tls = App(service, lifespan, site.options), service.limits, site.tls
    try:
        config = uvicorn.Config(
            app,
            http=_protocol(app, limits),
            loop=_loop(),
            ws=_websocket() if site.options.websocket else "none",
            ws_max_size=2
            * limits.incoming,  # beyond it uvicorn hangs up, below we can say what is wrong
            ws_per_message_deflate=False,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, int(limits.shutdown)),
            timeout_keep_alive=75,
            ssl_certfile=tls["certfile"],
            ssl_keyfile=tls["keyfile"],
        )
        config.load()
    except (OSError, ValueError) as error:
        raise ConfigError(f"HTTP cannot be set up: {error}") from None
    return _server(config, app, limits.shutdown)


def _websocket() -> Any:
    """uvicorn's WebSocket, which takes a handshake that was answered by a refusal for one that was
    not answered at all, and complains of each."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class Answered(WebSocketsSansIOProtocol):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
                self.handshake_complete = True

    return Answered


def _loop() -> Any:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"


def _server(config: "uvicorn.Config", app: App, patience: float) -> "uvicorn.Server":
    import uvicorn

    class Server(uvicorn.Server):
        """uvicorn, with an end that is ours."""

        last: threading.Timer | None = None
        """What ends the process, once it was told to stop and does not."""

        def run(self, sockets: list[socket.socket] | None = None) -> None:
            # From here on, as asyncio has yet to wait for every task when uvicorn is done.
            heard = (
                (signal.SIGINT, signal.SIGTERM)
                if threading.current_thread() is threading.main_thread()
                else ()
            )
            before = {number: signal.signal(number, self.handle_exit) for number in heard}
            try:
                super().run(sockets)
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                if self.last is not None:
                    self.last.cancel()

        def handle_exit(self, sig: int, frame: Any) -> None:
            if self.last is not None:
                os._exit(130)
            self.last = exit_after(
                2 * max(1, patience)
            )  # the first half is for an end in good order
            super().handle_exit(sig, frame)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            ending = asyncio.create_task(app.close())  # streams end, so that the connections can
            await super().shutdown(sockets)
            await ending

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            # `run` did; uvicorn would raise the signal again afterwards, but who called `run` goes
            # on
            yield

    return Server(config)


def _protocol(app: App, limits: Limits) -> Any:
    try:
        from .uvicorn_protocol import make_protocol_class
    except ImportError:
        return "h11"
    return make_protocol_class(app, limits)
