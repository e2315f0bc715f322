"""Run mypy and pyright once over all files, and collect the errors that they report.

A checker takes long to read the package, so files of all kinds are in one folder and one run. What
differs between the kinds is a `Rules`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class TypeProblem(NamedTuple):
    file: str
    line: int
    message: str


class Rules(NamedTuple):
    """How strictly files are checked."""

    mypy: tuple[str, ...] = ()
    """Settings besides `strict`."""
    is_strict: bool = False
    """Whether pyright is strict. mypy always is."""
    pyright_ignored: frozenset[str] = frozenset()
    """The rules of pyright that do not apply."""


def run_mypy(folder: Path, files: Mapping[str, Rules]) -> list[TypeProblem]:
    """Run `mypy --strict` on files of a folder, without the project's settings."""
    config = folder / "mypy.ini"
    config.write_text("\n".join(["[mypy]", *_mypy_sections(files)]), encoding="utf-8")
    output = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", f"--config-file={config}"),
            *("--no-error-summary", "--hide-error-context", "--no-color-output"),
            *("--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache' / 'users'}"),
            *(str(folder / name) for name in files),
        ],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert not output.stderr, output.stderr
    assert output.returncode in (0, 1), output.stdout  # 2: it could not check the files
    found = re.findall(r"^(.*?):(\d+): error: (.*)$", output.stdout, re.MULTILINE)
    return [TypeProblem(Path(file).name, int(line), message) for file, line, message in found]


def _mypy_sections(files: Mapping[str, Rules]) -> Iterable[str]:
    for rules in dict.fromkeys(files.values()):
        modules = (name.removesuffix(".py") for name in files if files[name] == rules)
        yield f"[mypy-{','.join(modules)}]"
        yield from rules.mypy


def run_pyright(folder: Path, files: Mapping[str, Rules]) -> list[TypeProblem]:
    """Run pyright on files of a folder."""
    settings = {
        "include": list(files),
        "strict": [name for name, rules in files.items() if rules.is_strict],
        "extraPaths": [str(ROOT)],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    output = subprocess.run(
        [
            *(sys.executable, "-m", "pyright", "--outputjson"),
            *("--pythonpath", sys.executable, "--project", str(folder)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert output.returncode in (0, 1), output.stdout + output.stderr
    problems = [
        (problem, Path(problem["file"]).name, problem.get("rule", "syntax"))
        for problem in json.loads(output.stdout)["generalDiagnostics"]
        if problem["severity"] == "error"
    ]
    return [
        TypeProblem(name, problem["range"]["start"]["line"] + 1, f"{problem['message']}  [{rule}]")
        for problem, name, rule in problems
        if rule not in files[name].pyright_ignored
    ]
