"""On a narrow screen, and with a large zoom, there is one column, and nothing is cut off."""

from pathlib import Path

import pytest

from .actions import call, has
from .harness import inspected
from .raw_server import object_of, tool, write_server

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def write(folder: Path) -> Path:
    schema = object_of(
        ["a_rather_long_name_of_a_field"],
        a_rather_long_name_of_a_field={"type": "string", "description": "word " * 40},
        list={"type": "array", "items": object_of(x={"type": "integer"})},
    )
    return write_server(folder, [tool("say", schema, description="x" * 400)])


@pytest.mark.parametrize(("width", "height", "scale"), [(320, 640, 1), (1280, 800, 2)])
async def test_one_column_shows_the_list_the_tool_and_the_wire(
    tmp_path: Path, width: int, height: int, scale: int
) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await page.resize(width // scale, height // scale, scale)
        await page.until("document.querySelector('.left .row')")
        assert await page.says(OVERFLOW) <= 0
        await page.click(".left [role=option]")
        assert await page.until("document.querySelector('.left').checkVisibility() === false")
        await page.fill("#arguments--a_rather_long_name_of_a_field", "x")
        await call(page)
        assert await page.says(OVERFLOW) <= 0
        problems = await page.axe()
        assert problems == []
        await page.click(".tabs button", text="Wire")
        await page.until("document.querySelector('.middle').checkVisibility() === false")
        await page.click(".wire .row")
        assert await page.until(has("Request", ".detail"))
        assert await page.says(OVERFLOW) <= 0
        await page.click(".tabs button:first-child")
        assert await page.until("document.querySelector('.left').checkVisibility()")


async def test_the_open_tab_is_in_view(tmp_path: Path) -> None:
    box = "document.querySelector('.tabs [aria-current]')?.getBoundingClientRect()"
    in_view = f"{box}?.left >= 0 && {box}.right < innerWidth + 1"
    async with inspected(write(tmp_path), folder=tmp_path, width=320, height=640) as page:
        await page.until("document.querySelector('.left .row')")
        await page.press("[")
        assert await page.until(
            f"document.querySelector('.middle').ariaLabel.startsWith('Load') && {in_view}"
        )
        await page.command("Page.reload")
        assert await page.until(f"document.querySelector('.tabs .count') && {in_view}")
        await page.resize(1280, 800)
        await page.until("document.querySelector('.tabs').scrollLeft === 0")
        await page.resize(320, 640)
        assert await page.until(in_view), "also if the window becomes narrow"


async def test_nothing_moves_if_motion_is_reduced(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await page.reduce_motion()
        await page.until("document.querySelector('.left .row')")
        assert await page.says("document.getAnimations().length") == 0
