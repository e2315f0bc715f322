"""What is made of an access token, whoever looks at it: a `Principal`, or a refusal.

A verifier is any `async (token, site) -> Principal | None`. It may say more by attributes:
`issuer`, whose tokens it knows (the others are then not shown to it), and `keeps`, for how many
seconds its word holds (without, it is asked each time). A token is never compared or kept as it is,
only as a digest under a key that this process made up: neither time nor memory tells anything of
it.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

from ...errors import ConfigError, ConnectFailed
from ...ports import HttpRequest, Principal, Site
from .. import jose
from ..documents import parse_scopes
from ..urls import audience_of, is_confidential

Verifier: TypeAlias = Callable[[str, Site], Awaitable[Principal | None]]
FAR_FUTURE = 1e15
"""A time that is later than any. What a token says may have a thousand digits, which no float has
room for."""
_KEY = token_bytes(32)


class TokenRefused(Exception):
    """Why a token is not taken, in words that its bearer may hear."""


def token_digest(token: str) -> bytes:
    """What a token is known by in this process."""
    return blake2b(token.encode("utf-8", "surrogatepass"), digest_size=16, key=_KEY).digest()


class TokenCache:
    """What tokens came to, for as long as that holds; those not used for longest go first.

    When a token expires is a matter of the calendar. How long a word holds is not: a clock that is
    put back must not keep alive what was revoked.
    """

    __slots__ = ("_most", "_rows")

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: OrderedDict[Any, tuple[Any, float, float]] = OrderedDict()

    def get(self, key: Any) -> Any:
        """What is kept of a token; None for nothing, or nothing that still holds."""
        row = self._rows.get(key)
        if row is None:
            return None
        if row[1] <= time.time() or row[2] <= time.monotonic():
            self._rows.pop(key, None)
            return None
        try:
            self._rows.move_to_end(key)
        except KeyError:
            pass  # another thread, with a loop of its own, has just made room
        return row[0]

    def put(self, key: Any, value: Any, until: float, seconds: float) -> None:
        """Keep this until then, and for so many seconds at most."""
        self._rows[key] = value, until, time.monotonic() + seconds
        if len(self._rows) > self._most:
            self._rows.popitem(last=False)


def to_principal(given: Any, where: str) -> Principal:
    """A principal as a user writes one down: a Principal, its fields, or just its name."""
    if isinstance(given, Mapping) and isinstance(given.get("scopes"), str):
        given = {**given, "scopes": parse_scopes(given["scopes"])}
    try:
        return Principal(given) if isinstance(given, str) else msgspec.convert(given, Principal)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: give a Principal, its fields or a name: {error}") from None


def index_principals(given: Mapping[str, Any], where: str) -> dict[bytes, Principal]:
    """Who is known by which secret."""
    if (
        not isinstance(given, Mapping)
        or not given
        or not all(isinstance(secret, str) and secret for secret in given)
    ):
        raise ConfigError(
            f"{where}: give a table of tokens and who they stand for; no token may be empty"
        )
    return {
        token_digest(secret): to_principal(who, f"{where}, entry {place}")
        for place, (secret, who) in enumerate(given.items(), 1)
    }


def static_tokens(tokens: Mapping[str, Principal | Mapping[str, Any] | str]) -> Verifier:
    """Tokens that are known beforehand, and who they stand for: for tests, and for the scripts of a
    trusted few."""
    known = index_principals(tokens, "static_tokens")

    async def verify(token: str, site: Site) -> Principal | None:
        return known.get(token_digest(token))

    return verify


def scopes_of_claim(given: Any) -> tuple[str, ...]:
    """The scopes that a claim lists: separated by spaces (RFC 9068, 2.2.3), or one by one."""
    listed = (
        given.split(" ") if isinstance(given, str) else given if isinstance(given, list) else ()
    )
    return tuple(dict.fromkeys(scope for scope in listed if isinstance(scope, str) and scope))


def check_times(claims: Mapping[str, Any], skew: float, *, exp: bool = True) -> None:
    """TokenRefused where a token is not good now. Without `exp`, it need not say until when it
    is."""
    now = time.time()
    until, since, made = (claims.get(name) for name in ("exp", "nbf", "iat"))
    if not isinstance(until, int | float) and (exp or until is not None):
        raise TokenRefused("it does not say until when it is good (exp)")
    if (
        isinstance(until, int | float) and until <= now - skew
    ):  # compared as it is: it may have a thousand digits
        raise TokenRefused("it has expired")
    for when in (since, made):
        if when is not None and (not isinstance(when, int | float) or when > now + skew):
            raise TokenRefused("it is not good yet; look at the clocks")


def check_audience(claimed: Any, named: tuple[str, ...], site: Site) -> None:
    """TokenRefused for a token that is for somebody else: RFC 8707, 2, and RFC 9068, 4."""
    listed = [claimed] if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
    if named:
        good = any(one in named for one in listed)
    elif not site.sure:
        raise TokenRefused(
            "this server does not know its own URL; it has to say public_url=, or audience="
        )
    else:
        good = any(
            isinstance(one, str) and audience_of(one) == audience_of(site.url) != ""
            for one in listed
        )
    if not good:
        raise TokenRefused("it is for another server (aud)")


# --- merged from introspection_verifier.py (integrate, then remove this comment)
# Access tokens that only their issuer can read: it is asked about each of them (RFC 7662), and its
# word kept for a moment.
#
# How long is a trade: as long as a token is kept, it goes on after it was revoked. A token that is
# not good is remembered just as long, so that whoever repeats it does not make us repeat the
# question; and whoever makes up ever new ones keeps only so many questions under way.

MAX_REMEMBERED_REFUSALS: Final = 1_000
"""Tokens that are remembered as not good."""
MAX_CONCURRENT_REQUESTS: Final = 64
"""Tokens that an issuer is asked about at once."""


def introspection(
    url: str,
    *,
    client_id: str,
    client_secret: str,
    issuer: str | None = None,
    audience: str | None = None,
    check: bool = True,
    keeps: float = 30.0,
    skew: float = 60.0,
) -> "IntrospectionVerifier":
    """Tokens that the endpoint at this URL vouches for, asked with these credentials. `audience` is
    what they are for, by default this server's URL; `check=False` takes tokens whose issuer says
    nothing of that. `keeps` is in seconds."""
    if not is_confidential(url):
        raise ConfigError(
            f"introspection({url!r}): tokens are shown to https only (or http on this machine)"
        )
    credentials = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"  # RFC 6749, 2.3.1
    return IntrospectionVerifier(url, credentials, issuer, audience, check, keeps, skew)


class IntrospectionVerifier:
    """Asks one endpoint."""

    def __init__(
        self,
        url: str,
        credentials: str,
        issuer: str | None,
        audience: str | None,
        check: bool,
        keeps: float,
        skew: float,
    ) -> None:
        from base64 import b64encode

        self.issuer, self.keeps = issuer, keeps
        self._url, self._check, self._skew = url, check, skew
        self._audience = () if audience is None else (audience,)
        self._headers = {
            "authorization": f"Basic {b64encode(credentials.encode()).decode()}",
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
        }
        self._refused, self._asking = TokenCache(MAX_REMEMBERED_REFUSALS), 0

    async def __call__(self, token: str, site: Site) -> Principal | None:
        """Who a token stands for; None or TokenRefused where it is not good here."""
        key = token_digest(token)
        if self._refused.get(key):
            return None
        said = await self._ask(token, site)
        if said.get("active") is not True:
            self._refused.put(key, True, FAR_FUTURE, self.keeps)
            return None
        if self.issuer is not None and said.get("iss", self.issuer) != self.issuer:
            raise TokenRefused("it is of another issuer")
        check_times(said, self._skew, exp=False)
        if self._check or "aud" in said:
            check_audience(said.get("aud"), self._audience, site)
        client = said.get("client_id")
        user = said.get("sub", said.get("username", client))
        if not isinstance(user, str) or not user:
            raise TokenRefused("its issuer does not say whom it stands for (sub)")
        until = said.get("exp")
        scopes, client = (
            scopes_of_claim(said.get("scope")),
            client if isinstance(client, str) else None,
        )
        return Principal(
            user,
            client,
            scopes,
            said,
            None if until is None else float(min(until, FAR_FUTURE)) + self._skew,
        )

    async def _ask(self, token: str, site: Site) -> dict[str, Any]:
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        request = HttpRequest(method="POST", url=self._url, headers=self._headers, body=body)
        if self._asking >= MAX_CONCURRENT_REQUESTS:
            raise ConnectFailed(
                f"{self._url}: it is being asked about {MAX_CONCURRENT_REQUESTS} other tokens"
            )
        self._asking += 1
        try:
            answer = await (site.reach or site.fetch)(request)
        finally:
            self._asking -= 1
        if answer.status != 200:
            raise ConnectFailed(
                f"{self._url}: HTTP {answer.status}; are the client_id and client_secret right?"
            )
        try:
            return jose.decode_payload(answer.body)
        except jose.InvalidJwt:
            raise ConnectFailed(f"{self._url}: that is no JSON document") from None
