"""The guard by itself: what it says of tokens, what it keeps of them, and what it costs."""

import asyncio
import time
from functools import wraps
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.auth import Bearer, TokenRefused, static_tokens
from dovetail.auth.server.guards import MAX_CACHED_TOKENS, expand_scopes
from dovetail.auth.server.verifiers import TokenCache, scopes_of_claim, token_digest
from dovetail.auth.wire import read_requirements
from dovetail.errors import ConfigError, ConnectFailed
from dovetail.ports import HttpRequest, HttpResponse, Principal, PublicUrl
from dovetail.sealing import key_ring


async def no_fetch(request: HttpRequest) -> HttpResponse:
    raise AssertionError("nothing is fetched here")


RING = key_ring(["a key of sixteen characters"])
SITE = PublicUrl("https://mcp.example/mcp", "https://mcp.example", RING, no_fetch)
ADA = Principal("ada")
OTHER = PublicUrl("https://mcp.example/ws", "https://mcp.example", RING, no_fetch)


def asks(token: str = "token", **headers: str) -> HttpRequest:
    return HttpRequest(headers={"authorization": f"Bearer {token}", **headers}, url=SITE.url)


class Counting:
    """A verifier that counts how often it is asked."""

    def __init__(
        self, keeps: float, who: Principal | None = ADA, issuer: str | None = None
    ) -> None:
        self.keeps, self.who, self.issuer, self.asked = keeps, who, issuer, 0

    async def __call__(self, token: str, site: PublicUrl) -> Principal | None:
        self.asked += 1
        return self.who


async def test_a_verifier_is_asked_once_while_its_word_holds() -> None:
    verifier = Counting(60)
    guard = Bearer(verifier)
    for _ in range(3):
        assert await guard.admit(asks(), SITE) == Principal("ada")
    assert verifier.asked == 1


async def test_a_plain_function_is_asked_each_time() -> None:
    asked: list[str] = []

    async def verify(token: str, site: PublicUrl) -> Principal | None:
        asked.append(token)
        return Principal("ada")

    guard = Bearer(verify)
    for _ in range(3):
        await guard.admit(asks(), SITE)
    assert len(asked) == 3


async def test_what_is_kept_ends_with_the_token() -> None:
    verifier = Counting(float("inf"), Principal("ada", expires=time.time() + 0.1))
    guard = Bearer(verifier)
    assert isinstance(await guard.admit(asks(), SITE), Principal)
    while not isinstance(answer := await guard.admit(asks(), SITE), HttpResponse):
        pass
    assert read_requirements(answer).error == "invalid_token"


async def test_what_is_kept_for_one_place_does_not_hold_for_another() -> None:
    verifier = Counting(60)
    guard = Bearer(verifier)
    await guard.admit(asks(), SITE)
    await guard.admit(asks(), OTHER)
    assert verifier.asked == 2


async def test_a_refusal_is_not_kept() -> None:
    verifier = Counting(60, None)
    guard = Bearer(verifier)
    assert isinstance(await guard.admit(asks(), SITE), HttpResponse)
    verifier.who = Principal("ada")
    assert isinstance(await guard.admit(asks(), SITE), Principal)


async def test_no_more_is_kept_than_there_is_room_for() -> None:
    guard = Bearer(Counting(60))
    for number in range(MAX_CACHED_TOKENS + 10):
        await guard.admit(asks(f"token{number}"), SITE)
    assert len(guard._cache._rows) == MAX_CACHED_TOKENS


def test_what_was_used_last_is_kept_longest() -> None:
    kept = TokenCache(2)
    until = time.time() + 60
    kept.put("a", 1, until, 60)
    kept.put("b", 2, until, 60)
    assert kept.get("a") == 1
    kept.put("c", 3, until, 60)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (1, None, 3)


async def test_a_token_that_was_verified_costs_a_few_microseconds() -> None:
    guard, request = Bearer(Counting(60), scopes=()), asks("x" * 800)
    await guard.admit(request, SITE)
    best = float("inf")
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(100):
            await guard.admit(request, SITE)
        best = min(best, (time.perf_counter() - begun) / 100)
    assert best < 50e-6  # 5 on a machine of its own


async def test_each_verifier_sees_only_the_tokens_of_its_issuer() -> None:
    from dovetail.auth import jose

    one, two, any_of_them = (
        Counting(0, None, "https://one.example"),
        Counting(0, None, "https://two.example"),
        Counting(0, None),
    )
    guard = Bearer(one, two, any_of_them)
    token = jose.sign(
        {"alg": "ES256"}, {"iss": "https://two.example"}, jose.load_key(jose.generate_key())
    )
    await guard.admit(asks(token), SITE)
    await guard.admit(asks("opaque"), SITE)
    assert (one.asked, two.asked, any_of_them.asked) == (0, 1, 2)


async def test_a_verifier_that_refuses_leaves_the_word_to_the_others() -> None:
    async def refuses(token: str, site: PublicUrl) -> Principal | None:
        raise TokenRefused("it is too blue")

    answer = await Bearer(refuses).admit(asks(), SITE)
    assert isinstance(answer, HttpResponse) and "too blue" in read_requirements(answer).description
    assert isinstance(
        await Bearer(refuses, static_tokens({"token": "ada"})).admit(asks(), SITE), Principal
    )


async def test_a_reason_with_quotes_and_newlines_stays_in_its_header() -> None:
    async def refuses(token: str, site: PublicUrl) -> Principal | None:
        raise TokenRefused('bad", scope="admin\r\nSet-Cookie: a=b')

    answer = await Bearer(refuses).admit(asks(), SITE)
    assert isinstance(answer, HttpResponse)
    assert (
        "\r" not in answer.headers["www-authenticate"]
        and "\n" not in answer.headers["www-authenticate"]
    )
    assert read_requirements(answer).scopes == ()


