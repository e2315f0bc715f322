"""Files and directories as resources: from a name to a path, from a path to contents.

A name comes from a client and is not trusted. It passes three checks, each of which is enough most
of the time:

1. The name is checked as text, by the strictest rules of any system (`_is_plain`): nothing
   absolute, no `..`, no backslash, no drive, device or stream, even if it is percent-encoded, once
   or several times.
2. The path is resolved, with all links followed. It must still be below the root, and its name must
   pass the first check too. Only files and directories are served: a pipe or a device is never
   opened.
3. The file is opened in a way that does not rely on the second check, because a link may have been
   created in between: step by step from the root, and each step refuses links (`_open_below`).

The error is always the same: there is no such file. No error says where the root is.
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

MAX_FILE_BYTES: Final = 64 * MIB
"""The largest file that is served: in Base64 it must still fit into a message."""
DIRECTORY: Final = "inode/directory"
"""The MIME type of a directory."""
_BYTES: Final = "application/octet-stream"
FileEntry: TypeAlias = tuple[str, int, str]
"""A file in a directory: its relative path, with slashes; its size; its MIME type."""
FoundPath: TypeAlias = tuple[str, Path, os.stat_result]
"""Something in a directory: its relative path; its path; its status."""
# These cannot be spelled out within a class that has a method `list`.
FileEntries: TypeAlias = list[FileEntry]
Contents: TypeAlias = list[ResourceContents]

_MAX_SCANNED: Final = 100_000
"""How many directory entries a listing looks at, whether it lists them or not."""
_MAX_NAME_CHARS: Final = 4096
_MAX_DECODINGS: Final = 4
"""How often a name is percent-decoded to find something harmful. A name that still changes after
that is refused."""


# --------------------------------------------------------------------------------------------------
# files


def read_file(
    path: Path, uri: str, mime_type: str | None = None, limit: int = MAX_FILE_BYTES
) -> ResourceContents:
    """Read a file: text if it is UTF-8 without NUL, else bytes. The path is trusted."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _missing(uri)
        descriptor = os.open(path, _READ_FLAGS)
    except (OSError, ValueError):
        raise _missing(uri) from None
    return _read_contents(descriptor, path.name, uri, mime_type, limit)


def mime_of(path: Path) -> str:
    """Return the MIME type of a file or directory, by its name or else by its first bytes."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return DIRECTORY
        known = known_type(path.name)
        if known or not stat.S_ISREG(mode):
            return known or _BYTES
        with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
            head = file.read(4096)
        # The head of a longer file may end in the middle of a character.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < 4096)
        return _BYTES if b"\0" in head else "text/plain"
    except (OSError, ValueError):
        return known_type(path.name) or _BYTES


# Without O_NONBLOCK, a pipe that replaces the file would block the reader forever.
_READ_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)


def _read_contents(
    descriptor: int, name: str, uri: str, mime_type: str | None, limit: int
) -> ResourceContents:
    return contents_of(_read_bytes(descriptor, uri, limit), name, uri, mime_type)


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
            f"{_cut(uri)} is larger than {limit:,} bytes, the largest file that is served"
        )
    return data


def contents_of(data: bytes, name: str, uri: str, mime_type: str | None = None) -> ResourceContents:
    """Make the contents for the bytes of a file: text if they are UTF-8 without NUL, else bytes."""
    kind = mime_type or known_type(name)
    text = _decode_text(data)
    if text is None:
        return BlobResourceContents(
            uri=uri, mime_type=kind or _BYTES, blob=b2a_base64(data, newline=False).decode()
        )
    return TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=text)


def _decode_text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


# Types that Python's table lacks or has wrong.
_MIME_TYPES = {
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
    """Return the MIME type of a file by its name, if the name tells it."""
    return _all_mime_types().get(PurePath(name).suffix.lower())


@cache
def _all_mime_types() -> dict[str, str]:
    from mimetypes import MimeTypes

    # Python's own table, because that of the system differs from machine to machine.
    return {**MimeTypes(()).types_map[True], **_MIME_TYPES}


# --------------------------------------------------------------------------------------------------
# directories


class Directory:
    """The files below a root that match a pattern. Names that begin with a dot are left out unless
    `hidden` is set. At most `max_files` are listed."""

    def __init__(
        self,
        root: Path,
        *,
        pattern: str = "**/*",
        hidden: bool = False,
        max_files: int = 10_000,
        limit: int = MAX_FILE_BYTES,
    ) -> None:
        if not Path(root).is_dir():
            raise ConfigError(f"There is no directory {Path(root).absolute()}")
        self._root = Path(root).resolve()
        self._pattern = pattern.split("/")
        self._hidden = hidden
        self._max_files = max_files
        self._limit = limit

    def list(self) -> FileEntries:
        """Return the files, sorted by path. Links to directories are not followed."""
        return [*islice(self._files(self._root), self._max_files)]

    def states(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the same files, each with its current status."""
        return (
            (name, status) for name, _, status in islice(self._regular(self._root), self._max_files)
        )

    def paths(self) -> Iterator[str]:
        """Yield the paths of the files, and those of directories with a slash at the end."""
        found = islice(self._walk(self._root), self._max_files)
        return (f"{name}/" if stat.S_ISDIR(status.st_mode) else name for name, _, status in found)

    def read(self, relative: str, uri: str) -> Contents:
        """Read a file; for a directory, return the URIs of the files in it, one per line."""
        path = self._resolve(relative, uri)
        if not path.is_dir():
            return [
                _read_contents(
                    _open_below(self._root, path, uri), path.name, uri, None, self._limit
                )
            ]
        from urllib.parse import quote

        names = [
            (self._root / name).relative_to(path)
            for name, _, _ in islice(self._files(path), self._max_files)
        ]
        base = uri if uri.endswith("/") else uri + "/"
        lines = [base + quote(name.as_posix()) for name in names]
        return [TextResourceContents(uri=uri, mime_type=DIRECTORY, text="\n".join(lines))]

    def data(self, relative: str, uri: str, limit: int | None = None) -> bytes:
        """Return the bytes of a file; NotFound for a directory."""
        path = self._resolve(relative, uri)
        if path.is_dir():
            raise _missing(uri)
        return _read_bytes(
            _open_below(self._root, path, uri), uri, self._limit if limit is None else limit
        )

    def resolve(self, relative: str) -> Path:
        """Return the path of a file or directory; NotFound if there is none, or none that may be
        served."""
        return self._resolve(relative, relative)

    def _resolve(self, relative: str, uri: str) -> Path:
        try:
            if not is_plain_path(relative):
                raise ValueError
            path = self._root.joinpath(relative).resolve(strict=True)
            parts = path.relative_to(self._root).parts
            mode = path.stat().st_mode
        except (OSError, RuntimeError, ValueError):
            raise _missing(uri) from None
        # The target of a link must be something that may be served too.
        names = [parts, tuple(relative.split("/")) if relative else ()]
        is_file = stat.S_ISREG(mode) and all(self._fits(name) for name in names)
        if not (is_file or stat.S_ISDIR(mode)) or not all(self._shows(name) for name in names):
            raise _missing(uri)
        return path

    def _shows(self, parts: tuple[str, ...]) -> bool:
        return all(_is_plain(part) and (self._hidden or not part.startswith(".")) for part in parts)

    def _fits(self, parts: tuple[str, ...]) -> bool:
        return _matches(parts, self._pattern)

    def _files(self, top: Path) -> Iterator[FileEntry]:
        return (
            (name, status.st_size, known_type(path.name) or mime_of(path))
            for name, path, status in self._regular(top)
        )

    def _regular(self, top: Path) -> Iterator[FoundPath]:
        return (found for found in self._walk(top) if stat.S_ISREG(found[2].st_mode))

    def _walk(self, top: Path) -> Iterator[FoundPath]:
        waiting = [top]
        remaining = _MAX_SCANNED
        while waiting:
            path = waiting.pop()
            name = path.relative_to(self._root)
            try:
                status = path.lstat()
                if stat.S_ISDIR(status.st_mode):
                    # They differ for a junction, or for a link that was created just now.
                    names = sorted(os.listdir(path))[:remaining] if path.resolve() == path else []
                    remaining -= len(names)
                    shown = [
                        below for below in names if self._shows((below,)) and is_plain_path(below)
                    ]
                    waiting += [path / below for below in reversed(shown)]
                    if path != top:
                        yield name.as_posix(), path, status
                elif stat.S_ISLNK(status.st_mode):
                    target = self.resolve(name.as_posix())
                    if not target.is_dir():
                        yield name.as_posix(), target, target.stat()
                elif stat.S_ISREG(status.st_mode) and self._fits(name.parts):
                    yield name.as_posix(), path, status
            except (OSError, NotFound):
                continue  # removed since, or must not be served


