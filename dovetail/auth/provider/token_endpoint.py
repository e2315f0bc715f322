"""The endpoints for programs: the token and revocation endpoints.

A client authenticates and presents a code or a refresh token, or neither (`client_credentials`).
The client receives an access token that is valid only for this server. If the request has a DPoP
proof, the token is bound to the key that signed the proof.

If users log in at an upstream provider, each refresh first uses the upstream provider's refresh
token. If the upstream provider reports that the login has ended, the grant also ends. Between
refreshes, an access token remains valid whatever happens at the upstream provider, so its lifetime
is short.
https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization#session-binding-requirements
"""

from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Any

from msgspec import Struct

from ...ports import HttpResponse, PublicUrl
from .. import jose
from ..dpop import Checker, ProofRefused
from ..server.guards import ImpliedScopes
from ..urls import audience_of, covers_url
from .clients import ClientRegistry, OAuthClient
from .grants import AccessToken, Grant, GrantExchange, GrantStore, bind_claims, narrow_scopes
from .login import Login, LoginEnded, Upstream, UpstreamUnreachable
from .web import NO_STORE, OAuthError, ProviderRequest, json_response, parse_form


class TokenRequest(Struct, frozen=True):
    """A request to the token endpoint from an authenticated client."""

    fields: Mapping[str, str]
    client: OAuthClient
    resource: str
    http: ProviderRequest
    thumbprint: str
    """The thumbprint of the key to bind the token to, or empty for none."""

    def narrow_resource(self, granted: str) -> str:
        """Return the resource for a token, which is the granted resource or a part of it."""
        if self.resource in ("", granted):
            return granted
        if granted != self.http.public_url.base:
            raise OAuthError("invalid_target", "access to this resource was not granted")
        return self.resource


