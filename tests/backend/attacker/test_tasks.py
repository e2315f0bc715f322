"""Tasks in a Redis that an attacker changes: clients are told what the sealed records say, or
nothing."""

import asyncio
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import DovetailError
from tests.backend.conftest import MakeBackend
from tests.backend.redis_server import RedisServer
from tests.backend.test_task_runner import Shop, until
from tests.system import needs_redis

from .redis_cli import Attacker

pytestmark = needs_redis

FIELDS = [
    "token",
    "over",
    "stream",
    "entry",
    "size",
    "messages",
    "refusals",
    "refusers",
    "number",
    "anonymous",
    "unstarted",
]


async def outcome(client: Client, id: str) -> Any:
    """What a client is told about a task: its status and result, or an error."""
    try:
        task = await client.request("tasks/get", {"taskId": id}, timeout=2)
        return task.status, bytes(getattr(task, "result", None) or b"").decode()
    except (DovetailError, TimeoutError) as error:
        return type(error).__name__, str(error)


async def run_new_task(client: Client, shop: Shop) -> None:
    """The server still runs tasks."""
    handle = await client.start_tool("work")
    assert (await handle.result(20)).text == "done"


async def test_the_result_of_another_task_is_not_shown(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    shop, attacker = Shop(backend), Attacker(shared_redis, backend.prefix)
    async with shop.client() as client:
        mine = await client.start_tool("ask")
        await until(lambda: shop.done)
        [my_key] = attacker.keys("tasks:task")
        shop.gate.set()
        theirs = await client.start_tool("work")
        assert (await theirs.result()).text == "done"
        [their_key] = set(attacker.keys("tasks:task")) - {my_key}
        before = await outcome(client, mine.id)
        attacker.copy(their_key, my_key)
        status, text = await outcome(client, mine.id)
        assert (status, text) == before or "done" not in text, (status, text)
        await run_new_task(client, shop)


@pytest.mark.parametrize("value", ["", "0", "1", "-1", "999999999999", "running", "queue", "x"])
async def test_changed_fields_do_not_change_what_a_client_is_told(
    make_backend: MakeBackend, shared_redis: RedisServer, value: str
) -> None:
    backend = make_backend()
    shop, attacker = Shop(backend, task_lease=1), Attacker(shared_redis, backend.prefix)
    async with shop.client() as client:
        shop.gate.set()
        finished = await client.start_tool("work")
        assert (await finished.result()).text == "done"
        [done_key] = attacker.keys("tasks:task")
        shop.gate.clear()
        running = await client.start_tool("work")
        [key] = set(attacker.keys("tasks:task")) - {done_key}
        truth = await outcome(client, finished.id)
        for field in FIELDS:
            for one in (key, done_key):
                attacker.run("HSET", one, field, value)
            assert await outcome(client, finished.id) == truth, field
            assert (await outcome(client, running.id))[0] == "working", field
        await asyncio.sleep(1.5)  # leases end, and others look for orphans
        assert (await outcome(client, running.id))[0] in ("working", "failed", "InvalidParams")
        shop.gate.set()
        await run_new_task(client, shop)


async def test_a_finished_task_whose_old_record_is_put_back_runs_again(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    """An attacker can repeat what the client has asked for, and nothing else."""
    backend = make_backend()
    shop, attacker = Shop(backend), Attacker(shared_redis, backend.prefix)
    async with shop.client() as client:
        task = await client.start_tool("fragile")
        await until(lambda: shop.done)
        [key] = attacker.keys("tasks:task")
        old = attacker.keep(key)
        shop.gate.set()
        assert (await task.result()).text == "done"
        attacker.copy(old, key)
        queue, name = f"{backend.prefix}tasks:queue", key.rpartition(":")[2]
        entry = attacker.run("XADD", queue, "*", "task", name).decode()
        fields = ("over", "0", "stream", "queue", "entry", entry, "unstarted", "1")
        attacker.run("HSET", key, *fields)
        await until(lambda: len(shop.done) == 2)
        assert (await task.result()).text == "done"
    assert shop.done == ["begun", "begun"]


@pytest.mark.parametrize("what", ["deleted", "without a group", "of another type", "full of junk"])
async def test_new_tasks_run_after_the_queue_was_destroyed(
    make_backend: MakeBackend, shared_redis: RedisServer, what: str
) -> None:
    backend = make_backend()
    shop, attacker = Shop(backend, task_lease=1), Attacker(shared_redis, backend.prefix)
    elsewhere = Shop(make_backend(), slots=0)  # so that tasks go through the queue
    async with shop.client() as _, elsewhere.client() as client:
        shop.gate.set()
        await run_new_task(client, shop)
        queue = f"{backend.prefix}tasks:queue"
        if what == "without a group":
            assert attacker.run("XGROUP", "DESTROY", queue, "dovetail") == b"1"
        elif what == "full of junk":
            for number in range(20):
                attacker.run("XADD", queue, "*", "task", f"no such task {number}")
                attacker.run("XADD", queue, "*", "junk", "junk", "more", "junk")
        else:
            attacker.run("DEL", queue)
        if what == "of another type":
            attacker.run("SET", queue, "a string")
            with pytest.raises(DovetailError):
                await client.request("tools/call", {"name": "work", "arguments": {}}, timeout=1)
            attacker.run("DEL", queue)
        await run_new_task(client, shop)
