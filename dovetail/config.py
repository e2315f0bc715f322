"""`mcp.json`: the file in which applications keep their servers.

    {"mcpServers": {"weather": {"command": "uvx", "args": ["weather"],
                                "env": {"KEY": "${WEATHER_KEY}"}},
                    "remote": {"url": "https://example.com/mcp", "auth": "oauth"},
                    "other": {"url": "https://example.org/mcp",
                              "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

`auth` is what `Client(auth=…)` is: `"oauth"` for a login, or a token; or an object with what
`OAuth` is to be given, in the spelling of JSON: `{"clientId": "…", "clientSecret": "${SECRET}",
"issuer": "…", "scopes": ["…"]}`.

`${VAR}` is filled in from the environment when a server is used, `${VAR:-default}` has a fallback;
a variable that is missing is an error that names it, never an empty string.
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

NAMES = ("mcp.json", ".mcp.json")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class AuthConfig(
    Struct, omit_defaults=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How a login is made, in the words of `OAuth`."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    scopes: list[str] = []


class ServerConfig(Struct, omit_defaults=True, kw_only=True):
    """One server of the file: a command to start, or a URL to reach."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    auth: str | AuthConfig | None = None


class _File(Struct, rename={"servers": "mcpServers"}):
    servers: dict[str, ServerConfig] = {}


def find(start: Path | None = None) -> Path | None:
    """The nearest config file, from this directory upwards."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        for name in NAMES:
            if (folder / name).is_file():
                return folder / name
    return None


def read(path: str | Path) -> dict[str, ServerConfig]:
    """The servers of a file, by name."""
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
    """The servers of a configuration that is already read. VS Code's `servers` is understood as
    well."""
    if isinstance(value, Mapping) and "mcpServers" not in value and "servers" in value:
        value = {"mcpServers": value["servers"]}
    if not isinstance(value, Mapping) or "mcpServers" not in value:
        raise ConfigError(f'{where} has no "mcpServers"')
    try:
        servers = msgspec.convert(value, _File).servers
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    for name, server in servers.items():
        if (server.command is None) == (server.url is None):
            raise ConfigError(f'{where}: server {name!r} needs either a "command" or a "url"')
    return servers


def choose(
    servers: Mapping[str, ServerConfig], name: str | None, where: str = "the configuration"
) -> ServerConfig:
    """The server that is meant: the named one, or the only one."""
    if not servers:
        raise ConfigError(f"{where} names no server")
    listed = ", ".join(sorted(servers))
    if name is None:
        if len(servers) > 1:
            raise ConfigError(
                f'{where} names several servers; choose one with server="…": {listed}'
            )
        return next(iter(servers.values()))
    if name not in servers:
        raise ConfigError(f"{where} names no server {name!r}; it has {listed}")
    return servers[name]


def write(path: str | Path, servers: Mapping[str, ServerConfig]) -> None:
    """Write the servers into a file, keeping whatever else it holds. The file is replaced whole, or
    not at all."""
    target = Path(path).resolve()  # a link stays one
    kept = _load(target) if target.exists() else {}
    if not isinstance(kept, dict):
        raise ConfigError(f"{path} holds no JSON object; move it away to have a new one written")
    before = kept.get("mcpServers")
    entries = before if isinstance(before, dict) else {}
    kept["mcpServers"] = {
        name: _foreign(entries.get(name)) | msgspec.to_builtins(one)
        for name, one in servers.items()
    }
    text = msgspec.json.format(msgspec.json.encode(kept), indent=2)
    temporary = target.with_name(target.name + ".new")
    try:
        temporary.touch(mode=0o600)  # it may hold secrets
        temporary.write_bytes(text + b"\n")
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _foreign(entry: Any) -> dict[str, Any]:
    """What other applications keep with a server, beside the fields that are ours."""
    if not isinstance(entry, dict):
        return {}
    return {key: value for key, value in entry.items() if key not in ServerConfig.__struct_fields__}


def expand(server: ServerConfig, environment: Mapping[str, str] | None = None) -> ServerConfig:
    """The same server with all `${VAR}` filled in."""
    values = os.environ if environment is None else environment

    def fill(text: str) -> str:
        def one(match: re.Match[str]) -> str:
            name, fallback = match[1], match[2]
            if name in values:
                return values[name]
            if fallback is None:
                raise ConfigError(
                    f"The configuration needs ${{{name}}}, which is not set in the environment"
                )
            return fallback

        return _VARIABLE.sub(one, text)

    def fill_auth(auth: str | AuthConfig | None) -> str | AuthConfig | None:
        if isinstance(auth, AuthConfig):
            return AuthConfig(
                client_id=auth.client_id and fill(auth.client_id),
                client_secret=auth.client_secret and fill(auth.client_secret),
                issuer=auth.issuer and fill(auth.issuer),
                scopes=[fill(scope) for scope in auth.scopes],
            )
        return auth and fill(auth)

    return ServerConfig(
        command=None if server.command is None else fill(server.command),
        args=[fill(arg) for arg in server.args],
        env={key: fill(value) for key, value in server.env.items()},
        cwd=None if server.cwd is None else fill(server.cwd),
        url=None if server.url is None else fill(server.url),
        headers={key: fill(value) for key, value in server.headers.items()},
        auth=fill_auth(server.auth),
    )
