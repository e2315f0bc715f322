"""`dovetail run`."""

import json
import re
import shlex
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import ROOT, SECONDS, WEATHER, command, dovetail, environment

GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def served(*words: str, cwd: Path | None = None) -> str:
    """The name of the server that answers."""
    done = dovetail("run", *words, stdin=json.dumps(GREETING) + "\n", cwd=cwd)
    assert done.code == 0, done.err
    name: str = done.json["result"]["serverInfo"]["name"]
    return name


def wait_for(url: str, serving: "subprocess.Popen[str]") -> None:
    """Until it listens there; the line that names the URL comes a little earlier."""
    where = urlsplit(url)
    while serving.poll() is None:
        try:
            return socket.create_connection((where.hostname, where.port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError(serving.stderr and serving.stderr.read())


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def write(source: str) -> str:
        path = tmp_path / "served.py"
        path.write_text("from dovetail import Server\n" + textwrap.dedent(source))
        return str(path)

    return write


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
def test_the_server_is_found(
    write: Callable[[str], str], source: str, object: str, name: str
) -> None:
    assert served(write(source) + object) == name


def test_the_folder_of_the_file_can_be_imported_from(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "helper.py").write_text("NAME = 'from a sibling'")
    (folder / "main.py").write_text(
        "import helper\nfrom dovetail import Server\nserver = Server(helper.NAME)"
    )
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
        (
            "import no_such_module",
            "",
            1,
            "{path}:2: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("x = (", "", 1, "{path}:2: SyntaxError: '(' was never closed"),
        ("raise SystemExit('no key')", "", 1, "{path}:2: SystemExit: no key"),
        ("raise ValueError('two\\nlines')", "", 1, "{path}:2: ValueError: two lines"),
        ("raise ValueError", "", 1, "{path}:2: ValueError"),
        ("", "", 2, "{path} has no Server at module level; create one, or name it: {path}:OBJECT"),
        (
            "a = Server('a'); b = Server('b')",
            "",
            2,
            "{path} has several servers; choose one: {path}:a, {path}:b",
        ),
        (
            "a = 3",
            ":a",
            2,
            "a is an int, not a Server. Name the Server object, or a function that returns it: "
            "{path}:server",
        ),
        (
            "def make(): return 3",
            ":make",
            2,
            "make is an int, not a Server. Name the Server object, or a function that returns it: "
            "{path}:server",
        ),
        ("def make(): 1 / 0", ":make", 1, "{path}:2: ZeroDivisionError: division by zero"),
        ("a = 3", ":b", 2, "{path} has no object named 'b'"),
        ("a = 3", ":a.b.c", 2, "{path} has no object named 'a.b.c'"),
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
    assert dovetail("run", "no/such.py").failure == "The file no/such.py does not exist"
    assert (
        dovetail("run", str(tmp_path / "notes.txt")).failure
        == f"{tmp_path}/notes.txt is not a Python file or MODULE:OBJECT"
    )
    assert dovetail("run", "server").failure == "server is not a Python file or MODULE:OBJECT"
    help_text = " ".join(dovetail("run", "--help").out.split())
    assert "a Python file, such as server.py, or MODULE:OBJECT" in help_text


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "::1"],
        ["--port", "80"],
        ["--workers", "2"],
        ["--certfile", "x"],
        ["--public-url", "https://x"],
        ["--hosts", "x"],
    ],
)
def test_what_only_a_network_has_is_refused_on_stdio(words: list[str]) -> None:
    done = dovetail("run", WEATHER, *words)
    assert (done.code, done.out) == (2, "")
    assert (
        done.failure == f"{words[0]} requires a network transport; add --http, --sse or --websocket"
    )


@pytest.mark.parametrize(
    "words", [["--port", "65536"], ["--port", "-1"], ["--port", "http"], ["--workers", "0"]]
)
def test_a_setting_that_makes_no_sense_is_refused(words: list[str]) -> None:
    done = dovetail("run", WEATHER, "--http", *words)
    assert (done.code, done.out) == (2, "")
    assert done.failure.startswith(f"argument {words[0]}: ")


def test_a_port_that_is_taken_fails_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = dovetail("run", WEATHER, "--http", "--port", str(port))
    assert (done.code, done.out) == (2, "")
    assert done.failure == f"Cannot listen on 127.0.0.1 port {port}: Address already in use"


def test_an_address_that_is_not_ours_fails_in_one_line() -> None:
    done = dovetail("run", WEATHER, "--http", "--host", "192.0.2.1", "--port", "0")
    assert (done.code, done.out) == (2, "")
    assert done.failure == "Cannot listen on 192.0.2.1 port 0: Cannot assign requested address"


def test_settings_go_to_the_server_as_they_are(write: Callable[[str], str]) -> None:
    path = write(
        "class Told(Server):\n    def run(self, *a, **k): print(a, k)\nserver = Told('told')"
    )
    words = [
        "--workers",
        "3",
        "--certfile",
        "c.pem",
        "--keyfile",
        "k.pem",
        "--path",
        "/here",
        "--host",
        "::1",
        "--hosts",
        "mcp.example",
        "--hosts",
        "other.example",
    ]
    done = dovetail("run", path, "--http", "--port", "0", *words)
    given = {
        "host": "::1",
        "port": 0,
        "path": "/here",
        "workers": 3,
        "certfile": "c.pem",
        "keyfile": "k.pem",
        "hosts": ["mcp.example", "other.example"],
    }
    assert done.out == f"{('http',)} {given}\n"


def test_in_json_it_is_said_on_stdout_where_it_is_served(write: Callable[[str], str]) -> None:
    path = write(
        "class Told(Server):\n    def run(self, *a, ready, **k): ready('x')\nserver = Told('told')"
    )
    done = dovetail("run", path, "--http", "--json")
    assert (json.loads(done.out), done.err) == ({"server": "told", "url": "x"}, "")


@pytest.mark.parametrize(
    ("words", "url"),
    [
        (["--http"], r"http://127\.0\.0\.1:[1-9]\d*/mcp"),
        (["--sse"], r"http://127\.0\.0\.1:[1-9]\d*/sse"),
        (["--websocket", "--path", "/here"], r"ws://127\.0\.0\.1:[1-9]\d*/here"),
        (
            ["--http", "--public-url", "https://weather.example/mcp"],
            r"https://weather\.example/mcp",
        ),
    ],
)
def test_a_line_says_where_it_is_served_once_clients_can_connect(
    words: list[str], url: str
) -> None:
    whole = command("run", WEATHER, "--port", "0", *words)
    with subprocess.Popen(whole, stderr=subprocess.PIPE, env=environment(), text=True) as serving:
        try:
            assert serving.stderr is not None
            line = serving.stderr.readline()
            assert re.fullmatch(rf"Serving weather on {url}\n", line), line
        finally:
            serving.terminate()


def test_a_certificate_that_is_none_fails_in_one_line() -> None:
    done = dovetail("run", WEATHER, "--http", "--port", "0", "--certfile", "nowhere.pem")
    assert (done.code, done.out) == (2, "")
    assert (
        done.failure
        == "The certificate nowhere.pem cannot be used: [Errno 2] No such file or directory"
    )


@pytest.mark.parametrize("transport", ["--http", "--sse", "--websocket"])
def test_what_is_served_on_the_network_is_a_target_for_the_other_verbs(transport: str) -> None:
    words = command("run", WEATHER, transport, "--port", "0")
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=environment(), text=True) as serving:
        try:
            assert serving.stderr is not None
            url = serving.stderr.readline().strip().removeprefix("Serving weather on ")
            wait_for(url, serving)
            assert dovetail("ping", url).out.startswith("weather answered")
            assert '"city": "Oslo"' in dovetail("call", url, "forecast", "city=Oslo").out
        finally:
            serving.terminate()
        assert serving.wait(SECONDS) == 0


