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

from ..errors import ConfigError, ConnectFailed, TimedOut
from ..ports import HttpRequest, Principal, Site
from . import jose
from .documents import ServerMetadata, read
from .tokens import FOREVER, TokenRefused, scopes_of
from .urls import confidential, place, server_wells

FRESH: Final = 3600.0
"""Seconds for which fetched keys are used without asking again."""
PAUSE: Final = 10.0
"""Seconds between two fetches, however many unknown keys are named."""
MOST_KEYS: Final = 100
KINDS: Final = (None, "jwt", "at+jwt", "application/at+jwt", "application/jwt")
"""What a token may call itself: RFC 9068, 2.1, and what issuers wrote before that."""
ID_TOKEN: Final = frozenset({"nonce", "at_hash", "c_hash"})
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
    jose.required()
    strange = [name for name in algorithms if name not in jose.ALGORITHMS]
    if strange or isinstance(algorithms, str) or not algorithms:
        raise ConfigError(
            f"jwt(algorithms={algorithms!r}): give some of {', '.join(jose.ALGORITHMS)}"
        )
    for url in (issuer, jwks_uri or issuer):
        if not confidential(url):
            raise ConfigError(
                f"jwt({url!r}): an issuer and its keys have to be at https (or http on this "
                "machine)"
            )
    named = (audience,) if isinstance(audience, str) else tuple(audience or ())
    found = Keys(issuer, jwks_uri, keys)
    return JwtVerifier(issuer, named, found, tuple(algorithms), skew)


class JwtVerifier:
    """Looks at the tokens of one issuer."""

    def __init__(
        self,
        issuer: str,
        audience: tuple[str, ...],
        keys: "Keys",
        algorithms: tuple[str, ...],
        skew: float,
    ) -> None:
        self.issuer, self._audience, self._keys = issuer, audience, keys
        self._algorithms, self._skew = algorithms, skew

    @property
    def keeps(self) -> float:
        """A token is what it is until it expires, or until its key may have been withdrawn."""
        return self._keys.life

    async def __call__(self, token: str, site: Site) -> Principal:
        """Who a token stands for; TokenRefused where it is not good here."""
        try:
            header, _ = jose.peek(token)
            candidates = await self._keys.find(header, site)
            claims = self._verified(token, candidates)
        except jose.Unverified as why:
            raise TokenRefused(str(why)) from None
        self._judge(header, claims, site)
        scopes = scopes_of(claims.get("scope")) or scopes_of(claims.get("scp"))
        client = claims.get("client_id", claims.get("azp"))
        expires = float(min(claims["exp"], FOREVER)) + self._skew
        return Principal(
            claims["sub"], client if isinstance(client, str) else None, scopes, claims, expires
        )

    def _verified(self, token: str, candidates: Iterable[Any]) -> dict[str, Any]:
        problem = jose.Unverified("it is signed with a key that its issuer does not have")
        for key in candidates:
            try:
                return jose.verify(token, key, self._algorithms)[1]
            except jose.Unverified as why:
                problem = why
        raise problem

    def _judge(self, header: Mapping[str, Any], claims: Mapping[str, Any], site: Site) -> None:
        kind = header.get("typ")
        if (
            kind.lower() if isinstance(kind, str) else kind
        ) not in KINDS or ID_TOKEN & claims.keys():
            raise TokenRefused("it is no access token")
        if claims.get("iss") != self.issuer:
            raise TokenRefused("it is of another issuer")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise TokenRefused("it does not say whom it stands for (sub)")
        timely(claims, self._skew)
        check_audience(claims.get("aud"), self._audience, site)


class Keys:
    """The keys of one issuer, as far as they are known."""

    def __init__(
        self, issuer: str, uri: str | None, given: Sequence[Mapping[str, Any]] | None
    ) -> None:
        self._issuer, self._uri = issuer, uri
        self._found: list[tuple[Mapping[str, Any], Any]] = []
        self._fetched = self._tried = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        if given is not None:
            self._found = _usable(given)
            self._fetched = self._tried = float("inf")
            if not self._found:
                raise ConfigError(
                    "jwt(keys=…): none of these can verify a signature; give public keys as JWKs"
                )

    @property
    def life(self) -> float:
        """Seconds for which they are used without asking again."""
        return self._fetched + FRESH - time.monotonic()

    async def find(self, header: Mapping[str, Any], site: Site) -> list[Any]:
        """The keys that a token with this header may be signed with."""
        known = self._fitting(header)
        now = time.monotonic()
        if (not known or self.life < 0) and now - self._tried > PAUSE:
            try:
                await self._refresh(site)
            except (ConnectFailed, TimedOut):
                if not known:
                    raise  # else what we have is better than nothing
            known = self._fitting(header)
        if not self._found:
            raise ConnectFailed(f"{self._issuer}: its keys could not be fetched a moment ago")
        return known

    def _fitting(self, header: Mapping[str, Any]) -> list[Any]:
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
        found = _usable(
            [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        )
        if not found:
            raise ConnectFailed(f"{self._uri}: there are no keys that could verify a signature")
        self._found, self._fetched = found, time.monotonic()

    async def _discovered(self, site: Site) -> str:
        for well in server_wells(self._issuer):
            answer = await _get(well, site)
            metadata = read(answer.body, ServerMetadata) if answer.status == 200 else None
            if metadata is None or metadata.jwks_uri is None:
                continue
            if metadata.issuer != self._issuer:  # RFC 8414, 3.3: or anybody could speak for it
                raise ConnectFailed(f"{well}: the metadata is of another issuer")
            if not confidential(metadata.jwks_uri):
                raise ConnectFailed(f"{well}: the jwks_uri has to be https")
            return metadata.jwks_uri
        raise ConnectFailed(
            f"{self._issuer}: there is no metadata that names its keys; say jwt(…, jwks_uri=…)"
        )


def timely(claims: Mapping[str, Any], skew: float, *, exp: bool = True) -> None:
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
        good = any(isinstance(one, str) and place(one) == place(site.url) != "" for one in listed)
    if not good:
        raise TokenRefused("it is for another server (aud)")


def _usable(listed: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Any]]:
    """Those that are public keys for signatures, ready for use."""
    found = []
    for jwk in listed[:MOST_KEYS]:
        if jwk.get("use", "sig") != "sig" or jwk.get("kty") not in ("EC", "OKP", "RSA"):
            continue
        try:
            found.append((jwk, jose.load(jose.public(jwk))))
        except jose.Unverified:
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
        return jose.document(answer.body)
    except jose.Unverified:
        raise ConnectFailed(f"{url}: that is no JSON document") from None
