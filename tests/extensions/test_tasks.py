"""Tasks on a server, in both forms and over every transport: how one begins, is followed, asked,
answered, cancelled and ended, and whose it is. What a client sees of them is taped, and held to the
shapes of the form that it speaks."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Client, Context, InputRequired, Server, ToolError
from dovetail.auth import ApiKeys
from dovetail.errors import (
    ConfigError,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    Overloaded,
    ProtocolError,
)
from dovetail.extensions.tasks import InMemoryTaskStore, Lease, TaskRecord, TaskSettings
from dovetail.extensions.tasks.settings import calls_detach
from dovetail.limits import Limits
from dovetail.protocol.client_features import ElicitParams
from dovetail.protocol.tasks import EXTENSION, RELATED_TASK
from dovetail.testing import Bare, bare
from tests.behaviour.conftest import TRANSPORTS, Talk
from tests.transports.http.raw import hosted, modern

CORE, EXTENDED = "2025-11-25", "2026-07-28"
OVER = ("completed", "failed", "cancelled")
WAYS = [
    (name, revision)
    for name in ("memory", "tcp", "http", "websocket", "sse")
    for revision in (CORE, EXTENDED)
    if revision in TRANSPORTS[name].revisions
]


@pytest.fixture(params=WAYS, ids="-".join)
def talk(request: pytest.FixtureRequest) -> Talk:
    """Every transport, both forms."""
    return Talk(*request.param)


@pytest.fixture(params=[CORE, EXTENDED])
def form(request: pytest.FixtureRequest) -> str:
    """Both forms, in memory."""
    return str(request.param)


class Sure(Struct):
    sure: bool


class Site:
    """A server with tools of every kind, and what happened in them."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("site", **options)
        self.go = asyncio.Event()
        self.done: list[str] = []
        self._tools()

    def _tools(self) -> None:
        tool = self.server.tool

        @tool
        def plain() -> str:
            """Run at once, always."""
            return "plain"

        @tool(task="optional")
        async def wait(ctx: Context) -> str:
            """Wait until it is let go."""
            ctx.info("waiting")
            ctx.progress(1, 4, "under way")
            await self.go.wait()
            self.done.append("wait")
            return "waited"

        @tool(task="required")
        async def always() -> dict[str, int]:
            """Run as a task only."""
            return {"answer": 42}

        @tool(task="optional")
        async def fail(how: str = "tool") -> str:
            """Fail one way or the other."""
            raise (
                ToolError("no luck")
                if how == "tool"
                else InternalError("no sense", data={"why": how})
            )

        @tool(task="optional")
        async def ask(ctx: Context) -> str:
            """Ask, and ask again the same."""
            first = await ctx.elicit("Sure?", Sure)
            second = await ctx.elicit("Sure?", Sure)
            return f"{first.data and first.data.sure} {second.data and second.data.sure}"

        @tool(task="optional")
        async def both(ctx: Context) -> str:
            """Ask two things at once."""
            one, two = await asyncio.gather(
                ctx.elicit("One?", Sure, key="one"), ctx.elicit("Two?", Sure, key="two")
            )
            return f"{one.action} {two.action}"

        @tool(task="optional")
        async def leave(ctx: Context) -> str:
            """Ask while the caller waits, then go on without it."""
            await ctx.once("paid", lambda: self.done.append("paid"))
            before = await ctx.elicit("Before?", Sure, key="before")
            await ctx.detach()
            await ctx.detach()
            ctx.progress(1, 2)
            await self.go.wait()
            after = await ctx.elicit("After?", Sure, key="after")
            await ctx.once("paid", lambda: self.done.append("paid again"))
            return f"{before.action} {after.action}"


def accept(request: Any) -> dict[str, bool]:
    return {"sure": True}


async def settled(client: Client, id: str, *statuses: str) -> Any:
    """A task, once it has one of these statuses."""
    while True:
        task = await client.request("tasks/get", {"taskId": id})
        if task.status in (statuses or OVER):
            return task
        await asyncio.sleep(0.01)


# how one begins


@pytest.mark.requirement(
    "tasks-flat", "tasks-durable", "tasks-details", "tasks-ids", "tasks-complete"
)
@pytest.mark.requirement("tasks-core-created", "tasks-core-result", "tasks-core-ids")
async def test_a_call_goes_on_as_a_task_and_its_result_is_the_tools(talk: Talk) -> None:
    site = Site()
    async with talk(site.server) as client:
        handle = await client.start_tool("wait")
        task = await client.request("tasks/get", {"taskId": handle.id})
        assert task.status == "working" and len(handle.id) >= 32
        site.go.set()
        assert (await handle.result()).text == "waited"
        assert (await client.call_tool("always")).data == {"answer": 42}
    held_to_form(talk)


@pytest.mark.requirement("tasks-quiet", "tasks-core-related")
async def test_progress_becomes_the_message_of_its_status(talk: Talk) -> None:
    site = Site()
    async with talk(site.server) as client:
        handle = await client.start_tool("wait")
        while (
            task := await client.request("tasks/get", {"taskId": handle.id})
        ).status_message is None:
            await asyncio.sleep(0.01)
        assert task.status_message == "under way"
        site.go.set()
        await handle.result()
    held_to_form(talk)
    told = [one for one in talk.tape.messages("server") if one.get("method") in NOISE]
    if talk.stateless:
        assert told == [], "nothing but its status is sent for a task of the extension"
    for one in told:
        assert one["params"]["_meta"][RELATED_TASK] == {"taskId": handle.id}


