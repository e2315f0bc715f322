"""The applications whose files are read, and how their entries are converted.

To support another host, add a row to `HOSTS`. Most differences are alternative field names
(`ALIASES`), which are accepted in every file. Differences that concern only one host are handled by
its `adapt` function.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

MILLISECONDS = 0.001
ALIASES = {
    "uri": "url",  # Goose
    "serverUrl": "url",  # Windsurf
    "httpUrl": "url",  # Gemini CLI, which prefers it to `url`
    "cmd": "command",  # Goose
    "envs": "env",  # Goose
    "environment": "env",  # OpenCode
    "http_headers": "headers",  # Codex
    "tool_timeout_sec": "timeout",  # Codex
    "startup_timeout_sec": "connectionTimeout",  # Codex
}
"""Alternative field names. If an entry contains several of them, the last in this table takes
precedence."""
AUTH_ALIASES = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret"}
"""Alternative names for the fields of `auth`, as used by Cursor."""

# Variables that only some hosts have. Every file may use `${NAME}` and `${env:NAME}`.
_ANY = re.compile("")
_BRACES = r"\$\{(?P<body>[^}]*)\}"
_DOLLAR = rf"{_BRACES}|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
_SECRETS = rf"\$\{{\{{(?P<secret>[^}}]*)\}}\}}|{_BRACES}"
_GOOSE_VARIABLE = re.compile(r"\$\{\s*(\w+)\s*\}")
_CURLY = rf"{_BRACES}|\{{(?P<reference>(?:env|file):[^}}]*)\}}"


class UnknownEntry(ValueError):
    """An entry is not understood. The message is appended to the name of the server."""


def _adapt_codex(entry: dict[str, Any]) -> None:
    """Adapt an entry from Codex, which does not expand variables but names those to pass on or to
    send in headers."""
    if "bearer_token" in entry:
        raise UnknownEntry("has a bearer_token, which Codex rejects. Use bearer_token_env_var.")
    if isinstance(milliseconds := entry.get("startup_timeout_ms"), int):
        entry.setdefault("connectionTimeout", milliseconds * MILLISECONDS)
    headers = {name: f"${{{variable}}}" for name, variable in _items(entry, "env_http_headers")}
    if "bearer_token_env_var" in entry:
        headers["Authorization"] = f"Bearer ${{{entry['bearer_token_env_var']}}}"
    if headers:
        entry["headers"] = {**dict(_items(entry, "headers")), **headers}
    if isinstance(entry.get("env_vars"), list):
        named = [one if isinstance(one, Mapping) else {"name": one} for one in entry["env_vars"]]
        entry["env_vars"] = [one.get("name") for one in named if one.get("source") != "remote"]


def _adapt_goose(entry: dict[str, Any]) -> None:
    """Adapt an entry from Goose, which fills variables into an extension's headers and runs some
    extensions itself."""
    kind = entry.get("type")
    if kind in ("builtin", "platform", "frontend", "inline_python"):
        raise UnknownEntry(f"has the type {kind}, which runs only inside Goose")
    keys = entry.get("env_keys")
    secrets = {str(key): f"${{{key}}}" for key in (keys if isinstance(keys, list) else ())}
    env = {**secrets, **dict(_items(entry, "env"))}
    if env:
        entry["env"] = env
    if headers := _items(entry, "headers"):
        entry["headers"] = {
            name: _GOOSE_VARIABLE.sub(lambda match: str(env.get(match[1], match[0])), value)
            if isinstance(value, str)
            else value
            for name, value in headers
        }


def _adapt_continue(entry: dict[str, Any]) -> None:
    """Adapt an entry from Continue, which stores the headers in `requestOptions`."""
    if isinstance(entry.get("requestOptions"), Mapping):
        entry.setdefault("headers", entry["requestOptions"].get("headers") or {})


def _adapt_opencode(entry: dict[str, Any]) -> None:
    """Adapt an entry from OpenCode, which may have two timeouts in one field."""
    if isinstance(entry.get("timeout"), Mapping):
        timeouts = entry.pop("timeout")
        entry |= {"timeout": timeouts.get("request"), "connectionTimeout": timeouts.get("startup")}


class HostFormat(Struct, frozen=True, kw_only=True):
    """The format of a host's files."""

    name: str
    key: str = "mcpServers"
    """The key under which a file lists its servers."""
    file: re.Pattern[str] = _ANY
    """A pattern that matches the paths of the host's files, if the key alone does not identify the
    host."""
    unit: float = MILLISECONDS
    """The unit of the host's timeouts, as a number of seconds."""
    pattern: re.Pattern[str] = re.compile(_BRACES)
    """A pattern that matches variables in the host's syntax."""
    words: frozenset[str] = frozenset({"env", "input"})
    """The words that may precede the colon in `${word:…}`."""
    adapt: Callable[[dict[str, Any]], None] | None = None
    """Converts an entry to Dovetail's fields."""


