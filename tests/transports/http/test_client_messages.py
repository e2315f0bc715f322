"""What an HTTP client sends with each message, and what it makes of what comes back."""

import asyncio
import gzip
import json
import logging
import socket
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    TimedOut,
    TooLarge,
    Unauthorized,
)
from dovetail.limits import MIB
from dovetail.net import PeerAddresses
from dovetail.transports.http.client import channel as transport
from dovetail.transports.http.client.http_transport import PIECE_BYTES, HttpTransport, _decompress
from dovetail.transports.http.client.messages import HeaderParams
from tests.transports.http.scripted import MODERN, Asked, Script, Scripted, modern, old

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
OLD_DONE = {"content": [{"type": "text", "text": "done"}]}


def listed(*tools: Any) -> dict[str, Any]:
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": list(tools)}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def served(answer: Script) -> Script:
    """A server of the stateless era that answers everything else with this."""

    async def script(asked: Asked) -> None:
        if not await modern(asked):
            await answer(asked)

    return script


def kept(answer: Script) -> Script:
    """A server of the handshake era that answers everything else with this."""

    async def script(asked: Asked) -> None:
        if not await old(asked):
            await answer(asked)

    return script


# headers


@pytest.mark.requirement(
    "http-client-standard-headers", "http-client-version", "http-client-encoded"
)
async def test_method_and_name_are_repeated_in_headers() -> None:
    async def answer(asked: Asked) -> None:
        results = {
            "tools/list": listed(),
            "tools/call": DONE,
            "resources/read": {
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
                "contents": [],
            },
            "prompts/get": {"resultType": "complete", "messages": []},
        }
        await asked.result(results[asked.rpc])

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            await client.list_tools()
            await client.call_tool("get-weather")
            await client.call_tool("näme")
            await client.read_resource("file:///path/to/file%20name.txt")
            await client.get_prompt("review")
        names = [
            (one.headers["mcp-method"], one.headers.get("mcp-name")) for one in server.asked[1:]
        ]
        assert names == [
            ("tools/list", None),
            ("tools/call", "get-weather"),
            ("tools/call", "=?base64?bsOkbWU=?="),
            ("resources/read", "file:///path/to/file%20name.txt"),
            ("prompts/get", "review"),
        ]
        for one in server.asked:
            assert (
                one.headers["mcp-protocol-version"]
                == one.message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"]
            )


@pytest.mark.requirement("http-client-params", "http-client-params-null", "http-client-params-safe")
async def test_parameters_are_mirrored_once_the_tools_are_known() -> None:
    region = {"type": "string", "x-mcp-header": "Region"}
    size = {"type": "integer", "x-mcp-header": "Size"}

    async def answer(asked: Asked) -> None:
        await asked.result(
            listed(tool("sql", region=region, size=size)) if asked.rpc == "tools/list" else DONE
        )

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            await client.list_tools()
            await client.call_tool("sql", {"region": " padded", "size": 7, "query": "x"})
            await client.call_tool("sql", {"region": None})
            with pytest.raises(InvalidParams, match=r"outside ±\(2\^53"):
                await client.call_tool("sql", {"size": 2**53})
        first, second = server.heard("tools/call")
        assert first.headers["mcp-param-region"] == "=?base64?IHBhZGRlZA==?="
        assert first.headers["mcp-param-size"] == "7"
        assert "mcp-param-query" not in first.headers
        assert "mcp-param-region" not in second.headers


@pytest.mark.requirement("http-client-tool-rejected", "http-client-tool-warning")
async def test_tools_with_headers_that_are_not_allowed_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = (
        {"type": "string", "x-mcp-header": "Region"},
        {"type": "object", "x-mcp-header": "Region"},
    )

    async def answer(asked: Asked) -> None:
        await asked.result(listed(tool("good", a=good), tool("bad", a=bad), tool("plain")))

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            assert [one.name for one in await client.list_tools()] == ["good", "plain"]
            assert [one.name for one in (await client.request("tools/list")).tools] == [
                "good",
                "plain",
            ]
    (warning,) = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert warning.startswith("Ignoring the tool 'bad': ")
    assert "Region" in warning


