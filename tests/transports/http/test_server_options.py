"""What the options of the endpoint do, and what is refused before any message is read."""

import asyncio
import gc
import json
import logging
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail import Context, HttpRequest, Server
from dovetail.errors import ConfigError
from dovetail.limits import Limits
from dovetail.serve.http import listen
from tests.transports.http.raw import (
    BOTH,
    INFO,
    MODERN,
    OLD,
    Stage,
    answered,
    drive,
    hosted,
    logged,
    modern,
    on_port,
    request,
    text,
)

PLAIN = {"content-type": "application/json", "accept": BOTH}


# who may call


@pytest.mark.requirement("http-origin")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "nonsense"]
)
async def test_a_page_of_another_origin_is_refused_whatever_it_does(
    method: str, origin: str
) -> None:
    async with hosted(Stage().server) as site:
        answer = await site.send(
            method, {**PLAIN, "Origin": origin}, b"{}" if method == "POST" else None
        )
        assert answer.status == 403
        error = await answer.error()
    assert origin in error["message"]
    assert "origins=" in error["message"]


@pytest.mark.requirement("http-origin")
async def test_a_page_of_this_machine_and_one_that_is_allowed_may_call() -> None:
    async with hosted(Stage().server, origins=["https://app.example"]) as site:
        for origin in (
            "http://localhost:3000",
            f"http://127.0.0.1:{site.port}",
            "https://app.example",
        ):
            assert (await site.call("add", a=1, b=2, _headers={"Origin": origin})).status == 200
        assert (
            await site.call("add", a=1, b=2, _headers={"Origin": "https://app.example:444"})
        ).status == 403


@pytest.mark.requirement("error-unreadable-id")
@pytest.mark.parametrize(
    ("version", "named"), [(MODERN, False), (OLD, False), ("2025-06-18", True), (None, True)]
)
async def test_a_refusal_that_answers_nothing_has_an_id_only_where_the_revision_wants_one(
    version: str | None, named: bool
) -> None:
    async with hosted(Stage().server) as site:
        answer = await site.post(
            request("ping"), {"Origin": "https://evil.example", "MCP-Protocol-Version": version}
        )
        assert answer.status == 403
        assert ("id" in await answer.json()) == named


@pytest.mark.requirement("http-origin")
async def test_a_name_that_may_have_been_rebound_is_refused() -> None:
    async with hosted(Stage().server) as site:
        answer = await site.call("add", a=1, b=2, _headers={"Host": "evil.example"})
        assert answer.status == 421
        error = await answer.error()
        assert "evil.example" in error["message"]
        assert "hosts=" in error["message"]
        both = await site.call(
            "add", a=1, b=2, _headers={"Host": "evil.example", "Origin": "http://evil.example"}
        )
        assert both.status == 403


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ({"hosts": ["mcp.example"]}, "mcp.example"),
        ({"hosts": "mcp.example"}, "MCP.example:443"),
        ({"hosts": ["*.example"]}, "mcp.example"),
        ({"hosts": ["*"]}, "whatever"),
        ({"public_url": "https://mcp.example/path"}, "mcp.example"),
        ({"public_url": "http://[fd00::1]:8000/mcp"}, "[fd00::1]:8000"),
        ({}, "localhost:1234"),
    ],
)
async def test_a_server_answers_to_its_names(options: dict[str, Any], host: str) -> None:
    async with hosted(Stage().server, **options) as site:
        assert (await site.call("add", a=1, b=2, _headers={"Host": host})).status == 200


async def test_a_page_of_the_public_url_may_call() -> None:
    async with hosted(Stage().server, public_url="https://mcp.example") as site:
        headers = {"Host": "mcp.example", "Origin": "https://mcp.example"}
        assert (await site.call("add", a=1, b=2, _headers=headers)).status == 200


# CORS


async def test_a_browser_is_told_what_an_allowed_page_may_do() -> None:
    asked = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,mcp-protocol-version",
    }
    async with hosted(Stage().server, origins=["https://app.example"]) as site:
        answer = await site.send("OPTIONS", asked)
        assert (answer.status, await answer.body()) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert {"GET", "POST", "DELETE"} <= set(
            answer.headers["access-control-allow-methods"].split(", ")
        )
        assert "mcp-protocol-version" in answer.headers["access-control-allow-headers"]
        assert (
            await site.send("OPTIONS", {**asked, "Origin": "https://evil.example"})
        ).status == 403
        assert (await site.send("OPTIONS", {**asked, "Content-Type": "text/plain"})).status == 204


