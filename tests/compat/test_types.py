"""The types of `mcp.types` on `dovetail.compat`: pydantic models in all but name."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import AnyUrl, BaseModel, TypeAdapter

from dovetail import Client, compat, protocol
from dovetail.compat import (
    Audio,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ErrorData,
    FastMCP,
    File,
    GetPromptResult,
    Image,
    ImageContent,
    ListToolsResult,
    MCPError,
    McpError,
    PromptMessage,
    Resource,
    ServerCapabilities,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    ToolResult,
    types,
)
from dovetail.errors import NotFound, ProtocolError
from dovetail.testing import pair
from tests.architecture.test_imports import loaded_by

NAMES = """
    Annotations AudioContent BlobResourceContents CallToolRequest CallToolRequestParams
    CallToolResult CancelledNotification ClientCapabilities CompleteRequest CompleteResult
    Completion CompletionArgument CompletionContext Content ContentBlock CreateMessageRequestParams
    CreateMessageResult ElicitRequestParams ElicitResult EmbeddedResource EmptyResult ErrorData
    GetPromptRequest GetPromptRequestParams GetPromptResult INTERNAL_ERROR INVALID_PARAMS
    INVALID_REQUEST Icon ImageContent Implementation InitializeRequestParams InitializeResult
    LATEST_PROTOCOL_VERSION ListPromptsResult ListResourceTemplatesResult ListResourcesResult
    ListRootsResult ListToolsRequest ListToolsResult LoggingLevel METHOD_NOT_FOUND ModelHint
    ModelPreferences PARSE_ERROR PaginatedRequestParams PingRequest ProgressNotification
    ProgressNotificationParams Prompt PromptArgument PromptMessage PromptReference
    PromptsCapability ReadResourceRequest ReadResourceRequestParams ReadResourceResult
    Resource ResourceLink ResourceTemplate ResourceTemplateReference ResourceUpdatedNotification
    ResourcesCapability Role Root SamplingMessage ServerCapabilities ServerResult SetLevelRequest
    SubscribeRequest TextContent TextResourceContents Tool ToolAnnotations ToolChoice
    ToolResultContent ToolUseContent ToolsCapability JSONRPCMessage JSONRPCRequest
    ElicitationResult LATEST_MODERN_VERSION
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_the_names_that_servers_import_are_there(name: str) -> None:
    assert getattr(compat, name) is getattr(compat, name)


