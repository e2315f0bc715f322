"""Run mypy and pyright on files and collect the errors that they report."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class TypeProblem(NamedTuple):
    file: str
    line: int
    message: str


def run_mypy(files: Iterable[Path], *options: str, path: Path = ROOT) -> list[TypeProblem]:
    """Run `mypy --strict` without the project's settings. Imports are looked up in `path` too."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    output = subprocess.run(
        [
            *command,
            "--follow-imports=silent",
            "--hide-error-context",
            "--no-color-output",
            *options,
            *map(str, files),
        ],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(path)},
        capture_output=True,
        text=True,
    )
    assert not output.stderr, output.stderr
    assert output.returncode in (0, 1), output.stdout  # 2: it could not check the files
    found = re.findall(r"^(.*?):(\d+): error: (.*)$", output.stdout, re.MULTILINE)
    return [TypeProblem(Path(file).name, int(line), message) for file, line, message in found]


def run_pyright(*arguments: str | Path) -> list[TypeProblem]:
    """Run pyright with these arguments: files, or `--project` and a folder."""
    output = subprocess.run(
        [
            sys.executable,
            "-m",
            "pyright",
            "--outputjson",
            "--pythonpath",
            sys.executable,
            *map(str, arguments),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert output.returncode in (0, 1), output.stdout + output.stderr
    return [
        TypeProblem(
            Path(problem["file"]).name,
            problem["range"]["start"]["line"] + 1,
            f"{problem['message']}  [{problem.get('rule', 'syntax')}]",
        )
        for problem in json.loads(output.stdout)["generalDiagnostics"]
        if problem["severity"] == "error"
    ]
