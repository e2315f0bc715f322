"""The hosts that `dovetail install` knows: where their files are, and what an entry looks like.

To support another host, add a row to `HOSTS`. The files are a pure function of the system, the
environment and the home folder (`Machine`), so the paths of each system are tested everywhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ..errors import ConfigError
from ..text import closest_name
from .machine import Machine

__all__ = ["HOSTS", "EntryShape", "Format", "HostApp", "Machine", "Scope", "find_host"]

Format = Literal["json", "toml", "yaml"]
Scope = Literal["user", "project", "local"]
"""The user's file; the file of a project; or the part of the user's file for one project."""


class EntryShape(Struct, frozen=True, kw_only=True):
    """What a host calls the fields of an entry. `{name}` in a constant is the server's name."""

    command: str = "command"
    args: str | None = "args"
    """None if the command is a list that includes its arguments."""
    env: str = "env"
    url: str | None = "url"
    """None if the host starts commands only."""
    headers: str = "headers"
    with_command: Mapping[str, Any] = {}
    """Fields that every entry with a command has."""
    with_url: Mapping[str, Any] = {}
    """Fields that every entry with a URL has."""
    in_user_file: Mapping[str, Any] = {}
    """Fields that every entry of the user's file has."""
    reference: str | None = None
    """How a value names an environment variable, such as `${{{}}}`. `{name}` is the server's name.
    None if the host cannot."""
    inputs: bool = False
    """Whether a reference names an element of the list `inputs`, which asks for the value."""
    names: str | None = None
    """The field that lists the names of variables to pass on, if the host has one."""


class HostApp(Struct, frozen=True, kw_only=True):
    """A host: an application that uses MCP servers."""

    id: str
    """Its name on the command line."""
    title: str
    user: tuple[str, ...]
    """Where the user's file may be: the first that exists, or the first."""
    windows: tuple[str, ...] = ()
    """The same on Windows, if it differs."""
    project: tuple[str, ...] = ()
    """Where the file of a project may be."""
    local: tuple[str, ...] = ()
    """The keys in the user's file that lead to the settings of one project, if the host has those.
    `{project}` is the folder of the project."""
    format: Format = "json"
    key: str = "mcpServers"
    shape: EntryShape = EntryShape()
    command: str | None = None
    """Its own command, which can add a server."""
    own_types: tuple[str, ...] = ()
    """The values of `type` in entries for parts of the host itself, which are not servers."""
    processes: tuple[str, ...] = ()
    """The names of its processes, to see whether it runs."""
    after: str = ""
    """What the user has to do before the host shows the server."""

    def candidates(self, machine: Machine, scope: Scope = "user") -> list[Path]:
        """Return the files that the host may use, the preferred one first.

        Raises:
            ConfigError: The host does not have this scope.
        """
        if scope == "local" and not self.local:
            raise ConfigError(f"{self.title} has no local scope. Use --scope user.")
        if scope == "project":
            if not self.project:
                raise ConfigError(f"{self.title} has no file for projects. Use --scope user.")
            return [machine.project / path for path in self.project]
        templates = (self.windows if machine.system == "win32" else ()) or self.user
        folders = machine.folders()
        found: list[Path] = []
        for template in templates:
            path = Path(template.format(**folders))
            found += _expand(path) if "*" in template else [path]
        return found

    def file(self, machine: Machine, scope: Scope = "user") -> Path:
        """Return the file that the host uses: the first that exists, or the preferred one."""
        candidates = self.candidates(machine, scope)
        return next((path for path in candidates if path.exists()), candidates[0])

    def key_path(self, machine: Machine, scope: Scope, name: str) -> tuple[str, ...]:
        """Return the keys that lead to an entry, of which the last one is its name.

        Args:
            machine: Where the files are.
            scope: The file that is meant.
            name: The name of the entry.
        """
        keys = self.local if scope == "local" else ()
        project = str(machine.project)
        return (*(project if key == "{project}" else key for key in keys), self.key, name)

    def is_installed(self, machine: Machine) -> bool:
        """Whether there are signs of the host on this machine: its file, or the folder of it."""
        return any(
            path.exists() or (path.parent != machine.home and path.parent.is_dir())
            for path in self.candidates(machine)
        )


def _expand(pattern: Path) -> list[Path]:
    """Return the paths whose folder with a wildcard exists. The file itself may be missing."""
    at = next(number for number, part in enumerate(pattern.parts) if "*" in part)
    base, rest = Path(*pattern.parts[:at]), pattern.parts[at + 1 :]
    return [Path(one, *rest) for one in sorted(base.glob(pattern.parts[at])) if one.is_dir()]


_RESTART = "Quit {title} completely, and open it again."
_CLINE = "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
_GOOSE = {"name": "{name}", "description": "{name}", "enabled": True, "timeout": 300}

