"""Requests on behalf of somebody else: bounded, and not to where only this machine can reach."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.errors import ConnectFailed, TimedOut
from dovetail.net import PeerAddresses, is_forbidden, is_loopback, is_private
from dovetail.ports import HttpRequest, HttpResponse
from dovetail.transports.http.client.fetch import fetch, fetcher
from tests.transports.http.scripted import Asked, Scripted


async def ok(asked: Asked) -> None:
    await asked.answer(
        200, b"fine", {"X-One": "1", "WWW-Authenticate": "Bearer a=1\r\nWWW-Authenticate: DPoP"}
    )


def get(url: str, **more: Any) -> HttpRequest:
    return HttpRequest(method="GET", url=url, **more)


@asynccontextmanager
async def names(monkeypatch: pytest.MonkeyPatch, *answers: str) -> AsyncIterator[list[str]]:
    """The system's resolver says these addresses for whatever it is asked, one more each time."""
    asked: list[str] = []
    real = asyncio.get_running_loop().getaddrinfo

    async def getaddrinfo(host: str, port: Any, **options: Any) -> Any:
        found = answers[min(len(asked), len(answers) - 1)]
        asked.append(host)
        return await real(found, port, **{**options, "flags": socket.AI_NUMERICHOST})

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    yield asked


async def test_a_request_goes_out_as_it_is_and_its_answer_comes_back() -> None:
    async with Scripted(ok) as server:
        request = HttpRequest(
            url=f"{server.origin}/token?a=b", headers={"accept": "x/y"}, body=b"grant_type=z"
        )
        found = await fetch(request, private=True)
        asked = server.asked[0]
    assert (asked.method, asked.path, asked.body, asked.headers["accept"]) == (
        "POST",
        "/token?a=b",
        b"grant_type=z",
        "x/y",
    )
    assert (found.status, found.body, found.headers["x-one"]) == (200, b"fine", "1")
    assert found.headers["www-authenticate"] == "Bearer a=1, DPoP"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    async def away(asked: Asked) -> None:
        await asked.answer(status, b"", {"Location": "/elsewhere"})

    async with Scripted(away) as server:
        found = await fetch(get(server.url), private=True)
        assert (found.status, found.headers["location"], len(server.asked)) == (
            status,
            "/elsewhere",
            1,
        )


async def test_an_answer_has_a_size() -> None:
    async def endless(asked: Asked) -> None:
        await asked.raw(b"HTTP/1.1 200 OK\r\n\r\n")
        while not asked.hung_up.is_set():
            await asked.raw(b"x" * 1000)

    async with Scripted(endless) as server:
        with pytest.raises(ConnectFailed, match="larger than 5000 bytes"):
            await fetch(get(server.url), private=True, limit=5000)


async def test_an_answer_has_a_time() -> None:
    async def slow(asked: Asked) -> None:
        await asked.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
        await asked.hung_up.wait()

    async with Scripted(slow) as server:
        with pytest.raises(TimedOut, match=r"/mcp: no response within 0\.1 s"):
            await fetch(get(server.url), private=True, timeout=0.1)


async def test_what_is_compressed_stays_so() -> None:
    """A megabyte of zeros is a kilobyte on the way; what unpacks nothing cannot be filled up by
    it."""
    bomb = gzip.compress(bytes(1024 * 1024))

    async def packed(asked: Asked) -> None:
        assert asked.headers["accept-encoding"] == "identity"
        await asked.answer(200, bomb, {"Content-Encoding": "gzip"})

    async with Scripted(packed) as server:
        assert (await fetch(get(server.url), private=True)).body == bomb


async def test_errors_show_no_query() -> None:
    with pytest.raises(ConnectFailed) as failed:
        await fetch(get("http://127.0.0.1:1/x?code=s3cret"), private=True)
    assert "127.0.0.1:1/x" in str(failed.value) and "s3cret" not in str(failed.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "http://",
        "http://user:pass@a/",
        "http://a:99999/",
        "http://a b/",
        "http://127.1/",
        "http://2130706433/",
    ],
)
async def test_what_is_no_url_is_not_asked(url: str) -> None:
    with pytest.raises(ConnectFailed):
        await fetch(get(url), private=True)


# addresses


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1.2.3",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "255.255.255.255",
        "224.0.0.1",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "localhost",
        "a.localhost",
        "LOCALHOST.",
        "0x7f000001",
        "168.63.129.16",
    ],
)
async def test_addresses_of_the_local_network_are_refused(host: str) -> None:
    with pytest.raises(
        ConnectFailed,
        match="a private address; a server outside that network must not cause this client",
    ):
        await fetch(get(f"http://{host}:1/"))


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.170.2",
        "[fe80::a9fe:a9fe]",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "168.63.129.16",
    ],
)
async def test_the_metadata_of_clouds_is_refused_whoever_allows_the_rest(host: str) -> None:
    with pytest.raises(ConnectFailed, match="a private address"):
        await fetch(get(f"http://{host}:1/"), private=True)


@pytest.mark.parametrize("host", ["8.8.8.8", "2606:4700::1111", "example.com", "::ffff:8.8.8.8"])
def test_the_world_is_not_the_local_network(host: str) -> None:
    assert not is_private(host) and not is_forbidden(host) and not is_loopback(host)


async def test_a_name_is_judged_by_the_address_that_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scripted(ok) as server, names(monkeypatch, "127.0.0.1") as asked:
        with pytest.raises(
            ConnectFailed,
            match=r"^http://rebound\.example:\d+/: 127\.0\.0\.1 is a private address",
        ):
            await fetch(get(f"http://rebound.example:{server.port}/"))
        assert asked == ["rebound.example"] and server.asked == []
        assert (
            await fetch(get(f"http://rebound.example:{server.port}/"), private=True)
        ).status == 200


async def test_a_server_of_the_local_network_may_point_there() -> None:
    async with Scripted(ok) as server:
        assert (await fetcher(PeerAddresses("127.0.0.1"))(get(server.url))).status == 200


async def test_a_server_elsewhere_may_not_point_to_the_local_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scripted(ok) as server, names(monkeypatch, "93.184.216.34"):
        with pytest.raises(ConnectFailed, match="a private address"):
            await fetcher(PeerAddresses("public.example"))(get(server.url))
        assert server.asked == []


async def test_a_name_that_leads_to_the_local_network_counts_as_being_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Scripted(ok) as server, names(monkeypatch, "10.1.2.3"):
        found: HttpResponse = await fetcher(PeerAddresses("intranet.example"))(get(server.url))
        assert found.status == 200


async def test_a_server_that_was_found_elsewhere_once_is_not_believed_to_have_moved_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name leads here by now; but who has asked us to log in was somebody else."""
    peers = PeerAddresses("rebound.example")
    info = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    for address in ("93.184.216.34", "10.0.0.1"):
        peers.open_socket((*info, (address, 80))).close()
    async with Scripted(ok) as server, names(monkeypatch, "10.0.0.1"):
        with pytest.raises(ConnectFailed, match="a private address"):
            await fetcher(peers)(get(server.url))
        assert server.asked == []


async def test_behind_a_proxy_the_proxy_decides_but_what_is_written_out_is_judged() -> None:
    async with Scripted(ok) as proxy:
        assert (await fetch(get("http://public.example/x"), proxy=proxy.origin)).status == 200
        assert proxy.asked[0].path == "http://public.example/x"
        with pytest.raises(ConnectFailed, match="a private address"):
            await fetch(get("http://169.254.169.254/latest"), proxy=proxy.origin)
