"""The Resources panel: the tree, templates, contents by type, subscriptions, and hostile text."""

import json
from pathlib import Path

import pytest

from tests.browser import Page

from .actions import assert_narrow, call, has, open_panel, open_row
from .harness import inspected
from .raw_server import write_server
from .test_hostile import EVIL, FOREIGN, LINK, MARKS
from .test_tools import PIXEL, WAV

REVISIONS = ["2024-11-05", "2026-07-28"]
SERVER = f'''
import base64
from dovetail import Server

server = Server("library", version="1")


@server.resource("notes://home/one", title="The first note")
def one() -> str:
    """A note."""
    return "first"


@server.resource("notes://home/lists/shopping", mime_type="application/json")
def shopping() -> str:
    return '{{"items": 12345678901234567890}}'


@server.resource("notes://home/lists/todo.html", mime_type="text/html")
def todo() -> str:
    return "<b>do</b>"


@server.resource("art://pixel.png", mime_type="image/png")
def pixel() -> bytes:
    return base64.b64decode("{PIXEL}")


@server.resource("art://sound.wav", mime_type="audio/wav")
def sound() -> bytes:
    return base64.b64decode("{WAV}")


@server.resource("art://data.bin", mime_type="application/zip")
def data() -> bytes:
    return b"PK\\x03\\x04 data"


@server.resource("cities://{{country}}/{{city}}")
def weather(country: str, city: str) -> str:
    return f"Rain in {{city}}, {{country}}"


weather.complete("country", ["France", "Finland", "Peru"])


@server.tool
def change() -> None:
    server.notify_resource_updated("notes://home/one")


if __name__ == "__main__":
    server.run()
'''
HEADINGS = "[...document.querySelectorAll('.left .heading')].map((one) => one.innerText)"
OPTIONS = "document.querySelectorAll('.left [role=option]').length"
SUGGESTED = (
    "[...document.querySelectorAll('.suggestions [role=option]')].map((one) => one.innerText)"
)
CHANGE = "import('/static/store.js').then((one) => one.run('call', {tool: 'change'}))"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


async def read(page: Page, uri: str) -> None:
    """Open a listed resource, and read it."""
    await open_row(page, uri, uri)
    await call(page)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_resource_is_read_followed_and_read_again(library: Path, revision: str) -> None:
    async with inspected(library, "--revision", revision, folder=library.parent) as page:
        await open_panel(page, "Resources")
        await read(page, "notes://home/one")
        assert await page.until(has("first", ".result"))
        assert await page.says(has("A note.", ".description"))
        await page.click("button", text="Subscribe")
        assert await page.until(has("Subscribed. No changes yet."))
        await page.says(CHANGE)
        assert await page.until(has("Changed once, last at", ".actions"))
        assert await page.until(has("Read again", ".actions"))
        await page.says(CHANGE)
        assert await page.until(has("Changed 2 times", ".actions"))
        assert await page.until("document.querySelector('.left .row .tag')?.innerText === '2'")
        await call(page)
        assert await page.until(f"!({has('Read again', '.actions')})")
        await page.click("button", text="Unsubscribe")
        await page.until("document.querySelector('.actions [aria-pressed=false]')")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_template_is_completed_and_read_with_the_keyboard(
    library: Path, revision: str
) -> None:
    async with inspected(library, "--revision", revision, folder=library.parent) as page:
        await open_panel(page, "Resources")
        await open_row(page, "cities", "cities://{country}/{city}")
        await page.click("#variables-0")
        assert await page.until(f"{SUGGESTED}.length === 3")
        await page.type("f")
        assert await page.until(f"{SUGGESTED}.length === 2")
        field = "document.querySelector('#variables-0')"
        assert await page.says(f"{field}.ariaExpanded") == "true"
        await page.press("ArrowDown")
        await page.press("ArrowDown")
        active = "document.getElementById(document.activeElement.getAttribute("
        active += "'aria-activedescendant')).innerText"
        assert await page.says(active) == "Finland"
        assert await page.axe() == []
        await page.press("Enter")
        assert await page.until(f"{field}.value") == "Finland"
        assert await page.until(f"{field}.ariaExpanded") == "false"
        await page.fill("#variables-1", "Åbo 1")
        assert await page.until(has("cities://Finland/%C3%85bo%201", "[data-uri]"))
        await page.press("Control+Enter")
        assert await page.until(has("Rain in Åbo 1, Finland", ".result"))
        await page.fill("#variables-1", "Oulu")
        await page.press("Control+Enter")  # before the page shows the new URI
        assert await page.until(has("Rain in Oulu, Finland", ".result"))
        await page.command("Page.reload")
        await open_row(page, "cities", "cities://{country}/{city}")
        assert await page.until(f"{field}?.value === 'Finland'")


