"""What is HTTP's own, from our client to our server: finding the era, servers that die and come
back, streams of changes, many and large calls, several processes, and an end that leaves nothing
behind.

What holds over every transport is in the matrix, which runs over HTTP too. `Program` is a server in
a process of its own.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, Limits, Server
from dovetail.errors import DovetailError
from dovetail.testing import Tape
from tests.behaviour import everything
from tests.behaviour.conftest import REVISIONS
from tests.behaviour.web import TapedApp, first_era_only, on_a_port
from tests.faults.raw_http import Program, running

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="kills without mercy, and counts open files"
)

ERAS = ["handshake", "stateless"]
KEYS = {"DOVETAIL_KEYS": "a key that outlives the process"}
MIB = 1024 * 1024


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """Both eras; `revision=` takes them by name."""
    return request.param


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    """One server process for all tests that neither end nor change it."""
    with running(options={"sse": True, "websocket": True}) as program:
        yield program


def at(program: Program, url: str = "http://127.0.0.1:{}/mcp") -> str:
    return url.format(program.port)


@asynccontextmanager
async def served(server: Server, port: int = 0) -> AsyncIterator[str]:
    """The URL of a server in this loop."""
    async with on_a_port(server.asgi(path="/mcp"), port) as address:
        yield f"http://{address}/mcp"


# finding the era


@pytest.mark.parametrize("url", ["http://{}/mcp", "ws://{}/ws"])
@pytest.mark.parametrize("served", REVISIONS)
async def test_a_client_finds_whatever_single_revision_a_server_speaks(
    served: str, url: str
) -> None:
    app = everything.build(revisions=[served]).asgi(path="/mcp", websocket=True)
    async with on_a_port(app) as address, Client(url.format(address)) as client:
        assert client.revision == served
        assert (await client.call_tool("add", {"a": 1})).text == "2"


@pytest.mark.parametrize("wanted", [None, "handshake"])
async def test_a_server_of_the_old_pair_is_found_behind_a_plain_url(wanted: str | None) -> None:
    tape = Tape()
    app = first_era_only(
        TapedApp(everything.build(revisions=["2024-11-05"]).asgi(path="/mcp", sse=True), tape)
    )
    async with (
        on_a_port(app) as address,
        Client(f"http://{address}/sse", revision=wanted) as client,
    ):
        assert client.revision == "2024-11-05"
        assert (await client.call_tool("add", {"a": 1})).text == "2"
    assert tape.methods("client") == ["initialize", "notifications/initialized", "tools/call"], (
        "all of it over the pair"
    )


@pytest.mark.parametrize("url", ["http://{}/mcp", "ws://{}/ws"])
async def test_the_era_of_a_server_is_remembered_and_found_out_anew_when_it_changes(
    url: str,
) -> None:
    async def opening(port: int, *revisions: str) -> tuple[str, list[str], int]:
        tape = Tape()
        server = Server("s", revisions=revisions, capabilities={"tools": True})
        app = TapedApp(server.asgi(path="/mcp", websocket=True), tape)
        async with on_a_port(app, port) as address, Client(url.format(address)) as client:
            await client.list_tools()
            spoken = client.revision
        asked = [one for one in tape.methods("client") if one in ("server/discover", "initialize")]
        return spoken, asked, int(address.rpartition(":")[2])

    spoken, asked, port = await opening(0, "2025-06-18")
    assert (spoken, asked) == ("2025-06-18", ["server/discover", "initialize"])
    spoken, asked, _ = await opening(port, "2025-06-18")
    assert (spoken, asked) == ("2025-06-18", ["initialize"])
    spoken, asked, _ = await opening(port, "2026-07-28")
    assert (spoken, asked) == ("2026-07-28", ["initialize", "server/discover"])
    spoken, asked, _ = await opening(port, "2026-07-28")
    assert (spoken, asked) == ("2026-07-28", ["server/discover"])


# a server that goes and comes back


class Restarted:
    """A server process that can be ended and started again on its port."""

    def __init__(self, env: dict[str, str]) -> None:
        self._options: dict[str, Any] = {"env": env, "options": {"websocket": True}}
        self.program = Program(**self._options)

    def keeps_sessions(self, era: str) -> bool:
        """Whether a client goes on after a restart as if nothing had been: there is no session, or
        it can still be read."""
        return era == "stateless" or bool(self._options["env"])

    async def again(self, how: signal.Signals) -> None:
        port = self.program.port
        self.program.popen.send_signal(how)
        await asyncio.to_thread(self.program.popen.wait)
        self.program.close()
        self.program = await asyncio.to_thread(Program, port, **self._options)


@pytest.fixture(params=[{}, KEYS], ids=["without a key", "with a key"])
def restarted(request: pytest.FixtureRequest) -> Iterator[Restarted]:
    server = Restarted(request.param)
    yield server
    server.program.close()


@pytest.fixture(params=[signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
def how(request: pytest.FixtureRequest) -> signal.Signals:
    return request.param


async def test_a_server_may_be_restarted_between_two_calls(
    restarted: Restarted, era: str, how: signal.Signals
) -> None:
    states: list[str] = []
    async with Client(at(restarted.program), revision=era) as client:
        client.on_change("state", states.append)
        first = await client.call_tool("pid", type=int)
        await restarted.again(how)
        second = await client.call_tool("pid", type=int)
        assert second.data == restarted.program.popen.pid != first.data
        assert states == ([] if restarted.keeps_sessions(era) else ["reconnecting", "connected"])
        await restarted.again(how)
        await client.ping()
        await restarted.again(how)
        assert "add" in [tool.name for tool in await client.list_tools()]


async def test_changes_of_lists_are_heard_after_a_restart_too(
    restarted: Restarted, era: str, how: signal.Signals
) -> None:
    async with Client(at(restarted.program), revision=era) as client:
        lists: asyncio.Queue[str] = asyncio.Queue()
        await client.on_change("tools", lists.put_nowait)
        await restarted.again(how)
        await repeated(lambda number: client.call_tool("grow", {"name": f"more{number}"}), lists)


async def test_a_subscription_holds_after_a_restart_too(restarted: Restarted, era: str) -> None:
    async with Client(at(restarted.program), revision=era) as client:
        updates: asyncio.Queue[str] = asyncio.Queue()
        await client.subscribe("doc://text", updates.put_nowait)
        await restarted.again(signal.SIGKILL)
        await repeated(lambda number: client.call_tool("touch", {"uri": "doc://text"}), updates)


async def test_a_websocket_is_opened_anew_after_a_restart(restarted: Restarted, era: str) -> None:
    async with Client(at(restarted.program, "ws://127.0.0.1:{}/ws"), revision=era) as client:
        updates: asyncio.Queue[str] = asyncio.Queue()
        await client.subscribe("doc://text", updates.put_nowait)
        await restarted.again(signal.SIGKILL)
        await repeated(lambda number: client.call_tool("touch", {"uri": "doc://text"}), updates)


async def repeated(change: Callable[[int], Any], heard: asyncio.Queue[str]) -> None:
    """Changes something until the client hears of it: the stream that tells it needs a moment to
    stand again."""
    for number in range(30):
        await change(number)
        try:
            await asyncio.wait_for(heard.get(), 0.2)
            return
        except TimeoutError:
            continue
    raise AssertionError("nothing was heard")


# what a server tells unasked


@pytest.mark.requirement("http-get-unrelated", "resources-subscribe", "tools-list-changed")
async def test_changes_outside_of_any_call_are_heard(era: str) -> None:
    server = everything.build()
    async with served(server) as url, Client(url, revision=era) as client:
        heard: asyncio.Queue[str] = asyncio.Queue()
        await client.subscribe("doc://text", heard.put_nowait)
        for kind in ("tools", "resources", "prompts"):
            await client.on_change(kind, heard.put_nowait)
        await standing(server, heard)
        server.remove_tool("late")
        assert await heard.get() == "tools"
        server.remove_resource("doc://json")
        assert await heard.get() == "resources"
        server.remove_prompt("greet")
        assert await heard.get() == "prompts"
        thread = threading.Thread(target=server.notify_resource_updated, args=["doc://text"])
        thread.start()
        assert await heard.get() == "doc://text"
        thread.join()
        assert heard.empty()


async def standing(server: Server, heard: asyncio.Queue[str]) -> None:
    """Wait until the client's stream stands; what was said to nobody before is nobody's loss."""

    async def touch(number: int) -> None:
        server.notify_resource_updated("doc://text")

    await repeated(touch, heard)


async def test_logs_and_progress_arrive_in_the_order_of_the_call_and_before_its_answer(
    era: str,
) -> None:
    server = Server("s", limits=Limits(progress_interval=0.0))

    @server.tool
    async def work(ctx: Context) -> str:
        for step in range(50):
            ctx.info(step)
            ctx.progress(step + 1)
            await asyncio.sleep(0)
        return "done"

    heard: list[tuple[str, Any]] = []
    async with served(server) as url:
        async with Client(
            url, revision=era, on_log=lambda entry: heard.append(("log", entry.data))
        ) as client:
            await client.call_tool(
                "work", on_progress=lambda update: heard.append(("progress", update.progress))
            )
            assert heard == [
                one for step in range(50) for one in (("log", step), ("progress", step + 1))
            ]


# many, and large


@pytest.mark.parametrize("streamed", [False, True])
async def test_sixty_four_calls_of_one_client_are_in_flight_at_once(
    era: str, streamed: bool
) -> None:
    server = Server("s")
    arrived: list[int] = []
    everybody = asyncio.Event()

    @server.tool
    async def meet(number: int, ctx: Context) -> int:
        if streamed:
            ctx.info(number)
        arrived.append(number)
        if len(arrived) == 64:
            everybody.set()
        await everybody.wait()
        return number

    async with (
        served(server) as url,
        Client(url, revision=era, on_log=lambda entry: None) as client,
    ):
        results = await asyncio.gather(
            *(client.call_tool("meet", {"number": n}, type=int) for n in range(64))
        )
    assert [result.data for result in results] == list(range(64))


async def test_five_megabytes_travel_both_ways(era: str) -> None:
    server = Server("s")

    @server.tool
    async def echo(text: str, ctx: Context, aloud: bool) -> str:
        if aloud:
            ctx.info("coming")  # which makes the answer an event
        return text[::-1]

    text = "ab" * (5 * MIB // 2)
    async with (
        served(server) as url,
        Client(url, revision=era, on_log=lambda entry: None) as client,
    ):
        for aloud in (False, True):
            assert (await client.call_tool("echo", {"text": text, "aloud": aloud})).text == text[
                ::-1
            ]


# several processes


@pytest.fixture(scope="module")
def workers() -> Iterator[Program]:
    with running(options={"workers": 2}) as program:
        pids: set[int] = set()
        while len(pids) < 2:  # both are there: what a session asks for is told to those that are
            pids.add(program.tool("pid"))
        yield program


ANYWHERE = {"Connection": "close"}
"""Each request has a connection of its own, which goes to whichever process takes it first."""


async def test_a_client_does_not_notice_that_its_server_is_two_processes(
    workers: Program, era: str
) -> None:
    updates: asyncio.Queue[str] = asyncio.Queue()
    logs: list[str] = []
    options: dict[str, Any] = {
        "revision": era,
        "headers": ANYWHERE,
        "on_log": lambda entry: logs.append(entry.data),
    }
    uris = [f"doc://{number}" for number in range(64)]
    async with Client(at(workers), **options) as client:
        await client.set_log_level("error")
        await asyncio.gather(*(client.subscribe(uri, updates.put_nowait) for uri in uris))
        pids: set[str] = set()
        while len(pids) < 2:
            pids |= {
                result.text
                for result in await asyncio.gather(*(client.call_tool("pid") for _ in range(32)))
            }
        await repeated(lambda number: client.call_tool("touch", {"uri": uris[0]}), updates)
        for uri in uris:  # the stream stands: what is missing now is missing for good
            await client.call_tool("touch", {"uri": uri})
        missing = set(uris)
        while missing:
            missing -= {await updates.get()}
        await asyncio.gather(*(client.call_tool("level") for _ in range(32)))
        assert logs == ["error"] * 32


async def test_a_call_is_cancelled_in_whichever_process_it_runs(workers: Program, era: str) -> None:
    began: asyncio.Queue[str] = asyncio.Queue()
    options: dict[str, Any] = {
        "revision": era,
        "headers": ANYWHERE,
        "on_log": lambda entry: began.put_nowait(entry.data),
    }
    async with Client(at(workers), **options) as client:
        tags = [f"{era} {number}" for number in range(16)]
        calls = [asyncio.create_task(client.call_tool("wait", {"tag": tag})) for tag in tags]
        for _ in tags:
            await began.get()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for tag in tags:
            while (await client.call_tool("outcomes", {"tag": tag}, type=list[int])).data != [
                1,
                0,
                1,
            ]:
                await asyncio.sleep(0.01)  # it may be the other process that was asked


# the end


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}/mcp", "http://127.0.0.1:{}/sse", "ws://127.0.0.1:{}/ws"]
)
async def test_a_client_that_closes_leaves_nothing_behind(
    program: Program, era: str, url: str
) -> None:
    async def use() -> None:
        began = asyncio.Event()
        client = Client(at(program, url), revision=era, on_log=lambda entry: began.set())
        await client.connect()
        await client.subscribe("doc://text", print)
        await client.on_change("tools", print)
        call = asyncio.create_task(client.call_tool("wait", {"tag": f"left {url} {era}"}))
        await began.wait()
        await client.close()
        with pytest.raises(DovetailError, match="closed"):
            await call

    await use()  # which loads what is loaded once
    gc.collect()
    tasks, files = asyncio.all_tasks(), sorted(os.listdir("/dev/fd"))
    await use()
    gc.collect()  # what was forgotten open complains here, and fails the test
    assert asyncio.all_tasks() == tasks
    assert sorted(os.listdir("/dev/fd")) == files
    async with Client(at(program)) as client:
        while (
            await client.call_tool("outcomes", {"tag": f"left {url} {era}"}, type=list[int])
        ).data != [2, 0, 2]:
            await asyncio.sleep(0.01)


# other ways in


def test_code_without_async_uses_the_same_client(program: Program, era: str) -> None:
    updates: list[Any] = []
    with Client(at(program), revision=era, on_log=lambda entry: None).blocking() as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
        assert "add" in [tool.name for tool in client.list_tools()]
        heard = threading.Event()
        with client.subscribe("doc://text", lambda uri: heard.set()):
            while not heard.wait(0.1):
                client.call_tool("touch", {"uri": "doc://text"})
        client.call_tool("speak", {"tag": "x", "times": 3}, on_progress=updates.append)


async def test_a_configuration_brings_url_and_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    server = Server("s")

    @server.tool
    async def seen(ctx: Context) -> list[str | None]:
        return [ctx.headers.get("authorization"), ctx.headers.get("x-tenant")]

    monkeypatch.setenv("TOKEN", "secret")
    async with served(server) as url:
        headers = {"Authorization": "Bearer ${TOKEN}", "X-Tenant": "${TENANT:-nobody}"}
        path = tmp_path / "mcp.json"
        path.write_text(
            json.dumps(
                {
                    "mcpServers": {
                        "remote": {"url": url, "headers": headers},
                        "other": {"command": "x"},
                    }
                }
            )
        )
        async with Client(path, server="remote", revision=era) as client:
            assert (await client.call_tool("seen", type=list[Any])).data == [
                "Bearer secret",
                "nobody",
            ]
        async with Client(
            path, server="remote", revision=era, headers={"X-Tenant": "somebody"}
        ) as client:
            assert (await client.call_tool("seen", type=list[Any])).data == [
                "Bearer secret",
                "somebody",
            ]
