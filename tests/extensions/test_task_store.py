"""Tasks in a file. What all stores promise is tested in `tests/backend/test_task_contract.py`."""

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
from dovetail.extensions.tasks.group_commit import MAX_WRITES
from dovetail.extensions.tasks.sqlite import SqliteStore
from dovetail.extensions.tasks.store import (
    Lease,
    TaskMessage,
    TaskOrigin,
    TaskRecord,
    TaskStoreFull,
    pack,
    unpack,
)
from dovetail.limits import Limits

posix = pytest.mark.skipif(
    sys.platform == "win32", reason="permissions and processes as POSIX has them"
)
forks = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def record(id: str, ttl: float | None = 60.0, **fields: Any) -> TaskRecord:
    now = time.time()
    about = {"created": now, "tool": "t", "params": b"{}", "origin": TaskOrigin("2026-07-28")}
    return TaskRecord(id=id, updated=now, ttl=ttl, **(about | fields))


def leased(lease: Lease | None) -> Lease:
    assert lease is not None
    return lease


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


async def test_what_is_written_at_once_is_one_transaction(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.add(record("first"))
    statements: list[str] = []
    assert store._writer is not None
    store._writer.set_trace_callback(statements.append)
    count = MAX_WRITES + 1
    await asyncio.gather(*(store.add(record(f"{number}")) for number in range(count)))
    assert statements.count("COMMIT") == 1, "and the last one alone"
    assert all([await store.get(f"{number}") is not None for number in range(count)])
    await store.close()


async def test_a_write_that_is_refused_leaves_the_others_of_its_transaction(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    store.bind(Limits(tasks=3))
    adding = (store.add(record(f"{number}", owner="ann")) for number in range(5))
    added = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(one) for one in added] == [Lease] * 3 + [TaskStoreFull] * 2
    found = [await store.get(f"{number}") is not None for number in range(5)]
    assert found == [True] * 3 + [False] * 2
    await store.close()


async def test_a_full_file_refuses_only_what_does_not_fit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    store.bind(Limits(task_bytes=64 * 4096))
    await store.add(record("first", owner="ann"))
    sizes = [40_000] * 8 + [10]
    adding = (
        store.add(record(f"{number}", owner="ann", params=bytes(size)))
        for number, size in enumerate(sizes)
    )
    added = await asyncio.gather(*adding, return_exceptions=True)
    kinds = [type(one) for one in added]
    assert kinds[0] is Lease and kinds[-2:] == [TooLarge, Lease]
    found = [await store.get(f"{number}") is not None for number in range(len(sizes))]
    assert found == [kind is Lease for kind in kinds]
    assert await store.get("first") is not None
    await store.close()


async def test_a_file_that_breaks_is_said_to_all_writes_of_a_transaction(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.add(record("first"))
    assert store._writer is not None
    store._writer.execute("DROP TABLE counts")
    adding = (store.add(record(f"{number}")) for number in range(3))
    added = await asyncio.gather(*adding, return_exceptions=True)
    assert {type(one) for one in added} == {Overloaded}
    assert not store._writer.in_transaction
    assert await store.get("first") is not None
    await store.close()


async def test_a_write_that_is_cancelled_before_its_transaction_does_not_happen(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    both = [asyncio.create_task(store.add(record(id))) for id in ("one", "two")]
    await asyncio.sleep(0)
    both[0].cancel()
    await asyncio.wait(both)
    assert both[0].cancelled()
    assert await store.get("one") is None and await store.get("two") is not None
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
