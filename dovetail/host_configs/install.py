"""Plan how a host gets a server or loses it, show that, and do it.

What a plan shows never contains the values of variables or headers, nor other entries of the file.
"""

from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..config import ServerConfig
from ..errors import ConfigError
from . import entries, host_commands
from .edit import find_entry, parse, remove_entry, set_entry
from .files import hold_lock, read_text
from .host_entry import to_entry
from .hosts import HostApp, Machine, Scope
from .records import EntryRecord, digest_entry, read_records, record_install, write_records
from .splice import Edit, EditError

HIDDEN = "********"
_HIDING = ("env", "envs", "environment", "headers", "http_headers")


class Plan(Struct, frozen=True, kw_only=True):
    """What is about to change in a host's file."""

    host: HostApp
    file: Path
    name: str
    entry: dict[str, Any] | None
    """The new entry; None if it is removed."""
    is_needed: bool
    """Whether the file is not yet as it should be."""
    difference: str
    """The lines that change, with the values of variables and headers hidden."""
    command: list[str] | None = None
    """The command of the host that makes the change, if the host runs."""
    inside: Path | None = None
    """The folder of the project, which a symbolic link must not leave."""
    force: bool = False

    @property
    def path(self) -> tuple[str, str]:
        """The keys that lead to the entry."""
        return (self.host.key, self.name)


def plan_install(
    host: HostApp,
    name: str,
    server: ServerConfig,
    *,
    machine: Machine,
    scope: Scope = "user",
    is_running: bool = False,
) -> Plan:
    """Return what has to change so that a host has a server.

    Args:
        host: The host.
        name: The name of the entry.
        server: The server.
        machine: Where the files are.
        scope: The file of the user or of the project.
        is_running: Whether the host runs, so that its own command should make the change.

    Raises:
        ConfigError: The file cannot be read, this entry cannot be changed alone, or the host has to
            be closed first.
    """
    entry = to_entry(server, host, name, scope=scope)
    file = host.file(machine, scope)
    try:
        change = entries.plan_install(file, host.format, (host.key, name), entry)
    except EditError as error:
        raise EditError(f"{file}: {error}") from None
    command = host_commands.add_arguments(host, name, server, entry, scope) if is_running else None
    if is_running and host.command is not None and command is None and change.is_changed:
        raise ConfigError(
            f"{host.title} is running and may write {file} at any time. Close it, and run this "
            f"command again. (`{host.command}` cannot be used: it is not on the PATH, or other "
            "users of this machine could see values of variables in its arguments.)"
        )
    return Plan(
        host=host,
        file=file,
        name=name,
        entry=entry,
        is_needed=change.is_changed,
        difference=_difference(host, change.old or "", name, entry),
        command=command,
        inside=machine.project if scope == "project" else None,
    )


def plan_uninstall(
    host: HostApp,
    name: str,
    *,
    machine: Machine,
    scope: Scope = "user",
    is_running: bool = False,
    force: bool = False,
) -> Plan:
    """Return what has to change so that a host no longer has a server.

    Args:
        host: The host.
        name: The name of the entry.
        machine: Where the files are.
        scope: The file of the user or of the project.
        is_running: Whether the host runs, so that its own command should make the change.
        force: Whether to remove an entry that `install` did not write, or that changed since.

    Raises:
        ConfigError: There is no such entry, or it needs `force`.
    """
    file = host.file(machine, scope)
    try:
        change = entries.plan_uninstall(file, host.format, (host.key, name), force=force)
    except EditError as error:
        raise EditError(f"{file}: {error}") from None
    if not change.is_changed:
        raise ConfigError(f"{file} has no server {name!r}. `dovetail hosts` lists the servers.")
    return Plan(
        host=host,
        file=file,
        name=name,
        entry=None,
        is_needed=True,
        difference=_difference(host, change.old or "", name, None),
        command=host_commands.remove_arguments(host, name, scope) if is_running else None,
        inside=machine.project if scope == "project" else None,
        force=force,
    )


def apply(plan: Plan) -> None:
    """Do what a plan says: change the file, or run the command of the host.

    Args:
        plan: The plan.

    Raises:
        ConfigError: The file cannot be written, or the command failed.
    """
    host, file = plan.host, plan.file
    if plan.command is not None:
        _run_command(plan, plan.command)
    elif plan.entry is not None:
        entries.install_entry(
            file, host.format, plan.path, plan.entry, host=host.id, inside=plan.inside
        )
    else:
        entries.uninstall_entry(file, host.format, plan.path, force=plan.force, inside=plan.inside)


def _run_command(plan: Plan, command: list[str]) -> None:
    """Let the host change its file, and remember the entry that it wrote."""
    host_commands.run(command)
    with hold_lock():
        text = read_text(plan.file) or ""
        entry = find_entry(parse(text, plan.host.format), plan.path)
        if (entry is None) != (plan.entry is None):
            raise ConfigError(f"`{command[0]}` reported success, but {plan.file} did not change")
        records = read_records()
        record = records.find(plan.file)
        if entry is not None:
            written = EntryRecord(plan.host.id, plan.path, digest_entry(entry))
            record = record_install(record, text, Edit(text, ()), written)
        elif record is not None:
            others = tuple(one for one in record.entries if one.path != plan.path)
            record = replace(record, entries=others) if others else None
        write_records(records.with_file(plan.file, record))


def _difference(host: HostApp, text: str, name: str, entry: Mapping[str, Any] | None) -> str:
    """Return the lines that change. Neighbours are not shown, because they may hold secrets."""
    path = (host.key, name)
    old = find_entry(parse(text, host.format), path)
    if isinstance(old, dict):
        text = set_entry(text, host.format, path, hide_values(old)).text
    if entry is None:
        after = remove_entry(text, host.format, path).text
    else:
        after = set_entry(text, host.format, path, hide_values(entry)).text
    lines = unified_diff(text.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def hide_values(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without the values of its variables and headers. References such as `${KEY}`
    stay.

    Args:
        entry: The entry, in the form of any host.
    """
    return {
        key: {name: _hide(one) for name, one in value.items()}
        if isinstance(value, Mapping) and key in _HIDING
        else value
        for key, value in entry.items()
    }


def _hide(value: Any) -> Any:
    is_reference = isinstance(value, str) and value.startswith(("${", "{env:")) and value[-1] == "}"
    return value if is_reference else HIDDEN
