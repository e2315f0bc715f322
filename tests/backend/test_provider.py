"""An authorization server whose replicas share their rows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, Server
from dovetail.auth import OAuth, Provider
from dovetail.auth.client.store import read_record
from dovetail.auth.dpop import DpopSigner
from dovetail.backend import Backend
from dovetail.errors import ConfigError
from dovetail.ports import HttpRequest, HttpResponse
from tests.auth.provider_kit import (
    BASE,
    URL,
    VERIFIER,
    Agent,
    decoded,
    provider,
    refused,
    returned,
)
from tests.auth.test_provider_served import Robot
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer, redis_server
from .test_server import connect

pytestmark = needs_redis


def make_replica(backend: Backend, **settings: Any) -> Provider:
    found = provider(storage=None, **settings)
    found.use_backend(backend)
    return found


MakeAgents = Callable[..., list[Agent]]


@pytest.fixture(params=["sqlite", "redis"])
def make_agents(
    request: pytest.FixtureRequest, make_backend: MakeBackend, tmp_path: Path
) -> MakeAgents:
    """A function that makes a caller for each of three replicas."""

    def make(**settings: Any) -> list[Agent]:
        if request.param == "sqlite":
            file = tmp_path / "rows.sqlite"
            return [Agent(provider(storage=file, **settings)) for _ in range(3)]
        return [Agent(make_replica(make_backend(), **settings)) for _ in range(3)]

    return make


@pytest.fixture
def agents(make_agents: MakeAgents) -> list[Agent]:
    return make_agents()


async def test_each_step_of_a_login_may_reach_another_replica(agents: list[Agent]) -> None:
    one, two, three = agents
    client = (await one.register())["client_id"]
    two.cookies = three.cookies = one.cookies
    url = two.wish(client)
    shown = await two.get(url)
    back = await three.press(url, shown, "login", username="ada", password="lovelace")
    asked = await one.get(back.headers["location"])
    code = returned(await two.press(url, asked, "approve"))["code"]
    answer = await three.redeem(client, code)
    assert answer.status == 200, answer.body
    tokens = decoded(answer)
    for agent in agents:
        caller = await agent.who(tokens["access_token"])
        assert caller is not None and caller.id == "ada"
    answer = await two.form("/revoke", {"client_id": client, "token": tokens["refresh_token"]})
    assert answer.status == 200
    for agent in agents:
        assert await agent.who(tokens["access_token"]) is None


async def test_a_code_is_redeemed_at_one_of_the_replicas(agents: list[Agent]) -> None:
    client = (await agents[0].register())["client_id"]
    code = await agents[1].code(client)
    answers = await asyncio.gather(*(agent.redeem(client, code) for agent in agents))
    # A second use of a code is an attack: it ends the grant.
    assert [answer.status for answer in answers].count(200) <= 1
    for answer in answers:
        if answer.status == 200:
            assert await agents[2].who(decoded(answer)["access_token"]) is None


async def test_a_refresh_token_that_is_used_at_two_replicas_at_once_has_one_successor(
    agents: list[Agent],
) -> None:
    client = (await agents[0].register())["client_id"]
    old = (await agents[1].tokens(client))["refresh_token"]
    answers = await asyncio.gather(*(agent.refresh(client, old) for agent in agents))
    assert [answer.status for answer in answers] == [200, 200, 200]  # within the grace period
    assert len({decoded(answer)["refresh_token"] for answer in answers}) == 1


async def test_a_refresh_token_has_one_use_if_there_is_no_grace_period(
    make_agents: MakeAgents,
) -> None:
    agents = make_agents(grace=-1)
    client = (await agents[0].register())["client_id"]
    old = (await agents[1].tokens(client))["refresh_token"]
    answers = await asyncio.gather(*(agent.refresh(client, old) for agent in agents))
    assert [answer.status for answer in answers].count(200) <= 1
    for agent, answer in zip(agents, answers, strict=True):
        if answer.status == 200:  # the others have ended the grant
            assert await agent.who(decoded(answer)["access_token"]) is None
        else:
            refused(answer, "invalid_grant")


async def test_a_refresh_token_that_is_reused_at_another_replica_ends_the_grant(
    agents: list[Agent],
) -> None:
    one, two, three = agents
    client = (await one.register())["client_id"]
    first = await one.tokens(client)
    second = decoded(await two.refresh(client, first["refresh_token"]))
    third = decoded(await three.refresh(client, second["refresh_token"]))
    refused(await one.refresh(client, first["refresh_token"]), "invalid_grant")
    refused(await two.refresh(client, third["refresh_token"]), "invalid_grant")
    assert await three.who(third["access_token"]) is None


async def test_a_storage_that_was_passed_is_used_instead_of_the_backend(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    guard = provider(storage=":memory:")
    guard.use_backend(backend)
    await Agent(guard).register()
    assert shared_redis.keys(f"{backend.prefix}*") == []


async def test_replicas_count_attempts_to_log_in_together(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    replicas = [make_replica(one) for one in (backend, make_backend(), make_backend())]
    url = Agent(replicas[0]).wish((await Agent(replicas[0]).register())["client_id"])

    async def log_in(replica: int, password: str, address: str = "203.0.113.7") -> int:
        return (await Agent(replicas[replica], address=address).login(url, "ada", password)).status

    async def guess(count: int) -> list[int]:
        return [await log_in(number % 3, f"guess {number}") for number in range(count)]

    assert await guess(4) == [403] * 4
    assert await log_in(0, "lovelace") == 200  # it clears the count
    assert await guess(7) == [403] * 5 + [429] * 2
    agent = Agent(replicas[2])
    refused = await agent.login(url)  # though the password is right
    assert (refused.status, b"Try again in" in refused.body) == (429, True)
    assert 0 < int(refused.headers["retry-after"]) <= 31
    assert await log_in(1, "lovelace", "198.51.100.1") == 200
    buckets = shared_redis.keys(f"{backend.prefix}rate:*")
    assert buckets and not any(b"ada" in key or b"203.0" in key for key in buckets)


async def test_replicas_count_attempts_from_an_address_together(make_backend: MakeBackend) -> None:
    users: Any = lambda name, password: name == "mallory"  # noqa: E731
    replicas = [make_replica(make_backend(), users=users) for _ in range(3)]
    url = Agent(replicas[0]).wish((await Agent(replicas[0]).register())["client_id"])
    statuses = []
    for number in range(24):
        replica = replicas[number % 3]
        statuses.append((await Agent(replica).login(url, f"user {number}", "guess")).status)
        # Whoever has an account cannot clear the count of their address.
        assert (await Agent(replica).login(url, "mallory", "own")).status in (200, 429)
    assert 429 in statuses[:22] and statuses[-1] == 429
    elsewhere = Agent(replicas[1], address="198.51.100.1")
    assert (await elsewhere.login(url, "user 1", "guess")).status == 403


async def test_no_password_is_checked_while_attempts_cannot_be_counted(
    own_redis: RedisServer,
) -> None:
    checked: list[str] = []

    def check(name: str, password: str) -> bool:
        checked.append(password)
        return True

    guard = provider(storage=":memory:", users=check)
    guard.use_backend(Backend(own_redis.url, keys=[KEY]))
    agent = Agent(guard)
    url = agent.wish((await agent.register())["client_id"])
    shown = await agent.get(url)
    own_redis.stop()
    answer = await agent.press(url, shown, "login", username="ada", password="a guess")
    assert (answer.status, checked) == (503, [])


async def test_a_dpop_proof_is_accepted_by_one_of_the_replicas(make_backend: MakeBackend) -> None:
    agents = [Agent(make_replica(make_backend())) for _ in range(2)]
    client = (await agents[0].register())["client_id"]
    signer, answers = DpopSigner(), []
    proof = {"dpop": signer.proof("POST", f"{BASE}/token")}
    fields = {"client_id": client, "grant_type": "authorization_code", "code_verifier": VERIFIER}
    for agent in agents:
        code = await agents[0].code(client)
        answers.append(await agent.form("/token", {**fields, "code": code}, proof))
    assert answers[0].status == 200
    refused(answers[1], "invalid_dpop_proof")


@pytest.mark.parametrize("fault", ["stop", "pause"])
async def test_if_redis_is_away_clients_learn_when_to_try_again(
    own_redis: RedisServer, fault: str
) -> None:
    backend = Backend(own_redis.url, keys=[KEY])
    agent = Agent(make_replica(backend))
    client = (await agent.register())["client_id"]
    tokens = await agent.tokens(client)
    getattr(own_redis, fault)()
    answer = await agent.refresh(client, tokens["refresh_token"])
    refused(answer, "temporarily_unavailable", 503)
    assert 1 <= int(answer.headers["retry-after"]) <= 5
    page = await agent.get(agent.wish(client))
    assert page.status == 503 and b"Redis" not in page.body
    authorization = {"authorization": f"Bearer {tokens['access_token']}"}
    call = HttpRequest(path="/mcp", url=URL, headers=authorization)
    found = await agent.provider.admit(call, agent.site)
    assert isinstance(found, HttpResponse)
    refused(found, "temporarily_unavailable", 503)
    await backend.close()


# real servers


@asynccontextmanager
async def serve(backend: Backend, port: int, public_port: int) -> AsyncIterator[str]:
    server = Server("guarded", backend=backend, auth=provider(storage=None))

    @server.tool
    def whoami(ctx: Context) -> str:
        return ctx.user.id if ctx.user else ""

    public_url = f"http://127.0.0.1:{public_port}/mcp"
    running = asyncio.create_task(
        server.run_async("http", port=port, keys=[KEY], public_url=public_url)
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_user_who_logged_in_at_one_server_is_known_at_the_other(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backends, ports = [make_backend(), make_backend()], [free_port(), free_port()]
    async with (
        serve(backends[0], ports[0], ports[0]) as one,
        serve(backends[1], ports[1], ports[0]) as two,
    ):
        store = make_backend(name="client").tokens()
        robot = Robot()
        client = Client(one, auth=OAuth(store=store, browser=robot))
        await connect(client)
        assert (await client.call_tool("whoami")).data == "ada"
        await client.close()
        tokens = read_record(await store.load(one)).tokens
        assert tokens is not None
        other = Client(two, headers={"Authorization": f"Bearer {tokens.access_token}"})
        await connect(other)
        assert (await other.call_tool("whoami")).data == "ada"
        await other.close()
        again = Client(one, auth=OAuth(store=make_backend(name="client").tokens(), browser=False))
        await connect(again)  # another process of the client needs no login
        await again.close()
    assert robot.visits == 1
    assert shared_redis.keys(f"{backends[0].prefix}provider:grant:*")


async def test_a_server_does_not_start_if_a_failover_could_bring_codes_back(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    master = ("--replicaof", f"127.0.0.1 {own_redis.port}")
    with (
        redis_server(tmp_path / "one", *master, program=own_redis.program),
        redis_server(tmp_path / "two", *master, program=own_redis.program),
    ):
        while own_redis.run("INFO", "replication")["connected_slaves"] != 2:
            await asyncio.sleep(0.01)
        backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
        server = Server("guarded", backend=backend, auth=provider(storage=None))
        server.asgi(keys=[KEY], public_url=URL)
        with pytest.raises(ConfigError, match=r"\?wait=1"):
            async with server.lifespan():
                pytest.fail("it must not start")
