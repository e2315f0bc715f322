"""Requests of one client that arrive at different replicas."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import Overloaded
from tests.system import needs_redis
from tests.transports.http.raw import Session, Site, logged, text

from .cluster import Cluster
from .conftest import ERAS
from .program import GENEROUS_LIMIT
from .round_robin import round_robin

pytestmark = needs_redis

PLAIN_CALLS = 500
MAX_IDLE_COMMANDS = 10
"""How many commands an idle replica may send in a second."""


@pytest.mark.parametrize("era", ERAS)
async def test_calls_of_one_client_are_answered_by_all_replicas(cluster: Cluster, era: str) -> None:
    async with round_robin(cluster.ports) as proxy, Client(proxy.url, revision=era) as client:
        pids = [(await client.call_tool("pid")).data for _ in range(12)]
    assert set(pids) == {one.pid for one in cluster.replicas}


@pytest.mark.parametrize("era", ERAS)
async def test_many_calls_at_once_are_all_answered(cluster: Cluster, era: str) -> None:
    async with round_robin(cluster.ports) as proxy, Client(proxy.url, revision=era) as client:
        calls = [client.call_tool("add", {"a": n, "b": 1}) for n in range(100)]
        assert [one.data for one in await asyncio.gather(*calls)] == list(range(1, 101))


async def status(session: Session, site: Site) -> int:
    """The status of a call at this replica."""
    session.site = site
    answer = await session.call("pid")
    await answer.body()
    return answer.status


async def test_a_session_that_was_deleted_at_one_replica_has_ended_at_all(cluster: Cluster) -> None:
    async with cluster.sites() as sites:
        session = await sites[0].greet()
        assert [await status(session, site) for site in sites] == [200, 200, 200]
        session.site = sites[1]
        assert (await session.delete()).status == 204
        assert await status(session, sites[1]) == 404
        for site in sites:
            while await status(session, site) != 404:  # the news is on its way
                await asyncio.sleep(0.01)


async def test_a_session_that_was_deleted_is_not_served_by_a_replica_that_meets_it(
    cluster: Cluster,
) -> None:
    async with cluster.sites() as sites:
        session = await sites[0].greet()
        assert (await session.delete()).status == 204
        assert [await status(session, site) for site in sites] == [404, 404, 404]


@pytest.mark.parametrize("era", ERAS)
async def test_a_limit_of_five_admits_five_of_nine_calls(cluster: Cluster, era: str) -> None:
    tool = f"limited_{ERAS.index(era)}"
    async with round_robin(cluster.ports) as proxy:
        async with Client(proxy.url, revision=era) as client:
            calls = [client.call_tool(tool) for _ in range(9)]
            found = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in found if isinstance(one, Overloaded)]
    assert len(refused) == 4, found
    assert all(one.retry_after and one.retry_after > 1000 for one in refused)


async def test_a_high_limit_is_never_exceeded_and_nearly_used_up(cluster: Cluster) -> None:
    """Each replica takes a tenth of such a limit at a time, so a few calls may be missing."""
    async with round_robin(cluster.ports) as proxy:
        async with Client(proxy.url, revision="stateless") as client:
            calls = [client.call_tool("generous", timeout=5) for _ in range(2 * GENEROUS_LIMIT)]
            found = await asyncio.gather(*calls, return_exceptions=True)
    passed = [one for one in found if not isinstance(one, Exception)]
    assert GENEROUS_LIMIT - 2 * GENEROUS_LIMIT // 10 <= len(passed) <= GENEROUS_LIMIT


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_cancelled_by_a_request_to_another_replica_stops(
    cluster: Cluster, era: str, tag: str
) -> None:
    async with round_robin(cluster.ports) as proxy, Client(proxy.url, revision=era) as client:
        calling = asyncio.create_task(client.call_tool("wait", {"tag": tag}))
        while not cluster.done(tag):
            await asyncio.sleep(0.01)
        calling.cancel()
        while cluster.done(tag)[1:] != ["cancelled"]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("era", ERAS)
async def test_an_update_reaches_a_subscriber_at_another_replica(
    cluster: Cluster, era: str, tag: str
) -> None:
    uri = f"stock://{tag}"
    arrived: asyncio.Queue[str] = asyncio.Queue()
    async with round_robin(cluster.ports) as proxy, Client(proxy.url, revision=era) as client:
        await client.subscribe(uri, arrived.put_nowait)
        for replica in cluster.replicas:
            async with Client(replica.url, revision=era) as other:
                await other.call_tool("touch", {"uri": uri})
            assert await arrived.get() == uri


async def test_a_log_level_holds_at_every_replica(cluster: Cluster) -> None:
    async with cluster.sites() as sites:
        session = await sites[0].greet()
        await session.tell("notifications/initialized")
        assert await levels(session, sites[0]) != ["error"]
        await (await session.ask("logging/setLevel", {"level": "error"})).body()
        for site in sites:
            while await levels(session, site) != ["error"]:  # the news may be on its way
                await asyncio.sleep(0.01)


async def levels(session: Session, site: Site) -> list[str]:
    """The levels of the messages that arrive during a call at this replica."""
    session.site = site
    answer = await session.call("levels")
    if answer.headers["content-type"] == "text/event-stream":
        return logged(await answer.messages())
    await answer.body()
    return []


async def test_a_question_is_answered_at_another_replica(cluster: Cluster, tag: str) -> None:
    """In the handshake era, the answer is a request of its own."""
    replies: Iterator[Any] = iter(
        [
            {"action": "accept", "content": {"size": "large"}},
            {"role": "assistant", "content": {"type": "text", "text": "Great"}, "model": "m"},
        ]
    )
    async with cluster.sites() as (asked, answered, _):
        session = await asked.greet(capabilities={"elicitation": {}, "sampling": {}})
        session.site = answered
        await session.tell("notifications/initialized")
        session.site = asked
        stream = await session.call("ask", tag=tag)
        session.site = answered
        while "result" not in (message := (await stream.next_message())):
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": next(replies)}
            assert (await session.post(reply)).status == 202
        assert text(message) == "large: Great"
    assert cluster.done(tag) == ["paid", "sent"]


@pytest.mark.parametrize("era", ERAS)
async def test_questions_are_answered_wherever_the_answers_arrive(
    cluster: Cluster, era: str, tag: str
) -> None:
    async with round_robin(cluster.ports) as proxy:
        async with Client(
            proxy.url,
            revision=era,
            on_elicit=lambda _: {"size": "large"},
            on_sample=lambda _: "Great",
        ) as client:
            assert (await client.call_tool("ask", {"tag": tag})).data == "large: Great"
    assert cluster.done(tag) == ["paid", "sent"]


@pytest.mark.parametrize(("read", "rest"), [(2, ["before 1"]), (3, [])])
async def test_a_stream_is_resumed_at_another_replica(
    cluster: Cluster, tmp_path: Path, read: int, rest: list[str]
) -> None:
    gate = tmp_path / "gate"
    async with cluster.sites() as (one, other, _):
        session = await one.greet()
        stream = await session.call("talk", gate=str(gate))
        last = [(await stream.next()).id for _ in range(read)][-1]
        stream.cut()
        session.site = other
        resumed = await session.get(last)
        assert resumed.status == 200
        gate.touch()
        messages = await resumed.messages()
    assert logged(messages) == [*rest, "after 0", "after 1"]
    assert text(messages[-1]) == "talked"


async def test_plain_stateless_calls_send_nothing_to_redis(cluster: Cluster) -> None:
    async with Client(cluster.replicas[0].url, revision="stateless") as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        with cluster.redis.monitoring() as recorded:
            began = time.monotonic()
            for _ in range(PLAIN_CALLS):
                await client.call_tool("add", {"a": 1, "b": 2})
            commands, seconds = recorded(), time.monotonic() - began
    idle = MAX_IDLE_COMMANDS * len(cluster.replicas) * seconds
    kinds = Counter(" ".join(command.split()[:2]) for command in commands)
    assert len(commands) < idle + PLAIN_CALLS / 10, kinds
