"""The ids of a client's requests: who is told of them, and how a call is cancelled by one."""

import asyncio
from typing import Any

import pytest

from dovetail import Client, Context, ElicitRequest, LogEntry, Server
from dovetail.errors import DovetailError, RequestCancelled
from dovetail.jsonrpc.messages import Id
from dovetail.protocol import ProgressParams
from dovetail.testing import Tape, pair
from tests.behaviour.conftest import Talk
from tests.behaviour.handmade import complete, handmade, reply


def sent_calls(talk: Talk, tool: str) -> list[Id]:
    """The ids of the calls of a tool, as they were sent."""
    return [
        one["id"]
        for one in talk.tape.messages("client")
        if one.get("method") in ("tools/call", "tools/invoke") and one["params"]["name"] == tool
    ]


@pytest.mark.parametrize("tool", ["wait", "block"])
async def test_a_call_is_cancelled_by_its_id_from_another_task(talk: Talk, tool: str) -> None:
    started, ids = asyncio.Event(), list[Id]()
    async with talk(on_log=lambda entry: started.set()) as client:
        calling = asyncio.create_task(client.call_tool(tool, on_request_id=ids.append))
        await started.wait()
        assert client.cancel_request(ids[0])
        assert not client.cancel_request(ids[0]), "it is cancelled already"
        with pytest.raises(RequestCancelled, match="The request was cancelled"):
            await calling
        assert not calling.cancelled() and not calling.cancelling()
        assert (await client.call_tool("given_up")).text == tool
        assert not client.cancel_request(ids[0]), "it is over"
    assert sent_calls(talk, tool) == ids
    assert talk.cancelled() == ids
    assert ids[0] not in [one.get("id") for one in talk.tape.messages("server")]


async def test_an_early_draft_cancels_by_id_too() -> None:
    talk, ids = Talk("memory", "detailed-draft"), list[Id]()
    async with talk() as client:
        calling = asyncio.create_task(client.call_tool("wait", on_request_id=ids.append))
        await client.call_tool("add", {"a": 1, "b": 2})
        assert client.cancel_request(*ids)
        with pytest.raises(RequestCancelled):
            await calling
        assert (await client.call_tool("given_up")).text == "wait"
    assert {"id": ids[0]} in [one.get("params") for one in talk.tape.messages("client")]


async def test_the_other_calls_of_a_client_go_on_when_one_is_cancelled(talk: Talk) -> None:
    ids, started = list[Id](), asyncio.Event()
    async with talk(on_log=lambda entry: started.set()) as client:
        calling = asyncio.create_task(client.call_tool("wait", on_request_id=ids.append))
        blocking = asyncio.create_task(client.call_tool("block"))
        await started.wait()
        assert client.cancel_request(*ids)
        with pytest.raises(RequestCancelled):
            await calling
        await client.call_tool("let_go")
        assert (await blocking).text == "released"


async def test_progress_and_logs_name_the_request_that_they_belong_to(talk: Talk) -> None:
    updates, entries = dict[str, list[ProgressParams]](), list[LogEntry]()
    ids: dict[str, list[Id]] = {"first": [], "second": []}

    async def call(client: Client, which: str) -> None:
        updates[which] = []
        await client.call_tool(
            "steps",
            {"count": 3},
            on_progress=updates[which].append,
            on_request_id=ids[which].append,
        )

    async with talk(on_log=entries.append) as client:
        await asyncio.gather(call(client, "first"), call(client, "second"))
        told = list[Id]()
        await client.call_tool("talk", on_request_id=told.append)
    for which, seen in updates.items():
        assert {one.request_id for one in seen} == {*ids[which]}
    assert sorted([*ids["first"], *ids["second"]]) == sorted(sent_calls(talk, "steps"))
    expected = told[0] if talk.transport == "http" else None
    assert [one.request_id for one in entries] == [expected] * 8


@pytest.mark.parametrize("how", ["request", "relay", "start_tool", "call_tool"])
async def test_every_way_to_make_a_call_tells_its_id_and_can_be_cancelled(
    in_memory: Talk, how: str
) -> None:
    ids, started = list[Id](), asyncio.Event()
    async with in_memory(on_log=lambda entry: started.set()) as client:
        target: Any = getattr(client, how)
        args = ["tools/call", {"name": "wait"}] if how in ("request", "relay") else ["wait"]
        calling = asyncio.create_task(target(*args, on_request_id=ids.append))
        await started.wait()
        assert client.cancel_request(ids[0], "no longer needed")
        with pytest.raises(RequestCancelled, match="cancelled: no longer needed"):
            await calling
        assert (await client.call_tool("given_up")).text == "wait"
    assert in_memory.cancelled() == ids
    assert "no longer needed" in [
        one["params"].get("reason")
        for one in in_memory.tape.messages("client")
        if one.get("method") == "notifications/cancelled"
    ]