NOISE = ("notifications/progress", "notifications/message")


@pytest.mark.requirement("tasks-core-progress")
async def test_in_the_core_form_progress_goes_on_under_its_token(talk: Talk) -> None:
    if talk.stateless:
        pytest.skip("of the core form")
    site = Site()
    async with talk(site.server) as client:
        handle = await client.start_tool("wait")
        result = asyncio.create_task(client.request("tasks/result", {"taskId": handle.id}))
        await settled(client, handle.id, "working")
        site.go.set()
        assert (await result).text == "waited"
    created = next(one for one in talk.tape.messages("client") if one.get("method") == "tools/call")
    for one in talk.tape.messages("server"):
        if one.get("method") == "notifications/progress":
            assert one["params"]["progressToken"] == created["params"]["_meta"]["progressToken"]


@pytest.mark.requirement("tasks-core-augment")
async def test_only_tools_that_may_be_tasks_are(form: str) -> None:
    async with Client(Site().server, revision=form) as client:
        assert (await client.start_tool("plain")).id == ""
        if form == CORE:
            with pytest.raises(MethodNotFound, match="cannot run as a task"):
                await client.request("tools/call", {"name": "plain", "task": {}})
            with pytest.raises(InvalidParams, match="Unknown tool"):
                await client.request("tools/call", {"name": "nowhere", "task": {}})


@pytest.mark.requirement("tasks-undeclared", "tasks-refused")
async def test_who_cannot_deal_with_tasks_gets_plain_results_and_is_refused_what_is_none() -> None:
    site = Site()
    async with bare(site.server) as peer:
        site.go.set()
        reply = await peer.ask("tools/call", {"name": "wait", **undeclared()})
        assert reply["result"]["content"][0]["text"] == "waited"
        error = (await peer.ask("tools/call", {"name": "always", **undeclared()}))["error"]
        assert error["code"] == MissingCapability.code
        assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            reply = await peer.ask(method, {"taskId": "x", "inputResponses": {}, **undeclared()})
            assert reply["error"]["code"] == MissingCapability.code


@pytest.mark.requirement("tasks-not-before")
async def test_the_extension_makes_no_tasks_in_a_revision_that_has_its_own() -> None:
    site = Site()
    site.go.set()
    async with bare(site.server) as peer:
        greeting = await peer.greet(CORE, {"extensions": {EXTENSION: {}}})
        assert "extensions" not in greeting["result"]["capabilities"]
        assert (await peer.ask("tools/call", {"name": "wait"}))["result"]["content"][0][
            "text"
        ] == "waited"
        assert (await peer.ask("tools/call", {"name": "always"}))["error"][
            "code"
        ] == MethodNotFound.code


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", CORE])
@pytest.mark.requirement("tasks-core-augment")
async def test_who_does_not_ask_for_a_task_gets_none(revision: str) -> None:
    site = Site()
    site.go.set()
    async with bare(site.server) as peer:
        await peer.greet(revision)
        reply = await peer.ask("tools/call", {"name": "wait", "arguments": {}})
        assert reply["result"]["content"][0]["text"] == "waited"
        assert (await peer.ask("tools/call", {"name": "always"}))["error"][
            "code"
        ] == MethodNotFound.code
        if revision != CORE:
            assert (await peer.ask("tasks/get", {"taskId": "x"}))["error"][
                "code"
            ] == MethodNotFound.code


@pytest.mark.requirement("tasks-no-legacy")
async def test_each_revision_is_told_of_tasks_in_its_own_way(form: str) -> None:
    async with Client(Site().server, revision=form) as client:
        listed = {tool.name: tool.execution for tool in await client.list_tools()}
        if form == CORE:
            assert client.capabilities.tasks == {
                "list": {},
                "cancel": {},
                "requests": {"tools": {"call": {}}},
            }
            support = {
                name: execution and execution.task_support for name, execution in listed.items()
            }
            assert (support["plain"], support["wait"], support["always"]) == (
                None,
                "optional",
                "required",
            )
        else:
            assert client.capabilities.tasks is None
            assert client.capabilities.extensions == {EXTENSION: {}}
            assert not any(listed.values())


async def test_a_server_without_such_tools_says_nothing_of_tasks(form: str) -> None:
    server = Server("none")
    server.tool(lambda: "done", name="quick")  # type: ignore[call-overload]
    async with Client(server, revision=form) as client:
        assert client.capabilities.tasks is None and not client.capabilities.extensions
    async with bare(server) as peer:
        if form == CORE:
            await peer.greet(CORE)
            reply = await peer.ask("tools/call", {"name": "quick", "task": {"ttl": 1000}})
            assert reply["result"]["content"][0]["text"] == "done", "what is not offered is ignored"
        assert (await peer.ask("tasks/get", declared(form, taskId="x")))["error"][
            "code"
        ] == MethodNotFound.code


