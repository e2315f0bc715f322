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
from typing import Any

from msgspec import Struct

from ...ports import HttpRequest, HttpResponse, Site
from .. import pkce
from ..dpop import Checker, ProofRefused
from ..guard import Implies
from ..urls import covers, place
from .clients import Client, Clients
from .grants import Access, Grant, Grants, Turn, confirmed, scoped
from .upstream import Login, LoginEnded, Unreachable, Upstream
from .web import NO_STORE, Rates, Refused, form, json


class Request(Struct, frozen=True):
    """What a client asks for, once it has proved itself."""

    fields: Mapping[str, str]
    client: Client
    resource: str
    issuer: str
    site: Site
    thumbprint: str
    """The key that the token is to be bound to; empty for none."""


class Tokens:
    """The endpoints."""

    def __init__(
        self,
        clients: Clients,
        grants: Grants,
        *,
        upstream: Upstream | None,
        checker: Checker,
        knows: Callable[[str], bool],
        offer: Callable[[Site], Mapping[str, str]],
        implies: Implies | None = None,
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
        self._rates = Rates(300, 0.2, now)
        self._busy: set[str] = set()
        """The grants that are being renewed at the upstream."""

    async def token(self, request: HttpRequest, issuer: str, site: Site) -> HttpResponse:
        """The token endpoint: https://www.rfc-editor.org/rfc/rfc6749#section-3.2."""
        self._rates.spend(request.address)
        fields, resources = form(request)
        client = await self._clients.authenticate(request, fields, issuer, site)
        resource = target(resources, site)
        kind = fields.get("grant_type", "")
        give = self._GRANTS.get(kind)
        if give is None:
            raise Refused(
                "unsupported_grant_type", f"grant_type must be one of {', '.join(self._GRANTS)}"
            )
        if kind not in client.grants and kind != "refresh_token":
            raise Refused("unauthorized_client", "this client may not use that grant_type")
        thumbprint = self._prove(request, issuer, site)
        reply = await give(self, Request(fields, client, resource, issuer, site, thumbprint))
        headers = (
            {"dpop-nonce": self._checker.nonce(site.ring)}
            if thumbprint and self._checker.nonces
            else {}
        )
        return json(reply, headers={**NO_STORE, **headers})

    async def revoke(self, request: HttpRequest, issuer: str, site: Site) -> HttpResponse:
        """The revocation endpoint: https://www.rfc-editor.org/rfc/rfc7009."""
        self._rates.spend(request.address)
        fields, _ = form(request)
        client = await self._clients.authenticate(request, fields, issuer, site)
        token = fields.get("token")
        if token is None:
            raise Refused("invalid_request", "the token is missing")
        await self._grants.revoke(issuer, token, client.id)
        return json({})

    async def _code(self, asked: Request) -> dict[str, Any]:
        fields, client, issuer = asked.fields, asked.client, asked.issuer
        code, verifier, uri = (
            fields.get("code"),
            fields.get("code_verifier", ""),
            fields.get("redirect_uri"),
        )
        if code is None:
            raise Refused("invalid_request", "the code is missing")

        def fits(grant: Grant) -> bool:
            # OAuth 2.1 has no redirect_uri here any more, as PKCE does its work; where there is
            # one, it has to be right.
            return pkce.matches(verifier, grant.challenge) and uri in (None, grant.redirect_uri)

        _, grant, _ = await self._grants.find(issuer, code, client.id)
        narrowed(grant.resource, asked)

        turn = await self._grants.redeem(issuer, code, client.id, fits)
        if asked.thumbprint and client.method == "none":
            turn = await self._grants.bind(issuer, turn, asked.thumbprint)
        await self._clients.used(client, issuer)
        return await self._reply(turn, turn.grant.scopes, asked)

    async def _refresh(self, asked: Request) -> dict[str, Any]:
        fields, client, issuer = asked.fields, asked.client, asked.issuer
        token = fields.get("refresh_token")
        if token is None:
            raise Refused("invalid_request", "the refresh_token is missing")
        id, grant, _ = await self._grants.find(issuer, token, client.id)
        scopes = scoped(fields.get("scope"), grant.scopes, self._implies)
        narrowed(grant.resource, asked)
        if not self._knows(grant.user):
            await self._grants.end(issuer, id)
            raise Refused("invalid_grant", "the user may not log in here any more")
        if id in self._busy:
            raise Refused(
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

    async def _own(self, asked: Request) -> dict[str, Any]:
        client = asked.client
        offered = tuple(self._offer(asked.site)) if client.scopes is None else client.scopes
        scopes = scoped(asked.fields.get("scope"), offered, self._implies)
        life = self._grants.access_life
        access = Access(
            user=client.id,
            client=client.id,
            resource=asked.resource or asked.site.base,
            scopes=scopes,
            expires=self._now() + life,
            claims=confirmed({}, asked.thumbprint),
        )
        return _told(
            await self._grants.access(asked.issuer, None, access), life, scopes, asked.thumbprint
        )

    _GRANTS = {"authorization_code": _code, "refresh_token": _refresh, "client_credentials": _own}

    async def _renew(self, upstream: Upstream, turn: Turn, asked: Request) -> Turn:
        issuer = asked.issuer
        try:
            login = await upstream.renew(
                Login(turn.grant.user, turn.grant.claims, turn.upstream), asked.site
            )
        except LoginEnded:
            await self._grants.end(issuer, turn.id)
            raise Refused(
                "invalid_grant", "the login has ended where it was made; log in again"
            ) from None
        except Unreachable:
            await self._grants.undo(issuer, turn)
            why = (
                "the provider that users log in at cannot be reached; the refresh token is "
                "still good"
            )
            raise Refused("temporarily_unavailable", why, 503, {"retry-after": "5"}) from None
        return await self._grants.renewed(issuer, turn, login)

    async def _reply(self, turn: Turn, scopes: tuple[str, ...], asked: Request) -> dict[str, Any]:
        grant, life = turn.grant, self._grants.life(turn.grant)
        access = Access(
            user=grant.user,
            client=grant.client,
            resource=narrowed(grant.resource, asked),
            scopes=scopes,
            expires=self._now() + life,
            claims=confirmed(grant.claims, asked.thumbprint),
        )
        reply = _told(
            await self._grants.access(asked.issuer, turn.id, access), life, scopes, asked.thumbprint
        )
        return {**reply, "refresh_token": turn.secret} if grant.refreshes else reply

    def _prove(self, request: HttpRequest, issuer: str, site: Site) -> str:
        """The key that the token is to be bound to; empty for none."""
        proof = request.headers.get("dpop")
        if proof is None and not self._checker.required:
            return ""
        try:
            return self._checker.check(proof, request.method, f"{issuer}/token", ring=site.ring)
        except ProofRefused as refused:
            if refused.nonce:
                nonce = {"dpop-nonce": self._checker.nonce(site.ring)}
                raise Refused(
                    "use_dpop_nonce", f"the proof is refused: {refused}", 400, nonce
                ) from None
            raise Refused("invalid_dpop_proof", f"the proof is refused: {refused}") from None


def target(resources: list[str], site: Site) -> str:
    """The endpoint of this server that a token is asked for, by its canonical URI; empty where none
    is named, and the token is for all of them: https://www.rfc-editor.org/rfc/rfc8707#section-2."""
    named = {place(resource) for resource in resources}
    sound = all(
        covers(site.base, resource) and not {"#", "?"} & set(resource) for resource in resources
    )
    if not sound or len(named) > 1:
        raise Refused(
            "invalid_target",
            "tokens from here are for one endpoint of this server; the resource is none",
        )
    return named.pop() if named else ""


def narrowed(granted: str, asked: Request) -> str:
    """What a token is for: what was granted, or a part of it."""
    if asked.resource in ("", granted):
        return granted
    if granted != asked.site.base:
        raise Refused("invalid_target", "the resource is not the one that was granted")
    return asked.resource


def _told(token: str, life: float, scopes: tuple[str, ...], thumbprint: str) -> dict[str, Any]:
    kind = "DPoP" if thumbprint else "Bearer"
    reply: dict[str, Any] = {"access_token": token, "token_type": kind, "expires_in": int(life)}
    return {**reply, "scope": " ".join(scopes)} if scopes else reply
