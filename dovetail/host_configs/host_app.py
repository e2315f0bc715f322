"""What Dovetail knows about a host: where its files are, and what an entry looks like.

The files are a pure function of the system, the environment and the home folder (`Machine`), so the
paths of each system are tested everywhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ..errors import ConfigError
from .machine import Machine

Format = Literal["json", "toml", "yaml"]
Scope = Literal["user", "project", "local"]
"""The user's file; the file of a project; or the part of the user's file for one project."""


class EntryShape(Struct, frozen=True, kw_only=True):
    """What a host calls the fields of an entry. `{name}` in a constant is the server's name."""

    command: str = "command"
    args: str | None = "args"
    """None if the command is a list that includes its arguments."""
    env: str = "env"
    url: str | None = "url"
    """None if the host starts commands only."""
    headers: str = "headers"
    with_command: Mapping[str, Any] = {}
    """Fields that every entry with a command has."""
    with_url: Mapping[str, Any] = {}
    """Fields that every entry with a URL has."""
    in_user_file: Mapping[str, Any] = {}
    """Fields that every entry of the user's file has."""
    reference: str | None = None
    """How a value names an environment variable, such as `${{{}}}`. `{name}` is the server's name.
    None if the host cannot."""
    inputs: bool = False
    """Whether a reference names an element of the list `inputs`, which asks for the value."""
    names: str | None = None
    """The field that lists the names of variables to pass on, if the host has one."""


class HostApp(Struct, frozen=True, kw_only=True):
    """A host: an application that uses MCP servers."""

    id: str
    """Its name on the command line."""
    title: str
    user: tuple[str, ...]
    """Where the user's file may be: the first that exists, or the first."""
    windows: tuple[str, ...] = ()
    """The same on Windows, if it differs."""
    project: tuple[str, ...] = ()
    """Where the file of a project may be."""
    local: tuple[str, ...] = ()
    """The keys in the user's file that lead to the settings of one project, if the host has those.
    `{project}` is the folder of the project."""
    format: Format = "json"
    key: str = "mcpServers"
    shape: EntryShape = EntryShape()
    command: str | None = None
    """Its own command, which can add a server."""
    own_types: tuple[str, ...] = ()
    """The values of `type` in entries for parts of the host itself, which are not servers."""
    processes: tuple[str, ...] = ()
    """The names of its processes, to see whether it runs."""
    after: str = ""
    """What the user has to do before the host shows the server."""
    in_project: str = ""
    """What is also needed if the server is in the file of a project."""

    def candidates(self, machine: Machine, scope: Scope = "user") -> list[Path]:
        """Return the files that the host may use, the preferred one first.

        Raises:
            ConfigError: The host does not have this scope.
        """
        if scope == "local" and not self.local:
            raise ConfigError(f"{self.title} has no local scope. Use --scope user.")
        if scope == "project":
            if not self.project:
                raise ConfigError(f"{self.title} has no file for projects. Use --scope user.")
            return [machine.project / path for path in self.project]
        templates = (self.windows if machine.system == "win32" else ()) or self.user
        folders = machine.folders()
        found: list[Path] = []
        for template in templates:
            path = Path(template.format(**folders))
            found += _expand(path) if "*" in template else [path]
        return found

    def file(self, machine: Machine, scope: Scope = "user") -> Path:
        """Return the file that the host uses: the first that exists, or the preferred one."""
        candidates = self.candidates(machine, scope)
        return next((path for path in candidates if path.exists()), candidates[0])

    def key_path(self, machine: Machine, scope: Scope, name: str) -> tuple[str, ...]:
        """Return the keys that lead to an entry, of which the last one is its name.

        Args:
            machine: Where the files are.
            scope: The file that is meant.
            name: The name of the entry.
        """
        keys = self.local if scope == "local" else ()
        project = str(machine.project)
        return (*(project if key == "{project}" else key for key in keys), self.key, name)

    def is_installed(self, machine: Machine) -> bool:
        """Whether there are signs of the host on this machine: its file, or the folder of it."""
        return any(
            path.exists() or (path.parent != machine.home and path.parent.is_dir())
            for path in self.candidates(machine)
        )


def _expand(pattern: Path) -> list[Path]:
    """Return the paths whose folder with a wildcard exists. The file itself may be missing."""
    at = next(number for number, part in enumerate(pattern.parts) if "*" in part)
    base, rest = Path(*pattern.parts[:at]), pattern.parts[at + 1 :]
    return [Path(one, *rest) for one in sorted(base.glob(pattern.parts[at])) if one.is_dir()]
