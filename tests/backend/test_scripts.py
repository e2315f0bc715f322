"""Each script, called as the client calls it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import ResponseError

from dovetail.backend.redis import scripts, task_scripts
from dovetail.backend.redis.scripts import (
    ADD_PROVIDER_ROW,
    APPEND_EVENTS,
    CHANGE_PROVIDER_ROW,
    CHANGE_ROW,
    CHANGE_SESSION,
    GET_PROVIDER_ROW,
    HEARTBEAT,
    KEEP_LOCK,
    LOAD_SESSION,
    TAKE_PROVIDER_ROW,
    TAKE_TOKENS,
    Script,
)
from tests.system import needs_redis

from . import test_task_scripts
from .redis_server import RedisServer

pytestmark = needs_redis


@pytest.fixture
def redis(shared_redis: RedisServer) -> Iterator[RedisServer]:
    shared_redis.run("FLUSHALL")
    yield shared_redis


def run(redis: RedisServer, script: Script, keys: list[str], *arguments: Any) -> Any:
    _, _, *rest = script.call(keys, *arguments)
    return redis.run("EVAL", script.source, *rest)


def test_every_script_has_a_test_a_name_and_a_description() -> None:
    names = {**vars(scripts), **vars(task_scripts)}
    listed = {name: one for name, one in names.items() if isinstance(one, Script)}
    assert {*listed.values()} == {*Script.by_digest.values()}
    assert {one.name.replace(" ", "_").upper() for one in listed.values()} == {*listed}
    tests = [name for name in (*globals(), *vars(test_task_scripts)) if name.startswith("test_")]
    for name in listed:
        assert any(test.startswith(f"test_{name.lower()}") for test in tests), name


def test_change_row_replaces_a_value_that_is_still_the_same(redis: RedisServer) -> None:
    redis.run("SET", "row", b"\xff1")
    assert run(redis, CHANGE_ROW, ["row"], b"other", b"new", 1000) == 0
    assert run(redis, CHANGE_ROW, ["none"], b"", b"new", 1000) == 0
    assert redis.run("GET", "row") == b"\xff1" and redis.run("EXISTS", "none") == 0
    assert run(redis, CHANGE_ROW, ["row"], b"\xff1", b"new", 60_000) == 1
    assert redis.run("GET", "row") == b"new" and 50 <= redis.run("TTL", "row") <= 60
    assert run(redis, CHANGE_ROW, ["row"], b"new", b"newer", 0) == 1
    assert redis.run("TTL", "row") == -1


def test_keep_lock_renews_and_releases_for_the_holder(redis: RedisServer) -> None:
    assert run(redis, KEEP_LOCK, ["lock"], "mine", 60_000) == 0
    redis.run("SET", "lock", "mine", "PX", 1000)
    assert run(redis, KEEP_LOCK, ["lock"], "theirs", 60_000) == 0
    assert run(redis, KEEP_LOCK, ["lock"], "theirs", 0) == 0
    assert run(redis, KEEP_LOCK, ["lock"], "mine", 60_000) == 1
    assert 50 < redis.run("TTL", "lock") <= 60
    assert run(redis, KEEP_LOCK, ["lock"], "mine", 0) == 1
    assert redis.run("EXISTS", "lock") == 0


GRANT, ACCESS = "{dovetail:x}:provider:grant:1", "{dovetail:x}:provider:access:1"
GRANTS, CHILDREN = "{dovetail:x}:provider-index:grant", "{dovetail:x}:provider-children:grant:1"
MINUTE = 60_000


def add_row(redis: RedisServer, *keys: str, bound: int = 100, evict: int = 0) -> int:
    reply: int = run(redis, ADD_PROVIDER_ROW, [*keys], b"\xffdata", MINUTE, bound, evict)
    return reply


def test_get_provider_row_finds_no_row_without_its_parent(redis: RedisServer) -> None:
    assert run(redis, GET_PROVIDER_ROW, [GRANT]) is None
    add_row(redis, GRANT)
    add_row(redis, ACCESS, GRANT)
    assert run(redis, GET_PROVIDER_ROW, [ACCESS]) == b"\xffdata"
    redis.run("DEL", GRANT)  # as if it had expired
    assert run(redis, GET_PROVIDER_ROW, [ACCESS]) is None


def test_add_provider_row_lists_the_row_by_its_expiry(redis: RedisServer) -> None:
    assert add_row(redis, ACCESS, GRANT) == 0
    assert add_row(redis, GRANT) == 1
    assert add_row(redis, GRANT) == 0
    assert add_row(redis, ACCESS, GRANT) == 1
    for listed, key in ((GRANTS, GRANT), (CHILDREN, ACCESS)):
        [[found, at]] = [redis.run("ZRANGE", listed, 0, -1, "WITHSCORES")]
        assert (found, int(at)) == (key.encode(), redis.run("PEXPIRETIME", key))
        assert redis.run("PEXPIRETIME", listed) == int(at)


def test_add_provider_row_forgets_rows_that_have_expired(redis: RedisServer) -> None:
    add_row(redis, GRANT)
    redis.run("ZADD", GRANTS, 1, "old")
    redis.run("ZADD", CHILDREN, 1, "old")
    assert add_row(redis, f"{GRANT}2", bound=2) == 1
    assert add_row(redis, f"{GRANT}3", bound=2) == -1
    assert add_row(redis, ACCESS, GRANT) == 1
    assert redis.run("ZCARD", GRANTS) == 2 and redis.run("ZCARD", CHILDREN) == 1


def test_add_provider_row_that_fails_adds_nothing(redis: RedisServer) -> None:
    add_row(redis, GRANT)
    redis.run("SET", CHILDREN, "a type that the script does not expect")
    with pytest.raises(ResponseError):
        add_row(redis, ACCESS, GRANT)
    assert redis.run("EXISTS", ACCESS) == 0


def test_add_provider_row_makes_room_if_it_is_told_to(redis: RedisServer) -> None:
    for number in range(5):
        add_row(redis, f"{GRANT}{number}")
        redis.run("ZADD", GRANTS, 10**13 - number, f"{GRANT}{number}")
    assert add_row(redis, GRANT, bound=3, evict=1) == 1
    assert redis.keys(f"{GRANT}*") == [key.encode() for key in (GRANT, f"{GRANT}0", f"{GRANT}1")]


def test_change_provider_row_replaces_data_that_is_still_the_same(redis: RedisServer) -> None:
    add_row(redis, GRANT)
    add_row(redis, ACCESS, GRANT)
    assert run(redis, CHANGE_PROVIDER_ROW, [ACCESS], b"other", b"new", 2 * MINUTE) == 0
    assert run(redis, CHANGE_PROVIDER_ROW, ["none"], b"", b"new", 2 * MINUTE) == 0
    assert run(redis, CHANGE_PROVIDER_ROW, [ACCESS], b"\xffdata", b"new", 2 * MINUTE) == 1
    assert redis.run("HGET", ACCESS, "data") == b"new"
    assert 100 < redis.run("TTL", ACCESS) <= 120
    assert int(redis.run("ZSCORE", CHILDREN, ACCESS)) == redis.run("PEXPIRETIME", ACCESS)
    assert redis.run("PEXPIRETIME", CHILDREN) == redis.run("PEXPIRETIME", ACCESS)


def test_take_provider_row_leaves_nothing_behind(redis: RedisServer) -> None:
    add_row(redis, GRANT)
    for number in range(3):
        add_row(redis, f"{ACCESS}{number}", GRANT)
    assert run(redis, TAKE_PROVIDER_ROW, [f"{ACCESS}0"]) == b"\xffdata"
    assert redis.run("ZCARD", CHILDREN) == 2
    assert run(redis, TAKE_PROVIDER_ROW, [GRANT]) == b"\xffdata"
    assert run(redis, TAKE_PROVIDER_ROW, [GRANT]) is None
    assert redis.keys() == []


def test_take_provider_row_ends_although_somebody_made_a_circle(redis: RedisServer) -> None:
    add_row(redis, GRANT)
    redis.run("ZADD", CHILDREN, 10**13, GRANT, 10**13, "no row")
    assert run(redis, TAKE_PROVIDER_ROW, [GRANT]) == b"\xffdata"


HOUR = 3_600_000_000


def test_take_tokens_grants_what_the_emptiest_bucket_has(redis: RedisServer) -> None:
    small, large = (HOUR, 3 * HOUR), (HOUR, 10 * HOUR)  # 3 and 10 tokens
    assert run(redis, TAKE_TOKENS, ["a", "b"], 1, *small, *large) == [1, 0, 0]
    granted, wait, refused = run(redis, TAKE_TOKENS, ["b", "a"], 5, *large, *small)
    assert (granted, refused) == (2, 2)
    assert HOUR * 0.9 < wait <= HOUR
    granted, wait, refused = run(redis, TAKE_TOKENS, ["a", "b"], 1, *small, *large)
    assert (granted, refused) == (0, 1) and HOUR * 0.9 < wait <= HOUR
    assert run(redis, TAKE_TOKENS, ["b"], 10, *large)[0] == 7  # a refusal takes nothing
    assert 2 * 3600 < redis.run("TTL", "a") <= 3 * 3600


def test_take_tokens_gives_back(redis: RedisServer) -> None:
    bucket = (HOUR, 5 * HOUR)
    assert run(redis, TAKE_TOKENS, ["a"], 5, *bucket)[0] == 5
    assert run(redis, TAKE_TOKENS, ["a"], -2, *bucket) == [-2, 0, 0]
    assert run(redis, TAKE_TOKENS, ["a"], 5, *bucket)[0] == 2
    run(redis, TAKE_TOKENS, ["a"], -100, *bucket)
    assert redis.run("EXISTS", "a") == 0  # a full bucket costs no memory
    assert run(redis, TAKE_TOKENS, ["a"], 100, *bucket)[0] == 5


def test_take_tokens_fills_buckets_with_time(redis: RedisServer) -> None:
    bucket = (20_000, 20_000)  # one token in 20 ms
    assert run(redis, TAKE_TOKENS, ["a"], 1, *bucket)[0] == 1
    deadline = time.monotonic() + 30
    while run(redis, TAKE_TOKENS, ["a"], 1, *bucket)[0] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_take_tokens_counts_fractions_of_microseconds(redis: RedisServer) -> None:
    bucket = (HOUR / 7, HOUR)
    granted = [run(redis, TAKE_TOKENS, ["a"], 1, *map(repr, bucket))[0] for _ in range(8)]
    assert granted == [1] * 7 + [0]


@pytest.mark.parametrize("value", ["nonsense", "nan", "-nan", "inf", "9" * 30, "-5"])
def test_take_tokens_survives_a_value_that_somebody_changed(redis: RedisServer, value: str) -> None:
    redis.run("SET", "a", value)
    granted, wait, _ = run(redis, TAKE_TOKENS, ["a"], 9, HOUR, 3 * HOUR)
    assert granted in (0, 3) and 0 < wait <= HOUR
    assert run(redis, TAKE_TOKENS, ["a"], 1, HOUR, 3 * HOUR)[0] == 0, "the bucket is empty"


def test_heartbeat_lists_members_that_reported_in_time(redis: RedisServer) -> None:
    before = time.time() * 1000
    now, members = run(redis, HEARTBEAT, ["members"], "one", 60_000)
    assert members == [b"one"]
    assert before - 1 <= now <= time.time() * 1000 + 1
    assert sorted(run(redis, HEARTBEAT, ["members"], "two", 60_000)[1]) == [b"one", b"two"]
    redis.run("ZADD", "members", now - 61_000, "one")
    assert run(redis, HEARTBEAT, ["members"], "two", 60_000)[1] == [b"two"]
    assert 50 < redis.run("TTL", "members") <= 60


def test_load_session_marks_a_session_as_used(redis: RedisServer) -> None:
    now, keys = round(time.time() * 1000), ["ended", "seen", "settings"]
    assert run(redis, LOAD_SESSION, keys, 60_000, now) == []
    assert 50 < redis.run("TTL", "seen") <= 60
    redis.run("HSET", "settings", "level", b"\xff1")
    assert run(redis, LOAD_SESSION, keys, 60_000, now - 100_000) == [b"level", b"\xff1"]
    assert 50 < redis.run("TTL", "settings") <= 60


def test_load_session_reports_an_ended_or_idle_session(redis: RedisServer) -> None:
    now, keys = round(time.time() * 1000), ["ended", "seen", "settings"]
    assert run(redis, LOAD_SESSION, keys, 60_000, now - 61_000) is None  # not used for too long
    assert run(redis, LOAD_SESSION, keys, 60_000, now) == []
    redis.run("SET", "ended", "")
    assert run(redis, LOAD_SESSION, keys, 60_000, now) is None


def test_change_session_sets_and_deletes_settings_that_expire(redis: RedisServer) -> None:
    assert run(redis, CHANGE_SESSION, ["a"], 60_000, "one", b"\xff1", "two", b"2") == 1
    assert 50 < redis.run("TTL", "a") <= 60
    assert run(redis, CHANGE_SESSION, ["a"], 30_000, "two", "", "one", b"new") == 1
    assert redis.run("HGETALL", "a") == {b"one": b"new"} and 20 < redis.run("TTL", "a") <= 30
    assert run(redis, CHANGE_SESSION, ["a"], 30_000, "one", "") == 0
    assert redis.run("EXISTS", "a") == 0


def append(redis: RedisServer, bound: int, *messages: tuple[int, bytes]) -> list[bytes]:
    rest = [part for number, data in messages for part in (number, len(data), data)]
    run(redis, APPEND_EVENTS, ["log"], bound, 60_000, *rest)
    return [id for id, _ in redis.run("XRANGE", "log", "-", "+")]


def test_append_events_counts_bytes_without_the_newest_message(redis: RedisServer) -> None:
    assert append(redis, 10, (1, b"x" * 6), (2, b"x" * 5)) == [b"0-1", b"0-2"]
    assert append(redis, 10, (3, b"x" * 100)) == [b"0-2", b"0-3"]
    assert append(redis, 10, (4, b"")) == [b"0-4"]  # 105 bytes were too many, 100 were, too
    assert append(redis, 10, (5, b"x"), (6, b"x")) == [b"0-4", b"0-5", b"0-6"]
    assert 50 < redis.run("TTL", "log") <= 60


def test_append_events_skips_what_is_there(redis: RedisServer) -> None:
    append(redis, 1000, (2, b"a"), (4, b"b"))
    assert append(redis, 1000, (1, b"c"), (3, b"c"), (4, b"c"), (5, b"c")) == [
        *(b"0-2", b"0-4", b"0-5")
    ]
    redis.run("XADD", "log", "0-7", "what", "ever")  # somebody else
    assert append(redis, 1000, (8, b"d"))[-1] == b"0-8"


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "x"])
def test_append_events_keeps_its_bound_though_somebody_changed_a_size(
    redis: RedisServer, value: str
) -> None:
    redis.run("XADD", "log", "0-1", "data", "", "before", value, "after", value)
    for number in range(2, 9):
        found = append(redis, 10, (number, b"x" * 6))
    assert found == [b"0-7", b"0-8"]


def test_append_events_without_messages_makes_no_log(redis: RedisServer) -> None:
    assert run(redis, APPEND_EVENTS, ["log"], 10, 60_000) == 0
    assert redis.run("EXISTS", "log") == 0
