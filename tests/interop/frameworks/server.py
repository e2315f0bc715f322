"""The server whose tools the frameworks load: `server.py` on stdio, or `server.py PORT` over HTTP,
with HTTP+SSE (2024-11-05) at `/sse`."""

import sys

from dovetail import Context, Server, ToolError

server = Server("probe", version="1.0.0")


@server.tool
async def add(a: int, b: int, ctx: Context) -> int:
    """Add two numbers."""
    ctx.progress(1, 1)
    return a + b


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


@server.resource("note://one")
def note() -> str:
    return "Buy milk"


@server.prompt
def greet(name: str) -> str:
    return f"Greet {name}."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("http", port=int(sys.argv[1]), sse="/sse")
    else:
        server.run()
