"""The wire: one line per message, joined, filtered, pinned, compared and sent again."""

from pathlib import Path

import pytest

from dovetail import Server
from dovetail.mcplog import read_mcplog
from tests.behaviour.web import on_a_port

from .actions import call, choose, has, open_tool
from .harness import inspected
from .raw_server import object_of, tool, write_server

ROWS = "[...document.querySelectorAll('.wire .row')]"
AT_END = """(({ scrollTop, clientHeight, scrollHeight }) =>
  scrollTop > 0 && scrollTop + clientHeight >= scrollHeight - 1)(document.querySelector('#wire'))"""


def write(folder: Path) -> Path:
    tools = [tool("say", object_of(text={"type": "string"})), tool("fail"), tool("wrong")]
    tools += [tool("chat")]
    failed = {"content": [{"type": "text", "text": "no"}], "isError": True}
    results = {"fail": {"error": {"code": -1, "message": "no"}}, "wrong": failed}
    results["chat"] = {"content": [], "notes": 60}
    return write_server(folder, tools, results)


def row(text: str) -> str:
    """Return the first line of the wire with this text."""
    return f"{ROWS}.find((one) => one.innerText.includes('{text}'))"


async def test_a_reply_is_joined_to_its_request(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await open_tool(page, "say")
        await call(page)
        assert await page.says(f"{ROWS}.every((one) => one.offsetHeight === 22)")
        await page.until(row("ms"))
        await page.says(f"{ROWS}.findLast((one) => one.innerText.includes('tools/call')).click()")
        for text in ("Request", "Reply", "content"):
            assert await page.until(has(text, ".detail"))


async def test_messages_are_filtered_by_what_they_are(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        for name in ("say", "fail", "wrong"):
            await open_tool(page, name)
            await call(page)
        for text, count in [
            ("method:tools/call", 6),
            ("method:tools/call error", 4),
            ("isError error to:client", 1),
            ("method:tools/call -error to:client", 1),
            ("ms:>60000", 0),
            ("method:tools/call bytes:<100000 say", 1),
        ]:
            await page.fill(".wire input[type=search]", text)
            assert await page.until(f"{ROWS}.length === {count}"), text
        await page.fill(".wire input[type=search]", "ms:>abc")
        assert await page.until(has("No messages match. ms:>abc is searched as text.", ".wire"))
        await page.fill(".wire input[type=search]", "")
        await open_tool(page, "chat")
        for hide, show in (
            (page.click("button", text="Hide wire"), page.click("button", text="Show wire")),
            (page.resize(600, 800), page.resize(1280, 800)),
        ):
            await hide
            await page.until("!document.querySelector('#wire').checkVisibility()")
            await call(page)
            await show
            await page.until(AT_END)


async def test_a_message_is_edited_and_sent_again(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await open_tool(page, "say")
        await page.fill("#arguments--text", "first")
        await call(page)
        await page.fill(".wire input[type=search]", "method:tools/call to:server")
        await page.click(".wire .row")
        await page.click(".detail button[data-key=r]")
        assert await page.until(f"{ROWS}.length === 2")
        await page.click(".detail button[data-key=e]")
        edited = '{"name": "say", "arguments": {"text": "12345678901234567890"}}'
        await page.fill("#edit-params", edited)
        await page.click(".editor button.primary")
        assert await page.until(f"{ROWS}.length === 3")
        await page.click(".wire .row:last-child")
        assert await page.until(has("12345678901234567890", ".detail"))


async def test_a_pinned_message_is_compared_with_another(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await open_tool(page, "say")
        for text in ("one", "two"):
            await page.fill("#arguments--text", text)
            await call(page)
        await page.fill(".wire input[type=search]", "method:tools/call to:server")
        await page.click(".wire .row")
        await page.click(".detail button", text="Pin")
        await page.click(".wire .row:last-child")
        await page.click(".detail button", text="Diff with pinned")
        for kind, text in (("gone", "one"), ("added", "two")):
            lines = f"[...document.querySelectorAll('.diff .{kind}')]"
            assert await page.until(f"{lines}.some((one) => one.innerText.includes('{text}'))")
        await page.command("Page.reload")
        await page.fill(".wire input[type=search]", "pinned")
        assert await page.until(f"{ROWS}.length === 1 && {ROWS}[0].innerText.includes('●')")


async def test_long_messages_are_compared_whole(tmp_path: Path) -> None:
    """The difference is behind what the page shows of a message, and behind the lines that are
    compared one by one."""
    items = [{"type": "text", "text": "x" * 100}] * 4000
    results = {
        name: {"content": [*items, {"type": "text", "text": name}]} for name in ("one", "two")
    }
    server = write_server(tmp_path, [tool("one"), tool("two")], results)
    async with inspected(server, folder=tmp_path) as page:
        for name in ("one", "two"):
            await open_tool(page, name)
            await call(page)
        await page.fill(".wire input[type=search]", "method:tools/call to:client")
        await page.until(f"{ROWS}.length === 2")
        await page.click(".wire .row")
        await page.click(".detail button", text="Pin")
        await page.click(".wire .row:last-child")
        await page.click(".detail button", text="Diff with pinned")
        assert await page.until(has("Only the first 2,000 lines are compared.", ".detail"))
        assert not await page.says(has("No differences", ".detail"))


async def test_the_session_is_recorded_until_that_is_stopped(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await open_tool(page, "say")
        await page.click(".wire button", text="Record")
        assert await page.until(has("Recording to .dovetail/recordings/", ".wire-head"))
        await page.fill("#arguments--text", "recorded")
        await call(page)
        await page.click(".wire button", text="Stop recording")
        assert await page.until(has("Recorded to", ".wire-head"))
        await page.fill("#arguments--text", "later")
        await call(page)
    [file] = (tmp_path / ".dovetail" / "recordings").glob("*.mcplog")
    texts = [event.message or "" for event in read_mcplog(file).wire()]
    assert len(texts) == 2 and all("recorded" in text for text in texts)


async def test_a_request_is_exported_in_each_form(tmp_path: Path) -> None:
    async with inspected(write(tmp_path), folder=tmp_path) as page:
        await open_tool(page, "say")
        await page.fill("#arguments--text", "it's")
        await call(page)
        await page.fill(".wire input[type=search]", "method:tools/call to:client")
        await page.click(".wire .row")
        await page.click(".detail button", text="Export")
        for form, words in [
            ("Command line", "dovetail call"),
            ("Python", "async with Client('"),
            ("pytest", "assert result.text == "),
            ("JSON", '{"jsonrpc":'),
            ("curl", "curl can only send a request to a URL"),
        ]:
            await choose(page, ".detail select", form)
            assert await page.until(has(words, ".detail")), form
        await choose(page, ".detail select", "pytest")
        await page.until(has("assert result.text", ".detail"))


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-06-18"])
async def test_a_message_is_joined_to_the_http_request_that_carried_it(
    tmp_path: Path, revision: str
) -> None:
    server = Server("web")

    @server.tool
    def hello() -> str:
        return "hello"

    async with (
        on_a_port(server.asgi(path="/mcp")) as address,
        inspected(f"http://{address}/mcp", "--revision", revision, folder=tmp_path) as page,
    ):
        await open_tool(page, "hello")
        await call(page)
        joined = await page.says(
            """import("/static/messages.js").then(({ rows, findExchanges }) => rows
              .filter((row) => row.direction === "to_server")
              .map((row) => [row.id ?? null, row.method, findExchanges(row).map((one) =>
                [one.message_id ?? null, one.message_method])]))"""
        )
        assert len(joined) >= 3
        assert all(found == [[id, method]] for id, method, found in joined), joined
        await page.fill(".wire input[type=search]", "method:tools/call to:server")
        await page.click(".wire .row")
        await page.click(".detail summary", text="HTTP 200")
        name = "mcp-method" if revision == "2026-07-28" else "mcp-protocol-version"
        shown = await page.until("document.querySelector('.detail .headers')?.innerText")
        assert name in shown.lower() and "protocol" in shown
