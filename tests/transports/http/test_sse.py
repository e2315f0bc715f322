"""The old pair between real sockets: our client, our server under uvicorn, and peers that do as
they please."""

import asyncio
import gc
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web

from dovetail import Client, Limits
from dovetail.connection.bus import Hub, NoBus, join, private_socket
from dovetail.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    InternalError,
    Overloaded,
    TooLarge,
)
from dovetail.limits import DEFAULT, MIB
from dovetail.ports import Bus, Channel, Principal, RequestIdentity
from dovetail.revisions import ALL
from dovetail.transports.http import sse
from dovetail.transports.http.client.http_transport import HttpTransport
from dovetail.transports.http.event_stream import Event, EventStreamParser, event
from dovetail.transports.http.sse import SseServer
from tests.transports.test_websocket import GREETING, Ear, Hall, added, call, listening

REVISIONS = [revision.name for revision in ALL]


@pytest.fixture(autouse=True)
def no_loose_ends(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No exception is left to the event loop, or to the ASGI server."""
    yield
    assert [
        record.getMessage()
        for record in caplog.records
        if record.name in ("asyncio", "uvicorn.error")
    ] == []


class House:
    """A hall behind a pair of endpoints."""

    def __init__(
        self,
        limits: Limits = DEFAULT,
        bus: Bus | None = None,
    ) -> None:
        self.hall = Hall(limits)
        self.visitor = RequestIdentity()
        hold = self.hall.hold
        self.pairs = SseServer(limits, lambda one, _: hold(one), bus or NoBus())

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await self.pairs.open(scope, receive, send, "/message", (), self.visitor)
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        session = parse_qs(scope["query_string"].decode()).get("session_id", [""])[0]
        await self.pairs.post(send, session, body, (), self.visitor)


@asynccontextmanager
async def lived_in(house: House, **options: Any) -> AsyncIterator[str]:
    async with listening(house.app, **options) as (port, _):
        yield f"http://127.0.0.1:{port}"


async def connect_sse(
    opened: AsyncExitStack, url: str, headers: dict[str, str], limits: Limits, timeout: float
) -> Channel:
    transport = HttpTransport(url, limits, headers=headers)
    opened.push_async_callback(transport.close)
    return await sse.connect_sse(transport, limits, timeout)


@asynccontextmanager
async def visited(house: House, limits: Limits = DEFAULT, **options: Any) -> AsyncIterator[Client]:
    async with lived_in(house) as url, AsyncExitStack() as opened:
        channel = await connect_sse(opened, f"{url}/sse", {}, limits, 5)
        async with Client(channel, limits=limits, **options) as client:
            yield client


class Guest:
    """A client by hand."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, response: aiohttp.ClientResponse
    ) -> None:
        self.session, self.url, self.response = session, url, response
        self.endpoint = ""
        self._events, self._heard = EventStreamParser(32 * MIB), list[Event]()

    async def hear(self) -> Event:
        while not self._heard:
            chunk = await self.response.content.readany()
            assert chunk, "the stream has ended"
            self._heard += self._events.feed(chunk)
        return self._heard.pop(0)

    async def answer(self) -> Any:
        told = await self.hear()
        assert told.name == "message" and isinstance(told.data, bytes)
        return json.loads(told.data)

    async def post(self, body: str | bytes, to: str | None = None) -> tuple[int, str]:
        async with self.session.post((to or self.url) + self.endpoint, data=body) as response:
            return response.status, await response.text()

    async def greet(self) -> None:
        assert (await self.post(json.dumps(GREETING)))[0] == 202
        assert (await self.answer())["result"]["protocolVersion"] == "2025-06-18"
        await self.post('{"jsonrpc": "2.0", "method": "notifications/initialized"}')


@asynccontextmanager
async def guest(url: str) -> AsyncIterator[Guest]:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/sse") as response:
            assert response.status == 200
            peer = Guest(session, url, response)
            first = await peer.hear()
            assert first.name == "endpoint" and isinstance(first.data, bytes)
            peer.endpoint = first.data.decode()
            yield peer


