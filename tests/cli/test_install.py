"""`dovetail install`, `uninstall`, `hosts` and `init`, with a home of their own."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail import config
from dovetail.host_configs.edit import parse
from dovetail.host_configs.hosts import HOSTS, HostApp, find_host
from tests.cli.conftest import ROOT, WEATHER, Run, dovetail, file_of, write

JSON = """{
  // mine
  "theme": "dark", "%s": {
    "other": {"command": "/bin/true"}, // stays
  },
}
"""
TOML = """# mine
model = "x"

[%s.other]
command = "/bin/true" # stays
"""
YAML = """# mine
model: x
%s:
    other: # stays
        type: stdio
        cmd: /bin/true
"""
TEXTS = {"json": JSON, "toml": TOML, "yaml": YAML}
each_host = pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.id)


@each_host
def test_a_server_is_added_alone_and_removed_without_a_trace(
    host: HostApp, home: Path, run: Run
) -> None:
    before = TEXTS[host.format] % host.key
    file = write(file_of(host, home), before)
    done = run("install", host.id, WEATHER, "--no-check")
    assert (done.code, done.err) == (0, "")
    assert f"weather was added to {host.title}" in done.out
    text = file.read_text("utf-8")
    assert all(line in text for line in before.splitlines()), "every line of before is still there"
    server = config.read(file)["weather"]
    assert (server.command, server.args) == (sys.executable, ["-m", "dovetail", "run", WEATHER])
    again = run("install", host.id, WEATHER, "--no-check")
    assert (again.code, file.read_text("utf-8")) == (0, text)
    assert "Nothing changed" in again.out
    assert host.after.format(title=host.title) in again.out
    assert "docs/guides/not-showing-up.md" in again.out
    removed = run("uninstall", host.id, "weather")
    assert (removed.code, file.read_text("utf-8")) == (0, before)
    assert Path(f"{file}.dovetail-backup").read_text("utf-8") == before
    assert stat.S_IMODE(os.stat(f"{file}.dovetail-backup").st_mode) == 0o600


@each_host
def test_a_host_without_a_file_gets_one_and_loses_it(host: HostApp, home: Path, run: Run) -> None:
    file = file_of(host, home)
    assert run("install", host.id, WEATHER, "--no-check").code == 0
    assert "weather" in config.read(file)
    assert run("uninstall", host.id, "weather").code == 0
    assert not file.exists()
    left = {one.name for one in home.iterdir()}
    assert left == {"my project", ".local"}, "folders that install created are removed"


def test_a_folder_with_something_else_in_it_stays(home: Path, run: Run) -> None:
    folder = file_of(find_host("cursor"), home).parent
    assert run("install", "cursor", WEATHER, "--no-check").code == 0
    assert run("install", "cursor", WEATHER, "--no-check", "--name", "second").code == 0
    assert run("uninstall", "cursor", "weather").code == 0
    write(folder / "theirs", "")
    assert run("uninstall", "cursor", "second").code == 0
    assert (folder / "theirs").exists() and not (folder / "mcp.json").exists()
    windsurf = file_of(find_host("windsurf"), home).parent
    windsurf.mkdir(parents=True)
    assert run("install", "windsurf", WEATHER, "--no-check").code == 0
    assert run("uninstall", "windsurf", "weather").code == 0
    assert windsurf.is_dir(), "it was there before"


def test_the_entry_starts_as_the_host_starts_it(home: Path, run: Run) -> None:
    done = run("install", "cursor", WEATHER, "--env", f"PYTHONPATH={ROOT}")
    assert done.code == 0, done.err
    assert "The server starts and has 1 tool: forecast." in done.out


def test_a_server_that_does_not_start_is_not_added(home: Path, run: Run) -> None:
    broken = write(home / "my project" / "broken.py", "import no_such_module\n")
    done = run("install", "cursor", str(broken))
    assert done.code == 2
    assert f"Cursor could not start {broken}. Nothing was written." in done.err.splitlines()[0]
    assert not file_of(find_host("cursor"), home).exists()
    assert run("install", "cursor", str(broken), "--no-check").code == 0


def test_a_file_that_is_not_valid_is_refused_with_line_and_column(home: Path, run: Run) -> None:
    file = write(file_of(find_host("cursor"), home), '{"mcpServers": {\n  oops\n}}')
    done = run("install", "cursor", WEATHER, "--no-check")
    assert done.code == 2
    assert "line 2, column 3" in done.err and str(file) in done.err
    assert "Nothing was written. Correct the file, and run this command again." in done.err
    assert file.read_text() == '{"mcpServers": {\n  oops\n}}'


def test_values_of_variables_are_written_but_never_shown(home: Path, run: Run) -> None:
    words = ("install", "cursor", WEATHER, "--no-check", "--env", "API_KEY=hunter22")
    for options in (["--dry-run"], [], ["--json"]):
        done = run(*words, *options)
        assert "hunter22" not in done.out + done.err
    assert config.read(file_of(find_host("cursor"), home))["weather"].env["API_KEY"] == "hunter22"
    assert "hunter22" not in (home / ".local/state/dovetail/installed.json").read_text()
    removed = run("uninstall", "cursor", "weather", "--dry-run")
    assert "hunter22" not in removed.out + removed.err


def test_a_variable_without_a_value_is_named_or_asked_for(home: Path, run: Run) -> None:
    assert run("install", "cursor", WEATHER, "--no-check", "--env", "KEY").code == 0
    entry = json.loads(file_of(find_host("cursor"), home).read_text())["mcpServers"]["weather"]
    assert entry["env"] == {"KEY": "${env:KEY}"}
    done = run("install", "claude-desktop", WEATHER, "--no-check", "--env", "KEY")
    assert done.code == 2
    assert "its file will contain the value of KEY" in done.err
    assert "--env KEY=VALUE" in done.err


@pytest.mark.parametrize("before", [None, '{\n  // mine\n  "inputs": [{"id": "x"}]\n}\n'])
def test_vscode_asks_for_a_variable_without_a_value(
    home: Path, run: Run, before: str | None
) -> None:
    file = file_of(find_host("vscode"), home)
    if before is not None:
        write(file, before)
    words = ("install", "vscode", WEATHER, "--no-check", "--env", "KEY")
    asked = {
        "type": "promptString",
        "id": "weather-KEY",
        "description": "KEY for weather",
        "password": True,
    }
    printed = json.loads(run(*words, "--print").out)
    assert printed["inputs"] == [asked]
    done = run(*words)
    assert done.code == 0, done.err
    assert "VS Code asks for KEY when it starts weather." in done.out
    value = parse(file.read_text(), "json")
    assert value["servers"]["weather"]["env"] == {"KEY": "${input:weather-KEY}"}
    assert value["inputs"][-1] == asked
    assert "Nothing changed" in run(*words).out
    removed = run("uninstall", "vscode", "weather")
    assert removed.code == 0
    for sign, shown in (("+", done.out), ("-", removed.out)):
        lines = [one for one in shown.splitlines() if one.startswith(sign)]
        assert all(any(f'"{field}": ' in one for one in lines) for field in asked)
    assert (file.read_text() if file.exists() else None) == before


def test_a_dry_run_and_print_change_nothing(home: Path, run: Run) -> None:
    done = run("install", "cursor", WEATHER, "--no-check", "--dry-run")
    assert '+    "weather": {' in done.out and "would be added" in done.out
    printed = run("install", "zed", WEATHER, "--print")
    assert json.loads(printed.out)["context_servers"]["weather"]["source"] == "custom"
    assert not (home / ".cursor").exists() and not (home / ".config").exists()


def test_the_file_of_a_project_is_used(home: Path, run: Run) -> None:
    done = run("install", "vscode", WEATHER, "--no-check", "--scope", "project")
    assert done.code == 0
    entry = json.loads((home / "my project/.vscode/mcp.json").read_text())["servers"]["weather"]
    assert entry["type"] == "stdio"
    refused = run("install", "windsurf", WEATHER, "--no-check", "--scope", "project")
    assert "has no file for projects" in refused.failure


@pytest.mark.parametrize("before", [None, '{"projects": {"/x": {"mcpServers": {"y": {}}}}}'])
def test_claude_code_has_servers_for_one_project_of_one_user(
    home: Path, run: Run, before: str | None
) -> None:
    file = file_of(find_host("claude-code"), home)
    if before is not None:
        write(file, before)
    local = ("--scope", "local")
    done = run("install", "claude-code", WEATHER, "--no-check", *local)
    assert done.code == 0, done.err
    value = json.loads(file.read_text())
    settings = value["projects"][str(home / "my project")]
    assert settings["mcpServers"]["weather"]["command"] == sys.executable
    assert "mcpServers" not in value
    assert "has no server 'weather'" in run("uninstall", "claude-code", "weather").failure
    assert run("uninstall", "claude-code", "weather", *local).code == 0
    assert (file.read_text() if file.exists() else None) == before


def test_other_hosts_have_no_local_scope(run: Run) -> None:
    for host in HOSTS:
        if host.id != "claude-code":
            refused = run("install", host.id, WEATHER, "--no-check", "--scope", "local")
            assert refused.failure.startswith(f"{host.title} has no local scope.")


def test_a_url_is_written_as_such_or_served_by_a_command(home: Path, run: Run) -> None:
    url = "https://weather.example/mcp"
    assert run("install", "windsurf", url, "--no-check").code == 0
    servers = json.loads(file_of(find_host("windsurf"), home).read_text())["mcpServers"]
    assert servers == {"weather": {"serverUrl": url}}
    assert run("install", "claude-desktop", url, "--no-check").code == 0
    server = config.read(file_of(find_host("claude-desktop"), home))["weather"]
    assert server.args == ["-m", "dovetail", "gateway", url]


def test_one_gateway_takes_the_place_of_many_entries(home: Path, run: Run) -> None:
    write(home / "my project/mcp.json", '{"mcpServers": {}}')
    done = run("install", "claude-desktop", "--gateway", "mcp.json", "--no-check")
    assert done.code == 0
    server = config.read(file_of(find_host("claude-desktop"), home))["gateway"]
    assert server.args == ["-m", "dovetail", "gateway", str(home / "my project/mcp.json")]


def test_links_exist_for_urls_and_packages_only(run: Run) -> None:
    done = run("install", "cursor", "uvx weather", "--link")
    assert done.out.startswith(
        "cursor://anysphere.cursor-deeplink/mcp/install?name=weather&config="
    )
    refused = run("install", "cursor", WEATHER, "--link")
    assert refused.code == 2
    assert "path of this machine" in refused.failure


def test_an_entry_of_others_is_removed_only_by_force(home: Path, run: Run) -> None:
    file = write(file_of(find_host("cursor"), home), TEXTS["json"] % "mcpServers")
    refused = run("uninstall", "cursor", "other")
    assert "--force" in refused.failure
    assert run("uninstall", "cursor", "other", "--force").code == 0
    assert "other" not in config.read(file)
    assert "has no server 'nobody'" in run("uninstall", "cursor", "nobody").failure


def test_hosts_lists_servers_and_what_is_broken(home: Path, run: Run) -> None:
    broken = '{"mcpServers": {"gone": {"command": "/no/such"}, "fine": {"command": "/bin/true"}}}'
    write(file_of(find_host("cursor"), home), broken)
    write(file_of(find_host("zed"), home), '{"theme": "dark"}')
    write(file_of(find_host("windsurf"), home), "{")
    done = run("hosts")
    assert "gone  broken  /no/such does not exist" in done.out
    assert "error" in done.out.partition("windsurf")[2].partition("\nzed")[0]
    listed = {one["id"]: one for one in run("hosts", "--json").json}
    assert listed["zed"]["installed"] and not listed["goose"]["installed"]
    assert [one["name"] for one in listed["cursor"]["files"][0]["servers"]] == ["gone", "fine"]


def test_the_servers_of_all_hosts_are_exported_into_one_file(home: Path, run: Run) -> None:
    same = {"command": "/bin/true"}
    write(file_of(find_host("cursor"), home), json.dumps({"mcpServers": {"a": same, "b": same}}))
    other = {"url": "https://b.example", "env": {}}
    write(file_of(find_host("vscode"), home), json.dumps({"servers": {"a": same, "b": other}}))
    opencode = {"c": {"type": "local", "command": ["x", "y"], "environment": {"K": "{env:K}"}}}
    write(file_of(find_host("opencode"), home), json.dumps({"mcp": opencode}))
    done = run("hosts", "--export", "all.json")
    assert done.code == 0
    file = home / "my project/all.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    servers = config.read(file)
    assert set(servers) == {"a", "b", "b-vscode", "c"}
    assert (servers["c"].command, servers["c"].env) == ("x", {"K": "${K}"})
    assert "exists" in run("hosts", "--export", "all.json").failure


def test_a_new_project_has_a_server_that_runs_and_a_test(home: Path, run: Run) -> None:
    done = run("init", "my-weather")
    assert done.code == 0
    folder = home / "my project" / "my-weather"
    assert {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()} == {
        "my_weather.py",
        "test_my_weather.py",
        "pyproject.toml",
        "README.md",
        ".github/workflows/test.yml",
        ".gitignore",
    }
    assert (
        dovetail("call", str(folder / "my_weather.py"), "greet", "name=Ada").out == "Hello, Ada!\n"
    )
    subprocess.run([sys.executable, "-m", "pytest", "-q", str(folder)], check=True, cwd=folder)
    assert "NAME" not in (folder / "README.md").read_text()
    assert "not empty" in run("init", "my-weather").failure
    for wrong in ("json", "class", "1st", "dovetail"):
        assert run("init", wrong).code == 2
