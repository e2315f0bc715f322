"""Whatever arrives, the answer is clear (or, for a notification, silence), and the connection lives
on."""

import json
from typing import Any

import pytest

from dovetail.protocol.base import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from dovetail.testing import Bare
from tests.faults.conftest import Wire, alive, call

PARSE, INVALID, UNKNOWN, PARAMS, TOO_LARGE = -32700, -32600, -32601, -32602, -31002
CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}


def request(method: Any, params: Any = None, id: Any = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def nested(depth: int) -> bytes:
    arguments = b'{"text":' + b"[" * depth + b"]" * depth + b"}"
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":'
        + arguments
        + b"}}"
    )


def described(key: str, value: Any) -> dict[str, Any]:
    return request("tools/list", {"_meta": {**META, key: value}})


MALFORMED: dict[str, tuple[bytes | Any, int, Any]] = {
    # bytes that are no JSON
    "half a message": (b'{"jsonrpc":"2.0","id":1,', PARSE, None),
    "no JSON at all": (b"hello?", PARSE, None),
    "nothing but spaces": (b"   ", PARSE, None),
    "a null byte": (b"\0", PARSE, None),
    "two messages on a line": (b'{"jsonrpc":"2.0","id":1,"method":"ping"}' * 2, PARSE, None),
    "a byte order mark": (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', PARSE, None),
    "UTF-16": (json.dumps(request("ping")).encode("utf-16-le"), PARSE, None),
    "bad UTF-8": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff\xfe"}}',
        PARSE,
        None,
    ),
    "a surrogate in UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\xbd"}', PARSE, None),
    "half an escaped pair": (call(1, "echo", text="\ud83d"), PARSE, None),
    "half an escaped pair as method": (request("\udc00"), PARSE, None),
    "a broken escape": (b'{"jsonrpc":"2.0","id":1,"method":"p\\xing"}', PARSE, None),
    "too deep": (nested(100_000), PARSE, None),
    "too deep without end": (b"[" * 100_000, PARSE, None),
    # JSON that is no message
    "a number": (b"1", INVALID, None),
    "a string": (b'"ping"', INVALID, None),
    "null": (b"null", INVALID, None),
    "an empty object": (b"{}", INVALID, None),
    "an empty batch": (b"[]", INVALID, None),
    "a batch where there are none": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', INVALID, None),
    "no version": ({"id": 1, "method": "ping"}, INVALID, 1),
    "the wrong version": ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, INVALID, 1),
    "a version of the wrong type": ({"jsonrpc": 2.0, "id": "x", "method": "ping"}, INVALID, "x"),
    "nothing but a version": ({"jsonrpc": "2.0"}, INVALID, None),
    "a method of the wrong type": (request(["ping"]), INVALID, 1),
    "a null method": (request(None), INVALID, 1),
    "a null id": (request("ping", id=None), INVALID, None),
    "a true id": (request("ping", id=True), INVALID, None),
    "a broken id": (request("ping", id=1.5), INVALID, None),
    "a list as id": (request("ping", id=[1]), INVALID, None),
    # requests that cannot be answered
    "an unknown method": (request("no/such"), UNKNOWN, 1),
    "an empty method": (request(""), UNKNOWN, 1),
    "a notification with an id": (request("notifications/initialized"), UNKNOWN, 1),
    "a request that only servers make": (request("sampling/createMessage", {}), UNKNOWN, 1),
    "a method of another revision": (request("server/discover", {}), UNKNOWN, 1),
    "params in a list": (request("tools/call", ["echo"]), PARAMS, 1),
    "params that are a number": (request("ping", 5), PARAMS, 1),
    "params that lack something": (request("tools/call", {}), PARAMS, 1),
    "params of the wrong type": (request("resources/read", {"uri": None}), PARAMS, 1),
    "an unknown tool": (call(1, "nothing"), PARAMS, 1),
    "an unknown prompt": (request("prompts/get", {"name": "nothing"}), PARAMS, 1),
    "an invented cursor": (request("tools/list", {"cursor": "zzz"}), PARAMS, 1),
    "a level that is none": (request("logging/setLevel", {"level": "loud"}), PARAMS, 1),
    "_meta of the wrong type": (request("tools/list", {"_meta": [1]}), PARAMS, 1),
    "a progress token of the wrong type": (
        request("tools/list", {"_meta": {"progressToken": [1]}}),
        PARAMS,
        1,
    ),
    "a null progress token": (request("tools/list", {"_meta": {"progressToken": None}}), PARAMS, 1),
    "a second greeting": (request("initialize", {}), INVALID, 1),
    # the stateless era
    "a revision of the wrong type": (described(PROTOCOL_VERSION, ["2026-07-28"]), -32022, 1),
    "capabilities of the wrong type": (described(CLIENT_CAPABILITIES, [1]), PARAMS, 1),
    "a client of the wrong type": (described(CLIENT_INFO, 5), PARAMS, 1),
    "an unknown level": (described(LOG_LEVEL, "loud"), PARAMS, 1),
    "a level of the wrong type": (described(LOG_LEVEL, ["debug"]), PARAMS, 1),
}


