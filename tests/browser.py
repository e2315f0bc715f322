"""A real browser for the tests: headless Chromium, spoken to in its own protocol.

    async with browser() as page:
        await page.go("http://127.0.0.1:8000/")
        await page.fill("input[name=user]", "ada")
        await page.click("button")

Each test gets a fresh profile. `Page.until` waits for what a script in the page says, however long
the page takes to get there; nothing sleeps longer than it must.
https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import itertools
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from scripts.system_packages import find_browser

START_SECONDS, WAIT_SECONDS = 20.0, 10.0


class Page:
    """One tab."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        ids: "itertools.count[int] | None" = None,
        session: str | None = None,
    ) -> None:
        self._socket, self._ids = socket, ids or itertools.count(1)
        self._session = {} if session is None else {"sessionId": session}

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol; its result."""
        id = next(self._ids)
        await self._socket.send_json(
            {"id": id, "method": method, "params": params, **self._session}
        )
        while True:
            message = json.loads((await self._socket.receive(timeout=WAIT_SECONDS)).data)
            if message.get("id") == id:
                assert "error" not in message, message
                return message["result"]

    async def go(self, url: str) -> None:
        """Open a page."""
        await self.command("Page.navigate", url=url)

    async def says(self, script: str) -> Any:
        """What an expression is worth in the page."""
        result = await self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is worth something in the page, which may be another one by
        then."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                with suppress(AssertionError):  # between two pages there is none to ask
                    if value := await self.says(script):
                        return value
                await asyncio.sleep(0.02)

    async def click(self, selector: str) -> None:
        """Press something, once it is there."""
        await self.until(
            f"document.readyState === 'complete' && document.querySelector({selector!r}) !== null"
        )
        await self.says(f"document.querySelector({selector!r}).click()")

    async def fill(self, selector: str, text: str) -> None:
        """Type into a field, once it is there."""
        await self.until(
            f"document.readyState === 'complete' && document.querySelector({selector!r}) !== null"
        )
        await self.says(f"document.querySelector({selector!r}).focus()")
        await self.command("Input.insertText", text=text)

    async def frames(self) -> dict[str, str]:
        """The addresses of the frames that are processes of their own, as those of another origin
        are; by their ids."""
        targets = (await self.command("Target.getTargets"))["targetInfos"]
        return {one["targetId"]: one["url"] for one in targets if one["type"] == "iframe"}

    async def frame(self, address: str) -> "Page":
        """The frame whose address begins so, once it is there."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (
                found := [
                    id for id, url in (await self.frames()).items() if url.startswith(address)
                ]
            ):
                await asyncio.sleep(0.02)
        attached = await self.command("Target.attachToTarget", targetId=found[0], flatten=True)
        return Page(self._socket, self._ids, attached["sessionId"])

    async def screenshot(self, path: Path) -> None:
        """Keep what it looks like."""
        shot = await self.command("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(width: int = 900, height: int = 900) -> AsyncIterator[Page]:
    """Start a browser with one empty tab."""
    program = find_browser()
    assert program, "no browser is installed: mark the test with `needs_browser`"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-proxy-server",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            "about:blank",
        ]
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            program, *options, stdin=quiet, stdout=quiet, stderr=quiet
        )
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as reply:
                    tab = next(one for one in await reply.json() if one["type"] == "page")
                async with session.ws_connect(
                    tab["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    page = Page(socket)
                    await page.command("Page.enable")
                    yield page
        finally:
            process.kill()
            await process.wait()


async def _port(file: Path) -> int:
    async with asyncio.timeout(START_SECONDS):
        while True:
            lines = file.read_text().splitlines() if file.is_file() else []
            if lines:
                return int(lines[0])
            await asyncio.sleep(0.05)
