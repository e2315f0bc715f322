"""Sends the user to a login page and receives the authorization response.

A `Browser` starts a visit. The visit opens a page, and provides the redirect URI to which the
authorization server sends the user back. `LoopbackBrowser` listens on this machine during the
visit: https://www.rfc-editor.org/rfc/rfc8252#section-7.3

Any page in the user's browser, and any program on this machine, can also send requests to that
port. Only one request is accepted: a GET for the exact callback path, addressed to this host and
port, with the `state` of the page that was opened. The first such request ends the visit. All other
requests are refused and have no effect.

If no browser can be opened, the URL is printed. In a terminal, the user can paste the URL of the
page on which the login ended, because the browser may run on another machine.
"""

import asyncio
import os
import re
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from errno import EADDRINUSE
from functools import partial
from hashlib import sha256
from html import escape
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from ...aio import run_in_daemon_thread
from ...errors import ConfigError, Unauthorized
from ...net import open_in_browser
from ...text import escape_unsafe

HOST, PATH = "127.0.0.1", "/callback"
DEFAULT_PORT = 28479
"""The port to try first. If the port changed each time, a client would have to register again for
each login."""
PORT_RETRY_SECONDS = 0.1
MAX_REQUEST_BYTES = 16 * 1024
REQUEST_TIMEOUT_SECONDS = 10.0
MAX_CONNECTIONS = 32
CLOSE_TIMEOUT_SECONDS = 1.0
"""The timeout for sending the final page."""
_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_REQUEST = re.compile(rb"GET (/[!-~]*) HTTP/1\.[01]\r\n")
_HOST = re.compile(rb"\r\nhost:[ \t]*([!-~]*)[ \t]*(?=\r\n)", re.IGNORECASE)

STYLE = (
    "body{margin:0;min-height:100vh;display:grid;place-items:center;background:#f6f5f2;"
    "color:#22201c;font:17px/1.5 system-ui,sans-serif}"
    "main{max-width:26rem;margin:1.5rem;padding:2.5rem;background:#fff;border-radius:14px;"
    "box-shadow:0 1px 3px #0002,0 12px 40px #0001}"
    "h1{margin:0 0 .5rem;font-size:1.35rem}"
    "p{margin:.25rem 0;overflow-wrap:anywhere}.quiet{color:#6d675d}"
    "@media(prefers-color-scheme:dark){body{background:#191816;color:#eee}"
    "main{background:#252320}.quiet{color:#a8a196}}"
)
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>{style}</style><main><h1>{title}</h1><p>{text}</p>"
    '<p class="quiet">You can close this window.</p></main></html>'
)


class Visit(Protocol):
    """A user's visit to a login page."""

    redirect_uri: str
    """The URL to which the authorization server sends the user back."""

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        """Send the user to a page and wait for the authorization response.

        Args:
            url: The http or https URL of the page.
            about: A description of the server that the user logs in to, which is shown to the user.

        Returns:
            The parameters that the redirect URI received.

        Raises:
            Unauthorized: No response was received.
        """


class Browser(Protocol):
    """Sends users to login pages. `OAuth(browser=…)` accepts any object with this method."""

    def session(self) -> AbstractAsyncContextManager[Visit]:
        """Return a context manager for one visit, which stays open until the response has been
        received."""


