"""Text of a server is only ever text, also in errors of lists, Saved, Compare, Apps and Login."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Page

from ..guarded_site import ISSUER, RESOURCE, Fault, changed, guarded_site, refused
from .actions import has, open_panel
from .harness import inspected
from .raw_server import tool, write_server
from .test_compare import choose_request, compare
from .test_hostile import EVIL, FOREIGN, LINK, MARKS, RESULTS
from .test_login import open_login, state_of

VIEW = f"ui://view/{EVIL}"
HTML = """<!doctype html><script>
const tell = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
tell({ id: EVIL, method: EVIL, params: { [EVIL]: EVIL } });
tell({ id: 2, method: "ui/open-link", params: { url: LINK } });
tell({ method: "dovetail/csp-violation", params: { directive: EVIL, blocked: EVIL } });
</script>""".replace("EVIL", json.dumps(EVIL).replace("<", "\\u003c")).replace(
    "LINK", json.dumps(LINK)
)
ERROR = {"error": {"code": 1, "message": EVIL}}
ANSWERS: dict[str, Any] = {
    "resources/list": ERROR,
    "resources/templates/list": ERROR,
    "prompts/list": ERROR,
    "resources/read": {
        "contents": [{"uri": VIEW, "mimeType": "text/html;profile=mcp-app", "text": HTML}]
    },
}


async def assert_text(page: Page, where: str) -> None:
    """Check that an element shows the hostile text, and that it is only text."""
    for words in ("<b>bold</b>", *MARKS):
        await page.until(has(words, where))
    assert await page.says(FOREIGN) == 0
    links = "[...document.querySelectorAll('a')].map((one) => one.protocol)"
    assert set(await page.says(links)) <= {"http:", "https:"}
    assert await page.says("document.title") == "Dovetail inspector"


def write_hostile(folder: Path) -> Path:
    """Write a server that is hostile in every list, and a hostile saved call."""
    (folder / ".dovetail").mkdir()
    calls = {"calls": [{"name": EVIL, "tool": EVIL, "arguments": {EVIL: EVIL}}]}
    (folder / ".dovetail" / "calls.json").write_text(json.dumps(calls))
    ui = {"ui": {"resourceUri": VIEW}}
    tools = [tool(EVIL, description=EVIL, _meta=ui), tool("hostile")]
    results = {"hostile": {**RESULTS["hostile"], "revision_as": EVIL}}
    return write_server(folder, tools, results, ANSWERS)


async def test_errors_of_lists_and_names_of_saved_calls_are_text(tmp_path: Path) -> None:
    async with inspected(write_hostile(tmp_path), folder=tmp_path) as page:
        for panel, where in (
            ("Resources", ".left .error"),
            ("Prompts", ".left .error"),
            ("Saved", "#saved"),
            ("Saved", ".middle .item-head h2"),
            ("Saved", ".middle .item-head code"),
        ):
            await open_panel(page, panel)
            await assert_text(page, where)
        await page.click(".middle .primary")
        await page.until("document.querySelector('.left .ok, .left .bad')")
        assert await page.says(FOREIGN) == 0
        await page.click(".left button", text="Export as pytest")
        await page.until(has("def test_", ".tests"))
        assert await page.says(FOREIGN) == 0


async def test_compare_shows_text(tmp_path: Path) -> None:
    async with inspected(write_hostile(tmp_path), folder=tmp_path) as page:
        await page.click(".tabs button", text="Compare")
        await choose_request(page, "hostile")
        labels = "[...document.querySelectorAll('#compare-choose option')].map((one) => one.text)"
        assert any("⟨U+202E⟩" in label for label in await page.says(labels))
        await compare(page, "hostile")
        for where in (".differences", ".compared-columns"):
            await assert_text(page, where)


async def test_an_app_shows_text(tmp_path: Path) -> None:
    async with inspected(write_hostile(tmp_path), folder=tmp_path) as page:
        await open_panel(page, "Apps")
        for where in ("#apps", ".middle h2", ".middle .title"):
            await assert_text(page, where)
        await page.click("button.primary[data-key=c]")
        await assert_text(page, '[aria-label="Policy violations"]')
        await page.until(has(LINK, ".app-messages"))
        await page.click(".app-messages .fold")
        await assert_text(page, ".app-messages")


FAULTS: list[tuple[tuple[str, ...], Fault]] = [
    (ISSUER, changed(issuer=EVIL)),
    (ISSUER, changed(authorization_endpoint=LINK, service_documentation=EVIL)),
    (RESOURCE, changed(resource=EVIL, resource_name=EVIL)),
    (("/register",), refused(400, error="invalid_client_metadata", error_description=EVIL)),
]


@pytest.mark.parametrize(
    ("paths", "fault"), FAULTS, ids=["issuer", "link", "resource", "registration"]
)
async def test_a_login_shows_text(tmp_path: Path, paths: tuple[str, ...], fault: Fault) -> None:
    async with (
        guarded_site(paths, fault) as url,
        inspected(url, **state_of(tmp_path)) as page,
    ):
        await open_login(page)
        await page.click("button", text="Log in")
        await page.until(has("Failed", ".middle .item-head"))
        await assert_text(page, ".steps")
