"""What a program does with its own server."""

import logging
from typing import Any

import pytest

from dovetail import Client
from dovetail.auth import ApiKeys
from dovetail.compat import (
    Context,
    FastMCP,
    MCPServer,
    Middleware,
    SDKFastMCP,
    StaticTokenVerifier,
    get_context,
    require_scopes,
)
from dovetail.errors import ConfigError, Forbidden, NotFound, ToolError, Unauthorized
from dovetail.ports import Principal
from dovetail.protocol import Implementation
from dovetail.testing import pair
from tests.behaviour.web import on_a_port

kinds = pytest.mark.parametrize("kind", [FastMCP, SDKFastMCP, MCPServer])


def library(kind: type[FastMCP] = FastMCP, **options: Any) -> FastMCP:
    server = kind("library", **options)

    @server.tool(tags={"read"})
    def find(title: str) -> dict[str, str]:
        """Finds a book."""
        return {"title": title}

    @server.tool(tags={"write"})
    def lend(title: str) -> str:
        raise ToolError("it is lent")

    @server.resource(uri="books://all", tags={"read"})
    def books() -> str:
        return "Emma"

    @server.resource("books://{title}")
    def book(title: str) -> str:
        return title

    @server.prompt(name="review")
    def review(title: str) -> str:
        return f"Review {title}"

    return server


@kinds
async def test_components_are_listed(kind: type[FastMCP]) -> None:
    server = library(kind)
    tools = await server.list_tools()
    assert [tool.name for tool in tools] == ["find", "lend"]
    assert tools[0].description == "Finds a book."
    assert tools[0].inputSchema["required"] == ["title"]
    assert [one.uri for one in await server.list_resources()] == ["books://all"]
    assert [one.uriTemplate for one in await server.list_resource_templates()] == [
        "books://{title}"
    ]
    assert [one.name for one in await server.list_prompts()] == ["review"]


async def test_components_are_found_by_name() -> None:
    server = library()
    tool = await server.get_tool("find")
    assert (tool.name, tool.tags, tool.fn("Emma")) == ("find", {"read"}, {"title": "Emma"})
    assert list(await server.get_tools()) == ["find", "lend"]
    assert list(await server.get_resources()) == ["books://all"]
    assert list(await server.get_resource_templates()) == ["books://{title}"]
    assert list(await server.get_prompts()) == ["review"]
    assert (await server.get_prompt("review")).name == "review"
    with pytest.raises(NotFound, match="Unknown tool: 'nothing'"):
        await server.get_tool("nothing")


@kinds
async def test_components_are_used(kind: type[FastMCP]) -> None:
    server = library(kind)
    render = server.render_prompt if kind is FastMCP else server.get_prompt
    assert (await render("review", {"title": "Emma"})).messages[0].content.text == "Review Emma"
    (part,) = await server.read_resource("books://Emma")
    assert (part.content, part.mime_type) == ("Emma", "text/plain")
    with pytest.raises(ToolError, match="it is lent"):
        await server.call_tool("lend", {"title": "Emma"})
    result = await server.call_tool("find", {"title": "Emma"})
    if kind is SDKFastMCP:
        content, data = result
    else:
        content, data = result.content, result.structured_content
    assert (content[0].text, data) == ('{"title":"Emma"}', {"title": "Emma"})


async def test_a_tool_may_call_another_one_for_the_same_client() -> None:
    server, seen = library(), list[str]()

    @server.tool
    async def outer(ctx: Context) -> Any:
        return (await ctx.fastmcp.call_tool("inner", {})).data

    @server.tool
    async def inner(ctx: Context) -> str:
        await ctx.info("inside")
        return str((await get_context().elicit("Who?", str)).data)

    async with pair(
        server, on_elicit=lambda _: {"value": "Ada"}, on_log=lambda entry: seen.append(entry.data)
    ) as client:
        assert (await client.call_tool("outer")).data == "Ada"
    assert seen == ["inside"]


async def test_a_call_without_a_client_cannot_ask_one() -> None:
    server = library()

    @server.tool
    async def asks(ctx: Context) -> Any:
        await ctx.info("nobody hears it")
        await ctx.report_progress(1, 2)
        return await ctx.elicit("Who?", str)

    with pytest.raises((ToolError, Exception), match="client"):
        await server.call_tool("asks")


