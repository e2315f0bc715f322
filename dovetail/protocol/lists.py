"""What all lists share: pages, hints for caches, and the news that a list changed.
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination"""

from typing import Any

from .base import Params, Result


class CacheHints(Result, kw_only=True):
    """How long, and by whom, a result may be kept; the stateless era only. A hint that makes no
    sense spoils no result."""

    ttl_ms: Any = None
    cache_scope: Any = None


class ListParams(Params, kw_only=True):
    """Asks for a page of a list; an empty string is a cursor like any other."""

    cursor: str | None = None


class ListChangedParams(Params, kw_only=True):
    """A list changed. Only the draft dialect tells what came and went."""

    added: list[Any] | None = None
    removed: list[str] | None = None
