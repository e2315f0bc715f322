"""The files of each host, written as its own documentation shows them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.config import ServerConfig, choose, parse, read, resolve
from dovetail.errors import ConfigError

ENVIRONMENT = {"TOKEN": "sesame", "HOME_PAGE": "https://example.com"}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def used(path: Path, name: str | None = None, **environment: str) -> ServerConfig:
    return resolve(read(path), name, path.name, ENVIRONMENT | environment).config


def refused(path: Path, name: str | None = None, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        used(path, name, **environment)
    return str(caught.value)


# Each host.


def test_vs_code(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ".vscode/mcp.json",
        """{
    // asked for once
    "inputs": [
        {"type": "promptString", "id": "perplexity-key", "description": "Key", "password": true},
        {"type": "promptString", "id": "region", "description": "Region", "default": "eu"}
    ],
    "servers": {
        "perplexity": {
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "server-perplexity-ask", "${input:region}"],
            "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "OFF": null},
            "cwd": "${workspaceFolder}/tools",
        },
        "remote": {"type": "http", "url": "https://example.com/mcp",
                   "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
    },
}""",
    )
    assert used(path, "perplexity", INPUT_PERPLEXITY_KEY="k") == ServerConfig(
        command="npx",
        args=["-y", "server-perplexity-ask", "eu"],
        env={"PERPLEXITY_API_KEY": "k"},
        cwd=f"{tmp_path}/tools",
    )
    assert used(path, "remote").headers == {"Authorization": "Bearer sesame"}
    assert refused(path, "perplexity") == (
        "mcp.json: server 'perplexity': VS Code asks the user for ${input:perplexity-key}. Set "
        "the environment variable INPUT_PERPLEXITY_KEY to its value."
    )


def test_cursor(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ".cursor/mcp.json",
        """{"mcpServers": {
            "local": {"command": "${userHome}/bin/server", "args": ["${workspaceFolder}${/}data"],
                      "env": {"KEY": "${env:TOKEN}"}, "envFile": ".env"},
            "oauth": {"url": "https://example.com/mcp",
                      "auth": {"CLIENT_ID": "desk", "CLIENT_SECRET": "${env:TOKEN}",
                               "scopes": ["read"]}}}}""",
    )
    write(tmp_path, ".env", "LEVEL=debug\nKEY=other\n")
    local = used(path, "local")
    assert local.command == f"{Path.home()}/bin/server"
    assert local.args == [str(tmp_path / "data")]
    assert local.env == {"LEVEL": "debug", "KEY": "sesame"}  # env takes precedence
    auth = used(path, "oauth").auth
    assert not isinstance(auth, str) and auth is not None
    assert (auth.client_id, auth.client_secret, auth.scopes) == ("desk", "sesame", ["read"])


def test_windsurf(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "windsurf/mcp_config.json",
        """{"mcpServers": {"remote": {"serverUrl": "https://example.com/mcp",
            "headers": {"Authorization": "Bearer ${env:TOKEN}", "X-Key": "${file:key.txt}"}}}}""",
    )
    write(tmp_path, "windsurf/key.txt", "from a file\n")
    assert used(path) == ServerConfig(
        url="https://example.com/mcp",
        headers={"Authorization": "Bearer sesame", "X-Key": "from a file"},
    )


def test_gemini_cli(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ".gemini/settings.json",
        """{"theme": "x", "mcpServers": {
            "python": {"command": "python", "args": ["-m", "server"], "cwd": "./servers",
                       "env": {"A": "$TOKEN", "B": "${TOKEN}"}, "timeout": 15000, "trust": true},
            "http": {"httpUrl": "https://example.com/mcp", "url": "https://example.com/sse",
                     "headers": {"Authorization": "Bearer $TOKEN"}}}}""",
    )
    python = used(path, "python")
    assert python.env == {"A": "sesame", "B": "sesame"}
    assert python.timeout == 15.0
    http = used(path, "http")
    assert (http.url, http.headers) == (
        "https://example.com/mcp",
        {"Authorization": "Bearer sesame"},
    )


def test_zed(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "zed/settings.json",
        """// Zed settings
{
  "context_servers": {
    "local": {"source": "custom", "command": "some-command", "args": ["a"], "env": {},
              "timeout": 30, "enabled": true},
    "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer x"}},
    "older": {"command": {"path": "p", "args": ["b"], "env": {"K": "v"}}, "settings": {}},
    "extension": {"source": "extension", "settings": {"database_url": "x"}},
    "off": {"command": "c", "enabled": false},
  },
}""",
    )
    assert used(path, "local") == ServerConfig(command="some-command", args=["a"], timeout=30.0)
    assert used(path, "remote").url == "https://example.com/mcp"
    assert used(path, "older") == ServerConfig(command="p", args=["b"], env={"K": "v"})
    assert refused(path, "extension").endswith('requires either a "command" or a "url"')
    assert "disabled" in refused(path, "off")


def test_codex(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ".codex/config.toml",
        """
