"""Asking with several processes: each round lands on another one, answers arrive at the wrong one,
one dies in between."""

import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import cycle
from pathlib import Path
from select import select
from typing import Any

import aiohttp
import pytest

from dovetail import Client
from dovetail.errors import InvalidParams, ProtocolError
from tests.behaviour.asking import ANSWERS, BOOKED, UNASKED
from tests.behaviour.web import on_a_port
from tests.faults.raw_http import (
    INFO,
    INITIALIZED,
    Connection,
    Program,
    call,
    modern_call,
    post,
    running,
)
from tests.faults.test_http_processes import KEYS, at, both

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and kills without mercy")

ASKING = [sys.executable, "-m", "tests.behaviour.asking", "PORT"]
NEVER_INSTALLED = "import sys, runpy; sys.modules['cryptography'] = None; "
RUN = "runpy.run_module('tests.behaviour.asking', run_name='__main__')"
UNENCRYPTED = [sys.executable, "-c", NEVER_INSTALLED + RUN, "PORT"]
ASKABLE = {"elicitation": {}, "sampling": {}}
GREETING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {**INFO, "capabilities": ASKABLE},
}
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@pytest.fixture
def charges(tmp_path: Path) -> Path:
    """The file that each charge is a line of."""
    path = tmp_path / "charges"
    path.touch()
    return path


def asking(charges: Path, command: list[str] = ASKING, **more: Any) -> Any:
    """A process of the server that asks."""
    return running(command=command, env={"CHARGES": str(charges), **more.pop("env", {})}, **more)


@contextmanager
def two_processes(charges: Path, **env: str) -> Iterator[tuple[Program, Program]]:
    """Two that know nothing of each other but the key."""
    with asking(charges, env=KEYS | env) as one, asking(charges, env=KEYS | env) as other:
        yield one, other


