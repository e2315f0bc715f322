"""Login at another OpenID provider."""

import asyncio
import time
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from dovetail.auth import Provider, Upstream, jose
from dovetail.auth.provider.token_endpoint import matches_challenge
from dovetail.errors import ConfigError
from dovetail.ports import HttpRequest, HttpResponse

from .provider_kit import BASE, LOCAL, Agent, Web, decoded, refused, returned, site, text

ISSUER = "https://idp.example"


class Idp:
    """An OpenID provider with one user, who is always logged in."""

    def __init__(self, web: Web, **metadata: Any) -> None:
        self.key = {**jose.generate_key(), "kid": "one", "alg": "ES256"}
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh: str | None = "r0"
        self.claims: dict[str, Any] = {}
        self.renewed: dict[str, Any] | None = None
        """What is said anew of a login that is renewed, if anything is."""
        self.header: dict[str, Any] = {"alg": "ES256", "kid": "one"}
        self.signer: dict[str, Any] | None = None
        self.down = self.ended = False
        self.refreshed = 0
        web.pages[f"{ISSUER}/.well-known/openid-configuration"] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/auth",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
            "scopes_supported": ["openid", "offline_access"],
            **metadata,
        }
        web.pages[f"{ISSUER}/keys"] = lambda request: {"keys": [jose.public_jwk(self.key)]}
        web.pages[f"{ISSUER}/token"] = self.token

    def visit(self, url: str, **changes: str) -> str:
        """The user follows the link, and is sent back: the URL of that."""
        asked = dict(parse_qsl(urlsplit(url).query))
        assert url.startswith(f"{ISSUER}/auth?")
        code = token_urlsafe(8)
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"], **changes}
        return f"{asked['redirect_uri']}?" + "&".join(
            f"{name}={value}" for name, value in answer.items()
        )

    def token(self, request: HttpRequest) -> HttpResponse:
        if self.down:
            return HttpResponse(
                status=503, headers={"content-type": "application/json"}, body=b"{}"
            )
        form = dict(parse_qsl(request.body.decode()))
        assert request.headers["authorization"].startswith("Basic ")
        if form["grant_type"] == "refresh_token":
            if self.ended or form["refresh_token"] != self.refresh:
                return self.reply({"error": "invalid_grant"}, 400)
            self.refreshed += 1
            self.refresh = f"r{self.refreshed}"
            renewed = {"id_token": self.signed(self.renewed)} if self.renewed else {}
            return self.reply(
                {
                    "access_token": "up",
                    "token_type": "Bearer",
                    "refresh_token": self.refresh,
                    **renewed,
                }
            )
        asked = self.codes.pop(form["code"])
        assert matches_challenge(form["code_verifier"], asked["code_challenge"])
        signed = self.signed({"nonce": asked["nonce"], **self.claims})
        tokens = {
            "access_token": "up",
            "token_type": "Bearer",
            "expires_in": 600,
            "id_token": signed,
        }
        return self.reply({**tokens, **({"refresh_token": self.refresh} if self.refresh else {})})

    def signed(self, changes: dict[str, Any]) -> str:
        now = time.time()
        claims = {
            "iss": ISSUER,
            "sub": "u-17",
            "aud": "us",
            "exp": now + 60,
            "iat": now,
            "name": "Ada",
            **changes,
        }
        return jose.sign(self.header, claims, jose.load_key(self.signer or self.key))

    @staticmethod
    def reply(data: dict[str, Any], status: int = 200) -> HttpResponse:
        return HttpResponse(
            status=status,
            headers={"content-type": "application/json"},
            body=msgspec.json.encode(data),
        )


async def ready(upstream: dict[str, Any] | None = None, **metadata: Any) -> tuple[Agent, Idp, str]:
    web = Web()
    idp = Idp(web, **metadata)
    settings = {"client_id": "us", "client_secret": "s3cret", **(upstream or {})}
    agent = Agent(Provider(upstream=Upstream(ISSUER, **settings), storage=":memory:"), site(web))
    return agent, idp, (await agent.register())["client_id"]


async def there(agent: Agent, client: str) -> str:
    """Consent, and the link to the upstream."""
    url = agent.wish(client)
    answer = await agent.press(url, await agent.get(url), "approve")
    assert answer.status == 303
    return answer.headers["location"]


async def tokens(agent: Agent, idp: Idp, client: str) -> dict[str, Any]:
    answer = returned(await agent.get(idp.visit(await there(agent, client))))
    return decoded(await agent.redeem(client, answer["code"]))


async def test_a_user_logs_in_at_the_upstream_and_the_client_gets_in() -> None:
    agent, idp, client = await ready()
    link = await there(agent, client)
    asked = dict(parse_qsl(urlsplit(link).query))
    assert asked["redirect_uri"] == f"{BASE}/callback"
    assert asked["code_challenge_method"] == "S256"
    assert asked["scope"].split() == ["openid", "profile", "email", "offline_access"]
    back = await agent.get(idp.visit(link))
    assert back.headers["location"].startswith(f"{LOCAL}?code=")
    answer = returned(back)
    assert (answer["state"], answer["iss"]) == ("xyz", BASE)
    reply = decoded(await agent.redeem(client, answer["code"]))
    who = await agent.who(reply["access_token"])
    assert who is not None
    assert who.id == "u-17"
    assert who.claims["name"] == "Ada"
    assert "up" not in msgspec.json.encode(reply).decode().split('"')


