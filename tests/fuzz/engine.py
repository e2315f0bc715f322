"""Feeds inputs to a target and counts what becomes of them.

A target makes bytes and checks bytes. `check` gives True where the bytes meant something, False
where they were refused in one of the ways that are documented, and raises for everything else: an
exception that is not documented, or a property that does not hold. All that it does follows from
its input, so an input that was kept fails again (`--replay`).

Time is bounded for each input by a timer that counts the work of this process only, so that a
machine which is busy with other things makes nothing fail; it interrupts regular expressions too.
Memory is bounded for each run: once caches have filled, there are about as many objects at the end
as there were.
"""

import gc
import signal
import sys
import traceback
from collections.abc import Callable
from time import perf_counter
from types import FrameType
from typing import NamedTuple

from .mutator import Mutator

SECONDS = 2.0
"""Of work, for one input; they are some kilobytes long."""
WARM = 2000
"""Inputs after which caches count as full."""
GROWTH = 6_000
"""Blocks of memory that may be more at the end of a run: caches that are bounded, and were not full
yet."""
KEPT = 5
"""Crashes of one run that are kept; the rest is counted."""


class Target(NamedTuple):
    """One reader of the package."""

    name: str
    make: Callable[[Mutator], bytes]
    check: Callable[[bytes], bool]
    share: int = 60_000
    """Inputs of a full run; what takes longer gets fewer."""


class Crash(NamedTuple):
    """An input that was not read as it should be."""

    target: str
    input: bytes
    trace: str


class Tally(NamedTuple):
    """What became of the inputs of one run."""

    target: str
    inputs: int
    seconds: float
    rejected: int
    crashes: int
    kept: list[Crash]


class TooSlow(Exception):
    """An input took more than its time."""


class Grown(Exception):
    """Memory that was taken and not given back."""


def run(target: Target, seed: str, inputs: int) -> Tally:
    """Feed so many inputs to a target; the same ones for the same seed."""
    rng = Mutator(f"{seed} {target.name}")
    rejected, crashes, kept = 0, 0, list[Crash]()
    began, blocks = perf_counter(), 0
    with _Timer() as timer:
        for number in range(inputs):
            if number == WARM:
                blocks = _blocks()
            data = target.make(rng)
            try:
                timer.start()
                rejected += not target.check(data)
            except KeyboardInterrupt:
                raise
            except BaseException:  # also what Rust raises when it panics
                crashes += 1
                if len(kept) < KEPT:
                    kept.append(Crash(target.name, data, traceback.format_exc()))
    seconds = perf_counter() - began
    if blocks and not crashes and (grown := _blocks() - blocks) > GROWTH:
        crashes += 1
        kept.append(
            Crash(
                target.name,
                b"",
                f"{Grown.__name__}: {grown} blocks of memory after {inputs} inputs",
            )
        )
    return Tally(target.name, inputs, seconds, rejected, crashes, kept)


def once(target: Target, data: bytes) -> Crash | None:
    """The same for one input."""
    with _Timer() as timer:
        try:
            timer.start()
            target.check(data)
        except BaseException:
            return Crash(target.name, data, traceback.format_exc())
    return None


def _blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


class _Timer:
    """Raises TooSlow in whatever runs for too long; does nothing where there is no such timer
    (Windows)."""

    def __enter__(self) -> "_Timer":
        if hasattr(signal, "setitimer"):
            self._before = signal.signal(signal.SIGVTALRM, self._ring)
        return self

    def start(self) -> None:
        """Begin to count, from zero."""
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)

    def __exit__(self, *exc: object) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, self._before)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {SECONDS} s of work for one input")
