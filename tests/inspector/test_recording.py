"""Recordings: switched on and off in a session, and shown without a server."""

import asyncio
import errno
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.inspector.operations import OPERATIONS
from dovetail.inspector.recorded import RecordedState, recorded_settings
from dovetail.mcplog import McplogWriter, StderrEvent, read_mcplog
from dovetail.ports import HttpExchange, LostMessage
from tests.cli.conftest import WEATHER, dovetail

from .inspecting import Inspecting, inspecting

server = Server("small", version="3")


@server.tool
async def add(a: int, b: int, ctx: Context) -> int:
    """Add."""
    await ctx.info("adding")
    return a + b


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wire(one: Inspecting, after: int = 0) -> list[str]:
    return [event["text"] for event in one.events("wire", after=after)]


def recorded(path: str | Path) -> list[str]:
    return [event.data.decode() for event in read_mcplog(path).wire()]


async def test_every_message_is_recorded_also_over_a_restart() -> None:
    async with inspecting(server) as one:
        after = one.state.events.last
        await one.do("record", on=True)
        for number in range(200):
            await one.call("add", a=number, b=1)
        before = one.state.events.last
        await one.do("restart")
        async with asyncio.timeout(20):
            while not one.events("lists", after=before):
                await one.state.events.wait_after(one.state.events.last, 20)
        await one.call("add", a=1, b=1)
        file = (await one.do("snapshot"))["recording"]["file"]
        seen = wire(one, after)
        await one.do("record", on=False)
        assert recorded(file) == seen
        assert len([text for text in seen if '"tools/call"' in text]) == 201
        await one.call("add", a=2, b=2)
        assert recorded(file) == seen, "nothing is recorded after the end"


@pytest.mark.parametrize("show_secrets", [False, True])
async def test_credentials_in_stderr_are_recorded_only_if_the_terminal_shows_them(
    show_secrets: bool,
) -> None:
    lines = ["got Bearer abcdef123456", '{"password": "hunter2", "n": 1}', "\udcff plain"]
    async with inspecting(server, show_secrets=show_secrets) as one:
        await one.do("record", on=True)
        for line in lines:
            one.state.recorder.add_stderr(line)
        file = (await one.do("snapshot"))["recording"]["file"]
    masked = ["got Bearer ***", '{"password": "***", "n": 1}', "? plain"]
    expected = [*lines[:2], "? plain"] if show_secrets else masked
    texts = [event.text for event in read_mcplog(file).events if isinstance(event, StderrEvent)]
    assert texts == expected


@pytest.mark.parametrize("revision", ["handshake", "stateless"])
async def test_a_recorded_session_is_replayed_without_differences(revision: str) -> None:
    async with inspecting(WEATHER, revision=revision) as one:
        await one.do("record", on=True)
        before = one.state.events.last
        await one.do("restart")
        async with asyncio.timeout(20):
            while not one.events("lists", after=before):
                await one.state.events.wait_after(one.state.events.last, 20)
        assert (await one.call("forecast", city="Oslo", days=1))["status"] == "done"
    file = one.state.recorder.status()["file"]
    done = await asyncio.to_thread(dovetail, "replay", file, WEATHER)
    assert (done.code, done.err) == (0, ""), done.out


