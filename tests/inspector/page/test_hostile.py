"""Text of a server is only ever text, and no amount of it stops the page."""

from pathlib import Path
from typing import Any

from .actions import call, has, open_panel, open_tool
from .harness import inspected
from .raw_server import object_of, tool, write_server

EVIL = (
    "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    "<b>bold</b>\u202egnp.exe\u200b\u2066\U000e0041"
)
LINK = "javascript:document.title='owned'"
MARKS = ("U+202E", "U+200B", "U+2066", "U+E0041")
FOREIGN = (
    "document.querySelectorAll('body img:not([src^=\"data:image\"]), body script, body b').length"
)


def hostile_tools() -> list[dict[str, Any]]:
    schema = object_of(
        [EVIL],
        **{
            EVIL: {"type": "string", "title": EVIL, "description": EVIL, "default": EVIL},
            "pick": {"enum": [EVIL, LINK]},
            "variant": {"oneOf": [{"title": EVIL, "type": "string"}, {"type": "integer"}]},
            "__proto__": {"type": "string"},
        },
    )
    hints = {"title": EVIL, "readOnlyHint": EVIL}
    return [
        tool("hostile", schema, title=EVIL, description=EVIL, annotations=hints),
        tool(EVIL, description=EVIL),
        tool("error"),
    ]


RESULTS: dict[str, Any] = {
    "hostile": {
        "content": [
            {"type": "text", "text": EVIL},
            {"type": EVIL, "text": EVIL},
            {"type": "image", "mimeType": f"image/png,{EVIL}", "data": EVIL},
            {"type": "image", "mimeType": "text/html", "data": "PGI+"},
            {"type": "resource_link", "uri": LINK, "name": EVIL},
            {"type": "resource_link", "uri": "data:text/html,<b>x</b>", "name": "data"},
            {"type": "resource", "resource": {"uri": LINK, "text": EVIL, "mimeType": EVIL}},
        ],
        "structuredContent": {EVIL: [{EVIL: EVIL}, {EVIL: EVIL}]},
    },
    "error": {"error": {"code": 1, "message": EVIL, "data": {EVIL: EVIL}}},
}


async def test_html_scripts_and_invisible_characters_are_shown_as_text(tmp_path: Path) -> None:
    server = write_server(tmp_path, hostile_tools(), RESULTS, name=f"\u202e{EVIL}", version=EVIL)
    async with inspected(server, folder=tmp_path) as page:
        for name in ("hostile", "error"):
            await open_tool(page, name)
            await call(page)
            assert await page.until(has("<b>bold</b>", ".result"))
            for mark in MARKS:
                assert await page.says(has(mark, ".result"))
            assert await page.says(FOREIGN) == 0
        for where in (".top h1", ".left"):
            await page.fill(".left input[type=search]", "")
            assert await page.until(has("U+202E", where))
        assert await page.says("document.body.scrollWidth <= innerWidth")
        await page.click(".wire .row:last-child")
        assert await page.until(has("U+202E", ".detail"))
        await page.press("Escape")
        await page.press("Control+k")
        assert await page.until(has("U+202E", "dialog"))
        await page.press("Escape")
        links = "[...document.querySelectorAll('a')].map((one) => one.protocol)"
        assert set(await page.says(links)) <= {"http:", "https:"}
        assert await page.says(FOREIGN) == 0
        assert await page.says("document.title") == "Dovetail inspector"


QUESTIONS: dict[str, Any] = {
    "form": {
        "message": EVIL,
        "requestedSchema": object_of(
            [EVIL],
            **{EVIL: {"type": "string", "title": EVIL, "description": EVIL, "default": EVIL}},
        ),
    },
    "url": {"mode": "url", "message": EVIL, "url": LINK, "elicitationId": "1"},
    "sampling": {
        "messages": [{"role": "user", "content": {"type": "text", "text": EVIL}}],
        "systemPrompt": EVIL,
        "maxTokens": 5,
    },
}


async def test_hostile_questions_are_shown_as_text(tmp_path: Path) -> None:
    asked = []
    for name, params in QUESTIONS.items():
        method = "sampling/createMessage" if name == "sampling" else "elicitation/create"
        asked.append({"id": f"ask-{name}", "method": method, "params": params})
    server = write_server(tmp_path, [tool("ask")], {"ask": {"content": [], "before": asked}})
    async with inspected(server, folder=tmp_path) as page:
        await open_tool(page, "ask")
        await page.click("button.primary[data-key=c]")
        await page.until("document.querySelectorAll('.card').length === 2")
        await page.fill(".wire input[type=search]", "id:ask-url error to:server")
        refused = "document.querySelectorAll('.wire .row').length === 1"
        assert await page.until(refused), "the client refuses a URL that is not http or https"
        assert await page.until(
            "[...document.querySelectorAll('.card')].every((one) => "
            "one.innerText.includes('<b>bold</b>') && one.innerText.includes('U+202E'))"
        )
        assert await page.says(FOREIGN) == 0
        assert await page.says("document.querySelectorAll('.card a').length") == 0
        assert await page.says("document.title") == "Dovetail inspector"
        assert await page.axe() == []


