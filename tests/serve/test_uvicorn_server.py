"""The short way: a request that comes whole, by itself, and is done at once never becomes an ASGI
scope; everything else does, once, at whatever point it turns out to be something else, and nothing
is done twice."""

import asyncio
import errno
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from dovetail import Context, HttpRequest, HttpResponse, Limits, Rate, Rates
from dovetail.auth import ApiKeys, Bearer, static_tokens
from dovetail.ports import Principal, PublicUrl
from dovetail.serve import uvicorn_server
from dovetail.serve.uvicorn_server import make_protocol_class, make_server
from tests.transports.http.raw import (
    BOTH,
    Answer,
    Site,
    Stage,
    answered,
    modern,
    on_port,
    request,
    text,
)

KEY = "k" * 32


class AsyncGuard:
    """A guard that can only admit callers asynchronously."""

    admitted = 0

    async def admit(self, request: HttpRequest, public_url: PublicUrl) -> Principal | HttpResponse:
        self.admitted += 1
        known = request.headers.get("authorization") == f"Bearer {KEY}"
        return Principal("ada") if known else HttpResponse(status=401)

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> None: ...

    def challenge(self, *refused: Any) -> dict[str, str]:
        return {}


class Scopes:
    """An application that counts how often ASGI brought it a request."""

    def __init__(self, app: Any) -> None:
        self.app, self.count = app, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.count += scope["type"] == "http"
        await self.app(scope, receive, send)


@asynccontextmanager
async def watched(stage: Stage, **options: Any) -> AsyncIterator[tuple[Site, Scopes]]:
    """A server of ours on a port, and how many requests came to it through ASGI."""
    app = stage.server.asgi("/mcp", **options)
    await app.start()
    scopes = Scopes(app)
    async with on_port(scopes, http=make_protocol_class(app)) as site:
        try:
            yield site, scopes
        finally:
            stage.release.set()
            await app.close()


def posted(
    tool: str, arguments: dict[str, Any], id: int = 1, *, extra: str = "", version: str = "1.1"
) -> bytes:
    """A tool call of the stateless era as bytes."""
    message, proper = modern("tools/call", {"name": tool, "arguments": arguments}, id)
    body = json.dumps(message).encode()
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json", "Accept": BOTH, **proper}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return (
        f"POST /mcp HTTP/{version}\r\n{lines}{extra}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


ADD = posted("add", {"a": 1, "b": 2})


async def sums(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int
) -> list[tuple[int, str]]:
    """The ids and texts of this many answers that come on one connection."""
    heard = []
    for _ in range(count):
        answer = await answered(reader, writer)
        body = json.loads(await reader.readexactly(int(answer.headers["content-length"])))
        heard.append((body["id"], text(body)))
    return heard


async def test_the_usual_request_never_becomes_a_scope() -> None:
    async with watched(Stage()) as (site, scopes):
        reader, writer = await site.connect()
        for id in range(5):
            writer.write(posted("add", {"a": 1, "b": id}, id))
            assert await sums(reader, writer, 1) == [(id, str(1 + id))]
        assert scopes.count == 0


async def test_it_is_counted_all_the_same() -> None:
    async with watched(Stage(), metrics="/metrics") as (site, scopes):
        reader, writer = await site.connect()
        for id in range(3):
            writer.write(posted("add", {"a": 1, "b": id}, id))
            await sums(reader, writer, 1)
        assert scopes.count == 0
        page = (await (await site.send("GET", {}, path="/metrics")).body()).decode()
        assert (
            'http_responses_total{http_request_method="POST",http_response_status_code="200"} 3'
            in page
        )


async def test_nor_does_that_of_a_session() -> None:
    async with watched(Stage()) as (site, scopes):
        session = await site.greet()
        before = scopes.count
        assert text(await (await session.call("add", a=1, b=2)).json()) == "3"
        assert scopes.count == before == 1


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            posted("add", {"a": 1, "b": 2}, extra="Connection: close\r\n"),
            id="the last on its connection",
        ),
        pytest.param(posted("add", {"a": 1, "b": 2}, version="1.0"), id="of an older HTTP"),
        pytest.param(
            posted("add", {"a": 1, "b": 2}, version="1.0", extra="Connection: keep-alive\r\n"),
            id="of an older HTTP, going on",
        ),
        pytest.param(
            ADD.replace(b"POST /mcp ", b"POST /mcp/ "), id="at another spelling of the path"
        ),
    ],
)
async def test_an_unusual_one_does_and_is_answered_the_same(given: bytes) -> None:
    async with watched(Stage()) as (site, scopes):
        reader, writer = await site.connect()
        writer.write(given)
        assert await sums(reader, writer, 1) == [(1, "3")]
        assert scopes.count == 1


