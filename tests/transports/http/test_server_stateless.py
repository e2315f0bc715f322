"""The stateless era over HTTP: each POST is a world of its own."""

import asyncio
import json
import time
from base64 import b64encode
from typing import Annotated, Any

import pytest

from dovetail import Context, Header, Server
from dovetail.errors import CannotAsk, ProtocolError
from dovetail.limits import Limits
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, SUBSCRIPTION_ID
from tests.transports.http.raw import (
    BOTH,
    INFO,
    MODERN,
    OLD,
    Stage,
    drive,
    hosted,
    logged,
    modern,
    on_port,
    request,
    text,
)

LATEST_FIRST = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


# what a POST is answered with


@pytest.mark.requirement("http-endpoint", "http-response-type")
async def test_a_call_that_says_nothing_on_its_way_is_answered_with_one_json_body() -> None:
    async with hosted(Stage().server) as site:
        answer = await site.call("add", a=1, b=2, _id="one")
        assert answer.status == 200
        reply = await answer.json()
    assert reply["id"] == "one"
    assert reply["result"]["structuredContent"] == {"result": 3}


@pytest.mark.requirement(
    "http-response-type",
    "http-own-notifications",
    "http-response-ends-stream",
    "http-accel-buffering",
    "http-no-requests",
)
async def test_a_call_that_speaks_first_is_answered_with_a_stream_that_its_reply_ends() -> None:
    async with hosted(Stage().server) as site:
        answer = await site.call("chat", count=3)
        assert answer.status == 200
        assert answer.headers["x-accel-buffering"] == "no"
        assert "no-cache" in answer.headers["cache-control"]
        events = await answer.rest()
    messages = [event.message for event in events]
    assert logged(messages) == ["line 0", "line 1", "line 2"]
    assert text(messages[-1]) == "done"
    assert len(messages) == 4
    assert not any("id" in message and "method" in message for message in messages)
    assert [(event.id, event.retry) for event in events] == [(None, None)] * 4, (
        "nobody can come back for this stream"
    )


@pytest.mark.requirement("http-own-notifications")
async def test_what_two_calls_with_one_id_say_stays_apart() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        first = await site.call("talk", before=1, after=2)
        second = await site.call("chat", count=5)
        assert logged(await second.messages()) == [f"line {number}" for number in range(5)]
        stage.release.set()
        assert logged(await first.messages()) == ["before 0", "after 0", "after 1"]


@pytest.mark.requirement("http-response-type")
async def test_a_call_that_takes_long_becomes_a_stream() -> None:
    stage = Stage(limits=Limits(stream_after=0.05))
    async with hosted(stage.server) as site:
        answer = await site.call("wait")  # which returns although the call is not done
        assert answer.headers["content-type"] == "text/event-stream"
        assert not stage.release.is_set()
        stage.release.set()
        assert [text(message) for message in await answer.messages()] == ["done"]


async def test_a_call_that_ends_when_it_would_become_a_stream_gets_its_reply_and_an_end() -> None:
    stage = Stage(limits=Limits(stream_after=0.05))

    @stage.server.tool
    async def block() -> str:
        await asyncio.sleep(0.01)  # until the endpoint waits
        time.sleep(0.1)  # so that the loop runs the end of the call and the timer in one go
        await asyncio.sleep(0)
        return "done"

    async with hosted(stage.server) as site:
        answer = await site.call("block")
        assert text(await answer.whole()) == "done"


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream;q=0"])
async def test_a_client_that_takes_no_stream_gets_the_reply_alone(accept: str) -> None:
    stage = Stage(limits=Limits(stream_after=0.01))
    async with hosted(stage.server) as site:
        answer = await site.call("chat", _headers={"Accept": accept})
        assert text(await answer.json()) == "done"
        slow = asyncio.create_task(site.call("wait", _headers={"Accept": accept}))
        await stage.started.wait()
        await asyncio.sleep(0.05)  # longer than it takes to become a stream
        assert not slow.done()
        stage.release.set()
        assert text(await (await slow).json()) == "done"


