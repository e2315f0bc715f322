"""Hosts, origins and URLs: one table for everything that asks."""

import time
import webbrowser

import pytest

from dovetail import Client
from dovetail.errors import ConfigError
from dovetail.net import (
    PeerAddresses,
    TrustedProxies,
    is_confidential,
    is_forbidden,
    is_ip_address,
    is_local_file_host,
    is_localhost_name,
    is_loopback,
    is_private,
    network_of,
    open_in_browser,
    origin,
    parse_host,
    parse_origin,
    shown_url,
    split_origin,
    why_not_openable,
)

HOSTS = [
    # host                        loopback  private
    ("localhost", True, True),
    ("LOCALHOST", True, True),
    ("localhost.", True, True),
    ("app.localhost", False, True),
    ("App.Localhost.", False, True),
    ("127.0.0.1", True, True),
    ("127.1.2.3", True, True),
    ("[::1]", True, True),
    ("::1", True, True),
    ("::ffff:127.0.0.1", True, True),
    ("[::ffff:7f00:1]", True, True),
    ("64:ff9b::7f00:1", False, True),
    ("2002:7f00:1::", False, True),
    ("0.0.0.0", False, True),
    ("::", False, True),
    ("2130706433", False, True),
    ("127.1", False, True),
    ("0x7f.0.0.1", False, True),
    ("0x7f000001", False, True),
    ("10.0.0.1", False, True),
    ("192.168.1.1", False, True),
    ("100.64.0.1", False, True),
    ("169.254.169.254", False, True),
    ("fe80::1%eth0", False, True),
    ("fd00::1", False, True),
    ("224.0.0.1", False, True),
    ("evil-localhost", False, False),
    ("localhost.evil.com", False, False),
    ("127.0.0.1.evil.com", False, False),
    ("localhostx", False, False),
    ("example.com", False, False),
    ("8.8.8.8", False, False),
    ("2606:4700::1111", False, False),
    ("::ffff:8.8.8.8", False, False),
    ("", False, False),
]


@pytest.mark.parametrize(("host", "loopback", "private"), HOSTS)
def test_hosts(host: str, loopback: bool, private: bool) -> None:
    assert (is_loopback(host), is_private(host)) == (loopback, private)


@pytest.mark.parametrize(("host", "loopback", "_"), HOSTS)
def test_a_secret_goes_without_tls_to_loopback_only(host: str, loopback: bool, _: bool) -> None:
    name = f"[{host}]" if host.count(":") > 1 and host[0] != "[" else host
    assert is_confidential(f"http://{name}:8000/mcp") is loopback
    assert is_confidential(f"ws://{name}:8000/mcp") is loopback
    assert is_confidential(f"https://{name}:8000/mcp")
    assert is_confidential(f"wss://{name}:8000/mcp")
    assert not is_confidential(f"ftp://{name}:8000/mcp")


@pytest.mark.parametrize("url", ["http://[::1/", "http://localhost:x/", "", "localhost"])
def test_what_is_not_a_url_is_not_confidential(url: str) -> None:
    assert not is_confidential(url)


async def test_a_client_says_at_once_that_a_name_below_localhost_gets_no_credentials() -> None:
    with pytest.raises(ConfigError, match=r"sent only over https or to localhost"):
        async with Client("http://app.localhost:1/mcp", auth="secret"):
            raise AssertionError


@pytest.mark.parametrize(
    ("host", "named"),
    [("localhost", True), ("a.b.Localhost.", True), ("localhost.a", False), ("xlocalhost", False)],
)
def test_names_below_localhost(host: str, named: bool) -> None:
    assert is_localhost_name(host) is named


def test_addresses_are_told_from_names() -> None:
    assert all(map(is_ip_address, ["127.0.0.1", "[::1]", "::1", "[fe80::1%25eth0]"]))
    assert not any(map(is_ip_address, ["localhost", "127.1", "999.1.1.1", "1.2.3.4.example.com"]))


def test_cloud_metadata_is_forbidden_however_it_is_spelled() -> None:
    spellings = ["169.254.169.254", "[::ffff:a9fe:a9fe]", "64:ff9b::a9fe:a9fe", "fd00:ec2::254"]
    assert all(map(is_forbidden, spellings))
    assert not any(map(is_forbidden, ["10.0.0.1", "localhost", "example.com"]))


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("127.0.0.1", ""),
        ("::ffff:127.0.0.1", ""),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_what_counts_as_one_caller(address: str, network: str) -> None:
    assert network_of(address) == network


