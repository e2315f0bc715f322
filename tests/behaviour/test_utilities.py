"""Progress, cancellation, logging, ping, deadlines."""

import asyncio
import time

import pytest

from dovetail import Context, DovetailError, Limits, Server
from dovetail.errors import TimedOut
from dovetail.protocol.lifecycle import ProgressParams
from dovetail.protocol.utilities import LogParams
from tests.behaviour.conftest import Talk


@pytest.mark.requirement("progress-rate")
@pytest.mark.requirement("progress")
async def test_progress_rises_and_its_last_update_always_arrives(talk: Talk) -> None:
    updates: list[ProgressParams] = []
    async with talk() as client:
        await client.call_tool("steps", {"count": 500}, on_progress=updates.append)
    values = [update.progress for update in updates]
    assert values == sorted(set(values))
    assert values[-1] == 500
    assert len(values) < 100, "a flood is coalesced"
    assert updates[-1].total == 500
    assert (updates[-1].message == "step 500") == talk.at_least("2025-03-26")


async def test_progress_rises_though_the_loop_is_busy(in_memory: Talk) -> None:
    server = Server("busy", limits=Limits(progress_interval=0.01))

    @server.tool
    async def work(ctx: Context) -> None:
        ctx.progress(1)
        ctx.progress(2)  # held back for 0.01 s
        time.sleep(0.02)
        ctx.progress(3)
        await asyncio.sleep(0.02)

    async with in_memory(server) as client:
        await client.call_tool("work", on_progress=lambda update: None)
    sent = in_memory.tape.messages("server")
    values = [one["params"]["progress"] for one in sent if "progress" in one.get("params", {})]
    assert values == sorted(values) and values[-1] == 3


@pytest.mark.requirement("progress-token")
async def test_nobody_is_told_of_progress_who_did_not_ask(in_memory: Talk) -> None:
    async with in_memory() as client:
        await client.call_tool("steps", {"count": 3})
    assert "notifications/progress" not in in_memory.tape.methods("server")


@pytest.mark.requirement("cancel-stdio", "http-disconnect-cancels", "http-cancelled-silent")
@pytest.mark.requirement("cancellation")
@pytest.mark.parametrize("tool", ["wait", "block"])
async def test_cancelling_the_task_cancels_the_call_at_the_server(talk: Talk, tool: str) -> None:
    started = asyncio.Event()
    async with talk(on_log=lambda entry: started.set()) as client:
        task = asyncio.create_task(client.call_tool(tool))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.call_tool("given_up")).text == tool
    sent = talk.tape.messages("client")
    called = next(
        one["id"]
        for one in sent
        if one.get("method") == "tools/call" and one["params"]["name"] == tool
    )
    assert talk.cancelled() == [called]
    assert called not in [one.get("id") for one in talk.tape.messages("server")], (
        "a cancelled call is not answered"
    )


@pytest.mark.requirement("timeout-per-request")
@pytest.mark.requirement("timeout")
async def test_a_request_that_takes_too_long_is_given_up_and_cancelled(talk: Talk) -> None:
    async with talk() as client:
        with pytest.raises(TimedOut, match=r"tools/call: no answer within 0.1 s"):
            await client.call_tool("wait", timeout=0.1)
        assert (await client.call_tool("given_up")).text == "wait"
    assert len(talk.cancelled()) == 1


@pytest.mark.requirement("logging")
async def test_log_messages_of_every_level_arrive(talk: Talk) -> None:
    heard: list[LogParams] = []
    async with talk(on_log=heard.append) as client:
        await client.call_tool("talk")
    levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    assert [(entry.level, entry.data, entry.logger) for entry in heard] == [
        (one, f"a {one}", "talker") for one in levels
    ]


@pytest.mark.requirement("logging-level")
async def test_only_levels_asked_for_arrive(talk: Talk) -> None:
    heard: list[str] = []
    async with talk(on_log=lambda entry: heard.append(entry.level)) as client:
        await client.set_log_level("error")
        await client.call_tool("talk")
    assert heard == ["error", "critical", "alert", "emergency"]


@pytest.mark.requirement("logging-opt-in")
async def test_a_stateless_request_without_a_level_is_not_logged_to() -> None:
    talk = Talk("memory", "2026-07-28")
    async with talk() as client:
        await client.call_tool("talk")
    assert "notifications/message" not in talk.tape.methods("server")


@pytest.mark.requirement("ping")
async def test_a_ping_is_answered(talk: Talk) -> None:
    async with talk() as client:
        await client.ping()
    assert ("server/discover" if talk.stateless else "ping") in talk.tape.methods("client")


@pytest.mark.requirement("ping")
async def test_many_calls_at_once_get_each_its_own_answer(talk: Talk) -> None:
    async with talk() as client:
        results = await asyncio.gather(
            *(client.call_tool("add", {"a": n, "b": n}) for n in range(200))
        )
    assert [result.text for result in results] == [str(2 * n) for n in range(200)]


async def test_a_client_that_was_closed_says_so(in_memory: Talk) -> None:
    async with in_memory() as client:
        pass
    with pytest.raises(DovetailError, match="closed"):
        await client.ping()
    await client.close()
