"""How an HTTP client finds out whom it talks to, and what it says where it cannot."""

import asyncio
import re
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.client import reconnect
from dovetail.errors import (
    ConfigError,
    ConnectFailed,
    DovetailError,
    NoCommonRevision,
    Overloaded,
    Unauthorized,
)
from tests.ports import free_port
from tests.transports.http.scripted import (
    DISCOVERED,
    MODERN,
    OLD,
    WELCOME,
    Asked,
    Scripted,
    modern,
    old,
)
from tests.transports.http.tls import make_certificate

REFUSED = [
    (400, b""),
    (400, b"no"),
    (404, b"<html>"),
    (405, b""),
    (406, b"{}"),
    (415, b"[1]"),
    (
        400,
        b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing '
        b'session ID"}}',
    ),
    (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request"}}'),
]


@pytest.fixture(autouse=True)
def _no_memory_of_eras() -> Iterator[None]:
    reconnect._handshake_servers.clear()
    yield
    reconnect._handshake_servers.clear()


@pytest.fixture
def closed_port() -> int:
    return free_port()


@pytest.mark.requirement(
    "http-client-post", "http-client-accept", "http-client-version", "http-client-standard-headers"
)
async def test_a_server_of_the_stateless_era_is_discovered() -> None:
    async def script(asked: Asked) -> None:
        assert await modern(asked)

    async with Scripted(script) as server:
        async with Client(server.url) as client:
            assert client.revision == MODERN
        (asked,) = server.asked
        assert asked.method == "POST"
        assert asked.headers["accept"] == "application/json, text/event-stream"
        assert asked.headers["content-type"] == "application/json"
        assert asked.headers["mcp-protocol-version"] == MODERN
        assert asked.headers["mcp-method"] == "server/discover"
        assert "mcp-session-id" not in asked.headers


@pytest.mark.requirement(
    "http-client-fallback",
    "http-client-session",
    "http-client-version-agreed",
    "http-client-session-deleted",
)
@pytest.mark.parametrize(("status", "body"), REFUSED)
async def test_a_server_that_refuses_discovery_is_greeted_the_old_way(
    status: int, body: bytes
) -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "server/discover":
            await asked.answer(status, body, {"Content-Type": "application/json"})
        else:
            assert await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url) as client:
            assert client.revision == OLD
        assert [one.rpc for one in server.asked if one.rpc != "GET"] == [
            "server/discover", "initialize", "notifications/initialized", "DELETE",
        ]  # fmt: skip
        greeting, told, left = (
            server.heard(rpc)[0] for rpc in ("initialize", "notifications/initialized", "DELETE")
        )
        assert "mcp-session-id" not in greeting.headers
        assert "mcp-protocol-version" not in greeting.headers
        assert "mcp-method" not in greeting.headers
        for later in (told, left):
            assert later.headers["mcp-session-id"] == "s-1"
            assert later.headers["mcp-protocol-version"] == OLD


@pytest.mark.requirement("http-client-modern-error", "stateless-version-retry")
async def test_the_first_request_may_be_refused_with_the_very_version_that_it_asked_for() -> None:
    count = 0

    async def script(asked: Asked) -> None:
        nonlocal count
        count += 1
        if count == 1:
            await asked.error(
                -32022, "Unsupported", 400, {"supported": [MODERN], "requested": MODERN}
            )
        else:
            assert await modern(asked)

    async with Scripted(script) as server:
        async with Client(server.url) as client:
            assert client.revision == MODERN
        assert [one.rpc for one in server.asked] == ["server/discover"] * 2


@pytest.mark.requirement("http-client-modern-error", "stateless-version-retry")
async def test_a_server_that_speaks_nothing_of_ours_is_said_so() -> None:
    async def script(asked: Asked) -> None:
        await asked.error(
            -32022, "Unsupported", 400, {"supported": ["2099-01-01"], "requested": MODERN}
        )

    async with Scripted(script) as server:
        with pytest.raises(NoCommonRevision, match="2099-01-01"):
            await Client(server.url).connect()


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, Unauthorized, r"/mcp requires authorization \(401"),
        (403, Unauthorized, r"/mcp denied access \(403"),
        (429, Overloaded, "/mcp answered 429"),
        (500, ConnectFailed, "/mcp answered 500"),
        (502, ConnectFailed, "/mcp answered 502"),
        (503, ConnectFailed, "/mcp answered 503"),
    ],
)
@pytest.mark.parametrize(
    "body", [b"", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"not you"}}']
)
async def test_a_status_that_says_nothing_about_the_era_ends_the_attempt(
    status: int, kind: type[Exception], said: str, body: bytes
) -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(status, body, {"Content-Type": "application/json"})

    async with Scripted(script) as server:
        with pytest.raises(kind, match=said) as caught:
            await Client(server.url).connect()
        assert len(server.asked) == 1
        assert ("not you" in str(caught.value)) == bool(body)
    assert reconnect._handshake_servers == {}


