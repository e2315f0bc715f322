"""The grants that users give to clients, with their codes and tokens.

A grant is one row. Its first secret is the authorization code, and its later secrets are refresh
tokens. Each exchange replaces the secret atomically. After the exchange, the new secret is valid,
and the previous one works only for a short grace period. Using any older secret is a replay, which
ends the grant and deletes its access tokens (its children in the storage). A secret has the form
`id.random`, where `id` is the id of the grant, so even an old secret that is no longer stored is
recognised.

    code ──redeem──> refresh token 1 ──refresh──> refresh token 2 ──> …
             └ access token    └ access token         (any earlier one: the grant ends)

The grace period is for clients that send two refresh requests at the same time or do not receive
the response. During that period, exchanging the previous token returns the same successor again.
Only digests of secrets are stored. Data that must be recoverable (the successor, and the refresh
token of an upstream provider) is sealed with a secret that only the client has:
https://www.rfc-editor.org/rfc/rfc9700#section-4.14.2
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...sealing import Forged, KeyRing
from ..server.guards import ImpliedScopes, expand_scopes
from .login import Login
from .storage import Storage, digest_of, row_key
from .web import OAuthError

CODE_LIFETIME_SECONDS = 60.0
NEXT, UPSTREAM = "next refresh token", "upstream refresh token"


class AccessToken(Struct, frozen=True, omit_defaults=True):
    """The data stored for an access token."""

    user: str
    client: str
    resource: str
    scopes: tuple[str, ...]
    expires: float
    claims: dict[str, Any] = {}


class Grant(Struct, frozen=True, omit_defaults=True):
    """The access that a user has granted to a client."""

    user: str
    client: str
    resource: str
    scopes: tuple[str, ...]
    secret: str = ""
    """The digest of the current secret."""
    claims: dict[str, Any] = {}
    challenge: str = ""
    """The PKCE challenge for the code, or empty after the code has been redeemed."""
    redirect_uri: str = ""
    refreshes: bool = True
    previous: str = ""
    """The digest of the previous secret."""
    exchanged_at: float = 0.0
    successor: str = ""
    """The current secret, sealed with the previous one."""
    upstream: str = ""
    """The upstream provider's refresh token, sealed with the current secret."""
    ends: float | None = None
    """When the upstream provider's access token expires. Access tokens for this grant expire no
    later than this time."""
    thumbprint: str = ""
    """The thumbprint of the key that the refresh token is bound to."""


class GrantExchange(Struct, frozen=True):
    """The result of exchanging a secret: the updated grant, and the new secret for the client."""

    id: str
    grant: Grant
    row: bytes
    row_before: bytes
    secret: str
    upstream: str
    """The upstream provider's refresh token, or empty if there is none or the exchange is a
    repeat."""
    repeated: bool = False
    """Whether the client repeated the last exchange within the grace period."""


