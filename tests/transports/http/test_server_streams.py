"""Streams of the handshake era: what goes where, what is lost, what is said twice. Nothing should
be either."""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from dovetail import Context
from dovetail.connection.bus import Hub, LocalBus, join, private_socket
from dovetail.errors import UrlRequired
from dovetail.limits import Limits
from dovetail.revisions import HANDSHAKE
from dovetail.transports.http.server.event_store import (
    EventStream,
    MemoryEventStore,
    MessagesDropped,
)
from tests.transports.http.raw import (
    BATCHING,
    OLD,
    Answer,
    Event,
    Session,
    Site,
    Stage,
    drive,
    hosted,
    logged,
    on_port,
    text,
)

CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
JSON = {"Accept": "application/json"}


def methods(events: list[Event]) -> list[str]:
    return [event.message["method"] for event in events if event.data]


async def greeted(site: Site, version: str = OLD, capabilities: Any = None) -> Session:
    session = await site.greet(version, capabilities=capabilities)
    await session.tell("notifications/initialized")
    return session


# what a stream looks like


@pytest.mark.parametrize("version", [one.version for one in HANDSHAKE if not one.priming])
async def test_an_older_client_gets_no_empty_event_and_no_stream_that_it_could_not_come_back_to(
    version: str,
) -> None:
    stage = Stage()

    @stage.server.tool
    async def leave(ctx: Context) -> str:
        ctx.close_stream()
        ctx.info("here")
        return "done"

    async with hosted(stage.server) as site:
        session = await greeted(site, version)
        answer = await session.call("leave")
        events = await answer.rest()
        assert [event.message.get("method") for event in events] == ["notifications/message", None]


@pytest.mark.requirement("http-priming", "http-retry", "http-accel-buffering")
async def test_a_stream_begins_with_an_empty_event_that_says_how_to_come_back() -> None:
    async with hosted(Stage(limits=Limits(retry=0.25)).server) as site:
        session = await greeted(site)
        for answer in (await session.call("chat"), await session.get()):
            assert answer.headers["x-accel-buffering"] == "no"
            first = await answer.next()
            assert (first.data, first.retry) == ("", "250")
            assert first.id


@pytest.mark.requirement(
    "http-stream-response",
    "http-response-ends-stream",
    "http-response-type",
    "http-own-notifications",
)
async def test_a_streamed_call_ends_with_its_reply() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        other = await session.call("talk", _id=2)
        answer = await session.call("chat", _id="mine")
        messages = await answer.messages()
        assert logged(messages) == ["line 0", "line 1", "line 2"]
        assert messages[-1]["id"] == "mine"
        stage.release.set()
        assert (await other.messages())[-1]["id"] == 2


async def test_a_call_that_takes_long_becomes_a_stream_that_can_be_resumed() -> None:
    stage = Stage(limits=Limits(stream_after=0.05))
    async with hosted(stage.server) as site:
        session = await greeted(site)
        answer = await session.call("wait")
        primer = await answer.next()
        answer.cut()
        resumed = await session.get(primer.id)
        stage.release.set()
        assert [text(message) for message in await resumed.messages()] == ["done"]


async def test_a_quick_call_is_one_json_body() -> None:
    async with hosted(Stage().server) as site:
        answer = await (await greeted(site)).call("add", a=1, b=2)
        assert text(await answer.json()) == "3"


async def test_a_quiet_stream_is_kept_alive_by_comments() -> None:
    async with hosted(Stage(limits=Limits(keepalive=0.02)).server) as site:
        standing = await (await greeted(site)).listen()
        for _ in range(3):
            event = await standing.event(comments=True)
            assert event is not None
            assert event.comment


@pytest.mark.requirement("http-event-ids-unique", "http-event-ids-stream")
async def test_event_ids_are_unique_in_a_session_and_name_their_stream() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        standing = await session.listen()
        stage.server.remove_tool("add")
        streams = [await (await session.call("chat", _id=id)).rest() for id in range(3)]
        streams.append([await standing.next()])
    ids = [event.id for events in streams for event in events]
    assert None not in ids
    assert len(set(ids)) == len(ids) == 3 * 5 + 1
    prefixes = [{(event.id or "").rpartition("-")[0] for event in events} for events in streams]
    assert all(len(prefix) == 1 for prefix in prefixes)
    assert len(set.union(*prefixes)) == 4


# the stream for what belongs to no request


@pytest.mark.requirement("http-get", "http-get-unrelated", "http-get-no-responses")
async def test_changes_come_on_the_standing_stream_and_replies_do_not() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        standing = await session.listen()
        assert standing.headers["content-type"] == "text/event-stream"
        assert len(await (await session.call("chat")).messages()) == 4
        stage.server.remove_tool("add")
        stage.server.remove_prompt("greet")
        assert methods([await standing.next(), await standing.next()]) == [
            CHANGED,
            "notifications/prompts/list_changed",
        ]


