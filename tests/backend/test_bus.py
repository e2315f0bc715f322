"""The bus over Redis. The contract runs for the local bus, too; every member of a bus has its own
connections, as a process would."""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.backend import Backend
from dovetail.backend.redis import bus as module
from dovetail.backend.redis.bus import MAX_MESSAGE_BYTES, RedisBus
from dovetail.connection.bus import DEFAULT_TIMEOUT, Hub, join, private_socket
from dovetail.errors import TooLarge
from dovetail.limits import Limits
from dovetail.ports import MEMBERS_CHANGED, Bus
from tests.system import needs_redis

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
Join = Callable[[], Awaitable[Bus]]
PROMPT = 20.0
"""What an ask may take that need not wait, on a busy machine, if its timeout is longer."""


@asynccontextmanager
async def members(join: Join, count: int) -> AsyncIterator[list[Any]]:
    joined: list[Any] = [await join() for _ in range(count)]
    try:
        await met(*joined)
        yield joined
    finally:
        for one in joined:
            await one.close()


async def met(*joined: Bus) -> None:
    """Wait until each of these hears each other."""
    for one in joined:
        for other in joined:
            if other is not one:
                queue = heard(other, "met")
                while queue.empty():
                    one.publish("met", 1)
                    await asyncio.sleep(0.02)


def heard(bus: Bus, topic: str) -> "asyncio.Queue[Any]":
    queue: asyncio.Queue[Any] = asyncio.Queue()
    bus.on(topic, queue.put_nowait)
    return queue


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


@asynccontextmanager
async def local_bus() -> AsyncIterator[Join]:
    path, listening = private_socket()
    hub = Hub()
    await hub.start(listening.dup())
    try:
        yield lambda: join(path)
    finally:
        await hub.close()
        listening.close()
        shutil.rmtree(os.path.dirname(path))


Place = Callable[[], Any]


@pytest.fixture(params=["local", "redis"])
def place(request: pytest.FixtureRequest, make_backend: MakeBackend) -> Place:
    """A bus: an asynchronous context manager that gives the function that joins it."""
    if request.param == "local":
        return local_bus

    @asynccontextmanager
    async def redis_bus() -> AsyncIterator[Join]:
        yield lambda: make_backend().bus()

    return redis_bus


async def test_what_one_publishes_all_others_hear_in_order(place: Place) -> None:
    async with place() as join, members(join, 3) as (one, two, three):
        own, second, third = heard(one, "news"), heard(two, "news"), heard(three, "news")
        for number in range(300):
            one.publish("news", {"number": number, "bytes": b"\0\xff", "none": None})
        for queue in (second, third):
            assert [(await queue.get())["number"] for _ in range(300)] == list(range(300))
        assert own.empty()
        assert not one.alone


async def test_an_ask_gets_the_first_answer_that_there_is(place: Place) -> None:
    async with place() as join, members(join, 3) as (one, two, three):
        two.on("double", lambda payload: None)
        three.on("double", lambda payload: payload * 2)
        answers = [one.ask("double", number, PROMPT * 2) for number in range(50)]
        assert await asyncio.gather(*answers) == [2 * n for n in range(50)]
        for value in (False, 0, "", [], {}, b""):
            two.on("echo", lambda payload: payload)
            assert await one.ask("echo", value, PROMPT * 2) == value


async def test_an_ask_ends_early_if_nobody_can_answer(place: Place) -> None:
    async with place() as join:
        alone = await join()
        started = time.monotonic()
        assert await alone.ask("who", 1, PROMPT * 2) is None
        async with members(join, 2) as (one, two):
            two.on("who", lambda payload: None)  # and the first never heard of it
            assert await alone.ask("who", 1, PROMPT * 2) is None
            assert await one.ask("who", 1, PROMPT * 2) is None
        await alone.close()
        assert time.monotonic() - started < PROMPT


