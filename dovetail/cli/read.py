"""`dovetail read TARGET URI`: print what a resource holds."""

import argparse
from typing import TYPE_CHECKING

from . import answers, contents, session
from .output import dim, print_json, print_line, print_text

if TYPE_CHECKING:
    from .. import Client
    from ..protocol.content import ResourceContents

HELP = "Read a resource."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The resource."""
    session.add_arguments(parser)
    parser.add_argument("uri", metavar="URI")
    answers.add_arguments(parser)
    contents.add_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Do it."""
    session.run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> "list[ResourceContents]":
    """Read the resource."""
    return await client.read_resource(options.uri)


def show(parts: "list[ResourceContents]", options: argparse.Namespace) -> None:
    """Print its contents; where there are several, each under its URI."""
    if options.json:
        print_json({"contents": parts})
        return
    for part in parts:
        if len(parts) > 1:
            print_line(dim(part.uri))
        print_text(contents.text_of_resource(part, options.output))
