"""Tasks at their edges: a tool that asks by itself, or sends its user to a page first, a store that
is full or busy, an engine that leaves the work to others, a question that cannot be put, and
whoever comes too late."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, InputRequired, Server, ToolError
from dovetail.auth import ApiKeys
from dovetail.errors import (
    ConfigError,
    InternalError,
    InvalidParams,
    NotFound,
    Overloaded,
    ProtocolError,
    TooLarge,
    UrlRequired,
)
from dovetail.extensions.tasks import (
    InMemoryTaskStore,
    Lease,
    SqliteStore,
    TaskRecord,
    TaskSettings,
)
from dovetail.limits import Limits
from dovetail.ports import HttpRequest
from dovetail.protocol.client_features import ElicitParams
from dovetail.testing import bare
from tests.extensions.test_tasks import (
    ABLE,
    CORE,
    EXTENDED,
    OVER,
    SURE,
    Site,
    Sure,
    accept,
    declared,
    extended,
    settled,
    undeclared,
    until,
)
from tests.transports.http.raw import hosted, modern


@pytest.fixture(params=[CORE, EXTENDED])
def form(request: pytest.FixtureRequest) -> str:
    """Both forms."""
    return str(request.param)


def question(message: str) -> ElicitParams:
    return ElicitParams(message=message, mode="form", requested_schema=SURE)


# a tool that asks by itself


async def test_a_tool_that_wants_to_be_called_again_later_is_with_its_state(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.connection.multi_round_trip.FIRST_PAUSE", 0.001)
    server, states = Server("later"), []

    @server.tool(task="required")
    async def later(ctx: Context) -> Any:
        """Come back twice."""
        states.append(ctx.request_state)
        return "done" if len(states) == 3 else InputRequired({}, state=str(len(states)))

    async with Client(server, revision=form) as client:
        assert (await client.call_tool("later")).text == "done"
    assert states == [None, "1", "2"]


async def test_a_tool_that_never_stops_asking_for_more_is_stopped(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.connection.multi_round_trip.FIRST_PAUSE", 0.001)
    server, calls = Server("never", limits=Limits(asks=3)), []

    @server.tool(task="required")
    async def never(ctx: Context) -> Any:
        """Come back for ever."""
        calls.append(1)
        return InputRequired({}, state="later")

    async with Client(server, revision=form) as client:
        with pytest.raises(InternalError, match="3 times in a row"):
            await client.call_tool("never")
    assert len(calls) == 4


async def test_a_tool_that_asks_nothing_and_keeps_nothing_is_told_so(form: str) -> None:
    server = Server("empty")

    @server.tool(task="required")
    async def empty() -> Any:
        """Return neither a question nor a state."""
        return InputRequired({})

    async with Client(server, revision=form) as client:
        with pytest.raises(InternalError, match="without any questions or state"):
            await client.call_tool("empty")


async def test_a_question_that_is_refused_takes_the_others_back_and_is_told_as_the_tools_failure() -> (  # noqa: E501
    None
):
    server, asked, withdrawn = Server("explicit"), asyncio.Event(), asyncio.Event()

    @server.tool(task="required")
    async def explicit(ctx: Context) -> Any:
        """Ask two things at once."""
        return InputRequired({"one": question("One?"), "two": question("Two?")})

    async def answer(request: Any) -> None:
        if request.message == "One?":
            await asked.wait()
            raise ValueError("no")
        try:
            asked.set()
            await asyncio.Event().wait()
        finally:
            withdrawn.set()

    async with Client(server, revision=CORE, on_elicit=answer) as client:
        with pytest.raises(ToolError, match="rejected"):
            await client.call_tool("explicit")
        await withdrawn.wait()


@pytest.mark.requirement("tasks-keys")
async def test_what_a_tool_asks_before_it_is_called_again_is_asked_once(form: str) -> None:
    server, asked = Server("mixed"), []

    @server.tool(task="required")
    async def mixed(ctx: Context) -> Any:
        """Ask both ways, and the second one twice."""
        first = await ctx.elicit("First?", Sure)
        rounds = len([one for one in asked if one == "Second?"])
        return (
            InputRequired({"second": question("Second?")}, state="x")
            if rounds < 2
            else first.action
        )

    def answer(request: Any) -> dict[str, bool]:
        asked.append(request.message)
        return {"sure": True}

    async with Client(server, revision=form, on_elicit=answer) as client:
        assert (await client.call_tool("mixed")).text == "accept"
    assert asked == ["First?", "Second?", "Second?"]


@pytest.mark.requirement("tasks-keys", "tasks-all-questions")
async def test_a_key_that_is_counted_is_not_one_that_was_given() -> None:
    server = Server("keys")

    @server.tool(task="required")
    async def keys(ctx: Context) -> str:
        """Ask under keys that look alike."""
        await asyncio.gather(
            *(ctx.elicit(f"{key}?", Sure, key=key) for key in ("a", "a", "a.2", "a"))
        )
        return "done"

    async with extended(server) as ask:
        id = (await ask("tools/call", name="keys"))["taskId"]
        open = (await until(ask, id, "input_required"))["inputRequests"]
        while len(open) < 4:
            open = (await ask("tasks/get", taskId=id))["inputRequests"]
        assert sorted(one["params"]["message"] for one in open.values()) == [
            "a.2?",
            "a?",
            "a?",
            "a?",
        ]
        await ask(
            "tasks/update", taskId=id, inputResponses={key: {"action": "decline"} for key in open}
        )
        assert (await until(ask, id, *OVER))["status"] == "completed"


# a page to visit first


class Visiting:
    """A server whose tool wants a page visited before it does anything."""

    def __init__(self) -> None:
        self.server, self.asked, self.visited, self.runs = Server("visiting"), [], False, 0

        @self.server.tool(task="required", resumable=True)
        async def connect(ctx: Context) -> str:
            """Ask something, then send the user away."""
            self.runs += 1
            sure = await ctx.elicit("Sure?", Sure)
            if not self.visited:
                raise UrlRequired("Sign in first", url="https://example.com/login")
            return str(sure.action)

    def answer(self, action: str) -> Callable[[Any], Any]:
        def answer(request: Any) -> Any:
            self.asked.append(request.mode)
            if request.mode != "url":
                return {"sure": True}
            self.visited = self.asked.count("url") == 2
            return None if action == "decline" else True

        return answer


async def test_a_page_that_has_to_be_visited_is_a_question_of_the_task() -> None:
    site = Visiting()
    async with Client(site.server, revision=EXTENDED, on_elicit=site.answer("accept")) as client:
        assert (await client.call_tool("connect")).text == "accept"
    assert site.asked == ["form", "url", "url"], "the page until it was visited, and the rest once"
    assert site.runs == 3


async def test_who_does_not_want_to_visit_the_page_is_told_as_the_tools_failure() -> None:
    site = Visiting()
    async with Client(site.server, revision=EXTENDED, on_elicit=site.answer("decline")) as client:
        with pytest.raises(ToolError, match="declined to visit"):
            await client.call_tool("connect")
    assert site.runs == 1


async def test_in_the_core_form_the_result_is_the_error_that_names_the_page() -> None:
    site = Visiting()
    async with Client(site.server, revision=CORE, on_elicit=site.answer("accept")) as client:
        handle = await client.start_tool("connect")
        await asyncio.gather(handle.result(), return_exceptions=True)
        with pytest.raises(UrlRequired, match="Sign in first") as raised:
            await client.request("tasks/result", {"taskId": handle.id})
    assert [page.url for page in raised.value.elicitations] == ["https://example.com/login"]
    assert site.runs == 1


async def test_who_cannot_be_sent_to_a_page_fails_the_task() -> None:
    site = Visiting()
    async with extended(site.server) as ask:
        id = (await ask("tools/call", name="connect"))["taskId"]
        (key,) = (await until(ask, id, "input_required"))["inputRequests"]
        await ask("tasks/update", taskId=id, inputResponses={key: {"action": "decline"}})
        error = (await until(ask, id, *OVER))["error"]
        assert (
            error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}
            and "Sign in" in error["message"]
        )


# stores that are busy, or full


async def test_an_answer_that_cannot_be_written_down_still_gets_to_the_tool() -> None:
    class Busy(InMemoryTaskStore):
        refusals = 1

        async def put(self, record: TaskRecord, lease: Lease) -> bool:
            if record.answers and self.refusals:
                self.refusals -= 1
                raise Overloaded("busy")
            return await super().put(record, lease)

    async with extended(Site(tasks=Busy()).server) as ask:
        id = (await ask("tools/call", name="both"))["taskId"]
        await until(ask, id, "input_required")
        answers = {"one": {"action": "decline"}, "two": {"action": "cancel"}}
        with pytest.raises(ProtocolError, match="busy"):
            await ask("tasks/update", taskId=id, inputResponses=answers)
        assert (await until(ask, id, *OVER))["result"]["content"][0]["text"] == "decline cancel"


async def test_what_a_task_needed_to_run_makes_room_for_its_result(form: str) -> None:
    server = Server("large", limits=Limits(task_bytes=100_000))

    @server.tool(task="required")
    async def swap(text: str) -> str:
        """Give back as much as it took."""
        return "y" * len(text)

    async with Client(server, revision=form) as client:
        assert len((await client.call_tool("swap", {"text": "x" * 40_000})).text) == 40_000


async def test_an_error_that_there_is_no_room_for_is_told_in_few_words(form: str) -> None:
    server = Server("wordy", limits=Limits(task_bytes=20_000))

    @server.tool(task="required")
    async def wordy() -> None:
        """Fail at length."""
        raise InternalError("no " * 10_000, data=["why"] * 10_000)

    async with Client(server, revision=form) as client:
        handle = await client.start_tool("wordy")
        assert (await settled(client, handle.id)).status == "failed"
        with pytest.raises(InternalError, match="no no no") as raised:
            await handle.result()
    assert raised.value.data is None and len(raised.value.message) == 1000


async def test_a_task_whose_end_there_is_no_room_for_at_all_is_gone(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(InMemoryTaskStore):
        async def put(self, record: TaskRecord, lease: Lease) -> bool:
            if record.over:
                raise TooLarge("full")
            return await super().put(record, lease)

    site = Site(tasks=Full())
    site.go.set()
    async with Client(site.server, revision=form) as client:
        handle = await client.start_tool("wait")
        with pytest.raises(NotFound):
            await handle.result()
    assert "could not be saved: full" in caplog.text


@pytest.mark.parametrize("timeout", [None, 0.05], ids=["timeout around it", "timeout of its own"])
async def test_a_question_that_the_tool_gave_up_is_gone_from_the_store_too(
    form: str, timeout: float | None
) -> None:
    store, go = InMemoryTaskStore(), asyncio.Event()
    server = Server("impatient", tasks=store)

    @server.tool(task="required")
    async def impatient(ctx: Context) -> str:
        """Wait for an answer, but not long."""
        try:
            async with asyncio.timeout(0.05 if timeout is None else None):
                await ctx.elicit("Sure?", Sure, timeout=timeout)
        except TimeoutError as error:
            await go.wait()
            return type(error).__name__
        return "answered"

    async with Client(server, revision=form, on_elicit=accept) as client:
        handle = await client.start_tool("impatient", manual=form == EXTENDED)
        await settled(client, handle.id, "input_required")
        await settled(client, handle.id, "working")
        kept = await store.get(handle.id)
        assert kept is not None and (kept.status, kept.questions) == ("working", {})
        go.set()
        assert (await settled(client, handle.id)).status == "completed"
        outcome = await handle.result()
        assert outcome.text == ("TimeoutError" if timeout is None else "TimedOut")


# engines


class Elsewhere:
    """Two servers that share a file. What is begun at the one is performed by the other, when the
    test says so."""

    def __init__(self, path: Path) -> None:
        self.queue: list[str] = []
        self.front = self._server(path, lambda id, perform: self.queue.append(id))
        self.back = self._server(path, lambda id, perform: self.queue.append(id))
        self.performed: list[str] = []

    def _server(self, path: Path, engine: Any) -> Server:
        @asynccontextmanager
        async def lifespan() -> AsyncIterator[str]:
            yield "alive"

        server = Server(
            "elsewhere",
            tasks=TaskSettings(store=SqliteStore(path), engine=engine),
            lifespan=lifespan,
        )

        @server.tool(task="required")
        async def work(text: str, ctx: Context) -> str:
            """Tell what it has to work with."""
            self.performed.append(text)
            sure = await ctx.elicit("Sure?", Sure)
            return f"{text} {ctx.state} {sure.action}"

        return server

    async def perform(self) -> None:
        assert self.back.tasks is not None
        await self.back.tasks.perform(self.queue.pop(0))


async def test_a_task_may_be_performed_by_another_process_than_the_one_that_began_it(
    form: str, tmp_path: Path
) -> None:
    site = Elsewhere(tmp_path / "tasks.db")
    async with (
        Client(site.front, revision=form, on_elicit=accept) as client,
        Client(site.back, revision=form),
    ):
        handle = await client.start_tool("work", {"text": "hello"})
        assert (await client.request("tasks/get", {"taskId": handle.id})).status == "working"
        performing = asyncio.create_task(site.perform())
        assert (await handle.result()).text == "hello alive accept"
        await performing
    assert site.performed == ["hello"]


async def test_what_waits_for_an_engine_is_not_taken_for_what_was_left_behind(
    form: str, tmp_path: Path
) -> None:
    site = Elsewhere(tmp_path / "tasks.db")
    async with Client(site.front, revision=form, on_elicit=accept) as client:
        handle = await client.start_tool("work", {"text": "hello"})
    async with (
        Client(site.front, revision=form, on_elicit=accept) as client,
        Client(site.back, revision=form),
    ):
        assert (await client.request("tasks/get", {"taskId": handle.id})).status == "working"
        performing = asyncio.create_task(site.perform())
        assert (await client.task(handle.id).result()).text == "hello alive accept"
        await performing


async def test_what_was_cancelled_before_its_turn_is_not_performed(
    form: str, tmp_path: Path
) -> None:
    site = Elsewhere(tmp_path / "tasks.db")
    async with Client(site.front, revision=form) as client, Client(site.back, revision=form):
        handle = await client.start_tool("work", {"text": "hello"})
        await handle.cancel()
        assert (await settled(client, handle.id)).status == "cancelled"
        await site.perform()
    assert site.performed == []


async def test_what_is_cancelled_at_once_does_not_even_begin(form: str) -> None:
    begun = []

    async def hasty(call: Any, next: Any) -> Any:
        result = await next(call)
        if call.name == "tools/call":
            made = getattr(result, "task", result)
            await manager.cancel(await manager.find(made.task_id))
        return result

    server = Server("quick", middleware=[hasty])

    @server.tool(task="required")
    async def quick() -> None:
        """Note that it began."""
        begun.append(1)

    assert server.tasks is not None
    manager: Any = server.tasks.manager
    async with Client(server, revision=form) as client:
        handle = await client.start_tool("quick")
        assert (await settled(client, handle.id)).status == "cancelled"
        while manager.running:
            await asyncio.sleep(0)
    assert begun == []


async def test_a_task_that_is_handed_out_twice_is_performed_once(form: str) -> None:
    queue: list[Any] = []
    site = Site(tasks=TaskSettings(engine=lambda id, perform: queue.append((id, perform))))
    site.go.set()
    async with Client(site.server, revision=form) as client:
        handle = await client.start_tool("wait")
        ((id, perform),) = queue
        await asyncio.gather(perform(id), perform(id))
        await perform(id)
        assert (await handle.result()).text == "waited"
    assert site.done == ["wait"]


async def test_an_engine_that_takes_no_more_leaves_no_task_behind(form: str) -> None:
    def engine(id: str, perform: Any) -> None:
        raise Overloaded("the queue is full")

    site = Site(tasks=TaskSettings(engine=engine), limits=Limits(tasks=1))
    async with Client(site.server, revision=form) as client:
        for _ in range(2):
            with pytest.raises(Overloaded, match="the queue is full"):
                await client.start_tool("wait")


# the core form


@pytest.mark.requirement("tasks-core-created")
async def test_a_call_that_asks_for_a_task_gets_one_whether_it_comes_to_detach_or_not() -> None:
    server = Server("detaching")

    @server.tool(task="optional")
    async def perhaps(ctx: Context, long: bool = False) -> str:
        """Detach only where it takes long."""
        if long:
            await ctx.detach()
        return "done"

    async with bare(server) as peer:
        await peer.greet(CORE)
        for long in (False, True):
            params = {"name": "perhaps", "arguments": {"long": long}, "task": {}}
            task = (await peer.ask("tools/call", params))["result"]["task"]
            assert task["status"] == "working"
            result = (await peer.ask("tasks/result", {"taskId": task["taskId"]}))["result"]
            assert result["content"][0]["text"] == "done"
    async with extended(server) as ask:
        assert (await ask("tools/call", name="perhaps", arguments={}))["content"][0][
            "text"
        ] == "done"
        assert (await ask("tools/call", name="perhaps", arguments={"long": True}))[
            "resultType"
        ] == "task"


async def test_a_tool_that_detaches_something_else_and_takes_no_context_is_a_task_from_the_start(
    form: str,
) -> None:
    server = Server("arrays")

    @server.tool(task="required")
    async def copy() -> str:
        """Detach what is no call."""
        return str(Array().detach())

    async with Client(server, revision=form) as client:
        handle = await client.start_tool("copy")
        assert handle.id and (await handle.result()).text == "detached"


class Array:
    """What others call detached."""

    def detach(self) -> str:
        return "detached"


async def test_a_question_that_cannot_be_put_ends_the_wait_and_not_the_task() -> None:
    site = Site()
    async with hosted(site.server) as place:
        session = await place.greet(CORE, capabilities={"elicitation": {}})
        made = await (await session.ask("tools/call", {"name": "both", "task": {}})).json()
        id = made["result"]["task"]["taskId"]
        answer = await session.ask(
            "tasks/result", {"taskId": id}, headers={"Accept": "application/json"}
        )
        assert "a client that accepts an event stream" in (await answer.json())["error"]["message"]
        look = await (await session.ask("tasks/get", {"taskId": id})).json()
        assert look["result"]["status"] == "input_required"


@pytest.mark.requirement("tasks-core-cancel")
async def test_to_cancel_what_was_faster_is_refused() -> None:
    class Slow(InMemoryTaskStore):
        def __init__(self) -> None:
            super().__init__()
            self.ending, self.go = asyncio.Event(), asyncio.Event()

        async def put(self, record: TaskRecord, lease: Lease) -> bool:
            if record.status == "completed":
                self.ending.set()
                await self.go.wait()
            return await super().put(record, lease)

    store = Slow()
    site = Site(tasks=store)
    site.go.set()
    async with bare(site.server) as peer:
        await peer.greet(CORE)
        id = (await peer.ask("tools/call", {"name": "wait", "task": {}}))["result"]["task"][
            "taskId"
        ]
        await store.ending.wait()
        cancelling = asyncio.create_task(peer.ask("tasks/cancel", {"taskId": id}))
        await asyncio.sleep(0.01)
        store.go.set()
        error = (await cancelling)["error"]
        assert error["code"] == InvalidParams.code and "already completed" in error["message"]


# whoever comes too late


async def test_what_is_over_says_when_it_ended_and_not_when_its_tool_gave_up(form: str) -> None:
    server, ended = Server("late"), asyncio.Event()

    @server.tool(task="required")
    async def late(ctx: Context) -> None:
        """Do something once more when it is cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.once("bye", lambda: None)
            ctx.progress(1, 1, "bye")
            ended.set()

    async with Client(server, revision=form) as client:
        handle = await client.start_tool("late")
        await settled(client, handle.id, "working")
        await handle.cancel()
        before = await settled(client, handle.id)
        await ended.wait()
        after = await settled(client, handle.id)
        assert (after.last_updated_at, after.status_message) == (before.last_updated_at, None)


