"""The bus between processes: the hub and its members, over real Unix sockets."""

import asyncio
import logging
import os
import shutil
import socket
import stat
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.connection import bus as module
from dovetail.connection.bus import (
    DEFAULT_TIMEOUT,
    MAX_FRAME_BYTES,
    Hub,
    LocalBus,
    NoBus,
    join,
    private_socket,
)
from dovetail.ports import MEMBERS_CHANGED, Bus

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")


class Place:
    """A hub that can go away and come back at the same address."""

    def __init__(self) -> None:
        self.path, self.listening = private_socket()
        self.hub = Hub()
        self.members: list[LocalBus] = []

    async def start(self) -> None:
        self.hub = Hub()
        await self.hub.start(self.listening.dup())

    async def member(self) -> LocalBus:
        self.members.append(await join(self.path))
        return self.members[-1]


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    here = Place()
    await here.start()
    try:
        yield here
    finally:
        for member in here.members:
            await member.close()
        await here.hub.close()
        here.listening.close()
        shutil.rmtree(os.path.dirname(here.path))


def heard(bus: Bus, topic: str) -> "asyncio.Queue[Any]":
    queue: asyncio.Queue[Any] = asyncio.Queue()
    bus.on(topic, queue.put_nowait)
    return queue


async def met(*members: LocalBus) -> None:
    """Wait until each of these hears each other."""
    for one in members:
        for other in members:
            if other is not one:
                queue = heard(other, "met")
                while True:
                    one.publish("met", 1)
                    try:
                        await asyncio.wait_for(queue.get(), 0.05)
                        break
                    except TimeoutError:
                        continue


async def true(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_alone_nobody_hears_and_nobody_answers() -> None:
    bus: Bus = NoBus()
    assert bus.alone
    heard(bus, "news")
    bus.publish("news", 1)
    assert await bus.ask("who", 1) is None
    await bus.close()


async def test_what_one_publishes_all_others_hear_in_order_and_itself_does_not() -> None:
    async with place() as here:
        one, two, three = [await here.member() for _ in range(3)]
        await met(one, two, three)
        own, second, third = heard(one, "news"), heard(two, "news"), heard(three, "news")
        heard(two, "other topic")
        for number in range(100):
            one.publish("news", {"number": number, "bytes": b"\0\xff", "none": None})
        for queue in (second, third):
            assert [(await queue.get())["number"] for _ in range(100)] == list(range(100))
        assert own.empty()
        assert not one.alone


async def test_an_ask_gets_the_answer_of_whoever_has_one() -> None:
    async with place() as here:
        one, two, three = [await here.member() for _ in range(3)]
        two.on("double", lambda payload: None)
        three.on("double", lambda payload: payload * 2)
        assert await asyncio.gather(*(one.ask("double", number) for number in range(50))) == [
            2 * n for n in range(50)
        ]


async def test_the_answer_may_be_false_or_empty() -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        two.on("echo", lambda payload: payload)
        for value in (False, 0, "", [], {}, b""):
            assert await one.ask("echo", value) == value


async def test_a_handler_may_be_a_coroutine_and_does_not_hold_up_others() -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        go = asyncio.Event()

        async def slow(payload: Any) -> Any:
            await go.wait()
            return payload

        two.on("slow", slow)
        two.on("quick", lambda payload: payload)
        waiting = asyncio.create_task(one.ask("slow", 1))
        assert await one.ask("quick", 2) == 2
        go.set()
        assert await waiting == 1


async def test_nobody_says_so_at_once() -> None:
    async with place() as here:
        one = await here.member()
        started = asyncio.get_running_loop().time()
        assert await one.ask("who", 1) is None  # nobody else is there
        two, three = await here.member(), await here.member()
        two.on("who", lambda payload: None)  # and the third never heard of it
        assert await one.ask("who", 1) is None
        assert asyncio.get_running_loop().time() - started < DEFAULT_TIMEOUT / 2
        assert three._handlers == {}


async def test_an_answer_that_does_not_come_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "QUESTION_LIFE", 0.1)
    async with place() as here:
        one, two = await here.member(), await here.member()
        two.on("never", lambda payload: asyncio.sleep(60))
        for patience in ((), (0.2,)):
            started = asyncio.get_running_loop().time()
            assert await one.ask("never", 1, *patience) is None
            took = asyncio.get_running_loop().time() - started
            assert 0.9 < took / (patience or [DEFAULT_TIMEOUT])[0] < 2
        assert not one._asks
        assert await one.ask("other", 1) is None
        assert len(here.hub._questions) == 0  # the old question is forgotten with the next


async def test_a_member_that_leaves_has_said_no() -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        asked = asyncio.Event()

        async def never(payload: Any) -> None:
            asked.set()
            await asyncio.sleep(60)

        two.on("never", never)
        waiting = asyncio.create_task(one.ask("never", 1))
        await asked.wait()
        started = asyncio.get_running_loop().time()
        await two.close()
        assert await waiting is None
        assert asyncio.get_running_loop().time() - started < DEFAULT_TIMEOUT / 2


