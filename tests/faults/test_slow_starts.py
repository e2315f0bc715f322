"""Servers that need long to start, or never answer the probe for their era: one process, and the
newest revision that it speaks.

The times are those of real life divided by ten or so: `probe_timeout` is half a second."""

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Limits
from dovetail.client import reconnect
from dovetail.errors import ConnectFailed, NoCommonRevision
from dovetail.testing import Bare
from dovetail.transports import memory
from tests.behaviour.handmade import NEWEST, discovery, reply
from tests.faults.conftest import ROOT
from tests.faults.fakes import fake, heard, starts

PROBE_SECONDS = 0.5
IMPATIENT = Limits(probe_timeout=PROBE_SECONDS, shutdown=1.0)
OLD = "2025-06-18"
DISCOVERED = f"""
def discovered(request):
    reply(request, {discovery()!r})
"""
OWN_SERVER = """
import os, sys, time
with open(sys.argv[1] + "/starts", "a") as file:
    print(os.getpid(), file=file)
time.sleep(float(sys.argv[2]))
sys.path.insert(0, sys.argv[3])
from dovetail import Server
server = Server("slow")
@server.tool
def double(number: int) -> int:
    return 2 * number
server.run()
"""


@pytest.fixture(autouse=True)
def _no_memory_of_eras() -> Iterator[None]:
    reconnect._handshake_servers.clear()
    yield
    reconnect._handshake_servers.clear()


def open_client(command: Any, **options: Any) -> Client:
    return Client(
        command, **({"limits": IMPATIENT, "on_stderr": lambda line: None, "timeout": 30} | options)
    )


def own_server(folder: Path, seconds: float) -> list[str]:
    script = folder / "slow.py"
    script.write_text(OWN_SERVER)
    return [sys.executable, str(script), str(folder), str(seconds), str(ROOT)]


# A launcher such as `npx` or `uvx` downloads first, then becomes the server or its parent.
WAIT_THEN_RUN = (
    "import subprocess, sys, time; time.sleep(1); sys.exit(subprocess.call(sys.argv[1:]))"
)
LAUNCHERS = {
    "no launcher": [],
    "a launcher that becomes the server": ["sh", "-c", 'sleep 1; exec "$@"', "npx"],
    "a launcher that starts the server": [sys.executable, "-c", WAIT_THEN_RUN],
}


@pytest.mark.parametrize("launcher", LAUNCHERS.values(), ids=LAUNCHERS)
@pytest.mark.parametrize("seconds", [0.8, 2.0])
async def test_a_server_that_is_slow_to_start_is_started_once_and_spoken_to_in_its_own_era(
    tmp_path: Path, launcher: list[str], seconds: float
) -> None:
    async with open_client([*launcher, *own_server(tmp_path, seconds)]) as client:
        assert client.revision == NEWEST, "it reads both, and answers `initialize` first"
        assert (await client.call_tool("double", {"number": 21})).data == 42
    assert len(starts(tmp_path)) == 1
    assert reconnect._handshake_servers.popitem()[1] is False


