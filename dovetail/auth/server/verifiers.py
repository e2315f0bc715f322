"""Verifiers: they turn an access token into a `Principal`, or refuse it.

A verifier is any `async (token, public_url) -> Principal | None`. Two attributes are optional:
`issuer`, whose tokens it knows (it is then not asked about others), and `keeps`, for how many
seconds its answer may be cached (without it, the verifier is asked each time). Tokens are never
compared or stored as they are, only as a digest under a random key of this process, so timing and
memory do not reveal them.

    static_tokens   tokens that are known in advance
    introspection   tokens that only their issuer can read, which is asked about each (RFC 7662)
    jwt             tokens that their issuer has signed (`jwt.py`)

How long an introspection is cached is a trade-off: for that long a token works after it was
revoked. A refused token is remembered for the same time, so that repeating it causes no further
request. For invented tokens, the number of concurrent requests is bounded.
"""

import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

from ...aio import LruDict
from ...errors import ConfigError, ConnectFailed
from ...ports import HttpRequest, HttpResponse, Principal, PublicUrl
from ..documents import decode_object, parse_scopes
from ..urls import audience_of, is_confidential

Verifier: TypeAlias = Callable[[str, PublicUrl], Awaitable[Principal | None]]
"""Takes an access token and the server it was sent to. Returns who it belongs to, or None if it is
not valid. May raise TokenRefused with a reason for the caller."""
FAR_FUTURE: Final = 1e15
"""Later than any time. A claim may have a thousand digits, more than a float can hold."""
MAX_REMEMBERED_REFUSALS: Final = 1_000
MAX_CONCURRENT_REQUESTS: Final = 64
"""Introspection requests at the same time."""
_KEY: Final = token_bytes(32)


class TokenRefused(Exception):
    """Why an access token is not accepted, as the end of a sentence. The caller may see it."""


def token_digest(token: str) -> bytes:
    """Return the digest that identifies a token within this process."""
    return blake2b(token.encode("utf-8", "surrogatepass"), digest_size=16, key=_KEY).digest()


class TokenCache:
    """The results of verifying tokens, until they expire. The least recently used are dropped.

    A token expires at a time of the calendar. How long a verifier's answer may be cached is
    measured by a monotonic clock: setting the clock back must not revive a revoked token.
    """

    def __init__(self, max_entries: int) -> None:
        self._rows: LruDict[Any, tuple[Any, float, float]] = LruDict(max_entries)

    def get(self, key: Any) -> Any:
        """Return the cached result; None if there is none that is still valid."""
        row = self._rows.get(key)
        if row is None:
            return None
        if row[1] <= time.time() or row[2] <= time.monotonic():
            self._rows.pop(key)
            return None
        return row[0]

    def put(self, key: Any, value: Any, expires: float, seconds: float) -> None:
        """Cache a result until a time of the calendar, and for this many seconds at most."""
        self._rows[key] = value, expires, time.monotonic() + seconds


def static_tokens(tokens: Mapping[str, Principal | Mapping[str, Any] | str]) -> Verifier:
    """Accept tokens that are known in advance: for tests, and for a few trusted scripts.

    Args:
        tokens: Who each token belongs to: a `Principal`, a dict of its fields, or just its id.

    Returns:
        A verifier for `Bearer`.

    Raises:
        ConfigError: The table is empty, or an entry is malformed.
    """
    known = index_principals(tokens, "static_tokens")

    async def verify(token: str, public_url: PublicUrl) -> Principal | None:
        return known.get(token_digest(token))

    return verify


def index_principals(given: Mapping[str, Any], where: str) -> dict[bytes, Principal]:
    """Return the principals of a table of secrets, by the digest of each secret."""
    if (
        not isinstance(given, Mapping)
        or not given
        or not all(isinstance(secret, str) and secret for secret in given)
    ):
        raise ConfigError(
            f"{where}: pass a table of tokens and who they belong to. No token may be empty."
        )
    return {
        token_digest(secret): _to_principal(who, f"{where}, entry {number}")
        for number, (secret, who) in enumerate(given.items(), 1)
    }


def _to_principal(given: Any, where: str) -> Principal:
    if isinstance(given, Mapping) and isinstance(given.get("scopes"), str):
        given = {**given, "scopes": parse_scopes(given["scopes"])}
    try:
        return Principal(given) if isinstance(given, str) else msgspec.convert(given, Principal)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{where}: pass a Principal, a dict of its fields, or its id: {error}"
        ) from None


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
    """Accept the tokens that an introspection endpoint (RFC 7662) says are active.

    Args:
        url: The introspection endpoint. Must be https, or http on localhost.
        client_id: The client id of this server at the endpoint.
        client_secret: The secret that goes with it.
        issuer: Whose tokens these are. Tokens of other issuers are refused, and clients are told
            to get their tokens there (default: any issuer, and clients are told nothing).
        audience: What a token must be for (default: the URL of this server).
        check: Whether the audience is required. False accepts tokens without an audience
            (default: True).
        keeps: For how many seconds an answer is cached (default: 30). A revoked token works for
            that long.
        skew: How many seconds the clocks may differ (default: 60).

    Returns:
        A verifier for `Bearer`.

    Raises:
        ConfigError: The URL is not https (or http on localhost).
    """
    if not is_confidential(url):
        raise ConfigError(
            f"introspection({url!r}): tokens are only sent over https, or to localhost. Use an "
            "https URL."
        )
    credentials = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"  # RFC 6749, 2.3.1
    return IntrospectionVerifier(url, credentials, issuer, audience, check, keeps, skew)


