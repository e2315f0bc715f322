"""The pages on which users of a gateway connect their own accounts at servers, and the login at the
authorization server.

    GET  /connect/<handle>           the guard signs the user in; the page says what is connected
    POST /connect/<handle>           the login begins: a redirect to the authorization server
    GET  /connect/callback/<server>  the user is back; the login goes on, and the tokens are stored

A link is sealed, for one user and one entry, and can be used once. Each step requires that the
browser is signed in as that user, so a link does not work for anybody else. The callback is
accepted once, and only in the browser in which the login began. Each server has its own, which its
authorization server knows. So a hostile server cannot have the user log in at the authorization
server of another one, to get the code of that login:
https://www.rfc-editor.org/rfc/rfc9700#section-4.4

The login itself is that of every client (`auth/client/flow.py`). It runs in the process that
answered the POST and waits there; only that process knows the PKCE verifier. The callback may reach
another worker or replica, which leaves the response in the shared storage.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
from msgspec import Struct

from ...aio import TaskSet
from ...auth.client.browser import Visit
from ...auth.provider.pages import error_page
from ...auth.provider.sessions import (
    check_csrf_token,
    csrf_token,
    read_cookie,
    redirect,
    with_cookie,
)
from ...auth.provider.storage import Storage, digest_of, row_key
from ...auth.provider.web import OAuthError, parse_fields, parse_form
from ...client.client import Client
from ...client.forced_login import log_in
from ...errors import BackendAway, DovetailError, Overloaded, Unauthorized
from ...logs import get_logger
from ...net import is_loopback
from ...ports import Guard, HttpRequest, HttpResponse, PublicUrl
from ...sealing import Forged
from ...text import escape_unsafe
from ..upstream import UpstreamServer
from .html import ConnectDetails, connect_page, result_page
from .servers import PerUserServer
from .tokens import UserTokens

log = get_logger("gateway")

PATH: Final = "/connect/"
CALLBACK: Final = "/connect/callback/"
METHODS: Final = ("GET", "HEAD", "POST")
"""POST is also the method of the guard's login form, which any page may show."""
LINK_SECONDS: Final = 600.0
"""How long a link can be used."""
LOGIN_SECONDS: Final = 600.0
"""How long a user has to log in at the authorization server."""
START_SECONDS: Final = 30.0
"""How long to wait for the authorization server's metadata, and for the tokens."""
POLL_SECONDS: Final = 0.1
SLOWER_AFTER_SECONDS: Final = 10.0
"""After this time, what another process stores is looked for less often."""
MAX_LOGINS: Final = 200
"""The number of logins that may be under way in one process, one for each user and server."""
_PURPOSE: Final = "connect"
_COOKIE: Final = "connect-"
T = TypeVar("T")


class Link(Struct, frozen=True):
    """What a link is for."""

    id: str
    """The id of the link, and of its elicitation."""
    user: str
    server: str
    digest: str
    """The digest of the server's entry."""
    expires: float
    scopes: tuple[str, ...] = ()


class PendingLogin(Struct, frozen=True):
    """A user who was sent to an authorization server."""

    user: str
    server: str
    browser: str
    """The digest of the browser's cookie."""


