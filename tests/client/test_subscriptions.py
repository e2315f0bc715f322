"""What a client wants to hear of, when streams end, servers change, and nobody is there yet."""

import asyncio
from typing import Any

import pytest

from dovetail import Client
from dovetail.client.targets import Target
from dovetail.errors import ConnectionClosed, MethodNotFound
from dovetail.protocol.base import SUBSCRIPTION_ID
from dovetail.testing import Bare
from dovetail.transports import memory
from tests.behaviour.handmade import (
    OFFERED,
    complete,
    discovery,
    handmade,
    notification,
    refusal,
    reply,
)


def acknowledged(request: Any, **granted: Any) -> dict[str, Any]:
    meta = {SUBSCRIPTION_ID: request["id"]}
    return notification(
        "notifications/subscriptions/acknowledged", notifications=granted, _meta=meta
    )


async def test_a_stream_that_is_opened_again_is_held_to_its_own_acknowledgement() -> None:
    async with handmade() as (client, server):
        handle = client.on_change("tools", print)
        first = await server.receive()
        server.send(acknowledged(first, toolsListChanged=True))
        await handle
        server.send(reply(first, complete()))
        second = await server.receive()
        server.send(acknowledged(second))
        with pytest.raises(MethodNotFound, match="does not report changes to tools"):
            await handle
        assert (await server.receive())["method"] == "notifications/cancelled"


async def test_a_handle_of_a_client_that_is_not_connected_waits_until_it_is_and_hears() -> None:
    ours, theirs = memory.pair()
    client, server = Client(ours, revision="2026-07-28"), Bare(theirs)
    handle = client.on_change("tools", print)
    waiting = asyncio.ensure_future(_awaited(handle))
    server.send(reply(await server.receive(), discovery()))
    asked = await server.receive()
    assert (asked["method"], waiting.done()) == ("subscriptions/listen", False)
    server.send(acknowledged(asked, toolsListChanged=True))
    assert await waiting is handle
    await client.close()


async def _awaited(handle: Any) -> Any:
    return await handle


async def test_what_was_a_stream_is_a_subscription_where_the_next_server_is_of_the_other_era() -> (
    None
):
    servers: asyncio.Queue[Bare] = asyncio.Queue()

    async def open_() -> Any:
        ours, theirs = memory.pair()
        servers.put_nowait(Bare(theirs))
        return ours

    client, heard = Client(memory.pair()[0]), asyncio.Queue[str]()
    client._connector.target = Target("x", open_)
    subscribing = asyncio.create_task(client.subscribe("x:y", heard.put_nowait))
    server = await servers.get()
    server.send(reply(await server.receive(), discovery()))
    server.send(acknowledged(await server.receive(), resourceSubscriptions=["x:y"]))
    handle = await subscribing
    await server._channel.close()

    server = await servers.get()
    server.send(refusal(await server.receive(), -32601))
    info = {"name": "old", "version": "0"}
    old = {"protocolVersion": "2025-11-25", "capabilities": OFFERED, "serverInfo": info}
    server.send(reply(await server.receive(), old))
    assert (await server.receive())["method"] == "notifications/initialized"
    again = await server.receive()
    assert again["method"] == "resources/subscribe"
    server.send(reply(again, {}))
    server.send(notification("notifications/resources/updated", uri="x:y"))
    assert await heard.get() == "x:y"
    closing = asyncio.create_task(handle.close())
    last = await server.receive()
    assert last["method"] == "resources/unsubscribe"
    server.send(reply(last, {}))
    await closing
    await client.close()


async def test_lists_that_are_watched_together_share_one_stream() -> None:
    changed = list[str]()
    async with handmade() as (client, server):
        handles = [client.on_change(kind, changed.append) for kind in KINDS]
        asked = await server.receive()
        assert asked["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourcesListChanged": True,
            "promptsListChanged": True,
        }
        server.send(acknowledged(asked, toolsListChanged=True, promptsListChanged=True))
        await handles[0]
        await handles[2]
        with pytest.raises(MethodNotFound, match="does not report changes to resources"):
            await handles[1]
        for kind in KINDS:
            server.send(change(asked, kind))
        server.send(change({"id": "another"}, "tools"))
        await client_has_read(client, server)
        assert changed == ["tools", "prompts"]


async def test_a_shared_stream_ends_with_the_last_subscription_on_it() -> None:
    changed = list[str]()
    async with handmade() as (client, server):
        first, second = (client.on_change(kind, changed.append) for kind in ("tools", "prompts"))
        asked = await server.receive()
        server.send(acknowledged(asked, toolsListChanged=True, promptsListChanged=True))
        await first
        await first.close()
        server.send(change(asked, "tools"))
        server.send(change(asked, "prompts"))
        await client_has_read(client, server)
        assert changed == ["prompts"]
        await second.close()
        ended = await server.receive()
        assert ended["method"] == "notifications/cancelled"
        assert ended["params"]["requestId"] == asked["id"]


async def test_a_list_that_is_watched_already_needs_no_further_stream() -> None:
    changed = list[str]()
    async with handmade() as (client, server):
        first = client.on_change("tools", changed.append)
        asked = await server.receive()
        server.send(acknowledged(asked, toolsListChanged=True))
        await first
        await client.on_change("tools", changed.append)
        server.send(change(asked, "tools"))
        await client_has_read(client, server)
        assert changed == ["tools", "tools"]


async def test_a_list_that_is_watched_later_has_a_stream_of_its_own() -> None:
    async with handmade() as (client, server):
        await watched(client, server, "tools")
        later = client.on_change("prompts", print)
        asked = await server.receive()
        assert asked["params"]["notifications"] == {"promptsListChanged": True}
        await later.close()
        assert (await server.receive())["method"] == "notifications/cancelled"


async def test_a_subscription_that_is_closed_before_it_is_confirmed_does_not_keep_anyone_waiting() -> (  # noqa: E501
    None
):
    async with handmade() as (client, server):
        handle = client.on_change("tools", print)
        waiting = asyncio.create_task(_awaited(handle))
        await server.receive()
        await handle.close()
        with pytest.raises(ConnectionClosed, match="was closed"):
            await waiting


KINDS = ("tools", "resources", "prompts")


def change(request: Any, kind: str) -> dict[str, Any]:
    meta = {SUBSCRIPTION_ID: request["id"]}
    return notification(f"notifications/{kind}/list_changed", _meta=meta)


async def watched(client: Client, server: Bare, kind: Any) -> Any:
    """A subscription that the server has confirmed."""
    handle = client.on_change(kind, print)
    server.send(acknowledged(await server.receive(), **{f"{kind}ListChanged": True}))
    return await handle


async def client_has_read(client: Client, server: Bare) -> None:
    """Wait until the client has read everything that the server has sent."""
    asking = asyncio.create_task(client.ping())
    server.send(reply(await server.receive(), discovery()))
    await asking
