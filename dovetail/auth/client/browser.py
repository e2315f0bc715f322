"""How a user is sent to a login page, and how the answer comes back.

A `Browser` begins a visit, which knows the address that the authorization server is to send the
user back to, and then goes somewhere. `LoopbackBrowser` listens on this machine for as long as the
visit lasts (RFC 8252, section 7.3). https://www.rfc-editor.org/rfc/rfc8252#section-7.3

Any page in the user's browser, and any program on this machine, can send something there as well.
What counts is a GET of the callback's exact path, addressed to this very host and port, with the
`state` of the page that the user was sent to. The first such answer ends the visit; everything else
is turned away and changes nothing.

Where no browser can be opened the address is printed, and where there is a terminal, the address
that the login ended at may be pasted: the browser may be on another machine, where nobody listens.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from errno import EADDRINUSE
from functools import partial
from html import escape
from threading import Thread
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from ...errors import ConfigError, Unauthorized
from ...net import open_in_browser
from ...text import escape_unsafe

HOST, PATH = "127.0.0.1", "/callback"
DEFAULT_PORT = 28479
"""The port that is tried first: with another one each time, a client would have to be registered
anew for each login."""
PORT_RETRY_SECONDS = 0.1
"""Seconds between two looks at a port that is taken."""
MAX_REQUEST_BYTES = 16 * 1024
"""Bytes of a request."""
REQUEST_TIMEOUT_SECONDS = 10.0
"""Seconds that a request may take to arrive."""
MAX_CONNECTIONS = 32
"""Connections at once."""
CLOSE_TIMEOUT_SECONDS = 1.0
"""Seconds that the last page may take to leave."""
_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_REQUEST = re.compile(rb"GET (/[!-~]*) HTTP/1\.[01]\r\n")
_HOST = re.compile(rb"\r\nhost:[ \t]*([!-~]*)[ \t]*(?=\r\n)", re.IGNORECASE)

STYLE = (
    "body{margin:0;min-height:100vh;display:grid;place-items:center;background:#f6f5f2;color:#22201c;"
    "font:17px/1.5 "
    "system-ui,sans-serif}main{max-width:26rem;margin:1.5rem;padding:2.5rem;background:#fff;"
    "border-radius:14px;box-shadow:0 1px 3px #0002,0 12px 40px #0001}h1{margin:0 0 "
    ".5rem;font-size:1.35rem}"
    "p{margin:.25rem 0;overflow-wrap:anywhere}.quiet{color:#6d675d}"
    "@media(prefers-color-scheme:dark){body{background:#191816;color:#eee}main{background:#252320}.quiet{color:#a8a196}}"
)
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
    'content="width=device-width">'
    "<title>{title}</title><style>{style}</style><main><h1>{title}</h1><p>{text}</p>"
    '<p class="quiet">You can close this window.</p></main></html>'
)


class Visit(Protocol):
    """A user's way to a page and back."""

    redirect_uri: str
    """Where the user is to be sent back to."""

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        """Send the user there; the parameters that came back. Raises Unauthorized where none do."""


class Browser(Protocol):
    """Sends users to pages. `Client(auth=OAuth(browser=…))` takes anything of this shape."""

    def session(self) -> AbstractAsyncContextManager[Visit]:
        """A visit, for as long as its answer may come."""


class LoopbackBrowser:
    """Opens the user's own browser, and listens on this machine for the answer. `port=0` is the
    usual one, or any that is free; `open=False` only prints the address; `tell` takes what is
    printed, by default to stderr."""

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
        """Listen, for as long as this lasts."""
        visit = _LoopbackVisit(self._open and _has_browser(), self._timeout, self._tell)
        server = await self._listen(visit)
        visit.listens_at(server.sockets[0].getsockname()[1])
        try:
            yield visit
        finally:
            server.close()
            await visit.close()

    async def _listen(self, visit: "_LoopbackVisit") -> asyncio.Server:
        """At the port that was chosen, once no other login ends there; else at the usual one, which
        clients are registered with, or at any that is free."""
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
                    f"Port {port} of {HOST}, where the login is to end, cannot be used: {problem}"
                )
            if not waited:
                self._tell(
                    f"Port {port} of {HOST} is in use, perhaps by another login; waiting for "
                    "its end"
                )
            await asyncio.sleep(PORT_RETRY_SECONDS)
            waited += PORT_RETRY_SECONDS