async def test_escape_closes_the_suggestions_and_keeps_the_field(library: Path) -> None:
    async with inspected(library, folder=library.parent) as page:
        await open_panel(page, "Resources")
        await open_row(page, "cities", "cities://{country}/{city}")
        await page.click("#variables-0")
        assert await page.until(f"{SUGGESTED}.length === 3")
        await page.press("Escape")
        assert await page.until(f"{SUGGESTED}.length === 0")
        assert await page.says("document.activeElement.id") == "variables-0"
        await page.press("ArrowDown")
        await page.until(f"{SUGGESTED}.length === 3")
        await page.click(".suggestions [role=option]", text="Peru")
        assert await page.until("document.activeElement.value") == "Peru"


async def test_contents_are_shown_by_their_type(library: Path) -> None:
    async with inspected(library, folder=library.parent) as page:
        await open_panel(page, "Resources")
        await read(page, "notes://home/lists/shopping")
        assert await page.until(has("12345678901234567890", ".result .json"))
        await read(page, "notes://home/lists/todo.html")
        assert await page.until(has("<b>do</b>", ".result"))
        await read(page, "art://pixel.png")
        assert await page.until("document.querySelector('.result img')?.naturalWidth") == 1
        await read(page, "art://sound.wav")
        await page.until("document.querySelector('.result audio')?.src.startsWith('data:audio')")
        await read(page, "art://data.bin")
        assert await page.until(has("Binary data, which the page does not show.", ".result"))
        assert await page.says(has("9 B", ".result"))


KEEP_SAVED = """(() => {
  const create = URL.createObjectURL;
  URL.createObjectURL = (blob) => ((window.saved = { blob }), create.call(URL, blob));
  HTMLAnchorElement.prototype.click = function () { window.saved.name = this.download; };
})()"""
SAVED = """saved.blob.arrayBuffer().then(
  (data) => [saved.name, saved.blob.type, ...new Uint8Array(data)])"""


async def test_a_file_can_be_saved(library: Path) -> None:
    async with inspected(library, folder=library.parent) as page:
        await open_panel(page, "Resources")
        await read(page, "art://data.bin")
        await page.says(KEEP_SAVED)
        await page.click(".result button", text="Download")
        await page.until("window.saved?.name")
        name, media_type, *data = await page.says(SAVED)
        assert (name, media_type) == ("data.bin", "application/octet-stream")
        assert bytes(data) == b"PK\x03\x04 data"


async def test_the_list_is_a_tree_by_uri(library: Path) -> None:
    async with inspected(library, folder=library.parent) as page:
        await open_panel(page, "Resources")
        await page.until(f"{OPTIONS} === 7")
        assert [one.split() for one in await page.says(HEADINGS)] == [
            ["notes://home", "3"],
            ["lists", "2"],
            ["art://", "3"],
            ["Templates", "1"],
        ]
        await page.fill(".left input[type=search]", "SHOP")
        assert await page.until(f"{OPTIONS} === 1")
        await page.fill(".left input[type=search]", "nothing has this name")
        assert await page.until(has("No resource matches.", ".left"))
        await page.fill(".left input[type=search]", "cities://France/Pau")
        await page.click(".left [role=option]")
        assert await page.until(has("The server does not list this URI.", ".middle"))
        await call(page)
        assert await page.until(has("Rain in Pau, France", ".result"))


