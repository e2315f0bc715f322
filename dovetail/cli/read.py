"""`dovetail read TARGET URI`: print the contents of a resource."""

import argparse
from typing import TYPE_CHECKING

from .contents import add_output_option, resource_text
from .options import add_client_options, add_elicit_options
from .output import dim, print_json, print_line, print_text
from .session import run_session

if TYPE_CHECKING:
    from .. import Client
    from ..protocol.content import ResourceContents

HELP = "Print the contents of a resource"
EXAMPLES = "dovetail read server.py config://app"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("uri", metavar="URI", help="the URI of the resource")
    add_elicit_options(parser)
    add_output_option(parser)


def execute(options: argparse.Namespace) -> None:
    run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> "list[ResourceContents]":
    return await client.read_resource(options.uri)


def show(parts: "list[ResourceContents]", options: argparse.Namespace) -> None:
    """Print the contents; if there are several, print the URI above each."""
    if options.json:
        print_json({"contents": parts})
        return
    for part in parts:
        if len(parts) > 1:
            print_line(dim(part.uri))
        print_text(resource_text(part, options.output))
