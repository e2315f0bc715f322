"""Tasks, as a client waits for them: against a server that is played by hand, in both forms."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from dovetail import Client, ToolError
from dovetail.client.task_handle import TaskUpdate, poll_interval
from dovetail.errors import (
    ConfigError,
    ConnectionClosed,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    ProtocolError,
    TaskCancelled,
    TimedOut,
)
from dovetail.limits import Limits
from dovetail.protocol.base import CLIENT_CAPABILITIES
from dovetail.protocol.tasks import EXTENSION, DetailedTask
from dovetail.testing import Bare
from tests.behaviour.handmade import OFFERED, complete, handmade, notification, refusal, reply
from tests.client.test_callbacks import form

MODERN, CORE = "2026-07-28", "2025-11-25"
EXTENDED = {**OFFERED, "extensions": {EXTENSION: {}}}
CORED = {**OFFERED, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
WHEN = "2026-11-15T09:00:00Z"
Play = Callable[[str, Any], Any]


class Refused(Exception):
    """Raised in a play: the request is refused with this code."""

    def __init__(self, code: int, message: str = "no") -> None:
        super().__init__(message)
        self.code = code


def task(status: str = "working", **fields: Any) -> dict[str, Any]:
    """A task, in the extension's form."""
    times = {"createdAt": WHEN, "lastUpdatedAt": WHEN, "ttlMs": None, "pollIntervalMs": 50}
    return {"resultType": "complete", "taskId": "t1", "status": status, **times, **fields}


def core(status: str = "working", **fields: Any) -> dict[str, Any]:
    """A task, in the core form."""
    times = {"createdAt": WHEN, "lastUpdatedAt": WHEN, "ttl": None, "pollInterval": 50}
    return {"taskId": "t1", "status": status, **times, **fields}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **fields}


class Played:
    """A server by hand: each request is answered by what `play` gives, in turn where that is a
    list."""

    def __init__(self, server: Bare, parts: dict[str, Any]) -> None:
        self._server = server
        self._parts = {
            name: iter(part) if isinstance(part, list) else part for name, part in parts.items()
        }
        self._running: set[asyncio.Task[None]] = set()
        self.heard: list[str] = []
        self.requests: list[Any] = []
        self._news = asyncio.Event()

    def send(self, message: Any) -> None:
        self._server.send(message)

    async def run(self) -> None:
        while True:
            message = await self._server.receive(60)
            self.heard.append(message.get("method", "reply"))
            self.requests.append(message)
            self._news.set()
            if "id" in message and "method" in message:
                answering = asyncio.create_task(self._answer(message))
                self._running.add(answering)
                answering.add_done_callback(self._running.discard)

    async def _answer(self, message: Any) -> None:
        part = self._parts.get(message["method"])
        try:
            given = next(part) if hasattr(part, "__next__") else part
            given = given(message.get("params")) if callable(given) else given
            given = await given if asyncio.iscoroutine(given) else given
            if isinstance(given, Exception):
                raise given
            assert given is not None, f"{message['method']} has no part"
            self.send(reply(message, given))
        except Refused as problem:
            self.send(refusal(message, problem.code, str(problem)))

    async def hears(self, method: str) -> Any:
        """Wait until this request came."""
        while method not in self.heard:
            self._news.clear()
            await self._news.wait()
        return next(one for one in self.requests if one.get("method") == method)


@asynccontextmanager
async def played(
    parts: dict[str, Any], revision: str = MODERN, capabilities: Any = None, **options: Any
) -> AsyncIterator[tuple[Client, Played]]:
    offered = capabilities or (EXTENDED if revision == MODERN else CORED)
    async with handmade(revision, offered, **options) as (client, server):
        play = Played(server, parts)
        playing = asyncio.create_task(play.run())
        try:
            yield client, play
        finally:
            await client.close()
            playing.cancel()


BEGUN = task(resultType="task")
DONE = task("completed", result=said("done", isError=False))


