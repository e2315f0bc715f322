"""The examples as a user has them: servers that a client starts from their files, and programs."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 60
Load = Callable[..., ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import an example, with these environment variables; each test gets modules of its own."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = set(sys.modules)

    def import_example(name: str, **variables: str) -> ModuleType:
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        return __import__(name)

    yield import_example
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == EXAMPLES:
            del sys.modules[name]


def environment(**variables: str) -> dict[str, str]:
    """The variables of a program that finds the package and the command where we do."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
        **variables,
    }


def run(
    *words: str | Path, typed: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run a Python program to its end, at the top of the checkout."""
    return subprocess.run(
        [sys.executable, *words],
        env=environment(**variables),
        cwd=ROOT,
        input=typed,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