# how it ends


@pytest.mark.requirement("tasks-failed", "tasks-core-failed")
async def test_a_tool_that_fails_is_told_as_its_form_has_it(talk: Talk) -> None:
    async with talk(Site().server) as client:
        handle = await client.start_tool("fail")
        task = await settled(client, handle.id)
        assert task.status == ("completed" if talk.stateless else "failed")
        if not talk.stateless:
            assert task.status_message == "no luck"
        with pytest.raises(ToolError, match="no luck"):
            await handle.result()
    held_to_form(talk)


@pytest.mark.requirement("tasks-details", "tasks-internal")
async def test_an_error_of_the_protocol_fails_the_task_with_that_error(talk: Talk) -> None:
    async with talk(Site().server) as client:
        handle = await client.start_tool("fail", {"how": "protocol"})
        task = await settled(client, handle.id)
        assert task.status == "failed" and task.status_message == "no sense"
        if talk.stateless:
            assert task.error == {
                "code": InternalError.code,
                "message": "no sense",
                "data": {"why": "protocol"},
            }
        with pytest.raises(InternalError, match="no sense"):
            await handle.result()
    held_to_form(talk)


@pytest.mark.requirement(
    "tasks-cancel-ack", "tasks-complete", "tasks-core-cancel", "tasks-core-over"
)
async def test_a_cancelled_task_is_cancelled_and_stays_so(talk: Talk) -> None:
    site = Site()
    async with talk(site.server) as client:
        handle = await client.start_tool("wait")
        answer = await client.request("tasks/cancel", {"taskId": handle.id})
        if not talk.stateless:
            assert answer.status == "cancelled"
        assert (await settled(client, handle.id)).status == "cancelled"
        site.go.set()
        await asyncio.sleep(0)
        assert (await settled(client, handle.id)).status == "cancelled" and site.done == []
        if talk.stateless:
            await client.request("tasks/cancel", {"taskId": handle.id})
        else:
            with pytest.raises(InvalidParams, match="already cancelled"):
                await client.request("tasks/cancel", {"taskId": handle.id})
    held_to_form(talk)


async def test_a_plain_function_sees_that_it_was_cancelled(form: str) -> None:
    server, begun, seen = Server("threads"), threading.Event(), threading.Event()

    @server.tool(task="optional")
    def loop(ctx: Context) -> str:
        """Run until nobody wants it."""
        begun.set()
        while not ctx.cancelled:
            pass
        seen.set()
        return "late"

    async with Client(server, revision=form) as client:
        handle = await client.start_tool("loop")
        await asyncio.to_thread(begun.wait)
        await handle.cancel()
        await asyncio.to_thread(seen.wait)
        assert (await settled(client, handle.id)).status == "cancelled"


async def test_what_cannot_be_written_fails_the_task(form: str) -> None:
    server = Server("strange")

    @server.tool(task="optional", output_schema={"type": "object"})
    async def strange() -> Any:
        """Return what is no JSON."""
        return {"value": object()}

    async with Client(server, revision=form) as client:
        task = await settled(client, (await client.start_tool("strange")).id)
        assert task.status in ("failed", "completed")


# what it asks


@pytest.mark.requirement("tasks-details", "tasks-core-related")
async def test_a_question_parks_the_task_until_it_is_answered(talk: Talk) -> None:
    asked: list[str] = []

    def answer(request: Any) -> dict[str, bool]:
        asked.append(request.message)
        return {"sure": True}

    async with talk(Site().server, on_elicit=answer) as client:
        handle = await client.start_tool("ask")
        assert (await settled(client, handle.id, "input_required")).status == "input_required"
        assert (await handle.result()).text == "True True"
        assert asked == ["Sure?", "Sure?"]
    held_to_form(talk)
    if not talk.stateless:
        questions = [
            one for one in talk.tape.messages("server") if one.get("method") == "elicitation/create"
        ]
        assert [one["params"]["_meta"][RELATED_TASK]["taskId"] for one in questions] == [
            handle.id
        ] * 2


@pytest.mark.requirement("tasks-ack", "tasks-complete", "tasks-unknown-keys", "tasks-all-questions")
async def test_some_answers_may_come_before_others_and_strange_ones_are_ignored() -> None:
    async with extended(Site().server) as ask:
        id = (await ask("tools/call", name="both"))["taskId"]
        waiting = await until(ask, id, "input_required")
        assert sorted(waiting["inputRequests"]) == ["one", "two"]
        assert waiting["inputRequests"]["one"]["method"] == "elicitation/create"
        answers = {
            "one": {"action": "accept", "content": {"sure": True}},
            "three": {"action": "decline"},
        }
        acknowledged = await ask("tasks/update", taskId=id, inputResponses=answers)
        assert (
            acknowledged.keys() == {"resultType", "_meta"}
            and acknowledged["resultType"] == "complete"
        )
        assert list((await until(ask, id, "input_required"))["inputRequests"]) == ["two"]
        await ask("tasks/update", taskId=id, inputResponses={"one": {"action": "cancel"}})
        await ask("tasks/update", taskId=id, inputResponses={"two": {"action": "decline"}})
        task = await until(ask, id, *OVER)
        assert task["result"]["content"][0]["text"] == "accept decline"
        assert set(
            await ask("tasks/update", taskId=id, inputResponses={"two": {"action": "accept"}})
        ) == {
            "resultType",
            "_meta",
        }


