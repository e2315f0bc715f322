"""Workers that are killed, stopped, continued and terminated in the middle of a task."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dovetail import Client, Server
from dovetail.auth import hash_password
from dovetail.errors import ConfigError, ProtocolError
from tests.backend.conftest import KEY
from tests.backend.redis_server import RedisServer
from tests.ports import free_port
from tests.system import needs_redis

from .cluster import ROOT, Cluster, Member, running
from .conftest import FORMS

pytestmark = needs_redis

LEASE = 3.0


@pytest.fixture(scope="module")
def all_workers(
    shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("workers")
    with running(shared_redis, folder, 1, 2, task_lease=LEASE, replica_slots=0) as cluster:
        yield cluster


@pytest.fixture
def workers(all_workers: Cluster) -> Iterator[Cluster]:
    """A replica that runs no tasks, and two workers. Those that a test kills or stops are started
    again after it."""
    yield all_workers
    all_workers.repair()


@asynccontextmanager
async def client_of(cluster: Cluster, form: str = FORMS[1]) -> AsyncIterator[Client]:
    async with Client(
        cluster.replicas[0].url, revision=form, on_elicit=lambda request: {"size": "large"}
    ) as client:
        yield client


async def runner_of(cluster: Cluster, tag: str, *others: int) -> Member:
    """The process that has begun a task, and is not one of `others`."""
    while True:
        begun = [line for line in cluster.done(tag) if line.startswith("begun by ")]
        pids = {int(line.removeprefix("begun by ")) for line in begun} - {*others}
        if pids:
            [pid] = pids
            return next(one for one in cluster.workers if one.pid == pid)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("form", FORMS)
async def test_a_killed_worker_loses_no_task(
    workers: Cluster, tag: str, tmp_path: Path, form: str
) -> None:
    gate = tmp_path / "gate"
    async with client_of(workers, form) as client:
        handle = await client.start_tool("steps", {"tag": tag, "gate": str(gate)})
        first = await runner_of(workers, tag)
        await workers.until_done(tag, "saved")
        first.kill()
        killed = time.monotonic()
        second = await runner_of(workers, tag, first.pid)
        print(f"taken over after {time.monotonic() - killed:.2f} s with a lease of {LEASE:g} s")
        assert second is not first
        gate.touch()
        assert (await handle.result()).text == "done"
    assert workers.done_once(tag) == ["before", "after"]


async def test_a_task_that_cannot_be_resumed_fails_if_its_worker_is_killed(
    workers: Cluster, tag: str, tmp_path: Path
) -> None:
    async with client_of(workers) as client:
        handle = await client.start_tool("fragile", {"tag": tag, "gate": str(tmp_path / "never")})
        (await runner_of(workers, tag)).kill()
        with pytest.raises(ProtocolError, match="The server stopped while this task was running"):
            await handle.result()


async def test_a_worker_that_was_stopped_past_its_lease_does_nothing_twice(
    workers: Cluster, tag: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with client_of(workers) as client:
        handle = await client.start_tool("steps", {"tag": tag, "gate": str(gate)})
        first = await runner_of(workers, tag)
        await workers.until_done(tag, "saved")
        logged = len(first.output())
        first.pause()
        try:
            await runner_of(workers, tag, first.pid)
        finally:
            gate.touch()  # both are past the gate now
            first.resume()
        assert (await handle.result()).text == "done"
        while "its lease was lost" not in first.output()[logged:]:
            await asyncio.sleep(0.01)
        again = await client.start_tool("quick", {"number": 1})
        assert (await again.result()).data == 1
    assert workers.done_once(tag) == ["before", "after"]
    assert first.health() is not None, "it works on"


async def test_a_worker_that_is_told_to_stop_gives_its_tasks_back_at_once(
    workers: Cluster, tag: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with client_of(workers) as client:
        handle = await client.start_tool("steps", {"tag": tag, "gate": str(gate)})
        first = await runner_of(workers, tag)
        assert await asyncio.to_thread(first.terminate) == 0
        terminated = time.monotonic()
        await runner_of(workers, tag, first.pid)
        print(f"continued after {time.monotonic() - terminated:.2f} s")
        gate.touch()
        assert (await handle.result()).text == "done"
    assert workers.done_once(tag) == ["before", "after"]


async def test_a_task_that_cannot_be_resumed_may_finish_before_its_worker_stops(
    shared_redis: RedisServer, tmp_path: Path, tag: str
) -> None:
    gate = tmp_path / "gate"
    with running(shared_redis, tmp_path / "cluster", 1, 1, replica_slots=0, shutdown=20) as cluster:
        async with client_of(cluster) as client:
            arguments = {"tag": tag, "gate": str(gate)}
            handle = await client.start_tool("fragile", arguments)
            worker = await runner_of(cluster, tag)
            stopping = asyncio.create_task(asyncio.to_thread(worker.terminate))
            while await asyncio.to_thread(worker.health) is not None:
                await asyncio.sleep(0.01)
            late = await client.start_tool("fragile", arguments)
            gate.touch()
            assert (await handle.result()).text == "done"
            assert await stopping == 0
            assert cluster.done(tag).count(f"begun by {worker.pid}") == 1, "it took no more tasks"
            assert (await client.request("tasks/get", {"taskId": late.id})).status == "working"


async def test_a_worker_answers_only_health_checks_and_metrics(workers: Cluster) -> None:
    worker = workers.workers[0]
    assert worker.health() == {"status": "ok", "backend": "connected"}
    with pytest.raises(ProtocolError, match="This is a worker"):
        async with Client(worker.url):
            pass


PROGRAM = "tests/replicas/program.py"
WORKER = [sys.executable, "-m", "dovetail", "worker"]


def environment() -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if "DOVETAIL" not in key}
    return {**ours, "PYTHONPATH": str(ROOT), "DOVETAIL_KEYS": KEY}


def run_worker(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*WORKER, *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_without_a_port_stops_in_good_order(
    shared_redis: RedisServer, number: int
) -> None:
    worker = subprocess.Popen(
        [*WORKER, PROGRAM, "--backend", shared_redis.url],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        lines = iter(worker.stderr.readline, "")
        assert any(line == "Running the tasks of replicas\n" for line in lines)
        worker.send_signal(number)
        assert worker.wait(60) == 0
        assert "Traceback" not in worker.stderr.read()
    finally:
        worker.kill()
        worker.communicate()


def status(address: str, port: int, path: str, host: str = "localhost") -> int | None:
    """The status of a page at an address of this machine; None if nobody listens there."""
    connection = http.client.HTTPConnection(address, port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("health", "reachable", "by_another_name"),
    [
        ("{}", ["127.0.0.1"], 421),
        ("localhost:{}", ["127.0.0.1"], 421),
        ("127.0.0.2:{}", ["127.0.0.2"], 421),
        ("0.0.0.0:{}", ["127.0.0.1", "127.0.0.2"], 200),
    ],
)
def test_only_this_machine_reaches_a_worker_unless_an_address_is_named(
    shared_redis: RedisServer, health: str, reachable: list[str], by_another_name: int
) -> None:
    port = free_port()
    command = [*WORKER, PROGRAM, "--backend", shared_redis.url, "--health", health.format(port)]
    worker = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        assert worker.stderr is not None
        lines = iter(worker.stderr.readline, "")
        assert any(line == "Running the tasks of replicas\n" for line in lines)
        deadline = time.monotonic() + 60
        while status(reachable[0], port, "/health") is None:  # it starts before it listens
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for path in ("/health", "/metrics"):
            found = [one for one in ("127.0.0.1", "127.0.0.2") if status(one, port, path) == 200]
            assert found == reachable
        # A web page of a stranger whose name is changed to this address cannot read it.
        assert status(reachable[0], port, "/metrics", "stranger.example") == by_another_name
    finally:
        worker.kill()
        worker.communicate()


@pytest.mark.parametrize("health", ["", "abc", ":8001", "8001:", "0.0.0.0:http", "-1", -1, "65536"])
def test_a_health_address_that_is_not_one_is_refused(health: str | int) -> None:
    server = Server("shop", backend=f"redis://127.0.0.1:{free_port()}/0")
    server.tool(lambda: None, name="work", task="required")
    is_number = health == "65536"
    hint = "from 0 to 65535" if is_number else f"{health!r} is not an address for health checks"
    with pytest.raises(ConfigError, match=hint):
        server.run_worker(health=health, keys=[KEY])


async def test_a_worker_does_not_start_while_redis_is_away() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    commands = [[PROGRAM, "--backend", url], [PROGRAM, "--backend", url, "--health", "0"]]
    ended = await asyncio.gather(*(asyncio.to_thread(run_worker, *words) for words in commands))
    for refused in ended:
        assert refused.returncode != 0
        assert refused.stderr.count("cannot be reached") == refused.stderr.count("Redis at") == 1
        assert "Check that Redis is running" in refused.stderr
        assert "Working without it" not in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_worker_does_not_start_without_a_backend() -> None:
    refused = run_worker(PROGRAM)
    assert refused.returncode == 2
    assert refused.stderr.startswith("dovetail: error: A worker needs the backend")


def test_a_worker_of_a_server_without_tasks_does_not_start(
    tmp_path: Path, shared_redis: RedisServer
) -> None:
    program = tmp_path / "server.py"
    program.write_text('from dovetail import Server\nserver = Server("shop")\n')
    refused = run_worker(str(program), "--backend", shared_redis.url)
    assert refused.returncode == 2 and "nothing to do" in refused.stderr


def test_a_worker_whose_tasks_are_elsewhere_does_not_start(
    tmp_path: Path, shared_redis: RedisServer
) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        'from dovetail import Server\nserver = Server("shop", tasks="tasks.db")\n'
        '@server.tool(task="required")\ndef work() -> None: ...\n'
    )
    refused = run_worker(str(program), "--backend", shared_redis.url)
    assert refused.returncode == 2 and "tasks=… is set" in refused.stderr


async def test_a_worker_needs_no_logins(
    shared_redis: RedisServer, tmp_path: Path, tag: str
) -> None:
    """A server that authenticates its callers has workers like any other."""
    users = {"USERS": json.dumps({"ann": hash_password("a long password")})}
    with running(shared_redis, tmp_path / "cluster", 0, 1, env=users) as cluster:
        assert cluster.workers[0].health() == {"status": "ok", "backend": "connected"}
        assert await asyncio.to_thread(cluster.workers[0].terminate) == 0