async def test_an_allowed_page_may_read_every_answer() -> None:
    page = {"Origin": "https://app.example"}
    async with hosted(Stage().server, origins=["https://app.example"], long_polling=0.01) as site:
        session = await site.greet(OLD, page)
        params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
        answers = [
            await site.post(request("initialize", params), page),
            await session.call("add", a=1, b=2),
            await session.call("chat"),
            await session.tell("notifications/initialized"),
            await session.get(),
            await session.get(headers={"Accept": "application/json"}),
            await session.ask("tools/dream"),
            await session.call("nothing"),
            await site.ask("tools/dream", {}, headers=page),
            await session.delete(),
            await session.delete(),
        ]
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert "mcp-session-id" in answer.headers["access-control-expose-headers"].lower()
            assert answer.headers["vary"] == "Origin"


async def test_an_allowed_page_may_read_refusals_and_the_old_pair() -> None:
    page = {"Origin": "https://app.example"}
    limits = Limits(incoming=1000)
    async with hosted(
        Stage(limits=limits).server, origins=["https://app.example"], sse=True
    ) as site:
        stream = await site.send("GET", page, path="/sse")
        endpoint = (await stream.next()).data
        answers = [
            stream,
            await site.post(request("ping"), page, path=endpoint),
            await site.post(request("ping"), page, path="/message?session_id=x"),
            await site.post(b"x" * 1001, page, path=endpoint),
            await site.post(request("ping"), {**page, "Accept": "text/html"}),
            await site.send("PUT", page),
        ]
        assert [answer.status for answer in answers] == [200, 202, 404, 413, 406, 405]
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert answer.headers["vary"] == "Origin"
        for path in ("/mcp", "/sse", endpoint):
            asked = await site.send(
                "OPTIONS", {**page, "Access-Control-Request-Method": "POST"}, path=path
            )
            assert (asked.status, asked.headers["access-control-allow-origin"]) == (
                204,
                "https://app.example",
            )
        refused = await site.post(request("ping"), {"Origin": "https://evil.example"})
        assert refused.status == 403
        assert "access-control-allow-origin" not in refused.headers


async def test_without_allowed_origins_nothing_is_said_to_browsers() -> None:
    async with hosted(Stage().server) as site:
        answer = await site.call("add", a=1, b=2, _headers={"Origin": "http://localhost:3000"})
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert (await site.send("OPTIONS", {"Origin": "http://localhost:3000"})).status == 405


# the head of a request


@pytest.mark.parametrize(
    ("headers", "status", "says"),
    [
        ({"Content-Type": "text/plain"}, 415, "application/json"),
        ({"Content-Type": None}, 415, "application/json"),
        ({"Content-Encoding": "gzip"}, 415, "Content-Encoding"),
        ({"Accept": "text/html"}, 406, "application/json"),
    ],
)
async def test_a_post_that_is_not_json_or_wants_none_is_refused(
    headers: dict[str, str | None], status: int, says: str
) -> None:
    async with hosted(Stage().server) as site:
        answer = await site.call("add", a=1, b=2, _headers=headers)
        assert answer.status == status
        assert says in (await answer.error())["message"]


async def test_a_client_that_does_not_say_what_it_takes_takes_everything() -> None:
    async with hosted(Stage().server) as site:
        for accept in (None, "*/*"):
            assert (await site.call("chat", _headers={"Accept": accept})).headers[
                "content-type"
            ] == "text/event-stream"


async def test_other_methods_are_told_which_there_are() -> None:
    async with hosted(Stage().server) as site:
        for method in ("PUT", "PATCH", "HEAD"):
            answer = await site.send(method, {})
            assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, DELETE")


async def test_a_header_that_comes_twice_is_refused() -> None:
    message, headers = modern("tools/list")
    body = json.dumps(message).encode()
    async with hosted(Stage().server) as site:
        reader, writer = await site.connect()
        lines = [
            "POST /mcp HTTP/1.1",
            "Host: localhost",
            f"Content-Length: {len(body)}",
            "Content-Type: application/json",
        ]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "Mcp-Method: tools/call", "", ""]).encode() + body)
        answer = await answered(reader, writer)
        assert answer.status == 400
        assert "more than once" in (await answer.error())["message"]


