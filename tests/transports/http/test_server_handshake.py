"""The handshake era over HTTP: sessions, versions, batches, notifications, and what ends them."""

import asyncio
import json
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.limits import Limits
from tests.transports.http.raw import (
    BATCHING,
    BOTH,
    INFO,
    MODERN,
    OLD,
    Session,
    Stage,
    drive,
    hosted,
    logged,
    on_port,
    request,
    text,
)

HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
SECRET = "a key that is long enough"


# opening a session


@pytest.mark.parametrize("version", HANDSHAKE)
async def test_every_revision_with_a_handshake_can_be_negotiated_here(version: str) -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet(version)
        assert session.result["protocolVersion"] == version
        told = await session.tell("notifications/initialized")
        assert (told.status, await told.body()) == (202, b"")
        reply = await (await session.call("add", a=1, b=2)).json()
        assert text(reply) == "3"
        assert ("structuredContent" in reply["result"]) == (version >= "2025-06-18"), (
            "the reply is in the words of its revision"
        )


async def test_an_unknown_version_is_answered_with_the_newest() -> None:
    async with hosted(Stage().server) as site:
        assert (await site.greet("1999-01-01")).result["protocolVersion"] == OLD


@pytest.mark.requirement("http-session-visible", "http-session-random")
async def test_session_ids_are_visible_ascii_and_never_the_same() -> None:
    async with hosted(Stage().server) as site:
        ids = [(await site.greet()).id or "" for _ in range(20)]
    assert len(set(ids)) == 20
    assert all(id and all(0x21 <= ord(letter) <= 0x7E for letter in id) for id in ids)
    assert all(len(id) >= 64 for id in ids)


async def test_a_greeting_that_makes_no_sense_opens_no_session() -> None:
    async with hosted(Stage().server) as site:
        answer = await site.post(request("initialize", {"protocolVersion": 5}, 0))
        assert "mcp-session-id" not in answer.headers
        assert (await answer.error())["code"] == -32602


async def test_a_client_that_says_too_much_of_itself_is_refused() -> None:
    params = {
        "protocolVersion": OLD,
        "capabilities": {},
        "clientInfo": {"name": "x" * 5000, "version": "1"},
    }
    async with hosted(Stage().server) as site:
        answer = await site.post(request("initialize", params, 4))
        reply = await answer.json()
    assert (reply["id"], reply["error"]["code"]) == (4, -32602)
    assert "clientInfo" in reply["error"]["message"]
    assert "mcp-session-id" not in answer.headers


async def test_a_client_that_takes_only_events_is_greeted_and_answered_with_events() -> None:
    params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
    only = {"Accept": "text/event-stream"}
    async with hosted(Stage().server) as site:
        opened = await site.post(request("initialize", params, 0), only)
        assert [message["id"] for message in await opened.messages()] == [0]
        session = Session(site, opened.headers["mcp-session-id"], OLD, None)
        assert (
            text((await (await session.call("add", _headers=only, a=1, b=2)).messages())[-1]) == "3"
        )
        assert text((await (await site.call("add", _headers=only, a=1, b=2)).messages())[-1]) == "3"


# session ids that are none


def forgeries(id: str) -> dict[str, str]:
    return {
        "made up": "00000000-0000-0000-0000-000000000000",
        "cut short": id[:-1],
        "cut to nothing": id[:3],
        "one letter changed": id[:-10] + ("A" if id[-10] != "A" else "B") + id[-9:],
        "something added": id + "A",
        "far too long": id * 50,
        "padded": id + "==",
    }


@pytest.mark.requirement("http-session-ended")
@pytest.mark.parametrize("case", forgeries("x" * 80))
async def test_a_session_id_that_is_none_of_ours_is_not_found(case: str) -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        session.headers = {**session.headers, "Mcp-Session-Id": forgeries(session.id or "")[case]}
        assert (await session.ask("tools/list")).status == 404
        assert (await session.get()).status == 404
        assert (await session.delete()).status == 404


