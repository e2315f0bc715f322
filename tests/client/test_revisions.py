"""The revisions in which a client's target answers."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.errors import ConnectFailed, DovetailError
from dovetail.testing import Bare, Tape, pair
from dovetail.transports import memory
from tests.behaviour.handmade import discovery, reply
from tests.behaviour.web import first_era_only, on_a_port

ALL = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
SERVER = """
import sys
from pathlib import Path
from dovetail import Server

with Path(__file__).with_suffix(".starts").open("a") as log:
    log.write("x")
Server("s", revisions={revisions}).run()
with Path(__file__).with_suffix(".ends").open("a") as log:
    log.write("x")
"""


@asynccontextmanager
async def target(
    transport: str, folder: Path, revisions: Sequence[str] | None
) -> AsyncIterator[Any]:
    """A target that answers in these revisions."""
    if transport == "stdio":
        file = folder / "served.py"
        file.write_text(SERVER.replace("{revisions}", repr(revisions)), encoding="utf-8")
        yield [sys.executable, str(file)]
        return
    server = Server("s", revisions=revisions)
    if transport == "memory":
        yield server
        return
    app = server.asgi(path="/mcp", sse=True, websocket=True)
    async with on_a_port(first_era_only(app)) as address:
        urls = {"http": "http://{}/mcp", "sse": "http://{}/sse", "websocket": "ws://{}/ws"}
        yield urls[transport].format(address)


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
@pytest.mark.parametrize(
    "revisions",
    [ALL, ALL[:1], ALL[1:], ["2025-06-18", "2024-11-05"], ["2026-07-28", "2025-03-26"]],
    ids=["all", "newest", "handshake", "some", "mixed"],
)
@pytest.mark.parametrize("transport", ["memory", "http", "websocket", "stdio"])
async def test_a_client_finds_the_revisions_of_its_target(
    transport: str, revisions: list[str], is_open: bool, tmp_path: Path
) -> None:
    async with target(transport, tmp_path, revisions) as where:
        client = Client(where)
        if not is_open:
            assert await client.revisions() == revisions
            assert client.state == "new"
            return
        async with client:
            own = client.connection_id
            assert await client.revisions() == revisions
            assert (client.state, client.connection_id) == ("connected", own)
            await client.ping()


async def test_an_http_sse_server_answers_in_its_one_revision(tmp_path: Path) -> None:
    async with target("sse", tmp_path, ["2024-11-05"]) as where, Client(where) as client:
        assert await client.revisions() == ["2024-11-05"]


async def test_a_client_with_a_chosen_revision_finds_the_others(revision: str = ALL[2]) -> None:
    async with Client(Server("s"), revision=revision) as client:
        assert await client.revisions() == ALL
        assert client.revision == revision


async def test_processes_that_were_started_to_find_out_have_ended(tmp_path: Path) -> None:
    async with target("stdio", tmp_path, ALL[1:]) as where:
        async with Client(where) as client:
            assert await client.revisions() == ALL[1:]
            starts, ends = tmp_path / "served.starts", tmp_path / "served.ends"
            count = len(starts.read_text())
            assert count > 1
            assert len(ends.read_text()) == count - 1, "only the client's own is left"


async def test_a_server_that_lists_its_revisions_is_not_started_again(tmp_path: Path) -> None:
    async with target("stdio", tmp_path, None) as where, Client(where) as client:
        assert await client.revisions() == ALL
        assert (tmp_path / "served.starts").read_text() == "x"


@pytest.mark.parametrize(
    ("revisions", "expected"),
    [(None, ALL), (ALL[:1], []), (ALL[1:], [])],
    ids=["all", "newest", "old"],
)
async def test_without_probing_only_a_complete_list_is_known(
    tmp_path: Path, revisions: list[str] | None, expected: list[str]
) -> None:
    async with target("stdio", tmp_path, revisions) as where, Client(where) as client:
        assert await client.revisions(probe=False) == expected
        assert (tmp_path / "served.starts").read_text() == "x", "nothing was started"
    assert await Client(Server("s")).revisions(probe=False) == [], "it is not connected"


@pytest.mark.parametrize("transport", ["memory", "http", "websocket", "stdio"])
async def test_the_draft_dialect_is_named_only_if_it_is_asked_for(
    transport: str, tmp_path: Path
) -> None:
    async with target(transport, tmp_path, None) as where, Client(where) as client:
        assert await client.revisions() == ALL
        assert await client.revisions(draft=True) == ["detailed-draft", *ALL]


async def test_a_server_without_the_draft_dialect_does_not_answer_in_it() -> None:
    async with Client(Server("s", revisions=ALL[:2])) as client:
        assert await client.revisions(draft=True) == ALL[:2]


async def test_revisions_that_this_client_does_not_know_are_left_out() -> None:
    ours, theirs = memory.pair()
    client, server = Client(ours), Bare(theirs)
    finding = asyncio.create_task(client.revisions())
    listed = discovery({}, "2031-01-01", "2026-07-28", "2025-06-18")
    server.send(reply(await server.receive(), listed))
    assert await finding == ["2026-07-28", "2025-06-18"]
    await client.close()


@pytest.mark.parametrize("revision", ALL)
async def test_a_channel_is_known_to_answer_in_what_its_server_lists_or_uses(revision: str) -> None:
    async with pair(Server("s"), revision=revision) as client:
        found = await client.revisions(draft=True)
        assert found == (ALL if revision == ALL[0] else [revision])


async def test_the_reason_is_raised_if_nothing_answers() -> None:
    client = Client([sys.executable, "-c", "raise SystemExit(3)"], on_stderr=lambda line: None)
    with pytest.raises(ConnectFailed, match="exited with code 3"):
        await client.revisions()


async def test_the_time_for_each_attempt_is_bounded() -> None:
    silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with pytest.raises(DovetailError, match=r"within 0\.5 s"):
        await Client(silent).revisions(timeout=0.5)


def test_synchronous_code_can_ask_as_well() -> None:
    with Client(Server("s")).blocking() as client:
        assert client.revisions() == ALL
        assert not client.cancel_request(99)


async def test_a_tap_does_not_see_what_is_sent_to_find_out() -> None:
    tape = Tape()
    async with Client(Server("s", revisions=ALL[1:]), tap=tape) as client:
        before = len(tape.entries)
        assert await client.revisions() == ALL[1:]
        assert len(tape.entries) == before
