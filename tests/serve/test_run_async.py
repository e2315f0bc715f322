"""`run_async`: the server in a loop that is there, over HTTP until it is cancelled, on stdio until
the client leaves."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from dovetail import Client, Context, Server
from dovetail.auth import ApiKeys
from dovetail.errors import ConfigError, ConnectFailed

PROGRAM = """
import asyncio
from dovetail import Server

server = Server("inside")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

async def main():
    await server.run_async()
    print("went on", file=__import__("sys").stderr)

asyncio.run(main())
"""


def build(ended: list[str]) -> Server:
    @asynccontextmanager
    async def living(server: Any) -> AsyncIterator[str]:
        yield "a state"
        ended.append("lifespan")

    server = Server("inside", lifespan=living)

    @server.tool
    async def state(ctx: Context) -> str:
        return str(ctx.state)

    @server.tool
    async def wait(ctx: Context) -> None:
        await ctx.info("begun")
        await asyncio.Event().wait()

    return server


@pytest.mark.parametrize(
    ("host", "options", "warns"),
    [
        ("0.0.0.0", {}, True),
        ("", {}, True),
        ("0.0.0.0", {"auth": ApiKeys({"k" * 32: "ada"})}, False),
        ("127.0.0.1", {}, False),
        ("localhost", {}, False),
    ],
)
@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_server_that_is_open_to_everyone_says_so(
    caplog: pytest.LogCaptureFixture,
    transport: Any,
    host: str,
    options: dict[str, Any],
    warns: bool,
) -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = Server("open", **options)
    serving = asyncio.create_task(
        server.run_async(transport, host=host, port=0, ready=ready.set_result)
    )
    port = urlsplit(await ready).port
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == warns
    for warning in warnings:
        assert f"port {port} on this machine" in warning, "what is open"
        assert "Server(auth=…)" in warning and 'host="127.0.0.1"' in warning, "how to close it"


@pytest.mark.parametrize("transport", ["http", "sse", "websocket"])
async def test_it_serves_until_it_is_cancelled_and_ends_in_good_order(transport: str) -> None:
    ended: list[str] = []
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        build(ended).run_async(transport, port=0, ready=ready.set_result)
    )
    begun = asyncio.Event()
    async with Client(await ready, on_log=lambda _: begun.set()) as client:
        assert (await client.call_tool("state")).data == "a state"
        waiting = asyncio.ensure_future(client.call_tool("wait"))
        await begun.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(serving, 10)
        assert ended == ["lifespan"]
        waiting.cancel()
    with pytest.raises(ConnectFailed):
        async with Client(ready.result(), timeout=5):
            pass


async def test_on_stdio_it_ends_with_its_client_and_the_program_goes_on() -> None:
    said: list[str] = []
    async with Client([sys.executable, "-c", PROGRAM], on_stderr=said.append) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    assert said == ["went on"]


async def test_what_cannot_be_is_said_at_once() -> None:
    server = Server("inside")
    for transport, options, said in (
        ("http", {"workers": 2}, "works only with `run`"),
        ("stdio", {"port": 1}, "The stdio transport supports only the option quiet; remove port"),
        ("pigeon", {}, "Unknown transport 'pigeon'"),
    ):
        with pytest.raises(ConfigError, match=said):
            await server.run_async(transport, **options)  # type: ignore[arg-type]
