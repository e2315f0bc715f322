"""WebSocket between real sockets: our client, our server under uvicorn, and peers that do as they
please."""

import asyncio
import gc
import json
import logging
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import websockets
from websockets.asyncio.client import ClientConnection, connect as dial
from websockets.asyncio.server import ServerConnection, serve as host
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.typing import Subprotocol

from dovetail import Client, Context, Limits, Server
from dovetail.errors import ConfigError, ConnectFailed, ConnectionClosed, TooLarge, Unauthorized
from dovetail.jsonrpc.framing import TooLong
from dovetail.limits import DEFAULT, MIB
from dovetail.net import PeerAddresses
from dovetail.ports import Channel, Incoming
from dovetail.revisions import DRAFT_DIALECT, OFFICIAL
from dovetail.serve import serve_channel
from dovetail.transports import websocket
from dovetail.transports.websocket import accept, connect, refuse
from tests.transports.http.raw import down

REVISIONS = [revision.name for revision in (*OFFICIAL, DRAFT_DIALECT)]
GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "0"},
    },
}
App = Callable[[Any, Any, Any], Awaitable[None]]


@pytest.fixture(autouse=True)
def no_loose_ends(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No exception is left to the event loop, or to the ASGI server."""
    yield
    assert [
        record.getMessage()
        for record in caplog.records
        if record.name in ("asyncio", "uvicorn.error")
    ] == []


@asynccontextmanager
async def listening(app: App, **options: Any) -> AsyncIterator[tuple[int, uvicorn.Server]]:
    """An ASGI application under uvicorn, in this loop."""
    settings: dict[str, Any] = {
        "interface": "asgi3",
        "ws": "websockets-sansio",
        "ws_max_size": 16 * MIB,
        "ws_per_message_deflate": False,
    }
    settings |= {
        "lifespan": "off",
        "log_config": None,
        "log_level": "warning",
        "timeout_graceful_shutdown": 2,
    }
    config = uvicorn.Config(app, port=0, **(settings | options))
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server.servers[0].sockets[0].getsockname()[1], server
    finally:
        await down(server)


class Hall:
    """A server with a few tools, and what became of its conversations."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.server = Server("hall", version="1", limits=limits)
        self.started, self.cancelled, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.channels: weakref.WeakSet[Any] = weakref.WeakSet()
        self.running = self.most = 0
        for tool in (self.add, self.echo, self.count, self.forever, self.blow, self.talk):
            self.server.tool(tool)

    async def add(self, a: int, b: int) -> int:
        return a + b

    async def echo(self, text: str) -> str:
        return text

    async def count(self, ctx: Context) -> str:
        for number in range(1, 4):
            await ctx.progress(number, 3)
            await asyncio.sleep(0.03)
        return "counted"

    async def forever(self) -> str:
        self.started.set()
        try:
            return await asyncio.Future()
        finally:
            self.cancelled.set()

    async def blow(self, size: int) -> str:
        return "x" * size

    async def talk(self, ctx: Context) -> str:
        """Say far more than anybody reads, and note how much that was."""
        for number in range(1000):
            await ctx.info("x" * 10_000)
            self.most = number
            self.started.set()
        return "said"

    async def hold(self, channel: Channel) -> None:
        self.channels.add(channel)
        try:
            await serve_channel(self.server, channel, self.server.lifespan, grace=0)
        finally:
            self.over.set()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        channel = await accept(scope, receive, send, self.server.limits)
        if channel is not None:
            await self.hold(channel)


@asynccontextmanager
async def visited(hall: Hall, limits: Limits = DEFAULT, **options: Any) -> AsyncIterator[Client]:
    async with listening(hall.app) as (port, _):
        channel = await connect(f"ws://127.0.0.1:{port}/ws", limits, timeout=5)
        async with Client(channel, limits=limits, **options) as client:
            yield client


@asynccontextmanager
async def raw(hall: Hall) -> AsyncIterator[ClientConnection]:
    """A bare WebSocket to the hall, with hands already shaken."""
    async with listening(hall.app) as (port, _):
        async with dial(f"ws://127.0.0.1:{port}/", proxy=None, close_timeout=1) as peer:
            await peer.send(json.dumps(GREETING))
            assert json.loads(await peer.recv())["result"]["protocolVersion"] == "2025-06-18"
            await peer.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
            yield peer


def call(id: int, name: str, **arguments: Any) -> str:
    params = {"name": name, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


async def answer(peer: ClientConnection) -> Any:
    return json.loads(await peer.recv())


def added(reply: Any) -> Any:
    return reply["result"]["structuredContent"]["result"]


# every revision


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_revision_lists_calls_and_reports_progress(revision: str) -> None:
    async with visited(Hall(), revision=revision) as client:
        assert client.revision == revision
        assert "add" in [tool.name for tool in await client.list_tools()]
        assert (await client.call_tool("echo", {"text": "hé"})).text == "hé"
        seen: list[float] = []
        result = await client.call_tool(
            "count", on_progress=lambda update: seen.append(update.progress)
        )
        assert result.text == "counted"
        assert seen and seen == sorted(seen)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_caller_who_no_longer_waits_cancels_at_the_server(revision: str) -> None:
    hall = Hall()
    async with visited(hall, revision=revision) as client:
        waiting = asyncio.create_task(client.call_tool("forever"))
        await hall.started.wait()
        waiting.cancel()
        await hall.cancelled.wait()
        assert (await client.call_tool("echo", {"text": "still here"})).text == "still here"


async def test_a_client_finds_out_the_newest_revision_by_itself() -> None:
    async with visited(Hall()) as client:
        assert client.revision == OFFICIAL[-1].name


async def test_a_hundred_calls_are_in_flight_at_once() -> None:
    async with visited(Hall()) as client:
        results = await asyncio.gather(
            *(client.call_tool("add", {"a": n, "b": n}) for n in range(100))
        )
        assert [result.data for result in results] == [2 * n for n in range(100)]


async def test_five_megabytes_travel_both_ways() -> None:
    async with visited(Hall()) as client:
        text = "abcdé" * MIB
        assert (await client.call_tool("echo", {"text": text})).text == text


# bounds


@pytest.mark.parametrize(
    "limits", [Limits(http_body=100_000), Limits(incoming=100_000)], ids=["http_body", "incoming"]
)
async def test_a_message_over_the_servers_bound_is_refused_and_the_conversation_goes_on(
    limits: Limits,
) -> None:
    async with visited(Hall(limits)) as client:
        with pytest.raises(TooLarge, match="100000 bytes"):
            await client.call_tool("echo", {"text": "x" * 200_000})
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_a_message_over_the_clients_bound_ends_the_connection_and_says_so() -> None:
    async with visited(Hall(), Limits(incoming=100_000)) as client:
        with pytest.raises(
            ConnectionClosed, match=r"a message larger than 100000 bytes \(Limits.incoming\)"
        ):
            await client.call_tool("blow", {"size": 200_000})


async def test_a_client_that_does_not_read_keeps_a_tool_waiting_and_memory_bounded() -> None:
    hall = Hall(Limits(write_buffer=50_000))
    async with raw(hall) as peer:
        peer.transport.pause_reading()
        await peer.send(call(2, "talk"))
        await hall.started.wait()
        stuck = -1
        while stuck != hall.most:
            stuck = hall.most
            await asyncio.sleep(0.3)
        assert stuck < 999, "ten megabytes were queued for nobody"
        (channel,) = hall.channels
        assert channel.full and channel._size < 100_000
        peer.transport.resume_reading()
        while "result" not in (reply := await answer(peer)):
            pass
        assert reply["id"] == 2 and hall.most == 999


async def test_a_client_that_does_not_read_is_not_listened_to() -> None:
    hall = Hall(Limits(write_buffer=50_000))
    async with raw(hall) as peer:
        peer.transport.pause_reading()
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for id in range(2, 100_000):
                await peer.send(call(id, "blow", size=20_000))
                sent = id

        flooding = asyncio.create_task(flood())
        (channel,) = hall.channels
        before = None
        while not (channel.full and (sent, channel._size) == before):
            before = (sent, channel._size)
            await asyncio.sleep(0.3)
        assert not flooding.done(), "it takes requests without end"
        flooding.cancel()
        peer.transport.abort()
        await hall.over.wait()


# raw peers


@pytest.mark.parametrize(
    "garbage", ["", "{", "[]", "nonsense", '"text"', '{"id": 1}', b"\xff\xfe", b"{\x00}"]
)
async def test_garbage_is_answered_and_harms_nothing(garbage: str | bytes) -> None:
    async with raw(Hall()) as peer:
        await peer.send(garbage)
        assert (await answer(peer))["error"]["code"] in (-32700, -32600)
        await peer.send(call(2, "add", a=1, b=2))
        assert added(await answer(peer)) == 3


async def test_text_that_is_not_utf8_ends_only_that_connection() -> None:
    hall = Hall()
    async with raw(hall) as peer:
        await peer.send(b"\xff", text=True)
        with pytest.raises(ConnectionClosedError):
            await peer.recv()
        await hall.over.wait()


async def test_binary_frames_are_read_and_answered_as_text() -> None:
    async with raw(Hall()) as peer:
        await peer.send(call(2, "add", a=1, b=2).encode())
        reply = await peer.recv()
        assert isinstance(reply, str) and added(json.loads(reply)) == 3


async def test_a_message_may_come_in_fragments() -> None:
    async with raw(Hall()) as peer:
        await peer.send(list(call(2, "add", a=1, b=2)))
        assert added(await answer(peer)) == 3


async def test_two_messages_in_one_go_are_two_calls() -> None:
    async with raw(Hall()) as peer:
        await asyncio.gather(
            peer.send(call(2, "add", a=1, b=2)), peer.send(call(3, "add", a=2, b=2))
        )
        replies = {reply["id"]: added(reply) for reply in [await answer(peer), await answer(peer)]}
        assert replies == {2: 3, 3: 4}


async def test_two_messages_in_one_frame_are_no_message() -> None:
    async with raw(Hall()) as peer:
        await peer.send(call(2, "add", a=1, b=2) + "\n" + call(3, "add", a=1, b=2))
        assert (await answer(peer))["error"]["code"] == -32700


# the opening handshake


@pytest.mark.parametrize(
    ("offered", "chosen"), [(None, None), (["mcp"], "mcp"), (["chat", "mcp"], "mcp")]
)
async def test_the_subprotocol_is_mcp_or_none(
    offered: list[str] | None, chosen: str | None
) -> None:
    async with listening(Hall().app) as (port, _):
        names = [Subprotocol(name) for name in offered] if offered else None
        async with dial(f"ws://127.0.0.1:{port}/", subprotocols=names, proxy=None) as peer:
            assert peer.subprotocol == chosen


async def test_a_client_that_offers_only_other_subprotocols_is_refused() -> None:
    async with listening(Hall().app) as (port, _):
        with pytest.raises(InvalidStatus) as refused:
            await dial(f"ws://127.0.0.1:{port}/", subprotocols=[Subprotocol("chat")], proxy=None)
        assert refused.value.response.status_code == 400
        assert b"'mcp'" in (refused.value.response.body or b"")


async def test_a_refusal_reaches_the_user_with_status_and_reason() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await refuse(scope, send, 403, "Origin http://evil.example is not allowed")

    async with listening(app) as (port, _):
        with pytest.raises(
            Unauthorized,
            match=r"denied access \(403: Origin http://evil\.example is not allowed",
        ):
            await connect(f"ws://127.0.0.1:{port}/", DEFAULT, timeout=5)


async def test_the_text_of_a_refusal_cannot_control_a_terminal_or_add_a_line() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await refuse(scope, send, 500, "no\n12:00:00 INFO all is well\x1b[2K\u202e")

    async with listening(app) as (port, _):
        with pytest.raises(ConnectFailed, match="all is well") as caught:
            await connect(f"ws://127.0.0.1:{port}/", DEFAULT, timeout=5)
    assert str(caught.value).isprintable()


async def test_without_the_extension_a_refusal_is_a_close() -> None:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    await refuse({"type": "websocket"}, send, 403, "é" * 200)
    assert [(event["type"], event["code"]) for event in sent] == [("websocket.close", 1008)]
    assert len(sent[0]["reason"].encode()) <= 123, "a close frame has room for no more"


async def test_a_client_that_is_gone_before_it_was_accepted_is_nobody() -> None:
    async def receive() -> Any:
        return {"type": "websocket.disconnect"}

    async def send(event: Any) -> None:
        raise AssertionError

    assert await accept({"type": "websocket"}, receive, send, DEFAULT) is None


# opening, as a client


@asynccontextmanager
async def hosted(
    handler: Callable[[ServerConnection], Awaitable[None]], **options: Any
) -> AsyncIterator[str]:
    """A server of the `websockets` library."""
    async with host(handler, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_port_where_nobody_listens_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{free.getsockname()[1]}/ws"
        with pytest.raises(ConnectFailed) as failed:
            await connect(url, DEFAULT, timeout=5)
    assert str(failed.value) == f"{url}: connection refused"


async def test_of_several_addresses_that_fail_the_reason_is_still_flat() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectFailed, match=r"^ws://localhost:\d+: [a-z ]+$"):
            await connect(f"ws://localhost:{free.getsockname()[1]}", DEFAULT, timeout=5)


async def test_a_name_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConnectFailed, match=r"^ws://nobody\.invalid: "):
        await connect("ws://nobody.invalid", DEFAULT, timeout=5)


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "ws://", "nonsense"])
async def test_what_is_no_websocket_url_is_a_mistake_of_the_caller(url: str) -> None:
    with pytest.raises(ConfigError, match="not a WebSocket URL"):
        await connect(url, DEFAULT, timeout=5)


