"""What the specification asks of a client over HTTP, demand by demand, where no other test of the
client shows it yet."""

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail import Client
from dovetail.client import reconnect
from dovetail.errors import ConnectFailed, DovetailError, ProtocolError
from dovetail.transports.http.client import channel as http
from tests.transports.http.scripted import (
    CAPABILITIES,
    INFO,
    OLD,
    WELCOME,
    Asked,
    Script,
    Scripted,
    modern,
    old,
)

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
ACCEPT = "application/json, text/event-stream"


@pytest.fixture(autouse=True)
def _no_memory_of_eras() -> Iterator[None]:
    reconnect._handshake_servers.clear()
    yield
    reconnect._handshake_servers.clear()


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_SECONDS", 0.01)


def listed(*tools: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """The answer to `tools/list`: names, and the schemas of their input."""
    shown = [{"name": name, "inputSchema": {"type": "object", **schema}} for name, schema in tools]
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": shown}


def stateless(answer: Script) -> Script:
    async def script(asked: Asked) -> None:
        if not await modern(asked):
            await answer(asked)

    return script


def handshake(answer: Script) -> Script:
    async def script(asked: Asked) -> None:
        if not await old(asked):
            await answer(asked)

    return script


async def busy_server(asked: Asked) -> None:
    """A server of the handshake era that makes its client send everything a client sends."""
    if asked.rpc == "GET":
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}, id="g-1")
        await asked.hung_up.wait()
    elif asked.rpc == "tools/call":
        await asked.hung_up.wait()
    elif asked.rpc in ("a reply", "notifications/cancelled", "notifications/roots/list_changed"):
        await asked.answer(202)
    elif not await old(asked):
        await asked.result({"tools": []})


async def everything(server: Scripted, client: Client) -> None:
    """Requests, a notification, a reply, a cancellation, a stream; closing adds the goodbye."""
    await asyncio.gather(client.list_tools(), client.list_tools())
    await server.until("a reply")
    calling = asyncio.create_task(client.call_tool("x"))
    await server.until("tools/call")
    calling.cancel()
    await server.until("notifications/cancelled")


# each message


@pytest.mark.requirement("http-client-post", "http-client-accept")
async def test_each_message_of_the_handshake_era_is_one_post_that_accepts_both_kinds_of_reply() -> (
    None
):
    async with Scripted(busy_server) as server:
        async with Client(server.url, revision="handshake", roots=["file:///a"]) as client:
            await everything(server, client)
        posts = [one for one in server.asked if one.body]
        assert {one.rpc for one in posts} == {
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
            "a reply",
            "notifications/cancelled",
        }
        assert {one.method for one in posts} == {"POST"}
        assert {one.path for one in posts} == {"/mcp"}
        assert {one.headers["accept"] for one in posts} == {ACCEPT}
        assert all(
            isinstance(one.message, dict) and one.message["jsonrpc"] == "2.0" for one in posts
        )


@pytest.mark.requirement(
    "http-client-post", "http-client-accept", "http-client-version", "http-client-standard-headers"
)
async def test_each_request_of_the_stateless_era_is_one_post_that_says_what_it_is() -> None:
    async def answer(asked: Asked) -> None:
        await asked.result(listed() if asked.rpc == "tools/list" else DONE)

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url) as client:
            await asyncio.gather(
                *(client.call_tool(f"t{n}") for n in range(5)), client.list_tools(), client.ping()
            )
        assert len(server.asked) == 8
        for one in server.asked:
            assert (one.method, one.path, one.headers["accept"]) == ("POST", "/mcp", ACCEPT)
            meta = one.message["params"]["_meta"]
            assert (
                one.headers["mcp-protocol-version"]
                == meta["io.modelcontextprotocol/protocolVersion"]
            )
            assert one.headers["mcp-method"] == one.message["method"]
            assert one.headers.get("mcp-name") == one.message["params"].get("name")


