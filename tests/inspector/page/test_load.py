"""The Load panel: many runs of a saved call, and the latency of each method."""

import json
from pathlib import Path

from .actions import has
from .harness import inspected


async def test_a_saved_call_is_run_many_times(server: Path) -> None:
    folder = server.parent / ".dovetail"
    folder.mkdir()
    call = {"name": "adds", "tool": "add", "arguments": {"a": 1}}
    (folder / "calls.json").write_text(json.dumps({"calls": [call]}))
    async with inspected("server.py", folder=server.parent) as page:
        await page.click(".tabs button", text="Load")
        await page.fill("#load-runs", "10001")
        await page.until("document.querySelector('.middle .primary:disabled')")
        await page.fill("#load-runs", "200")
        await page.click(".middle .primary")
        assert await page.until(has("200 of 200 runs", ".middle"))
        assert await page.until(has("p99", ".middle [aria-label=Times]"))
        bars = "[...document.querySelectorAll('.histogram li')]"
        count = f"{bars}.reduce((sum, one) => sum + Number(one.lastElementChild.innerText), 0)"
        assert await page.says(count) == 200
        assert await page.until(has("tools/call", "[aria-label='Latency per method']"))


async def test_without_a_saved_call_the_panel_says_what_to_do(server: Path) -> None:
    async with inspected("server.py", folder=server.parent) as page:
        await page.click(".tabs button", text="Load")
        assert await page.until(has("Save a call in the Tools panel first", ".middle"))
