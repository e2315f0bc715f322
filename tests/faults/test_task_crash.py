"""Tasks in a file, and processes that are killed without mercy: what was over is still there, what ran goes on or says why
it does not, a question that was answered is not asked again, and what was done once is not done twice."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import InternalError
from tests.faults.raw_http import Program, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills without mercy")

FORMS = ["2025-11-25", "2026-07-28"]


class Shop:
    """Where the server keeps its tasks, and where it notes what it did."""

    def __init__(self, folder: Path) -> None:
        self.tasks, self.deeds, self.gate = folder / "tasks.db", folder / "deeds", folder / "gate"
        self.deeds.touch()
        self.asked: list[str] = []

    def started(self) -> Any:
        command = [sys.executable, "-m", "tests.faults.task_program", "PORT"]
        return running(command=command, env={"TASKS": str(self.tasks), "DEEDS": str(self.deeds)})

    def client(self, program: Program, form: str) -> Client:
        return Client(f"http://127.0.0.1:{program.port}/mcp", revision=form, on_elicit=self.answer)

    def answer(self, request: Any) -> dict[str, str]:
        self.asked.append(request.message)
        return {"size": "large"}

    def lines(self) -> list[str]:
        return self.deeds.read_text().split()

    async def until(self, *lines: str) -> None:
        while self.lines() != list(lines):
            await asyncio.sleep(0.01)


def kill(program: Program) -> None:
    """Without a chance to say goodbye."""
    program.popen.kill()
    program.popen.wait()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_survives_its_server_and_asks_and_does_everything_once(shop: Shop, form: str) -> None:
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
async def test_a_question_that_nobody_answered_is_still_the_same_after_a_crash(shop: Shop, form: str) -> None:
    keys = []
    shop.gate.touch()
    for start in range(3):
        with shop.started() as program:
            async with shop.client(program, form) as client:
                if not start:
                    id = (await client.start_tool("order", {"gate": str(shop.gate)}, manual=True)).id
                while (task := await client.request("tasks/get", {"taskId": id})).status != "input_required":
                    await asyncio.sleep(0.01)
                keys.append(sorted(getattr(task, "input_requests", None) or {}))
                if start < 2:
                    kill(program)
                else:
                    assert (await client.task(id).result()).text == "large large"
    assert keys[0] == keys[1] == keys[2]
    assert shop.lines() == ["paid", "asked", "sent"] and shop.asked == ["Which size?", "Did it fit?"]


@pytest.mark.parametrize("form", FORMS)
async def test_what_was_asked_before_it_detached_is_not_asked_again(shop: Shop, form: str) -> None:
    with shop.started() as program:
        async with shop.client(program, form) as client:
            handle = await client.start_tool("detached", {"gate": str(shop.gate)})
            kill(program)
    shop.gate.touch()
    with shop.started() as program:
        async with shop.client(program, form) as client:
            assert (await client.task(handle.id).result()).text == "large"
    assert shop.lines() == ["paid"] and shop.asked == ["Which size?"]


@pytest.mark.parametrize("form", FORMS)
async def test_what_cannot_be_resumed_says_so_and_what_was_over_is_still_there(shop: Shop, form: str) -> None:
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
            with pytest.raises(InternalError, match="The server stopped while this task ran"):
                await client.task(broken.id).result()
            task = await client.request("tasks/get", {"taskId": broken.id})
            assert task.status == "failed" and "stopped" in task.status_message
    assert shop.lines() == ["begun", "begun"]


@pytest.mark.parametrize("form", FORMS)
async def test_processes_that_share_a_file_answer_for_each_others_tasks(shop: Shop, form: str) -> None:
    with shop.started() as one, shop.started() as other:
        async with shop.client(one, form) as here, shop.client(other, form) as there:
            handle = await here.start_tool("order", {"gate": str(shop.gate)}, manual=True)
            waiting = asyncio.create_task(there.task(handle.id).result())
            await shop.until("paid", "asked")
            shop.gate.touch()
            assert (await waiting).text == "large large"
            assert shop.asked == ["Which size?", "Did it fit?"]
            shop.gate.unlink()
            second = await here.start_tool("fragile", {"gate": str(shop.gate)})
            await there.task(second.id).cancel()
            assert (await here.request("tasks/get", {"taskId": second.id})).status in ("working", "cancelled")
            while (await here.request("tasks/get", {"taskId": second.id})).status != "cancelled":
                await asyncio.sleep(0.01)


async def test_what_a_living_process_runs_is_not_taken_from_it(shop: Shop) -> None:
    with shop.started() as one:
        async with shop.client(one, FORMS[1]) as here:
            handle = await here.start_tool("fragile", {"gate": str(shop.gate)})
            await shop.until("begun")
            with shop.started() as other:
                async with shop.client(other, FORMS[1]) as there:
                    await there.call_tool("pid")
                    assert (await there.request("tasks/get", {"taskId": handle.id})).status == "working"
            shop.gate.touch()
            assert (await handle.result()).text == "done"
    assert shop.lines() == ["begun"]
    assert not list(shop.tasks.parent.glob("*.lock"))
