"""The examples do what they say: the demo runs to its end, the mounted server answers where it is
mounted, and a newcomer gets into the protected one."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from dovetail import Client, ToolError
from dovetail.testing import pair
from tests.docs.pages import ROOT
from tests.person import Person

EXAMPLES = ROOT / "examples"


def run(program: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    environment.pop("ANTHROPIC_API_KEY", None)  # the examples must not use a real model
    return subprocess.run(
        [sys.executable, program, *words],
        env=environment,
        cwd=ROOT,  # servers that a program starts find the package there
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=25,
    )


def laid_out(folder: Path) -> Path:
    """The demo beside a package that the servers it starts will find, installed or not."""
    (folder / "dovetail").symlink_to(ROOT / "dovetail", target_is_directory=True)
    for name in ("demo.py", "weather.py", "booking.py"):
        (folder / name).write_text((EXAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    return folder / "demo.py"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    """What the demo shows, from its beginning to its end."""
    return run(laid_out(tmp_path_factory.mktemp("demo")))


def test_the_demo_talks_over_stdio_and_over_http_in_both_eras(
    shown: "subprocess.CompletedProcess[str]",
) -> None:
    done = shown
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("revision 2026-07-28") == 3  # on stdio and over HTTP
    assert done.stdout.count("revision 2025-11-25") == 2
    assert done.stdout.count("day 3 of 3") == 2  # progress, over HTTP
    assert done.stdout.endswith("All servers have been stopped.\n")


def test_an_extension_of_ones_own_charges_those_who_know_it_and_tells_nobody_else() -> None:
    done = run(EXAMPLES / "extension.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "translate: 3 cents",
        "desserts",
        "total: 3 cents",
        "reward",
    ]


def test_the_host_asks_before_anything() -> None:
    done = run(EXAMPLES / "host.py")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"weather is started", "booking is started"} <= set(lines)
    assert "weather__forecast of weather: Return the weather forecast for the coming days." in lines
    assert any("is booked for Ada" in line for line in lines)
    assert lines.index("? calling the tool 'book' of 'booking': once") < lines.index(
        "? booking asks: Who takes the night train to Oslo?: the defaults"
    )
    assert lines.index("? starting the server 'lazy': once") < lines.index("lazy is started")
    assert lines[-1] == "? calling the tool 'forecast' of 'lazy': once"


def test_the_agent_gives_the_results_of_its_calls_back_to_the_model() -> None:
    done = run(EXAMPLES / "agent_loop.py", "Is it warmer in Oslo or in Atlantis?")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith('Oslo: {"city":"Oslo","days":[{"day":1,')
    assert second.startswith("Atlantis: No forecast for 'Atlantis'")


def test_the_demo_answers_what_it_is_asked_where_there_is_no_terminal_in_both_eras(
    shown: "subprocess.CompletedProcess[str]",
) -> None:
    for city in ("Oslo", "Helsinki"):
        assert (
            f"Who takes the night train to {city}? → {{'name': 'Ada', 'berth': 'lower'}}"
            in shown.stdout
        )
        assert re.search(rf"Book berth \d+ \(lower\) to {city} for Ada\? → accept", shown.stdout)
        assert re.search(
            rf"Berth \d+ \(lower\) to {city} is booked for Ada\. Sleep well", shown.stdout
        )


@pytest.fixture
def booking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """examples/booking.py, freshly imported."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "booking", raising=False)
    import booking

    yield booking
    del sys.modules["booking"]


