"""Tasks where something goes wrong around them: an end that cannot be written down, a call that is
cancelled while its task begins, an engine that refuses, a server without the tool, a letter that is
none, other event loops, and forks."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from dovetail import Client, Context, Server
from dovetail.errors import (
    ConfigError,
    InternalError,
    InvalidParams,
    Overloaded,
    ProtocolError,
    TooLarge,
)
from dovetail.extensions.tasks import (
    InMemoryTaskStore,
    Lease,
    SqliteStore,
    TaskMessage,
    TaskRecord,
    TaskSettings,
)
from dovetail.extensions.tasks.manager import TaskManager
from dovetail.extensions.tasks.store import Claim, TaskOrigin, TaskStore
from dovetail.limits import Limits
from tests.extensions.test_tasks import CORE, EXTENDED, Site, Sure, extended, settled, until

forks = pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")


@pytest.fixture(params=[CORE, EXTENDED])
def form(request: pytest.FixtureRequest) -> str:
    """Both forms."""
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def manager(server: Server) -> TaskManager:
    assert server.tasks is not None
    return server.tasks.manager


class Ill(InMemoryTaskStore):
    """Cannot write down that anything is over, so many times."""

    def __init__(self, error: Exception, times: float) -> None:
        super().__init__()
        self.error, self.times = error, times

    async def put(self, record: TaskRecord, lease: Lease) -> bool:
        if record.over and self.times:
            self.times -= 1
            raise self.error
        return await super().put(record, lease)


# an end that cannot be written down


async def test_that_a_task_is_over_is_written_down_however_long_that_takes(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.outcome.SAVE_RETRY_SECONDS", (0, 0))
    site = Site(tasks=Ill(Overloaded("disk I/O error"), 20))
    site.go.set()
    async with Client(site.server, revision=form) as client:
        handle = await client.start_tool("wait")
        assert (await settled(client, handle.id)).status == "completed"
    assert site.done == ["wait"] and manager(site.server).running == {}


endless: list[Any] = []
endless.append(endless)


@pytest.mark.parametrize(
    ("error", "code", "told", "data"),
    [
        (ProtocolError(-5, "no \udcff"), -5, "no \ufffd", None),
        (ProtocolError(-5, "no", {"file": "\udcff"}), -5, "no", {"file": "\ufffd"}),
        (ProtocolError(-5, "no", msgspec.Raw(b'{"why": 1}')), -5, "no", {"why": 1}),
        (ProtocolError(-5, "no", {"why": 2**80}), -5, "no", None),
        (ProtocolError(-5, "no", {"why": object()}), -5, "no", None),
        (ProtocolError(-5, "no", endless), -5, "no", None),
        (
            ProtocolError(2**80, "no"),
            InternalError.code,
            "The task has finished, but its outcome could not be saved",
            None,
        ),
    ],
    ids=["text", "data", "raw", "number", "object", "endless", "code"],
)
@pytest.mark.parametrize("kept", ["memory", "sqlite"])
async def test_an_error_that_no_store_can_keep_is_told_as_far_as_it_can_be(
    error: ProtocolError, code: int, told: str, data: Any, form: str, kept: str, path: Path
) -> None:
    server = Server("odd", tasks=InMemoryTaskStore() if kept == "memory" else SqliteStore(path))

    @server.tool(task="required")
    async def odd() -> None:
        """Fail in words of its own."""
        raise error

    async with asyncio.timeout(60), Client(server, revision=form) as client:
        handle = await client.start_tool("odd")
        assert (await settled(client, handle.id)).status_message.startswith(told)
        with pytest.raises(ProtocolError, match=told) as raised:
            await handle.result()
    assert (raised.value.code, raised.value.data) == (code, data)


@pytest.mark.parametrize("kept", ["memory", "sqlite"])
async def test_a_tool_that_fails_over_a_name_that_is_no_text_is_over(
    form: str, kept: str, path: Path
) -> None:
    server = Server("names", tasks=InMemoryTaskStore() if kept == "memory" else SqliteStore(path))

    @server.tool(task="required")
    async def read() -> None:
        """Fail over a file."""
        raise RuntimeError("cannot read " + os.fsdecode(b"\xff"))

    async with asyncio.timeout(60), Client(server, revision=form) as client:
        result = await client.call_tool("read", raise_on_error=False)
    assert result.is_error and result.text.startswith("cannot read")


class Noting(InMemoryTaskStore):
    """Remembers the last message that it wrote down, which it cannot so many times."""

    def __init__(self, times: int = 0) -> None:
        super().__init__()
        self.times, self.noted = times, ""

    async def put(self, record: TaskRecord, lease: Lease) -> bool:
        if record.message is not None and self.times:
            self.times -= 1
            raise OSError("the line is down")
        done = await super().put(record, lease)
        self.noted = record.message or ""
        return done


@pytest.mark.parametrize("times", [0, 1])
async def test_how_far_a_task_has_come_is_written_down_in_valid_text_and_another_time_where_that_failed(  # noqa: E501
    form: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = Noting(times)
    server = Server("far", tasks=store, limits=Limits(progress_interval=0.001))

    @server.tool(task="required")
    async def far(ctx: Context) -> str:
        """Tell of a file until that is known."""
        while not store.noted:
            await ctx.progress(1, 2, "reading \udcff")
            await asyncio.sleep(0.01)
        return store.noted

    async with asyncio.timeout(60), Client(server, revision=form) as client:
        assert (await client.call_tool("far")).text == "reading \ufffd"
    assert caplog.text.count("the line is down") == times


@pytest.mark.parametrize("times", [1, 20])
async def test_a_store_that_fails_in_a_way_of_its_own_loses_the_result_and_not_the_end(
    form: str, times: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.outcome.SAVE_RETRY_SECONDS", (0, 0))
    site = Site(tasks=Ill(OSError("the line is down"), times))
    site.go.set()
    async with asyncio.timeout(60), Client(site.server, revision=form) as client:
        handle = await client.start_tool("wait")
        assert (await settled(client, handle.id)).status == "failed"
        with pytest.raises(InternalError, match="its outcome could not be saved"):
            await handle.result()
    assert (
        site.done == ["wait"]
        and manager(site.server).running == {}
        and "the line is down" in caplog.text
    )


async def test_that_a_task_was_stopped_and_may_be_resumed_is_said_where_it_cannot_be_written_down(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Down(InMemoryTaskStore):
        async def put(self, record: TaskRecord, lease: Lease) -> bool:
            raise OSError("the line is down")

    server = Server("stops", tasks=Down())

    @server.tool(task="required", resumable=True)
    async def stay() -> None:
        """Take for ever."""
        await asyncio.Event().wait()

    async with Client(server, revision=form) as client:
        work = manager(server).running[(await client.start_tool("stay")).id]
        assert work.asyncio_task is not None
        work.stop()
        await asyncio.wait([work.asyncio_task])
        assert work.asyncio_task.exception() is None and manager(server).running == {}
    assert "could not be saved: the line is down" in caplog.text


async def test_nobody_tries_to_write_down_what_has_expired(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.outcome.SAVE_RETRY_SECONDS", (0.01,))
    site = Site(tasks=Ill(Overloaded("disk I/O error"), float("inf")), limits=Limits(task_life=0.2))
    site.go.set()
    async with Client(site.server, revision=form) as client:
        await client.start_tool("wait")
        assert manager(site.server).running
        while manager(site.server).running:
            await asyncio.sleep(0.01)


async def test_who_waits_for_a_result_that_there_is_no_room_for_is_told() -> None:
    site = Site(tasks=Ill(TooLarge("full"), float("inf")))
    async with Client(site.server, revision=CORE) as client:
        id = (await client.start_tool("wait")).id
        waiting = asyncio.create_task(client.request("tasks/result", {"taskId": id}))
        while manager(site.server).running[id].result_call is None:
            await asyncio.sleep(0)
        site.go.set()
        with pytest.raises(InvalidParams, match="no task"):
            await waiting


# how one begins


@pytest.mark.parametrize(
    ("form", "tool"), [(CORE, "wait"), (EXTENDED, "wait"), (EXTENDED, "later")]
)
async def test_a_call_that_is_cancelled_while_its_task_is_written_down_leaves_none(
    form: str, tool: str
) -> None:
    added = asyncio.Event()

    class Slow(InMemoryTaskStore):
        async def add(self, record: TaskRecord, *, claim: bool = True) -> Lease | None:
            await super().add(record, claim=claim)
            added.set()
            return await asyncio.Future()

    store, left = Slow(), asyncio.Event()
    server = Server("slow", tasks=store)

    @server.tool(task="optional", resumable=True)
    async def wait() -> None:
        """Is a task from the start."""

    @server.tool(task="optional", resumable=True)
    async def later(ctx: Context) -> None:
        """Goes on as a task."""
        try:
            await ctx.detach()
        finally:
            left.set()

    async with Client(server, revision=form) as client:
        call = asyncio.create_task(client.start_tool(tool))
        await added.wait()
        assert await store.claim_orphans(include_own=True)
        call.cancel()
        while await store.claim_orphans(include_own=True):
            await asyncio.sleep(0)
        if tool == "later":
            await left.wait()
    assert manager(server).running == {}


# what was left behind


def sharing(path: Path, *, engine: Any = None, named: str = "steps", **limits: Any) -> Server:
    """A server that shares a file, with a tool that can be resumed."""
    store = SqliteStore(path)
    settings = store if engine is None else TaskSettings(store=store, engine=engine)
    server = Server("one of several", tasks=settings, limits=Limits(**limits))

    @server.tool(name=named, task="required", resumable=True)
    async def steps(ctx: Context) -> str:
        """Ask, then say what came."""
        return str((await ctx.elicit("Sure?", Sure, key="sure")).action)

    return server


def ended(server: Server, work: Coroutine[Any, Any, Any]) -> Any:
    """What comes of some work at a server that ends with it, as if its process did."""
    try:
        return asyncio.run(work)
    finally:
        asyncio.run(manager(server).store.close())


def begun(server: Server) -> str:
    async def begin() -> str:
        async with extended(server) as ask:
            id = str((await ask("tools/call", name="steps"))["taskId"])
            await until(ask, id, "input_required")
            return id

    return str(ended(server, begin()))


def looked(server: Server, id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        async with extended(server) as ask:
            return await ask("tasks/get", taskId=id)

    return dict(ended(server, look()))


async def answered(server: Server, id: str) -> str:
    async with asyncio.timeout(60), extended(server) as ask:
        await until(ask, id, "input_required", "failed")
        await ask("tasks/update", taskId=id, inputResponses={"sure": {"action": "decline"}})
        return str((await until(ask, id, "completed", "failed"))["status"])


def test_a_task_that_the_engine_does_not_take_again_has_failed(path: Path) -> None:
    def refuse(id: str, perform: Any) -> None:
        raise RuntimeError("the queue is away")

    task = looked(sharing(path, engine=refuse), begun(sharing(path)))
    assert task["status"] == "failed" and "could not be resumed" in task["error"]["message"]


def test_what_can_be_resumed_is_left_to_a_server_that_has_the_tool(path: Path) -> None:
    id = begun(sharing(path))
    other = sharing(path, named="other")
    assert looked(other, id)["status"] == "input_required"

    async def beside() -> str:
        async with extended(other) as ask:
            assert (await ask("tasks/get", taskId=id))["status"] == "input_required"
            return await answered(sharing(path), id)

    assert ended(other, beside()) == "completed"


def test_a_question_that_is_asked_again_after_a_restart_counts_once(path: Path) -> None:
    id, again = begun(sharing(path, asks=1)), sharing(path, asks=1)
    assert ended(again, answered(again, id)) == "completed"


async def test_a_server_starts_though_its_store_fails_and_takes_up_what_was_left_when_it_can(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(InMemoryTaskStore):
        refusals = 1

        async def claim_orphans(self, **options: Any) -> list[Claim]:
            if self.refusals:
                self.refusals -= 1
                raise OSError("gone for a while")
            return await super().claim_orphans(**options)

    store, now = Odd(), time.time()
    await store.add(
        TaskRecord(
            id="left",
            created=now,
            updated=now,
            ttl=60.0,
            tool="wait",
            params=b"{}",
            origin=TaskOrigin(EXTENDED),
        )
    )
    site = Site(tasks=store)
    async with site.server.lifespan():
        assert "could not be resumed: gone for a while" in caplog.text
    assert not manager(site.server).busy
    async with Client(site.server, revision=form) as client:
        assert (await client.request("tasks/get", {"taskId": "left"})).status == "failed"


async def test_a_server_whose_file_cannot_be_used_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Tasks cannot be stored in"):
        async with Site(tasks=SqliteStore(tmp_path)).server.lifespan():
            pass


# letters


@asynccontextmanager
async def neighbours(
    path: Path, form: str, **limits: Any
) -> AsyncIterator[tuple[Server, Server, Client, str]]:
    """A server that runs a task, which has asked, and another one with a client."""
    here, there = sharing(path, **limits), sharing(path, **limits)
    async with (
        Client(here, revision=form, on_elicit=lambda request: None) as one,
        Client(there, revision=form, on_elicit=lambda request: None) as other,
    ):
        id = (await one.start_tool("steps", manual=True)).id
        await settled(one, id, "input_required")
        yield here, there, other, id


async def test_an_answer_that_does_not_fit_the_form_is_refused_by_every_process(path: Path) -> None:
    async with neighbours(path, EXTENDED) as (here, _, other, id):
        wrong = {"action": "accept", "content": {"sure": "perhaps"}}
        with pytest.raises(InvalidParams, match="`sure`"):
            await other.request("tasks/update", {"taskId": id, "inputResponses": {"sure": wrong}})
        assert await manager(here).store.receive_messages({id}) == []
        right = {"action": "accept", "content": {"sure": True}}
        await other.request("tasks/update", {"taskId": id, "inputResponses": {"sure": right}})
        assert (await settled(other, id)).status == "completed"


async def test_a_cancellation_counts_though_there_is_no_room_for_the_letter(
    path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.signals.POLL_SECONDS", 60)
    async with neighbours(path, form, asks=2) as (here, there, other, id):
        await asyncio.sleep(0)
        for _ in range(2):
            await manager(there).store.send_message(TaskMessage(id, refused={"other": "no"}))
        await other.task(id).cancel()
        assert (await other.request("tasks/get", {"taskId": id})).status == "cancelled"
        assert len(await manager(here).store.receive_messages({id})) == 2


async def test_a_letter_says_no_more_than_it_has_to(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.extensions.tasks.signals.POLL_SECONDS", 60)
    async with neighbours(path, CORE) as (here, there, _, id):
        record = await manager(there).find(id)
        assert record is not None
        await manager(there).deliver(
            record, TaskMessage(id, refused={"sure": "no " * 100_000, "other": "no"})
        )
        ((_, letter),) = await manager(here).store.receive_messages({id})
        assert letter.refused == {"sure": ("no " * 1000)[:1000]}


# other event loops


async def test_a_task_writes_to_no_stream_of_another_event_loop() -> None:
    stepped, heard = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    async def stepping(call: Any, next: Any) -> Any:
        if call.name != "tasks/result":
            return await next(call)
        waiting = asyncio.ensure_future(next(call))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        loop.call_soon_threadsafe(stepped.set)
        return await waiting

    server = Server("loops", middleware=[stepping])

    @server.tool(task="required")
    async def speak(ctx: Context) -> str:
        """Say something once somebody waits."""
        await stepped.wait()
        ctx.info("hello")
        return "spoken"

    async def elsewhere(id: str) -> str:
        async with Client(
            server, revision=CORE, on_log=lambda said: heard.append("there")
        ) as client:
            return str((await client.request("tasks/result", {"taskId": id})).content[0].text)

    async with Client(server, revision=CORE, on_log=lambda said: heard.append("here")) as client:
        id = (await client.start_tool("speak")).id
        assert await asyncio.to_thread(asyncio.run, elsewhere(id)) == "spoken"
    assert heard == ["here"]


async def test_who_waits_for_a_task_may_be_woken_up_from_another_thread() -> None:
    site = Site()
    loop = asyncio.get_running_loop()
    async with Client(site.server, revision=EXTENDED) as client:
        id = (await client.start_tool("wait")).id
        await settled(client, id, "working")
        waiting = asyncio.create_task(manager(site.server).wait_for_change(id, 60))
        await asyncio.sleep(0)
        loop.set_debug(True)  # then it notices what is not safe
        try:
            await asyncio.to_thread(manager(site.server).signal_change, id)
        finally:
            loop.set_debug(False)
        await waiting
        site.go.set()
        await settled(client, id)


def test_threads_that_listen_do_not_forget_for_each_other() -> None:
    one, forgotten = manager(Site().server), []

    def listen(name: str) -> None:
        for number in range(2000):
            with one.listening([f"{name} {number}"]):
                if not one.is_listened(f"{name} {number}"):
                    forgotten.append(name)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=listen, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert forgotten == [] and not one._listened_ids


# forks


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kept", ["memory", "sqlite"])
async def test_a_child_that_was_forked_runs_nothing_of_its_parent(kept: str, path: Path) -> None:
    store: TaskStore = InMemoryTaskStore() if kept == "memory" else SqliteStore(path)
    ran = path.with_name("ran")
    server = Server("parent", tasks=store)

    @server.tool(task="required", resumable=True)
    async def wait() -> None:
        """Note that it runs, and wait."""
        with ran.open("a", encoding="utf-8") as file:
            file.write("x")
        await asyncio.Event().wait()

    async def child(id: str) -> int:
        async with Client(server, revision=EXTENDED) as client:
            if kept == "memory":
                with pytest.raises(InvalidParams, match="no task"):
                    await client.request("tasks/get", {"taskId": id})
            else:
                async with asyncio.timeout(60):
                    await client.task(id).cancel()
            return len(manager(server).running)

    async with Client(server, revision=EXTENDED) as client:
        id = (await client.start_tool("wait")).id
        while not ran.exists():
            await asyncio.sleep(0.01)
        pid = os.fork()
        if pid == 0:  # nothing of pytest may go on here
            code = 1
            try:
                asyncio._set_running_loop(None)
                code = asyncio.run(child(id))
            finally:
                os._exit(code)
        while (gone := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            await asyncio.sleep(0.01)
        assert gone == (pid, 0)
        if kept == "sqlite":
            assert (await settled(client, id)).status == "cancelled"
        else:
            await client.task(id).cancel()
        while manager(server).running:
            await asyncio.sleep(0.01)
    assert ran.read_text() == "x"
