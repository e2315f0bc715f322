"""Which hosts are on this machine, which servers they have, and what is broken."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import config
from ..config import ServerConfig
from ..errors import ConfigError
from ..text import closest_name, quote
from .edit import find_entry, parse
from .files import read_text
from .hosts import HOSTS, HostApp, Machine, Scope


class HostFile(Struct, frozen=True, kw_only=True):
    """A file of a host, and its servers."""

    host: HostApp
    scope: Scope
    path: Path
    project: Path | None = None
    """The folder of the project, if the file belongs to one."""
    servers: dict[str, ServerConfig] = {}
    problems: dict[str, str] = {}
    """What is wrong with a server, by its name."""
    own: list[str] = []
    """Entries for parts of the host itself, which are not servers."""
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
                found.append(_read(host, scope, path, machine))
        if host.local and host.file(machine).exists():
            local = _read(host, "local", host.file(machine), machine)
            found += [local] if local.servers or local.problems else []
    return found


def describe_missing(host: HostApp, name: str, machine: Machine, scope: Scope) -> str:
    """Say that a file of a host has no such server, and which one may be meant.

    Args:
        host: The host.
        name: The name that was not found.
        machine: Where the files are.
        scope: The file in which it was not found.
    """
    names = {one.scope: {*one.servers, *one.problems, *one.own} for one in survey(machine, (host,))}
    message = f"{host.file(machine, scope)} has no server {quote(name)}"
    if other := next((one for one in names if name in names[one]), None):
        return f"{message} in the scope {scope}. Use --scope {other}."
    close = closest_name(name, names.get(scope, ()))
    hint = f"Did you mean {close}?" if close else "`dovetail hosts` lists the servers."
    return f"{message}. {hint}"


def _read(host: HostApp, scope: Scope, path: Path, machine: Machine) -> HostFile:
    file = HostFile(
        host=host, scope=scope, path=path, project=None if scope == "user" else machine.project
    )
    try:
        value = parse(read_text(path) or "", host.format)
        if scope == "local":
            value = find_entry(value, host.key_path(machine, scope, "")[:-2], {})
        entries = _find_entries(value, host)
        own = [name for name, entry in entries.items() if _is_own(entry, host)]
        others = {name: entry for name, entry in entries.items() if name not in own}
        servers = config.parse({**value, host.key: others}, str(path), path)
    except ConfigError as error:
        message = str(error) if str(path) in str(error) else f"{path}: {error}"
        return replace(file, error=message)
    is_shared = scope == "project"
    found = {name: _find_problem(servers[name], is_shared) for name in servers}
    problems = {name: problem for name, problem in found.items() if problem is not None}
    inputs = value.get("inputs")
    return replace(
        file,
        servers=dict(servers),
        problems={**problems, **servers.problems},
        own=own,
        inputs=inputs if isinstance(inputs, list) else [],
    )


def _find_entries(value: Any, host: HostApp) -> Mapping[str, Any]:
    """Return the entries of a file, as `install` would find them."""
    is_yaml = host.format == "yaml"  # in which a key without a value is an empty object
    if not isinstance(value, Mapping):
        raise ConfigError("The top level of the file is not an object, so it has no servers")
    found = value.get(host.key, {})
    if found is None and is_yaml:
        return {}
    if not isinstance(found, Mapping):
        raise ConfigError(f"{quote(host.key)} is not an object, so it has no servers")
    return found


def _is_own(entry: Any, host: HostApp) -> bool:
    return isinstance(entry, Mapping) and entry.get("type") in host.own_types


def _find_problem(server: ServerConfig, is_shared: bool) -> str | None:
    """Return why a host cannot start a server, as far as one can see without starting it. A file
    that is shared cannot have the path of a command."""
    command = server.command
    if command is None or "$" in command or "{" in command:
        return None
    if os.path.isabs(command):
        return None if os.access(command, os.X_OK) else f"{command} does not exist"
    if shutil.which(command) is None:
        return f"there is no command {command!r}"
    if is_shared or os.name == "nt":
        return None
    if shutil.which(command, path="/usr/bin:/bin") is None:
        return f"{command!r} is not in /usr/bin or /bin; hosts may not find it. Use its full path."
    return None
