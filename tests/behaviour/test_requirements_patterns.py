"""Requirements on cancellation, progress, subscriptions and the rounds of questions."""

import asyncio
import logging
import sys
from typing import Any

import pytest

from dovetail import Client, Context, Limits, NotFound, Server
from dovetail.errors import ConfigError, ConnectionClosed, InvalidRequest, TimedOut
from dovetail.protocol.base import (
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SERVER_INFO,
    SUBSCRIPTION_ID,
)
from dovetail.protocol.lifecycle import ProgressParams
from dovetail.testing import Bare, bare
from dovetail.transports import memory
from tests.behaviour import everything
from tests.behaviour.conftest import Talk
from tests.behaviour.handmade import complete, handmade, notification, refusal, reply

META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["doc://text"],
}


def call(id: Any, tool: str, meta: dict[str, Any] = META, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


async def listen(peer: Bare, id: Any, **wanted: Any) -> Any:
    """Open a stream, and return its acknowledgement."""
    params = {"notifications": wanted, "_meta": META}
    peer.send({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params})
    return await peer.receive()


async def settled(peer: Bare, id: str) -> list[Any]:
    """All that came before the answer to one more request."""
    peer.send({"jsonrpc": "2.0", "id": id, "method": "server/discover", "params": {"_meta": META}})
    came = []
    while (message := await peer.receive()).get("id") != id:
        came.append(message)
    return came


# cancellation


@pytest.mark.requirement("cancel-own-and-open")
async def test_a_request_that_was_answered_or_refused_is_never_cancelled(in_memory: Talk) -> None:
    async with in_memory() as client:
        await asyncio.wait_for(client.call_tool("add", {"a": 1}), 10)
        with pytest.raises(NotFound):
            await client.read_resource("doc://nothing")
        task = asyncio.create_task(client.call_tool("add", {"a": 1}))
        await task
        task.cancel()
    assert "notifications/cancelled" not in in_memory.tape.methods()


@pytest.mark.requirement("cancel-race", "cancel-late-reply")
async def test_a_reply_that_crosses_the_cancellation_harms_nobody(revision: str) -> None:
    async with handmade(revision) as (client, server):
        calling = asyncio.create_task(client.call_tool("x"))
        asked = await server.receive()
        calling.cancel()
        server.send(reply(asked, complete(content=[])))
        server.send(reply(asked, complete(content=[])))
        await asyncio.wait([calling])
        told = await server.receive()
        assert (told["method"], told["params"]["requestId"]) == (
            "notifications/cancelled",
            asked["id"],
        )
        again = asyncio.create_task(client.call_tool("y"))
        second = await server.receive()
        assert second["id"] != asked["id"]
        server.send(reply(second, complete(content=[{"type": "text", "text": "yes"}])))
        assert (await again).text == "yes"


@pytest.mark.requirement("cancel-no-messages-after", "cancel-race")
async def test_nothing_more_is_said_of_a_cancelled_call() -> None:
    server = Server("stubborn")
    started, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def stubborn(ctx: Context) -> str:
        ctx.progress(1)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ctx.progress(2)
            ctx.info("still here")
            stopped.set()
        return "never"

    async with bare(server) as peer:
        peer.send(call(1, "stubborn", {**META, LOG_LEVEL: "debug", "progressToken": "t"}))
        assert (await peer.receive())["params"]["progress"] == 1
        peer.send(notification("notifications/cancelled", requestId=1))
        await stopped.wait()
        assert await settled(peer, "after") == []
        peer.send(notification("notifications/cancelled", requestId=1, reason="again"))
        assert await settled(peer, "again") == []


@pytest.mark.requirement("cancel-reason-logged")
async def test_the_reason_of_a_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with bare(everything.build()) as peer:
        with caplog.at_level(logging.INFO, "dovetail.connection"):
            peer.send(call(1, "wait"))
            peer.send(notification("notifications/cancelled", requestId=1, reason="the user left"))
            await settled(peer, "after")
    assert "the user left" in caplog.text


@pytest.mark.requirement("cancel-stream-heard")
async def test_a_stream_that_the_server_cancels_has_ended_and_is_asked_for_again() -> None:
    async with handmade() as (client, server):
        changes: list[str] = []
        handle = client.on_change("tools", changes.append)
        asked = await server.receive()
        server.send(
            notification(
                "notifications/subscriptions/acknowledged",
                notifications={"toolsListChanged": True},
                _meta={SUBSCRIPTION_ID: asked["id"]},
            )
        )
        await handle
        calling = asyncio.create_task(client.call_tool("x"))
        other = await server.receive()
        server.send(notification("notifications/cancelled", requestId=other["id"]))
        server.send(
            notification("notifications/cancelled", requestId=asked["id"], reason="shutting down")
        )
        again = await server.receive()
        assert (again["method"], again["id"] != asked["id"]) == ("subscriptions/listen", True)
        server.send(reply(other, complete(content=[])))
        assert (await calling).content == [], "only a stream can be cancelled by a server"
        assert server.waiting() == 0, "and nothing is said to that"


@pytest.mark.requirement("timeout", "timeout-per-request")
async def test_each_call_may_have_a_deadline_of_its_own(revision: str) -> None:
    async with handmade(revision, timeout=30) as (client, server):
        with pytest.raises(TimedOut):
            await client.call_tool("x", timeout=0.05)
        asked = await server.receive()
        assert (await server.receive())["params"]["requestId"] == asked["id"]


# progress


@pytest.mark.requirement("progress-token-unique", "progress-token-type", "progress-token")
async def test_tokens_of_open_requests_differ_and_each_hears_its_own(revision: str) -> None:
    async with handmade(revision) as (client, server):
        heard: dict[int, list[float]] = {0: [], 1: [], 2: []}

        def follow(number: int) -> Any:
            return lambda update: heard[number].append(update.progress)

        calls = [
            asyncio.create_task(client.call_tool("x", on_progress=follow(number)))
            for number in heard
        ]
        asked = [await server.receive() for _ in calls]
        tokens = [request["params"]["_meta"]["progressToken"] for request in asked]
        assert len(set(tokens)) == 3
        assert all(type(token) in (int, str) for token in tokens)
        for number, token in enumerate(tokens):
            server.send(
                notification("notifications/progress", progressToken=token, progress=number + 1)
            )
        server.send(notification("notifications/progress", progressToken="nobody's", progress=9))
        for request in asked:
            server.send(reply(request, complete(content=[])))
        server.send(notification("notifications/progress", progressToken=tokens[0], progress=99))
        await asyncio.gather(*calls)
        await client.close()
        assert heard == {0: [1], 1: [2], 2: [3]}


@pytest.mark.requirement("progress", "progress-token", "progress-stops")
@pytest.mark.parametrize("token", ["abc", 7, "", 0])
async def test_progress_rises_under_its_token_and_ends_with_the_answer(token: Any) -> None:
    server = Server("steps")
    later: list[Context] = []

    @server.tool
    async def steps(ctx: Context) -> None:
        for value in (1, 3, 2, float("nan"), 3, float("inf"), 3.5):
            ctx.progress(value, float("nan"))
        later.append(ctx)

    async with bare(server) as peer:
        peer.send(call(1, "steps", {**META, "progressToken": token}))
        came = []
        while "id" not in (message := await peer.receive()):
            came.append(message["params"])
        values = [params["progress"] for params in came]
        assert values == sorted(set(values)) and values[-1] == 3.5
        assert {repr(params["progressToken"]) for params in came} == {repr(token)}
        assert all("total" not in params for params in came)
        later[0].progress(100)
        assert await settled(peer, "after") == []


@pytest.mark.requirement("progress")
async def test_progress_that_falls_is_not_told_to_the_caller(revision: str) -> None:
    async with handmade(revision) as (client, server):
        seen: list[ProgressParams] = []
        calling = asyncio.create_task(client.call_tool("x", on_progress=seen.append))
        asked = await server.receive()
        for value in (1, 3, 2, 3, 4):
            token = asked["params"]["_meta"]["progressToken"]
            server.send(notification("notifications/progress", progressToken=token, progress=value))
        server.send(reply(asked, complete(content=[])))
        await calling
        assert [update.progress for update in seen] == [1, 3, 4]


# subscriptions


@pytest.mark.requirement("subscriptions-ack-first", "subscriptions-ack-filter", "subscriptions-id")
async def test_a_stream_begins_with_an_acknowledgement_of_what_was_asked_for() -> None:
    server = everything.build()
    async with bare(server) as peer:
        peer.send(
            {
                "jsonrpc": "2.0",
                "id": "s",
                "method": "subscriptions/listen",
                "params": {"notifications": EVERYTHING, "_meta": META},
            }
        )
        server.notify_resource_updated("doc://text")
        server.remove_tool("full")
        first = await peer.receive()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"] == {"notifications": EVERYTHING, "_meta": {SUBSCRIPTION_ID: "s"}}
        some = await listen(peer, 2, toolsListChanged=True, somethingElse=True)
        while some["method"] != first["method"]:
            some = await peer.receive()
        assert some["params"] == {
            "notifications": {"toolsListChanged": True},
            "_meta": {SUBSCRIPTION_ID: 2},
        }


@pytest.mark.requirement(
    "subscriptions-only-requested",
    "subscriptions-id",
    "tools-list-changed",
    "resources-list-changed",
    "prompts-list-changed",
)
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        *({key: value} for key, value in EVERYTHING.items()),
        EVERYTHING,
        {"toolsListChanged": False},
    ],
)
async def test_only_what_was_asked_for_is_told_and_all_of_it_carries_the_streams_id(
    wanted: dict[str, Any],
) -> None:
    server = everything.build()
    async with bare(server) as peer:
        await listen(peer, "s", **wanted)
        server.add_tool(lambda: 1, name="new")
        server.add_prompt(lambda: "x", name="new")
        server.add_resource(lambda: "x", "doc://new")
        server.notify_resource_updated("doc://text")
        server.notify_resource_updated("doc://other")
        came = await settled(peer, "turn") + await settled(peer, "turn again")
        kinds = {
            "toolsListChanged": "notifications/tools/list_changed",
            "promptsListChanged": "notifications/prompts/list_changed",
            "resourcesListChanged": "notifications/resources/list_changed",
            "resourceSubscriptions": "notifications/resources/updated",
        }
        assert sorted(one["method"] for one in came) == sorted(
            kinds[key] for key, value in wanted.items() if value
        )
        assert all(one["params"]["_meta"] == {SUBSCRIPTION_ID: "s"} for one in came)
        assert all(one["params"]["uri"] == "doc://text" for one in came if "uri" in one["params"])


