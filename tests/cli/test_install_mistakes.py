"""What `dovetail install` and `uninstall` say when they are called in a wrong way."""

from pathlib import Path

import pytest

from dovetail.host_configs.hosts import find_host
from tests.cli.conftest import WEATHER, Run, file_of
from tests.cli.screen import on_screen


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cursor", "uvx weather"], "uvx is not installed, or it is not on your PATH. Install uv"),
        (["cursor", "npx weather"], "npx is not installed, or it is not on your PATH. Install Nod"),
        (["cursor", "weather"], "There is no command 'weather'. Name a Python file, a URL, or a c"),
        (["cursor", "uvx", "weather"], 'put it in quotes: "uvx weather"'),
        (["cursor", WEATHER, "weather"], "unrecognized arguments: weather (see"),
        (["cursor", "example.com/mcp"], "Did you mean https://example.com/mcp?"),
        (["cursor", "localhost:8000/mcp"], "Did you mean http://localhost:8000/mcp?"),
        (["cursor", WEATHER, "--gateway", "mcp.json"], "Name a server or --gateway FILE, not both"),
        (["cursor"], "Name a server (a file, a URL or a command), or --gateway FILE"),
        (["claude", WEATHER], "Did you mean claude-desktop or claude-code? Hosts: "),
        (["curser", WEATHER], "Did you mean cursor? Hosts: "),
        (["weather.py", "cursor"], "The host comes first: dovetail install cursor weather.py"),
        (["cursor", WEATHER, "--env", "A B=x"], "'A B' is not the name of a variable"),
        (["cursor", WEATHER, "--env", "=x"], "has no name"),
    ],
)
def test_a_mistake_is_explained(home: Path, run: Run, words: list[str], message: str) -> None:
    done = run("install", *words, "--no-check")
    assert done.code == 2
    assert message in done.failure
    assert not (home / ".cursor").exists()


def test_uninstall_finds_the_name_or_the_scope_that_is_meant(home: Path, run: Run) -> None:
    for scope in ("local", "project"):
        install = ("install", "claude-code", WEATHER, "--no-check", "--name", scope)
        assert run(*install, "--scope", scope).code == 0
        refused = run("uninstall", "claude-code", scope)
        assert f"has no server '{scope}' in the scope user. Use --scope {scope}." in refused.failure
    assert run("install", "cursor", WEATHER, "--no-check").code == 0
    assert "Did you mean weather?" in run("uninstall", "cursor", "weathr").failure
    assert "`dovetail hosts` lists" in run("uninstall", "cursor", "else").failure


@pytest.mark.parametrize("typed", ["\n", "\x04"])
def test_without_a_value_nothing_is_written(tmp_path: Path, typed: str) -> None:
    code, screen, _ = on_screen(
        *("install", "zed", WEATHER, "--no-check", "--env", "API_KEY"),
        typed=[typed],
        controlling=True,
        HOME=str(tmp_path),
        XDG_CONFIG_HOME="",
        XDG_STATE_HOME="",
    )
    assert code == 2
    assert "dovetail: error: No value for API_KEY, so nothing was written." in screen
    assert not file_of(find_host("zed"), tmp_path).exists()
