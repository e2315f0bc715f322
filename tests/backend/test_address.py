"""URLs of Redis."""

import pytest

from dovetail.backend.redis.address import RedisAddress, parse_address
from dovetail.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://cache", RedisAddress(hosts=(("cache", 6379),))),
        ("redis://cache:7000/3", RedisAddress(hosts=(("cache", 7000),), database=3)),
        ("redis://[::1]:7000", RedisAddress(hosts=(("::1", 7000),))),
        ("rediss://cache/0?wait=1", RedisAddress(hosts=(("cache", 6379),), tls=True, wait=1)),
        (
            "redis://me:p%40ss%2Fword@cache",
            RedisAddress(hosts=(("cache", 6379),), username="me", password="p@ss/word"),
        ),
        ("redis://:secret@cache", RedisAddress(hosts=(("cache", 6379),), password="secret")),
        (
            "redis+sentinel://one,two:7001,[::1]/main",
            RedisAddress(hosts=(("one", 26379), ("two", 7001), ("::1", 26379)), master="main"),
        ),
        (
            "rediss+sentinel://me:secret@one:1/main/2?sentinel_password=other&wait=2",
            RedisAddress(
                hosts=(("one", 1),),
                master="main",
                database=2,
                tls=True,
                wait=2,
                username="me",
                password="secret",
                sentinel_password="other",
            ),
        ),
    ],
)
def test_a_url_names_hosts_a_database_and_a_login(url: str, expected: RedisAddress) -> None:
    assert parse_address(url) == expected


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "must start with one of: redis://"),
        ("cache:6379", "must start with one of: redis://"),
        ("http://cache", "must start with one of: redis://"),
        ("redis+cluster://cache", "Cluster is not supported"),
        ("rediss+cluster://cache", "Cluster is not supported"),
        ("redis://one,two", "Cluster is not supported"),
        ("redis://", "no valid host"),
        ("redis://:6379", "no valid host"),
        ("redis://cache:port", "no valid host"),
        ("redis://cache:99999", "no valid host"),
        ("redis://[::1", "not valid"),
        ("redis://cache/main", "database must be a number"),
        ("redis://cache/0/1", "database must be a number"),
        ("redis://cache/-1", "database must be a number"),
        ("redis://cache?wait=yes", "wait must be a number"),
        ("redis://cache?timeout=1", "unknown option 'timeout'"),
        ("redis://cache/0#x", "has a fragment"),
        ("redis+sentinel://one,two", "names no master"),
        ("redis+sentinel://one,/main", "no valid host"),
    ],
)
def test_a_url_that_is_not_valid_says_what_to_change(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2@cache:1",
        "redis+sentinel://me:hunter2@one,two/main?sentinel_password=hunter2",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    address = parse_address(url)
    assert address.password == "hunter2"
    assert "hunter2" not in f"{address} {address!r} {(address,)!r}"


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2@cache:x",
        "redis://me:hunter2@cache/x",
        "redis://me:hunter2#@cache",
        "redis://me:hunter2/@cache:6379",
        "redis+cluster://me:hunter2@cache",
        "redis://me:[hunter2@cache",
        "hunter2",
        "redis://cache?hunter=hunter2",
    ],
)
def test_the_error_for_a_url_does_not_show_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(url)
    assert "hunter2" not in str(caught.value)


def test_an_address_is_shown_as_a_url() -> None:
    assert str(parse_address("rediss://x:y@[::1]:1/2")) == "rediss://[::1]:1/2"
    assert str(parse_address("redis+sentinel://a,b/m")) == "redis+sentinel://a:26379,b:26379/m/0"
