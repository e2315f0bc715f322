"""Connections to a server: who shares them, how many there are, and when they are closed."""

import asyncio

import pytest

from dovetail import Client, Limits, Server
from dovetail.errors import Overloaded
from dovetail.gateway import pool as pools
from dovetail.gateway.pool import SHARED, ActiveCalls, ConnectionPool, PooledClient, PoolKey
from dovetail.ports import Call, Caller
from dovetail.protocol.methods import METHODS
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import STATELESS

BORROWED = PoolKey("call")


def a_call() -> Call:
    return Call(1, METHODS["tools/call"], CallToolParams(name="x"), Caller(STATELESS[-1]), None)


class Opened:
    """A pool, and the clients that it opened."""

    def __init__(self, **limits: float) -> None:
        self.clients: list[Client] = []
        self.pool = ConnectionPool(self._open, Limits(**limits), "weather")  # type: ignore[arg-type]

    def _open(self, key: PoolKey, call: Call) -> PooledClient:
        self.clients.append(Client(Server("s")))
        return PooledClient(self.clients[-1], key, ActiveCalls(key))


@pytest.fixture
def opened() -> Opened:
    return Opened(upstream_connections=2)


async def test_callers_with_the_same_key_share_a_connection(opened: Opened) -> None:
    ada, bob = PoolKey("user", "ada"), PoolKey("user", "bob")
    first = await opened.pool.acquire(ada, a_call())
    assert await opened.pool.acquire(ada, a_call()) is first
    assert await opened.pool.acquire(bob, a_call()) is not first


async def test_a_user_whose_id_is_that_of_a_session_does_not_share_its_connection(
    opened: Opened,
) -> None:
    first = await opened.pool.acquire(PoolKey("user", "1"), a_call())
    assert await opened.pool.acquire(PoolKey("session", "1"), a_call()) is not first


async def test_a_borrowed_connection_is_used_by_one_call_at_a_time(opened: Opened) -> None:
    one, other = a_call(), a_call()
    first = await opened.pool.acquire(BORROWED, one)
    second = await opened.pool.acquire(BORROWED, other)
    assert second is not first
    opened.pool.release(first, one)
    assert await opened.pool.acquire(BORROWED, one) is first
    assert len(opened.clients) == 2


async def test_a_connection_that_declares_something_else_is_not_borrowed(opened: Opened) -> None:
    call = a_call()
    first = await opened.pool.acquire(BORROWED, call)
    opened.pool.release(first, call)
    other = await opened.pool.acquire(PoolKey("call", declares=b'{"roots":{}}'), call)
    assert other is not first


async def test_a_caller_waits_if_all_connections_are_in_use(opened: Opened) -> None:
    calls = [a_call(), a_call(), a_call()]
    first = await opened.pool.acquire(BORROWED, calls[0])
    await opened.pool.acquire(BORROWED, calls[1])
    waiting = asyncio.ensure_future(opened.pool.acquire(BORROWED, calls[2]))
    await asyncio.sleep(0)
    assert not waiting.done()
    opened.pool.release(first, calls[0])
    assert await waiting is first


async def test_an_unused_connection_makes_room_for_another_caller(opened: Opened) -> None:
    call = a_call()
    first = await opened.pool.acquire(PoolKey("user", "ada"), call)
    await opened.pool.acquire(PoolKey("user", "bob"), a_call())
    opened.pool.release(first, call)
    await opened.pool.acquire(PoolKey("user", "eve"), a_call())
    assert len(opened.pool) == 2
    await asyncio.sleep(0)
    assert first.client.state == "closed"


async def test_a_caller_that_is_cancelled_while_it_waits_passes_its_turn_on(
    opened: Opened,
) -> None:
    calls = [a_call() for _ in range(4)]
    first = await opened.pool.acquire(BORROWED, calls[0])
    await opened.pool.acquire(BORROWED, calls[1])
    impatient = asyncio.ensure_future(opened.pool.acquire(BORROWED, calls[2]))
    patient = asyncio.ensure_future(opened.pool.acquire(BORROWED, calls[3]))
    await asyncio.sleep(0)
    opened.pool.release(first, calls[0])  # it is the impatient one's turn
    impatient.cancel()
    assert await asyncio.wait_for(patient, 5) is first


