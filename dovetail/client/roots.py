"""The directories and files that a server is told it may work in.

A root is given as a path, as a `file://` URI or as a Root. A path is of this machine: links and `..` are resolved and it
must exist. A URI is passed on as it was written, for it may name a place that only the server sees; it must be an absolute
path of no other host, without `..`. Either way, a root that was there once and is gone is dropped: `drop_vanished` says
which, so that whoever holds the conversation can announce it.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from ..errors import ConfigError
from ..protocol.roots import Root

log = logging.getLogger("dovetail.client")
_CONTROLS = re.compile(r"[\x00-\x20\x7f]")


class Roots(list[Root]):
    """The roots of one client."""

    def __init__(self, given: Iterable[Any] = ()) -> None:
        super().__init__(as_root(one) for one in given)
        self._seen: set[str] = set()
        self.drop_vanished()

    def replace(self, given: Iterable[Any]) -> None:
        """Take others instead; where one of them is no root, all stays as it is."""
        self[:] = [as_root(one) for one in given]
        self._seen.clear()
        self.drop_vanished()

    def drop_vanished(self) -> list[Root]:
        """Forget the roots that were there and are gone; these are returned."""
        there = {root.uri for root in self if os.path.exists(_path(root.uri))}
        gone = [root for root in self if root.uri in self._seen - there]
        self._seen |= there
        if gone:
            log.warning("No longer a root, because it is gone: %s", ", ".join(root.uri for root in gone))
            self[:] = [root for root in self if root not in gone]
        return gone


def as_root(given: Any) -> Root:
    """A root out of a path, a `file://` URI, or a Root."""
    if isinstance(given, Mapping):
        try:
            given = msgspec.convert(given, Root)
        except msgspec.ValidationError as problem:
            raise ConfigError(f"{dict(given)!r} is no root: {problem}") from None
    if isinstance(given, Root):
        return _checked(given)
    if isinstance(given, str) and "://" in given:
        return _checked(Root(given))
    if isinstance(given, str | Path):
        try:
            path = Path(given).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as problem:
            raise ConfigError(f"{str(given)!r} is no root: {getattr(problem, 'strerror', None) or problem}") from None
        return Root(path.as_uri(), path.name or None)
    raise ConfigError(f"{given!r} is no root: give a path or a file:// URI")


def _checked(root: Root) -> Root:
    """The root, if its URI is of a file and means the place that it shows."""
    try:
        parts = urlsplit(root.uri)
    except ValueError as problem:
        raise ConfigError(f"{root.uri!r} is no root: {problem}") from None
    path = unquote(parts.path)
    flaws = {
        "give a path or a file:// URI": parts.scheme != "file" or not root.uri.lower().startswith("file://"),
        "a root is on this machine": parts.netloc not in ("", "localhost"),
        "its path must be absolute": not path.startswith("/"),
        "its path must not lead back with ..": ".." in re.split(r"[/\\]", path),
        "it holds what no path may": _CONTROLS.search(root.uri) is not None or "\0" in path,
        "a file has no query or fragment": bool(parts.query or parts.fragment),
    }
    for flaw, found in flaws.items():
        if found:
            raise ConfigError(f"{root.uri!r} is no root: {flaw}")
    return root


def _path(uri: str) -> str:
    path = unquote(urlsplit(uri).path)
    return path.removeprefix("/") if os.name == "nt" else path