async def test_the_handshake_era_knows_nothing_of_such_headers() -> None:
    bad = {"type": "object", "x-mcp-header": "Region"}

    async def answer(asked: Asked) -> None:
        await asked.result(
            {"tools": [tool("bad", a=bad)]} if asked.rpc == "tools/list" else OLD_DONE
        )

    async with Scripted(kept(answer)) as server:
        async with Client(server.url, revision="handshake") as client:
            assert [one.name for one in await client.list_tools()] == ["bad"]
            await client.call_tool("bad", {"a": {}})
        call = server.heard("tools/call")[0]
        assert not any(
            name.startswith(("mcp-method", "mcp-name", "mcp-param")) for name in call.headers
        )


@pytest.mark.requirement("http-client-mismatch")
async def test_a_call_whose_headers_do_not_match_is_made_again_once_the_tools_are_known() -> None:
    region = {"type": "string", "x-mcp-header": "Region"}

    async def answer(asked: Asked) -> None:
        if asked.rpc == "tools/list":
            await asked.result(listed(tool("sql", region=region)))
        elif "mcp-param-region" in asked.headers:
            await asked.result(DONE)
        else:
            await asked.error(-32020, "Mcp-Param-Region is missing", 400)

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            assert (await client.call_tool("sql", {"region": "north"})).data == "done"
        assert [one.rpc for one in server.asked[1:]] == ["tools/call", "tools/list", "tools/call"]


async def test_headers_that_never_match_are_an_error() -> None:
    async def answer(asked: Asked) -> None:
        if asked.rpc == "tools/list":
            await asked.result(listed())
        else:
            await asked.error(-32020, "no", 400)

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            with pytest.raises(HeaderMismatch):
                await client.call_tool("sql")
        assert len(server.heard("tools/call")) == 2


# replies


@pytest.mark.requirement("http-client-both-replies", "http-client-comments")
async def test_a_reply_may_be_a_stream_with_news_before_it() -> None:
    async def answer(asked: Asked) -> None:
        await asked.stream()
        token = asked.message["params"]["_meta"]["progressToken"]
        await asked.chunk(b": keep-alive\n\n")
        for step in (1, 2):
            params = {"progressToken": token, "progress": step, "total": 2}
            await asked.event(
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            )
        await asked.event(asked.reply(DONE))
        await asked.end()

    seen: list[float] = []
    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            assert (
                await client.call_tool("x", on_progress=lambda one: seen.append(one.progress))
            ).data == "done"
            assert (
                await client.call_tool("x", on_progress=lambda one: seen.append(one.progress))
            ).data == "done"
    assert seen == [1, 2, 1, 2]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
async def test_a_stream_may_come_in_any_pieces(end: str) -> None:
    async def answer(asked: Asked) -> None:
        import json

        await asked.stream()
        text = f"\ufeffid: 1{end}data: {json.dumps(asked.reply(DONE))}{end}{end}".encode()
        for at in range(0, len(text), 7):
            await asked.chunk(text[at : at + 7])
            await asyncio.sleep(0)
        await asked.end()

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            assert (await client.call_tool("x")).data == "done"


@pytest.mark.requirement("http-client-both-replies")
@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
async def test_a_content_type_is_read_as_http_has_it(kind: str) -> None:
    async def answer(asked: Asked) -> None:
        import json

        await asked.answer(200, json.dumps(asked.reply(DONE)).encode(), {"Content-Type": kind})

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            assert (await client.call_tool("x")).data == "done"


async def test_many_calls_at_once_each_get_their_own_reply() -> None:
    async def answer(asked: Asked) -> None:
        name = asked.message["params"]["name"]
        await asyncio.sleep(0.01 if name.endswith("0") else 0)
        await asked.result({"resultType": "complete", "content": [{"type": "text", "text": name}]})

    async with Scripted(served(answer)) as server:
        async with Client(server.url, limits=Limits(in_flight=8)) as client:
            results = await asyncio.gather(*(client.call_tool(f"t{n}") for n in range(100)))
    assert [result.data for result in results] == [f"t{n}" for n in range(100)]


