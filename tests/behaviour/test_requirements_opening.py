"""Requirements on opening, versions, capabilities and stdio."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from dovetail import Client, Server, ToolResult
from dovetail.errors import MethodNotFound, NoCommonRevision
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from dovetail.testing import Bare, Tape, bare, pair
from dovetail.transports import memory
from tests.behaviour import everything
from tests.behaviour.conftest import Talk
from tests.behaviour.handmade import discovery, handmade, notification, refusal, reply
from tests.faults.fakes import fake, heard

META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}
HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def dial(**options: Any) -> tuple[Client, Bare]:
    """A client that is not open yet, and the other end of its channel."""
    ours, theirs = memory.pair()
    return Client(ours, **options), Bare(theirs)


@pytest.mark.requirement("lifecycle-open", "lifecycle-initialized", "lifecycle-client-quiet")
@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_a_client_greets_waits_for_the_answer_and_says_that_it_is_ready(
    revision: str,
) -> None:
    client, server = dial(revision=revision, on_log=print, roots=[])
    opening = asyncio.create_task(client.connect())
    early = asyncio.create_task(client.list_tools())
    asked = await server.receive()
    assert (asked["method"], asked["params"]["protocolVersion"]) == ("initialize", revision)
    assert asked["params"]["clientInfo"]["name"] == "dovetail"
    assert asked["params"]["capabilities"] == {"roots": {"listChanged": True}}
    for _ in range(5):
        await asyncio.sleep(0)
    assert server.waiting() == 0, "nothing is asked before the answer"
    info = {"name": "x", "version": "0"}
    server.send(
        reply(
            asked, {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info}
        )
    )
    assert (await server.receive())["method"] == "notifications/initialized"
    listed = await server.receive()
    assert listed["method"] == "tools/list"
    server.send(reply(listed, {"tools": []}))
    assert await early == []
    await opening
    await client.close()


@pytest.mark.requirement("lifecycle-latest")
async def test_a_client_asks_for_the_latest_version_that_it_speaks() -> None:
    client, server = dial(revision="handshake")
    opening = asyncio.create_task(client.connect())
    assert (await server.receive())["params"]["protocolVersion"] == "2025-11-25"
    await client.close()
    await asyncio.wait([opening])


@pytest.mark.requirement("lifecycle-disconnect")
@pytest.mark.parametrize("answered", ["1999-01-01", "2026-07-28"])
async def test_a_client_leaves_where_it_does_not_speak_the_version_it_was_answered_with(
    answered: str,
) -> None:
    client, server = dial(revision="handshake")
    opening = asyncio.create_task(client.connect())
    info = {"name": "x", "version": "0"}
    asked = await server.receive()
    server.send(reply(asked, {"protocolVersion": answered, "capabilities": {}, "serverInfo": info}))
    with pytest.raises(NoCommonRevision, match=answered):
        await opening
    await server.ended
    assert server.waiting() == 0, "it did not say that it is ready"


@pytest.mark.requirement("cancel-initialize")
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_greeting_that_is_given_up_is_not_cancelled_at_the_server(how: str) -> None:
    client, server = dial(revision="2025-06-18", timeout=0.1 if how == "timed out" else 30)
    opening = asyncio.create_task(client.connect())
    assert (await server.receive())["method"] == "initialize"
    if how == "cancelled":
        opening.cancel()
    await asyncio.wait([opening])
    await client.close()
    await server.ended
    assert server.waiting() == 0


UNOFFERED = {
    "tools": lambda client: client.list_tools(),
    "prompts": lambda client: client.get_prompt("x"),
    "resources": lambda client: client.read_resource("x:y"),
    "completions": lambda client: client.complete(prompt="x", argument="y"),
}


@pytest.mark.requirement("capabilities-client")
@pytest.mark.parametrize("capability", UNOFFERED)
async def test_what_a_server_does_not_offer_is_not_asked_of_it(
    revision: str, capability: str
) -> None:
    if (capability, revision) == ("completions", "2024-11-05"):
        pytest.skip("the first revision has no word for it")
    async with handmade(revision, {}) as (client, server):
        with pytest.raises(MethodNotFound, match=capability):
            await UNOFFERED[capability](client)
        assert server.waiting() == 0


@pytest.mark.requirement("capabilities-client")
async def test_subscriptions_and_levels_that_a_server_does_not_offer_are_not_asked_of_it() -> None:
    async with handmade("2025-06-18", {"resources": {}}) as (client, server):
        with pytest.raises(MethodNotFound, match=r"resources\.subscribe"):
            await client.subscribe("x:y", print)
        with pytest.raises(MethodNotFound, match="logging"):
            await client.set_log_level("info")
        assert server.waiting() == 0


@pytest.mark.requirement(
    "tools-capability",
    "resources-capability",
    "prompts-capability",
    "completion-capability",
    "logging-capability",
)
async def test_a_server_declares_all_that_it_does(in_memory: Talk) -> None:
    async with in_memory(Server("empty")) as client:
        declared = set(client.capabilities)
        assert {"tools", "resources", "prompts", "logging"} <= declared
        assert ("completions" in declared) == in_memory.at_least("2025-03-26")
        assert (client.capabilities.resources or {}).get("subscribe") is True
        assert (
            await client.list_tools()
            == await client.list_resources()
            == await client.list_prompts()
            == []
        )


# versions, without a handshake


@pytest.mark.requirement("stateless-version-retry", "dual-era-modern-error")
async def test_a_client_whose_version_is_refused_takes_one_that_both_speak() -> None:
    client, server = dial()
    opening = asyncio.create_task(client.connect())
    asked = await server.receive()
    server.send(
        refusal(
            asked,
            -32022,
            "no",
            {"supported": ["2025-06-18", "2024-11-05"], "requested": "2026-07-28"},
        )
    )
    asked = await server.receive()
    assert (asked["method"], asked["params"]["protocolVersion"]) == ("initialize", "2025-11-25")
    info = {"name": "x", "version": "0"}
    server.send(
        reply(asked, {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info})
    )
    await opening
    assert client.revision == "2025-06-18"
    await client.close()


@pytest.mark.requirement("stateless-version-retry", "dual-era-modern-error")
@pytest.mark.parametrize("supported", [["2030-01-01"], []])
async def test_a_refusal_that_leaves_no_version_is_said_and_no_reason_to_greet(
    supported: list[str],
) -> None:
    client, server = dial()
    opening = asyncio.create_task(client.connect())
    asked = await server.receive()
    server.send(refusal(asked, -32022, "no", {"supported": supported, "requested": "2026-07-28"}))
    with pytest.raises(NoCommonRevision):
        await opening
    assert server.waiting() == 0


@pytest.mark.requirement("dual-era-probe")
async def test_a_client_of_both_eras_discovers_before_it_asks_anything_else() -> None:
    tape = Tape()
    async with pair(everything.build(), record=tape) as client:
        await client.list_tools()
    assert tape.methods("client") == ["server/discover", "tools/list"]


@pytest.mark.requirement("dual-era-remembered")
async def test_a_server_is_probed_once_and_then_known(tmp_path: Path) -> None:
    for _ in range(3):
        async with Client(fake(tmp_path, "serve()")) as client:
            assert client.revision == "2025-06-18"
    assert len(heard(tmp_path, "server/discover")) == 1
    assert len(heard(tmp_path, "initialize")) == 3


# who may send what


@pytest.mark.requirement("stdio-no-responses", "stdio-no-requests")
@pytest.mark.parametrize("method", ["ping", "sampling/createMessage", "roots/list", "no/such", 5])
async def test_a_client_of_the_stateless_era_never_replies(method: Any) -> None:
    async with handmade(on_sample=lambda request: "x", roots=[]) as (client, server):
        server.send({"jsonrpc": "2.0", "id": "q", "method": method, "params": {}})
        asking = asyncio.create_task(client.list_tools())
        asked = await server.receive()
        assert asked["method"] == "tools/list", "nothing was said to the question"
        server.send(reply(asked, {"tools": []}))
        assert await asking == []
        assert server.waiting() == 0


@pytest.mark.requirement("capabilities-server", "asking-undeclared")
@pytest.mark.parametrize(
    "method", ["sampling/createMessage", "roots/list", "elicitation/create", "no/such"]
)
async def test_a_client_of_the_handshake_era_refuses_what_it_did_not_declare(method: str) -> None:
    async with handmade("2025-11-25") as (_, server):
        assert (await server.ask(method, {}))["error"]["code"] == -32601
        assert (await server.ask("ping"))["result"] == {}


@pytest.mark.requirement("stdio-no-requests", "cancel-server-only-streams")
async def test_a_server_of_the_stateless_era_sends_nothing_but_replies_and_notifications() -> None:
    from dovetail import Limits

    server = everything.build(limits=Limits(ping_interval=0.01, shutdown=0.1))
    async with bare(server) as peer:
        for id, name in enumerate(["talk", "add", "fail", "late", "wait"]):
            arguments = {"add": {"a": 1}, "fail": {"kind": "plain"}}.get(name, {})
            call = {"name": name, "arguments": arguments, "_meta": META}
            peer.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call})
        replies = [await peer.receive() for _ in range(4)]
        assert {message["id"] for message in replies} == {0, 1, 2, 3}
        peer.send(notification("notifications/cancelled", requestId=4))
        await peer.ask("server/discover", {"_meta": META}, id="last")
        assert peer.waiting() == 0


@pytest.mark.requirement("stdio-newlines")
async def test_no_message_holds_a_newline_whatever_is_in_it(in_memory: Talk) -> None:
    server = Server("lines")

    @server.tool
    async def lines(text: str) -> ToolResult:
        return ToolResult(content=[], structured_content=Raw(b'{\n"text":\r\n"x"\n}'))

    async with in_memory(server) as client:
        result = await client.call_tool("lines", Raw(b'{\n  "text": "a\\nb"\n}'))
        if in_memory.at_least("2025-06-18"):
            assert result.structured_content == {"text": "x"}
    assert [data for _, data in in_memory.tape.entries if b"\n" in data] == []


@pytest.mark.requirement("stdio-utf8")
async def test_messages_are_utf8_as_they_are(in_memory: Talk) -> None:
    async with in_memory() as client:
        assert (
            await client.call_tool("shout", {"text": "\u00e9\u4e16\U0001f600"})
        ).text == "\u00c9\u4e16\U0001f600"
    assert all(data.decode() for _, data in in_memory.tape.entries)


@pytest.mark.requirement("stateless-discover")
async def test_a_discovery_is_understood_in_its_smallest_form() -> None:
    client, server = dial(revision="stateless")
    opening = asyncio.create_task(client.connect())
    asked = await server.receive()
    assert asked["params"].keys() == {"_meta"}
    server.send(reply(asked, discovery({})))
    await opening
    assert (client.revision, client.server_info, client.instructions) == ("2026-07-28", None, None)
    await client.close()
