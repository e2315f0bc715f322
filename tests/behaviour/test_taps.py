"""What a tap sees: every message as it was sent, on every transport and in every revision."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from dovetail import Client, Limits, Server
from dovetail.errors import ConnectFailed
from dovetail.ports import Direction, Tap
from dovetail.testing import Tape
from tests.behaviour import everything
from tests.behaviour.conftest import Talk
from tests.ports import free_port


def by_sender(tape: Tape, sender: str) -> "Counter[bytes]":
    return Counter(data for who, data in tape.entries if who == sender)


async def test_a_tap_sees_every_message_as_it_was_sent(talk: Talk) -> None:
    tape, started = Tape(), asyncio.Event()
    async with talk(tap=tape, on_log=lambda entry: started.set()) as client:
        await client.list_tools()
        await client.call_tool("steps", {"count": 3}, on_progress=lambda update: None)
        await client.call_tool("shout", {"text": "żółw\u2028"})
        waiting = asyncio.create_task(client.call_tool("wait"))
        await started.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        await client.call_tool("given_up")
    for sender in ("client", "server"):
        assert by_sender(tape, sender) == by_sender(talk.tape, sender)
    assert tape.losses == []


class Times(Tap):
    """A tap that implements only one of the methods."""

    def __init__(self) -> None:
        self.seen: list[tuple[Direction, float]] = []

    def message(self, direction: Direction, data: bytes, at: float) -> None:
        self.seen.append((direction, at))


async def test_each_message_has_its_direction_and_time() -> None:
    tap, before = Times(), time.time()
    async with Client(everything.build(), tap=tap) as client:
        await client.call_tool("add", {"a": 1})
    assert [direction for direction, _ in tap.seen] == ["to_server", "to_client"] * 2
    times = [before, *(at for _, at in tap.seen), time.time()]
    assert times == sorted(times)


class Broken:
    """A tap whose methods all raise."""

    def message(self, *seen: Any) -> None:
        raise RuntimeError("this tap is broken")

    exchange = auth_step = lost = message


async def test_a_tap_that_raises_is_logged_once_and_breaks_nothing(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    async with talk(tap=Broken()) as client:
        assert (await client.call_tool("add", {"a": 1})).text == "2"
        await client.list_tools()
    assert len([one for one in caplog.records if "is broken" in (one.exc_text or "")]) == 1


async def test_a_reply_that_is_too_long_is_lost(in_memory: Talk) -> None:
    tape = Tape()
    async with in_memory(tap=tape, limits=Limits(incoming=20_000)) as client:
        with pytest.raises(Exception, match="exceeds the limit"):
            await client.call_tool("shout", {"text": "x" * 30_000})
    (lost,) = tape.losses
    assert (
        lost.direction == "to_client" and lost.data.startswith(b"{") and "too long" in lost.reason
    )


async def test_a_tap_sees_all_connections_of_a_client() -> None:
    server, tape = Server("short"), Tape()
    async with Client(server, tap=tape) as client:
        await client.ping()
        session = client._connector.session
        assert session is not None
        await session.connection.close(ConnectionError("lost"))
        await client.ping()
    opened = [one for one in tape.methods("client") if one in ("server/discover", "initialize")]
    assert len(opened) >= 2


async def test_over_http_a_tap_sees_every_request(talk: Talk) -> None:
    tape = Tape()
    on_http = talk.facts.url is not None
    options = {"headers": {"X-Api-Key": "hunter2", "X-Team": "blue"}} if on_http else {}
    async with talk(tap=tape, **options) as client:
        for number in range(5):
            await client.call_tool("add", {"a": number})
    if not on_http:
        assert tape.exchanges == []
        return
    assert all(one.request_headers["x-team"] == "blue" for one in tape.exchanges)
    assert all(one.request_headers["x-api-key"] == "***" for one in tape.exchanges)
    assert all(one.started <= one.ended for one in tape.exchanges)
    if talk.transport == "websocket":
        (only,) = tape.exchanges
        assert (only.method, only.status) == ("GET", 101) and only.url.startswith("ws://")
        return
    posts = [one for one in tape.exchanges if one.method == "POST" and (one.status or 500) < 300]
    assert len(posts) == len(tape.messages("client"))
    assert all(one.response_headers for one in posts)
    carried = Counter((one.message_id, one.message_method) for one in posts)
    sent = Counter((one.get("id"), one.get("method")) for one in tape.messages("client"))
    assert carried == sent, "each request names the message that it carried"
    others = [one for one in tape.exchanges if one.method != "POST"]
    assert not any(one.message_id or one.message_method for one in others)


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_request_that_fails_has_an_error_and_no_status(scheme: str) -> None:
    tape, url = Tape(), f"{scheme}://127.0.0.1:{free_port()}/mcp?token=hunter2"
    with pytest.raises(ConnectFailed):
        await Client(url, tap=tape).connect()
    assert tape.exchanges
    for one in tape.exchanges:
        assert one.status is None and "connection refused" in (one.error or "")
        assert one.url.endswith("?token=***")


async def test_a_request_that_is_cancelled_has_an_error() -> None:
    tape, started = Tape(), asyncio.Event()
    talk = Talk("http", "2026-07-28")
    async with talk(tap=tape, on_log=lambda entry: started.set()) as client:
        await client.call_tool("add", {"a": 1})
        waiting = asyncio.create_task(client.call_tool("block"))
        while not any("block" in data.decode() for _, data in tape.entries):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert any("closed the connection" in (one.error or "") for one in tape.exchanges)
