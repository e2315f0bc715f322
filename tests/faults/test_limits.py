"""Every bound holds, and reaching one gives a clear error to whoever caused it, and to nobody else.

Bounds that need a process or a lying server are tested where those are: `incoming` in
test_hostile_messages.py, `write_buffer` and `shutdown` in test_stdio_process.py, `pages`,
`restarts`, `probe_timeout` and `timeout_max` in test_client_faults.py, `isolated` and
`isolated_memory` in tests/server/test_isolation.py, pings in test_heartbeat.py.
"""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail import Client, Context, Limits, Server
from dovetail.errors import InvalidRequest, Overloaded, SchemaError, TooLarge
from dovetail.ports import Call
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from dovetail.testing import Tape, bare, pair
from tests.behaviour.web import on_a_port
from tests.faults.conftest import Wire, alive, call
from tests.faults.fakes import fake, heard

OVERLOADED = -31001
META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}


def test_every_bound_is_a_positive_number_by_default() -> None:
    values = msgspec.structs.asdict(Limits())
    assert values.pop("ping_interval") is None, "pings are for those who want them"
    for name, value in values.items():
        assert 0 < value < float("inf"), name


async def test_requests_beyond_those_in_flight_are_refused_until_one_is_answered(
    wire: Wire,
) -> None:
    async with wire(in_flight=3, queued_bytes=0) as peer:
        for id in range(3):
            peer.send(call(id, "blocks"))
        for _ in range(5):
            refused = await peer.ask("tools/list", id="more")
            assert refused["error"]["code"] == OVERLOADED
            assert "the limit is 3" in refused["error"]["message"]
            await alive(peer)
        peer.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}}
        )
        await alive(peer)
        await alive(peer)
        assert "result" in await peer.ask("tools/call", {"name": "releases"}, id="release")
        await peer.ask("ping", id="after those that were released")


async def test_calls_beyond_the_queue_for_threads_are_refused_and_the_others_answered() -> None:
    server = Server("s", limits=Limits(threads=2, thread_queue=3))
    running, go_on = threading.Semaphore(0), threading.Event()

    @server.tool
    def block() -> str:
        running.release()
        go_on.wait()
        return "done"

    async with pair(server) as client:
        try:
            calls = [asyncio.create_task(client.call_tool("block")) for _ in range(2)]
            for _ in calls:
                await asyncio.to_thread(running.acquire)
            calls += [asyncio.create_task(client.call_tool("block")) for _ in range(10)]
            while sum(call.done() for call in calls) < 7:
                await asyncio.sleep(0)
        finally:
            go_on.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        refused = [result for result in results if isinstance(result, BaseException)]
        assert [type(error) for error in refused] == [Overloaded] * 7, "two run, three wait"
        assert "3 calls are already waiting" in str(refused[0])
        assert (await client.call_tool("block")).text == "done"


async def test_no_more_functions_run_at_once_than_there_are_threads() -> None:
    server = Server("s", limits=Limits(threads=3, thread_queue=100))
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3)

    @server.tool
    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(10)
        with lock:
            running -= 1

    async with pair(server) as client:
        await asyncio.gather(*(client.call_tool("count") for _ in range(30)))
    assert most == 3


async def test_a_connection_subscribes_to_so_much_and_no_more(wire: Wire) -> None:
    async with wire(subscriptions=2) as peer:
        for uri in ("x://1", "x://2", "x://1"):
            assert "result" in await peer.ask("resources/subscribe", {"uri": uri})
        refused = await peer.ask("resources/subscribe", {"uri": "x://3"})
        assert refused["error"]["code"] == OVERLOADED
        assert "2" in refused["error"]["message"]
        assert "result" in await peer.ask("resources/unsubscribe", {"uri": "x://1"})
        assert "result" in await peer.ask("resources/subscribe", {"uri": "x://3"})


async def test_a_stream_names_so_many_resources_and_no_more(wire: Wire) -> None:
    async with wire(version=None, subscriptions=2) as peer:
        uris = ["x://1", "x://2", "x://3"]
        params = {"_meta": META, "notifications": {"resourceSubscriptions": uris}}
        assert (await peer.ask("subscriptions/listen", params))["error"]["code"] == OVERLOADED
        await alive(peer)


