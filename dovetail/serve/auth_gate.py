"""Between a server's guard and the requests that come to it: where we are, who is let in, and what
the guard says itself.

A guard has to know the URL that the server goes by, for that is what tokens are issued for.
`public_url=` says it; without, it is taken from the request's Host, which has passed the ladder.
But an attacker chooses the Host as well, and could choose the one that a stolen token is for. So a
site says whether it is `sure` of its name: that is one that was configured, or the very address
that the request came in by.

Who is let in for long (a stream, a WebSocket) is looked at again and again: tokens expire, and may
be revoked.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import inf
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..aio import BoundedDict
from ..net import HTTP_SCHEMES
from ..ports import Guard, HttpRequest, HttpResponse, Principal, PublicUrl, RequestIdentity, Service
from ..sealing import KeyRing
from ..transports.http.server.asgi import Headers, Scope
from ..transports.http.server.policy import Policy, ours

log = logging.getLogger("dovetail.http")

SITES = 256
"""How many are remembered."""
AGAIN = 60.0
"""Seconds after which it is looked at again who has stayed."""
SECRETS = ("authorization", "cookie", "dpop", "proxy-authorization")
"""Headers that are the business of any guard, and of nobody behind it: a token is for this server
only."""
FAILED = HttpResponse(
    status=500,
    headers={"content-type": "text/plain"},
    body=b"The server could not find out who is calling",
)


class AuthGate:
    """The guard of a server, where it is served. `places` are the paths that it is called at: the
    endpoint, and others."""

    def __init__(
        self,
        service: Service,
        guard: Guard,
        rules: Policy,
        ring: KeyRing,
        public_url: str | None,
        places: Mapping[str, str],
    ) -> None:
        self._service, self._guard, self._rules, self._ring = service, guard, rules, ring
        self._places = places
        """The place that a path belongs to, by path; the endpoint is the first."""
        self._public = None if public_url is None else _public(public_url, places)
        self._sites: BoundedDict[tuple[Any, ...], PublicUrl] = BoundedDict(SITES)
        self.secrets = frozenset(
            name.lower().encode() for name in (*SECRETS, *getattr(guard, "secrets", ()))
        )
        if self._public is not None and (stand := getattr(guard, "stand", None)) is not None:
            stand(self._public[0])

    async def admit(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes]
    ) -> RequestIdentity | HttpResponse:
        """Who sent this request, or how it is refused. The path is that below the mount point."""
        site = self._site(scope, path, headers)
        request = _request(scope, site, path, headers, self._places.get(path) == path)
        try:
            admitted = await self._guard.admit(request, site)
        except Exception:
            log.exception("The guard failed; nobody is let in")
            return FAILED
        return (
            admitted
            if isinstance(admitted, HttpResponse)
            else RequestIdentity(request.address, admitted, site, request)
        )

    async def wait_expired(self, visitor: RequestIdentity) -> None:
        """Wait until a visitor may not stay any longer."""
        who = visitor.principal
        expires = inf if who is None or who.expires is None else who.expires
        while (left := expires - time.time()) > 0:
            await asyncio.sleep(min(left, AGAIN))
            if left > AGAIN and not await self._holds(visitor):
                return

    async def _holds(self, visitor: RequestIdentity) -> bool:
        """Whether somebody would be let in again, as the same user; or nobody can tell at the
        moment."""
        look: Callable[..., Awaitable[Principal | HttpResponse]] = getattr(
            self._guard, "again", self._guard.admit
        )
        try:
            found = await look(visitor.request, visitor.public_url)
        except Exception:
            log.exception("The guard failed; nobody stays")
            return False
        if isinstance(found, HttpResponse):
            return found.status >= 500
        return visitor.principal is not None and visitor.principal.id == found.id

    async def respond(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse | None:
        """A page of the guard's own, if this is one."""
        place = next((place for place in self._places if place and path.endswith(place)), path)
        site = replace(self._site(scope, place, headers), scopes=self._service.scopes)
        request = _request(scope, site, path, headers, False)
        request.body = body
        request.path = urlsplit(site.base).path + path
        try:
            return await self._guard.respond(request, site)
        except Exception:
            log.exception("A page of the guard failed")
            return FAILED

    def challenge(self, visitor: RequestIdentity, scopes: tuple[str, ...]) -> Headers:
        """The headers of a refusal for want of these scopes."""
        if visitor.public_url is None or visitor.principal is None:
            return []
        return encode_headers(self._guard.challenge(visitor.public_url, visitor.principal, scopes))

    def _site(self, scope: Scope, path: str, headers: Mapping[bytes, bytes]) -> PublicUrl:
        server, host = scope.get("server"), headers.get(b"host", b"")
        place = self._places.get(path, next(iter(self._places)))
        key = (scope.get("scheme"), host, scope.get("root_path"), tuple(server or ()), place)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = self._made(scope, host, server, place)
        return site

    def _made(
        self, scope: Scope, host: bytes, server: tuple[str, int] | None, place: str
    ) -> PublicUrl:
        if self._public is not None:
            (base, url), sure = self._public, True
        else:
            scheme = HTTP_SCHEMES.get(scope.get("scheme", ""), scope.get("scheme", "http"))
            name = host.decode("latin-1").lower() or ":".join(map(str, server or ("localhost",)))
            base = f"{scheme}://{name}{scope.get('root_path', '').rstrip('/')}"
            url, sure = base + place, ours(self._rules, host, server)
        if place != next(iter(self._places)):
            url = base + place
        return PublicUrl(url, base, self._ring, _fetch, fetch_trusted=_reach, is_configured=sure)


class _Headers(Mapping[str, str]):
    """Headers as text, read when asked for: a guard looks at two of them."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        return self._raw[name.encode("latin-1")].decode("latin-1")

    def get(self, name: str, default: Any = None) -> Any:
        value = self._raw.get(name.encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def _request(
    scope: Scope, site: PublicUrl, path: str, headers: Mapping[bytes, bytes], here: bool
) -> HttpRequest:
    """The request as a guard sees it, at the URL that its client has for it."""
    client, query, whole = scope.get("client"), scope.get("query_string"), scope["path"]
    url = site.url if here else site.base + path
    if whole[-1:] == "/" and len(whole) > 1:
        url += "/"
    if query:
        url = f"{url}?{query.decode('latin-1')}"
    return HttpRequest(
        method=scope.get("method", "GET"),
        path=whole,
        headers=_Headers(headers),
        url=url,
        address=client[0] if client else None,
    )


def encode_headers(headers: Mapping[str, str]) -> Headers:
    """Headers as ASGI has them."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
    ]


def _public(url: str, places: Mapping[str, str]) -> tuple[str, str]:
    """What the world finds us below, and where it finds the endpoint: a proxy may give it another
    path."""
    parts = urlsplit(url)
    origin, path, endpoint = (
        f"{parts.scheme.lower()}://{parts.netloc.lower()}",
        parts.path.rstrip("/"),
        next(iter(places)),
    )
    if not path:
        return origin, origin + endpoint
    named = next((place for place in places if place and path.endswith(place)), None)
    if named is None:
        return origin + ("" if endpoint else path), origin + path
    base = origin + path.removesuffix(named)
    return base, base + endpoint


async def _fetch(request: HttpRequest) -> HttpResponse:
    from ..transports.http.client.fetch import fetch

    return await fetch(request)


async def _reach(request: HttpRequest) -> HttpResponse:
    from ..transports.http.client.fetch import fetch

    return await fetch(request, private=True)
