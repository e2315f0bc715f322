"""What `dovetail hosts` finds: servers, parts of the host itself, and what is broken."""

import json
from pathlib import Path

import pytest

from dovetail.host_configs.hosts import HostApp, Machine, find_host
from dovetail.host_configs.survey import HostFile, survey

GOOSE = """extensions:
  developer:
    type: builtin
    name: developer
    enabled: true
  todo: {type: platform, name: todo, enabled: true}
  weather:
    type: stdio
    cmd: /bin/true
    args: []
"""


def read(host: HostApp, home: Path, text: str) -> HostFile:
    machine = Machine("linux", {}, home, home / "project")
    file = host.file(machine)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (found,) = survey(machine, (host,))
    return found


def test_extensions_inside_of_goose_are_neither_servers_nor_broken(tmp_path: Path) -> None:
    found = read(find_host("goose"), tmp_path, GOOSE)
    assert found.own == ["developer", "todo"]
    assert list(found.servers) == ["weather"]
    assert found.problems == {} and found.error is None


def test_servers_of_one_project_in_the_users_file_are_found(tmp_path: Path) -> None:
    machine, host = Machine("linux", {}, tmp_path, tmp_path / "project"), find_host("claude-code")
    folder = str(machine.project)
    here, there = ({"mcpServers": {name: {"command": "/bin/true"}}} for name in ("a", "b"))
    value = {"projects": {folder: here, "/there": there}, "mcpServers": {"c": {"command": "x"}}}
    host.file(machine).write_text(json.dumps(value))
    user, local = survey(machine, (host,))
    assert (user.scope, list(user.servers)) == ("user", ["c"])
    assert (local.scope, list(local.servers)) == ("local", ["a"])
    host.file(machine).write_text(json.dumps({"projects": {folder: {"mcpServers": {}}}}))
    assert [one.scope for one in survey(machine, (host,))] == ["user"]


@pytest.mark.parametrize("text", ["null", "[]", '{"mcpServers": null}', '{"mcpServers": []}', "1"])
def test_a_file_without_an_object_has_an_error(tmp_path: Path, text: str) -> None:
    found = read(find_host("cursor"), tmp_path, text)
    assert found.error is not None and "is not an object" in found.error
    assert str(found.path) in found.error


@pytest.mark.parametrize(
    ("host", "text"),
    [("cursor", ""), ("cursor", "{}"), ("cursor", '{"theme": "dark"}'), ("goose", "extensions:\n")],
)
def test_a_file_without_servers_has_no_error(tmp_path: Path, host: str, text: str) -> None:
    found = read(find_host(host), tmp_path, text)
    assert (found.error, found.servers) == (None, {})


def test_entries_that_cannot_work_are_named(tmp_path: Path) -> None:
    text = """{"mcpServers": {
      "gone": {"command": "/no/such"}, "unknown": {"command": "no-such-command"},
      "neither": {"args": []}, "fine": {"command": "/bin/true"}}}"""
    problems = read(find_host("cursor"), tmp_path, text).problems
    assert problems["gone"] == "/no/such does not exist"
    assert problems["unknown"] == "there is no command 'no-such-command'"
    assert 'requires either a "command" or a "url"' in problems["neither"]
    assert "fine" not in problems