async def test_a_server_without_resources_says_so(server: Path) -> None:
    async with inspected(server, folder=server.parent) as page:
        await open_panel(page, "Resources")
        assert await page.until(has("The server offers no resources.", ".left"))
        assert await page.until(has("Enter a URI on the left to read it.", ".middle"))


HOSTILE = {
    "resources/list": {
        "resources": [
            {"uri": LINK, "name": EVIL, "title": EVIL, "description": EVIL, "mimeType": EVIL},
            {"uri": f"x://{EVIL}/{EVIL}", "name": EVIL, "size": "big", "annotations": EVIL},
            {"uri": "__proto__://constructor/__proto__", "name": "__proto__"},
            {"uri": f"deep://{'a/' * 5000}", "name": "deep"},
            {"uri": 7},
            {},
        ]
    },
    "resources/templates/list": {
        "resourceTemplates": [
            {"uriTemplate": "bad://{", "name": EVIL, "description": EVIL},
            {"uriTemplate": "ok://{__proto__}{/constructor*}", "name": "ok"},
        ]
    },
    "resources/read": {
        "contents": [
            {"uri": LINK, "mimeType": "text/html", "text": EVIL},
            {"uri": f"x://{EVIL}", "mimeType": EVIL, "text": json.dumps({EVIL: EVIL})},
            {"uri": "x://y", "mimeType": "image/png", "blob": "<not base64>"},
            {"uri": "x://y", "mimeType": "text/html", "blob": "PGI+"},
            {"uri": "x://y", "mimeType": f"image/png,{EVIL}", "blob": "PGI+"},
        ]
    },
    "completion/complete": {"completion": {"values": [EVIL, LINK], "total": 900}},
}


async def test_hostile_resources_are_shown_as_text(tmp_path: Path) -> None:
    async with inspected(write_server(tmp_path, [], answers=HOSTILE), folder=tmp_path) as page:
        await open_panel(page, "Resources")
        assert await page.until(has("U+202E", ".left"))
        assert await page.until(has("U+202E", ".middle .description"))
        await call(page)
        for mark in MARKS:
            assert await page.until(has(mark, ".result"))
        assert await page.says(has("<b>bold</b>", ".result"))
        assert await page.says(has("Not shown: the data is not base64.", ".result"))
        assert await page.says(FOREIGN) == 0
        assert await page.says("document.querySelectorAll('.middle a, .middle img').length") == 0
        await assert_narrow(page)
        await page.resize(1280, 800)
        await open_row(page, "bad://", "bad://{")
        assert await page.until(has("unmatched", ".middle .error"))
        await open_row(page, "ok://", "ok://{__proto__}{/constructor*}")
        await page.fill("#variables-0", "x")
        assert await page.until(has("U+202E", ".suggestions"))
        assert await page.says(has("2 of 900", ".suggestions"))
        await page.press("Escape")
        await page.fill("#variables-1", "a/b")
        assert await page.until(has("ok://x/a/b", "[data-uri]"))
        assert await page.says(FOREIGN) == 0
        await page.fill(".left input[type=search]", "")
        for _ in range(8):
            await page.says("document.querySelector('#resources').focus()")
            await page.press("j")
        assert await page.says("document.body.scrollWidth <= innerWidth")
        assert await page.says("document.title") == "Dovetail inspector"


async def test_2000_resources_are_listed(tmp_path: Path) -> None:
    resources = [
        {"uri": f"file:///group{n // 100}/item{n}.txt", "name": f"n{n}"} for n in range(2000)
    ]
    answers = {"resources/list": {"resources": resources}}
    async with inspected(write_server(tmp_path, [], answers=answers), folder=tmp_path) as page:
        assert await page.until(has("2,000", ".tabs"))
        await open_panel(page, "Resources")
        await page.until("document.querySelector('.left .row')")
        assert await page.says("document.querySelectorAll('.left .row').length") < 300
        assert await page.says("document.querySelector('.left .error')") is None, "no templates"
        await open_row(page, "item1999", "file:///group19/item1999.txt")
