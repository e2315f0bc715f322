"""The table of requirements and the markers on the tests say the same: nothing is unshown, and
nothing is invented."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import APPS, EXTENSIONS, REQUIREMENTS, REVISIONS, SKILLS, TASKS, TELEMETRY

TESTS = Path(__file__).parent
PLACES = (APPS, EXTENSIONS, SKILLS, TASKS, TELEMETRY)
"""Where those are specified that have a place of their own."""


def marked(source: str) -> Iterator[tuple[str, str]]:
    """Each test of a file with each requirement that it names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            for decorator in node.decorator_list:
                if (
                    isinstance(decorator, ast.Call)
                    and ast.unparse(decorator.func) == "pytest.mark.requirement"
                ):
                    for argument in decorator.args:
                        yield node.name, ast.literal_eval(argument)


@cache
def shown() -> dict[str, list[str]]:
    """Each requirement that is named somewhere, with the tests that name it."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for test, id in marked(path.read_text()):
            found.setdefault(id, []).append(f"{path.relative_to(TESTS)}::{test}")
    return found


def test_markers_are_found_on_plain_and_async_tests_and_only_there() -> None:
    source = """
@pytest.mark.requirement("a", "b")
@pytest.mark.parametrize("x", [1])
def test_one(): ...
@pytest.mark.requirement("c")
async def test_two(): ...
@pytest.mark.requirement("d")
def helper(): ...
"""
    assert sorted(marked(source)) == [("test_one", "a"), ("test_one", "b"), ("test_two", "c")]


@pytest.mark.parametrize("id", [id for id, row in REQUIREMENTS.items() if not row.untested])
def test_every_requirement_is_shown_by_a_test(id: str) -> None:
    assert id in shown(), f"no test names {id}: {REQUIREMENTS[id].text}"


def test_every_requirement_that_a_test_names_is_in_the_table() -> None:
    assert {id: tests for id, tests in shown().items() if id not in REQUIREMENTS} == {}


def test_what_counts_as_untested_is_not_tested_after_all() -> None:
    assert [id for id, row in REQUIREMENTS.items() if row.untested and id in shown()] == []


@pytest.mark.parametrize("id", REQUIREMENTS)
def test_every_requirement_says_where_it_stands_and_when_it_holds(id: str) -> None:
    row = REQUIREMENTS[id]
    assert row.text.endswith(".")
    assert row.revisions
    assert set(row.revisions) <= set(REVISIONS)
    if row.link == row.page:
        assert row.link.startswith(PLACES)
        return
    where = row.page.split("/")[0]
    assert where == row.revisions[-1] or (where in REVISIONS and len(row.revisions) > 1), (
        "the newest page that has it"
    )
