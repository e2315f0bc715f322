"""The credentials of a client: `Client(url, auth=…)`.

    OAuth               a user logs in once, in a browser; everything else happens by itself
    ClientCredentials   a program that acts for itself, with a secret or a private key
    EnterpriseManaged   a user whose enterprise decides; an existing login is passed on
    WorkloadIdentity    a program whose platform vouches for it
    BearerToken         a token from elsewhere

These are settings; `bind` returns what works for one server (`bound_credentials.py`). None of them
shows a secret.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from ...errors import ConfigError, Unauthorized
from ...ports import Fetch, HttpResponse
from ...text import one_line
from ..urls import is_confidential, origin, require_confidential
from ..wire import parse_scopes, read_requirements
from .bound_credentials import BoundCredentials
from .browser import Browser, LoopbackBrowser
from .discovery import FlowOptions, check_document_url
from .grants import JWT_BEARER, EnterpriseLogin, UnattendedGrant, assertion_signer
from .store import ClientRegistration, MemoryStore, Store, default_store

Token: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A token, or a function that returns one whenever it is needed."""
_token_sent: ContextVar[str] = ContextVar("dovetail_auth_bearer_sent", default="")
"""The token that the request of this task carried."""


class _OAuthCredentials:
    """What all OAuth credentials have in common."""

    named: tuple[str, ...] = ()
    """URLs that the user has chosen, which may be on a private network."""
    extensions: tuple[str, ...] = ()
    """Extensions that a client with these credentials declares among its capabilities."""

    def __init__(self, options: FlowOptions, store: Store | None) -> None:
        self._options, self._store = options, store

    def bind(self, url: str, fetch: Fetch) -> BoundCredentials:
        """Return the credentials for one server.

        Args:
            url: The URL of the server.
            fetch: What sends requests to authorization servers.
        """
        if self._store is None:
            self._store = MemoryStore()
        options = replace(self._options, url=url)
        return BoundCredentials(options, fetch, self._store, grant=self._make_grant)

    async def _make_grant(self) -> UnattendedGrant:
        raise NotImplementedError

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Raise ConfigError: these credentials have to be bound to a server first.

        Args:
            method: The method of a request.
            url: The URL of a request.
        """
        raise ConfigError(
            "These credentials are not bound to a server. Call credentials.bind(url, fetch) first."
        )

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Return False: nothing is sent before these credentials are bound to a server.

        Args:
            method: The method of the request.
            url: The URL of the request.
            answer: The response.
        """
        return False

    def on_response(self, answer: HttpResponse) -> None:
        """Do nothing: nothing is sent before these credentials are bound to a server.

        Args:
            answer: The response.
        """

    async def authorize(self) -> None:
        """Raise ConfigError: these credentials have to be bound to a server first."""
        await self.headers("", "")


class OAuth(_OAuthCredentials):
    """A user's login: `Client(url, auth=OAuth())`.

    By default the client registers itself, opens the browser when a login is needed, and stores the
    tokens for the next time.

    Args:
        scopes: Scopes to request in addition to those that the server requires: a list, or a string
            with spaces.
        client_id: The id of the client, if it was registered by hand.
        client_secret: The secret that goes with it.
        issuer: The authorization server that issued the id (default: the first where it is used).
        client_metadata_url: The https URL of a document about this client, which serves as its id
            at authorization servers that support that.
        client_name: The name that users see on the consent page (default: Dovetail).
        client_uri: The home page of the client, for a registration.
        redirect_port: The local port that the browser returns to (default: 28479, or any that is
            free).
        store: Where tokens are stored (default: `default_store()`).
        browser: How to send the user to a page (default: `LoopbackBrowser()`). False never logs in:
            a stored login is used, or Unauthorized raised.
        dpop: True requires tokens that are bound to a key, which are useless to a thief. False
            never requests them. The default is what the server asks for.
        fresh: Whether to log in again in any case. The stored login stays until that has worked.

    Raises:
        ConfigError: `client_secret` is given without `client_id`, or `client_metadata_url` is not
            an https URL with a path.
    """

    def __init__(
        self,
        *,
        scopes: Iterable[str] | str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        issuer: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "Dovetail",
        client_uri: str | None = None,
        redirect_port: int = 0,
        store: Store | None = None,
        browser: Browser | Literal[False] | None = None,
        dpop: bool | None = None,
        fresh: bool = False,
    ) -> None:
        if client_secret is not None and client_id is None:
            raise ConfigError("OAuth: client_secret needs a client_id. Pass both.")
        if client_metadata_url is not None:
            check_document_url(client_metadata_url)
        options = FlowOptions(
            client_id=client_id,
            client_secret=client_secret,
            issuer=issuer,
            metadata_url=client_metadata_url,
            name=client_name,
            uri=client_uri,
            scopes=parse_scopes(scopes),
            dpop=dpop,
            fresh=fresh,
        )
        super().__init__(options, store)
        self._browser = LoopbackBrowser(redirect_port) if browser is None else browser or None

    def bind(self, url: str, fetch: Fetch) -> BoundCredentials:
        """Return the credentials for one server.

        Args:
            url: The URL of the server.
            fetch: What sends requests to authorization servers.
        """
        if self._store is None:
            self._store = default_store()
        options = replace(self._options, url=url)
        return BoundCredentials(options, fetch, self._store, browser=self._browser)


