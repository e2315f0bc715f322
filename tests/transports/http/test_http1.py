"""The pure part of the HTTP/1.1 client: what is written, and what is read from any server."""

import random
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import pytest

from dovetail.errors import ConfigError
from dovetail.limits import MIB
from dovetail.transports.http.client.http1 import (
    BROKEN,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    NO_RESPONSE,
    ResponseParser,
    encode_head,
    parse_url,
)

SIZED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-A:\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'2\r\nhe\r\n3;a=b;c="d"\r\nllo\r\n0\r\nTrailer: x\r\nX-B: y\r\n\r\n'
)
UNTIL_THE_END = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello"
INFORMED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-A: early\r\n\r\n"
    + SIZED
)
BARE_LINE_FEEDS = SIZED.replace(b"\r\n", b"\n")
PADDED_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5  \r\nhello\r\n0\r\n\r\n"
VALID = {
    "sized": SIZED,
    "chunked": CHUNKED,
    "until the end": UNTIL_THE_END,
    "after informational responses": INFORMED,
    "line feeds": BARE_LINE_FEEDS,
    "padded chunk": PADDED_CHUNK,
    "empty lines first": b"\r\n\r\n" + SIZED,
    "no reason": SIZED.replace(b" OK", b""),
}


def parse(pieces: Iterable[bytes], end: bool = True) -> tuple[ResponseParser, bytes]:
    """Return the response and its body."""
    response, body = ResponseParser(), b""
    for piece in pieces:
        response.feed(memoryview(piece))
        body += response.take()
    if end:
        response.end(is_orderly=True)
    return response, body


# responses


@pytest.mark.parametrize("data", VALID.values(), ids=VALID)
def test_a_response_may_be_split_at_every_byte(data: bytes) -> None:
    splits = [[data[:at], data[at:]] for at in range(1, len(data))]
    for pieces in [*splits, [data[at : at + 1] for at in range(len(data))]]:
        response, body = parse(pieces)
        assert (response.status, body, response.complete, response.failure) == (
            200, b"hello", True, "",
        )  # fmt: skip
        assert response.headers.get("x-a", "") == ""
        assert not {"link", "trailer", "x-b"} & set(response.headers)
        assert response.reason in ("OK", "")


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (SIZED, True),
        (CHUNKED, True),
        (INFORMED, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", True),
        (SIZED.replace(b"X-A:", b"Connection: close"), False),
        (SIZED.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (
            SIZED.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"X-A:", b"Connection: keep-alive"),
            True,
        ),
    ],
)
def test_a_response_says_whether_the_connection_stays_open(data: bytes, kept: bool) -> None:
    response, _ = parse([data], end=False)
    assert response.complete and response.can_keep_alive is kept and not response.failure


