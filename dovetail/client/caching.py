"""Cache a server's answers for as long as the server allows.

In the stateless era, discovery, lists and reads are cached, each page and each resource separately.
The key is the method, the revision and the params, without the parts of `_meta` that differ between
requests. Requests that carry answers to the server's questions are never cached. A response is
stored as bytes and decoded each time it is served. Thus no caller can change a response that others
receive, and its size is known.

A response is dropped before it expires in these cases:

- when a notification says that the data has changed;
- when a subscription starts, because earlier changes may have been missed;
- after an error that suggests that a list is outdated;
- when a new connection opens, because it may lead to another server.

If responses are dropped while a request is in flight, its response is not cached, because it may be
older than the change.

Each client has its own cache, or shares one (`SharedCache`). In a shared cache, private responses
belong to the client that requested them, and are removed when it closes. Public responses are
served to all clients with the same URL, TLS settings, proxy and credentials. With a backend,
processes share their responses, too (`shared_responses`). An expired response is never served, even
if the server cannot be reached.

`Completer` reduces the number of requests while a user types. With a pause (`debounce`), calls for
the same argument within that time are combined: only the latest is sent, and all waiting calls
receive its answer. An answer can be cached for some time (`cache`). The key contains everything
that affects the answer: the prompt or resource, the argument, the text so far and the arguments
chosen earlier. https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
"""

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..connection.client_session import ClientSession
from ..connection.extension import Extensions
from ..errors import ConfigError
from ..jsonrpc.messages import encode
from ..limits import DEFAULT, Limits
from ..protocol.base import PROGRESS_TOKEN, TRACE_CONTEXT, CacheHints, Result
from ..protocol.methods import Method
from ..protocol.utilities import CompleteParams, CompleteResult
from ..revisions import decode
from .subscriptions import ACKNOWLEDGED, KINDS, UPDATED, is_within

if TYPE_CHECKING:
    from ..backend import Backend
    from .shared_responses import ClientResponses, SharedResponse, SharedResponses
    from .targets import Target

COMPLETE = "completion/complete"
AskServer = Callable[[], Awaitable[CompleteResult]]
STALE_AFTER_ERROR = {
    "tools/call": ("tools/list",),
    "prompts/get": ("prompts/list",),
    "resources/read": ("resources/list", "resources/templates/list"),
}
"""The lists that may be outdated if the server rejects a request with this method."""
PER_REQUEST_META = frozenset({*TRACE_CONTEXT, PROGRESS_TOKEN})
"""The keys in `_meta` that differ between requests and do not affect the answer."""
MAX_TTL_SECONDS = 86400.0
"""The maximum time to cache a response, even if the server allows more."""


class CacheKey(NamedTuple):
    """The key of a cached response."""

    owner: Any
    """The only client that may use the response; None for all clients."""
    server: Any
    method: str
    revision: str
    params: bytes


class CachedResponse(NamedTuple):
    """A response, its expiry time, and the URI of its resource."""

    data: bytes
    expires_at: float
    uri: str | None


class SharedCache:
    """A cache that several clients may share, in any threads: `Client(url, cache=shared)`.

    Args:
        entries: The maximum number of responses (default: `Limits().cached`).
        size: The maximum size in bytes (default: `Limits().cached_bytes`).
        backend: The backend with which other processes share responses: a URL such as
            `redis://host:6379/0`, or a `Backend` (default: None, only this process uses them).

    When the cache is full, the least recently used responses are dropped.
    """

    def __init__(
        self,
        entries: int = DEFAULT.cached,
        size: int = DEFAULT.cached_bytes,
        *,
        backend: "str | Backend | None" = None,
    ) -> None:
        if isinstance(backend, str):
            from ..backend import Backend

            backend = Backend(backend)
        self._backend = backend
        self._shared: dict[str, SharedResponses] = {}
        """The responses in the backend, by URL."""
        self._max_entries, self._max_bytes = entries, size
        self._lock = threading.Lock()
        self._responses: OrderedDict[CacheKey, CachedResponse] = OrderedDict()
        self._bytes = 0
        self.drops = 0
        """The number of times that outdated responses were dropped."""

    def get(self, key: CacheKey) -> bytes | None:
        """Return the response under this key, if it has not expired.

        Args:
            key: The key of the request.
        """
        kept = self.find(key)
        return None if kept is None else kept.data

    def find(self, key: CacheKey) -> CachedResponse | None:
        """Return the response under this key with its expiry time, if it has not expired.

        Args:
            key: The key of the request.
        """
        with self._lock:
            kept = self._responses.get(key)
            if kept is None:
                return None
            if monotonic() >= kept.expires_at:
                self._remove(key)
                return None
            self._responses.move_to_end(key)
            return kept

    def put(self, key: CacheKey, kept: CachedResponse, drops: int) -> None:
        """Store a response, unless it is larger than the cache or responses were dropped after it
        was requested.

        Args:
            key: The key of the request.
            kept: The response.
            drops: The value of `drops` when the request was sent.
        """
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
        """Remove the responses under these keys.

        Args:
            keys: The keys of the requests.
        """
        with self._lock:
            for key in keys:
                self._remove(key)

    def drop(self, old: Callable[[CacheKey, CachedResponse], bool]) -> int:
        """Drop all responses for which `old(key, response)` is true, and return their number. With
        a backend, all responses in the backend are dropped, too.

        Args:
            old: Returns whether a response is outdated.
        """
        for shared in self._shared.values():
            shared.drop()
        return self._drop(old)

    def _drop(self, old: Callable[[CacheKey, CachedResponse], bool]) -> int:
        with self._lock:
            self.drops += 1
            gone = [key for key, kept in self._responses.items() if old(key, kept)]
            for key in gone:
                self._remove(key)
            return len(gone)

    def _share(self, target: "Target") -> "ClientResponses | None":
        """Return the responses that a client shares with other processes, or None if there is no
        backend, or nothing that its server has in common with theirs."""
        if self._backend is None or target.cache_key is None:
            return None
        url, verify, *_ = target.cache_key
        if not isinstance(verify, bool | str | os.PathLike):
            return None
        from .shared_responses import ClientResponses, SharedResponses

        def drop() -> None:
            self._drop(lambda key, kept: key.server is not None and key.server[0] == url)

        with self._lock:
            if url not in self._shared:
                self._shared[url] = SharedResponses(self._backend.cache(), url, drop)
            return ClientResponses(self._shared[url], target)

    def _remove(self, key: CacheKey) -> None:
        kept = self._responses.pop(key, None)
        if kept is not None:
            self._bytes -= _size_of(key, kept)


