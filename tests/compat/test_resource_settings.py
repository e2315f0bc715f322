"""Cache hints, checks of paths, and subscription events of release 2 of the official SDK."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from dovetail.compat import (
    CacheHint,
    InMemorySubscriptionBus,
    ListenHandler,
    ListToolsResult,
    LowLevelServer,
    MCPServer,
    PathEscapeError,
    ReadResourceResult,
    ResourceSecurity,
    ResourceUpdated,
    SubscriptionsListenRequestParams,
    TextResourceContents,
    Tool,
    ToolsListChanged,
    UriTemplate,
    contains_path_traversal,
    is_absolute_path,
    safe_join,
)
from dovetail.errors import ConfigError, NotFound
from dovetail.testing import Tape, pair

TOOL = Tool(name="forecast", input_schema={"type": "object"})


async def hints_of(server: Any) -> Any:
    tape = Tape()
    async with pair(server, revision="stateless", record=tape) as client:
        await client.list_tools()
    result = json.loads(tape.entries[-1][1])["result"]
    return result.get("ttlMs"), result.get("cacheScope")


async def test_cache_hints_fill_in_what_a_handler_leaves_out() -> None:
    hints = {"tools/list": CacheHint(ttl_ms=60_000, scope="public")}
    high = MCPServer("weather", cache_hints=hints)
    high.add_tool(lambda: "sun", name="forecast")

    async def list_tools(ctx: Any, params: Any) -> Any:
        return ListToolsResult(tools=[TOOL])

    async def list_with_hint(ctx: Any, params: Any) -> Any:
        return ListToolsResult(tools=[TOOL], ttl_ms=1_000)

    low = LowLevelServer("weather", on_list_tools=list_tools, cache_hints=hints)
    own = LowLevelServer("weather", on_list_tools=list_with_hint, cache_hints=hints)
    assert await hints_of(high) == (60_000, "public")
    assert await hints_of(low) == (60_000, "public")
    assert (await hints_of(own))[0] == 1_000


def test_a_hint_for_a_method_that_cannot_be_cached_is_an_error() -> None:
    with pytest.raises(ConfigError, match="tools/call"):
        MCPServer("weather", cache_hints={"tools/call": CacheHint(ttl_ms=1)})


# paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b", False),
        ("../etc", True),
        ("a/../../b", True),
        ("a\\..\\..", True),
        ("a/../b", False),
        ("1..2", False),
    ],
)
def test_a_traversal_leads_above_its_folder(path: str, expected: bool) -> None:
    assert contains_path_traversal(path) is expected


@pytest.mark.parametrize("path", ["/etc", "\\share", "C:\\x", "c:x"])
def test_absolute_paths_of_all_systems_are_recognised(path: str) -> None:
    assert is_absolute_path(path)
    assert not is_absolute_path(f"a{path}")


def test_safe_join_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/")
    assert safe_join(tmp_path, "a", "b.txt") == tmp_path.resolve() / "a" / "b.txt"
    for path in ("../x", "/etc", "a\0", "out/etc"):
        with pytest.raises(PathEscapeError):
            safe_join(tmp_path, path)


async def test_the_value_of_a_template_must_not_be_an_absolute_path() -> None:
    server = MCPServer("files")
    relaxed = MCPServer("files", resource_security=ResourceSecurity(reject_absolute_paths=False))
    exempt = ResourceSecurity(exempt_params={"path"})

    def read(path: str) -> str:
        return path

    for each in (server, relaxed):
        each.resource("docs://{+path}")(read)
    server.resource("free://{+path}", security=exempt)(read)
    async with pair(server) as client, pair(relaxed) as other:
        assert (await client.read_resource("docs://a/b"))[0].text == "a/b"
        with pytest.raises(NotFound):
            await client.read_resource("docs:///etc/passwd")
        assert (await client.read_resource("free:///etc"))[0].text == "/etc"
        assert (await other.read_resource("docs:///etc"))[0].text == "/etc"


def test_a_check_that_cannot_be_turned_off_is_logged(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        ResourceSecurity(reject_path_traversal=False)
    assert "always refused" in caplog.text


def test_a_uri_template_is_parsed_and_matched() -> None:
    template = UriTemplate.parse("books://{isbn}")
    assert template.match("books://978") == {"isbn": "978"}
    assert (str(template), template.variable_names) == ("books://{isbn}", ["isbn"])


# events


async def test_events_on_the_bus_reach_subscribers() -> None:
    bus = InMemorySubscriptionBus()

    async def read(ctx: Any, params: Any) -> Any:
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, text="x")])

    async def list_tools(ctx: Any, params: Any) -> Any:
        return ListToolsResult(tools=[TOOL])

    low = LowLevelServer(
        "board",
        on_read_resource=read,
        on_list_tools=list_tools,
        on_subscriptions_listen=ListenHandler(bus),
    )
    high = MCPServer("board", subscriptions=bus)
    high.resource("board://sprint")(lambda: "x")
    for server in (low, high):
        heard: asyncio.Queue[Any] = asyncio.Queue()
        async with pair(server, revision="stateless") as client:
            await client.subscribe("board://sprint", heard.put_nowait)
            client.on_change("tools", heard.put_nowait)
            await bus.publish(ResourceUpdated(uri="board://sprint"))
            assert await asyncio.wait_for(heard.get(), 5) == "board://sprint"
            await bus.publish(ToolsListChanged())
            await asyncio.wait_for(heard.get(), 5)


def test_a_bus_of_your_own_is_refused_by_the_high_level_server() -> None:
    with pytest.raises(ConfigError, match="backend"):
        MCPServer("board", subscriptions=object())
    assert MCPServer("board", subscriptions=False).name == "board"


def test_a_listener_can_be_removed() -> None:
    bus, heard = InMemorySubscriptionBus(), list[Any]()
    remove = bus.subscribe(heard.append)
    remove()
    remove()
    asyncio.run(bus.publish(ToolsListChanged()))
    assert heard == []


def test_listen_params_are_validated_from_the_wire() -> None:
    raw = {"notifications": {"resourceSubscriptions": ["a://b"]}}
    params = SubscriptionsListenRequestParams.model_validate(raw, by_name=False)
    assert params.notifications.resource_subscriptions == ["a://b"]
