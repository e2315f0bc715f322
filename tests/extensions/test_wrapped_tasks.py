"""Wrappers of extensions and tasks together: whoever came first, what is around a call is around
the tool's work, in a task as in any call, and gets the tool's own result; also where a task is
resumed by another process."""

import asyncio
from typing import Any

import pytest

from dovetail import Server, TextContent, ToolResult
from dovetail.errors import InternalError, InvalidParams
from dovetail.extensions import Extension, has_declared
from dovetail.protocol import RawObject
from dovetail.testing import bare, pair

CORE, EXTENDED = "2025-11-25", "2026-07-28"
RECEIPTS = "com.example/receipts"
VIEW = "ui://clock/view"
Seen = list[str]


@pytest.fixture(params=[CORE, EXTENDED])
def form(request: pytest.FixtureRequest) -> str:
    """Both forms of tasks."""
    return str(request.param)


def receipts(seen: Seen) -> Extension:
    """The wrapper of the guide, which looks into the result."""

    async def dear(call: Any, next: Any) -> Any:
        result = await next(call)
        seen.append(type(result).__name__)
        if isinstance(result, ToolResult) and has_declared(call, RECEIPTS):
            result.content.append(TextContent("(3 cents)"))
        return result

    return Extension(id=RECEIPTS, around={"tools/call": dear})


def add_work(server: Server) -> None:
    @server.tool(task="optional")
    async def work() -> str:
        return "done"


def built(order: str, seen: Seen) -> Server:
    """A server with both, in this order."""
    server = Server("both")
    if order == "the wrapper first":
        server.add_extension(receipts(seen))
        add_work(server)
    else:
        add_work(server)
        server.add_extension(receipts(seen))
    return server


@pytest.mark.parametrize("order", ["the wrapper first", "tasks first"])
async def test_a_wrapper_is_around_the_work_of_a_task_in_whichever_order_they_came(
    order: str, form: str
) -> None:
    seen: Seen = []
    async with pair(
        built(order, seen), revision=form, extensions=[Extension(id=RECEIPTS)]
    ) as client:
        handle = await client.start_tool("work")
        assert handle.id, "it is a task"
        result = await handle.result()
    assert [block.text for block in result.content if isinstance(block, TextContent)] == [
        "done",
        "(3 cents)",
    ]
    assert seen == ["ToolResult"], "it never sees the task that the caller is answered with"


@pytest.mark.parametrize("order", ["the wrapper first", "tasks first"])
async def test_a_wrapper_is_around_a_plain_call_of_the_same_tool(order: str, form: str) -> None:
    seen: Seen = []
    async with pair(
        built(order, seen), revision=form, tasks=False, extensions=[Extension(id=RECEIPTS)]
    ) as client:
        assert (await client.call_tool("work")).text == "done\n(3 cents)"
    assert seen == ["ToolResult"]


def test_a_wrapper_is_around_what_is_resumed(form: str) -> None:
    """The first event loop ends in the middle of it; the server goes on in another, with nothing
    but the record."""
    seen: Seen = []
    server, runs = Server("resumable", extensions=[receipts(seen)]), 0

    @server.tool(task="optional", resumable=True)
    async def work() -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            await asyncio.Event().wait()
        return "done"

    async def begin() -> str:
        async with pair(server, revision=form, extensions=[Extension(id=RECEIPTS)]) as client:
            return (await client.start_tool("work")).id

    async def go_on(id: str) -> list[str]:
        async with pair(server, revision=form, extensions=[Extension(id=RECEIPTS)]) as client:
            result = await client.task(id).result(20)
            return [block.text for block in result.content if isinstance(block, TextContent)]

    id = asyncio.run(begin())
    seen.clear()
    assert asyncio.run(go_on(id)) == ["done", "(3 cents)"]
    assert (seen, runs) == (["ToolResult"], 2)


