"""A server on stdio is a process like any other: it joins the bus of its backend."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.extensions.tasks import signals
from dovetail.python_target.load import load_server
from dovetail.python_target.parse import parse_python_target
from tests.cli.conftest import environment
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
PROGRAM = """
from msgspec import Struct

from dovetail import Context, Server
from dovetail.extensions.tasks import signals

signals.POLL_SECONDS = signals.LOST_SIGNAL_SECONDS = 60.0
server = Server(NAME)


class Sure(Struct):
    sure: bool


@server.resource("stock://apples")
def apples() -> str:
    return "7"


@server.tool
def count_apples() -> None:
    server.notify_resource_updated("stock://apples")


@server.tool(task="optional", resumable=True)
async def ask(ctx: Context) -> str:
    return str((await ctx.elicit("Sure?", Sure, key="sure")).action)


if __name__ == "__main__":
    server.run()
"""
FORMS = ["2025-11-25", "2026-07-28"]


@asynccontextmanager
async def replicas(
    make_backend: MakeBackend, redis: RedisServer, folder: Path, form: str
) -> AsyncIterator[tuple[Client, Client, Server]]:
    """A client of a process on stdio, a client of a server on HTTP, and this server."""
    file = folder / "server.py"
    name = make_backend().prefix.partition(":")[2].partition("}")[0].replace("%20", " ")
    file.write_text(PROGRAM.replace("NAME", repr(name)))
    target = parse_python_target(str(file))
    assert target is not None
    server = load_server(target)
    assert isinstance(server, Server)
    server.use_backend(make_backend())
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    options: dict[str, Any] = {"port": free_port(), "keys": [KEY], "ready": started.set_result}
    running = asyncio.create_task(server.run_async("http", **options))
    variables = environment(DOVETAIL_BACKEND=redis.url, DOVETAIL_KEYS=KEY)
    try:
        url = await started
        both: dict[str, Any] = {"revision": form, "on_elicit": lambda request: None}
        command = [sys.executable, str(file)]
        async with Client(command, env=variables, **both) as stdio, Client(url, **both) as http:
            yield stdio, http, server
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize("form", FORMS)
async def test_what_happens_in_another_process_reaches_a_client_on_stdio_at_once(
    make_backend: MakeBackend,
    shared_redis: RedisServer,
    tmp_path: Path,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("POLL_SECONDS", "LOST_SIGNAL_SECONDS"):
        monkeypatch.setattr(signals, name, 60.0)
    members = f"{make_backend().prefix}members"
    async with asyncio.timeout(50), replicas(make_backend, shared_redis, tmp_path, form) as all:
        stdio, http, server = all
        assert shared_redis.run("ZCARD", members) == 2
        for here, there in ((stdio, http), (http, stdio)):
            task = await here.start_tool("ask", manual=True)
            assert (await there.task(task.id).result()).text == "decline"
        updates: asyncio.Queue[str] = asyncio.Queue()
        await stdio.subscribe("stock://apples", updates.put_nowait)
        server.notify_resource_updated("stock://apples")
        assert await updates.get() == "stock://apples"
        await http.subscribe("stock://apples", updates.put_nowait)
        await stdio.call_tool("count_apples")
        assert [await updates.get(), await updates.get()] == ["stock://apples"] * 2
        await stdio.close()
        while shared_redis.run("ZCARD", members) != 1:
            await asyncio.sleep(0.01)
