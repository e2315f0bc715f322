"""Clients that mean harm, or have never read RFC 9112: each is refused or dropped, and the next
good one is served.

One server process with small limits stands for all tests; after each of them it has as many tasks,
open files and calls as before, and answers.
"""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as dial
from websockets.typing import Subprotocol

from dovetail import Client
from dovetail.errors import TooLarge
from tests.faults.raw_http import (
    INITIALIZE,
    SECONDS,
    Connection,
    Program,
    Reply,
    call,
    get,
    listen,
    modern_call,
    opened,
    post,
    request,
    running,
    until,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="counts open files and memory as Linux shows them"
)

KIB, MIB = 1024, 1024 * 1024
PATIENCE = 0.5
"""How long the server waits for the rest of a request."""
INCOMING, EVENTS = 256 * KIB, 256 * KIB


@pytest.fixture(scope="module")
def server() -> Iterator[Program]:
    with running(
        body_timeout=PATIENCE, incoming=INCOMING, events=EVENTS, stream_after=0.2
    ) as program:
        for _ in range(20):
            assert program.tool("add", a=1, b=2) == 3
        yield program


@pytest.fixture
def program(server: Program) -> Iterator[Program]:
    """The server, which must be as it was when the test is over."""
    before = server.tool("figures")
    yield server
    assert server.tool("add", a=1, b=2) == 3
    for name in ("tasks", "files", "Call"):
        until(
            lambda name=name: server.tool("figures")[name] <= before[name],
            f"{name}: more than there was",
        )  # type: ignore[misc]
    assert server.popen.poll() is None
    assert "Traceback" not in server.said()


def refused_or_dropped(connection: Connection, data: bytes) -> int | None:
    """Send something bad: the status of the refusal, or None where the connection was just
    closed."""
    try:
        connection.send(data)
        line = connection.file.readline()
    except (ConnectionResetError, BrokenPipeError):
        return None
    return int(line.split()[1]) if line else None


GOOD = modern_call("add", a=1, b=2)
HEAD, _, BODY = GOOD.partition(b"\r\n\r\n")
BODY_LENGTH = b"Content-Length: %d" % len(BODY)
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"
)


def with_header(line: bytes) -> bytes:
    """The good request with one more line in its head."""
    return HEAD + b"\r\n" + line + b"\r\n\r\n" + BODY


# heads


