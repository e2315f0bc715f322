"""The rows of the authorization server in Redis: their contract, and what Redis adds to it."""

import asyncio
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from dovetail.auth.provider.storage import Storage, row_key
from dovetail.backend import Backend
from dovetail.errors import BackendAway, ConfigError
from tests.auth.provider_kit import Clock
from tests.auth.storage_contract import *  # noqa: F403
from tests.auth.storage_contract import Elapse, MakeStorage
from tests.system import needs_redis

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer, redis_server

pytestmark = needs_redis


@pytest.fixture
def make_storage(make_backend: MakeBackend, shared_redis: RedisServer) -> MakeStorage:
    def make(clock: Clock, **options: Any) -> tuple[Storage, Elapse]:
        backend = make_backend()

        def elapse(seconds: float) -> None:
            clock.time += seconds
            make_older(shared_redis, backend, seconds)

        return backend.storage(now=clock, **options), elapse

    return make


def make_older(redis: RedisServer, backend: Backend, seconds: float) -> None:
    """Let everything expire some seconds earlier, as if time had passed."""
    for key in redis.keys(f"{backend.prefix}*"):
        if redis.run("TYPE", key) == b"zset":
            for row in redis.run("ZRANGE", key, 0, -1):
                redis.run("ZINCRBY", key, -seconds * 1000, row)
        redis.run("PEXPIREAT", key, redis.run("PEXPIRETIME", key) - int(seconds * 1000))