@pytest.mark.parametrize("name", ["base", "TYPE_CHECKING", "Nonsense", "NonsenseRequest"])
def test_other_names_are_not_there(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(compat, name)


def test_types_need_no_pydantic() -> None:
    use = "from dovetail.compat import TextContent; TextContent(type='text', text='a').model_dump()"
    assert "pydantic" not in loaded_by(use)


# spelling


def test_fields_have_both_spellings() -> None:
    for tool in (
        Tool(name="a", inputSchema={"type": "object"}, annotations={"readOnlyHint": True}),
        Tool(name="a", input_schema={"type": "object"}, annotations={"readOnlyHint": True}),
    ):
        assert tool.inputSchema == tool.input_schema == {"type": "object"}
        assert tool.annotations.readOnlyHint is tool.annotations.read_only_hint is True
    result = CallToolResult(content=[], structuredContent={"a": 1}, isError=True)
    assert (result.isError, result.structuredContent) == (True, {"a": 1})
    result.isError = False
    assert result.is_error is False


def test_values_from_dovetail_have_them_too() -> None:
    text = protocol.TextContent("a")
    assert isinstance(text, TextContent)
    assert not isinstance(text, ImageContent)
    assert issubclass(protocol.TextContent, TextContent)
    assert issubclass(TextContent, protocol.TextContent)
    assert protocol.ToolResult(content=[text]).isError is False
    assert text.model_dump(exclude_none=True) == {"type": "text", "text": "a"}  # type: ignore[attr-defined]


async def test_contents_that_were_read_are_text_or_bytes() -> None:
    server = FastMCP("s")
    server.add_resource(lambda: "a", "x://text", name="text")
    async with pair(server) as client:
        (part,) = await client.read_resource("x://text")
    assert isinstance(part, TextResourceContents)
    assert not isinstance(part, compat.BlobResourceContents)


# the methods of a model


def test_a_value_can_be_dumped_and_read_again() -> None:
    tool = Tool(name="a", inputSchema={}, annotations=ToolAnnotations(title="A"), _meta={"b": 1})
    dumped = tool.model_dump(exclude_none=True)
    assert dumped == {
        "name": "a",
        "inputSchema": {},
        "annotations": {"title": "A"},
        "meta": {"b": 1},
    }
    assert tool.model_dump(by_alias=True, mode="json", exclude_none=True)["_meta"] == {"b": 1}
    assert tool.model_dump(by_alias=False)["input_schema"] == {}
    assert tool.model_dump()["description"] is None
    assert Tool.model_validate(dumped) == tool
    assert Tool.model_validate(tool) is tool
    assert Tool.model_validate_json(tool.model_dump_json(by_alias=True)) == tool
    copied = tool.model_copy(update={"name": "b"})
    assert (copied.name, tool.name, copied.inputSchema) == ("b", "a", {})


def test_dicts_in_fields_become_values() -> None:
    message = PromptMessage(role="user", content={"type": "text", "text": "a"})
    assert isinstance(message.content, TextContent)
    listed = ListToolsResult(tools=[{"name": "a", "inputSchema": {}}], nextCursor="b")
    assert (listed.tools[0].name, listed.nextCursor) == ("a", "b")
    assert Resource(uri=AnyUrl("x://a/b"), name="b").uri == "x://a/b"
    capabilities = ServerCapabilities(tools={"listChanged": True})
    assert capabilities.tools.listChanged is True


def test_a_wrong_field_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="TextContent: Expected `str`, got `int`"):
        TextContent(type="text", text=1)
    with pytest.raises(ValueError, match="text"):
        TextContent(type="text")


def test_requests_have_a_method_and_params() -> None:
    request = CallToolRequest(
        method="tools/call", params=CallToolRequestParams(name="a", arguments={"b": 1})
    )
    assert (request.method, request.params.name, request.params.arguments) == (
        "tools/call",
        "a",
        {"b": 1},
    )
    assert compat.ListToolsRequest().method == "tools/list"
    result = ListToolsResult(tools=[])
    assert compat.ServerResult(result).root is result


# pydantic


class Answer(BaseModel):
    block: TextContent
    more: list[ContentBlock] = []
    hints: ToolAnnotations | None = None


def test_a_pydantic_model_can_have_them_as_fields() -> None:
    answer = Answer.model_validate(
        {
            "block": {"type": "text", "text": "a"},
            "more": [{"type": "image", "data": "", "mimeType": "image/png"}],
            "hints": {"readOnlyHint": True},
        }
    )
    assert isinstance(answer.block, TextContent)
    assert isinstance(answer.more[0], ImageContent)
    assert answer.hints is not None
    assert answer.hints.readOnlyHint is True
    assert Answer(block=TextContent(type="text", text="a")).block == answer.block
    assert answer.model_dump()["block"]["text"] == "a"
    assert Answer.model_validate_json(answer.model_dump_json()) == answer
    assert "text" in Answer.model_json_schema()["properties"]["block"]["properties"]
    with pytest.raises(ValueError, match="block"):
        Answer.model_validate({"block": {"type": "text"}})
    assert (
        TypeAdapter(list[Tool]).validate_python([{"name": "a", "inputSchema": {}}])[0].name == "a"
    )