@pytest.mark.requirement("tasks-client-either", "tasks-client-until-over")
async def test_a_call_that_becomes_a_task_gives_its_result_as_if_nothing_had_happened() -> None:
    parts = {"tools/call": BEGUN, "tasks/get": [task(), task(statusMessage="half"), DONE]}
    heard: list[Any] = []
    async with played(parts) as (client, play):
        result = await client.call_tool("slow", {"n": 1}, on_progress=heard.append)
        assert result.text == "done"
        assert play.heard == ["tools/call", "tasks/get", "tasks/get", "tasks/get"]
        assert [(one.progress, one.message) for one in heard] == [(1.0, "half")]
        declared = play.requests[0]["params"]["_meta"][CLIENT_CAPABILITIES]["extensions"]
        assert declared == {EXTENSION: {}}


@pytest.mark.requirement("tasks-client-interval")
async def test_a_task_is_looked_at_as_often_as_the_server_proposes_within_reason() -> None:
    times: list[float] = []

    def state(_: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return DONE if len(times) == 4 else task(pollIntervalMs=[200, 1, None][len(times) - 1])

    async with played({"tools/call": {**BEGUN, "pollIntervalMs": 0}, "tasks/get": state}) as (
        client,
        _,
    ):
        await client.call_tool("slow")
    first, second, third = (after - before for before, after in pairwise(times))
    assert first >= 0.2 and 0.045 <= second < 0.2 and third >= 0.09


async def test_what_a_task_came_to_is_what_the_caller_gets() -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            task("failed", error={"code": -32603, "message": "the disk is full"}),
            InternalError,
            "the disk is full",
        ),
        (task("failed", error={"code": -7, "message": "odd"}), ProtocolError, "odd"),
        (task("failed", statusMessage="hm"), InternalError, "without an error: hm"),
        (task("cancelled", statusMessage="night"), TaskCancelled, "t1 was cancelled: night"),
        (task("completed", result=said("broken", isError=True)), ToolError, "broken"),
        (task("completed"), InvalidRequest, "is not valid"),
        (task("completed", result={"content": 7}), InvalidRequest, "is not valid"),
        (task("dreaming"), InvalidRequest, "is malformed"),
        (task("working", taskId="t2"), InvalidRequest, "returned task t2"),
        (Refused(-32602, "Task has expired"), NotFound, "Task t1 does not exist.* expired"),
        (Refused(-32603, "no store"), InternalError, "no store"),
    ]
    for outcome, kind, text in cases:
        async with played(
            {"tools/call": BEGUN, "tasks/get": outcome, "tasks/cancel": complete()}
        ) as (client, _):
            with pytest.raises(kind, match=text):
                await client.call_tool("slow")


async def test_a_task_that_is_over_when_it_is_told_of_is_looked_at() -> None:
    parts = {"tools/call": {**BEGUN, "status": "completed"}, "tasks/get": DONE}
    async with played(parts) as (client, _):
        assert (await client.call_tool("slow")).text == "done"


@pytest.mark.requirement("tasks-client-unsupported")
async def test_only_a_call_of_a_tool_can_become_a_task() -> None:
    async with played({"prompts/get": BEGUN}) as (client, play):
        with pytest.raises(InvalidRequest, match="cannot run as a task"):
            await client.get_prompt("p")
        assert play.heard == ["prompts/get"]


async def test_any_way_to_make_the_call_waits_for_the_task() -> None:
    async with played({"tools/call": BEGUN, "tasks/get": DONE}) as (client, _):
        result = await client.request("tools/call", {"name": "slow", "arguments": {}})
        assert result.text == "done"