async def test_a_flood_of_progress_is_thinned_out_but_ends_with_the_last() -> None:
    server = Server("s", limits=Limits(progress_interval=60))

    @server.tool
    async def flood(ctx: Context) -> None:
        for step in range(1, 10_001):
            ctx.progress(step)

    tape, updates = Tape(), []
    async with pair(server, revision="2025-06-18", record=tape) as client:
        await client.call_tool("flood", on_progress=lambda update: updates.append(update.progress))
    assert updates == [1, 10_000]
    assert tape.methods("server").count("notifications/progress") == 2


async def test_a_request_over_the_limit_is_refused_before_it_is_sent() -> None:
    server, tape = Server("s"), Tape()

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with pair(server, record=tape, limits=Limits(outgoing=10_000)) as client:
        before = len(tape.entries)
        with pytest.raises(TooLarge, match="10000"):
            await client.call_tool("echo", {"text": "x" * 20_000})
        assert len(tape.entries) == before
        assert (await client.call_tool("echo", {"text": "x"})).text == "x"


async def test_log_messages_over_the_limit_are_dropped_and_the_answer_comes() -> None:
    server = Server("s", limits=Limits(outgoing=10_000))

    @server.tool
    async def shout(ctx: Context) -> str:
        ctx.info("x" * 20_000)
        ctx.info("small")
        return "done"

    logs: list[Any] = []
    async with pair(server, on_log=lambda entry: logs.append(entry.data)) as client:
        assert (await client.call_tool("shout")).text == "done"
    assert logs == ["small"]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"inner": schema}}
    return schema


WIDE = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(200)}}


@pytest.mark.parametrize(
    ("schema", "limits"), [(nested(10), Limits(schema_depth=5)), (WIDE, Limits(schema_nodes=100))]
)
async def test_schemas_beyond_the_bounds_are_refused_by_the_strict_and_borne_by_the_rest(
    schema: Any, limits: Limits
) -> None:
    server = Server("s")

    @server.tool(output_schema=schema)
    async def odd() -> dict[str, Any]:
        return {"inner": {}}

    async with pair(server, limits=limits, validate="strict") as client:
        await client.list_tools()
        with pytest.raises(SchemaError, match="odd"):
            await client.call_tool("odd")
    async with pair(server, limits=limits) as client:
        await client.list_tools()
        assert (await client.call_tool("odd")).data == {"inner": {}}


async def test_a_server_that_only_ever_asks_back_is_given_up(tmp_path: Path) -> None:
    code = """
    def discover(request):
        stamp = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        reply(request, {**stamp, "supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES})
    def ask(request):
        question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
        reply(request, {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"})
    serve(server__discover=discover, ask=ask)
    """  # noqa: E501
    asked: list[Any] = []
    limits = Limits(rounds=4, shutdown=0.3)
    async with Client(
        fake(tmp_path, code), limits=limits, on_elicit=lambda question: asked.append(question) or {}
    ) as client:
        with pytest.raises(InvalidRequest, match="tools/call"):
            await client.call_tool("ask")
    assert len(asked) == 4
    assert len(heard(tmp_path, "tools/call")) == 5


async def test_an_answer_over_the_bound_ends_the_request_that_it_answers() -> None:
    server = Server("big")

    @server.tool
    async def big() -> str:
        return "x" * 5000

    async with pair(server, revision="2025-06-18", limits=Limits(incoming=1000)) as client:
        with pytest.raises(TooLarge, match="exceeds the limit of 1000 bytes"):
            await client.call_tool("big")
        await client.ping()


async def test_a_request_over_the_bound_is_refused_under_its_own_id() -> None:
    async with bare(Server("small", limits=Limits(incoming=1000))) as peer:
        await peer.greet("2025-06-18")
        reply = await peer.ask("tools/call", {"name": "x" * 2000}, id="mine")
        assert reply["error"]["code"] == TooLarge.code
        peer.send({"jsonrpc": "2.0", "id": 3})
        assert (await peer.receive())["error"]["code"] == -32600


async def test_a_question_over_the_bound_leaves_nothing_to_wait_for() -> None:
    left: list[Any] = []

    async def look(call: Call, next: Any) -> Any:
        try:
            return await next(call)
        finally:
            left.append({**call.connection.session.open_requests})

    server = Server("wordy", limits=Limits(outgoing=1000), middleware=[look])

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("x" * 5000, bool)).action

    async with on_a_port(server.asgi("/mcp")) as address:
        async with Client(
            f"http://{address}/mcp", revision="handshake", on_elicit=lambda _: True
        ) as client:
            with pytest.raises(TooLarge, match="the limit is 1000"):
                await client.call_tool("ask")
    assert left == [{}]
