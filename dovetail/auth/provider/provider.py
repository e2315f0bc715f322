"""An authorization server within the server that it protects: `Server(auth=Provider(users={"ada":
hash_password("…")}))`.

It lies below `PublicUrl.base`, which is also its issuer, and speaks OAuth 2.1 as MCP wants it:
authorization code with PKCE, refresh tokens that rotate, client credentials for clients that are
known; metadata (RFC 8414), registration (RFC 7591 and client documents), revocation (RFC 7009),
resource indicators (RFC 8707), issuer identification (RFC 9207), DPoP (RFC 9449).

Access tokens are random and kept, by their digest, in the storage: to revoke one is to delete it,
in all processes at once. Whether a caller has a good one is the business of the same `Bearer` that
guards any resource server.
"""

import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...errors import ConfigError, ConnectFailed, Overloaded, Unauthorized
from ...net import network_of
from ...ports import HttpRequest, HttpResponse, Principal, PublicUrl
from .. import jose
from ..documents import ServerMetadata, parse_scopes
from ..dpop import Checker
from ..server.guards import Bearer, ImpliedScopes
from ..server.verifiers import TokenRefused
from ..urls import (
    OPENID_METADATA_PATH,
    SERVER_METADATA_PATH,
    audience_of,
    is_confidential,
    require_safe,
)
from .authorization_endpoint import OFFLINE_ACCESS, AuthorizationEndpoint
from .clients import CLIENT_AUTH_METHODS, ClientRegistry, KnownClient
from .grants import GrantStore
from .passwords import CheckPassword, UserDirectory
from .storage import SqliteStorage, Storage
from .token_endpoint import TokenEndpoint
from .upstream import Upstream
from .web import CORS, DocumentCache, OAuthError, error_response, json_response

log = logging.getLogger("dovetail.auth")

Endpoint: TypeAlias = Callable[[HttpRequest, str, PublicUrl], Awaitable[HttpResponse]]
Route: TypeAlias = tuple[tuple[str, ...], Endpoint]
"""The methods that it takes, and what answers them."""
PAGE_PATHS = ("/authorize", "/callback")
"""What people see; the rest is for programs."""
NEEDS_HTTPS = (
    "passwords and tokens go over https only, or stay on this machine; the server has "
    "to say public_url='https://…'"
)
NATIVE_SCHEMES = ("cursor", "vscode", "vscode-insiders")
"""Schemes of native clients that cannot do without. By the letter, a redirect URI is https or on a
loopback address:
https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#communication-security"""