@pytest.mark.requirement("http-accel-buffering")
async def test_a_quiet_stream_is_kept_alive_by_comments() -> None:
    stage = Stage(limits=Limits(stream_after=0.01, keepalive=0.02))
    async with hosted(stage.server) as site:
        answer = await site.call("wait")
        for _ in range(3):
            event = await answer.event(comments=True)
            assert event is not None
            assert event.comment
        stage.release.set()
        assert [text(message) for message in await answer.messages()] == ["done"]


async def test_every_method_of_the_revision_is_answered_without_a_session() -> None:
    async with hosted(Stage().server) as site:
        for method, params, key in [
            ("server/discover", {}, "supportedVersions"),
            ("tools/list", {}, "tools"),
            ("resources/read", {"uri": "note://one"}, "contents"),
            ("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}, "messages"),
        ]:
            answer = await site.ask(method, params)
            assert (answer.status, "mcp-session-id" in answer.headers) == (200, False)
            assert key in (await answer.json())["result"]


# what is refused, and how


def without_meta(message: dict[str, Any], key: str) -> dict[str, Any]:
    meta = {name: value for name, value in message["params"]["_meta"].items() if name != key}
    return {**message, "params": {**message["params"], "_meta": meta}}


ADD = ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
GREETING = {"protocolVersion": MODERN, "capabilities": {}, "clientInfo": INFO}
NOWHERE = modern(*ADD, id="x", version="2099-01-01")
REFUSALS = {
    "unknown method": (modern("tools/dream", {}, "x"), 404, -32601),
    "method of another era": (modern("logging/setLevel", {"level": "info"}, "x"), 404, -32601),
    "initialize": (modern("initialize", GREETING, "x"), 404, -32601),
    "an empty initialize": (modern("initialize", {}, "x"), 404, -32601),
    "missing capability": (modern("tools/call", {"name": "need"}, "x"), 400, -32021),
    "no params at all": ((request("tools/list", id="x"), modern("tools/list")[1]), 400, -32602),
    "no version in _meta": (
        (without_meta(modern(*ADD, id="x")[0], PROTOCOL_VERSION), modern(*ADD)[1]),
        400,
        -32602,
    ),
    "no capabilities": (
        (without_meta(modern(*ADD, id="x")[0], CLIENT_CAPABILITIES), modern(*ADD)[1]),
        400,
        -32602,
    ),
    "params of a wrong type": (
        (
            request("tools/call", {"name": 5, "_meta": modern("ping")[0]["params"]["_meta"]}, "x"),
            modern("tools/call")[1],
        ),
        400,
        -32602,
    ),
    "no version header": (
        (modern(*ADD, id="x")[0], {**modern(*ADD)[1], "MCP-Protocol-Version": None}),
        400,
        -32020,
    ),
    "versions that differ": (
        (modern(*ADD, id="x")[0], {**modern(*ADD)[1], "MCP-Protocol-Version": OLD}),
        400,
        -32020,
    ),
    "no Mcp-Method": (
        (modern(*ADD, id="x")[0], {**modern(*ADD)[1], "Mcp-Method": None}),
        400,
        -32020,
    ),
    "another Mcp-Method": (
        (modern(*ADD, id="x")[0], {**modern(*ADD)[1], "Mcp-Method": "tools/list"}),
        400,
        -32020,
    ),
    "Mcp-Method in capitals": (
        (modern(*ADD, id="x")[0], {**modern(*ADD)[1], "Mcp-Method": "TOOLS/CALL"}),
        400,
        -32020,
    ),
    "no Mcp-Name": ((modern(*ADD, id="x")[0], {**modern(*ADD)[1], "Mcp-Name": None}), 400, -32020),
    "another Mcp-Name": (
        (modern(*ADD, id="x")[0], {**modern(*ADD)[1], "Mcp-Name": "subtract"}),
        400,
        -32020,
    ),
    "unsupported version": (NOWHERE, 400, -32022),
}


@pytest.mark.requirement(
    "http-method-unknown",
    "http-version-mismatch",
    "http-version-unsupported",
    "http-header-missing",
    "http-header-mismatch",
    "http-meta-missing",
    "http-capability-missing",
)
@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_has_its_status_its_code_and_the_id_of_its_request(case: str) -> None:
    (message, headers), status, code = REFUSALS[case]
    async with hosted(Stage().server) as site:
        answer = await site.post(message, headers)
        reply = await answer.json()
    assert (answer.status, reply["error"]["code"], reply["id"]) == (status, code, "x")


@pytest.mark.requirement("http-version-unsupported")
async def test_an_unsupported_version_is_told_the_supported_ones() -> None:
    async with hosted(Stage().server) as site:
        error = await (await site.post(*NOWHERE)).error()
    assert error["data"] == {"supported": LATEST_FIRST, "requested": "2099-01-01"}


async def test_an_error_that_a_tool_raises_under_a_code_of_its_own_is_an_answer() -> None:
    server = Server("own", version="1")

    @server.tool
    async def fail() -> str:
        raise ProtocolError(4711, "out of paper")

    async with hosted(server) as site:
        answer = await site.call("fail")
        assert answer.status == 200
        assert (await answer.error())["code"] == 4711


async def test_a_status_cannot_change_once_the_stream_began() -> None:
    server = Server("late", version="1")

    @server.tool
    async def late(ctx: Context) -> str:
        ctx.info("this far")
        raise CannotAsk("This needs sampling", required={"sampling": {}})

    async with hosted(server) as site:
        answer = await site.call("late")
        assert answer.status == 200
        assert (await answer.messages())[-1]["error"]["code"] == -32021


@pytest.mark.parametrize(
    ("body", "status", "code", "id"),
    [
        (b"{", 400, -32700, None),
        (b"", 400, -32700, None),
        (b'"text"', 400, -32600, None),
        (b'{"jsonrpc": "2.0", "id": 7, "method": 5}', 400, -32600, 7),
        (b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', 400, -32600, None),
        (b'{"jsonrpc": "1.0", "id": 7, "method": "tools/list"}', 400, -32600, 7),
        (b"\xff\xfe", 400, -32700, None),
    ],
)
async def test_what_is_no_message_is_refused(body: bytes, status: int, code: int, id: Any) -> None:
    async with hosted(Stage().server) as site:
        answer = await site.post(body, modern("tools/list")[1])
        reply = await answer.json()
    assert (answer.status, reply["error"]["code"], reply.get("id")) == (status, code, id)


@pytest.mark.requirement("http-notification-accepted")
async def test_a_notification_is_accepted_without_a_body() -> None:
    async with hosted(Stage().server) as site:
        for method in ("notifications/cancelled", "notifications/of/tomorrow"):
            message = {"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}}
            answer = await site.post(message, {"MCP-Protocol-Version": MODERN})
            assert (answer.status, await answer.body()) == (202, b"")


@pytest.mark.requirement("http-notification-refused")
async def test_a_notification_that_makes_no_sense_is_refused_without_an_id() -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with hosted(Stage().server) as site:
        wrong = await site.post(
            {**message, "params": {"requestId": []}}, {"MCP-Protocol-Version": MODERN}
        )
        other = await site.post(
            message, {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
        )
        unknown = await site.post(message, {"MCP-Protocol-Version": "2099-01-01"})
        for answer in (wrong, other, unknown):
            assert answer.status == 400
            assert (await answer.json()).get("id") is None


@pytest.mark.requirement("http-notification-refused")
@pytest.mark.parametrize("outcome", [{"result": {}}, {"error": {"code": -1, "message": "no"}}])
async def test_a_reply_is_nothing_that_a_client_posts(outcome: dict[str, Any]) -> None:
    async with hosted(Stage().server) as site:
        answer = await site.post(
            {"jsonrpc": "2.0", "id": 1, **outcome}, {"MCP-Protocol-Version": MODERN}
        )
        assert answer.status == 400


async def test_there_are_no_batches() -> None:
    message, headers = modern("tools/list")
    async with hosted(Stage().server) as site:
        answer = await site.post([message], headers)
        assert answer.status == 400
        assert (await answer.error())["code"] == -32600


@pytest.mark.requirement("http-modern-only-methods", "http-version-missing")
async def test_without_older_revisions_there_is_nothing_but_post_and_the_header_is_needed() -> None:
    async with hosted(Stage(revisions=[MODERN]).server) as site:
        for method in ("GET", "DELETE"):
            answer = await site.send(
                method, {"Accept": "text/event-stream", "MCP-Protocol-Version": OLD}
            )
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
        bare = await site.post(request("tools/list", {}, 3))
        reply = await bare.json()
        assert (bare.status, reply["error"]["code"], reply["id"]) == (400, -32020, 3)
        assert MODERN in reply["error"]["message"]


async def test_in_this_era_there_is_nothing_to_get_and_nothing_to_delete() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        for method in ("GET", "DELETE"):
            headers = {
                **session.headers,
                "Accept": "text/event-stream",
                "MCP-Protocol-Version": MODERN,
            }
            answer = await site.send(method, headers)
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert (await session.ask("tools/list")).status == 200, (
            "and the session of the other era is untouched"
        )


@pytest.mark.requirement("http-modern-only-session", "http-modern-only-resume")
@pytest.mark.parametrize("revisions", [[MODERN], None])
async def test_session_and_event_ids_are_ignored(revisions: list[str] | None) -> None:
    async with hosted(Stage(revisions=revisions).server) as site:
        answer = await site.call(
            "chat", _headers={"Mcp-Session-Id": "nonsense", "Last-Event-ID": "g1-5"}
        )
        assert answer.status == 200
        assert "mcp-session-id" not in answer.headers
        assert logged(await answer.messages()) == ["line 0", "line 1", "line 2"]


@pytest.mark.requirement("http-header-case")
async def test_names_of_headers_may_be_spelled_as_anyone_likes() -> None:
    message, headers = modern(*ADD)
    shouted: dict[str, str | None] = {name.upper(): value for name, value in headers.items()}
    async with hosted(Stage().server) as site:
        assert (await site.post(message, shouted)).status == 200


# parameters in headers


def mirrored() -> Server:
    server = Server("mirrored", version="1")

    @server.tool
    async def query(
        region: Annotated[str | None, Header("Region")] = None,
        shard: Annotated[int | None, Header("Shard")] = None,
        dry: Annotated[bool | None, Header("Dry")] = None,
    ) -> str:
        return f"{region} {shard} {dry}"

    return server


def base64(value: str) -> str:
    return f"=?base64?{b64encode(value.encode()).decode()}?="


@pytest.mark.requirement(
    "http-param-validated", "http-param-null", "http-header-encoded", "http-param-numeric"
)
@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "us-west1"}, {"Mcp-Param-Region": "us-west1"}),
        ({"region": "Zürich"}, {"Mcp-Param-Region": base64("Zürich")}),
        ({"region": "plain"}, {"Mcp-Param-Region": base64("plain")}),
        ({"shard": 42}, {"mcp-param-shard": "42"}),
        ({"shard": 42}, {"Mcp-Param-Shard": "42.0"}),
        ({"dry": True}, {"Mcp-Param-Dry": "true"}),
        ({"region": None}, {}),
        ({}, {}),
        ({}, {"Mcp-Param-Unheard-Of": "x"}),
    ],
)
async def test_a_header_that_repeats_its_parameter_passes(
    arguments: dict[str, Any], headers: dict[str, str]
) -> None:
    async with hosted(mirrored()) as site:
        assert (await site.call("query", _headers=headers, **arguments)).status == 200