async def test_no_more_requests_are_in_flight_than_the_limit() -> None:
    running = most = 0

    async def answer(asked: Asked) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        await asked.result(DONE)

    async with Scripted(served(answer)) as server:
        async with Client(server.url, limits=Limits(in_flight=3)) as client:
            await asyncio.gather(*(client.call_tool("x") for _ in range(12)))
    assert most == 3


async def test_a_channel_that_is_full_is_waited_for() -> None:
    go = asyncio.Event()

    async def script(asked: Asked) -> None:
        await go.wait()
        await asked.result({})

    received: list[Any] = []
    ends: list[Exception | None] = []
    async with Scripted(script) as server:
        limits = Limits(in_flight=1)
        transport_ = HttpTransport(server.url, limits)
        channel = transport.HttpChannel(transport_, limits, False, HeaderParams(1))
        channel.start(received.append, ends.append)
        await channel.drain()
        channel.send(b'{"jsonrpc":"2.0","id":1,"method":"x"}')
        draining = asyncio.create_task(channel.drain())
        await server.until("x")
        assert not draining.done()
        go.set()
        await draining
        assert received == [b'{"jsonrpc": "2.0", "id": 1, "result": {}}']
        await asyncio.gather(channel.close(), channel.close())
        channel.send(b'{"jsonrpc":"2.0","id":2,"method":"x"}')
        await channel.close()
    assert ends == [None], "the end is told once"


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_over_the_limit_is_refused_and_the_next_one_is_read(streamed: bool) -> None:
    async def answer(asked: Asked) -> None:
        big = asked.message["params"]["name"] == "big"
        result = {
            "resultType": "complete",
            "content": [{"type": "text", "text": "x" * (20_000 if big else 10)}],
        }
        if streamed:
            await asked.stream()
            await asked.event(asked.reply(result))
            await asked.end()
        else:
            await asked.result(result)

    async with Scripted(served(answer)) as server:
        async with Client(server.url, limits=Limits(incoming=10_000)) as client:
            with pytest.raises(TooLarge, match="10000 bytes"):
                await client.call_tool("big")
            assert (await client.call_tool("small")).data == "x" * 10


def raw_deflate(data: bytes) -> bytes:
    """What some servers call deflate: without the header that zlib writes."""
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


ENCODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "two gzip members": ("gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
}
compressed = pytest.mark.parametrize(
    ("encoding", "compress"), ENCODINGS.values(), ids=list(ENCODINGS)
)
streamed_or_not = pytest.mark.parametrize("streamed", [False, True])


async def send_encoded(asked: Asked, encoding: str, body: bytes, *, streamed: bool) -> None:
    headers = {"Content-Encoding": encoding}
    if streamed:
        await asked.stream(headers)
        for start in range(0, len(body), 1000):
            await asked.chunk(body[start : start + 1000])
        await asked.end()
    else:
        await asked.answer(200, body, {**headers, "Content-Type": "application/json"})


def result_of(asked: Asked, size: int, *, streamed: bool) -> bytes:
    content = [{"type": "text", "text": "x" * size}]
    data = json.dumps(asked.reply({"resultType": "complete", "content": content})).encode()
    return b"data: " + data + b"\n\n" if streamed else data


@compressed
@streamed_or_not
@pytest.mark.parametrize("size", [10, PIECE_BYTES * 3 + 17])
async def test_a_compressed_answer_is_read(
    encoding: str, compress: Callable[[bytes], bytes], streamed: bool, size: int
) -> None:
    async def answer(asked: Asked) -> None:
        assert asked.headers["accept-encoding"] == "gzip, deflate"
        body = compress(result_of(asked, size, streamed=streamed))
        await send_encoded(asked, encoding, body, streamed=streamed)

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        assert (await client.call_tool("any")).data == "x" * size


