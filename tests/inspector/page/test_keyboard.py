"""Everything can be done with the keyboard alone."""

from pathlib import Path

from .actions import has, wait_for_result
from .harness import inspected
from .raw_server import object_of, tool, write_server

FOCUS = "document.activeElement"


def write(folder: Path) -> Path:
    say = tool("say", object_of(text={"type": "string"}))
    return write_server(folder, [tool("first"), say, tool("third")])


async def test_a_tool_is_found_filled_in_and_called(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await page.until("document.querySelector('.left .row')")
        await page.press("j")
        assert await page.until(has("say", ".middle h2"))
        await page.press("k")
        assert await page.until(has("first", ".middle h2"))
        await page.press("c")
        await wait_for_result(page)

        await page.press("Control+k")
        await page.until("document.querySelector('dialog[open] input')?.matches(':focus')")
        assert await page.axe() == []
        await page.type("say")
        await page.press("Enter")
        assert await page.until(has("say", ".middle h2"))
        assert await page.until("document.querySelector('dialog') === null")

        await page.says("document.querySelector('#arguments--text').focus()")
        await page.type("c and j are letters here")
        await page.press("Control+Enter")
        await wait_for_result(page)
        assert await page.until(has("c and j are letters here", ".result"))


async def test_messages_are_reached_and_sent_again(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await page.until("document.querySelector('.left .row')")
        await page.press("c")
        await wait_for_result(page)
        await page.says("document.querySelector('#wire').focus()")
        await page.press("End")
        assert await page.until("document.querySelector('.detail h3')?.innerText") == "tools/call"
        before = await page.says("document.querySelector('.result').dataset.call")
        await page.press("r")
        await wait_for_result(page, before)
        await page.press("e")
        await page.until("document.querySelector('.editor')")
        await page.says("document.querySelector('.editor input').focus()")
        await page.fill(".editor input", "ping")
        await page.press("Control+Enter")
        await page.until("document.querySelector('.editor') === null")
        await page.says("document.querySelector('#wire').focus()")
        await page.says("document.querySelector('[aria-label=\"Close the message\"]').focus()")
        await page.press("Enter")
        assert await page.until("document.querySelector('.detail') === null")
        assert await page.says(f"{FOCUS}.id") == "wire"
        last = "import('/static/store.js').then((one) => one.lastCall.value.method)"
        assert await page.until(last) == "ping"


async def test_panels_help_and_filter(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await page.until("document.querySelector('.left .row')")
        await page.press("/")
        assert await page.until(f"{FOCUS}.getAttribute('aria-label')") == "Filter tools"
        await page.press("Escape")
        await page.press("]")
        assert await page.until("document.querySelector('[aria-current]').innerText !== 'Tools'")
        await page.press("[")
        assert await page.until(
            "document.querySelector('[aria-current]').innerText.includes('Tools')"
        )
        for modifier, key in (("modifierAltGraph", "]"), ("altKey", "[")):
            await page.says(
                "document.body.dispatchEvent(new KeyboardEvent('keydown',"
                f" {{ key: '{key}', {modifier}: true, bubbles: true }}))"
            )
            is_tools = "document.querySelector('[aria-current]').innerText.includes('Tools')"
            assert await page.until(f"{is_tools} === {'true' if key == '[' else 'false'}")
        await page.until("document.querySelector('#tools')")
        await page.says("document.querySelector('#tools').focus()")
        await page.press("?")
        assert await page.until(has("previous panel", "dialog[open]"))
        assert await page.axe() == []
        await page.press("Escape")
        assert await page.until("document.querySelector('dialog') === null")
        assert await page.until(f"{FOCUS}.id") == "tools"


async def test_tab_reaches_every_control_in_order(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await page.until("document.querySelector('[data-key=c]')")
        expected = await page.says(
            "[...document.querySelectorAll('button, input, select, textarea, summary, '"
            " + '[tabindex=\"0\"]')]"
            ".filter((one) => one.checkVisibility() && !one.disabled).length"
        )
        seen = []
        await page.says("document.body.focus()")
        for _ in range(expected):
            await page.press("Tab")
            seen.append(await page.says(f"{FOCUS}.outerHTML.slice(0, 200)"))
            outline = await page.says(f"getComputedStyle({FOCUS}).outlineStyle")
            assert outline != "none", seen[-1]
        assert len(set(seen)) == expected
