"""Servers that die, hang, babble and lie: the client says what happened, in one flat error, and
goes on where it can."""

import asyncio
import gc
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InvalidRequest,
    NoCommonRevision,
    ProtocolError,
    TimedOut,
)
from tests.faults.conftest import COMMAND, ROOT
from tests.faults.fakes import fake, heard, starts

INFO = {"name": "fake", "version": "0"}
QUICK = Limits(shutdown=0.3)
IMPATIENT = Limits(probe_timeout=0.3, shutdown=0.3)


@pytest.fixture(autouse=True)
def no_loose_ends(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Iterator[None]:
    """No exception is left to the event loop, and no server of a test survives it."""
    yield
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    wait_for(lambda: not any(map(is_running, starts(tmp_path))), "a server is left over")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


async def until(condition: Callable[[], Any]) -> None:
    """The test's own bound in time ends a wait in vain."""
    while not condition():
        await asyncio.sleep(0.01)


def open_fake(folder: Path, code: str, **options: Any) -> Client:
    return Client(
        fake(folder, code), **({"limits": QUICK, "on_stderr": lambda line: None} | options)
    )


# opening


async def test_a_server_that_dies_of_the_probe_is_started_again_and_greeted_the_old_way(
    tmp_path: Path,
) -> None:
    code = """
    first = receive()
    if first["method"] != "initialize":
        sys.exit(1)
    greet(first)
    serve()
    """
    async with open_fake(tmp_path, code) as client:
        assert client.revision == "2025-06-18"
        assert (await client.call_tool("x")).text == "done"
    assert len(starts(tmp_path)) == 2
    async with open_fake(tmp_path, code):
        pass
    assert len(starts(tmp_path)) == 3, "its era is remembered"


async def test_what_one_client_insisted_on_is_not_taken_for_the_era_of_the_server() -> None:
    async with Client(COMMAND, cwd=ROOT, revision="2025-06-18") as client:
        assert client.revision == "2025-06-18"
    async with Client(COMMAND, cwd=ROOT) as client:
        assert client.revision == "2026-07-28"
    async with Client(COMMAND, cwd=ROOT, revision="stateless") as client:
        assert client.revision == "2026-07-28"


@pytest.mark.requirement("dual-era-any-error")
@pytest.mark.parametrize(
    "answer",
    [
        'send(id=request["id"], error={"code": 0, "message": "?"})',
        'send(id=request["id"], error={"code": -32602, "message": "not initialized", "data": [1]})',
        'reply(request, {})',
        'reply(request, [])',
        'reply(request, {"supportedVersions": "all"})',
        'send(id=request["id"])',
        'say("unexpected server/discover"); send(id=request["id"], error={"code": 1, '
        '"message": "?"})',
    ],
)  # fmt: skip
async def test_any_odd_answer_to_the_probe_means_a_server_of_the_handshake(
    tmp_path: Path, answer: str
) -> None:
    code = f"""
    def discover(request):
        {answer}
    serve(server__discover=discover)
    """
    async with open_fake(tmp_path, code) as client:
        assert client.revision == "2025-06-18"
        assert (await client.call_tool("x")).text == "done"
    assert len(starts(tmp_path)) == 1


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (
            {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": INFO},
            NoCommonRevision,
        ),
        (
            {"protocolVersion": "2026-07-28", "capabilities": {}, "serverInfo": INFO},
            NoCommonRevision,
        ),
        ({"protocolVersion": 5}, InvalidRequest),
        ({}, InvalidRequest),
        ("hello", InvalidRequest),
    ],
)
async def test_a_nonsensical_greeting_is_one_clear_error(
    tmp_path: Path, result: Any, error: type[Exception]
) -> None:
    client = open_fake(tmp_path, f"serve(initialize=lambda request: reply(request, {result!r}))")
    with pytest.raises(error) as caught:
        await client.connect()
    assert type(caught.value) is error
    assert client.state == "disconnected"
    await client.close()


