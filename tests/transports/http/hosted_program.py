"""A server for others to run: as `app` by any ASGI server, or by itself as `hosted_program.py PORT [OPTIONS]`."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dovetail import Context, Server


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, asyncio.Event]]:
    print("entered", flush=True)
    yield {"cancelled": asyncio.Event()}
    print("left", flush=True)


server = Server("hosted", version="1", lifespan=lifespan)


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def hang(ctx: Context) -> str:
    """Say something, and never end."""
    ctx.info("begun")
    try:
        await asyncio.Event().wait()
    finally:
        ctx.state["cancelled"].set()
    return "never"


@server.tool
async def cancelled(ctx: Context) -> str:
    """Wait until the tool above was cancelled."""
    await ctx.state["cancelled"].wait()
    return "yes"


@server.tool
async def grow() -> str:
    """Change the list of tools."""
    server.add_tool(lambda: 1, name="new")
    return "grown"


app = server.asgi("/mcp")

if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), **json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}"))
