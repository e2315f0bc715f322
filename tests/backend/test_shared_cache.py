"""Responses that clients of several processes share."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dovetail import Cache, Client, Context, Server, SharedCache
from dovetail.auth import Bearer
from dovetail.backend import Backend
from dovetail.client import shared_responses
from dovetail.ports import Credentials, Fetch, HttpResponse, Principal, PublicUrl
from dovetail.testing import Tape
from tests.client.test_caching import asked, build, served, text
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
MakeCache = Callable[[], SharedCache]


@pytest.fixture
def make_cache(make_backend: MakeBackend) -> MakeCache:
    """Makes the cache of another process."""
    return lambda: SharedCache(backend=make_backend())


@pytest.fixture
def always_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_responses, "CHECK_SECONDS", 0.0)


async def test_what_one_process_asked_for_another_need_not(make_cache: MakeCache) -> None:
    tape = Tape()
    async with served(build(), tape) as url:
        for _ in range(3):
            async with Client(url, cache=make_cache()) as client:
                assert [tool.name for tool in await client.list_tools()] == ["one", "two"]
                assert await text(client, "kept://a") == "a"
                assert await text(client, "kept://b") == "b"
    assert (asked(tape, "tools/list"), asked(tape, "resources/read")) == (1, 2)


async def test_a_process_that_has_a_response_does_not_ask_redis_for_it(
    make_cache: MakeCache, shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_responses, "CHECK_SECONDS", 1000.0)
    async with served(build(), Tape()) as url, Client(url, cache=make_cache()) as client:
        await client.list_tools()
        shared_redis.run("CONFIG", "RESETSTAT")
        for _ in range(20):
            await client.list_tools()
        counts = shared_redis.command_counts()
    assert counts.keys() & {"get", "mget", "pttl", "set", "unlink"} == set()


@pytest.mark.parametrize(
    ("options", "of_backend"),
    [({"verify": False}, {}), ({"auth": "other"}, {}), ({}, {"name": "other"})],
)
async def test_clients_that_trust_others_or_are_others_share_nothing(
    make_backend: MakeBackend, options: dict[str, Any], of_backend: dict[str, Any]
) -> None:
    tape = Tape()
    async with served(build(), tape) as url:
        async with Client(url, cache=SharedCache(backend=make_backend()), auth="one") as client:
            await client.list_tools()
        cache = SharedCache(backend=make_backend(**of_backend))
        async with Client(url, cache=cache, **{"auth": "one", **options}) as client:
            await client.list_tools()
    assert asked(tape, "tools/list") == 2


@pytest.mark.requirement("cache-private")
@pytest.mark.parametrize("how", ["auth", "headers"])
async def test_what_is_private_is_shared_only_by_processes_of_one_user(
    make_cache: MakeCache, how: str
) -> None:
    server, tape = Server("private", cache=Cache(60)), Tape()

    @server.resource("me://token")
    def token(ctx: Context) -> str:
        return ctx.headers["authorization"].removeprefix("Bearer ")

    async with served(server, tape) as url:
        for user in ("one", "two", "one", "two"):
            sent = {"Authorization": f"Bearer {user}"}
            options: dict[str, Any] = {"auth": user} if how == "auth" else {"headers": sent}
            async with Client(url, cache=make_cache(), **options) as client:
                assert await text(client, "me://token") == user
        assert asked(tape, "resources/read") == 2
        options["headers"] = {**options.get("headers", {}), "X-Tenant": "other"}
        async with Client(url, cache=make_cache(), **options) as client:
            assert await text(client, "me://token") == "two"
        assert asked(tape, "resources/read") == 3


@pytest.mark.requirement("cache-private")
async def test_what_is_private_stays_here_if_the_client_does_not_say_who_it_is(
    make_cache: MakeCache,
) -> None:
    server, tape = build(Cache(60)), Tape()
    async with served(server, tape) as url:
        for _ in range(2):
            async with Client(url, cache=make_cache(), headers={"X-Api-Key": "k"}) as client:
                await client.list_tools()
                await client.list_tools()
    assert asked(tape, "tools/list") == 2


class Person:
    """Credentials of a person who logs in as somebody else when the server refuses them."""

    user = "one"

    def bind(self, url: str, fetch: Fetch) -> Credentials:
        return self

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self.user}"}

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        self.user = "two"
        return True

    def on_response(self, answer: HttpResponse) -> None: ...


@pytest.mark.requirement("cache-private")
async def test_a_response_is_not_shared_if_the_user_changed_while_it_was_requested(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    users, backend, person = {"one", "two"}, make_backend(), Person()

    async def verify(token: str, public_url: PublicUrl) -> Principal | None:
        return Principal(token) if token in users else None

    server = Server("private", cache=Cache(60), auth=Bearer(verify))

    @server.resource("me://name")
    def name(ctx: Context) -> str:
        assert ctx.user is not None
        return ctx.user.id

    async with served(server, Tape()) as url:
        async with Client(url, cache=SharedCache(backend=backend), auth=person) as client:
            users.remove("one")
            assert await text(client, "me://name") == "two"
            assert shared_redis.keys(f"{backend.prefix}cache:*") == []
            assert await text(client, "me://name", fresh=True) == "two"
            assert len(shared_redis.keys(f"{backend.prefix}cache:*")) == 1


async def test_news_that_one_process_hears_end_what_all_have(make_cache: MakeCache) -> None:
    server, tape, news = build(), Tape(), asyncio.Event()
    async with (
        served(server, tape) as url,
        Client(url, cache=make_cache()) as one,
        Client(url, cache=make_cache()) as two,
    ):
        await one.on_change("tools", lambda kind: news.set())
        await one.list_tools()
        assert len(await two.list_tools()) == 2
        server.remove_tool("two")
        await news.wait()
        assert len(await one.list_tools()) == 1
        while len(await two.list_tools()) == 2:  # for a second
            await asyncio.sleep(0.05)
        assert asked(tape, "tools/list") <= 3


@pytest.mark.usefixtures("always_check")
async def test_a_drop_holds_even_if_another_process_dropped_at_the_same_time(
    make_cache: MakeCache,
) -> None:
    server, tape = build(), Tape()
    caches = [make_cache(), make_cache()]
    async with (
        served(server, tape) as url,
        Client(url, cache=caches[0]) as one,
        Client(url, cache=caches[1]) as two,
    ):
        assert await text(one, "kept://a") == await text(two, "kept://a")
        assert asked(tape, "resources/read") == 1
        one._cache.drop("resources/read")
        two._cache.drop("tools/list")  # two still has what one has dropped
        await one.list_tools()
        await two.list_tools()
        await text(two, "kept://a")
        assert asked(tape, "resources/read") == 2


@pytest.mark.usefixtures("always_check")
async def test_a_response_that_is_older_than_a_drop_elsewhere_is_not_shared(
    make_cache: MakeCache,
) -> None:
    server, tape = Server("slow", cache=Cache(60, "public")), Tape()
    reading, goes_on = asyncio.Event(), asyncio.Event()

    @server.resource("slow://{name}")
    async def read(name: str) -> str:
        reading.set()
        await goes_on.wait()
        return name

    async with (
        served(server, tape) as url,
        Client(url, cache=make_cache()) as one,
        Client(url, cache=make_cache()) as two,
    ):
        waiting = asyncio.create_task(text(one, "slow://a"))
        await reading.wait()
        two._cache.drop("resources/read")
        await two.list_tools()  # after this, the drop is known
        goes_on.set()
        await waiting
        await text(two, "slow://a")
    assert asked(tape, "resources/read") == 2


async def test_a_newer_response_replaces_one_that_was_shared(make_cache: MakeCache) -> None:
    server, tape = build(), Tape()
    async with served(server, tape) as url:
        async with Client(url, cache=make_cache()) as one:
            await one.list_tools()
        async with Client(url, cache=make_cache()) as two:
            server.remove_tool("two")
            assert len(await two.list_tools()) == 2
            assert len(await two.list_tools(fresh=True)) == 1
        async with Client(url, cache=make_cache()) as three:
            assert len(await three.list_tools()) == 1
    assert asked(tape, "tools/list") == 2


async def test_a_response_that_must_not_be_cached_removes_the_one_that_was_shared(
    make_cache: MakeCache,
) -> None:
    server, tape = Server("changing"), Tape()

    @server.resource("changing://x", cache=Cache(60, "public"))
    def short() -> str:
        return "x"

    async with served(server, tape) as url:
        async with Client(url, cache=make_cache()) as one:
            await text(one, "changing://x")
        server.remove_resource("changing://x")
        server.resource("changing://x", cache=Cache(0, "public"))(short)
        async with Client(url, cache=make_cache()) as two:
            await text(two, "changing://x", fresh=True)
            await text(two, "changing://x")
    assert asked(tape, "resources/read") == 3


async def test_a_shared_response_lives_no_longer_than_the_server_allows(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend, cache = make_backend(), SharedCache(backend=make_backend())
    async with served(build(Cache(50, "public")), Tape()) as url:
        async with Client(url, cache=SharedCache(backend=backend)) as client:
            await client.list_tools()
        [entry] = shared_redis.keys(f"{backend.prefix}cache:*")
        assert 40_000 < shared_redis.run("PTTL", entry) <= 50_000
        shared_redis.run("PEXPIRE", entry, 5_000)
        async with Client(url, cache=cache) as client:
            await client.list_tools()
            [kept] = cache._responses.values()
            assert kept.expires_at - asyncio.get_running_loop().time() < 6


# what somebody can do who has access to Redis


async def test_redis_does_not_see_responses_urls_or_users(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    async with served(build(), Tape()) as url:
        async with Client(url, cache=SharedCache(backend=backend), auth="s3cret") as client:
            await text(client, "kept://a-secret-path")
            client._cache.drop("resources/read")
            await text(client, "kept://a-secret-path")
    keys = shared_redis.keys(f"{backend.prefix}*")
    assert len(keys) == 2
    for seen in [*keys, *(shared_redis.run("GET", key) for key in keys)]:
        for word in (b"secret", b"s3cret", url.encode(), b"kept:"):
            assert word not in seen


async def test_a_response_that_was_moved_or_changed_counts_as_missing(
    make_backend: MakeBackend, shared_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    backend, tape = make_backend(), Tape()
    async with served(build(), tape) as url:
        async with Client(url, cache=SharedCache(backend=backend)) as client:
            await text(client, "kept://a")
            [first] = shared_redis.keys(f"{backend.prefix}cache:*")
            await text(client, "kept://b")
        [second] = {*shared_redis.keys(f"{backend.prefix}cache:*")} - {first}
        shared_redis.run("COPY", first, second, "REPLACE")
        shared_redis.run("SET", first, "garbage")
        with caplog.at_level(logging.WARNING, "dovetail"):
            async with Client(url, cache=SharedCache(backend=make_backend())) as client:
                assert await text(client, "kept://b") == "b"
                assert await text(client, "kept://a") == "a"
        assert asked(tape, "resources/read") == 4
        assert caplog.text.count("did not seal it") == 1


@pytest.mark.usefixtures("always_check")
async def test_a_lost_version_brings_nothing_back(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend, tape = make_backend(), Tape()
    async with served(build(), tape) as url:
        async with Client(url, cache=SharedCache(backend=backend)) as client:
            client._cache.drop("tools/list")
            await client.list_tools()
            client._cache.drop("tools/list")
            await text(client, "kept://a")
        shared_redis.run("DEL", *shared_redis.keys(f"{backend.prefix}cache-version:*"))
        async with Client(url, cache=SharedCache(backend=make_backend())) as client:
            await client.list_tools()
            client._cache.drop("tools/list")
            await client.list_tools()
    assert asked(tape, "tools/list") == 3


# without Redis


async def test_while_redis_is_away_each_process_caches_for_itself(own_redis: RedisServer) -> None:
    tape = Tape()
    backends = [Backend(own_redis.url, keys=[KEY]) for _ in range(2)]
    async with (
        served(build(), tape) as url,
        Client(url, cache=SharedCache(backend=backends[0])) as one,
        Client(url, cache=SharedCache(backend=backends[1])) as two,
    ):
        own_redis.stop()
        for client in (one, two, one, two):
            assert len(await client.list_tools()) == 2
        assert asked(tape, "tools/list") == 2
        await one.list_tools(fresh=True)
        assert asked(tape, "tools/list") == 3
    for backend in backends:
        await backend.close()


@pytest.mark.usefixtures("always_check")
async def test_a_drop_while_redis_is_away_holds_elsewhere_when_it_is_back(
    own_redis: RedisServer,
) -> None:
    tape = Tape()
    own_redis.run("CONFIG", "SET", "save", "3600 1")
    backends = [Backend(own_redis.url, keys=[KEY]) for _ in range(2)]
    async with (
        served(build(), tape) as url,
        Client(url, cache=SharedCache(backend=backends[0])) as one,
        Client(url, cache=SharedCache(backend=backends[1])) as two,
    ):
        await text(one, "kept://a")
        await text(two, "kept://a")
        own_redis.run("SAVE")
        own_redis.stop()
        for _ in range(3):  # until both know that Redis is away
            await text(one, "kept://a")
            await text(two, "kept://a")
        one._cache.drop("resources/read")
        await text(one, "kept://a")
        assert asked(tape, "resources/read") == 2
        await text(two, "kept://a")
        assert asked(tape, "resources/read") == 2  # two does not know
        own_redis.start()
        assert own_redis.keys("*:cache:*")
        while {backend.state for backend in backends} != {"connected"}:
            await asyncio.sleep(0.02)
        await text(one, "kept://b")
        await text(two, "kept://a")
        assert asked(tape, "resources/read") == 4
    for backend in backends:
        await backend.close()


async def test_a_backend_may_be_a_url(
    shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    tape = Tape()
    async with served(build(), tape) as url:
        for _ in range(2):
            async with Client(url, cache=SharedCache(backend=shared_redis.url)) as client:
                await client.list_tools()
    assert asked(tape, "tools/list") == 1