async def test_a_server_that_dies_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    code = 'sys.exit("no license found")'
    with pytest.raises(ConnectFailed, match=r"` exited with code 1.*no license found") as caught:
        async with open_fake(tmp_path, code):
            pass
    assert type(caught.value) is ConnectFailed


async def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConnectFailed, match="no-such-server-anywhere"):
        async with Client(["no-such-server-anywhere", "--flag"]):
            pass


async def test_a_server_that_says_nothing_at_all_is_given_up_in_time(tmp_path: Path) -> None:
    with pytest.raises(TimedOut) as caught:
        async with open_fake(tmp_path, "time.sleep(60)", limits=IMPATIENT, timeout=0.5):
            pass
    assert str(tmp_path) in str(caught.value) or "initialize" in str(caught.value)


@pytest.mark.parametrize("revision", [None, "handshake", "stateless"])
async def test_a_server_that_is_given_up_is_told_with_its_last_words(
    tmp_path: Path, revision: str | None
) -> None:
    code = """
    sys.stderr.write("Downloading 300 MB\\nStill downloading\\n")
    sys.stderr.flush()
    time.sleep(60)
    """
    with pytest.raises(TimedOut, match="within 2 s") as caught:
        async with open_fake(tmp_path, code, timeout=2, revision=revision):
            pass
    assert str(caught.value).endswith(
        "; last lines of stderr:\nDownloading 300 MB\nStill downloading"
    )
    assert str(caught.value).count("Still downloading") == 1


