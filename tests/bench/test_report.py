"""What the benchmarks say is what was measured: gains, goals, the page, the chart and the table in
the README."""

import json
import re
from xml.etree import ElementTree

import pytest

from bench import check, report, words
from bench.chart import SHOWN, drawn
from bench.figures import Figure, best
from bench.measures import GROWTH, ROWS, Goal, Row
from bench.parties import ALL, FLOOR, OURS, SDK

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
    } <= {*names}


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
        (Figure(150, 10), Figure(10, 149), "met by the figure only"),
        (Figure(149, 10), Figure(10, 150), "met by CPU time"),
        (Figure(149, 10), Figure(10, 149), "missed"),
        (Figure(149), Figure(10), "missed"),
    ],
)
def test_a_goal_is_met_by_the_figure_and_by_processor_time_or_it_says_by_which(
    ours: Figure, sdk: Figure, said: str
) -> None:
    assert words.verdict(RATE, Goal(SDK, 15), of(ours, sdk, Figure(1))) == said


@pytest.mark.parametrize(("value", "said"), [(4.0, "met"), (4.1, "missed")])
def test_a_goal_without_a_rival_is_a_bound(value: float, said: str) -> None:
    assert words.verdict(TIME, Goal(None, 4), of(Figure(value), Figure(1), Figure(1))) == said


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
    kept = json.loads(report.KEPT.read_text(encoding="utf-8"))
    found = report.figures(kept)
    assert found.keys() == {row.name for row in ROWS}
    assert report.PAGE.read_text(encoding="utf-8") == report.page(kept, found)
    assert report.CHART.read_text(encoding="utf-8") == drawn(found)
    assert report.readme(found) in report.README.read_text(encoding="utf-8")


def test_the_chart_is_xml_with_a_label_for_each_row_that_it_shows() -> None:
    kept = json.loads(report.KEPT.read_text(encoding="utf-8"))
    words = {
        text.text
        for text in ElementTree.fromstring(drawn(report.figures(kept))).iter(
            "{http://www.w3.org/2000/svg}text"
        )
    }
    assert {row.title for row in ROWS if row.name in SHOWN} <= words


def test_the_machine_is_named_by_its_class_and_nothing_else() -> None:
    kept = report.KEPT.read_text(encoding="utf-8")
    assert re.search(r"\d+ cores", kept)
    assert not re.search(r"/(home|root|tmp|work)\b", kept)
    assert {party.name for party in ALL} >= {
        name for row in json.loads(kept)["figures"].values() for name in row
    }
