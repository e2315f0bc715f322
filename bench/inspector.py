"""What `make bench-inspector` runs: Dovetail's inspector beside the official one.

    python -m bench.inspector [--short]

A run alternates between the two. Each load has a new process, a new window with an empty cache,
and the same server: Dovetail, over stdio, with the tool `add`. The official Inspector connects and
shows its tools after two clicks, which the benchmark makes as soon as they are possible. `--short`
takes one round and writes nothing; a full run leaves its figures in
`docs/benchmarks-inspector.json`, from which `inspector_page.py` writes the page.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from tests.browser import Page, browser

from . import machine
from .figures import Figure, Figures, best
from .gateway import GatewayGoal, bound_text
from .gateways import FOLDER
from .implementations import HERE, OURS
from .report import keep
from .words import number

KEPT = HERE.parent / "docs" / "benchmarks-inspector.json"
VERSION = "2.12.0"
HOME = FOLDER / "inspector"
CALLS, TOOLS, START_SECONDS = 10_000, 2_000, 60.0
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
PAINTED = "document.body.innerText.match(/^\\s*add\\s*$/m) !== null"
KEY_TO_PAINT = """new Promise((resolve) => addEventListener("input", ({ timeStamp }) =>
  requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - timeStamp))),
  { once: true, capture: true }))"""
CAUGHT_UP = (
    "Number(document.querySelector('.wire-head .count')?.textContent.replace(',', '')) >= 20000"
)
TOOLS_SHOWN = "document.querySelectorAll('#tools [role=option]').length > 5"
NOTE_TOOLS = f"""new MutationObserver((_, observer) => {{
  if (!({TOOLS_SHOWN})) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => (window.toolsPainted = performance.now())));
}}).observe(document, {{ childList: true, subtree: true }})"""


class InspectorSite(NamedTuple):
    """An inspector: its name in the tables, how it is started for the command of a server, what its
    URL looks like, and the elements to click until it shows the tools."""

    name: str
    command: Callable[[list[str]], list[str]]
    url: str
    clicks: tuple[str, ...] = ()


def _ours(server: list[str], *options: str) -> list[str]:
    command = [sys.executable, "-m", "dovetail", "inspect", shlex.join(server)]
    return [*command, "--web", "--no-open", *options]


def _theirs(server: list[str]) -> list[str]:
    launcher = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    modules = HOME / "node_modules"
    return [str(modules / "node/bin/node"), str(modules / launcher), "--web", "--", *server]


DOVETAIL = InspectorSite("Dovetail", _ours, r"http://127\.0\.0\.1:\d+/#\S+")
OFFICIAL = InspectorSite(
    f"MCP Inspector {VERSION}",
    _theirs,
    r"http://127\.0\.0\.1:\d+/?\?MCP\S+",
    ("input[role=switch]", "input[type=radio][value=Tools]"),
)
SITES = [DOVETAIL, OFFICIAL]


def _value(row: str) -> Callable[[dict[str, Figures]], float]:
    return lambda found: found[row][DOVETAIL.name].value


def _share(row: str) -> Callable[[dict[str, Figures]], float]:
    return lambda found: found[row][DOVETAIL.name].value / found[row][OFFICIAL.name].value


GOALS = [
    GatewayGoal("page, bytes over the wire, empty cache", _value("bytes"), 250_000),
    GatewayGoal("requests", _value("requests"), 30),
    GatewayGoal("requests to other hosts", _value("foreign"), 0),
    GatewayGoal("first contentful paint, of the official one", _share("first_paint"), 1 / 3),
    GatewayGoal("command to first tool, of the official one", _share("first_tool"), 1 / 3),
    GatewayGoal("command to first tool (s)", _value("first_tool"), 2),
    GatewayGoal("growth of the wheel (bytes)", _value("wheel"), 120_000),
    GatewayGoal("20,000 messages: filter key to paint (ms)", _value("filter"), 100),
    GatewayGoal("20,000 messages: rows in the DOM", _value("rows"), 300),
    GatewayGoal("2,000 tools: list to paint (ms)", _value("tools"), 500),
    GatewayGoal("calls per second, page open", _value("calls"), 2000, at_least=True),
    GatewayGoal("calls missing from the recording", _value("missing"), 0),
]


def install() -> None:
    """Install the official Inspector and a Node that is new enough for it, once."""
    if not (HOME / "node_modules" / "@modelcontextprotocol").exists():
        HOME.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--prefix", str(HOME), "--no-audit", "--no-fund", "--silent"]
        package = f"@modelcontextprotocol/inspector@{VERSION}"
        subprocess.run([*npm, package, "node@22"], check=True)


@asynccontextmanager
async def started(command: list[str], url: str) -> AsyncIterator[str]:
    """Start an inspector in an empty folder, which is also its home; its URL."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = os.pathsep.join([str(HOME / "node_modules/node/bin"), os.environ["PATH"]])
        here = {"HOME": folder, "XDG_STATE_HOME": folder, "PATH": path}
        pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        environment = {**os.environ, **here, "MCP_AUTO_OPEN_ENABLED": "false"}
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=pipe, stderr=both
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                found = await _read_url(process, url)
            draining = asyncio.create_task(process.communicate())
            yield found
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
        await draining