class GrantStore(Struct, frozen=True, eq=False, kw_only=True):
    """Keeps the grants from one or more issuers in a `Storage`."""

    storage: Storage
    access_life: float
    refresh_life: float
    grace: float
    now: Callable[[], float]

    async def begin(self, issuer: str, grant: Grant, upstream: str = "") -> str:
        """Store a new grant and return its authorization code."""
        id = secrets.token_urlsafe(16)
        code = f"{id}.{secrets.token_urlsafe(32)}"
        sealed = _seal(code, UPSTREAM, upstream) if upstream else ""
        row = msgspec.json.encode(replace(grant, secret=digest_of(code), upstream=sealed))
        await self.storage.add(
            row_key("grant", issuer, id), row, self.now() + CODE_LIFETIME_SECONDS
        )
        return code

    async def find(self, issuer: str, secret: str, client: str) -> tuple[str, Grant, bytes]:
        """Return the id, grant and row that a secret belongs to. If another client presents the
        secret, the secret has leaked and the grant ends."""
        id = secret.partition(".")[0]
        row = await self.storage.get(row_key("grant", issuer, id))
        if row is None:
            raise _invalid_grant(
                "the grant expired, was revoked, was already used, or never existed"
            )
        grant = msgspec.json.decode(row, type=Grant)
        if grant.client != client:
            await self.end(issuer, id)
            raise _invalid_grant("the grant belongs to another client")
        return id, grant, row

    async def redeem(
        self,
        issuer: str,
        code: str,
        client: str,
        matches: Callable[[Grant], bool],
        thumbprint: str,
    ) -> GrantExchange:
        """Exchange a code. If the code does not match its request or was already used, the grant
        ends. If a thumbprint is given, the refresh token is bound to the key with that thumbprint:
        https://www.rfc-editor.org/rfc/rfc9449#section-5"""
        id, grant, row = await self.find(issuer, code, client)
        if grant.challenge and grant.secret == digest_of(code) and matches(grant):
            grant = replace(grant, thumbprint=thumbprint)
            exchange = await self._exchange(issuer, id, grant, row, code)
            if exchange is not None:
                return exchange
        await self.end(issuer, id)
        raise _invalid_grant(
            "the code was already used, or the redirect_uri or code_verifier does not match"
        )

    async def refresh(self, issuer: str, token: str, client: str, thumbprint: str) -> GrantExchange:
        """Exchange a refresh token. If the token is older than the previous one, the grant ends."""
        for _ in range(2):
            id, grant, row = await self.find(issuer, token, client)
            digest = digest_of(token)
            if grant.challenge:
                break
            if grant.thumbprint and grant.thumbprint != thumbprint:
                raise _invalid_grant("the token is bound to another key")
            if digest == grant.secret:
                exchange = await self._exchange(issuer, id, grant, row, token)
                if exchange is not None:
                    return exchange
            elif digest == grant.previous and self.now() <= grant.exchanged_at + self.grace:
                successor = _open(token, NEXT, grant.successor)
                return GrantExchange(id, grant, row, row, successor, "", repeated=True)
            else:
                break
        await self.end(issuer, id)
        raise _invalid_grant(
            "the token was already used, so the grant and all its tokens have been revoked"
        )

    async def _exchange(
        self, issuer: str, id: str, grant: Grant, row: bytes, old: str
    ) -> GrantExchange | None:
        """Replace the secret of a grant. Returns None if another request has already replaced
        it."""
        new = f"{id}.{secrets.token_urlsafe(32)}"
        upstream = _open(old, UPSTREAM, grant.upstream) if grant.upstream else ""
        is_code = bool(grant.challenge)
        changed = replace(
            grant,
            challenge="",
            redirect_uri="",
            secret=digest_of(new) if grant.refreshes else "",
            previous="" if is_code else grant.secret,  # codes have no grace period
            successor="" if is_code else _seal(old, NEXT, new),
            exchanged_at=self.now(),
            upstream=_seal(new, UPSTREAM, upstream) if upstream else "",
        )
        after = msgspec.json.encode(changed)
        key = row_key("grant", issuer, id)
        if not await self.storage.change(key, row, after, self._expiry(changed)):
            return None
        return GrantExchange(id, changed, after, row, new, upstream)

    async def undo(self, issuer: str, exchange: GrantExchange) -> None:
        """Undo an exchange whose result the client will not receive."""
        before = msgspec.json.decode(exchange.row_before, type=Grant)
        await self.storage.change(
            row_key("grant", issuer, exchange.id),
            exchange.row,
            exchange.row_before,
            self._expiry(before),
        )

    async def renew(self, issuer: str, exchange: GrantExchange, login: Login) -> GrantExchange:
        """Store the refresh token and the user's claims from a login that was renewed at the
        upstream provider."""
        sealed = _seal(exchange.secret, UPSTREAM, login.refresh_token or "")
        grant = replace(exchange.grant, upstream=sealed, claims=login.claims, ends=login.ends)
        row = msgspec.json.encode(grant)
        key = row_key("grant", issuer, exchange.id)
        await self.storage.change(key, exchange.row, row, self._expiry(grant))
        return replace(exchange, grant=grant)

    async def issue(self, issuer: str, id: str | None, access: AccessToken) -> str:
        """Create and store an access token, which is deleted with its grant. Returns the token."""
        token = secrets.token_urlsafe(32)
        parent = None if id is None else row_key("grant", issuer, id)
        row = msgspec.json.encode(access)
        if not await self.storage.add(
            row_key("access", issuer, token), row, access.expires, parent
        ):
            raise _invalid_grant("the grant has just been revoked")
        return token

    async def look_up(self, issuer: str, token: str) -> AccessToken | None:
        """Return the data of an access token, or None if the token is not valid."""
        row = await self.storage.get(row_key("access", issuer, token))
        return None if row is None else msgspec.json.decode(row, type=AccessToken)

    async def revoke(self, issuer: str, token: str, client: str) -> None:
        """Revoke an access token, or the grant that a refresh token belongs to:
        https://www.rfc-editor.org/rfc/rfc7009#section-2"""
        access = await self.look_up(issuer, token)
        if access is not None and access.client == client:
            await self.storage.delete(row_key("access", issuer, token))
        elif access is None and "." in token:
            try:
                id, grant, _ = await self.find(issuer, token, client)
            except OAuthError:
                return  # it is already invalid
            if digest_of(token) in (grant.secret, grant.previous):
                await self.end(issuer, id)

    async def end(self, issuer: str, id: str) -> None:
        """End a grant and delete all its tokens."""
        await self.storage.delete(row_key("grant", issuer, id))

    def access_seconds(self, grant: Grant) -> float:
        """Return how long a new access token for this grant is valid, in seconds."""
        if grant.ends is None:
            return self.access_life
        return max(0.0, min(self.access_life, grant.ends - self.now()))

    def _expiry(self, grant: Grant) -> float:
        if grant.challenge:
            return self.now() + CODE_LIFETIME_SECONDS
        seconds = self.refresh_life if grant.refreshes else self.access_seconds(grant)
        return self.now() + seconds


def _invalid_grant(reason: str) -> OAuthError:
    return OAuthError("invalid_grant", f"this code or token was refused: {reason}")


def _seal(secret: str, purpose: str, text: str) -> str:
    return KeyRing([secret.encode()]).seal(purpose, text.encode())


def _open(secret: str, purpose: str, sealed: str) -> str:
    try:
        return KeyRing([secret.encode()]).open(purpose, sealed).decode()
    except Forged:
        raise _invalid_grant("the grant cannot be decrypted") from None


def narrow_scopes(
    requested: str | None, granted: tuple[str, ...], implies: ImpliedScopes | None = None
) -> tuple[str, ...]:
    """Return the scopes for a token: the requested scopes, or all granted scopes. Raises OAuthError
    if a requested scope was not granted."""
    wanted = dict.fromkeys((requested or "").split())
    wanted.pop("offline_access", None)
    if not set(wanted) <= set(expand_scopes(granted, implies)):
        raise OAuthError("invalid_scope", "the requested scopes exceed the granted scopes")
    return tuple(wanted) or granted


def bind_claims(claims: Mapping[str, Any], thumbprint: str) -> dict[str, Any]:
    """Return the claims for a token, which is bound to a key if a thumbprint is given:
    https://www.rfc-editor.org/rfc/rfc9449#section-6.1"""
    return {**claims, "cnf": {"jkt": thumbprint}} if thumbprint else dict(claims)
