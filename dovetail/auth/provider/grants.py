"""What was granted, and the secrets that stand for it.

A grant is one row. The first secret of it is the authorization code, the later ones are refresh
tokens, and each exchange turns the secret over in one atomic step: the next one is good, the one
before it only during a moment of grace, and any other is a replay, which ends the grant and with it
all its access tokens (they are its children in the storage). As a secret is `grant.random`, even
one of long ago is known for what it is, and yet nothing is kept of it.

    code ──redeem──> refresh token 1 ──refresh──> refresh token 2 ──> …
             └ access token    └ access token         (any earlier one: the grant ends)

The grace is for clients that refresh twice at once, or never got the answer: who shows the last
token again gets the very same successor. Only digests of secrets are stored; what has to be known
again (the successor, the refresh token of an upstream provider) is sealed under a secret that only
the client has. https://www.rfc-editor.org/rfc/rfc9700#section-4.14.2
"""

import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...ports import Principal
from ...sealing import Forged, KeyRing
from ..server.guards import ImpliedScopes, expand_scopes
from .storage import Storage, row_key
from .upstream import Login
from .web import OAuthError

CODE_LIFETIME_SECONDS = 60.0
NEXT, UPSTREAM = "next refresh token", "upstream refresh token"


class AccessToken(Struct, frozen=True, omit_defaults=True):
    """What an access token stands for."""

    user: str
    client: str
    resource: str
    scopes: tuple[str, ...]
    expires: float
    claims: dict[str, Any] = {}

    def principal(self) -> Principal:
        """The same for the layers below."""
        return Principal(self.user, self.client, self.scopes, self.claims, self.expires)


class Grant(Struct, frozen=True, omit_defaults=True):
    """What a user has granted a client."""

    user: str
    client: str
    resource: str
    scopes: tuple[str, ...]
    secret: str = ""
    """The digest of the secret that is good now."""
    claims: dict[str, Any] = {}
    challenge: str = ""
    """What the code has to be redeemed with; a grant that has one is still in that state."""
    redirect_uri: str = ""
    refreshes: bool = True
    previous: str = ""
    turned: float = 0.0
    successor: str = ""
    """The secret that is good now, sealed under the previous one."""
    upstream: str = ""
    """The refresh token of the upstream, sealed under the secret that is good now."""
    ends: float | None = None
    """When the upstream's own access token ends: ours live no longer."""
    thumbprint: str = ""
    """The key that the refresh token is bound to."""


class GrantExchange(Struct, frozen=True):
    """An exchange that was made: the grant as it is now, and what to give the client."""

    id: str
    grant: Grant
    row: bytes
    before: bytes
    secret: str
    upstream: str
    fresh: bool
    """False where this is the same exchange again, in its time of grace."""


