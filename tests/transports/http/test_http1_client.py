"""The connections of an HTTP client, against servers that keep, close, break and abuse them.

The servers are scripts on real sockets: each gets a connection and its number.
"""

import asyncio
import gc
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import ConfigError, ConnectFailed, ConnectionClosed
from dovetail.limits import KIB, MIB
from dovetail.transports.http.client import connect, http1_client, http1_connection
from dovetail.transports.http.client.connect import SocketConnector, make_ssl_context
from dovetail.transports.http.client.http1 import BROKEN, NO_RESPONSE
from dovetail.transports.http.client.http1_client import Http1Client
from dovetail.transports.http.client.http1_connection import Http1Response
from tests.transports.http.tls import make_certificate

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Script = Callable[["Peer"], Awaitable[None]]


class Peer:
    """A connection, as its server sees it."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.number, self.reader, self.writer = number, reader, writer
        self.closed = asyncio.Event()
        """The client closed the connection."""

    async def read_head(self) -> bytes:
        """Return the head of the next request. At the end of the connection, end the script."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def read(self) -> bytes:
        """Read the next request. Return its body."""
        length = 0
        for line in (await self.read_head()).lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return await self.reader.readexactly(length)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def wait_closed(self) -> None:
        while await self.reader.read(64 * KIB):
            pass
        self.closed.set()