def test_the_host_of_a_file_uri() -> None:
    assert all(map(is_local_file_host, ["", None, "localhost", "LOCALHOST"]))
    assert not any(map(is_local_file_host, ["127.0.0.1", "server", "localhost."]))


@pytest.mark.parametrize(
    ("url", "split", "spelled"),
    [
        ("https://A.example/x?y", ("https", "a.example", 443), "https://a.example"),
        ("https://a.example:443/", ("https", "a.example", 443), "https://a.example"),
        ("http://a.example:8080", ("http", "a.example", 8080), "http://a.example:8080"),
        ("ws://[::1]:80/ws", ("http", "::1", 80), "http://[::1]"),
        ("wss://a.example/ws", ("https", "a.example", 443), "https://a.example"),
    ],
)
def test_the_origin_of_a_url(url: str, split: tuple[str, str, int], spelled: str) -> None:
    assert split_origin(url) == split
    assert origin(url) == spelled


def test_headers_that_name_a_host() -> None:
    assert parse_host(b"Example.COM.:80") == ("example.com", "80")
    assert parse_host(b"[::1]") == ("[::1]", "")
    assert parse_host(b"a b") is None
    assert parse_origin(b"https://Example.com") == ("https", "example.com", "443")
    assert parse_origin(b"null") is None


def test_a_password_is_not_shown() -> None:
    assert shown_url("http://user:secret@example.com/@x") == "http://example.com/@x"
    assert shown_url("https://example.com/mcp?key=secret#x") == "https://example.com/mcp"


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a?b=c#d",
        "HTTPS://example.com",
        "http://localhost:8000/",
        "https://bücher.example/",
        "https://user@example.com/",
        "https://[::1]:8000/",
    ],
)
def test_urls_that_may_be_opened(url: str) -> None:
    assert why_not_openable(url) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("javascript:alert(1)", "http and https"),
        ("file:///etc/passwd", "http and https"),
        ("example.com", "http and https"),
        ("", "http and https"),
        ("https:///path", "no host"),
        ("https://example.com:0/", "port"),
        ("https://example.com:99999/", "not a URL"),
        ("https://[::1/", "not a URL"),
        ("https://example.com/a b", "hidden"),
        ("https://example.com/\x1b[2J", "hidden"),
        ("https://example.com/\u202egpj.exe", "hidden"),
        ("https://example.com/\n", "hidden"),
        ("https://good.example\\@evil.example/", "backslash"),
        ("https://ex%61mple.com/", "percent-encoded"),
    ],
)
def test_urls_that_must_not_be_opened(
    monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))
    assert reason in (why_not_openable(url) or "")
    assert not open_in_browser(url)
    assert not opened


def test_opening_a_browser_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: url == "https://example.com/")
    assert open_in_browser("https://example.com/")

    def fail(url: str) -> bool:
        raise webbrowser.Error

    monkeypatch.setattr(webbrowser, "open", fail)
    assert not open_in_browser("https://example.com/")


def test_a_server_is_private_as_long_as_all_its_addresses_are() -> None:
    peers = PeerAddresses("example.com")
    assert peers.private is None
    peers.record("10.0.0.1")
    assert peers.private
    peers.record("8.8.8.8")
    peers.record("10.0.0.1")
    assert peers.private is False
    assert PeerAddresses("app.localhost").private


# proxies