# every revision


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_revision_lists_calls_and_reports_progress(revision: str) -> None:
    async with visited(House(), revision=revision) as client:
        assert client.revision == revision
        assert "add" in [tool.name for tool in await client.list_tools()]
        assert (await client.call_tool("echo", {"text": "hé\n"})).text == "hé\n"
        seen: list[float] = []
        result = await client.call_tool(
            "count", on_progress=lambda update: seen.append(update.progress)
        )
        assert result.text == "counted"
        assert seen and seen == sorted(seen)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_caller_who_no_longer_waits_cancels_at_the_server(revision: str) -> None:
    house = House()
    async with visited(house, revision=revision) as client:
        waiting = asyncio.create_task(client.call_tool("forever"))
        await house.hall.started.wait()
        waiting.cancel()
        await house.hall.cancelled.wait()
        assert (await client.call_tool("echo", {"text": "still here"})).text == "still here"


async def test_a_hundred_calls_are_in_flight_at_once() -> None:
    async with visited(House()) as client:
        results = await asyncio.gather(
            *(client.call_tool("add", {"a": n, "b": n}) for n in range(100))
        )
        assert [result.data for result in results] == [2 * n for n in range(100)]


async def test_five_megabytes_travel_both_ways() -> None:
    async with visited(House()) as client:
        text = "abcdé" * MIB
        assert (await client.call_tool("echo", {"text": text})).text == text


async def test_an_answer_over_the_clients_bound_fails_its_call_alone() -> None:
    async with visited(House(), Limits(incoming=100_000)) as client:
        with pytest.raises(TooLarge):
            await client.call_tool("blow", {"size": 200_000})
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_a_message_over_the_servers_bound_fails_its_call_alone() -> None:
    async with visited(House(Limits(incoming=100_000))) as client:
        with pytest.raises(TooLarge, match="100000 bytes"):
            await client.call_tool("echo", {"text": "x" * 200_000})
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


# the server


async def test_the_stream_is_not_to_be_cached_or_buffered() -> None:
    async with lived_in(House()) as url, guest(url) as peer:
        headers = peer.response.headers
        assert headers["Content-Type"] == "text/event-stream"
        assert "no-cache" in headers["Cache-Control"]
        assert headers["X-Accel-Buffering"] == "no"


async def test_the_endpoint_carries_the_prefix_under_which_the_application_is_mounted() -> None:
    house = House()
    async with lived_in(house, root_path="/my api") as url, guest(url) as peer:
        path, _, session = peer.endpoint.partition("?session_id=")
        assert path == "/my%20api/message"
        assert len(session) >= 43 and len(house.pairs) == 1


async def test_no_two_conversations_have_the_same_address() -> None:
    async with lived_in(House()) as url, guest(url) as one, guest(url) as other:
        assert one.endpoint != other.endpoint
        await one.greet()
        await other.greet()
        await one.post(call(2, "echo", text="one"))
        await other.post(call(2, "echo", text="other"))
        assert (await one.answer())["result"]["content"][0]["text"] == "one"
        assert (await other.answer())["result"]["content"][0]["text"] == "other"


@pytest.mark.parametrize("session", ["", "x", "x" * 43, "x" * 5000, "%00"])
async def test_a_post_to_an_unknown_conversation_is_404_and_names_the_setting(session: str) -> None:
    async with lived_in(House()) as url, guest(url) as peer:
        peer.endpoint = f"/message?session_id={session}"
        status, text = await peer.post(call(2, "add", a=1, b=2))
        assert status == 404 and "workers=" in text


async def test_a_post_after_the_end_is_404() -> None:
    house = House()
    async with lived_in(house) as url:
        async with guest(url) as peer:
            await peer.greet()
        await house.hall.over.wait()
        async with aiohttp.ClientSession() as peer.session:
            assert (await peer.post(call(2, "add", a=1, b=2)))[0] == 404