@pytest.mark.parametrize(
    "line", ["Server started on stdio", "[]", '{"jsonrpc": "2.0"}', "x" * 9999]
)
async def test_output_that_is_not_a_message_is_logged_with_the_server_and_the_line(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_fake(tmp_path, f"say({line!r})\nsay({line!r})\nserve()") as client:
        await client.ping()
    (warning,) = [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and record.name == "dovetail.connection"
    ]
    assert "fake.py" in warning.partition(": ignored ")[0]
    assert line[:150] in warning
    assert len(warning) < 1000


@pytest.mark.parametrize(
    "code",
    ["time.sleep(60)", "receive(); time.sleep(60)", "serve(initialize=lambda _: time.sleep(60))"],
)
async def test_a_cancelled_connect_leaves_no_server_behind(tmp_path: Path, code: str) -> None:
    async def enter() -> None:
        async with open_fake(tmp_path, code, timeout=60):
            pytest.fail("it never opens")

    task = asyncio.create_task(enter())
    await until(lambda: starts(tmp_path))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(map(is_running, starts(tmp_path)))


async def test_a_client_may_try_again_after_it_failed(tmp_path: Path) -> None:
    client = open_fake(tmp_path, "if START < 3: sys.exit(1)\nserve()", revision="2025-06-18")
    for _ in range(2):
        with pytest.raises(ConnectFailed):
            await client.connect()
    await client.connect()
    assert (await client.call_tool("x")).text == "done"
    await client.close()


async def test_a_server_that_refuses_a_log_level_is_a_server_all_the_same(tmp_path: Path) -> None:
    code = """
    serve(logging__setLevel=lambda request: send(id=request["id"], error={"code": -32601, "message": "not here"}))
    """  # noqa: E501
    async with open_fake(tmp_path, code, on_log=lambda entry: None) as client:
        assert (await client.call_tool("x")).text == "done"


@pytest.mark.parametrize("answered", [False, True], ids=["never", "late"])
async def test_a_server_that_never_answers_a_log_level_is_a_server_all_the_same(
    tmp_path: Path, answered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"""
    waiting = []
    def call(request):
        for late in waiting[:{int(answered)}]:
            reply(late, {{}})
        send(method="notifications/message", params={{"level": "info", "data": "called"}})
        text(request, "done")
    serve(logging__setLevel=waiting.append, x=call)
    """
    logged: list[Any] = []
    began = time.monotonic()
    async with open_fake(tmp_path, code, on_log=logged.append, timeout=25) as client:
        assert time.monotonic() - began < 10
        assert (await client.call_tool("x")).text == "done"
        await until(lambda: logged)
    assert time.monotonic() - began < 20, "closing does not wait for the answer either"
    assert [entry.data for entry in logged] == ["called"]
    assert heard(tmp_path, "notifications/cancelled") == []


async def test_a_log_level_that_times_out_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "serve(logging__setLevel=lambda request: None)"
    async with open_fake(tmp_path, code, on_log=lambda entry: None, timeout=2) as client:
        await until(lambda: "did not accept the log level" in caplog.text)
        assert (await client.call_tool("x")).text == "done"
        assert client.state == "connected"


async def test_a_server_that_dies_while_it_is_set_up_leaves_one_clear_error(tmp_path: Path) -> None:
    code = "serve(logging__setLevel=lambda request: sys.exit('no room for logs'))"
    with pytest.raises(ConnectFailed, match="no room for logs"):
        async with open_fake(tmp_path, code, on_log=lambda entry: None):
            pass


# dying


async def test_a_server_that_dies_during_a_call_is_one_flat_error_with_its_last_words(
    tmp_path: Path,
) -> None:
    code = """
    def crash(request):
        sys.stderr.write("Segmentation fault in libodd.so\\n")
        sys.stderr.flush()
        os._exit(42)
    serve(crash=crash)
    """
    async with open_fake(tmp_path, code) as client:
        with pytest.raises(ConnectionClosed) as caught:
            await client.call_tool("crash")
        assert type(caught.value) is ConnectionClosed
        for words in (
            "tools/call",
            "exited with code 42",
            "Segmentation fault in libodd.so",
        ):
            assert words in str(caught.value)
        assert (await client.call_tool("x")).text == "done", "it was started again"
    assert len(starts(tmp_path)) == 2


async def test_all_calls_in_flight_hear_of_the_death(tmp_path: Path) -> None:
    code = """
    serve(wait=lambda request: None, crash=lambda request: os.kill(os.getpid(), signal.SIGKILL))
    """
    async with open_fake(tmp_path, code) as client:
        waiting = [asyncio.create_task(client.call_tool("wait")) for _ in range(20)]
        with pytest.raises(ConnectionClosed, match="SIGKILL"):
            await client.call_tool("crash")
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(error) for error in errors} == {ConnectionClosed}


async def test_a_tool_call_that_may_have_arrived_is_not_sent_again(tmp_path: Path) -> None:
    async with open_fake(tmp_path, "serve(charge=lambda request: os._exit(1))") as client:
        with pytest.raises(ConnectionClosed):
            await client.call_tool("charge")
        await client.ping()
    assert len(heard(tmp_path, "tools/call")) == 1


FLAKY = """
def flaky(request):
    if START == 1:
        os._exit(1)
    text(request, f"start {START}")

def tools(request):
    tool = {"name": "flaky", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}}
    reply(request, {"tools": [tool]})

serve(flaky=flaky, tools__list=tools)
"""  # noqa: E501


@pytest.mark.requirement("tools-annotations-untrusted")
@pytest.mark.parametrize(
    ("options", "retry", "again"),
    [({}, False, False), ({}, True, True), ({"trusted": True}, False, True)],
    ids=["by default", "when the caller says so", "when a trusted server says so"],
)
async def test_a_tool_call_is_repeated_only_where_somebody_vouches_for_it(
    tmp_path: Path, options: dict[str, Any], retry: bool, again: bool
) -> None:
    async with open_fake(tmp_path, FLAKY, **options) as client:
        await client.list_tools()
        if again:
            assert (await client.call_tool("flaky", retry=retry)).text == "start 2"
        else:
            with pytest.raises(ConnectionClosed):
                await client.call_tool("flaky", retry=retry)
    assert len(heard(tmp_path, "tools/call")) == (2 if again else 1)


@pytest.mark.requirement("stdio-restart")
async def test_lists_and_reads_are_simply_asked_again(tmp_path: Path) -> None:
    code = """
    def tools(request):
        if START == 1:
            os._exit(1)
        reply(request, {"tools": []})
    serve(tools__list=tools)
    """
    async with open_fake(tmp_path, code) as client:
        assert await client.list_tools() == []
    assert len(heard(tmp_path, "tools/list")) == 2


async def test_a_restart_renews_what_was_subscribed_and_says_so(tmp_path: Path) -> None:
    code = """
    def subscribe(request):
        reply(request, {})
        send(method="notifications/resources/updated", params={"uri": request["params"]["uri"]})
    serve(resources__subscribe=subscribe, crash=lambda request: os._exit(1))
    """
    states: list[str] = []
    updates: list[str] = []
    async with open_fake(tmp_path, code) as client:
        client.on_change("state", states.append)
        await client.subscribe("x://one", updates.append)
        await client.subscribe("x://two", updates.append)
        await until(lambda: len(updates) == 2)
        with pytest.raises(ConnectionClosed):
            await client.call_tool("crash")
        await until(lambda: len(updates) == 4)
    assert updates == ["x://one", "x://two"] * 2
    assert states == ["reconnecting", "connected", "closed"]
    assert len(heard(tmp_path, "resources/subscribe")) == 4


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_subscriptions_survive_the_death_of_a_real_server_in_both_eras(revision: str) -> None:
    updates: list[str] = []
    async with Client(COMMAND, cwd=ROOT, revision=revision, on_stderr=lambda line: None) as client:
        handle = await client.subscribe("x://one", updates.append)
        for life in range(1, 3):
            await client.call_tool("touches", {"uri": "x://one"})
            await client.call_tool("touches", {"uri": "x://other"})
            await until(lambda: updates)
            assert set(updates) == {"x://one"}, life
            updates.clear()
            with pytest.raises(ConnectionClosed, match="code 7"):
                await client.call_tool("kills_itself")
        await handle.close()
        await client.call_tool("touches", {"uri": "x://one"})
        await client.ping()
    assert updates == []


async def test_a_server_that_dies_again_and_again_is_not_started_for_ever(tmp_path: Path) -> None:
    code = """
    receive_first = receive()
    while receive_first["method"] != "initialize":
        send(id=receive_first["id"], error={"code": -32601, "message": "?"})
        receive_first = receive()
    greet(receive_first)
    receive()
    sys.exit("out of luck")
    """
    states: list[str] = []
    limits = Limits(restarts=3, shutdown=0.3)
    client = open_fake(tmp_path, code, limits=limits)
    client.on_change("state", states.append)
    began = time.monotonic()
    async with client:
        await until(lambda: states[-1] == "disconnected")
        assert time.monotonic() - began > 0.1, "there are pauses in between"
        count = len(starts(tmp_path))
        assert 2 <= count <= 5
        with pytest.raises(DovetailError, match="out of luck") as caught:
            await client.call_tool("x")
        assert type(caught.value) in (ConnectionClosed, ConnectFailed)


async def test_a_server_that_cannot_be_started_again_is_given_up_with_its_last_words(
    tmp_path: Path,
) -> None:
    code = """
    if START > 1:
        sys.exit("the disk is full")
    serve(crash=lambda request: os._exit(1))
    """
    async with open_fake(tmp_path, code, limits=Limits(restarts=2, shutdown=0.3)) as client:
        with pytest.raises(ConnectionClosed):
            await client.call_tool("crash")
        with pytest.raises((ConnectionClosed, ConnectFailed), match="the disk is full"):
            await client.list_tools()
        assert client.state == "disconnected"
    assert len(starts(tmp_path)) <= 6


async def test_a_server_that_closes_its_output_but_lives_is_replaced(tmp_path: Path) -> None:
    code = """
    def leave(request):
        os.close(1)
        time.sleep(60)
    serve(leave=leave)
    """
    async with open_fake(tmp_path, code) as client:
        with pytest.raises(ConnectionClosed, match="closed its output"):
            await client.call_tool("leave")
        assert (await client.call_tool("x")).text == "done"


# babbling and lying


@pytest.mark.requirement("stdio-stdin-clean")
async def test_garbage_between_messages_disturbs_nobody_and_is_not_answered(tmp_path: Path) -> None:
    code = """
    def babble(request):
        say("Listening on port 8080...")
        say("")
        sys.stdout.buffer.write(b"\\xff\\xfe\\x00\\n[1,2\\n{}\\n[]\\nnull\\n")
        sys.stdout.flush()
        say('{"jsonrpc": "2.0", "method": "notifications/unknown"}')
        say('{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": {}}}')
        say('{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "loud"}}')
        say('{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "?"}}')
        say('{"jsonrpc": "2.0", "id": 12345, "result": {}}')
        say('{"jsonrpc": "2.0", "id": "' + str(request["id"]) + '", "result": {}}')
        say('{"jsonrpc": "2.0", "id": 12345, "error": "what"}')
        text(request, "the answer")
        text(request, "the answer, again")
        send(id=request["id"], error={"code": 1, "message": "and an error on top"})
    serve(babble=babble)
    """  # noqa: E501
    async with open_fake(tmp_path, code, on_log=lambda entry: None) as client:
        for _ in range(3):
            assert (await client.call_tool("babble")).text == "the answer"
        await client.ping()
    assert [message for message in heard(tmp_path) if "method" not in message] == []


@pytest.mark.requirement("cancel-late-reply")
async def test_a_reply_that_comes_too_late_is_dropped_and_the_next_call_gets_its_own(
    tmp_path: Path,
) -> None:
    code = """
    late = []
    def slow(request):
        late.append(request)
    def fast(request):
        for one in late:
            text(one, "too late")
        text(request, "in time")
    serve(slow=slow, fast=fast)
    """
    async with open_fake(tmp_path, code) as client:
        with pytest.raises(TimedOut, match=r"tools/call: no answer within 0.1 s"):
            await client.call_tool("slow", timeout=0.1)
        assert (await client.call_tool("fast")).text == "in time"
    assert (
        heard(tmp_path, "notifications/cancelled")[0]["params"]["requestId"]
        == heard(tmp_path, "tools/call")[0]["id"]
    )


async def test_every_request_has_a_deadline_without_being_told(tmp_path: Path) -> None:
    async with open_fake(
        tmp_path, "serve(wait=lambda request: None)", limits=Limits(timeout=2.0, shutdown=0.3)
    ) as client:
        with pytest.raises(TimedOut, match=r"within 2 s"):
            await client.call_tool("wait")
        await client.ping()


@pytest.mark.parametrize(
    "reply",
    [
        '{"jsonrpc": "2.0", "id": %d}',
        '{"jsonrpc": "2.0", "id": %d, "error": "no"}',
        '{"jsonrpc": "2.0", "id": %d, "result": 5}',
        '{"jsonrpc": "2.0", "id": %d, "result": null}',
        '{"jsonrpc": "2.0", "id": %d, "result": {"content": 5}}',
        '{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text"}]}}',
        '{"jsonrpc": "2.0", "id": %d, "error": {"code": 5, "message": "no", "data": {"deep": '
        "[1]}}}",
    ],
)
async def test_a_broken_reply_ends_its_request_with_one_clear_error(
    tmp_path: Path, reply: str
) -> None:
    code = f"""
    serve(x=lambda request: say({reply!r} % request["id"]))
    """
    async with open_fake(tmp_path, code) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("x", timeout=5)
        assert str(caught.value)
        await client.ping()


STATELESS = """
def stamp(request, **result):
    reply(request, {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result})
def discover(request):
    stamp(request, supportedVersions=["2026-07-28"], capabilities=CAPABILITIES)
"""


@pytest.mark.requirement("result-type-unknown")
@pytest.mark.parametrize("kind", ["'mystery'", "5", "None"])
async def test_an_answer_of_unknown_type_is_one_clear_error(tmp_path: Path, kind: str) -> None:
    code = (
        STATELESS
        + f"serve(server__discover=discover, x=lambda request: reply(request, {{'resultType': "
        f"{kind}}}))"
    )
    async with open_fake(tmp_path, code) as client:
        assert client.revision == "2026-07-28"
        with pytest.raises(InvalidRequest, match=r"tools/call"):
            await client.call_tool("x")
        await client.ping()


@pytest.mark.parametrize(
    ("cursor", "said"),
    [("'same'", "more than 7 pages"), ("str(request['id'])", "more than 7 pages")],
)
async def test_lists_that_never_end_are_given_up(tmp_path: Path, cursor: str, said: str) -> None:
    code = f"""
    serve(tools__list=lambda request: reply(request, {{"tools": [], "nextCursor": {cursor}}}))
    """
    async with open_fake(tmp_path, code, limits=Limits(pages=7, shutdown=0.3)) as client:
        with pytest.raises(InvalidRequest, match=said):
            await client.list_tools()
        await client.ping()
    assert len(heard(tmp_path, "tools/list")) <= 7


async def test_an_answer_over_the_limit_does_not_cost_the_connection(tmp_path: Path) -> None:
    code = """
    serve(huge=lambda request: text(request, "x" * 3_000_000))
    """
    async with open_fake(tmp_path, code, limits=Limits(incoming=1_000_000, shutdown=0.3)) as client:
        with pytest.raises((TimedOut, ProtocolError)):
            await client.call_tool("huge", timeout=1)
        assert (await client.call_tool("x")).text == "done"


async def test_an_answer_of_64_mib_costs_little(tmp_path: Path) -> None:
    code = """
    serve(huge=lambda request: text(request, "x" * (64 << 20)))
    """
    async with open_fake(tmp_path, code) as client:
        began = time.process_time()
        assert len((await client.call_tool("huge")).text) == 64 << 20
        assert time.process_time() - began < 3


async def test_what_a_server_asks_out_of_turn_is_refused_and_nothing_stops(tmp_path: Path) -> None:
    code = """
    def ask(request):
        send(id=1, method="sampling/createMessage", params={})
        send(id=1, method="no/such")
        send(id=2, method="roots/list")
        send(id=None, method="ping")
        send(id=3, method=5)
        send(id=4, method="ping")
        replies = [receive() for _ in range(5)]
        text(request, json.dumps([one.get("error", {}).get("code") for one in replies]))
    serve(ask=ask)
    """
    async with open_fake(tmp_path, code) as client:
        codes = (await client.call_tool("ask")).text
        assert codes == "[-32601, -32601, -32601, -32600, null]"


@pytest.mark.requirement("timeout-max")
async def test_progress_gives_more_time_but_not_for_ever(tmp_path: Path) -> None:
    code = """
    def slow(request):
        token = request["params"]["_meta"]["progressToken"]
        for step in range(1000):
            send(method="notifications/progress", params={"progressToken": token, "progress": step})
            time.sleep(0.05)
    serve(slow=slow)
    """
    updates: list[Any] = []
    async with open_fake(tmp_path, code, limits=Limits(timeout_max=4, shutdown=0.3)) as client:
        began = time.monotonic()
        with pytest.raises(TimedOut):
            await client.call_tool("slow", timeout=3, on_progress=updates.append)
        assert time.monotonic() - began >= 3.9, "progress gave it more time"
    assert len(updates) > 2


async def test_a_hostile_pattern_in_an_output_schema_freezes_nobody(tmp_path: Path) -> None:
    code = """
    def tools(request):
        patterns = ["^(a+)+$", "^(a|aa)+$", "^(?=(a+)+$).*b", "(a*)*(a*)*(a*)*b", r"^(a+)+\\\\1$"]
        schemas = [{"type": "object", "properties": {"v": {"type": "string", "pattern": one}}} for one in patterns]
        listed = [{"name": f"t{n}", "inputSchema": {"type": "object"}, "outputSchema": one} for n, one in enumerate(schemas)]
        reply(request, {"tools": listed})
    evil = lambda request: text(request, "x", structuredContent={"v": "a" * 60 + "!"})
    serve(tools__list=tools, t0=evil, t1=evil, t2=evil, t3=evil, t4=evil)
    """  # noqa: E501
    async with open_fake(tmp_path, code) as client:
        await client.list_tools()
        began = time.process_time()
        for number in range(5):
            await client.call_tool(f"t{number}")
        assert time.process_time() - began < 5


async def test_a_server_that_does_not_read_does_not_hold_up_a_deadline(tmp_path: Path) -> None:
    code = """
    serve(freeze=lambda request: time.sleep(60))
    """
    async with open_fake(
        tmp_path, code, limits=Limits(write_buffer=10_000, shutdown=0.3)
    ) as client:
        calls = [client.call_tool("freeze", {"x": "y" * 500_000}, timeout=0.5) for _ in range(5)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {TimedOut}


# using and closing


async def test_an_exception_of_the_user_arrives_as_itself(tmp_path: Path) -> None:
    class Mine(Exception):
        pass

    with pytest.raises(Mine) as caught:
        async with open_fake(tmp_path, "serve(wait=lambda request: None)") as client:
            waiting = asyncio.create_task(client.call_tool("wait"))
            await until(lambda: heard(tmp_path, "tools/call"))
            raise Mine("as it is")
    assert type(caught.value) is Mine
    assert caught.value.__context__ is None
    with pytest.raises(ConnectionClosed, match="closed"):
        await waiting


async def test_it_may_be_entered_here_and_closed_there_twice_and_by_many(tmp_path: Path) -> None:
    client = open_fake(tmp_path, "serve()")
    await asyncio.create_task(client.connect())
    assert (await asyncio.create_task(client.call_tool("x"))).text == "done"
    await asyncio.gather(*(asyncio.create_task(client.close()) for _ in range(3)))
    await client.close()
    assert not any(map(is_running, starts(tmp_path)))
    with pytest.raises(ConnectionClosed, match="closed"):
        await client.ping()


async def test_many_may_open_it_at_once_and_one_server_is_started(tmp_path: Path) -> None:
    client = open_fake(tmp_path, "serve()", revision="2025-06-18")
    await asyncio.gather(
        *(client.connect() for _ in range(10)), *(client.ping() for _ in range(10))
    )
    await client.close()
    assert len(starts(tmp_path)) == 1


async def test_timeouts_around_calls_are_the_callers_own(tmp_path: Path) -> None:
    async with open_fake(tmp_path, "serve(wait=lambda request: None)") as client:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(60):
                async with asyncio.timeout(0.1):
                    await client.call_tool("wait", timeout=3)
        assert not isinstance(caught.value, DovetailError)
        with pytest.raises(TimedOut):
            async with asyncio.timeout(60):
                await client.call_tool("wait", timeout=0.1)
        async with asyncio.timeout(60):
            await client.ping()
    await until(lambda: len(heard(tmp_path, "notifications/cancelled")) == 2)


def test_a_client_that_was_forgotten_leaves_no_server(tmp_path: Path) -> None:
    async def forget() -> None:
        client = open_fake(tmp_path, "serve()")
        await client.connect()
        await client.ping()

    asyncio.run(forget())
    gc.collect()
    wait_for(lambda: not any(map(is_running, starts(tmp_path))), "the server lives on")


@pytest.mark.parametrize("tool", ["forks", "starts_a_helper"])
async def test_closing_ends_the_children_of_the_server_too(tool: str) -> None:
    async with Client(
        COMMAND, cwd=ROOT, limits=Limits(shutdown=15), on_stderr=lambda line: None
    ) as client:
        child = int((await client.call_tool(tool)).text)
        assert is_running(child)
        began = time.monotonic()
    assert time.monotonic() - began < 10, "they do not keep the client waiting"
    await until(lambda: not is_running(child))


@pytest.mark.requirement("stdio-shutdown")
async def test_closing_ends_a_server_that_is_deaf_to_everything(tmp_path: Path) -> None:
    code = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    def deaf(request):
        text(request, "deaf from now on")
        while True:
            time.sleep(60)
    serve(deaf=deaf)
    """
    async with open_fake(tmp_path, code) as client:
        await client.call_tool("deaf")
    assert not any(map(is_running, starts(tmp_path)))


async def test_closing_while_it_reconnects_ends_that_too(tmp_path: Path) -> None:
    code = """
    if START > 1:
        time.sleep(60)
    serve(crash=lambda request: os._exit(1))
    """
    client = open_fake(tmp_path, code)
    async with client:
        with pytest.raises(ConnectionClosed):
            await client.call_tool("crash")
        waiting = asyncio.create_task(client.ping())
        await until(lambda: len(starts(tmp_path)) == 2)
    with pytest.raises(ConnectionClosed, match="closed"):
        await waiting
    assert not any(map(is_running, starts(tmp_path)))


async def test_a_callback_that_fails_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = """
    def talk(request):
        send(method="notifications/message", params={"level": "info", "data": "hi"})
        token = request["params"]["_meta"]["progressToken"]
        send(method="notifications/progress", params={"progressToken": token, "progress": 1})
        text(request, "said")
    serve(talk=talk)
    """

    def broken(news: Any) -> None:
        raise ValueError("my own mistake")

    async def broken_later(news: Any) -> None:
        raise ValueError("my own mistake, later")

    async with open_fake(tmp_path, code, on_log=broken) as client:
        client.on_change("state", broken)
        assert (await client.call_tool("talk", on_progress=broken_later)).text == "said"
        await client.ping()
    assert any("callback failed" in record.getMessage() for record in caplog.records)


# the portal


def test_the_portal_raises_the_same_flat_errors_and_leaves_nothing(tmp_path: Path) -> None:
    code = "serve(crash=lambda request: os._exit(3), wait=lambda request: None)"
    with open_fake(tmp_path, code).blocking() as client:
        with pytest.raises(ConnectionClosed, match="code 3"):
            client.call_tool("crash")
        with pytest.raises(TimedOut):
            client.call_tool("wait", timeout=0.1)
        assert client.call_tool("x").text == "done"
    with pytest.raises(ConnectionClosed):
        client.ping()
    with (
        pytest.raises(ConnectFailed, match="gone wrong"),
        open_fake(tmp_path, "sys.exit('gone wrong')").blocking(),
    ):
        pass
    with pytest.raises(TimedOut), open_fake(tmp_path, "time.sleep(60)", timeout=0.5).blocking():
        pass


def test_ctrl_c_in_plain_code_cancels_the_call_and_ends_the_server(tmp_path: Path) -> None:
    command = fake(tmp_path, "serve(wait=lambda request: None)")
    program = f"""
    import signal
    from dovetail import Client, Limits
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Client({command!r}, limits=Limits(shutdown=0.5)).blocking() as client:
        try:
            client.call_tool("wait")
        except KeyboardInterrupt:
            client.ping()
            print("interrupted")
        client.call_tool("wait")
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, stdout=-1, stderr=-1
    )
    try:
        wait_for(lambda: len(heard(tmp_path, "tools/call")) == 1, "no call was made")
        process.send_signal(signal.SIGINT)
        wait_for(lambda: len(heard(tmp_path, "tools/call")) == 2, "it did not go on")
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=15)
    finally:
        process.kill()
        process.wait()
    assert said == b"interrupted\n"
    assert errors.strip().endswith(b"KeyboardInterrupt")
    assert process.returncode != 0
    assert len(heard(tmp_path, "notifications/cancelled")) == 2
