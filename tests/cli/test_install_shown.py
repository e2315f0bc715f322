"""What `dovetail install` and `uninstall` show: the entry, and no secret of it or of others."""

import json
import sys
from pathlib import Path

import pytest

from dovetail.host_configs.hosts import find_host
from tests.cli.conftest import ROOT, WEATHER, Run, file_of, write

CURSOR = find_host("cursor")
NEIGHBOURS = [
    '{"token": "hunter22", "mcpServers": {"other": {"env": {"KEY": "hunter22"}}}}',
    '{\n  "mcpServers": {\n    "other": {"env": {"KEY": "hunter22"}}\n  }\n}\n',
    '{\n  "mcpServers": {\n    "other": {"env": {"KEY": "hunter22"}}, // hunter22\n  }\n}\n',
    '{"mcpServers": {"a": 1}, "token": "hunter22"}',
]


@pytest.mark.parametrize("text", NEIGHBOURS)
def test_neighbours_are_never_shown(home: Path, run: Run, text: str) -> None:
    write(file_of(CURSOR, home), text)
    for words in (
        ("install", "cursor", WEATHER, "--no-check", "--dry-run"),
        ("install", "cursor", WEATHER, "--no-check"),
        ("uninstall", "cursor", "weather", "--dry-run"),
        ("uninstall", "cursor", "weather"),
    ):
        done = run(*words)
        assert done.code == 0, done.err
        assert "hunter22" not in done.out + done.err
        assert "weather.py" in done.out
    assert file_of(CURSOR, home).read_text() == text


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("codex", 'key = "hunter22"\n[mcp_servers.other]\nenv = { KEY = "hunter22" }\n'),
        ("codex", 'mcp_servers = { other = { env = { KEY = "hunter22" } } }\n'),
        ("goose", "extensions: {other: {envs: {KEY: hunter22}}}\n"),
        ("goose", "extensions:\n  other: {envs: {KEY: hunter22}}\n"),
    ],
)
def test_neighbours_in_other_formats_are_never_shown(
    home: Path, run: Run, host: str, text: str
) -> None:
    write(file_of(find_host(host), home), text)
    for words in (("install", host, WEATHER, "--no-check"), ("uninstall", host, "weather")):
        done = run(*words)
        assert done.code == 0, done.err
        assert "weather.py" in done.out and "hunter22" not in done.out + done.err


def test_an_entry_of_others_is_replaced_by_force_and_its_values_are_hidden(
    home: Path, run: Run
) -> None:
    entry = {
        "command": "/bin/true",
        "args": ["--key", "hunter22"],
        "url": "https://x.example/hunter22",
        "oauth": {"clientSecret": "hunter22"},
        "headers": {"A": "hunter22", "B": "${B}"},
    }
    file = write(file_of(CURSOR, home), json.dumps({"mcpServers": {"weather": entry}}))
    before = file.read_text()
    for option in ("--dry-run", "--json"):
        refused = run("install", "cursor", WEATHER, "--no-check", option)
        assert refused.code == 2 and file.read_text() == before
        assert f"{file} already has a server 'weather'" in refused.err
        assert "Use --name for a second entry, or --force to replace it." in refused.failure
    done = run("install", "cursor", WEATHER, "--no-check", "--force")
    assert f"before the first change: {file}.dovetail-backup\n" in done.out
    assert "weather was replaced in Cursor" in done.out
    assert "hunter22" not in done.out + done.err
    removed = next(line for line in done.out.splitlines() if line.startswith("-"))
    assert '"command": "/bin/true"' in removed and "${B}" in removed


def test_only_what_install_wrote_is_replaced_without_force(home: Path, run: Run) -> None:
    words = ("install", "cursor", WEATHER, "--no-check")
    assert run(*words, "--env", "A=1").code == 0
    assert "was replaced" in run(*words, "--env", "A=2").out
    file = file_of(CURSOR, home)
    file.write_text(file.read_text().replace("-m", "-I"))
    edited = run(*words)
    assert "which was changed since `dovetail install` wrote it" in edited.failure
    assert run(*words, "--name", "second").code == 0, "the others can still be added"
    assert run(*words, "--force").code == 0
    assert "-I" not in file.read_text()


def test_secrets_in_the_arguments_and_in_a_url_are_masked(
    home: Path, run: Run, programs: Path
) -> None:
    write(programs / "uvx", "#!/bin/sh\n").chmod(0o755)
    command = "uvx weather --api-key hunter22"
    url = "https://ada:hunter22@x.example/mcp?api_key=hunter22"
    for source in (command, url):
        done = run("install", "cursor", source, "--name", "x", "--no-check")
        assert done.code == 0, done.err
        assert "hunter22" not in done.out + done.err
    assert file_of(CURSOR, home).read_text().count("hunter22") == 2


def test_what_uninstall_shows_is_what_happens(home: Path, run: Run) -> None:
    assert run("install", "cursor", WEATHER, "--no-check").code == 0
    text = file_of(CURSOR, home).read_text()
    done = run("uninstall", "cursor", "weather", "--dry-run")
    assert "would be deleted" in done.out
    shown = [line for line in done.out.splitlines() if line[:1] in "+-"]
    assert shown == [f"-{line}" for line in text.splitlines()]
    assert "The file was deleted" in run("uninstall", "cursor", "weather").out


