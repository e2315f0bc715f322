"""What operators see: options of the command, health and metrics."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from dovetail import Client, Gateway, Limits, Server
from dovetail.backend import Backend
from dovetail.errors import BackendAway
from tests.cli.conftest import dovetail, environment
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
SHOP = """
from dovetail import Limits, Server

server = Server("shop", limits=Limits(backend_timeout=20))

@server.tool
def stock(item: str) -> int:
    return 7
"""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    monkeypatch.delenv("DOVETAIL_BACKEND", raising=False)


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return str(path)


@asynccontextmanager
async def running(*words: str) -> AsyncIterator[str]:
    """A command that serves; its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", *words, "--http", "--port", "0", "--json"),
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        found = re.search(rb'"url": "([^"]*)"', await process.stdout.readuntil(b"}"))
        assert found
        yield found[1].decode()
    finally:
        process.terminate()
        await process.wait()


async def fetch(url: str, path: str) -> str:
    import aiohttp

    async with aiohttp.ClientSession() as http, http.get(url.replace("/mcp", path)) as response:
        assert response.status == 200
        return await response.text()


def values(page: str, name: str) -> dict[str, float]:
    """The values of a series by the name of the worker."""
    found = re.findall(rf'^{name}{{.*worker="([^"]*)".*}} (\S+)$', page, re.MULTILINE)
    return {worker: float(value) for worker, value in found}


async def test_run_uses_the_backend_of_its_option(shared_redis: RedisServer, shop: str) -> None:
    async with running("run", shop, "--backend", shared_redis.url) as url:
        assert '"backend":"connected"' in await fetch(url, "/health")
        async with Client(url) as client:
            assert (await client.call_tool("stock", {"item": "tea"})).data == 7


async def test_the_gateway_uses_the_backend_of_its_option(
    shared_redis: RedisServer, shop: str
) -> None:
    async with running("gateway", shop, "--backend", shared_redis.url) as url:
        assert '"backend":"connected"' in await fetch(url, "/health")
        async with Client(url) as client:
            assert (await client.call_tool("stock", {"item": "tea"})).data == 7


async def test_processes_that_share_a_backend_show_the_metrics_of_all(
    shared_redis: RedisServer, shop: str
) -> None:
    words = ("run", shop, "--backend", shared_redis.url, "--metrics", "/metrics")
    async with running(*words) as first, running(*words) as second:
        page = ""
        async with asyncio.timeout(30):
            while len(values(page, "process_start_time_seconds")) < 2:  # the second one joins
                page = await fetch(first, "/metrics")
        workers = values(page, "process_start_time_seconds")
        assert all(re.fullmatch(rf"{re.escape(gethostname())}:\d+", one) for one in workers)
        for name in ("mcp_backend_connected", "mcp_backend_commands_total"):
            assert len(values(page, name)) == 2
            assert min(values(page, name).values()) >= 1
        assert set(values(page, "mcp_backend_errors_total").values()) == {0}
        assert min(values(page, "mcp_backend_seconds_count").values()) >= 1
        assert "# TYPE mcp_backend_seconds histogram" in page
        assert 'mcp_backend_seconds_bucket{worker="' in page
        assert second != first


async def test_errors_are_counted_as_long_as_redis_is_away(own_redis: RedisServer) -> None:
    """Also if nobody needs it at the moment it is killed, and all later commands are refused."""
    server = Server("shop", backend=own_redis.url)
    async with server.lifespan():
        assert server.backend
        client = server.backend.client

        def errors() -> Any:
            return server.series()["mcp.backend.errors"][()]

        assert errors() == 0
        own_redis.stop()
        assert not await client.connect(0)
        assert (before := errors()) > 0
        for _ in range(3):
            with pytest.raises(BackendAway):
                await client.run("PING")
        assert errors() >= before + 3, "refused without being sent"
        before = errors()
        async with asyncio.timeout(30):
            while errors() == before:  # the attempts to reach it
                await asyncio.sleep(0.05)


async def test_a_subscription_that_is_lost_is_an_error(own_redis: RedisServer) -> None:
    client = Backend(own_redis.url, keys=[KEY]).client
    with pytest.raises(BackendAway):
        async with client.subscribe("channel") as subscription:
            own_redis.stop()
            await subscription.receive()
    assert client.stats.errors == 1
    await client.close()


