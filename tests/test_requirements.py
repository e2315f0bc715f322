"""The table of requirements and the markers on the tests say the same: nothing is unshown, and
nothing is invented."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import APPS, EXTENSIONS, REQUIREMENTS, REVISIONS, SKILLS, TASKS, TELEMETRY

TESTS = Path(__file__).parent
PLACES = (APPS, EXTENSIONS, SKILLS, TASKS, TELEMETRY)
"""Where those are specified that have a place of their own."""


def marked(source: str) -> Iterator[tuple[str, str]]:
    """Each test of a file with each requirement that it names."""
    if "pytest.mark.requirement" not in source:
        return
    for node in ast.parse(source).body:
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


def test_every_requirement_is_shown_by_a_test_and_every_test_shows_one_of_the_table() -> None:
    named = shown()  # in one test, since each process would read all tests
    tested = {id: row.text for id, row in REQUIREMENTS.items() if not row.untested}
    assert {id: text for id, text in tested.items() if id not in named} == {}
    assert {id: tests for id, tests in named.items() if id not in REQUIREMENTS} == {}
    assert [id for id, row in REQUIREMENTS.items() if row.untested and id in named] == []


def test_every_requirement_says_where_it_stands_and_when_it_holds() -> None:
    for id, row in REQUIREMENTS.items():
        assert row.text.endswith("."), id
        assert row.revisions, id
        assert set(row.revisions) <= set(REVISIONS), id
        if row.link == row.page:
            assert row.link.startswith(PLACES), id
            continue
        where = row.page.split("/")[0]
        assert where == row.revisions[-1] or (where in REVISIONS and len(row.revisions) > 1), (
            f"{id}: the newest page that has it"
        )