class _LoopbackVisit:
    """One visit, and the requests that arrive meanwhile."""

    def __init__(self, open: bool, timeout: float, tell: Callable[[str], None]) -> None:
        self._open, self._timeout, self._tell = open, timeout, tell
        self._answer: asyncio.Future[Mapping[str, str]] | None = None
        self._about, self._state = "", ""
        self._requests: set[asyncio.Task[None]] = set()
        self._closed = False

    def listens_at(self, port: int) -> None:
        """The port is known now."""
        self._authority = f"{HOST}:{port}"
        self.redirect_uri = f"http://{self._authority}{PATH}"

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        """Send the user there; the parameters that came back."""
        if not _URL.fullmatch(url):
            raise Unauthorized(
                "The authorization server names a login page that is no http or https URL; it "
                "is not opened"
            )
        if self._closed:
            raise Unauthorized("The login was given up")
        self._about = escape_unsafe(about)
        self._state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        self._answer = asyncio.get_running_loop().create_future()
        stop: Callable[[], object] = _do_nothing
        try:
            async with asyncio.timeout(self._timeout):
                stop = await self._send(url, self._answer)
                return await self._answer
        except TimeoutError:
            text = (
                f"The login at {urlsplit(url).netloc} was not completed within "
                f"{self._timeout:g} s; try again"
            )
            raise Unauthorized(text) from None
        finally:
            self._answer = None
            stop()

    async def _send(
        self, url: str, answer: "asyncio.Future[Mapping[str, str]]"
    ) -> Callable[[], object]:
        """Open the page, or say where it is. Returns what ends the waiting for a paste."""
        how = "Your browser opens" if self._open else "Visit this page"
        self._tell(f"{how} to log in to {self._about}:\n{url}")
        if self._open:
            opened = _open_in_thread(url)
            either: tuple[asyncio.Future[Any], ...] = opened, answer
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done() or opened.result():
                return _do_nothing
        stop = _read_lines(self._pasted)
        if stop is not None:
            self._tell(
                "If your browser is on another machine, paste the address here that it ends "
                "at, and press Enter."
            )
        return stop or _do_nothing

    def _pasted(self, line: str) -> None:
        if line and not self._take(_parse_parameters(urlsplit(line).query)):
            self._tell(
                "This is not the address that the login ended at; it begins with "
                + self.redirect_uri
            )

    def _take(self, found: dict[str, str]) -> bool:
        """Whether this is the answer that is waited for; then nothing else is any more."""
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
            pass  # nobody that we wait for
        finally:
            self._requests.discard(task)
            writer.close()

    def _reply(self, head: bytes) -> bytes:
        line, hosts = _REQUEST.match(head), _HOST.findall(head)
        # A name that leads here may be anybody's: only our own address is ours.
        if line is None or hosts != [self._authority.encode()]:
            return _page(404, "Not found", "There is nothing here.")
        target = urlsplit(line[1].decode())
        if target.path != PATH or self._answer is None:
            return _page(404, "Not found", "There is nothing here.")
        found = _parse_parameters(target.query)
        if not self._take(found):
            return _page(
                400,
                "This is not the login",
                "It does not belong to the login that is waited for here.",
            )
        if "error" in found:
            # Whose words these are is not known yet:
            # https://www.rfc-editor.org/rfc/rfc9207#section-2.4
            return _page(
                200,
                "Not logged in",
                f"The login to {self._about} was refused; where you came from says why.",
            )
        return _page(
            200,
            "That is all",
            f"Your answer has arrived; the login to {self._about} goes on by itself.",
        )

    async def close(self) -> None:
        """Let the last page leave; whoever still waits does so in vain."""
        self._closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unauthorized("The login was given up"))
        if self._requests:
            await asyncio.wait(self._requests, timeout=CLOSE_TIMEOUT_SECONDS)
        for task in self._requests:
            task.cancel()


def _parse_parameters(query: str) -> dict[str, str]:
    """The parameters of an answer; none at all where one stands twice, which the standard forbids.
    https://www.rfc-editor.org/rfc/rfc6749#section-3.1"""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        return {}
    found = dict(pairs)
    return found if len(found) == len(pairs) else {}


def _page(status: int, title: str, text: str) -> bytes:
    from base64 import b64encode
    from hashlib import sha256

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
    """Whether a window can appear. A browser that lives in the terminal would take it from the
    program that is running."""
    return sys.platform in ("win32", "darwin") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    )


def _open_in_thread(url: str) -> "asyncio.Future[bool]":
    """Open it in a thread that nobody waits for: some browsers return when they are closed."""
    loop = asyncio.get_running_loop()
    opened = loop.create_future()

    def settle(done: bool) -> None:
        if not opened.done():
            opened.set_result(done)

    def work() -> None:
        done = open_in_browser(url)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, done)

    Thread(target=work, daemon=True).start()
    return opened


def _read_lines(take: Callable[[str], None]) -> Callable[[], object] | None:
    """Hear what is typed, line by line, without waiting for it; returns what ends that. None where
    nobody can type."""
    try:
        if sys.stdin is None or not sys.stdin.isatty():
            return None
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
    except (NotImplementedError, OSError, ValueError):  # not on Windows, nor where stdin is no file
        return None
    return partial(loop.remove_reader, number)


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _do_nothing() -> None:
    pass
