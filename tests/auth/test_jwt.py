"""Signed access tokens: what a resource server takes, and all that is made to look like it."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.auth import Bearer, TokenRefused, jose, jwt
from dovetail.auth.server.verifiers import KEYS_LIFETIME_SECONDS, JwtVerifier
from dovetail.errors import ConfigError, ConnectFailed
from dovetail.ports import HttpRequest, HttpResponse, Principal, PublicUrl
from dovetail.sealing import key_ring
from dovetail.transports.http.client.fetch import fetch

from .issuing import Issuer, issuing

HERE = "https://mcp.example/mcp"


async def reach(request: HttpRequest) -> HttpResponse:
    return await fetch(request, private=True)


SITE = PublicUrl(
    HERE,
    "https://mcp.example",
    key_ring(["a key of sixteen characters"]),
    fetch,
    fetch_trusted=reach,
)


@asynccontextmanager
async def verified(
    algorithm: str = "ES256", **options: Any
) -> AsyncIterator[tuple[Issuer, JwtVerifier]]:
    async with issuing(algorithm) as issuer:
        yield issuer, jwt(issuer.url, **options)


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "RS256", "Ed25519"])
@pytest.mark.requirement("authorization-token-validated")
async def test_a_token_of_the_issuer_for_this_server_is_taken(algorithm: str) -> None:
    async with verified(algorithm) as (issuer, verify):
        who = await verify(issuer.token(HERE, scope="read write"), SITE)
    assert (who.id, who.client, who.scopes) == ("ada", "app", ("read", "write"))
    assert who.expires is not None and who.claims["iss"] == issuer.url


async def test_scopes_and_client_are_found_where_issuers_put_them() -> None:
    async with verified() as (issuer, verify):
        who = await verify(issuer.token(HERE, scp=["a", "b", 3], client_id=None, azp="web"), SITE)
    assert (who.scopes, who.client) == (("a", "b"), "web")


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None])
async def test_what_access_tokens_call_themselves_is_tolerated(kind: str | None) -> None:
    async with verified() as (issuer, verify):
        assert (await verify(issuer.token(HERE, header={"typ": kind}), SITE)).id == "ada"


async def test_a_header_that_nobody_knows_is_ignored() -> None:
    async with verified() as (issuer, verify):
        assert (await verify(issuer.token(HERE, header={"vendor": "x" * 1000}), SITE)).id == "ada"


@pytest.mark.requirement(
    "authorization-token-validated", "authorization-audience", "authorization-no-other-tokens"
)
@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"aud": "https://other.example/mcp"}, "another server"),
        ({"aud": "https://mcp.example/mcp2"}, "another server"),
        ({"aud": "https://mcp.example/MCP"}, "another server"),
        ({"aud": ["https://other.example", 7]}, "another server"),
        ({"aud": {"https://mcp.example/mcp": 1}}, "another server"),
        ({"aud": None}, "another server"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"sub": None}, "name its owner"),
        ({"sub": ""}, "name its owner"),
        ({"sub": 7}, "name its owner"),
        ({"exp": int(time.time()) - 100}, "expired"),
        ({"exp": None}, "is missing or invalid"),
        ({"exp": "tomorrow"}, "is missing or invalid"),
        ({"nbf": int(time.time()) + 1000}, "not valid yet"),
        ({"nbf": "now"}, "not valid yet"),
        ({"nbf": 10**400}, "not valid yet"),
        ({"iat": int(time.time()) + 1000}, "not valid yet"),
        ({"header": {"typ": "dpop+jwt"}}, "not an access token"),
        ({"header": {"typ": "logout+jwt"}}, "not an access token"),
        ({"nonce": "n"}, "not an access token"),
        ({"at_hash": "h"}, "not an access token"),
        ({"header": {"kid": "another"}}, "does not publish"),
    ],
)
async def test_a_token_that_says_something_else_is_refused(
    wrong: dict[str, Any], complaint: str
) -> None:
    async with verified() as (issuer, verify):
        said = {"audience": HERE, **wrong}
        if "aud" in said:
            said["audience"] = said.pop("aud")
        with pytest.raises(TokenRefused, match=complaint):
            await verify(issuer.token(**said), SITE)


async def test_a_token_that_demands_what_we_do_not_know_is_refused() -> None:
    async with verified() as (issuer, verify):
        with pytest.raises(TokenRefused, match="extensions"):
            await verify(unsigned(issuer.token(HERE), "ES256", "AAAA", crit=["exp"]), SITE)


async def test_clocks_may_differ_by_the_skew() -> None:
    now = int(time.time())
    async with verified() as (issuer, verify):
        assert await verify(issuer.token(HERE, exp=now - 30, iat=now - 60), SITE)
        assert await verify(issuer.token(HERE, nbf=now + 30, iat=now + 30), SITE)
        assert await verify(issuer.token(HERE, exp=10**400), SITE)
        with pytest.raises(TokenRefused):
            await jwt(issuer.url, skew=0)(issuer.token(HERE, exp=now - 30), SITE)


def unsigned(token: str, algorithm: str, signature: str = "", **header: Any) -> str:
    """The same token under another head."""
    return f"{spelled({'typ': 'at+jwt', 'alg': algorithm, 'kid': 'first', **header})}.{token.split('.')[1]}.{signature}"  # noqa: E501


def spelled(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return urlsafe_b64encode(raw).decode().rstrip("=")


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
async def test_an_unsigned_token_is_refused(name: str) -> None:
    async with verified() as (issuer, verify):
        for signature in ("", issuer.token(HERE).split(".")[2]):
            with pytest.raises(TokenRefused, match="algorithm"):
                await verify(unsigned(issuer.token(HERE), name, signature), SITE)


async def test_a_public_key_is_never_taken_for_a_shared_secret() -> None:
    import hmac

    async with verified("RS256") as (issuer, verify):
        public = jose.load_key(jose.public_jwk(issuer.key))
        for secret in (public.as_pem(private=False), json.dumps(issuer.listed[0]).encode()):
            signed = unsigned(issuer.token(HERE), "HS256")[:-1]
            tag = hmac.digest(secret, signed.encode(), "sha256")
            with pytest.raises(TokenRefused, match="algorithm"):
                await verify(f"{signed}.{spelled(tag)}", SITE)


async def test_a_shared_secret_in_the_issuers_keys_is_no_key() -> None:
    async with verified() as (issuer, verify):
        issuer.listed = [{"kty": "oct", "k": "c2VjcmV0", "kid": "first"}]
        with pytest.raises(ConnectFailed, match="none of the published keys"):
            await verify(issuer.token(HERE), SITE)


async def test_a_forged_signature_is_refused() -> None:
    async with verified() as (issuer, verify):
        impostor = {**jose.generate_key(), "kid": "first"}
        with pytest.raises(TokenRefused, match="signature"):
            await verify(issuer.token(HERE, key=impostor), SITE)
        head, body, tail = issuer.token(HERE).split(".")
        other = issuer.token(HERE, sub="root").split(".")[1]
        for token in (
            f"{head}.{other}.{tail}",
            f"{head}.{body}.{tail[:-4]}AAAA",
            f"{head}.{body}.",
        ):
            with pytest.raises(TokenRefused, match="signature"):
                await verify(token, SITE)


async def test_a_key_that_the_token_brings_along_is_not_used() -> None:
    async with verified() as (issuer, verify):
        impostor = {**jose.generate_key(), "kid": "evil"}
        for header in ({"jwk": jose.public_jwk(impostor)}, {"jku": "http://127.0.0.1:9/keys"}):
            with pytest.raises(TokenRefused):
                await verify(
                    issuer.token(HERE, key=impostor, header={"kid": "evil", **header}), SITE
                )


async def test_an_algorithm_that_was_not_agreed_on_is_refused() -> None:
    async with verified("ES256", algorithms=["RS256"]) as (issuer, verify):
        with pytest.raises(TokenRefused, match="algorithm"):
            await verify(issuer.token(HERE), SITE)


async def test_a_key_for_another_use_or_algorithm_is_not_used() -> None:
    async with verified() as (issuer, verify):
        spare = jose.public_jwk({**jose.generate_key(), "kid": "spare"})
        issuer.listed = [{**issuer.listed[0], "use": "enc"}, spare]
        with pytest.raises(TokenRefused):
            await verify(issuer.token(HERE), SITE)
    async with verified() as (issuer, verify):
        issuer.listed = [{**issuer.listed[0], "alg": "ES384"}, spare]
        with pytest.raises(TokenRefused):
            await verify(issuer.token(HERE), SITE)


@pytest.mark.parametrize(
    "nonsense", ["", "x", "a.b", "a.b.c", "e30.e30.e30", "...", "é.é.é", "W10.W10.", "[" * 5000]
)
async def test_what_is_no_token_is_refused(nonsense: str) -> None:
    async with verified() as (_, verify):
        with pytest.raises(TokenRefused):
            await verify(nonsense, SITE)


async def test_an_endless_token_is_not_even_looked_at() -> None:
    async with verified() as (issuer, verify):
        with pytest.raises(TokenRefused):
            await verify(issuer.token(HERE, more="x" * jose.MAX_TOKEN_LENGTH), SITE)
        assert issuer.asked == []


# keys


async def test_keys_are_fetched_once() -> None:
    async with verified() as (issuer, verify):
        for _ in range(5):
            await verify(issuer.token(HERE), SITE)
        assert issuer.asked.count("/keys") == 1


async def test_all_who_wait_for_keys_wait_for_the_same_fetch() -> None:
    import asyncio

    async with verified() as (issuer, verify):
        await asyncio.gather(*(verify(issuer.token(HERE), SITE) for _ in range(10)))
        assert issuer.asked.count("/keys") == 1


async def test_a_new_key_is_found_and_strangers_cannot_make_us_look_for_ever() -> None:
    async with verified() as (issuer, verify):
        await verify(issuer.token(HERE), SITE)
        issuer.rotate()
        verify.keys._tried = float("-inf")  # some time has passed
        assert (await verify(issuer.token(HERE), SITE)).id == "ada"
        for number in range(20):
            with pytest.raises(TokenRefused, match="does not publish"):
                await verify(issuer.token(HERE, header={"kid": f"made up {number}"}), SITE)
        assert issuer.asked.count("/keys") == 2


async def test_keys_that_are_known_are_used_while_the_issuer_is_down() -> None:
    async with verified() as (issuer, verify):
        await verify(issuer.token(HERE), SITE)
        issuer.down = True
        verify.keys._fetched = verify.keys._tried = float("-inf")
        assert (await verify(issuer.token(HERE), SITE)).id == "ada"


async def test_a_token_of_a_key_that_was_withdrawn_is_refused_once_the_keys_are_old() -> None:
    async with issuing() as issuer:
        verify = jwt(issuer.url)
        guard = Bearer(verify)
        request = HttpRequest(url=HERE, headers={"authorization": f"Bearer {issuer.token(HERE)}"})
        verify.keys._fetched = verify.keys._tried = (
            time.monotonic() - KEYS_LIFETIME_SECONDS - 1
        )  # as if the next to fetch were due
        assert isinstance(await guard.admit(request, SITE), Principal)
        assert 0 < verify.keeps <= KEYS_LIFETIME_SECONDS
        issuer.listed = [jose.public_jwk(jose.generate_key())]
        assert isinstance(await guard.admit(request, SITE), Principal)  # kept
        with pytest.MonkeyPatch.context() as patch:
            later = time.time() + KEYS_LIFETIME_SECONDS
            patch.setattr(time, "time", lambda: later)
            verify.keys._fetched = verify.keys._tried = float("-inf")
            answer = await guard.admit(HttpRequest(url=HERE, headers=request.headers), SITE)
        assert isinstance(answer, HttpResponse) and answer.status == 401


async def test_an_issuer_out_of_reach_is_no_fault_of_the_token() -> None:
    async with verified() as (issuer, verify):
        issuer.down = True
        for _ in range(3):  # also while it is not asked again
            with pytest.raises(ConnectFailed):
                await verify(issuer.token(HERE), SITE)
        assert len(issuer.asked) <= 3


async def test_metadata_of_another_issuer_does_not_speak_for_this_one() -> None:
    async with verified() as (issuer, verify):
        issuer.metadata = {"issuer": "https://evil.example"}
        with pytest.raises(ConnectFailed, match="another issuer"):
            await verify(issuer.token(HERE), SITE)


async def test_keys_over_plain_http_are_not_fetched() -> None:
    async with verified() as (issuer, verify):
        issuer.metadata = {"jwks_uri": "http://keys.example/keys"}
        with pytest.raises(ConnectFailed, match="https"):
            await verify(issuer.token(HERE), SITE)


async def test_keys_can_be_given() -> None:
    async with issuing() as issuer:
        verify = jwt(issuer.url, keys=issuer.listed)
        assert (await verify(issuer.token(HERE), SITE)).id == "ada"
        with pytest.raises(TokenRefused):
            await verify(issuer.token(HERE, header={"kid": "other"}), SITE)
        assert issuer.asked == []


# whom it is for


async def test_one_of_several_audiences_will_do_and_a_slash_at_the_end_does_not_matter() -> None:
    async with verified() as (issuer, verify):
        assert await verify(issuer.token(["https://other.example", HERE]), SITE)
        assert await verify(issuer.token(HERE + "/"), SITE)


@pytest.mark.requirement("authorization-resource-spelling")
async def test_a_url_is_the_same_however_its_host_and_port_are_spelled() -> None:
    async with verified() as (issuer, verify):
        for spelling in (
            "HTTPS://MCP.Example/mcp",
            "https://mcp.example:443/mcp",
            "https://mcp.example:443/mcp/",
        ):
            assert await verify(issuer.token(spelling), SITE)
        for other in (
            f"{HERE}?x",
            f"{HERE}#x",
            "https://mcp.example/MCP",
            "https://mcp.example:8443/mcp",
            "",
            "mcp",
        ):
            with pytest.raises(TokenRefused, match="another server"):
                await verify(issuer.token(other), SITE)


async def test_an_audience_that_was_named_is_the_only_one() -> None:
    async with verified(audience="api://mcp") as (issuer, verify):
        assert await verify(issuer.token("api://mcp"), SITE)
        for other in (HERE, "api://mcp/"):
            with pytest.raises(TokenRefused, match="another server"):
                await verify(issuer.token(other), SITE)


async def test_a_host_of_the_callers_choice_is_no_audience() -> None:
    unsure = PublicUrl(
        HERE, "https://mcp.example", SITE.ring, fetch, fetch_trusted=reach, is_configured=False
    )
    async with verified() as (issuer, verify):
        with pytest.raises(TokenRefused, match="public_url"):
            await verify(issuer.token(HERE), unsure)


# configuration


@pytest.mark.parametrize(
    "options",
    [
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"algorithms": "ES256"},
        {"keys": []},
        {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]},
        {"jwks_uri": "http://keys.example/"},
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        jwt("https://issuer.example", **options)


def test_an_issuer_over_plain_http_is_refused() -> None:
    with pytest.raises(ConfigError, match="https"):
        jwt("http://issuer.example")