@pytest.mark.skipif(sys.platform == "win32", reason="file modes as POSIX has them")
async def test_a_recording_is_a_new_file_that_only_its_owner_can_read(folder: Path) -> None:
    async with inspecting(server) as one:
        assert (await one.do("snapshot"))["recording"] == {"on": False}
        await one.do("record", on=True)
        await one.do("record", on=True)  # it is on already
        first = (await one.do("snapshot"))["recording"]
        await one.do("record", on=False)
        await one.do("record", on=True)
        second = (await one.do("snapshot"))["recording"]
    recordings = folder / ".dovetail" / "recordings"
    assert first["on"] and first["file"] != second["file"]
    assert len(list(recordings.glob("*.mcplog"))) == 2
    assert (recordings / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(recordings.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(first["file"]).stat().st_mode) == 0o600
    told = [event["value"]["on"] for event in one.events("changed") if event["what"] == "recording"]
    assert told == [True, False, True, False]


async def test_a_full_disk_ends_the_recording_and_not_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with inspecting(server) as one:
        await one.do("record", on=True)
        writer: Any = one.state.recorders[0]
        monkeypatch.setattr(writer, "_file", FullDisk(writer._file))
        assert (await one.call("add", a=1, b=2))["status"] == "done"
        event = await one.until("changed", what="recording", value=one.state.recorder.status())
        assert "No space left" in event["value"]["problem"] and not event["value"]["on"]
        assert len(one.events("wire")) > 2, "the wire goes on"
        await one.do("record", on=True)
        assert (await one.do("snapshot"))["recording"]["on"], "another recording can begin"
        assert await one.do("record", on=False) == {}


class FullDisk:
    """A file that can no longer be written to."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        self.closed = True
        self._file.close()


async def test_a_folder_that_cannot_be_made_is_an_error_of_the_operation(folder: Path) -> None:
    (folder / ".dovetail").write_text("a file")
    async with inspecting(server) as one:
        with pytest.raises(Exception, match=r"The folder .* cannot be created"):
            await one.do("record", on=True)
        assert not (await one.do("snapshot"))["recording"]["on"]


def record_session(path: Path) -> None:
    """Write a recording with an event of each kind."""

    def message(**fields: Any) -> bytes:
        return json.dumps({"jsonrpc": "2.0", **fields}).encode()

    with McplogWriter(path, ["uvx", "weather", "--api-key=abc"], started=1_000_000.0) as writer:
        writer.message("to_server", message(id=1, method="initialize"), 1_000_000.5)
        info = {"serverInfo": {"name": "rain", "version": "7"}, "protocolVersion": "2025-11-25"}
        writer.message("to_client", message(id=1, result=info), 1_000_001.25)
        writer.message("to_server", message(id=2, method="tools/call"), 1_000_002)
        entry = {"level": "warning", "logger": "sky", "data": {"cloud": 2**60}}
        writer.message("to_client", message(method="notifications/message", params=entry), 1e6 + 3)
        writer.message("to_client", message(id=2, error={"code": -1, "message": "no"}), 1e6 + 4)
        writer.message("to_client", b"\xff not JSON", 1e6 + 5)
        writer.stderr("cannot see the sky \udcff", 1e6 + 6)
        head = HttpExchange(
            method="POST", url="http://x/", request_headers={"accept": "*/*"}, status=200,
            started=1e6, ended=1e6 + 1,
        )  # fmt: skip
        writer.exchange(head)
        writer.lost(LostMessage(direction="to_client", reason="gone", data=b'{"id": 3}', at=1e6))


@pytest.fixture
def shown(folder: Path) -> Inspecting:
    record_session(folder / "night.mcplog")
    return show(folder / "night.mcplog")


def show(path: Path) -> Inspecting:
    recording = read_mcplog(path)
    return Inspecting(RecordedState(recorded_settings(recording, path), recording))


async def test_a_recording_is_shown_with_everything_that_happened(shown: Inspecting) -> None:
    events = shown.events("wire", "log", "stderr", "http", "lost")
    kinds = ["wire", "wire", "wire", "wire", "log", "wire", "wire", "stderr", "http", "lost"]
    assert [event["kind"] for event in events] == kinds
    assert [event["at"] for event in events[:3]] == [1000000.5, 1000001.25, 1000002.0]
    assert [event.get("method") for event in events[:3]] == ["initialize", None, "tools/call"]
    assert events[5]["error"] and events[5]["id"] == "2"
    log, stderr, http, lost = events[4], *events[7:]
    assert (log["level"], log["logger"], log["data"]) == ("warning", "sky", f'{{"cloud":{2**60}}}')
    assert stderr["text"] == "cannot see the sky ?"
    assert (http["url"], http["status"]) == ("http://x/", 200)
    assert (lost["reason"], lost["data"]) == ("gone", '{"id": 3}')


async def test_the_state_says_that_it_is_a_recording(shown: Inspecting) -> None:
    snapshot = await shown.do("snapshot")
    state = snapshot["state"]
    assert state["status"] == "recording"
    assert state["message"].startswith("This is a recording of uvx weather --api-key=***.")
    assert (state["name"], state["version"]) == ("rain", "7")
    assert state["revision"] == "2025-11-25"


async def test_the_lists_are_those_of_the_last_replies(folder: Path) -> None:
    def ask(method: str, cursor: str | None = None) -> dict[str, Any]:
        return {"method": method, "params": {} if cursor is None else {"cursor": cursor}}

    messages: list[tuple[dict[str, Any], Any]] = [
        (ask("tools/list"), {"tools": [{"name": "old"}]}),
        (ask("tools/list"), {"tools": [{"name": "one", "n": 2**60}], "nextCursor": "2"}),
        (ask("tools/list", "2"), {"tools": [{"name": "two"}]}),
        (ask("prompts/list"), {"prompts": [{"name": "greet"}]}),
        (ask("prompts/list"), {"prompts": 5}),
        (ask("resources/templates/list"), None),
        (ask("tools/call"), {"tools": []}),
    ]
    with McplogWriter(folder / "lists.mcplog", "x") as writer:
        for number, (request, result) in enumerate(messages):
            reply = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
            writer.message("to_server", json.dumps({"id": number, **request}).encode(), 1e9)
            writer.message("to_client", json.dumps({"id": number, **reply}).encode(), 1e9)
            writer.message("to_server", b'{"id":%d,"result":{"tools":[]}}' % number, 1e9)
    lists = (await show(folder / "lists.mcplog").do("snapshot"))["lists"]
    assert json.loads(lists["tools"]) == [{"name": "one", "n": 2**60}, {"name": "two"}]
    assert json.loads(lists["prompts"]) == [{"name": "greet"}]
    assert lists["resources"] is lists["templates"] is None


SENT: dict[str, dict[str, Any]] = {
    "open": {}, "restart": {}, "close": {}, "list": {}, "record": {"on": True},
    "call": {"tool": "x"}, "send": {"method": "ping"}, "read": {"uri": "x:y"},
    "prompt": {"name": "x"}, "complete": {"prompt": "x", "argument": "y"},
    "subscribe": {"uri": "x:y"}, "set_level": {"level": "info"}, "check": {},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SENT))
async def test_what_needs_a_server_is_refused(shown: Inspecting, name: str) -> None:
    assert name in OPERATIONS
    with pytest.raises(Exception, match="This page shows a recording, so there is no server"):
        await shown.do(name, **SENT[name])


async def test_a_recording_that_was_cut_is_shown_up_to_there_with_a_note(folder: Path) -> None:
    path = folder / "cut.mcplog"
    record_session(path)
    path.write_bytes(path.read_bytes()[:-20])
    one = show(path)
    assert len(one.events("http")) == 1 and not one.events("lost")
    assert "ends in the middle of line 10" in one.state.status["message"]


async def test_events_of_an_unknown_shape_are_counted(folder: Path) -> None:
    path = folder / "odd.mcplog"
    path.write_text(
        '{"mcplog":1}\n'
        '{"kind":"http","at":1,"exchange":{"url":5}}\n'
        '{"kind":"wire","at":2,"direction":"to_client","message":"{\\"result\\":5}"}\n'
    )
    one = show(path)
    assert len(one.events("wire")) == 1
    assert "1 events could not be read" in one.state.status["message"]
    assert (await one.do("snapshot"))["target"] == "odd.mcplog"


COMMANDS = [
    (["night.mcplog"], "Run: dovetail inspect night.mcplog --web"),
    (["night.mcplog", "--web", "--cwd", "."], "--cwd requires a server"),
    (["night.mcplog", "--web", "--record", "x"], "--record requires a server"),
    (["new.mcplog", "--web"], "is a recording of version 2"),
    ([WEATHER, "--record", "x"], "--record requires --web"),
    ([WEATHER, "--web", "--record", "no/x"], "The recording no/x cannot be created"),
]


@pytest.mark.parametrize(("words", "problem"), COMMANDS)
def test_a_command_line_that_cannot_work_is_refused_in_one_line(
    folder: Path, words: list[str], problem: str
) -> None:
    record_session(folder / "night.mcplog")
    (folder / "new.mcplog").write_text('{"mcplog":2}\n')
    done = dovetail("inspect", *words, cwd=folder)
    assert done.code != 0 and problem in done.err
    assert len(done.err.strip().splitlines()) == 1
