"""A real browser for the tests: headless Chromium, driven through its DevTools protocol.

    async with browser() as page:
        await page.go("http://127.0.0.1:8000/")
        await page.fill("input[name=user]", "ada")
        await page.click("button")
        assert await page.until("document.querySelector('h1')?.textContent") == "Welcome"
        assert await page.axe() == [] and page.console == []

Each process has one Chromium, and each test a window that shares nothing with others. Clicks and
keys are real input events: they reach what a person would reach, so an element that is covered or
not visible cannot be clicked. `Page.until` waits for a condition in the page; tests do not sleep.
"""

import asyncio
import atexit
import base64
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

from scripts.system_packages import find_browser

from . import node
from .devtools import DevTools, Listener, connect
from .keyboard import parse_keys

START_SECONDS, WAIT_SECONDS = 60.0, 60.0
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
FALSE_NUMBERS = ("NaN", "-0", "0n")
FIND = """(() => {
  if (document.readyState !== "complete") return null;
  const isText = (one) => [one.textContent.trim(), one.ariaLabel].includes(%(text)s);
  const found = [...document.querySelectorAll(%(selector)s)];
  return (%(text)s === null ? found[0] : found.find(isText)) ?? null;
})()"""
REACH = """(async (element) => {
  if (element === null) return null;
  element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
  const middle = ({ x, y, width, height } = {}) => [x + width / 2, y + height / 2];
  const at = middle(element.getClientRects()[0]);
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  const isStill = String(middle(element.getClientRects()[0])) === String(at);
  if (!isStill || !Number.isFinite(at[0])) return null;
  return element.contains(document.elementFromPoint(...at)) ? at : null;
})(%s)"""
"""Where an element can be clicked: it is visible, not covered, and does not move from one frame to
the next, as it does while a list is filled."""
SETTLE = """new Promise((resolve) => requestAnimationFrame(() => {
  for (const one of document.getAnimations())
    if (one.effect?.getComputedTiming().endTime !== Infinity) one.finish();
  requestAnimationFrame(() => resolve(true));
}))"""
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
"""What axe checks again in the second scheme, which has the same elements in other colours."""
RUN_AXE = """(rules) => axe.run(document, {
  iframes: false, resultTypes: ["violations"], ...(rules && { runOnly: rules }) }).then(
  ({ violations }) => violations.flatMap(({ id, impact, help, nodes }) =>
    nodes.map(({ target }) => `${id} (${impact}): ${help}: ${target.join(" ")}`)))"""


