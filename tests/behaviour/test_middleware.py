"""Middleware on both sides sees, edits or refuses every call with its inputs and every result."""

from typing import Any

import pytest
from msgspec import Raw

from dovetail import ProtocolError, Server, ToolError
from dovetail.testing import pair
from tests.behaviour import everything
from tests.behaviour.conftest import Talk


async def test_a_servers_middleware_sees_every_call_and_result(in_memory: Talk) -> None:
    seen: list[Any] = []

    async def audit(call: Any, next: Any) -> Any:
        result = await next(call)
        seen.append((call.name, type(result).__name__))
        return result

    async with in_memory(everything.build(middleware=[audit])) as client:
        await client.list_tools()
        result = await client.call_tool("add", {"a": 1})
        await client.read_resource("doc://text")
        await client.get_prompt("greet", {"name": "Ada"})
        assert result.text == "2"
    called = [entry for entry in seen if entry[0] != "server/discover"]
    assert called == [
        ("tools/list", "ListToolsResult"),
        ("tools/call", "ToolResult"),
        ("resources/read", "ReadResourceResult"),
        ("prompts/get", "GetPromptResult"),
    ]


async def test_middleware_changes_inputs_and_results() -> None:
    async def double(call: Any, next: Any) -> Any:
        if call.name == "tools/call":
            call.params.arguments = Raw(b'{"a": 20, "b": 1}')
            result = await next(call)
            assert result.structured_content == {"result": 21}, "middleware sees values, not bytes"
            result.structured_content = {"result": 42}
            return result
        return await next(call)

    async with pair(everything.build(middleware=[double])) as client:
        assert (await client.call_tool("add", {"a": 1})).data == 42


async def test_middleware_refuses_a_call() -> None:
    async def closed(call: Any, next: Any) -> Any:
        if call.name == "tools/call":
            raise ProtocolError(403, "not today")
        return await next(call)

    async with pair(everything.build(middleware=[closed])) as client:
        with pytest.raises(ProtocolError, match="not today"):
            await client.call_tool("add", {"a": 1})
        assert await client.list_prompts()


async def test_the_first_middleware_is_the_outermost() -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def layer(call: Any, next: Any) -> Any:
            order.append(f"{name} in")
            result = await next(call)
            order.append(f"{name} out")
            return result

        return layer

    server = Server("s", middleware=[named("a"), named("b")], capabilities={"tools": True})
    async with pair(server, revision="handshake") as client:
        await client.list_tools()
    assert order == ["a in", "b in", "b out", "a out"]


async def test_a_clients_middleware_sees_edits_and_refuses_its_own_calls(in_memory: Talk) -> None:
    seen: list[str] = []

    async def guard(call: Any, next: Any) -> Any:
        seen.append(call.name)
        if call.name == "tools/call" and call.params.name == "fail":
            raise ToolError("refused here")
        if call.name == "tools/call":
            call.params.arguments = Raw(b'{"a": 5, "b": 5}')
        return await next(call)

    async with in_memory(middleware=[guard]) as client:
        assert (await client.call_tool("add", {"a": 1})).text == "10"
        with pytest.raises(ToolError, match="refused here"):
            await client.call_tool("fail", {"kind": "tool"})
    assert seen == ["tools/call", "tools/call"]
