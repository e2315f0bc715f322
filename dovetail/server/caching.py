"""Cache hints: how long clients may keep results, and whether they may share them.

The most specific setting takes precedence: first the resource's setting, then the method's, then
the server's. Without a setting, nothing is cached. The default scope is private. A "public" scope
for the whole server does not apply to results that may depend on the caller. A result may depend on
the caller if there is middleware, if an extension wraps or provides the result, or if the function
of a resource has a Context parameter. To make such results public, set the scope for the method or
the resource. A result is never cached if the client was asked a question during the call.
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigError
from ..ports import Call, CallHandler
from ..protocol.base import CacheHints
from ..protocol.methods import METHODS, Method

Hints = dict[str, Any]
"""The result fields that carry the hints; empty for the revision's defaults."""
SCOPES = ("private", "public")
MAX_TTL_SECONDS = 2**31
"""The maximum `ttl`, as in HTTP."""


class Cache(Struct, frozen=True):
    """How long clients may keep a result, and whether they may share it.

    Args:
        ttl: How long a client may keep the result, in seconds (default: 0, which disables caching).
        scope: "private" (the default) if the result is for one user only, or "public" if it is the
            same for all users.

    Raises:
        ConfigError: A value is out of range.
    """

    ttl: float = 0
    scope: Literal["private", "public"] = "private"

    def __post_init__(self) -> None:
        if not 0 <= self.ttl < MAX_TTL_SECONDS:
            raise ConfigError(
                f"Cache(ttl={self.ttl!r}): ttl must be a number of seconds, 0 or more"
            )
        if self.scope not in SCOPES:
            raise ConfigError(
                f"Cache(scope={self.scope!r}): scope must be one of {', '.join(SCOPES)}"
            )


class Caching:
    """The cache settings of one server."""

    def __init__(
        self, setting: Cache | Mapping[str, Cache] | None, personal_methods: Container[str]
    ) -> None:
        self._personal_methods = personal_methods
        """The methods whose results may depend on the caller."""
        self._server_wide = setting if isinstance(setting, Cache) else None
        self._by_method = dict(setting) if isinstance(setting, Mapping) else {}
        if not isinstance(setting, Cache | Mapping | None):
            known = ", ".join(name for name, row in METHODS.items() if row.cacheable)
            raise ConfigError(
                f"cache={setting!r}: cache must be a Cache, or a dict that maps some of these "
                f"methods to a Cache: {known}"
            )
        for name, cache in self._by_method.items():
            check_cache(cache, f"cache[{name!r}]")

    def check(self, methods: Iterable[Method]) -> None:
        """Raise ConfigError if there is a setting for a method that cannot be cached."""
        known = [row.name for row in methods if row.cacheable]
        for name in self._by_method.keys() - {*known}:
            raise ConfigError(
                f"cache: {name!r} cannot be cached; the cacheable methods are {', '.join(known)}"
            )

    def hints(
        self,
        method: str,
        own: Cache | None = None,
        *,
        personal: bool = False,
        restricted: bool = False,
    ) -> Hints:
        """Return the hints for a method, or for a component with its `own` setting. `personal`
        means that the result may depend on the caller. `restricted` means that not all callers may
        see it."""
        cache = own or self._by_method.get(method)
        if cache is None:
            cache = self._server_wide
            restricted = restricted or personal or method in self._personal_methods
        if cache is None:
            return {}
        scope = "private" if restricted else cache.scope
        return {"ttl_ms": int(cache.ttl * 1000), "cache_scope": scope}

    def hinting(self, method: str, handle: CallHandler) -> CallHandler:
        """Wrap an extension's handler so that hints are added to results that have none."""

        async def answer(call: Call) -> Any:
            result = await handle(call)
            needs_hints = isinstance(result, CacheHints) and result.ttl_ms is None
            return replace(result, **self.hints(method, personal=True)) if needs_hints else result

        return answer


def check_cache(cache: Any, owner: str) -> None:
    """Raise ConfigError unless this is a Cache."""
    if not isinstance(cache, Cache):
        raise ConfigError(f"{owner}: {cache!r} is not a Cache; use Cache(ttl=60)")


def asked_the_client(call: Call) -> bool:
    """Return whether the client was asked a question during this call."""
    return call.run is not None and bool(call.run.rounds or call.run.answers)
