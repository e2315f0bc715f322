"""The contract of `Rows`, and what Redis adds to it."""

import asyncio
import logging
from math import inf

import pytest

from dovetail.backend.protocols import Rows
from dovetail.errors import BackendAway
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
LIFE = 600.0


@pytest.fixture
def rows(make_backend: MakeBackend) -> Rows:
    return make_backend().rows("test")


async def missing(rows: Rows, key: str) -> None:
    while await rows.get(key) is not None:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("data", [b"", b"\0\xff", b"x" * 3_000_000], ids=["empty", "short", "long"])
async def test_what_was_put_is_found(rows: Rows, data: bytes) -> None:
    assert await rows.get("key") is None
    await rows.put("key", data, LIFE)
    assert await rows.get("key") == data
    await rows.put("key", b"other", LIFE)
    assert await rows.get("key") == b"other"


async def test_a_row_expires(rows: Rows) -> None:
    await rows.put("put", b"1", 0.05)
    assert await rows.add("add", b"1", 0.05)
    await rows.put("change", b"1", LIFE)
    assert await rows.change("change", b"1", b"2", 0.05)
    for key in ("put", "add", "change"):
        await missing(rows, key)
    assert await rows.add("add", b"2", LIFE)


async def test_a_row_with_an_infinite_life_does_not_expire(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    rows = backend.rows("test")
    await rows.put("put", b"1", inf)
    await rows.add("add", b"1", inf)
    await rows.put("change", b"1", LIFE)
    await rows.change("change", b"1", b"2", inf)
    for key in ("put", "add", "change"):
        assert shared_redis.run("TTL", f"{backend.prefix}test:{key}") == -1
    assert await rows.change("put", b"1", b"2", LIFE)
    assert shared_redis.run("TTL", f"{backend.prefix}test:put") > 0


async def test_of_many_who_add_a_row_one_succeeds(rows: Rows) -> None:
    added = await asyncio.gather(*(rows.add("key", b"%d" % n, LIFE) for n in range(50)))
    assert sum(added) == 1
    assert await rows.get("key") == b"%d" % added.index(True)


async def test_a_row_changes_only_from_what_it_was(rows: Rows) -> None:
    assert not await rows.change("key", b"", b"new", LIFE)
    await rows.put("key", b"old", LIFE)
    assert not await rows.change("key", b"other", b"new", LIFE)
    assert await rows.get("key") == b"old"
    assert await rows.change("key", b"old", b"new", LIFE)
    assert await rows.get("key") == b"new"


async def test_no_change_is_lost_if_many_change_a_row(make_backend: MakeBackend) -> None:
    async def add_one(rows: Rows) -> None:
        while True:
            old = await rows.get("sum")
            assert old is not None
            if await rows.change("sum", old, b"%d" % (int(old) + 1), LIFE):
                return

    processes = [make_backend().rows("test") for _ in range(4)]
    await processes[0].put("sum", b"0", LIFE)
    await asyncio.gather(*(add_one(rows) for rows in processes for _ in range(10)))
    assert await processes[0].get("sum") == b"40"


async def test_only_one_taker_receives_a_row(make_backend: MakeBackend) -> None:
    processes = [make_backend().rows("test") for _ in range(4)]
    await processes[0].put("key", b"once", LIFE)
    taken = await asyncio.gather(*(rows.take("key") for rows in processes for _ in range(10)))
    assert sorted(taken, key=str).count(b"once") == 1
    assert taken.count(None) == 39


async def test_rows_are_deleted_together(rows: Rows) -> None:
    for key in ("a", "b", "c"):
        await rows.put(key, b"1", LIFE)
    await rows.delete("a", "b", "never existed")
    await rows.delete()
    assert [await rows.get(key) for key in ("a", "b", "c")] == [None, None, b"1"]


async def test_rows_of_another_kind_or_server_are_other_rows(make_backend: MakeBackend) -> None:
    await make_backend().rows("test").put("key", b"1", LIFE)
    assert await make_backend().rows("test").get("key") == b"1"
    assert await make_backend().rows("other").get("key") is None
    assert await make_backend(name="another server").rows("test").get("key") is None


# what somebody can do who has access to Redis


async def test_redis_does_not_see_the_data(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    await backend.rows("test").put("key", b"secret " * 10, LIFE)
    assert b"secret" not in shared_redis.run("GET", f"{backend.prefix}test:key")


async def test_a_value_opens_only_at_its_own_key(
    make_backend: MakeBackend, shared_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    backend = make_backend()
    rows, other = backend.rows("test"), backend.rows("other")
    await rows.put("alice", b"1", LIFE)
    prefix = backend.prefix
    for target in ("test:bob", "other:alice"):
        shared_redis.run("COPY", f"{prefix}test:alice", prefix + target)
    with caplog.at_level(logging.WARNING, "dovetail"):
        assert await rows.get("bob") is None
        assert await rows.take("bob") is None
        assert await rows.get("bob") is None
        assert await other.get("alice") is None
        assert not await other.change("alice", b"1", b"2", LIFE)
    assert [record.message.count("did not seal it") for record in caplog.records] == [1, 1]
    assert await rows.get("alice") == b"1"


async def test_the_keys_of_all_rows_of_a_kind_are_found(make_backend: MakeBackend) -> None:
    backend = make_backend()
    rows = backend.rows("test")
    await asyncio.gather(*(rows.put(f"key {number}", b"1", LIFE) for number in range(2000)))
    await backend.rows("other").put("another", b"1", LIFE)
    assert sorted(await rows.keys()) == sorted(f"key {number}" for number in range(2000))


@pytest.mark.parametrize("change", ["garbage", "", "\x01", "bit"])
async def test_a_changed_value_counts_as_missing(
    make_backend: MakeBackend, shared_redis: RedisServer, change: str
) -> None:
    backend = make_backend()
    rows, key = backend.rows("test"), f"{backend.prefix}test:key"
    await rows.put("key", b"1", LIFE)
    value = bytearray(shared_redis.run("GET", key))
    value[-1] ^= 1
    shared_redis.run("SET", key, bytes(value) if change == "bit" else change)
    assert await rows.get("key") is None
    assert not await rows.change("key", b"1", b"2", LIFE)
    assert not await rows.add("key", b"2", LIFE)
    await rows.put("key", b"2", LIFE)
    assert await rows.get("key") == b"2"


async def test_a_value_of_another_type_is_an_error_that_names_nothing(
    make_backend: MakeBackend, shared_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    backend = make_backend()
    shared_redis.run("LPUSH", f"{backend.prefix}test:key", "x")
    for _ in range(2):
        with pytest.raises(BackendAway) as caught:
            await backend.rows("test").get("key")
        assert "Redis" not in str(caught.value)
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert backend.state == "connected"
    assert await backend.rows("test").get("other") is None


async def test_keys_are_rotated_without_losing_rows(make_backend: MakeBackend) -> None:
    new, other = "the next key " * 3, "not the same " * 3
    await make_backend().rows("test").put("key", b"1", LIFE)
    assert await make_backend(keys=[new, KEY]).rows("test").get("key") == b"1"
    assert await make_backend(keys=[other]).rows("test").get("key") is None
