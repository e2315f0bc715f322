"""Tasks that a client runs for its server: questions whose answers are fetched later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail import Client
from dovetail.limits import Limits
from dovetail.protocol.tasks import RELATED_TASK
from dovetail.testing import Bare
from dovetail.transports import memory
from tests.behaviour.handmade import OFFERED, handmade, reply
from tests.client.test_callbacks import form

CORE = "2025-11-25"


def as_task(message: str, **task: Any) -> dict[str, Any]:
    question = form(message)
    return {**question["params"], "task": task}


async def begin(server: Bare, message: str = "Who?", **task: Any) -> dict[str, Any]:
    made = await server.ask("elicitation/create", as_task(message, **task))
    shown: dict[str, Any] = made["result"]["task"]
    return shown


async def look(server: Bare, id: str, method: str = "tasks/get") -> dict[str, Any]:
    answer: dict[str, Any] = await server.ask(method, {"taskId": id})
    return answer


@asynccontextmanager
async def greeted(revision: str, **options: Any) -> AsyncIterator[tuple[Any, Client]]:
    """What a client declares in a revision of the handshake era."""
    ours, theirs = memory.pair()
    server, client = Bare(theirs), Client(ours, revision=revision, **options)
    opening = asyncio.create_task(client.connect())
    asked = await server.receive()
    info = {"name": "handmade", "version": "0"}
    server.send(
        reply(asked, {"protocolVersion": revision, "capabilities": OFFERED, "serverInfo": info})
    )
    await opening
    try:
        yield asked["params"]["capabilities"], client
    finally:
        await client.close()


@pytest.mark.requirement("tasks-host-declared")
async def test_what_can_be_asked_as_a_task_is_declared_where_the_revision_has_tasks() -> None:
    async with greeted(CORE, on_elicit=lambda _: True) as (capabilities, _):
        assert capabilities["tasks"] == {
            "list": {},
            "cancel": {},
            "requests": {"elicitation": {"create": {}}},
        }
    async with greeted(CORE, on_sample=lambda _: "hm") as (capabilities, _):
        assert capabilities["tasks"]["requests"] == {"sampling": {"createMessage": {}}}
    async with greeted(CORE, roots=[]) as (capabilities, _):
        assert "tasks" not in capabilities
    async with greeted("2025-06-18", on_elicit=lambda _: True) as (capabilities, _):
        assert "tasks" not in capabilities


@pytest.mark.requirement("tasks-host-created", "tasks-host-result", "tasks-host-related")
async def test_a_question_as_a_task_is_answered_at_once_and_its_answer_is_fetched_later() -> None:
    answered = asyncio.Event()

    async def think(request: Any) -> Any:
        await answered.wait()
        return {"echo": request.message}

    async with handmade(CORE, on_elicit=think) as (_, server):
        shown = await begin(server, ttl=60_000)
        assert (shown["status"], shown["ttl"]) == ("working", 60_000)
        assert (await look(server, shown["taskId"]))["result"]["status"] == "working"
        server.send(
            {
                "jsonrpc": "2.0",
                "id": "wait",
                "method": "tasks/result",
                "params": {"taskId": shown["taskId"]},
            }
        )
        answered.set()
        came = [await server.receive(), await server.receive()]
        told = next(one for one in came if one.get("method") == "notifications/tasks/status")
        assert told["params"]["status"] == "completed"
        result = next(one for one in came if one.get("id") == "wait")["result"]
        assert result["content"] == {"echo": "Who?"}
        assert result["_meta"] == {RELATED_TASK: {"taskId": shown["taskId"]}}
        assert (await look(server, shown["taskId"]))["result"]["status"] == "completed"
        assert (await look(server, shown["taskId"], "tasks/result"))["result"] == result


async def test_an_answer_that_fails_is_the_tasks_failure() -> None:
    async with handmade(CORE, on_sample=lambda _: None) as (_, server):
        message = {"role": "user", "content": {"type": "text", "text": "hi"}}
        params = {"messages": [message], "maxTokens": 5, "task": {}}
        shown = (await server.ask("sampling/createMessage", params))["result"]["task"]
        assert (await look(server, shown["taskId"], "tasks/result"))["error"]["code"] == -1
        state = (await look(server, shown["taskId"]))["result"]
        assert (state["status"], state["statusMessage"]) == (
            "failed",
            "User rejected sampling request",
        )


@pytest.mark.requirement("tasks-host-cancel", "tasks-host-cancel-over")
async def test_a_task_can_be_cancelled_once() -> None:
    cancelled = asyncio.Event()

    async def never(request: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with handmade(CORE, on_elicit=never) as (_, server):
        id = (await begin(server))["taskId"]
        assert (await look(server, id))["result"]["status"] == "working"
        assert (await look(server, id, "tasks/cancel"))["result"]["status"] == "cancelled"
        await cancelled.wait()
        assert (await look(server, id))["result"]["status"] == "cancelled"
        assert (await look(server, id, "tasks/result"))["error"]["code"] == -32602
        again = (await look(server, id, "tasks/cancel"))["error"]
        assert again["code"] == -32602 and "it is already cancelled" in again["message"]


async def test_an_answer_that_is_given_up_by_itself_is_a_task_that_is_cancelled() -> None:
    async def give_up(request: Any) -> Any:
        raise asyncio.CancelledError

    async with handmade(CORE, on_elicit=give_up) as (_, server):
        id = (await begin(server))["taskId"]
        told = await server.receive()
        assert (told["method"], told["params"]["status"]) == (
            "notifications/tasks/status",
            "cancelled",
        )
        assert (await look(server, id))["result"]["status"] == "cancelled"
        assert (await look(server, id, "tasks/result"))["error"]["code"] == -32602


async def test_a_list_goes_on_after_a_task_that_is_not_there_any_more() -> None:
    async with handmade(CORE, on_elicit=lambda request: {"echo": "x"}) as (_, server):
        made = [
            (await begin(server, **({"ttl": 3000} if number == 99 else {})))["taskId"]
            for number in range(101)
        ]
        first = (await server.ask("tasks/list"))["result"]
        while first["tasks"][-1]["taskId"] == made[99]:
            assert first["nextCursor"]
            cursor, first = first["nextCursor"], (await server.ask("tasks/list"))["result"]
        rest = (await server.ask("tasks/list", {"cursor": cursor}))["result"]
        assert [one["taskId"] for one in rest["tasks"]] == made[100:]


async def test_tasks_are_listed_page_by_page() -> None:
    async with handmade(CORE, on_elicit=lambda request: {"echo": "x"}) as (_, server):
        made = [(await begin(server))["taskId"] for _ in range(150)]
        first = (await server.ask("tasks/list"))["result"]
        second = (await server.ask("tasks/list", {"cursor": first["nextCursor"]}))["result"]
        assert [one["taskId"] for one in first["tasks"] + second["tasks"]] == made
        assert "nextCursor" not in second
        for nonsense in ("nonsense", "-1", "\u0663", "9" * 5000):
            assert (await server.ask("tasks/list", {"cursor": nonsense}))["error"]["code"] == -32602


@pytest.mark.requirement("tasks-host-ttl")
async def test_tasks_are_bounded_in_number_and_age() -> None:
    async with handmade(
        CORE, on_elicit=lambda request: {"echo": "x"}, limits=Limits(tasks_each=2)
    ) as (_, server):
        await begin(server)
        await begin(server)
        refused = await server.ask("elicitation/create", as_task("One more?"))
        assert refused["error"]["code"] == -31001
    async with handmade(
        CORE, on_elicit=lambda request: {"echo": "x"}, limits=Limits(tasks_each=1)
    ) as (_, server):
        first = await begin(server, ttl=30)
        while "error" not in await look(server, first["taskId"]):
            await asyncio.sleep(0.01)
        await begin(server)
    async with handmade(CORE, on_elicit=lambda _: None, limits=Limits(task_life_max=5)) as (
        _,
        server,
    ):
        assert (await begin(server, ttl=10**9))["ttl"] == 5000
        assert (await begin(server, ttl="soon"))["ttl"] == 3_600_000


@pytest.mark.requirement("tasks-host-unknown")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_a_task_that_is_not_there_is_refused(method: str) -> None:
    async with handmade(CORE, on_elicit=lambda _: None) as (_, server):
        assert (await look(server, "nonsense", method))["error"]["code"] == -32602


async def test_a_client_that_cannot_be_asked_has_no_tasks() -> None:
    async with handmade(CORE) as (_, server):
        assert (await look(server, "x"))["error"]["code"] == -32601


@pytest.mark.requirement("tasks-host-ignored")
async def test_elsewhere_the_wish_for_a_task_is_ignored() -> None:
    async with handmade("2025-06-18", on_elicit=lambda request: {"echo": "x"}) as (_, server):
        answer = await server.ask("elicitation/create", as_task("Who?"))
        assert answer["result"]["content"] == {"echo": "x"}