async def test_a_handler_may_be_a_coroutine_and_does_not_hold_up_others(place: Place) -> None:
    async with place() as join, members(join, 2) as (one, two):
        go = asyncio.Event()
        two.on("slow", lambda payload: go.wait())
        two.on("quick", lambda payload: payload)
        waiting = asyncio.create_task(one.ask("slow", 1, PROMPT))
        assert await one.ask("quick", 2, PROMPT) == 2
        go.set()
        assert await waiting is True


async def test_an_answer_that_does_not_come_is_waited_for_until_the_timeout(place: Place) -> None:
    async with place() as join, members(join, 2) as (one, two):
        two.on("never", lambda payload: asyncio.sleep(600))
        started = time.monotonic()
        assert await one.ask("never", 1) is None
        assert time.monotonic() - started >= DEFAULT_TIMEOUT * 0.9


async def test_a_member_that_leaves_has_no_answer(place: Place) -> None:
    async with place() as join, members(join, 2) as (one, two):
        parted = heard(one, MEMBERS_CHANGED)
        asked = asyncio.Event()

        async def never(payload: Any) -> None:
            asked.set()
            await asyncio.sleep(600)

        two.on("never", never)
        waiting = asyncio.create_task(one.ask("never", 1, PROMPT * 2))
        await asked.wait()
        started = time.monotonic()
        await two.close()
        assert await waiting is None
        await parted.get()
        assert time.monotonic() - started < PROMPT


async def test_a_handler_that_fails_answers_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with place() as join, members(join, 2) as (one, two):

        def broken(payload: Any) -> None:
            raise RuntimeError("broken at once")

        two.on("broken", broken)
        two.on("unspeakable", lambda payload: object())
        for topic in ("broken", "unspeakable"):
            assert await one.ask(topic, 1, PROMPT) is None
        assert "broken at once" in caplog.text and "over the bus" in caplog.text