async def _read_url(process: asyncio.subprocess.Process, url: str) -> str:
    assert process.stdout is not None
    printed = b""
    async for line in process.stdout:
        if found := re.search(url, line.decode()):
            return found[0]
        printed += line
    raise SystemExit(f"The inspector printed no URL: {printed.decode()}")


async def load(site: InspectorSite) -> dict[str, float]:
    """Start an inspector and open its page; what that costs until the first tool is shown."""
    received: list[float] = []
    async with browser(1280, 800) as page:
        page.listen(
            "Network.loadingFinished", lambda one: received.append(one["encodedDataLength"])
        )
        begun = time.perf_counter()
        command = site.command(OURS.command("stdio", 0, 1))
        async with started(command, site.url) as url:
            await page.go(url)
            for element in site.clicks:
                found = f"document.querySelector({element!r})"
                await page.until(f"{found} && ({found}.click(), true)")
            await page.until(PAINTED)
            took = time.perf_counter() - begun
            first_paint = await page.until(FIRST_PAINT)
            asked = [one for one in await page.requests() if one.startswith(("http", "ws"))]
    foreign = {urlsplit(one).hostname for one in asked} - {"127.0.0.1", "localhost"}
    return {
        "bytes": sum(received),
        "requests": len(asked),
        "foreign": len(foreign),
        "first_paint": first_paint,
        "first_tool": took,
    }


async def call_api(web: aiohttp.ClientSession, url: str, operation: str, **fields: Any) -> Any:
    """Send one operation to Dovetail's inspector."""
    address = urlsplit(url)
    headers = {"Authorization": f"Bearer {address.fragment}"}
    api = f"http://{address.netloc}/api/{operation}"
    async with web.post(api, json=fields, headers=headers) as reply:
        assert reply.status == 200, await reply.text()
        return await reply.json()


