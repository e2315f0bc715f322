"""Servers to which users log in, a gateway in front of them, and the browsers of its users."""

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from dovetail import Client, Context, Gateway, Server
from dovetail.auth import MemoryStore, OAuth, Provider
from dovetail.gateway.connect.servers import PerUserServer
from dovetail.ports import HttpRequest, HttpResponse, PublicUrl
from tests.auth.provider_kit import cheaply
from tests.behaviour.web import on_a_port
from tests.person import Form, Person
from tests.ports import free_port

PASSWORDS = {"ann": "lovelace", "bob": "builder"}
HASHES = {name: cheaply(password) for name, password in PASSWORDS.items()}


KEYS = ["a key that outlives the process"]
SCOPES = {"notes:read": "Read your notes", "notes:write": "Change and delete your notes"}


class CountingProvider(Provider):
    """Counts how often somebody renews a token."""

    renewals = 0

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        self.renewals += b"grant_type=refresh_token" in request.body
        return await super().respond(request, public_url)


def notes_server(own: Provider | None = None, **settings: Any) -> Server:
    """A server that issues tokens itself, and lists a resource with the name of its user."""
    defaults = {
        "users": HASHES,
        "storage": ":memory:",
        "scopes": SCOPES,
        "required": ["notes:read"],
    }
    provider = own or CountingProvider(**{**defaults, "name": "Notes", **settings})
    server = Server("notes", auth=provider)

    @server.tool
    async def whoami(ctx: Context) -> str:
        """Say who is calling."""
        return f"{ctx.user.id} at notes" if ctx.user else "nobody"

    @server.tool(scopes=["notes:write"])
    async def erase() -> str:
        """Delete all notes."""
        return "erased"

    @server.tool
    async def confirm(ctx: Context) -> str:
        """Ask a question."""
        answer = await ctx.elicit("Really?", bool)
        return f"answered {answer.data}"

    return server


@asynccontextmanager
async def serve_notes(port: int = 0, **settings: Any) -> AsyncIterator[str]:
    """Serve it, and return its URL."""
    async with on_a_port(notes_server(**settings).asgi("/mcp"), port) as place:
        yield f"http://{place}/mcp"


class Served:
    """A gateway on a port."""

    def __init__(self, gateway: Gateway, url: str) -> None:
        self.gateway, self.url = gateway, url
        self.base = url.removesuffix("/mcp")

    @property
    def notes(self) -> PerUserServer:
        """The server to which users log in."""
        found = self.gateway.upstreams.servers["notes"]
        assert isinstance(found, PerUserServer)
        return found

    async def link(self, user: str) -> str:
        """A link for a user."""
        async with self.client(user) as client:
            result = await client.call_tool("notes__connect", raise_on_error=False)
        found = re.search(r"open (http\S+) in a browser", result.content[0].text)
        assert found is not None
        return found[1]

    async def connected(self) -> list[str]:
        """The users who have tokens."""
        return [user for user in PASSWORDS if await self.notes.is_connected(user)]

    def client(self, user: str, **options: Any) -> Client:
        """A client of a user, who logs in at the gateway by themselves."""
        auth = OAuth(store=MemoryStore(), browser=Robot(user))
        return Client(self.url, auth=auth, **options)


def gateway_for(entries: Mapping[str, Any], store: Path | str, **settings: Any) -> Gateway:
    guard = Provider(users=HASHES, storage=":memory:", name="The gateway")
    return Gateway(
        {"mcpServers": dict(entries)},
        store=store,
        title="Our gateway",
        **{"auth": guard, **settings},
    )


@asynccontextmanager
async def serve_gateway(
    entries: Mapping[str, Any], store: Path, **settings: Any
) -> AsyncIterator[Served]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    gateway = gateway_for(entries, store, **settings)
    async with on_a_port(gateway.asgi("/mcp", public_url=url, keys=KEYS), port):
        yield Served(gateway, url)


@asynccontextmanager
async def notes_gateway(store: Path, **settings: Any) -> AsyncIterator[Served]:
    """A gateway with one server, to which each user logs in."""
    async with serve_notes() as url:
        entries = {"notes": {"url": url, "auth": "oauth"}}
        async with serve_gateway(entries, store, **settings) as served:
            yield served


class Robot(Person):
    """The browser of a user who has the same name and password everywhere."""

    redirect_uri = "http://127.0.0.1:3999/callback"

    def __init__(self, user: str) -> None:
        super().__init__(username=user, password=PASSWORDS[user])

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Robot"]:
        yield self

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        ended = await asyncio.to_thread(self.visit, url, self.redirect_uri, arrive=False)
        return dict(parse_qsl(urlsplit(ended).query))

    async def connect(self, link: str) -> None:
        """Go through all pages that a link leads to."""
        base = link.partition("/connect/")[0]
        await asyncio.to_thread(self.visit, link, f"{base}/connect/callback/notes")


class Browser:
    """A browser that shows every answer, and follows nothing by itself."""

    class _Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> None:
            return None

    def __init__(self) -> None:
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), self._Stay, cookies
        )

    async def open(
        self, url: str, fields: Mapping[str, str] | None = None
    ) -> tuple[int, str, Mapping[str, str]]:
        """The status, the page and the headers."""
        return await asyncio.to_thread(self._open, url, fields)

    def _open(
        self, url: str, fields: Mapping[str, str] | None
    ) -> tuple[int, str, Mapping[str, str]]:
        data = None if fields is None else urlencode(fields).encode()
        try:
            reply: Any = self._opener.open(url, data, timeout=20)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            return reply.status, reply.read().decode(), dict(reply.headers.items())

    async def sign_in(self, url: str, user: str, back: str | None = None) -> str:
        """Sign in at a page of the gateway; the page that is shown then."""
        _, page, _ = await self.open(url)
        fields = Form(page).fields | {"username": user, "password": PASSWORDS[user]}
        status, page, headers = await self.open(url, fields)
        assert status == 303, page
        assert headers["location"] == (back or url)
        return (await self.open(url))[1]

    async def begin(self, link: str, user: str) -> str:
        """Sign in, and begin to connect; the URL of the authorization server."""
        page = await self.sign_in(link, user)
        status, page, headers = await self.open(link, Form(page).fields)
        assert status == 303, page
        return headers["location"]

    async def log_in(self, url: str, user: str) -> str:
        """Log in at the authorization server of the notes; the URL of the callback."""
        while "/connect/callback" not in url:
            _, page, _ = await self.open(url)
            fields = Form(page).fields
            if "password" in fields:
                fields |= {"username": user, "password": PASSWORDS[user]}
            status, page, headers = await self.open(url, fields)
            assert status == 303, page
            url = headers["location"]
        return url
