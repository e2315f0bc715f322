"""The servers in a file, and how one of them is chosen."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ..errors import ConfigError
from ..text import closest_name, one_line
from .hosts import HOSTS, HostFormat, UnknownEntry, normalize
from .known_keys import InvalidObject, convert_known
from .settings import KEY, FileSettings, ServerSettings, read_file_settings, read_server_settings
from .variables import Variables, expand


class AuthConfig(Struct, omit_defaults=True, kw_only=True, rename="camel"):
    """How to log in: the parameters of `OAuth`, or of `ClientCredentials`."""

    grant_type: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """Whether a user logs in, or this program authenticates itself."""
    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    scopes: list[str] = []

    @property
    def is_for_program(self) -> bool:
        """Whether this program authenticates itself, so that nobody has to log in."""
        return self.grant_type == "client_credentials"

    @property
    def options(self) -> dict[str, Any]:
        """The arguments for `OAuth` or `ClientCredentials`."""
        return {name: value for name, value in asdict(self).items() if name != "grant_type"}


class ServerConfig(
    Struct,
    omit_defaults=True,
    kw_only=True,
    rename={"env_file": "envFile", "open_timeout": "connectionTimeout"},
):
    """One server: a command to start, or a URL."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    env_file: str | None = None
    """A file with more variables, one `NAME=value` per line. `env` takes precedence."""
    env_vars: list[str] = []
    """Environment variables of this process that are passed on if they are set."""
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    auth: str | AuthConfig | None = None
    timeout: float | None = None
    """Seconds to wait for each answer."""
    open_timeout: float | None = None
    """Seconds to wait for the connection to open."""
    disabled: bool = False

    @property
    def needs_login(self) -> bool:
        """Whether a user has to log in, because neither a token nor credentials of this program are
        in the entry."""
        if any(name.lower() == "authorization" for name in self.headers):
            return False  # this header takes precedence
        if isinstance(self.auth, AuthConfig):
            return not self.auth.is_for_program
        return self.auth == "oauth"


class Servers(dict[str, ServerConfig]):
    """The servers in one configuration, by name, in the order of the file.

    Attributes:
        variables: How variables are filled in.
        options: Dovetail's settings for the whole file.
        settings: Dovetail's settings for each server.
        written: The entry of each server as the file contains it.
        problems: A message for the user about each entry that is not understood, by its name.
    """

    def __init__(self, variables: Variables, options: FileSettings | None = None) -> None:
        super().__init__()
        self.variables = variables
        self.options = options or FileSettings()
        self.settings: dict[str, ServerSettings] = {}
        self.written: dict[str, Any] = {}
        self.problems: dict[str, str] = {}


class ChosenServer(Struct, frozen=True):
    """The server that a client will use."""

    name: str
    written: ServerConfig
    """The configuration as written in the file, which is safe to show."""
    config: ServerConfig
    """The configuration with the values of all variables."""


def parse(value: Any, where: str = "the configuration", path: Path | None = None) -> Servers:
    """Return the servers in a decoded configuration, according to the rules of its host.

    Raises:
        ConfigError: The configuration lists no servers. An entry that is not understood raises an
            error only when it is chosen.
    """
    host, found = _find_servers(value, where, path)
    try:
        options = read_file_settings(value.get(KEY))
    except InvalidObject as error:
        raise ConfigError(f"{where}: {error}") from None
    servers = Servers(Variables(host=host, inputs=_read_inputs(value), path=path), options)
    for name, entry in _name_entries(found, f'{where}: "{host.key}"'):
        try:
            server = _read_server(entry, host)
            settings = read_server_settings(entry.get(KEY), options.defaults, server.headers)
        except UnknownEntry as error:
            servers.problems[name] = f"{where}: server {name!r} {error}"
        except (InvalidObject, msgspec.ValidationError) as error:
            servers.problems[name] = f"{where}: server {name!r} is not valid: {error}"
        else:
            servers[name], servers.settings[name] = server, settings
            servers.written[name] = entry
    return servers


