"""`server.mount`: another server as a part of this one."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dovetail import Cache, Client, Context, NotFound, ProtocolError, Server
from dovetail.auth import ApiKeys
from dovetail.errors import ConfigError
from dovetail.ports import Principal
from dovetail.protocol.utilities import CompletionArgument
from tests.gateway.programs import write_server
from tests.transports.http.raw import hosted

OF_PERSON = ["notes://of/{person}", "notes://of/Ada"]
"""A completion names the template, or a resource that it matches."""
REVISIONS = ["2024-11-05", "2025-11-25", "2026-07-28"]
KEYS = {
    "ada-key-0123456789": Principal("ada", scopes=("notes",)),
    "ada-key-without-scopes": Principal("ada"),
    "bob-key-0123456789": Principal("bob"),
}


def make_weather(**options: Any) -> Server:
    weather = Server("weather", **options)

    @weather.tool
    async def forecast(city: str) -> str:
        return f"sunny in {city}"

    @weather.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which city?", str)
        return str(answer.data)

    @weather.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.info("half")
        return "done"

    @weather.resource("weather://now")
    def now() -> str:
        return "sunny"

    @weather.resource("weather://at/{city}")
    def at(city: str) -> str:
        return f"rain in {city}"

    @weather.prompt
    def advise(city: str) -> str:
        return f"What to wear in {city}?"

    advise.complete("city", ["Oslo", "Osaka", "Rome"])
    return weather


def make_shop(other: Any = None, **options: Any) -> Server:
    shop = Server("shop", **options)

    @shop.tool
    async def buy(item: str) -> str:
        return f"bought {item}"

    @shop.resource("shop://open")
    def is_open() -> str:
        return "yes"

    shop.mount(make_weather() if other is None else other, prefix="weather")
    return shop


@pytest.mark.parametrize("revision", REVISIONS)
async def test_everything_of_a_mounted_server_is_served(revision: str) -> None:
    updates: list[Any] = []
    async with Client(
        make_shop(), revision=revision, on_log=lambda entry: updates.append(entry.data)
    ) as client:
        tools = [tool.name for tool in await client.list_tools()]
        assert tools == ["buy", "weather__forecast", "weather__ask", "weather__steps"]
        assert (await client.call_tool("buy", {"item": "tea"})).text == "bought tea"
        result = await client.call_tool("weather__forecast", {"city": "Oslo"})
        assert result.text == "sunny in Oslo"
        uris = [str(one.uri) for one in await client.list_resources()]
        assert uris == ["shop://open", "weather://now"]
        (contents,) = await client.read_resource("weather://at/Rome")
        assert contents.text == "rain in Rome"
        (template,) = await client.list_resource_templates()
        assert template.uri_template == "weather://at/{city}"
        (prompt,) = await client.list_prompts()
        assert prompt.name == "weather__advise"
        got = await client.get_prompt("weather__advise", {"city": "Oslo"})
        assert got.messages[0].content.text == "What to wear in Oslo?"
        await client.call_tool(
            "weather__steps", on_progress=lambda update: updates.append(update.progress)
        )
        assert 1.0 in updates
        with pytest.raises(ProtocolError, match="Unknown tool: weather__none"):
            await client.call_tool("weather__none")
        with pytest.raises(NotFound):
            await client.read_resource("nobody://has/this")


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("inner", [None, ["2025-11-25"]])
async def test_a_mounted_server_asks(revision: str, inner: list[str] | None) -> None:
    shop = make_shop(make_weather(revisions=inner))
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(request.message)
        return {"value": "Oslo"}

    async with Client(shop, revision=revision, on_elicit=answer) as client:
        assert (await client.call_tool("weather__ask")).text == "Oslo"
    assert asked == ["Which city?"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_completions_pass(revision: str) -> None:
    async with Client(make_shop(), revision=revision) as client:
        found = await client.complete(prompt="weather__advise", argument="city", value="Os")
    assert list(found.values) == ["Oslo", "Osaka"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_changes_pass(revision: str) -> None:
    weather = make_weather()
    shop = make_shop(weather)
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with Client(shop, revision=revision) as client:
        await client.on_change("tools", changes.put_nowait)
        await client.list_tools()

        async def snow() -> str:
            return "snow"

        weather.add_tool(snow)
        while "weather__snow" not in [tool.name for tool in await client.list_tools()]:
            await changes.get()
        async with await client.subscribe("weather://now", changes.put_nowait):
            weather.notify_resource_updated("weather://now")
            while await changes.get() != "weather://now":
                pass


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_resources_of_the_server_itself_change_beside_mounted_ones(revision: str) -> None:
    shop = make_shop(make_weather())
    shop.add_resource(lambda: "open", "shop://hours", name="hours")
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with Client(shop, revision=revision) as client:
        await client.list_tools()
        async with await client.subscribe("shop://hours", changes.put_nowait):
            shop.notify_resource_updated("shop://hours")
            assert await changes.get() == "shop://hours"


async def test_a_server_in_a_process_of_its_own_is_mounted(tmp_path: Path) -> None:
    shop = make_shop(write_server(tmp_path, "up"))
    async with Client(shop) as client:
        await client.list_tools()
        result = await client.call_tool("weather__echo", {"text": "x"})
        assert result.text == "x"
        with pytest.raises(ProtocolError, match="exited with code 7"):
            await client.call_tool("weather__crash")


async def test_callers_over_http_do_not_see_the_stderr_of_a_mounted_server(tmp_path: Path) -> None:
    shop = make_shop(write_server(tmp_path, "up"))
    async with hosted(shop) as site, Client(f"http://127.0.0.1:{site.port}/mcp") as client:
        await client.list_tools()
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("weather__crash")
    assert str(caught.value) == "weather: the server exited with code 7"


async def test_the_scopes_of_a_mounted_server_hold() -> None:
    notes = Server("notes")

    @notes.tool(scopes=["notes"])
    async def secret() -> str:
        return "secret"

    @notes.resource("notes://all", scopes=["notes"])
    def everything() -> str:
        return "everything"

    @notes.resource("notes://of/{person}", scopes=["notes"])
    def of(person: str) -> str:
        return f"notes of {person}"

    of.complete("person", ["Ada", "Adam"])
    middle = Server("middle")
    middle.mount(notes, prefix="notes")
    shop = Server("shop", auth=ApiKeys(KEYS))
    shop.mount(middle, prefix="middle")
    assert shop.scopes == ("notes",)
    async with hosted(shop) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        async with Client(url, headers={"X-Api-Key": "ada-key-0123456789"}) as ada:
            assert [tool.name for tool in await ada.list_tools()] == ["middle__notes__secret"]
            assert (await ada.call_tool("middle__notes__secret")).text == "secret"
            for uri in OF_PERSON:
                found = await ada.complete(resource=uri, argument="person", value="A")
                assert found.values == ["Ada", "Adam"]
        async with Client(url, headers={"X-Api-Key": "ada-key-without-scopes"}) as ada:
            assert await ada.list_tools() == []
        async with Client(url, headers={"X-Api-Key": "bob-key-0123456789"}) as bob:
            assert await bob.list_tools() == []
            assert await bob.list_resources() == []
            with pytest.raises(ProtocolError, match="scope notes"):
                await bob.call_tool("middle__notes__secret")
            with pytest.raises(ProtocolError, match="scope notes"):
                await bob.read_resource("notes://all")
            for uri in OF_PERSON:
                with pytest.raises(ProtocolError, match="scope notes"):
                    await bob.complete(resource=uri, argument="person", value="A")


async def test_a_name_of_the_server_itself_wins() -> None:
    weather = make_weather()
    shop = make_shop(weather)

    async def forecast(city: str) -> str:
        return "our own"

    shop.add_tool(forecast, name="weather__forecast")
    async with Client(shop) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names.count("weather__forecast") == 1
        assert (await client.call_tool("weather__forecast", {"city": "x"})).text == "our own"


async def test_pages_and_middleware() -> None:
    seen: list[Any] = []

    async def middleware(call: Any, next: Any) -> Any:
        result = await next(call)
        seen.append(result)
        return result

    shop = make_shop(page_size=1, middleware=[middleware], cache=Cache(ttl=60))
    async with Client(shop) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert {"buy", "weather__forecast"} < names
        result = await client.call_tool("weather__forecast", {"city": "x"})
        assert result.text == "sunny in x"
    assert any(getattr(one, "content", None) for one in seen)  # typed, not raw


async def test_the_lifespan_of_a_mounted_server_is_entered() -> None:
    from collections.abc import AsyncIterator
    from contextlib import asynccontextmanager

    events: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        events.append("start")
        yield "state"
        events.append("end")

    async with Client(make_shop(make_weather(lifespan=lifespan))) as client:
        await client.list_tools()
        assert events == ["start"]


@pytest.mark.parametrize("prefix", ["a b", "1a", "a" * 33])
def test_a_prefix_that_is_not_valid(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix="):
        Server("shop").mount(make_weather(), prefix=prefix)


def test_equal_prefixes_are_an_error() -> None:
    shop = make_shop()
    with pytest.raises(ConfigError, match="The prefix 'weather' is already in use"):
        shop.mount(make_weather(), prefix="weather")


def test_a_target_that_is_not_valid_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="42 is not a target"):
        Server("shop").mount(42, prefix="a")
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}')
    with pytest.raises(ConfigError, match="has several servers"):
        Server("shop").mount(file, prefix="a")


def test_a_server_cannot_contain_itself() -> None:
    shop, weather = Server("shop"), Server("weather")
    with pytest.raises(ConfigError, match="itself"):
        shop.mount(shop, prefix="a")
    shop.mount(weather, prefix="weather")
    with pytest.raises(ConfigError, match="itself"):
        weather.mount(shop, prefix="shop")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_servers_are_mounted_without_a_prefix(revision: str) -> None:
    shop, weather, second = Server("shop"), make_weather(), Server("weather")
    shop.tool(lambda: "of the shop", name="open")
    second.tool(lambda: "of the second", name="forecast")
    second.tool(lambda: "of the second", name="open")
    second.tool(lambda: "hello", name="hello")
    shop.mount(weather)
    shop.mount(second)
    async with Client(shop, revision=revision) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["open", "forecast", "ask", "steps", "hello"]
        assert (await client.call_tool("open")).text == "of the shop"
        assert (await client.call_tool("forecast", {"city": "Oslo"})).text == "sunny in Oslo"
        assert (await client.call_tool("hello")).text == "hello"
        changed = asyncio.Event()
        async with client.on_change("tools", lambda _: changed.set()):
            await client.list_tools()
            second.tool(lambda: "later", name="later")
            await changed.wait()
        assert "later" in [tool.name for tool in await client.list_tools()]
        assert (await client.call_tool("later")).text == "later"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_instructions_of_mounted_servers_are_part_of_the_servers(revision: str) -> None:
    shop = Server("shop", instructions="Buy something.")
    shop.mount(make_weather(instructions="Ask for one city."), prefix="weather")
    shop.mount(make_weather(), prefix="silent")
    async with Client(shop, revision=revision) as client:
        assert client.instructions == "Buy something.\n\n# weather\n\nAsk for one city."
    shop.instructions = None
    async with Client(shop, revision=revision) as client:
        assert client.instructions == "# weather\n\nAsk for one city."


async def test_health_and_metrics_contain_the_mounted_servers(tmp_path: Path) -> None:
    shop = make_shop()
    shop.mount(["/no/such/program-hunter2"], prefix="bad")
    async with hosted(shop, metrics="/metrics") as site:
        async with Client(f"http://127.0.0.1:{site.port}/mcp") as client:
            await client.call_tool("weather__forecast", {"city": "Oslo"})
        health = await (await site.send("GET", {}, path="/health")).json()
        text = (await (await site.send("GET", {}, path="/metrics")).body()).decode()
    assert health["status"] == "degraded"
    assert health["servers"]["weather"]["state"] == "started"
    assert health["servers"]["bad"]["error"] == "bad: the server is not available"
    assert 'mcp_upstream_calls_total{mcp_upstream_name="weather"} 1' in text


@pytest.mark.parametrize("revision", REVISIONS)
async def test_middleware_changes_the_params_of_mounted_components(revision: str) -> None:
    async def move(call: Any, next: Any) -> Any:
        match call.name:
            case "tools/call":
                call.params = replace(call.params, arguments=Raw(b'{"city": "Rome"}'))
            case "prompts/get":
                call.params = replace(call.params, arguments={"city": "Rome"})
            case "resources/read":
                call.params = replace(call.params, uri="weather://at/Rome")
            case "completion/complete":
                call.params = replace(
                    call.params, argument=CompletionArgument(name="city", value="R")
                )
        return await next(call)

    server = Server("shop", middleware=[move])
    server.mount(make_weather(), prefix="w")
    async with Client(server, revision=revision) as client:
        assert (await client.call_tool("w__forecast", {"city": "Oslo"})).data == "sunny in Rome"
        assert (await client.call_tool("w__forecast")).data == "sunny in Rome"
        prompt = await client.get_prompt("w__advise", {"city": "Oslo"})
        assert prompt.messages[0].content.text == "What to wear in Rome?"
        (contents,) = await client.read_resource("weather://now")
        assert contents.text == "rain in Rome"
        found = await client.complete(prompt="w__advise", argument="city", value="Os")
        assert found.values == ["Rome"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_mounted_server_sees_the_caller(revision: str) -> None:
    inner = Server("inner")

    @inner.tool
    async def who(ctx: Context) -> str:
        await asyncio.sleep(0)
        return f"{ctx.user and ctx.user.id} {ctx.headers.get('x-tenant')}"

    middle = Server("middle")
    middle.mount(inner)
    outer = Server("outer", auth=ApiKeys(KEYS))
    outer.mount(middle)
    async with hosted(outer) as site, AsyncExitStack() as stack:

        async def connect(key: str, tenant: str) -> Client:
            url, headers = f"http://127.0.0.1:{site.port}/mcp", {"X-Tenant": tenant}
            options = {"headers": {"X-Api-Key": key, **headers}, "revision": revision}
            return await stack.enter_async_context(Client(url, **options))

        ada = await connect("ada-key-0123456789", "a")
        bob = await connect("bob-key-0123456789", "b")
        results = await asyncio.gather(*(one.call_tool("who") for one in (ada, bob) * 5))
    assert [result.text for result in results] == ["ada a", "bob b"] * 5
