"""The Tools panel: the list, calls, and every kind of result."""

import base64
import json
from pathlib import Path

from .actions import (
    call,
    has,
    open_panel,
    open_row,
    open_tool,
    repeated_arguments,
    wait_for_result,
)
from .harness import inspected
from .pictures import take_picture
from .raw_server import object_of, tool, write_server

EXAMPLES = Path(__file__).parents[3] / "examples"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJ"
    "RU5ErkJggg=="
)
WAV = base64.b64encode(
    b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0@\x1f\0\0@\x1f\0\0\x01\0\x08\0data\0\0\0\0"
).decode()
RESULTS = {
    "blocks": {
        "content": [
            {"type": "text", "text": "plain text"},
            {"type": "image", "mimeType": "image/png", "data": PIXEL},
            {"type": "audio", "mimeType": "audio/wav", "data": WAV},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource_link", "uri": "https://docs.example/a", "name": "Docs"},
            {"type": "unheard_of", "value": 12345678901234567890},
        ]
    },
    "records": {
        "content": [],
        "structuredContent": {"rows": [{"day": "Mon", "high": 21}, {"day": "Tue", "high": 19}]},
    },
    "tool_error": {"content": [{"type": "text", "text": "no such city"}], "isError": True},
    "failing": {"error": {"code": -32602, "message": "bad params", "data": {"why": "because"}}},
}
SLOW = '''
import asyncio
from dovetail import Context, Server

server = Server("slow", version="1")


@server.tool
async def wait(call: Context) -> str:
    """Wait until somebody cancels this."""
    call.progress(1, 4, "a quarter")
    await asyncio.sleep(60)
    return "done"


if __name__ == "__main__":
    server.run()
'''


async def test_instructions_and_icons_of_the_server_are_shown(tmp_path: Path) -> None:
    pixel = f"data:image/png;base64,{PIXEL}"
    icons = [{"src": "https://e.example/i.png"}, {"src": "data:text/html,x"}, {"src": pixel}, 5]
    tools = [tool("drawn", icons=icons), tool("plain", icons={"src": pixel})]
    path = write_server(tmp_path, tools)
    said = '"instructions": "Use <b>it</b>", "serverInfo"'
    path.write_text(path.read_text().replace('"serverInfo"', said))
    async with inspected(path, folder=tmp_path) as page:
        await open_tool(page, "drawn")
        assert await page.until("document.querySelector('.item-head img')?.src") == pixel
        await page.click(".middle summary", text="Instructions of the server")
        assert await page.until(has("Use <b>it</b>", ".middle details[open]"))
        await open_tool(page, "plain")
        assert await page.says("document.querySelector('.item-head img') === null")


async def test_the_weather_of_the_example_is_a_table_with_progress(tmp_path: Path) -> None:
    async with inspected(EXAMPLES / "weather.py", folder=tmp_path, height=800) as page:
        await open_tool(page, "forecast")
        await page.fill("#arguments--city", "Oslo")
        await call(page)
        assert await page.until(has("clear", ".result table"))
        await page.until(has("notifications/progress", "#wire"))
        await take_picture(page, "inspector-tools")


async def test_every_kind_of_content_is_shown(tmp_path: Path) -> None:
    server = write_server(tmp_path, [tool(name) for name in RESULTS], RESULTS)
    async with inspected(server, folder=tmp_path) as page:
        await open_tool(page, "blocks")
        await call(page)
        for text in ("plain text", "inside", "docs.example", "12345678901234567890"):
            assert await page.until(has(text, ".result"))
        assert await page.until("document.querySelector('.result img').naturalWidth") == 1
        assert await page.until("document.querySelector('.result audio').src.startsWith('data:')")

        await open_tool(page, "records")
        await call(page)
        assert await page.until("document.querySelectorAll('.result tbody tr').length") == 2
        await page.click(".result button", text="as a table")
        await page.until("document.querySelector('.result .json')")

        await open_tool(page, "tool_error")
        await call(page)
        assert await page.until(has("tool error", ".result .pill"))
        await open_tool(page, "failing")
        await call(page)
        assert await page.until(has("Error -32602: bad params", ".result"))
        assert await page.until(has("because", ".result"))


async def test_the_list_is_grouped_and_filtered(tmp_path: Path) -> None:
    names = ["ping", "order_new", "order_list", "order_cancel", "crm.get", "crm.put", "crm.list"]
    tools = [tool(name, description="Sends mail" if name == "ping" else "") for name in names]
    async with inspected(write_server(tmp_path, tools), folder=tmp_path) as page:
        await page.until("document.querySelectorAll('.left [role=option]').length === 7")
        headings = "[...document.querySelectorAll('.left .heading')].map((one) => one.innerText)"
        assert [one.split()[0] for one in await page.says(headings)] == ["order", "crm"]
        await page.fill(".left input[type=search]", "MAIL")
        assert await page.until("document.querySelectorAll('.left [role=option]').length") == 1
        await page.fill(".left input[type=search]", "nothing has this name")
        assert await page.until(has("No tool matches."))