DEFAULT_HOST = HostFormat(name="mcp.json")
"""The format of Claude Desktop, Claude Code, Cursor, Kiro, LM Studio, Copilot CLI and Dovetail."""
HOSTS = (
    HostFormat(name="Cline, Roo Code", file=re.compile(r"mcp_settings\.json$|/\.roo/"), unit=1.0),
    HostFormat(
        name="Windsurf",
        file=re.compile(r"/mcp_config\.json$"),
        words=frozenset({"env", "file"}),
    ),
    HostFormat(
        name="Gemini CLI",
        file=re.compile(r"/\.gemini/|/gemini-extension\.json$"),
        pattern=re.compile(_DOLLAR),
    ),
    HostFormat(
        name="Continue",
        file=re.compile(r"\.ya?ml$|/\.continue/", re.IGNORECASE),
        pattern=re.compile(_SECRETS),
        adapt=_adapt_continue,
    ),
    DEFAULT_HOST,
    HostFormat(name="VS Code", key="servers"),
    HostFormat(name="Zed", key="context_servers", unit=1.0),
    HostFormat(name="Codex", key="mcp_servers", unit=1.0, adapt=_adapt_codex),
    HostFormat(name="Goose", key="extensions", unit=1.0, adapt=_adapt_goose),
    HostFormat(name="OpenCode", key="mcp", pattern=re.compile(_CURLY), adapt=_adapt_opencode),
)
"""The supported hosts. A file belongs to the first host whose key it contains and whose pattern
matches its path."""


def normalize(entry: Any, host: HostFormat) -> dict[str, Any]:
    """Return an entry with the names, units and types of `ServerConfig`.

    Raises:
        UnknownEntry: The entry does not describe a server.
    """
    if not isinstance(entry, Mapping):
        raise UnknownEntry("must be an object")
    fields = {str(key): value for key, value in entry.items() if value is not None}
    for alias, name in ALIASES.items():
        if alias in fields:
            fields[name] = fields.pop(alias)
    if host.adapt is not None:
        host.adapt(fields)
    _split_command(fields)
    for name in ("env", "headers"):
        if isinstance(fields.get(name), Mapping):
            fields[name] = {
                key: _to_text(value) for key, value in fields[name].items() if value is not None
            }
    if isinstance(fields.get("args"), list):
        fields["args"] = [_to_text(value) for value in fields["args"]]
    for name in ("timeout", "connectionTimeout"):
        _convert_time(fields, name, host.unit)
    if isinstance(fields.get("auth"), Mapping):
        fields["auth"] = {
            AUTH_ALIASES.get(name, name): value for name, value in fields["auth"].items()
        }
    if fields.get("enabled") is False:
        fields["disabled"] = True
    return fields


def _split_command(fields: dict[str, Any]) -> None:
    """Accept a command as a list (OpenCode) or as an object (Zed before 2025)."""
    command = fields.get("command")
    if isinstance(command, list) and command and isinstance(fields.get("args", []), list):
        fields["command"], *rest = command
        fields["args"] = [*rest, *fields.get("args", [])]
    elif isinstance(command, Mapping):
        more = {name: command[name] for name in ("args", "env") if command.get(name) is not None}
        fields |= {"command": command.get("path"), **more}


def _convert_time(fields: dict[str, Any], name: str, unit: float) -> None:
    """Convert a time to seconds. None and 0 mean that the file sets no limit."""
    value = fields.get(name)
    if value is None or value == 0:
        fields.pop(name, None)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 < value < float("inf"):
            raise UnknownEntry(f'has a "{name}" that is not a positive number')
        fields[name] = value * unit


def _items(entry: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    """Return the items of a field that should be an object; empty if it is not an object."""
    value = entry.get(name)
    return list(value.items()) if isinstance(value, Mapping) else []


def _to_text(value: Any) -> Any:
    """Return a number or a boolean as the text that a person would write for it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
