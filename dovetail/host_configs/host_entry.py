"""A server in the form of a host's file."""

from collections.abc import Mapping
from typing import Any

from ..config import ServerConfig
from ..errors import ConfigError
from .hosts import HostApp, Scope


def to_entry(
    server: ServerConfig, host: HostApp, name: str, *, scope: Scope = "user"
) -> dict[str, Any]:
    """Return the entry of a server as the host writes it. Empty fields are left out, except for the
    arguments of a command, which some hosts require.

    Args:
        server: The server. Its `env_vars` are the variables whose values the entry must not hold.
        host: The host.
        name: The name of the entry.
        scope: Whether the entry is for the file of the user or of a project.

    Raises:
        ConfigError: The host cannot express the entry.
    """
    shape = host.shape
    extra = shape.in_user_file if scope == "user" else {}
    if server.url is not None:
        if shape.url is None:
            raise ConfigError(f"{host.title} starts commands only, so it cannot use a URL")
        remote = _not_empty({shape.url: server.url, shape.headers: server.headers})
        return _filled(shape.with_url, name) | remote | dict(extra)
    if shape.args is None:
        command: dict[str, Any] = {shape.command: [server.command or "", *server.args]}
    else:
        command = {shape.command: server.command or "", shape.args: server.args}
    fields: dict[str, Any] = {shape.env: {**server.env, **_references(server, host, name)}}
    if shape.names is not None:
        fields[shape.names] = server.env_vars
    return _filled(shape.with_command, name) | command | _not_empty(fields) | dict(extra)


def can_reference(host: HostApp) -> bool:
    """Whether an entry of the host can name a variable instead of holding its value."""
    return host.shape.reference is not None or host.shape.names is not None


def _references(server: ServerConfig, host: HostApp, name: str) -> dict[str, str]:
    if not server.env_vars or host.shape.names is not None:
        return {}
    if host.shape.reference is None:
        raise ConfigError(
            f"{host.title} does not support references to variables, so its file has to contain "
            f"the value of {', '.join(server.env_vars)}"
        )
    return {one: host.shape.reference.format(one, name=name) for one in server.env_vars}


def _filled(constants: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: name if value == "{name}" else value for key, value in constants.items()}


def _not_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}