@pytest.mark.requirement("tasks-keys")
async def test_the_same_question_has_another_key_each_time() -> None:
    async with extended(Site().server) as ask:
        id = (await ask("tools/call", name="ask"))["taskId"]
        keys = []
        for _ in range(2):
            (key,) = (await until(ask, id, "input_required"))["inputRequests"]
            keys.append(key)
            await ask(
                "tasks/update",
                taskId=id,
                inputResponses={key: {"action": "accept", "content": {"sure": True}}},
            )
        assert len(set(keys)) == 2
        assert (await until(ask, id, *OVER))["status"] == "completed"


@pytest.mark.parametrize(
    "answer", [12, {"action": "maybe"}, {"action": "accept", "content": {"sure": "so so"}}]
)
async def test_an_answer_that_is_none_is_refused_and_the_task_waits_on(answer: Any) -> None:
    async with extended(Site().server) as ask:
        id = (await ask("tools/call", name="both"))["taskId"]
        await until(ask, id, "input_required")
        with pytest.raises(InvalidParams):
            await ask("tasks/update", taskId=id, inputResponses={"one": answer})
        assert sorted((await until(ask, id, "input_required"))["inputRequests"]) == ["one", "two"]


async def test_who_said_that_it_cannot_be_asked_is_not() -> None:
    async with extended(Site().server, {}) as ask:
        id = (await ask("tools/call", name="ask"))["taskId"]
        task = await until(ask, id, *OVER)
        assert task["status"] == "failed" and task["error"]["code"] == MissingCapability.code


async def test_a_client_that_refuses_a_question_tells_the_tool() -> None:
    async with Client(Site().server, revision=CORE, on_elicit=lambda request: 1 / 0) as client:
        handle = await client.start_tool("ask")
        with pytest.raises(ToolError, match="rejected"):
            await handle.result()


async def test_a_question_is_put_once_though_two_wait_for_the_result() -> None:
    asked: list[str] = []
    let = asyncio.Event()

    async def answer(request: Any) -> dict[str, bool]:
        asked.append(request.message)
        await let.wait()
        return {"sure": True}

    async with Client(Site().server, revision=CORE, on_elicit=answer) as client:
        handle = await client.start_tool("both")
        waits = [
            asyncio.create_task(client.request("tasks/result", {"taskId": handle.id}))
            for _ in range(2)
        ]
        while len(asked) < 2:
            await asyncio.sleep(0.01)
        let.set()
        assert {(await one).text for one in waits} == {"accept accept"}
        assert sorted(asked) == ["One?", "Two?"]


async def test_a_tool_that_asks_by_itself_is_called_again_with_the_answers(form: str) -> None:
    server = Server("explicit")

    @server.tool(task="required")
    async def explicit(ctx: Context) -> Any:
        """Ask by returning questions."""
        if not ctx.input_responses:
            question = ElicitParams(message="Sure?", mode="form", requested_schema=SURE)
            return InputRequired({"sure": question}, state="half way")
        return f"{ctx.input_responses['sure']['action']}, {ctx.request_state}"

    async with Client(server, revision=form, on_elicit=accept) as client:
        assert (await client.call_tool("explicit")).text == "accept, half way"


SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


# detaching


@pytest.mark.requirement("tasks-before")
async def test_what_is_asked_before_detaching_is_asked_while_the_caller_waits(talk: Talk) -> None:
    site = Site()
    async with talk(site.server, on_elicit=accept) as client:
        handle = await client.start_tool("leave")
        # Who asks for a task of the core form was promised one: it is one from the start, and asks
        # as such.
        status = "working" if talk.stateless else "input_required"
        assert (await settled(client, handle.id, status)).status == status
        site.go.set()
        assert (await handle.result()).text == "accept accept"
    assert site.done == ["paid"]
    held_to_form(talk)
    methods = [one.get("method") for one in talk.tape.messages("client")]
    assert methods.count("tools/call") == (2 if talk.stateless else 1)


async def test_who_cannot_deal_with_tasks_waits_for_what_would_have_detached() -> None:
    site = Site()
    site.go.set()
    async with bare(site.server) as peer:
        await peer.greet("2025-06-18", {"elicitation": {}})
        peer.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "leave"}})
        for _ in range(2):
            question = await peer.receive()
            answer = {"action": "accept", "content": {"sure": True}}
            peer.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        assert (await peer.receive())["result"]["content"][0]["text"] == "accept accept"


