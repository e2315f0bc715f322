"""`dovetail call TARGET TOOL key=value …`: call a tool and print its result.

The tool is looked up first, because its schema determines how values are parsed. A tool that is
not listed is called anyway: it may exist for users with more scopes, and only a call reveals which
scopes it needs. If a call becomes a task, `call` waits for it and shows its status messages as
progress; Ctrl-C cancels the task.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ..errors import InvalidParams, MethodNotFound, ToolError
from ..text import closest_name
from .arguments import parse_arguments
from .content import add_content_options, content_text, to_wire
from .options import add_client_options
from .output import print_json, print_text_or_json
from .session import run_session
from .suggest import unknown

if TYPE_CHECKING:
    from .. import Client, ToolResult


def add_call_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("tool", metavar="TOOL", help="the name of the tool")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        default=[],  # without it, argparse reports the pairs as missing too
        help="an argument, converted to the type in the tool's schema; write key:=JSON for JSON, "
        "key=@FILE to read a file, key.field=value for an object field, or key=a key=b for "
        "an array",
    )
    parser.add_argument(
        "--args",
        metavar="JSON",
        help="all arguments as a JSON object, @FILE to read them from a file, or - for stdin",
    )
    parser.add_argument(
        "--confirm",
        action="store_true",
        help="show the call at the terminal before it is sent; you can change or refuse it",
    )
    add_content_options(parser)


def run_call(options: Namespace) -> None:
    run_session(call_tool, show_tool_result, options)


async def call_tool(client: "Client", options: Namespace) -> "ToolResult":
    tools = await client.list_tools()
    schema = next((tool.input_schema for tool in tools if tool.name == options.tool), None)
    arguments = parse_arguments(options.pairs, schema or {}, options.args)
    options.hint = _suggest_arguments(arguments, schema or {})
    try:
        return await client.call_tool(
            options.tool, arguments, raise_on_error=False, timeout=options.timeout
        )
    except (InvalidParams, MethodNotFound) as refusal:
        if schema is not None:
            raise refusal
        raise unknown("tool", options.tool, (tool.name for tool in tools)) from None


def _suggest_arguments(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return a hint for arguments that the schema does not declare; shown if the tool fails."""
    declared = schema.get("properties")
    names = declared if isinstance(declared, dict) else {}
    close = [closest_name(name, names) for name in arguments if name not in names]
    found = ", ".join(name for name in close if name)
    return f" (did you mean {found}?)" if found else ""


def show_tool_result(result: "ToolResult", options: Namespace) -> None:
    """Print the result; raise ToolError if the tool failed."""
    if options.json:
        from msgspec.structs import replace

        print_json(replace(result, content=[to_wire(block) for block in result.content]))
    if result.is_error:
        text = result.text or f"The tool {options.tool} failed without a message"
        raise ToolError(text + options.hint, result)
    if options.json:
        return
    for block in result.content:
        print_text_or_json(content_text(block, options.output))
    if not result.content and result.structured_content is not None:
        print_json(result.structured_content)
