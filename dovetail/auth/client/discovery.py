"""Discovery of a server's authorization server, and of this client's id at that authorization
server.

The functions in this module are generators that do no I/O. They yield an `HttpRequest` and receive
the `HttpResponse`.

    the server's metadata    the `resource_metadata` in its challenge, or else
                             /.well-known/oauth-protected-resource/path, or else the same URL
                             without the path
    the issuer               the first issuer in the metadata with support for the required features
    the issuer's metadata    RFC 8414 with the issuer's path inserted, then OpenID Connect with the
                             path inserted, then with the path appended

Discovery fails if the metadata of a server is for another resource, or if the metadata of an issuer
is for another issuer: https://www.rfc-editor.org/rfc/rfc9728#section-3.3,
https://www.rfc-editor.org/rfc/rfc8414#section-3.3.

A server without metadata is assumed to use the first revision that defined authorization. In that
revision, the authorization server publishes metadata at the same origin, or else has three default
endpoints. A server that cannot be *reached* is not assumed to use that revision.

The client gets its id from one of these sources, in the order that the specification prefers:

    given        the user registered the client in advance, at one issuer
    document     the id is the URL of a document about the client, if the issuer supports this
    registered   the client registers itself (RFC 7591), and stores the registration

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/client-registration

An id that was given without its issuer belongs to the first issuer that it is used with. A client
registers itself again if its registration has expired, was for another redirect URI or too few
scopes, or is no longer known to the server.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from msgspec.json import encode

from ...errors import ConfigError, ConnectFailed, TimedOut, Unauthorized
from ...net import is_loopback
from ...ports import HttpRequest, HttpResponse
from ...text import one_line
from ..urls import (
    canonical_url,
    covers_url,
    origin,
    require_safe,
    resource_metadata_urls,
    server_metadata_urls,
)
from ..wire import (
    ClientInformation,
    ClientMetadata,
    ErrorReply,
    ResourceMetadata,
    SecretStruct,
    ServerMetadata,
    read_document,
)
from .steps import StepRequest
from .store import ClientRegistration, ServerRecord

MAX_REQUESTS_PER_DOCUMENT = 4
"""The limit includes redirects, which are only followed within the same origin."""
MAX_ISSUERS = 5
"""The maximum number of authorization servers to try for one resource."""
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint")

T = TypeVar("T", bound=Struct)
R = TypeVar("R")
DiscoverySteps: TypeAlias = Generator[HttpRequest, HttpResponse, R]
"""Yields requests, receives their responses, and returns the result."""
ChooseIssuers: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""Receives the issuers that a server names, and returns those to try, in order. Raises Unauthorized
if none of them is acceptable."""
CheckServer: TypeAlias = Callable[[ServerMetadata], None]
"""Raises Unauthorized if an authorization server does not support the required features."""


class DiscoveryResult(Struct, frozen=True):
    """The authorization server to use, with the resource and scopes to request."""

    resource: str
    """The server's identifier according to its metadata. Requests must repeat this identifier
    exactly."""
    server: ServerMetadata
    scopes: tuple[str, ...] = ()
    """The scopes in the server's metadata, which are requested at the first login."""
    requires_dpop: bool = False
    """Whether the server accepts only tokens that are bound to a key."""

    @property
    def token_endpoint(self) -> str:
        """The token endpoint. Discovery rejects servers without a token endpoint."""
        return self.server.token_endpoint or ""


def discover(
    url: str, metadata_url: str | None, choose: ChooseIssuers, check: CheckServer
) -> DiscoverySteps[DiscoveryResult]:
    """Find the authorization server for the server at `url`. `metadata_url` is the URL of the
    server's metadata, if its challenge contained one."""
    resource = yield from resource_metadata(url, metadata_url)
    if resource is None:
        server = yield from conventional_server(url)
        choose((server.issuer,))
        check(server)
        return DiscoveryResult(canonical_url(url), server)
    if not resource.authorization_servers:
        raise Unauthorized(
            f"{url}: the server's metadata does not name an authorization server. Contact its "
            "operator."
        )
    first_error: Unauthorized | ConnectFailed | TimedOut | None = None
    for issuer in choose(resource.authorization_servers)[:MAX_ISSUERS]:
        try:
            server = yield from server_metadata(issuer)
            check(server)
        except (Unauthorized, ConnectFailed, TimedOut) as error:
            first_error = first_error or error
            continue
        scopes = tuple(resource.scopes_supported or ())
        return DiscoveryResult(
            resource.resource, server, scopes, resource.dpop_bound_access_tokens_required
        )
    raise first_error or Unauthorized(
        f"{url}: none of the server's authorization servers can be used"
    )