class ClientCredentials(_OAuthCredentials):
    """A program's own credentials, with a secret or a private key.

    Args:
        client_id: The id of the program at the authorization server.
        client_secret: Its secret. Pass this or `private_key`.
        private_key: The private key (PEM) with which the program signs its assertions. Needs
            `dovetail-mcp[auth]`.
        algorithm: The signature algorithm for `private_key` (default: ES256).
        scopes: Scopes to request in addition to those that the server requires.
        issuer: The authorization server that issued the id (default: the first where it is used).
        store: Where tokens are stored (default: in memory).
        dpop: True requires tokens that are bound to a key, False never requests them. The default
            is what the server asks for.

    Raises:
        ConfigError: Not exactly one of `client_secret` and `private_key` is given, or the key
            cannot be read.
    """

    extensions = ("io.modelcontextprotocol/oauth-client-credentials",)

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        private_key: str | bytes | None = None,
        algorithm: str = "ES256",
        scopes: Iterable[str] | str | None = None,
        issuer: str | None = None,
        store: Store | None = None,
        dpop: bool | None = None,
    ) -> None:
        if (client_secret is None) == (private_key is None):
            raise ConfigError("ClientCredentials: pass either a client_secret or a private_key")
        method = None if private_key is None else "private_key_jwt"
        options = FlowOptions(
            client_id=client_id,
            client_secret=client_secret,
            issuer=issuer,
            auth_method=method,
            scopes=parse_scopes(scopes),
            dpop=dpop,
        )
        super().__init__(options, store)
        self._sign = None if private_key is None else assertion_signer(private_key, algorithm)

    async def _make_grant(self) -> UnattendedGrant:
        return UnattendedGrant({"grant_type": "client_credentials"}, sign=self._sign)


class EnterpriseManaged(_OAuthCredentials):
    """A user's login at an enterprise, passed on to the server without a second login.

    Args:
        client_id: The id of the client at the server's authorization server.
        client_secret: The secret that goes with it.
        id_token: The ID token of the user from the identity provider, or a function (sync or async)
            that returns one whenever it is needed.
        idp_token_endpoint: The token endpoint of the identity provider, which exchanges the ID
            token. Must be https, or http on localhost.
        idp_client_id: The id of the client at the identity provider.
        idp_client_secret: The secret that goes with it.
        scopes: Scopes to request in addition to those that the server requires.
        issuer: The authorization server that issued `client_id` (default: the first where it is
            used).
        store: Where tokens are stored (default: in memory).
        dpop: True requires tokens that are bound to a key, False never requests them. The default
            is what the server asks for.

    Raises:
        ConfigError: `idp_token_endpoint` is not https (or http on localhost).
    """

    extensions = ("io.modelcontextprotocol/enterprise-managed-authorization",)

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        id_token: Token,
        idp_token_endpoint: str,
        idp_client_id: str,
        idp_client_secret: str | None = None,
        scopes: Iterable[str] | str | None = None,
        issuer: str | None = None,
        store: Store | None = None,
        dpop: bool | None = None,
    ) -> None:
        if not is_confidential(idp_token_endpoint):
            raise ConfigError(
                "EnterpriseManaged: idp_token_endpoint must be https: "
                f"{one_line(idp_token_endpoint)}"
            )
        options = FlowOptions(
            client_id=client_id,
            client_secret=client_secret,
            issuer=issuer,
            scopes=parse_scopes(scopes),
            dpop=dpop,
        )
        super().__init__(options, store)
        self._id_token, self.named = id_token, (idp_token_endpoint,)
        self._idp_client = ClientRegistration(
            client_id=idp_client_id,
            client_secret=idp_client_secret,
            auth_method="none" if idp_client_secret is None else "client_secret_basic",
        )

    async def _make_grant(self) -> UnattendedGrant:
        id_token = await _resolve_token(self._id_token)
        login = EnterpriseLogin(self.named[0], self._idp_client, id_token)
        return UnattendedGrant({"grant_type": JWT_BEARER}, login=login)


