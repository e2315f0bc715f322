"""The distribution is `dovetail-mcp`: `dovetail` on PyPI is another project. No page, example,
workflow or message may tell anybody to install that one."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from dovetail.errors import DISTRIBUTION, install_command, missing_extra
from tests.docs.pages import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
FOLDERS = (".ci", ".github", "bench", "docs", "dovetail", "examples", "scripts", "tests")
SUFFIXES = {"", ".cfg", ".html", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
"""A Dockerfile and `.ci/run` have none."""
INSTALLER = r"\b(?:(?:pip|pipx|uv|uv pip|uv tool) (?:install|add)|(?:pipx|uv tool) run|uvx)\b"
"""Not `uv run`, which runs a command of an installed package."""
WRONG = [
    re.compile(r"(?<![\w/.-])dovetail\\?\[(?:\w+\\?[\],])"),  # dovetail[http]
    # A word after `--from` is the distribution, and the next one is the command.
    re.compile(INSTALLER + r"""(?: (?!--from )[^\s`]+)*?(?: --from)? ["']?dovetail(?![\w/.-])"""),
]


def texts() -> list[Path]:
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    top = (path for path in ROOT.iterdir() if path.name != ".git")
    return sorted(
        path
        for path in (*top, *inside)
        if path.is_file() and path.suffix in SUFFIXES and path != Path(__file__)
    )


@pytest.mark.parametrize(
    "line",
    [
        "$ pip install dovetail",
        "RUN pip install --no-cache-dir dovetail",
        'pip install "dovetail[http]" fastapi',
        "`uvx dovetail run server.py`",
        "`uvx --from dovetail dovetail run server.py`",
        "pip install 'dovetail[http,auth]'",
        "They need `dovetail[http]`.",
        "uv tool install -q 'dovetail==0.1'",
    ],
)
def test_the_wrong_name_is_recognised(line: str) -> None:
    assert any(pattern.search(line) for pattern in WRONG)


@pytest.mark.parametrize(
    "line",
    [
        "$ pip install dovetail-mcp",
        "`uvx dovetail-mcp run server.py`",
        "`uvx --from dovetail-mcp dovetail run server.py`",
        "pip install -e '../dovetail[all]' pytest",
        "`pip install fastapi`, then `dovetail run server.py`",
        "pip install ./dovetail",
        "`uv run --project FOLDER dovetail run FILE`",
    ],
)
def test_the_right_name_passes(line: str) -> None:
    assert not any(pattern.search(line) for pattern in WRONG)


def test_every_file_names_the_distribution_that_is_ours() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(pattern.search(line) for pattern in WRONG)
    ]
    assert found == []


def test_the_metadata_agrees_with_the_constant() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert PROJECT["scripts"]["dovetail"] == PROJECT["scripts"][DISTRIBUTION]
    assert install_command("http") == "pip install 'dovetail-mcp[http]'"
    assert "pip install 'dovetail-mcp[http]'" in str(missing_extra("Serving HTTP", "http"))


def test_every_hint_names_an_extra_that_exists() -> None:
    named = {
        node.args[-1].value
        for path in (ROOT / "dovetail").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("missing_extra", "install_command")
        and isinstance(node.args[-1], ast.Constant)
    }
    assert named and named <= PROJECT["optional-dependencies"].keys()


def test_no_hint_is_written_by_hand() -> None:
    by_hand = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "dovetail").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and f"{DISTRIBUTION}[" in node.value
        and "\n" not in node.value  # a docstring
    ]
    assert by_hand == []


def test_the_wheel_installs_one_package_and_nothing_beside_it() -> None:
    assert PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["dovetail"]


def test_the_page_about_installation_names_the_packages_and_versions_of_each_extra() -> None:
    page = (ROOT / "docs/learn/installation.md").read_text(encoding="utf-8")
    rows = {row[1]: row[0] for row in re.finditer(r"^\| `(\w+)` \|.*$", page, re.MULTILINE)}
    extras = PROJECT["optional-dependencies"]
    assert rows.keys() == extras.keys()
    for extra, packages in extras.items():
        for package in packages:
            requirement = package.partition(";")[0]
            assert requirement in rows[extra] or requirement.startswith(DISTRIBUTION), package
    for requirement in PROJECT["dependencies"]:
        assert requirement in page
