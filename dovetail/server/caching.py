"""How long clients may keep what a server says, and who may share it.

The hints are the server's word, and the nearest word counts: a resource's own, then that of the
method by name, then that of the whole server, and without any nothing is kept. Private is the
default. "public" said of the whole server does not reach what may depend on the caller (all of it
where there is middleware, what an extension wraps or answers, and resources whose function takes a
Context): who means that too says it nearer by. What took a question to the client is the answer to
nobody else, and is never kept.
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
"""The fields of a result that carry them; none where the revision's own are to be filled in."""
SCOPES = ("private", "public")
LONGEST = 2**31
"""Seconds; what HTTP takes for the longest time too."""


class Cache(Struct, frozen=True):
    """How long clients may keep a result, in seconds, and whether they may share it with others
    ("public") or not."""

    ttl: float = 0
    scope: Literal["private", "public"] = "private"

    def __post_init__(self) -> None:
        if not 0 <= self.ttl < LONGEST:
            raise ConfigError(f"Cache(ttl={self.ttl!r}): give seconds, from 0 up")
        if self.scope not in SCOPES:
            raise ConfigError(f"Cache(scope={self.scope!r}): it is one of {', '.join(SCOPES)}")

    def hints(self, scope: str | None = None) -> Hints:
        """The hints that say this."""
        return {"ttl_ms": int(self.ttl * 1000), "cache_scope": scope or self.scope}


class Caching:
    """What one server says of caches."""

    def __init__(self, said: Cache | Mapping[str, Cache] | None, changed: Container[str]) -> None:
        self._changed = changed
        """The methods whose results somebody may change, for one caller and not for another."""
        self._whole = said if isinstance(said, Cache) else None
        self._named = dict(said) if isinstance(said, Mapping) else {}
        if said is not None and self._whole is None and not isinstance(said, Mapping):
            known = ", ".join(name for name, row in METHODS.items() if row.cacheable)
            raise ConfigError(f"cache={said!r}: give a Cache, or one for each method: {known}")
        for name, cache in self._named.items():
            check_cache(cache, f"cache[{name!r}]")

    def check(self, methods: Iterable[Method]) -> None:
        """Whether what is said by name is said of methods that there are."""
        known = [row.name for row in methods if row.cacheable]
        for name in self._named.keys() - {*known}:
            raise ConfigError(f"cache: {name!r} cannot be kept; what can be is {', '.join(known)}")

    def hints(self, method: str, own: Cache | None = None, personal: bool = False) -> Hints:
        """The hints for a method, or for something that has its own. `personal`: it may depend on
        who asks."""
        near = own or self._named.get(method)
        if near is not None:
            return near.hints()
        if self._whole is None:
            return {}
        return self._whole.hints("private" if personal or method in self._changed else None)

    def hinting(self, method: str, handle: CallHandler) -> CallHandler:
        """What answers a method of an extension, with hints where its results have none of their
        own."""

        async def answer(call: Call) -> Any:
            result = await handle(call)
            silent = isinstance(result, CacheHints) and result.ttl_ms is None
            return replace(result, **self.hints(method, personal=True)) if silent else result

        return answer


def check_cache(cache: Any, where: str) -> Cache:
    """What a user gave as a Cache, if it is one."""
    if not isinstance(cache, Cache):
        raise ConfigError(f"{where}: {cache!r} is no Cache; write Cache(ttl=60)")
    return cache


def asked_the_client(call: Call) -> bool:
    """Whether the client was asked something before this call could be answered."""
    return call.run is not None and bool(call.run.rounds or call.run.answers)
