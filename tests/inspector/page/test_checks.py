"""The Checks panel: the findings of `dovetail check`, and what the project accepts."""

from pathlib import Path

from dovetail.inspector.checks import parse_ignores
from tests.browser import Page

from .harness import inspected

SERVER = '''
from dovetail import Server

server = Server("web", version="1")


@server.tool
def fetch(url: str = "https://example.com/") -> str:
    """Fetch a page."""
    return url


@server.tool(name="a.b", description="Dotted \\u202e.")
def dotted() -> str:
    return ""


if __name__ == "__main__":
    server.run()
'''


async def text(page: Page, words: str) -> None:
    await page.until(f"document.body.innerText.includes({words!r})")


async def test_findings_are_shown_worst_first_linked_and_ignored_with_a_reason(
    tmp_path: Path,
) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    file = tmp_path / ".dovetail" / "check.toml"
    file.parent.mkdir()
    file.write_text("# ours\n[[ignore]]\nrule = 'name-dot'")
    async with inspected(path, folder=tmp_path, XDG_STATE_HOME=str(tmp_path / "state")) as page:
        await page.click(".tabs button", text="Checks")
        await text(page, "invisible-characters")
        heads = "[...document.querySelectorAll('article h3')].map((one) => one.innerText)"
        assert await page.says(heads) == ["a.b tool", "fetch tool", "Server"]
        assert not await page.says("document.body.innerText.includes('name-dot')")
        await page.click("button[aria-label='Ignore default-url']")
        await page.until("document.activeElement.matches('article input.line')")
        await page.click("button", text="Cancel")
        await page.until("document.activeElement.ariaLabel === 'Ignore default-url'")
        await page.press("Enter")
        await page.until("document.activeElement.matches('article input.line')")
        await page.type("our own API")
        await page.click("button", text="Ignore for this tool")
        await page.until("!document.body.innerText.includes('default-url')")
        await text(page, "2 ignored")
        assert file.read_text().startswith("# ours\n[[ignore]]\nrule = 'name-dot'\n\n[[ignore]]\n")
        added = parse_ignores(file.read_text())[-1]
        assert (added.rule, added.tool, added.reason) == ("default-url", "fetch", "our own API")
        await page.click("article h3 button", text="fetch")
        await text(page, "Fetch a page.")
        await page.click(".tabs button", text="Checks")
