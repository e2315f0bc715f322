"""The figures of a measurement, and how the figures of several rounds become one."""

from collections.abc import Callable
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, process_time
from typing import NamedTuple


class Figure(NamedTuple):
    """One figure; for a rate, also the CPU time (µs) and the latencies (ms) of one request."""

    value: float
    cpu: float | None = None
    p50: float | None = None
    p99: float | None = None


Figures = dict[str, Figure]
"""The figures of one row, by the name of the implementation."""


def best(figures: list[Figure], more_is_better: bool) -> Figure:
    """Return the best of each, because disturbances can only make a measurement worse."""
    value = (max if more_is_better else min)(figure.value for figure in figures)
    least = [
        [one for one in (figure[at] for figure in figures) if one is not None] for at in (1, 2, 3)
    ]
    return Figure(value, *(min(one) if one else None for one in least))


def rate(work: Callable[[], int], cpu: Callable[[], float | None] = process_time) -> Figure:
    """Return how much `work` does per second, and the CPU time (µs) of one unit."""
    before, begun = cpu(), perf_counter()
    count = work()
    took, after = perf_counter() - begun, cpu()
    return Figure(
        count / took, None if before is None or after is None else (after - before) / count * 1e6
    )


def ended(work: Callable[[], object]) -> Figure:
    """Return how long `work` takes, in seconds, and the CPU time (µs) of the processes that ended
    meanwhile."""
    before, begun = getrusage(RUSAGE_CHILDREN), perf_counter()
    work()
    took, after = perf_counter() - begun, getrusage(RUSAGE_CHILDREN)
    return Figure(took, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e6)
