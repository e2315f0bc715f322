"""Two servers on one Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dovetail import Client, Server
from dovetail.errors import ConnectFailed
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer, free_port

pytestmark = needs_redis


@asynccontextmanager
async def replica(make_backend: MakeBackend) -> AsyncIterator[tuple[Server, str]]:
    server = Server("shop")

    @server.resource("stock://apples")
    def apples() -> str:
        return "3"

    port = free_port()
    running = asyncio.create_task(
        server.run_async("http", port=port, bus=make_backend().bus, keys=[KEY])
    )
    try:
        yield server, f"http://127.0.0.1:{port}/mcp"
    finally:
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
    assert shared_redis.keys(f"{make_backend().prefix}*") == []
