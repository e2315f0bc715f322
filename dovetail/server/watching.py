"""Tells when files change that are served with `watch=True`, by looking at them now and then.

One thread per server looks, and only while there is somebody to be told. A source gives the state
of each of its URIs (for a file what `os.stat` says of it, for a listing the names in it); what
differs from the last look is told, and what has come or gone differs from nothing at all. The first
look is the one when a source is added, so no change falls between.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import TypeAlias

from ..errors import ConfigError
from ..limits import Limits

log = logging.getLogger("dovetail.server")

Source: TypeAlias = Callable[[], Iterator[tuple[str, Hashable]]]
"""The URIs of a file or directory, and what changes when they do."""


class Watch:
    """What one server watches."""

    def __init__(self, tell: Callable[[str], None], limits: Limits) -> None:
        self._tell, self._limits = tell, limits
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[Source, dict[str, Hashable]]] = {}
        self._stop: threading.Event | None = None

    def add(self, name: str, source: Source) -> None:
        """Watch one more, under a name that it can be dropped by."""
        with self._lock:
            room = self._limits.watched - sum(len(states) for _, states in self._seen.values())
            states = dict(islice(source(), room + 1))
            if len(states) > room:
                raise ConfigError(
                    f"{name}: more than {self._limits.watched} files to watch, which is "
                    "Limits.watched"
                )
            self._seen[name] = source, states

    def drop(self, name: str) -> None:
        """Watch it no more."""
        with self._lock:
            self._seen.pop(name, None)

    def run(self, wanted: bool) -> None:
        """Begin to look, or stop, as it is wanted."""
        if wanted and self._stop is None:
            self._stop = threading.Event()
            threading.Thread(
                target=self._work, args=(self._stop,), name="dovetail-watch", daemon=True
            ).start()
        elif not wanted and self._stop is not None:
            self._stop.set()
            self._stop = None

    def _work(self, stop: threading.Event) -> None:
        while not stop.wait(self._limits.watch_interval):
            for uri in self._changed():
                self._tell(uri)

    def _changed(self) -> list[str]:
        changed: list[str] = []
        with self._lock:
            for name, (source, before) in self._seen.items():
                try:
                    now = dict(islice(source(), self._limits.watched))
                except Exception:
                    log.exception("Cannot look after %s", name)
                    continue
                changed += [uri for uri in before | now if before.get(uri) != now.get(uri)]
                self._seen[name] = source, now
        return changed
