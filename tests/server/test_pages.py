"""A page of a list that middleware sees, and may change."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail import Client, Server
from dovetail.protocol.tools import Tool


def make_server(change: Callable[[Any], Any]) -> Server:
    async def middleware(call: Any, next: Any) -> Any:
        result = await next(call)
        return change(result) if call.name == "tools/list" else result

    server = Server("pages", middleware=[middleware])

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def secret() -> str:
        """Tell a secret."""
        return "x"

    return server


def describe_all(result: Any) -> Any:
    for tool in result.tools:
        tool.description = "changed"
    return result


def remove_last(result: Any) -> Any:
    del result.tools[-1]
    return result


def replace_items(result: Any) -> Any:
    result.tools = [Tool(name="other", input_schema={"type": "object"})]
    return result


def change_as_dict(result: Any) -> Any:
    msgspec.structs.asdict(result)["tools"][0].description = "changed"
    return result


def change_copy(result: Any) -> Any:
    return msgspec.structs.replace(result, tools=result.tools[:1])


CHANGES: list[tuple[Callable[[Any], Any], list[tuple[str, str | None]]]] = [
    (lambda result: result, [("add", "Add two numbers."), ("secret", "Tell a secret.")]),
    (describe_all, [("add", "changed"), ("secret", "changed")]),
    (remove_last, [("add", "Add two numbers.")]),
    (replace_items, [("other", None)]),
    (change_as_dict, [("add", "changed"), ("secret", "Tell a secret.")]),
    (change_copy, [("add", "Add two numbers.")]),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
async def test_a_client_sees_what_middleware_made_of_a_list(
    change: Callable[[Any], Any], expected: list[tuple[str, str | None]]
) -> None:
    async with Client(make_server(change)) as client:
        for _ in range(3):
            tools = await client.list_tools(fresh=True)
            assert [(tool.name, tool.description) for tool in tools] == expected


async def test_a_change_after_an_unchanged_page_is_sent_and_stays() -> None:
    changes = iter([lambda result: result, describe_all, lambda result: result])
    async with Client(make_server(lambda result: next(changes)(result)), cache=False) as client:
        seen = [[tool.description for tool in await client.list_tools()] for _ in range(3)]
    assert seen == [["Add two numbers.", "Tell a secret."], ["changed"] * 2, ["changed"] * 2]


async def test_other_fields_of_a_page_can_be_changed() -> None:
    def add_meta(result: Any) -> Any:
        result.meta = {"com.example/x": 1}
        return result

    seen: list[Any] = []

    async def look(call: Any, next: Any) -> Any:
        seen.append(await next(call))
        return seen[-1]

    async with Client(make_server(add_meta), middleware=[look]) as client:
        await client.list_tools()
    assert seen[-1].meta["com.example/x"] == 1