HEADS: dict[str, tuple[bytes, set[int]]] = {
    "a header with a bare CR": (with_header(b"X-Evil: a\rMcp-Session-Id: b"), {400}),
    "a header with NUL": (with_header(b"X-Evil: a\0b"), {400}),
    "a NUL in a name": (with_header(b"X-\0Evil: a"), {400}),
    "a folded header": (with_header(b"X-Evil: a\r\n b"), {400}),
    "a space before the colon": (with_header(b"X-Evil : a"), {400}),
    "no colon": (with_header(b"evil"), {400}),
    "two different lengths": (with_header(b"Content-Length: 1"), {400}),
    "the same length twice": (with_header(BODY_LENGTH), {400}),
    "a negative length": (GOOD.replace(BODY_LENGTH, b"Content-Length: -1"), {400}),
    "a length in hex": (GOOD.replace(BODY_LENGTH, b"Content-Length: 0x10"), {400}),
    "a length with a plus": (GOOD.replace(BODY_LENGTH, b"Content-Length: +10"), {400}),
    "a length beyond all bounds": (
        GOOD.replace(BODY_LENGTH, b"Content-Length: " + b"9" * 40),
        {400, 413},
    ),
    "a length beyond the limit": (
        GOOD.replace(BODY_LENGTH, b"Content-Length: %d" % (INCOMING + 1)),
        {413},
    ),
    "length and chunks": (with_header(b"Transfer-Encoding: chunked"), {400}),
    "chunks, but not last": (
        GOOD.replace(BODY_LENGTH, b"Transfer-Encoding: chunked, gzip"),
        {400, 501},
    ),
    "unknown encoding": (GOOD.replace(BODY_LENGTH, b"Transfer-Encoding: cow"), {400, 501}),
    "chunks twice": (
        GOOD.replace(BODY_LENGTH, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        {400},
    ),
    "no number before a chunk": (GOOD.replace(BODY_LENGTH, b"Transfer-Encoding: chunked"), {400}),
    "two hosts": (with_header(b"Host: 127.0.0.1"), {400}),
    "two sessions": (with_header(b"Mcp-Session-Id: a\r\nMcp-Session-Id: b"), {400}),
    "two versions": (with_header(b"MCP-Protocol-Version: 2025-06-18"), {400}),
    "two origins": (with_header(b"Origin: http://127.0.0.1\r\nOrigin: http://evil.example"), {403}),
    "two methods": (with_header(b"Mcp-Method: ping"), {400}),
    "a session id of high bytes": (with_header(b"Mcp-Session-Id: \xff\xfe"), {400}),
    "another host": (GOOD.replace(b"Host: 127.0.0.1", b"Host: evil.example"), {421}),
    "a host that begins like ours": (
        GOOD.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1.evil.example"),
        {421},
    ),
    "a host with a user": (
        GOOD.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1@evil.example"),
        {421},
    ),
    "no host": (GOOD.replace(b"Host: 127.0.0.1\r\n", b""), {400}),
    "no host, and an absolute URI": (
        GOOD.replace(b"Host: 127.0.0.1\r\n", b"").replace(b"/mcp", b"http://127.0.0.1/mcp", 1),
        {400},
    ),
    "an impossible address": (GOOD.replace(b"Host: 127.0.0.1", b"Host: 999.999.999.999"), {421}),
    "an address with a zone": (GOOD.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1%evil"), {421}),
    "an absolute URI of elsewhere": (
        GOOD.replace(b"/mcp", b"http://evil.example/mcp", 1),
        {421},
    ),
    "an absolute URI with a user": (GOOD.replace(b"/mcp", b"http://a@127.0.0.1/mcp", 1), {421}),
    "an absolute URI and two hosts": (
        with_header(b"Host: 127.0.0.1").replace(b"/mcp", b"http://127.0.0.1/mcp", 1),
        {400},
    ),
    "an absolute URI without a host": (GOOD.replace(b"/mcp", b"http:///mcp", 1), {400}),
    "HTTP/2.0": (GOOD.replace(b"HTTP/1.1", b"HTTP/2.0", 1), {505}),
    "HTTP/2.0 without a body": (b"GET / HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n", {505}),
    "an authority": (
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
        {400, 404, 405, 421},
    ),
    "an asterisk": (GOOD.replace(b"POST /mcp", b"OPTIONS *", 1), {400, 404, 405}),
    "no such method": (GOOD.replace(b"POST", b"EVIL", 1), {400}),
    "no HTTP version": (GOOD.replace(b" HTTP/1.1", b"", 1), {505}),
    "HTTP of the future": (GOOD.replace(b"HTTP/1.1", b"HTTP/9.9", 1), {400}),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 404, 405}),
    "a TLS greeting": (bytes.fromhex("16030100a5010000a10303") + b"\0" * 160, {400}),
    "garbage": (bytes(range(256)) * 16, {400}),
    "NULs": (b"\0" * 4096, {400}),
    "an upgrade": (with_header(b"Connection: Upgrade\r\nUpgrade: websocket"), {200, 400, 426}),
    "1 MiB of one header": (with_header(b"X-Evil: " + b"a" * MIB), {400, 431}),
    "10,000 headers": (
        with_header(b"\r\n".join(b"X-Evil-%d: a" % number for number in range(10_000))),
        {400, 431},
    ),
    "a URI of 1 MiB": (GOOD.replace(b"/mcp", b"/mcp?" + b"a" * MIB, 1), {400, 414, 431}),
}


@pytest.mark.parametrize(("data", "statuses"), HEADS.values(), ids=HEADS)
def test_a_bad_head_is_refused_with_a_status(
    program: Program, data: bytes, statuses: set[int]
) -> None:
    with program.connect() as connection:
        assert refused_or_dropped(connection, data) in statuses


