"""What callers see, and what is lost, if processes and Redis are killed, stopped and restarted.

Each test prints how long it takes until everything is normal again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import DovetailError
from tests.backend.redis_server import RedisServer
from tests.backend.test_client import replicated, sentinels
from tests.clock import awake_time
from tests.system import needs_redis, needs_sentinel
from tests.transports.http.raw import Session, Site, logged

from .cluster import Cluster, running
from .conftest import ERAS
from .round_robin import round_robin

pytestmark = needs_redis

DEADLINE = 1.0
"""The default of `Limits.backend_timeout`, in seconds."""
HANG = 10.0
"""How long Redis hangs, in seconds."""


class Stopwatch:
    seconds = 0.0


@contextmanager
def time_until_normal(what: str) -> Iterator[Stopwatch]:
    """Print how long the block took."""
    watch, began = Stopwatch(), awake_time()
    yield watch
    watch.seconds = awake_time() - began
    print(f"{what}: normal after {watch.seconds:.2f} s")


async def until_state(cluster: Cluster, state: str) -> None:
    """Wait until all replicas say that Redis is in this state."""
    for member in cluster.replicas:
        while (found := await asyncio.to_thread(member.health)) is None or (
            found.get("backend") != state
        ):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("era", ERAS)
async def test_a_killed_replica_costs_only_the_calls_that_it_was_running(
    mortal_cluster: Cluster, era: str
) -> None:
    async with (
        round_robin(mortal_cluster.ports) as proxy,
        Client(proxy.url, revision=era) as client,
    ):
        await client.list_tools()
        pids = [(await client.call_tool("pid")).data for _ in range(3)]
        mortal_cluster.replicas[0].kill()
        with time_until_normal("A replica was killed"):
            after = [(await client.call_tool("pid")).data for _ in range(6)]
        assert set(after) == set(pids) - {mortal_cluster.replicas[0].pid}
        mortal_cluster.replicas[0].restart()
        again = [(await client.call_tool("pid")).data for _ in range(6)]
        assert len(set(again)) == 3


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_replica_is_killed_fails_soon(
    mortal_cluster: Cluster, tag: str, era: str
) -> None:
    has_begun = asyncio.Event()
    async with (
        round_robin(mortal_cluster.ports) as proxy,
        Client(proxy.url, revision=era, on_log=lambda _: has_begun.set()) as client,
    ):
        if era == "handshake":
            await client.set_log_level("info")
        calling = asyncio.create_task(client.call_tool("wait", {"tag": tag}))
        while not mortal_cluster.done(tag):
            await asyncio.sleep(0.01)
        if era == "handshake":  # so that the client resumes the stream elsewhere
            await has_begun.wait()
        pid = int(mortal_cluster.done(tag)[0].removeprefix("begun by "))
        next(one for one in mortal_cluster.replicas if one.pid == pid).kill()
        with time_until_normal("The replica of a call was killed") as watch:
            with pytest.raises(DovetailError) as caught:
                await calling
        print(repr(caught.value))
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    assert watch.seconds < 15


async def test_a_killed_replica_loses_no_message_that_waited_for_its_reader(
    mortal_cluster: Cluster, tmp_path: Path
) -> None:
    """What was not read for a second is in the log. The call itself ends with its process."""
    async with mortal_cluster.sites() as (one, other, _):
        session = await one.greet()
        stream = await session.call("talk", gate=str(tmp_path / "never"), before=3)
        last = [(await stream.next()).id for _ in range(2)][-1]
        stream.cut()
        log = f":{last.rpartition('-')[0]}"
        while not any(key.endswith(log) for key in mortal_cluster.redis_keys()):
            await asyncio.sleep(0.02)
        mortal_cluster.replicas[0].kill()
        session.site = other
        with time_until_normal("The replica of a stream was killed"):
            resumed = await session.get(last)
            assert resumed.status == 200
            messages = [await resumed.next_message() for _ in range(2)]
        assert logged(messages) == ["before 1", "before 2"]
        assert await resumed.rest() == []


async def test_a_session_that_was_deleted_has_ended_after_all_replicas_were_restarted(
    durable_redis: RedisServer, tmp_path: Path
) -> None:
    with running(durable_redis, tmp_path / "cluster", 2) as cluster:
        async with cluster.sites() as (one, _):
            ended, other = await one.greet(), await one.greet()
            assert (await ended.delete()).status == 204
        for member in cluster.replicas:
            member.kill()
        durable_redis.stop()
        durable_redis.start()
        for member in cluster.replicas:
            member.restart()
        async with cluster.sites() as sites:
            for site in sites:
                ended.site = other.site = site
                assert (await ended.call("pid")).status == 404
                assert (await other.call("pid")).status == 200


async def test_plain_calls_go_on_while_redis_hangs(own_redis: RedisServer, tmp_path: Path) -> None:
    """A tool with a low rate limit asks Redis for each call; a hung Redis costs it one deadline at
    each replica."""
    callers = [("handshake", "pid"), ("stateless", "pid"), ("stateless", "metered")]
    with running(own_redis, tmp_path / "cluster", backend_timeout=DEADLINE) as cluster:
        async with AsyncExitStack() as stack:
            calls = []
            for era, tool in callers:
                proxy = await stack.enter_async_context(round_robin(cluster.ports))
                client = await stack.enter_async_context(Client(proxy.url, revision=era))
                calls.append(partial(client.call_tool, tool))
            for call in calls * 3:
                await call()
            own_redis.pause()
            try:
                times = await asyncio.gather(*(durations(call, HANG) for call in calls))
                await until_state(cluster, "away")
            finally:
                own_redis.resume()
            with time_until_normal("Redis hung") as watch:
                await until_state(cluster, "connected")
                for call in calls:
                    await call()
    for caller, found in zip(callers, times, strict=True):
        slow = sorted(found)[-4:]
        print(f"{caller}: {len(found)} calls while Redis hung; the slowest took {slow} s")
        assert slow[-1] < 1.5
        assert slow[0] < 0.5  # once at each replica
    assert watch.seconds < 5


async def durations(call: Callable[[], Awaitable[Any]], seconds: float) -> list[float]:
    """Call something again and again. Returns how long each call took."""
    times, end = [], awake_time() + seconds
    while (began := awake_time()) < end:
        await call()
        times.append(awake_time() - began)
        await asyncio.sleep(0.25)  # 4 calls a second are within the limit
    return times


async def test_replicas_are_back_to_normal_soon_after_redis(
    durable_redis: RedisServer, tmp_path: Path, tag: str
) -> None:
    with running(durable_redis, tmp_path / "cluster") as cluster:
        arrived: asyncio.Queue[str] = asyncio.Queue()
        async with Client(cluster.replicas[0].url) as one, Client(cluster.replicas[1].url) as two:

            async def time_until_notified(how: str) -> float:
                while not arrived.empty():
                    arrived.get_nowait()
                with time_until_normal(f"Redis was {how}") as watch:
                    while arrived.empty():
                        await two.call_tool("touch", {"uri": f"stock://{tag}"})
                        await asyncio.sleep(0.05)
                return watch.seconds

            await one.subscribe(f"stock://{tag}", arrived.put_nowait)
            await two.call_tool("touch", {"uri": f"stock://{tag}"})
            await arrived.get()
            durable_redis.stop()
            assert (await two.call_tool("add", {"a": 1, "b": 2})).data == 3
            durable_redis.start()
            assert await time_until_notified("restarted") < 5
            durable_redis.run("FLUSHALL")
            durable_redis.run("SCRIPT", "FLUSH")
            assert await time_until_notified("flushed") < 5


async def test_a_replica_with_other_keys_shares_nothing_and_harms_nobody(
    cluster: Cluster, tmp_path: Path, tag: str
) -> None:
    stranger_keys = {"name": cluster.name, "keys": "other keys of 16"}
    with running(cluster.redis, tmp_path / "other", 1, **stranger_keys) as other:
        async with cluster.sites() as sites, other.sites() as (stranger,):
            session = await sites[0].greet()
            session.site = stranger
            refused = await session.call("pid")
            assert refused.status == 404  # the token of the session does not open
            foreign = await stranger.greet()
            assert (await foreign.call("pid")).status == 200
            for site in sites:
                session.site = site
                assert (await session.call("pid")).status == 200
        async with Client(cluster.replicas[0].url) as client:
            arrived: asyncio.Queue[Any] = asyncio.Queue()
            await client.subscribe(f"stock://{tag}", arrived.put_nowait)
            async with Client(other.replicas[0].url) as away:
                await away.call_tool("touch", {"uri": f"stock://{tag}"})
            async with Client(cluster.replicas[1].url) as near:
                await near.call_tool("touch", {"uri": f"stock://{tag}"})
            await arrived.get()
            assert arrived.empty()
    assert "was not sealed with the keys of this process" in cluster.replicas[0].output()


async def test_a_replica_that_is_told_to_stop_loses_no_message(
    mortal_cluster: Cluster, tmp_path: Path
) -> None:
    async with mortal_cluster.sites() as (one, other, _):
        session = await one.greet()
        stream = await session.call("talk", gate=str(tmp_path / "never"), before=50)
        last = [(await stream.next()).id for _ in range(2)][-1]
        stream.cut()
        assert await asyncio.to_thread(mortal_cluster.replicas[0].terminate) == 0
        session.site = other
        with time_until_normal("The replica of a stream was told to stop"):
            resumed = await session.get(last)
            assert resumed.status == 200
            messages = [await resumed.next_message() for _ in range(49)]
        assert logged(messages) == [f"before {number}" for number in range(1, 50)]
        reply = await resumed.next_message()
        assert "the server is shutting down" in reply["error"]["message"]


@needs_sentinel
async def test_a_failover_loses_nothing_that_a_replica_of_redis_has_acknowledged(
    tmp_path: Path, tag: str
) -> None:
    with replicated(tmp_path) as (master, slave), sentinels(tmp_path, master) as ports:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        url = f"redis+sentinel://{hosts}/main?wait=1"
        settings: dict[str, Any] = {"url": url, "backend_timeout": 3}
        with running(master, tmp_path / "cluster", 2, **settings) as cluster:
            await until_state(cluster, "connected")
            async with cluster.sites() as sites:
                session, other = await sites[0].greet(), await sites[0].greet()
                assert (await session.delete()).status == 204
                master.stop()
                with time_until_normal("The master of the sentinels was killed"):
                    assert await statuses(other, sites) == [200, 200]  # sessions need no Redis
                    while slave.run("ROLE")[0] != b"master":
                        await asyncio.sleep(0.05)
                    await until_state(cluster, "connected")
                cluster.replicas[1].kill()
                cluster.replicas[1].restart()  # it knows only what is in Redis
                await until_state(cluster, "connected")
                assert await statuses(session, sites) == [404, 404]
                assert await statuses(other, sites) == [200, 200]


async def statuses(session: Session, sites: list[Site]) -> list[int]:
    """The status of a call at each replica."""
    found = []
    for site in sites:
        session.site = site
        answer = await session.call("pid")
        await answer.body()
        found.append(answer.status)
    return found
