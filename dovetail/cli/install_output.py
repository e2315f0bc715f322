"""What `dovetail install` and `uninstall` print."""

import os
import shlex
from argparse import Namespace
from typing import TYPE_CHECKING

from ..text import join_names
from .output import bold, dim, print_error, print_line, print_text

if TYPE_CHECKING:
    from ..config import ServerConfig
    from ..host_configs.hosts import HostApp
    from ..host_configs.install import Plan

INSTALL_GUIDE = "docs/guides/install.md"
FAILURES_GUIDE = "docs/guides/not-showing-up.md"


def warn_of_values(plan: "Plan", server: "ServerConfig", options: Namespace) -> None:
    """Warn of what the file will contain: values of variables, and paths if it is shared."""
    is_shared = options.scope == "project"
    if server.env:
        shared = " Others see it if you share the project." if is_shared else ""
        print_error(f"{plan.file} will contain {name_values(server)}.{shared}")
    if is_shared and any(os.path.isabs(one) for one in (server.command or "", *server.args)):
        print_error(
            f"{plan.file} will contain paths of this machine, which other machines do not have. To "
            'share the project, use a published package ("uvx NAME") or a URL.'
        )


def warn_of_absence(host: "HostApp") -> None:
    """Warn that there are no signs of the host on this machine."""
    print_error(
        f"{host.title} was not found on this machine. It will use the entry when you install it."
    )


def name_values(server: "ServerConfig") -> str:
    """Name the variables whose values an entry contains."""
    return f"the value{'s' if len(server.env) > 1 else ''} of {join_names(server.env)}"


def print_change(plan: "Plan", options: Namespace) -> None:
    """Print what changed, or would change, or that nothing did."""
    if not plan.is_needed:
        print_line(f"{plan.file} already has ", bold(plan.name), ". Nothing changed.")
        print_line(dim(f"If {plan.host.title} does not show it, see {FAILURES_GUIDE}."))
        return
    verb = "replaced in" if plan.old is not None else "added to"
    print_plan(plan, f"would be {verb}" if options.dry_run else f"was {verb}", options)
    if plan.old is not None and plan.backup.exists():
        print_line(dim(f"The file as it was before the first change: {plan.backup}"))


def print_plan(plan: "Plan", what: str, options: Namespace) -> None:
    """Print what changes, or would change.

    Args:
        plan: The plan.
        what: What happens to the entry, such as "was added to".
        options: The options of the command.
    """
    print_line(bold(plan.name), f" {what} {plan.host.title}: {plan.file}")
    print_text(plan.difference + "\n")
    if plan.inputs:
        names = join_names(one["id"].removeprefix(f"{plan.name}-") for one in plan.inputs)
        print_line(dim(f"{plan.host.title} asks for {names} when it starts {plan.name}."))
    if plan.deletes_file:
        doing = "would be deleted" if options.dry_run else "was deleted"
        print_line(dim(f"The file {doing}, because nothing else is in it."))
    if plan.must_close is not None:
        print_line(dim(plan.must_close))
    if plan.commands is not None:
        doing = "would be run" if options.dry_run else "was run"
        shown = shlex.join(plan.commands.steps[-1][:3])
        print_line(dim(f"`{shown} …` {doing}, because the host is running."))


def make_document(plan: "Plan", tools: list[str] | None, options: Namespace) -> dict[str, object]:
    """Return what `--json` prints."""
    from ..host_configs.hiding import hide_values

    return {
        "host": plan.host.id,
        "file": str(plan.file),
        "name": plan.name,
        "entry": None if plan.entry is None else hide_values(plan.entry),
        "changed": plan.is_needed and not options.dry_run,
        "would_change": plan.is_needed,
        "tools": tools,
    }


def count_tools(tools: list[str]) -> str:
    """Return the number of tools and the names of the first ones."""
    if not tools:
        return "no tools"
    names = ", ".join(tools[:5]) + (", …" if len(tools) > 5 else "")
    return f"{len(tools)} tool{'s' if len(tools) > 1 else ''}: {names}"
