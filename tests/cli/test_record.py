"""`dovetail record`: a host sees the server as it is, and the file has what they said."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dovetail.mcplog import read_mcplog
from dovetail.revisions import OFFICIAL
from tests.cli.conftest import SECONDS, WEATHER, command, dovetail, environment
from tests.cli.recorded import record_shop, served_over_http, write_shop

REVISIONS = [revision.name for revision in OFFICIAL]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
linux = pytest.mark.skipif(sys.platform != "linux", reason="death signals are of Linux")
BYTES = b'{"id":1}\nnot json\n\r\n\n\xff\xfe\x00\n{"id":2}\r\n' + b"x" * 300_000 + b"\nno newline"


def script(folder: Path, source: str) -> str:
    """A command that runs a program with bare pipes."""
    (folder / "program.py").write_text(f"import os, signal, sys, time\n{source}")
    return shlex.join([sys.executable, "-u", str(folder / "program.py")])


def start(target: str, file: Path, *options: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command("record", target, "-o", str(file), *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + SECONDS
    while is_running(pid):
        assert time.monotonic() < deadline, "the server is still there"
        time.sleep(0.05)


def sent(file: Path, direction: str) -> list[bytes]:
    return [event.data for event in read_mcplog(file).wire() if event.direction == direction]


ECHO = """
while chunk := os.read(0, 65536):
    while chunk:
        chunk = chunk[os.write(1, chunk):]
sys.stderr.write("bye\\x1b[1m\\n")
sys.exit(7)
"""


def test_bytes_stderr_and_exit_status_pass_exactly(tmp_path: Path) -> None:
    process = start(script(tmp_path, ECHO), tmp_path / "night.mcplog")
    out, err = process.communicate(BYTES, timeout=SECONDS)
    assert (out, err, process.returncode) == (BYTES, b"bye\x1b[1m\n", 7)
    lines = [line for line in BYTES.split(b"\n") if line not in (b"", b"\r")]
    assert sent(tmp_path / "night.mcplog", "to_server") == lines
    assert sent(tmp_path / "night.mcplog", "to_client") == lines


def test_a_message_is_in_the_file_before_its_reply(tmp_path: Path) -> None:
    process = start(script(tmp_path, ECHO), tmp_path / "night.mcplog")
    process.communicate(b"".join(b"%d\n" % number for number in range(2000)), timeout=SECONDS)
    seen: set[bytes] = set()
    for event in read_mcplog(tmp_path / "night.mcplog").wire():
        if event.direction == "to_server":
            seen.add(event.data)
        else:
            assert event.data in seen


@posix
def test_the_file_is_private_and_names_the_target(tmp_path: Path) -> None:
    process = start(script(tmp_path, "sys.exit(0)"), tmp_path / "night.mcplog")
    process.communicate(timeout=SECONDS)
    assert stat.S_IMODE((tmp_path / "night.mcplog").stat().st_mode) == 0o600
    target = read_mcplog(tmp_path / "night.mcplog").header.target
    assert target == [sys.executable, "-u", str(tmp_path / "program.py")]


def test_the_server_gets_the_environment_that_the_host_has_set(tmp_path: Path) -> None:
    target = script(tmp_path, "print(os.environ['API_KEY'], os.environ['MORE'], os.getcwd())")
    with subprocess.Popen(
        command("record", target, "-o", str(tmp_path / "a.mcplog"), "--env", "MORE=2"),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        env=environment(API_KEY="1"),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read().split() == [b"1", b"2", str(tmp_path).encode()]


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_server(tmp_path: Path, number: signal.Signals) -> None:
    source = f"signal.signal({number.value}, lambda *_: sys.exit(5))\nprint('on')\ntime.sleep(60)"
    process = start(script(tmp_path, source), tmp_path / "night.mcplog")
    assert process.stdout is not None and process.stdout.readline() == b"on\n"
    process.send_signal(number)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 5


@posix
def test_a_killed_server_is_a_killed_proxy_and_its_recording_can_be_read(tmp_path: Path) -> None:
    process = start(script(tmp_path, "print(os.getpid())\ntime.sleep(60)"), tmp_path / "a.mcplog")
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL
    assert len(read_mcplog(tmp_path / "a.mcplog").events) == 1


STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid())
while True:
    time.sleep(1)
"""


