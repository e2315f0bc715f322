"""Load: many runs of a saved call, several at a time."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dovetail import Server
from dovetail.errors import DovetailError
from dovetail.inspector.load import BARS, make_histogram, summarise
from dovetail.inspector.refusal import Refused

from .inspecting import SECONDS, Inspecting, inspecting

server = Server("busy")
running = most = 0


@server.tool
async def work() -> str:
    """Count how many calls run at a time."""
    global running, most
    running += 1
    most = max(most, running)
    await asyncio.sleep(0)
    running -= 1
    return "done"


@server.tool
def fail() -> str:
    """Fail."""
    raise ValueError("no")


@server.tool
async def wait() -> str:
    """Wait for ever."""
    await asyncio.sleep(3600)
    return ""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def ended(one: Inspecting) -> dict[str, Any]:
    """Wait until the runs have ended."""
    async with asyncio.timeout(SECONDS):
        while True:
            last = one.state.events.last
            for event in one.events("load"):
                if event["status"] != "running":
                    return event
            await one.state.events.wait_after(last, SECONDS)


def test_quantiles_are_times_that_were_measured() -> None:
    times = [float(number) for number in range(1, 101)]
    assert summarise(times) == {"min": 1.0, "p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
    assert summarise([7.0]) == dict.fromkeys(("min", "p50", "p95", "p99", "max"), 7.0)
    assert summarise([]) == {} and make_histogram([]) == []


@pytest.mark.parametrize(
    "times", [[5.0], [5.0] * 10, [1.0, 2.0, 3.0], [*map(float, range(1000)), 1e6]]
)
def test_every_time_is_in_one_bar_of_the_histogram(times: list[float]) -> None:
    bars = make_histogram(times)
    assert sum(bar.count for bar in bars) == len(times) and len(bars) <= BARS
    assert bars[0].from_ms == times[0]
    assert all(one.to_ms == other.from_ms for one, other in pairwise(bars))


async def test_a_call_is_run_many_times_and_several_at_a_time() -> None:
    global most
    most = 0
    async with inspecting(server) as one:
        await one.do("save", name="works", tool="work")
        calls = len(one.state.calls.records)
        await one.do("load", name="works", runs=300, at_once=5)
        event = await ended(one)
        assert (event["status"], event["done"], event["runs"]) == ("done", 300, 300)
        assert sum(bar["count"] for bar in event["histogram"]) == 300 and "errors" not in event
        assert event["times"]["min"] <= event["times"]["p50"] <= event["times"]["max"]
        assert 1 < most <= 5
        assert len(one.state.calls.records) == calls, "the other calls stay"
        sent = [one for one in one.events("wire") if one.get("method") == "tools/call"]
        assert len(sent) == 300


async def test_errors_are_counted_by_what_went_wrong() -> None:
    async with inspecting(server) as one:
        await one.do("save", name="fails", tool="fail")
        await one.do("load", name="fails", runs=20)
        event = await ended(one)
        [(text, count)] = event["errors"].items()
        assert count == 20 and "The tool failed" in text
        assert event["done"] == 20 and "times" not in event


async def test_runs_can_be_stopped_and_end_with_the_connection() -> None:
    async with inspecting(server) as one:
        await one.do("save", name="waits", tool="wait")
        await one.do("load", name="waits", runs=20, at_once=2)
        await one.until("load", status="running")
        with pytest.raises(Refused, match="Saved calls are running"):
            await one.do("load", name="waits")
        await one.do("stop_run")
        event = await ended(one)
        assert (event["status"], event["done"]) == ("stopped", 0)


async def test_runs_end_when_the_connection_is_closed() -> None:
    async with inspecting(server) as one:
        await one.do("save", name="waits", tool="wait")
        await one.do("load", name="waits", runs=20, at_once=2)
        await one.until("load", status="running")
        await one.do("close")
        event = await ended(one)
        assert event["status"] == "failed" and event["why"]


@pytest.mark.parametrize(
    "fields", [{"runs": 0}, {"runs": 10_001}, {"at_once": 0}, {"at_once": 65}, {"name": "x"}]
)
async def test_the_number_of_runs_is_bounded(fields: dict[str, Any]) -> None:
    async with inspecting(server) as one:
        await one.do("save", name="works", tool="work")
        with pytest.raises(DovetailError):
            await one.do("load", **{"name": "works", **fields})
        assert not one.events("load")
