"""A server that is its own authorization server, with several replicas."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from dovetail import Client
from dovetail.auth import MemoryStore, OAuth
from dovetail.ports import HttpResponse
from tests.auth.provider_kit import HASHES, Agent, decoded, provider, refused, site
from tests.auth.test_provider_served import Robot
from tests.backend.redis_server import RedisServer
from tests.ports import free_port
from tests.system import needs_redis
from tests.transports.http.raw import Site

from .cluster import Cluster, running
from .round_robin import RoundRobin, round_robin

pytestmark = needs_redis
PORT = free_port()
URL = f"http://127.0.0.1:{PORT}/mcp"


@pytest.fixture(scope="module")
def guarded(
    shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("guarded")
    settings = {"env": {"USERS": json.dumps(HASHES)}, "options": {"public_url": URL}}
    with running(shared_redis, folder, **settings) as cluster:
        yield cluster


class RemoteAgent(Agent):
    """A client and a browser that call the authorization server over HTTP."""

    def __init__(self, proxy: RoundRobin, port: int | None = None) -> None:
        super().__init__(provider(), site(base=proxy.url.removesuffix("/mcp")))
        self._port = port or proxy.port

    async def ask(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] = {}
    ) -> HttpResponse:
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        given = {"Host": urlsplit(self.site.base).netloc, "Origin": self.site.base, **headers}
        if self.cookies:
            given["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        to = Site(self._port)
        try:
            sent = body if method == "POST" else None
            answer = await to.send(method, {**given, "Connection": "close"}, sent, path)
            found = HttpResponse(
                status=answer.status, headers=answer.headers, body=await answer.body()
            )
        finally:
            for writer in to.open:
                writer.transport.abort()
        if cookie := answer.headers.get("set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return found


async def whoami(url: str, auth: Any) -> list[Any]:
    async with Client(url, auth=auth) as client:
        return [(await client.call_tool("whoami")).data for _ in range(6)]


async def test_a_login_succeeds_though_each_of_its_requests_reaches_another_replica(
    guarded: Cluster,
) -> None:
    async with round_robin(guarded.ports, PORT) as proxy:
        auth = OAuth(store=MemoryStore(), browser=Robot())
        assert await whoami(proxy.url, auth) == ["ada"] * 6


async def test_a_token_that_is_renewed_at_all_replicas_at_once_has_one_successor(
    guarded: Cluster,
) -> None:
    async with round_robin(guarded.ports, PORT) as proxy:
        agents = [RemoteAgent(proxy, port) for port in guarded.ports]
        client = (await agents[0].register())["client_id"]
        old = (await agents[0].tokens(client))["refresh_token"]
        answers = await asyncio.gather(*(agent.refresh(client, old) for agent in agents))
        assert [answer.status for answer in answers] == [200, 200, 200]  # within the grace period
        assert len({decoded(answer)["refresh_token"] for answer in answers}) == 1


async def test_a_refresh_token_that_is_replayed_at_any_replica_ends_the_grant(
    guarded: Cluster,
) -> None:
    async with round_robin(guarded.ports, PORT) as proxy:
        one, two, three = [RemoteAgent(proxy, port) for port in guarded.ports]
        client = (await one.register())["client_id"]
        two.cookies = three.cookies = one.cookies
        first = await two.tokens(client)
        second = decoded(await three.refresh(client, first["refresh_token"]))
        third = decoded(await one.refresh(client, second["refresh_token"]))
        refused(await two.refresh(client, first["refresh_token"]), "invalid_grant")
        refused(await three.refresh(client, third["refresh_token"]), "invalid_grant")


async def test_a_code_is_redeemed_by_at_most_one_replica(guarded: Cluster) -> None:
    async with round_robin(guarded.ports, PORT) as proxy:
        agents = [RemoteAgent(proxy, port) for port in guarded.ports]
        client = (await agents[0].register())["client_id"]
        code = await agents[0].code(client)
        answers = await asyncio.gather(*(agent.redeem(client, code) for agent in agents))
        assert [answer.status for answer in answers].count(200) <= 1


async def test_a_token_that_was_revoked_at_one_replica_is_refused_by_all(guarded: Cluster) -> None:
    async with round_robin(guarded.ports, PORT) as proxy:
        agent = RemoteAgent(proxy)
        client = (await agent.register())["client_id"]
        tokens = await agent.tokens(client)
        await agent.form("/revoke", {"client_id": client, "token": tokens["refresh_token"]})
        authorization = {"Authorization": f"Bearer {tokens['access_token']}"}
        async with guarded.sites() as sites:
            for one in sites:
                call = await one.call("whoami", _headers={**authorization})
                assert call.status == 401
                await call.body()
