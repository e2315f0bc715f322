"""A gateway with 500 tools of 20 servers: what it lists while servers are still starting."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from dovetail import Client, Limits, Server
from dovetail.gateway.gateway import Gateway
from tests.behaviour.web import on_a_port

SERVERS, TOOLS = 20, 25


class Site:
    """Many servers at one address, each at a path of its own. A server answers only while its gate
    is open."""

    def __init__(self) -> None:
        self.gates = {f"s{number}": asyncio.Event() for number in range(SERVERS)}
        self._apps = {f"/{name}": self._build(name).asgi(f"/{name}") for name in self.gates}

    def _build(self, name: str) -> Server:
        server = Server(name)
        for number in range(TOOLS):
            server.add_tool(lambda: name, name=f"tool_{number}")
        return server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.gates[scope["path"].removeprefix("/")].wait()
            await self._apps[scope["path"]](scope, receive, send)

    def open(self, *, but: str = "") -> None:
        """Open the gates of all servers except one."""
        for name, gate in self.gates.items():
            if name != but:
                gate.set()

    def close(self) -> None:
        """Close all gates."""
        for gate in self.gates.values():
            gate.clear()

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[Callable[[], Gateway]]:
        """Serve the servers, and return a function that makes a gateway in front of them."""
        async with AsyncExitStack() as stack:
            for app in self._apps.values():
                await app.start()
                stack.push_async_callback(app.close)
            address = await stack.enter_async_context(on_a_port(self))
            entries = {name: {"url": f"http://{address}/{name}"} for name in self.gates}
            stack.callback(self.open)  # so that no request is left
            yield lambda: Gateway(
                {"mcpServers": entries}, limits=Limits(catalog_wait=1, shutdown=0.1)
            )


async def count_tools(client: Client) -> int:
    return len(await client.list_tools(fresh=True))


async def until_listed(client: Client, wanted: int) -> None:
    """Wait for announcements until a list is complete."""
    changed = asyncio.Event()
    async with client.on_change("tools", lambda _: changed.set()):
        while (found := await count_tools(client)) != wanted:
            assert found < wanted
            await changed.wait()
            changed.clear()


async def test_the_first_list_has_what_there_is_and_the_rest_is_announced() -> None:
    site = Site()
    async with asyncio.timeout(60), site.gateway() as make_gateway:
        site.open(but="s7")
        gateway = make_gateway()
        async with Client(gateway) as client:
            assert not await has_tools_of(client, "s7")  # it has not answered anything
            await until_listed(client, (SERVERS - 1) * TOOLS)
            assert (await client.call_tool("s8__tool_3")).text == "s8"
            announced = asyncio.Event()
            async with client.on_change("tools", lambda _: announced.set()):
                site.open()
                await announced.wait()
            await until_listed(client, SERVERS * TOOLS)
            assert (await client.call_tool("s7__tool_3")).text == "s7"


async def test_with_known_catalogs_all_is_listed_before_a_server_has_answered() -> None:
    site = Site()
    async with asyncio.timeout(60), site.gateway() as make_gateway:
        site.open()
        async with Client(make_gateway()) as client:
            await until_listed(client, SERVERS * TOOLS)
        site.close()
        async with Client(make_gateway()) as client:
            assert await count_tools(client) == SERVERS * TOOLS
            call = asyncio.ensure_future(client.call_tool("s8__tool_3"))
            assert await count_tools(client) == SERVERS * TOOLS
            assert not call.done()
            site.open()
            assert (await call).text == "s8"


async def has_tools_of(client: Client, server: str) -> bool:
    return any(tool.name.startswith(f"{server}__") for tool in await client.list_tools(fresh=True))
