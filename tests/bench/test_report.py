"""The benchmark page says what was measured: gains, goals, the page, the chart and the table in the
README."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from xml.etree import ElementTree

import pytest

from bench import check, notes, report, run, words
from bench.chart import SHOWN, drawn
from bench.figures import Figure, best
from bench.implementations import ALL, FLOOR, OURS, SDK, Implementation
from bench.measures import GROWTH, ROWS
from bench.rows import AtMost, AtMostTimesRow, Row, TimesBetter

RATE, TIME = (next(row for row in ROWS if row.name == name) for name in ("stdio_in_turn", "import"))


def of(ours: Figure, sdk: Figure, floor: Figure) -> dict[str, Figure]:
    return {OURS.name: ours, SDK.name: sdk, FLOOR.name: floor}


def test_rows_have_names_of_their_own_and_all_that_name_one_name_one_that_exists() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert {
        *SHOWN,
        *report.IN_README,
        *check.CHECKED,
        *(name for _, few, many, _ in GROWTH for name in (few, many)),
        *notes.WHY,
        *notes.HINTS,
        *(goal.row for row in ROWS for goal in row.goals if isinstance(goal, AtMostTimesRow)),
    } <= {*names}


def test_rows_that_are_compared_with_each_other_are_measured_in_turns() -> None:
    groups = {row.name: row.group for row in ROWS}
    for row in ROWS:
        for goal in row.goals:
            if isinstance(goal, AtMostTimesRow):
                assert row.group is not None
                assert groups[goal.row] == row.group
    adjacent = [group for group, _ in groupby(row.group for row in ROWS) if group is not None]
    assert len(set(adjacent)) == len(adjacent)


@pytest.mark.parametrize(("row", "ours", "theirs"), [(RATE, 300.0, 100.0), (TIME, 100.0, 300.0)])
def test_a_gain_is_how_many_times_better_whether_more_is_better_or_less(
    row: Row, ours: float, theirs: float
) -> None:
    found = words.gain(row, of(Figure(ours), Figure(theirs), Figure(1)), SDK)
    assert found is not None
    assert found.plain == 3


@pytest.mark.parametrize(
    ("ours", "sdk", "said"),
    [
        (Figure(150, 10), Figure(10, 150), "met"),
        (Figure(150), Figure(10), "met"),
        (Figure(150, 10), Figure(10, 149), "met, but not by CPU time"),
        (Figure(149, 10), Figure(10, 150), "met by CPU time only"),
        (Figure(149, 10), Figure(10, 149), "missed"),
        (Figure(149), Figure(10), "missed"),
    ],
)
def test_a_goal_is_met_by_the_figure_and_by_processor_time_or_it_says_by_which(
    ours: Figure, sdk: Figure, said: str
) -> None:
    found = {RATE.name: of(ours, sdk, Figure(1))}
    assert words.verdict(RATE, TimesBetter(SDK, 15), found, "3.11") == said


@pytest.mark.parametrize(("value", "said"), [(4.0, "met"), (4.1, "missed")])
def test_a_goal_without_a_rival_is_a_bound(value: float, said: str) -> None:
    found = {TIME.name: of(Figure(value), Figure(1), Figure(1))}
    assert words.verdict(TIME, AtMost(4), found, "3.11") == said


@pytest.mark.parametrize(("cpu", "said"), [(9.0, "met"), (9.1, "missed")])
def test_a_bound_can_be_of_cpu_time_and_for_one_version_of_python(cpu: float, said: str) -> None:
    found = {RATE.name: of(Figure(1, cpu), Figure(1), Figure(1))}
    assert words.verdict(RATE, AtMost(9, cpu=True, python="3.13"), found, "3.13") == said
    assert words.verdict(RATE, AtMost(9, cpu=True, python="3.13"), found, "3.11") is None


@pytest.mark.parametrize(("cpu", "said"), [(12.0, "met"), (12.1, "missed")])
def test_a_goal_can_compare_the_cpu_time_of_two_rows(cpu: float, said: str) -> None:
    goal, other = AtMostTimesRow("stdio_pipelined", 1.2), Figure(5, 10)
    found = {RATE.name: {OURS.name: Figure(1, cpu)}, "stdio_pipelined": {OURS.name: other}}
    assert words.verdict(RATE, goal, found, "3.11") == said
    assert words.verdict(RATE, goal, {RATE.name: found[RATE.name]}, "3.11") is None


def test_the_best_of_several_rounds_is_taken_for_each_part_of_a_figure() -> None:
    rounds = [Figure(10, 5, 1, 9), Figure(12, 6, 2, 8)]
    assert best(rounds, more_is_better=True) == Figure(12, 5, 1, 8)
    assert best([Figure(10), Figure(12)], more_is_better=False) == Figure(10)


def test_a_ratio_to_the_floor_is_by_processor_time_where_it_is_known() -> None:
    assert check.ratio(Figure(10, 20), Figure(100, 10)) == 0.5
    assert check.ratio(Figure(10), Figure(100)) == 0.1


def test_only_what_falls_below_half_of_what_was_written_down_fails_the_check() -> None:
    written = json.loads(check.WRITTEN.read_text(encoding="utf-8"))
    assert written.keys() == {*check.CHECKED}
    name = check.CHECKED[0]
    assert check.fallen(written | {name: written[name] * 0.51}, written) == []
    assert check.fallen(written | {name: written[name] * 0.49}, written) == [name]


def test_the_page_its_chart_and_the_readme_are_made_of_the_figures_that_were_kept() -> None:
    kept = report.kept_runs()
    found = report.figures(kept[report.MAIN_PYTHON])
    assert found.keys() <= {row.name for row in ROWS}
    assert report.PAGE.read_text(encoding="utf-8") == report.page(kept)
    assert report.CHART.read_text(encoding="utf-8") == drawn(found)
    assert report.readme(found) in report.README.read_text(encoding="utf-8")


def test_a_row_without_figures_is_left_out_and_another_python_has_its_own_ratios() -> None:
    kept = report.kept_runs()[report.MAIN_PYTHON]
    fewer = {name: row for name, row in kept["figures"].items() if name != RATE.name}
    text = report.page({report.MAIN_PYTHON: {**kept, "figures": fewer}})
    assert f"| {RATE.title} |" not in text
    assert "### Python 3.13" not in text
    both = report.page({report.MAIN_PYTHON: kept, "3.13": {**kept, "figures": fewer}})
    assert "### Python 3.13" in both
    assert f"| {RATE.title} |" in both.partition("### Python 3.13")[0]
    assert f"| {RATE.title} |" not in both.partition("### Python 3.13")[2].partition("## Missed")[0]


@pytest.mark.parametrize("rounds", [1, 3])
def test_rows_of_a_group_take_turns_and_share_fixtures(rounds: int) -> None:
    events: list[str] = []

    @contextmanager
    def fixture(implementation: Implementation) -> Iterator[str]:
        events.append(f"open {implementation.name}")
        yield implementation.name

    def row(name: str, rounds: int | None = None) -> Row:
        def measure(opened: str, seconds: float) -> Figure:
            events.append(f"{name} {opened}")
            return Figure(len(events))

        return Row(name, name, "ms", fixture, measure, "", [OURS, SDK], rounds=rounds, group="g")

    rows = [row("a"), row("b", 1)]
    found = {one.name: figures for one, figures in run.measured(rows, rounds, 0)}
    once = [f"{name} {one.name}" for name in "ab" for one in (OURS, SDK)]
    assert events == [f"open {OURS.name}", f"open {SDK.name}", *once, *once[:2] * (rounds - 1)]
    assert found["a"][OURS.name] == Figure(3)


def test_the_chart_is_xml_with_a_label_for_each_row_that_it_shows() -> None:
    kept = json.loads(report.KEPT.read_text(encoding="utf-8"))
    words = {
        text.text
        for text in ElementTree.fromstring(drawn(report.figures(kept))).iter(
            "{http://www.w3.org/2000/svg}text"
        )
    }
    assert {row.title for row in ROWS if row.name in {*SHOWN} & kept["figures"].keys()} <= words


def test_the_machine_is_named_by_its_class_and_nothing_else() -> None:
    for kept in report.kept_runs().values():
        text = json.dumps(kept)
        assert re.search(r"\d+ cores", text)
        assert not re.search(r"/(home|root|tmp|work)\b", text)
        assert {one.name for one in ALL} >= {
            name for row in kept["figures"].values() for name in row
        }
