"""Apply a server's guard to its requests: find the public URL, identify the caller, and serve the
guard's own pages.

A guard needs the server's URL, because tokens are issued for that URL. The URL is `public_url=` or,
if that is not set, comes from the request's Host header, which has been checked. However, an
attacker can also set the Host header to the host that a stolen token was issued for. Therefore,
`PublicUrl.is_configured` tells whether the URL was configured, or is the exact address at which the
request arrived.

Callers with long-lived connections (streams, WebSockets) are authenticated again periodically,
because tokens expire and may be revoked.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any
from urllib.parse import urlsplit

from msgspec import json
from msgspec.structs import replace

from ..aio import BoundedDict
from ..errors import BackendAway
from ..logs import get_logger
from ..net import HTTP_SCHEMES
from ..ports import Guard, HttpRequest, HttpResponse, Principal, PublicUrl, RequestIdentity, Service
from ..sealing import KeyRing
from ..transports.http.server.asgi import Headers, Scope, encode_headers
from ..transports.http.server.policy import Policy, is_own_host
from .options import ServeOptions

log = get_logger("http")

MAX_CACHED_URLS = 256
RECHECK_SECONDS = 60.0
"""The interval at which callers with long-lived connections are authenticated again."""
SECRET_HEADERS = ("authorization", "cookie", "dpop", "proxy-authorization")
"""The headers that are hidden from handlers, because credentials are for the guard only."""
GUARD_FAILED = HttpResponse(
    status=500,
    headers={"content-type": "text/plain"},
    body=b"The server failed to authenticate the request",
)


class AuthGate:
    """Applies a server's guard to its HTTP requests."""

    def __init__(
        self, service: Service, guard: Guard, rules: Policy, ring: KeyRing, options: ServeOptions
    ) -> None:
        from ..transports.http.client.fetch import fetch

        self._service, self._guard, self._rules, self._ring = service, guard, rules, ring
        self._fetch, self._fetch_trusted = fetch, partial(fetch, private=True)
        self._paths, self._endpoint = options.paths.guarded, options.paths.endpoint
        self._configured = (
            None
            if options.public_url is None
            else _split_public_url(options.public_url, self._paths)
        )
        self._public_urls: BoundedDict[tuple[Any, ...], PublicUrl] = BoundedDict(MAX_CACHED_URLS)
        self.secrets = frozenset(
            name.lower().encode() for name in (*SECRET_HEADERS, *getattr(guard, "secrets", ()))
        )
        self.can_admit_now = _can_admit_now(guard)
        """Whether the guard can admit some callers without waiting."""
        for one in (guard, service):
            check_base_url = getattr(one, "check_base_url", None)
            if self._configured is not None and check_base_url is not None:
                check_base_url(self._configured[0])

    async def admit(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes]
    ) -> RequestIdentity | HttpResponse:
        """Return the caller's identity, or a refusal. The path is relative to the mount point."""
        public_url, request = self._describe(scope, path, headers)
        try:
            admitted = await self._guard.admit(request, public_url)
        except BackendAway as error:
            return _unavailable(error)
        except Exception:
            log.exception("Refusing the request: the guard failed")
            return GUARD_FAILED
        return (
            admitted
            if isinstance(admitted, HttpResponse)
            else RequestIdentity(
                request.address, admitted, public_url, request, scope.get("query_string", b"")
            )
        )

    def admit_now(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes]
    ) -> RequestIdentity | None:
        """Return the identity of a caller whom the guard admits without waiting, or None. Only for
        guards that can do that."""
        public_url, request = self._describe(scope, path, headers)
        try:
            caller = self._guard.admit_now(request, public_url)  # type: ignore[attr-defined]
        except Exception:
            return None  # `admit` reports it
        if not isinstance(caller, Principal):
            return None
        return RequestIdentity(request.address, caller, public_url, request)

    def _describe(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes]
    ) -> tuple[PublicUrl, HttpRequest]:
        """Return the public URL of a request, and the request as the guard sees it."""
        public_url = self._public_url(scope, path, headers)
        is_endpoint = self._paths.get(path) == path
        return public_url, _make_request(scope, public_url, path, headers, is_endpoint=is_endpoint)

    async def wait_expired(self, identity: RequestIdentity) -> None:
        """Wait until a caller is no longer allowed to stay connected."""
        principal = identity.principal
        expires = inf if principal is None or principal.expires is None else principal.expires
        while (left := expires - time.time()) > 0:
            await asyncio.sleep(min(left, RECHECK_SECONDS))
            if left > RECHECK_SECONDS and not await self._is_still_admitted(identity):
                return

    async def _is_still_admitted(self, identity: RequestIdentity) -> bool:
        """Return whether the guard still admits the same user. Returns True if the guard currently
        cannot tell."""
        recheck: Callable[..., Awaitable[Principal | HttpResponse]] = getattr(
            self._guard, "recheck", self._guard.admit
        )
        try:
            admitted = await recheck(identity.request, identity.public_url)
        except BackendAway:
            return True
        except Exception:
            log.exception("Closing the connection: the guard failed")
            return False
        if isinstance(admitted, HttpResponse):
            return admitted.status >= 500
        return identity.principal is not None and identity.principal.id == admitted.id

    async def respond(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse | None:
        """Return the page of the guard or of the service at this path, or None if there is none."""
        guarded = next((known for known in self._paths if known and path.endswith(known)), path)
        public_url = self._public_url(scope, guarded, headers)
        public_url = replace(public_url, scopes=self._service.scopes)
        request = _make_request(scope, public_url, path, headers, is_endpoint=False)
        request.body = body
        request.path = urlsplit(public_url.base).path + path
        try:
            answer = await self._guard.respond(request, public_url)
            return answer or await self._service.respond(request, public_url)
        except BackendAway as error:
            return _unavailable(error)
        except Exception:
            log.exception("The request for the page %s failed", path)
            return GUARD_FAILED

    def challenge(self, identity: RequestIdentity, scopes: tuple[str, ...]) -> Headers:
        """Return the headers for refusing a caller that lacks these scopes."""
        if identity.public_url is None or identity.principal is None:
            return []
        return encode_headers(
            self._guard.challenge(identity.public_url, identity.principal, scopes)
        )

    def _public_url(self, scope: Scope, path: str, headers: Mapping[bytes, bytes]) -> PublicUrl:
        server, host = scope.get("server"), headers.get(b"host", b"")
        base_path = self._paths.get(path, self._endpoint)
        key = (scope.get("scheme"), host, scope.get("root_path"), tuple(server or ()), base_path)
        public_url = self._public_urls.get(key)
        if public_url is None:
            public_url = self._make_public_url(scope, host, server, base_path)
            self._public_urls[key] = public_url
        return public_url

    def _make_public_url(
        self, scope: Scope, host: bytes, server: tuple[str, int] | None, path: str
    ) -> PublicUrl:
        if self._configured is not None:
            (base, url), is_configured = self._configured, True
        else:
            scheme = HTTP_SCHEMES.get(scope.get("scheme", ""), scope.get("scheme", "http"))
            name = host.decode("latin-1").strip(" \t").lower() or ":".join(
                map(str, server or ("localhost",))
            )
            base = f"{scheme}://{name}{scope.get('root_path', '').rstrip('/')}"
            url, is_configured = base + path, is_own_host(self._rules, host, server)
        if path != self._endpoint:
            url = base + path
        return PublicUrl(
            url, base, self._ring, self._fetch, self._fetch_trusted, is_configured=is_configured
        )


def _can_admit_now(guard: Guard) -> bool:
    """Return whether a guard has `admit_now`. A subclass or a wrapper that has only its own `admit`
    may check more than the `admit_now` that it inherits or delegates to."""
    for kind in type(guard).__mro__:
        if "admit_now" in vars(kind):
            return True
        if "admit" in vars(kind):
            return False
    return False


def _unavailable(error: BackendAway) -> HttpResponse:
    """Return the response for a request that the guard cannot decide, in the form of OAuth."""
    reason = {"error": "temporarily_unavailable", "error_description": error.message}
    return HttpResponse(
        status=503,
        headers={
            "content-type": "application/json",
            "cache-control": "no-store",
            "retry-after": error.retry_header,
        },
        body=json.encode(reason),
    )


class _LazyHeaders(Mapping[str, str]):
    """Headers as text, which are decoded on access because a guard reads only two of them."""

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


def _make_request(
    scope: Scope,
    public_url: PublicUrl,
    path: str,
    headers: Mapping[bytes, bytes],
    *,
    is_endpoint: bool,
) -> HttpRequest:
    """Return the request that the guard sees, with the URL that the client used."""
    client, query, full_path = scope.get("client"), scope.get("query_string"), scope["path"]
    url = public_url.url if is_endpoint else public_url.base + path
    if full_path[-1:] == "/" and len(full_path) > 1:
        url += "/"
    if query:
        url = f"{url}?{query.decode('latin-1')}"
    return HttpRequest(
        method=scope.get("method", "GET"),
        path=full_path,
        headers=_LazyHeaders(headers),
        url=url,
        address=client[0] if client else None,
    )


def _split_public_url(url: str, paths: Mapping[str, str]) -> tuple[str, str]:
    """Return the URLs of the mount point and of the endpoint, whose path a proxy may change."""
    parts = urlsplit(url)
    origin = f"{parts.scheme.lower()}://{parts.netloc.lower()}"
    path, endpoint = parts.path.rstrip("/"), next(iter(paths))
    if not path:
        return origin, origin + endpoint
    suffix = next((known for known in paths if known and path.endswith(known)), None)
    if suffix is None:
        return origin + ("" if endpoint else path), origin + path
    base = origin + path.removesuffix(suffix)
    return base, base + endpoint
