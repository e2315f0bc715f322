"""Tasks of servers behind a gateway: a task id works at any replica, wherever its server runs."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from dovetail import Client, Gateway
from dovetail.backend.redis.bus import RedisBus
from dovetail.connection import bus, bus_requests
from dovetail.errors import DovetailError, NotFound, ProtocolError
from tests.behaviour.web import on_a_port
from tests.gateway.serving import ANN, BOB, KEYS, headers_of, recorded
from tests.gateway.stage import LIMITS
from tests.server.test_subscription_counts import on_a_bus
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .gateways import Replica, gateway_replica, gateway_replicas
from .task_server import make_server
from .test_gateway import until

pytestmark = needs_redis
ROOT = Path(__file__).parents[2]
CORE, EXT = "2025-11-25", "2026-07-28"


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@asynccontextmanager
async def source_of(transport: str, revision: str) -> AsyncIterator[dict[str, Any]]:
    if transport == "stdio":
        arguments = ["-m", "tests.backend.task_server", revision]
        entry = {"command": sys.executable, "args": arguments, "cwd": str(ROOT)}
        yield {"mcpServers": {"up": entry}}
        return
    async with recorded(make_server(revision)) as (url, _):
        yield {"mcpServers": {"up": {"url": url}}}


@asynccontextmanager
async def two_workers(source: dict[str, Any]) -> AsyncIterator[list[Replica]]:
    """Two workers of a gateway on one machine, without a backend."""
    async with on_a_bus() as join, AsyncExitStack() as stack:
        workers = []
        for _ in range(2):
            gateway = Gateway(source, auth=KEYS, limits=LIMITS, store=":memory:")
            app = gateway.asgi("/mcp", hosts="*", keys=[KEY], bus=join)
            place = await stack.enter_async_context(on_a_port(app))
            workers.append(Replica(gateway, f"http://{place}/mcp"))
        yield workers


def connect(replica: Replica, revision: str, key: str = ANN, **options: Any) -> Client:
    return Client(replica.url, revision=revision, headers=headers_of(key), **options)


@pytest.mark.parametrize("caller", [CORE, EXT])
@pytest.mark.parametrize("upstream", [CORE, EXT])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_task_id_works_at_any_replica(
    make_backend: MakeBackend, transport: str, upstream: str, caller: str
) -> None:
    questions: list[str] = []

    async def answer(request: Any) -> Any:
        questions.append(request.message)
        return {"value": "large"}

    async with source_of(transport, upstream) as source:
        async with gateway_replicas(3, source, make_backend, auth=KEYS) as replicas:
            clients = [connect(one, caller, on_elicit=answer) for one in replicas]
            async with clients[0] as first, clients[1] as second, clients[2] as third:
                task = await first.start_tool("up__work", {"text": "kept"})
                assert (await second.task(task.id).result()).text == "kept"
                assert (await first.task(task.id).status()).status == "completed"
                task = await first.start_tool("up__work_long")
                assert (await second.task(task.id).status()).status == "working"
                await third.task(task.id).cancel()
                assert (await second.task(task.id).status()).status == "cancelled"
                task = await first.start_tool("up__ask")
                assert (await second.task(task.id).result()).text == "large"
                assert questions == ["Which size?"]
                assert (await third.task(task.id).result()).text == "large"


@pytest.mark.parametrize("caller", [CORE, EXT])
async def test_a_task_id_works_only_for_its_user(make_backend: MakeBackend, caller: str) -> None:
    async with source_of("stdio", CORE) as source:
        async with gateway_replicas(2, source, make_backend, auth=KEYS) as (first, second):
            async with connect(first, caller) as ann, connect(second, caller, BOB) as bob:
                task = await ann.start_tool("up__work_long")
                with pytest.raises(NotFound, match="There is no task"):
                    await bob.task(task.id).status()


@pytest.mark.parametrize("caller", [CORE, EXT])
async def test_a_task_whose_replica_has_left_has_failed(
    make_backend: MakeBackend, caller: str
) -> None:
    async with source_of("stdio", CORE) as source:
        async with gateway_replicas(2, source, make_backend, auth=KEYS) as (first, _):
            async with connect(first, caller) as ann:
                async with gateway_replica(source, make_backend(), auth=KEYS) as owner:
                    async with connect(owner, caller) as one:
                        task = await one.start_tool("up__work_long")
                    waiting = asyncio.create_task(result_of(ann, task.id))
                    assert (await ann.task(task.id).status()).status == "working"
                assert (await ann.task(task.id).status()).status == "failed"
                async with asyncio.timeout(60):
                    await waiting


async def result_of(client: Client, id: str) -> None:
    with pytest.raises((DovetailError, ProtocolError)):
        await client.task(id).result()


async def test_a_direct_answer_is_found_at_another_replica(make_backend: MakeBackend) -> None:
    """In the core form, a caller gets a task even if the server answered directly."""
    async with source_of("http", EXT) as source:
        async with gateway_replicas(2, source, make_backend, auth=KEYS) as (first, second):
            async with connect(first, CORE) as one, connect(second, CORE) as other:
                params = {"name": "up__plain", "arguments": {}, "task": {}}
                created = msgspec.json.decode(await one.relay("tools/call", params))
                found = await other.task(created["task"]["taskId"]).result()
                assert found.text == "plain"


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_workers_find_the_tasks_of_each_others_processes() -> None:
    async with source_of("stdio", CORE) as source, two_workers(source) as (first, second):
        async with connect(first, CORE) as one, connect(second, CORE) as two:
            task = await one.start_tool("up__work", {"text": "kept"})
            assert (await two.task(task.id).result()).text == "kept"


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_a_caller_may_take_longer_to_answer_than_a_question_on_the_bus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bus, "QUESTION_LIFE", 0.4)
    monkeypatch.setattr(bus_requests, "REPEAT_SECONDS", 0.2)
    questions: list[str] = []

    async def answer_late(request: Any) -> Any:
        questions.append(request.message)
        await asyncio.sleep(1.5)
        return {"value": "large"}

    async with source_of("stdio", CORE) as source, two_workers(source) as (first, second):
        async with connect(first, CORE, on_elicit=answer_late) as one:
            async with connect(second, CORE, on_elicit=answer_late) as two:
                task = await one.start_tool("up__ask")
                async with asyncio.timeout(30):
                    assert (await two.task(task.id).result()).text == "large"
    assert questions == ["Which size?"]


async def test_a_result_may_take_longer_than_a_question_on_the_bus(
    make_backend: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is repeated, and the replica that has the task recognises it. If the caller
    leaves, that replica does not wait any longer either."""
    monkeypatch.setattr(bus_requests, "REPEAT_SECONDS", 0.2)
    async with source_of("stdio", CORE) as source:
        async with gateway_replicas(2, source, make_backend, auth=KEYS) as (first, second):
            requests = first.gateway.tasks.forwarder._requests
            running, joined = requests._running, cast(RedisBus, requests._bus)
            async with connect(first, CORE) as one, connect(second, CORE) as other:
                task = await one.start_tool("up__work_long")
                # Not `result()`, which also polls: each poll is a request of its own.
                result = other.request("tasks/result", {"taskId": task.id})
                waiting = asyncio.create_task(result)
                await until(lambda: running)
                (same,) = running.values()
                await until(lambda: len(joined._unanswered) > 3)  # it was repeated
                assert list(running.values()) == [same]
                waiting.cancel()
                await until(lambda: not running)
                assert (await one.task(task.id).status()).status == "working"