async def test_a_server_that_never_answers_runs_into_the_deadline() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        with pytest.raises(ConnectFailed, match=r"could not connect within 0\.2 s"):
            await connect(f"ws://127.0.0.1:{deaf.getsockname()[1]}", DEFAULT, timeout=0.2)


@pytest.mark.parametrize(
    "reply", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", b""]
)
async def test_what_does_not_speak_websocket_is_said_flatly(reply: bytes) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(odd, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectFailed, match=f"^{url}: "):
            await connect(url, DEFAULT, timeout=5)


async def test_headers_are_sent_and_never_carried_to_another_place() -> None:
    seen: list[str | None] = []

    async def elsewhere(peer: ServerConnection) -> None:
        raise AssertionError("the redirect was followed")

    async with hosted(elsewhere) as other:

        def redirect(peer: ServerConnection, request: Any) -> Any:
            seen.append(request.headers.get("Authorization"))
            response = peer.respond(302, "")
            response.headers["Location"] = other
            return response

        async with hosted(elsewhere, process_request=redirect) as url:
            with pytest.raises(ConnectFailed, match=f"HTTP 302 Found. It redirects to {other}"):
                await connect(url, DEFAULT, headers={"Authorization": "Bearer secret"}, timeout=5)
    assert seen == ["Bearer secret"]