def resource_metadata(
    url: str, metadata_url: str | None
) -> DiscoverySteps[ResourceMetadata | None]:
    """Get the metadata of the server at `url`. Returns None if it has no metadata."""
    require_safe(canonical_url(url), "The server's URL")
    candidates = resource_metadata_urls(url)
    if metadata_url is not None:
        safe = require_safe(metadata_url, f"{url}: the metadata URL")
        candidates = list(dict.fromkeys((safe, *candidates)))
    found = yield from _first_document(candidates, ResourceMetadata)
    if found is not None and not covers_url(found.resource, url):
        raise Unauthorized(
            f"{url}: the server's metadata is for another resource, "
            f"{one_line(found.resource)}. Logging in "
            "would not be safe."
        )
    return found


def server_metadata(issuer: str) -> DiscoverySteps[ServerMetadata]:
    """Get the metadata of an issuer."""
    require_safe(issuer, "The authorization server")
    if urlsplit(issuer).query:
        raise Unauthorized(
            f"The authorization server's URL is not a valid issuer: {one_line(issuer)}"
        )
    found = yield from _first_document(server_metadata_urls(issuer), ServerMetadata)
    if found is None:
        raise Unauthorized(
            f"{issuer}: this authorization server publishes no metadata (RFC 8414). Contact "
            "its operator."
        )
    return _check_metadata(found, issuer, (issuer,))


def conventional_server(url: str) -> DiscoverySteps[ServerMetadata]:
    """Get the authorization server at the origin of a server without metadata."""
    base = require_safe(origin(url), "The authorization server")
    found = yield from _first_document(server_metadata_urls(base)[:1], ServerMetadata)
    if found is None:
        return ServerMetadata(
            issuer=base,
            authorization_endpoint=f"{base}/authorize",
            token_endpoint=f"{base}/token",
            registration_endpoint=f"{base}/register",
            # That revision requires every server to support PKCE.
            code_challenge_methods_supported=["S256"],
        )
    # The exact spelling of the issuer is unknown, and both spellings lead to the same document.
    return _check_metadata(found, base, (base, f"{base}/"))


def _check_metadata(
    server: ServerMetadata, issuer: str, spellings: tuple[str, ...]
) -> ServerMetadata:
    if server.issuer not in spellings:
        raise Unauthorized(
            f"{issuer}: the metadata is for another issuer, {one_line(server.issuer)}. Logging in "
            "would not be safe."
        )
    for name in ENDPOINTS:
        endpoint = getattr(server, name)
        if endpoint is not None:
            require_safe(endpoint, f"{server.issuer}: the {name}")
    return server


def _first_document(urls: Sequence[str], kind: type[T]) -> DiscoverySteps[T | None]:
    """Get the first of these documents that exists. Raises the first error if no document was found
    and a request failed."""
    first_error: ConnectFailed | TimedOut | None = None
    for url in urls:
        try:
            found = yield from _document(url, kind)
        except (ConnectFailed, TimedOut) as error:
            first_error = first_error or error
            continue
        if found is not None:
            return found
    if first_error is not None:
        raise first_error
    return None


