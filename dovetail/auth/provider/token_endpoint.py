"""What programs call: the token endpoint and the revocation endpoint.

A client proves who it is, then shows a code, a refresh token, or nothing more
(`client_credentials`), and gets an access token for this server and no other. A request with a DPoP
proof gets a token that is bound to its key.

Where users log in at an upstream provider, no refresh goes through without it: the upstream's
refresh token is used first, and if the upstream says that the login has ended, so has the grant.
Until then an access token stands for the login, which is why it lives so short.
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
from .upstream import Login, LoginEnded, Upstream, UpstreamUnreachable
from .web import NO_STORE, AttemptLimiter, OAuthError, json_response, parse_form


class TokenRequest(Struct, frozen=True):
    """What a client asks for, once it has proved itself."""

    fields: Mapping[str, str]
    client: OAuthClient
    resource: str
    issuer: str
    site: PublicUrl
    thumbprint: str
    """The key that the token is to be bound to; empty for none."""


class TokenEndpoint:
    """The endpoints."""

    def __init__(
        self,
        clients: ClientRegistry,
        grants: GrantStore,
        *,
        upstream: Upstream | None,
        checker: Checker,
        knows: Callable[[str], bool],
        offer: Callable[[PublicUrl], Mapping[str, str]],
        implies: ImpliedScopes | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clients, self._grants, self._upstream = clients, grants, upstream
        self._checker, self._knows, self._offer, self._implies, self._now = (
            checker,
            knows,
            offer,
            implies,
            now,
        )
        self._rates = AttemptLimiter(300, 0.2, now)
        self._busy: set[str] = set()
        """The grants that are being renewed at the upstream."""

    async def token(self, request: HttpRequest, issuer: str, site: PublicUrl) -> HttpResponse:
        """The token endpoint: https://www.rfc-editor.org/rfc/rfc6749#section-3.2."""
        self._rates.require(request.address)
        fields, resources = parse_form(request)
        client = await self._clients.authenticate(request, fields, issuer, site)
        resource = requested_resource(resources, site)
        kind = fields.get("grant_type", "")
        give = self._GRANTS.get(kind)
        if give is None:
            raise OAuthError(
                "unsupported_grant_type", f"grant_type must be one of {', '.join(self._GRANTS)}"
            )
        if kind not in client.grant_types and kind != "refresh_token":
            raise OAuthError("unauthorized_client", "this client may not use that grant_type")
        thumbprint = self._prove(request, issuer, site)
        reply = await give(self, TokenRequest(fields, client, resource, issuer, site, thumbprint))
        headers = (
            {"dpop-nonce": self._checker.nonce(site.ring)}
            if thumbprint and self._checker.nonces
            else {}
        )
        return json_response(reply, headers={**NO_STORE, **headers})

    async def revoke(self, request: HttpRequest, issuer: str, site: PublicUrl) -> HttpResponse:
        """The revocation endpoint: https://www.rfc-editor.org/rfc/rfc7009."""
        self._rates.require(request.address)
        fields, _ = parse_form(request)
        client = await self._clients.authenticate(request, fields, issuer, site)
        token = fields.get("token")
        if token is None:
            raise OAuthError("invalid_request", "the token is missing")
        await self._grants.revoke(issuer, token, client.id)
        return json_response({})

    async def _code(self, asked: TokenRequest) -> dict[str, Any]:
        fields, client, issuer = asked.fields, asked.client, asked.issuer
        code, verifier, uri = (
            fields.get("code"),
            fields.get("code_verifier", ""),
            fields.get("redirect_uri"),
        )
        if code is None:
            raise OAuthError("invalid_request", "the code is missing")

        def fits(grant: Grant) -> bool:
            # OAuth 2.1 has no redirect_uri here any more, as PKCE does its work; where there is
            # one, it has to be right.
            return matches_challenge(verifier, grant.challenge) and uri in (
                None,
                grant.redirect_uri,
            )

        _, grant, _ = await self._grants.find(issuer, code, client.id)
        narrow_resource(grant.resource, asked)

        turn = await self._grants.redeem(issuer, code, client.id, fits)
        if asked.thumbprint and client.auth_method == "none":
            turn = await self._grants.bind(issuer, turn, asked.thumbprint)
        await self._clients.used(client, issuer)
        return await self._reply(turn, turn.grant.scopes, asked)

    async def _refresh(self, asked: TokenRequest) -> dict[str, Any]:
        fields, client, issuer = asked.fields, asked.client, asked.issuer
        token = fields.get("refresh_token")
        if token is None:
            raise OAuthError("invalid_request", "the refresh_token is missing")
        id, grant, _ = await self._grants.find(issuer, token, client.id)
        scopes = narrow_scopes(fields.get("scope"), grant.scopes, self._implies)
        narrow_resource(grant.resource, asked)
        if not self._knows(grant.user):
            await self._grants.end(issuer, id)
            raise OAuthError("invalid_grant", "the user may not log in here any more")
        if id in self._busy:
            raise OAuthError(
                "temporarily_unavailable",
                "it is being renewed right now",
                503,
                {"retry-after": "1"},
            )
        turn = await self._grants.refresh(issuer, token, client.id, asked.thumbprint)
        if turn.upstream and self._upstream is not None:
            self._busy.add(id)
            try:
                turn = await self._renew(self._upstream, turn, asked)
            finally:
                self._busy.discard(id)
        if turn.fresh:
            await self._clients.used(client, issuer)
        return await self._reply(turn, scopes, asked)

    async def _own(self, asked: TokenRequest) -> dict[str, Any]:
        client = asked.client
        offered = tuple(self._offer(asked.site)) if client.scopes is None else client.scopes
        scopes = narrow_scopes(asked.fields.get("scope"), offered, self._implies)
        life = self._grants.access_life
        access = AccessToken(
            user=client.id,
            client=client.id,
            resource=asked.resource or asked.site.base,
            scopes=scopes,
            expires=self._now() + life,
            claims=bind_claims({}, asked.thumbprint),
        )
        return _token_response(
            await self._grants.access(asked.issuer, None, access), life, scopes, asked.thumbprint
        )

    _GRANTS = {"authorization_code": _code, "refresh_token": _refresh, "client_credentials": _own}

    async def _renew(
        self, upstream: Upstream, turn: GrantExchange, asked: TokenRequest
    ) -> GrantExchange:
        issuer = asked.issuer
        try:
            login = await upstream.renew(
                Login(turn.grant.user, turn.grant.claims, turn.upstream), asked.site
            )
        except LoginEnded:
            await self._grants.end(issuer, turn.id)
            raise OAuthError(
                "invalid_grant", "the login has ended where it was made; log in again"
            ) from None
        except UpstreamUnreachable:
            await self._grants.undo(issuer, turn)
            why = (
                "the provider that users log in at cannot be reached; the refresh token is "
                "still good"
            )
            raise OAuthError("temporarily_unavailable", why, 503, {"retry-after": "5"}) from None
        return await self._grants.renewed(issuer, turn, login)

    async def _reply(
        self, turn: GrantExchange, scopes: tuple[str, ...], asked: TokenRequest
    ) -> dict[str, Any]:
        grant, life = turn.grant, self._grants.life(turn.grant)
        access = AccessToken(
            user=grant.user,
            client=grant.client,
            resource=narrow_resource(grant.resource, asked),
            scopes=scopes,
            expires=self._now() + life,
            claims=bind_claims(grant.claims, asked.thumbprint),
        )
        reply = _token_response(
            await self._grants.access(asked.issuer, turn.id, access), life, scopes, asked.thumbprint
        )
        return {**reply, "refresh_token": turn.secret} if grant.refreshes else reply

    def _prove(self, request: HttpRequest, issuer: str, site: PublicUrl) -> str:
        """The key that the token is to be bound to; empty for none."""
        proof = request.headers.get("dpop")
        if proof is None and not self._checker.required:
            return ""
        try:
            return self._checker.check(proof, request.method, f"{issuer}/token", ring=site.ring)
        except ProofRefused as refused:
            if refused.nonce:
                nonce = {"dpop-nonce": self._checker.nonce(site.ring)}
                raise OAuthError(
                    "use_dpop_nonce", f"the proof is refused: {refused}", 400, nonce
                ) from None
            raise OAuthError("invalid_dpop_proof", f"the proof is refused: {refused}") from None


