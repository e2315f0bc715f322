"""The directories and files that a server is told it may work in.

A root is given as a path, as a `file://` URI or as a Root. A path is of this machine: links and
`..` are resolved and it must exist. A URI is passed on as it was written, for it may name a place
that only the server sees; it must be an absolute path of no other host, without `..`. Either way, a
root that was there once and is gone is dropped: `look` tells whoever holds the conversation, so
that it can be announced. Nobody looks by the clock: a client looks when it is asked for the roots,
and in passing when it asks for something itself.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from ..daemon_future import run_in_daemon_thread
from ..errors import ConfigError
from ..net import is_local_file_host
from ..protocol.client_features import Root

log = logging.getLogger("dovetail.client")
_CONTROLS = re.compile(r"[\x00-\x20\x7f]")


MIN_CHECK_INTERVAL_SECONDS = 5.0
"""Seconds between two looks in passing."""
CHECK_TIMEOUT_SECONDS = 1.0
"""Seconds that anybody waits for a look: a mount may hang."""


class Roots(list[Root]):
    """The roots of one client."""

    def __init__(self, given: Iterable[Any] = ()) -> None:
        super().__init__()
        self._check: asyncio.Future[set[str]] | None = None
        self._checked_at = 0.0
        self.replace(given)

    def replace(self, given: Iterable[Any]) -> None:
        """Take others instead; where one of them is no root, all stays as it is."""
        self[:] = [parse_root(one) for one in given]
        self._seen = _existing({root.uri for root in self})

    async def drop_missing(self, changed: Callable[[], None], *, passing: bool = False) -> None:
        """Drop the roots that were there and are gone, and say so. In passing, only where the last
        look is a while ago."""
        loop = asyncio.get_running_loop()
        pause = MIN_CHECK_INTERVAL_SECONDS if passing else 0.0
        if self._check is None or (self._check.done() and loop.time() - self._checked_at >= pause):
            uris, self._checked_at = {root.uri for root in self}, loop.time()
            self._check = asyncio.wrap_future(
                run_in_daemon_thread(partial(_existing, uris), "dovetail-roots")
            )
            self._check.add_done_callback(
                lambda look: self._check_done(uris, look.result(), changed)
            )
        elif passing:
            return
        await asyncio.wait([self._check], timeout=CHECK_TIMEOUT_SECONDS)

    def _check_done(self, uris: set[str], there: set[str], changed: Callable[[], None]) -> None:
        gone = (uris - there) & self._seen
        self._seen = (self._seen | there) - gone
        if gone:
            log.warning("No longer a root, because it is gone: %s", ", ".join(sorted(gone)))
            self[:] = [root for root in self if root.uri not in gone]
            changed()


def parse_root(given: Any) -> Root:
    """A root out of a path, a `file://` URI, or a Root."""
    if isinstance(given, Mapping):
        try:
            given = msgspec.convert(given, Root)
        except msgspec.ValidationError as problem:
            raise ConfigError(f"{dict(given)!r} is no root: {problem}") from None
    if isinstance(given, Root):
        return _check_uri(given)
    if isinstance(given, str) and "://" in given:
        return _check_uri(Root(given))
    if isinstance(given, str | Path):
        try:
            path = Path(given).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as problem:
            raise ConfigError(
                f"{str(given)!r} is no root: {getattr(problem, 'strerror', None) or problem}"
            ) from None
        return Root(path.as_uri(), path.name or None)
    raise ConfigError(f"{given!r} is no root: give a path or a file:// URI")


def _check_uri(root: Root) -> Root:
    """The root, if its URI is of a file and means the place that it shows."""
    try:
        parts = urlsplit(root.uri)
    except ValueError as problem:
        raise ConfigError(f"{root.uri!r} is no root: {problem}") from None
    path = unquote(parts.path)
    flaws = {
        "give a path or a file:// URI": parts.scheme != "file"
        or not root.uri.lower().startswith("file://"),
        "a root is on this machine": not is_local_file_host(parts.netloc),
        "its path must be absolute": not path.startswith("/"),
        "its path must not lead back with ..": ".." in re.split(r"[/\\]", path),
        "it holds what no path may": _CONTROLS.search(root.uri) is not None or "\0" in path,
        "a file has no query or fragment": bool(parts.query or parts.fragment),
    }
    for flaw, found in flaws.items():
        if found:
            raise ConfigError(f"{root.uri!r} is no root: {flaw}")
    return root


def _existing(uris: set[str]) -> set[str]:
    return {uri for uri in uris if os.path.exists(_path(uri))}


def _path(uri: str) -> str:
    path = unquote(urlsplit(uri).path)
    return path.removeprefix("/") if os.name == "nt" else path
