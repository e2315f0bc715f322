"""WebSocket and the old pair as parts of an application: how many there may be, what they hear, how
they end."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect as dial
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dovetail import Limits, Server
from dovetail.connection.bus import Hub, join, private_socket
from dovetail.ports import Bus
from tests.transports.http.raw import INFO, Answer, Site, Stage, request
from tests.transports.test_websocket import listening

GREETING = request(
    "initialize", {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": INFO}, 0
)
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CHANGED = "notifications/tools/list_changed"


@asynccontextmanager
async def served(server: Server, **options: Any) -> AsyncIterator[tuple[Any, Site]]:
    """The application and where it is, with both kinds of conversation."""
    app = server.asgi("/mcp", sse=True, websocket=True, **options)
    async with listening(app) as (port, _):
        site = Site(port)
        try:
            yield app, site
        finally:
            for writer in site.open:
                writer.close()
            await app.close()


@asynccontextmanager
async def socket_to(site: Site) -> AsyncIterator[ClientConnection]:
    """A WebSocket, with hands shaken."""
    async with dial(f"ws://127.0.0.1:{site.port}/ws", proxy=None, close_timeout=1) as peer:
        await peer.send(json.dumps(GREETING))
        await peer.recv()
        await peer.send(json.dumps(READY))
        yield peer


async def pair_to(site: Site) -> Answer:
    """The event stream of a pair, with hands shaken."""
    stream = await site.send("GET", {}, path="/sse")
    endpoint = (await stream.next()).data
    assert (await site.post(GREETING, path=endpoint)).status == 202
    await stream.next()
    assert (await site.post(READY, path=endpoint)).status == 202
    return stream


async def test_closing_ends_every_conversation_and_is_no_error_of_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(Stage().server) as (app, site), socket_to(site) as peer:
        stream = await pair_to(site)
        await app.close()
        with pytest.raises(ConnectionClosed):
            await peer.recv()
        assert await stream.rest() == []
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_conversation_that_is_given_up_by_the_host_ends() -> None:
    left, hosts = asyncio.Event(), list[asyncio.Task[Any]]()
    app = Stage().server.asgi("/mcp", websocket=True)

    async def host(scope: Any, receive: Any, send: Any) -> None:
        hosts.append(asyncio.current_task() or hosts[0])
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            left.set()

    async with listening(host) as (port, _), socket_to(Site(port)) as peer:
        hosts[0].cancel()
        await left.wait()
        with pytest.raises(ConnectionClosed):
            await peer.recv()
        await app.close()


async def test_websockets_beyond_the_limit_are_put_off_until_one_ends() -> None:
    async with served(Stage(limits=Limits(streams=2)).server) as (app, site):
        async with socket_to(site), socket_to(site):
            with pytest.raises(InvalidStatus) as refused:
                async with socket_to(site):
                    pass
            assert refused.value.response.status_code == 503
            assert b"Limits.streams" in (refused.value.response.body or b"")
        here = await app.start()
        while here.is_full:
            await asyncio.sleep(0.01)
        async with socket_to(site):
            pass


async def test_a_change_in_another_process_reaches_every_kind_of_client() -> None:
    path, waiting = private_socket()
    hub = Hub()
    await hub.start(waiting)

    async def bus() -> Bus:
        return await join(path)

    one, other = Stage().server, Stage().server
    try:
        async with (
            served(one, bus=bus) as (app, site),
            served(other, bus=bus) as (elsewhere, _),
            socket_to(site) as peer,
        ):
            await elsewhere.start()
            stream = await pair_to(site)
            session = await site.greet()
            standing = await session.listen()
            other.remove_tool("add")
            assert json.loads(await peer.recv())["method"] == CHANGED
            assert (await stream.next()).message["method"] == CHANGED
            assert (await standing.next()).message["method"] == CHANGED
            await peer.close()
            while len(app._current._listeners) > 1:
                await asyncio.sleep(0.01)
    finally:
        await hub.close()
        shutil.rmtree(os.path.dirname(path))


async def test_a_client_that_leaves_in_the_middle_of_a_message_to_a_pair_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(Stage().server) as (_, site):
        for sent in (b"", b'{"jsonrpc"'):
            head = {"Content-Type": "application/json", "Content-Length": "100"}
            _, writer = await site.begin("POST", head, None, "/message?session_id=x")
            writer.write(sent)
            await writer.drain()
            writer.transport.abort()
        await pair_to(site)
    assert not caplog.records
