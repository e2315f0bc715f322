"""Tasks of both forms, through operations and without a browser."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from dovetail import Context, Server
from dovetail.errors import InvalidParams
from dovetail.inspector.calls import CallRecord, RunningCall
from dovetail.inspector.events import EventBuffer
from dovetail.inspector.refusal import Refused
from dovetail.inspector.task_board import MAX_ID_LENGTH, MAX_MESSAGE_LENGTH, MAX_TASKS, TaskBoard
from dovetail.limits import Limits

from .inspecting import Inspecting, inspecting

RELATED = "io.modelcontextprotocol/related-task"
SIMMERING = {"progress": 1, "total": None, "message": "simmering"}
REVISIONS = ["2025-11-25", "2026-07-28"]
server = Server("kitchen", limits=Limits(task_poll=0.1))
cancelled: list[str] = []


@server.tool(task="optional")
async def cook(ctx: Context, dish: str) -> dict[str, Any]:
    """Cook."""
    await ctx.progress(1, 2, "heating")
    return {"dish": dish, "salt": 2**60}


@server.tool(task="optional")
async def simmer(ctx: Context) -> str:
    """Cook until it is cancelled."""
    try:
        await ctx.progress(1, 2, "simmering")
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        cancelled.append("simmer")
        raise
    return "done"


@server.tool(task="optional")
async def season(ctx: Context) -> str:
    """Ask how much."""
    schema = {"type": "object", "properties": {"salt": {"type": "integer"}}, "required": ["salt"]}
    answer = await ctx.elicit("How much salt?", schema)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool(task="optional")
async def burn() -> str:
    """Fail."""
    raise InvalidParams("There is smoke")


@server.tool
def taste() -> str:
    """Answer directly."""
    return "good"


async def start(one: Inspecting, tool: str, **arguments: Any) -> str:
    text = json.dumps(arguments)
    return str((await one.do("call", tool=tool, arguments=text, task=True))["call"])


async def only_task(one: Inspecting) -> dict[str, Any]:
    (found,) = (await one.do("snapshot"))["tasks"]
    return dict(found)


def sent(one: Inspecting, method: str) -> list[Any]:
    found = [json.loads(event["text"]) for event in one.events("wire")]
    return [message["params"] for message in found if message.get("method") == method]


each_form = pytest.mark.parametrize("revision", REVISIONS)


@each_form
async def test_a_call_as_a_task_is_on_the_board_until_its_end(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        call = await start(one, "cook", dish="soup")
        ended = await one.finish(call)
        assert ended["status"] == "done" and str(2**60) in ended["result"]
        first = one.events("task")[0]
        assert (first["tool"], first["call"], first["connection"]) == ("cook", call, 1)
        found = await only_task(one)
        assert found["task"] == first["task"] and found["status"] == "completed"
        assert found["created"] <= found["updated"] and found["ttl"] > 0
        polls = len(sent(one, "tasks/get"))
        assert found.get("polls", 0) == polls


@each_form
async def test_the_result_of_a_task_is_the_text_of_the_server(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        await one.finish(await start(one, "cook", dish="soup"))
        task = (await only_task(one))["task"]
        again = await one.do("task", task=task, action="result")
        ended = await one.finish(again["call"])
        result = json.loads(ended["result"])
        assert result["structuredContent"] == {"dish": "soup", "salt": 2**60}
        assert (ended["method"], ended["name"]) == ("tasks/result", "cook")
        wire = [event["text"] for event in one.events("wire") if event.get("call") == again["call"]]
        assert any(ended["result"] in text for text in wire)
        assert (await only_task(one))["call"] == again["call"]


@each_form
async def test_a_cancelled_call_cancels_its_task(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        call = await start(one, "simmer")
        await one.until("call", call=call, status="running", progress=SIMMERING)
        await one.do("cancel", call=call)
        assert (await one.finish(call))["status"] == "cancelled"
        task = (await only_task(one))["task"]
        await one.until("wire", method="tasks/cancel")
        await until_status(one, task, "cancelled")
        assert cancelled.pop() == "simmer" and not cancelled


@each_form
async def test_a_task_is_cancelled_on_the_board(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        call = await start(one, "simmer")
        working = await one.until("task", status="working")
        await one.do("task", task=working["task"], action="cancel")
        await until_status(one, working["task"], "cancelled")
        assert (await one.finish(call))["status"] == "error"
        assert cancelled.pop() == "simmer" and not cancelled


@each_form
async def test_a_task_that_nobody_waits_for_can_be_read_and_waited_for(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        await one.state.client.start_tool("cook", {"dish": "rice"})
        found = await only_task(one)
        assert "call" not in found
        await one.do("task", task=found["task"], action="get")
        assert (await only_task(one))["polls"] == 1
        again = await one.finish(
            (await one.do("task", task=found["task"], action="result"))["call"]
        )
        assert again["status"] == "done"


@each_form
async def test_a_question_of_a_task_waits_on_the_board(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        call = await start(one, "season")
        question = await one.until("question", form="form")
        waiting = await one.until("task", status="input_required")
        related = json.loads(question["params"]).get("_meta", {}).get(RELATED, {}).get("taskId")
        assert question["call"] == waiting["call"] == call
        assert related in (None, waiting["task"])
        await one.do(
            "answer", question=question["question"], action="accept", content='{"salt": 3}'
        )
        assert "accept" in (await one.finish(call))["result"]
        assert (await only_task(one))["status"] == "completed"


@each_form
async def test_a_task_that_fails_says_why(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        ended = await one.finish(await start(one, "burn"))
        assert ended["status"] == "error" and "There is smoke" in ended["error"]["message"]
        assert (await only_task(one))["status"] == "failed"


@each_form
async def test_a_tool_that_answers_directly_makes_no_task(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        ended = await one.finish(await start(one, "taste"))
        assert ended["status"] == "done" and "good" in ended["result"]
        assert (await one.do("snapshot"))["tasks"] == []


@each_form
async def test_a_task_that_the_server_has_forgotten_is_unknown(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        await one.finish(await start(one, "cook", dish="soup"))
        task = (await only_task(one))["task"]
        one.state.restart()
        await one.until("state", status="open", connection=2)
        renamed = f"{task}x"
        one.state.task_board.on_message("to_client", notice(renamed, "working"), 1, b"", None)
        with pytest.raises(Exception, match="does not exist"):
            await one.do("task", task=renamed, action="get")
        found = one.state.task_board.records[renamed]
        assert found.status == "unknown" and found.problem and "no task" in found.problem


@each_form
async def test_bad_requests_are_refused(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        with pytest.raises(Refused, match="id of the task"):
            await one.do("task", action="get")
        with pytest.raises(Refused):
            await one.do("task", action="explode", task="x")


async def test_tasks_are_listed_where_the_server_lists_them() -> None:
    async with inspecting(server, revision="2025-11-25") as one:
        await one.state.client.start_tool("cook", {"dish": "rice"})
        one.state.task_board.records.clear()
        await one.do("task", action="list")
        assert (await only_task(one))["status"] in ("working", "completed")
    async with inspecting(server, revision="2026-07-28") as one:
        with pytest.raises(Refused, match="does not list"):
            await one.do("task", action="list")


async def test_a_server_without_tasks_has_none_and_refuses_to_list() -> None:
    plain = Server("plain")
    plain.tool(taste)
    for revision in ("2025-06-18", *REVISIONS):
        async with inspecting(plain, revision=revision) as one:
            ended = await one.finish(await start(one, "taste"))
            assert "good" in ended["result"]
            assert (await one.do("snapshot"))["tasks"] == []
            with pytest.raises(Refused, match="does not list"):
                await one.do("task", action="list")


@each_form
async def test_a_task_that_starts_after_its_call_was_cancelled_is_cancelled(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        handle = await one.state.client.start_tool("simmer")
        one.state.task_board.records.clear()
        reply = {"id": 7, "result": {"task": {"taskId": handle.id, "status": "working"}}}
        late = RunningCall(record_of("tools/call", "cancelled"))
        one.state.task_board.on_message("to_client", json.dumps(reply).encode(), 1, b"7", late)
        await one.until("wire", method="tasks/cancel")
        await until_status(one, handle.id, "cancelled")


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("tools/call", '{"isError":false, "content":[]}'),
        ("tasks/result", '{"isError":false, "content":[]}'),
        ("tasks/get", '{"the": "poll"}'),
    ],
)
def test_the_outcome_in_the_state_of_a_task_is_the_result_as_it_was_sent(
    method: str, text: str
) -> None:
    running = RunningCall(record_of(method, "running"))
    running.on_reply("tools/call", b'{"resultType": "task"}')
    running.on_reply("tasks/get", b'{"result": {"isError":false, "content":[]}}')
    assert running.result_text(msgspec.Raw(b'{"the": "poll"}')) == text


def record_of(method: str, status: str) -> CallRecord:
    return CallRecord(
        call="1", method=method, name="x", params="{}", connection=1, started=0, status=status
    )


# messages that no honest server sends


def notice(task: Any, status: Any, **fields: Any) -> bytes:
    params = {"taskId": task, "status": status, **fields}
    method = "notifications/tasks/status"
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


async def until_status(one: Inspecting, task: str, status: str) -> None:
    """Wait until a task has a status; ask for it, as the page would."""
    async with asyncio.timeout(20):
        while one.state.task_board.records[task].status != status:
            await one.do("task", task=task, action="get")


def test_the_board_is_bounded_whatever_a_server_sends() -> None:
    board = TaskBoard(EventBuffer(), lambda task: None)

    def hear(data: bytes) -> None:
        board.on_message("to_client", data, 1, b"", None)

    for number in range(MAX_TASKS + 10):
        hear(notice(f"t{number}", "completed" if number == 3 else "working"))
    assert len(board.records) == MAX_TASKS
    assert "t3" not in board.records  # the oldest that is over
    hear(notice("long", "w" * 5000, statusMessage="m" * 5000, ttl=10**30))
    found = board.records["long"]
    assert found.message is not None and len(found.message) == MAX_MESSAGE_LENGTH
    assert len(found.status) == 100
    before = dict(board.records)
    hear(notice("i" * (MAX_ID_LENGTH + 1), "working"))
    hear(notice(17, "working"))
    hear(notice("wrong", {"is": "no text"}))
    hear(b'{"taskId": "x", "params": [1]}')
    hear(b'["taskId"]')
    hear(b'"taskId" \xff')
    assert board.records == before
