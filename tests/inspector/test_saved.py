"""Saved calls: the file, the expectations, running them, and the tests that are exported."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.inspector.calls import CallRecord
from dovetail.inspector.expectations import find_failures, read_answer
from dovetail.inspector.export import ExportedRequest
from dovetail.inspector.refusal import Refused
from dovetail.inspector.saved import (
    CALLS_FILE,
    Expectations,
    SavedCall,
    forget_call,
    format_calls,
    read_calls,
    save_call,
)
from dovetail.inspector.saved_tests import export_tests
from tests.cli.conftest import SECONDS, environment

from .inspecting import Inspecting, inspecting

server = Server("small")


@server.tool
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


@server.tool
def fail() -> str:
    """Fail."""
    raise ValueError("no")


@server.tool
async def wait(ctx: Context) -> str:
    """Wait for ever."""
    await asyncio.sleep(3600)
    return ""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str) -> None:
    CALLS_FILE.parent.mkdir(exist_ok=True)
    CALLS_FILE.write_text(text, encoding="utf-8")


# the file


def test_the_file_is_indented_ordered_and_ends_with_a_newline() -> None:
    call = SavedCall(
        tool="add", name="adds é", arguments={"b": 2, "a": 2**70},
        expect=Expectations(under_ms=200, equals=None, schema={"type": "integer"}),
    )  # fmt: skip
    save_call(call)
    save_call(SavedCall(name="hidden \u202e", tool="x"))
    assert CALLS_FILE.read_text(encoding="utf-8") == (
        """{
  "calls": [
    {
      "name": "adds é",
      "tool": "add",
      "arguments": {
        "b": 2,
        "a": 1180591620717411303424
      },
      "expect": {
        "equals": null,
        "schema": {
          "type": "integer"
        },
        "under_ms": 200
      }
    },
    {
      "name": "hidden \\u202e",
      "tool": "x"
    }
  ]
}
"""
    )
    assert read_calls()[0] == call
    text = CALLS_FILE.read_text(encoding="utf-8")
    save_call(call, replaces=call.name)
    assert CALLS_FILE.read_text(encoding="utf-8") == text, "writing again changes nothing"


def test_a_call_is_replaced_in_its_place_and_removed() -> None:
    for name in ("a", "b", "c"):
        save_call(SavedCall(name=name, tool="add"))
    save_call(SavedCall(name="B", tool="add"), replaces="b")
    assert [one.name for one in read_calls()] == ["a", "B", "c"]
    with pytest.raises(Refused, match="There is already a saved call named 'c'"):
        save_call(SavedCall(name="c", tool="add"), replaces="a")
    with pytest.raises(Refused, match="There is no saved call named 'b'"):
        save_call(SavedCall(name="x", tool="add"), replaces="b")
    forget_call("a")
    assert [one.name for one in read_calls()] == ["B", "c"]
    with pytest.raises(Refused, match="There is no saved call named 'a'"):
        forget_call("a")


WRONG = [
    ('{"calls": [\n  {"name": "a" "tool": "x"}\n]}', "Expecting ',' delimiter", (2, 16)),
    ('{\n  // ours\n  "calls": []}', "not valid JSON", (2, 3)),
    ('{"calls": [\n  {"name": 5, "tool": "x"}]}', "Expected `str`, got `int`", (2, 12)),
    ('{"calls": [\n  {"name": "a"}]}', "missing required field `tool`", (2, 3)),
    ('{"calls": [{"name": "a", "tool": "x",\n "note": 1}]}', "unknown field `note`", (1, 12)),
    ('{"calls": [{"name": "a", "tool": "x", "expect": {"under_ms": 0}}]}', ">= 1", (1, 62)),
    ('{"calls": [{"name": "a", "tool": "x"},\n{"name": "a", "tool": "y"}]}', "two calls", (2, 10)),
    ('{"calls": [{"name": "a", "name": "b", "tool": "x"}]}', "'name' occurs twice", None),
    ('{"calls": [{"name": "a", "tool": "x", "arguments": {"a": 1e999}}]}', "too large", None),
    ('{"calls": [{"name": "a", "tool": "x", "arguments": {"a": NaN}}]}', "NaN", None),
    ("[]", "Expected `object`, got `array`", (1, 1)),
    ("[" * 100_000, "nested too deeply", None),
    ("", "not valid JSON", (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem", "place"), WRONG)
def test_a_file_that_is_wrong_is_explained_and_never_lost(
    text: str, problem: str, place: tuple[int, int] | None
) -> None:
    write(text)
    with pytest.raises(Refused) as caught:
        read_calls()
    assert problem in caught.value.message and ".dovetail" in caught.value.message
    assert (caught.value.line, caught.value.column) == (place or (None, None))
    with pytest.raises(Refused):
        save_call(SavedCall(name="z", tool="x"))
    with pytest.raises(Refused):
        forget_call("a")
    assert CALLS_FILE.read_text(encoding="utf-8") == text


@pytest.mark.skipif(sys.platform == "win32", reason="file modes and links as POSIX has them")
def test_the_file_keeps_its_mode_and_the_place_that_a_link_leads_to(folder: Path) -> None:
    save_call(SavedCall(name="a", tool="add"))
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(CALLS_FILE.stat().st_mode) == 0o666 & ~mask
    CALLS_FILE.chmod(0o640)
    shared = folder / "shared.json"
    CALLS_FILE.rename(shared)
    CALLS_FILE.symlink_to(shared)
    save_call(SavedCall(name="b", tool="add"))
    assert CALLS_FILE.is_symlink() and len(json.loads(shared.read_text())["calls"]) == 2
    assert stat.S_IMODE(shared.stat().st_mode) == 0o640
    assert [path.name for path in CALLS_FILE.parent.iterdir()] == ["calls.json"]


def test_a_file_that_cannot_be_written_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    save_call(SavedCall(name="a", tool="add"))
    before = CALLS_FILE.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(Exception, match="cannot be written: No space left on device"):
        save_call(SavedCall(name="b", tool="add"))
    assert CALLS_FILE.read_bytes() == before
    assert [path.name for path in CALLS_FILE.parent.iterdir()] == ["calls.json"]


# expectations


def record(result: Any, ms: float = 5.0, status: str = "done", **fields: Any) -> CallRecord:
    return CallRecord(
        call="1", method="tools/call", name="x", params="{}", connection=1, started=0.0,
        status=status, result=json.dumps(result), ms=ms, **fields,
    )  # fmt: skip


def structured(value: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": value}


def text(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in texts]}


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (structured({"result": 3}), 3),
        (structured({"result": 3, "more": 1}), {"result": 3, "more": 1}),
        (structured([1]), [1]),
        (text("a", "b"), "a\nb"),
        (text(), None),
        ({"content": [{"type": "image", "data": ""}]}, None),
    ],
)
def test_the_answer_is_the_structured_content_or_the_text(result: Any, answer: Any) -> None:
    assert read_answer(json.dumps(result)) == answer


@pytest.mark.parametrize(
    ("result", "expect", "why"),
    [
        (structured({"a": 1.0}), {"equals": {"a": 1}}, []),
        (structured({"a": True}), {"equals": {"a": 1}}, ["$.a: expected 1, got true"]),
        (structured({"a": 1, "b": 2}), {"equals": {"b": 2, "a": 1}}, []),
        (
            structured({"b": 2}),
            {"equals": {"a": 1}},
            ["$.a: expected 1, but it is missing", "$.b: did not expect 2"],
        ),
        (
            structured({"result": 2**70 + 1}),
            {"equals": 2**70},
            [f"$: expected {2**70}, got {2**70 + 1}"],
        ),
        (structured({"result": 2**70}), {"equals": 2**70}, []),
        (text("x"), {"equals": None}, ['$: expected null, got "x"']),
        (text("x"), {"schema": {"type": "string", "maxLength": 3}}, []),
        (text("x"), {"schema": {"type": "integer"}}, ['$: "x" is not of type "integer"']),
        (text("x"), {"schema": {"type": 5}}, ["The expected schema cannot be used"]),
        (text("x"), {"under_ms": 5.1}, []),
        (text("x"), {"under_ms": 5}, ["It took 5 ms, not under 5 ms."]),
        (text("x"), {}, []),
    ],
)
def test_an_answer_is_compared_with_what_is_expected(
    result: Any, expect: dict[str, Any], why: list[str]
) -> None:
    found = find_failures(record(result), Expectations(**expect))
    assert len(found) == len(why)
    for one, words in zip(found, why, strict=True):
        assert one.startswith(words), one


def test_a_call_that_failed_is_never_as_expected() -> None:
    failed = record(text("no"), status="error")
    assert find_failures(failed, Expectations(equals="no")) == ["The tool failed: no"]
    assert find_failures(record({}, status="cancelled"), Expectations()) == [
        "The call was cancelled."
    ]
    error = record(None, status="error", error={"type": "TimedOut", "message": "after 1 s"})
    assert find_failures(error, Expectations()) == ["TimedOut: after 1 s"]
    assert find_failures(record(5), Expectations()) == ["The result is not that of a tool."]


# operations


async def outcome(one: Inspecting, name: str, after: int) -> dict[str, Any]:
    """Wait until a run of a call has ended."""
    async with asyncio.timeout(SECONDS):
        while True:
            last = one.state.events.last
            for event in one.events("run", after=after):
                if event["name"] == name and event["status"] in ("passed", "failed", "stopped"):
                    return event
            await one.state.events.wait_after(last, SECONDS)


async def test_calls_are_saved_and_run_with_the_results_as_events() -> None:
    async with inspecting(server) as one:
        await one.do("save", name=" adds ", tool="add", arguments='{"a": 1}', equals="3")
        await one.do("save", name="wrong", tool="add", arguments='{"a": 1}', equals="4")
        await one.do("save", name="fails", tool="fail")
        shown = await one.until("changed", what="saved")
        assert shown["value"] == {
            "calls": [
                {"name": "adds", "tool": "add", "arguments": '{"a": 1}', "expect": {"equals": "3"}}
            ]
        }
        assert len((await one.do("snapshot"))["saved"]["calls"]) == 3
        after = one.state.events.last
        await one.do("run")
        passed = await outcome(one, "adds", after)
        wrong = await outcome(one, "wrong", after)
        failed = await outcome(one, "fails", after)
        assert (passed["status"], passed["why"], passed["answer"]) == ("passed", [], "3")
        assert (wrong["status"], wrong["why"]) == ("failed", ["$: expected 4, got 3"])
        assert failed["status"] == "failed" and "The tool failed" in failed["why"][0]
        assert one.state.calls.records[passed["call"]].name == "add", "it is a call like any other"
        after = one.state.events.last
        await one.do("run", names=["wrong"])
        await outcome(one, "wrong", after)
        assert {event["name"] for event in one.events("run", after=after)} == {"wrong"}


async def test_a_run_can_be_stopped() -> None:
    async with inspecting(server) as one:
        for name in ("wait", "add"):
            await one.do("save", name=name, tool=name)
        await one.do("run")
        started = await one.until("run", name="wait", status="running")
        with pytest.raises(Refused, match="Saved calls are running"):
            await one.do("run")
        await one.do("stop_run")
        await one.until("run", name="wait", status="stopped")
        await one.until("run", name="add", status="stopped")
        await one.until("call", call=started["call"], status="cancelled")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "  ", "tool": "x"}, "The call cannot be saved"),
        ({"name": "a", "tool": "x", "arguments": "[]"}, "The call cannot be saved"),
        ({"name": "a", "tool": "x", "equals": "{"}, "not valid JSON"),
        ({"name": "a", "tool": "x", "schema": '"x"'}, "The call cannot be saved"),
        ({"name": "a", "tool": "x", "under_ms": -1}, "The call cannot be saved"),
        ({"name": "a", "tool": "x", "path": "../x.json"}, "unknown field"),
        ({"name": "a", "tool": "x", "replaces": "b"}, "There is no saved call named 'b'"),
    ],
)
async def test_what_cannot_be_saved_is_refused(fields: dict[str, Any], problem: str) -> None:
    async with inspecting(server) as one:
        with pytest.raises(Refused, match=problem):
            await one.do("save", **fields)
        assert not CALLS_FILE.exists()


async def test_a_file_that_is_wrong_is_shown_with_its_problem() -> None:
    write('{"calls": 5}')
    async with inspecting(server) as one:
        found = (await one.do("snapshot"))["saved"]
        assert found == await one.do("saved")
        assert found["calls"] == [] and "line 1, column 11" in found["problem"]
        with pytest.raises(Refused, match="line 1, column 11"):
            await one.do("run")
        write(format_calls([]))
        assert await one.do("saved") == {"calls": []}
        with pytest.raises(Refused, match="There are no saved calls"):
            await one.do("run")


# tests

TARGET = """
from typing import Any
from dovetail import Server
server = Server("echo")
@server.tool
def echo(value: Any = None) -> dict[str, Any]:
    return {"value": value}
