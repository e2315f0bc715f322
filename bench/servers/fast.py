"""The same server on FastMCP."""

import sys

from fastmcp import Context, FastMCP
from fastmcp.tools import Tool

transport, port, tools, *more = sys.argv[1:]
server = FastMCP("bench")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def echo(text: str) -> str:
    """Say it again."""
    return text


async def count(times: int, ctx: Context) -> int:
    """Report progress so many times."""
    for done in range(times):
        await ctx.report_progress(done, times)
    return times


tool = Tool.from_function(add)
server.add_tool(tool)
for number in range(1, int(tools)):
    server.add_tool(
        tool.model_copy(update={"name": f"add_{number}"})
    )  # making each from the function takes 5 ms
if more:
    server.tool(echo)
    server.tool(count)

if __name__ == "__main__":
    if transport == "stdio":
        server.run(transport="stdio", show_banner=False, log_level="ERROR")
    else:
        server.run(
            transport="http",
            port=int(port),
            show_banner=False,
            log_level="ERROR",
            json_response=not more,
        )