async def test_a_resource_is_told_of_only_between_subscribing_and_unsubscribing() -> None:
    stage = Stage()
    update = stage.server.notify_resource_updated
    async with hosted(stage.server) as site:
        session, stranger = await greeted(site), await greeted(site)
        standing, strange = await session.listen(), await stranger.listen()
        update("note://one")
        assert (await session.ask("resources/subscribe", {"uri": "note://one"})).status == 200
        update("note://two")
        update("note://one")
        event = await standing.next()
        assert (methods([event]), event.message["params"]["uri"]) == ([UPDATED], "note://one")
        assert (await session.ask("resources/unsubscribe", {"uri": "note://one"})).status == 200
        update("note://one")
        await asyncio.sleep(0)
        stage.server.remove_tool("add")
        assert methods([await standing.next()]) == [CHANGED], "nothing came in between"
        assert methods([await strange.next()]) == [CHANGED], (
            "and the other session heard of no resource at all"
        )


@pytest.mark.requirement("http-one-stream")
async def test_of_two_standing_streams_the_newest_hears_of_everything_and_the_other_of_nothing() -> (  # noqa: E501
    None
):
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        older, newer = await session.listen(), await session.listen()
        stage.server.remove_tool("add")
        assert methods([await newer.next()]) == [CHANGED]
        stage.server.remove_prompt("greet")
        assert methods([await newer.next()]) == ["notifications/prompts/list_changed"]
        await session.delete()
        assert await older.rest() == []
        assert await newer.rest() == []


@pytest.mark.requirement("http-one-stream")
async def test_when_the_newest_stream_is_left_unused_the_older_one_hears_the_rest() -> None:
    app = (stage := Stage()).server.asgi("/mcp")
    async with on_port(app) as site:
        session = await greeted(site)
        older, newer = await session.listen(), await session.listen()
        here = await app.start()
        assert here.get_streams.open == 2
        newer.cut()
        while here.get_streams.open == 2:
            await asyncio.sleep(0.01)
        stage.server.remove_tool("add")
        assert methods([await older.next()]) == [CHANGED]


async def test_when_the_newest_stream_is_left_the_older_one_that_is_read_hears_the_rest() -> None:
    app = (stage := Stage()).server.asgi("/mcp")
    async with on_port(app) as site:
        session = await greeted(site)
        older, newer = await session.listen(), await session.listen()
        stage.server.remove_tool("add")
        assert methods([await newer.next()]) == [CHANGED]
        here = await app.start()
        newer.cut()
        while here.get_streams.open == 2:
            await asyncio.sleep(0.01)
        stage.server.remove_prompt("greet")
        assert methods([await older.next()]) == ["notifications/prompts/list_changed"]


async def test_a_stream_that_is_taken_up_again_is_the_newest() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        older = await session.listen()
        stage.server.remove_tool("add")
        seen = await older.next()
        newer = await session.listen()
        older = await session.get(seen.id)
        stage.server.remove_prompt("greet")
        assert methods([await older.next()]) == ["notifications/prompts/list_changed"]
        await session.delete()
        assert await newer.rest() == []


async def test_a_session_whose_streams_were_dropped_is_not_told_of_changes() -> None:
    app = (stage := Stage(limits=Limits(event_life=0.05))).server.asgi("/mcp", long_polling=0.01)
    async with on_port(app) as site:
        session = await greeted(site)
        assert (await session.get(headers=JSON)).status == 204
        here = await app.start()
        while len(here.endpoint.events):  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
        stage.server.remove_tool("add")
        while here.get_streams._sessions:
            await asyncio.sleep(0.01)


async def test_what_is_said_while_nobody_listens_waits_for_the_client_to_come_back() -> None:
    app = (stage := Stage()).server.asgi("/mcp")
    async with on_port(app) as site:
        session = await greeted(site)
        standing = await session.listen()
        here = await app.start()
        stage.server.remove_tool("add")
        seen = await standing.next()
        standing.cut()
        while here.get_streams.open:
            await asyncio.sleep(0.01)
        stage.server.remove_tool("chat")
        stage.server.remove_prompt("greet")
        resumed = await session.get(seen.id)
        assert methods([await resumed.next(), await resumed.next()]) == [
            CHANGED,
            "notifications/prompts/list_changed",
        ]


async def test_sessions_do_not_hear_each_others_streams() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        one, two = await greeted(site), await greeted(site, BATCHING)
        first, second = await one.listen(), await two.listen()
        stage.server.remove_tool("add")
        assert methods([await first.next()]) == methods([await second.next()]) == [CHANGED]
        await one.delete()
        assert await first.rest() == []
        stage.server.remove_tool("chat")
        assert methods([await second.next()]) == [CHANGED]


async def test_a_session_may_hold_only_so_many_streams() -> None:
    async with hosted(Stage(limits=Limits(session_streams=2)).server) as site:
        session, other = await greeted(site), await greeted(site)
        first = await session.listen()
        await session.listen()
        refused = await session.get()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await other.get()).status == 200
        first.cut()
        while (answer := await session.get()).status == 503:
            await asyncio.sleep(0.01)
        assert answer.status == 200


async def test_an_endpoint_may_hold_only_so_many_streams() -> None:
    async with hosted(Stage(limits=Limits(streams=2)).server) as site:
        for _ in range(2):
            await (await greeted(site)).listen()
        assert (await (await greeted(site)).get()).status == 503
        assert (await site.call("add", a=1, b=2)).status == 200, "what needs no stream is answered"


