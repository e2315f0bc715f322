"""A host that runs changes its file itself, by its own command, or has to be closed first.

The commands `claude`, `code` and `codex` are small programs that record their arguments.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import config
from dovetail.errors import ConfigError
from dovetail.host_configs import host_commands
from dovetail.host_configs.hosts import find_host
from tests.cli.conftest import SECONDS, WEATHER, Run, file_of, write

CLAUDE, CODE, CODEX = (find_host(name) for name in ("claude-code", "vscode", "codex"))
SEEN = """#!{python}
import json, os, pathlib, subprocess, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps([arguments, sys.stdin.read(), os.getcwd()]) + "\\n")
file = pathlib.Path({file!r})
file.parent.mkdir(parents=True, exist_ok=True)
text = file.read_text() if file.exists() else ""
"""
WORKS = """
value = json.loads(text or "{}")
servers = value.setdefault("mcpServers", {})
if arguments[1] == "remove":
    del servers[arguments[-1]]
elif arguments[4] in servers:
    sys.exit(f"MCP server {arguments[4]} already exists in user config")
else:
    servers[arguments[4]] = {"type": "stdio", **json.loads(arguments[5])}
file.write_text(json.dumps(value))
"""
FAILS_TO_ADD = """
if arguments[1] == "add-json" and "weather.py" in arguments[5]:
    sys.stderr.buffer.write(b"\\xff no\\n")
    sys.exit(1)
"""
CODE_WORKS = """
entry = json.loads(arguments[1])
value = json.loads(text or "{}")
value.setdefault("servers", {})[entry.pop("name")] = entry
"""
LATE = """
import time
parent = os.getpid()
if os.fork() == 0:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 2)
    while os.getppid() == parent:
        time.sleep(0.02)
    file.write_text(json.dumps(value))
"""
CODEX_WORKS = """
at = arguments.index("--")
file.write_text(
    f"{text}[mcp_servers.{arguments[2]}]\\n"
    f"command = {json.dumps(arguments[at + 1])}\\nargs = {json.dumps(arguments[at + 2:])}\\n"
)
"""


class Stub:
    """A command of a host, and what it was called with."""

    def __init__(self, program: Path, file: Path, code: str) -> None:
        self.log = program.with_name(f"{program.name}.log")
        head = SEEN.format(python=sys.executable, log=str(self.log), file=str(file))
        write(program, head + code).chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        return [arguments for arguments, _, _ in self.records]

    @property
    def records(self) -> list[Any]:
        return [*map(json.loads, self.log.read_text().splitlines())] if self.log.exists() else []


def test_claude_code_is_asked_to_add_and_remove(home: Path, run: Run, programs: Path) -> None:
    stub = Stub(programs / "claude", file_of(CLAUDE, home), WORKS)
    done = run("install", "claude-code", WEATHER, "--no-check", running="claude")
    assert done.code == 0, done.err
    assert "because the host is running" in done.out
    removed = run("uninstall", "claude-code", "weather", running="claude")
    assert removed.code == 0, removed.err
    (add, stdin, _), (remove, _, _) = stub.records
    assert add[:5] == ["mcp", "add-json", "--scope", "user", "weather"]
    assert json.loads(add[5])["command"] == sys.executable
    assert remove == ["mcp", "remove", "--scope", "user", "weather"]
    assert stdin == ""


LOCAL = """
settings = {}
if arguments[1] == "add-json":
    settings = {"mcpServers": {arguments[4]: json.loads(arguments[5])}}
