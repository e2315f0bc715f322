"""mypy and pyright accept what the documentation shows, and reject common mistakes.

A file `*_accepted.py` must have no errors. In a file `*_rejected.py` exactly the lines that end
with `# error` must have one.
"""

from pathlib import Path

from tests.typing.checkers import TypeProblem, run_mypy, run_pyright

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*_accepted.py")) + sorted(HERE.glob("*_rejected.py"))


def expected() -> set[tuple[str, int]]:
    return {
        (path.name, number)
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# error")
    }


def test_mypy_accepts_and_rejects_what_it_should() -> None:
    check(run_mypy(FILES))


def test_pyright_accepts_and_rejects_what_it_should() -> None:
    check(run_pyright(*FILES))


def check(problems: list[TypeProblem]) -> None:
    found = {(problem.file, problem.line): problem.message for problem in problems}
    assert {place: text for place, text in found.items() if place not in expected()} == {}
    assert expected() - found.keys() == set()
