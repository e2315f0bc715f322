"""Files and directories as resources: the functions behind `server.add_file` and
`server.add_directory`, and the thread that watches them.

With `watch=True`, one thread per server polls the files, and only while there are subscribers. A
source returns the state of each of its URIs (for a file what `os.stat` says, for a listing the
names in it). Subscribers are notified of each URI whose state differs from the last look; a file
that is new or gone differs too. The first look is when a source is added, so no change is missed in
between.
"""

import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from ..errors import ConfigError
from ..limits import Limits
from ..protocol.content import ResourceContents, TextResourceContents
from .files import DIRECTORY, Directory, file_uri, mime_of, read_file

log = logging.getLogger("dovetail.server")

ResourceParts: TypeAlias = tuple[
    Callable[..., Any], str, dict[str, Any], Callable[[str], list[str]] | None
]
"""What is needed to register a resource: function, URI, options, and the completer of its path."""
StateSource: TypeAlias = Callable[[], Iterator[tuple[str, Hashable]]]
"""Returns the URIs of a file or directory, each with a value that changes when the file does."""


def file_resource(
    file: str | Path, uri: str | None
) -> tuple[Callable[[], ResourceContents], str, dict[str, Any]]:
    """Return what is needed to register a file: function, URI and options."""
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"There is no file {path.absolute()}")
    place = uri or file_uri(path.resolve())
    options = {
        "name": path.name,
        "mime_type": mime_of(path),
        "size": path.stat().st_size,
        "description": None,
    }

    def read() -> ResourceContents:
        return read_file(path, place)

    return read, place, options


def directory_resources(folder: str | Path, uri: str, hidden: bool) -> list[ResourceParts]:
    """Return what is needed to register a directory: a listing, and a template for its files."""
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"There is no directory {path.absolute()}")
    if "{" in uri or ":" not in uri:
        raise ConfigError(
            f"{uri!r} cannot be the URI of a directory: it needs a scheme and no variables, "
            "such as docs://"
        )
    directory = Directory(path, hidden=hidden)
    base = _with_slash(uri)

    def list_files() -> ResourceContents:
        lines = [base + quote(entry[0]) for entry in directory.list()]
        return TextResourceContents(uri=base, text="\n".join(lines), mime_type=DIRECTORY)

    def read(path: str) -> list[ResourceContents]:
        return directory.read(path, base + quote(path))

    def complete_path(value: str) -> list[str]:
        return [entry[0] for entry in directory.list()]

    name = path.name or str(path)
    listing = {"name": name, "mime_type": DIRECTORY, "description": f"The files in {name}"}
    template = {"name": f"{name}/…", "description": f"A file in {name}"}
    return [
        (list_files, base, listing, None),
        (read, base + "{+path}", template, complete_path),
    ]


def _with_slash(uri: str) -> str:
    return uri if uri.endswith("/") else uri + "/"


# --------------------------------------------------------------------------------------------------
# watching


def file_states(path: str | Path, uri: str) -> StateSource:
    """Make the source that watches one file."""

    def states() -> Iterator[tuple[str, Hashable]]:
        try:
            yield uri, _state(os.stat(path))
        except OSError:
            yield uri, None  # gone, perhaps only while it is being replaced

    return states


def directory_states(path: str | Path, uri: str, hidden: bool) -> StateSource:
    """Make the source that watches all files in a directory, and its listing."""
    directory, base = Directory(Path(path), hidden=hidden), _with_slash(uri)

    def states() -> Iterator[tuple[str, Hashable]]:
        found = [(base + quote(name), _state(stat)) for name, stat in directory.states()]
        yield base, tuple(uri for uri, _ in found)
        yield from found

    return states


def _state(stat: os.stat_result) -> Hashable:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class FileWatcher:
    """Polls the watched files of one server, and calls `notify` with each URI that changed."""

    def __init__(self, notify: Callable[[str], None], limits: Limits) -> None:
        self._notify, self._limits = notify, limits
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[StateSource, dict[str, Hashable]]] = {}
        self._stop: threading.Event | None = None

    def add(self, name: str, source: StateSource) -> None:
        """Watch a source under a name; ConfigError if there are too many files."""
        with self._lock:
            room = self._limits.watched - sum(len(states) for _, states in self._seen.values())
            states = dict(islice(source(), room + 1))
            if len(states) > room:
                raise ConfigError(
                    f"{name}: there are more than {self._limits.watched} files to watch "
                    "(Limits.watched)"
                )
            self._seen[name] = source, states

    def remove(self, name: str) -> None:
        """Stop watching the source with this name, if there is one."""
        with self._lock:
            self._seen.pop(name, None)

    def set_running(self, running: bool) -> None:
        """Start or stop the thread."""
        if running and self._stop is None:
            self._stop = threading.Event()
            threading.Thread(
                target=self._poll, args=(self._stop,), name="dovetail-watch", daemon=True
            ).start()
        elif not running and self._stop is not None:
            self._stop.set()
            self._stop = None

    def _poll(self, stop: threading.Event) -> None:
        while not stop.wait(self._limits.watch_interval):
            for uri in self._find_changes():
                self._notify(uri)

    def _find_changes(self) -> list[str]:
        changed: list[str] = []
        with self._lock:
            for name, (source, before) in self._seen.items():
                try:
                    now = dict(islice(source(), self._limits.watched))
                except Exception:
                    log.exception("Cannot watch %s", name)
                    continue
                changed += [uri for uri in before | now if before.get(uri) != now.get(uri)]
                self._seen[name] = source, now
        return changed
