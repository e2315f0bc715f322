"""The guard of a resource server: who comes with a good access token is let in, everybody else is
told how to get one.

    no token            401   Bearer resource_metadata="…", scope="…"
    token not taken     401   … error="invalid_token"
    token, or proof of possession, that cannot be read     400   … error="invalid_request"
    too few scopes      403   … error="insufficient_scope", scope="…"
    nobody to ask       503   the authorization server cannot be reached

The metadata (RFC 9728) says which authorization servers issue tokens for us. By that RFC it lies at
the root of the origin, with the path of the endpoint after it. A server that is mounted somewhere
is only asked for what lies below, so there it has its metadata below that place too; the challenge
names the one that can be reached.

A token is looked at by a verifier (`tokens.py`) and then kept, by its digest, as long as it holds:
the next request with it costs a lookup. One that is bound to a key is worth nothing without a proof
(`dpop.py`), on each request.
https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec.structs import replace

from ...errors import ConfigError, ConnectFailed, TimedOut
from ...ports import HttpRequest, HttpResponse, Principal, Site
from .. import jose
from ..challenges import format_challenge
from ..documents import ResourceMetadata, parse_scopes
from ..dpop import Checker, ProofRefused
from ..urls import RESOURCE_METADATA_PATH
from .verifiers import TokenCache, TokenRefused, Verifier, index_principals, token_digest

log = logging.getLogger("dovetail.auth")

ImpliedScopes: TypeAlias = Mapping[str, Iterable[str] | str] | Callable[[str], Iterable[str] | str]
"""The scopes that a scope has in it: `{"admin": ["read", "write"]}`, or a function that says so."""
AuthorizationServers: TypeAlias = Sequence[str] | Callable[[Site], Sequence[str]]

MAX_CACHED_TOKENS, MAX_EXPANDED_SCOPES = 10_000, 1_000
"""Tokens that are kept, and scopes that one may come to."""
LOCAL_ISSUER: Final = "local"
"""What stands for the issuer of a token that has none."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
ANY_ORIGIN: Final = {"access-control-allow-origin": "*"}
_PREFLIGHT: Final = ANY_ORIGIN | {
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "*, authorization, mcp-protocol-version",
    "access-control-max-age": "86400",
}


