"""`dovetail ping TARGET`: check that a server responds, and how fast."""

import argparse
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .options import add_client_options, integer
from .output import bold, print_json, print_line
from .session import run_session

if TYPE_CHECKING:
    from .. import Client

HELP = "Check that a server responds"
EXAMPLES = "dovetail ping https://example.com/mcp --count 5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument(
        "--count", metavar="N", type=integer(1), default=1, help="how many pings (default: 1)"
    )


def execute(options: argparse.Namespace) -> None:
    run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> dict[str, Any]:
    """Ping, and measure each round trip."""
    milliseconds = []
    for _ in range(options.count):
        start = perf_counter()
        await client.ping()
        milliseconds.append(round((perf_counter() - start) * 1000, 3))
    info = client.server_info
    return {
        "server": info.name if info else None,
        "revision": client.revision,
        "milliseconds": milliseconds,
    }


def show(answer: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print_json(answer)
        return
    for time in answer["milliseconds"]:
        print_line(bold(answer["server"] or "The server"), f" answered in {time:.2f} ms")
