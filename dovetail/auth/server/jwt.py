"""Access tokens that describe themselves: JWTs (RFC 9068), signed by an issuer whose keys are
public.

The keys are found through the issuer's metadata and cached. They are fetched again for a token that
is signed with an unknown key, but never more often than every few seconds, whatever strangers send.
Nothing in a token is believed before its signature was checked: who issued it, who it is for, and
when it is valid.

Also refused: algorithms that are not accepted, keys for another purpose, other kinds of tokens (the
issuer signs ID tokens, which tell a client who logged in, with the same keys), and tokens for
another server.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ...errors import ConfigError, ConnectFailed, TimedOut
from ...ports import HttpRequest, HttpResponse, Principal, PublicUrl
from .. import jose
from ..documents import ServerMetadata, read_document
from ..urls import is_confidential, server_metadata_urls
from .verifiers import (
    FAR_FUTURE,
    TokenRefused,
    check_audience,
    check_times,
    fetch_trusted,
    read_object,
    scopes_of_claim,
)

KEYS_LIFETIME_SECONDS: Final = 3600.0
"""For how long fetched keys are used without fetching them again."""
MIN_FETCH_INTERVAL_SECONDS: Final = 10.0
"""Between two fetches, however many unknown keys are named."""
MAX_KEYS: Final = 100
ACCESS_TOKEN_TYPES: Final = (None, "jwt", "at+jwt", "application/at+jwt", "application/jwt")
"""Accepted values of `typ`: RFC 9068, 2.1, and what issuers wrote before that."""
ID_TOKEN_CLAIMS: Final = frozenset({"nonce", "at_hash", "c_hash"})
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
    accepted = (audience,) if isinstance(audience, str) else tuple(audience or ())
    return JwtVerifier(
        issuer, accepted, IssuerKeys(issuer, jwks_uri, keys), tuple(algorithms), skew
    )


class JwtVerifier:
    """Verifies the tokens of one issuer."""

    def __init__(
        self,
        issuer: str,
        audience: tuple[str, ...],
        keys: "IssuerKeys",
        algorithms: tuple[str, ...],
        skew: float,
    ) -> None:
        self.issuer, self._audience, self._keys = issuer, audience, keys
        self._algorithms, self._skew = algorithms, skew

    @property
    def keeps(self) -> float:
        """For how many seconds a result may be cached: until the keys are fetched again, as the
        key of the token may have been withdrawn."""
        return self._keys.seconds_left

    async def __call__(self, token: str, public_url: PublicUrl) -> Principal:
        """Return who a token belongs to. Raises TokenRefused if it is not valid here."""
        try:
            header, _ = jose.decode_unverified(token)
            claims = self._verify(token, await self._keys.find(header, public_url))
        except jose.InvalidJwt as error:
            raise TokenRefused(str(error)) from None
        self._check_claims(header, claims, public_url)
        scopes = scopes_of_claim(claims.get("scope")) or scopes_of_claim(claims.get("scp"))
        client = claims.get("client_id", claims.get("azp"))
        expires = float(min(claims["exp"], FAR_FUTURE)) + self._skew
        return Principal(
            claims["sub"], client if isinstance(client, str) else None, scopes, claims, expires
        )

    def _verify(self, token: str, candidates: Iterable[Any]) -> dict[str, Any]:
        error = jose.InvalidJwt("it is signed with a key that its issuer does not have")
        for key in candidates:
            try:
                return jose.verify(token, key, self._algorithms)[1]
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
        check_times(claims, self._skew)
        check_audience(claims.get("aud"), self._audience, public_url)


class IssuerKeys:
    """The public keys of one issuer, as far as they are known."""

    def __init__(
        self, issuer: str, uri: str | None, given: Sequence[Mapping[str, Any]] | None
    ) -> None:
        self._issuer, self._uri = issuer, uri
        self._found: list[tuple[Mapping[str, Any], Any]] = []
        self._fetched = self._tried = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        if given is not None:
            self._found = _usable_keys(given)
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
    return await fetch_trusted(HttpRequest(method="GET", url=url, headers=headers), public_url)
