"""Where the provider keeps its rows: the contract, and what SQLite adds to it."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dovetail.auth import SqliteStorage
from dovetail.auth.provider import storage as storage_module
from dovetail.auth.provider.storage import Storage, row_key
from dovetail.errors import ConfigError, Overloaded

from .provider_kit import Agent, Clock, provider
from .storage_contract import *  # noqa: F403
from .storage_contract import Elapse, MakeStorage


@pytest.fixture(params=[":memory:", "file"])
def make_storage(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStorage:
    path = tmp_path / "rows.sqlite" if request.param == "file" else ":memory:"

    def make(clock: Clock, **options: Any) -> tuple[Storage, Elapse]:
        def elapse(seconds: float) -> None:
            clock.time += seconds

        return SqliteStorage(path, now=clock, **options), elapse

    return make


LATER = Clock().time + 100


async def test_what_has_expired_is_swept(tmp_path: Path) -> None:
    clock = Clock()
    storage = SqliteStorage(tmp_path / "rows", now=clock)
    for number in range(10):
        await storage.add(f"a:{number}", b"", clock.time + 10)
    clock.time += 100
    await storage.add("a:new", b"", clock.time + 10)
    with sqlite3.connect(tmp_path / "rows") as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (1,)
    connection.close()


@pytest.mark.skipif(os.name != "posix", reason="permissions of another kind")
async def test_a_file_that_is_locked_is_not_named_to_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "BUSY_TIMEOUT_SECONDS", 0.05)
    path = tmp_path / "provider.db"
    storage = SqliteStorage(path)
    assert await storage.get("x") is None
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Overloaded) as caught:
            await storage.add("x", b"", 1e11)
    assert str(tmp_path) not in str(caught.value)


async def test_the_files_are_readable_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.sqlite"
    storage = SqliteStorage(path)
    await storage.add("a:1", b"", LATER)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    storage.close()
    path.chmod(0o644)
    await storage.get("a:1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_file_that_cannot_be_used_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"this is no database, and long enough to be looked at" * 100)
    for path in (tmp_path, tmp_path / "junk"):
        with pytest.raises(ConfigError, match="storage="):
            await SqliteStorage(path).get("a:1")


async def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    script = f"""
import asyncio, sys
from dovetail.auth import SqliteStorage
storage = SqliteStorage({str(path)!r})
async def main():
    won = 0
    for number in range(50):
        won += await storage.add(f"a:{{number}}", b"", 1e11)
    print(won)
asyncio.run(main())
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    won = [int(run.communicate(timeout=30)[0]) for run in runs]
    assert sum(won) == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_a_connection_is_not_used_on_the_other_side_of_a_fork(tmp_path: Path) -> None:
    script = f"""
import asyncio, os
from dovetail.auth import SqliteStorage
storage = SqliteStorage({str(tmp_path / "rows")!r})
asyncio.run(storage.add("a:1", b"parent", 1e11))
mine = storage._connection
child = os.fork()
if child == 0:
    found = asyncio.run(storage.get("a:1"))
    os._exit(0 if found == b"parent" and storage._connection is not mine else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    run = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await run.wait() == 0


async def test_nothing_in_the_file_lets_anybody_in(tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    agent = Agent(provider(storage=path))
    told = await agent.register(token_endpoint_auth_method="client_secret_post")
    id, secret = told["client_id"], told["client_secret"]
    code = await agent.code(id)
    reply = await agent.redeem(id, code, client_secret=secret)
    assert reply.status == 200
    import msgspec

    tokens = msgspec.json.decode(reply.body)
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for word in (
        secret,
        code,
        tokens["access_token"],
        tokens["refresh_token"],
        *agent.cookies.values(),
    ):
        assert word.encode() not in stored
        assert word.partition(".")[2].encode() not in stored or "." not in word


def test_a_key_tells_nothing_and_no_two_lists_of_parts_share_one() -> None:
    assert row_key("a", "x", "yz") != row_key("a", "xy", "z") != row_key("a", "xyz")
    assert "secret" not in row_key("a", "secret")
