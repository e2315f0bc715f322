"""Tools with `isolate="process"`, which run in a process of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean, median
from time import perf_counter, sleep

from .figures import Figure
from .implementations import Implementation, Process, memory_of
from .stdio import MIB, Wire, opened as opened_on_stdio

SAMPLE_SECONDS = 0.1


@contextmanager
def opened(implementation: Implementation) -> Iterator[Wire]:
    """A server with an isolated tool, whose CPU time is that of all its processes."""
    with opened_on_stdio(implementation, variant="isolated") as wire:
        wire.cpu = wire.process.cpu_of_all
        yield wire


def wait_for_spares(process: Process) -> None:
    """Wait until the spare processes have started, so that no process uses the CPU."""
    before = None
    while before != (before := (process.cpu_of_all(), process.descendants())):
        sleep(SAMPLE_SECONDS)


def call(wire: Wire, seconds: float) -> Figure:
    """Return how long one call takes, in milliseconds."""
    took = []
    for _ in range(3 + int(5 * seconds)):
        wait_for_spares(wire.process)
        begun = perf_counter()
        wire.ask("tools/call", {"name": "add", "arguments": {"a": 40, "b": 2}})
        took.append(perf_counter() - begun)
    return Figure(1000 * median(took))


def spare_memory(wire: Wire, seconds: float) -> Figure:
    """Return the memory of a spare process, in MiB."""
    wait_for_spares(wire.process)
    return Figure(mean(memory_of(pid) for pid in wire.process.descendants()) / MIB)