async def test_no_call_has_an_id_that_was_never_sent(in_memory: Talk) -> None:
    async with in_memory() as client:
        assert not client.cancel_request(12345)
        assert not client.cancel_request("x")


async def test_a_call_that_middleware_sees_tells_its_id_to_both(in_memory: Talk) -> None:
    seen = list[Id]()

    async def look(call: Any, call_next: Any) -> Any:
        result = await call_next(call)
        if call.name == "tools/call":
            seen.append(call.id)
        return result

    ids = list[Id]()
    async with in_memory(middleware=[look]) as client:
        await client.call_tool("add", {"a": 1, "b": 2}, on_request_id=ids.append)
    assert seen == ids and len(ids) == 1


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_call_is_cancelled_while_its_question_is_open(revision: str) -> None:
    asked, gave_up, ids = asyncio.Event(), asyncio.Event(), list[Id]()

    async def think(request: ElicitRequest) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            gave_up.set()

    server = Server("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Who?")).action

    async with pair(server, revision=revision, on_elicit=think) as client:
        calling = asyncio.create_task(client.call_tool("ask", on_request_id=ids.append))
        await asked.wait()
        assert client.cancel_request(ids[0])
        with pytest.raises(RequestCancelled):
            await calling
        await gave_up.wait()


async def test_a_call_has_a_new_id_for_each_round_and_each_of_them_cancels_it() -> None:
    ids, asked = list[Id](), asyncio.Queue[None]()
    question = {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "?", "requestedSchema": {"type": "object"}},
    }

    async def answer(request: ElicitRequest) -> bool:
        asked.put_nowait(None)
        if asked.qsize() < 2:
            return True
        await asyncio.Event().wait()
        return False

    async with handmade(on_elicit=answer) as (client, server):
        calling = asyncio.create_task(client.call_tool("x", on_request_id=ids.append))
        for _ in range(2):
            asks = {"resultType": "input_required", "inputRequests": {"a": question}}
            server.send(reply(await server.receive(), asks))
        while asked.qsize() < 2:
            await asyncio.sleep(0)
        assert len(set(ids)) == 2
        assert client.cancel_request(ids[0])
        with pytest.raises(RequestCancelled):
            await calling
        assert not client.cancel_request(ids[1])


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_call_that_became_a_task_is_cancelled_by_the_id_of_its_request(
    revision: str,
) -> None:
    server, ids, tape, ended = Server("slow"), list[Id](), Tape(), asyncio.Event()

    @server.tool(task="required")
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with pair(server, revision=revision, record=tape) as client:
        await client.list_tools()
        calling = asyncio.create_task(client.call_tool("slow", on_request_id=ids.append))
        while "tasks/get" not in tape.methods("client"):
            await asyncio.sleep(0.01)
        assert client.cancel_request(*ids)
        with pytest.raises(RequestCancelled):
            await calling
        await ended.wait()
    assert "tasks/cancel" in tape.methods("client")


async def test_a_task_that_is_cancelled_by_others_at_the_same_time_stays_cancelled() -> None:
    ids = list[Id]()
    async with handmade() as (client, server):
        calling = asyncio.create_task(client.call_tool("x", on_request_id=ids.append))
        await server.receive()
        assert client.cancel_request(*ids)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert calling.cancelled()


async def test_an_answer_that_arrives_first_does_not_leave_the_task_cancelled() -> None:
    ids = list[Id]()
    async with handmade() as (client, server):

        async def caller() -> str:
            try:
                await client.call_tool("x", on_request_id=ids.append)
            except DovetailError as error:
                await asyncio.sleep(0)  # would raise CancelledError
                return type(error).__name__
            return "answered"

        calling = asyncio.create_task(caller())
        asked = await server.receive()
        server.send(reply(asked, complete(content=[])))
        assert client.cancel_request(*ids)
        assert await calling == "RequestCancelled"
        assert not calling.cancelling()