@pytest.mark.requirement("tools-list-changed", "resources-list-changed", "prompts-list-changed")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
async def test_changes_of_every_list_are_told_in_the_handshake_era(version: str) -> None:
    server = everything.build()
    async with bare(server) as peer:
        await peer.greet(version)
        await peer.ask("ping")
        server.add_tool(lambda: 1, name="new")
        server.add_prompt(lambda: "x", name="new")
        server.add_resource(lambda: "x", "doc://new")
        assert {(await peer.receive())["method"] for _ in range(3)} == {
            f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
        }


@pytest.mark.requirement("subscriptions-cancelled")
async def test_a_stream_that_was_cancelled_is_silent_and_not_answered() -> None:
    server = everything.build()
    async with bare(server) as peer:
        await listen(peer, 1, toolsListChanged=True)
        await listen(peer, 2, toolsListChanged=True)
        peer.send(notification("notifications/cancelled", requestId=1))
        await settled(peer, "cancelled")
        server.remove_tool("full")
        came = await settled(peer, "turn") + await settled(peer, "turn again")
        assert [one["params"]["_meta"][SUBSCRIPTION_ID] for one in came] == [2]


@pytest.mark.requirement("subscriptions-cancelled")
async def test_a_client_ends_a_stream_by_cancelling_its_request() -> None:
    async with handmade() as (client, server):
        opening = asyncio.create_task(client.subscribe("x:y", print))
        asked = await server.receive()
        assert asked["params"]["notifications"] == {"resourceSubscriptions": ["x:y"]}
        granted = notification(
            "notifications/subscriptions/acknowledged",
            notifications=asked["params"]["notifications"],
        )
        granted["params"]["_meta"] = {SUBSCRIPTION_ID: asked["id"]}
        server.send(granted)
        await (await opening).close()
        told = await server.receive()
        assert (told["method"], told["params"]["requestId"]) == (
            "notifications/cancelled",
            asked["id"],
        )


