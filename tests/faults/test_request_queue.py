"""Requests beyond `Limits.in_flight` wait in a queue that is bounded in bytes, and nothing else
waits there.

A call of `closes_the_gate` keeps the calls of `passes_the_gate` running until it is cancelled, so
each test decides when a place becomes free.
"""

import asyncio
import contextvars
import subprocess
from collections import Counter
from typing import Any

import msgspec
from websockets.asyncio.client import connect as dial

from dovetail import Limits, Server
from dovetail.connection.connection import CALL_BYTES
from dovetail.ports import OnClose, Receive
from dovetail.testing import Bare, bare, pair
from tests.behaviour.handmade import handmade
from tests.behaviour.web import on_a_port
from tests.faults.conftest import COMMAND, ROOT, Wire, alive, call

BURST = 20_000
OVERLOADED = -31001
GREETING = {
    "jsonrpc": "2.0",
    "id": "greeting",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "0"},
    },
}


def cancelled(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def numbered(number: int, **more: Any) -> dict[str, Any]:
    return call(number, "passes_the_gate", number=number, **more)


async def close_gate(peer: Bare) -> None:
    peer.send(call("gate", "closes_the_gate"))
    await alive(peer)


async def replies(peer: Bare, count: int) -> list[Any]:
    return [await peer.receive(60) for _ in range(count)]


async def test_a_burst_of_twenty_thousand_requests_is_answered_completely(
    every_wire: Wire,
) -> None:
    async with every_wire() as peer:
        await close_gate(peer)
        for number in range(BURST):
            peer.send(numbered(number))
        peer.send({"jsonrpc": "2.0", "id": "all arrived", "method": "ping"})
        assert await peer.receive(60) == {"jsonrpc": "2.0", "id": "all arrived", "result": {}}
        peer.send(cancelled("gate"))
        seen = await replies(peer, BURST)
        assert Counter(reply["id"] for reply in seen) == Counter(range(BURST))
        assert all(reply["result"]["content"][0]["text"] == str(reply["id"]) for reply in seen)
        await alive(peer)


async def test_queued_requests_are_started_in_the_order_of_their_arrival(
    every_wire: Wire,
) -> None:
    async with every_wire(in_flight=2) as peer:
        await close_gate(peer)
        for number in range(100):
            peer.send(numbered(number))
        await alive(peer)
        peer.send(cancelled("gate"))
        assert [reply["id"] for reply in await replies(peer, 100)] == list(range(100))
        await alive(peer)


async def test_a_new_request_does_not_overtake_queued_ones(every_wire: Wire) -> None:
    async with every_wire(in_flight=50) as peer:
        await close_gate(peer)
        for number in range(89):  # of which forty wait
            peer.send(numbered(number))
        await alive(peer)
        peer.send(cancelled("gate"))
        assert (await peer.receive())["id"] == 0
        peer.send(numbered(89))
        assert [reply["id"] for reply in await replies(peer, 89)] == list(range(1, 90))


async def test_a_full_queue_refuses_what_is_too_much_and_loses_nothing(every_wire: Wire) -> None:
    size = len(msgspec.json.encode(numbered(99))) + CALL_BYTES
    async with every_wire(in_flight=3, queued_bytes=10 * size, shutdown=0.1) as peer:
        for _ in range(3):
            await close_gate(peer)
            for number in range(20, 40):  # two run, ten wait, eight are too many
                peer.send(numbered(number))
            refused = await replies(peer, 8)
            assert [reply["id"] for reply in refused] == list(range(32, 40))
            for reply in refused:
                assert reply["error"]["code"] == OVERLOADED
                assert reply["error"]["data"] == {"retryAfter": 1}
                assert "the limit is 3" in reply["error"]["message"]
            await alive(peer)
            peer.send(cancelled("gate"))
            assert [reply["id"] for reply in await replies(peer, 12)] == list(range(20, 32))
            await alive(peer)


async def test_long_requests_take_more_of_the_queue(wire: Wire) -> None:
    async with wire(in_flight=1, queued_bytes=100_000, shutdown=0.1) as peer:
        await close_gate(peer)
        for number in range(3):
            peer.send(numbered(number, padding="x" * 60_000))
        assert [reply["id"] for reply in await replies(peer, 2)] == [1, 2]
        peer.send(numbered(3, padding="x" * 10_000))
        peer.send(cancelled("gate"))
        assert [reply["id"] for reply in await replies(peer, 2)] == [0, 3]


async def test_a_cancelled_request_leaves_the_queue_and_its_room_is_free(every_wire: Wire) -> None:
    size = len(msgspec.json.encode(numbered(99))) + CALL_BYTES
    async with every_wire(in_flight=1, queued_bytes=10 * size) as peer:
        await close_gate(peer)
        for _ in range(3):
            for number in range(10, 20):
                peer.send(numbered(number))
            for number in range(10, 20):
                peer.send(cancelled(number))
            await alive(peer)
        for number in range(20, 30):
            peer.send(numbered(number))
        peer.send(cancelled(25))
        await alive(peer)
        peer.send(cancelled("gate"))
        expected = [number for number in range(20, 30) if number != 25]
        assert [reply["id"] for reply in await replies(peer, 9)] == expected
        await alive(peer)


async def test_a_queued_request_that_is_cancelled_in_the_draft_dialect_is_acknowledged() -> None:
    async with bare(_gated(Limits(in_flight=1, shutdown=0.1))) as peer:
        greeting = {
            "mcpVersion": "2025-06-18",
            "clientCapabilities": {"supportsCancellation": True},
        }
        await peer.ask("initialize", greeting, id="greeting")
        peer.send({"jsonrpc": "2.0", "method": "initialized", "params": {}})
        for id, tool in ((1, "closes_the_gate"), (2, "passes_the_gate"), (3, "passes_the_gate")):
            params = {"name": tool, "arguments": {} if id == 1 else {"number": id}}
            peer.send({"jsonrpc": "2.0", "id": id, "method": "tools/invoke", "params": params})
        for id in (2, 1):
            peer.send({"jsonrpc": "2.0", "method": "cancel", "params": {"id": id}})
            reply = await peer.receive()
            assert (reply["id"], reply["result"]["status"]) == (id, "cancelled")
        assert (await peer.receive())["id"] == 3


async def test_the_id_of_a_queued_request_is_in_flight(every_wire: Wire) -> None:
    async with every_wire(in_flight=1) as peer:
        await close_gate(peer)
        peer.send(numbered(1))
        for again in (numbered(1), {"jsonrpc": "2.0", "id": 1, "method": "ping"}):
            peer.send(again)
            refused = await peer.receive()
            assert (refused["id"], refused["error"]["code"]) == (1, -32600)
            assert "in flight" in refused["error"]["message"]
        peer.send(cancelled("gate"))
        assert (await peer.receive())["result"]["structuredContent"] == {"result": 1}
        await alive(peer)


async def test_what_needs_no_place_does_not_wait(every_wire: Wire) -> None:
    async with every_wire(in_flight=1, queued_bytes=1000, shutdown=0.1) as peer:
        await close_gate(peer)
        peer.send(numbered(1))
        await alive(peer)
        assert (await peer.ask("no/such", id=2))["error"]["code"] == -32601
        assert (await peer.ask("tools/call", {"name": 5}, id=3))["error"]["code"] == -32602
        assert (await peer.ask("tools/list", id=4))["error"]["code"] == OVERLOADED
        await alive(peer)


async def test_an_answer_to_a_question_does_not_wait(every_wire: Wire) -> None:
    async with every_wire(None, in_flight=1, queued_bytes=1000) as peer:
        await peer.greet("2025-06-18", {"roots": {}})
        peer.send(call(1, "counts_roots"))
        question = await peer.receive()
        assert question["method"] == "roots/list"
        peer.send(call(2, "add", a=1, b=2))
        assert (await peer.ask("tools/list", id=3))["error"]["code"] == OVERLOADED
        peer.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
        first, second = await replies(peer, 2)
        assert (first["id"], first["result"]["structuredContent"]) == (1, {"result": 0})
        assert (second["id"], second["result"]["structuredContent"]) == (2, {"result": 3})


async def test_the_requests_of_a_batch_wait_and_are_answered_together(every_wire: Wire) -> None:
    async with every_wire("2025-03-26", in_flight=2) as peer:
        await close_gate(peer)
        peer.send([numbered(number) for number in range(50)])
        peer.send(cancelled(7))
        await alive(peer)
        peer.send(cancelled("gate"))
        answers = await peer.receive()
        assert {one["id"] for one in answers} == set(range(50)) - {7}
        await alive(peer)


def test_what_waits_when_stdin_ends_is_answered() -> None:
    lines = [GREETING, *(call(number, "add", a=number, b=1) for number in range(100))]
    server = subprocess.run(
        COMMAND,
        cwd=ROOT,
        env={"LIMITS": '{"in_flight": 1, "shutdown": 20}'},
        input=b"".join(msgspec.json.encode(line) + b"\n" for line in lines),
        stdout=subprocess.PIPE,
        timeout=60,
    )
    seen = [msgspec.json.decode(line)["id"] for line in server.stdout.splitlines()]
    assert seen == ["greeting", *range(100)]


def _gated(limits: Limits, started: list[int] | None = None) -> Server:
    """A server that notes which of its calls were started."""
    server, opened = Server("s", limits=limits), asyncio.Event()

    @server.tool
    async def closes_the_gate() -> None:
        try:
            await asyncio.Future()
        finally:
            opened.set()

    @server.tool
    async def passes_the_gate(number: int, size: int = 0) -> str:
        if started is not None:
            started.append(number)
        await opened.wait()
        return "x" * size

    return server


async def test_the_queue_of_a_client_that_disconnects_is_dropped() -> None:
    started: list[int] = []
    server = _gated(Limits(in_flight=3), started)
    async with on_a_port(server.asgi(websocket=True)) as address:
        async with dial(f"ws://{address}/ws", proxy=None) as peer:
            await peer.send(msgspec.json.encode(GREETING), text=True)
            for number in range(50):
                await peer.send(msgspec.json.encode(numbered(number)), text=True)
            await peer.send('{"jsonrpc": "2.0", "id": "ping", "method": "ping"}')
            while msgspec.json.decode(await peer.recv())["id"] != "ping":
                pass
    assert started == [0, 1, 2]


class BreakingChannel:
    """A channel that the test breaks while calls are running."""

    def start(self, receive: Receive, ended: OnClose) -> None:
        self.receive, self.ended = receive, ended

    def send(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    async def close(self) -> None: ...


async def test_no_queued_call_is_started_after_the_connection_broke() -> None:
    started: list[int] = []
    server, channel = _gated(Limits(in_flight=2, shutdown=20), started), BreakingChannel()
    serving = asyncio.create_task(server.serve(channel))
    while not hasattr(channel, "receive"):
        await asyncio.sleep(0)
    for message in (GREETING, call("gate", "closes_the_gate"), *map(numbered, range(10))):
        channel.receive(msgspec.json.encode(message))
    while not started:
        await asyncio.sleep(0)
    channel.receive(msgspec.json.encode(cancelled("gate")))
    channel.ended(BrokenPipeError("gone"))
    await asyncio.wait_for(serving, 10)
    assert started == [0]


async def test_queued_requests_wait_for_a_client_that_does_not_read() -> None:
    started: list[int] = []
    server = _gated(Limits(in_flight=2, write_buffer=50_000), started)
    async with on_a_port(server.asgi(websocket=True)) as address:
        async with dial(f"ws://{address}/ws", proxy=None, max_queue=4, compression=None) as peer:
            await peer.send(msgspec.json.encode(GREETING), text=True)
            await peer.send(msgspec.json.encode(call("gate", "closes_the_gate")), text=True)
            for number in range(500):
                await peer.send(msgspec.json.encode(numbered(number, size=100_000)), text=True)
            await peer.send('{"jsonrpc": "2.0", "id": "ping", "method": "ping"}')
            while msgspec.json.decode(await peer.recv())["id"] != "ping":
                pass
            await peer.send(msgspec.json.encode(cancelled("gate")), text=True)
            count = 1
            while count != len(started) or count == 1:
                count = len(started)
                await asyncio.sleep(0.3)
            assert count < 400, "forty megabytes were prepared for a client that does not read"
            seen = [msgspec.json.decode(await peer.recv())["id"] for _ in range(500)]
            assert seen == started == list(range(500))


async def test_a_queued_call_runs_in_the_context_of_its_own_message() -> None:
    server, current = (
        Server("s", limits=Limits(in_flight=1)),
        contextvars.ContextVar[str]("current"),
    )

    @server.tool
    async def remember(text: str) -> str:
        before = current.get("nothing")
        current.set(text)
        await asyncio.sleep(0)
        return before

    async with bare(server) as peer:
        await peer.greet("2025-06-18")
        for number in range(5):
            peer.send(call(number, "remember", text=str(number)))
        texts = [reply["result"]["content"][0]["text"] for reply in await replies(peer, 5)]
        assert texts == ["nothing"] * 5


async def test_the_time_in_the_queue_does_not_count_towards_a_tools_timeout() -> None:
    server = _gated(Limits(in_flight=1))

    @server.tool(timeout=0.2)
    async def returns_at_once() -> str:
        return "in time"

    async with bare(server) as peer:
        await peer.greet("2025-06-18")
        await close_gate(peer)
        peer.send(call(1, "returns_at_once"))
        await asyncio.sleep(0.5)
        peer.send(cancelled("gate"))
        assert (await peer.receive())["result"]["content"][0]["text"] == "in time"


async def test_a_client_sends_again_what_did_not_fit() -> None:
    server = Server("s", limits=Limits(in_flight=1, queued_bytes=0))

    @server.tool
    async def takes_a_moment(number: int) -> int:
        await asyncio.sleep(0.01)
        return number

    async with pair(server) as client:
        calls = [client.call_tool("takes_a_moment", {"number": number}) for number in range(3)]
        assert [result.data for result in await asyncio.gather(*calls)] == [0, 1, 2]


async def test_the_questions_of_a_server_wait_in_the_client_too() -> None:
    opened = asyncio.Event()
    running = most = 0

    async def on_sample(request: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await opened.wait()
        running -= 1
        return "answer"

    limits = Limits(in_flight=2, queued_bytes=100_000)
    async with handmade("2025-06-18", on_sample=on_sample, limits=limits) as (_, server):
        params = {"messages": [], "maxTokens": 1}
        for number in range(10):
            server.send(
                {
                    "jsonrpc": "2.0",
                    "id": number,
                    "method": "sampling/createMessage",
                    "params": params,
                }
            )
        await alive(server)
        opened.set()
        seen = await replies(server, 10)
        assert Counter(reply["id"] for reply in seen) == Counter(range(10))
        assert all("result" in reply for reply in seen)
        assert most == 2
