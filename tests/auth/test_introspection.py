"""Tokens that only their issuer can read: asking it, and not believing everything."""

import asyncio
import time
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from dovetail import Context, Server
from dovetail.auth import Bearer, TokenRefused, introspection
from dovetail.auth.server.verifiers import MAX_CONCURRENT_REQUESTS
from dovetail.errors import ConfigError, ConnectFailed
from dovetail.ports import HttpRequest, HttpResponse

from ..transports.http.raw import hosted
from .issuing import Issuer, issuing
from .test_jwt import HERE, SITE


def asking(at: Issuer, **options: Any) -> Any:
    return introspection(
        f"{at.url}/introspect", client_id="mcp server", client_secret="s3cr&t", **options
    )


async def test_a_token_that_its_issuer_vouches_for_is_taken() -> None:
    async with issuing() as issuer:
        issuer.known["opaque"] = {"active": True, **issuer.claims(HERE, scope="read write")}
        who = await asking(issuer)("opaque", SITE)
        assert who is not None
        assert (who.id, who.client, who.scopes) == ("ada", "app", ("read", "write"))
        said = b64encode(b"mcp%20server:s3cr%26t").decode()
        assert issuer.credentials == [f"Basic {said}"]


async def test_a_token_that_its_issuer_does_not_know_is_refused_and_not_asked_about_again() -> None:
    async with issuing() as issuer:
        verify = asking(issuer)
        for _ in range(5):
            assert await verify("opaque", SITE) is None
        assert issuer.asked == ["/introspect"]


@pytest.mark.parametrize("active", [False, "true", 1, None])
async def test_only_a_plain_yes_is_a_yes(active: Any) -> None:
    async with issuing() as issuer:
        issuer.known["opaque"] = {**issuer.claims(HERE), "active": active}
        assert await asking(issuer)("opaque", SITE) is None


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"aud": "https://other.example"}, "another server"),
        ({"aud": None}, "another server"),
        ({"exp": int(time.time()) - 1000}, "expired"),
        ({"exp": "soon"}, "is missing or invalid"),
        ({"nbf": int(time.time()) + 1000}, "not valid yet"),
        ({"nbf": 10**400}, "not valid yet"),
        ({"exp": -(10**400)}, "expired"),
        ({"sub": None, "client_id": None}, "name the token.s owner"),
        ({"sub": 7}, "name the token.s owner"),
        ({"iss": "https://evil.example"}, "another issuer"),
    ],
)
async def test_what_it_says_of_the_token_is_judged(wrong: dict[str, Any], complaint: str) -> None:
    async with issuing() as issuer:
        said = {"active": True, **issuer.claims(HERE), **wrong}
        issuer.known["opaque"] = {name: value for name, value in said.items() if value is not None}
        with pytest.raises(TokenRefused, match=complaint):
            await asking(issuer, issuer=issuer.url)("opaque", SITE)


async def test_a_token_that_never_expires_may_say_so_in_as_many_digits_as_it_likes() -> None:
    async with issuing() as issuer:
        issuer.known["opaque"] = {"active": True, **issuer.claims(HERE), "exp": 10**400}
        assert (await asking(issuer)("opaque", SITE)).expires > time.time() + 10**9


async def test_an_issuer_that_says_nothing_of_audiences_may_be_trusted_by_name() -> None:
    async with issuing() as issuer:
        claims = issuer.claims(None, exp=None)
        issuer.known["opaque"] = {"active": True, **claims}
        issuer.known["other"] = {"active": True, **claims, "aud": "https://other.example"}
        verify = asking(issuer, check=False)
        assert (await verify("opaque", SITE)).expires is None
        with pytest.raises(TokenRefused):
            await verify("other", SITE)


async def test_an_endpoint_that_fails_is_no_fault_of_the_token() -> None:
    async with issuing() as issuer:
        issuer.down = True
        with pytest.raises(ConnectFailed) as failure:
            await asking(issuer)("opaque", SITE)
        assert "opaque" not in str(failure.value) and "s3cr" not in str(failure.value)


async def test_tokens_that_are_made_up_keep_only_so_many_questions_under_way() -> None:
    go, asked = asyncio.Event(), 0

    async def slow(request: HttpRequest) -> HttpResponse:
        nonlocal asked
        asked += 1
        await go.wait()
        return HttpResponse(body=b'{"active": false}')

    verify = introspection("https://issuer.example/introspect", client_id="a", client_secret="b")
    here = msgspec.structs.replace(SITE, fetch_trusted=slow)
    flood = [asyncio.create_task(verify(f"made up {number}", here)) for number in range(200)]
    await asyncio.sleep(0)
    with pytest.raises(ConnectFailed, match="in progress"):
        await flood[-1]
    go.set()
    await asyncio.gather(*flood, return_exceptions=True)
    assert asked == MAX_CONCURRENT_REQUESTS
    assert await verify("another", here) is None


async def test_its_word_is_kept_for_a_moment_and_then_asked_for_again() -> None:
    async with issuing() as issuer:
        guard = Bearer(asking(issuer, keeps=2.0))
        server = Server("asking", auth=guard)

        @server.tool
        async def whoami(ctx: Context) -> str:
            return ctx.user.id if ctx.user else ""

        async with hosted(server) as site:
            issuer.known["opaque"] = {
                "active": True,
                **issuer.claims(f"http://127.0.0.1:{site.port}/mcp"),
            }
            bearer = {"Authorization": "Bearer opaque"}
            for _ in range(3):
                assert (await site.call("whoami", bearer)).status == 200
            assert len(issuer.asked) == 1
            issuer.known.clear()
            while (await site.call("whoami", bearer)).status == 200:
                await asyncio.sleep(0.05)
            assert len(issuer.asked) == 2


def test_tokens_are_not_shown_to_plain_http() -> None:
    with pytest.raises(ConfigError, match="https"):
        introspection("http://issuer.example/introspect", client_id="a", client_secret="b")