async def test_nothing_is_smuggled_into_the_headers_of_an_answer() -> None:
    async with hosted(Stage().server, origins=["*"]) as site:
        reader, writer = await site.connect()
        writer.write(
            b"OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\x0b\x01\r\nX: 1\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"\x0b" not in head.split(b"\r\n")[0]
        assert head.split(b" ")[1] in (b"204", b"400", b"403")


# the body


body_limits = pytest.mark.parametrize(
    "limits",
    [Limits(http_body=1000), Limits(incoming=1000), Limits(incoming=2000, http_body=1000)],
    ids=["http_body", "incoming", "both"],
)
paths = pytest.mark.parametrize("path", ["/mcp", "/message?session_id=x"])


@body_limits
@paths
async def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_read(
    limits: Limits, path: str
) -> None:
    async with hosted(Stage(limits=limits).server, sse=True) as site:
        head = {**PLAIN, "Content-Length": "1001"}
        answer = await answered(*await site.begin("POST", head, path=path))
        assert answer.status == 413
        message = (await answer.error())["message"]
        assert "1000" in message and "Limits.http_body" in message


@body_limits
@paths
@pytest.mark.parametrize("sizes", [(600, 600), (1001,)], ids=["two pieces", "one piece"])
async def test_a_body_that_turns_out_too_long_is_refused(
    limits: Limits, path: str, sizes: tuple[int, ...]
) -> None:
    async with hosted(Stage(limits=limits).server, sse=True) as site:
        head = {**PLAIN, "Transfer-Encoding": "chunked"}
        reader, writer = await site.begin("POST", head, path=path)
        for size in sizes:
            writer.write(b"%x\r\n" % size + b" " * size + b"\r\n")  # and no end of it
        answer = await answered(reader, writer)
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert "Limits.incoming" in (await answer.error())["message"]


async def test_a_body_of_exactly_the_limit_is_read() -> None:
    async with hosted(Stage(limits=Limits(http_body=1000)).server) as site:
        message, headers = modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        for size, status in ((1000, 200), (1001, 413)):
            assert (await site.post(json.dumps(message).encode().ljust(size), headers)).status == (
                status
            )


async def test_more_bytes_of_bodies_than_the_limit_are_put_off() -> None:
    def piece(size: int) -> bytes:
        return b"%x\r\n%b\r\n" % (size, b" " * size)

    async with hosted(Stage(limits=Limits(incoming=1000, bodies=1000)).server) as site:
        head = {**PLAIN, "Transfer-Encoding": "chunked"}
        connections = [await site.begin("POST", head) for _ in range(2)]
        for _, writer in connections:
            writer.write(piece(300))
        for _, writer in connections:  # none is too long, but together they are
            await asyncio.sleep(0.05)
            writer.write(piece(300))
        answer = await answered(*connections[1])
        assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (
            503,
            "1",
            "close",
        )
        assert "Limits.bodies" in (await answer.error())["message"]
        connections[0][1].write(b"0\r\n\r\n")
        assert (await answered(*connections[0])).status == 400, "which was read to its end"
        reader, writer = await site.begin("POST", head)
        for _ in range(3):
            writer.write(piece(300))
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        assert (await answered(reader, writer)).status == 400, "there is room again"


async def test_a_body_in_many_pieces_is_read() -> None:
    message, headers = modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    body = json.dumps(message).encode()
    async with hosted(Stage().server) as site:
        reader, writer = await site.begin(
            "POST", {**PLAIN, **headers, "Transfer-Encoding": "chunked"}
        )
        for start in range(0, len(body), 50):
            piece = body[start : start + 50]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        assert text(await (await answered(reader, writer)).json()) == "3"


@pytest.mark.parametrize("sent", [b"", b"{"])
async def test_a_body_that_does_not_arrive_is_not_waited_for(sent: bytes) -> None:
    async with hosted(Stage(limits=Limits(body_timeout=0.05)).server) as site:
        reader, writer = await site.begin("POST", {**PLAIN, "Content-Length": "10"})
        writer.write(sent)
        async with asyncio.timeout(60):
            answer = await answered(reader, writer)
        assert (answer.status, answer.headers["connection"]) == (408, "close")


async def test_a_client_that_leaves_in_the_middle_of_its_body_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hosted(Stage().server) as site:
        for sent in (b"", b'{"jsonrpc"'):
            _, writer = await site.begin("POST", {**PLAIN, "Content-Length": "100"}, None)
            writer.write(sent)
            await writer.drain()
            writer.transport.abort()
        assert (await site.call("add", a=1, b=2)).status == 200
    assert not caplog.records


# bounds


async def test_more_calls_than_the_limit_are_put_off() -> None:
    stage = Stage(limits=Limits(calls=1))
    async with hosted(stage.server) as site:
        first = await site.call("talk")
        answer = await site.call("add", a=1, b=2, _id=7)
        reply = await answer.json()
        assert (answer.status, answer.headers["retry-after"], reply["id"]) == (503, "1", 7)
        stage.release.set()
        await first.messages()
        assert (await site.call("add", a=1, b=2)).status == 200


async def test_who_listens_takes_up_a_stream_and_no_call() -> None:
    async with hosted(Stage(limits=Limits(calls=1, streams=1)).server) as site:
        listen = {"notifications": {"toolsListChanged": True}}
        first = await site.ask("subscriptions/listen", listen, id=1)
        await first.next()
        assert (await site.call("add", a=1, b=2)).status == 200
        refused = await site.ask("subscriptions/listen", listen, id=2)
        assert (refused.status, (await refused.json())["id"]) == (503, 2)
        first.cut()
        while (again := await site.ask("subscriptions/listen", listen, id=3)).status == 503:
            await asyncio.sleep(0.01)
        assert again.status == 200


async def test_more_calls_of_a_session_than_the_limit_are_put_off() -> None:
    stage = Stage(limits=Limits(in_flight=1))
    async with hosted(stage.server) as site:
        session = await site.greet()
        await session.call("talk", _id=1)
        assert (await session.call("add", _id=2, a=1, b=2)).status == 503
        assert (await (await site.greet()).call("add", a=1, b=2)).status == 200
        stage.release.set()


async def test_refused_greetings_and_requests_leave_nothing_behind() -> None:
    app = Stage().server.asgi("/mcp")
    async with on_port(app) as site:
        here = await app.start()
        for _ in range(20):
            await site.greet()
            await site.post(request("initialize", {}, 0))
            await site.post(request("tools/list", {}, 0), {"Mcp-Session-Id": "forged"})
        assert here.sessions is not None
        assert (len(here.sessions), len(here.sessions._tombstones), here.get_streams.open) == (
            0,
            0,
            0,
        )


@pytest.mark.parametrize("tombstones", [0, 1, 3])
async def test_a_deleted_session_stays_deleted_and_one_too_many_is_not_deleted(
    tombstones: int,
) -> None:
    async with hosted(Stage(limits=Limits(tombstones=tombstones)).server) as site:
        sessions = [await site.greet() for _ in range(tombstones + 2)]
        for session in sessions[:tombstones]:
            assert (await session.delete()).status == 204
        for session in sessions[tombstones:]:
            answer = await session.delete()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "Limits.tombstones" in (await answer.error())["message"]
            assert text(await (await session.call("add", a=1, b=2)).json()) == "3", "it still works"
        for session in sessions[:tombstones]:
            assert (await session.call("add", a=1, b=2)).status == 404
            assert (await session.get()).status == 404
            assert (await session.delete()).status == 404


async def test_idle_sessions_make_room_for_deleted_ones() -> None:
    app = Stage(limits=Limits(tombstones=2, session_idle=1.0)).server.asgi("/mcp")
    async with on_port(app) as site:
        idle = [await site.greet() for _ in range(3)]
        for session in idle:
            await session.call("add", a=1, b=2)
        table = (await app.start()).sessions
        assert table is not None
        async with asyncio.timeout(60):
            while len(table):
                await asyncio.sleep(0.02)
        deleted = [await site.greet() for _ in range(2)]
        for session in deleted:
            assert (await session.delete()).status == 204
            assert (await session.call("add", a=1, b=2)).status == 404
        extra = await site.greet()
        assert (await extra.delete()).status == 503
        for session in deleted:
            assert (await session.call("add", a=1, b=2)).status == 404


# sessions=False


@pytest.mark.requirement("http-get")
async def test_without_sessions_the_handshake_era_is_served_without_ids() -> None:
    async with hosted(Stage().server, sessions=False) as site:
        session = await site.greet()
        assert session.id is None
        assert (await session.tell("notifications/initialized")).status == 202
        assert text(await (await session.call("add", a=1, b=2)).json()) == "3"
        assert logged(await (await session.call("chat")).messages()) == [
            "line 0",
            "line 1",
            "line 2",
        ]
        for answer in (await session.get(), await session.delete()):
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
        session.headers = {**session.headers, "Mcp-Session-Id": "of an earlier life"}
        assert (await session.ask("tools/list")).status == 200
        assert (await site.call("add", a=1, b=2)).status == 200


async def test_without_sessions_nothing_is_promised_that_could_not_be_told() -> None:
    async with hosted(Stage().server, sessions=False) as site:
        session = await site.greet()
        assert [
            session.result["capabilities"][kind] for kind in ("tools", "resources", "prompts")
        ] == [{}] * 3
        answer = await session.ask("resources/subscribe", {"uri": "note://one"})
        assert (await answer.json())["error"]["code"] == -32601


async def test_without_sessions_streams_cannot_be_resumed_and_do_not_say_so() -> None:
    async with hosted(Stage().server, sessions=False) as site:
        events = await (await (await site.greet()).call("chat")).rest()
        assert {(event.id, event.retry) for event in events} == {(None, None)}
        assert all(event.data for event in events)


DRAFT_GREETING = {"mcpVersion": "2025-06-18", "clientCapabilities": {"supportsProgress": True}}


async def test_without_sessions_the_draft_dialect_works_or_is_refused() -> None:
    async with hosted(Stage().server, sessions=False) as site:
        answer = await site.post(request("initialize", DRAFT_GREETING, 0))
        error = await answer.error()
        assert (answer.status, error["code"]) == (400, -32600)
        assert "sessions=False" in error["message"] and "protocolVersion" in error["message"]
    async with hosted(Stage().server) as site:
        opened = await site.post(request("initialize", DRAFT_GREETING, 0))
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        listed = await site.post(request("tools/list"), session)
        assert isinstance((await listed.json())["result"], list)
        without = await site.post(request("tools/list"))
        assert without.status == 400
        assert "Mcp-Session-Id" in (await without.error())["message"]


async def test_after_shutdown_a_session_of_the_draft_dialect_accepts_only_exit() -> None:
    async with hosted(Stage().server) as site:
        opened = await site.post(request("initialize", DRAFT_GREETING, 0))
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        ended = await site.post(request("shutdown", id=50), session)
        assert (await ended.json())["result"] is None
        refused = await site.post(request("tools/list"), session)
        assert (refused.status, (await refused.error())["code"]) == (400, -32600)
        assert (await site.post({"jsonrpc": "2.0", "method": "exit"}, session)).status == 202
        assert (await site.post(request("tools/list"), session)).status == 404


# sse=True


@pytest.mark.parametrize("place", ["header", "session_id", "sessionId"])
async def test_a_session_opened_by_post_takes_messages_at_the_old_address(place: str) -> None:
    async with hosted(Stage().server, sse=True) as site:
        session = await site.greet("2024-11-05", path="/sse")
        assert session.id is not None
        session.path = "/message"
        if place != "header":
            session.path += f"?{place}={session.id}"
            session.headers = {}
        assert (await session.tell("notifications/initialized")).status == 202
        assert text(await (await session.call("add", a=1, b=2)).json()) == "3"
        session.path, session.headers = "/sse", {"Mcp-Session-Id": session.id}
        assert (await session.delete()).status == 204


@pytest.mark.parametrize("forged", ["x" * 200, "%E2%98%83" * 100, "%0d%0aX: 1" * 20])
async def test_a_forged_session_is_refused_at_the_old_address(forged: str) -> None:
    async with hosted(Stage().server, sse=True) as site:
        path = "/message?session_id=" + forged.replace(" ", "%20")
        answer = await site.post(request("tools/list"), path=path)
        assert answer.status in (400, 404)
        other = {"Mcp-Session-Id": "forged"}
        assert (await site.post(request("tools/list"), other, path="/message")).status == 404


# json_only


@pytest.mark.requirement("http-response-type")
async def test_in_json_mode_every_post_is_answered_with_one_body() -> None:
    stage = Stage(limits=Limits(stream_after=0.01))
    async with hosted(stage.server, json_only=True) as site:
        session = await site.greet()
        assert text(await (await session.call("chat")).json()) == "done"
        assert text(await (await site.call("chat")).json()) == "done"
        slow = asyncio.create_task(session.call("part"))
        await stage.started.wait()
        stage.release.set()
        assert text(await (await slow).json()) == "done"


# routes


async def test_health_and_nothing_else_is_beside_the_endpoint() -> None:
    async with hosted(Stage().server) as site:
        healthy = await site.send("GET", {}, path="/health")
        assert (healthy.status, await healthy.json()) == (200, {"status": "ok"})
        for path in ("/", "/mcp/x", "/sse", "/message", "/healthy", "/mcpx", "//mcp"):
            answer = await site.post(request("ping"), path=path)
            assert answer.status == 404, path
            assert "/mcp" in (await answer.error())["message"]


async def test_health_may_be_elsewhere_or_nowhere() -> None:
    async with hosted(Stage().server, health="/up") as site:
        assert (await site.send("GET", {}, path="/up")).status == 200
        assert (await site.send("GET", {}, path="/health")).status == 404
    async with hosted(Stage().server, health=None) as site:
        assert (await site.send("GET", {}, path="/health")).status == 404


async def test_the_endpoint_may_have_a_slash_at_its_end() -> None:
    async with hosted(Stage().server) as site:
        message, headers = modern("tools/list")
        assert (await site.post(message, headers, path="/mcp/")).status == 200


# the old pair beside it


@pytest.mark.requirement("http-endpoint", "sse-endpoints", "sse-endpoint-event", "sse-messages")
async def test_the_old_pair_is_served_beside_the_endpoint() -> None:
    async with hosted(Stage().server, sse=True) as site:
        stream = await site.send("GET", {"Accept": "text/event-stream"}, path="/sse")
        endpoint = await stream.next()
        assert endpoint.name == "endpoint"
        params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": INFO}
        assert (await site.post(request("initialize", params, 1), path=endpoint.data)).status == 202
        greeted = await stream.next()
        assert greeted.name == "message"
        assert greeted.message["result"]["protocolVersion"] == "2024-11-05"
        call = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 2)
        assert (await site.post(call, path=endpoint.data)).status == 202
        assert text((await stream.next()).message) == "3"
        assert (await (await site.greet()).call("add", a=1, b=2)).status == 200, (
            "the endpoint is where it was"
        )


