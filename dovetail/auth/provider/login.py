"""User logins, either with a password or at an upstream OpenID provider.

**Passwords** are hashed with scrypt and compared in constant time. Checking a password takes the
same time for unknown users as for known users, so the time does not reveal who has an account.
Failed attempts are limited (`attempts.py`). A login clears the count for the user, but not for the
address. Otherwise, anyone with an account could guess other users' passwords. A user who has logged
in from an address before, at this process, is exempt from the limit for that address, so that a
neighbour who guesses passwords does not lock them out.

Hashing is slow by design. Hashes are computed in separate threads with a short queue, so that
password guessing does not delay other requests.

**Upstream**: this server is an ordinary client of the upstream provider. This server uses
discovery, PKCE, `state` and `nonce`, and verifies the ID token (signature, issuer, audience, time,
nonce). The result is a `Login`, which holds the user and a refresh token. The refresh token is used
from time to time to check whether the login is still valid. The upstream provider's tokens are used
only for this check, and never leave this server.

Users must consent to the client on *this* server before they are sent to the upstream provider. The
upstream provider knows only this server, and might not ask its users again. Without this consent,
any client could use an earlier login.
https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#confused-deputy-problem
"""

import asyncio
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import scrypt
from hmac import compare_digest
from inspect import isawaitable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ...aio import LruDict
from ...errors import ConfigError, DovetailError, Overloaded, Unauthorized
from ...ports import PublicUrl
from ...text import one_line
from .. import jose
from ..client.discovery import choose_auth_method
from ..client.flow import run_flow
from ..client.grants import request_token
from ..client.store import ClientRegistration
from ..server.verifiers import TokenRefused, check_times, trusted_fetch
from ..urls import OPENID_METADATA_PATH, require_safe
from ..wire import ServerMetadata, TokenReply, convert_document
from .attempts import Kind, LoginAttempts
from .web import (
    DocumentCache,
    DocumentUnavailable,
    with_query,
)

COST, BLOCK, PARALLEL = 2**14, 8, 5
"""Hashing uses 16 MiB and five rounds:
https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html#scrypt"""
MAX_COST = 2**20 * 32
"""The maximum product of the cost, block size and parallelism in a stored hash. A higher product
would use minutes of CPU time."""
THREADS, MAX_WAITING = 2, 32
"""How many passwords are checked at the same time, and how many more may wait to be checked."""
MAX_KNOWN_PAIRS = 10_000
"""How many (user, login address) pairs are remembered."""
MAX_PASSWORD_LENGTH = 1024
"""The maximum length of a password. Any further characters are ignored."""

CheckPassword: TypeAlias = Callable[[str, str], bool | Awaitable[bool]]
"""Returns whether a user name and a password are correct."""


def hash_password(password: str) -> str:
    """Return the hash of a password, for `Provider(users={"ada": …})`.

    Args:
        password: The password. A password should have at most 1,024 characters, because a login
            ignores any further characters.

    Returns:
        `scrypt$cost$block$parallel$salt$hash`. Each call uses a new salt.
    """
    salt = os.urandom(16)
    digest = _digest(password, salt, COST, BLOCK, PARALLEL)
    return (
        f"scrypt${COST}${BLOCK}${PARALLEL}${b64encode(salt).decode()}${b64encode(digest).decode()}"
    )


def check_password(password: str, hashed: str) -> bool:
    """Return whether a password has this hash."""
    cost, block, parallel, salt, digest = _parse(hashed)
    return compare_digest(_digest(password, salt, cost, block, parallel), digest)