@pytest.mark.requirement(
    "http-param-validated", "http-param-missing", "http-header-invalid", "http-header-encoded"
)
@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "us-west1"}, {}),
        ({"region": "us-west1"}, {"Mcp-Param-Region": "us-east1"}),
        ({"region": "us-west1"}, {"Mcp-Param-Region": base64("us-east1")}),
        ({"region": "us-west1"}, {"Mcp-Param-Region": "=?base64?%%%?="}),
        ({"region": "us-west1"}, {"Mcp-Param-Region": "us-west1\xff"}),
        ({"shard": 42}, {"Mcp-Param-Shard": "43"}),
        ({"shard": 42}, {"Mcp-Param-Shard": "many"}),
        ({"dry": True}, {"Mcp-Param-Dry": "True"}),
        ({}, {"Mcp-Param-Region": "us-west1"}),
    ],
)
async def test_a_header_that_does_not_repeat_its_parameter_is_refused(
    arguments: dict[str, Any], headers: dict[str, str]
) -> None:
    async with hosted(mirrored()) as site:
        answer = await site.call("query", _headers=headers, **arguments)
        assert answer.status == 400
        assert (await answer.error())["code"] == -32020


@pytest.mark.requirement("http-header-encoded")
async def test_an_encoded_name_is_read_before_it_is_compared() -> None:
    server = Server("names", version="1")
    server.add_prompt(lambda: "hello", name="größe")
    message, headers = modern("prompts/get", {"name": "größe"})
    async with hosted(server) as site:
        assert (await site.post(message, {**headers, "Mcp-Name": base64("größe")})).status == 200
        assert (await site.post(message, {**headers, "Mcp-Name": base64("grösse")})).status == 400


