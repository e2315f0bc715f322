"""The verbs that send requests and print the answers: `call`, `read`, `prompt` and `ping`.

Text and links are printed; images, audio and blobs are summarized. With `--output DIR` the
summarized content is also saved there, under names that we choose: a server cannot choose where a
file is written.

`call` looks up the tool first, because its schema determines how values are parsed. A tool that is
not listed is called anyway: it may exist for users with more scopes, and only a call reveals which
scopes it needs. If a call becomes a task, `call` waits for it and shows its status messages as
progress; Ctrl-C cancels the task.
"""

import binascii
from argparse import ArgumentParser, Namespace
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..errors import DovetailError, InvalidParams, MethodNotFound, NotFound, ToolError
from .arguments import parse_arguments
from .options import add_client_options, integer
from .output import bold, dim, format_size, print_json, print_line, print_text

if TYPE_CHECKING:
    from .. import Client, ToolResult
    from ..protocol.content import Content, ResourceContents
    from ..protocol.prompts import GetPromptResult
    from ..protocol.tools import Tool

PROMPT_SCHEMA = {"additionalProperties": {"type": "string"}}
"""The schema of a prompt's arguments: all of them are strings."""


# call


def add_call_arguments(parser: ArgumentParser) -> None:
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
    _add_content_options(parser)


async def call_tool(client: "Client", options: Namespace) -> "ToolResult":
    tools = await client.list_tools()
    schema = next((tool.input_schema for tool in tools if tool.name == options.tool), None)
    arguments = parse_arguments(options.pairs, schema or {}, options.args)
    try:
        return await client.call_tool(
            options.tool, arguments, raise_on_error=False, timeout=options.timeout
        )
    except (InvalidParams, MethodNotFound) as refusal:
        raise refusal if schema is not None else _unknown_tool(options.tool, tools) from None


def _unknown_tool(name: str, tools: "list[Tool]") -> NotFound:
    from difflib import get_close_matches

    names = sorted(tool.name for tool in tools)
    close = get_close_matches(name, names, n=1)
    if close:
        hint = f"Did you mean {close[0]}?"
    else:
        hint = f"It has: {', '.join(names)}" if names else "It has no tools."
    return NotFound(f"The server has no tool {name!r}. {hint}")


def show_tool_result(result: "ToolResult", options: Namespace) -> None:
    """Print the result; raise ToolError if the tool failed."""
    if options.json:
        from msgspec.structs import replace

        print_json(replace(result, content=[_to_wire(block) for block in result.content]))
    if result.is_error:
        raise ToolError(result.text or f"The tool {options.tool} failed without a message", result)
    if options.json:
        return
    for block in result.content:
        print_text(_content_text(block, options.output))
    if not result.content and result.structured_content is not None:
        print_json(result.structured_content)


# read


def add_read_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("uri", metavar="URI", help="the URI of the resource")
    _add_content_options(parser)


async def read_resource(client: "Client", options: Namespace) -> "list[ResourceContents]":
    return await client.read_resource(options.uri)


def show_resource(parts: "list[ResourceContents]", options: Namespace) -> None:
    """Print the contents; if there are several, print the URI above each."""
    if options.json:
        print_json({"contents": parts})
        return
    for part in parts:
        if len(parts) > 1:
            print_line(dim(part.uri))
        print_text(_resource_text(part, options.output))


# prompt


def add_prompt_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("name", metavar="NAME", help="the name of the prompt")
    parser.add_argument(
        "pairs", metavar="key=value", nargs="*", help="an argument; key=@FILE to read a file"
    )
    _add_content_options(parser)


async def get_prompt(client: "Client", options: Namespace) -> "GetPromptResult":
    return await client.get_prompt(options.name, parse_arguments(options.pairs, PROMPT_SCHEMA))


def show_prompt(result: "GetPromptResult", options: Namespace) -> None:
    """Print the messages, each below its role."""
    if options.json:
        messages = [
            {"role": message.role, "content": _to_wire(message.content)}
            for message in result.messages
        ]
        print_json({"description": result.description, "messages": messages})
        return
    if result.description:
        print_line(dim(result.description))
    for message in result.messages:
        print_line(bold(f"{message.role}:"))
        print_text(_content_text(message.content, options.output))


# ping


def add_ping_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument(
        "--count", metavar="N", type=integer(1), default=1, help="number of pings (default: 1)"
    )


async def ping(client: "Client", options: Namespace) -> dict[str, Any]:
    """Ping, and measure each round trip."""
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


# content


def _add_content_options(parser: ArgumentParser) -> None:
    """Add the options of the verbs that show content and during which a server may ask the user."""
    parser.add_argument(
        "--yes",
        "--defaults",
        action="store_true",
        dest="defaults",
        help="answer the server's questions with their defaults instead of asking you",
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="save images, audio and blobs to this directory"
    )


def _content_text(block: "Content", output: Path | None) -> str:
    """Return the text to print for a content block."""
    from ..protocol import content

    match block:
        case content.TextContent():
            return block.text
        case content.ImageContent() | content.AudioContent():
            return _summarize(block.type, block.mime_type, block.data, output)
        case content.ResourceLink():
            return f"[{block.name}: {block.uri}]"
        case content.EmbeddedResource():
            return _resource_text(block.resource, output)
        case content.OtherContent():
            return f"[{block.type}: use --json to see it]"


def _resource_text(contents: "ResourceContents", output: Path | None) -> str:
    if contents.blob is None:
        return contents.text or ""
    mime_type = contents.mime_type or "application/octet-stream"
    return _summarize("blob", mime_type, contents.blob, output)


def _to_wire(block: "Content") -> Any:
    """Return a block in wire form, even if its type is unknown."""
    from ..protocol.content import OtherContent

    return block.value if isinstance(block, OtherContent) else block


def _summarize(kind: str, mime_type: str, encoded: str, output: Path | None) -> str:
    try:
        data = binascii.a2b_base64(encoded)
    except ValueError:
        return f"[{mime_type}, invalid base64]"
    saved = f", saved as {_save(kind, mime_type, data, output)}" if output is not None else ""
    return f"[{mime_type}, {format_size(len(data))}{saved}]"


def _save(kind: str, mime_type: str, data: bytes, folder: Path) -> Path:
    from mimetypes import guess_extension

    extension = guess_extension(mime_type) or ".bin"
    paths = (folder / f"{kind}-{number}{extension}" for number in count(1))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = next(path for path in paths if not path.exists())
        with path.open("xb") as file:  # never overwrite a file
            file.write(data)
    except OSError as error:
        raise DovetailError(f"Cannot save to {folder}: {error.strerror}") from None
    return path
