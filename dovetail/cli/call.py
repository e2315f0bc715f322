"""`dovetail call TARGET TOOL key=value …`: call a tool and print what it gives.

The tool is looked up first, for its schema says how the values are meant. One that is not listed is
called all the same: it may be there for those who have the scopes that it takes, and only who asks
for it by name is told which. A call that becomes a task is waited for, with what the task says of
itself in place of the progress; Ctrl-C cancels the task.
"""

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import InvalidParams, MethodNotFound, NotFound, ToolError
from . import answers, contents, session
from .arguments import parse_arguments
from .output import print_json, print_text

if TYPE_CHECKING:
    from .. import Client, ToolResult
    from ..protocol.tools import Tool

HELP = "Call a tool."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The tool and its arguments."""
    session.add_arguments(parser)
    parser.add_argument("tool", metavar="TOOL")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        help="read by the tool's schema; key:=JSON, key=@FILE",
    )
    parser.add_argument(
        "--args", metavar="JSON", help="all arguments as an object, or @FILE that holds it"
    )
    answers.add_arguments(parser)
    contents.add_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Do it."""
    session.run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> "ToolResult":
    """Call the tool."""
    tools = await client.list_tools()
    schema = next((tool.input_schema for tool in tools if tool.name == options.tool), None)
    arguments = parse_arguments(options.pairs, schema or {}, options.args)
    try:
        return await client.call_tool(
            options.tool, arguments, raise_on_error=False, timeout=options.timeout
        )
    except (InvalidParams, MethodNotFound) as refusal:
        raise refusal if schema is not None else _unknown(options.tool, tools) from None


def show(result: "ToolResult", options: argparse.Namespace) -> None:
    """Print the result; that of a tool that failed is raised."""
    if options.json:
        print_json(_document(result))
    if result.is_error:
        raise ToolError(
            result.text or f"the tool {options.tool} failed, and does not say why", result
        )
    if options.json:
        return
    for block in result.content:
        print_text(contents.text_of(block, options.output))
    if not result.content and result.structured_content is not None:
        print_json(result.structured_content)


def _unknown(name: str, tools: "list[Tool]") -> NotFound:
    from difflib import get_close_matches

    names = [tool.name for tool in tools]
    close = get_close_matches(name, names, n=1)
    hint = (
        f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(names)) or 'none'}"
    )
    return NotFound(f"there is no tool {name!r}; {hint}")


def _document(result: "ToolResult") -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(result)
    return document | {"content": [contents.wire(block) for block in result.content]}
