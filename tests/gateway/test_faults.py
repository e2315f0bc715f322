"""What happens to calls if a server behind a gateway dies, hangs, or asks what it may not ask."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dovetail import Client, Limits, ProtocolError, Server
from dovetail.errors import ConfigError, InvalidParams
from dovetail.gateway import health
from dovetail.gateway.gateway import Gateway
from dovetail.protocol import RawObject, ToolResult
from dovetail.testing import Tape, pair
from tests.behaviour.web import on_a_port
from tests.gateway.recording_server import QUESTION, Point
from tests.gateway.stage import LIMITS, OPTIONS, Person, Stage, Upstream

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ERAS = [HANDSHAKE, STATELESS]
NOT_ASKABLE = {"on_elicit": None, "on_sample": None, "roots": None}
"""The options of a caller that declares nothing."""


@pytest.fixture(params=ERAS)
def upstream(request: pytest.FixtureRequest) -> Upstream:
    return Upstream("stdio", request.param)


@pytest.fixture(params=ERAS)
def caller(request: pytest.FixtureRequest) -> Upstream:
    return Upstream("memory", request.param)


async def text_of(person: Person, tool: str, **arguments: Any) -> str:
    """The text of a result or of an error."""
    try:
        return str((await person.call(tool, **arguments)).text)
    except ProtocolError as error:
        return error.message


async def until_it_works(person: Person) -> None:
    while await text_of(person, "add", a=1, b=2) != "3":
        await asyncio.sleep(0.05)


# mistakes in the configuration

MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"up": {"command": "x", "dovetail": {"tims": 1}}}, {}, "timeout"),
    ({"up": {"command": "x", "dovetail": {"tools": {"alow": []}}}}, {}, "allow"),
    ({"up": {"command": "x"}}, {"policy": {"rle": []}}, "rule"),
    ({"up": {"command": "x"}}, {"policy": {"rule": [{"effekt": "allow"}]}}, "effect"),
    ({"up": {"command": "x"}}, {"policy": {"rule": [{"effect": "alow"}]}}, "allow"),
    ({"a_b": {"command": "x"}, "a-b": {"command": "x"}}, {}, "'a_b' and 'a-b'"),
    ({"up": {"command": "x", "dovetail": {"forward": ["Cookie"]}}}, {}, "Cookie"),
    ({"up": {"url": "https://example.com", "auth": "oauth"}}, {}, "'up'"),
]


@pytest.mark.parametrize(("servers", "options", "advice"), MISTAKES)
def test_a_mistake_in_the_configuration_is_an_error_at_the_start(
    servers: dict[str, Any], options: dict[str, Any], advice: str
) -> None:
    with pytest.raises(ConfigError, match=advice):
        Gateway({"mcpServers": servers}, **options)


# a result that does not match its schema


@pytest.mark.parametrize("revision", ERAS)
async def test_a_gateway_passes_on_a_result_that_does_not_match_its_schema(revision: str) -> None:
    async def answer(call: Any, call_next: Any) -> Any:
        if call.name != "tools/call":
            return await call_next(call)
        structured = {"structuredContent": Raw(b'{"x":"one"}'), "content": Raw(b"[]")}
        return RawObject(ToolResult, structured)

    server = Server("s", middleware=[answer], revisions=[revision])

    @server.tool
    def point(x: int) -> Point:
        raise AssertionError("answered by the middleware")

    async with Client(Gateway(server, **OPTIONS)) as client:
        (tool,) = await client.list_tools()
        assert tool.output_schema
        result = await client.relay("tools/call", {"name": "point", "arguments": {"x": 1}})
        assert b'"structuredContent":{"x":"one"}' in bytes(result)


# a dead process


async def test_a_call_during_which_the_server_dies_fails_with_its_name_and_is_not_sent_again(
    upstream: Upstream, caller: Upstream, tmp_path: Path
) -> None:
    async with Stage(upstream, tmp_path) as stage, Person(stage, caller, "ada").connected() as ada:
        error = await text_of(ada, "die", status=3)
        assert error.startswith("up: ")
        assert "exited with code 3" in error
        await until_it_works(ada)
        assert stage.records.events().count("dying") == 1


async def test_a_caller_from_a_network_does_not_see_the_command(
    upstream: Upstream, tmp_path: Path
) -> None:
    ada = Person(stage := Stage(upstream, tmp_path), Upstream("http", HANDSHAKE), "ada")
    async with stage, ada.connected():
        assert await text_of(ada, "die", status=3) == "up: the server exited with code 3"


async def test_other_callers_do_not_notice_that_the_process_of_one_caller_died(
    tmp_path: Path,
) -> None:
    stage = Stage(Upstream("stdio", HANDSHAKE), tmp_path)
    ada, bob = (Person(stage, Upstream("memory", HANDSHAKE), name) for name in ("ada", "bob"))
    async with stage, ada.connected(), bob.connected():
        assert await text_of(bob, "add", a=1, b=2) == "3"
        waiting = asyncio.ensure_future(text_of(bob, "ask_model", text="Who?"))
        assert "exited" in await text_of(ada, "die", status=3)
        assert await text_of(bob, "add", a=1, b=2) == "3"
        assert await waiting == "the model says hello bob"
        assert stage.server.state == "started"


async def test_a_server_that_died_while_idle_is_started_again_and_its_lists_are_read(
    upstream: Upstream, caller: Upstream, tmp_path: Path
) -> None:
    async with Stage(upstream, tmp_path) as stage, Person(stage, caller, "ada").connected() as ada:
        (main,) = await stage.records.until(lambda _: stage.pids())
        stage.records.start()
        os.kill(main, signal.SIGKILL)
        await stage.records.until(lambda records: "tools/list" in records.requests())
        await until_it_works(ada)
        assert main not in [one["pid"] for one in stage.records._read()]


async def test_a_server_that_cannot_be_started_is_tried_again_until_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "FIRST_PAUSE_SECONDS", 0.05)
    repaired = tmp_path / "repaired"
    program = (
        f"import os, sys; os.path.exists({str(repaired)!r}) or sys.exit(1); "
        "from dovetail import Server; server = Server('s'); "
        "server.tool(lambda: 'hello', name='hello'); server.run()"
    )
    gateway = Gateway(
        {"mcpServers": {"up": {"command": sys.executable, "args": ["-c", program]}}}, **OPTIONS
    )
    changed = asyncio.Event()
    async with Client(gateway) as client:
        assert await client.list_tools() == []
        assert gateway.upstreams.servers["up"].state == "failed"
        async with client.on_change("tools", lambda _: changed.set()):
            repaired.touch()
            await changed.wait()
        assert (await client.call_tool("up__hello")).text == "hello"


async def test_a_server_that_died_keeps_its_tools_in_the_lists_until_it_is_back(
    tmp_path: Path,
) -> None:
    down = tmp_path / "down"
    program = (
        f"import os, sys; os.path.exists({str(down)!r}) and sys.exit(3); "
        "from dovetail import Server; server = Server('s'); "
        "server.tool(lambda: os._exit(3), name='die'); "
        "server.tool(lambda: 'hello', name='hello'); server.run()"
    )
    up = {"command": sys.executable, "args": ["-c", program]}
    gateway = Gateway({"mcpServers": {"up": up}}, **OPTIONS)
    async with Client(gateway) as client:
        listed = {tool.name for tool in await client.list_tools()}
        assert listed == {"up__die", "up__hello"}
        down.touch()  # it does not come back before this file is deleted
        with pytest.raises(ProtocolError, match=r"^up: .*exited with code 3"):
            await client.call_tool("up__die")
        assert gateway.upstreams.servers["up"].state == "failed"
        assert {tool.name for tool in await client.list_tools(fresh=True)} == listed
        with pytest.raises(ProtocolError, match=r"^up: .*exited with code 3"):
            await client.call_tool("up__hello")
        down.unlink()
        while gateway.upstreams.servers["up"].state != "started":
            await asyncio.sleep(0.05)
        assert (await client.call_tool("up__hello")).text == "hello"


async def test_a_server_that_keeps_failing_gets_one_call_per_pause(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "FIRST_PAUSE_SECONDS", 0.02)
    # Lazy, because the gateway itself would start a server that is not, and use up the attempt.
    lazy = {"dovetail": {"start": "lazy"}}
    stage = Stage(upstream, tmp_path, entry=lazy, mask_errors=False)
    async with stage, Person(stage, Upstream("memory", STATELESS), "ada").connected() as ada:
        while not stage.server.health.is_tripped:
            await text_of(ada, "die", status=3)
            await asyncio.sleep(0.01)
        monkeypatch.setattr(health, "FIRST_PAUSE_SECONDS", 1000.0)
        stage.server.health.next_attempt = 0.0  # the pause is over
        assert "exited with code 3" in await text_of(ada, "die", status=3)
        for _ in range(3):
            assert "next attempt in" in await text_of(ada, "add", a=1, b=2)
        assert stage.records.events().count("dying") == health.TRIP_AFTER + 1
        stage.server.health.next_attempt = 0.0
        assert await text_of(ada, "fail", kind="protocol") == "closed on Sundays"  # an answer
        assert stage.server.health.failures == 0
        assert await text_of(ada, "add", a=1, b=2) == "3"


# calls that are lost


async def test_a_lost_session_is_opened_again(tmp_path: Path) -> None:
    def build(calls: list[int]) -> Any:
        server = Server("s", revisions=[HANDSHAKE])

        @server.tool
        async def count() -> int:
            calls.append(1)
            return len(calls)

        return server.asgi(path="/mcp")

    before: list[int] = []
    after: list[int] = []
    first = on_a_port(build(before))
    address = await first.__aenter__()
    gateway = Gateway({"mcpServers": {"up": {"url": f"http://{address}/mcp"}}}, **OPTIONS)
    async with pair(gateway) as client:
        assert (await client.call_tool("up__count")).text == "1"
        await first.__aexit__(None, None, None)
        async with on_a_port(build(after), int(address.rpartition(":")[2])):
            assert (await client.call_tool("up__count")).text == "1"
    assert (before, after) == ([1], [1])


async def test_a_call_that_is_lost_alone_takes_no_other_with_it(caller: Upstream) -> None:
    started, finish = asyncio.Event(), asyncio.Event()
    server = Server("s", revisions=[HANDSHAKE])

    @server.tool
    async def slow() -> str:
        started.set()
        await finish.wait()
        return "finished"

    @server.tool
    async def cut() -> str:
        return "never seen"

    app = server.asgi(path="/mcp")

    async def cutting(scope: Any, receive: Any, send: Any) -> None:
        cuts = False

        async def look() -> Any:
            nonlocal cuts
            message = await receive()
            cuts = cuts or b'"cut"' in message.get("body", b"")
            return message

        async def send_unless_cut(message: Any) -> None:
            if cuts and message["type"] == "http.response.body":
                raise ConnectionResetError
            await send(message)

        await app(scope, look, send_unless_cut)

    async with on_a_port(cutting) as address:
        gateway = Gateway({"mcpServers": {"up": {"url": f"http://{address}/mcp"}}}, **OPTIONS)
        options: dict[str, Any] = {"revision": caller.revision, "on_elicit": lambda request: True}
        async with pair(gateway, **options) as ada, pair(gateway, **options) as bob:
            waiting = asyncio.ensure_future(ada.call_tool("up__slow"))
            await started.wait()
            with pytest.raises(ProtocolError, match=r"^up: "):
                await bob.call_tool("up__cut")
            assert gateway.upstreams.servers["up"].state == "started"
            finish.set()
            assert (await waiting).text == "finished"


@pytest.mark.parametrize("trust", [False, True])
async def test_a_lost_call_is_sent_again_only_to_a_trusted_server_that_says_it_is_idempotent(
    trust: bool, upstream: Upstream, caller: Upstream, tmp_path: Path
) -> None:
    stage = Stage(upstream, tmp_path, entry={"dovetail": {"trust": trust}})
    async with stage, Person(stage, caller, "ada").connected() as ada:
        result = await text_of(ada, "die_once")
        calls = stage.records.messages("tools/call")
        if trust:
            assert (result, len(calls)) == ("alive", 2)
            assert "exited with code 3" in await text_of(ada, "die", status=3)
            assert stage.records.events().count("dying") == 1
        else:
            assert (result.startswith("up: "), len(calls)) == (True, 1)


async def test_a_lost_read_is_sent_again(
    upstream: Upstream, caller: Upstream, tmp_path: Path
) -> None:
    async with Stage(upstream, tmp_path) as stage, Person(stage, caller, "ada").connected() as ada:
        assert [one.text for one in await ada.client.read_resource("mortal://once")] == ["alive"]
        assert len(stage.records.messages("resources/read")) == 2


async def test_a_server_that_never_answers_delays_nobody_beyond_catalog_wait(
    tmp_path: Path,
) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}
    stage = Stage(Upstream("stdio", STATELESS), tmp_path)
    servers = {"silent": silent, "up": stage.entry()}
    gateway = Gateway({"mcpServers": servers}, limits=Limits(catalog_wait=0.5, shutdown=0.1))
    loop = asyncio.get_running_loop()
    async with Client(gateway) as client:
        changed = asyncio.Event()
        async with client.on_change("tools", lambda _: changed.set()):
            if not await client.list_tools():
                await changed.wait()  # a slow machine
        assert (await client.call_tool("up__add", {"a": 1, "b": 2})).text == "3"
        began = loop.time()
        await client.list_tools(fresh=True)
        assert loop.time() - began < 0.5
        assert gateway.upstreams.servers["silent"].is_unknown


@pytest.mark.parametrize("start", ["eager", "lazy"])
async def test_a_call_of_a_server_that_is_not_known_yet_waits_for_it(
    start: str, tmp_path: Path
) -> None:
    stage = Stage(Upstream("stdio", STATELESS), tmp_path)
    down = Path(f"{stage.records.path}.down")
    down.touch()
    entries = {
        "up": {**stage.entry(), "dovetail": {"start": start}},
        "dead": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]},
    }
    gateway = Gateway({"mcpServers": entries}, **{**OPTIONS, "limits": Limits(catalog_wait=0)})
    async with Client(gateway) as client:
        assert await client.list_tools() == []
        call = asyncio.ensure_future(client.call_tool("up__add", {"a": 1, "b": 2}))
        with pytest.raises(ProtocolError, match=r"^dead: .*exited with code 3"):
            await client.call_tool("dead__add")
        with pytest.raises(InvalidParams, match="Unknown tool: other__add"):
            await client.call_tool("other__add")
        assert not call.done()
        down.unlink()
        assert (await call).text == "3"


async def test_a_call_that_takes_too_long_fails_and_is_cancelled_but_its_server_goes_on(
    upstream: Upstream, caller: Upstream, tmp_path: Path
) -> None:
    stage = Stage(upstream, tmp_path, entry={"dovetail": {"timeout": 5}})
    async with stage, Person(stage, caller, "ada").connected() as ada:
        assert (await text_of(ada, "wait")).startswith("up: ")
        await stage.records.event("cancelled")
        assert await text_of(ada, "add", a=1, b=2) == "3"
        assert stage.server.health.failures == 0


async def test_a_gateway_is_served_in_two_ways_and_again_after_the_last_one_ended(
    tmp_path: Path,
) -> None:
    stage = Stage(Upstream("stdio", STATELESS), tmp_path)
    gateway = Gateway({"mcpServers": {"up": stage.entry()}}, **OPTIONS)
    async with Client(gateway) as one:
        async with Client(gateway) as other:
            assert (await other.call_tool("up__add", {"a": 1, "b": 2})).text == "3"
        assert (await one.call_tool("up__add", {"a": 1, "b": 2})).text == "3"
    while gateway.upstreams.servers["up"].connections:
        await asyncio.sleep(0.01)
    async with gateway.lifespan():
        pass
    assert len(stage.pids()) == 2
    lifespan = gateway.lifespan()
    await lifespan.__aenter__()
    closing = asyncio.create_task(lifespan.__aexit__(None, None, None))
    await asyncio.sleep(0)
    async with Client(gateway) as later:  # while it is being closed
        assert (await later.call_tool("up__add", {"a": 1, "b": 2})).text == "3"
    await closing


# questions


@pytest.mark.parametrize("method", QUESTION)
async def test_a_question_that_the_caller_did_not_declare_is_refused_at_once(
    method: str, upstream: Upstream, caller: Upstream, tmp_path: Path
) -> None:
    ada = Person(stage := Stage(upstream, tmp_path), caller, "ada")
    async with stage, ada.connected(**NOT_ASKABLE):
        result = await text_of(ada, "rude", method=method)
        assert "did not declare support for " + method in result
        assert ada.asked == []


async def test_a_server_may_ask_only_so_many_questions_of_the_callers_of_one_address(
    upstream: Upstream, caller: Upstream, tmp_path: Path
) -> None:
    stage = Stage(upstream, tmp_path, limits=replace(LIMITS, questions=3))
    ada, bob = (Person(stage, caller, name) for name in ("ada", "bob"))
    async with stage, ada.connected(), bob.connected():
        assert await text_of(ada, "ask_often", count=2) == "answered"
        assert "Limits.questions" in await text_of(bob, "ask_often", count=2)
    assert (len(ada.asked), len(bob.asked)) == (2, 1)


async def test_an_answer_that_arrives_on_a_new_connection_belongs_to_its_call(
    caller: Upstream, tmp_path: Path
) -> None:
    limits = replace(LIMITS, upstream_idle=0.02, parked_time=0.02)
    entry = {"dovetail": {"share": "caller"}, "env": {"DOVETAIL_KEYS": "k" * 43}}
    stage = Stage(Upstream("stdio", STATELESS), tmp_path, limits=limits, entry=entry)
    ada = Person(stage, caller, "ada")

    async def until_idle() -> None:
        while stage.server.connections > 1:
            await asyncio.sleep(0.01)

    ada.before_answer = until_idle
    async with stage, ada.connected():
        assert await text_of(ada, "ask_model", text="Who?") == "the model says hello ada"
    assert len(ada.asked) == 1


async def test_an_answer_goes_to_the_process_that_asked(caller: Upstream, tmp_path: Path) -> None:
    limits = replace(LIMITS, upstream_idle=0.02)
    entry = {"dovetail": {"share": "caller"}}
    stage = Stage(Upstream("stdio", STATELESS), tmp_path, limits=limits, entry=entry)
    ada, bob = (Person(stage, caller, name) for name in ("ada", "bob"))

    async def let_bob_call() -> None:
        assert await text_of(bob, "add", a=1, b=2) == "3"
        await asyncio.sleep(0.2)  # much longer than the idle time

    ada.before_answer = let_bob_call
    async with stage, ada.connected(), bob.connected():
        assert await text_of(ada, "ask_model", text="Who?") == "the model says hello ada"
    assert len(ada.asked) == 1


async def test_the_connections_of_a_caller_are_closed_when_its_session_ends(
    tmp_path: Path,
) -> None:
    stage = Stage(Upstream("stdio", HANDSHAKE), tmp_path)
    async with stage:
        for transport in ("memory", "http"):
            ada = Person(stage, Upstream(transport, HANDSHAKE), "ada")
            async with ada.connected():
                assert await text_of(ada, "add", a=1, b=2) == "3"
                assert stage.server.connections == 2
            while stage.server.connections > 1:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_end_of_a_visit_is_announced_to_the_caller_who_was_asked(
    transport: str, tmp_path: Path
) -> None:
    tapes = {"ada": Tape(), "bob": Tape()}
    async with Stage(Upstream(transport, HANDSHAKE), tmp_path) as stage:
        options: dict[str, Any] = {"revision": HANDSHAKE, "on_elicit": lambda request: True}
        async with (
            pair(stage.gateway, record=tapes["ada"], **options) as ada,
            pair(stage.gateway, record=tapes["bob"], **options) as bob,
        ):
            assert (await ada.call_tool("up__visit")).text == "accept"
            assert (await bob.call_tool("up__add", {"a": 1, "b": 2})).text == "3"
            while "notifications/elicitation/complete" not in tapes["ada"].methods("server"):
                await asyncio.sleep(0.01)
    (done,) = [
        one for one in tapes["ada"].messages("server") if "complete" in one.get("method", "")
    ]
    assert done["params"]["elicitationId"] == "up/visit"
    assert "notifications/elicitation/complete" not in tapes["bob"].methods("server")
