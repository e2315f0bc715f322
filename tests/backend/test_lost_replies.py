"""A reply of Redis to the start of a task is lost. Nobody knows whether Redis has the task, and the
client may repeat its call. Still, the task runs at most once. Or the reply to a process that takes
a task is lost. Still, the task runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dovetail import Client, Server
from dovetail.backend import Backend
from dovetail.backend.redis.scripts import Script
from dovetail.backend.redis.task_scripts import ADD_TASK, TAKE_READ_TASKS
from dovetail.errors import BackendAway, Overloaded
from dovetail.limits import Limits
from tests.behaviour.web import on_a_port
from tests.system import needs_redis

from .conftest import KEY, PATIENT
from .redis_server import RedisServer
from .test_task_contract import record

pytestmark = needs_redis


class LosingProxy:
    """A proxy in front of Redis that cuts a connection instead of passing on the reply to a script,
    by default that to the start of a task."""

    def __init__(self, port: int, script: Script = ADD_TASK) -> None:
        self._port, self._script = port, script
        self.losses = 0
        """How many replies to lose."""
        self.lost = 0
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, forward = await asyncio.open_connection("127.0.0.1", self._port)
        is_cut = False
        self.connections += 1

        async def pass_up() -> None:
            nonlocal is_cut
            while chunk := await reader.read(65536):
                runs_script = self._script.digest.encode() in chunk
                if runs_script and self.lost < self.losses:
                    self.lost, is_cut = self.lost + 1, True
                forward.write(chunk)

        async def pass_down() -> None:
            while (chunk := await upstream.read(65536)) and not is_cut:
                writer.write(chunk)

        ways = [asyncio.create_task(pass_up()), asyncio.create_task(pass_down())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, forward):
            end.transport.abort()
        self.connections -= 1


@asynccontextmanager
async def shop(redis: RedisServer, runs: list[str]) -> AsyncIterator[tuple[LosingProxy, str]]:
    """A server that runs no tasks, whose replies are lost, and one that runs its tasks."""
    redis.run("SCRIPT", "LOAD", ADD_TASK.source)
    proxy = LosingProxy(redis.port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    urls = [f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0", redis.url]
    async with AsyncExitStack() as stack:
        places = []
        for url, slots in zip(urls, (0, 4), strict=True):
            limits = Limits(backend_timeout=5)
            backend = Backend(url, name="shop", keys=[KEY], limits=limits)
            server = Server("shop", backend=backend, limits=limits)
            server.task_slots = slots

            @server.tool(task="required")
            async def buy(what: str) -> str:
                runs.append(what)
                return "bought"

            app = server.asgi("/mcp", keys=[KEY])
            places.append(await stack.enter_async_context(on_a_port(app)))
        yield proxy, f"http://{places[0]}/mcp"
    listener.close()


@pytest.mark.parametrize("form", ["2025-11-25", "2026-07-28"])
async def test_a_task_whose_start_got_no_reply_runs_once(own_redis: RedisServer, form: str) -> None:
    runs: list[str] = []
    async with shop(own_redis, runs) as (proxy, url), Client(url, revision=form) as client:
        proxy.losses = 1
        handle = await client.start_tool("buy", {"what": "apples"})
        assert (await handle.result()).text == "bought"
    assert proxy.lost == 1
    assert runs == ["apples"]


async def test_a_call_is_not_repeated_if_nobody_knows_whether_its_task_runs(
    own_redis: RedisServer,
) -> None:
    runs: list[str] = []
    async with shop(own_redis, runs) as (proxy, url), Client(url) as client:
        proxy.losses = 2
        with pytest.raises(Overloaded, match="does not know whether") as caught:
            await client.start_tool("buy", {"what": "apples"})
        assert caught.value.retry_after is None
        await asyncio.sleep(0.5)
    assert proxy.lost == 2
    assert len(runs) <= 1


async def test_a_task_whose_taking_got_no_reply_is_taken_by_the_same_process(
    own_redis: RedisServer,
) -> None:
    own_redis.run("SCRIPT", "LOAD", TAKE_READ_TASKS.source)
    proxy = LosingProxy(own_redis.port, TAKE_READ_TASKS)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0"
    async with listener:
        backend = Backend(url, keys=[KEY], limits=PATIENT)
        store = backend.tasks()
        await store.add(record("one"), claim=False)
        proxy.losses = 1
        with pytest.raises(BackendAway):
            await store.pull(1)
        [(one, lease)] = await store.pull(1)
        assert one.id == "one" and await store.put(one, lease)
        await backend.close()
        while proxy.connections:
            await asyncio.sleep(0.01)
    assert proxy.lost == 1
