"""The embedded authorization server, as honest clients and people see it."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dovetail import Server
from dovetail.auth import KnownClient, Provider, hash_password, jose
from dovetail.auth.dpop import Checker, DpopSigner
from dovetail.auth.provider.login import check_password
from dovetail.auth.provider.token_endpoint import matches_challenge
from dovetail.errors import ConfigError
from dovetail.ports import HttpRequest, HttpResponse, Principal

from .provider_kit import (
    BASE,
    HASHES,
    LOCAL,
    URL,
    VERIFIER,
    WEB,
    Agent,
    Clock,
    Web,
    basic,
    csrf,
    decoded,
    provider,
    refused,
    returned,
    site,
    text,
)

DOCUMENT = "https://app.example/client.json"


def described(**changes: object) -> dict[str, object]:
    return {"client_id": DOCUMENT, "client_name": "App", "redirect_uris": [WEB, LOCAL], **changes}


@pytest.mark.requirement("provider-metadata", "provider-default-endpoints")
@pytest.mark.parametrize(
    "base", ["https://mcp.example", "https://mcp.example/tools/weather", "http://127.0.0.1:8000"]
)
async def test_the_metadata_is_found_where_each_rfc_puts_it_and_names_the_issuer_letter_by_letter(
    base: str,
) -> None:
    agent = Agent(provider(), site(base=base))
    path = urlsplit(base).path
    for place in (
        f"/.well-known/oauth-authorization-server{path}",
        f"/.well-known/openid-configuration{path}",
        f"{path}/.well-known/openid-configuration",
    ):
        answer = await agent.get(base.removesuffix(path) + place if path else base + place)
        document = decoded(answer)
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert document["issuer"] == base
        assert document["authorization_endpoint"] == f"{base}/authorize"
        assert document["token_endpoint"] == f"{base}/token"


@pytest.mark.requirement("provider-metadata", "provider-openid-pkce", "provider-iss-advertised")
async def test_the_metadata_says_what_the_server_can() -> None:
    document = decoded(
        await Agent(provider(scopes=["read"])).get("/.well-known/oauth-authorization-server")
    )
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert document["response_types_supported"] == ["code"]
    assert document["grant_types_supported"] == [
        "authorization_code",
        "refresh_token",
        "client_credentials",
    ]
    assert document["client_id_metadata_document_supported"] is True
    assert document["authorization_response_iss_parameter_supported"] is True
    assert document["registration_endpoint"] == f"{BASE}/register"
    assert document["revocation_endpoint"] == f"{BASE}/revoke"
    assert document["scopes_supported"] == ["read", "offline_access"]
    assert set(document["token_endpoint_auth_methods_supported"]) >= {
        "none",
        "client_secret_basic",
        "private_key_jwt",
    }


async def test_the_guard_points_to_the_provider() -> None:
    agent = Agent(provider())
    answer = await agent.provider.admit(HttpRequest(path="/mcp", url=URL), agent.site)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 401
    assert "resource_metadata=" in answer.headers["www-authenticate"]
    document = decoded(await agent.get("/.well-known/oauth-protected-resource/mcp"))
    assert document["authorization_servers"] == [BASE]
    assert document["resource"] == URL


async def test_a_path_that_is_nobodys_is_left_to_others() -> None:
    for path in (
        "/mcp",
        "/",
        "/authorize/x",
        "/tokens",
        "/.well-known/oauth-authorization-server/elsewhere",
    ):
        assert (
            await provider().respond(HttpRequest(method="GET", path=path, url=BASE + path), site())
            is None
        )


@pytest.mark.requirement("provider-oauth", "provider-iss")
async def test_a_user_logs_in_consents_and_the_client_gets_in() -> None:
    agent = Agent(provider(scopes={"read": "Read your notes"}))
    client = (await agent.register())["client_id"]
    url = agent.wish(client, scope="read")
    shown = await agent.get(url)
    assert "Log in" in text(shown)
    page = await agent.login(url)
    assert "Allow Notes to use mcp.example?" in text(page)
    back = await agent.press(url, page, "approve")
    assert back.headers["location"].startswith(f"{LOCAL}?")
    answer = returned(back)
    assert answer["state"] == "xyz"
    assert answer["iss"] == BASE
    reply = await agent.redeem(client, answer["code"], resource=URL)
    assert reply.headers["cache-control"] == "no-store"
    tokens = decoded(reply)
    assert tokens["token_type"] == "Bearer"
    assert tokens["expires_in"] == 3600
    assert tokens["scope"] == "read"
    who = await agent.who(tokens["access_token"])
    assert who is not None
    assert (who.id, who.client, who.scopes) == ("ada", client, ("read",))


@pytest.mark.requirement("provider-consent-shows")
async def test_the_consent_page_shows_client_host_redirect_scopes_and_user() -> None:
    web = Web()
    web.pages[DOCUMENT] = described()
    agent = Agent(
        provider(scopes={"read": "Read your notes", "write": "Change your notes"}, name="Weather"),
        site(web),
    )
    shown = text(await agent.login(agent.wish(DOCUMENT, redirect_uri=WEB, scope="read")))
    for part in (
        "Allow App to use Weather?",
        "Identified by app.example",
        "Returns to app.example",
        f"URL {WEB}",
        "Read your notes",
        "ada",
    ):
        assert part in shown
    assert "Change your notes" not in shown
    assert "Allow this client only if" not in shown


@pytest.mark.requirement("provider-loopback-warning")
async def test_a_client_on_the_users_own_machine_comes_with_a_warning() -> None:
    web = Web()
    web.pages[DOCUMENT] = described()
    agent = Agent(provider(), site(web))
    shown = text(await agent.login(agent.wish(DOCUMENT)))
    assert "where any program could use its name" in shown
    assert "127.0.0.1:4567 (this computer)" in shown


async def test_who_says_no_is_sent_back_with_access_denied() -> None:
    agent = Agent(provider())
    url = agent.wish((await agent.register())["client_id"])
    answer = returned(await agent.press(url, await agent.login(url), "deny"))
    assert answer["error"] == "access_denied"
    assert (answer["state"], answer["iss"]) == ("xyz", BASE)


async def test_a_session_lasts_and_another_user_can_take_over() -> None:
    agent = Agent(provider())
    client = (await agent.register())["client_id"]
    url = agent.wish(client)
    await agent.approve(url)
    page = await agent.get(url)
    assert "Logged in as ada" in text(page)
    await agent.press(url, page, "switch")
    page = await agent.login(url, "bob", "builder")
    assert "Logged in as bob" in text(page)


@pytest.mark.requirement("provider-login-timeout")
async def test_a_session_ends_after_eight_hours() -> None:
    clock = Clock()
    agent = Agent(provider(now=clock))
    url = agent.wish((await agent.register())["client_id"])
    await agent.login(url)
    clock.time += 8 * 3600 + 1
    assert "Log in" in text(await agent.get(url))


async def test_consent_to_a_web_client_is_remembered_for_these_scopes_and_that_user() -> None:
    clock = Clock()
    agent = Agent(provider(scopes=["read", "write"], now=clock))
    client = (await agent.register(redirect_uris=[WEB, "https://other.example/cb"]))["client_id"]
    await agent.approve(agent.wish(client, redirect_uri=WEB, scope="read"))
    assert "code" in returned(await agent.get(agent.wish(client, redirect_uri=WEB, scope="read")))
    for asked_again in (
        agent.wish(client, redirect_uri=WEB, scope="read write"),
        agent.wish(client, redirect_uri="https://other.example/cb", scope="read"),
        agent.wish(client, redirect_uri=WEB, scope="read", prompt="consent"),
        agent.wish(
            (await agent.register(redirect_uris=[WEB]))["client_id"], redirect_uri=WEB, scope="read"
        ),
    ):
        assert (await agent.get(asked_again)).status == 200
    url = agent.wish(client, redirect_uri=WEB, scope="read")
    other = Agent(agent.provider)
    assert (await other.login(url, "bob", "builder")).status == 200
    clock.time += 31 * 86400
    assert (await agent.login(url)).status == 200


async def test_consent_to_a_program_on_the_users_machine_is_asked_for_each_time() -> None:
    agent = Agent(provider())
    url = agent.wish((await agent.register())["client_id"])
    await agent.approve(url)
    assert "Allow Notes" in text(await agent.get(url))


async def test_without_a_scope_the_client_gets_all_that_there_are_and_the_page_says_so() -> None:
    agent = Agent(provider(scopes=["read"]), site(scopes=("tools:run",)))
    client = (await agent.register())["client_id"]
    assert "tools:run" in text(await agent.login(agent.wish(client)))
    assert set((await agent.tokens(client))["scope"].split()) == {"read", "tools:run"}


@pytest.mark.requirement("authorization-scopes-minimal")
async def test_where_something_is_needed_in_any_case_it_gets_no_more_than_that() -> None:
    agent = Agent(
        provider(scopes=["read", "write"], required=["read"]), site(scopes=("tools:run",))
    )
    client = (await agent.register())["client_id"]
    assert (await agent.tokens(client))["scope"] == "read"
    assert (await agent.tokens(client, scope="write"))["scope"] == "write"


async def test_the_port_of_a_loopback_redirect_may_vary() -> None:
    agent = Agent(provider())
    client = (await agent.register(redirect_uris=["http://localhost/callback"]))["client_id"]
    uri = "http://localhost:51234/callback"
    answer = await agent.approve(agent.wish(client, redirect_uri=uri))
    assert answer.headers["location"].startswith(f"{uri}?code=")
    reply = await agent.redeem(client, returned(answer)["code"], redirect_uri=uri)
    assert reply.status == 200


async def test_the_redirect_uri_may_be_left_out_where_there_is_one_and_its_query_is_kept() -> None:
    agent = Agent(provider())
    client = (await agent.register(redirect_uris=["https://app.example/cb?tenant=7"]))["client_id"]
    answer = await agent.approve(agent.wish(client, redirect_uri=None))
    assert answer.headers["location"].startswith("https://app.example/cb?tenant=7&code=")


@pytest.mark.requirement("provider-rotates")
async def test_each_refresh_gives_the_next_token_and_the_access_tokens_stay_good() -> None:
    agent = Agent(provider())
    client = (await agent.register())["client_id"]
    first = await agent.tokens(client)
    second = decoded(await agent.refresh(client, first["refresh_token"]))
    third = decoded(await agent.refresh(client, second["refresh_token"]))
    assert len({first["refresh_token"], second["refresh_token"], third["refresh_token"]}) == 3
    for tokens in (first, second, third):
        assert await agent.who(tokens["access_token"]) is not None


async def test_who_refreshes_twice_at_once_gets_the_same_successor() -> None:
    agent = Agent(provider())
    client = (await agent.register())["client_id"]
    old = (await agent.tokens(client))["refresh_token"]
    first, second = await asyncio.gather(agent.refresh(client, old), agent.refresh(client, old))
    assert decoded(first)["refresh_token"] == decoded(second)["refresh_token"]
    assert (await agent.refresh(client, decoded(second)["refresh_token"])).status == 200


@pytest.mark.requirement("provider-short-lived", "provider-expiry")
async def test_an_access_token_is_good_for_an_hour() -> None:
    clock = Clock()
    agent = Agent(provider(now=clock))
    token = (await agent.tokens((await agent.register())["client_id"]))["access_token"]
    clock.time += 3599
    assert await agent.who(token) is not None
    clock.time += 2
    assert await agent.who(token) is None


async def test_a_refresh_token_is_good_for_as_long_as_it_is_used() -> None:
    clock = Clock()
    agent = Agent(provider(now=clock, refresh_life=100.0, access_life=10.0))
    client = (await agent.register())["client_id"]
    tokens = await agent.tokens(client)
    for _ in range(3):
        clock.time += 90
        assert await agent.who(tokens["access_token"]) is None
        tokens = decoded(await agent.refresh(client, tokens["refresh_token"]))
    clock.time += 101
    refused(await agent.refresh(client, tokens["refresh_token"]), "invalid_grant")


async def test_a_refresh_may_ask_for_fewer_scopes_and_later_for_all_again() -> None:
    agent = Agent(provider(scopes=["read", "write"]))
    client = (await agent.register())["client_id"]
    tokens = await agent.tokens(client, scope="read write")
    fewer = decoded(await agent.refresh(client, tokens["refresh_token"], scope="read"))
    assert fewer["scope"] == "read"
    assert decoded(await agent.refresh(client, fewer["refresh_token"]))["scope"] == "read write"


async def test_a_client_that_wants_no_refresh_tokens_gets_none_unless_it_asks_for_offline_access() -> (  # noqa: E501
    None
):
    agent = Agent(provider())
    client = (await agent.register(grant_types=["authorization_code"]))["client_id"]
    assert "refresh_token" not in await agent.tokens(client)
    assert "refresh_token" in await agent.tokens(client, scope="offline_access")


async def test_a_revoked_access_token_ends_and_a_revoked_refresh_token_ends_all() -> None:
    agent = Agent(provider())
    client = (await agent.register())["client_id"]
    first = await agent.tokens(client)
    second = decoded(await agent.refresh(client, first["refresh_token"]))
    answer = await agent.form("/revoke", {"client_id": client, "token": first["access_token"]})
    assert answer.status == 200
    assert await agent.who(first["access_token"]) is None
    assert await agent.who(second["access_token"]) is not None
    await agent.form("/revoke", {"client_id": client, "token": second["refresh_token"]})
    assert await agent.who(second["access_token"]) is None
    refused(await agent.refresh(client, second["refresh_token"]), "invalid_grant")
    assert (await agent.form("/revoke", {"client_id": client, "token": "unknown"})).status == 200


async def test_a_user_who_is_removed_is_out_at_once() -> None:
    users = dict(HASHES)
    agent = Agent(provider(users=users))
    client = (await agent.register())["client_id"]
    tokens = await agent.tokens(client)
    del users["ada"]
    assert await agent.who(tokens["access_token"]) is None
    refused(await agent.refresh(client, tokens["refresh_token"]), "invalid_grant")
    assert "Log in" in text(await agent.get(agent.wish(client)))


async def test_after_a_restart_nobody_has_to_log_in_again(tmp_path: Path) -> None:
    file = tmp_path / "provider.sqlite"
    agent = Agent(provider(storage=file))
    client = (await agent.register())["client_id"]
    tokens = await agent.tokens(client)
    again = Agent(provider(storage=file))
    again.cookies = agent.cookies
    assert await again.who(tokens["access_token"]) is not None
    assert (await again.refresh(client, tokens["refresh_token"])).status == 200
    assert "Logged in as ada" in text(await again.get(again.wish(client)))


async def test_servers_that_share_a_file_share_no_tokens_sessions_or_clients(
    tmp_path: Path,
) -> None:
    file = tmp_path / "provider.sqlite"
    one = Agent(provider(storage=file))
    two = Agent(provider(storage=file), site(base="https://other.example"))
    client = (await one.register())["client_id"]
    tokens = await one.tokens(client)
    assert await two.who(tokens["access_token"]) is None
    refused(await two.refresh(client, tokens["refresh_token"]), "invalid_client", 401)
    neighbour = Agent(one.provider, site(path="/second"))  # the same issuer, another endpoint
    assert await neighbour.who(tokens["access_token"]) is None


async def test_users_may_be_a_function() -> None:
    async def check(name: str, password: str) -> bool:
        return (name, password) == ("eve", "moneypenny")

    agent = Agent(provider(users=check))
    url = agent.wish((await agent.register())["client_id"])
    assert (await agent.login(url, "eve", "wrong")).status == 403
    assert "Logged in as eve" in text(await agent.login(url, "eve", "moneypenny"))


@pytest.mark.requirement("provider-cimd")
async def test_a_client_is_known_by_the_document_at_its_url_which_is_fetched_once() -> None:
    web = Web()
    web.pages[DOCUMENT] = described()
    agent = Agent(provider(register=False), site(web))
    assert "refresh_token" in await agent.tokens(DOCUMENT)
    assert [request.url for request in web.asked] == [DOCUMENT]


async def test_documents_can_be_switched_off_as_registration_can() -> None:
    web = Web()
    web.pages[DOCUMENT] = described()
    agent = Agent(provider(documents=False), site(web))
    assert (await agent.get(agent.wish(DOCUMENT))).status in (400, 401) and web.asked == []
    metadata = decoded(await agent.get("/.well-known/oauth-authorization-server"))
    assert (
        "client_id_metadata_document_supported" not in metadata
        and "registration_endpoint" in metadata
    )


@pytest.mark.requirement("provider-cimd-cache")
@pytest.mark.parametrize(
    ("control", "after", "times"),
    [("max-age=50", 60, 2), ("max-age=500", 60, 1), ("no-store", 0, 2)],
)
async def test_a_document_is_kept_as_long_as_its_server_says(
    control: str, after: float, times: int
) -> None:
    import msgspec

    web, clock = Web(), Clock()
    headers = {"content-type": "application/json", "cache-control": control}
    web.pages[DOCUMENT] = HttpResponse(headers=headers, body=msgspec.json.encode(described()))
    agent = Agent(provider(now=clock), site(web))
    await agent.get(agent.wish(DOCUMENT))
    clock.time += after
    await agent.get(agent.wish(DOCUMENT))
    assert len(web.asked) == times


async def test_a_described_client_proves_itself_with_its_key() -> None:
    web, key = Web(), jose.generate_key()
    web.pages[DOCUMENT] = described(
        token_endpoint_auth_method="private_key_jwt", jwks={"keys": [jose.public_jwk(key)]}
    )
    agent = Agent(provider(), site(web))
    code = await agent.code(DOCUMENT)
    assert (await agent.redeem(DOCUMENT, code, **assertion(DOCUMENT, key))).status == 200
    refused(await agent.redeem(DOCUMENT, await agent.code(DOCUMENT)), "invalid_client", 401)


def assertion(client: str, key: dict[str, object], **changes: object) -> dict[str, str]:
    import time
    from secrets import token_urlsafe

    claims = {
        "iss": client,
        "sub": client,
        "aud": BASE,
        "exp": time.time() + 60,
        "jti": token_urlsafe(),
        **changes,
    }
    signed = jose.sign({"alg": "ES256"}, claims, jose.load_key(key))
    return {
        "client_assertion": signed,
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    }


async def test_a_known_client_acts_for_itself_with_a_secret_or_a_key() -> None:
    key = jose.generate_key()
    known = [
        KnownClient(id="cron", secret="hush hush, said the vault", scopes=("read",)),
        KnownClient(id="bot", jwks={"keys": [jose.public_jwk(key)]}),
    ]
    agent = Agent(Provider(clients=known, scopes=["read", "write"], storage=":memory:"))
    own = {"grant_type": "client_credentials"}
    for headers, fields in (
        (basic("cron", "hush hush, said the vault"), {}),
        ({}, {"client_id": "cron", "client_secret": "hush hush, said the vault"}),
    ):
        reply = decoded(await agent.form("/token", {**own, **fields}, headers))
        assert reply["scope"] == "read"
        assert "refresh_token" not in reply
        who = await agent.who(reply["access_token"])
        assert who is not None
        assert (who.id, who.client) == ("cron", "cron")
    reply = decoded(await agent.form("/token", {**own, **assertion("bot", key), "scope": "write"}))
    assert reply["scope"] == "write"
    refused(
        await agent.form(
            "/token", {**own, "scope": "write"}, basic("cron", "hush hush, said the vault")
        ),
        "invalid_scope",
    )
    document = decoded(await agent.get("/.well-known/oauth-authorization-server"))
    assert "authorization_endpoint" not in document


@pytest.mark.requirement("provider-oauth", "provider-registration")
async def test_a_registered_client_with_a_secret_has_to_show_it() -> None:
    agent = Agent(provider())
    told = await agent.register(token_endpoint_auth_method="client_secret_post")
    id, secret = told["client_id"], told["client_secret"]
    refused(await agent.redeem(id, await agent.code(id)), "invalid_client", 401)
    refused(
        await agent.redeem(id, await agent.code(id), client_secret="wrong"), "invalid_client", 401
    )
    assert (await agent.redeem(id, await agent.code(id), client_secret=secret)).status == 200


async def test_a_registration_nobody_uses_is_forgotten_and_one_in_use_is_not() -> None:
    clock = Clock()
    agent = Agent(provider(now=clock, refresh_life=1e9))
    unused, used = (await agent.register())["client_id"], (await agent.register())["client_id"]
    tokens = await agent.tokens(used)
    clock.time += 2 * 86400
    assert (await agent.get(agent.wish(unused))).status == 400
    for _ in range(3):
        clock.time += 80 * 86400
        tokens = decoded(await agent.refresh(used, tokens["refresh_token"]))
    clock.time += 91 * 86400
    refused(await agent.refresh(used, tokens["refresh_token"]), "invalid_client", 401)


async def test_a_token_asked_for_with_a_proof_is_bound_to_its_key() -> None:
    agent = Agent(provider())
    client = (await agent.register())["client_id"]
    prover, thief = DpopSigner(), DpopSigner()
    proof = {"dpop": prover.proof("POST", f"{BASE}/token")}
    fields = {"client_id": client, "grant_type": "authorization_code", "code_verifier": VERIFIER}
    reply = decoded(await agent.form("/token", {**fields, "code": await agent.code(client)}, proof))
    assert reply["token_type"] == "DPoP"
    assert await agent.who(reply["access_token"]) is None

    async def admitted(key: DpopSigner) -> bool:
        proof = key.proof("POST", URL, reply["access_token"])
        headers = {"authorization": f"DPoP {reply['access_token']}", "dpop": proof}
        request = HttpRequest(method="POST", path="/mcp", url=URL, headers=headers)
        return isinstance(await agent.provider.admit(request, agent.site), Principal)

    assert await admitted(prover)
    assert not await admitted(thief)
    again = {
        "client_id": client,
        "grant_type": "refresh_token",
        "refresh_token": reply["refresh_token"],
    }
    refused(
        await agent.form("/token", again, {"dpop": thief.proof("POST", f"{BASE}/token")}),
        "invalid_grant",
    )
    refused(await agent.form("/token", again), "invalid_grant")
    assert (
        await agent.form("/token", again, {"dpop": prover.proof("POST", f"{BASE}/token")})
    ).status == 200


async def test_a_proof_without_the_nonce_is_told_it() -> None:
    agent = Agent(provider(dpop=Checker(required=True, nonces=True)))
    client = (await agent.register())["client_id"]
    prover = DpopSigner()
    fields = {"client_id": client, "grant_type": "authorization_code", "code_verifier": VERIFIER}
    fields["code"] = await agent.code(client)
    first = await agent.form("/token", fields, {"dpop": prover.proof("POST", f"{BASE}/token")})
    refused(first, "use_dpop_nonce")
    proof = prover.proof("POST", f"{BASE}/token", nonce=first.headers["dpop-nonce"])
    assert (await agent.form("/token", fields, {"dpop": proof})).status == 200


async def test_a_client_in_a_browser_may_call_what_takes_no_cookies() -> None:
    agent = Agent(provider())
    for path in ("/token", "/register", "/revoke", "/.well-known/oauth-authorization-server"):
        answer = await agent.ask("OPTIONS", path)
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == "*"
    page = await agent.get(agent.wish((await agent.register())["client_id"]))
    assert "access-control-allow-origin" not in page.headers
    assert (await agent.ask("OPTIONS", "/authorize")).status == 405


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "nobody can log in"),
        ({"users": {"ada": "plain text"}}, "hash_password"),
        ({"users": HASHES, "issuer": "http://mcp.example"}, "https"),
        (
            {"users": HASHES, "clients": [KnownClient(id="ada", secret="plain text")]},
            "distinguished",
        ),
    ],
)
@pytest.mark.requirement("provider-https")
def test_settings_that_make_no_sense_say_so(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Provider(**settings, storage=":memory:")  # type: ignore[arg-type]
    assert "plain text" not in str(caught.value)


@pytest.mark.requirement("provider-https")
async def test_nothing_is_served_that_others_could_overhear() -> None:
    agent = Agent(provider(), site(base="http://mcp.example"))
    for path in (
        "/authorize?client_id=x",
        "/token",
        "/register",
        "/.well-known/oauth-authorization-server",
    ):
        answer = await agent.ask("POST" if path in ("/token", "/register") else "GET", path)
        assert answer.status == 400 and b"https" in answer.body
    with pytest.raises(ConfigError, match="https"):
        Server("overheard", auth=provider()).asgi("/mcp", public_url="http://mcp.example")
    for fine in ("https://mcp.example", "http://127.0.0.1:8000"):
        Server("private", auth=provider()).asgi("/mcp", public_url=fine)
    Server("moved", auth=provider(issuer="https://login.example")).asgi(
        "/mcp", public_url="http://mcp.example"
    )


def test_a_hashed_password_is_salted_and_found_again() -> None:
    first, second = hash_password("pässword"), hash_password("pässword")
    assert first != second
    assert check_password("pässword", first)
    assert not check_password("password", first)


async def test_secrets_do_not_show_in_reprs() -> None:
    assert "hush" not in repr(KnownClient(id="cron", secret="hush"))


async def test_the_issuer_may_be_given() -> None:
    agent = Agent(provider(issuer="https://login.example/"))
    assert (
        decoded(await agent.get("/.well-known/oauth-authorization-server"))["issuer"]
        == "https://login.example"
    )
    assert matches_challenge(VERIFIER, jose.s256(VERIFIER))
    assert csrf(await agent.get(agent.wish((await agent.register())["client_id"])))


@pytest.mark.requirement("authorization-resource-spelling")
async def test_a_token_is_for_the_endpoint_it_was_asked_for_or_for_all_of_them() -> None:
    agent = Agent(provider())
    client = (await agent.register())["client_id"]
    beside = Agent(agent.provider, site(path="/ws"))
    one, all_of_them = await agent.tokens(client), await agent.tokens(client, resource=None)
    other = await agent.tokens(client, resource=f"{BASE}/ws")
    for tokens, here, there in (
        (one, True, False),
        (all_of_them, True, True),
        (other, False, True),
    ):
        assert (await agent.who(tokens["access_token"]) is not None) is here
        assert (await beside.who(tokens["access_token"]) is not None) is there
    narrow = decoded(await agent.refresh(client, all_of_them["refresh_token"], resource=URL))
    assert await beside.who(narrow["access_token"]) is None
    refused(
        await agent.refresh(client, one["refresh_token"], resource=f"{BASE}/ws"), "invalid_target"
    )
    assert (
        await agent.refresh(
            client, one["refresh_token"], resource=URL.upper().replace("/MCP", "/mcp")
        )
    ).status == 200


async def test_a_server_that_is_not_sure_of_its_name_takes_no_tokens_and_says_what_to_do() -> None:
    agent = Agent(provider())
    tokens = await agent.tokens((await agent.register())["client_id"])
    unsure = site(is_configured=False)
    request = HttpRequest(
        path="/mcp", url=URL, headers={"authorization": f"Bearer {tokens['access_token']}"}
    )
    answer = await agent.provider.admit(request, unsure)
    assert isinstance(answer, HttpResponse)
    assert b"public_url" in answer.body


async def test_a_document_on_the_local_network_is_for_those_who_allow_it() -> None:
    local, web, reach = "http://127.0.0.1:9000/client.json", Web(), Web()
    reach.pages[local] = described(client_id=local)
    agent = Agent(provider(private=True), site(web, fetch_trusted=reach))
    assert "access_token" in await agent.tokens(local)
    assert web.asked == []
    assert (
        await Agent(provider(), site(web, fetch_trusted=reach)).get(agent.wish(local))
    ).status == 400
