"""A small internet in memory: servers that want tokens, issuers that give them out, and somebody at
the browser.

The issuer checks what a real one checks (PKCE, redirect URIs, codes once, rotation, client
authentication), so that a flow that gets through it has done its part.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

from dovetail.auth.client.flow import OpenPage
from dovetail.auth.provider.token_endpoint import matches_challenge
from dovetail.errors import DovetailError, Unauthorized
from dovetail.ports import HttpRequest, HttpResponse

SERVER = "https://mcp.example.com/mcp"
ISSUER = "https://as.example.com"
REDIRECT = "http://127.0.0.1:3000/callback"
Page = Callable[[HttpRequest], HttpResponse]


def reply(value: Any, status: int = 200, **headers: str) -> HttpResponse:
    """A JSON answer."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return HttpResponse(
        status=status,
        headers={"content-type": "application/json", **named},
        body=json.dumps(value).encode(),
    )


NOT_FOUND = HttpResponse(status=404, body=b"nothing here")


def form(request: HttpRequest) -> dict[str, str]:
    """The fields of a form."""
    return {
        name: values[0]
        for name, values in parse_qs(request.body.decode(), strict_parsing=True).items()
    }


class Internet:
    """Everything that can be asked, and everything that was."""

    def __init__(self) -> None:
        self.pages: dict[str, Page | HttpResponse | Exception] = {}
        self.asked: list[HttpRequest] = []

    def answer(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        page = self.pages.get(f"{request.method} {request.url.partition('?')[0]}", NOT_FOUND)
        if isinstance(page, Exception):
            raise page
        return page if isinstance(page, HttpResponse) else page(request)

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)  # others have their turn meanwhile, as they would
        return self.answer(request)

    @property
    def urls(self) -> list[str]:
        return [request.url for request in self.asked]

    def to(self, host: str) -> list[HttpRequest]:
        return [request for request in self.asked if urlsplit(request.url).hostname == host]


class Issuer:
    """An authorization server."""

    def __init__(
        self, internet: Internet, issuer: str = ISSUER, well: str | None = None, **metadata: Any
    ) -> None:
        self.issuer, self.internet = issuer, internet
        self.metadata: dict[str, Any] = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "registration_endpoint": f"{issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            **metadata,
        }
        self.well = well or f"{issuer}/.well-known/oauth-authorization-server"
        self.clients: dict[str, dict[str, Any]] = {}
        self.registered: list[dict[str, Any]] = []
        self.visits: list[dict[str, str]] = []
        self.forms: list[dict[str, str]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.refreshable: set[str] = set()
        self.lifetime: float | None = 3600
        self.given = 0
        self.extra: dict[str, Any] = {}
        """Fields of the next token replies."""
        self.came: dict[str, str | None] = {}
        """What the answer through the browser says differently; None leaves a parameter out."""
        self.refuse: dict[str, Any] | None = None
        """What the token endpoint answers instead."""
        self.check: Callable[[HttpRequest], HttpResponse | None] = lambda request: None
        internet.pages[f"GET {self.well}"] = lambda request: reply(self.metadata)
        internet.pages[f"POST {issuer}/register"] = self.register
        internet.pages[f"POST {issuer}/token"] = self.token

    def register(self, request: HttpRequest) -> HttpResponse:
        wanted = json.loads(request.body)
        self.registered.append(wanted)
        made = {
            **wanted,
            "client_id": f"client-{len(self.registered)}-{urlsplit(self.issuer).hostname}",
        }
        if wanted.get("token_endpoint_auth_method") != "none":
            made["client_secret"] = f"secret of {made['client_id']}"
        self.clients[made["client_id"]] = made
        return reply(made, 201)

    def visit(self, url: str) -> dict[str, str]:
        """What comes back at the redirect URI when the user says yes."""
        assert url.partition("?")[0] == self.metadata["authorization_endpoint"]
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self.visits.append(asked)
        code = f"code-{len(self.visits)}"
        self.codes[code] = asked
        came: dict[str, str | None] = {"code": code, "state": asked["state"], **self.came}
        return {name: value for name, value in came.items() if value is not None}

    def token(self, request: HttpRequest) -> HttpResponse:
        asked = form(request)
        self.forms.append(asked)
        early = self.check(request)
        if early is not None:
            return early
        if self.refuse is not None:
            return reply(self.refuse, 400)
        client_id, secret = asked.get("client_id"), asked.get("client_secret")
        authorization = request.headers.get("authorization", "")
        if authorization.startswith("Basic "):
            client_id, secret = (
                unquote_plus(half) for half in b64decode(authorization[6:]).decode().split(":")
            )
        known = self.clients.get(client_id or "")
        if known is None or known.get("client_secret") != secret:
            return reply({"error": "invalid_client"}, 401)
        if asked["grant_type"] == "authorization_code":
            code = self.codes.pop(asked["code"], None)
            if (
                code is None
                or code["client_id"] != client_id
                or code["redirect_uri"] != asked["redirect_uri"]
                or code["resource"] != asked["resource"]
                or not matches_challenge(asked["code_verifier"], code["code_challenge"])
            ):
                return reply({"error": "invalid_grant"}, 400)
        elif asked["grant_type"] == "refresh_token":
            if asked["refresh_token"] not in self.refreshable:
                return reply({"error": "invalid_grant", "error_description": "no such token"}, 400)
            self.refreshable.remove(asked["refresh_token"])
        self.given += 1
        refresh = f"refresh-{self.given}"
        self.refreshable.add(refresh)
        made: dict[str, Any] = {
            "access_token": f"access-{self.given}",
            "token_type": "Bearer",
            "refresh_token": refresh,
        }
        if self.lifetime is not None:
            made["expires_in"] = self.lifetime
        return reply({**made, **self.extra})


def describe(
    internet: Internet, url: str = SERVER, well: str | None = None, **metadata: Any
) -> dict[str, Any]:
    """Let a server describe itself; what is returned may be changed later."""
    parts = urlsplit(url)
    well = (
        well or f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    )
    described = {"resource": url, "authorization_servers": [ISSUER], **metadata}
    internet.pages[f"GET {well}"] = lambda request: reply(described)
    return described


def run(
    flow: Generator[Any, Any, Any],
    internet: Internet,
    visit: Callable[[str], Mapping[str, str]] | None = None,
) -> Any:
    """Drive a flow to its end, without a loop."""
    came: Any = None
    problem: DovetailError | None = None
    while True:
        try:
            step = flow.send(came) if problem is None else flow.throw(problem)
        except StopIteration as end:
            return end.value
        came = problem = None
        try:
            if isinstance(step, OpenPage):
                assert visit is not None
                came = visit(step.url)
            else:
                came = internet.answer(step)
        except DovetailError as error:
            problem = error


class Person:
    """Somebody at the browser, who says yes at whatever issuer they are sent to."""

    def __init__(self, *issuers: Issuer, redirect_uri: str = REDIRECT) -> None:
        self.issuers = issuers
        self.redirect_uri = redirect_uri
        self.pages: list[str] = []
        self.closed = False
        """Whether they close the window instead."""

    @asynccontextmanager
    async def session(self) -> Any:
        yield self

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        self.pages.append(url)
        if self.closed:
            raise Unauthorized("The login was cancelled")
        issuer = next(
            one
            for one in self.issuers
            if url.startswith(one.metadata["authorization_endpoint"] + "?")
        )
        return issuer.visit(url)
