"""Discovery: from the URL of a server to the authorization server that issues tokens for it, and to
the id of this client there.

Everything here is a generator without I/O: it yields an `HttpRequest` and is sent the
`HttpResponse`.

    the server    the `resource_metadata` of its challenge, else
                  /.well-known/oauth-protected-resource/path, else the same at the root
    its issuers   those that it lists, in order; the first that supports what is needed
    an issuer     RFC 8414 with the issuer's path inserted, then OpenID Connect with the path
                  inserted, then appended

A server whose metadata is for another resource, and an issuer whose metadata is for another issuer,
are lies or mistakes. Both end the search: https://www.rfc-editor.org/rfc/rfc9728#section-3.3,
https://www.rfc-editor.org/rfc/rfc8414#section-3.3.

A server without metadata speaks the revision that had none: metadata at its origin, else three
endpoints by convention. A server that cannot be *reached* is never treated like that.

The client gets its id in the order that the specification prefers:

    given        the user registered the client in advance; valid at one issuer only
    document     the id is the URL of a document about the client, if the server reads those
    registered   the client registers itself (RFC 7591), and keeps the answer for the next time

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/client-registration

An id that was given without its issuer belongs to the first issuer where it is used. A client
registers itself again if the registration has expired, if it was for another redirect URI or for
fewer scopes than are needed now, and if the server has forgotten it.
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
from .store import ClientRegistration, ServerRecord

MAX_REQUESTS_PER_DOCUMENT = 4
"""Including redirects, which are only followed within the same origin."""
MAX_ISSUERS = 5
"""Authorization servers of one resource that are tried."""
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint")

T = TypeVar("T", bound=Struct)
R = TypeVar("R")
DiscoverySteps: TypeAlias = Generator[HttpRequest, HttpResponse, R]
"""Yields requests, is sent their responses, and returns what it found."""
ChooseIssuers: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""Takes the issuers that a server names, and returns those to try, in order. Raises if none of them
will do."""
CheckServer: TypeAlias = Callable[[ServerMetadata], None]
"""Raises Unauthorized if an authorization server does not support what is needed."""


class DiscoveryResult(Struct, frozen=True):
    """Where a token for a server comes from."""

    resource: str
    """The server's own name for itself, which requests repeat exactly."""
    server: ServerMetadata
    scopes: tuple[str, ...] = ()
    """The scopes that the server says are needed to start with."""
    requires_dpop: bool = False
    """Whether the server only accepts tokens that are bound to a key."""

    @property
    def token_endpoint(self) -> str:
        """The token endpoint; servers without one are never the result."""
        return self.server.token_endpoint or ""


