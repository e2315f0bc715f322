"""Questions are cards beside the tool and the wire, and never block the page."""

from pathlib import Path

import pytest

from .actions import call, choose, has, open_tool, wait_for_result
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
async def order(call: Context) -> str:
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


if __name__ == "__main__":
    server.run()
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SERVER)
    return path


async def test_a_form_is_answered_beside_the_tool(shop: Path) -> None:
    async with inspected(shop, folder=shop.parent) as page:
        await open_tool(page, "order")
        await page.click("button.primary[data-key=c]")
        assert await page.until(has("Which <b>size</b>?", ".card"))
        assert await page.says("document.querySelector('dialog') === null")
        assert await page.says("document.querySelector('.tabs .count') !== null")
        await choose(page, ".card select", "M")
        await page.says("document.querySelector('.card select').focus()")
        await page.press("Control+Enter")
        await wait_for_result(page)
        assert await page.until(has("accept", ".result"))
        assert await page.says("document.querySelectorAll('.card').length") == 0
        assert await page.until("document.querySelector('.card') === null")
        await page.click(".tabs button", text="Questions")
        assert await page.until(has("Which <b>size</b>?", ".middle"))


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