async def test_a_conversation_that_still_cleans_up_takes_no_more_messages() -> None:
    house, gone, cleaned = House(), asyncio.Event(), asyncio.Event()
    heard: list[Any] = []

    async def slow(channel: Channel, visitor: RequestIdentity) -> None:
        channel.start(heard.append, lambda reason: gone.set())
        await cleaned.wait()

    house.pairs = SseServer(DEFAULT, slow, NoBus())
    async with lived_in(house) as url:
        async with guest(url) as peer:
            assert (await peer.post("1"))[0] == 202
        await gone.wait()
        async with aiohttp.ClientSession() as peer.session:
            assert (await peer.post("2"))[0] == 404
        cleaned.set()
    assert heard == [b"1"]


async def test_a_carriage_return_between_tokens_does_not_end_the_event() -> None:
    house = House()

    async def speak(channel: Channel, visitor: RequestIdentity) -> None:
        ear = Ear(channel)
        channel.send(b'{"a":\r\r"event: endpoint"}')
        await ear.end

    house.pairs = SseServer(DEFAULT, speak, NoBus())
    async with lived_in(house) as url, guest(url) as peer:
        assert await peer.answer() == {"a": "event: endpoint"}


@pytest.mark.parametrize(
    "garbage",
    [b"", b"{", b"[]", b"nonsense", b"\xff\xfe", b'{"id": 1}', b"data: x\n\nevent: endpoint\n\n"],
)
async def test_garbage_is_answered_on_the_stream_and_harms_nothing(garbage: bytes) -> None:
    async with lived_in(House()) as url, guest(url) as peer:
        await peer.greet()
        assert (await peer.post(garbage))[0] == 202
        assert (await peer.answer())["error"]["code"] in (-32700, -32600)
        await peer.post(call(2, "add", a=1, b=2))
        assert added(await peer.answer()) == 3


async def test_what_a_client_sends_cannot_forge_events() -> None:
    async with lived_in(House()) as url, guest(url) as peer:
        await peer.greet()
        text = "x\r\revent: endpoint\rdata: http://evil.example\r\n\r\n\u2028"
        await peer.post(call(2, "echo", text=text))
        assert (await peer.answer())["result"]["content"][0]["text"] == text
        id = "\r\n\r\nevent: endpoint\r\n"
        await peer.post(json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}))
        assert (await peer.answer())["id"] == id


async def test_a_quiet_stream_is_kept_alive() -> None:
    async with lived_in(House(Limits(keepalive=0.02))) as url, guest(url) as peer:
        for _ in range(3):
            assert (await peer.response.content.readany()).startswith(b":")
        await peer.greet()


async def test_a_client_that_vanishes_ends_its_conversation_and_its_calls() -> None:
    house = House()
    async with lived_in(house) as url:
        async with guest(url) as peer:
            await peer.greet()
            await peer.post(call(2, "forever"))
            await house.hall.started.wait()
        await house.hall.over.wait()
        assert house.hall.cancelled.is_set()
        while len(house.pairs):
            await asyncio.sleep(0.01)
        gc.collect()
        assert len(house.hall.channels) == 0


async def test_streams_beyond_the_limit_are_put_off_until_one_ends() -> None:
    house = House(Limits(streams=2))
    async with lived_in(house) as url, guest(url):
        async with guest(url) as peer:
            async with peer.session.get(f"{url}/sse") as refused:
                assert refused.status == 503 and refused.headers["Retry-After"]
                assert "2 event streams" in await refused.text()
            async with AsyncExitStack() as opened:
                with pytest.raises(ConnectFailed, match="HTTP 503"):
                    await connect_sse(opened, f"{url}/sse", {}, DEFAULT, 5)
        while len(house.pairs) == 2:
            await asyncio.sleep(0.01)
        async with guest(url) as peer:
            await peer.greet()


