"""`dovetail worker FILE[:OBJECT]`: run the tasks of a server, and serve no clients.

A worker takes its tasks from the shared backend, so it does not start without one.
"""

from argparse import ArgumentParser, Namespace

from ..errors import ConfigError
from ..python_target.parse import parse_python_target
from .backend import add_backend_option, use_backend_options
from .options import integer


def add_worker_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE[:OBJECT]",
        help="a Python file, such as server.py, or MODULE:OBJECT, as for `dovetail run`",
    )
    add_backend_option(parser)
    parser.add_argument(
        "--tasks",
        metavar="N",
        type=integer(1),
        help="how many tasks this process runs at once (default: 16)",
    )
    parser.add_argument(
        "--health",
        metavar="[HOST:]PORT",
        help="answer health checks (/health) and serve metrics (/metrics) on this port, at "
        "127.0.0.1 unless you name another address, such as 0.0.0.0 for all (default: no port is "
        "opened)",
    )


def run_worker(options: Namespace) -> None:
    from ..python_target.load import load_server
    from ..server.server import Server

    target = parse_python_target(options.file)
    if target is None:
        raise ConfigError(f"{options.file} is not a Python file or MODULE:OBJECT")
    server = load_server(target)
    if not isinstance(server, Server):
        raise ConfigError(
            f"{options.file} is a gateway, which has no tasks of its own. Name the file of a server"
        )
    use_backend_options(server, options)
    server.run_worker(health=options.health)