def _read_server(entry: Any, host: HostFormat) -> ServerConfig:
    fields = normalize(entry, host)
    auth = fields.get("auth")
    if isinstance(auth, Mapping):
        fields["auth"] = auth = convert_known(auth, AuthConfig, '"auth"')
        if auth.is_for_program and not (auth.client_id and auth.client_secret):
            raise InvalidObject('"auth" requires a "clientId" and a "clientSecret"')
    server = msgspec.convert(fields, ServerConfig)
    if (server.command is None) == (server.url is None):
        raise UnknownEntry(f'requires either a "command" or a "url"{_advise(fields)}')
    return server


def _find_servers(value: Any, where: str, path: Path | None) -> tuple[HostFormat, Any]:
    """Return the host that the file belongs to, and the value under the host's key."""
    place = f"/{path.absolute().as_posix()}" if path else ""
    if isinstance(value, Mapping):
        for host in HOSTS:
            if host.key in value and host.file.search(place):
                return host, value[host.key]
    key = {".toml": '"servers" or "mcp_servers"', ".yaml": '"extensions"', ".yml": '"extensions"'}
    expected = key.get(path.suffix.lower() if path else "", '"mcpServers"')
    raise ConfigError(f"{where} has no {expected}{_advise(value, ('mcpServers', 'servers'))}")


def _advise(value: Any, expected: Iterable[str] = ("command", "url")) -> str:
    """Return a hint if one of the keys that should be there was misspelled."""
    keys = value if isinstance(value, Mapping) else ()
    for name in expected:
        close = closest_name(name, map(str, keys), cutoff=0.8)
        if close is not None and close not in ServerConfig.__struct_fields__:
            return f'. Did you mean "{name}" instead of "{one_line(close)}"?'
    return ""


def _name_entries(found: Any, what: str) -> Iterable[tuple[str, Any]]:
    """Return the entries with their names, which are the keys of an object or a field of each entry
    in a list."""
    if found is None:
        return []
    if isinstance(found, Mapping):
        return [(str(name), entry) for name, entry in found.items()]
    if not isinstance(found, list):
        raise ConfigError(f"{what} must be an object")
    return [
        (str((isinstance(entry, Mapping) and entry.get("name")) or number), entry)
        for number, entry in enumerate(found, 1)
    ]


def _read_inputs(value: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the `inputs` of VS Code by id. They are values that VS Code asks the user for."""
    inputs = value.get("inputs")
    return {
        str(one["id"]): one
        for one in (inputs if isinstance(inputs, list) else ())
        if isinstance(one, Mapping) and "id" in one
    }


def choose(
    servers: Mapping[str, ServerConfig], name: str | None, where: str = "the configuration"
) -> ServerConfig:
    """Return the named server, or the only one that is not disabled."""
    return servers[_choose_name(servers, name, where, 'server="…"')]


def resolve(
    servers: Servers,
    name: str | None,
    where: str = "the configuration",
    environment: Mapping[str, str] | None = None,
    *,
    option: str = 'server="…"',
) -> ChosenServer:
    """Choose a server and fill in its variables. `option` is the option with which a user chooses a
    server, as shown in messages."""
    chosen = _choose_name(servers, name, where, option)
    try:
        config = expand(servers[chosen], environment, servers.variables)
    except ConfigError as error:
        raise ConfigError(f"{where}: server {chosen!r}: {error}") from None
    return ChosenServer(chosen, servers[chosen], config)


def _choose_name(
    servers: Mapping[str, ServerConfig], name: str | None, where: str, option: str
) -> str:
    problems: Mapping[str, str] = getattr(servers, "problems", {})
    known = sorted({*servers, *problems})
    if not known:
        raise ConfigError(f"{where} has no servers")
    if name is None:
        enabled = [one for one in known if one in problems or not servers[one].disabled]
        if not enabled:
            raise ConfigError(f"{where}: all servers are disabled: {', '.join(known)}")
        if len(enabled) > 1:
            raise ConfigError(
                f"{where} has several servers; choose one with {option}: {', '.join(enabled)}"
            )
        name = enabled[0]
    if name in problems:
        raise ConfigError(problems[name])
    if name not in servers:
        raise ConfigError(f"{where} has no server {name!r}; it has {', '.join(known)}")
    if servers[name].disabled:
        raise ConfigError(f"{where}: server {name!r} is disabled. Enable it in the file to use it.")
    return name
