"""A question that was not awaited is no answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Context, Server, ToolError
from dovetail.testing import pair

ASKING: dict[str, Callable[[Context], Any]] = {
    "elicit": lambda ctx: ctx.elicit("Really?", bool),
    "elicit_url": lambda ctx: ctx.elicit_url("Here", "https://example.com"),
    "sample": lambda ctx: ctx.sample("Really?"),
    "list_roots": lambda ctx: ctx.list_roots(),
    "inside_roots": lambda ctx: ctx.inside_roots("/"),
    "resolve_in_roots": lambda ctx: ctx.resolve_in_roots("/"),
    "once": lambda ctx: ctx.once("key", lambda: True),
    "read_resource": lambda ctx: ctx.read_resource("note://x"),
}


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize(
    "look",
    [bool, lambda asked: asked.data, lambda asked: not asked],
    ids=["if", "attribute", "not"],
)
async def test_it_is_neither_yes_nor_no_and_has_nothing_to_tell(
    name: str, look: Callable[[Any], Any]
) -> None:
    server, done = Server("careless"), []

    @server.tool
    def on_a_thread(ctx: Context) -> None:
        look(ASKING[name](ctx))
        done.append("wiped")

    @server.tool
    async def forgetful(ctx: Context) -> None:
        look(ASKING[name](ctx))
        done.append("wiped")

    async with pair(
        server, on_elicit=lambda _: {"value": True}, on_sample=lambda _: "yes", roots=[]
    ) as client:
        for tool in ("on_a_thread", "forgetful"):
            with pytest.raises(ToolError, match=rf"write `await ctx\.{name}"):
                await client.call_tool(tool)
    assert done == []


@pytest.mark.parametrize("revision", ["stateless", "handshake"])
async def test_it_is_a_coroutine_all_the_same(revision: str) -> None:
    server = Server("careful")

    @server.tool
    async def ask(ctx: Context) -> list[bool]:
        first = asyncio.create_task(ctx.elicit("One?", bool))
        second, third = await asyncio.gather(
            ctx.elicit("Two?", bool), asyncio.wait_for(ctx.elicit("Three?", bool), 10)
        )
        return [bool((await first).data), bool(second.data), bool(third.data)]

    async with pair(
        server, revision=revision, on_elicit=lambda request: {"value": request.message != "Two?"}
    ) as client:
        assert (await client.call_tool("ask")).data == [True, False, True]