async def test_a_call_that_is_cancelled_before_it_detached_ends() -> None:
    site, asked = Site(), asyncio.Event()

    async def never(request: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with Client(site.server, revision=EXTENDED, on_elicit=never) as client:
        call = asyncio.create_task(client.start_tool("leave"))
        await asked.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert site.server.tasks is not None and site.server.tasks.manager.running == {}


def test_whether_a_function_detaches_is_found_in_its_code() -> None:
    async def plainly(ctx: Context) -> None:
        await ctx.detach()

    @wraps(plainly)
    async def wrapped(*args: Any) -> None:
        await plainly(*args)

    async def inside(ctx: Context) -> None:
        async def deeper() -> None:
            await ctx.detach()

        await deeper()

    class Called:
        async def __call__(self, ctx: Context) -> None:
            await ctx.detach()

    async def never(ctx: Context) -> None:
        await helper(ctx)

    async def helper(ctx: Context) -> None:
        await ctx.detach()

    assert all(map(calls_detach, (plainly, wrapped, inside, Called(), partial(plainly))))
    assert not calls_detach(never) and not calls_detach(len)


@pytest.mark.parametrize("options", [{"task": "maybe"}, {"resumable": True}])
def test_terms_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Tool 'odd'"):
        Server("odd").add_tool(lambda: None, name="odd", **options)


# whose it is


@pytest.mark.requirement("tasks-unknown", "tasks-core-unknown")
async def test_a_task_that_is_not_there_is_told_as_such(talk: Talk) -> None:
    async with talk(Site().server) as client:
        await client.list_tools()
        for method in (
            "tasks/get",
            "tasks/cancel",
            "tasks/update" if talk.stateless else "tasks/result",
        ):
            params = {"inputResponses": {}} if method == "tasks/update" else {}
            with pytest.raises(InvalidParams, match="no task with the id 'nowhere'"):
                await client.request(method, {"taskId": "nowhere", **params})


@pytest.mark.requirement("tasks-owner", "tasks-core-owner")
async def test_to_others_a_task_does_not_exist(form: str) -> None:
    keys = {"a" * 20: "ada", "b" * 20: "bob"}
    site = Site(auth=ApiKeys(keys))
    async with hosted(site.server) as place:

        def caller(key: str) -> Client:
            return Client(
                f"http://127.0.0.1:{place.port}/mcp", revision=form, headers={"x-api-key": key * 20}
            )

        async with caller("a") as ada, caller("b") as bob, caller("a") as again:
            handle = await ada.start_tool("wait")
            assert (await again.request("tasks/get", {"taskId": handle.id})).status == "working"
            for method in ("tasks/get", "tasks/cancel"):
                with pytest.raises(InvalidParams, match="no task"):
                    await bob.request(method, {"taskId": handle.id})
            if form == CORE:
                assert [one.task_id for one in (await again.request("tasks/list")).tasks] == [
                    handle.id
                ]
                assert (await bob.request("tasks/list")).tasks == []
            site.go.set()
            assert (await again.task(handle.id).result()).text == "waited"


@pytest.mark.requirement("tasks-core-list")
async def test_a_list_has_the_tasks_of_ones_own_session_page_by_page() -> None:
    site = Site()
    async with (
        Client(site.server, revision=CORE) as one,
        Client(site.server, revision=CORE) as other,
    ):
        made = [(await one.start_tool("wait")).id for _ in range(103)]
        first = await one.request("tasks/list")
        assert [task.task_id for task in first.tasks] == made[:100]
        second = await one.request("tasks/list", {"cursor": first.next_cursor})
        assert [task.task_id for task in second.tasks] == made[100:] and second.next_cursor is None
        assert (await other.request("tasks/list")).tasks == []
        assert (await other.request("tasks/get", {"taskId": made[0]})).status == "working", (
            "an id is enough"
        )
        for cursor in (
            "",
            "zz",
            "5b5d",
            first.next_cursor + "00",
            json.dumps(["tasks", 10**30]).encode().hex(),
        ):
            with pytest.raises(InvalidParams, match="cursor"):
                await one.request("tasks/list", {"cursor": cursor})


@pytest.mark.requirement("tasks-core-listless")
async def test_there_is_no_list_where_callers_cannot_be_told_apart() -> None:
    async with hosted(Site().server, sessions=False) as site:
        session = await site.greet(CORE)
        assert session.result["capabilities"]["tasks"] == {
            "cancel": {},
            "requests": {"tools": {"call": {}}},
        }
        answer = await session.ask("tasks/list")
        assert (await answer.json())["error"]["code"] == MethodNotFound.code


@pytest.mark.requirement("tasks-no-result")
async def test_the_extension_has_neither_lists_nor_waiting_for_results() -> None:
    async with extended(Site().server) as ask:
        for method in ("tasks/list", "tasks/result"):
            with pytest.raises(MethodNotFound):
                await ask(method, taskId="x")


@pytest.mark.requirement("tasks-header")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_over_http_the_id_of_a_task_is_in_a_header_too(method: str) -> None:
    params = {"taskId": "some", "inputResponses": {}}
    async with hosted(Site().server) as site:
        body, headers = modern(method, params, capabilities=ABLE)
        for name, code in (
            (None, HeaderMismatch.code),
            ("other", HeaderMismatch.code),
            ("some", InvalidParams.code),
        ):
            answer = await site.post(body, {**headers, "Mcp-Name": name})
            assert (await answer.json())["error"]["code"] == code


# bounds


@pytest.mark.requirement("tasks-core-ttl", "tasks-core-ttl-max")
async def test_a_task_is_kept_for_as_long_as_it_was_asked_for_within_bounds() -> None:
    site = Site(limits=Limits(task_life=50, task_life_max=100))
    async with bare(site.server) as peer:
        await peer.greet(CORE)
        for asked, kept in (
            ({}, 50_000),
            ({"ttl": 70_000}, 70_000),
            ({"ttl": 10**9}, 100_000),
            ({"ttl": 10**400}, 100_000),
        ):
            reply = await peer.ask("tools/call", {"name": "wait", "task": asked})
            assert reply["result"]["task"]["ttl"] == kept
        for ttl in ("long", 0, -1):
            reply = await peer.ask("tools/call", {"name": "wait", "task": {"ttl": ttl}})
            assert reply["error"]["code"] == InvalidParams.code


async def test_the_extension_does_not_let_callers_say_how_long() -> None:
    async with extended(Site(limits=Limits(task_life=50)).server) as ask:
        for ttl in (1, -1, "long"):
            assert (await ask("tools/call", name="wait", task={"ttl": ttl}))["ttlMs"] == 50_000


async def test_a_task_whose_time_is_over_is_ended_and_gone(form: str) -> None:
    server, ended = Server("short", limits=Limits(task_life=0.05)), asyncio.Event()

    @server.tool(task="optional")
    async def forever() -> str:
        """Never end by itself."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async with Client(server, revision=form) as client:
        handle = await client.start_tool("forever")
        await ended.wait()
        with pytest.raises(InvalidParams, match="may have expired"):
            await settled(client, handle.id, *OVER, "gone")


@pytest.mark.requirement("tasks-core-bounds")
async def test_there_are_no_more_tasks_than_there_may_be(form: str) -> None:
    site = Site(limits=Limits(tasks=3))
    async with Client(site.server, revision=form) as client:
        made = [await client.start_tool("wait") for _ in range(3)]
        with pytest.raises(Overloaded, match="3 tasks, which is the limit"):
            await client.start_tool("wait")
        site.go.set()
        await asyncio.gather(*(one.result() for one in made))


@pytest.mark.requirement("tasks-core-bounds")
async def test_no_session_has_more_tasks_than_each_may_have() -> None:
    site = Site(limits=Limits(tasks_each=2))
    async with (
        Client(site.server, revision=CORE) as one,
        Client(site.server, revision=CORE) as other,
    ):
        made = [await client.start_tool("wait") for client in (one, one, other, other)]
        for client in (one, other):
            with pytest.raises(Overloaded, match="You already have 2 tasks"):
                await client.start_tool("wait")
        site.go.set()
        await asyncio.gather(*(task.result() for task in made))


@pytest.mark.parametrize("revision", [CORE, "2026-07-28"])
async def test_an_anonymous_caller_pays_for_its_tasks_by_address(revision: str) -> None:
    from dovetail.extensions.tasks.wire import record_from_call
    from dovetail.ports import Call, Caller, Principal
    from dovetail.protocol.methods import METHODS
    from dovetail.protocol.tools import CallToolParams
    from dovetail.revisions import BY_NAME

    def network(address: str | None, principal: Principal | None = None) -> str:
        call = Call(
            1,
            METHODS["tools/call"],
            CallToolParams(name="wait"),
            Caller(BY_NAME[revision]),
            None,
            principal=principal,
            address=address,
        )
        return record_from_call(call, False, Limits()).network

    assert network("192.0.2.7") == "192.0.2.7"
    assert network("2001:db8::1") == network("2001:db8::2") == "2001:db8::/64"
    assert network("127.0.0.1") == network(None) == ""
    assert network("192.0.2.7", Principal("ada")) == ""


async def test_a_result_that_there_is_no_room_for_fails_its_task(form: str) -> None:
    server = Server("large", limits=Limits(task_bytes=100_000))

    @server.tool(task="optional")
    async def large() -> str:
        """Return too much."""
        return "x" * 200_000

    async with Client(server, revision=form) as client:
        handle = await client.start_tool("large")
        assert (await settled(client, handle.id)).status == "failed"
        with pytest.raises(ProtocolError, match="not enough room"):
            await handle.result()


# who is told


@pytest.mark.requirement("tasks-listen-same")
async def test_who_listens_is_told_of_its_own_tasks_and_of_no_others() -> None:
    site = Site()
    async with extended(site.server) as ask:
        id = (await ask("tools/call", name="wait"))["taskId"]
        ask.peer.send(
            request(declared(EXTENDED, notifications={"taskIds": [id, "nowhere"]}), id="listening")
        )
        acknowledged = await ask.peer.receive()
        assert acknowledged["params"]["notifications"] == {"taskIds": [id]}
        site.go.set()
        told: list[Any] = []
        while not told or told[-1]["status"] == "working":
            message = await ask.peer.receive()
            assert message["method"] == "notifications/tasks"
            assert (
                message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "listening"
            )
            told.append(message["params"])
        assert told[-1]["result"]["content"][0]["text"] == "waited"
        seen = await ask("tasks/get", taskId=id)
        varying = ("_meta", "resultType", "pollIntervalMs")
        assert without(told[-1], varying) == without(seen, varying), (
            "each is what tasks/get would say"
        )


@pytest.mark.requirement("tasks-listen")
async def test_listening_to_tasks_takes_the_extension() -> None:
    async with bare(Site().server) as peer:
        params = {"notifications": {"taskIds": ["x"]}, **undeclared()}
        assert (await peer.ask("subscriptions/listen", params))["error"][
            "code"
        ] == MissingCapability.code
    async with bare(Server("none")) as peer:
        peer.send(request({"notifications": {"taskIds": ["x"]}, **undeclared()}, id=1))
        assert (await peer.receive())["params"]["notifications"] == {}


@pytest.mark.requirement("tasks-core-begins", "tasks-core-over", "tasks-core-bare")
async def test_a_core_task_goes_from_status_to_status_and_none_of_them_names_it_twice() -> None:
    site = Site()
    async with bare(site.server) as peer:
        await peer.greet(CORE, {"elicitation": {}})
        task = (await peer.ask("tools/call", {"name": "ask", "task": {}}))["result"]["task"]
        told = [task]
        peer.send(request({"taskId": task["taskId"]}, "waiting", "tasks/result"))
        while told[-1]["status"] not in OVER:
            message = await peer.receive()
            if message.get("method") == "elicitation/create":
                answer = {"action": "accept", "content": {"sure": True}}
                peer.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
            elif message.get("method") == "notifications/tasks/status":
                told.append(message["params"])
        statuses = [one["status"] for one in told]
        assert (
            statuses[0] == "working"
            and "input_required" in statuses
            and statuses[-1] == "completed"
        )
        told += [
            (await peer.ask(method, {"taskId": task["taskId"]}))["result"]
            for method in ("tasks/get", "tasks/list")
        ]
        assert RELATED_TASK not in json.dumps(told)


async def test_in_the_core_form_its_caller_is_told_by_itself() -> None:
    site = Site()
    async with bare(site.server) as peer, bare(site.server) as other:
        await peer.greet(CORE)
        await other.greet(CORE)
        id = (await peer.ask("tools/call", {"name": "wait", "task": {}}))["result"]["task"][
            "taskId"
        ]
        site.go.set()
        while (message := await peer.receive())["method"] != "notifications/tasks/status":
            assert message["params"]["_meta"][RELATED_TASK] == {"taskId": id}
        assert (message["params"]["taskId"], message["params"]["status"]) == (id, "completed")
        await other.ask("ping")
        assert other.waiting() == 0


# where it runs


async def test_a_task_outlives_the_connection_that_it_began_on(form: str) -> None:
    site = Site()
    async with Client(site.server, revision=form) as client:
        id = (await client.start_tool("wait")).id
    site.go.set()
    async with Client(site.server, revision=form) as client:
        assert (await client.task(id).result()).text == "waited"


async def test_a_task_ends_with_the_lifespan_that_it_relies_on(form: str) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        yield "state"

    site = Site(lifespan=lifespan)
    async with bare(site.server) as peer:
        if form == CORE:
            await peer.greet(CORE)
        begun = (await peer.ask("tools/call", declared(form, name="wait", task={})))["result"]
    async with Client(site.server, revision=form) as client:
        id = begun["taskId"] if form == EXTENDED else begun["task"]["taskId"]
        task = await client.request("tasks/get", {"taskId": id})
        assert task.status == "failed" and "server stopped" in task.status_message


async def test_an_engine_decides_when_and_where_a_task_is_performed(form: str) -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    site = Site(tasks=TaskSettings(engine=lambda id, perform: queue.put_nowait((id, perform))))
    site.go.set()
    async with Client(site.server, revision=form) as client:
        handle = await client.start_tool("wait")
        id, perform = await queue.get()
        assert id == handle.id and site.done == []
        await perform(id)
        assert (await handle.result()).text == "waited"


async def test_that_a_task_is_over_is_written_down_as_soon_as_that_is_possible(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(InMemoryTaskStore):
        refusals = 2

        async def put(self, record: TaskRecord, lease: Lease) -> bool:
            if record.over and self.refusals:
                self.refusals -= 1
                raise Overloaded("busy")
            return await super().put(record, lease)

    monkeypatch.setattr("dovetail.extensions.tasks.outcome.SAVE_RETRY_SECONDS", (0, 0, 0))
    store = Busy()
    site = Site(tasks=store)
    site.go.set()
    async with Client(site.server, revision=form) as client:
        handle = await client.start_tool("wait")
        assert (await settled(client, handle.id)).status == "completed"
    assert store.refusals == 0


def test_a_task_of_an_event_loop_that_ended_says_so() -> None:
    site = Site()

    async def begin() -> str:
        async with extended(site.server) as ask:
            return str((await ask("tools/call", name="wait"))["taskId"])

    async def look(id: str) -> dict[str, Any]:
        async with extended(site.server) as ask:
            return await ask("tasks/get", taskId=id)

    task = asyncio.run(look(asyncio.run(begin())))
    assert task["status"] == "failed" and "The server stopped" in task["error"]["message"]


def test_a_task_that_can_be_resumed_goes_on_in_another_event_loop() -> None:
    server, begun = Server("loops"), []

    @server.tool(task="optional", resumable=True)
    async def steps(ctx: Context) -> str:
        """Do something once, then ask."""
        await ctx.once("begin", lambda: begun.append(1))
        return str((await ctx.elicit("Sure?", Sure, key="sure")).action)

    async def begin() -> str:
        async with extended(server) as ask:
            id = str((await ask("tools/call", name="steps"))["taskId"])
            await until(ask, id, "input_required")
            return id

    async def answer(id: str) -> dict[str, Any]:
        async with extended(server) as ask:
            await until(ask, id, "input_required")
            await ask("tasks/update", taskId=id, inputResponses={"sure": {"action": "decline"}})
            return await until(ask, id, *OVER)

    assert asyncio.run(answer(asyncio.run(begin())))["result"]["content"][0]["text"] == "decline"
    assert begun == [1]


async def test_a_task_is_answered_and_cancelled_from_other_threads() -> None:
    site = Site()

    async def elsewhere(id: str, method: str, **params: Any) -> None:
        async with extended(site.server) as ask:
            await ask(method, taskId=id, **params)

    async with extended(site.server) as ask:
        id = (await ask("tools/call", name="both"))["taskId"]
        await until(ask, id, "input_required")
        answers = {"one": {"action": "decline"}, "two": {"action": "cancel"}}
        await asyncio.to_thread(asyncio.run, elsewhere(id, "tasks/update", inputResponses=answers))
        assert (await until(ask, id, *OVER))["result"]["content"][0]["text"] == "decline cancel"
        id = (await ask("tools/call", name="wait"))["taskId"]
        await asyncio.to_thread(asyncio.run, elsewhere(id, "tasks/cancel"))
        assert (await until(ask, id, *OVER))["status"] == "cancelled"
    assert site.server.tasks is not None and site.server.tasks.manager.running == {}


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="tasks=5"):
        Server("odd", tasks=5).add_tool(len, name="odd", schema={"type": "object"}, task="optional")  # type: ignore[arg-type]


def test_several_processes_need_a_store_that_they_share() -> None:
    with pytest.raises(ConfigError, match="share"):
        Site().server.run("http", workers=2)


# helpers


def undeclared() -> dict[str, Any]:
    return {"_meta": meta({})}


def meta(capabilities: dict[str, Any]) -> dict[str, Any]:
    prefix = "io.modelcontextprotocol/"
    return {f"{prefix}protocolVersion": EXTENDED, f"{prefix}clientCapabilities": capabilities}


ABLE = {"extensions": {EXTENSION: {}}, "elicitation": {}}


def declared(form: str, able: dict[str, Any] = ABLE, **params: Any) -> dict[str, Any]:
    return params if form == CORE else {**params, "_meta": meta(able)}


def request(
    params: dict[str, Any], id: Any, method: str = "subscriptions/listen"
) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def without(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


class Ask:
    """Asks as a client of the extension does, by hand."""

    def __init__(self, peer: Bare, able: dict[str, Any]) -> None:
        self.peer, self._able = peer, able

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        reply = await self.peer.ask(method, {**params, "_meta": meta(self._able)})
        if "error" in reply:
            error = reply["error"]
            kinds = {InvalidParams.code: InvalidParams, MethodNotFound.code: MethodNotFound}
            raise kinds.get(error["code"], ProtocolError)(
                error["code"], error["message"], error.get("data")
            )
        result: dict[str, Any] = reply["result"]
        return result


@asynccontextmanager
async def extended(server: Server, asked: dict[str, Any] | None = None) -> AsyncIterator[Ask]:
    able = {"extensions": {EXTENSION: {}}, **({"elicitation": {}} if asked is None else asked)}
    async with bare(server) as peer:
        yield Ask(peer, able)


async def until(ask: Ask, id: str, *statuses: str) -> dict[str, Any]:
    while (task := await ask("tasks/get", taskId=id))["status"] not in statuses:
        await asyncio.sleep(0.01)
    return task


FLAT = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"}
OPTIONAL = {"statusMessage", "pollIntervalMs", "_meta"}
DETAILS = {"completed": {"result"}, "failed": {"error"}, "input_required": {"inputRequests"}}


def held_to_form(talk: Talk) -> None:
    """Every task that the server spoke of has exactly the fields of its form; the core's is held to
    its schema anyway."""
    if talk.stateless:
        for task, kind in tasks_in(talk):
            details = set() if kind == "task" else DETAILS.get(task["status"], set())
            assert FLAT | details <= task.keys() <= FLAT | OPTIONAL | details | {"resultType"}, task
            assert task.get("resultType") == kind
            assert type(task["ttlMs"]) is int and type(task.get("pollIntervalMs", 1)) is int


def tasks_in(talk: Talk) -> Iterator[tuple[dict[str, Any], str | None]]:
    asked = {
        one["id"]: one["method"]
        for one in talk.tape.messages("client")
        if "id" in one and "method" in one
    }
    for message in talk.tape.messages("server"):
        assert RELATED_TASK not in json.dumps(message)
        if message.get("method") == "notifications/tasks":
            yield message["params"], None
        elif "result" in message and asked.get(message["id"]) == "tasks/get":
            yield message["result"], "complete"
        elif "taskId" in message.get("result", {}):
            yield message["result"], "task"
