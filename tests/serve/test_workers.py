"""Real processes: a program with workers, whose workers connect back to the test and do as they are
told."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Server
from dovetail.errors import ConfigError
from dovetail.serve.workers import run_workers
from tests.clock import awake_time

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
PROGRAM = str(Path(__file__).with_name("worker_program.py"))


class Worker:
    def __init__(
        self, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.pid, self.path, self.hello = hello["pid"], hello["path"], hello
        self.reader, self.writer = reader, writer

    def tell(self, *command: Any) -> None:
        self.writer.write(json.dumps(command).encode() + b"\n")

    async def do(self, *command: Any) -> Any:
        self.tell(*command)
        return json.loads(await self.reader.readline())

    async def gone(self) -> None:
        try:
            while await self.reader.read(1000):
                pass
        except ConnectionError:
            pass


class Program:
    def __init__(self) -> None:
        self.arrivals: asyncio.Queue[Worker] = asyncio.Queue()
        self.process: asyncio.subprocess.Process
        self.workers: list[Worker] = []

    async def arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if line := await reader.readline():
            self.workers.append(Worker(json.loads(line), reader, writer))
            self.arrivals.put_nowait(self.workers[-1])

    async def worker(self) -> Worker:
        return await self.arrivals.get()

    async def end(self) -> tuple[int | None, str, str]:
        out, err = await self.process.communicate()
        return self.process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def program(count: int = 2, grace: float = 0.5, how: str = "plain") -> AsyncIterator[Program]:
    running = Program()
    control = await asyncio.start_server(running.arrived, "127.0.0.1", 0)
    arguments = [control.sockets[0].getsockname()[1], count, grace, how]
    environment = {name: value for name, value in os.environ.items() if name != "DOVETAIL_KEYS"}
    running.process = await asyncio.create_subprocess_exec(
        sys.executable,
        PROGRAM,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment | {"PYTHONPATH": os.getcwd()},
    )
    try:
        yield running
    finally:
        if running.process.returncode is None:
            running.process.kill()
        await running.end()
        for worker in running.workers:
            worker.writer.close()
        control.close()


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def true(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)


linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")


async def test_two_workers_hear_and_ask_each_other() -> None:
    async with program() as running:
        one, two = await running.worker(), await running.worker()
        assert await one.do("ask_patiently", "pid", None) == two.pid
        assert await two.do("ask_patiently", "pid", None) == one.pid
        assert await one.do("ask", "pid", 1) is None
        await one.do("publish", {"number": 1})
        assert await two.do("heard") == {"number": 1}


async def test_workers_start_clean_and_out_of_reach_of_the_terminal() -> None:
    async with program() as running:
        for worker in (await running.worker(), await running.worker()):
            assert worker.hello["handlers"] == [signal.SIG_DFL] * 2
            assert worker.hello["group"] == worker.pid
            assert worker.hello["parent"] == running.process.pid


async def test_without_configured_keys_the_workers_share_one() -> None:
    async with program() as running:
        one, two = await running.worker(), await running.worker()
        assert await two.do("open", await one.do("seal")) == "sealed by a worker"
        os.kill(one.pid, signal.SIGKILL)
        three = await running.worker()
        assert await three.do("open", await two.do("seal")) == "sealed by a worker"


@pytest.mark.bare_interpreter
async def test_a_killed_worker_is_replaced() -> None:
    async with program() as running:
        one, two = await running.worker(), await running.worker()
        os.kill(one.pid, signal.SIGKILL)
        three = await running.worker()
        assert three.pid not in (one.pid, two.pid)
        assert await two.do("ask_patiently", "pid", three.pid) == three.pid
        running.process.terminate()
        code, _, err = await running.end()
        assert code == 0
        assert f"process {one.pid}) was killed by signal 9" in err


@linux
async def test_a_killed_hub_is_replaced_and_the_workers_find_it() -> None:
    async with program() as running:
        one, two = await running.worker(), await running.worker()
        assert await one.do("ask_patiently", "pid", two.pid) == two.pid
        for _ in range(2):
            (hub,) = children_of(running.process.pid) - {one.pid, two.pid}
            os.kill(hub, signal.SIGKILL)
            await true(lambda dead=hub: len(children_of(running.process.pid) - {dead}) == 3)
            assert await one.do("ask_patiently", "pid", two.pid) == two.pid
            assert await two.do("ask_patiently", "pid", one.pid) == one.pid


@pytest.mark.bare_interpreter
@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all_in_good_order(number: int) -> None:
    async with program(grace=2, how="orderly") as running:
        workers = [await running.worker(), await running.worker()]
        children = children_of(running.process.pid)
        assert len(children) == 3
        for worker in workers:
            worker.tell("orderly")
        running.process.send_signal(number)
        for worker in workers:
            assert json.loads(await worker.reader.readline()) == "orderly"
        code, out, err = await running.end()
        assert (code, err) == (0, "")
        assert not any(alive(child) for child in children)
        assert not os.path.exists(os.path.dirname(workers[0].path))
        assert (
            out.count("parent says hello") == out.count("at exit") == 1
        )  # not once more from each child
        assert out.count("worker says hello") == 2
        assert "closed SIG_DFL" in out


@pytest.mark.bare_interpreter
@linux
async def test_workers_that_do_not_stop_are_killed_after_the_grace() -> None:
    async with program(grace=0.5, how="stubborn") as running:
        workers = [await running.worker(), await running.worker()]
        children = children_of(running.process.pid)
        started = time.monotonic()
        running.process.terminate()
        code, _, err = await running.end()
        assert time.monotonic() - started >= 0.5
        assert code == 0
        assert err.count("it did not stop within the shutdown timeout") == 2
        assert not any(alive(child) for child in children)
        assert not os.path.exists(os.path.dirname(workers[0].path))


async def test_a_second_signal_cuts_the_wait_short() -> None:
    async with program(grace=25, how="stubborn") as running:
        one, _two = await running.worker(), await running.worker()
        running.process.terminate()
        await asyncio.sleep(0.2)
        running.process.send_signal(signal.SIGINT)
        started = time.monotonic()
        await running.end()
        assert time.monotonic() - started < 20
        await one.gone()


@linux
@pytest.mark.parametrize("how", ["orderly", "stubborn"])
async def test_when_the_parent_is_killed_the_children_end_too(how: str) -> None:
    async with program(grace=0.5, how=how) as running:
        workers = [await running.worker(), await running.worker()]
        children = children_of(running.process.pid)
        if how == "orderly":
            for worker in workers:
                worker.tell("orderly")
        running.process.kill()
        for worker in workers:
            if how == "orderly":
                assert json.loads(await worker.reader.readline()) == "orderly"
            await worker.gone()
        await true(lambda: not any(alive(child) for child in children))
        assert not os.path.exists(os.path.dirname(workers[0].path))


async def test_a_worker_that_dies_young_again_and_again_ends_it_all() -> None:
    async with program(count=1, how="broken") as running:
        code, out, err = await running.end()
        assert code == 1
        assert err.count("RuntimeError: this worker is broken") >= 5
        assert "Giving up: worker 1 died 5 times in a row within 5 s of starting" in err
        assert out.count("at exit") == 1


@pytest.mark.bare_interpreter
async def test_what_a_worker_says_when_it_exits_is_shown() -> None:
    async with program(count=1, how="exits") as running:
        code, _, err = await running.end()
        assert code == 1
        assert (
            err.count("cannot go on") >= 5
            and "exited with code 1" in err
            and "Traceback" not in err
        )


@linux
async def test_a_worker_that_hangs_does_not_hold_up_the_bus() -> None:
    async with program(count=3) as running:
        one, two, three = [await running.worker() for _ in range(3)]
        assert await one.do("ask_patiently", "pid", two.pid) == two.pid
        os.kill(three.pid, signal.SIGSTOP)
        for _ in range(20):
            assert await one.do("ask", "pid", two.pid) == two.pid
        started = awake_time()
        assert await one.do("ask", "pid", 1) is None  # the third never says no
        assert awake_time() - started < 2
        running.process.terminate()
        await running.end()
        assert not alive(three.pid)


def test_senseless_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="workers=0"):
        run_workers(0, [], print, grace=1)
    with pytest.raises(ConfigError, match="port=99999999: a port must be a number from 0 to 65535"):
        Server("far").run("http", port=99999999)

    refused: list[Exception] = []

    def elsewhere() -> None:
        try:
            run_workers(1, [], print, grace=1)
        except ConfigError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in str(refused[0])
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ConfigError, match=r"os\.fork"):
        run_workers(1, [], print, grace=1)
