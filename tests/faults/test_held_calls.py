"""Calls that must not run twice, with real processes: replies that are lost, processes that die,
clients that leave, callers that want too much."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import InvalidParams, Overloaded
from dovetail.protocol.base import CLIENT_CAPABILITIES
from tests.faults.raw_http import META, NEW, Program, request, running, until
from tests.faults.test_http_processes import KEYS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills without mercy")

COMMAND = [sys.executable, "-m", "tests.faults.held_program", "PORT"]
UNENCRYPTED = [
    sys.executable,
    "-c",
    "import sys, runpy; sys.modules['cryptography'] = None; "
    "runpy.run_module('tests.faults.held_program', run_name='__main__')",
    "PORT",
]
CAN_ELICIT = {"elicitation": {}}


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """The file with a line for everything that happens to a call."""
    path = tmp_path / "events"
    path.touch()
    return path


def held(events: Path, command: list[str] = COMMAND, **limits: Any) -> Any:
    env = {"EVENTS": str(events), **limits.pop("env", {})}
    return running(command=command, env=env, **limits)


def lines(events: Path) -> list[str]:
    return events.read_text(encoding="utf-8").splitlines()


def buy(state: str | None = None, answer: str | None = None, what: str = "tea", **more: Any) -> Any:
    """The bytes of a call, or of the request that goes on with it."""
    params: dict[str, Any] = {
        "name": "buy",
        "arguments": {"what": what, **more},
        "_meta": {**META, CLIENT_CAPABILITIES: CAN_ELICIT},
    }
    if state is not None:
        params["requestState"] = state
    if answer is not None:
        content = {"value": answer}
        params["inputResponses"] = {QUESTION[what]: {"action": "accept", "content": content}}
    headers = {"MCP-Protocol-Version": NEW, "Mcp-Method": "tools/call", "Mcp-Name": "buy"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return request("POST", headers, json.dumps(message).encode())


QUESTION: dict[str, str] = {}
"""The key of the question about each thing, as the server chose it."""


def begin(program: Program, what: str = "tea", **more: Any) -> str:
    """Start a call that asks; its state."""
    result = program.ask(buy(what=what, **more)).message["result"]
    assert result["resultType"] == "input_required"
    [QUESTION[what]] = result["inputRequests"]
    state: str = result["requestState"]
    return state


@pytest.mark.parametrize("command", [COMMAND, UNENCRYPTED], ids=["encrypted", "signed"])
def test_the_same_handle_on_two_connections_is_one_call(events: Path, command: list[str]) -> None:
    with held(events, command) as program:
        state = begin(program, seconds=0.5)
        with program.connect() as one, program.connect() as other:
            for connection in (one, other):
                connection.send(buy(state, "Ann", seconds=0.5))
            assert {one.reply().result, other.reply().result} == {"Ann has tea"}
        assert program.ask(buy(state, "Bob", seconds=0.5)).result == "Ann has tea", "and later"
    assert lines(events) == ["charged tea", "answered tea"]


def test_a_reply_that_was_lost_can_be_fetched_again(events: Path) -> None:
    with held(events) as program:
        state = begin(program)
        connection = program.connect().send(buy(state, "Ann"))
        until(lambda: "answered tea" in lines(events), "the call does not go on")
        until(lambda: connection.socket.recv(1), "there is no reply")
        connection.close(abruptly=True)
        assert program.ask(buy(state, "Ann")).result == "Ann has tea"
    assert lines(events) == ["charged tea", "answered tea"]


def test_a_client_that_hangs_up_cancels_the_call_for_good(events: Path) -> None:
    with held(events) as program:
        state = begin(program, seconds=60)
        with program.connect() as connection:
            connection.send(buy(state, "Ann", seconds=60))
            until(lambda: "answered tea" in lines(events), "the call does not go on")
        until(lambda: "cancelled tea" in lines(events), "the call is not cancelled")
        reply = program.ask(buy(state, "Ann", seconds=60))
        assert "may have taken effect" in reply.error
        assert reply.message["error"]["code"] == InvalidParams.code
    assert lines(events) == ["charged tea", "answered tea", "cancelled tea"]


@pytest.mark.parametrize("command", [COMMAND, UNENCRYPTED], ids=["encrypted", "signed"])
def test_a_process_that_was_killed_does_not_run_the_call_again(
    events: Path, command: list[str]
) -> None:
    with held(events, command, env=KEYS) as program:
        state = begin(program)
        program.popen.send_signal(signal.SIGKILL)
        program.popen.wait()
    with held(events, command, env=KEYS) as program:
        assert "may have taken effect" in program.ask(buy(state, "Ann")).error
        assert "not held in this process" in program.said()
    assert lines(events) == ["charged tea"]


def test_a_client_that_never_returns_has_its_call_cancelled(events: Path) -> None:
    with held(events, parked_time=0.2) as program:
        state = begin(program)
        until(lambda: "cancelled tea" in lines(events), "the call does not expire")
        assert "may have taken effect" in program.ask(buy(state, "Ann")).error
    assert lines(events) == ["charged tea", "cancelled tea"]


def test_one_caller_that_wants_too_much_is_refused_and_loses_nothing(events: Path) -> None:
    with held(events) as program:
        states = [begin(program, f"tea {number}") for number in range(16)]
        for number in range(16, 20):
            reply = program.ask(buy(what=f"tea {number}"))
            assert (reply.status, reply.message["error"]["code"]) == (200, Overloaded.code)
            assert "Limits.parked_each" in reply.error
            assert "retry-after" not in reply.headers
        for number, state in enumerate(states):
            reply = program.ask(buy(state, "Ann", f"tea {number}"))
            assert reply.result == f"Ann has tea {number}"
        assert begin(program, "tea 20")
    refused = [f"cancelled tea {number}" for number in range(16, 20)]
    cancelled = [line for line in lines(events) if line.startswith("cancelled")]
    assert cancelled[:4] == refused
    assert cancelled[4:] in ([], ["cancelled tea 20"]), "when the server ended"


async def two_at_once(client: Client) -> None:
    done = await asyncio.gather(
        *(client.call_tool("buy", {"what": what}) for what in ("tea", "milk"))
    )
    assert [result.data for result in done] == ["Ann has tea", "Ann has milk"]


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_client_answers_for_two_calls_at_once(events: Path, scheme: str) -> None:
    with held(events) as program:
        path = "mcp" if scheme == "http" else "ws"
        url = f"{scheme}://127.0.0.1:{program.port}/{path}"
        async with Client(url, revision=NEW, on_elicit=lambda request: {"value": "Ann"}) as client:
            await two_at_once(client)
    assert sorted(lines(events)) == ["answered milk", "answered tea", "charged milk", "charged tea"]


async def test_on_stdio_a_held_call_goes_on_and_ends_with_its_client(events: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.held_program"]
    async with Client(
        command,
        revision=NEW,
        on_elicit=lambda request: {"value": "Ann"},
        env={"EVENTS": str(events)},
        cwd=Path(__file__).parents[2],
    ) as client:
        await two_at_once(client)
        await client.request(
            "tools/call", {"name": "buy", "arguments": {"what": "jam"}}, manual=True
        )
    assert "cancelled jam" in lines(events)


async def test_a_call_that_was_held_on_one_websocket_goes_on_on_another(events: Path) -> None:
    call = {"name": "buy", "arguments": {"what": "tea"}}
    with held(events) as program:
        url = f"ws://127.0.0.1:{program.port}/ws"
        options: Any = {"revision": NEW, "on_elicit": lambda request: {"value": "Ann"}}
        async with Client(url, **options) as client:
            asked = await client.request("tools/call", call, manual=True)
        [key] = asked.input_requests
        answers = {key: {"action": "accept", "content": {"value": "Ann"}}}
        async with Client(url, **options) as client:
            done = await client.request(
                "tools/call",
                {**call, "inputResponses": answers, "requestState": asked.request_state},
                manual=True,
            )
            assert done.data == "Ann has tea"
    assert lines(events) == ["charged tea", "answered tea"]


async def test_callers_on_many_websockets_share_one_limit(events: Path) -> None:
    with held(events, parked_each=2) as program:
        url = f"ws://127.0.0.1:{program.port}/ws"
        for number in range(3):
            async with Client(url, revision=NEW, on_elicit=lambda request: None) as client:
                call = {"name": "buy", "arguments": {"what": str(number)}}
                if number < 2:
                    await client.request("tools/call", call, manual=True)
                else:
                    with pytest.raises(Overloaded, match=r"Limits\.parked_each"):
                        await client.request("tools/call", call, manual=True)