def test_two_transports_at_once_are_refused() -> None:
    done = dovetail("run", WEATHER, "--http", "--sse")
    assert done.code == 2
    assert "not allowed with" in done.failure


def test_a_served_file_is_a_target_for_the_other_verbs() -> None:
    target = shlex.join([sys.executable, "-m", "dovetail", "run", WEATHER])
    assert dovetail("ping", target, "--cwd", str(ROOT)).out.startswith("weather answered")


LOGGED = """
server = Server("logged")

@server.tool
def fine(text: str) -> str:
    return text

@server.tool
def broken() -> str:
    raise ValueError("as it should be")

@server.resource("a://b")
def failing() -> str:
    raise ValueError("of a resource")
"""


def test_verbose_logs_each_request_in_one_line(write: Callable[[str], str]) -> None:
    calls = [
        ("tools/call", {"name": "fine", "arguments": {"text": "x"}}),
        ("tools/call", {"name": "broken"}),
        ("tools/call", {"name": "no\x1b[2Jne"}),
        ("resources/read", {"uri": "a://b"}),
        ("no/such", {}),
    ]
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    requests = [
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        for id, (method, params) in enumerate(calls, 2)
    ]
    stdin = "".join(json.dumps(one) + "\n" for one in (GREETING, initialized, *requests))
    path = write(LOGGED)
    done = dovetail("run", path, "--verbose", stdin=stdin)
    assert done.code == 0
    assert len(done.out.splitlines()) == 6
    lines = [line for line in done.err.splitlines() if re.match(r"\d\d:\d\d:\d\d [A-Z]", line)]
    line = r"\d\d:\d\d:\d\d {} +{}, \d+\.\d ms"
    for level, text in [
        ("INFO", "tools/call fine: ok"),
        ("WARNING", "tools/call broken: tool-error"),
        ("ERROR", r"tools/call no\\x1b\[2Jne: error \(InvalidParams\)"),
        ("ERROR", r"resources/read a://b: error \(InternalError\)"),
    ]:
        pattern = line.format(level, text)
        assert [one for one in lines if re.fullmatch(pattern, one)], (pattern, done.err)
    assert "\x1b" not in done.err


