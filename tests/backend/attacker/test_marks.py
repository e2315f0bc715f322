"""Marks and counters, which are not sealed: an attacker can set and delete them, and gains nothing
beyond what is documented."""

import time

import pytest

from dovetail.auth.dpop import DpopSigner
from dovetail.backend import Backend
from dovetail.backend.protocols import Bucket
from dovetail.connection.used_states import UsedStates
from tests.backend.conftest import MakeBackend
from tests.backend.redis_server import RedisServer
from tests.backend.test_proofs import TOKEN, URL, ask, replicas
from tests.system import needs_redis

from .redis_cli import Attacker

pytestmark = needs_redis

FIVE = Bucket("calls", 100.0, 500.0)


@pytest.fixture
def backend(make_backend: MakeBackend) -> Backend:
    return make_backend()


@pytest.fixture
def attacker(shared_redis: RedisServer, backend: Backend) -> Attacker:
    return Attacker(shared_redis, backend.prefix)


async def test_deleting_a_tombstone_brings_back_a_session_without_its_settings(
    backend: Backend, attacker: Attacker
) -> None:
    sessions = backend.sessions()
    await sessions.change("key", {"level": b"debug"}, 60)
    await sessions.end("key", 60)
    assert await sessions.load("key", 4e9, 60) is None
    for key in attacker.keys("ended"):
        attacker.run("DEL", key)
    assert await sessions.load("key", 4e9, 60) == {}
    await backend.close()


async def test_a_made_up_tombstone_ends_a_session(backend: Backend, attacker: Attacker) -> None:
    sessions = backend.sessions()
    assert await sessions.load("key", 4e9, 60) == {}
    attacker.run("SET", f"{backend.prefix}ended:key", "1")
    assert await sessions.load("key", 4e9, 60) is None
    await backend.close()


async def test_settings_of_a_session_that_were_moved_or_made_up_are_ignored(
    backend: Backend, attacker: Attacker
) -> None:
    sessions = backend.sessions()
    await sessions.change("theirs", {"level": b"debug", "pages": b"1"}, 60)
    key = f"{backend.prefix}settings:"
    attacker.copy(f"{key}theirs", f"{key}mine")
    assert await sessions.load("mine", 4e9, 60) == {}
    swap = (
        "local level = redis.call('HGET', KEYS[1], 'level') "
        "redis.call('HSET', KEYS[1], 'level', redis.call('HGET', KEYS[1], 'pages'), 'pages', level)"
    )
    attacker.run("EVAL", swap, "1", f"{key}theirs")
    attacker.run("HSET", f"{key}theirs", "level2", "made up")
    assert await sessions.load("theirs", 4e9, 60) == {}
    await backend.close()


@pytest.mark.parametrize(
    "value", ["0", "-1e400", "not a number", "nan", "99999999999999999999", "1e400", "0x10"]
)
async def test_a_counter_that_was_changed_opens_or_closes_its_bucket_for_as_long_as_it_fills(
    backend: Backend, attacker: Attacker, value: str
) -> None:
    rates = backend.rates()
    await rates.take([FIVE])
    [key] = attacker.keys("rate")
    attacker.run("SET", key, value)
    found = await rates.take([FIVE], 5)
    assert found.granted in (0, 5)
    assert found.wait <= FIVE.bucket_seconds + FIVE.token_seconds
    await backend.close()


async def test_events_that_were_moved_swapped_or_made_up_are_not_sent(
    backend: Backend, attacker: Attacker
) -> None:
    log = backend.events()
    await log.append("theirs", [(1, b"one"), (2, b"two")], 1000, 60)
    [key] = attacker.keys("events")
    mine = key.replace("theirs", "mine")
    attacker.copy(key, mine)
    assert await log.read("mine", 0) is None
    attacker.run("DEL", mine)
    attacker.run("XADD", mine, "0-1", "data", "made up", "before", "0", "after", "5")
    assert await log.read("mine", 0) is None
    attacker.run("XDEL", key, "0-1")
    assert await log.read("theirs", 0) is None  # not complete
    assert await log.read("theirs", 1) == [(2, b"two")]
    await backend.close()


async def test_a_state_can_be_used_again_if_its_mark_is_deleted_and_not_if_it_is_made_up(
    backend: Backend, attacker: Attacker
) -> None:
    used, later = UsedStates(backend.rows("used"), 60), time.time() + 60
    assert await used.use("one", later) and not await used.use("one", later)
    for key in attacker.keys("used"):
        attacker.run("DEL", key)
    assert await used.use("one", later)
    [key] = attacker.keys("used")
    attacker.run("SET", key, "made up")
    assert not await used.use("one", later)
    await backend.close()


async def test_a_proof_can_be_used_again_if_its_mark_is_deleted_but_only_by_who_has_it(
    backend: Backend, attacker: Attacker
) -> None:
    signer = DpopSigner()
    async with replicas(signer, backend) as (site,):
        proof = signer.proof("POST", URL, TOKEN)
        assert [(await ask(site, proof)).status for _ in range(2)] == [200, 401]
        for key in attacker.keys("jti"):
            attacker.run("DEL", key)
        assert (await ask(site, proof)).status in (200, 401)
        assert (await ask(site, DpopSigner().proof("POST", URL, TOKEN))).status == 401
