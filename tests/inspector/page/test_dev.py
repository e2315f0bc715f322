"""`dovetail dev` on the page: what stays over a restart, and what a restart says.

With `DOVETAIL_PICTURES=1` (`make pictures`), the pictures of the guide are made again.
"""

from pathlib import Path

import pytest

from tests.browser import Page

from .actions import call, has
from .harness import SERVER, inspected
from .pictures import MAX_PICTURE_BYTES, PICTURES, take_picture

SUBTRACT = '''

@server.tool
def subtract(a: int, b: int) -> int:
    """Subtract a number from another."""
    return a - b
'''
MORE = SERVER.replace("\n\nif __name__", f"{SUBTRACT}\n\nif __name__")
BROKEN = SERVER.replace("return a + b", "return a +")


def save(path: Path, text: str) -> None:
    """Save a file as editors do."""
    other = path.with_suffix(".tmp")
    other.write_text(text)
    other.replace(path)


async def text(page: Page, words: str) -> None:
    """Wait until the page shows some words."""
    await page.until(f"document.body.innerText.includes({words!r})")


async def test_a_form_stays_filled_in_over_a_restart_that_says_what_changed(server: Path) -> None:
    async with inspected(server, command="dev", folder=server.parent) as page:
        await text(page, "add")
        await page.click("[role=option]")
        await page.fill("input.number", "40")
        save(server, MORE)
        await text(page, "+1 tool: subtract")
        assert await page.says("document.querySelector('input.number').value") == "40"
        announced = await page.says("document.querySelector('.sr[role=status]').textContent")
        assert "+1 tool: subtract" in announced
        await text(page, "server.py changed. Restarted in")
        shown = await page.says("document.querySelector('.middle').innerText")
        assert shown.count("+1 tool: subtract") == 1
        await take_picture(page, "inspector-restart")


async def test_a_restart_by_hand_says_what_changed_on_every_panel(server: Path) -> None:
    async with inspected(server, folder=server.parent) as page:
        await text(page, "add")
        await call(page)
        await page.click(".tabs button", text="Log")
        save(server, MORE)
        await page.click("header button", text="Restart")
        await page.until("document.querySelector('.restarted')?.innerText === '+1 tool: subtract'")
        await page.click("header button", text="Restart")
        await page.until("!document.querySelector('.restarted')")
        await page.click(".tabs button", text="Tools2")
        await page.until(has("before the restart", ".result"))


async def test_a_traceback_is_shown_until_the_file_is_repaired(server: Path) -> None:
    async with inspected(server, command="dev", folder=server.parent) as page:
        await text(page, "add")
        save(server, BROKEN)
        await text(page, "SyntaxError")
        await text(page, "Correct the file and save it")
        assert await page.axe() == []
        assert await page.says("document.body.innerText.includes('add')"), "the last lists stay"
        assert await page.says("document.querySelector('.middle [data-key=c]').disabled")
        await page.click(".wire .row")
        await page.click(".detail button[data-key=r]")
        await text(page, "not connected. Correct the file and save it")
        page.console.clear()
        save(server, MORE)
        await text(page, "+1 tool: subtract")
        assert not await page.says("document.body.innerText.includes('SyntaxError')")
        assert await page.says("document.querySelector('.notice')") is None
        await page.until("document.querySelector('.middle [data-key=c]:enabled')")


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.png")), ids=lambda path: path.name)
def test_a_picture_is_small(picture: Path) -> None:
    assert picture.stat().st_size < MAX_PICTURE_BYTES