@pytest.mark.parametrize("replay", [False, True], ids=["live", "replay"])
@pytest.mark.parametrize("revision", ["stateless", "handshake"])
async def test_the_booking_asks_twice_and_reserves_once(
    booking: Any, revision: str, replay: bool
) -> None:
    asked: list[str] = []

    def on_elicit(request: Any) -> Any:
        asked.append(request.message)
        return {"name": "Bo", "berth": "upper"} if len(asked) == 1 else True

    answers: dict[str, Any] = {"on_elicit": on_elicit, "on_sample": lambda request: "Go!"}
    async with pair(booking.server, revision=revision, replay=replay, **answers) as client:
        assert (
            await client.call_tool("book", {"city": "Oslo"})
        ).text == "Berth 11 (upper) to Oslo is booked for Bo. Go!"
    assert len(asked) == 2
    assert booking.reserve() == 12


async def test_the_booking_takes_no_for_an_answer(booking: Any) -> None:
    async with pair(booking.server, on_elicit=lambda request: None) as client:
        assert (await client.call_tool("book", {"city": "Oslo"})).text == "Nothing was booked."
    async with pair(booking.server) as client:
        assert "no way to ask" in (await client.call_tool("book", {"city": "Oslo"})).text
    async with pair(
        booking.server, revision="handshake", on_elicit=lambda _: True, on_sample=lambda _: None
    ) as client:
        assert (await client.call_tool("book", {"city": "Oslo"})).text.endswith(
            "Have a good journey!"
        )


def exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals as POSIX has them")
@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGTERM"])
@pytest.mark.parametrize(
    "moment", ["Which server is this?", "serves the same file", "asks you", "[Ada] > "]
)
def test_a_signal_ends_the_demo_cleanly(tmp_path: Path, moment: str, name: str) -> None:
    """While a server starts, in a call, and at a question, where Ctrl-C cancels the question. No
    server is left."""
    import pty
    import select
    import signal

    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    demo, started = laid_out(tmp_path), tmp_path / "started"
    started.touch()
    note = f"import os\nopen({str(started)!r}, 'a').write(f'{{os.getpid()}} ')\n"
    for server in (demo.with_name("weather.py"), demo.with_name("booking.py")):
        server.write_text(note + server.read_text(encoding="utf-8"), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, demo],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    watchdog = threading.Timer(25, process.kill)
    watchdog.start()
    shown, signalled = "", False
    while select.select([ours], [], [], 25)[0]:  # a server that is left keeps the terminal open
        try:
            chunk = os.read(ours, 65536).decode(errors="replace")
        except OSError:  # the terminal was closed
            break
        shown += chunk
        if moment in shown and not signalled:
            signalled = True
            os.killpg(process.pid, getattr(signal, name))
    code = process.wait(25)
    watchdog.cancel()
    os.close(ours)
    left = [pid for pid in map(int, started.read_text().split()) if exists(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    assert code == 130, shown
    assert shown.endswith("\r\nStopped. All servers have been stopped.\r\n")
    assert "Traceback" not in shown


@pytest.mark.skipif(sys.platform == "win32", reason="terminals as POSIX has them")
def test_on_a_terminal_the_demo_ends_the_progress_bar_before_it_shows_a_log_message(
    tmp_path: Path,
) -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, laid_out(tmp_path)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    watchdog = threading.Timer(25, process.kill)
    watchdog.start()
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the terminal was closed
            break
    assert process.wait(25) == 0
    watchdog.cancel()
    os.close(ours)
    text = re.sub(r"\x1b\[[\d;]*m", "", shown.decode())
    assert "day 5 of 5\r\n  the server logs: 5 days computed for Oslo\r\n  day 1: " in text
    assert max(len(line) for line in text.splitlines() if line.startswith("●")) < 80


def test_the_demo_fails_where_its_server_does(tmp_path: Path) -> None:
    demo = laid_out(tmp_path)
    demo.with_name("weather.py").write_text("raise SystemExit(3)\n")
    assert run(demo).returncode != 0


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the application of examples/mounted.py."""
    pytest.importorskip("fastapi")
    import uvicorn

    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "mounted", raising=False)
    import mounted

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(mounted.application(), log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("revision", ["stateless", "handshake"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_the_mounted_server_answers_beside_the_application(
    mounted: str, path: str, revision: str
) -> None:
    import aiohttp

    async with Client(mounted + path, revision=revision) as client:
        left = (await client.call_tool("reserve", {"item": "nails", "count": 2})).data
        with pytest.raises(ToolError, match="Cannot reserve 4 of 'hammers': only 3 left"):
            await client.call_tool("reserve", {"item": "hammers", "count": 4})
    async with aiohttp.ClientSession() as web, web.get(f"{mounted}/stock/nails") as response:
        assert await response.json() == {"nails": left}


def test_without_fastapi_the_example_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ImportError")
    program = tmp_path / "mounted.py"
    program.write_text((EXAMPLES / "mounted.py").read_text(encoding="utf-8"), encoding="utf-8")
    done = run(program)
    assert (done.returncode, done.stderr) == (
        1,
        "This example needs FastAPI: pip install fastapi\n",
    )


# the notes, as a newcomer goes about them: a server in one terminal, `dovetail login` in another


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has never been here."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DOVETAIL_KEYS", "DISPLAY", "BROWSER")
    }
    backend = {"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
    return {
        **kept,
        **backend,
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }


@pytest.fixture
def notes(home: dict[str, str]) -> Iterator[str]:
    """The URL of examples/notes.py."""
    command = [
        sys.executable,
        "-m",
        "dovetail",
        "run",
        str(EXAMPLES / "notes.py"),
        "--http",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, env=home, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        yield said.rpartition(" ")[2].strip()
        process.terminate()


def dovetail(home: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", *words],
        env=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=25,
    )
    return done.stdout.strip()


def log_in(home: dict[str, str], url: str, *words: str, **answers: str) -> str:
    """`dovetail login`, by somebody who goes where it says and fills in what is asked."""
    command = [sys.executable, "-m", "dovetail", "login", url, "--no-browser", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=home, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == f"Open this page to log in to {url}:\n"
        page = process.stderr.readline().strip()
        redirect = dict(parse_qsl(urlsplit(page).query))["redirect_uri"]
        Person(**answers).visit(page, redirect)
        said = process.stdout.read()
    assert process.returncode == 0
    return said


def test_a_newcomer_logs_in_to_the_notes_and_writes_one(notes: str, home: dict[str, str]) -> None:
    assert dovetail(home, "call", notes, "show").endswith(
        f"requires you to log in. Run: dovetail login {notes}"
    )
    said = log_in(home, notes, "--scope", "notes:write", username="ada", password="engine")
    assert said.startswith(
        f"Logged in to {notes}\nuser     ada\nissuer   {notes.removesuffix('/mcp')}\nclient   "
    )
    assert dovetail(home, "call", notes, "add", "text=Call Charles") == "Noted. You have 1."
    assert dovetail(home, "call", notes, "show", "--revision", "handshake") == '["Call Charles"]'
    assert "scopes   notes:write notes:read\n" in dovetail(home, "whoami", notes)
    assert dovetail(home, "logout", notes) == f"Logged out of {notes}. Its tokens were revoked."
    assert f"dovetail login {notes}" in dovetail(home, "whoami", notes)


def test_who_only_reads_does_not_see_how_to_write_nor_the_notes_of_others(
    notes: str, home: dict[str, str]
) -> None:
    log_in(home, notes, "--scope", "notes:write", username="ada", password="engine")
    dovetail(home, "call", notes, "add", "text=Call Charles")
    dovetail(home, "logout", notes)
    log_in(home, notes, username="bo", password="violin")
    assert dovetail(home, "call", notes, "show") == "[]"
    shown = dovetail(home, "inspect", notes)
    assert "show" in shown
    assert "add" not in shown


async def test_the_notes_are_for_nobody_where_nobody_can_log_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import notes

    del sys.modules["notes"]
    async with pair(notes.server) as client:
        with pytest.raises(ToolError, match="Serve this over HTTP"):
            await client.call_tool("show")