class ResponseCache:
    """The cache of one client: its own, or its part of a shared cache."""

    def __init__(
        self,
        cache: bool | SharedCache,
        target: "Target",
        limits: Limits,
        extensions: Extensions,
    ) -> None:
        if not isinstance(cache, bool | SharedCache):
            raise ConfigError(f"cache={cache!r} must be True, False or a SharedCache")
        self._server = target.cache_key if isinstance(cache, SharedCache) else None
        if isinstance(cache, bool):
            cache = SharedCache(limits.cached if cache else 0, limits.cached_bytes)
        self._cache, self._extensions = cache, extensions
        self._shared = cache._share(target)
        """The responses that processes share, and the names of this client for them; or None."""
        self._opened = False
        self.hits = 0
        """The number of times that a cached response was returned."""

    async def request(
        self, session: ClientSession, fresh: bool, method: Method, params: Any, *options: Any
    ) -> Any:
        """Return the cached response to a request. Ask the server if no response is cached, or if
        `fresh` is true. The options are those of `ClientSession.request`."""
        if not session.agreed_revision.stateless or _carries_answers(params):
            return await session.request(method, params, *options)
        own = self._key(method.name, params, session.agreed_revision.name)
        public = own._replace(owner=None)
        if self._shared is not None:
            await self._shared.check()
        data = None if fresh else self._cache.get(own) or self._cache.get(public)
        lookup = None
        if data is None and self._shared is not None:
            lookup = await self._shared.look_up(method.name, own.revision, own.params, fresh)
            data = self._keep_shared(own, lookup.found)
        if data is not None:
            self.hits += 1
            return decode(data, method.result)
        drops = self._cache.drops
        result = await session.request(method, params, *options)
        self._cache.remove(own, public)
        ttl = _ttl_seconds(result.ttl_ms) if isinstance(result, CacheHints) else 0.0
        kept, is_public = None, False
        if ttl > 0:
            is_public = result.cache_scope == "public" and self._server is not None
            uri = getattr(params, "uri", None)
            kept = self._keep(public if is_public else own, result, ttl, drops, uri)
        if self._shared is not None and lookup is not None:
            await self._shared.keep(lookup, kept, is_public, ttl)
        return result

    def find_completion(self, params: CompleteParams) -> CompleteResult | None:
        """Return a completion that `fetch_completion` cached, or None."""
        data = self._cache.get(self._key(COMPLETE, params))
        return None if data is None else decode(data, CompleteResult)

    async def fetch_completion(
        self, params: CompleteParams, ask: AskServer, ttl: float
    ) -> CompleteResult:
        """Fetch a completion and cache it for `ttl` seconds."""
        drops = self._cache.drops
        result = await ask()
        if ttl > 0:
            self._keep(self._key(COMPLETE, params), result, ttl, drops, None)
        return result

    def _key(self, method: str, params: Any, revision: str = "") -> CacheKey:
        try:
            data = b"{}" if params is None else encode(_without_per_request_meta(params))
        except UnicodeEncodeError:  # invalid characters are replaced when it is sent
            data = repr(params).encode()
        return CacheKey(self, self._server, method, revision, data)

    def _keep(
        self, key: CacheKey, result: Result, ttl: float, drops: int, uri: str | None
    ) -> CachedResponse:
        kept = CachedResponse(encode(result), monotonic() + min(ttl, MAX_TTL_SECONDS), uri)
        self._cache.put(key, kept, drops)
        return kept

    def _keep_shared(self, own: CacheKey, found: "SharedResponse | None") -> bytes | None:
        """Keep a response that another process has shared, and return its data."""
        if found is None:
            return None
        key = own if found.is_private else own._replace(owner=None)
        kept = CachedResponse(found.data, monotonic() + found.life, found.uri)
        self._cache.put(key, kept, self._cache.drops)
        return found.data

    # dropping

    def on_notification(self, method: str, params: Any) -> None:
        """Drop the responses that a notification makes outdated."""
        if method == UPDATED:
            self._drop_resource(params.uri)
        elif method == ACKNOWLEDGED:
            for notification, kind in KINDS.items():
                if getattr(params.notifications, f"{kind}_list_changed"):
                    self._drop_outdated_by(notification)
            for uri in params.notifications.resource_subscriptions or ():
                self._drop_resource(uri)
        else:
            self._drop_outdated_by(method)

    def drop_stale_lists(self, method: str) -> None:
        """Drop the lists that may be outdated after the server rejected a request with this
        method."""
        if method in STALE_AFTER_ERROR:
            self.drop(*STALE_AFTER_ERROR[method])

    def on_open(self) -> None:
        """Drop everything if this is not the first connection: it may lead to a different
        server."""
        if self._opened:
            self._drop(lambda key, kept: True)
        self._opened = True

    def drop(self, *methods: str) -> None:
        """Drop all responses to these methods."""
        self._drop(lambda key, kept: key.method in methods)

    def close(self) -> None:
        """Remove the responses that belong to this client."""
        self._cache._drop(lambda key, kept: key.owner is self)

    def _drop_outdated_by(self, notification: str) -> None:
        if old := [
            row.name for row in self._extensions.all_methods() if notification in row.outdated_by
        ]:
            self.drop(*old)

    def _drop_resource(self, uri: str) -> None:
        self._drop(
            lambda key, kept: (
                kept.uri is not None and (is_within(kept.uri, uri) or is_within(uri, kept.uri))
            )
        )

    def _drop(self, old: Callable[[CacheKey, CachedResponse], bool]) -> None:
        if self._shared is not None:
            self._shared.drop()
        owners = (self, None)
        self._cache._drop(
            lambda key, kept: key.server == self._server and key.owner in owners and old(key, kept)
        )