async def test_a_redis_that_is_away_is_seen_in_health_and_metrics(own_redis: RedisServer) -> None:
    server = Server("shop", backend=own_redis.url)
    gateway = Gateway({"mcpServers": {}}, backend=own_redis.url)
    for service in (server, gateway):
        async with service.lifespan():
            assert service.series()["mcp.backend.connected"] == {(): 1}
            own_redis.stop()
            while service.health()["backend"] == "connected":
                await asyncio.sleep(0.05)
                with pytest.raises(Exception, match="shared state"):
                    assert service.backend
                    await service.backend.client.run("PING")
            assert service.series()["mcp.backend.connected"] == {(): 0}
            assert service.series()["mcp.backend.errors"][()]
            own_redis.start()


async def test_tasks_are_counted(make_backend: MakeBackend) -> None:
    limits, go = Limits(backend_timeout=20, task_lease=0.4), asyncio.Event()
    server, other = (Server("shop", backend=make_backend(), limits=limits) for _ in range(2))

    async def wait() -> str:
        await go.wait()
        return "done"

    async def until(service: Server, name: str, value: float) -> None:
        while service.series()[f"mcp.tasks.{name}"] != {(): value}:
            await asyncio.sleep(0.01)

    for one in (server, other):
        one.tool(wait, task="optional")
    server.task_slots = 0
    async with Client(server) as client:
        handle = await client.start_tool("wait")
        await until(server, "waiting", 1)
        async with Client(other):
            await until(other, "running", 1)
            await until(server, "waiting", 0)
            assert server.series()["mcp.tasks.running"] == {(): 0}
            go.set()
            assert (await handle.result()).text == "done"
            await until(other, "running", 0)
            assert other.series()["mcp.tasks.taken_over"] == {(): 0}


def test_without_a_backend_there_are_no_metrics_of_it() -> None:
    assert Server("shop").series() == {}
    assert "backend" not in Server("shop").health()


async def test_mounted_servers_use_the_backend_of_their_server(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_BACKEND", "redis://127.0.0.1:1/0")
    server = Server("shop", backend=own_redis.url, limits=PATIENT)
    server.mount(Server("part", backend=own_redis.url, limits=PATIENT), prefix="part")
    async with Client(server):
        assert server.health()["backend"] == "connected"
        assert server.series()["mcp.backend.connected"] == {(): 1}


def test_the_option_keeps_what_the_server_requires() -> None:
    server = Server("shop", backend_required=True)
    server.use_backend("redis://127.0.0.1:1/0")
    assert server._backend_required
    server.use_backend("redis://127.0.0.1:1/0", required=False)
    assert not server._backend_required


async def test_keys_are_rotated_in_three_steps(make_backend: MakeBackend) -> None:
    old, new = "the old key of all processes", "the new key of all processes"
    before = make_backend(keys=[old])
    for keys in ([old, new], [new, old], [new]):
        after = make_backend(keys=keys)
        for writer, reader in ((before, after), (after, before)):
            await writer.rows("rotated").put("row", b"2", 60)
            assert await reader.rows("rotated").get("row") == b"2", keys
        await before.close()
        before = after
    await before.close()


@pytest.mark.parametrize("verb", ["run", "gateway"])
@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("redis+cluster://:secret@host", "Redis Cluster is not supported"),
        ("redis://:secret@host:port", "names no valid host and port"),
        ("secret", "must start with one of"),
    ],
)
def test_a_url_that_is_not_valid_fails_in_one_line(
    shop: str, verb: str, url: str, part: str
) -> None:
    done = dovetail(verb, shop, "--http", "--port", "0", "--backend", url)
    assert done.code == 2
    assert part in done.failure
    assert "secret" not in done.err


@pytest.mark.parametrize("words", [["run"], ["gateway"]])
def test_without_keys_a_server_does_not_start(
    shop: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOVETAIL_KEYS")
    url = f"redis://:secret@127.0.0.1:{free_port()}"
    done = dovetail(*words, shop, "--http", "--port", "0", "--backend", url)
    assert done.code == 2
    assert "Set DOVETAIL_KEYS to the same value everywhere" in done.failure


def test_the_log_does_not_contain_the_password(shop: str, tmp_path: Path) -> None:
    path = tmp_path / "required.py"
    path.write_text(SHOP.replace('"shop", ', '"shop", backend_required=True, '))
    url = f"redis://user:secret@127.0.0.1:{free_port()}"
    words = ("run", str(path), "--http", "--port", "0", "--backend", url, "--verbose")
    done: Any = dovetail(*words)
    assert done.code != 0
    assert "cannot be reached" in done.err
    assert "secret" not in done.err + done.out
