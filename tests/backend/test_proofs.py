"""DPoP proofs that several replicas receive: a proof is accepted once, or not at all."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from dovetail import Server
from dovetail.auth import Bearer, Checker, KnownClient, Provider, dpop, static_tokens
from dovetail.auth.dpop import DpopSigner
from dovetail.backend import Backend
from dovetail.ports import Principal
from dovetail.sealing import KeyRing
from tests.system import needs_redis
from tests.transports.http.raw import Answer, Site, hosted

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
URL = "https://shop.example/mcp"
TOKEN = "the-token-of-ada"


@asynccontextmanager
async def replicas(signer: DpopSigner, *backends: Backend) -> AsyncIterator[list[Site]]:
    """Servers behind one URL, which accept a token that is bound to a key."""
    ada = Principal("ada", claims={"cnf": {"jkt": signer.thumbprint}})
    async with AsyncExitStack() as stack:
        sites = []
        for backend in backends:
            guard = Bearer(static_tokens({TOKEN: ada}), dpop=Checker(window=30))
            server = Server("shop", auth=guard, backend=backend)
            server.tool(lambda: "bought", name="buy")
            options: dict[str, Any] = {"public_url": URL, "keys": [KEY]}
            sites.append(await stack.enter_async_context(hosted(server, **options)))
        yield sites


async def ask(site: Site, proof: str) -> Answer:
    return await site.ask("tools/list", headers={"Authorization": f"DPoP {TOKEN}", "DPoP": proof})


async def test_a_proof_is_accepted_by_one_replica_only(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    signer, backend = DpopSigner(), make_backend()
    async with replicas(signer, backend, make_backend()) as (first, second):
        proof = signer.proof("POST", URL, TOKEN)
        assert (await ask(first, proof)).status == 200
        for site in (second, first):
            refused = await ask(site, proof)
            assert refused.status == 401
            assert "already used" in refused.headers["www-authenticate"]
        assert (await ask(second, signer.proof("POST", URL, TOKEN))).status == 200
        [row, _] = shared_redis.keys(f"{backend.prefix}jti:*")
        assert 70 < shared_redis.run("TTL", row) <= 91  # three windows


@pytest.mark.parametrize("made", [-60, -59, 0, 59, 60])
async def test_a_proof_is_remembered_until_no_replica_accepts_it(
    made: int, make_backend: MakeBackend, shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the clock of the other replica is behind by up to two windows."""
    signer, backend, ring = DpopSigner(), make_backend(), KeyRing([KEY.encode()])
    clock, start, window = [0.0], float(int(time.time())), 60.0
    monkeypatch.setattr(dpop, "time", SimpleNamespace(time=lambda: clock[0]))

    def checker() -> Checker:
        found = Checker(window=window)
        found.use_rows(backend.rows("jti"))
        return found

    async def check(at: float) -> str:
        clock[0] = start + at
        try:
            return await checker().check(proof, "POST", URL, ring=ring)
        except dpop.ProofRefused as refusal:
            return str(refusal)

    clock[0] = start + made
    proof = signer.proof("POST", URL)
    assert "issue time" in await check(made - window - 1)
    assert "issue time" in await check(made + window + 1)
    assert await check(0) == signer.thumbprint
    [row] = shared_redis.keys(f"{backend.prefix}jti:*")
    left = shared_redis.run("PTTL", row) / 1000
    # The last moment at which another clock accepts it, and how much later that can be.
    assert "already used" in await check(made + window)
    last = made + window + 2 * window
    assert last - 30 < left <= last + 0.001


async def test_of_concurrent_requests_with_one_proof_one_is_accepted(
    make_backend: MakeBackend,
) -> None:
    signer = DpopSigner()
    async with replicas(signer, make_backend(), make_backend()) as sites:
        proof = signer.proof("POST", URL, TOKEN)
        answers = await asyncio.gather(*(ask(site, proof) for site in sites * 4))
        assert sorted(answer.status for answer in answers) == [200] + [401] * 7


async def test_a_proof_that_cannot_be_looked_up_is_not_accepted(own_redis: RedisServer) -> None:
    signer, backend = DpopSigner(), Backend(own_redis.url, keys=[KEY])
    async with replicas(signer, backend) as [site]:
        assert (await ask(site, signer.proof("POST", URL, TOKEN))).status == 200
        own_redis.stop()
        for _ in range(5):
            answer = await ask(site, signer.proof("POST", URL, TOKEN))
            assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1
            assert (await answer.json())["error"] == "temporarily_unavailable"
        own_redis.start()
        async with asyncio.timeout(30):
            while (await ask(site, signer.proof("POST", URL, TOKEN))).status != 200:
                await asyncio.sleep(0.05)


async def test_a_hung_redis_costs_a_caller_one_timeout(own_redis: RedisServer) -> None:
    signer, backend = DpopSigner(), Backend(own_redis.url, keys=[KEY])
    async with replicas(signer, backend) as [site]:
        assert (await ask(site, signer.proof("POST", URL, TOKEN))).status == 200
        own_redis.pause()
        seconds = []
        for _ in range(3):
            started = time.monotonic()
            assert (await ask(site, signer.proof("POST", URL, TOKEN))).status == 503
            seconds.append(time.monotonic() - started)
        own_redis.resume()
    assert seconds[0] >= 1.0 > max(seconds[1:])


async def test_the_token_endpoint_answers_503_while_redis_is_away(own_redis: RedisServer) -> None:
    robot = KnownClient(id="robot", secret="a secret that nobody guesses")
    backend = Backend(own_redis.url, keys=[KEY])
    server = Server("shop", auth=Provider(clients=[robot]), backend=backend)
    signer = DpopSigner()

    async def request_token(site: Site) -> Answer:
        form = {"grant_type": "client_credentials", "client_id": robot.id}
        body = urlencode({**form, "client_secret": robot.secret, "resource": URL})
        return await site.send(
            "POST",
            {
                "Content-Type": "application/x-www-form-urlencoded",
                "DPoP": signer.proof("POST", "https://shop.example/token"),
            },
            body.encode(),
            "/token",
        )

    async with hosted(server, public_url=URL, keys=[KEY]) as site:
        assert (await request_token(site)).status == 200
        own_redis.stop()
        answer = await request_token(site)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert (await answer.json())["error"] == "temporarily_unavailable"


def test_a_guard_without_shared_state_needs_no_method() -> None:
    class Plain:
        async def admit(self, *_: Any) -> Principal:
            return Principal("ada")

        async def respond(self, *_: Any) -> None:
            return None

        def challenge(self, *_: Any) -> dict[str, str]:
            return {}

    Server("shop", auth=Plain(), backend=Backend("redis://127.0.0.1:1/0", keys=[KEY])).asgi()


def test_a_guard_gets_the_backend_once() -> None:
    guard, backend = Bearer(static_tokens({TOKEN: "ada"})), object()
    given: list[Any] = []
    guard.use_backend = given.append  # type: ignore[method-assign]
    server = Server("shop", auth=guard, backend=Backend("redis://127.0.0.1:1/0", keys=[KEY]))
    server.asgi()
    server.asgi()
    assert given == [server.backend] and given != [backend]
    Server("shop", auth=guard).asgi()
    assert len(given) == 1
