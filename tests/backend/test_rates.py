"""The contract of `Counters`."""

import asyncio

import pytest

from dovetail.backend.protocols import Admitted, Bucket, Counters
from tests.system import needs_redis

from .conftest import MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
HOUR = 3600.0


def bucket(key: str, size: int, token_seconds: float = HOUR) -> Bucket:
    return Bucket(key, token_seconds, token_seconds * size)


@pytest.fixture
def counters(make_backend: MakeBackend) -> Counters:
    return make_backend().rates()


async def test_a_bucket_grants_its_size_and_then_says_how_long_to_wait(counters: Counters) -> None:
    five = bucket("five", 5)
    assert [(await counters.take([five])).granted for _ in range(5)] == [1] * 5
    refused = await counters.take([five])
    assert refused.granted == refused.refused_by == 0
    assert HOUR * 0.9 < refused.wait <= HOUR


async def test_of_calls_at_several_processes_as_many_pass_as_the_limit_allows(
    make_backend: MakeBackend,
) -> None:
    processes = [make_backend().rates() for _ in range(3)]
    calls = [one.take([bucket("calls", 5)]) for one in processes for _ in range(3)]
    assert sum(one.granted for one in await asyncio.gather(*calls)) == 5


async def test_a_refusal_of_one_bucket_takes_nothing_from_the_others(counters: Counters) -> None:
    large, small = bucket("large", 10), bucket("small", 2)
    granted = [await counters.take([large, small]) for _ in range(5)]
    assert [one.granted for one in granted] == [1, 1, 0, 0, 0]
    assert [one.refused_by for one in granted] == [-1, -1, 1, 1, 1]
    assert (await counters.take([large], 10)).granted == 8


async def test_tokens_may_be_taken_in_advance_and_given_back(counters: Counters) -> None:
    twenty = bucket("twenty", 20)
    assert await counters.take([twenty], 15) == Admitted(15)
    part = await counters.take([twenty], 15)
    assert (part.granted, part.refused_by) == (5, 0)
    assert (await counters.take([twenty], -7)).granted == -7
    assert (await counters.take([twenty], 15)).granted == 7
    await counters.take([twenty], -1000)
    assert (await counters.take([twenty], 1000)).granted == 20  # no more than the bucket holds


async def test_a_bucket_fills_up_with_time(counters: Counters) -> None:
    quick = bucket("quick", 1, 0.02)
    assert (await counters.take([quick])).granted == 1
    while (await counters.take([quick])).granted == 0:
        await asyncio.sleep(0.005)


async def test_without_buckets_everything_is_granted(counters: Counters) -> None:
    assert await counters.take([]) == Admitted(1)


async def test_a_full_bucket_is_forgotten(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    await backend.rates().take([bucket("quick", 3, 0.01)], 3)
    pattern = backend.prefix.replace("[", "?").replace("*", "?") + "*"
    while shared_redis.keys(pattern):
        await asyncio.sleep(0.01)
