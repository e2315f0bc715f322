"""`dovetail prompt TARGET NAME key=value …`: fill in a prompt and print its messages."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..errors import InvalidParams, MethodNotFound
from .arguments import parse_arguments
from .content import add_content_options, content_text, to_wire
from .options import add_client_options
from .output import bold, dim, print_json, print_line, print_text
from .session import run_session
from .suggest import list_if_possible, unknown

if TYPE_CHECKING:
    from .. import Client
    from ..protocol.prompts import GetPromptResult

PROMPT_SCHEMA = {"additionalProperties": {"type": "string"}}
"""The schema of a prompt's arguments, which are all strings."""


def add_prompt_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("name", metavar="NAME", help="the name of the prompt")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        default=[],  # without it, argparse reports the pairs as missing too
        help="an argument; write key=@FILE to read a file",
    )
    add_content_options(parser)


def run_prompt(options: Namespace) -> None:
    run_session(get_prompt, show_prompt, options)


async def get_prompt(client: "Client", options: Namespace) -> "GetPromptResult":
    arguments = parse_arguments(options.pairs, PROMPT_SCHEMA)
    try:
        return await client.get_prompt(options.name, arguments)
    except (InvalidParams, MethodNotFound) as refusal:
        names = [prompt.name for prompt in await list_if_possible(client.list_prompts)]
        raise refusal if options.name in names else unknown("prompt", options.name, names) from None


def show_prompt(result: "GetPromptResult", options: Namespace) -> None:
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
