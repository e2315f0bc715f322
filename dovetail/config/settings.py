"""Dovetail's own settings: the `dovetail` object of each server, and the one of the whole file.

    {"mcpServers": {"github": {"url": "https://example.com/mcp",
                               "dovetail": {"prefix": "gh", "tools": {"deny": ["*_delete"]}}}},
     "dovetail": {"search": true, "always": ["gh__*"], "defaults": {"start": "lazy"}}}

Hosts and gateways use these settings. Other programs ignore the key, so an unknown key in it is a
mistake, and an error. Variables such as `${VAR}` are not filled in here.
"""

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct

from ..errors import ConfigError
from ..text import one_line
from .forward import check_forward
from .known_keys import InvalidObject, convert_known

KEY = "dovetail"
DEFAULT_MAX_TOKENS = 4096
MAX_PREFIX_CHARS = 32
_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class ToolChange(Struct, frozen=True, kw_only=True):
    """How callers see a tool of a server: the keys of `RegisteredTool.with_`, except `wrap`."""

    name: str | None = None
    """The name after the prefix; None for the server's own."""
    title: str | None = None
    description: str | None = None
    hide: dict[str, Any] = {}
    """The values of arguments that callers neither see nor pass. They may contain variables."""
    rename: dict[str, str] = {}
    """The new names of arguments."""
    defaults: dict[str, Any] = {}
    """The values of arguments that callers leave out."""

    def __repr__(self) -> str:
        return f"<ToolChange hiding {', '.join(self.hide) or 'nothing'}>"  # without the values


class ToolFilter(Struct, frozen=True, kw_only=True, rename={"changes": "with"}):
    """Which tools of a server are offered, and how callers see them. Patterns are those of
    `fnmatch`, with upper and lower case told apart. All names are those that the server uses."""

    allow: list[str] | None = None
    """Patterns of the tools that are offered; None for all."""
    deny: list[str] = []
    """Patterns of the tools that are not offered, even if `allow` matches."""

    changes: dict[str, ToolChange] = {}
    """The tools that callers see differently (`tools.with`)."""

    @property
    def hidden_values(self) -> list[Any]:
        """The values of hidden arguments as they are written."""
        return [one.hide for one in self.changes.values()]

    @property
    def offers_all(self) -> bool:
        """Whether all tools are offered."""
        return self.allow is None and not self.deny

    def why_refused(self, name: str) -> str | None:
        """Return the setting that excludes a tool, or None if the tool is offered."""
        if any(fnmatchcase(name, pattern) for pattern in self.deny):
            return "tools.deny"
        if self.allow is not None and not any(fnmatchcase(name, one) for one in self.allow):
            return "tools.allow"
        return None


class ServerSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `dovetail` object of one server, on top of the file's defaults."""

    prefix: str | None = None
    """What the names of its tools begin with; None for its name in the file."""
    tools: ToolFilter = ToolFilter()
    trust: bool = False
    """Whether what the server says about its tools (annotations) is believed."""
    share: Literal["all", "user", "caller"] | None = None
    """Which callers share a connection; None for the widest that is safe."""
    start: Literal["eager", "lazy"] = "eager"
    """Whether the server is started at once, or when it is first used."""
    timeout: float | None = None
    """Seconds to wait for each answer."""
    pin: Literal["ask", "warn", "off"] | None = None
    """What happens to a tool that changed; None for the default of a host or gateway."""
    forward: list[str] = []
    """The headers of a caller that are passed on."""
    stateful: bool | None = None
    """Whether the server keeps state per session; None to find out."""
    sampling: bool = True
    """Whether the server may use the model."""
    max_tokens: int = DEFAULT_MAX_TOKENS
    """The most tokens that the server may request from the model at once."""
    capabilities: list[Literal["elicitation", "sampling", "roots"]] = []
    """What a connection that several callers share declares, if its revision has sessions."""


class FileSettings(Struct, frozen=True, kw_only=True):
    """The `dovetail` object of a whole file."""

    search: bool = False
    """Whether callers search for tools instead of listing all of them."""
    always: list[str] = []
    """Patterns of the tools that are listed even with `search`, by the names that callers see."""
    defaults: dict[str, Any] = {}
    """The settings of servers that do not set them themselves."""