async def test_a_client_that_does_not_read_keeps_a_tool_waiting_and_memory_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "READ_TIMEOUT_SECONDS", 0.1)
    house = House(Limits(write_buffer=50_000))
    async with lived_in(house) as url, guest(url) as peer:
        await peer.greet()
        assert (
            peer.response.connection is not None and peer.response.connection.transport is not None
        )
        transport: Any = peer.response.connection.transport
        transport.pause_reading()
        await peer.post(call(2, "talk"))
        await house.hall.started.wait()
        stuck = -1
        while stuck != house.hall.most:
            stuck = house.hall.most
            await asyncio.sleep(0.3)
        assert stuck < 999, "ten megabytes were queued for nobody"
        (channel,) = house.hall.channels
        assert channel.full and channel._size < 100_000
        status, text = await peer.post(call(3, "add", a=1, b=2))
        assert status == 503 and "not reading" in text
        transport.resume_reading()
        while "result" not in (reply := await peer.answer()):
            pass
        assert reply["id"] == 2 and house.hall.most == 999
        assert (await peer.post(call(4, "add", a=1, b=2)))[0] == 202


async def test_a_post_waits_for_a_client_that_reads_after_all() -> None:
    house = House(Limits(write_buffer=50_000))
    async with lived_in(house) as url, guest(url) as peer:
        await peer.greet()
        assert (
            peer.response.connection is not None and peer.response.connection.transport is not None
        )
        transport: Any = peer.response.connection.transport
        transport.pause_reading()
        for id in (2, 3):  # the ASGI server takes one more than the socket does
            await peer.post(call(id, "blow", size=10 * MIB))
        (channel,) = house.hall.channels
        while not channel.full:
            await asyncio.sleep(0.01)
        posting = asyncio.create_task(peer.post(call(4, "add", a=1, b=2)))
        await asyncio.sleep(0.1)
        assert not posting.done()
        transport.resume_reading()
        assert [(await peer.answer())["id"] for _ in range(3)] == [2, 3, 4]
        assert (await posting)[0] == 202


async def test_a_server_that_fails_before_it_begins_answers_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()

    async def broken(channel: Any, visitor: RequestIdentity) -> None:
        raise RuntimeError("no database")

    house.pairs = SseServer(DEFAULT, broken, NoBus())
    async with lived_in(house) as url, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.get(f"{url}/sse") as response:
                assert response.status == 500
    assert len(house.pairs) == 0
    caplog.clear()


# several processes


@asynccontextmanager
async def two_processes() -> AsyncIterator[tuple[House, str, House, str]]:
    path, listening_socket = private_socket()
    hub = Hub()
    await hub.start(listening_socket)
    one_bus, other_bus = await join(path), await join(path)
    one, other = House(Limits(write_buffer=50_000), one_bus), House(bus=other_bus)
    try:
        async with lived_in(one) as here, lived_in(other) as there:
            yield one, here, other, there
    finally:
        await one_bus.close()
        await other_bus.close()
        await hub.close()
        shutil.rmtree(os.path.dirname(path))


async def test_a_post_that_lands_elsewhere_is_passed_on() -> None:
    async with two_processes() as (_, here, _, there), guest(here) as peer:
        await peer.greet()
        assert (await peer.post(call(2, "add", a=1, b=2), to=there))[0] == 202
        assert added(await peer.answer()) == 3
        peer.endpoint = f"/message?session_id={'x' * 43}"
        status, text = await peer.post(call(3, "add", a=1, b=2))
        assert status == 404 and "workers=" not in text