class Page:
    """A tab, or a frame that runs in a process of its own."""

    def __init__(self, devtools: DevTools, session: str | None = None) -> None:
        self._devtools, self._session = devtools, session
        self._media: dict[str, str] = {}
        self._requests: list[str] = []
        self.console: list[str] = []
        """What the console shows: messages of scripts, uncaught exceptions, failed requests."""
        self.csp_reports: list[str] = []
        """What the page's Content Security Policy blocked."""

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a DevTools command and return its result."""
        return await self._devtools.command(method, params, self._session)

    def listen(self, method: str, listener: Listener) -> None:
        """Call a function with the params of each such DevTools event."""
        self._devtools.listen(self._session, method, listener)

    async def observe(self) -> None:
        """Begin to collect console messages, CSP reports and requests."""
        self.listen("Runtime.consoleAPICalled", self._console_call)
        self.listen("Runtime.exceptionThrown", self._exception)
        self.listen("Log.entryAdded", self._log_entry)
        self.listen("Audits.issueAdded", self._issue)
        self.listen("Network.requestWillBeSent", self._request)
        self.listen("Network.webSocketCreated", self._request)
        for domain in ("Page", "Runtime", "Log", "Audits", "Network"):
            await self.command(f"{domain}.enable")

    def _console_call(self, event: dict[str, Any]) -> None:
        texts = [str(one.get("value", one.get("description"))) for one in event["args"]]
        self.console.append(f"{event['type']}: {' '.join(texts)}")

    def _exception(self, event: dict[str, Any]) -> None:
        details = event["exceptionDetails"]
        text = details.get("exception", {}).get("description", "")
        self.console.append(f"exception: {details['text']} {text}")

    def _log_entry(self, event: dict[str, Any]) -> None:
        entry = event["entry"]
        self.console.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}".strip())

    def _issue(self, event: dict[str, Any]) -> None:
        issue = event["issue"]["details"].get("contentSecurityPolicyIssueDetails")
        if issue is not None:
            self.csp_reports.append(
                f"{issue['violatedDirective']}: "
                f"{issue.get('blockedURL') or issue['contentSecurityPolicyViolationType']}"
            )

    def _request(self, event: dict[str, Any]) -> None:
        self._requests.append(event["request"]["url"] if "request" in event else event["url"])

    async def requests(self) -> list[str]:
        """Return the URLs of all requests so far, WebSockets and `data:` included."""
        await self.says("0")  # events that came before its result have been seen
        return list(self._requests)

    async def go(self, url: str) -> None:
        """Open a URL."""
        await self.command("Page.navigate", url=url)

    async def says(self, script: str, **options: Any) -> Any:
        """Evaluate JavaScript in the page and return its value as JSON would carry it. A promise is
        awaited; an exception fails the test."""
        result = await self._evaluate(script, returnByValue=True, **options)
        return result.get("value")

    async def _evaluate(self, script: str, **options: Any) -> dict[str, Any]:
        result = await self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, **options
        )
        assert "exceptionDetails" not in result, result
        value: dict[str, Any] = result["result"]
        return value

    async def until(self, script: str) -> Any:
        """Wait until an expression is true in JavaScript, and return its value. Elements and other
        objects are true; an element is returned as `{}`. The page may change meanwhile."""
        problem: object = None
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    try:
                        value = await self._evaluate(script)
                        if _is_true(value):
                            return await self._read(value)
                        problem = value.get("value")
                    except AssertionError as error:  # such as between two pages
                        problem = error
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(
                f"after {WAIT_SECONDS:g} s this was still not true: {script}\nlast: {problem}\n"
                f"console: {self.console}"
            ) from None

    async def _read(self, value: dict[str, Any]) -> Any:
        if "objectId" not in value:
            return value.get("value", value.get("unserializableValue"))
        function = "function() { return this instanceof Node || this === window ? {} : this; }"
        result = await self.command(
            "Runtime.callFunctionOn",
            objectId=value["objectId"],
            functionDeclaration=function,
            returnByValue=True,
        )
        return result["result"].get("value", {})

    async def click(self, selector: str, text: str | None = None) -> None:
        """Click the first element that matches, as soon as it can be clicked.

        Args:
            selector: a CSS selector.
            text: only an element with exactly this text, or this `aria-label`.
        """
        element = FIND % {"selector": json.dumps(selector), "text": json.dumps(text)}
        if self._session is not None:  # a frame has no input of its own
            await self.until(element)
            await self.says(f"{element}.click()")
            return
        x, y = await self.until(REACH % element)
        await self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        button = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await self.command("Input.dispatchMouseEvent", type="mousePressed", **button)
        await self.command("Input.dispatchMouseEvent", type="mouseReleased", **button)

    async def fill(self, selector: str, text: str) -> None:
        """Replace the text of a field, as soon as it is there. It gets the focus and an `input`
        event."""
        element = FIND % {"selector": json.dumps(selector), "text": "null"}
        await self.until(element)
        await self.says(f"{element}.focus(); {element}.select?.()")
        await self.command("Input.insertText", text=text)

    async def type(self, text: str) -> None:
        """Type into whatever has the focus, one key after the other."""
        for character in text:
            await self.press(character)

    async def press(self, keys: str) -> None:
        """Press one key, with any modifiers: `Enter`, `?`, `Control+k`, `Shift+Tab`."""
        event = parse_keys(keys)
        down = "keyDown" if "text" in event else "rawKeyDown"
        await self.command("Input.dispatchKeyEvent", type=down, **event)
        event.pop("text", None)
        await self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    async def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Set the size of the viewport in CSS pixels.

        `scale` is how many pixels of the screen a CSS pixel has: a window of 1280 by 800 at a zoom
        of 200 % is `resize(640, 400, 2)`.
        """
        await self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    async def use_scheme(self, scheme: Scheme) -> None:
        """Let the system prefer light or dark colours."""
        await self._set_media("prefers-color-scheme", scheme)

    async def reduce_motion(self, reduced: bool = True) -> None:
        """Let the system ask for less motion."""
        await self._set_media("prefers-reduced-motion", "reduce" if reduced else "")

    async def _set_media(self, name: str, value: str) -> None:
        self._media[name] = value
        features = [{"name": name, "value": value} for name, value in self._media.items()]
        await self.command("Emulation.setEmulatedMedia", features=features)

    async def each_scheme(self) -> AsyncIterator[Scheme]:
        """Go through light and dark; each time, wait until the page is drawn and animations that
        end have ended. The scheme that was set before is restored."""
        before = self._media.get("prefers-color-scheme", "")
        for scheme in SCHEMES:
            await self.use_scheme(scheme)
            await self.says(SETTLE)
            yield scheme
        await self._set_media("prefers-color-scheme", before)

    async def axe(self) -> list[str]:
        """Return the accessibility problems that axe finds in the light and in the dark scheme."""
        await asyncio.to_thread(node.install)
        # A world of its own: the page's scripts do not see axe, its policy does not block it.
        frame = (await self.command("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        world = await self.command("Page.createIsolatedWorld", frameId=frame, worldName="axe")
        context = world["executionContextId"]
        source = (node.MODULES / "axe-core/axe.min.js").read_text("utf-8")
        await self._evaluate(f"{source};0", contextId=context)
        found: list[str] = []
        async for scheme in self.each_scheme():
            rules = "null" if scheme == SCHEMES[0] else json.dumps(COLOUR_RULES)
            problems = await self.says(f"({RUN_AXE})({rules})", contextId=context)
            found += [f"{scheme}: {problem}" for problem in problems]
        return found

    async def frames(self) -> dict[str, str]:
        """Return the URLs of the frames that run in processes of their own, which are those of
        another origin, by their ids."""
        targets = (await self.command("Target.getTargets"))["targetInfos"]
        return {one["targetId"]: one["url"] for one in targets if one["type"] == "iframe"}

    async def frame(self, address: str) -> "Page":
        """Wait for a frame whose URL starts like this, and return it."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (
                found := [
                    id for id, url in (await self.frames()).items() if url.startswith(address)
                ]
            ):
                await asyncio.sleep(0.02)
        attached = await self.command("Target.attachToTarget", targetId=found[0], flatten=True)
        return Page(self._devtools, attached["sessionId"])

    async def screenshot(self, path: Path) -> None:
        """Save what the page looks like as a PNG file."""
        shot = await self.command("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    async def screenshots(self, path: Path) -> None:
        """Save the page in both schemes: `tools.png` becomes `tools-light.png` and
        `tools-dark.png`."""
        async for scheme in self.each_scheme():
            await self.screenshot(path.with_stem(f"{path.stem}-{scheme}"))


def _is_true(value: dict[str, Any]) -> bool:
    """Return whether a DevTools `RemoteObject` is true in JavaScript."""
    if "unserializableValue" in value:
        return value["unserializableValue"] not in FALSE_NUMBERS
    return "objectId" in value or bool(value.get("value"))


OPTIONS = (
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
)


@cache
def _start() -> Path:
    """Start Chromium, once per process; it ends with the process. Return the file with its
    address."""
    program = find_browser()
    assert program, "no browser is installed: mark the test with `needs_browser`"
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [program, *OPTIONS, f"--user-data-dir={folder.name}", "about:blank"],
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
    )

    def end() -> None:
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return Path(folder.name) / "DevToolsActivePort"


@asynccontextmanager
async def browser(width: int = 900, height: int = 900) -> AsyncIterator[Page]:
    """Open a window with one empty tab. It shares nothing with other windows: cookies, storage and
    cache are its own, and go with it."""
    address = await _address(_start())
    async with connect(address) as program:
        made = await program.command("Target.createBrowserContext", {"disposeOnDetach": True}, None)
        tab = {"url": "about:blank", "width": width, "height": height, "newWindow": True}
        target = await program.command("Target.createTarget", tab | made, None)
        url = f"{address.partition('/devtools/')[0]}/devtools/page/{target['targetId']}"
        try:
            async with connect(url) as devtools:
                page = Page(devtools)
                await page.observe()
                yield page
        finally:
            await program.command("Target.disposeBrowserContext", made, None)


async def _address(file: Path) -> str:
    """Wait for the file that Chromium writes when it listens, and return its WebSocket URL."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            lines = file.read_text().splitlines() if file.is_file() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            await asyncio.sleep(0.05)