# coming back


@pytest.mark.parametrize("cut_after", [1, 2, 5, 9])
async def test_a_stream_that_is_cut_in_the_middle_of_a_call_is_resumed_with_exactly_the_rest(
    cut_after: int,
) -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        answer = await session.call("talk", before=8, after=8)
        seen = [await answer.next() for _ in range(cut_after)]
        answer.cut()
        resumed = await session.get(seen[-1].id)
        while len(seen) < 9:
            seen.append(await resumed.next())
        stage.release.set()
        seen += await resumed.rest()
    events = [event for event in seen if event.data]
    assert logged([event.message for event in events]) == [
        *(f"before {number}" for number in range(8)),
        *(f"after {number}" for number in range(8)),
    ]
    assert text(events[-1].message) == "done"
    assert len({event.id for event in events}) == len(events) == 17


async def test_a_result_waits_for_a_client_that_comes_back_late() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        answer = await session.call("talk", after=2)
        seen = [await answer.next(), await answer.next()]
        answer.cut()
        stage.release.set()
        await stage.finished.wait()
        for _ in range(2):  # and may be fetched again, should the connection break again
            messages = await (await session.get(seen[-1].id)).messages()
            assert logged(messages) == ["after 0", "after 1"]
            assert text(messages[-1]) == "done"


async def test_a_stream_is_resumed_over_and_over() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        answer = await session.call("talk", before=6)
        seen = [await answer.next()]
        for _ in range(6):
            answer.cut()
            answer = await session.get(seen[-1].id)
            seen.append(await answer.next())
            if not seen[-1].data:  # nothing was seen yet, so it begins anew
                seen[-1] = await answer.next()
        stage.release.set()
        seen += await answer.rest()
    assert logged([event.message for event in seen if event.data]) == [
        f"before {number}" for number in range(6)
    ]


@pytest.mark.requirement("http-resume-own-stream", "http-get-no-responses")
async def test_a_resumed_stream_says_nothing_of_another() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        standing = await session.listen()
        first, second = (
            await session.call("talk", _id=1, before=2),
            await session.call("talk", _id=2, before=3),
        )
        primers = [await first.next(), await second.next()]
        first.cut()
        second.cut()
        stage.server.remove_tool("add")
        stage.release.set()
        one, two = await session.get(primers[0].id), await session.get(primers[1].id)
        assert [message.get("id") for message in await one.messages()] == [None, None, 1]
        assert [message.get("id") for message in await two.messages()] == [None, None, None, 2]
        assert methods([await standing.next()]) == [CHANGED]


@pytest.mark.requirement("http-resume-own-stream")
async def test_nobody_resumes_the_stream_of_someone_else() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session, stranger = await greeted(site), await greeted(site)
        answer = await session.call("talk")
        seen = [await answer.next(), await answer.next()]
        for event in seen:
            assert (await stranger.get(event.id)).status == 400
        standing = await session.listen()
        stage.server.remove_tool("add")
        told = await standing.next()
        strange = await stranger.get(told.id)
        assert strange.status == 200, "a stream of its own, and a new one"
        primer = await strange.next()
        assert (primer.id or "").rpartition("-")[0] != (told.id or "").rpartition("-")[0]
        stage.release.set()
        assert text((await answer.messages())[-1]) == "done"


@pytest.mark.parametrize(
    "last",
    ["nonsense", "0123456789abcdef-1", "-5", "", "x" * 500, "1-99999999999999999999", "1--1"],
)
async def test_an_event_id_that_is_none_is_refused_or_ignored_but_never_replays(last: str) -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        await (await session.call("chat")).messages()
        answer = await session.get(last)
        assert answer.status in (200, 400)
        if answer.status == 200:
            assert (await answer.next()).data == ""
        else:
            assert "is not available" in (await answer.error())["message"]


async def test_a_number_that_the_stream_never_reached_is_refused() -> None:
    async with hosted(Stage().server) as site:
        session = await greeted(site)
        last = (await (await session.call("chat")).rest())[-1].id or ""
        stream, _, number = last.rpartition("-")
        assert (await session.get(f"{stream}-{int(number) + 1}")).status == 400
        assert await (await session.get(last)).rest() == [], (
            "and after the last event there is nothing"
        )


async def test_a_second_reader_takes_the_place_of_the_first() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        first = await session.call("talk", after=1)
        seen = [await first.next(), await first.next()]
        second = await session.get(seen[-1].id)
        assert await first.rest() == []
        stage.release.set()
        assert logged(await second.messages()) == ["after 0"]


async def test_what_a_stream_holds_is_bounded_and_its_client_is_told() -> None:
    stage = Stage(limits=Limits(events=1000))
    async with hosted(stage.server) as site:
        session = await greeted(site)
        answer = await session.call("talk", before=1, after=100)
        primer = await answer.next()
        answer.cut()
        stage.release.set()
        await stage.finished.wait()
        late = await session.get(primer.id)
        assert late.status == 400
        assert "is not available" in (await late.error())["message"]


