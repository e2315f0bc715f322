"""The draft dialect between living peers: what is announced and sent, and how a session ends."""

import asyncio
from typing import Any

import pytest

from dovetail import Client, Context, Limits, Server
from dovetail.connection.handshake import accept_initialize
from dovetail.errors import InvalidParams, InvalidRequest, MethodNotFound
from dovetail.ports import Principal
from dovetail.protocol.base import ListChangedParams
from dovetail.protocol.methods import METHODS
from dovetail.testing import Bare, Tape, bare, pair
from dovetail.transports import memory

DRAFT = "detailed-draft"
KNOWN = {
    *("initialize", "initialized", "tools/list", "resources/list", "tools/invoke"),
    *("tools/changed", "resources/changed", "cancel", "progress", "shutdown", "exit"),
}
"""All methods that the dialect's description names."""


def build(**options: Any) -> Server:
    server = Server("early", **options)

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.resource("notes://one", name="user_files")
    def one() -> str:
        return "1"

    @server.resource("notes://two")
    def two() -> str:
        return "2"

    return server


async def greet(peer: Bare, **capabilities: Any) -> dict[str, Any]:
    flags = {"supportsProgress": True, "supportsCancellation": True, **capabilities}
    greeting = {"mcpVersion": "2025-06-18", "clientCapabilities": flags}
    reply = await peer.ask("initialize", greeting)
    peer.send({"jsonrpc": "2.0", "method": "initialized", "params": {}})
    await peer.ask("tools/list")  # so that `initialized` has arrived
    result: dict[str, Any] = reply["result"]
    return result


def changed(*uris: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "resources/changed", "params": {"updated": list(uris)}}


# changes


async def test_resource_changes_are_sent_without_a_subscription() -> None:
    server = build()
    async with bare(server) as peer:
        await greet(peer)
        server.notify_resource_updated("notes://one")
        assert await peer.receive() == changed("notes://one")
        server.notify_resource_updated("notes://one")
        server.notify_resource_updated("notes://two")
        server.notify_resource_updated("notes://one")
        assert await peer.receive() == changed("notes://one", "notes://two")
        server.add_resource(lambda: "3", "notes://three")
        server.add_resource(lambda id: id, "notes://{id}/more")
        server.remove_resource("notes://two")
        server.notify_resource_updated("notes://one")
        assert await peer.receive() == changed(
            "notes://three", "notes://{id}/more", "notes://two", "notes://one"
        )


async def test_changes_of_another_process_are_named_too() -> None:
    server = build()
    async with bare(server) as peer:
        await greet(peer)
        tool = {"name": "new_tool", "inputSchema": {"type": "object"}, "description": "New"}
        server._notify("notifications/tools/list_changed", ListChangedParams(added=[tool]))
        assert (await peer.receive())["params"]["added"] == [
            {"name": "new_tool", "description": "New"}
        ]
        resource = {"uri": "notes://far", "name": "far"}
        server._notify("notifications/resources/list_changed", ListChangedParams(added=[resource]))
        assert await peer.receive() == changed("notes://far")


async def test_a_client_is_notified_of_changes_in_the_dialect() -> None:
    server = build()
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    tape = Tape()
    async with pair(server, revision=DRAFT, record=tape) as client:
        client.on_change("resources", lambda kind: heard.put_nowait(("list", kind)))
        handle = await client.subscribe("notes://one", lambda uri: heard.put_nowait(("one", uri)))
        await client.subscribe("notes://two", lambda uri: heard.put_nowait(("two", uri)))
        server.notify_resource_updated("notes://one")
        server.notify_resource_updated("notes://two")
        got = [await heard.get() for _ in range(3)]
        assert got == [("one", "notes://one"), ("two", "notes://two"), ("list", "resources")]
        await handle.close()
        server.notify_resource_updated("notes://one")
        assert await heard.get() == ("list", "resources")
    assert set(tape.methods("client")) <= KNOWN
    assert set(tape.methods("server")) <= KNOWN


