"""A tool's results are held against its own output schema, and never thrown away."""

import logging
from typing import Any

import pytest

from dovetail import Client, Server, TextContent, ToolResult
from dovetail.errors import ConfigError, InvalidOutput, SchemaError
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
async def test_strict_refuses_tools_whose_schemas_cannot_be_used(schema: dict[str, Any]) -> None:
    async def odd(call: Any, next: Any) -> Any:
        result = await next(call)
        if call.name == "tools/list":
            result.tools[0].output_schema = schema
        return result

    server = Server("odd", middleware=[odd])
    server.add_tool(lambda: 1, name="odd")
    async with pair(server, validate="strict") as client:
        with pytest.raises(SchemaError, match="tool 'odd'"):
            await client.list_tools()


async def test_a_result_that_is_not_the_type_asked_for_keeps_its_result() -> None:
    async with pair(lying()) as client:
        with pytest.raises(InvalidOutput) as caught:
            await client.call_tool("lie", type=int)
        assert caught.value.result.structured_content == {"n": "three"}


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="strict, warn, off"):
        Client(Server("s"), validate="maybe")
