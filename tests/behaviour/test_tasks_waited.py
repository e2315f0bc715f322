"""Tools that run as tasks, called by our client over every transport: whoever calls does not
notice."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Client, Context, Server, TaskUpdate, ToolError
from dovetail.client import tasks
from dovetail.errors import NotFound, TaskCancelled, TimedOut
from dovetail.protocol.tasks import RELATED_TASK
from dovetail.testing import bare
from tests.behaviour.conftest import Talk
from tests.transports.http.raw import hosted, request

CORE = "2025-11-25"
TASKED = (CORE, "2026-07-28")
GREET: dict[str, Any] = {"name": "greet", "arguments": {}, "task": {}}


class Person(Struct):
    name: str


class Stage:
    """A server whose tasks wait for the test."""

    def __init__(self) -> None:
        self.go, self.begun, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.server = server = Server("tasks")

        @server.tool(task="optional")
        async def paint(colour: str, ctx: Context) -> str:
            ctx.progress(1, 2, f"mixing {colour}")
            self.begun.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return f"painted {colour}"

        @server.tool(task="optional")
        async def greet(ctx: Context) -> str:
            got = await ctx.elicit("Who are you?", Person)
            return f"Hello, {got.data.name if got.data else got.action}!"

        @server.tool(task="optional")
        def spoil() -> str:
            raise ToolError("spoilt")


async def test_a_call_waits_for_its_task_without_noticing(talk: Talk) -> None:
    stage, heard = Stage(), list[Any]()
    async with talk(stage.server) as client:
        calling = asyncio.create_task(
            client.call_tool(
                "paint", {"colour": "red"}, on_progress=lambda update: heard.append(update.message)
            )
        )
        await stage.begun.wait()
        while not heard:
            await asyncio.sleep(0.01)
        stage.go.set()
        assert (await calling).text == "painted red"
        assert set(heard) <= {"mixing red", None}, "the first revision has no words for it"
        with pytest.raises(ToolError, match="spoilt"):
            await client.call_tool("spoil")


async def test_a_question_of_a_task_reaches_the_callback(talk: Talk) -> None:
    if not talk.at_least("2025-06-18"):
        pytest.skip("this revision has no elicitation")
    asked: list[Any] = []
    async with talk(
        Stage().server, on_elicit=lambda request: asked.append(request) or {"name": "Ann"}
    ) as client:
        assert (await client.call_tool("greet")).text == "Hello, Ann!"
        handle = await client.start_tool("greet")
        assert (await handle.result()).text == "Hello, Ann!"
        assert len(asked) == 2


@pytest.mark.requirement("tasks-client-related")
async def test_what_is_asked_on_behalf_of_a_task_is_answered_with_its_mark(talk: Talk) -> None:
    if talk.revision != CORE:
        pytest.skip("this is of the core form")
    async with talk(Stage().server, on_elicit=lambda request: {"name": "Ann"}) as client:
        handle = await client.start_tool("greet")
        assert (await handle.result()).text == "Hello, Ann!"
    [question] = [
        one for one in talk.tape.messages("server") if one.get("method") == "elicitation/create"
    ]
    [answer] = [
        one
        for one in talk.tape.messages("client")
        if one.get("id") == question["id"] and "result" in one
    ]
    assert (
        answer["result"]["_meta"]
        == question["params"]["_meta"]
        == {RELATED_TASK: {"taskId": handle.id}}
    )


@pytest.mark.requirement("tasks-client-related")
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_question_of_a_task_that_is_cancelled_is_withdrawn_with_its_mark(
    transport: str,
) -> None:
    """A client by hand: ours does not read on once it knows that the task is over."""
    able, server = {"elicitation": {}}, Stage().server
    if transport == "memory":
        async with bare(server) as peer:
            await peer.greet(CORE, able)
            made = (await peer.ask("tools/call", GREET))["result"]["task"]
            peer.send(request("tasks/result", {"taskId": made["taskId"]}, 7))
            while (question := await peer.receive()).get("method") != "elicitation/create":
                pass
            peer.send(request("tasks/cancel", {"taskId": made["taskId"]}, 8))
            came = [await peer.receive()]
            while came[-1].get("id") != 7:
                came.append(await peer.receive())
    else:
        async with hosted(server) as site:
            session = await site.greet(CORE, capabilities=able)
            made = (await (await session.ask("tools/call", GREET)).whole())["result"]["task"]
            stream = await session.ask("tasks/result", {"taskId": made["taskId"]}, id=7)
            while not (event := await stream.next()).data:
                pass
            question = event.message
            await session.ask("tasks/cancel", {"taskId": made["taskId"]}, id=8)
            came = await stream.messages()
    [withdrawn] = [one["params"] for one in came if one.get("method") == "notifications/cancelled"]
    assert withdrawn["requestId"] == question["id"]
    assert withdrawn["_meta"] == {RELATED_TASK: {"taskId": made["taskId"]}}


async def test_whoever_stops_waiting_cancels_the_task(talk: Talk) -> None:
    stage = Stage()
    async with talk(stage.server) as client:
        calling = asyncio.create_task(client.call_tool("paint", {"colour": "red"}))
        await stage.begun.wait()
        if talk.stateless:
            await asyncio.sleep(0.1)  # let the client hear that it is a task
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await stage.cancelled.wait()


async def test_a_handle_shows_the_way_of_a_task(talk: Talk) -> None:
    if talk.revision not in TASKED:
        pytest.skip("this revision has no tasks")
    stage = Stage()
    async with talk(stage.server) as client:
        handle = await client.start_tool("paint", {"colour": "blue"}, ttl=60)
        updates: list[TaskUpdate] = []
        async for update in handle.updates():
            updates.append(update)
            if update.message == "mixing blue":
                stage.go.set()
        assert [update.status for update in updates][-1] == "completed"
        assert (await handle.result()).text == "painted blue"
        assert (await client.task(handle.id).status()).status == "completed"
        await handle.cancel()


async def test_a_task_that_is_cancelled_says_so_to_who_waits(talk: Talk) -> None:
    if talk.revision not in TASKED:
        pytest.skip("this revision has no tasks")
    stage = Stage()
    async with talk(stage.server) as client:
        handle = await client.start_tool("paint", {"colour": "blue"})
        with pytest.raises(TimedOut):
            await handle.result(timeout=0.05)
        waiting = asyncio.create_task(handle.result())
        await stage.begun.wait()
        await client.task(handle.id).cancel()
        with pytest.raises(TaskCancelled):
            await waiting
        await stage.cancelled.wait()
        with pytest.raises(NotFound, match="does not exist"):
            await client.task("nonsense").result()


@pytest.mark.parametrize("transport", ["memory", "http", "websocket"])
async def test_of_a_task_that_takes_long_the_server_tells_by_itself(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "LISTEN_SECONDS", 0.1)  # which is long, here
    stage, talk = Stage(), Talk(transport, "2026-07-28")

    def asked() -> list[str]:
        return [str(message.get("method")) for message in talk.tape.messages("client")]

    async with talk(stage.server) as client:
        calling = asyncio.create_task(client.call_tool("paint", {"colour": "red"}))
        while "subscriptions/listen" not in asked():
            await asyncio.sleep(0.05)
        while asked()[-1] != "tasks/get":
            await asyncio.sleep(0.05)
        looks = asked().count("tasks/get")
        stage.go.set()
        assert (await calling).text == "painted red"
        assert asked().count("tasks/get") == looks, "the result came by itself"


@pytest.mark.parametrize("revision", TASKED)
async def test_what_was_lost_with_its_server_is_told_as_lost(revision: str, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import asyncio, os\n"
        "from dovetail import Server\n"
        "server = Server('mortal')\n"
        "@server.tool(task='required')\n"
        "async def wait() -> str:\n"
        "    await asyncio.Event().wait()\n"
        "@server.tool\n"
        "def die() -> None:\n"
        "    os._exit(1)\n"
        "server.run()\n",
        encoding="utf-8",
    )
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    async with Client([sys.executable, str(script)], revision=revision, env=env) as client:
        handle = await client.start_tool("wait")
        waiting = asyncio.create_task(handle.result())
        with pytest.raises(Exception, match=r"die|closed|exited"):
            await client.call_tool("die")
        with pytest.raises(NotFound, match="has deleted it"):
            await waiting


@pytest.mark.parametrize("revision", TASKED)
async def test_a_call_survives_the_end_of_its_server_where_the_task_does(
    revision: str, tmp_path: Path
) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import os\n"
        "from pathlib import Path\n"
        "from dovetail import Context, Server\n"
        "server = Server('phoenix', tasks='tasks.db')\n"
        "@server.tool(task='required', resumable=True)\n"
        "async def rise(ctx: Context) -> str:\n"
        "    got = await ctx.elicit('Burn?', bool)\n"
        "    with Path('lives').open('a') as file:\n"
        "        file.write('x')\n"
        "    if Path('lives').stat().st_size == 1:\n"
        "        os._exit(1)\n"
        "    return f'risen {got.data}'\n"
        "server.run()\n",
        encoding="utf-8",
    )
    env, asked = {"PYTHONPATH": str(Path(__file__).parents[2])}, list[str]()

    def on_elicit(request: Any) -> Any:
        asked.append(request.message)
        return {"value": True}

    command = [sys.executable, str(script)]
    async with Client(
        command, revision=revision, env=env, cwd=tmp_path, on_elicit=on_elicit
    ) as client:
        assert (await client.call_tool("rise")).text == "risen True"
    assert asked == ["Burn?"]
    assert (tmp_path / "lives").read_text() == "xx"


@pytest.mark.parametrize("revision", TASKED)
def test_a_handle_can_be_used_without_async(revision: str) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def count(ctx: Context) -> int:
        ctx.progress(1, 2, "counting")
        await asyncio.sleep(0.1)
        return 2

    with Client(server, revision=revision).blocking() as client:
        handle = client.start_tool("count")
        assert [update.status for update in handle.updates()][-1] == "completed"
        assert handle.result().data == 2
        assert client.task(handle.id).status().status == "completed"
        handle.cancel()
