"""Rounds: what a client does when a server answers a request with questions."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, Server
from dovetail.errors import TimedOut
from dovetail.protocol.lifecycle import InputRequiredResult
from tests.behaviour.handmade import complete, handmade, reply
from tests.client.test_callbacks import form


def asks(request: Any, **fields: Any) -> dict[str, Any]:
    return reply(request, {"resultType": "input_required", **fields})


async def test_by_hand_each_round_is_the_callers_own() -> None:
    async with handmade(on_elicit=lambda request: pytest.fail("nobody is to be asked")) as (
        client,
        server,
    ):
        call: dict[str, Any] = {"name": "x", "arguments": {}}
        asking = asyncio.create_task(client.request("tools/call", call, manual=True))
        first = await server.receive()
        server.send(asks(first, inputRequests={"q": form("Who?")}, requestState="s1"))
        round_ = await asking
        assert isinstance(round_, InputRequiredResult)
        assert (list(round_.input_requests or {}), round_.request_state) == (["q"], "s1")
        answers = {"q": {"action": "accept", "content": {"name": "Ann"}}}
        again = asyncio.create_task(
            client.request(
                "tools/call", {**call, "inputResponses": answers, "requestState": "s1"}, manual=True
            )
        )
        second = await server.receive()
        assert second["id"] != first["id"]
        assert (second["params"]["inputResponses"], second["params"]["requestState"]) == (
            answers,
            "s1",
        )
        server.send(reply(second, complete(content=[])))
        assert (await again).content == []


async def test_a_server_that_only_wants_to_be_asked_again_is_asked_again_and_not_at_once() -> None:
    loop = asyncio.get_running_loop()
    async with handmade() as (client, server):
        calling = asyncio.create_task(client.call_tool("x"))
        times = []
        for number in range(4):
            request = await server.receive()
            times.append(loop.time())
            assert "inputResponses" not in request["params"]
            assert request["params"].get("requestState") == (f"s{number}" if number else None)
            last = number == 3
            server.send(
                reply(request, complete(content=[]))
                if last
                else asks(request, requestState=f"s{number + 1}")
            )
        await calling
        pauses = [after - before for before, after in pairwise(times)]
        assert pauses[-1] > pauses[0] > 0.02, "each pause is longer than the one before"


async def test_a_root_that_is_gone_is_dropped_and_the_server_is_told(tmp_path: Path) -> None:
    stays, goes = tmp_path / "stays", tmp_path / "goes"
    stays.mkdir()
    goes.mkdir()
    async with handmade("2025-11-25", roots=[stays, goes]) as (client, server):
        goes.rmdir()
        listing = asyncio.create_task(client.list_tools())
        told = await server.receive()
        assert told["method"] == "notifications/roots/list_changed"
        request = await server.receive()
        roots = (await server.ask("roots/list"))["result"]["roots"]
        assert [root["uri"] for root in roots] == [stays.as_uri()]
        server.send(reply(request, {"tools": []}))
        await listing


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_time_that_a_person_takes_to_answer_is_not_the_servers(revision: str) -> None:
    server = Server("patient")

    @server.tool
    async def ask(ctx: Context, slow: float = 0.0) -> str:
        answer = await ctx.elicit("Take your time")
        await asyncio.sleep(slow)
        return answer.action

    async def think(request: Any) -> dict[str, Any]:
        await asyncio.sleep(1.5)
        return {}

    async with Client(server, revision=revision, on_elicit=think) as client:
        assert (await client.call_tool("ask", timeout=1)).data == "accept"
        with pytest.raises(TimedOut):
            await client.call_tool("ask", {"slow": 60}, timeout=1)
