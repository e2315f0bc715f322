"""The commands of the hosts that can add a server themselves.

A running host may write its file at any time, so its own command is the safe way to change it.
Arguments of a command are visible to other users of the machine. So an entry with values of
variables or headers is never passed this way.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

from ..config import ServerConfig
from ..errors import ConfigError
from .hosts import HostApp, Scope

SECONDS = 30.0


class _HostCommand(NamedTuple):
    """The arguments that add and remove a server. `remove` is None if the command cannot."""

    add: Callable[[str, ServerConfig, dict[str, Any], Scope], list[str]]
    remove: Callable[[str, Scope], list[str]] | None
    scopes: tuple[Scope, ...] = ("user",)


def add_arguments(
    host: HostApp, name: str, server: ServerConfig, entry: dict[str, Any], scope: Scope
) -> list[str] | None:
    """Return the command that adds a server, with its arguments. None if the host has none, or if
    the entry holds values that other users of the machine must not see.

    Args:
        host: The host.
        name: The name of the entry.
        server: The server.
        entry: The same in the form of the host.
        scope: The file of the user or of the project.
    """
    known = _COMMANDS.get(host.id)
    if known is None or scope not in known.scopes or _holds_values(server):
        return None
    return _with_path(host, known.add(name, server, entry, scope))


def remove_arguments(host: HostApp, name: str, scope: Scope) -> list[str] | None:
    """Return the command that removes a server, with its arguments. None if the host has none.

    Args:
        host: The host.
        name: The name of the entry.
        scope: The file of the user or of the project.
    """
    known = _COMMANDS.get(host.id)
    if known is None or known.remove is None or scope not in known.scopes:
        return None
    return _with_path(host, known.remove(name, scope))


def run(arguments: list[str]) -> None:
    """Run a command of a host.

    Args:
        arguments: The command with its arguments.

    Raises:
        ConfigError: The command failed. The message contains what it printed.
    """
    shown = " ".join(arguments[:3])
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"`{shown}` failed: {error}") from None
    if done.returncode:
        printed = (done.stderr or done.stdout).strip().splitlines()
        raise ConfigError(f"`{shown}` failed: {printed[-1] if printed else done.returncode}")


def _holds_values(server: ServerConfig) -> bool:
    """Whether an entry has variables or headers, which the commands cannot pass on secretly."""
    return bool(server.env or server.env_vars or server.headers)


def _with_path(host: HostApp, arguments: list[str]) -> list[str] | None:
    found = shutil.which(host.command or "")
    return None if found is None else [found, *arguments]


def _add_claude(name: str, _: ServerConfig, entry: dict[str, Any], scope: Scope) -> list[str]:
    return ["mcp", "add-json", "--scope", scope, name, json.dumps(entry)]


def _remove_claude(name: str, scope: Scope) -> list[str]:
    return ["mcp", "remove", "--scope", scope, name]


def _add_code(name: str, _: ServerConfig, entry: dict[str, Any], scope: Scope) -> list[str]:
    return ["--add-mcp", json.dumps({"name": name, **entry})]


def _add_codex(name: str, server: ServerConfig, _: dict[str, Any], scope: Scope) -> list[str]:
    if server.url is not None:
        return ["mcp", "add", name, "--url", server.url]
    return ["mcp", "add", name, "--", server.command or "", *server.args]


def _remove_codex(name: str, scope: Scope) -> list[str]:
    return ["mcp", "remove", name]


_COMMANDS = {
    "claude-code": _HostCommand(_add_claude, _remove_claude, ("user", "project")),
    "vscode": _HostCommand(_add_code, None),
    "codex": _HostCommand(_add_codex, _remove_codex),
}
