"""How a user is sent to a login page, and how the answer comes back.

A `Browser` starts a visit, which knows the URL that the authorization server has to send the user
back to, and then goes to a page. `LoopbackBrowser` listens on this machine as long as the visit
lasts: https://www.rfc-editor.org/rfc/rfc8252#section-7.3

Any page in the user's browser, and any program on this machine, can send requests there as well.
Only one request counts: a GET of the exact path of the callback, addressed to this host and port,
with the `state` of the page that the user was sent to. The first such request ends the visit.
Everything else is refused and changes nothing.

If no browser can be opened, the URL is printed. If there is a terminal, the user may paste the URL
at which the login ended: the browser may run on another machine, where nobody listens.
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
"""The port that is tried first: with another one each time, a client would have to register again
for each login."""
PORT_RETRY_SECONDS = 0.1
MAX_REQUEST_BYTES = 16 * 1024
REQUEST_TIMEOUT_SECONDS = 10.0
MAX_CONNECTIONS = 32
CLOSE_TIMEOUT_SECONDS = 1.0
"""How long sending the last page may take."""
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
    """A user's way to a login page and back."""

    redirect_uri: str
    """Where the authorization server has to send the user."""

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        """Send the user to a page and wait for the answer.

        Args:
            url: The page, an http or https URL.
            about: What the login is for, for display.

        Returns:
            The parameters that came back to the redirect URI.

        Raises:
            Unauthorized: No answer came back.
        """


class Browser(Protocol):
    """How users are sent to pages. `OAuth(browser=…)` takes any object with this method."""

    def session(self) -> AbstractAsyncContextManager[Visit]:
        """Return a context manager for one visit, open as long as its answer may come."""


class LoopbackBrowser:
    """Opens the user's own browser, and listens on this machine for the answer.

    Args:
        port: The port to listen on (default: 28479, or any that is free). A port that is in use is
            waited for.
        open: Whether to open the browser (default: True). False only prints the URL.
        timeout: How many seconds the user has (default: 300). After that, Unauthorized is raised.
        tell: Takes each message to the user (default: print it to stderr).
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
        """Return a context manager for one visit, which listens as long as it is open.

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
        """Listen on the chosen port, once no other login uses it; else on the default port, with
        which clients are registered, or on any that is free."""
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
                    f"Port {port} of {HOST}, which the login needs, cannot be used: {problem}"
                )
            if not waited:
                self._tell(
                    f"Port {port} of {HOST} is in use, perhaps by another login. Waiting for it."
                )
            await asyncio.sleep(PORT_RETRY_SECONDS)
            waited += PORT_RETRY_SECONDS


class _LoopbackVisit:
    """One visit, and the requests that arrive during it."""

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
                "The login page of the authorization server is not an http or https URL, so it "
                "is not opened"
            )
        if self._closed:
            raise Unauthorized("The login was abandoned")
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
        """Open the page, or print its URL and accept a pasted one until the cleanup."""
        how = "Opening your browser" if self._open else "Open this page"
        self._tell(f"{how} to log in to {self._about}:\n{url}")
        if self._open:
            # Some browsers return only when they are closed: nothing waits for the thread.
            opening = run_in_daemon_thread(partial(open_in_browser, url), "dovetail-browser")
            opened: asyncio.Future[Any] = asyncio.wrap_future(opening)
            cleanup.callback(opened.cancel)
            await asyncio.wait((opened, answer), return_when=asyncio.FIRST_COMPLETED)
            if not opened.done() or opened.result():
                return
        if _read_lines(self._pasted, cleanup):
            self._tell(
                "If your browser is on another machine, copy the URL that it ends at, paste it "
                "here, and press Enter."
            )

    def _pasted(self, line: str) -> None:
        if line and not self._take(_parse_parameters(urlsplit(line).query)):
            self._tell(
                "This is not the URL at which the login ended. It begins with " + self.redirect_uri
            )

    def _take(self, found: dict[str, str]) -> bool:
        """Accept the expected answer, once; False for anything else."""
        if self._answer is None or self._answer.done() or not found.keys() & {"code", "error"}:
            return False
        if found.get("state", "") != self._state:
            return False
        self._answer.set_result(found)
        return True

    # requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close."""
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        try:
            if len(self._requests) <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                    writer.write(self._reply(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # not the expected answer
        finally:
            self._requests.discard(task)
            writer.close()

    def _reply(self, head: bytes) -> bytes:
        line, hosts = _REQUEST.match(head), _HOST.findall(head)
        # Anyone may own a name that resolves to this machine, so only the address counts.
        if line is None or hosts != [self._authority.encode()]:
            return _page(404, "Not found", "There is no page at this address.")
        target = urlsplit(line[1].decode())
        if target.path != PATH or self._answer is None:
            return _page(404, "Not found", "There is no page at this address.")
        found = _parse_parameters(target.query)
        if not self._take(found):
            text = "This answer does not belong to the login that is in progress."
            return _page(400, "Wrong login", text)
        if "error" in found:
            # Who sent the error is not known yet, so it is not shown:
            # https://www.rfc-editor.org/rfc/rfc9207#section-2.4
            text = (
                f"The login to {self._about} was refused. The program that you came from says why."
            )
            return _page(200, "Not logged in", text)
        text = f"The program that you came from completes the login to {self._about}."
        return _page(200, "Answer received", text)

    async def close(self) -> None:
        """Finish sending the last page, and fail a `go` that still waits."""
        self._closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unauthorized("The login was abandoned"))
        if self._requests:
            await asyncio.wait(self._requests, timeout=CLOSE_TIMEOUT_SECONDS)
        for task in self._requests:
            task.cancel()


def _parse_parameters(query: str) -> dict[str, str]:
    """Return the parameters of an answer; none if a name is there twice, which is forbidden:
    https://www.rfc-editor.org/rfc/rfc6749#section-3.1"""
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
    """Tell whether a window can be opened. A browser in the terminal would take the terminal from
    the running program."""
    return sys.platform in ("win32", "darwin") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    )


def _read_lines(take: Callable[[str], None], cleanup: ExitStack) -> bool:
    """Pass each line that is typed to `take`, without blocking, until the cleanup. Returns False if
    stdin is not a terminal."""
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