async def refused(peer: Bare, name: str) -> None:
    message, code, id = MALFORMED[name]
    peer.send(message if isinstance(message, bytes) else json.dumps(message).encode())
    reply = await peer.receive()
    assert reply.keys() == {"jsonrpc", "id", "error"}
    assert (reply["error"]["code"], reply["id"]) == (code, id), name
    said = reply["error"]["message"]
    assert 10 < len(said) < 200, said
    assert "\n" not in said and ". " not in said, "one sentence"
    await alive(peer)


@pytest.mark.requirement(
    "request-id-type",
    "error-shape",
    "error-unreadable-id",
    "method-unknown",
    "progress-token-type",
    "logging-level-invalid",
    "meta-no-assumptions",
)
@pytest.mark.parametrize("name", MALFORMED)
async def test_what_cannot_be_answered_is_refused_once_and_clearly(name: str) -> None:
    async with Wire("memory")() as peer:
        await refused(peer, name)


async def test_one_connection_survives_it_all(wire: Wire) -> None:
    async with wire() as peer:
        for name in MALFORMED:
            await refused(peer, name)
        for message in SILENT.values():
            peer.send(message)
        await alive(peer)


async def test_a_message_over_the_limit_is_skipped_and_said_so(stdio: Wire) -> None:
    async with stdio(incoming=100_000) as peer:
        peer.send(call(1, "echo", text="x" * 300_000))
        reply = await peer.receive()
        assert reply["error"]["code"] == TOO_LARGE
        assert "100000" in reply["error"]["message"]
        await alive(peer)


@pytest.mark.parametrize("depth", [500, 900, 950, 980, 990, 1000])
async def test_depth_near_the_bound_gets_one_answer_too(depth: int) -> None:
    async with Wire("memory")() as peer:
        peer.send(nested(depth))
        assert "method" not in await peer.receive()
        await alive(peer)


@pytest.mark.parametrize(
    "greeting",
    [
        None,
        [],
        {},
        {"protocolVersion": 5, "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}},
        {
            "protocolVersion": "2025-06-18",
            "capabilities": [],
            "clientInfo": {"name": "x", "version": "0"},
        },
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": None},
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": ["x"]}},
        {"mcpVersion": 5},
    ],
)
async def test_a_greeting_that_makes_no_sense_is_refused_and_another_one_taken(
    greeting: Any,
) -> None:
    async with Wire("memory")(version=None) as peer:
        reply = await peer.ask("initialize", greeting)
        assert reply["error"]["code"] == PARAMS
        assert "result" in await peer.greet("2025-06-18")
        await alive(peer)


@pytest.mark.parametrize("depth", [900, 940, 960, 970, 975, 980, 985, 990])
async def test_a_greeting_near_the_bound_of_depth_gets_one_answer_too(depth: int) -> None:
    async with Wire("memory")(version=None) as peer:
        nest = b"[" * depth + b"]" * depth
        peer.send(
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":'
            + nest
            + b"}}"
        )
        assert "error" in await peer.receive()
        assert "result" in await peer.greet("2025-06-18")


async def test_before_the_greeting_requests_are_told_what_is_missing(wire: Wire) -> None:
    async with wire(version=None) as peer:
        reply = await peer.ask("tools/list")
        assert reply["error"]["code"] == PARAMS
        assert "initialize" in reply["error"]["message"]
        assert (await peer.ask("no/such"))["error"]["code"] == UNKNOWN
        peer.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        peer.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        )
        await alive(peer)
        assert "result" in await peer.greet("2025-06-18")


SILENT: dict[str, dict[str, Any]] = {
    "an unknown notification": {"jsonrpc": "2.0", "method": "notifications/nothing"},
    "a request without an id": {"jsonrpc": "2.0", "method": "tools/list"},
    "a notification that only servers send": {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {},
    },
    "the end of another dialect": {"jsonrpc": "2.0", "method": "exit"},
    "a second initialized": {"jsonrpc": "2.0", "method": "notifications/initialized"},
    "cancelling nothing": {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 99},
    },
    "cancelling nonsense": {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": {}},
    },
    "cancelling without saying what": {"jsonrpc": "2.0", "method": "notifications/cancelled"},
    "cancelling in a list": {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]},
    "progress of nothing": {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 5, "progress": 1},
    },
    "progress of nonsense": {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": []},
    },
    "a reply to nothing": {"jsonrpc": "2.0", "id": 77, "result": {}},
    "an error for nothing": {"jsonrpc": "2.0", "id": 77, "error": {"code": 1, "message": "x"}},
    "an error without id": {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "x"},
    },
    "an error that is none": {"jsonrpc": "2.0", "id": 77, "error": 5},
}