async def test_a_post_that_lands_elsewhere_is_of_whoever_sent_it() -> None:
    async with two_processes() as (one, here, other, there):
        one.visitor = RequestIdentity("192.0.2.1", Principal("ada", scopes=("read",)))
        other.visitor = RequestIdentity(
            "192.0.2.2", Principal("ada", scopes=("read", "write"), claims={"made": Decimal(1)})
        )
        async with guest(here) as peer:
            await peer.greet()
            assert (await peer.post(call(2, "add", a=1, b=2), to=there))[0] == 202
            await peer.answer()
            (channel,) = one.hall.channels
            assert channel.identity.address == "192.0.2.2"
            assert channel.identity.principal.scopes == ("read", "write")
            other.visitor = RequestIdentity("192.0.2.2", Principal("bob", scopes=("read", "write")))
            assert (await peer.post(call(3, "add", a=1, b=2), to=there))[0] == 404


async def test_a_post_that_lands_elsewhere_is_put_off_too_where_nobody_reads() -> None:
    async with two_processes() as (one, here, _, there), guest(here) as peer:
        await peer.greet()
        assert (
            peer.response.connection is not None and peer.response.connection.transport is not None
        )
        transport: Any = peer.response.connection.transport
        transport.pause_reading()
        for id in (2, 3):  # the ASGI server takes one more than the socket does
            await peer.post(call(id, "blow", size=10 * MIB))
        (channel,) = one.hall.channels
        while not channel.full:
            await asyncio.sleep(0.01)
        assert (await peer.post(call(4, "add", a=1, b=2), to=there))[0] == 503


