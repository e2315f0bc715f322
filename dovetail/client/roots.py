"""The directories and files that a server may work in.

The roots are a list, or a function that is called each time that the server asks (`OnRoots` in
`callbacks.py`). A root is given as a path, as a `file://` URI or as a Root. A path must exist on
this machine; links and `..` are resolved. A URI is passed on unchanged, because it may name a place
that only the server can access. Its path must be absolute, on this host and without `..`. In both
cases, a root that is deleted later is dropped, and the server is notified. There is no polling: a
client checks the roots when the server asks for them, and occasionally when it sends a request.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from ..aio import run_in_daemon_thread
from ..errors import ConfigError
from ..logs import get_logger
from ..net import is_local_file_host
from ..protocol.client_features import Root

log = get_logger("client")
_CONTROLS = re.compile(r"[\x00-\x20\x7f]")


MIN_CHECK_INTERVAL_SECONDS = 5.0
"""The minimum time between two checks that requests trigger."""
CHECK_TIMEOUT_SECONDS = 1.0
"""The maximum time to wait for a check, because a mounted file system may hang."""


class Roots(list[Root]):
    """The roots of one client."""

    def __init__(self, roots: Iterable[Any]) -> None:
        super().__init__()
        self._check: asyncio.Future[set[str]] | None = None
        self._checked_at = 0.0
        self.replace(roots)

    def replace(self, roots: Iterable[Any]) -> None:
        """Replace all roots. If a root is not valid, nothing changes."""
        self[:] = parse_roots(roots)
        self._seen = _existing({root.uri for root in self})

    async def drop_missing(self, changed: Callable[[], None], *, if_due: bool = False) -> None:
        """Drop the roots that have been deleted, and call `changed`. With `if_due`,
        do nothing if the last check was recent."""
        pause = MIN_CHECK_INTERVAL_SECONDS if if_due else 0.0
        if self._check is None or (self._check.done() and monotonic() - self._checked_at >= pause):
            uris, self._checked_at = {root.uri for root in self}, monotonic()
            self._check = asyncio.wrap_future(
                run_in_daemon_thread(partial(_existing, uris), "dovetail-roots")
            )
            self._check.add_done_callback(
                lambda check: self._check_done(uris, check.result(), changed)
            )
        elif if_due:
            return
        await asyncio.wait([self._check], timeout=CHECK_TIMEOUT_SECONDS)

    def _check_done(self, uris: set[str], existing: set[str], changed: Callable[[], None]) -> None:
        gone = (uris - existing) & self._seen
        self._seen = (self._seen | existing) - gone
        if gone:
            log.warning("Dropped a root that no longer exists: %s", ", ".join(sorted(gone)))
            self[:] = [root for root in self if root.uri not in gone]
            changed()


def parse_roots(roots: Iterable[Any]) -> list[Root]:
    """Return the roots in a list of paths, `file://` URIs and Roots."""
    if isinstance(roots, str | bytes | Mapping) or not isinstance(roots, Iterable):
        raise ConfigError(f"{roots!r} is not a list of roots: pass a list of paths or file:// URIs")
    return [parse_root(root) for root in roots]


def resolve_roots(roots: Iterable[Any]) -> list[Root]:
    """Return the roots in a list as `parse_roots` does, but follow the links of all of them, and
    refuse those with `..` and those that do not exist."""
    given = list(roots) if not isinstance(roots, str | bytes | Mapping) else roots
    found = []
    for value, root in zip(given, parse_roots(given), strict=True):
        if isinstance(value, str | Path) and ".." in re.split(r"[/\\]", str(value)):
            raise ConfigError(f"{str(value)!r} is not a root: its path must not contain ..")
        resolved = parse_root(Path(_path(root.uri)))
        found.append(Root(resolved.uri, root.name or resolved.name))
    return found


def existing_roots(roots: Iterable[Root]) -> list[Root]:
    """Return the roots that still exist."""
    return [root for root in roots if os.path.exists(_path(root.uri))]


def parse_root(value: Any) -> Root:
    """Return a Root from a path, a `file://` URI, a Root, or a Root in wire form."""
    if isinstance(value, Mapping):
        try:
            value = msgspec.convert(value, Root)
        except msgspec.ValidationError as problem:
            raise ConfigError(f"{dict(value)!r} is not a root: {problem}") from None
    if isinstance(value, Root):
        return _check_uri(value)
    if isinstance(value, str) and "://" in value:
        return _check_uri(Root(value))
    if isinstance(value, str | Path):
        try:
            path = Path(value).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as problem:
            raise ConfigError(
                f"{str(value)!r} is not a root: {getattr(problem, 'strerror', None) or problem}"
            ) from None
        return Root(path.as_uri(), path.name or None)
    raise ConfigError(f"{value!r} is not a root: pass a path or a file:// URI")


def _check_uri(root: Root) -> Root:
    """Return the root if its URI names a file; raise ConfigError otherwise."""
    try:
        parts = urlsplit(root.uri)
    except ValueError as problem:
        raise ConfigError(f"{root.uri!r} is not a root: {problem}") from None
    path = unquote(parts.path)
    flaws = {
        "pass a path or a file:// URI": parts.scheme != "file"
        or not root.uri.lower().startswith("file://"),
        "a root must be on this machine": not is_local_file_host(parts.netloc),
        "its path must be absolute": not path.startswith("/"),
        "its path must not contain ..": ".." in re.split(r"[/\\]", path),
        "it contains control characters or spaces": _CONTROLS.search(root.uri) is not None
        or "\0" in path,
        "it must not have a query or fragment": bool(parts.query or parts.fragment),
    }
    for flaw, present in flaws.items():
        if present:
            raise ConfigError(f"{root.uri!r} is not a root: {flaw}")
    return root


def _existing(uris: set[str]) -> set[str]:
    return {uri for uri in uris if os.path.exists(_path(uri))}


def _path(uri: str) -> str:
    path = unquote(urlsplit(uri).path)
    return path.removeprefix("/") if os.name == "nt" else path
