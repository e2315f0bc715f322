"""Pings at an interval notice a peer that is gone without a word."""

import asyncio

import pytest

from dovetail import Client, Limits, Server
from dovetail.connection import connection
from dovetail.ports import PIPE, WEBSOCKET
from dovetail.testing import Bare, Tape, bare, pair
from dovetail.transports import memory
from tests.behaviour import everything
from tests.transports.http.raw import hosted

QUICK = Limits(ping_interval=0.01, ping_timeout=0.05)


@pytest.mark.requirement("ping-interval")
@pytest.mark.requirement("ping")
async def test_a_client_pings_its_server_at_an_interval(revision: str) -> None:
    tape = Tape()
    async with pair(
        everything.build(), revision=revision, record=tape, limits=Limits(ping_interval=0.01)
    ) as client:
        name = "server/discover" if revision >= "2026" else "ping"
        while tape.methods("client").count(name) < 3:
            await asyncio.sleep(0.01)
        assert client.state == "connected"


@pytest.mark.requirement("ping-dead")
@pytest.mark.requirement("ping")
async def test_a_server_closes_on_a_client_that_does_not_answer() -> None:
    async with bare(Server("s", limits=QUICK)) as peer:
        await peer.greet("2025-06-18")
        assert (await peer.receive())["method"] == "ping"
        await peer.ended


@pytest.mark.requirement("ping-dead")
@pytest.mark.requirement("ping")
async def test_a_client_notices_that_its_server_is_gone() -> None:
    ours, theirs = memory.pair()
    peer = Bare(theirs)
    client = Client(ours, revision="2025-06-18", limits=QUICK)
    lost = asyncio.Event()
    client.on_change("state", lambda state: lost.set() if state == "disconnected" else None)
    opening = asyncio.create_task(client.connect())
    asked = await peer.receive()
    answer = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "serverInfo": {"name": "s", "version": "0"},
    }
    peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    await opening
    await lost.wait()
    await client.close()


@pytest.mark.requirement("ping-interval")
@pytest.mark.parametrize("kind", ["websocket", "get stream", "pipe"])
async def test_pings_are_sent_by_default_on_long_connections(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.PING_SECONDS == 30
    monkeypatch.setattr(connection, "PING_SECONDS", 0.02)
    server = Server("s")
    if kind == "get stream":
        async with hosted(server) as site:
            session = await site.greet("2025-06-18")
            stream = await session.listen()
            for _ in range(3):
                ping = (await stream.next()).message
                assert ping["method"] == "ping"
                answer = {"jsonrpc": "2.0", "id": ping["id"], "result": {}}
                assert (await session.post(answer)).status == 202
        return
    ours, theirs = memory.pair()
    theirs.network = WEBSOCKET if kind == "websocket" else PIPE  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve(theirs))
    peer = Bare(ours)
    await peer.greet("2025-06-18")
    if kind == "websocket":
        for _ in range(3):
            ping = await peer.receive()
            assert ping["method"] == "ping"
            peer.send({"jsonrpc": "2.0", "id": ping["id"], "result": {}})
    else:
        await asyncio.sleep(0.1)
        assert (await peer.ask("ping", id=7))["id"] == 7, "and nothing before it"
    await peer.close()
    await serving


async def test_pings_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(ping_interval=float("inf"))
    assert connection.choose_ping_interval(limits, is_long_connection=True) is None


async def test_a_get_stream_whose_client_does_not_answer_pings_is_closed() -> None:
    async with hosted(Server("s", limits=QUICK)) as site:
        session = await site.greet("2025-06-18")
        stream = await session.listen()
        assert (await stream.next()).message["method"] == "ping"
        assert await stream.rest() == []
        assert (await session.ask("tools/list")).status == 200, "the session lives on"