@pytest.mark.requirement("tasks-client-once")
async def test_questions_of_a_task_are_answered_by_the_callbacks_and_each_key_once() -> None:
    asked: list[str] = []

    def on_elicit(request: Any) -> Any:
        asked.append(request.message)
        return {"echo": request.message.lower()}

    first = task("input_required", inputRequests={"a": form("A"), "b": form("B")})
    later = task("input_required", inputRequests={"b": form("B"), "c": form("C")})
    parts = {
        "tools/call": BEGUN,
        "tasks/get": [first, first, later, task(), DONE],
        "tasks/update": complete(),
    }
    async with played(parts, on_elicit=on_elicit) as (client, play):
        assert (await client.call_tool("slow")).text == "done"
        assert asked == ["A", "B", "C"]
        updates = [
            one["params"]["inputResponses"]
            for one in play.requests
            if one["method"] == "tasks/update"
        ]
        assert [sorted(update) for update in updates] == [["a", "b"], ["c"]]
        assert updates[0]["a"] == {"action": "accept", "content": {"echo": "a"}}


async def test_a_key_that_is_used_for_another_question_is_the_servers_mistake() -> None:
    def states() -> Any:
        yield task("input_required", inputRequests={"a": form("May I?")})
        while True:
            yield task("input_required", inputRequests={"a": form("May I really?")})

    parts = {
        "tools/call": BEGUN,
        "tasks/get": states(),
        "tasks/update": complete(),
        "tasks/cancel": complete(),
    }
    async with played(parts, on_elicit=lambda request: {"echo": "x"}) as (client, play):
        with pytest.raises(InvalidRequest, match="different question under the key 'a'"):
            await client.call_tool("slow")
        await play.hears("tasks/cancel")


async def test_a_task_that_never_stops_asking_is_given_up() -> None:
    count = iter(range(1000))

    def more(_: Any) -> Any:
        return task(
            "input_required", pollIntervalMs=1, inputRequests={f"q{next(count)}": form("Why?")}
        )

    parts = {
        "tools/call": BEGUN,
        "tasks/get": more,
        "tasks/update": complete(),
        "tasks/cancel": complete(),
    }
    async with played(parts, on_elicit=lambda request: {"echo": "x"}, limits=Limits(rounds=3)) as (
        client,
        play,
    ):
        with pytest.raises(InvalidRequest, match="asked questions 4 times"):
            await client.call_tool("slow")
        await play.hears("tasks/cancel")
        assert play.heard.count("tasks/update") == 3


@pytest.mark.requirement("tasks-client-answers")
async def test_a_question_that_this_client_did_not_declare_is_not_answered_and_ends_the_task() -> (
    None
):
    asking = task("input_required", inputRequests={"a": form("Psst")})
    parts = {"tools/call": BEGUN, "tasks/get": asking, "tasks/cancel": complete()}
    async with played(parts) as (client, play):
        with pytest.raises(InvalidRequest, match="did not declare"):
            await client.call_tool("slow")
        assert (await play.hears("tasks/cancel"))["params"]["taskId"] == "t1"


async def test_an_answer_that_does_not_arrive_is_sent_again_and_nobody_is_asked_again() -> None:
    asked: list[Any] = []
    asking = task("input_required", inputRequests={"a": form("Who?")})
    busy = Refused(-31001, "busy")
    parts = {
        "tools/call": BEGUN,
        "tasks/get": [asking, asking, DONE],
        "tasks/update": [busy, complete()],
    }
    async with played(parts, on_elicit=lambda request: asked.append(request) or {"echo": "x"}) as (
        client,
        play,
    ):
        assert (await client.call_tool("slow")).text == "done"
        updates = [
            one["params"]["inputResponses"]
            for one in play.requests
            if one["method"] == "tasks/update"
        ]
        assert len(asked) == 1 and len(updates) == 2 and updates[0] == updates[1]


async def test_a_server_that_is_busy_is_asked_again_but_not_for_ever() -> None:
    busy = Refused(-31001, "busy")
    parts = {"tools/call": BEGUN, "tasks/get": [busy, busy, DONE]}
    async with played(parts) as (client, _):
        assert (await client.call_tool("slow")).text == "done"
    parts = {"tools/call": BEGUN, "tasks/get": busy, "tasks/cancel": complete()}
    async with played(parts, limits=Limits(restarts=2)) as (client, play):
        with pytest.raises(ProtocolError, match="busy"):
            await client.call_tool("slow")
        assert play.heard.count("tasks/get") == 3


