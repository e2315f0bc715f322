"""The results of one server that the gateway may keep, because the server says so.

Only reads of resources are kept, and only those of a server of the stateless era. A public result
serves all callers with the same forwarded headers. A private one serves only the same authenticated
caller, and is not kept for a caller without authentication. A result that was kept says how long it
may still be kept. All results are dropped when a list of the server changes or it is started again,
and those of one resource when the server announces an update of it.
"""

from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

import msgspec

from ..client.caching import (
    MAX_TTL_SECONDS,
    PER_REQUEST_META,
    CachedResponse,
    CacheKey,
    SharedCache,
)
from ..client.subscriptions import is_within
from ..limits import Limits
from ..ports import Call
from ..protocol.base import OWN_META
from ..protocol.raw import RawObject, split_meta
from .catalog import read_hints

Headers = tuple[tuple[str, str], ...]


class ResultCache:
    """The results of one server.

    Args:
        limits: `Limits.cached` and `Limits.cached_bytes`.
    """

    def __init__(self, limits: Limits) -> None:
        self._cache = SharedCache(limits.cached, limits.cached_bytes)

    @property
    def drops(self) -> int:
        """The number of times that results were dropped."""
        return self._cache.drops

    def key(self, call: Call, fields: Mapping[str, Any], headers: Headers) -> CacheKey | None:
        """Return the key of a call; None if its result cannot be kept.

        Args:
            call: The call.
            fields: The params that are sent to the server.
            headers: The headers of the caller that are sent to the server.
        """
        if not call.method.cacheable or call.request_state is not None:
            return None
        try:
            meta = split_meta(fields)
        except msgspec.MsgspecError:
            return None
        ignored = OWN_META | PER_REQUEST_META
        kept = {key: value for key, value in meta.items() if key not in ignored}
        params = msgspec.json.encode({**fields, "_meta": kept}, order="deterministic")
        owner = None if call.principal is None else call.principal.id
        return CacheKey(owner, headers, call.name, "", params)

    def find(self, key: CacheKey, type: Any) -> RawObject | None:
        """Return a result that was kept, or None.

        Args:
            key: The key of the call.
            type: The type of the result.
        """
        found = self._cache.find(key._replace(owner=PUBLIC))
        if found is None and key.owner is not None:
            found = self._cache.find(key)
        if found is None:
            return None
        result = RawObject.parse(type, found.data)
        result.ttl_ms = max(0, int((found.expires_at - monotonic()) * 1000))
        return result

    def keep(self, key: CacheKey, result: RawObject, drops: int, uri: str) -> None:
        """Keep a result, if the server allows it.

        Args:
            key: The key of the call.
            result: The result.
            drops: The value of `drops` when the call was sent.
            uri: The server's own URI of the resource.
        """
        hints = read_hints(result.fields)
        owner = PUBLIC if hints.is_public else key.owner
        if not hints.ttl_ms or owner is None:
            return
        expires_at = monotonic() + min(hints.ttl_ms / 1000, MAX_TTL_SECONDS)
        data = msgspec.json.encode(result.fields)
        self._cache.put(key._replace(owner=owner), CachedResponse(data, expires_at, uri), drops)

    def drop(self, uri: str | None = None) -> None:
        """Drop the results of a resource and of those below it, or all results.

        Args:
            uri: The server's own URI of the resource (default: None, all).
        """
        self._cache.drop(lambda _, kept: uri is None or is_within(kept.uri or "", uri))


PUBLIC: Final = object()
"""The owner of results that all callers share, which is not equal to the id of any caller."""
