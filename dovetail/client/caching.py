"""What a client keeps of a server's answers, for as long as the server said that it may.

Kept are discovery, lists and reads of the stateless era, each page and each resource by itself,
under the method, the revision and the params, but for what in their `_meta` is of one request only.
What was asked with answers to the server's questions is never kept. An answer is kept as bytes and
decoded anew each time it is served: nobody can change what others are given, and its size is known.

Time is only one end. News of a change drops what it is about, and so does a stream of changes that
begins (before it there may have been news that nobody heard), an error that smells of an old list,
and a new conversation, which may be with another server. An answer that was on its way while
something was dropped is not kept: it may be older than the news.

Each client has a cache of its own, or shares one (`SharedCache`). In a shared one, what is private
belongs to the client that asked, and goes when it closes; what is public is found by all who reach
the same URL in the same way. An answer whose time is over is never served, not even where the
server cannot be reached.
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
"""

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from ..connection.client_session import ClientSession
from ..connection.extension import NONE, Extensions
from ..errors import ConfigError
from ..jsonrpc.codec import encode
from ..limits import DEFAULT, Limits
from ..protocol.base import PROGRESS_TOKEN, TRACE_CONTEXT, CacheHints, Result
from ..protocol.methods import METHODS, Method
from ..revisions import decode
from .subscriptions import ACKNOWLEDGED, KINDS, UPDATED

Answer = TypeVar("Answer", bound=Result)
STALE_AFTER_ERROR = {
    "tools/call": ("tools/list",),
    "prompts/get": ("prompts/list",),
    "resources/read": ("resources/list", "resources/templates/list"),
}
"""What may be old when the server does not know what it is asked for."""
PER_REQUEST_META = frozenset({*TRACE_CONTEXT, PROGRESS_TOKEN})
"""What in `_meta` is another with each request, and nothing that an answer depends on."""
MAX_TTL_SECONDS = 86400.0
"""Seconds that anything is kept, whatever the server says."""


class CacheKey(NamedTuple):
    """What an answer is found by."""

    owner: Any
    """The one client that may have it, or None for all."""
    server: Any
    method: str
    revision: str
    params: bytes


class CachedResponse(NamedTuple):
    """An answer, until when it is fresh, and which resource it is of."""

    data: bytes
    expires_at: float
    uri: str | None


class SharedCache:
    """A cache that several clients may share, on any threads: `Client(url, cache=shared)`. Of more
    than so many entries or bytes, those not used for longest go."""

    def __init__(self, entries: int = DEFAULT.cached, size: int = DEFAULT.cached_bytes) -> None:
        self._max_entries, self._max_bytes = entries, size
        self._lock = threading.Lock()
        self._responses: OrderedDict[CacheKey, CachedResponse] = OrderedDict()
        self._bytes = 0
        self.drops = 0
        """How often something was dropped because it may be old."""

    def get(self, key: CacheKey) -> bytes | None:
        """What is kept under this key, if it is fresh."""
        with self._lock:
            kept = self._responses.get(key)
            if kept is None:
                return None
            if monotonic() >= kept.expires_at:
                self._remove(key)
                return None
            self._responses.move_to_end(key)
            return kept.data

    def put(self, key: CacheKey, kept: CachedResponse, drops: int) -> None:
        """Keep this, unless something was dropped since it was asked for, or it alone is larger
        than all may be."""
        size = _size_of(key, kept)
        with self._lock:
            if drops != self.drops or size > self._max_bytes:
                return
            self._remove(key)
            self._responses[key] = kept
            self._bytes += size
            while len(self._responses) > self._max_entries or self._bytes > self._max_bytes:
                self._remove(next(iter(self._responses)))

    def remove(self, *keys: CacheKey) -> None:
        """Keep nothing under these keys."""
        with self._lock:
            for key in keys:
                self._remove(key)

    def drop(self, old: Callable[[CacheKey, CachedResponse], bool]) -> int:
        """Drop all that this is true of; returns how many there were."""
        with self._lock:
            self.drops += 1
            gone = [key for key, kept in self._responses.items() if old(key, kept)]
            for key in gone:
                self._remove(key)
            return len(gone)

    def _remove(self, key: CacheKey) -> None:
        kept = self._responses.pop(key, None)
        if kept is not None:
            self._bytes -= _size_of(key, kept)