class UserDirectory:
    """The users who may log in with a password."""

    def __init__(self, users: Mapping[str, str] | CheckPassword, now: Callable[[], float]) -> None:
        self._hashes: Mapping[str, str] = {} if callable(users) else users
        self._knows_everyone = callable(users)
        self._check = users if callable(users) else self._check_hash
        for name, hashed in self._hashes.items():
            try:
                _parse(hashed)
            except ValueError:
                raise ConfigError(
                    f"users[{name!r}] is not a password hash. Create one with hash_password(…)."
                ) from None
        hashes = iter(self._hashes.values())
        cost = next(hashes, f"scrypt${COST}${BLOCK}${PARALLEL}$$").rsplit("$", 2)[0]
        self._dummy_hash = f"{cost}${b64encode(os.urandom(16)).decode()}${'A' * 43}="
        """The hash to check for unknown users. Checking it takes as long as checking a known user's
        hash."""
        self.attempts = LoginAttempts(now)
        """How often somebody may try. A backend replaces it."""
        self._known_pairs: LruDict[str, bool] = LruDict(MAX_KNOWN_PAIRS)
        """(user, address) pairs: the addresses that each user has logged in from."""
        self._threads, self._pending = ThreadPoolExecutor(THREADS, "dovetail-password"), 0

    def knows(self, name: str) -> bool:
        """Return whether this user may still log in and use existing grants."""
        return self._knows_everyone or name in self._hashes

    async def check(self, name: str, password: str, address: str | None) -> float | None:
        """Check a password. Returns None if the password is correct. Otherwise, returns how long to
        wait before the next attempt, in seconds (possibly 0)."""
        pair = f"{address} {name}"
        callers: dict[Kind, str] = {"pair": pair, "name": name}
        if pair not in self._known_pairs:
            callers["address"] = address or ""
        # Count the attempt before the result is known, so that concurrent attempts are counted too.
        wait = await self.attempts.count(callers)
        if wait > 0:
            return wait
        result = self._check(name, password[:MAX_PASSWORD_LENGTH])
        if not (await result if isawaitable(result) else result):
            return await self.attempts.seconds_to_wait(callers)
        await self.attempts.forgive(callers)
        self._known_pairs[pair] = True
        return None

    async def _check_hash(self, name: str, password: str) -> bool:
        if self._pending >= THREADS + MAX_WAITING:
            raise Overloaded("too many passwords are being checked at the same time")
        hashed = self._hashes.get(name)
        self._pending += 1
        try:
            loop = asyncio.get_running_loop()
            matches = await loop.run_in_executor(
                self._threads, check_password, password, hashed or self._dummy_hash
            )
        finally:
            self._pending -= 1
        return matches and hashed is not None


