"""A task file that is damaged: one line says so, at the start and at run time."""

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.errors import InternalError
from dovetail.extensions.tasks import SqliteStore

SERVER = """
from dovetail import Server

server = Server("s", tasks={path!r})


@server.tool(task="optional")
async def one() -> str:
    return "1"
"""


def build(path: Path) -> tuple[Server, asyncio.Event]:
    server, go = Server("s", tasks=str(path)), asyncio.Event()

    @server.tool(task="optional")
    async def slow() -> str:
        await go.wait()
        return "done"

    @server.tool
    async def plain() -> str:
        return "plain"

    return server, go


def damage(path: Path) -> None:
    """Overwrite all of a task file but its header."""
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(os.urandom(path.stat().st_size - 100))


@pytest.mark.parametrize("arguments", [[], ["--http", "--port", "0"]], ids=["stdio", "http"])
def test_a_file_that_is_damaged_at_the_start_is_one_line(
    tmp_path: Path, arguments: list[str]
) -> None:
    path, script = tmp_path / "tasks.db", tmp_path / "server.py"
    path.write_bytes(os.urandom(20_000))
    script.write_text(SERVER.format(path=str(path)))
    command = [sys.executable, "-m", "dovetail", "run", str(script), *arguments]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if str(path) in line]
    assert len(lines) == 1
    assert "is damaged" in lines[0] and "backup" in lines[0]


async def test_each_request_to_a_server_that_cannot_start_is_refused_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.transports.http.raw import hosted

    path = tmp_path / "tasks.db"
    path.write_bytes(os.urandom(20_000))
    async with hosted(build(path)[0]) as site:
        for _ in range(3):
            assert (await site.ask("tools/list")).status == 500
    (line,) = [record for record in caplog.records if record.name == "dovetail.http"]
    assert "is damaged" in line.getMessage() and line.exc_info is None


async def test_a_file_that_is_damaged_at_run_time_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "tasks.db"
    server, go = build(path)
    async with Client(server) as client:
        handle = await client.start_tool("slow")
        result = asyncio.create_task(handle.result())
        await asyncio.sleep(0)
        store = find_store(server)
        with store._write_lock, store._read_lock:
            store._disconnect()
        for rest in tmp_path.glob("tasks.db-wal"):
            rest.unlink()
        damage(path)
        for _ in range(3):
            with pytest.raises(InternalError, match="This server's task store is damaged"):
                await client.start_tool("slow")
        assert (await client.call_tool("plain")).data == "plain", "the others work"
        go.set()
        done, _ = await asyncio.wait([result], timeout=10)
        assert done, "nobody waits for ever"
        result.exception()
    lines = [record for record in caplog.records if record.name.startswith("dovetail")]
    assert [line.exc_info for line in lines] == [None] * len(lines)
    assert len([line for line in lines if "is damaged" in line.getMessage()]) == 1
    assert len(lines) <= 2


def find_store(server: Server) -> Any:
    import gc

    (store,) = [
        one for one in gc.get_objects() if isinstance(one, SqliteStore) and one._writer is not None
    ]
    return store
