"""Clocks that are put forward or back, by an hour or a day, while things are under way.

How long something lasted is nobody's business but a clock's that nobody sets: deadlines, idle
times, caches, rates. Until when something is good (a token, a session at all, a task that outlives
its process) is a matter of the calendar, which every process reads alike: such a thing may end
early by a jump, with an error that says so, but it never comes back from the dead, and never keeps
anybody waiting.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Cache, Client, Context, Limits, Rate, Rates, Server
from dovetail.auth import Bearer
from dovetail.auth.dpop import Checker, DpopSigner, ProofRefused
from dovetail.auth.provider import web
from dovetail.errors import InvalidParams, Overloaded
from dovetail.ports import HttpRequest, HttpResponse, Principal, PublicUrl
from dovetail.sealing import key_ring
from dovetail.testing import pair
from tests.transports.http.raw import Stage, hosted
from tests.transports.http.test_server_streams import greeted

HOUR, DAY = 3600.0, 86400.0
FORMS = ["2025-11-25", "2026-07-28"]
JUMPS = pytest.mark.parametrize(
    "jump", [-DAY, -HOUR, HOUR, DAY], ids=["a day back", "an hour back", "an hour on", "a day on"]
)
Jump = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Puts the clock on the wall forward, or back; the other one goes on as it does."""
    real, offset = time.time, [0.0]

    def put(seconds: float) -> None:
        offset[0] += seconds

    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    return put


# calls, questions, rates and caches


@JUMPS
@pytest.mark.parametrize("revision", ["handshake", "stateless"])
async def test_a_call_that_runs_is_answered_and_one_that_is_too_late_is_still_too_late(
    clock: Jump, jump: float, revision: str
) -> None:
    server = Server("clocks")

    @server.tool
    async def work(ctx: Context) -> str:
        clock(jump)
        await ctx.progress(1, 2)
        await asyncio.sleep(0.02)
        return "done"

    @server.tool
    async def forever() -> None:
        clock(jump)
        await asyncio.Event().wait()

    async with pair(server, revision=revision) as client:
        assert (await client.call_tool("work", timeout=5)).text == "done"
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await client.call_tool("forever", timeout=0.1)
        assert 0.05 < time.monotonic() - began < 60


class Size(Struct):
    size: str


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("jump", [-DAY, HOUR / 2])
async def test_a_question_is_answered_across_a_jump(clock: Jump, jump: float, replay: bool) -> None:
    server, asked = Server("clocks"), list[str]()

    @server.tool
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Size)
        return answer.data.size if answer.data else ""

    def answer(request: Any) -> dict[str, str]:
        asked.append(request.message)
        clock(jump)
        return {"size": "large"}

    async with pair(server, revision="stateless", replay=replay, on_elicit=answer) as client:
        assert (await client.call_tool("order")).text == "large"
    assert asked == ["Which size?"]


async def test_a_question_whose_answer_comes_too_late_by_the_calendar_is_refused_in_words(
    clock: Jump,
) -> None:
    server = Server("clocks", resume="replay")

    @server.tool
    async def order(ctx: Context) -> str:
        await ctx.elicit("Which size?", Size)
        return "ordered"

    def late(request: Any) -> dict[str, str]:
        clock(DAY)
        return {"size": "large"}

    async with pair(server, revision="stateless", on_elicit=late) as client:
        with pytest.raises(InvalidParams, match="requestState is not valid"):
            await client.call_tool("order", timeout=5)


@JUMPS
async def test_rates_are_neither_filled_nor_emptied_by_a_jump(clock: Jump, jump: float) -> None:
    # A client waits and tries again if it has the time, so the period exceeds its timeout.
    server = Server("clocks", rates=Rates(calls=Rate(1, per=600, burst=2)))

    @server.tool
    async def ping() -> None: ...

    async with pair(server, revision="2025-11-25") as client:
        for _ in range(10):
            try:
                await client.call_tool("ping")
            except Overloaded as refused:
                wait = refused.retry_after or 0
                break
        clock(jump)
        with pytest.raises(Overloaded) as again:
            await client.call_tool("ping")
        assert again.value.retry_after is not None and abs(again.value.retry_after - wait) < 5


def test_nobody_is_kept_out_of_a_provider_because_its_clock_was_put_back() -> None:
    now = [1e9]
    rates = web.AttemptLimiter(3, 10.0, lambda: now[0])
    for _ in range(3):
        rates.require("ada")
    with pytest.raises(web.OAuthError, match="too many"):
        rates.require("ada")
    now[0] -= DAY
    for _ in range(3):
        rates.require("ada")
    with pytest.raises(web.OAuthError, match="too many"):
        rates.require("ada")
    now[0] += 10.1
    rates.require("ada")


@JUMPS
async def test_what_a_client_keeps_is_as_old_as_it_is(clock: Jump, jump: float) -> None:
    server, read = Server("clocks", cache=Cache(60, "public")), list[str]()

    @server.resource("clocks://hall")
    async def hall() -> str:
        read.append("hall")
        return "noon"

    async with pair(server, revision="stateless") as client:
        for _ in range(2):
            await client.read_resource("clocks://hall")
            clock(jump)
    assert read == ["hall"]