class Bearer:
    """Lets in who has an access token. Several verifiers may stand side by side, as for several
    issuers; ids of users then begin with their issuer (`local` where there is none), for two of
    these may well have a user of the same name."""

    def __init__(
        self,
        *verifiers: Verifier,
        scopes: Sequence[str] | str = (),
        authorization_servers: AuthorizationServers | None = None,
        resource: str | None = None,
        implies: ImpliedScopes | None = None,
        dpop: bool | Checker = False,
    ) -> None:
        if not verifiers:
            raise ConfigError(
                "Bearer() needs to know who looks at tokens: Bearer(jwt('https://issuer.example'))"
            )
        if not all(callable(verifier) for verifier in verifiers):
            raise ConfigError(
                "Bearer() takes what looks at tokens, not tokens or URLs: "
                "Bearer(jwt('https://issuer.example'))"
            )
        self._verifiers = verifiers
        self._issuers = [issuer for one in verifiers if (issuer := getattr(one, "issuer", None))]
        self._servers = self._issuers if authorization_servers is None else authorization_servers
        self.scopes = parse_scopes(scopes)
        """What everybody needs."""
        self._resource, self._implies = resource, implies
        self._checker = dpop if isinstance(dpop, Checker) else Checker(required=dpop)
        self._cache = TokenCache(MAX_CACHED_TOKENS)

    # who is let in

    async def admit(self, request: HttpRequest, site: Site) -> Principal | HttpResponse:
        """Who is calling, or the refusal."""
        return await self._admit(request, site, prove=True)

    async def again(self, request: HttpRequest, site: Site) -> Principal | HttpResponse:
        """The same for a request that was let in before: its proof was good once."""
        return await self._admit(request, site, prove=False)

    async def _admit(
        self, request: HttpRequest, site: Site, *, prove: bool
    ) -> Principal | HttpResponse:
        if "access_token" in request.url and "access_token" in dict(
            parse_qsl(urlsplit(request.url).query)
        ):
            why = (
                "The token came in the URL, where it gets into logs; send it in the "
                "Authorization header"
            )
            return self._refuse(site, 400, "invalid_request", why)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        scheme, token = scheme.lower(), token.strip(" ")
        if scheme not in ("bearer", "dpop"):
            return self._refuse(site, 401)
        if self._resource is not None:
            site = replace(site, url=self._resource, sure=True)
        key = token_digest(token), site.url
        who: Principal | None = self._cache.get(key)
        if who is None and (len(token) > jose.MAX_TOKEN_LENGTH or not _TOKEN.fullmatch(token)):
            return self._refuse(
                site,
                400,
                "invalid_request",
                "The Authorization header holds no token, or one too long",
            )
        try:
            who = who or await self._verified(key, token, site)
            bound = _key_thumbprint(who) if "cnf" in who.claims else None
            if prove and (bound or scheme == "dpop" or self._checker.required):
                self._check_proof(bound, scheme, token, request, site)
        except TokenRefused as why:
            return self._refuse(
                site, 401, "invalid_token", f"The token is not taken: {why}", proof=scheme == "dpop"
            )
        except ProofRefused as why:
            error = "use_dpop_nonce" if why.nonce else "invalid_dpop_proof"
            return self._refuse(site, 401, error, f"The DPoP proof is not taken: {why}", proof=True)
        except (ConnectFailed, TimedOut) as why:
            log.warning("No token can be looked at: %s", why)
            return _error_response(
                503,
                {"retry-after": "5"},
                "temporarily_unavailable",
                "Who could look at the token is out of reach",
            )
        if self.scopes and not set(self.scopes) <= set(who.scopes):
            return self._refuse(
                site, 403, "insufficient_scope", "The token lacks scopes", proof=bound is not None
            )
        return who

    async def _verified(self, key: Any, token: str, site: Site) -> Principal:
        reason: Exception = TokenRefused("nobody here knows it")
        silent: Exception | None = None
        for verifier in self._candidates(token):
            try:
                found = await verifier(token, site)
                if found is not None:
                    return self._remember(key, verifier, found)
            except TokenRefused as refused:
                reason = refused
            except (ConnectFailed, TimedOut) as out_of_reach:
                silent = out_of_reach  # who knows what it would have said
        raise silent or reason

    def _candidates(self, token: str) -> Sequence[Verifier]:
        """Those who may know this token."""
        if len(self._verifiers) == 1:
            return self._verifiers
        try:
            issuer = jose.decode_unverified(token)[1].get("iss")
        except jose.InvalidJwt:
            issuer = None
        return [one for one in self._verifiers if getattr(one, "issuer", None) in (None, issuer)]

    def _remember(self, key: Any, verifier: Verifier, found: Principal) -> Principal:
        if found.expires is not None and found.expires <= time.time():
            raise TokenRefused("it has expired")
        issuer = getattr(verifier, "issuer", None)
        id = f"{issuer or LOCAL_ISSUER}|{found.id}" if len(self._verifiers) > 1 else found.id
        who = replace(found, id=id, scopes=expand_scopes(found.scopes, self._implies))
        keeps = getattr(verifier, "keeps", 0.0)
        if keeps > 0:
            self._cache.put(key, who, found.expires or float("inf"), keeps)
        return who

    def _check_proof(
        self, bound: str | None, scheme: str, token: str, request: HttpRequest, site: Site
    ) -> None:
        """Whoever has the token must have the key as well: RFC 9449, 7."""
        if bound is None:
            raise TokenRefused("it is bound to no key, as this server or the DPoP scheme want it")
        if scheme != "dpop":
            raise ProofRefused(
                "the token is bound to a key; send it with the DPoP scheme and a proof"
            )
        proof = request.headers.get("dpop")
        self._checker.check(
            proof, request.method, request.url, ring=site.ring, access_token=token, thumbprint=bound
        )

    # what everybody else is told

    def challenge(
        self, site: Site, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """The headers of a refusal to a caller that was let in, but lacks these scopes."""
        needed = tuple(dict.fromkeys((*self.scopes, *scopes)))
        return self._challenge(
            site, "insufficient_scope", "", needed, proof="cnf" in principal.claims
        )

    def _refuse(
        self, site: Site, status: int, error: str = "", why: str = "", *, proof: bool = False
    ) -> HttpResponse:
        headers = self._challenge(site, error, why, self.scopes, proof=proof)
        return _error_response(
            status,
            headers,
            error or "unauthorized",
            why or "This server wants an access token: send it as `Bearer`",
        )

    def _challenge(
        self, site: Site, error: str, why: str, scopes: tuple[str, ...], *, proof: bool = False
    ) -> dict[str, str]:
        proof = proof or self._checker.required
        metadata = self._metadata_url(site) if self._issuers_for(site) else ""
        wanted = " ".join(scope for scope in scopes if scope != "offline_access")
        said = {
            "error": error,
            "error_description": why,
            "scope": wanted,
            "resource_metadata": metadata,
            "algs": " ".join(self._checker.algorithms) if proof else "",
        }
        told = {name: value for name, value in said.items() if value}
        headers = {"www-authenticate": format_challenge("DPoP" if proof else "Bearer", told)}
        if proof and self._checker.nonces:
            headers["dpop-nonce"] = self._checker.nonce(site.ring)
        return headers

    # the metadata

    async def respond(self, request: HttpRequest, site: Site) -> HttpResponse | None:
        """The metadata, at any of its places."""
        place = request.path.removeprefix(urlsplit(site.base).path)
        if not place.startswith(RESOURCE_METADATA_PATH) or not self._issuers_for(site):
            return None
        if place.removeprefix(RESOURCE_METADATA_PATH).rstrip("/") not in (
            "",
            urlsplit(site.url).path,
            site.url.removeprefix(site.base),
        ):
            return None
        if request.method == "OPTIONS":
            return HttpResponse(status=204, headers=_PREFLIGHT)
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(status=405, headers={"allow": "GET, HEAD, OPTIONS"})
        headers = ANY_ORIGIN | {
            "content-type": "application/json",
            "cache-control": "public, max-age=300",
        }
        return HttpResponse(headers=headers, body=msgspec.json.encode(self.metadata(site)))

    def metadata(self, site: Site) -> ResourceMetadata:
        """What a client has to know: RFC 9728, 2."""
        # Few: it is what clients ask for that were told nothing better. A refusal names what more
        # something takes.
        # https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#scope-selection-strategy
        supported = [scope for scope in self.scopes if scope != "offline_access"]
        return ResourceMetadata(
            resource=self._resource or site.url,
            authorization_servers=self._issuers_for(site),
            scopes_supported=supported or None,
            bearer_methods_supported=["header"],
            dpop_signing_alg_values_supported=list(self._checker.algorithms),
            dpop_bound_access_tokens_required=self._checker.required,
        )

    def _metadata_url(self, site: Site) -> str:
        if site.url.startswith(site.base):
            return site.base + RESOURCE_METADATA_PATH + site.url.removeprefix(site.base)
        return site.base + RESOURCE_METADATA_PATH

    def _issuers_for(self, site: Site) -> list[str]:
        return list(self._servers(site) if callable(self._servers) else self._servers)


def expand_scopes(scopes: Iterable[str], implies: ImpliedScopes | None) -> tuple[str, ...]:
    """Scopes, and all that these have in them."""
    if implies is None:
        return tuple(scopes)
    within = implies if callable(implies) else lambda scope: implies.get(scope, ())
    found = dict.fromkeys(scopes)
    waiting = list(found)
    while waiting and len(found) < MAX_EXPANDED_SCOPES:
        more = [scope for scope in parse_scopes(within(waiting.pop())) if scope not in found]
        found.update(dict.fromkeys(more))
        waiting += more
    return tuple(found)


def _key_thumbprint(who: Principal) -> str:
    """The key that a token is bound to: RFC 9449, 6.1."""
    confirmation = who.claims["cnf"]
    thumbprint = confirmation.get("jkt") if isinstance(confirmation, Mapping) else None
    if not isinstance(thumbprint, str):
        raise TokenRefused("it is bound to its bearer in a way that is not known here")
    return thumbprint


def _error_response(status: int, headers: Mapping[str, str], error: str, why: str) -> HttpResponse:
    told = {"content-type": "application/json", "cache-control": "no-store"}
    body = msgspec.json.encode({"error": error, "error_description": why})
    return HttpResponse(status=status, headers=told | dict(headers), body=body)


# --- merged from apikeys.py (integrate, then remove this comment)
# API keys, for those who need no OAuth: whoever has a key is let in, and is who the key stands
# for.
#
# A key is found by its digest, so how long that takes tells nothing of the keys there are, and a
# key has to be long enough not to be guessed. It comes in a header of its own, or as a bearer
# token, which any client can send.

MIN_KEY_LENGTH: Final = 16
"""Characters of a key. What is drawn at random from letters and digits then has more than 80
bits."""


class ApiKeys:
    """Lets in who has one of these keys."""

    def __init__(
        self, keys: Mapping[str, Principal | Mapping[str, Any] | str], *, header: str = "x-api-key"
    ) -> None:
        self._keys, self._header = index_principals(keys, "ApiKeys"), header.lower()
        self.secrets = (self._header,)
        short = next(
            (place for place, key in enumerate(keys, 1) if len(key) < MIN_KEY_LENGTH), None
        )
        if short is not None:
            remedy = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
            raise ConfigError(
                f"ApiKeys: key {short} has fewer than {MIN_KEY_LENGTH} characters and could be "
                f"guessed; {remedy}"
            )

    async def admit(self, request: HttpRequest, site: Site) -> Principal | HttpResponse:
        """Who is calling, or the refusal."""
        key = request.headers.get(self._header)
        if key is None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            key = token.strip(" ") if scheme.lower() == "bearer" else ""
        who = self._keys.get(token_digest(key))
        if who is None or (who.expires is not None and who.expires <= time.time()):
            return self._refusal(bool(key))
        return who

    def _refusal(self, given: bool) -> HttpResponse:
        why = (
            "The key is not known here"
            if given
            else f"This server wants an API key: send it as {self._header}"
        )
        body = msgspec.json.encode(
            {"error": "invalid_token" if given else "unauthorized", "error_description": why}
        )
        said = {"error": "invalid_token", "error_description": why} if given else {}
        headers = {
            "content-type": "application/json",
            "cache-control": "no-store",
            **self._challenge(**said),
        }
        return HttpResponse(status=401, headers=headers, body=body)

    async def respond(self, request: HttpRequest, site: Site) -> HttpResponse | None:
        """There are no pages here."""
        return None

    def challenge(
        self, site: Site, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """The headers of a refusal to a caller that was let in, but lacks these scopes."""
        return self._challenge(error="insufficient_scope", scope=" ".join(scopes))

    def _challenge(self, **parameters: str) -> dict[str, str]:
        return {
            "www-authenticate": format_challenge("ApiKey", {"header": self._header, **parameters})
        }
