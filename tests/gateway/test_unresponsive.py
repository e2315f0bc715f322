"""A server that stops answering is reported and opened again. A slow tool is not a failure."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import Client, Host
from dovetail.errors import ProtocolError, TimedOut
from dovetail.gateway import health
from dovetail.gateway.gateway import Gateway
from tests.gateway.stage import LIMITS, OPTIONS, Person, Stage, Upstream

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
NOT_ASKABLE = {"on_elicit": None, "on_sample": None, "roots": None}
ONE_FOR_ALL = {"dovetail": {"timeout": 5, "stateful": False}}
"""The callers of this server share one connection."""
QUICK = replace(LIMITS, ping_timeout=1, shutdown=0.2)
PINGS = {"ping", "server/discover"}


@pytest.fixture(params=[HANDSHAKE, STATELESS])
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def text_of(person: Person, tool: str, **arguments: Any) -> str:
    """The text of a result or of an error."""
    try:
        return str((await person.call(tool, **arguments)).text)
    except ProtocolError as error:
        return error.message


async def until_it_works(person: Person) -> None:
    while await text_of(person, "add", a=1, b=2) != "3":
        await asyncio.sleep(0.05)


async def until_ended(pid: int) -> None:
    while Path(f"/proc/{pid}").exists():
        await asyncio.sleep(0.05)


def record_health(gateway: Gateway) -> list[Any]:
    """Return what `/health` says of the server after each event, as it happens."""
    reports: list[Any] = []
    gateway.upstreams.on_event(lambda *_: reports.append(gateway.health()["servers"]["up"]))
    return reports


def states(reports: list[Any]) -> list[str]:
    return [one["state"] for one in reports]


async def test_a_process_that_stops_answering_is_reported_ended_and_started_again(
    revision: str, tmp_path: Path
) -> None:
    stage = Stage(Upstream("stdio", revision), tmp_path, entry=ONE_FOR_ALL, limits=QUICK)
    ada = Person(stage, Upstream("memory", revision), "ada")
    async with stage, ada.connected(**NOT_ASKABLE):
        assert await text_of(ada, "add", a=1, b=2) == "3"
        (pid,) = stage.pids()
        reports = record_health(stage.gateway)
        os.kill(pid, signal.SIGSTOP)
        assert "answer within 5 s" in await text_of(ada, "add", a=1, b=2)
        while "failed" not in states(reports):
            await asyncio.sleep(0.05)
        (failed, *_) = [one for one in reports if one["state"] == "failed"]
        assert "no answer within 5 s, and no answer to a ping" in failed["error"]
        await until_it_works(ada)
        await until_ended(pid)
        assert stage.server.state == "started"
        assert stage.server.health.failures == 0


async def test_the_process_of_one_caller_that_stops_answering_is_replaced(tmp_path: Path) -> None:
    entry = {"dovetail": {"timeout": 5}}
    stage = Stage(Upstream("stdio", HANDSHAKE), tmp_path, entry=entry, limits=QUICK)
    ada = Person(stage, Upstream("memory", HANDSHAKE), "ada")
    async with stage, ada.connected():
        (main,) = await stage.records.until(lambda _: stage.pids())
        assert await text_of(ada, "add", a=1, b=2) == "3"
        (own,) = set(stage.pids()) - {main}
        os.kill(own, signal.SIGSTOP)
        assert "answer within 5 s" in await text_of(ada, "add", a=1, b=2)
        while stage.server.connections > 1:
            await asyncio.sleep(0.05)
        assert stage.server.health.failures == 1
        assert stage.server.state == "started"
        assert await text_of(ada, "add", a=1, b=2) == "3"
        await until_ended(own)


async def test_a_remote_server_that_stops_answering_fails_until_it_answers_again(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "FIRST_PAUSE_SECONDS", 0.02)
    entry = {"dovetail": {"timeout": 5, "stateful": False}}
    stage = Stage(
        Upstream("http", revision), tmp_path, entry=entry, limits=QUICK, mask_errors=False
    )
    ada = Person(stage, Upstream("memory", revision), "ada")
    async with stage, ada.connected(**NOT_ASKABLE):
        assert await text_of(ada, "add", a=1, b=2) == "3"
        (pid,) = stage.pids()
        os.kill(pid, signal.SIGSTOP)
        try:
            assert "answer within 5 s" in await text_of(ada, "add", a=1, b=2)
            while not stage.server.health.is_tripped:
                await asyncio.sleep(0.05)
            assert stage.gateway.health()["servers"]["up"]["state"] == "failed"
            monkeypatch.setattr(health, "FIRST_PAUSE_SECONDS", 1000.0)
            stage.server.health.next_attempt = 0.0  # the pause is over
            admitted = asyncio.ensure_future(text_of(ada, "add", a=1, b=2))
            while stage.server.health.next_attempt == 0.0:
                await asyncio.sleep(0)
            assert "next attempt in" in await text_of(ada, "add", a=1, b=2)
            assert not admitted.done()
        finally:
            os.kill(pid, signal.SIGCONT)
        await admitted
        while stage.server.health.failures:
            stage.server.health.next_attempt = 0.0
            await text_of(ada, "add", a=1, b=2)
        assert stage.server.state == "started"


async def test_a_slow_tool_of_a_server_that_answers_pings_is_not_a_failure(
    revision: str, tmp_path: Path
) -> None:
    stage = Stage(Upstream("stdio", revision), tmp_path, entry=ONE_FOR_ALL, limits=QUICK)
    ada = Person(stage, Upstream("memory", revision), "ada")
    async with stage, ada.connected(**NOT_ASKABLE):
        assert await text_of(ada, "add", a=1, b=2) == "3"
        stage.records.start()
        reports = record_health(stage.gateway)
        assert "answer within 5 s" in await text_of(ada, "wait")
        await stage.records.until(lambda records: PINGS & set(records.requests()))
        assert stage.server._main is not None
        while stage.server._main.is_checked:
            await asyncio.sleep(0.01)
        assert await text_of(ada, "add", a=1, b=2) == "3"
        assert "failed" not in states(reports)
        assert stage.server.health.failures == 0
        assert len(stage.pids()) == 1


BUSY = """
import json, sys
tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("slow", "fast")]
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message or method == "ping" or "slow" in line:
        continue
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "busy", "version": "1"}},
        "tools/list": {"tools": tools},
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
    }.get(method)
    answer = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def test_a_server_that_is_too_busy_for_a_ping_but_answers_calls_is_not_closed() -> None:
    up = {"command": sys.executable, "args": ["-c", BUSY], "dovetail": {"timeout": 5}}
    gateway = Gateway({"mcpServers": {"up": up}}, **{**OPTIONS, "limits": QUICK})
    async with Client(gateway) as client:
        assert (await client.call_tool("up__fast")).text == "done"
        with pytest.raises(ProtocolError, match="no answer within 5 s"):
            await client.call_tool("up__slow")
        server = gateway.upstreams.servers["up"]
        assert server._main is not None and server._main.is_checked
        while server._main.is_checked:
            assert (await client.call_tool("up__fast")).text == "done"
            await asyncio.sleep(0.05)
        assert server.state == "started"
        assert server.health.failures == 0


async def test_a_host_replaces_a_process_that_stops_answering(tmp_path: Path) -> None:
    stage = Stage(Upstream("stdio", STATELESS), tmp_path)
    entries = {"up": {**stage.entry(), **ONE_FOR_ALL}}
    seen: list[str] = []
    async with Host({"mcpServers": entries}, policy="allow", limits=QUICK) as host:
        assert (await host.call_tool("up__add", {"a": 1, "b": 2})).text == "3"
        (pid,) = stage.pids()
        host.on_event(lambda *_: seen.append(host.servers["up"].state))
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(TimedOut):
            await host.call_tool("up__add", {"a": 1, "b": 2})
        while "failed" not in seen or host.servers["up"].state != "started":
            await asyncio.sleep(0.05)
        assert (await host.call_tool("up__add", {"a": 1, "b": 2})).text == "3"
        await until_ended(pid)
