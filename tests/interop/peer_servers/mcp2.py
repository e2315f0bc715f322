"""A server on the official Python SDK, 2.x, that offers what `tests/interop/server.py` does.

What it asks it asks by `Resolve`, the one way of that SDK that works in both eras.
"""

import asyncio
import sys
from typing import Annotated

from mcp.server.mcpserver import (
    AssistantMessage,
    Context,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
    UserMessage,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import Completion, CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

transport, port = (sys.argv[1:] + ["stdio", "0"])[:2]
server = MCPServer("interop", instructions="Try it all.", log_level="ERROR")


class Point(BaseModel):
    x: int
    y: int


class Name(BaseModel):
    name: str


@server.tool(title="Add")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
def point(x: int, y: int) -> Point:
    return Point(x=x, y=y)


@server.tool()
async def fail() -> str:
    raise ToolError("as it is")


@server.tool()
async def steps(count: int, pause: float, ctx: Context) -> str:
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
        await asyncio.sleep(pause)
    return "done"


@server.tool()
async def talk(ctx: Context) -> str:
    await ctx.info("one")
    await ctx.warning("two")
    return "said"


def the_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


def a_saying() -> Sample:
    return Sample(
        [SamplingMessage(role="user", content=TextContent(type="text", text="Say something"))],
        max_tokens=20,
    )


def the_roots() -> ListRoots:
    return ListRoots()


@server.tool()
async def ask_name(answer: Annotated[ElicitationResult[Name], Resolve(the_name)]) -> str:
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}".strip()


@server.tool()
async def ask_model(said: Annotated[CreateMessageResult, Resolve(a_saying)]) -> str:
    return said.content.text


@server.tool()
async def ask_roots(found: Annotated[ListRootsResult, Resolve(the_roots)]) -> str:
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    server.add_tool(add, name=name)
    await ctx.notify_tools_changed()
    if ctx.protocol_version < "2026":
        await ctx.session.send_tool_list_changed()
    return name


@server.resource("doc://text", mime_type="text/plain")
def text() -> str:
    return "hello"


@server.resource("doc://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    return b"\x00\xff"


@server.resource("item://{number}/name", mime_type="text/plain")
def item(number: int) -> str:
    return f"item {number}"


@server.prompt()
def greet(name: str) -> str:
    return f"Hello {name}!"


@server.prompt()
def talk_about(topic: str) -> list:
    return [UserMessage(f"What of {topic}?"), AssistantMessage("A lot.")]


@server.completion()
async def complete(ref, argument, context):
    return Completion(
        values=[name for name in ("Ada", "Alan", "Barbara") if name.startswith(argument.value)]
    )


if transport == "stdio":
    server.run()
else:
    server.run("streamable-http" if transport == "http" else "sse", port=int(port))
