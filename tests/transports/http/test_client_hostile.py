"""A client against servers that do not speak HTTP as they should. Each bad response is an error in
one line, for the call that it answers and for no other, and within limits."""

import asyncio
import json
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from dovetail import Client, Limits
from dovetail.errors import ConnectionClosed, DovetailError
from dovetail.limits import KIB, MIB
from tests.transports.http.scripted import Asked, Scripted, modern
from tests.transports.http.test_http1 import INVALID

Answer = Callable[[Asked], Awaitable[None]]


def served(answer: Answer) -> Answer:
    """Answer discovery, the tool `good`, and everything else as the test wants."""

    async def script(asked: Asked) -> None:
        if await modern(asked):
            return
        if asked.message["params"].get("name") == "good":
            await asked.result({"resultType": "complete", "content": [text("good")]})
            return
        try:
            await answer(asked)
        except ConnectionError:
            pass  # the client has closed the connection

    return script


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def body_of(asked: Asked, value: str = "fine") -> bytes:
    return json.dumps(asked.reply({"resultType": "complete", "content": [text(value)]})).encode()


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID)
async def test_a_response_that_is_not_http_fails_its_call_alone(data: bytes) -> None:
    async def answer(asked: Asked) -> None:
        line = b" 200 OK\r\n"
        await asked.raw(data.replace(line, line + b"Content-Type: application/json\r\n"))
        await asked.hung_up.wait()

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        with pytest.raises(ConnectionClosed, match="the response is not valid HTTP: ") as caught:
            await client.call_tool("bad")
        assert "\n" not in str(caught.value) and str(caught.value).isprintable()
        assert (await client.call_tool("good")).text == "good"
        assert len(server.heard("tools/call")) == 2, "a tool call is never sent twice"


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_may_arrive_byte_by_byte(streamed: bool) -> None:
    async def answer(asked: Asked) -> None:
        body = body_of(asked)
        if streamed:
            body = b"data: %b\n\n" % body
            chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\nA: b\r\n\r\n"
            head = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" + head + chunks
        else:
            head = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            data = b"HTTP/1.1 200 OK\r\n" + head + body
        for byte in data:
            await asked.raw(bytes([byte]))
            await asyncio.sleep(0)

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        for _ in range(2):
            assert (await client.call_tool("slow")).text == "fine"


@pytest.mark.parametrize(
    "surplus",
    [b"garbage", b"\r\n\r\ngarbage", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"],
)
@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_what_follows_an_answer_is_never_the_next_answer(
    surplus: bytes, pause: float
) -> None:
    async def answer(asked: Asked) -> None:
        await asked.answer(200, body_of(asked), {"Content-Type": "application/json"})
        await asyncio.sleep(pause)
        await asked.raw(surplus)

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        for _ in range(3):
            assert (await client.call_tool("more")).text == "fine"
            await asyncio.sleep(2 * pause)
            assert (await client.call_tool("good")).text == "good"
        assert len(server.heard("tools/call")) == 6


async def test_an_answer_that_was_prepared_for_another_call_is_not_taken() -> None:
    """Two answers in one piece: the second would be the answer to a call that was not made yet."""

    async def answer(asked: Asked) -> None:
        forged = body_of(asked, "forged").replace(
            b'"id": %d' % asked.message["id"], b'"id": %d' % (asked.message["id"] + 1)
        )
        both = [body_of(asked), forged]
        lines = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        await asked.raw(b"".join(lines % (len(body), body) for body in both))

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        assert (await client.call_tool("twice")).text == "fine"
        assert (await client.call_tool("good")).text == "good"


@pytest.mark.parametrize(
    ("length", "closes"), [(+5, True), (-5, False)], ids=["too long", "too short"]
)
async def test_a_length_that_is_wrong_is_an_error(length: int, closes: bool) -> None:
    async def answer(asked: Asked) -> None:
        body = body_of(asked)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        await asked.raw(head % (len(body) + length) + body)
        if closes:
            await asked.cut()

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        with pytest.raises(DovetailError):
            await client.call_tool("wrong")
        assert (await client.call_tool("good")).text == "good"


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Header: " + b"v" * KIB + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Header: ", b"v" * KIB),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 10),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
            b"\r\n0\r\n",
            b"X-Trailer: " + b"v" * KIB + b"\r\n",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
            b"\r\n1;",
            b"extension;" * 100,
        ),
    ],
    ids=["headers", "one header", "informational", "trailers", "extensions"],
)
async def test_an_endless_head_is_given_up(start: bytes, repeated: bytes) -> None:
    sent = 0

    async def answer(asked: Asked) -> None:
        nonlocal sent
        await asked.raw(start)
        while sent < 64 * MIB and not asked.hung_up.is_set():
            await asked.raw(repeated)
            sent += len(repeated)

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        with pytest.raises(ConnectionClosed, match="the response is not valid HTTP: it has more"):
            await client.call_tool("endless")
        assert sent < 32 * MIB  # what the buffers of the system hold
        assert (await client.call_tool("good")).text == "good"


async def test_millions_of_tiny_chunks_take_little_memory() -> None:
    async def answer(asked: Asked) -> None:
        head = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        await asked.raw(b"HTTP/1.1 200 OK\r\n" + head)
        for _ in range(400):
            await asked.raw(b"1\r\n \r\n" * 5000)
        body = body_of(asked)
        await asked.raw(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    async with Scripted(served(answer)) as server:
        async with Client(server.url, limits=Limits(incoming=4 * MIB)) as client:
            await client.call_tool("good")
            tracemalloc.start()
            try:
                assert (await client.call_tool("tiny")).text == "fine"
                assert tracemalloc.get_traced_memory()[1] < 24 * MIB
            finally:
                tracemalloc.stop()


async def test_a_server_that_drips_is_given_up_at_the_deadline() -> None:
    async def answer(asked: Asked) -> None:
        await asked.raw(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not asked.hung_up.is_set():
            await asked.raw(b"v")
            await asyncio.sleep(0.02)

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        with pytest.raises(DovetailError):
            await client.call_tool("drip", timeout=0.3)
        await server.heard("tools/call")[0].hung_up.wait()
        assert (await client.call_tool("good")).text == "good"


@pytest.mark.parametrize(
    "headers",
    [{"Content-Length": "5"}, {"transfer-encoding": "chunked"}],
)
async def test_headers_that_frame_a_request_are_not_the_users_to_set(
    headers: dict[str, str],
) -> None:
    with pytest.raises(DovetailError, match="is set by the client itself"):
        await Client("http://127.0.0.1:1/", headers=headers).connect()


async def test_the_reason_of_a_status_cannot_control_a_terminal() -> None:
    async def answer(asked: Asked) -> None:
        await asked.raw(b"HTTP/1.1 500 \x1b[2J\xc2\x9bEvil\r\nContent-Length: 0\r\n\r\n")

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        with pytest.raises(DovetailError) as caught:
            await client.call_tool("evil")
        assert str(caught.value).isprintable()