# the client, and servers that are not as they should be

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def odd(get: Handler, post: Handler | None = None) -> AsyncIterator[str]:
    """Two handlers under aiohttp, at /sse and /message."""

    async def refuse(request: web.Request) -> web.Response:
        raise AssertionError("nothing was to be posted")

    app = web.Application()
    app.router.add_get("/sse", get)
    app.router.add_post("/message", post or refuse)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Scripted:
    """A server that says what it is told to, until it is told to stop."""

    def __init__(self, *said: bytes) -> None:
        self.said = list(said)
        self.stop = asyncio.Event()
        self.posted: list[tuple[str | None, str]] = []
        self.statuses: list[web.Response] = []

    async def get(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for data in self.said:
            await response.write(data)
        await self.stop.wait()
        return response

    async def post(self, request: web.Request) -> web.Response:
        self.posted.append((request.headers.get("Authorization"), await request.text()))
        return self.statuses.pop(0) if self.statuses else web.Response(status=202)


ENDPOINT = event(b"/message?session_id=1", name="endpoint")


@asynccontextmanager
async def scripted(
    server: Scripted, headers: dict[str, str] | None = None, timeout: float = 5
) -> AsyncIterator[Any]:
    async with odd(server.get, server.post) as url, AsyncExitStack() as opened:
        try:
            channel = await connect_sse(opened, f"{url}/sse", headers or {}, DEFAULT, timeout)
            yield channel
            await channel.close()
        finally:
            server.stop.set()


@pytest.mark.parametrize(
    "address",
    [
        "http://evil.example/message",
        "http://127.0.0.1:1/message",
        "https://127.0.0.1/message",
        "//evil.example/message",
        "http://127.0.0.1@evil.example/",
        "http://[::1/",
        "file:///etc/passwd",
        "javascript:alert(1)",
    ],
)
async def test_an_endpoint_of_another_origin_is_refused(address: str) -> None:
    server = Scripted(event(address.encode(), name="endpoint"))
    try:
        async with scripted(server, {"Authorization": "Bearer secret"}) as channel:
            channel.send(b"{}")
            ear = Ear(channel)
            await ear.end
            raise AssertionError(f"{address} was taken for {channel._way._endpoint}")
    except ConnectFailed as failed:
        assert "has a different origin" in str(failed)
    assert server.posted == []


async def test_an_absolute_endpoint_of_the_same_origin_and_credentials_on_both_sides() -> None:
    seen: list[str | None] = []
    server = Scripted()

    async def get(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        server.said = [
            event(
                str(request.url.with_path("/message").with_query("s=a%2Fb")).encode(),
                name="endpoint",
            )
        ]
        return await server.get(request)

    async with odd(get, server.post) as url, AsyncExitStack() as opened:
        channel = await connect_sse(
            opened, f"{url}/sse", {"Authorization": "Bearer secret"}, DEFAULT, 5
        )
        Ear(channel)
        channel.send(b"1")
        await channel.close()
        server.stop.set()
    assert seen == ["Bearer secret"] and server.posted == [("Bearer secret", "1")]


async def test_messages_are_posted_in_order_and_closing_sends_what_is_queued() -> None:
    server = Scripted(ENDPOINT)
    async with scripted(server) as channel:
        ear = Ear(channel)
        for number in range(20):
            channel.send(b"%d" % number)
        await asyncio.gather(channel.close(), channel.close())
        assert await ear.end is None
    assert [body for _, body in server.posted] == [str(number) for number in range(20)]


async def test_what_comes_with_the_endpoint_is_heard_and_other_events_are_not() -> None:
    server = Scripted(
        b": hello\n\n" + event(b"?", name="hint") + ENDPOINT + event(b"1"),
        event(b"2", name="other") + event(b"3"),
    )
    async with scripted(server) as channel:
        ear = Ear(channel)
        while len(ear.heard) < 2:
            await asyncio.sleep(0.005)
        server.stop.set()
        assert isinstance(await ear.end, ConnectionClosed)
        assert ear.heard == [b"1", b"3"]


async def test_the_end_of_the_stream_fails_the_call_that_waits() -> None:
    async with lived_in(house := House()) as url, AsyncExitStack() as opened:
        channel = await connect_sse(opened, f"{url}/sse", {}, DEFAULT, 5)
        async with Client(channel) as client:
            waiting = asyncio.create_task(client.call_tool("forever"))
            await house.hall.started.wait()
            (held,) = house.hall.channels
            await held.close()
            with pytest.raises(ConnectionClosed, match="/sse: the server ended the event stream"):
                await waiting


async def test_a_stream_that_is_cut_off_fails_the_call_that_waits() -> None:
    house = House()
    async with listening(house.app) as (port, server), AsyncExitStack() as opened:
        channel = await connect_sse(opened, f"http://127.0.0.1:{port}/sse", {}, DEFAULT, 5)
        async with Client(channel) as client:
            waiting = asyncio.create_task(client.call_tool("forever"))
            await house.hall.started.wait()
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            with pytest.raises(ConnectionClosed, match="/sse: the connection broke"):
                await waiting


REQUEST = b'{"jsonrpc":"2.0","id":7,"method":"ping"}'


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (413, TooLarge),
        (429, Overloaded),
        (503, Overloaded),
        (500, InternalError),
        (307, InternalError),
    ],
)
async def test_a_refused_message_is_lost_alone(status: int, error: type[Exception]) -> None:
    server = Scripted(ENDPOINT)
    server.statuses = [web.Response(status=status, text="no, thanks") for _ in range(3)]
    async with scripted(server) as channel:
        ear = Ear(channel)
        for data in (
            b"nonsense",
            b'{"jsonrpc":"2.0","method":"notifications/x"}',
            REQUEST,
            b"after",
        ):
            channel.send(data)
        while len(server.posted) < 4:
            await asyncio.sleep(0.005)
        (lost,) = ear.heard
        assert lost.id == 7 and type(lost.error) is error  # type: ignore[union-attr]
        assert f"HTTP {status}" in str(lost.error) and "no, thanks" in str(lost.error)  # type: ignore[union-attr]
        assert not ear.end.done()


async def test_a_server_that_says_when_to_try_again_is_asked_again() -> None:
    server = Scripted(ENDPOINT)
    server.statuses = [
        web.Response(status=status, headers={"Retry-After": "0"}) for status in (503, 429)
    ]
    async with scripted(server) as channel:
        ear = Ear(channel)
        channel.send(REQUEST)
        channel.send(b"2")
        await channel.close()
        assert [body for _, body in server.posted] == [REQUEST.decode()] * 3 + ["2"]
        assert ear.heard == []


