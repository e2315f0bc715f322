"""Before `dovetail install` writes an entry, it starts the server as the host would."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dovetail.host_configs.hosts import find_host
from tests.cli.conftest import ROOT, WEATHER, Run, file_of, write

CURSOR, DESKTOP = find_host("cursor"), find_host("claude-desktop")
PATH = ("--env", f"PYTHONPATH={ROOT}")


class Refusing(BaseHTTPRequestHandler):
    """A server that requires a login."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def guarded_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
        thread.join()


def test_a_host_that_knows_urls_logs_in_itself(home: Path, run: Run, guarded_url: str) -> None:
    done = run("install", "cursor", guarded_url)
    assert done.code == 0, done.err
    assert "requires a login. Cursor will ask you to log in." in done.err
    assert guarded_url in file_of(CURSOR, home).read_text()


def test_a_host_that_starts_commands_needs_a_login_first(
    home: Path, run: Run, guarded_url: str
) -> None:
    done = run("install", "claude-desktop", guarded_url, *PATH)
    assert done.code == 2
    assert f"Run `dovetail login {guarded_url}` first" in done.failure
    assert "nothing was written" in done.failure
    assert not file_of(DESKTOP, home).exists()


def write_server(folder: Path, body: str) -> str:
    text = f"from dovetail import Server\nserver = Server('small')\n{body}\n"
    return str(write(folder / "small.py", text))


def test_a_server_that_offers_nothing_is_not_added(home: Path, run: Run) -> None:
    source = write_server(home, "")
    done = run("install", "cursor", source, *PATH)
    assert done.code == 2
    assert "has no tools, prompts or resources, so nothing was written" in done.failure
    assert not file_of(CURSOR, home).exists()
    assert run("install", "cursor", source, *PATH, "--no-check").code == 0


@pytest.mark.parametrize("kind", ["prompt", "resource('x://y')", "resource('x://{y}')"])
def test_a_server_without_tools_may_offer_something_else(home: Path, run: Run, kind: str) -> None:
    argument = "y: str" if "{y}" in kind else ""
    source = write_server(home, f"@server.{kind}\ndef hi({argument}) -> str:\n    return 'hi'")
    done = run("install", "cursor", source, *PATH)
    assert done.code == 0, done.err
    assert "The server starts and has no tools." in done.out


@pytest.mark.parametrize(
    ("body", "error", "hint"),
    [
        ("open('rates.csv')", "FileNotFoundError", "Use paths relative to `__file__`."),
        ("import os; os.environ['API_KEY']", "KeyError: 'API_KEY'", "Use --env KEY=VALUE"),
        ("import no_such_module", "ModuleNotFoundError", "the environment that has it"),
        ("raise ValueError('oops')", "ValueError: oops", None),
    ],
)
def test_a_server_that_fails_is_shown_once_with_a_hint(
    home: Path, run: Run, body: str, error: str, hint: str | None
) -> None:
    source = write_server(home, body)
    done = run("install", "cursor", source, *PATH)
    assert done.code == 2 and not file_of(CURSOR, home).exists()
    first, printed, *hints, last = done.err.splitlines()
    assert first == f"dovetail: error: Cursor could not start {source}. Nothing was written."
    assert printed.startswith("  | ") and error in printed and done.err.count(error) == 1
    assert len(hints) == (hint is not None) and (hint or "") in "".join(hints)
    assert last == "--no-check adds it anyway."


def test_a_variable_that_only_the_host_has_does_not_fail_the_check(home: Path, run: Run) -> None:
    body = "import os\nkey = os.environ['API_KEY']\n@server.tool\ndef hi() -> str:\n    return key"
    words = ("install", "cursor", write_server(home, body), *PATH, "--env", "API_KEY")
    done = run(*words)
    assert done.code == 0, done.err
    assert "API_KEY is not set in this shell, so the check ran without it" in done.err
    assert "  | " in done.err and "Set it to check the server" in done.err
    assert "Cursor must have API_KEY in its own environment." in done.out
    assert "${env:API_KEY}" in file_of(CURSOR, home).read_text()
    assert run("uninstall", "cursor", "small").code == 0
    checked = run(*words, API_KEY="1")
    assert "not set" not in checked.err and "has 1 tool: hi" in checked.out


def test_a_variable_that_is_set_does_not_excuse_a_failure(home: Path, run: Run) -> None:
    source = write_server(home, "raise ValueError")
    done = run("install", "cursor", source, *PATH, "--env", "API_KEY", API_KEY="1")
    assert done.code == 2 and "could not start" in done.err


@pytest.mark.parametrize("host", ["cursor", "claude-desktop"])
def test_a_url_without_a_server_cannot_be_reached(run: Run, host: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/mcp"
        done = run("install", host, url, *(PATH if host == "claude-desktop" else ()))
    assert done.code == 2
    assert done.err.startswith(f"dovetail: error: {url} cannot be reached. Nothing was written.\n")
    assert "start" not in done.err


def write_gateway(home: Path, **commands: list[str]) -> None:
    servers = {
        name: {"command": command[0], "args": command[1:], "env": {"PYTHONPATH": str(ROOT)}}
        for name, command in commands.items()
    }
    write(home / "my project" / "mcp.json", json.dumps({"mcpServers": servers}))


def test_a_gateway_without_a_server_that_starts_is_not_added(home: Path, run: Run) -> None:
    write_gateway(home, broken=["/no/such"])
    done = run("install", "claude-desktop", "--gateway", "mcp.json", *PATH)
    assert done.code == 2
    assert "Claude Desktop could not start gateway. Nothing was written.\n  | broken: " in done.err
    assert not file_of(DESKTOP, home).exists()


def test_a_gateway_is_started_and_its_broken_servers_are_named(home: Path, run: Run) -> None:
    weather = [sys.executable, "-m", "dovetail", "run", WEATHER]
    write_gateway(home, broken=["/no/such"], weather=weather)
    done = run("install", "claude-desktop", "--gateway", "mcp.json", *PATH)
    assert done.code == 0, done.err
    assert "warning: not all servers start. broken: " in done.err
    assert "The server starts and has 1 tool: " in done.out


def test_an_entry_that_exists_is_not_started_again(home: Path, run: Run) -> None:
    broken = str(write(home / "broken.py", "import no_such_module\n"))
    assert run("install", "cursor", broken, "--no-check").code == 0
    again = run("install", "cursor", broken)
    assert (again.code, again.err) == (0, "")
    assert "Nothing changed" in again.out