@pytest.mark.requirement("http-session-ended")
async def test_a_session_of_a_server_with_another_key_is_not_found_and_of_one_with_the_same_it_goes_on() -> (  # noqa: E501
    None
):
    async with hosted(Stage().server, keys=[SECRET]) as first:
        id = (await first.greet()).id
    async with hosted(Stage().server, keys=["another key, also long"]) as second:
        assert (await Session(second, id, OLD, None).ask("tools/list")).status == 404
    async with hosted(Stage().server, keys=["a new key in front of it", SECRET]) as third:
        assert (await Session(third, id, OLD, None).ask("tools/list")).status == 200


async def test_a_session_in_a_revision_that_is_no_longer_served_is_not_found() -> None:
    async with hosted(Stage().server, keys=[SECRET]) as first:
        id = (await first.greet("2024-11-05")).id
    async with hosted(Stage(revisions=[OLD]).server, keys=[SECRET]) as second:
        assert (await Session(second, id, OLD, None).ask("tools/list")).status == 404


@pytest.mark.requirement("http-session-required")
async def test_a_request_without_a_session_is_told_to_open_one() -> None:
    async with hosted(Stage().server) as site:
        answer = await site.post(request("tools/list", {}, 8), {"MCP-Protocol-Version": OLD})
        reply = await answer.json()
        assert (answer.status, reply["id"]) == (400, 8)
        assert "Mcp-Session-Id" in reply["error"]["message"]
        for method in ("GET", "DELETE"):
            bare = await site.send(
                method, {"Accept": "text/event-stream", "MCP-Protocol-Version": OLD}
            )
            assert bare.status == 400


# the end of a session


@pytest.mark.requirement("http-session-ended")
async def test_a_deleted_session_is_not_found_again() -> None:
    async with hosted(Stage().server) as site:
        session, other = await site.greet(), await site.greet()
        answer = await session.delete()
        assert (answer.status, await answer.body()) == (204, b"")
        assert (await session.ask("tools/list")).status == 404
        assert (await session.tell("notifications/initialized")).status == 404
        assert (await session.get()).status == 404
        assert (await session.delete()).status == 404
        assert (await other.ask("tools/list")).status == 200


async def test_deleting_a_session_ends_its_streams_and_its_calls() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await site.greet()
        standing = await session.listen()
        calling = await session.call("talk")
        assert (await session.delete()).status == 204
        await stage.cancelled.wait()
        assert await standing.rest() == []
        assert [message for message in await calling.messages() if "result" in message] == []


@pytest.mark.requirement("http-session-ended")
async def test_a_session_that_goes_unused_ends() -> None:
    app = Stage(limits=Limits(session_idle=1.0)).server.asgi("/mcp")
    async with on_port(app) as site:
        session = await site.greet()
        assert (await session.ask("tools/list")).status == 200
        sessions = (await app.start()).sessions
        assert sessions is not None
        while len(sessions):
            await asyncio.sleep(0.01)
        assert (await session.ask("tools/list")).status == 404


async def test_a_session_with_an_open_stream_is_in_use() -> None:
    limits = Limits(session_idle=0.5, keepalive=0.5)
    stage = Stage(limits=limits)
    async with hosted(stage.server) as site:
        session = await site.greet()
        standing = await session.listen()
        for _ in range(4):  # each comes after as long as it may be idle
            await standing.event(comments=True)
        stage.server.remove_tool("add")
        assert (await standing.next()).message["method"] == "notifications/tools/list_changed"
        assert (await session.ask("tools/list")).status == 200


@pytest.mark.requirement("http-session-ended")
async def test_a_session_ends_when_its_time_is_over_however_much_it_is_used() -> None:
    async with hosted(Stage(limits=Limits(session_life=1.0)).server) as site:
        session = await site.greet()
        statuses = [(await session.ask("tools/list")).status]
        while statuses[-1] == 200:
            statuses.append((await session.ask("tools/list")).status)
        assert statuses[0] == 200
        assert statuses[-1] == 404
        assert (await session.get()).status == 404


