"""Roots of callers that change."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dovetail import Client, Context, Server
from tests.behaviour.web import on_a_port
from tests.gateway.test_relaying import HANDSHAKE, behind_gateway


def rooted_server() -> Server:
    server = Server("up", revisions=[HANDSHAKE])

    @server.tool
    async def show_roots(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    @server.tool
    async def is_told(ctx: Context) -> bool:
        return bool((ctx.capabilities.roots or {}).get("listChanged"))

    return server


class Rooted:
    """The roots of a caller, and how often they were asked for."""

    def __init__(self, name: str) -> None:
        self.name, self.asked = name, 0

    def __call__(self, request: Any) -> list[str]:
        self.asked += 1
        return [f"file:///{self.name}"]


@pytest.mark.parametrize("over_http", [False, True])
async def test_a_server_is_told_that_the_roots_of_its_only_caller_changed(over_http: bool) -> None:
    async with behind_gateway(rooted_server(), transport="websocket") as gateway:
        async with AsyncExitStack() as stack:
            target: Any = gateway
            if over_http:
                place = await stack.enter_async_context(on_a_port(gateway.asgi("/mcp")))
                target = f"http://{place}/mcp"
            ann, bob = Rooted("ann"), Rooted("bob")
            one, two = [
                await stack.enter_async_context(Client(target, revision=HANDSHAKE, roots=roots))
                for roots in (ann, bob)
            ]
            assert (await one.call_tool("up__is_told")).data is True
            for client, roots in ((one, ann), (two, bob)):
                for _ in range(2):  # the server remembers them
                    said = (await client.call_tool("up__show_roots")).text
                    assert (said, roots.asked) == (f"file:///{roots.name}", 1)
            ann.name = "later"
            await one.set_roots(ann)
            async with asyncio.timeout(30):
                while (await one.call_tool("up__show_roots")).text != "file:///later":
                    await asyncio.sleep(0.05)  # a notification and a call may arrive in any order
            await two.call_tool("up__show_roots")
            assert (ann.asked, bob.asked) == (2, 1)


async def test_a_server_whose_connection_is_shared_asks_for_roots_each_time() -> None:
    async with behind_gateway(rooted_server()) as gateway:
        roots = Rooted("ann")
        async with Client(gateway, revision=HANDSHAKE, roots=roots) as client:
            assert (await client.call_tool("up__is_told")).data is False
            for count in (1, 2):
                await client.call_tool("up__show_roots")
                assert roots.asked == count
            await client.set_roots(roots)
            await client.call_tool("up__show_roots")
            assert roots.asked == 3