async def test_calls_of_the_program_pass_through_middleware() -> None:
    names: list[str] = []

    class Watch(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            names.append(context.message.name)
            return await call_next(context)

    await library(middleware=[Watch()]).call_tool("find", {"title": "Emma"})
    assert names == ["find"]


@kinds
async def test_managers_list_the_same_components(kind: type[FastMCP]) -> None:
    server = library(kind)
    manager = server._tool_manager
    assert [tool.name for tool in manager.list_tools()] == ["find", "lend"]
    assert list(manager._tools) == ["find", "lend"]
    assert manager.get_tool("find").name == "find"
    assert manager.get_tool("nothing") is None
    assert list(await manager.get_tools()) == ["find", "lend"]
    assert await manager.call_tool("find", {"title": "Emma"})
    manager.remove_tool("lend")
    manager.add_tool(lambda: 1, "one")
    assert list(manager._tools) == ["find", "one"]
    assert [one.uri for one in server._resource_manager.list_resources()] == ["books://all"]
    assert list(server._resource_manager._templates) == ["books://{title}"]
    assert [one.name for one in server._prompt_manager.list_prompts()] == ["review"]


@kinds
async def test_the_server_inside_has_a_name_and_a_version(kind: type[FastMCP]) -> None:
    server = library(kind)
    inner = server._mcp_server if kind is not MCPServer else server._lowlevel_server
    inner.version = "1.2"
    inner.instructions = "Read."
    assert (inner.name, inner.version, server.version) == ("library", "1.2", "1.2")
    async with pair(server) as client:
        assert (client.server_info.version, client.instructions) == ("1.2", "Read.")
    with pytest.raises(AttributeError, match="cannot be changed"):
        inner.request_handlers = {}


# visibility


async def names(server: FastMCP) -> list[str]:
    return [
        *(tool.name for tool in await server.list_tools()),
        *(resource.name for resource in await server.list_resources()),
        *(prompt.name for prompt in await server.list_prompts()),
    ]


async def test_components_are_hidden_and_shown_again() -> None:
    server = library()
    server.disable(tags={"write"})
    assert await names(server) == ["find", "books", "review"]
    async with pair(server) as client:
        with pytest.raises(Exception, match="Unknown tool"):
            await client.call_tool("lend", {"title": "Emma"})
    server.disable(names={"books"}, components={"resource"})
    assert await names(server) == ["find", "review"]
    server.enable(names={"books"})
    server.enable(keys={"tool:lend"})
    assert sorted(await names(server)) == ["books", "find", "lend", "review"]
    server.enable(tags={"read"}, only=True)
    assert sorted(await names(server)) == ["books", "find"]
    server.tool(lambda: 1, name="later")
    assert sorted(await names(server)) == ["books", "find"]


async def test_tags_and_options_hide_components() -> None:
    assert await names(library(exclude_tags={"write"})) == ["find", "books", "review"]
    assert await names(library(include_tags={"write"})) == ["lend"]
    server = library()
    server.tool(lambda: 1, name="off", enabled=False)
    assert "off" not in await names(server)
    server.enable(names={"off"})
    assert "off" in await names(server)


async def test_a_template_can_be_disabled() -> None:
    server = FastMCP("s")
    server.resource("t://{name}", enabled=False)(lambda name: name)
    server.resource("u://{name}", name="off", enabled=False)(lambda name: name)
    server.resource("u://on", name="off")(lambda: "on")
    async with Client(server) as client:
        assert await client.list_resource_templates() == []
        assert [each.uri for each in await client.list_resources()] == ["u://on"]
        for uri in ("t://a", "u://a"):
            with pytest.raises(Exception, match=r"not found|Unknown|no resource"):
                await client.read_resource(uri)


async def test_a_session_may_see_other_components() -> None:
    server = library()
    server.disable(tags={"write"})

    @server.tool
    async def change(ctx: Context, shows: bool) -> None:
        await (ctx.enable_components if shows else ctx.disable_components)(tags={"write", "read"})

    @server.tool
    async def reset(ctx: Context) -> None:
        await ctx.reset_visibility()

    async with (
        pair(server, revision="handshake") as one,
        pair(server, revision="handshake") as other,
    ):

        async def tools(client: Client) -> list[str]:
            return [tool.name for tool in await client.list_tools()]

        await one.call_tool("change", {"shows": True})
        assert await tools(one) == ["find", "lend", "change", "reset"]
        assert await tools(other) == ["find", "change", "reset"]
        with pytest.raises(ToolError, match="it is lent"):
            await one.call_tool("lend", {"title": "Emma"})
        with pytest.raises(Exception, match="Unknown tool"):
            await other.call_tool("lend", {"title": "Emma"})
        await one.call_tool("change", {"shows": False})
        assert await tools(one) == ["change", "reset"]
        await one.call_tool("reset")
        assert await tools(one) == ["find", "change", "reset"]


async def test_a_component_that_a_session_shows_still_requires_its_scopes() -> None:
    tokens = {"t": {"client_id": "app", "scopes": ["read"]}}
    server = FastMCP("s", auth=StaticTokenVerifier(tokens))
    server.tool(lambda: 1, name="secret", auth=require_scopes("admin"), enabled=False)

    @server.tool
    async def show(ctx: Context) -> None:
        await ctx.enable_components(names={"secret"})

    async with on_a_port(server.http_app()) as site:
        async with Client(f"http://{site}/mcp", auth="t", revision="2025-11-25") as client:
            await client.call_tool("show")
            with pytest.raises(Unauthorized, match="admin"):
                await client.call_tool("secret")


# duplicates


@pytest.mark.parametrize(
    ("kind", "policy", "kept", "logged"),
    [
        (FastMCP, None, "second", 1),
        (FastMCP, "replace", "second", 0),
        (FastMCP, "ignore", "first", 0),
        (SDKFastMCP, None, "first", 1),
        (MCPServer, None, "first", 1),
    ],
)
async def test_two_tools_with_one_name(
    kind: type[FastMCP],
    policy: str | None,
    kept: str,
    logged: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = kind("s", on_duplicate=policy)
    with caplog.at_level(logging.WARNING):
        for word in ("first", "second"):
            server.tool(lambda: 1, name="tool", description=word)
    assert [tool.description for tool in await server.list_tools()] == [kept]
    assert len([one for one in caplog.records if "'tool' already exists" in one.message]) == logged


def test_two_tools_with_one_name_may_be_an_error() -> None:
    server = FastMCP("s", on_duplicate="error")
    server.tool(lambda: 1, name="tool")
    with pytest.raises(ConfigError, match="already exists"):
        server.tool(lambda: 1, name="tool")
    with pytest.raises(ConfigError, match='use "warn"'):
        FastMCP("s", on_duplicate="nonsense")


# the wire


async def test_the_sdk_sends_lists_and_errors_in_its_own_way() -> None:
    for kind, blocks, said in (
        (FastMCP, ['["a",["b"]]'], "no"),
        (SDKFastMCP, ["a", "b"], "Error executing tool fail: no"),
        (MCPServer, ["a", "b"], "Error executing tool fail"),
    ):
        server = kind("s")

        @server.tool()
        def listed() -> list[Any]:
            return ["a", ["b"]]

        @server.tool()
        def fail() -> None:
            raise ValueError("no")

        async with pair(server) as client:
            result = await client.call_tool("listed")
            assert [block.text for block in result.content] == blocks
            assert result.data == ["a", ["b"]]
            with pytest.raises(ToolError, match=f"^{said}$"):
                await client.call_tool("fail")


async def test_an_unknown_tool_is_a_result_in_the_sdk() -> None:
    async with pair(library(SDKFastMCP)) as client:
        with pytest.raises(ToolError, match=r"^Unknown tool: nothing$"):
            await client.call_tool("nothing")


async def test_a_call_of_the_program_needs_the_scopes_of_the_client_that_it_acts_for() -> None:
    server = FastMCP("s", auth=ApiKeys({"a-key-of-sixteen": "ada"}))

    @server.tool(scopes=["admin"])
    def erase() -> str:
        return "erased"

    @server.tool
    async def run(name: str) -> Any:
        return (await server.call_tool(name)).data

    assert (await server.call_tool("erase")).data == "erased"
    async with pair(server, user=Principal("ada")) as client:
        with pytest.raises(Forbidden, match="admin"):
            await client.call_tool("run", {"name": "erase"})


async def test_the_server_inside_accepts_handlers_that_see_the_current_client() -> None:
    server = SDKFastMCP("library")
    server.add_tool(lambda: 1, "one")
    server.add_tool(lambda: 2, "two")

    async def list_tools() -> list[Any]:
        session = server.get_context().session
        assert session.client_params.client_info.name == "reader"
        assert "extensions" in session.client_params.capabilities.model_extra
        return [tool for tool in await server.list_tools() if tool.name != "two"]

    server._mcp_server.list_tools()(list_tools)
    info = Implementation(name="reader", version="1")
    async with pair(server, info=info) as client:
        assert [tool.name for tool in await client.list_tools()] == ["one"]
        assert (await client.call_tool("two")).data == 2
    with pytest.raises(RuntimeError, match="no active context"):
        server.get_context()


async def test_release_2_of_the_sdk_hides_the_text_of_an_exception() -> None:
    for options, said in (({}, ""), ({"mask_errors": False}, ": secret")):
        server = MCPServer("s", **options)

        @server.tool()
        def fail(expected: bool) -> None:
            raise ToolError("told") if expected else ValueError("secret")

        async with pair(server) as client:
            for expected, text in ((True, ": told"), (False, said)):
                result = await client.call_tool(
                    "fail", {"expected": expected}, raise_on_error=False
                )
                assert result.text == f"Error executing tool fail{text}"
