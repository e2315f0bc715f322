"""The server whose tasks are measured, on Dovetail: `tasks_ours.py PORT`, with its backend in
DOVETAIL_BACKEND, its limits in LIMITS and its rate limit in RATE."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from dovetail import Context, Limits, Rate, Rates, Server

RATE = Rates(calls=Rate(float(os.environ["RATE"]))) if "RATE" in os.environ else None
server = Server("bench", limits=Limits(**json.loads(os.environ.get("LIMITS", "{}"))), rates=RATE)


def note_run(file: Path) -> None:
    with file.open("a", encoding="utf-8") as runs:
        runs.write(f"{os.getpid()}\n")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(task="optional", resumable=True)
async def work(number: int) -> int:
    """Return a number."""
    return number


@server.tool(task="optional", resumable=True)
async def hold(file: str) -> str:
    """Write down who runs this, and run for a long time."""
    note_run(Path(file))
    await asyncio.sleep(3600)
    return "done"


@server.tool(task="optional", resumable=True)
async def ask(ctx: Context) -> float:
    """Return when the answer arrived."""
    await ctx.elicit("Go on?", bool)
    return time.time()


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), quiet=True)
