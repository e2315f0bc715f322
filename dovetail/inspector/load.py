"""Load: many runs of one call, several at a time, and how long they took."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Final

from msgspec import Struct

from .. import Client
from ..errors import ConnectFailed, ConnectionClosed, DovetailError
from ..text import one_line
from .saved import SavedCall

MAX_RUNS: Final = 10_000
MAX_AT_ONCE: Final = 64
MAX_ERRORS: Final = 20
"""How many different errors are counted separately."""
REPORT_SECONDS: Final = 0.25
BARS: Final = 16
"""The number of bars of a histogram. The last one holds what is slower than 99 % of the runs."""


class HistogramBar(Struct, frozen=True):
    """How many runs took a time in this range."""

    from_ms: float
    to_ms: float
    count: int


class LoadReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a load run, or its result. Times are in milliseconds."""

    name: str
    status: str
    """`running`, `done`, `stopped`, or `failed` if the connection was closed."""
    runs: int
    at_once: int
    done: int
    """How many runs have ended, with an error or without."""
    per_second: float
    errors: dict[str, int] = {}
    """The number of runs that failed, by what went wrong. Their times do not count."""
    times: dict[str, float] = {}
    """`min`, `p50`, `p95`, `p99` and `max`."""
    histogram: list[HistogramBar] = []
    why: str | None = None
    """Why the connection was closed."""


class LoadRun:
    """Runs of one call.

    Args:
        client: The client that sends the calls.
        call: The call.
        runs: How many runs, at most 10,000.
        at_once: How many at a time, at most 64.
        report: Called with the state of the run, a few times a second and at the end.
    """

    def __init__(
        self,
        client: Client,
        call: SavedCall,
        runs: int,
        at_once: int,
        report: Callable[[LoadReport], object],
    ) -> None:
        self._client, self._call, self._report = client, call, report
        self._runs, self._at_once = runs, at_once
        self._left = iter(range(runs))
        self._times: list[float] = []
        self._errors: Counter[str] = Counter()
        self._began = self._ended = perf_counter()

    async def run(self) -> None:
        """Do all runs, unless the connection is closed or this is cancelled."""
        self._began = perf_counter()
        reporting = asyncio.ensure_future(self._report_often())
        status, why = "stopped", None
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._at_once, self._runs)):
                    group.create_task(self._work())
            status = "done"
        except* (ConnectionClosed, ConnectFailed) as problems:
            status, why = "failed", one_line(str(problems.exceptions[0]))
        finally:
            reporting.cancel()
            self._ended = perf_counter()
            self._report(self.describe(status, why))

    async def _work(self) -> None:
        for _ in self._left:
            began = perf_counter()
            try:
                result = await self._client.call_tool(
                    self._call.tool, self._call.arguments, raise_on_error=False
                )
            except (ConnectionClosed, ConnectFailed):
                raise
            except DovetailError as problem:
                self._count_error(one_line(f"{type(problem).__name__}: {problem}"))
                continue
            if result.is_error:
                self._count_error(one_line(f"The tool failed: {result.text}"))
            else:
                self._times.append((perf_counter() - began) * 1000)

    def _count_error(self, text: str) -> None:
        known = text in self._errors or len(self._errors) < MAX_ERRORS
        self._errors[text if known else "Other errors"] += 1

    async def _report_often(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._ended = perf_counter()
            self._report(self.describe("running"))

    def describe(self, status: str, why: str | None = None) -> LoadReport:
        """Return the state of the run.

        Args:
            status: What it is doing.
            why: Why it ended early.
        """
        times, done = sorted(self._times), len(self._times) + self._errors.total()
        return LoadReport(
            name=self._call.name,
            status=status,
            runs=self._runs,
            at_once=self._at_once,
            done=done,
            per_second=round(done / max(self._ended - self._began, 1e-6), 1),
            errors=dict(self._errors),
            times=summarise(times),
            histogram=make_histogram(times),
            why=why,
        )


def summarise(times: Sequence[float]) -> dict[str, float]:
    """Return the quantiles of some times; nothing if there are none.

    Args:
        times: The times, sorted.
    """
    if not times:
        return {}
    shares = {"min": 0.0, "p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(_quantile(times, share), 3) for name, share in shares.items()}


def make_histogram(times: Sequence[float]) -> list[HistogramBar]:
    """Return bars of equal width for 99 % of the times, and one bar for the slowest ones.

    Args:
        times: The times, sorted.
    """
    if not times:
        return []
    low, high, slowest = times[0], _quantile(times, 0.99), times[-1]
    width = (high - low) / (BARS - 1) or 0.001
    counts = Counter(min(int((time - low) / width), BARS - 2) for time in times if time <= high)
    edges = [round(low + index * width, 3) for index in range(BARS)]
    bars = [HistogramBar(*edge, counts[index]) for index, edge in enumerate(pairwise(edges))]
    slow = sum(time > high for time in times)
    return [*bars, HistogramBar(round(high, 3), round(slowest, 3), slow)] if slow else bars


def _quantile(times: Sequence[float], share: float) -> float:
    """Return the smallest time that at least this share of the times does not exceed."""
    return times[max(0, -int(-share * len(times) // 1) - 1)]