file.write_text(json.dumps({"projects": {os.getcwd(): settings}}))
"""


def test_claude_code_is_asked_to_add_for_one_project(home: Path, run: Run, programs: Path) -> None:
    stub = Stub(programs / "claude", file_of(CLAUDE, home), LOCAL)
    local = ("--scope", "local")
    done = run("install", "claude-code", WEATHER, "--no-check", *local, running="claude")
    assert done.code == 0, done.err
    removed = run("uninstall", "claude-code", "weather", *local, running="claude")
    assert removed.code == 0, removed.err
    (add, _, folder), (remove, _, _) = stub.records
    assert add[:5] == ["mcp", "add-json", "--scope", "local", "weather"]
    assert remove == ["mcp", "remove", "--scope", "local", "weather"]
    assert folder == str(home / "my project")


def test_an_entry_is_removed_before_claude_code_adds_it_again(
    home: Path, run: Run, programs: Path
) -> None:
    stub = Stub(programs / "claude", file_of(CLAUDE, home), WORKS)
    write(file_of(CLAUDE, home), '{"mcpServers": {"weather": {"command": "/old"}}}')
    done = run("install", "claude-code", WEATHER, "--no-check", "--force", running="claude")
    assert done.code == 0, done.err
    assert "weather was replaced in Claude Code" in done.out
    assert [call[1] for call in stub.calls] == ["remove", "add-json"]
    assert config.read(file_of(CLAUDE, home))["weather"].command == sys.executable
    assert run("uninstall", "claude-code", "weather").code == 0, "it is known to be ours"


def test_if_claude_code_cannot_add_the_entry_the_old_one_comes_back(
    home: Path, run: Run, programs: Path
) -> None:
    stub = Stub(programs / "claude", file_of(CLAUDE, home), FAILS_TO_ADD + WORKS)
    write(file_of(CLAUDE, home), '{"mcpServers": {"weather": {"command": "/old"}}}')
    done = run("install", "claude-code", WEATHER, "--no-check", "--force", running="claude")
    assert done.failure == "`claude mcp add-json` failed: \ufffd no"
    assert [call[1] for call in stub.calls] == ["remove", "add-json", "add-json"]
    assert config.read(file_of(CLAUDE, home))["weather"].command == "/old"
    assert not (home / ".local/state/dovetail/installed.json").exists()


def test_an_old_entry_with_values_is_not_passed_to_a_command(
    home: Path, run: Run, programs: Path
) -> None:
    stub = Stub(programs / "claude", file_of(CLAUDE, home), WORKS)
    entry = {"command": "/old", "env": {"KEY": "hunter22"}}
    write(file_of(CLAUDE, home), json.dumps({"mcpServers": {"weather": entry}}))
    done = run("install", "claude-code", WEATHER, "--no-check", "--force", running="claude")
    assert "would show values of variables or headers" in done.failure
    assert stub.calls == []


OTHER = '{"servers": {"weather": {"command": "/other"}}}'


@pytest.mark.parametrize(
    ("old", "code"),
    [
        ("{}", ""),
        (OTHER, ""),
        ("{}", f"file.write_text({OTHER!r})\n"),
    ],
)
def test_success_that_is_not_true_is_noticed(
    home: Path, run: Run, programs: Path, old: str, code: str
) -> None:
    Stub(programs / "code", file_of(CODE, home), code)
    write(file_of(CODE, home), old)
    done = run("install", "vscode", WEATHER, "--no-check", "--force", running="code")
    assert done.code == 2
    assert "`code` reported success, but" in done.failure and "profile" in done.failure
    assert not (home / ".local/state/dovetail/installed.json").exists()


def test_a_host_may_write_its_file_after_its_command_has_ended(
    home: Path, run: Run, programs: Path
) -> None:
    stub = Stub(programs / "code", file_of(CODE, home), CODE_WORKS + LATE)
    done = run("install", "vscode", WEATHER, "--no-check", running="code")
    assert done.code == 0, done.err
    assert json.loads(stub.calls[0][1])["name"] == "weather"
    assert config.read(file_of(CODE, home))["weather"].command == sys.executable


def test_codex_is_asked_to_add(home: Path, run: Run, programs: Path) -> None:
    stub = Stub(programs / "codex", file_of(CODEX, home), CODEX_WORKS)
    done = run("install", "codex", WEATHER, "--no-check", running="codex")
    assert done.code == 0, done.err
    assert stub.calls[0][:4] == ["mcp", "add", "weather", "--"]


@pytest.mark.parametrize(
    ("host", "words", "reason"),
    [
        (CLAUDE, ("--env", "K=hunter22"), "would show values of variables"),
        (CODE, ("--env", "K=hunter22"), "would show values of variables"),
        (CODEX, ("--env", "K"), "`codex` cannot add an entry that names variables"),
    ],
)
def test_what_a_command_cannot_do_needs_a_host_that_is_closed(
    home: Path, run: Run, programs: Path, host: Any, words: tuple[str, ...], reason: str
) -> None:
    stub = Stub(programs / host.command, file_of(host, home), "")
    install = ("install", host.id, WEATHER, "--no-check", *words)
    refused = run(*install, running=host.command)
    assert refused.code == 2
    assert reason in refused.err and f"Close {host.title}, and run this" in refused.err
    tried = run(*install, "--dry-run", running=host.command)
    assert tried.code == 0, tried.err
    assert "would be added" in tried.out and f"Close {host.title}" in tried.out
    assert run(*install).code == 0, "it does not run"
    assert stub.calls == []


def test_a_reference_is_no_secret(home: Path, run: Run, programs: Path) -> None:
    stub = Stub(programs / "claude", file_of(CLAUDE, home), WORKS)
    words = ("install", "claude-code", WEATHER, "--no-check", "--env", "KEY")
    done = run(*words, running="claude")
    assert done.code == 0, done.err
    assert json.loads(stub.calls[0][5])["env"] == {"KEY": "${KEY}"}


@pytest.mark.parametrize("host", [CLAUDE, CODE, CODEX], ids=lambda host: host.id)
def test_the_file_of_a_project_is_edited_while_the_host_runs(
    home: Path, run: Run, programs: Path, host: Any
) -> None:
    stub = Stub(programs / host.command, file_of(host, home), "")
    project = ("--scope", "project")
    done = run("install", host.id, WEATHER, "--no-check", *project, running=host.command)
    assert done.code == 0, done.err
    assert "weather" in config.read(file_of(host, home, "project"))
    done = run("uninstall", host.id, "weather", *project, running=host.command)
    assert done.code == 0, done.err
    assert not file_of(host, home, "project").exists() and stub.calls == []


@pytest.mark.parametrize("host", [CLAUDE, CODE, CODEX], ids=lambda host: host.id)
def test_nothing_is_removed_from_the_file_of_a_host_that_runs(
    home: Path, run: Run, host: Any
) -> None:
    """VS Code has no command for it, and the others are not on the PATH."""
    assert run("install", host.id, WEATHER, "--no-check").code == 0
    text = file_of(host, home).read_text()
    refused = run("uninstall", host.id, "weather", running=host.command)
    assert f"Close {host.title}, and run this command again" in refused.failure
    assert file_of(host, home).read_text() == text
    assert run("uninstall", host.id, "weather", "--dry-run", running=host.command).code == 0


def test_a_host_without_a_command_may_run(home: Path, run: Run) -> None:
    assert run("install", "cursor", WEATHER, "--no-check", running="cursor").code == 0


def test_a_batch_file_gets_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """cmd.exe, which runs batch files, would change the quotes."""
    monkeypatch.setattr(host_commands.shutil, "which", lambda name: rf"C:\bin\{name}.CMD")
    server = config.ServerConfig(command="x")
    found = host_commands.find_add_commands(CLAUDE, "x", server, {"command": "x"}, "user")
    assert isinstance(found, str) and "batch file" in found
    assert isinstance(host_commands.find_remove_commands(CLAUDE, "x", "user"), str)


def test_a_command_gets_no_input() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    code = f"from dovetail.host_configs.host_commands import run\nrun({command!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as program:
        assert program.wait(SECONDS) == 0, "although its own input stays open"


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_commands, "SECONDS", 0.1)
    code = "import threading; threading.Event().wait()"
    with pytest.raises(ConfigError, match=r"did not end within 0\.1 s$"):
        host_commands.run([sys.executable, "-c", code])