def _document(url: str, kind: type[T]) -> DiscoverySteps[T | None]:
    first_origin = origin(url)
    for _ in range(MAX_REQUESTS_PER_DOCUMENT):
        answer = yield StepRequest(
            step="resource_metadata" if kind is ResourceMetadata else "server_metadata",
            method="GET",
            url=url,
            headers={"accept": "application/json"},
        )
        if answer.status == 200:
            return read_document(answer.body, kind)
        if answer.status == 429 or answer.status >= 500:
            raise ConnectFailed(f"{url}: HTTP {answer.status}. Try again later.")
        if answer.status not in (301, 302, 303, 307, 308):
            return None
        try:
            url = urljoin(url, answer.headers.get("location", ""))
        except ValueError:  # a malformed IPv6 address
            return None
        if origin(url) != first_origin:
            return None
    return None


def require_metadata(server: ServerMetadata, **needed: Any) -> None:
    """Raise Unauthorized unless each field of the metadata contains the required value. `...`
    accepts any value that is not empty."""
    for name, value in needed.items():
        found = getattr(server, name)
        if not found or (value is not ... and value not in found):
            missing = name if value is ... else f"{value} in {name}"
            raise Unauthorized(
                f"{server.issuer}: the metadata has no {missing}, which a secure login requires"
            )


# this client, as an authorization server knows it

SECRET_METHODS = ("client_secret_basic", "client_secret_post")
AUTH_METHODS = ("none", *SECRET_METHODS)
"""The authentication methods for the token endpoint, in order of preference."""
DEFAULT_AUTH_METHODS = ("client_secret_basic",)
"""The methods to assume for a server that lists none:
https://www.rfc-editor.org/rfc/rfc8414#section-2"""
EXPIRY_MARGIN_SECONDS = 60.0


class FlowOptions(SecretStruct, kw_only=True):
    """The user's settings for this client and its logins."""

    url: str = ""
    """The URL of the server."""
    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    """The issuer of the client id."""
    auth_method: str | None = None
    metadata_url: str | None = None
    name: str = "Dovetail"
    uri: str | None = None
    scopes: tuple[str, ...] = ()
    dpop: bool | None = None
    """Whether tokens must be bound to a key. If None, the server decides."""
    fresh: bool = False
    """Whether to ignore the stored login and log in again. The stored login is kept until the new
    login succeeds."""


def issuer_chooser(options: FlowOptions, record: ServerRecord) -> ChooseIssuers:
    """Return a function that orders the issuers of a server. Issuers at which this client is
    registered come first. If the user passed a client id, only its issuer is returned."""

    def choose(issuers: Sequence[str]) -> Sequence[str]:
        known_issuer = options.issuer or _issuer_used_before(options, record)
        if known_issuer is None:
            return sorted(
                dict.fromkeys(issuers), key=lambda issuer: issuer not in record.registrations
            )
        if known_issuer not in issuers:
            raise Unauthorized(
                f"The client_id was issued by {known_issuer}, but the server now uses "
                f"{one_line(', '.join(issuers))}. If that is correct, pass the client_id= and "
                "issuer= of the new authorization server."
            )
        return (known_issuer,)

    return choose