class PendingCompletion(Struct, eq=False):
    """Calls that wait for the same completion, and the request that will be sent for them."""

    ask: AskServer
    due: float
    waiting: int = 0
    task: "asyncio.Task[CompleteResult] | None" = None


class Completer:
    """The completions of one client."""

    def __init__(self, cache: ResponseCache) -> None:
        self._cache = cache
        self._pending: dict[str, PendingCompletion] = {}

    async def complete(
        self, params: CompleteParams, ask: AskServer, debounce: float, ttl: float
    ) -> CompleteResult:
        """Return a cached answer, the answer from `ask`, or the answer to a later call for the same
        argument."""
        if ttl > 0 and (found := self._cache.find_completion(params)) is not None:
            return found
        fetch = partial(self._cache.fetch_completion, params, ask, ttl)
        if debounce <= 0:
            return await fetch()
        return await self._debounce(repr((params.ref, params.argument.name)), fetch, debounce)

    async def _debounce(self, key: str, ask: AskServer, seconds: float) -> CompleteResult:
        loop = asyncio.get_running_loop()
        pending = self._pending.setdefault(key, PendingCompletion(ask, 0.0))
        pending.ask, pending.due = ask, loop.time() + seconds
        if pending.task is None:
            pending.task = loop.create_task(self._run(key, pending))
        pending.waiting += 1
        try:
            return await asyncio.shield(pending.task)
        finally:
            pending.waiting -= 1
            if not pending.waiting:  # no call is waiting for it any more
                pending.task.cancel()
                self._remove(key, pending)

    async def _run(self, key: str, pending: PendingCompletion) -> CompleteResult:
        now = asyncio.get_running_loop().time
        while (left := pending.due - now()) > 0:  # noqa: ASYNC110  (each call extends the time)
            await asyncio.sleep(left)
        self._remove(key, pending)  # later calls wait for the next one
        return await pending.ask()

    def _remove(self, key: str, pending: PendingCompletion) -> None:
        if self._pending.get(key) is pending:
            del self._pending[key]


def _ttl_seconds(hint: Any) -> float:
    """Return how long the server allows a response to be cached; 0 if its hint is not a number."""
    return min(hint, MAX_TTL_SECONDS * 1000) / 1000 if isinstance(hint, int | float) else 0.0


def _size_of(key: CacheKey, kept: CachedResponse) -> int:
    return len(key.params) + len(kept.data)


def _without_per_request_meta(params: Any) -> Any:
    meta = getattr(params, "meta", None)
    if not meta or PER_REQUEST_META.isdisjoint(meta):
        return params
    return replace(
        params,
        meta={name: value for name, value in meta.items() if name not in PER_REQUEST_META} or None,
    )


def _carries_answers(params: Any) -> bool:
    """Return whether a request carries answers to the server's questions, which affect its
    result."""
    return (
        getattr(params, "input_responses", None) is not None
        or getattr(params, "request_state", None) is not None
    )