async def test_a_stream_that_nobody_came_back_for_is_dropped() -> None:
    app = (stage := Stage(limits=Limits(event_life=0.05))).server.asgi("/mcp")
    async with on_port(app) as site:
        session = await greeted(site)
        answer = await session.call("talk")
        seen = await answer.next()
        answer.cut()
        stage.release.set()
        events = (await app.start()).endpoint.events
        while len(events):  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
        assert (await session.get(seen.id)).status == 400


async def test_what_all_streams_hold_together_for_clients_that_have_gone_is_bounded() -> None:
    app = Stage(limits=Limits(events_kept=100_000)).server.asgi("/mcp")
    async with on_port(app) as site:
        session = await greeted(site)
        for _ in range(10):
            await (await session.call("chat", count=500)).body()  # some 45 kB each
        events: Any = (await app.start()).endpoint.events
        assert sum(stream.size for stream in events._streams.values()) <= 200_000


async def test_a_session_that_is_forgotten_for_want_of_room_leaves_no_streams_behind() -> None:
    app = Stage(limits=Limits(sessions=2)).server.asgi("/mcp", long_polling=0.01)
    async with on_port(app) as site:
        for _ in range(6):
            assert (await (await site.greet()).get(headers=JSON)).status == 204
        here = await app.start()
        assert len(here.get_streams._sessions) <= 2
        assert len(here.endpoint.events) <= 2  # type: ignore[arg-type]


async def test_a_reply_that_is_longer_than_what_a_stream_holds_arrives_with_all_that_came_before() -> (  # noqa: E501
    None
):
    stage = Stage(limits=Limits(events=1000))

    @stage.server.tool
    async def long(ctx: Context) -> str:
        ctx.info("here it comes")
        return "x" * 5000

    async with hosted(stage.server) as site:
        for answer in (await site.call("long"), await (await greeted(site)).call("long")):
            messages = await answer.messages()
            assert logged(messages) == ["here it comes"]
            assert text(messages[-1]) == "x" * 5000


async def test_a_tool_that_waits_for_its_client_to_read_loses_nothing() -> None:
    stage = Stage(limits=Limits(events=5000))

    @stage.server.tool
    async def flood(ctx: Context) -> str:
        for number in range(300):
            await ctx.info(f"{number} {'x' * 500}")
        return "done"

    async with hosted(stage.server) as site:
        for answer in (await site.call("flood"), await (await greeted(site)).call("flood")):
            heard = [said.split()[0] for said in logged(await answer.messages())]
            assert heard == [str(number) for number in range(300)]


async def test_a_tool_that_does_not_wait_loses_its_stream_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(limits=Limits(events=5000))
    async with hosted(stage.server) as site:
        answer = await site.call("chat", count=1000)
        assert len(await answer.rest()) < 1000
        assert "reads too slowly" in caplog.text
        assert text(await (await site.call("add", a=1, b=2)).json()) == "3"


# letting the client go


@pytest.mark.requirement("http-retry", "http-priming")
async def test_a_tool_may_let_its_client_go_and_have_it_come_back() -> None:
    stage = Stage()
    async with hosted(stage.server) as site:
        session = await greeted(site)
        answer = await session.call("part", after=2)
        events = await answer.rest()
        assert [event.data for event in events] == [""]
        assert events[0].retry == "1000"
        assert not stage.release.is_set(), "the connection ended, the call did not"
        resumed = await session.get(events[0].id)
        stage.release.set()
        messages = await resumed.messages()
        assert logged(messages) == ["after 0", "after 1"]
        assert text(messages[-1]) == "done"


async def test_a_tool_may_let_its_client_go_more_than_once() -> None:
    stage, again = Stage(), asyncio.Event()

    @stage.server.tool
    async def leave_twice(ctx: Context) -> str:
        ctx.close_stream()
        await stage.release.wait()
        await ctx.info("in between")
        ctx.close_stream()
        await again.wait()
        return "done"

    async with hosted(stage.server) as site:
        session = await greeted(site)
        seen = await (await session.call("leave_twice")).rest()
        resumed = await session.get(seen[-1].id)
        await resumed.next()
        stage.release.set()
        assert len(await resumed.rest()) <= 1
        resumed = await session.get(seen[-1].id)
        again.set()
        messages = await resumed.messages()
        assert logged(messages) == ["in between"]
        assert text(messages[-1]) == "done"


async def test_nobody_is_let_go_who_could_not_come_back() -> None:
    stage = Stage()
    stage.release.set()
    async with hosted(stage.server) as site:
        assert text((await (await site.call("part")).messages())[-1]) == "done"
        session = await greeted(site)
        plain = await session.call("part", _headers={"Accept": "application/json"})
        assert text(await plain.json()) == "done"
    async with hosted(stage.server, sessions=False) as site:
        assert text((await (await (await site.greet()).call("part")).messages())[-1]) == "done"


# long polling


