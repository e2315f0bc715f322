r"""`dovetail run FILE[:OBJECT]`: load a Python file and serve the server in it.

The file is imported, not executed as a script: its `if __name__ == "__main__":` does not run. Its
folder comes first on `sys.path`, as it would for a script. While it loads, `print` goes to stderr,
for stdout belongs to the protocol.

Where it is reached over a network, one line on stderr says where, as soon as clients can connect;
`--json` says it on stdout.
"""

import argparse
import os
import sys
from contextlib import redirect_stdout
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DovetailError
from .output import print_error, print_json

if TYPE_CHECKING:
    from .. import Server

HELP = "Serve the server in a Python file, on stdio unless told otherwise."
USUAL_NAMES = ("server", "mcp", "app")
"""What servers are called; where a file has several, one of these names is the one."""
DEFAULT_PATHS = {"http": "/mcp", "sse": "/sse", "websocket": "/ws"}
"""The transports that listen, and where the endpoint is unless told."""
NETWORK_SETTINGS = ("host", "port", "path", "workers", "certfile", "keyfile", "public_url")
"""What `Server.run` takes for them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, the transport and its settings."""
    parser.add_argument(
        "file", metavar="FILE[:OBJECT]", help="a Python file, and the name of the server in it"
    )
    transports = parser.add_mutually_exclusive_group()
    for name in DEFAULT_PATHS:
        transports.add_argument(
            f"--{name}", dest="transport", action="store_const", const=name, default="stdio"
        )
    parser.add_argument("--host", help="the address to listen on, 127.0.0.1 unless told")
    parser.add_argument("--port", type=_port, help="8000 unless told; 0 takes a free one")
    parser.add_argument(
        "--path", help=f"of the endpoint; {', '.join(DEFAULT_PATHS.values())} unless told"
    )
    parser.add_argument("--workers", metavar="N", type=_count, help="processes that serve")
    parser.add_argument("--certfile", metavar="FILE", help="the certificate, for TLS")
    parser.add_argument("--keyfile", metavar="FILE", help="its key")
    parser.add_argument(
        "--public-url", metavar="URL", help="the URL that clients use, where a proxy is in front"
    )


def execute(options: argparse.Namespace) -> None:
    """Do it."""
    path, name = split_object(options.file)
    server = _find_server(_load(path), name, path)
    given = {key: value for key in NETWORK_SETTINGS if (value := getattr(options, key)) is not None}
    if options.transport in DEFAULT_PATHS:
        given["ready"] = lambda url: _announce(server.name, url, options.json)
    elif given:
        stray = next(iter(given)).replace("_", "-")
        raise ConfigError(
            f"--{stray} is for a server on the network: add --http, --sse or --websocket"
        )
    server.run(options.transport, **given)


def _announce(name: str, url: str, as_json: bool) -> None:
    if as_json:
        print_json({"server": name, "url": url})
        sys.stdout.flush()
    else:
        print_error(f"Serving {name} on {url}")


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port < 65536:
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return port


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return count


def split_object(text: str) -> tuple[str, str | None]:
    r"""File and object of `FILE[:OBJECT]`; the colon of `C:\server.py` is no such colon."""
    path, colon, name = text.rpartition(":")
    if colon and len(path) > 1 and all(part.isidentifier() for part in name.split(".")):
        return path, name
    return text, None


def _load(path: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    if not os.path.isfile(path):
        raise ConfigError(f"there is no file {path}")
    path = os.path.abspath(path)
    name = os.path.basename(path).partition(".")[0]
    spec = spec_from_file_location(name if name not in sys.modules else f"_{name}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file")
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
    """The file, and the line of it that was being executed."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == path else None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return path if line is None else f"{path}:{line}"


def _describe_error(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _find_server(module: ModuleType, name: str | None, path: str) -> "Server":
    from .. import Server

    if name is not None:
        return _get_named_server(module, name, path)
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    usual = [servers[key] for key in USUAL_NAMES if key in servers]
    if usual or len(set(map(id, servers.values()))) == 1:
        return usual[0] if usual else next(iter(servers.values()))
    if not servers:
        raise ConfigError(
            f"{path} has no Server at module level; make one, or name it: {path}:OBJECT"
        )
    raise ConfigError(
        f"{path} has several servers; choose one: {', '.join(f'{path}:{key}' for key in servers)}"
    )


def _get_named_server(module: ModuleType, name: str, path: str) -> "Server":
    from .. import Server

    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Server):
        what = "is not there" if found is None else f"is no Server but {type(found).__name__!r}"
        raise ConfigError(f"{path}: {name} {what}")
    return found
