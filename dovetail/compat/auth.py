"""The classes with which FastMCP and the official SDK check access tokens, on top of
`dovetail.auth`."""

import re
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from ..auth import Bearer, TokenRefused
from ..auth.jose import ALGORITHMS, load_public_pem
from ..auth.server.verifiers import IssuerKeys, JwtVerifier
from ..auth.urls import is_confidential
from ..errors import ConfigError
from ..ports import Guard, Principal, PublicUrl

PUBLIC_URL: ContextVar[PublicUrl] = ContextVar("dovetail_compat_public_url")
"""The URL at which the token was sent, while it is checked."""


class CompatAccessToken(Struct, kw_only=True):
    """An access token that was checked. Its `repr` does not show the token itself."""

    token: str
    client_id: str
    scopes: list[str] = []
    expires_at: float | None = None
    resource: str | None = None
    subject: str | None = None
    claims: dict[str, Any] | None = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(client_id={self.client_id!r}, scopes={self.scopes!r})"


AccessToken = CompatAccessToken


class TokenPrincipal(Principal, frozen=True):
    """A caller, with the token that a `TokenVerifier` has accepted."""

    access_token: Any = None


class AuthSettings(Struct, kw_only=True):
    """The official SDK's settings for a server that accepts tokens."""

    issuer_url: Any
    resource_server_url: Any = None
    required_scopes: list[str] | None = None
    validate_token_resource: bool | None = None
    service_documentation_url: Any = None
    client_registration_options: Any = None
    revocation_options: Any = None


class TokenVerifier:
    """Checks access tokens: override `verify_token`. `base_url` is the public URL of the server,
    without the path of its endpoint."""

    base_url: Any = None
    required_scopes: Sequence[str] | None = None
    authorization_servers: Sequence[Any] = ()

    def __init__(
        self,
        base_url: Any = None,
        required_scopes: Sequence[str] | None = None,
        resource_base_url: Any = None,
    ) -> None:
        self.base_url = resource_base_url or base_url
        self.required_scopes = required_scopes

    async def verify_token(self, token: str) -> Any:
        """Return the `AccessToken`, or None if the token is not valid."""
        raise NotImplementedError(f"{type(self).__name__} has no method verify_token")


class StaticTokenVerifier(TokenVerifier):
    """Accepts tokens that are known in advance: the fields of the `AccessToken` of each token."""

    def __init__(
        self, tokens: dict[str, dict[str, Any]], required_scopes: Sequence[str] | None = None
    ) -> None:
        super().__init__(required_scopes=required_scopes)
        self.tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        if (fields := self.tokens.get(token)) is None:
            return None
        known = {name: fields[name] for name in AccessToken.__struct_fields__ if name in fields}
        return AccessToken(**{"claims": fields, **known, "token": token})


class JWTVerifier(TokenVerifier):
    """Accepts signed tokens. Without `audience`, a token must be for the URL of this server."""

    def __init__(
        self,
        *,
        public_key: str | bytes | None = None,
        jwks_uri: str | None = None,
        issuer: str | Sequence[str] | None = None,
        audience: str | Sequence[str] | None = None,
        algorithm: str | None = None,
        required_scopes: Sequence[str] | None = None,
        base_url: Any = None,
    ) -> None:
        super().__init__(base_url, required_scopes)
        algorithm = algorithm or "RS256"
        if algorithm not in ALGORITHMS:
            raise ConfigError(
                f"JWTVerifier(algorithm={algorithm!r}) is not supported; use one of "
                f"{', '.join(ALGORITHMS)}. Shared secrets are not accepted."
            )
        if not issuer or bool(public_key) == bool(jwks_uri):
            raise ConfigError(
                "JWTVerifier requires issuer=, and either public_key= or jwks_uri=. Without an "
                "issuer, tokens from anywhere would be accepted"
            )
        if jwks_uri is not None and not is_confidential(jwks_uri):
            raise ConfigError(f"JWTVerifier(jwks_uri={jwks_uri!r}): the URL must use https")
        keys = [load_public_pem(public_key, algorithm)] if public_key else None
        checks: Any = {"audience": _as_tuple(audience), "algorithms": (algorithm,), "skew": 60.0}
        self._verifiers = [
            JwtVerifier(issuer=one, keys=IssuerKeys(one, jwks_uri, keys), **checks)
            for one in _as_tuple(issuer)
        ]

    async def verify_token(self, token: str) -> AccessToken | None:
        refusal = TokenRefused("it is from an unknown issuer")
        for verifier in self._verifiers:
            try:
                return to_access_token(token, await verifier(token, PUBLIC_URL.get()))
            except TokenRefused as error:
                refusal = error
        raise refusal