@pytest.mark.parametrize("scheme", [b"http", b"HTTP", b"https"])
@pytest.mark.parametrize("host", [b"127.0.0.1", b"evil.example"])
def test_an_absolute_uri_of_our_own_is_served_whatever_the_host_header_says(
    program: Program, scheme: bytes, host: bytes
) -> None:
    data = GOOD.replace(b"/mcp", scheme + b"://127.0.0.1/mcp", 1)
    assert program.ask(data.replace(b"Host: 127.0.0.1", b"Host: " + host)).result == 3


@pytest.mark.parametrize("space", [b" ", b"\t", b" \t "])
@pytest.mark.parametrize(
    "line", [BODY_LENGTH, b"Host: 127.0.0.1", b"Content-Type: application/json"]
)
def test_a_space_after_the_value_of_a_header_is_legal(
    program: Program, line: bytes, space: bytes
) -> None:
    assert program.ask(GOOD.replace(line, line + space)).result == 3


def test_an_http_1_0_request_needs_no_host(program: Program) -> None:
    data = GOOD.replace(b"Host: 127.0.0.1\r\n", b"").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    assert program.ask(data).result == 3


def test_crlf_in_what_a_client_says_never_becomes_a_header_of_ours(program: Program) -> None:
    evil = "x\r\nSet-Cookie: evil=1\r\n\r\n<html>"
    message = INITIALIZE | {
        "params": {
            "protocolVersion": evil,
            "capabilities": {},
            "clientInfo": {"name": evil, "version": evil},
        }
    }
    replies = [
        program.ask(post(message)),
        program.ask(post(call("add", evil), program.session())),
        program.ask(post(call(evil), program.session())),
        program.ask(request("POST", {"Origin": "http://evil%0d%0aSet-Cookie:x"}, BODY)),
        program.ask(request("GET", {}, path="/%0d%0aSet-Cookie:%20evil=1")),
    ]
    for reply in replies:
        assert "set-cookie" not in reply.headers
        assert json.loads(reply.body)["jsonrpc"] == "2.0"


# bodies


def test_a_smuggled_second_request_is_not_served_after_a_refused_first_one(
    program: Program,
) -> None:
    hidden = modern_call("wait", tag="smuggled")
    with program.connect() as connection:
        data = with_header(b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + hidden
        assert refused_or_dropped(connection, data) == 400
        assert connection.ended()
    assert program.tool("outcomes", tag="smuggled") == [0, 0, 0]


def test_what_comes_after_a_body_is_no_part_of_it(program: Program) -> None:
    with program.connect() as connection:
        assert connection.ask(GOOD).result == 3
        assert connection.ask(b'{"more": "than was announced"}').status == 400
        assert connection.ended()
    with program.connect() as connection:
        assert connection.ask(GOOD + b'{"more": "than was announced"}').status in (200, 400)
        assert connection.ended()


@pytest.mark.parametrize("body", [b'"' + b"a" * INCOMING, b"[" * INCOMING], ids=["long", "nested"])
def test_chunks_beyond_the_limit_are_refused_while_they_come(program: Program, body: bytes) -> None:
    chunk = b"%x\r\n%b\r\n" % (len(body), body)
    with program.connect() as connection:
        data = (
            GOOD[: GOOD.index(b"Content-Length")]
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + chunk * 4
        )
        assert refused_or_dropped(connection, data) in (413, 400)


@pytest.mark.parametrize("nested", ["[", '{"a":'])
def test_a_deeply_nested_body_is_refused(program: Program, nested: str) -> None:
    for body in (
        nested * 20_000,
        f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{nested * 20_000}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":'
        + "[" * 20_000
        + "]" * 20_000
        + "}}",
    ):
        reply = program.ask(request("POST", {"Mcp-Session-Id": program.session()}, body.encode()))
        assert "error" in reply.message or reply.message["result"]["isError"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"\xff\xfe",
        b"null",
        b"1",
        b'"x"',
        b"[]",
        b"{}",
        b'{"jsonrpc":"2.0"}',
        b"\xef\xbb\xbf{}",
        b"[[]]",
    ],
)
def test_a_body_that_is_no_message_is_refused(program: Program, body: bytes) -> None:
    assert program.ask(request("POST", {"Mcp-Session-Id": program.session()}, body)).status == 400


# those who take their time