async def test_a_post_to_the_old_address_is_the_endpoint_itself() -> None:
    async with hosted(Stage().server, sse=True) as site:
        session = await site.greet(OLD, path="/sse")
        assert text(await (await session.call("add", a=1, b=2)).json()) == "3"
        standing = await session.listen()
        assert standing.status == 200
        assert (await session.delete()).status == 204
        message, headers = modern("tools/list")
        assert (await site.post(message, headers, path="/sse")).status == 200


@pytest.mark.requirement("sse-origin")
async def test_the_old_pair_may_be_elsewhere_and_is_guarded_too() -> None:
    async with hosted(Stage().server, sse="/old/events") as site:
        stream = await site.send("GET", {"Accept": "text/event-stream"}, path="/old/events")
        endpoint = await stream.next()
        assert endpoint.data.startswith("/old/message?")
        assert (
            await site.send("GET", {"Origin": "https://evil.example"}, path="/old/events")
        ).status == 403
        evil = await site.post(
            request("ping"), {"Origin": "https://evil.example"}, path=endpoint.data
        )
        assert evil.status == 403
        assert (await site.send("GET", {"Host": "evil.example"}, path="/old/events")).status == 421


async def test_the_old_pair_may_be_where_the_endpoint_is() -> None:
    async with hosted(Stage().server, path="/mcp", sse="/mcp") as site:
        stream = await site.send("GET", {"Accept": "text/event-stream"})
        assert (await stream.next()).data.startswith("/message?session_id=")
        session = await site.greet()
        assert (await session.listen()).status == 200
        assert (await site.call("add", a=1, b=2)).status == 200