NAMELESS: dict[str, Any] = {
    "resources/list": {"resources": [{}, {"uri": 5}, None, {"uri": "x://y", "name": {}}]},
    "resources/templates/list": {"resourceTemplates": [{}, {"uriTemplate": []}]},
    "prompts/list": {"prompts": [{}, {"name": None}, []]},
}


async def test_items_without_a_name_do_not_hide_the_others(tmp_path: Path) -> None:
    broken: list[Any] = [{}, {"name": 7}, {"name": None, "title": {}}, "text", tool("say_it")]
    async with inspected(write_server(tmp_path, broken, answers=NAMELESS), folder=tmp_path) as page:
        for name in ("(no name)", "7", "null", "say_it"):
            assert await page.until(has(name, "#tools"))
        assert await page.until(has("(no name)", ".middle h2"))
        await page.press("Control+k")
        for name in ("(no name)", "say_it", "(no uri)", "x://y"):
            assert await page.until(has(name, "dialog"))
        await page.press("Escape")
        await open_panel(page, "Compare")
        labels = "[...document.querySelectorAll('#compare-choose option')].map((one) => one.text)"
        assert {"(no name)", "say_it", "(no uri)", "x://y"} <= set(await page.until(labels))
        for panel, name in (("Prompts", "(no name)"), ("Resources", "(no uri)")):
            await open_panel(page, panel)
            assert await page.until(has(name, ".left"))
            assert await page.until(has(name, ".middle h2"))
        assert await page.until(has("(no uriTemplate)", ".left"))


async def test_the_whole_of_a_long_text_can_be_reached(tmp_path: Path) -> None:
    name = f"long{'x' * 3000}end"
    async with inspected(write_server(tmp_path, [tool(name)]), folder=tmp_path) as page:
        await page.until(has("…", "#tools"))
        assert await page.says("document.querySelector('#tools .text').title") == name
        while not await page.says(has("end", ".middle h2")):
            await page.click(".middle h2 .more")
        assert await page.says("document.querySelector('.middle h2').innerText") == name


async def test_20000_messages_are_filtered_without_delay(tmp_path: Path) -> None:
    server = write_server(tmp_path, [tool("flood")], {"flood": {"content": [], "notes": 20_000}})
    async with inspected(server, folder=tmp_path) as page:
        await open_tool(page, "flood")
        await call(page)
        count = "import('/static/messages.js').then((one) => one.rows.length > 19000)"
        assert await page.until(count)
        rows = "document.querySelectorAll('.wire .row').length"
        assert 0 < await page.says(rows) < 300
        took = await page.says(
            """(async () => {
              const field = document.querySelector('.wire input[type=search]');
              const began = performance.now();
              field.value = 'method:tools/call';
              field.dispatchEvent(new Event('input', { bubbles: true }));
              await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
              return performance.now() - began;
            })()"""
        )
        assert await page.until(f"{rows} === 2")
        assert took < 10_000


async def test_2000_tools_are_listed(tmp_path: Path) -> None:
    tools = [tool(f"group{n // 100}_tool_{n}", description="d" * 200) for n in range(2000)]
    async with inspected(write_server(tmp_path, tools), folder=tmp_path) as page:
        assert await page.until(has("2,000", ".tabs"))
        await page.until("document.querySelector('.left .row')")
        assert await page.says("document.querySelectorAll('.left .row').length") < 300
        await open_tool(page, "group19_tool_1999")


async def test_a_result_of_20_megabytes_is_shown_in_part(tmp_path: Path) -> None:
    server = write_server(tmp_path, [tool("big")], {"big": {"megabytes": 20}})
    async with inspected(server, folder=tmp_path) as page:
        await open_tool(page, "big")
        await call(page)
        assert await page.until(has("Show more", ".result"))
        assert await page.says("document.body.innerText.length") < 300_000
        await page.says(
            "[...document.querySelectorAll('.wire .row')].findLast("
            "(one) => one.innerText.includes('MB')).click()"
        )
        assert await page.until(has("Show the whole message", ".detail"))
