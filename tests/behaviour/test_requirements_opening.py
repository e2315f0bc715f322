"""Requirements on opening, versions, capabilities and stdio."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from dovetail import Client, Server, ToolResult
from dovetail.errors import InvalidParams, MethodNotFound, NoCommonRevision, NotFound
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from dovetail.protocol.lifecycle import ServerCapabilities
from dovetail.testing import Bare, Tape, bare, pair
from dovetail.transports import memory
from tests.behaviour import everything
from tests.behaviour.conftest import Talk
from tests.behaviour.handmade import OFFERED, discovery, handmade, notification, refusal, reply
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
    "tools": lambda client: client.call_tool("x"),
    "prompts": lambda client: client.get_prompt("x"),
    "resources": lambda client: client.read_resource("x:y"),
    "completions": lambda client: client.complete(prompt="x", argument="y"),
}
LISTS = ["list_tools", "list_prompts", "list_resources", "list_resource_templates"]


async def unasked(asking: Any, server: Bare, revision: str) -> Any:
    """The outcome of a request that is not sent. In the stateless era, the server is asked what it
    offers now."""
    task = asyncio.ensure_future(asking)
    if revision == "2026-07-28":
        asked = await server.receive()
        assert asked["method"] == "server/discover"
        server.send(reply(asked, discovery({})))
    await asyncio.wait([task])
    assert server.waiting() == 0
    return await task


@pytest.mark.requirement("capabilities-client")
@pytest.mark.parametrize("capability", UNOFFERED)
async def test_what_a_server_does_not_offer_is_not_asked_of_it(
    revision: str, capability: str
) -> None:
    if (capability, revision) == ("completions", "2024-11-05"):
        pytest.skip("the first revision has no word for it")
    async with handmade(revision, {}) as (client, server):
        with pytest.raises(MethodNotFound, match=f"does not offer {capability}"):
            await unasked(UNOFFERED[capability](client), server, revision)


@pytest.mark.requirement("capabilities-client")
@pytest.mark.parametrize("name", LISTS)
async def test_a_list_that_a_server_does_not_offer_is_empty(revision: str, name: str) -> None:
    async with handmade(revision, {}) as (client, server):
        assert await unasked(getattr(client, name)(), server, revision) == []


@pytest.mark.requirement("capabilities-client")
async def test_a_list_that_a_server_offers_and_does_not_have_is_an_error(revision: str) -> None:
    async with handmade(revision, {"tools": {}}) as (client, server):
        listing = asyncio.create_task(client.list_tools())
        server.send(refusal(await server.receive(), -32601, "no tools"))
        with pytest.raises(MethodNotFound, match="no tools"):
            await listing


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_what_a_server_announces_is_asked_of_it_though_it_was_not_declared(
    revision: str, kind: str
) -> None:
    async with handmade(revision, {}) as (client, server):
        server.send(notification(f"notifications/{kind}/list_changed"))
        listing = asyncio.create_task(getattr(client, f"list_{kind}")())
        asked = await server.receive()
        assert asked["method"] == f"{kind}/list"
        cacheable = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        extra = cacheable if revision == "2026-07-28" else {}
        server.send(reply(asked, {kind: [], **extra}))
        assert await listing == []


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
    async with in_memory() as client:
        declared = set(client.capabilities)
        assert {"tools", "resources", "prompts", "logging"} <= declared
        assert ("completions" in declared) == in_memory.at_least("2025-03-26")
        assert (client.capabilities.resources or {}).get("subscribe") is True


LISTED = {"listChanged": True}
TOOLS = {"tools": LISTED}
PROMPTS = {"prompts": LISTED}
RESOURCES = {"resources": {"subscribe": True, **LISTED}}
STAGES: list[tuple[str, dict[str, Any]]] = [
    ("empty", {}),
    ("tool", TOOLS),
    ("template", TOOLS | RESOURCES),
    ("resource", TOOLS | RESOURCES),
    ("prompt", TOOLS | RESOURCES | PROMPTS),
    ("completer", TOOLS | RESOURCES | PROMPTS | {"completions": {}}),
    ("no tool", RESOURCES | PROMPTS | {"completions": {}}),
]
"""What is done to a server, one after the other, and what it then declares besides logging."""


@pytest.mark.requirement(
    "tools-capability", "resources-capability", "prompts-capability", "completion-capability"
)
async def test_a_server_declares_what_it_has(talk: Talk) -> None:
    server, prompts = Server("growing"), list[Any]()
    steps = {
        "empty": lambda: None,
        "tool": lambda: server.add_tool(lambda: 1, name="t"),
        "template": lambda: server.add_resource(lambda x: x, "x://{x}"),
        "resource": lambda: server.add_resource(lambda: "y", "y://y"),
        "prompt": lambda: prompts.append(server.add_prompt(lambda a: a, name="p")),
        "completer": lambda: prompts[0].complete("a", ["b"]),
        "no tool": lambda: server.remove_tool("t"),
    }
    for stage, declared in STAGES:
        steps[stage]()
        if not talk.at_least("2025-03-26"):
            declared = {kind: part for kind, part in declared.items() if kind != "completions"}
        async with talk(server) as client:
            assert client.capabilities == {"logging": {}, **declared}, stage


@pytest.mark.requirement("tools-capability")
@pytest.mark.parametrize(
    ("choice", "declared"),
    [
        ({"tools": True}, TOOLS | PROMPTS),
        ({"prompts": False}, {}),
        (
            {"tools": {}, "prompts": {"listChanged": False}},
            {"tools": {}, "prompts": {"listChanged": False}},
        ),
        ({"resources": {"subscribe": True}}, PROMPTS | {"resources": {"subscribe": True}}),
    ],
)
async def test_what_a_server_declares_can_be_chosen(
    in_memory: Talk, choice: Any, declared: dict[str, Any]
) -> None:
    server = Server("chosen", capabilities=choice)
    server.add_prompt(lambda: "x", name="p")
    async with in_memory(server) as client:
        assert client.capabilities == {"logging": {}, **declared}
        assert await client.list_tools() == [], "what is declared is answered, or not asked for"
        shown = [prompt.name for prompt in await client.list_prompts()]
        assert shown == ([] if choice == {"prompts": False} else ["p"])


METHODS_BY_KIND: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tools": [("tools/list", {}), ("tools/call", {"name": "x", "arguments": {}})],
    "resources": [
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "x://y"}),
        ("resources/subscribe", {"uri": "x://y"}),
        ("resources/unsubscribe", {"uri": "x://y"}),
    ],
    "prompts": [("prompts/list", {}), ("prompts/get", {"name": "x"})],
    "completions": [
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
        )
    ],
}


def believe_everything(client: Client) -> None:
    """Make a client ask for all kinds, whatever the server declared."""
    session = client._connector.session
    assert session is not None
    session.server_capabilities = ServerCapabilities.lift(OFFERED)


@pytest.mark.requirement(
    "tools-capability", "resources-capability", "prompts-capability", "completion-capability"
)
async def test_what_is_neither_declared_nor_registered_is_not_found(talk: Talk) -> None:
    server = Server("empty")
    async with talk(server) as client:
        believe_everything(client)
        for kind, methods in METHODS_BY_KIND.items():
            for method, params in methods:
                if talk.stateless and method.endswith("subscribe"):
                    continue  # this revision does not have it
                with pytest.raises(MethodNotFound, match=f"This server has no {kind}"):
                    await client.request(method, params)
        server.add_prompt(lambda a: a, name="p")
        assert [prompt.name for prompt in await client.list_prompts(fresh=True)] == ["p"]
        with pytest.raises(MethodNotFound, match="This server has no completions"):
            await client.complete(prompt="p", argument="a")
        await client.ping()


async def test_what_is_declared_but_not_registered_is_empty_or_unknown(in_memory: Talk) -> None:
    server = Server("declared", capabilities=dict.fromkeys(METHODS_BY_KIND, True))
    async with in_memory(server) as client:
        for name in LISTS:
            assert await getattr(client, name)() == []
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await client.call_tool("x")
        with pytest.raises(InvalidParams, match="Unknown prompt"):
            await client.get_prompt("x")
        with pytest.raises(InvalidParams, match="Unknown prompt"):
            await client.complete(prompt="x", argument="y")
        with pytest.raises(NotFound):
            await client.read_resource("x://y")


async def test_a_kind_that_was_removed_is_an_empty_list(in_memory: Talk) -> None:
    server = Server("shrinking")
    server.add_tool(lambda: 1, name="t")
    async with in_memory(server) as client:
        changed = asyncio.Event()
        await client.on_change("tools", lambda kind: changed.set())
        server.remove_tool("t")
        await changed.wait()
        assert await client.list_tools() == []
        with pytest.raises(InvalidParams, match="Unknown tool: t"):
            await client.call_tool("t")


async def test_a_kind_that_comes_later_is_announced_and_served(talk: Talk) -> None:
    server = Server("growing")
    async with talk(server) as client:
        assert set(client.capabilities) == {"logging"}
        heard: asyncio.Queue[str] = asyncio.Queue()
        for kind in ("tools", "resources", "prompts"):
            await client.on_change(kind, heard.put_nowait)
        if not talk.stateless:
            with pytest.raises(MethodNotFound, match="the server does not offer tools"):
                await client.call_tool("t")
        await client.ping()  # the server has received all of the opening
        server.add_tool(lambda: 1, name="t")
        assert await heard.get() == "tools"
        assert [tool.name for tool in await client.list_tools()] == ["t"]
        assert (await client.call_tool("t")).text == "1"
        server.add_resource(lambda: "y", "y://y")
        assert await heard.get() == "resources"
        assert [resource.uri for resource in await client.list_resources()] == ["y://y"]
        await client.subscribe("y://y", heard.put_nowait)
        server.notify_resource_updated("y://y")
        assert await heard.get() == "y://y"
        server.add_prompt(lambda a: a, name="p").complete("a", ["b"])
        assert await heard.get() == "prompts"
        assert [prompt.name for prompt in await client.list_prompts()] == ["p"]
        assert (await client.complete(prompt="p", argument="a")).values == ["b"]


async def test_without_listening_a_stateless_client_sees_a_kind_that_comes_later() -> None:
    server, tape = Server("growing"), Tape()
    async with pair(server, revision="2026-07-28", record=tape) as client:
        assert await client.list_tools() == []
        server.add_tool(lambda: 1, name="t")
        assert (await client.call_tool("t")).text == "1"
        assert [tool.name for tool in await client.list_tools()] == ["t"]
        assert client.capabilities.tools == LISTED
    assert tape.methods("client") == ["server/discover"] * 3 + ["tools/call", "tools/list"]


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
async def test_a_refusal_that_leaves_no_version_is_said_and_no_reason_to_greet() -> None:
    client, server = dial()
    opening = asyncio.create_task(client.connect())
    asked = await server.receive()
    named = {"supported": ["2030-01-01"], "requested": "2026-07-28"}
    server.send(refusal(asked, -32022, "no", named))
    with pytest.raises(NoCommonRevision, match="2030-01-01"):
        await opening
    assert server.waiting() == 0


@pytest.mark.requirement("dual-era-modern-error")
async def test_a_refusal_that_names_no_version_is_a_reason_to_greet() -> None:
    """A server of the draft dialect has no version of its own to name."""
    client, server = dial()
    opening = asyncio.create_task(client.connect())
    for method in ("server/discover", "initialize"):
        asked = await server.receive()
        assert asked["method"] == method
        server.send(refusal(asked, -32022, "no", {"supported": [], "requested": "x"}))
    with pytest.raises(NoCommonRevision, match="no published revision"):
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
