"""Where tasks are kept: the same promises in memory and in a file, and those that only a file can give."""

import asyncio
import os
import sqlite3
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import ConfigError, Overloaded, TooLarge
from dovetail.extensions.tasks.sqlite import LARGE, SqliteStore
from dovetail.extensions.tasks.store import Letter, MemoryStore, Origin, Record, TaskStore
from dovetail.limits import Limits

posix = pytest.mark.skipif(sys.platform == "win32", reason="permissions as POSIX has them")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TaskStore:
    """Each of them."""
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "tasks.db")


def record(id: str, ttl: float | None = 60.0, **fields: Any) -> Record:
    now = time.time()
    about = {"created": now, "tool": "t", "params": b"{}", "origin": Origin("2026-07-28"), "runner": "here"}
    return Record(id=id, updated=now, ttl=ttl, **(about | fields))


async def test_what_was_put_in_is_given_back_as_it_was(store: TaskStore) -> None:
    one = record(
        "one", owner="ada", session="s", resumable=True, status="input_required", message="waiting",
        origin=Origin("2025-11-25", {"elicitation": {}}, {"name": "c", "version": "1"}, {"id": "ada"}, 3),
        asked={"key": ("elicitation/create", b"{}")}, answers={"before": b"1"}, kept={"paid": b"null"},
    )  # fmt: skip
    await store.add(one)
    assert await store.get("one") == one
    one.status, one.result, one.asked = "completed", b"{}", {}
    await store.put(one)
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
    await store.add(one)
    one.status = "cancelled"
    await store.put(one)
    one.status = "completed"
    await store.put(one)
    found = await store.get("one")
    assert found is not None and found.status == "cancelled"
    await store.put(record("never added"))
    assert await store.get("never added") is None
    await store.close()


async def test_what_has_expired_is_not_given_back_and_goes(store: TaskStore) -> None:
    await store.add(record("old", created=time.time() - 100))
    await store.add(record("young"))
    await store.add(record("eternal", ttl=None, created=0.0))
    assert await store.get("old") is None
    assert [one.id for _, one in await store.page("", "", 0, 10)] == ["young", "eternal"]
    await store.sweep()
    await store.remove("eternal")
    await store.remove("eternal")
    assert [one.id for one in await store.orphans()] in (["young"], [])  # of another process, which lives, in the file
    await store.close()


async def test_a_page_has_the_tasks_of_one_owner_and_session_in_order(store: TaskStore) -> None:
    for number in range(6):
        await store.add(record(f"{number}", owner="ada" if number % 2 else "", session=f"{number // 3}"))
    page = await store.page("ada", "", 0, 2)
    assert [one.id for _, one in page] == ["1", "3"]
    assert [one.id for _, one in await store.page("ada", "", page[-1][0], 2)] == ["5"]
    assert [one.id for _, one in await store.page("", "0", 0, 9)] == ["0", "2"]
    await store.close()


async def test_more_than_there_may_be_are_refused_until_some_have_gone(store: TaskStore) -> None:
    store.bind(Limits(tasks=3, tasks_each=2))
    await store.add(record("1", owner="ada", created=time.time() - 100))
    await store.add(record("2", owner="ada"))
    with pytest.raises(Overloaded, match="You have 2 tasks"):
        await store.add(record("3", owner="ada"))
    await store.add(record("3", owner="bob"))
    await store.add(record("4", owner="bob"))  # which makes room, since one has expired
    with pytest.raises(Overloaded, match="the limit is 3"):
        await store.add(record("5"))
    await store.remove("4")
    await store.add(record("5"))
    await store.close()


async def test_what_there_is_no_room_for_is_refused_and_the_rest_stays(store: TaskStore) -> None:
    store.bind(Limits(task_bytes=400_000))
    one = record("one")
    await store.add(one)
    one.result = b"x" * 500_000
    with pytest.raises(TooLarge, match="no room"):
        await store.put(one)
    with pytest.raises(TooLarge, match="no room"):
        await store.add(record("two", params=b"x" * 500_000))
    found = await store.get("one")
    assert found is not None and found.result == b""
    await store.add(record("three"))
    await store.close()


async def test_large_results_are_kept_too(store: TaskStore) -> None:
    one = record("one")
    await store.add(one)
    one.result, one.status = b"x" * (LARGE + 1), "completed"
    await store.put(one)
    assert await store.get("one") == one
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
    (tmp_path / "garbage").write_bytes(b"no database at all, but long enough to be taken for one" * 10)
    for path in (tmp_path, tmp_path / "garbage"):
        with pytest.raises(ConfigError, match="cannot keep tasks there"):
            await SqliteStore(path).get("one")


async def test_tasks_of_the_dead_are_taken_over_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    dead, living, heir = SqliteStore(path), SqliteStore(path), SqliteStore(path)
    await dead.add(record("left", runner=dead.runner))
    await dead.add(record("over", runner=dead.runner, status="completed"))
    await living.add(record("running", runner=living.runner))
    assert await heir.orphans() == []
    await dead.close()
    assert [one.id for one in await heir.orphans()] == ["left"]
    assert await living.orphans() != [], "its own are for it to judge"
    assert [one.id for one in await living.orphans()] == ["running"], "what was taken over is taken"
    for store in (living, heir):
        await store.close()
    assert not list(tmp_path.glob("*.lock"))


async def test_a_letter_reaches_the_process_that_it_is_for_once(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "tasks.db"), SqliteStore(tmp_path / "tasks.db")
    await one.send(other.runner, Letter("task", {"key": b"1"}))
    await one.send(other.runner, Letter("task", cancel=True))
    assert await one.receive() == []
    assert [(letter.answers, letter.cancel) for letter in await other.receive()] == [({"key": b"1"}, False), ({}, True)]
    assert await other.receive() == []
    for store in (one, other):
        await store.close()


async def test_the_file_shrinks_again_when_tasks_have_gone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    for number in range(200):
        await store.add(record(f"{number}", params=b"x" * 10_000, ttl=0.0 if number else 60.0))
    await store.close()
    full = (tmp_path / "tasks.db").stat().st_size
    await store.sweep()
    await store.close()
    assert (tmp_path / "tasks.db").stat().st_size < full / 10
    assert await store.get("0") is not None
    await store.close()


async def test_a_file_that_another_holds_too_long_is_said_and_nothing_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.sqlite.BUSY", 0.01)
    store = SqliteStore(tmp_path / "tasks.db")
    await store.add(record("one"))
    held = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    with pytest.raises(Overloaded, match="locked"):
        await store.add(record("two"))
    held.execute("ROLLBACK")
    held.close()
    await store.add(record("two"))
    await store.close()


async def test_threads_may_use_one_store_at_once(store: TaskStore) -> None:
    def work(part: int) -> None:
        async def add() -> None:
            for number in range(50):
                await store.add(record(f"{part}/{number}"))

        asyncio.run(add())

    await asyncio.gather(*(asyncio.to_thread(work, part) for part in range(4)))
    assert len(await store.page("", "", 0, 1000)) == 200
    await store.close()