@pytest.mark.parametrize("order", ["the wrapper first", "tasks first"])
async def test_what_is_asked_of_a_task_can_be_wrapped_in_whichever_order_they_came(
    order: str, form: str
) -> None:
    seen: Seen = []

    async def look(call: Any, next: Any) -> Any:
        seen.append(call.name)
        return await next(call)

    methods = ["tasks/get", "tasks/cancel", "tasks/list", "tasks/result"]
    looking, server = Extension(id=RECEIPTS, around=dict.fromkeys(methods, look)), Server("both")
    if order == "the wrapper first":
        server.add_extension(looking)
    add_work(server)
    if order == "tasks first":
        server.add_extension(looking)
    wanted = methods if form == CORE else methods[:1]
    async with pair(server, revision=form) as client:
        id = (await client.start_tool("work")).id
        assert (await client.task(id).result(20)).text == "done"
        seen.clear()
        assert (await client.request("tasks/get", {"taskId": id})).status == "completed"
        if form == CORE:
            with pytest.raises(InvalidParams, match="cannot be cancelled"):
                await client.request("tasks/cancel", {"taskId": id})
            assert [one.task_id for one in (await client.request("tasks/list")).tasks] == [id]
            await client.request("tasks/result", {"taskId": id})
    assert seen == wanted


async def test_what_nobody_answers_is_not_there_for_a_wrapper_either() -> None:
    async def look(call: Any, next: Any) -> Any:
        return await next(call)

    server = Server(
        "without tasks", extensions=[Extension(id=RECEIPTS, around={"tasks/get": look})]
    )
    async with bare(server) as peer:
        await peer.greet(CORE)
        assert (await peer.ask("tasks/get", {"taskId": "t1"}))["error"]["code"] == -32601


@pytest.mark.parametrize(("order", "resumed"), [("the other first", 0), ("tasks first", 1)])
def test_what_is_resumed_goes_through_all_that_is_inside_of_tasks(
    order: str, resumed: int, form: str
) -> None:
    """Of two that may answer something instead, the first is outside: what lets the call through to
    tasks has done so."""
    seen: Seen = []
    server, runs = Server("resumable"), 0

    async def let_through(call: Any, next: Any) -> Any:
        seen.append(call.name)
        return await next(call)

    async def work() -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            await asyncio.Event().wait()
        return "done"

    other = Extension(id=RECEIPTS, instead={"tools/call": let_through})
    if order == "the other first":
        server.add_extension(other)
    server.add_tool(work, task="optional", resumable=True)
    if order == "tasks first":
        server.add_extension(other)

    async def begin() -> str:
        async with pair(server, revision=form) as client:
            return (await client.start_tool("work")).id

    async def go_on(id: str) -> str:
        async with pair(server, revision=form) as client:
            return (await client.task(id).result(20)).text

    id = asyncio.run(begin())
    assert len(seen) == 1
    seen.clear()
    assert asyncio.run(go_on(id)) == "done"
    assert (len(seen), runs) == (resumed, 2)


@pytest.mark.requirement("apps-content")
@pytest.mark.parametrize("order", ["apps first", "tasks first"])
async def test_a_tool_with_a_view_that_runs_as_a_task_has_something_to_read_too(
    order: str, form: str
) -> None:
    server = Server("clock")
    if order == "tasks first":
        add_work(server)
    server.add_app(VIEW, "<!doctype html><title>Clock</title>")

    @server.tool(ui=VIEW, task="optional")
    async def now() -> ToolResult:
        return ToolResult(content=[], structured_content={"hour": 12})

    async with pair(server, revision=form) as client:
        handle = await client.start_tool("now")
        assert handle.id
        result = await handle.result()
    assert result.text == '{"hour":12}'
    assert result.structured_content == {"hour": 12}


async def test_a_wrapper_that_gives_no_result_of_a_tool_fails_the_task(form: str) -> None:
    """What means to answer with something else does so `instead`; what forgot to return anything is
    told the same."""

    async def forget(call: Any, next: Any) -> None:
        await next(call)

    server = Server("forgetful", extensions=[Extension(id=RECEIPTS, around={"tools/call": forget})])
    add_work(server)
    async with pair(server, revision=form) as client:
        handle = await client.start_tool("work")
        with pytest.raises(
            InternalError, match="'work': middleware or an extension returned a None"
        ):
            await handle.result(20)
        assert (await handle.status()).status == "failed"


async def test_a_wrapper_may_answer_a_task_with_a_raw_result(form: str) -> None:
    async def relayed(call: Any, next: Any) -> RawObject:
        assert (await next(call)).text == "done"
        return RawObject.parse(ToolResult, b'{"content":[{"type":"text","text":"raw"}],"x-new":1}')

    server = Server("raw", extensions=[Extension(id=RECEIPTS, around={"tools/call": relayed})])
    add_work(server)
    async with pair(server, revision=form) as client:
        handle = await client.start_tool("work")
        assert handle.id, "it is a task"
        assert (await handle.result()).text == "raw"
