"""A server for others to run: as `app` by any ASGI server, or by itself as `hosted_program.py PORT
[OPTIONS]`."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dovetail import Context, Limits, Server


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, asyncio.Event]]:
    print("entered", flush=True)
    state = {"cancelled": asyncio.Event(), "left": asyncio.Event()}
    state["left"].set()
    yield state
    await state["left"].wait()
    print("left", flush=True)


server = Server(
    "hosted",
    version="1",
    lifespan=lifespan,
    limits=Limits(shutdown=float(os.environ.get("HOSTED_SHUTDOWN", "2"))),
)


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
async def stubborn(ctx: Context) -> str:
    """Say something, and take no notice of being cancelled."""
    ctx.info("begun")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


@server.tool
async def block(ctx: Context) -> str:
    """Say something, and let nobody else do anything."""
    await ctx.info("begun")
    await asyncio.sleep(0.1)
    time.sleep(3600)
    return "never"


@server.tool
async def stay(ctx: Context) -> str:
    """Keep the lifespan from its end."""
    ctx.state["left"].clear()
    return "stays"


@server.tool
async def grow() -> str:
    """Change the list of tools."""
    server.add_tool(lambda: 1, name="new")
    return "grown"


app = server.asgi("/mcp")

if __name__ == "__main__":
    server.run(
        "http", port=int(sys.argv[1]), **json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}")
    )