async def test_a_reload_loses_neither_the_form_nor_the_result(tmp_path: Path) -> None:
    server = write_server(tmp_path, [tool("say", object_of(text={"type": "string"}))])
    async with inspected(server, folder=tmp_path) as page:
        await open_tool(page, "say")
        await page.fill("#arguments--text", "kept")
        await page.says("document.querySelector('.options').open = true")
        await page.fill("#timeout", "soon")
        assert await page.until(has("The timeout must be a number of seconds above 0."))
        assert await page.says("document.querySelector('[data-key=c]').disabled")
        await page.fill("#timeout", "7.5")
        await page.fill("#meta", '{"a": 1}')
        await call(page)
        messages = await page.says("document.querySelectorAll('.wire .row').length")
        await page.command("Page.reload")
        assert await page.until("document.querySelector('#arguments--text')?.value") == "kept"
        assert await page.says("document.querySelector('#timeout').value") == "7.5"
        assert "1" in await page.says("document.querySelector('#meta').value")
        await wait_for_result(page)
        assert await repeated_arguments(page) == {"text": "kept"}
        assert await page.until("document.querySelectorAll('.wire .row').length") >= messages
        assert await page.says("location.hash") == ""


async def test_a_tab_of_an_earlier_command_says_what_to_do(server: Path) -> None:
    async with inspected(server, folder=server.parent) as page:
        await page.until("document.querySelector('.left .row')")
        await page.says("sessionStorage.setItem('dovetail.token', 'old')")
        await page.command("Page.reload")
        assert await page.until(has("Open the URL that the terminal printed.", ".alone"))
        assert await page.says("document.querySelector('.tabs, .left, .wire, button')") is None
        page.console.clear()


async def test_a_reload_keeps_the_open_panel_and_the_open_items(tmp_path: Path) -> None:
    resources = [{"uri": f"x://{name}", "name": name} for name in ("a", "b")]
    answers = {"resources/list": {"resources": resources}}
    server = write_server(tmp_path, [tool("first"), tool("second")], answers=answers)
    async with inspected(server, folder=tmp_path) as page:
        await open_tool(page, "second")
        await open_panel(page, "Resources")
        await open_row(page, "b", "x://b")
        await page.resize(320, 640)
        await page.command("Page.reload")
        assert await page.until(has("x://b", ".middle h2")), "also on a narrow screen"
        await page.resize(1280, 800)
        await open_panel(page, "Tools")
        assert await page.until(has("second", ".middle h2"))
        stored = await page.says("JSON.stringify(sessionStorage)")
        token = await page.says("sessionStorage.getItem('dovetail.token')")
        assert stored.count(token) == 1


async def test_options_are_sent_with_the_call(tmp_path: Path) -> None:
    async with inspected(write_server(tmp_path, [tool("say")]), folder=tmp_path) as page:
        await open_tool(page, "say")
        await page.click(".options summary", text="Options")
        await page.fill("#meta", '{"example.com/a": 12345678901234567890}')
        await call(page)
        sent = await page.says(
            "import('/static/messages.js').then((one) => "
            "one.rows.findLast((row) => row.method === 'tools/call' && !row.request).text)"
        )
        assert json.loads(sent)["params"]["_meta"]["example.com/a"] == 12345678901234567890


async def test_a_call_shows_its_progress_and_can_be_cancelled(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(SLOW)
    async with inspected(server, folder=tmp_path) as page:
        await open_tool(page, "wait")
        await page.click("button.primary[data-key=c]")
        assert await page.until(has("1 of 4", ".progress"))
        assert await page.until(has("a quarter", ".progress"))
        await page.click(".result button", text="Cancel")
        assert await page.until(has("cancelled", ".result .pill"))
        assert await page.until(has("notifications/cancelled", ".wire"))


async def test_a_tab_without_a_token_says_what_to_do(server: Path) -> None:
    async with inspected(server, folder=server.parent) as page:
        await page.until("document.querySelector('.left .row')")
        await page.says("sessionStorage.clear()")
        await page.command("Page.reload")
        assert await page.until(has("Open the URL that the terminal printed."))


async def test_the_first_load_is_small(server: Path) -> None:
    async with inspected(server, folder=server.parent) as page:
        await page.until("document.querySelector('.left .row')")
        loaded = "performance.getEntriesByType('resource').map((one) => one.transferSize)"
        sizes = await page.says(loaded)
        assert len(sizes) + 1 <= 30
        assert sum(sizes) < 250_000
