"""Small requests on a connection that is open: no task waits for their responses, unless a response
needs one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.errors import ConnectionClosed, InvalidRequest, TimedOut
from dovetail.transports.http.client.channel import HttpChannel
from dovetail.transports.http.client.http_transport import HttpTransport
from dovetail.transports.http.client.messages import HeaderParams
from tests.transports.http.scripted import Asked, Script, Scripted, modern, old
from tests.transports.http.test_client_messages import DONE, OLD_DONE, served


def tasks() -> list[str]:
    """The tasks that post a message."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name == "HttpChannel._deliver"]


async def as_json(asked: Asked, result: Any) -> None:
    await asked.result(result)


async def as_stream(asked: Asked, result: Any) -> None:
    await asked.stream()
    await asked.event(asked.reply(result))
    await asked.end()


async def in_pieces(asked: Asked, result: Any) -> None:
    body = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": []}}' % asked.message["id"]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    await asked.raw(head % len(body) + body[:10])
    await asyncio.sleep(0.05)
    await asked.raw(body[10:])


@pytest.mark.parametrize(("greet", "done"), [(modern, DONE), (old, OLD_DONE)])
async def test_no_task_waits_for_the_response(
    greet: Callable[[Asked], Awaitable[bool]], done: Any
) -> None:
    go = asyncio.Event()

    async def script(asked: Asked) -> None:
        if asked.rpc == "ping":
            await asked.result({})
        elif not await greet(asked):
            await go.wait()
            await asked.result(done)

    async with Scripted(script) as server, Client(server.url) as client:
        await client.ping()  # until the handshake is over
        call = asyncio.create_task(client.call_tool("x"))
        await server.until("tools/call")
        assert tasks() == []
        go.set()
        assert (await call).data == "done"


@pytest.mark.parametrize("respond", [as_json, as_stream, in_pieces])
async def test_a_response_in_any_form_is_read_and_the_connection_is_used_again(
    respond: Callable[[Asked, Any], Awaitable[None]],
) -> None:
    async def answer(asked: Asked) -> None:
        await respond(asked, DONE)

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        for _ in range(3):
            await client.call_tool("x")
        assert len(server.heard("tools/call")) == 3
    assert tasks() == []


async def test_no_more_requests_are_in_flight_than_the_limit_with_many_open_connections() -> None:
    running = most = 0
    limit = 4

    async def answer(asked: Asked) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        await asked.result(DONE)

    async with Scripted(served(answer)) as server:
        async with Client(server.url, limits=Limits(in_flight=limit)) as client:
            for _ in range(3):
                await asyncio.gather(*(client.call_tool("x") for _ in range(3 * limit)))
    assert most == limit


async def test_a_request_waits_although_more_connections_are_idle() -> None:
    """Notifications open connections, too, and are not limited."""
    running = most = 0
    together = asyncio.Event()

    async def script(asked: Asked) -> None:
        nonlocal running, most
        if asked.rpc == "note":
            if len(server.heard("note")) == 3:
                together.set()
            await together.wait()
            await asked.answer(202)
            return
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        await asked.result({})

    received: list[Any] = []
    limits = Limits(in_flight=1)
    async with Scripted(script) as server:
        transport = HttpTransport(server.url, limits)
        channel = HttpChannel(transport, limits, False, HeaderParams(1))
        channel.start(received.append, lambda reason: None)
        channel.send(b'{"jsonrpc":"2.0","id":1,"method":"x"}')
        await channel.drain()
        for _ in range(3):
            channel.send(b'{"jsonrpc":"2.0","method":"note"}')
        while len(server.heard("note")) < 3 or tasks():
            await asyncio.sleep(0.01)
        for id in range(2, 5):
            channel.send(b'{"jsonrpc":"2.0","id":%d,"method":"x"}' % id)
        while len(received) < 4:
            await asyncio.sleep(0.01)
        await channel.close()
    assert most == 1


async def test_a_redirect_is_followed_and_remembered() -> None:
    moved = False

    async def script(asked: Asked) -> None:
        if moved and asked.path == "/mcp":
            await asked.answer(307, headers={"Location": "/new"})
        elif not await modern(asked):
            await asked.result(DONE)

    async with Scripted(script) as server, Client(server.url) as client:
        await client.call_tool("x")
        moved = True
        before = len(server.asked)
        await client.call_tool("x")
        await client.call_tool("x")
        assert {one.path for one in server.asked[before:-2]} == {"/mcp"}
        assert [one.path for one in server.asked[-2:]] == ["/new", "/new"]


async def test_a_body_without_the_response_is_an_error_and_nothing_is_left() -> None:
    async def answer(asked: Asked) -> None:
        await asked.json({"jsonrpc": "2.0", "id": "other", "result": {}})

    async with Scripted(served(answer)) as server, Client(server.url, timeout=20) as client:
        with pytest.raises(InvalidRequest, match="does not contain the response"):
            await client.call_tool("x")
        await client.ping()


async def test_a_connection_that_breaks_fails_only_its_request() -> None:
    async def answer(asked: Asked) -> None:
        if asked.message["params"]["name"] == "cut":
            await asked.cut()
        else:
            await asyncio.sleep(0.05)
            await asked.result(DONE)

    async with Scripted(served(answer)) as server, Client(server.url) as client:
        await asyncio.gather(*(client.call_tool("x") for _ in range(2)))
        others = [asyncio.create_task(client.call_tool("x")) for _ in range(2)]
        with pytest.raises(ConnectionClosed):
            await client.call_tool("cut")
        assert [(await other).data for other in others] == ["done", "done"]


async def test_a_request_that_times_out_hangs_up_and_frees_its_slot() -> None:
    script: Script = served(lambda asked: asked.hung_up.wait())  # type: ignore[arg-type,return-value]
    async with Scripted(script) as server:
        async with Client(server.url, limits=Limits(in_flight=1)) as client:
            for count in (1, 2):
                with pytest.raises(TimedOut):
                    await client.call_tool("x", timeout=0.3)
                await (await server.until("tools/call", count)).hung_up.wait()
            await client.ping()
