"""A client of a server that a file of some host describes."""

import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from dovetail import Client, Context, Server
from dovetail.errors import ConfigError, ConnectFailed, TimedOut

from ..transports.http.raw import on_port

SERVER = """
import asyncio, os, sys
from dovetail import Server

server = Server("configured")

@server.tool
def variable(name: str) -> str:
    return os.environ.get(name, "not set")

@server.tool
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"

server.run()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


def toml(folder: Path, script: Path, more: str = "") -> Path:
    path = folder / "config.toml"
    path.write_text(
        f"[mcp_servers.here]\ncommand = {sys.executable!r}\nargs = [{str(script)!r}]\n"
        f'env = {{ PYTHONPATH = {str(Path(__file__).parents[2])!r} }}\nenv_vars = ["TOKEN"]\n{more}'
    )
    return path


async def test_a_file_of_another_host_starts_a_server(
    tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "sesame")
    async with Client(toml(tmp_path, script), server="here") as client:
        assert (await client.call_tool("variable", {"name": "TOKEN"})).data == "sesame"
        assert repr(client).startswith(f"<Client here in {tmp_path / 'config.toml'} connected")


async def test_the_timeout_of_the_file_is_for_calls_and_not_for_opening(
    tmp_path: Path, script: Path
) -> None:
    script.write_text("import time; time.sleep(1)\n" + SERVER)  # slower than a call may be
    path = toml(tmp_path, script, "tool_timeout_sec = 0.3\n")
    began = monotonic()
    async with Client(path) as client:
        with pytest.raises(TimedOut):
            await client.call_tool("sleep", {"seconds": 60})
        assert monotonic() - began < 30
    async with Client(path, timeout=30) as client:
        assert (await client.call_tool("sleep", {"seconds": 0.5})).data == "awake"


async def test_the_file_may_limit_the_time_to_open(tmp_path: Path, script: Path) -> None:
    script.write_text("import time; time.sleep(60)\n" + SERVER)
    path = toml(tmp_path, script, "startup_timeout_sec = 0.5\n")
    began = monotonic()
    with pytest.raises(TimedOut):
        async with Client(path):
            pass
    assert monotonic() - began < 30


async def test_variables_are_sent_as_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "sesame")
    server = Server("here")

    @server.tool
    async def header(ctx: Context) -> str:
        return ctx.headers.get("authorization", "none")

    async with on_port(server.asgi(path="/mcp")) as site:
        entry = {
            "url": f"http://127.0.0.1:{site.port}/${{PATH_OF_SERVER:-mcp}}",
            "headers": {"Authorization": "Bearer ${env:TOKEN}"},
        }
        async with Client({"servers": {"a": entry}}) as client:
            assert (await client.call_tool("header")).data == "Bearer sesame"
            assert client.network is not None and client.network.address == "127.0.0.1"


ENTRIES: list[dict[str, Any]] = [
    {"url": "http://127.0.0.1:1/${SECRET}/mcp"},
    {"url": "http://127.0.0.1:1/mcp?key=${SECRET}"},
    {"url": "http://127.0.0.1:1/mcp?key=sesame"},
    {"url": "ws://127.0.0.1:1/${SECRET}"},
    {"url": "ws://127.0.0.1:1/ws?key=sesame"},
    {"url": "ftp://127.0.0.1/${SECRET}"},
    {"url": "http://127.0.0.1:99999/${SECRET}"},
    {"url": "${SECRET}"},
    {"url": "http://example.com/${SECRET}", "auth": "${SECRET}"},
    {"url": "http://127.0.0.1:1/mcp", "headers": {"X": "${SECRET}\n"}},
    {"command": "no-such-program", "args": ["--key", "${SECRET}"]},
    {"command": "no-such-program", "args": ["--key", "sesame"]},
    {"command": sys.executable, "args": ["-c", "raise SystemExit(3)", "${SECRET}"]},
    {"command": "x", "env": {"A": "${SECRET}", "B": "${NOT_SET}"}},
    {"command": "x", "cwd": "/nowhere/at/all", "env": {"A": "${SECRET}"}},
]


@pytest.mark.parametrize("entry", ENTRIES, ids=repr)
async def test_no_error_shows_the_value_of_a_secret(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SECRET", "sesame")
    caplog.set_level("DEBUG", "dovetail")
    with pytest.raises((ConfigError, ConnectFailed)) as caught:
        async with Client({"mcpServers": {"a": entry}}, timeout=20):
            pass
    assert "sesame" not in f"{caught.value} {caught.value.__cause__} {caplog.text}"
