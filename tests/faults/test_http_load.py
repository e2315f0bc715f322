"""Many of everything, against a real server process: sessions that nobody ends, streams that nobody
reads to their end, and a SIGTERM in the middle of it. What was counted in the server before is
counted again afterwards."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clock import awake_time
from tests.faults.raw_http import (
    INFO,
    INITIALIZE,
    INITIALIZED,
    Connection,
    Program,
    call,
    get,
    listen,
    modern_call,
    post,
    request,
    running,
    until,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="counts open files and memory as Linux shows them"
)

KIB, MIB = 1024, 1024 * 1024
SESSIONS, STREAMS, AT_ONCE = 10_000, 1000, 100
EXIT_SECONDS = 3.0


@pytest.fixture
def program() -> Iterator[Program]:
    with running(env={"FROZEN": "1"}, session_idle=1, session_life=10) as program:
        yield program


@pytest.fixture
def traced() -> Iterator[Program]:
    """A server that counts what Python allocates. Resident memory also has what the allocator keeps
    for the next time, and how much that is changes from round to round."""
    with running(env={"PYTHONTRACEMALLOC": "1"}) as program:
        yield program


def pipelined(connection: Connection, requests: list[bytes], status: int) -> list[dict[str, str]]:
    """The headers of the answers to requests that are sent together; all of them have this
    status."""
    connection.send(b"".join(requests))
    replies = [connection.reply() for _ in requests]
    assert {reply.status for reply in replies} == {status}
    return [reply.headers for reply in replies]


def sessions_left_open(program: Program, count: int) -> None:
    """Open so many sessions, use each of them once, and leave."""
    with program.connect() as connection:
        for _ in range(count // 100):
            ids = [
                headers["mcp-session-id"]
                for headers in pipelined(connection, [post(INITIALIZE)] * 100, 200)
            ]
            assert len(set(ids)) == 100
            pipelined(connection, [post(INITIALIZED, id) for id in ids], 202)
            pipelined(connection, [post(call("add", a=1, b=2), id) for id in ids], 200)


def empty(program: Program) -> bool:
    figures = program.tool("figures")
    return bool(figures["HttpSession"] == figures["tombstones"] == 0)


def settled(program: Program, before: dict[str, int]) -> dict[str, int]:
    """The figures, once everything but the memory is as it was."""
    countable = set(before) - {"memory", "allocated"}
    until(
        lambda: all(program.tool("figures")[name] <= before[name] for name in countable),
        f"more is left than there was: {program.tool('figures')} instead of {before}",
    )
    figures: dict[str, int] = program.tool("figures")
    return figures


def test_ten_thousand_sessions_left_open_take_less_than_4_kib_each_and_are_gone_after_the_idle_time(
    program: Program,
) -> None:
    sessions_left_open(program, 500)
    before = program.tool("figures")
    sessions_left_open(program, SESSIONS)
    full = program.tool("figures")
    assert full["HttpSession"] - before["HttpSession"] == SESSIONS
    assert full["memory"] - before["memory"] < 4 * KIB * SESSIONS

    program.tool("advance", seconds=2)
    until(lambda: program.tool("figures")["HttpSession"] == 0, "unused sessions stay")
    assert program.tool("figures")["tombstones"] == SESSIONS + 500
    program.tool("advance", seconds=10)
    until(lambda: empty(program), "tombstones outlive what they stand for")

    sessions_left_open(program, SESSIONS)
    again = program.tool("figures")
    assert again["HttpSession"] == SESSIONS
    assert again["memory"] - full["memory"] < MIB
    program.tool("advance", seconds=2)
    until(lambda: program.tool("figures")["HttpSession"] == 0, "unused sessions stay")
    program.tool("advance", seconds=10)
    until(lambda: empty(program), "tombstones outlive what they stand for")


def test_a_session_that_is_used_does_not_go_with_the_idle_ones(program: Program) -> None:
    used, unused = program.session(), program.session()
    for _ in range(4):
        program.tool("advance", seconds=0.6)
        assert program.ask(post(call("add", a=1, b=2), used)).result == 3
    until(lambda: program.tool("figures")["HttpSession"] == 1, "the unused one stays")
    assert program.ask(post(call("add", a=1, b=2), used)).status == 200
    assert program.ask(post(call("add", a=1, b=2), unused)).status == 404


def test_five_thousand_refused_openings_leave_nothing_behind(traced: Program) -> None:
    stateless = INITIALIZE | {"params": INFO | {"protocolVersion": 7}}
    refusals = [
        (403, post(INITIALIZE, Origin="https://evil.example")),
        (400, post(INITIALIZE, MCP_Protocol_Version="1999-01-01")),
        (400, request("POST", {}, b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{')),
        (421, post(INITIALIZE, Host="evil.example")),
        (200, post(stateless)),
    ]
    with traced.connect() as connection:

        def refused(times: int) -> None:
            for _ in range(times // 100):
                for status, bad in refusals:
                    for headers in pipelined(connection, [bad] * 20, status):
                        assert "mcp-session-id" not in headers

        refused(1000)
        before = traced.tool("figures")
        refused(5000)
        after = traced.tool("figures")
    for name in set(before) - {"memory", "allocated"}:
        assert after[name] == before[name], name
    assert after["allocated"] - before["allocated"] < 100 * KIB


@pytest.mark.parametrize("kind", ["GET", "listen"])
def test_a_thousand_streams_opened_and_dropped_leave_nothing_behind(
    traced: Program, kind: str
) -> None:
    sessions = [traced.session() for _ in range(STREAMS // 25)]

    def opened_and_dropped() -> dict[str, int]:
        streams = [traced.connect() for _ in range(STREAMS)]
        for number, stream in enumerate(streams):
            stream.send(get(sessions[number // 25]) if kind == "GET" else listen("file:///x"))
        for stream in streams:
            assert stream.head()[0] == 200
        figures: dict[str, int] = traced.tool("figures")
        for number, stream in enumerate(streams):
            stream.close(abruptly=number % 2 == 0)
        return figures

    cold = traced.tool("figures")
    opened_and_dropped()
    before = settled(traced, cold)
    full = opened_and_dropped()
    after = settled(traced, cold)
    for name in ("EventStream", "files"):
        assert full[name] - before[name] == STREAMS, name
    assert full["tasks"] - before["tasks"] >= STREAMS
    taken, left = (figures["allocated"] - before["allocated"] for figures in (full, after))
    assert taken > MIB and left < taken / 20, (taken, left)


def test_sigterm_with_a_hundred_open_streams_ends_all_of_them_in_good_order_within_three_seconds(
    tmp_path: Path,
) -> None:
    left = tmp_path / "left"
    with running(env={"LEFT": str(left)}) as program:
        session = program.session()
        opening = [
            lambda number: get(session) if number % 50 < 30 else get(program.session()),
            lambda number: listen("file:///x"),
            lambda number: modern_call("wait", tag="modern"),
            lambda number: post(
                call("wait", number, tag="old"), session if number % 50 < 24 else program.session()
            ),
        ]
        streams = []
        for number in range(AT_ONCE):
            kind = number % len(opening)
            streams.append(program.connect().send(opening[kind](number)))
            status, headers = streams[-1].head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
        until(lambda: program.tool("figures")["Call"] > AT_ONCE * 3 // 4, "the calls do not begin")

        began = awake_time()
        program.popen.send_signal(signal.SIGTERM)
        endings = [
            stream.rest() for stream in streams
        ]  # each with its last chunk, or it would have broken off
        assert program.popen.wait(60) == 0
        assert awake_time() - began < EXIT_SECONDS
        assert left.read_text(encoding="utf-8").splitlines() == [str(program.popen.pid)]
        assert program.said() == ""
        for stream in streams:
            stream.close()
    for number in range(1, AT_ONCE, len(opening)):  # a subscription is told that it ends
        assert "result" in endings[number][-1][1]
