"""The Compare panel: one request in every revision, and one call before and after a restart.

With `DOVETAIL_PICTURES=1` (`make pictures`), the picture of the guide is made again.
"""

import json
from pathlib import Path

from tests.browser import Page

from .actions import call, choose, has, open_tool
from .harness import inspected
from .pictures import take_picture
from .raw_server import tool, write_server

SERVER = '''
from msgspec import Struct

from dovetail import Server, ToolAnnotations

server = Server("shop", version="1.2.3")


class Receipt(Struct):
    items: int
    total: float


@server.tool(title="Order items", annotations=ToolAnnotations(read_only_hint=False))
def order(items: int = 3) -> Receipt:
    """Order items."""
    return Receipt(items, items * 2.5)


@server.tool(title="Return items")
def refund(items: int = 1) -> Receipt:
    """Return items."""
    return Receipt(items, items * -2.5)


@server.tool(title="List orders")
def orders() -> list[Receipt]:
    """List all orders."""
    return [Receipt(3, 7.5)]


if __name__ == "__main__":
    server.run()
'''
REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
CELLS = """Object.fromEntries([...document.querySelectorAll(".differences tbody tr")].map((row) =>
  [row.querySelector("th code").textContent,
   [...row.querySelectorAll("td")].map((one) => one.innerText.trim())]))"""
CATCH = "navigator.clipboard.writeText = async (text) => void (window.copied = text)"
HEADS = """[...document.querySelectorAll(".differences thead th .revision")]
  .filter((one) => one.offsetParent !== null).map((one) => one.textContent)"""


def write(folder: Path, text: str = SERVER) -> Path:
    path = folder / "server.py"
    path.write_text(text)
    return path


async def choose_request(page: Page, label: str) -> None:
    """Choose a request, once the lists have been read."""
    options = "[...document.querySelectorAll('#compare-choose option')]"
    await page.until(f"{options}.some((one) => one.text === {label!r})")
    await choose(page, "#compare-choose", label)


async def press_compare(page: Page, params: str) -> None:
    """Compare, once the editor shows the parameters. This does not use the mouse, because what is
    above the button may still change its height."""
    await page.until(f"document.querySelector('#compare-params')?.value.includes({params!r})")
    await page.until("document.querySelector('.compare button.primary:enabled')")
    await page.says("document.querySelector('.compare button.primary').click()")


async def compare(page: Page, params: str = "{}") -> None:
    """Compare, and wait until all revisions have ended."""
    await press_compare(page, params)
    await page.until(
        "document.querySelector('.compared') && !document.querySelector('.compared-columns')"
        ".innerText.includes('running') && !document.querySelector('.compare .primary').disabled"
    )


