"""Discovery: from the URL of a server to the authorization server that issues tokens for it.

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
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from ...errors import ConnectFailed, TimedOut, Unauthorized
from ...ports import HttpRequest, HttpResponse
from ...text import one_line
from ..documents import ResourceMetadata, ServerMetadata, read_document
from ..urls import (
    canonical_url,
    covers_url,
    origin,
    require_safe,
    resource_metadata_urls,
    server_metadata_urls,
)

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
    home = origin(url)
    for _ in range(MAX_REQUESTS_PER_DOCUMENT):
        answer = yield HttpRequest(
            method="GET",
            url=url,
            path=urlsplit(url).path or "/",
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
        if origin(url) != home:
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