async def test_what_cannot_be_sent_is_logged_and_never_raised(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with place() as join, members(join, 2) as (one, two):
        two.on("echo", lambda payload: payload)
        one.publish("echo", object())
        assert await one.ask("echo", "\udc80", PROMPT) is None
        assert caplog.text.count("Cannot send 'echo' over the bus") == 2
        assert await one.ask("echo", 1, PROMPT) == 1


# Redis


async def test_a_large_message_arrives_and_a_larger_one_is_refused(
    make_backend: MakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async with members(make_backend().bus, 2) as (one, two):
        two.on("size", len)
        size = MAX_MESSAGE_BYTES - 100
        assert await one.ask("size", b"x" * size, PROMPT) == size
        size = MAX_MESSAGE_BYTES + 1
        news = heard(two, "news")
        one.publish("news", b"x" * size)  # it is dropped
        one.publish("news", "short")
        assert await news.get() == "short"
        sizes = {"size": size + 5, "limit": MAX_MESSAGE_BYTES}
        with pytest.raises(TooLarge, match=f"message .* {size + 5} .* limit .* {8 << 20}") as error:
            await one.ask("size", b"x" * size, PROMPT)
        assert error.value.data == sizes
        two.on("large", lambda _: b"x" * size)
        with pytest.raises(TooLarge, match=f"answer .* {size + 5} .* limit .* {8 << 20}") as error:
            await one.ask("large", None, PROMPT)
        assert error.value.data == sizes
        for topic in ("news", "size", ""):
            assert f"Cannot send {topic!r} over the bus: the message is {size + 5}" in caplog.text


async def test_servers_with_other_names_do_not_hear_each_other(make_backend: MakeBackend) -> None:
    async with (
        members(make_backend().bus, 2) as (one, two),
        members(make_backend(name="another server").bus, 1) as (other,),
    ):
        news, own = heard(other, "news"), heard(two, "news")
        one.publish("news", 1)
        assert await own.get() == 1
        assert await other.ask("who", 1, PROMPT) is None
        assert news.empty()


PROGRAM = textwrap.dedent("""
    import asyncio, sys
    from dovetail.backend import Backend
    from dovetail.limits import Limits

    async def main():
        url, name, key = sys.argv[1:]
        backend = Backend(url, name=name, keys=[key], limits=Limits(backend_timeout=20))
        bus = await backend.bus()
        bus.on("double", lambda payload: payload * 2)
        print("joined", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await bus.close()

    asyncio.run(main())
""")


@asynccontextmanager
async def process(url: str, name: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, name, KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert program.stdout is not None
        assert await asyncio.to_thread(program.stdout.readline) == b"joined\n"
        yield program
    finally:
        program.kill()
        await asyncio.to_thread(program.communicate)


async def test_a_killed_process_is_missed(own_redis: RedisServer) -> None:
    backend = Backend(own_redis.url, name="shop", keys=[KEY], limits=PATIENT)
    async with process(own_redis.url, "shop") as other, members(backend.bus, 1) as (bus,):
        parted = heard(bus, MEMBERS_CHANGED)
        assert await bus.ask("double", 21, PROMPT) == 42
        await until(lambda: bus._members)
        other.kill()
        started = time.monotonic()
        while await bus.ask("double", 21, 0.05) is not None:
            pass
        await parted.get()
        assert bus._members == set()
        assert time.monotonic() - started < 30
        started = time.monotonic()
        assert await bus.ask("double", 21, PROMPT * 2) is None  # Redis knows that nobody listens
        assert time.monotonic() - started < PROMPT


async def test_a_stopped_process_that_continues_is_told_that_it_missed_something(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    async with members(backend.bus, 1) as (bus,):
        parted = heard(bus, MEMBERS_CHANGED)
        bus._heartbeat_at -= 60  # as if the process had been stopped for a minute
        await parted.get()
        assert not bus.alone


async def test_a_bus_survives_a_restart_of_redis(own_redis: RedisServer) -> None:
    def join() -> Awaitable[Bus]:
        return Backend(own_redis.url, keys=[KEY], limits=Limits(backend_timeout=5)).bus()

    async with members(join, 2) as (one, two):
        parted = heard(one, MEMBERS_CHANGED)
        own_redis.stop()
        await parted.get()
        assert one.alone
        started = time.monotonic()
        assert await one.ask("who", 1, PROMPT * 2) is None
        one.publish("news", 1)  # nobody hears it
        assert time.monotonic() - started < PROMPT
        own_redis.start()
        await parted.get()
        await until(lambda: not one.alone and not two.alone)
        two.on("who", lambda payload: "two")
        assert await one.ask("who", 1, PROMPT) == "two"


async def test_a_hung_redis_makes_a_bus_work_alone(own_redis: RedisServer) -> None:
    backend = Backend(own_redis.url, keys=[KEY], limits=Limits(backend_timeout=1))
    bus = await backend.bus()
    await until(lambda: not bus.alone)
    own_redis.pause()
    await until(lambda: bus.alone)
    own_redis.resume()
    await until(lambda: not bus.alone)
    await bus.close()


async def test_without_redis_a_process_joins_alone_at_once(own_redis: RedisServer) -> None:
    own_redis.stop()
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    started = time.monotonic()
    bus = await backend.bus()
    assert bus.alone and time.monotonic() - started < PROMPT
    own_redis.start()
    await until(lambda: not bus.alone)
    await bus.close()


async def test_a_member_that_is_disconnected_joins_again(own_redis: RedisServer) -> None:
    def join() -> Awaitable[Bus]:
        return Backend(own_redis.url, keys=[KEY], limits=PATIENT).bus()

    async with members(join, 2) as (one, two):
        parted = heard(one, MEMBERS_CHANGED)
        own_redis.run("CLIENT", "KILL", "TYPE", "pubsub")
        assert [await parted.get() for _ in range(2)] == [None, None]
        await met(one, two)


async def test_a_bus_leaves_nothing_behind(own_redis: RedisServer) -> None:
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    async with members(backend.bus, 3):
        assert own_redis.keys() == [b"{dovetail:default}:members"]
    assert own_redis.keys() == []


async def test_an_idle_member_costs_redis_almost_nothing(own_redis: RedisServer) -> None:
    async with members(Backend(own_redis.url, keys=[KEY], limits=PATIENT).bus, 1):
        own_redis.run("CONFIG", "RESETSTAT")
        started = time.monotonic()
        await asyncio.sleep(4)
        calls = sum(own_redis.command_counts().values())
        assert calls / (time.monotonic() - started) < 5


# what somebody can do who has access to Redis


@asynccontextmanager
async def recorded(redis: RedisServer, channel: str) -> AsyncIterator["asyncio.Queue[bytes]"]:
    """What is published in a channel."""
    import redis.asyncio as library

    queue: asyncio.Queue[bytes] = asyncio.Queue()
    async with library.Redis(port=redis.port) as client, client.pubsub() as pubsub:
        await pubsub.subscribe(channel)

        async def read() -> None:
            async for message in pubsub.listen():
                if message["type"] == "message":
                    queue.put_nowait(message["data"])

        reading = asyncio.create_task(read())
        yield queue
        reading.cancel()
        await asyncio.wait([reading])


async def test_a_message_is_not_readable_and_cannot_be_repeated_or_moved(
    make_backend: MakeBackend, shared_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    backend = make_backend()
    channel = f"{backend.prefix}bus"
    async with members(backend.bus, 2) as (one, two):
        news = heard(two, "news")
        async with recorded(shared_redis, channel) as seen:
            one.publish("news", "private")
            assert await news.get() == "private"
            data = await seen.get()
        assert b"private" not in data and b"news" not in data
        with caplog.at_level(logging.WARNING, "dovetail.bus"):
            for _ in range(3):
                shared_redis.run("PUBLISH", channel, data)
                shared_redis.run("PUBLISH", f"{backend.prefix}inbox:{two.id}", data)
            shared_redis.run("PUBLISH", channel, b"made up")
            shared_redis.run("PUBLISH", channel, b"")
            one.publish("news", "last")
            assert await news.get() == "last"
        warned = [one for one in caplog.records if "a message on the bus" in one.message]
        assert len(warned) == 3  # the sender itself says nothing about the repetition
        assert news.empty()


async def test_a_message_that_was_held_back_is_too_old(
    make_backend: MakeBackend, shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = make_backend()
    async with members(backend.bus, 2) as (one, two):
        news = heard(two, "news")
        clock = one._clock_offset
        for wrong in (-11_000, 11_000):
            one._clock_offset = clock + wrong
            one.publish("news", "wrong time")
            one._clock_offset = clock
        one.publish("news", "right time")
        assert await news.get() == "right time"


async def test_a_process_with_other_keys_is_not_heard(
    make_backend: MakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        members(make_backend().bus, 2) as (one, two),
        members(make_backend(keys=["another key " * 4]).bus, 1) as (stranger,),
    ):
        news = heard(two, "news")
        stranger.publish("news", "from a stranger")
        one.publish("news", "from a friend")
        assert await news.get() == "from a friend"
        assert await stranger.ask("who", 1, 0.2) is None
    assert "DOVETAIL_KEYS" in caplog.text


async def test_messages_do_not_pile_up_without_bound(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG_BYTES", 100_000)
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    async with members(backend.bus, 1) as (bus,):
        assert isinstance(bus, RedisBus)
        os.kill(own_redis.pid, signal.SIGSTOP)
        for _ in range(100):
            bus.publish("news", b"x" * 10_000)
            await asyncio.sleep(0)
        assert bus._outgoing_bytes < 200_000
        os.kill(own_redis.pid, signal.SIGCONT)


async def test_a_bus_that_is_not_allowed_is_not_a_redis_that_comes_and_goes(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    rules = ("~{dovetail:shop}:*", "resetchannels", "+@all")
    own_redis.run("ACL", "SETUSER", "app", "on", ">secret", *rules)
    url = own_redis.url.replace("//", "//app:secret@")
    backend = Backend(url, name="shop", keys=[KEY], limits=PATIENT)
    assert await backend.connect()
    bus = await backend.bus()
    try:
        async with asyncio.timeout(PROMPT):
            while backend.client.stats.errors < 4:  # attempts to join
                await asyncio.sleep(0.01)
        assert bus.alone and backend.state == "connected"
    finally:
        await bus.close()
        await backend.close()
    [line] = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "refused 'SUBSCRIBE'" in line and "dovetail backend check --name" in line