async def test_a_tool_can_have_them_as_parameters_and_results() -> None:
    server = FastMCP("s")

    @server.tool()
    def shout(block: TextContent) -> list[TextContent]:
        return [TextContent(type="text", text=block.text.upper())]

    @server.tool()
    def answer(model: Answer) -> Answer:
        return model

    async with pair(server) as client:
        assert [tool.output_schema is None for tool in await client.list_tools()] == [True, False]
        block = {"type": "text", "text": "a"}
        assert (await client.call_tool("shout", {"block": block})).text == "A"
        result = await client.call_tool("answer", {"model": {"block": block}})
        assert result.structured_content["block"]["text"] == "a"


def test_without_pydantic_a_tool_can_have_them_as_parameters_and_results() -> None:
    code = """
import asyncio, sys
from dovetail import Client
from dovetail.compat import FastMCP, Icon, TextContent

server = FastMCP("s")

@server.tool()
def show(icon: Icon) -> list[TextContent]:
    return [TextContent(type="text", text=icon.src)]

async def main():
    async with Client(server) as client:
        print((await client.call_tool("show", {"icon": {"src": "a", "mimeType": "b"}})).text)

asyncio.run(main())
assert "pydantic" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("a\n", "")


# errors


@pytest.mark.parametrize(
    "error",
    [
        McpError(ErrorData(code=-32050, message="gone", data={"a": 1})),
        MCPError(-32050, "gone", {"a": 1}),
        MCPError(code=-32050, message="gone", data={"a": 1}),
    ],
    ids=["release 1", "release 2", "keywords"],
)
async def test_an_error_of_either_release_is_the_answer(error: Any) -> None:
    assert (error.error.code, error.error.message, str(error)) == (-32050, "gone", "gone")
    server = FastMCP("s")

    @server.tool()
    async def fail() -> None:
        raise error

    async with Client(server) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("fail")
    assert (caught.value.code, caught.value.error.data) == (-32050, {"a": 1})


def test_the_errors_of_fastmcp_can_be_caught() -> None:
    for name in ("ToolError", "ResourceError", "PromptError", "ValidationError", "NotFoundError"):
        with pytest.raises(compat.FastMCPError, match="why"):
            raise getattr(compat, name)("why")
    assert issubclass(compat.ResourceError, NotFound)
    assert issubclass(compat.UrlElicitationRequiredError, ProtocolError)


async def test_an_error_of_a_prompt_reaches_the_client() -> None:
    server = FastMCP("s")

    @server.prompt()
    def fail() -> str:
        raise compat.PromptError("no prompt today")

    async with pair(server) as client:
        with pytest.raises(ProtocolError, match="no prompt today"):
            await client.get_prompt("fail")


# media and results


def test_media_have_the_methods_of_the_peers(tmp_path: Any) -> None:
    image = Image(data=b"a", format="png")
    assert image.to_data_uri() == "data:image/png;base64,YQ=="
    assert image.to_image_content() == ImageContent(type="image", data="YQ==", mimeType="image/png")
    assert (image._mime_type, image.to_image_content(mime_type="image/x").mimeType) == (
        "image/png",
        "image/x",
    )
    assert Audio(data=b"a", format="wav").to_audio_content().mimeType == "audio/wav"
    (tmp_path / "a.txt").write_text("hello")
    assert File(tmp_path / "a.txt").to_resource_content().resource.text == "hello"
    named = File(data=b"\xff", format="pdf", name="report").to_resource_content().resource
    assert (named.uri, named.mimeType) == ("file:///report.pdf", "application/pdf")


def test_the_constructors_of_fastmcp_accept_any_content() -> None:
    assert ToolResult(content="said").content[0].text == "said"
    assert ToolResult(content={"a": 1}, structured_content={"a": 1}).content[0].text == '{"a":1}'
    assert compat.Message(content="said", role="assistant").content.text == "said"
    assert isinstance(ToolResult("a"), CallToolResult)


def test_a_result_can_be_an_error() -> None:
    assert ToolResult("why", is_error=True).isError is True
    assert GetPromptResult(description="d", messages=[]).description == "d"
    assert types.LATEST_PROTOCOL_VERSION == "2025-11-25"