async def many_calls() -> dict[str, float]:
    """Run a call 10,000 times with the page open and a recording; then filter the messages."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "calls.mcplog"
        command = _ours(OURS.command("stdio", 0, 1), "--record", str(file))
        async with started(command, DOVETAIL.url) as url, browser(1280, 800) as page:
            await page.go(url)
            await page.until(PAINTED)
            rate = await _call_and_wait(url)
            await page.until(CAUGHT_UP)
            figures = await _filter(page)
        text = file.read_text("utf-8") if file.exists() else ""
        made = text.count('\\"method\\":\\"tools/call\\"')
    return {**figures, "calls": rate, "missing": CALLS - made}


async def _call_and_wait(url: str) -> float:
    """Run a saved call 10,000 times, as the Load panel does; calls per second."""
    address = urlsplit(url)
    headers = {"Authorization": f"Bearer {address.fragment}"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(None)) as web:
        await call_api(web, url, "save", name="add", tool="add", arguments='{"a": 1, "b": 2}')
        after = (await call_api(web, url, "snapshot"))["n"]
        events = f"http://{address.netloc}/api/events?after={after}"
        async with web.get(events, headers=headers) as reply:
            await call_api(web, url, "load", name="add", runs=CALLS, at_once=32)
            return await _read_rate(reply)


async def _read_rate(reply: aiohttp.ClientResponse) -> float:
    async for line in reply.content:
        if line.startswith(b"data: ") and b'"kind":"load"' in line[:100]:
            report = json.loads(line.removeprefix(b"data: "))
            if report["status"] != "running":
                assert report["done"] == CALLS and not report.get("errors"), report
                rate: float = report["per_second"]
                return rate
    raise SystemExit("The inspector ended before the calls did.")


async def _filter(page: Page) -> dict[str, float]:
    await page.until("!!document.querySelector('[aria-label=\"Filter messages\"]')")
    await page.click('[aria-label="Filter messages"]')
    found = []
    for key in "tool":
        waiting = asyncio.create_task(page.says(KEY_TO_PAINT))
        await asyncio.sleep(0.2)  # until the page listens
        await page.press(key)
        found.append(await waiting)
    rows = await page.says("document.querySelectorAll('#wire [role=option]').length")
    return {"filter": max(found), "rows": rows}


async def many_tools() -> dict[str, float]:
    """Load the page of a server with 2,000 tools again: from the end of the reply with the list to
    the paint of its first rows."""
    command = _ours(OURS.command("stdio", 0, TOOLS))
    async with started(command, DOVETAIL.url) as url, browser(1280, 800) as page:
        await page.go(url)
        await page.until(TOOLS_SHOWN)
        await page.command("Page.addScriptToEvaluateOnNewDocument", source=NOTE_TOOLS)
        await page.command("Page.reload")
        painted = await page.until("window.toolsPainted")
        arrived = await page.says(
            "performance.getEntriesByType('resource').find((one) => one.name.endsWith('/snapshot'))"
            ".responseEnd"
        )
        return {"tools": painted - arrived}


def sizes() -> dict[str, Figures]:
    """The growth of the wheel, and what is installed."""
    files = [one for one in (HERE.parent / "dovetail/inspector").rglob("*") if one.is_file()]
    ours = [one.read_bytes() for one in files if "__pycache__" not in one.parts]
    theirs = [
        one.stat().st_size
        for one in (HOME / "node_modules").rglob("*")
        if one.is_file() and not one.is_symlink() and "node_modules/node" not in str(one)
    ]
    return {
        "wheel": {DOVETAIL.name: Figure(sum(len(zlib.compress(one)) for one in ours))},
        "installed": {
            DOVETAIL.name: Figure(sum(map(len, ours))),
            OFFICIAL.name: Figure(sum(theirs)),
        },
    }


async def measured(rounds: int) -> AsyncIterator[tuple[str, Figures]]:
    """Each row with its figures."""
    taken: dict[str, dict[str, list[Figure]]] = {}
    for _ in range(rounds):
        for site in SITES:
            for row, value in (await load(site)).items():
                taken.setdefault(row, {}).setdefault(site.name, []).append(Figure(value))
    for row, by_site in taken.items():
        yield row, {name: best(figures, False) for name, figures in by_site.items()}
    for take in (many_calls, many_tools):
        for row, value in (await take()).items():
            yield row, {DOVETAIL.name: Figure(value)}
    for row, figures in sizes().items():
        yield row, figures


async def run(rounds: int) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    async for row, figures in measured(rounds):
        found[row] = figures
        cells = "".join(f"{name:>26}: {number(one.value)}" for name, one in figures.items())
        print(f"{row:12}{cells}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.inspector", description="Measure Dovetail's inspector."
    )
    parser.add_argument("--short", action="store_true", help="one round; the page is not written")
    given = parser.parse_args()
    install()
    package = str(HERE.parent / "dovetail")
    subprocess.run([sys.executable, "-m", "compileall", "-q", package], check=True)  # as pip does
    found = asyncio.run(run(1 if given.short else 5))
    for goal in GOALS:
        how = "met" if goal.is_met(found) else "MISSED"
        print(f"{goal.title:48}{number(goal.value(found)):>10}  {bound_text(goal):18}  {how}")
    if not given.short:
        from . import inspector_page

        keep({"machine": machine.described_gateways(), "figures": found}, KEPT)
        inspector_page.write()


if __name__ == "__main__":
    main()