@pytest.mark.requirement("http-header-invalid")
async def test_what_no_header_may_hold_is_refused() -> None:
    message, headers = modern(*ADD)
    async with hosted(Stage().server) as site:
        answer = await site.post(message, {**headers, "Mcp-Name": "add\xe9"})
        assert answer.status == 400
        assert (await answer.error())["code"] == -32020


# a client that goes away


@pytest.mark.requirement("http-disconnect-cancels")
async def test_leaving_the_stream_cancels_the_call() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        answer = await site.call("talk")
        assert logged([(await answer.next()).message]) == ["before 0"]
        answer.cut()
        await stage.cancelled.wait()


@pytest.mark.requirement("http-disconnect-cancels")
async def test_leaving_before_the_first_byte_cancels_the_call() -> None:
    stage = Stage()
    message, headers = modern("tools/call", {"name": "wait", "arguments": {}})
    async with hosted(stage.server) as site:
        _, writer = await site.begin(
            "POST",
            {**headers, "Content-Type": "application/json", "Accept": BOTH},
            json.dumps(message).encode(),
        )
        await stage.started.wait()
        writer.transport.abort()
        await stage.cancelled.wait()


@pytest.mark.requirement("http-cancelled-silent")
@pytest.mark.parametrize("tool", ["wait", "talk"])
async def test_nothing_is_sent_for_a_call_whose_client_has_gone(tool: str) -> None:
    stage, gone = Stage(), asyncio.Event()
    message, headers = modern("tools/call", {"name": tool, "arguments": {}}, level="debug")
    app = stage.server.asgi()
    proper = {**headers, "Content-Type": "application/json", "Accept": BOTH}
    call = asyncio.create_task(drive(app, "POST", proper, json.dumps(message).encode(), gone=gone))  # type: ignore[arg-type]
    await stage.started.wait()
    gone.set()
    sent = await call
    await stage.cancelled.wait()
    assert b"done" not in b"".join(part.get("body", b"") for part in sent)
    assert sum(part.get("body", b"").count(b"data:") for part in sent) == (
        1 if tool == "talk" else 0
    )
    await app.close()


