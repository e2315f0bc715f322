"""A tool's results are held against its own output schema, and never thrown away."""

import logging
from typing import Any

import pytest

from dovetail import Client, Server, TextContent, ToolResult
from dovetail.errors import ConfigError, InvalidOutput, InvalidParams, SchemaError
from dovetail.testing import pair

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def lying() -> Server:
    """A server that announces what it does not keep; our own would notice, so the lie is told by
    middleware."""

    async def announce(call: Any, next: Any) -> Any:
        result = await next(call)
        if call.name == "tools/list":
            for tool in result.tools:
                tool.output_schema = SCHEMA
        return result

    server = Server("lying", middleware=[announce])

    @server.tool
    async def lie(n: Any = "three") -> ToolResult:
        return ToolResult(content=[TextContent("said")], structured_content={"n": n})

    @server.tool
    async def silent() -> ToolResult:
        return ToolResult(content=[TextContent("said")])

    return server


@pytest.mark.requirement("tools-output-checked")
@pytest.mark.parametrize("tool", ["lie", "silent"])
async def test_strict_raises_and_the_result_is_not_lost(tool: str) -> None:
    async with pair(lying(), validate="strict") as client:
        with pytest.raises(InvalidOutput, match="output schema") as caught:
            await client.call_tool(tool)
        assert caught.value.result.text == "said"
        assert (await client.call_tool("lie", {"n": 3})).data == {"n": 3}


@pytest.mark.requirement("tools-output-checked")
async def test_warn_logs_and_returns_the_result(caplog: pytest.LogCaptureFixture) -> None:
    async with pair(lying()) as client:
        await client.list_tools()
        with caplog.at_level(logging.WARNING, "dovetail.client"):
            assert (await client.call_tool("lie")).data == {"n": "three"}
    assert "does not match its output schema" in caplog.text


async def test_off_does_not_look(caplog: pytest.LogCaptureFixture) -> None:
    async with pair(lying(), validate="off") as client:
        await client.list_tools()
        await client.call_tool("lie")
    assert "output schema" not in caplog.text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": {"$ref": "https://example.com/schema.json"}}},
        {"$schema": "http://json-schema.org/draft-03/schema#", "type": "object"},
        {"type": "object", "properties": {"x": {"type": "strange"}}},
    ],
)
@pytest.mark.parametrize("field", ["input_schema", "output_schema"])
async def test_a_bad_schema_makes_only_its_own_tool_unusable(
    schema: dict[str, Any], field: str
) -> None:
    called: list[str] = []

    async def odd(call: Any, next: Any) -> Any:
        result = await next(call)
        if call.name == "tools/call":
            called.append(call.params.name)
        if call.name == "tools/list":
            for tool in result.tools:
                if tool.name == "odd":
                    setattr(tool, field, schema)
        return result

    server = Server("odd", middleware=[odd])
    server.add_tool(lambda: 1, name="odd")
    server.add_tool(lambda: 2, name="good")
    async with pair(server, validate="strict") as client:
        assert (await client.call_tool("good")).data == 2
        for _ in range(2):
            with pytest.raises(SchemaError, match=f"The {field[:-7]} schema of tool 'odd' cannot"):
                await client.call_tool("odd")
            with pytest.raises(SchemaError):
                await client.start_tool("odd")
        assert {tool.name for tool in await client.list_tools(fresh=True)} == {"odd", "good"}
        assert (await client.call_tool("good")).data == 2
    assert called == ["good", "good"]


async def test_strict_checks_arguments_before_they_are_sent() -> None:
    called: list[Any] = []
    server = Server("strict")

    @server.tool
    def double(number: int) -> int:
        called.append(number)
        return 2 * number

    async with pair(server, validate="strict") as client:
        assert (await client.call_tool("double", {"number": 4})).data == 8
        for arguments in ({"number": "4"}, {}, None, {"number": 1.5}, {"number": None}):
            with pytest.raises(InvalidParams, match="arguments for double do not match its input"):
                await client.call_tool("double", arguments)
        with pytest.raises(InvalidParams):
            await client.start_tool("double", {"number": "4"})
        with pytest.raises(InvalidParams, match="nothing"):
            await client.call_tool("nothing", {"number": "4"})
    assert called == [4]
    async with pair(server) as client:
        await client.list_tools()
        assert (await client.call_tool("double", {"number": "4"})).data == 8, (
            "the server repairs it"
        )


async def test_a_result_that_is_not_the_type_asked_for_keeps_its_result() -> None:
    async with pair(lying()) as client:
        with pytest.raises(InvalidOutput) as caught:
            await client.call_tool("lie", type=int)
        assert caught.value.result.structured_content == {"n": "three"}


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="strict, warn, off"):
        Client(Server("s"), validate="maybe")