# sessions


@pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["an hour back", "an hour on"])
async def test_a_session_goes_idle_by_the_time_that_passed_whatever_the_clock_says(
    clock: Jump, jump: float
) -> None:
    stage = Stage(limits=Limits(session_idle=2.0, session_life=2 * DAY))
    async with hosted(stage.server) as site:
        session = await greeted(site)
        clock(jump)
        await asyncio.sleep(0.6)  # in which idle sessions were looked for
        assert (await session.call("add", a=1, b=2)).status == 200
        await asyncio.sleep(3.0)
        assert (await session.call("add", a=1, b=2)).status == 404


async def test_a_session_that_was_ended_stays_so_when_the_clock_goes_on_and_back_again(
    clock: Jump,
) -> None:
    async with hosted(Stage(limits=Limits(session_idle=0.2)).server) as site:
        session = await greeted(site)
        await session.delete()
        clock(2 * DAY)
        await greeted(site)
        await asyncio.sleep(0.2)  # in which tombstones were swept
        clock(-2 * DAY)
        assert (await session.call("add", a=1, b=2)).status == 404


async def test_a_client_whose_session_has_expired_by_a_jump_opens_another_by_itself(
    clock: Jump,
) -> None:
    async with (
        hosted(Stage().server) as site,
        Client(f"http://127.0.0.1:{site.port}/mcp", revision="handshake") as client,
    ):
        for jump in (0, 2 * DAY, -4 * DAY, 4 * DAY):
            clock(jump)
            assert (await client.call_tool("add", {"a": 1, "b": 2}, timeout=5)).data == 3


# tokens


class Counting:
    """A verifier that counts how often it is asked."""

    def __init__(self, keeps: float, who: Principal) -> None:
        self.keeps, self.who, self.asked = keeps, who, 0

    async def __call__(self, token: str, site: PublicUrl) -> Principal:
        self.asked += 1
        return self.who


async def nowhere(request: HttpRequest) -> HttpResponse:
    raise AssertionError("nothing is fetched here")


RING = key_ring(["a key of sixteen characters"])
SITE = PublicUrl("https://mcp.example/mcp", "https://mcp.example", RING, nowhere)
ASKS = HttpRequest(headers={"authorization": "Bearer token"}, url=SITE.url)


async def test_a_token_that_was_revoked_is_not_kept_alive_by_a_clock_that_is_put_back(
    clock: Jump,
) -> None:
    verifier = Counting(0.05, Principal("ada"))
    guard = Bearer(verifier)
    await guard.admit(ASKS, SITE)
    clock(-DAY)
    await asyncio.sleep(0.06)
    await guard.admit(ASKS, SITE)
    assert verifier.asked == 2


async def test_a_token_that_has_expired_by_the_calendar_is_not_good_any_more_however_lately_it_was(
    clock: Jump,
) -> None:
    guard = Bearer(Counting(HOUR, Principal("ada", expires=time.time() + 60)))
    assert isinstance(await guard.admit(ASKS, SITE), Principal)
    clock(61)
    refused = await guard.admit(ASKS, SITE)
    assert isinstance(refused, HttpResponse) and refused.status == 401


@pytest.mark.parametrize("there", [DAY, 61, -30])
async def test_a_proof_is_not_taken_twice_because_the_clock_went_there_and_back(
    clock: Jump, there: float
) -> None:
    checker, prover = Checker(), DpopSigner()

    async def check(proof: str) -> str:
        return await checker.check(proof, "POST", SITE.url, ring=RING)

    proof = prover.proof("POST", SITE.url)
    await check(proof)
    clock(there)
    await check(prover.proof("POST", SITE.url))
    clock(-there)
    with pytest.raises(ProofRefused, match="already used"):
        await check(proof)


# tasks


@pytest.fixture(params=["memory", "file"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Server, asyncio.Event]:
    server, go = (
        Server("clocks", tasks=str(tmp_path / "tasks.db") if request.param == "file" else None),
        asyncio.Event(),
    )

    @server.tool(task="required")
    async def order() -> str:
        await go.wait()
        return "ordered"

    return server, go


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("jump", [-DAY, HOUR / 2], ids=["a day back", "half an hour on"])
async def test_a_task_ends_as_it_would_have_within_its_time(
    clock: Jump, jump: float, form: str, shop: tuple[Server, asyncio.Event]
) -> None:
    server, go = shop
    async with Client(server, revision=form, timeout=10) as client:
        handle = await client.start_tool("order")
        clock(jump)
        go.set()
        assert (await handle.result()).text == "ordered"


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_whose_time_is_over_by_the_calendar_is_gone_and_says_so(
    clock: Jump, form: str, shop: tuple[Server, asyncio.Event]
) -> None:
    server, go = shop
    async with Client(server, revision=form, timeout=10) as client:
        handle = await client.start_tool("order")
        clock(2 * DAY)
        go.set()
        with pytest.raises(InvalidParams, match="or the server has deleted it"):
            await handle.result()
        clock(-2 * DAY)
        other = await client.start_tool("order")
        assert (await other.result()).text == "ordered"