@pytest.mark.requirement("dual-era-any-error")
async def test_a_server_that_never_answers_the_probe_is_initialized_on_the_same_pipe(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "serve(server__discover=lambda request: None)"
    began = time.monotonic()
    async with open_client(fake(tmp_path, code)) as client:
        assert time.monotonic() - began < PROBE_SECONDS + 30
        assert client.revision == OLD
        assert (await client.call_tool("x")).text == "done"
    assert len(starts(tmp_path)) == 1
    methods = [message["method"] for message in heard(tmp_path)]
    assert methods == ["server/discover", "initialize", "notifications/initialized", "tools/call"]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "fake.py" in warning.getMessage()
    assert "answered initialize, but not server/discover" in warning.getMessage()
    async with open_client(fake(tmp_path, code)):
        pass
    assert len(heard(tmp_path, "server/discover")) == 2, "silence is not remembered"


async def test_a_short_timeout_leaves_half_of_itself_to_initialize(tmp_path: Path) -> None:
    code = "serve(server__discover=lambda request: None)"
    async with open_client(fake(tmp_path, code), limits=Limits(), timeout=6) as client:
        assert client.revision == OLD


@pytest.mark.parametrize("pause", [0.0, 0.3])
async def test_a_result_of_the_probe_that_comes_after_the_greeting_wins(
    tmp_path: Path, pause: float
) -> None:
    code = f"""{DISCOVERED}
first, second = receive(), receive()
greet(second)
time.sleep({pause})
discovered(first)
serve()
"""
    async with open_client(fake(tmp_path, code)) as client:
        assert client.revision == NEWEST
    assert [message["method"] for message in heard(tmp_path)] == ["server/discover", "initialize"]


async def test_a_late_refusal_of_the_probe_means_the_handshake_and_is_remembered(
    tmp_path: Path,
) -> None:
    code = """
    def refuse(request):
        time.sleep(0.8)
        send(id=request["id"], error={"code": -32601, "message": "?"})
    serve(server__discover=refuse)
    """
    for _ in range(2):
        async with open_client(fake(tmp_path, code)) as client:
            assert client.revision == OLD
            await client.ping()
    assert len(heard(tmp_path, "server/discover")) == 1
    assert len(starts(tmp_path)) == 2


async def test_a_refusal_of_initialize_by_version_means_another_probe(tmp_path: Path) -> None:
    code = f"""{DISCOVERED}
receive()
refused = receive()
data = {{"supported": ["{NEWEST}"], "requested": "2025-11-25"}}
send(id=refused["id"], error={{"code": -32022, "message": "no", "data": data}})
serve(server__discover=discovered)
"""
    async with open_client(fake(tmp_path, code)) as client:
        assert client.revision == NEWEST
    assert [message["method"] for message in heard(tmp_path)] == [
        "server/discover",
        "initialize",
        "server/discover",
    ]
    assert len(starts(tmp_path)) == 1


async def test_a_refusal_of_everything_is_said_in_time(tmp_path: Path) -> None:
    code = """
    data = {"supported": ["2030-01-01"], "requested": "2025-11-25"}
    def refuse(request):
        send(id=request["id"], error={"code": -32022, "message": "no", "data": data})
    receive()
    serve(initialize=refuse, server__discover=refuse)
    """
    with pytest.raises(NoCommonRevision, match="2030-01-01"):
        await open_client(fake(tmp_path, code)).connect()
    assert len(starts(tmp_path)) == 1


async def test_a_slow_server_that_dies_of_the_probe_is_started_again_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = """
    if START == 1:
        receive(), receive()
        sys.exit("unknown method server/discover")
    serve()
    """
    async with open_client(fake(tmp_path, code)) as client:
        assert client.revision == OLD
    assert len(starts(tmp_path)) == 2
    methods = [message["method"] for message in heard(tmp_path)]
    assert methods[:3] == ["server/discover", "initialize", "initialize"]
    assert "unknown method server/discover. Opening a new connection" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a server has read")
@pytest.mark.parametrize("code", ["sys.exit('no database')", "import no_such_module"])
async def test_a_server_that_dies_before_it_reads_the_probe_is_started_once(
    tmp_path: Path, code: str
) -> None:
    with pytest.raises(ConnectFailed, match=r"no database|no_such_module"):
        await open_client(fake(tmp_path, code)).connect()
    assert len(starts(tmp_path)) == 1


async def test_a_server_that_dies_of_initialize_after_it_refused_the_probe_is_not_restarted(
    tmp_path: Path,
) -> None:
    code = "serve(initialize=lambda request: sys.exit('no'))"
    with pytest.raises(ConnectFailed, match="no"):
        await open_client(fake(tmp_path, code)).connect()
    assert len(starts(tmp_path)) == 1


async def test_a_channel_that_cannot_be_opened_again_is_initialized_too() -> None:
    ours, theirs = memory.pair()
    server, client = Bare(theirs), open_client(ours)
    opening = asyncio.create_task(client.connect())
    assert (await server.receive())["method"] == "server/discover"
    asked = await server.receive()
    info = {"name": "handmade", "version": "0"}
    server.send(reply(asked, {"protocolVersion": OLD, "capabilities": {}, "serverInfo": info}))
    await opening
    assert client.revision == OLD
    await client.close()


async def test_a_cancelled_opening_leaves_nothing_running(tmp_path: Path) -> None:
    client = open_client(fake(tmp_path, "receive(), receive(), time.sleep(60)"))
    opening = asyncio.create_task(client.connect())
    while len(heard(tmp_path)) < 2:
        await asyncio.sleep(0.01)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await client.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
