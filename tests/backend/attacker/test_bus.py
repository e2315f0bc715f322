"""Messages that an attacker invents, records and publishes again are dropped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.backend import Backend
from dovetail.ports import Bus
from tests.backend.conftest import MakeBackend
from tests.backend.redis_server import RedisServer
from tests.system import needs_redis

from .redis_cli import Attacker

pytestmark = needs_redis


@asynccontextmanager
async def buses(make_backend: MakeBackend) -> AsyncIterator[tuple[Backend, list[Bus]]]:
    """Two members of one bus."""
    backends = [make_backend(), make_backend()]
    found = [await backend.bus() for backend in backends]
    try:
        yield backends[0], found
    finally:
        for bus in found:
            await bus.close()
        for backend in backends:
            await backend.close()


async def test_invented_messages_are_dropped_and_logged_once(
    make_backend: MakeBackend, shared_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with buses(make_backend) as (backend, (one, other)):
        attacker = Attacker(shared_redis, backend.prefix)
        heard: asyncio.Queue[Any] = asyncio.Queue()
        other.on("news", heard.put_nowait)
        channels = attacker.run("PUBSUB", "CHANNELS", backend.prefix.replace("{", "[{]") + "*")
        for channel in channels.decode().split():
            for data in (b"", b"x", b"\x00" * 100, b'{"topic": "news"}', b"\xff" * 10_000):
                attacker.run("PUBLISH", channel, data=data)
        one.publish("news", "real")
        assert await heard.get() == "real"
        assert heard.empty()
    warnings = [one for one in caplog.messages if "was not sealed" in one]
    assert 1 <= len(warnings) <= 2  # once in each process


async def test_recorded_messages_are_dropped_in_their_own_and_in_other_channels(
    make_backend: MakeBackend, shared_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with buses(make_backend) as (backend, (one, other)):
        heard: asyncio.Queue[Any] = asyncio.Queue()
        other.on("news", heard.put_nowait)
        attacker = Attacker(shared_redis, backend.prefix)
        pattern = backend.prefix.replace("{", "[{]") + "*"
        with shared_redis.listening(pattern) as recorded:
            one.publish("news", "real")
            assert await heard.get() == "real"
            channel, data = recorded()
        channels = attacker.run("PUBSUB", "CHANNELS", pattern).decode().split()
        assert len(channels) == 3  # all, and two inboxes
        for to in [*channels, channel]:
            attacker.run("PUBLISH", to, data=data)
        one.publish("news", "next")
        assert await heard.get() == "next"
        assert heard.empty()
    assert any("was received before" in line for line in caplog.messages)


async def test_a_member_that_was_made_up_leaves_the_others_connected(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    async with buses(make_backend) as (backend, (one, other)):
        other.on("who", lambda _: "other")
        attacker = Attacker(shared_redis, backend.prefix)
        [members] = attacker.keys()
        attacker.run("ZADD", members, "99999999999999", data=b"\xff\xfe")
        async with asyncio.timeout(30):
            while backend.members < 3:  # until the next heartbeat
                await asyncio.sleep(0.05)
        assert await one.ask("who", None) == "other"


async def test_an_attacker_is_not_counted_as_a_member_who_answers(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    """Somebody who subscribes makes a question take longer, but does not answer it."""
    async with buses(make_backend) as (backend, (one, other)):
        other.on("who", lambda _: "other")
        attacker = Attacker(shared_redis, backend.prefix)
        [members] = attacker.keys()
        attacker.run("ZADD", members, "99999999999999", "an invented member")
        with shared_redis.listening(backend.prefix.replace("{", "[{]") + "*"):
            assert await one.ask("who", None) == "other"