@pytest.mark.requirement("tasks-client-cancel")
async def test_whoever_stops_waiting_for_a_call_cancels_its_task() -> None:
    parts = {"tools/call": BEGUN, "tasks/get": task(), "tasks/cancel": complete()}
    async with played(parts) as (client, play):
        calling = asyncio.create_task(client.call_tool("slow"))
        await play.hears("tasks/get")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert (await play.hears("tasks/cancel"))["params"]["taskId"] == "t1"
        call = next(one for one in play.requests if one["method"] == "tools/call")
        given_up = [
            one["params"]["requestId"]
            for one in play.requests
            if one["method"] == "notifications/cancelled"
        ]
        assert call["id"] not in given_up, (
            "a task is not cancelled with the notification for requests"
        )


async def test_a_client_that_closes_lets_a_task_be_cancelled_first() -> None:
    parts = {"tools/call": BEGUN, "tasks/get": task(), "tasks/cancel": complete()}
    async with played(parts) as (client, play):
        calling = asyncio.create_task(client.call_tool("slow"))
        await play.hears("tasks/get")
        calling.cancel()
        await asyncio.wait([calling])
        await client.close()
        assert "tasks/cancel" in play.heard


async def test_a_task_without_news_runs_into_the_timeout_of_the_call() -> None:
    parts = {
        "tools/call": BEGUN,
        "tasks/get": task(statusMessage="stuck"),
        "tasks/cancel": complete(),
    }
    async with played(parts) as (client, play):
        with pytest.raises(
            TimedOut,
            match=r"t1 is still working after 0.3 s without an update; its last message was: stuck",
        ):
            await client.call_tool("slow", timeout=0.3)
        await play.hears("tasks/cancel")


async def test_each_sign_of_life_gives_a_task_more_time() -> None:
    states = [task(lastUpdatedAt=f"2026-11-15T09:00:{second:02}Z") for second in range(12)]
    async with played({"tools/call": BEGUN, "tasks/get": [*states, DONE]}) as (client, _):
        started = asyncio.get_running_loop().time()
        assert (await client.call_tool("slow", timeout=0.3)).text == "done"
        assert asyncio.get_running_loop().time() - started > 0.5


async def test_the_time_that_a_person_takes_is_not_the_tasks() -> None:
    async def slowly(request: Any) -> Any:
        await asyncio.sleep(0.5)
        return {"echo": "x"}

    asking = task("input_required", inputRequests={"a": form("Who?")})
    parts = {"tools/call": BEGUN, "tasks/get": [asking, DONE], "tasks/update": complete()}
    async with played(parts, on_elicit=slowly) as (client, _):
        assert (await client.call_tool("slow", timeout=0.3)).text == "done"


async def test_a_server_is_asked_to_tell_of_changes_where_looks_are_far_between() -> None:
    async def stream(params: Any) -> Any:
        assert params["notifications"] == {"taskIds": ["t1"]}
        play.send(
            notification(
                "notifications/tasks",
                **task("working", statusMessage="soon", pollIntervalMs=60_000),
            )
        )
        play.send(notification("notifications/tasks", **DONE))
        return complete()

    slow = {**BEGUN, "pollIntervalMs": 60_000}
    async with played({"tools/call": slow, "subscriptions/listen": stream}) as (client, play):
        heard: list[Any] = []
        assert (
            await client.call_tool("slow", on_progress=lambda one: heard.append(one.message))
        ).text == "done"
        assert "tasks/get" not in play.heard
        assert heard in (["soon"], []), "what comes at once may be seen at once"


async def test_a_notification_that_tells_too_little_is_followed_by_a_look() -> None:
    async def stream(params: Any) -> Any:
        play.send(notification("notifications/tasks", **task("completed")))
        return await asyncio.Event().wait()

    slow = {**BEGUN, "pollIntervalMs": 60_000}
    async with played({"tools/call": slow, "subscriptions/listen": stream, "tasks/get": DONE}) as (
        client,
        play,
    ):
        assert (await client.call_tool("slow")).text == "done"