@server.tool
def say(text: str) -> str:
    return text
if __name__ == "__main__":
    server.run()
"""


def run_tests(source: str, folder: Path) -> tuple[int, str]:
    (folder / "server.py").write_text(TARGET)
    (folder / "test_calls.py").write_text(source, encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_calls.py"],
        cwd=folder, env=environment(A_TOKEN="x"),
        capture_output=True, timeout=SECONDS, check=False, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def expecting(tool: str, arguments: dict[str, Any], name: str, **expect: Any) -> SavedCall:
    return SavedCall(name=name, tool=tool, arguments=arguments, expect=Expectations(**expect))


def test_exported_tests_run_and_pass_and_fail_as_the_calls_do(folder: Path) -> None:
    hostile = '"""); raise SystemExit(\'pwned\') \u202e\n# é'
    calls = [
        expecting("echo", {"value": hostile}, hostile, equals={"value": hostile}, under_ms=60_000),
        expecting("say", {"text": "é"}, "Says it", equals="é", schema={"type": "string"}),
        expecting("say", {"text": "b"}, "says it!", schema={"const": "c"}),
        expecting("say", {"text": "b"}, "—", equals="c"),
        expecting("echo", {"value": [1, None, 2**60]}, "numbers", under_ms=0.001),
        expecting("nothing", {}, "no such tool"),
    ]  # fmt: skip
    source = export_tests(calls, ExportedRequest(b"", "server.py", env={"A_TOKEN": "x"}))
    assert "env={'A_TOKEN': os.environ['A_TOKEN']}" in source
    status, printed = run_tests(source, folder)
    assert status == 1 and "4 failed, 2 passed" in printed, printed
    for name in ("test_says_it_2", "test_call", "test_numbers", "test_no_such_tool"):
        assert f"FAILED test_calls.py::{name}" in printed, printed


async def test_the_exported_file_names_the_server_and_no_secret() -> None:
    async with inspecting(server) as one:
        await one.do("save", name="adds", tool="add", arguments='{"a": 1}', equals="3")
        exported = (await one.do("export_saved"))["text"]
        assert "async with Client('target') as client" in exported
        assert "assert result.data == 3" in exported
