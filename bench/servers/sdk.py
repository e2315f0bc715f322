"""The same server on the official SDK."""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool

transport, port, tools, *more = sys.argv[1:]


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
copies = [
    tool.model_copy(update={"name": f"add_{number}"}) for number in range(1, int(tools))
]  # making each takes 3 ms
server = MCPServer("bench", log_level="ERROR", tools=[tool, *copies])
if more:
    server.add_tool(echo)
    server.add_tool(count)

if __name__ == "__main__":
    if transport == "stdio":
        server.run(transport="stdio")
    else:  # without the limit of 10,000 sessions, which the measure of them would just reach
        server.run(
            transport="streamable-http", port=int(port), json_response=not more, max_sessions=None
        )