def test_repeated_headers_are_joined() -> None:
    lines = b"WWW-Authenticate: A\r\nwww-authenticate: B\r\nContent-Length: 0\r\n\r\n"
    assert parse([b"HTTP/1.1 401 No\r\n" + lines])[0].headers["www-authenticate"] == "A, B"


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
INVALID = {
    "garbage": b"\x16\x03\x01\x02\x00",
    "a banner": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a page without a head": b"<html><body>hello</body></html>",
    "no version": b"HTTP 200 OK\r\n\r\n",
    "an old version": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "a new version": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "an odd version": b"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a short status": b"HTTP/1.1 20 OK\r\n\r\n",
    "a long status": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a small status": b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nabc",
    "101 without an upgrade": b"HTTP/1.1 101 Switching\r\n\r\n" + SIZED,
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "a space before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
    "a folded header": b"HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
    "a null byte": b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 5\r\n\r\nhello",
    "a carriage return": b"HTTP/1.1 200 OK\r\nX-A: a\rX-B: b\r\nContent-Length: 5\r\n\r\nhello",
    "DEL": b"HTTP/1.1 200 OK\r\nMcp-Session-Id: a\x7f\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "one length twice": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
    "a hexadecimal length": b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello",
    "an empty length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello",
    "a huge length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n" + CHUNKS[17:] + b"0\r\n\r\n",
    "chunks and length": CHUNKS[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "a coding before chunked": CHUNKS.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n",
    "a coding after chunked": CHUNKS.replace(b"chunked", b"chunked, gzip") + b"0\r\n\r\n",
    "chunked twice": CHUNKS.replace(b"chunked", b"chunked, chunked") + b"0\r\n\r\n",
    "two codings": CHUNKS[:-2] + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an unknown coding": CHUNKS.replace(b"chunked", b"xchunked") + b"0\r\n\r\n",
    "a quoted coding": CHUNKS.replace(b"chunked", b'"chunked"') + b"0\r\n\r\n",
    "a coding after a control": CHUNKS.replace(b" chunked", b"\x0bchunked") + b"0\r\n\r\n",
    "no chunk size": CHUNKS + b"\r\nhello\r\n0\r\n\r\n",
    "a chunk size in words": CHUNKS + b"five\r\nhello\r\n0\r\n\r\n",
    "a negative chunk": CHUNKS + b"-5\r\nhello\r\n0\r\n\r\n",
    "a chunk with 0x": CHUNKS + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a huge chunk": CHUNKS + b"1ffffffffffffffff\r\nhello",
    "a chunk that is longer than it says": CHUNKS + b"4\r\nhello\r\n0\r\n\r\n",
    "a line feed in an extension": CHUNKS + b'5;a="b\nc"\r\nhello\r\n0\r\n\r\n',
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID)
def test_what_is_not_http_is_a_failure_with_a_reason(data: bytes) -> None:
    """However it is split: no piece makes it valid."""
    for pieces in [[data], [data[at : at + 1] for at in range(len(data))]]:
        response, _ = parse(pieces)
        assert not response.complete
        assert response.failure.startswith("the response is not valid HTTP: "), response.failure
        assert response.failure.isprintable()


@pytest.mark.parametrize(
    "data",
    [
        SIZED[:-1],
        SIZED[:20],
        CHUNKED[:-1],
        CHUNKED[: CHUNKED.index(b"llo")],
        CHUNKED[: CHUNKED.index(b"0\r\nT")],
        INFORMED[:40],
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"H",
    ],
)
def test_a_response_that_is_cut_off_is_never_complete(data: bytes) -> None:
    response, _ = parse([data])
    assert not response.complete and response.failure == BROKEN


def test_a_connection_that_ends_without_a_byte_is_told_apart() -> None:
    response, _ = parse([])
    assert response.failure == NO_RESPONSE and not response.has_received


def test_a_body_without_a_length_is_complete_only_if_the_connection_ended_in_order() -> None:
    for is_orderly in (True, False):
        response, body = parse([UNTIL_THE_END], end=False)
        assert body == b"hello" and not response.complete
        response.end(is_orderly)
        assert response.complete is is_orderly and bool(response.failure) is not is_orderly


@pytest.mark.parametrize("data", [SIZED, CHUNKED, INFORMED])
@pytest.mark.parametrize("surplus", [SIZED, b"garbage", b"0", b"HTTP/1.1 100 Continue\r\n\r\n"])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_follows_a_response_does_not_change_it_and_is_never_read(
    data: bytes, surplus: bytes, at_once: bool
) -> None:
    other = surplus.replace(b"200", b"500").replace(b"X-A:", b"X-C: c")
    response, body = parse([data + other] if at_once else [data, other])
    assert (response.status, body, response.complete) == (200, b"hello", True)
    assert "x-c" not in response.headers and response.reason == "OK"
    assert response.failure


@pytest.mark.parametrize("split", [1, 1000, 200_000])
@pytest.mark.parametrize(
    "start, repeated",
    [
        (b"HTTP/1.1 200 ", b"reason "),
        (b"HTTP/1.1 200 OK\r\nX: ", b"v" * 100),
        (b"HTTP/1.1 200 OK\r\n", b"n" * 100),
        (b"HTTP/1.1 200 OK\r\n", b"Set-Cookie: a=b\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"\r\n"),
        (CHUNKS + b"1;", b"extension=1;"),
        (CHUNKS + b"1\r\na\r\n0\r\n", b"Trailer: value\r\n"),
        (CHUNKS + b"1\r\na\r\n0\r\nTrailer: ", b"v" * 100),
        (CHUNKS, b"0"),
    ],
    ids=[
        *("reason", "value", "name", "headers", "informational", "empty lines", "extension"),
        *("trailers", "trailer", "chunk size"),
    ],
)
def test_what_is_not_body_is_limited(start: bytes, repeated: bytes, split: int) -> None:
    data = start + repeated * (2 * MAX_HEADER_BYTES // len(repeated) + 200_000 // len(repeated))
    response = ResponseParser()
    tracemalloc.start()
    try:
        for at in range(0, len(data), split):
            response.feed(memoryview(data)[at : at + split])
            if response.failure:
                break
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()
    assert response.failure and not response.complete
    assert at <= len(start) + MAX_HEADER_BYTES + split


def test_the_number_of_headers_is_limited() -> None:
    def respond(count: int) -> ResponseParser:
        lines = b"".join(b"X-%d: 1\r\n" % number for number in range(count - 1))
        return parse([b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 0\r\n\r\n"])[0]

    assert respond(MAX_HEADERS).complete
    assert f"more than {MAX_HEADERS} headers" in respond(MAX_HEADERS + 1).failure


def test_a_long_stream_of_small_chunks_is_not_overhead() -> None:
    response = ResponseParser()
    response.feed(memoryview(CHUNKS))
    for _ in range(MAX_HEADER_BYTES):
        response.feed(memoryview(b"1;extension\r\na\r\n"))
        response.take()
    assert not response.failure


def test_no_bytes_make_the_parser_raise() -> None:
    """Mutations of valid and invalid responses: each ends as complete or as a failure."""
    chance = random.Random(1)
    seeds = [*VALID.values(), *INVALID.values()]
    for _ in range(5000):
        data = bytearray(chance.choice(seeds) + chance.choice([b"", *seeds]))
        for _ in range(chance.randrange(5)):
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[at] = chance.randrange(256)
                case 1:
                    del data[at : at + chance.randrange(1, 9)]
                case 2:
                    data[at:at] = chance.choice([b"\r\n", b"\0", b"0\r\n\r\n", b"HTTP/1.1 200 "])
            if not data:
                break
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(4)))
        edges = [0, *cuts, len(data)]
        response, _ = parse(bytes(data[a:b]) for a, b in pairwise(edges))
        assert response.complete or response.failure
        assert not response.failure or response.failure.isprintable()


# requests


@pytest.mark.parametrize(
    ("url", "origin", "authority", "target"),
    [
        ("http://example.com", ("http", "example.com", 80), "example.com", "/"),
        ("https://Example.com:443/a?b=c", ("https", "example.com", 443), "example.com", "/a?b=c"),
        ("http://h:8080?x", ("http", "h", 8080), "h:8080", "/?x"),
        ("http://[::1]:1/", ("http", "::1", 1), "[::1]:1", "/"),
        ("http://[fe80::1%eth0]/", ("http", "fe80::1%eth0", 80), "[fe80::1]", "/"),
        ("http://h/%2F%zz/a+b", ("http", "h", 80), "h", "/%2F%zz/a+b"),
        ("http://h/é?ü=[]", ("http", "h", 80), "h", "/%C3%A9?%C3%BC=%5B%5D"),
        ('http://h/"<>\\^`{|}', ("http", "h", 80), "h", "/%22%3C%3E%5C%5E%60%7B%7C%7D"),
        ("http://bü.example/", ("http", "xn--b-eha.example", 80), "xn--b-eha.example", "/"),
    ],
)  # fmt: skip
def test_a_url_becomes_a_host_and_a_target(
    url: str, origin: tuple[str, str, int], authority: str, target: str
) -> None:
    assert parse_url(url, url) == (origin, authority, target)


@pytest.mark.parametrize("url", ["ftp://h/", "h/", "http://straße.de/", "http://ａ.example/"])
def test_a_url_that_means_no_host_or_two_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_url(url, url)


def test_a_request_is_written_with_host_and_length() -> None:
    url = parse_url("http://h:1/a", "")
    assert encode_head("POST", url, {"x-a": "é"}, b"12", "") == (
        "POST /a HTTP/1.1\r\nhost: h:1\r\ncontent-length: 2\r\nx-a: é\r\n\r\n".encode()
    )
    assert encode_head("GET", url, {"host": "other"}, None, "") == (
        b"GET /a HTTP/1.1\r\nhost: other\r\n\r\n"
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\ny: b"},
        {"x": "a\n"},
        {"x": "a\r"},
        {"x": "a\0b"},
        {"x": "\x7f"},
        {"x": "\ud800"},
        {"x\r\ny": "a"},
        {"x y": "a"},
        {"x:": "a"},
        {"": "a"},
        {"é": "a"},
        {"content-length": "0"},
        {"transfer-encoding": "chunked"},
        {"b": "é", "transfer-encoding": "chunked"},
    ],
)
def test_a_header_that_could_begin_something_else_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^h: .* (not allowed in headers|the client itself)"):
        encode_head("POST", parse_url("http://h/", "h"), {"a-a": "ok", **headers}, b"", "h")
