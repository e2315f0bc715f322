"""Start a server as a host would, before `dovetail install` writes its entry.

The server gets an almost empty environment and the root folder. For a gateway, `dovetail gateway
--check` is started in the same way, because it says which of its servers fail and why.
"""

import os
import subprocess
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DovetailError, Unauthorized
from .options import URL
from .output import print_error

if TYPE_CHECKING:
    from ..config import ServerConfig
    from ..host_configs.hosts import HostApp

CHECK_SECONDS = 60.0
_KINDS = ("tools", "prompts", "resources", "templates")
_PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG")


def check_server(
    server: "ServerConfig", host: "HostApp", *, source: str | None
) -> list[str] | None:
    """Start the server as the host would; return the names of its tools, or None if the host has to
    log in first.

    Args:
        server: The server.
        host: The host.
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
    except DovetailError as error:
        raise ConfigError(
            f"The server does not start as {host.title} would start it, so nothing was written "
            f"(--no-check writes it anyway): {error}"
        ) from None
    if not any(found.values()):
        raise ConfigError(
            "The server starts, but has no tools, prompts or resources, so nothing was written "
            "(--no-check writes it anyway)."
        )
    return found["tools"]


async def _list_names(server: "ServerConfig") -> dict[str, list[str]]:
    from .. import Client

    target: str | list[str] = server.url or [server.command or "", *server.args]
    is_url = server.url is not None
    client = Client(
        target,
        env=None if is_url else _bare_environment(server),
        cwd=None if is_url else os.sep,
        timeout=CHECK_SECONDS,
    )
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
            f"{url} requires a login. Run `dovetail login {url}` first, and then this command again"
        )
    found = {
        kind: [each["name"] for one in servers.values() for each in one[kind] if each["name"]]
        for kind in _KINDS
    }
    described = "; ".join(f"{name}: {error}" for name, error in failed.items())
    if failed and not any(found.values()):
        raise ConfigError(described)
    if failed:
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
        raise ConfigError(f"no answer within {CHECK_SECONDS:g} s" if late else str(error)) from None
    try:
        servers: dict[str, Any] = json.loads(done.stdout)["servers"]
    except (ValueError, KeyError):
        raise ConfigError(done.stderr.strip() or f"it ended with {done.returncode}") from None
    return servers


def _bare_environment(server: "ServerConfig") -> dict[str, str]:
    """Return what hosts pass on: hardly any variables, and no PATH of a shell. The client adds the
    home folder and the name of the user."""
    path = {} if os.name == "nt" else {"PATH": "/usr/bin:/bin"}
    passed = {name: os.environ[name] for name in server.env_vars if name in os.environ}
    return {**path, **passed, **server.env}