PROXIES = ["10.0.0.5", "10.1.0.0/16", "2001:db8::/32"]


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("203.0.113.9", {"x-forwarded-for": "1.1.1.1"}, "203.0.113.9"),
        ("203.0.113.9", {"forwarded": "for=1.1.1.1"}, "203.0.113.9"),
        ("10.0.0.5", {}, "10.0.0.5"),
        ("10.0.0.5", {"x-forwarded-for": "1.1.1.1"}, "1.1.1.1"),
        ("::ffff:10.0.0.5", {"x-forwarded-for": "1.1.1.1"}, "1.1.1.1"),
        ("10.0.0.5", {"x-forwarded-for": "6.6.6.6, 1.1.1.1"}, "1.1.1.1"),
        ("10.0.0.5", {"x-forwarded-for": "6.6.6.6, 1.1.1.1, 10.1.2.3"}, "1.1.1.1"),
        ("10.0.0.5", {"x-forwarded-for": "6.6.6.6,10.9.9.9,10.1.2.3"}, "10.9.9.9"),
        ("10.0.0.5", {"x-forwarded-for": "10.1.2.3"}, "10.1.2.3"),
        ("10.0.0.5", {"x-forwarded-for": "1.1.1.1:4711"}, "1.1.1.1"),
        ("10.0.0.5", {"x-forwarded-for": "2001:470::1"}, "2001:470::1"),
        ("10.0.0.5", {"x-forwarded-for": "[2001:470::1]:80"}, "2001:470::1"),
        ("10.0.0.5", {"x-forwarded-for": "unknown"}, "10.0.0.5"),
        ("10.0.0.5", {"x-forwarded-for": "1.1.1.1, unknown"}, "10.0.0.5"),
        ("10.0.0.5", {"x-forwarded-for": "1.1.1.1, unknown, 10.1.2.3"}, "10.1.2.3"),
        ("10.0.0.5", {"x-forwarded-for": ""}, "10.0.0.5"),
        ("10.0.0.5", {"x-forwarded-for": ", ,,"}, "10.0.0.5"),
        ("10.0.0.5", {"x-forwarded-for": "999.999.999.999"}, "10.0.0.5"),
        ("10.0.0.5", {"forwarded": "for=1.1.1.1"}, "1.1.1.1"),
        ("10.0.0.5", {"forwarded": 'For="1.1.1.1:80";proto=https;by=10.0.0.5'}, "1.1.1.1"),
        ("10.0.0.5", {"forwarded": "by=10.0.0.5;for=1.1.1.1"}, "1.1.1.1"),
        ("10.0.0.5", {"forwarded": 'for="[2001:470::1]:80", for=10.1.2.3'}, "2001:470::1"),
        ("10.0.0.5", {"forwarded": "for=6.6.6.6, for=1.1.1.1"}, "1.1.1.1"),
        ("10.0.0.5", {"forwarded": "for=1.1.1.1, for=_hidden"}, "10.0.0.5"),
        ("10.0.0.5", {"forwarded": "proto=https"}, "10.0.0.5"),
        ("10.0.0.5", {"forwarded": "for=6.6.6.6, proto=https"}, "10.0.0.5"),
        ("10.0.0.5", {"forwarded": "xfor=6.6.6.6"}, "10.0.0.5"),
        ("10.0.0.5", {"x-forwarded-for": "1.1.1.1.evil"}, "10.0.0.5"),
        ("10.0.0.5", {"forwarded": "for=1.1.1.1", "x-forwarded-for": "1.1.1.1"}, "1.1.1.1"),
        ("10.0.0.5", {"forwarded": "for=6.6.6.6", "x-forwarded-for": "1.1.1.1"}, "10.0.0.5"),
        ("not an address", {"x-forwarded-for": "1.1.1.1"}, "not an address"),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_trusted_proxy(
    peer: str, headers: dict[str, str], client: str
) -> None:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert TrustedProxies(PROXIES).client_of(peer, sent) == client


def test_a_header_that_is_repeated_is_one_list() -> None:
    sent = [(b"x-forwarded-for", b"6.6.6.6"), (b"x-forwarded-for", b"1.1.1.1")]
    assert TrustedProxies(PROXIES).client_of("10.0.0.5", sent) == "1.1.1.1"


def test_a_long_list_of_proxies_is_read_in_linear_time() -> None:
    pieces = (b"10.1.2.3,", b",", b" ", b"for=", b'"', b";", b"; ", b"a;for", b":", b"[", b"1.")
    for text in (piece * (64_000 // len(piece)) for piece in pieces):
        for name in (b"forwarded", b"x-forwarded-for"):
            began = time.process_time()
            TrustedProxies(PROXIES).client_of("10.0.0.5", [(name, text)])
            assert time.process_time() - began < 2


@pytest.mark.parametrize("entry", ["proxy", "10.0.0.0/99", "*", "", "10.0.0.5:80"])
def test_a_proxy_is_an_address_or_a_network(entry: str) -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        TrustedProxies([entry])