@pytest.mark.requirement("subscriptions-graceful", "subscriptions-id", "cancel-server-only-streams")
async def test_a_server_that_stops_answers_the_requests_of_its_streams() -> None:
    server = everything.build()
    ours, theirs = memory.pair()
    peer, serving = Bare(ours), asyncio.create_task(server.serve(theirs))
    await listen(peer, "s", toolsListChanged=True)
    serving.cancel()
    told = await peer.receive()
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", "s")
    last = await peer.receive()
    assert last["id"] == "s"
    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][SUBSCRIPTION_ID] == "s"
    assert last["result"]["_meta"][SERVER_INFO]["name"] == "everything"
    await asyncio.wait([serving])
    assert peer.waiting() == 0


@pytest.mark.requirement("subscriptions-correlated")
async def test_a_client_tells_its_streams_apart_by_their_ids() -> None:
    async with handmade() as (client, server):
        heard: list[str] = []
        client.on_change("tools", heard.append)
        first = await server.receive()
        client.on_change("prompts", heard.append)
        second = await server.receive()
        for kind, stream in [
            ("prompts", first["id"]), ("prompts", second["id"]),
            ("tools", second["id"]), ("tools", first["id"]),
            ("tools", 12345), ("tools", str(first["id"])),
        ]:  # fmt: skip
            server.send(
                notification(f"notifications/{kind}/list_changed", _meta={SUBSCRIPTION_ID: stream})
            )
        server.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        asking = asyncio.create_task(client.ping())
        server.send(refusal(await server.receive(), -32603))
        await asyncio.wait([asking])
        asking.exception()
        assert heard == ["prompts", "tools"]