async def test_a_poll_returns_the_waiting_messages_as_an_array() -> None:
    app = (stage := Stage()).server.asgi("/mcp", long_polling=20)
    async with on_port(app) as site:
        session = await greeted(site)
        poll = await polling(app, session)
        stage.server.remove_tool("add")
        stage.server.remove_prompt("greet")
        answer = await poll
        assert answer.status == 200
        heard = await answer.json()
        while len(heard) < 2:  # the second came too late for the first poll
            heard += await (await session.get(headers=JSON)).json()
        assert [message["method"] for message in heard] == [
            CHANGED,
            "notifications/prompts/list_changed",
        ]


async def polling(app: Any, session: Session) -> asyncio.Task[Answer]:
    """A poll that has reached the server."""
    here = await app.start()
    poll = asyncio.create_task(session.get(headers=JSON))
    while not here.get_streams.open:
        await asyncio.sleep(0.001)
    return poll


async def test_a_poll_that_hears_nothing_returns_nothing() -> None:
    async with hosted(Stage().server, long_polling=0.05) as site:
        answer = await (await greeted(site)).get(headers=JSON)
        assert (answer.status, await answer.body()) == (204, b"")


@pytest.mark.parametrize("kind", ["accepts JSON", "has polled", "json_only"])
async def test_a_poll_carries_what_a_call_says_and_asks(kind: str) -> None:
    stage = Stage()

    @stage.server.tool
    async def book(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.info("a line")
        answer = await ctx.elicit("Sure?", bool)
        return f"booked: {answer.data}"

    options = {"json_only": True} if kind == "json_only" else {}
    async with hosted(stage.server, long_polling=0.5, **options) as site:
        session = await greeted(site, capabilities={"elicitation": {}})
        if kind != "accepts JSON":
            stage.server.remove_tool("part")
            assert (await session.get(headers=JSON)).status in (200, 204)
        params = {"name": "book", "_meta": {"progressToken": "p"}}
        call = asyncio.create_task(
            session.ask("tools/call", params, headers=JSON if kind == "accepts JSON" else None)
        )
        heard: list[Any] = []
        while not any(message.get("method") == "elicitation/create" for message in heard):
            poll = await session.get(headers=JSON)
            heard += await poll.json() if poll.status == 200 else []
        heard = [message for message in heard if message["method"] != CHANGED]
        assert [message["method"] for message in heard] == [
            "notifications/progress",
            "notifications/message",
            "elicitation/create",
        ]
        accept = {"action": "accept", "content": {"value": True}}
        reply = {"jsonrpc": "2.0", "id": heard[-1]["id"], "result": accept}
        assert (await session.post(reply)).status == 202
        answer = await call
        assert answer.headers["content-type"] == "application/json"
        assert text(await answer.json()) == "booked: True"


async def test_a_question_that_no_poll_fetches_ends_its_call() -> None:
    stage = Stage(limits=Limits(event_life=0.2))

    @stage.server.tool
    async def book(ctx: Context) -> str:
        return str(await ctx.elicit("Sure?", bool))

    async with hosted(stage.server, long_polling=0.05) as site:
        session = await greeted(site, capabilities={"elicitation": {}})
        answer = await session.call("book", _headers=JSON)
        assert "did not poll" in (await answer.json())["error"]["message"]


async def test_a_stream_is_used_by_a_client_that_accepts_one_and_does_not_poll() -> None:
    async with hosted(Stage().server, long_polling=0.05) as site:
        session = await greeted(site)
        assert len(logged(await (await session.call("chat")).messages())) == 3


async def test_what_is_said_between_two_polls_is_not_lost() -> None:
    stage = Stage()
    async with hosted(stage.server, long_polling=0.05) as site:
        session = await greeted(site)
        assert (await session.get(headers=JSON)).status == 204
        for tool in ("add", "chat"):
            stage.server.remove_tool(tool)
            await session.ask("ping")
        heard: list[Any] = []
        while (answer := await session.get(headers=JSON)).status == 200:
            heard += await answer.json()
        assert [message["method"] for message in heard] == [CHANGED, CHANGED]


async def test_a_poll_whose_client_has_gone_keeps_its_messages_for_the_next() -> None:
    app = (stage := Stage()).server.asgi("/mcp", long_polling=1)
    async with on_port(app) as site:
        session = await greeted(site)
        here, gone = await app.start(), asyncio.Event()
        headers = {name: value or "" for name, value in session.headers.items()}
        poll = asyncio.create_task(drive(app, "GET", {**headers, **JSON}, path="/mcp", gone=gone))
        while not here.get_streams.open:
            await asyncio.sleep(0)
        gone.set()
        stage.server.remove_tool("add")
        assert await poll == []
        assert [
            message["method"] for message in await (await session.get(headers=JSON)).json()
        ] == [CHANGED]


async def test_a_poll_that_could_not_be_answered_keeps_its_messages_for_the_next() -> None:
    app = (stage := Stage()).server.asgi("/mcp", long_polling=1)
    async with on_port(app) as site:
        session = await greeted(site)
        here = await app.start()

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            raise OSError("it is gone")

        headers = {**session.headers, **JSON}
        raw = [(name.lower().encode(), (value or "").encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/mcp",
            "headers": raw,
            "query_string": b"",
        }
        poll = asyncio.create_task(app(scope, receive, send))
        while not here.get_streams.open:
            await asyncio.sleep(0)
        stage.server.remove_tool("add")
        with pytest.raises(OSError, match="it is gone"):
            await poll
        assert [
            message["method"] for message in await (await session.get(headers=JSON)).json()
        ] == [CHANGED]


async def test_a_poll_after_a_long_pause_hears_of_what_comes() -> None:
    app = (stage := Stage(limits=Limits(event_life=0.05))).server.asgi("/mcp", long_polling=20)
    async with on_port(app) as site:
        session = await greeted(site)
        poll = await polling(app, session)
        stage.server.remove_tool("add")
        assert (await poll).status == 200
        here = await app.start()
        while len(here.endpoint.events):  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
        poll = await polling(app, session)
        stage.server.remove_prompt("greet")
        assert (await poll).status == 200


async def test_a_poll_ends_with_its_session() -> None:
    app = Stage().server.asgi("/mcp", long_polling=20)
    async with on_port(app) as site:
        session = await greeted(site)
        poll = await polling(app, session)
        await session.delete()
        assert (await poll).status == 204
        assert (await session.get(headers=JSON)).status == 404


async def test_polling_is_refused_where_it_is_not_switched_on() -> None:
    async with hosted(Stage().server) as site:
        answer = await (await greeted(site)).get(headers=JSON)
        assert answer.status == 406
        assert "text/event-stream" in (await answer.error())["message"]


# what is kept


def test_reading_takes_time_in_proportion_to_what_is_read() -> None:
    def best(length: int) -> float:
        stream = EventStream("", 1 << 30, "")
        for _ in range(length):
            stream.push(b"x")
        took = []
        for _ in range(5):
            began = perf_counter()
            assert len(stream.since(0)) == length
            took.append(perf_counter() - began)
        return min(took)

    assert best(200_000) < 80 * best(20_000)


async def test_the_stream_whose_reader_went_first_is_dropped_first() -> None:
    events = MemoryEventStore(Limits(events_kept=15))
    older, newer = events.open("session"), events.open("session")
    readers = [older.attach(0), newer.attach(0)]
    for stream in (older, newer):
        stream.push(b"x" * 10)
    newer.detach(readers[1])
    older.detach(readers[0])
    assert [events.find("session", stream.id) for stream in (older, newer)] == [older, None]
    older.detach(older.attach(0))
    assert events.find("session", older.id) is older
    events.end("session")
    assert (len(events), events._kept_bytes, len(events._unread)) == (0, 0, 0)


def test_what_another_process_said_is_taken_in_its_order_or_not_at_all() -> None:
    stream = EventStream("", 1000, "")
    stream.push_numbered(4, b"4")  # it may overtake what came before
    stream.push_numbered(5, b"5")
    stream.refill(3, [b"2", b"3"], False)
    stream.push_numbered(5, b"5")
    stream.push_numbered(6, b"6")
    assert (stream.since(1), stream.count, stream.done) == (
        [b"2", b"3", b"4", b"5", b"6"],
        6,
        False,
    )
    with pytest.raises(MessagesDropped):
        stream.since(0)
    stream.push_numbered(8, b"8")
    assert (stream.count, stream.done) == (6, True), (
        "the seventh is lost: the client comes back for it"
    )


def test_what_was_lost_before_the_rest_arrived_ends_the_stream_too() -> None:
    stream = EventStream("", 1000, "")
    stream.push_numbered(5, b"5")
    stream.refill(3, [b"2", b"3"], False)
    assert (stream.since(1), stream.count, stream.done) == ([b"2", b"3"], 3, True)


# several processes: here, two applications that know each other only by their bus

on_a_bus = pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")


class Process:
    """One of several processes of a server."""

    def __init__(self, stage: Stage, app: Any, site: Site) -> None:
        self.stage, self.app, self.site = stage, app, site
        self.bus: LocalBus = app._current._bus
        self.standing = app._current.get_streams

    def at(self, session: Session) -> Session:
        """A session of another process, here."""
        return Session(self.site, session.id, session.version, session.result)


class Bus:
    """The bus of such processes."""

    def __init__(self) -> None:
        self.path, self._listening = private_socket()
        self.hub = Hub()

    async def start(self) -> None:
        self.hub = Hub()
        await self.hub.start(self._listening.dup())

    async def close(self) -> None:
        await self.hub.close()
        self._listening.close()
        shutil.rmtree(os.path.dirname(self.path))


@asynccontextmanager
async def processes(
    count: int = 2, long_polling: float | None = None, **options: Any
) -> AsyncIterator[tuple[Any, ...]]:
    """The bus, and so many processes."""
    bus = Bus()
    await bus.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        members = []
        for _ in range(count):
            stage = Stage(**options)
            app = stage.server.asgi(
                "/mcp", bus=lambda: join(bus.path), sse=True, long_polling=long_polling
            )
            site = await stack.enter_async_context(on_port(app))
            await app.start()
            members.append(Process(stage, app, site))
        while len(bus.hub._members) < count:
            await asyncio.sleep(0)
        yield bus, *members


async def lent(one: Process, other: Process, **arguments: Any) -> tuple[Session, Event, Answer]:
    """A session of one process that reads the stream of its call in the other; and the last event
    before."""
    session = await greeted(one.site)
    answer = await session.call("talk", **arguments)
    last = [await answer.next(), await answer.next()][-1]
    answer.cut()
    resumed = await other.at(session).get(last.id)
    assert resumed.status == 200
    return session, last, resumed


@on_a_bus
async def test_a_stream_that_is_spoken_on_all_the_time_is_resumed_elsewhere_without_loss() -> None:
    async with processes() as (_, one, other):

        @one.stage.server.tool
        async def mutter(ctx: Context) -> str:
            for number in range(300):
                await ctx.info(f"{number}")
                await asyncio.sleep(0)
            return "done"

        session = await greeted(one.site)
        for id in range(10):
            answer = await session.call("mutter", _id=id)
            seen = [await answer.next() for _ in range(5)]
            answer.cut()
            seen += await (await other.at(session).get(seen[-1].id)).rest()
            messages = [event.message for event in seen if event.data]
            assert logged(messages) == [f"{number}" for number in range(300)]
            assert text(messages[-1]) == "done"
        assert not other.standing._borrowed


@on_a_bus
async def test_a_poll_elsewhere_gets_what_a_call_says() -> None:
    async with processes(long_polling=10) as (_, one, other):
        session = await greeted(one.site)
        call = asyncio.create_task(session.call("talk", after=1, _headers=JSON))
        await one.stage.started.wait()
        heard = await (await other.at(session).get(headers=JSON)).json()
        assert logged(heard) == ["before 0"], "which had waited in the other process"
        one.stage.release.set()
        assert logged(await (await other.at(session).get(headers=JSON)).json()) == ["after 0"]
        assert text(await (await call).json()) == "done"


@on_a_bus
async def test_of_two_who_resume_a_stream_elsewhere_the_second_hears_the_rest() -> None:
    async with processes() as (_, one, other):
        session, last, first = await lent(one, other, after=2)
        second = await other.at(session).get(last.id)
        assert await first.rest() == [], "it ends"
        one.stage.release.set()
        assert logged(await second.messages()) == ["after 0", "after 1"]
        assert not other.standing._borrowed


@on_a_bus
@pytest.mark.parametrize("whose", ["the holder", "the hub", "the reader"])
async def test_a_stream_that_is_read_elsewhere_ends_when_the_way_to_it_is_lost(whose: str) -> None:
    async with processes(3) as (bus, one, other, _):
        session, last, resumed = await lent(one, other, after=1)
        await {"the holder": one.bus, "the hub": bus.hub, "the reader": other.bus}[whose].close()
        assert await resumed.rest() == []
        assert not other.standing._borrowed
        again = await session.get(last.id)  # and its client finds it where it is
        one.stage.release.set()
        assert logged(await again.messages()) == ["after 0"]


@on_a_bus
async def test_a_stream_that_is_read_elsewhere_ends_with_the_process_that_reads_it() -> None:
    async with processes() as (_, one, other):
        _, _, resumed = await lent(one, other)
        closing = asyncio.create_task(other.app.close())
        assert await resumed.rest() == []
        await closing


@on_a_bus
async def test_nothing_is_left_of_a_stream_that_could_not_be_resumed_elsewhere() -> None:
    async with processes() as (_, one, other):
        session = await greeted(one.site)
        last = (await (await session.call("chat")).rest())[-1].id or ""
        refused = await other.at(session).get(last.rpartition("-")[0] + "-77")
        assert refused.status == 400
        headers = {name: value or "" for name, value in session.headers.items()}
        headers |= {"Accept": "text/event-stream", "Last-Event-ID": last}
        cancelled = asyncio.create_task(drive(other.app, "GET", headers, path="/mcp"))
        while not other.standing._borrowed:
            await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not other.standing._borrowed


@on_a_bus
async def test_a_long_result_is_resumed_elsewhere() -> None:
    size = 17 * 1024 * 1024
    async with processes() as (_, one, other):

        @one.stage.server.tool
        async def long(ctx: Context) -> str:
            await ctx.info("here it comes")
            await one.stage.release.wait()
            return "x" * size

        session = await greeted(one.site)
        answer = await session.call("long")
        last = [await answer.next(), await answer.next()][-1]
        answer.cut()
        one.stage.release.set()
        for _ in range(2):  # while it comes, and when it is there
            resumed = await other.at(session).get(last.id)
            assert resumed.status == 200
            assert len(await resumed.body()) > size


@on_a_bus
async def test_a_standing_stream_stays_where_it_is_until_another_process_has_it() -> None:
    async with processes() as (bus, one, other):
        session = await greeted(one.site)
        standing = await session.listen()
        one.stage.server.remove_tool("add")
        last = await standing.next()
        standing.cut()
        while one.standing.open:
            await asyncio.sleep(0.01)
        one.stage.server.remove_prompt("greet")
        forgetful = await join(bus.path)
        id = (last.id or "").rpartition("-")[0]
        key = one.app._current.sessions.find(session.id).key
        while await forgetful.ask("stream/resume", (key, id, 1, [])) is None:
            pass  # it has just come
        await forgetful.close()
        resumed = await other.at(session).get(last.id)
        assert methods([await resumed.next()]) == ["notifications/prompts/list_changed"]
        while one.standing._sessions:
            await asyncio.sleep(0.01)
        other.stage.server.remove_tool("chat")
        assert methods([await resumed.next()]) == [CHANGED]


@on_a_bus
async def test_when_the_process_with_the_newest_stream_is_lost_another_speaks() -> None:
    async with processes(3) as (_, one, other, third):
        session = await greeted(one.site)
        older = await session.listen()
        newer = await other.at(session).listen()
        third.stage.server.remove_tool("add")
        assert methods([await newer.next()]) == [CHANGED]
        await other.bus.close()
        while one.standing._sessions[next(iter(one.standing._sessions))].has_remote_stream:
            await asyncio.sleep(0.01)
        third.stage.server.remove_prompt("greet")
        assert methods([await older.next()]) == ["notifications/prompts/list_changed"]


@on_a_bus
@pytest.mark.requirement("http-one-stream")
async def test_after_the_bus_was_lost_and_found_one_stream_speaks_and_not_both() -> None:
    async with processes() as (bus, one, other):
        session = await greeted(one.site)
        streams = [await session.listen(), await other.at(session).listen()]
        await bus.hub.close()
        while not (one.bus.alone and other.bus.alone):
            await asyncio.sleep(0.01)
        await bus.start()
        [here], [there] = one.standing._sessions.values(), other.standing._sessions.values()
        while (here.has_remote_stream, there.has_remote_stream) != (True, False):
            await asyncio.sleep(0.01)
        one.stage.server.remove_tool("add")
        assert methods([await streams[1].next()]) == [CHANGED]
        await session.delete()
        assert await streams[0].rest() == []


@on_a_bus
@pytest.mark.requirement("elicitation-complete")
@pytest.mark.parametrize("met", [True, False])
async def test_that_a_page_is_done_with_may_be_told_by_any_process(met: bool) -> None:
    async with processes() as (_, one, other):

        @one.stage.server.tool
        async def pay() -> str:
            raise UrlRequired("Pay first", url="https://example.com/", id="page")

        session = await greeted(one.site, capabilities={"elicitation": {"url": {}}})
        listens = await other.at(session).listen() if met else None
        assert (await (await session.call("pay")).json())["error"]["code"] == UrlRequired.code
        stream = listens or await other.at(session).listen()
        while not other.app._current.sessions.find(session.id).caller.elicitation_ids:
            await asyncio.sleep(0.01)
        other.stage.server.elicitation_complete("page")
        assert (await stream.next()).message["params"] == {"elicitationId": "page"}


@on_a_bus
async def test_a_watched_file_is_told_of_once_however_many_processes_look_at_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "watched.txt"
    path.write_text("one")
    async with processes(3, limits=Limits(watch_interval=0.01)) as (_, *members):
        for member in members:
            member.stage.server.add_file(path, uri="doc://w", watch=True)
        session = await greeted(members[0].site)
        stream = await session.listen()
        await session.ask("resources/subscribe", {"uri": "doc://w"})
        looked, published = [asyncio.Event() for _ in members], []
        ends = []
        for member, event in zip(members, looked, strict=True):
            told = partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)
            ends.append(member.stage.server.add_listener(lambda method, params, told=told: told()))
        members[0].bus.on("change", published.append)
        path.write_text("another")
        assert (await stream.next()).message["params"] == {"uri": "doc://w"}
        for event in looked:
            await event.wait()
        members[1].bus.publish("change", "the last")
        while not published:
            await asyncio.sleep(0.01)
        assert published == ["the last"]
        for end in ends:
            end()  # or the threads that look would outlive the test


@on_a_bus
async def test_a_process_that_starts_before_its_bus_shares_changes_and_sessions_once_it_has_one(
    tmp_path: Path,
) -> None:
    path, hub = str(tmp_path / "bus"), Hub()
    early, late = Stage(), Stage()
    one, other = [stage.server.asgi("/mcp", bus=lambda: join(path)) for stage in (early, late)]
    async with on_port(one) as first, on_port(other) as second:
        await one.start()
        session = await greeted(first)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        await hub.start(listening)
        await other.start()
        while one._current._bus.alone or other._current._bus.alone:
            await asyncio.sleep(0.01)
        there = Session(second, session.id, session.version, session.result)
        stream = await there.listen()
        await there.ask("resources/subscribe", {"uri": "note://one"})
        early.server.remove_tool("add")
        assert methods([await stream.next()]) == [CHANGED]
        assert one._current.sessions.find(session.id).is_synced is False, (
            "what it missed is asked for when it is used next"
        )
    await hub.close()


@on_a_bus
@pytest.mark.requirement("roots-changes-heard")
async def test_when_other_processes_may_be_gone_roots_are_asked_for_again() -> None:
    async with processes() as (_, one, other):
        session = await greeted(one.site)
        caller = one.app._current.sessions.find(session.id).caller
        caller.roots = ()
        await other.bus.close()
        while caller.roots is not None:
            await asyncio.sleep(0.01)