@pytest.mark.requirement("notification-silent", "cancel-unknown-ignored")
@pytest.mark.parametrize("name", SILENT)
async def test_what_expects_no_answer_gets_none(name: str) -> None:
    async with Wire("memory")() as peer:
        for _ in range(3):
            peer.send(SILENT[name])
        await alive(peer)
        await alive(peer)


@pytest.mark.requirement("request-id-in-flight", "response-id")
async def test_an_id_in_flight_is_refused_and_an_answered_one_free_again(wire: Wire) -> None:
    async with wire() as peer:
        peer.send(call(1, "waits"))
        assert (await peer.receive())["method"] == "notifications/message"
        refused = await peer.ask("ping", id=1)
        assert refused["error"]["code"] == INVALID
        assert "in flight" in refused["error"]["message"]
        assert (await peer.ask("ping", id="1"))["result"] == {}, 'the string "1" is another id'
        peer.send(call(2, "releases"))
        first, second = await peer.receive(), await peer.receive()
        assert {first["id"], second["id"]} == {1, 2}
        for _ in range(3):
            peer.send(call(1, "add", a=1, b=1))
            assert (await peer.receive())["result"]["content"][0]["text"] == "2"
        await alive(peer)


@pytest.mark.requirement("cancel-race")
async def test_a_call_cancelled_in_the_same_breath_is_not_answered_and_its_id_is_free(
    wire: Wire,
) -> None:
    async with wire() as peer:
        for _ in range(3):
            peer.send(call(1, "waits"))
            peer.send(CANCEL)
            await peer.ask("ping", id="after whatever it said")
            await alive(peer)
        peer.send(call(1, "add", a=1, b=1))
        assert (await peer.receive())["result"]["content"][0]["text"] == "2"
        await alive(peer)


async def test_a_cancelled_call_frees_its_place(wire: Wire) -> None:
    async with wire(in_flight=1) as peer:
        for _ in range(10):
            peer.send(call(1, "waits"))
            assert (await peer.receive())["method"] == "notifications/message"
            peer.send(CANCEL)
            await alive(peer)
            await alive(peer)
        peer.send(call(1, "add", a=1, b=1))
        assert (await peer.receive())["result"]["content"][0]["text"] == "2"
        await alive(peer)


@pytest.mark.requirement("cancel-initialize")
async def test_greeting_and_discovery_cannot_be_cancelled_into_trouble(wire: Wire) -> None:
    async with wire(version=None) as peer:
        info = {"name": "bare", "version": "0"}
        peer.send(
            request(
                "initialize",
                {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info},
            )
        )
        peer.send(CANCEL)
        assert (await peer.receive())["result"]["serverInfo"]["name"] == "misbehaving"
        await alive(peer)


@pytest.mark.parametrize(
    "batch", [[1, "x", None, [], {}], [[1]], [{"jsonrpc": "2.0", "id": 1, "method": 5}]]
)
async def test_garbage_in_a_batch_is_refused_item_by_item(batch: list[Any]) -> None:
    async with Wire("memory")("2025-03-26") as peer:
        peer.send(batch)
        replies = await peer.receive()
        assert [reply["error"]["code"] for reply in replies] == [INVALID] * len(batch)
        await alive(peer)


async def test_a_batch_is_answered_once_whatever_is_in_it(wire: Wire) -> None:
    async with wire("2025-03-26") as peer:
        odd = [
            call(1, "raises", what="SystemExit"),
            call(1, "add", a=1, b=1),
            call(2, "nothing"),
            call(3, "returns", what="knot"),
        ]
        stop = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
        peer.send([*odd, stop, {"jsonrpc": "2.0", "id": 9, "result": {}}, request("ping", id=4)])
        replies = await peer.receive()
        ids = sorted(reply["id"] for reply in replies)
        assert ids in ([1, 1, 2, 3, 4], [1, 1, 2, 4])
        await alive(peer)


async def test_a_thousand_messages_in_one_write_are_each_answered_once_in_spite_of_garbage(
    wire: Wire,
) -> None:
    async with wire() as peer:
        for number in range(1000):
            peer.send(call(number, "add", a=number, b=1))
            peer.send(b"garbage %d" % number)
        replies = [await peer.receive() for _ in range(2000)]
        answers = {
            reply["id"]: reply["result"]["content"][0]["text"]
            for reply in replies
            if "result" in reply
        }
        assert answers == {number: str(number + 1) for number in range(1000)}
        assert sum(reply["id"] is None for reply in replies) == 1000
        await alive(peer)
