"""Child processes that wait for the next call of an isolated tool."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Limits, Server
from dovetail.limits import MIB
from dovetail.server import isolation, spares
from dovetail.server.isolation import Sandbox, run_isolated

from .test_isolation import has_ended, linux, mailbox

calls = 0


def about() -> tuple[int, int]:
    """Return the process id, and the number of calls in this process."""
    global calls
    calls += 1
    return os.getpid(), calls


def variable(name: str) -> str | None:
    return os.environ.get(name)


def folder() -> str:
    return os.getcwd()


def take_long() -> int:
    time.sleep(100)
    return os.getpid()


async def run(function: Any, *args: Any, limits: Limits | None = None) -> Any:
    return await run_isolated(function, args, {}, limits or Limits(), 60, "tool")


@pytest.fixture(autouse=True)
def no_spares() -> Iterator[None]:
    """Begin and end without spares."""
    isolation._spares.close()
    yield
    isolation._spares.close()


def waiting() -> list[int]:
    return [spare.popen.pid for spare in isolation._spares._waiting]


async def test_a_call_runs_in_a_process_that_was_started_before_it() -> None:
    first, _ = await run(about)
    (spare,) = waiting()
    second, count = await run(about)
    assert second == spare != first
    assert count == 1


async def test_each_process_serves_one_call() -> None:
    found = [await run(about) for _ in range(4)]
    assert len({pid for pid, _ in found}) == 4
    assert {count for _, count in found} == {1}


async def test_calls_at_the_same_time_do_not_share_a_process() -> None:
    found = await asyncio.gather(*(run(about) for _ in range(4)))
    assert len({pid for pid, _ in found}) == 4
    assert len(waiting()) <= Limits().isolated_spares


async def test_a_call_sees_the_environment_and_the_folder_of_its_own_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert await run(variable, "SPARE_TEST") is None
    monkeypatch.setenv("SPARE_TEST", "set")
    assert await run(variable, "SPARE_TEST") == "set"
    await run(folder)
    monkeypatch.chdir(tmp_path)
    assert await run(folder) == str(tmp_path)


async def test_a_call_runs_the_newest_version_of_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "changing_tool.py"
    file.write_text("def answer(): return 1\n")
    import changing_tool  # type: ignore[import-not-found]

    assert await run(changing_tool.answer) == 1
    file.write_text("def answer(): return 2\n")
    os.utime(file, ns=(1, 1))
    assert await run(changing_tool.answer) == 2


async def test_a_spare_that_died_is_replaced() -> None:
    await run(about)
    (spare,) = waiting()
    os.kill(spare, signal.SIGKILL)
    assert has_ended(spare)
    pid, _ = await run(about)
    assert pid != spare


async def test_there_are_no_more_spares_than_the_limit_allows() -> None:
    for function in (about, folder, os.getpid, time.time):
        await run(function, limits=Limits(isolated_spares=2))
    assert len(waiting()) == 2
    isolation._spares.close()
    await run(about, limits=Limits(isolated_spares=0))
    assert waiting() == []


@linux
async def test_a_spare_that_is_not_used_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spares, "IDLE_SECONDS", 0.01)
    await run(about)
    async with asyncio.timeout(60):
        while waiting():
            await asyncio.sleep(0.01)


@linux
async def test_spares_end_with_the_program_that_started_them(tmp_path: Path) -> None:
    script = f"""
        import asyncio, os, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from dovetail.limits import Limits
        from dovetail.server import isolation
        asyncio.run(isolation.run_isolated(os.getpid, (), {{}}, Limits(), None, "tool"))
        print(*(spare.popen.pid for spare in isolation._spares._waiting), flush=True)
        if sys.argv[1] == "wait": sys.stdin.read()
    """
    for how in ("wait", "exit"):
        command = [sys.executable, "-c", textwrap.dedent(script), how]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout
            spare = int(program.stdout.readline())
            if how == "wait":
                program.kill()
        assert has_ended(spare)


@linux
async def test_a_forked_process_does_not_use_the_spares_of_its_parent() -> None:
    await run(about)
    (spare,) = waiting()
    child = os.fork()
    if child == 0:
        os._exit(len(waiting()))
    assert os.waitpid(child, 0)[1] == 0
    pid, _ = await run(about)
    assert pid == spare


async def test_a_cancelled_call_leaves_no_process_behind() -> None:
    call = asyncio.create_task(run(take_long))
    while not waiting():
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(waiting()) == 1


async def test_tools_use_spares() -> None:
    server = Server("spares")
    server.tool(isolate="process")(about)
    async with Client(server) as client:
        await client.call_tool("about", {})
        (spare,) = waiting()
        assert (await client.call_tool("about", {})).data[0] == spare


async def test_a_spare_that_cannot_be_started_does_not_disturb_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, start = 0, subprocess.Popen

    def popen(*args: Any, **options: Any) -> Any:
        nonlocal started
        started += 1
        if started > 1:
            raise BlockingIOError("too many processes")
        return start(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert (await run(about))[1] == 1
    assert (started, waiting()) == (2, [])


@linux
async def test_a_tool_runs_in_a_folder_that_was_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert await run(abs, -1) == 1


class Large:
    """A callable that is too large for the buffer of a pipe."""

    def __init__(self) -> None:
        self.data = "x" * 200_000

    def __call__(self) -> int:
        return len(self.data)


async def test_a_large_callable_leaves_no_spare() -> None:
    assert await run(Large()) == 200_000
    assert waiting() == []


@linux
async def test_a_timeout_kills_a_child_that_does_not_read(tmp_path: Path) -> None:
    with mailbox(tmp_path / "pids") as (fifo, pids):
        sandbox = Sandbox(("sh", "-c", f"echo $$ > {fifo}; sleep 100"), int)
        call = run_isolated(Large(), (), {}, Limits(), 1.0, "tool", sandbox)
        with pytest.raises(TimeoutError):
            await call
        (pid,) = await pids()
    assert has_ended(pid)


@linux
async def test_arguments_do_not_count_twice_against_the_memory_limit() -> None:
    limits = Limits(isolated_memory=32 * MIB, isolated_spares=0)
    for _ in range(3):
        assert await run(len, "x" * (20 * MIB), limits=limits) == 20 * MIB
