"""The contract of `TaskStore`: in memory, in a file and in Redis.

What only one of them promises is tested in `tests/extensions/test_task_store.py` and in
`test_task_store.py`.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import Overloaded, TooLarge
from dovetail.extensions.tasks.sqlite import LARGE_BYTES, SqliteStore
from dovetail.extensions.tasks.store import (
    Claim,
    InMemoryTaskStore,
    Lease,
    TaskMessage,
    TaskOrigin,
    TaskRecord,
    TaskStore,
)
from dovetail.limits import Limits
from tests.system import needs_redis

from .conftest import PROGRAMS, StartRedis, backends_of

MakeStore = Callable[[], TaskStore]
SHARED = ["sqlite", *(pytest.param(program, marks=needs_redis) for program in PROGRAMS)]
"""The stores that several processes share: a file, and one for each server program."""


@pytest.fixture(params=["memory", *SHARED])
def make_store(
    request: pytest.FixtureRequest, tmp_path: Path, start_redis: StartRedis
) -> MakeStore:
    """A function that returns the store of one server in another process, if there may be any."""
    if request.param in PROGRAMS:
        make_backend = backends_of(start_redis(request.param))
        return lambda: make_backend().tasks()
    memory = InMemoryTaskStore()
    return lambda: memory if request.param == "memory" else SqliteStore(tmp_path / "tasks.db")


@pytest.fixture
def store(make_store: MakeStore) -> TaskStore:
    return make_store()


def record(id: str, ttl: float | None = 60.0, **fields: Any) -> TaskRecord:
    now = time.time()
    about = {"created": now, "tool": "t", "params": b"{}", "origin": TaskOrigin("2026-07-28")}
    return TaskRecord(id=id, updated=now, ttl=ttl, **(about | fields))


def leased(lease: Lease | None) -> Lease:
    assert lease is not None
    return lease


def claimed(claim: Claim | None) -> Claim:
    assert claim is not None
    return claim


async def test_what_was_put_in_is_given_back_as_it_was(store: TaskStore) -> None:
    one = record(
        "one",
        owner="ada",
        session="s",
        resumable=True,
        status="input_required",
        message="waiting",
        origin=TaskOrigin(
            "2025-11-25", {"elicitation": {}}, {"name": "c", "version": "1"}, {"id": "ada"}, 3
        ),
        questions={"key": ("elicitation/create", b"{}")},
        answers={"before": b"1"},
        once_results={"paid": b"null"},
    )
    lease = leased(await store.add(one))
    assert await store.get("one") == one
    one.status, one.result, one.questions = "completed", b"{}", {}
    await store.put(one, lease)
    assert await store.get("one") == one
    assert await store.get("two") is None
    await store.close()


async def test_a_record_is_nobodys_to_change_but_by_putting_it(store: TaskStore) -> None:
    one = record("one")
    await store.add(one)
    one.status = "failed"
    found = await store.get("one")
    assert found is not None and found.status == "working"
    await store.close()


async def test_what_is_over_stays_as_it_is(store: TaskStore) -> None:
    one = record("one")
    lease = leased(await store.add(one))
    one.status = "cancelled"
    assert await store.put(one, lease)
    one.status = "completed"
    assert not await store.put(one, lease), "and whoever comes late is told"
    found = await store.get("one")
    assert found is not None and found.status == "cancelled"
    assert not await store.put(record("never added"), Lease("never added", 1))
    assert await store.get("never added") is None
    await store.close()


async def test_what_has_expired_is_not_given_back_and_goes(store: TaskStore) -> None:
    await store.add(record("old", created=time.time() - 100))
    await store.add(record("young"))
    await store.add(record("eternal", ttl=None, created=0.0))
    assert await store.get("old") is None
    assert [one.id for _, one in await store.list_page("", "", 0, 10)] == ["young", "eternal"]
    await store.delete_expired()
    await store.remove("eternal")
    await store.remove("eternal")
    assert [one.id for _, one in await store.list_page("", "", 0, 10)] == ["young"]
    assert await store.claim_orphans(include_own=False) == []
    await store.close()


async def test_a_page_has_the_tasks_of_one_owner_and_session_in_order(store: TaskStore) -> None:
    for number in range(6):
        await store.add(
            record(f"{number}", owner="ada" if number % 2 else "", session=f"{number // 3}")
        )
    page = await store.list_page("ada", "", 0, 2)
    assert [one.id for _, one in page] == ["1", "3"]
    assert [one.id for _, one in await store.list_page("ada", "", page[-1][0], 2)] == ["5"]
    assert [one.id for _, one in await store.list_page("", "0", 0, 9)] == ["0", "2"]
    await store.close()


async def test_more_than_there_may_be_are_refused_until_some_have_gone(store: TaskStore) -> None:
    store.bind(Limits(tasks=3))
    await store.add(record("1", created=time.time() - 100))
    await store.add(record("2"))
    await store.add(record("3"))
    await store.add(record("4"))  # which makes room, since one has expired
    with pytest.raises(Overloaded, match="3 tasks, which is the limit"):
        await store.add(record("5"))
    await store.remove("4")
    await store.add(record("5"))
    await store.close()


@pytest.mark.parametrize(
    "whose",
    [
        {"owner": "ada"},
        {"session": "s"},
        {"owner": "ada", "session": "s"},
        {"network": "192.0.2.1"},
        {"network": "192.0.2.1", "session": "s"},
    ],
    ids=str,
)
async def test_nobody_has_more_than_each_may_have(store: TaskStore, whose: dict[str, str]) -> None:
    store.bind(Limits(tasks_each=2))
    await store.add(record("1", created=time.time() - 100, **whose))
    await store.add(record("2", **whose))
    await store.add(record("3", **whose))  # which makes room, since one has expired
    with pytest.raises(Overloaded, match="You already have 2 tasks"):
        await store.add(record("4", **whose))
    for number in range(3):  # of somebody else, and of nobody who could be told apart
        await store.add(record(f"other {number}", owner=f"{number}", session="s"))
        await store.add(record(f"nobody {number}"))
    await store.remove("3")
    await store.add(record("4", **whose))
    await store.close()


async def test_anonymous_tasks_count_by_address_whatever_their_session(store: TaskStore) -> None:
    store.bind(Limits(tasks_each=2))
    for number in range(2):
        await store.add(record(f"{number}", network="192.0.2.1", session=f"{number}"))
    with pytest.raises(Overloaded, match="You already have 2 tasks"):
        await store.add(record("more", network="192.0.2.1", session="new"))
    await store.add(record("other", network="192.0.2.2"))
    await store.close()


def finished(id: str, **fields: Any) -> TaskRecord:
    return record(id, status="completed", **fields)


async def test_old_finished_tasks_of_anonymous_callers_make_room(store: TaskStore) -> None:
    store.bind(Limits(tasks=4, tasks_each=3))
    await store.add(finished("of ada", owner="ada"))
    await store.add(record("running"))
    await store.add(finished("old", network="192.0.2.1"))
    await store.add(finished("newer", network="192.0.2.2"))
    await store.add(record("one", owner="ada"))
    assert await store.get("old") is None
    for kept in ("of ada", "running", "one"):
        assert await store.get(kept) is not None
    while await store.get("newer") is not None:
        await store.add(record("another", owner="ada"))
    for number in range(3):
        try:
            await store.add(record(f"eve {number}", owner="eve"))
        except Overloaded as error:
            assert "4 tasks, which is the limit" in str(error)
            break
    else:
        raise AssertionError("running tasks and those of known callers are not deleted")
    assert await store.get("of ada") is not None
    await store.close()


async def test_a_caller_that_has_enough_tasks_deletes_nobody_elses(store: TaskStore) -> None:
    store.bind(Limits(tasks=3, tasks_each=2))
    await store.add(finished("of another", network="192.0.2.1"))
    for number in range(2):
        await store.add(record(f"{number}", network="192.0.2.2"))
    with pytest.raises(Overloaded, match="You already have 2 tasks"):
        await store.add(record("more", network="192.0.2.2"))
    assert await store.get("of another") is not None
    await store.close()


async def test_finished_tasks_of_anonymous_callers_make_room_for_bytes(store: TaskStore) -> None:
    store.bind(Limits(task_bytes=400_000))
    await store.add(finished("old", result=b"x" * 250_000))
    with pytest.raises(TooLarge):
        await store.add(record("too large for any room", params=b"x" * 500_000))
    assert await store.get("old") is not None
    await store.add(record("of ada", owner="ada", params=b"x" * 250_000))
    assert await store.get("old") is None
    assert await store.get("of ada") is not None
    await store.close()


async def test_what_there_is_no_room_for_is_refused_and_the_rest_stays(store: TaskStore) -> None:
    store.bind(Limits(task_bytes=400_000))
    one = record("one")
    lease = leased(await store.add(one))
    one.result = b"x" * 500_000
    with pytest.raises(TooLarge, match="not enough room"):
        await store.put(one, lease)
    with pytest.raises(TooLarge, match="not enough room"):
        await store.add(record("two", params=b"x" * 500_000))
    found = await store.get("one")
    assert found is not None and found.result == b""
    await store.add(record("three"))
    await store.close()


async def test_what_has_expired_makes_room_for_what_is_new_and_for_what_grows(
    store: TaskStore,
) -> None:
    store.bind(Limits(task_bytes=400_000))
    one = record("one")
    lease = leased(await store.add(one))
    await store.add(record("old", ttl=0.0, params=b"x" * 250_000))
    for size in (80_000, 160_000):
        one.result = b"x" * size
        assert await store.put(one, lease)
    await store.add(record("old", ttl=0.0, params=b"x" * 125_000))
    await store.add(record("two", params=b"x" * 125_000))
    assert await store.get("one") == one and await store.get("two") is not None
    with pytest.raises(TooLarge, match="not enough room"):
        await store.add(record("three", params=b"x" * 125_000))
    await store.close()


async def test_a_task_that_makes_room_after_its_time_is_counted_once(store: TaskStore) -> None:
    store.bind(Limits(task_bytes=400_000, tasks_each=1))
    one = record("one", owner="ada", ttl=0.0)
    lease = leased(await store.add(one))
    await store.add(record("old", ttl=0.0, params=b"x" * 200_000))
    one.result = b"x" * 300_000
    await store.put(one, lease)  # which may find that it is gone itself
    await store.remove("one")
    await store.add(record("two", owner="ada", params=b"x" * 300_000))
    with pytest.raises(Overloaded, match="You already have 1 tasks"):
        await store.add(record("three", owner="ada"))
    await store.close()


async def test_large_results_are_kept_too(store: TaskStore) -> None:
    one = record("one")
    lease = leased(await store.add(one))
    one.result, one.status = b"x" * (LARGE_BYTES + 1), "completed"
    await store.put(one, lease)
    assert await store.get("one") == one
    ((_, listed),) = await store.list_page("", "", 0, 9)
    assert listed.result == b"" and listed.status == "completed", "a list says how they stand"
    await store.close()


# leases


async def test_a_task_is_claimed_once(make_store: MakeStore) -> None:
    store, other = make_store(), make_store()
    lease = leased(await store.add(record("one")))
    await store.add(record("over", status="failed"))
    assert await store.claim("one") is await other.claim("one") is None, "somebody runs it"
    await store.release(lease)
    assert await store.claim_orphans(include_own=True) == [], "nobody has to run it"
    found, _ = claimed(await other.claim("one"))
    assert found.id == "one"
    for id in ("one", "over", "none"):
        assert await store.claim(id) is await other.claim(id) is None
    for each in (store, other):
        await each.close()


async def test_a_task_that_was_not_claimed_when_it_was_added_is_anybodys(
    make_store: MakeStore,
) -> None:
    store, other = make_store(), make_store()
    assert await store.add(record("one"), claim=False) is None
    assert await other.claim_orphans(include_own=True) == []
    found, lease = claimed(await other.claim("one"))
    assert found.id == lease.id == "one"
    assert await store.claim("one") is None
    found.message = "running"
    assert await other.put(found, lease)
    for each in (store, other):
        await each.close()


async def test_only_the_holder_of_the_newest_lease_writes(make_store: MakeStore) -> None:
    store, other = make_store(), make_store()
    one = record("one")
    first = leased(await store.add(one))
    assert await store.put(one, first)
    await store.release(first)
    assert not await store.put(one, first), "it was released"
    found, second = claimed(await other.claim("one"))
    assert not await store.put(one, first)
    assert second != first or store is not other
    found.status, found.result = "completed", b"{}"
    assert await other.put(found, second)
    assert await store.get("one") == found
    assert not await other.put(found, second), "its lease ended with it"
    for each in (store, other):
        await each.close()


async def test_any_process_ends_a_task_and_its_runner_notices(make_store: MakeStore) -> None:
    store, other = make_store(), make_store()
    one = record("one")
    lease = leased(await store.add(one))
    ended = record("one", status="cancelled")
    assert await other.end(ended)
    assert await store.get("one") == ended
    one.status = "completed"
    assert not await store.put(one, lease)
    assert not await other.end(one) and not await other.end(record("none", status="cancelled"))
    assert await store.get("one") == ended
    assert await store.claim_orphans(include_own=True) == []
    for each in (store, other):
        await each.close()


async def test_a_lease_is_renewed_while_it_is_held(make_store: MakeStore) -> None:
    store = make_store()
    leases = [leased(await store.add(record(id))) for id in ("one", "two", "three")]
    renewed = await store.renew(leases)
    assert [lease.id for lease in renewed] == ["one", "two", "three"]
    assert all(new.until >= old.until for new, old in zip(renewed, leases, strict=True))
    for lease in renewed:
        assert await store.put(record(lease.id), lease)
    assert await store.renew([]) == []
    await store.close()


@pytest.mark.parametrize("make_store", SHARED, indirect=True)
async def test_a_task_that_is_given_back_is_an_orphan_at_once(make_store: MakeStore) -> None:
    store, other = make_store(), make_store()
    leases = [leased(await store.add(record(id))) for id in ("one", "two")]
    assert await other.claim_orphans(include_own=False) == []
    await store.give_back(leases[1])
    assert await store.claim("two") is None
    [(found, lease)] = await other.claim_orphans(include_own=False)
    assert found.id == "two"
    for _ in range(2):
        await store.give_back(leases[1])  # which it has lost
    assert await store.claim_orphans(include_own=False) == []
    assert await other.put(found, lease) and not await store.put(found, leases[1])
    for each in (store, other):
        await each.close()


@pytest.mark.parametrize("make_store", SHARED, indirect=True)
async def test_a_process_claims_as_many_orphans_as_it_has_room_for(make_store: MakeStore) -> None:
    store, other = make_store(), make_store()
    for number in range(5):
        await store.give_back(leased(await store.add(record(f"{number}"))))
    found = [await other.claim_orphans(include_own=False, room=room) for room in (0, 2, 9)]
    assert [len(each) for each in found] == [0, 2, 3]
    assert {one.id for each in found for one, _ in each} == {"0", "1", "2", "3", "4"}
    for each in (store, other):
        await each.close()


@pytest.mark.parametrize("make_store", SHARED, indirect=True)
async def test_an_orphan_that_a_process_cannot_run_is_left_for_another(
    make_store: MakeStore,
) -> None:
    store, unable, able = make_store(), make_store(), make_store()
    for id in ("one", "two"):
        await store.give_back(leased(await store.add(record(id, tool=id))))
    found = await unable.claim_orphans(include_own=False, can_run=lambda one: one.tool == "two")
    assert [one.id for one, _ in found] == ["two"]
    assert [one.id for one, _ in await able.claim_orphans(include_own=False)] == ["one"]
    for each in (store, unable, able):
        await each.close()


# messages


@pytest.mark.parametrize("make_store", SHARED, indirect=True)
async def test_a_message_stays_until_its_task_has_received_it(make_store: MakeStore) -> None:
    sender, runner, heir = (make_store() for _ in range(3))
    lease = leased(await runner.add(record("task")))
    await runner.add(record("other"))
    await sender.send_message(TaskMessage("task", {"key": b"1"}))
    await sender.send_message(TaskMessage("task", cancel=True))
    assert await runner.receive_messages([]) == await runner.receive_messages(["other"]) == []
    messages = await runner.receive_messages(["other", "task"])
    assert [(each.answers, each.cancel) for _, each in messages] == [
        ({"key": b"1"}, False),
        ({}, True),
    ]
    await runner.delete_message("task", messages[0][0])
    assert await runner.receive_messages(["task"]) == messages[1:]
    await runner.give_back(lease)
    assert len(await heir.claim_orphans(include_own=False)) == 1
    assert await heir.receive_messages(["task"]) == messages[1:]
    for each in (sender, runner, heir):
        await each.close()


@pytest.mark.parametrize("make_store", SHARED, indirect=True)
async def test_messages_are_bounded_and_deleted_with_their_task(make_store: MakeStore) -> None:
    store = make_store()
    store.bind(Limits(asks=2))
    await store.add(record("task"))
    for _ in range(2):
        await store.send_message(TaskMessage("task", {"key": b"1"}))
    for id in ("task", "nowhere"):
        with pytest.raises(Overloaded, match="no longer exists or has too many unread"):
            await store.send_message(TaskMessage(id, {"key": b"1"}))
    await store.remove("task")
    await store.add(record("task"))
    assert await store.receive_messages(["task"]) == []
    await store.close()


@pytest.mark.parametrize("make_store", SHARED, indirect=True)
async def test_messages_count_towards_the_size_of_all_tasks(make_store: MakeStore) -> None:
    store = make_store()
    store.bind(Limits(task_bytes=400_000))
    await store.add(record("task"))
    await store.send_message(TaskMessage("task", {"key": b"1" * 200_000}))
    with pytest.raises(TooLarge, match="not enough room"):
        await store.send_message(TaskMessage("task", {"key": b"1" * 250_000}))
    [(number, _)] = await store.receive_messages(["task"])
    await store.delete_message("task", number)
    await store.send_message(TaskMessage("task", {"key": b"1" * 250_000}))
    await store.close()


async def test_threads_may_use_one_store_at_once(store: TaskStore) -> None:
    def work(part: int) -> None:
        async def add() -> None:
            for number in range(50):
                await store.add(record(f"{part}/{number}"))

        asyncio.run(add())

    await asyncio.gather(*(asyncio.to_thread(work, part) for part in range(4)))
    assert len(await store.list_page("", "", 0, 1000)) == 200
    await store.close()