async def test_who_cannot_be_asked_is_no_reason_to_let_anybody_in() -> None:
    async def fails(token: str, site: PublicUrl) -> Principal | None:
        raise ConnectFailed("https://issuer.example: connection refused")

    answer = await Bearer(fails).admit(asks(), SITE)
    assert isinstance(answer, HttpResponse) and answer.status == 503
    assert b"issuer.example" not in answer.body


async def test_one_who_cannot_be_asked_leaves_the_word_to_the_others() -> None:
    async def fails(token: str, site: PublicUrl) -> Principal | None:
        raise ConnectFailed("https://issuer.example: connection refused")

    guard = Bearer(fails, static_tokens({"token": "ada"}))
    assert isinstance(await guard.admit(asks(), SITE), Principal)
    answer = await guard.admit(asks("another"), SITE)
    assert isinstance(answer, HttpResponse) and answer.status == 503


async def test_a_resource_by_another_name_is_what_tokens_are_for() -> None:
    seen: list[str] = []

    async def verify(token: str, site: PublicUrl) -> Principal | None:
        seen.append(site.url)
        return Principal("ada")

    guard = Bearer(
        verify, resource="https://api.example", authorization_servers=["https://issuer.example"]
    )
    await guard.admit(asks(), SITE)
    assert (
        seen == ["https://api.example"] and guard.metadata(SITE).resource == "https://api.example"
    )


@pytest.mark.requirement("authorization-no-offline-access")
async def test_offline_access_is_never_asked_for() -> None:
    guard = Bearer(
        static_tokens({"t": "ada"}),
        scopes=["read", "offline_access"],
        authorization_servers=["https://i.example"],
    )
    answer = await guard.admit(HttpRequest(url=SITE.url), SITE)
    assert isinstance(answer, HttpResponse) and read_requirements(answer).scopes == ("read",)
    assert guard.metadata(SITE).scopes_supported == ["read"]


def test_the_authorization_servers_may_depend_on_the_place() -> None:
    guard = Bearer(static_tokens({"t": "ada"}), authorization_servers=lambda site: [site.base])
    assert guard.metadata(SITE).authorization_servers == ["https://mcp.example"]


# tokens that are known beforehand


async def test_static_tokens_stand_for_whom_they_say() -> None:
    verify = static_tokens(
        {"a": "ada", "b": {"id": "bob", "scopes": ["read"]}, "c": Principal("cleo")}
    )
    found = [await verify(token, SITE) for token in ("a", "b", "c", "d", "")]
    assert found == [
        Principal("ada"),
        Principal("bob", scopes=("read",)),
        Principal("cleo"),
        None,
        None,
    ]


@pytest.mark.parametrize(
    "table", [{}, {"": "ada"}, {"secret-token": 7}, {"secret-token": {"scopes": []}}]
)
def test_a_table_that_makes_no_sense_is_refused_and_not_shown(table: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        static_tokens(table)
    assert "secret-token" not in str(refusal.value)


@pytest.mark.requirement("authorization-token-storage")
def test_nothing_that_is_kept_holds_a_token() -> None:
    assert b"secret" not in token_digest("secret") and token_digest("secret") == token_digest(
        "secret"
    ) != token_digest("secrets")


# scopes


def test_scopes_are_read_as_words_or_one_by_one() -> None:
    assert scopes_of_claim("a b  a") == ("a", "b")
    assert scopes_of_claim(["a", 7, "b"]) == ("a", "b")
    assert scopes_of_claim(None) == scopes_of_claim({"a": 1}) == ()


def test_implied_scopes_are_found_all_the_way_and_in_circles() -> None:
    assert expand_scopes(["a"], {"a": ["b"], "b": ["c", "a"]}) == ("a", "b", "c")
    assert expand_scopes(["a"], None) == ("a",)
    assert len(expand_scopes(["a"], lambda scope: [scope + "x"])) <= 1001


# configuration


def test_a_guard_without_verifiers_is_refused() -> None:
    with pytest.raises(ConfigError):
        Bearer()


async def test_a_token_is_verified_again_for_a_server_that_does_not_know_its_url() -> None:
    verifier = Counting(60)
    guard = Bearer(verifier)
    for configured in (True, False):
        here = replace(SITE, is_configured=configured)
        assert guard.admit_now(asks(), here) is None
        assert await guard.admit(asks(), here) == ADA
        assert guard.admit_now(asks(), here) == ADA
    assert verifier.asked == 2


async def test_a_result_from_before_the_cache_was_cleared_is_not_remembered() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    class Slow(Counting):
        async def __call__(self, token: str, site: PublicUrl) -> Principal | None:
            asked.set()
            await answered.wait()
            return ADA

    guard = Bearer(Slow(60))
    admitting = asyncio.create_task(guard.admit(asks(), SITE))
    await asked.wait()
    guard._cache.clear()
    answered.set()
    assert await admitting == ADA
    assert guard.admit_now(asks(), SITE) is None


async def test_a_wrapper_of_a_verifier_is_asked_each_time() -> None:
    inner, asked = static_tokens({"token": ADA}), 0

    @wraps(inner)
    async def verify(token: str, public_url: PublicUrl) -> Principal | None:
        nonlocal asked
        asked += 1
        return await inner(token, public_url)

    guard = Bearer(verify)
    for _ in range(2):
        assert await guard.admit(asks(), SITE) == ADA
    assert asked == 2
