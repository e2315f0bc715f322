"""`dovetail install HOST SERVER`: add a server to the configuration of a host.

Before anything is written, the server is started as the host would start it: in an almost empty
environment, from the root folder. `--no-check` skips that.
"""

import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .output import bold, dim, print_error, print_json, print_line, print_text

if TYPE_CHECKING:
    from ..config import ServerConfig
    from ..host_configs.hosts import HostApp
    from ..host_configs.install import Plan


def add_install_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", help="the host; `dovetail hosts` lists them")
    parser.add_argument(
        "source",
        metavar="SERVER",
        nargs="?",
        help='a Python file, a URL, or a command such as "uvx some-server"',
    )
    parser.add_argument(
        "--gateway",
        metavar="FILE",
        help="add one entry that serves all servers of an mcp.json file",
    )
    parser.add_argument("--name", metavar="NAME", help="the name of the server in the host")
    add_scope_argument(parser)
    parser.add_argument(
        "--env",
        metavar="KEY[=VALUE]",
        type=_parse_variable,
        action="append",
        default=[],
        help="set an environment variable for the server; without a value, the entry names the "
        "variable if the host can do that, and otherwise you are asked for the value; repeatable",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--dry-run", action="store_true", help="print what would change, and change nothing"
    )
    only.add_argument("--print", action="store_true", help="print the entry, to paste it yourself")
    only.add_argument(
        "--link", action="store_true", help="print a link that adds the server with one click"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="do not start the server before it is added"
    )


def add_scope_argument(parser: ArgumentParser) -> None:
    """Add `--scope`."""
    parser.add_argument(
        "--scope",
        choices=("user", "project", "local"),
        default="user",
        help="the file for all your work, that of the project in this folder, or your own settings "
        "for this project, which Claude Code has (default: user)",
    )


def install(options: Namespace) -> None:
    """Add the server, or print what would be added."""
    from ..host_configs.hosts import find_host
    from ..host_configs.server_command import default_name

    host = find_host(options.host)
    if (options.source is None) == (options.gateway is None):
        raise ConfigError("Name a server (a file, a URL or a command), or --gateway FILE")
    name = options.name or ("gateway" if options.gateway else default_name(options.source))
    if options.link:
        _print_link(host, name, options)
        return
    server = _make_server(host, options)
    if options.print:
        _print_entry(host, name, server, options)
        return
    _install(host, name, server, options)


def _install(host: "HostApp", name: str, server: "ServerConfig", options: Namespace) -> None:
    from ..host_configs.hosts import Machine
    from ..host_configs.install import apply, plan_install
    from ..host_configs.running import is_running
    from .install_check import check_server

    plan = plan_install(
        host,
        name,
        server,
        machine=Machine.current(),
        scope=options.scope,
        is_running=is_running(host),
    )
    is_done = plan.is_needed and not options.dry_run
    if is_done and plan.must_close is not None:
        raise ConfigError(plan.must_close)
    is_checked = plan.is_needed and not options.no_check
    tools = check_server(server, host, source=options.source) if is_checked else None
    if plan.is_needed:
        _warn_of_values(plan, server, options)
    if is_done:
        apply(plan)
    if options.json:
        print_json(_document(plan, tools, options))
        return
    _print_change(plan, options)
    if tools is not None:
        print_line(dim(f"The server starts and has {_count(tools)}."))
    if is_done:
        print_line(host.after.format(title=host.title))


def _warn_of_values(plan: "Plan", server: "ServerConfig", options: Namespace) -> None:
    if not server.env:
        return
    names = ", ".join(server.env)
    shared = " Others see it if you share the project." if options.scope == "project" else ""
    print_error(f"{plan.file} will contain the value of {names}.{shared}")


def _print_change(plan: "Plan", options: Namespace) -> None:
    if not plan.is_needed:
        print_line(f"{plan.file} already has ", bold(plan.name), ". Nothing changed.")
        return
    verb = "replaced in" if plan.old is not None else "added to"
    print_plan(plan, f"would be {verb}" if options.dry_run else f"was {verb}", options)


