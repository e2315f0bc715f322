"""What every `Store` of logins does. A module imports these tests, and has a fixture `store`."""

import asyncio
import threading

import pytest

from dovetail.auth.client import store as stores
from dovetail.auth.client.store import Store
from dovetail.errors import TimedOut

HERE, THERE = "https://here.example/mcp", "https://there.example/mcp"


async def test_what_was_saved_is_found_and_what_was_deleted_is_not(store: Store) -> None:
    assert await store.load(HERE) is None and await store.keys() == []
    await store.save(HERE, b"one")
    await store.save(THERE, b"\x00\xff")
    await store.save(HERE, b"two")
    assert (await store.load(HERE), await store.load(THERE)) == (b"two", b"\x00\xff")
    assert await store.keys() == [HERE, THERE]
    await store.delete(HERE)
    await store.delete(HERE)
    assert await store.load(HERE) is None and await store.keys() == [THERE]


async def test_a_lock_is_held_by_one_task_at_a_time(store: Store) -> None:
    inside = most = 0

    async def work() -> None:
        nonlocal inside, most
        async with store.lock(HERE):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(5)))
    assert most == 1


async def test_a_lock_is_held_among_loops(store: Store) -> None:
    order: list[str] = []
    started = threading.Event()

    async def elsewhere() -> None:
        started.set()
        async with store.lock(HERE):
            order.append("elsewhere")

    async with store.lock(HERE):
        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(started.wait)
        await asyncio.sleep(0.05)
        order.append("here")
    await asyncio.to_thread(thread.join)
    assert order == ["here", "elsewhere"]


async def test_locks_of_different_names_do_not_wait_for_each_other(store: Store) -> None:
    async with store.lock(HERE), store.lock(THERE):
        pass


async def test_who_waits_for_a_lock_can_be_cancelled_and_leaves_it_alone(store: Store) -> None:
    async with store.lock(HERE):
        waiting = asyncio.create_task(store.lock(HERE).__aenter__())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with store.lock(HERE):
        pass


async def test_what_fails_under_a_lock_is_passed_on_as_it_is_and_frees_it(store: Store) -> None:
    with pytest.raises(ConnectionResetError):
        async with store.lock(HERE):
            raise ConnectionResetError
    async with store.lock(HERE):
        pass


async def test_a_lock_that_is_never_free_is_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "LOCK_TIMEOUT_SECONDS", 0.05)
    async with store.lock(HERE):
        with pytest.raises(TimedOut, match="another program has been logging in"):
            async with store.lock(HERE):
                pass
