"""The browser of the tests: input as a person would give it, and what it collects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from .browser import SCHEMES, Page, browser
from .keyboard import parse_keys
from .system import needs_browser, needs_npm

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; require-trusted-types-for 'script'; trusted-types 'none'"
)
CSS = """:root { color-scheme: light dark }
.covered { position: relative } .cover { position: absolute; inset: 0; margin: 0 }
@media (prefers-color-scheme: dark) { .pale { color: #333; background: #222 } }"""


def html(body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><title>Page</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/app.css"><script src="/app.js" defer></script></head>'
        f"<body><main><h1>Page</h1>{body}</main></body></html>"
    )


@asynccontextmanager
async def opened(body: str, script: str = "") -> AsyncIterator[tuple[Page, str]]:
    """Serve a page under a strict policy and open it in a browser."""

    async def serve(request: web.BaseRequest) -> web.Response:
        found = {
            "/": ("text/html", html(body)),
            "/app.css": ("text/css", CSS),
            "/app.js": ("text/javascript", script),
        }.get(request.path)
        if found is None:
            return web.Response(status=404)
        headers = {"Content-Security-Policy": POLICY}
        return web.Response(content_type=found[0], text=found[1], headers=headers)

    runner = web.ServerRunner(web.Server(serve))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        async with browser() as page:
            await page.go(url)
            await page.until("document.readyState === 'complete'")
            yield page, url
    finally:
        await runner.cleanup()


@needs_browser
async def test_clicks_and_keys_are_real_input() -> None:
    script = """const seen = [];
      for (const kind of ["click", "keydown", "input"]) addEventListener(kind, (event) => {
        seen.push([kind, event.isTrusted, event.key ?? "", event.ctrlKey ?? false]);
        document.body.dataset.seen = JSON.stringify(seen);
      });"""
    async with opened('<button aria-label="Go">x</button> <input aria-label="text">', script) as (
        page,
        _,
    ):
        await page.click("button", text="Go")
        await page.click("input")
        await page.type("a?")
        await page.press("Control+k")
        seen = await page.until("JSON.parse(document.body.dataset.seen).length > 6 && seen")
        assert seen == [
            ["click", True, "", False],
            ["click", True, "", False],
            ["keydown", True, "a", False],
            ["input", True, "", False],
            ["keydown", True, "?", False],
            ["input", True, "", False],
            ["keydown", True, "k", True],
        ]
        assert await page.says("document.querySelector('input').value") == "a?"
        await page.fill("input", "new")
        assert await page.says("document.querySelector('input').value") == "new"
        await page.press("Shift+Tab")
        assert await page.says("document.activeElement.tagName") == "BUTTON"


@needs_browser
async def test_until_accepts_whatever_is_true_in_javascript(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened('<div class="covered"><button>x</button><p class="cover"></p></div>') as (
        page,
        _,
    ):
        assert await page.until("document.querySelector('button')") == {}
        assert await page.until("[]") == [] and await page.until("({})") == {}
        assert await page.until("({ a: [1] })") == {"a": [1]}
        assert await page.until("'text'") == "text" and await page.until("10n") == "10n"
        monkeypatch.setattr("tests.browser.WAIT_SECONDS", 0.2)
        for false in ("0", "''", "null", "undefined", "NaN", "0n", "-0", "false", "nothing"):
            with pytest.raises(AssertionError, match="still not true"):
                await page.until(false)
        with pytest.raises(AssertionError, match="still not true"):
            await page.click("button")  # it is covered


@needs_browser
async def test_messages_reports_and_requests_are_collected() -> None:
    script = """console.warn("careful", 1);
      fetch("/missing");
      fetch("https://foreign.invalid/").catch(() => {});
      try { document.body.innerHTML = "x" } catch {}
      setTimeout(() => { document.body.dataset.done = 1; throw new Error("oops"); });"""
    async with opened("", script) as (page, url):
        await page.until("document.body.dataset.done")
        async with asyncio.timeout(60):
            while not any("404" in one for one in page.console) or len(page.csp_reports) < 2:
                await page.requests()
        assert "warning: careful 1" in page.console
        assert any(one.startswith("exception:") and "oops" in one for one in page.console)
        reported = {one.partition(":")[0] for one in page.csp_reports}
        assert reported == {"connect-src", "require-trusted-types-for"}
        assert {url, f"{url}app.js", f"{url}app.css", f"{url}missing"} <= {*await page.requests()}


@needs_browser
@needs_npm
async def test_axe_looks_at_the_colours_of_both_schemes_and_leaves_no_trace() -> None:
    async with opened('<p class="pale">Pale in the dark</p><p><img src="/app.css"></p>') as (
        page,
        _,
    ):
        found = await page.axe()
        assert [one.partition(" ")[0] + one.split()[1] for one in found] == [
            "light:image-alt",
            "dark:color-contrast",
        ]
        assert await page.says("typeof axe") == "undefined"
        assert page.console == [] and page.csp_reports == []


@needs_browser
async def test_size_scheme_motion_and_screenshots(tmp_path: Path) -> None:
    async with opened("") as (page, _):
        await page.resize(320, 400, 2)
        assert await page.says("[innerWidth, innerHeight, devicePixelRatio]") == [320, 400, 2]
        await page.reduce_motion()
        for scheme in SCHEMES:
            await page.use_scheme(scheme)
            assert await page.says(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
            assert await page.says("matchMedia('(prefers-reduced-motion: reduce)').matches")
        await page.screenshots(tmp_path / "page.png")
        shots = [(tmp_path / f"page-{scheme}.png").read_bytes() for scheme in SCHEMES]
        assert shots[0] != shots[1] and all(shot.startswith(b"\x89PNG") for shot in shots)
        assert await page.says("matchMedia('(prefers-color-scheme: dark)').matches")


@pytest.mark.parametrize(
    ("keys", "key", "code", "modifiers", "text"),
    [
        ("a", "a", "KeyA", 0, "a"),
        ("A", "A", "KeyA", 8, "A"),
        ("?", "?", "Slash", 8, "?"),
        ("+", "+", "Equal", 8, "+"),
        ("5", "5", "Digit5", 0, "5"),
        ("é", "é", "", 0, "é"),
        ("Enter", "Enter", "Enter", 0, "\r"),
        ("Shift+Tab", "Tab", "Tab", 8, None),
        ("Control+Shift+k", "k", "KeyK", 10, None),
        ("Meta+k", "k", "KeyK", 4, None),
    ],
)
def test_keys(keys: str, key: str, code: str, modifiers: int, text: str | None) -> None:
    event = parse_keys(keys)
    assert (event["key"], event["code"], event["modifiers"]) == (key, code, modifiers)
    assert event.get("text") == text
