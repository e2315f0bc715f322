"""What a row of the benchmark consists of, and the three kinds of goals that it can have."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

from .figures import Figure
from .implementations import ALL, Implementation

Fixture: TypeAlias = Callable[[Implementation], AbstractContextManager[Any]]
"""Starts what is measured, and stops it at the end."""
PER_SECOND = "/s"


class TimesBetter(NamedTuple):
    """To be this many times better than another implementation."""

    than: Implementation
    bound: float


class AtMost(NamedTuple):
    """Not to exceed a bound, in the unit of the row or in µs of CPU time."""

    bound: float
    cpu: bool = False
    python: str | None = None
    """The only version of Python for which the goal holds (default: all)."""


class AtMostTimesRow(NamedTuple):
    """Not to take more than this many times the CPU time of another row of ours."""

    row: str
    bound: float


Goal: TypeAlias = TimesBetter | AtMost | AtMostTimesRow


class Row(NamedTuple):
    """One measurement."""

    name: str
    title: str
    unit: str
    fixture: Fixture
    measure: Callable[[Any, float], Figure]
    """Takes what the fixture provides and a duration in seconds."""
    how: str
    implementations: list[Implementation] = ALL
    goals: tuple[Goal, ...] = ()
    rounds: int | None = None
    group: str | None = None
    """Adjacent rows of a group are measured in turns, because their figures are compared (default:
    adjacent rows with the same fixture)."""

    @property
    def more_is_better(self) -> bool:
        """Whether the figure is a rate."""
        return self.unit == PER_SECOND
