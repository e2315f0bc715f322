"""`python -m tests`, which runs the suite as two processes side by side."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.__main__ import NAMED, commands, run

KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def ends(code: int) -> str:
    return f"print('began\\n\\nended with {code}'); raise SystemExit({code})"


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (ends(0), ends(0), 0),
        (ends(0), ends(1), 1),
        (ends(1), ends(0), 1),
        (ends(0), KILLED, 9),
        (ends(5), ends(0), 0),
        (ends(5), ends(5), 5),
        (ends(1), ends(5), 1),
    ],
)
def test_it_fails_where_a_half_does_and_tells_of_both(
    first: str, second: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        asyncio.run(run([[sys.executable, "-c", program] for program in (first, second)])) == code
    )
    lines = capsys.readouterr().out.splitlines()
    said = "" if second == KILLED else f"ended with {second[-2]}"
    assert lines[-3:] == ["", f"1| ended with {first[-2]}", f"2| {said}"]
    assert lines.count("1| began") == 1


def test_a_folder_is_in_one_half_or_the_other_and_options_go_to_both() -> None:
    first, second = commands(["-x"])
    assert first[-1] == second[-1] == "-x"
    assert first[-1 - len(NAMED) : -1] == NAMED
    assert [word.removeprefix("--ignore=") for word in second[-1 - len(NAMED) : -1]] == NAMED
    assert all((Path(__file__).parents[1] / folder).is_dir() for folder in NAMED)


def test_at_the_end_it_says_again_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    program = "print('FAILED tests/a.py::test_b - it broke\\nother words\\n1 failed')"
    asyncio.run(run([[sys.executable, "-c", program], [sys.executable, "-c", ends(0)]]))
    closing = ["", "1| FAILED tests/a.py::test_b - it broke", "1| 1 failed", "2| ended with 0"]
    assert capsys.readouterr().out.splitlines()[-4:] == closing
