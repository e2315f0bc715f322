"""A server that listens on a port and runs the application with uvicorn, in one or more processes.

All options are checked and the port is opened before anything else starts. `listening.py`
opens the port, `uvicorn_server.py` holds our changes to uvicorn, and `workers.py` runs several
processes.
"""

import asyncio
import socket
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..connection.bus import join
from ..errors import ConfigError
from ..logs import get_logger
from ..net import is_loopback
from ..ports import Service
from ..sealing import key_ring
from ..text import escape_unsafe
from .app import App
from .channel import Lifespan
from .listening import check_installed, listen, tuned_gc
from .options import ServeOptions

if TYPE_CHECKING:
    from .uvicorn_server import HttpServer, ServedApp

log = get_logger("http")

PATHS = {"http": "/mcp", "sse": "/sse", "websocket": "/ws"}
"""The default path of each transport's endpoint."""
WILDCARDS = ("", "0.0.0.0", "::")
NO_TLS: Mapping[str, str | None] = {"certfile": None, "keyfile": None}


class _Listener(NamedTuple):
    """A listening socket, with the options and TLS files for serving on it."""

    options: ServeOptions
    sock: socket.socket
    tls: Mapping[str, str | None]


def run_http(
    service: Service, lifespan: Lifespan, transport: str, options: Mapping[str, Any]
) -> None:
    """Serve until a signal arrives.

    The `ready` option is a function that is called with the URL once clients can connect. By
    default, the URL is printed.
    """
    workers = options.get("workers", 1)
    if options.get("ready") is None and not options.get("quiet"):
        options = {**options, "ready": partial(_print_url, service.info.name)}
    listener = _open(service, transport, options)
    if workers == 1:
        _serve(service, lifespan, listener)
        return
    from .workers import run_workers

    def work(path: str) -> None:
        with_bus = listener
        if listener.options.bus is None and not service.backend:
            options = replace(listener.options, bus=partial(join, path))
            with_bus = listener._replace(options=options)
        _serve(service, lifespan, with_bus)

    code = run_workers(
        workers,
        [listener.sock],
        work,
        grace=service.limits.shutdown,
        passed_on=service.reload_signals,
    )
    if code is not None:
        raise SystemExit(code)


def serve_app(app: App, host: str, port: int) -> None:
    """Serve an application that no client uses until a signal arrives."""
    check_installed()
    run_server(app, [listen(host, port)])


async def serve_http(
    service: Service, lifespan: Lifespan, transport: str, options: Mapping[str, Any]
) -> None:
    """Serve in the running event loop until cancelled."""
    if options.get("workers", 1) != 1:
        raise ConfigError("workers= works only with `run`, which starts the processes")
    listener = _open(service, transport, options)
    server = _make_server(service, lifespan, listener)
    serving = asyncio.ensure_future(server.serve(sockets=[listener.sock]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


def _open(service: Service, transport: str, given: Mapping[str, Any]) -> _Listener:
    """Check all options and start listening, so that mistakes are reported here and not in a
    worker."""
    options = {name: value for name, value in given.items() if name not in ("workers", "quiet")}
    ready = options.pop("ready", None)
    host, port = options.pop("host", "127.0.0.1"), options.pop("port", 8000)
    tls = {name: options.pop(name, None) for name in ("certfile", "keyfile")}
    path = options.pop("path", None) or PATHS[transport]
    if transport == "http":
        options["path"] = path
    else:  # the option is named after the transport that it adds
        options[transport], options["path"] = path, options.pop("endpoint", "/mcp")
    options["bound"] = [socket.gethostname() if host in WILDCARDS else host]
    serve_options = ServeOptions.create(**options)
    serve_options.rules(service)
    key_ring(serve_options.keys)
    check_installed()
    _check_certificate(tls)
    listening = listen(host, port)
    if service.guard is None and not is_loopback(host):
        _warn_open(service, host, listening.getsockname()[1])
    if ready is not None:
        ready(
            serve_options.public_url
            or _url(transport, host, listening.getsockname()[1], path, secure=bool(tls["certfile"]))
        )
    return _Listener(serve_options, listening, tls)


def _warn_open(service: Service, host: str, port: int) -> None:
    where = f"port {port} on this machine" if host in WILDCARDS else f"{host} port {port}"
    log.warning(
        "Anyone who can reach %s can use every tool, resource and prompt on %s, because the server "
        "does not authenticate its callers. Set Server(auth=…), or listen on this machine only: "
        'host="127.0.0.1"',
        where,
        escape_unsafe(service.info.name),
    )


def _check_certificate(tls: Mapping[str, str | None]) -> None:
    certificate, key = tls["certfile"], tls["keyfile"]
    if key is not None and certificate is None:
        raise ConfigError("keyfile= requires certfile=")
    if certificate is not None:
        import ssl

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            raise ConfigError(f"The certificate {certificate} cannot be used: {error}") from None


def _url(transport: str, host: str, port: int, path: str, *, secure: bool) -> str:
    scheme = ("ws" if transport == "websocket" else "http") + ("s" if secure else "")
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"


def _print_url(name: str, url: str) -> None:
    if sys.stderr is not None:
        hint = " (press Ctrl-C to stop)" if sys.stderr.isatty() else ""
        print(escape_unsafe(f"Serving {name} on {url}{hint}"), file=sys.stderr, flush=True)


def _serve(service: Service, lifespan: Lifespan, listener: _Listener) -> None:
    sys.setswitchinterval(0.001)  # see `run_stdio`
    run_server(App(service, lifespan, listener.options), [listener.sock], listener.tls)


def run_server(
    app: "ServedApp", sockets: list[socket.socket], tls: Mapping[str, str | None] = NO_TLS
) -> None:
    """Serve an application until a signal arrives."""
    from .uvicorn_server import make_server

    server = make_server(app, tls)
    with tuned_gc():
        server.run(sockets=sockets)


def _make_server(service: Service, lifespan: Lifespan, listener: _Listener) -> "HttpServer":
    from .uvicorn_server import make_server

    return make_server(App(service, lifespan, listener.options), listener.tls)
