"""A shop whose processes share their state in Redis (see docs/guides/scale-out.md)."""

import asyncio
import os
import socket

from dovetail import Context, Server

server = Server("shop", version="1.0.0")


@server.tool
async def stock(item: str) -> int:
    """Return how many are left."""
    return 7


@server.tool
async def replica() -> str:
    """Return the machine and the process that answer this call."""
    return f"{socket.gethostname()}:{os.getpid()}"


@server.tool(task="optional", resumable=True)
async def restock(item: str, boxes: int, ctx: Context) -> str:
    """Order boxes, one after the other. This takes half a second for each box."""
    for number in range(boxes):
        ctx.progress(number, boxes, f"box {number + 1} of {boxes}")
        await asyncio.sleep(0.5)
    return f"ordered {boxes} boxes of {item} at {socket.gethostname()}:{os.getpid()}"