@pytest.mark.requirement("provider-consent-first", "provider-upstream-state")
async def test_nobody_is_sent_to_the_upstream_before_a_consent_to_this_client() -> None:
    agent, idp, client = await ready()
    await tokens(agent, idp, client)
    for _ in range(2):  # neither for another client, nor for the same again
        url = agent.wish((await agent.register())["client_id"])
        shown = await agent.get(url)
        assert shown.status == 200
        assert (
            "You will then log in at idp.example , with these scopes: openid, profile, email."
            in text(shown)
        )
        assert f"URL {LOCAL}" in text(shown)
    answer = returned(await agent.press(url, shown, "deny"))
    assert answer["error"] == "access_denied"
    is_refused = await agent.form(url, {"csrf": "x", "action": "approve"})
    assert is_refused.status == 403


@pytest.mark.requirement("provider-session-binding")
async def test_each_refresh_asks_the_upstream_and_ends_with_it() -> None:
    agent, idp, client = await ready()
    reply = await tokens(agent, idp, client)
    for number in (1, 2):
        reply = decoded(await agent.refresh(client, reply["refresh_token"]))
        assert idp.refreshed == number
    idp.ended = True
    refused(await agent.refresh(client, reply["refresh_token"]), "invalid_grant")
    assert await agent.who(reply["access_token"]) is None


@pytest.mark.requirement("provider-session-binding")
async def test_what_the_upstream_says_of_the_user_is_judged_again_at_each_refresh() -> None:
    agent, idp, client = await ready(
        {"user": lambda claims: claims["sub"] if "shop" in claims["groups"] else None}
    )
    idp.claims = {"groups": ["shop", "admins"]}
    reply = await tokens(agent, idp, client)
    idp.renewed = {"groups": ["shop"]}
    reply = decoded(await agent.refresh(client, reply["refresh_token"]))
    who = await agent.who(reply["access_token"])
    assert who is not None and who.claims["groups"] == ["shop"]
    idp.renewed = {"groups": []}
    refused(await agent.refresh(client, reply["refresh_token"]), "invalid_grant")
    assert await agent.who(reply["access_token"]) is None


@pytest.mark.parametrize(
    "changes", [{"sub": "u-18"}, {"aud": "them"}, {"iss": "https://evil.example"}, {"exp": 0}]
)
@pytest.mark.requirement("provider-session-binding")
async def test_a_login_that_is_renewed_for_somebody_else_ends(changes: dict[str, Any]) -> None:
    agent, idp, client = await ready({"user": lambda claims: "everybody"})
    reply = await tokens(agent, idp, client)
    idp.renewed = changes
    refused(await agent.refresh(client, reply["refresh_token"]), "invalid_grant")
    assert await agent.who(reply["access_token"]) is None


async def test_who_refreshes_twice_at_once_renews_once_at_the_upstream() -> None:
    agent, idp, client = await ready()
    reply = await tokens(agent, idp, client)
    web, gate = agent.site.fetch, asyncio.Event()

    async def slow(request: HttpRequest) -> HttpResponse:
        await gate.wait()
        return await web(request)

    agent.site = msgspec.structs.replace(agent.site, fetch=slow)
    first = asyncio.create_task(agent.refresh(client, reply["refresh_token"]))
    await asyncio.sleep(0)
    refused(await agent.refresh(client, reply["refresh_token"]), "temporarily_unavailable", 503)
    gate.set()
    answers = [decoded(await first), decoded(await agent.refresh(client, reply["refresh_token"]))]
    assert answers[0]["refresh_token"] == answers[1]["refresh_token"]
    assert idp.refreshed == 1


async def test_an_upstream_that_is_down_costs_nobody_the_login() -> None:
    agent, idp, client = await ready()
    reply = await tokens(agent, idp, client)
    idp.down = True
    for _ in range(3):
        refused(await agent.refresh(client, reply["refresh_token"]), "temporarily_unavailable", 503)
    idp.down = False
    reply = decoded(await agent.refresh(client, reply["refresh_token"]))
    assert (await agent.refresh(client, reply["refresh_token"])).status == 200


@pytest.mark.requirement("provider-session-binding")
async def test_a_login_that_cannot_be_renewed_ends_with_the_upstreams_token() -> None:
    agent, idp, client = await ready()
    assert (await tokens(agent, idp, client))["expires_in"] <= 600  # as the upstream's
    idp.refresh = None
    reply = await tokens(agent, idp, client)
    assert "refresh_token" not in reply
    assert reply["expires_in"] <= 600


