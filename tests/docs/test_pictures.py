"""The pictures of the documentation: each has a source, tells the truth, and can be read by all."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.report import CHART
from scripts.picture_parts import write_svg
from scripts.pictures import FOLDER, LAYERS, PICTURES
from tests.architecture.test_imports import MAY_IMPORT
from tests.browser import browser
from tests.docs.pages import PAGES, ROOT
from tests.system import needs_browser

SVG = "{http://www.w3.org/2000/svg}"
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+\.(?:svg|png))\)")
TAKEN = re.compile(r'take_picture\(page, "([\w-]+)"\)')
MISPLACED = """(() => {
  const texts = [...document.querySelectorAll("text")];
  const box = (one) => one.getBoundingClientRect();
  const isInside = (one, other) => one.left >= other.left && one.right <= other.right
    && one.top >= other.top && one.bottom <= other.bottom;
  const meet = (one, other) => one.left < other.right && other.left < one.right
    && one.top + 3 < other.bottom && other.top + 3 < one.bottom;
  const paper = document.querySelector(".paper");
  const outside = texts.filter((one) =>
    !isInside(box(one), box(one.parentNode.querySelector("rect") ?? paper)));
  const overlapping = texts.filter((one, at) =>
    texts.slice(at + 1).some((other) => meet(box(one), box(other))));
  return [...outside, ...overlapping].map((one) => one.textContent);
})()"""
each_picture = pytest.mark.parametrize("name", PICTURES)


def shown_pictures() -> Iterator[tuple[Path, str, Path]]:
    """The page, the alternative text and the file of each picture that a page shows."""
    for page in PAGES:
        for text, target in SHOWN.findall(page.read_text(encoding="utf-8")):
            yield page, text, (page.parent / target).resolve()


@each_picture
def test_a_picture_is_what_its_function_draws(name: str) -> None:
    drawn = write_svg(PICTURES[name]())
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn, "run `make pictures`"


def test_every_picture_has_a_source_and_every_source_is_shown_on_a_page() -> None:
    tests = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    taken = {FOLDER / f"{name}.png" for test in tests for name in TAKEN.findall(test)}
    drawn = {FOLDER / f"{name}.svg" for name in PICTURES}
    assert {file for _, _, file in shown_pictures()} == taken | drawn | {CHART}
    assert {*FOLDER.iterdir()} == taken | drawn


def test_every_picture_has_an_alternative_text() -> None:
    assert [f"{page.name}: {file.name}" for page, text, file in shown_pictures() if not text] == []


@each_picture
def test_a_picture_describes_itself_and_loads_nothing(name: str) -> None:
    drawn = write_svg(PICTURES[name]())
    root = ElementTree.fromstring(drawn)
    for part in ("title", "desc"):
        found = root.find(f"{SVG}{part}")
        assert found is not None and found.text
    assert "prefers-color-scheme: dark" in drawn
    assert not re.search(r"href|@import|@font-face|url\((?!#)", drawn)


def test_the_layers_import_only_what_is_below_them() -> None:
    above: set[str] = set()
    for row in LAYERS:
        names = {name for name, _ in row}
        above |= names
        for name in names:
            assert MAY_IMPORT[name].isdisjoint(above - {name}), name


@needs_browser
async def test_all_texts_fit_into_their_boxes_and_none_covers_another() -> None:
    async with browser(800, 800) as page:
        for name in PICTURES:
            await page.go((FOLDER / f"{name}.svg").as_uri())
            await page.until(f"document.querySelector('title')?.textContent === {title_of(name)!r}")
            assert await page.says(MISPLACED) == [], name


def title_of(name: str) -> str:
    return PICTURES[name]().title