def test_an_input_that_is_no_longer_needed_is_shown_as_removed(home: Path, run: Run) -> None:
    words = ("install", "vscode", WEATHER, "--no-check")
    assert run(*words, "--env", "KEY", "--env", "OTHER").code == 0
    file = file_of(find_host("vscode"), home)
    text = file.read_text()
    text = text.replace('"password": true', '"password": true, "default": "hunter22"')
    file.write_text(text)
    done = run(*words, "--env", "OTHER")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert any(one[0] == "-" and '"weather-KEY"' in one for one in lines)
    assert not any('"weather-OTHER"' in one for one in lines)
    assert "hunter22" not in done.out


def test_a_dry_run_says_in_json_whether_something_would_change(home: Path, run: Run) -> None:
    words = ("install", "cursor", WEATHER, "--no-check", "--json")
    for options, changed, would_change in (
        (["--dry-run"], False, True),
        ([], True, True),
        (["--dry-run"], False, False),
        (["--dry-run", "--env", "A=1"], False, True),
    ):
        found = run(*words, *options).json
        assert (found["changed"], found["would_change"]) == (changed, would_change)
    removed = run("uninstall", "cursor", "weather", "--dry-run", "--json").json
    assert (removed["changed"], removed["would_change"]) == (False, True)


def test_what_stays_is_not_shown_as_removed(home: Path, run: Run) -> None:
    write(file_of(CURSOR, home), '{\n  "mcpServers": {}\n}\n')
    run("install", "cursor", WEATHER, "--no-check")
    done = run("uninstall", "cursor", "weather")
    shown = [line for line in done.out.splitlines() if line[:1] in "+-"]
    assert shown[0] == '-    "weather": {' and shown[-1] == "-    }"
    assert "deleted" not in done.out


def test_it_says_that_a_file_will_contain_a_value(home: Path, run: Run) -> None:
    words = ("install", "cursor", WEATHER, "--no-check", "--env", "KEY=hunter22")
    file_of(CURSOR, home).parent.mkdir()
    for done in (run(*words, "--dry-run"), run(*words)):
        assert done.err == f"{file_of(CURSOR, home)} will contain the value of KEY.\n"
    two = run(*words, "--env", "B=1", "--env", "C=1", "--dry-run")
    assert "will contain the values of KEY, B and C." in two.err
    shared = run(*words, "--scope", "project")
    assert "will contain the value of KEY. Others see it if you share the project" in shared.err
    printed = run(*words, "--print")
    assert "hunter22" in printed.out and "This contains the value of KEY" in printed.err


@pytest.mark.parametrize("problem", ["invalid", "read-only", "list", "too large"])
def test_if_nothing_can_be_written_the_entry_is_shown(home: Path, run: Run, problem: str) -> None:
    texts = {"invalid": "{oops", "list": '{"mcpServers": []}', "too large": " " * (16 * 2**20 + 1)}
    file = write(file_of(CURSOR, home), texts.get(problem, "{}"))
    file.chmod(0o444 if problem == "read-only" else 0o644)
    before = file.read_bytes()
    done = run("install", "cursor", WEATHER, "--no-check", "--env", "KEY=hunter22")
    assert done.code == 2 and file.read_bytes() == before
    assert str(file) in done.err and "hunter22" not in done.err
    assert "Values are hidden here; `--print` shows them." in done.err
    pasted = json.loads(done.err[done.err.index("\n{") :])
    assert pasted["mcpServers"]["weather"]["args"][-1] == WEATHER
    listed = run("install", "cursor", WEATHER, "--no-check", "--json")
    assert WEATHER in listed.json["error"]["notes"][0]


def test_a_file_that_is_shared_should_have_no_paths(home: Path, run: Run, programs: Path) -> None:
    write(programs / "uvx", "#!/bin/sh\n").chmod(0o755)
    project = ("--no-check", "--scope", "project")
    done = run("install", "claude-code", WEATHER, *project)
    assert "will contain paths of this machine" in done.err and '"uvx NAME"' in done.err
    assert "Claude Code will ask for your approval when it starts in this folder." in done.out
    published = run("install", "cursor", "uvx weather", *project)
    assert (published.code, published.err) == (0, "")
    assert '"command": "uvx"' in file_of(CURSOR, home, "project").read_text()
    assert "broken" not in run("hosts").out
    assert "paths of this machine" not in run("install", "cursor", WEATHER, "--no-check").err


def test_the_short_name_of_a_shared_command_is_checked_with_its_path(
    home: Path, run: Run, programs: Path
) -> None:
    code = f"#!/bin/sh\nexec {sys.executable} -m dovetail run {WEATHER}\n"
    write(programs / "uvx", code).chmod(0o755)
    words = ("install", "cursor", "uvx weather", "--scope", "project")
    done = run(*words, "--env", f"PYTHONPATH={ROOT}")
    assert done.code == 0, done.err
    assert "has 1 tool: forecast" in done.out


def test_a_host_that_is_not_on_this_machine_is_no_error(home: Path, run: Run) -> None:
    absent = "Cursor was not found on this machine. It will use the entry when you install it.\n"
    words = ("install", "cursor", WEATHER, "--no-check")
    for done in (run(*words, "--dry-run"), run(*words)):
        assert (done.code, done.err) == (0, absent)
    assert run(*words, "--env", "K").err == "", "its folder exists"
    write(home / "bin" / "claude", "").chmod(0o755)
    found = run("install", "claude-code", WEATHER, "--no-check", PATH=str(home / "bin"))
    assert found.err == ""
