"""Verifiers: they turn an access token into a `Principal`, or refuse it.

A verifier is any `async (token, public_url) -> Principal | None`. Two attributes are optional:
`issuer`, whose tokens it knows (it is then not asked about others), and `keeps`, for how many
seconds its answer may be cached (without it, the verifier is asked each time). Tokens are never
compared or stored as they are, only as a digest under a random key of this process, so timing and
memory do not reveal them.

    static_tokens   tokens that are known in advance
    introspection   tokens that only their issuer can read, which is asked about each (RFC 7662)
    jwt             tokens that describe themselves (RFC 9068), signed by their issuer

How long an introspection is cached is a trade-off: for that long a token works after it was
revoked. A refused token is remembered for the same time, so that repeating it causes no further
request. For invented tokens, the number of concurrent requests is bounded.

The keys of an issuer are found through its metadata and cached. They are fetched again for a token
that is signed with an unknown key, but never more often than every few seconds, whatever strangers
send. Nothing in a token is believed before its signature was checked: who issued it, who it is for,
and when it is valid. Also refused: algorithms that are not accepted, keys for another purpose,
other kinds of tokens (the issuer signs ID tokens, which tell a client who logged in, with the same
keys), and tokens for another server.
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
"""Takes an access token and the server it was sent to. Returns who it belongs to, or None if it is
not valid. May raise TokenRefused with a reason for the caller."""
FAR_FUTURE = 1e15
"""Later than any time. A claim may have a thousand digits, more than a float can hold."""
MAX_REMEMBERED_REFUSALS = 1_000
MAX_CONCURRENT_REQUESTS = 64
"""Introspection requests at the same time."""
_KEY = token_bytes(32)


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


def index_principals(owners: Mapping[str, Any], where: str) -> dict[bytes, Principal]:
    """Return the principals of a table of secrets, by the digest of each secret."""
    if (
        not isinstance(owners, Mapping)
        or not owners
        or not all(isinstance(secret, str) and secret for secret in owners)
    ):
        raise ConfigError(
            f"{where}: pass a table of tokens and who they belong to. No token may be empty."
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
    """Asks one introspection endpoint about tokens."""

    url: str
    authorization: str
    issuer: str | None
    audience: tuple[str, ...]
    check: bool
    keeps: float
    skew: float
    refused: TokenCache
    requests: int = 0
    """How many are in progress."""

    async def __call__(self, token: str, public_url: PublicUrl) -> Principal | None:
        """Return who a token belongs to; None or TokenRefused if it is not valid here."""
        key = token_digest(token)
        if self.refused.get(key):
            return None
        claims = await self._introspect(token, public_url)
        if claims.get("active") is not True:
            self.refused.put(key, True, FAR_FUTURE, self.keeps)
            return None
        if self.issuer is not None and claims.get("iss", self.issuer) != self.issuer:
            raise TokenRefused("it is from another issuer")
        check_times(claims, time.time(), self.skew, require_exp=False)
        if self.check or "aud" in claims:
            check_audience(claims.get("aud"), self.audience, public_url)
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
                f"{self.url}: {MAX_CONCURRENT_REQUESTS} introspection requests are in progress"
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
    """Return what sends requests to URLs from the configuration, which may be on a private
    network."""
    return public_url.fetch_trusted or public_url.fetch


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


def check_times(
    claims: Mapping[str, Any], now: float, skew: float, *, require_exp: bool = True
) -> None:
    """Raise TokenRefused if a token has expired or is not valid yet."""
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
        own_url = audience_of(public_url.url)
        matches = own_url != "" and any(
            isinstance(audience, str) and audience_of(audience) == own_url for audience in audiences
        )
    if not matches:
        raise TokenRefused("it is for another server (aud)")


# signed tokens

KEYS_LIFETIME_SECONDS = 3600.0
"""For how long fetched keys are used without fetching them again."""
MIN_FETCH_INTERVAL_SECONDS = 10.0
"""Between two fetches, however many unknown keys are named."""
MAX_KEYS = 100
ACCESS_TOKEN_TYPES = (None, "jwt", "at+jwt", "application/at+jwt", "application/jwt")
"""Accepted values of `typ`: RFC 9068, 2.1, and what issuers wrote before that."""
ID_TOKEN_CLAIMS = frozenset({"nonce", "at_hash", "c_hash"})
"""Claims that only ID tokens have: OpenID Connect Core, 2 and 3.3.2.11."""


def jwt(
    issuer: str,
    *,
    audience: str | Sequence[str] | None = None,
    jwks_uri: str | None = None,
    keys: Sequence[Mapping[str, Any]] | None = None,
    algorithms: Collection[str] = jose.ALGORITHMS,
    skew: float = 60.0,
) -> "JwtVerifier":
    """Accept the JWTs that an issuer has signed for this server. Needs `dovetail-mcp[auth]`.

    Args:
        issuer: The URL of the issuer, exactly as its tokens name it (`iss`). Must be https, or
            http on localhost.
        audience: What a token must be for, one value or several (default: the URL of this server).
        jwks_uri: Where the keys of the issuer are (default: as its metadata says).
        keys: The public keys as JWKs, if they should not be fetched at all.
        algorithms: The signature algorithms to accept (default: all that are supported).
        skew: How many seconds the clocks may differ (default: 60).

    Returns:
        A verifier for `Bearer`.

    Raises:
        ConfigError: A URL is not https, an algorithm is not supported, or none of `keys` can verify
            a signature.
    """
    jose.require_library()
    unknown = [name for name in algorithms if name not in jose.ALGORITHMS]
    if unknown or isinstance(algorithms, str) or not algorithms:
        raise ConfigError(
            f"jwt(algorithms={algorithms!r}): pass a list of some of {', '.join(jose.ALGORITHMS)}"
        )
    for url in (issuer, jwks_uri or issuer):
        if not is_confidential(url):
            raise ConfigError(
                f"jwt({url!r}): the URLs of an issuer and its keys must be https (or http on "
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
    """Verifies the tokens of one issuer."""

    issuer: str
    audience: tuple[str, ...]
    keys: "IssuerKeys"
    algorithms: Collection[str]
    skew: float

    @property
    def keeps(self) -> float:
        """For how many seconds a result may be cached: until the keys are fetched again, as the
        key of the token may have been withdrawn."""
        return self.keys.seconds_left

    async def __call__(self, token: str, public_url: PublicUrl) -> Principal:
        """Return who a token belongs to. Raises TokenRefused if it is not valid here."""
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
        error = jose.InvalidJwt("it is signed with a key that its issuer does not have")
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
            raise TokenRefused("it is not an access token")
        if claims.get("iss") != self.issuer:
            raise TokenRefused("it is from another issuer")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise TokenRefused("it does not say who it belongs to (sub)")
        check_times(claims, time.time(), self.skew)
        check_audience(claims.get("aud"), self.audience, public_url)


class IssuerKeys:
    """The public keys of one issuer, as far as they are known."""

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
        """For how long the keys are used without fetching them again."""
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
                    raise  # else old keys are better than none
            known = self._matching(header)
        if not self._found:
            raise ConnectFailed(f"{self._issuer}: its keys could not be fetched a moment ago")
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
        """Fetch the keys, once for everyone who waits for them in this event loop."""
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
            raise ConnectFailed(f"{self._uri}: there is no key that can verify a signature")
        self._found, self._fetched = found, time.monotonic()

    async def _discover(self, public_url: PublicUrl) -> str:
        for url in server_metadata_urls(self._issuer):
            answer = await _get(url, public_url)
            metadata = read_document(answer.body, ServerMetadata) if answer.status == 200 else None
            if metadata is None or metadata.jwks_uri is None:
                continue
            if metadata.issuer != self._issuer:  # RFC 8414, 3.3: else anyone could speak for it
                raise ConnectFailed(f"{url}: the metadata is for another issuer")
            if not is_confidential(metadata.jwks_uri):
                raise ConnectFailed(f"{url}: the jwks_uri must be https")
            return metadata.jwks_uri
        raise ConnectFailed(
            f"{self._issuer}: there is no metadata that names its keys. Pass jwt(…, jwks_uri=…)."
        )


def _usable_keys(jwks: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Any]]:
    """Return the public keys for signatures, loaded."""
    found = []
    for jwk in jwks[:MAX_KEYS]:
        if jwk.get("use", "sig") != "sig" or jwk.get("kty") not in ("EC", "OKP", "RSA"):
            continue
        try:
            found.append((jwk, jose.load_key(jose.public_jwk(jwk))))
        except jose.InvalidJwt:
            continue  # of a kind that is not supported
    return found


async def _get(url: str, public_url: PublicUrl) -> HttpResponse:
    headers = {"accept": "application/json"}
    return await trusted_fetch(public_url)(HttpRequest(method="GET", url=url, headers=headers))
