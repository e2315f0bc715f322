"""What a client may get in with: `Client(url, auth=…)`.

    OAuth               a user logs in, in a browser, once; everything else goes by itself
    ClientCredentials   a program that acts for itself, with a secret or a private key
    EnterpriseManaged   a user whose enterprise decides; its login is passed on, no second one is
                        needed
    WorkloadIdentity    a program that its platform vouches for
    BearerToken         a token from elsewhere

These are settings; `bind` makes what works for one server (`bound.py`). None of them shows a
secret.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...errors import ConfigError, Unauthorized
from ...ports import Fetch, HttpResponse
from ...text import one_line
from ..challenges import read_requirements
from ..documents import parse_scopes
from ..urls import is_confidential, origin, require_confidential
from .grants import (
    IdentityProvider,
    UnattendedGrant,
    assertion_signer,
    client_credentials,
    enterprise_managed,
    workload_identity,
)
from .registration import ClientIdentity, check_document_url

if TYPE_CHECKING:
    from .bound_credentials import BoundCredentials
    from .browser import Browser
    from .store import Store

Token: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A token, or what gets one whenever it is asked."""
_token_sent: ContextVar[str] = ContextVar("dovetail_auth_sent", default="")
"""What the request of this task carried."""


class _OAuthCredentials:
    """What all credentials of OAuth have in common."""

    _identity: ClientIdentity
    _scopes: tuple[str, ...]
    _store: "Store | None"
    _browser: "Browser | Literal[False] | None" = None
    _grant: Callable[[], Awaitable[UnattendedGrant]] | None = None
    _dpop: bool | None
    _fresh = False
    named: tuple[str, ...] = ()
    """Addresses of the user's own choice, which may be on the local network."""
    extensions: tuple[str, ...] = ()
    """What a client that uses these declares among its capabilities."""

    def bind(self, url: str, fetch: Fetch) -> "BoundCredentials":
        """What works for the server at this URL."""
        from .bound_credentials import BoundCredentials
        from .flow import FlowOptions

        plan = FlowOptions(
            url=url,
            identity=self._identity,
            scopes=self._scopes,
            dpop=self._dpop,
            fresh=self._fresh,
        )
        return BoundCredentials(
            plan, fetch, self._kept_in(), browser=self._browser or None, grant=self._grant
        )

    def _kept_in(self) -> "Store":
        if self._store is None:
            from .store import MemoryStore

            self._store = MemoryStore()
        return self._store

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Nothing goes with a request before these are bound to a server."""
        raise ConfigError("credentials are bound to a server first: credentials.bind(url, fetch)")

    async def refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Nothing can be refused before."""
        return False

    def heard(self, answer: HttpResponse) -> None:
        """Nor heard."""

    async def authorize(self) -> None:
        """Nor authorized."""
        await self.headers("", "")


