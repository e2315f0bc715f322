"""The examples do what they say: the demo runs to its end, the mounted server answers where it is mounted."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail import Client, ToolError
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
    for name in ("demo.py", "weather.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path / "demo.py"


def test_the_demo_talks_over_stdio_and_over_http_in_both_eras(demo: Path) -> None:
    done = run(demo)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("revision 2026-07-28") == 2  # on stdio and over HTTP
    assert done.stdout.count("revision 2025-11-25") == 1
    assert done.stdout.count("day 3 of 3") == 2  # progress, over HTTP
    assert done.stdout.endswith("Both servers have been stopped.\n")


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