async def test_a_session_that_was_forgotten_for_want_of_room_goes_on() -> None:
    async with hosted(Stage(limits=Limits(sessions=2)).server) as site:
        sessions = [await site.greet() for _ in range(6)]
        for session in sessions + sessions:
            assert (await session.ask("tools/list")).status == 200


# versions


async def test_a_missing_version_header_means_the_revision_of_the_session() -> None:
    async with hosted(Stage().server) as site:
        for version in HANDSHAKE:
            session = await site.greet(version)
            session.headers = {"Mcp-Session-Id": session.id}
            reply = await (await session.call("add", a=1, b=2)).json()
            assert ("structuredContent" in reply["result"]) == (version >= "2025-06-18")


@pytest.mark.requirement("http-version-invalid")
@pytest.mark.parametrize("version", ["2099-01-01", "nonsense", "", "2025-11-25x"])
async def test_an_invalid_version_header_is_refused(version: str) -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        session.headers = {**session.headers, "MCP-Protocol-Version": version}
        asked, told = (
            await session.ask("tools/list", id=6),
            await session.tell("notifications/initialized"),
        )
        assert [
            answer.status for answer in (asked, told, await session.get(), await session.delete())
        ] == [400] * 4
        reply = await asked.json()
        assert (reply["error"]["code"], reply["id"]) == (-32022, 6)
        assert OLD in reply["error"]["data"]["supported"]


async def test_a_greeting_negotiates_whatever_its_header_says() -> None:
    async with hosted(Stage().server) as site:
        assert (await site.greet(OLD, {"MCP-Protocol-Version": "2025-06-18"})).result[
            "protocolVersion"
        ] == OLD


@pytest.mark.requirement("http-version-assumed")
async def test_without_session_and_header_the_oldest_revision_with_streams_is_assumed() -> None:
    async with hosted(Stage().server, sessions=False) as site:
        call = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assumed = await (await site.post(call)).json()
        named = await (await site.post(call, {"MCP-Protocol-Version": OLD})).json()
        assert "structuredContent" not in assumed["result"]
        assert "structuredContent" in named["result"]
        assert len(await (await site.post([call, {**call, "id": 2}])).json()) == 2, (
            "which has batches"
        )


async def test_without_session_and_header_nothing_is_assumed_that_is_not_served() -> None:
    async with hosted(Stage(revisions=[OLD]).server, sessions=False) as site:
        answer = await site.post(request("tools/list", {}, 2))
        assert answer.status == 400
        assert "MCP-Protocol-Version" in (await answer.error())["message"]


async def test_one_endpoint_serves_both_eras_at_once() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        assert (await site.call("add", a=1, b=2)).status == 200
        assert (await session.call("add", a=1, b=2)).status == 200


# narrowing


async def test_a_server_of_the_stateless_era_alone_names_its_versions_to_a_greeting() -> None:
    async with hosted(Stage(revisions=[MODERN]).server) as site:
        params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
        for headers in ({}, {"MCP-Protocol-Version": OLD}):
            answer = await site.post(request("initialize", params, 0), headers)
            reply = await answer.json()
            assert (answer.status, reply["id"], reply["error"]["code"]) == (400, 0, -32022)
            assert reply["error"]["data"]["supported"] == [MODERN]
            assert "mcp-session-id" not in answer.headers


@pytest.mark.requirement("http-version-unsupported")
async def test_a_server_of_the_handshake_era_alone_names_its_versions_to_a_modern_request() -> None:
    async with hosted(Stage(revisions=["2025-06-18", OLD]).server) as site:
        answer = await site.ask("server/discover", {}, id=2)
        reply = await answer.json()
        assert (answer.status, reply["id"], reply["error"]["code"]) == (400, 2, -32022)
        assert reply["error"]["data"]["supported"] == [OLD, "2025-06-18"]
        assert (await site.greet("2024-11-05")).result["protocolVersion"] == OLD


