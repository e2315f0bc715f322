"""The test kit: what a forced replay shows of a tool that asks, and who is calling."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, Limits, Server
from dovetail.auth import Bearer, static_tokens
from dovetail.errors import Forbidden, InternalError
from dovetail.masking import mask_message
from dovetail.mcplog import read_mcplog
from dovetail.ports import Principal
from dovetail.testing import Bare, PairOptions, Tape, Taped, pair
from dovetail.transports import memory

NEW = "2026-07-28"


def shop() -> tuple[Server, list[str]]:
    server, done = Server("shop"), []

    @server.tool
    async def buy(ctx: Context) -> str:
        done.append("began")
        await ctx.elicit("What?", str)
        await ctx.once("charge", lambda: done.append("charged"))
        await ctx.elicit("Sure?", bool)
        return "bought"

    @server.tool
    async def fickle(ctx: Context) -> str:
        done.append("began")
        await ctx.elicit(f"Question {len(done)}", str)
        await ctx.elicit(f"Question {len(done)} again", str)
        return "done"

    return server, done


def yes(request: Any) -> Any:
    return {"value": True if "Sure" in request.message else "yes"}


async def test_a_replay_runs_the_handler_again_in_every_round() -> None:
    server, done = shop()
    async with pair(server, revision=NEW, replay=True, on_elicit=yes) as client:
        assert (await client.call_tool("buy")).data == "bought"
    assert done == ["began", "began", "charged", "began"]


@pytest.mark.parametrize(
    ("revision", "replay"), [(NEW, False), ("2025-11-25", False), ("2025-11-25", True)]
)
async def test_elsewhere_the_handler_runs_once(revision: str, replay: bool) -> None:
    server, done = shop()
    async with pair(server, revision=revision, replay=replay, on_elicit=yes) as client:
        assert (await client.call_tool("buy")).data == "bought"
    assert done == ["began", "charged"]


async def test_a_replay_shows_a_handler_that_does_not_ask_the_same_each_time() -> None:
    server, _ = shop()
    async with pair(server, revision=NEW, on_elicit=yes) as client:
        await client.call_tool("fickle")
    async with pair(server, revision=NEW, replay=True, on_elicit=yes) as client:
        with pytest.raises(InternalError, match="did not repeat its earlier questions"):
            await client.call_tool("fickle")


async def test_a_replay_of_one_pair_leaves_the_others_alone() -> None:
    server, done = shop()
    async with (
        pair(server, revision=NEW, replay=True, on_elicit=yes) as again,
        pair(server, revision=NEW, on_elicit=yes) as live,
    ):
        await asyncio.gather(again.call_tool("buy"), live.call_tool("buy"))
    assert (done.count("began"), done.count("charged")) == (4, 2)
    assert not server.replay


@pytest.mark.parametrize("revision", [NEW, "2025-11-25"])
async def test_a_pair_may_say_who_is_calling(revision: str) -> None:
    server = Server("shop", auth=Bearer(static_tokens({"t": "ada"})))

    @server.tool
    async def me(ctx: Context) -> str:
        return "nobody" if ctx.user is None else ctx.user.id

    @server.tool(scopes=["orders:cancel"])
    async def cancel() -> str:
        return "cancelled"

    async with pair(server, revision=revision) as owner:
        assert (await owner.call_tool("me")).data == "nobody" and (
            await owner.call_tool("cancel")
        ).data == "cancelled"
    async with pair(server, revision=revision, user=Principal("bo")) as bo:
        assert (await bo.call_tool("me")).data == "bo"
        assert [tool.name for tool in await bo.list_tools()] == ["me"]
        with pytest.raises(Forbidden, match="orders:cancel"):
            await bo.call_tool("cancel")
    async with pair(
        server, revision=revision, user=Principal("ada", scopes=("orders:cancel",))
    ) as ada:
        assert (await ada.call_tool("cancel")).data == "cancelled"


def test_pair_takes_every_option_of_a_client_but_those_for_processes_and_http() -> None:
    elsewhere = {"server", "on_stderr", "env", "cwd", "headers", "auth", "verify", "proxy"}
    own = {"self", "target", "revision", "long_polling"}
    options = inspect.signature(Client.__init__).parameters.keys() - elsewhere - own
    assert PairOptions.__annotations__.keys() == options


async def test_a_tape_is_saved_as_a_recording_without_credentials(tmp_path: Path) -> None:
    server, tape = Server("bank"), Tape()

    @server.tool
    def log_in(password: str) -> str:
        return "welcome"

    async with Client(server, tap=tape) as client:
        await client.call_tool("log_in", {"password": "hunter2"})
    path = tape.save(tmp_path / "night.mcplog", ["uvx", "bank"])
    recording = read_mcplog(path)
    assert recording.header.target == ["uvx", "bank"]
    assert [event.data for event in recording.wire()] == [
        mask_message(data) for _, data in tape.entries
    ]
    times = [event.at for event in recording.events]
    assert times == sorted(times) and times[0] == 0 and times[-1] > 0
    assert "hunter2" not in path.read_text() and "welcome" in path.read_text()
    assert tape.save(path) != path, "a recording is never overwritten"


async def test_a_taped_channel_records_who_sent_what_and_what_was_lost() -> None:
    ours, theirs = memory.pair(theirs=Limits(incoming=100))
    tapes = {"client": Tape(), "server": Tape()}
    client = Bare(Taped(ours, tapes["client"]))
    server = Bare(Taped(theirs, tapes["server"], "server"))
    client.send({"method": "a"})
    assert await server.receive() == {"method": "a"}
    server.send({"method": "b"})
    assert await client.receive() == {"method": "b"}
    for tape in tapes.values():
        assert tape.methods("client") == ["a"]
        assert tape.methods("server") == ["b"]
    client.send(b"x" * 101)
    await client.close()
    await server.ended
    server.send({"method": "c"})
    assert [lost.direction for lost in tapes["server"].losses] == ["to_server", "to_client"]
    assert tapes["server"].methods("server") == ["b"]
