"""What `dovetail.compat` takes, and what it says of what it does not take. What moved servers
answer is in tests/interop."""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.request import urlopen

import pytest
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dovetail import Client, compat
from dovetail.compat import (
    AcceptedElicitation,
    AssistantMessage,
    Audio,
    CallToolResult,
    CancelledElicitation,
    Context,
    CurrentContext,
    DeclinedElicitation,
    FastMCP,
    Icon,
    Image,
    ImageContent,
    MCPServer,
    Message,
    PromptMessage,
    ResourceError,
    ServerSession,
    TextContent,
    ToolAnnotations,
    ToolError,
    ToolResult,
    UserMessage,
)
from dovetail.errors import ConfigError, NotFound, ProtocolError
from dovetail.testing import pair
from tests.architecture.test_imports import loaded_by
from tests.behaviour.web import on_a_port
from tests.ports import free_port
from tests.transports.http.raw import on_port

both = pytest.mark.parametrize("kind", [FastMCP, MCPServer])


def test_importing_it_loads_nothing_but_itself_and_what_a_server_loads() -> None:
    more = loaded_by("from dovetail.compat import FastMCP, MCPServer, Context") - loaded_by(
        "from dovetail import Server"
    )
    more -= {"dovetail.server.options"}  # the options that it declares extend these
    assert {name.rpartition(".")[0] or name for name in more} <= {"dovetail", "dovetail.compat"}


def test_the_package_does_not_load_it() -> None:
    assert "dovetail.compat" not in loaded_by("from dovetail import Server, Client")


def test_every_name_that_it_says_it_has_is_there() -> None:
    assert compat.__all__ == sorted(compat.__all__)
    assert all(getattr(compat, name) is not None for name in compat.__all__)


def test_the_guide_names_all_of_it() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/moving.md").read_text(encoding="utf-8")
    assert [name for name in compat.__all__ if not re.search(rf"\b{name}\b", guide)] == []


# how a server is made


def test_positional_arguments_are_in_the_order_of_each_library() -> None:
    old, new = FastMCP("a", "instructions"), MCPServer("b", "title", "description", "instructions")
    assert (old.name, old.instructions, old.info.title) == ("a", "instructions", None)
    assert (new.name, new.instructions, new.info.title, new.info.description) == (
        "b",
        "instructions",
        "title",
        "description",
    )
    assert (FastMCP().name, MCPServer().name) == ("FastMCP", "mcp-server")


@both
def test_settings_are_taken_and_may_be_changed(kind: type[FastMCP]) -> None:
    server = kind(
        "s", host="0.0.0.0", port=9, log_level="DEBUG", stateless_http=True, dependencies=["rich"]
    )
    assert (server.settings.host, server.settings.port, server.settings.stateless_http) == (
        "0.0.0.0",
        9,
        True,
    )
    assert (server.settings.streamable_http_path, server.dependencies) == ("/mcp", ["rich"])
    server.settings.port = 10
    assert server.settings.port == 10


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"token_verifier": object()}, "AuthSettings"),
    ({"auth_server_provider": object()}, "auth=Provider"),
    ({"auth": object()}, "must be a guard"),
    ({"session_idle_timeout": 5}, "session_idle"),
    ({"sampling_handler": print}, "CannotAsk"),
    ({"on_duplicate": "nonsense"}, 'use "warn"'),
    ({"strict_input_validation": True}, "is accepted as a number"),
    ({"nonsense": 1}, "has no option nonsense="),
]


