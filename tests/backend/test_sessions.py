"""Sessions that several replicas serve, in the handshake era."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.backend import Backend
from dovetail.backend.protocols import SessionRecords
from dovetail.connection.bus import NoBus
from dovetail.limits import Limits
from dovetail.transports.http.server.sessions import digest_id
from dovetail.transports.http.server.shared_sessions import SharedSessions
from tests.system import needs_redis
from tests.transports.http.raw import OLD, Session, logged, on_port, text

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer
from .replicas import Replica, replica, replicas

pytestmark = needs_redis
IDLE = 600.0
EVERYTHING = "~*", "&*", "+@all"
"""The rules that let a user of Redis do everything."""
Allow = Callable[..., None]


async def status(at: Replica, session: Session) -> int:
    return (await at.at(session).call("add", a=1, b=2)).status


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


# the records


@pytest.fixture
def records(make_backend: MakeBackend) -> SessionRecords:
    return make_backend().sessions()


def now(redis: RedisServer) -> float:
    seconds, microseconds = redis.run("TIME")
    return float(seconds + microseconds / 1e6)


async def test_settings_change_one_by_one(
    records: SessionRecords, make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    started = now(shared_redis)
    assert await records.load("a", started, IDLE) == {}
    await records.change("a", {"one": b"1", "two": b"2"}, IDLE)
    await make_backend().sessions().change("a", {"two": None, "three": b"\0"}, IDLE)
    assert await records.load("a", started, IDLE) == {"one": b"1", "three": b"\0"}
    assert await records.load("b", started, IDLE) == {}


async def test_settings_and_their_expiry_are_written_in_one_step(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    """Otherwise, settings would stay forever if Redis or the process was killed in between."""
    backend = make_backend()
    records = backend.sessions()
    await records.change("a", {"one": b"1"}, IDLE)  # now Redis knows the script
    before = backend.client.stats.commands
    await records.change("a", {"one": None, "two": b"2", "three": b"3"}, IDLE)
    assert backend.client.stats.commands == before + 1
    assert 0 < shared_redis.run("TTL", f"{backend.prefix}settings:a") <= IDLE


async def test_a_session_that_was_not_used_has_ended(
    records: SessionRecords, make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    started = now(shared_redis) - 2 * IDLE
    assert await records.load("a", started, IDLE) is None
    await records.mark_used(["a", *map(str, range(1000))], IDLE)
    assert await records.load("a", started, IDLE) == {}
    assert await records.load("999", started, IDLE) == {}
    await records.mark_used(["a"], 0.05)
    while shared_redis.keys(f"{make_backend().prefix}seen:a"):
        await asyncio.sleep(0.01)
    assert await records.load("a", started, IDLE) is None


async def test_an_ended_session_leaves_only_its_mark(
    records: SessionRecords, make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    prefix, started = make_backend().prefix, now(shared_redis)
    await records.load("a", started, IDLE)
    await records.change("a", {"one": b"1"}, IDLE)
    await records.end("a", 100)
    assert await records.load("a", started, IDLE) is None
    assert shared_redis.keys(f"{prefix}*") == [f"{prefix}ended:a".encode()]
    assert 50 < shared_redis.run("TTL", f"{prefix}ended:a") <= 100


# DELETE


async def test_a_session_ended_at_one_replica_has_ended_at_the_others(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend, 3) as (one, other, third):
        session = await one.open()
        assert await status(other, session) == 200
        assert (await session.delete()).status == 204
        assert await status(one, session) == 404
        assert await status(third, session) == 404  # never met: it reads the record
        while await status(other, session) != 404:  # met: the bus tells it
            await asyncio.sleep(0.01)
        assert (await other.at(session).get()).status == 404
        assert (await other.at(session).delete()).status == 404


async def test_an_ended_session_has_ended_after_a_restart_of_all_replicas(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend) as (one, other):
        session, kept = await one.open(), await one.open()
        assert (await other.at(session).delete()).status == 204
    async with replicas(make_backend) as (one, other):
        for each in (one, other):
            assert await status(each, session) == 404
            assert await status(each, kept) == 200


async def test_concurrent_first_requests_of_an_ended_session_are_all_refused(
    make_backend: MakeBackend,
) -> None:
    async with replica(make_backend()) as one:
        session = await one.open()
        assert (await session.delete()).status == 204
    async with replica(make_backend()) as one:
        found = await asyncio.gather(*(status(one, session) for _ in range(10)))
        assert found == [404] * 10


async def test_the_draft_dialect_ends_a_session_everywhere(make_backend: MakeBackend) -> None:
    async with replica(make_backend()) as one, replica(make_backend()) as other:
        session = await one.open()
        table = one.sessions
        found = table.find(str(session.id))
        assert found is not None
        table.end_soon(found)
        while await status(other, session) != 404:
            await asyncio.sleep(0.01)


async def test_a_request_of_a_known_session_sends_no_command(
    own_redis: RedisServer,
) -> None:
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    async with replica(backend) as one:
        session = await one.open()
        assert await status(one, session) == 200
        before = backend.client.stats.commands
        for _ in range(20):
            assert await status(one, session) == 200
            assert (await one.site.call("add", a=1, b=2)).status == 200
        beats = own_redis.command_counts()["evalsha"]
        assert backend.client.stats.commands - before <= 1 + beats // 2


async def test_tombstones_can_be_read_again_so_they_do_not_fill_the_memory(
    make_backend: MakeBackend,
) -> None:
    limits = Limits(tombstones=3, backend_timeout=20)
    async with replica(make_backend()) as one:
        sessions = [await one.open() for _ in range(6)]
        for session in sessions:
            assert (await session.delete()).status == 204
    async with replica(make_backend(), limits=limits) as one:
        for _ in range(2):
            for session in sessions:
                assert await status(one, session) == 404
        assert len(one.sessions._tombstones) <= 3


# idle sessions


async def test_a_session_that_was_idle_while_all_replicas_were_down_has_ended(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    limits = Limits(session_idle=0.4, backend_timeout=20)
    async with replica(make_backend(), limits=limits) as one:
        session = await one.open()
        assert await status(one, session) == 200
    while shared_redis.keys(f"{make_backend().prefix}seen:*"):
        await asyncio.sleep(0.02)
    async with replica(make_backend(), limits=limits) as one:
        assert await status(one, session) == 404
        assert (await (await one.open()).call("add", a=1, b=2)).status == 200


async def test_a_session_in_use_elsewhere_does_not_become_idle_here(
    make_backend: MakeBackend,
) -> None:
    limits = Limits(session_idle=1.0, backend_timeout=20)
    async with replicas(make_backend, limits=limits) as (one, other):
        session = await one.open()
        assert await status(other, session) == 200
        stream = await one.at(session).listen()  # in use at one of them
        await asyncio.sleep(2.0)
        assert await status(other, session) == 200
        async with replica(make_backend(), limits=limits) as third:
            assert await status(third, session) == 200
        stream.cut()


async def test_a_session_that_seemed_idle_because_messages_were_lost_goes_on(
    own_redis: RedisServer,
) -> None:
    backend = Backend(own_redis.url, name="stage", keys=[KEY], limits=PATIENT)
    async with replica(backend) as one:
        session = await one.open()
        assert await status(one, session) == 200
        one.sessions._bury_idle(digest_id(str(session.id)))
        assert await status(one, session) == 404
        own_redis.run("CLIENT", "KILL", "TYPE", "pubsub")
        while await status(one, session) != 200:  # Redis knows that it was used
            await asyncio.sleep(0.01)


# settings


async def said(at: Replica, session: Session) -> list[str]:
    """What a client hears of a tool that logs on level info."""
    reply = await at.at(session).call("chat", count=1)
    if reply.headers["content-type"] == "application/json":
        return []
    return logged(await reply.messages())


def add_pages(to: Replica) -> None:
    @to.stage.server.resource("page://{name}")
    def page(name: str) -> str:
        return name


async def test_a_replica_that_starts_later_knows_the_log_level(make_backend: MakeBackend) -> None:
    async with replica(make_backend()) as one:
        session = await one.open()
        assert await said(one, session) == ["line 0"]
        await (await session.ask("logging/setLevel", {"level": "error"})).whole()
    async with replica(make_backend()) as other:
        assert await said(other, session) == []
        await (await other.at(session).ask("logging/setLevel", {"level": "debug"})).whole()
    async with replica(make_backend()) as third:
        assert await said(third, session) == ["line 0"]


async def test_a_replica_that_starts_later_knows_the_subscriptions(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend) as pair:
        for one in pair:
            add_pages(one)
        session = await pair[0].open()
        uris = [f"page://{number}" for number in range(10)]
        await asyncio.gather(
            *(
                one.at(session).ask("resources/subscribe", {"uri": uri}, id=uri)
                for uri, one in zip(uris, pair * 5, strict=True)
            )
        )
        await pair[1].at(session).ask("resources/unsubscribe", {"uri": uris[4]})
    async with replica(make_backend()) as other:
        add_pages(other)
        stream = await other.at(session).listen()
        for uri in reversed(uris):
            other.stage.server.notify_resource_updated(uri)
        heard: list[str] = []
        while len(heard) < 9:
            message = (await stream.next()).message
            if message["method"] == "notifications/resources/updated":
                heard.append(message["params"]["uri"])
        assert heard == [uri for uri in reversed(uris) if uri != uris[4]]


async def test_a_setting_that_is_being_stored_counts(make_backend: MakeBackend) -> None:
    bus = NoBus()
    bus.alone = False
    shared = SharedSessions(make_backend().sessions(), PATIENT, bus)
    expires = time.time() + PATIENT.session_life
    await make_backend().sessions().change("a", {"level": b"old", "kept": b"1"}, IDLE)
    announced = asyncio.Event()
    shared.change("a", "level", b"new", announced.set)
    while not announced.is_set():
        found = await shared.load("a", expires)
        assert found == {"level": b"new", "kept": b"1"}
    assert await shared.load("a", expires) == {"level": b"new", "kept": b"1"}
    shared.change("a", "kept", None, lambda: None)
    assert await shared.load("a", expires) == {"level": b"new", "kept": None}
    await shared.close()


async def test_an_end_is_stored_although_its_client_left(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    bus = NoBus()
    bus.alone = False
    shared = SharedSessions(make_backend().sessions(), PATIENT, bus)
    ending = asyncio.create_task(shared.end("a", time.time() + PATIENT.session_life))
    await asyncio.sleep(0)
    ending.cancel()
    await until(lambda: shared_redis.keys(f"{make_backend().prefix}ended:a"))
    await shared.close()


async def test_settings_are_sealed(make_backend: MakeBackend, shared_redis: RedisServer) -> None:
    async with replica(make_backend()) as one:
        add_pages(one)
        session = await one.open()
        await session.ask("resources/subscribe", {"uri": "page://a-secret-name"})
    key = f"{make_backend().prefix}settings:{digest_id(str(session.id))}"
    stored = shared_redis.run("HGETALL", key)
    assert len(stored) == 1 and "secret" not in repr(stored)
    assert shared_redis.run("TTL", key) > 3000


# over the bus


async def test_a_call_is_cancelled_at_another_replica(make_backend: MakeBackend) -> None:
    async with replicas(make_backend) as (one, other):
        session = await one.open()
        answer = await session.call("talk", _id=7)
        await one.stage.started.wait()
        await other.at(session).tell("notifications/cancelled", {"requestId": 7})
        await one.stage.cancelled.wait()
        assert logged(await answer.messages()) == ["before 0"]


async def test_a_question_is_answered_at_another_replica(make_backend: MakeBackend) -> None:
    async with replicas(make_backend) as (one, other):

        @one.stage.server.tool
        async def ask(ctx: Context) -> str:
            reply = await ctx.elicit("Your name?", str)
            return f"Hello {reply}"

        session = await one.open(OLD, {"elicitation": {}})
        answer = await session.call("ask")
        question = next(
            one.message for one in [await answer.next(), await answer.next()] if one.data
        )
        reply = {"action": "accept", "content": {"value": "Ada"}}
        sent = await other.at(session).post(
            {"jsonrpc": "2.0", "id": question["id"], "result": reply}
        )
        assert sent.status == 202, await sent.body()
        assert "Ada" in text((await answer.messages())[-1])


async def test_progress_of_an_answer_reaches_the_replica_that_asked(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend) as (one, other):
        heard = asyncio.Event()

        @one.stage.server.tool
        async def ask(ctx: Context) -> str:
            reply = await ctx.sample(
                "Write a poem", max_tokens=9, on_progress=lambda _: heard.set()
            )
            return str(reply)

        session = await one.open(OLD, {"sampling": {}})
        answer = await session.call("ask")
        question = next(
            each.message for each in [await answer.next(), await answer.next()] if each.data
        )
        token = question["params"]["_meta"]["progressToken"]
        await other.at(session).tell(
            "notifications/progress", {"progressToken": token, "progress": 1}
        )
        await heard.wait()
        answer.cut()


async def test_an_update_reaches_a_stream_at_another_replica(make_backend: MakeBackend) -> None:
    async with replicas(make_backend) as (one, other):
        session = await one.open()
        stream = await other.at(session).listen()
        await (await session.ask("resources/subscribe", {"uri": "note://one"})).whole()
        [found] = [each for each in other.sessions._by_key.values() if each.get_streams]
        await until(lambda: found.caller.subscribed_uris)
        one.stage.server.notify_resource_updated("note://one")
        assert (await stream.next()).message["params"]["uri"] == "note://one"


async def test_what_a_task_says_reaches_a_stream_at_another_replica(
    make_backend: MakeBackend,
) -> None:
    async with AsyncExitStack() as stack:
        sites = []
        for _ in range(2):
            server = Server("stage", backend=make_backend())

            @server.tool(task="required")
            async def count(ctx: Context) -> str:
                await ctx.info("one")
                return "counted"

            app = server.asgi("/mcp", keys=[KEY])
            sites.append(await stack.enter_async_context(on_port(app)))
        session = await sites[0].greet("2025-11-25")
        await session.tell("notifications/initialized")
        moved = Session(sites[1], session.id, session.version, session.result)
        moved.headers = session.headers
        stream = await moved.listen()
        params = {"name": "count", "arguments": {}, "task": {}}
        await (await session.ask("tools/call", params)).whole()
        async with asyncio.timeout(30):
            while (said := (await stream.next()).message)["method"] != "notifications/message":
                pass
        assert said["params"]["data"] == "one"


async def test_who_listens_to_a_task_at_another_replica_is_told_of_its_end(
    make_backend: MakeBackend,
) -> None:
    gate = asyncio.Event()
    able = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with AsyncExitStack() as stack:
        sites = []
        for _ in range(2):
            server = Server("stage", backend=make_backend())

            @server.tool(task="required")
            async def count() -> str:
                await gate.wait()
                return "counted"

            app = server.asgi("/mcp", keys=[KEY])
            sites.append(await stack.enter_async_context(on_port(app)))
        one, other = sites
        params = {"name": "count", "arguments": {}}
        begun = await (await one.ask("tools/call", params, capabilities=able)).json()
        id = begun["result"]["taskId"]
        stream = await other.ask(
            "subscriptions/listen", {"notifications": {"taskIds": [id]}}, capabilities=able
        )
        assert (await stream.next()).message["params"]["notifications"] == {"taskIds": [id]}
        gate.set()
        told = (await stream.next()).message
        assert told["method"] == "notifications/tasks"
        assert (told["params"]["taskId"], told["params"]["status"]) == (id, "completed")


# Redis is away


async def test_a_session_goes_on_while_redis_is_away(own_redis: RedisServer) -> None:
    def make() -> Backend:
        return Backend(own_redis.url, name="stage", keys=[KEY])

    async with replicas(make) as (one, other):
        known, ended = await one.open(), await one.open()
        assert (await ended.delete()).status == 204
        assert await status(other, ended) == 404
        own_redis.stop()
        assert await status(one, known) == 200
        assert await status(other, known) == 200  # met while Redis is away
        assert await status(one, ended) == 404
        assert await status(other, ended) == 404


async def test_a_session_goes_on_after_redis_has_lost_its_data(own_redis: RedisServer) -> None:
    backend = Backend(own_redis.url, name="stage", keys=[KEY], limits=PATIENT)
    async with replica(backend, limits=Limits(session_idle=1.0, backend_timeout=20)) as one:
        session = await one.open()
        begun = time.monotonic()
        while time.monotonic() < begun + 2.0:  # it is in use for longer than it may be idle
            assert await status(one, session) == 200
            await asyncio.sleep(0.1)
        own_redis.run("FLUSHALL")
        own_redis.run("CLIENT", "KILL", "TYPE", "pubsub")
        while not own_redis.keys("*:seen:*"):  # it is read again
            assert await status(one, session) == 200
            await asyncio.sleep(0.01)
        assert await status(one, session) == 200


async def test_a_session_ended_while_redis_is_away_ends_everywhere_when_it_is_back(
    own_redis: RedisServer,
) -> None:
    def make() -> Backend:
        return Backend(own_redis.url, name="stage", keys=[KEY])

    async with replicas(make) as (one, other):
        session = await one.open()
        await (await session.ask("logging/setLevel", {"level": "error"})).whole()
        assert await status(other, session) == 200
        own_redis.stop()
        refused = await session.delete()
        assert refused.status == 503  # it is not stored
        assert int(refused.headers["retry-after"]) >= 1
        assert await status(one, session) == 404
        assert await status(other, session) == 200  # it cannot know
        own_redis.start()
        while await status(other, session) != 404:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def restricted(redis: RedisServer) -> AsyncIterator[tuple[Replica, Replica, Allow]]:
    """Two replicas of which the first has a user of its own, and a function that sets what this
    user may do. The second replica never loses Redis."""

    def allow(*rules: str) -> None:
        redis.run("ACL", "SETUSER", "one", *rules)

    allow("on", ">secret", *EVERYTHING)
    url = redis.url.replace("//", "//one:secret@")
    backends = iter(Backend(each, name="stage", keys=[KEY]) for each in (url, redis.url))
    async with replicas(lambda: next(backends)) as (one, other):
        yield one, other, allow


async def test_an_end_stored_late_ends_the_session_at_replicas_that_were_never_away(
    own_redis: RedisServer,
) -> None:
    async with restricted(own_redis) as (one, other, allow):
        session = await one.open()
        assert await status(other, session) == 200
        own_redis.run("ACL", "DELUSER", "one")  # which closes its connections
        await until(lambda: one.bus.alone)
        assert (await session.delete()).status == 503
        assert await status(other, session) == 200
        allow("on", ">secret", *EVERYTHING)
        while await status(other, session) != 404:
            await asyncio.sleep(0.05)


async def test_an_end_is_announced_when_the_bus_is_back(own_redis: RedisServer) -> None:
    async with restricted(own_redis) as (one, other, allow):
        session = await one.open()
        assert await status(other, session) == 200
        allow("resetchannels")  # only the bus is away
        await until(lambda: one.bus.alone)
        assert (await session.delete()).status == 204
        assert await status(other, session) == 200
        allow(*EVERYTHING)
        while await status(other, session) != 404:
            await asyncio.sleep(0.05)


async def test_an_end_that_was_refused_is_stored_although_the_bus_was_never_away(
    own_redis: RedisServer,
) -> None:
    async with restricted(own_redis) as (one, other, allow):
        session = await one.open()
        assert await status(other, session) == 200
        allow("-set")
        assert (await session.delete()).status == 503
        while await status(other, session) != 404:  # it is told at once
            await asyncio.sleep(0.01)
        assert not own_redis.keys("*:ended:*")
        allow(*EVERYTHING)
        await until(lambda: own_redis.keys("*:ended:*"))


async def test_a_setting_stored_late_reaches_replicas_that_were_never_away(
    own_redis: RedisServer,
) -> None:
    async with restricted(own_redis) as (one, other, allow):
        session = await one.open()
        assert await said(other, session) == ["line 0"]
        own_redis.run("ACL", "DELUSER", "one")
        await until(lambda: one.bus.alone)
        await (await session.ask("logging/setLevel", {"level": "error"})).whole()
        assert await said(other, session) == ["line 0"]
        allow("on", ">secret", *EVERYTHING)
        while await said(other, session):
            await asyncio.sleep(0.05)


async def test_an_end_that_no_replica_of_redis_confirms_is_not_acknowledged(
    own_redis: RedisServer,
) -> None:
    backend = Backend(f"{own_redis.url}?wait=1", name="stage", keys=[KEY])
    async with replica(backend) as one:
        session = await one.open()
        assert (await session.delete()).status == 503
        assert await status(one, session) == 404


async def test_a_setting_changed_while_redis_is_away_is_stored_when_it_is_back(
    own_redis: RedisServer,
) -> None:
    def make() -> Backend:
        return Backend(own_redis.url, name="stage", keys=[KEY])

    async with replica(make()) as one:
        session = await one.open()
        assert await said(one, session) == ["line 0"]
        own_redis.stop()
        await (await session.ask("logging/setLevel", {"level": "error"})).whole()
        assert await said(one, session) == []
        own_redis.start()
        while not own_redis.keys("*settings:*"):
            await asyncio.sleep(0.05)
        assert await said(one, session) == []
    async with replica(make()) as other:
        assert await said(other, session) == []


# somebody who can write to Redis


async def test_who_deletes_the_mark_of_an_end_opens_the_session_again(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    prefix = make_backend().prefix
    async with replica(make_backend()) as one:
        session, other = await one.open(), await one.open()
        key = digest_id(str(session.id))
        assert (await session.delete()).status == 204
        shared_redis.run("DEL", f"{prefix}ended:{key}")
        assert await status(one, session) == 404  # who knows it does not forget it
        shared_redis.run("SET", f"{prefix}ended:{digest_id(str(other.id))}", "")
    async with replica(make_backend()) as one:
        assert await status(one, session) == 200
        assert await status(one, other) == 404  # and who sets it ends the session


async def test_settings_that_were_moved_or_made_up_are_ignored(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    prefix = make_backend().prefix
    async with replica(make_backend()) as one:
        session, other = await one.open(), await one.open()
        await (await session.ask("logging/setLevel", {"level": "error"})).whole()
    source, target = (f"{prefix}settings:{digest_id(str(each.id))}" for each in (session, other))
    for value in (shared_redis.run("HGET", source, "level"), b"made up"):
        shared_redis.run("HSET", target, "level", value, "subscribed x", value)
        async with replica(make_backend()) as one:
            assert await said(one, other) == ["line 0"]