def read_file_settings(value: Any) -> FileSettings:
    """Return the settings of a whole file.

    Args:
        value: The `dovetail` object of the file; None if it has none.

    Raises:
        InvalidObject: The object is not valid.
    """
    settings = convert_known({} if value is None else value, FileSettings, f'"{KEY}"')
    if "prefix" in settings.defaults:
        raise InvalidObject(f'"{KEY}.defaults" has a "prefix", but each server needs its own')
    _convert(settings.defaults, (), f'"{KEY}.defaults"')
    return settings


def read_server_settings(
    value: Any, defaults: Mapping[str, Any], headers: Collection[str] = ()
) -> ServerSettings:
    """Return the settings of a server.

    Args:
        value: The `dovetail` object of its entry; None if it has none.
        defaults: The defaults of the file.
        headers: The headers that the entry sets.

    Raises:
        InvalidObject: The object is not valid.
    """
    _convert(value, headers, f'"{KEY}"')  # so that errors are about what the entry says itself
    merged = merge_settings(value, defaults)
    return _convert(merged, headers, f'"{KEY}" with the defaults of the file')


def merge_settings(value: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a server as they are written, on top of the defaults of the file. A
    null counts as absent.

    Args:
        value: The `dovetail` object of its entry; None if it has none.
        defaults: The defaults of the file.
    """
    merged = _drop_nulls(defaults)
    for key, item in _drop_nulls(value or {}).items():
        both = key == "tools" and isinstance(item, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = {**_drop_nulls(merged[key]), **_drop_nulls(item)} if both else item
    return merged


def _drop_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not None}


def read_changes(value: Mapping[str, Any]) -> ToolFilter:
    """Return changes to tools that a program makes, as an entry would.

    Args:
        value: The changes, by the server's own names of the tools.

    Raises:
        ConfigError: A change is not valid.
    """
    try:
        found = _convert_tools({"with": value}, "tools=")
    except InvalidObject as error:
        raise ConfigError(str(error)) from None
    for tool, change in found.changes.items():
        for name, hidden in change.hide.items():
            if callable(hidden):
                raise ConfigError(
                    f"tools=: the hidden value of {name!r} of {tool!r} is a function, but only "
                    "with_ of a tool accepts functions. Pass a JSON value."
                )
    return found


def _convert_tools(value: Any, what: str) -> ToolFilter:
    if isinstance(value, Mapping) and isinstance(changes := value.get("with"), Mapping):
        converted = {
            str(name): convert_known(one, ToolChange, f'{what}: with: "{one_line(str(name))}"')
            for name, one in changes.items()
        }
        value = {**value, "with": converted}
    return convert_known(value, ToolFilter, what)


def _convert(value: Any, headers: Collection[str], what: str) -> ServerSettings:
    if value is None:
        return ServerSettings()
    if isinstance(value, Mapping) and (tools := value.get("tools")) is not None:
        value = {**value, "tools": _convert_tools(tools, f"{what}: tools")}
    settings = convert_known(value, ServerSettings, what)
    prefix = settings.prefix or ""
    if prefix and (len(prefix) > MAX_PREFIX_CHARS or _PREFIX.fullmatch(prefix) is None):
        raise InvalidObject(
            f'{what}: "prefix" must have at most {MAX_PREFIX_CHARS} letters, digits, _ and -, and '
            "start with a letter or _"
        )
    if settings.timeout is not None and not 0 < settings.timeout < float("inf"):
        raise InvalidObject(f'{what}: "timeout" must be a positive number of seconds')
    if settings.max_tokens < 1:
        raise InvalidObject(f'{what}: "maxTokens" must be at least 1')
    if settings.forward and settings.share == "all":
        raise InvalidObject(
            f'{what}: "forward" requires "share": "user" or "caller", because a connection that '
            "all callers share cannot carry the headers of one"
        )
    try:
        check_forward(settings.forward, headers)
    except ConfigError as error:
        raise InvalidObject(f"{what}: {error}") from None
    return settings
