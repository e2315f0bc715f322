"""Credentials for clients: `Client(url, auth=…)`.

    OAuth               a user's login, in a browser the first time and automatic after that
    ClientCredentials   a program's own secret or private key
    EnterpriseManaged   a user's existing enterprise login
    WorkloadIdentity    a program's identity, asserted by its platform
    BearerToken         a token that was obtained elsewhere

These classes hold settings. Their `bind` method returns the credentials for one server
(`bound_credentials.py`), and their `repr` does not show secrets.
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
"""A token, or a function that is called whenever a token is needed."""
_token_sent: ContextVar[str] = ContextVar("dovetail_auth_bearer_sent", default="")
"""The token that this task sent with its request."""


class _OAuthCredentials:
    """The base class of all OAuth credentials."""

    named: tuple[str, ...] = ()
    """URLs that the user configured, which may be on a private network."""
    extensions: tuple[str, ...] = ()
    """The extensions that a client with these credentials declares in its capabilities."""

    def __init__(self, options: FlowOptions, store: Store | None) -> None:
        self._options, self._store = options, store

    def bind(self, url: str, fetch: Fetch) -> BoundCredentials:
        """Return the credentials for one server.

        Args:
            url: The URL of the server.
            fetch: A function that sends requests to authorization servers.
        """
        if self._store is None:
            self._store = MemoryStore()
        options = replace(self._options, url=url)
        return BoundCredentials(options, fetch, self._store, grant=self._make_grant)

    async def _make_grant(self) -> UnattendedGrant:
        raise NotImplementedError

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Raise ConfigError because these credentials must be bound to a server first.

        Args:
            method: The method of a request.
            url: The URL of a request.
        """
        raise ConfigError(
            "These credentials are not bound to a server. Call credentials.bind(url, fetch) first."
        )

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Return False because no request is sent before these credentials are bound to a server.

        Args:
            method: The method of the request.
            url: The URL of the request.
            answer: The response.
        """
        return False

    def on_response(self, answer: HttpResponse) -> None:
        """Do nothing because no request is sent before these credentials are bound to a server.

        Args:
            answer: The response.
        """

    async def authorize(self) -> None:
        """Raise ConfigError because these credentials must be bound to a server first."""
        await self.headers("", "")


class OAuth(_OAuthCredentials):
    """A user's login: `Client(url, auth=OAuth())`.

    By default, the client registers itself, opens the browser when a login is needed, and stores
    the tokens.

    Args:
        scopes: Scopes to request in addition to those that the server requires, as a list or a
            space-separated string.
        client_id: The id of the client, if you registered it manually.
        client_secret: The secret for `client_id`.
        issuer: The authorization server that issued `client_id` (default: the first server that the
            client uses it with).
        client_metadata_url: The https URL of a document that describes this client. Authorization
            servers that support such documents use the URL as the client id.
        client_name: The name that users see on the consent page (default: Dovetail).
        client_uri: The URL of the client's home page, which is sent when the client registers.
        redirect_port: The local port that the browser is redirected to (default: 28479, or any free
            port if that is in use).
        store: Where tokens are stored (default: `default_store()`).
        browser: The browser to log in with (default: `LoopbackBrowser()`). If False, only a stored
            login is used, and Unauthorized is raised if there is none.
        dpop: Whether to require tokens that are bound to a key, which are useless to a thief. If
            False, such tokens are never requested (default: the server decides).
        fresh: Whether to ignore the stored login and log in again (default: False). The stored
            login is kept until the new login succeeds.

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
            raise ConfigError("OAuth: client_secret requires a client_id. Pass both.")
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
            fetch: A function that sends requests to authorization servers.
        """
        if self._store is None:
            self._store = default_store()
        options = replace(self._options, url=url)
        return BoundCredentials(options, fetch, self._store, browser=self._browser)


class ClientCredentials(_OAuthCredentials):
    """A program's own credentials: a secret or a private key.

    Args:
        client_id: The id of the program at the authorization server.
        client_secret: The secret for `client_id`. Pass either `client_secret` or `private_key`.
        private_key: The private key (PEM) that signs the program's assertions. Requires
            `dovetail-mcp[auth]`.
        algorithm: The signature algorithm for `private_key` (default: ES256).
        scopes: Scopes to request in addition to those that the server requires.
        issuer: The authorization server that issued `client_id` (default: the first server that the
            client uses it with).
        store: Where tokens are stored (default: in memory).
        dpop: Whether to require tokens that are bound to a key. If False, such tokens are never
            requested (default: the server decides).

    Raises:
        ConfigError: Both or neither of `client_secret` and `private_key` are given, or the key
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
    """A user's existing enterprise login, which saves them from logging in a second time.

    Args:
        client_id: The id of the client at the server's authorization server.
        client_secret: The secret for `client_id`.
        id_token: The user's ID token from the identity provider, or a function (sync or async) that
            is called whenever one is needed.
        idp_token_endpoint: The token endpoint of the identity provider, which exchanges the ID
            token. It must use https, or http on localhost.
        idp_client_id: The id of the client at the identity provider.
        idp_client_secret: The secret for `idp_client_id`.
        scopes: Scopes to request in addition to those that the server requires.
        issuer: The authorization server that issued `client_id` (default: the first server that the
            client uses it with).
        store: Where tokens are stored (default: in memory).
        dpop: Whether to require tokens that are bound to a key. If False, such tokens are never
            requested (default: the server decides).

    Raises:
        ConfigError: `idp_token_endpoint` does not use https (or http on localhost).
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
                "EnterpriseManaged: idp_token_endpoint must use https: "
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
    """A program's identity, asserted by its platform (Kubernetes, a cloud provider or a CI system).

    Args:
        client_id: The id of the program at the authorization server.
        assertion: A JWT from the platform, or a function (sync or async) that is called whenever
            one is needed.
        scopes: Scopes to request in addition to those that the server requires.
        issuer: The authorization server that issued `client_id` (default: the first server that the
            client uses it with).
        store: Where tokens are stored (default: in memory).
        dpop: Whether to require tokens that are bound to a key. If False, such tokens are never
            requested (default: the server decides).
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
    """A token that was obtained elsewhere. The token is sent only to the server that it is bound
    to.

    Args:
        token: The token, or a function (sync or async) that returns a token for each request.
    """

    def __init__(self, token: Token) -> None:
        self._token = token
        self._url = ""

    def bind(self, url: str, fetch: Fetch) -> "BearerToken":
        """Return the same token, bound to one server.

        Args:
            url: The URL of the server.
            fetch: Not used.
        """
        bound = BearerToken(self._token)
        bound._url = url
        return bound

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the Authorization header, or no headers if the URL has another origin.

        Args:
            method: The method of the request.
            url: The URL of the request.

        Raises:
            Unauthorized: The URL does not use https (or http on localhost).
            ConfigError: The token is empty or contains characters other than printable ASCII.
        """
        if origin(url) != origin(self._url):
            return {}
        require_confidential(url)
        _token_sent.set(token := await _resolve_token(self._token))
        return {"authorization": f"Bearer {token}"}

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Handle a 401 or 403 response. Returns whether a different token is now available.

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
        raise Unauthorized(f"{self._url} refused this token{required.reason}. Pass another one.")

    def on_response(self, answer: HttpResponse) -> None:
        """Do nothing because responses do not affect the token.

        Args:
            answer: The response.
        """

    async def authorize(self) -> None:
        """Raise Unauthorized because logging in cannot replace a fixed token."""
        raise Unauthorized(f"{self._url} refused this token. Pass another one.")


async def _resolve_token(token: Token) -> str:
    found: Any = token if isinstance(token, str) else token()
    if inspect.isawaitable(found):
        found = await found
    if not isinstance(found, str) or not found or not all("!" <= char <= "~" for char in found):
        raise ConfigError("A token must be printable ASCII, without spaces or line breaks")
    return found
