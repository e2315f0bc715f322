"""The Timeline panel: what happened when, and the messages of a range of time."""

from pathlib import Path

import pytest

from tests.browser import Page

from .actions import call, has, open_tool, wait_for_result
from .harness import inspected
from .raw_server import tool, write_server
from .test_hostile import EVIL, FOREIGN

SERVER = '''
import asyncio

from dovetail import Context, Server

server = Server("shop", version="1")
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}}


@server.tool
async def order(ctx: Context) -> str:
    """Ask how many."""
    return (await ctx.elicit("How many?", SCHEMA)).action


@server.tool
async def wait() -> None:
    """Never end."""
    await asyncio.Event().wait()


@server.tool(task="optional")
async def pack(ctx: Context) -> str:
    """Pack."""
    return "packed"


if __name__ == "__main__":
    server.run()
'''
SPANS = "[...document.querySelectorAll('#timeline .row')]"
ROWS = "[...document.querySelectorAll('#timeline .row')].map((one) => one.innerText)"
FILTER = "document.querySelector('.wire input[type=search]').value"
TO = "document.querySelectorAll('.seconds input')[1].value"


async def find_row(page: Page, *words: str) -> None:
    """Choose the row with these words."""
    words_text = list(words)
    await page.says(
        f"""[...document.querySelectorAll('#timeline .row')].find(
          (one) => {words_text}.every((word) => one.innerText.includes(word))).click()"""
    )
    await page.until(has(words[0], ".open-task h3"))


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_call_its_question_and_its_messages(tmp_path: Path, revision: str) -> None:
    path = tmp_path / "shop.py"
    path.write_text(SERVER)
    async with inspected(path, "--revision", revision, folder=tmp_path) as page:
        await open_tool(page, "order")
        await page.click("button.primary[data-key=c]")
        await page.click(".card button", text="Answer")
        await wait_for_result(page)
        await open_tool(page, "pack")
        await page.click(".options summary", text="Options")
        await page.click("#as-task")
        await call(page)
        await page.click(".tabs button", text="Timeline")
        await page.until(f"{ROWS}.some((one) => /pack[\\s]*task/.test(one))")
        await find_row(page, "order", "call")
        await page.until(has("question", ".open-task ul"))
        await page.click(".open-task button", text="Show its messages")
        assert (await page.says(FILTER)).startswith("at:")
        wire = "document.querySelector('.wire').innerText"
        await page.until(f"{wire}.includes('order') && !{wire}.includes('tools/list')")
        await page.click(".open-task button", text="Zoom to it")
        await page.until(f"!{ROWS}.some((one) => one.includes('tools/list'))")
        zoomed = await page.says(f"Number({TO})")
        await page.click("button", text="Zoom in")
        await page.until(f"Number({TO}) < {zoomed}")
        await page.click("button", text="Show all")
        await page.until(f"{ROWS}.some((one) => one.includes('tools/list'))")

        await page.click(".tabs button", text="Tools3")
        await open_tool(page, "wait")
        await page.click("button.primary[data-key=c]")
        await page.click(".result button", text="Cancel")
        await wait_for_result(page)
        await page.click("header button", text="Restart")
        await page.click(".tabs button", text="Timeline")
        await page.until(f"{ROWS}.filter((one) => one.includes('tools/list')).length === 2")
        # What was cancelled, or belongs to the process before, is over.
        open_spans = f"{SPANS}.filter((one) => one.querySelector('.open')).length"
        await page.until(f"{open_spans} <= 1")


async def test_a_range_is_dragged_and_labels_are_text(tmp_path: Path) -> None:
    server = write_server(tmp_path, [tool(EVIL)])
    async with inspected(server, folder=tmp_path) as page:
        await page.until("document.querySelector('.left .row')")
        await call(page)
        await page.click(".tabs button", text="Timeline")
        await page.until(has("<img src=x", "#timeline"))
        assert await page.says(FOREIGN) == 0
        box = await page.says(
            "(({ x, y, width }) => [x, y, width])("
            "document.querySelector('.axis').getBoundingClientRect())"
        )
        x, y, width = box
        end = float(await page.says(TO))
        for kind, at in (("Pressed", 0.0), ("Moved", 0.4), ("Released", 0.5)):
            await page.command(
                "Input.dispatchMouseEvent",
                type=f"mouse{kind}",
                x=x + 1 + width * at,
                y=y + 5,
                button="left",
                buttons=1,
                clickCount=1,
            )
        await page.until(f"Number({TO}) < {end}")
        await page.click("button", text="Filter the wire")
        assert (await page.says(FILTER)).startswith("at:0.0")
        await page.resize(320, 700)
        assert await page.says("document.body.scrollWidth <= innerWidth")
