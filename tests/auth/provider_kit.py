"""A client and a browser for tests of the provider, without a network: they call `respond` as the
endpoint would."""

import re
from base64 import b64encode
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import msgspec
import pytest

from dovetail.auth import Provider, hash_password, jose
from dovetail.auth.provider import login
from dovetail.errors import ConnectFailed
from dovetail.ports import HttpRequest, HttpResponse, Principal, PublicUrl
from dovetail.sealing import KeyRing


def cheaply(password: str) -> str:
    """A hash that takes no time to check, for tests that log in a hundred times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(login, "COST", 16)
        return hash_password(password)


BASE = "https://mcp.example"
URL = f"{BASE}/mcp"
LOCAL = "http://127.0.0.1:4567/callback"
WEB = "https://app.example/callback"
HASHES = {"ada": cheaply("lovelace"), "bob": cheaply("builder")}
VERIFIER = "v" * 43


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time


class Web:
    """What `Site.fetch` finds: URL -> what is there."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.asked: list[HttpRequest] = []

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        found = self.pages.get(request.url)
        if found is None:
            raise ConnectFailed(
                f"{request.url}: this address is on the local network, which is refused"
            )
        if callable(found):
            found = found(request)
        if isinstance(found, HttpResponse):
            return found
        return HttpResponse(
            headers={"content-type": "application/json"}, body=msgspec.json.encode(found)
        )


def site(web: Web | None = None, base: str = BASE, path: str = "/mcp", **more: Any) -> PublicUrl:
    return PublicUrl(
        url=base + path,
        base=base,
        ring=KeyRing([b"a key for tests only"]),
        fetch=web or Web(),
        **more,
    )


def provider(**settings: Any) -> Provider:
    return Provider(**{"users": HASHES, "storage": ":memory:", **settings})


class Agent:
    """Who calls a provider: from an address, with a cookie jar."""

    def __init__(
        self, provider: Provider, at: PublicUrl | None = None, address: str = "203.0.113.7"
    ) -> None:
        self.provider, self.site, self.address = provider, at or site(), address
        self.cookies: dict[str, str] = {}

    async def ask(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] = {}
    ) -> HttpResponse:
        given = dict(headers)
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if url.startswith("/"):
            url = self.site.base + url
        request = HttpRequest(
            method=method,
            path=urlsplit(url).path,
            url=url,
            headers=given,
            body=body,
            address=self.address,
        )
        answer = await self.provider.respond(request, self.site)
        assert answer is not None, f"{method} {url} is no page of the provider"
        if cookie := answer.headers.get("set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def get(self, url: str) -> HttpResponse:
        return await self.ask("GET", url)

    async def form(
        self, url: str, fields: Mapping[str, str], headers: Mapping[str, str] = {}
    ) -> HttpResponse:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return await self.ask("POST", url, urlencode(fields).encode(), {**kind, **headers})

    async def register(self, **metadata: Any) -> dict[str, Any]:
        told = {
            "client_name": "Notes",
            "redirect_uris": [LOCAL],
            "token_endpoint_auth_method": "none",
            **metadata,
        }
        answer = await self.ask(
            "POST", "/register", msgspec.json.encode(told), {"content-type": "application/json"}
        )
        assert answer.status == 201, answer.body
        return decoded(answer)

    def wish(self, client_id: str, **changes: str | None) -> str:
        """The URL that a client sends its user to."""
        fields: dict[str, str | None] = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": LOCAL,
            "state": "xyz",
            "code_challenge": jose.s256(VERIFIER),
            "code_challenge_method": "S256",
            "resource": self.site.url,
            **changes,
        }
        return f"/authorize?{urlencode({name: value for name, value in fields.items() if value is not None})}"  # noqa: E501

    async def press(
        self, url: str, shown: HttpResponse, action: str, **fields: str
    ) -> HttpResponse:
        return await self.form(url, {"csrf": csrf(shown), "action": action, **fields})

    async def login(self, url: str, name: str = "ada", password: str = "lovelace") -> HttpResponse:
        """The page after the login."""
        answer = await self.press(
            url, await self.get(url), "login", username=name, password=password
        )
        return await self.get(answer.headers["location"]) if answer.status == 303 else answer

    async def approve(
        self, url: str, name: str = "ada", password: str = "lovelace"
    ) -> HttpResponse:
        """Log in if need be, and say yes: the way back."""
        shown = await self.get(url)
        if shown.status == 200 and b'value="login"' in shown.body:
            shown = await self.login(url, name, password)
        return shown if shown.status == 303 else await self.press(url, shown, "approve")

    async def code(self, client_id: str, **changes: str | None) -> str:
        return returned(await self.approve(self.wish(client_id, **changes)))["code"]

    async def token(self, client_id: str, **fields: str) -> HttpResponse:
        return await self.form("/token", {"client_id": client_id, **fields})

    async def redeem(self, client_id: str, code: str, **changes: str) -> HttpResponse:
        given = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": VERIFIER,
            "redirect_uri": LOCAL,
            **changes,
        }
        return await self.token(client_id, **given)

    async def refresh(self, client_id: str, token: str, **changes: str) -> HttpResponse:
        return await self.token(
            client_id, grant_type="refresh_token", refresh_token=token, **changes
        )

    async def tokens(self, client_id: str, **changes: str | None) -> dict[str, Any]:
        answer = await self.redeem(client_id, await self.code(client_id, **changes))
        assert answer.status == 200, answer.body
        return decoded(answer)

    async def who(self, token: str) -> Principal | None:
        """Whom the guard takes the bearer of a token for."""
        request = HttpRequest(
            path="/mcp", url=self.site.url, headers={"authorization": f"Bearer {token}"}
        )
        found = await self.provider.admit(request, self.site)
        return found if isinstance(found, Principal) else None


def decoded(answer: HttpResponse) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found


def refused(answer: HttpResponse, error: str, status: int = 400) -> None:
    assert (answer.status, decoded(answer)["error"]) == (status, error), answer.body


def returned(answer: HttpResponse) -> dict[str, str]:
    """The parameters with which a browser is sent back to the client."""
    assert answer.status == 303, answer.body
    pairs = parse_qsl(urlsplit(answer.headers["location"]).query, keep_blank_values=True)
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def csrf(shown: HttpResponse) -> str:
    found = re.search(rb'name="csrf" value="([^"]+)"', shown.body)
    assert found, shown.body
    return found[1].decode()


def text(shown: HttpResponse) -> str:
    """What a person reads on a page."""
    body = re.sub(r"<style>.*?</style>", "", shown.body.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def basic(id: str, secret: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{id}:{secret}'.encode()).decode()}"}


def query(url: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url).query)