class IntrospectionVerifier:
    """Asks one introspection endpoint about tokens."""

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
        self.issuer, self.keeps = issuer, keeps
        self._url, self._check, self._skew = url, check, skew
        self._audience = () if audience is None else (audience,)
        self._headers = {
            "authorization": f"Basic {b64encode(credentials.encode()).decode()}",
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
        }
        self._refused, self._requests = TokenCache(MAX_REMEMBERED_REFUSALS), 0

    async def __call__(self, token: str, public_url: PublicUrl) -> Principal | None:
        """Return who a token belongs to; None or TokenRefused if it is not valid here."""
        key = token_digest(token)
        if self._refused.get(key):
            return None
        claims = await self._introspect(token, public_url)
        if claims.get("active") is not True:
            self._refused.put(key, True, FAR_FUTURE, self.keeps)
            return None
        if self.issuer is not None and claims.get("iss", self.issuer) != self.issuer:
            raise TokenRefused("it is from another issuer")
        check_times(claims, self._skew, require_exp=False)
        if self._check or "aud" in claims:
            check_audience(claims.get("aud"), self._audience, public_url)
        client = claims.get("client_id")
        user = claims.get("sub", claims.get("username", client))
        if not isinstance(user, str) or not user:
            raise TokenRefused("its issuer does not say who it belongs to (sub)")
        expires = claims.get("exp")
        return Principal(
            user,
            client if isinstance(client, str) else None,
            scopes_of_claim(claims.get("scope")),
            claims,
            None if expires is None else float(min(expires, FAR_FUTURE)) + self._skew,
        )

    async def _introspect(self, token: str, public_url: PublicUrl) -> dict[str, Any]:
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        if self._requests >= MAX_CONCURRENT_REQUESTS:
            raise ConnectFailed(
                f"{self._url}: {MAX_CONCURRENT_REQUESTS} introspection requests are in progress"
            )
        self._requests += 1
        try:
            answer = await fetch_trusted(
                HttpRequest(method="POST", url=self._url, headers=self._headers, body=body),
                public_url,
            )
        finally:
            self._requests -= 1
        if answer.status in (401, 403):
            raise ConnectFailed(
                f"{self._url}: HTTP {answer.status}. Check client_id and client_secret."
            )
        return read_object(self._url, answer)


async def fetch_trusted(request: HttpRequest, public_url: PublicUrl) -> HttpResponse:
    """Send a request to a URL from the configuration, which may be on a private network."""
    return await (public_url.fetch_trusted or public_url.fetch)(request)


def read_object(url: str, answer: HttpResponse) -> dict[str, Any]:
    """Return the JSON object of a response; ConnectFailed if it is anything else."""
    if answer.status != 200:
        raise ConnectFailed(f"{url}: HTTP {answer.status}")
    found = decode_object(answer.body)
    if found is None:
        raise ConnectFailed(f"{url}: the response is not a JSON object")
    return found


def scopes_of_claim(claim: Any) -> tuple[str, ...]:
    """Return the scopes of a claim: a string with spaces (RFC 9068, 2.2.3), or a list."""
    listed = claim.split(" ") if isinstance(claim, str) else claim
    if not isinstance(listed, list):
        return ()
    return tuple(dict.fromkeys(scope for scope in listed if isinstance(scope, str) and scope))


def check_times(claims: Mapping[str, Any], skew: float, *, require_exp: bool = True) -> None:
    """Raise TokenRefused if a token has expired or is not valid yet."""
    now = time.time()
    expires = claims.get("exp")
    if not isinstance(expires, int | float) and (require_exp or expires is not None):
        raise TokenRefused("it does not say when it expires (exp)")
    # Compared as it is, not as a float: it may have a thousand digits.
    if isinstance(expires, int | float) and expires <= now - skew:
        raise TokenRefused("it has expired")
    for start in (claims.get("nbf"), claims.get("iat")):
        if start is not None and (not isinstance(start, int | float) or start > now + skew):
            raise TokenRefused("it is not valid yet; check the clocks of both servers")


def check_audience(claim: Any, accepted: tuple[str, ...], public_url: PublicUrl) -> None:
    """Raise TokenRefused for a token that is for another server: RFC 8707, 2, and RFC 9068, 4."""
    audiences = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
    if accepted:
        matches = any(audience in accepted for audience in audiences)
    elif not public_url.is_configured:
        raise TokenRefused(
            "this server does not know its own URL; its operator has to set public_url= or "
            "audience="
        )
    else:
        here = audience_of(public_url.url)
        matches = here != "" and any(
            isinstance(audience, str) and audience_of(audience) == here for audience in audiences
        )
    if not matches:
        raise TokenRefused("it is for another server (aud)")