@pytest.mark.requirement("subscriptions-ack-checked")
@pytest.mark.parametrize(
    "granted", [{}, {"promptsListChanged": True}, {"resourceSubscriptions": []}]
)
async def test_what_a_server_does_not_grant_is_not_waited_for(granted: dict[str, Any]) -> None:
    async with handmade() as (client, server):
        opening = asyncio.create_task(client.subscribe("x:y", print))
        asked = await server.receive()
        server.send(
            notification(
                "notifications/subscriptions/acknowledged",
                notifications=granted,
                _meta={SUBSCRIPTION_ID: asked["id"]},
            )
        )
        with pytest.raises(NotFound, match="x:y"):
            await opening
        told = await server.receive()
        assert (told["method"], told["params"]["requestId"]) == (
            "notifications/cancelled",
            asked["id"],
        )


@pytest.mark.requirement("subscriptions-renewed")
async def test_streams_are_asked_for_again_in_a_new_conversation() -> None:
    async with handmade() as (client, server):
        client.on_change("tools", print)
        assert (await server.receive())["method"] == "subscriptions/listen"
        calling = client._connector.session
        assert calling is not None
        await client._subscriptions.restore(calling)
        renewed = [await server.receive() for _ in range(2)]
        assert sorted(one["method"] for one in renewed) == [
            "notifications/cancelled",
            "subscriptions/listen",
        ]


