"""The endpoints that programs call: token and revocation.

A client authenticates, then presents a code, a refresh token, or nothing more
(`client_credentials`), and gets an access token for this server and no other. A request with a DPoP
proof gets a token that is bound to its key.

If users log in at an upstream provider, no refresh succeeds without it: the upstream's refresh
token is used first, and if the upstream says that the login has ended, so has the grant. Between
refreshes an access token is valid whatever the upstream does, which is why it lives so short.
https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization#session-binding-requirements
"""

import time
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Any

from msgspec import Struct

from ...ports import HttpRequest, HttpResponse, PublicUrl
from .. import jose
from ..dpop import Checker, ProofRefused
from ..server.guards import ImpliedScopes
from ..urls import audience_of, covers_url
from .clients import ClientRegistry, OAuthClient
from .grants import AccessToken, Grant, GrantExchange, GrantStore, bind_claims, narrow_scopes
from .login import Login, LoginEnded, Upstream, UpstreamUnreachable
from .web import NO_STORE, AttemptLimiter, OAuthError, json_response, parse_form


class TokenRequest(Struct, frozen=True):
    """A request to the token endpoint by a client that has authenticated."""

    fields: Mapping[str, str]
    client: OAuthClient
    resource: str
    issuer: str
    public_url: PublicUrl
    thumbprint: str
    """The key that the token has to be bound to; empty for none."""


