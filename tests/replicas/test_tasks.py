"""Tasks that are started at one replica, run anywhere, and are read, answered and cancelled at
others, in both forms: the core of 2025-11-25 and the extension of 2026-07-28."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import TaskCancelled
from tests.system import needs_redis

from .cluster import Cluster
from .conftest import FORMS
from .round_robin import round_robin

pytestmark = [
    needs_redis,
    pytest.mark.parametrize("form", FORMS),
]


def client_of(url: str, form: str, asked: list[str] | None = None) -> Client:
    def answer(request: Any) -> dict[str, str]:
        if asked is not None:
            asked.append(request.message)
        return {"size": "large"}

    return Client(url, revision=form, on_elicit=answer)


@asynccontextmanager
async def clients(cluster: Cluster, form: str) -> AsyncIterator[list[Client]]:
    """A client of each replica."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(client_of(one.url, form)) for one in cluster.replicas
        ]


async def status_of(client: Client, id: str) -> str:
    status: str = (await client.request("tasks/get", {"taskId": id})).status
    return status


async def test_every_replica_knows_a_task_and_its_result(
    cluster: Cluster, form: str, tag: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with clients(cluster, form) as (one, two, three):
        handle = await one.start_tool("steps", {"tag": tag, "gate": str(gate)})
        assert [await status_of(other, handle.id) for other in (two, three)] == ["working"] * 2
        waiting = [asyncio.create_task(other.task(handle.id).result()) for other in (two, three)]
        gate.touch()
        assert [(await one).text for one in waiting] == ["done", "done"]
        assert (await handle.result()).text == "done"
    assert cluster.done_once(tag) == ["before", "after"]


async def test_a_question_of_a_task_is_answered_at_another_replica(
    cluster: Cluster, form: str, tag: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    async with clients(cluster, form) as (one, two, three):
        arguments = {"tag": tag, "gate": str(gate)}
        handle = await one.start_tool("order", arguments, manual=True)
        while await status_of(three, handle.id) != "input_required":
            await asyncio.sleep(0.01)
        assert (await two.task(handle.id).result()).text == "large large"
    assert cluster.done_once(tag) == ["paid", "sent"]


async def test_an_answer_at_another_replica_continues_the_task_within_300_ms(
    cluster: Cluster, form: str, tag: str, tmp_path: Path
) -> None:
    gate, times = tmp_path / "gate", list[float]()
    gate.touch()
    async with clients(cluster, form) as (one, _, other):
        for number in range(5):
            arguments = {"tag": f"{tag}-{number}", "gate": str(gate)}
            handle = await one.start_tool("order", arguments, manual=True)
            while await status_of(other, handle.id) != "input_required":
                await asyncio.sleep(0.01)
            answered = time.monotonic()
            result = asyncio.create_task(other.task(handle.id).result())
            await cluster.until_done(f"{tag}-{number}", "sent")
            times.append(time.monotonic() - answered)
            assert (await result).text == "large large"
    print(f"continued after {sorted(times)} s")
    assert sorted(times)[2] < 0.3


async def test_requests_about_a_task_may_reach_any_replica(
    cluster: Cluster, form: str, tag: str, tmp_path: Path
) -> None:
    gate, asked = tmp_path / "gate", list[str]()
    gate.touch()
    async with round_robin(cluster.ports) as proxy, client_of(proxy.url, form, asked) as client:
        arguments = {"tag": tag, "gate": str(gate)}
        handles = [await client.start_tool("order", arguments) for _ in range(5)]
        results = await asyncio.gather(*(handle.result() for handle in handles))
        assert [result.text for result in results] == ["large large"] * 5
    deeds = cluster.done(tag)
    assert [deeds.count(what) for what in ("paid", "sent")] == [5, 5]
    assert [asked.count(what) for what in ("Which size?", "Did it fit?")] == [5, 5]


async def test_a_task_is_cancelled_at_another_replica(
    cluster: Cluster, form: str, tag: str, tmp_path: Path
) -> None:
    async with clients(cluster, form) as (one, two, three):
        arguments = {"tag": tag, "gate": str(tmp_path / "never")}
        handle = await one.start_tool("fragile", arguments)
        await cluster.until_done(tag, "begun")
        await two.task(handle.id).cancel()
        await cluster.until_done(tag, "cancelled")
        for client in (one, two, three):
            assert await status_of(client, handle.id) == "cancelled"
            with pytest.raises(TaskCancelled):
                await client.task(handle.id).result()


async def test_many_tasks_are_all_run_once(cluster: Cluster, form: str) -> None:
    async with round_robin(cluster.ports) as proxy, client_of(proxy.url, form) as client:
        handles = await asyncio.gather(
            *(client.start_tool("quick", {"number": number}) for number in range(50))
        )
        results = await asyncio.gather(*(handle.result() for handle in handles))
        assert [result.data for result in results] == list(range(50))
