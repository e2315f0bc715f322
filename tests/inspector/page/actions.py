"""What people do on the page: open a tool, fill in a field, call."""

import json
from typing import Any

from tests.browser import Page

MIDDLE = "document.querySelector('.middle')"


async def assert_narrow(page: Page) -> None:
    """Check that the open item fits a screen of 320 px."""
    await page.resize(320, 640)
    await page.says("import('/static/store.js').then((one) => { one.view.value = 'main' })")
    await page.until(f"{MIDDLE}.clientWidth > 0 && {MIDDLE}.clientWidth <= 320")
    assert await page.says(f"{MIDDLE}.scrollWidth - {MIDDLE}.clientWidth") <= 0
    assert await page.says("document.body.scrollWidth") <= 320


async def open_panel(page: Page, title: str) -> None:
    """Open a panel with its tab."""
    find = f"""[...document.querySelectorAll('.tabs button')].find(
      (one) => one.firstChild?.data === {json.dumps(title)})"""
    await page.until(find)
    await page.says(f"{find}.click()")
    heading = json.dumps(f"{title}: open item")
    await page.until(f"{MIDDLE}.ariaLabel === {heading} && {MIDDLE}.children.length")


async def open_row(page: Page, words: str, name: str) -> None:
    """Filter the list on the left, and open the row of the item with this name or URI."""
    await page.until("document.querySelector('.left .row')")
    await page.fill(".left input[type=search]", words)
    row = f"""[...document.querySelectorAll('.left [role=option]')].find(
      (one) => {json.dumps(name)}.endsWith(one.querySelector('.name').textContent.trim()))"""
    await page.until(row)
    await page.says(f"{row}.click()")
    await page.until(f"{MIDDLE}.querySelector('h2')?.textContent === {json.dumps(name)}")


async def open_tool(page: Page, name: str) -> None:
    """Open a tool with the filter of the list."""
    await page.until("document.querySelector('.left .row')")
    await page.fill(".left input[type=search]", name)
    await page.click(".left [role=option]", text=name)
    await page.until(f"{MIDDLE}.querySelector('h2')?.textContent === {json.dumps(name)}")


def has(text: str, where: str = "body") -> str:
    """Return a condition: an element shows this text."""
    return f"document.querySelector({json.dumps(where)})?.innerText.includes({json.dumps(text)})"


async def call(page: Page) -> None:
    """Call the open tool, and wait for the end of the call."""
    before = await page.says("document.querySelector('.result')?.dataset.call ?? ''")
    await page.click("button.primary[data-key=c]")
    await wait_for_result(page, before)


async def wait_for_result(page: Page, before: str = "") -> None:
    """Wait until the result of another call than `before` is shown."""
    await page.until(
        f"(document.querySelector('.result')?.dataset.call ?? '') !== {json.dumps(before)} && "
        "document.querySelector('.result .pill').textContent !== 'running'"
    )


async def repeated_arguments(page: Page) -> Any:
    """Return the arguments of the last call, as the server repeated them."""
    result = await page.says("import('/static/store.js').then((one) => one.lastCall.value.result)")
    return json.loads(json.loads(result)["content"][0]["text"])


async def choose(page: Page, selector: str, label: str) -> None:
    """Choose an option of a select by its text."""
    await page.until(f"document.querySelector({json.dumps(selector)})")
    await page.says(
        f"""(() => {{
          const select = document.querySelector({json.dumps(selector)});
          const option = [...select.options].find((one) => one.text === {json.dumps(label)});
          if (!option) throw new Error([...select.options].map((one) => one.text).join("|"));
          select.value = option.value;
          select.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()"""
    )
