"""The documentation site in a browser. `make docs` builds it; these tests look at what it built."""

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from scripts.docs_site import SITE, find_problems
from tests.browser import browser
from tests.docs.pages import PAGES, ROOT
from tests.system import needs_browser

SOURCES = [*PAGES, ROOT / "mkdocs.yml", *(ROOT / "docs" / "assets").iterdir()]
LOOKED_AT = (
    *("index.html", "tutorial.html", "how-to/database.html", "benchmarks.html"),
    *("reference/testing.html", "explanation/asking-by-replay.html", "learn/what-mcp-is.html"),
)
SEARCH = "document.activeElement?.shadowRoot"
WIDE, PHONE = (1280, 900), (390, 844)
pytestmark = pytest.mark.skipif(
    not (SITE / "llms.txt").is_file()
    or (SITE / "llms.txt").stat().st_mtime < max(file.stat().st_mtime for file in SOURCES),
    reason="site/ is missing, or older than the pages: run `make docs`",
)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    """The site on a loopback address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(SITE)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_no_link_is_dead_and_nothing_comes_from_another_host() -> None:
    assert list(find_problems()) == []


@needs_browser
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("name", LOOKED_AT)
async def test_a_page_is_accessible_and_fits_a_screen_and_a_phone(
    address: str, name: str, size: tuple[int, int]
) -> None:
    async with browser(*size) as page:
        await page.go(address + name)
        await page.until("document.querySelector('article h1')")
        assert await page.axe() == []
        width = "document.documentElement.scrollWidth"
        assert await page.says(f"{width} <= innerWidth")
        assert page.console == []
        assert all(url.startswith((address, "data:")) for url in await page.requests())


@needs_browser
async def test_search_finds_a_page_without_a_network(address: str) -> None:
    async with browser(*WIDE) as page:
        await page.go(address)
        await page.click(".md-search__button")
        await page.until(f"{SEARCH}?.activeElement?.type === 'text'")
        await page.type("elicit")
        links = f"[...({SEARCH}?.querySelectorAll('a') ?? [])].map((link) => link.href)"
        assert await page.until(f"{links}.some((url) => url.endsWith('#dovetail.Context.elicit'))")
        assert all(url.startswith((address, "data:", "blob:")) for url in await page.requests())


@needs_browser
async def test_the_commands_of_a_console_block_can_be_copied_and_pasted(address: str) -> None:
    async with browser(*WIDE) as page:
        await page.go(address + "learn/test-it.html")
        await page.until("document.querySelector('.gp')")
        keep = "({ target }) => { window.copied = target.value }"
        await page.says(f"addEventListener('copy', {keep})")
        await page.click("pre:has(.gp) [data-md-type=copy]")
        assert await page.until("window.copied") == "python -m pytest -q"


@needs_browser
async def test_the_colours_can_be_switched(address: str) -> None:
    async with browser(*WIDE) as page:
        await page.go(address)
        scheme = "document.body.dataset.mdColorScheme"
        await page.click("label[title='Switch to light colours']")
        assert await page.until(f"{scheme} === 'default'")
        await page.click("label[title='Switch to dark colours']")
        assert await page.until(f"{scheme} === 'slate'")
