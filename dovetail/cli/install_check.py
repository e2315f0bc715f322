"""Start a server as a host would, before `dovetail install` writes its entry.

The server gets an almost empty environment and the root folder. For a gateway, `dovetail gateway
--check` is started in the same way, because it says which of its servers fail and why.

A variable that the entry names, and whose value the host will ask for or has, may be missing in
this shell. If the server does not start then, that is only a warning.
"""

import logging
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, ConnectFailed, DovetailError, Unauthorized
from ..masking import mask_url
from ..text import join_names
from .options import URL
from .output import print_error

if TYPE_CHECKING:
    from ..config import ServerConfig
    from ..host_configs.hosts import HostApp

CHECK_SECONDS = 60.0
_KINDS = ("tools", "prompts", "resources", "templates")
_PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG")
_HINTS = (
    (
        re.compile(r"ModuleNotFoundError"),
        "The host would start another environment, in which this package is missing. Run `dovetail "
        "install` from the environment that has it.",
    ),
    (
        re.compile(r"KeyError: '[A-Z][A-Z0-9_]*'|environ"),
        "Hosts do not pass on the variables of your shell. Use --env KEY=VALUE or --env KEY.",
    ),
    (
        re.compile(r"FileNotFoundError|No such file or directory"),
        "Hosts start servers in another folder. Use paths relative to `__file__`.",
    ),
)
"""What to do about an error that a server printed."""


def check_server(
    server: "ServerConfig", host: "HostApp", *, name: str, source: str | None
) -> list[str] | None:
    """Start the server as the host would; return the names of its tools, or None if that cannot be
    known: the host has to log in first, or a variable is missing in this shell.

    Args:
        server: The server.
        host: The host.
        name: The name of the entry.
        source: The URL, the file or the command that the user named; None for a gateway.

    Raises:
        ConfigError: The server does not start, offers nothing, or requires a login that the host
            cannot make.
    """
    import asyncio

    is_gateway = source is None or (server.url is None and URL.fullmatch(source) is not None)
    try:
        found = _check_gateway(server, source) if is_gateway else asyncio.run(_list_names(server))
    except Unauthorized:
        print_error(f"{source} requires a login. {host.title} will ask you to log in.")
        return None
    except ConfigError:
        raise
    except DovetailError as error:
        details = _quote_lines(error)
        missing = [one for one in server.env_vars if one not in os.environ]
        if missing:
            _warn_of_missing(missing, details)
            return None
        problem = ConfigError(f"{_describe_failure(host, name, source)}. Nothing was written.")
        hint = next((hint for pattern, hint in _HINTS if pattern.search(details)), "")
        problem.add_note("\n".join(filter(None, (details, hint, "--no-check adds it anyway."))))
        raise problem from None
    if not any(found.values()):
        raise ConfigError(
            "The server starts, but has no tools, prompts or resources, so nothing was written "
            "(--no-check adds it anyway)."
        )
    return found["tools"]


def _describe_failure(host: "HostApp", name: str, source: str | None) -> str:
    """Say what failed. A command may contain secrets, so its entry is named instead."""
    if source is not None and URL.fullmatch(source):
        return f"{mask_url(source)} cannot be reached"
    is_file = source is not None and os.path.isfile(source)
    return f"{host.title} could not start {source if is_file else name}"


def _quote_lines(error: DovetailError) -> str:
    """Return what a server printed, or else the error, with a bar before each line."""
    first, _, printed = str(error).partition("last lines of stderr:")
    return "\n".join(f"  | {line}" for line in (printed.strip() or first).splitlines())


def _warn_of_missing(names: list[str], details: str) -> None:
    listed = join_names(names)
    verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
    print_error(
        f"dovetail: warning: {listed} {verb} not set in this shell, so the check ran without "
        f"{them}, and the server did not start:\n{details}\n"
        f"Set {them} to check the server, or skip the check with --no-check.",
        lines=True,
    )


async def _list_names(server: "ServerConfig") -> dict[str, list[str]]:
    from .. import Client

    command = server.command or ""
    target: str | list[str] = server.url or [shutil.which(command) or command, *server.args]
    is_url = server.url is not None
    client = Client(
        target,
        env=None if is_url else _bare_environment(server),
        cwd=None if is_url else os.sep,
        timeout=CHECK_SECONDS,
        on_stderr=lambda line: None,  # an error repeats the last lines
    )
    logging.getLogger("dovetail").setLevel(logging.ERROR)
    async with client:
        found = {"tools": [tool.name for tool in await client.list_tools()]}
        if not found["tools"]:
            found["prompts"] = [one.name for one in await client.list_prompts()]
            found["resources"] = [one.name for one in await client.list_resources()]
            found["templates"] = [one.name for one in await client.list_resource_templates()]
    return found


def _check_gateway(server: "ServerConfig", url: str | None) -> dict[str, list[str]]:
    """Start all servers of a gateway. Those that fail are named; one has to start."""
    servers = _run_gateway_check(server)
    failed = {name: one["error"] for name, one in servers.items() if "error" in one}
    if url is not None and any(f"dovetail login {url}" in error for error in failed.values()):
        raise ConfigError(
            f"{url} requires a login, so nothing was written. Run `dovetail login {url}` first, "
            "and then this command again."
        )
    found = {
        kind: [each["name"] for one in servers.values() for each in one[kind] if each["name"]]
        for kind in _KINDS
    }
    if failed and not any(found.values()):
        raise ConnectFailed("\n".join(f"{name}: {error}" for name, error in failed.items()))
    if failed:
        described = "; ".join(f"{name}: {error}" for name, error in failed.items())
        print_error(f"dovetail: warning: not all servers start. {described}")
    return found


def _run_gateway_check(server: "ServerConfig") -> dict[str, Any]:
    import json

    base = os.environ if os.name == "nt" else {}
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        done = subprocess.run(
            [server.command or "", *server.args, "--check", "--json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=CHECK_SECONDS,
            cwd=os.sep,
            env={**base, **passed, **_bare_environment(server)},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        late = isinstance(error, subprocess.TimeoutExpired)
        text = f"no answer within {CHECK_SECONDS:g} s" if late else str(error)
        raise ConnectFailed(text) from None
    try:
        servers: dict[str, Any] = json.loads(done.stdout)["servers"]
    except (ValueError, KeyError):
        raise ConnectFailed(done.stderr.strip() or f"it ended with {done.returncode}") from None
    return servers


def _bare_environment(server: "ServerConfig") -> dict[str, str]:
    """Return what hosts pass on: hardly any variables, and no PATH of a shell. The client adds the
    home folder and the name of the user."""
    path = {} if os.name == "nt" else {"PATH": "/usr/bin:/bin"}
    passed = {name: os.environ[name] for name in server.env_vars if name in os.environ}
    return {**path, **passed, **server.env}
