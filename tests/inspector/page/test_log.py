"""The Log panel: the stderr and the log messages of the server."""

from pathlib import Path

from tests.browser import Page

from .harness import inspected

SERVER = '''
import sys

from dovetail import Context, Server, ToolError

server = Server("chatty", version="1")
print("    started \\u202e", file=sys.stderr, flush=True)


@server.tool
async def talk(ctx: Context) -> str:
    """Log something."""
    await ctx.info("quiet words")
    await ctx.error("loud words")
    raise ToolError("done")


if __name__ == "__main__":
    server.run()
'''
COUNT = "document.querySelectorAll('[aria-label=\"Log entries\"] li').length"


async def text(page: Page, words: str) -> None:
    await page.until(f"document.body.innerText.includes({words!r})")


async def test_entries_are_filtered_searched_and_kept_across_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    async with inspected(path, folder=tmp_path) as page:
        await text(page, "talk")
        await page.click("[role=option]")
        await page.click("article button.primary")
        await text(page, "done")
        await page.click(".result button", text="log")
        await text(page, "loud words")
        await text(page, "    started")
        assert await page.says("document.querySelector('article .invisible').innerText") == "U+202E"
        await page.fill("article input[type=search]", "quiet")
        await page.until(f"{COUNT} === 1")
        await page.fill("article input[type=search]", "")
        await page.until(f"{COUNT} === 3")
        await page.click("header button", text="Restart")
        await page.until(f"{COUNT} === 4")
        await page.until("document.getElementById('log-level').disabled === false")
        await page.says(
            "{ const s = document.getElementById('log-level'); s.value = 'error';"
            " s.dispatchEvent(new Event('change', { bubbles: true })); true }"
        )
        await page.until("document.getElementById('log-level').value === 'error'")