async def test_questions_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_QUESTIONS", 3)
    async with place() as here:
        one, two = await here.member(), await here.member()
        go = asyncio.Event()
        two.on("wait", lambda payload: go.wait())
        waiting = [asyncio.create_task(one.ask("wait", 1)) for _ in range(3)]
        await true(lambda: len(one._asks) == 3)
        assert await one.ask("wait", 1) is None
        assert "Did not ask" in caplog.text
        go.set()
        assert await asyncio.gather(*waiting) == [True] * 3


async def test_running_handlers_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_HANDLERS", 2)
    async with place() as here:
        one, two = await here.member(), await here.member()
        await met(one, two)
        go = asyncio.Event()
        two.on("wait", lambda payload: go.wait())
        one.publish("wait", 1)
        one.publish("wait", 1)
        assert await one.ask("wait", 1) is None
        assert "Did not handle" in caplog.text
        go.set()
        await true(lambda: not two._handling)
        assert await one.ask("wait", 1) is True


async def test_a_handler_that_fails_is_logged_and_answers_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()

        def broken(payload: Any) -> None:
            raise RuntimeError("broken at once")

        async def broken_later(payload: Any) -> None:
            raise RuntimeError("broken later")

        two.on("broken", broken)
        two.on("broken later", broken_later)
        two.on("unspeakable", lambda payload: object())
        two.on("echo", lambda payload: payload)
        started = asyncio.get_running_loop().time()
        for topic in ("broken", "broken later", "unspeakable"):
            assert await one.ask(topic, 1) is None
        assert asyncio.get_running_loop().time() - started < DEFAULT_TIMEOUT / 2
        assert (
            "broken at once" in caplog.text
            and "broken later" in caplog.text
            and "over the bus" in caplog.text
        )
        assert await one.ask("echo", 1) == 1