model = "x"

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs-server"]
env_vars = ["TOKEN", "NOT_SET", { name = "FAR_AWAY", source = "remote" }]
startup_timeout_sec = 20
tool_timeout_sec = 1.5

[mcp_servers.docs.env]
LEVEL = "debug"

[mcp_servers.figma]
url = "https://example.com/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Key" = "TOKEN" }
startup_timeout_ms = 500

[mcp_servers.inline]
url = "https://example.com/mcp"
bearer_token = "hush"

[mcp_servers.off]
command = "c"
enabled = false
""",
    )
    assert used(path, "docs") == ServerConfig(
        command="npx",
        args=["-y", "docs-server"],
        env={"TOKEN": "sesame", "LEVEL": "debug"},
        timeout=1.5,
        open_timeout=20.0,
    )
    figma = used(path, "figma")
    assert figma.headers == {
        "X-Region": "eu",
        "X-Key": "sesame",
        "Authorization": "Bearer sesame",
    }
    assert figma.open_timeout == 0.5
    assert "bearer_token_env_var" in refused(path, "inline")
    assert "hush" not in refused(path, "inline")
    assert "disabled" in refused(path, "off")


def test_goose(tmp_path: Path) -> None:
    pytest.importorskip("ruamel.yaml")
    path = write(
        tmp_path,
        "goose/config.yaml",
        """
GOOSE_PROVIDER: anthropic
extensions:
  developer:
    type: builtin
    enabled: true
    timeout: 300
  github:
    name: GitHub
    type: stdio
    cmd: npx
    args: [-y, server-github]
    enabled: true
    envs:
      LEVEL: debug
      PORT: 80
    env_keys: [TOKEN]
    timeout: 300
  remote:
    type: streamable_http
    uri: https://example.com/mcp
    envs: {REGION: eu}
    env_keys: [TOKEN]
    headers:
      Authorization: Bearer ${TOKEN}
      X-Region: ${REGION}
    enabled: true
""",
    )
    assert used(path, "github") == ServerConfig(
        command="npx",
        args=["-y", "server-github"],
        env={"TOKEN": "sesame", "LEVEL": "debug", "PORT": "80"},
        timeout=300.0,
    )
    assert used(path, "remote").headers == {"Authorization": "Bearer sesame", "X-Region": "eu"}
    assert refused(path, "developer").endswith("has the type builtin, which runs only inside Goose")


def test_continue(tmp_path: Path) -> None:
    pytest.importorskip("ruamel.yaml")
    path = write(
        tmp_path,
        ".continue/mcpServers/tools.yaml",
        """
name: Tools
version: 0.0.1
schema: v1
mcpServers:
  - name: SQLite MCP
    command: npx
    args:
      - -y
      - --access-token
      - ${{ secrets.TOKEN }}
    env:
      KEY: ${{ secrets.FROM_FILE }}
      BOTH: ${{ inputs.TOKEN }}
    cwd: /data
    connectionTimeout: 5000
  - name: Remote
    type: streamable-http
    url: https://example.com/mcp
    requestOptions:
      headers:
        Authorization: Bearer ${{ secrets.TOKEN }}
  - uses: someone/something
