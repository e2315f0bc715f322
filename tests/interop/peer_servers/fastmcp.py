"""A server on FastMCP that offers what `tests/interop/server.py` does: one file for releases 3 and
4.

Release 4 has no `ctx.sample` and no `ctx.list_roots` any more, nor `ctx.elicit` in the stateless
era, so these three ask by hand where it is to be done so; release 3 has no completion.
"""

import sys

sys.path.append(
    sys.path.pop(0)
)  # this folder last: there is a library of this name, which is meant
import asyncio

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from pydantic import BaseModel

try:
    import mcp_types
    from mcp_types import ToolListChangedNotification
except ImportError:
    from mcp.types import ToolListChangedNotification

    mcp_types = None

transport, port = (sys.argv[1:] + ["stdio", "0"])[:2]
server = FastMCP("interop", instructions="Try it all.")


class Point(BaseModel):
    x: int
    y: int


class Name(BaseModel):
    name: str


@server.tool(title="Add")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
def point(x: int, y: int) -> Point:
    return Point(x=x, y=y)


@server.tool
async def fail() -> str:
    raise ToolError("as it is")


@server.tool
async def steps(count: int, pause: float, ctx: Context) -> str:
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
        await asyncio.sleep(pause)
    return "done"


@server.tool
async def talk(ctx: Context) -> str:
    await ctx.info("one")
    await ctx.warning("two")
    return "said"


@server.tool
async def grow(name: str, ctx: Context) -> str:
    server.tool(add, name=name)
    await ctx.send_notification(ToolListChangedNotification())
    return name


if mcp_types is None:

    @server.tool
    async def ask_name(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Name)
        return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}".strip()

    @server.tool
    async def ask_model(ctx: Context) -> str:
        return (await ctx.sample("Say something", max_tokens=20)).text

    @server.tool
    async def ask_roots(ctx: Context) -> str:
        return " ".join(str(root.uri) for root in await ctx.list_roots())

else:
    from mcp_types import InputRequiredResult

    def ask(ctx, key, request):
        """The answer to a question, or None and what to return for it to be asked."""
        answers = ctx.input_responses or {}
        return (
            (answers[key], None)
            if key in answers
            else (None, InputRequiredResult(input_requests={key: request}))
        )

    @server.tool
    async def ask_name(ctx: Context) -> str | InputRequiredResult:
        if ctx.request_context.protocol_version < "2026":
            answer = await ctx.elicit("Who are you?", Name)
            return f"{answer.action} {answer.data.name}"
        params = mcp_types.ElicitRequestFormParams(
            message="Who are you?", requested_schema=Name.model_json_schema()
        )
        answer, pending = ask(ctx, "name", mcp_types.ElicitRequest(params=params))
        return pending or f"{answer.action} {answer.content['name']}"

    @server.tool
    async def ask_model(ctx: Context) -> str | InputRequiredResult:
        said = mcp_types.SamplingMessage(
            role="user", content=mcp_types.TextContent(type="text", text="Say something")
        )
        if ctx.request_context.protocol_version < "2026":
            return (await ctx.session.create_message([said], max_tokens=20)).content.text
        params = mcp_types.CreateMessageRequestParams(messages=[said], max_tokens=20)
        answer, pending = ask(ctx, "model", mcp_types.CreateMessageRequest(params=params))
        return pending or answer.content.text

    @server.tool
    async def ask_roots(ctx: Context) -> str | InputRequiredResult:
        if ctx.request_context.protocol_version < "2026":
            found, pending = await ctx.session.list_roots(), None
        else:
            found, pending = ask(ctx, "roots", mcp_types.ListRootsRequest())
        return pending or " ".join(str(root.uri) for root in found.roots)

    @server.completion
    async def complete(ref, argument, context):
        return [name for name in ("Ada", "Alan", "Barbara") if name.startswith(argument.value)]


@server.resource("doc://text", mime_type="text/plain")
def text() -> str:
    return "hello"


@server.resource("doc://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    return b"\x00\xff"


@server.resource("item://{number}/name", mime_type="text/plain")
def item(number: int) -> str:
    return f"item {number}"


@server.prompt
def greet(name: str) -> str:
    return f"Hello {name}!"


@server.prompt
def talk_about(topic: str) -> list[Message]:
    return [Message(f"What of {topic}?"), Message("A lot.", role="assistant")]


if transport == "stdio":
    server.run(show_banner=False)
else:
    server.run(transport, port=int(port), show_banner=False)
