"""Roots: the directories a client lets a server know of.
https://modelcontextprotocol.io/specification/2026-07-28/client/roots"""

from msgspec import field

from .base import Meta, Result, Wire


class Root(Wire):
    """A directory or file, as a `file://` URI."""

    uri: str
    name: str | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListRootsResult(Result, kw_only=True):
    """All roots there are now."""

    roots: list[Root]
