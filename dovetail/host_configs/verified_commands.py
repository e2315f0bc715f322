"""Let a running host change its file, and check that it did.

A command may end before the host has written the file, or report success and write another file.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import ConfigError
from ..text import quote
from . import host_commands
from .edit import find_entry, parse
from .files import hold_lock, read_text
from .host_commands import HostCommands
from .hosts import HostApp, Scope
from .records import EntryRecord, digest_entry, read_records, record_install, write_records
from .splice import EditError

if TYPE_CHECKING:
    from .install import Plan

VERIFY_SECONDS = 5.0
"""How long to wait until a host has written what its command was told."""
_PAUSE_SECONDS = 0.1


def choose_way(
    host: HostApp,
    file: Path,
    scope: Scope,
    is_running: bool,
    find: Callable[[], HostCommands | str],
) -> tuple[HostCommands | None, str | None]:
    """Return the commands that change the file of a running host, or why it has to be closed; or
    neither, if the file can be edited. Hosts only read the file of a project.

    Args:
        host: The host.
        file: Its file.
        scope: The file that is meant.
        is_running: Whether the host runs.
        find: Returns the commands, or the reason why they cannot be used.
    """
    if not is_running or host.command is None or scope == "project":
        return None, None
    found = find()
    if isinstance(found, HostCommands):
        return found, None
    return None, (
        f"{host.title} is running and may write {file} at any time. {found} Close {host.title}, "
        "and run this command again."
    )


def run_commands(plan: "Plan", commands: HostCommands) -> None:
    """Let the host change its file, and remember the entry that it wrote.

    Args:
        plan: The plan.
        commands: The commands of the host.

    Raises:
        ConfigError: A command failed, or the file is not as planned afterwards.
    """
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


def _wait_until_written(plan: "Plan", program: str) -> None:
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


def _is_as_planned(plan: "Plan") -> bool:
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


def _record_commands(plan: "Plan") -> None:
    """Remember the entry that the host wrote, or forget the one that it removed."""
    text = read_text(plan.file) or ""
    entry = find_entry(parse(text, plan.host.format), plan.path)
    records = read_records()
    record = records.find(plan.file)
    if entry is not None:
        written = EntryRecord(plan.host.id, plan.path, digest_entry(entry))
        record = record_install(record, text, (), plan.host.format, written)
    elif record is not None:
        others = tuple(one for one in record.entries if one.path != plan.path)
        record = replace(record, entries=others) if others else None
    write_records(records.with_file(plan.file, record))