@pytest.mark.requirement("http-client-no-responses")
async def test_what_a_stateless_server_asks_on_a_stream_is_not_answered() -> None:
    async def answer(asked: Asked) -> None:
        await asked.stream()
        for id, method in enumerate(("roots/list", "ping", "no/such", "sampling/createMessage")):
            await asked.event({"jsonrpc": "2.0", "id": id, "method": method})
        await asked.event(asked.reply(DONE))
        await asked.end()

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url, roots=["file:///a"]) as client:
            assert (await client.call_tool("x")).data == "done"
            await client.ping()
        assert [one.rpc for one in server.asked] == [
            "server/discover",
            "tools/call",
            "server/discover",
        ]


@pytest.mark.requirement("http-client-comments")
async def test_comments_and_events_of_other_names_are_no_messages() -> None:
    async def answer(asked: Asked) -> None:
        await asked.stream()
        wrong = json.dumps(
            asked.reply({"resultType": "complete", "content": [{"type": "text", "text": "wrong"}]})
        )
        await asked.chunk(
            f":\r\n\r\n: data: {wrong}\n\n:data: {wrong}\n\nevent: other\ndata: {wrong}\n\n".encode()  # noqa: E501
        )
        await asked.event(asked.reply(DONE))
        await asked.end()

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url) as client:
            assert (await client.call_tool("x")).data == "done"


@pytest.mark.requirement("http-client-header-case")
async def test_names_of_headers_that_come_back_may_be_spelled_as_anyone_likes() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "initialize":
            body = json.dumps(asked.reply(WELCOME)).encode()
            await asked.answer(
                200, body, {"cOnTeNt-TyPe": "application/json", "MCP-SESSION-ID": "s-1"}
            )
        elif asked.rpc == "tools/list" and len(server.heard("tools/list")) == 1:
            await asked.answer(503, headers={"RETRY-AFTER": "0"})
        elif not await old(asked):
            await asked.result({"tools": []})

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            assert await client.list_tools() == []
        assert server.heard("tools/list")[1].headers["mcp-session-id"] == "s-1"


# headers of parameters

REGION = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.requirement("http-client-params", "http-client-encoded")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("a\r\nInjected: 1", "=?base64?YQ0KSW5qZWN0ZWQ6IDE=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?BASE64?literal?=", "=?BASE64?literal?="),
        ("", ""),
        (-7, "-7"),
        (2**53 - 1, "9007199254740991"),
        (True, "true"),
        (False, "false"),
    ],
)
async def test_a_value_stands_in_its_header_as_the_specification_spells_it(
    value: Any, header: str
) -> None:
    kind = {str: "string", int: "integer", bool: "boolean"}[type(value)]
    nested = {"type": "object", "properties": {"value": {"type": kind, "x-mcp-header": "X-Value"}}}

    async def answer(asked: Asked) -> None:
        listing = listed(("t", {"properties": {"deep": nested}}))
        await asked.result(listing if asked.rpc == "tools/list" else DONE)

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url) as client:
            await client.list_tools()
            await client.call_tool("t", {"deep": {"value": value}, "value": "elsewhere"})
        (call,) = server.heard("tools/call")
        assert call.headers["mcp-param-x-value"] == header
        assert "injected" not in call.headers


@pytest.mark.requirement("http-client-encoded")
@pytest.mark.parametrize(
    ("name", "header"), [("a b", "a b"), ("a\tb", "=?base64?YQli?="), (" a", "=?base64?IGE=?=")]
)
async def test_a_name_that_no_header_can_carry_is_encoded(name: str, header: str) -> None:
    async def answer(asked: Asked) -> None:
        await asked.result({"resultType": "complete", "messages": []})

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url) as client:
            await client.get_prompt(name)
        assert server.heard("prompts/get")[0].headers["mcp-name"] == header


@pytest.mark.requirement("http-client-params-null")
@pytest.mark.parametrize(
    "arguments", [{}, {"deep": None}, {"deep": {}}, {"deep": {"value": None}}, {"deep": "flat"}]
)
async def test_where_there_is_no_value_there_is_no_header(arguments: dict[str, Any]) -> None:
    nested = {
        "type": "object",
        "properties": {"value": {"type": "string", "x-mcp-header": "Value"}},
    }

    async def answer(asked: Asked) -> None:
        listing = listed(("t", {"properties": {"deep": nested}}))
        await asked.result(listing if asked.rpc == "tools/list" else DONE)

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url) as client:
            await client.list_tools()
            await client.call_tool("t", arguments)
        assert not any(
            name.startswith("mcp-param-") for name in server.heard("tools/call")[0].headers
        )


