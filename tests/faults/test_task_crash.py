"""Tasks in a file, and processes that are killed without mercy: what was over is still there, what
ran goes on or says why it does not, a question that was answered is not asked again, and what was
done once is not done twice."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import InternalError, InvalidParams, TaskCancelled
from dovetail.protocol.base import CLIENT_CAPABILITIES
from dovetail.protocol.tasks import EXTENSION
from tests.faults.raw_http import META, NEW, ROOT, Program, request as posted, running
from tests.faults.test_http_processes import both, message
from tests.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills without mercy")

FORMS = CORE, EXTENDED = ["2025-11-25", "2026-07-28"]
PROGRAM = [sys.executable, "-m", "tests.faults.task_program"]


class Shop:
    """Where the server keeps its tasks, and where it notes what it did."""

    def __init__(self, folder: Path) -> None:
        self.tasks, self.deeds, self.gate = folder / "tasks.db", folder / "deeds", folder / "gate"
        self.deeds.touch()
        self.asked: list[str] = []

    @property
    def env(self) -> dict[str, str]:
        return {"TASKS": str(self.tasks), "DEEDS": str(self.deeds)}

    def started(self, *, sweep: float = 60, **options: Any) -> Any:
        return running(command=[*PROGRAM, "PORT"], env=self.env | {"SWEEP": str(sweep)}, **options)

    def client(self, program: Program, form: str) -> Client:
        return Client(f"http://127.0.0.1:{program.port}/mcp", revision=form, on_elicit=self.answer)

    def piped(self, form: str) -> Client:
        """A client with a server of its own, on stdio."""
        return Client(PROGRAM, cwd=ROOT, env=self.env, revision=form, on_elicit=self.answer)

    def answer(self, request: Any) -> dict[str, str]:
        self.asked.append(request.message)
        return {"size": "large"}

    def lines(self) -> list[str]:
        return self.deeds.read_text().split()

    async def until(self, *lines: str) -> None:
        while self.lines() != list(lines):
            await asyncio.sleep(0.01)

    def letters(self) -> int:
        """How many letters are on their way."""
        file = sqlite3.connect(self.tasks)
        try:
            return int(file.execute("SELECT count(*) FROM letters").fetchone()[0])
        finally:
            file.close()


def kill(program: Program) -> None:
    """Without a chance to say goodbye."""
    program.popen.kill()
    program.popen.wait()


async def reached(client: Client, id: str, *statuses: str) -> Any:
    """A task, once it has one of these statuses."""
    while (task := await client.request("tasks/get", {"taskId": id})).status not in statuses:
        await asyncio.sleep(0.01)
    return task


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_survives_its_server_and_asks_and_does_everything_once(
    shop: Shop, form: str
) -> None:
    with shop.started() as program:
        async with shop.client(program, form) as client:
            handle = await client.start_tool("order", {"gate": str(shop.gate)})
            result = asyncio.create_task(handle.result())
            await shop.until("paid", "asked")
            result.cancel()
            await asyncio.gather(result, return_exceptions=True)
            kill(program)
    assert shop.asked == ["Which size?"]
    with shop.started() as program:
        async with shop.client(program, form) as client:  # which has nothing but the id
            await shop.until("paid", "asked", "asked")
            shop.gate.touch()
            assert (await client.task(handle.id).result()).text == "large large"
    assert shop.lines() == ["paid", "asked", "asked", "sent"], "what is not done once is done again"
    assert shop.asked == ["Which size?", "Did it fit?"]


@pytest.mark.parametrize("form", FORMS)
async def test_a_question_that_nobody_answered_is_still_the_same_after_a_crash(
    shop: Shop, form: str
) -> None:
    keys = []
    shop.gate.touch()
    for start in range(3):
        with shop.started() as program:
            async with shop.client(program, form) as client:
                if not start:
                    id = (
                        await client.start_tool("order", {"gate": str(shop.gate)}, manual=True)
                    ).id
                task = await reached(client, id, "input_required")
                keys.append(sorted(getattr(task, "input_requests", None) or {}))
                if start < 2:
                    kill(program)
                else:
                    assert (await client.task(id).result()).text == "large large"
    assert keys[0] == keys[1] == keys[2]
    assert shop.lines() == ["paid", "asked", "sent"] and shop.asked == [
        "Which size?",
        "Did it fit?",
    ]


@pytest.mark.parametrize("form", FORMS)
async def test_what_was_asked_before_it_detached_is_not_asked_again(shop: Shop, form: str) -> None:
    with shop.started() as program:
        async with shop.client(program, form) as client:
            handle = await client.start_tool("detached", {"gate": str(shop.gate)})
            result = asyncio.create_task(
                handle.result()
            )  # in the core form it is a task from the start, and asks there
            await shop.until("paid", "asked")
            result.cancel()
            await asyncio.gather(result, return_exceptions=True)
            kill(program)
    shop.gate.touch()
    with shop.started() as program:
        async with shop.client(program, form) as client:
            assert (await client.task(handle.id).result()).text == "large"
    assert shop.lines() == ["paid", "asked", "asked"] and shop.asked == ["Which size?"]


@pytest.mark.parametrize("form", FORMS)
async def test_what_cannot_be_resumed_says_so_and_what_was_over_is_still_there(
    shop: Shop, form: str
) -> None:
    with shop.started() as program:
        async with shop.client(program, form) as client:
            broken = await client.start_tool("fragile", {"gate": str(shop.gate)})
            await shop.until("begun")
            whole = await client.start_tool("fragile", {"gate": str(shop.tasks)})
            assert (await whole.result()).text == "done"
            kill(program)
    with shop.started() as program:
        async with shop.client(program, form) as client:
            assert (await client.task(whole.id).result()).text == "done"
            with pytest.raises(
                InternalError, match="The server stopped while this task was running"
            ):
                await client.task(broken.id).result()
            task = await client.request("tasks/get", {"taskId": broken.id})
            assert task.status == "failed" and "stopped" in task.status_message
    assert shop.lines() == ["begun", "begun"]


@pytest.mark.parametrize("form", FORMS)
async def test_processes_that_share_a_file_answer_for_each_others_tasks(
    shop: Shop, form: str
) -> None:
    with shop.started() as one, shop.started() as other:
        async with shop.client(one, form) as here, shop.client(other, form) as there:
            handle = await here.start_tool("order", {"gate": str(shop.gate)}, manual=True)
            waiting = asyncio.create_task(there.task(handle.id).result())
            await shop.until("paid", "asked")
            shop.gate.touch()
            assert (await waiting).text == "large large"
            assert shop.asked == ["Which size?", "Did it fit?"]


@pytest.mark.requirement("tasks-core-over", "tasks-core-cancel")
@pytest.mark.parametrize("form", FORMS)
async def test_what_is_cancelled_through_another_process_is_cancelled_whatever_becomes_of_it(
    shop: Shop, form: str
) -> None:
    with shop.started() as one, shop.started() as other:
        async with shop.client(one, form) as here, shop.client(other, form) as there:
            handle = await here.start_tool("stubborn", {"gate": str(shop.gate)})
            await shop.until("begun")
            await there.task(handle.id).cancel()
            for client in (here, there):
                assert (
                    await client.request("tasks/get", {"taskId": handle.id})
                ).status == "cancelled"
            shop.gate.touch()
            await shop.until("begun", "done")  # and has a result, which comes too late
            for client in (here, there):
                assert (
                    await client.request("tasks/get", {"taskId": handle.id})
                ).status == "cancelled"
                with pytest.raises(TaskCancelled):
                    await client.task(handle.id).result()


@pytest.mark.requirement("tasks-core-cancel")
async def test_what_is_over_in_one_process_cannot_be_cancelled_through_another(shop: Shop) -> None:
    shop.gate.touch()
    with shop.started() as one, shop.started() as other:
        async with shop.client(one, CORE) as here, shop.client(other, CORE) as there:
            handle = await here.start_tool("fragile", {"gate": str(shop.gate)})
            assert (await handle.result()).text == "done"
            with pytest.raises(InvalidParams, match="it is already completed"):
                await there.request("tasks/cancel", {"taskId": handle.id})
            assert (await there.task(handle.id).result()).text == "done"


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_on_its_way_to_a_process_that_dies_reaches_the_next_one(
    shop: Shop, form: str
) -> None:
    with shop.started() as one, shop.started() as other:
        async with shop.client(one, form) as here, shop.client(other, form) as there:
            handle = await here.start_tool("order", {"gate": str(shop.gate)}, manual=True)
            await reached(here, handle.id, "input_required")
            one.popen.send_signal(signal.SIGSTOP)
            waiting = asyncio.create_task(there.task(handle.id).result())
            while not shop.letters():
                await asyncio.sleep(0.01)
            kill(one)
            shop.gate.touch()
            with shop.started():
                assert (await waiting).text == "large large"
    assert shop.asked == ["Which size?", "Did it fit?"] and shop.lines() == [
        "paid",
        "asked",
        "sent",
    ]
    assert shop.letters() == 0


async def test_answers_that_are_none_are_refused_by_every_process_and_others_go_nowhere(
    shop: Shop,
) -> None:
    with shop.started() as one, shop.started() as other:
        async with shop.client(one, EXTENDED) as here, shop.client(other, EXTENDED) as there:
            id = (await here.start_tool("order", {"gate": str(shop.gate)}, manual=True)).id
            (key,) = (await reached(here, id, "input_required")).input_requests
            one.popen.send_signal(signal.SIGSTOP)
            try:
                await there.request(
                    "tasks/update",
                    {"taskId": id, "inputResponses": {"nobody asked": {"action": "cancel"}}},
                )
                with pytest.raises(InvalidParams):
                    await there.request(
                        "tasks/update", {"taskId": id, "inputResponses": {key: {"action": "shrug"}}}
                    )
                huge = {"action": "accept", "content": {"size": "x" * 300_000}}
                with pytest.raises(InvalidParams, match="the limit is"):
                    await there.request(
                        "tasks/update", {"taskId": id, "inputResponses": {key: huge}}
                    )
                assert shop.letters() == 0
            finally:
                one.popen.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("form", FORMS)
async def test_who_lives_takes_up_what_the_dead_left(shop: Shop, form: str) -> None:
    with shop.started() as one, shop.started(sweep=0.05) as other:
        async with shop.client(one, form) as here, shop.client(other, form) as there:
            handle = await here.start_tool("order", {"gate": str(shop.gate)}, manual=True)
            broken = await here.start_tool("fragile", {"gate": str(shop.gate)})
            await shop.until("paid", "begun")
            kill(one)
            shop.gate.touch()
            assert (await there.task(handle.id).result()).text == "large large"
            assert (await reached(there, broken.id, "failed")).status == "failed"
    assert shop.lines() == ["paid", "begun", "asked", "sent"]


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_is_resumed_over_stdio_too(shop: Shop, form: str) -> None:
    async with shop.piped(form) as client:
        handle = await client.start_tool("order", {"gate": str(shop.gate)})
        result = asyncio.create_task(handle.result())
        await shop.until("paid", "asked")
        result.cancel()
        await asyncio.gather(result, return_exceptions=True)
        os.kill((await client.call_tool("pid")).data, signal.SIGKILL)
    shop.gate.touch()
    async with shop.piped(form) as client:
        assert (await client.task(handle.id).result()).text == "large large"
    assert shop.lines() == ["paid", "asked", "asked", "sent"] and shop.asked == [
        "Which size?",
        "Did it fit?",
    ]


@pytest.mark.parametrize(("steps", "runs"), [(0, 3), (2, 4)])
async def test_a_task_that_takes_its_server_down_each_time_is_given_up(
    shop: Shop, steps: int, runs: int
) -> None:
    limits = {"task_attempts": 2}
    with shop.started(**limits) as program:
        async with shop.client(program, EXTENDED) as client:
            handle = await client.start_tool("poison", {"gate": str(shop.gate), "steps": steps})
            shop.gate.touch()
            assert program.popen.wait(10) == -signal.SIGKILL
    for _ in range(runs - 1):
        command = [*PROGRAM, str(free_port())]
        env = {**os.environ, **shop.env, "LIMITS": json.dumps(limits)}
        done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, env=env, timeout=10)
        assert done.returncode == -signal.SIGKILL
    with shop.started(**limits) as program:
        async with shop.client(program, EXTENDED) as client:
            with pytest.raises(
                InternalError,
                match="stopped 3 times while this task was running, and the task made no progress",
            ):
                await client.task(handle.id).result()
    assert shop.lines() == ["begun"] * runs


async def test_who_listens_at_one_worker_is_told_of_a_task_that_runs_in_another(shop: Shop) -> None:
    meta = META | {CLIENT_CAPABILITIES: {"extensions": {EXTENSION: {}}}}

    def ask(method: str, **params: Any) -> bytes:
        headers = {"MCP-Protocol-Version": NEW, "Mcp-Method": method} | (
            {"Mcp-Name": params["name"]} if "name" in params else {}
        )
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return posted("POST", headers, json.dumps(asked).encode())

    with shop.started(options={"workers": 2}) as program, both(program) as (one, other):
        task = one.ask(
            ask("tools/call", name="fragile", arguments={"gate": str(shop.gate)})
        ).message["result"]
        other.send(ask("subscriptions/listen", notifications={"taskIds": [task["taskId"]]}))
        other.head()
        assert message(other)["params"]["notifications"] == {"taskIds": [task["taskId"]]}
        shop.gate.touch()
        told = message(other)
        assert told["method"] == "notifications/tasks" and told["params"]["status"] == "completed"
        assert told["params"]["result"]["content"][0]["text"] == "done"


async def test_what_a_living_process_runs_is_not_taken_from_it(shop: Shop) -> None:
    with shop.started() as one:
        async with shop.client(one, FORMS[1]) as here:
            handle = await here.start_tool("fragile", {"gate": str(shop.gate)})
            await shop.until("begun")
            with shop.started() as other:
                async with shop.client(other, FORMS[1]) as there:
                    await there.call_tool("pid")
                    assert (
                        await there.request("tasks/get", {"taskId": handle.id})
                    ).status == "working"
            shop.gate.touch()
            assert (await handle.result()).text == "done"
    assert shop.lines() == ["begun"]
    assert not list(shop.tasks.parent.glob("*.lock"))
