"""The classes with which FastMCP and the official SDK check access tokens, on top of
`dovetail.auth`."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from ..auth import Bearer, TokenRefused
from ..auth.jose import ALGORITHMS, load_public_pem
from ..auth.server.verifiers import IssuerKeys, JwtVerifier, introspection
from ..auth.urls import is_confidential
from ..errors import ConfigError
from ..ports import Guard, Principal, PublicUrl

PUBLIC_URL: ContextVar[PublicUrl] = ContextVar("dovetail_compat_public_url")
"""The URL at which the token was sent, while it is checked."""
GUIDE = "docs/guides/protecting-a-server.md"


class AccessToken(Struct, kw_only=True):
    """An access token that was checked.

    Attributes:
        token: The token itself, which `repr` does not show.
        client_id: The OAuth client, or whoever owns the token.
        scopes: The scopes that were granted.
        expires_at: When the token expires, in seconds since the epoch.
        resource: The server that the token was issued for.
        subject: The user that the token was issued for.
        claims: All claims of the token.
    """

    token: str
    client_id: str
    scopes: list[str] = []
    expires_at: float | None = None
    resource: str | None = None
    subject: str | None = None
    claims: dict[str, Any] | None = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(client_id={self.client_id!r}, scopes={self.scopes!r})"


class TokenPrincipal(Principal, frozen=True):
    """A caller, with the token that a `TokenVerifier` has accepted."""

    access_token: Any = None


class AuthSettings(Struct, kw_only=True):
    """The official SDK's settings for a server that accepts tokens.

    Attributes:
        issuer_url: The authorization server that clients are referred to.
        resource_server_url: The URL of this server.
        required_scopes: The scopes that every caller must have.
        validate_token_resource: Whether the `resource` of a token must be `resource_server_url`.
        service_documentation_url: Has no effect.
        client_registration_options: Must be None: a `Provider` registers clients.
        revocation_options: Must be None: a `Provider` revokes tokens.
    """

    issuer_url: Any
    resource_server_url: Any = None
    required_scopes: list[str] | None = None
    validate_token_resource: bool | None = None
    service_documentation_url: Any = None
    client_registration_options: Any = None
    revocation_options: Any = None


class TokenVerifier:
    """Checks access tokens: override `verify_token`.

    Args:
        base_url: The public URL of the server, without the path of its endpoint.
        required_scopes: The scopes that every caller must have.
        resource_base_url: The same as `base_url`, and preferred to it.
    """

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
        """Return the `AccessToken`, or None if the token is not valid.

        Args:
            token: The token.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method verify_token")


class StaticTokenVerifier(TokenVerifier):
    """Accepts tokens that are known in advance, for tests.

    Args:
        tokens: The fields of the `AccessToken` for each token.
        required_scopes: The scopes that every caller must have.
    """

    def __init__(
        self, tokens: dict[str, dict[str, Any]], required_scopes: Sequence[str] | None = None
    ) -> None:
        super().__init__(required_scopes=required_scopes)
        self.tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the `AccessToken`, or None if the token is unknown.

        Args:
            token: The token.
        """
        if (fields := self.tokens.get(token)) is None:
            return None
        known = {name: fields[name] for name in AccessToken.__struct_fields__ if name in fields}
        return AccessToken(**{"claims": fields, **known, "token": token})


class JWTVerifier(TokenVerifier):
    """Accepts signed tokens. Without `audience`, a token must be for the URL of this server.

    Args:
        public_key: The issuer's key as PEM.
        jwks_uri: The URL of the issuer's keys, if there is no `public_key`.
        issuer: The issuer, or several of them.
        audience: One or more audiences, of which a token must have at least one.
        algorithm: The signature algorithm (default: RS256).
        required_scopes: The scopes that every caller must have.
        base_url: The public URL of the server, without the path of its endpoint.

    Raises:
        ConfigError: There is no issuer, or the key or the algorithm is not supported.
    """

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
        self._verifiers = [
            JwtVerifier(
                issuer=one,
                audience=_as_tuple(audience),
                keys=IssuerKeys(one, jwks_uri, keys),
                algorithms=(algorithm,),
                skew=60.0,
            )
            for one in _as_tuple(issuer)
        ]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the `AccessToken`; raise TokenRefused if the token is not valid.

        Args:
            token: The token.
        """
        refusal = TokenRefused("it is from an unknown issuer")
        for verifier in self._verifiers:
            try:
                return _to_token(token, await verifier(token, PUBLIC_URL.get()))
            except TokenRefused as error:
                refusal = error
        raise refusal


