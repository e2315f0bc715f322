"""Files and directories as resources: from a name to a path, from a path to contents.

A name comes from a client and is not trusted. It passes three gates, and each would do on its own
most of the time:

1. The name is judged as text, in the strictest reading of any system (`_plain`): nothing absolute,
   no `..`, no backslash, no drive, device or stream, also where it is percent-encoded, and encoded
   again.
2. The path is resolved, with all links followed; it must still lie below the root, under a name
   that passes the first gate too. Only files and directories count: a pipe or a device is never
   opened.
3. The file is opened in a way that does not trust the second gate, since a link may have been put
   there in between: step by step from the root, where each step refuses links (`_open_below`).

Whoever fails hears the same: there is no such file. No error says where the root is.
"""

import codecs
import os
import re
import stat
from binascii import b2a_base64
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path, PurePath, PureWindowsPath
from typing import Final, TypeAlias

from ..errors import ConfigError, InvalidParams, NotFound, TooLarge
from ..limits import MIB
from ..net import is_local_file_host
from ..protocol.content import BlobResourceContents, ResourceContents, TextResourceContents

LIMIT: Final = 64 * MIB
"""How large a file may be: in base64 it must still fit into a message."""
DIRECTORY: Final = "inode/directory"
"""The type of a directory."""
_BYTES: Final = "application/octet-stream"
Entry: TypeAlias = tuple[str, int, str]
"""A file of a directory: its path from there, with slashes; its size; its type."""
Found: TypeAlias = tuple[str, Path, os.stat_result]
"""What lies in a directory: its path from there; where it is; what the system says of it."""
# Within a class that has a method `list`, these cannot be spelled out.
Entries: TypeAlias = list[Entry]
Contents: TypeAlias = list[ResourceContents]

_LOOKED_AT: Final = 100_000
"""Directory entries that a listing looks at, whether it lists them or not."""
_NAME: Final = 4096
"""How long the name of a file may be, in characters."""
_DECODINGS: Final = 4
"""How often a name is decoded in search of something harmful. What still changes after that is up
to no good."""


# --------------------------------------------------------------------------------------------------
# files


def read_file(
    path: Path, uri: str, mime_type: str | None = None, limit: int = LIMIT
) -> ResourceContents:
    """What a file holds, under this URI: text where it is UTF-8 without NUL, else bytes. The path
    is trusted."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _missing(uri)
        descriptor = os.open(path, _READING)
    except (OSError, ValueError):
        raise _missing(uri) from None
    return _contents(descriptor, path.name, uri, mime_type, limit)


def mime_of(path: Path) -> str:
    """The type of a file by its name, else by how it begins; also that of a directory."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return DIRECTORY
        known = known_type(path.name)
        if known or not stat.S_ISREG(mode):
            return known or _BYTES
        with os.fdopen(os.open(path, _READING), "rb") as file:
            head = file.read(4096)
        # The head of a longer file may end amid a character.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < 4096)
        return _BYTES if b"\0" in head else "text/plain"
    except (OSError, ValueError):
        return known_type(path.name) or _BYTES


# Without O_NONBLOCK a pipe that takes the place of a file would hold up the reader for good.
_READING: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)


def _contents(
    descriptor: int, name: str, uri: str, mime_type: str | None, limit: int
) -> ResourceContents:
    return contents_of(_data(descriptor, uri, limit), name, uri, mime_type)


def _data(descriptor: int, uri: str, limit: int) -> bytes:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise _missing(uri)
    with os.fdopen(descriptor, "rb") as file:
        # The size alone is not to be trusted: the file may grow, and some of the system's say they
        # have none.
        data = file.read(limit + 1) if about.st_size <= limit else b""
    if max(about.st_size, len(data)) > limit:
        raise TooLarge(
            f"{_cut(uri)} is larger than {limit:,} bytes, the most that is served of a file"
        )
    return data


def contents_of(data: bytes, name: str, uri: str, mime_type: str | None = None) -> ResourceContents:
    """What a file of this name holds, under this URI: text where it is UTF-8 without NUL, else
    bytes."""
    kind = mime_type or known_type(name)
    text = _text(data)
    if text is None:
        return BlobResourceContents(
            uri=uri, mime_type=kind or _BYTES, blob=b2a_base64(data, newline=False).decode()
        )
    return TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=text)


def _text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