def bomb(bits: int, start: bytes) -> bytes:
    """200 MiB in 1 MiB."""
    compressor = zlib.compressobj(1, wbits=bits)
    parts = [compressor.compress(start), *(compressor.compress(b"x" * MIB) for _ in range(200))]
    return b"".join([*parts, compressor.flush()])


@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
@streamed_or_not
async def test_a_compressed_answer_is_only_decompressed_up_to_the_limit(
    encoding: str, bits: int, streamed: bool
) -> None:
    async def answer(asked: Asked) -> None:
        if asked.message["params"]["name"] == "small":
            await asked.result({"resultType": "complete", "content": []})
            return
        start = b'{"jsonrpc": "2.0", "id": %d, "result": "' % asked.message["id"]
        body = bomb(bits, b"data: " * streamed + start)
        try:
            await send_encoded(asked, encoding, body, streamed=streamed)
        except ConnectionError:
            pass  # the client has closed the connection

    async with Scripted(served(answer)) as server:
        async with Client(server.url, limits=Limits(incoming=MIB), timeout=20) as client:
            await client.call_tool("small")
            tracemalloc.start()
            try:
                with pytest.raises((TooLarge, ConnectionClosed)):
                    await client.call_tool("bomb")
                assert tracemalloc.get_traced_memory()[1] < 16 * MIB
            finally:
                tracemalloc.stop()
            await client.call_tool("small")


@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
async def test_a_chunk_is_decompressed_piece_by_piece_as_it_is_read(
    encoding: str, bits: int
) -> None:
    """Whatever aiohttp does: some of its versions decompress a chunk as a whole."""

    async def chunks() -> AsyncIterator[bytes]:
        yield body

    body = bomb(bits, b"")
    pieces = _decompress(chunks(), encoding)
    tracemalloc.start()
    try:
        for _ in range(5):
            assert len(await anext(pieces)) <= PIECE_BYTES
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", gzip.compress(b"{}" * 99)[:-9]],
    ids=["empty", "nonsense", "cut off"],
)
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_a_damaged_or_unknown_encoding_is_an_error_that_says_so(
    encoding: str, body: bytes
) -> None:
    async def answer(asked: Asked) -> None:
        await send_encoded(asked, encoding, body, streamed=False)

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        with pytest.raises(DovetailError):
            await client.call_tool("any")


# refusals


@pytest.mark.parametrize(
    ("status", "code", "id", "kind"),
    [
        (400, -32602, "own", InvalidParams),
        (404, -32601, "own", MethodNotFound),
        (400, -32602, None, InvalidParams),
        (400, -32602, "server-error", InvalidParams),
        (500, -32603, "own", InternalError),
    ],
)
async def test_an_error_in_the_body_is_the_reply_whatever_the_status(
    status: int, code: int, id: Any, kind: type[Exception]
) -> None:
    async def answer(asked: Asked) -> None:
        await asked.error(code, "that is why", status, id=id)

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            with pytest.raises(kind, match="that is why"):
                await client.call_tool("x")


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (400, InvalidRequest, "tools/call: .*/mcp answered 400"),
        (401, Unauthorized, "/mcp requires authorization"),
        (403, Unauthorized, "/mcp denied access"),
        (418, InvalidRequest, "answered 418"),
        (429, Overloaded, "answered 429"),
        (500, InternalError, "answered 500"),
        (503, Overloaded, "answered 503"),
        (302, InvalidRequest, "redirects to None"),
    ],
)
async def test_a_status_without_a_reply_says_what_it_means(
    status: int, kind: type[Exception], said: str
) -> None:
    async def answer(asked: Asked) -> None:
        await asked.answer(status, b"<html>" + b"x" * 1000)

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            with pytest.raises(kind, match=said):
                await client.call_tool("x")
            await client.ping()


async def test_a_server_that_says_when_is_asked_again_then() -> None:
    await asyncio.gather(
        *(
            _asked_again(status, after)
            for status in (429, 503)
            for after in ("0", "1", "date", "past")
        )
    )


