"""What a task saves in Redis arrives in order, even if a save is cancelled, and an answer is
acknowledged only after it is stored."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from dovetail import Client, Context, Server
from dovetail.backend import Backend
from dovetail.backend.redis.task_scripts import PUT_TASK
from dovetail.errors import TimedOut
from dovetail.extensions.tasks.store import TaskRecord
from dovetail.limits import Limits
from tests.system import needs_redis

from .conftest import KEY, PATIENT
from .redis_server import RedisServer
from .test_task_runner import reached, until

pytestmark = needs_redis
LIMITS = Limits(backend_timeout=20, task_lease=600)
"""With a lease so long that no test depends on its renewal."""
PutHandler = Callable[[], Awaitable[bool]]


class Sure(Struct):
    sure: bool


class PutProxy:
    """A proxy in front of Redis. A function decides when a record is passed on, and whether it is;
    if not, the connection is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.on_put: PutHandler | None = None
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, forward = await asyncio.open_connection("127.0.0.1", self._port)
        self.connections += 1

        async def pass_up() -> None:
            while chunk := await reader.read(65536):
                is_put = PUT_TASK.digest.encode() in chunk
                if is_put and self.on_put is not None and not await self.on_put():
                    return
                forward.write(chunk)

        async def pass_down() -> None:
            while chunk := await upstream.read(65536):
                writer.write(chunk)

        ways = [asyncio.create_task(pass_up()), asyncio.create_task(pass_down())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, forward):
            end.transport.abort()
        self.connections -= 1


class Shop:
    """A server behind the proxy, what its tools did, and what is stored."""

    def __init__(self, redis: RedisServer, url: str, proxy: PutProxy) -> None:
        self.proxy, self.done = proxy, list[str]()
        self.gate = asyncio.Event()
        self._direct = Backend(redis.url, name="shop", keys=[KEY], limits=PATIENT)
        self.backend = Backend(url, name="shop", keys=[KEY], limits=PATIENT)
        self.server = Server("shop", backend=self.backend, limits=LIMITS)

        @self.server.tool(task="required", resumable=True)
        async def ask_briefly(ctx: Context) -> str:
            try:
                await ctx.elicit("Sure?", Sure, key="sure", timeout=0.5)
            except TimedOut:
                self.done.append("timed out")
            await ctx.once("step", lambda: self.done.append("step"))
            self.done.append("saved")
            await self.gate.wait()
            return "done"

        @self.server.tool(task="required", resumable=True)
        async def ask(ctx: Context) -> str:
            action = (await ctx.elicit("Sure?", Sure, key="sure")).action
            self.done.append(action)
            await self.gate.wait()
            return action

        @self.server.tool(task="required", resumable=True)
        async def wait() -> str:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.done.append("cancelled")
                raise
            return "done"

    async def stored(self, id: str) -> TaskRecord:
        record = await self._direct.tasks().get(id)
        assert record is not None
        return record

    async def close(self) -> None:
        await self._direct.close()
        await self.backend.close()


@asynccontextmanager
async def shop(redis: RedisServer) -> AsyncIterator[tuple[Shop, Client]]:
    redis.run("SCRIPT", "LOAD", PUT_TASK.source)
    proxy = PutProxy(redis.port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0"
    async with listener:
        made = Shop(redis, url, proxy)
        async with Client(made.server, on_elicit=lambda request: None) as client:
            yield made, client
        await made.close()
        await until(lambda: not proxy.connections)


class HeldPut:
    """Holds the first record, and passes on those that follow."""

    def __init__(self) -> None:
        self.arrived, self.released = asyncio.Event(), asyncio.Event()
        self.count = 0

    async def __call__(self) -> bool:
        self.count += 1
        if self.count == 1:
            self.arrived.set()
            await self.released.wait()
        return True


async def test_a_save_that_is_cancelled_does_not_overwrite_a_later_one(
    own_redis: RedisServer,
) -> None:
    async with shop(own_redis) as (one, client):
        put = one.proxy.on_put = HeldPut()
        task = await client.start_tool("ask_briefly", manual=True)
        await asyncio.wait_for(put.arrived.wait(), 60)  # the question, for which the tool waits
        await until(lambda: "step" in one.done)
        await asyncio.sleep(0.5)
        put.released.set()
        await until(lambda: "saved" in one.done)
        await asyncio.sleep(0.2)  # until the question has arrived, if nothing waited for it
        stored = await one.stored(task.id)
        assert (stored.status, stored.questions) == ("working", {})
        assert "step" in stored.once_results
        one.gate.set()
        assert (await reached(client, task.id, "completed")).status == "completed"
    assert one.done == ["timed out", "step", "saved"]


async def test_an_answer_that_could_not_be_stored_is_acknowledged_only_when_it_is(
    own_redis: RedisServer,
) -> None:
    cuts = 0

    async def cut_twice() -> bool:
        nonlocal cuts
        cuts += 1
        return cuts > 2

    async with shop(own_redis) as (one, client):
        task = await client.start_tool("ask", manual=True)
        await reached(client, task.id, "input_required")
        one.proxy.on_put = cut_twice
        answer = {"inputResponses": {"sure": {"action": "decline"}}}
        # The client repeats the request, because it was refused with a time to wait.
        await client.request("tasks/update", {"taskId": task.id, **answer})
        stored = await one.stored(task.id)
        assert (stored.status, list(stored.answers)) == ("working", ["sure"])
        assert (cuts, one.done) == (3, ["decline"])
        one.gate.set()
        assert (await reached(client, task.id, "completed")).status == "completed"


async def test_a_task_stops_even_if_the_caller_who_cancels_it_has_left(
    own_redis: RedisServer,
) -> None:
    async with shop(own_redis) as (one, client):
        task = await client.start_tool("wait")
        put = one.proxy.on_put = HeldPut()
        cancelling = asyncio.create_task(client.request("tasks/cancel", {"taskId": task.id}))
        await asyncio.wait_for(put.arrived.wait(), 60)
        cancelling.cancel()
        await asyncio.wait([cancelling])
        await asyncio.sleep(0.1)
        put.released.set()
        await until(lambda: one.done)
        assert (await reached(client, task.id, "cancelled")).status == "cancelled"
