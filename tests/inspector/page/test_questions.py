"""Questions are cards beside the tool and the wire, and never block the page."""

from pathlib import Path

import pytest

from .actions import call, choose, has, open_panel, open_tool, wait_for_result
from .harness import inspected

SERVER = '''
from typing import Literal

from msgspec import Struct
from dovetail import Context, Server

server = Server("shop", version="1")


class Size(Struct):
    size: Literal["S", "M"]
    count: int = 1


@server.tool
async def order(call: Context, *, OTHERS) -> str:
    """Order a shirt."""
    answer = await call.elicit("Which <b>size</b>?", Size)
    return f"{answer.action} {answer.data}"


@server.tool
async def pay(call: Context) -> str:
    """Pay on a page."""
    answer = await call.elicit_url("Please pay", "https://pay.example/42")
    return answer.action


@server.tool
async def poem(call: Context) -> str:
    """Write a poem."""
    return (await call.sample("Write a poem")).text


@server.tool
async def folders(call: Context) -> list[str]:
    """Return the names of the folders."""
    return [root.uri.rpartition("/")[2] for root in await call.list_roots()]


if __name__ == "__main__":
    server.run()
'''


SERVER = SERVER.replace("OTHERS", ", ".join(f"field_{n}: str = ''" for n in range(12)))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SERVER)
    return path


async def test_a_form_is_answered_beside_the_tool(shop: Path) -> None:
    async with inspected(shop, folder=shop.parent) as page:
        await open_tool(page, "order")
        await page.says("document.querySelector('.middle').scrollTo(0, 9999)")
        await page.click("button.primary[data-key=c]")
        assert await page.until(has("Which <b>size</b>?", ".card"))
        await page.click(".item .actions button", text="The server asks… ↑")
        await page.until("document.activeElement.closest('.card') !== null")
        await page.until(f"!{has('The server asks…', '.item .actions')}")
        assert await page.says("document.querySelector('dialog') === null")
        assert await page.says("document.querySelector('.tabs .count') !== null")
        await choose(page, ".card select", "M")
        await page.says("document.querySelector('button[data-key=c]').focus()")
        await page.says("document.querySelector('.card select').focus()")
        await page.press("Control+Enter")
        await wait_for_result(page)
        assert await page.until(has("accept", ".result"))
        assert await page.until("document.querySelector('.card') === null")
        assert await page.says("document.activeElement.dataset.key") == "c"
        await page.click(".tabs button", text="Questions")
        assert await page.until(has("Which <b>size</b>?", ".middle"))
        await page.command("Page.reload")
        assert await page.until(has("answered Which <b>size</b>?", ".middle"))


async def test_a_question_is_declined_and_always_answered_this_way(shop: Path) -> None:
    async with inspected(shop, folder=shop.parent) as page:
        await open_tool(page, "order")
        await page.click("button.primary[data-key=c]")
        await page.click(".card input[type=checkbox]")
        await page.click(".card button", text="Decline")
        await wait_for_result(page)
        assert await page.until(has("decline", ".result"))
        await call(page)
        assert await page.until(has("decline", ".result"))
        await page.click(".tabs button", text="Questions")
        await page.until(has("decline", ".middle .plain"))


async def test_a_url_and_a_model_are_asked_for(shop: Path) -> None:
    async with inspected(shop, folder=shop.parent) as page:
        await open_tool(page, "pay")
        await page.click("button.primary[data-key=c]")
        assert await page.until("document.querySelector('.card a').rel.includes('noopener')")
        assert await page.until(has("pay.example", ".card a strong"))
        await page.click(".card button", text="I opened it")
        await wait_for_result(page)
        assert await page.until(has("accept", ".result"))

        await open_tool(page, "poem")
        await page.click("button.primary[data-key=c]")
        assert await page.until(has("Write a poem", ".card"))
        await page.fill(".card textarea", "Roses are red")
        await page.click(".card button", text="Answer")
        await wait_for_result(page)
        assert await page.until(has("Roses are red", ".result"))


async def test_a_question_is_cancelled(shop: Path) -> None:
    async with inspected(shop, folder=shop.parent) as page:
        await open_tool(page, "order")
        await page.click("button.primary[data-key=c]")
        await page.until("document.querySelector('.card')")
        assert await page.axe() == []
        await page.click(".card button", text="Cancel")
        await wait_for_result(page)
        assert await page.until(has("cancel", ".result"))


async def test_the_server_gets_the_folders_that_are_ticked(shop: Path) -> None:
    folders = [shop.parent / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    options = [word for folder in folders for word in ("--root", str(folder))]
    async with inspected(shop, *options, folder=shop.parent) as page:
        await open_panel(page, "Questions")
        await page.click("[aria-label=Folders] input")
        boxes = "[...document.querySelectorAll('[aria-label=Folders] input')]"
        ticked = f"{boxes}.map((one) => one.checked)"
        assert await page.until(f"{ticked}.join() === 'false,true'")
        await page.click(".middle button", text="Forget")
        await page.until(has("None. Tick", ".middle"))
        await open_panel(page, "Tools")
        await open_tool(page, "folders")
        await page.click("button.primary[data-key=c]")
        assert await page.until(has("The server asks for your folders", ".card"))
        assert await page.axe() == []
        await page.click(".card button", text="Answer")
        await wait_for_result(page)
        result = await page.until("document.querySelector('.result').innerText")
        assert "second" in result and "first" not in result
