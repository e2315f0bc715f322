"""The logins of clients in Redis: their contract, and what Redis adds to it."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from dovetail.auth.client.store import Store
from dovetail.backend import Backend
from dovetail.backend.redis import token_store
from dovetail.errors import ConfigError
from tests.auth.store_contract import *  # noqa: F403
from tests.auth.store_contract import HERE, THERE
from tests.auth.test_credentials import World
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(make_backend: MakeBackend) -> Store:
    return make_backend().tokens()


async def test_processes_share_logins_and_users_do_not(make_backend: MakeBackend) -> None:
    await make_backend().tokens().save(HERE, b"one")
    await make_backend().tokens("ada").save(HERE, b"two")
    assert await make_backend().tokens().load(HERE) == b"one"
    ada = make_backend().tokens("ada")
    assert await ada.load(HERE) == b"two" and await ada.keys() == [HERE]
    assert await make_backend().tokens("bob").load(HERE) is None
    assert await make_backend(name="other").tokens().load(HERE) is None


async def test_a_lock_is_held_among_processes_and_not_among_users(
    make_backend: MakeBackend,
) -> None:
    one, two = make_backend().tokens(), make_backend().tokens()
    async with one.lock(HERE):
        waiting = asyncio.create_task(two.lock(HERE).__aenter__())
        async with make_backend().tokens("ada").lock(HERE):
            assert not waiting.done()
    await waiting


async def test_a_lock_is_renewed_while_it_is_held(
    make_backend: MakeBackend, shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = make_backend()
    async with backend.tokens().lock(HERE):
        [lock] = shared_redis.keys(f"{backend.prefix}token-lock:*")
        assert 0 < shared_redis.run("PTTL", lock) <= token_store.LOCK_SECONDS * 1000
    assert shared_redis.keys(f"{backend.prefix}*") == []
    monkeypatch.setattr(token_store, "LOCK_SECONDS", 2.0)
    async with backend.tokens().lock(HERE):
        shared_redis.run("PEXPIRE", lock, 60_000)
        while shared_redis.run("PTTL", lock) > 2000:
            await asyncio.sleep(0.05)


async def test_a_lock_that_was_lost_is_not_released_for_its_new_holder(
    make_backend: MakeBackend,
    shared_redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(token_store, "LOCK_SECONDS", 0.2)
    backend = make_backend()
    async with backend.tokens().lock(HERE):
        [lock] = shared_redis.keys(f"{backend.prefix}token-lock:*")
        shared_redis.run("SET", lock, "somebody else")
        while "was lost" not in caplog.text:
            await asyncio.sleep(0.01)
    assert shared_redis.run("GET", lock) == b"somebody else"


HOLDING = """
import asyncio, sys
from dovetail.backend import Backend
from dovetail.backend.redis import token_store
token_store.LOCK_SECONDS = 1.0
async def main():
    url, name, key, server = sys.argv[1:]
    async with Backend(url, name=name, keys=[key]).tokens().lock(server):
        print("held", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_a_lock_ends_soon_after_the_process_that_held_it_was_killed(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    arguments = (shared_redis.url, "killed", KEY, HERE)
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDING, *arguments), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None and await holder.stdout.readline() == b"held\n"
    waiting = asyncio.create_task(make_backend(name="killed").tokens().lock(HERE).__aenter__())
    await asyncio.sleep(1.5)  # it is renewed
    assert not waiting.done()
    holder.send_signal(signal.SIGKILL)
    await asyncio.wait_for(waiting, 30)
    await holder.wait()


async def test_two_processes_make_one_renewal(make_backend: MakeBackend) -> None:
    world = World()
    world.store = make_backend().tokens()  # type: ignore[assignment]
    await world.server.ask(world.client())
    world.now += 3590
    clients = []
    for _ in range(3):
        world.store = make_backend().tokens()  # type: ignore[assignment]
        clients.append(world.client())
    assert await asyncio.gather(*map(world.server.ask, clients)) == [200] * 3
    assert world.issuer.given == 2


# what somebody can do who has access to Redis


async def test_redis_sees_neither_logins_nor_urls(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    await backend.tokens("ada@there.example").save(HERE, b"s3cret-token")
    [key] = shared_redis.keys(f"{backend.prefix}*")
    [(name, value)] = shared_redis.run("HGETALL", key).items()
    seen = key + name + value
    for word in (b"s3cret", b"here.example", b"ada"):
        assert word not in seen


async def test_a_login_that_was_moved_or_changed_counts_as_missing(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    store = backend.tokens()
    await store.save(HERE, b"one")
    [key] = shared_redis.keys(f"{backend.prefix}*")
    [(name, value)] = shared_redis.run("HGETALL", key).items()
    await store.save(THERE, b"two")
    [other] = {*shared_redis.run("HKEYS", key)} - {name}
    shared_redis.run("HSET", key, other, value, b"\xff", b"garbage")
    assert await store.load(THERE) is None
    assert await store.keys() == [HERE]
    await backend.tokens("ada").save(HERE, b"hers")
    [hers] = {*shared_redis.keys(f"{backend.prefix}*")} - {key}
    shared_redis.run("HSET", hers, name, value)
    assert await backend.tokens("ada").load(HERE) is None


async def test_if_redis_is_away_it_is_like_a_full_disk(own_redis: RedisServer) -> None:
    backend = Backend(own_redis.url.replace("//", "//:s3cret@"), keys=[KEY])
    own_redis.run("CONFIG", "SET", "requirepass", "s3cret")
    store = backend.tokens()
    await store.save(HERE, b"one")
    async with store.lock(HERE):
        own_redis.stop()
    for call in (
        lambda: store.load(HERE),
        lambda: store.save(HERE, b"two"),
        lambda: store.delete(HERE),
        store.keys,
        lambda: store.lock(HERE).__aenter__(),
    ):
        with pytest.raises(ConfigError, match="logins: Redis at redis://") as caught:
            await call()
        assert "s3cret" not in str(caught.value)
    await backend.close()
