"""Nobody asks more often than the server's rates allow, on any transport, and whoever tries hears
how long to wait."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import pytest
from hypothesis import given, strategies as st

from dovetail import Client, Context, HttpRequest, Rate, Rates, Server, audit
from dovetail.auth import Provider
from dovetail.errors import ConfigError, Overloaded, TimedOut
from dovetail.net import network_of
from dovetail.ports import Call, Caller, Principal
from dovetail.protocol.methods import METHODS, Method
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import OFFICIAL
from dovetail.server.rates import NETWORK, RateLimiter
from dovetail.testing import pair
from tests.behaviour.web import on_a_port
from tests.server.guarded import SLOW, TRANSPORTS, Door, build, over, placed
from tests.transports.http.raw import Site, Stage, logged, modern, on_port

TWO = Rate(1, per=10, burst=2)
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
each_era = pytest.mark.parametrize("revision", ["stateless", "handshake"])


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def caller(address: str | None = None, user: str | None = None) -> Caller:
    made = Caller(OFFICIAL[-1])
    made.address = address
    made.principal = None if user is None else Principal(user)
    return made


SOMEBODY = caller("203.0.113.1")


def ask(
    limiter: RateLimiter,
    method: str | Method = "tools/call",
    who: Caller = SOMEBODY,
    tool: str = "add",
) -> float:
    """The seconds to wait; 0 where it was let in."""
    row = METHODS[method] if isinstance(method, str) else method
    try:
        limiter.admit(row, CallToolParams(name=tool) if row.name == "tools/call" else None, who)
    except Overloaded as refusal:
        assert refusal.retry_after is not None
        return refusal.retry_after
    return 0.0


# buckets


def test_a_burst_passes_and_then_one_at_a_time() -> None:
    clock = Clock()
    limiter = RateLimiter(Rates(calls=TWO), clock)
    assert [ask(limiter) for _ in range(3)] == [0, 0, 10]
    clock.now += 9
    assert ask(limiter) == 1
    clock.now += 1
    assert [ask(limiter), ask(limiter)] == [0, 10]


def test_after_the_time_that_a_refusal_names_the_next_is_let_in() -> None:
    clock = Clock()
    limiter = RateLimiter(Rates(calls=Rate(3, per=7)), clock)
    for _ in range(3):
        ask(limiter)
    for _ in range(50):
        wait = ask(limiter)
        assert 2.3 < wait < 2.4
        clock.now += wait
        assert ask(limiter) == 0


def test_a_bucket_is_never_fuller_than_full() -> None:
    clock = Clock()
    limiter = RateLimiter(Rates(calls=TWO), clock)
    clock.now += 1e6
    assert [ask(limiter) for _ in range(3)] == [0, 0, 10]


@given(
    st.floats(0.01, 1000), st.integers(1, 20), st.lists(st.floats(0, 5), min_size=1, max_size=60)
)  # no more than a burst and what grew meanwhile, whenever they come
def test_no_pattern_of_requests_gets_more_through(
    count: float, burst: int, pauses: list[float]
) -> None:
    clock = Clock()
    limiter = RateLimiter(Rates(calls=Rate(count, burst=burst)), clock)
    admitted: list[float] = []
    for pause in pauses:
        clock.now += pause
        if ask(limiter) == 0:
            admitted.append(clock.now)
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            assert last - first + 1 <= burst + (admitted[last] - admitted[first]) * count + 0.01


def test_a_tool_has_a_bucket_of_its_own_and_counts_among_all_calls() -> None:
    limiter = RateLimiter(
        Rates(calls=Rate(1, per=10, burst=3), tools={"pay": Rate(1, per=60)}), Clock()
    )
    assert [ask(limiter, tool="pay"), ask(limiter, tool="pay")] == [0, 60]
    assert [ask(limiter) for _ in range(3)] == [0, 0, 10]
    assert ask(limiter, tool="pay") == 10


def test_what_is_refused_takes_a_token_from_no_bucket() -> None:
    limiter = RateLimiter(Rates(calls=TWO, tools={"pay": Rate(1, per=60)}), Clock())
    assert [ask(limiter, tool="pay") for _ in range(5)] == [0, 60, 60, 60, 60]
    assert ask(limiter) == 0


def test_each_kind_of_request_is_counted_apart() -> None:
    one = Rate(1, per=10)
    limiter = RateLimiter(
        Rates(calls=one, completions=one, tasks=one, openings=one, others=one), Clock()
    )
    tasks = [
        Method(name, "client", METHODS["ping"].params) for name in ("tasks/get", "tasks/result")
    ]
    kinds: list[list[Any]] = [
        ["tools/call"],
        ["completion/complete"],
        tasks,
        ["initialize", "server/discover"],
        ["tools/list", "resources/read", "prompts/get", "subscriptions/listen"],
    ]
    for kind in kinds:
        assert [ask(limiter, method) for method in kind * 2][: len(kind) + 1] == [0] + [10] * len(
            kind
        )


def test_what_has_no_rate_is_not_limited() -> None:
    limiter = RateLimiter(Rates(calls=None, tools={"pay": TWO, "add": None}), Clock())
    assert [ask(limiter) for _ in range(5000)] == [0] * 5000
    assert [ask(limiter, tool="pay") for _ in range(3)] == [0, 0, 10]
    assert [ask(limiter, tool="other") for _ in range(5000)] == [0] * 5000


def test_an_error_names_what_was_too_much_and_how_long_to_wait() -> None:
    limiter = RateLimiter(Rates(calls=None, tools={"pay": Rate(2, per=60)}), Clock())
    for _ in range(2):
        ask(limiter, tool="pay")
    with pytest.raises(Overloaded) as refusal:
        limiter.admit(METHODS["tools/call"], CallToolParams(name="pay"), SOMEBODY)
    assert (
        refusal.value.message
        == "Too many calls to the tool 'pay': the limit is 2 per 60 s. Try again in 30 s"
    )
    assert refusal.value.data == {"retryAfter": 30.0}


# whose they are


def test_each_principal_has_its_own_wherever_it_calls_from() -> None:
    limiter = RateLimiter(Rates(calls=Rate(1, per=10)), Clock())
    assert ask(limiter, who=caller("203.0.113.1", "ada")) == 0
    assert ask(limiter, who=caller("198.51.100.7", "ada")) == 10
    assert ask(limiter, who=caller("203.0.113.1", "bo")) == 0
    assert ask(limiter, who=caller("203.0.113.1")) == 0
    assert ask(limiter, who=caller(None, "203.0.113.1")) == 0, (
        "who calls themselves an address has a bucket of their own"
    )


def test_addresses_of_one_ipv6_network_are_one_caller() -> None:
    limiter = RateLimiter(Rates(calls=Rate(1, per=10)), Clock())
    assert ask(limiter, who=caller("2001:db8:1:2::1")) == 0
    assert ask(limiter, who=caller("2001:db8:1:2:ffff::9")) == 10
    assert ask(limiter, who=caller("2001:db8:1:3::1")) == 0
    assert ask(limiter, who=caller("10.1.2.3")) == 0
    assert ask(limiter, who=caller("::ffff:10.1.2.3")) == 10


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_this_machine(address: str) -> None:
    assert network_of(address) == ""


def test_by_default_only_those_who_call_over_a_network_are_limited() -> None:
    limiter = RateLimiter(NETWORK, Clock())

    def admitted(who: Caller) -> int:
        return sum(ask(limiter, who=who) == 0 for _ in range(3000))

    assert admitted(caller()) == admitted(caller("127.0.0.1")) == admitted(caller("::1")) == 3000
    assert (
        admitted(caller("203.0.113.1"))
        == admitted(caller("127.0.0.1", "ada"))
        == admitted(caller(None, "bo"))
        == 1000
    )


def test_rates_that_are_given_hold_for_everybody() -> None:
    limiter = RateLimiter(Rates(calls=TWO), Clock())
    assert [ask(limiter, who=who) for who in (caller(), caller("127.0.0.1"), caller("::1"))] == [
        0,
        0,
        10,
    ]


def test_of_too_many_callers_those_are_forgotten_that_were_idle_longest() -> None:
    limiter = RateLimiter(Rates(calls=Rate(1, per=1e6), callers=100), Clock())
    regular = caller("203.0.113.1")
    assert ask(limiter, who=regular) == 0
    for number in range(10_000):
        assert ask(limiter, who=caller(f"10.0.{number // 256}.{number % 256}")) == 0
        assert ask(limiter, who=regular) > 0
        assert len(limiter._buckets) <= 100
    assert ask(limiter, who=caller("10.0.0.0")) == 0


def test_threads_together_get_no_more_than_one_would() -> None:
    class Slow(dict[str, float]):
        """Lets another thread go on in the middle of a check, as may always happen."""

        def get(self, name: str, default: Any = None) -> Any:
            found = super().get(name, default)
            time.sleep(0.001)
            return found

    limiter = RateLimiter(Rates(calls=Rate(1, per=1e6, burst=5)), Clock())
    ask(limiter)
    buckets = limiter._buckets.get("203.0.113.1")
    assert buckets is not None
    buckets.full_at = Slow(buckets.full_at)
    with ThreadPoolExecutor(4) as pool:
        waits = list(pool.map(lambda _: ask(limiter), range(20)))
    assert waits.count(0) == 4


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"count": -1}, {"count": 1, "per": 0}, {"count": 1, "burst": 0.5}]
)
def test_a_rate_that_lets_nothing_through_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="burst must be at least 1"):
        Rate(**wrong)


@pytest.mark.parametrize("wrong", [{"calls": 10}, {"tools": {"pay": 10}}, {"logs": "many"}])
def test_what_is_no_rate_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"(calls|pay|logs) must be a Rate such as Rate\(10\)"):
        Rates(**wrong)


def test_a_refusal_that_names_nonsense_names_no_time() -> None:
    for nonsense in (
        None,
        {},
        [],
        {"retryAfter": "soon"},
        {"retryAfter": -1},
        {"retryAfter": float("inf")},
    ):
        assert Overloaded("x", data=nonsense).retry_after is None


# log messages


async def test_log_messages_that_are_too_many_are_dropped_and_counted() -> None:
    clock, heard = Clock(), []
    server = build()
    server.limiter = RateLimiter(Rates(logs=Rate(1, burst=5)), clock)
    async with pair(
        server, on_log=lambda entry: heard.append((entry.logger, entry.data))
    ) as client:
        await client.call_tool("chatter", {"lines": 50})
        assert heard == [(None, number) for number in range(5)]
        clock.now += 1
        await client.call_tool("chatter", {"lines": 1})
        assert heard[5:] == [
            ("dovetail", "45 log messages were dropped: the rate limit was exceeded"),
            (None, 0),
        ]
        clock.now += 100
        await client.call_tool("chatter", {"lines": 1})
        assert heard[7:] == [(None, 0)]


async def test_log_messages_from_worker_threads_are_counted_too() -> None:
    heard: list[Any] = []
    server = Server("logs", rates=Rates(logs=Rate(0.001, burst=5)))

    @server.tool
    def chatter(ctx: Context) -> None:
        for number in range(100):
            ctx.info(number)

    async with pair(server, on_log=heard.append) as client:
        await client.call_tool("chatter")
    assert [entry.data for entry in heard] == [0, 1, 2, 3, 4]


async def test_of_one_session_the_log_messages_of_each_call_count_for_the_place_that_it_came_from() -> (  # noqa: E501
    None
):
    stage = Stage(rates=Rates(logs=Rate(0.001, burst=1)))
    async with on_port(placed(stage.server.asgi("/mcp")), lifespan="on") as site:
        session = await site.greet()
        waiting = asyncio.create_task(
            session.call("talk", 1, {"X-From": "192.0.2.1"}, before=0, after=2)
        )
        await stage.started.wait()
        said = await (await session.call("chat", 2, {"X-From": "198.51.100.1"}, count=2)).messages()
        assert logged(said) == ["line 0"]
        stage.release.set()
        assert logged(await (await waiting).messages()) == ["after 0"]


# every transport


@each_transport
@each_era
async def test_a_tool_that_is_called_too_often_is_refused_and_the_others_are_not(
    transport: str, revision: str
) -> None:
    limits = {"tools": {"add": SLOW}}
    async with over(transport, revision, limits, timeout=20) as client:
        for _ in range(2):
            assert (await client.call_tool("add", {"a": 1})).data == 2
        with pytest.raises(Overloaded, match="calls to the tool 'add'") as refusal:
            await client.call_tool("add", {"a": 1})
        assert refusal.value.retry_after == pytest.approx(1000, abs=5)
        assert (await client.call_tool("chatter", {"lines": 0})).data == "done"


@each_transport
@each_era
async def test_log_messages_are_limited(transport: str, revision: str) -> None:
    heard: list[Any] = []
    async with over(transport, revision, {"logs": SLOW}, on_log=heard.append) as client:
        await client.call_tool("chatter", {"lines": 20})
        await client.call_tool("chatter", {"lines": 20})
    assert [entry.data for entry in heard] == [0, 1]


@pytest.mark.parametrize("transport", [name for name in TRANSPORTS if name != "http"])
@each_era
async def test_a_client_that_opens_too_often_hears_so(transport: str, revision: str) -> None:
    if transport == "websocket":
        async with on_a_port(
            build({"openings": SLOW}).asgi(path="/mcp", websocket=True)
        ) as address:
            for _ in range(2):
                async with Client(f"ws://{address}/ws", revision=revision):
                    pass
            with pytest.raises(Overloaded, match="connection attempts"):
                async with Client(f"ws://{address}/ws", revision=revision):
                    pass
        return
    with pytest.raises(Overloaded, match="connection attempts"):
        async with over(transport, "stateless", {"openings": SLOW}) as client:
            for _ in range(3):
                await client.ping()


async def test_a_server_that_refuses_a_probe_for_now_is_not_taken_for_one_of_another_era() -> None:
    class Busy(Server):
        def admit(self, method: Method, params: Any, caller: Caller) -> None:
            if method.name == "server/discover":
                raise Overloaded("Too many")

    with pytest.raises(Overloaded):
        async with Client(Busy("busy")):
            pass


# HTTP

HEAD = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def greeting() -> dict[str, Any]:
    info = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


async def test_over_http_the_status_is_429_and_a_header_says_when_to_come_back() -> None:
    server = build({"openings": {"count": 1, "per": 90.5}})
    body = json.dumps(greeting()).encode()
    request = HttpRequest(
        headers={name.lower(): value for name, value in HEAD.items()} | {"host": "localhost"},
        body=body,
    )
    assert (await server.handle(request)).status == 200
    refusal = await server.handle(request)
    assert (refusal.status, refusal.headers["retry-after"]) == (429, "91")
    error = json.loads(refusal.body)["error"]
    assert error["code"] == Overloaded.code
    assert 90 < error["data"]["retryAfter"] <= 90.5


async def test_a_server_that_is_busy_answers_503_as_before() -> None:
    from dovetail.transports.http.server.message_checks import rejection_for

    busy = rejection_for(Overloaded("10 requests are being answered"), True)
    assert (busy.status, busy.headers) == (503, ((b"retry-after", b"1"),))


@each_transport
@each_era
async def test_a_client_waits_as_long_as_it_is_told_on_every_transport(
    transport: str, revision: str
) -> None:
    async with over(transport, revision, {"tools": {"add": {"count": 1, "burst": 1}}}) as client:
        assert (await client.call_tool("add", {"a": 1})).data == 2
        start = time.monotonic()
        assert (await client.call_tool("add", {"a": 2})).data == 3
        assert 0.5 < time.monotonic() - start < 60


@each_era
async def test_a_client_that_opens_a_little_too_often_waits(revision: str) -> None:
    server = build({"openings": {"count": 1, "burst": 1}})
    for _ in range(2):
        async with Client(server, revision=revision) as client:
            await client.list_tools()


@each_era
async def test_a_server_that_asks_to_wait_no_time_is_not_asked_without_a_pause(
    revision: str,
) -> None:
    asked = 0

    async def busy(call: Any, next: Any) -> Any:
        nonlocal asked
        if call.name != "tools/call":
            return await next(call)
        asked += 1
        raise Overloaded("busy", data={"retryAfter": 0})

    server = Server("busy", middleware=[busy], capabilities={"tools": True})
    async with pair(server, revision=revision) as client:
        with pytest.raises((Overloaded, TimedOut)):
            await client.call_tool("x", timeout=1)
    assert 2 <= asked <= 12


@each_transport
async def test_the_rounds_of_one_call_count_as_one(transport: str) -> None:
    rates = {"tools": {"ask": {"count": 1, "per": 1000, "burst": 2}}}
    async with over(
        transport, "stateless", rates, on_elicit=lambda request: {"value": 1}
    ) as client:
        for _ in range(2):
            assert (await client.call_tool("ask", {"times": 3})).data == 3
        with pytest.raises(Overloaded):
            await client.call_tool("ask", {"times": 3})


async def test_a_round_is_paid_for_once_and_by_its_own_caller() -> None:
    clock = Clock()
    limiter = RateLimiter(Rates(calls=TWO), clock)
    row = METHODS["tools/call"]
    call = Call(1, row, CallToolParams(name="add"), SOMEBODY, None, address=SOMEBODY.address)

    def answer(state: str, who: Caller = SOMEBODY) -> bool:
        try:
            limiter.admit(row, CallToolParams(name="add", request_state=state), who)
        except Overloaded:
            return False
        return True

    limiter.expect_round(call, "one")
    assert [ask(limiter), ask(limiter)] == [0, 0]
    assert not answer("forged")
    elsewhere = caller("203.0.113.9")
    assert [answer("one", elsewhere) for _ in range(3)] == [True, True, False], "it is counted"
    assert answer("one")
    assert not answer("one"), "a state that is sent again counts"


@each_transport
async def test_a_client_does_not_begin_to_wait_for_longer_than_its_deadline(transport: str) -> None:
    async with over(transport, "stateless", {"tools": {"add": SLOW}}) as client:
        for _ in range(2):
            await client.call_tool("add", {"a": 1})
        start = time.monotonic()
        with pytest.raises(Overloaded):
            await client.call_tool("add", {"a": 1}, timeout=20)
        assert time.monotonic() - start < 10


async def test_greetings_over_http_are_limited_before_a_session_is_made() -> None:
    async with (
        on_a_port(build({"openings": SLOW}).asgi(path="/mcp")) as address,
        aiohttp.ClientSession() as web,
    ):
        answers = []
        for _ in range(4):
            async with web.post(f"http://{address}/mcp", json=greeting(), headers=HEAD) as answer:
                answers.append((answer.status, "Mcp-Session-Id" in answer.headers))
    assert answers == [(200, True), (200, True), (429, False), (429, False)]


@pytest.mark.parametrize("transport", ["http", "websocket"])
@each_era
async def test_by_default_a_stranger_is_limited_and_this_machine_is_not(
    transport: str, revision: str
) -> None:
    server = build()
    served = server.asgi(path="/mcp", websocket=True)

    async def from_elsewhere(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket"):
            scope["client"] = ("203.0.113.9", 1234)
        await served(scope, receive, send)

    for app, seen in ((served, []), (from_elsewhere, ["203.0.113.9"])):
        async with on_a_port(app) as address:
            url = TRANSPORTS[transport]
            assert url is not None
            async with Client(url.format(address), revision=revision) as client:
                await client.call_tool("add", {"a": 1})
        assert server.limiter is not None
        assert list(server.limiter._buckets._items) == seen


@pytest.mark.parametrize("transport", ["http", "websocket"])
@each_era
async def test_who_proved_who_they_are_has_buckets_of_their_own(
    transport: str, revision: str
) -> None:
    server = build(auth=Door())
    url = TRANSPORTS[transport]
    assert url is not None
    async with on_a_port(server.asgi(path="/mcp", websocket=True)) as address:
        for name in ("ada", "bo", "ada"):
            async with Client(
                url.format(address), revision=revision, headers={"Authorization": name}
            ) as client:
                await client.call_tool("add", {"a": 1})
    assert server.limiter is not None
    assert list(server.limiter._buckets._items) == [("principal", "bo"), ("principal", "ada")]


async def test_rates_can_be_switched_off() -> None:
    assert Server("free", rates=None).limiter is None


# behind a proxy


@asynccontextmanager
async def behind_proxies(
    server: Server, transport: Literal["http", "websocket"], proxies: str | list[str]
) -> AsyncIterator[str]:
    """A server as `run` serves it: uvicorn itself reads no headers of proxies."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        server.run_async(transport, port=0, ready=ready.set_result, trusted_proxies=proxies)
    )
    try:
        yield await ready
    finally:
        serving.cancel()
        await asyncio.wait([serving])


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"], ids=["fast path", "ASGI"])
@pytest.mark.parametrize("trusted", [True, False])
async def test_behind_a_trusted_proxy_each_client_has_its_own_limit(
    trusted: bool, path: str
) -> None:
    records: list[Any] = []
    rates = Rates(calls=Rate(1, burst=2, per=3600), local=True)
    stage = Stage(rates=rates, middleware=[audit(records.append)])
    proxies = ["127.0.0.1"] if trusted else ["10.0.0.5"]
    async with behind_proxies(stage.server, "http", proxies) as url:
        site = Site(urlsplit(url).port or 0, path)

        async def call(headers: dict[str, str]) -> int:
            message, usual = modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            return (await site.post(message, {**usual, **headers})).status

        one = [await call({"X-Forwarded-For": f"{n}.6.6.6, 203.0.113.1"}) for n in range(3)]
        two = [await call({"Forwarded": "for=203.0.113.2"}) for _ in range(3)]
        for writer in site.open:
            writer.close()
    assert one == [200, 200, 429]
    assert two == ([200, 200, 429] if trusted else [429, 429, 429])
    addresses = {record.address for record in records}
    assert addresses == ({"203.0.113.1", "203.0.113.2"} if trusted else {"127.0.0.1"})


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_handler_sees_the_address_from_the_trusted_proxy_on_every_transport(
    transport: Literal["http", "websocket"],
) -> None:
    records: list[Any] = []
    server = Server("behind", middleware=[audit(records.append)])

    @server.tool
    async def any_tool() -> None: ...

    async with behind_proxies(server, transport, "127.0.0.0/8") as url:
        async with Client(url, headers={"X-Forwarded-For": "203.0.113.1"}) as client:
            await client.call_tool("any_tool")
    assert {record.address for record in records} == {"203.0.113.1"}


async def test_the_provider_limits_each_client_behind_a_trusted_proxy() -> None:
    metadata = {"client_name": "Notes", "redirect_uris": ["http://127.0.0.1:3999/callback"]}
    provider = Provider(users={}, storage=":memory:", now=lambda: 1_800_000_000.0)
    async with behind_proxies(Server("login", auth=provider), "http", "127.0.0.1") as url:
        site = Site(urlsplit(url).port or 0, "/register")

        async def register(forwarded_for: str) -> int:
            return (await site.post(metadata, {"X-Forwarded-For": forwarded_for})).status

        statuses = [await register("203.0.113.1") for _ in range(101)]
        assert statuses == [201] * 100 + [429]
        assert await register("198.51.100.1, 203.0.113.1") == 429, "a client may add any address"
        assert await register("203.0.113.2") == 201
        for writer in site.open:
            writer.close()


def test_a_proxy_that_is_not_an_address_is_refused_before_the_server_starts() -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        Server("behind").run("http", port=0, workers=2, trusted_proxies=["proxy.example"])