class RoundRobin:
    """A proxy that sends each request to the next server, whoever it is from and whatever it is
    about."""

    def __init__(self, http: aiohttp.ClientSession, *ports: int) -> None:
        self._http, self._next = http, cycle(ports)
        self.calls: list[int] = []
        """Where each tool call went."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": message["type"] + ".complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        port, body, more = next(self._next), b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        given = {
            name.decode(): value.decode()
            for name, value in scope["headers"]
            if name.decode() not in HOP
        }
        if b'"tools/call"' in body:
            self.calls.append(port)
        url = f"http://127.0.0.1:{port}{scope['path']}"
        async with self._http.request(scope["method"], url, headers=given, data=body) as answer:
            headers = [
                (n.lower().encode(), v.encode())
                for n, v in answer.headers.items()
                if n.lower() not in HOP
            ]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def proxied(*programs: Program) -> AsyncIterator[tuple[str, RoundRobin]]:
    """The address of a proxy in front of these."""
    async with aiohttp.ClientSession() as http:
        proxy = RoundRobin(http, *(program.port for program in programs))
        async with on_a_port(proxy) as address:
            yield f"http://{address}/mcp", proxy


def lines(charges: Path) -> list[str]:
    return charges.read_text(encoding="ascii").splitlines()


# the stateless era


@pytest.mark.requirement("rounds-state-protected")
@pytest.mark.parametrize("resume", ["live", "replay"])
async def test_each_round_may_land_on_another_process_and_nothing_is_done_twice(
    charges: Path, resume: str
) -> None:
    with two_processes(charges, RESUME=resume) as programs:
        async with (
            proxied(*programs) as (url, proxy),
            Client(url, revision="2026-07-28", **ANSWERS) as client,
        ):
            assert (await client.call_tool("book", {"city": "Rome"})).data == BOOKED
            assert len(proxy.calls) == 4
            assert all(
                one != following
                for one, following in zip(proxy.calls, proxy.calls[1:], strict=False)
            )
            assert len(lines(charges)) == 1
            assert (
                await client.call_tool("book", {"city": "Oslo"})
            ).data == "Ann (30) to Oslo: True, Godspeed! #2"
            assert (await client.call_tool("three")).data == [0, 1, 2]
            assert (await client.call_tool("by_hand")).data == "Ann, asked"
            assert (await client.read_resource("guide://mine"))[0].text == "Ann's guide"
            assert (await client.get_prompt("letter")).messages[0].content.text == "Dear Ann"


async def test_without_a_common_key_a_round_that_lands_elsewhere_is_refused(charges: Path) -> None:
    with asking(charges) as one, asking(charges) as other:
        async with (
            proxied(one, other) as (url, _),
            Client(url, revision="2026-07-28", **ANSWERS) as client,
        ):
            with pytest.raises(InvalidParams, match="requestState is not valid"):
                await client.call_tool("book", {"city": "Rome"})
        assert "not created by this server" in one.said() + other.said()
    assert len(lines(charges)) == 0


async def test_a_process_that_dies_between_two_rounds_is_not_missed(charges: Path) -> None:
    with two_processes(charges) as (one, other):
        async with proxied(one, other) as (url, proxy):

            def on_elicit(request: Any) -> Any:
                if request.message.startswith("Really"):
                    here = one if proxy.calls[-1] == one.port else other
                    here.popen.send_signal(signal.SIGKILL)
                    here.popen.wait()
                    proxy._next = cycle([other.port if here is one else one.port])
                return ANSWERS["on_elicit"](request)

            async with Client(
                url, revision="2026-07-28", **(ANSWERS | {"on_elicit": on_elicit})
            ) as client:
                assert (await client.call_tool("book", {"city": "Rome"})).data == BOOKED
    assert len(lines(charges)) == 1


async def test_a_process_that_holds_no_runs_gives_the_same_answer(charges: Path) -> None:
    with asking(charges, parked=0) as program:
        async with Client(
            f"http://127.0.0.1:{program.port}/mcp", revision="2026-07-28", **ANSWERS
        ) as client:
            assert (await client.call_tool("book", {"city": "Rome"})).data == BOOKED
    assert len(lines(charges)) == 1


# the handshake era


def opened(connection: Connection) -> str:
    """A session whose client can be asked."""
    session = connection.ask(post(GREETING)).headers["mcp-session-id"]
    assert connection.ask(post(INITIALIZED, session)).status == 202
    return session


def answer(question: Any) -> dict[str, Any]:
    results = {
        "Who travels?": {"action": "accept", "content": {"name": "Ann"}},
        "Really to Rome?": {"action": "accept", "content": {"value": True}},
        None: {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Godspeed!"}},
    }
    return {
        "jsonrpc": "2.0",
        "id": question["id"],
        "result": results[question["params"].get("message")],
    }


def test_answers_posted_to_the_other_worker_arrive(charges: Path) -> None:
    with asking(charges, options={"workers": 2}) as program, both(program) as (one, other):
        session = opened(one)
        one.send(post(call("book", 7, city="Rome"), session))
        assert one.head()[0] == 200
        for _ in range(3):
            reply = other.ask(post(answer(one.event()[1]), session))
            assert reply.status == 202, reply.error
        [(_, message)] = one.rest()
        assert message["result"]["content"][0]["text"] == BOOKED
        again = other.ask(post({"jsonrpc": "2.0", "id": "never asked", "result": {}}, session))
        assert again.status == 400
    assert len(lines(charges)) == 1


def test_an_answer_of_another_session_does_not_arrive_by_way_of_the_other_worker(
    charges: Path,
) -> None:
    with asking(charges, options={"workers": 2}) as program, both(program) as (one, other):
        session, another = opened(one), opened(other)
        one.send(post(call("book", 7, city="Rome"), session))
        assert one.head()[0] == 200
        question = one.event()[1]
        assert other.ask(post(answer(question), another)).status == 400
        assert other.ask(post(answer(question), session)).status == 202


def patient(seconds: float) -> dict[str, Any]:
    """A call that asks with a deadline, and passes on the progress of its client."""
    message = call("patient", 7, kind="form", seconds=seconds)
    message["params"]["_meta"] = {"progressToken": "mine"}
    return message


def test_progress_posted_to_the_other_worker_arrives(charges: Path) -> None:
    with asking(charges, options={"workers": 2}) as program, both(program) as (one, other):
        session, another = opened(one), opened(other)
        one.send(post(patient(60), session))
        assert one.head()[0] == 200
        question = one.event()[1]
        token = question["params"]["_meta"]["progressToken"]

        def report(progress: Any, whose: str, token: Any = token) -> int:
            params = {"progressToken": token, "progress": progress, "message": "busy"}
            message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            return other.ask(post(message, whose)).status

        assert report(100, another) == 202, "and is ignored"
        for wrong in ("unknown", 1, 10**30):
            assert report(100, session, wrong) == 202, "and is ignored"
        for value in (1, 0, 2):
            assert report(value, session) == 202
            if value:
                heard = one.event()[1]["params"]
                assert heard == {"progressToken": "mine", "progress": value, "message": "busy"}
        accept = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert other.ask(post(accept, session)).status == 202
        [(_, message)] = one.rest()
        assert message["result"]["content"][0]["text"] == "accept"
        assert report(3, session) == 202, "and is ignored"
        assert "ERROR" not in program.said()


def test_an_answer_that_is_too_late_is_ignored_by_the_other_worker_too(charges: Path) -> None:
    with asking(charges, options={"workers": 2}) as program, both(program) as (one, other):
        session = opened(one)
        one.send(post(patient(0.05), session))
        assert one.head()[0] == 200
        (_, question), (_, withdrawn), (_, message) = one.rest()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]
        assert message["result"]["content"][0]["text"].startswith("TimedOut")
        accept = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert other.ask(post(accept, session)).status == 202


def test_a_question_waits_for_a_client_that_tells_the_other_worker_that_it_is_ready(
    charges: Path,
) -> None:
    limits = {"stream_after": 60.0}
    with (
        asking(charges, options={"workers": 2}, **limits) as program,
        both(program) as (one, other),
    ):
        pid = one.ask(modern_call("pid")).result
        session = one.ask(post(GREETING)).headers["mcp-session-id"]
        with at(program, pid) as beside:
            one.send(post(patient(60), session))
            for _ in range(3):
                beside.ask(modern_call("pid"))
        assert not select([one.socket], [], [], 0)[0], "nothing is asked yet"
        assert other.ask(post(INITIALIZED, session)).status == 202
        assert one.head()[0] == 200
        assert one.event()[1]["method"] == "elicitation/create"
        assert "although the client has not sent" not in program.said()


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_our_client_is_asked_by_two_workers(charges: Path, revision: str) -> None:
    with asking(charges, options={"workers": 2}) as program:
        for number in range(1, 6):
            async with Client(
                f"http://127.0.0.1:{program.port}/mcp", revision=revision, **ANSWERS
            ) as client:
                assert (
                    await client.call_tool("book", {"city": "Rome"})
                ).data == f"{BOOKED[:-1]}{number}"
    assert len(lines(charges)) == 5


# without cryptography


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_without_cryptography_live_runs_work(charges: Path, revision: str) -> None:
    with asking(charges, UNENCRYPTED) as program:
        async with Client(
            f"http://127.0.0.1:{program.port}/mcp", revision=revision, **ANSWERS
        ) as client:
            assert (await client.call_tool("book", {"city": "Rome"})).data == BOOKED


async def test_without_cryptography_over_stdio(charges: Path) -> None:
    command = UNENCRYPTED[:-1]
    options: dict[str, Any] = {"cwd": Path(__file__).parents[2], "env": {"CHARGES": str(charges)}}
    async with Client(command, revision="2026-07-28", **ANSWERS, **options) as client:
        assert (await client.call_tool("book", {"city": "Rome"})).data == BOOKED
    async with Client(command, revision="2024-11-05", **ANSWERS, **options) as client:
        assert (await client.call_tool("book", {"city": "Rome"})).data == UNASKED


async def test_without_cryptography_a_run_that_is_gone_is_a_clear_error(charges: Path) -> None:
    with asking(charges, UNENCRYPTED, parked=0) as program:
        async with Client(
            f"http://127.0.0.1:{program.port}/mcp", revision="2026-07-28", **ANSWERS
        ) as client:
            with pytest.raises(ProtocolError, match="send the request again without it"):
                await client.call_tool("book", {"city": "Rome"})
        assert "its call is no longer suspended in this process" in program.said()