async def test_a_version_that_is_known_but_not_served_is_refused_in_the_header_too() -> None:
    async with hosted(Stage(revisions=[OLD]).server) as site:
        session = await site.greet()
        session.headers = {**session.headers, "MCP-Protocol-Version": "2025-06-18"}
        assert (await session.ask("tools/list")).status == 400


# the draft dialect


async def test_the_draft_dialect_is_spoken_here_too() -> None:
    stage = Stage()

    @stage.server.tool
    async def count(ctx: Context) -> str:
        ctx.progress(1, 4, "a quarter")
        await stage.release.wait()
        return "done"

    async with hosted(stage.server) as site:
        greeting = {"mcpVersion": "2025-06-18", "clientCapabilities": {"supportsProgress": True}}
        opened = await site.post(request("initialize", greeting, 0))
        result = (await opened.json())["result"]
        assert result["server"]["name"] == "stage"
        session = Session(site, opened.headers["mcp-session-id"], "2025-06-18", result)
        invoked = await session.ask("tools/invoke", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert (await invoked.json())["result"] == {"status": "success", "output": 3}
        assert isinstance((await (await session.ask("tools/list")).json())["result"], list)
        counting = await session.ask("tools/invoke", {"name": "count", "arguments": {}}, id=7)
        event = await counting.next()
        assert event.message["params"] == {"id": 7, "percent": 25.0, "message": "a quarter"}
        assert (await session.tell("cancel", {"id": 7})).status == 202
        assert (await counting.messages())[-1]["result"]["status"] == "cancelled"


# notifications and answers


@pytest.mark.requirement("http-notification-accepted")
async def test_notifications_are_accepted_without_a_body() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        for method in (
            "notifications/initialized",
            "notifications/roots/list_changed",
            "notifications/of/tomorrow",
        ):
            answer = await session.tell(method)
            assert (answer.status, await answer.body()) == (202, b"")


@pytest.mark.requirement("http-notification-refused")
async def test_a_notification_that_makes_no_sense_is_refused() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        answer = await session.tell("notifications/cancelled", {"requestId": {}})
        assert answer.status == 400
        assert (await answer.json()).get("id") is None


@pytest.mark.requirement("http-notification-refused")
async def test_an_answer_that_nobody_waits_for_is_refused() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        answer = await session.post({"jsonrpc": "2.0", "id": 1, "result": {}})
        assert answer.status == 400
        assert "workers=" in (await answer.error())["message"], (
            "which may be another process that asked"
        )


async def test_an_unknown_method_is_an_answer_like_any_other() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        answer = await session.ask("tools/dream", id="q")
        reply = await answer.json()
        assert (answer.status, reply["id"], reply["error"]["code"]) == (200, "q", -32601)


async def test_a_ping_is_answered() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet()
        assert await (await session.ask("ping", id="p")).json() == {
            "jsonrpc": "2.0",
            "id": "p",
            "result": {},
        }


async def test_an_id_that_is_still_in_flight_is_refused_and_free_again_afterwards() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await site.greet()
        first = await session.call("talk", _id=1)
        assert (await session.call("add", _id=1, a=1, b=2)).status == 400
        assert (await (await site.greet()).call("add", _id=1, a=1, b=2)).status == 200, (
            "of another session it is fine"
        )
        stage.release.set()
        await first.messages()
        assert (await session.call("add", _id=1, a=1, b=2)).status == 200


# cancelling, and going away


async def test_a_cancellation_ends_the_call_and_its_answer() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await site.greet()
        answer = await session.call("talk", _id=5)
        assert (
            await session.tell("notifications/cancelled", {"requestId": 5, "reason": "bored"})
        ).status == 202
        await stage.cancelled.wait()
        assert logged(messages := await answer.messages()) == ["before 0"]
        assert len(messages) == 1


@pytest.mark.requirement("http-response-type")
@pytest.mark.parametrize(
    ("accept", "status", "kind"),
    [(BOTH, 200, "text/event-stream"), ("application/json", 202, None)],
    ids=["both", "json"],
)
async def test_a_cancelled_call_that_said_nothing_ends_without_a_body(
    accept: str, status: int, kind: str | None
) -> None:
    """As a stream where the client takes one: a request is answered with that or with JSON, and
    there is no JSON to send."""
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await site.greet()
        calling = asyncio.create_task(session.call("wait", _id=5, _headers={"Accept": accept}))
        await stage.started.wait()
        await session.tell("notifications/cancelled", {"requestId": 5})
        answer = await calling
        assert (answer.status, answer.headers.get("content-type"), await answer.body()) == (
            status,
            kind,
            b"",
        )


async def test_a_cancellation_counts_in_its_own_session_only() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session, stranger = await site.greet(), await site.greet()
        answer = await session.call("talk", _id=5)
        assert (await stranger.tell("notifications/cancelled", {"requestId": 5})).status == 202
        stage.release.set()
        assert text((await answer.messages())[-1]) == "done"


@pytest.mark.requirement("http-disconnect-no-cancel")
@pytest.mark.parametrize("tool", ["wait", "talk"])
async def test_going_away_does_not_cancel(tool: str) -> None:
    stage, gone = Stage(), asyncio.Event()
    app = stage.server.asgi()
    plain = {"Content-Type": "application/json", "Accept": BOTH}
    params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
    opened = await drive(app, "POST", plain, json.dumps(request("initialize", params)).encode())
    id = dict(opened[0]["headers"])[b"mcp-session-id"].decode()
    message = json.dumps(request("tools/call", {"name": tool, "arguments": {}})).encode()
    call = asyncio.create_task(
        drive(app, "POST", {**plain, "Mcp-Session-Id": id}, message, gone=gone)
    )
    await stage.started.wait()
    gone.set()
    await call  # the server has noticed
    assert not stage.cancelled.is_set()
    stage.release.set()
    await stage.finished.wait()
    await app.close()


# batches


def batch(*calls: dict[str, Any]) -> list[Any]:
    """Calls, each given as the arguments of a tool."""
    pairs = [pair for call in calls for pair in call.items()]
    return [
        request("tools/call", {"name": name, "arguments": given}, id)
        for id, (name, given) in enumerate(pairs)
    ]


@pytest.mark.requirement("http-batch")
async def test_the_replies_to_a_batch_come_together() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet(BATCHING)
        messages = batch({"add": {"a": 1, "b": 2}}, {"add": {"a": 3, "b": 4}})
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        answer = await session.post(
            [*messages, note, request("ping", None, 2), request("dream", None, 3)]
        )
        replies = {reply["id"]: reply for reply in await answer.json()}
    assert answer.status == 200
    assert sorted(replies) == [0, 1, 2, 3]
    assert [text(replies[0]), text(replies[1]), replies[2]["result"]] == ["3", "7", {}]
    assert replies[3]["error"]["code"] == -32601


async def test_the_requests_of_a_batch_beyond_the_limit_are_refused_one_by_one() -> None:
    async with hosted(Stage(limits=Limits(in_flight=2)).server) as site:
        session = await site.greet(BATCHING)
        answer = await session.post(batch(*[{"add": {"a": 1, "b": 2}}] * 5))
        replies = {reply["id"]: reply for reply in await answer.json()}
    assert answer.status == 200
    assert [text(replies[id]) for id in (0, 1)] == ["3", "3"]
    assert [replies[id]["error"]["code"] for id in (2, 3, 4)] == [-31001] * 3


@pytest.mark.requirement("http-batch", "http-batch-responses")
async def test_a_batch_that_speaks_is_answered_with_a_stream_that_holds_every_reply() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await site.greet(BATCHING)
        answer = await session.post(
            batch({"talk": {}}, {"add": {"a": 1, "b": 2}}, {"chat": {"count": 2}})
        )
        heard = [await answer.next()]
        while sum("result" in event.message for event in heard if event.data) < 2:
            heard.append(await answer.next())
        stage.release.set()
        heard += await answer.rest()
    messages = [event.message for event in heard if event.data]
    assert sorted(message["id"] for message in messages if "result" in message) == [0, 1, 2]
    assert sorted(logged(messages)) == ["before 0", "line 0", "line 1"]


async def test_a_client_that_takes_only_events_gets_the_replies_to_a_batch_as_events() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet(BATCHING)
        for messages, ids in [
            ([request("ping", None, 1)], [1]),
            ([request("ping", None, 1), *batch({"chat": {}})], [0, 1]),
        ]:
            answer = await session.post(messages, {"Accept": "text/event-stream"})
            assert (
                sorted(message["id"] for message in await answer.messages() if "result" in message)
                == ids
            )


@pytest.mark.requirement("http-notification-accepted")
async def test_a_batch_of_notifications_is_accepted_without_a_body() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet(BATCHING)
        answer = await session.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 2)
        assert (answer.status, await answer.body()) == (202, b"")


