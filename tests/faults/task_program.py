"""A server with tasks in a file, to be killed: `python -m tests.faults.task_program [PORT]`,
without a port on stdio. The file is $TASKS, and each thing that must happen once is a line of
$DEEDS. A tool waits until there is a file of the name that it is given. $LIMITS and $OPTIONS are as
in `http_program.py`; $SWEEP is how often it looks after what others left."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from dovetail import Context, Limits, Server
from dovetail.extensions.tasks import scheduler as scheduler

limits = msgspec.json.decode(os.environ.get("LIMITS", "{}"))
scheduler.SWEEP_SECONDS = float(os.environ.get("SWEEP", scheduler.SWEEP_SECONDS))
server = Server("tasks", tasks=os.environ["TASKS"], limits=Limits(**limits))


class Size(Struct):
    size: str


def deed(what: str) -> None:
    with Path(os.environ["DEEDS"]).open("a", encoding="utf-8") as deeds:
        deeds.write(f"{what}\n")


async def file(name: str) -> None:
    while not Path(name).exists():
        await asyncio.sleep(0.01)


@server.tool(task="required", resumable=True)
async def order(gate: str, ctx: Context) -> str:
    """Pay, ask, wait, send, ask again."""
    await ctx.once("pay", lambda: deed("paid"))
    first = await ctx.elicit("Which size?", Size)
    deed("asked")
    await file(gate)
    await ctx.once("send", lambda: deed("sent"))
    second = await ctx.elicit("Did it fit?", Size)
    return f"{first.data and first.data.size} {second.data and second.data.size}"


@server.tool(task="required", resumable=True)
async def detached(gate: str, ctx: Context) -> str:
    """Ask before it lets the caller go."""
    await ctx.once("pay", lambda: deed("paid"))
    first = await ctx.elicit("Which size?", Size)
    await ctx.detach()
    deed("asked")
    await file(gate)
    return f"{first.data and first.data.size}"


@server.tool(task="required")
async def fragile(gate: str) -> str:
    """Wait; there is no second time."""
    deed("begun")
    await file(gate)
    return "done"


@server.tool(task="required")
async def stubborn(gate: str) -> str:
    """Wait, and do not let anybody stop it."""
    deed("begun")
    try:
        await file(gate)
    except asyncio.CancelledError:
        await file(gate)
    deed("done")
    return "done"


@server.tool(task="required", resumable=True)
async def poison(gate: str, steps: int, ctx: Context) -> None:
    """Take the process down: after each step, and then again and again."""
    await file(gate)
    deed("begun")
    for step in range(steps):
        fresh = False

        def go() -> None:
            nonlocal fresh
            fresh = True

        await ctx.once(f"step {step}", go)
        if fresh:
            break
    os.kill(os.getpid(), signal.SIGKILL)


@server.tool
async def pid() -> int:
    """Which process this is."""
    return os.getpid()


if __name__ == "__main__":
    options = msgspec.json.decode(os.environ.get("OPTIONS", "{}"))
    if len(sys.argv) > 1:
        server.run("http", port=int(sys.argv[1]), **options)
    else:
        server.run()