async def test_a_client_that_goes_away_leaves_the_others_alone() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        leaving = await site.call("talk", _id=1)
        staying = await site.call("talk", _id=1)
        leaving.cut()
        await stage.cancelled.wait()
        stage.release.set()
        assert text((await staying.messages())[-1]) == "done"


@pytest.mark.requirement("http-notification-accepted")
async def test_a_cancellation_by_notification_names_nobody_in_this_era() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        answer = await site.call("talk", _id=5)
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        assert (await site.post(note, {"MCP-Protocol-Version": MODERN})).status == 202
        stage.release.set()
        assert text((await answer.messages())[-1]) == "done", (
            "ids are each client's own; another client's must not count"
        )


# subscriptions


@pytest.mark.requirement(
    "subscriptions-ack-first", "subscriptions-only-requested", "subscriptions-id"
)
async def test_a_subscription_is_acknowledged_first_and_told_only_what_it_asked_for() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}
        answer = await site.ask("subscriptions/listen", {"notifications": wanted}, id=9)
        acknowledged = (await answer.next()).message
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == wanted
        stage.server.remove_prompt("greet")
        stage.server.notify_resource_updated("note://two")
        stage.server.notify_resource_updated("note://one")
        updated = (await answer.next()).message
        assert (updated["method"], updated["params"]["uri"]) == (
            "notifications/resources/updated",
            "note://one",
        )
        stage.server.remove_tool("add")
        changed = (await answer.next()).message
        assert changed["method"] == "notifications/tools/list_changed"
        assert {
            message["params"]["_meta"][SUBSCRIPTION_ID]
            for message in (acknowledged, updated, changed)
        } == {9}


