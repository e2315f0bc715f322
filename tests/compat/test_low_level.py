"""The low-level server of the official SDK, on the wire of each transport and in both eras."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from dovetail import Client
from dovetail.compat import (
    CallToolRequest,
    ListPromptsResult,
    ListToolsRequest,
    ListToolsResult,
    LowLevelServer as Server,
    Prompt,
    Resource,
    SseServerTransport,
    StreamableHTTPSessionManager,
    Tool,
)
from dovetail.errors import ConfigError, ProtocolError
from dovetail.testing import pair
from tests.compat.low_level import SCHEMA, main, release1, release2
from tests.transports.http.raw import MODERN, OLD, on_port

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "protocolVersion": OLD,
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def on_stdio(release: str, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
    """Send requests to the server on its standard input, and return its messages."""
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(requests)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.compat.low_level", release],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(
        (each for each in messages if "id" in each), key=lambda message: int(message["id"])
    )


@pytest.mark.parametrize("release", ["1", "2"])
def test_answers_on_stdio_in_the_handshake_era(release: str) -> None:
    call = {"name": "add", "arguments": {"a": 1}}
    hello, listed, called, unknown = on_stdio(
        release,
        ("initialize", INITIALIZE),
        ("tools/list", {}),
        ("tools/call", call),
        ("tools/call", {"name": "nope"}),
    )
    assert hello["result"]["serverInfo"] == {"name": "low", "version": "1.5"}
    assert hello["result"]["capabilities"]["tools"] == {"listChanged": True}
    assert listed["result"] == {
        "tools": [{"name": "add", "description": "Add one.", "inputSchema": SCHEMA}]
    }
    assert called["result"] == {"content": [{"type": "text", "text": "2"}], "isError": False}
    if release == "1":
        assert unknown["result"] == {
            "content": [{"type": "text", "text": "Unknown tool: nope"}],
            "isError": True,
        }
    else:
        assert unknown["error"] == {"code": -32602, "message": "Unknown tool: nope"}


@pytest.mark.parametrize("release", ["1", "2"])
def test_answers_on_stdio_in_the_stateless_era(release: str) -> None:
    call = {"name": "add", "arguments": {"a": 1}, "_meta": META}
    discovered, called = on_stdio(
        release, ("server/discover", {"_meta": META}), ("tools/call", call)
    )
    assert MODERN in discovered["result"]["supportedVersions"]
    assert "tools" in discovered["result"]["capabilities"]
    assert called["result"]["content"] == [{"type": "text", "text": "2"}]
    assert called["result"]["resultType"] == "complete"


@asynccontextmanager
async def site_with(server: Any, **options: Any) -> AsyncIterator[str]:
    """The server at /mcp in an application of Starlette, as its manager is mounted."""
    manager = StreamableHTTPSessionManager(app=server, **options)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)
    async with on_port(app, lifespan="on") as site:
        yield f"http://127.0.0.1:{site.port}/mcp/"


@pytest.mark.parametrize("revision", [OLD, MODERN])
@pytest.mark.parametrize("make", [release1, release2])
async def test_answers_over_http_in_both_eras(make: Any, revision: str) -> None:
    async with site_with(make()) as url, Client(url, revision=revision) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add"]
        assert (await client.call_tool("add", {"a": 1})).text == "2"


async def test_a_manager_can_answer_without_sessions_and_with_json() -> None:
    settings = SimpleNamespace(
        enable_dns_rebinding_protection=True, allowed_hosts=["a.example"], allowed_origins=[]
    )
    options = {"stateless": True, "json_response": True, "security_settings": settings}
    async with site_with(release1(), **options) as url, Client(url, revision=OLD) as client:
        assert (await client.call_tool("add", {"a": 1})).text == "2"
    with pytest.raises(ConfigError, match="events="):
        StreamableHTTPSessionManager(release1(), event_store=object())


async def test_an_event_stream_can_be_mounted_in_an_application() -> None:
    server, sse = release1(), SseServerTransport("/messages/")

    async def handle(request: Request) -> Response:
        async with sse.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    routes = [Route("/sse", endpoint=handle), Mount("/messages/", app=sse.handle_post_message)]
    async with (
        on_port(Starlette(routes=routes)) as site,
        Client(f"http://127.0.0.1:{site.port}/sse") as client,
    ):
        assert (await client.call_tool("add", {"a": 1})).text == "2"


# release 1


async def test_every_decorator_registers_its_handler() -> None:
    server = release1()
    async with pair(server) as client:
        assert (await client.read_resource("x://a"))[0].mime_type == "text/x"
        assert [each.uri for each in await client.list_resources()] == ["x://a"]
        templates = await client.list_resource_templates()
        assert [each.uri_template for each in templates] == ["x://{name}"]
        assert [each.name for each in await client.list_prompts()] == ["p"]
        prompt = await client.get_prompt("p", {"a": "b"})
        assert prompt.messages[0].text == "p {'a': 'b'}"
        completion = await client.complete(prompt="p", argument="a", value="x")
        assert completion.values == ["x!"]
    assert server.instructions == "Low."


async def test_a_resource_handler_answers_with_the_code_of_its_error() -> None:
    async with pair(release1()) as client:
        with pytest.raises(ProtocolError, match="No x://b") as caught:
            await client.read_resource("x://b")
    assert caught.value.code == -32602


async def test_a_uri_equals_that_of_a_resource_and_of_a_url() -> None:
    server, resource = Server("s"), Resource(uri=AnyUrl("note://host/a"), name="a")

    @server.read_resource()
    async def read(uri: AnyUrl) -> str:
        return f"{resource.uri == uri} {uri == AnyUrl('note://host/a')} {uri.host}"

    async with pair(server) as client:
        assert (await client.read_resource("note://host/a"))[0].text == "True True host"


async def test_a_tool_returns_content_data_or_both() -> None:
    async with pair(release1()) as client:
        data = await client.call_tool("data")
        assert data.structured_content is not None
        assert data.structured_content.keys() == {"token"}
        assert json.loads(data.text) == data.structured_content
        both = await client.call_tool("both")
        assert (both.text, both.structured_content) == ("text", {"a": 1})


async def test_arguments_are_checked_unless_validation_is_off() -> None:
    server: Any = Server("s")
    server.list_tools()(lambda: listed())
    seen: list[Any] = []

    async def listed() -> Any:
        return [Tool(name="add", inputSchema=SCHEMA)]

    async def call_tool(name: str, arguments: Any) -> Any:
        seen.append(arguments)
        return []

    server.call_tool()(call_tool)
    async with pair(server) as client:
        result = await client.call_tool("add", {"a": "x"}, raise_on_error=False)
        assert result.text.startswith("Input validation error: ")
        assert (result.is_error, seen) == (True, [])
        server.call_tool(validate_input=False)(call_tool)
        await client.call_tool("add", {"a": "x"})
    assert seen == [{"a": "x"}]


async def test_output_is_checked() -> None:
    server: Any = Server("s")

    @server.list_tools()
    async def list_tools() -> Any:
        return [Tool(name="add", inputSchema={"type": "object"}, outputSchema=SCHEMA)]

    @server.call_tool()
    async def call_tool(name: str, arguments: Any) -> Any:
        return arguments

    async with pair(server) as client:
        result = await client.call_tool("add", {"b": 1}, raise_on_error=False)
    assert result.text.startswith("Output validation error: ")


async def test_a_handler_can_be_assigned_and_called() -> None:
    server = release1()

    async def handle(request: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="b", inputSchema={"type": "object"})])

    server.request_handlers[ListToolsRequest] = handle
    assert CallToolRequest in server.request_handlers
    async with pair(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["b"]


async def test_a_subscription_reaches_the_handler_and_the_subscriber() -> None:
    server = release1()
    async with Client(server, revision=OLD) as client:
        await client.subscribe("x://a", print)
    assert server.subscribed == "x://a"


@pytest.mark.parametrize("revision", [OLD, MODERN])
async def test_a_handler_can_ask_and_report_progress(revision: str) -> None:
    server: Any = Server("s")
    reported: list[Any] = []

    @server.call_tool(validate_input=False)
    async def call_tool(name: str, arguments: Any) -> Any:
        context = server.request_context
        await context.session.send_progress_notification(context.meta.progressToken, 1, total=2)
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.session.elicit_form("Who?", schema)
        return {"action": answer.action, "content": answer.content}

    async with Client(
        server,
        revision=revision,
        on_elicit=lambda request: {"name": "Ada"},
        on_progress=lambda update: reported.append((update.progress, update.total)),
    ) as client:
        result = await client.call_tool("greet")
    assert result.structured_content == {"action": "accept", "content": {"name": "Ada"}}
    assert reported[0] == (1, 2)


async def test_a_question_that_the_client_cannot_answer_is_an_error() -> None:
    server: Any = Server("s")

    @server.call_tool(validate_input=False)
    async def call_tool(name: str, arguments: Any) -> Any:
        return await server.request_context.session.list_roots()

    async with Client(server, revision=MODERN) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("a")
    assert caught.value.code == -32021


async def test_a_handler_is_added_by_its_method() -> None:
    server = release2()

    async def list_prompts(ctx: Any, params: Any) -> Any:
        return ListPromptsResult(prompts=[Prompt(name=ctx.method)])

    server.add_request_handler("prompts/list", Any, list_prompts)
    async with pair(server) as client:
        assert [prompt.name for prompt in await client.list_prompts()] == ["prompts/list"]


def test_a_schema_says_which_parameters_are_in_headers() -> None:
    region = {"type": "string", "x-mcp-header": "Region"}
    schema = {"type": "object", "properties": {"region": region}}
    server = Server("s", get_tool_input_schema={"stock": schema}.get)
    assert [param.name for param in server.header_params("stock")] == ["Region"]
    assert server.header_params("other") == Server("s").header_params("stock") == ()


async def test_an_application_serves_a_low_level_server() -> None:
    app = release2().streamable_http_app(json_response=True, stateless_http=True)
    async with (
        on_port(app) as site,
        Client(f"http://127.0.0.1:{site.port}/mcp", revision=OLD) as client,
    ):
        assert (await client.call_tool("add", {"a": 1})).text == "2"


async def test_the_lifespan_is_in_the_request_context() -> None:
    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[dict[str, str]]:
        yield {"db": "open"}

    server: Any = Server("s", lifespan=lifespan)

    @server.call_tool(validate_input=False)
    async def call_tool(name: str, arguments: Any) -> Any:
        context = server.request_context
        assert context.request_id is not None
        return dict(context.lifespan_context)

    async with pair(server) as client:
        assert (await client.call_tool("a")).structured_content == {"db": "open"}
    with pytest.raises(LookupError):
        server.request_context


async def test_only_what_has_a_handler_is_declared_and_answered() -> None:
    server = release2()
    assert server.get_capabilities() == {"tools": {"listChanged": False}, "logging": {}}
    async with pair(server) as client:
        with pytest.raises(ProtocolError, match="does not offer prompts"):
            await client.get_prompt("a")


async def test_what_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match=r"no Server\.nonsense"):
        release1().nonsense
    with pytest.raises(ConfigError, match="on_nonsense="):
        Server("s", on_nonsense=main)
    with pytest.raises(ConfigError, match="only the streams of stdio_server"):
        await release1().run(object(), object())


async def test_arguments_are_checked_against_the_schema_that_was_listed_last() -> None:
    server: Any = Server("low")
    types = ["integer"]

    @server.list_tools()
    async def list_tools() -> list[Tool]:
        schema = {"type": "object", "properties": {"a": {"type": types[-1]}}}
        return [Tool(name="show", inputSchema=schema)]

    @server.call_tool()
    async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
        return []

    async with pair(server, validate="off") as client:
        assert (await client.call_tool("show", {"a": "x"}, raise_on_error=False)).is_error
        types.append("string")
        await client.list_tools(fresh=True)
        assert not (await client.call_tool("show", {"a": "x"}, raise_on_error=False)).is_error
