"""Figures in words: what one is, what it gains on another, whether a goal is met, and a line of it
all for the terminal."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from .figures import Figure, Figures
from .measures import ROWS, Goal, Row
from .parties import ALL, FLOOR, OURS, SDK, Party


def number(value: float) -> str:
    """With as many digits as mean something: three."""
    if value >= 1000:
        value = round(value, 2 - math.floor(math.log10(value)))
    return (
        f"{value:,.0f}"
        if value >= 100 or value == int(value)
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
    )


def duration(microseconds: float) -> str:
    """In the unit that suits it."""
    if microseconds >= 1e6:
        return f"{number(microseconds / 1e6)} s"
    return (
        f"{number(microseconds / 1e3)} ms" if microseconds >= 1e3 else f"{number(microseconds)} µs"
    )


def quantity(row: Row, figure: Figure | None) -> str:
    """A figure with its unit."""
    if figure is None:
        return ""
    return number(figure.value) + (row.unit if row.more_is_better else f" {row.unit}".rstrip())


class Gain(NamedTuple):
    """How many times better we are than another: by the figure, and by processor time where that
    was taken."""

    plain: float
    cpu: float | None

    def __str__(self) -> str:
        return (
            number(self.plain) if self.cpu is None else f"{number(self.plain)} ({number(self.cpu)})"
        )


def gain(row: Row, figures: Figures, than: Party) -> Gain | None:
    """Ours against theirs, or nothing where they do not take part."""
    ours, theirs = figures.get(OURS.name), figures.get(than.name)
    if ours is None or theirs is None:
        return None
    plain = ours.value / theirs.value if row.more_is_better else theirs.value / ours.value
    return Gain(plain, theirs.cpu / ours.cpu if ours.cpu and theirs.cpu else None)


def verdict(row: Row, goal: Goal, figures: Figures) -> str:
    """Whether a goal is met."""
    if goal.than is None:
        return "met" if figures[OURS.name].value <= goal.bound else "missed"
    found = gain(row, figures, goal.than)
    assert found
    met = [one >= goal.bound for one in found if one is not None]
    if all(met):
        return "met"
    return "missed" if not any(met) else "met by CPU time" if met[1] else "met by the figure only"


def wanted(row: Row, goal: Goal) -> str:
    """A goal in words."""
    if goal.than is None:
        return f"at most {goal.bound:g} {row.unit}"
    return (
        f"{goal.bound:.0%} of the floor" if goal.than is FLOOR else f"{goal.bound:g} times the SDK"
    )


def goals(found: dict[str, Figures]) -> Iterator[tuple[Row, Goal, str]]:
    """All goals of what was measured, with how it stands."""
    for row in ROWS:
        for goal in row.goals if row.name in found else ():
            yield row, goal, verdict(row, goal, found[row.name])


def line(row: Row, figures: Figures) -> str:
    """A row for the terminal."""
    cells = "".join(f"{quantity(row, figures.get(party.name)):>14}" for party in ALL)
    ratios = "".join(f"{gain(row, figures, than) or ''!s:>20}" for than in (SDK, FLOOR))
    return f"{row.name:20}{cells}{ratios}"


def heading() -> str:
    """What stands above such rows."""
    return (
        f"{'':20}"
        + "".join(f"{party.name:>14}" for party in ALL)
        + f"{'times the SDK':>20}{'of the floor':>20}"
    )


def verdicts(found: dict[str, Figures]) -> str:
    """The goals for the terminal, and how many are met."""
    rows = [f"{row.name:20}{wanted(row, goal):24}{how}" for row, goal, how in goals(found)]
    missed = sum(row.endswith("missed") for row in rows)
    return "\n".join(
        [*rows, f"{len(rows) - missed} goals met, {missed} missed (in parentheses: by CPU time)"]
    )
