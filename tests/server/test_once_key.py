"""`ctx.once_key`: the same token in every run of a call or task, and a different one elsewhere."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, Server
from dovetail.testing import pair


def make_server(keys: list[str], **options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool
    async def pay(ctx: Context) -> str:
        keys.append(ctx.once_key("charge"))
        await ctx.elicit("Pay?")
        keys.append(ctx.once_key("charge"))
        return ctx.once_key("refund")

    @server.tool
    async def pay_after_asking(ctx: Context) -> str:
        await ctx.elicit("Pay?")
        keys.append(ctx.once_key("charge"))
        return "paid"

    @server.tool(task="optional", resumable=True)
    async def pay_later(ctx: Context) -> str:
        keys.append(ctx.once_key("charge"))
        await ctx.elicit("Pay?")
        keys.append(ctx.once_key("charge"))
        return ctx.once_key("refund")

    @server.tool(task="optional", resumable=True)
    async def detach(ctx: Context) -> str:
        keys.append(ctx.once_key("charge"))
        await ctx.elicit("Pay?")
        await ctx.detach()
        keys.append(ctx.once_key("charge"))
        await ctx.elicit("Really?")
        keys.append(ctx.once_key("charge"))
        return ctx.once_key("refund")

    return server


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("revision", ["handshake", "stateless"])
@pytest.mark.parametrize("tool", ["pay", "pay_later", "detach"])
async def test_a_key_belongs_to_one_call_and_one_step(
    tool: str, revision: str, replay: bool
) -> None:
    keys: list[str] = []
    answered = {"on_elicit": lambda request: True}
    async with pair(make_server(keys), revision=revision, replay=replay, **answered) as client:
        refund = (await client.call_tool(tool)).text
        first = keys.copy()
        other_refund = (await client.call_tool(tool)).text
    assert len(set(first)) == 1 and len(first) >= 2
    assert len(set(keys)) == 2, "another call has another key"
    assert len({refund, other_refund, *keys}) == 4, "another step has another key"


async def test_a_client_that_answers_twice_does_not_get_two_keys() -> None:
    keys: list[str] = []
    answered = {"on_elicit": lambda request: True}
    async with pair(make_server(keys), revision="stateless", replay=True, **answered) as client:
        call: dict[str, Any] = {"name": "pay_after_asking", "arguments": {}}
        asked = await client.request("tools/call", call, manual=True)
        answers = {key: {"action": "accept", "content": {}} for key in asked.input_requests}
        call |= {"inputResponses": answers, "requestState": asked.request_state}
        for _ in range(2):
            await client.request("tools/call", call)
    assert len(keys) == 2 and len(set(keys)) == 1


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_resumed_task_keeps_its_key(tmp_path: Path, revision: str) -> None:
    keys: list[str] = []

    async def begin() -> str:
        server = make_server(keys, tasks=tmp_path / "tasks.db")
        async with Client(server, revision=revision, on_elicit=lambda request: None) as client:
            task = await client.start_tool("pay_later", manual=True)
            while (await client.request("tasks/get", {"taskId": task.id})).status == "working":
                await asyncio.sleep(0.01)
            return task.id

    async def finish(id: str) -> None:
        server = make_server(keys, tasks=tmp_path / "tasks.db")
        async with Client(server, revision=revision, on_elicit=lambda request: True) as client:
            await client.task(id).result()

    id = asyncio.run(begin())
    asyncio.run(finish(id))
    assert len(keys) == 3 and len(set(keys)) == 1
