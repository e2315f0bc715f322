"""The server that is measured, on Dovetail: `ours.py stdio|http PORT TOOLS`, with `more` for what
is not a plain call."""

import sys

from dovetail import Context, Limits, Server

transport, port, tools, *more = sys.argv[1:]
server = Server(
    "bench", limits=Limits(progress_interval=0)
)  # as the peers do: every report of progress is sent


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def echo(text: str) -> str:
    """Say it again."""
    return text


async def count(times: int, ctx: Context) -> int:
    """Report progress so many times."""
    for done in range(times):
        await ctx.progress(done, times)
    return times


server.tool(add)
for number in range(1, int(tools)):
    server.add_tool(add, name=f"add_{number}")
if more:
    server.tool(echo)
    server.tool(count)

if __name__ == "__main__":
    if transport == "stdio":
        server.run()
    else:
        server.run("http", port=int(port))
