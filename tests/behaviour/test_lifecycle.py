"""How conversations open, in both eras."""

import asyncio
from typing import Any

import pytest

from dovetail import Client, Context, Server
from dovetail.connection import input_requests
from dovetail.errors import NoCommonRevision
from dovetail.protocol.base import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SERVER_INFO,
)
from dovetail.protocol.tasks import EXTENSION
from dovetail.testing import Tape, bare, pair
from tests.behaviour import everything
from tests.behaviour.conftest import REVISIONS, Talk

META = {
    PROTOCOL_VERSION: "2026-07-28",
    CLIENT_CAPABILITIES: {},
    CLIENT_INFO: {"name": "bare", "version": "0"},
}


@pytest.mark.requirement("transport-custom")
@pytest.mark.requirement("lifecycle-open")
async def test_both_sides_know_each_other_after_opening(talk: Talk) -> None:
    async with talk() as client:
        assert client.revision == talk.revision
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("everything", "1.2.3")
        assert (client.server_info.title == "Everything") == talk.at_least("2025-06-18")
        assert (client.server_info.website_url is not None) == talk.at_least("2025-11-25")
        assert client.instructions == "Try it all."
        assert client.capabilities.experimental == {"flag": {"on": True}}
        assert client.capabilities.tools is not None
        assert client.state == "connected"
    assert client.state == "closed"


@pytest.mark.requirement("lifecycle-latest")
@pytest.mark.requirement("lifecycle-open")
async def test_left_to_itself_a_client_finds_the_newest_revision() -> None:
    async with pair(everything.build()) as client:
        assert client.revision == "2026-07-28"


@pytest.mark.requirement("lifecycle-negotiation")
@pytest.mark.parametrize("served", REVISIONS)
async def test_a_client_finds_whatever_single_revision_a_server_speaks(served: str) -> None:
    async with pair(Server("old", revisions=[served])) as client:
        assert client.revision == served
        assert await client.list_tools() == []


@pytest.mark.requirement("lifecycle-negotiation")
async def test_no_revision_in_common_is_said_plainly() -> None:
    with pytest.raises(NoCommonRevision, match="2026-07-28"):
        async with pair(Server("new", revisions=["2026-07-28"]), revision="2025-06-18"):
            pass
    with pytest.raises(NoCommonRevision):
        async with pair(Server("old", revisions=["2024-11-05"]), revision="stateless"):
            pass


@pytest.mark.requirement("lifecycle-latest")
@pytest.mark.requirement("lifecycle-negotiation")
async def test_an_unknown_version_is_answered_with_the_newest_handshake_revision() -> None:
    async with bare(everything.build()) as peer:
        reply = await peer.greet("1999-01-01")
        assert reply["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.requirement("lifecycle-initialize-once")
async def test_a_second_greeting_is_refused() -> None:
    async with bare(everything.build()) as peer:
        await peer.greet("2025-06-18")
        assert (await peer.greet("2025-06-18"))["error"]["code"] == -32600
        assert "result" in await peer.ask("tools/list")


@pytest.mark.requirement("lifecycle-before-initialize")
async def test_before_the_greeting_only_ping_is_answered() -> None:
    async with bare(everything.build()) as peer:
        assert (await peer.ask("ping"))["result"] == {}
        reply = await peer.ask("tools/list")
        assert reply["error"]["code"] == -32602
        assert "initialize" in reply["error"]["message"]


@pytest.mark.requirement("lifecycle-quiet-before-initialized")
async def test_nothing_is_announced_before_the_client_is_ready() -> None:
    server = everything.build()
    async with bare(server) as peer:
        info = {"name": "bare", "version": "0"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        await peer.ask("initialize", params)
        server.remove_tool("full")
        await peer.ask("ping")
        await peer.ask("ping")
        assert peer.waiting() == 0
        peer.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        server.remove_tool("late")
        assert (await peer.receive())["method"] == "notifications/tools/list_changed"


def asking_server() -> Server:
    server = Server("asker")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    return server


GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "bare", "version": "0"},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def test_nothing_is_asked_before_the_client_is_ready() -> None:
    async with bare(asking_server()) as peer:
        await peer.ask("initialize", GREETING)
        for id in (7, 8):
            peer.send(call("ask", id))
        for _ in range(3):
            await peer.ask("ping")
        assert peer.waiting() == 0
        peer.send(INITIALIZED)
        questions = [await peer.receive(), await peer.receive()]
        assert [question["method"] for question in questions] == ["elicitation/create"] * 2
        peer.send({"jsonrpc": "2.0", "id": questions[0]["id"], "result": {"action": "decline"}})
        assert (await peer.receive())["result"]["content"][0]["text"] == "decline"
        peer.send(call("ask", 9))  # from now on, nothing waits
        assert (await peer.receive())["method"] == "elicitation/create"


async def test_a_client_that_never_says_it_is_ready_is_asked_nevertheless(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(input_requests, "INITIALIZED_SECONDS", 0.05)
    async with bare(asking_server()) as peer:
        await peer.ask("initialize", GREETING)
        for id in (7, 8):
            peer.send(call("ask", id))
            assert (await peer.receive())["method"] == "elicitation/create"
    logged = [one for one in caplog.messages if "notifications/initialized within 0.05 s" in one]
    assert len(logged) == 1


async def test_a_client_that_leaves_before_it_is_ready_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_requests, "INITIALIZED_SECONDS", 600)
    async with asyncio.timeout(60):
        async with bare(asking_server()) as peer:
            await peer.ask("initialize", GREETING)
            peer.send(call("ask", 7))
            await peer.ask("ping")


def call(tool: str, id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool}}


