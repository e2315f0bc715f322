"""The Saved panel: calls with expectations, running them, and exporting them as tests."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.browser import Page
from tests.cli.conftest import SECONDS, environment

from .actions import call, has, open_panel, open_tool
from .harness import inspected


def saved(folder: Path) -> list[dict[str, Any]]:
    found: dict[str, Any] = json.loads((folder / ".dovetail" / "calls.json").read_text("utf-8"))
    calls: list[dict[str, Any]] = found["calls"]
    return calls


async def save(page: Page, name: str, **fields: str) -> None:
    """Fill in the tool `add`, and save the call."""
    await page.click(".tabs button", text="Tools1")
    await open_tool(page, "add")
    for field, value in fields.items():
        await page.fill(f"#arguments--{field}", value)
    await page.click(".middle .actions button", text="Save…")
    await page.click(".middle form button", text="Cancel")
    await page.until("document.activeElement.textContent === 'Save…'")
    await page.press("Enter")
    await page.until("document.activeElement.id === 'save-name'")
    await page.type(name)  # what was suggested is selected; letters are not shortcuts
    await page.click(".middle form button", text="Save")
    await page.until(has(name, ".middle h2"))


async def test_a_call_is_saved_expected_run_and_exported(server: Path) -> None:
    folder = server.parent
    async with inspected("server.py", folder=folder) as page:
        await save(page, "adds", a="40", b="2")
        await page.click(".middle .primary")
        assert await page.until(has("passed", ".result"))
        await page.click(".result button", text="Expect this answer")
        await page.fill("#saved-under", "60000")
        await page.click(".middle .actions button", text="Save")
        await page.until("document.querySelector('.middle .primary:enabled')")
        expect = {"equals": 42, "under_ms": 60000}
        arguments = {"a": 40, "b": 2}
        assert saved(folder) == [
            {"name": "adds", "tool": "add", "arguments": arguments, "expect": expect}
        ]

        await save(page, "wrong", a="1")
        await page.fill("#saved-equals", "4")
        await page.fill("#saved-name", "wrong sum")
        export = "[...document.querySelectorAll('.left button')].at(-1)"
        await page.until(f"{export}.disabled")  # it would leave out what is not saved
        await page.click(".middle .actions button", text="Save")
        await page.until(has("wrong sum", ".middle h2"))
        await page.click(".left button", text="Run all")
        assert await page.until(has("1 passed, 1 failed", ".left"))
        assert await page.until(has("$: expected 4, got 3", ".result"))

        await page.click(".left button", text="Export as pytest")
        await page.until(has("def test_wrong_sum", ".tests"))
        source = await page.says("document.querySelector('.tests').innerText")
    (folder / "test_calls.py").write_text(source, encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_calls.py"],
        cwd=folder, env=environment(), capture_output=True, timeout=SECONDS, check=False, text=True,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout


async def test_a_saved_call_is_deleted_and_opened_in_its_form(server: Path) -> None:
    async with inspected("server.py", folder=server.parent) as page:
        await save(page, "first", a="5")
        await save(page, "second", a="6")
        await page.click(".left [role=option]", text="first")
        await page.click(".middle button", text="Open in Tools")
        await page.until("document.querySelector('#arguments--a')?.value === '5'")
        await call(page)
        assert await page.until(has("7", ".result"))
        await page.click(".tabs button", text="Saved2")
        await page.click(".middle button", text="Delete")
        await page.click(".middle button", text="Keep")
        await page.click(".middle button", text="Delete")
        assert len(saved(server.parent)) == 2, "not before it is confirmed"
        await page.click(".middle button", text="Delete?")
        await page.until("document.querySelectorAll('.left [role=option]').length === 1")
        assert [one["name"] for one in saved(server.parent)] == ["second"]
        assert await page.until(has("second", ".middle h2")), "the next one is open"


async def test_a_file_that_is_wrong_is_explained_until_it_is_corrected(server: Path) -> None:
    file = server.parent / ".dovetail" / "calls.json"
    file.parent.mkdir()
    file.write_text('{"calls": [\n  {"name": "a"}\n]}')
    async with inspected("server.py", folder=server.parent) as page:
        await open_panel(page, "Saved")
        assert await page.until(has("line 2, column 3", ".left"))
        file.write_text('{"calls": [\n  {"name": "by hand", "tool": "add"}\n]}')
        await open_panel(page, "Log")
        await open_panel(page, "Saved")
        assert await page.until(has("by hand", ".left"))
        await page.click(".middle .primary")
        assert await page.until(has("failed", ".result")), "an argument is missing"
