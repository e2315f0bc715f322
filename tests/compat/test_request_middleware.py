"""The middleware of release 2 of the official SDK, `(ctx, call_next)`, on both of its servers."""

from dataclasses import replace
from typing import Any

import pytest

from dovetail.compat import (
    CallToolResult,
    ListToolsResult,
    LowLevelServer,
    MCPError,
    MCPServer,
    TextContent,
    Tool,
)
from dovetail.errors import Forbidden, ProtocolError, ToolError
from dovetail.ports import Principal
from dovetail.testing import pair


def high_level(*middleware: Any) -> Any:
    server = MCPServer("shop", middleware=middleware)

    @server.tool()
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.tool(scopes=["admin"])
    def erase(name: str) -> str:
        return name

    return server


def low_level(*middleware: Any) -> Any:
    async def list_tools(ctx: Any, params: Any) -> Any:
        return ListToolsResult(tools=[Tool(name="greet", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: Any) -> Any:
        text = f"Hello {params.arguments['name']}"
        return CallToolResult(content=[TextContent(text=text)])

    server: Any = LowLevelServer("shop", on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware.extend(middleware)
    return server


both_servers = pytest.mark.parametrize("make", [high_level, low_level])
both_eras = pytest.mark.parametrize("revision", ["handshake", "stateless"])


@both_servers
@both_eras
async def test_middleware_sees_each_request_and_its_result_as_dicts(
    make: Any, revision: Any
) -> None:
    seen: list[Any] = []

    async def record(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        seen.append((ctx.method, ctx.params, result))
        return result

    async with pair(make(record), revision=revision) as client:
        assert (await client.call_tool("greet", {"name": "Ada"})).text == "Hello Ada"
    method, params, result = seen[-1]
    assert (method, params["name"], params["arguments"]) == ("tools/call", "greet", {"name": "Ada"})
    assert result["content"] == [{"type": "text", "text": "Hello Ada"}]
    assert seen[0][0] == ("initialize" if revision == "handshake" else "server/discover")


@both_servers
async def test_middleware_may_change_params_and_results(make: Any) -> None:
    async def change(ctx: Any, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        params = {**ctx.params, "arguments": {"name": "Grace"}}
        result = await call_next(replace(ctx, params=params))
        result["content"].append({"type": "text", "text": "Goodbye"})
        return result

    async with pair(make(change)) as client:
        assert (await client.call_tool("greet", {"name": "Ada"})).text == "Hello Grace\nGoodbye"


@both_servers
async def test_params_that_are_changed_in_place_are_used(make: Any) -> None:
    async def change(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            ctx.params["arguments"]["name"] = "Grace"
        return await call_next(ctx)

    async with pair(make(change)) as client:
        assert (await client.call_tool("greet", {"name": "Ada"})).text == "Hello Grace"


@both_servers
async def test_middleware_may_answer_itself(make: Any) -> None:
    async def answer(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/list":
            return {"tools": [{"name": "other", "inputSchema": {"type": "object"}, "x-new": 1}]}
        if ctx.method == "tools/call":
            return CallToolResult(content=[TextContent(text="closed")])
        return await call_next(ctx)

    async with pair(make(answer)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["other"]
        assert (await client.call_tool("other", {})).text == "closed"


@both_servers
@both_eras
async def test_an_error_in_middleware_reaches_the_client(make: Any, revision: Any) -> None:
    async def refuse(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            raise MCPError(code=1, message="Server busy")
        return await call_next(ctx)

    async with pair(make(refuse), revision=revision) as client:
        with pytest.raises(ProtocolError, match="Server busy") as caught:
            await client.call_tool("greet", {"name": "Ada"})
    assert caught.value.code == 1


async def test_the_first_middleware_is_the_outermost() -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def record(ctx: Any, call_next: Any) -> Any:
            order.append(name)
            return await call_next(ctx)

        return record

    server = high_level(named("first"))
    server.middleware.append(named("second"))
    async with pair(server) as client:
        await client.call_tool("greet", {"name": "Ada"})
        assert order[-2:] == ["first", "second"]
    order.clear()
    await server.call_tool("greet", {"name": "Ada"})
    assert order == []  # the program's own calls are not wrapped


async def test_middleware_may_refuse_a_session() -> None:
    async def refuse(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "initialize" and ctx.params["clientInfo"]["name"] != "known":
            raise MCPError(code=-31000, message="not you")
        return await call_next(ctx)

    with pytest.raises(ProtocolError, match="not you"):
        async with pair(high_level(refuse), revision="handshake"):
            pass


async def test_changed_params_need_the_scopes_of_what_they_name() -> None:
    async def redirect(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            ctx = replace(ctx, params={**ctx.params, "name": "erase"})
        return await call_next(ctx)

    async with pair(high_level(redirect), user=Principal("ada")) as client:
        with pytest.raises(Forbidden):
            await client.call_tool("greet", {"name": "Ada"})


async def test_a_failed_tool_is_a_result_for_middleware() -> None:
    seen: list[Any] = []

    async def record(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        seen.append(result.get("isError"))
        return result

    server = high_level(record)

    @server.tool()
    def fail() -> str:
        raise ToolError("broken")

    async with pair(server) as client:
        with pytest.raises(ToolError, match="broken"):
            await client.call_tool("fail", {})
    assert seen[-1] is True


async def test_middleware_does_not_wrap_the_calls_that_it_makes_itself() -> None:
    """Otherwise it would call itself without end."""
    names: list[Any] = []
    server = MCPServer("shop")

    async def list_first(ctx: Any, call_next: Any) -> Any:
        names.append([tool.name for tool in await server.list_tools()])
        return await call_next(ctx)

    server.middleware.append(list_first)
    server.add_tool(lambda: "hi", name="greet")
    async with pair(server) as client:
        assert (await client.call_tool("greet")).text == "hi"
    assert names[-1] == ["greet"]
