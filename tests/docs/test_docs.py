"""The documentation holds: what it shows runs, what it links to exists, what it tabulates is what
the code has."""

import ast
import asyncio
import inspect
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail import auth
from dovetail.client.function_calling import GOOGLE_KEYWORDS
from dovetail.config import FileSettings, ServerSettings
from dovetail.limits import Limits
from dovetail.revisions import ALL, OFFICIAL
from tests.architecture.test_imports import MAY_IMPORT
from tests.docs.pages import PAGES, ROOT, Page

DOCS = ROOT / "docs"
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@each_page
def test_what_a_page_shows_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dovetail").symlink_to(ROOT / "dovetail", target_is_directory=True)
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    with asyncio.Runner() as runner:
        Page(page, tmp_path, runner).run()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{tmp_path}/{name}"):
            del sys.modules[name]


@each_page
def test_what_a_page_links_to_exists(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(linked), f"{target}: there is no such heading"


@each_page
def test_a_page_stays_within_its_lines(page: Path) -> None:
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        assert len(line) <= 125 or line.startswith("|") or "http" in line, (
            f"{page.name}:{number} is too long"
        )
        assert line == line.rstrip(), f"{page.name}:{number} ends with a space"


def test_every_page_is_linked_from_the_readme_or_the_index() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in (ROOT / "README.md", DOCS / "README.md")
        for target in re.findall(r"\]\(([^)\s:]+)\)", page.read_text(encoding="utf-8"))
    }
    missing = {page for page in PAGES if page.name != "README.md"} - linked
    assert not missing, sorted(str(page.relative_to(ROOT)) for page in missing)


def test_every_public_name_is_explained_in_a_guide() -> None:
    guides = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "guides").glob("*.md"))
    assert [name for name in dovetail.__all__ if not re.search(rf"\b{name}\b", guides)] == []


def test_every_public_name_of_authorization_is_explained_with_all_that_it_takes() -> None:
    guides = "".join(read(f"guides/{name}.md") for name in ("protecting-a-server", "logging-in"))
    for name in auth.__all__:
        assert re.search(rf"\b{name}\b", guides), name
        found = getattr(auth, name)
        if inspect.isfunction(found) or (inspect.isclass(found) and "__init__" in vars(found)):
            taken = [
                one.name
                for one in inspect.signature(found).parameters.values()
                if one.default is not one.empty
            ]
            assert [
                one for one in taken if one != "now" and not re.search(rf"\b{one}=|`{one}`", guides)
            ] == [], name


@pytest.mark.parametrize(
    ("page", "first", "function"),
    [("protecting-a-server", "option of `jwt`", auth.jwt), ("logging-in", "option", auth.OAuth)],
)
def test_a_table_of_options_has_all_of_them_and_no_others(
    page: str, first: str, function: Any
) -> None:
    listed = [
        name
        for row in table(f"guides/{page}.md", first)[1:]
        for name in re.findall(r"`(\w+)`", row[0])
    ]
    taken = [
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.kind is one.KEYWORD_ONLY
    ]
    assert sorted(listed) == sorted(taken)


def test_every_public_name_has_a_home_and_type_checkers_know_of_it() -> None:
    tree = ast.parse((ROOT / "dovetail" / "__init__.py").read_text(encoding="utf-8"))
    checked = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    typed = [
        (one.module, name.name)
        for one in checked.body
        if isinstance(one, ast.ImportFrom)
        for name in one.names
    ]
    listed = [(module, name) for module, names in dovetail._NAMES.items() for name in names.split()]
    assert dovetail.__all__ == sorted(dovetail.__all__)
    assert dovetail.__all__ == sorted(name for _, name in listed)
    assert sorted(typed) == sorted(listed)
    assert all(getattr(dovetail, name) is not None for name in dovetail.__all__)


def test_the_guide_to_configuration_lists_every_limit_with_its_default() -> None:
    limits = read("guides/configuration.md").partition("\n## Limits\n")[2]
    listed = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", limits, re.MULTILINE))
    defaults = Limits()
    assert {name: eval(value.replace("MiB", "* 2**20"), {}) for name, value in listed.items()} == {
        name: getattr(defaults, name) for name in Limits.__struct_fields__
    }


@pytest.mark.parametrize(
    ("heading", "settings"),
    [("key of a server", ServerSettings), ("key of the file", FileSettings)],
)
def test_the_guide_to_configuration_lists_every_setting(heading: str, settings: Any) -> None:
    rows = table("guides/configuration.md", heading)[1:]
    assert [row[0].strip("`") for row in rows] == list(settings.__struct_encode_fields__)


def test_the_guide_to_answering_lists_the_keywords_that_google_supports() -> None:
    row = next(row for row in table("guides/answering.md", "part of a tool") if "other" in row[0])
    assert tuple(re.findall("`([^`]+)`", row[3])) == GOOGLE_KEYWORDS


def test_the_guide_to_revisions_tabulates_their_facts() -> None:
    rows = table("guides/revisions.md", "fact")
    facts = {row[0].strip("`"): [cell == "yes" for cell in row[1:]] for row in rows[1:]}
    assert rows[0][1:] == [revision.name for revision in ALL]
    assert facts == {name: [bool(getattr(revision, name)) for revision in ALL] for name in facts}
    flags = {
        name
        for name in OFFICIAL[0].__struct_fields__
        if isinstance(getattr(OFFICIAL[0], name), bool)
    }
    assert flags <= facts.keys()


def test_the_note_on_layers_is_the_table_that_is_tested() -> None:
    told = {
        row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1]))
        for row in table("design/layers.md", "part")[1:]
    }
    assert told == MAY_IMPORT


def test_the_error_tree_in_the_client_guide_is_the_one_in_the_code() -> None:
    tree = re.compile(r"[├└]── (\w+)")
    assert tree.findall(read("guides/client.md")) == tree.findall(dovetail.errors.__doc__ or "")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def table(name: str, first: str) -> list[list[str]]:
    """The rows of the table whose first cell is this, without the rule."""
    lines = read(name).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        if not line.startswith("|---"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def without_code(page: Path) -> str:
    text = re.sub(
        r"^(```+).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