class RawServer:
    """A server whose connections are handled by a script."""

    def __init__(self, script: Script, host: str = "127.0.0.1", tls: Any = None) -> None:
        self._script, self._host, self._tls = script, host, tls
        self.peers: list[Peer] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "RawServer":
        self._server = await asyncio.start_server(
            self._serve, self._host, 0, ssl=self._tls, limit=4 * MIB
        )
        port = self._server.sockets[0].getsockname()[1]
        name = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http{'s' if self._tls else ''}://{name}:{port}/mcp"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(len(self.peers) + 1, reader, writer)
        self.peers.append(peer)
        try:
            await self._script(peer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            peer.closed.set()
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


@asynccontextmanager
async def served(script: Script, **options: Any) -> AsyncIterator[tuple[RawServer, Http1Client]]:
    async with RawServer(script, **options) as server:
        pool = Http1Client()
        try:
            yield server, pool
        finally:
            await pool.close()
    gc.collect()  # an unclosed socket would be a warning, which is an error


async def send(
    pool: Http1Client,
    url: str,
    method: str = "POST",
    body: bytes | None = b"{}",
    headers: Mapping[str, str] = {},
) -> Http1Response:
    return await pool.request(method, url, headers, None if method == "GET" else body, url)


async def read(response: Http1Response) -> bytes:
    try:
        return b"".join([chunk async for chunk in response])
    finally:
        response.close()


async def call(pool: Http1Client, url: str, method: str = "POST") -> bytes:
    async with asyncio.timeout(20):
        return await read(await send(pool, url, method))


async def echo(peer: Peer) -> None:
    while True:
        body = await peer.read()
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def answering(response: bytes) -> Script:
    async def script(peer: Peer) -> None:
        while True:
            await peer.read()
            await peer.write(response)

    return script


# keeping connections


async def test_one_connection_carries_many_requests() -> None:
    async with served(echo) as (server, pool):
        for _ in range(5):
            assert await call(pool, server.url) == b"{}"
        assert len(server.peers) == 1


async def test_requests_at_the_same_time_have_connections_of_their_own_which_are_kept() -> None:
    async with served(echo) as (server, pool):
        for _ in range(3):
            await asyncio.gather(*(call(pool, server.url) for _ in range(20)))
        assert len(server.peers) == 20


@pytest.mark.parametrize(
    "response",
    [
        OK.replace(b"OK", b"OK\r\nConnection: close"),
        OK.replace(b"1.1", b"1.0"),
        OK.replace(b"OK", b"OK\r\nKeep-Alive: timeout=1, max=100"),
        OK + b"surplus",
        OK + OK,
        OK + b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
    ids=["close", "1.0", "no time", "surplus", "a second response", "a second beginning"],
)
async def test_a_connection_that_may_not_be_kept_is_closed(response: bytes) -> None:
    async with served(answering(response)) as (server, pool):
        for number in (1, 2, 3):
            assert await call(pool, server.url) == b"ok"
            assert len(server.peers) == number
        for peer in server.peers:
            await peer.closed.wait()


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_connection, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(http1_client, "SWEEP_SECONDS", 0.02)
    async with served(echo) as (server, pool):
        await call(pool, server.url)
        await server.peers[0].closed.wait()
        await call(pool, server.url)
        assert len(server.peers) == 2


async def test_an_idle_connection_that_is_too_old_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even if the time came while nothing looked after it."""
    monkeypatch.setattr(http1_connection, "IDLE_SECONDS", 0.05)
    async with served(echo) as (server, pool):
        await call(pool, server.url)
        await asyncio.sleep(0.06)
        await call(pool, server.url)
        assert len(server.peers) == 2


async def test_only_so_many_idle_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_client, "MAX_IDLE_CONNECTIONS", 3)
    async with served(echo) as (server, pool):
        responses = await asyncio.gather(*(send(pool, server.url) for _ in range(10)))
        for response in responses:
            await read(response)
        for peer in server.peers[3:]:
            await peer.closed.wait()
        assert [peer.closed.is_set() for peer in server.peers[:3]] == [False] * 3


# connections that the server has closed


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_connection_that_was_closed_while_it_was_idle_is_not_used(method: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(OK)

    async with served(script) as (server, pool):
        for number in (1, 2, 3):
            assert await call(pool, server.url, method) == b"ok"
            assert len(server.peers) == number
            await asyncio.sleep(0.05)


@pytest.mark.skipif(not hasattr(__import__("select"), "poll"), reason="the loop reads ahead")
@pytest.mark.parametrize("last_words", [b"", b"HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n"])
async def test_a_connection_that_was_closed_while_the_loop_was_busy_is_not_used(
    last_words: bytes,
) -> None:
    """The event loop had no chance to notice it. A POST would be lost."""
    listener = socket.create_server(("127.0.0.1", 0))
    closed, accepted = threading.Event(), []

    def serve() -> None:
        for _ in range(2):
            peer, _ = listener.accept()
            accepted.append(peer)
            peer.recv(64 * KIB)
            peer.sendall(OK)
            if len(accepted) == 1:
                go_on.wait()
                if last_words:
                    peer.sendall(last_words)
                peer.close()
                closed.set()

    go_on = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    pool = Http1Client()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    assert await call(pool, url) == b"ok"
    go_on.set()
    assert closed.wait(20)  # blocks the event loop
    assert await call(pool, url) == b"ok"
    await pool.close()
    await asyncio.to_thread(thread.join)
    assert len(accepted) == 2
    for peer in (*accepted, listener):
        peer.close()


@pytest.mark.parametrize(("method", "attempts"), [("POST", 1), ("GET", 2), ("DELETE", 2)])
async def test_only_an_idempotent_request_is_sent_again_and_only_once(
    method: str, attempts: int
) -> None:
    """The server reads the request on a kept connection, and closes it without a response. Nobody
    can know whether the request had an effect."""
    requests = 0

    async def script(peer: Peer) -> None:
        nonlocal requests
        if peer.number == 1:
            await peer.read()
            await peer.write(OK)
        await peer.read()
        requests += 1

    async with served(script) as (server, pool):
        await call(pool, server.url)
        with pytest.raises(ConnectionClosed, match=NO_RESPONSE) as caught:
            await call(pool, server.url, method)
        assert caught.value.sent
        assert requests == attempts and len(server.peers) == attempts


async def test_a_request_that_is_sent_again_may_succeed() -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(OK)
        await peer.read()

    async with served(script) as (server, pool):
        await call(pool, server.url)
        assert await call(pool, server.url, "GET") == b"ok"
        assert len(server.peers) == 2


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("beginning", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_request_is_not_sent_again_after_a_byte_of_a_response(
    kept: bool, beginning: bytes
) -> None:
    async def script(peer: Peer) -> None:
        if kept:
            await peer.read()
            await peer.write(OK)
        await peer.read()
        await peer.write(beginning)

    async with served(script) as (server, pool):
        if kept:
            await call(pool, server.url)
        with pytest.raises(ConnectionClosed, match=BROKEN):
            await call(pool, server.url, "GET")
        assert len(server.peers) == 1


async def test_a_request_on_a_new_connection_is_not_sent_again() -> None:
    async def script(peer: Peer) -> None:
        await peer.read()

    async with served(script) as (server, pool):
        with pytest.raises(ConnectionClosed, match=NO_RESPONSE):
            await call(pool, server.url, "GET")
        assert len(server.peers) == 1


async def test_a_response_that_nobody_asked_for_is_not_the_next_response() -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(OK)
        if peer.number == 1:
            await peer.write(OK.replace(b"ok", b"no"))
        await peer.wait_closed()

    async with served(script) as (server, pool):
        response = await send(pool, server.url)
        await asyncio.sleep(0.05)
        assert await read(response) == b"ok"
        assert await call(pool, server.url) == b"ok"
        assert len(server.peers) == 2 and server.peers[0].closed.is_set()


@pytest.mark.parametrize("data", [OK.replace(b"ok", b"no"), b"HT", b"garbage"])
async def test_a_connection_that_says_something_while_it_is_idle_is_closed(data: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(OK)
        await idle.wait()
        await peer.write(data)
        await peer.wait_closed()

    async with served(script) as (server, pool):
        for number in (1, 2):
            idle = asyncio.Event()
            assert await call(pool, server.url) == b"ok"
            idle.set()
            async with asyncio.timeout(http1_connection.IDLE_SECONDS / 2):
                await server.peers[-1].closed.wait()
            assert len(server.peers) == number


# responses


@pytest.mark.parametrize(
    "data",
    [
        OK,
        STREAM + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\n\r\nok",
    ],
    ids=["sized", "chunked", "continue", "until the end"],
)
async def test_a_response_may_arrive_byte_by_byte(data: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        for at in range(len(data)):
            await peer.write(data[at : at + 1])
            await asyncio.sleep(0)

    async with served(script) as (server, pool):
        assert await call(pool, server.url) == b"ok"


@pytest.mark.parametrize(
    "data",
    [
        OK[:-1],
        STREAM + b"5\r\nhel",
        STREAM + b"5\r\nhello\r\n",
        STREAM + b"5\r\nhello\r\n0\r\n",
    ],
    ids=["length", "chunk", "last chunk", "last line"],
)
@pytest.mark.parametrize("reset", [True, False])
async def test_a_body_that_is_cut_off_is_an_error(data: bytes, reset: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(data)
        if reset:
            linger = (1).to_bytes(4, sys.byteorder) + (0).to_bytes(4, sys.byteorder)
            sock = peer.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async with served(script) as (server, pool):
        with pytest.raises(ConnectionClosed, match="connection broke before") as caught:
            await call(pool, server.url)
        assert caught.value.sent


async def test_a_server_that_only_closes_its_half_has_responded() -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(b"HTTP/1.1 200 OK\r\n\r\nok")
        peer.writer.write_eof()
        await peer.wait_closed()

    async with served(script) as (server, pool):
        assert await call(pool, server.url) == b"ok"
        await server.peers[0].closed.wait()


async def test_a_server_that_closes_its_half_without_a_response_is_not_waited_for() -> None:
    """Even if it does not read the request, so that the request cannot be sent."""

    async def script(peer: Peer) -> None:
        await asyncio.sleep(0.5)  # until the buffers are full
        peer.writer.write_eof()
        await asyncio.sleep(60)

    async with served(script) as (server, pool):
        with pytest.raises(ConnectionClosed, match=NO_RESPONSE):
            async with asyncio.timeout(20):
                await send(pool, server.url, body=bytes(32 * MIB))


async def test_a_response_that_nobody_reads_stops_the_server() -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.read()
        await peer.write(STREAM)
        while sent < 256 * MIB:
            await peer.write(b"%x\r\n%b\r\n" % (64 * KIB, bytes(64 * KIB)))
            sent += 64 * KIB

    async with served(script) as (server, pool):
        response = await send(pool, server.url)
        before = -1
        while before < sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 32 * MIB  # what the buffers of the system hold
        while sent == before:
            assert len(await anext(response)) < MIB
        response.close()
        await server.peers[0].closed.wait()


async def test_a_large_response_is_read_completely_and_the_connection_is_kept() -> None:
    body = bytes(range(256)) * (32 * KIB)
    async with served(
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    ) as (server, pool):
        for _ in range(3):
            assert await call(pool, server.url) == body
        assert len(server.peers) == 1


# requests


async def test_a_large_request_arrives_completely() -> None:
    async with served(echo) as (server, pool):
        body = bytes(range(256)) * (16 * KIB)
        for _ in range(2):
            assert await read(await send(pool, server.url, body=body)) == body
        assert len(server.peers) == 1


async def test_a_large_request_is_sent_while_its_response_arrives() -> None:
    """Some servers begin a stream before they have read the request."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.write(STREAM)
        body = await peer.reader.readexactly(16 * MIB)
        await peer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (8, b"%08x" % len(body)))
        await peer.wait_closed()

    async with served(script) as (server, pool):
        assert await read(await send(pool, server.url, body=bytes(16 * MIB))) == b"01000000"


async def test_a_large_request_that_is_refused_is_not_sent_on() -> None:
    received = 0

    async def script(peer: Peer) -> None:
        nonlocal received
        if peer.number == 2:
            await echo(peer)
        await peer.read_head()
        await peer.write(b"HTTP/1.1 413 Too large\r\nContent-Length: 2\r\n\r\n")
        try:
            while data := await asyncio.wait_for(peer.reader.read(MIB), 0.5):
                received += len(data)
        except TimeoutError:
            pass  # nothing more comes
        await peer.write(b"no")
        await peer.wait_closed()

    async with served(script) as (server, pool):
        response = await send(pool, server.url, body=bytes(64 * MIB))
        assert response.status == 413 and await read(response) == b"no"
        assert received < 32 * MIB  # what was on its way
        assert await call(pool, server.url) == b"{}"
        assert len(server.peers) == 2, "the other half of a request may not follow on a connection"


# the end of a request


async def test_cancelling_a_request_closes_its_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.wait_closed()

    async with served(script) as (server, pool):
        task = asyncio.create_task(send(pool, server.url))
        while not server.peers:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.peers[0].closed.wait()


async def test_cancelling_the_reading_of_a_stream_closes_its_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(STREAM + b"2\r\nok\r\n")
        await peer.wait_closed()

    async with served(script) as (server, pool):
        response = await send(pool, server.url)
        assert await anext(response) == b"ok"
        task = asyncio.create_task(read(response))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.peers[0].closed.wait()


async def test_cancelling_a_request_that_cannot_be_sent_closes_its_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await asyncio.sleep(0.1)
        await peer.wait_closed()

    async with served(script) as (server, pool):
        task = asyncio.create_task(send(pool, server.url, body=bytes(64 * MIB)))
        while not server.peers:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.peers[0].closed.wait()


async def test_a_released_stream_that_ends_soon_leaves_its_connection() -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.read()
            await peer.write(STREAM + b"2\r\nok\r\n")
            await released.wait()
            await peer.write(b"4\r\nmore\r\n0\r\n\r\n")
            done.set()

    async with served(script) as (server, pool):
        for _ in range(3):
            released, done = asyncio.Event(), asyncio.Event()
            response = await send(pool, server.url)
            assert await anext(response) == b"ok"
            response.release()
            released.set()
            await done.wait()
            await asyncio.sleep(0.02)
        assert len(server.peers) == 1


@pytest.mark.parametrize("endless", [True, False])
async def test_a_released_stream_that_goes_on_is_closed(
    endless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a number of bytes, or after a time."""
    monkeypatch.setattr(http1_connection, "LINGER_SECONDS", 60.0 if endless else 0.1)

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(STREAM + b"2\r\nok\r\n")
        while endless:
            await peer.write(b"400\r\n%b\r\n" % bytes(1024))
        await peer.wait_closed()

    async with served(script) as (server, pool):
        response = await send(pool, server.url)
        assert (await anext(response))[:2] == b"ok"
        response.release()
        async with asyncio.timeout(20):
            await server.peers[0].closed.wait()


async def test_closing_ends_everything() -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.write(STREAM if peer.number == 1 else OK)
        await peer.wait_closed()

    async with served(script) as (server, pool):
        task = asyncio.create_task(read(await send(pool, server.url)))
        assert await call(pool, server.url) == b"ok"
        await pool.close()
        with pytest.raises(ConnectionClosed):
            await task
        for peer in server.peers:
            await peer.closed.wait()
        with pytest.raises(ConnectionClosed) as caught:
            await send(pool, server.url)
        assert not caught.value.sent and len(server.peers) == 2


# connecting


async def test_ipv6_is_supported() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")

    async def script(peer: Peer) -> None:
        head = await peer.read_head()
        await peer.reader.readexactly(2)
        host = head.partition(b"host: ")[2].partition(b"\r\n")[0]
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(host), host))

    async with served(script, host="::1") as (server, pool):
        assert (await call(pool, server.url)).decode() in server.url


@pytest.fixture
def full_port() -> Any:
    """A port of 127.0.0.2 that accepts no more connections: connecting waits."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux has 127.0.0.2 and drops what exceeds a backlog")
    with socket.socket() as listener:
        listener.bind(("127.0.0.2", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield listener.getsockname()[1]
        for filler in fillers:
            filler.close()


def resolving(addresses: list[str]) -> Callable[..., Any]:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        lookups.append(host)
        family = socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    lookups: list[str] = []
    getaddrinfo.lookups = lookups  # type: ignore[attr-defined]
    return getaddrinfo


async def test_an_address_that_does_not_answer_does_not_delay_the_next(
    full_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = resolving(["127.0.0.2", "127.0.0.1"])
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    server = await asyncio.start_server(
        lambda reader, writer: _serve_one(reader, writer), "127.0.0.1", full_port
    )
    pool = Http1Client()
    try:
        for _ in range(2):
            response = await send(pool, f"http://name.example:{full_port}/", "GET")
            assert await read(response) == b"ok"
            await asyncio.sleep(0)
            running = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
            assert not [name for name in running if name.startswith("SocketConnector")]
        assert resolve.lookups == ["name.example"]  # type: ignore[attr-defined]
    finally:
        await pool.close()
        server.close()
    gc.collect()


async def _serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK.replace(b"OK", b"OK\r\nConnection: close"))
    await writer.drain()
    writer.close()


async def test_addresses_that_refuse_are_tried_in_turn_and_the_first_error_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    resolve = resolving(["127.0.0.2", "127.0.0.1", "127.0.0.3"])
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    tried: list[str] = []

    def open_socket(info: Any) -> socket.socket:
        tried.append(info[4][0])
        if info[4][0] == "127.0.0.1":
            raise OSError("refused by the caller")
        return socket.socket(*info[:3])

    connector = SocketConnector(open_socket=open_socket)
    for _ in range(2):
        with pytest.raises(ConnectionClosed, match=r"^shown: connection refused$") as caught:
            await connector.connect(asyncio.Protocol, False, "name.example", port, "shown")
        assert not caught.value.sent
    assert tried == ["127.0.0.2", "127.0.0.1", "127.0.0.3"] * 2
    assert len(resolve.lookups) == 2, "a failure is not remembered"  # type: ignore[attr-defined]


async def test_connecting_has_a_time_limit(full_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 0.1)
    pool = Http1Client()
    with pytest.raises(ConnectionClosed, match=r"could not connect within 0.1 s") as caught:
        await send(pool, f"http://127.0.0.2:{full_port}/")
    assert not caught.value.sent
    await pool.close()


async def test_a_host_that_cannot_exist_is_not_found() -> None:
    pool = Http1Client()
    with pytest.raises(ConnectFailed, match="was not found"):
        await send(pool, f"http://{'a' * 64}.example/")


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def test_tls_names_the_host_and_offers_only_this_protocol(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, context = certificate
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    context.set_alpn_protocols(["h2", "http/1.1"])
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolving(["127.0.0.1"]))
    async with RawServer(echo, tls=context) as server:
        pool = Http1Client(verify=path)
        url = server.url.replace("127.0.0.1", "localhost")
        for _ in range(3):
            assert await call(pool, url) == b"{}"
        chosen = server.peers[0].writer.get_extra_info("ssl_object").selected_alpn_protocol()
        assert chosen == "http/1.1" and names == ["localhost"] and len(server.peers) == 1
        await pool.close()


async def test_a_context_that_offers_another_protocol_is_an_error_that_says_so(
    certificate: tuple[Path, ssl.SSLContext],
) -> None:
    path, context = certificate
    context.set_alpn_protocols(["h2", "http/1.1"])
    ours = ssl.create_default_context(cafile=str(path))
    ours.set_alpn_protocols(["h2", "http/1.1"])
    async with RawServer(echo, tls=context) as server:
        pool = Http1Client(verify=ours)
        with pytest.raises(ConnectFailed, match="TLS failed: the server chose h2"):
            await call(pool, server.url)
        await pool.close()


async def test_a_certificate_for_another_host_is_refused(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, context = certificate
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolving(["127.0.0.1"]))
    async with RawServer(echo, tls=context) as server:
        pool = Http1Client(verify=path)
        with pytest.raises(ConnectFailed, match=r"TLS failed: .*(mismatch|not valid)"):
            await call(pool, server.url.replace("127.0.0.1", "other.example"))
        await pool.close()


def test_the_certificates_of_the_system_are_loaded_once() -> None:
    assert make_ssl_context(True) is make_ssl_context(True)
    assert make_ssl_context(False).verify_mode is ssl.CERT_NONE
    assert make_ssl_context(True).verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match="contains no certificates"):
        make_ssl_context("/no/such/file.pem")


# the other event loop


@pytest.mark.parametrize("secure", [False, True])
def test_uvloop_does_the_same(certificate: tuple[Path, ssl.SSLContext], secure: bool) -> None:
    uvloop = pytest.importorskip("uvloop")
    path, context = certificate

    async def script(peer: Peer) -> None:
        while True:
            body = await peer.read()
            if body == b"hold":
                await peer.write(STREAM + b"2\r\nok\r\n")
                await peer.wait_closed()
                return
            await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def scenario() -> None:
        async with (
            asyncio.timeout(60),
            RawServer(script, tls=context if secure else None) as server,
        ):
            pool = Http1Client(verify=path)
            for body in (b"small", bytes(8 * MIB), b"small again"):
                assert await read(await send(pool, server.url, body=body)) == body
            assert len(server.peers) == 1
            held = await send(pool, server.url, body=b"hold")
            assert await anext(held) == b"ok"
            held.close()
            await server.peers[0].closed.wait()
            assert await call(pool, server.url) == b"{}"
            await pool.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    gc.collect()
