"""`dovetail dev` as a user has it: a process, a server that it restarts, and pages that follow."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.cli.conftest import SECONDS, command, dovetail, environment
from tests.inspector.inspecting import page_folder
from tests.processes import HAS_PROC, find_children, find_in_folder, is_running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")

HEAD = "from dovetail import Server\nserver = Server('shop')\n"
ADD = "@server.tool\ndef add(a: int, b: int) -> int:\n    return a + b\n"
PID = "import os, pathlib\npathlib.Path(f'pid-{os.getpid()}').touch()\n"
LAUNCH = """
import sys
from pathlib import Path
from dovetail.inspector import files
files.load_files.__defaults__ = (Path(sys.argv.pop(1)), "'none'")
from dovetail.cli.main import main
sys.exit(main())
"""
"""Runs the command with a page that needs no fetched libraries."""


class Dev:
    """A running `dovetail dev`."""

    def __init__(self, folder: Path, page: Path, *words: str) -> None:
        self.folder = folder
        _, _, _, *arguments = command("dev", *words, "--no-open")
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(page), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment(XDG_STATE_HOME=str(page)),
            text=True,
            start_new_session=True,
        )
        self.lines: Queue[str] = Queue()
        self._pages: list[Events] = []
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()
        self.url = self.line().split(" on ")[1].split(" ")[0]
        self.address, _, self.token = self.url.removeprefix("http://").partition("/#")

    def _read_lines(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.put(line.rstrip("\n"))

    def line(self) -> str:
        """Return the next line on stderr."""
        return self.lines.get(timeout=SECONDS)

    def events(self) -> "Events":
        """Open a page's event stream."""
        self._pages.append(Events(self.address, self.token))
        return self._pages[-1]

    def do(self, operation: str, **fields: Any) -> Any:
        """Run an operation as the page does."""
        connection = http.client.HTTPConnection(self.address, timeout=SECONDS)
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        connection.request("POST", f"/api/{operation}", json.dumps(fields), headers)
        reply = json.loads(connection.getresponse().read())
        connection.close()
        return reply

    def save(self, text: str, name: str = "server.py") -> None:
        (self.folder / f"{name}.tmp").write_text(text)
        (self.folder / f"{name}.tmp").replace(self.folder / name)

    def servers(self) -> list[int]:
        """Return the servers that run, whoever their parent is."""
        if HAS_PROC:
            return [pid for pid in find_in_folder(self.folder) if pid != self.process.pid]
        started = [int(path.name.removeprefix("pid-")) for path in self.folder.glob("pid-*")]
        return list(filter(is_running, started))

    def end(self, number: int = signal.SIGINT) -> float:
        """Send a signal, and return how many seconds it took until everything has ended."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(SECONDS)
        wait_until(lambda: not self.servers())
        return time.monotonic() - began

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for page in self._pages:
            page.close()
        self._reader.join(SECONDS)
        assert self.process.stderr
        self.process.stderr.close()


class Events:
    """The event stream of one page."""

    def __init__(self, address: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=SECONDS)
        headers = {"authorization": f"Bearer {token}"}
        self._connection.request("GET", "/api/events?after=0", headers=headers)
        self._reply = self._connection.getresponse()
        assert self._reply.status == 200

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Wait for an event with these fields."""
        for line in self._reply:
            if line.startswith(b"data: "):
                event: dict[str, Any] = json.loads(line[6:])
                found = fields.items() <= event.items()
                if event["kind"] == kind and found:
                    return event
        raise AssertionError("The stream has ended")

    def close(self) -> None:
        self._reply.close()
        self._connection.close()

    def tools(self) -> list[str]:
        """Wait for the next lists, and return the names of the tools."""
        lists = self.until("lists")["lists"]
        return [item["name"] for item in json.loads(lists["tools"] or "[]")]


