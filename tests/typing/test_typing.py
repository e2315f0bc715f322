"""mypy and pyright accept what the documentation shows, and reject common mistakes.

A file `*_accepted.py` must have no errors. In a file `*_rejected.py` exactly the lines that end
with `# error` must have one.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = sorted(HERE.glob("*_accepted.py")) + sorted(HERE.glob("*_rejected.py"))

Lines = dict[tuple[str, int], str]


def expected() -> set[tuple[str, int]]:
    return {
        (path.name, number)
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# error")
    }


def mypy() -> Lines:
    """The errors of mypy, by file and line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    options = ["--follow-imports=silent", "--hide-error-context", "--no-color-output"]
    output = subprocess.run(
        [*command, *options, *map(str, FILES)], cwd=ROOT, capture_output=True, text=True
    )
    assert not output.stderr, output.stderr
    found = re.findall(r"^(.*?):(\d+): error: (.*)$", output.stdout, re.MULTILINE)
    return {(Path(file).name, int(line)): text for file, line, text in found}


def pyright() -> Lines:
    """The errors of pyright, by file and line."""
    output = subprocess.run(
        [
            sys.executable,
            "-m",
            "pyright",
            "--outputjson",
            "--pythonpath",
            sys.executable,
            *map(str, FILES),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return {
        (Path(problem["file"]).name, problem["range"]["start"]["line"] + 1): problem["message"]
        for problem in json.loads(output.stdout)["generalDiagnostics"]
        if problem["severity"] == "error"
    }


def test_mypy_accepts_and_rejects_what_it_should() -> None:
    check(mypy())


def test_pyright_accepts_and_rejects_what_it_should() -> None:
    check(pyright())


def check(found: Lines) -> None:
    assert {place: text for place, text in found.items() if place not in expected()} == {}
    assert expected() - found.keys() == set()
