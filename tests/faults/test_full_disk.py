"""A full disk: what cannot be written is an error that says so, what was written before is still
there and still right, all that needs no disk goes on, and so does the rest as soon as there is room
again.

Two ways to be full: a file may not grow any more (everywhere), and a file system of 1 MiB that is
full (where this user may mount one; it is the one that says "no space left on device").
"""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail import Client
from dovetail.errors import DovetailError, Overloaded, ToolError
from dovetail.server.audit import audit
from dovetail.testing import pair
from tests.faults.raw_http import Program, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes a disk away")

SIZE = 1 << 20
FORMS = ["2025-11-25", "2026-07-28"]


class Disk(NamedTuple):
    """A server, and its disk, which can be filled and emptied."""

    program: Program
    fill: Callable[[bool], None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.program.port}/mcp"


@pytest.fixture(params=["files that may not grow", "a small file system"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    mounted = request.param == "a small file system"
    with small(tmp_path) if mounted else nullcontext():
        command = [sys.executable, "-m", "tests.faults.disk_program", "PORT"]
        with running(command=command, env={"DISK": str(tmp_path)}) as program:
            ballast = tmp_path / "ballast"

            def fill(full: bool) -> None:
                if not mounted:
                    program.tool("fill", full=full)
                elif full:
                    with (
                        pytest.raises(OSError, match="No space"),
                        ballast.open("wb", buffering=0) as file,
                    ):
                        while True:
                            file.write(bytes(512))
                else:
                    ballast.unlink()

            yield Disk(program, fill)


@contextmanager
def small(path: Path) -> Iterator[None]:
    """A file system of its own there, with little room."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "dovetail-test", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount anything")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("form", FORMS)
async def test_tasks_that_cannot_be_kept_are_refused_and_those_that_were_are_still_there(
    disk: Disk, form: str
) -> None:
    async with Client(disk.url, revision=form, timeout=10) as client:
        before = await client.start_tool("write", {"text": "before ", "times": 1})
        assert (await before.result()).text == "before "
        disk.fill(True)
        outcomes = [await tried(client, number) for number in range(40)]
        assert {"refused"} <= set(outcomes) <= {"refused", "kept"}, outcomes
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert (await client.task(before.id).result()).text == "before "
        disk.fill(False)
        after = await client.start_tool("write", {"text": "after ", "times": 20_000})
        assert (await after.result()).text == "after " * 20_000


async def tried(client: Client, number: int) -> str:
    """What becomes of a task: kept, with its answer, or refused in words that say why."""
    text = f"{number} "
    try:
        async with asyncio.timeout(60):
            task = await client.start_tool("write", {"text": text, "times": 20_000})
            answer = await task.result()
    except DovetailError as error:
        assert isinstance(error, Overloaded) and "disk" in str(error), repr(error)
        return "refused"
    assert answer.text == text * 20_000
    return "kept"


def test_a_full_disk_is_not_taken_for_a_full_store(tmp_path: Path) -> None:
    """The store has nearly all pages that it may have, most of them free. What a full disk cannot
    take is worth another attempt; what a full store cannot take is not."""
    script = """
import asyncio, pathlib, time
from dovetail.errors import Overloaded
from dovetail.extensions.tasks import TaskRecord, SqliteStore
from dovetail.extensions.tasks.store import TaskOrigin
from dovetail.limits import Limits

def record(id):
    return TaskRecord(id=id, created=time.time(), updated=0.0, ttl=60.0, tool="t", params=bytes(160_000), origin=TaskOrigin("x"))

async def main():
    store, ballast = SqliteStore("tasks.db"), pathlib.Path("ballast")
    store.bind(Limits(task_bytes=64 * 4096))
    await store.add(record("before"))
    await store.remove("before")
    await store.close()
    await store.get("before")
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass
    try:
        await store.add(record("while it is full"))
    except Overloaded as error:
        print(error)
    ballast.unlink()
    await store.add(record("after"))
    print((await store.get("after")).id)

asyncio.run(main())
"""  # noqa: E501
    with small(tmp_path):
        command = [sys.executable, "-c", script]
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path, env=env
        )
    assert run.stdout.startswith("The task store's disk is full") and run.stdout.endswith(
        "after\n"
    ), run


async def test_a_login_that_cannot_be_kept_is_an_error_and_the_one_before_it_stays(
    disk: Disk,
) -> None:
    async with Client(disk.url, timeout=10) as client:
        await client.call_tool("log_in", {"user": "ada", "token": "first---", "times": 1})
        files = (await client.call_tool("files")).data
        disk.fill(True)
        with pytest.raises(
            ToolError,
            match=r"Cannot store logins in .*: (File too large|No space left on device)",
        ):
            await client.call_tool("log_in", {"user": "ada", "token": "second--", "times": 60_000})
        assert (await client.call_tool("logged_in", {"user": "ada"})).data == "first---"
        disk.fill(False)
        assert (await client.call_tool("files")).data == files, "something was left lying about"
        await client.call_tool("log_in", {"user": "ada", "token": "third---", "times": 10})
        assert (await client.call_tool("logged_in", {"user": "ada"})).data == "third---"


async def test_calls_are_answered_also_where_they_cannot_be_recorded(disk: Disk) -> None:
    async with Client(disk.url, timeout=10) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        disk.fill(True)
        answers = [
            (await client.call_tool("add", {"a": number, "b": 1})).data for number in range(300)
        ]
        assert answers == list(range(1, 301))
        assert "The call to tools/call could not be recorded" in disk.program.said()


async def test_a_record_that_cannot_be_written_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from dovetail import Server

    full: Any
    with open("/dev/full", "wb", buffering=0) as full:
        server = Server("audited", middleware=[audit(lambda record: full.write(b"x"))])

        @server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        with caplog.at_level(logging.ERROR, "dovetail"):
            async with pair(server) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    assert "No space left on device" in caplog.text
