"""Where the files of each host are, on each system, and which host a name means."""

from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.host_configs.hosts import HOSTS, HostApp, Machine, find_host

HOME = Path("/home/ada")
MAC = "Library/Application Support"
CLINE = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
USER_FILES = {  # host: Linux, macOS, Windows; below the home folder
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        f"{MAC}/Claude/claude_desktop_config.json",
        "AppData/Roaming/Claude/claude_desktop_config.json",
    ),
    "claude-code": (".claude.json",) * 3,
    "cursor": (".cursor/mcp.json",) * 3,
    "vscode": (
        ".config/Code/User/mcp.json",
        f"{MAC}/Code/User/mcp.json",
        "AppData/Roaming/Code/User/mcp.json",
    ),
    "codex": (".codex/config.toml",) * 3,
    "windsurf": (".codeium/windsurf/mcp_config.json",) * 3,
    "zed": (
        ".config/zed/settings.json",
        ".config/zed/settings.json",
        "AppData/Roaming/Zed/settings.json",
    ),
    "gemini-cli": (".gemini/settings.json",) * 3,
    "goose": (
        ".config/goose/config.yaml",
        ".config/goose/config.yaml",
        "AppData/Roaming/Block/goose/config/config.yaml",
    ),
    "lm-studio": (".lmstudio/mcp.json",) * 3,
    "cline": (
        f".config/Code/{CLINE}",
        f"{MAC}/Code/{CLINE}",
        f"AppData/Roaming/Code/{CLINE}",
    ),
    "copilot-cli": (".copilot/mcp-config.json",) * 3,
    "kiro": (".kiro/settings/mcp.json",) * 3,
    "opencode": (".config/opencode/opencode.jsonc",) * 3,
}
PROJECT_FILES = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "zed": ".zed/settings.json",
    "gemini-cli": ".gemini/settings.json",
    "copilot-cli": ".mcp.json",
    "kiro": ".kiro/settings/mcp.json",
    "opencode": "opencode.jsonc",
}
each_host = pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.id)


def machine(system: str = "linux", home: Path = HOME, **environ: str) -> Machine:
    return Machine(system, environ, home, home / "project")


@each_host
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_every_host_has_its_file_on_every_system(host: HostApp, system: str) -> None:
    expected = USER_FILES[host.id][["linux", "darwin", "win32"].index(system)]
    assert host.file(machine(system)) == HOME / expected


@each_host
def test_a_host_has_a_file_for_projects_or_says_that_it_has_none(host: HostApp) -> None:
    if host.id in PROJECT_FILES:
        assert host.file(machine(), "project") == HOME / "project" / PROJECT_FILES[host.id]
    else:
        with pytest.raises(ConfigError, match=f"{host.title} has no file for projects"):
            host.file(machine(), "project")


def test_folders_of_the_environment_are_used() -> None:
    moved = machine(XDG_CONFIG_HOME="/c", CODEX_HOME="/x")
    assert find_host("zed").file(moved) == Path("/c/zed/settings.json")
    assert find_host("codex").file(moved) == Path("/x/config.toml")
    windows = machine("win32", APPDATA="/roaming")
    assert find_host("vscode").file(windows) == Path("/roaming/Code/User/mcp.json")
    mac = machine("darwin", XDG_CONFIG_HOME="/c")
    assert find_host("zed").file(mac) == HOME / ".config/zed/settings.json", "only on Linux"


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
@pytest.mark.parametrize(
    ("host", "variable", "file"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("copilot-cli", "COPILOT_HOME", "mcp-config.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.jsonc"),
    ],
)
def test_a_host_can_be_moved_by_its_own_variable(
    system: str, host: str, variable: str, file: str
) -> None:
    assert find_host(host).file(machine(system, **{variable: "/moved"})) == Path("/moved", file)


def test_the_command_line_of_cline_can_be_moved(tmp_path: Path) -> None:
    file = tmp_path / "data/settings/cline_mcp_settings.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert find_host("cline").file(machine(CLINE_DIR=str(tmp_path))) == file


def test_a_project_of_opencode_may_have_its_file_in_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "project/.opencode/opencode.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert find_host("opencode").file(machine(home=tmp_path), "project") == file


def test_the_file_that_exists_is_used(tmp_path: Path) -> None:
    older = tmp_path / ".cache/lm-studio/mcp.json"
    older.parent.mkdir(parents=True)
    older.write_text("{}")
    assert find_host("lm-studio").file(machine(home=tmp_path)) == older


def test_claude_from_the_windows_store_has_its_own_folder(tmp_path: Path) -> None:
    packages = tmp_path / "AppData/Local/Packages"
    (packages / "Claude_pzs8sxrjxfjjc").mkdir(parents=True)
    expected = "Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json"
    assert find_host("claude-desktop").file(machine("win32", tmp_path)) == packages / expected


def test_a_host_is_installed_if_its_file_or_its_folder_exists(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".claude.json").write_text("{}")
    found = {host.id for host in HOSTS if host.is_installed(machine(home=tmp_path))}
    assert found == {"cursor", "claude-code"}


@pytest.mark.parametrize(
    "name", ["claude-desktop", "Claude Desktop", "claudedesktop", "CLAUDE_DESKTOP"]
)
def test_a_host_is_found_however_its_name_is_written(name: str) -> None:
    assert find_host(name).id == "claude-desktop"


def test_an_unknown_host_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        ConfigError, match=r"There is no host 'cursr'\. Did you mean cursor\? Hosts: "
    ):
        find_host("cursr")
