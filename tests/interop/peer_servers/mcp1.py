"""A server on the official Python SDK, 1.x, that offers what `tests/interop/server.py` does."""

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.prompts.base import AssistantMessage, UserMessage
from mcp.types import Completion, SamplingMessage, TextContent
from pydantic import BaseModel

transport, port = (sys.argv[1:] + ["stdio", "0"])[:2]
server = FastMCP("interop", instructions="Try it all.", port=int(port), log_level="ERROR")


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
    raise ValueError("as it is")


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


@server.tool()
async def ask_name(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}".strip()


@server.tool()
async def ask_model(ctx: Context) -> str:
    said = SamplingMessage(role="user", content=TextContent(type="text", text="Say something"))
    return (await ctx.session.create_message([said], max_tokens=20)).content.text


@server.tool()
async def ask_roots(ctx: Context) -> str:
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    server.add_tool(add, name=name)
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


server.run({"http": "streamable-http"}.get(transport, transport))
