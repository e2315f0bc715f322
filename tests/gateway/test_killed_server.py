"""A server is killed during 1,000 calls that are in flight at the same time at three servers."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dovetail import Client, ProtocolError
from dovetail.gateway.gateway import Gateway
from tests.gateway.stage import OPTIONS, Stage, Upstream

CALLS = range(1000)
AFTERWARDS = 1002
"""The number of the calls that find out whether the server is back."""
SERVERS = ("up", "one", "two")
KINDS = [
    Upstream(transport, revision)
    for transport in ("stdio", "http")
    for revision in ("2025-11-25", "2026-07-28")
]


class Calls:
    """Calls to three servers through one gateway, each with a number of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.seconds: dict[int, float] = {}
        """How long each call took."""

    async def call(self, number: int, first_tool: str = "add") -> str:
        """Call the server whose turn it is. The first one has a tool of its own."""
        server = SERVERS[number % 3]
        tool = first_tool if server == "up" else "add"
        arguments = {"a": number, "b": 0} if tool == "add" else {"number": number}
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return (await self._client.call_tool(f"{server}__{tool}", arguments)).text
        except ProtocolError as error:
            return error.message
        finally:
            self.seconds[number] = loop.time() - began


@asynccontextmanager
async def three_servers(kind: Upstream, folder: Path) -> AsyncIterator[tuple[Any, Client]]:
    stages = {name: Stage(kind, folder / name) for name in SERVERS}
    try:
        shared = {"dovetail": {"stateful": False}}  # all calls use one connection
        entries = {name: {**stage.entry(), **shared} for name, stage in stages.items()}
        gateway = Gateway({"mcpServers": entries}, **OPTIONS)
        async with asyncio.timeout(90), Client(gateway) as client:
            yield stages, client
    finally:
        for stage in stages.values():
            stage.end_program()


def numbers_received(stage: Stage) -> Counter[int]:
    """How often each numbered call arrived at a server."""
    calls = [one["params"]["arguments"] for one in stage.records.messages("tools/call")]
    return Counter(one.get("number", one.get("a")) for one in calls)


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
async def test_killing_one_of_three_servers_delays_no_other_and_repeats_no_call(
    kind: Upstream, tmp_path: Path
) -> None:
    async with three_servers(kind, tmp_path) as (stages, client):
        up, down = stages["up"], Path(f"{stages['up'].records.path}.down")
        undisturbed = Calls(client)
        results = await asyncio.gather(*(undisturbed.call(number) for number in CALLS))
        assert results == [str(number) for number in CALLS]

        for stage in stages.values():
            stage.records.start()
        down.touch()  # so that it stays away until this file is deleted
        disturbed = Calls(client)
        pending = [asyncio.ensure_future(disturbed.call(number, "hold")) for number in CALLS]
        at_up, at_others = pending[::3], [*pending[1::3], *pending[2::3]]
        await up.records.until(lambda _: len(numbers_received(up)) > 100)
        (pid,) = {one["pid"] for one in up.records._read()}
        os.kill(pid, signal.SIGKILL)
        Path(f"{up.records.path}.killed").touch()  # from now on, `hold` answers at once

        others = await asyncio.gather(*at_others)  # although the first server is still away
        assert others == [str(number) for number in [*CALLS[1::3], *CALLS[2::3]]]
        in_flight = numbers_received(up)
        up.end_program()
        down.unlink()
        if kind.transport == "http":
            up.start_program()
        for number, text in zip(CALLS[::3], await asyncio.gather(*at_up), strict=True):
            assert text.startswith("up: ") or (text == str(number) and number not in in_flight)
        while await disturbed.call(AFTERWARDS) != str(AFTERWARDS):  # it comes back by itself
            await asyncio.sleep(0.05)

        for name, stage in stages.items():
            counts = numbers_received(stage)
            del counts[AFTERWARDS]
            assert max(counts.values()) == 1, name
        assert len(numbers_received(stages["one"]) | numbers_received(stages["two"])) == 666
        assert typical(disturbed) < 10 * typical(undisturbed) + 2  # no test of speed


def typical(calls: Calls) -> float:
    """How long a call to one of the two other servers typically took."""
    return median(seconds for number, seconds in calls.seconds.items() if number % 3)
