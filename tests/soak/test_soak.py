"""The soak itself: it sees what grows, and its deeds are done over every transport."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from dovetail import Client
from tests.soak.__main__ import web
from tests.soak.gauges import ALLOWED, Reading, grown
from tests.soak.server import build
from tests.soak.traffic import ANSWERS, COMMAND, DEEDS, transports, vanish

LEVEL = dict.fromkeys(ALLOWED, 100)


def rising(gauge: str, step: int, count: int = 12) -> list[Reading]:
    return [LEVEL | {gauge: 100 + step * n} for n in range(count)]


@pytest.mark.parametrize("gauge", ALLOWED)
def test_what_rises_with_every_round_has_grown(gauge: str) -> None:
    (said,) = grown(rising(gauge, ALLOWED[gauge]))
    assert said.startswith(f"{gauge} from ")


def test_what_rises_only_during_the_warm_up_or_once_at_the_end_has_not() -> None:
    warm = rising("files", 10, 4) + [LEVEL | {"files": 130}] * 12
    assert grown(warm) == []
    assert grown([LEVEL] * 11 + [LEVEL | {"files": 1000}]) == []


async def test_every_deed_is_done_over_every_transport() -> None:
    dice = random.Random(1)
    async with web() as port, AsyncExitStack() as stack:
        lasting = await stack.enter_async_context(Client(COMMAND, **ANSWERS))
        opened = [open() for open in transports(build(), port, lasting).values()]
        clients = [await stack.enter_async_context(one) for one in opened]
        await asyncio.gather(*(deed(client, dice) for client in clients for deed in DEEDS))


async def test_who_vanishes_does_no_harm() -> None:
    dice = random.Random(1)
    async with web() as port:
        await asyncio.gather(*(vanish(port, dice) for _ in range(10)))
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
