"""Database files that are open in several places of a process, or while it forks: whatever was
written is there."""

import asyncio
import gc
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any, NamedTuple

import pytest

from dovetail.auth import SqliteStorage
from dovetail.databases import connect, create_private_file, use_write_ahead_log
from dovetail.errors import ConfigError
from dovetail.extensions.tasks import SqliteStore, TaskRecord
from dovetail.extensions.tasks.store import TaskOrigin
from dovetail.limits import Limits

posix = pytest.mark.skipif(
    sys.platform == "win32", reason="permissions and processes as POSIX has them"
)
forks = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Kind(NamedTuple):
    """A store, how it is given something and closed, and where that is in the file."""

    store: Callable[[Path], Any]
    write: Callable[[Any, str], Awaitable[Any]]
    close: Callable[[Any], Awaitable[Any]]
    column: str
    table: str


async def add_task(store: SqliteStore, name: str) -> None:
    await store.add(
        TaskRecord(
            id=name,
            created=0.0,
            updated=0.0,
            ttl=None,
            tool="t",
            params=b"",
            origin=TaskOrigin("2026-07-28"),
        )
    )


async def add_row(storage: SqliteStorage, name: str) -> None:
    assert await storage.add(name, b"", 1e11)


def roomy(path: Path) -> SqliteStore:
    """A store for as many tasks as a machine may write while it takes its time elsewhere."""
    store = SqliteStore(path)
    store.bind(Limits(tasks=10**9, tasks_each=10**9, task_bytes=2**40))
    return store


KINDS = {
    "tasks": Kind(roomy, add_task, SqliteStore.close, "id", "tasks"),
    "provider": Kind(
        SqliteStorage, add_row, lambda storage: asyncio.to_thread(storage.close), "key", "rows"
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def found(kind: Kind, path: Path) -> set[str]:
    """What another process finds, which opens the file and closes it."""
    script = f"""
import sqlite3, sys
file = sqlite3.connect(sys.argv[1])
assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
print(*(name for name, in file.execute("SELECT {kind.column} FROM {kind.table}")))
file.close()
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, check=True
    )
    return set(run.stdout.split())


async def test_a_second_store_of_a_process_does_not_end_the_locks_of_the_first(
    kind: Kind, tmp_path: Path
) -> None:
    path = tmp_path / "file.db"
    first, second = kind.store(path), kind.store(path)
    await kind.write(first, "before")
    await kind.write(second, "beside")
    await kind.close(second)
    assert found(kind, path) == {"before", "beside"}
    await kind.write(first, "after")
    assert found(kind, path) == {"before", "beside", "after"}
    await kind.close(first)
    assert found(kind, path) == {"before", "beside", "after"}


@posix
@forks
async def test_a_child_that_was_forked_has_locks_of_its_own(kind: Kind, tmp_path: Path) -> None:
    path, (parents, childs) = tmp_path / "file.db", socket.socketpair()
    store = kind.store(path)
    await kind.write(store, "parent")
    child = os.fork()
    if not child:
        worked = False
        try:
            asyncio.run(kind.write(store, "child"))  # type: ignore[arg-type]
            childs.send(b"written")
            childs.recv(1)
            asyncio.run(kind.write(store, "later"))  # type: ignore[arg-type]
            worked = True
        finally:
            os._exit(0 if worked else 1)
    with parents, childs:
        assert parents.recv(7) == b"written"
        await kind.close(store)
        assert found(kind, path) == {"parent", "child"}
        parents.send(b"x")
        assert os.waitpid(child, 0)[1] == 0
    assert found(kind, path) == {"parent", "child", "later"}
    await kind.write(store, "afterwards")
    assert found(kind, path) == {"parent", "child", "later", "afterwards"}
    await kind.close(store)


@posix
@forks
def test_a_process_forks_while_others_write(kind: Kind, tmp_path: Path) -> None:
    stores, written, over = (
        [kind.store(tmp_path / f"{number}.db") for number in range(3)],
        [0, 0, 0],
        Event(),
    )

    def work(number: int) -> None:
        async def write() -> None:
            while not over.is_set():
                await kind.write(stores[number], f"{written[number]}")
                written[number] += 1

        asyncio.run(write())

    async def write_all(name: str) -> None:
        for store in stores:
            await kind.write(store, name)

    threads = [Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert forked(lambda: asyncio.run(write_all(f"child-{os.getpid()}"))) == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()
    for number, store in enumerate(stores):
        asyncio.run(kind.close(store))  # type: ignore[arg-type]
        assert len(found(kind, tmp_path / f"{number}.db")) == written[number] + 20


def forked(work: Callable[[], object]) -> int:
    """How a child ends that does this; it has 20 seconds."""
    child = os.fork()
    if not child:
        worked = False
        try:
            signal.alarm(20)
            work()
            worked = True
        finally:
            os._exit(0 if worked else 1)
    return os.waitpid(child, 0)[1]


@posix
@forks
async def test_rows_in_memory_stay_with_the_parent_of_a_fork() -> None:
    storage = SqliteStorage(":memory:")
    await add_row(storage, "parent")

    def look() -> None:
        assert asyncio.run(storage.get("parent")) is None

    assert forked(look) == 0
    assert await storage.get("parent") == b""


@posix
def test_a_file_is_made_for_its_owner_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "volume" / "file.db")
    create_private_file(tmp_path / "link")
    assert stat.S_IMODE((tmp_path / "volume" / "file.db").stat().st_mode) == 0o600


@posix
def test_what_is_no_file_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o755)
    create_private_file(tmp_path / "folder")
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o755


def test_a_connection_is_closed_when_its_owner_is_gone(tmp_path: Path) -> None:
    class Owner:
        pass

    owner = Owner()
    owner.itself = owner  # type: ignore[attr-defined]  # only the garbage collector ends it
    connection = connect(str(tmp_path / "rows"), 1.0, owner)
    connection.execute("SELECT 1")
    del owner
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


async def test_a_connection_that_cannot_be_set_up_is_closed(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"not a database" * 100)
    storage = SqliteStorage(tmp_path / "rows")
    with pytest.raises(ConfigError):
        await storage.get("a:1")
    with warnings.catch_warnings():  # Python 3.13 warns of one that is not
        warnings.simplefilter("error")
        gc.collect()


def test_a_file_that_another_process_is_switching_is_tried_again(tmp_path: Path) -> None:
    path = str(tmp_path / "new.db")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        use_write_ahead_log(connection, 0.05)
    timer = Timer(0.1, other.execute, ["ROLLBACK"])
    timer.start()
    use_write_ahead_log(connection, 30)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    timer.join()
    connection.close()
    other.close()
