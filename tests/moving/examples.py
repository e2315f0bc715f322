"""The examples of the other libraries, from their source distributions. Nothing of them is part of
this repository.

An example is a file, or a package that runs with `python -m`. A client program, a test or a helper
is not a server and is left out by name; whatever does not start on its own library is left out with
the reason.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .environments import unpack_sdist


class Library(NamedTuple):
    """A library with examples."""

    key: str
    requirement: str
    """The source distribution."""
    extras: tuple[str, ...]
    """What its examples need: in the environment of both runs."""
    folders: tuple[str, ...]
    """Where its examples are."""
    roots: tuple[str, ...] = ()
    """The folders that examples import from."""


LIBRARIES = (
    Library(
        "sdk1",
        "mcp==1.30.0",
        ("mcp[cli]==1.30.0", "click", "httpx", "pydantic-settings", "Pillow", "pyautogui"),
        ("examples/fastmcp", "examples/servers", "examples/snippets/servers"),
        ("examples/snippets",),
    ),
    Library(
        "sdk2",
        "mcp==2.3.0",
        ("mcp[cli]==2.3.0", "click", "httpx", "pydantic-settings", "Pillow", "pyautogui"),
        (
            "examples/mcpserver",
            "examples/servers",
            "examples/snippets/servers",
            "examples/stories",
            "docs_src",
        ),
        (".", "examples", "examples/snippets"),
    ),
    Library(
        "fastmcp",
        "fastmcp==4.1.2",
        ("fastmcp[apps,tasks,code-mode]==4.1.2", "pydantic-settings", "Pillow", "pyautogui"),
        ("examples",),
        ("examples/smart_home/src", "examples/atproto_mcp/src"),
    ),
)
NOT_SERVERS = re.compile(r"(^|/)(test_|tests/|clients?[_./]|_|setup_db|scripts/|demo\.py)|_client")
"""The paths of client programs, tests and helpers."""
IS_SERVER = re.compile(
    r"\b(FastMCP|MCPServer|Server)\(|\bfrom_openapi\(|from_fastapi\(|mcp\.run\(|as_proxy\("
)


class Example(NamedTuple):
    """A server example."""

    library: Library
    name: str
    path: Path

    @property
    def search_path(self) -> list[Path]:
        """The folders that it imports from."""
        root = unpack_sdist(self.library.requirement)
        own = [self.path.parent] if self.path.is_dir() else []
        return [*own, *(root / folder for folder in self.library.roots)]


def find_examples(library: Library) -> Iterator[Example]:
    """Return the server examples of a library.

    Args:
        library: The library.
    """
    root = unpack_sdist(library.requirement)
    packages: set[Path] = set()
    for folder in library.folders:
        for path in sorted((root / folder).rglob("*.py")):
            name = str(path.relative_to(root))
            package = _package_of(path)
            if package is not None:
                if package not in packages:
                    packages.add(package)
                    yield Example(library, str(package.relative_to(root)), package)
            elif not NOT_SERVERS.search(name) and IS_SERVER.search(path.read_text("utf-8")):
                yield Example(library, name, path)


def _package_of(path: Path) -> Path | None:
    """Return the package that a file is part of, if it runs with `python -m`."""
    return next((each for each in path.parents if (each / "__main__.py").exists()), None)