class TokenEndpoint(Struct, frozen=True, eq=False, kw_only=True):
    """The token and revocation endpoints."""

    clients: ClientRegistry
    grants: GrantStore
    upstream: Upstream | None
    checker: Checker
    knows_user: Callable[[str], bool]
    implies: ImpliedScopes | None
    now: Callable[[], float]
    renewing: set[str] = set()
    """The ids of the grants that are being renewed at the upstream provider."""

    async def token(self, request: ProviderRequest) -> HttpResponse:
        """Answer a token request: https://www.rfc-editor.org/rfc/rfc6749#section-3.2"""
        fields, resources = parse_form(request)
        client = await self.clients.authenticate(request, fields)
        resource = requested_resource(resources, request.public_url)
        grant_type = fields.get("grant_type", "")
        grants = {
            "authorization_code": self._redeem_code,
            "refresh_token": self._refresh,
            "client_credentials": self._client_credentials,
        }
        if grant_type not in grants:
            raise OAuthError(
                "unsupported_grant_type", f"grant_type must be one of {', '.join(grants)}"
            )
        if grant_type not in client.grant_types and grant_type != "refresh_token":
            raise OAuthError("unauthorized_client", "this client may not use this grant_type")
        thumbprint = await self._check_proof(request)
        reply = await grants[grant_type](
            TokenRequest(fields, client, resource, request, thumbprint)
        )
        headers = dict(NO_STORE)
        if thumbprint and self.checker.nonces:
            headers["dpop-nonce"] = self.checker.nonce(request.public_url.ring)
        return json_response(reply, headers=headers)

    async def revoke(self, request: ProviderRequest) -> HttpResponse:
        """Answer a revocation request: https://www.rfc-editor.org/rfc/rfc7009"""
        fields, _ = parse_form(request)
        client = await self.clients.authenticate(request, fields)
        await self.grants.revoke(request.issuer, _required(fields, "token"), client.id)
        return json_response({})

    async def _redeem_code(self, token_request: TokenRequest) -> dict[str, Any]:
        fields, client = token_request.fields, token_request.client
        issuer = token_request.http.issuer

        def matches(grant: Grant) -> bool:
            token_request.narrow_resource(grant.resource)  # if it is refused, the code stays valid
            # OAuth 2.1 no longer has a redirect_uri here, because PKCE makes it unnecessary. If it
            # is present, it must match.
            uri = fields.get("redirect_uri", grant.redirect_uri)
            verifier = fields.get("code_verifier", "")
            return uri == grant.redirect_uri and matches_challenge(verifier, grant.challenge)

        code = _required(fields, "code")
        # A client that authenticates may change its key.
        thumbprint = token_request.thumbprint if client.auth_method == "none" else ""
        exchange = await self.grants.redeem(issuer, code, client.id, matches, thumbprint)
        await self.clients.extend(client, issuer)
        return await self._reply(exchange, exchange.grant.scopes, token_request)

    async def _refresh(self, token_request: TokenRequest) -> dict[str, Any]:
        fields, client = token_request.fields, token_request.client
        issuer, token = token_request.http.issuer, _required(fields, "refresh_token")
        id, grant, _ = await self.grants.find(issuer, token, client.id)
        scopes = narrow_scopes(fields.get("scope"), grant.scopes, self.implies)
        token_request.narrow_resource(grant.resource)
        if not self.knows_user(grant.user):
            await self.grants.end(issuer, id)
            raise OAuthError("invalid_grant", "this user is no longer allowed to log in")
        if id in self.renewing:
            raise OAuthError(
                "temporarily_unavailable",
                "this refresh token is already being exchanged",
                503,
                {"retry-after": "1"},
            )
        exchange = await self.grants.refresh(issuer, token, client.id, token_request.thumbprint)
        if exchange.upstream and self.upstream is not None:
            self.renewing.add(id)
            try:
                exchange = await self._renew_upstream(self.upstream, exchange, token_request.http)
            finally:
                self.renewing.discard(id)
        if not exchange.repeated:
            await self.clients.extend(client, issuer)
        return await self._reply(exchange, scopes, token_request)

    async def _client_credentials(self, token_request: TokenRequest) -> dict[str, Any]:
        client, http = token_request.client, token_request.http
        allowed = tuple(http.scopes) if client.scopes is None else client.scopes
        seconds = self.grants.access_life
        access = AccessToken(
            user=client.id,
            client=client.id,
            resource=token_request.resource or http.public_url.base,
            scopes=narrow_scopes(token_request.fields.get("scope"), allowed, self.implies),
            expires=self.now() + seconds,
            claims=bind_claims({}, token_request.thumbprint),
        )
        return await self._issue(access, None, seconds, token_request)

    async def _renew_upstream(
        self, upstream: Upstream, exchange: GrantExchange, request: ProviderRequest
    ) -> GrantExchange:
        grant = exchange.grant
        login = Login(grant.user, grant.claims, exchange.upstream)
        try:
            login = await upstream.renew(login, request.public_url)
        except LoginEnded:
            await self.grants.end(request.issuer, exchange.id)
            raise OAuthError(
                "invalid_grant", "the upstream login has ended; log in again"
            ) from None
        except UpstreamUnreachable:
            await self.grants.undo(request.issuer, exchange)
            raise OAuthError(
                "temporarily_unavailable",
                "the upstream provider cannot be reached; the refresh token remains valid",
                503,
                {"retry-after": "5"},
            ) from None
        return await self.grants.renew(request.issuer, exchange, login)

    async def _reply(
        self, exchange: GrantExchange, scopes: tuple[str, ...], token_request: TokenRequest
    ) -> dict[str, Any]:
        grant, seconds = exchange.grant, self.grants.access_seconds(exchange.grant)
        access = AccessToken(
            user=grant.user,
            client=grant.client,
            resource=token_request.narrow_resource(grant.resource),
            scopes=scopes,
            expires=self.now() + seconds,
            claims=bind_claims(grant.claims, token_request.thumbprint),
        )
        reply = await self._issue(access, exchange.id, seconds, token_request)
        reply["username"] = grant.user  # a client cannot read the token, but shows who logged in
        return {**reply, "refresh_token": exchange.secret} if grant.refreshes else reply

    async def _issue(
        self, access: AccessToken, grant_id: str | None, seconds: float, token_request: TokenRequest
    ) -> dict[str, Any]:
        reply = {
            "access_token": await self.grants.issue(token_request.http.issuer, grant_id, access),
            "token_type": "DPoP" if token_request.thumbprint else "Bearer",
            "expires_in": int(seconds),
        }
        return {**reply, "scope": " ".join(access.scopes)} if access.scopes else reply

    async def _check_proof(self, request: ProviderRequest) -> str:
        """Return the thumbprint of the key to bind the token to, or an empty string for none."""
        proof, ring = request.headers.get("dpop"), request.public_url.ring
        if proof is None and not self.checker.required:
            return ""
        try:
            return await self.checker.check(
                proof, request.method, f"{request.issuer}/token", ring=ring
            )
        except ProofRefused as error:
            nonce = {"dpop-nonce": self.checker.nonce(ring)} if error.nonce else {}
            text = f"the DPoP proof was refused: {error}"
            raise OAuthError(error.code, text, 400, nonce) from None


def matches_challenge(verifier: str, challenge: str) -> bool:
    """Return whether a PKCE verifier matches this S256 challenge:
    https://www.rfc-editor.org/rfc/rfc7636#section-4.6"""
    return (
        43 <= len(verifier) <= 128
        and verifier.isascii()
        and compare_digest(jose.s256(verifier).encode(), challenge.encode())
    )


def requested_resource(resources: list[str], public_url: PublicUrl) -> str:
    """Return the canonical URL of the endpoint that a token is requested for. The result is empty
    if no endpoint is named, in which case the token is for all endpoints:
    https://www.rfc-editor.org/rfc/rfc8707#section-2"""
    named = {audience_of(resource) for resource in resources}
    covered = all(covers_url(public_url.base, resource) for resource in resources)
    if not covered or "" in named or len(named) > 1:
        raise OAuthError(
            "invalid_target",
            "the resource must be a single endpoint on this server",
        )
    return named.pop() if named else ""


def _required(fields: Mapping[str, str], name: str) -> str:
    if name not in fields:
        raise OAuthError("invalid_request", f"the {name} is missing")
    return fields[name]
