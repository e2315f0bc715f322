"""A recording on the page: everything that happened, and nothing that cannot work."""

import json
from pathlib import Path
from typing import Any

from dovetail.mcplog import McplogWriter
from dovetail.ports import HttpExchange, LostMessage

from .actions import has, open_panel
from .harness import inspected
from .raw_server import object_of, tool

ROWS = "[...document.querySelectorAll('.wire .row')]"
LABELS = "[...document.querySelectorAll('button, select, label')].map((one) => one.innerText)"
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1}}}'


def record(path: Path) -> Path:
    with McplogWriter(path, "https://example.com/mcp", started=1_700_000_000.0) as writer:
        start = 1_700_000_000.0
        writer.message("to_server", CALL, start + 1)
        head = HttpExchange(
            method="POST", url="https://example.com/mcp", request_headers={"mcp-name": "add"},
            status=200, response_headers={}, started=start + 1, ended=start + 1.4,
            message_id=7, message_method="tools/call",
        )  # fmt: skip
        writer.exchange(head)
        entry = (
            b'{"method":"notifications/message","params":{"level":"error","data":"dark \\u202e"}}'
        )
        writer.message("to_client", entry, start + 1.2)
        writer.message(
            "to_client", b'{"jsonrpc":"2.0","id":7,"result":{"content":[]}}', start + 1.5
        )
        writer.stderr("a line of stderr", start + 2)
    path.write_bytes(path.read_bytes() + b'{"kind":"wi')
    return path


async def test_a_recording_is_shown_without_a_server(tmp_path: Path) -> None:
    path = record(tmp_path / "night.mcplog")
    async with inspected(path, folder=tmp_path) as page:
        assert await page.until(has("This is a recording of https://example.com/mcp"))
        assert await page.until(has("ends in the middle of line 7"))
        for text in ("dark", "a line of stderr"):
            assert await page.until(has(text, ".middle"))
        assert await page.until(f"{ROWS}.length === 3")
        assert await page.until(has("500 ms", ".wire"))
        await page.click(".wire .row")
        await page.click(".detail summary")
        assert await page.until(has("mcp-name", ".detail"))
        await page.click(".detail button", text="Export")
        assert await page.until(has("dovetail call", ".detail"))
        labels = " ".join(await page.says(LABELS))
        for gone in ("Restart", "Record", "Send again", "Edit and send", "Tools", "Server sends"):
            assert gone not in labels, gone
        await page.press("Control+k")
        await page.until("document.querySelector('dialog[open]')")
        assert not await page.says("document.querySelector('dialog').innerText.includes('Restart')")
        await page.press("Escape")


LISTED: dict[str, dict[str, Any]] = {
    "tools/list": {"tools": [tool("add", object_of(a={"type": "integer"})), tool("subtract")]},
    "resources/list": {"resources": [{"uri": "notes://today", "name": "today"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "notes://{day}"}]},
    "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]},
    "tools/call": {"content": []},
}
TIMELINE = "[...document.querySelectorAll('#timeline .row')].map((one) => one.innerText)"


def record_lists(path: Path) -> Path:
    start = 1_700_000_000.0
    with McplogWriter(path, ["uvx", "notes"], started=start) as writer:
        for number, (method, result) in enumerate(LISTED.items()):
            request = json.dumps({"jsonrpc": "2.0", "id": number, "method": method}).encode()
            reply = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
            writer.message("to_server", request, start + number)
            writer.message("to_client", reply, start + number + 0.25)
    return path


async def test_the_lists_and_the_timeline_of_a_recording_are_shown(tmp_path: Path) -> None:
    path = record_lists(tmp_path / "night.mcplog")
    async with inspected(path, folder=tmp_path) as page:
        panels = {"Tools": "add", "Resources": "notes://today", "Prompts": "greet"}
        for panel, name in panels.items():
            await open_panel(page, panel)
            assert await page.until(has(name, ".middle h2"))
            assert await page.until(has("Nothing can be sent.", ".middle .note"))
            assert await page.until(has("As listed", ".middle")), "the definition is open"
            buttons = "document.querySelectorAll('.middle .actions, .middle .form, [data-key=c]')"
            assert await page.says(f"{buttons}.length") == 0
        await open_panel(page, "Resources")
        await page.until("document.querySelector('#resources')")
        await page.says("document.querySelector('#resources').focus()")
        await page.press("j")
        assert await page.until(has("notes://{day}", ".middle h2"))
        assert await page.says(f"{buttons}.length") == 0
        await open_panel(page, "Timeline")
        assert await page.until(f"{TIMELINE}.length") == len(LISTED)
        assert all("250 ms" in row for row in await page.says(TIMELINE))
        await page.command("Page.reload")
        assert await page.until(f"{TIMELINE}.length") == len(LISTED), "also if it is open at first"
        await page.click("#timeline .row")
        assert await page.until(has("tools/list", ".open-task h3"))
        await page.press("Control+k")
        assert await page.until(has("subtract", "dialog"))
        await page.press("Escape")


async def test_a_lost_message_is_a_row_of_the_wire(tmp_path: Path) -> None:
    path = tmp_path / "lost.mcplog"
    with McplogWriter(path, "https://example.com/mcp", started=1_700_000_000.0) as writer:
        writer.message("to_server", CALL, 1_700_000_001.0)
        for reason, id, data in (
            ("the message is too long, so it was skipped", None, b'{"big":"x'),
            ("HTTP 502 <b>bad</b> gateway", 7, b""),
        ):
            at = 1_700_000_002.0
            writer.lost(LostMessage(direction="to_client", reason=reason, id=id, data=data, at=at))
    async with inspected(path, folder=tmp_path) as page:
        assert await page.until(f"{ROWS}.length === 3")
        await page.fill(".wire input[type=search]", "gateway error")
        assert await page.until(f"{ROWS}.length === 1")
        await page.click(".wire .row")
        assert await page.until(has("Lost: HTTP 502 <b>bad</b> gateway", ".detail"))
        await page.fill(".wire input[type=search]", "skipped")
        assert await page.until(f"{ROWS}.length === 1")
        await page.click(".wire .row")
        assert await page.until(has('{"big":"x', ".detail"))
