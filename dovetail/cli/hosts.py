"""`dovetail hosts`: the hosts on this machine, the servers they have, and what is broken."""

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .output import bold, dim, print_error, print_json, print_line

if TYPE_CHECKING:
    from ..host_configs.hosts import Machine
    from ..host_configs.survey import HostFile


def add_hosts_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--export",
        metavar="FILE",
        help="write the servers of all hosts into a new mcp.json file, for `dovetail gateway` or "
        "`dovetail install HOST --gateway`",
    )


def hosts(options: Namespace) -> None:
    """List the hosts, or export their servers."""
    from ..host_configs.hosts import Machine
    from ..host_configs.survey import survey

    machine = Machine.current()
    files = survey(machine)
    if options.export is not None:
        _export(files, options)
    elif options.json:
        print_json(_documents(files, machine))
    else:
        _print_hosts(files, machine)


def _documents(files: "list[HostFile]", machine: "Machine") -> list[dict[str, Any]]:
    from ..host_configs.hosts import HOSTS

    return [
        {
            "id": host.id,
            "title": host.title,
            "installed": host.is_installed(machine),
            "files": [_document(file) for file in files if file.host is host],
        }
        for host in HOSTS
    ]


def _document(file: "HostFile") -> dict[str, Any]:
    names = [*file.servers, *(name for name in file.problems if name not in file.servers)]
    return {
        "path": str(file.path),
        "scope": file.scope,
        "error": file.error,
        "servers": [_describe(file, name) for name in names],
        "builtIn": file.own,
    }


def _describe(file: "HostFile", name: str) -> dict[str, Any]:
    is_off = name in file.servers and file.servers[name].disabled
    return {"name": name, "problem": file.problems.get(name), "disabled": is_off}


def _print_hosts(files: "list[HostFile]", machine: "Machine") -> None:
    from ..host_configs.hosts import HOSTS

    missing = []
    for host in HOSTS:
        own = [file for file in files if file.host is host]
        if not own and not host.is_installed(machine):
            missing.append(host.id)
            continue
        print_line(bold(host.id), dim(f"  {host.title}"))
        if not own:
            print_line(dim(f"  no servers yet ({host.file(machine)} does not exist)"))
        for file in own:
            _print_file(file)
    if missing:
        print_line(dim(f"Not found on this machine: {', '.join(missing)}"))


def _print_file(file: "HostFile") -> None:
    part = f" (for {file.project} only)" if file.scope == "local" else ""
    print_line(dim(f"  {file.path}{part}"))
    if file.error is not None:
        print_line("  ", ("31", "error"), f"  {file.error}")
    for one in _document(file)["servers"]:
        problem = ("  ", ("33", "broken"), f"  {one['problem']}") if one["problem"] else ()
        print_line("    ", one["name"], dim("  switched off") if one["disabled"] else "", *problem)
    if file.own:
        print_line(dim(f"    part of {file.host.title}: {', '.join(file.own)}"))


def _export(files: "list[HostFile]", options: Namespace) -> None:
    from ..host_configs.export import merge
    from ..host_configs.hiding import has_secrets

    unreadable = [file for file in files if file.error is not None]
    for file in unreadable:
        print_error(f"dovetail: skipped {file.error}")
    merged = merge(files)
    if not merged["mcpServers"]:
        raise ConfigError("No host on this machine has a server, so there is nothing to export")
    _create(options.export, merged)
    count = len(merged["mcpServers"])
    if any(has_secrets(one) for one in merged["mcpServers"].values()):
        print_error(
            f"{options.export} contains secret values. Only you can read it; do not share it."
        )
    if options.json:
        print_json({"file": options.export, "servers": list(merged["mcpServers"])})
        return
    written = "1 server was" if count == 1 else f"{count} servers were"
    print_line(f"{written} written to ", bold(options.export))
    print_line(dim(f"Try them: dovetail gateway {options.export} --check"))


def _create(path: str, value: Any) -> None:
    """Create a file that only its owner can read, because it may contain secrets."""
    import json

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists. Choose another name, or remove it first.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
