"""`dovetail prompt TARGET NAME key=value …`: fill in a prompt and print its messages."""

import argparse
from typing import TYPE_CHECKING

from .arguments import parse_arguments
from .contents import add_output_option, content_text, to_wire
from .options import add_client_options, add_elicit_options
from .output import bold, dim, print_json, print_line, print_text
from .session import run_session

if TYPE_CHECKING:
    from .. import Client
    from ..protocol.prompts import GetPromptResult

HELP = "Fill in a prompt and print its messages"
EXAMPLES = "dovetail prompt server.py review code=@main.py language=python"
STRING_ARGUMENTS = {"additionalProperties": {"type": "string"}}
"""The schema of a prompt's arguments: all of them are strings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("name", metavar="NAME", help="the name of the prompt")
    parser.add_argument(
        "pairs", metavar="key=value", nargs="*", help="an argument; key=@FILE to read a file"
    )
    add_elicit_options(parser)
    add_output_option(parser)


def execute(options: argparse.Namespace) -> None:
    run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> "GetPromptResult":
    return await client.get_prompt(options.name, parse_arguments(options.pairs, STRING_ARGUMENTS))


def show(result: "GetPromptResult", options: argparse.Namespace) -> None:
    """Print the messages, each below its role."""
    if options.json:
        messages = [
            {"role": message.role, "content": to_wire(message.content)}
            for message in result.messages
        ]
        print_json({"description": result.description, "messages": messages})
        return
    if result.description:
        print_line(dim(result.description))
    for message in result.messages:
        print_line(bold(f"{message.role}:"))
        print_text(content_text(message.content, options.output))