@pytest.mark.parametrize("notifies", [True, False])
async def test_a_client_does_not_subscribe_where_nothing_is_reported(notifies: bool) -> None:
    ours, theirs = memory.pair()
    peer = Bare(theirs)
    client = Client(ours, revision=DRAFT)
    opening = asyncio.create_task(client.connect())
    flags = {"supportsResourceDiscovery": True, "supportsNotifications": notifies}
    asked = await peer.receive()
    welcome = {"server": {"name": "s", "version": "0"}, "serverCapabilities": flags}
    peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": welcome})
    await opening
    heard: asyncio.Queue[str] = asyncio.Queue()
    if notifies:
        await client.subscribe("user_files", heard.put_nowait)
        peer.send(changed("other", "user_files"))
        assert await heard.get() == "user_files"
    else:
        with pytest.raises(MethodNotFound, match="does not report changes to user_files"):
            await client.subscribe("user_files", heard.put_nowait)
    await peer.close()
    await client.close()


async def test_notifications_are_declared_only_if_they_can_be_sent() -> None:
    async with bare(build()) as peer:
        assert (await greet(peer))["serverCapabilities"] == {
            "supportsToolDiscovery": True,
            "supportsResourceDiscovery": True,
            "supportsNotifications": True,
        }
    greeting = b'{"mcpVersion":"2025-06-18","clientCapabilities":{}}'
    for can_notify in (True, False):
        caller, result = accept_initialize(greeting, build(), None, can_notify=can_notify)
        lowered = caller.revision.lower_result(METHODS["initialize"], result)
        assert lowered["serverCapabilities"]["supportsNotifications"] is can_notify


async def test_an_empty_server_declares_nothing_and_has_no_lists() -> None:
    server = Server("empty")
    async with bare(server) as peer:
        assert not any((await greet(peer))["serverCapabilities"].values())
        for method in ("tools/list", "resources/list"):
            assert (await peer.ask(method))["error"]["code"] == -32601
    async with pair(server, revision=DRAFT) as client:
        assert await client.list_tools() == []
        server.add_resource(lambda: "1", "notes://one")
        await client.ping()
        assert [one.uri for one in await client.list_resources()] == ["notes://one"]


# recognising a server


WELCOME = {
    "server": {"name": "old", "version": "0"},
    "serverCapabilities": {"supportsToolDiscovery": True, "supportsNotifications": True},
}
REFUSALS = {
    "refuses it": {"code": 4001, "message": "Missing required parameter 'mcpVersion'"},
    "calls it invalid": {"code": -32602, "message": "Invalid params"},
    "explains it": {"code": -32000, "message": "mcpVersion is required"},
}


async def serve_the_dialect(peer: Bare, greeted: str) -> list[str]:
    """Answer as a server that knows nothing but the dialect; return what it was sent."""
    heard: list[str] = []
    while True:
        message = await peer.receive()
        method, params = message["method"], message.get("params", {})
        heard.append(method)
        reply: dict[str, Any] = {"error": {"code": -32601, "message": f"No method {method}"}}
        if method == "initialize" and ("mcpVersion" in params or greeted == "accepts it"):
            reply = {"result": WELCOME}
        elif method == "initialize":
            reply = {"error": REFUSALS[greeted]}
        elif method == "tools/list":
            reply = {"result": [{"name": "get_weather", "inputSchema": {"type": "object"}}]}
        elif method == "tools/invoke":
            reply = {"result": {"status": "success", "output": {"temperature": 89}}}
        elif method == "shutdown":
            reply = {"result": None}
        if method == "exit":
            return heard
        if "id" in message:
            peer.send({"jsonrpc": "2.0", "id": message["id"], **reply})


@pytest.mark.parametrize("greeted", ["accepts it", *REFUSALS])
@pytest.mark.parametrize("revision", [None, "handshake"])
async def test_a_client_recognizes_a_server_of_the_dialect(
    greeted: str, revision: str | None
) -> None:
    ours, theirs = memory.pair()
    serving = asyncio.create_task(serve_the_dialect(Bare(theirs), greeted))
    async with Client(ours, revision=revision) as client:
        assert client.revision == DRAFT
        assert client.server_info is not None and client.server_info.name == "old"
        assert [tool.name for tool in await client.list_tools()] == ["get_weather"]
        result = await client.call_tool("get_weather", {"city": "Phoenix"})
        assert result.data == {"temperature": 89}
    heard = await serving
    greetings = 1 if greeted == "accepts it" else 2
    probe = ["server/discover"] if revision is None else []
    assert heard == [
        *probe, *["initialize"] * greetings, "initialized",
        "tools/list", "tools/invoke", "shutdown", "exit",
    ]  # fmt: skip