@pytest.mark.requirement("dual-era-remembered")
async def test_the_verdict_is_remembered_by_origin_and_taken_back_when_it_is_wrong() -> None:
    upgraded = False

    async def script(asked: Asked) -> None:
        if not upgraded:
            assert await old(asked)
        elif not await modern(asked):
            await asked.error(-32601, "There is no initialize", 404)

    async with Scripted(script) as server:
        async with Client(server.url):
            pass
        async with Client(server.origin + "/other"):
            pass
        assert len(server.heard("server/discover")) == 1
        upgraded = True
        async with Client(server.url) as client:
            assert client.revision == MODERN
        async with Client(server.url) as client:
            assert client.revision == MODERN
        assert len(server.heard("initialize")) == 3


async def test_nothing_leaves_before_the_greeting_is_through() -> None:
    """`initialize`, then `notifications/initialized`, then all the rest: each accepted before the
    next is sent."""
    order: list[str] = []

    async def script(asked: Asked) -> None:
        order.append(f"{asked.rpc} in")
        if asked.rpc == "notifications/initialized":
            await asyncio.sleep(0.05)
        order.append(f"{asked.rpc} out")
        if not await old(asked):
            await asked.result({"tools": []})

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            await asyncio.gather(client.list_tools(), client.list_tools())
    assert order[:4] == [
        "initialize in",
        "initialize out",
        "notifications/initialized in",
        "notifications/initialized out",
    ]


async def test_a_greeting_may_be_answered_by_a_stream() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "initialize":
            await asked.stream({"Mcp-Session-Id": "streamed"})
            await asked.event(asked.reply(WELCOME))
            await asked.hung_up.wait()  # the stream is left open: the answer is enough
        elif not await old(asked):
            await asked.result({"tools": []})

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake") as client:
            assert await client.list_tools() == []
        listing = server.heard("tools/list")[0]
        assert listing.headers["mcp-session-id"] == "streamed"
        assert listing.headers["mcp-protocol-version"] == OLD


@pytest.mark.parametrize("session", ["with space", "ü"])
async def test_a_session_id_that_no_header_can_carry_is_not_used(
    session: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "initialize":
            await asked.result(WELCOME, {"Mcp-Session-Id": session})
        else:
            await old(asked)

    async with Scripted(script) as server:
        async with Client(server.url, revision="handshake"):
            pass
        assert all("mcp-session-id" not in one.headers for one in server.asked)
    assert "session id" in caplog.text
    assert session not in caplog.text


# what cannot be reached


@pytest.mark.parametrize("revision", [None, "handshake", "stateless"])
async def test_nobody_there_is_said_in_one_line(closed_port: int, revision: str | None) -> None:
    refused = f"http://127.0.0.1:{closed_port}/mcp: connection refused (is the server running?)"
    with pytest.raises(ConnectFailed, match=f"^{re.escape(refused)}$"):
        async with Client(f"http://127.0.0.1:{closed_port}/mcp", revision=revision):
            pass


async def test_a_host_that_does_not_exist_is_said_in_one_line() -> None:
    with pytest.raises(
        ConnectFailed,
        match=r"^http://no-such-host.invalid/mcp: the host no-such-host.invalid was not found$",
    ):
        await Client("http://no-such-host.invalid/mcp").connect()


async def test_a_server_that_speaks_no_tls_is_said_in_one_line() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectFailed, match=rf"^https://127.0.0.1:{port}/mcp: TLS failed: "):
            await Client(f"https://127.0.0.1:{port}/mcp", timeout=5).connect()


