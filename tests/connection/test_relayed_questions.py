"""Questions that pass through a relay, byte by byte: between a server and a caller that the test
speaks for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.errors import InvalidParams
from dovetail.ports import Principal, RequestIdentity
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from dovetail.testing import Bare, bare
from dovetail.transports import memory
from tests.behaviour.handmade import OFFERED, discovery, refusal, reply
from tests.behaviour.relaying import Relay

STATELESS = "2026-07-28"
BIG = 2**63 + 1
FORM = {"type": "object", "properties": {"n": {"type": "integer", "maximum": BIG}}, "x": 1.0}
QUESTION = {
    "elicitation/create": {"message": "?", "requestedSchema": FORM, "unknown": {"big": BIG}},
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "?", "new": BIG}}],
        "maxTokens": 5,
        "unknown": [BIG],
    },
    "roots/list": {"unknown": BIG},
}
ANSWER = {
    "elicitation/create": {"action": "accept", "content": {"n": BIG}, "unknown": True},
    "sampling/createMessage": {
        "role": "assistant",
        "model": "m",
        "content": {"type": "text", "text": "!", "new": BIG},
        "unknown": {"a": [BIG]},
    },
    "roots/list": {"roots": [{"uri": "file:///x", "unknown": BIG}], "unknown": "é"},
}
METHODS = list(QUESTION)
DONE = {"content": [{"type": "text", "text": "done"}], "unknown": BIG}
CAPABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}


@asynccontextmanager
async def by_hand(
    upstream: str, caller: str, **options: Any
) -> AsyncIterator[tuple[Bare, Bare, Relay]]:
    """A relay between a server and a caller that the test speaks for."""
    ours, theirs = memory.pair()
    server = Bare(theirs)
    relay = Relay(Client(ours, revision=upstream), **options)
    opening = asyncio.create_task(relay.client.connect())
    hello = await server.receive()
    if upstream == STATELESS:
        server.send(reply(hello, discovery(OFFERED)))
    else:
        info = {"name": "by hand", "version": "0"}
        server.send(
            reply(hello, {"protocolVersion": upstream, "capabilities": OFFERED, "serverInfo": info})
        )
        assert (await server.receive())["method"] == "notifications/initialized"
    await opening
    try:
        async with bare(relay) as client:
            if caller != STATELESS:
                await client.greet(caller, CAPABLE)
            yield server, client, relay
    finally:
        await relay.client.close()


def tool_call(caller: str, id: int = 1, arguments: Any = None, **more: Any) -> dict[str, Any]:
    params: dict[str, Any] = {
        "name": "t",
        "arguments": arguments or {"n": BIG},
        "extra": BIG,
        **more,
    }
    if caller == STATELESS:
        params["_meta"] = {
            PROTOCOL_VERSION: STATELESS,
            CLIENT_CAPABILITIES: CAPABLE,
            "own/key": BIG,
        }
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def required(*methods: str, state: str | None = "upstream's") -> dict[str, Any]:
    requests = {
        f"key {method}": {"method": method, "params": QUESTION[method]} for method in methods
    }
    given = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": requests, **given}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("caller", ["2025-11-25", STATELESS])
async def test_from_a_handshake_server_nothing_is_lost_on_the_way_there_and_back(
    caller: str, method: str
) -> None:
    async with by_hand("2025-11-25", caller) as (server, client, _):
        client.send(tool_call(caller))
        called = await server.receive()
        assert called["params"]["extra"] == BIG
        meta = {"progressToken": 1, "own/key": BIG}
        params = {**QUESTION[method], "_meta": meta}
        server.send({"jsonrpc": "2.0", "id": "q", "method": method, "params": params})
        asked = await client.receive()
        if caller == STATELESS:
            result = asked["result"]
            assert result["resultType"] == "input_required"
            [(key, question)] = result["inputRequests"].items()
            kept = {} if method != "roots/list" else {"_meta": {"own/key": BIG}}
            assert question == {"method": method, "params": {**QUESTION[method], **kept}}
            responses = {key: ANSWER[method]}
            client.send(
                tool_call(caller, 2, inputResponses=responses, requestState=result["requestState"])
            )
        else:
            assert asked["method"] == method
            assert asked["params"] == {**QUESTION[method], "_meta": {"own/key": BIG}}, (
                "the progress token belongs to another connection"
            )
            client.send(reply(asked, ANSWER[method]))
        answered = await server.receive()
        assert (answered["id"], answered["result"]) == ("q", ANSWER[method])
        server.send(reply(called, DONE))
        done = await client.receive()
        assert done["result"]["unknown"] == BIG
        assert done["result"]["content"] == DONE["content"]


@pytest.mark.parametrize("state", ["upstream's", None])
@pytest.mark.parametrize("caller", ["2025-11-25", STATELESS])
async def test_from_a_stateless_server_nothing_is_lost_on_the_way_there_and_back(
    caller: str, state: str | None
) -> None:
    async with by_hand(STATELESS, caller) as (server, client, _):
        client.send(tool_call(caller))
        called = await server.receive()
        server.send(reply(called, required(*METHODS, state=state)))
        if caller == STATELESS:
            result = (await client.receive())["result"]
            assert result["inputRequests"] == required(*METHODS)["inputRequests"]
            assert "upstream's" not in result["requestState"]
            responses = {f"key {method}": ANSWER[method] for method in METHODS}
            client.send(
                tool_call(caller, 2, inputResponses=responses, requestState=result["requestState"])
            )
        else:
            for _ in METHODS:
                asked = await client.receive()
                assert asked["params"] == QUESTION[asked["method"]]
                client.send(reply(asked, ANSWER[asked["method"]]))
        again = (await server.receive())["params"]
        assert again["inputResponses"] == {f"key {method}": ANSWER[method] for method in METHODS}
        assert again.get("requestState") == state
        assert again["arguments"] == {"n": BIG}
        server.send(reply({"id": called["id"] + 1}, {**DONE, "resultType": "complete"}))
        assert (await client.receive())["result"]["unknown"] == BIG


async def test_a_page_from_a_stateless_server_has_the_id_that_an_older_caller_needs() -> None:
    page = {"message": "Go", "mode": "url", "url": "https://example.com/", "unknown": 1}
    asks = {"q": {"method": "elicitation/create", "params": page}}
    async with by_hand(STATELESS, "2025-11-25") as (server, client, _):
        client.send(tool_call("2025-11-25"))
        called = await server.receive()
        server.send(reply(called, {"resultType": "input_required", "inputRequests": asks}))
        asked = (await client.receive())["params"]
        assert asked.pop("elicitationId")
        assert asked == page


# what a caller cannot or must not be asked


@pytest.mark.parametrize("caller", ["2025-11-25", STATELESS])
@pytest.mark.parametrize(
    ("params", "code", "problem"),
    [
        ({"message": "?", "mode": "url", "url": "javascript:x"}, -32602, "not a URL"),
        ({"message": "?", "mode": "url", "url": "file:///etc"}, -32602, "not a URL"),
        ({"message": 3}, -32602, "message"),
    ],
)
async def test_a_question_that_no_caller_may_be_asked_is_refused_at_once(
    caller: str, params: Any, code: int, problem: str
) -> None:
    async with by_hand("2025-11-25", caller) as (server, client, _):
        client.send(tool_call(caller))
        called = await server.receive()
        server.send({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params})
        answered = await server.receive()
        assert answered["error"]["code"] == code
        assert problem in answered["error"]["message"]
        server.send(reply(called, DONE))
        assert "result" in await client.receive(), "the caller was not asked"


@pytest.mark.parametrize("caller", ["2025-11-25", STATELESS])
@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"message": "?", "mode": "url", "url": "javascript:x"}, "not a URL"),
        ({"message": 3}, "malformed"),
    ],
)
async def test_so_it_is_if_a_stateless_server_asks_it(
    caller: str, params: Any, problem: str
) -> None:
    asks = {"q": {"method": "elicitation/create", "params": params}}
    async with by_hand(STATELESS, caller) as (server, client, _):
        client.send(tool_call(caller))
        called = await server.receive()
        server.send(reply(called, {"resultType": "input_required", "inputRequests": asks}))
        assert problem in (await client.receive())["error"]["message"]


@pytest.mark.parametrize("upstream", ["2025-11-25", STATELESS])
@pytest.mark.parametrize("method", METHODS)
async def test_a_caller_is_asked_nothing_that_it_did_not_declare(
    method: str, upstream: str
) -> None:
    call = tool_call(STATELESS)
    declared = {"sampling": {}} if method != "sampling/createMessage" else {"roots": {}}
    call["params"]["_meta"][CLIENT_CAPABILITIES] = declared
    async with by_hand(upstream, STATELESS) as (server, client, _):
        client.send(call)
        called = await server.receive()
        if upstream == STATELESS:
            assert called["params"]["_meta"][CLIENT_CAPABILITIES] == declared
            server.send(reply(called, required(method)))
            assert "did not declare" in (await client.receive())["error"]["message"]
        else:
            question = {"jsonrpc": "2.0", "id": 7, "method": method, "params": QUESTION[method]}
            server.send(question)
            assert "did not declare" in (await server.receive())["error"]["message"]
            server.send(reply(called, DONE))
            assert "result" in await client.receive()


async def test_a_refusal_of_the_caller_passes_with_its_code_and_data() -> None:
    async with by_hand("2025-11-25", "2025-11-25") as (server, client, _):
        client.send(tool_call("2025-11-25"))
        await server.receive()
        server.send({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})
        client.send(refusal(await client.receive(), -1, "User rejected", {"why": BIG}))
        error = (await server.receive())["error"]
        assert error == {"code": -1, "message": "User rejected", "data": {"why": BIG}}


async def test_an_answer_that_is_not_an_object_is_an_error_for_the_server() -> None:
    async with by_hand("2025-11-25", "2025-11-25") as (server, client, _):
        client.send(tool_call("2025-11-25"))
        await server.receive()
        server.send({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})
        client.send(reply(await client.receive(), [1]))
        assert "malformed" in (await server.receive())["error"]["message"]


async def test_a_question_of_an_unknown_kind_is_an_error_for_the_caller() -> None:
    asks = {"q": {"method": "future/question", "params": {}}}
    async with by_hand(STATELESS, STATELESS) as (server, client, _):
        client.send(tool_call(STATELESS))
        called = await server.receive()
        server.send(reply(called, {"resultType": "input_required", "inputRequests": asks}))
        assert "unknown question" in (await client.receive())["error"]["message"]


async def test_a_server_may_not_ask_more_than_the_limit() -> None:
    ours, theirs = memory.pair()
    server = Bare(theirs)
    relay = Relay(Client(ours, revision="2025-11-25", limits=Limits(questions=2)))
    async with bare(relay) as client:
        opening = asyncio.create_task(relay.client.connect())
        info = {"name": "by hand", "version": "0"}
        hello = await server.receive()
        greeting = {"protocolVersion": "2025-11-25", "capabilities": OFFERED, "serverInfo": info}
        server.send(reply(hello, greeting))
        await server.receive()
        await opening
        await client.greet("2025-11-25", CAPABLE)
        client.send(tool_call("2025-11-25"))
        await server.receive()
        for number in range(3):
            server.send({"jsonrpc": "2.0", "id": number, "method": "roots/list"})
            if number < 2:
                client.send(reply(await client.receive(), {"roots": []}))
            answered = await server.receive()
        assert "Limits.questions" in answered["error"]["message"]
    await relay.client.close()


# the state of another server


async def test_the_state_of_the_server_is_bound_to_caller_method_target_and_arguments() -> None:
    """Two callers at once, with the same call: each has its own state, which is good for nothing
    else."""
    ours, theirs = memory.pair()
    server = Bare(theirs)
    relay = Relay(Client(ours, revision=STATELESS))
    opening = asyncio.create_task(relay.client.connect())
    server.send(reply(await server.receive(), discovery(OFFERED)))
    await opening
    states: dict[str, str] = {}
    async with principal_of(relay, "ann") as ann, principal_of(relay, "bob") as bob:
        for who, client in (("ann", ann), ("bob", bob)):
            client.send(tool_call(STATELESS))
            called = await server.receive()
            server.send(reply(called, required("roots/list", state=f"state of {who}")))
            states[who] = (await client.receive())["result"]["requestState"]
        responses = {"key roots/list": ANSWER["roots/list"]}

        async def refuse(client: Bare, request: dict[str, Any]) -> None:
            client.send(request)
            error = (await client.receive())["error"]
            assert error["code"] == InvalidParams.code
            assert "may have taken effect" in error["message"]

        own = {"inputResponses": responses, "requestState": states["ann"]}
        await refuse(bob, tool_call(STATELESS, 2, **own))
        await refuse(ann, tool_call(STATELESS, 2, arguments={"n": 1}, **own))
        other_tool = tool_call(STATELESS, 2, **own)
        other_tool["params"]["name"] = "u"
        await refuse(ann, other_tool)
        other_method = tool_call(STATELESS, 2, **own)
        other_method["method"] = "prompts/get"
        other_method["params"]["arguments"] = {}
        await refuse(ann, other_method)
        for who, client in (("bob", bob), ("ann", ann)):
            client.send(tool_call(STATELESS, 3, inputResponses=responses, requestState=states[who]))
            called = await server.receive()
            assert called["params"]["requestState"] == f"state of {who}"
            server.send(reply(called, {**DONE, "resultType": "complete"}))
            assert (await client.receive())["result"]["unknown"] == BIG
    await relay.client.close()


@asynccontextmanager
async def principal_of(relay: Relay, user: str) -> AsyncIterator[Bare]:
    """A caller that a guard has let in."""
    ours, theirs = memory.pair()
    theirs.identity = RequestIdentity(principal=Principal(user))  # type: ignore[attr-defined]
    serving = asyncio.create_task(relay.serve(theirs))
    peer = Bare(ours)
    try:
        yield peer
    finally:
        await peer.close()
        await serving


async def test_two_handshake_callers_each_get_the_state_of_their_own_call() -> None:
    async with by_hand(STATELESS, "2025-11-25") as (server, ann, relay):
        async with bare(relay) as bob:
            await bob.greet("2025-11-25", CAPABLE)
            calls = []
            for who, client in (("ann", ann), ("bob", bob)):
                client.send(tool_call("2025-11-25"))
                calls.append(called := await server.receive())
                server.send(reply(called, required("roots/list", state=f"state of {who}")))
            questions = [await client.receive() for client in (ann, bob)]
            for who, client, asked in (("bob", bob, questions[1]), ("ann", ann, questions[0])):
                client.send(reply(asked, {"roots": [{"uri": f"file:///{who}"}]}))
                params = (again := await server.receive())["params"]
                assert params["requestState"] == f"state of {who}"
                roots = params["inputResponses"]["key roots/list"]["roots"]
                assert roots == [{"uri": f"file:///{who}"}]
                server.send(reply(again, {"content": [], "who": who, "resultType": "complete"}))
                assert (await client.receive())["result"]["who"] == who


# a server that asks a stateless caller is never called twice


async def test_a_relayed_call_is_held_and_its_handle_works_once_and_again() -> None:
    async with by_hand("2025-11-25", STATELESS) as (server, client, relay):
        client.send(tool_call(STATELESS))
        called = await server.receive()
        server.send({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})
        result = (await client.receive())["result"]
        [key] = result["inputRequests"]
        again = {"inputResponses": {key: {"roots": []}}, "requestState": result["requestState"]}
        for id in (2, 3):
            client.send(tool_call(STATELESS, id, **again))
        assert (await server.receive())["result"] == {"roots": []}
        server.send(reply(called, DONE))
        assert {(await client.receive())["id"] for _ in range(2)} == {2, 3}
        client.send(tool_call(STATELESS, 4, **again))
        assert (await client.receive())["result"]["unknown"] == BIG
        assert not relay.open


async def test_a_relayed_call_that_expires_is_cancelled_at_the_server() -> None:
    async with by_hand("2025-11-25", STATELESS, limits=Limits(parked_time=0.05)) as (
        server,
        client,
        _,
    ):
        client.send(tool_call(STATELESS))
        called = await server.receive()
        server.send({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})
        state = (await client.receive())["result"]["requestState"]
        cancelled = await server.receive()
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == called["id"]
        client.send(tool_call(STATELESS, 2, requestState=state))
        assert "may have taken effect" in (await client.receive())["error"]["message"]


# the client of a relay


async def test_a_relays_handlers_also_answer_what_its_own_requests_are_asked() -> None:
    async with by_hand(STATELESS, "2025-11-25") as (server, client, relay):
        client.send(tool_call("2025-11-25"))
        relayed = await server.receive()
        own = asyncio.create_task(relay.client.request("tools/call", {"name": "own"}, parent=None))
        called = await server.receive()
        server.send(reply(called, required("elicitation/create")))
        asked = await client.receive()
        assert asked["params"] == QUESTION["elicitation/create"]
        client.send(reply(asked, ANSWER["elicitation/create"]))
        again = await server.receive()
        responses = again["params"]["inputResponses"]
        assert responses == {"key elicitation/create": ANSWER["elicitation/create"]}
        for request in (again, relayed):
            server.send(reply(request, {"content": [], "resultType": "complete"}))
        assert (await own).content == []
        await client.receive()


async def test_a_relay_can_say_that_the_roots_of_its_caller_have_changed() -> None:
    async with by_hand("2025-11-25", "2025-11-25") as (server, _, relay):
        await relay.client.set_roots(())
        assert (await server.receive())["method"] == "notifications/roots/list_changed"
