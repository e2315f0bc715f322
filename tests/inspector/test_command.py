"""`dovetail inspect TARGET --web` as a process: its URL, its port, its token, its end."""

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail.errors import ConfigError
from dovetail.inspector.files import load_files
from tests.cli.conftest import ROOT, SECONDS, WEATHER, command, dovetail, environment
from tests.clock import awake_time
from tests.processes import HAS_PROC, find_children, is_running


def has_page() -> bool:
    try:
        load_files()
    except ConfigError:
        return False
    return True


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
needs_page = pytest.mark.skipif(not has_page(), reason="the page is missing: run `make assets`")


class Page(NamedTuple):
    """A page that is being served."""

    process: "subprocess.Popen[str]"
    url: str

    @property
    def base(self) -> str:
        return self.url.partition("#")[0]

    @property
    def token(self) -> str:
        return self.url.partition("#")[2]

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2].strip("/"))

    def open(self, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.urlopen(
            urllib.request.Request(self.base + path, data, headers), timeout=SECONDS
        )


@contextmanager
def serving(
    folder: Path, *words: str, target: str = WEATHER, patch: str = "", **variables: str
) -> Iterator[Page]:
    python, _, _, *arguments = command("inspect", target, "--web", "--json", *words)
    launch = f"{patch}\nimport sys\nfrom dovetail.cli.main import main\nsys.exit(main())"
    process = subprocess.Popen(
        [python, "-c", launch, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(XDG_STATE_HOME=str(folder), **variables),
    )
    try:
        assert process.stdout is not None
        yield Page(process, json.loads(process.stdout.readline())["url"])
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


@needs_page
def test_ctrl_c_with_two_pages_open_ends_everything_within_a_second(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-open") as page:
        streams = [page.open("api/events?after=0") for _ in range(2)]
        for stream in streams:
            while b'"kind":"lists"' not in stream.readline():
                pass
        servers = find_children(page.process.pid)
        assert len(servers) == HAS_PROC
        began = awake_time()
        page.process.send_signal(signal.SIGINT)
        assert page.process.wait(SECONDS) == 0
        assert awake_time() - began < 2  # a second, on a machine that does nothing else
        assert not any(map(is_running, servers))


@needs_page
def test_the_browser_opens_a_file_that_only_the_user_can_read(tmp_path: Path) -> None:
    browser = tmp_path / "browser.py"
    browser.write_text(
        f"#!{sys.executable}\nimport os, sys, time\n"
        "lines = []\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    try: lines.append(open(f'/proc/{pid}/cmdline', 'rb').read())\n"
        "    except OSError: pass\n"
        f"open({str(tmp_path / 'seen.tmp')!r}, 'wb').write("
        "sys.argv[1].encode() + b'\\n' + b'\\n'.join(lines))\n"
        f"os.rename({str(tmp_path / 'seen.tmp')!r}, {str(tmp_path / 'seen')!r})\n"
    )
    browser.chmod(0o700)
    with serving(tmp_path, BROWSER=f"{browser} %s") as page:
        seen = tmp_path / "seen"
        deadline = time.monotonic() + SECONDS
        while not seen.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        url, _, lines = seen.read_bytes().partition(b"\n")
        assert url.startswith(b"file:///")
        assert page.token.encode() not in lines
        path = Path(url.decode().removeprefix("file://"))
        assert page.url in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        page.process.send_signal(signal.SIGINT)
        assert page.process.wait(SECONDS) == 0
        assert not path.parent.exists()


@needs_page
def test_the_next_run_has_the_same_port_and_another_token(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-open") as first:
        pass
    with serving(tmp_path, "--no-open") as second:
        assert second.port == first.port
        assert second.token != first.token
        with serving(tmp_path, "--no-open") as third:
            assert third.port != second.port


@needs_page
def test_a_given_port_is_used_or_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = dovetail("inspect", WEATHER, "--web", "--no-open", "--port", str(port))
        assert done.code == 2 and f"port {port}" in done.failure
    with serving(tmp_path, "--no-open", "--port", str(port)) as page:
        assert page.port == port


@needs_page
def test_a_server_that_cannot_be_started_leaves_the_page(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise RuntimeError('nope')\n")
    with serving(tmp_path, "--no-open", target=str(script)) as page:
        stream = page.open("api/events?after=0")
        while b'"status":"failed"' not in (line := stream.readline()):
            pass
        assert b"nope" in line and b"what_to_do" in line
        assert json.load(page.open("api/snapshot", {}))["state"]["status"] == "failed"


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@needs_page
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"])
def test_views_have_an_origin_of_their_own_without_page_and_api(
    tmp_path: Path, address: str
) -> None:
    with serving(tmp_path, "--no-open", target=str(ROOT / "examples/apps/server.py")) as page:
        stream = page.open("api/events?after=0")
        while b'"kind":"lists"' not in stream.readline():
            pass
        fields = {"tool": "forecast", "arguments": '{"city": "Oslo"}'}
        origin, _, path = json.load(page.open("api/app_open", fields))["src"].rpartition("/")
        port = int(origin.removeprefix("http://localhost:"))
        assert f"frame-src {origin};" in page.open("").headers["content-security-policy"]

        def ask(method: str, path: str, host: str) -> tuple[int, bytes]:
            connection = http.client.HTTPConnection(address, port, timeout=SECONDS)
            headers = {"Host": host, "Authorization": f"Bearer {page.token}"}
            connection.request(method, f"/{path}", headers=headers)
            reply = connection.getresponse()
            return reply.status, reply.read()

        assert ask("GET", path, f"localhost:{port}")[0] == 200
        for host in (f"localhost:{port}", page.base[7:-1]):
            for method, other in (("GET", ""), ("POST", "api/snapshot"), ("GET", "api/events")):
                assert ask(method, other, host) == (404, b"")
        for data in (b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000):
            with socket.create_connection((address, port), timeout=SECONDS) as client:
                client.sendall(data + b"\r\n\r\n")
                client.shutdown(socket.SHUT_WR)
                try:
                    assert b" 200 " not in client.recv(100)
                except ConnectionError:
                    pass


NO_PORT = """
import dovetail.inspector.view_listener as views

def fail():
    raise OSError(24, "Too many open files")

views._open_sockets = fail
"""


@needs_page
def test_without_a_port_for_views_the_page_starts_and_says_why(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-open", patch=NO_PORT) as page:
        apps = json.load(page.open("api/snapshot", {}))["apps"]
        assert apps["why_not"].endswith("none can be opened: Too many open files.")
        assert "frame-src 'none'" in page.open("").headers["content-security-policy"]


@needs_page
def test_exports_repeat_the_options_of_the_terminal(tmp_path: Path) -> None:
    words = ["--env", "API_KEY=s3cret", "--env", "MODE=test", "--revision", "2025-06-18"]
    with serving(tmp_path, "--no-open", "--cwd", str(tmp_path), *words) as page:
        message = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
        exported = json.load(page.open("api/export", {"message": message, "form": "command"}))
    assert exported["text"] == (
        f"dovetail ping --revision=2025-06-18 --cwd={tmp_path} "
        f'--env=API_KEY="$API_KEY" --env=MODE=test --env=PYTHONPATH={ROOT} -- {WEATHER}'
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
def test_another_machine_needs_permission(host: str) -> None:
    done = dovetail("inspect", WEATHER, "--web", "--no-open", "--host", host)
    assert done.code == 2 and "--allow-remote" in done.failure


@pytest.mark.parametrize(
    "words",
    [["--port", "80"], ["--no-open"], ["--host", "::1"], ["--root", "."], ["--show-secrets"]],
)
def test_options_of_the_page_need_the_page(words: list[str]) -> None:
    done = dovetail("inspect", WEATHER, *words)
    assert (done.code, done.failure) == (2, f"{words[0]} requires --web")


def test_a_wrong_command_line_is_reported_before_anything_is_served(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.py")
    assert "does not exist" in dovetail("inspect", missing, "--web", "--no-open").failure
    gone = str(tmp_path / "gone")
    done = dovetail("inspect", WEATHER, "--web", "--no-open", "--root", gone)
    assert "there is no such folder" in done.failure


def test_without_the_extra_one_line_names_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['uvicorn'] = None\n")
    path = os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"]))
    done = subprocess.run(
        command("inspect", WEATHER, "--web", "--no-open"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=path),
        timeout=SECONDS,
    )
    assert done.returncode == 2 and "dovetail-mcp[http]" in done.stderr