class LoopbackBrowser:
    """Opens the user's browser and listens on this machine for the authorization response.

    Args:
        port: The port to listen on (default: 28479, or any free port if that is in use). If the
            port that you pass is in use, the login waits until it is free.
        open: Whether to open the browser (default: True). If False, the URL is only printed.
        timeout: How long the user has to log in before Unauthorized is raised, in seconds (default:
            300).
        tell: A function that shows a message to the user (default: the message is printed to
            stderr).
    """

    def __init__(
        self,
        port: int = 0,
        open: bool = True,
        timeout: float = 300,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._port, self._open, self._timeout = port, open, timeout
        self._tell = tell if tell is not None else _print_to_stderr

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Visit]:
        """Return a context manager that listens for the response during one visit.

        Raises:
            ConfigError: The port cannot be used.
        """
        visit = _LoopbackVisit(self._open and _has_browser(), self._timeout, self._tell)
        server = await self._listen(visit)
        visit.set_port(server.sockets[0].getsockname()[1])
        try:
            yield visit
        finally:
            server.close()
            await visit.close()

    async def _listen(self, visit: "_LoopbackVisit") -> asyncio.Server:
        """Listen on the chosen port once it is free. If no port was chosen, listen on the default
        port (for which clients are registered) or, if it is in use, on any free port."""
        waited = 0.0
        while True:
            for port in (self._port,) if self._port else (DEFAULT_PORT, 0):
                try:
                    return await asyncio.start_server(
                        visit.serve, HOST, port, limit=MAX_REQUEST_BYTES
                    )
                except OSError as error:
                    problem = error
            if problem.errno != EADDRINUSE or waited >= self._timeout:
                raise ConfigError(
                    f"Cannot listen on {HOST}:{port}, which the login needs: {problem}"
                )
            if not waited:
                self._tell(f"{HOST}:{port} is in use, possibly by another login. Waiting for it.")
            await asyncio.sleep(PORT_RETRY_SECONDS)
            waited += PORT_RETRY_SECONDS


