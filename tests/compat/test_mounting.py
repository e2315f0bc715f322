"""FastMCP servers that are mounted in one another."""

from typing import Any

import pytest

from dovetail import Client
from dovetail.compat import (
    Context,
    FastMCP,
    Middleware,
    StaticTokenVerifier,
    get_access_token,
    get_http_headers,
    get_http_request,
)
from dovetail.errors import ConfigError
from dovetail.testing import pair
from tests.transports.http.raw import hosted


def make_child() -> FastMCP:
    child = FastMCP("child")

    @child.tool
    def who(tenant: str = "nobody") -> str:
        return tenant

    @child.prompt
    def greet(name: str = "nobody") -> str:
        return f"Hello {name}"

    @child.tool(tags={"internal"})
    def danger() -> str:
        return "danger"

    @child.resource("doc://{name}", tags={"internal"})
    def doc(name: str) -> str:
        return name

    @child.resource("doc://open")
    def open_doc() -> str:
        return "open"

    return child


async def test_middleware_changes_the_arguments_of_mounted_tools() -> None:
    class Tenant(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            context.message.arguments = {"tenant": "ada"}
            return await call_next(context)

    outer = FastMCP("outer", middleware=[Tenant()])
    outer.mount(make_child(), namespace="c")
    async with pair(outer) as client:
        assert (await client.call_tool("c_who", {"tenant": "eve"})).data == "ada"


async def test_a_tool_uses_mounted_components_with_arguments() -> None:
    outer = FastMCP("outer")
    outer.mount(make_child(), namespace="c")

    @outer.tool
    async def both() -> list[str]:
        called = await outer.call_tool("c_who", {"tenant": "ada"})
        prompt = await outer.render_prompt("c_greet", {"name": "Ada"})
        return [called.text, prompt.messages[0].content.text]

    async with pair(outer) as client:
        assert (await client.call_tool("both")).data == ["ada", "Hello Ada"]


async def shown(client: Any) -> set[str]:
    uris = {one.uri for one in await client.list_resources()}
    templates = {one.uri_template for one in await client.list_resource_templates()}
    prompts = {one.name for one in await client.list_prompts()}
    return {one.name for one in await client.list_tools()} | uris | templates | prompts


ALL = {"c_who", "c_danger", "c_greet", "doc://c/open", "doc://c/{name}"}


@pytest.mark.parametrize(
    ("rule", "hidden"),
    [
        ({"tags": {"internal"}}, {"c_danger", "doc://c/{name}"}),
        ({"names": {"c_who", "danger"}}, {"c_who"}),
        ({"keys": {"prompt:c_greet", "template:doc://c/{name}"}}, {"c_greet", "doc://c/{name}"}),
        ({"components": {"resource"}}, {"doc://c/open"}),
    ],
)
async def test_mounted_components_that_are_disabled_can_neither_be_seen_nor_used(
    rule: Any, hidden: set[str]
) -> None:
    outer = FastMCP("outer")
    outer.mount(make_child(), namespace="c")
    outer.disable(**rule)
    uses: dict[str, Any] = {
        "c_who": lambda client: client.call_tool("c_who"),
        "c_danger": lambda client: client.call_tool("c_danger"),
        "c_greet": lambda client: client.get_prompt("c_greet"),
        "doc://c/open": lambda client: client.read_resource("doc://c/open"),
        "doc://c/{name}": lambda client: client.read_resource("doc://c/plan"),
    }
    async with pair(outer) as client:
        assert await shown(client) == ALL - hidden
        for name, use in uses.items():
            if name in hidden:
                with pytest.raises(Exception, match=r"Unknown|not found"):
                    await use(client)
            else:
                await use(client)


@pytest.mark.parametrize("options", [{"include_tags": {"public"}}, {"exclude_tags": {"internal"}}])
async def test_tags_of_the_server_choose_among_mounted_components(options: Any) -> None:
    outer = FastMCP("outer", **options)
    outer.mount(make_child())
    async with pair(outer) as client:
        assert "danger" not in await shown(client)
        with pytest.raises(Exception, match="Unknown tool: danger"):
            await client.call_tool("danger")


async def test_a_session_hides_mounted_components() -> None:
    outer = FastMCP("outer")
    outer.mount(make_child(), namespace="c")

    @outer.tool
    async def hide(ctx: Context) -> None:
        await ctx.disable_components(names={"c_who"})

    async with pair(outer, revision="2025-11-25") as client:
        await client.call_tool("hide")
        assert "c_who" not in await shown(client)
        with pytest.raises(Exception, match="Unknown tool: c_who"):
            await client.call_tool("c_who")
    async with pair(outer, revision="2025-11-25") as client:
        assert (await client.call_tool("c_who")).data == "nobody"


def test_an_unknown_condition_is_an_error() -> None:
    with pytest.raises(ConfigError, match="version= is not supported; use names, keys, tags"):
        FastMCP("s").disable(version="1")


TOKENS = {"t": {"client_id": "ada", "scopes": ["read"]}}


@pytest.mark.parametrize("revision", ["2025-06-18", None])
async def test_a_mounted_server_sees_the_token_the_headers_and_the_session(revision: Any) -> None:
    child = FastMCP("child")

    @child.tool
    def secret() -> str:
        token = get_access_token()
        if token is not None and "admin" not in token.scopes:
            raise PermissionError(f"{token.client_id} is not an admin")
        return "secret"

    @child.tool
    def tenant() -> str:
        return get_http_headers()["x-tenant"]

    @child.tool
    async def count(ctx: Context) -> int:
        number = 1 + await ctx.get_state("count", 0)
        await ctx.set_state("count", number)
        return number

    outer = FastMCP("outer", auth=StaticTokenVerifier(TOKENS))
    outer.mount(child)
    async with hosted(outer) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        headers = {"Authorization": "Bearer t", "X-Tenant": "acme"}
        for _ in range(2):  # each session counts from 1
            async with Client(url, headers=headers, revision=revision) as client:
                with pytest.raises(Exception, match="ada is not an admin"):
                    await client.call_tool("secret")
                assert (await client.call_tool("tenant")).data == "acme"
                counts = [(await client.call_tool("count")).data for _ in range(2)]
                assert counts == ([1, 1] if revision is None else [1, 2])
    assert len(child._states) == 0


async def test_a_program_uses_mounted_components_before_the_server_runs() -> None:
    outer = FastMCP("outer")
    outer.mount(make_child(), namespace="c")
    for _ in range(2):
        names = {tool.name for tool in await outer.list_tools()}
        assert names == {"c_who", "c_danger"}
        assert (await outer.call_tool("c_who", {"tenant": "ada"})).data == "ada"


@pytest.mark.parametrize("auth", [None, StaticTokenVerifier(TOKENS)])
async def test_a_tool_sees_the_query_of_the_url(auth: Any) -> None:
    child, outer = FastMCP("child"), FastMCP("outer", auth=auth)
    outer.mount(child)

    @child.tool
    @outer.tool(name="own")
    def tenant() -> str | None:
        return get_http_request().query_params.get("tenant")

    async with hosted(outer) as site:
        url = f"http://127.0.0.1:{site.port}/mcp?tenant=acme"
        async with Client(url, headers={"Authorization": "Bearer t"}) as client:
            assert (await client.call_tool("own")).data == "acme"
            assert (await client.call_tool("tenant")).data == "acme"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"as_proxy": True}, "has no option as_proxy=; remove it"),
        ({"tool_names": {"who": "w"}}, 'has no option tool_names=; use tools={"old"'),
    ],
)
def test_options_of_mount_that_do_not_exist_are_refused_with_a_hint(
    options: Any, hint: str
) -> None:
    with pytest.raises(ConfigError, match=hint):
        FastMCP("s").mount(make_child(), **options)


async def test_options_of_mount_that_change_nothing_are_accepted() -> None:
    outer = FastMCP("s")
    outer.mount(make_child(), as_proxy=False, tool_names=None, tools={"who": {"name": "whose"}})
    assert (await outer.call_tool("whose")).data == "nobody"
