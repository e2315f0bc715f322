"""Pings at an interval notice a peer that is gone without a word."""

import asyncio

import pytest

from dovetail import Client, Limits, Server
from dovetail.testing import Bare, Tape, bare, pair
from dovetail.transports import memory
from tests.behaviour import everything

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