async def test_what_is_no_http_is_said_in_one_line() -> None:
    async def script(asked: Asked) -> None:
        await asked.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        await asked.cut()

    async with Scripted(script) as server:
        with pytest.raises(ConnectFailed, match=r"/mcp: "):
            await Client(server.url, timeout=5).connect()


async def test_a_server_that_hangs_up_on_us_is_said_in_one_line() -> None:
    async def script(asked: Asked) -> None:
        await asked.cut()

    async with Scripted(script) as server:
        with pytest.raises(ConnectFailed, match="/mcp: the"):
            await Client(server.url, timeout=5).connect()


async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    async def script(asked: Asked) -> None:
        await asked.hung_up.wait()

    async with Scripted(script) as server:
        with pytest.raises(DovetailError, match=r"within 0\.5 s"):
            async with Client(server.url, timeout=0.5, limits=Limits(probe_timeout=0.2)):
                pass


async def test_the_era_of_a_server_that_is_silent_for_once_is_not_remembered() -> None:
    silent = True

    async def script(asked: Asked) -> None:
        if silent and asked.rpc == "server/discover":
            await asked.hung_up.wait()
        elif silent:
            await old(asked)
        else:
            await modern(asked)

    async with Scripted(script) as server:
        limits = Limits(probe_timeout=0.2)
        async with Client(server.url, limits=limits) as client:
            assert client.revision == OLD
        silent = False
        async with Client(server.url) as client:
            assert client.revision == MODERN


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b""])
async def test_a_web_page_is_no_server(body: bytes) -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(200, body, {"Content-Type": "text/html; charset=utf-8"})

    async with Scripted(script) as server:
        with pytest.raises(
            DovetailError, match=r"/mcp: the response to initialize is text/html, not JSON"
        ):
            await Client(server.url).connect()


async def test_json_that_is_no_reply_is_said_so() -> None:
    async def script(asked: Asked) -> None:
        await asked.json({"hello": "world"})

    async with Scripted(script) as server:
        with pytest.raises(
            DovetailError, match=r"/mcp: the body does not contain the response to initialize"
        ):
            await Client(server.url).connect()


async def test_where_neither_way_is_served_the_status_is_named() -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(404, b"not here")

    async with Scripted(script) as server:
        with pytest.raises(ConnectFailed, match=r"/mcp: this is not an MCP server \(answered 404"):
            await Client(server.url).connect()
        assert [one.rpc for one in server.asked] == ["server/discover", "initialize", "GET"]


@pytest.mark.requirement("sse-client-found", "sse-client-post", "sse-messages")
async def test_the_old_pair_is_found_behind_a_plain_url() -> None:
    stream: Asked | None = None

    async def script(asked: Asked) -> None:
        nonlocal stream
        if asked.method == "GET":
            stream = asked
            await asked.stream()
            await asked.chunk(b"event: endpoint\ndata: /message?session_id=1\n\n")
            await asked.hung_up.wait()
        elif asked.path == "/mcp":
            await asked.answer(405)
        else:
            assert stream is not None
            await asked.answer(202)
            if asked.rpc == "initialize":
                await stream.event(
                    asked.reply({**WELCOME, "protocolVersion": "2024-11-05"}), event="message"
                )
            elif asked.rpc == "tools/list":
                await stream.event(asked.reply({"tools": []}), event="message")

    async with Scripted(script) as server:
        async with Client(server.url, headers={"Authorization": "Bearer x"}) as client:
            assert client.revision == "2024-11-05"
            assert await client.list_tools() == []
        assert all(one.headers["authorization"] == "Bearer x" for one in server.asked)


# settings


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://user:secret@example.com/mcp", "must not contain a password"),
        ("ftp://example.com", "scheme must be one of http, https, ws, wss"),
        ("http://", "is not a (valid server )?URL"),
        ("http://exam ple.com/", "is not a (valid server )?URL"),
        ("http://example.com:99999/", "is not a (valid server )?URL"),
        ("http://[::1/", "is not a (valid server )?URL"),
        ("http://example.com/\r\nX: y", "is not a (valid server )?URL"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_at_once(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "headers", [{"X Y": "1"}, {"X": "a\r\nInjected: 1"}, {"X": "a\0"}, {"": "x"}]
)
async def test_a_header_that_cannot_be_sent_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="not allowed in headers"):
        await Client("http://127.0.0.1:1/", headers=headers).connect()