async def test_a_handle_shows_how_a_task_goes_on_and_gives_its_result_whenever_it_is_asked_for() -> (  # noqa: E501
    None
):
    parts = {
        "tools/call": BEGUN,
        "tasks/get": [task(), task(statusMessage="half"), task(statusMessage="half"), DONE],
    }
    async with played(parts) as (client, _):
        handle = await client.start_tool("slow")
        assert handle.id == "t1" and not handle.over
        assert [update async for update in handle.updates()] == [
            TaskUpdate("working"),
            TaskUpdate("working", "half"),
            TaskUpdate("completed"),
        ]
        assert [(await handle.result()).text for _ in range(2)] == ["done", "done"]
        assert [update async for update in handle.updates()] == [TaskUpdate("completed")]
        await handle.cancel()


async def test_a_handle_outlives_the_patience_of_who_waits_on_it() -> None:
    finished = asyncio.Event()
    parts = {"tools/call": BEGUN, "tasks/get": lambda _: DONE if finished.is_set() else task()}
    async with played(parts) as (client, play):
        handle = await client.start_tool("slow")
        with pytest.raises(TimedOut, match=r"after 0\.1 s"):
            await handle.result(timeout=0.1)
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        finished.set()
        assert (await handle.result(timeout=5)).text == "done"
        assert "tasks/cancel" not in play.heard


async def test_where_the_server_answers_at_once_the_handle_is_done() -> None:
    async with played({"tools/call": complete(**said("at once"))}) as (client, play):
        handle = await client.start_tool("quick")
        assert (handle.id, handle.over, await handle.status()) == (
            "",
            True,
            TaskUpdate("completed"),
        )
        assert (await handle.result()).text == "at once"
        assert [update.status async for update in handle.updates()] == ["completed"]
        await handle.cancel()
        assert play.heard == ["tools/call"]


async def test_a_task_is_picked_up_again_by_its_id() -> None:
    async with played({"tasks/get": [task(statusMessage="half"), DONE]}) as (client, _):
        handle = client.task("t1")
        assert client.task("t1") is handle
        assert await handle.status() == TaskUpdate("working", "half")
        assert (await handle.result()).text == "done"
    async with played({"tasks/get": Refused(-32602, "unknown")}) as (client, _):
        with pytest.raises(NotFound, match="Task t1 does not exist"):
            await client.task("t1").status()
        with pytest.raises(NotFound, match="Task t1 does not exist"):
            await client.task("t1").result()


async def test_by_hand_questions_are_the_holders_to_answer() -> None:
    answered: dict[str, Any] = {}

    def state(_: Any) -> Any:
        open_ = {key: form(key) for key in ("a", "b") if key not in answered}
        return task("input_required", inputRequests=open_) if open_ else DONE

    def update(params: Any) -> Any:
        answered.update(params["inputResponses"])
        return complete()

    parts = {"tools/call": BEGUN, "tasks/get": state, "tasks/update": update}
    async with played(parts, on_elicit=lambda request: pytest.fail("nobody is to be asked")) as (
        client,
        _,
    ):
        handle = await client.start_tool("slow", manual=True)
        questions = await handle.questions()
        assert {key: one.message for key, one in questions.items() if hasattr(one, "message")} == {
            "a": "a",
            "b": "b",
        }
        with pytest.raises(NotFound, match="no question with the key 'c'"):
            await handle.answer("c", {})
        with pytest.raises(ConfigError, match="does not match the form"):
            await handle.answer("a", {"echo": 7})
        await handle.answer("a", {"echo": "Ann"})
        assert list(await handle.questions()) == ["b"]
        await handle.answer("b", None)
        assert (await handle.result()).text == "done"
        assert answered["a"]["content"] == {"echo": "Ann"} and answered["b"] == {
            "action": "decline"
        }


