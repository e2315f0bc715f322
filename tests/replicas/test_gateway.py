"""Replicas of a gateway, as real processes behind a load balancer without sticky routing."""

import json
import sys
from collections.abc import Iterator

import pytest

from dovetail import Client
from tests.backend.redis_server import RedisServer
from tests.system import needs_redis

from .cluster import KEY, Cluster, Member, running
from .conftest import ERAS
from .round_robin import round_robin

pytestmark = needs_redis


@pytest.fixture(scope="module")
def upstream(
    shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A server of the handshake era, so that the gateway holds calls that ask something."""
    folder = tmp_path_factory.mktemp("upstream")
    with running(shared_redis, folder, 1, env={"REVISIONS": "2025-11-25"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gateways(
    upstream: Cluster, shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Member]]:
    folder = tmp_path_factory.mktemp("gateways")
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"shop": {"url": upstream.replicas[0].url}}}))
    command = [sys.executable, "-m", "dovetail", "gateway", str(config), "--http", "--port", "PORT"]
    env = {"DOVETAIL_BACKEND": shared_redis.url, "DOVETAIL_KEYS": KEY}
    members = [
        Member(command, {**env, "XDG_STATE_HOME": str(folder / str(n))}, folder / f"{n}.log")
        for n in range(2)
    ]
    try:
        for member in members:
            member.start()
        for member in members:
            member.wait_until_ready()
        yield members
    finally:
        for member in members:
            member.close()
            print(member.output(), end="")


@pytest.mark.parametrize("era", ERAS)
async def test_calls_and_questions_pass_through_any_replica_of_a_gateway(
    gateways: list[Member], upstream: Cluster, tag: str, era: str
) -> None:
    answers = {"on_elicit": lambda _: {"size": "large"}, "on_sample": lambda _: "Great"}
    async with round_robin([one.port for one in gateways]) as proxy:
        async with Client(proxy.url, revision=era, **answers) as client:
            for number in range(6):
                found = await client.call_tool("shop__add", {"a": number, "b": 1})
                assert found.data == number + 1
            for _ in range(2):
                assert (await client.call_tool("shop__ask", {"tag": tag})).text == "large: Great"
    assert upstream.done(tag) == ["paid", "sent"] * 2
