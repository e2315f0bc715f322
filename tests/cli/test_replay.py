"""`dovetail replay`: a recording is sent again, and what differs is shown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.client.recording.differences import ValueDifference, json_differences
from dovetail.client.recording.normalise import Normaliser, Substitutes
from dovetail.revisions import OFFICIAL
from tests.cli.conftest import dovetail, handshake, says, tool
from tests.cli.recorded import record_shop, served_over_http, write_shop

REVISIONS = [revision.name for revision in OFFICIAL]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_was_recorded_is_the_same_again(tmp_path: Path, revision: str) -> None:
    shop = write_shop(tmp_path)
    await record_shop(shop, tmp_path / "night.mcplog", revision)
    done = dovetail("replay", str(tmp_path / "night.mcplog"), shop)
    assert (done.code, done.err) == (0, ""), done.out
    assert done.out.startswith("No differences in ")


@pytest.mark.parametrize("revision", [REVISIONS[0], REVISIONS[-1]])
async def test_a_change_is_found_and_named(tmp_path: Path, revision: str) -> None:
    await record_shop(write_shop(tmp_path), tmp_path / "night.mcplog", revision)
    dear = write_shop(tmp_path, **{'"5"': '"6"'})
    done = dovetail("replay", str(tmp_path / "night.mcplog"), dear)
    assert done.code == 1
    assert "tools/call stock (line " in done.out and '  - "5"\n  + "6"\n' in done.out
    assert "of the server" in done.failure
    document = dovetail("replay", str(tmp_path / "night.mcplog"), dear, "--json").json
    assert document["problem"] is None
    found = {
        (each["message"], each["recorded"], each["replayed"]) for each in document["differences"]
    }
    assert found == {("tools/call stock", "5", "6")}


async def test_strict_compares_times_and_ids_as_well(tmp_path: Path) -> None:
    shop = write_shop(tmp_path)
    await record_shop(shop, tmp_path / "night.mcplog", REVISIONS[-1])
    done = dovetail("replay", str(tmp_path / "night.mcplog"), shop, "--strict", "--json")
    assert done.code == 1
    paths = {each["path"] for each in done.json["differences"]}
    assert "result.structuredContent.order" in paths


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_recording_of_stdio_is_replayed_against_a_url(
    tmp_path: Path, revision: str
) -> None:
    shop = write_shop(tmp_path)
    await record_shop(shop, tmp_path / "night.mcplog", revision)
    with served_over_http(shop) as url:
        done = dovetail("replay", str(tmp_path / "night.mcplog"), url)
    assert (done.code, done.err) == (0, ""), done.out


async def test_a_question_that_is_no_longer_asked_is_a_difference(tmp_path: Path) -> None:
    await record_shop(write_shop(tmp_path), tmp_path / "night.mcplog", "2025-11-25")
    silent = write_shop(tmp_path, **{'await ctx.elicit("Pay?", bool)': "ctx"})
    done = dovetail("replay", str(tmp_path / "night.mcplog"), silent)
    assert done.code == 1
    assert "elicitation/create (line " in done.out and "  + (nothing)" in done.out


async def test_a_question_that_is_not_in_the_recording_is_a_difference(tmp_path: Path) -> None:
    silent = write_shop(
        tmp_path,
        **{'answer = await ctx.elicit("Pay?", bool)': "", "{answer.action}": "accept"},
    )
    await record_shop(silent, tmp_path / "night.mcplog", "2025-11-25")
    done = dovetail("replay", str(tmp_path / "night.mcplog"), write_shop(tmp_path))
    assert done.code == 1
    assert "elicitation/create (not in the recording)\n  - (nothing)" in done.out


def recording(folder: Path, *messages: tuple[str, Any]) -> str:
    """Write a recording by hand: `>` to the server, `<` to the client."""
    lines: list[Any] = [{"mcplog": 1, "target": "x"}]
    for direction, message in messages:
        text = message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message})
        towards = "to_server" if direction == ">" else "to_client"
        lines.append({"kind": "wire", "at": 0, "direction": towards, "message": text})
    path = folder / "hand.mcplog"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


PING = (">", {"id": 1, "method": "ping"})
PONG = ("<", {"id": 1, "result": {}})


def test_a_server_that_does_not_answer_is_given_up_in_time(
    tmp_path: Path, scripted: Callable[..., str]
) -> None:
    path = scripted({"ping": {"silent": True}})
    done = dovetail("replay", recording(tmp_path, PING, PONG), path, "--timeout", "1")
    assert done.code == 1
    assert done.failure.startswith("line 3: the server did not answer ping within 1 seconds")


def test_a_server_that_dies_is_reported(tmp_path: Path, scripted: Callable[..., str]) -> None:
    path = scripted({"ping": {"exit": 3}})
    done = dovetail("replay", recording(tmp_path, PING, PONG), path)
    assert done.code == 1
    assert "line 3: the server did not answer ping: " in done.err
    assert "exited with code 3" in done.err


def test_lines_that_are_not_messages_are_sent_too(
    tmp_path: Path, scripted: Callable[..., str]
) -> None:
    (tmp_path / "echo.py").write_text(
        "import json, sys\n"
        "bad = sys.stdin.readline()\n"
        "message = json.loads(sys.stdin.readline())\n"
        "reply = {'jsonrpc': '2.0', 'id': message['id'], 'result': {'bad': bad}}\n"
        "print(json.dumps(reply), flush=True)\n"
        "sys.stdin.read()\n"
    )
    file = recording(
        tmp_path, (">", "not json"), PING, ("<", {"id": 1, "result": {"bad": "not json\n"}})
    )
    done = dovetail("replay", file, str(tmp_path / "echo.py"))
    assert (done.code, done.err) == (0, ""), done.out


def test_a_recording_that_is_cut_is_replayed_up_to_there(
    tmp_path: Path, scripted: Callable[..., str]
) -> None:
    file = recording(tmp_path, PING, PONG)
    with open(file, "a") as end:
        end.write('{"kind":"wire","at":')
    done = dovetail("replay", file, scripted({"ping": {"result": {}}}))
    assert done.code == 0
    assert done.err.endswith("ends in the middle of line 4. It was read up to there.\n")


def test_a_file_that_is_not_a_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.mcplog").write_text('{"mcplog": 9}\n')
    done = dovetail("replay", str(tmp_path / "a.mcplog"), "server.py")
    assert done.code == 2 and "of version 9" in done.failure


def test_hostile_text_cannot_control_the_terminal(
    tmp_path: Path, scripted: Callable[..., str]
) -> None:
    path = scripted({"ping": {"result": {"\x1b]0;a\x07": "\x1b[2J"}}})
    done = dovetail("replay", recording(tmp_path, PING, PONG), path)
    assert done.code == 1
    assert "\x1b" not in done.out + done.err and "\x07" not in done.out + done.err


def test_notifications_are_compared(tmp_path: Path, scripted: Callable[..., str]) -> None:
    note = {"method": "notifications/message", "params": {"level": "info", "data": "old"}}
    new = ["notifications/message", {"level": "info", "data": "new"}]
    path = scripted({"ping": {"result": {}, "before": [new]}})
    done = dovetail("replay", recording(tmp_path, PING, ("<", note), PONG), path)
    assert done.code == 1
    assert 'notifications/message (line 3) params.data\n  - "old"\n  + "new"\n' in done.out
    extra = dovetail("replay", recording(tmp_path, PING, PONG), path)
    assert "notifications/message (not in the recording)" in extra.out
    missing = dovetail(
        "replay", recording(tmp_path, PING, ("<", note), PONG), scripted({"ping": {"result": {}}})
    )
    assert "notifications/message (line 3)" in missing.out and "+ (nothing)" in missing.out


def progressing(*values: int) -> list[Any]:
    """A call for which the server reports progress."""
    call = {"id": 1, "method": "go", "params": {"_meta": {"progressToken": "t"}}}
    reports = [
        {"method": "notifications/progress", "params": {"progressToken": "t", "progress": value}}
        for value in values
    ]
    return [(">", call), *(("<", report) for report in reports), PONG]


@pytest.mark.parametrize("values", [[3], [1, 3], [1, 2, 3], [2, 3]])
def test_how_often_progress_is_reported_is_compared_only_if_strict(
    tmp_path: Path, scripted: Callable[..., str], values: list[int]
) -> None:
    reports = [["notifications/progress", {"progress": value}] for value in (1, 3)]
    path = scripted({"go": {"result": {}, "before": reports}})
    file = recording(tmp_path, *progressing(*values), *progressing(*values))
    done = dovetail("replay", file, path)
    assert (done.code, done.err) == (0, ""), done.out
    assert done.out.startswith("No differences in 4 messages")
    assert dovetail("replay", file, path, "--strict").code == (values != [1, 3])


@pytest.mark.parametrize(
    ("values", "shown"),
    [([1, 2], "  - 2\n  + 3\n"), ([], "notifications/progress (not in the recording)")],
)
def test_the_last_progress_is_compared(
    tmp_path: Path, scripted: Callable[..., str], values: list[int], shown: str
) -> None:
    path = scripted({"go": {"result": {}, "before": [["notifications/progress", {"progress": 3}]]}})
    done = dovetail("replay", recording(tmp_path, *progressing(*values)), path)
    assert done.code == 1 and shown in done.out
    silent = scripted({"go": {"result": {}}})
    done = dovetail("replay", recording(tmp_path, *progressing(1)), silent)
    assert "notifications/progress (line 3)" in done.out and "+ (nothing)" in done.out


def test_what_the_server_says_about_a_cancelled_request_is_not_compared(
    tmp_path: Path, scripted: Callable[..., str]
) -> None:
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    ended = [(">", cancel), ("<", cancel), PONG]
    again = [(">", {"id": 2, "method": "ping"}), ("<", {"id": 2, "result": {}})]
    path = scripted({"ping": {"result": {}}})
    done = dovetail("replay", recording(tmp_path, PING, *ended, *again), path, "--timeout", "9")
    assert (done.code, done.err) == (0, ""), done.out
    silent = scripted({"ping": {"silent": True}})
    done = dovetail("replay", recording(tmp_path, PING, *ended), silent, "--timeout", "1")
    assert (done.code, done.err) == (0, ""), done.out
    reused = recording(tmp_path, PING, *ended, PING, PONG)
    assert dovetail("replay", reused, silent, "--timeout", "1").code == 1


def test_a_second_handshake_is_a_new_connection(
    tmp_path: Path, scripted: Callable[..., str]
) -> None:
    start = {"method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    result = handshake()["initialize"]["result"]
    session = [(">", {"id": 1, **start}), ("<", {"id": 1, "result": result})]
    path = scripted({"initialize": {"result": result, "stderr": "started\n"}})
    done = dovetail("replay", recording(tmp_path, *session, *session), path)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"at": "2026-01-02T03:04:05Z"}, {"at": "2027-01-02 03:04:05.123+01:00"}),
        (
            {"a": {"taskId": "x"}, "b": {"taskId": "x"}},
            {"a": {"taskId": "y"}, "b": {"taskId": "y"}},
        ),
        ({"nextCursor": "a"}, {"nextCursor": "b"}),
        ({"requestState": "a"}, {"requestState": "b"}),
        ({"_meta": {"traceparent": "a", "k": 1}}, {"_meta": {"tracestate": "b", "k": 1}}),
        (
            {"order": "123e4567-e89b-12d3-a456-426614174000"},
            {"order": "00000000-e89b-12d3-a456-426614174000"},
        ),
        ({"type": "text", "text": '{"taskId": "a"}'}, {"type": "text", "text": '{"taskId":"b"}'}),
        ({"inputRequests": {"k1": 1}}, {"inputRequests": {"k2": 1}}),
    ],
)
def test_what_differs_in_any_two_runs_is_ignored(one: Any, other: Any) -> None:
    assert Normaliser().normalise(one) == Normaliser().normalise(other) != {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"at": "yesterday"}, {"at": "today"}),
        (
            {"a": {"taskId": "x"}, "b": {"taskId": "x"}},
            {"a": {"taskId": "y"}, "b": {"taskId": "z"}},
        ),
        ({"nextCursor": "a"}, {}),
        ({"traceparent": "a"}, {"traceparent": "b"}),
        ({"text": "[1"}, {"text": "[2"}),
    ],
)
def test_what_differs_otherwise_is_not(one: Any, other: Any) -> None:
    assert Normaliser().normalise(one) != Normaliser().normalise(other)


def test_values_of_the_server_are_those_of_the_new_run() -> None:
    values = Substitutes()
    values.learn({"result": {"nextCursor": "a"}}, {"result": {"nextCursor": "b"}})
    values.learn({"inputRequests": {"q": {}}}, {"inputRequests": {"r": {}}})
    values.learn({"task": [{"taskId": "1"}]}, {"task": [{"taskId": 2}]})
    assert values.apply({"cursor": "a", "name": "a"}) == {"cursor": "b", "name": "a"}
    assert values.apply({"inputResponses": {"q": {}}}) == {"inputResponses": {"r": {}}}
    assert values.apply({"taskId": "1", "cursor": "c"}) == {"taskId": 2, "cursor": "c"}


@pytest.mark.parametrize(
    ("one", "other", "paths"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a[1].b"]),
        ({"a b": 1}, {"a b": 2}, ["['a b']"]),
        ({"a": 1}, {"b": 1}, ["a", "b"]),
        ([1], [1, 2], ["[1]"]),
        (1, True, [""]),
        (1, 1.0, []),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        (10**30, 10**30 + 1, [""]),
        (None, {}, [""]),
    ],
)
def test_differences_are_found_where_they_are(one: Any, other: Any, paths: list[str]) -> None:
    found = [*json_differences(one, other)]
    assert [each.path for each in found] == paths
    assert all(isinstance(each, ValueDifference) for each in found)


def test_the_tools_of_a_server_are_compared(tmp_path: Path, scripted: Callable[..., str]) -> None:
    asks = (">", {"id": 1, "method": "tools/list"})
    listed = ("<", {"id": 1, **tool("went")["tools/list"]})
    done = dovetail("replay", recording(tmp_path, asks, listed), scripted(tool(), says("x")))
    assert 'tools/list (line 3) result.tools[0].name\n  - "went"\n  + "go"\n' in done.out
