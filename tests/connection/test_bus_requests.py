"""Requests to other processes that take longer than a question on the bus may take."""

import asyncio
import sys
import time
from typing import Any

import pytest

from dovetail.connection import bus, bus_requests
from dovetail.connection.bus_requests import BusRequests
from dovetail.errors import InvalidParams, ProtocolError, ToolError

from .test_bus import Place, place

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")


class Process:
    """A process that works on requests until it is told to go on."""

    def __init__(self, name: str) -> None:
        self.name, self.received = name, list[Any]()
        self.go_on, self.stopped = asyncio.Event(), asyncio.Event()
        self.requests = BusRequests("work", self.answer)

    async def join(self, here: Place) -> "Process":
        self.bus = await here.member()
        self.requests.connect(self.bus)
        return self

    async def answer(self, payload: Any) -> bytes | None:
        if payload != self.name:
            return None
        self.received.append(payload)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return b"done"


@pytest.fixture(autouse=True)
def short_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "QUESTION_LIFE", 0.4)
    monkeypatch.setattr(bus_requests, "REPEAT_SECONDS", 0.2)


async def until_received(process: Process) -> None:
    async with asyncio.timeout(60):
        while not process.received:
            await asyncio.sleep(0.01)


async def test_a_reply_may_take_longer_than_the_bus_remembers_a_question() -> None:
    async with place() as here:
        one, two, _ = [await Process(name).join(here) for name in ("one", "two", "three")]
        reply = asyncio.create_task(one.requests.ask("two", 30))
        await until_received(two)
        await asyncio.sleep(1)  # several repetitions
        two.go_on.set()
        assert await reply == b"done"
        assert two.received == ["two"]


@pytest.mark.parametrize(("life", "expected"), [(60.0, b"done"), (0.0, None)])
async def test_a_request_is_not_processed_again_if_its_reply_comes_when_the_asker_asks_again(
    life: float, expected: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if the reply was forgotten in the meantime."""
    monkeypatch.setattr(bus_requests, "QUESTION_LIFE", life)
    async with place() as here:
        one, two = [await Process(name).join(here) for name in ("one", "two")]
        reply = asyncio.create_task(one.requests.ask("two", 30))
        await until_received(two)
        two.go_on.set()
        time.sleep(0.3)  # a busy machine: the reply is sent when the asker has lost its patience
        async with asyncio.timeout(60):
            assert await reply == expected
            assert two.received == ["two"]
            while two.requests._running:  # the reply is not kept
                await asyncio.sleep(0.01)


async def test_a_request_that_nobody_can_answer_fails_at_once() -> None:
    async with place() as here:
        one, _ = [await Process(name).join(here) for name in ("one", "two")]
        async with asyncio.timeout(60):
            assert await one.requests.ask("three", 3600) is None
    assert await BusRequests("work", one.answer).ask("one", 3600) is None


async def test_a_request_fails_if_the_process_that_works_on_it_leaves() -> None:
    async with place() as here:
        one, two, _ = [await Process(name).join(here) for name in ("one", "two", "three")]
        reply = asyncio.create_task(one.requests.ask("two", 3600))
        await until_received(two)
        await two.bus.close()
        async with asyncio.timeout(60):
            assert await reply is None


@pytest.mark.parametrize("how", ["cancelled", "too late"])
async def test_the_other_process_stops_if_nobody_waits_any_longer(how: str) -> None:
    async with place() as here:
        one, two = [await Process(name).join(here) for name in ("one", "two")]
        reply = asyncio.create_task(one.requests.ask("two", 3600 if how == "cancelled" else 0.5))
        await until_received(two)
        if how == "cancelled":
            reply.cancel()
        else:
            assert await reply is None
        async with asyncio.timeout(60):
            await two.stopped.wait()


async def test_a_request_that_is_cancelled_at_once_is_not_processed() -> None:
    async with place() as here:
        one, two = [await Process(name).join(here) for name in ("one", "two")]
        reply = asyncio.create_task(one.requests.ask("two", 3600))
        await asyncio.sleep(0)
        reply.cancel()
        await asyncio.wait([reply])  # "two" receives the request and the cancellation together
        assert await one.requests.ask("nobody", 30) is None
        assert two.received == []


@pytest.mark.parametrize("error", [InvalidParams("no", parameter="x"), ToolError("no")])
async def test_the_error_of_the_other_process_is_raised(error: Exception) -> None:
    async def answer(payload: Any) -> bytes:
        raise error

    async with place() as here:
        one, two = BusRequests("work", answer), BusRequests("work", answer)
        one.connect(await here.member())
        two.connect(await here.member())
        with pytest.raises(ProtocolError, match="no") as raised:
            await one.ask("anything", 30)
        assert raised.value.code == getattr(error, "code", ProtocolError.code)
