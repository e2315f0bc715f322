"""Access tokens that say themselves what they are: JWTs (RFC 9068), signed by an issuer whose keys
everybody may fetch.

The keys are found through the issuer's metadata, kept for a while, and fetched anew for a token
that is signed with one nobody has seen yet; but not more often than every few seconds, whatever
strangers send. Only when a signature fits is anything in the token believed: who issued it, whom it
is for, from when until when.

What is refused besides: algorithms that were not agreed on, keys meant for something else, tokens
of another kind (the issuer signs those that tell a client who logged in with the same keys), and
tokens for another server.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ...errors import ConfigError, ConnectFailed, TimedOut
from ...ports import HttpRequest, Principal, Site
from .. import jose
from ..documents import ServerMetadata, read_document
from ..urls import is_confidential, server_metadata_urls
from .verifiers import FAR_FUTURE, TokenRefused, check_audience, check_times, scopes_of_claim

KEYS_LIFETIME_SECONDS: Final = 3600.0
"""Seconds for which fetched keys are used without asking again."""
MIN_FETCH_INTERVAL_SECONDS: Final = 10.0
"""Seconds between two fetches, however many unknown keys are named."""
MAX_KEYS: Final = 100
ACCESS_TOKEN_TYPES: Final = (None, "jwt", "at+jwt", "application/at+jwt", "application/jwt")
"""What a token may call itself: RFC 9068, 2.1, and what issuers wrote before that."""
ID_TOKEN_CLAIMS: Final = frozenset({"nonce", "at_hash", "c_hash"})
"""Claims that only a token for the client itself has: OpenID Connect Core, 2 and 3.3.2.11."""


def jwt(
    issuer: str,
    *,
    audience: str | Sequence[str] | None = None,
    jwks_uri: str | None = None,
    keys: Sequence[Mapping[str, Any]] | None = None,
    algorithms: Collection[str] = jose.ALGORITHMS,
    skew: float = 60.0,
) -> "JwtVerifier":
    """Tokens of this issuer, for this server: for its URL, or for another `audience` where the
    issuer knows it by that. The keys are found through the issuer's metadata, unless `jwks_uri` or
    the `keys` themselves are given."""
    jose.require_library()
    strange = [name for name in algorithms if name not in jose.ALGORITHMS]
    if strange or isinstance(algorithms, str) or not algorithms:
        raise ConfigError(
            f"jwt(algorithms={algorithms!r}): give some of {', '.join(jose.ALGORITHMS)}"
        )
    for url in (issuer, jwks_uri or issuer):
        if not is_confidential(url):
            raise ConfigError(
                f"jwt({url!r}): an issuer and its keys have to be at https (or http on this "
                "machine)"
            )
    named = (audience,) if isinstance(audience, str) else tuple(audience or ())
    found = IssuerKeys(issuer, jwks_uri, keys)
    return JwtVerifier(issuer, named, found, tuple(algorithms), skew)


class JwtVerifier:
    """Looks at the tokens of one issuer."""

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
        """A token is what it is until it expires, or until its key may have been withdrawn."""
        return self._keys.seconds_left

    async def __call__(self, token: str, site: Site) -> Principal:
        """Who a token stands for; TokenRefused where it is not good here."""
        try:
            header, _ = jose.decode_unverified(token)
            candidates = await self._keys.find(header, site)
            claims = self._verified(token, candidates)
        except jose.InvalidJwt as why:
            raise TokenRefused(str(why)) from None
        self._check_claims(header, claims, site)
        scopes = scopes_of_claim(claims.get("scope")) or scopes_of_claim(claims.get("scp"))
        client = claims.get("client_id", claims.get("azp"))
        expires = float(min(claims["exp"], FAR_FUTURE)) + self._skew
        return Principal(
            claims["sub"], client if isinstance(client, str) else None, scopes, claims, expires
        )

    def _verified(self, token: str, candidates: Iterable[Any]) -> dict[str, Any]:
        problem = jose.InvalidJwt("it is signed with a key that its issuer does not have")
        for key in candidates:
            try:
                return jose.verify(token, key, self._algorithms)[1]
            except jose.InvalidJwt as why:
                problem = why
        raise problem

    def _check_claims(
        self, header: Mapping[str, Any], claims: Mapping[str, Any], site: Site
    ) -> None:
        kind = header.get("typ")
        if (
            kind.lower() if isinstance(kind, str) else kind
        ) not in ACCESS_TOKEN_TYPES or ID_TOKEN_CLAIMS & claims.keys():
            raise TokenRefused("it is no access token")
        if claims.get("iss") != self.issuer:
            raise TokenRefused("it is of another issuer")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise TokenRefused("it does not say whom it stands for (sub)")
        check_times(claims, self._skew)
        check_audience(claims.get("aud"), self._audience, site)


class IssuerKeys:
    """The keys of one issuer, as far as they are known."""

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
                    "jwt(keys=…): none of these can verify a signature; give public keys as JWKs"
                )

    @property
    def seconds_left(self) -> float:
        """Seconds for which they are used without asking again."""
        return self._fetched + KEYS_LIFETIME_SECONDS - time.monotonic()

    async def find(self, header: Mapping[str, Any], site: Site) -> list[Any]:
        """The keys that a token with this header may be signed with."""
        known = self._matching(header)
        now = time.monotonic()
        if (not known or self.seconds_left < 0) and now - self._tried > MIN_FETCH_INTERVAL_SECONDS:
            try:
                await self._refresh(site)
            except (ConnectFailed, TimedOut):
                if not known:
                    raise  # else what we have is better than nothing
            known = self._matching(header)
        if not self._found:
            raise ConnectFailed(f"{self._issuer}: its keys could not be fetched a moment ago")
        return known

    def _matching(self, header: Mapping[str, Any]) -> list[Any]:
        wanted, algorithm = header.get("kid"), header.get("alg")
        return [
            key
            for jwk, key in self._found
            if (wanted is None or jwk.get("kid", wanted) == wanted)
            and jwk.get("alg", algorithm) == algorithm
        ]

    async def _refresh(self, site: Site) -> None:
        """Fetch, once for all who wait for it in this loop."""
        running = self._fetching
        if (
            running is None
            or running.done()
            or running.get_loop() is not asyncio.get_running_loop()
        ):
            running = self._fetching = asyncio.create_task(self._fetch(site))
        await asyncio.shield(running)

    async def _fetch(self, site: Site) -> None:
        self._tried = time.monotonic()
        if self._uri is None:
            self._uri = await self._discovered(site)
        document = await _json(self._uri, site)
        listed = document.get("keys")
        found = _usable_keys(
            [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        )
        if not found:
            raise ConnectFailed(f"{self._uri}: there are no keys that could verify a signature")
        self._found, self._fetched = found, time.monotonic()

    async def _discovered(self, site: Site) -> str:
        for well in server_metadata_urls(self._issuer):
            answer = await _get(well, site)
            metadata = read_document(answer.body, ServerMetadata) if answer.status == 200 else None
            if metadata is None or metadata.jwks_uri is None:
                continue
            if metadata.issuer != self._issuer:  # RFC 8414, 3.3: or anybody could speak for it
                raise ConnectFailed(f"{well}: the metadata is of another issuer")
            if not is_confidential(metadata.jwks_uri):
                raise ConnectFailed(f"{well}: the jwks_uri has to be https")
            return metadata.jwks_uri
        raise ConnectFailed(
            f"{self._issuer}: there is no metadata that names its keys; say jwt(…, jwks_uri=…)"
        )


def _usable_keys(listed: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Any]]:
    """Those that are public keys for signatures, ready for use."""
    found = []
    for jwk in listed[:MAX_KEYS]:
        if jwk.get("use", "sig") != "sig" or jwk.get("kty") not in ("EC", "OKP", "RSA"):
            continue
        try:
            found.append((jwk, jose.load_key(jose.public_jwk(jwk))))
        except jose.InvalidJwt:
            continue  # of a kind that we do not know
    return found


async def _get(url: str, site: Site) -> Any:
    return await (site.reach or site.fetch)(
        HttpRequest(method="GET", url=url, headers={"accept": "application/json"})
    )


async def _json(url: str, site: Site) -> dict[str, Any]:
    answer = await _get(url, site)
    if answer.status != 200:
        raise ConnectFailed(f"{url}: HTTP {answer.status}")
    try:
        return jose.decode_payload(answer.body)
    except jose.InvalidJwt:
        raise ConnectFailed(f"{url}: that is no JSON document") from None
