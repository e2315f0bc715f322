"""What users of `dovetail.compat` write and type checkers accept. This file is checked, not run."""

from typing import Any, assert_type

from dovetail.compat import (
    AcceptedElicitation,
    Context,
    FastMCP,
    Image,
    MCPServer,
    ServerSession,
    TextContent,
    ToolError,
)

mcp = FastMCP("notes", instructions="Keeps notes.", host="127.0.0.1", log_level="INFO")
new = MCPServer("notes", "Notes", version="1")


@mcp.tool()
async def add(name: str, ctx: Context) -> int:
    await ctx.info("x", extra={"a": 1})
    await ctx.report_progress(1, 2)
    if not name:
        raise ToolError("x")
    return 1


@mcp.tool
def bare(name: str) -> str:
    return name


@new.tool("named", description="x", tags={"a"}, structured_output=False)
def named(name: str) -> str:
    return name


@mcp.resource("notes://{name}", tags={"a"})
def note(name: str) -> str:
    return name


@mcp.prompt("ask", title="Ask")
def ask(name: str) -> str:
    return name


@mcp.completion()
async def complete(reference: Any, argument: Any, context: Any) -> list[str]:
    return []


async def use(ctx: Context[ServerSession, None]) -> str:
    answer = await ctx.elicit("Who?", schema=str)
    if isinstance(answer, AcceptedElicitation):
        return str(answer.data)
    assert_type(await add("a", ctx), int)
    assert_type(bare("a"), str)
    assert_type(named("a"), str)
    assert_type(note("a"), str)
    assert_type(ask("a"), str)
    return str(TextContent(type="text", text="x")) + str(Image(path="a.png"))


if __name__ == "__main__":
    mcp.run(transport="stdio")
