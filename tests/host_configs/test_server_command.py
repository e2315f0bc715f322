"""What a host is told to start: absolute paths, and an interpreter that has everything."""

import os
import sys
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.host_configs.hosts import find_host
from dovetail.host_configs.server_command import (
    default_name,
    gateway_command,
    parse_source,
    published_command,
    split_command,
)

CURSOR, DESKTOP = find_host("cursor"), find_host("claude-desktop")
SCRIPT = '# /// script\n# dependencies = ["dovetail-mcp"]\n# ///\nprint()\n'


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program called uv, alone on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "uv"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return str(path)


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_is_run_by_this_interpreter(tmp_path: Path) -> None:
    file = write(tmp_path / "my server.py")
    server = parse_source(str(file), CURSOR)
    assert (server.command, server.args) == (sys.executable, ["-m", "dovetail", "run", str(file)])


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "shop.py")
    assert parse_source("shop.py:orders", CURSOR).args[-1] == f"{tmp_path / 'shop.py'}:orders"


def test_a_script_with_metadata_is_run_by_uv(tmp_path: Path, uv: str) -> None:
    file = write(tmp_path / "weather.py", SCRIPT)
    server = parse_source(str(file), CURSOR)
    assert (server.command, server.args) == (uv, ["run", "--script", str(file)])


def test_a_script_with_metadata_needs_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs uv"):
        parse_source(str(write(tmp_path / "weather.py", SCRIPT)), CURSOR)


def test_a_file_of_a_project_is_run_by_uv_in_the_project(tmp_path: Path, uv: str) -> None:
    write(tmp_path / "pyproject.toml", '[project]\nname = "weather"\n')
    file = write(tmp_path / "src" / "weather.py")
    server = parse_source(str(file), CURSOR)
    run = ["run", "--project", str(tmp_path), "dovetail", "run", str(file)]
    assert (server.command, server.args) == (uv, run)


def test_a_pyproject_that_describes_no_project_does_not_count(tmp_path: Path, uv: str) -> None:
    write(tmp_path / "pyproject.toml", "[tool.ruff]\n")
    assert parse_source(str(write(tmp_path / "weather.py")), CURSOR).command == sys.executable


def test_a_command_gets_its_absolute_path(uv: str) -> None:
    server = parse_source("uv tool run 'my server'", CURSOR)
    assert (server.command, server.args) == (uv, ["tool", "run", "my server"])


def test_a_command_may_end_in_a_file(
    tmp_path: Path, uv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`uv run weather.py` is a command, and hosts start it in another folder."""
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "weather.py")
    server = parse_source("uv run weather.py", CURSOR)
    assert (server.command, server.args) == (uv, ["run", str(file)])
    assert default_name("uv run weather.py") == "weather"
    with pytest.raises(ConfigError, match=r"no such\.py does not exist"):
        parse_source("no such.py", CURSOR)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (r'"C:\Program Files\uv\uvx.exe" weather', [r"C:\Program Files\uv\uvx.exe", "weather"]),
        (r"C:\bin\uvx.exe 'my server'", [r"C:\bin\uvx.exe", "my server"]),
        (r'npx --dir="C:\my data" x', ["npx", r"--dir=C:\my data", "x"]),
    ],
)
def test_words_in_quotes_are_split_on_windows(source: str, words: list[str]) -> None:
    assert split_command(source, "win32") == words


def test_a_quote_that_is_not_closed_is_refused() -> None:
    with pytest.raises(ConfigError, match="A quote is not closed"):
        parse_source("uvx 'weather", CURSOR)


@pytest.mark.parametrize("folder", ["archive-v0/Xy12", "environments-v2/weather-1a2b"])
def test_an_interpreter_in_the_cache_of_uv_is_not_written(
    tmp_path: Path, uv: str, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """`uvx dovetail-mcp install …` runs in an environment that uv may remove."""
    monkeypatch.setattr(sys, "prefix", f"/home/ada/.cache/uv/{folder}")
    file = write(tmp_path / "weather.py")
    server = parse_source(str(file), CURSOR)
    assert (server.command, server.args[:3]) == (uv, ["tool", "run", "--from"])
    assert server.args[3].partition("[")[0] == "dovetail-mcp"
    assert server.args[4:] == ["dovetail", "run", str(file)]
    uvx = write(Path(uv).with_name("uvx"), "#!/bin/sh\n")
    uvx.chmod(0o755)
    server = parse_source("https://example.com/mcp", DESKTOP)
    assert (server.command, server.args[0]) == (str(uvx), "--from")
    assert server.args[-3:] == ["dovetail", "gateway", "https://example.com/mcp"]


@pytest.mark.parametrize("source", ["no-such-command --x", "missing.py", ""])
def test_what_does_not_exist_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match=r"There is no command|does not exist"):
        parse_source(source, CURSOR)


def test_a_url_is_passed_on_or_served_by_a_command() -> None:
    url = "https://example.com/mcp"
    assert parse_source(url, CURSOR).url == url
    server = parse_source(url, DESKTOP)
    assert (server.command, server.args) == (sys.executable, ["-m", "dovetail", "gateway", url])


def test_a_gateway_serves_the_file_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mcp.json", "{}")
    assert gateway_command(Path("mcp.json")).args[-1] == str(tmp_path / "mcp.json")
    with pytest.raises(ConfigError, match="does not exist"):
        gateway_command(Path("other.json"))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("weather.py", "weather"),
        ("weather.py:orders", "weather"),
        ("/srv/shop/server.py", "shop"),
        ("/srv/my shop/main.py", "my-shop"),
        ("https://mcp.example.com/mcp", "example"),
        ("https://weather.example.com/", "example"),
        ("http://127.0.0.1:8000/mcp", "127-0-0-1"),
        ("uvx weather", "weather"),
        ("uvx weather@1.2", "weather"),
        ("uvx --from x weather[all]==1", "x"),
        ("npx -y @scope/server-files", "server-files"),
        ("/usr/local/bin/weather-server", "weather-server"),
    ],
)
def test_the_name_of_the_entry_is_that_of_the_file_or_package(source: str, name: str) -> None:
    assert default_name(source) == name


@pytest.mark.parametrize("source", ["server.py", "./bin/server", "python -m weather", ""])
def test_only_published_packages_have_links(source: str) -> None:
    with pytest.raises(ConfigError, match="path of this machine"):
        published_command(source)


def test_a_link_names_a_package_without_a_path() -> None:
    assert published_command("uvx weather --fast") == ["uvx", "weather", "--fast"]
    assert os.sep not in published_command("npx weather")[0]
