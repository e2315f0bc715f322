"""Where tasks are kept: the same promises in memory and in a file, and those that only a file can
give."""

import asyncio
import os
import socket
import sqlite3
import stat
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.errors import ConfigError, Overloaded, TooLarge
from dovetail.extensions.tasks.sqlite import LARGE_BYTES, SqliteStore
from dovetail.extensions.tasks.store import (
    InMemoryTaskStore,
    Lease,
    TaskMessage,
    TaskOrigin,
    TaskRecord,
    TaskStore,
    pack,
    unpack,
)
from dovetail.limits import Limits

posix = pytest.mark.skipif(
    sys.platform == "win32", reason="permissions and processes as POSIX has them"
)
forks = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TaskStore:
    """Each of them."""
    return InMemoryTaskStore() if request.param == "memory" else SqliteStore(tmp_path / "tasks.db")


def record(id: str, ttl: float | None = 60.0, **fields: Any) -> TaskRecord:
    now = time.time()
    about = {"created": now, "tool": "t", "params": b"{}", "origin": TaskOrigin("2026-07-28")}
    return TaskRecord(id=id, updated=now, ttl=ttl, **(about | fields))


def leased(lease: Lease | None) -> Lease:
    assert lease is not None
    return lease


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
    assert [one.id for one, _ in await store.claim_orphans(include_own=True)] == ["young"]
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


# a file


@posix
async def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "new" / "tasks.db")
    await store.add(record("one"))
    files = list((tmp_path / "new").iterdir())
    assert len(files) >= 3, "with its log, and a lock"
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in files} == {0}
    await store.close()
    os.chmod(tmp_path / "new" / "tasks.db", 0o644)
    again = SqliteStore(tmp_path / "new" / "tasks.db")
    assert await again.get("one") is not None
    assert stat.S_IMODE((tmp_path / "new" / "tasks.db").stat().st_mode) == 0o600
    await again.close()


async def test_a_file_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(
        b"no database at all, but long enough to be taken for one" * 10
    )
    for path in (tmp_path, tmp_path / "garbage"):
        with pytest.raises(ConfigError, match=r"Tasks cannot be stored in|is damaged"):
            await SqliteStore(path).get("one")


async def test_a_name_that_another_process_holds_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tasks.db"
    holder = SqliteStore(path)
    await holder.add(record("one"))
    taken = holder._runner
    names = iter([taken, taken, "free"])
    monkeypatch.setattr(
        "dovetail.extensions.tasks.sqlite.token_hex", lambda length: next(names, taken)
    )
    store, unlucky = SqliteStore(path), SqliteStore(path)
    await store.add(record("two"))
    assert store._runner == "free" and await holder.claim_orphans(include_own=False) == []
    with pytest.raises(ConfigError, match="no lock file can be created"):
        await unlucky.get("one")
    for one in (holder, store):
        await one.close()


async def test_locks_of_the_dead_are_removed_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "tasks [1]*?.db"
    (tmp_path / f"{path.name}-dead.lock").touch()
    (tmp_path / "tasks 1.db-other.lock").touch()
    store = SqliteStore(path)
    await store.add(record("one"))
    assert {file.name for file in tmp_path.glob("*.lock")} == {
        f"{path.name}-{store._runner}.lock",
        "tasks 1.db-other.lock",
    }
    await store.close()


async def test_tasks_of_the_dead_are_taken_over_and_those_of_the_living_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tasks.db"
    dead, living, heir = SqliteStore(path), SqliteStore(path), SqliteStore(path)
    await dead.add(record("left"))
    await dead.add(record("over", status="completed"))
    await living.add(record("running"))
    assert await heir.claim_orphans(include_own=True) == []
    await dead.close()
    assert [one.id for one, _ in await heir.claim_orphans(include_own=False)] == ["left"]
    assert await living.claim_orphans(include_own=False) == [], "what was taken over is taken"
    assert [one.id for one, _ in await living.claim_orphans(include_own=True)] == ["running"], (
        "its own are for it to judge"
    )
    for store in (living, heir):
        await store.close()
    assert not list(tmp_path.glob("*.lock"))


def spoil(path: Path, table: str, number: int) -> None:
    """Make a row what no release has written."""
    file = sqlite3.connect(path)
    with file:
        file.execute(f"UPDATE {table} SET data = x'81a26964c0' WHERE number = ?", (number,))
    file.close()