@both
@pytest.mark.parametrize(
    ("options", "said"), REFUSED, ids=[next(iter(options)) for options, _ in REFUSED]
)
def test_an_option_that_is_not_taken_says_what_to_use(
    kind: type[FastMCP], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        kind("s", **options)


@both
def test_options_that_change_nothing_are_taken(kind: type[FastMCP]) -> None:
    kind(
        "s",
        debug=False,
        strict_input_validation=False,
        warn_on_duplicate_tools=False,
        auth=None,
        event_store=None,
        session_idle_timeout="auto",
    )


METHODS = ["from_fastapi"]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_is_not_there_says_what_to_use(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no FastMCP\.{name}: ."):
        getattr(FastMCP("s"), name)


async def test_an_api_becomes_a_server_of_this_class() -> None:
    info = {"title": "Pets", "version": "1"}
    operation = {"operationId": "listPets", "responses": {"200": {"description": "All pets"}}}
    document = {"openapi": "3.1.0", "info": info, "paths": {"/pets": {"get": operation}}}
    server = FastMCP.from_openapi(document, base_url="http://127.0.0.1:1")
    assert isinstance(server, FastMCP)
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["listPets"]


async def test_a_server_can_be_mounted_in_another() -> None:
    inner, outer = FastMCP("inner"), FastMCP("outer")

    @inner.tool()
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    outer.mount(inner, prefix="math")
    async with Client(outer) as client:
        assert (await client.call_tool("math_double", {"number": 4})).data == 8


async def test_a_subclass_may_filter_tools_also_those_of_mounted_servers() -> None:
    class Filtered(FastMCP):
        async def _list_tools_mcp(self) -> Any:
            return [tool.to_mcp_tool() for tool in await self.list_tools() if "no" not in tool.tags]

        async def _call_tool_mcp(self, key: str, arguments: Any = None) -> Any:
            assert self._mcp_server.request_context is not None
            if "no" in (await self.get_tool(key)).tags:
                raise ToolError(f"Unknown tool: {key}")
            return await super()._call_tool_mcp(key, arguments)

    inner = FastMCP("inner")
    inner.add_tool(lambda: 1, name="open")
    inner.add_tool(lambda: 2, name="shut", tags={"no"})
    server = Filtered("outer")
    server.add_tool(lambda: 3, name="own", tags={"no"})
    server.mount(inner, "in")
    async with pair(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["in_open"]
        assert (await client.call_tool("in_open")).data == 1
        for name in ("own", "in_shut"):
            with pytest.raises(ToolError, match="Unknown tool"):
                await client.call_tool(name)


def test_an_unknown_hook_is_an_error() -> None:
    class Hooked(FastMCP):
        async def _dream_mcp(self) -> None: ...

    with pytest.raises(AttributeError, match="dream"):
        Hooked("a")


def test_a_server_class_may_have_type_arguments() -> None:
    class Own(FastMCP[dict[str, str]]):  # type: ignore[type-arg]
        pass

    assert (Own("a").name, MCPServer[int]("b").name) == ("a", "b")  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(compat.ELSEWHERE))
def test_a_name_that_cannot_be_imported_says_what_to_use(name: str) -> None:
    with pytest.raises(ImportError, match=rf"{name} is not in dovetail.compat: ."):
        exec(f"from dovetail.compat import {name}")
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        exec("from dovetail.compat import Nonsense")


# components


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"auth": print}, "scopes="),
    ({"serializer": str}, "return the text to send"),
    ({"run_in_thread": False}, "async def"),
]