@pytest.mark.requirement("provider-upstream-state")
async def test_the_way_back_works_once_and_only_in_the_browser_that_was_sent_there() -> None:
    agent, idp, client = await ready()
    back = idp.visit(await there(agent, client))
    victim = Agent(agent.provider, agent.site)
    await victim.get(victim.wish(client))
    stolen = idp.visit(await there(agent, client))
    for other, url in (
        (victim, stolen),
        (Agent(agent.provider, agent.site), idp.visit(await there(agent, client))),
    ):
        answer = await other.get(url)
        assert answer.status == 400
        assert "another browser" in text(answer)
    assert "code" in returned(await agent.get(back))
    assert (await agent.get(back)).status == 400
    for url in ("/callback", "/callback?state=x&code=y", "/callback?state=&code=y"):
        assert (await agent.get(url)).status == 400
    statuses = {(await agent.get("/callback?state=x&code=y")).status for _ in range(400)}
    assert statuses == {400, 429}, "guessing states is limited"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "somebody else"},
        {"aud": ["us", "them"]},
        {"nonce": "other"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"iat": 9e9},
        {"sub": ""},
        {"sub": None},
    ],
)
async def test_an_id_token_that_says_the_wrong_thing_lets_nobody_in(claims: dict[str, Any]) -> None:
    agent, idp, client = await ready()
    idp.claims = claims
    answer = returned(await agent.get(idp.visit(await there(agent, client))))
    assert answer["error"] == "access_denied"
    assert answer["iss"] == BASE


async def test_an_id_token_by_another_key_or_none_lets_nobody_in() -> None:
    agent, idp, client = await ready()
    idp.signer = jose.generate_key()
    assert (
        returned(await agent.get(idp.visit(await there(agent, client))))["error"] == "access_denied"
    )
    idp.signer, idp.header = None, {"alg": "ES256", "kid": "unknown"}
    assert (
        returned(await agent.get(idp.visit(await there(agent, client))))["error"] == "access_denied"
    )


async def test_keys_that_were_changed_are_fetched_anew() -> None:
    agent, idp, client = await ready()
    await tokens(agent, idp, client)
    idp.key = {**jose.generate_key(), "kid": "two", "alg": "ES256"}
    idp.header, idp.refresh = {"alg": "ES256", "kid": "two"}, "r0"
    assert "access_token" in await tokens(agent, idp, client)


async def test_an_answer_of_another_issuer_is_refused() -> None:
    agent, idp, client = await ready(authorization_response_iss_parameter_supported=True)
    for changes in ({}, {"iss": "https://evil.example"}):
        answer = returned(await agent.get(idp.visit(await there(agent, client), **changes)))
        assert answer["error"] == "access_denied"
    assert "code" in returned(await agent.get(idp.visit(await there(agent, client), iss=ISSUER)))


async def test_who_cancels_at_the_upstream_is_sent_back_with_that() -> None:
    agent, _, client = await ready()
    state = dict(parse_qsl(urlsplit(await there(agent, client)).query))["state"]
    answer = returned(
        await agent.get(
            f"/callback?error=access_denied&error_description=no%3Cscript%3E&state={state}"
        )
    )
    assert answer["error"] == "access_denied"
    assert answer["state"] == "xyz"


async def test_an_operator_says_who_may_come_in() -> None:
    def user(claims: Any) -> str | None:
        return claims["email"] if claims.get("email", "").endswith("@example.org") else None

    agent, idp, client = await ready({"user": user})
    assert (
        returned(await agent.get(idp.visit(await there(agent, client))))["error"] == "access_denied"
    )
    idp.claims = {"email": "ada@example.org"}
    who = await agent.who((await tokens(agent, idp, client))["access_token"])
    assert who is not None
    assert who.id == "ada@example.org"


@pytest.mark.requirement("provider-upstream-errors")
async def test_an_upstream_that_cannot_be_reached_or_lies_is_told_the_client() -> None:
    for metadata in (
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://idp.example/token"},
    ):
        agent, _, client = await ready(**metadata)
        url = agent.wish(client)
        answer = returned(await agent.press(url, await agent.get(url), "approve"))
        assert answer["error"] == "temporarily_unavailable"


@pytest.mark.requirement("provider-upstream-secrets")
async def test_the_upstreams_refresh_token_is_not_to_be_found_in_the_storage(tmp_path: Any) -> None:
    web = Web()
    idp = Idp(web)
    idp.refresh = "a-very-secret-refresh-token"
    upstream = Upstream(ISSUER, client_id="us", client_secret="s3cret")
    agent = Agent(Provider(upstream=upstream, storage=tmp_path / "rows"), site(web))
    await tokens(agent, idp, (await agent.register())["client_id"])
    assert b"a-very-secret" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_an_upstream_has_to_be_https_and_shows_no_secret() -> None:
    with pytest.raises(ConfigError, match="https"):
        Upstream("http://idp.example", client_id="us")
    assert "s3cret" not in repr(Upstream(ISSUER, client_id="us", client_secret="s3cret"))