@pytest.mark.requirement("http-notification-refused")
async def test_a_batch_of_answers_that_nobody_waits_for_is_refused() -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet(BATCHING)
        assert (await session.post([{"jsonrpc": "2.0", "id": 1, "result": {}}])).status == 400


@pytest.mark.requirement("http-batch")
async def test_a_batch_has_no_room_for_a_greeting() -> None:
    params = {"protocolVersion": BATCHING, "capabilities": {}, "clientInfo": INFO}
    async with hosted(Stage().server) as site:
        answer = await site.post([request("initialize", params, 0)])
        assert "mcp-session-id" not in answer.headers
        reply = (await answer.json())[0]
        assert (reply["id"], reply["error"]["code"]) == (0, -32600)


@pytest.mark.parametrize("body", [b"[]", b"[1]", b'[{"jsonrpc": "2.0", "id": 4, "method": 3}]'])
async def test_a_batch_of_nothing_sensible_is_refused(body: bytes) -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet(BATCHING)
        answer = await session.post(body)
        reply = await answer.json()
        error = reply["error"] if isinstance(reply, dict) else reply[0]["error"]
        assert error["code"] == -32600


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_other_revisions_have_no_batches(version: str) -> None:
    async with hosted(Stage().server) as site:
        session = await site.greet(version)
        answer = await session.post(batch({"add": {"a": 1, "b": 2}}))
        assert answer.status == 400
        assert version in (await answer.error())["message"]


