"""Streams that are resumed at another replica, in the handshake era: from the bus, from the log,
and after the first replica has gone."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dovetail import Context
from dovetail.backend import Backend
from dovetail.limits import Limits
from dovetail.ports import Principal
from dovetail.transports.http.server.event_store import MemoryEventStore
from dovetail.transports.http.server.logged_events import LoggedEventStore
from tests.faults.raw_http import Program, call, events, get, post, running, until
from tests.system import needs_redis
from tests.transports.http.raw import (
    INFO,
    Answer,
    Event,
    Session,
    Stage,
    logged,
    on_port,
    request,
    text,
)

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer
from .replicas import Replica, replica, replicas

pytestmark = needs_redis
NOTE = "note://one"
JSON = {"Accept": "application/json"}


async def call_and_leave(at: Replica, session: Session, **arguments: Any) -> tuple[Event, Answer]:
    """Call the tool `talk`, read its first message, and lose the connection. Return the last event
    and the lost answer."""
    answer = await session.call("talk", **arguments)
    last = [await answer.next(), await answer.next()][-1]
    answer.cut()
    await at.stage.started.wait()
    return last, answer


async def listen(at: Replica, session: Session) -> Answer:
    """Open a stream for the updates of a resource."""
    await (await at.at(session).ask("resources/subscribe", {"uri": NOTE}, id="s")).whole()
    return await at.at(session).listen()


async def has_left(at: Replica, session: Session) -> None:
    """Wait until a replica notices that its client has left."""
    found = at.sessions.find(str(session.id))
    assert found is not None
    owned = at.streams._events._owned[found.key]  # type: ignore[attr-defined]
    while any(at.streams._events.find(found.key, id).attached for id in owned):  # type: ignore
        await asyncio.sleep(0.01)


def logs(redis: RedisServer, make_backend: MakeBackend) -> list[bytes]:
    return redis.keys(f"{make_backend().prefix}events:*")


async def is_logged(redis: RedisServer, make_backend: MakeBackend, number: int) -> None:
    """Wait until a stream's message with this number is in the log."""
    while True:
        for key in logs(redis, make_backend):
            if redis.run("XRANGE", key, f"0-{number}", f"0-{number}"):
                return
        await asyncio.sleep(0.02)


# while the first replica is there


async def test_a_call_s_stream_is_resumed_at_another_replica(make_backend: MakeBackend) -> None:
    async with replicas(make_backend) as (one, other):
        session = await one.open()
        last, _ = await call_and_leave(one, session, after=3)
        resumed = await other.at(session).get(last.id)
        one.stage.release.set()
        messages = await resumed.messages()
        assert logged(messages) == ["after 0", "after 1", "after 2"]
        assert text(messages[-1]) == "done"