HOSTS = (
    HostApp(
        id="claude-desktop",
        title="Claude Desktop",
        user=("{application}/Claude/claude_desktop_config.json",),
        windows=(
            "{local}/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
            "{application}/Claude/claude_desktop_config.json",
        ),
        shape=EntryShape(url=None),
        processes=("Claude", "claude-desktop", "Claude.exe"),
        after=_RESTART,
    ),
    HostApp(
        id="claude-code",
        title="Claude Code",
        user=("{claude}/.claude.json",),
        project=(".mcp.json",),
        local=("projects", "{project}"),
        shape=EntryShape(with_url={"type": "http"}, reference="${{{}}}"),
        command="claude",
        processes=("claude", "claude.exe"),
        after="Start a new session of Claude Code. `/mcp` lists the server.",
    ),
    HostApp(
        id="cursor",
        title="Cursor",
        user=("{home}/.cursor/mcp.json",),
        project=(".cursor/mcp.json",),
        shape=EntryShape(reference="${{env:{}}}"),
        processes=("Cursor", "cursor", "Cursor.exe"),
        after="Cursor asks whether to enable the server, or lists it in its settings under MCP.",
    ),
    HostApp(
        id="vscode",
        title="VS Code",
        user=("{application}/Code/User/mcp.json",),
        project=(".vscode/mcp.json",),
        key="servers",
        shape=EntryShape(
            with_command={"type": "stdio"},
            with_url={"type": "http"},
            reference="${{input:{name}-{}}}",
            inputs=True,
        ),
        command="code",
        processes=("code", "Code", "Code.exe", "Electron"),
        after="VS Code asks whether you trust the server when it starts it. "
        "`MCP: List Servers` in the command palette shows it.",
    ),
    HostApp(
        id="codex",
        title="Codex",
        user=("{codex}/config.toml",),
        project=(".codex/config.toml",),
        format="toml",
        key="mcp_servers",
        shape=EntryShape(headers="http_headers", names="env_vars"),
        command="codex",
        processes=("codex", "codex.exe"),
        after="Start a new session of Codex. `/mcp` lists the server.",
    ),
    HostApp(
        id="windsurf",
        title="Windsurf",
        user=("{home}/.codeium/windsurf/mcp_config.json",),
        shape=EntryShape(url="serverUrl", reference="${{env:{}}}"),
        processes=("Windsurf", "windsurf", "Windsurf.exe"),
        after="Press Refresh in the list of MCP servers in Windsurf's settings.",
    ),
    HostApp(
        id="zed",
        title="Zed",
        user=("{config}/zed/settings.json",),
        windows=("{application}/Zed/settings.json",),
        project=(".zed/settings.json",),
        key="context_servers",
        shape=EntryShape(with_command={"source": "custom"}, with_url={"source": "custom"}),
        processes=("zed", "zed-editor", "Zed.exe"),
        after="Zed starts the server at once. Its agent panel lists it.",
    ),
    HostApp(
        id="gemini-cli",
        title="Gemini CLI",
        user=("{home}/.gemini/settings.json",),
        project=(".gemini/settings.json",),
        shape=EntryShape(url="httpUrl", reference="${{{}}}"),
        processes=("gemini",),
        after="Start a new session of Gemini CLI. `/mcp` lists the server.",
    ),
    HostApp(
        id="goose",
        title="Goose",
        user=("{config}/goose/config.yaml",),
        windows=("{application}/Block/goose/config/config.yaml",),
        format="yaml",
        key="extensions",
        shape=EntryShape(
            command="cmd",
            env="envs",
            url="uri",
            with_command={"type": "stdio", **_GOOSE},
            with_url={"type": "streamable_http", **_GOOSE},
            names="env_keys",
        ),
        own_types=("builtin", "platform", "frontend", "inline_python"),
        processes=("goose", "Goose", "goosed"),
        after="Start a new session of Goose.",
    ),
    HostApp(
        id="lm-studio",
        title="LM Studio",
        user=("{home}/.lmstudio/mcp.json", "{home}/.cache/lm-studio/mcp.json"),
        processes=("LM Studio", "lm-studio", "LM Studio.exe"),
        after="LM Studio lists the server under Integrations. Switch it on there.",
    ),
    HostApp(
        id="cline",
        title="Cline",
        user=(
            "{application}/Code/User/" + _CLINE,
            "{cline}/data/settings/cline_mcp_settings.json",
        ),
        shape=EntryShape(with_url={"type": "streamableHttp"}),
        processes=("cline",),
        after="Cline lists the server under MCP Servers, Installed.",
    ),
    HostApp(
        id="copilot-cli",
        title="Copilot CLI",
        user=("{copilot}/mcp-config.json",),
        project=(".mcp.json", ".github/mcp.json"),
        shape=EntryShape(
            with_command={"type": "stdio"}, with_url={"type": "http"}, in_user_file={"tools": ["*"]}
        ),
        processes=("copilot",),
        after="Start a new session of Copilot CLI. `/mcp show` lists the server.",
    ),
    HostApp(
        id="kiro",
        title="Kiro",
        user=("{home}/.kiro/settings/mcp.json",),
        project=(".kiro/settings/mcp.json",),
        processes=("Kiro", "kiro", "Kiro.exe"),
        after="Kiro lists the server in its MCP panel.",
    ),
    HostApp(
        id="opencode",
        title="OpenCode",
        user=("{any_config}/opencode/opencode.jsonc", "{any_config}/opencode/opencode.json"),
        project=(
            "opencode.jsonc",
            "opencode.json",
            ".opencode/opencode.jsonc",
            ".opencode/opencode.json",
        ),
        key="mcp",
        shape=EntryShape(
            args=None,
            env="environment",
            with_command={"type": "local", "enabled": True},
            with_url={"type": "remote", "enabled": True},
            reference="{{env:{}}}",
        ),
        processes=("opencode",),
        after="Start OpenCode again.",
    ),
)
"""The hosts, in the order in which they are listed."""
_BY_ID = {host.id: host for host in HOSTS}


def find_host(name: str) -> HostApp:
    """Return the host with a name; capitals, spaces and hyphens do not matter.

    Raises:
        ConfigError: There is no such host.
    """
    plain = "".join(character for character in name.lower() if character.isalnum())
    for host in HOSTS:
        if plain in ("".join(filter(str.isalnum, one.lower())) for one in (host.id, host.title)):
            return host
    guess = closest_name(name, _BY_ID)
    meant = f" Did you mean {guess}?" if guess else ""
    raise ConfigError(f"There is no host {name!r}.{meant} Hosts: {', '.join(_BY_ID)}.")
