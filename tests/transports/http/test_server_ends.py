"""How calls, sessions and servers end: nobody is left waiting, and nothing is left behind."""

import asyncio
import json
from contextlib import suppress

import pytest

from dovetail import Context, Server
from dovetail.errors import TimedOut
from dovetail.limits import Limits
from dovetail.transports.http.server import sessions
from tests.transports.http.raw import (
    BOTH,
    MODERN,
    OLD,
    Session,
    Stage,
    drive,
    hosted,
    modern,
    on_port,
    request,
)
from tests.transports.http.test_server_streams import greeted


@pytest.mark.parametrize("version", [MODERN, OLD])
async def test_a_call_that_the_server_cuts_off_at_its_end_is_answered(version: str) -> None:
    stage = Stage(limits=Limits(shutdown=0.1, stream_after=60.0))
    app = stage.server.asgi("/mcp")
    async with on_port(app) as site:
        asking = site.call("wait") if version == MODERN else (await greeted(site)).call("wait")
        task = asyncio.create_task(asking)
        await stage.started.wait()
        await app.close()
        error = await (await task).error()
        assert (error["code"], error["message"]) == (
            -31001,
            "tools/call was cancelled: the server is shutting down",
        )


async def test_a_call_that_was_taken_becomes_a_stream_even_while_the_server_ends() -> None:
    stage = Stage(limits=Limits(shutdown=4.0, stream_after=0.02))
    app = stage.server.asgi("/mcp")
    async with on_port(app) as site:
        session = await greeted(site)
        task = asyncio.create_task(session.call("wait"))
        await stage.started.wait()
        ending = asyncio.create_task(app.close())
        answer = await task
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        stage.release.set()
        assert (await answer.messages())[-1]["result"]["content"][0]["text"] == "done"
        await ending


async def test_streams_of_calls_are_not_refused_for_those_that_are_open() -> None:
    stage = Stage(limits=Limits(streams=1))
    async with hosted(stage.server) as site:
        session = await greeted(site)
        await session.listen()
        assert (await session.get()).status == 503
        assert (await session.call("chat")).headers["content-type"] == "text/event-stream"


async def test_a_session_that_expires_ends_its_streams_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.transports.http.server import sessions

    app = Stage(limits=Limits(session_life=60.0, session_idle=2.0)).server.asgi("/mcp")
    async with on_port(app) as site:
        session = await greeted(site)
        news = await session.listen()
        now = sessions.time.time()
        monkeypatch.setattr(sessions.time, "time", lambda: now + 61)
        assert await news.rest() == []
        assert (await session.call("add", a=1, b=2)).status == 404
        here = await app.start()
        assert not here.get_streams._sessions
        assert not len(here.endpoint.events)  # type: ignore[arg-type]


async def test_a_session_of_one_server_is_none_of_another_with_the_same_keys() -> None:
    one, two = Stage().server, Server("another")
    async with hosted(one) as here, hosted(two) as there:
        session = await here.greet()
        headers = {"Mcp-Session-Id": session.id, "MCP-Protocol-Version": OLD}
        assert (await there.post(request("tools/list"), headers)).status == 404


@pytest.mark.parametrize("turns", range(1, 6))
async def test_a_call_whose_request_is_given_up_is_cancelled_however_early(turns: int) -> None:
    stage = Stage()
    app = stage.server.asgi()
    here = await app.start()
    message, headers = modern("tools/call", {"name": "wait", "arguments": {}})
    plain = {"host": "localhost", "content-type": "application/json", "accept": BOTH}
    given = {**plain, **{name: value for name, value in headers.items() if value is not None}}
    task = asyncio.create_task(drive(app, "POST", given, json.dumps(message).encode()))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    while here.dispatcher.running:
        await asyncio.sleep(0)
    assert stage.started.is_set() == stage.cancelled.is_set()
    await app.close()


async def test_a_question_of_a_call_that_is_cancelled_is_taken_back_and_a_late_answer_ignored() -> (
    None
):
    server = Server("asker")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Are you sure?")).action

    async with hosted(server) as site:
        opened = await site.post(
            request(
                "initialize",
                {
                    "protocolVersion": OLD,
                    "capabilities": {"elicitation": {}},
                    "clientInfo": {"name": "raw", "version": "1"},
                },
            )
        )
        session = Session(
            site, opened.headers["mcp-session-id"], OLD, (await opened.json())["result"]
        )
        await session.tell("notifications/initialized")
        answer = await session.call("ask", _id=9)
        await answer.next()
        question = (await answer.next()).message
        assert question["method"] == "elicitation/create"
        await session.tell("notifications/cancelled", {"requestId": 9})
        (taken_back,) = [event.message for event in await answer.rest()]
        assert (taken_back["method"], taken_back["params"]["requestId"]) == (
            "notifications/cancelled",
            question["id"],
        )
        for id, status in ((question["id"], 202), ("another", 400)):
            late = await session.post({"jsonrpc": "2.0", "id": id, "result": {"action": "cancel"}})
            assert late.status == status


async def test_a_session_remembers_only_the_newest_questions_that_were_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MAX_WITHDRAWN", 2)
    server = Server("asker")

    @server.tool
    async def ask(ctx: Context) -> str:
        for _ in range(3):
            with suppress(TimedOut):
                await ctx.elicit("Are you sure?", timeout=0.01)
        return "gave up"

    async with hosted(server) as site:
        session = await site.greet(capabilities={"elicitation": {}})
        await session.tell("notifications/initialized")
        messages = [
            event.message for event in await (await session.call("ask")).rest() if event.data
        ]
        asked = [one["id"] for one in messages if one.get("method") == "elicitation/create"]
        late = [{"jsonrpc": "2.0", "id": id, "result": {"action": "cancel"}} for id in asked]
        assert [(await session.post(one)).status for one in late] == [400, 202, 202]


async def test_nothing_is_asked_over_http_before_the_client_is_ready() -> None:
    server = Server("asker")
    started = asyncio.Event()

    @server.tool
    async def ask(ctx: Context) -> str:
        started.set()
        return (await ctx.elicit("Are you sure?")).action

    async with hosted(server) as site:
        session = await site.greet(capabilities={"elicitation": {}})
        calling = asyncio.create_task(session.call("ask", _id=9))
        await started.wait()
        for _ in range(3):
            assert (await session.ask("ping")).status == 200
        assert not calling.done()
        await session.tell("notifications/initialized")
        answer = await calling
        await answer.next()
        question = (await answer.next()).message
        assert question["method"] == "elicitation/create"
        await session.post(
            {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        )
        (reply,) = [event.message for event in await answer.rest()]
        assert reply["result"]["content"][0]["text"] == "decline"
