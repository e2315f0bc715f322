"""A server over HTTP that tells about itself: how much memory it takes, what is alive in it, who
was cancelled.

`python -m tests.faults.http_program PORT` serves with the limits in $LIMITS and the options in
$OPTIONS; `app` is the same server for `uvicorn --workers`. With $FROZEN the clock of the process
stands still until the tool `advance` moves it, so that sessions age when a test wants them to. The
lifespan notes its end in the file $LEFT.
"""

import asyncio
import ctypes
import gc
import os
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec

from dovetail import Context, Limits, Server
from dovetail.ports import Call
from dovetail.transports.http.server import sessions
from dovetail.transports.http.server.event_store import EventStream
from dovetail.transports.http.server.post_response import PostResponse
from dovetail.transports.http.server.sessions import HttpSession, SessionTable

BEGAN, FINISHED, CANCELLED = Counter[str](), Counter[str](), Counter[str]()
NOW = [time.time()]
if "FROZEN" in os.environ:
    time.time = lambda: NOW[0]
    sessions.time = SimpleNamespace(time=time.time, monotonic=time.time)  # type: ignore[assignment]


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    yield
    if "LEFT" in os.environ:
        with Path(os.environ["LEFT"]).open("a", encoding="utf-8") as left:
            left.write(f"{os.getpid()}\n")


limits = msgspec.json.decode(os.environ.get("LIMITS", "{}"), type=Limits)
server = Server("faults", lifespan=lifespan, limits=limits)


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def pid() -> int:
    return os.getpid()


@server.tool
async def advance(seconds: float) -> None:
    NOW[0] += seconds


@server.tool
async def figures() -> dict[str, int]:
    """Tasks, open files, resident memory, memory that Python has allocated (with
    $PYTHONTRACEMALLOC), and how many there are of the package's own objects."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free counts as free
    found = gc.get_objects()
    alive = Counter(map(type, found))
    return {
        "tasks": len(asyncio.all_tasks()),
        "files": len(os.listdir("/proc/self/fd")),
        "memory": int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        * os.sysconf("SC_PAGE_SIZE"),
        "allocated": tracemalloc.get_traced_memory()[0],
        "tombstones": sum(len(one._tombstones) for one in found if type(one) is SessionTable),
        **{kind.__name__: alive[kind] for kind in (HttpSession, EventStream, PostResponse, Call)},
    }


@server.tool
async def outcomes(tag: str) -> list[int]:
    """How many calls with this tag began, finished, and were cancelled."""
    return [BEGAN[tag], FINISHED[tag], CANCELLED[tag]]


@asynccontextmanager
async def noted(tag: str) -> AsyncIterator[None]:
    BEGAN[tag] += 1
    try:
        yield
    except asyncio.CancelledError:
        CANCELLED[tag] += 1
        raise
    FINISHED[tag] += 1


@server.tool
async def wait(tag: str, ctx: Context, seconds: float = 3600.0) -> str:
    """Say that it began, then be there for a long time."""
    async with noted(tag):
        ctx.info(f"{tag} begins")
        await asyncio.sleep(seconds)
    return tag


@server.tool
async def quiet(tag: str, seconds: float = 3600.0) -> str:
    """Say nothing for a long time."""
    async with noted(tag):
        await asyncio.sleep(seconds)
    return tag


@server.tool
async def speak(tag: str, times: int, ctx: Context, size: int = 0) -> str:
    """Say something several times, and wait whenever the client lags behind."""
    async with noted(tag):
        for number in range(times):
            await ctx.info(f"{tag} {number}" + "." * size)
            await asyncio.sleep(0)
    return tag


@server.tool
async def flood(tag: str, times: int, size: int, ctx: Context) -> str:
    """Say too much, and wait for nobody."""
    async with noted(tag):
        for number in range(times):
            ctx.info(f"{tag} {number}" + "." * size)
            await asyncio.sleep(0)
    return tag


@server.resource("test://{+path}")
@server.resource("file:///{+path}")
@server.resource("doc://{+path}")
def page(path: str) -> str:
    return path


@server.tool
async def touch(uri: str) -> None:
    server.notify_resource_updated(uri)


@server.tool
async def grow(name: str) -> None:
    server.add_tool(pid, name=name)


@server.tool
async def level(ctx: Context) -> str:
    """Which messages this client wants to see."""
    for name in ("debug", "error"):
        await ctx.log(name, name)  # type: ignore[arg-type]
    return "said"


app = server.asgi()

if __name__ == "__main__":
    options = msgspec.json.decode(os.environ.get("OPTIONS", "{}"))
    server.run("http", port=int(sys.argv[1]), quiet=True, **options)
