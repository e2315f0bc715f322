"""The contract of event logs: that of a stream in memory, and what Redis adds to it."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from dovetail.backend import Backend
from dovetail.backend.protocols import EventLog
from dovetail.errors import BackendAway
from dovetail.transports.http.server.event_store import EventStream, MessagesDropped
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
BOUND, LIFE = 10_000, 600.0


class StreamsInMemory(EventLog):
    """Streams of one process, used like a log."""

    def __init__(self) -> None:
        self._streams: dict[str, EventStream] = {}

    async def append(
        self, key: str, messages: Sequence[tuple[int, bytes]], bound: int, life: float
    ) -> None:
        stream = self._streams.setdefault(key, EventStream(key, bound, key))
        for number, data in messages:
            stream.push_numbered(number, data)

    async def read(self, key: str, after: int) -> list[tuple[int, bytes]] | None:
        try:
            found = self._streams[key].since(after)
        except (KeyError, MessagesDropped):
            return None
        return list(enumerate(found, after + 1))

    async def delete(self, *keys: str) -> None:
        for key in keys:
            self._streams.pop(key, None)


@pytest.fixture(params=["memory", "redis"])
def log(request: pytest.FixtureRequest, make_backend: MakeBackend) -> EventLog:
    return StreamsInMemory() if request.param == "memory" else make_backend().events()


async def test_a_reader_gets_what_comes_after_its_number(log: EventLog) -> None:
    assert await log.read("a", 0) is None
    await log.append("a", [(1, b"one"), (2, b"\0\xff")], BOUND, LIFE)
    await log.append("a", [(3, b"three")], BOUND, LIFE)
    await log.append("b", [(1, b"other")], BOUND, LIFE)
    assert await log.read("a", 0) == [(1, b"one"), (2, b"\0\xff"), (3, b"three")]
    assert await log.read("a", 2) == [(3, b"three")]
    assert await log.read("a", 3) == []


@pytest.mark.parametrize("after", [4, -1, 2**70])
async def test_a_number_that_was_never_given_is_not_found(log: EventLog, after: int) -> None:
    await log.append("a", [(1, b"one"), (2, b"two"), (3, b"three")], BOUND, LIFE)
    assert await log.read("a", after) is None


async def test_what_is_appended_twice_is_there_once(log: EventLog) -> None:
    await log.append("a", [(1, b"one"), (2, b"two")], BOUND, LIFE)
    await log.append("a", [(1, b"one"), (2, b"two"), (3, b"three")], BOUND, LIFE)
    assert await log.read("a", 0) == [(1, b"one"), (2, b"two"), (3, b"three")]


async def test_a_log_may_begin_with_a_later_message(log: EventLog) -> None:
    await log.append("a", [(6, b"six"), (7, b"seven")], BOUND, LIFE)
    assert await log.read("a", 5) == [(6, b"six"), (7, b"seven")]
    assert await log.read("a", 4) is None


@pytest.mark.parametrize("together", [True, False])
async def test_the_oldest_messages_beyond_the_bound_are_dropped(
    log: EventLog, together: bool
) -> None:
    messages = [(number, b"x" * 100) for number in range(1, 21)]
    parts = [messages] if together else [[one] for one in messages]
    for part in parts:
        await log.append("a", part, 1000, LIFE)
    assert await log.read("a", 8) is None
    found = await log.read("a", 9)
    assert found is not None and [number for number, _ in found] == list(range(10, 21))


async def test_a_long_message_does_not_drive_out_others(log: EventLog) -> None:
    await log.append("a", [(1, b"x" * 100)], 1000, LIFE)
    await log.append("a", [(2, b"x" * 3_000_000)], 1000, LIFE)
    found = await log.read("a", 0)
    assert found is not None and [len(data) for _, data in found] == [100, 3_000_000]
    await log.append("a", [(3, b"x")], 1000, LIFE)
    assert await log.read("a", 2) == [(3, b"x")]
    assert await log.read("a", 1) is None


async def test_a_deleted_log_is_gone(log: EventLog) -> None:
    for key in ("a", "b", "c"):
        await log.append(key, [(1, b"1")], BOUND, LIFE)
    await log.delete()
    await log.delete("a", "b", "none")
    assert [await log.read(key, 0) for key in ("a", "b", "c")] == [None, None, [(1, b"1")]]


async def test_many_and_long_messages_arrive_in_order(make_backend: MakeBackend) -> None:
    log = make_backend().events()
    messages = [(number, b"%d" % number * 40_000) for number in range(1, 61)]
    await log.append("a", messages, 100_000_000, LIFE)
    assert await log.read("a", 0) == messages


async def test_a_gap_is_noticed(make_backend: MakeBackend) -> None:
    log = make_backend().events()
    await log.append("a", [(1, b"1"), (2, b"2"), (5, b"5")], BOUND, LIFE)
    assert await log.read("a", 1) is None
    assert await log.read("a", 4) == [(5, b"5")]


async def test_a_log_expires_unless_it_is_appended_to(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    log, key = backend.events(), f"{backend.prefix}events:a"
    await log.append("a", [(1, b"1")], BOUND, 0.2)
    await log.append("a", [(2, b"2")], BOUND, LIFE)
    assert LIFE - 60 < shared_redis.run("TTL", key) <= LIFE
    await log.append("b", [(1, b"1")], BOUND, 0.05)
    while await log.read("b", 0) is not None:
        await asyncio.sleep(0.01)


async def test_another_process_reads_the_log(make_backend: MakeBackend) -> None:
    await make_backend().events().append("a", [(1, b"1")], BOUND, LIFE)
    assert await make_backend().events().read("a", 0) == [(1, b"1")]


async def test_redis_is_away(own_redis: RedisServer) -> None:
    log = Backend(own_redis.url, keys=[KEY]).events()
    await log.append("a", [(1, b"1")], BOUND, LIFE)
    own_redis.stop()
    with pytest.raises(BackendAway):
        await log.append("a", [(2, b"2")], BOUND, LIFE)
    with pytest.raises(BackendAway):
        await log.read("a", 0)


# somebody who can write to Redis


async def test_messages_cannot_be_read_in_redis(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    await backend.events().append("a", [(1, b"a very secret message")], BOUND, LIFE)
    assert "secret" not in repr(shared_redis.run("XRANGE", f"{backend.prefix}events:a", "-", "+"))


@pytest.mark.parametrize("target", ["0-2", "0-4"], ids=["in place of another", "at the end"])
async def test_a_message_that_was_moved_or_made_up_is_not_delivered(
    make_backend: MakeBackend,
    shared_redis: RedisServer,
    target: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = make_backend()
    log, key = backend.events(), f"{backend.prefix}events:a"
    await log.append("a", [(1, b"1"), (2, b"2"), (3, b"3")], BOUND, LIFE)
    found = shared_redis.run("XRANGE", key, "-", "+")
    entries = {id.decode(): fields[b"data"] for id, fields in found}
    for moved in (entries["0-1"], b"made up"):
        shared_redis.run("DEL", key)
        for number in (1, 2, 3, 4):
            id = f"0-{number}"
            if (data := moved if id == target else entries.get(id)) is not None:
                shared_redis.run("XADD", key, id, "data", data, "before", 0, "after", 0)
        assert await log.read("a", 0) is None
    logged = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(logged) == 1


async def test_a_log_of_another_key_does_not_open(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    await backend.events().append("a", [(1, b"1")], BOUND, LIFE)
    shared_redis.run("RENAME", f"{backend.prefix}events:a", f"{backend.prefix}events:b")
    assert await backend.events().read("b", 0) is None
