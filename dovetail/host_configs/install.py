"""Add one entry to a host's file, and remove it again.

`plan_install` and `plan_uninstall` read the file and say what would change; `apply` does it. What a
`Change` shows never contains the values of variables or headers.
"""

from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..config import ServerConfig
from ..errors import ConfigError
from . import host_commands, records
from .edit import Edit, parse, remove_entry, set_entry
from .files import read_text, remove_file, replace_file
from .host_entry import to_entry
from .hosts import Host, Machine, Scope

HIDDEN = "********"


class Change(Struct, frozen=True, kw_only=True):
    """What is about to change in a host's file."""

    host: Host
    file: Path
    name: str
    entry: dict[str, Any] | None
    """The new entry; None if it is removed."""
    before: str | None
    """The text of the file; None if there is none."""
    edit: Edit
    difference: str
    """The lines that change, with the values of variables and headers hidden."""
    command: list[str] | None = None
    """The command of the host that makes the change instead."""
    inside: Path | None = None
    """The folder of the project, which a link must not leave."""

    @property
    def is_needed(self) -> bool:
        """Whether the file is not yet as it should be."""
        return self.edit.text != (self.before or "") or (self.entry is None and self.before is None)


def plan_install(
    host: Host,
    name: str,
    server: ServerConfig,
    *,
    machine: Machine,
    scope: Scope = "user",
    is_running: bool = False,
) -> Change:
    """Return what has to change so that a host has a server.

    Args:
        host: The host.
        name: The name of the entry.
        server: The server.
        machine: Where the files are.
        scope: The file of the user or of the project.
        is_running: Whether the host runs, so that its own command should make the change.

    Raises:
        ConfigError: The file cannot be read, or only this entry cannot be changed.
    """
    entry = to_entry(server, host, name, scope=scope)
    file = host.file(machine, scope)
    before = read_text(file)
    path = (host.key, name)
    edit = set_entry(before or "", host.format, path, entry)
    arguments = host_commands.add_arguments(host, name, server, entry, scope)
    if is_running and host.command is not None and arguments is None and edit.text != before:
        raise ConfigError(
            f"{host.title} is running and may write {file} at any time. Close it, and run this "
            "command again. Its own command is not used, because other users of this machine could "
            "see the values of variables and headers."
        )
    return Change(
        host=host,
        file=file,
        name=name,
        entry=entry,
        before=before,
        edit=edit,
        difference=_difference(host, before or "", path, entry),
        command=arguments if is_running else None,
        inside=machine.project if scope == "project" else None,
    )


def plan_uninstall(
    host: Host,
    name: str,
    *,
    machine: Machine,
    scope: Scope = "user",
    is_running: bool = False,
    force: bool = False,
) -> Change:
    """Return what has to change so that a host no longer has a server.

    Args:
        host: The host.
        name: The name of the entry.
        machine: Where the files are.
        scope: The file of the user or of the project.
        is_running: Whether the host runs, so that its own command should make the change.
        force: Whether to remove an entry that `install` did not write, or that changed since.

    Raises:
        ConfigError: There is no such entry, or `force` is needed.
    """
    file = host.file(machine, scope)
    before = read_text(file)
    path = (host.key, name)
    entry = _find_entry(before or "", host, name)
    if entry is None:
        raise ConfigError(f"{file} has no server {name!r}. `dovetail hosts` lists the servers.")
    record = records.find(host.id, file, name)
    if not force:
        records.require(record, entry, name=name, file=file)
    edit = records.undo(before or "", record) or remove_entry(before or "", host.format, path)
    return Change(
        host=host,
        file=file,
        name=name,
        entry=None,
        before=before,
        edit=edit,
        difference=_difference(host, before or "", path, None),
        command=host_commands.remove_arguments(host, name, scope) if is_running else None,
        inside=machine.project if scope == "project" else None,
    )


def apply(change: Change) -> None:
    """Make a change: write the file, or run the command of the host.

    Args:
        change: The change.

    Raises:
        ConfigError: The file cannot be written, or changed since it was read.
    """
    if change.command is not None:
        host_commands.run(change.command)
        has_entry = _find_entry(read_text(change.file) or "", change.host, change.name) is not None
        if has_entry != (change.entry is not None):
            raise ConfigError(
                f"`{change.host.command}` reported success, but {change.file} did not change"
            )
    elif change.entry is None and not change.edit.text:
        remove_file(change.file, change.before or "")
    else:
        replace_file(change.file, change.before, change.edit.text, inside=change.inside)
    if change.entry is None:
        records.forget(change.host.id, change.file, change.name)
        return
    edit = change.edit if change.command is None else None
    records.keep(
        change.host.id,
        change.file,
        change.name,
        change.entry
        if edit
        else _find_entry(read_text(change.file) or "", change.host, change.name),
        edit=edit,
        existed=change.before is not None,
    )


def find_entries(text: str, host: Host) -> dict[str, Any]:
    """Return the entries of a host's file, by name.

    Args:
        text: The text of the file.
        host: The host.
    """
    value = parse(text, host.format)
    entries = value.get(host.key) if isinstance(value, Mapping) else None
    return dict(entries) if isinstance(entries, Mapping) else {}


def _find_entry(text: str, host: Host, name: str) -> Any:
    return find_entries(text, host).get(name)


def _difference(host: Host, text: str, path: tuple[str, ...], entry: dict[str, Any] | None) -> str:
    """Return the lines that change. Neighbours are not shown, because they may hold secrets."""
    old = _find_entry(text, host, path[-1])
    if isinstance(old, Mapping):
        text = set_entry(text, host.format, path, hide_values(old)).text
    if entry is None:
        after = remove_entry(text, host.format, path).text
    else:
        after = set_entry(text, host.format, path, hide_values(entry)).text
    lines = unified_diff(text.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def hide_values(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without the values of its variables and headers.

    Args:
        entry: The entry, in the form of any host.
    """
    return {
        key: dict.fromkeys(value, HIDDEN)
        if isinstance(value, Mapping)
        and key in ("env", "envs", "environment", "headers", "http_headers")
        else value
        for key, value in entry.items()
    }