class RemoteAuthProvider(TokenVerifier):
    """Accepts tokens of authorization servers that clients are referred to."""

    def __init__(
        self,
        token_verifier: TokenVerifier,
        authorization_servers: Sequence[Any],
        base_url: Any = None,
        resource_base_url: Any = None,
        **metadata: Any,
    ) -> None:
        super().__init__(base_url, token_verifier.required_scopes, resource_base_url)
        self.authorization_servers = authorization_servers
        self.verify_token = token_verifier.verify_token  # type: ignore[method-assign]


class require_scopes(tuple[str, ...]):
    """The check for `@mcp.tool(auth=…)` that a caller's token has these scopes."""

    def __new__(cls, *scopes: str) -> "require_scopes":
        return super().__new__(cls, scopes)


def scopes_of(auth: Any, owner: str) -> list[str]:
    """Return the scopes in the `auth=` of a component."""
    checks = auth if type(auth) in (list, tuple) else [auth]
    if not all(isinstance(check, require_scopes) for check in checks):
        raise ConfigError(f"{owner}: auth= accepts only require_scopes(…); use scopes=[…]")
    return [scope for check in checks for scope in check]


def make_guard(auth: Any, verifier: Any = None) -> Guard | None:
    """Return the guard for the `auth=` and `token_verifier=` of a server."""
    if isinstance(auth, AuthSettings):
        if verifier is None or auth.client_registration_options or auth.revocation_options:
            raise ConfigError(
                "AuthSettings requires token_verifier=. For a server that logs users in itself, "
                "use auth=Provider(…): docs/guides/protecting-a-server.md"
            )
        resource = auth.resource_server_url and str(auth.resource_server_url)
        return Bearer(
            _adapt(verifier, resource if auth.validate_token_resource else None),
            scopes=auth.required_scopes or (),
            authorization_servers=[str(auth.issuer_url)],
            resource=resource,
        )
    if verifier is not None:
        raise ConfigError("token_verifier= requires auth=AuthSettings(…)")
    if not isinstance(auth, TokenVerifier):
        return auth  # type: ignore[no-any-return]  # `Server` checks it
    servers = [str(server) for server in auth.authorization_servers]
    return Bearer(_adapt(auth), scopes=auth.required_scopes or (), authorization_servers=servers)


def _adapt(verifier: Any, resource: str | None = None) -> Any:
    """Return a Dovetail verifier that asks a `TokenVerifier` about every request."""

    async def verify(token: str, public_url: PublicUrl) -> Principal | None:
        PUBLIC_URL.set(public_url)
        found = await verifier.verify_token(token)
        if found is None:
            return None
        if resource is not None and (found.resource or "").rstrip("/") != resource.rstrip("/"):
            raise TokenRefused("the token is for another server (resource)")
        claims = found.claims or {}
        owner = getattr(found, "subject", None) or claims.get("sub") or found.client_id
        scopes = tuple(found.scopes or ())
        return TokenPrincipal(str(owner), found.client_id, scopes, claims, found.expires_at, found)

    return verify


def to_access_token(token: str, found: Principal) -> AccessToken:
    """Return the token of a caller."""
    return AccessToken(
        token=token,
        client_id=found.client or found.id,
        scopes=list(found.scopes),
        expires_at=found.expires,
        subject=found.id,
        claims=dict(found.claims),
    )


def _as_tuple(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def parse_scopes(value: Any) -> list[str] | None:
    """Return the scopes in a list, or in a string with spaces, commas or JSON."""
    scopes = re.findall(r'[^\s,"\[\]]+', value) if isinstance(value, str) else value
    return None if scopes is None else [*filter(None, map(str.strip, scopes))]


BearerAuthProvider = JWTVerifier


class TransportSecuritySettings(Struct, kw_only=True):
    """The host names and origins that requests may have. Origins are always checked."""

    enable_dns_rebinding_protection: bool = True
    allowed_hosts: list[str] = []
    allowed_origins: list[str] = []