MORTAL = """
import os
from dovetail import Server

server = Server("mortal")
server.add_tool(lambda: os._exit(1), name="die")
server.add_tool(lambda: server.add_tool(lambda: 1, name="new"), name="grow")
server.run()
"""


@pytest.mark.requirement("subscriptions-renewed")
async def test_streams_are_asked_for_again_of_a_process_that_was_started_again() -> None:
    heard = asyncio.Event()
    async with Client([sys.executable, "-c", MORTAL]) as client:
        await client.on_change("tools", lambda _: heard.set())
        with pytest.raises(ConnectionClosed):
            await client.call_tool("die")
        await client.call_tool("grow")
        await heard.wait()


@pytest.mark.requirement("logging-own-request")
async def test_log_messages_do_not_come_on_a_stream() -> None:
    async with bare(everything.build()) as peer:
        params = {"notifications": EVERYTHING, "_meta": {**META, LOG_LEVEL: "debug"}}
        peer.send({"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": params})
        await peer.receive()
        peer.send(call(1, "talk"))
        assert (await peer.receive())["id"] == 1, "that call did not ask for any"
        peer.send(call(2, "talk", {**META, LOG_LEVEL: "alert"}))
        logs = [await peer.receive() for _ in range(2)]
        assert [one["params"]["level"] for one in logs] == ["alert", "emergency"]
        assert all(SUBSCRIPTION_ID not in one["params"].get("_meta", {}) for one in logs)


# rounds


