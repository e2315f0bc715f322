"""Every page is in the navigation, every public name is on a page of the reference, and pages
repeat what the code says."""

import importlib
import inspect
import re
from collections import Counter
from typing import Any

import pytest

from dovetail import compat, errors
from scripts import reference
from scripts.docs_site import place_of, read_nav
from tests.architecture.test_documented import MODULES, exports
from tests.docs.pages import PAGES, ROOT

FOLDER = ROOT / "docs" / "reference"
DIRECTIVE = re.compile(r"^#+ ::: ([\w.]+)$", re.MULTILINE)


def directives() -> list[str]:
    """The objects that the pages show with their signatures and docstrings."""
    return [
        name
        for page in sorted(FOLDER.glob("*.md"))
        for name in DIRECTIVE.findall(page.read_text(encoding="utf-8"))
    ]


def resolve(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_repeats_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == reference.PAGES[name](), "run `make reference`"


@pytest.mark.parametrize("module", [name for name in MODULES if name != "dovetail.compat"])
def test_every_public_name_is_on_a_page(module: str) -> None:
    shown = {id(resolve(path)) for path in (*directives(), "dovetail.Limits")}  # it has a table
    listed = getattr(importlib.import_module(module), "__all__", [])
    names = {*listed, *(name for name, _ in exports(module))}
    assert [name for name in sorted(names) if id(resolve(f"{module}.{name}")) not in shown] == []


def test_every_name_of_compat_is_in_its_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (FOLDER / "compat.md").read_text("utf-8"), re.MULTILINE)
    assert rows == sorted(compat.__all__)


def test_no_name_is_shown_twice() -> None:
    times = Counter(id(resolve(path)) for path in directives())
    assert [path for path in directives() if times[id(resolve(path))] > 1] == []


def test_the_page_on_errors_lists_each_class_with_its_code_and_its_fault() -> None:
    text = (FOLDER / "errors.md").read_text(encoding="utf-8")
    with_code = re.findall(r"^\| (-\d+) \| `(\w+)` \| (\w+) \|", text, re.MULTILINE)
    without = re.findall(r"^\| `(\w+)` \| (local|remote) \|", text, re.MULTILINE)
    assert {(cls, int(code), fault) for code, cls, fault in with_code} == {
        (cls.__name__, cls.code, cls.fault)
        for cls in error_classes()
        if issubclass(cls, errors.ProtocolError)
    }
    assert set(without) == {
        (cls.__name__, cls.fault)
        for cls in error_classes()
        if not issubclass(cls, errors.ProtocolError)
    }


def error_classes() -> list[type[errors.DovetailError]]:
    """All classes that are raised: not the two base classes."""
    bases = (errors.DovetailError, errors.ProtocolError)
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, bases[0]) and value not in bases
    ]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = Counter(page for _, pages in read_nav() for page in pages)
    places = Counter(place_of(page.relative_to(ROOT).as_posix()) for page in PAGES)
    assert listed == places