async def test_by_hand_every_new_question_is_news() -> None:
    answered: list[str] = []

    def state(_: Any) -> Any:
        return (
            task("input_required", inputRequests={f"q{len(answered)}": form("Next?")})
            if len(answered) < 3
            else DONE
        )

    def update(params: Any) -> Any:
        answered.extend(params["inputResponses"])
        return complete()

    parts = {"tools/call": BEGUN, "tasks/get": state, "tasks/update": update}
    async with played(parts, on_elicit=lambda request: None) as (client, _):
        handle = await client.start_tool("slow", manual=True)
        async for news in handle.updates():
            for key in news.questions:
                await handle.answer(key, {"echo": key})
        assert answered == ["q0", "q1", "q2"]


async def test_an_answer_by_hand_that_cannot_be_sent_can_be_given_again() -> None:
    asking = task("input_required", inputRequests={"a": form("Who?")})
    parts = {"tasks/get": asking, "tasks/update": [Refused(-31001, "busy"), complete()]}
    async with played(parts, on_elicit=lambda request: None) as (client, _):
        handle = client.task("t1", manual=True)
        with pytest.raises(ProtocolError, match="busy"):
            await handle.answer("a", {"echo": "x"})
        assert list(await handle.questions()) == ["a"]
        await handle.answer("a", {"echo": "x"})
        assert await handle.questions() == {}


async def test_an_answer_that_the_server_does_not_take_says_so_and_ends_the_task() -> None:
    asking = task("input_required", inputRequests={"a": form("Who?")})
    refused = Refused(-32602, "no such name")
    parts = {
        "tools/call": BEGUN,
        "tasks/get": asking,
        "tasks/update": refused,
        "tasks/cancel": complete(),
    }
    async with played(parts, on_elicit=lambda request: {"echo": "x"}) as (client, play):
        with pytest.raises(InvalidParams, match=r"^no such name$"):
            await client.task("t1", manual=True).answer("a", {"echo": "x"})
        assert "tasks/cancel" not in play.heard
        with pytest.raises(InvalidParams, match=r"^no such name$"):
            await client.call_tool("slow")
        await play.hears("tasks/cancel")


async def test_whoever_waits_while_the_client_closes_is_told_at_once() -> None:
    async with played({"tools/call": BEGUN, "tasks/get": task()}) as (client, play):
        handle = await client.start_tool("slow")
        waiting = asyncio.create_task(handle.result())
        await play.hears("tasks/get")
        await client.close()
        async with asyncio.timeout(30):
            with pytest.raises(ConnectionClosed):
                await waiting


async def test_a_server_without_the_extension_is_not_asked_about_tasks() -> None:
    async with played({}, capabilities=OFFERED) as (client, play):
        with pytest.raises(MethodNotFound, match="does not offer the extension"):
            await client.task("t1").status()
        assert play.heard == []


# the core form


def tool(support: str | None) -> dict[str, Any]:
    execution = {} if support is None else {"execution": {"taskSupport": support}}
    return {"tools": [{"name": "slow", "inputSchema": {"type": "object"}, **execution}]}


@pytest.mark.requirement("tasks-core-required")
async def test_a_tool_that_must_be_a_task_is_called_as_one() -> None:
    finished = asyncio.Event()

    async def result(_: Any) -> Any:
        await finished.wait()
        return said("done")

    def state(_: Any) -> Any:
        finished.set()
        return core(statusMessage="half")

    parts = {
        "tools/list": tool("required"),
        "tools/call": {"task": core()},
        "tasks/get": state,
        "tasks/result": result,
    }
    async with played(parts, CORE) as (client, play):
        await client.list_tools()
        heard: list[Any] = []
        assert (
            await client.call_tool("slow", on_progress=lambda one: heard.append(one.message))
        ).text == "done"
        assert (await play.hears("tools/call"))["params"]["task"] == {}
        assert heard == ["half"]