async def test_a_password_in_the_url_is_not_shown() -> None:
    with pytest.raises(ConnectFailed) as failed:
        await connect("ws://me:secret@127.0.0.1:1/ws", DEFAULT, timeout=5)
    assert "secret" not in str(failed.value)


async def test_a_proxy_of_the_environment_does_not_see_what_stays_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    async with listening(Hall().app) as (port, _):
        channel = await connect(f"ws://127.0.0.1:{port}/", DEFAULT, timeout=5)
        await channel.close()


async def test_a_proxy_is_used_where_one_is_given() -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        through = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectFailed, match=r"^ws://server\.example"):
            await connect("ws://server.example/ws", DEFAULT, proxy=through, timeout=5)
    assert asked[0].startswith(b"CONNECT server.example:80 ")


async def test_where_a_server_is_found_is_noted_unless_a_proxy_stands_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        direct, through = PeerAddresses("a.example"), PeerAddresses("a.example")
        with pytest.raises(Unauthorized):
            await connect(f"ws://127.0.0.1:{port}/", DEFAULT, timeout=5, peers=direct)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(Unauthorized):
            await connect("ws://a.example/", DEFAULT, timeout=5, peers=through)
    assert (direct.private, through.private) == (True, None)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hall")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = made.add_extension(address, critical=False).sign(key, hashes.SHA256())
    folder: Path = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    coded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(coded)
    return str(folder / "cert.pem"), str(folder / "key.pem")