async def _asked_again(status: int, after: str) -> None:
    came: list[float] = []

    async def answer(asked: Asked) -> None:
        came.append(time.monotonic())
        if len(came) == 1:
            shift = {"date": 2.0, "past": -100.0}.get(after)
            when = after if shift is None else formatdate(time.time() + shift, usegmt=True)
            await asked.answer(status, headers={"Retry-After": when})
        else:
            await asked.result(DONE)

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            assert (await client.call_tool("x")).data == "done"
    assert len(came) == 2
    assert came[1] - came[0] >= {"0": 0, "1": 0.99, "date": 0.9, "past": 0}[after]


async def test_a_server_that_never_has_time_is_given_up() -> None:
    async def answer(asked: Asked) -> None:
        await asked.answer(503, headers={"Retry-After": "0"})

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            with pytest.raises(Overloaded, match="answered 503"):
                await client.call_tool("x", timeout=3)
        assert 1 < len(server.heard("tools/call")) <= 20


async def test_waiting_for_a_busy_server_ends_with_the_deadline() -> None:
    async def answer(asked: Asked) -> None:
        await asked.answer(503, headers={"Retry-After": "1"})

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            with pytest.raises(Overloaded):
                await client.call_tool("x", timeout=1.5)
        assert len(server.heard("tools/call")) == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_is_busy_beyond_the_deadline_is_not_waited_for(status: int) -> None:
    async def answer(asked: Asked) -> None:
        await asked.answer(status, headers={"Retry-After": "30"})

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            began = time.monotonic()
            with pytest.raises(Overloaded, match="30 s") as caught:
                await client.call_tool("x", timeout=20)
            assert caught.value.retry_after == 30 and time.monotonic() - began < 10
        assert len(server.heard("tools/call")) == 1


async def test_opening_does_not_wait_long_for_a_busy_server() -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(429, headers={"Retry-After": "30"})

    async with Scripted(script) as server:
        with pytest.raises(Overloaded, match="429"):
            await Client(server.url).connect()


# broken connections


@pytest.mark.parametrize(
    "where", ["before", "in the head", "in the body", "in the stream", "at the end of the stream"]
)
async def test_an_answer_that_breaks_off_is_told_to_who_waits_and_to_nobody_else(
    where: str,
) -> None:
    async def answer(asked: Asked) -> None:
        if asked.message["params"]["name"] == "fine":
            await asyncio.sleep(0.1)
            await asked.result(DONE)
            return
        if where == "in the head":
            await asked.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
        elif where == "in the body":
            await asked.raw(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                b'500\r\n\r\n{"jsonrpc":'
            )
        elif where != "before":
            await asked.stream()
            await asked.chunk(b'data: {"jsonrpc":"2.0",')
        await asyncio.sleep(0.02)
        if where == "at the end of the stream":
            await asked.end()
        else:
            await asked.cut()

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            fine = asyncio.create_task(client.call_tool("fine"))
            with pytest.raises(ConnectionClosed, match=r"^tools/call: http://.*/mcp: "):
                await client.call_tool("broken")
            assert (await fine).data == "done"
            assert client.state == "connected"
        assert len(server.heard("tools/call")) == 2, "what may have arrived is not sent twice"


async def test_a_read_that_broke_off_is_made_again() -> None:
    count = 0

    async def answer(asked: Asked) -> None:
        nonlocal count
        count += 1
        if count < 3:
            await asked.cut()
        else:
            await asked.result(listed())

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            assert await client.list_tools() == []
    assert count == 3


# cancelling


@pytest.mark.requirement("http-client-cancel")
async def test_in_the_stateless_era_hanging_up_is_the_cancellation() -> None:
    async def answer(asked: Asked) -> None:
        if asked.message["params"]["name"] == "streamed":
            await asked.stream()
            await asked.chunk(b":\n\n")
        await asked.hung_up.wait()

    async with Scripted(served(answer)) as server:
        async with Client(server.url) as client:
            for name in ("plain", "streamed"):
                with pytest.raises(TimedOut):
                    await client.call_tool(name, timeout=0.1)
                await server.asked[-1].hung_up.wait()
            assert server.heard("notifications/cancelled") == []


