"""Servers that share their tasks in one file. Here they are of one process, each with a store of
its own, which makes them as good as processes to each other; tests/faults/test_task_crash.py has
real ones, and kills them."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Client, Context, Server, ToolError
from dovetail.errors import ConfigError, InvalidParams, Overloaded
from dovetail.extensions.tasks import InMemoryTaskStore, SqliteStore, TaskMessage, TaskRecord
from dovetail.extensions.tasks.store import TaskOrigin
from dovetail.limits import Limits

FORMS = CORE, EXTENDED = ["2025-11-25", "2026-07-28"]


class Sure(Struct):
    sure: bool


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def server(path: Path, kind: type[SqliteStore] = SqliteStore, **limits: Any) -> Server:
    """One of them."""
    made = Server("one of several", tasks=kind(path), limits=Limits(**limits))

    @made.tool(task="optional", resumable=True)
    async def ask(ctx: Context) -> str:
        """Ask, then say what came."""
        return str((await ctx.elicit("Sure?", Sure, key="sure")).action)

    return made


def store(of: Server) -> SqliteStore:
    assert of.tasks is not None and isinstance(of.tasks.manager.store, SqliteStore)
    return of.tasks.manager.store


def client(of: Server, form: str) -> Client:
    return Client(of, revision=form, on_elicit=lambda request: None)


async def reached(client: Client, id: str, *statuses: str) -> Any:
    while (task := await client.request("tasks/get", {"taskId": id})).status not in statuses:
        await asyncio.sleep(0.01)
    return task


@pytest.mark.parametrize("form", FORMS)
async def test_a_letter_that_makes_no_sense_does_not_keep_the_next_one_away(
    path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = server(path), server(path)
    async with client(here, form) as one, client(there, form) as other:
        ids = [(await one.start_tool("ask", manual=True)).id for _ in range(4)]
        all_ids = {*ids}
        for id in ids:
            await reached(one, id, "input_required")
        with caplog.at_level(logging.WARNING, "dovetail.tasks"):
            for id, answer in zip(
                ids,
                (b'{"action": "shrug"}', b"no JSON", b"\xff", b'{"action": "decline"}'),
                strict=True,
            ):
                await store(there).send_message(TaskMessage(id, {"sure": answer}))
            assert (await other.task(ids.pop()).result()).text == "decline"
            for id in ids:  # nobody will answer those again
                with pytest.raises(ToolError, match="was refused"):
                    await other.task(id).result()
        assert len([said for said in caplog.messages if "message" in said]) == 3
        assert await store(here).receive_messages(all_ids) == []


async def test_a_letter_to_a_task_that_is_yet_to_be_taken_up_waits(path: Path) -> None:
    here, there = server(path), server(path)
    async with client(here, EXTENDED) as one, client(there, EXTENDED) as other:
        id = (await one.start_tool("ask", manual=True)).id
        now = time.time()
        about: Any = {"created": now, "updated": now, "ttl": 60.0, "origin": TaskOrigin(EXTENDED)}
        await store(here).add(TaskRecord(id="left", tool="ask", params=b"{}", **about))
        await store(there).send_message(TaskMessage("left", cancel=True))
        assert (await other.task(id).result()).text == "decline"
        assert [one.id for _, one in await store(here).receive_messages({"left"})] == ["left"]


async def test_letters_go_on_when_the_file_could_not_be_read_for_a_while(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.signals.POLL_SECONDS", 0.01)
    failures: Iterator[Exception] = iter([OSError("gone"), Overloaded("busy"), ValueError("odd")])

    class Shaky(SqliteStore):
        async def receive_messages(self, ids: Collection[str]) -> list[tuple[int, TaskMessage]]:
            for failure in failures:
                raise failure
            return await super().receive_messages(ids)

    here, there = server(path, Shaky), server(path)
    async with client(here, EXTENDED) as one, client(there, EXTENDED) as other:
        id = (await one.start_tool("ask", manual=True)).id
        assert (await other.task(id).result()).text == "decline"
    assert [said for said in caplog.messages if "cannot be read" in said] == [
        "Messages to tasks cannot be read: gone",
        "Messages to tasks cannot be read: odd",
    ]


async def test_a_server_starts_though_another_one_writes_and_takes_up_later_what_was_left(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.sqlite.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("dovetail.extensions.tasks.scheduler.SWEEP_SECONDS", 0.05)
    dead = SqliteStore(path)
    now = time.time()
    about: Any = {"created": now, "updated": now, "ttl": 60.0, "origin": TaskOrigin(EXTENDED)}
    await dead.add(TaskRecord(id="left", tool="ask", params=b"{}", **about))
    await dead.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with client(server(path), EXTENDED) as one:
        assert (await one.request("tasks/get", {"taskId": "left"})).status == "working"
        assert "Orphaned tasks could not be resumed" in caplog.text
        other.execute("ROLLBACK")
        other.close()
        assert (await reached(one, "left", "failed")).status_message.startswith(
            "The server stopped"
        )


async def test_a_server_starts_though_a_task_cannot_be_read_and_takes_up_the_others(
    path: Path,
) -> None:
    dead = SqliteStore(path)
    now = time.time()
    about: Any = {"created": now, "updated": now, "ttl": 60.0, "origin": TaskOrigin(EXTENDED)}
    for id in ("spoilt", "left"):
        await dead.add(TaskRecord(id=id, tool="ask", params=b"{}", **about))
    await dead.close()
    file = sqlite3.connect(path)
    with file:
        file.execute("UPDATE tasks SET data = x'81a26964c0' WHERE id = 'spoilt'")
    file.close()
    async with client(server(path), EXTENDED) as one:
        assert (await one.request("tasks/get", {"taskId": "left"})).status_message.startswith(
            "The server stopped"
        )
        with pytest.raises(InvalidParams, match="There is no task"):
            await one.request("tasks/get", {"taskId": "spoilt"})


def test_being_stopped_in_good_order_is_no_crash(path: Path) -> None:
    async def begin() -> str:
        async with client(server(path, task_attempts=2), EXTENDED) as one:
            id = (await one.start_tool("ask", manual=True)).id
            await reached(one, id, "input_required")
            return id

    async def look(id: str) -> None:
        async with client(server(path, task_attempts=2), EXTENDED) as one:
            assert (await reached(one, id, "input_required", "failed")).status == "input_required"

    async def answer(id: str) -> str:
        async with client(server(path, task_attempts=2), EXTENDED) as one:
            return str((await one.task(id).result()).text)

    id = asyncio.run(begin())
    for _ in range(5):
        asyncio.run(look(id))
    assert asyncio.run(answer(id)) == "decline"


async def test_a_file_stays_open_while_any_event_loop_uses_it(path: Path) -> None:
    shared = server(path)

    async def visit() -> None:
        async with client(shared, EXTENDED) as one:
            await one.ping()

    async with client(shared, EXTENDED) as one:
        await one.ping()
        held = list(path.parent.glob("*.lock"))
        await asyncio.to_thread(asyncio.run, visit())
        assert list(path.parent.glob("*.lock")) == held != []
    while list(path.parent.glob("*.lock")):  # the server notices that its last client has left
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_one_store_object_is_for_one_server_at_a_time(kind: str, path: Path) -> None:
    both = InMemoryTaskStore() if kind == "memory" else SqliteStore(path)
    first, second, go = Server("first", tasks=both), Server("second", tasks=both), asyncio.Event()

    @first.tool(task="required")
    async def wait() -> str:
        await go.wait()
        return "waited"

    @second.tool(task="required")
    async def nothing() -> str:
        return "nothing"

    async with first.lifespan(), client(first, EXTENDED) as one:
        running = await one.start_tool("wait")
        with pytest.raises(ConfigError, match="Another server in this process already uses"):
            async with second.lifespan():
                pass
        go.set()
        assert (await running.result()).text == "waited"
        async with first.lifespan():  # as often as it likes
            pass
    while first.tasks and first.tasks.manager.busy:  # it notices that its last client has left
        await asyncio.sleep(0.01)
    async with second.lifespan(), client(second, EXTENDED) as other:
        assert (await other.call_tool("nothing")).text == "nothing"


@contextmanager
def elsewhere(work: Any) -> Iterator[None]:
    """Something that goes on in the event loop of another thread meanwhile."""
    begun, over = Event(), Event()

    async def run() -> None:
        async with work:
            begun.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert begun.wait(10)
        yield
    finally:
        over.set()
        thread.join()


async def test_what_a_living_event_loop_runs_is_not_taken_from_it(path: Path) -> None:
    shared, other = server(path), server(path)
    async with client(shared, EXTENDED) as one:
        id = (await one.start_tool("ask", manual=True)).id
        with elsewhere(client(shared, EXTENDED)), elsewhere(client(other, EXTENDED)):
            await reached(one, id, "input_required")
            manager = shared.tasks and shared.tasks.manager
            assert (
                manager
                and list(manager.running) == [id]
                and manager.running[id].loop is asyncio.get_running_loop()
            )
            await one.task(id).cancel()


async def test_answers_that_fit_no_question_or_no_bound_are_refused_at_once(path: Path) -> None:
    here, there = server(path, journal=1000), server(path, journal=1000)
    async with client(here, EXTENDED) as one, client(there, EXTENDED) as other:
        id = (await one.start_tool("ask", manual=True)).id
        await reached(one, id, "input_required")
        for answer in ({"action": "shrug"}, {"action": "accept", "content": {"sure": "x" * 1000}}):
            with pytest.raises(InvalidParams):
                await other.request(
                    "tasks/update", {"taskId": id, "inputResponses": {"sure": answer}}
                )
        await other.request(
            "tasks/update", {"taskId": id, "inputResponses": {"other": {"action": "accept"}}}
        )
        assert await store(here).receive_messages({id}) == []