@pytest.fixture
def start(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []
    page = page_folder(tmp_path_factory.mktemp("page") / "static")

    def start(source: str, *words: str) -> Dev:
        (tmp_path / "server.py").write_text(source)
        started.append(Dev(tmp_path, page, *(words or ("server.py",))))
        return started[-1]

    yield start
    for dev in started:
        dev.close()


def test_a_saved_file_reaches_the_page(start: Callable[..., Dev]) -> None:
    dev = start(PID + HEAD)
    events = dev.events()
    assert events.tools() == []
    began = time.monotonic()
    dev.save(PID + HEAD + ADD)
    assert events.tools() == ["add"]
    print(f"saved to listed: {time.monotonic() - began:.2f} s")
    line = dev.line()
    assert line.startswith("server.py changed. Restarted in ")
    assert line.endswith(" s: +1 tool: add")
    assert events.until("reload", files=["server.py"])["message"]
    assert len(dev.servers()) == 1


def test_a_traceback_is_on_the_terminal_and_on_the_page(start: Callable[..., Dev]) -> None:
    dev = start(HEAD + ADD)
    events = dev.events()
    assert events.tools() == ["add"]
    dev.save(HEAD + "1 / 0\n")
    lines = [dev.line()]
    while "changed." not in lines[-1]:
        lines.append(dev.line())
    assert any("1 / 0" in line for line in lines)
    assert lines[-1].endswith("The server could not be loaded: ZeroDivisionError: division by zero")
    while "traceback" not in (event := events.until("reload")):
        pass
    assert "ZeroDivisionError" in event["traceback"]
    assert [item["name"] for item in json.loads(dev.do("snapshot")["lists"]["tools"])] == ["add"]
    dev.save(HEAD)
    assert dev.line().endswith("-1 tool: add")


def test_ctrl_c_ends_everything_with_two_pages_open(start: Callable[..., Dev]) -> None:
    dev = start(PID + HEAD)
    pages = [dev.events(), dev.events()]
    for page in pages:
        assert page.tools() == []
    assert len(dev.servers()) == 1
    seconds = dev.end()
    assert dev.servers() == []
    print(f"Ctrl-C to the end: {seconds:.2f} s")
    assert dev.process.returncode in (0, 130)
    assert seconds < 30


def test_a_server_that_ignores_sigterm_and_its_input_is_killed(start: Callable[..., Dev]) -> None:
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    stays = "import atexit, time\natexit.register(time.sleep, 99)\n"
    dev = start(PID + HEAD + stubborn + stays)
    events = dev.events()
    assert events.tools() == []
    dev.save(PID + HEAD + stubborn + stays + ADD)
    assert events.tools() == ["add"]
    wait_until(lambda: len(dev.servers()) == 1)
    dev.end()


def test_the_server_ends_with_a_command_that_is_killed(start: Callable[..., Dev]) -> None:
    dev = start(PID + HEAD)
    assert dev.events().tools() == []
    dev.end(signal.SIGKILL)


def test_fifty_saves_leave_one_server(start: Callable[..., Dev]) -> None:
    dev = start(PID + HEAD)
    events = dev.events()
    assert events.tools() == []
    for number in range(50):
        dev.save(f"{PID}{HEAD}{ADD.replace('add', f'add_{number}')}")
        time.sleep(0.1)  # 50 saves in 5 seconds
    while events.tools() != ["add_49"]:
        pass
    wait_until(lambda: len(dev.servers()) == 1)
    if HAS_PROC:
        assert dev.servers() == find_children(dev.process.pid), "it is not an orphan"
    dev.end()
    assert dev.servers() == []


def test_with_json_the_url_is_on_stdout(start: Callable[..., Dev], tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(HEAD)
    page = page_folder(tmp_path / "page")
    _, _, _, *arguments = command("dev", "server.py", "--no-open", "--json")
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(page), *arguments],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(XDG_STATE_HOME=str(page)),
    )
    assert process.stdout
    try:
        assert json.loads(process.stdout.readline())["url"].startswith("http://127.0.0.1:")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS)
        process.stdout.close()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["node server.js"], "node server.js is not Python code, so its files are not known. Name"),
        (["mcp.json"], "mcp.json is not Python code"),
        (["https://example.com/mcp"], "Run: dovetail inspect https://example.com/mcp --web"),
        (["server.py", "--watch", "no-such-folder"], "--watch no-such-folder: there is no such"),
        (["no_such.py"], "The file no_such.py does not exist"),
    ],
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, words: list[str], problem: str) -> None:
    (tmp_path / "server.py").write_text(HEAD)
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"command": "node"}}}')
    done = dovetail("dev", *words, "--no-open", cwd=tmp_path)
    assert done.code == 2
    assert problem in done.failure


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
