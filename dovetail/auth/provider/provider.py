"""An authorization server inside the server that it protects: `Server(auth=Provider(users={"ada":
hash_password("…")}))`.

The authorization server's URLs start with `PublicUrl.base`, which is also its issuer. The provider
implements OAuth 2.1 as MCP requires: authorization codes with PKCE, rotating refresh tokens, and
client credentials for configured clients. The provider also implements metadata (RFC 8414),
registration (RFC 7591 and client documents), revocation (RFC 7009), resource indicators (RFC 8707),
issuer identification (RFC 9207) and DPoP (RFC 9449).

Access tokens are random, and stored under their digest. Deleting a token immediately revokes it in
all processes. The `Bearer` guard checks these tokens in the same way as tokens from other
authorization servers.
"""

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from msgspec.structs import asdict

from ...errors import ConfigError, Overloaded
from ...logs import get_logger
from ...net import network_of
from ...ports import HttpRequest, HttpResponse, Principal, PublicUrl
from .. import jose
from ..dpop import Checker
from ..server.guards import MAX_CACHED_TOKENS, Bearer, ImpliedScopes
from ..server.verifiers import TokenCache, TokenRefused
from ..urls import (
    OPENID_METADATA_PATH,
    SERVER_METADATA_PATH,
    audience_of,
    is_confidential,
    require_safe,
)
from ..wire import ServerMetadata, parse_scopes
from .authorization_endpoint import OFFLINE_ACCESS, AuthorizationEndpoint
from .clients import CLIENT_AUTH_METHODS, ClientRegistry, KnownClient
from .grants import GrantStore
from .login import CheckPassword, Upstream, UserDirectory
from .sessions import LoginSessions
from .storage import SqliteStorage, Storage
from .token_endpoint import TokenEndpoint
from .web import (
    CORS,
    AttemptLimiter,
    OAuthError,
    ProviderRequest,
    error_response,
    json_response,
)

if TYPE_CHECKING:
    from ...backend import Backend

log = get_logger("auth")

Endpoint: TypeAlias = Callable[[ProviderRequest], Awaitable[HttpResponse]]
Route: TypeAlias = tuple[tuple[str, ...], Endpoint, AttemptLimiter | None]
"""The accepted methods, the endpoint that handles them, and the rate limit for each caller."""
PAGE_PATHS = ("/authorize", "/callback")
"""The paths of pages for people. All other paths are for programs."""
CACHE_SECONDS = 1.0
"""How long a token is cached if the storage can tell whether anything has changed."""
NEEDS_HTTPS = (
    "passwords and tokens are accepted only over https or on localhost; set "
    "public_url='https://…' on the server"
)
NATIVE_SCHEMES = ("cursor", "vscode", "vscode-insiders")
"""The schemes of native clients that have no other redirect URI. The specification itself allows
only https and loopback addresses:
https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#communication-security"""


