"""The inspector's page in a browser, on a real server.

    async with inspected("server.py") as page:
        await page.click("button", text="add")
        assert await page.until("document.querySelector('form')")

When the block ends, the page must be clean: nothing in the console, nothing blocked by its Content
Security Policy, no request to another host, and no problem that axe finds in either colour scheme.
The tests of a file look at one part of the page, so axe checks it once in each file and process;
`make matrix` checks it in every test. A test that provokes a message of the console empties the
list: `page.console.clear()`.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.browser import Page, browser

from .pictures import keep_pictures

START_SECONDS, END_SECONDS = 30.0, 15.0
URL_LINE = re.compile(r"Inspecting (?P<name>.+) on (?P<url>http://127\.0\.0\.1:\d+/#\S+)")
FRAME_ORIGINS = r"""
fetch("/").then((reply) => [...reply.headers.get("content-security-policy")
  .matchAll(/frame-src[^;]*?http:\/\/(localhost:\d+)/g)].map((found) => found[1]))
"""
SERVER = '''
from dovetail import Server

server = Server("weather", version="1.2.3")


@server.tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
'''


class Inspector:
    """A running `dovetail inspect --web`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.name = self.url = ""
        self.stderr: list[str] = []
        """The lines that it printed so far, without those before the URL."""

    async def wait_for_url(self) -> None:
        assert self.process.stderr is not None
        printed = b""
        async with asyncio.timeout(START_SECONDS):
            async for line in self.process.stderr:
                if found := URL_LINE.search(line.decode()):
                    self.name, self.url = found["name"], found["url"]
                    return
                printed += line
        raise AssertionError(f"`dovetail inspect --web` ended without a URL: {printed.decode()}")

    async def read_stderr(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.stderr.append(line.decode().rstrip("\n"))

    async def interrupt(self) -> int:
        """Press Ctrl-C, and return the exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
        return await asyncio.wait_for(self.process.wait(), END_SECONDS)


@asynccontextmanager
async def inspector(
    *arguments: str, folder: Path | None = None, command: str = "inspect", **environment: str
) -> AsyncIterator[Inspector]:
    """Run `dovetail inspect … --web --no-open` until the block ends.

    Args:
        arguments: the target and any options. Other commands than `inspect` get no `--web`.
        folder: where it runs and has its `.dovetail/`; by default the current folder.
        command: `inspect` or `dev`.
        environment: variables to add.
    """
    web = ["--web"] if command == "inspect" else []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", command, *arguments, *web, "--no-open"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, **environment},
    )
    running = Inspector(process)
    reading: asyncio.Task[None] | None = None
    try:
        await running.wait_for_url()
        reading = asyncio.create_task(running.read_stderr())
        yield running
        await running.interrupt()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if reading is not None:
            await reading


@asynccontextmanager
async def inspected(
    target: str | Path, *options: str, width: int = 1280, height: int = 800, **more: Any
) -> AsyncIterator[Page]:
    """Inspect a target, open the page in a browser, and check at the end that it is clean.

    Args:
        target: what `dovetail inspect` accepts.
        options: further options of the command.
        width, height: the size of the window.
        more: see `inspector`.
    """
    async with (
        inspector(str(target), *options, **more) as running,
        browser(width, height) as page,
    ):
        await page.go(running.url)
        yield page
        await assert_clean(page, running.url)


async def assert_clean(page: Page, url: str) -> None:
    """Check that a page of the inspector at this URL left nothing to complain about. The views of
    apps, at the origin that its policy allows in frames, belong to it."""
    await keep_pictures(
        page, os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1][:80].replace("/", "-")
    )
    problems = await page.axe() if _is_axe_due() else []
    ours = {urlsplit(url).netloc, *await page.says(FRAME_ORIGINS)}
    foreign = [one for one in await page.requests() if not _is_ours(one, ours)]
    found = {
        "console": page.console,
        "csp_reports": page.csp_reports,
        "foreign requests": foreign,
        "axe": problems,
    }
    assert not any(found.values()), found


_files_with_axe: set[str] = set()


def _is_axe_due() -> bool:
    file = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    is_first = file not in _files_with_axe
    _files_with_axe.add(file)
    return is_first or "MATRIX" in os.environ


def _is_ours(requested: str, ours: set[str]) -> bool:
    address = urlsplit(requested)
    if address.scheme in ("data", "blob", "about"):
        return True
    return address.netloc in ours
