"""`dovetail run`."""

import json
import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.cli.run import split
from tests.cli.conftest import ROOT, WEATHER, dovetail

GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def served(*words: str, cwd: Path | None = None) -> str:
    """The name of the server that answers."""
    done = dovetail("run", *words, stdin=json.dumps(GREETING) + "\n", cwd=cwd)
    assert done.code == 0, done.err
    name: str = done.json["result"]["serverInfo"]["name"]
    return name


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def write(source: str) -> str:
        path = tmp_path / "served.py"
        path.write_text("from dovetail import Server\n" + textwrap.dedent(source))
        return str(path)

    return write


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("server.py", "server.py", None),
        ("server.py:app", "server.py", "app"),
        ("server.py:app.inner", "server.py", "app.inner"),
        ("C:\\x\\server.py", "C:\\x\\server.py", None),
        ("C:server.py", "C:server.py", None),
        ("C:\\x\\server.py:app", "C:\\x\\server.py", "app"),
        ("/a:b/server.py", "/a:b/server.py", None),
        ("server.py:", "server.py:", None),
    ],
)
def test_file_and_object_are_told_apart(text: str, path: str, name: str | None) -> None:
    assert split(text) == (path, name)


def test_the_example_is_served() -> None:
    assert served(WEATHER) == "weather"


@pytest.mark.parametrize(
    ("source", "object", "name"),
    [
        ("anything = Server('only')", "", "only"),
        ("a = b = Server('one with two names')", "", "one with two names"),
        ("a = Server('a'); mcp = Server('usual')", "", "usual"),
        ("a = Server('a'); b = Server('b')", ":b", "b"),
        ("class Holder: inner = Server('inner')", ":Holder.inner", "inner"),
        ("server = Server('s')\nif __name__ == '__main__': raise SystemExit('a script')", "", "s"),
        ("print('noise', flush=True); server = Server('quiet')", "", "quiet"),
    ],
)
def test_the_server_is_found(write: Callable[[str], str], source: str, object: str, name: str) -> None:
    assert served(write(source) + object) == name


def test_the_folder_of_the_file_can_be_imported_from(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "helper.py").write_text("NAME = 'from a sibling'")
    (folder / "main.py").write_text("import helper\nfrom dovetail import Server\nserver = Server(helper.NAME)")
    assert served("deep/main.py", cwd=tmp_path) == "from a sibling"


@pytest.mark.parametrize("name", ["dovetail.py", "main.py", "with-dash.py", "two.dots.py"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("from dovetail import Server\nserver = Server('named')")
    assert served(str(tmp_path / name)) == "named"


@pytest.mark.parametrize(
    ("source", "object", "code", "failure"),
    [
        ("x = 1\n1 / 0", "", 1, "{path}:3: ZeroDivisionError: division by zero"),
        ("def f(): 1 / 0\nf()", "", 1, "{path}:2: ZeroDivisionError: division by zero"),
        ("import no_such_module", "", 1, "{path}:2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = (", "", 1, "{path}:2: SyntaxError: '(' was never closed"),
        ("raise SystemExit('no key')", "", 1, "{path}:2: SystemExit: no key"),
        ("raise ValueError('two\\nlines')", "", 1, "{path}:2: ValueError: two lines"),
        ("raise ValueError", "", 1, "{path}:2: ValueError"),
        ("", "", 2, "{path} has no Server at module level; make one, or name it: {path}:OBJECT"),
        ("a = Server('a'); b = Server('b')", "", 2, "{path} has several servers; choose one: {path}:a, {path}:b"),
        ("a = 3", ":a", 2, "{path}: a is no Server but 'int'"),
        ("a = 3", ":b", 2, "{path}: b is not there"),
        ("a = 3", ":a.b.c", 2, "{path}: a.b.c is not there"),
    ],
)
def test_a_file_that_cannot_be_served_fails_in_one_line(
    write: Callable[[str], str], source: str, object: str, code: int, failure: str
) -> None:
    path = write(source)
    done = dovetail("run", path + object)
    assert (done.code, done.out, done.failure) == (code, "", failure.format(path=path))


def test_verbose_shows_the_traceback(write: Callable[[str], str]) -> None:
    done = dovetail("run", write("def f(): 1 / 0\nf()"), "--verbose")
    assert "in f\n" in done.err
    assert done.err.splitlines()[-1].endswith("ZeroDivisionError: division by zero")


def test_a_file_that_is_not_there_or_not_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert dovetail("run", "no/such.py").failure == "there is no file no/such.py"
    assert dovetail("run", str(tmp_path / "notes.txt")).failure == f"{tmp_path}/notes.txt is no Python file"


@pytest.mark.parametrize("words", [["--http"], ["--sse"], ["--websocket"], ["--port", "80"]])
def test_what_this_version_cannot_serve_is_refused(words: list[str]) -> None:
    done = dovetail("run", WEATHER, *words)
    assert (done.code, done.out) == (2, "")
    assert words[0].strip("-") in done.failure


def test_two_transports_at_once_are_refused() -> None:
    done = dovetail("run", WEATHER, "--http", "--sse")
    assert done.code == 2
    assert "not allowed with" in done.failure


def test_a_served_file_is_a_target_for_the_other_verbs() -> None:
    target = shlex.join([sys.executable, "-m", "dovetail", "run", WEATHER])
    assert dovetail("ping", target, "--cwd", str(ROOT)).out.startswith("weather answered")