# what callers send


@pytest.mark.requirement("tasks-param-ignored")
@pytest.mark.parametrize("task", [5, "soon", [], {"ttl": "long"}, {"ttl": 1}])
async def test_the_extension_ignores_what_the_core_form_asks_for_a_task_with(task: Any) -> None:
    site = Site()
    site.go.set()
    async with bare(site.server) as peer:
        plain = (await peer.ask("tools/call", {"name": "wait", "task": task, **undeclared()}))[
            "result"
        ]
        assert plain["content"][0]["text"] == "waited"
        made = (await peer.ask("tools/call", declared(EXTENDED, name="wait", task=task)))["result"]
        assert made["resultType"] == "task" and made["ttlMs"] == 3_600_000


@pytest.mark.requirement("tasks-host-ignored")
@pytest.mark.parametrize("revision", ["2025-06-18", CORE])
async def test_who_has_no_tasks_ignores_the_wish_for_one_whatever_it_is(revision: str) -> None:
    server = Server("none")
    server.add_tool(lambda: "done", name="quick")
    async with bare(server) as peer:
        await peer.greet(revision)
        reply = await peer.ask("tools/call", {"name": "quick", "task": 5})
        assert reply["result"]["content"][0]["text"] == "done"


@pytest.mark.requirement("tasks-core-ttl")
@pytest.mark.parametrize("task", [5, [], {"ttl": True}, {"ttl": 0}, {"ttl": "long"}, {"ttl": -1}])
async def test_a_wish_for_a_task_that_makes_no_sense_is_refused(task: Any) -> None:
    async with bare(Site().server) as peer:
        await peer.greet(CORE)
        assert (await peer.ask("tools/call", {"name": "wait", "task": task}))["error"][
            "code"
        ] == InvalidParams.code


