"""`ClientSession`, its transports, and the clients of both libraries, over `dovetail.Client`."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail import Server
from dovetail.auth import Bearer, static_tokens
from dovetail.compat import Client, ClientSession, McpError, StdioServerParameters, client, types
from dovetail.errors import ConfigError, ConnectFailed
from tests.behaviour.web import first_era_only, on_a_port
from tests.compat.session_server import make_server

NEWEST, HANDSHAKE, OLDEST = "2026-07-28", "2025-11-25", "2024-11-05"
ROOT = Path(__file__).parents[2]
Opened = AbstractAsyncContextManager[client.CompatClientSession]
Open = Callable[..., Opened]


@asynccontextmanager
async def over_stdio(revision: str) -> AsyncIterator[Any]:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tests.compat.session_server", revision],
        env={"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    async with client.stdio_client(parameters) as streams:
        yield streams


@asynccontextmanager
async def over_http(revision: str) -> AsyncIterator[Any]:
    async with on_a_port(make_server(revision).asgi("/mcp")) as address:
        async with client.streamablehttp_client(
            f"http://{address}/mcp", {"x-test": "1"}
        ) as streams:
            yield streams


@asynccontextmanager
async def over_sse(revision: str) -> AsyncIterator[Any]:
    app = first_era_only(make_server(revision).asgi(sse="/sse"))  # type: ignore[arg-type]
    async with on_a_port(app) as address:
        async with client.sse_client(f"http://{address}/sse") as streams:
            yield streams


KINDS = {
    "stdio": (over_stdio, NEWEST),
    "stdio handshake": (over_stdio, HANDSHAKE),
    "http": (over_http, NEWEST),
    "http handshake": (over_http, HANDSHAKE),
    "sse": (over_sse, OLDEST),
}


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest) -> Open:
    """Opens a session over a transport, in an era, as a program for the SDK does."""
    transport, revision = KINDS[request.param]

    @asynccontextmanager
    async def open(**options: Any) -> AsyncIterator[client.CompatClientSession]:
        async with (
            transport(revision) as (read, write, *_),
            ClientSession(read, write, **options) as session,
        ):
            opening = await session.initialize()
            assert opening.protocolVersion == revision
            yield session

    return open


def in_memory(*revisions: str, **options: Any) -> Any:
    return client.Client(make_server(*revisions), **options)


async def test_tools_are_listed_page_by_page_and_called(opened: Open) -> None:
    progress: list[Any] = []

    async def on_progress(*update: Any) -> None:
        progress.append(update)

    async with opened() as session:
        page = await session.list_tools()
        names = [tool.name for tool in page.tools]
        assert len(names) == 4
        assert page.tools[0].inputSchema["required"] == ["a", "b"]
        while page.nextCursor:
            page = await session.list_tools(cursor=page.nextCursor)
            names += [tool.name for tool in page.tools]
        assert names[:2] == ["add", "ask"]
        assert len(set(names)) == 9
        result = await session.call_tool("add", {"a": 2, "b": 3}, progress_callback=on_progress)
        assert isinstance(result, types.CallToolResult)
        assert isinstance(result.content[0], types.TextContent)
        assert (result.content[0].text, result.isError) == ("5", False)
        failed = await session.call_tool("fail")
        assert (failed.isError, failed.content[0].text) == (True, "no luck")
    assert [update[:2] for update in progress] == [(1, 2)]


async def test_resources_prompts_and_completions(opened: Open) -> None:
    async with opened() as session:
        assert [each.uri for each in (await session.list_resources()).resources] == [
            "blob://one", "note://one",
        ]  # fmt: skip
        templates = (await session.list_resource_templates()).resourceTemplates
        assert templates[0].uriTemplate == "user://{name}"
        text = (await session.read_resource("note://one")).contents[0]
        blob = (await session.read_resource("blob://one")).contents[0]
        assert isinstance(text, types.TextResourceContents) and text.text == "Buy milk"
        assert isinstance(blob, types.BlobResourceContents) and blob.mimeType == "image/png"
        assert (await session.list_prompts()).prompts[0].name == "greet"
        prompt = await session.get_prompt("greet", {"name": "Ada"})
        assert prompt.messages[0].content.text == "Greet Ada."
        reference = types.PromptReference(type="ref/prompt", name="greet")
        completed = await session.complete(reference, {"name": "name", "value": "A"})
        assert completed.completion.values == ["Ada", "Alan"]
        assert await session.send_ping() == types.EmptyResult()


async def test_callbacks_answer_the_server(opened: Open) -> None:
    seen: list[Any] = []

    async def sample(context: Any, params: Any) -> Any:
        seen.append(context.session)
        assert (params.maxTokens, params.messages[0].content.text) == (5, "Think!")
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(type="text", text="Hm."), model="m"
        )

    async def elicit(context: Any, params: Any) -> Any:
        assert params.requestedSchema["required"] == ["name"]
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def list_roots(context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///srv")])

    async with opened(
        sampling_callback=sample, elicitation_callback=elicit, list_roots_callback=list_roots
    ) as session:
        assert (await session.call_tool("think")).content[0].text == "Hm."
        assert seen == [session]
        assert "file:///srv" in (await session.call_tool("roots")).content[0].text
        answer = await session.call_tool("ask")
        version = session.initialize_result.protocolVersion
        assert answer.isError if version == OLDEST else answer.content[0].text == "accept Ada"


async def test_a_callback_may_refuse_with_an_error() -> None:
    async def refuse(*_: Any) -> Any:
        return types.ErrorData(code=-1, message="not today")

    async with in_memory(HANDSHAKE, elicitation_callback=refuse) as session:
        result = await session.call_tool("ask")
        assert result.isError and "not today" in result.content[0].text


async def test_logs_and_changes_are_reported(opened: Open) -> None:
    logs: asyncio.Queue[Any] = asyncio.Queue()
    messages: asyncio.Queue[Any] = asyncio.Queue()
    async with opened(logging_callback=logs.put, message_handler=messages.put) as session:
        await session.set_logging_level("info")
        await session.call_tool("add", {"a": 1, "b": 1})
        entry = await logs.get()
        assert (entry.level, entry.data) == ("info", "adding")
        assert isinstance(entry, types.LoggingMessageNotificationParams)
        await session.subscribe_resource("note://one")
        await session.call_tool("touch")
        updated = await messages.get()
        assert updated.root.params.uri == "note://one"
        assert isinstance(updated, types.ResourceUpdatedNotification)
        await session.unsubscribe_resource("note://one")
        await session.call_tool("grow")
        assert isinstance(await messages.get(), types.ToolListChangedNotification)


async def test_errors_of_the_server_and_timeouts_are_mcp_errors(opened: Open) -> None:
    async with opened(read_timeout_seconds=timedelta(seconds=30)) as session:
        with pytest.raises(McpError) as unknown:
            await session.call_tool("nothing")
        assert unknown.value.error.code == -32602
        assert "nothing" in unknown.value.error.message
        with pytest.raises(McpError) as missing:
            await session.read_resource("note://two")
        assert missing.value.error.code in (-32002, -32602)
        with pytest.raises(McpError) as late:
            await session.call_tool("wait", read_timeout_seconds=timedelta(seconds=0.05))
        assert late.value.error.code in (408, -32001)
        assert isinstance(late.value.__context__, TimeoutError)


async def test_a_server_that_does_not_start_is_named() -> None:
    parameters = StdioServerParameters(command="no-such-program")
    async with (
        client.stdio_client(parameters) as (read, write),
        ClientSession(read, write) as session,
    ):
        with pytest.raises(ConnectFailed, match="no-such-program"):
            await session.initialize()


async def test_what_a_server_writes_to_stderr_goes_to_the_file(tmp_path: Path) -> None:
    program = "import sys; print('hello', file=sys.stderr); sys.stdin.read()"
    parameters = StdioServerParameters(command=sys.executable, args=["-c", program])
    path = tmp_path / "log"
    with path.open("w") as log:
        async with (
            client.stdio_client(parameters, log) as (read, write),
            ClientSession(read, write, 1) as session,
        ):
            with pytest.raises((McpError, ConnectFailed)):
                await session.initialize()
    assert path.read_text() == "hello\n"


class Token:
    """As an `httpx.Auth` that sends a token."""

    def __init__(self, header: str) -> None:
        self.header = header

    async def async_auth_flow(self, request: Any) -> AsyncIterator[Any]:
        request.headers["Authorization"] = self.header
        response = yield request
        raise AssertionError(response)


async def test_headers_and_credentials_of_an_httpx_client_are_used() -> None:
    guard = Bearer(static_tokens({"secret": "ada"}))
    server = Server("guarded", auth=guard)
    async with on_a_port(server.asgi("/mcp")) as address:

        async def opens(**options: Any) -> str:
            async with client.streamablehttp_client(f"http://{address}/mcp", **options) as streams:
                async with ClientSession(*streams[:2]) as session:
                    name: str = (await session.initialize()).serverInfo.name
                    return name

        header = "Bearer secret"
        assert await opens(headers={"Authorization": header}) == "guarded"
        assert await opens(auth="secret") == "guarded"
        assert await opens(auth=Token(header)) == "guarded"
        made = client.create_mcp_http_client(headers={"Authorization": header})
        assert await opens(httpx_client_factory=lambda **_: made) == "guarded"
        async with made as http_client:
            assert await opens(http_client=http_client) == "guarded"
        with pytest.raises(ConfigError, match="does not send a bearer token; pass headers="):
            await opens(auth=Token("Basic YTpi"))


@pytest.mark.parametrize(("installed", "count"), [("1.30.0", 3), ("2.3.0", 2), ("", 2)])
async def test_the_installed_sdk_decides_how_many_values_a_transport_yields(
    monkeypatch: pytest.MonkeyPatch, installed: str, count: int
) -> None:
    def version(name: str) -> str:
        if not installed:
            raise client.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(client.metadata, "version", version)
    url = "http://127.0.0.1:1/mcp"
    async with client.streamable_http_client(url) as values:
        assert len(values) == count
    async with client.streamablehttp_client(url) as (read, write, get_session_id):
        assert get_session_id() is None
        async with ClientSession(read, write) as session:
            with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1"):
                await session.initialize()


async def test_the_session_id_is_known_in_the_handshake_era() -> None:
    async with over_http(HANDSHAKE) as (read, write, get_session_id):
        async with ClientSession(read, write) as session:
            await session.initialize()
            assert get_session_id()


async def test_the_client_of_the_sdk_connects_by_itself() -> None:
    async with in_memory(mode="auto", cache=None) as sdk:
        assert sdk.session is sdk
        assert len((await sdk.list_tools(params=types.PaginatedRequestParams())).tools) == 4
    async with over_http(NEWEST) as (streams, *_):
        async with client.Client(streams.target) as sdk:
            assert sdk.initialize_result.serverInfo.name == "session"


async def test_the_client_of_fastmcp_returns_lists_and_can_be_opened_again() -> None:
    fastmcp, progress = Client(make_server()), list[Any]()
    for _ in range(2):
        async with fastmcp:
            assert len(await fastmcp.list_tools()) >= 9
            result = await fastmcp.call_tool(
                "add", {"a": 1, "b": 2}, progress_handler=lambda *update: progress.append(update)
            )
            assert (result.data, result.is_error, result.content[0].text) == (3, False, "3")
            assert (await fastmcp.read_resource("note://one"))[0].text == "Buy milk"
    assert progress == [(1, 2, "half")] * 2


async def test_the_client_of_fastmcp_has_a_sampling_handler() -> None:
    async def think(messages: Any, params: Any, context: Any) -> str:
        return f"{messages[0].content.text} {params.max_tokens}"

    async with Client(make_server(), sampling_handler=think) as fastmcp:
        assert (await fastmcp.call_tool("think")).data == "Think! 5"


def test_options_that_have_no_effect_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="ClientSession has no option experimental_task_handlers="
    ):
        ClientSession(None, experimental_task_handlers=object())
    with pytest.raises(ConfigError, match="Client has no option elicitation_handler="):
        Client(make_server(), elicitation_handler=print)