# a serverless function


async def test_a_function_may_have_its_endpoint_at_a_path() -> None:
    server = Stage().server
    for path, status in (("/mcp", 200), ("/mcp/", 200), ("/", 404), ("/other", 404)):
        body = json.dumps(request("ping")).encode()
        answer = await server.handle(HttpRequest(headers=PLAIN, body=body, path=path), path="/mcp")
        assert answer.status == status, path


async def test_a_header_that_http_cannot_carry_is_refused() -> None:
    body = json.dumps(request("ping")).encode()
    answer = await Stage().server.handle(
        HttpRequest(headers={**PLAIN, "x-user": "日本"}, body=body)
    )
    assert answer.status == 400
    assert "Latin-1" in json.loads(answer.body)["error"]["message"]


async def test_one_request_is_answered_from_start_to_end() -> None:
    stage = Stage()
    message, headers = modern("tools/call", {"name": "chat", "arguments": {}}, level="debug")
    proper = {**PLAIN, **{name: value or "" for name, value in headers.items()}}
    before = asyncio.all_tasks()
    answer = await stage.server.handle(
        HttpRequest(headers=proper, body=json.dumps(message).encode(), path="/api/mcp")
    )
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert text(json.loads(answer.body)) == "done"
    assert asyncio.all_tasks() == before


