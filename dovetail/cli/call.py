"""`dovetail call TARGET TOOL key=value …`: call a tool and print its result.

The tool is looked up first, because its schema says how the values are meant. A tool that is not
listed is called anyway: it may exist for users with more scopes, and only a call says which scopes
it needs. A call that becomes a task is waited for, and the task's status messages are shown as
progress; Ctrl-C cancels the task.
"""

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import InvalidParams, MethodNotFound, NotFound, ToolError
from .arguments import parse_arguments
from .contents import add_output_option, content_text, to_wire
from .options import add_client_options, add_elicit_options
from .output import print_json, print_text
from .session import run_session

if TYPE_CHECKING:
    from .. import Client, ToolResult
    from ..protocol.tools import Tool

HELP = "Call a tool and print its result"
EXAMPLES = """\
dovetail call server.py forecast city=Oslo days=3
dovetail call https://example.com/mcp search --args '{"words": ["a", "b"]}'
dovetail call "uvx some-server" upload file=@photo.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("tool", metavar="TOOL", help="the name of the tool")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        help="an argument, converted to the type in the tool's schema; key:=JSON for JSON, "
        "key=@FILE to read a file",
    )
    parser.add_argument(
        "--args", metavar="JSON", help="all arguments as a JSON object, or @FILE to read them"
    )
    add_elicit_options(parser)
    add_output_option(parser)


def execute(options: argparse.Namespace) -> None:
    run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> "ToolResult":
    tools = await client.list_tools()
    schema = next((tool.input_schema for tool in tools if tool.name == options.tool), None)
    arguments = parse_arguments(options.pairs, schema or {}, options.args)
    try:
        return await client.call_tool(
            options.tool, arguments, raise_on_error=False, timeout=options.timeout
        )
    except (InvalidParams, MethodNotFound) as refusal:
        raise refusal if schema is not None else _unknown_tool(options.tool, tools) from None


def show(result: "ToolResult", options: argparse.Namespace) -> None:
    """Print the result; raise ToolError if the tool failed."""
    if options.json:
        print_json(_to_document(result))
    if result.is_error:
        raise ToolError(result.text or f"The tool {options.tool} failed without a message", result)
    if options.json:
        return
    for block in result.content:
        print_text(content_text(block, options.output))
    if not result.content and result.structured_content is not None:
        print_json(result.structured_content)


def _unknown_tool(name: str, tools: "list[Tool]") -> NotFound:
    from difflib import get_close_matches

    names = sorted(tool.name for tool in tools)
    close = get_close_matches(name, names, n=1)
    if close:
        hint = f"Did you mean {close[0]}?"
    else:
        hint = f"It has: {', '.join(names)}" if names else "It has no tools."
    return NotFound(f"The server has no tool {name!r}. {hint}")


def _to_document(result: "ToolResult") -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(result)
    return document | {"content": [to_wire(block) for block in result.content]}