class TokenEndpoint:
    """The token and revocation endpoints."""

    def __init__(
        self,
        clients: ClientRegistry,
        grants: GrantStore,
        *,
        upstream: Upstream | None,
        checker: Checker,
        knows_user: Callable[[str], bool],
        list_scopes: Callable[[PublicUrl], Mapping[str, str]],
        implies: ImpliedScopes | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clients, self._grants, self._upstream = clients, grants, upstream
        self._checker, self._knows_user, self._list_scopes = checker, knows_user, list_scopes
        self._implies, self._now = implies, now
        self._limiter = AttemptLimiter(300, 0.2, now)
        self._renewing: set[str] = set()
        """The grants that are being renewed at the upstream."""

    async def token(self, request: HttpRequest, issuer: str, public_url: PublicUrl) -> HttpResponse:
        """Answer a token request: https://www.rfc-editor.org/rfc/rfc6749#section-3.2."""
        self._limiter.require(request.address)
        fields, resources = parse_form(request)
        client = await self._clients.authenticate(request, fields, issuer, public_url)
        resource = requested_resource(resources, public_url)
        grant_type = fields.get("grant_type", "")
        grant = self._GRANTS.get(grant_type)
        if grant is None:
            raise OAuthError(
                "unsupported_grant_type", f"grant_type must be one of {', '.join(self._GRANTS)}"
            )
        if grant_type not in client.grant_types and grant_type != "refresh_token":
            raise OAuthError("unauthorized_client", "this client may not use that grant_type")
        thumbprint = self._check_proof(request, issuer, public_url)
        reply = await grant(
            self, TokenRequest(fields, client, resource, issuer, public_url, thumbprint)
        )
        headers = dict(NO_STORE)
        if thumbprint and self._checker.nonces:
            headers["dpop-nonce"] = self._checker.nonce(public_url.ring)
        return json_response(reply, headers=headers)

    async def revoke(
        self, request: HttpRequest, issuer: str, public_url: PublicUrl
    ) -> HttpResponse:
        """Answer a revocation request: https://www.rfc-editor.org/rfc/rfc7009."""
        self._limiter.require(request.address)
        fields, _ = parse_form(request)
        client = await self._clients.authenticate(request, fields, issuer, public_url)
        await self._grants.revoke(issuer, _required(fields, "token"), client.id)
        return json_response({})

    async def _redeem_code(self, token_request: TokenRequest) -> dict[str, Any]:
        fields, client, issuer = token_request.fields, token_request.client, token_request.issuer
        code = _required(fields, "code")
        verifier, uri = fields.get("code_verifier", ""), fields.get("redirect_uri")

        def matches(grant: Grant) -> bool:
            # OAuth 2.1 has no redirect_uri here any more, since PKCE does its work. If there is
            # one, it has to be right.
            return matches_challenge(verifier, grant.challenge) and uri in (
                None,
                grant.redirect_uri,
            )

        _, grant, _ = await self._grants.find(issuer, code, client.id)
        narrow_resource(grant.resource, token_request)
        exchange = await self._grants.redeem(issuer, code, client.id, matches)
        if token_request.thumbprint and client.auth_method == "none":
            exchange = await self._grants.bind(issuer, exchange, token_request.thumbprint)
        await self._clients.extend(client, issuer)
        return await self._reply(exchange, exchange.grant.scopes, token_request)

    async def _refresh(self, token_request: TokenRequest) -> dict[str, Any]:
        fields, client, issuer = token_request.fields, token_request.client, token_request.issuer
        token = _required(fields, "refresh_token")
        id, grant, _ = await self._grants.find(issuer, token, client.id)
        scopes = narrow_scopes(fields.get("scope"), grant.scopes, self._implies)
        narrow_resource(grant.resource, token_request)
        if not self._knows_user(grant.user):
            await self._grants.end(issuer, id)
            raise OAuthError("invalid_grant", "the user may no longer log in here")
        if id in self._renewing:
            raise OAuthError(
                "temporarily_unavailable",
                "this token is being exchanged right now",
                503,
                {"retry-after": "1"},
            )
        exchange = await self._grants.refresh(issuer, token, client.id, token_request.thumbprint)
        if exchange.upstream and self._upstream is not None:
            self._renewing.add(id)
            try:
                exchange = await self._renew_upstream(self._upstream, exchange, token_request)
            finally:
                self._renewing.discard(id)
        if not exchange.repeated:
            await self._clients.extend(client, issuer)
        return await self._reply(exchange, scopes, token_request)

    async def _client_credentials(self, token_request: TokenRequest) -> dict[str, Any]:
        client = token_request.client
        allowed = (
            tuple(self._list_scopes(token_request.public_url))
            if client.scopes is None
            else client.scopes
        )
        access = AccessToken(
            user=client.id,
            client=client.id,
            resource=token_request.resource or token_request.public_url.base,
            scopes=narrow_scopes(token_request.fields.get("scope"), allowed, self._implies),
            expires=self._now() + self._grants.access_life,
            claims=bind_claims({}, token_request.thumbprint),
        )
        return await self._issue(access, None, self._grants.access_life, token_request)

    _GRANTS = {
        "authorization_code": _redeem_code,
        "refresh_token": _refresh,
        "client_credentials": _client_credentials,
    }

    async def _renew_upstream(
        self, upstream: Upstream, exchange: GrantExchange, token_request: TokenRequest
    ) -> GrantExchange:
        grant = exchange.grant
        try:
            login = await upstream.renew(
                Login(grant.user, grant.claims, exchange.upstream), token_request.public_url
            )
        except LoginEnded:
            await self._grants.end(token_request.issuer, exchange.id)
            raise OAuthError(
                "invalid_grant", "the login at the upstream provider has ended; log in again"
            ) from None
        except UpstreamUnreachable:
            await self._grants.undo(token_request.issuer, exchange)
            raise OAuthError(
                "temporarily_unavailable",
                "the upstream provider cannot be reached; the refresh token stays valid",
                503,
                {"retry-after": "5"},
            ) from None
        return await self._grants.renew(token_request.issuer, exchange, login)

    async def _reply(
        self, exchange: GrantExchange, scopes: tuple[str, ...], token_request: TokenRequest
    ) -> dict[str, Any]:
        grant, seconds = exchange.grant, self._grants.access_seconds(exchange.grant)
        access = AccessToken(
            user=grant.user,
            client=grant.client,
            resource=narrow_resource(grant.resource, token_request),
            scopes=scopes,
            expires=self._now() + seconds,
            claims=bind_claims(grant.claims, token_request.thumbprint),
        )
        reply = await self._issue(access, exchange.id, seconds, token_request)
        return {**reply, "refresh_token": exchange.secret} if grant.refreshes else reply

    async def _issue(
        self, access: AccessToken, grant_id: str | None, seconds: float, token_request: TokenRequest
    ) -> dict[str, Any]:
        reply = {
            "access_token": await self._grants.issue(token_request.issuer, grant_id, access),
            "token_type": "DPoP" if token_request.thumbprint else "Bearer",
            "expires_in": int(seconds),
        }
        return {**reply, "scope": " ".join(access.scopes)} if access.scopes else reply

    def _check_proof(self, request: HttpRequest, issuer: str, public_url: PublicUrl) -> str:
        """Return the thumbprint of the key that the token has to be bound to; empty for none."""
        proof = request.headers.get("dpop")
        if proof is None and not self._checker.required:
            return ""
        try:
            return self._checker.check(
                proof, request.method, f"{issuer}/token", ring=public_url.ring
            )
        except ProofRefused as error:
            code = "use_dpop_nonce" if error.nonce else "invalid_dpop_proof"
            nonce = {"dpop-nonce": self._checker.nonce(public_url.ring)} if error.nonce else {}
            raise OAuthError(code, f"the DPoP proof is refused: {error}", 400, nonce) from None


def matches_challenge(verifier: str, challenge: str) -> bool:
    """Tell whether a PKCE verifier belongs to this S256 challenge:
    https://www.rfc-editor.org/rfc/rfc7636#section-4.6"""
    return (
        43 <= len(verifier) <= 128
        and verifier.isascii()
        and compare_digest(jose.s256(verifier).encode(), challenge.encode())
    )


def requested_resource(resources: list[str], public_url: PublicUrl) -> str:
    """Return the canonical URL of the endpoint that a token is requested for; empty if none is
    named, and the token is for all of them: https://www.rfc-editor.org/rfc/rfc8707#section-2."""
    named = {audience_of(resource) for resource in resources}
    valid = all(
        covers_url(public_url.base, resource) and not {"#", "?"} & set(resource)
        for resource in resources
    )
    if not valid or len(named) > 1:
        raise OAuthError(
            "invalid_target",
            "tokens are issued for one endpoint of this server, and the resource is not one",
        )
    return named.pop() if named else ""


def narrow_resource(granted: str, token_request: TokenRequest) -> str:
    """Return what a token is for: what was granted, or a part of it."""
    if token_request.resource in ("", granted):
        return granted
    if granted != token_request.public_url.base:
        raise OAuthError("invalid_target", "the resource is not the one that was granted")
    return token_request.resource


def _required(fields: Mapping[str, str], name: str) -> str:
    if name not in fields:
        raise OAuthError("invalid_request", f"the {name} is missing")
    return fields[name]
