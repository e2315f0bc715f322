"""What a measurement gives, and how several become one."""

from collections.abc import Callable
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, process_time
from typing import NamedTuple


class Figure(NamedTuple):
    """One figure; beside a rate, the processor time that one took (µs), and how long it took
    (ms)."""

    value: float
    cpu: float | None = None
    p50: float | None = None
    p99: float | None = None


Figures = dict[str, Figure]
"""Those of one row, by the names of the parties."""


def best(figures: list[Figure], more_is_better: bool) -> Figure:
    """The best of each, since whatever disturbs a measurement makes it worse."""
    value = (max if more_is_better else min)(figure.value for figure in figures)
    least = [
        [one for one in (figure[at] for figure in figures) if one is not None] for at in (1, 2, 3)
    ]
    return Figure(value, *(min(one) if one else None for one in least))


def rate(work: Callable[[], int], cpu: Callable[[], float | None] = process_time) -> Figure:
    """What `work` gets done in a second, and the processor time (µs) that one takes."""
    before, begun = cpu(), perf_counter()
    count = work()
    took, after = perf_counter() - begun, cpu()
    return Figure(
        count / took, None if before is None or after is None else (after - before) / count * 1e6
    )


def ended(work: Callable[[], object]) -> Figure:
    """Seconds until `work` is over, and the processor time (µs) of the processes that ended with
    it."""
    before, begun = getrusage(RUSAGE_CHILDREN), perf_counter()
    work()
    took, after = perf_counter() - begun, getrusage(RUSAGE_CHILDREN)
    return Figure(took, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e6)
