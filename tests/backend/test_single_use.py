"""Request states that may be used only once, in memory and with a backend."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.backend import Backend
from dovetail.connection import used_states
from dovetail.connection.used_states import UsedStates
from dovetail.errors import InvalidParams, Overloaded
from tests.system import needs_redis
from tests.transports.http.raw import Answer, Site, hosted

from .conftest import KEY, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
CAPABLE = {"elicitation": {"form": {}}}


@pytest.fixture(params=["memory", "redis"])
def used(request: pytest.FixtureRequest, make_backend: MakeBackend) -> UsedStates:
    rows = make_backend().rows("used") if request.param == "redis" else None
    return UsedStates(rows, 60)


async def test_a_state_is_used_once(used: UsedStates) -> None:
    later = time.time() + 60
    assert await used.use("one", later)
    assert not await used.use("one", later)
    assert await used.use("two", later)


async def test_of_concurrent_uses_one_succeeds(used: UsedStates) -> None:
    later = time.time() + 60
    assert sum(await asyncio.gather(*(used.use("one", later) for _ in range(8)))) == 1


async def test_a_process_that_has_to_forget_states_refuses_states_of_their_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(used_states, "MAX_USED", 3)
    used, later = UsedStates(None, 60), time.time() + 60
    for number in range(4):
        assert await used.use(str(number), later + number)
    assert not await used.use("0", later)
    assert not await used.use("unused, but as old", later)
    assert await used.use("newer", later + 10)


async def test_a_backend_forgets_a_state_when_it_has_expired(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    await UsedStates(backend.rows("used"), 60).use("one", 0.0)
    [row] = shared_redis.keys(f"{backend.prefix}used:*")
    assert 50 < shared_redis.run("TTL", row) <= 60


# servers


@asynccontextmanager
async def replicas(*backends: Backend | None, **options: Any) -> AsyncIterator[list[Site]]:
    async with AsyncExitStack() as stack:
        sites = []
        for backend in backends:
            server = Server("shop", backend=backend, single_use=True, **options)

            @server.tool
            async def pay(ctx: Context) -> int:
                answer = await ctx.elicit("How much?", int)
                more = await ctx.elicit("How much more?", int)
                return (answer.data or 0) + (more.data or 0)

            sites.append(await stack.enter_async_context(hosted(server, keys=[KEY])))
        yield sites


async def pay(site: Site, params: dict[str, Any]) -> Answer:
    return await site.ask("tools/call", params, capabilities=CAPABLE)


async def asked(answer: Answer) -> dict[str, Any]:
    result: dict[str, Any] = (await answer.whole())["result"]
    [key] = result["inputRequests"]
    return {
        "name": "pay",
        "arguments": {},
        "requestState": result["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {"value": 3}}},
    }


@pytest.mark.parametrize("resume", ["live", "replay"])
@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_the_answers_to_each_question_are_accepted_once(
    make_backend: MakeBackend, kind: str, resume: str
) -> None:
    backends = [make_backend(), make_backend()] if kind == "redis" else [None]
    async with replicas(*backends, resume=resume) as sites:
        first, last = sites[0], sites[-1]
        one = await asked(await pay(first, {"name": "pay", "arguments": {}}))
        two = await asked(await pay(last, one))
        done = await pay(first, two)
        assert (await done.whole())["result"]["structuredContent"] == {"result": 6}
        for site in sites:
            for used in (one, two):
                error = await (await pay(site, used)).error()
                assert error["code"] == InvalidParams.code
                assert "The call may have taken effect" in error["message"]


async def test_a_malformed_answer_does_not_use_the_state() -> None:
    async with replicas(None) as [site]:
        one = await asked(await pay(site, {"name": "pay", "arguments": {}}))
        [key] = one["inputResponses"]
        wrong = {**one, "inputResponses": {key: {"action": 5}}}
        assert (await (await pay(site, wrong)).error())["code"] == InvalidParams.code
        assert "inputRequests" in (await (await pay(site, one)).whole())["result"]


async def test_a_state_that_cannot_be_looked_up_is_refused(own_redis: RedisServer) -> None:
    async with replicas(Backend(own_redis.url, keys=[KEY])) as [site]:
        one = await asked(await pay(site, {"name": "pay", "arguments": {}}))
        own_redis.stop()
        answer = await pay(site, one)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert (await answer.error())["code"] == Overloaded.code
        own_redis.start()
        async with asyncio.timeout(30):  # the state was not used
            while (answer := await pay(site, one)).status == 503:
                await asyncio.sleep(0.05)
        assert "inputRequests" in (await answer.whole())["result"]


async def test_a_hung_redis_costs_a_caller_one_timeout(own_redis: RedisServer) -> None:
    async with replicas(Backend(own_redis.url, keys=[KEY])) as [site]:
        one = await asked(await pay(site, {"name": "pay", "arguments": {}}))
        own_redis.pause()
        seconds = []
        for _ in range(3):
            started = time.monotonic()
            assert (await pay(site, one)).status == 503
            seconds.append(time.monotonic() - started)
        own_redis.resume()
    assert seconds[0] < 1.5 and sum(seconds[1:]) < 1.0