@pytest.mark.parametrize(
    "sent",
    [b"", b"P", b"POST /mcp HT", HEAD[:-20], HEAD],
    ids=["nothing", "a letter", "a line", "half", "most"],
)
def test_a_hundred_connections_that_never_finish_their_headers_are_closed(
    program: Program, sent: bytes
) -> None:
    connections = [program.connect().send(sent) for _ in range(100)]
    assert program.tool("add", a=1, b=2) == 3
    for connection in connections:
        assert connection.ended()
        connection.close()


def test_slow_headers_on_a_connection_that_was_used_before_are_bounded_too(
    program: Program,
) -> None:
    with program.connect() as connection:
        assert connection.ask(GOOD).result == 3
        connection.send(HEAD)
        assert connection.ended()


def test_headers_that_drip_are_bounded_as_a_whole(program: Program) -> None:
    with program.connect() as connection:
        connection.send(HEAD)
        stopped = threading.Event()

        def drip() -> None:
            try:
                while not stopped.wait(PATIENCE / 10):
                    connection.send(b"\r\nX-Drip: a")
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert connection.ended()
        finally:
            stopped.set()
            dripping.join()


def test_a_body_that_does_not_come_is_answered_with_408(program: Program) -> None:
    with program.connect() as connection:
        connection.send(GOOD[:-5])
        reply = connection.reply()
        assert reply.status == 408
        assert connection.ended()


def test_a_body_that_drips_is_bounded_as_a_whole(program: Program) -> None:
    connections = [program.connect().send(HEAD + b"\r\n\r\n") for _ in range(50)]
    statuses = set()
    for byte in BODY[:40]:
        for connection in connections:
            try:
                connection.send(bytes([byte]))
            except OSError:
                pass
        if threading.Event().wait(PATIENCE / 20):
            break
    for connection in connections:
        try:
            statuses.add(connection.head()[0])
        except ConnectionResetError:
            pass
        connection.close()
    assert statuses <= {408}


def test_hundreds_of_connections_that_say_nothing_do_not_keep_others_waiting(
    program: Program,
) -> None:
    silent = [program.connect() for _ in range(300)]
    for _ in range(50):
        assert program.tool("add", a=1, b=2) == 3
    for connection in silent:
        assert connection.ended()
        connection.close()


def test_connections_that_are_reset_at_once_leave_nothing(program: Program) -> None:
    for _ in range(300):
        program.connect().close(abruptly=True)


@pytest.mark.parametrize("more", [b"", b" "], ids=["silence", "a byte"])
def test_the_body_of_a_refused_request_is_bounded_too(program: Program, more: bytes) -> None:
    with program.connect() as connection:
        head = HEAD.replace(BODY_LENGTH, b"Content-Length: 100000")
        assert connection.ask(head + b"\r\nOrigin: https://evil.example\r\n\r\n{").status == 403
        connection.send(more)
        assert connection.ended()


def test_an_endless_head_behind_a_running_call_is_cut(program: Program) -> None:
    with program.connect() as connection:
        connection.send(modern_call("quiet", tag="busy", seconds=0.3) + HEAD + b"\r\nX-Evil: ")
        with pytest.raises(OSError):  # reset or broken, as the system has it
            for _ in range(1000):
                connection.send(b"a" * 64 * KIB)


def test_a_websocket_is_not_taken_for_a_slow_head() -> None:
    with (
        running(options={"websocket": True}, body_timeout=PATIENCE) as program,
        program.connect() as connection,
    ):
        assert connection.ask(GOOD).result == 3
        assert connection.send(UPGRADE).head()[0] == 101
        connection.socket.settimeout(2 * PATIENCE)
        with pytest.raises(TimeoutError):
            connection.file.read(1)


# those who vanish


@pytest.mark.parametrize("abruptly", [True, False])
def test_a_hundred_clients_that_vanish_mid_body_leave_nothing(
    program: Program, abruptly: bool
) -> None:
    for number in range(100):
        connection = program.connect().send(GOOD[: -1 - number % len(BODY)])
        connection.close(abruptly=abruptly)