@pytest.mark.parametrize(
    ("options", "said"), OPTIONS, ids=[next(iter(options)) for options, _ in OPTIONS]
)
def test_an_option_of_a_tool_that_is_not_taken_says_what_to_use(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        FastMCP("s").tool(lambda a: a, name="t", **options)


def test_what_is_no_function_is_refused() -> None:
    for add in (FastMCP("s").add_tool, FastMCP("s").add_resource, FastMCP("s").add_prompt):
        with pytest.raises(ConfigError, match="accepts a function, not a str"):
            add("tool")  # type: ignore[arg-type]


async def test_a_tool_is_registered_in_every_way_that_the_peers_have() -> None:
    def work(a: int) -> int:
        return a

    server = FastMCP("s", tools=[work])
    assert server.tool(work, name="called") is work
    server.add_tool(
        work, "added", description="Works", annotations=ToolAnnotations(readOnlyHint=True)
    )
    server.tool("first", tags={"b", "a"})(work)
    server.tool(
        name="named",
        structured_output=False,
        task=False,
        icons=[Icon(src="https://example.com/i.png")],
    )(work)
    async with pair(server) as client:
        listed = {tool.name: tool for tool in await client.list_tools()}
        assert list(listed) == ["work", "called", "added", "first", "named"]
        assert listed["added"].annotations is not None
        assert (listed["added"].description, listed["added"].annotations.read_only_hint) == (
            "Works",
            True,
        )
        assert listed["first"].meta == {"fastmcp": {"tags": ["a", "b"]}}
        assert listed["named"].output_schema is None
        result = await client.call_tool("named", {"a": 1})
        assert (result.text, result.structured_content) == ("1", None)


class Greeter:
    async def __call__(self, name: str) -> dict[str, str]:
        """Greets."""
        return {"hello": name}


def greeting(greeter: Greeter, name: str, loud: bool = False) -> Any:
    """Greets too."""
    return greeter(name)


@pytest.mark.parametrize(
    ("function", "description"),
    [
        (Greeter(), "Greets."),
        (partial(greeting, Greeter(), loud=True), "Greets too."),
        (Greeter().__call__, "Greets."),
    ],
    ids=["object", "partial", "method"],
)
async def test_whatever_can_be_called_can_be_without_structured_content(
    function: Any, description: str
) -> None:
    server = FastMCP("s")
    server.add_tool(function, "greet", structured_output=False)
    async with pair(server) as client:
        (tool,) = await client.list_tools()
        assert (tool.description, tool.output_schema) == (description, None)
        assert tool.input_schema["properties"] == {"name": {"type": "string"}}
        result = await client.call_tool("greet", {"name": "Ada"})
    assert (result.text, result.structured_content) == ('{"hello":"Ada"}', None)


async def test_a_star_in_a_template_takes_slashes() -> None:
    server = FastMCP("s")

    @server.resource("files://{path*}")
    def file(path: str) -> str:
        return path

    async with pair(server) as client:
        contents = (await client.read_resource("files://a/b.txt"))[0]
    assert (contents.text, contents.mime_type) == ("a/b.txt", "text/plain")


async def test_resource_errors_reach_the_client() -> None:
    server = MCPServer("s")

    @server.resource("x://y")
    def broken() -> str:
        raise ResourceError("gone")

    async with pair(server) as client:
        with pytest.raises((NotFound, ProtocolError), match="gone"):
            await client.read_resource("x://y")


async def test_completion_may_give_a_list_or_nothing() -> None:
    server = FastMCP("s")

    @server.prompt
    def greet(name: str, other: str = "") -> str:
        return name

    @server.completion
    async def complete(ref: Any, argument: Any, context: Any) -> list[str] | None:
        return ["Ada"] if argument.name == "name" else None

    async with pair(server) as client:
        assert (await client.complete(prompt="greet", argument="name", value="")).values == ["Ada"]
        assert (await client.complete(prompt="greet", argument="other", value="")).values == []
        assert client.capabilities.completions == {}


# values


def test_values_are_made_in_either_spelling() -> None:
    assert TextContent(type="text", text="a") == TextContent(text="a")
    image = ImageContent(type="image", data="AAAA", mimeType="image/png", _meta={"a": 1})
    assert (image.mime_type, image.meta) == ("image/png", {"a": 1})
    assert isinstance(image, ImageContent)
    assert not isinstance(image, TextContent)
    full = CallToolResult(content=[], structuredContent={"a": 1}, isError=False)
    assert full.structured_content == {"a": 1}
    assert PromptMessage(role="user", content=TextContent(type="text", text="a")).role == "user"
    assert [
        one.role
        for one in (
            Message("a"),
            Message("a", role="assistant"),
            UserMessage("a"),
            AssistantMessage("a"),
        )
    ] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_pictures_and_sounds_have_their_format(tmp_path: Any) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    assert Image(data=b"", format="jpeg").content().mime_type == "image/jpeg"
    assert Image(tmp_path / "a.png").content().mime_type == "image/png"
    assert Audio(data=b"RIFF", format="wav").content().mime_type == "audio/wav"


def test_a_full_result_shows_what_it_is_given() -> None:
    assert ToolResult(structured_content={"a": 1}).content[0].text == '{"a":1}'
    assert ToolResult("said", structured_content={"a": 1}, meta={"b": 2}).content[0].text == "said"
    assert ToolResult([TextContent(text="a"), "b"]).content[1].text == "b"


async def test_a_tool_may_say_in_its_signature_that_it_returns_them() -> None:
    server = FastMCP("s")

    @server.tool
    def full(empty: bool) -> ToolResult | None:
        return None if empty else ToolResult("said", {"a": 1})

    @server.tool
    def content() -> list[TextContent | ImageContent]:
        return [TextContent(type="text", text="said")]

    async with pair(server) as client:
        assert [tool.output_schema for tool in await client.list_tools()] == [None, None]
        assert (await client.call_tool("full", {"empty": False})).structured_content == {"a": 1}
        assert (await client.call_tool("full", {"empty": True})).content == []
        assert (await client.call_tool("content")).text == "said"


# the context


async def context_of(use: Callable[[Any], Any], **callbacks: Any) -> Any:
    """What a use of the context gives, in a tool that is called."""
    found: list[Any] = []

    @asynccontextmanager
    async def lifespan(server: FastMCP) -> AsyncIterator[dict[str, str]]:
        yield {"db": "open"}

    server = FastMCP("s", lifespan=lifespan)

    @server.resource("doc://a")
    def a() -> bytes:
        return b"\x00"

    @server.tool
    async def tool(
        ctx: Annotated[Context[ServerSession, dict], "why not"] = CurrentContext(),  # noqa: B008
    ) -> None:
        found.append(await _awaited(use(ctx)))

    async with pair(server, **callbacks) as client:
        await client.call_tool("tool")
    return found[0]


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


async def test_what_a_context_knows() -> None:
    def look(ctx: Context) -> tuple[Any, ...]:
        assert isinstance(ctx.request_id, str)
        assert ctx.protocol_version == ctx.revision
        return (
            ctx.client_id,
            ctx.lifespan_context,
            ctx.request_context.lifespan_context["db"],
            ctx.fastmcp.name,
        )

    assert await context_of(look) == (None, {"db": "open"}, "open", "s")


async def test_a_context_logs_in_the_words_of_both() -> None:
    entries: list[tuple[Any, ...]] = []

    async def talk(ctx: Context) -> None:
        await ctx.log("info", "official")
        await ctx.log("fast", level="warning", logger_name="l")
        await ctx.log("plain")
        await ctx.log("positional", "warning", "l", {"a": 1})
        await ctx.log({"any": "thing"}, "notice")
        await ctx.log("no level", None)
        await ctx.log("info", "error")
        await ctx.log("error", {"any": "thing"})
        await ctx.error("with", extra={"a": 1})
        await ctx.debug("more", b=2)
        await ctx.session.send_log_message("notice", "session")

    await context_of(
        talk, on_log=lambda entry: entries.append((entry.level, entry.data, entry.logger))
    )
    assert entries == [
        ("info", "official", None), ("warning", "fast", "l"), ("info", "plain", None),
        ("warning", {"message": "positional", "a": 1}, "l"), ("notice", {"any": "thing"}, None),
        ("info", "no level", None), ("info", "error", None), ("error", {"any": "thing"}, None),
        ("error", {"message": "with", "a": 1}, None), ("debug", {"message": "more", "b": 2}, None),
        ("notice", "session", None),
    ]  # fmt: skip


async def test_a_context_reads_parts_with_content() -> None:
    parts = await context_of(lambda ctx: ctx.read_resource("doc://a"))
    assert [(part.content, part.mime_type) for part in parts] == [(b"\x00", "text/plain")]
    assert parts.contents[0].content == b"\x00"


class Person(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("given", "answer", "data"),
    [
        ({"schema": Person}, {"name": "Ada"}, Person(name="Ada")),
        ({"response_type": ["a", "b"]}, {"value": "b"}, "b"),
    ],
)
async def test_a_context_asks_by_either_name(given: dict[str, Any], answer: Any, data: Any) -> None:
    got = await context_of(
        lambda ctx: ctx.elicit("Who?", **given), on_elicit=lambda request: answer
    )
    assert isinstance(got, AcceptedElicitation)
    assert not isinstance(got, DeclinedElicitation | CancelledElicitation)
    assert got.data == data
    refused = await context_of(
        lambda ctx: ctx.elicit("Who?", **given), on_elicit=lambda request: None
    )
    assert isinstance(refused, DeclinedElicitation)


async def test_a_context_asks_the_model_and_for_roots() -> None:
    asked: list[Any] = []

    def sample(request: Any) -> str:
        asked.append(
            (
                request.max_tokens,
                request.model_preferences and request.model_preferences.hints[0].name,
            )
        )
        return "so"

    said = await context_of(
        lambda ctx: ctx.sample("say", model_preferences="small"), on_sample=sample
    )
    message = await context_of(
        lambda ctx: ctx.session.create_message(["say"], max_tokens=9), on_sample=sample
    )
    assert (said.text, message.content.text) == ("so", "so")
    assert asked == [(512, "small"), (9, None)]
    roots = await context_of(lambda ctx: ctx.session.list_roots(), roots=["file:///a"])
    assert [root.uri for root in roots.roots] == ["file:///a"]


async def test_a_session_tells_of_changes() -> None:
    server = FastMCP("s")
    heard: list[str] = []

    @server.tool
    async def tell(ctx: Context) -> None:
        await ctx.session.send_tool_list_changed()
        await ctx.session.send_resource_list_changed()
        await ctx.session.send_prompt_list_changed()

    async with pair(server, revision="handshake") as client:
        for kind in ("tools", "resources", "prompts"):
            await client.on_change(kind, heard.append)
        await client.call_tool("tell")
        await client.ping()
    assert sorted(heard) == ["prompts", "resources", "tools"]


@pytest.mark.parametrize("name", ["nonsense"])
async def test_what_a_context_lacks_is_said(name: str) -> None:
    with pytest.raises(ToolError, match=rf"has no Context\.{name}"):
        await context_of(lambda ctx: getattr(ctx, name))
    with pytest.raises(ToolError, match=rf"has no ServerSession\.{name}"):
        await context_of(lambda ctx: getattr(ctx.session, name))


# running


@both
@pytest.mark.parametrize("make", ["http_app", "streamable_http_app", "sse_app"])
async def test_an_application_has_a_lifespan_to_hand_on(kind: type[FastMCP], make: str) -> None:
    life: list[str] = []

    @asynccontextmanager
    async def lifespan(server: FastMCP) -> AsyncIterator[None]:
        life.append("begun")
        yield
        life.append("ended")

    server = kind("s", lifespan=lifespan)
    app = getattr(server, make)()
    async with app.lifespan(object()), server.session_manager.run():
        assert life == ["begun"]
    assert life == ["begun", "ended"]


def test_an_application_takes_the_options_of_both() -> None:
    server = FastMCP("s")
    server.http_app(
        path="/", stateless_http=True, json_response=True, allowed_hosts=["example.com"]
    )
    server.streamable_http_app(streamable_http_path="/x")
    for wrong, said in (
        ({"middleware": [print]}, "wrap the application"),
        ({"transport": "stdio"}, "Unknown transport 'stdio'"),
    ):
        with pytest.raises(ConfigError, match=said):
            server.http_app(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stateless_http", "stateless"])
async def test_what_an_application_is_told_counts_more_than_the_settings(name: str) -> None:
    server = FastMCP("s", stateless_http=True, json_response=True)

    @server.tool
    async def talk(ctx: Context) -> None:
        await ctx.info("said")

    for options, session, kind in (
        ({}, False, "application/json"),
        ({name: False, "json_response": False}, True, "text/event-stream"),
    ):
        async with on_port(server.http_app(**options)) as site:
            talking = await site.greet()
            assert (talking.id is not None) is session
            assert (await talking.call("talk")).headers["content-type"] == kind


async def test_a_port_that_is_nought_counts_more_than_the_settings() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    with taken:
        serving = asyncio.ensure_future(
            FastMCP("s", port=taken.getsockname()[1]).run_async("http", port=0)
        )
        await asyncio.sleep(0)  # now it listens, or has failed to
        assert not serving.done()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


def test_running_says_what_cannot_be_done() -> None:
    server = FastMCP("s")
    for options, said in (
        ({"transport": "ws"}, "Unknown transport 'ws'"),
        ({"transport": "sse", "mount_path": "/x"}, "mount http_app"),
        ({"transport": "http", "uvicorn_config": {"a": 1}}, "uvicorn.run"),
        ({"transport": "http", "middleware": [print]}, "wrap the application"),
    ):
        with pytest.raises(ConfigError, match=said):
            server.run(**options)


@both
@pytest.mark.parametrize(
    "run", ["run_async", "run_http_async", "run_streamable_http_async", "run_sse_async"]
)
async def test_a_server_runs_in_a_loop_that_is_there(kind: type[FastMCP], run: str) -> None:
    server = kind("s")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    port = free_port()
    more = {"transport": "http"} if run == "run_async" else {}
    serving = asyncio.ensure_future(getattr(server, run)(port=port, **more))
    path = "/sse" if run == "run_sse_async" else "/mcp"
    await asyncio.sleep(0)  # now it listens
    try:
        async with Client(f"http://127.0.0.1:{port}{path}") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    finally:
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


@both
async def test_a_custom_route_is_a_page_beside_the_endpoint(kind: type[FastMCP]) -> None:
    server = kind("s")

    @server.custom_route("/items/{name}", methods=["GET", "POST"])
    async def item(request: Request) -> Response:
        return PlainTextResponse(f"{request.method} {request.path_params['name']}")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    async with on_a_port(server.http_app()) as site:
        page = await asyncio.to_thread(
            lambda: urlopen(f"http://{site}/items/tea", timeout=10).read()
        )
        assert page == b"GET tea"
        async with Client(f"http://{site}/mcp") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


def test_a_log_level_is_for_the_programs_own_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: chosen.append(options["level"]))
    monkeypatch.setenv("DOVETAIL_ISOLATED", "1")
    FastMCP("s", log_level="debug").run()
    FastMCP("s").run()
    assert chosen == ["DEBUG"]