# What Python's table lacks, or what it takes for something else.
_TYPES = {
    ".c": "text/x-c",
    ".cfg": "text/plain",
    ".cpp": "text/x-c++",
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
    ".md": "text/markdown",
    ".mjs": "text/javascript",
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
    """The type of a file by its name, where that tells it."""
    return _types().get(PurePath(name).suffix.lower())


@cache
def _types() -> dict[str, str]:
    from mimetypes import MimeTypes

    # Python's own table; not that of the system, which differs from machine to machine.
    return {**MimeTypes(()).types_map[True], **_TYPES}


# --------------------------------------------------------------------------------------------------
# directories


class Directory:
    """The files below a root that fit a pattern; names that begin with a dot are left out unless
    `hidden`."""

    def __init__(
        self,
        root: Path,
        *,
        pattern: str = "**/*",
        hidden: bool = False,
        most: int = 10_000,
        limit: int = LIMIT,
    ) -> None:
        if not Path(root).is_dir():
            raise ConfigError(f"There is no directory {Path(root).absolute()}")
        self._root = Path(root).resolve()
        self._pattern = pattern.split("/")
        self._hidden = hidden
        self._most = most
        self._limit = limit

    def list(self) -> Entries:
        """The files, in the order of their paths; the first `most` of them. Links to directories
        are not followed."""
        return [*islice(self._files(self._root), self._most)]

    def states(self) -> Iterator[tuple[str, os.stat_result]]:
        """The same files, each with what the system says of it now."""
        return ((name, about) for name, _, about in islice(self._regular(self._root), self._most))

    def paths(self) -> Iterator[str]:
        """Their paths, and those of the directories, with a slash behind them."""
        found = islice(self._found(self._root), self._most)
        return (f"{name}/" if stat.S_ISDIR(about.st_mode) else name for name, _, about in found)

    def read(self, relative: str, uri: str) -> Contents:
        """What the file of this name holds; for a directory the URIs of the files in it, a line
        each."""
        path = self._resolve(relative, uri)
        if not path.is_dir():
            return [
                _contents(_open_below(self._root, path, uri), path.name, uri, None, self._limit)
            ]
        from urllib.parse import quote

        names = [
            (self._root / name).relative_to(path)
            for name, _, _ in islice(self._files(path), self._most)
        ]
        base = uri if uri.endswith("/") else uri + "/"
        lines = [base + quote(name.as_posix()) for name in names]
        return [TextResourceContents(uri=uri, mime_type=DIRECTORY, text="\n".join(lines))]

    def data(self, relative: str, uri: str, limit: int | None = None) -> bytes:
        """The bytes of the file of this name; NotFound for a directory."""
        path = self._resolve(relative, uri)
        if path.is_dir():
            raise _missing(uri)
        return _data(
            _open_below(self._root, path, uri), uri, self._limit if limit is None else limit
        )

    def resolve(self, relative: str) -> Path:
        """The file or directory of this name; NotFound where there is none, or none that may be
        seen."""
        return self._resolve(relative, relative)

    def _resolve(self, relative: str, uri: str) -> Path:
        try:
            if not plain_path(relative):
                raise ValueError
            path = self._root.joinpath(relative).resolve(strict=True)
            parts = path.relative_to(self._root).parts
            mode = path.stat().st_mode
        except (OSError, RuntimeError, ValueError):
            raise _missing(uri) from None
        # What a link leads to must itself be something that may be seen.
        names = [parts, tuple(relative.split("/")) if relative else ()]
        file = stat.S_ISREG(mode) and all(self._fits(name) for name in names)
        if not (file or stat.S_ISDIR(mode)) or not all(self._shows(name) for name in names):
            raise _missing(uri)
        return path

    def _shows(self, parts: tuple[str, ...]) -> bool:
        return all(_plain(part) and (self._hidden or not part.startswith(".")) for part in parts)

    def _fits(self, parts: tuple[str, ...]) -> bool:
        return _matches(parts, self._pattern)

    def _files(self, top: Path) -> Iterator[Entry]:
        found = self._regular(top)
        return (
            (name, about.st_size, known_type(path.name) or mime_of(path))
            for name, path, about in found
        )

    def _regular(self, top: Path) -> Iterator[Found]:
        return (found for found in self._found(top) if stat.S_ISREG(found[2].st_mode))

    def _found(self, top: Path) -> Iterator[Found]:
        waiting = [top]
        left = _LOOKED_AT
        while waiting:
            path = waiting.pop()
            name = path.relative_to(self._root)
            try:
                about = path.lstat()
                if stat.S_ISDIR(about.st_mode):
                    # Unequal: a junction, or a link that was put there just now.
                    names = sorted(os.listdir(path))[:left] if path.resolve() == path else []
                    left -= len(names)
                    shown = [
                        below for below in names if self._shows((below,)) and plain_path(below)
                    ]
                    waiting += [path / below for below in reversed(shown)]
                    if path != top:
                        yield name.as_posix(), path, about
                elif stat.S_ISLNK(about.st_mode):
                    target = self.resolve(name.as_posix())
                    if not target.is_dir():
                        yield name.as_posix(), target, target.stat()
                elif stat.S_ISREG(about.st_mode) and self._fits(name.parts):
                    yield name.as_posix(), path, about
            except (OSError, NotFound):
                continue  # gone since, or nobody's to see


def _open_below(root: Path, path: Path, uri: str) -> int:
    """Open a resolved path for reading, unless it has turned into something else since it was
    resolved."""
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
    # A resolved path has no links, so a link at any step was put there since. A directory that is
    # held open cannot be exchanged for another.
    passing = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open(root, passing)
    try:
        for part in parts[:-1]:
            further = os.open(part, passing, dir_fd=here)
            os.close(here)
            here = further
        return os.open(parts[-1], _READING | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)


def _open_and_compare(path: Path) -> int:
    # Where there is no opening by steps: what was opened must be what the path, still without
    # links, leads to now.
    descriptor = os.open(path, _READING)
    try:
        if path.resolve(strict=True) == path and os.path.samestat(
            os.fstat(descriptor), path.lstat()
        ):
            return descriptor
        raise OSError
    except BaseException:
        os.close(descriptor)
        raise


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a pattern, whose `**` stands for any number of directories."""
    from fnmatch import fnmatchcase

    def reached(places: set[int]) -> set[int]:
        # A `**` may stand for none.
        for place in range(len(pattern)):
            if place in places and pattern[place] == "**":
                places.add(place + 1)
        return places

    places = reached({0})
    for part in parts:
        stay = {place for place in places if pattern[place : place + 1] == ["**"]}
        step = {
            place + 1
            for place in places - stay
            if place < len(pattern) and fnmatchcase(part, pattern[place])
        }
        places = reached(stay | step)
    return len(pattern) in places


# --------------------------------------------------------------------------------------------------
# names


def plain_path(relative: str) -> bool:
    """Whether a name stays below where it starts, on any system, also if it is decoded; "" is the
    start itself."""
    from urllib.parse import unquote

    if not relative or len(relative) > _NAME:
        return not relative
    for _ in range(_DECODINGS):
        if not all(_plain(part) for part in relative.split("/")):
            return False
        relative, before = unquote(relative), relative
        if relative == before:
            return True
    return False


def _plain(part: str) -> bool:
    """Whether a part of a path names what it seems to name, on any system.

    Windows drops dots and spaces at the end, reads `name:stream` as a stream, `C:` as a drive, and
    has devices in every directory. NUL ends a path; half a surrogate pair cannot be sent.
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
# file URIs


def file_uri(path: PurePath) -> str:
    """The `file:` URI of a path, of this system or, with a PureWindowsPath, of that one."""
    from urllib.parse import quote

    if isinstance(path, Path):
        path = path.absolute()
    if not path.is_absolute():
        raise ConfigError(f"{path} is not absolute, so it has no URI")
    if not isinstance(path, PureWindowsPath):
        return "file://" + quote(os.fsencode(path))
    drive, rest = path.drive.replace("\\", "/"), quote(path.as_posix()[len(path.drive) :])
    return f"file:///{drive}{rest}" if drive.endswith(":") else f"file:{quote(drive)}{rest}"


def path_of(uri: str) -> Path:
    """The path that a `file:` URI names on this system; InvalidParams if it names none."""
    return Path(_path_text(uri, windows=os.name == "nt"))


def _path_text(uri: str, windows: bool) -> str:
    from urllib.parse import unquote, unquote_to_bytes

    parsed = _FILE_URI.fullmatch(uri)
    if parsed is None:
        raise InvalidParams(
            f"{_cut(uri)!r} is not a URI of a file, such as file:///{'C:/' * windows}x"
        )
    host, path = parsed[1] or "", parsed[2] or parsed[3]
    try:
        decoded = unquote(path, errors="strict") if windows else os.fsdecode(unquote_to_bytes(path))
    except UnicodeDecodeError:
        decoded = "\0"
    if "\0" in decoded or decoded.count("/") != path.count("/") or (windows and "\\" in decoded):
        raise InvalidParams(f"{_cut(uri)!r} does not name a file")
    if is_local_file_host(host):
        if not windows:
            return decoded
        if re.match("/[A-Za-z][:|](/|$)", decoded):
            return f"{decoded[1]}:{decoded[3:] or '/'}"
        raise InvalidParams(f"{_cut(uri)!r} names no drive")
    if not windows:
        raise InvalidParams(f"{_cut(uri)!r} names a file of another machine, {_cut(host)}")
    return f"//{host}{decoded}"


_FILE_URI = re.compile("file:(?://([^/?#]*)(/[^?#]*)|(/(?!/)[^?#]*))", re.IGNORECASE)