def question(message: str = "Who?", **params: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return {
        "method": "elicitation/create",
        "params": {"message": message, "requestedSchema": schema, **params},
    }


ASKING = {
    "tools/call": (lambda client: client.call_tool("x", {"a": 1}), {"content": []}),
    "prompts/get": (lambda client: client.get_prompt("x", {"a": "1"}), {"messages": []}),
    "resources/read": (
        lambda client: client.read_resource("x:y"),
        {"contents": [], "ttlMs": 0, "cacheScope": "private"},
    ),
}


@pytest.mark.requirement(
    "rounds-answers-first",
    "rounds-state-echoed",
    "rounds-new-id",
    "rounds-apart",
    "elicitation-mode-default",
)
@pytest.mark.parametrize("method", ASKING)
@pytest.mark.parametrize("state", ["", "opaque", '{"not": "yours"}', "\u00e9 \n\u2028"])
async def test_a_round_comes_back_with_all_answers_and_the_very_state(
    method: str, state: str
) -> None:
    ask, last = ASKING[method]
    async with handmade(on_elicit=lambda request: {"name": request.mode}, roots=["file:///r"]) as (
        client,
        server,
    ):
        asking = asyncio.create_task(ask(client))
        first = await server.receive()
        other = asyncio.create_task(ask(client))
        parallel = await server.receive()
        asked = {"who": question(), "where": {"method": "roots/list"}}
        server.send(
            reply(
                first,
                {"resultType": "input_required", "inputRequests": asked, "requestState": state},
            )
        )
        second = await server.receive()
        assert second["method"] == method
        assert second["id"] not in (first["id"], parallel["id"])
        added = {"inputResponses", "requestState"}
        assert {key: value for key, value in second["params"].items() if key not in added} == first[
            "params"
        ]
        assert second["params"]["requestState"] == state
        assert second["params"]["inputResponses"] == {
            "who": {"action": "accept", "content": {"name": "form"}},
            "where": {"roots": [{"uri": "file:///r"}]},
        }
        assert not added & parallel["params"].keys()
        third = asyncio.create_task(ask(client))
        fresh = await server.receive()
        assert not added & fresh["params"].keys()
        for request in (second, parallel, fresh):
            server.send(reply(request, complete(**last)))
        await asyncio.gather(asking, other, third)


@pytest.mark.requirement("rounds-state-absent")
async def test_a_round_without_state_is_answered_without_and_one_without_questions_at_once() -> (
    None
):
    async with handmade(on_elicit=lambda request: None) as (client, server):
        asking = asyncio.create_task(client.call_tool("x"))
        server.send(
            reply(await server.receive(), {"resultType": "input_required", "requestState": "s"})
        )
        second = await server.receive()
        assert second["params"]["requestState"] == "s"
        assert "inputResponses" not in second["params"]
        server.send(
            reply(second, {"resultType": "input_required", "inputRequests": {"q": question()}})
        )
        third = await server.receive()
        assert "requestState" not in third["params"]
        assert third["params"]["inputResponses"] == {"q": {"action": "decline"}}
        server.send(reply(third, complete(content=[])))
        await asking


@pytest.mark.requirement("rounds-where")
async def test_questions_in_place_of_a_list_are_an_unknown_answer() -> None:
    async with handmade(on_elicit=lambda request: None) as (client, server):
        asking = asyncio.create_task(client.list_tools())
        server.send(
            reply(
                await server.receive(),
                {"resultType": "input_required", "inputRequests": {"q": question()}},
            )
        )
        with pytest.raises(InvalidRequest, match="input_required"):
            await asking


@pytest.mark.requirement("asking-undeclared")
async def test_a_question_in_a_round_that_was_not_declared_is_not_answered() -> None:
    async with handmade(roots=[]) as (client, server):
        asking = asyncio.create_task(client.call_tool("x"))
        server.send(
            reply(
                await server.receive(),
                {"resultType": "input_required", "inputRequests": {"q": question()}},
            )
        )
        with pytest.raises(InvalidRequest, match="elicitation/create"):
            await asking
        assert server.waiting() == 0


@pytest.mark.requirement("elicitation-mode-default", "elicitation-mode-undeclared")
async def test_a_question_of_a_mode_that_was_not_declared_is_refused() -> None:
    async with handmade("2025-11-25", on_elicit=lambda request: {"name": request.mode}) as (
        _,
        server,
    ):
        params = question()["params"]
        assert (await server.ask("elicitation/create", params))["result"]["content"] == {
            "name": "form"
        }
        reply_ = await server.ask("elicitation/create", {**params, "mode": "telepathy"})
        assert reply_["error"]["code"] == -32602


@pytest.mark.requirement("sampling-tools-undeclared")
@pytest.mark.parametrize("extra", [{"tools": []}, {"toolChoice": {"mode": "auto"}}])
async def test_sampling_with_tools_is_refused_where_tools_were_not_declared(
    extra: dict[str, Any],
) -> None:
    async with handmade("2025-11-25", on_sample=lambda request: "yes") as (_, server):
        params = {
            "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
            "maxTokens": 5,
        }
        assert (await server.ask("sampling/createMessage", params))["result"]["content"][
            "text"
        ] == "yes"
        assert (await server.ask("sampling/createMessage", {**params, **extra}))["error"][
            "code"
        ] == -32602


@pytest.mark.requirement("roots-list-changed", "roots-file-uris")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_new_roots_are_told_where_there_is_a_word_for_it(version: str) -> None:
    async with handmade(version, roots=["file:///old"]) as (client, server):
        await client.set_roots(["file:///new"])
        with pytest.raises(ConfigError, match="root"):
            await client.set_roots(["https://example.com"])
        if version == "2026-07-28":
            assert server.waiting() == 0
        else:
            assert (await server.receive())["method"] == "notifications/roots/list_changed"
            assert (await server.ask("roots/list"))["result"] == {"roots": [{"uri": "file:///new"}]}


@pytest.mark.requirement("rate-limit")
async def test_what_one_client_may_have_going_at_once_is_bounded() -> None:
    limits = Limits(in_flight=3, queued_bytes=0, shutdown=0.1)
    async with bare(everything.build(limits=limits)) as peer:
        for id in range(5):
            peer.send(call(id, "wait"))
        refused = [await peer.receive() for _ in range(2)]
        assert {one["id"] for one in refused} == {3, 4}
        assert all("limit is 3" in one["error"]["message"] for one in refused)