async def test_a_server_that_has_forgotten_the_conversation_ends_it() -> None:
    server = Scripted(ENDPOINT)
    server.statuses = [web.Response(status=404, text="who?")]
    async with scripted(server) as channel:
        ear = Ear(channel)
        channel.send(REQUEST)
        end = await ear.end
        assert isinstance(
            end, ConnectionClosed
        ) and "this session no longer exists on the server: HTTP 404 Not Found: who?" in str(end)


async def test_a_message_that_is_never_taken_ends_the_conversation() -> None:
    server = Scripted(ENDPOINT)

    async def post(request: web.Request) -> web.StreamResponse:
        await server.stop.wait()
        return web.Response(status=202)

    async with odd(server.get, post) as url, AsyncExitStack() as opened:
        channel = await connect_sse(opened, f"{url}/sse", {}, DEFAULT, 0.3)
        ear = Ear(channel)
        channel.send(REQUEST)
        end = await ear.end
        assert isinstance(end, ConnectionClosed)
        assert "did not accept a message within 0.3 s" in str(end)
        await channel.close()
        server.stop.set()


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (web.Response(status=404), "got HTTP 404 Not Found"),
        (web.Response(status=402), "got HTTP 402 Payment Required"),
        (web.Response(text="<html>", content_type="text/html"), "got HTTP 200 OK with text/html"),
        (web.Response(status=204, content_type="text/event-stream"), "got HTTP 204"),
        (
            web.Response(text=": nothing\n\n", content_type="text/event-stream"),
            "ended before its `endpoint` event",
        ),
        (
            web.Response(status=302, headers={"Location": "http://evil.example/sse"}),
            "refused an HTTP 302 redirect to 'http://evil",
        ),
        (web.Response(status=302, headers={"Location": "/sse"}), "got HTTP 302"),
    ],
)
async def test_what_is_no_event_stream_is_said_flatly(said: web.Response, complaint: str) -> None:
    async def get(request: web.Request) -> web.Response:
        return web.Response(status=said.status, body=said.body, headers=said.headers)

    async with odd(get) as url, AsyncExitStack() as opened:
        with pytest.raises(ConnectFailed) as failed:
            await connect_sse(opened, f"{url}/sse", {"X-Api-Key": "secret"}, DEFAULT, 5)
        assert str(failed.value).startswith(f"{url}/sse: ") and complaint in str(failed.value)


async def test_a_redirect_within_the_origin_is_followed() -> None:
    server = Scripted(ENDPOINT)

    async def get(request: web.Request) -> web.StreamResponse:
        if request.query_string:
            return await server.get(request)
        return web.Response(status=307, headers={"Location": "/sse?really"})

    async with odd(get, server.post) as url, AsyncExitStack() as opened:
        channel = await connect_sse(opened, f"{url}/sse", {}, DEFAULT, 5)
        Ear(channel)
        channel.send(b"1")
        await channel.close()
        server.stop.set()
    assert [body for _, body in server.posted] == ["1"]


async def test_a_server_that_names_no_endpoint_runs_into_the_deadline() -> None:
    with pytest.raises(ConnectFailed, match=r"no `endpoint` event within 0\.2 s"):
        async with scripted(Scripted(b": wait\n\n"), timeout=0.2):
            pass


async def test_a_port_where_nobody_listens_is_named() -> None:
    async with AsyncExitStack() as opened:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/sse"
            with pytest.raises(ConnectFailed) as failed:
                await connect_sse(opened, url, {}, DEFAULT, 5)
        assert str(failed.value) == f"{url}: connection refused"


async def test_what_is_no_url_is_a_mistake_of_the_caller() -> None:
    async with AsyncExitStack() as opened:
        with pytest.raises(ConfigError, match="is not a URL"):
            await connect_sse(opened, "nonsense", {}, DEFAULT, 5)
