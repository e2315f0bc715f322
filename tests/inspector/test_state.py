"""What the inspector knows and does, through its operations and without a browser."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.inspector.events import CUT_TEXT_BYTES, EventBuffer
from dovetail.inspector.refusal import Refused

from .inspecting import inspecting

server = Server("shop", version="2")


@server.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@server.tool
def fail() -> str:
    """Fail."""
    raise ValueError("no")


@server.tool
async def wait(ctx: Context) -> str:
    """Wait until it is cancelled."""
    await ctx.progress(1, 2, "waiting")
    await asyncio.sleep(3600)
    return "done"


@server.tool
def long(size: int) -> str:
    """Return a long text."""
    return "x" * size


@server.tool
async def order(ctx: Context) -> str:
    """Ask how many."""
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    answer = await ctx.elicit("How many?", schema)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool
async def think(ctx: Context) -> str:
    """Ask the model."""
    result = await ctx.sample("What is six times seven?")
    return result.text


ERAS = ["handshake", "stateless"]


@pytest.mark.parametrize("revision", ERAS)
async def test_the_page_sees_the_server_its_lists_and_every_message(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        found = await one.do("snapshot")
        assert found["state"]["status"] == "open"
        assert (found["state"]["name"], found["state"]["version"]) == ("shop", "2")
        assert [tool["name"] for tool in json.loads(found["lists"]["tools"])][:2] == ["add", "fail"]
        assert found["lists"]["prompts"] is None
        assert found["n"] == one.state.events.last
        sent = [json.loads(event["text"]) for event in one.events("wire")]
        assert sent[0]["method"] == ("initialize" if revision == "handshake" else "server/discover")


@pytest.mark.parametrize("revision", ERAS)
async def test_a_call_ends_with_the_text_of_its_reply(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        ended = await one.call("add", a=1, b=2**70)
        assert ended["status"] == "done" and ended["ms"] >= 0
        assert str(2**70 + 1) in ended["result"]
        wire = [event for event in one.events("wire") if event.get("call") == ended["call"]]
        assert [event["direction"] for event in wire] == ["to_server", "to_client"]
        assert {event["id"] for event in wire} == {ended["request_id"]}


async def test_a_tool_that_fails_and_a_tool_that_does_not_exist_are_errors() -> None:
    async with inspecting(server) as one:
        failed = await one.call("fail")
        assert failed["status"] == "error" and "isError" in failed["result"]
        missing = await one.call("missing")
        assert missing["status"] == "error" and missing["error"]["code"] == -32602


async def test_a_call_reports_progress_and_can_be_cancelled() -> None:
    async with inspecting(server) as one:
        started = await one.do("call", tool="wait")
        progress = {"progress": 1, "total": 2, "message": "waiting"}
        await one.until("call", call=started["call"], progress=progress)
        assert (await one.do("snapshot"))["calls"][0]["status"] == "running"
        reports = [event for event in one.events("call") if event["call"] == started["call"]]
        assert ["params" in event for event in reports] == [True, False], "they may be long"
        await one.do("cancel", call=started["call"])
        assert (await one.finish(started["call"]))["status"] == "cancelled"


@pytest.mark.parametrize("revision", ERAS)
async def test_a_question_waits_for_an_answer_that_fits(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        started = await one.do("call", tool="order")
        asked = await one.until("question", form="form")
        assert json.loads(asked["params"])["message"] == "How many?"
        assert asked["call"] == started["call"]
        (still,) = (await one.do("snapshot"))["questions"]  # a reload finds it
        assert still["question"] == asked["question"]
        with pytest.raises(Refused, match=r"^count: "):
            await one.do("answer", question="1", action="accept", content='{"count": "x"}')
        with pytest.raises(Refused, match=r"^count is required$"):
            await one.do("answer", question="1", action="accept", content="{}")
        await one.do("answer", question="1", action="accept", content='{"count": 3}')
        assert "accept" in (await one.finish(started["call"]))["result"]
        assert one.events("answered")[0]["how"] == "accept"
        with pytest.raises(Refused, match="not open"):
            await one.do("answer", question="1", action="accept", content='{"count": 3}')


async def test_the_same_question_is_always_answered_the_same_way_until_that_is_forgotten() -> None:
    async with inspecting(server) as one:
        started = await one.do("call", tool="order")
        await one.until("question", question="1")
        await one.do("answer", question="1", action="decline", always=True)
        await one.finish(started["call"])
        again = await one.call("order")
        assert "decline" in again["result"]
        key = next(
            row["key"] for row in (await one.do("snapshot"))["always"] if row["form"] == "form"
        )
        await one.do("forget_answer", key=key)
        await one.do("call", tool="order")
        await one.until("question", question="3")
        assert len(one.state.questions.open) == 1


@pytest.mark.parametrize(
    ("content", "text"), [('"42"', "42"), (None, "stub model"), ('{"role": "assistant", '
     '"content": {"type": "text", "text": "43"}, "model": "m"}', "43")]
)  # fmt: skip
async def test_sampling_is_answered_with_text_a_result_or_a_stub_model(
    content: str | None, text: str
) -> None:
    async with inspecting(server) as one:
        started = await one.do("call", tool="think")
        await one.until("question", form="sampling")
        await one.do("answer", question="1", action="accept", content=content)
        assert text in (await one.finish(started["call"]))["result"]


async def test_a_question_of_a_cancelled_call_is_withdrawn() -> None:
    async with inspecting(server) as one:
        started = await one.do("call", tool="order")
        await one.until("question")
        await one.do("cancel", call=started["call"])
        await one.until("answered", how="withdrawn")
        assert (await one.do("snapshot"))["questions"] == []


async def test_a_long_message_is_cut_and_can_be_read_whole() -> None:
    async with inspecting(server) as one:
        await one.call("long", size=300_000)
        (cut,) = [event for event in one.events("wire") if event.get("more")]
        assert len(cut["text"]) == CUT_TEXT_BYTES < cut["bytes"]
        whole = await one.do("message", n=cut["n"])
        assert len(whole["text"]) == cut["bytes"]


async def test_any_request_can_be_sent_as_it_is_written() -> None:
    async with inspecting(server) as one:
        started = await one.do("send", method="tools/list", params="{}")
        ended = await one.finish(started["call"])
        assert ended["status"] == "done" and "inputSchema" in ended["result"]


async def test_a_restart_keeps_the_revision_and_says_what_changed() -> None:
    small = Server("small")
    small.tool(add)
    async with inspecting(small) as one:
        await one.do("open", revision="2025-06-18")
        await one.until("state", status="open", revision="2025-06-18")
        small.tool(fail)
        await one.do("restart")
        opened = await one.until("state", status="open", connection=3)
        assert (opened["revision"], opened["chosen"]) == ("2025-06-18", "2025-06-18")
        await one.until("lists", changes=["+1 tool: fail"])
        assert [event["connection"] for event in one.events("state")][-1] == 3


async def test_a_change_of_a_list_is_read_at_once() -> None:
    small = Server("small")
    small.tool(add)
    async with inspecting(small) as one:
        small.tool(fail)
        await one.until("lists", changes=["+1 tool: fail"])


SILENT = "import sys, time\nfor line in sys.stdin: pass"
DYING = "import sys\nsys.stderr.write('out of luck\\n')\nsys.exit(3)"


async def test_a_server_that_never_answers_holds_up_nothing() -> None:
    async with inspecting([sys.executable, "-c", SILENT], wait=False) as one:
        assert (await one.do("snapshot"))["state"]["status"] == "opening"
        with pytest.raises(Refused, match="not connected"):
            await one.do("call", tool="add")
        await one.do("restart", revision="2025-06-18")
        await one.do("close")
        assert (await one.do("snapshot"))["state"]["status"] == "closed"


async def test_a_server_that_dies_is_shown_with_its_stderr_and_what_to_do() -> None:
    async with inspecting([sys.executable, "-c", DYING], wait=False) as one:
        failed = await one.until("state", status="failed")
        assert "out of luck" in failed["stderr"] and failed["what_to_do"]
        assert one.events("stderr")[0]["text"] == "out of luck"


async def test_the_buffer_forgets_old_events_and_says_so() -> None:
    events = EventBuffer(max_events=3)
    for number in range(5):
        events.add("stderr", text=str(number))
    data, last = events.read_after(0)
    kinds = [json.loads(line[6:])["kind"] for line in data.decode().split("\n") if "data:" in line]
    assert (kinds, last) == (["gap", "stderr", "stderr", "stderr"], 5)
    assert events.read_after(5) == (b"", 5)
    assert b"gap" in events.read_after(99)[0]


async def test_the_buffer_is_bounded_in_bytes_and_takes_any_text() -> None:
    events = EventBuffer(max_bytes=1000)
    events.add("stderr", text="x" * 900)
    events.add("stderr", text="half a pair: \ud800")
    events.add("stderr", text="y" * 2000)
    data, last = events.read_after(2)
    assert last == 3 and b"yyy" in data
    assert b"gap" in events.read_after(0)[0]


@pytest.mark.parametrize(
    ("text", "schema", "errors"),
    [
        ('{"a": 1}', None, []),
        ('{"a": 1,}', None, [{"line": 1, "column": 9}]),
        ('{\n "a": {"b c": ["x"]}}', {"properties": {"a": {"properties": {"b c": {"items":
         {"type": "integer"}}}}}}, [{"line": 2, "column": 16, "path": 'a["b c"][0]'}]),
        ("{}", {"required": ["guests"]}, [{"path": "guests", "message": "is required"}]),
        ("[1]", {"type": "object"}, [{"path": ""}]),
        ("{}", {"type": "nonsense"}, [{}]),
    ],
)  # fmt: skip
async def test_json_is_checked_with_positions(
    text: str, schema: dict[str, Any] | None, errors: list[dict[str, Any]]
) -> None:
    async with inspecting(server) as one:
        given = None if schema is None else json.dumps(schema)
        found = (await one.do("check_json", text=text, schema=given))["errors"]
        assert len(found) == len(errors)
        for row, expected in zip(found, errors, strict=True):
            assert row["message"] and expected.items() <= row.items()


async def test_the_server_is_given_the_roots_of_the_terminal(tmp_path: Path) -> None:
    rooted = Server("rooted")

    @rooted.tool
    async def where(ctx: Context) -> list[str]:
        """Return the roots."""
        return [root.uri for root in await ctx.list_roots()]

    async with inspecting(rooted, roots=(tmp_path,)) as one:
        assert tmp_path.as_uri() in (await one.call("where"))["result"]


async def test_the_end_closes_every_connection_also_right_after_a_restart() -> None:
    async with inspecting(server) as one:
        first = one.state.client
        one.state.restart()
    assert first.state == "closed"


NOISY = """
import sys

from dovetail import Context, Server

server = Server("noisy")
print("got Bearer abcdef123456", '{"password": "hunter2"}', file=sys.stderr, flush=True)


@server.tool
async def log_in(ctx: Context) -> str:
    await ctx.info({"password": "hunter2"})
    return "done"


@server.tool
def crash() -> str:
    import os

    os._exit(1)


server.run()
"""


@pytest.mark.parametrize("show_secrets", [False, True])
async def test_credentials_in_stderr_and_in_the_log_are_masked(
    tmp_path: Path, show_secrets: bool
) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(NOISY)
    async with inspecting(str(path), show_secrets=show_secrets) as one:
        await one.call("log_in")
        await one.call("crash")
        await one.until("state", status="failed")
        shown = [event for event in one.events() if event["kind"] in ("stderr", "log", "state")]
        assert [event["kind"] for event in shown].count("log") == 1
    for secret in ("abcdef123456", "hunter2"):
        assert (secret in json.dumps(shown)) is show_secrets
        assert (secret in json.dumps(shown[-1])) is show_secrets, "the reason of the failure"
