"""The pages on requirements hold: each row names a test or an example that exists, or says why it
does not."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "requirements"
PAGES = {
    "protocol-specification": "P",
    "specification-2025-03-26": "S",
    "implementation-guide": "G",
    "detailed-draft": "D",
    "fundamentals": "F",
    "gateway": "W",
}
"""Each page, with the letter that its ids begin with."""
OPEN = "TODO: "
REASON = "does not apply: "
_REFERENCE = re.compile(r"`((?:tests|examples)/[^`]+)`")


class Row(NamedTuple):
    """One requirement, and the parts of the cell that says what shows it."""

    id: str
    text: str
    parts: list[str]

    @property
    def is_open(self) -> bool:
        return any(part.startswith(OPEN) for part in self.parts)


def read_rows(text: str) -> Iterator[Row]:
    """Return the rows of all tables of a page."""
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| id |"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 3, line
            yield Row(cells[0], cells[1], cells[2].split("; "))


def find_problem(row: Row) -> str | None:
    """Say what is wrong with a row, if anything is."""
    if not row.text.endswith("."):
        return "the requirement is not a sentence"
    for part in row.parts:
        references = _REFERENCE.findall(part)
        if part.startswith(OPEN):
            if len(references) != 1 or is_shown(references[0]):
                return f"the test exists, so it is no longer open: {part}"
        elif part.startswith(REASON):
            if len(part) < len(REASON) + 10:
                return f"the reason is missing: {part}"
        elif references:
            if missing := [one for one in references if not is_shown(one)]:
                return f"does not exist: {', '.join(missing)}"
        elif not re.fullmatch(r"\[[^\]]+\]\([^)]+\)", part):
            return f"neither a test nor a reason: {part!r}"
    return None


def is_shown(reference: str) -> bool:
    """Whether the named test or example exists."""
    path, _, test = reference.partition("::")
    if test:
        return test in defined_tests(ROOT / path)
    return path.startswith("examples/") and (ROOT / path).is_file()


@cache
def defined_tests(path: Path) -> frozenset[str]:
    """Return the names of the tests that a file defines."""
    if not path.is_file():
        return frozenset()
    return frozenset(
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


def rows_of(page: str) -> list[Row]:
    return list(read_rows((FOLDER / f"{page}.md").read_text(encoding="utf-8")))


def test_each_document_has_a_page_and_each_page_a_row_in_the_index() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*PAGES, "README"}
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for page, letter in PAGES.items():
        assert re.search(rf"^\| \[.*\]\({page}\.md\).* \| {letter} \|$", index, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_requirement_names_a_test_or_an_example_that_exists_or_says_why_not(
    page: str,
) -> None:
    problems = [f"{row.id}: {problem}" for row in rows_of(page) if (problem := find_problem(row))]
    assert problems == []


@pytest.mark.parametrize("page", PAGES)
def test_ids_are_unique_and_in_order(page: str) -> None:
    ids = [row.id for row in rows_of(page)]
    assert ids == [f"{PAGES[page]}{number}" for number in range(1, len(ids) + 1)]


@pytest.mark.parametrize("page", PAGES)
def test_no_requirement_is_listed_twice_under_one_heading(page: str) -> None:
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        counts = Counter(row.text for row in read_rows(section))
        assert [text for text, count in counts.items() if count > 1] == []


def test_no_requirement_is_open() -> None:
    assert [row.id for page in PAGES for row in rows_of(page) if row.is_open] == []


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "it just works",
        "planned: some day",
        "does not apply: ",
        "`tests/docs/test_docs.py`",
        "`tests/docs/test_docs.py::test_no_such_test`",
        "`tests/docs/no_such_file.py::test_what_a_page_shows_runs`",
        "`tests/docs/test_docs.py::test_what_a_page_shows_runs`; it just works",
        "`examples/no_such_file.py`",
        "TODO: something",
        "TODO: `tests/docs/test_docs.py::test_what_a_page_shows_runs`",
    ],
)
def test_a_row_that_proves_nothing_is_found(cell: str) -> None:
    (row,) = read_rows(f"| X1 | It works. | {cell} |")
    assert find_problem(row) is not None


@pytest.mark.parametrize(
    "cell",
    [
        "`tests/docs/test_docs.py::test_what_a_page_shows_runs`, `examples/weather.py`",
        "`examples/weather.py`; does not apply: the rest is for hosts",
        "[Security](../security.md)",
        "does not apply: the author decides",
        "TODO: `tests/docs/test_docs.py::test_no_such_test`",
    ],
)
def test_a_row_that_names_a_proof_or_a_reason_is_accepted(cell: str) -> None:
    (row,) = read_rows(f"| X1 | It works. | {cell} |")
    assert find_problem(row) is None
