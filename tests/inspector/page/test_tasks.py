"""The Tasks panel: one board for both forms of tasks."""

import json
from pathlib import Path

import pytest

from tests.browser import Page

from .actions import has, open_tool
from .harness import inspected
from .test_hostile import EVIL, FOREIGN, MARKS

SERVER = f'''
import asyncio

from dovetail import Context, Server
from dovetail.errors import InvalidParams
from dovetail.limits import Limits

server = Server("kitchen", version="1", limits=Limits(task_poll=0.1))
SCHEMA = {{"type": "object", "properties": {{"salt": {{"type": "integer"}}}}, "required": ["salt"]}}


@server.tool(task="optional")
async def season(ctx: Context) -> str:
    """Ask how much."""
    answer = await ctx.elicit("How much salt?", SCHEMA)
    return f"{{answer.action}} {{answer.data}}"


@server.tool(task="optional")
async def simmer(ctx: Context) -> str:
    """Cook until it is cancelled."""
    await ctx.progress(1, 2, {json.dumps(EVIL)})
    await asyncio.sleep(3600)
    return "never"


@server.tool(task="optional")
async def burn() -> str:
    """Fail."""
    raise InvalidParams("There is smoke")


if __name__ == "__main__":
    server.run()
'''
TAB = "[...document.querySelectorAll('.tabs button')].find((one) => /^Tasks/.test(one.innerText))"


@pytest.fixture
def kitchen(tmp_path: Path) -> Path:
    path = tmp_path / "kitchen.py"
    path.write_text(SERVER)
    return path


def column(title: str) -> str:
    return f".board section[aria-label='{title}']"


async def start(page: Page, tool: str) -> None:
    """Call a tool as a task, and open the board."""
    await page.click(".tabs button:first-child")
    await open_tool(page, tool)
    await page.click(".options summary", text="Options")
    await page.click("#as-task")
    await page.click("button.primary[data-key=c]")
    await page.says(f"{TAB}.click()")
    await page.until(has(tool, ".board"))


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_task_asks_is_answered_and_survives_a_reload(kitchen: Path, revision: str) -> None:
    async with inspected(kitchen, "--revision", revision, folder=kitchen.parent) as page:
        await start(page, "season")
        await page.until(has("season", column("Input required")))
        await page.until(f"{TAB}.innerText === 'Tasks1'")
        await page.until(has("How much salt?", ".card"))
        await page.click(".open-task button", text="Answer")
        await page.until("document.activeElement.closest('.card') !== null")
        await page.fill(".card input.line", "3")
        await page.click(".card button", text="Answer")
        await page.until(has("season", column("Done")))
        await page.until(has("accept", ".open-task .result"))
        await page.click(".open-task button", text="Get the result")
        await page.until("document.querySelector('.result').dataset.call === '2'")
        await page.until(has("accept", ".open-task .result"))
        await page.says("location.reload()")
        await page.until(has("season", column("Done")))
        await page.until(has("accept", ".open-task .result"))
        await page.until(has("polls", ".open-task dl"))


async def test_tasks_fail_are_cancelled_and_their_messages_are_text(kitchen: Path) -> None:
    async with inspected(kitchen, "--revision", "2025-11-25", folder=kitchen.parent) as page:
        await start(page, "burn")
        await page.until(has("burn", column("Failed")))
        await page.until(has("There is smoke", ".open-task .result"))
        await start(page, "simmer")
        await page.until(has("<b>bold</b>", column("Working")))
        for mark in MARKS:
            assert await page.says(has(mark, ".open-task"))
        assert await page.says(FOREIGN) == 0
        assert await page.says("document.body.scrollWidth <= innerWidth")
        await page.click(".open-task > .bar button", text="Cancel")
        await page.until(has("cancelled", column("Failed")))
        await page.until(has("simmer", column("Failed")))
        assert await page.says(f"{TAB}.innerText === 'Tasks'")
        await page.resize(320, 700)
        await page.until(has("simmer", column("Failed")))
        assert await page.says("document.body.scrollWidth <= innerWidth")


async def test_a_server_without_tasks_says_so(server: Path) -> None:
    async with inspected(server, folder=server.parent) as page:
        await page.click(".tabs button", text="Tasks")
        await page.until(has("This server does not run calls as tasks.", ".middle"))