async def test_a_stream_that_is_too_long_for_the_bus_is_handed_over_in_the_log(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    limits = Limits(events=32 * 2**20, backend_timeout=20)
    async with replicas(make_backend, limits=limits) as (one, other):

        @one.stage.server.tool
        async def recite(ctx: Context) -> str:
            for number in range(24):
                ctx.info(f"{number:02}" + "." * 500_000)
            await one.stage._until_released()
            return "done"

        session = await one.open()
        answer = await session.call("recite")
        last = [await answer.next(), await answer.next()][-1]
        answer.cut()
        resumed = await other.at(session).get(last.id)
        one.stage.release.set()
        messages = await resumed.messages()
        assert [line[:2] for line in logged(messages)] == [f"{n:02}" for n in range(1, 24)]
        assert text(messages[-1]) == "done"
        assert not [key for key in logs(shared_redis, make_backend) if b"handover" in key]


async def test_a_message_that_is_too_long_for_the_bus_is_resumed_elsewhere(
    make_backend: MakeBackend,
) -> None:
    size, finish = 17 * 1024 * 1024, asyncio.Event()
    limits = Limits(events=64 * 2**20, backend_timeout=20)
    async with replicas(make_backend, limits=limits) as (one, other):

        @one.stage.server.tool
        async def long(ctx: Context) -> str:
            await ctx.info("here it comes")
            await one.stage._until_released()
            ctx.info("it is here")
            ctx.info("y" * size)
            await finish.wait()
            return "done"

        session = await one.open()
        answer = await session.call("long")
        last = [await answer.next(), await answer.next()][-1]
        answer.cut()
        resumed = await other.at(session).get(last.id)
        one.stage.release.set()
        [event] = await resumed.rest()  # it ends before the message, so its client resumes it
        assert logged([event.message]) == ["it is here"]
        resumed = await other.at(session).get(event.id)
        assert resumed.status == 200
        finish.set()
        assert len(await resumed.body()) > size


async def test_a_stream_that_is_read_promptly_costs_redis_nothing(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    async with replica(make_backend()) as one:
        session = await one.open()
        answer = await session.call("talk", before=50, after=50)
        stream = await listen(one, session)
        for _ in range(51):
            await answer.next()
        one.stage.server.notify_resource_updated(NOTE)
        await stream.next()
        await asyncio.sleep(1.5)  # long enough to be written
        one.stage.release.set()
        assert text((await answer.messages())[-1]) == "done"
        await asyncio.sleep(1.5)
        assert logs(shared_redis, make_backend) == []
        stream.cut()


async def test_the_end_of_a_session_deletes_its_logs(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    async with replica(make_backend()) as one:
        session = await one.open()
        await call_and_leave(one, session)
        await is_logged(shared_redis, make_backend, 1)
        await session.delete()
        while logs(shared_redis, make_backend):
            await asyncio.sleep(0.02)


async def test_a_stream_that_is_written_to_all_the_time_is_resumed_without_loss(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend) as (one, other):

        @one.stage.server.tool
        async def mutter(ctx: Context) -> str:
            for number in range(300):
                await ctx.info(f"{number}")
                await asyncio.sleep(0)
            return "done"

        session = await one.open()
        for id in range(5):
            answer = await session.call("mutter", _id=id)
            seen = [await answer.next() for _ in range(5)]
            answer.cut()
            seen += await (await other.at(session).get(seen[-1].id)).rest()
            messages = [event.message for event in seen if event.data]
            assert logged(messages) == [f"{number}" for number in range(300)]
            assert text(messages[-1]) == "done"
        assert not other.streams._borrowed


async def test_a_session_s_stream_moves_to_the_replica_that_resumes_it(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend) as (one, other):
        session = await one.open()
        stream = await listen(one, session)
        one.stage.server.notify_resource_updated(NOTE)
        last = await stream.next()
        stream.cut()
        await has_left(one, session)
        one.stage.server.notify_resource_updated(NOTE)
        found = one.sessions.find(str(session.id))
        assert found is not None
        while found.get_streams[0].count < 2:
            await asyncio.sleep(0.01)
        stream = await other.at(session).get(last.id)
        assert (await stream.next()).message == last.message
        while one.streams._events.find(found.key, str(last.id).partition("-")[0]):
            await asyncio.sleep(0.01)
        stream.cut()


async def test_of_two_who_resume_a_stream_elsewhere_the_second_hears_the_rest(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend, 3) as (one, other, third):
        session = await one.open()
        last, _ = await call_and_leave(one, session, after=2)
        await other.at(session).get(last.id)
        second = await third.at(session).get(last.id)
        one.stage.release.set()
        assert logged(await second.messages()) == ["after 0", "after 1"]


async def test_a_change_is_sent_only_on_the_newest_of_two_streams(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend) as (one, other):
        session = await one.open()
        older = await listen(one, session)
        newer = await listen(other, session)
        found = one.sessions.find(str(session.id))
        assert found is not None
        while not found.has_remote_stream:
            await asyncio.sleep(0.01)
        one.stage.server.notify_resource_updated(NOTE)
        assert (await newer.next()).message["params"]["uri"] == NOTE
        await session.delete()
        assert await older.rest() == []


async def test_a_poll_at_another_replica_gets_what_a_call_says(make_backend: MakeBackend) -> None:
    async with replicas(make_backend, long_polling=10) as (one, other):
        session = await one.open()
        call = asyncio.create_task(session.call("talk", after=1, _headers=JSON))
        await one.stage.started.wait()
        heard = await (await other.at(session).get(headers=JSON)).json()
        assert logged(heard) == ["before 0"]
        one.stage.release.set()
        assert logged(await (await other.at(session).get(headers=JSON)).json()) == ["after 0"]
        assert text(await (await call).json()) == "done"


async def test_a_replica_that_was_polled_before_looks_again_after_another_one_has_gone(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend, long_polling=10) as (one, other):
        session = await one.open()
        for each in (other, one):  # the last one to be polled keeps what comes
            await each.at(session).call("chat", count=1, _headers=JSON)
            assert logged(await (await each.at(session).get(headers=JSON)).json()) == ["line 0"]
        await session.call("chat", count=2, _headers=JSON)
        await one.stop()
        heard: list[str] = []
        while len(heard) < 2:
            reply = await other.at(session).get(headers=JSON)
            heard += logged(await reply.json())
        assert heard == ["line 0", "line 1"]


async def test_what_waits_for_a_poll_outlives_its_replica(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    async with replicas(make_backend, long_polling=10) as (one, other):
        session = await one.open()
        assert (await other.at(session).call("add", a=1, b=2, _headers=JSON)).status == 200
        for each, line in ((one, "line 0"), (other, "line 0")):
            reply = await each.at(session).call("chat", count=1, _headers=JSON)
            assert text(await reply.json()) == "done", line
        await one.stop()
        heard: list[str] = []
        while len(heard) < 2:
            reply = await other.at(session).get(headers=JSON)
            heard += logged(await reply.json())
        assert heard == ["line 0", "line 0"]
        await other.at(session).call("chat", count=1, _headers=JSON)
        await other.stop()
        async with replica(make_backend(), long_polling=10) as third:
            reply = await third.at(session).get(headers=JSON)
            assert logged(await reply.json()) == ["line 0"]
    assert shared_redis.keys(f"{make_backend().prefix}poll:*") == []


async def test_a_message_for_an_http_sse_session_reaches_it_from_any_replica(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend) as (one, other):
        stream = await one.site.send("GET", {"Accept": "text/event-stream"}, path="/sse")
        endpoint = (await stream.next()).data
        params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": INFO}
        posted = await other.site.post(request("initialize", params, 0), path=endpoint)
        assert posted.status == 202
        assert (await stream.next()).message["result"]["protocolVersion"] == "2024-11-05"
        await one.site.post(
            {"jsonrpc": "2.0", "method": "notifications/initialized"}, path=endpoint
        )
        long = {"name": "add", "arguments": {"a": 1, "b": 2, "_": "x" * 3_000_000}}
        for number, arguments in enumerate((long, long | {"arguments": {"a": 1, "b": 2}})):
            posted = await other.site.post(
                request("tools/call", arguments, number + 1), path=endpoint
            )
            assert posted.status == 202
            assert (await stream.next()).message["id"] == number + 1
        unknown = endpoint[:-1] + ("A" if endpoint[-1] != "A" else "B")
        assert (await other.site.post(request("ping"), path=unknown)).status == 404
        stream.cut()


# after it has gone


async def test_after_a_replica_was_stopped_another_one_has_the_rest_of_a_call_s_stream(
    make_backend: MakeBackend,
) -> None:
    limits = Limits(shutdown=2.0, backend_timeout=20)
    async with replicas(make_backend, limits=limits) as (one, other):
        session = await one.open()
        last, _ = await call_and_leave(one, session, after=2)
        closing = asyncio.create_task(one.stop())
        one.stage.release.set()  # it finishes within the grace period
        await closing
        resumed = await other.at(session).get(last.id)
        messages = await resumed.messages()
        assert logged(messages) == ["after 0", "after 1"]
        assert text(messages[-1]) == "done"
        again = await other.at(session).get(last.id)  # as often as the client likes
        assert await again.messages() == messages


async def test_a_call_that_a_stopping_replica_aborts_says_so_at_another_one(
    make_backend: MakeBackend,
) -> None:
    limits = Limits(shutdown=0.5, backend_timeout=20)
    async with replicas(make_backend, limits=limits) as (one, other):
        session = await one.open()
        last, _ = await call_and_leave(one, session)
        await one.stop()
        [message] = await (await other.at(session).get(last.id)).messages()
        assert "shutting down" in str(message)


async def test_after_a_replica_was_stopped_another_one_goes_on_with_the_session_s_stream(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend) as (one, other):
        session = await one.open()
        stream = await listen(one, session)
        one.stage.server.notify_resource_updated(NOTE)
        last = await stream.next()
        stream.cut()
        await has_left(one, session)
        one.stage.server.notify_resource_updated(NOTE)
        found = one.sessions.find(str(session.id))
        assert found is not None
        while found.get_streams[0].count < 2:
            await asyncio.sleep(0.01)
        await one.stop()
        stream = await other.at(session).get(last.id)
        unread = await stream.next()
        other.stage.server.notify_resource_updated(NOTE)
        later = await stream.next()
        assert unread.message == later.message == last.message
        ids = [str(event.id).partition("-")[::2] for event in (last, unread, later)]
        assert ids == [(ids[0][0], number) for number in ("1", "2", "3")]
        stream.cut()


async def test_what_was_not_read_is_in_the_log_within_a_second(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    async with replicas(make_backend) as (one, other):
        session = await one.open()
        last, _ = await call_and_leave(one, session, after=2)
        await has_left(one, session)
        one.stage.release.set()
        await is_logged(shared_redis, make_backend, 5)  # four messages, and the end
        one.bus._membership.cancel()  # nobody hears of this replica again
        await asyncio.sleep(0)
        messages = await (await other.at(session).get(last.id)).messages()
        assert logged(messages) == ["after 0", "after 1"]
        assert text(messages[-1]) == "done"


# Redis is away


async def test_while_redis_is_away_a_stream_is_resumed_where_it_is(
    own_redis: RedisServer,
) -> None:
    def make() -> Backend:
        return Backend(own_redis.url, name="stage", keys=[KEY])

    async with replicas(make) as (one, other):
        session = await one.open()
        assert (await other.at(session).call("add", a=1, b=2)).status == 200
        last, _ = await call_and_leave(one, session, after=1)
        own_redis.stop()
        refused = await other.at(session).get(last.id)
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert (await other.at(session).listen()).status == 200
        resumed = await session.get(last.id)
        one.stage.release.set()
        assert logged(await resumed.messages()) == ["after 0"]


async def test_a_replica_that_stops_while_redis_is_away_says_what_is_lost(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(Backend(own_redis.url, keys=[KEY]), limits=Limits(shutdown=0.5)) as one:
        session = await one.open()
        await call_and_leave(one, session)
        own_redis.stop()
        await one.stop()
    assert any("unread messages" in record.message for record in caplog.records)


async def test_messages_that_could_not_be_written_are_written_when_redis_is_back(
    own_redis: RedisServer,
) -> None:
    async with replica(Backend(own_redis.url, keys=[KEY])) as one:
        session = await one.open()
        own_redis.stop()
        await call_and_leave(one, session)
        await asyncio.sleep(1.2)
        own_redis.start()
        while not own_redis.keys("*events:*"):
            await asyncio.sleep(0.05)


# the store


def make_store(backend: Backend, limits: Limits = PATIENT) -> LoggedEventStore:
    return LoggedEventStore(limits, backend.events(), backend.rows("poll"))


async def test_a_stream_of_a_session_has_no_end(make_backend: MakeBackend) -> None:
    store, log = make_store(make_backend()), make_backend().events()
    stream, call = store.open("owner", "g"), store.open("owner")
    for each in (stream, call):
        each.push(b"1")
        each.finish()
    await store.flush()
    assert await log.read(f"owner:{stream.id}", 1) == []  # it goes on in another process
    assert len(await log.read(f"owner:{call.id}", 1) or ()) == 1


@pytest.mark.parametrize("has_left", [True, False])
async def test_what_was_sent_in_the_last_seconds_may_not_have_arrived(
    make_backend: MakeBackend, has_left: bool
) -> None:
    store = make_store(make_backend())
    stream = store.open("owner")
    reader = stream.attach(0)
    stream.push(b"1")
    stream.finish()
    stream.mark_sent(1)
    if has_left:
        stream.detach(reader)
    await store.flush()
    assert await store.read("owner", stream.id, 0, []) == (1, [b"1"], True)


async def test_a_log_is_read_only_with_the_scopes_of_its_reader(
    make_backend: MakeBackend,
) -> None:
    store = make_store(make_backend())
    stream = store.open("owner", "g")
    stream.principal = Principal("ada", scopes=("read", "write"))
    stream.push(b"secret")
    await store.flush()
    other = make_store(make_backend())
    assert await other.read("owner", stream.id, 0, ["read"]) is None
    assert await other.read("somebody", stream.id, 0, ["read", "write"]) is None
    assert await other.read("owner", stream.id, 0, ["write", "read"]) == (1, [b"secret"], False)


@pytest.mark.parametrize("id", ["", "g", "x:y", "*", "g" + "0" * 17, "../" * 6, "\xff" * 16])
async def test_ids_that_were_never_given_are_not_looked_up(
    make_backend: MakeBackend, id: str
) -> None:
    backend = make_backend()
    store = make_store(backend)
    assert await store.read("owner", id, 0, []) is None
    assert backend.client.stats.commands == 0


async def test_a_slow_reader_s_messages_are_written(make_backend: MakeBackend) -> None:
    backend = make_backend()
    store = make_store(backend)
    stream = store.open("owner")
    reader = stream.attach(0)
    for number in range(1, 6):
        stream.push(b"%d" % number)
    stream.mark_sent(2)
    while stream.logged < 5:
        await asyncio.sleep(0.02)
    log = backend.events()
    assert await log.read(f"owner:{stream.id}", 1) is None  # the client has it
    assert [number for number, _ in await log.read(f"owner:{stream.id}", 2) or ()] == [3, 4, 5]
    stream.mark_sent(5)
    stream.finish()
    stream.detach(reader)
    store.drop(stream)
    while await log.read(f"owner:{stream.id}", 2) is not None:
        await asyncio.sleep(0.02)


async def test_dropped_messages_leave_a_gap_that_a_reader_notices(
    make_backend: MakeBackend,
) -> None:
    store = make_store(make_backend(), Limits(events=100, backend_timeout=20))
    stream = store.open("owner")
    stream.push(b"x" * 60)
    while stream.logged < 1:
        await asyncio.sleep(0.02)
    for _ in range(5):
        stream.push(b"x" * 60)  # the oldest ones are dropped before they are written
    await store.flush()
    assert await store.read("owner", stream.id, 0, []) is None
    found = await store.read("owner", stream.id, stream.dropped, [])
    assert found is not None and len(found[1]) == stream.count - stream.dropped


async def test_a_store_of_the_user_overrides_the_log(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    stage = Stage(backend=make_backend())
    app = stage.server.asgi("/mcp", keys=[KEY], events=lambda: MemoryEventStore(PATIENT))
    async with on_port(app) as site:
        await app.start()
        one = Replica(stage, app, site)
        session = await one.open()
        await call_and_leave(one, session)
        await asyncio.sleep(1.2)
        await one.stop()
    assert logs(shared_redis, make_backend) == []


# real processes


@contextmanager
def processes(redis: RedisServer, **limits: Any) -> Iterator[tuple[Program, Program]]:
    env = {"DOVETAIL_BACKEND": redis.url, "DOVETAIL_KEYS": KEY}
    settings = {"backend_timeout": 20.0, "stream_after": 0.2, "shutdown": 1.0, **limits}
    with running(env=env, **settings) as one, running(env=env, **settings) as other:
        yield one, other


def begin_call(at: Program, session: str, tag: str) -> str:
    """Call a tool that waits, read its first message, and leave. Return the id of the event."""
    with at.connect() as connection:
        connection.send(post(call("wait", 7, tag=tag), session))
        assert connection.head()[0] == 200
        last, said = connection.event()
        assert said["params"]["data"] == f"{tag} begins" and last is not None
    return last


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_client_loses_nothing_if_its_replica_is_told_to_stop(shared_redis: RedisServer) -> None:
    with processes(shared_redis) as (one, other):
        session = one.session()
        last = begin_call(one, session, "stopped")
        one.popen.send_signal(signal.SIGTERM)
        assert one.popen.wait(30) == 0
        [(_, reply)] = events(other.ask(get(session, last)).body)
        assert "shutting down" in str(reply)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_client_gets_what_a_killed_replica_had_written(shared_redis: RedisServer) -> None:
    with processes(shared_redis) as (one, other):
        session = one.session()
        with one.connect() as connection:
            connection.send(post(call("speak", 7, tag="killed", times=5), session))
            assert connection.head()[0] == 200
            said = connection.rest()
        last = begin_call(one, session, "killed")
        stream = last.rpartition("-")[0]
        pattern = f"*events:*:{stream}"
        until(lambda: shared_redis.keys(pattern), "the message is not written")
        one.popen.kill()
        one.popen.wait()
        assert other.ask(post(call("pid"), session)).status == 200
        resumed = other.ask(get(session, f"{stream}-0"))
        assert (resumed.status, len(events(resumed.body))) == (200, 1)
        refused = other.ask(get(session, last))  # the rest was lost with its replica
        assert refused.status == 400 and "not available" in refused.error
        assert len(said) == 6
        assert other.tool("outcomes", tag="killed") == [0, 0, 0]