async def test_a_function_serves_the_handshake_era_without_sessions() -> None:
    server = Stage().server
    params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
    opened = await server.handle(
        HttpRequest(headers=PLAIN, body=json.dumps(request("initialize", params)).encode())
    )
    assert opened.status == 200
    assert "mcp-session-id" not in opened.headers
    call = json.dumps(
        request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    ).encode()
    called = await server.handle(
        HttpRequest(headers={**PLAIN, "mcp-protocol-version": OLD}, body=call)
    )
    assert text(json.loads(called.body)) == "3"
    assert (
        await server.handle(HttpRequest(method="GET", headers={"accept": "text/event-stream"}))
    ).status == 405
    assert (await server.handle(HttpRequest(headers=PLAIN, body=b"{"))).status == 400


async def test_a_function_enters_and_leaves_the_lifespan_each_time() -> None:
    life: list[str] = []
    server = Stage(lifespan=lasting(life)).server
    message, headers = modern("tools/list")
    proper = {**PLAIN, **{name: value or "" for name, value in headers.items()}}
    for _ in range(2):
        assert (
            await server.handle(HttpRequest(headers=proper, body=json.dumps(message).encode()))
        ).status == 200
    assert life == ["entered", "left"] * 2


# the server's lifespan


def lasting(life: list[str]) -> Any:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        life.append("entered")
        yield "the state"
        life.append("left")

    return lifespan