async def test_too_many_waiting_callers_are_refused(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MAX_WAITING", 0)
    for _ in range(2):
        await opened.pool.acquire(BORROWED, a_call())
    with pytest.raises(Overloaded, match=r"All 2 connections to weather are in use"):
        await opened.pool.acquire(BORROWED, a_call())


async def test_a_connection_that_is_idle_for_long_is_closed() -> None:
    opened, call = Opened(upstream_idle=0.05), a_call()
    first = await opened.pool.acquire(SHARED, call)
    opened.pool.release(first, call)
    async with asyncio.timeout(60):
        while len(opened.pool):
            await asyncio.sleep(0.02)
    assert await opened.pool.acquire(SHARED, call) is not first
    await opened.pool.close()


async def test_the_connections_of_a_session_can_be_closed(opened: Opened) -> None:
    user, session = PoolKey("user", "1"), PoolKey("session", "1")
    kept = await opened.pool.acquire(user, a_call())
    closed = await opened.pool.acquire(session, a_call())
    opened.pool.discard_session("1")
    assert await opened.pool.acquire(user, a_call()) is kept
    assert await opened.pool.acquire(session, a_call()) is not closed


# questions of stateless servers


async def test_a_connection_that_asked_is_kept_for_the_answer() -> None:
    opened, calls = Opened(upstream_idle=0.05, upstream_connections=3), [a_call(), a_call()]
    asking = await opened.pool.acquire(BORROWED, calls[0])
    other = await opened.pool.acquire(BORROWED, calls[1])
    assert asking.number != other.number
    opened.pool.release(asking, calls[0], asked=True)
    opened.pool.release(other, calls[1])
    assert await opened.pool.acquire(BORROWED, calls[1]) is other  # not the one that asked
    assert await opened.pool.acquire(BORROWED, calls[0], asking.number) is asking
    opened.pool.release(asking, calls[0], asked=True)
    opened.pool.release(other, calls[1])
    async with asyncio.timeout(60):
        while len(opened.pool) > 1:
            await asyncio.sleep(0.02)
    assert await opened.pool.acquire(BORROWED, calls[0], asking.number) is asking
    await opened.pool.close()


async def test_a_connection_that_asked_is_closed_if_its_place_is_needed(opened: Opened) -> None:
    calls = [a_call(), a_call()]
    pooled = [await opened.pool.acquire(BORROWED, call) for call in calls]
    opened.pool.release(pooled[0], calls[0], asked=True)
    opened.pool.release(pooled[1], calls[1])
    users = [await opened.pool.acquire(PoolKey("user", "ada"), a_call())]
    assert await opened.pool.acquire(BORROWED, calls[0], pooled[0].number) is pooled[0]
    opened.pool.release(pooled[0], calls[0], asked=True)
    users.append(await opened.pool.acquire(PoolKey("user", "bob"), a_call()))
    assert {*opened.pool} == {*users}


async def test_a_connection_that_asked_is_not_kept_for_ever() -> None:
    opened, call = Opened(upstream_idle=0.05, parked_time=0.05), a_call()
    first = await opened.pool.acquire(BORROWED, call)
    opened.pool.release(first, call, asked=True)
    async with asyncio.timeout(60):
        while len(opened.pool):
            await asyncio.sleep(0.02)
    assert await opened.pool.acquire(BORROWED, call, first.number) is not first
    await opened.pool.close()


async def test_a_connection_with_open_tasks_is_neither_lent_nor_closed_before_they_expire() -> None:
    opened = Opened(upstream_connections=2, upstream_idle=0.1)
    now = asyncio.get_running_loop().time()
    call = a_call()
    held = await opened.pool.acquire(BORROWED, call)
    held.tasks["1"], held.ran_tasks = now + 3600, True
    opened.pool.release(held, call)
    other = await opened.pool.acquire(BORROWED, call)
    assert other is not held
    opened.pool.release(other, call)
    third = await opened.pool.acquire(PoolKey("user", "ada"), call)  # in the place of the other one
    assert set(opened.pool) == {held, third}
    opened.pool.release(third, call)
    while third in set(opened.pool):
        await asyncio.sleep(0.05)
    assert set(opened.pool) == {held}
    held.tasks["1"] = now
    while set(opened.pool):
        await asyncio.sleep(0.05)


async def test_a_session_that_ends_keeps_its_connections_with_tasks_only_if_told_so(
    opened: Opened,
) -> None:
    call, key = a_call(), PoolKey("session", "1")
    held = await opened.pool.acquire(key, call)
    held.tasks["1"] = asyncio.get_running_loop().time() + 3600
    opened.pool.release(held, call)
    opened.pool.discard_session("1", keep_tasks=True)
    assert set(opened.pool) == {held}
    opened.pool.discard_session("1")
    assert not set(opened.pool)
