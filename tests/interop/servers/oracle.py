"""An oracle: asks the user and the model as FastMCP 3 does, and tells answers apart by their
class."""

from dataclasses import dataclass
from typing import Literal

from fastmcp import Context, FastMCP
from fastmcp.server.elicitation import AcceptedElicitation

mcp = FastMCP(name="oracle")


@dataclass
class Question:
    name: str


@mcp.tool
async def who(ctx: Context) -> str:
    result = await ctx.elicit("Who asks?", response_type=Question)
    if isinstance(result, AcceptedElicitation):
        return f"{result.data.name} asks"
    return "Nobody asks"


@mcp.tool
async def ponder(question: str, ctx: Context) -> str:
    """Let the model ponder."""
    said = await ctx.sample(f"Ponder: {question}", system_prompt="Be brief", max_tokens=50)
    return said.text or ""


@mcp.tool
async def whence(ctx: Context) -> list[str]:
    return [str(root.uri) for root in await ctx.list_roots()]


@mcp.tool
async def omens(kind: Literal["good", "bad"], ctx: Context) -> dict[str, str]:
    await ctx.debug("thinking")
    await ctx.warning("a cloud", logger_name="sky")
    await ctx.report_progress(progress=1, total=1)
    return {"kind": kind, "omen": "a cloud"}


@mcp.prompt
def ask(question: str, times: int = 1) -> str:
    """Ask something."""
    return f"Asked {times + 1} times: {question}"


if __name__ == "__main__":
    mcp.run(show_banner=False)