class RefusedPage(Exception):
    """A request for a page that is refused. The text is shown to the user."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


INVALID_LINK: Final = (
    "This link is not valid, has expired, or was used before. Return to your program and try "
    "again to get a new link."
)
INVALID_RESPONSE: Final = (
    "This response does not belong to a login that was started in this browser. Return to your "
    "program and try again."
)


class ConnectPages:
    """The pages of one gateway.

    Args:
        tokens: Where tokens are stored.
        guard: The guard of the gateway, which can sign in a browser.
        name: The name of the gateway.
        find_server: Returns a server by name.
        make_client: Returns a client for a server with credentials.
        on_connected: Called with the link after a user has connected.
    """

    def __init__(
        self,
        tokens: UserTokens,
        guard: Guard,
        name: str,
        *,
        find_server: Callable[[str], UpstreamServer | None],
        make_client: Callable[[PerUserServer, Any], Client],
        on_connected: Callable[[PerUserServer, Link], Awaitable[None]],
    ) -> None:
        self._tokens, self._guard, self._name = tokens, guard, name
        self._find_server, self._make_client = find_server, make_client
        self._on_connected = on_connected
        self.base: str | None = None
        """The public URL that the pages are below."""
        self._logins = TaskSet()
        self._newest: dict[tuple[str, str], asyncio.Task[str]] = {}
        """The login that is under way for each user and server. A later one replaces it."""

    def make_url(self, link: Link) -> str:
        """Return the URL of a link.

        Args:
            link: What the link is for.
        """
        handle = self._tokens.ring.seal(_PURPOSE, msgspec.msgpack.encode(link))
        return f"{self.base}{PATH}{handle}"

    async def close(self) -> None:
        """Give up all logins that are under way."""
        await self._logins.close()

    # pages

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        """Return a page, or None for any other path.

        Args:
            request: The request.
            public_url: The public URL of the gateway.
        """
        path = request.path.removeprefix(urlsplit(public_url.base).path)
        if not path.startswith(PATH) or self.base is None or public_url.base != self.base:
            return None
        if request.method not in METHODS:
            return HttpResponse(status=405, headers={"allow": ", ".join(METHODS)})
        try:
            if path.startswith(CALLBACK):
                return await self._receive(request, public_url, path)
            return await self._show(request, public_url, path.removeprefix(PATH))
        except RefusedPage as refused:
            return error_page(self._name, escape_unsafe(str(refused)), refused.status)
        except OAuthError as error:
            text = f"{error.description[:1].upper()}{error.description[1:]}."
            return error_page(self._name, text, error.status)
        except Overloaded:
            return error_page(self._name, "The gateway is too busy. Try again later.", 503)

    async def _sign_in(self, request: HttpRequest, public_url: PublicUrl) -> str | HttpResponse:
        found: str | HttpResponse = await self._guard.sign_in(  # type: ignore[attr-defined]
            request, public_url, "to connect an account"
        )
        return found

    async def _show(self, request: HttpRequest, public_url: PublicUrl, handle: str) -> HttpResponse:
        """Show what a link connects, or begin to connect it."""
        link, server = await self._open(handle)
        user = await self._sign_in(request, public_url)
        if isinstance(user, HttpResponse):
            return user
        if user != link.user:
            text = f"This link is for another user. You are signed in as {user}."
            raise RefusedPage(text, 403)
        base = public_url.base
        cookie = read_cookie(request, base, _COOKIE)
        if request.method == "POST":
            posted, _ = parse_form(request)
            check_csrf_token(posted, cookie, handle)
            if posted.get("action") != "connect":
                return result_page(self._name, f"{server.name} was not connected")
            return await self._begin(link, server, cookie)
        new = cookie or token_urlsafe(32)
        host = urlsplit(server.url).netloc
        details = ConnectDetails(self._name, server.name, host, user, link.scopes)
        is_local = is_loopback(urlsplit(server.url).hostname)
        page = connect_page(details, csrf_token(new, handle), is_local=is_local)
        return page if cookie else with_cookie(page, base, new, _COOKIE)

    async def _open(self, handle: str) -> tuple[Link, PerUserServer]:
        try:
            data = self._tokens.ring.open(_PURPOSE, handle)
        except Forged:
            raise RefusedPage(INVALID_LINK) from None
        link = msgspec.msgpack.decode(data, type=Link)
        server = self._find_server(link.server)
        is_current = isinstance(server, PerUserServer) and server.entry.digest == link.digest
        is_expired = link.expires < self._tokens.now()
        if is_expired or not is_current or await self.was_used(link):
            raise RefusedPage(INVALID_LINK)
        assert isinstance(server, PerUserServer)
        return link, server

    async def was_used(self, link: Link) -> bool:
        """Return whether a link has been used to begin a login.

        Args:
            link: What the link is for.
        """
        return await self._tokens.storage.get(row_key("used-link", link.id)) is not None

    # the login at the authorization server

    async def _begin(self, link: Link, server: PerUserServer, cookie: str) -> HttpResponse:
        key = (link.user, link.server)
        if len(self._newest) >= MAX_LOGINS and key not in self._newest:
            raise RefusedPage("Too many users are connecting at the moment. Try again later.", 503)
        used = row_key("used-link", link.id)
        # Longer than the link, because the clocks of two replicas may differ.
        if not await self._tokens.storage.add(used, b"", self._tokens.now() + 2 * LINK_SECONDS):
            raise RefusedPage(INVALID_LINK)
        pending = PendingLogin(link.user, link.server, digest_of(cookie))
        visit = BrowserVisit(f"{self.base}{callback_path(server.name)}", self._tokens, pending)
        login = self._start_login(key, self._log_in(link, server, visit))
        opened = asyncio.ensure_future(visit.opened.wait())
        await asyncio.wait(
            (login, opened), timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        opened.cancel()
        if visit.url is not None:
            return redirect(visit.url)
        login.cancel()
        reason = login.result() if login.done() and not login.cancelled() else "it did not respond"
        raise RefusedPage(f"{server.name} could not be connected: {reason}", 502)

    def _start_login(
        self, key: tuple[str, str], work: Coroutine[Any, Any, str]
    ) -> "asyncio.Task[str]":
        """Start a login instead of the last one of the same user at the same server."""

        def on_done(task: "asyncio.Task[str]") -> None:
            if self._newest.get(key) is task:
                del self._newest[key]

        earlier = self._newest.get(key)
        if earlier is not None:
            earlier.cancel()
        login = self._newest[key] = self._logins.start(work)
        login.add_done_callback(on_done)
        return login

    async def _log_in(self, link: Link, server: PerUserServer, visit: "BrowserVisit") -> str:
        """Log in, and store the tokens. Returns why that failed; empty on success."""
        credentials = server.credentials(link.user, visit, link.scopes)
        problem = "the login was given up"
        try:
            client = self._make_client(server, credentials)
            try:
                await log_in(client)
            finally:
                await client.close()
            await self._on_connected(server, link)
            problem = ""
        except DovetailError as error:
            log.warning("%s: %s could not be connected: %s", server.name, link.user, error)
            problem = str(error)
        finally:
            await visit.finish(problem)
        return problem

    async def _receive(
        self, request: HttpRequest, public_url: PublicUrl, path: str
    ) -> HttpResponse:
        """Accept the response of an authorization server."""
        answer, _ = parse_fields(urlsplit(request.url).query)
        storage, key = self._tokens.storage, row_key("login", answer.get("state", ""))
        row = await storage.get(key)
        pending = None if row is None else msgspec.json.decode(row, type=PendingLogin)
        cookie = read_cookie(request, public_url.base, _COOKIE)
        if pending is None or not compare_digest(pending.browser, digest_of(cookie)):
            raise RefusedPage(INVALID_RESPONSE)
        if path != callback_path(pending.server):
            raise RefusedPage(INVALID_RESPONSE)
        user = await self._sign_in(request, public_url)
        if isinstance(user, HttpResponse):
            return user
        if user != pending.user or await storage.take(key) is None:
            raise RefusedPage(INVALID_RESPONSE)
        state = answer["state"]
        sealed = self._tokens.ring.seal(_PURPOSE, msgspec.json.encode(answer), bound=state.encode())
        expires = self._tokens.now() + LOGIN_SECONDS
        await storage.add(row_key("answer", state), sealed.encode(), expires)
        problem = await poll(partial(_take, storage, row_key("result", state)), START_SECONDS)
        if problem is None:
            raise RefusedPage("The gateway did not finish the login. Try again.", 503)
        if problem:
            text = problem.decode("utf-8", "replace")
            raise RefusedPage(f"{pending.server} could not be connected: {text}", 502)
        return result_page(self._name, f"{pending.server} is connected")


def callback_path(server: str) -> str:
    """Return the path of a server's callback, below the public URL.

    Args:
        server: The name of the server in the configuration.
    """
    return f"{CALLBACK}{quote(server, safe='').replace('%', '=')}"


class BrowserVisit:
    """The visit of a user's browser to an authorization server (`auth.client.browser.Browser`)."""

    def __init__(self, redirect_uri: str, tokens: UserTokens, pending: PendingLogin) -> None:
        self.redirect_uri, self._tokens, self._pending = redirect_uri, tokens, pending
        self.opened = asyncio.Event()
        self.url: str | None = None
        """The page that the browser has to open."""
        self._state = ""

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Visit]:
        """Return a context manager for the visit."""
        yield self

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        """Send the browser to a page, and wait for the response.

        Args:
            url: The URL of the page.
            about: Not used; the page of the gateway has said it.
        """
        if self._state:
            raise Unauthorized("The authorization server does not know this gateway. Try again.")
        storage = self._tokens.storage
        state = self._state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        row, expires = msgspec.json.encode(self._pending), self._tokens.now() + LOGIN_SECONDS
        await storage.add(row_key("login", state), row, expires)
        self.url = url
        self.opened.set()
        sealed = await poll(partial(_take, storage, row_key("answer", state)), LOGIN_SECONDS)
        if sealed is None:
            raise Unauthorized("The login was not completed in time. Try again.")
        data = self._tokens.ring.open(_PURPOSE, sealed.decode(), bound=state.encode())
        return msgspec.json.decode(data, type=dict[str, str])

    async def finish(self, problem: str) -> None:
        """Say how the login ended.

        Args:
            problem: Why it failed; empty on success.
        """
        storage, expires = self._tokens.storage, self._tokens.now() + LOGIN_SECONDS
        if not self._state:
            return
        try:
            await storage.delete(row_key("login", self._state))
            await storage.add(row_key("result", self._state), problem.encode(), expires)
        except Overloaded as error:  # the page says that the gateway did not finish the login
            log.warning("How a login ended could not be stored: %s", error)


async def _take(storage: Storage, key: str) -> bytes | None:
    """Take a row if it exists. To look for it is cheaper, and is done more often."""
    return None if await storage.get(key) is None else await storage.take(key)


async def poll(attempt: Callable[[], Awaitable[T | None]], seconds: float) -> T | None:
    """Call a function until it returns something. Returns None if that takes too long. What another
    process stores cannot be awaited."""
    loop = asyncio.get_running_loop()
    began, pause = loop.time(), POLL_SECONDS
    while True:
        try:
            found = await attempt()
        except BackendAway:
            found = None
        waited = loop.time() - began
        if found is not None or waited >= seconds:
            return found
        await asyncio.sleep(pause if waited < SLOWER_AFTER_SECONDS else 5 * pause)
