"""What comes over HTTP: heads and bodies on the ladder, event streams, values in headers, and a
whole endpoint.

A request is written as it would be on the wire, a line for the method, one for each header, and the
body behind an empty line, but nothing of HTTP's own rules holds here: servers differ in what they
let through.
"""

import asyncio
import json
from collections.abc import Mapping
from functools import cache
from typing import Any
from zlib import crc32

import msgspec

from dovetail import Limits, Server
from dovetail.jsonrpc.framing import HEAD_BYTES, TooLong
from dovetail.jsonrpc.messages import Malformed, Notification, Request, decode, encode
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, Params
from dovetail.protocol.header_params import HeaderParam
from dovetail.protocol.methods import METHODS
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import OFFICIAL, STATELESS, decode as read
from dovetail.transports.http import event_stream as events
from dovetail.transports.http.headers import MAX_SAFE_INTEGER, decode_value, encode_value, matches
from dovetail.transports.http.server import message_checks, policy

from .engine import Target
from .messages import corpus
from .mutator import TEXTS, Mutator

NEWEST = STATELESS[-1].version
META = {PROTOCOL_VERSION: NEWEST, CLIENT_CAPABILITIES: {}}
USUAL = {
    "host": "127.0.0.1:8000",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": NEWEST,
}
HEADERS = (
    "origin: http://localhost:3000",
    "origin: https://app.example.com",
    "origin: null",
    "host: [::1]:80",
    "host: mcp.example.com.",
    "host: evil.example",
    "accept: */*;q=0.1, text/*;q=0",
    "accept: text/html",
    "content-length: 12",
    "content-length: -1",
    "content-length: 99999999999999999999999",
    "content-type: application/json; charset=utf-8",
    "content-encoding: gzip",
    "mcp-protocol-version: 2025-11-25",
    "mcp-protocol-version: 1",
    "mcp-session-id: abc",
    "last-event-id: 7",
    "mcp-method: ping",
    "mcp-name: add",
    "mcp-name: =?base64?YWRk?=",
    "mcp-param-region: eu",
    "mcp-param-count: 42.0",
    "authorization: Bearer x",
)
METHODS_OF_HTTP = (*["POST"] * 16, "GET", "DELETE", "PUT", "")
LADDER = policy.Policy(
    OFFICIAL,
    limits=Limits(incoming=10_000),
    hosts=["*.example.com"],
    origins=["https://app.example.com", "http://localhost:*"],
)
MIRRORS = (
    HeaderParam("Region", ("region",), "string"),
    HeaderParam("Count", ("deep", "count"), "integer"),
)
STATUSES = {200, 202, 204, 400, 403, 404, 405, 406, 408, 413, 415, 421, 429, 500, 503}
EVENT = HEAD_BYTES + 44
"""The bound of events in the target for streams."""


# requests


def _request(message: Any) -> tuple[dict[str, str], Any]:
    """A message as a request of the stateless era, and the headers that go with it."""
    params = message.get("params") or {}
    message = message | {"params": params | {"_meta": META | params.get("_meta", {})}}
    headers = USUAL | {"mcp-method": str(message.get("method"))}
    name = params.get("name", params.get("uri", params.get("taskId")))
    if isinstance(name, str):
        headers["mcp-name"] = name
    return headers, message


def make_request(rng: Mutator) -> bytes:
    """A request of either era, with headers that are gone, come twice, or say something else."""
    headers, message = _request(rng.pick(_requests()))
    lines = [f"{name}: {value}" for name, value in headers.items()]
    for _ in range(rng.pick((0, 0, 1, 1, 2, 3))):
        at = int(rng.random() * len(lines))
        other = rng.pick(HEADERS)
        name = other.partition(":")[0]
        lines = rng.pick(
            (
                lines[:at] + lines[at + 1 :] or [other],
                [line for line in lines if not line.startswith(name)] + [other],
                [line for line in lines if not line.startswith(name)] + [other],
                [*lines, other],
                [*lines[:at], rng.text(lines[at]), *lines[at + 1 :]],
            )
        )
    method = rng.pick(METHODS_OF_HTTP)
    head = "\n".join([method, *lines]).encode("latin-1", "replace")
    return (
        head + b"\n\n" + (rng.json(message) if rng.random() < 0.5 else json.dumps(message).encode())
    )