class OAuth(_OAuthCredentials):
    """A user's login. Without settings it registers itself, opens the browser and remembers what it
    got.

    `client_id` (and `client_secret`) where it was registered by hand, with `issuer` for whose they
    are; `client_metadata_url` where a document about it is published. `scopes` are asked for in
    addition to what the server wants. `dpop=True` insists on tokens that are of no use to a thief.
    `store` and `browser` replace those of this system; `browser=False` uses the login that is there
    and makes no other. `fresh=True` makes another, whatever is there.
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
        store: "Store | None" = None,
        browser: "Browser | Literal[False] | None" = None,
        dpop: bool | None = None,
        fresh: bool = False,
    ) -> None:
        if client_secret is not None and client_id is None:
            raise ConfigError("OAuth: a client_secret belongs to a client_id; give both")
        self._identity = ClientIdentity(
            client_id=client_id,
            client_secret=client_secret,
            issuer=issuer,
            metadata_url=None
            if client_metadata_url is None
            else check_document_url(client_metadata_url),
            name=client_name,
            uri=client_uri,
        )
        self._scopes = parse_scopes(scopes)
        self._store, self._browser, self._port, self._dpop = store, browser, redirect_port, dpop
        self._fresh = fresh

    def bind(self, url: str, fetch: Fetch) -> "BoundCredentials":
        """What works for the server at this URL."""
        if self._browser is None:
            from .browser import LoopbackBrowser

            self._browser = LoopbackBrowser(self._port)
        return super().bind(url, fetch)

    def _kept_in(self) -> "Store":
        if self._store is None:
            from .store import default_store

            self._store = default_store()
        return self._store


class ClientCredentials(_OAuthCredentials):
    """A program's own credentials: a `client_secret`, or a `private_key` (PEM) that it signs with.
    `issuer` says whose they are; without it they belong to the first authorization server that they
    are used at."""

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
        store: "Store | None" = None,
        dpop: bool | None = None,
    ) -> None:
        if (client_secret is None) == (private_key is None):
            raise ConfigError(
                "ClientCredentials: give a client_secret or a private_key, one of them"
            )
        method = None if private_key is None else "private_key_jwt"
        self._identity = ClientIdentity(
            client_id=client_id, client_secret=client_secret, issuer=issuer, auth_method=method
        )
        self._sign = None if private_key is None else assertion_signer(private_key, algorithm)
        self._scopes, self._store, self._dpop = parse_scopes(scopes), store, dpop
        self._grant = self._credentials

    async def _credentials(self) -> UnattendedGrant:
        return partial(client_credentials, sign=self._sign)


class EnterpriseManaged(_OAuthCredentials):
    """A user's login at an enterprise, passed on: `id_token` is what its identity provider gave (or
    gets one), and `idp_token_endpoint` exchanges it. `client_id` and `client_secret` are those at
    the server's authorization server."""

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
        store: "Store | None" = None,
        dpop: bool | None = None,
    ) -> None:
        if not is_confidential(idp_token_endpoint):
            raise ConfigError(
                "EnterpriseManaged: idp_token_endpoint has to be https: "
                f"{one_line(idp_token_endpoint)}"
            )
        self._identity = ClientIdentity(
            client_id=client_id, client_secret=client_secret, issuer=issuer
        )
        self._id_token, self.named = id_token, (idp_token_endpoint,)
        self._provider = partial(
            IdentityProvider,
            token_endpoint=idp_token_endpoint,
            client_id=idp_client_id,
            client_secret=idp_client_secret,
        )
        self._scopes, self._store, self._dpop = parse_scopes(scopes), store, dpop
        self._grant = self._exchange

    async def _exchange(self) -> UnattendedGrant:
        return partial(
            enterprise_managed,
            provider=self._provider(id_token=await _resolve_token(self._id_token)),
        )


class WorkloadIdentity(_OAuthCredentials):
    """A program's identity as its platform states it: `assertion` is a JWT, or gets one whenever it
    is needed."""

    def __init__(
        self,
        client_id: str,
        assertion: Token,
        *,
        scopes: Iterable[str] | str | None = None,
        issuer: str | None = None,
        store: "Store | None" = None,
        dpop: bool | None = None,
    ) -> None:
        self._identity = ClientIdentity(client_id=client_id, issuer=issuer, auth_method="none")
        self._assertion = assertion
        self._scopes, self._store, self._dpop = parse_scopes(scopes), store, dpop
        self._grant = self._vouched

    async def _vouched(self) -> UnattendedGrant:
        return partial(workload_identity, assertion=await _resolve_token(self._assertion))


class BearerToken:
    """A token from elsewhere, or what gets one. It goes to the server it is bound to, and nowhere
    else."""

    def __init__(self, token: Token) -> None:
        self._token = token
        self._url = ""

    def bind(self, url: str, fetch: Fetch) -> "BearerToken":
        """The same token, for the server at this URL."""
        bound = BearerToken(self._token)
        bound._url = url
        return bound

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """The token, where it belongs."""
        if origin(url) != origin(self._url):
            return {}
        require_confidential(url)
        _token_sent.set(token := await _resolve_token(self._token))
        return {"authorization": f"Bearer {token}"}

    async def refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Ask again with another token, if there is another."""
        asked = read_requirements(answer)
        if answer.status == 403 and asked.error != "insufficient_scope":
            return False
        if (
            answer.status == 401
            and not isinstance(self._token, str)
            and _token_sent.get() != await _resolve_token(self._token)
        ):
            return True
        if answer.status == 403 and asked.scopes:
            needed = one_line(" ".join(asked.scopes))
            raise Unauthorized(
                f"{self._url} needs a token with the scopes {needed}; give another one",
                scopes=asked.scopes,
            )
        raise Unauthorized(f"{self._url} refuses this token{asked.reason}; give another one")

    def heard(self, answer: HttpResponse) -> None:
        """Nothing that matters to a token from elsewhere."""

    async def authorize(self) -> None:
        """Nobody can log in with it."""
        raise Unauthorized(f"{self._url} refuses this token; give another one")


async def _resolve_token(token: Token) -> str:
    found: Any = token if isinstance(token, str) else token()
    if inspect.isawaitable(found):
        found = await found
    if not isinstance(found, str) or not found or not all("!" <= letter <= "~" for letter in found):
        raise ConfigError(
            "a token is a word of printable ASCII, without spaces or line breaks; what was "
            "given is none"
        )
    return found
