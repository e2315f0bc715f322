"""The server of which the tests run several replicas (`python -m tests.replicas.program PORT
[SLOTS]`) and workers (`dovetail worker tests/replicas/program.py`).

$LIMITS has its limits and $OPTIONS the options of `run`. If $USERS has users, callers have to log
in at the server (`Provider`). $REVISIONS has the revisions that it serves. Whatever must happen
once is a line of a file in $DEEDS, and a tool waits for a file that it is given (a gate).
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dovetail import Context, Limits, Rate, Rates, Server

RATE_LIMIT = 5
GENEROUS_LIMIT = 40
LIMITED = [f"limited_{number}" for number in range(8)]
"""Tools that a caller may use five times a day, each for one test."""


def make_guard() -> Any:
    if "USERS" not in os.environ:
        return None
    from dovetail.auth import Provider

    return Provider(users=msgspec.json.decode(os.environ["USERS"]))


limits = msgspec.json.decode(os.environ.get("LIMITS", "{}"), type=Limits)
server = Server(
    os.environ.get("NAME", "replicas"),
    limits=limits,
    auth=make_guard(),
    revisions=os.environ["REVISIONS"].split() if "REVISIONS" in os.environ else None,
    rates=Rates(
        calls=None,
        tasks=None,  # otherwise a fast machine reaches it, and the client waits
        tools={
            **{name: Rate(RATE_LIMIT, per=86400) for name in LIMITED},
            "generous": Rate(GENEROUS_LIMIT, per=86400),
            "metered": Rate(15),
        },
    ),
)


class Size(Struct):
    size: str


def deed(tag: str, what: str) -> None:
    with (Path(os.environ["DEEDS"]) / tag).open("a", encoding="utf-8") as deeds:
        deeds.write(f"{what}\n")


async def file(name: str) -> None:
    while not Path(name).exists():
        await asyncio.sleep(0.01)


# calls


@server.tool
async def pid() -> int:
    return os.getpid()


@server.tool
async def whoami(ctx: Context) -> str:
    return ctx.user.id if ctx.user else "nobody"


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


async def limited() -> str:
    return "passed"


for name in [*LIMITED, "generous", "metered"]:
    server.add_tool(limited, name=name)


@server.tool
async def talk(gate: str, ctx: Context, before: int = 2, after: int = 2) -> str:
    """Send log messages, wait for the gate, and send more."""
    for number in range(before):
        ctx.info(f"before {number}")
    await file(gate)
    for number in range(after):
        ctx.info(f"after {number}")
    return "talked"


@server.tool
async def wait(tag: str, ctx: Context) -> str:
    """Wait until cancelled."""
    deed(tag, f"begun by {os.getpid()}")
    ctx.info("begun")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        deed(tag, "cancelled")
        raise
    return "not cancelled"


@server.tool
async def levels(ctx: Context) -> str:
    for level in ("debug", "error"):
        await ctx.log(level, level)  # type: ignore[arg-type]
    return "logged"


@server.tool
async def touch(uri: str) -> None:
    server.notify_resource_updated(uri)


@server.tool
async def grow(name: str) -> None:
    server.add_tool(pid, name=name)


@server.resource("stock://{item}")
def stock(item: str) -> str:
    return f"3 {item}"


# questions


@server.tool
async def ask(tag: str, ctx: Context) -> str:
    """Ask for a size, then ask a model."""
    await ctx.once("pay", lambda: deed(tag, "paid"))
    size = await ctx.elicit("Which size?", Size)
    said = await ctx.sample("Praise it")
    await ctx.once("send", lambda: deed(tag, "sent"))
    return f"{size.data and size.data.size}: {said.text}"


# tasks


@server.tool(task="required", resumable=True)
async def order(tag: str, gate: str, ctx: Context) -> str:
    """Pay, ask, wait, send, ask again."""
    deed(tag, f"begun by {os.getpid()}")
    await ctx.once("pay", lambda: deed(tag, "paid"))
    first = await ctx.elicit("Which size?", Size)
    await file(gate)
    await ctx.once("send", lambda: deed(tag, "sent"))
    second = await ctx.elicit("Did it fit?", Size)
    return f"{first.data and first.data.size} {second.data and second.data.size}"


@server.tool(task="required", resumable=True)
async def steps(tag: str, gate: str, ctx: Context) -> str:
    """Do something once before the gate, and once after it."""
    deed(tag, f"begun by {os.getpid()}")
    await ctx.once("before", lambda: deed(tag, "before"))
    deed(tag, f"saved by {os.getpid()}")
    try:
        await file(gate)
    except asyncio.CancelledError:
        deed(tag, f"cancelled by {os.getpid()}")
        raise
    await ctx.once("after", lambda: deed(tag, "after"))
    return "done"


@server.tool(task="required")
async def fragile(tag: str, gate: str) -> str:
    """Wait. It cannot be resumed."""
    deed(tag, f"begun by {os.getpid()}")
    try:
        await file(gate)
    except asyncio.CancelledError:
        deed(tag, f"cancelled by {os.getpid()}")
        raise
    return "done"


@server.tool(task="required", resumable=True)
async def mark(tag: str, number: int, ctx: Context) -> int:
    """Do something once."""
    await ctx.once("mark", lambda: deed(tag, str(number)))
    return number


@server.tool(task="optional")
async def quick(number: int) -> int:
    return number


if __name__ == "__main__":
    options = msgspec.json.decode(os.environ.get("OPTIONS", "{}"))
    if len(sys.argv) > 2:
        server.task_slots = int(sys.argv[2])
    server.run("http", port=int(sys.argv[1]), quiet=True, **options)