class WorkloadIdentity(_OAuthCredentials):
    """A program's identity as its platform states it (Kubernetes, a cloud, a CI system).

    Args:
        client_id: The id of the program at the authorization server.
        assertion: A JWT of the platform, or a function (sync or async) that returns one whenever it
            is needed.
        scopes: Scopes to request in addition to those that the server requires.
        issuer: The authorization server that issued the id (default: the first where it is used).
        store: Where tokens are stored (default: in memory).
        dpop: True requires tokens that are bound to a key, False never requests them. The default
            is what the server asks for.
    """

    def __init__(
        self,
        client_id: str,
        assertion: Token,
        *,
        scopes: Iterable[str] | str | None = None,
        issuer: str | None = None,
        store: Store | None = None,
        dpop: bool | None = None,
    ) -> None:
        options = FlowOptions(
            client_id=client_id,
            issuer=issuer,
            auth_method="none",
            scopes=parse_scopes(scopes),
            dpop=dpop,
        )
        super().__init__(options, store)
        self._assertion = assertion

    async def _make_grant(self) -> UnattendedGrant:
        assertion = await _resolve_token(self._assertion)
        return UnattendedGrant({"grant_type": JWT_BEARER, "assertion": assertion})


class BearerToken:
    """A token from elsewhere. It is sent to the server that it is bound to, and nowhere else.

    Args:
        token: The token, or a function (sync or async) that returns one for each request.
    """

    def __init__(self, token: Token) -> None:
        self._token = token
        self._url = ""

    def bind(self, url: str, fetch: Fetch) -> "BearerToken":
        """Return the same token, for one server.

        Args:
            url: The URL of the server.
            fetch: Not used.
        """
        bound = BearerToken(self._token)
        bound._url = url
        return bound

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the Authorization header; nothing for a URL of another origin.

        Args:
            method: The method of the request.
            url: The URL of the request.

        Raises:
            Unauthorized: The URL is not https (or http on localhost).
            ConfigError: The token is not printable ASCII.
        """
        if origin(url) != origin(self._url):
            return {}
        require_confidential(url)
        _token_sent.set(token := await _resolve_token(self._token))
        return {"authorization": f"Bearer {token}"}

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Handle a 401 or 403 response. True if there is another token by now.

        Args:
            method: The method of the request.
            url: The URL of the request.
            answer: The response.

        Raises:
            Unauthorized: There is no other token.
        """
        required = read_requirements(answer)
        if answer.status == 403 and required.error != "insufficient_scope":
            return False
        if (
            answer.status == 401
            and not isinstance(self._token, str)
            and _token_sent.get() != await _resolve_token(self._token)
        ):
            return True
        if answer.status == 403 and required.scopes:
            raise Unauthorized(
                f"{self._url} requires a token with these scopes: "
                f"{one_line(' '.join(required.scopes))}",
                scopes=required.scopes,
            )
        raise Unauthorized(f"{self._url} refuses this token{required.reason}. Pass another one.")

    def on_response(self, answer: HttpResponse) -> None:
        """Do nothing: no response changes a token from elsewhere.

        Args:
            answer: The response.
        """

    async def authorize(self) -> None:
        """Raise Unauthorized: nobody can log in with a token from elsewhere."""
        raise Unauthorized(f"{self._url} refuses this token. Pass another one.")


async def _resolve_token(token: Token) -> str:
    found: Any = token if isinstance(token, str) else token()
    if inspect.isawaitable(found):
        found = await found
    if not isinstance(found, str) or not found or not all("!" <= char <= "~" for char in found):
        raise ConfigError("A token must be printable ASCII, without spaces or line breaks")
    return found
