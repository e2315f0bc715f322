"""FastMCP's providers and transforms, and what is mounted."""

import json
from typing import Any

import pytest

from dovetail.compat import (
    FastMCP,
    LocalProvider,
    PromptsAsTools,
    ResourcesAsTools,
    require_scopes,
)
from dovetail.errors import ConfigError
from dovetail.ports import Principal
from dovetail.testing import pair


def library() -> LocalProvider:
    provider = LocalProvider()

    @provider.tool
    def find(title: str) -> str:
        """Find a book."""
        return title.upper()

    @provider.resource("books://all", description="All books.")
    def books() -> str:
        return "Emma"

    @provider.resource("books://{author}/cover")
    def cover(author: str) -> bytes:
        return author.encode()

    @provider.prompt("review", description="Review a book.")
    def review(title: str, style: str = "short") -> str:
        return f"Review {title}, {style}"

    return provider


async def test_several_servers_have_the_components_of_a_provider() -> None:
    provider = library()
    one, two = FastMCP("one", providers=[provider]), FastMCP("two")
    two.add_provider(provider)
    provider.tool(lambda: 1, name="later")
    for server in (one, two):
        async with pair(server) as client:
            assert [tool.name for tool in await client.list_tools()] == ["find", "later"]
            assert (await client.call_tool("find", {"title": "emma"})).data == "EMMA"
            assert (await client.read_resource("books://all"))[0].text == "Emma"


async def test_a_namespace_is_a_part_of_all_names() -> None:
    server = FastMCP("s")
    server.add_provider(library(), namespace="shop")
    async with pair(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["shop_find"]
        assert [each.name for each in await client.list_prompts()] == ["shop_review"]
        assert [each.uri for each in await client.list_resources()] == ["books://shop/all"]
        (template,) = await client.list_resource_templates()
        assert template.uri_template == "books://shop/{author}/cover"
        assert (await client.call_tool("shop_find", {"title": "emma"})).data == "EMMA"
        (part,) = await client.read_resource("books://shop/all")
        assert (part.uri, part.text) == ("books://shop/all", "Emma")
        assert (await client.read_resource("books://shop/Jane/cover"))[0].data == b"Jane"
        assert "Emma" in str(await client.get_prompt("shop_review", {"title": "Emma"}))
        with pytest.raises(Exception, match=r"Unknown resource|not found"):
            await client.read_resource("books://all")


async def test_a_mounted_server_has_names_as_in_fastmcp() -> None:
    inner, outer = FastMCP("inner", providers=[library()]), FastMCP("outer")
    outer.mount(inner, namespace="shop")
    inner.tool(lambda: 1, name="later")
    async with pair(outer) as client:
        names = [tool.name for tool in await client.list_tools()]
    assert sorted(names) == ["shop_find", "shop_later"]


@pytest.mark.parametrize("kind", ["provider", "transform"])
def test_what_is_not_supported_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="A object is not supported; use add_tool"):
        getattr(FastMCP("s"), f"add_{kind}")(object())
    with pytest.raises(ConfigError, match="is not supported"):
        FastMCP("s", **{f"{kind}s": [object()]})


async def call(server: FastMCP, tool: str, /, **arguments: Any) -> Any:
    async with pair(server) as client:
        return (await client.call_tool(tool, arguments)).data


async def test_prompts_can_be_tools() -> None:
    server = FastMCP("s", providers=[library()], transforms=[PromptsAsTools()])
    (listed,) = json.loads(await call(server, "list_prompts"))
    assert (listed["name"], listed["description"]) == ("review", "Review a book.")
    assert [(one["name"], one["required"]) for one in listed["arguments"]] == [
        ("title", True),
        ("style", False),
    ]
    got = await call(server, "get_prompt", name="review", arguments={"title": "Emma"})
    assert json.loads(got) == {"messages": [{"role": "user", "content": "Review Emma, short"}]}
    with pytest.raises(Exception, match="Unknown prompt: 'other'"):
        await call(server, "get_prompt", name="other")


async def test_a_caller_without_the_scopes_of_a_prompt_does_not_see_it() -> None:
    server = FastMCP("s", transforms=[PromptsAsTools()])
    server.prompt(lambda: "hi", name="open")
    server.prompt(lambda: "hi", name="secret", auth=require_scopes("admin"))

    async def names(*scopes: str) -> list[str]:
        async with pair(server, user=Principal("ada", scopes=scopes)) as client:
            listed = json.loads((await client.call_tool("list_prompts")).data)
            return [one["name"] for one in listed]

    assert await names() == ["open"]
    assert await names("admin") == ["open", "secret"]
    assert [one.name for one in await server.list_prompts()] == ["open", "secret"]


async def test_resources_can_be_tools() -> None:
    server = FastMCP("s", providers=[library()])
    server.add_transform(ResourcesAsTools(server))
    listed = json.loads(await call(server, "list_resources"))
    assert [(one.get("uri"), one.get("uri_template")) for one in listed] == [
        ("books://all", None),
        (None, "books://{author}/cover"),
    ]
    assert await call(server, "read_resource", uri="books://all") == "Emma"
    assert await call(server, "read_resource", uri="books://Jane/cover") == "SmFuZQ=="
    with pytest.raises(Exception, match="Unknown resource: 'other://'"):
        await call(server, "read_resource", uri="other://")