@pytest.mark.requirement("http-client-params")
async def test_what_goes_into_headers_is_still_known_after_the_server_was_away() -> None:
    async def answer(asked: Asked) -> None:
        await asked.result(
            listed(("sql", {"properties": {"region": REGION}}))
            if asked.rpc == "tools/list"
            else DONE
        )

    async with Scripted(stateless(answer)) as first:
        client = Client(first.url)
        await client.list_tools()
        await client.call_tool("sql", {"region": "north"})
    states: list[str] = []
    client.on_change("state", states.append)
    calling = asyncio.create_task(
        client.call_tool("sql", {"region": "south"})
    )  # while nobody is there
    while "reconnecting" not in states:
        await asyncio.sleep(0.01)
    async with Scripted(stateless(answer), port=first.port) as second:
        assert (await calling).data == "done"
        assert [one.headers["mcp-param-region"] for one in second.heard("tools/call")] == ["south"]
        assert second.heard("tools/list") == []
        await client.close()


@pytest.mark.requirement("http-client-mismatch")
async def test_a_tool_that_has_changed_is_looked_up_anew_whatever_is_cached() -> None:
    async def answer(asked: Asked) -> None:
        if asked.rpc == "tools/list":
            first = len(server.heard("tools/list")) == 1
            schema = {"properties": {"region": {"type": "string"} if first else REGION}}
            await asked.result({**listed(("sql", schema)), "ttlMs": 60_000})
        elif "mcp-param-region" in asked.headers:
            await asked.result(DONE)
        else:
            await asked.error(-32020, "Mcp-Param-Region is missing", 400)

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url) as client:
            await client.list_tools()
            assert (await client.call_tool("sql", {"region": "north"})).data == "done"
        calls = ["tools/list", "tools/call", "tools/list", "tools/call"]
        assert [one.rpc for one in server.asked if one.rpc in calls] == calls


def marked(**more: Any) -> dict[str, Any]:
    return {"x-mcp-header": "Region", **more}


BROKEN = {
    "an empty name": {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
    "a name with a space": {"properties": {"a": {"type": "string", "x-mcp-header": "My Region"}}},
    "a name with a colon": {"properties": {"a": {"type": "string", "x-mcp-header": "Region:"}}},
    "a name with a line break": {
        "properties": {"a": {"type": "string", "x-mcp-header": "Region\r\nX: 1"}}
    },
    "a name that is no text": {"properties": {"a": {"type": "string", "x-mcp-header": 5}}},
    "a name that is not ASCII": {"properties": {"a": {"type": "string", "x-mcp-header": "Région"}}},
    "two names but for their case": {
        "properties": {
            "a": marked(type="string"),
            "b": {"type": "string", "x-mcp-header": "REGION"},
        }
    },
    "a number": {"properties": {"a": marked(type="number")}},
    "an object": {"properties": {"a": marked(type="object")}},
    "a list": {"properties": {"a": marked(type="array")}},
    "null": {"properties": {"a": marked(type="null")}},
    "no type": {"properties": {"a": marked()}},
    "in a list": {"properties": {"a": {"type": "array", "items": marked(type="string")}}},
    "in a tuple": {"properties": {"a": {"type": "array", "prefixItems": [marked(type="string")]}}},
    "in an alternative": {"oneOf": [{"properties": {"a": marked(type="string")}}]},
    "in another": {"properties": {"a": {"anyOf": [marked(type="string"), {"type": "null"}]}}},
    "in a combination": {"allOf": [{"properties": {"a": marked(type="string")}}]},
    "in a negation": {"not": {"properties": {"a": marked(type="string")}}},
    "in a condition": {"if": {"properties": {"a": marked(type="string")}}},
    "in its branch": {"then": {"properties": {"a": marked(type="string")}}},
    "in its other branch": {"else": {"properties": {"a": marked(type="string")}}},
    "behind a reference": {
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": marked(type="string")},
    },
    "at the root": marked(),
}


@pytest.mark.requirement("http-client-tool-rejected", "http-client-tool-warning")
@pytest.mark.parametrize("case", BROKEN)
async def test_a_tool_that_marks_what_it_may_not_is_left_out_alone(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(asked: Asked) -> None:
        fine = {"properties": {"region": REGION}}
        await asked.result(listed(("before", fine), ("broken-one", BROKEN[case]), ("after", fine)))

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url) as client:
            assert [tool.name for tool in await client.list_tools()] == ["before", "after"]
    (warning,) = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert "'broken-one'" in warning
    assert "cannot" in warning, "the reason"


# opening


@pytest.mark.requirement("http-client-modern-error")
@pytest.mark.parametrize(
    ("code", "data"), [(-32020, None), (-32021, {"requiredCapabilities": {"sampling": {}}})]
)
async def test_a_refusal_that_only_a_stateless_server_has_is_told_and_not_taken_for_another_era(
    code: int, data: Any
) -> None:
    async def script(asked: Asked) -> None:
        await asked.error(code, "that is why", 400, data)

    async with Scripted(script) as server:
        with pytest.raises(DovetailError, match="that is why"):
            await Client(server.url).connect()
        assert {one.rpc for one in server.asked} == {"server/discover"}


PAIR_BODIES = [
    b"",
    b"<html>Not Found</html>",
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Method not allowed."}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Missing session ID"}}',
]