class _LoopbackVisit:
    """Sends the user to a page, and handles the requests that arrive during the visit."""

    def __init__(self, open: bool, timeout: float, tell: Callable[[str], None]) -> None:
        self._open, self._timeout, self._tell = open, timeout, tell
        self._answer: asyncio.Future[Mapping[str, str]] | None = None
        self._about, self._state = "", ""
        self._requests: set[asyncio.Task[None]] = set()
        self._closed = False

    def set_port(self, port: int) -> None:
        self._authority = f"{HOST}:{port}"
        self.redirect_uri = f"http://{self._authority}{PATH}"

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        if not _URL.fullmatch(url):
            raise Unauthorized(
                "The authorization server's login page was not opened because its URL does "
                "not use http or https"
            )
        if self._closed:
            raise Unauthorized("The login was cancelled")
        self._about = escape_unsafe(about)
        self._state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        self._answer = asyncio.get_running_loop().create_future()
        with ExitStack() as cleanup:
            try:
                async with asyncio.timeout(self._timeout):
                    await self._send(url, self._answer, cleanup)
                    return await self._answer
            except TimeoutError:
                raise Unauthorized(
                    f"The login at {urlsplit(url).netloc} was not completed within "
                    f"{self._timeout:g} s. Try again."
                ) from None
            finally:
                self._answer = None

    async def _send(self, url: str, answer: asyncio.Future[Any], cleanup: ExitStack) -> None:
        """Open the page, or print its URL and accept a pasted redirect URL until the visit ends."""
        how = "Opening your browser" if self._open else "Open this page"
        self._tell(f"{how} to log in to {self._about}:\n{url}")
        if self._open:
            # With some browsers the call returns only when they are closed, so the thread is not
            # awaited.
            opening = run_in_daemon_thread(partial(open_in_browser, url), "dovetail-browser")
            opened: asyncio.Future[Any] = asyncio.wrap_future(opening)
            cleanup.callback(opened.cancel)
            await asyncio.wait((opened, answer), return_when=asyncio.FIRST_COMPLETED)
            if not opened.done() or opened.result():
                return
        if _read_lines(self._pasted, cleanup):
            self._tell(
                "If your browser is on another machine, copy the URL of the final page from "
                "its address bar, paste it here, and press Enter."
            )

    def _pasted(self, line: str) -> None:
        if line and not self._take(_parse_parameters(urlsplit(line).query)):
            self._tell(
                "This is not the URL of the final page, which starts with " + self.redirect_uri
            )

    def _take(self, found: dict[str, str]) -> bool:
        """Accept the expected response once. Returns False for any other response."""
        if self._answer is None or self._answer.done() or not found.keys() & {"code", "error"}:
            return False
        if found.get("state", "") != self._state:
            return False
        self._answer.set_result(found)
        return True

    # requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        try:
            if len(self._requests) <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                    writer.write(self._reply(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # not the expected response
        finally:
            self._requests.discard(task)
            writer.close()

    def _reply(self, head: bytes) -> bytes:
        line, hosts = _REQUEST.match(head), _HOST.findall(head)
        # Anyone can register a name that resolves to this machine, so only the address is accepted.
        if line is None or hosts != [self._authority.encode()]:
            return _page(404, "Not found", "There is no page at this address.")
        target = urlsplit(line[1].decode())
        if target.path != PATH or self._answer is None:
            return _page(404, "Not found", "There is no page at this address.")
        found = _parse_parameters(target.query)
        if not self._take(found):
            text = "This response does not match the login in progress."
            return _page(400, "Wrong login", text)
        if "error" in found:
            # The sender of the error has not been verified yet, so the error is not shown:
            # https://www.rfc-editor.org/rfc/rfc9207#section-2.4
            text = f"The login to {self._about} was refused. Return to your program to see why."
            return _page(200, "Not logged in", text)
        text = f"Return to your program, which is completing the login to {self._about}."
        return _page(200, "Response received", text)

    async def close(self) -> None:
        """Finish sending the final page, and fail any `go` call that is still waiting."""
        self._closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unauthorized("The login was cancelled"))
        if self._requests:
            await asyncio.wait(self._requests, timeout=CLOSE_TIMEOUT_SECONDS)
        for task in self._requests:
            task.cancel()


def _parse_parameters(query: str) -> dict[str, str]:
    """Return the parameters of a response. The result is empty if a name is repeated, which is
    forbidden: https://www.rfc-editor.org/rfc/rfc6749#section-3.1"""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        return {}
    found = dict(pairs)
    return found if len(found) == len(pairs) else {}


def _page(status: int, title: str, text: str) -> bytes:
    style = b64encode(sha256(STYLE.encode()).digest()).decode()
    body = PAGE.format(title=escape(title), text=escape(escape_unsafe(text)), style=STYLE).encode()
    head = (
        f"HTTP/1.1 {status} {title}\r\nContent-Type: text/html; "
        f"charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"Content-Security-Policy: default-src 'none'; style-src 'sha256-{style}'; base-uri "
        "'none'; form-action 'none'; "
        "frame-ancestors 'none'\r\nX-Frame-Options: DENY\r\nX-Content-Type-Options: nosniff\r\n"
        "Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _has_browser() -> bool:
    """Return whether a browser window can be opened. Text-mode browsers do not count, because they
    would take over the program's terminal."""
    return sys.platform in ("win32", "darwin") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    )


def _read_lines(take: Callable[[str], None], cleanup: ExitStack) -> bool:
    """Without blocking, pass each line that the user types to `take` until the visit ends. Returns
    False if stdin is not a terminal."""
    try:
        if sys.stdin is None or not sys.stdin.isatty():
            return False
        number, loop, typed = sys.stdin.fileno(), asyncio.get_running_loop(), bytearray()

        def readable() -> None:
            chunk = os.read(number, 4096)
            typed.extend(chunk)
            if not chunk or len(typed) > MAX_REQUEST_BYTES:
                loop.remove_reader(number)
            while b"\n" in typed:
                line, _, rest = bytes(typed).partition(b"\n")
                typed[:] = rest
                take(line.decode(errors="replace").strip())

        loop.add_reader(number, readable)
    except (NotImplementedError, OSError, ValueError):  # Windows, or stdin is not a real file
        return False
    cleanup.callback(loop.remove_reader, number)
    return True


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