def _digest(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    memory = 132 * cost * block + 1024 * block * parallel + 4096
    return scrypt(
        password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=memory, dklen=32
    )


def _parse(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    kind, cost, block, parallel, salt, digest = hashed.split("$")
    numbers = int(cost), int(block), int(parallel)
    if kind != "scrypt" or min(numbers) < 1 or numbers[0] * numbers[1] * numbers[2] > MAX_COST:
        raise ValueError
    return *numbers, b64decode(salt, validate=True), b64decode(digest, validate=True)


# upstream providers

SKEW_SECONDS = 60.0
DEFAULT_LIFETIME_SECONDS = 3600.0
CLAIMS = ("iss", "sub", "email", "email_verified", "name", "preferred_username", "groups")
"""The ID token claims that are visible to tools."""
ENDED_ERRORS = ("invalid_grant", "interaction_required", "login_required")

NameUser = Callable[[Mapping[str, Any]], str | None]
"""Returns the user's id on this server for the claims in an ID token, or None to refuse the
user."""


class UpstreamUnreachable(Exception):
    """The upstream provider sent no response or an invalid response. The login may still be
    valid."""


class LoginEnded(Exception):
    """The upstream provider reports that the login does not exist or has ended."""


class Login(Struct, frozen=True):
    """The user who logged in, and the refresh token for checking whether the login is still
    valid."""

    user: str = ""
    claims: dict[str, Any] = {}
    refresh_token: str | None = None
    ends: float | None = None
    """When the login must be checked again at the upstream provider."""


class Upstream:
    """An OpenID provider where this server's users log in.

    Args:
        issuer: The URL of the provider, exactly as in its ID tokens (`iss`). It must use https, or
            http on localhost.
        client_id: This server's client id at the provider.
        client_secret: The secret for `client_id` (default: none, for a public client).
        scopes: The scopes to request (default: `openid`, `profile`, `email`). `openid` is always
            added.
        user: A function that receives the claims of an ID token and returns the user's id on this
            server, or None to refuse the user (default: the `sub` claim).
        parameters: Additional parameters for the authorization request, such as `{"prompt":
            "login"}`.
        now: The clock (default: `time.time`).

    Raises:
        ConfigError: The issuer does not use https (or http on localhost).
    """

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str | None = None,
        scopes: Sequence[str] = ("openid", "profile", "email"),
        user: NameUser | None = None,
        parameters: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.issuer = require_safe(issuer, "Upstream(issuer=…)", ConfigError)
        self.host = urlsplit(issuer).netloc
        self._id, self._secret = client_id, client_secret
        self.scopes = tuple(dict.fromkeys(("openid", *scopes)))
        self._parameters = dict(parameters or {})
        self._user = user or (lambda claims: str(claims["sub"]))
        self._now, self._documents = now, DocumentCache(now)

    def __repr__(self) -> str:
        return f"Upstream({self.issuer!r}, client_id={self._id!r})"

    async def login_url(
        self, callback: str, state: str, nonce: str, verifier: str, public_url: PublicUrl
    ) -> str:
        """Return the URL where the user logs in.

        Args:
            callback: The URL that the provider sends the user back to.
            state: A secret for this login, which the provider returns to the callback.
            nonce: A secret for this login, which the provider returns in the ID token.
            verifier: The PKCE verifier.
            public_url: The public URL of the server that the user logs in to.

        Raises:
            UpstreamUnreachable: The provider's metadata cannot be fetched or is not valid.
        """
        metadata = await self._discover(public_url)
        scopes = dict.fromkeys(self.scopes)
        if "offline_access" in (metadata.scopes_supported or ()):
            scopes["offline_access"] = None
        parameters = {
            "response_type": "code",
            "client_id": self._id,
            "redirect_uri": callback,
            "scope": " ".join(scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": jose.s256(verifier),
            "code_challenge_method": "S256",
        }
        return with_query(metadata.authorization_endpoint or "", {**self._parameters, **parameters})

    async def exchange(
        self,
        answer: Mapping[str, str],
        callback: str,
        nonce: str,
        verifier: str,
        public_url: PublicUrl,
    ) -> Login:
        """Exchange the provider's response for a login.

        Args:
            answer: The parameters that the callback received.
            callback: The URL of the callback.
            nonce: The nonce of this login.
            verifier: The PKCE verifier.
            public_url: The public URL of the server that the user logs in to.

        Raises:
            LoginEnded: The provider or `user=` refused the user.
            UpstreamUnreachable: The provider sent no response or an invalid response.
        """
        metadata = await self._discover(public_url)
        issuer = answer.get("iss")  # https://www.rfc-editor.org/rfc/rfc9207#section-2.4
        if issuer != self.issuer and (
            issuer or metadata.authorization_response_iss_parameter_supported
        ):
            raise LoginEnded("the response is from another provider")
        if "code" not in answer:
            reason = (
                answer.get("error_description") or answer.get("error") or "the response has no code"
            )
            raise LoginEnded(one_line(reason))
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": callback,
            "code_verifier": verifier,
        }
        reply = await self._request_token(metadata, form, public_url)
        claims = await self._verify(reply.id_token or "", metadata, public_url)
        if claims.get("nonce") != nonce:
            raise LoginEnded("the ID token was refused: it is for another login")
        return self._to_login(claims, reply, reply.refresh_token is not None)

    async def renew(self, login: Login, public_url: PublicUrl) -> Login:
        """Check at the upstream provider whether a login is still valid, and return the renewed
        login.

        Args:
            login: The login, with its refresh token.
            public_url: The public URL of the server that the user logged in to.

        Raises:
            LoginEnded: The login has ended, or belongs to another user.
            UpstreamUnreachable: The provider sent no response or an invalid response.
        """
        metadata = await self._discover(public_url)
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token or ""}
        reply = await self._request_token(metadata, form, public_url)
        refresh_token = reply.refresh_token or login.refresh_token
        if reply.id_token is None:
            return replace(login, refresh_token=refresh_token, ends=self._end_of(reply, True))
        # https://openid.net/specs/openid-connect-core-1_0.html#RefreshTokenResponse
        renewed = self._to_login(
            await self._verify(reply.id_token, metadata, public_url), reply, True
        )
        if (renewed.user, renewed.claims["sub"]) != (login.user, login.claims.get("sub")):
            raise LoginEnded("the login now belongs to another user")
        return replace(renewed, refresh_token=refresh_token)

    def _to_login(self, claims: dict[str, Any], reply: TokenReply, renewable: bool) -> Login:
        user = self._user(claims)
        if user is None:
            raise LoginEnded("this account is not allowed to use this server")
        visible = {name: claims[name] for name in CLAIMS if name in claims}
        return Login(user, visible, reply.refresh_token, self._end_of(reply, renewable))

    def _end_of(self, reply: TokenReply, renewable: bool) -> float | None:
        """Return when the login must be renewed. This server's tokens do not outlive those of the
        upstream provider. If the upstream provider sends no lifetime, the login lasts one hour, or
        has no limit if it can be renewed."""
        if reply.expires_in is None:
            return None if renewable else self._now() + DEFAULT_LIFETIME_SECONDS
        return self._now() + reply.expires_in

    async def _discover(self, public_url: PublicUrl) -> ServerMetadata:
        url = self.issuer.rstrip("/") + OPENID_METADATA_PATH
        try:
            document = await self._documents.get(url, trusted_fetch(public_url))
            metadata = convert_document(document, ServerMetadata)
            if metadata is None or metadata.issuer != self.issuer:
                raise DocumentUnavailable("the metadata is for another issuer")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                require_safe(getattr(metadata, name) or "", f"the {name}")
        except (DocumentUnavailable, Unauthorized) as error:
            raise UpstreamUnreachable(f"{self.issuer}: {error}") from None
        return metadata

    async def _request_token(
        self, metadata: ServerMetadata, form: dict[str, str], public_url: PublicUrl
    ) -> TokenReply:
        method = choose_auth_method(metadata, has_secret=self._secret is not None)
        client = ClientRegistration(
            client_id=self._id, client_secret=self._secret, auth_method=method
        )
        steps = request_token(metadata.token_endpoint or "", self.issuer, client, form)
        try:
            reply = await run_flow(steps, trusted_fetch(public_url))
        except DovetailError as error:
            raise UpstreamUnreachable(f"{self.issuer}: {error}") from None
        if isinstance(reply, TokenReply):
            return reply
        if reply.error in ENDED_ERRORS:
            raise LoginEnded(reply.error)
        raise UpstreamUnreachable(f"{self.issuer}: the token endpoint answered {reply.text}")

    async def _verify(
        self, token: str, metadata: ServerMetadata, public_url: PublicUrl
    ) -> dict[str, Any]:
        """Return the claims of an ID token:
        https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation."""
        try:
            header, _ = jose.decode_unverified(token)
            jwk = await self._documents.key(
                metadata.jwks_uri or "", trusted_fetch(public_url), header
            )
            algorithms = (jwk["alg"],) if isinstance(jwk.get("alg"), str) else jose.ALGORITHMS
            _, claims = jose.verify(token, lambda _: jose.load_key(jwk), algorithms)
            check_times(claims, self._now(), SKEW_SECONDS)
        except (jose.InvalidJwt, TokenRefused) as error:
            raise LoginEnded(f"the ID token was refused: {error}") from None
        except DocumentUnavailable as error:
            raise UpstreamUnreachable(
                f"{self.issuer}: the keys cannot be fetched: {error}"
            ) from None
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        checks = (
            (claims.get("iss") == self.issuer, "the token is from another issuer"),
            (self._id in audiences, "the token is for another client"),
            (
                len(audiences) == 1 or claims.get("azp") == self._id,
                "the token was requested by another client",
            ),
            ("iat" in claims, "the issue time (iat) is missing"),
            (
                isinstance(claims.get("sub"), str) and claims["sub"] != "",
                "the subject (sub) is missing",
            ),
        )
        for passed, reason in checks:
            if not passed:
                raise LoginEnded(f"the ID token was refused: {reason}")
        return claims