async def test_wss_works_with_a_ca_of_ones_own_or_without_any_if_told_so(
    certificate: tuple[str, str],
) -> None:
    cert, key = certificate
    async with listening(Hall().app, ssl_certfile=cert, ssl_keyfile=key) as (port, _):
        for verify in (cert, Path(cert), ssl.create_default_context(cafile=cert), False):
            channel = await connect(f"wss://127.0.0.1:{port}/ws", DEFAULT, verify=verify, timeout=5)
            async with Client(channel) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    certificate: tuple[str, str],
) -> None:
    cert, key = certificate
    async with listening(Hall().app, ssl_certfile=cert, ssl_keyfile=key) as (port, _):
        with pytest.raises(ConnectFailed, match="its certificate is not trusted"):
            await connect(f"wss://127.0.0.1:{port}/ws", DEFAULT, timeout=5)


async def test_certificates_that_are_not_there_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(
        ConfigError, match=r"verify='nowhere\.pem' contains no certificates: no such file"
    ):
        await connect("wss://127.0.0.1:1/ws", DEFAULT, verify="nowhere.pem", timeout=5)


async def test_the_proxy_of_the_environment_is_used_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(ConnectFailed, match=r"^ws://server\.example: "):
        await connect("ws://server.example", DEFAULT, timeout=5)