def discover(
    url: str, metadata_url: str | None, choose: ChooseIssuers, check: CheckServer
) -> DiscoverySteps[DiscoveryResult]:
    """Find out where to get a token for the server at `url`. `metadata_url` is the URL of its
    metadata, if its challenge named one."""
    resource = yield from resource_metadata(url, metadata_url)
    if resource is None:
        server = yield from conventional_server(url)
        choose((server.issuer,))
        check(server)
        return DiscoveryResult(canonical_url(url), server)
    if not resource.authorization_servers:
        raise Unauthorized(
            f"{url}: its metadata does not name an authorization server. Ask its operator."
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
    raise first_error or Unauthorized(f"{url}: none of its authorization servers can be used")


def resource_metadata(
    url: str, metadata_url: str | None
) -> DiscoverySteps[ResourceMetadata | None]:
    """Get the metadata of the server at `url`; None if it has none."""
    require_safe(canonical_url(url), "The server's URL")
    candidates = resource_metadata_urls(url)
    if metadata_url is not None:
        safe = require_safe(metadata_url, f"{url}: the URL of its metadata")
        candidates = list(dict.fromkeys((safe, *candidates)))
    found = yield from _first_document(candidates, ResourceMetadata)
    if found is not None and not covers_url(found.resource, url):
        raise Unauthorized(
            f"{url}: its metadata is for another resource, {one_line(found.resource)}. Logging in "
            "would not be safe."
        )
    return found


def server_metadata(issuer: str) -> DiscoverySteps[ServerMetadata]:
    """Get the metadata of an issuer."""
    require_safe(issuer, "The authorization server")
    if urlsplit(issuer).query:
        raise Unauthorized(f"The authorization server is not a valid issuer: {one_line(issuer)}")
    found = yield from _first_document(server_metadata_urls(issuer), ServerMetadata)
    if found is None:
        raise Unauthorized(
            f"{issuer}: this authorization server publishes no metadata (RFC 8414). Ask its "
            "operator."
        )
    return _check_metadata(found, issuer, (issuer,))


def conventional_server(url: str) -> DiscoverySteps[ServerMetadata]:
    """Get the authorization server of a server without metadata: its own origin."""
    base = require_safe(origin(url), "The authorization server")
    found = yield from _first_document(server_metadata_urls(base)[:1], ServerMetadata)
    if found is None:
        return ServerMetadata(
            issuer=base,
            authorization_endpoint=f"{base}/authorize",
            token_endpoint=f"{base}/token",
            registration_endpoint=f"{base}/register",
            # That revision requires PKCE of every server.
            code_challenge_methods_supported=["S256"],
        )
    # Nobody said how the issuer is spelled, and both spellings lead to the same document.
    return _check_metadata(found, base, (base, f"{base}/"))


def _check_metadata(
    server: ServerMetadata, issuer: str, spellings: tuple[str, ...]
) -> ServerMetadata:
    if server.issuer not in spellings:
        raise Unauthorized(
            f"{issuer}: its metadata is for another issuer, {one_line(server.issuer)}. Logging in "
            "would not be safe."
        )
    for name in ENDPOINTS:
        endpoint = getattr(server, name)
        if endpoint is not None:
            require_safe(endpoint, f"{server.issuer}: its {name}")
    return server


def _first_document(urls: Sequence[str], kind: type[T]) -> DiscoverySteps[T | None]:
    """Get the first of these documents that exists. One that could not be fetched may exist."""
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
        answer = yield HttpRequest(
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
    """Raise Unauthorized unless each list of the metadata has the needed value, or, for `...`, the
    field is there at all."""
    for name, value in needed.items():
        found = getattr(server, name)
        if not found or (value is not ... and value not in found):
            missing = name if value is ... else f"{value} in {name}"
            raise Unauthorized(
                f"{server.issuer}: its metadata has no {missing}, which a safe login needs"
            )


# this client, as an authorization server knows it

SECRET_METHODS = ("client_secret_basic", "client_secret_post")
AUTH_METHODS = ("none", *SECRET_METHODS)
"""How a client may authenticate at the token endpoint, in order of preference."""
DEFAULT_AUTH_METHODS = ("client_secret_basic",)
"""What a server supports if it does not say: https://www.rfc-editor.org/rfc/rfc8414#section-2"""
EXPIRY_MARGIN_SECONDS = 60.0


class FlowOptions(SecretStruct, kw_only=True):
    """What the user says about this client, and wants, whatever the server says."""

    url: str = ""
    """The URL of the server."""
    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    """Who issued the id."""
    auth_method: str | None = None
    metadata_url: str | None = None
    name: str = "Dovetail"
    uri: str | None = None
    scopes: tuple[str, ...] = ()
    dpop: bool | None = None
    """Whether tokens have to be bound to a key; None leaves that to the server."""
    fresh: bool = False
    """Whether to log in again in any case. The stored login stays until that has worked."""


def issuer_chooser(options: FlowOptions, record: ServerRecord) -> ChooseIssuers:
    """Return what orders the issuers of a server: those that know this client already come first,
    and those that a given id is not for are refused."""

    def choose(issuers: Sequence[str]) -> Sequence[str]:
        known_issuer = options.issuer or _issuer_used_before(options, record)
        if known_issuer is None:
            return sorted(
                dict.fromkeys(issuers), key=lambda issuer: issuer not in record.registrations
            )
        if known_issuer not in issuers:
            raise Unauthorized(
                f"The client_id was issued by {known_issuer}, but the server now uses "
                f"{one_line(', '.join(issuers))}. If that is right, pass the client_id and issuer "
                "that are used there."
            )
        return (known_issuer,)

    return choose


def check_document_url(url: str) -> None:
    """Raise ConfigError unless the URL may be a client id: https, with a path."""
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
    """Return the client that the user registered, and remember at which issuer it was used."""
    if options.client_id is None:
        raise ConfigError("A client_id is needed")
    # The secret stays with the user; only the issuer is remembered.
    record.register(found.server.issuer, ClientRegistration(client_id=options.client_id))
    return ClientRegistration(
        client_id=options.client_id,
        client_secret=options.client_secret,
        auth_method=options.auth_method
        or choose_auth_method(found.server, has_secret=options.client_secret is not None),
    )


def choose_auth_method(server: ServerMetadata, *, has_secret: bool) -> str:
    """Return how a client authenticates at a token endpoint."""
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
    """Return how this client is known at an authorization server, registering it if needed."""
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
            f"{server.issuer}: clients cannot register themselves there. Register one by hand, "
            "with a redirect URI on localhost, and pass its client_id."
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
        # OpenID providers take a client without a type for a web site, and refuse loopback
        # addresses to it.
        application_type="native" if is_loopback(urlsplit(redirect_uri).hostname) else "web",
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method=wanted_method,
        scope=" ".join(scopes) or None,
    )
    endpoint = server.registration_endpoint or ""
    answer = yield HttpRequest(
        method="POST",
        url=endpoint,
        headers={"content-type": "application/json", "accept": "application/json"},
        body=encode(metadata),
    )
    if answer.status == 429 or answer.status >= 500:
        raise ConnectFailed(
            f"{endpoint}: HTTP {answer.status} for the registration. Try again later."
        )
    information = (
        read_document(answer.body, ClientInformation) if answer.status in (200, 201) else None
    )
    if information is None or not information.client_id:
        error = read_document(answer.body, ErrorReply)
        reason = error.text if error is not None else f"HTTP {answer.status}"
        raise Unauthorized(
            f"{server.issuer} did not register this client ({reason}). Register one by hand and "
            "pass its client_id."
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
