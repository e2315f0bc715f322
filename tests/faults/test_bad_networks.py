"""A network that corrupts, delays, duplicates and cuts, between our client and our server, over
every transport of ours.

Many calls at once, each with a key of its own. The tool counts how often it ran for each key, and
the caller what came back. A key carries a check of itself, and so does an answer, since nothing but
TLS keeps bytes from being changed on their way: a key that was garbled is refused by the tool, an
answer that was garbled is known as such. All else is on us:

    nothing hangs    each call ends within its deadline, with an answer or an error of
                     `dovetail.errors`
    nothing twice    a tool runs once for a call, and not again unless its caller said `retry=True`:
                     only the network itself, by duplicating what the client sent, can make it run
                     more often
    nothing mixed    a call never gets the answer to another: only the network itself, by changing
                     the id of an answer, can mix them up
    nothing lasting  once the network is well, the server and the clients go on
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import pytest

from dovetail import Client, Context, DovetailError, Limits, Server, ToolError
from tests.behaviour.web import first_era_only, on_a_port
from tests.clock import awake_time
from tests.faults.proxy import Fault, Proxy, Way, proxied

T = TypeVar("T")
TRANSPORTS = {
    "http stateless": ("http://{}/mcp", "2026-07-28"),
    "http handshake": ("http://{}/mcp", "2025-11-25"),
    "sse pair": ("http://{}/sse", "2024-11-05"),
    "websocket stateless": ("ws://{}/ws", "2026-07-28"),
    "websocket handshake": ("ws://{}/ws", "2025-06-18"),
}
FAULTS: dict[str, dict[tuple[Way, Fault], float]] = {
    "corrupts": {("up", "corrupt"): 0.1, ("down", "corrupt"): 0.2},
    "cuts and delays": {
        ("up", "cut"): 0.05,
        ("down", "cut"): 0.05,
        ("up", "delay"): 0.3,
        ("down", "delay"): 0.3,
    },
    "duplicates answers": {("down", "duplicate"): 0.2},
    "duplicates requests": {("up", "duplicate"): 0.2},
}
CLIENTS, AT_ONCE, ROUNDS = 3, 6, 6
DEADLINE, SLACK = 0.8, 2.0
"""Seconds for one call, and how much later its end may be noticed on a busy machine."""
STEP = 0.1
"""Seconds of one step of `within`."""


def sealed(text: str) -> str:
    """A text with a check of itself."""
    return f"{text}|{crc32(text.encode()):08x}"


def opened(text: str) -> str | None:
    """The text, or None where it is not what it was."""
    found = text.rpartition("|")[0]
    return found if sealed(found) == text else None


class Counted(NamedTuple):
    """What was seen on both sides."""

    ran: Counter[str]
    """How often the tool ran, by key."""
    seen: Counter[str]
    """What the callers saw: `answered`, `garbled`, `mixed up`, or the name of an error."""

    @property
    def twice(self) -> int:
        return sum(times - 1 for times in self.ran.values())


def shop(counted: Counted) -> Server:
    server = Server("shop", limits=Limits(retry=0.05))

    @server.tool
    async def order(key: str, ctx: Context) -> str:
        """Do something that must not be done twice."""
        found = opened(key)
        if found is None:
            raise ToolError("the key is garbled")
        counted.ran[found] += 1
        await ctx.progress(1, 2)  # where somebody listens, the answer is a stream from here on
        await asyncio.sleep(0.002)
        return sealed(found)

    return server


async def within(seconds: float, running: Coroutine[Any, Any, T]) -> T:
    """Fail if this takes longer, pauses of the machine left out: no deadline can be noticed while
    the whole process stands still."""
    task, began = asyncio.create_task(running), awake_time()
    while awake_time() - began < seconds:
        if (await asyncio.wait([task], timeout=STEP))[0]:
            return task.result()
    task.cancel()
    raise AssertionError(f"It still runs after {seconds:g} s")


async def order(client: Client, key: str, counted: Counted, **options: Any) -> None:
    """One call, and what became of it. Every second one listens for progress."""
    if int(key[-1]) % 2:
        options["on_progress"] = lambda update: counted.seen.update(["progress"])
    try:
        call = client.call_tool("order", {"key": sealed(key)}, timeout=DEADLINE, **options)
        result = await within(DEADLINE + SLACK, call)
    except DovetailError as error:
        counted.seen[type(error).__name__] += 1
        return
    answer = opened(str(result.data))
    if answer is None:
        counted.seen["garbled"] += 1
    else:
        counted.seen["answered" if answer == key else "mixed up"] += 1


async def shopper(number: int, url: str, revision: str, counted: Counted, **options: Any) -> None:
    """A client that comes back whenever it cannot even open a conversation."""

    async def visit(turn: int) -> None:
        async with Client(url, revision=revision, timeout=DEADLINE) as client:
            keys = (f"{number}-{turn}-{each}" for each in range(AT_ONCE))
            await asyncio.gather(*(order(client, key, counted, **options) for key in keys))

    for turn in range(ROUNDS):
        try:
            await within(5 * DEADLINE + SLACK, visit(turn))
        except DovetailError as error:
            counted.seen[f"opening: {type(error).__name__}"] += 1


@asynccontextmanager
async def storm(
    transport: str, faults: dict[tuple[Way, Fault], float], **options: Any
) -> AsyncIterator[tuple[Counted, Proxy]]:
    """All clients call through a bad network; then it is well again, and one more call has to be
    answered."""
    counted = Counted(Counter(), Counter())
    address, revision = TRANSPORTS[transport]
    app = shop(counted).asgi("/mcp", sse=True, websocket=True)
    async with on_a_port(first_era_only(app) if transport == "sse pair" else app) as place:
        port = int(place.rpartition(":")[2])
        async with proxied(port, 7, faults) as (proxy, door):
            url = address.format(f"127.0.0.1:{door}")
            await asyncio.gather(
                *(shopper(each, url, revision, counted, **options) for each in range(CLIENTS))
            )
            proxy.faults.clear()
            async with Client(url, revision=revision) as client:
                assert (
                    opened((await client.call_tool("order", {"key": sealed("last")})).data)
                    == "last"
                )
            yield counted, proxy


def told(counted: Counted, proxy: Proxy) -> str:
    """What was injected and what was counted."""
    injected = {f"{fault} {way}": times for (way, fault), times in sorted(proxy.injected.items())}
    return (
        f"injected {injected}; ran {sum(counted.ran.values())}, twice {counted.twice}; "
        f"callers saw {dict(counted.seen)}"
    )


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_on_a_bad_network_nothing_hangs_and_nothing_is_done_twice_or_mixed_up(
    transport: str, faults: str
) -> None:
    async with storm(transport, FAULTS[faults]) as (counted, proxy):
        print(told(counted, proxy))
        assert sum(proxy.injected.values()) > 0
        assert counted.seen["answered"] > 0
        assert counted.twice <= proxy.injected["up", "duplicate"], told(counted, proxy)
        assert counted.seen["mixed up"] <= proxy.injected["down", "corrupt"], told(counted, proxy)
        assert counted.ran.total() >= counted.seen["answered"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_call_that_may_be_retried_runs_again_for_what_was_cut_and_for_nothing_else(
    transport: str,
) -> None:
    async with storm(transport, FAULTS["cuts and delays"], retry=True) as (counted, proxy):
        print(told(counted, proxy))
        cut = proxy.injected["up", "cut"] + proxy.injected["down", "cut"]
        assert counted.seen["answered"] > 0
        assert counted.twice <= cut * AT_ONCE, told(counted, proxy)
        assert not counted.seen["mixed up"]
