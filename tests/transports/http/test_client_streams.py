"""What outlives one request: streams of news, streams taken up again, sessions that end, servers
that come back."""

import asyncio
import logging
import subprocess
import sys
import time
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.errors import ConnectFailed, ConnectionClosed, TimedOut
from dovetail.transports.http.client import channel as http
from tests.clock import awake_time
from tests.transports.http.scripted import OLD, Asked, Scripted, modern, old

DONE = {"content": [{"type": "text", "text": "done"}]}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_SECONDS", 0.01)


def heard(client: Client) -> "asyncio.Queue[str]":
    """What the client hears of changes to the tools."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    client.on_change("tools", queue.put_nowait)
    return queue


# the stream of the conversation


@pytest.mark.requirement("http-client-get-accept")
async def test_news_come_over_a_stream_of_their_own() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "GET":
            assert server.heard("notifications/initialized"), "not before the greeting is through"
            await asked.stream()
            await asked.event(CHANGED)
            await asked.hung_up.wait()
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake", headers={"X-A": "1"}) as client:
            assert await heard(client).get() == "tools"
        (asked,) = server.heard("GET")
        assert asked.headers["accept"] == "text/event-stream"
        assert asked.headers["mcp-session-id"] == "s-1"
        assert asked.headers["mcp-protocol-version"] == OLD
        assert asked.headers["x-a"] == "1"
        assert "last-event-id" not in asked.headers


@pytest.mark.parametrize("status", [400, 404, 405, 406, 501])
async def test_a_server_without_such_a_stream_is_left_alone(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "GET":
            await asked.answer(status)
        elif not await old(asked):
            await asked.result(DONE)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            await server.until("GET")
            await asyncio.sleep(0.1)
            assert (await client.call_tool("x")).data == "done"
        assert len(server.heard("GET")) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.requirement("http-client-resume")
async def test_a_stream_that_drops_is_taken_up_where_it_was() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc != "GET":
            assert await old(asked)
            return
        await asked.stream()
        if len(server.heard("GET")) == 1:
            await asked.chunk(b"id: 7\nretry: 20\ndata:\n\n")
            await asked.cut()
        else:
            await asked.event(CHANGED, id=8)
            await asked.hung_up.wait()

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            assert await heard(client).get() == "tools"
        assert server.heard("GET")[1].headers["last-event-id"] == "7"


async def test_a_server_that_keeps_ending_its_stream_is_asked_less_and_less_and_then_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "MAX_RETRY_SECONDS", 0.02)

    async def script(asked: Asked) -> None:
        if asked.rpc == "GET":
            await asked.stream()
            await asked.end()
        else:
            await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake"):
            while "giving up" not in caplog.text:
                await asyncio.sleep(0.01)
        assert len(server.heard("GET")) == http.MAX_ATTEMPTS


async def test_what_the_server_asks_over_the_stream_is_answered_by_a_post() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "GET":
            await asked.stream()
            await asked.event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
            await asked.hung_up.wait()
        elif asked.rpc == "a reply":
            await asked.answer(202)
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake", roots=["file:///a"]):
            reply = await server.until("a reply")
        assert reply.message["id"] == "q"
        assert reply.message["result"]["roots"][0]["uri"] == "file:///a"
        assert reply.headers["mcp-session-id"] == "s-1"


async def test_the_stateless_era_has_no_such_stream() -> None:
    async def script(asked: Asked) -> None:
        assert await modern(asked)

    async with Scripted(script) as server:
        async with Client(server.url) as client:
            await client.ping()
        assert {one.method for one in server.asked} == {"POST"}


# long polling


async def test_news_may_be_polled_for() -> None:
    answers: list[Any] = [None, [CHANGED], None, [CHANGED, CHANGED]]

    async def script(asked: Asked) -> None:
        if asked.rpc != "GET":
            assert await old(asked)
        elif not answers:
            await asked.hung_up.wait()
        elif (news := answers.pop(0)) is None:
            await asked.answer(204)
        else:
            await asked.json(news)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake", long_polling=True) as client:
            queue = heard(client)
            began = awake_time()
            assert [await queue.get() for _ in range(3)] == ["tools"] * 3
            assert awake_time() - began < 1, "the server does the waiting"
        assert {one.headers["accept"] for one in server.heard("GET")} == {"application/json"}


@pytest.mark.parametrize("body", [b"{", b'{"a":1}', b"\xff", b""])
async def test_what_is_no_list_of_messages_ends_nothing(body: bytes) -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc != "GET":
            assert await old(asked)
        elif len(server.heard("GET")) == 1:
            await asked.answer(200, body, {"Content-Type": "application/json"})
        else:
            await asked.json([CHANGED])
            script_done.set()

    script_done = asyncio.Event()
    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake", long_polling=True) as client:
            assert await heard(client).get() == "tools"


# taking up an answer


@pytest.mark.requirement("http-client-poll", "http-client-retry", "http-client-resume")
@pytest.mark.parametrize("how", ["ends", "breaks"])
async def test_an_answer_whose_stream_ends_early_is_fetched_not_before_the_server_wants_it(
    how: str,
) -> None:
    times: list[float] = []

    async def script(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.stream()
            await asked.chunk(b"id: one\nretry: 300\ndata:\n\n")
            await asyncio.sleep(0.02)
            times.append(time.monotonic())
            await (asked.end() if how == "ends" else asked.cut())
        elif asked.rpc == "GET" and "last-event-id" in asked.headers:
            times.append(time.monotonic())
            assert asked.headers["last-event-id"] == "one"
            await asked.stream()
            await asked.event(server.heard("tools/call")[0].reply(DONE), id="two")
            await asked.hung_up.wait()
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            assert (await client.call_tool("x")).data == "done"
        assert len(server.heard("tools/call")) == 1
    assert times[1] - times[0] >= 0.299


async def test_an_answer_is_fetched_as_often_as_it_takes() -> None:
    resumed: list[str] = []

    async def script(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.stream()
            await asked.chunk(b"id: 0\nretry: 1\ndata:\n\n")
            await asked.end()
        elif asked.rpc == "GET" and "last-event-id" in asked.headers:
            resumed.append(asked.headers["last-event-id"])
            if len(resumed) == 1:
                await asked.cut()
            elif len(resumed) == 2:
                await asked.answer(503)
            elif len(resumed) == 3:
                await asked.stream()
                await asked.chunk(b"id: 3\ndata:\n\n")
                await asked.end()
            else:
                await asked.stream()
                await asked.event(server.heard("tools/call")[0].reply(DONE))
                await asked.end()
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            assert (await client.call_tool("x")).data == "done"
    assert resumed == ["0", "0", "0", "3"]


async def test_an_answer_that_comes_over_the_other_stream_is_an_answer() -> None:
    get: Asked | None = None
    opened = asyncio.Event()

    async def script(asked: Asked) -> None:
        nonlocal get
        if asked.rpc == "GET" and "last-event-id" not in asked.headers:
            await asked.stream()
            get = asked
            opened.set()
            await asked.hung_up.wait()
        elif asked.rpc == "tools/call":
            await asked.stream()
            await asked.chunk(b"id: 0\nretry: 60000\ndata:\n\n")
            await asked.end()
            await opened.wait()
            assert get is not None
            await get.event(asked.reply(DONE))
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            assert (await client.call_tool("x")).data == "done"
            began = awake_time()
        assert awake_time() - began < 1, "nothing is left that would wait for it"


async def test_fetching_an_answer_ends_with_the_deadline() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.stream()
            await asked.chunk(b"id: 0\nretry: 10\ndata:\n\n")
            await asked.end()
        elif asked.rpc == "GET" and "last-event-id" in asked.headers:
            await asked.stream()
            await asked.end()
        elif asked.rpc == "notifications/cancelled":
            await asked.answer(202)
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            with pytest.raises(TimedOut):
                await client.call_tool("x", timeout=0.3)
            await server.until("notifications/cancelled")
            await asyncio.sleep(0.05)
            count = len(server.asked)
            await asyncio.sleep(0.1)
            assert len(server.asked) == count


async def test_an_answer_that_the_server_will_not_give_again_is_lost() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.stream()
            await asked.chunk(b"id: 0\nretry: 1\ndata:\n\n")
            await asked.end()
        else:
            assert await old(asked)  # 405 to GET

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            with pytest.raises(ConnectionClosed, match=r"cannot be resumed: .*/mcp answered 405"):
                await client.call_tool("x")


@pytest.mark.parametrize("era", ["handshake without an id", "stateless"])
async def test_a_stream_that_cannot_be_resumed_is_not(era: str) -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.stream()
            await asked.chunk(b"id: 0\ndata:\n\n" if era == "stateless" else b":\n\n")
            await asked.end()
        elif asked.rpc == "server/discover":
            assert await modern(asked)
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision=era.split()[0]) as client:
            with pytest.raises(ConnectionClosed, match="ended before the response"):
                await client.call_tool("x")
        assert not any("last-event-id" in one.headers for one in server.asked)


# sessions


@pytest.mark.requirement("http-client-session-gone")
@pytest.mark.parametrize(
    "body", [b"", b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"gone"}}']
)
async def test_a_session_that_is_gone_is_opened_anew_and_the_call_made_again(body: bytes) -> None:
    sessions = 0

    async def script(asked: Asked) -> None:
        nonlocal sessions
        if asked.rpc == "initialize":
            sessions += 1
            await old(asked, f"s-{sessions}")
        elif asked.rpc == "tools/call":
            if asked.headers["mcp-session-id"] == "s-1":
                await asked.answer(404, body, {"Content-Type": "application/json"})
            else:
                await asked.result(DONE)
        else:
            assert await old(asked)

    states: list[str] = []
    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            client.on_change("state", states.append)
            assert (await client.call_tool("x")).data == "done"
        assert "mcp-session-id" not in server.heard("initialize")[1].headers
        assert [one.headers["mcp-session-id"] for one in server.heard("DELETE")] == ["s-2"], (
            "what is gone is not deleted"
        )
    assert states[:2] == ["reconnecting", "connected"]


async def test_a_session_that_is_gone_costs_none_of_many_calls() -> None:
    sessions = 0

    async def script(asked: Asked) -> None:
        nonlocal sessions
        if asked.rpc == "initialize":
            sessions += 1
            await old(asked, f"s-{sessions}")
        elif asked.rpc == "tools/call":
            if asked.headers["mcp-session-id"] == "s-1":
                await asyncio.sleep(0.03 * asked.message["id"])
                await asked.answer(404)
            else:
                await asked.result(DONE)
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake", limits=Limits(restarts=2)) as client:
            results = await asyncio.gather(*(client.call_tool("x") for _ in range(20)))
        assert [result.data for result in results] == ["done"] * 20
        assert sessions == 2


async def test_a_session_that_is_always_gone_is_given_up() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.answer(404)
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake", limits=Limits(restarts=2)) as client:
            with pytest.raises((ConnectionClosed, ConnectFailed)):
                await client.call_tool("x", timeout=10)
        assert len(server.heard("tools/call")) <= 3


async def test_a_method_that_is_not_found_is_no_lost_session() -> None:
    async def script(asked: Asked) -> None:
        if not await old(asked):
            await asked.error(-32601, "no such method", 404)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            with pytest.raises(Exception, match="no such method"):
                await client.call_tool("x")
            assert client.state == "connected"


async def test_a_server_without_sessions_is_not_told_goodbye() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "initialize":
            await old(asked, None)
        elif not await old(asked):
            await asked.result(DONE)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            await client.call_tool("x")
        assert server.heard("DELETE") == []
        assert all("mcp-session-id" not in one.headers for one in server.asked)


# servers that come back


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_server_that_was_away_between_two_calls_is_found_again(era: str) -> None:
    started = 0

    async def script(asked: Asked) -> None:
        session = asked.headers.get("mcp-session-id")
        if era == "stateless" and await modern(asked):
            return
        if session is not None and session != f"s-{started}":
            await asked.answer(404)
        elif era == "stateless" or not await old(asked, f"s-{started}"):
            await asked.result({"resultType": "complete", **DONE})

    started = 1
    server = Scripted(script)
    async with server:
        client = Client(server.url, revision=era)
        await client.connect()
        assert (await client.call_tool("x")).data == "done"
    calling = asyncio.create_task(client.call_tool("x"))  # while nobody is there
    await asyncio.sleep(0.1)
    started = 2
    async with Scripted(script, port=server.port):
        assert (await calling).data == "done"
        await client.close()


async def test_a_server_that_stays_away_is_said_in_one_line() -> None:
    async def script(asked: Asked) -> None:
        if not await modern(asked):
            await asked.result({"resultType": "complete", **DONE})

    async with Scripted(script) as server:
        client = Client(server.url, limits=Limits(restarts=2))
        await client.connect()
    with pytest.raises((ConnectFailed, ConnectionClosed), match="connection refused"):
        await client.call_tool("x", timeout=10)
    await client.close()


@pytest.mark.requirement("subscriptions-renewed")
async def test_a_stream_of_changes_that_drops_is_opened_again() -> None:
    """In the stateless era nothing else tells that the server was away."""

    async def script(asked: Asked) -> None:
        if await modern(asked):
            return
        await asked.stream()
        meta = {"io.modelcontextprotocol/subscriptionId": asked.message["id"]}
        granted = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        await asked.event(
            {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": granted,
            }
        )
        await asked.event({**CHANGED, "params": {"_meta": meta}})
        count = len(server.heard("subscriptions/listen"))
        if count == 1:
            await asked.cut()
        elif count == 2:
            await asked.event(asked.reply({"resultType": "complete", "_meta": meta}))
            await asked.end()
        else:
            await asked.hung_up.wait()

    async with Scripted(script) as server:
        async with Client(server.url) as client:
            queue = heard(client)
            assert [await queue.get() for _ in range(3)] == ["tools"] * 3
            assert client.state == "connected"


SERVER = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        meta = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
        result = {"resultType": "complete", "_meta": meta, "content": [{"type": "text", "text": "done"}],
                  "supportedVersions": [self.headers["mcp-protocol-version"]], "capabilities": {"tools": {}},
                  "ttlMs": 0, "cacheScope": "private"}
        body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""  # noqa: E501


def start(port: int = 0) -> tuple[subprocess.Popen[bytes], int]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as out:
        return process, int(out.readline())


@pytest.mark.parametrize("busy", [True, False])
async def test_a_server_killed_and_started_between_two_calls_answers_both(busy: bool) -> None:
    """Also where the client's loop is busy all the while, and its pool still holds the dead
    connection."""

    def again() -> subprocess.Popen[bytes]:
        process.kill()
        process.wait()
        return start(port)[0]

    process, port = start()
    async with Client(f"http://127.0.0.1:{port}/") as client:
        assert (await client.call_tool("x")).data == "done"
        process = again() if busy else await asyncio.to_thread(again)
        assert (await client.call_tool("x")).data == "done"
    process.kill()
    process.wait()


def test_a_server_elsewhere_can_be_called_without_async() -> None:
    process, port = start()
    with Client(f"http://127.0.0.1:{port}/").blocking() as client:
        assert client.call_tool("x").data == "done"
    process.kill()
    process.wait()
