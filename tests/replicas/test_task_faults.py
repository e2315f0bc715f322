"""Tasks while Redis is killed, hangs, is flushed or fails over: nothing that was acknowledged is
lost, and nothing is done twice.

Each test prints how long it takes until everything is normal again.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import DovetailError, Overloaded
from dovetail.protocol.tasks import EXTENSION
from tests.backend.redis_server import RedisServer, redis_server
from tests.backend.test_client import replicated, sentinels
from tests.clock import awake_time
from tests.system import needs_redis, needs_sentinel
from tests.transports.http.raw import Session, Site

from .cluster import Cluster, running
from .conftest import FORMS
from .round_robin import round_robin
from .test_faults import time_until_normal, until_state

pytestmark = needs_redis

LEASE = 3.0
UNKNOWN = -1
"""Instead of a status: Redis ended meanwhile, so nobody knows whether the task will run."""


class RawTasks:
    """Starts tasks and asks for them, each with one HTTP request that is not repeated."""

    def __init__(self, site: Site, form: str, session: Session | None) -> None:
        self._site, self._form, self._session = site, form, session
        self._ids = itertools.count(1)

    async def ask(self, method: str, params: dict[str, Any]) -> tuple[int, Any]:
        """The status and the result of a request, or its error."""
        if self._session is None:
            capabilities = {"extensions": {EXTENSION: {}}}
            headers = {"Mcp-Name": params.get("taskId") or params["name"]}
            answer = await self._site.ask(
                method, params, capabilities=capabilities, headers=headers
            )
        else:
            answer = await self._session.ask(method, params, id=next(self._ids))
        reply = await answer.whole()
        return answer.status, reply.get("result", reply.get("error"))

    async def start(self, tool: str, **arguments: Any) -> tuple[int, str]:
        """The status, and the id of a task if it was acknowledged."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self._session is not None:
            params["task"] = {}
        status, found = await self.ask("tools/call", params)
        if found.get("message", "").startswith("The server lost contact"):
            return UNKNOWN, ""
        return status, found.get("task", found).get("taskId", "")

    async def wait(self, id: str) -> str:
        """The final status of a task."""
        while True:
            status, found = await self.ask("tasks/get", {"taskId": id})
            if status == 200:
                assert "status" in found, found
                if found["status"] not in ("working", "input_required"):
                    return str(found["status"])
            else:
                assert status == 503, (status, found)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def raw_tasks(port: int, form: str) -> AsyncIterator[RawTasks]:
    site = Site(port)
    try:
        session = await site.greet() if form == FORMS[0] else None
        yield RawTasks(site, form, session)
    finally:
        for writer in site.open:
            writer.transport.abort()
        await asyncio.sleep(0)


class Load:
    """A client that starts tasks all the time, and remembers those that were acknowledged."""

    def __init__(self, client: RawTasks, tag: str) -> None:
        self._client, self._tag = client, tag
        self.started: dict[int, str] = {}
        """The ids of acknowledged tasks by their numbers."""
        self.refused: Counter[int] = Counter()
        """The statuses of the other responses."""

    async def run(self) -> None:
        for number in itertools.count():
            try:
                status, id = await self._client.start("mark", tag=self._tag, number=number)
            except (OSError, asyncio.IncompleteReadError):
                status, id = 0, ""
            if id:
                self.started[number] = id
            else:
                self.refused[status] += 1
                await asyncio.sleep(0.01)

    async def until_more(self, count: int = 10) -> None:
        """Wait until more tasks were acknowledged."""
        count += len(self.started)
        while len(self.started) < count:
            await asyncio.sleep(0.01)

    async def check(self, cluster: Cluster) -> None:
        """Wait for all tasks that were acknowledged. Each has completed, and has done once what it
        does once; so has each other task that was begun."""
        with time_until_normal(f"{len(self.started)} tasks, refused: {dict(self.refused)}"):
            # one after the other: hundreds of polls at once would keep the machine from the tasks
            ends = [await self._client.wait(id) for id in self.started.values()]
        assert set(ends) == {"completed"}, Counter(ends)
        done = Counter(map(int, cluster.done(self._tag)))
        assert set(self.started) <= set(done)
        assert set(done.values()) == {1}, done


@asynccontextmanager
async def loaded(cluster: Cluster, form: str, tag: str) -> AsyncIterator[Load]:
    """Tasks are started during the block. Afterwards, all of them are checked."""
    async with round_robin(cluster.ports) as proxy, raw_tasks(proxy.port, form) as client:
        load = Load(client, tag)
        starting = asyncio.create_task(load.run())
        try:
            await load.until_more()
            yield load
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        await load.check(cluster)