def matches_challenge(verifier: str, challenge: str) -> bool:
    """Whether a PKCE verifier belongs to this S256 challenge:
    https://www.rfc-editor.org/rfc/rfc7636#section-4.6"""
    return (
        43 <= len(verifier) <= 128
        and verifier.isascii()
        and compare_digest(jose.s256(verifier).encode(), challenge.encode())
    )


def requested_resource(resources: list[str], site: PublicUrl) -> str:
    """The endpoint of this server that a token is asked for, by its canonical URI; empty where none
    is named, and the token is for all of them: https://www.rfc-editor.org/rfc/rfc8707#section-2."""
    named = {audience_of(resource) for resource in resources}
    sound = all(
        covers_url(site.base, resource) and not {"#", "?"} & set(resource) for resource in resources
    )
    if not sound or len(named) > 1:
        raise OAuthError(
            "invalid_target",
            "tokens from here are for one endpoint of this server; the resource is none",
        )
    return named.pop() if named else ""


def narrow_resource(granted: str, asked: TokenRequest) -> str:
    """What a token is for: what was granted, or a part of it."""
    if asked.resource in ("", granted):
        return granted
    if granted != asked.site.base:
        raise OAuthError("invalid_target", "the resource is not the one that was granted")
    return asked.resource


def _token_response(
    token: str, life: float, scopes: tuple[str, ...], thumbprint: str
) -> dict[str, Any]:
    kind = "DPoP" if thumbprint else "Bearer"
    reply: dict[str, Any] = {"access_token": token, "token_type": kind, "expires_in": int(life)}
    return {**reply, "scope": " ".join(scopes)} if scopes else reply
