"""Extensions and apps of release 2 of the official SDK, and methods of a low-level server's own."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel, Field

from dovetail.compat import (
    APP_MIME_TYPE,
    EXTENSION_ID,
    Apps,
    CallToolResult,
    Context,
    Extension,
    FileResource,
    LowLevelServer,
    MCPServer,
    MethodBinding,
    RequestParams,
    ResourceCsp,
    ResourcePermissions,
    Result,
    TextContent,
    ToolBinding,
    client_supports_apps,
    require_client_extension,
)
from dovetail.errors import InvalidParams, MethodNotFound
from dovetail.extensions import Extension as ProtocolExtension, Method, Params, settings_of
from dovetail.extensions.apps import APPS
from dovetail.protocol import Result as ProtocolResult
from dovetail.testing import bare, pair

ID = "com.example/search"


class SearchParams(RequestParams):
    query: str
    limit: int = Field(default=2, ge=1, le=5)


class SearchResult(Result):
    items: list[str]


class Count(BaseModel):
    number: int


async def search(ctx: Any, params: Any) -> Any:
    return SearchResult(items=[f"{params.query}-{n}" for n in range(params.limit)])


async def guarded(ctx: Any, params: Any) -> Any:
    require_client_extension(ctx, ID)
    return await search(ctx, params)


async def count(ctx: Any, params: Any) -> Any:
    return Count(number=len(ctx.params.get("query", "")))


def suggest(prefix: str) -> str:
    return f"{prefix}!"


class Search(Extension):
    identifier = ID

    def settings(self) -> dict[str, Any]:
        return {"suggest": True}

    def tools(self) -> Sequence[Any]:
        return [ToolBinding(fn=suggest)]

    def methods(self) -> Sequence[Any]:
        versions = frozenset({"2026-07-28"})
        return [
            MethodBinding("com.example/search", SearchParams, search),
            MethodBinding("com.example/guarded", SearchParams, guarded),
            MethodBinding("com.example/new", SearchParams, search, protocol_versions=versions),
        ]


NAMES = ("com.example/search", "com.example/guarded", "com.example/new")


class Query(Params, kw_only=True):
    query: str
    limit: int | None = None


class Found(ProtocolResult, kw_only=True):
    items: list[str]


def client_side(*names: str, id: str = ID) -> Any:
    return ProtocolExtension(
        id=id, methods=[Method(name, "client", Query, Found) for name in names], mutual=False
    )


@pytest.mark.parametrize("revision", ["handshake", "stateless"])
async def test_an_extension_adds_settings_tools_and_methods(revision: Any) -> None:
    server = MCPServer("shop", extensions=[Search()])
    async with pair(server, revision=revision, extensions=[client_side(*NAMES)]) as client:
        assert settings_of(ID, client.capabilities) == {"suggest": True}
        assert (await client.call_tool("suggest", {"prefix": "a"})).data == "a!"
        found = await client.request("com.example/search", Query(query="b"))
        assert found.items == ["b-0", "b-1"]
        found = await client.request("com.example/guarded", Query(query="b", limit=1))
        assert found.items == ["b-0"]


async def test_params_are_checked_with_the_bounds_of_their_fields() -> None:
    async with pair(
        MCPServer("shop", extensions=[Search()]), extensions=[client_side(*NAMES)]
    ) as client:
        with pytest.raises(InvalidParams, match="<= 5"):
            await client.request("com.example/search", Query(query="b", limit=9))


async def test_a_method_exists_only_in_its_protocol_versions() -> None:
    server = MCPServer("shop", extensions=[Search()])
    declared = [client_side(*NAMES)]
    async with pair(server, revision="stateless", extensions=declared) as client:
        assert (await client.request("com.example/new", Query(query="b"))).items
    async with pair(server, revision="handshake", extensions=declared) as client:
        with pytest.raises(MethodNotFound):
            await client.request("com.example/new", Query(query="b"))


async def test_a_handler_may_require_that_the_client_declares_the_extension() -> None:
    async with bare(MCPServer("shop", extensions=[Search()])) as peer:
        await peer.greet("2025-11-25")
        reply = await peer.ask("com.example/guarded", {"query": "b"})
    assert "com.example/search" in reply["error"]["message"]
    assert reply["error"]["data"] == {"requiredCapabilities": {"extensions": {ID: {}}}}


async def test_an_extension_wraps_calls_of_tools_and_may_answer_them() -> None:
    seen: list[Any] = []

    class Audit(Extension):
        identifier = "com.example/audit"

        async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
            seen.append((params.name, params.arguments, ctx.method))
            if params.arguments["prefix"] == "stop":
                return CallToolResult(content=[TextContent(text="stopped")])
            result = await call_next(ctx)
            result.content.append(TextContent(text="audited"))
            return result

    server = MCPServer("shop", extensions=[Audit()])
    server.add_tool(suggest)
    async with pair(server) as client:
        assert (await client.call_tool("suggest", {"prefix": "a"})).text == "a!\naudited"
        assert (await client.call_tool("suggest", {"prefix": "stop"})).text == "stopped"
    assert seen[0] == ("suggest", {"prefix": "a"}, "tools/call")


async def test_a_low_level_server_has_methods_of_its_own_without_declaring_them() -> None:
    server: Any = LowLevelServer("shop")
    server.add_request_handler("acme/search", SearchParams, search)
    server.add_request_handler("acme/count", SearchParams, count)
    async with bare(server) as peer:
        about = await peer.greet("2025-11-25")
        assert "extensions" not in about["result"]["capabilities"]
        found = await peer.ask("acme/search", {"query": "b"})
        assert found["result"] == {"items": ["b-0", "b-1"]}
        assert (await peer.ask("acme/count", {"query": "four"}))["result"] == {"number": 4}
        assert "error" in await peer.ask("acme/search", {"limit": 1})


# apps

HTML = "<!doctype html><title>Clock</title>"
URI = "ui://clock/app.html"


def clock(**options: Any) -> Any:
    apps = Apps()

    @apps.tool(resource_uri=URI, description="The time.", **options)
    def get_time(ctx: Context) -> str:
        return "shown" if client_supports_apps(ctx) else "as text"

    apps.add_html_resource(
        URI,
        HTML,
        title="Clock",
        csp=ResourceCsp(connect_domains=["https://api.example.com"]),
        permissions=ResourcePermissions(clipboard_write={}),
        prefers_border=True,
    )
    return MCPServer("clock", extensions=[apps])


async def test_an_app_is_a_tool_and_a_resource_that_every_client_sees() -> None:
    async with pair(clock(visibility=["app"])) as client:
        (tool,) = await client.list_tools()
        assert tool.meta == {"ui": {"resourceUri": URI, "visibility": ["app"]}}
        (resource,) = await client.list_resources()
        assert (resource.uri, resource.title, resource.mime_type) == (URI, "Clock", APP_MIME_TYPE)
        assert (await client.call_tool("get_time")).data == "as text"
        assert settings_of(EXTENSION_ID, client.capabilities) == {}


async def test_a_host_reads_the_document_and_its_settings() -> None:
    async with pair(clock(), extensions=[APPS]) as client:
        assert (await client.call_tool("get_time")).data == "shown"
        view = await client.read_app("get_time")
    assert (view.html, view.prefers_border) == (HTML, True)
    assert view.csp.connect_domains == ("https://api.example.com",)
    assert [*view.permissions] == ["clipboardWrite"]


async def test_a_file_is_a_view_if_its_type_is_not_stated(tmp_path: Any) -> None:
    (tmp_path / "view.html").write_text(HTML)
    apps = Apps()
    apps.add_resource(FileResource(uri=URI, name="view", path=tmp_path / "view.html"))
    async with pair(MCPServer("clock", extensions=[apps])) as client:
        (contents,) = await client.read_resource(URI)
    assert (contents.text, contents.mime_type) == (HTML, APP_MIME_TYPE)


async def test_a_view_may_be_registered_after_its_tools() -> None:
    server = MCPServer("late")
    server.add_tool(suggest, meta={"ui": {"resourceUri": URI}})
    server.add_resource(lambda: HTML, URI, name="view", mime_type=APP_MIME_TYPE)
    async with pair(server, extensions=[APPS]) as client:
        assert (await client.read_app("suggest")).html == HTML


async def test_an_extension_of_dovetail_is_accepted_as_it_is() -> None:
    server = MCPServer("shop", extensions=[ProtocolExtension(id=ID, settings={"a": 1})])
    async with pair(server) as client:
        assert settings_of(ID, client.capabilities) == {"a": 1}
