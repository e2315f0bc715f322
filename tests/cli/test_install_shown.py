"""What `dovetail install` and `uninstall` show: the entry, and no secret of it or of others."""

import json
from pathlib import Path

import pytest

from dovetail.host_configs.hosts import find_host
from tests.cli.conftest import WEATHER, Run, file_of, write

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


def test_an_entry_of_others_is_replaced_and_its_values_are_hidden(home: Path, run: Run) -> None:
    entry = {
        "command": "/bin/true",
        "args": ["--key", "hunter22"],
        "url": "https://x.example/hunter22",
        "oauth": {"clientSecret": "hunter22"},
        "headers": {"A": "hunter22", "B": "${B}"},
    }
    write(file_of(CURSOR, home), json.dumps({"mcpServers": {"weather": entry}}))
    done = run("install", "cursor", WEATHER, "--no-check")
    assert "weather was replaced in Cursor" in done.out
    assert "hunter22" not in done.out + done.err
    removed = next(line for line in done.out.splitlines() if line.startswith("-"))
    assert '"command": "/bin/true"' in removed and "${B}" in removed


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


def test_what_stays_is_not_shown_as_removed(home: Path, run: Run) -> None:
    write(file_of(CURSOR, home), '{\n  "mcpServers": {}\n}\n')
    run("install", "cursor", WEATHER, "--no-check")
    done = run("uninstall", "cursor", "weather")
    shown = [line for line in done.out.splitlines() if line[:1] in "+-"]
    assert shown[0] == '-    "weather": {' and shown[-1] == "-    }"
    assert "deleted" not in done.out


def test_it_says_that_a_file_will_contain_a_value(home: Path, run: Run) -> None:
    words = ("install", "cursor", WEATHER, "--no-check", "--env", "KEY=hunter22")
    for done in (run(*words, "--dry-run"), run(*words)):
        assert done.err == f"{file_of(CURSOR, home)} will contain the value of KEY.\n"
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