class Provider(Bearer):
    """Issues access tokens after a login with a password or at an upstream provider, and admits
    callers with these tokens.

    Args:
        users: The users and the hashes of their passwords (see `hash_password`), or a function
            (sync or async) that receives a name and a password and returns whether the password is
            correct.
        upstream: The OpenID provider where users log in. Pass either `upstream` or `users`. With
            neither, only `clients` can get tokens.
        issuer: The URL of this authorization server, if a proxy changes paths (default: the public
            URL of the server).
        name: The name of the server on its pages (default: its host).
        storage: The file in which to store grants and tokens, `":memory:"`, or a `Storage`
            (default: the backend of the server, if it has one, and otherwise `provider.sqlite` in
            the user's folder for application data).
        scopes: The scopes that can be granted, as a dict with their descriptions for the consent
            page, or just their names. Scopes that tools require are added.
        required: The scopes that every caller must have (default: none).
        implies: The scopes that each scope includes, as a dict or a function (default: only
            itself).
        clients: The configured clients, which are the only ones that may act on their own behalf
            (default: none).
        register: Whether clients may register themselves (default: True).
        documents: Whether a client may be described by a document at its URL (default: True).
        schemes: Redirect URI schemes for native clients, in addition to https and loopback
            addresses (default: `cursor`, `vscode`, `vscode-insiders`).
        private: Whether client documents may be on a private network (default: False).
        access_life: How long an access token is valid, in seconds (default: 3600).
        refresh_life: How long an unused refresh token is valid, in seconds (default: 30 days).
        grace: How long the previous refresh token keeps working, in seconds (default: 30), in case
            a client did not receive the response. Using an older refresh token ends the grant.
        dpop: If True, only tokens that are bound to a key are issued and accepted. Pass a `Checker`
            to set more options (default: clients decide).
        now: The clock (default: `time.time`).

    Raises:
        ConfigError: Nobody can log in with these settings, or they contradict each other.
    """

    def __init__(
        self,
        *,
        users: Mapping[str, str] | CheckPassword | None = None,
        upstream: Upstream | None = None,
        issuer: str | None = None,
        name: str | None = None,
        storage: Storage | str | os.PathLike[str] | None = None,
        scopes: Mapping[str, str] | Sequence[str] | str = (),
        required: Sequence[str] | str = (),
        implies: ImpliedScopes | None = None,
        clients: Iterable[KnownClient] = (),
        register: bool = True,
        documents: bool = True,
        schemes: Sequence[str] = NATIVE_SCHEMES,
        private: bool = False,
        access_life: float = 3600.0,
        refresh_life: float = 30 * 86400.0,
        grace: float = 30.0,
        dpop: bool | Checker = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        known = tuple(clients)
        _check_settings(users, upstream, known)
        if issuer is not None:
            issuer = require_safe(issuer.rstrip("/"), "Provider(issuer=…)", ConfigError)
        self.issuer = issuer
        """The URL of this authorization server, or None for the server's public URL."""
        self.private = private
        """Whether client documents may be on a private network."""
        super().__init__(
            self._look_up,
            scopes=required,
            authorization_servers=lambda public_url: [self._issuer(public_url)],
            implies=implies,
            dpop=dpop,
        )
        self._cache = TokenCache(MAX_CACHED_TOKENS, now)
        self._cached_version: Any = None
        """The version of the storage that the cached tokens come from."""
        self._descriptions = _describe_scopes(scopes)
        self._interactive = users is not None or upstream is not None
        self._documents = documents and self._interactive
        self._users = None if users is None else UserDirectory(users, now)
        self._may_use_backend = storage is None
        """Whether a backend may replace the storage."""
        self._now = now

        def use_storage(storage: Storage) -> None:
            self._version_of_storage: Callable[[], Any] | None = (
                storage.version if isinstance(storage, SqliteStorage) else None
            )
            self._keeps = 0.0 if self._version_of_storage is None else CACHE_SECONDS
            self._grants = GrantStore(
                storage=storage,
                access_life=access_life,
                refresh_life=refresh_life,
                grace=grace,
                now=now,
            )
            registry = ClientRegistry(
                known, storage, now, schemes=schemes, described=documents, private=private
            )
            tokens = TokenEndpoint(
                clients=registry,
                grants=self._grants,
                upstream=upstream,
                checker=self._checker,
                knows_user=self._knows,
                implies=implies,
                now=now,
            )
            self._pages = AuthorizationEndpoint(
                clients=registry,
                grants=self._grants,
                storage=storage,
                sessions=LoginSessions(storage, self._users, now),
                upstream=upstream,
                default_scopes=self.scopes,
                name=name,
                now=now,
            )
            self._routes = self._make_routes(tokens, registry if register else None, upstream)

        if storage is None or isinstance(storage, str | os.PathLike):
            storage = SqliteStorage(storage, now=now)
        use_storage(storage)
        self._use_storage = use_storage

    def use_backend(self, backend: "Backend") -> None:
        """Store rows in the backend of the server, unless a storage was passed. Count attempts to
        log in and remember DPoP proofs there. The server calls this method before it starts.

        Args:
            backend: The backend of the server.
        """
        super().use_backend(backend)
        if self._users is not None:
            self._users.attempts = backend.login_attempts()
        if self._may_use_backend:
            self._use_storage(backend.storage(now=self._now))

    def _make_routes(
        self, tokens: TokenEndpoint, registry: ClientRegistry | None, upstream: Upstream | None
    ) -> dict[str, Route]:
        now = self._now
        calls, self._visits = AttemptLimiter(300, 0.2, now), AttemptLimiter(300, 0.2, now)
        routes: dict[str, Route] = {
            "/token": (("POST",), tokens.token, calls),
            "/revoke": (("POST",), tokens.revoke, calls),
        }
        if self._interactive:
            routes["/authorize"] = (("GET", "POST"), self._pages.authorize, self._visits)
        if self._interactive and registry is not None:
            registrations = AttemptLimiter(100, 6.0, now)
            routes["/register"] = (("POST",), registry.register, registrations)
        if upstream is not None:
            routes["/callback"] = (("GET",), self._pages.callback, self._visits)
        return routes

    def check_base_url(self, base: str) -> None:
        """Check the server's public URL at startup rather than at the first login.

        Args:
            base: The public URL below which the server is reachable.

        Raises:
            ConfigError: The URL does not use https (or http on localhost).
        """
        if not is_confidential(self.issuer or base):
            raise ConfigError(f"Provider at {base}: {NEEDS_HTTPS}")

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        """Answer a request for a page, an endpoint or the metadata of the authorization server.

        Args:
            request: The request, with its path relative to the origin.
            public_url: The public URL of the server that received the request.

        Returns:
            The response, or None for any other path.
        """
        issuer = self._issuer(public_url)
        base = urlsplit(issuer).path
        path = request.path.removeprefix(base) if request.path.startswith(base) else ""
        if request.path in (
            f"{SERVER_METADATA_PATH}{base}",
            f"{base}{SERVER_METADATA_PATH}",
            f"{OPENID_METADATA_PATH}{base}",
            f"{base}{OPENID_METADATA_PATH}",
        ):
            route: Route = (("GET", "HEAD"), self._server_metadata, None)
        elif path in self._routes:
            route = self._routes[path]
        else:
            return await super().respond(request, public_url)
        methods, endpoint, limiter = route
        is_page = path in PAGE_PATHS
        if request.method == "OPTIONS" and not is_page:
            return HttpResponse(status=204, headers={**CORS, "access-control-max-age": "86400"})
        if request.method not in methods:
            return HttpResponse(status=405, headers={"allow": ", ".join(methods)})
        try:
            return await endpoint(self._prepare(request, public_url, limiter))
        except (OAuthError, Overloaded) as problem:
            error = _to_oauth_error(problem)
        return self._pages.show_error(error, public_url) if is_page else error_response(error)

    @property
    def can_sign_in(self) -> bool:
        """Whether users can sign in with a browser: with a password, or at an upstream provider."""
        return self._interactive

    async def sign_in(
        self, request: HttpRequest, public_url: PublicUrl, purpose: str
    ) -> str | HttpResponse:
        """Identify the user of a browser, for a page of the server that only a user who is signed
        in may see.

        Args:
            request: The request for the page.
            public_url: The public URL of the server that received the request.
            purpose: What the user signs in for, to complete the sentence "Log in".

        Returns:
            The id of the user, or the page on which they sign in before they return to this page.
        """
        try:
            return await self._pages.sign_in(
                self._prepare(request, public_url, self._visits), purpose
            )
        except (OAuthError, Overloaded) as problem:
            return self._pages.show_error(_to_oauth_error(problem), public_url)

    def _prepare(
        self, request: HttpRequest, public_url: PublicUrl, limiter: AttemptLimiter | None
    ) -> ProviderRequest:
        """Return a request with what its endpoint needs. Raises OAuthError if it is refused."""
        issuer = self._issuer(public_url)
        if not is_confidential(issuer):
            raise OAuthError("invalid_request", NEEDS_HTTPS)
        address = network_of(request.address or "")
        if limiter is not None:
            limiter.require(address)
        return ProviderRequest(
            **{**asdict(request), "address": address},
            issuer=issuer,
            public_url=public_url,
            scopes=self._list_scopes(public_url),
        )

    async def _server_metadata(self, request: ProviderRequest) -> HttpResponse:
        """Return the metadata: https://www.rfc-editor.org/rfc/rfc8414#section-2"""
        issuer = request.issuer
        urls = {path: f"{issuer}{path}" for path in self._routes}
        grants = ["authorization_code", "refresh_token"] if self._interactive else []
        document = ServerMetadata(
            issuer=issuer,
            authorization_endpoint=urls.get("/authorize"),
            token_endpoint=urls["/token"],
            registration_endpoint=urls.get("/register"),
            revocation_endpoint=urls["/revoke"],
            scopes_supported=[*request.scopes, OFFLINE_ACCESS],
            response_types_supported=["code"] if self._interactive else [],
            response_modes_supported=["query"],
            grant_types_supported=[*grants, "client_credentials"],
            token_endpoint_auth_methods_supported=list(CLIENT_AUTH_METHODS),
            token_endpoint_auth_signing_alg_values_supported=list(jose.ALGORITHMS),
            revocation_endpoint_auth_methods_supported=list(CLIENT_AUTH_METHODS),
            code_challenge_methods_supported=["S256"],
            authorization_response_iss_parameter_supported=True,
            client_id_metadata_document_supported=self._documents,
            dpop_signing_alg_values_supported=list(self._checker.algorithms),
        )
        return json_response(document, headers={"cache-control": "public, max-age=300"})

    async def _look_up(self, token: str, public_url: PublicUrl) -> Principal | None:
        """Return the owner of an access token, if the token is for this server."""
        # Otherwise, a token for another server could be sent with the Host header of that server.
        if not public_url.is_configured:
            raise TokenRefused(
                "this server does not know its own URL, so it cannot check the audience; its "
                "operator must set public_url="
            )
        access = await self._grants.look_up(self._issuer(public_url), token)
        if (
            access is None
            or access.resource not in (public_url.base, audience_of(public_url.url))
            or not self._knows(access.user, access.client)
        ):
            return None
        return Principal(access.user, access.client, access.scopes, access.claims, access.expires)

    def _find_verified(self, key: Any) -> Principal | None:
        # Tokens are cached until any row changes, also by another process, so a token that was
        # revoked is refused at once. With a file, a call takes 1.5 times the CPU time of a call
        # to an open server; reading the token for every request took 3 times (`bench/costs.py`).
        if self._version_of_storage is not None:
            try:
                version = self._version_of_storage()
            except Overloaded:
                return None
            if version != self._cached_version:
                self._cache.clear()
                self._cached_version = version
        return super()._find_verified(key)

    def _still_accepts(self, caller: Principal) -> bool:
        return self._knows(caller.id, caller.client or "")

    def _knows(self, user: str, client: str = "") -> bool:
        return user == client or self._users is None or self._users.knows(user)

    def _list_scopes(self, public_url: PublicUrl) -> dict[str, str]:
        """Return all scopes with their descriptions."""
        undescribed = {scope: scope for scope in (*self.scopes, *public_url.scopes)}
        return undescribed | self._descriptions

    def _issuer(self, public_url: PublicUrl) -> str:
        return self.issuer or public_url.base


def _to_oauth_error(problem: OAuthError | Overloaded) -> OAuthError:
    if isinstance(problem, OAuthError):
        return problem
    log.warning("Refused a request because the server is overloaded: %s", problem)
    return OAuthError(
        "temporarily_unavailable",
        "this server is too busy; try again later",
        503,
        {"retry-after": "60" if problem.retry_after is None else problem.retry_header},
    )


def _check_settings(
    users: Mapping[str, str] | CheckPassword | None,
    upstream: Upstream | None,
    clients: tuple[KnownClient, ...],
) -> None:
    if users is not None and upstream is not None:
        raise ConfigError("Provider: pass either users= or upstream=, not both")
    if users is None and upstream is None and not clients:
        raise ConfigError(
            'Provider: nobody can log in. Pass users={"ada": hash_password("…")}, upstream= or '
            "clients=."
        )
    if isinstance(users, Mapping) and (both := users.keys() & {client.id for client in clients}):
        raise ConfigError(
            f"Provider: {min(both)!r} is both a user and a client, so their tokens could not be "
            "distinguished. Rename one of them."
        )


def _describe_scopes(scopes: Mapping[str, str] | Sequence[str] | str) -> dict[str, str]:
    if isinstance(scopes, Mapping):
        return dict(scopes)
    return {scope: scope for scope in parse_scopes(scopes)}
