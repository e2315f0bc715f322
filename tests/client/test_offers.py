"""What a server offers, as its client knows it."""

import asyncio

import pytest

from dovetail import Client, Server
from dovetail.errors import MethodNotFound, TimedOut
from dovetail.testing import Tape, pair
from tests.behaviour.handmade import discovery, handmade, reply

STATELESS = "2026-07-28"
DISCOVER = "server/discover"


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_a_client_knows_what_its_server_offers(revision: str) -> None:
    server = Server("s")
    server.tool(lambda: "x", name="x")
    client = Client(server, revision=revision)
    assert not client.offers("tools/list")
    async with client:
        assert client.offers("tools/list")
        assert not client.offers("prompts/list")
        # the first revision has completion, but no capability for it
        assert client.offers("completion/complete") is (revision == "2024-11-05")
        with pytest.raises(MethodNotFound):
            client.offers("no/such")


def with_a_tool() -> Server:
    server = Server("s")
    server.tool(lambda: "x", name="x")
    return server


async def list_the_rest(client: Client) -> list[object]:
    """What the client lists of what the server does not have, one after the other."""
    return [
        *await client.list_resources(),
        *await client.list_resource_templates(),
        *await client.list_prompts(),
    ]


async def test_lists_that_are_asked_for_at_the_same_time_share_one_discovery() -> None:
    tape = Tape()
    async with pair(with_a_tool(), revision=STATELESS, record=tape) as client:
        lists = client.list_resources(), client.list_resource_templates(), client.list_prompts()
        assert await asyncio.gather(*lists) == [[], [], []]
    assert tape.methods("client").count(DISCOVER) == 2, "one of them opens the connection"


async def test_a_client_that_is_told_of_changes_asks_only_once_what_is_offered() -> None:
    tape, server = Tape(), with_a_tool()
    async with pair(server, revision=STATELESS, record=tape) as client:
        handles = [client.on_change(kind, print) for kind in ("tools", "resources", "prompts")]
        for handle in handles:
            await handle
        for _ in range(2):
            assert await list_the_rest(client) == []
        assert tape.methods("client").count(DISCOVER) == 2
        changed = asyncio.Event()
        client.on_change("prompts", lambda kind: changed.set())
        server.prompt(lambda: "p", name="p")
        await changed.wait()
        assert [one.name for one in await client.list_prompts()] == ["p"]
        await handles[1].close()
        await asyncio.gather(*(handle.close() for handle in handles))


async def test_a_client_that_is_not_told_of_changes_asks_each_time() -> None:
    server = with_a_tool()
    async with pair(server, revision=STATELESS) as client:
        assert await list_the_rest(client) == []
        server.prompt(lambda: "p", name="p")
        assert [one.name for one in await client.list_prompts()] == ["p"]


async def test_a_change_before_the_stream_was_confirmed_is_not_missed() -> None:
    server = with_a_tool()
    async with pair(server, revision=STATELESS) as client:
        assert await client.list_prompts() == []
        server.prompt(lambda: "p", name="p")
        await client.on_change("prompts", print)
        assert [one.name for one in await client.list_prompts()] == ["p"]


async def test_after_the_stream_has_ended_the_client_asks_again() -> None:
    server = with_a_tool()
    async with pair(server, revision=STATELESS) as client:
        handle = await client.on_change("prompts", print)
        assert await client.list_prompts() == []
        await handle.close()
        await client.ping()
        server.prompt(lambda: "p", name="p")
        assert [one.name for one in await client.list_prompts()] == ["p"]


async def test_a_shared_discovery_outlives_the_caller_that_began_it() -> None:
    async with handmade(capabilities={}) as (client, server):
        first = asyncio.create_task(client.list_prompts())
        asked = await server.receive()
        second = asyncio.create_task(client.list_resources())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        server.send(reply(asked, discovery({})))
        assert await second == []


async def test_each_caller_of_a_shared_discovery_has_its_own_time() -> None:
    async with handmade(capabilities={}) as (client, server):
        patient = asyncio.create_task(client.list_prompts())
        asked = await server.receive()
        with pytest.raises(TimedOut):
            await client.request("resources/list", timeout=0.05)
        server.send(reply(asked, discovery({})))
        assert await patient == []