async def test_a_batch_that_is_cut_goes_on_and_is_resumed() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await site.greet(BATCHING)
        answer = await session.post(batch({"talk": {}}, {"talk": {}}))
        events = [await answer.next() for _ in range(2)]
        answer.cut()
        stage.release.set()
        rest = await (await session.get(events[-1].id)).messages()
        assert sorted(message["id"] for message in rest) == [0, 1]


# what a session is told of


async def test_a_level_holds_for_its_session() -> None:
    server = Server("levels", version="1")

    @server.tool
    async def speak(ctx: Context) -> str:
        ctx.debug("low")
        ctx.error("high")
        return "done"

    async with hosted(server) as site:
        quiet, other = await site.greet(), await site.greet()
        assert (await quiet.ask("logging/setLevel", {"level": "error"})).status == 200
        assert logged(await (await quiet.call("speak")).messages()) == ["high"]
        assert logged(await (await other.call("speak")).messages()) == ["low", "high"]


async def test_a_tool_sees_the_headers_and_the_client_of_its_request() -> None:
    server = Server("headers", version="1")

    @server.tool
    async def look(ctx: Context) -> str:
        assert ctx.client is not None
        return f"{ctx.client.name} {ctx.headers['x-tenant']} {ctx.revision}"

    async with hosted(server) as site:
        session = await site.greet()
        assert (
            text(await (await session.call("look", _headers={"X-Tenant": "acme"})).json())
            == f"raw acme {OLD}"
        )
        assert (
            text(await (await site.call("look", _headers={"X-Tenant": "acme"})).json())
            == f"raw acme {MODERN}"
        )