@pytest.mark.parametrize("tool", ["tools/call", "resources/read"])
def test_a_traceback_starts_in_the_users_code(write: Callable[[str], str], tool: str) -> None:
    params = {"name": "broken", "uri": "a://b"}
    request = {"jsonrpc": "2.0", "id": 2, "method": tool, "params": params}
    stdin = "".join(json.dumps(one) + "\n" for one in (GREETING, request))
    path = write(LOGGED)
    err = dovetail("run", path, "--verbose", stdin=stdin).err
    first = err[err.index("Traceback (most") :].splitlines()[1]
    assert first.startswith(f'  File "{path}", line ')


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_the_url_comes_with_the_way_to_stop() -> None:
    import os
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("run", WEATHER, "--http", "--port", "0"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment(TERM="xterm"),
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        written = b""
        while b"\n" not in written:
            written += terminal.read(4096)
        process.terminate()
        process.wait(SECONDS)
    assert b"/mcp (press Ctrl-C to stop)\r\n" in written


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_the_level_of_a_line_is_coloured_on_a_terminal() -> None:
    import os
    import pty

    ours, theirs = pty.openpty()
    whole = command("run", WEATHER, "--verbose")
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    done = subprocess.run(
        whole,
        input=f"{json.dumps(GREETING)}\n{json.dumps(listing)}\n".encode(),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment(TERM="xterm"),
        timeout=SECONDS,
        check=False,
    )
    os.set_blocking(ours, False)
    written = os.read(ours, 65536)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    assert b"\x1b[32mINFO    \x1b[0m tools/list: ok, " in written


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("words", "target"),
    [
        (["-m", "dovetail", "run", "here.py"], "here.py"),
        (["-m", "dovetail", "run", "here.py:server"], "here.py:server"),
        (["-m", "dovetail", "run", "here:server"], "here:server"),
        (["-m", "dovetail", "gateway", "here.py"], '"dovetail gateway here.py"'),
        (["here.py"], "here.py"),
        (["-c", "import here; here.server.run()"], "server.py"),
        (["-c", "import here; here.server.run(quiet=True)"], None),
    ],
    ids=["file", "object", "module", "gateway", "script", "code", "quiet"],
)
def test_stdio_at_a_terminal_says_how_to_try_it(
    tmp_path: Path, words: list[str], target: str | None
) -> None:
    import os
    import pty

    (tmp_path / "here.py").write_text(
        "from dovetail import Server\nserver = Server('here')\n"
        "if __name__ == '__main__': server.run()"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, *words],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=tmp_path,
        env=environment(TERM="xterm"),
    ) as process:
        os.write(ours, json.dumps(GREETING).encode() + b"\n")
        assert process.stdout is not None
        assert b"serverInfo" in process.stdout.readline()
        os.write(ours, b"\x04")
        assert process.wait(SECONDS) == 0
    written = os.read(ours, 65536).decode()
    os.close(theirs)
    os.close(ours)
    name = "gateway" if "gateway" in words else "here"
    waiting = f"{name} is waiting for an MCP client on stdin. Press Ctrl-C to stop the server."
    assert (waiting in written) == (target is not None)
    hint = f"To try the server, run: dovetail inspect {target}\r\n"
    assert (hint in written) == (target is not None)


@pytest.mark.parametrize(
    ("options", "line"),
    [("", "Serving named on http://127.0.0.1:{port}/mcp\n"), (", quiet=True", "")],
)
def test_run_prints_the_url(tmp_path: Path, options: str, line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = tmp_path / "named.py"
    path.write_text(
        "from dovetail import Server\nimport threading, os, signal, time, urllib.request\n"
        "def stop():\n"
        "    while True:\n"
        f"        try: urllib.request.urlopen('http://127.0.0.1:{port}/health').close(); break\n"
        "        except OSError: time.sleep(0.02)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=stop, daemon=True).start()\n"
        f"Server('named').run('http', port={port}{options})"
    )
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == line.format(port=port)
