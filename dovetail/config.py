"""Find, read and write `mcp.json`, the file in which applications list their servers.

    {"mcpServers": {"weather": {"command": "uvx", "args": ["weather"],
                                "env": {"KEY": "${WEATHER_KEY}"}},
                    "remote": {"url": "https://example.com/mcp", "auth": "oauth"},
                    "other": {"url": "https://example.org/mcp",
                              "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

`auth` is the same as in `Client(auth=…)`: `"oauth"` to log in, a token, or an object with the
parameters of `OAuth`: `{"clientId": "…", "clientSecret": "${SECRET}", "issuer": "…", "scopes":
["…"]}`.

`${VAR}` is replaced with the environment variable when a server is used; `${VAR:-default}` has a
fallback. A missing variable raises an error that names it; it never becomes an empty string.
"""

import os
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from .errors import ConfigError

FILE_NAMES = ("mcp.json", ".mcp.json")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class AuthConfig(
    Struct, omit_defaults=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How to log in: the parameters of `OAuth`."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    scopes: list[str] = []


class ServerConfig(Struct, omit_defaults=True, kw_only=True):
    """One server: a command to start, or a URL."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    auth: str | AuthConfig | None = None


class _McpJson(Struct, rename={"servers": "mcpServers"}):
    servers: dict[str, ServerConfig] = {}


def find(start: Path | None = None) -> Path | None:
    """Return the nearest configuration file, searching from this directory upwards."""
    first = (start or Path.cwd()).resolve()
    for folder in (first, *first.parents):
        for name in FILE_NAMES:
            if (folder / name).is_file():
                return folder / name
    return None


def read(path: str | Path) -> dict[str, ServerConfig]:
    """Read a configuration file and return its servers by name."""
    return parse(_load(path), str(path))


def _load(path: str | Path) -> Any:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return msgspec.json.decode(data.removeprefix(BOM_UTF8))  # some editors write one
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None


def parse(value: Any, where: str = "the configuration") -> dict[str, ServerConfig]:
    """Return the servers in a decoded configuration. The `servers` key of VS Code is accepted
    too."""
    if isinstance(value, Mapping) and "mcpServers" not in value and "servers" in value:
        value = {"mcpServers": value["servers"]}
    if not isinstance(value, Mapping) or "mcpServers" not in value:
        raise ConfigError(f'{where} has no "mcpServers"')
    try:
        servers = msgspec.convert(value, _McpJson).servers
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    for name, server in servers.items():
        if (server.command is None) == (server.url is None):
            raise ConfigError(f'{where}: server {name!r} needs either a "command" or a "url"')
    return servers


def choose(
    servers: Mapping[str, ServerConfig], name: str | None, where: str = "the configuration"
) -> ServerConfig:
    """Return the named server, or the only one."""
    if not servers:
        raise ConfigError(f"{where} has no servers")
    names = ", ".join(sorted(servers))
    if name is None:
        if len(servers) > 1:
            raise ConfigError(f'{where} has several servers; choose one with server="…": {names}')
        return next(iter(servers.values()))
    if name not in servers:
        raise ConfigError(f"{where} has no server {name!r}; it has {names}")
    return servers[name]


def write(path: str | Path, servers: Mapping[str, ServerConfig]) -> None:
    """Write the servers to a file and keep its other contents. The file is replaced atomically."""
    target = Path(path).resolve()  # keeps a symbolic link
    content = _load(target) if target.exists() else {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path} is not a JSON object. Fix it, or move it away to start with a new file"
        )
    before = content.get("mcpServers")
    entries = before if isinstance(before, dict) else {}
    content["mcpServers"] = {
        name: _foreign_fields(entries.get(name)) | msgspec.to_builtins(server)
        for name, server in servers.items()
    }
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    temporary = target.with_name(target.name + ".new")
    try:
        temporary.touch(mode=0o600)  # it may contain secrets
        temporary.write_bytes(text + b"\n")
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _foreign_fields(entry: Any) -> dict[str, Any]:
    """Return the fields of a server's entry that belong to other applications."""
    if not isinstance(entry, dict):
        return {}
    return {key: value for key, value in entry.items() if key not in ServerConfig.__struct_fields__}


def expand(server: ServerConfig, environment: Mapping[str, str] | None = None) -> ServerConfig:
    """Return the server with every `${VAR}` replaced."""
    values = os.environ if environment is None else environment

    def replace(match: re.Match[str]) -> str:
        name, fallback = match[1], match[2]
        if name in values:
            return values[name]
        if fallback is None:
            raise ConfigError(
                f"The configuration needs ${{{name}}}, which is not set in the environment"
            )
        return fallback

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(replace, value)
        if isinstance(value, list):
            return [fill(item) for item in value]
        return {key: fill(item) for key, item in value.items()}

    return msgspec.convert(fill(msgspec.to_builtins(server)), ServerConfig)