def _open_below(root: Path, path: Path, uri: str) -> int:
    """Open a resolved path for reading, unless it was replaced since it was resolved."""
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
    # On systems that cannot open step by step: the opened file must be the one that the path, still
    # without links, leads to now.
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


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path matches a pattern, whose `**` matches any number of directories."""
    from fnmatch import fnmatchcase

    def skip_stars(places: set[int]) -> set[int]:
        # A `**` may match no directory at all.
        for place in range(len(pattern)):
            if place in places and pattern[place] == "**":
                places.add(place + 1)
        return places

    places = skip_stars({0})
    for part in parts:
        stay = {place for place in places if pattern[place : place + 1] == ["**"]}
        step = {
            place + 1
            for place in places - stay
            if place < len(pattern) and fnmatchcase(part, pattern[place])
        }
        places = skip_stars(stay | step)
    return len(pattern) in places


# --------------------------------------------------------------------------------------------------
# names


def is_plain_path(relative: str) -> bool:
    """Whether a relative path stays below its start on any system, even if it is percent-decoded.
    "" is the start itself."""
    from urllib.parse import unquote

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
    """Whether a part of a path means what it says, on any system.

    Windows drops dots and spaces at the end, reads `name:stream` as a stream and `C:` as a drive,
    and has devices in every directory. NUL ends a path, and a lone surrogate cannot be sent.
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
    """Return the `file:` URI of a path of this system, or of Windows for a PureWindowsPath."""
    from urllib.parse import quote

    if isinstance(path, Path):
        path = path.absolute()
    if not path.is_absolute():
        raise ConfigError(f"{path} is not an absolute path, so it has no URI")
    if not isinstance(path, PureWindowsPath):
        return "file://" + quote(os.fsencode(path))
    drive, rest = path.drive.replace("\\", "/"), quote(path.as_posix()[len(path.drive) :])
    return f"file:///{drive}{rest}" if drive.endswith(":") else f"file:{quote(drive)}{rest}"


def path_of(uri: str) -> Path:
    """Return the path of a `file:` URI on this system; InvalidParams if it has none."""
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
        raise InvalidParams(f"{_cut(uri)!r} has no drive")
    if not windows:
        raise InvalidParams(f"{_cut(uri)!r} is a file on another machine, {_cut(host)}")
    return f"//{host}{decoded}"


_FILE_URI = re.compile("file:(?://([^/?#]*)(/[^?#]*)|(/(?!/)[^?#]*))", re.IGNORECASE)