async def test_two_subscriptions_under_one_id_do_not_mix() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        tools = await site.ask(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=1
        )
        prompts = await site.ask(
            "subscriptions/listen", {"notifications": {"promptsListChanged": True}}, id=1
        )
        await tools.next()
        await prompts.next()
        stage.server.remove_tool("add")
        stage.server.remove_prompt("greet")
        assert (await tools.next()).message["method"] == "notifications/tools/list_changed"
        assert (await prompts.next()).message["method"] == "notifications/prompts/list_changed"
        tools.cut()
        stage.server.add_prompt(lambda: "again", name="again")
        assert (await prompts.next()).message["method"] == "notifications/prompts/list_changed"


async def test_a_subscription_ends_when_its_client_leaves() -> None:
    stage = Stage()
    app = stage.server.asgi()
    gone = asyncio.Event()
    message, headers = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    proper = {**headers, "Content-Type": "application/json", "Accept": BOTH}
    call = asyncio.create_task(drive(app, "POST", proper, json.dumps(message).encode(), gone=gone))  # type: ignore[arg-type]
    here = await app.start()
    while not here.dispatcher.subscriptions._streams:
        await asyncio.sleep(0)
    gone.set()
    sent = await call
    while here.dispatcher.subscriptions._streams:
        await asyncio.sleep(0)
    assert sum(part.get("body", b"").count(b"data:") for part in sent) == 1
    assert here.get_streams.open == 0
    await app.close()


async def test_a_subscription_ends_in_good_order_with_the_server() -> None:
    app = Stage().server.asgi("/mcp")
    async with on_port(app) as site:
        answer = await site.ask(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=3
        )
        await answer.next()
        closing = asyncio.create_task(app.close())
        messages = await answer.messages()
        await closing
    told, last = messages
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", 3)
    assert (last["id"], last["result"]["_meta"][SUBSCRIPTION_ID]) == (3, 3)


async def test_a_client_that_takes_no_stream_cannot_subscribe() -> None:
    async with hosted(Stage().server) as site:
        listen = {"notifications": {"toolsListChanged": True}}
        answer = await site.ask(
            "subscriptions/listen", listen, headers={"Accept": "application/json"}
        )
        assert answer.status == 400
        assert "text/event-stream" in (await answer.error())["message"]