async def test_a_server_of_the_dialect_alone_is_recognized() -> None:
    server = build(revisions=[DRAFT])
    async with pair(server) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    async with bare(server) as peer:
        error = (await peer.greet("2025-11-25"))["error"]
        assert (error["code"], error["data"]["parameter"]) == (-32602, "mcpVersion")


async def test_a_client_with_a_chosen_revision_does_not_switch_to_the_dialect() -> None:
    ours, theirs = memory.pair()
    serving = asyncio.create_task(serve_the_dialect(Bare(theirs), "calls it invalid"))
    with pytest.raises(InvalidParams, match="rejected initialize"):
        async with Client(ours, revision="2025-06-18"):
            pass
    serving.cancel()


# nothing else


async def test_nothing_is_sent_that_the_dialect_does_not_know() -> None:
    server = build(limits=Limits(ping_interval=0.01))

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.info("a line")
        ctx.progress(1, 2)
        problems = []
        for ask in (ctx.sample("?"), ctx.list_roots(), ctx.elicit("?", bool)):
            try:
                await ask
            except Exception as problem:
                problems.append(type(problem).__name__)
        return " ".join(problems)

    server.add_prompt(lambda: "p", name="first")
    async with bare(server) as peer:
        await greet(peer, sampling={}, roots={"listChanged": True}, elicitation={})
        server.add_prompt(lambda: "p", name="second")
        await asyncio.sleep(0.1)
        peer.send({"jsonrpc": "2.0", "id": 5, "method": "tools/invoke", "params": {"name": "talk"}})
        heard = [await peer.receive(), await peer.receive()]
        assert [message.get("method") for message in heard] == ["progress", None]
        assert heard[1]["result"] == {"status": "success", "output": "CannotAsk " * 2 + "CannotAsk"}
        for method in ("resources/subscribe", "logging/setLevel"):
            reply = await peer.ask(method, {"uri": "notes://one", "level": "info"}, id=9)
            assert reply["error"]["code"] == -32601


async def test_a_client_sends_no_pings_in_the_dialect() -> None:
    tape = Tape()
    limits = Limits(ping_interval=0.01)
    async with pair(build(), revision=DRAFT, record=tape, limits=limits) as client:
        await asyncio.sleep(0.1)
        await client.list_tools()
    assert set(tape.methods("client")) <= KNOWN


# the end


async def test_after_shutdown_only_exit_is_accepted() -> None:
    server = build()
    async with bare(server) as peer:
        await greet(peer)
        assert (await peer.ask("shutdown", id=50))["result"] is None
        for method in ("tools/list", "tools/invoke", "ping", "shutdown", "initialize"):
            reply = await peer.ask(method, {}, id=51)
            assert reply["error"]["code"] == InvalidRequest.code, method
            assert "exit" in reply["error"]["message"]
        server.notify_resource_updated("notes://one")
        peer.send({"jsonrpc": "2.0", "method": "cancel", "params": {"id": 1}})
        await asyncio.sleep(0.05)
        peer.send({"jsonrpc": "2.0", "method": "exit"})
        await peer.ended


async def test_a_call_that_runs_at_shutdown_is_finished() -> None:
    server, release = build(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        await release.wait()
        return "done"

    async with bare(server) as peer:
        await greet(peer)
        peer.send({"jsonrpc": "2.0", "id": 5, "method": "tools/invoke", "params": {"name": "slow"}})
        assert (await peer.ask("shutdown", id=50))["result"] is None
        release.set()
        assert (await peer.receive())["result"]["output"] == "done"


async def test_a_caller_is_not_told_of_resources_that_it_may_not_read() -> None:
    server = build()
    server.add_resource(lambda: "s", "secret://one", scopes=["secrets"])
    user = Principal("ann", scopes=("other",))
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with pair(server, revision=DRAFT, user=user) as client:
        await client.subscribe("secret://one", heard.put_nowait)
        await client.subscribe("notes://one", heard.put_nowait)
        server.notify_resource_updated("secret://one")
        server.notify_resource_updated("notes://one")
        assert await heard.get() == "notes://one"
