"""The Prompts panel: arguments with completion, messages as a chat, and hostile text."""

import json
from pathlib import Path

import pytest

from .actions import assert_narrow, call, has, open_panel, open_row
from .harness import inspected
from .raw_server import write_server
from .test_hostile import EVIL, FOREIGN, LINK, MARKS
from .test_resources import OPTIONS, REVISIONS, SUGGESTED
from .test_tools import PIXEL

SERVER = '''
from dovetail import Server

server = Server("travel", version="1")


@server.prompt(title="Find a train")
def train(country: str, city: str, notes: str = "") -> str:
    """Find a train to a city."""
    return f"Find a train to {city}, {country}. {notes}"


train.complete("country", ["France", "Finland", "Peru"])


@train.complete("city")
def cities(value: str, chosen: dict[str, str]) -> list[str]:
    return {"France": ["Paris", "Pau"]}.get(chosen.get("country", ""), ["any city"])


@server.prompt
def greet() -> str:
    """Say hello."""
    return "Say hello."


if __name__ == "__main__":
    server.run()
'''


@pytest.fixture
def travel(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_prompt_is_completed_and_shown_as_a_chat(travel: Path, revision: str) -> None:
    async with inspected(travel, "--revision", revision, folder=travel.parent) as page:
        await open_panel(page, "Prompts")
        await open_row(page, "train", "train")
        assert await page.says(has("Find a train to a city.", ".description"))
        await page.fill("#arguments-0", "fra")
        assert await page.until(f"{SUGGESTED}.join() === 'France'")
        await page.press("ArrowDown")
        await page.press("Enter")
        await page.click("#arguments-1")
        expected = "any city" if revision == REVISIONS[0] else "Paris,Pau"
        assert await page.until(f"{SUGGESTED}.join() === {json.dumps(expected)}")
        await page.click(".suggestions [role=option]")
        await page.click("input[aria-label='multi-line notes']")
        await page.fill("#arguments-2", "one\ntwo")
        await page.press("Control+Enter")
        city = expected.split(",", maxsplit=1)[0]
        assert await page.until(has(f"Find a train to {city}, France. one\ntwo", ".chat"))
        assert await page.says("document.querySelector('.role').innerText") == "user"
        await page.command("Page.reload")
        assert await page.until("document.querySelector('#arguments-2')?.value") == "one\ntwo"
        assert await page.until("document.querySelector('#arguments-0').value") == "France"


async def test_suggestions_are_asked_for_after_the_last_key(travel: Path) -> None:
    async with inspected(travel, folder=travel.parent) as page:
        await open_panel(page, "Prompts")
        await page.until("document.querySelector('#arguments-0')")
        await page.says(
            """['f', 'fi', 'fin'].forEach((text) => {
              const field = document.querySelector('#arguments-0');
              field.value = text;
              field.dispatchEvent(new Event('input', { bubbles: true }));
            })"""
        )
        assert await page.until(f"{SUGGESTED}.join() === 'Finland'")
        asked = "one.rows.filter((row) => row.method === 'completion/complete' && !row.request)"
        texts = await page.says(
            f"import('/static/messages.js').then((one) => {asked}.map((row) => row.text))"
        )
        assert [json.loads(one)["params"]["argument"]["value"] for one in texts] == ["fin"]


async def test_an_empty_argument_is_not_sent(travel: Path) -> None:
    async with inspected(travel, folder=travel.parent) as page:
        await open_panel(page, "Prompts")
        await call(page)
        assert await page.until(has("failed", ".result .pill"))
        sent = await page.says(
            "import('/static/messages.js').then((one) => "
            "one.rows.findLast((row) => row.method === 'prompts/get' && !row.request).text)"
        )
        assert "arguments" not in json.loads(sent)["params"]
        await open_row(page, "greet", "greet")
        assert await page.says(has("This prompt takes no arguments.", ".middle"))
        await call(page)
        assert await page.until(has("Say hello.", ".chat"))


async def test_the_list_is_filtered(travel: Path) -> None:
    async with inspected(travel, folder=travel.parent) as page:
        await open_panel(page, "Prompts")
        await page.until(f"{OPTIONS} === 2")
        await page.fill(".left input[type=search]", "HELLO")
        assert await page.until(f"{OPTIONS} === 1")
        await page.fill(".left input[type=search]", "nothing has this name")
        assert await page.until(has("No prompt matches.", ".left"))


async def test_a_server_without_prompts_says_so(server: Path) -> None:
    async with inspected(server, folder=server.parent) as page:
        await open_panel(page, "Prompts")
        assert await page.until(has("The server offers no prompts.", ".left"))


IMAGE = {"type": "image", "mimeType": "image/png", "data": PIXEL}
HOSTILE = {
    "prompts/list": {
        "prompts": [
            {
                "name": EVIL,
                "title": EVIL,
                "description": EVIL,
                "arguments": [
                    {"name": EVIL, "title": EVIL, "description": EVIL, "required": True},
                    {"name": "__proto__"},
                    EVIL,
                ],
            },
            {"name": "odd", "arguments": EVIL, "description": 7},
            {},
        ]
    },
    "prompts/get": {
        "description": EVIL,
        "messages": [
            {"role": "user", "content": {"type": "text", "text": EVIL}},
            {
                "role": "assistant",
                "content": {"type": "image", "mimeType": "image/png", "data": PIXEL},
            },
            {"role": "user", "content": {"type": "resource_link", "uri": LINK, "name": EVIL}},
            {
                "role": "assistant",
                "content": {"type": "resource", "resource": {"uri": LINK, "text": EVIL}},
            },
        ],
    },
    "completion/complete": {"completion": {"values": [EVIL, LINK], "hasMore": True}},
}


async def test_hostile_prompts_are_shown_as_text(tmp_path: Path) -> None:
    async with inspected(write_server(tmp_path, [], answers=HOSTILE), folder=tmp_path) as page:
        await open_panel(page, "Prompts")
        for where in (".left", ".middle h2", ".description", ".field label", ".field-note"):
            assert await page.until(has("U+202E", where))
        await page.fill("#arguments-1", "x")
        assert await page.until(has("U+202E", ".suggestions"))
        await page.press("ArrowDown")
        await page.press("Enter")
        await call(page)
        for mark in MARKS:
            assert await page.until(has(mark, ".chats"))
        assert await page.says("document.querySelectorAll('.chat').length") == 4
        assert await page.says("document.querySelectorAll('.chat.assistant').length") == 2
        assert await page.until("document.querySelector('.chats img')?.naturalWidth") == 1
        assert await page.says("document.querySelectorAll('.middle a').length") == 0
        assert await page.says(FOREIGN) == 0
        await assert_narrow(page)
        await page.resize(1280, 800)
        await page.says("document.querySelector('#prompts').focus()")
        await page.press("j")
        assert await page.until(has("odd", ".middle h2"))
        await page.press("j")
        assert await page.until(has("(no name)", ".middle h2"))
        assert await page.says("document.body.scrollWidth <= innerWidth")
        assert await page.says("document.title") == "Dovetail inspector"