@pytest.mark.requirement("http-client-cancel-told")
async def test_in_the_handshake_era_a_cancellation_is_posted_and_the_answer_not_waited_for() -> (
    None
):
    hung_up_early = False

    async def answer(asked: Asked) -> None:
        nonlocal hung_up_early
        if asked.rpc == "notifications/cancelled":
            hung_up_early = server.heard("tools/call")[0].hung_up.is_set()
            await asked.answer(202)
        else:
            await asked.hung_up.wait()

    async with Scripted(kept(answer)) as server:
        async with Client(server.url, revision="handshake") as client:
            calling = asyncio.create_task(client.call_tool("x"))
            asked = await server.until("tools/call")
            calling.cancel()
            told = await server.until("notifications/cancelled")
            assert told.message["params"]["requestId"] == asked.message["id"]
            assert told.headers["mcp-session-id"] == "s-1"
            await asked.hung_up.wait()
    assert not hung_up_early


async def test_a_client_that_closes_hangs_up_on_everything() -> None:
    async def answer(asked: Asked) -> None:
        await asked.hung_up.wait()

    async with Scripted(kept(answer)) as server:
        client = Client(server.url, revision="handshake")
        await client.connect()
        calling = asyncio.create_task(client.call_tool("x"))
        asked = await server.until("tools/call")
        await client.close()
        with pytest.raises(ConnectionClosed):
            await calling
        await asked.hung_up.wait()
        assert len(server.heard("DELETE")) == 1


async def test_closing_does_not_wait_for_a_server_that_does_not_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "CLOSE_SECONDS", 0.2)

    async def script(asked: Asked) -> None:
        if asked.rpc == "DELETE":
            await asked.hung_up.wait()
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        client = Client(server.url, revision="handshake")
        await client.connect()
        began = time.monotonic()
        await client.close()
        assert 0.2 <= time.monotonic() - began < 60


# redirects


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed_and_paid_for_once(status: int) -> None:
    async def script(asked: Asked) -> None:
        if asked.path == "/mcp":
            await asked.answer(status, headers={"Location": "/mcp/"})
        elif not await modern(asked):
            await asked.result(DONE)

    async with Scripted(script) as server:
        async with Client(server.url, headers={"Authorization": "Bearer x"}) as client:
            await client.call_tool("x")
        assert [one.path for one in server.asked] == ["/mcp", "/mcp/", "/mcp/"]
        assert {one.method for one in server.asked} == {"POST"}
        assert server.asked[0].body == server.asked[1].body
        assert all(one.headers["authorization"] == "Bearer x" for one in server.asked)


@pytest.mark.parametrize("header", ["Authorization", "Cookie", "X-Api-Key"])
async def test_credentials_never_go_to_another_origin(header: str) -> None:
    async def elsewhere(asked: Asked) -> None:
        assert await modern(asked)

    async with Scripted(elsewhere) as other:

        async def script(asked: Asked) -> None:
            await asked.answer(307, headers={"Location": other.url})

        async with Scripted(script) as server:
            with pytest.raises(
                ConnectFailed,
                match=rf"{server.url}: refused a redirect to another origin.*use {other.url}",
            ):
                await Client(server.url, headers={header: "secret"}).connect()
        assert other.asked == []


async def test_a_redirect_to_another_origin_is_followed_where_there_is_nothing_to_give_away() -> (
    None
):
    async def elsewhere(asked: Asked) -> None:
        assert await modern(asked)

    async with Scripted(elsewhere) as other:

        async def script(asked: Asked) -> None:
            await asked.answer(307, headers={"Location": other.url})

        async with Scripted(script) as server:
            async with Client(server.url) as client:
                assert client.revision == MODERN