@pytest.mark.requirement("sse-client-found", "sse-client-post")
@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize("body", PAIR_BODIES)
async def test_the_old_pair_is_found_whatever_a_refusal_says(status: int, body: bytes) -> None:
    stream: Asked | None = None

    async def script(asked: Asked) -> None:
        nonlocal stream
        if asked.method == "GET":
            stream = asked
            await asked.stream()
            await asked.chunk(b"event: endpoint\ndata: /message?session_id=1\n\n")
            await asked.hung_up.wait()
        elif asked.path == "/mcp":
            await asked.answer(status, body, {"Content-Type": "application/json"})
        else:
            assert stream is not None
            await asked.answer(202)
            results = {
                "initialize": {**WELCOME, "protocolVersion": "2024-11-05"},
                "tools/list": {"tools": []},
            }
            if asked.rpc in results:
                await stream.event(asked.reply(results[asked.rpc]), event="message")

    async with Scripted(script) as server:
        async with Client(server.url) as client:
            assert client.revision == "2024-11-05"
            assert await client.list_tools() == []
        posted = [one.rpc for one in server.asked if one.path == "/message?session_id=1"]
        assert posted == ["initialize", "notifications/initialized", "tools/list"]
        assert {one.method for one in server.asked if one.body} == {"POST"}
        assert server.heard("GET")[0].headers["accept"] == "text/event-stream"


@pytest.mark.requirement("sse-client-found")
async def test_a_refused_greeting_keeps_its_reason_where_there_is_no_old_pair() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "initialize":
            await asked.error(-32602, "we only speak Klingon", 400)
        else:
            assert await old(asked)  # 405 to GET

    async with Scripted(script) as server:
        with pytest.raises((ProtocolError, ConnectFailed), match="we only speak Klingon"):
            await Client(server.url).connect()
        assert len(server.heard("GET")) == 1


@pytest.mark.requirement("sse-client-found")
async def test_a_greeting_refused_by_a_stateless_server_is_no_sign_of_the_old_pair() -> None:
    async def script(asked: Asked) -> None:
        await asked.error(
            -32022, "Unsupported", 400, {"supported": ["2099-01-01"], "requested": "x"}
        )

    async with Scripted(script) as server:
        with pytest.raises(DovetailError, match="2099-01-01"):
            await Client(server.url, revision="handshake").connect()
        assert [one.rpc for one in server.asked] == ["initialize"]


# streams and sessions


