"""How a process runs the tasks of a server that has a backend: slots, leases, waiting for input,
and a Redis that is away. Each server here has a backend of its own, which makes it as good as a
process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Client, Context, Server
from dovetail.backend import Backend
from dovetail.backend.redis.task_queue import task_key
from dovetail.backend.redis.task_store import MAX_REFUSALS, RedisTaskStore
from dovetail.errors import ConfigError, Overloaded, ProtocolError
from dovetail.extensions.tasks.manager import TaskManager
from dovetail.extensions.tasks.store import Lease, TaskMessage
from dovetail.limits import Limits
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
FORMS = CORE, EXTENDED = ["2025-11-25", "2026-07-28"]
REFUSED = {"sure": "The user is not there"}


class Sure(Struct):
    sure: bool


class Shop:
    """A server with tools that wait for its gate, and what they did."""

    def __init__(self, backend: Backend | None, slots: int | None = None, **limits: Any) -> None:
        chosen = Limits(**{"backend_timeout": 20.0, **limits})
        self.server = Server("shop", limits=chosen)
        if backend is not None:
            self.server.use_backend(backend)
        if slots is not None:
            self.server.task_slots = slots
        self.gate = asyncio.Event()
        self.done: list[str] = []
        self.most = self.running = 0

        @self.server.tool(task="optional", resumable=True)
        async def work(ctx: Context) -> str:
            self.running += 1
            self.most = max(self.most, self.running)
            self.done.append("begun")
            try:
                await self.gate.wait()
                await ctx.once("step", lambda: self.done.append("step"))
            except asyncio.CancelledError:
                self.done.append("cancelled")
                raise
            finally:
                self.running -= 1
            return "done"

        @self.server.tool(task="optional")
        async def fragile() -> str:
            self.done.append("begun")
            await self.gate.wait()
            return "done"

        @self.server.tool(task="optional", resumable=True)
        async def ask(ctx: Context) -> str:
            self.done.append("begun")
            await ctx.once("step", lambda: self.done.append("step"))
            return str((await ctx.elicit("Sure?", Sure, key="sure")).action)

        @self.server.tool(task="optional", resumable=True)
        async def ask_later(ctx: Context) -> str:
            await self.gate.wait()
            self.done.append("asks")
            return str((await ctx.elicit("Sure?", Sure, key="sure")).action)

    @property
    def manager(self) -> TaskManager:
        assert self.server.tasks is not None
        return self.server.tasks.manager

    @asynccontextmanager
    async def client(self, form: str = EXTENDED) -> AsyncIterator[Client]:
        async with Client(self.server, revision=form, on_elicit=lambda request: None) as client:
            yield client


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def reached(client: Client, id: str, *statuses: str) -> Any:
    async with asyncio.timeout(60):
        while (task := await client.request("tasks/get", {"taskId": id})).status not in statuses:
            await asyncio.sleep(0.01)
    return task


# where tasks are stored


async def test_a_server_that_gets_its_backend_late_stores_its_tasks_there(
    make_backend: MakeBackend,
) -> None:
    one, other = Shop(make_backend()), Shop(make_backend())
    one.gate.set()
    async with one.client() as client, other.client() as elsewhere:
        task = await client.start_tool("work")
        assert (await elsewhere.task(task.id).result()).text == "done"


def test_several_processes_with_a_backend_need_no_file(make_backend: MakeBackend) -> None:
    shop = Shop(make_backend(), backend_timeout=1.0)
    shop.server._prepare_for_network({"workers": 2})
    with pytest.raises(ConfigError, match=r"tasks.db.*or name a backend"):
        Shop(None).server._prepare_for_network({"workers": 2})


async def test_the_clock_of_redis_decides_when_a_task_of_another_process_expires(
    make_backend: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, worker = Shop(make_backend(), slots=0), Shop(make_backend())
    worker.gate.set()
    async with web.client() as client:
        with monkeypatch.context() as patch:  # the clock of the web server is two hours behind
            clock = time.time
            patch.setattr(time, "time", lambda: clock() - 7200)
            task = await client.start_tool("work")
        async with worker.server.lifespan():
            assert (await task.result(30)).text == "done"


# slots


@pytest.mark.parametrize("form", FORMS)
async def test_a_process_runs_no_more_tasks_than_it_has_slots(
    make_backend: MakeBackend, form: str
) -> None:
    shop = Shop(make_backend(), task_slots=2)
    async with shop.client(form) as client:
        tasks = [await client.start_tool("work") for _ in range(5)]
        await until(lambda: shop.running == 2)
        await asyncio.sleep(0.2)
        shop.gate.set()
        assert [(await task.result()).text for task in tasks] == ["done"] * 5
        assert shop.most == 2
    assert shop.done.count("begun") == 5


async def test_a_process_without_slots_leaves_its_tasks_to_others(
    make_backend: MakeBackend,
) -> None:
    web, worker = Shop(make_backend(), slots=0), Shop(make_backend())
    worker.gate.set()
    async with web.client() as client:
        task = await client.start_tool("work")
        assert (await client.request("tasks/get", {"taskId": task.id})).status == "working"
        async with worker.server.lifespan():
            assert (await task.result()).text == "done"
    assert (web.done, worker.done) == ([], ["begun", "step"])


async def test_a_task_is_left_to_a_process_that_has_its_tool(make_backend: MakeBackend) -> None:
    web, old, new = (Shop(make_backend(), slots=slots) for slots in (0, 16, 16))
    new.gate.set()
    for name in ("work", "fragile"):
        old.server.remove_tool(name)
    async with web.client() as client, old.server.lifespan():
        tasks = [await client.start_tool(name) for name in ("work", "fragile")]
        await asyncio.sleep(0.1)
        async with new.server.lifespan():
            assert [(await task.result()).text for task in tasks] == ["done", "done"]
    assert old.done == []


async def test_a_task_whose_tool_no_process_has_fails(make_backend: MakeBackend) -> None:
    web, old = Shop(make_backend(), slots=0), Shop(make_backend(), task_lease=0.4)
    for name in ("work", "fragile"):
        old.server.remove_tool(name)
    async with web.client() as client, old.server.lifespan():
        for name in ("work", "fragile"):
            task = await client.start_tool(name)
            with pytest.raises(ProtocolError, match=f"No process of this server has.*{name}"):
                await task.result()


async def test_a_task_waits_for_a_process_that_has_its_tool_but_no_free_slot(
    make_backend: MakeBackend,
) -> None:
    web, new = (Shop(make_backend(), slots=slots) for slots in (0, 1))
    olds = [Shop(make_backend(), task_lease=0.4) for _ in range(2)]
    for old in olds:
        old.server.remove_tool("work")
    async with web.client() as client, new.server.lifespan():
        tasks = [await client.start_tool("work")]
        await until(lambda: new.running)
        async with olds[0].server.lifespan(), olds[1].server.lifespan():
            tasks.append(await client.start_tool("work"))
            store = web.manager.store
            assert isinstance(store, RedisTaskStore)
            row, refusals = store._row(task_key(tasks[1].id)), 0
            async with asyncio.timeout(60):
                while refusals < MAX_REFUSALS + 2:
                    refusals = int(await store._client.run("HGET", row, "refusals") or 0)
                    await asyncio.sleep(0.01)
            new.gate.set()
            assert [(await task.result()).text for task in tasks] == ["done", "done"]


async def test_tasks_without_a_slot_wait_for_others_though_their_process_stops(
    make_backend: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, leaving, other = (Shop(make_backend(), slots=each, task_lease=60) for each in (0, 4, 4))
    scheduler, store = leaving.manager.scheduler, leaving.manager.store
    release = store.release

    async def release_at_the_end(lease: Lease, *, queue: bool = False) -> None:
        scheduler.drain()  # SIGTERM arrives at this moment
        await release(lease, queue=queue)

    monkeypatch.setattr(store, "release", release_at_the_end)
    async with web.client() as client:
        tasks = [await client.start_tool("fragile") for _ in range(3)]
        async with leaving.server.lifespan():
            await asyncio.sleep(0)  # now it pulls
            scheduler.reserved = 4
            await until(lambda: scheduler._draining)
        other.gate.set()
        async with other.server.lifespan():
            assert [(await task.result(30)).text for task in tasks] == ["done"] * 3
    assert (leaving.done, other.done) == ([], ["begun"] * 3)


# leases


async def test_a_lease_is_renewed_as_long_as_the_task_runs(make_backend: MakeBackend) -> None:
    one, other = (Shop(make_backend(), task_lease=3) for _ in range(2))
    async with one.client() as client, other.server.lifespan():
        task = await client.start_tool("work")
        await asyncio.sleep(7)
        one.gate.set()
        assert (await task.result()).text == "done"
        assert other.manager.scheduler.taken_over == 0
    assert (one.done, other.done) == (["begun", "step"], [])


async def test_a_task_that_was_taken_over_is_stopped_at_its_next_write(
    make_backend: MakeBackend,
) -> None:
    one, other = (Shop(make_backend(), task_lease=600) for _ in range(2))
    async with one.client() as client, other.client() as elsewhere:
        task = await client.start_tool("work")
        await until(lambda: one.running)
        lease = one.manager.running[task.id].lease
        await one.manager.store.give_back(lease)  # without its knowledge
        [(record, new)] = await other.manager.store.claim_orphans(include_own=False)
        assert record.id == task.id
        one.gate.set()  # it reaches its step
        await until(lambda: "cancelled" in one.done)
        assert one.manager.running == {}
        assert (await elsewhere.request("tasks/get", {"taskId": task.id})).status == "working"
        await other.manager.store.give_back(new)
    assert one.done == ["begun", "cancelled"], "the step was not done"


async def test_work_ends_before_another_process_can_take_it_over(
    own_redis: RedisServer,
) -> None:
    def backend() -> Backend:
        return Backend(own_redis.url, name="shop", keys=[KEY], limits=Limits(backend_timeout=0.5))

    one, other = (Shop(backend(), task_lease=2.0) for _ in range(2))
    other.gate.set()
    async with one.client() as client:
        task = await client.start_tool("work")
        fragile = await client.start_tool("fragile")
        await until(lambda: one.done.count("begun") == 2)
        runs = [one.manager.running[each.id] for each in (task, fragile)]
        own_redis.pause()
        try:
            for run in runs:
                while (rest := run.lease.until - time.monotonic()) > 0:
                    await asyncio.sleep(rest)
                assert run.is_lost  # a tool that ends from now on cannot save its result
            await until(lambda: "cancelled" in one.done)
            one.gate.set()
            await asyncio.sleep(0.2)
        finally:
            own_redis.resume()
        async with other.server.lifespan():
            assert (await task.result()).text == "done"
            with pytest.raises(ProtocolError, match="The server stopped"):
                await fragile.result()
    assert "step" in one.done + other.done
    assert (one.done + other.done).count("step") == 1


# Redis is away


async def test_without_redis_tasks_here_can_be_read_and_none_can_begin(
    own_redis: RedisServer,
) -> None:
    def backend() -> Backend:
        return Backend(own_redis.url, name="shop", keys=[KEY], limits=Limits(backend_timeout=0.5))

    one, other = Shop(backend(), task_lease=60), Shop(backend(), task_lease=60)
    async with one.client() as client, other.client() as elsewhere:
        task = await client.start_tool("work")
        own_redis.stop()
        assert (await client.request("tasks/get", {"taskId": task.id})).status == "working"
        get, begin = {"taskId": task.id}, {"name": "work", "arguments": {}}
        for refused in (
            elsewhere.request("tasks/get", get, timeout=1),
            elsewhere.request("tools/call", begin, timeout=1),
            client.request("tools/call", begin, timeout=1),
        ):
            with pytest.raises(Overloaded) as error:  # after some attempts of the client
                await refused
            assert error.value.retry_after is not None
        one.gate.set()
        await asyncio.sleep(0.2)
        assert "step" not in one.done, "a step that must not be repeated waits"


async def test_calls_that_are_refused_while_redis_is_away_leave_nothing_to_clean_up(
    own_redis: RedisServer,
) -> None:
    shop = Shop(Backend(own_redis.url, keys=[KEY]))
    async with shop.client() as client:
        own_redis.stop()
        await until(lambda: shop.server.backend.state == "away")
        tasks = len(asyncio.all_tasks())
        begin = {"name": "work", "arguments": {}}
        calls = (client.request("tools/call", begin, timeout=1) for _ in range(20))
        refused = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in refused} == {Overloaded}
        assert len(asyncio.all_tasks()) < tasks + 10


async def test_what_a_task_did_while_redis_was_away_is_saved_when_it_is_back(
    own_redis: RedisServer,
) -> None:
    limits = Limits(backend_timeout=0.5)
    shop = Shop(Backend(own_redis.url, name="shop", keys=[KEY], limits=limits), task_lease=60)
    async with shop.client() as client:
        task = await client.start_tool("fragile")
        await until(lambda: shop.done)
        own_redis.pause()
        shop.gate.set()
        await asyncio.sleep(1.0)
        own_redis.resume()
        assert (await task.result()).text == "done"


async def test_nobody_sees_a_question_that_is_not_stored(own_redis: RedisServer) -> None:
    """The answer may arrive at a process that knows only the stored questions."""
    limits = Limits(backend_timeout=0.5)
    shop = Shop(Backend(own_redis.url, keys=[KEY], limits=limits), task_lease=60)

    async with shop.client() as client:
        task = await client.start_tool("ask_later", manual=True)
        own_redis.pause()
        try:
            shop.gate.set()
            await until(lambda: shop.done)
            seen = await client.request("tasks/get", {"taskId": task.id})
            assert (seen.status, seen.input_requests or {}) == ("working", {})
        finally:
            own_redis.resume()
        await reached(client, task.id, "input_required")
        assert (await client.task(task.id).result()).text == "decline"


# waiting for input


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_that_waits_for_input_needs_no_process(
    make_backend: MakeBackend, form: str
) -> None:
    shop = Shop(make_backend(), parked_time=0.2, task_slots=1)
    async with shop.client(form) as client:
        waiting = await client.start_tool("ask", manual=True)
        await reached(client, waiting.id, "input_required")
        await until(lambda: not shop.manager.running and not shop.manager.scheduler.lost)
        shop.gate.set()
        other = await client.start_tool("work")
        assert (await other.result()).text == "done"
        assert (await client.request("tasks/get", {"taskId": waiting.id})).status == (
            "input_required"
        )
        assert (await client.task(waiting.id).result()).text == "decline"
    assert shop.done.count("step") == 2, "one of each task"
    assert shop.done.count("begun") == 3


async def test_a_parked_task_is_answered_and_cancelled_at_another_process(
    make_backend: MakeBackend,
) -> None:
    one, other = (Shop(make_backend(), parked_time=0.1) for _ in range(2))
    async with one.client() as client, other.client() as elsewhere:
        tasks = [await client.start_tool("ask", manual=True) for _ in range(2)]
        for task in tasks:
            await reached(client, task.id, "input_required")
        await until(lambda: not one.manager.running)
        assert (await elsewhere.task(tasks[0].id).result()).text == "decline"
        await elsewhere.task(tasks[1].id).cancel()
        assert (await reached(client, tasks[1].id, "cancelled")).status == "cancelled"


async def test_an_answer_while_a_task_is_being_parked_is_not_lost(
    make_backend: MakeBackend,
) -> None:
    """The answers arrive at all moments around the one at which the tasks stop waiting."""
    one, other = (Shop(make_backend(), parked_time=0.3, task_slots=50) for _ in range(2))
    answer = {"inputResponses": {"sure": {"action": "decline"}}}
    async with one.client() as client, other.client() as elsewhere:
        tasks = [await client.start_tool("ask", manual=True) for _ in range(20)]
        for task in tasks:
            await reached(client, task.id, "input_required")

        async def send(number: int, id: str) -> None:
            await asyncio.sleep(0.02 * number)
            sender = client if number % 2 else elsewhere
            await sender.request("tasks/update", {"taskId": id, **answer})

        await asyncio.gather(*(send(number, task.id) for number, task in enumerate(tasks)))
        for task in tasks:
            assert (await reached(elsewhere, task.id, "completed")).status == "completed"


async def test_a_task_is_not_parked_while_its_answer_is_being_saved(own_redis: RedisServer) -> None:
    patient = Limits(backend_timeout=20.0)
    shop = Shop(Backend(own_redis.url, keys=[KEY], limits=patient), parked_time=1.0)
    async with shop.client() as client:
        waiting = await client.start_tool("ask", manual=True)
        await reached(client, waiting.id, "input_required")
        task = shop.manager.running[waiting.id]
        own_redis.pause()
        try:
            answer = TaskMessage(waiting.id, {"sure": b'{"action":"decline"}'})
            answering = asyncio.create_task(task.receive(answer))
            await asyncio.sleep(1.5)
        finally:
            own_redis.resume()
        await answering
        assert (await reached(client, waiting.id, "completed")).status == "completed"
    assert shop.done.count("begun") == 1


async def test_a_refusal_while_a_task_is_being_parked_is_not_lost(
    make_backend: MakeBackend,
) -> None:
    shop = Shop(make_backend())
    async with shop.client() as client:
        waiting = await client.start_tool("ask", manual=True)
        await reached(client, waiting.id, "input_required")
        task = shop.manager.running[waiting.id]
        task._park()
        await shop.manager.deliver(task.record, TaskMessage(waiting.id, refused=REFUSED))
        ended = await reached(client, waiting.id, "completed")
        assert REFUSED["sure"] in str(bytes(ended.result))


async def test_a_resumed_task_learns_that_its_question_was_refused_before_it_asks_again(
    make_backend: MakeBackend,
) -> None:
    shop = Shop(make_backend(), parked_time=0.2)
    shop.gate.set()
    async with shop.client() as client:
        waiting = await client.start_tool("ask_later", manual=True)
        await reached(client, waiting.id, "input_required")
        await until(lambda: not shop.manager.running)
        shop.gate.clear()
        record = await shop.manager.find(waiting.id)
        assert record is not None
        await shop.manager.deliver(record, TaskMessage(waiting.id, refused=REFUSED))
        await reached(client, waiting.id, "working")
        shop.gate.set()
        ended = await reached(client, waiting.id, "completed")
        assert REFUSED["sure"] in str(bytes(ended.result))