""",
    )
    write(tmp_path, ".continue/.env", "FROM_FILE='in continue'\nTOKEN=not this one\n")
    write(tmp_path, ".env", "FROM_FILE=in the project\n")
    assert used(path, "SQLite MCP") == ServerConfig(
        command="npx",
        args=["-y", "--access-token", "sesame"],
        env={"KEY": "in continue", "BOTH": "sesame"},
        cwd="/data",
        open_timeout=5.0,
    )
    assert used(path, "Remote").headers == {"Authorization": "Bearer sesame"}
    assert "'3'" in refused(path, "3")


def test_opencode(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "opencode.jsonc",
        """{
  "mcp": {
    "local": {"type": "local", "command": ["bun", "x", "server"], "enabled": true,
              "environment": {"KEY": "{env:TOKEN}"}, "timeout": 10000},
    "remote": {"type": "remote", "url": "https://example.com/mcp",
               "headers": {"Authorization": "Bearer {file:key.txt}"},
               "timeout": {"startup": 1000, "request": 2000}}, // new
  },
}""",
    )
    write(tmp_path, "key.txt", "k\n")
    assert used(path, "local") == ServerConfig(
        command="bun", args=["x", "server"], env={"KEY": "sesame"}, timeout=10.0
    )
    assert used(path, "remote") == ServerConfig(
        url="https://example.com/mcp",
        headers={"Authorization": "Bearer k"},
        timeout=2.0,
        open_timeout=1.0,
    )


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("mcp.json", 0.09),
        (".mcp.json", 0.09),
        ("claude_desktop_config.json", 0.09),
        (".kiro/settings/mcp.json", 0.09),
        ("cline_mcp_settings.json", 90.0),
        (".roo/mcp.json", 90.0),
    ],
)
def test_a_timeout_has_the_unit_of_the_host(tmp_path: Path, name: str, seconds: float) -> None:
    path = write(tmp_path, name, '{"mcpServers": {"a": {"command": "x", "timeout": 90}}}')
    assert used(path).timeout == seconds


def test_claude_code(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ".mcp.json",
        """{"mcpServers": {"api": {"type": "http", "url": "${HOME_PAGE:-https://other}/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}", "X": "${NOT_SET:-none}"}}}}""",
    )
    assert used(path) == ServerConfig(
        url="https://example.com/mcp", headers={"Authorization": "Bearer sesame", "X": "none"}
    )


# Entries as people write them.


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"command": "x", "env": None, "args": None, "cwd": None}, ServerConfig(command="x")),
        ({"command": "x", "env": {"A": 80}}, ServerConfig(command="x", env={"A": "80"})),
        ({"command": "x", "env": {"A": 1.5}}, ServerConfig(command="x", env={"A": "1.5"})),
        ({"command": "x", "env": {"A": True}}, ServerConfig(command="x", env={"A": "true"})),
        ({"command": "x", "env": {"A": None}}, ServerConfig(command="x")),
        ({"command": "x", "args": ["-p", 80]}, ServerConfig(command="x", args=["-p", "80"])),
        ({"command": "x", "timeout": 0}, ServerConfig(command="x")),
        ({"command": "x", "timeout": None}, ServerConfig(command="x")),
        ({"command": "x", "url": None}, ServerConfig(command="x")),
        ({"url": "u", "headers": {"A": 1}}, ServerConfig(url="u", headers={"A": "1"})),
    ],
)  # fmt: skip
def test_values_that_say_nothing_or_are_numbers_are_read(
    entry: Any, expected: ServerConfig
) -> None:
    assert parse({"mcpServers": {"a": entry}})["a"] == expected


BAD = [
    None, 3, "uvx weather", [], ["uvx"], {}, {"command": 3}, {"command": []}, {"command": {}},
    {"command": "x", "args": "y"}, {"command": "x", "args": [[]]}, {"command": ["x"], "args": 3},
    {"command": "x", "env": ["A=1"]}, {"command": "x", "env": {"A": {}}},
    {"command": "x", "timeout": "soon"}, {"command": "x", "timeout": -1},
    {"command": "x", "timeout": True}, {"command": "x", "disabled": "no"},
    {"url": "https://x", "command": "x"}, {"url": "https://x", "headers": "A: b"},
    {"url": "https://x", "auth": {"password": "hush"}}, {"url": 3},
    {"url": "https://x", "env_http_headers": [], "env_vars": [3], "env_keys": [[]]},
    {"command": "x", "startup_timeout_ms": "x", "env_vars": 3},
]  # fmt: skip


@pytest.mark.parametrize("key", ["mcpServers", "servers", "mcp_servers", "extensions", "mcp"])
@pytest.mark.parametrize("entry", BAD, ids=repr)
def test_an_entry_that_is_not_understood_affects_only_itself(key: str, entry: Any) -> None:
    servers = parse({key: {"bad": entry, "good": {"command": "x"}}}, "mcp.json")
    assert choose(servers, "good") == ServerConfig(command="x")
    if "bad" not in servers:  # some hosts have no such field, so it is ignored
        with pytest.raises(ConfigError) as caught:
            choose(servers, "bad", "mcp.json")
        assert str(caught.value).startswith("mcp.json: server 'bad' ")
        assert "hush" not in str(caught.value)


def test_an_entry_that_is_not_understood_still_has_to_be_chosen_from() -> None:
    servers = parse({"mcpServers": {"bad": 3, "good": {"command": "x"}}}, "mcp.json")
    with pytest.raises(ConfigError, match=r"several servers; choose one .*: bad, good"):
        choose(servers, None, "mcp.json")


def test_a_disabled_server_is_not_chosen() -> None:
    entries = {"off": {"command": "a", "disabled": True}, "on": {"command": "b"}}
    servers = parse({"mcpServers": entries}, "mcp.json")
    assert choose(servers, None).command == "b"
    with pytest.raises(ConfigError, match="server 'off' is disabled"):
        choose(servers, "off", "mcp.json")
    del servers["on"]
    with pytest.raises(ConfigError, match=r"mcp\.json: all servers are disabled: off"):
        choose(servers, None, "mcp.json")


def test_null_is_an_empty_list_of_servers_and_anything_else_is_an_error() -> None:
    assert parse({"mcpServers": None}) == {}
    with pytest.raises(ConfigError, match='"mcpServers" must be an object'):
        parse({"mcpServers": "x"}, "mcp.json")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "x = [", "is not valid TOML: "),
        ("a.toml", "a = " + "[" * 5000, "is not valid TOML: "),
        ("a.toml", "x = 1", 'has no "servers" or "mcp_servers"'),
        ("a.yaml", "a: [", "is not valid YAML: line 1"),
        ("a.yaml", "a: &x 1\nb: *x", "is not valid YAML: line 1, column 4: anchors"),
        ("a.yml", "a: 1", 'has no "extensions"'),
        ("a.json", "[" * 100_000, "is not valid JSON: line 1, column 101: nested deeper"),
        ("a.json", '{"mcpServers": {"a": {"env": {"K": "hush"', "is not valid JSON: line 1"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    if name.endswith(("yaml", "yml")):
        pytest.importorskip("ruamel.yaml")
    path = write(tmp_path, name, text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} {message}")
    assert "hush" not in str(caught.value)


def test_a_file_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.config.files.MAX_FILE_BYTES", 2**20)
    path = write(tmp_path, "mcp.json", json.dumps({"mcpServers": {}, "x": " " * 2**20}))
    with pytest.raises(ConfigError, match="is larger than 1 MiB"):
        read(path)


def test_without_the_extra_a_yaml_file_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ruamel.yaml.error", None)
    path = write(tmp_path, "config.yaml", "extensions: {}\n")
    with pytest.raises(ConfigError, match=r"dovetail-mcp\[skills\]"):
        read(path)