@pytest.mark.requirement("http-client-cancel", "subscriptions-cancelled")
async def test_a_client_that_wants_no_more_changes_hangs_up() -> None:
    async def answer(asked: Asked) -> None:
        await asked.stream()
        meta = {"io.modelcontextprotocol/subscriptionId": asked.message["id"]}
        granted = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        await asked.event(
            {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": granted,
            }
        )
        await asked.hung_up.wait()

    async with Scripted(stateless(answer)) as server:
        async with Client(server.url) as client:
            handle = await client.on_change("tools", lambda _: None)
            (asked,) = server.heard("subscriptions/listen")
            assert not asked.hung_up.is_set()
            await handle.close()
            await asked.hung_up.wait()
        assert server.heard("notifications/cancelled") == []


@pytest.mark.requirement(
    "http-client-session", "http-client-version-agreed", "http-client-get-accept"
)
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", OLD])
async def test_session_and_version_go_with_everything_that_follows_the_greeting(
    version: str,
) -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "initialize":
            welcome = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}
            await asked.result(welcome, {"Mcp-Session-Id": "s-1"})
        else:
            await busy_server(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake", roots=["file:///a"]) as client:
            await everything(server, client)
        greeting, *rest = server.asked
        assert "mcp-session-id" not in greeting.headers
        kinds = {"GET", "DELETE", "tools/list", "tools/call", "a reply", "notifications/cancelled"}
        assert {one.rpc for one in rest} == kinds | {"notifications/initialized"}
        assert {one.headers["mcp-session-id"] for one in rest} == {"s-1"}
        assert {one.headers["mcp-protocol-version"] for one in rest} == {version}
        assert {one.headers["accept"] for one in server.heard("GET")} == {"text/event-stream"}


@pytest.mark.requirement("http-client-session-gone")
@pytest.mark.parametrize("where", ["a request", "a notification", "a stream"])
async def test_wherever_a_client_hears_that_its_session_is_gone_it_opens_a_new_one(
    where: str, _quick: None
) -> None:
    sessions = 0
    stands, gone = asyncio.Event(), asyncio.Event()

    async def script(asked: Asked) -> None:
        nonlocal sessions
        stale = gone.is_set() and asked.headers.get("mcp-session-id") == "s-1"
        if asked.rpc == "initialize":
            sessions += 1
            await old(asked, f"s-{sessions}")
        elif stale and asked.rpc != "DELETE":
            await asked.answer(404)
        elif asked.rpc == "GET" and where == "a stream":
            await asked.stream()
            await asked.chunk(b"id: 1\ndata:\n\n")
            stands.set()
            await (gone.wait() if sessions == 1 else asked.hung_up.wait())
            await asked.end()
        elif asked.rpc == "tools/call":
            await asked.hung_up.wait()
        elif asked.rpc == "notifications/cancelled":
            await asked.answer(202)
        elif not await old(asked):
            await asked.result({"tools": []})

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            if where == "a stream":
                await stands.wait()
            if where == "a notification":
                calling = asyncio.create_task(client.call_tool("x"))
                await server.until("tools/call")
                gone.set()
                calling.cancel()
            gone.set()
            if where == "a request":
                assert await client.list_tools() == []
            greeting = await server.until("initialize", 2)
            assert "mcp-session-id" not in greeting.headers
            assert await client.list_tools() == []
        assert server.heard("tools/list")[-1].headers["mcp-session-id"] == "s-2"


@pytest.mark.requirement("http-client-retry")
async def test_a_stream_of_news_is_not_asked_for_again_before_the_server_wants_it(
    _quick: None,
) -> None:
    times: list[float] = []

    async def script(asked: Asked) -> None:
        if asked.rpc != "GET":
            assert await old(asked)
            return
        times.append(time.monotonic())
        await asked.stream()
        if len(times) == 1:
            await asked.chunk(b"id: 7\nretry: 300\ndata:\n\n")
            await asked.end()
        else:
            await asked.hung_up.wait()

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake"):
            resumed = await server.until("GET", 2)
            assert resumed.headers["last-event-id"] == "7"
    assert times[1] - times[0] >= 0.299
