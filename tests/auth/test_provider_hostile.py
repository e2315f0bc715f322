"""The embedded authorization server, as those see it who are up to no good."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from dovetail.auth import KnownClient, Provider, SqliteStorage, jose
from dovetail.auth.provider import (
    clients,
    clients as redirects,
    login,
    sessions,
)
from dovetail.errors import ConfigError
from dovetail.ports import HttpRequest, HttpResponse

from .provider_kit import (
    BASE,
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
from .test_provider import DOCUMENT, assertion, described

EVIL = "https://evil.example/"
KNOWN = KnownClient(id="known", redirect_uris=(LOCAL,))


async def ready(**settings: Any) -> tuple[Agent, str]:
    agent = Agent(provider(**settings))
    return agent, (await agent.register())["client_id"]


def is_error_page(answer: HttpResponse) -> None:
    assert 400 <= answer.status < 500
    assert "location" not in answer.headers
    assert answer.headers["content-type"].startswith("text/html")


# open redirects


@pytest.mark.requirement("provider-redirect-exact")
@pytest.mark.parametrize(
    "uri",
    [
        EVIL,
        "https://app.example.evil.example/callback",
        "https://app.example/callback/",
        "https://app.example/callback/../evil",
        "https://app.example/callback?x=1",
        "https://app.example/callback#x",
        "https://app.example/Callback",
        "https://APP.example/callback",
        "https://app.example:444/callback",
        "https://user@app.example/callback",
        "https://app.example@evil.example/callback",
        "https://app.example\\@evil.example/callback",
        "http://app.example/callback",
        "//app.example/callback",
        "javascript:alert(1)",
        "https://app.example/callback\r\nset-cookie: x=y",
        "http://localhost.evil.example/callback",
        "http://localhost@evil.example/callback",
        "http://localhost:1@evil.example/callback",
        "http://127.0.0.1.evil.example/callback",
        "http://localhost:99999999/callback",
        "http://localhost:4567/callback/../../evil",
        "http://localhost:4567/callback\n",
        "http://127.0.0.1:4567/callback",
        "https://localhost:4567/callback",
    ],
)
async def test_a_redirect_uri_that_was_not_registered_gets_a_page_and_no_redirect(uri: str) -> None:
    agent = Agent(provider())
    client = (await agent.register(redirect_uris=[WEB, "http://localhost/callback"]))["client_id"]
    answer = await agent.get(agent.wish(client, redirect_uri=uri))
    is_error_page(answer)
    assert "evil" not in text(answer)


@pytest.mark.requirement("provider-redirect-precautions")
async def test_an_unknown_client_gets_a_page_and_no_redirect() -> None:
    agent = Agent(provider())
    for id in ("nobody", "https://", "../../etc/passwd", "\x00"):
        is_error_page(await agent.get(agent.wish(id, redirect_uri=EVIL)))
    is_error_page(await agent.get(f"/authorize?redirect_uri={quote(EVIL)}"))


async def test_several_redirect_uris_and_none_asked_for_is_nothing_to_guess_at() -> None:
    agent = Agent(provider())
    client = (await agent.register(redirect_uris=[WEB, LOCAL]))["client_id"]
    is_error_page(await agent.get(agent.wish(client, redirect_uri=None)))


@pytest.mark.requirement("provider-redirect-trusted", "provider-redirect-precautions")
async def test_a_site_nobody_knows_is_not_redirected_to_before_a_person_had_a_word_in_it() -> None:
    agent = Agent(provider())
    client = (await agent.register(redirect_uris=[EVIL]))["client_id"]
    answer = await agent.get(agent.wish(client, redirect_uri=EVIL, response_type="token"))
    is_error_page(answer)
    assert "Return to evil.example" in text(answer)


@pytest.mark.parametrize("uri", [LOCAL, "cursor://evil.example/cb"])
@pytest.mark.requirement("provider-redirect-trusted", "provider-redirect-precautions")
async def test_nor_is_a_program_on_the_users_own_machine_started(uri: str) -> None:
    agent = Agent(provider())
    client = (await agent.register(redirect_uris=[uri]))["client_id"]
    is_error_page(await agent.get(agent.wish(client, redirect_uri=uri, response_type="token")))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"resource": f"{URL}#x"}, "invalid_target"),
        ({"resource": "nonsense"}, "invalid_target"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"request_uri": "https://evil.example/"}, "invalid_request"),
    ],
)
@pytest.mark.requirement("provider-pkce", "provider-iss")
async def test_what_is_wrong_is_told_the_client_with_state_and_issuer(
    changes: dict[str, Any], error: str
) -> None:
    agent = Agent(provider(scopes=["read"], clients=[KNOWN]))
    answer = returned(await agent.get(agent.wish(KNOWN.id, **changes)))
    assert answer["error"] == error
    assert (answer["state"], answer["iss"]) == ("xyz", BASE)


async def test_one_of_several_resources_for_another_server_is_one_too_many() -> None:
    agent = Agent(provider(clients=[KNOWN]))
    url = agent.wish(KNOWN.id) + "&" + urlencode({"resource": "https://other.example"})
    assert returned(await agent.get(url))["error"] == "invalid_target"


async def test_a_parameter_that_comes_twice_is_refused_without_a_redirect() -> None:
    agent, client = await ready()
    for twice in (
        "state=1",
        "redirect_uri=https://evil.example/",
        "client_id=x",
        "code_challenge_method=plain",
    ):
        is_error_page(await agent.get(f"{agent.wish(client)}&{twice}"))
    answer = await agent.ask(
        "POST",
        "/token",
        b"grant_type=a&grant_type=b",
        {"content-type": "application/x-www-form-urlencoded"},
    )
    refused(answer, "invalid_request")


# codes


@pytest.mark.requirement("provider-code-once")
async def test_a_code_that_is_used_twice_takes_back_what_it_gave() -> None:
    agent, client = await ready()
    code = await agent.code(client)
    tokens = decoded(await agent.redeem(client, code))
    refused(await agent.redeem(client, code), "invalid_grant")
    assert await agent.who(tokens["access_token"]) is None
    refused(await agent.refresh(client, tokens["refresh_token"]), "invalid_grant")


async def test_a_code_is_good_for_a_minute() -> None:
    clock = Clock()
    agent, client = await ready(now=clock)
    code = await agent.code(client)
    clock.time += 61
    refused(await agent.redeem(client, code), "invalid_grant")


@pytest.mark.requirement("provider-pkce")
@pytest.mark.parametrize(
    "verifier",
    ["", "w" * 43, VERIFIER + "x", VERIFIER.upper(), jose.s256(VERIFIER), "x" * 200],
)
async def test_a_code_without_its_verifier_is_worth_nothing_from_then_on(verifier: str) -> None:
    agent, client = await ready()
    code = await agent.code(client)
    refused(await agent.redeem(client, code, code_verifier=verifier), "invalid_grant")
    refused(await agent.redeem(client, code), "invalid_grant")


async def test_a_code_is_for_its_client_and_its_redirect_uri_only() -> None:
    agent, client = await ready()
    other = (await agent.register())["client_id"]
    refused(await agent.redeem(other, await agent.code(client)), "invalid_grant")
    refused(await agent.redeem(client, await agent.code(client), redirect_uri=WEB), "invalid_grant")
    refused(
        await agent.redeem(client, await agent.code(client), resource="https://other.example/"),
        "invalid_target",
    )


async def test_a_code_is_no_refresh_token_and_a_refresh_token_no_code() -> None:
    agent, client = await ready()
    refused(await agent.refresh(client, await agent.code(client)), "invalid_grant")
    tokens = await agent.tokens(client)
    refused(await agent.redeem(client, tokens["refresh_token"]), "invalid_grant")
    assert await agent.who(tokens["refresh_token"]) is None


# refresh tokens


@pytest.mark.requirement("provider-rotates")
async def test_an_old_refresh_token_ends_the_whole_family() -> None:
    clock = Clock()
    agent, client = await ready(now=clock, grace=10.0)
    first = await agent.tokens(client)
    second = decoded(await agent.refresh(client, first["refresh_token"]))
    clock.time += 11
    refused(await agent.refresh(client, first["refresh_token"]), "invalid_grant")
    refused(await agent.refresh(client, second["refresh_token"]), "invalid_grant")
    for tokens in (first, second):
        assert await agent.who(tokens["access_token"]) is None


async def test_grace_is_for_the_last_token_only() -> None:
    agent, client = await ready(grace=1000.0)
    first = await agent.tokens(client)
    second = decoded(await agent.refresh(client, first["refresh_token"]))
    third = decoded(await agent.refresh(client, second["refresh_token"]))
    refused(await agent.refresh(client, first["refresh_token"]), "invalid_grant")
    refused(await agent.refresh(client, third["refresh_token"]), "invalid_grant")


async def test_a_refresh_gives_no_more_scopes_than_were_granted() -> None:
    agent, client = await ready(scopes=["read", "write"])
    tokens = await agent.tokens(client, scope="read")
    refused(
        await agent.refresh(client, tokens["refresh_token"], scope="read write"), "invalid_scope"
    )
    assert (await agent.refresh(client, tokens["refresh_token"])).status == 200


async def test_a_refresh_may_ask_for_a_part_of_a_scope_that_was_granted() -> None:
    agent, client = await ready(scopes=["read", "admin"], implies={"admin": ["read"]})
    tokens = await agent.tokens(client, scope="admin")
    assert (
        decoded(await agent.refresh(client, tokens["refresh_token"], scope="read"))["scope"]
        == "read"
    )


async def test_a_refresh_token_of_another_client_ends_for_both() -> None:
    agent, client = await ready()
    other = (await agent.register())["client_id"]
    tokens = await agent.tokens(client)
    refused(await agent.refresh(other, tokens["refresh_token"]), "invalid_grant")
    refused(await agent.refresh(client, tokens["refresh_token"]), "invalid_grant")


async def test_nobody_revokes_the_tokens_of_another_client() -> None:
    agent, client = await ready()
    other = (await agent.register())["client_id"]
    tokens = await agent.tokens(client)
    await agent.form("/revoke", {"client_id": other, "token": tokens["access_token"]})
    assert await agent.who(tokens["access_token"]) is not None


# the browser


@pytest.mark.parametrize("action", ["approve", "deny", "login", "switch"])
@pytest.mark.requirement("provider-consent-csrf")
async def test_a_form_from_elsewhere_does_nothing(action: str) -> None:
    agent, client = await ready()
    url = agent.wish(client)
    page = await agent.login(url)
    attacker = Agent(agent.provider)
    foreign = csrf(await attacker.get(url))
    other = csrf(await agent.get(agent.wish((await agent.register())["client_id"])))
    for token in ("", "x", foreign, other):
        answer = await agent.form(url, {"csrf": token, "action": action})
        is_error_page(answer)
        assert answer.status == 403
    cookies, agent.cookies = agent.cookies, {}
    is_error_page(await agent.press(url, page, action))
    agent.cookies = cookies
    assert "Logged in as ada" in text(await agent.get(url))


async def test_a_session_from_before_the_login_is_worth_nothing_after_it() -> None:
    agent, client = await ready()
    url = agent.wish(client)
    await agent.get(url)
    fixed = Agent(agent.provider)
    fixed.cookies = dict(agent.cookies)
    await agent.login(url)
    assert agent.cookies != fixed.cookies
    assert "Log in" in text(await fixed.get(url))


async def test_nobody_approves_without_a_login() -> None:
    agent, client = await ready()
    url = agent.wish(client)
    answer = await agent.press(url, await agent.get(url), "approve")
    assert answer.status == 200
    assert "Log in" in text(answer)


@pytest.mark.requirement("provider-consent-framing")
async def test_every_page_comes_with_the_headers_that_keep_it_safe() -> None:
    agent, client = await ready()
    url = agent.wish(client)
    pages = [await agent.get(url), await agent.login(url), await agent.get(agent.wish("nobody"))]
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
        assert b"<script" not in page.body
    assert "form-action 'self' http://127.0.0.1:4567" in pages[1].headers["content-security-policy"]
    assert "form-action 'none'" in pages[2].headers["content-security-policy"]


@pytest.mark.requirement("provider-cookie")
async def test_the_cookie_is_out_of_reach_of_scripts_other_sites_and_plain_http() -> None:
    agent, client = await ready()
    cookie = (await agent.get(agent.wish(client))).headers["set-cookie"]
    assert cookie.startswith("__Host-dovetail-")
    for part in ("HttpOnly", "SameSite=Lax", "Secure", "Path=/"):
        assert part in cookie.split("; ")
    local = Agent(provider(), site(base="http://127.0.0.1:8000"))
    cookie = (await local.get(local.wish((await local.register())["client_id"]))).headers[
        "set-cookie"
    ]
    assert "Secure" not in cookie


@pytest.mark.parametrize(
    "attack", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'; --", "{{7*7}}"]
)
async def test_nothing_of_a_client_becomes_part_of_a_page(attack: str) -> None:
    agent = Agent(provider(scopes=["read"]))
    client = (await agent.register(client_name=attack, client_uri=attack))["client_id"]
    url = agent.wish(client, state=attack, scope=f"read {quote(attack)}")
    for page in (
        await agent.get(url),
        await agent.login(url, attack, attack),
        await agent.login(url),
    ):
        assert b"<script" not in page.body
        assert b"<img" not in page.body
    assert returned(await agent.press(url, await agent.login(url), "approve"))["state"] == attack
    assert b"<script" not in (await agent.get(agent.wish(attack, redirect_uri=attack))).body


async def test_a_name_that_looks_like_another_is_shown_without_its_tricks() -> None:
    agent = Agent(provider())
    told = await agent.register(client_name="Goo\u200bgle\u202e drowssap\n\n\n" + "x" * 500)
    assert told["client_name"].startswith("Google drowssap x")
    assert len(told["client_name"]) == 80


async def test_headers_cannot_be_split() -> None:
    agent, client = await ready()
    answer = await agent.approve(agent.wish(client, state="x\r\nset-cookie: a=b"))
    assert "\r" not in answer.headers["location"]
    assert "\n" not in answer.headers["location"]


# passwords


async def test_guessing_is_slowed_down_and_says_for_how_long() -> None:
    clock = Clock()
    agent, client = await ready(now=clock)
    url = agent.wish(client)
    answers = [await agent.login(url, "ada", f"guess {number}") for number in range(6)]
    assert [answer.status for answer in answers[:4]] == [403] * 4
    assert answers[-1].status == 429
    assert "Try again in" in text(answers[-1])
    assert 0 < int(answers[-1].headers["retry-after"]) <= 31
    assert (await agent.login(url)).status == 429  # though it is the right one
    home = Agent(agent.provider, address="198.51.100.1")
    assert "Logged in as ada" in text(await home.login(url))
    clock.time += 31
    assert "Logged in as ada" in text(await agent.login(url))


async def test_a_login_does_not_clear_the_failed_attempts_of_its_address() -> None:
    """Otherwise anyone with one account could try one password for every other user."""
    agent, client = await ready(now=Clock(), users=lambda name, password: name == "mallory")
    url, statuses = agent.wish(client), []
    for number in range(60):
        statuses.append((await agent.login(url, f"user {number}", "password1")).status)
        if number % 3 == 2:
            agent.cookies.clear()
            await agent.login(url, "mallory", "own")
            agent.cookies.clear()
    assert 429 in statuses[:25] and set(statuses[25:]) == {429}


async def test_a_login_does_not_count_as_a_failed_attempt() -> None:
    agent, client = await ready(now=Clock(), users=lambda name, password: True)
    url = agent.wish(client)
    for number in range(60):
        agent.cookies.clear()
        assert (await agent.login(url, f"user {number}", "own")).status == 200


async def test_who_has_logged_in_from_an_address_is_not_locked_out_by_others_there() -> None:
    clock = Clock()
    agent, client = await ready(now=clock, users=lambda name, password: password == "right")
    url = agent.wish(client)
    assert (await agent.login(url, "ada", "right")).status == 200
    for number in range(25):
        agent.cookies.clear()
        last = await agent.login(url, f"user {number}", "wrong")
    assert last.status == 429, "everyone else waits"
    agent.cookies.clear()
    assert (await agent.login(url, "bob", "right")).status == 429, "even with the right password"
    assert (await agent.login(url, "ada", "right")).status == 200
    agent.cookies.clear()
    statuses = [(await agent.login(url, "ada", f"guess {number}")).status for number in range(6)]
    assert statuses[-1] == 429, "the limit of the pair applies"
    elsewhere = Agent(agent.provider, address="198.51.100.1")
    assert (await elsewhere.login(url, "bob", "right")).status == 200


async def test_guessing_for_many_users_is_slowed_down_by_address() -> None:
    clock = Clock()
    agent, client = await ready(now=clock, users=lambda name, password: False)
    url = agent.wish(client)
    statuses = [(await agent.login(url, f"user {number}", "123456")).status for number in range(22)]
    assert statuses[-1] == 429


async def test_guessing_from_many_addresses_is_slowed_down_by_user() -> None:
    clock = Clock()
    agent, client = await ready(now=clock, users=lambda name, password: False)
    url = agent.wish(client)
    statuses = []
    for number in range(52):
        agent.address = f"198.51.100.{number}"
        statuses.append((await agent.login(url, "ada", "123456")).status)
    assert statuses[-1] == 429


async def test_one_machine_has_as_many_addresses_as_it_likes_and_counts_once() -> None:
    agent, client = await ready(now=Clock(), users=lambda name, password: False)
    url = agent.wish(client)
    statuses = []
    for number in range(22):
        agent.address = f"2001:db8:1:2::{number:x}"
        statuses.append((await agent.login(url, f"user {number}", "123456")).status)
    assert statuses[-1] == 429
    agent.address = "2001:db8:1:3::1"
    assert (await agent.login(url, "ada", "123456")).status == 403


async def test_passwords_that_are_tried_keep_nothing_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()

    def slow(password: str, hashed: str) -> bool:
        return go.wait(20)

    monkeypatch.setattr(login, "check_password", slow)
    agent, client = await ready(now=Clock())
    url = agent.wish(client)
    shown = await agent.get(url)

    async def attempt(number: int) -> int:
        robot = Agent(agent.provider, address=f"198.51.{number}.1")
        robot.cookies = dict(agent.cookies)
        return (
            await robot.press(url, shown, "login", username=f"user {number}", password="x")
        ).status

    tries = [asyncio.create_task(attempt(number)) for number in range(60)]
    assert {await tries[number] for number in range(34, 60)} == {503}
    await asyncio.wait_for(asyncio.to_thread(int), 10)  # other work has other threads
    go.set()
    assert 503 not in await asyncio.gather(*tries[:34])


async def test_an_unknown_user_costs_the_same_and_reads_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, client = await ready()
    url = agent.wish(client)
    work: list[tuple[int, ...]] = []
    digest: Callable[..., bytes] = login._digest

    def counted(password: str, salt: bytes, *cost: int) -> bytes:
        work.append(cost)
        return digest(password, salt, *cost)

    monkeypatch.setattr(login, "_digest", counted)
    known, unknown = (
        await agent.login(url, "ada", "wrong"),
        await agent.login(url, "nobody", "wrong"),
    )
    assert work[0] == work[1]
    assert text(known) == text(unknown)


@pytest.mark.parametrize("place", [sessions, clients, login])
async def test_secrets_are_compared_in_constant_time(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def compare(one: Any, two: Any) -> bool:
        compared.append(len(one))
        return bool(one == two)

    monkeypatch.setattr(place, "compare_digest", compare)
    agent = Agent(provider())
    told = await agent.register(token_endpoint_auth_method="client_secret_post")
    id = told["client_id"]
    await agent.redeem(id, await agent.code(id), client_secret=told["client_secret"])
    assert compared


# clients


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["http://evil.example/cb"],
        ["javascript:alert(1)"],
        ["data:text/html,x"],
        ["file:///etc/passwd"],
        ["https://a.example/#x"],
        ["https://u:p@a.example/"],
        ["https://a.example/../x"],
        ["https://a.example/%2e%2e/x"],
        ["https://"],
        ["https:///path"],
        ["myapp://callback"],
        ["com.example.app:/cb"],
        ["cursor:alert(1)"],
        ["https://a.example/" + "x" * 3000],
        ["https://a.example/"] * 11,
        [1],
        "https://a.example/",
    ],
)
@pytest.mark.requirement("provider-redirect-kinds")
async def test_what_cannot_be_a_redirect_uri_cannot_be_registered(uris: Any) -> None:
    answer = await Agent(provider()).ask(
        "POST", "/register", msgspec.json.encode({"redirect_uris": uris})
    )
    assert answer.status == 400
    assert decoded(answer)["error"] in ("invalid_redirect_uri", "invalid_client_metadata")


@pytest.mark.parametrize(
    "uri",
    [
        "https://[::1::]/cb",
        "https://[2001:]/cb",
        "https://a.example:70000/cb",
        "http://localhost:0/",
    ],
)
def test_an_address_that_does_not_exist_is_no_redirect_uri(uri: str) -> None:
    assert not redirects.is_allowed_redirect(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "com.example.app:/cb",
        "cursor://anysphere.cursor/cb",
        "http://[::1]:99/cb",
        "https://[2001:db8::1]/",
    ],
)
def test_native_programs_have_their_schemes(uri: str) -> None:
    assert redirects.is_allowed_redirect(uri, ("cursor", "com.example.app"))


@pytest.mark.parametrize(
    "uri",
    ["http://app.example/cb", "myapp://callback", "javascript:alert(1)", "https://a.example/#x"],
)
@pytest.mark.requirement("provider-redirect-kinds")
def test_what_cannot_be_a_redirect_uri_cannot_be_configured_either(uri: str) -> None:
    with pytest.raises(ConfigError, match="schemes="):
        provider(clients=[KnownClient(id="app", redirect_uris=(uri,))])


def test_a_secret_that_could_be_guessed_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match="16 characters") as caught:
        provider(clients=[KnownClient(id="cron", secret="hush")])
    assert "hush" not in str(caught.value)


async def test_no_user_has_the_name_of_a_client_that_acts_for_itself() -> None:
    agent, client = await ready(
        users=lambda name, password: True,
        clients=[KnownClient(id="cron", secret="hush hush, said the vault")],
    )
    answer = returned(await agent.approve(agent.wish(client), "cron", "x"))
    assert answer["error"] == "access_denied"
    assert "code" in returned(await Agent(agent.provider).approve(agent.wish(client), "ada", "x"))


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        (WEB, "https://app.example"),
        (LOCAL, "http://127.0.0.1:4567"),
        ("http://[::1]:9/", "http:"),
        ("com.app:/x", "com.app:"),
    ],
)
def test_a_policy_names_the_way_back_as_policies_can(uri: str, source: str) -> None:
    assert redirects.policy_source(uri) == source


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b'{"redirect_uris": {}}', b"\xff\xfe", b"[" * 10_000],
)
async def test_a_registration_that_makes_no_sense_is_refused(body: bytes) -> None:
    answer = await Agent(provider()).ask("POST", "/register", body)
    assert answer.status == 400


@pytest.mark.parametrize(
    "metadata",
    [
        {"grant_types": ["client_credentials"]},
        {"grant_types": ["implicit"]},
        {"response_types": ["token"]},
        {"token_endpoint_auth_method": "tls_client_auth"},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "http://169.254.169.254/"},
        {"client_name": 5},
        {"grant_types": "authorization_code"},
        {"jwks": []},
    ],
)
async def test_a_client_cannot_register_for_what_is_not_given(metadata: dict[str, Any]) -> None:
    body = msgspec.json.encode({"redirect_uris": [LOCAL], **metadata})
    refused(await Agent(provider()).ask("POST", "/register", body), "invalid_client_metadata")


async def test_a_flood_of_registrations_is_stopped_by_address() -> None:
    clock = Clock()
    agent = Agent(provider(now=clock))
    body = msgspec.json.encode({"redirect_uris": [LOCAL]})
    statuses = [(await agent.ask("POST", "/register", body)).status for _ in range(110)]
    assert statuses.count(201) == 100
    last = await agent.ask("POST", "/register", body)
    assert last.status == 429
    assert int(last.headers["retry-after"]) > 0
    agent.address = "198.51.100.9"
    assert (await agent.ask("POST", "/register", body)).status == 201


async def test_nobody_acts_for_itself_who_only_registered() -> None:
    web = Web()
    web.pages[DOCUMENT] = described()
    agent = Agent(provider(), site(web))
    told = await agent.register(
        token_endpoint_auth_method="client_secret_post",
        grant_types=["authorization_code", "client_credentials"],
    )
    assert told["grant_types"] == ["authorization_code"]
    own = {"grant_type": "client_credentials"}
    refused(
        await agent.token(told["client_id"], client_secret=told["client_secret"], **own),
        "unauthorized_client",
    )
    refused(await agent.token(DOCUMENT, **own), "unauthorized_client")


async def test_a_client_that_proves_itself_wrongly_or_twice_is_refused() -> None:
    agent = Agent(
        Provider(
            clients=[KnownClient(id="cron", secret="hush hush, said the vault")], storage=":memory:"
        )
    )
    own = {"grant_type": "client_credentials"}
    answer = await agent.form("/token", own, basic("cron", "wrong"))
    refused(answer, "invalid_client", 401)
    assert answer.headers["www-authenticate"].startswith("Basic")
    refused(
        await agent.form("/token", own, basic("nobody", "hush hush, said the vault")),
        "invalid_client",
        401,
    )
    refused(await agent.form("/token", own, {"authorization": "Basic !!"}), "invalid_client", 401)
    refused(await agent.token("cron", **own), "invalid_client", 401)
    refused(await agent.token("cron", client_secret="", **own), "invalid_client", 401)
    both = {**own, "client_secret": "hush hush, said the vault"}
    refused(
        await agent.form("/token", both, basic("cron", "hush hush, said the vault")),
        "invalid_request",
    )
    refused(
        await agent.form(
            "/token", {**own, "client_id": "other"}, basic("cron", "hush hush, said the vault")
        ),
        "invalid_request",
    )
    refused(await agent.form("/token", own), "invalid_request")


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "other"},
        {"sub": "other"},
        {"aud": "https://other.example"},
        {"aud": []},
        {"exp": 1},
        {"exp": time.time() + 86400},
        {"exp": "soon"},
        {"exp": None},
        {"exp": 10**400},
        {"nbf": 10**400},
        {"nbf": time.time() + 3600},
        {"jti": ""},
        {"jti": None},
    ],
)
async def test_an_assertion_that_says_the_wrong_thing_is_refused(changes: dict[str, Any]) -> None:
    key = jose.generate_key()
    agent = Agent(
        Provider(
            clients=[KnownClient(id="bot", jwks={"keys": [jose.public_jwk(key)]})],
            storage=":memory:",
        )
    )
    fields = {
        "grant_type": "client_credentials",
        "client_id": "bot",
        **assertion("bot", key, **changes),
    }
    refused(await agent.form("/token", fields), "invalid_client", 401)


async def test_an_assertion_is_good_once_and_only_by_the_right_key() -> None:
    key = jose.generate_key()
    agent = Agent(
        Provider(
            clients=[KnownClient(id="bot", jwks={"keys": [jose.public_jwk(key)]})],
            storage=":memory:",
        )
    )
    fields = {"grant_type": "client_credentials", **assertion("bot", key)}
    assert (await agent.form("/token", fields)).status == 200
    refused(await agent.form("/token", fields), "invalid_client", 401)
    forged = {"grant_type": "client_credentials", **assertion("bot", jose.generate_key())}
    refused(await agent.form("/token", forged), "invalid_client", 401)
    for junk in ("", "a.b.c", "eyJhbGciOiJub25lIn0.e30."):
        answer = await agent.form(
            "/token", {**fields, "client_id": "bot", "client_assertion": junk}
        )
        refused(answer, "invalid_client", 401)


# documents at a URL


@pytest.mark.requirement("provider-ssrf")
async def test_a_document_that_may_not_be_fetched_gives_a_page_that_says_so() -> None:
    agent = Agent(provider(), site(Web()))
    answer = await agent.get(agent.wish("https://169.254.169.254/latest"))
    is_error_page(answer)
    assert "local network" in text(answer)


@pytest.mark.parametrize(
    "id",
    [
        "http://app.example/client.json",
        "http://127.0.0.1/client.json",
        "https://app.example",
        "https://app.example/",
        "https://app.example/../client.json",
        "https://app.example/client.json#x",
        "https://u@app.example/client.json",
        "https://app.example//client.json",
        "file:///etc/passwd",
        "https://app.example/" + "x" * 3000,
    ],
)
@pytest.mark.requirement("provider-ssrf")
async def test_what_is_no_proper_url_is_never_fetched(id: str) -> None:
    web = Web()
    agent = Agent(provider(), site(web))
    is_error_page(await agent.get(agent.wish(id)))
    assert web.asked == []


@pytest.mark.requirement(
    "provider-cimd", "provider-cimd-identical", "provider-cimd-fields", "provider-cimd-redirect"
)
@pytest.mark.parametrize(
    "page",
    [
        described(client_id="https://app.example/other.json"),
        described(client_id=None),
        described(client_name=None),
        described(client_secret="x"),
        described(token_endpoint_auth_method="client_secret_basic"),
        described(redirect_uris=[]),
        described(redirect_uris=["https://other.example/cb"]),
        [],
        HttpResponse(
            status=404,
            headers={"content-type": "application/json"},
            body=msgspec.json.encode(described()),
        ),
        HttpResponse(status=302, headers={"location": EVIL}),
        HttpResponse(headers={"content-type": "text/html"}, body=msgspec.json.encode(described())),
        HttpResponse(headers={"content-type": "application/json"}, body=b"{" * 1000),
        HttpResponse(
            headers={"content-type": "application/json"},
            body=msgspec.json.encode(described()) + b" " * 100_000,
        ),
    ],
)
async def test_a_document_that_is_not_in_order_describes_nobody(page: Any) -> None:
    web = Web()
    web.pages[DOCUMENT] = page
    agent = Agent(provider(), site(web))
    is_error_page(await agent.get(agent.wish(DOCUMENT)))


async def test_nobody_makes_us_ask_one_host_without_end_or_not_at_all() -> None:
    web, clock = Web(), Clock()
    web.pages[DOCUMENT] = described()
    agent = Agent(provider(now=clock), site(web))
    await agent.get(agent.wish(DOCUMENT, redirect_uri=WEB))
    clock.time += 601  # what was fetched is old by now
    for number in range(40):
        await agent.get(agent.wish(f"https://app.example/{number}"))
    assert len(web.asked) == 1 + 30
    assert (await agent.get(agent.wish(DOCUMENT, redirect_uri=WEB))).status == 200
    assert len(web.asked) == 31  # for who asked so often, the old one has to do
    agent.address = "198.51.100.9"
    assert (await agent.get(agent.wish(DOCUMENT, redirect_uri=WEB))).status == 200
    assert len(web.asked) == 32


# requests


async def test_a_body_or_query_that_is_too_long_is_not_read() -> None:
    agent, client = await ready()
    assert (await agent.token(client, grant_type="x" * 20_000)).status == 413
    assert (await agent.get(agent.wish(client, state="x" * 20_000))).status == 413
    assert (await agent.ask("POST", "/register", b" " * 20_000)).status == 413
    many = "&".join(f"a{number}=1" for number in range(100)).encode()
    answer = await agent.ask(
        "POST", "/token", many, {"content-type": "application/x-www-form-urlencoded"}
    )
    refused(answer, "invalid_request")
    assert "cannot be parsed" in decoded(answer)["error_description"]


async def test_a_token_request_has_to_be_a_posted_form() -> None:
    agent, _ = await ready()
    assert (await agent.get("/token?grant_type=client_credentials")).status == 405
    refused(
        await agent.ask("POST", "/token", b"{}", {"content-type": "application/json"}),
        "invalid_request",
    )
    refused(
        await agent.ask(
            "POST", "/token", b"\xff=\xfe", {"content-type": "application/x-www-form-urlencoded"}
        ),
        "invalid_request",
    )


async def test_a_grant_type_that_does_not_exist_here_is_named_as_such() -> None:
    agent, client = await ready()
    for kind in ("password", "implicit", "urn:ietf:params:oauth:grant-type:device_code", ""):
        refused(await agent.token(client, grant_type=kind), "unsupported_grant_type")
    refused(await agent.token(client, grant_type="authorization_code"), "invalid_request")
    refused(await agent.token(client, grant_type="refresh_token"), "invalid_request")


async def test_made_up_tokens_are_refused() -> None:
    agent, client = await ready()
    for token in ("x", ".", "a.b", "\x00", "x" * 5000):
        refused(await agent.refresh(client, token), "invalid_grant")
        refused(await agent.redeem(client, token), "invalid_grant")
        assert await agent.who(token) is None


async def test_a_flood_of_registrations_forgets_those_first_that_nobody_uses() -> None:
    agent = Agent(provider(storage=SqliteStorage(":memory:", rows=10)))
    used, unused = (await agent.register())["client_id"], (await agent.register())["client_id"]
    tokens = await agent.tokens(used)
    for _ in range(50):
        last = (await agent.register())["client_id"]
    assert (await agent.refresh(used, tokens["refresh_token"])).status == 200
    assert (await agent.get(agent.wish(last))).status == 200
    is_error_page(await agent.get(agent.wish(unused)))


async def test_a_token_in_the_url_is_refused() -> None:
    agent, client = await ready()
    tokens = await agent.tokens(client)
    request = HttpRequest(path="/mcp", url=f"{URL}?access_token={tokens['access_token']}")
    answer = await agent.provider.admit(request, agent.site)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 400