class Provider:
    """Lets in whom it has given an access token, after a login with a password or at an upstream
    provider."""

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
        _check(users, upstream, known)
        self.issuer = None if issuer is None else _safe_issuer(issuer)
        self.private = private
        """Whether documents of clients may be on the local network."""
        self._words = (
            dict(scopes)
            if isinstance(scopes, Mapping)
            else {scope: scope for scope in parse_scopes(scopes)}
        )
        self._required = parse_scopes(required)
        self._interactive = users is not None or upstream is not None
        if storage is None or isinstance(storage, str | os.PathLike):
            storage = SqliteStorage(storage, now=now)
        self._checker = checker = dpop if isinstance(dpop, Checker) else Checker(required=dpop)
        self._users = None if users is None else UserDirectory(users, now)
        self._grants = GrantStore(
            storage, access_life=access_life, refresh_life=refresh_life, grace=grace, now=now
        )
        self._documents = documents and self._interactive
        self._clients = ClientRegistry(
            known,
            storage,
            DocumentCache(now),
            schemes=schemes,
            described=documents,
            private=private,
            now=now,
        )
        tokens = TokenEndpoint(
            self._clients,
            self._grants,
            upstream=upstream,
            checker=checker,
            knows=self._knows,
            offer=self._offer,
            implies=implies,
            now=now,
        )
        self._front = front = AuthorizationEndpoint(
            self._clients,
            self._grants,
            storage,
            users=self._users,
            upstream=upstream,
            offer=self._offer,
            usual=self._required,
            name=name,
            now=now,
        )
        self._guard = Bearer(
            self._verify,
            scopes=required,
            authorization_servers=self._issuers,
            implies=implies,
            dpop=checker,
        )
        routes: dict[str, tuple[bool, Route]] = {
            "/authorize": (self._interactive, (("GET", "POST"), front.authorize)),
            "/callback": (upstream is not None, (("GET",), front.callback)),
            "/register": (self._interactive and register, (("POST",), self._new_client)),
            "/token": (True, (("POST",), tokens.token)),
            "/revoke": (True, (("POST",), tokens.revoke)),
        }
        self._routes = {path: route for path, (offered, route) in routes.items() if offered}

    # the guard

    async def admit(self, request: HttpRequest, site: PublicUrl) -> Principal | HttpResponse:
        """Who is calling, or the refusal."""
        return await self._guard.admit(request, site)

    async def again(self, request: HttpRequest, site: PublicUrl) -> Principal | HttpResponse:
        """The same for a request that was let in before."""
        return await self._guard.again(request, site)

    def challenge(
        self, site: PublicUrl, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """The headers of a refusal to a caller that was let in, but lacks these scopes."""
        return self._guard.challenge(site, principal, scopes)

    def stand(self, base: str) -> None:
        """Complain now rather than at the first login, where it is known that this is what the
        world finds us below."""
        if not is_confidential(self.issuer or base):
            raise ConfigError(f"Provider at {base}: {NEEDS_HTTPS}")

    async def respond(self, request: HttpRequest, site: PublicUrl) -> HttpResponse | None:
        """A page or endpoint of the authorization server, or the metadata of the resource; None
        where this is neither."""
        issuer = self._issuer(site)
        base = urlsplit(issuer).path
        if request.path in (
            f"{SERVER_METADATA_PATH}{base}",
            f"{base}{SERVER_METADATA_PATH}",
            f"{OPENID_METADATA_PATH}{base}",
            f"{base}{OPENID_METADATA_PATH}",
        ):
            route: Route = (("GET", "HEAD"), self._metadata)
        elif request.path.startswith(base) and request.path[len(base) :] in self._routes:
            route = self._routes[request.path[len(base) :]]
        else:
            return await self._guard.respond(request, site)
        methods, endpoint = route
        person = request.path[len(base) :] in PAGE_PATHS
        if request.method == "OPTIONS" and not person:
            return HttpResponse(status=204, headers={**CORS, "access-control-max-age": "86400"})
        if request.method not in methods:
            return HttpResponse(status=405, headers={"allow": ", ".join(methods)})
        try:
            if not is_confidential(issuer):
                raise OAuthError("invalid_request", NEEDS_HTTPS)
            return await endpoint(
                replace(request, address=network_of(request.address or "")), issuer, site
            )
        except OAuthError as problem:
            refused = problem
        except Overloaded as full:
            log.warning("Refused for want of room: %s", full)
            refused = OAuthError(
                "temporarily_unavailable",
                "this server is too busy; try again later",
                503,
                {"retry-after": "60"},
            )
        return self._front.refuse(refused, site) if person else error_response(refused)

    # the parts that need all of it

    async def _metadata(self, request: HttpRequest, issuer: str, site: PublicUrl) -> HttpResponse:
        """What a client has to know: https://www.rfc-editor.org/rfc/rfc8414#section-2."""
        at = {path: f"{issuer}{path}" for path in self._routes}
        grants = ["authorization_code", "refresh_token"] if self._interactive else []
        document = ServerMetadata(
            issuer=issuer,
            authorization_endpoint=at.get("/authorize"),
            token_endpoint=at["/token"],
            registration_endpoint=at.get("/register"),
            revocation_endpoint=at["/revoke"],
            scopes_supported=[*self._offer(site), OFFLINE_ACCESS],
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

    async def _new_client(self, request: HttpRequest, issuer: str, site: PublicUrl) -> HttpResponse:
        return await self._clients.register(request, issuer)

    async def _verify(self, token: str, site: PublicUrl) -> Principal | None:
        """Who an access token was given to, if it was for this server."""
        if (
            not site.is_configured
        ):  # whoever holds a token for another server could name that as the Host
            raise TokenRefused(
                "this server is not sure of its own URL, and so not of whom a token is for: "
                "it has to say public_url="
            )
        try:
            access = await self._grants.look_up(self._issuer(site), token)
        except Overloaded as busy:
            raise ConnectFailed(str(busy)) from None
        if (
            access is None
            or access.resource not in (site.base, audience_of(site.url))
            or not self._knows(access.user, access.client)
        ):
            return None
        return access.principal()

    def _knows(self, user: str, client: str = "") -> bool:
        return user == client or self._users is None or self._users.knows(user)

    def _offer(self, site: PublicUrl) -> dict[str, str]:
        """All scopes that there are, and what they mean."""
        return {**{scope: scope for scope in (*self._required, *site.scopes)}, **self._words}

    def _issuer(self, site: PublicUrl) -> str:
        return self.issuer or site.base

    def _issuers(self, site: PublicUrl) -> list[str]:
        return [self._issuer(site)]


def _check(
    users: Mapping[str, str] | CheckPassword | None,
    upstream: Upstream | None,
    clients: tuple[KnownClient, ...],
) -> None:
    if users is not None and upstream is not None:
        raise ConfigError("Provider: users log in here (users=) or elsewhere (upstream=), not both")
    if users is None and upstream is None and not clients:
        raise ConfigError(
            'Provider: nobody could log in; give users={"ada": hash_password("…")}, upstream= '
            "or clients="
        )
    if isinstance(users, Mapping) and (both := users.keys() & {client.id for client in clients}):
        raise ConfigError(
            f"Provider: {min(both)!r} is the name of a user and of a client; nobody could "
            "tell them apart"
        )


def _safe_issuer(url: str) -> str:
    try:
        return require_safe(url.rstrip("/"), "Provider(issuer=…)")
    except Unauthorized as error:
        raise ConfigError(str(error)) from None