@cache
def _requests() -> list[Any]:
    called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call = called | {"params": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    found = [
        message for revision in OFFICIAL for message in corpus(revision) if "method" in message
    ]
    return found + [call] * len(found)


def parsed(data: bytes) -> tuple[str, list[tuple[bytes, bytes]], bytes]:
    """Method, headers and body of a request as above."""
    head, _, body = data.partition(b"\n\n")
    method, *lines = head.split(b"\n")
    fields = (line.partition(b":") for line in lines)
    return (
        method.decode("latin-1"),
        [(name.lower().strip(), value.strip(b" ")) for name, _, value in fields],
        body,
    )


def check_ladder(data: bytes) -> bool:
    """A head passes or is refused by a row, the same way each time; what passes by the short way
    passes all rungs."""
    method, headers, body = parsed(data)
    LADDER.remembered.clear()
    head = policy.check_head(LADDER, method, headers)
    assert (
        _told(policy.check_head(LADDER, method, headers)) == _told(head)
        and len(LADDER.remembered) <= 1
    )
    if isinstance(head, policy.Rejection):
        _refused(head, policy.HEAD)
        return False
    try:
        message = decode(body)
    except Malformed:
        return False
    if not isinstance(message, Request | Notification):
        return message_checks.check_bare(LADDER, head) is None
    row, asks = METHODS.get(message.method), isinstance(message, Request)
    try:
        params: Params = read(message.params, Params if row is None else row.params)
    except msgspec.MsgspecError:
        return False
    verdict = message_checks.check_message(LADDER, head, message.method, params, request=asks)
    if verdict is not None:
        _refused(verdict, (*message_checks.STATELESS, *message_checks.HANDSHAKE))
        return False
    if asks and message_checks.is_stateless(head, params.meta):
        said = message_checks.MessageFacts(message.method, params, params.meta or {})
        assert [
            rung.name
            for rung in message_checks.STATELESS
            if rung.check(LADDER, head, said) is not None
        ] == []
    if not isinstance(params, CallToolParams):
        return True
    refused = message_checks.check_header_params(head, MIRRORS, params.arguments)
    assert refused is None or refused.status == 400
    return refused is None


def _told(verdict: policy.RequestHead | policy.Rejection) -> Any:
    return (
        verdict
        if isinstance(verdict, policy.RequestHead)
        else (verdict.status, verdict.headers, str(verdict.error), verdict.error.data)
    )


def _refused(verdict: policy.Rejection, rungs: tuple[policy.Rung, ...]) -> None:
    assert (verdict.status, type(verdict.error)) in {(rung.status, rung.error) for rung in rungs}
    assert 0 < len(verdict.error.message) < 1000 and encode(verdict.error.data)
    assert not any(
        b"\n" in value or b"\r" in value
        for name, value in verdict.headers
        if name != b"access-control-allow-origin"
    )


# values in headers


def make_value(rng: Mutator) -> bytes:
    """What may stand in an `Mcp-Param-*` header."""
    value = rng.pick(
        (
            "plain",
            " led by a space",
            "Grüße",
            "=?base64?",
            "=?base64?R3LDvMOfZQ==?=",
            "42",
            "-0",
            "042.00",
            "true",
            *TEXTS[:20],
        )
    )
    text = value if rng.random() < 0.5 else _encoded(value)
    data = text.encode("utf-8", "surrogatepass")
    return rng.garbled(data) if rng.random() < 0.8 else data


def _encoded(value: str) -> str:
    try:
        return encode_value(value)
    except UnicodeEncodeError:  # half a character stands nowhere
        return value


def check_value(data: bytes) -> bool:
    """Any text goes into a header and comes out of it; any header has one meaning, or none."""
    text = data.decode("utf-8", "replace")
    sent = encode_value(text)
    assert sent.isascii() and sent.isprintable() and sent == sent.strip()
    assert decode_value(sent) == text and matches(text, sent)
    number = int.from_bytes(data[:9], "big", signed=True)
    if abs(number) <= MAX_SAFE_INTEGER:
        assert (
            matches(number, encode_value(number))
            and matches(number, f"{number}.0")
            and not matches(number, str(number + 1))
        )
    raw = data.decode("latin-1")
    try:
        meant = decode_value(raw)
    except ValueError:
        return False
    assert matches(meant, raw) and decode_value(encode_value(meant)) == meant
    return True


# event streams


def make_stream(rng: Mutator) -> bytes:
    """Events, some too long, with all line ends there are."""
    made = []
    for _ in range(rng.pick((1, 2, 4))):
        data = rng.pick(
            (
                b"",
                b'{"jsonrpc":"2.0"}',
                b"x" * EVENT,
                b"x" * (EVENT + 1),
                b"a\nb",
                "Grüße".encode(),
                b"y" * 1000,
            )
        )
        id, retry = rng.pick((None, "1", "é", "5" * 4096, "")), rng.pick((None, 0, 1500, 10**9))
        made.append(
            events.event(data, id=id, name=rng.pick((None, "message", "endpoint")), retry=retry)
        )
    stream = b"".join(made).replace(b"\n", rng.pick((b"\n", b"\r\n", b"\r")))
    stream = rng.pick((b"", b"", b"\xef\xbb\xbf", b":\n\n")) + stream
    return rng.garbled(stream) if rng.random() < 0.7 else stream


def check_stream(data: bytes) -> bool:
    """However the bytes are cut, the events are the same; each of them, written again, is read as
    it was."""
    rng = Mutator(crc32(data))
    found = events.EventStreamParser(EVENT).feed(data)
    reader = events.EventStreamParser(EVENT)
    assert [event for chunk in rng.chunks(data) for event in reader.feed(chunk)] == found
    for event in found:
        if isinstance(event.data, TooLong):
            assert len(event.data.head) <= HEAD_BYTES
        elif (
            b"\n" not in event.data
            and b"\r" not in event.data
            and len((event.id or "").encode()) <= events.MAX_ID_BYTES
        ):
            again = events.event(event.data, id=event.id, name=event.name, retry=event.retry)
            assert events.EventStreamParser(EVENT + 1).feed(again) == [event]
    return bool(found)


# a whole endpoint


@cache
def _endpoint() -> tuple[Any, asyncio.AbstractEventLoop]:
    """A server, and a loop to run it in: nothing but it happens there."""
    server = Server("fuzzed", version="1", limits=Limits(incoming=100_000, stream_after=60.0))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.resource("item://{id}/name")
    async def name(id: str) -> str:
        return id

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello {name}"

    return server.asgi(json_only=True, sessions=False), asyncio.new_event_loop()


def check_endpoint(data: bytes) -> bool:
    """Whatever is posted is answered once, with a status that is listed, and with the id that was
    asked under or none."""
    method, headers, body = parsed(data)
    app, loop = _endpoint()
    answers: list[Mapping[str, Any]] = []
    received = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        message = next(received, None)
        return message if message is not None else await loop.create_future()

    async def send(message: Mapping[str, Any]) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "scheme": "http",
        "method": method,
        "path": "/",
        "query_string": b"",
        "headers": headers,
    }
    loop.run_until_complete(app(scope, receive, send))
    start, *rest = answers
    assert [start["type"]] + [one["type"] for one in rest] == [
        "http.response.start",
        *["http.response.body"] * len(rest),
    ]
    assert rest and not rest[-1].get("more_body") and start["status"] in STATUSES
    said = b"".join(one.get("body", b"") for one in rest)
    if dict(start["headers"]).get(b"content-type") == b"application/json":
        _answered(said, body)
    return bool(start["status"] < 300)


def _answered(said: bytes, body: bytes) -> None:
    replies = json.loads(said)
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    ids = [
        one.get("id") if isinstance(one, dict) else None
        for one in (asked if isinstance(asked, list) else [asked])
    ]
    for reply in replies if isinstance(replies, list) else [replies]:
        assert reply["jsonrpc"] == "2.0" and ("result" in reply) != ("error" in reply)
        assert reply.get("id") is None or reply["id"] in ids


TARGETS = (
    Target("http ladder", make_request, check_ladder, 100_000),
    Target("http endpoint", make_request, check_endpoint, 30_000),
    Target("header values", make_value, check_value, 100_000),
    Target("event streams", make_stream, check_stream, 40_000),
)
