"""A server in the form of each host, which Dovetail itself reads back as the same server."""

from pathlib import Path
from typing import Any

import pytest

from dovetail import config
from dovetail.config import ServerConfig
from dovetail.errors import ConfigError
from dovetail.host_configs.host_entry import can_reference, to_entry
from dovetail.host_configs.hosts import HOSTS, HostApp, Machine, find_host

HOME = Path("/home/ada")
COMMAND = ServerConfig(command="/usr/bin/uvx", args=["weather", "--fast"], env={"UNITS": "metric"})
URL = ServerConfig(url="https://example.com/mcp", headers={"X-Team": "blue"})
PLAIN = {"command": "/usr/bin/uvx", "args": ["weather", "--fast"], "env": {"UNITS": "metric"}}
PLAIN_URL = {"url": "https://example.com/mcp", "headers": {"X-Team": "blue"}}
COMMANDS: dict[str, Any] = {
    "claude-desktop": PLAIN,
    "claude-code": PLAIN,
    "cursor": PLAIN,
    "vscode": {"type": "stdio", **PLAIN},
    "codex": PLAIN,
    "windsurf": PLAIN,
    "zed": {"source": "custom", **PLAIN},
    "gemini-cli": PLAIN,
    "goose": {
        "name": "weather",
        "description": "weather",
        "type": "stdio",
        "enabled": True,
        "timeout": 300,
        "cmd": "/usr/bin/uvx",
        "args": ["weather", "--fast"],
        "envs": {"UNITS": "metric"},
    },
    "lm-studio": PLAIN,
    "cline": PLAIN,
    "copilot-cli": {"type": "stdio", **PLAIN, "tools": ["*"]},
    "kiro": PLAIN,
    "opencode": {
        "type": "local",
        "enabled": True,
        "command": ["/usr/bin/uvx", "weather", "--fast"],
        "environment": {"UNITS": "metric"},
    },
}
URLS: dict[str, Any] = {
    "claude-code": {"type": "http", **PLAIN_URL},
    "cursor": PLAIN_URL,
    "vscode": {"type": "http", **PLAIN_URL},
    "codex": {"url": "https://example.com/mcp", "http_headers": {"X-Team": "blue"}},
    "windsurf": {"serverUrl": "https://example.com/mcp", "headers": {"X-Team": "blue"}},
    "zed": {"source": "custom", **PLAIN_URL},
    "gemini-cli": {"httpUrl": "https://example.com/mcp", "headers": {"X-Team": "blue"}},
    "goose": {
        "name": "weather",
        "description": "weather",
        "type": "streamable_http",
        "enabled": True,
        "timeout": 300,
        "uri": "https://example.com/mcp",
        "headers": {"X-Team": "blue"},
    },
    "lm-studio": PLAIN_URL,
    "cline": {"type": "streamableHttp", **PLAIN_URL},
    "copilot-cli": {"type": "http", **PLAIN_URL, "tools": ["*"]},
    "kiro": PLAIN_URL,
    "opencode": {"type": "remote", "enabled": True, **PLAIN_URL},
}
REFERENCES: dict[str, Any] = {
    "claude-code": {"env": {"KEY": "${KEY}"}},
    "cursor": {"env": {"KEY": "${env:KEY}"}},
    "vscode": {"env": {"KEY": "${input:weather-KEY}"}},
    "codex": {"env_vars": ["KEY"]},
    "windsurf": {"env": {"KEY": "${env:KEY}"}},
    "gemini-cli": {"env": {"KEY": "${KEY}"}},
    "goose": {"env_keys": ["KEY"]},
    "opencode": {"environment": {"KEY": "{env:KEY}"}},
}
each_host = pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.id)


def read_back(host: HostApp, entry: dict[str, Any]) -> ServerConfig:
    path = host.file(Machine("linux", {}, HOME, HOME))
    return config.parse({host.key: {"weather": entry}}, str(path), path)["weather"]


@each_host
def test_a_command_has_the_form_of_the_host_and_is_read_back(host: HostApp) -> None:
    entry = to_entry(COMMAND, host, "weather")
    assert entry == COMMANDS[host.id]
    server = read_back(host, entry)
    assert (server.command, server.args, server.env) == (COMMAND.command, COMMAND.args, COMMAND.env)


@each_host
def test_a_url_has_the_form_of_the_host_and_is_read_back(host: HostApp) -> None:
    if host.id not in URLS:
        with pytest.raises(ConfigError, match="starts commands only"):
            to_entry(URL, host, "weather")
        return
    entry = to_entry(URL, host, "weather")
    assert entry == URLS[host.id]
    server = read_back(host, entry)
    assert (server.url, server.headers) == (URL.url, URL.headers)


@each_host
def test_a_variable_is_named_if_the_host_can_do_that(host: HostApp) -> None:
    server = ServerConfig(command="/usr/bin/uvx", env_vars=["KEY"])
    assert can_reference(host) == (host.id in REFERENCES)
    if not can_reference(host):
        with pytest.raises(ConfigError, match="has to contain the value of KEY"):
            to_entry(server, host, "weather")
        return
    entry = to_entry(server, host, "weather")
    assert REFERENCES[host.id].items() <= entry.items()


@each_host
def test_empty_fields_are_left_out_except_for_the_arguments(host: HostApp) -> None:
    """Goose and Zed refuse an entry without arguments."""
    entry = to_entry(ServerConfig(command="/bin/weather"), host, "weather")
    if host.shape.args is not None:
        assert entry.pop(host.shape.args) == []
    assert all(value not in (None, {}, []) for value in entry.values())


def test_an_entry_of_a_project_has_no_fields_of_the_users_file() -> None:
    assert "tools" not in to_entry(COMMAND, find_host("copilot-cli"), "weather", scope="project")