def print_plan(plan: "Plan", what: str, options: Namespace) -> None:
    """Print what changes, or would change.

    Args:
        plan: The plan.
        what: What happens to the entry, such as "was added to".
        options: The options of the command.
    """
    print_line(bold(plan.name), f" {what} {plan.host.title}: {plan.file}")
    print_text(plan.difference + "\n")
    for one in plan.inputs:
        print_line(dim(f"{plan.host.title} asks for {one['description']} when it starts it."))
    if plan.deletes_file:
        doing = "would be deleted" if options.dry_run else "was deleted"
        print_line(dim(f"The file {doing}, because nothing else is in it."))
    if plan.must_close is not None:
        print_line(dim(plan.must_close))
    if plan.commands is not None:
        doing = "would be run" if options.dry_run else "was run"
        shown = shlex.join(plan.commands.steps[-1][:3])
        print_line(dim(f"`{shown} …` {doing}, because the host is running."))


def _document(plan: "Plan", tools: list[str] | None, options: Namespace) -> dict[str, object]:
    from ..host_configs.hiding import hide_values

    return {
        "host": plan.host.id,
        "file": str(plan.file),
        "name": plan.name,
        "entry": None if plan.entry is None else hide_values(plan.entry),
        "changed": plan.is_needed and not options.dry_run,
        "tools": tools,
    }


def _count(tools: list[str]) -> str:
    if not tools:
        return "no tools"
    names = ", ".join(tools[:5]) + (", …" if len(tools) > 5 else "")
    return f"{len(tools)} tool{'s' if len(tools) > 1 else ''}: {names}"


# the entry


def _make_server(host: "HostApp", options: Namespace) -> "ServerConfig":
    from pathlib import Path

    from ..host_configs.host_entry import can_reference
    from ..host_configs.server_command import gateway_command, parse_source

    if options.gateway:
        server = gateway_command(Path(options.gateway))
    else:
        server = parse_source(options.source, host)
    if options.env and server.url is not None:
        raise ConfigError("--env applies to servers that the host starts, but this is a URL")
    for name, value in options.env:
        if value is None and can_reference(host):
            server.env_vars.append(name)
        else:
            server.env[name] = _ask_for(name, host) if value is None else value
    return server


def _ask_for(name: str, host: "HostApp") -> str:
    """Ask for a value that the host's file has to hold."""
    from getpass import getpass

    print_error(
        f"{host.title} cannot name a variable, so its file will contain the value of {name}."
    )
    if not sys.stdin.isatty():
        raise ConfigError(f"There is no terminal to ask for {name}. Use --env {name}=VALUE.")
    return getpass(f"{name}: ")


def _parse_variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise ArgumentTypeError(f"{text!r} has no name; write KEY=VALUE or KEY")
    return name, value if equals else None


def _print_entry(host: "HostApp", name: str, server: "ServerConfig", options: Namespace) -> None:
    from ..host_configs.host_entry import to_entry
    from ..host_configs.hosts import Machine
    from ..host_configs.inputs import make_inputs
    from ..host_configs.install import render_entry

    entry = to_entry(server, host, name, scope=options.scope)
    if options.json:
        print_json(entry)
        return
    machine = Machine.current()
    print_error(f"For {host.title}: {host.file(machine, options.scope)}")
    if server.env:
        print_error(f"This contains the value of {', '.join(server.env)}.")
    inputs = make_inputs(name, server.env_vars) if host.shape.inputs else ()
    print_text(render_entry(host, host.key_path(machine, options.scope, name), entry, inputs))


def _print_link(host: "HostApp", name: str, options: Namespace) -> None:
    from ..host_configs.links import make_link
    from ..host_configs.server_command import published_command
    from .options import URL

    if options.gateway:
        raise ConfigError("A link would contain a path of this machine, so --gateway has none")
    if options.env:
        raise ConfigError("A link holds no variables, so --env cannot be used with --link")
    is_url = URL.fullmatch(options.source) is not None
    link = make_link(
        host,
        name,
        url=options.source if is_url else None,
        command=None if is_url else published_command(options.source),
    )
    if options.json:
        print_json({"link": link.url, "button": link.button})
        return
    print_line(link.url)
    print_line()
    print_line(dim("For a README:"))
    print_line(link.button)
