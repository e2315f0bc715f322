"""Edges of the client: odd channels, failing servers, stale knowledge, callbacks that call back."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, Limits, Server, ToolError, ToolResult
from dovetail.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InvalidParams,
    MethodNotFound,
    ProtocolError,
    TimedOut,
)
from dovetail.testing import Tape, Taped, pair
from dovetail.transports import memory
from tests.behaviour import everything
from tests.behaviour.handmade import handmade

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "reason", [json.JSONDecodeError("odd", "doc", 0), OSError("gone"), ConnectionClosed("the end")]
)
async def test_whatever_ends_a_channel_is_one_kind_of_error(reason: Exception) -> None:
    ours, theirs = memory.pair()
    serving = asyncio.create_task(everything.build(limits=Limits(shutdown=0)).serve(theirs))
    client = Client(ours)
    await client.connect()
    waiting = asyncio.create_task(client.call_tool("wait"))
    await client.ping()
    assert ours._ended is not None
    ours._ended(reason)
    with pytest.raises(ConnectionClosed, match=r"odd|gone|the end"):
        await waiting
    assert client.state == "disconnected"
    await client.close()
    await serving


async def test_a_server_whose_lifespan_fails_is_not_waited_for() -> None:
    @asynccontextmanager
    async def broken() -> Any:
        raise RuntimeError("the database is down")
        yield

    with pytest.raises(ConnectFailed):
        async with Client(Server("s", lifespan=broken), timeout=20):
            pass


async def test_what_cannot_be_encoded_in_two_ways_is_still_answered() -> None:
    server = Server("s")

    @server.tool
    async def odd(ctx: Context) -> ToolResult:
        ctx.info({"a": "\ud800", "b": object()})
        return ToolResult(content=[], structured_content={"a": "\ud800", "b": object()})

    async with pair(server, on_log=print, timeout=5) as client:
        with pytest.raises((ProtocolError, ToolError)):
            await client.call_tool("odd")
        await client.ping()


async def test_a_heartbeat_opens_nothing_that_was_given_up(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    started = tmp_path / "started"
    script.write_text(f"open({str(started)!r}, 'a').write('x')\n")
    limits = Limits(ping_interval=0.01, restarts=1, shutdown=0.2)
    client = Client(script, limits=limits, timeout=5, on_stderr=lambda line: None)
    with pytest.raises(ConnectFailed, match=r"does it call server.run\(\)\?"):
        await client.connect()
    before = started.read_text()
    await asyncio.sleep(0.2)
    assert started.read_text() == before
    await client.close()


async def test_a_subscription_that_nobody_acknowledges_is_given_up() -> None:
    async with handmade() as (client, server):
        client._connector.timeout = 0.1
        with pytest.raises(TimedOut, match="no acknowledgement"):
            await client.subscribe("doc://x", print)
        assert (await server.receive())["method"] == "subscriptions/listen"
        assert (await server.receive())["method"] == "notifications/cancelled"


async def test_closing_while_subscribing_is_no_cancellation_of_the_caller() -> None:
    async with handmade() as (client, server):
        subscribing = asyncio.create_task(client.subscribe("doc://x", print))
        assert (await server.receive())["method"] == "subscriptions/listen"
        await client.close()
        with pytest.raises(DovetailError):
            await subscribing


async def test_tools_that_changed_are_not_held_against_their_old_schema() -> None:
    server = Server("s")

    def number() -> int:
        return 1

    def words() -> list[str]:
        return ["a"]

    server.add_tool(number, name="f")
    async with pair(server, revision="2025-06-18", validate="strict") as client:
        assert (await client.call_tool("f")).data == 1
        server.remove_tool("f")
        server.add_tool(words, name="f")
        assert (await client.call_tool("f")).data == ["a"]


async def test_a_request_may_be_given_as_it_is_on_the_wire() -> None:
    tape = Tape()
    ours, theirs = memory.pair()
    serving = asyncio.create_task(everything.build().serve(theirs))
    async with Client(Taped(ours, tape)) as client:
        result = await client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert result.data == 3
        with pytest.raises(MethodNotFound, match="foo/bar"):
            await client.request("foo/bar")
    await serving


async def test_a_script_is_found_from_here_and_run_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "one.py").write_text("from dovetail import Server\nServer('one').run()\n")
    monkeypatch.chdir(tmp_path)
    async with Client("one.py", cwd=tmp_path / "sub", env={"PYTHONPATH": str(ROOT)}) as client:
        assert client.server_info is not None
        assert client.server_info.name == "one"


def test_a_callback_that_would_wait_for_itself_is_told_so() -> None:
    told: list[Exception] = []
    done = threading.Event()

    def call_back(kind: str) -> None:
        try:
            client.ping()
        except ConfigError as error:
            told.append(error)
        done.set()

    with Client(everything.build()).blocking() as client:
        heard = client.on_change("tools", call_back)
        client.ping()
        client.call_tool("grow", {"name": "extra"})
        assert done.wait(5)
        heard.close()
    assert "another thread" in str(told[0])


def test_a_completer_for_an_argument_that_is_not_there_is_refused() -> None:
    server = Server("s")

    @server.prompt
    def trip(city: str) -> str:
        return city

    with pytest.raises(ConfigError, match="no argument named 'citty'"):
        trip.complete("citty", ["Oslo"])


async def test_a_misspelled_tool_is_suggested_if_the_tools_are_known() -> None:
    server = Server("s")

    @server.tool
    def forecast() -> str:
        return "sun"

    async with Client(server) as client:
        with pytest.raises(InvalidParams) as unknown:
            await client.call_tool("forcast")
        assert not hasattr(unknown.value, "__notes__")
        await client.list_tools()
        with pytest.raises(InvalidParams) as known:
            await client.call_tool("forcast")
        assert known.value.__notes__ == ["Did you mean the tool 'forecast'?"]


async def test_a_client_says_what_it_is_and_how_to_open_it() -> None:
    async with Client(Server("s"), revision="2025-11-25") as client:
        assert repr(client) == "<Client the server 's' connected, revision 2025-11-25>"
    assert repr(client) == "<Client the server 's' closed>"
    with pytest.raises(TypeError, match=r"async with Client.*blocking\(\)"):
        with client:  # type: ignore[attr-defined]
            pass
