"""Functions that return `InputRequiredResult` and are called again with the answers."""

from typing import Any

import pytest

from dovetail.compat import Context, LowLevelServer, MCPServer, RequestStateSecurity, UserMessage
from dovetail.compat.types import (
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    ListToolsResult,
    SamplingMessage,
    TextContent,
    Tool,
)
from dovetail.errors import ConfigError
from dovetail.protocol import Root
from dovetail.testing import pair

eras = pytest.mark.parametrize("revision", ["handshake", "stateless"])
SCHEMA = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
ASK = ElicitRequest(params=ElicitRequestFormParams(message="Who?", requested_schema=SCHEMA))
MESSAGE = SamplingMessage(role="user", content=TextContent(type="text", text="Say hello"))
SAY = CreateMessageRequest(params=CreateMessageRequestParams(messages=[MESSAGE], max_tokens=5))
QUESTIONS = {"who": ASK, "say": SAY, "roots": ListRootsRequest()}


def describe(answers: Any, state: Any) -> str:
    who, say, roots = (answers[key] for key in ("who", "say", "roots"))
    assert isinstance(who, ElicitResult) and not isinstance(who, CreateMessageResult)
    assert isinstance(say, CreateMessageResult) and isinstance(roots, ListRootsResult)
    return f"{who.content['who']} {say.content.text} {roots.roots[0].uri} {state}"


def high_level() -> MCPServer:
    server = MCPServer("s", request_state_security=RequestStateSecurity(keys=["k" * 32]))

    @server.tool()
    async def ask(ctx: Context) -> str | InputRequiredResult:
        if ctx.input_responses is None:
            assert ctx.request_state is None
            return InputRequiredResult(input_requests=QUESTIONS, request_state="asked")
        return describe(ctx.input_responses, ctx.request_state)

    @server.prompt()
    async def brief(ctx: Context) -> list[UserMessage] | InputRequiredResult:
        if not ctx.input_responses:
            return InputRequiredResult(input_requests={"who": ASK})
        return [UserMessage(f"For {ctx.input_responses['who'].content['who']}")]

    return server


def low_level() -> LowLevelServer:
    async def list_tools(ctx: Any, params: Any) -> Any:
        return ListToolsResult(tools=[Tool(name="ask", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> Any:
        if params.input_responses is None:
            assert params.request_state is None
            return InputRequiredResult(input_requests=QUESTIONS, request_state="asked")
        text = describe(params.input_responses, params.request_state)
        return CallToolResult(content=[TextContent(type="text", text=text)])

    return LowLevelServer("s", on_list_tools=list_tools, on_call_tool=call_tool)


@eras
@pytest.mark.parametrize("make", [high_level, low_level])
async def test_a_tool_returns_its_questions(make: Any, revision: str) -> None:
    async with pair(
        make(),
        revision=revision,
        on_elicit=lambda _: {"who": "Ada"},
        on_sample=lambda _: "hello",
        roots=[Root("file:///home")],
    ) as client:
        (tool,) = await client.list_tools()
        if tool.output_schema is not None:
            assert tool.output_schema["properties"] == {"result": {"type": "string"}}
        said = (await client.call_tool("ask")).text
        assert said == "Ada hello file:///home asked"


@eras
async def test_a_prompt_returns_its_questions(revision: str) -> None:
    answers = {"on_elicit": lambda _: {"who": "Ada"}}
    async with pair(high_level(), revision=revision, **answers) as client:
        assert (await client.get_prompt("brief")).messages[0].content.text == "For Ada"


def test_a_codec_for_states_is_refused() -> None:
    with pytest.raises(ConfigError, match="no option codec=; use keys="):
        RequestStateSecurity(codec=object())
