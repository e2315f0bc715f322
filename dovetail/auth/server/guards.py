"""Guards for servers, which admit callers with a valid access token or API key, and tell other
callers how to get one.

`Bearer` accepts access tokens, and refuses all other requests as OAuth and MCP require:

    no token                                     401   Bearer resource_metadata="…", scope="…"
    token refused                                401   … error="invalid_token"
    malformed token, or token in the URL         400   … error="invalid_request"
    DPoP proof refused                           401   DPoP … error="invalid_dpop_proof"
    scopes missing                               403   … error="insufficient_scope", scope="…"
    issuer or backend cannot be reached          503   … error="temporarily_unavailable"

The metadata (RFC 9728) names the authorization servers that issue tokens for this server. The RFC
defines the URL of the metadata as a well-known path at the root of the origin, followed by the path
of the endpoint. A server that is mounted under a path receives only requests for that path. The
server's metadata is therefore also available under that path, and the challenge contains the URL
that is reachable.

A verifier (`verifiers.py`) checks each token. The result is cached under the digest of the
token, so the next request needs only one lookup. A token that is bound to a key also requires a
proof (`dpop.py`) with each request.
https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization

`ApiKeys` accepts API keys and does not use OAuth. Keys are looked up by their digest, so the
response time reveals nothing about existing keys. A key must be long enough that it cannot be
guessed. Clients send it in a separate header, or as a bearer token if they support nothing else.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec.structs import replace

from ...errors import ConfigError, ConnectFailed, Overloaded, TimedOut
from ...logs import get_logger
from ...ports import HttpRequest, HttpResponse, Principal, PublicUrl
from .. import jose
from ..dpop import Checker, ProofRefused
from ..urls import RESOURCE_METADATA_PATH
from ..wire import ResourceMetadata, format_challenge, parse_scopes
from .verifiers import TokenCache, TokenRefused, Verifier, index_principals, token_digest

if TYPE_CHECKING:
    from ...backend import Backend

log = get_logger("auth")

ImpliedScopes: TypeAlias = Mapping[str, Iterable[str] | str] | Callable[[str], Iterable[str] | str]
"""The scopes that each scope includes, as a dict such as `{"admin": ["read", "write"]}` or a
function."""
AuthorizationServers: TypeAlias = Sequence[str] | Callable[[PublicUrl], Sequence[str]]

MAX_CACHED_TOKENS, MAX_EXPANDED_SCOPES = 10_000, 1_000
MIN_KEY_LENGTH = 16
"""In characters. The minimum length of a key. Random letters and digits of this length have more
than 80 bits of entropy."""
LOCAL_ISSUER = "local"
"""The issuer name for tokens that have no issuer."""
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
ANY_ORIGIN = {"access-control-allow-origin": "*"}
_PREFLIGHT = ANY_ORIGIN | {
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "*, authorization, mcp-protocol-version",
    "access-control-max-age": "86400",
}


class Bearer:
    """Admits callers with a valid access token: `Server(auth=Bearer(jwt("https://…")))`.

    With several verifiers, a user's id starts with the issuer of the token (`local` if it has
    none), because two issuers may have users with the same name.

    Args:
        *verifiers: The verifiers that check tokens, such as `jwt(…)`, `introspection(…)`,
            `static_tokens(…)`, or any `async (token, public_url) -> Principal | None`. A token is
            valid if one of them accepts it.
        scopes: The scopes that every caller must have, as a list or a space-separated string
            (default: none).
        authorization_servers: The issuers that clients are referred to, or a function that receives
            the `PublicUrl` and returns them (default: the verifiers' issuers).
        resource: The audience that tokens must have (default: the server's public URL).
        implies: The scopes that each scope includes, as a dict or a function (default: only
            itself).
        dpop: If True, only tokens that are bound to a key are accepted. Pass a `Checker` to set
            more options (default: tokens without a key are also accepted).

    Raises:
        ConfigError: No verifier is given, or a verifier is not callable.
    """

    _keeps = 0.0
    """How long to cache the results of a verifier that does not say so itself, in seconds."""

    def __init__(
        self,
        *verifiers: Verifier,
        scopes: Sequence[str] | str = (),
        authorization_servers: AuthorizationServers | None = None,
        resource: str | None = None,
        implies: ImpliedScopes | None = None,
        dpop: bool | Checker = False,
    ) -> None:
        if not verifiers or not all(callable(verifier) for verifier in verifiers):
            raise ConfigError(
                "Bearer() requires verifiers, not tokens or URLs. Example: "
                "Bearer(jwt('https://issuer.example'))"
            )
        self._verifiers = verifiers
        issuers = (getattr(verifier, "issuer", None) for verifier in verifiers)
        self._servers: AuthorizationServers = (
            [issuer for issuer in issuers if issuer]
            if authorization_servers is None
            else authorization_servers
        )
        self.scopes = parse_scopes(scopes)
        """The scopes that every caller must have."""
        self._resource, self._implies = resource, implies
        self._checker = dpop if isinstance(dpop, Checker) else Checker(required=dpop)
        self._cache = TokenCache(MAX_CACHED_TOKENS)

    def use_backend(self, backend: "Backend") -> None:
        """Remember DPoP proofs in the backend that the processes of the server share.

        Args:
            backend: The backend. The server passes it before it is run.
        """
        self._checker.use_rows(backend.rows("jti"))

    # admitting callers

    async def admit(self, request: HttpRequest, public_url: PublicUrl) -> Principal | HttpResponse:
        """Return the caller, or the response that refuses the request.

        Args:
            request: The request, with header names in lower case.
            public_url: The public URL of the server that received the request.
        """
        return await self._admit(request, public_url, prove=True)

    def admit_now(self, request: HttpRequest, public_url: PublicUrl) -> Principal | None:
        """Return the caller if this token was verified before and needs no proof; otherwise None.

        Args:
            request: The request, with header names in lower case.
            public_url: The public URL of the server that received the request.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or self._checker.required or "access_token" in request.url:
            return None
        caller = self._find_verified(self._cache_key(token.strip(" "), public_url))
        if caller is None or "cnf" in caller.claims:
            return None
        return caller if not self.scopes or set(self.scopes) <= set(caller.scopes) else None

    async def recheck(
        self, request: HttpRequest, public_url: PublicUrl
    ) -> Principal | HttpResponse:
        """Check an admitted request again while it is still being answered. The DPoP proof is not
        checked, because a proof is valid only once.

        Args:
            request: The request, with header names in lower case.
            public_url: The public URL of the server that received the request.
        """
        return await self._admit(request, public_url, prove=False)

    async def _admit(
        self, request: HttpRequest, public_url: PublicUrl, *, prove: bool
    ) -> Principal | HttpResponse:
        if "access_token" in request.url and "access_token" in dict(
            parse_qsl(urlsplit(request.url).query)
        ):
            reason = (
                "The token was sent in the URL, which may be logged; send it in the "
                "Authorization header"
            )
            return self._refuse(public_url, 400, "invalid_request", reason)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        scheme, token = scheme.lower(), token.strip(" ")
        if scheme not in ("bearer", "dpop"):
            return self._refuse(public_url, 401)
        key = self._cache_key(token, public_url)
        if self._resource is not None:
            public_url = replace(public_url, url=self._resource, is_configured=True)
        caller = self._find_verified(key)
        if caller is None and (len(token) > jose.MAX_TOKEN_LENGTH or not _TOKEN.fullmatch(token)):
            reason = "The token in the Authorization header is missing, malformed or too long"
            return self._refuse(public_url, 400, "invalid_request", reason)
        try:
            caller = caller or await self._verify(key, token, public_url)
            bound_to = _key_thumbprint(caller) if "cnf" in caller.claims else None
            if prove and (bound_to or scheme == "dpop" or self._checker.required):
                await self._check_proof(bound_to, scheme, token, request, public_url)
        except TokenRefused as error:
            reason = f"The token was refused: {error}"
            return self._refuse(public_url, 401, "invalid_token", reason, proof=scheme == "dpop")
        except ProofRefused as error:
            reason = f"The DPoP proof was refused: {error}"
            return self._refuse(public_url, 401, error.code, reason, proof=True)
        except Overloaded as error:
            headers = {"retry-after": error.retry_header}
            return _error_response(503, headers, "temporarily_unavailable", error.message)
        except (ConnectFailed, TimedOut) as error:
            log.warning("Cannot check an access token: %s", error)
            reason = "The token cannot be checked because its issuer cannot be reached"
            return _error_response(503, {"retry-after": "5"}, "temporarily_unavailable", reason)
        if self.scopes and not set(self.scopes) <= set(caller.scopes):
            reason = "The token does not have the required scopes"
            return self._refuse(
                public_url, 403, "insufficient_scope", reason, proof=bound_to is not None
            )
        return caller

    def _find_verified(self, key: Any) -> Principal | None:
        """Return the owner of a token that was verified before, or None."""
        caller: Principal | None = self._cache.get(key)
        return caller if caller is not None and self._still_accepts(caller) else None

    def _still_accepts(self, caller: Principal) -> bool:
        """Return whether a token that was verified before is still valid, as far as that can be
        told without waiting."""
        return True

    def _cache_key(self, token: str, public_url: PublicUrl) -> tuple[bytes, str, bool]:
        """Return the key of a verified token. Several servers may share this guard."""
        if self._resource is not None:
            return token_digest(token), self._resource, True
        return token_digest(token), public_url.url, public_url.is_configured

    async def _verify(self, key: Any, token: str, public_url: PublicUrl) -> Principal:
        refusal: Exception = TokenRefused("it is unknown")
        generation = self._cache.generation
        unreachable: Exception | None = None
        for verifier in self._candidates(token):
            try:
                found = await verifier(token, public_url)
                if found is not None:
                    return self._remember(key, verifier, found, generation)
            except TokenRefused as error:
                refusal = error
            except (ConnectFailed, TimedOut, Overloaded) as error:
                unreachable = error  # this verifier might have accepted the token
        raise unreachable or refusal

    def _candidates(self, token: str) -> Sequence[Verifier]:
        """Return the verifiers that may accept this token."""
        if len(self._verifiers) == 1:
            return self._verifiers
        try:
            issuer = jose.decode_unverified(token)[1].get("iss")
        except jose.InvalidJwt:
            issuer = None
        return [
            verifier
            for verifier in self._verifiers
            if getattr(verifier, "issuer", None) in (None, issuer)
        ]

    def _remember(
        self, key: Any, verifier: Verifier, found: Principal, generation: int
    ) -> Principal:
        if found.expires is not None and found.expires <= time.time():
            raise TokenRefused("it has expired")
        issuer = getattr(verifier, "issuer", None)
        id = f"{issuer or LOCAL_ISSUER}|{found.id}" if len(self._verifiers) > 1 else found.id
        caller = replace(found, id=id, scopes=expand_scopes(found.scopes, self._implies))
        seconds = getattr(verifier, "keeps", self._keeps)
        if seconds > 0 and generation == self._cache.generation:
            self._cache.put(key, caller, found.expires or float("inf"), seconds)
        return caller

    async def _check_proof(
        self,
        bound_to: str | None,
        scheme: str,
        token: str,
        request: HttpRequest,
        public_url: PublicUrl,
    ) -> None:
        """Check that the caller has the key that the token is bound to (RFC 9449, 7)."""
        if bound_to is None:
            raise TokenRefused(
                "the token is not bound to a key, which this server or the DPoP scheme requires"
            )
        if scheme != "dpop":
            raise ProofRefused(
                "the token is bound to a key; send it with the DPoP scheme and a proof"
            )
        await self._checker.check(
            request.headers.get("dpop"),
            request.method,
            request.url,
            ring=public_url.ring,
            access_token=token,
            thumbprint=bound_to,
        )

    # refusing callers

    def challenge(
        self, public_url: PublicUrl, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """Return the headers for a 403 response to a caller that lacks scopes.

        Args:
            public_url: The public URL of the server that received the request.
            principal: The caller.
            scopes: The scopes that the operation requires.
        """
        needed = tuple(dict.fromkeys((*self.scopes, *scopes)))
        return self._challenge(
            public_url, "insufficient_scope", "", needed, proof="cnf" in principal.claims
        )

    def _refuse(
        self,
        public_url: PublicUrl,
        status: int,
        error: str = "",
        reason: str = "",
        *,
        proof: bool = False,
    ) -> HttpResponse:
        headers = self._challenge(public_url, error, reason, self.scopes, proof=proof)
        default = "This server requires an access token; send it as `Authorization: Bearer …`"
        return _error_response(status, headers, error or "unauthorized", reason or default)

    def _challenge(
        self,
        public_url: PublicUrl,
        error: str,
        reason: str,
        scopes: tuple[str, ...],
        *,
        proof: bool = False,
    ) -> dict[str, str]:
        proof = proof or self._checker.required
        parameters = {
            "error": error,
            "error_description": reason,
            "scope": " ".join(scope for scope in scopes if scope != "offline_access"),
            "resource_metadata": self._metadata_url(public_url)
            if self._issuers_for(public_url)
            else "",
            "algs": " ".join(self._checker.algorithms) if proof else "",
        }
        present = {name: value for name, value in parameters.items() if value}
        headers = {"www-authenticate": format_challenge("DPoP" if proof else "Bearer", present)}
        if proof and self._checker.nonces:
            headers["dpop-nonce"] = self._checker.nonce(public_url.ring)
        return headers

    # the metadata

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        """Return the server's metadata (RFC 9728), or None if the request is for another path.

        Args:
            request: The request, with its path relative to the origin.
            public_url: The public URL of the server that received the request.
        """
        path = request.path.removeprefix(urlsplit(public_url.base).path)
        if not path.startswith(RESOURCE_METADATA_PATH) or not self._issuers_for(public_url):
            return None
        endpoint = path.removeprefix(RESOURCE_METADATA_PATH).rstrip("/")
        if endpoint not in (
            "",
            urlsplit(public_url.url).path,
            public_url.url.removeprefix(public_url.base),
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
        return HttpResponse(headers=headers, body=msgspec.json.encode(self.metadata(public_url)))

    def metadata(self, public_url: PublicUrl) -> ResourceMetadata:
        """Return the server's metadata (RFC 9728, 2).

        Args:
            public_url: The public URL of the server.
        """
        # List as few scopes as possible, because clients may request all of them. A 403 response
        # names the additional scopes that an operation needs.
        # https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#scope-selection-strategy
        supported = [scope for scope in self.scopes if scope != "offline_access"]
        return ResourceMetadata(
            resource=self._resource or public_url.url,
            authorization_servers=self._issuers_for(public_url),
            scopes_supported=supported or None,
            bearer_methods_supported=["header"],
            dpop_signing_alg_values_supported=list(self._checker.algorithms),
            dpop_bound_access_tokens_required=self._checker.required,
        )

    def _metadata_url(self, public_url: PublicUrl) -> str:
        endpoint = (
            public_url.url.removeprefix(public_url.base)
            if public_url.url.startswith(public_url.base)
            else ""
        )
        return public_url.base + RESOURCE_METADATA_PATH + endpoint

    def _issuers_for(self, public_url: PublicUrl) -> list[str]:
        return list(self._servers(public_url) if callable(self._servers) else self._servers)


class ApiKeys:
    """Admits callers that send one of these keys: `Server(auth=ApiKeys({"…": "ada"}))`.

    Args:
        keys: The owner of each key, as a `Principal`, a dict of its fields, or just an id. A key
            must have at least 16 characters.
        header: The header that contains the key (default: `x-api-key`). A key may also be sent as a
            bearer token.

    Raises:
        ConfigError: The table is empty, a key is too short, or an entry is malformed.
    """

    def __init__(
        self, keys: Mapping[str, Principal | Mapping[str, Any] | str], *, header: str = "x-api-key"
    ) -> None:
        self._keys, self._header = index_principals(keys, "ApiKeys"), header.lower()
        self.secrets = (self._header,)
        """The headers that are hidden from handlers."""
        for number, key in enumerate(keys, 1):
            if len(key) < MIN_KEY_LENGTH:
                raise ConfigError(
                    f"ApiKeys: key {number} has fewer than {MIN_KEY_LENGTH} characters and could "
                    "be guessed. Create one with: "
                    'python -c "import secrets; print(secrets.token_urlsafe(32))"'
                )

    async def admit(self, request: HttpRequest, public_url: PublicUrl) -> Principal | HttpResponse:
        """Return the caller, or the response that refuses the request.

        Args:
            request: The request, with header names in lower case.
            public_url: The public URL of the server that received the request.
        """
        if (caller := self.admit_now(request, public_url)) is not None:
            return caller
        if not self._read_key(request):
            reason = f"This server requires an API key; send it in the {self._header} header"
            return _error_response(401, self._challenge(), "unauthorized", reason)
        reason = "The API key is not valid"
        headers = self._challenge(error="invalid_token", error_description=reason)
        return _error_response(401, headers, "invalid_token", reason)

    def admit_now(self, request: HttpRequest, public_url: PublicUrl) -> Principal | None:
        """Return the owner of the key, or None if the key is missing or not valid.

        Args:
            request: The request, with header names in lower case.
            public_url: The public URL of the server that received the request.
        """
        caller = self._keys.get(token_digest(self._read_key(request)))
        expired = (
            caller is not None and caller.expires is not None and caller.expires <= time.time()
        )
        return None if expired else caller

    def _read_key(self, request: HttpRequest) -> str:
        key: str | None = request.headers.get(self._header)
        if key is None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            key = token.strip(" ") if scheme.lower() == "bearer" else ""
        return key

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        """Return None because this guard has no pages.

        Args:
            request: The request.
            public_url: The public URL of the server that received the request.
        """
        return None

    def challenge(
        self, public_url: PublicUrl, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """Return the headers for a 403 response to a caller that lacks scopes.

        Args:
            public_url: The public URL of the server that received the request.
            principal: The caller.
            scopes: The scopes that the operation requires.
        """
        return self._challenge(error="insufficient_scope", scope=" ".join(scopes))

    def _challenge(self, **parameters: str) -> dict[str, str]:
        challenge = format_challenge("ApiKey", {"header": self._header, **parameters})
        return {"www-authenticate": challenge}


def expand_scopes(scopes: Iterable[str], implies: ImpliedScopes | None) -> tuple[str, ...]:
    """Return these scopes and all scopes that they include."""
    if implies is None:
        return tuple(scopes)
    included = implies if callable(implies) else lambda scope: implies.get(scope, ())
    found = dict.fromkeys(scopes)
    waiting = list(found)
    while waiting and len(found) < MAX_EXPANDED_SCOPES:
        more = [scope for scope in parse_scopes(included(waiting.pop())) if scope not in found]
        found.update(dict.fromkeys(more))
        waiting += more
    return tuple(found)


def _key_thumbprint(caller: Principal) -> str:
    """Return the thumbprint of the key that a token is bound to (RFC 9449, 6.1)."""
    confirmation = caller.claims["cnf"]
    thumbprint = confirmation.get("jkt") if isinstance(confirmation, Mapping) else None
    if not isinstance(thumbprint, str):
        raise TokenRefused("the method that binds the token to its owner (cnf) is not supported")
    return thumbprint


def _error_response(
    status: int, headers: Mapping[str, str], error: str, reason: str
) -> HttpResponse:
    return HttpResponse(
        status=status,
        headers={"content-type": "application/json", "cache-control": "no-store", **headers},
        body=msgspec.json.encode({"error": error, "error_description": reason}),
    )
