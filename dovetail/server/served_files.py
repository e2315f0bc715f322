"""Files and directories as resources: the functions behind `server.add_file` and
`server.add_directory`."""

import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import ConfigError
from ..protocol.content import ResourceContents, TextResourceContents
from .files import Directory, file_uri, mime_of, read_file
from .watching import Source

Made = tuple[Callable[..., Any], str, dict[str, Any], Callable[[str], list[str]] | None]


def file_resource(
    given: str | Path, uri: str | None
) -> tuple[Callable[[], ResourceContents], str, dict[str, Any]]:
    """One file: its function, its URI, and what is listed of it."""
    path = Path(given)
    if not path.is_file():
        raise ConfigError(f"There is no file {path.absolute()}")
    place = uri or file_uri(path.resolve())
    about = {
        "name": path.name,
        "mime_type": mime_of(path),
        "size": path.stat().st_size,
        "description": None,
    }

    def read() -> ResourceContents:
        return read_file(path, place)

    return read, place, about


def directory_resources(given: str | Path, uri: str, hidden: bool) -> list[Made]:
    """A directory: itself, as a listing, and a template for all that lies in it."""
    folder = Path(given)
    if not folder.is_dir():
        raise ConfigError(f"There is no directory {folder.absolute()}")
    if "{" in uri or ":" not in uri:
        raise ConfigError(
            f"{uri!r} is no URI for a directory: it needs a scheme and no variables, such as "
            "docs://"
        )
    directory = Directory(folder, hidden=hidden)
    base = _base(uri)

    def listing() -> ResourceContents:
        lines = [base + quote(entry[0]) for entry in directory.list()]
        return TextResourceContents(uri=base, text="\n".join(lines), mime_type="inode/directory")

    def read(path: str) -> list[ResourceContents]:
        return directory.read(path, base + quote(path))

    def paths(value: str) -> list[str]:
        return [entry[0] for entry in directory.list()]

    name = folder.name or str(folder)
    return [
        (
            listing,
            base,
            {"name": name, "mime_type": "inode/directory", "description": f"What lies in {name}"},
            None,
        ),
        (read, base + "{+path}", {"name": f"{name}/…", "description": f"A file in {name}"}, paths),
    ]


def _base(uri: str) -> str:
    return uri if uri.endswith("/") else uri + "/"


# what changes when they do


def file_states(path: str | Path, uri: str) -> Source:
    """One file, to be watched."""

    def states() -> Iterator[tuple[str, Hashable]]:
        try:
            yield uri, _state(os.stat(path))
        except OSError:
            yield (
                uri,
                None,
            )  # gone, perhaps only for the moment in which it is exchanged for another

    return states


def directory_states(path: str | Path, uri: str, hidden: bool) -> Source:
    """All files in a directory, and their names as the state of the listing."""
    directory, base = Directory(Path(path), hidden=hidden), _base(uri)

    def states() -> Iterator[tuple[str, Hashable]]:
        found = [(base + quote(name), _state(about)) for name, about in directory.states()]
        yield base, tuple(uri for uri, _ in found)
        yield from found

    return states


def _state(about: os.stat_result) -> Hashable:
    return about.st_mtime_ns, about.st_size, about.st_ino
