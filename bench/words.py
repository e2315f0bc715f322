"""Formats figures, ratios and goals, for the page and for the terminal."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from .figures import Figure, Figures
from .implementations import ALL, FLOOR, OURS, SDK, Implementation
from .measures import ROWS
from .rows import AtMost, AtMostTimesRow, Goal, Row, TimesBetter


def number(value: float) -> str:
    """Format a number with three significant digits."""
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
    """Format a duration, in a suitable unit."""
    if microseconds >= 1e6:
        return f"{number(microseconds / 1e6)} s"
    return (
        f"{number(microseconds / 1e3)} ms" if microseconds >= 1e3 else f"{number(microseconds)} µs"
    )


def quantity(row: Row, figure: Figure | None) -> str:
    """Format a figure with its unit."""
    if figure is None:
        return ""
    return number(figure.value) + (row.unit if row.more_is_better else f" {row.unit}".rstrip())


class Gain(NamedTuple):
    """How many times better we are than another implementation: by the figure, and by CPU time, if
    it was measured."""

    plain: float
    cpu: float | None

    def __str__(self) -> str:
        return (
            number(self.plain) if self.cpu is None else f"{number(self.plain)} ({number(self.cpu)})"
        )


def gain(row: Row, figures: Figures, than: Implementation) -> Gain | None:
    """Compare our figure with theirs; None if either was not measured."""
    ours, theirs = figures.get(OURS.name), figures.get(than.name)
    if ours is None or theirs is None:
        return None
    plain = ours.value / theirs.value if row.more_is_better else theirs.value / ours.value
    return Gain(plain, theirs.cpu / ours.cpu if ours.cpu and theirs.cpu else None)


def verdict(row: Row, goal: Goal, found: dict[str, Figures], python: str) -> str | None:
    """Return whether a goal is met; None if it does not hold for this Python, or if its figures are
    missing."""
    figures = found.get(row.name, {})
    ours = figures.get(OURS.name)
    if ours is None:
        return None
    match goal:
        case TimesBetter(than, bound):
            gained = gain(row, figures, than)
            return gained and _verdict_of([one >= bound for one in gained if one is not None])
        case AtMost(bound, cpu, only):
            value = ours.cpu if cpu else ours.value
            applies = value is not None and only in (None, python)
            return _verdict_of([value <= bound]) if applies and value is not None else None
        case AtMostTimesRow(name, bound):
            times = times_row(row, name, found)
            return None if times is None else _verdict_of([times <= bound])


def _verdict_of(met: list[bool]) -> str:
    if all(met):
        return "met"
    if not any(met):
        return "missed"
    return "met by CPU time only" if met[1] else "met, but not by CPU time"


def times_row(row: Row, name: str, found: dict[str, Figures]) -> float | None:
    """Return how many times the CPU time of another row of ours this row takes."""
    ours, other = (found.get(one, {}).get(OURS.name) for one in (row.name, name))
    return ours.cpu / other.cpu if ours and other and ours.cpu and other.cpu else None


def wanted(row: Row, goal: Goal) -> str:
    """Return a goal in words."""
    match goal:
        case TimesBetter(than, bound):
            return f"{bound:.0%} of the floor" if than is FLOOR else f"{bound:g} times the SDK"
        case AtMost(bound, cpu):
            return f"at most {bound:g} µs of CPU time" if cpu else f"at most {bound:g} {row.unit}"
        case AtMostTimesRow(name, bound):
            (other,) = (one for one in ROWS if one.name == name)
            return f"at most {bound:g} times the CPU time of “{other.title}”"


def outcome(row: Row, goal: Goal, found: dict[str, Figures], how: str) -> str:
    """Return how a goal was met or missed, with the figure unless it is in the same line."""
    ours = found[row.name][OURS.name]
    match goal:
        case TimesBetter():
            return how
        case AtMost(_, cpu):
            return f"{how} ({duration(ours.cpu or 0) if cpu else quantity(row, ours)})"
        case AtMostTimesRow(name):
            return f"{how} ({times_row(row, name, found):.3f})"


def goals(found: dict[str, Figures], python: str) -> Iterator[tuple[Row, Goal, str]]:
    """Yield the goals whose figures were measured with this Python, and whether they are met."""
    for row in ROWS:
        for goal in row.goals:
            how = verdict(row, goal, found, python)
            if how is not None:
                yield row, goal, how


def line(row: Row, figures: Figures) -> str:
    """Format a row for the terminal."""
    cells = "".join(f"{quantity(row, figures.get(one.name)):>18}" for one in ALL)
    ratios = "".join(f"{gain(row, figures, than) or ''!s:>20}" for than in (SDK, FLOOR))
    ours = figures[OURS.name].cpu
    return f"{row.name:22}{cells}{ratios}{duration(ours) if ours else '':>12}"


def heading() -> str:
    """Return the heading of the rows for the terminal."""
    names = "".join(f"{one.name:>18}" for one in ALL)
    return f"{'':22}{names}{'times the SDK':>20}{'of the floor':>20}{'our CPU':>12}"


def verdicts(found: dict[str, Figures], python: str) -> str:
    """Format the goals for the terminal, and count those that are met."""
    all_goals = list(goals(found, python))
    rows = [
        f"{row.name:22}{wanted(row, goal)}: {outcome(row, goal, found, how)}"
        for row, goal, how in all_goals
    ]
    missed = sum(how == "missed" for _, _, how in all_goals)
    met = f"{len(rows) - missed} goals met, {missed} missed (ratios in parentheses: CPU time)"
    return "\n".join([*rows, met])