@pytest.mark.parametrize(
    ("library", "module", "proxy"),
    [("httptools", "http1", None), ("aiohttp", "aiohttp_client", "http://127.0.0.1:1")],
)
async def test_the_extra_is_named_where_it_is_missing(
    library: str, module: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for name in (module, "http1_client"):
        monkeypatch.delitem(sys.modules, f"dovetail.transports.http.client.{name}", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'dovetail-mcp\[http\]'"):
        await Client("http://127.0.0.1:1/", proxy=proxy).connect()


async def test_a_configuration_brings_url_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t0k3n")

    async def script(asked: Asked) -> None:
        assert await modern(asked)

    async with Scripted(script) as server:
        entry = {
            "type": "sse",
            "url": server.url,
            "headers": {"Authorization": "Bearer ${TOKEN}", "X-A": "1"},
        }
        async with Client({"mcpServers": {"remote": entry}}, headers={"X-A": "2"}):
            pass
        (asked,) = server.asked
        assert asked.headers["authorization"] == "Bearer t0k3n"
        assert asked.headers["x-a"] == "2"


async def test_headers_of_the_protocol_are_not_the_users_to_set() -> None:
    async def script(asked: Asked) -> None:
        assert await modern(asked)

    async with Scripted(script) as server:
        async with Client(server.url, headers={"accept": "text/html", "MCP-PROTOCOL-VERSION": "x"}):
            pass
        (asked,) = server.asked
        assert asked.headers["accept"] == "application/json, text/event-stream"
        assert asked.headers["mcp-protocol-version"] == MODERN


async def test_a_proxy_is_asked_in_the_servers_place() -> None:
    async def script(asked: Asked) -> None:
        assert asked.path == "http://mcp.example/x"
        assert await modern(asked)

    async with Scripted(script) as proxy:
        async with Client("http://mcp.example/x", proxy=proxy.origin) as client:
            assert client.revision == MODERN


async def test_a_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(asked: Asked) -> None:
        assert await modern(asked)

    async with Scripted(script) as proxy, Scripted(script) as server:
        monkeypatch.setenv("http_proxy", proxy.origin)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with Client("http://mcp.example/x"), Client(server.url):
            pass
        assert len(proxy.asked) == len(server.asked) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_proxy_of_the_environment_does_not_see_what_stays_on_this_machine(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(asked: Asked) -> None:
        assert await modern(asked)

    async with Scripted(script) as proxy, Scripted(script) as server:
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.origin)
        monkeypatch.delenv("no_proxy", raising=False)
        async with Client(server.url.replace("127.0.0.1", host), auth="secret"):
            pass
        assert [one.headers["authorization"] for one in server.asked] == ["Bearer secret"]
        assert proxy.asked == []


async def test_cookies_are_not_kept() -> None:
    async def script(asked: Asked) -> None:
        await asked.result(DISCOVERED, {"Set-Cookie": "a=b; Path=/"})

    async with Scripted(script) as server:
        async with Client(server.url) as client:
            await client.ping()
        assert all("cookie" not in one.headers for one in server.asked)


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("how", ["path", "context", "off"])
async def test_whom_to_trust_can_be_said(authority: tuple[Path, ssl.SSLContext], how: str) -> None:
    path, context = authority

    async def script(asked: Asked) -> None:
        assert await modern(asked)

    verify: Any = {
        "path": path,
        "context": ssl.create_default_context(cafile=str(path)),
        "off": False,
    }[how]
    async with Scripted(script, ssl=context) as server:
        async with Client(server.url, verify=verify) as client:
            assert client.revision == MODERN


async def test_a_certificate_of_nobody_we_know_is_refused(
    authority: tuple[Path, ssl.SSLContext],
) -> None:
    async def script(asked: Asked) -> None: ...

    async with Scripted(script, ssl=authority[1]) as server:
        with pytest.raises(
            ConnectFailed, match=r"^https://.*/mcp: TLS failed: self.signed certificate"
        ):
            await Client(server.url).connect()
        assert server.asked == []


async def test_certificates_that_are_not_there_are_said_so() -> None:
    with pytest.raises(ConfigError, match="contains no certificates"):
        await Client("https://127.0.0.1:1/", verify="/no/such/file.pem").connect()
