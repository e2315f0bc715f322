"""`dovetail run FILE[:OBJECT]`: load Python code and run the server or gateway in it
(`python_target`), or serve an HTTP API (`openapi.py`).

A server on the network prints its URL in one line on stderr as soon as clients can connect. With
`--json`, it prints the URL on stdout.
"""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..python_target.parse import parse_python_target
from .backend import add_backend_option, add_tasks_option, use_backend_options
from .compat import add_compat_option
from .openapi import add_openapi_arguments, check_openapi_options, make_openapi_server
from .options import integer, parse_seconds
from .output import print_json

if TYPE_CHECKING:
    from ..server.runnable import RunnableService

NETWORK_TRANSPORTS = {"http": "streamable HTTP", "sse": "HTTP+SSE", "websocket": "WebSocket"}
NETWORK_SETTINGS = (
    "host", "port", "path", "workers", "certfile", "keyfile", "public_url", "hosts",
    "trusted_proxies", "long_polling", "metrics",
)  # fmt: skip
"""The arguments of `Server.run` for network transports."""


def add_run_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE[:OBJECT]",
        help="a Python file, such as server.py, or MODULE:OBJECT; OBJECT names a server or a "
        "gateway, or a function that returns one, in a module or a file: "
        "shop.servers:make_server, server.py:orders",
    )
    add_network_arguments(parser)
    add_tasks_option(parser)
    add_openapi_arguments(parser)
    add_compat_option(parser)


def add_network_arguments(parser: ArgumentParser) -> None:
    """Add the transports and their settings, and the shared backend."""
    transports = parser.add_mutually_exclusive_group()
    for name, title in NETWORK_TRANSPORTS.items():
        transports.add_argument(
            f"--{name}",
            dest="transport",
            action="store_const",
            const=name,
            default="stdio",
            help=f"serve over {title} (default: stdio)",
        )
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=integer(0, 65535),
        help="port to listen on, or 0 for a free port (default: 8000)",
    )
    parser.add_argument(
        "--path", help="endpoint path (default: /mcp, /sse with --sse, or /ws with --websocket)"
    )
    parser.add_argument(
        "--workers", metavar="N", type=integer(1), help="number of worker processes (default: 1)"
    )
    parser.add_argument("--certfile", metavar="FILE", help="TLS certificate")
    parser.add_argument("--keyfile", metavar="FILE", help="private key for the TLS certificate")
    parser.add_argument(
        "--public-url",
        metavar="URL",
        help="the URL that clients use, if the server is behind a proxy",
    )
    parser.add_argument(
        "--hosts",
        metavar="NAME",
        action="append",
        help="accept requests for this host name ('*' for any), in addition to the address and "
        "localhost; repeatable",
    )
    parser.add_argument(
        "--trusted-proxies",
        metavar="ADDRESS",
        action="append",
        help="address or network of a proxy that reports the clients' addresses; repeatable",
    )
    parser.add_argument(
        "--long-polling",
        metavar="SECONDS",
        type=parse_seconds,
        help="let clients poll for messages with GET; each poll waits up to SECONDS",
    )
    parser.add_argument(
        "--metrics",
        metavar="PATH",
        help="serve metrics for Prometheus at this path, such as /metrics (default: none)",
    )
    add_backend_option(parser)


def run_server(options: Namespace) -> None:
    if options.compat is not None:
        from .run_compat import run_compat

        run_compat(options, _given_options(options))
        return
    server = _load(options)
    settings = read_network_settings(options, server.name)
    use_backend_options(server, options)
    if options.verbose:
        from .request_log import log_requests

        log_requests(server)
    server.run(options.transport, **settings)


def _given_options(options: Namespace) -> list[str]:
    """Return what the user has given that concerns only servers of Dovetail's own."""
    given = [] if options.file is None else [options.file]
    if options.transport in NETWORK_TRANSPORTS:
        given.append(f"--{options.transport}")
    names = ("openapi", "backend", *NETWORK_SETTINGS)
    return given + [
        f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None
    ]


def _load(options: Namespace) -> "RunnableService":
    """Return the server that the command line names. `sys.argv` becomes what a message at a
    terminal suggests to try."""
    if options.openapi is not None:
        server = make_openapi_server(options)
        sys.argv[0] = "dovetail"
        return server
    from ..python_target.load import load_server

    check_openapi_options(options)
    if options.file is None:
        raise ConfigError("Name a Python file, such as server.py, or an API with --openapi")
    target = parse_python_target(options.file)
    if target is None:
        raise ConfigError(f"{options.file} is not a Python file or MODULE:OBJECT")
    loaded = load_server(target)
    sys.argv = [options.file]
    return loaded


def read_network_settings(options: Namespace, name: str) -> dict[str, Any]:
    """Return the arguments of `run` for the transport.

    Args:
        options: The command line.
        name: The name of the server, which is printed with its URL.
    """
    settings = {
        key: value for key in NETWORK_SETTINGS if (value := getattr(options, key)) is not None
    }
    if options.transport in NETWORK_TRANSPORTS:
        if options.json:
            settings["ready"] = lambda url: _print_url(name, url)
    elif settings:
        option = next(iter(settings)).replace("_", "-")
        raise ConfigError(
            f"--{option} requires a network transport; add --http, --sse or --websocket"
        )
    return settings


def _print_url(name: str, url: str) -> None:
    print_json({"server": name, "url": url})
    sys.stdout.flush()
