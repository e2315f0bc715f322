"""The examples do what they say: the demo runs to its end, the mounted server answers where it is mounted."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, ToolError
from dovetail.testing import pair
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"


def run(program: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, program, *words], env=environment, capture_output=True, encoding="utf-8", timeout=25
    )


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo beside a package that the servers it starts will find, installed or not."""
    (tmp_path / "dovetail").symlink_to(ROOT / "dovetail", target_is_directory=True)
    for name in ("demo.py", "weather.py", "booking.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path / "demo.py"


def test_the_demo_talks_over_stdio_and_over_http_in_both_eras(demo: Path) -> None:
    done = run(demo)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("revision 2026-07-28") == 3  # on stdio and over HTTP
    assert done.stdout.count("revision 2025-11-25") == 2
    assert done.stdout.count("day 3 of 3") == 2  # progress, over HTTP
    assert done.stdout.endswith("All servers have been stopped.\n")


def test_the_demo_answers_what_it_is_asked_where_there_is_no_terminal_in_both_eras(demo: Path) -> None:
    shown = run(demo).stdout
    for city in ("Oslo", "Helsinki"):
        assert f"Who takes the night train to {city}? → {{'name': 'Ada', 'berth': 'lower'}}" in shown
        assert re.search(rf"Book berth \d+ \(lower\) to {city} for Ada\? → accept", shown)
        assert re.search(rf"Berth \d+ \(lower\) to {city} is booked for Ada\. Sleep well", shown)


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
async def test_the_booking_asks_twice_and_reserves_once(booking: Any, revision: str, replay: bool) -> None:
    asked: list[str] = []

    def on_elicit(request: Any) -> Any:
        asked.append(request.message)
        return {"name": "Bo", "berth": "upper"} if len(asked) == 1 else True

    answers: dict[str, Any] = {"on_elicit": on_elicit, "on_sample": lambda request: "Go!"}
    async with pair(booking.server, revision=revision, replay=replay, **answers) as client:
        assert (await client.call_tool("book", {"city": "Oslo"})).text == "Berth 11 (upper) to Oslo is booked for Bo. Go!"
    assert len(asked) == 2
    assert booking.reserve() == 12


async def test_the_booking_takes_no_for_an_answer(booking: Any) -> None:
    async with pair(booking.server, on_elicit=lambda request: None) as client:
        assert (await client.call_tool("book", {"city": "Oslo"})).text == "Nothing was booked."
    async with pair(booking.server) as client:
        assert "no way to ask" in (await client.call_tool("book", {"city": "Oslo"})).text
    async with pair(booking.server, revision="handshake", on_elicit=lambda _: True, on_sample=lambda _: None) as client:
        assert (await client.call_tool("book", {"city": "Oslo"})).text.endswith("Have a good journey!")


def test_the_demo_fails_where_its_server_does(demo: Path) -> None:
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
async def test_the_mounted_server_answers_beside_the_application(mounted: str, path: str, revision: str) -> None:
    import aiohttp

    async with Client(mounted + path, revision=revision) as client:
        left = (await client.call_tool("reserve", {"item": "nails", "count": 2})).data
        with pytest.raises(ToolError, match="There are 3 of 'hammers', not 4"):
            await client.call_tool("reserve", {"item": "hammers", "count": 4})
    async with aiohttp.ClientSession() as web, web.get(f"{mounted}/stock/nails") as response:
        assert await response.json() == {"nails": left}


def test_without_fastapi_the_example_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ImportError")
    program = tmp_path / "mounted.py"
    program.write_text((EXAMPLES / "mounted.py").read_text(encoding="utf-8"), encoding="utf-8")
    done = run(program)
    assert (done.returncode, done.stderr) == (1, "This example needs FastAPI: pip install fastapi\n")
