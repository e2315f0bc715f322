"""Plan how a host gets a server or loses it, show that, and do it."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..config import ServerConfig
from ..errors import ConfigError
from ..text import quote
from . import entries, host_commands
from .difference import describe_change
from .edit import find_entry, parse, set_entry
from .files import hold_lock, read_text
from .hiding import hide_values
from .host_commands import HostCommands
from .host_entry import to_entry
from .hosts import HostApp, Machine, Scope
from .records import EntryRecord, digest_entry, read_records, record_install, write_records
from .splice import Edit, EditError, KeyPath

VERIFY_SECONDS = 5.0
"""How long to wait until a host has written what its command was told."""
_PAUSE_SECONDS = 0.1


class Plan(Struct, frozen=True, kw_only=True):
    """What is about to change in a host's file."""

    host: HostApp
    file: Path
    path: KeyPath
    """The keys that lead to the entry, of which the last one is its name."""
    entry: dict[str, Any] | None
    """The new entry; None if it is removed."""
    is_needed: bool
    """Whether the file is not yet as it should be."""
    old: Any = None
    """The entry that is replaced or removed; None if there is none."""
    deletes_file: bool = False
    """Whether the file is deleted, because `install` created it and nothing else is in it."""
    difference: str
    """The lines that are removed and added, without secrets."""
    commands: HostCommands | None = None
    """The commands of the host that make the change, if the host runs."""
    must_close: str | None = None
    """Why the host has to be closed first; None if it need not be."""
    folder: Path
    """The folder of the project."""
    inside: Path | None = None
    """The folder that a symbolic link must not leave."""
    force: bool = False

    @property
    def name(self) -> str:
        """The name of the entry."""
        return self.path[-1]


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
        ConfigError: The file cannot be read, or this entry cannot be changed alone. A note on the
            error has the entry.
    """
    entry = to_entry(server, host, name, scope=scope)
    file, path = host.file(machine, scope), (host.key, name)
    try:
        change = entries.plan_install(file, host.format, path, entry)
    except ConfigError as error:
        raise _with_paste(_name_file(error, file), host, path, entry) from None
    old = find_entry(parse(change.old or "", host.format), path)
    commands, must_close = _choose_way(
        host,
        file,
        scope,
        is_running and change.is_changed,
        lambda: host_commands.find_add_commands(host, name, server, entry, scope, old),
    )
    return Plan(
        host=host,
        file=file,
        path=path,
        entry=entry,
        is_needed=change.is_changed,
        old=old,
        difference=describe_change(file, host.format, path, change, old, entry),
        commands=commands,
        must_close=must_close,
        folder=machine.project,
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
    file, path = host.file(machine, scope), (host.key, name)
    try:
        change = entries.plan_uninstall(file, host.format, path, force=force)
    except EditError as error:
        raise _name_file(error, file) from None
    if not change.is_changed:
        raise ConfigError(
            f"{file} has no server {quote(name)}. `dovetail hosts` lists the servers."
        )
    old = find_entry(parse(change.old or "", host.format), path)
    commands, must_close = _choose_way(
        host,
        file,
        scope,
        is_running,
        lambda: host_commands.find_remove_commands(host, name, scope),
    )
    return Plan(
        host=host,
        file=file,
        path=path,
        entry=None,
        old=old,
        is_needed=True,
        deletes_file=change.new is None and commands is None,
        difference=describe_change(file, host.format, path, change, old, None),
        commands=commands,
        must_close=must_close,
        folder=machine.project,
        inside=machine.project if scope == "project" else None,
        force=force,
    )


def apply(plan: Plan) -> None:
    """Do what a plan says: change the file, or run the commands of the host.

    Args:
        plan: The plan.

    Raises:
        ConfigError: The host has to be closed first, the file cannot be written, or a command
            failed. If an entry was to be added to a file, a note on the error has the entry.
    """
    host, file = plan.host, plan.file
    if plan.must_close is not None:
        raise ConfigError(plan.must_close)
    if plan.commands is not None:
        _run_commands(plan, plan.commands)
    elif plan.entry is not None:
        try:
            entries.install_entry(
                file, host.format, plan.path, plan.entry, host=host.id, inside=plan.inside
            )
        except ConfigError as error:
            raise _with_paste(_name_file(error, file), host, plan.path, plan.entry) from None
    else:
        entries.uninstall_entry(file, host.format, plan.path, force=plan.force, inside=plan.inside)


# errors


def _name_file(error: ConfigError, file: Path) -> ConfigError:
    """Return an error that names the file, which an error about its text does not."""
    return EditError(f"{file}: {error}") if isinstance(error, EditError) else error


def _with_paste(
    error: ConfigError, host: HostApp, path: KeyPath, entry: dict[str, Any]
) -> ConfigError:
    """Add the entry to an error as a note, so that the user can add it by hand."""
    hidden = hide_values(entry)
    more = "" if hidden == entry else " Values are hidden here; `--print` shows them."
    with suppress(EditError):  # an entry that no text can hold
        text = set_entry("", host.format, path, hidden).text.rstrip()
        error.add_note(f"Nothing was written. To add the entry by hand, paste this.{more}\n{text}")
    return error


# a host that runs


def _choose_way(
    host: HostApp,
    file: Path,
    scope: Scope,
    is_running: bool,
    find: Callable[[], HostCommands | str],
) -> tuple[HostCommands | None, str | None]:
    """Return the commands that change the file of a running host, or why it has to be closed. The
    file of a project is edited in any case, because hosts only read it."""
    if not is_running or host.command is None or scope == "project":
        return None, None
    found = find()
    if isinstance(found, HostCommands):
        return found, None
    return None, (
        f"{host.title} is running and may write {file} at any time. {found} Close {host.title}, "
        "and run this command again."
    )


def _run_commands(plan: Plan, commands: HostCommands) -> None:
    """Let the host change its file, and remember the entry that it wrote."""
    first, *others = commands.steps
    host_commands.run(first, folder=plan.folder)
    try:
        for step in others:
            host_commands.run(step, folder=plan.folder)
        _wait_until_written(plan, first[0])
    except ConfigError:
        if commands.undo is not None:
            with suppress(ConfigError):
                host_commands.run(commands.undo, folder=plan.folder)
        raise
    with hold_lock():
        _record_commands(plan)


def _wait_until_written(plan: Plan, program: str) -> None:
    """Wait until the file is as planned. The command may end before the host has written it."""
    deadline = time.monotonic() + VERIFY_SECONDS
    while not _is_as_planned(plan):
        if time.monotonic() > deadline:
            state = "still has" if plan.entry is None else "does not have"
            raise ConfigError(
                f"`{Path(program).name}` reported success, but {plan.file} {state} the entry "
                f"{quote(plan.name)}. If {plan.host.title} uses a profile, the entry may be in its "
                "file. Otherwise close the host, and run this command again."
            )
        time.sleep(_PAUSE_SECONDS)


def _is_as_planned(plan: Plan) -> bool:
    """Return whether the file has the new entry. A host may add fields, or leave empty ones out."""
    try:
        found = find_entry(parse(read_text(plan.file) or "", plan.host.format), plan.path)
    except EditError:  # the host is writing it
        return False
    if plan.entry is None:
        return found is None
    if not isinstance(found, dict) or found == plan.old:
        return False
    return all(found.get(key) == value or not value for key, value in plan.entry.items())


def _record_commands(plan: Plan) -> None:
    """Remember the entry that the host wrote, or forget the one that it removed."""
    text = read_text(plan.file) or ""
    entry = find_entry(parse(text, plan.host.format), plan.path)
    records = read_records()
    record = records.find(plan.file)
    if entry is not None:
        written = EntryRecord(plan.host.id, plan.path, digest_entry(entry))
        record = record_install(record, text, Edit(text, ()), plan.host.format, written)
    elif record is not None:
        others = tuple(one for one in record.entries if one.path != plan.path)
        record = replace(record, entries=others) if others else None
    write_records(records.with_file(plan.file, record))
