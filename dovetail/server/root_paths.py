"""Check whether a path is inside the roots that a client lists.

A root is a `file://` URI of a directory or of a single file; other URIs are not paths and are
ignored. The root and the path are both resolved first, including all links and `..`, so that no
indirect path leads outside the root. Use the path that `resolve` returns, not the original path,
which may lead elsewhere a moment later.

Roots tell a server where it should work. Roots do not protect anything: the operating system must
protect the files that a server must never touch.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..errors import ToolError
from ..net import is_local_file_host
from ..protocol.client_features import Root

if TYPE_CHECKING:
    from pathlib import Path

# A `?` or `#` is part of the path. Cutting it off would turn `/data#1` into `/data`, which contains
# more.
_FILE = re.compile(r"file:(?://([^/]*)|(?!//))(/.*)", re.IGNORECASE | re.DOTALL)
_DRIVE = re.compile(r"^/([A-Za-z])[:|](?:/|$)")


def is_inside(roots: Iterable[Root], path: "str | os.PathLike[str]") -> bool:
    """Return whether a path is one of the roots, or inside a directory that is a root."""
    return _resolve_inside(_root_paths(roots), path) is not None


def resolve(roots: Iterable[Root], path: "str | os.PathLike[str]") -> "Path":
    """Return the real path behind a path; raise ToolError if the real path is outside the roots."""
    from pathlib import Path

    allowed = list(_root_paths(roots))
    real = _resolve_inside(allowed, path)
    if real is None:
        hint = (
            f"use a path in {', '.join(allowed)}"
            if allowed
            else "the client has not listed any files or directories on this machine"
        )
        raise ToolError(f"{os.fspath(path)} is outside the client's roots; {hint}")
    return Path(real)


def local_path(uri: str, *, windows: bool = os.name == "nt") -> str | None:
    """Return the path of a `file:` URI on this machine; None if the URI has no such path."""
    from urllib.parse import unquote_to_bytes

    found = _FILE.fullmatch(uri)
    if found is None:
        return None
    path = os.fsdecode(unquote_to_bytes(found[2]))
    if windows:
        path = _DRIVE.sub(r"\1:/", path).replace("/", "\\")
    # Another host, or a share on one: even a lookup would reveal our identity to that host.
    is_remote = not is_local_file_host(found[1]) or path.startswith("\\\\")
    return None if is_remote else path


def _root_paths(roots: Iterable[Root]) -> Iterator[str]:
    """Yield the real paths of the roots that are on this machine."""
    paths = (local_path(root.uri) for root in roots)
    return (real for path in paths if path is not None and (real := _real_path(path)) is not None)


def _resolve_inside(roots: Iterable[str], path: "str | os.PathLike[str]") -> str | None:
    """Return the real path, if it is inside one of the roots."""
    real = _real_path(os.fspath(path))
    return None if real is None or not any(_contains(root, real) for root in roots) else real


def _real_path(path: str) -> str | None:
    try:
        return os.path.realpath(path)
    except (ValueError, OSError):  # a null character, or a missing drive
        return None


def _contains(root: str, path: str) -> bool:
    root, path = os.path.normcase(root), os.path.normcase(path)
    return path == root or (path.startswith(root.rstrip(os.sep) + os.sep) and os.path.isdir(root))
