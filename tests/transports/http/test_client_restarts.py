"""A server at a URL that is restarted: requests that were not sent wait for it until their own
deadline."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail import Client, Limits, Server
from dovetail.client import reconnect
from dovetail.errors import ConnectFailed, ConnectionClosed, DovetailError
from tests.ports import free_port
from tests.transports.http.scripted import Asked, Scripted, modern

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
FEW = Limits(restarts=1)
"""With one restart, the connector would give up at once."""


@pytest.fixture(autouse=True)
def _no_memory_of_eras() -> Iterator[None]:
    reconnect._handshake_servers.clear()
    yield
    reconnect._handshake_servers.clear()


async def answer(asked: Asked) -> None:
    if not await modern(asked):
        await asked.result(DONE)


@asynccontextmanager
async def serving(port: int, path: str) -> AsyncIterator[None]:
    """A real server, from its first answer to the end of its connections."""
    server = Server("restarted")

    @server.tool
    def double(number: int) -> int:
        return 2 * number

    options: dict[str, Any] = {"port": port, path: True} if path == "websocket" else {"port": port}
    task = asyncio.create_task(server.run_async("http", **options))
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.02)
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until_disconnected(client: Client) -> None:
    while client.state != "disconnected":
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_calls_during_a_restart_are_answered_when_the_server_is_back(era: str) -> None:
    port = free_port()
    client = Client(f"http://127.0.0.1:{port}/mcp", revision=era, limits=FEW, timeout=25)
    async with serving(port, "http"):
        assert (await client.call_tool("double", {"number": 1})).data == 2
    async with client:
        calls = [asyncio.create_task(client.call_tool("double", {"number": n})) for n in range(20)]
        await asyncio.sleep(2.5)  # longer than the connector tried before
        assert not any(call.done() for call in calls)
        async with serving(port, "http"):
            assert [call.data for call in await asyncio.gather(*calls)] == [
                2 * n for n in range(20)
            ]


async def test_a_call_after_the_connector_gave_up_waits_for_the_server_too() -> None:
    async with Scripted(answer) as server:
        client = Client(server.url, limits=FEW, timeout=25)
        await client.connect()
    with pytest.raises((ConnectFailed, ConnectionClosed), match="connection refused"):
        await client.call_tool("x", timeout=0.3)
    await until_disconnected(client)
    calling = asyncio.create_task(client.call_tool("x"))
    await asyncio.sleep(0.5)
    async with Scripted(answer, port=server.port) as server:
        assert (await calling).text == "done"
        assert len(server.heard("tools/call")) == 1
        await client.close()


async def test_a_proxy_that_has_no_server_behind_it_is_waited_for() -> None:
    is_up = True

    async def script(asked: Asked) -> None:
        await (answer(asked) if is_up else asked.answer(502))

    async with Scripted(script) as server:
        client = Client(server.url, limits=FEW, timeout=25)
        await client.connect()
    is_up = False
    calling = asyncio.create_task(client.call_tool("x"))
    async with Scripted(script, port=server.port) as server:
        await server.until("server/discover", 3)
        is_up = True
        assert (await calling).text == "done"
        await client.close()


async def test_a_server_that_stays_away_is_an_error_at_the_deadline_that_says_why() -> None:
    async with Scripted(answer) as server:
        client = Client(server.url, limits=FEW)
        await client.connect()
    began = time.monotonic()
    with pytest.raises(ConnectFailed, match=r"connection refused.* \(retried for 1\S* s\)$"):
        await client.call_tool("x", timeout=1.5)
    assert time.monotonic() - began > 1.2
    await until_disconnected(client)  # nobody waits any more
    await client.close()


async def test_a_first_connection_that_is_refused_fails_at_once() -> None:
    client = Client(f"http://127.0.0.1:{free_port()}/mcp")
    for _ in range(2):
        with pytest.raises(ConnectFailed, match="connection refused"):
            await asyncio.wait_for(client.call_tool("x"), 5)
    await client.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 501])
async def test_a_refusal_during_a_restart_is_not_waited_out(status: int) -> None:
    is_up = True

    async def script(asked: Asked) -> None:
        await (answer(asked) if is_up else asked.answer(status))

    async with Scripted(script) as server:
        client = Client(server.url, limits=FEW, timeout=25)
        await client.connect()
    is_up = False
    calling = asyncio.create_task(client.call_tool("x"))
    await asyncio.sleep(0.1)
    async with Scripted(script, port=server.port) as server:
        with pytest.raises(DovetailError, match=str(status)):
            await asyncio.wait_for(calling, 10)
        await client.close()


@pytest.mark.parametrize("scheme", ["https", "wss"])
async def test_a_failure_of_tls_or_of_a_name_is_not_waited_out(scheme: str) -> None:
    """Neither does it end the session: the next request may find the name again."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for host in ("127.0.0.1", "name.invalid"):
            client = Client(f"{scheme}://{host}:{port}/mcp", timeout=25)
            client._connector._was_connected = True
            with pytest.raises(ConnectFailed) as caught:
                await asyncio.wait_for(client.connect(), 10)
            assert not caught.value.transient
            await client.close()


async def test_over_websocket_it_is_the_same() -> None:
    port = free_port()
    client = Client(f"ws://127.0.0.1:{port}/ws", limits=FEW, timeout=25)
    async with serving(port, "websocket"):
        assert (await client.call_tool("double", {"number": 1})).data == 2
    await until_disconnected(client)
    calling = asyncio.create_task(client.call_tool("double", {"number": 4}))
    await asyncio.sleep(0.5)
    assert not calling.done()
    async with serving(port, "websocket"):
        assert (await calling).data == 8
        await client.close()
