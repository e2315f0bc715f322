"""The suite's server and client, tried on each other in memory: quick to tell whether a failure is
theirs or HTTP's."""

import pytest

from dovetail import Client, ToolError
from dovetail.errors import MissingCapability

from .client import filled
from .server import PIXEL, server

ERAS = pytest.mark.parametrize("revision", ["handshake", "stateless"])


@ERAS
async def test_the_first_tool_takes_no_arguments(revision: str) -> None:
    async with Client(server, revision=revision) as client:
        tools = await client.list_tools()
        assert tools[0].input_schema.get("properties", {}) == {}
        assert all(tool.description for tool in tools)


@ERAS
@pytest.mark.parametrize(
    ("tool", "kinds"),
    [
        ("test_simple_text", ["text"]),
        ("test_image_content", ["image"]),
        ("test_audio_content", ["audio"]),
        ("test_embedded_resource", ["resource"]),
        ("test_multiple_content_types", ["text", "image", "resource"]),
    ],
)
async def test_a_tool_returns_the_content_it_is_named_after(
    revision: str, tool: str, kinds: list[str]
) -> None:
    async with Client(server, revision=revision) as client:
        result = await client.call_tool(tool)
        assert [block.type for block in result.content] == kinds


@ERAS
async def test_a_failing_tool_fails_as_a_tool(revision: str) -> None:
    async with Client(server, revision=revision) as client:
        with pytest.raises(ToolError, match="intentionally"):
            await client.call_tool("test_error_handling")


@ERAS
async def test_progress_is_reported_three_times(revision: str) -> None:
    heard: list[float] = []
    async with Client(server, revision=revision) as client:
        await client.call_tool(
            "test_tool_with_progress", on_progress=lambda update: heard.append(update.progress)
        )
    assert heard == [0, 50, 100]


async def test_a_client_that_cannot_sample_is_refused() -> None:
    async with Client(server, revision="stateless") as client:
        with pytest.raises(MissingCapability) as refusal:
            await client.call_tool("test_missing_capability")
        assert refusal.value.data == {"requiredCapabilities": {"sampling": {}}}
    async with Client(server, revision="stateless", on_sample=lambda request: "text") as client:
        await client.call_tool("test_missing_capability")


@ERAS
async def test_the_header_and_the_schema_are_listed_as_they_were_written(revision: str) -> None:
    async with Client(server, revision=revision) as client:
        schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
    assert schemas["json_schema_2020_12_tool"]["$defs"]["address"]["$anchor"] == "addressDef"
    assert schemas["test_x_mcp_header"]["properties"]["region"]["x-mcp-header"] == "Region"


@ERAS
async def test_resources_and_prompts_hold_what_they_should(revision: str) -> None:
    async with Client(server, revision=revision) as client:
        assert (await client.read_resource("test://static-binary"))[0].data == PIXEL
        assert "123" in ((await client.read_resource("test://template/123/data"))[0].text or "")
        prompt = await client.get_prompt(
            "test_prompt_with_arguments", {"arg1": "one", "arg2": "two"}
        )
        assert "arg1='one', arg2='two'" in prompt.messages[0].content.text
        prompt = await client.get_prompt(
            "test_prompt_with_embedded_resource", {"resourceUri": "test://any"}
        )
        assert prompt.messages[0].content.resource.uri == "test://any"
        assert (await client.get_prompt("test_prompt_with_image")).messages[
            0
        ].content.type == "image"
        found = await client.complete(
            prompt="test_prompt_with_arguments", argument="arg1", value="test"
        )
        assert found.values == ["test", "testing"]


def test_an_object_is_filled_in_with_defaults_and_with_something_of_the_right_type() -> None:
    schema = {
        "properties": {"name": {"type": "string", "default": "Ann"}, "sure": {"type": "boolean"}}
    }
    assert filled(schema) == {"name": "Ann", "sure": True}
    assert filled({}) == {}
