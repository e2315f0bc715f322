"""Files and directories as resources, for `server.add_file` and `server.add_directory`.

A name comes from a client and is not trusted. The name must pass three checks, each of which is
usually sufficient:

1. The name is checked as text, against the strictest rules of any operating system (`_is_plain`):
   no absolute path, `..`, backslash, drive, device or stream, not even percent-encoded.
2. The path is resolved, with all links followed. The resolved path must still be below the root,
   and its name must also pass the first check. Only files and directories are served; pipes and
   devices are never opened.
3. The path is opened directory by directory from the root, and links are refused at each step
   (`_open_below`). This step does not rely on the second check, because a link may have been
   created in the meantime.

If a check fails, the error always says that there is no such file. No error reveals the location of
the root.

With `watch=True`, one thread per server polls the files, and only while there are subscribers. A
source returns the state of each of its URIs (for a file, the result of `os.stat`; for a listing,
the names that it contains). Subscribers are notified of each URI whose state has changed since the
last poll, including new and deleted files. The first poll happens when a source is added, so no
later change is missed.
"""

import codecs
import os
import re
import stat
import threading
from binascii import b2a_base64
from collections.abc import Callable, Hashable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from ..errors import ConfigError, NotFound, TooLarge
from ..limits import MIB, Limits
from ..logs import get_logger
from ..protocol.content import BlobResourceContents, ResourceContents, TextResourceContents

log = get_logger("server")

MAX_FILE_BYTES: Final = 64 * MIB
"""The size of the largest file that is served. The file must still fit into a message after Base64
encoding."""
DIRECTORY: Final = "inode/directory"
"""The MIME type of a directory."""
_BYTES: Final = "application/octet-stream"
MAX_LISTED_FILES: Final = 10_000
FoundPath: TypeAlias = tuple[str, os.stat_result]
"""A directory entry, with its relative path (with slashes) and its status."""
StateSource: TypeAlias = Callable[[], Iterator[tuple[str, Hashable]]]
"""A function that returns the URIs of a file or directory, each with a value that changes when the
file does."""
RegisterArguments: TypeAlias = tuple[Callable[..., Any], str, dict[str, Any]]
"""The arguments of `Server.add_resource`: function, URI and options."""

_MAX_SCANNED: Final = 100_000
"""The maximum number of directory entries that a listing examines, whether or not it lists them."""
_MAX_NAME_CHARS: Final = 4096
_MAX_DECODINGS: Final = 4
"""The maximum number of times that a name is percent-decoded to find harmful characters. A name
that still changes after that is refused."""


# --------------------------------------------------------------------------------------------------
# files