async def test_the_first_request_enters_the_lifespan_and_closing_leaves_it() -> None:
    life: list[str] = []
    app = Stage(lifespan=lasting(life)).server.asgi("/mcp")
    async with on_port(app) as site:
        assert life == []
        answers = await asyncio.gather(*(site.call("add", a=1, b=2) for _ in range(5)))
        assert [answer.status for answer in answers] == [200] * 5
        assert life == ["entered"]
    assert life == ["entered", "left"]


async def test_an_asgi_server_with_a_lifespan_enters_ours_at_its_start() -> None:
    life: list[str] = []
    app = Stage(lifespan=lasting(life)).server.asgi("/mcp")

    async def closeless(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    async with on_port(closeless, lifespan="on") as site:
        assert life == ["entered"]
        assert (await site.call("add", a=1, b=2)).status == 200
    assert life == ["entered", "left"]


def test_the_end_of_the_event_loop_leaves_the_lifespan_too() -> None:
    life: list[str] = []
    app = Stage(lifespan=lasting(life)).server.asgi()
    message, headers = modern("tools/list")
    proper = {**PLAIN, **{name: value or "" for name, value in headers.items()}}
    for turn in range(2):  # and the same application lives again in another loop
        sent = asyncio.run(drive(app, "POST", proper, json.dumps(message).encode()))
        assert sent[0]["status"] == 200
        assert life == ["entered", "left"] * (turn + 1)


async def test_a_tool_sees_what_the_lifespan_gave() -> None:
    server = Server("state", version="1", lifespan=lasting([]))

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.state)

    async with hosted(server) as site:
        session = await site.greet()
        assert text(await (await site.call("look")).json()) == "the state"
        assert text(await (await session.call("look")).json()) == "the state"


async def test_a_lifespan_that_fails_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[int] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("the database is asleep")
        yield

    async with hosted(Stage(lifespan=lifespan).server) as site:
        for _ in range(2):
            answer = await site.call("add", a=1, b=2)
            assert answer.status == 500
            assert "asleep" not in (await answer.error())["message"], (
                "which is nobody's business out there"
            )
        assert (await site.call("add", a=1, b=2)).status == 200
    assert [record.name for record in caplog.records] == ["dovetail.http"] * 2
    assert "failed to start" in caplog.text
    assert "the database is asleep" in caplog.text


async def test_a_lifespan_that_is_cancelled_from_within_is_a_failure_like_any_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise asyncio.CancelledError
        yield

    async with hosted(Stage(lifespan=lifespan).server) as site:
        async with asyncio.timeout(60):
            assert (await site.call("add", a=1, b=2)).status == 500
    assert "failed to start" in caplog.text


async def test_closing_does_not_wait_for_a_lifespan_that_does_not_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    app = Stage(lifespan=lifespan, limits=Limits(shutdown=0.1)).server.asgi()
    await app.start()
    async with asyncio.timeout(60):
        await asyncio.gather(app.close(), app.close())
    assert [record.getMessage() for record in caplog.records] == [
        "Cancelling the server's lifespan: it did not finish within 0.1 s (Limits.shutdown)"
    ]


