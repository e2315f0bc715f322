"""Pages of lists: cursors that hold, and lists that are encoded once."""

from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Limits, Server
from dovetail.errors import InvalidParams, InvalidRequest
from dovetail.protocol.prompts import ListPromptsResult, Prompt
from dovetail.protocol.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    Resource,
    ResourceTemplate,
)
from dovetail.protocol.tools import ListToolsResult, Tool
from dovetail.testing import Tape, bare, pair
from tests.behaviour.conftest import Talk

GREETING = "2025-06-18"


def build(names: list[str], page_size: int | None = 2, **options: object) -> Server:
    server = Server("lists", page_size=page_size, **options)  # type: ignore[arg-type]
    for name in names:
        server.add_tool(lambda: 1, name=name)
        server.add_resource(lambda: "x", f"doc://{name}")
        server.add_resource(lambda x: "x", f"doc://{name}/{{x}}")
        server.add_prompt(lambda: "x", name=name)
    return server


@pytest.mark.requirement("pagination")
async def test_a_client_follows_all_pages_of_every_list(in_memory: Talk) -> None:
    names = ["e", "c", "a", "d", "b"]
    async with in_memory(build(names)) as client:
        assert [tool.name for tool in await client.list_tools()] == sorted(names)
        assert len(await client.list_resources()) == 5
        assert len(await client.list_resource_templates()) == 5
        assert len(await client.list_prompts()) == 5
    assert in_memory.tape.methods("client").count("tools/list") == 3


async def test_a_list_in_one_page_is_in_the_order_of_registration(in_memory: Talk) -> None:
    async with in_memory(build(["e", "c", "a"], page_size=None)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["e", "c", "a"]


@pytest.mark.requirement("pagination-stable")
async def test_a_cursor_holds_while_items_come_and_go() -> None:
    server = build(["a", "b", "c", "d", "e"])
    async with bare(server) as peer:
        await peer.greet(GREETING)
        cursor = (await peer.ask("tools/list"))["result"]["nextCursor"]
        server.remove_tool("b")
        server.remove_tool("a")
        server.add_tool(lambda: 1, name="aa")
        page = (await peer.ask("tools/list", {"cursor": cursor}, id=2))["result"]
        assert [tool["name"] for tool in page["tools"]] == ["c", "d"]


@pytest.mark.requirement("pagination-stable")
async def test_a_cursor_of_one_process_is_good_in_another() -> None:
    async with bare(build(["a", "b", "c"])) as peer:
        await peer.greet(GREETING)
        cursor = (await peer.ask("tools/list"))["result"]["nextCursor"]
    async with bare(build(["a", "b", "c"])) as other:
        await other.greet(GREETING)
        page = (await other.ask("tools/list", {"cursor": cursor}))["result"]
        assert [tool["name"] for tool in page["tools"]] == ["c"]
        assert "nextCursor" not in page


@pytest.mark.requirement("pagination-invalid-cursor")
@pytest.mark.parametrize("page_size", [2, None])
@pytest.mark.parametrize("cursor", ["", "x", "%%%", "cHJvbXB0cy9saXN0CmE", "é" * 50])
async def test_a_bad_cursor_is_refused(cursor: str, page_size: int | None) -> None:
    async with pair(build(["a", "b", "c"], page_size)) as client:
        from dovetail.protocol.base import ListParams

        with pytest.raises(InvalidParams, match="not a valid cursor"):
            await client.request("tools/list", ListParams(cursor=cursor))


async def test_a_list_is_encoded_once_and_then_sent_as_the_same_bytes() -> None:
    server = build([f"tool-{n:04}" for n in range(1000)], page_size=None)
    async with bare(server) as peer:
        await peer.greet(GREETING)
        first = await peer.ask("tools/list")
        assert len(first["result"]["tools"]) == 1000
        (ready,) = server._tools.snapshot.cache.values()
        assert await peer.ask("tools/list") == first
        assert list(server._tools.snapshot.cache.values()) == [ready]
        assert next(iter(server._tools.snapshot.cache.values())) is ready
        server.remove_tool("tool-0000")
        assert len((await peer.ask("tools/list", id=2))["result"]["tools"]) == 999


@pytest.mark.parametrize(
    ("cursors", "said"), [(["x", "x", "x"], "more than 3 pages"), (None, "more than 3 pages")]
)
async def test_a_list_that_never_ends_is_the_servers_mistake(
    cursors: list[str] | None, said: str
) -> None:
    async def endless(call, next):  # type: ignore[no-untyped-def]
        if call.name != "tools/list":
            return await next(call)
        asked.append(call.params.cursor)
        cursor = cursors[len(asked) - 1] if cursors else f"c{len(asked)}"
        return ListToolsResult(tools=[Tool("t", {"type": "object"})], next_cursor=cursor)

    asked: list[str | None] = []
    server = Server("endless", middleware=[endless], capabilities={"tools": True})
    async with pair(server, limits=Limits(pages=3)) as client:
        with pytest.raises(InvalidRequest, match=said):
            await client.list_tools()


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("limit", ["list_items", "list_bytes"])
@pytest.mark.parametrize(
    ("method", "kind", "result"),
    [
        (
            "list_tools",
            "tools",
            lambda: ListToolsResult(tools=[Tool("t" * 90, {"type": "object"})] * 10),
        ),
        ("list_prompts", "prompts", lambda: ListPromptsResult(prompts=[Prompt("p" * 90)] * 10)),
        (
            "list_resources",
            "resources",
            lambda: ListResourcesResult(resources=[Resource(uri="x:y", name="r" * 90)] * 10),
        ),
        (
            "list_resource_templates",
            "resources/templates",
            lambda: ListResourceTemplatesResult(
                resource_templates=[ResourceTemplate(uri_template="x:{y}", name="r" * 90)] * 10
            ),
        ),
    ],
)
async def test_a_list_is_bounded_over_all_of_its_pages(
    method: str, kind: str, result: Callable[[], Any], limit: str, revision: str
) -> None:
    pages = 0

    async def endless(call, next):  # type: ignore[no-untyped-def]
        nonlocal pages
        if call.name != f"{kind}/list":
            return await next(call)
        pages += 1
        page = result()
        page.next_cursor = None if pages == last else f"c{pages}"
        return page

    limits = Limits(**{limit: 35 if limit == "list_items" else 3500})
    declared: Any = {kind.partition("/")[0]: True}
    server = Server("endless", middleware=[endless], capabilities=declared)
    async with pair(server, revision=revision, limits=limits) as client:
        last = 0
        with pytest.raises(InvalidRequest, match=rf"{kind}/list: .* \(Limits\.{limit}\)"):
            await getattr(client, method)()
        assert pages <= 4
        last, pages = 2, 0
        assert len(await getattr(client, method)(fresh=True)) == 20


@pytest.mark.requirement("pagination-opaque")
async def test_an_empty_string_is_a_cursor_like_any_other() -> None:
    async def empty(call, next):  # type: ignore[no-untyped-def]
        if call.name != "tools/list":
            return await next(call)
        first = call.params.cursor is None
        return ListToolsResult(
            tools=[Tool("first" if first else "second", {"type": "object"})],
            next_cursor="" if first else None,
        )

    tape = Tape()
    server = Server("empty", middleware=[empty], capabilities={"tools": True})
    async with pair(server, record=tape) as client:
        assert [tool.name for tool in await client.list_tools()] == ["first", "second"]
    assert tape.messages("client")[-1]["params"]["cursor"] == ""