class GrantStore:
    """All that was granted by one issuer or several."""

    def __init__(
        self,
        storage: Storage,
        *,
        access_life: float,
        refresh_life: float,
        grace: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.access_life = access_life
        self._storage, self._refresh_life, self._grace, self._now = (
            storage,
            refresh_life,
            grace,
            now,
        )

    async def begin(self, issuer: str, grant: Grant, upstream: str = "") -> str:
        """A new grant; the authorization code for it."""
        id = secrets.token_urlsafe(16)
        code = f"{id}.{secrets.token_urlsafe(32)}"
        sealed = _seal(code, UPSTREAM, upstream) if upstream else ""
        made = replace(grant, secret=_digest(code), upstream=sealed)
        await self._storage.add(
            row_key("grant", issuer, id),
            msgspec.json.encode(made),
            self._now() + CODE_LIFETIME_SECONDS,
        )
        return code

    async def find(self, issuer: str, secret: str, client: str) -> tuple[str, Grant, bytes]:
        """The grant of this client that a secret belongs to. Another client's attempt ends it: the
        secret has leaked."""
        id = secret.partition(".")[0]
        row = await self._storage.get(row_key("grant", issuer, id))
        if row is None:
            raise _invalid_grant("it has expired, was revoked or used before, or never was")
        grant = msgspec.json.decode(row, type=Grant)
        if grant.client != client:
            await self.end(issuer, id)
            raise _invalid_grant("it belongs to another client")
        return id, grant, row

    async def redeem(
        self, issuer: str, code: str, client: str, fits: Callable[[Grant], bool]
    ) -> GrantExchange:
        """Exchange a code. One that does not fit its request, or was used before, ends the
        grant."""
        id, grant, row = await self.find(issuer, code, client)
        if grant.challenge and grant.secret == _digest(code) and fits(grant):
            turn = await self._turn(issuer, id, grant, row, code)
            if turn is not None:
                return turn
        await self.end(issuer, id)
        raise _invalid_grant(
            "it was used before, or redirect_uri or code_verifier do not belong to it"
        )

    async def refresh(self, issuer: str, token: str, client: str, thumbprint: str) -> GrantExchange:
        """Exchange a refresh token. One that was exchanged before the last ends the grant."""
        for _ in range(2):
            id, grant, row = await self.find(issuer, token, client)
            digest = _digest(token)
            if grant.challenge:
                break
            if grant.thumbprint and grant.thumbprint != thumbprint:
                raise _invalid_grant("it is bound to another key")
            if digest == grant.secret:
                turn = await self._turn(issuer, id, grant, row, token)
                if turn is not None:
                    return turn
            elif digest == grant.previous and self._now() <= grant.turned + self._grace:
                return GrantExchange(
                    id, grant, row, row, _open(token, NEXT, grant.successor), "", False
                )
            else:
                break
        await self.end(issuer, id)
        raise _invalid_grant("it was used before; all that was granted with it has ended")

    async def _turn(
        self, issuer: str, id: str, grant: Grant, row: bytes, old: str
    ) -> GrantExchange | None:
        """The next secret in place of this one; None where somebody else was faster."""
        new = f"{id}.{secrets.token_urlsafe(32)}"
        upstream = _open(old, UPSTREAM, grant.upstream) if grant.upstream else ""
        code = bool(grant.challenge)
        turned = replace(
            grant,
            challenge="",
            redirect_uri="",
            secret=_digest(new) if grant.refreshes else "",
            previous="" if code else grant.secret,  # there is no grace for codes
            successor="" if code else _seal(old, NEXT, new),
            turned=self._now(),
            upstream=_seal(new, UPSTREAM, upstream) if upstream else "",
        )
        after = msgspec.json.encode(turned)
        if not await self._storage.change(
            row_key("grant", issuer, id), row, after, self._ends(turned)
        ):
            return None
        return GrantExchange(id, turned, after, row, new, upstream, True)

    async def undo(self, issuer: str, turn: GrantExchange) -> None:
        """Take an exchange back, of which the client will never hear."""
        before = msgspec.json.decode(turn.before, type=Grant)
        await self._storage.change(
            row_key("grant", issuer, turn.id), turn.row, turn.before, self._ends(before)
        )

    async def renewed(self, issuer: str, turn: GrantExchange, login: Login) -> GrantExchange:
        """The upstream's login was renewed: keep its new refresh token, and what is said of the
        user by now."""
        upstream = login.refresh_token or ""
        sealed = _seal(turn.secret, UPSTREAM, upstream)
        grant = replace(turn.grant, upstream=sealed, claims=login.claims, ends=login.ends)
        row = msgspec.json.encode(grant)
        await self._storage.change(
            row_key("grant", issuer, turn.id), turn.row, row, self._ends(grant)
        )
        return GrantExchange(turn.id, grant, row, turn.row, turn.secret, upstream, True)

    async def bind(self, issuer: str, turn: GrantExchange, thumbprint: str) -> GrantExchange:
        """Bind the refresh token to a key: https://www.rfc-editor.org/rfc/rfc9449#section-5."""
        grant = replace(turn.grant, thumbprint=thumbprint)
        row = msgspec.json.encode(grant)
        await self._storage.change(
            row_key("grant", issuer, turn.id), turn.row, row, self._ends(grant)
        )
        return GrantExchange(turn.id, grant, row, turn.row, turn.secret, turn.upstream, True)

    async def access(self, issuer: str, id: str | None, access: AccessToken) -> str:
        """An access token, which ends with its grant."""
        token = secrets.token_urlsafe(32)
        parent = None if id is None else row_key("grant", issuer, id)
        row = msgspec.json.encode(access)
        if not await self._storage.add(
            row_key("access", issuer, token), row, access.expires, parent
        ):
            raise _invalid_grant("it was revoked just now")
        return token

    async def look_up(self, issuer: str, token: str) -> AccessToken | None:
        """What an access token stands for."""
        row = await self._storage.get(row_key("access", issuer, token))
        return None if row is None else msgspec.json.decode(row, type=AccessToken)

    async def revoke(self, issuer: str, token: str, client: str) -> None:
        """End an access token, or what a refresh token was granted by:
        https://www.rfc-editor.org/rfc/rfc7009#section-2."""
        access = await self.look_up(issuer, token)
        if access is not None and access.client == client:
            await self._storage.delete(row_key("access", issuer, token))
        elif access is None and "." in token:
            try:
                id, grant, _ = await self.find(issuer, token, client)
            except OAuthError:
                return  # nothing of it is left, as was asked
            if _digest(token) in (grant.secret, grant.previous):
                await self.end(issuer, id)

    async def end(self, issuer: str, id: str) -> None:
        """End a grant, with all its tokens."""
        await self._storage.delete(row_key("grant", issuer, id))

    def life(self, grant: Grant) -> float:
        """For how many seconds an access token of this grant is good."""
        return (
            self.access_life
            if grant.ends is None
            else max(0.0, min(self.access_life, grant.ends - self._now()))
        )

    def _ends(self, grant: Grant) -> float:
        life = (
            CODE_LIFETIME_SECONDS
            if grant.challenge
            else self._refresh_life
            if grant.refreshes
            else self.life(grant)
        )
        return self._now() + life


def _invalid_grant(why: str) -> OAuthError:
    return OAuthError("invalid_grant", f"this code or token is not taken: {why}")


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _seal(secret: str, purpose: str, text: str) -> str:
    return KeyRing([secret.encode()]).seal(purpose, text.encode())


def _open(secret: str, purpose: str, sealed: str) -> str:
    try:
        return KeyRing([secret.encode()]).open(purpose, sealed).decode()
    except Forged:
        raise _invalid_grant("it cannot be opened") from None


def narrow_scopes(
    asked: str | None, granted: tuple[str, ...], implies: ImpliedScopes | None = None
) -> tuple[str, ...]:
    """The scopes of a token, which may be fewer than were granted, or a part of one, never more."""
    wanted = tuple(dict.fromkeys((asked or "").split()))
    kept = tuple(scope for scope in wanted if scope != "offline_access")
    if not set(kept) <= set(expand_scopes(granted, implies)):
        raise OAuthError("invalid_scope", "these scopes are more than were granted")
    return kept or granted


def bind_claims(claims: Mapping[str, Any], thumbprint: str) -> dict[str, Any]:
    """Claims of a token that is bound to a key:
    https://www.rfc-editor.org/rfc/rfc9449#section-6.1."""
    return {**claims, "cnf": {"jkt": thumbprint}} if thumbprint else dict(claims)