async def test_a_tool_that_turns_out_to_need_a_task_is_called_again_as_one() -> None:
    def call(params: Any) -> Any:
        return {"task": core()} if "task" in params else Refused(-32601, "only as a task")

    parts = {
        "tools/list": tool("required"),
        "tools/call": call,
        "tasks/get": core(),
        "tasks/result": said("done"),
    }
    async with played(parts, CORE) as (client, play):
        assert (await client.call_tool("slow")).text == "done"
        assert play.heard[:3] == ["tools/call", "tools/list", "tools/call"]


@pytest.mark.parametrize("support", ["optional", "forbidden", None])
async def test_a_refusal_for_another_reason_stands(support: str | None) -> None:
    async with played(
        {"tools/list": tool(support), "tools/call": Refused(-32601, "not here")}, CORE
    ) as (client, play):
        with pytest.raises(MethodNotFound, match="not here"):
            await client.call_tool("slow")
        assert play.heard.count("tools/call") == 1


@pytest.mark.requirement("tasks-core-capability", "tasks-core-forbidden")
@pytest.mark.parametrize(
    ("support", "capabilities", "started"),
    [
        ("optional", CORED, True),
        ("required", CORED, True),
        (None, CORED, False),
        ("optional", OFFERED, False),
    ],
)
async def test_a_handle_is_asked_for_where_server_and_tool_allow_it(
    support: str | None, capabilities: Any, started: bool
) -> None:
    def call(params: Any) -> Any:
        return {"task": core()} if "task" in params else said("at once")

    parts = {
        "tools/list": tool(support),
        "tools/call": call,
        "tasks/get": core(),
        "tasks/result": said("done"),
    }
    async with played(parts, CORE, capabilities) as (client, play):
        handle = await client.start_tool("slow", ttl=60)
        assert (await handle.result()).text == ("done" if started else "at once")
        sent = await play.hears("tools/call")
        assert sent["params"].get("task") == ({"ttl": 60_000} if started else None)


async def test_an_optional_task_is_not_asked_for_by_a_plain_call() -> None:
    parts = {"tools/list": tool("optional"), "tools/call": said("at once")}
    async with played(parts, CORE) as (client, play):
        await client.list_tools()
        assert (await client.call_tool("slow")).text == "at once"
        assert "task" not in (await play.hears("tools/call"))["params"]


async def test_a_server_may_answer_at_once_what_was_to_be_a_task() -> None:
    async with played({"tools/list": tool("required"), "tools/call": said("at once")}, CORE) as (
        client,
        _,
    ):
        await client.list_tools()
        assert (await client.call_tool("slow")).text == "at once"
        assert (await client.start_tool("slow")).over


async def test_progress_of_a_task_comes_under_the_token_of_its_call() -> None:
    async def result(_: Any) -> Any:
        token = (await play.hears("tools/call"))["params"]["_meta"]["progressToken"]
        play.send(notification("notifications/progress", progressToken="another", progress=9))
        play.send(
            notification(
                "notifications/progress", progressToken=token, progress=1, total=4, message="one"
            )
        )
        await asyncio.sleep(0.05)
        return said("done")

    parts = {
        "tools/list": tool("required"),
        "tools/call": {"task": core(pollInterval=60_000)},
        "tasks/result": result,
    }
    async with played(parts, CORE) as (client, play):
        handle = await client.start_tool("slow")
        updates = [update async for update in handle.updates()]
        assert TaskUpdate("working", "one", 1, 4) in updates and updates[-1].status == "completed"
        assert (await handle.result()).text == "done"