@linux
def test_a_killed_proxy_leaves_no_server_behind(tmp_path: Path) -> None:
    process = start(script(tmp_path, STUBBORN), tmp_path / "night.mcplog")
    assert process.stdout is not None
    server = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=SECONDS)
    wait_until_gone(server)
    assert read_mcplog(tmp_path / "night.mcplog").note is None


@linux
def test_a_killed_host_leaves_no_server_behind(tmp_path: Path) -> None:
    words = command("record", script(tmp_path, STUBBORN), "-o", str(tmp_path / "night.mcplog"))
    host = (
        "import subprocess, sys\n"
        f"server = subprocess.Popen({words!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(server.pid, int(server.stdout.readline()), flush=True)\n"
        "server.wait()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", host], stdout=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    process.kill()
    process.communicate(timeout=SECONDS)
    for pid in pids:
        wait_until_gone(pid)
    assert len(read_mcplog(tmp_path / "night.mcplog").events) == 1


def test_a_host_that_has_closed_its_end_still_gets_the_last_reply(tmp_path: Path) -> None:
    source = "sys.stdin.read()\ntime.sleep(3)\nprint('late')"
    process = start(script(tmp_path, source), tmp_path / "night.mcplog")
    out, _ = process.communicate(b"{}\n", timeout=SECONDS)
    assert (out, process.returncode) == (b"late\n", 0)


def test_an_existing_recording_is_kept(tmp_path: Path) -> None:
    (tmp_path / "night.mcplog").write_text("precious")
    process = start(script(tmp_path, "print(1)"), tmp_path / "night.mcplog")
    out, err = process.communicate(timeout=SECONDS)
    assert out == b"1\n"
    assert err.decode() == f"dovetail: recording to {tmp_path / 'night-2.mcplog'}\n"
    assert (tmp_path / "night.mcplog").read_text() == "precious"


def test_without_a_name_the_recording_is_in_the_project(tmp_path: Path) -> None:
    done = dovetail("record", script(tmp_path, "print(1)"), cwd=tmp_path)
    assert (done.code, done.out) == (0, "1\n")
    (path,) = (tmp_path / ".dovetail" / "recordings").glob("*.mcplog")
    assert done.err == f"dovetail: recording to {path.relative_to(tmp_path)}\n"


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("no/such.py", 2, "The file no/such.py does not exist"),
        ("no-such-program", 1, "Could not start 'no-such-program': No such file or directory"),
    ],
)
def test_a_server_that_cannot_be_started_is_named(
    tmp_path: Path, target: str, code: int, why: str
) -> None:
    done = dovetail("record", target, "-o", str(tmp_path / "night.mcplog"), "--json")
    assert (done.code, done.failure) == (code, why) if code == 2 else done.code == code
    assert why in done.err


def test_a_server_of_a_configuration_file_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os; print(os.environ['KEY'])")
    entry = {"command": sys.executable, "args": [str(tmp_path / "program.py")], "env": {"KEY": "k"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"one": entry}}))
    done = dovetail("record", str(tmp_path / "mcp.json"), "-o", str(tmp_path / "a.mcplog"))
    assert (done.code, done.out) == (0, "k\n")


def methods(file: Path) -> list[str]:
    messages: list[Any] = [json.loads(data) for data in sent(file, "to_server")]
    return [message["method"] for message in messages if "method" in message]


@pytest.mark.parametrize("revision", [REVISIONS[0], REVISIONS[-1]])
async def test_a_server_at_a_url_is_recorded(tmp_path: Path, revision: str) -> None:
    with served_over_http(write_shop(tmp_path)) as url:
        await record_shop(url, tmp_path / "night.mcplog", revision)
    assert "tools/call" in methods(tmp_path / "night.mcplog")
    assert read_mcplog(tmp_path / "night.mcplog").header.target == url


def test_a_url_that_nobody_serves_is_a_failure(tmp_path: Path) -> None:
    request = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    process = start("http://127.0.0.1:1/mcp", tmp_path / "night.mcplog")
    _, err = process.communicate(request, timeout=SECONDS)
    assert process.returncode in (0, 1) and b"Traceback" not in err


def test_the_weather_is_the_same_through_the_proxy(tmp_path: Path) -> None:
    target = shlex.join(command("record", WEATHER, "-o", str(tmp_path / "night.mcplog")))
    through = dovetail("call", target, "forecast", "city=Oslo", "days=1", "--json")
    assert (
        through.json == dovetail("call", WEATHER, "forecast", "city=Oslo", "days=1", "--json").json
    )
