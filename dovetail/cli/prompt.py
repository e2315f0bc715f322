"""`dovetail prompt TARGET NAME key=value …`: fill in a prompt and print its messages."""

import argparse
from typing import TYPE_CHECKING

from . import answers, contents, session
from .arguments import parse_arguments
from .output import bold, dim, print_json, print_line, print_text

if TYPE_CHECKING:
    from .. import Client
    from ..protocol.prompts import GetPromptResult

HELP = "Fill in a prompt."
STRINGS = {"additionalProperties": {"type": "string"}}
"""The arguments of a prompt are strings, all of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The prompt and its arguments."""
    session.add_arguments(parser)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "pairs", metavar="key=value", nargs="*", help="text; key=@FILE reads it from a file"
    )
    answers.add_arguments(parser)
    contents.add_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Do it."""
    session.run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> "GetPromptResult":
    """Get the prompt."""
    return await client.get_prompt(options.name, parse_arguments(options.pairs, STRINGS))


def show(result: "GetPromptResult", options: argparse.Namespace) -> None:
    """Print the messages, each under its role."""
    if options.json:
        messages = [
            {"role": one.role, "content": contents.wire(one.content)} for one in result.messages
        ]
        print_json({"description": result.description, "messages": messages})
        return
    if result.description:
        print_line(dim(result.description))
    for message in result.messages:
        print_line(bold(f"{message.role}:"))
        print_text(contents.text_of(message.content, options.output))