@pytest.mark.requirement("tasks-core-input")
async def test_questions_of_a_core_task_come_as_requests_and_take_no_time() -> None:
    async def result(_: Any) -> Any:
        play.send({"jsonrpc": "2.0", "id": "ask", **form("Who?")})
        answer = None
        while answer is None:
            await asyncio.sleep(0.01)
            answer = next((one for one in play.requests if one.get("id") == "ask"), None)
        return said(answer["result"]["content"]["echo"])

    async def slowly(request: Any) -> Any:
        await asyncio.sleep(0.4)
        return {"echo": request.message}

    parts = {
        "tools/list": tool("required"),
        "tools/call": {"task": core()},
        "tasks/get": core("input_required"),
        "tasks/result": result,
    }
    async with played(parts, CORE, on_elicit=slowly) as (client, play):
        await client.list_tools()
        assert (await client.call_tool("slow", timeout=0.3)).text == "Who?"


async def test_what_a_core_task_came_to_is_what_the_caller_gets() -> None:
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (core("failed"), Refused(-32603, "the disk is full"), InternalError, "the disk is full"),
        (core("failed"), said("broken", isError=True), ToolError, "broken"),
        (
            core("cancelled", statusMessage="night"),
            Refused(-32602, "cancelled"),
            TaskCancelled,
            "cancelled: night",
        ),
        (
            Refused(-32602, "expired"),
            Refused(-32602, "expired"),
            NotFound,
            "Task t1 does not exist.* expired",
        ),
        (core(), Refused(-32601, "what?"), MethodNotFound, "what?"),
    ]
    for state, result, kind, text in cases:
        parts = {
            "tools/list": tool("required"),
            "tools/call": {"task": core()},
            "tasks/cancel": core("cancelled"),
        }
        async with played({**parts, "tasks/get": state, "tasks/result": result}, CORE) as (
            client,
            _,
        ):
            await client.list_tools()
            with pytest.raises(kind, match=text):
                await client.call_tool("slow")


async def test_to_cancel_what_is_over_is_no_error_but_what_was_never_there_is() -> None:
    parts = {"tasks/cancel": Refused(-32602, "it is completed"), "tasks/get": core("completed")}
    async with played(parts, CORE) as (client, _):
        await client.task("t1").cancel()
    parts = {"tasks/cancel": Refused(-32602, "unknown"), "tasks/get": Refused(-32602, "unknown")}
    async with played(parts, CORE) as (client, _):
        with pytest.raises(NotFound):
            await client.task("t1").cancel()


async def test_a_status_that_a_server_tells_by_itself_saves_a_look() -> None:
    async def result(_: Any) -> Any:
        play.send(
            notification(
                "notifications/tasks/status", **core(statusMessage="soon", pollInterval=60_000)
            )
        )
        await asyncio.sleep(0.05)
        return said("done")

    slow = {"task": core(pollInterval=60_000)}
    parts = {"tools/list": tool("required"), "tools/call": slow, "tasks/result": result}
    async with played(parts, CORE) as (client, play):
        await client.list_tools()
        heard: list[Any] = []
        await client.call_tool("slow", on_progress=lambda one: heard.append(one.message))
        assert heard == ["soon"] and "tasks/get" not in play.heard


@pytest.mark.parametrize("revision", ["2025-06-18", "2024-11-05"])
async def test_older_revisions_have_no_tasks(revision: str) -> None:
    parts = {"tools/list": tool("required"), "tools/call": said("at once")}
    async with played(parts, revision, CORED) as (client, play):
        await client.list_tools()
        assert (await (await client.start_tool("slow")).result()).text == "at once"
        with pytest.raises(MethodNotFound):
            await client.task("t1").status()
        assert "task" not in (await play.hears("tools/call"))["params"]


@pytest.mark.parametrize(
    ("proposed", "least", "most"), [(600_000, 600, 660), (-5, 0.05, 0.06), (10**15, 86_400, 95_040)]
)
def test_a_server_is_not_looked_at_sooner_than_it_proposes(
    proposed: float, least: float, most: float
) -> None:
    """Within what a timer can wait for, and not without any pause."""
    shown = DetailedTask(
        task_id="t1",
        status="working",
        created_at=WHEN,
        last_updated_at=WHEN,
        ttl_ms=None,
        poll_interval_ms=proposed,
    )
    assert all(least <= poll_interval(shown, pauses) <= most for pauses in range(50))