class IntrospectionTokenVerifier(TokenVerifier):
    """Accepts tokens that an introspection endpoint reports as active, for any audience.

    Args:
        introspection_url: The endpoint.
        client_id: The client id of this server at the endpoint.
        client_secret: The secret of that client.
        required_scopes: The scopes that every caller must have.
        base_url: The public URL of the server, without the path of its endpoint.
    """

    def __init__(
        self,
        *,
        introspection_url: str,
        client_id: str,
        client_secret: str,
        required_scopes: Sequence[str] | None = None,
        base_url: Any = None,
    ) -> None:
        super().__init__(base_url, required_scopes)
        self._verifier = introspection(
            introspection_url, client_id=client_id, client_secret=client_secret, check=False
        )

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the `AccessToken`, or None if the token is not active.

        Args:
            token: The token.
        """
        found = await self._verifier(token, PUBLIC_URL.get())
        return None if found is None else _to_token(token, found)


class RemoteAuthProvider(TokenVerifier):
    """Accepts tokens of authorization servers that clients are referred to.

    Args:
        token_verifier: Checks the tokens.
        authorization_servers: The issuers.
        base_url: The public URL of this server, without the path of its endpoint.
        resource_base_url: The same as `base_url`, and preferred to it.
        **ignored: Further metadata, which has no effect.
    """

    def __init__(
        self,
        token_verifier: TokenVerifier,
        authorization_servers: Sequence[Any],
        base_url: Any = None,
        resource_base_url: Any = None,
        **ignored: Any,
    ) -> None:
        super().__init__(base_url, token_verifier.required_scopes, resource_base_url)
        self.authorization_servers = authorization_servers
        self.verify_token = token_verifier.verify_token  # type: ignore[method-assign]


def require_scopes(*scopes: str) -> "RequiredScopes":
    """Return the check for `@mcp.tool(auth=…)` that a caller's token has these scopes.

    Args:
        *scopes: The scopes.
    """
    return RequiredScopes(scopes)


class RequiredScopes(tuple[str, ...]):
    """The scopes that a component requires."""


def scopes_of(auth: Any, owner: str) -> list[str]:
    """Return the scopes in the `auth=` of a component."""
    checks = auth if type(auth) in (list, tuple) else [auth]
    if not all(isinstance(check, RequiredScopes) for check in checks):
        raise ConfigError(f"{owner}: auth= accepts only require_scopes(…); use scopes=[…]")
    return [scope for check in checks for scope in check]


def make_guard(auth: Any, verifier: Any = None) -> Guard | None:
    """Return the guard for the `auth=` and `token_verifier=` of a server."""
    if isinstance(auth, AuthSettings):
        if verifier is None or auth.client_registration_options or auth.revocation_options:
            raise ConfigError(
                "AuthSettings requires token_verifier=. For a server that logs users in itself, "
                f"use auth=Provider(…): {GUIDE}"
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
        return TokenPrincipal(
            str(owner),
            found.client_id,
            tuple(found.scopes or ()),
            claims,
            found.expires_at,
            access_token=found,
        )

    return verify


def _to_token(token: str, found: Principal) -> AccessToken:
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


BearerAuthProvider = JWTVerifier


class TransportSecuritySettings(Struct, kw_only=True):
    """Which host names and origins requests may name.

    Attributes:
        enable_dns_rebinding_protection: Whether to check the host name. Origins are always checked.
        allowed_hosts: The host names, besides the address of the server.
        allowed_origins: The origins of web pages that may call the server.
    """

    enable_dns_rebinding_protection: bool = True
    allowed_hosts: list[str] = []
    allowed_origins: list[str] = []