def read_file(path: Path, uri: str) -> ResourceContents:
    """Read a file as text if it is UTF-8 without NUL, otherwise as bytes. The path is trusted."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _missing(uri)
        descriptor = os.open(path, _READ_FLAGS)
    except (OSError, ValueError):
        raise _missing(uri) from None
    return contents_of(_read_bytes(descriptor, uri, MAX_FILE_BYTES), uri, known_type(path.name))


def mime_of(path: Path) -> str:
    """Return the MIME type of a file, based on its name or, failing that, its first bytes."""
    known = known_type(path.name)
    if known:
        return known
    try:
        if not path.is_file():
            return _BYTES
        with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
            head = file.read(4096)
        # The head of a longer file may end in the middle of a character.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < 4096)
    except (OSError, ValueError):
        return _BYTES
    return _BYTES if b"\0" in head else "text/plain"


# Without O_NONBLOCK, a pipe that replaces the file would block the reader forever.
_READ_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)


def _read_bytes(descriptor: int, uri: str, limit: int) -> bytes:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise _missing(uri)
    with os.fdopen(descriptor, "rb") as file:
        # The size alone is not reliable: the file may grow, and some system files report no size.
        data = file.read(limit + 1) if about.st_size <= limit else b""
    if max(about.st_size, len(data)) > limit:
        raise TooLarge(
            f"{_cut(uri)} is larger than {limit:,} bytes, the maximum size of a served file"
        )
    return data


def contents_of(data: bytes, uri: str, mime_type: str | None) -> ResourceContents:
    """Create resource contents from the bytes of a file, as text if they are UTF-8 without NUL,
    otherwise as bytes."""
    try:
        text = None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None:
        blob = b2a_base64(data, newline=False).decode()
        return BlobResourceContents(uri=uri, mime_type=mime_type or _BYTES, blob=blob)
    return TextResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=text)


# Types that Python's table lacks or has wrong, or that differ between versions of Python.
_MIME_TYPES = {
    ".aac": "audio/aac",
    ".aif": "audio/aiff",
    ".aiff": "audio/aiff",
    ".c": "text/x-c",
    ".cfg": "text/plain",
    ".cpp": "text/x-c++",
    ".flac": "audio/flac",
    ".go": "text/x-go",
    ".h": "text/x-c",
    ".ini": "text/plain",
    ".ipynb": "application/x-ipynb+json",
    ".java": "text/x-java",
    ".js": "text/javascript",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".jsx": "text/javascript",
    ".kt": "text/x-kotlin",
    ".lock": "text/plain",
    ".log": "text/plain",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".mp3": "audio/mpeg",
    ".oga": "audio/ogg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".parquet": "application/vnd.apache.parquet",
    ".php": "text/x-php",
    ".proto": "text/x-protobuf",
    ".py": "text/x-python",
    ".pyi": "text/x-python",
    ".rb": "text/x-ruby",
    ".rs": "text/x-rust",
    ".rst": "text/x-rst",
    ".sh": "text/x-shellscript",
    ".sql": "application/sql",
    ".swift": "text/x-swift",
    ".toml": "application/toml",
    ".ts": "text/typescript",
    ".tsx": "text/typescript",
    ".wasm": "application/wasm",
    ".wav": "audio/wav",
    ".weba": "audio/webm",
    ".webp": "image/webp",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".7z": "application/x-7z-compressed",
    ".br": "application/x-brotli",
    ".bz2": "application/x-bzip2",
    ".gz": "application/gzip",
    ".tgz": "application/gzip",
    ".xz": "application/x-xz",
    ".zst": "application/zstd",
}


def known_type(name: str) -> str | None:
    """Return the MIME type that the name of a file implies, if any."""
    return _all_mime_types().get(PurePath(name).suffix.lower())


@cache
def _all_mime_types() -> dict[str, str]:
    from mimetypes import MimeTypes

    # Python's own table, because the system's table differs from machine to machine.
    return {**MimeTypes(()).types_map[True], **_MIME_TYPES}


# --------------------------------------------------------------------------------------------------
# directories


class Directory:
    """The files below a root. Names that start with a dot are omitted unless `hidden` is set.
    `limit` is the size of the largest file that can be read, in bytes."""

    def __init__(self, root: Path, *, hidden: bool = False, limit: int = MAX_FILE_BYTES) -> None:
        if not root.is_dir():
            raise ConfigError(f"The directory {root.absolute()} does not exist")
        self.name = root.name or str(root)
        self._root = root.resolve()
        self._hidden = hidden
        self._limit = limit

    def names(self) -> list[str]:
        """Return the relative paths of the files, sorted. Links to directories are not followed."""
        return [name for name, _ in self.states()]

    def states(self) -> Iterator[FoundPath]:
        """Yield each file that `names` returns, with its current status."""
        return islice(self._files(self._root), MAX_LISTED_FILES)

    def paths(self) -> Iterator[str]:
        """Yield the paths of files, and the paths of directories with a trailing slash."""
        found = islice(self._walk(self._root), MAX_LISTED_FILES)
        return (f"{name}/" if stat.S_ISDIR(status.st_mode) else name for name, status in found)

    def read(self, relative: str, uri: str) -> ResourceContents:
        """Read a file; for a directory, return the URIs of its files, one per line."""
        path = self.resolve(relative, uri)
        if not path.is_dir():
            data = _read_bytes(_open_below(self._root, path, uri), uri, self._limit)
            return contents_of(data, uri, known_type(path.name))
        names = [
            (self._root / name).relative_to(path).as_posix()
            for name, _ in islice(self._files(path), MAX_LISTED_FILES)
        ]
        text = "\n".join(_with_slash(uri) + quote(name) for name in names)
        return TextResourceContents(uri=uri, mime_type=DIRECTORY, text=text)

    def read_bytes(self, relative: str, uri: str, limit: int | None = None) -> bytes:
        """Return the bytes of a file; raise NotFound for a directory."""
        path = self.resolve(relative, uri)
        if path.is_dir():
            raise _missing(uri)
        return _read_bytes(
            _open_below(self._root, path, uri), uri, self._limit if limit is None else limit
        )

    def resolve(self, relative: str, uri: str) -> Path:
        """Return the path of a file or directory. Raise NotFound if it does not exist or must not
        be served."""
        try:
            if not is_plain_path(relative):
                raise ValueError
            path = self._root.joinpath(relative).resolve(strict=True)
            parts = path.relative_to(self._root).parts
            mode = path.stat().st_mode
        except (OSError, RuntimeError, ValueError):
            raise _missing(uri) from None
        # The target of a link must be servable too.
        may_be_served = all(map(self._may_serve, (*parts, *PurePath(relative).parts)))
        if not may_be_served or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise _missing(uri)
        return path

    def _may_serve(self, part: str) -> bool:
        return _is_plain(part) and (self._hidden or not part.startswith("."))

    def _files(self, top: Path) -> Iterator[FoundPath]:
        return (found for found in self._walk(top) if stat.S_ISREG(found[1].st_mode))

    def _walk(self, top: Path) -> Iterator[FoundPath]:
        waiting = [top]
        remaining = _MAX_SCANNED
        while waiting:
            path = waiting.pop()
            name = path.relative_to(self._root).as_posix()
            try:
                status = path.lstat()
                if stat.S_ISDIR(status.st_mode):
                    # They differ for a junction, or for a link that was created just now.
                    below = sorted(os.listdir(path))[:remaining] if path.resolve() == path else []
                    remaining -= len(below)
                    waiting += [
                        path / part
                        for part in reversed(below)
                        if self._may_serve(part) and is_plain_path(part)
                    ]
                    if path != top:
                        yield name, status
                elif stat.S_ISLNK(status.st_mode):
                    target = self.resolve(name, name)
                    if not target.is_dir():
                        yield name, target.stat()
                elif stat.S_ISREG(status.st_mode):
                    yield name, status
            except (OSError, NotFound):
                continue  # removed since, or must not be served


def _open_below(root: Path, path: Path, uri: str) -> int:
    """Open a resolved path for reading, unless it has been replaced since it was resolved."""
    try:
        return (
            _open_stepwise(root, path.relative_to(root).parts)
            if _STEPWISE
            else _open_and_compare(path)
        )
    except (OSError, RuntimeError, ValueError):
        raise _missing(uri) from None


_STEPWISE = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


def _open_stepwise(root: Path, parts: tuple[str, ...]) -> int:
    # A resolved path has no links, so a link at any step was created since. A directory that is
    # held open cannot be replaced.
    directory_flags = (
        getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    )
    here = os.open(root, directory_flags)
    try:
        for part in parts[:-1]:
            below = os.open(part, directory_flags, dir_fd=here)
            os.close(here)
            here = below
        return os.open(parts[-1], _READ_FLAGS | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)


def _open_and_compare(path: Path) -> int:
    # On systems that cannot open a path step by step, the opened file must be the one that the
    # path, still without links, leads to now.
    descriptor = os.open(path, _READ_FLAGS)
    try:
        if path.resolve(strict=True) == path and os.path.samestat(
            os.fstat(descriptor), path.lstat()
        ):
            return descriptor
        raise OSError
    except BaseException:
        os.close(descriptor)
        raise


# --------------------------------------------------------------------------------------------------
# names


def is_plain_path(relative: str) -> bool:
    """Return whether a relative path stays below its base on every system, even if it is
    percent-decoded. An empty path is the base itself."""
    if not relative or len(relative) > _MAX_NAME_CHARS:
        return not relative
    for _ in range(_MAX_DECODINGS):
        if not all(_is_plain(part) for part in relative.split("/")):
            return False
        relative, before = unquote(relative), relative
        if relative == before:
            return True
    return False


def _is_plain(part: str) -> bool:
    """Return whether a part of a path is a plain name on every system.

    Windows drops trailing dots and spaces, reads `name:stream` as a stream and `C:` as a drive, and
    has device names in every directory. NUL ends a path, and a lone surrogate cannot be sent.
    """
    return (
        part.rstrip(" .") == part != ""
        and not _SPECIAL.search(part)
        and part.partition(".")[0].rstrip().upper() not in _DEVICES
    )


_SPECIAL = re.compile("[\\\\:\0\ud800-\udfff]")
_DEVICES = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"} | {
    f"{port}{number}" for port in ("COM", "LPT") for number in "0123456789¹²³"
}


def _missing(uri: str) -> NotFound:
    return NotFound(f"Resource not found: {_cut(uri)}", data={"uri": _cut(uri)})


def _cut(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "…"


# --------------------------------------------------------------------------------------------------
# resources


def file_resource(file: str | Path, uri: str | None) -> RegisterArguments:
    """Return the arguments that register a file as a resource."""
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"The file {path.absolute()} does not exist")
    file_uri = uri or path.resolve().as_uri()
    options = {
        "name": path.name,
        "mime_type": mime_of(path),
        "size": path.stat().st_size,
        "description": None,
    }

    def read() -> ResourceContents:
        return read_file(path, file_uri)

    return read, file_uri, options


def directory_resources(directory: Directory, uri: str) -> list[RegisterArguments]:
    """Return the arguments that register a directory as resources: a listing, and a template for
    its files."""
    if "{" in uri or ":" not in uri:
        raise ConfigError(
            f"{uri!r} cannot be the URI of a directory; use a scheme without variables, such as "
            "docs://"
        )
    base, name = _with_slash(uri), directory.name

    def read(path: str) -> ResourceContents:
        return directory.read(path, base + quote(path))

    listing = {"name": name, "mime_type": DIRECTORY, "description": f"The files in {name}"}
    template = {"name": f"{name}/…", "description": f"A file in {name}"}
    return [(partial(directory.read, "", base), base, listing), (read, base + "{+path}", template)]


def _with_slash(uri: str) -> str:
    return uri if uri.endswith("/") else uri + "/"


# --------------------------------------------------------------------------------------------------
# watching


def file_states(path: str | Path, uri: str) -> StateSource:
    """Create the source that watches one file."""

    def states() -> Iterator[tuple[str, Hashable]]:
        try:
            yield uri, _state(os.stat(path))
        except OSError:
            yield uri, None  # gone, perhaps only while it is being replaced

    return states


def directory_states(directory: Directory, uri: str) -> StateSource:
    """Create the source that watches all files in a directory, and the directory's listing."""
    base = _with_slash(uri)

    def states() -> Iterator[tuple[str, Hashable]]:
        found = [(base + quote(name), _state(stat)) for name, stat in directory.states()]
        yield base, tuple(uri for uri, _ in found)
        yield from found

    return states


def _state(stat: os.stat_result) -> Hashable:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class FileWatcher:
    """A poller for a server's watched files that calls `notify` with each URI that changed."""

    def __init__(self, notify: Callable[[str], None], limits: Limits) -> None:
        self._notify, self._limits = notify, limits
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[StateSource, dict[str, Hashable]]] = {}
        self._stop: threading.Event | None = None

    def add(self, name: str, source: StateSource) -> None:
        """Watch a source under a name; raise ConfigError if there are too many files."""
        with self._lock:
            room = self._limits.watched - sum(len(states) for _, states in self._seen.values())
            states = dict(islice(source(), room + 1))
            if len(states) > room:
                raise ConfigError(
                    f"Watching {name} would exceed the limit of {self._limits.watched} files "
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