@pytest.mark.requirement("http-client-session-secret")
async def test_a_session_is_not_given_away_by_a_redirect() -> None:
    async with Scripted(modern_only) as other:

        async def answer(asked: Asked) -> None:
            await asked.answer(307, headers={"Location": other.url})

        async with Scripted(kept(answer)) as server:
            async with Client(server.url, revision="handshake") as client:
                with pytest.raises(ConnectFailed, match="another origin"):
                    await client.call_tool("x")
        assert other.asked == []


PUBLIC = "93.184.216.34"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "rebound.example"])
async def test_a_public_server_cannot_redirect_to_a_private_address(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is judged by the address that is connected to."""

    async def resolve(name: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    async with Scripted(modern_only) as inside:
        location = inside.url.replace("127.0.0.1", host)

        async def script(asked: Asked) -> None:
            await asked.answer(307, headers={"Location": location})

        async with Scripted(script) as server:
            peers = PeerAddresses("mcp.example")
            peers.record(PUBLIC)  # as if this server were on the internet
            transport = HttpTransport(
                server.url.replace("127.0.0.1", "mcp.example"), Limits(), peers=peers
            )
            with pytest.raises(ConnectFailed, match=r"refused a redirect to .* a private address"):
                await transport.request("POST", {}, b"{}")
            await transport.close()
            assert len(server.asked) == 1
        assert inside.asked == []


async def test_no_server_redirects_to_the_metadata_of_the_machine() -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(307, headers={"Location": "http://169.254.169.254/latest/meta-data"})

    async with Scripted(script) as server:
        with pytest.raises(ConnectFailed, match=r"169\.254\.169\.254, which is a private address"):
            await Client(server.url).connect()


async def test_behind_a_proxy_a_public_server_cannot_redirect_to_a_private_address() -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(307, headers={"Location": "http://127.0.0.1:1/"})

    async with Scripted(script) as proxy:
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1, which is a private address"):
            await Client("http://mcp.example/", proxy=proxy.origin).connect()
        assert len(proxy.asked) == 1


@pytest.mark.parametrize("status", [302, 307])
async def test_the_target_of_a_redirect_cannot_control_a_terminal(status: int) -> None:
    async def script(asked: Asked) -> None:
        target = "http://other.example/\x9b2K\u202e".encode()
        head = b"HTTP/1.1 %d Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"
        await asked.raw(head % (status, target))

    async with Scripted(script) as server:
        with pytest.raises(ConnectFailed, match=r"other\.example") as caught:
            await Client(server.url, headers={"X-Api-Key": "secret"}).connect()
        assert str(caught.value).isprintable()


async def modern_only(asked: Asked) -> None:
    assert await modern(asked)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("/mcp", "redirected more than 5 times"),
        ("", "the redirect has no Location"),
        ("ftp://127.0.0.1/", "less secure"),
        ("http://user:pw@127.0.0.1/", "the redirect is not valid"),
        ("http://[", "the redirect is not valid"),
    ],
)
async def test_a_redirect_that_makes_no_sense_is_an_error(location: str, said: str) -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(308, headers={"Location": location})

    async with Scripted(script) as server:
        with pytest.raises(DovetailError, match=said):
            await Client(server.url).connect()
        assert len(server.asked) <= 6


async def test_a_redirect_that_would_lose_the_message_is_not_followed() -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(302, headers={"Location": "/login"})

    async with Scripted(script) as server:
        with pytest.raises(ConnectFailed, match=r"redirects to /login with status 302"):
            await Client(server.url).connect()
        assert len(server.asked) == 1


@pytest.mark.requirement("http-client-session-secret")
async def test_secrets_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def answer(asked: Asked) -> None:
        await asked.answer(500)

    async with Scripted(kept(answer)) as server:
        async with Client(
            server.url, revision="handshake", headers={"Authorization": "Bearer t0k3n"}
        ) as client:
            with pytest.raises(InternalError):
                await client.call_tool("x")
    assert "t0k3n" not in caplog.text
    assert "s-1" not in caplog.text