async def test_a_call_shows_which_fields_each_revision_loses(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await open_tool(page, "order")
        await page.fill("#arguments--items", "4")
        await page.click("button", text="Compare revisions")
        await page.until(has("not marked read-only", ".compare"))
        await compare(page, "order")
        cells = await page.says(CELLS)
        assert cells["$.structuredContent"][1:] == ["same", "same", "lost", "lost"]
        assert '"total":10' in cells["$.structuredContent"][0]
        assert await page.says(HEADS) == REVISIONS
        announced = "document.querySelector('.sr[role=status]').textContent"
        assert "2024-11-05 1 lost" in await page.until(announced)
        newer = await page.says("document.querySelectorAll('.differences th')[2].innerText")
        assert "same" in newer and "except 2 protocol fields" in newer
        await take_picture(page, "inspector-compare")


async def test_columns_are_hidden_and_the_rest_is_copied(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await page.click(".tabs button", text="Compare")
        await choose_request(page, "tools/list")
        await compare(page)
        assert "$.tools[*].title" in await page.says(CELLS), "the same in three tools"
        await page.click(".differences .fold")
        await page.until(has("$.tools[refund]", ".differences"))
        toggles = "[...document.querySelectorAll('.segments.wide button')]"
        labels = await page.says(f"{toggles}.map((one) => one.innerText)")
        assert labels == REVISIONS[1:], "the base is always shown"
        await page.click(".segments button", text="2025-11-25")
        await page.click(".segments button", text="2025-03-26")
        left = [one for one in REVISIONS if one not in ("2025-11-25", "2025-03-26")]
        assert await page.says(HEADS) == left
        await page.says(CATCH)
        await page.click("button", text="Copy as Markdown")
        copied = await page.until("window.copied")
        assert "`tools/list` with `{}`" in copied
        assert f"|  | {' | '.join(left)} |" in copied and "2025-03-26" not in copied
        await page.says("window.copied = null")
        await page.click("button", text="Copy as JSON")
        copied = json.loads(await page.until("window.copied"))
        assert [one["label"] for one in copied["columns"]] == left
        await page.click(".compared summary", text="4 messages")
        await page.until(has("server/discover", ".compared"))


async def test_a_saved_call_is_compared(tmp_path: Path) -> None:
    calls = {"calls": [{"name": "four items", "tool": "order", "arguments": {"items": 4}}]}
    (tmp_path / ".dovetail").mkdir()
    (tmp_path / ".dovetail" / "calls.json").write_text(json.dumps(calls))
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await page.click(".tabs button", text="Compare")
        await choose_request(page, "four items")
        await compare(page, '"items": 4')
        assert '"total":10' in (await page.says(CELLS))["$.structuredContent"][0]


async def test_a_comparison_survives_a_reload_and_can_be_cancelled(tmp_path: Path) -> None:
    slow = SERVER.replace(
        "    return Receipt(items, items * 2.5)", "    import time; time.sleep(99)"
    )
    async with inspected(write(tmp_path, slow), folder=tmp_path) as page:
        await open_tool(page, "order")
        await page.click("button", text="Compare revisions")
        await press_compare(page, "order")
        await page.until(has("running", ".differences"))
        await page.command("Page.reload")
        await page.until(has("running", ".differences"))
        assert await page.says("document.querySelector('#compare-method').value") == "tools/call"
        await page.click("button", text="Cancel")
        await page.until(has("cancelled", ".differences"))


async def test_a_server_of_one_revision_is_compared_with_nothing(tmp_path: Path) -> None:
    path = write_server(tmp_path, [tool("say")])
    script = path.read_text().replace('params["protocolVersion"]', '"2025-06-18"')
    path.write_text(script)
    async with inspected(path, folder=tmp_path) as page:
        await page.click(".tabs button", text="Compare")
        await choose_request(page, "tools/list")
        await compare(page)
        await page.until(has("does not answer in 2026-07-28, 2025-11-25, 2025-03-26", ".compare"))
        await page.until(has("Only one revision: nothing to compare.", ".compare"))
        assert await page.says("document.querySelector('.segments.wide, .differences')") is None
        await page.until(has("Sends the request once.", ".compare"))
        options = "[...document.querySelectorAll('header select option')].map((one) => one.value)"
        assert await page.says(options) == ["2025-06-18"]


async def test_the_selector_shows_what_the_server_answers_in(tmp_path: Path) -> None:
    path = write_server(tmp_path, [tool("say")])
    async with inspected(path, folder=tmp_path) as page:
        await page.until(has("Connected", "header"))
        options = "[...document.querySelectorAll('header select option')].map((one) => one.value)"
        assert await page.until(options) == REVISIONS, "until it is known"
        await page.click("header h1")
        await page.press("Tab")
        await page.until(f"{options}.length === 4")
        assert await page.says(options) == REVISIONS[1:]


async def test_a_call_is_compared_before_and_after_a_restart(tmp_path: Path) -> None:
    path = write(tmp_path)
    async with inspected(path, folder=tmp_path) as page:
        await open_tool(page, "order")
        await call(page)
        await page.click(".tabs button", text="Compare")
        await page.click("button", text="Before and after a restart")
        await page.until(has("Call a tool, change the server", ".compare"))
        path.write_text(SERVER.replace("items * 2.5", "items * 3.0"))
        await page.click("header button", text="Restart")
        await page.until(has("not sent since the last restart", ".compare"))
        await page.until(has("Connected", "header"))
        await page.click("button.primary", text="Call it now c")
        await page.until(has("changed", ".differences"))
        cells = await page.says(CELLS)
        assert cells["$.structuredContent.total"][0].startswith("7.5")
        assert cells["$.structuredContent.total"][1].split() == ["changed", "9.0"]


LOGIN = SERVER.replace("return Receipt(items, items * 2.5)", "return {'token': 'hunter2'}").replace(
    "def order(items: int = 3) -> Receipt:", "def order(password: str) -> dict[str, str]:"
)


async def test_credentials_are_masked_in_both_views(tmp_path: Path) -> None:
    async with inspected(write(tmp_path, LOGIN), folder=tmp_path) as page:
        await open_tool(page, "order")
        await page.fill("#arguments--password", "hunter2")
        await call(page)
        await page.click("button", text="Compare revisions")
        await compare(page, "order")
        await copy_masked(page)
        await page.click("button", text="Before and after a restart")
        await page.click("header button", text="Restart")
        await page.until(has("not sent since the last restart", ".compare"))
        await copy_masked(page)
        await page.until(has("Connected", "header"))
        await page.click("button.primary", text="Call it now c")
        await page.until(has("after", ".compared-columns"))
        await copy_masked(page)


async def copy_masked(page: Page) -> None:
    """Copy the comparison in both forms, and check that its credentials are masked."""
    await page.says(CATCH)
    for form in ("Markdown", "JSON"):
        await page.says("window.copied = null")
        await page.click("button", text=f"Copy as {form}")
        copied = await page.until("window.copied")
        assert "hunter2" not in copied and "***" in copied, copied


async def test_a_narrow_screen_shows_one_column_at_a_time(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path, width=600) as page:
        await page.until("document.querySelector('.tabs .count')")  # nothing moves any more
        await page.click(".tabs button", text="Compare")
        await choose_request(page, "tools/list")
        await compare(page)
        assert await page.until(f"({HEADS})[0] === '2024-11-05' && ({HEADS}).length") == 1
        await choose(page, ".compare .narrow select", "2025-06-18")
        assert await page.until(f"({HEADS})[0] === '2025-06-18' && ({HEADS}).length") == 1
        assert await page.says("document.documentElement.scrollWidth <= innerWidth")