def check_document_url(url: str) -> None:
    """Raise ConfigError unless the URL can serve as a client id, which requires https and a
    path."""
    parts = urlsplit(url)
    if (
        parts.scheme != "https"
        or not parts.hostname
        or len(parts.path) < 2
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ConfigError(
            "client_metadata_url must be an https URL with a path, such as "
            f"https://example.com/client.json: {url}"
        )


def use_given_client(
    options: FlowOptions, found: DiscoveryResult, record: ServerRecord
) -> ClientRegistration:
    """Return the client that the user registered, and remember the issuer that it is used with."""
    if options.client_id is None:
        raise ConfigError("The client_id is missing")
    # The secret is not stored; only the issuer is remembered.
    record.register(found.server.issuer, ClientRegistration(client_id=options.client_id))
    return ClientRegistration(
        client_id=options.client_id,
        client_secret=options.client_secret,
        auth_method=options.auth_method
        or choose_auth_method(found.server, has_secret=options.client_secret is not None),
    )


def choose_auth_method(server: ServerMetadata, *, has_secret: bool) -> str:
    """Return the method that a client uses to authenticate at a token endpoint."""
    if not has_secret:
        return "none"
    offered = server.token_endpoint_auth_methods_supported or DEFAULT_AUTH_METHODS
    return next((method for method in SECRET_METHODS if method in offered), SECRET_METHODS[0])


def obtain_registration(
    options: FlowOptions,
    found: DiscoveryResult,
    record: ServerRecord,
    redirect_uri: str,
    scopes: Sequence[str],
    now: float,
) -> Generator[HttpRequest, HttpResponse, ClientRegistration]:
    """Return the registration of this client at an authorization server. Registers the client if
    needed."""
    server = found.server
    if options.client_id is not None:
        return use_given_client(options, found, record)
    if options.metadata_url is not None and server.client_id_metadata_document_supported:
        client = ClientRegistration(client_id=options.metadata_url, source="document")
        record.register(server.issuer, client)
        return client
    known = record.registrations.get(server.issuer)
    if known is not None and _is_usable(known, redirect_uri, scopes, now):
        return known
    if server.registration_endpoint is None:
        raise Unauthorized(
            f"{server.issuer} does not let clients register themselves. Register this client "
            "manually, with a redirect URI on localhost, and pass its client_id."
        )
    wider = tuple(dict.fromkeys((*scopes, *found.scopes)))
    client = yield from _register(options, server, redirect_uri, wider)
    record.register(server.issuer, client)
    return client


def _register(
    options: FlowOptions, server: ServerMetadata, redirect_uri: str, scopes: Sequence[str]
) -> Generator[HttpRequest, HttpResponse, ClientRegistration]:
    offered = server.token_endpoint_auth_methods_supported or DEFAULT_AUTH_METHODS
    wanted_method = next((method for method in AUTH_METHODS if method in offered), AUTH_METHODS[0])
    metadata = ClientMetadata(
        redirect_uris=[redirect_uri],
        client_name=options.name,
        client_uri=options.uri,
        # OpenID providers treat a client without a type as a website, and refuse its loopback
        # addresses.
        application_type="native" if is_loopback(urlsplit(redirect_uri).hostname) else "web",
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method=wanted_method,
        scope=" ".join(scopes) or None,
    )
    endpoint = server.registration_endpoint or ""
    answer = yield StepRequest(
        step="registration",
        method="POST",
        url=endpoint,
        headers={"content-type": "application/json", "accept": "application/json"},
        body=encode(metadata),
    )
    if answer.status == 429 or answer.status >= 500:
        raise ConnectFailed(
            f"{endpoint}: the registration endpoint answered with HTTP {answer.status}. Try "
            "again later."
        )
    information = (
        read_document(answer.body, ClientInformation) if answer.status in (200, 201) else None
    )
    if information is None or not information.client_id:
        error = read_document(answer.body, ErrorReply)
        reason = error.text if error is not None else f"HTTP {answer.status}"
        raise Unauthorized(
            f"{server.issuer} did not register this client ({reason}). Register the client "
            "manually and pass its client_id."
        )
    method = information.token_endpoint_auth_method or wanted_method
    if method not in AUTH_METHODS:
        raise Unauthorized(
            f"{server.issuer} registered this client for {one_line(method)}, which is not "
            "supported and was not requested"
        )
    return ClientRegistration(
        client_id=information.client_id,
        client_secret=information.client_secret,
        auth_method=method if information.client_secret else "none",
        source="registered",
        expires_at=information.client_secret_expires_at or None,  # 0 means never: RFC 7591, 3.2.1
        redirect_uri=redirect_uri,
        scopes=tuple(scopes),
    )


def _is_usable(
    client: ClientRegistration, redirect_uri: str, scopes: Sequence[str], now: float
) -> bool:
    return (
        client.source == "registered"
        and (client.expires_at is None or now < client.expires_at - EXPIRY_MARGIN_SECONDS)
        and (not client.scopes or set(scopes) <= set(client.scopes))
        and client.redirect_uri == redirect_uri
    )


def _issuer_used_before(options: FlowOptions, record: ServerRecord) -> str | None:
    if options.client_id is None:
        return None
    used = (
        issuer
        for issuer, client in record.registrations.items()
        if client.client_id == options.client_id
    )
    return next(used, None)
