"""What is not done for each task, because nobody needs it."""

import asyncio
import gc
import weakref
from collections.abc import Collection
from pathlib import Path

import pytest

from dovetail import Client, Server
from dovetail.connection.bus import NoBus
from dovetail.extensions.tasks import SqliteStore, TaskMessage

FORMS = CORE, EXTENDED = ["2025-11-25", "2026-07-28"]


class CountingStore(SqliteStore):
    reads = 0

    async def receive_messages(self, ids: Collection[str]) -> list[tuple[int, TaskMessage]]:
        self.reads += 1
        return await super().receive_messages(ids)


class OtherProcess(NoBus):
    """A bus that leads to another process."""

    alone = False


def make_server(store: SqliteStore) -> tuple[Server, asyncio.Event]:
    server, go = Server("costs", tasks=store), asyncio.Event()

    @server.tool(task="optional")
    async def work() -> str:
        """Wait."""
        await go.wait()
        return "done"

    return server, go


@pytest.mark.parametrize("form", FORMS)
async def test_a_new_task_does_not_read_messages(tmp_path: Path, form: str) -> None:
    store = CountingStore(tmp_path / "tasks.db")
    server, go = make_server(store)
    async with Client(server, revision=form) as client:
        tasks = [await client.start_tool("work") for _ in range(10)]
        assert store.reads < 5, "when the first one began, and periodically"
        go.set()
        assert {(await task.result()).text for task in tasks} == {"done"}


@pytest.mark.parametrize("reachable", [True, False])
async def test_a_change_is_announced_only_if_somebody_can_receive_it(
    tmp_path: Path, reachable: bool
) -> None:
    server, go = make_server(SqliteStore(tmp_path / "tasks.db"))
    announced: list[str] = []
    async with Client(server, revision=EXTENDED) as client:
        bus = OtherProcess() if reachable else NoBus()
        server.connect_bus(bus)
        server.add_listener(lambda method, params: announced.append(params.status))
        task = await client.start_tool("work")
        go.set()
        assert (await task.result()).text == "done"
    assert announced == (["completed"] if reachable else [])


async def test_a_task_tool_that_is_added_later_uses_the_bus(tmp_path: Path) -> None:
    server = Server("late", tasks=SqliteStore(tmp_path / "tasks.db"))
    bus = OtherProcess()
    server.connect_bus(bus)

    @server.tool(task="optional")
    async def work() -> str:
        """Do it."""
        return "done"

    assert server.tasks is not None
    assert server.tasks.manager.signals.reach_others


@pytest.mark.parametrize("count", [1, 3])
async def test_tasks_expire_in_their_order(count: int) -> None:
    server = Server("expiry")
    ended: list[float] = []

    @server.tool(task="optional")
    async def work(life: float) -> str:
        """Wait for the end."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(life)
        return "never"

    async with Client(server, revision=CORE) as client:
        lives = [0.3, 0.1, 0.2][:count]
        tasks = [await client.start_tool("work", {"life": life}, ttl=life) for life in lives]
        long = await client.start_tool("work", {"life": 60.0}, ttl=60)
        while len(ended) < count:
            await asyncio.sleep(0.01)
        assert ended == sorted(lives)
        assert len(tasks) == count
        assert (await long.status()).status == "working"
        await long.cancel()


@pytest.mark.parametrize("form", FORMS)
async def test_a_finished_task_is_freed_without_the_garbage_collector(
    tmp_path: Path, form: str
) -> None:
    server, go = make_server(SqliteStore(tmp_path / "tasks.db"))
    assert server.tasks is not None
    running = server.tasks.manager.running
    async with Client(server, revision=form) as client:
        task = await client.start_tool("work")
        gc.collect()
        gc.disable()
        try:
            known = weakref.ref(running[task.id])
            go.set()
            while task.id in running:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            assert known() is None
        finally:
            gc.enable()
