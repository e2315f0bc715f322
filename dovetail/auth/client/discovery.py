"""Who may let this client in: from the URL of a server to an authorization server that can be
trusted to be its own.

Everything here is a generator without I/O: it yields an `HttpRequest` and is sent the
`HttpResponse`.

    the server      resource_metadata of its challenge, else
                    /.well-known/oauth-protected-resource/path, else at the root
    its issuers     those it lists, tried in order; the first that can do what is needed
    an issuer       RFC 8414 with its path inserted, then OpenID Connect inserted, then appended

A server that describes itself for another resource, and an issuer whose metadata names another
issuer, are lies or mistakes, and both end the search:
https://www.rfc-editor.org/rfc/rfc9728#section-3.3,
https://www.rfc-editor.org/rfc/rfc8414#section-3.3.

A server without any description is of the revision that had none: metadata at its origin, else
three endpoints by convention. That it cannot be *reached* is never taken for that.
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
"""Requests for one document, redirects followed; only within its origin."""
MAX_ISSUERS = 5
"""Authorization servers of one resource that are looked at."""
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint")

T = TypeVar("T", bound=Struct)
R = TypeVar("R")
DiscoverySteps: TypeAlias = Generator[HttpRequest, HttpResponse, R]
"""Yields requests, is sent their answers, and returns what it found."""
ChooseIssuers: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""Takes the issuers that a server names, and gives back those to be tried, in order; raises where
none of them will do."""
CheckServer: TypeAlias = Callable[[ServerMetadata], None]
"""Raises Unauthorized where this authorization server cannot do what is needed."""


class DiscoveryResult(Struct, frozen=True):
    """Where a token for a server comes from."""

    resource: str
    """The server's own name for itself, to be repeated letter by letter."""
    server: ServerMetadata
    scopes: tuple[str, ...] = ()
    """What it says is needed for a start."""
    requires_dpop: bool = False
    """Whether it wants tokens that are bound to a key."""

    @property
    def token_endpoint(self) -> str:
        """Where tokens are given out; a place is none without it."""
        return self.server.token_endpoint or ""


def discover(
    url: str, hint: str | None, choose: ChooseIssuers, suits: CheckServer
) -> DiscoverySteps[DiscoveryResult]:
    """Where to get a token for the server at `url`. `hint` is the metadata's address as its
    challenge gave it."""
    described = yield from resource_metadata(url, hint)
    if described is None:
        server = yield from conventional_server(url)
        choose((server.issuer,))
        suits(server)
        return DiscoveryResult(canonical_url(url), server)
    if not described.authorization_servers:
        raise Unauthorized(
            f"{url}: its metadata names no authorization server; its operator has to"
        )
    problem: Unauthorized | ConnectFailed | TimedOut | None = None
    for issuer in choose(described.authorization_servers)[:MAX_ISSUERS]:
        try:
            server = yield from server_metadata(issuer)
            suits(server)
        except (Unauthorized, ConnectFailed, TimedOut) as error:
            problem = problem or error
            continue
        scopes = tuple(described.scopes_supported or ())
        return DiscoveryResult(
            described.resource, server, scopes, described.dpop_bound_access_tokens_required
        )
    raise problem or Unauthorized(f"{url}: no authorization server that it names can be used")


def resource_metadata(url: str, hint: str | None) -> DiscoverySteps[ResourceMetadata | None]:
    """How the server at `url` describes itself; None where it does not."""
    require_safe(canonical_url(url), "the server")
    wells = resource_metadata_urls(url)
    if hint is not None:
        wells = list(
            dict.fromkeys((require_safe(hint, f"{url}: the address of its metadata"), *wells))
        )
    found = yield from _first_document(wells, ResourceMetadata)
    if found is not None and not covers_url(found.resource, url):
        raise Unauthorized(
            f"{url}: its metadata is that of another resource, {one_line(found.resource)}; no "
            "login is safe there"
        )
    return found


def server_metadata(issuer: str) -> DiscoverySteps[ServerMetadata]:
    """How this issuer describes itself."""
    require_safe(issuer, "the authorization server")
    if urlsplit(issuer).query:
        raise Unauthorized(f"the authorization server is not a usable issuer: {one_line(issuer)}")
    found = yield from _first_document(server_metadata_urls(issuer), ServerMetadata)
    if found is None:
        raise Unauthorized(
            f"{issuer}: this authorization server publishes no metadata; its operator has to "
            "(RFC 8414)"
        )
    if found.issuer != issuer:
        raise Unauthorized(
            f"{issuer}: its metadata is that of another issuer, {one_line(found.issuer)}; no "
            "login is safe there"
        )
    return _check_endpoints(found)


def conventional_server(url: str) -> DiscoverySteps[ServerMetadata]:
    """The authorization server of a server that does not describe itself: its own origin."""
    base = require_safe(origin(url), "the authorization server")
    found = yield from _first_document(server_metadata_urls(base)[:1], ServerMetadata)
    if found is None:
        return ServerMetadata(
            issuer=base,
            authorization_endpoint=f"{base}/authorize",
            token_endpoint=f"{base}/token",
            registration_endpoint=f"{base}/register",
            code_challenge_methods_supported=[
                "S256"
            ],  # which that revision demands of every server
        )
    if found.issuer not in (
        base,
        f"{base}/",
    ):  # nobody said how it writes its name, and both lead to the same document
        raise Unauthorized(
            f"{base}: its metadata is that of another issuer, {one_line(found.issuer)}; no login "
            "is safe there"
        )
    return _check_endpoints(found)


def _check_endpoints(server: ServerMetadata) -> ServerMetadata:
    for name in ENDPOINTS:
        endpoint = getattr(server, name)
        if endpoint is not None:
            require_safe(endpoint, f"{server.issuer}: its {name}")
    return server


def _first_document(urls: Sequence[str], kind: type[T]) -> DiscoverySteps[T | None]:
    """The first of these documents that exists. One that merely fails to come is not one that does
    not exist."""
    problem: ConnectFailed | TimedOut | None = None
    for url in urls:
        try:
            found = yield from _document(url, kind)
        except (ConnectFailed, TimedOut) as error:
            problem = problem or error
            continue
        if found is not None:
            return found
    if problem is not None:
        raise problem
    return None


def _document(url: str, kind: type[T]) -> DiscoverySteps[T | None]:
    home = origin(url)
    for _ in range(MAX_REQUESTS_PER_DOCUMENT):
        accepted = {"accept": "application/json"}
        answer = yield HttpRequest(
            method="GET", url=url, path=urlsplit(url).path or "/", headers=accepted
        )
        if answer.status == 200:
            return read_document(answer.body, kind)
        if answer.status == 429 or answer.status >= 500:
            raise ConnectFailed(f"{url}: answered {answer.status}; try again later")
        if answer.status not in (301, 302, 303, 307, 308):
            return None
        try:
            url = urljoin(url, answer.headers.get("location", ""))
        except ValueError:  # a bracket that is none
            return None
        if origin(url) != home:
            return None
    return None


def require_metadata(server: ServerMetadata, **needed: Any) -> None:
    """Raise Unauthorized unless each list of the metadata has the value that is needed, or `...`
    for the field at all."""
    for name, value in needed.items():
        found = getattr(server, name)
        if not found or (value is not ... and value not in found):
            lacks = name if value is ... else f"{value} in {name}"
            raise Unauthorized(
                f"{server.issuer}: its metadata has no {lacks}, without which no login is "
                "safe or possible"
            )
