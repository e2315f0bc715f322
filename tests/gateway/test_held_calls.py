"""Calls of a handshake-era server that are held while a caller of the stateless era answers. Each
of them is sent to the server once, whatever happens."""

import asyncio
from typing import Any

import pytest

from dovetail import Limits

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
