"""Verifiers, which turn an access token into a `Principal` or refuse it.

A verifier is any `async (token, public_url) -> Principal | None`. A verifier may have two
attributes: `issuer` is the only issuer whose tokens it receives, and `keeps` is how long its result
may be cached, in seconds (default: 0). Tokens are compared and stored only as digests that are
keyed with this process's random key, so timing and memory do not reveal them.

    static_tokens   tokens that are known in advance
    introspection   opaque tokens, which are checked by their issuer (RFC 7662)
    jwt             self-contained tokens (RFC 9068), signed by their issuer

The cache time for introspection results is a trade-off, because a revoked token keeps working for
that long. A refused token is remembered for just as long, so sending it again does not cause
another request. The number of concurrent requests is limited, in case a caller sends many invented
tokens.

An issuer's keys are found through its metadata and cached. The keys are fetched again for a token
that is signed with an unknown key, but at most once every few seconds. The claims of a token
(issuer, audience, validity) are trusted only after its signature has been checked. Other
algorithms, keys for another purpose, other types of tokens and tokens for another server are
refused. The type matters because issuers use the same keys to sign ID tokens, which tell a client
who logged in.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, TypeAlias
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from ...aio import LruDict
from ...errors import ConfigError, ConnectFailed, TimedOut
from ...ports import Fetch, HttpRequest, HttpResponse, Principal, PublicUrl
from .. import jose
from ..urls import audience_of, is_confidential, server_metadata_urls
from ..wire import (
    SecretStruct,
    ServerMetadata,
    basic_authorization,
    decode_object,
    parse_scopes,
    read_document,
)

Verifier: TypeAlias = Callable[[str, PublicUrl], Awaitable[Principal | None]]
"""Returns the owner of an access token that was sent to a server, or None if the token is not
valid. May raise TokenRefused with a reason for the caller."""
FAR_FUTURE = 1e15
"""A time later than any other. It replaces a time that is too large for a float, such as a number
with a thousand digits."""
MAX_REMEMBERED_REFUSALS = 1_000
MAX_CONCURRENT_REQUESTS = 64
"""The maximum number of concurrent introspection requests."""
_KEY = token_bytes(32)


class TokenRefused(Exception):
    """Raised if an access token is not accepted.

    The message is a lower-case phrase that completes a sentence. The caller may see the reason.
    """


def token_digest(token: str) -> bytes:
    """Return the digest that identifies a token within this process."""
    return blake2b(token.encode("utf-8", "surrogatepass"), digest_size=16, key=_KEY).digest()


class TokenCache:
    """A cache of verification results. If the cache is full, the least recently used results are
    dropped.

    The expiry of a token is an absolute time. The cache time of a result is measured with a
    monotonic clock, so that setting the system clock back does not revive a revoked token.
    """

    def __init__(self, max_entries: int, now: Callable[[], float] | None = None) -> None:
        self._rows: LruDict[Any, tuple[Any, float, float]] = LruDict(max_entries)
        self._now = now
        self.generation = 0
        """How often the cache was cleared. A result from before that must not be put into it."""

    def get(self, key: Any) -> Any:
        """Return the cached result, or None if there is no valid result."""
        row = self._rows.get(key)
        if row is None:
            return None
        now = time.time() if self._now is None else self._now()
        if row[1] <= now or row[2] <= time.monotonic():
            self._rows.pop(key)
            return None
        return row[0]

    def put(self, key: Any, value: Any, expires: float, seconds: float) -> None:
        """Cache a result until an absolute time, but for no more than this many seconds."""
        self._rows[key] = value, expires, time.monotonic() + seconds

    def clear(self) -> None:
        """Forget all results."""
        self._rows.clear()
        self.generation += 1


def static_tokens(tokens: Mapping[str, Principal | Mapping[str, Any] | str]) -> Verifier:
    """Accept tokens that are known in advance, which suits tests and a few trusted scripts.

    Args:
        tokens: The owner of each token, as a `Principal`, a dict of its fields, or just an id.

    Returns:
        A verifier for `Bearer`.

    Raises:
        ConfigError: The table is empty, or an entry is malformed.
    """
    return StaticVerifier(index_principals(tokens, "static_tokens"))


class StaticVerifier(Struct, frozen=True, eq=False):
    """Verifies tokens that are known in advance."""

    known: dict[bytes, Principal]

    @property
    def keeps(self) -> float:
        """How long a result may be cached: for ever, because the table does not change."""
        return float("inf")

    async def __call__(self, token: str, public_url: PublicUrl) -> Principal | None:
        """Return the owner of a token, or None if the token is unknown."""
        return self.known.get(token_digest(token))


def index_principals(owners: Mapping[str, Any], where: str) -> dict[bytes, Principal]:
    """Return the owner of each secret, keyed by the digest of the secret."""
    if (
        not isinstance(owners, Mapping)
        or not owners
        or not all(isinstance(secret, str) and secret for secret in owners)
    ):
        raise ConfigError(
            f"{where}: pass a dict that maps each token to its owner. Tokens cannot be empty."
        )
    return {
        token_digest(secret): _to_principal(owner, f"{where}, entry {number}")
        for number, (secret, owner) in enumerate(owners.items(), 1)
    }


def _to_principal(owner: Any, where: str) -> Principal:
    if isinstance(owner, Mapping) and isinstance(owner.get("scopes"), str):
        owner = {**owner, "scopes": parse_scopes(owner["scopes"])}
    try:
        return Principal(owner) if isinstance(owner, str) else msgspec.convert(owner, Principal)
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
    """Accept tokens that an introspection endpoint (RFC 7662) reports as active.

    Args:
        url: The introspection endpoint. It must use https, or http on localhost.
        client_id: The client id that this server uses to authenticate at the endpoint.
        client_secret: The secret for `client_id`.
        issuer: The issuer of the tokens. Tokens from other issuers are refused, and clients are
            referred to this issuer (default: any issuer is accepted, and clients are not referred
            to one).
        audience: The audience that a token must have (default: the URL of this server).
        check: Whether a token must have an audience (default: True).
        keeps: How long a result is cached, in seconds (default: 30). A revoked token keeps working
            for that long.
        skew: How much the servers' clocks may differ, in seconds (default: 60).

    Returns:
        A verifier for `Bearer`.

    Raises:
        ConfigError: The URL does not use https (or http on localhost).
    """
    if not is_confidential(url):
        raise ConfigError(
            f"introspection({url!r}): tokens are sent only over https or to localhost. Use an "
            "https URL."
        )
    return IntrospectionVerifier(
        url=url,
        authorization=basic_authorization(client_id, client_secret),
        issuer=issuer,
        audience=() if audience is None else (audience,),
        check=check,
        keeps=keeps,
        skew=skew,
        refused=TokenCache(MAX_REMEMBERED_REFUSALS),
    )


class IntrospectionVerifier(SecretStruct, eq=False, kw_only=True):
    """Verifies tokens at one introspection endpoint."""

    url: str
    authorization: str
    issuer: str | None
    audience: tuple[str, ...]
    check: bool
    keeps: float
    skew: float
    refused: TokenCache
    requests: int = 0
    """The number of requests in progress."""

    async def __call__(self, token: str, public_url: PublicUrl) -> Principal | None:
        """Return the owner of a token. Returns None or raises TokenRefused if the token is not
        valid on this server."""
        key = token_digest(token)
        if self.refused.get(key):
            return None
        claims = await self._introspect(token, public_url)
        if claims.get("active") is not True:
            self.refused.put(key, True, FAR_FUTURE, self.keeps)
            return None
        if self.issuer is not None and claims.get("iss", self.issuer) != self.issuer:
            raise TokenRefused("the token is from another issuer")
        check_times(claims, time.time(), self.skew, require_exp=False)
        if self.check or "aud" in claims:
            check_audience(claims.get("aud"), self.audience, public_url)
        client = claims.get("client_id")
        user = claims.get("sub", claims.get("username", client))
        if not isinstance(user, str) or not user:
            raise TokenRefused("the issuer did not name the token's owner (sub)")
        expires = claims.get("exp")
        return Principal(
            user,
            client if isinstance(client, str) else None,
            scopes_of_claim(claims.get("scope")),
            claims,
            None if expires is None else float(min(expires, FAR_FUTURE)) + self.skew,
        )

    async def _introspect(self, token: str, public_url: PublicUrl) -> dict[str, Any]:
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        headers = {
            "authorization": self.authorization,
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
        }
        if self.requests >= MAX_CONCURRENT_REQUESTS:
            raise ConnectFailed(
                f"{self.url}: {MAX_CONCURRENT_REQUESTS} introspection requests are already in "
                "progress"
            )
        self.requests += 1
        try:
            answer = await trusted_fetch(public_url)(
                HttpRequest(url=self.url, headers=headers, body=body)
            )
        finally:
            self.requests -= 1
        if answer.status in (401, 403):
            raise ConnectFailed(
                f"{self.url}: HTTP {answer.status}. Check client_id and client_secret."
            )
        return read_object(self.url, answer)


def trusted_fetch(public_url: PublicUrl) -> Fetch:
    """Return the function that fetches configured URLs, which may be on a private network."""
    return public_url.fetch_trusted or public_url.fetch


def read_object(url: str, answer: HttpResponse) -> dict[str, Any]:
    """Return the JSON object in a response. Raises ConnectFailed if the response contains anything
    else."""
    if answer.status != 200:
        raise ConnectFailed(f"{url}: HTTP {answer.status}")
    found = decode_object(answer.body)
    if found is None:
        raise ConnectFailed(f"{url}: the response is not a JSON object")
    return found


def scopes_of_claim(claim: Any) -> tuple[str, ...]:
    """Return the scopes in a claim, which is a space-separated string (RFC 9068, 2.2.3) or a
    list."""
    listed = claim.split(" ") if isinstance(claim, str) else claim
    if not isinstance(listed, list):
        return ()
    return tuple(dict.fromkeys(scope for scope in listed if isinstance(scope, str) and scope))


def check_times(
    claims: Mapping[str, Any], now: float, skew: float, *, require_exp: bool = True
) -> None:
    """Raise TokenRefused if a token has expired or is not valid yet."""
    expires = claims.get("exp")
    if not isinstance(expires, int | float) and (require_exp or expires is not None):
        raise TokenRefused("the expiry time (exp) is missing or invalid")
    # Do not convert it to a float, because it may have a thousand digits.
    if isinstance(expires, int | float) and expires <= now - skew:
        raise TokenRefused("it has expired")
    for start in (claims.get("nbf"), claims.get("iat")):
        if start is not None and (not isinstance(start, int | float) or start > now + skew):
            raise TokenRefused("the token is not valid yet; check the clocks on both servers")


def check_audience(claim: Any, accepted: tuple[str, ...], public_url: PublicUrl) -> None:
    """Raise TokenRefused if a token is for another server (RFC 8707, 2, and RFC 9068, 4)."""
    audiences = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
    if accepted:
        matches = any(audience in accepted for audience in audiences)
    elif not public_url.is_configured:
        raise TokenRefused(
            "this server does not know its own URL; its operator must set public_url= or audience="
        )
    else:
        own_url = audience_of(public_url.url)
        matches = own_url != "" and any(
            isinstance(audience, str) and audience_of(audience) == own_url for audience in audiences
        )
    if not matches:
        raise TokenRefused("the token is for another server (aud)")


# signed tokens

KEYS_LIFETIME_SECONDS = 3600.0
"""How long fetched keys are used before they are fetched again."""
MIN_FETCH_INTERVAL_SECONDS = 10.0
"""The minimum interval between fetches, even if tokens name unknown keys."""
MAX_KEYS = 100
ACCESS_TOKEN_TYPES = (None, "jwt", "at+jwt", "application/at+jwt", "application/jwt")
"""The accepted values of `typ`: those in RFC 9068, 2.1, and those that issuers used before that
RFC."""
ID_TOKEN_CLAIMS = frozenset({"nonce", "at_hash", "c_hash"})
"""Claims that occur only in ID tokens (OpenID Connect Core, 2 and 3.3.2.11)."""


def jwt(
    issuer: str,
    *,
    audience: str | Sequence[str] | None = None,
    jwks_uri: str | None = None,
    keys: Sequence[Mapping[str, Any]] | None = None,
    algorithms: Collection[str] = jose.ALGORITHMS,
    skew: float = 60.0,
) -> "JwtVerifier":
    """Accept JWTs that an issuer has signed for this server. Requires `dovetail-mcp[auth]`.

    Args:
        issuer: The URL of the issuer, exactly as in its tokens (`iss`). It must use https, or http
            on localhost.
        audience: One or more audiences, of which a token must have at least one (default: the URL
            of this server).
        jwks_uri: The URL of the issuer's keys (default: the URL in its metadata).
        keys: The public keys as JWKs. If you pass them, no keys are fetched.
        algorithms: The signature algorithms to accept (default: all supported algorithms).
        skew: How much the servers' clocks may differ, in seconds (default: 60).

    Returns:
        A verifier for `Bearer`.

    Raises:
        ConfigError: A URL does not use https (or http on localhost), an algorithm is not supported,
            or none of `keys` can verify a signature.
    """
    jose.require_library()
    unknown = [name for name in algorithms if name not in jose.ALGORITHMS]
    if unknown or isinstance(algorithms, str) or not algorithms:
        raise ConfigError(
            f"jwt(algorithms={algorithms!r}): pass a list with one or more of "
            f"{', '.join(jose.ALGORITHMS)}"
        )
    for url in (issuer, jwks_uri or issuer):
        if not is_confidential(url):
            raise ConfigError(
                f"jwt({url!r}): the URLs of an issuer and its keys must use https (or http on "
                "localhost)"
            )
    return JwtVerifier(
        issuer=issuer,
        audience=(audience,) if isinstance(audience, str) else tuple(audience or ()),
        keys=IssuerKeys(issuer, jwks_uri, keys),
        algorithms=algorithms,
        skew=skew,
    )


class JwtVerifier(Struct, frozen=True, eq=False, kw_only=True):
    """Verifies tokens from one issuer."""

    issuer: str
    audience: tuple[str, ...]
    keys: "IssuerKeys"
    algorithms: Collection[str]
    skew: float

    @property
    def keeps(self) -> float:
        """How long a result may be cached, in seconds. Results expire when the keys are fetched
        again, because the issuer may have withdrawn the key."""
        return self.keys.seconds_left

    async def __call__(self, token: str, public_url: PublicUrl) -> Principal:
        """Return the owner of a token. Raises TokenRefused if the token is not valid on this
        server."""
        try:
            header, _ = jose.decode_unverified(token)
            claims = self._verify(token, await self.keys.find(header, public_url))
        except jose.InvalidJwt as error:
            raise TokenRefused(str(error)) from None
        self._check_claims(header, claims, public_url)
        scopes = scopes_of_claim(claims.get("scope")) or scopes_of_claim(claims.get("scp"))
        client = claims.get("client_id", claims.get("azp"))
        expires = float(min(claims["exp"], FAR_FUTURE)) + self.skew
        return Principal(
            claims["sub"], client if isinstance(client, str) else None, scopes, claims, expires
        )

    def _verify(self, token: str, candidates: Iterable[Any]) -> dict[str, Any]:
        error = jose.InvalidJwt("the issuer does not publish the signing key")
        for key in candidates:
            try:
                return jose.verify(token, key, self.algorithms)[1]
            except jose.InvalidJwt as invalid:
                error = invalid
        raise error

    def _check_claims(
        self, header: Mapping[str, Any], claims: Mapping[str, Any], public_url: PublicUrl
    ) -> None:
        kind = header.get("typ")
        kind = kind.lower() if isinstance(kind, str) else kind
        if kind not in ACCESS_TOKEN_TYPES or ID_TOKEN_CLAIMS & claims.keys():
            raise TokenRefused("this is not an access token")
        if claims.get("iss") != self.issuer:
            raise TokenRefused("the token is from another issuer")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise TokenRefused("the token does not name its owner (sub)")
        check_times(claims, time.time(), self.skew)
        check_audience(claims.get("aud"), self.audience, public_url)


class IssuerKeys:
    """The public keys of one issuer."""

    def __init__(
        self, issuer: str, uri: str | None, keys: Sequence[Mapping[str, Any]] | None
    ) -> None:
        self._issuer, self._uri = issuer, uri
        self._found: list[tuple[Mapping[str, Any], Any]] = []
        self._fetched = self._tried = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        if keys is not None:
            self._found = _usable_keys(keys)
            self._fetched = self._tried = float("inf")
            if not self._found:
                raise ConfigError(
                    "jwt(keys=…): none of these keys can verify a signature. Pass public keys as "
                    "JWKs."
                )

    @property
    def seconds_left(self) -> float:
        """How long the keys are used before they are fetched again, in seconds."""
        return self._fetched + KEYS_LIFETIME_SECONDS - time.monotonic()

    async def find(self, header: Mapping[str, Any], public_url: PublicUrl) -> list[Any]:
        """Return the keys that may have signed a token with this header."""
        known = self._matching(header)
        due = time.monotonic() - self._tried > MIN_FETCH_INTERVAL_SECONDS
        if (not known or self.seconds_left < 0) and due:
            try:
                await self._refresh(public_url)
            except (ConnectFailed, TimedOut):
                if not known:
                    raise  # otherwise, use the old keys
            known = self._matching(header)
        if not self._found:
            raise ConnectFailed(
                f"{self._issuer}: the issuer's keys could not be fetched. Try again later."
            )
        return known

    def _matching(self, header: Mapping[str, Any]) -> list[Any]:
        kid, algorithm = header.get("kid"), header.get("alg")
        return [
            key
            for jwk, key in self._found
            if (kid is None or jwk.get("kid", kid) == kid)
            and jwk.get("alg", algorithm) == algorithm
        ]

    async def _refresh(self, public_url: PublicUrl) -> None:
        """Fetch the keys. Concurrent callers in this event loop share one request."""
        running = self._fetching
        if (
            running is None
            or running.done()
            or running.get_loop() is not asyncio.get_running_loop()
        ):
            running = self._fetching = asyncio.create_task(self._fetch(public_url))
        await asyncio.shield(running)

    async def _fetch(self, public_url: PublicUrl) -> None:
        self._tried = time.monotonic()
        if self._uri is None:
            self._uri = await self._discover(public_url)
        listed = read_object(self._uri, await _get(self._uri, public_url)).get("keys")
        jwks = [jwk for jwk in listed if isinstance(jwk, dict)] if isinstance(listed, list) else []
        found = _usable_keys(jwks)
        if not found:
            raise ConnectFailed(f"{self._uri}: none of the published keys can verify a signature")
        self._found, self._fetched = found, time.monotonic()

    async def _discover(self, public_url: PublicUrl) -> str:
        for url in server_metadata_urls(self._issuer):
            answer = await _get(url, public_url)
            metadata = read_document(answer.body, ServerMetadata) if answer.status == 200 else None
            if metadata is None or metadata.jwks_uri is None:
                continue
            if metadata.issuer != self._issuer:  # RFC 8414, 3.3
                raise ConnectFailed(f"{url}: the metadata is for another issuer")
            if not is_confidential(metadata.jwks_uri):
                raise ConnectFailed(f"{url}: the jwks_uri must use https")
            return metadata.jwks_uri
        raise ConnectFailed(
            f"{self._issuer}: the metadata does not say where to find the issuer's keys. Pass "
            "jwt(…, jwks_uri=…)."
        )


def _usable_keys(jwks: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Any]]:
    """Load the public keys that can verify signatures."""
    found = []
    for jwk in jwks[:MAX_KEYS]:
        if jwk.get("use", "sig") != "sig" or jwk.get("kty") not in ("EC", "OKP", "RSA"):
            continue
        try:
            found.append((jwk, jose.load_key(jose.public_jwk(jwk))))
        except jose.InvalidJwt:
            continue  # a type that is not supported
    return found


async def _get(url: str, public_url: PublicUrl) -> HttpResponse:
    headers = {"accept": "application/json"}
    return await trusted_fetch(public_url)(HttpRequest(method="GET", url=url, headers=headers))
