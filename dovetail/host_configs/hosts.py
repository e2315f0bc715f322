"""The hosts that `dovetail install` knows. To support another host, add a row to `HOSTS`."""

from ..errors import ConfigError
from ..text import closest_name
from .host_app import EntryShape, Format, HostApp, Scope
from .machine import Machine

__all__ = [
    "HOSTS",
    "EntryShape",
    "Format",
    "HostApp",
    "Machine",
    "Scope",
    "find_host",
    "match_host",
]

_RESTART = "Quit {title} completely, and open it again."
_TRUST = "{title} reads the file of a project only if you trust the folder."
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
        in_project="{title} will ask for your approval when it starts in this folder.",
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
        in_project=_TRUST,
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
        in_project=_TRUST,
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
        after="Open the Program tab of LM Studio, which lists the server. Switch it on there.",
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
        in_project=_TRUST,
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


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def match_host(name: str) -> HostApp | None:
    """Return the host with a name, or None; capitals, spaces and hyphens do not matter."""
    plain = _plain(name)
    return next((one for one in HOSTS if plain in (_plain(one.id), _plain(one.title))), None)


def find_host(name: str) -> HostApp:
    """Return the host with a name; capitals, spaces and hyphens do not matter.

    Raises:
        ConfigError: There is no such host.
    """
    if (host := match_host(name)) is not None:
        return host
    plain = _plain(name)
    guesses = [one for one in _BY_ID if plain and _plain(one).startswith(plain)]
    guess = " or ".join(guesses) or closest_name(name, _BY_ID)
    meant = f" Did you mean {guess}?" if guess else ""
    raise ConfigError(f"There is no host {name!r}.{meant} Hosts: {', '.join(_BY_ID)}.")