@pytest.mark.requirement("tasks-core-cursor")
@pytest.mark.parametrize("number", ["nonsense", 10**30, -1, 2**63, 1.5, None])
async def test_a_cursor_that_is_none_is_refused(number: Any, tmp_path: Path) -> None:
    cursor = number if number == "nonsense" else json.dumps(["tasks", number]).encode().hex()
    for store in (InMemoryTaskStore(), SqliteStore(tmp_path / "tasks.db")):
        async with bare(Site(tasks=store).server) as peer:
            await peer.greet(CORE)
            assert (await peer.ask("tasks/list", {"cursor": cursor}))["error"][
                "code"
            ] == InvalidParams.code


# whose it is


@pytest.mark.requirement("tasks-owner", "tasks-core-owner")
async def test_nobody_else_answers_fetches_or_hears_of_a_task(form: str) -> None:
    site = Site(auth=ApiKeys({"a" * 20: "ada", "b" * 20: "bob"}))
    async with hosted(site.server) as place:

        def caller(key: str) -> Client:
            url = f"http://127.0.0.1:{place.port}/mcp"
            return Client(url, revision=form, headers={"x-api-key": key * 20}, on_elicit=accept)

        async with caller("a") as ada, caller("b") as bob:
            handle = await ada.start_tool("both", **({"manual": True} if form == EXTENDED else {}))
            await settled(ada, handle.id, "input_required")
            tries: dict[str, Any] = {"tasks/get": {}, "tasks/cancel": {}}
            tries |= (
                {"tasks/result": {}} if form == CORE else {"tasks/update": {"inputResponses": {}}}
            )
            for method, params in tries.items():
                with pytest.raises(InvalidParams, match="no task"):
                    await bob.request(method, {"taskId": handle.id, **params})
            assert (await settled(ada, handle.id, "input_required")).status == "input_required"
            if form == EXTENDED:
                body, headers = modern(
                    "subscriptions/listen",
                    {"notifications": {"taskIds": [handle.id]}},
                    capabilities=ABLE,
                )
                for key, heard in (("a", {"taskIds": [handle.id]}), ("b", {})):
                    stream = await place.post(body, {**headers, "x-api-key": key * 20})
                    assert (await stream.next()).message["params"]["notifications"] == heard
                    stream.cut()
                answers = {"one": {"action": "decline"}, "two": {"action": "decline"}}
                await ada.request("tasks/update", {"taskId": handle.id, "inputResponses": answers})
            assert (await handle.result()).text == (
                "accept accept" if form == CORE else "decline decline"
            )


# where it may run, and what is known of it


async def test_what_ends_after_each_request_needs_a_store_that_does_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="share their tasks"):
        await Site().server.handle(HttpRequest(body=b"{}"))
    with_a_file = Site(tasks=str(tmp_path / "tasks.db")).server
    assert (await with_a_file.handle(HttpRequest(body=b"{}"))).status == 415, (
        "it has no content type, and no other fault"
    )


@pytest.mark.requirement("tasks-core-audit")
async def test_that_a_task_began_ended_and_was_fetched_is_logged_and_its_id_is_not(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dovetail.tasks")
    site = Site()
    site.go.set()
    async with Client(site.server, revision=form) as client:
        handle = await client.start_tool("wait")
        await handle.result()
        with pytest.raises(InvalidParams):
            await client.request("tasks/get", {"taskId": "nowhere"})
    name = f"{handle.id[:8]}… (wait, owner: anonymous)"
    said = [record.getMessage() for record in caplog.records if record.name == "dovetail.tasks"]
    assert said[0] == f"Task {name} has started" and f"Task {name}: completed" in said
    assert f"The outcome of task {name} was fetched" in said
    assert said[-1] == "tasks/get from an anonymous caller refers to an unknown task"
    assert handle.id not in caplog.text
