"""Backoff, bounded dicts, background tasks and sweeping."""

import asyncio
import gc

import pytest

from dovetail.aio import BoundedDict, LruDict, Sweeper, TaskSet, backoff


@pytest.mark.parametrize(("attempt", "most"), [(0, 0.5), (1, 1.0), (3, 4.0), (4, 8.0), (5000, 8.0)])
def test_backoff_doubles_with_jitter_up_to_a_bound(attempt: int, most: float) -> None:
    pauses = [backoff(attempt, 0.5, 8.0) for _ in range(200)]
    assert all(most / 2 <= pause <= most for pause in pauses)
    assert max(pauses) - min(pauses) > most / 10


def test_a_memo_starts_again_when_it_is_full() -> None:
    memo: BoundedDict[int, str] = BoundedDict(2)
    memo[1] = memo[2] = "a"
    memo[2] = "b"
    assert memo == {1: "a", 2: "b"}
    memo[3] = "c"
    assert memo == {3: "c"}


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept: LruDict[str, int] = LruDict(2)
    kept["a"], kept["b"] = 1, 2
    assert kept.get("a") == 1
    kept["c"] = 3
    assert kept.get("b") is None and "a" in kept and "c" in kept
    kept["a"] = 4
    kept["d"] = 5
    assert kept.get("c") is None and kept.get("a") == 4
    assert kept.pop("a") == 4 and kept.pop("a") is None
    assert len(kept) == 1


async def test_closing_cancels_background_tasks_and_waits_until_they_have_ended() -> None:
    tasks, ended = TaskSet(), list[str]()

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    await tasks.close()  # there is nothing to wait for
    for name in ("one", "two"):
        tasks.start(work(name))
    await asyncio.sleep(0)
    await tasks.close()
    assert sorted(ended) == ["one", "two"] and not tasks


async def test_background_tasks_are_held_until_they_are_done() -> None:
    tasks, done = TaskSet(), asyncio.Event()

    async def work() -> int:
        await done.wait()
        return 7

    task = tasks.start(work())
    assert tasks == {task}
    gc.collect()
    done.set()
    assert await task == 7
    await asyncio.sleep(0)
    assert not tasks


async def test_sweeping_goes_on_as_long_as_something_is_left() -> None:
    left = [3, 2, 1]
    sweeper = Sweeper(0.001, lambda: bool(left.pop() and left))
    sweeper.start()
    sweeper.start()
    for _ in range(200):
        await asyncio.sleep(0.002)
        if not left:
            break
    assert not left
    await asyncio.sleep(0.01)  # and does not pop from an empty list
    left.append(1)
    sweeper.start()
    sweeper.cancel()
    await asyncio.sleep(0.01)
    assert left == [1]
