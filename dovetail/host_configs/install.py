"""Plan how a host gets a server or loses it, show that, and do it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..config import ServerConfig
from ..errors import ConfigError
from . import entries, host_commands
from .difference import describe_change
from .edit import find_entry, parse, set_entry
from .files import find_backup
from .hiding import hide_values
from .host_commands import HostCommands
from .host_entry import to_entry
from .hosts import HostApp, Machine, Scope
from .inputs import add_inputs, make_inputs
from .splice import EditError, KeyPath
from .survey import describe_missing
from .verified_commands import choose_way, run_commands


class Plan(Struct, frozen=True, kw_only=True):
    """What is about to change in a host's file."""

    host: HostApp
    file: Path
    path: KeyPath
    """The keys that lead to the entry, of which the last one is its name."""
    entry: dict[str, Any] | None
    """The new entry; None if it is removed."""
    inputs: tuple[dict[str, Any], ...] = ()
    """The inputs that the new entry names."""
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

    @property
    def backup(self) -> Path:
        """Where the file is kept as it was before the first change, if it existed then."""
        return find_backup(self.file, self.inside)


def plan_install(
    host: HostApp,
    name: str,
    server: ServerConfig,
    *,
    machine: Machine,
    scope: Scope = "user",
    is_running: bool = False,
    force: bool = False,
) -> Plan:
    """Return what has to change so that a host has a server.

    Args:
        host: The host.
        name: The name of the entry.
        server: The server.
        machine: Where the files are.
        scope: The file of the user or of the project, or the user's settings for the project.
        is_running: Whether the host runs, so that its own command should make the change.
        force: Whether to replace an entry that `install` did not write, or that changed since.

    Raises:
        ConfigError: The file cannot be read, or this entry cannot be changed alone. A note on the
            error has the entry.
        EntryExists: An entry has this name, and needs `force`.
    """
    entry = to_entry(server, host, name, scope=scope)
    inputs = make_inputs(name, server.env_vars) if host.shape.inputs else ()
    file, path = host.file(machine, scope), host.key_path(machine, scope, name)
    try:
        change = entries.plan_install(file, host.format, path, entry, inputs=inputs, force=force)
    except entries.EntryExists:
        raise
    except ConfigError as error:
        raise _with_paste(_name_file(error, file), host, path, entry, inputs) from None
    old = find_entry(parse(change.old or "", host.format), path)
    commands, must_close = choose_way(
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
        inputs=inputs,
        is_needed=change.is_changed,
        old=old,
        difference=describe_change(file, host.format, path, change, old, entry),
        commands=commands,
        must_close=must_close,
        folder=machine.project,
        inside=machine.project if scope == "project" else None,
        force=force,
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
        scope: The file of the user or of the project, or the user's settings for the project.
        is_running: Whether the host runs, so that its own command should make the change.
        force: Whether to remove an entry that `install` did not write, or that changed since.

    Raises:
        ConfigError: There is no such entry, or it needs `force`.
    """
    file, path = host.file(machine, scope), host.key_path(machine, scope, name)
    try:
        change = entries.plan_uninstall(file, host.format, path, force=force)
    except EditError as error:
        raise _name_file(error, file) from None
    if not change.is_changed:
        raise ConfigError(describe_missing(host, name, machine, scope))
    old = find_entry(parse(change.old or "", host.format), path)
    commands, must_close = choose_way(
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
        run_commands(plan, plan.commands)
    elif plan.entry is not None:
        try:
            entries.install_entry(
                file,
                host.format,
                plan.path,
                plan.entry,
                host=host.id,
                inputs=plan.inputs,
                force=plan.force,
                inside=plan.inside,
            )
        except entries.EntryExists:
            raise
        except ConfigError as error:
            error = _name_file(error, file)
            raise _with_paste(error, host, plan.path, plan.entry, plan.inputs) from None
    else:
        entries.uninstall_entry(file, host.format, plan.path, force=plan.force, inside=plan.inside)


# errors


def _name_file(error: ConfigError, file: Path) -> ConfigError:
    """Return an error that names the file, which an error about its text does not."""
    return EditError(f"{file}: {error}") if isinstance(error, EditError) else error


def render_entry(
    host: HostApp, path: KeyPath, entry: dict[str, Any], inputs: Sequence[dict[str, Any]] = ()
) -> str:
    """Return the text of a file that has one entry.

    Args:
        host: The host.
        path: The keys that lead to the entry.
        entry: The entry.
        inputs: The inputs that the entry names.

    Raises:
        EditError: The format of the host cannot represent the entry.
    """
    text = set_entry("", host.format, path, entry).text
    return add_inputs(text, inputs)[-1].text if inputs else text


def _with_paste(
    error: ConfigError,
    host: HostApp,
    path: KeyPath,
    entry: dict[str, Any],
    inputs: Sequence[dict[str, Any]],
) -> ConfigError:
    """Add the entry to an error as a note, so that the user can add it by hand."""
    hidden = hide_values(entry)
    more = "" if hidden == entry else " Values are hidden here; `--print` shows them."
    advice = "To add the entry by hand, paste this."
    if isinstance(error, EditError):
        advice = (
            "Correct the file, and run this command again. Or add the entry by hand: paste this."
        )
    with suppress(EditError):  # an entry that no text can hold
        text = render_entry(host, path, hidden, inputs).rstrip()
        error.add_note(f"Nothing was written. {advice}{more}\n{text}")
    return error