async def test_a_record_that_cannot_be_read_keeps_nobody_from_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tasks.db"
    dead, heir = SqliteStore(path), SqliteStore(path)
    for id in ("one", "spoilt and secret", "two", "three"):
        await dead.add(record(id))
    spoil(path, "tasks", 2)
    assert [(number, one.id) for number, one in await heir.list_page("", "", 0, 3)] == [
        (1, "one"),
        (3, "two"),
        (4, "three"),
    ]
    assert [number for number, _ in await heir.list_page("", "", 1, 1)] == [3], (
        "a page is as long as it may be"
    )
    assert await heir.get("spoilt and secret") is None
    await dead.close()
    assert [one.id for one, _ in await heir.claim_orphans(include_own=False)] == [
        "one",
        "two",
        "three",
    ]
    assert await heir.claim_orphans(include_own=False) == []
    assert caplog.text.count("which cannot be read") == 1
    assert "spoilt a…" in caplog.text and "secret" not in caplog.text
    await heir.close()


async def test_a_task_that_cannot_be_read_is_not_claimed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    assert await store.add(record("spoilt"), claim=False) is None
    spoil(tmp_path / "tasks.db", "tasks", 1)
    assert await store.claim("spoilt") is None
    await store.close()


async def test_a_letter_that_cannot_be_read_keeps_nobody_from_the_next(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.add(record("one"))
    for _ in range(2):
        await store.send_message(TaskMessage("one", cancel=True))
    spoil(tmp_path / "tasks.db", "letters", 1)
    assert await store.receive_messages({"one", "task"}) == [(2, TaskMessage("one", cancel=True))]
    await store.close()


async def test_who_fails_to_take_over_the_tasks_of_the_dead_leaves_them_to_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tasks.db"
    dead, unlucky, heir = SqliteStore(path), SqliteStore(path), SqliteStore(path)
    await dead.add(record("left"))
    await dead.close()

    def unable(record: TaskRecord) -> bool:
        raise OSError("disk I/O error")

    with pytest.raises(OSError, match="disk"):
        await unlucky.claim_orphans(include_own=False, can_run=unable)
    assert [one.id for one, _ in await heir.claim_orphans(include_own=False)] == ["left"]
    for store in (unlucky, heir):
        await store.close()


async def test_whoever_claims_a_task_runs_it(store: TaskStore, tmp_path: Path) -> None:
    lease = leased(await store.add(record("one")))
    await store.add(record("over", status="failed"))
    other = SqliteStore(tmp_path / "tasks.db") if store.shared else store
    assert await store.claim("one") is await other.claim("one") is None, "somebody runs it"
    await store.release(lease)
    assert await store.claim_orphans(include_own=True) == [], "nobody has to run it"
    claimed = await other.claim("one")
    assert claimed is not None and claimed[0].id == "one"
    for id in ("one", "over", "none"):
        assert await other.claim(id) is None
    assert [one.id for one, _ in await other.claim_orphans(include_own=True)] == ["one"]
    for one in (store, other):
        await one.close()


@posix
@forks
async def test_a_child_that_was_forked_keeps_nobody_alive(tmp_path: Path) -> None:
    path, (parents, childs) = tmp_path / "tasks.db", socket.socketpair()
    dead, heir = SqliteStore(path), SqliteStore(path)
    await dead.add(record("left"))
    child = os.fork()
    if not child:
        parents.close()
        childs.send(b"here")
        childs.recv(1)  # until its parent goes
        os._exit(0)
    childs.close()
    assert parents.recv(4) == b"here"
    assert dead._writer is dead._reader is None, "nothing is open while a process forks"
    os.close(dead._lock_fd)  # as the system does when a process is killed
    dead._lock_fd = -1
    found = await heir.claim_orphans(include_own=False)
    parents.close()
    os.waitpid(child, 0)
    assert [one.id for one, _ in found] == ["left"]
    await heir.close()


@posix
@forks
async def test_a_child_that_was_forked_is_a_process_of_its_own(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.add(record("parent"))
    child = os.fork()
    if not child:
        worked = False
        try:
            steps = (
                store.add(record("child")),
                store.get("parent"),
                store.claim_orphans(include_own=True),
            )
            found = [
                asyncio.Runner(loop_factory=asyncio.new_event_loop).run(step) for step in steps
            ]
            worked = [one.id for one, _ in found[2]] == ["child"] and found[1] is not None
        finally:
            os._exit(0 if worked else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [one.id for one, _ in await store.claim_orphans(include_own=False)] == ["child"]
    await store.close()


async def test_a_letter_reaches_whoever_runs_the_task_and_stays_until_it_is_taken(
    tmp_path: Path,
) -> None:
    one, other, heir = (SqliteStore(tmp_path / "tasks.db") for _ in range(3))
    await other.add(record("task"))
    await one.send_message(TaskMessage("task", {"key": b"1"}))
    await one.send_message(TaskMessage("task", cancel=True))
    assert await one.receive_messages({"task"}) == []
    letters = await other.receive_messages({"task"})
    assert [(letter.answers, letter.cancel) for _, letter in letters] == [
        ({"key": b"1"}, False),
        ({}, True),
    ]
    await other.delete_message("task", letters[0][0])
    assert await other.receive_messages({"task"}) == letters[1:]
    await other.close()  # before it could do what the second one says
    await heir.claim_orphans(include_own=False)
    assert [letter for _, letter in await heir.receive_messages({"task"})] == [letters[1][1]]
    for store in (one, heir):
        await store.close()


async def test_letters_are_bounded_and_go_with_their_task(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    store.bind(Limits(asks=2))
    await store.add(record("task"))
    for _ in range(2):
        await store.send_message(TaskMessage("task", {"key": b"1"}))
    for id in ("task", "nowhere"):
        with pytest.raises(Overloaded, match="no longer exists or has too many unread"):
            await store.send_message(TaskMessage(id, {"key": b"1"}))
    await store.remove("task")
    await store.add(record("task"))
    assert await store.receive_messages({"one", "task"}) == []
    await store.close()


async def test_the_file_shrinks_again_when_tasks_have_gone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    for number in range(200):
        await store.add(record(f"{number}", params=b"x" * 10_000, ttl=0.0 if number else 60.0))
    await store.close()
    full = (tmp_path / "tasks.db").stat().st_size
    await store.delete_expired()
    await store.close()
    assert (tmp_path / "tasks.db").stat().st_size < full / 10
    assert await store.get("0") is not None
    await store.close()


async def test_a_file_that_gives_back_no_room_is_swept_all_the_same(tmp_path: Path) -> None:
    made = sqlite3.connect(tmp_path / "tasks.db")
    made.execute(
        "CREATE TABLE something (of INTEGER)"
    )  # by another program, and without auto_vacuum
    made.close()
    store = SqliteStore(tmp_path / "tasks.db")
    for number in range(300):
        await store.add(record(f"{number}", params=b"x" * 5000, ttl=0.0))
    await store.delete_expired()
    store.bind(Limits(tasks=1))
    await store.add(record("one"))
    await store.close()


async def test_a_file_that_another_holds_too_long_is_said_and_nothing_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.sqlite.BUSY_SECONDS", 0.01)
    store = SqliteStore(tmp_path / "tasks.db")
    await store.add(record("one"))
    held = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    with pytest.raises(Overloaded, match="locked"):
        await store.add(record("two"))
    assert await store.get("one") is not None, "who reads does not mind"
    held.execute("ROLLBACK")
    held.close()
    await store.add(record("two"))
    await store.close()


async def test_the_event_loop_goes_on_while_another_process_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    one = record("one")
    lease = leased(await store.add(one))
    held = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    writing = [
        asyncio.create_task(store.put(one, lease)),
        asyncio.create_task(store.add(record("two"))),
    ]
    await asyncio.sleep(0.05)
    assert await store.get("one") == one and await store.get("two") is None
    assert not any(task.done() for task in writing)
    held.execute("ROLLBACK")
    held.close()
    assert await asyncio.gather(*writing) == [True, Lease("two")]
    assert await store.get("two") is not None
    await store.close()


async def test_what_is_cancelled_while_it_is_written_is_written_before_anything_else(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    one = record("one")
    lease = leased(await store.add(one))
    held = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.put(one, lease))
    await asyncio.sleep(0.05)
    writing.cancel()
    await asyncio.sleep(0.05)
    assert not writing.done()
    held.execute("ROLLBACK")
    held.close()
    with pytest.raises(asyncio.CancelledError):
        await writing
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


def test_stored_names_stay_those_of_existing_files() -> None:
    origin = TaskOrigin("2025-11-25", log_level=3)
    kept = TaskRecord(
        id="1", created=1.0, updated=1.0, ttl=None, tool="t", params=b"{}", origin=origin,
        questions={"q": ("roots/list", b"{}")}, once_results={"o": b"1"},
    )  # fmt: skip
    stored = msgspec.msgpack.decode(pack(kept))
    assert {"asked", "kept"} <= stored.keys() and not {"questions", "once_results"} & stored.keys()
    assert stored["origin"] == {"revision": "2025-11-25", "level": 3}
    assert unpack(pack(kept)) == kept
