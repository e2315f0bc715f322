"""A counter over HTTP as FastMCP runs it, at a path of its own."""

import os

from fastmcp import Context, FastMCP

mcp = FastMCP("counter")


@mcp.tool
async def count(to: int, ctx: Context) -> list[int]:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to)
    await ctx.info(f"counted to {to}")
    return list(range(1, to + 1))


@mcp.resource("counter://{start}/next")
def after(start: int) -> str:
    return str(start + 1)


if __name__ == "__main__":
    mcp.run(
        transport="http",
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        path="/mcp",
        show_banner=False,
    )
