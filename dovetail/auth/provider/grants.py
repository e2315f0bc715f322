"""What users have granted, and the secrets that represent it.

A grant is one row. Its first secret is the authorization code, the later ones are refresh tokens,
and each exchange replaces the secret in one atomic step. From then on the new secret is valid, the
one before it only for a short time of grace, and any other is a replay, which ends the grant and
with it all its access tokens (they are its children in the storage). Since a secret is
`grant.random`, even a very old one is recognised, although nothing of it is stored.

    code ──redeem──> refresh token 1 ──refresh──> refresh token 2 ──> …
             └ access token    └ access token         (any earlier one: the grant ends)

The time of grace is for clients that refresh twice at once, or never got the answer: the last token
again yields the very same successor. Only digests of secrets are stored. What has to be recovered
(the successor, and the refresh token of an upstream provider) is sealed under a secret that only
the client has. https://www.rfc-editor.org/rfc/rfc9700#section-4.14.2
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
    """What an access token gives access to."""

    user: str
    client: str
    resource: str
    scopes: tuple[str, ...]
    expires: float
    claims: dict[str, Any] = {}


class Grant(Struct, frozen=True, omit_defaults=True):
    """What a user has granted to a client."""

    user: str
    client: str
    resource: str
    scopes: tuple[str, ...]
    secret: str = ""
    """The digest of the secret that is valid now."""
    claims: dict[str, Any] = {}
    challenge: str = ""
    """The PKCE challenge of the code. Empty once the code was redeemed."""
    redirect_uri: str = ""
    refreshes: bool = True
    previous: str = ""
    """The digest of the secret before."""
    exchanged_at: float = 0.0
    successor: str = ""
    """The secret that is valid now, sealed under the previous one."""
    upstream: str = ""
    """The refresh token of the upstream, sealed under the secret that is valid now."""
    ends: float | None = None
    """When the upstream's own access token expires: ours do not live longer."""
    thumbprint: str = ""
    """The key that the refresh token is bound to."""


class GrantExchange(Struct, frozen=True):
    """An exchange of a secret: the grant as it is now, and what to send to the client."""

    id: str
    grant: Grant
    row: bytes
    row_before: bytes
    secret: str
    upstream: str
    """The refresh token of the upstream; empty if there is none, or if this is repeated."""
    repeated: bool = False
    """Whether this is the same exchange again, within the time of grace."""


