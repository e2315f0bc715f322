"""`dovetail ping TARGET`: check whether and how fast a server responds."""

from argparse import ArgumentParser, Namespace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .options import add_client_options, integer
from .output import bold, print_json, print_line
from .session import run_session

if TYPE_CHECKING:
    from .. import Client


def add_ping_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument(
        "--count", metavar="N", type=integer(1), default=1, help="number of pings (default: 1)"
    )


def run_ping(options: Namespace) -> None:
    run_session(ping, show_ping, options)


async def ping(client: "Client", options: Namespace) -> dict[str, Any]:
    """Send the pings and measure each round trip."""
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


def show_ping(answer: dict[str, Any], options: Namespace) -> None:
    if options.json:
        print_json(answer)
        return
    for time in answer["milliseconds"]:
        print_line(bold(answer["server"] or "The server"), f" answered in {time:.2f} ms")
