"""Calls of a handshake-era server that are held while a caller of the stateless era answers. Each
of them is sent to the server once, whatever happens."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dovetail import Client, Context, Limits, Server
from dovetail.connection import bus_requests
from dovetail.connection.bus_requests import BusRequests
from dovetail.gateway.gateway import Gateway
from dovetail.ports import Bus
from tests.behaviour.web import on_a_port
from tests.gateway.stage import OPTIONS
from tests.server.test_subscription_counts import on_a_bus

from .serving import ORDER, answer_to, ask_order, asking_server, post, recorded, served

HANDSHAKE = "2025-11-25"


async def send(url: str, params: Any) -> Any:
    """Send a tool call, and return the decoded reply."""
    return (await asyncio.to_thread(post, url, "tools/call", params))[1]


async def test_a_call_that_expired_is_cancelled_at_the_server_and_not_sent_again() -> None:
    events: list[str] = []
    async with recorded(asking_server(HANDSHAKE, events)) as (up, _):
        source = {"mcpServers": {"up": {"url": up}}}
        async with served(source, limits=Limits(parked_time=1)) as (_, url):
            question, state = await ask_order(url)
            async with asyncio.timeout(60):
                while "cancelled" not in events:
                    await asyncio.sleep(0.02)
            reply = await send(url, answer_to(question, state))
    assert "may have taken effect" in reply["error"]["message"]
    assert events == ["called", "cancelled"]


async def test_a_call_that_another_process_held_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", "k" * 43)
    events: list[str] = []
    async with recorded(asking_server(HANDSHAKE, events)) as (up, _):
        source = {"mcpServers": {"up": {"url": up}}}
        async with served(source) as (_, url), served(source) as (_, other):
            question, state = await ask_order(url)
            reply = await send(other, answer_to(question, state))
            assert "may have taken effect" in reply["error"]["message"]
            assert events == ["called"]
            reply = await send(url, answer_to(question, state))
            assert reply["result"]["content"][0]["text"] == "3 tea"
    assert events == ["called"]


async def test_an_answer_that_is_sent_twice_joins_the_same_call() -> None:
    events: list[str] = []
    async with recorded(asking_server(HANDSHAKE, events)) as (up, _):
        source = {"mcpServers": {"up": {"url": up}}}
        async with served(source) as (_, url):
            params = answer_to(*await ask_order(url))
            replies = await asyncio.gather(send(url, params), send(url, params))
            replies.append(await send(url, params))  # the result is kept
    assert [one["result"]["content"][0]["text"] for one in replies] == ["3 tea"] * 3
    assert events == ["called"]


# calls that are cancelled


def working_server(events: list[str]) -> Server:
    """A server with a tool that works for ever once its question is answered."""
    server = Server("up", revisions=[HANDSHAKE])

    @server.tool
    async def order(ctx: Context, what: str) -> None:
        answer = await ctx.elicit("How much?", int)
        events.append(f"works on {answer.data}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    return server


class Worker:
    """A gateway, as one of several processes of the same gateway."""

    def __init__(self, up: str, bus: Callable[[], Awaitable[Bus]] | None = None) -> None:
        gateway = Gateway({"mcpServers": {"up": {"url": up}}}, **OPTIONS)
        self.app = gateway.asgi("/mcp", hosts="*", bus=bus)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Worker":
        place = await self._stack.enter_async_context(on_a_port(self.app))
        self.url = f"http://{place}/mcp"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def send(self, params: Any) -> "asyncio.Task[Any]":
        """Send a call in the background. To cancel the task is to leave before the reply."""
        client = await self._stack.enter_async_context(Client(self.url))
        return asyncio.ensure_future(client.relay("tools/call", params))

    async def has_waiting(self, number: int) -> None:
        """Wait until this many requests wait for the reply of the call that is held."""
        (held,) = (await self.app.start())._round_trips._held._held.values()
        async with asyncio.timeout(60):
            while held.waiting != number:
                await asyncio.sleep(0.02)


async def until(events: list[str], event: str) -> None:
    async with asyncio.timeout(30):  # less than a call may take
        while event not in events:
            await asyncio.sleep(0.02)


async def test_a_call_is_cancelled_when_the_last_request_that_joined_it_is() -> None:
    events: list[str] = []
    async with recorded(working_server(events)) as (up, _), Worker(up) as worker:
        params = answer_to(*await ask_order(worker.url))
        first = await worker.send(params)
        await until(events, "works on 3")
        second = await worker.send(params)
        await worker.has_waiting(2)
        first.cancel()
        await worker.has_waiting(1)
        assert events == ["works on 3"]
        second.cancel()
        await until(events, "cancelled")


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_a_call_that_another_worker_holds_is_cancelled_with_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", "k" * 43)
    events: list[str] = []
    async with (
        recorded(working_server(events)) as (up, _),
        on_a_bus() as bus,
        Worker(up, bus) as one,
        Worker(up, bus) as other,
    ):
        request = await other.send(answer_to(*await ask_order(one.url)))
        await until(events, "works on 3")
        await one.has_waiting(1)
        request.cancel()
        await until(events, "cancelled")


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_a_reply_of_another_worker_may_take_longer_than_a_question_on_the_bus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", "k" * 43)
    monkeypatch.setattr(bus_requests, "REPEAT_SECONDS", 0.2)
    repeated, done, on_repeat = list[str](), asyncio.Event(), BusRequests._on_repeat

    def count(self: BusRequests, id: str) -> Any:
        repeated.append(id)
        return on_repeat(self, id)

    monkeypatch.setattr(BusRequests, "_on_repeat", count)
    server = Server("up", revisions=[HANDSHAKE])

    @server.tool
    async def order(ctx: Context, what: str) -> str:
        answer = await ctx.elicit("How much?", int)
        await done.wait()
        return f"{answer.data} {what}"

    async with (
        recorded(server) as (up, _),
        on_a_bus() as bus,
        Worker(up, bus) as one,
        Worker(up, bus) as other,
    ):
        request = await other.send(answer_to(*await ask_order(one.url)))
        async with asyncio.timeout(60):
            while len(repeated) < 2:
                await asyncio.sleep(0.02)
        await one.has_waiting(1)
        done.set()
        assert b"3 tea" in bytes(await request)


async def test_if_too_many_calls_are_held_the_newest_is_refused() -> None:
    events: list[str] = []
    async with recorded(asking_server(HANDSHAKE, events)) as (up, _):
        source = {"mcpServers": {"up": {"url": up}}}
        limits = Limits(parked=2, parked_each=100)
        async with served(source, limits=limits, rates=None) as (_, url):
            held = [await ask_order(url) for _ in range(2)]
            reply = await send(url, ORDER)
            assert "Limits.parked)" in reply["error"]["message"]
            for question, state in held:
                reply = await send(url, answer_to(question, state))
                assert reply["result"]["content"][0]["text"] == "3 tea"
    assert events.count("called") == 3
