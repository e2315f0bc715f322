"""`dovetail install HOST SERVER`: add a server to the configuration of a host.

Before anything is written, the server is started as the host would start it: in an almost empty
environment, from the root folder. `--no-check` skips that.
"""

import re
import shlex
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..text import join_names
from .install_output import (
    INSTALL_GUIDE,
    count_tools,
    make_document,
    name_values,
    print_change,
    warn_of_absence,
    warn_of_values,
)
from .output import dim, print_error, print_json, print_line, print_text

if TYPE_CHECKING:
    from ..config import ServerConfig
    from ..host_configs.hosts import HostApp, Machine


HOST_IDS = (
    "claude-desktop, claude-code, cursor, vscode, codex, windsurf, zed, gemini-cli, goose, "
    "lm-studio, cline, copilot-cli, kiro or opencode"
)
LINK_HOST_IDS = "cursor, vscode, goose or lm-studio"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_install_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", help=f"the host: {HOST_IDS}")
    parser.add_argument(
        "source",
        metavar="SERVER",
        nargs="?",
        help='a Python file, a URL, or a command such as "uvx some-server"',
    )
    parser.add_argument(
        "--gateway",
        metavar="FILE",
        help="add one entry, named `gateway`, that serves all servers of an mcp.json file",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="the name of the server in the host (default: that of the file, its folder, the "
        "package or the site)",
    )
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
    only.add_argument(
        "--print",
        action="store_true",
        help="print the entry, to paste it yourself; it contains the values of --env",
    )
    only.add_argument(
        "--link",
        action="store_true",
        help=f"print a link that adds the server with one click ({LINK_HOST_IDS})",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace an entry with the same name, even if `dovetail install` did not write it, or "
        "if it changed since",
    )
    parser.add_argument(
        "--no-check", action="store_true", help="do not start the server before it is added"
    )
    parser.epilog = f"{parser.epilog or ''}\n\nguide: {INSTALL_GUIDE}"


def add_scope_argument(parser: ArgumentParser) -> None:
    """Add `--scope`."""
    parser.add_argument(
        "--scope",
        choices=("user", "project", "local"),
        default="user",
        help="user: your own file, for all your work; project: the file of the project in this "
        "folder, which you can commit; local: your own settings for this project, which only "
        "Claude Code has (default: user)",
    )


def install(options: Namespace) -> None:
    """Add the server, or print what would be added."""
    from ..host_configs.hosts import find_host, match_host
    from ..host_configs.server_command import default_name

    if match_host(options.host) is None and match_host(options.source or "") is not None:
        raise ConfigError(
            f"The host comes first: dovetail install {options.source} {shlex.quote(options.host)}"
        )
    host = find_host(options.host)
    if options.source is None and options.gateway is None:
        raise ConfigError("Name a server (a file, a URL or a command), or --gateway FILE")
    if options.source is not None and options.gateway is not None:
        raise ConfigError("Name a server or --gateway FILE, not both")
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

    machine = Machine.current()
    plan = plan_install(
        host,
        name,
        server,
        machine=machine,
        scope=options.scope,
        is_running=is_running(host),
        force=options.force,
    )
    is_absent = options.scope != "project" and not _is_found(host, machine)
    is_done = plan.is_needed and not options.dry_run
    if is_done and plan.must_close is not None:
        raise ConfigError(plan.must_close)
    is_checked = plan.is_needed and not options.no_check
    tools = check_server(server, host, name=name, source=options.source) if is_checked else None
    if plan.is_needed:
        warn_of_values(plan, server, options)
    if is_done:
        apply(plan)
    if is_absent:
        warn_of_absence(host)
    if options.json:
        print_json(make_document(plan, tools, options))
        return
    print_change(plan, options)
    if tools is not None:
        print_line(dim(f"The server starts and has {count_tools(tools)}."))
    if server.env_vars and not host.shape.inputs:
        names = join_names(server.env_vars)
        print_line(dim(f"{host.title} must have {names} in its own environment."))
    if not options.dry_run:
        in_project = host.in_project if options.scope == "project" else ""
        print_line(f"{host.after} {in_project}".strip().format(title=host.title))


def _is_found(host: "HostApp", machine: "Machine") -> bool:
    """Whether there are signs of the host on this machine: a file, a folder or its command."""
    is_command = host.command is not None and shutil.which(host.command) is not None
    return is_command or host.is_installed(machine)


# the entry


def _make_server(host: "HostApp", options: Namespace) -> "ServerConfig":
    from pathlib import Path

    from ..host_configs.host_entry import can_reference
    from ..host_configs.server_command import gateway_command, parse_source

    if options.gateway:
        server = gateway_command(Path(options.gateway))
    else:
        server = parse_source(options.source, host, is_shared=options.scope == "project")
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
        f"{host.title} does not support references to variables, so its file will contain the "
        f"value of {name}."
    )
    if not sys.stdin.isatty():
        raise ConfigError(f"There is no terminal to ask for {name}. Use --env {name}=VALUE.")
    try:
        value = getpass(f"{name}: ")
    except EOFError:
        value = ""
    if not value:
        raise ConfigError(f"No value for {name}, so nothing was written.")
    return value


def _parse_variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise ArgumentTypeError(f"{text!r} has no name; write KEY=VALUE or KEY")
    if not _VARIABLE.fullmatch(name):
        raise ArgumentTypeError(
            f"{name!r} is not the name of a variable; use letters, digits and _"
        )
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
        print_error(f"This contains {name_values(server)}.")
    inputs = make_inputs(name, server.env_vars) if host.shape.inputs else ()
    print_text(render_entry(host, host.key_path(machine, options.scope, name), entry, inputs))


def _print_link(host: "HostApp", name: str, options: Namespace) -> None:
    from ..host_configs.links import make_link
    from ..host_configs.server_command import published_command
    from .options import URL

    if options.gateway:
        raise ConfigError("A link would contain a path of this machine, so --gateway has none")
    if options.env:
        raise ConfigError("A link contains no variables, so --env cannot be used with --link")
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
