"""Rate limits that replicas share."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dovetail import Client, Context, Rate, Rates, Server
from dovetail.backend import Backend
from dovetail.connection.extension import Extension
from dovetail.errors import Overloaded
from dovetail.limits import DEFAULT
from dovetail.ports import Call, Caller, Principal
from dovetail.protocol.base import Params
from dovetail.protocol.methods import METHODS, Method
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import ALL
from dovetail.server.rates import RateLimiter
from dovetail.server.shared_rates import SWEEP_SECONDS, SharedRateLimiter
from tests.behaviour.web import on_a_port
from tests.server.guarded import Door
from tests.system import needs_redis
from tests.transports.http.raw import INFO, OLD, Site, hosted, request

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis
CALL = METHODS["tools/call"]
HOUR = 3600.0


def caller(principal: str = "ada") -> Caller:
    return Caller(ALL[-1], principal=Principal(principal))


async def ask(
    limiter: RateLimiter, tool: str = "buy", who: str = "ada", state: str | None = None
) -> float:
    """Return 0 if a call is admitted, and otherwise how long to wait."""
    params = CallToolParams(name=tool, request_state=state)
    try:
        pending = limiter.admit(CALL, params, caller(who))
        if pending is not None:
            await pending()
    except Overloaded as refusal:
        assert refusal.retry_after
        return refusal.retry_after
    return 0.0


async def admitted(limiter: RateLimiter, count: int, tool: str = "buy") -> int:
    return sum([await ask(limiter, tool) == 0 for _ in range(count)])


async def expect(limiter: RateLimiter, state: str, who: str = "ada") -> None:
    call = Call(1, CALL, None, caller(who), None, principal=Principal(who))
    stored = limiter.expect_round(call, state)
    if stored is not None:
        await stored


async def test_nobody_without_the_keys_can_try_all_addresses(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    for keys in (["one key" * 9], ["another key" * 9]):
        backend = make_backend(keys=keys)
        assert await ask(SharedRateLimiter(Rates(calls=Rate(5, per=HOUR)), backend, DEFAULT)) == 0
    assert len(shared_redis.keys(f"{backend.prefix}rate:*")) == 2


MakeLimiter = Callable[..., RateLimiter]


@pytest.fixture
def shared(make_backend: MakeBackend) -> MakeLimiter:
    """A function that makes the limiter of another process."""
    return lambda **rates: SharedRateLimiter(Rates(**rates), make_backend(), DEFAULT)


@pytest.fixture(params=["memory", "redis"])
def make_limiter(request: pytest.FixtureRequest, shared: MakeLimiter) -> MakeLimiter:
    return shared if request.param == "redis" else lambda **rates: RateLimiter(Rates(**rates))


# one process, with and without a backend


@pytest.mark.parametrize("limit", [5, 19, 20, 45, 200])
async def test_as_many_calls_pass_as_the_limit_allows(
    make_limiter: MakeLimiter, limit: int
) -> None:
    limiter = make_limiter(calls=Rate(limit, per=HOUR * limit))
    assert await admitted(limiter, limit) == limit
    assert HOUR * 0.9 < await ask(limiter) <= HOUR
    assert await ask(limiter, who="bo") == 0


@pytest.mark.parametrize("limit", [5, 45])
async def test_of_concurrent_calls_as_many_pass_as_the_limit_allows(
    make_limiter: MakeLimiter, limit: int
) -> None:
    limiter = make_limiter(calls=Rate(limit, per=HOUR * limit))
    waits = await asyncio.gather(*(ask(limiter) for _ in range(2 * limit)))
    assert waits.count(0) == limit


@pytest.mark.parametrize("small", [2, 30])
async def test_calls_of_a_tool_count_for_both_limits(make_limiter: MakeLimiter, small: int) -> None:
    limiter = make_limiter(
        calls=Rate(100, per=HOUR * 100), tools={"refund": Rate(small, per=HOUR * small)}
    )
    assert await admitted(limiter, small + 5, "refund") == small
    assert await admitted(limiter, 120) == 100 - small


async def test_a_limit_refills(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(calls=Rate(20, burst=1))
    assert await ask(limiter) == 0
    wait = await ask(limiter)
    assert 0 < wait <= 0.05
    async with asyncio.timeout(30):
        while await ask(limiter):
            await asyncio.sleep(0.01)


async def test_the_answers_to_questions_are_exempt_once(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(calls=Rate(1, per=HOUR))
    assert await ask(limiter) == 0
    await expect(limiter, "state")
    assert await ask(limiter, state="another state") > 0
    assert await ask(limiter, state="state", who="bo") == 0  # counts, as any call of bo
    assert await ask(limiter, state="state", who="bo") > 0
    assert await ask(limiter, state="state") == 0
    assert await ask(limiter, state="state") > 0


async def test_a_request_without_a_limit_is_not_counted(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(calls=None)
    assert await admitted(limiter, 50) == 50


# several processes


@pytest.mark.parametrize("limit", [5, 20, 60])
async def test_processes_together_admit_as_many_as_the_limit_allows(
    shared: MakeLimiter, limit: int
) -> None:
    limiters = [shared(calls=Rate(limit, per=HOUR * limit)) for _ in range(3)]
    waits = [await ask(limiters[number % 3]) for number in range(2 * limit)]
    assert waits.count(0) == limit


async def test_concurrent_calls_at_several_processes_never_exceed_the_limit(
    shared: MakeLimiter,
) -> None:
    limiters = [shared(calls=Rate(60, per=HOUR * 60)) for _ in range(3)]
    waits = await asyncio.gather(*(ask(limiters[number % 3]) for number in range(180)))
    # A process may hold a tenth that nobody asks it for.
    assert 60 - 2 * 6 <= waits.count(0) <= 60


async def test_answers_are_exempt_at_another_process_and_once_in_all(shared: MakeLimiter) -> None:
    asked, other, third = (shared(calls=Rate(1, per=HOUR)) for _ in range(3))
    assert await ask(asked) == 0
    await expect(asked, "state")
    assert await ask(other, state="state") == 0
    for limiter in (asked, other, third):
        assert await ask(limiter, state="state") > 0


async def test_a_process_gives_back_what_it_did_not_use(shared: MakeLimiter) -> None:
    rate = Rate(100, per=HOUR * 100)
    first, second = shared(calls=rate), shared(calls=rate)
    assert await admitted(first, 2) == 2  # and takes a tenth in advance
    async with asyncio.timeout(30):
        passed = 0
        while passed < 98:
            passed += await admitted(second, 98 - passed)
            await asyncio.sleep(0.05)
    assert await ask(second) > 0


async def test_a_process_gives_everything_back_when_it_ends(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    rate, backend = Rate(100, per=HOUR * 100), make_backend()
    server = Server("shop", rates=Rates(calls=rate), backend=backend)
    server.tool(lambda: "bought", name="buy")
    async with Client(server, revision="stateless") as client:
        for _ in range(3):
            await client.call_tool("buy")
    other = SharedRateLimiter(Rates(calls=rate), make_backend(), DEFAULT)
    waits = [await other_ask(other) for _ in range(98)]
    assert waits.count(0) == 97


async def other_ask(limiter: RateLimiter) -> float:
    """A call of the local caller."""
    try:
        pending = limiter.admit(CALL, CallToolParams(name="buy"), Caller(ALL[-1]))
        if pending is not None:
            await pending()
    except Overloaded as refusal:
        return refusal.retry_after or 1.0
    return 0.0


# commands


def evals(redis: RedisServer) -> int:
    return sum(redis.command_counts().get(name, 0) for name in ("eval", "evalsha"))


async def test_a_caller_in_steady_state_costs_a_command_in_dozens_of_calls(
    own_redis: RedisServer,
) -> None:
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    limiter = SharedRateLimiter(Rates(), backend, DEFAULT)
    before = evals(own_redis)
    assert await admitted(limiter, 1) == 1
    assert evals(own_redis) - before <= 2  # EVALSHA, and EVAL because Redis does not know it
    before = evals(own_redis)
    assert await admitted(limiter, 500) == 500
    assert evals(own_redis) - before <= 20


async def test_a_single_call_costs_one_command(own_redis: RedisServer) -> None:
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    limiter = SharedRateLimiter(Rates(), backend, DEFAULT)
    for who in ("ada", "bo"):
        assert await ask(limiter, who=who) == 0
    before = evals(own_redis)
    for number in range(20):
        assert await ask(limiter, who=f"caller {number}") == 0
    await asyncio.sleep(3 * SWEEP_SECONDS)
    assert evals(own_redis) - before == 20


async def test_a_caller_that_ignores_refusals_does_not_keep_redis_busy(
    own_redis: RedisServer,
) -> None:
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    limiter = SharedRateLimiter(Rates(calls=Rate(5, per=HOUR)), backend, DEFAULT)
    assert await admitted(limiter, 6) == 5
    before, started = evals(own_redis), time.monotonic()
    assert await admitted(limiter, 300) == 0
    assert evals(own_redis) - before <= 4 * (time.monotonic() - started) + 1


async def test_a_plain_call_of_a_local_caller_sends_no_command(own_redis: RedisServer) -> None:
    server = build(backend=Backend(own_redis.url, keys=[KEY], limits=PATIENT))
    async with Client(server, revision="stateless") as client:
        await client.call_tool("buy")
        while "config|get" not in own_redis.command_counts():  # the server checks its settings
            await asyncio.sleep(0.01)
        before = own_redis.command_counts()
        for _ in range(20):
            await client.call_tool("buy")
        after = own_redis.command_counts()
    assert {name: n for name, n in after.items() if n != before.get(name)}.keys() <= {"info"}


# Redis is away


async def test_without_redis_each_process_admits_its_part(
    own_redis: RedisServer,
) -> None:
    backends = [Backend(own_redis.url, keys=[KEY], limits=PATIENT) for _ in range(3)]
    buses = [await backend.bus() for backend in backends]
    async with asyncio.timeout(30):
        while any(backend.members < 3 for backend in backends):
            await asyncio.sleep(0.05)
    rates = Rates(calls=Rate(30, per=HOUR * 30), tools={"rare": Rate(1, per=HOUR)})
    limiters = [SharedRateLimiter(rates, backend, DEFAULT) for backend in backends]
    own_redis.stop()
    for limiter in limiters:
        assert await admitted(limiter, 40) == 10
        assert await ask(limiter) > 0
    assert [backend.members for backend in backends] == [3, 3, 3]
    for bus in buses:
        await bus.close()


async def test_without_redis_a_small_limit_is_not_closed(own_redis: RedisServer) -> None:
    backend = Backend(own_redis.url, keys=[KEY], limits=PATIENT)
    buses = [await (backend if number == 0 else other(own_redis)).bus() for number in range(3)]
    async with asyncio.timeout(30):
        while backend.members < 3:
            await asyncio.sleep(0.05)
    limiter = SharedRateLimiter(Rates(calls=Rate(2, per=HOUR)), backend, DEFAULT)
    own_redis.stop()
    assert await ask(limiter) == 0
    assert HOUR < await ask(limiter) <= 1.5 * HOUR  # a third of two in an hour
    for bus in buses:
        await bus.close()


def other(redis: RedisServer) -> Backend:
    return Backend(redis.url, keys=[KEY], limits=PATIENT)


async def test_answers_are_exempt_where_they_were_asked_if_redis_is_away(
    own_redis: RedisServer,
) -> None:
    limiter = SharedRateLimiter(
        Rates(calls=Rate(1, per=HOUR)), Backend(own_redis.url, keys=[KEY]), DEFAULT
    )
    own_redis.stop()
    assert await ask(limiter) == 0
    await expect(limiter, "state")
    assert await ask(limiter, state="state") == 0
    assert await ask(limiter, state="state") > 0


@pytest.mark.parametrize("limit", [5, 200])
async def test_a_hung_redis_costs_a_caller_one_timeout(own_redis: RedisServer, limit: int) -> None:
    limiter = SharedRateLimiter(
        Rates(calls=Rate(limit)), Backend(own_redis.url, keys=[KEY]), DEFAULT
    )
    assert await ask(limiter) == 0
    own_redis.pause()
    seconds = []
    for _ in range(4):
        started = time.monotonic()
        assert await ask(limiter) == 0
        seconds.append(time.monotonic() - started)
    own_redis.resume()
    assert max(seconds) < 1.5 and sum(seconds) < 2.0


async def test_limits_are_shared_again_when_redis_is_back(own_redis: RedisServer) -> None:
    backends = [Backend(own_redis.url, keys=[KEY]) for _ in range(2)]
    rates = Rates(calls=Rate(5, per=HOUR))
    limiters = [SharedRateLimiter(rates, backend, DEFAULT) for backend in backends]
    assert await ask(limiters[0]) == 0
    own_redis.stop()
    assert [await ask(one) for one in limiters] == [0, 0]
    own_redis.start()
    async with asyncio.timeout(30):  # Redis has forgotten everything
        passed = 0
        while not own_redis.keys():
            passed = sum([await ask(one) == 0 for one in limiters])
            await asyncio.sleep(0.05)
    assert passed


# replicas


def build(**options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool
    def buy() -> str:
        return "bought"

    @server.tool
    async def ask(ctx: Context) -> int:
        answer = await ctx.elicit("How many?", int)
        return answer.data or 0

    return server


@asynccontextmanager
async def replicas(
    make_backend: MakeBackend, count: int, **rates: Any
) -> AsyncIterator[list[Site]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                hosted(build(rates=Rates(**rates), backend=make_backend()), keys=[KEY])
            )
            for _ in range(count)
        ]


async def stateless(site: Site) -> Any:
    return await site.ask("tools/call", {"name": "buy", "arguments": {}})


@pytest.mark.parametrize("concurrent", [False, True])
async def test_of_nine_calls_to_three_replicas_five_pass(
    make_backend: MakeBackend, concurrent: bool
) -> None:
    async with replicas(make_backend, 3, calls=Rate(5, per=HOUR)) as sites:
        calls: list[Awaitable[Any]] = [stateless(sites[number % 3]) for number in range(9)]
        answers = await asyncio.gather(*calls) if concurrent else [await one for one in calls]
    assert sorted(answer.status for answer in answers) == [200] * 5 + [429] * 4
    refused = next(answer for answer in answers if answer.status == 429)
    assert 1 <= int(refused.headers["retry-after"]) <= HOUR / 5
    error = await refused.error()
    assert error["code"] == Overloaded.code and "Too many tool calls" in error["message"]


async def test_of_nine_calls_in_sessions_at_three_replicas_five_pass(
    make_backend: MakeBackend,
) -> None:
    async with replicas(make_backend, 3, calls=Rate(5, per=HOUR)) as sites:
        sessions = [await site.greet() for site in sites]
        answers = [await sessions[number % 3].call("buy") for number in range(9)]
    assert [answer.status for answer in answers] == [200] * 5 + [429] * 4


async def test_new_sessions_count_at_all_replicas(make_backend: MakeBackend) -> None:
    async with replicas(make_backend, 3, openings=Rate(5, per=HOUR)) as sites:
        opening = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
        answers = [
            await sites[number % 3].post(request("initialize", opening)) for number in range(9)
        ]
    assert [answer.status for answer in answers] == [200] * 5 + [429] * 4
    assert all("mcp-session-id" in answer.headers for answer in answers[:5])
    assert not any("mcp-session-id" in answer.headers for answer in answers[5:])


async def test_new_sessions_over_websocket_count_at_all_replicas(
    make_backend: MakeBackend,
) -> None:
    apps = [
        build(rates=Rates(openings=Rate(3, per=HOUR)), backend=make_backend()).asgi(
            path="/mcp", websocket=True, keys=[KEY]
        )
        for _ in range(2)
    ]
    async with on_a_port(apps[0]) as first, on_a_port(apps[1]) as second:
        for address in (first, second, first):
            async with Client(f"ws://{address}/ws", revision="handshake") as client:
                assert (await client.call_tool("buy")).data == "bought"
        for address in (first, second):
            with pytest.raises(Overloaded, match="connection attempts"):
                async with Client(f"ws://{address}/ws", revision="handshake", timeout=2):
                    pass


async def test_a_refused_session_is_not_open_and_may_be_opened_later(
    make_backend: MakeBackend,
) -> None:
    from websockets.asyncio.client import connect

    server = build(rates=Rates(openings=Rate(1, per=1)), backend=make_backend())
    opening = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}

    async def ask(channel: Any, method: str, params: Any = None) -> Any:
        await channel.send(json.dumps(request(method, params)))
        return json.loads(await channel.recv())

    async with on_a_port(server.asgi(path="/mcp", websocket=True, keys=[KEY])) as address:
        async with connect(f"ws://{address}/ws") as first, connect(f"ws://{address}/ws") as second:
            answers = [await ask(channel, "initialize", opening) for channel in (first, second)]
            assert "result" in answers[0]
            assert answers[1]["error"]["code"] == Overloaded.code
            assert "error" in await ask(second, "tools/list")
            async with asyncio.timeout(30):
                while "error" in await ask(second, "initialize", opening):
                    await asyncio.sleep(0.1)
            assert "result" in await ask(second, "tools/list")


async def test_notifications_count_at_all_replicas(make_backend: MakeBackend) -> None:
    heard: list[str] = []

    async def hear(call: Call) -> None:
        heard.append(call.name)

    told = Method("notifications/x/told", "client", Params)
    apart = Extension(id="com.example/x", methods=[told], handlers={told.name: hear})
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            server = build(
                extensions=[apart], rates=Rates(others=Rate(3, per=HOUR)), backend=make_backend()
            )
            extensions = [Extension(id=apart.id, methods=[told])]
            client = Client(server, revision="stateless", extensions=extensions)
            clients.append(await stack.enter_async_context(client))
        for number in range(8):
            await clients[number % 2].notify(told.name)
        for client in clients:
            await client.call_tool("buy")
        async with asyncio.timeout(30):
            while len(heard) < 3:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    assert len(heard) == 3


@pytest.mark.parametrize("resume", ["live", "replay"])
async def test_a_call_that_is_answered_at_another_replica_counts_once(
    make_backend: MakeBackend, resume: str
) -> None:
    rates = Rates(calls=Rate(1, per=HOUR))
    capable = {"elicitation": {"form": {}}}
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(
                hosted(build(rates=rates, backend=make_backend(), resume=resume), keys=[KEY])
            )
            for _ in range(2)
        ]
        params = {"name": "ask", "arguments": {}}
        asked = (await (await first.ask("tools/call", params, capabilities=capable)).whole())[
            "result"
        ]
        [key] = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": 3}}}
        again = {**params, "requestState": asked["requestState"], "inputResponses": answers}
        done = await second.ask("tools/call", again, capabilities=capable)
        assert done.status == 200
        assert (await done.whole())["result"]["structuredContent"] == {"result": 3}
        for site in (first, second):
            assert (await site.ask("tools/call", again, capabilities=capable)).status == 429


async def test_plain_calls_go_on_while_redis_hangs(own_redis: RedisServer) -> None:
    server = build(rates=Rates(calls=Rate(200)), backend=Backend(own_redis.url, keys=[KEY]))
    async with hosted(server, keys=[KEY]) as site:
        assert (await stateless(site)).status == 200
        own_redis.pause()
        seconds = []
        for _ in range(20):
            started = time.monotonic()
            assert (await stateless(site)).status == 200
            seconds.append(time.monotonic() - started)
        own_redis.resume()
    seconds.sort()
    assert seconds[-1] < 1.5 and seconds[-2] < 0.5


async def test_refused_requests_are_audited(make_backend: MakeBackend) -> None:
    from dovetail import AuditRecord, audit

    records: list[AuditRecord] = []
    server = build(
        rates=Rates(calls=Rate(1, per=HOUR)),
        backend=make_backend(),
        middleware=[audit(records.append)],
    )
    async with hosted(server, keys=[KEY]) as site:
        statuses = [(await stateless(site)).status for _ in range(3)]
    assert statuses == [200, 429, 429]
    assert [record.outcome for record in records] == ["ok", "refused", "refused"]


async def test_callers_of_the_network_have_limits_without_configuration(
    own_redis: RedisServer,
) -> None:
    server = build(auth=Door(), backend=Backend(own_redis.url, keys=[KEY], limits=PATIENT))
    async with hosted(server, keys=[KEY]) as site:
        headers = {"Authorization": "ada"}
        params = {"name": "buy", "arguments": {}}
        for _ in range(3):
            assert (await site.ask("tools/call", params, headers=headers)).status == 200
        before = evals(own_redis)
        for _ in range(60):
            assert (await site.ask("tools/call", params, headers=headers)).status == 200
        beats = 2  # of the bus, every two seconds, on a slow machine
        assert evals(own_redis) - before <= 10 + beats