@pytest.mark.parametrize(
    "payload",
    [object(), "\udc80", 1 << 80, b"x" * (MAX_FRAME_BYTES + 1)],
    ids=["type", "text", "int", "size"],
)
async def test_what_cannot_be_sent_is_logged_and_never_raised(
    payload: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        two.on("echo", lambda payload: payload)
        one.publish("echo", payload)
        assert await one.ask("echo", payload) is None
        assert caplog.text.count("Cannot send 'echo' over the bus") == 2
        assert await one.ask("echo", 1) == 1


async def test_the_longest_frame_goes_through() -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        two.on("size", len)
        size = MAX_FRAME_BYTES - 100
        assert await one.ask("size", b"x" * size, timeout=60) == size


GARBAGE = {
    "a huge length": b"\xff\xff\xff\xff",
    "no MessagePack": b"\0\0\0\1\xc1",
    "not a frame": b"\0\0\0\1\xc0",
    "an unknown kind": b"\0\0\0\5\x94\x09\xa0\xc0\0",
    "text": b"GET / HTTP/1.1\r\n\r\n" * 100,
    "deep nesting": (100_004).to_bytes(4) + b"\x94\0\xa0" + b"\x91" * 100_000 + b"\0",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_drops_the_member_that_sent_it_and_no_other(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        two.on("echo", lambda payload: payload)
        reader, writer = await asyncio.open_unix_connection(here.path)
        writer.write(data)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
        assert "because it sent" in caplog.text
        assert await one.ask("echo", 1) == 1
        assert not one.alone and not two.alone


async def test_what_one_member_cannot_read_costs_nobody_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        two.on("echo", lambda payload: payload)
        await met(one, two)
        wires, news = [one._connection, two._connection], heard(one, "t")
        _, writer = await asyncio.open_unix_connection(here.path)
        writer.write(b"\0\0\0\7\x94\0\xa1t\xa1\xff\0")  # no UTF-8, of which the hub knows nothing
        writer.write(b"\0\0\0\6\x94\0\xa1t\x07\0")
        assert await news.get() == 7
        assert "Could not handle a frame" in caplog.text and "Disconnecting" not in caplog.text
        assert [one._connection, two._connection] == wires
        assert await one.ask("echo", 1) == 1
        writer.close()


async def test_members_come_and_go_while_others_speak() -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        await met(one, two)
        wire, news = one._connection, heard(two, "news")
        for number in range(50):
            with socket.socket(socket.AF_UNIX) as other:
                other.setblocking(False)
                other.connect(here.path)
                for _ in range(5):
                    one.publish("news", number)
                    await asyncio.sleep(0)
        assert [await news.get() for _ in range(250)] == [
            number for number in range(50) for _ in range(5)
        ]
        assert one._connection is wire


async def test_who_stays_hears_that_another_has_left() -> None:
    async with place() as here:
        one, two, three = [await here.member() for _ in range(3)]
        await met(one, two, three)
        parted = [heard(member, MEMBERS_CHANGED) for member in (one, three)]
        await two.close()
        for queue in parted:
            assert await queue.get() is None
            assert queue.empty()


async def test_who_loses_the_hub_hears_so_and_again_when_it_is_back() -> None:
    async with place() as here:
        one = await here.member()
        alone: asyncio.Queue[bool] = asyncio.Queue()
        one.on(MEMBERS_CHANGED, lambda _: alone.put_nowait(one.alone))
        await true(lambda: here.hub._members)
        await here.hub.close()
        assert await alone.get() is True
        await here.start()
        assert await alone.get() is False


async def test_a_frame_may_come_in_pieces() -> None:
    async with place() as here:
        one = await here.member()
        reader, writer = await asyncio.open_unix_connection(here.path)
        news = heard(one, "t")
        for byte in b"\0\0\0\6\x94\0\xa1t\x07\0" * 3:
            writer.write(bytes([byte]))
            await writer.drain()
        assert [await news.get() for _ in range(3)] == [7, 7, 7]
        writer.close()
        await writer.wait_closed()
        assert reader.at_eof() or await reader.read() == b""


async def test_a_member_that_stops_reading_is_dropped_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG_BYTES", 256 * 1024)
    async with place() as here:
        one, two = await here.member(), await here.member()
        deaf = socket.socket(socket.AF_UNIX)
        deaf.connect(here.path)
        await true(lambda: len(here.hub._members) == 3)
        news = heard(two, "news")
        for number in range(200):
            one.publish("news", [number, b"x" * 10_000])
            assert (await news.get())[0] == number
        assert len(here.hub._members) == 2
        assert "Disconnecting a process from the bus because it has stopped reading" in caplog.text
        deaf.close()


async def test_ten_thousand_publications_leave_nothing_behind() -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        await met(one, two)
        count = 0
        done = asyncio.Event()

        def hear(payload: Any) -> None:
            nonlocal count
            count += 1
            if count % 1000 == 0:
                done.set()

        async def thousand() -> None:
            done.clear()
            for _ in range(1000):
                one.publish("news", {"text": "x" * 1000})
            await done.wait()
            await one.ask("news", {"text": ""})

        two.on("news", hear)
        await thousand()
        count = 0
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            await thousand()
            count -= 1
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert grown < 100_000, grown
        assert count == 10_000


async def test_a_publisher_that_never_yields_loses_news_and_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG_BYTES", 256 * 1024)
    async with place() as here:
        one, two = await here.member(), await here.member()
        await met(one, two)
        news = heard(two, "news")
        for number in range(1000):
            one.publish("news", [number, b"x" * 10_000])
        assert one._connection is not None and one._connection._size < 300_000
        two.on("echo", lambda payload: payload)
        assert await one.ask("echo", 1) is None  # no room either
        assert (await news.get())[0] == 0
        await true(lambda: one._connection is not None and one._connection._size == 0)
        assert await one.ask("echo", 1) == 1


async def test_what_was_published_last_is_still_sent_on_closing() -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        await met(one, two)
        news = heard(two, "news")
        one.publish("news", "goodbye")
        await one.close()
        assert await news.get() == "goodbye"


async def test_members_come_back_when_the_hub_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dovetail.bus")
    async with place() as here:
        one, two = await here.member(), await here.member()
        two.on("echo", lambda payload: payload)
        two.on("never", lambda payload: asyncio.sleep(60))
        waiting = asyncio.create_task(one.ask("never", 1))
        await true(lambda: two._handling)
        await here.hub.close()
        assert await waiting is None  # at once
        await true(lambda: one.alone and two.alone)
        one.publish("news", 1)
        assert await one.ask("echo", 1) is None
        assert "Did not send 'news' over the bus: no hub is connected" in caplog.text
        await here.start()
        while await one.ask("echo", 2) is None:
            await asyncio.sleep(0.01)
        assert not one.alone and not two.alone


async def test_a_member_may_come_before_its_hub(caplog: pytest.LogCaptureFixture) -> None:
    async with place() as here:
        path = here.path + "2"
        one = await join(path)
        assert one.alone and await one.ask("who", 1) is None
        assert "Cannot reach the bus" in caplog.text
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        hub = Hub()
        await hub.start(listening)
        await true(lambda: not one.alone)
        await one.close()
        assert one.alone
        await hub.close()


async def test_closing_ends_all_that_runs_and_may_be_done_twice() -> None:
    async with place() as here:
        one, two = await here.member(), await here.member()
        two.on("never", lambda payload: asyncio.sleep(60))
        waiting = asyncio.create_task(one.ask("never", 1))
        await true(lambda: two._handling)
        await one.close()
        assert await waiting is None
        await two.close()
        await two.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}


def test_only_this_user_can_reach_the_socket() -> None:
    path, listening = private_socket()
    directory = os.path.dirname(path)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert os.listdir(directory) == ["bus"]
    listening.close()
    shutil.rmtree(directory)


def test_a_long_directory_for_temporary_files_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    path, listening = private_socket()
    listening.close()
    shutil.rmtree(os.path.dirname(path))