@pytest.mark.requirement("stateless-client-info")
@pytest.mark.requirement("stateless-meta")
async def test_every_stateless_request_carries_version_capabilities_and_identity() -> None:
    tape = Tape()
    async with pair(everything.build(), revision="2026-07-28", record=tape, on_log=print) as client:
        await client.list_tools()
        await client.call_tool("add", {"a": 1})
    for message in tape.messages("client"):
        meta = message["params"]["_meta"]
        assert meta[PROTOCOL_VERSION] == "2026-07-28"
        assert meta[CLIENT_CAPABILITIES] == {"extensions": {EXTENSION: {}}}, (
            "tasks are waited for by themselves"
        )
        assert meta[CLIENT_INFO]["name"] == "dovetail"
        assert meta[LOG_LEVEL] == "debug"


@pytest.mark.requirement("result-type")
@pytest.mark.requirement("stateless-server-info")
async def test_every_stateless_result_carries_its_type_and_the_server() -> None:
    tape = Tape()
    async with pair(everything.build(), revision="2026-07-28", record=tape) as client:
        await client.list_tools()
        await client.call_tool("add", {"a": 1})
        await client.read_resource("doc://text")
    for message in tape.messages("server"):
        assert message["result"]["resultType"] == "complete"
        assert message["result"]["_meta"][SERVER_INFO]["name"] == "everything"


@pytest.mark.requirement("stateless-version-error")
async def test_an_unsupported_version_is_refused_with_those_that_are() -> None:
    async with bare(everything.build()) as peer:
        reply = await peer.ask("tools/list", {"_meta": {**META, PROTOCOL_VERSION: "1900-01-01"}})
        assert reply["error"]["code"] == -32022
        assert reply["error"]["data"]["requested"] == "1900-01-01"
        assert "2026-07-28" in reply["error"]["data"]["supported"]


@pytest.mark.requirement("logging-level-invalid")
@pytest.mark.requirement("stateless-missing-meta")
async def test_a_stateless_request_without_capabilities_is_refused() -> None:
    async with bare(everything.build()) as peer:
        reply = await peer.ask("tools/list", {"_meta": {PROTOCOL_VERSION: "2026-07-28"}})
        assert reply["error"]["code"] == -32602
        assert CLIENT_CAPABILITIES in reply["error"]["message"]
        reply = await peer.ask("tools/list", {"_meta": {**META, LOG_LEVEL: "loud"}})
        assert reply["error"]["code"] == -32602


@pytest.mark.requirement("stateless-discover")
async def test_a_server_tells_what_it_speaks_and_offers() -> None:
    async with bare(everything.build()) as peer:
        result = (await peer.ask("server/discover", {"_meta": META}))["result"]
        assert result["supportedVersions"] == list(reversed(REVISIONS))
        assert result["capabilities"]["tools"] == {"listChanged": True}
        assert result["instructions"] == "Try it all."


@pytest.mark.requirement("stateless-removed-methods")
@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe"])
async def test_what_the_stateless_era_dropped_does_not_exist_there(method: str) -> None:
    async with bare(everything.build()) as peer:
        params = {"_meta": META, "uri": "doc://text", "level": "info"}
        assert (await peer.ask(method, params))["error"]["code"] == -32601


@pytest.mark.requirement("dual-era")
async def test_both_eras_are_served_on_one_connection() -> None:
    async with bare(everything.build()) as peer:
        await peer.greet("2025-03-26")
        old = (await peer.ask("tools/list", id=2))["result"]
        new = (await peer.ask("tools/list", {"_meta": META}, id=3))["result"]
        assert "resultType" not in old
        assert new["resultType"] == "complete"
        assert "title" not in old["tools"][0]
        assert new["tools"][0]["title"] == "Add"


@pytest.mark.requirement("lifecycle-handshake-only-client")
async def test_a_modern_only_server_names_its_versions_to_a_greeting() -> None:
    async with bare(Server("new", revisions=["2026-07-28"])) as peer:
        reply = await peer.greet("2025-06-18")
        assert "2026-07-28" in reply["error"]["message"]


async def test_a_client_may_be_opened_in_one_task_and_closed_in_another() -> None:
    client = Client(everything.build())
    await asyncio.create_task(client.connect())
    assert (await asyncio.create_task(client.call_tool("add", {"a": 1}))).data == 2
    await asyncio.create_task(client.close())
    assert client.state == "closed"


@pytest.mark.requirement("batching-initialize")
@pytest.mark.requirement("batching")
async def test_batches_are_answered_as_one_where_the_revision_has_them() -> None:
    async with bare(everything.build()) as peer:
        await peer.greet("2025-03-26")
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": 1}},
        }
        note = {"jsonrpc": "2.0", "method": "notifications/nothing"}
        greeting = {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {}}
        peer.send(
            [call, note, {"jsonrpc": "2.0", "id": 3, "method": "ping"}, greeting, {"garbage": True}]
        )
        replies = {reply.get("id"): reply for reply in await peer.receive()}
        assert replies[1]["result"]["content"][0]["text"] == "2"
        assert replies[3]["result"] == {}
        assert replies[2]["error"]["code"] == -32600
        assert replies[None]["error"]["code"] == -32600
        peer.send([note, note])
        assert (await peer.ask("ping", id=9))["result"] == {}


@pytest.mark.requirement("batching")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_batches_are_refused_elsewhere(version: str) -> None:
    async with bare(everything.build()) as peer:
        await peer.greet(version)
        peer.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
        reply = await peer.receive()
        assert reply["error"]["code"] == -32600
        assert version in reply["error"]["message"]
