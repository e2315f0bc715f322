"""`dovetail run FILE[:OBJECT]`: load a Python file and serve the server in it.

The file is imported, not run as a script: its `if __name__ == "__main__":` block does not run. Its
folder comes first on `sys.path`, as it would for a script. While it loads, `print` goes to stderr,
because stdout carries the protocol.

A server on the network announces its URL in one line on stderr, as soon as clients can connect;
with `--json` it does so on stdout.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DovetailError
from .options import integer
from .output import print_error, print_json, with_article

if TYPE_CHECKING:
    from .. import Server

USUAL_NAMES = ("server", "mcp", "app")
"""If a file has several servers, the one with the first of these names is served."""
NETWORK_TRANSPORTS = {"http": "streamable HTTP", "sse": "HTTP+SSE", "websocket": "WebSocket"}
NETWORK_SETTINGS = ("host", "port", "path", "workers", "certfile", "keyfile", "public_url")
"""The arguments of `Server.run` for network transports."""


def add_run_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE[:OBJECT]",
        help="a Python file, and the name of the server in it if it has several",
    )
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
        "--port", type=integer(0, 65535), help="port to listen on; 0 for a free one (default: 8000)"
    )
    parser.add_argument(
        "--path", help="path of the endpoint (default: /mcp; /sse with --sse, /ws with --websocket)"
    )
    parser.add_argument(
        "--workers", metavar="N", type=integer(1), help="number of worker processes (default: 1)"
    )
    parser.add_argument("--certfile", metavar="FILE", help="TLS certificate")
    parser.add_argument("--keyfile", metavar="FILE", help="private key of the TLS certificate")
    parser.add_argument(
        "--public-url",
        metavar="URL",
        help="the URL that clients use, if the server is behind a proxy",
    )


def run_server(options: Namespace) -> None:
    path, name = split_object(options.file)
    server = _find_server(_load(path), name, path)
    settings = {
        key: value for key in NETWORK_SETTINGS if (value := getattr(options, key)) is not None
    }
    if options.transport in NETWORK_TRANSPORTS:
        settings["ready"] = lambda url: _announce(server.name, url, options.json)
    elif settings:
        option = next(iter(settings)).replace("_", "-")
        raise ConfigError(
            f"--{option} is for a server on the network; add --http, --sse or --websocket"
        )
    server.run(options.transport, **settings)


def _announce(name: str, url: str, as_json: bool) -> None:
    if as_json:
        print_json({"server": name, "url": url})
        sys.stdout.flush()
    else:
        print_error(f"Serving {name} on {url}")


def split_object(text: str) -> tuple[str, str | None]:
    r"""Split `FILE[:OBJECT]`; the colon of `C:\server.py` is not a separator."""
    path, colon, name = text.rpartition(":")
    if colon and len(path) > 1 and all(part.isidentifier() for part in name.split(".")):
        return path, name
    return text, None


def _load(path: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    if not os.path.isfile(path):
        raise ConfigError(f"There is no file {path}")
    path = os.path.abspath(path)
    name = os.path.basename(path).partition(".")[0]
    spec = spec_from_file_location(name if name not in sys.modules else f"_{name}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, os.path.dirname(path))
    sys.argv = [path]
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise DovetailError(f"{_locate_error(error, path)}: {_describe_error(error)}") from error
    return module


def _locate_error(error: BaseException, path: str) -> str:
    """Return the file and the line that was being executed."""
    from traceback import walk_tb

    line = error.lineno if isinstance(error, SyntaxError) and error.filename == path else None
    for frame, number in walk_tb(error.__traceback__):
        if frame.f_code.co_filename == path:
            line = number
    return path if line is None else f"{path}:{line}"


def _describe_error(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _find_server(module: ModuleType, name: str | None, path: str) -> "Server":
    from .. import Server

    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if name is not None:
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, Server):
            return found
        raise ConfigError(_not_a_server(found, name, path, list(servers)))
    for key in USUAL_NAMES:
        if key in servers:
            return servers[key]
    if not servers:
        raise ConfigError(
            f"{path} has no Server at module level; create one, or name it: {path}:OBJECT"
        )
    if len(set(map(id, servers.values()))) == 1:
        return next(iter(servers.values()))
    choices = ", ".join(f"{path}:{key}" for key in servers)
    raise ConfigError(f"{path} has several servers; choose one: {choices}")


def _not_a_server(found: Any, name: str, path: str, servers: list[str]) -> str:
    if found is None:
        names = f"; it has: {', '.join(servers)}" if servers else ""
        return f"{path} has no object named {name!r}{names}"
    remedy = "Call it, or name" if callable(found) else "Name"
    example = f"{path}:{servers[0] if servers else 'server'}"
    return (
        f"{name} is {with_article(type(found).__name__)}, not a Server. {remedy} the Server "
        f"object: {example}"
    )