# the end


class Ear:
    """What a channel delivers, and how it ends."""

    def __init__(self, channel: Channel) -> None:
        self.heard: list[Incoming] = []
        self.end: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        channel.start(self.heard.append, self.end.set_result)


async def test_a_client_that_is_cut_off_ends_the_conversation_and_its_calls() -> None:
    hall = Hall()
    async with raw(hall) as peer:
        await peer.send(call(2, "forever"))
        await hall.started.wait()
        peer.transport.abort()
        await hall.over.wait()
        assert hall.cancelled.is_set()
    gc.collect()
    assert len(hall.channels) == 0


async def test_a_server_that_is_cut_off_fails_the_call_that_waits() -> None:
    hall = Hall()
    async with listening(hall.app) as (port, server):
        channel = await connect(f"ws://127.0.0.1:{port}/ws", DEFAULT, timeout=5)
        async with Client(channel) as client:
            waiting = asyncio.create_task(client.call_tool("forever"))
            await hall.started.wait()
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            with pytest.raises(
                ConnectionClosed,
                match=r"closed the connection \(without a close frame\)",
            ):
                await waiting


@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [
        (1000, "", None),
        (1001, "", None),
        (1011, "", r"the server closed the connection \(code 1011: internal error\)"),
        (1008, "go away", r"the server closed the connection \(code 1008: go away\)"),
        (4000, "", r"the server closed the connection \(code 4000\)"),
    ],
)
async def test_a_close_code_says_whether_the_end_was_orderly(
    code: int, reason: str, told: str | None
) -> None:
    async def handler(peer: ServerConnection) -> None:
        await peer.send("last words")
        await peer.close(code, reason)

    async with hosted(handler) as url:
        channel = await connect(url, DEFAULT, timeout=5)
        ear = Ear(channel)
        end = await ear.end
        assert ear.heard == [b"last words"]
        await channel.close()
    if told is None:
        assert end is None
    else:
        assert isinstance(end, ConnectionClosed)
        with pytest.raises(ConnectionClosed, match=told):
            raise end


@pytest.mark.parametrize(
    ("code", "orderly"), [(1000, True), (1001, True), (1008, False), (4000, False)]
)
async def test_a_server_hears_how_its_client_left(code: int, orderly: bool) -> None:
    ears: asyncio.Queue[Ear] = asyncio.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        channel = await accept(scope, receive, send, DEFAULT)
        assert channel is not None
        ear = Ear(channel)
        await ear.end
        ears.put_nowait(ear)
        await channel.close()

    async with listening(app) as (port, _):
        async with dial(f"ws://127.0.0.1:{port}/", proxy=None) as peer:
            await peer.close(code)
        assert ((await (await ears.get()).end) is None) is orderly