@pytest.mark.parametrize("form", FORMS)
async def test_redis_that_is_killed_loses_no_task_that_was_acknowledged(
    durable_redis: RedisServer, tmp_path: Path, tag: str, form: str
) -> None:
    with running(durable_redis, tmp_path / "cluster", 2, task_lease=20) as cluster:
        async with loaded(cluster, form, tag) as load:
            for _ in range(3):
                await asyncio.to_thread(durable_redis.stop)
                await asyncio.sleep(0.3)
                await asyncio.to_thread(durable_redis.start)
                with time_until_normal("Redis was killed") as watch:
                    await load.until_more()
                assert watch.seconds < 5
            assert {503} <= set(load.refused) <= {503, UNKNOWN}


async def test_a_task_stops_before_another_process_takes_it_over(
    own_redis: RedisServer, tmp_path: Path, tag: str
) -> None:
    """Redis hangs for longer than a lease, so nobody can renew it."""
    gate = tmp_path / "gate"
    settings = {"task_lease": LEASE, "backend_timeout": 1.0}
    with running(own_redis, tmp_path / "cluster", 2, **settings) as cluster:
        async with Client(cluster.replicas[0].url) as client:
            handle = await client.start_tool("steps", {"tag": tag, "gate": str(gate)})
            await cluster.until_done(tag, "saved")
            own_redis.pause()
            try:
                hung = awake_time()
                while not any("cancelled" in line for line in cluster.done(tag)):
                    assert awake_time() - hung < LEASE + 2
                    await asyncio.sleep(0.01)
                print(f"The task stopped after {awake_time() - hung:.1f} s")
                for port in cluster.ports:
                    async with raw_tasks(port, FORMS[1]) as raw:
                        began = awake_time()
                        assert await raw.start("steps", tag=tag, gate=str(gate)) == (503, "")
                        assert (await raw.ask("tasks/get", {"taskId": handle.id}))[0] == 503
                        assert awake_time() - began < 1.5
            finally:
                own_redis.resume()
            with time_until_normal("Redis hung for longer than a lease"):
                gate.touch()
                async with Client(cluster.replicas[1].url) as other:
                    assert await finished(other, handle.id) == "done"
    assert cluster.done_once(tag) == ["before", "after"]


async def finished(client: Client, id: str) -> str:
    """The result of a task. A request that fails because Redis is away is repeated."""
    while True:
        try:
            return (await client.task(id).result()).text
        except Overloaded:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("form", FORMS)
async def test_after_redis_was_flushed_old_tasks_are_unknown_and_new_ones_run(
    own_redis: RedisServer, tmp_path: Path, tag: str, form: str
) -> None:
    gate = tmp_path / "never"
    with running(own_redis, tmp_path / "cluster", 2, task_lease=LEASE) as cluster:
        async with round_robin(cluster.ports) as proxy, Client(proxy.url, revision=form) as client:
            handle = await client.start_tool("steps", {"tag": tag, "gate": str(gate)})
            await cluster.until_done(tag, "saved")
            own_redis.run("FLUSHALL")
            own_redis.run("SCRIPT", "FLUSH")
            with time_until_normal("Redis was flushed") as watch:
                for number in range(4):
                    new = await client.start_tool("mark", {"tag": tag, "number": number})
                    assert (await new.result()).data == number
            assert watch.seconds < 5
            with pytest.raises(DovetailError) as caught:
                await client.request("tasks/get", {"taskId": handle.id})
            print(repr(caught.value))
            assert not isinstance(caught.value, Overloaded)
            await cluster.until_done(tag, "cancelled")  # its lease is gone


@needs_sentinel
async def test_a_failover_loses_no_task_that_a_replica_of_redis_has_acknowledged(
    tmp_path: Path, tag: str
) -> None:
    with replicated(tmp_path) as (master, one), ExitStack() as stack:
        follow = ["--replicaof", "127.0.0.1", str(master.port)]
        two = stack.enter_context(redis_server(tmp_path / "second", *follow))
        ports = stack.enter_context(sentinels(tmp_path, master))
        while two.run("ROLE")[3] != b"connected":
            await asyncio.sleep(0.05)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        settings: dict[str, Any] = {
            "url": f"redis+sentinel://{hosts}/main?wait=1",
            "backend_timeout": 3,
            "task_lease": 20,
        }
        cluster = stack.enter_context(running(master, tmp_path / "cluster", 2, **settings))
        await until_state(cluster, "connected")
        async with loaded(cluster, FORMS[1], tag) as load:
            master.stop()
            with time_until_normal("The master of the sentinels was killed"):
                while b"master" not in (one.run("ROLE")[0], two.run("ROLE")[0]):
                    await asyncio.sleep(0.05)
                await load.until_more()
