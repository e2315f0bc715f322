"""Apps of servers behind a gateway: a server adapts to whether a caller shows them."""

from typing import Any

import msgspec
import pytest

from dovetail import Client, Context, Server
from dovetail.errors import InvalidParams
from dovetail.extensions import Extension
from dovetail.extensions.apps import APPS
from dovetail.gateway.gateway import Gateway
from tests.gateway.serving import recorded
from tests.gateway.stage import OPTIONS
from tests.gateway.test_relaying import ERAS, HANDSHAKE, behind_gateway

VIEW = "<!doctype html><p>Fine."


def weather(revision: str) -> Server:
    server = Server("weather", revisions=[revision])
    server.add_app("ui://weather/forecast", VIEW)

    @server.tool(ui="ui://weather/forecast", meta={"kept": 2**60})
    async def forecast(ctx: Context) -> str:
        return "The user sees it." if ctx.shows_apps else "It is fine."

    @server.tool(visibility=["app"])
    async def hours() -> int:
        return 24

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which city?", str)
        return f"{answer.data}, {ctx.shows_apps}"

    return server


async def say_oslo(request: Any) -> Any:
    return {"value": "Oslo"}


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize("caller", ERAS)
@pytest.mark.parametrize("upstream", ERAS)
async def test_each_caller_gets_what_it_can_show(
    upstream: str, caller: str, transport: str, answers: bool
) -> None:
    options: dict[str, Any] = {"revision": caller}
    if answers:
        options["on_elicit"] = say_oslo
    async with (
        behind_gateway(weather(upstream), transport=transport) as gateway,
        Client(gateway, extensions=[APPS], **options) as shows,
        Client(gateway, **options) as plain,
    ):
        for _ in range(2):
            tools = {tool.name: tool.meta for tool in await shows.list_tools()}
            assert tools.keys() == {"up__forecast", "up__hours", "up__ask"}
            ui = {"resourceUri": "ui://weather/forecast"}
            assert tools["up__forecast"] == {"kept": 2**60, "ui": ui}
            assert (await shows.read_app("up__forecast")).html == VIEW
            assert (await shows.call_tool("up__forecast")).text == "The user sees it."
            assert (await shows.call_tool("up__hours")).text == "24"

            tools = {tool.name: tool.meta for tool in await plain.list_tools()}
            assert tools == {"up__forecast": {"kept": 2**60}, "up__ask": None}
            assert await plain.list_resources() == []
            assert (await plain.call_tool("up__forecast")).text == "It is fine."
            with pytest.raises(InvalidParams, match="Unknown tool"):
                await plain.call_tool("up__hours")
            if answers:
                assert (await shows.call_tool("up__ask")).text == "Oslo, True"
                assert (await plain.call_tool("up__ask")).text == "Oslo, False"


OLD = {"ui/resourceUri": "ui://weather/forecast"}
NEW = {"ui": {"resourceUri": "ui://weather/forecast", "visibility": ["model"]}}


@pytest.mark.parametrize("meta", [OLD, NEW, {**OLD, **NEW}])
async def test_a_view_has_the_same_uri_in_its_tool_and_as_a_resource(meta: dict[str, Any]) -> None:
    """Some servers name the view of a tool in a key that is deprecated."""
    servers = [weather(HANDSHAKE), weather(HANDSHAKE)]
    servers[1].remove_tool("forecast")
    servers[1].add_tool(lambda: "fine", name="forecast", meta={**meta, "kept": 2**60})
    async with (
        behind_gateway(*servers) as gateway,
        Client(gateway, extensions=[APPS]) as client,
    ):
        tools = {tool.name: tool.meta for tool in await client.list_tools()}
        seen = msgspec.json.encode({**meta, "kept": 2**60}).replace(b"//", b"//two+")
        assert tools["two__forecast"] == msgspec.json.decode(seen)
        assert (await client.read_app("two__forecast")).html == VIEW
        assert "ui://two+weather/forecast" in [one.uri for one in await client.list_resources()]


@pytest.mark.parametrize("upstream", ERAS)
async def test_callers_share_a_connection_if_they_show_the_same(upstream: str) -> None:
    async with recorded(weather(upstream)) as (url, _):
        entry = {"url": url, "dovetail": {"stateful": False}}
        gateway = Gateway({"mcpServers": {"up": entry}}, **OPTIONS)
        for extensions, connections in (([APPS], 1), ([], 2 if upstream == HANDSHAKE else 1)):
            for _ in range(2):
                async with (
                    Client(gateway) as keeps_it_running,
                    Client(gateway, extensions=extensions, revision=HANDSHAKE) as client,
                ):
                    await keeps_it_running.list_tools()
                    said = (await client.call_tool("up__forecast")).text
                    assert said == ("The user sees it." if extensions else "It is fine.")
                    assert gateway.upstreams.servers["up"].connections == connections


async def test_a_search_does_not_find_what_is_only_for_views() -> None:
    async with recorded(weather(HANDSHAKE)) as (url, _):
        source = {"mcpServers": {"up": {"url": url}}, "dovetail": {"search": True}}
        async with Client(Gateway(source, **OPTIONS), extensions=[APPS]) as client:
            for query, found in (("forecast", 1), ("hours", 0)):
                result = await client.call_tool("find_tools", {"query": query})
                assert len(result.data["tools"]) == found


@pytest.mark.parametrize("caller", ERAS)
@pytest.mark.parametrize("upstream", ERAS)
async def test_a_server_is_told_which_extensions_a_caller_has(upstream: str, caller: str) -> None:
    id = "com.example/colours"
    server = Server("up", revisions=[upstream], extensions=[Extension(id=id)])

    @server.tool
    async def colours(ctx: Context) -> Any:
        return (ctx.capabilities.extensions or {}).get(id)

    declared = Extension(id=id, settings={"most": 2**60})
    async with (
        behind_gateway(server) as gateway,
        Client(gateway, revision=caller) as plain,
        Client(gateway, revision=caller, extensions=[declared]) as client,
    ):
        assert (await client.call_tool("up__colours")).data == {"most": 2**60}
        assert (await plain.call_tool("up__colours")).data is None
