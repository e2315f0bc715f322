"""A real server process, and all the ways in which its streams, its parent and the system treat it
badly."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, SUBSCRIPTION_ID
from tests.clock import awake_time
from tests.faults.conftest import COMMAND, ROOT, call

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="signals, terminals and process groups as POSIX has them"
)

SECONDS = 20
INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "0"},
}
GREETING = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INFO}
META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PING = {"jsonrpc": "2.0", "id": "ping", "method": "ping"}


def lines(*messages: Any) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Program:
    """The misbehaving server, as a process of ours with plain pipes."""

    def __init__(self, command: list[str] = COMMAND, **options: Any) -> None:
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.stderr}
        self.popen = subprocess.Popen(command, cwd=ROOT, bufsize=0, **(streams | options))
        self._read = b""

    def send(self, *messages: Any) -> None:
        assert self.popen.stdin
        self.popen.stdin.write(lines(*messages))

    def receive(self) -> Any:
        """The next message."""
        while b"\n" not in self._read:
            chunk = self.chunk()
            assert chunk, f"the output has ended; stderr: {self.said()}"
            self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    def chunk(self) -> bytes:
        assert self.popen.stdout
        assert select.select([self.popen.stdout], [], [], SECONDS)[0], (
            f"silence; stderr: {self.said()}"
        )
        return os.read(self.popen.stdout.fileno(), 65536)

    def rest(self) -> list[Any]:
        """All messages up to the end of the output."""
        data, self._read = self._read + b"".join(iter(self.chunk, b"")), b""
        return [json.loads(line) for line in data.splitlines()]

    def greet(self) -> None:
        self.send(GREETING, READY)
        assert self.receive()["result"]["serverInfo"]["name"] == "misbehaving"

    def hold(self, tool: str) -> None:
        """Call a tool that does not come back, and wait until it runs."""
        self.send(call("held", tool))
        assert self.receive()["method"] == "notifications/message"

    def ping(self) -> None:
        self.send(PING)
        assert self.receive() == {"jsonrpc": "2.0", "id": "ping", "result": {}}

    def hang_up(self) -> None:
        assert self.popen.stdin
        self.popen.stdin.close()

    def end(self) -> int:
        """Wait for the end; the exit code."""
        return self.popen.wait(SECONDS)

    def said(self) -> str:
        self.stderr.seek(0)
        return self.stderr.read().decode()

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(*args: Any, **options: Any) -> Program:
        started.append(Program(*args, **options))
        return started[-1]

    yield start
    for program in started:
        program.close()


Start = Callable[..., Program]


# the end of the input


@pytest.mark.requirement("stdio-exit")
def test_the_end_of_stdin_ends_a_server_quietly(start: Start) -> None:
    server = start()
    server.greet()
    server.hang_up()
    assert server.end() == 0
    assert server.rest() == []
    assert server.said() == ""


def test_all_that_was_asked_before_the_end_of_stdin_is_answered(start: Start) -> None:
    server = start()
    server.send(
        GREETING,
        READY,
        *(call(number, "add", a=number, b=1) for number in range(500)),
        call("t", "prints"),
    )
    server.hang_up()
    replies = {reply["id"]: reply for reply in server.rest()}
    assert replies.keys() == {0, "t", *range(500)}
    assert server.end() == 0


@pytest.mark.parametrize("tool", ["waits", "clings", "blocks_an_executor"])
def test_a_stuck_tool_does_not_keep_a_server_alive_whose_client_has_left(
    start: Start, tool: str
) -> None:
    server = start(env={**os.environ, "LIMITS": '{"shutdown": 0.5}'})
    server.greet()
    server.hold(tool)
    server.hang_up()
    assert server.end() == (0 if tool == "waits" else 1)


def test_a_last_line_without_newline_is_answered(start: Start) -> None:
    server = start()
    assert server.popen.stdin
    server.popen.stdin.write(lines(PING).rstrip())
    server.hang_up()
    assert [reply["id"] for reply in server.rest()] == ["ping"]
    assert server.end() == 0


def test_half_a_message_at_the_end_is_refused_and_the_server_ends(start: Start) -> None:
    server = start()
    assert server.popen.stdin
    server.popen.stdin.write(lines(PING) + lines(PING)[:20])
    server.hang_up()
    first, second = server.rest()
    assert first["id"] == "ping"
    assert second["error"]["code"] == -32700
    assert server.end() == 0


@pytest.mark.parametrize("size", [1, 7])
def test_messages_may_come_in_pieces_of_any_size(start: Start, size: int) -> None:
    server = start()
    assert server.popen.stdin
    data = (
        lines(PING, {**PING, "id": "ü"}).replace(b"\n", b"\r\n")
        + b"\r\n\n  \n"
        + lines({**PING, "id": "last"})
    )
    for index in range(0, len(data), size):
        server.popen.stdin.write(data[index : index + size])
    replies = [server.receive() for _ in range(4)]
    assert [reply["id"] for reply in replies] == ["ping", "ü", None, "last"]


def test_a_client_that_leaves_without_reading_its_answers_does_not_keep_the_server(
    start: Start,
) -> None:
    server = start(env={**os.environ, "LIMITS": '{"shutdown": 0.5}'})
    server.greet()
    server.send(call(1, "chatters", count=1000, size=50_000))
    server.hang_up()
    assert server.end() == 0
    assert "Traceback" not in server.said()


LISTEN = {
    "jsonrpc": "2.0",
    "id": "stream",
    "method": "subscriptions/listen",
    "params": {"_meta": META, "notifications": {"toolsListChanged": True}},
}


@pytest.mark.requirement("subscriptions-id", "subscriptions-graceful")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None])
def test_an_open_stream_is_closed_in_good_order_and_holds_nothing_up(
    start: Start, number: signal.Signals | None
) -> None:
    server = start(env={**os.environ, "LIMITS": '{"shutdown": 15}'})
    server.send(LISTEN)
    assert server.receive()["method"] == "notifications/subscriptions/acknowledged"
    began = awake_time()
    if number is None:
        server.hang_up()
    else:
        server.popen.send_signal(number)
    told, last = server.rest()
    assert (told["params"]["requestId"], last["id"]) == ("stream", "stream")
    assert {one["_meta"][SUBSCRIPTION_ID] for one in (told["params"], last["result"])} == {"stream"}
    assert server.end() == 0
    assert awake_time() - began < 10, "nobody waited for the stream to end by itself"


# what stdin and stdout may be


@pytest.mark.parametrize("tool", ["add", "prints"])
def test_stdin_may_be_a_file_and_all_of_it_is_answered(
    start: Start, tmp_path: Path, tool: str
) -> None:
    arguments = {"a": 1, "b": 1} if tool == "add" else {}
    script = tmp_path / "messages"
    script.write_bytes(
        lines(GREETING, READY, *(call(number, tool, **arguments) for number in range(1, 300)))
    )
    with script.open("rb") as stdin:
        server = start(stdin=stdin)
        assert {reply["id"] for reply in server.rest()} == set(range(300))
        assert server.end() == 0


def test_stdout_may_be_a_file(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as stdout:
        server = start(stdout=stdout)
        server.send(PING, PING)
        server.hang_up()
        assert server.end() == 0
    assert len((tmp_path / "out").read_bytes().splitlines()) == 2


def test_the_null_device_as_stdin_is_an_input_that_has_ended(start: Start) -> None:
    server = start(stdin=subprocess.DEVNULL)
    assert server.rest() == []
    assert server.end() == 0


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_streams_that_are_closed_from_the_start_confuse_nobody(start: Start, closed: str) -> None:
    server = start(["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND])
    if "<" not in closed:
        server.greet()
        server.send(call(1, "prints"))
        assert server.receive()["result"]["content"][0]["text"] == "quiet"
        server.hang_up()
    assert server.rest() == []
    assert server.end() == 0


def test_it_can_be_tried_out_by_hand_in_a_terminal(start: Start) -> None:
    ours, theirs = pty.openpty()
    server = start(stdin=theirs, stdout=theirs, start_new_session=True)
    os.close(theirs)
    said = b""

    def hear(what: bytes) -> None:
        nonlocal said
        while what not in said:
            assert select.select([ours], [], [], SECONDS)[0], said
            said += os.read(ours, 65536)

    os.write(ours, lines(PING))
    hear(b'"result":{}')
    os.write(ours, b"hello?\n")
    hear(b"-32700")
    os.write(ours, b"\x04")  # Ctrl-D
    assert server.end() == 0
    os.close(ours)


def test_a_client_that_reads_no_more_ends_the_server(start: Start) -> None:
    server = start()
    server.greet()
    assert server.popen.stdout
    server.popen.stdout.close()
    server.send(PING)
    assert server.end() == 0
    assert "Traceback" not in server.said()


def test_what_was_printed_before_the_server_ran_is_not_sent_to_the_client(start: Start) -> None:
    code = "print('hello'); from tests.faults.misbehaving import build; build().run()"
    server = start([sys.executable, "-c", code])
    server.ping()
    server.hang_up()
    assert server.end() == 0
    assert server.said() == "hello\n"


# signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("tool", [None, "waits", "blocks"])
def test_asked_to_end_a_server_ends_quietly(
    start: Start, number: signal.Signals, tool: str | None
) -> None:
    server = start()
    server.greet()
    if tool == "waits":
        server.hold(tool)
    elif tool is not None:
        server.send(call("held", tool))
        server.ping()
    server.popen.send_signal(number)
    assert server.end() == 0
    assert server.rest() == []
    assert server.said() == ""


def test_a_signal_that_comes_while_the_loop_is_being_closed_is_no_noise(
    start: Start, tmp_path: Path
) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        textwrap.dedent("""
            import asyncio, os, signal
            from tests.faults.misbehaving import build

            closed = asyncio.SelectorEventLoop._close_self_pipe

            def close(loop):
                closed(loop)
                os.kill(os.getpid(), signal.SIGTERM)

            asyncio.SelectorEventLoop._close_self_pipe = close
            build().run()
        """)
    )
    server = start([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    server.greet()
    server.hang_up()
    assert server.end() == 0
    assert server.said() == ""


def test_a_tool_may_clean_up_before_the_lifespan_does(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        textwrap.dedent("""
        import asyncio, sys
        from contextlib import asynccontextmanager
        from dovetail import Context, Limits, Server

        @asynccontextmanager
        async def lifespan(server):
            yield
            print("lifespan left", file=sys.stderr)

        server = Server("misbehaving", lifespan=lifespan, limits=Limits(shutdown=0.7))

        @server.tool
        async def waits(ctx: Context) -> None:
            ctx.info("waiting")
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
                print("tool left", file=sys.stderr)

        server.run()
        """)
    )
    for number in (signal.SIGTERM, None):
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = start([sys.executable, str(script)], env=env)
        server.greet()
        server.hold("waits")
        if number:
            server.popen.send_signal(number)
        else:
            server.hang_up()
        assert server.end() == 0
        assert re.findall("tool left|lifespan left", server.said()) == [
            "tool left",
            "lifespan left",
        ]


@pytest.mark.parametrize("tool", ["clings", "blocks_the_loop"])
def test_a_second_ctrl_c_ends_a_server_at_once_whatever_is_stuck(start: Start, tool: str) -> None:
    server = start(env={**os.environ, "LIMITS": '{"shutdown": 15}'})
    server.greet()
    server.hold(tool)
    while server.popen.poll() is None:
        server.popen.send_signal(signal.SIGINT)
        time.sleep(0.1)  # two signals in one moment are one
    assert server.end() == 130, "it was the second, not the end of its patience"
    assert "Traceback" not in server.said()


@pytest.mark.parametrize("tool", ["clings", "blocks_the_loop"])
def test_term_ends_a_server_in_bounded_time_whatever_is_stuck(start: Start, tool: str) -> None:
    server = start(env={**os.environ, "LIMITS": '{"shutdown": 0.5}'})
    server.greet()
    server.hold(tool)
    server.popen.send_signal(signal.SIGTERM)
    server.end()
    assert "Traceback" not in server.said()


# the parent


PARENT = """
import subprocess, sys, time
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
pipes = [server.stdin.fileno(), server.stdout.fileno()]
sibling = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, pass_fds=pipes)
server.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
server.stdout.readline()
print([server.pid, sibling.pid], flush=True)
time.sleep(60)
"""


def test_a_server_ends_with_its_parent_even_if_a_sibling_holds_its_pipes(start: Start) -> None:
    parent = start([sys.executable, "-c", PARENT, *COMMAND])
    server, sibling = parent.receive()
    try:
        assert is_running(server)
        parent.popen.kill()
        until(lambda: not is_running(server), "the server lives on without its parent")
        assert is_running(sibling)
    finally:
        os.kill(sibling, signal.SIGKILL)


# children


@pytest.mark.parametrize("tool", ["forks", "starts_a_helper"])
def test_what_a_tool_starts_does_not_hold_the_pipes_open(start: Start, tool: str) -> None:
    server = start()
    server.greet()
    server.send(call(1, tool))
    child = int(server.receive()["result"]["content"][0]["text"])
    try:
        server.ping()
        server.hang_up()
        assert server.rest() == [], "the output ends with the server, though its child lives"
        assert is_running(child)
        assert server.end() == 0
    finally:
        os.kill(child, signal.SIGKILL)


# back-pressure


def resident(pid: int) -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return int(match[1]) // 1024


SIZE, COUNT, MIB = 50_000, 800, 20
"""Forty megabytes in all, of which the server may hold on to twenty at most."""


def test_a_client_that_does_not_read_is_waited_for_with_bounded_memory(start: Start) -> None:
    server = start()
    server.greet()
    before = resident(server.popen.pid)
    assert server.popen.stdin
    os.set_blocking(server.popen.stdin.fileno(), False)
    data, sent = lines(*(call(number, "echo", text="x" * SIZE) for number in range(COUNT))), 0
    while sent < len(data) and select.select([], [server.popen.stdin], [], 0.5)[1]:
        sent += os.write(server.popen.stdin.fileno(), data[sent : sent + 65536])
    assert sent < len(data) // 4, "it reads on although nobody takes its answers"
    assert resident(server.popen.pid) - before < MIB
    received = 0
    while received < COUNT:
        writers = [server.popen.stdin] if sent < len(data) else []
        readable, writable, _ = select.select([server.popen.stdout], writers, [], SECONDS)
        assert readable or writable, "it does not go on"
        if writable:
            sent += os.write(server.popen.stdin.fileno(), data[sent : sent + 65536])
        if readable:
            received += server.chunk().count(b"\n")
    os.set_blocking(server.popen.stdin.fileno(), True)
    server.ping()


def test_a_file_is_read_no_faster_than_the_answers_are_taken(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "messages"
    script.write_bytes(
        lines(GREETING, *(call(number, "echo", text="x" * SIZE) for number in range(COUNT)))
    )
    with script.open("rb") as stdin:
        server = start(stdin=stdin)
        assert server.receive()["id"] == 0
        before = resident(server.popen.pid)
        time.sleep(0.5)  # as long as it likes to fill up
        assert resident(server.popen.pid) - before < MIB
        assert len(server.rest()) == COUNT
        assert server.end() == 0


def test_a_tool_that_awaits_its_log_messages_waits_for_a_slow_reader(start: Start) -> None:
    server = start()
    server.greet()
    before = resident(server.popen.pid)
    server.send(call(1, "chatters", count=COUNT, size=SIZE))
    first = server.receive()
    time.sleep(0.5)  # as long as it likes to fill up
    assert resident(server.popen.pid) - before < MIB
    messages = [first]
    while "id" not in messages[-1]:
        messages.append(server.receive())
    assert len(messages) == COUNT + 1
    server.ping()
