"""The servers of all hosts in one file: none is lost, and each starts from any folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.host_configs.export import merge
from dovetail.host_configs.hosts import Machine, Scope, find_host
from dovetail.host_configs.survey import survey


class Hosts:
    """Files of hosts in a home folder, which has a project."""

    def __init__(self, home: Path) -> None:
        self.project = home / "project"
        self.machine = Machine("linux", {}, home, self.project)

    def write(self, host: str, scope: Scope, servers: dict[str, Any], **more: Any) -> None:
        app = find_host(host)
        file = app.file(self.machine, scope)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({app.key: servers, **more}))

    def export(self) -> dict[str, Any]:
        return merge(survey(self.machine))


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_three_servers_of_one_name_get_three_names(hosts: Hosts) -> None:
    hosts.write("claude-desktop", "user", {"b": {"command": "/bin/one"}})
    hosts.write("cursor", "user", {"b": {"command": "/bin/two"}})
    hosts.write("cursor", "project", {"b": {"command": "/bin/three"}})
    commands = {name: one["command"] for name, one in hosts.export()["mcpServers"].items()}
    assert commands == {"b": "/bin/one", "b-cursor": "/bin/two", "b-cursor-2": "/bin/three"}


def test_a_server_that_several_hosts_have_is_exported_once(hosts: Hosts) -> None:
    for host in ("claude-desktop", "cursor", "vscode"):
        hosts.write(host, "user", {"a": {"command": "/bin/one", "args": []}})
    assert list(hosts.export()["mcpServers"]) == ["a"]


def test_a_gateway_of_a_file_is_left_out_and_that_of_a_url_stays(hosts: Hosts) -> None:
    run = ["-m", "dovetail", "gateway"]
    hosts.write(
        "cursor",
        "user",
        {
            "gateway": {"command": "/usr/bin/python3", "args": [*run, "/home/ada/mcp.json"]},
            "remote": {"command": "/usr/bin/python3", "args": [*run, "https://example.com/mcp"]},
        },
    )
    assert list(hosts.export()["mcpServers"]) == ["remote"]


def test_paths_of_a_project_become_absolute(hosts: Hosts) -> None:
    project = hosts.project
    hosts.write(
        "vscode",
        "project",
        {
            "tool": {"command": "./bin/tool", "envFile": ".env"},
            "script": {"command": "node", "args": ["server.js", "--fast"]},
            "below": {"command": "../bin/tool", "cwd": "${workspaceFolder}/sub"},
            "variable": {"command": "node", "args": ["${workspaceFolder}/server.js"]},
            "plain": {"command": "uvx", "args": ["weather"]},
        },
    )
    (project / "server.js").write_text("")
    entries = hosts.export()["mcpServers"]
    assert entries["tool"] == {
        "command": str(project / "bin/tool"),
        "cwd": str(project),
        "envFile": str(project / ".env"),
    }
    assert entries["script"]["cwd"] == str(project)
    assert entries["below"] == {
        "command": str(project / "bin/tool"),
        "cwd": str(project / "sub"),
    }
    assert entries["variable"]["args"] == [str(project / "server.js")]
    assert entries["plain"] == {"command": "uvx", "args": ["weather"]}


def test_inputs_of_one_id_do_not_overwrite_each_other(hosts: Hosts) -> None:
    server = {"command": "/bin/true", "env": {"KEY": "${input:key}"}}
    for scope, default in (("user", "one"), ("project", "two")):
        own = {"id": "key", "type": "promptString", "default": default}
        shared = {"id": "shared", "type": "promptString"}
        hosts.write("vscode", scope, {scope: server}, inputs=[own, shared])  # type: ignore[arg-type]
    exported = hosts.export()
    defaults = {one["id"]: one.get("default") for one in exported["inputs"]}
    assert defaults == {"key": "one", "shared": None, "key-vscode": "two"}
    used = {name: one["env"]["KEY"] for name, one in exported["mcpServers"].items()}
    assert used == {"user": "${input:key}", "project": "${input:key-vscode}"}
