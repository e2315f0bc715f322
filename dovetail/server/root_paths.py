"""Whether a path lies inside the roots that a client has named.

A root is a `file://` URI, of a directory or of a single file; roots of other kinds say nothing
about paths and are passed over. Both the root and the path are resolved first, links and `..` and
all, so that neither can lead out by a detour. Work with what `resolve` returns, not with the path
it was given: that one may lead elsewhere the next moment.

Roots are the client's word on where a server should keep to. They are no wall; what a server must
never touch, the operating system has to guard.
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

# A `?` or `#` is taken as part of the path: to cut it off would make `/data#1` into the larger
# `/data`.
_FILE = re.compile(r"file:(?://([^/]*)|(?!//))(/.*)", re.IGNORECASE | re.DOTALL)
_DRIVE = re.compile(r"^/([A-Za-z])[:|](?:/|$)")


def is_inside(roots: Iterable[Root], path: "str | os.PathLike[str]") -> bool:
    """Whether a path is one of the roots, or in a directory that is one."""
    return _found(_places(roots), path) is not None


def resolve(roots: Iterable[Root], path: "str | os.PathLike[str]") -> "Path":
    """The real path that a path leads to; ToolError where it leads outside of the roots."""
    from pathlib import Path

    places = list(_places(roots))
    real = _found(places, path)
    if real is None:
        only = (
            f"only {', '.join(places)} may be used"
            if places
            else "it has named none that are files here"
        )
        raise ToolError(f"{os.fspath(path)} is outside of the client's roots: {only}")
    return Path(real)


def local_path(uri: str, *, windows: bool = os.name == "nt") -> str | None:
    """The path that a `file:` URI means on this machine; None if it means none."""
    from urllib.parse import unquote_to_bytes

    found = _FILE.fullmatch(uri)
    if found is None:
        return None
    path = os.fsdecode(unquote_to_bytes(found[2]))
    if windows:
        path = _DRIVE.sub(r"\1:/", path).replace("/", "\\")
    # Another host, or a share of one: even to look there would tell it who we are.
    elsewhere = not is_local_file_host(found[1]) or path.startswith("\\\\")
    return None if elsewhere else path


def _places(roots: Iterable[Root]) -> Iterator[str]:
    """The real paths of those roots that have one."""
    paths = (local_path(root.uri) for root in roots)
    return (real for path in paths if path is not None and (real := _real(path)) is not None)


def _found(places: Iterable[str], path: "str | os.PathLike[str]") -> str | None:
    """The real path, if it is in one of the places."""
    real = _real(os.fspath(path))
    return None if real is None or not any(_holds(place, real) for place in places) else real


def _real(path: str) -> str | None:
    try:
        return os.path.realpath(path)
    except (ValueError, OSError):  # a null character; a drive that is not there
        return None


def _holds(place: str, path: str) -> bool:
    place, path = os.path.normcase(place), os.path.normcase(path)
    return path == place or (
        path.startswith(place.rstrip(os.sep) + os.sep) and os.path.isdir(place)
    )
