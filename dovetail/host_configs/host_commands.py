"""The commands of the hosts that can add a server themselves.

A running host may write its file at any time, so its own command is the safe way to change it.
Arguments of a command are visible to other users of the machine. So an entry with values of
variables or headers is never passed this way.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..config import ServerConfig
from ..errors import ConfigError
from .hiding import has_secrets
from .hosts import HostApp, Scope

SECONDS = 30.0


class HostCommands(NamedTuple):
    """The commands of a host that change an entry."""

    steps: tuple[list[str], ...]
    """The commands with their arguments, in order."""
    undo: list[str] | None = None
    """The command that brings the old entry back if a step after the first one fails."""


class _HostCommand(NamedTuple):
    """The arguments that add and remove a server."""

    add: Callable[[str, dict[str, Any], Scope], list[str]]
    remove: Callable[[str, Scope], list[str]] | None
    """None if the command cannot remove a server."""
    removes_first: bool
    """Whether the command refuses to add a server whose name exists."""
    takes_references: bool
    """Whether an entry that names variables can be added."""


def find_add_commands(
    host: HostApp,
    name: str,
    server: ServerConfig,
    entry: dict[str, Any],
    scope: Scope,
    old: Any = None,
) -> HostCommands | str:
    """Return the commands that add a server, or the reason why they cannot be used.

    Args:
        host: The host, which has a command.
        name: The name of the entry.
        server: The server.
        entry: The same in the form of the host.
        scope: The file that is meant.
        old: The entry that is replaced; None if there is none.
    """
    known = _COMMANDS[host.id]
    if server.env or server.headers or (known.removes_first and has_secrets(old)):
        return (
            f"The arguments of `{host.command}` would show values of variables or headers to other "
            "users of this machine."
        )
    if server.env_vars and not known.takes_references:
        return f"`{host.command}` cannot add an entry that names variables."
    program = _find_program(host)
    if program is None:
        return _no_program(host)
    add = [program, *known.add(name, entry, scope)]
    if old is None or not known.removes_first or known.remove is None:
        return HostCommands((add,))
    undo = [program, *known.add(name, old, scope)] if isinstance(old, dict) else None
    return HostCommands(([program, *known.remove(name, scope)], add), undo)


def find_remove_commands(host: HostApp, name: str, scope: Scope) -> HostCommands | str:
    """Return the commands that remove a server, or the reason why they cannot be used.

    Args:
        host: The host, which has a command.
        name: The name of the entry.
        scope: The file that is meant.
    """
    known = _COMMANDS[host.id]
    if known.remove is None:
        return f"`{host.command}` cannot remove a server."
    program = _find_program(host)
    if program is None:
        return _no_program(host)
    return HostCommands(([program, *known.remove(name, scope)],))


def run(arguments: list[str], *, folder: Path | None = None) -> None:
    """Run a command of a host.

    Args:
        arguments: The command with its arguments.
        folder: The folder to run it in; by default, the current one.

    Raises:
        ConfigError: The command failed. The message contains what it printed.
    """
    shown = " ".join([Path(arguments[0]).name, *arguments[1:3]])
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            cwd=folder,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"`{shown}` failed: {_describe(error)}") from None
    if done.returncode:
        printed = (done.stderr or done.stdout).strip().splitlines()
        raise ConfigError(f"`{shown}` failed: {printed[-1] if printed else done.returncode}")


def _describe(error: Exception) -> str:
    """Return why a command failed, without its arguments."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it did not end within {error.timeout:g} s"
    return str(error)


def _find_program(host: HostApp) -> str | None:
    """Return the path of the host's command. A batch file is not used, because Windows passes its
    arguments through a shell, which changes JSON."""
    found = shutil.which(host.command or "")
    return None if found is None or found.lower().endswith((".cmd", ".bat")) else found


def _no_program(host: HostApp) -> str:
    return f"`{host.command}` is not on the PATH, or is a batch file, so it cannot be used."


def _add_claude(name: str, entry: dict[str, Any], scope: Scope) -> list[str]:
    return ["mcp", "add-json", "--scope", scope, name, json.dumps(entry)]


def _remove_claude(name: str, scope: Scope) -> list[str]:
    return ["mcp", "remove", "--scope", scope, name]


def _add_code(name: str, entry: dict[str, Any], _: Scope) -> list[str]:
    return ["--add-mcp", json.dumps({"name": name, **entry})]


def _add_codex(name: str, entry: dict[str, Any], _: Scope) -> list[str]:
    if "url" in entry:
        return ["mcp", "add", name, "--url", entry["url"]]
    return ["mcp", "add", name, "--", entry["command"], *entry.get("args", [])]


def _remove_codex(name: str, _: Scope) -> list[str]:
    return ["mcp", "remove", name]


_COMMANDS = {
    "claude-code": _HostCommand(_add_claude, _remove_claude, True, True),
    "vscode": _HostCommand(_add_code, None, False, False),
    "codex": _HostCommand(_add_codex, _remove_codex, False, False),
}
