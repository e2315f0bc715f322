"""Two servers on one Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dovetail import Client, Server
from dovetail.errors import ConfigError, ConnectFailed
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis


@asynccontextmanager
async def replica(make_backend: MakeBackend) -> AsyncIterator[tuple[Server, str]]:
    server = Server("shop", backend=make_backend())

    @server.resource("stock://apples")
    def apples() -> str:
        return "3"

    port = free_port()
    running = asyncio.create_task(server.run_async("http", port=port, keys=[KEY]))
    try:
        yield server, f"http://127.0.0.1:{port}/mcp"
    finally:
        assert not running.done(), f"the server ended: {running}"
        running.cancel()
        await asyncio.wait([running])


async def connect(client: Client) -> None:
    while True:
        try:
            await client.connect()
            return
        except ConnectFailed:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("revision", ["handshake", "stateless"])
async def test_an_update_at_one_server_reaches_the_clients_of_another(
    make_backend: MakeBackend, shared_redis: RedisServer, revision: str
) -> None:
    updated = asyncio.Event()
    async with replica(make_backend) as (_, url), replica(make_backend) as (other, _):
        client = Client(url, revision=revision)
        await connect(client)
        await client.subscribe("stock://apples", lambda uri: updated.set())
        while not updated.is_set():
            other.notify_resource_updated("stock://apples")
            await asyncio.sleep(0.05)
        await client.close()
    # Only the end of the session is remembered, until its id expires.
    left = shared_redis.keys(f"{make_backend().prefix}*")
    assert len(left) == (revision == "handshake") and all(b"}:ended:" in key for key in left)


def test_a_server_without_a_backend_says_so() -> None:
    assert Server("shop").backend.state == "none"


async def test_a_server_reports_the_state_of_its_backend(
    shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_BACKEND", shared_redis.url)
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    server = Server("shop", limits=PATIENT)
    assert server.backend.state == "away"  # not started yet
    async with Client(server):
        assert server.health() == {"status": "ok", "backend": "connected"}


async def test_the_argument_overrides_the_environment(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_BACKEND", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    server = Server("shop", backend=own_redis.url, backend_required=True, limits=PATIENT)
    async with Client(server):
        assert server.backend.state == "connected"


async def test_a_server_serves_alone_while_its_backend_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    server = Server("shop", backend="redis://127.0.0.1:1/0")
    async with Client(server):
        assert server.health()["backend"] == "away"
    assert len([one for one in caplog.records if one.name == "dovetail.backend"]) == 1


async def test_a_server_that_requires_its_backend_does_not_start_without_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    server = Server("shop", backend="redis://127.0.0.1:1/0", backend_required=True)
    problem = r"cannot be reached: .*Check that Redis is running.*\. Not started, because"
    with pytest.raises(ConfigError, match=problem):
        async with server.lifespan():
            pass
    assert caplog.records == [], "it does not work without Redis, so it must not say so"


def test_without_keys_the_server_is_refused_before_it_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DOVETAIL_KEYS", raising=False)
    server = Server("shop", backend="redis://127.0.0.1:1/0")
    with pytest.raises(ConfigError, match="DOVETAIL_KEYS"):
        server.asgi()