@pytest.mark.parametrize("tool", ["wait", "quiet"])
def test_a_hundred_stateless_clients_that_vanish_mid_call_cancel_their_calls(
    program: Program, tool: str
) -> None:
    tag = f"vanished {tool}"
    connections = [program.connect().send(modern_call(tool, tag=tag)) for _ in range(100)]
    until(lambda: program.tool("outcomes", tag=tag)[0] == 100, "not all calls begin")
    for number, connection in enumerate(connections):
        connection.close(abruptly=number % 2 == 0)
    until(lambda: program.tool("outcomes", tag=tag) == [100, 0, 100], "not all calls are cancelled")


def test_handshake_clients_that_vanish_mid_call_find_their_result_later(program: Program) -> None:
    session, lasts = program.session(), {}
    for number in range(20):
        with program.connect() as connection:
            connection.send(post(call("wait", number, tag=f"kept {number}", seconds=0.3), session))
            assert connection.head()[0] == 200
            lasts[number], _ = connection.event()
            connection.close(abruptly=number % 2 == 0)
    for number, last in lasts.items():
        with program.connect() as connection:
            assert connection.send(get(session, last)).head()[0] == 200
            [(_, reply)] = connection.rest()
            assert reply["id"] == number
            assert program.tool("outcomes", tag=f"kept {number}") == [1, 1, 0]


# those who stop sending, and wait


def final_reply(connection: Connection) -> Reply:
    """The response after the interim ones."""
    while (reply := connection.reply()).status == 100:
        pass
    return reply


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("tool", ["wait", "quiet"])
@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_a_half_closed_client_gets_its_slow_answer(
    program: Program, era: str, tool: str, seconds: float
) -> None:
    data = modern_call(tool, tag="half", seconds=seconds)
    if era == "handshake":
        data = post(call(tool, tag="half", seconds=seconds), program.session())
    with program.connect() as connection:
        connection.send(data).socket.shutdown(socket.SHUT_WR)
        assert final_reply(connection).result == "half"
        assert connection.ended()


def test_a_half_closed_client_gets_all_the_answers_that_it_waits_for(program: Program) -> None:
    calls = [modern_call("wait", number, tag="many", seconds=0.1) for number in range(3)]
    with program.connect() as connection:
        connection.send(b"".join(calls)).socket.shutdown(socket.SHUT_WR)
        assert [final_reply(connection).message["id"] for _ in calls] == [0, 1, 2]
        assert connection.ended()


def test_a_half_closed_client_may_stop_in_the_middle_of_a_stream(program: Program) -> None:
    with program.connect() as connection:
        connection.send(modern_call("wait", tag="stream", seconds=0.3))
        assert connection.head()[0] == 200
        assert "params" in connection.event()[1]
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.rest()[-1][1]["result"]["structuredContent"] == {"result": "stream"}


@pytest.mark.parametrize("sent", [b"", HEAD, GOOD[:-5], GOOD + HEAD])
def test_a_client_that_stops_in_the_middle_of_a_request_is_not_waited_for(
    program: Program, sent: bytes
) -> None:
    with program.connect() as connection:
        connection.send(sent).socket.shutdown(socket.SHUT_WR)
        assert connection.ended()


# those who do not read