async def test_one_whose_body_is_waited_for_is_told_to_go_on() -> None:
    async with watched(Stage()) as (site, _):
        reader, writer = await site.connect()
        head, _, body = posted("add", {"a": 1, "b": 2}, extra="Expect: 100-continue\r\n").partition(
            b"\r\n\r\n"
        )
        writer.write(head + b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(body)
        assert await sums(reader, writer, 1) == [(1, "3")]


@pytest.mark.parametrize("cut", [1, 40, ADD.index(b"\r\n\r\n") + 4, len(ADD) - 1])
async def test_one_that_comes_in_pieces_is_answered_once(cut: int) -> None:
    async with watched(Stage()) as (site, scopes):
        reader, writer = await site.connect()
        for _ in range(2):
            writer.write(ADD[:cut])
            await (await site.call("add", a=0, b=0)).json()  # by now the first piece is there
            writer.write(ADD[cut:])
            assert await sums(reader, writer, 1) == [(1, "3")]
        assert scopes.count == (0 if cut < ADD.index(b"\r\n\r\n") else 2), (
            "a head in pieces is still one body at once"
        )


async def test_one_that_could_be_whole_already_is_not_begun_before_it_is() -> None:
    async with watched(Stage()) as (site, _):
        reader, writer = await site.connect()
        length = len(ADD) - ADD.index(b"\r\n\r\n") - 4
        padded = ADD.replace(b"Content-Length: %d" % length, b"Content-Length: %d" % (length + 3))
        for _ in range(2):
            writer.write(padded)
            await (await site.call("add", a=0, b=0)).json()
            writer.write(b"   ")
            assert await sums(reader, writer, 1) == [(1, "3")]


async def test_requests_that_come_on_top_of_each_other_are_answered_in_turn() -> None:
    stage = Stage()
    async with watched(stage) as (site, _):
        reader, writer = await site.connect()
        writer.write(
            b"".join(
                [*(posted("add", {"a": id, "b": 0}, id) for id in range(4)), posted("wait", {}, 4)]
            )
        )
        assert await sums(reader, writer, 4) == [(id, str(id)) for id in range(4)]
        await stage.started.wait()
        writer.write(b"".join(posted("add", {"a": id, "b": 0}, id) for id in range(5, 8)))
        await (await site.call("add", a=0, b=0)).json()
        stage.release.set()
        assert await sums(reader, writer, 4) == [
            (4, "done"),
            *((id, str(id)) for id in range(5, 8)),
        ]


async def test_however_many_there_are() -> None:
    """In pieces that are longer than a head may be, and end in the midst of one."""
    async with watched(Stage()) as (site, _):
        reader, writer = await site.connect()
        for id in range(0, 900, 300):
            writer.write(
                b"".join(posted("add", {"a": id, "b": 0}, id) for id in range(id, id + 300))
            )
        assert await sums(reader, writer, 900) == [(id, str(id)) for id in range(900)]


async def test_what_comes_right_after_does_not_overtake() -> None:
    """It is there before anybody has looked whether the first is done: both are read in one turn of
    the loop."""
    stage = Stage()
    async with watched(stage) as (site, _):
        reader, writer = await site.connect()
        writer.write(posted("wait", {}, 1))
        await stage.started.wait()
        writer.write(posted("add", {"a": 1, "b": 1}, 2))
        await (await site.call("add", a=0, b=0)).json()
        stage.release.set()
        assert await sums(reader, writer, 2) == [(1, "done"), (2, "2")]


@pytest.mark.parametrize(("seconds", "handed_over"), [(0.5, 0), (0.0, 1)])
async def test_a_call_that_waits_is_begun_once_and_handed_over_only_if_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, seconds: float, handed_over: int
) -> None:
    monkeypatch.setattr(uvicorn_server, "FAST_PATH_SECONDS", seconds)
    stage = Stage()
    begun = []

    @stage.server.tool
    async def slow() -> int:
        begun.append(1)
        await asyncio.sleep(0.01)
        return len(begun)

    async with watched(stage) as (site, scopes):
        assert text(await (await site.call("slow")).whole()) == "1"
        assert scopes.count == handed_over
        assert text(await (await site.call("slow")).whole()) == "2"


