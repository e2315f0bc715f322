"""One caller of a gateway does not use up what others need: questions, connections, tasks."""

import asyncio
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.errors import Overloaded, ProtocolError, ToolError
from dovetail.gateway.input_requests import QuestionLimits
from dovetail.gateway.pool import PooledClient, PoolKey
from dovetail.ports import Call, Principal

from .serving import (
    ANN,
    BOB,
    KEYS,
    answer_to,
    ask_order,
    asking_server,
    headers_of,
    post,
    recorded,
    served,
)
from .test_pool import BORROWED, Opened, a_call

# questions


@pytest.mark.parametrize("upstream", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("caller", ["2025-11-25", "2026-07-28"])
async def test_the_questions_to_one_caller_do_not_count_for_another(
    upstream: str, caller: str
) -> None:
    async with recorded(asking_server(upstream)) as (up, _):
        limits = Limits(questions=2, catalog_wait=30)
        source = {"mcpServers": {"up": {"url": up}}}
        async with served(source, auth=KEYS, limits=limits) as (_, url):

            async def order(key: str) -> str:
                options: dict[str, Any] = {"headers": headers_of(key), "revision": caller}
                async with Client(url, on_elicit=lambda _: {"value": 3}, **options) as client:
                    return (await client.call_tool("up__order")).text

            assert [await order(ANN), await order(ANN)] == ["3 tea", "3 tea"]
            with pytest.raises((ToolError, ProtocolError), match=r"Limits\.questions"):
                await order(ANN)
            assert await order(BOB) == "3 tea"


def test_callers_that_were_not_asked_for_a_minute_are_forgotten() -> None:
    limits = QuestionLimits(10)
    for name in ("ann", "bob", "eve"):
        limits.count(a_call_of(name), "elicitation/create")
    assert len(limits) == 3
    for one in limits._callers.values():
        one.recent[-1] -= 61
    limits.count(a_call_of("ann"), "elicitation/create")
    assert len(limits) == 1


# connections


def a_call_of(name: str) -> Call:
    call = a_call()
    call.caller.principal = Principal(name)
    return call


async def soon(waiting: "asyncio.Task[Any]") -> bool:
    """Return whether a task is done after everything that is ready has run."""
    for _ in range(10):
        await asyncio.sleep(0)
    return waiting.done()


async def test_one_caller_uses_at_most_half_of_the_connections() -> None:
    opened = Opened(upstream_connections=4)
    pool, first = opened.pool, a_call_of("ann")
    used = await pool.acquire(BORROWED, first)
    await pool.acquire(BORROWED, a_call_of("ann"))
    third = asyncio.ensure_future(pool.acquire(BORROWED, a_call_of("ann")))
    session = asyncio.ensure_future(pool.acquire(PoolKey("session", "1"), a_call_of("ann")))
    assert not await soon(third)
    assert not await soon(session)
    for _ in range(2):
        await pool.acquire(BORROWED, a_call_of("bob"))
    pool.release(used, first)
    assert await soon(third)
    assert not await soon(session)
    session.cancel()
    await pool.close()


async def test_a_caller_that_waits_for_its_own_calls_does_not_hold_up_others() -> None:
    opened = Opened(upstream_connections=2)
    pool, calls = opened.pool, {name: a_call_of(name) for name in ("ann", "bob")}
    used = {name: await pool.acquire(BORROWED, call) for name, call in calls.items()}
    waiting = [
        asyncio.ensure_future(pool.acquire(BORROWED, a_call_of(name)))
        for name in ("ann", "ann", "eve")
    ]
    assert not any([await soon(one) for one in waiting])
    pool.release(used["bob"], calls["bob"])
    assert [await soon(one) for one in waiting] == [False, False, True]
    pool.release(used["ann"], calls["ann"])
    assert [await soon(one) for one in waiting] == [True, False, True]
    waiting[1].cancel()
    await pool.close()


async def test_a_caller_that_waits_for_its_own_calls_is_not_woken_in_vain() -> None:
    opened = Opened(upstream_connections=2)
    pool, calls = opened.pool, {name: a_call_of(name) for name in ("ann", "bob")}
    used = {name: await pool.acquire(BORROWED, call) for name, call in calls.items()}
    waiting = [asyncio.ensure_future(pool.acquire(BORROWED, a_call_of("ann"))) for _ in range(2)]
    assert not any([await soon(one) for one in waiting])
    turns = list(pool._waiting)
    pool.release(used["bob"], calls["bob"])
    assert not any([await soon(one) for one in waiting])
    assert list(pool._waiting) == turns
    for one in waiting:
        one.cancel()
    await pool.close()


async def test_a_turn_that_a_caller_cannot_use_goes_to_the_next() -> None:
    opened = Opened(upstream_connections=2)
    pool = opened.pool
    others = [(call := a_call_of(name), await pool.acquire(BORROWED, call)) for name in ("x", "y")]
    waiting = [
        asyncio.ensure_future(pool.acquire(BORROWED, a_call_of(name)))
        for name in ("ann", "ann", "eve")
    ]
    assert not any([await soon(one) for one in waiting])
    for call, pooled in others:  # both wake a call of ann, but she may use one connection
        pool.release(pooled, call)
    assert [await soon(one) for one in waiting] == [True, False, True]
    waiting[1].cancel()
    await pool.close()


async def test_open_tasks_count_as_connections_that_a_caller_uses() -> None:
    opened = Opened(upstream_connections=4)
    pool = opened.pool

    async def start_task(name: str) -> PooledClient:
        call = a_call_of(name)
        pooled = await pool.acquire(BORROWED, call)
        pooled.tasks, pooled.ran_tasks = {"1": asyncio.get_running_loop().time() + 60}, True
        pool.release(pooled, call)
        return pooled

    for _ in range(2):
        await start_task("ann")
    with pytest.raises(Overloaded, match="open tasks"):
        await pool.acquire(BORROWED, a_call_of("ann"))
    for _ in range(2):
        await start_task("bob")
    await pool.close()


async def test_a_pool_that_is_closed_lets_nobody_wait() -> None:
    opened = Opened(upstream_connections=2)
    await opened.pool.acquire(BORROWED, a_call_of("ann"))
    waiting = [
        asyncio.ensure_future(opened.pool.acquire(BORROWED, a_call_of("ann"))) for _ in range(2)
    ]
    assert not await soon(waiting[0])
    waiting[0].cancel()
    await opened.pool.close()
    await asyncio.wait(waiting)
    assert "is closed" in str(waiting[1].exception())


async def test_the_held_calls_of_one_caller_do_not_keep_others_from_the_server() -> None:
    async with recorded(asking_server("2025-11-25")) as (up, _):
        source = {"mcpServers": {"up": {"url": up, "dovetail": {"share": "caller"}}}}
        limits = Limits(upstream_connections=4, catalog_wait=30)
        async with served(source, auth=KEYS, limits=limits, rates=None) as (_, url):
            question, state = await ask_order(url, ANN)
            await ask_order(url, ANN)
            third = asyncio.ensure_future(ask_order(url, ANN))
            await ask_order(url, BOB)
            await ask_order(url, BOB)
            assert not third.done()
            own = answer_to(question, state)
            _, reply = await asyncio.to_thread(post, url, "tools/call", own, headers_of(ANN))
            assert reply["result"]["content"][0]["text"] == "3 tea"
            await third