async def test_closing_sends_what_is_queued_says_goodbye_and_may_be_done_twice() -> None:
    got: list[Any] = []
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def handler(peer: ServerConnection) -> None:
        got.extend([message async for message in peer])
        codes.put_nowait(peer.close_code)

    async with hosted(handler) as url:
        channel = await connect(url, DEFAULT, timeout=5)
        ear = Ear(channel)
        for number in range(100):
            channel.send(b"%d" % number + b" " * 100_000)
        await asyncio.gather(channel.close(), channel.close())
        channel.send(b"too late")
        assert await ear.end is None
        assert await codes.get() == 1000
    assert [int(message) for message in got] == list(range(100))


async def test_a_channel_that_was_never_started_can_be_closed() -> None:
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def handler(peer: ServerConnection) -> None:
        await peer.wait_closed()
        codes.put_nowait(peer.close_code)

    async with hosted(handler) as url:
        await (await connect(url, DEFAULT, timeout=5)).close()
        assert await codes.get() == 1000


async def test_a_server_that_goes_away_says_so() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        channel = await accept(scope, receive, send, DEFAULT)
        assert channel is not None
        channel.start(lambda data: None, lambda reason: None)
        channel.send(b"bye")
        await channel.close()

    async with listening(app) as (port, _):
        async with dial(f"ws://127.0.0.1:{port}/", proxy=None) as peer:
            assert await peer.recv() == "bye"
            await peer.wait_closed()
            assert peer.close_code == 1001


@asynccontextmanager
async def deaf() -> AsyncIterator[str]:
    """A server that reads nothing after the handshake."""
    stop = asyncio.Event()

    async def handler(peer: ServerConnection) -> None:
        peer.transport.pause_reading()
        await stop.wait()
        peer.transport.abort()

    async with hosted(handler) as url:
        try:
            yield url
        finally:
            stop.set()


async def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read() -> None:
    async with deaf() as url:
        channel = await connect(url, Limits(shutdown=0.2), timeout=5)
        ear = Ear(channel)
        for _ in range(20):
            channel.send(b"x" * MIB)
        assert channel.full  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            await channel.close()
        assert await ear.end is None
        assert channel._stream._socket.transport.is_closing(), "the socket is left open"  # type: ignore[attr-defined]


async def test_a_peer_that_does_not_answer_pings_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.2)
    async with deaf() as url:
        channel = await connect(url, Limits(shutdown=0.2), timeout=5)
        end = await Ear(channel).end
        assert isinstance(end, ConnectionClosed) and "did not answer a ping within 0.2 s" in str(
            end
        )
        await channel.close()


async def test_a_server_that_breaks_the_protocol_is_named_as_the_culprit() -> None:
    async def handler(peer: ServerConnection) -> None:
        peer.transport.write(b"\xff\xff\xff")
        await peer.wait_closed()

    async with hosted(handler, logger=logging.getLogger("quiet")) as url:
        channel = await connect(url, DEFAULT, timeout=5)
        end = await Ear(channel).end
        assert isinstance(
            end, ConnectionClosed
        ) and "violated the WebSocket protocol (code 1002" in str(end)
        await channel.close()


async def test_messages_over_the_bound_keep_their_beginning() -> None:
    heads: asyncio.Queue[Incoming] = asyncio.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        channel = await accept(scope, receive, send, Limits(incoming=1000))
        assert channel is not None
        over = asyncio.Event()
        channel.start(heads.put_nowait, lambda reason: over.set())
        await over.wait()
        await channel.close()

    async with listening(app) as (port, _):
        async with dial(f"ws://127.0.0.1:{port}/", proxy=None) as peer:
            await peer.send("é" * 501)
            await peer.send("y" * 1000)
            first, second = await heads.get(), await heads.get()
    assert isinstance(first, TooLong) and first.head.startswith("é".encode())
    assert second == b"y" * 1000


def test_the_library_is_new_enough() -> None:
    assert int(websockets.__version__.partition(".")[0]) >= 15, "proxies, and text out of bytes"