async def test_nothing_is_left_in_redis_after_all_rows_have_expired(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend, clock = make_backend(), Clock()
    storage = backend.storage(now=clock)
    for number in range(5):
        await storage.add(f"grant:{number}", b"", clock.time + 10 + number)
        await storage.add(f"access:{number}", b"", clock.time + 20, f"grant:{number}")
        await storage.change(f"grant:{number}", b"", b"", clock.time + 30)
    assert shared_redis.keys(f"{backend.prefix}*")
    make_older(shared_redis, backend, 31)
    assert shared_redis.keys(f"{backend.prefix}*") == []


async def test_the_clock_of_redis_decides_when_a_row_expires(make_backend: MakeBackend) -> None:
    behind, ahead = Clock(), Clock()
    ahead.time += 1000
    one, other = make_backend().storage(now=behind), make_backend().storage(now=ahead)
    await one.add("a:1", b"one", behind.time + 100)
    await other.add("a:2", b"two", ahead.time + 100)
    assert await other.get("a:1") == b"one"
    assert await one.get("a:2") == b"two"


@pytest.mark.parametrize("seconds", [1e300, float("inf")])
async def test_a_row_may_live_for_a_very_long_time(storage: Storage, seconds: float) -> None:
    assert await storage.add("a:1", b"one", seconds)
    assert await storage.get("a:1") == b"one"


async def test_of_many_processes_that_use_a_row_one_succeeds(make_backend: MakeBackend) -> None:
    later = time.time() + 100
    processes = [make_backend().storage() for _ in range(4)]
    added = await asyncio.gather(*(each.add("a:1", b"0", later) for each in processes * 5))
    assert added.count(True) == 1
    changed = await asyncio.gather(
        *(each.change("a:1", b"0", b"%d" % n, later) for n, each in enumerate(processes, 1))
    )
    assert changed.count(True) == 1
    taken = await asyncio.gather(*(each.take("a:1") for each in processes * 5))
    assert [data for data in taken if data] == [b"%d" % (changed.index(True) + 1)]


# what somebody can do who has access to Redis


async def test_redis_sees_neither_data_nor_secrets(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    key = row_key("access", "https://issuer.example", "the token")
    await backend.storage().add(key, b"the user " * 10, time.time() + 100)
    [row] = shared_redis.keys(f"{backend.prefix}provider:*")
    assert b"token" not in row and b"issuer" not in row
    assert b"the user" not in shared_redis.run("HGET", row, "data")


@pytest.mark.parametrize("change", ["moved", "garbage", "bit", "missing"])
async def test_a_row_that_was_tampered_with_counts_as_missing(
    make_backend: MakeBackend, shared_redis: RedisServer, change: str
) -> None:
    backend, later = make_backend(), time.time() + 100
    storage, prefix = backend.storage(), f"{backend.prefix}provider:"
    await storage.add("a:1", b"one", later)
    await storage.add("a:2", b"two", later)
    value = bytearray(shared_redis.run("HGET", f"{prefix}a:2", "data"))
    other = bytes(shared_redis.run("HGET", f"{prefix}a:1", "data"))
    value[-1] ^= 1
    written = {"moved": other, "garbage": b"x", "bit": bytes(value)}
    if change == "missing":
        shared_redis.run("HDEL", f"{prefix}a:2", "data")
    else:
        shared_redis.run("HSET", f"{prefix}a:2", "data", written[change])
    assert await storage.get("a:2") is None
    assert not await storage.change("a:2", b"two", b"three", later)
    assert await storage.take("a:2") is None
    assert await storage.add("a:2", b"new", later)


# Redis and its replicas


async def test_if_redis_is_away_every_method_says_so(
    own_redis: RedisServer,
) -> None:
    backend, later = Backend(own_redis.url, keys=[KEY]), time.time() + 100
    storage = backend.storage()
    assert await storage.add("a:1", b"one", later)
    own_redis.stop()
    calls = [
        lambda: storage.get("a:1"),
        lambda: storage.add("a:2", b"", later),
        lambda: storage.change("a:1", b"one", b"two", later),
        lambda: storage.take("a:1"),
        lambda: storage.delete("a:1"),
    ]
    for call in calls:
        with pytest.raises(BackendAway) as caught:
            await call()
        assert caught.value.retry_after
    await backend.close()


@pytest.mark.parametrize("wait", [0, 1])
async def test_a_provider_needs_confirmed_writes_if_redis_has_replicas(
    own_redis: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, wait: int
) -> None:
    backend = Backend(f"{own_redis.url}?wait={wait}", keys=[KEY], limits=PATIENT)
    storage = backend.storage()
    with ExitStack() as replicas:
        for number in (1, 2):
            master = ("--replicaof", f"127.0.0.1 {own_redis.port}")
            folder = tmp_path / f"replica{number}"
            replica = redis_server(folder, *master, program=own_redis.program)
            replicas.enter_context(replica)
            while own_redis.run("INFO", "replication")["connected_slaves"] != number:
                await asyncio.sleep(0.01)
            if number == 1:
                assert await storage.add("a:1", b"", time.time() + 100)
                assert ("Add ?wait=1" in caplog.text) is not bool(wait)
                continue
            if wait:
                async with backend.run_with(nullcontext()):
                    assert await backend.storage().add("a:2", b"", time.time() + 100)
                continue
            with pytest.raises(ConfigError, match=r"2 replicas.*\?wait=1"):
                async with backend.run_with(nullcontext()):
                    pytest.fail("it must not start")
            with pytest.raises(ConfigError):  # if Redis was away at the start
                await backend.storage().get("a:1")
    await backend.close()


async def test_a_provider_must_know_whether_redis_has_replicas(own_redis: RedisServer) -> None:
    own_redis.run("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-info")
    url = f"redis://app:secret@127.0.0.1:{own_redis.port}/0"
    backend = Backend(url, keys=[KEY], limits=PATIENT)
    with pytest.raises(ConfigError, match=r"may not run INFO.*\+info.*\?wait=1"):
        await backend.storage().get("a:1")
    await backend.close()
    backend = Backend(f"{url}?wait=1", keys=[KEY], limits=PATIENT)
    assert await backend.storage().get("a:1") is None
    await backend.close()


async def test_a_write_that_no_replica_confirms_counts_as_failed(own_redis: RedisServer) -> None:
    backend = Backend(f"{own_redis.url}?wait=1", keys=[KEY])
    with pytest.raises(BackendAway):
        await backend.storage().add("a:1", b"", time.time() + 100)
    await backend.close()