@pytest.mark.parametrize(("limit", "before", "handed_over"), [(2.0, 1.5, 0), (0.5, 0.0, 1)])
async def test_the_time_until_a_call_is_handed_over_begins_with_that_call(
    monkeypatch: pytest.MonkeyPatch, limit: float, before: float, handed_over: int
) -> None:
    """The timer of an earlier call is still running when it begins."""
    monkeypatch.setattr(uvicorn_server, "FAST_PATH_SECONDS", limit)
    stage = Stage()

    @stage.server.tool
    async def pause(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    async with watched(stage) as (site, scopes):
        reader, writer = await site.connect()
        writer.write(posted("pause", {"seconds": 0.01}, 1))
        assert await sums(reader, writer, 1) == [(1, "done")]
        await asyncio.sleep(before)
        writer.write(posted("pause", {"seconds": 1.0}, 2))
        assert await sums(reader, writer, 1) == [(2, "done")]
        assert scopes.count == handed_over


async def test_a_call_that_waits_ends_if_its_client_leaves() -> None:
    stage = Stage()
    ended = asyncio.Event()

    @stage.server.tool
    async def endless() -> None:
        try:
            stage.started.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with watched(stage) as (site, _):
        _, writer = await site.connect()
        writer.write(posted("endless", {}, 1))
        await stage.started.wait()
        writer.close()
        await asyncio.wait_for(ended.wait(), 10)


async def test_one_that_says_something_becomes_a_stream() -> None:
    async with watched(Stage()) as (site, scopes):
        answer = await site.call("chat", count=2)
        assert answer.headers["content-type"] == "text/event-stream"
        assert len(await answer.messages()) == 3
        assert scopes.count == 1


async def test_one_that_is_refused_is_counted_once() -> None:
    stage = Stage(rates=Rates(calls=Rate(1, burst=3, per=3600), local=True))
    async with watched(stage) as (site, _):
        statuses = [(await site.call("add", a=1, b=2)).status for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]


@pytest.mark.parametrize(("headers", "message", "status", "code"), [
    ({"Host": "evil.example"}, None, 421, -32600),
    ({"Mcp-Name": "other"}, None, 400, -32020),
    ({}, b"{", 400, -32700),
    ({}, b"[]", 400, -32600),
    ({"Mcp-Method": "tools/nope"}, modern("tools/nope")[0], 404, -32601),
])  # fmt: skip
async def test_refusals_are_those_of_the_ladder(
    headers: Any, message: Any, status: int, code: int
) -> None:
    async with watched(Stage()) as (site, scopes):
        usual, proper = modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        answer = await site.post(usual if message is None else message, {**proper, **headers})
        assert (answer.status, (await answer.error())["code"]) == (status, code)
        assert scopes.count == 1


async def test_one_that_is_too_long_is_refused() -> None:
    async with watched(Stage(limits=Limits(incoming=300))) as (site, _):
        assert (await site.call("add", a=1, b=2)).status == 413


async def test_an_error_of_the_call_has_its_status() -> None:
    async with watched(Stage()) as (site, _):
        answer = await site.call("need")
        assert (answer.status, (await answer.error())["code"]) == (400, -32021)


async def test_a_web_page_may_read_the_answer() -> None:
    async with watched(Stage(), origins=["https://page.example"]) as (site, _):
        answer = await site.call("add", {"Origin": "https://page.example"}, a=1, b=2)
        assert answer.headers["access-control-allow-origin"] == "https://page.example"


async def test_who_goes_away_cancels_in_the_stateless_era() -> None:
    stage = Stage()
    async with watched(stage) as (site, _):
        _, writer = await site.connect()
        writer.write(posted("wait", {}))
        await stage.started.wait()
        writer.transport.abort()
        await stage.cancelled.wait()


async def test_who_goes_away_at_once_leaves_nothing_behind() -> None:
    stage = Stage()
    async with watched(stage) as (site, _):
        for _ in range(20):
            _, writer = await site.connect()
            writer.write(posted("wait", {}))
            writer.close()
        await stage.cancelled.wait()
        assert text(await (await site.call("add", a=1, b=2)).json()) == "3"


async def test_in_the_handshake_era_the_call_goes_on() -> None:
    stage = Stage()
    async with watched(stage) as (site, _):
        session = await site.greet()
        message = request("tools/call", {"name": "wait", "arguments": {}})
        headers = {"Content-Type": "application/json", "Accept": BOTH, **session.headers}
        _, writer = await site.begin("POST", headers, json.dumps(message).encode())
        await stage.started.wait()
        writer.transport.abort()
        await (await site.call("add", a=1, b=2)).json()
        stage.release.set()
        await stage.finished.wait()
        assert not stage.cancelled.is_set()


async def test_what_is_no_http_behind_a_request_ends_the_connection_and_with_it_the_request() -> (
    None
):
    stage = Stage()
    async with watched(stage) as (site, _):
        reader, writer = await site.connect()
        writer.write(posted("wait", {}) + b"\0\0\0 nonsense\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        assert text(await (await site.call("add", a=1, b=2)).json()) == "3"
        assert not stage.started.is_set() or await stage.cancelled.wait()


async def test_a_fault_of_ours_is_an_internal_error_and_no_bad_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    async with watched(stage) as (site, _):

        def broken(*_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(stage.server, "admit", broken)
        assert (await site.call("add", a=1, b=2)).status == 500


@pytest.mark.parametrize(
    "guard, first",
    [
        pytest.param(ApiKeys({KEY: "ada"}), 0, id="api-keys"),
        pytest.param(Bearer(static_tokens({KEY: "ada"})), 1, id="bearer"),
        pytest.param(AsyncGuard(), 3, id="async-only"),
    ],
)
async def test_a_caller_whom_the_guard_knows_takes_the_fast_path(guard: Any, first: int) -> None:
    async with watched(Stage(auth=guard)) as (site, scopes):
        for _ in range(3):
            answer = await site.call("add", {"Authorization": f"Bearer {KEY}"}, a=1, b=2)
            assert text(await answer.json()) == "3"
        assert scopes.count == first
        assert (await site.call("add", a=1, b=2)).status == 401
        assert (await site.call("add", {"Authorization": "Bearer x"}, a=1, b=2)).status == 401


async def test_a_handler_on_the_fast_path_knows_its_caller() -> None:
    stage = Stage(auth=ApiKeys({KEY: Principal("ada", scopes=("read",)), "o" * 32: "bob"}))

    @stage.server.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.user is not None
        return f"{ctx.user.id} {' '.join(ctx.user.scopes)} {ctx.headers.get('authorization')}"

    async with watched(stage) as (site, scopes):
        for key, expected in ((KEY, "ada read None"), ("o" * 32, "bob  None")):
            answer = await site.call("whoami", {"Authorization": f"Bearer {key}"})
            assert text(await answer.json()) == expected
        assert scopes.count == 0


class OpenGuard(AsyncGuard):
    """A guard that admits everybody at once."""

    def admit_now(self, request: HttpRequest, public_url: PublicUrl) -> Any:
        return Principal("ada")


class RefusingGuard(AsyncGuard):
    """A guard whose quick answer is not a caller."""

    def admit_now(self, request: HttpRequest, public_url: PublicUrl) -> Any:
        return HttpResponse(status=401)


class StrictKeys(ApiKeys):
    """A subclass that checks more than `ApiKeys`."""

    async def admit(self, request: HttpRequest, public_url: PublicUrl) -> Any:
        return HttpResponse(status=403)


class Wrapper(AsyncGuard):
    """A guard that delegates what it does not have to another."""

    def __getattr__(self, name: str) -> Any:
        return getattr(ApiKeys({KEY: "ada"}), name)

    async def admit(self, request: HttpRequest, public_url: PublicUrl) -> Any:
        return HttpResponse(status=403)


@pytest.mark.parametrize("guard", [StrictKeys({KEY: "ada"}), Wrapper()])
async def test_a_guard_with_its_own_admit_is_always_asked(guard: Any) -> None:
    async with watched(Stage(auth=guard)) as (site, _):
        assert (await site.call("add", {"Authorization": f"Bearer {KEY}"}, a=1, b=2)).status == 403


async def test_only_a_principal_is_a_caller() -> None:
    async with watched(Stage(auth=RefusingGuard())) as (site, _):
        assert (await site.call("add", a=1, b=2)).status == 401


async def test_a_call_that_is_handed_over_is_not_admitted_again() -> None:
    guard = OpenGuard()
    async with watched(Stage(auth=guard)) as (site, scopes):
        refused = await site.call("no-such-tool", {"Authorization": f"Bearer {KEY}"})
        assert "error" in await refused.json()
        assert (scopes.count, guard.admitted) == (1, 0)


async def test_scopes_that_a_caller_lacks_are_named_on_the_fast_path() -> None:
    stage = Stage(auth=ApiKeys({KEY: "ada"}))
    stage.server.tool(name="erase", scopes=["write"])(lambda: "erased")
    async with watched(stage) as (site, _):
        answer = await site.call("erase", {"Authorization": f"Bearer {KEY}"})
        assert answer.status == 403
        assert 'scope="write"' in answer.headers["www-authenticate"]


async def test_a_session_is_not_open_to_another_user_on_the_fast_path() -> None:
    keys = {KEY: "ada", "o" * 32: "bob"}
    async with watched(Stage(auth=ApiKeys(keys))) as (site, scopes):
        session = await site.greet(headers={"Authorization": f"Bearer {KEY}"})
        before = scopes.count
        assert (await session.call("add", a=1, b=2)).status == 200
        assert scopes.count == before
        foreign = {"Authorization": f"Bearer {'o' * 32}"}
        assert (await session.call("add", _headers=foreign, a=1, b=2)).status == 404


async def test_a_connection_that_rests_between_requests_is_not_taken_for_a_slow_one() -> None:
    async with watched(Stage(limits=Limits(body_timeout=0.05))) as (site, _):
        reader, writer = await site.connect()
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = await answered(reader, writer)
        await reader.readexactly(int(answer.headers["content-length"]))
        for id in range(2):
            writer.write(posted("add", {"a": 1, "b": 1}, id))
            assert await sums(reader, writer, 1) == [(id, "2")]
            await asyncio.sleep(0.15)  # three times what a head may take


async def test_what_was_begun_when_the_server_ends_is_answered() -> None:
    stage = Stage()
    async with watched(stage) as (site, _):
        reader, writer = await site.connect()
        writer.write(posted("wait", {}))
        await stage.started.wait()
        answer: asyncio.Future[Answer] = asyncio.ensure_future(answered(reader, writer))
        stage.release.set()
        assert (await answer).status == 200
    assert stage.finished.is_set()


class Wire(asyncio.Transport):
    """A connection without a network, for what has to happen between two turns of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed, self.unread = b"", "", 0

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = "closed"

    def is_closing(self) -> bool:
        return bool(self.closed)

    def abort(self) -> None:
        self.closed = "aborted"

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@asynccontextmanager
async def wired(stage: Stage) -> AsyncIterator[tuple[Any, Wire]]:
    """A connection to a server of ours, driven by hand."""
    app = stage.server.asgi("/mcp")
    await app.start()
    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none")
    config.load()
    end, wire = make_protocol_class(app)(config, ServerState(), {}), Wire()
    end.connection_made(wire)
    try:
        yield end, wire
    finally:
        stage.release.set()
        end.connection_lost(ConnectionResetError())
        await app.close()


async def test_a_connection_that_is_lost_before_anybody_has_looked_ends_its_call() -> None:
    stage = Stage()
    async with wired(stage) as (end, wire):
        end.data_received(posted("wait", {}))
        end.connection_lost(ConnectionResetError())
        await stage.cancelled.wait()
        assert wire.sent == b""


async def test_an_end_before_anybody_has_looked_lets_the_call_end_first() -> None:
    stage = Stage()
    async with wired(stage) as (end, wire):
        end.data_received(ADD)
        end.shutdown()
        assert not wire.closed
        await asyncio.wait(end.tasks)
        assert b'"3"' in wire.sent and wire.closed


async def test_a_client_that_does_not_read_is_not_written_to_without_end() -> None:
    async with wired(Stage()) as (end, wire):
        end.pause_writing()
        end.data_received(ADD)
        for _ in range(5):
            await asyncio.sleep(0)
        assert wire.sent == b""
        end.resume_writing()
        await asyncio.wait(end.tasks)
        assert b'"3"' in wire.sent


async def test_one_that_comes_before_anybody_has_looked_waits_its_turn_and_each_is_answered_once() -> (  # noqa: E501
    None
):
    async with wired(Stage()) as (end, wire):
        for id in range(3):
            end.data_received(posted("add", {"a": 0, "b": id}, id))
        while end.tasks:
            await asyncio.wait(end.tasks)
        assert [answer["id"] for answer in map(json.loads, re.findall(rb"\{.*\}", wire.sent))] == [
            0,
            1,
            2,
        ]


async def test_a_connection_that_was_reset_is_not_kept_until_it_would_have_timed_out() -> None:
    async with wired(Stage()) as (end, wire):
        end.data_received(ADD)
        while not wire.sent:
            await asyncio.sleep(0)
        waiting = end.timeout_keep_alive_task
        assert waiting is not None and not waiting.cancelled()
        end.connection_lost(ConnectionResetError())
        assert waiting.cancelled()


# idle connections

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def closed(wire: Wire) -> None:
    async with asyncio.timeout(60):
        while not wire.closed:
            await asyncio.sleep(0.001)


async def replied(wire: Wire, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while wire.sent.count(b"HTTP/1.1 ") < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("blank", [b"\r\n", b"\n", b"\r\n" * 1000])
@pytest.mark.parametrize("request_", [ADD, HEALTH], ids=["fast path", "ASGI"])
async def test_empty_lines_after_a_response_do_not_keep_a_connection_open(
    request_: bytes, blank: bytes
) -> None:
    async with wired(Stage()) as (end, wire):
        end.timeout_keep_alive = 0.05
        end.data_received(request_)
        await replied(wire)
        timer = end.timeout_keep_alive_task
        end.data_received(blank)
        assert end.timeout_keep_alive_task is timer, "neither stopped nor extended"
        await closed(wire)


async def test_empty_lines_before_the_first_request_do_not_stop_its_timeout() -> None:
    async with wired(Stage(limits=Limits(body_timeout=0.05))) as (end, wire):
        end.data_received(b"\r\n\r\n")
        await closed(wire)


async def test_a_request_after_empty_lines_is_answered() -> None:
    async with wired(Stage()) as (end, wire):
        for count in range(1, 4):
            end.data_received(b"\r\n" + ADD)
            await replied(wire, count)


async def test_a_request_that_begins_before_a_response_is_complete_is_not_cut_as_idle() -> None:
    stage = Stage()

    @stage.server.tool
    async def slow() -> str:
        await asyncio.sleep(0.1)
        return "slow"

    async with wired(stage) as (end, wire):
        end.timeout_keep_alive = 0.01
        call = posted("slow", {})
        end.data_received(call + call[:50])
        await replied(wire)
        assert end.timeout_keep_alive_task is None
        end.data_received(call[50:])
        await replied(wire, 2)


async def test_a_connection_is_idle_once_a_refused_request_has_arrived_completely() -> None:
    async with wired(Stage()) as (end, wire):
        refused = ADD.replace(b"Accept:", b"Origin: https://evil.example\r\nAccept:")
        end.data_received(refused[:-5])
        await replied(wire)
        assert end.head_timer is not None
        end.data_received(refused[-5:])
        assert end.head_timer is None and end.timeout_keep_alive_task is not None
        end.timeout_keep_alive_handler()
        assert wire.closed


async def test_errors_of_the_loop_that_are_not_about_connections_reach_its_own_handler() -> None:
    seen: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context["message"]))
    before = loop.get_exception_handler()
    try:
        server = make_server(Stage().server.asgi("/mcp"), {"certfile": None, "keyfile": None})
        server.lifespan = server.config.lifespan_class(server.config)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await server.startup([listening])
            loop.call_exception_handler({"message": "other"})
            full = OSError(errno.EMFILE, "too many")
            loop.call_exception_handler({"message": "full", "exception": full, "socket": listening})
            await server.shutdown([listening])
        assert seen == ["other"]
        assert loop.get_exception_handler() is before
    finally:
        loop.set_exception_handler(None)


# what is no body


def chunked(trailers: bytes, *, left_out: str = "") -> bytes:
    """A call whose body comes in one chunk, with trailers behind it."""
    head, _, body = ADD.partition(b"\r\n\r\n")
    lines = [
        line
        for line in head.split(b"\r\n")
        if not line.startswith((b"Content-Length", left_out.encode() or b"-"))
    ]
    return b"\r\n".join(
        [*lines, b"Transfer-Encoding: chunked", b"", b"%x" % len(body), body, b"0", trailers, b""]
    )


async def test_a_trailer_is_no_header() -> None:
    async with watched(Stage()) as (site, _):
        reader, writer = await site.connect()
        writer.write(chunked(b"Some-Trailer: x\r\n"))
        assert await sums(reader, writer, 1) == [(1, "3")]
        writer.write(chunked(b"Mcp-Name: add\r\n", left_out="Mcp-Name"))
        answer = await answered(reader, writer)
        assert answer.status == 400 and "Mcp-Name" in (await answer.error())["message"]


@pytest.mark.parametrize(
    "endless",
    [b"a: b\r\n" * 1000, b"a" * 6000],
    ids=["trailers", "one trailer"],
)
async def test_trailers_without_end_end_the_connection(endless: bytes) -> None:
    async with watched(Stage()) as (site, _):
        _, writer = await site.connect()
        begun = chunked(b"b: ")
        writer.write(
            begun[: begun.rindex(b"0\r\n") + 3] + (b"" if endless.startswith(b"a:") else b"b: ")
        )
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                writer.write(endless)
                await writer.drain()
                await asyncio.sleep(0)
        assert text(await (await site.call("add", a=1, b=2)).json()) == "3"


async def test_a_head_that_has_too_many_headers_is_refused_before_it_ends() -> None:
    async with watched(Stage()) as (site, _):
        reader, writer = await site.connect()
        writer.write(b"POST /mcp HTTP/1.1\r\n" + b"a: b\r\n" * 250)
        assert (await reader.read()).startswith(b"HTTP/1.1 400")


# another protocol

WISH = b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("cut", [None, 60, -10])
async def test_who_would_rather_speak_another_protocol_is_answered_in_this_one(
    cut: int | None,
) -> None:
    async with watched(Stage()) as (site, _):
        reader, writer = await site.connect()
        for _ in range(2):
            wished = ADD.replace(
                b"Accept:", b"Connection: Upgrade, HTTP2-Settings\r\n" + WISH + b"Accept:"
            )
            writer.write(wished[:cut])
            if cut is not None:
                await (await site.call("add", a=0, b=0)).json()  # by now the first piece is there
                writer.write(wished[cut:])
            assert await sums(reader, writer, 1) == [(1, "3")]


async def test_what_else_the_connection_is_to_be_stays_so() -> None:
    async with watched(Stage()) as (site, _):
        reader, writer = await site.connect()
        writer.write(ADD.replace(b"Accept:", b"Connection: Upgrade, close\r\n" + WISH + b"Accept:"))
        assert await sums(reader, writer, 1) == [(1, "3")]
        assert await reader.read() == b""


async def test_there_are_no_tunnels() -> None:
    async with watched(Stage()) as (site, _):
        for more in (b"", b"Connection: Upgrade\r\n" + WISH):
            reader, writer = await site.connect()
            writer.write(
                b"CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n" + more + b"\r\n"
            )
            assert (await reader.read()).startswith(b"HTTP/1.1 400")


# a client that leaves, or does not read


async def test_a_call_hears_that_its_client_is_gone_though_another_waits_behind_it() -> None:
    stage = Stage()
    async with watched(stage) as (site, _):
        _, writer = await site.connect()
        writer.write(posted("wait", {}) + ADD)
        await stage.started.wait()
        writer.close()
        await stage.cancelled.wait()


async def test_who_reads_nothing_is_not_waited_for_but_who_reads_slowly_is() -> None:
    async with wired(Stage(limits=Limits(body_timeout=0.01))) as (end, wire):

        def slowly() -> int:
            wire.unread -= 1
            return wire.unread

        end.data_received(ADD)
        wire.unread = 100
        wire.get_write_buffer_size = slowly
        end.pause_writing()
        while wire.unread > 90:
            assert not wire.closed, "it reads"
            await asyncio.sleep(0.001)
        wire.get_write_buffer_size = lambda: 90
        end.timeout_keep_alive_task.cancel()  # which would end it as well
        async with asyncio.timeout(60):
            while not wire.closed:
                await asyncio.sleep(0.001)
        assert wire.closed == "aborted"


async def test_an_answer_that_nobody_reads_is_dropped_with_its_connection_when_nothing_more_comes() -> (  # noqa: E501
    None
):
    async with wired(Stage()) as (end, wire):
        wire.unread = 10
        end.timeout_keep_alive_handler()
        assert wire.closed == "aborted"
        wire.closed, wire.unread = "", 0
        end.timeout_keep_alive_handler()
        assert wire.closed == "closed"


@pytest.mark.parametrize("missing", ["uvicorn", "httptools"])
def test_what_is_not_installed_is_named(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from dovetail import Server; Server('lean').run('http', port=0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'dovetail-mcp[http]'" in ended.stderr.splitlines()[-1]