class GrantStore(Struct, frozen=True, eq=False, kw_only=True):
    """The grants of one issuer or several, in a `Storage`."""

    storage: Storage
    access_life: float
    refresh_life: float
    grace: float
    now: Callable[[], float]

    async def begin(self, issuer: str, grant: Grant, upstream: str = "") -> str:
        """Store a new grant. Returns its authorization code."""
        id = secrets.token_urlsafe(16)
        code = f"{id}.{secrets.token_urlsafe(32)}"
        sealed = _seal(code, UPSTREAM, upstream) if upstream else ""
        row = msgspec.json.encode(replace(grant, secret=digest_of(code), upstream=sealed))
        await self.storage.add(
            row_key("grant", issuer, id), row, self.now() + CODE_LIFETIME_SECONDS
        )
        return code

    async def find(self, issuer: str, secret: str, client: str) -> tuple[str, Grant, bytes]:
        """Return the id, grant and row that a secret belongs to. If another client presents it, the
        secret has leaked, and the grant ends."""
        id = secret.partition(".")[0]
        row = await self.storage.get(row_key("grant", issuer, id))
        if row is None:
            raise _invalid_grant("it has expired, was revoked or used before, or never existed")
        grant = msgspec.json.decode(row, type=Grant)
        if grant.client != client:
            await self.end(issuer, id)
            raise _invalid_grant("it belongs to another client")
        return id, grant, row

    async def redeem(
        self,
        issuer: str,
        code: str,
        client: str,
        matches: Callable[[Grant], bool],
        thumbprint: str,
    ) -> GrantExchange:
        """Exchange a code. One that does not match its request, or was used before, ends the
        grant. The refresh token is bound to the key with this thumbprint, if there is one:
        https://www.rfc-editor.org/rfc/rfc9449#section-5."""
        id, grant, row = await self.find(issuer, code, client)
        if grant.challenge and grant.secret == digest_of(code) and matches(grant):
            grant = replace(grant, thumbprint=thumbprint)
            exchange = await self._exchange(issuer, id, grant, row, code)
            if exchange is not None:
                return exchange
        await self.end(issuer, id)
        raise _invalid_grant(
            "it was used before, or redirect_uri or code_verifier do not belong to it"
        )

    async def refresh(self, issuer: str, token: str, client: str, thumbprint: str) -> GrantExchange:
        """Exchange a refresh token. One that is older than the previous one ends the grant."""
        for _ in range(2):
            id, grant, row = await self.find(issuer, token, client)
            digest = digest_of(token)
            if grant.challenge:
                break
            if grant.thumbprint and grant.thumbprint != thumbprint:
                raise _invalid_grant("it is bound to another key")
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
        raise _invalid_grant("it was used before; everything that was granted with it has ended")

    async def _exchange(
        self, issuer: str, id: str, grant: Grant, row: bytes, old: str
    ) -> GrantExchange | None:
        """Replace the secret of a grant; None if another request was faster."""
        new = f"{id}.{secrets.token_urlsafe(32)}"
        upstream = _open(old, UPSTREAM, grant.upstream) if grant.upstream else ""
        is_code = bool(grant.challenge)
        changed = replace(
            grant,
            challenge="",
            redirect_uri="",
            secret=digest_of(new) if grant.refreshes else "",
            previous="" if is_code else grant.secret,  # codes have no time of grace
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
        """Take back an exchange whose result the client will not get."""
        before = msgspec.json.decode(exchange.row_before, type=Grant)
        await self.storage.change(
            row_key("grant", issuer, exchange.id),
            exchange.row,
            exchange.row_before,
            self._expiry(before),
        )

    async def renew(self, issuer: str, exchange: GrantExchange, login: Login) -> GrantExchange:
        """Store the renewed login at the upstream: its refresh token, and the user's claims."""
        sealed = _seal(exchange.secret, UPSTREAM, login.refresh_token or "")
        grant = replace(exchange.grant, upstream=sealed, claims=login.claims, ends=login.ends)
        row = msgspec.json.encode(grant)
        key = row_key("grant", issuer, exchange.id)
        await self.storage.change(key, exchange.row, row, self._expiry(grant))
        return replace(exchange, grant=grant)

    async def issue(self, issuer: str, id: str | None, access: AccessToken) -> str:
        """Store an access token, which ends with its grant. Returns its text."""
        token = secrets.token_urlsafe(32)
        parent = None if id is None else row_key("grant", issuer, id)
        row = msgspec.json.encode(access)
        if not await self.storage.add(
            row_key("access", issuer, token), row, access.expires, parent
        ):
            raise _invalid_grant("it was revoked just now")
        return token

    async def look_up(self, issuer: str, token: str) -> AccessToken | None:
        """Return what an access token gives access to; None if it is not valid."""
        row = await self.storage.get(row_key("access", issuer, token))
        return None if row is None else msgspec.json.decode(row, type=AccessToken)

    async def revoke(self, issuer: str, token: str, client: str) -> None:
        """End an access token, or the grant of a refresh token:
        https://www.rfc-editor.org/rfc/rfc7009#section-2."""
        access = await self.look_up(issuer, token)
        if access is not None and access.client == client:
            await self.storage.delete(row_key("access", issuer, token))
        elif access is None and "." in token:
            try:
                id, grant, _ = await self.find(issuer, token, client)
            except OAuthError:
                return  # it is not valid any more, as requested
            if digest_of(token) in (grant.secret, grant.previous):
                await self.end(issuer, id)

    async def end(self, issuer: str, id: str) -> None:
        """End a grant, with all its tokens."""
        await self.storage.delete(row_key("grant", issuer, id))

    def access_seconds(self, grant: Grant) -> float:
        """Return for how many seconds an access token of this grant is valid."""
        if grant.ends is None:
            return self.access_life
        return max(0.0, min(self.access_life, grant.ends - self.now()))

    def _expiry(self, grant: Grant) -> float:
        if grant.challenge:
            return self.now() + CODE_LIFETIME_SECONDS
        seconds = self.refresh_life if grant.refreshes else self.access_seconds(grant)
        return self.now() + seconds


def _invalid_grant(reason: str) -> OAuthError:
    return OAuthError("invalid_grant", f"this code or token is refused: {reason}")


def _seal(secret: str, purpose: str, text: str) -> str:
    return KeyRing([secret.encode()]).seal(purpose, text.encode())


def _open(secret: str, purpose: str, sealed: str) -> str:
    try:
        return KeyRing([secret.encode()]).open(purpose, sealed).decode()
    except Forged:
        raise _invalid_grant("it cannot be opened") from None


def narrow_scopes(
    requested: str | None, granted: tuple[str, ...], implies: ImpliedScopes | None = None
) -> tuple[str, ...]:
    """Return the scopes of a token: what was granted, or a part of it, never more."""
    wanted = dict.fromkeys((requested or "").split())
    wanted.pop("offline_access", None)
    if not set(wanted) <= set(expand_scopes(granted, implies)):
        raise OAuthError("invalid_scope", "these scopes are more than was granted")
    return tuple(wanted) or granted


def bind_claims(claims: Mapping[str, Any], thumbprint: str) -> dict[str, Any]:
    """Return the claims of a token, bound to a key if a thumbprint is given:
    https://www.rfc-editor.org/rfc/rfc9449#section-6.1."""
    return {**claims, "cnf": {"jkt": thumbprint}} if thumbprint else dict(claims)