def test_a_slow_reader_of_a_big_stream_holds_up_the_call_and_nobody_else(program: Program) -> None:
    total = 64 * MIB
    before = program.tool("figures")["memory"]
    with program.connect(receive_buffer=4096) as connection:
        connection.send(modern_call("speak", tag="big", times=total // (64 * KIB), size=64 * KIB))
        assert connection.head()[0] == 200
        for _ in range(50):
            assert program.tool("add", a=1, b=2) == 3
        assert program.tool("outcomes", tag="big") == [1, 0, 0]  # it waits
        assert program.tool("figures")["memory"] - before < 8 * MIB
        for _ in range(3):
            assert "params" in connection.event()[1]
    until(lambda: program.tool("outcomes", tag="big") == [1, 0, 1], "the call is not cancelled")


def test_a_reader_that_takes_its_time_gets_all_of_a_big_stream(program: Program) -> None:
    with program.connect(receive_buffer=4096) as connection:
        connection.send(modern_call("speak", tag="patient", times=64, size=64 * KIB))
        assert connection.head()[0] == 200
        said = connection.rest()
    assert [each["params"]["data"].rstrip(".") for _, each in said[:-1]] == [
        f"patient {number}" for number in range(64)
    ]
    assert said[-1][1]["result"]["structuredContent"] == {"result": "patient"}


def test_a_flood_to_a_reader_that_does_not_read_is_bounded_and_cancelled(program: Program) -> None:
    before = program.tool("figures")["memory"]
    with program.connect(receive_buffer=4096) as connection:
        connection.send(modern_call("flood", tag="flood", times=100_000, size=8 * KIB))
        assert connection.head()[0] == 200
        until(lambda: program.tool("outcomes", tag="flood") == [1, 0, 1], "the call goes on")
        assert program.tool("figures")["memory"] - before < 8 * MIB


def test_a_flood_in_a_session_is_bounded_and_what_is_lost_is_not_claimed_to_be_there(
    program: Program,
) -> None:
    session = program.session()
    before = program.tool("figures")["memory"]
    with program.connect(receive_buffer=4096) as connection:
        connection.send(
            post(call("flood", 7, tag="session flood", times=4000, size=8 * KIB), session)
        )
        assert connection.head()[0] == 200
        until(
            lambda: program.tool("outcomes", tag="session flood") == [1, 1, 0],
            "the call does not finish",
        )
        assert program.tool("figures")["memory"] - before < 8 * MIB


def test_listeners_that_do_not_read_hold_nothing_up(program: Program) -> None:
    streams = [program.connect(receive_buffer=4096).send(listen("test://busy")) for _ in range(20)]
    for stream in streams:
        assert stream.head()[0] == 200
    before = program.tool("figures")["memory"]
    uri = "test://busy/" + "x" * 4096
    with program.connect() as connection, program.connect() as reader:
        assert reader.send(listen("test://busy")).head()[0] == 200
        assert "acknowledged" in reader.event()[1]["method"]
        for number in range(200):
            connection.ask(modern_call("touch", uri=f"{uri}{number}"))
            assert reader.event()[1]["params"]["uri"] == f"{uri}{number}"
    assert program.tool("figures")["memory"] - before < 20 * EVENTS + 8 * MIB
    for stream in streams:
        stream.close()


# those who are refused, by the thousand


def test_two_thousand_refusals_do_not_keep_a_good_client_from_being_served(
    program: Program,
) -> None:
    bad = [
        post(INITIALIZE, Origin="https://evil.example"),
        post(INITIALIZE, Host="evil.example"),
        request("POST", {}, b"{"),
        request("PUT", {"Content-Length": "0"}),
        post(call("add", a=1, b=2), "forged"),
        request("GET", {"Accept": "text/html"}),
        request("POST", {"Content-Type": "text/plain"}, b"x"),
        modern_call("no such tool"),
    ]
    counts = []

    def abuse() -> None:
        with program.connect() as connection:
            for _ in range(500 // len(bad) + 1):
                connection.send(b"".join(bad))
                counts.extend(connection.reply().status for _ in bad)

    abusers = [threading.Thread(target=abuse) for _ in range(4)]
    for abuser in abusers:
        abuser.start()
    with program.connect() as good:
        session = opened(good)
        served = 0
        while any(abuser.is_alive() for abuser in abusers) or served < 100:
            assert good.ask(post(call("add", served, a=served, b=1), session)).result == served + 1
            served += 1
    assert len(counts) >= 2000
    assert served >= 100


def test_forged_truncated_and_foreign_session_ids_by_the_thousand_are_404_and_leave_nothing(
    program: Program,
) -> None:
    session = program.session()
    with running() as foreign:
        strange = foreign.session()
    middle = len(session) // 2
    forged = [
        strange,
        session[:-1],
        session[1:],
        session + "A",
        session + "=",
        session.swapcase(),
        session[:middle] + ("A" if session[middle] != "A" else "B") + session[middle + 1 :],
        session[:middle] + strange[middle:],
        "A" * 111,
        "A" * 4000,
        "../../etc/passwd",
        "null",
        "%00",
    ]
    before = program.tool("figures")
    with program.connect() as connection:
        for number in range(2000):
            bad = forged[number % len(forged)]
            data = [post(call("pid"), bad), get(bad), request("DELETE", {"Mcp-Session-Id": bad})][
                number % 3
            ]
            assert connection.ask(data).status == 404
        assert connection.ask(post(call("add", a=1, b=2), session)).result == 3
    after = program.tool("figures")
    assert {name: after[name] for name in ("HttpSession", "EventStream", "tombstones")} == {
        name: before[name] for name in ("HttpSession", "EventStream", "tombstones")
    }
    assert after["memory"] - before["memory"] < MIB


# other people's streams


def test_the_last_event_id_of_another_session_opens_nothing(program: Program) -> None:
    mine, theirs = program.session(), program.session()
    with program.connect() as connection:
        connection.send(post(call("speak", 7, tag="private", times=3), theirs))
        assert connection.head()[0] == 200
        said = connection.rest()
    assert len(said) == 4
    for last, _ in said:
        assert last is not None
        reply = program.ask(get(mine, last))
        assert reply.status == 400
        assert b"private" not in reply.body
    stream = said[0][0].rpartition("-")[0]
    for last in (
        f"{stream}-0",
        f"{stream}-99",
        f"{stream}--1",
        f"{stream}-",
        "-",
        "x" * 4000,
        "g-1e9",
        "0-0",
        "\t",
    ):
        with program.connect() as connection:
            status, _ = connection.send(get(mine, last)).head()
            assert status in (200, 400)
            if status == 200:  # a new stream, on which nothing was said
                connection.socket.settimeout(0.05)
                with pytest.raises(TimeoutError):
                    connection.event()


def test_nothing_leaks_into_the_stream_of_somebody_else(program: Program) -> None:
    sessions = {f"client {number}": program.session() for number in range(8)}
    streams: dict[str, Connection] = {}
    calls: list[tuple[str, Connection]] = []
    for tag, session in sessions.items():
        streams[tag] = program.connect().send(get(session))
        assert streams[tag].head()[0] == 200
        subscribe = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "resources/subscribe",
            "params": {"uri": f"test://{tag}"},
        }
        assert program.ask(post(subscribe, session)).status == 200
    for _ in range(3):
        for tag, session in sessions.items():
            calls.append(
                (
                    tag,
                    program.connect().send(
                        post(call("speak", len(calls), tag=tag, times=20), session)
                    ),
                )
            )
            calls.append(
                (tag, program.connect().send(modern_call("speak", len(calls), tag=tag, times=20)))
            )
    for number, (tag, connection) in enumerate(calls):
        assert connection.head()[0] == 200
        said = connection.rest()
        assert [each["params"]["data"] for _, each in said[:-1]] == [
            f"{tag} {place}" for place in range(20)
        ]
        assert said[-1][1]["id"] == number
        assert said[-1][1]["result"]["structuredContent"] == {"result": tag}
        connection.close()
    for tag in sessions:
        program.tool("touch", uri=f"test://{tag}")
    for tag, stream in streams.items():
        assert stream.event()[1]["params"]["uri"] == f"test://{tag}"
        stream.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            stream.socket.recv(1, socket.MSG_PEEK)
        stream.close()


# those who send too much


@pytest.fixture(scope="module")
def usual() -> Iterator[Program]:
    """A server with the default limits."""
    with running(options={"websocket": True, "sse": True}) as program:
        yield program


def peak(program: Program) -> int:
    """The most memory that the server has ever used, in bytes."""
    text = Path(f"/proc/{program.popen.pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmHWM:")[2].split()[0]) * KIB


paths = pytest.mark.parametrize("path", ["/mcp", "/message?session_id=x"])


def head_of(path: str, length: bytes) -> bytes:
    head = HEAD.replace(BODY_LENGTH, length).replace(b"/mcp", path.encode(), 1)
    return head + b"\r\n\r\n"


@paths
def test_a_body_that_is_announced_as_too_long_is_refused_at_once_and_not_kept(
    usual: Program, path: str
) -> None:
    before = peak(usual)
    with usual.connect() as connection:
        reply = connection.ask(head_of(path, b"Content-Length: %d" % (64 * MIB)))
        assert reply.status == 413
        for _ in range(64):
            connection.send(b" " * MIB)
        assert connection.ask(GOOD).result == 3
    assert peak(usual) - before < 4 * MIB


@paths
def test_a_body_that_does_not_end_costs_no_more_than_the_limit(usual: Program, path: str) -> None:
    before, sent = peak(usual), 0
    with usual.connect() as connection:
        connection.send(head_of(path, b"Transfer-Encoding: chunked"))
        with pytest.raises(OSError):  # reset or broken, as the system has it
            while sent < 64:
                connection.send(b"%x\r\n%b\r\n" % (MIB, b" " * MIB))
                sent += 1
    assert peak(usual) - before < 40 * MIB
    assert usual.ask(GOOD).result == 3


def test_a_body_just_below_the_limit_is_accepted(usual: Program) -> None:
    padded = BODY.ljust(16 * MIB)
    data = HEAD.replace(BODY_LENGTH, b"Content-Length: %d" % len(padded)) + b"\r\n\r\n" + padded
    assert usual.ask(data).result == 3


@pytest.mark.parametrize("size", [17 * MIB, 64 * MIB], ids=["refused", "closed"])
def test_a_websocket_message_above_the_limit_is_refused_or_ends_the_connection(
    usual: Program, size: int
) -> None:
    before = peak(usual)
    with dial(f"ws://127.0.0.1:{usual.port}/ws", subprotocols=[Subprotocol("mcp")]) as peer:
        message = '{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {}}'
        if size > 32 * MIB:
            with pytest.raises(ConnectionClosed):
                peer.send(message.ljust(size))
                peer.recv(SECONDS)
            assert peak(usual) - before < 48 * MIB
        else:
            peer.send(message.ljust(size))
            refusal = json.loads(peer.recv(SECONDS))
            assert refusal["id"] == 7
            assert str(16 * MIB) in refusal["error"]["message"]
    assert usual.ask(GOOD).result == 3


@pytest.mark.parametrize("target", ["http://{}/mcp", "http://{}/sse", "ws://{}/ws"])
async def test_our_own_client_learns_that_its_message_is_too_long(
    usual: Program, target: str
) -> None:
    async with Client(target.format(f"127.0.0.1:{usual.port}")) as client:
        with pytest.raises(TooLarge):
            await client.call_tool("quiet", {"tag": "x" * 20 * MIB, "seconds": 0})
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


# those who are too many


def is_served(program: Program) -> bool:
    try:
        return program.ask(GOOD).status == 200
    except (ConnectionError, AssertionError):
        return False


@pytest.mark.parametrize("kind", ["idle", "silent", "websocket"])
def test_connections_above_the_limit_are_refused_and_it_is_logged_once(kind: str) -> None:
    with running(options={"websocket": True}, connections=20) as program:
        until(lambda: is_served(program), "the server is not ready")
        held = [program.connect() for _ in range(20)]
        for connection in held:
            if kind == "idle":
                assert connection.ask(GOOD).result == 3
            elif kind == "websocket":
                assert connection.send(UPGRADE).head()[0] == 101
        for _ in range(30):
            with program.connect() as refused:
                status, headers = refused.head()
                assert (status, headers["retry-after"]) == (503, "1")
                assert refused.ended()
        assert program.said().count("Refusing new connections") == 1
        assert "20 connections are open (Limits.connections)" in program.said()
        held.pop().close()
        until(lambda: is_served(program), "there is room again")
        for connection in held:
            connection.close()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_server_that_may_open_few_files_keeps_some_and_logs_one_line(loop: str) -> None:
    code = "" if loop == "uvloop" else "import sys; sys.modules['uvloop'] = None; "
    code += "import sys, runpy; sys.argv = ['x', 'PORT']; "
    code += "runpy.run_module('tests.faults.http_program', run_name='__main__')"
    limited = f'ulimit -n 128; exec "{sys.executable}" -c "{code}"'
    with running(command=["sh", "-c", limited]) as program:
        held = [program.connect() for _ in range(200)]
        with program.connect() as refused:
            assert refused_or_dropped(refused, GOOD) in (503, None)
        until(lambda: "Refusing new connections" in program.said(), "nothing is logged")
        for connection in held:
            connection.close()
        until(lambda: is_served(program), "there is room again")
        lines = [line for line in program.said().splitlines() if "Serving" not in line]
        assert len(lines) == 1, lines
        assert "limit of 128 file descriptors" in program.said()
        assert program.terminate() == 0, program.said()
