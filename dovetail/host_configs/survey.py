"""Which hosts are on this machine, which servers they have, and what is broken."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from .. import config
from ..config import ServerConfig
from ..errors import ConfigError
from .edit import parse
from .files import read_text
from .hosts import HOSTS, HostApp, Machine, Scope

_VARIABLES = {
    "gemini-cli": re.compile(r"\$([A-Za-z_]\w*)"),
    "opencode": re.compile(r"\{env:(\w+)\}"),
}
"""Variables in a syntax that only one host has."""


class HostFile(Struct, frozen=True, kw_only=True):
    """A file of a host, and its servers."""

    host: HostApp
    scope: Scope
    path: Path
    servers: dict[str, ServerConfig] = {}
    problems: dict[str, str] = {}
    """What is wrong with a server, by its name."""
    inputs: list[Any] = []
    """The values that VS Code asks for."""
    error: str | None = None
    """Why the file cannot be read."""


def survey(machine: Machine, hosts: tuple[HostApp, ...] = HOSTS) -> list[HostFile]:
    """Read the files of the hosts that exist.

    Args:
        machine: Where the files are.
        hosts: The hosts.
    """
    found = []
    seen: set[Path] = set()
    for host in hosts:
        scopes: tuple[Scope, ...] = ("user", "project") if host.project else ("user",)
        for scope in scopes:
            path = host.file(machine, scope)
            if path.exists() and path not in seen:
                seen.add(path)
                found.append(_read(host, scope, path))
    return found


def _read(host: HostApp, scope: Scope, path: Path) -> HostFile:
    try:
        value = parse(read_text(path) or "", host.format)
        if not isinstance(value, Mapping) or host.key not in value:
            return HostFile(host=host, scope=scope, path=path)
        servers = config.parse(value, str(path), path)
    except ConfigError as error:
        return HostFile(host=host, scope=scope, path=path, error=str(error))
    problems = {name: problem for name in servers if (problem := _find_problem(servers[name]))}
    inputs = value.get("inputs")
    return HostFile(
        host=host,
        scope=scope,
        path=path,
        servers=dict(servers),
        problems={**problems, **servers.problems},
        inputs=inputs if isinstance(inputs, list) else [],
    )


def _find_problem(server: ServerConfig) -> str | None:
    """Return why a host cannot start a server, as far as one can see without starting it."""
    command = server.command
    if command is None or "$" in command or "{" in command:
        return None
    if os.path.isabs(command):
        return None if os.access(command, os.X_OK) else f"{command} does not exist"
    if shutil.which(command) is None:
        return f"there is no command {command!r}"
    if shutil.which(command, path="/usr/bin:/bin") is None and os.name != "nt":
        return f"{command!r} is not in /usr/bin or /bin; hosts may not find it. Use its full path."
    return None


def merge(files: list[HostFile]) -> dict[str, Any]:
    """Return one configuration with the servers of all files, each once. Names that two different
    servers share get the name of the host.

    Args:
        files: The files.
    """
    entries: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    for file in files:
        for name, server in file.servers.items():
            entry = _portable(config.to_entry(server), _VARIABLES.get(file.host.id))
            if entries.get(name, entry) != entry:
                name = f"{name}-{file.host.id}"
            entries.setdefault(name, entry)
        inputs |= {str(one.get("id")): one for one in file.inputs if isinstance(one, Mapping)}
    return {"mcpServers": entries, **({"inputs": list(inputs.values())} if inputs else {})}


def _portable(value: Any, variable: re.Pattern[str] | None) -> Any:
    """Return a value whose variables have the form that every file may use: `${NAME}`."""
    if variable is None:
        return value
    if isinstance(value, Mapping):
        return {key: _portable(one, variable) for key, one in value.items()}
    if isinstance(value, list):
        return [_portable(one, variable) for one in value]
    return variable.sub(r"${\1}", value) if isinstance(value, str) else value