def test_an_application_keeps_nothing_of_event_loops_that_are_gone() -> None:
    app = Stage().server.asgi()
    message, headers = modern("tools/list")
    proper = {**PLAIN, **{name: value or "" for name, value in headers.items()}}
    loops = []

    async def once() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert (await drive(app, "POST", proper, json.dumps(message).encode()))[0]["status"] == 200

    for _ in range(3):
        asyncio.run(once())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


async def test_after_its_end_it_may_begin_again() -> None:
    life: list[str] = []
    app = Stage(lifespan=lasting(life)).server.asgi("/mcp")
    async with on_port(app) as site:
        for _ in range(2):
            assert (await site.call("add", a=1, b=2)).status == 200
            await app.close()
    assert life == ["entered", "left"] * 2


async def test_what_fails_at_the_start_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def events() -> Any:
        raise OSError("the store is asleep")

    caplog.set_level(logging.CRITICAL)
    server = Stage().server
    app = server.asgi("/mcp", events=events)
    async with on_port(app) as site:
        for _ in range(3):
            assert (await site.call("add", a=1, b=2)).status == 500
    assert len(server._listeners) == 0


async def test_a_request_that_is_given_up_does_not_take_the_lifespan_with_it() -> None:
    entered: list[int] = []
    awake = asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        entered.append(1)
        await awake.wait()
        yield

    app = Stage(lifespan=lifespan).server.asgi()
    message, headers = modern("tools/list")
    proper = {**PLAIN, **{name: value or "" for name, value in headers.items()}}
    first, second = (
        asyncio.create_task(drive(app, "POST", proper, json.dumps(message).encode()))
        for _ in range(2)
    )
    while not entered:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    awake.set()
    assert (await second)[0]["status"] == 200
    assert entered == [1]
    await app.close()


async def test_a_lifespan_that_fails_at_its_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        raise OSError("the database is gone")

    async with hosted(Stage(lifespan=lifespan).server) as site:
        assert (await site.call("add", a=1, b=2)).status == 200
    assert "lifespan failed during shutdown" in caplog.text


async def test_an_asgi_server_is_told_that_the_lifespan_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise OSError("the database is asleep")
        yield

    caplog.set_level(logging.CRITICAL)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await Stage(lifespan=lifespan).server.asgi()({"type": "lifespan"}, receive, send)
    assert sent == [
        {"type": "lifespan.startup.failed", "message": "OSError: the database is asleep"}
    ]


async def test_closing_ends_streams_first_and_does_not_hang() -> None:
    stage = Stage(limits=Limits(shutdown=0.2))
    app = stage.server.asgi("/mcp")
    async with on_port(app) as site:
        session = await site.greet()
        standing = await session.listen()
        calling = await session.call("talk")  # which never ends by itself
        async with asyncio.timeout(60):
            await app.close()
            assert await standing.rest() == []
            await calling.rest()
        await stage.cancelled.wait()


# settings that make no sense


@pytest.mark.parametrize(
    "options",
    [
        {"hots": ["x"]},
        {"path": "mcp"},
        {"health": "up"},
        {"sse": "sse"},
        {"hosts": ["http://mcp.example"]},
        {"origins": ["mcp.example"]},
        {"public_url": "mcp.example"},
        {"keys": ["short"]},
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        Stage().server.asgi(**options)
    assert next(iter(options)) in str(refused.value)


def test_keys_of_the_environment_are_checked_before_anybody_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", "short")
    with pytest.raises(ConfigError, match="DOVETAIL_KEYS"):
        Stage().server.asgi()
    with pytest.raises(ConfigError, match="DOVETAIL_KEYS"):
        Stage().server.run("http", port=0, workers=2)


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1 port {port}: Address already in use"):
            listen("127.0.0.1", port)


async def test_several_workers_without_a_shared_key_are_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    async with hosted(Stage().server) as site:
        await site.call("add", a=1, b=2)
    assert "DOVETAIL_KEYS" in caplog.text
    caplog.clear()
    monkeypatch.setenv("DOVETAIL_KEYS", "a key that is long enough")
    async with hosted(Stage().server) as site:
        session = await site.greet()
        assert (await session.ask("tools/list")).status == 200
    assert not caplog.records


@pytest.mark.requirement("http-version-missing")
async def test_a_version_that_is_not_said_is_asked_for_where_old_clients_are_not_served() -> None:
    async with hosted(Stage(revisions=[MODERN]).server) as site:
        answer = await site.post(request("tools/list", {}, 1), {"Mcp-Method": "tools/list"})
        assert (answer.status, (await answer.error())["code"]) == (400, -32020)
