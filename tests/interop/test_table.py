"""The table of `make interop` tells what passed from what did not, and excuses only what it
names."""

from typing import Any

import pytest

from .cases import Case
from .defects import DEFECTS, excuse
from .run import Row, judged, report
from .steps import STEPS, Step, problem

HELD = [
    ({"a": 1}, {"a": 1, "b": 2}),
    ([1, {"a": 1}], [1, {"a": 1, "b": 2}]),
    ([..., 3], [1, 2, 3]),
    ("~es", "yes"),
    ("has a b", [{"name": "a"}, {"uri": "b"}]),
    ("failed", {"error": {}}),
    ("failed", {"result": {"isError": True}}),
]
BROKEN = [
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, None),
    ([1], [1, 2]),
    ([..., 3], []),
    ([..., 3], [3, 2]),
    ("~no", "yes"),
    ("has a b", [{"name": "a"}]),
    ("has a", None),
    ("failed", {"result": {}}),
    (1, 2),
]


@pytest.mark.parametrize(("wanted", "got"), HELD)
def test_a_pattern_is_held_by(wanted: Any, got: Any) -> None:
    assert problem(wanted, got) is None


@pytest.mark.parametrize(("wanted", "got"), BROKEN)
def test_a_pattern_is_broken_by(wanted: Any, got: Any) -> None:
    assert problem(wanted, got)


def case(*steps: Step) -> Case:
    return Case("ts1", "client", "stdio", "2025-11-25", None, list(steps))


def test_a_step_that_nothing_came_of_has_failed_and_says_why() -> None:
    steps = Step("first", "call", {"result": {}}), Step("second", "call", {"result": {}})
    row = judged(case(*steps), {"first": {"result": {}}, "open": {"error": {"message": "refused"}}})
    assert (row.passed, row.excused) == (1, ())
    assert row.failures == ("second: nothing came: refused",)


def test_what_did_not_fail_does_not_pass_where_it_should_have() -> None:
    for found in ({}, {"only": {"result": {}}}, {"open": {"error": {"message": "refused"}}}):
        assert judged(case(Step("only", "call", "failed")), found).failures


def test_a_defect_excuses_only_its_own_step_and_message() -> None:
    burst = Step("progress in a burst", "call", {"progress": [..., 3]})
    assert judged(case(burst), {burst.name: {"progress": []}}).excused
    other = Step("progress in a burst", "call", {"result": {"a": 1}})
    assert judged(case(other), {other.name: {"result": {}}}).failures
    assert excuse("mcp1 client stdio 2025-11-25", burst.name, ".progress") is None


def test_every_defect_is_about_a_step_that_there_is() -> None:
    assert {defect.step for defect in DEFECTS} <= {step.name for step in STEPS}


def test_the_closing_line_counts_what_is_ours() -> None:
    rows = [
        Row("a client stdio 1", 3, (), ((DEFECTS[0], "seen"),)),
        Row("b server http 2", 1, ("step: why",), ()),
    ]
    lines = report(rows)
    assert lines[-1] == "4 passed, 1 failed"
    assert "  b server http 2: step: why" in lines
    assert any(DEFECTS[0].reason in line for line in lines)
