"""`dovetail ping TARGET`: is the server there, and how fast does it answer?"""

import argparse
from time import perf_counter
from typing import TYPE_CHECKING, Any

from . import session
from .output import bold, print_json, print_line

if TYPE_CHECKING:
    from .. import Client

HELP = "Ask a server whether it is there."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How often."""
    session.add_arguments(parser)
    parser.add_argument("--count", metavar="N", type=_times, default=1, help="how often; default 1")


def execute(options: argparse.Namespace) -> None:
    """Do it."""
    session.run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> dict[str, Any]:
    """Ping, and take the time of each round trip."""
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
    """Print the times."""
    if options.json:
        print_json(answer)
        return
    for time in answer["milliseconds"]:
        print_line(bold(answer["server"] or "the server"), f" answered in {time:.2f} ms")


def _times(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return count
