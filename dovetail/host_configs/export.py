"""One configuration with the servers of all hosts, for `dovetail hosts --export`."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import config
from .survey import HostFile

_VARIABLES = {
    "gemini-cli": re.compile(r"\$([A-Za-z_]\w*)"),
    "opencode": re.compile(r"\{env:(\w+)\}"),
}
"""Variables in a syntax that only one host has."""
_FOLDER = re.compile(r"\$\{workspaceFolder\}")
_INPUT = re.compile(r"\$\{input:([^}]*)\}")


def merge(files: list[HostFile]) -> dict[str, Any]:
    """Return one configuration with the servers of all files, each once.

    Names that two different servers share get the name of the host, and a number if that is not
    enough. Paths of a project are made absolute. Gateways of files are left out, because their
    servers may be these.

    Args:
        files: The files.
    """
    entries: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    for file in files:
        renamed = _add_inputs(file, inputs)
        for name, server in file.servers.items():
            if config.served_file(server) is not None:
                continue
            entry = _portable(config.to_entry(server), file, renamed)
            entry = _anchor(entry, file.project)
            entries.setdefault(_free_name(entries, name, f"{name}-{file.host.id}", entry), entry)
    return {"mcpServers": entries, **({"inputs": list(inputs.values())} if inputs else {})}


def _free_name(taken: Mapping[str, Any], name: str, second: str, value: Any) -> str:
    """Return the first name that is free, or that an equal value has."""
    number = 1
    while taken.get(name, value) != value:
        name = second if number == 1 else f"{second}-{number}"
        number += 1
    return name


def _add_inputs(file: HostFile, inputs: dict[str, Any]) -> dict[str, str]:
    """Add the inputs of a file; return the new ids of those whose id is taken by another one."""
    renamed = {}
    for one in file.inputs:
        if not isinstance(one, Mapping) or "id" not in one:
            continue
        old = str(one["id"])
        taken = {id: {**other, "id": old} for id, other in inputs.items()}
        new = _free_name(taken, old, f"{old}-{file.host.id}", {**one, "id": old})
        inputs.setdefault(new, {**one, "id": new})
        if new != old:
            renamed[old] = new
    return renamed


def _anchor(entry: dict[str, Any], project: Path | None) -> dict[str, Any]:
    """Return an entry of a project with absolute paths, so that it starts from any folder."""
    command = entry.get("command")
    if project is None or not isinstance(command, str):
        return entry
    folder = Path(_join(project, entry.get("cwd", "")))
    is_path = os.path.basename(command) != command
    uses_folder = "cwd" in entry or (is_path and _join(folder, command) != command)
    uses_folder |= any(
        not os.path.isabs(one) and (folder / one).is_file() for one in entry.get("args", ())
    )
    paths = {"command": _join(folder, command)} if is_path else {}
    if uses_folder:
        paths["cwd"] = str(folder)
    if "envFile" in entry:
        paths["envFile"] = _join(project, entry["envFile"])
    return entry | paths


def _join(folder: Path, path: str) -> str:
    """Return the absolute path, unless a variable or the home folder comes first."""
    return path if path.startswith(("$", "~")) else os.path.normpath(folder / path)


def _portable(value: Any, file: HostFile, renamed: Mapping[str, str]) -> Any:
    """Return a value whose variables have the form that every file may use, `${NAME}`, and mean the
    same in another folder."""
    if isinstance(value, Mapping):
        return {key: _portable(one, file, renamed) for key, one in value.items()}
    if isinstance(value, list):
        return [_portable(one, file, renamed) for one in value]
    if not isinstance(value, str):
        return value
    if (variable := _VARIABLES.get(file.host.id)) is not None:
        value = variable.sub(r"${\1}", value)
    if file.project is not None:
        folder = str(file.project)
        value = _FOLDER.sub(lambda _: folder, value)
    return _INPUT.sub(lambda match: f"${{input:{renamed.get(match[1], match[1])}}}", value)