class ResponseCache:
    """What one client keeps, in a cache of its own or in one that it shares."""

    def __init__(
        self, cache: bool | SharedCache, place: Any, limits: Limits, extensions: Extensions = NONE
    ) -> None:
        if not isinstance(cache, bool | SharedCache):
            raise ConfigError(f"cache={cache!r}: give True, False or a SharedCache")
        self._server = place if isinstance(cache, SharedCache) else None
        if isinstance(cache, bool):
            cache = SharedCache(limits.cached if cache else 0, limits.cached_bytes)
        self._cache, self._extensions = cache, extensions
        self._opened = False
        self.served = 0
        """How often an answer that was kept was good enough."""

    async def request(
        self, session: ClientSession, fresh: bool, method: Method, params: Any, **options: Any
    ) -> Any:
        """The answer to a request: one that was kept, unless it has to be fresh, or else the
        server's."""
        if not session.agreed_revision.stateless or _carries_answers(params):
            return await session.request(method, params, **options)
        own = self._key(method.name, params, session.agreed_revision.name)
        public = own._replace(owner=None)
        data = None if fresh else self._cache.get(own) or self._cache.get(public)
        if data is not None:
            self.served += 1
            return decode(data, method.result)
        drops = self._cache.drops
        result = await session.request(method, params, **options)
        self._cache.remove(own, public)
        ttl = _ttl_seconds(result.ttl_ms) if isinstance(result, CacheHints) else 0.0
        if ttl > 0:
            shared = result.cache_scope == "public" and self._server is not None
            self._keep(public if shared else own, result, ttl, drops, getattr(params, "uri", None))
        return result

    def find(self, method: str, params: Any) -> Any:
        """What this client itself chose to keep of a request; None where there is nothing."""
        data = self._cache.get(self._key(method, params))
        return None if data is None else decode(data, METHODS[method].result)

    async def fetch(
        self, method: str, params: Any, ask: Callable[[], Awaitable[Answer]], ttl: float
    ) -> Answer:
        """Ask, and keep the answer for so many seconds because this client chose to."""
        drops = self._cache.drops
        result = await ask()
        if ttl > 0:
            self._keep(self._key(method, params), result, ttl, drops, None)
        return result

    def _key(self, method: str, params: Any, revision: str = "") -> CacheKey:
        try:
            data = b"{}" if params is None else encode(_without_per_request_meta(params))
        except UnicodeEncodeError:  # it will be mended on its way out
            data = repr(params).encode()
        return CacheKey(self, self._server, method, revision, data)

    def _keep(self, key: CacheKey, result: Result, ttl: float, drops: int, uri: str | None) -> None:
        self._cache.put(
            key, CachedResponse(encode(result), monotonic() + min(ttl, MAX_TTL_SECONDS), uri), drops
        )

    # what makes it old

    def on_notification(self, method: str, params: Any) -> None:
        """News of a change, or that from now on there will be."""
        if method == UPDATED:
            self._drop_resource(params.uri)
        elif method == ACKNOWLEDGED:
            for news, kind in KINDS.items():
                if getattr(params.notifications, f"{kind}_list_changed"):
                    self._drop_outdated_by(news)
            for uri in params.notifications.resource_subscriptions or ():
                self._drop_resource(uri)
        else:
            self._drop_outdated_by(method)

    def drop_stale_lists(self, method: str) -> None:
        """The server does not know what it was asked for: what said that it would is dropped."""
        if method in STALE_AFTER_ERROR:
            self.drop(*STALE_AFTER_ERROR[method])

    def on_open(self) -> None:
        """A conversation begins. If it is not the first, the server may be another one."""
        if self._opened:
            self._drop(lambda key, kept: True)
        self._opened = True

    def drop(self, *methods: str) -> int:
        """Drop all answers to these methods; returns how many there were."""
        return self._drop(lambda key, kept: key.method in methods)

    def close(self) -> None:
        """Leave nothing of one's own behind."""
        self._cache.drop(lambda key, kept: key.owner is self)

    def _drop_outdated_by(self, news: str) -> None:
        if old := [row.name for row in self._extensions.all_methods() if news in row.outdated_by]:
            self.drop(*old)

    def _drop_resource(self, uri: str) -> None:
        self._drop(
            lambda key, kept: (
                kept.uri is not None and (_within(kept.uri, uri) or _within(uri, kept.uri))
            )
        )

    def _drop(self, old: Callable[[CacheKey, CachedResponse], bool]) -> int:
        mine = (self, None)
        return self._cache.drop(
            lambda key, kept: key.server == self._server and key.owner in mine and old(key, kept)
        )


def _ttl_seconds(hint: Any) -> float:
    """The time that a server gives an answer; none where what it says is no number."""
    return min(hint, MAX_TTL_SECONDS * 1000) / 1000 if isinstance(hint, int | float) else 0.0


def _size_of(key: CacheKey, kept: CachedResponse) -> int:
    return len(key.params) + len(kept.data)


def _without_per_request_meta(params: Any) -> Any:
    """The params without what passes."""
    meta = getattr(params, "meta", None)
    if not meta or PER_REQUEST_META.isdisjoint(meta):
        return params
    return replace(
        params,
        meta={name: value for name, value in meta.items() if name not in PER_REQUEST_META} or None,
    )


def _carries_answers(params: Any) -> bool:
    """Whether a request carries answers to the server's questions, on which its result depends."""
    return (
        getattr(params, "input_responses", None) is not None
        or getattr(params, "request_state", None) is not None
    )


def _within(uri: str, outer: str) -> bool:
    return uri == outer or uri.startswith(outer.rstrip("/") + "/")
