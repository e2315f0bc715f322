"""`dovetail hosts` in a home of its own: export, serve the export, and export again."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.install import HOST_IDS, LINK_HOST_IDS
from dovetail.host_configs.hosts import HOSTS, Machine, find_host
from dovetail.host_configs.links import LINK_HOSTS
from tests.cli.conftest import ROOT, WEATHER, Done, dovetail

Run = Callable[..., Done]
CLEAN = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "bin").mkdir()
    variables = {**dict.fromkeys(CLEAN, ""), "HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}
    return lambda *words: dovetail(*words, cwd=tmp_path, **variables)


def write(home: Path, host: str, servers: dict[str, Any]) -> Path:
    app = find_host(host)
    file = app.file(Machine(sys.platform, {}, home, home))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({app.key: servers}))
    return file


def test_an_export_that_is_served_is_not_in_the_next_export(tmp_path: Path, run: Run) -> None:
    entry = {"command": sys.executable, "args": ["-m", "dovetail", "run", WEATHER]}
    write(tmp_path, "cursor", {"weather": entry | {"env": {"PYTHONPATH": str(ROOT)}}})
    first = run("hosts", "--export", "mcp.json")
    assert first.out.startswith("1 server was written to mcp.json"), first.err
    assert run("install", "cursor", "--gateway", "mcp.json", "--no-check").code == 0
    checked = run("gateway", "mcp.json", "--check")
    assert (checked.code, "forecast" in checked.out) == (0, True), checked.err
    (tmp_path / "mcp.json").unlink()
    assert run("hosts", "--export", "mcp.json").code == 0
    assert list(json.loads((tmp_path / "mcp.json").read_text())["mcpServers"]) == ["weather"]


def test_a_gateway_refuses_a_file_that_serves_itself(tmp_path: Path, run: Run) -> None:
    file = write(tmp_path, "cursor", {})
    assert run("install", "cursor", "--gateway", str(file), "--no-check").code == 0
    done = run("gateway", str(file), "--check")
    assert done.code == 2
    assert "would start itself again and again" in done.failure


def test_parts_of_a_host_are_listed_apart(tmp_path: Path, run: Run) -> None:
    file = find_host("goose").file(Machine(sys.platform, {}, tmp_path, tmp_path))
    file.parent.mkdir(parents=True)
    file.write_text("extensions:\n  developer: {type: builtin, enabled: true}\n")
    assert "part of Goose: developer" in run("hosts").out
    (goose,) = [one for one in run("hosts", "--json").json if one["id"] == "goose"]
    assert (goose["files"][0]["servers"], goose["files"][0]["builtIn"]) == ([], ["developer"])


def test_a_file_whose_servers_are_not_an_object_is_an_error(tmp_path: Path, run: Run) -> None:
    write(tmp_path, "cursor", {}).write_text('{"mcpServers": []}')
    assert "error" in run("hosts").out and "is not an object" in run("hosts").out


def test_a_link_has_no_variables(run: Run) -> None:
    done = run("install", "cursor", "uvx weather", "--link", "--env", "KEY=hunter2")
    assert (done.code, "hunter2" in done.err) == (2, False)
    assert "--env cannot be used with --link" in done.failure


def test_a_server_that_is_switched_off_is_marked(tmp_path: Path, run: Run) -> None:
    on, off = {"command": "/bin/true"}, {"command": "/bin/true", "disabled": True}
    write(tmp_path, "cursor", {"on": on, "off": off})
    assert "    on\n    off  switched off\n" in run("hosts").out
    (cursor,) = [one for one in run("hosts", "--json").json if one["id"] == "cursor"]
    assert [one["disabled"] for one in cursor["files"][0]["servers"]] == [False, True]


@pytest.mark.parametrize("value", ["hunter2", "${KEY}"])
def test_an_export_with_secrets_says_so(tmp_path: Path, run: Run, value: str) -> None:
    write(tmp_path, "cursor", {"a": {"command": "/bin/true", "env": {"KEY": value}}})
    broken = write(tmp_path, "windsurf", {})
    broken.write_text("{")
    done = run("hosts", "--export", "mcp.json")
    assert done.code == 0, done.err
    assert f"dovetail: skipped {broken}: " in done.err
    assert ("mcp.json contains secret values." in done.err) == (value == "hunter2")
    assert "hunter2" not in done.out + done.err


def test_the_help_names_all_hosts_and_those_with_links() -> None:
    assert HOST_IDS.replace(" or ", ", ").split(", ") == [host.id for host in HOSTS]
    assert LINK_HOST_IDS.replace(" or ", ", ").split(", ") == list(LINK_HOSTS)
    shown = " ".join(dovetail("install", "--help").out.split())
    assert HOST_IDS in shown and LINK_HOST_IDS in shown and "docs/guides/install.md" in shown
    assert dovetail("hosts", "--help").out.startswith("usage: dovetail hosts [OPTIONS]\n")
