"""A service hears of the first and of the last subscription to a resource, whatever the client and
however it ends."""

import asyncio
import json
import logging
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Limits, NotFound, Server
from dovetail.connection.bus import Hub, join, private_socket
from dovetail.ports import Bus, Call
from dovetail.testing import bare, pair
from tests.serve.test_conversations import GREETING, READY, served, socket_to
from tests.server.echo_service import WAYS, EchoService, in_process, reachable
from tests.transports.http.raw import Answer, Session, Site, modern, request

URI, OTHER = "x://one", "x://two"
IN_THIS_PROCESS = [way for way in WAYS if way[0] != "stdio"]
SUBSCRIBE = request("resources/subscribe", {"uri": URI})


class Listening(EchoService):
    """A service that notes what it hears."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.heard: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self.hear = self.heard.put_nowait

    async def hears(self, *expected: tuple[str, bool]) -> None:
        """It hears exactly that next."""
        for one in expected:
            assert await self.heard.get() == one
        assert self.heard.empty()

    async def hears_all(self, *expected: tuple[str, bool]) -> None:
        """It hears exactly that next, in any order."""
        assert {await self.heard.get() for _ in expected} == {*expected}
        assert self.heard.empty()


@pytest.mark.parametrize(("transport", "revision"), IN_THIS_PROCESS)
async def test_of_two_clients_the_first_begins_and_the_last_ends_it(
    transport: str, revision: str
) -> None:
    service = Listening()
    async with reachable(transport, service) as target:
        async with Client(target, revision=revision) as one:
            subscription = await one.subscribe(URI, print)
            await service.hears((URI, True))
            async with Client(target, revision=revision) as other:
                await other.subscribe(URI, print)
                await other.subscribe(OTHER, print)
                await service.hears((OTHER, True))
                await subscription.close()
                await one.call_tool("echo")
                await service.hears()
            await service.hears_all((URI, False), (OTHER, False))
            await one.subscribe(URI, print)
            await service.hears((URI, True))
        await service.hears((URI, False))


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_on_stdio_the_end_of_the_client_is_the_end_of_its_subscriptions(
    revision: str, tmp_path: Path
) -> None:
    file = tmp_path / "heard"
    async with Client(**in_process("null", file), revision=revision) as client:
        await client.subscribe(URI, print)
        await client.subscribe(URI, print)
    heard = [json.loads(line) for line in file.read_text().splitlines()]
    assert heard == [[URI, True], [URI, False]]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_server_hears_of_the_resources_that_exist(revision: str) -> None:
    heard: list[tuple[str, bool]] = []

    class Watching(Server):
        def on_subscriptions(self, uri: str, active: bool) -> None:
            heard.append((uri, active))

    server = Watching("watching")
    server.add_resource(lambda: "text", URI, name="one")
    async with pair(server, revision=revision) as client:
        await client.subscribe(URI, print)
        with pytest.raises(NotFound, match=OTHER):
            await client.subscribe(OTHER, print)
        assert heard == [(URI, True)]
    assert heard == [(URI, True), (URI, False)]


async def test_the_same_subscription_twice_counts_once() -> None:
    service = Listening()
    async with bare(service) as peer:
        await peer.greet("2025-11-25")
        for method in ("subscribe", "subscribe", "unsubscribe", "unsubscribe"):
            assert "result" in await peer.ask(f"resources/{method}", {"uri": URI})
        await service.hears((URI, True), (URI, False))


# connections that are cut


async def listen(site: Site) -> Answer:
    """A stream of the stateless era, for two resources, one of them named twice."""
    wanted = {"notifications": {"resourceSubscriptions": [URI, OTHER, URI]}}
    answer = await site.ask("subscriptions/listen", wanted)
    assert "acknowledged" in (await answer.next()).message["method"]
    return answer


async def test_a_stream_that_is_cut_ends_its_subscriptions() -> None:
    service = Listening()
    async with served(service) as (_, site):
        stream = await listen(site)
        await service.hears_all((URI, True), (OTHER, True))
        stream.cut()
        await service.hears_all((URI, False), (OTHER, False))


async def test_a_websocket_that_is_cut_ends_its_subscriptions() -> None:
    service = Listening()
    async with served(service) as (_, site), socket_to(site) as peer:
        await peer.send(json.dumps(SUBSCRIBE))
        await peer.recv()
        await service.hears((URI, True))
        peer.transport.abort()
        await service.hears((URI, False))


async def test_a_pair_that_is_cut_ends_its_subscriptions() -> None:
    service = Listening()
    async with served(service) as (_, site):
        stream = await site.send("GET", {}, path="/sse")
        endpoint = (await stream.next()).data
        for message in (GREETING, READY, SUBSCRIBE):
            assert (await site.post(message, path=endpoint)).status == 202
        await service.hears((URI, True))
        stream.cut()
        await service.hears((URI, False))


async def end_by_delete(site: Site, session: Session) -> None:
    assert (await session.delete()).status == 204


async def end_by_eviction(site: Site, session: Session) -> None:
    other = await site.greet()
    assert (await other.ask("tools/list")).status == 200


async def end_by_itself(site: Site, session: Session) -> None:
    pass


@pytest.mark.parametrize(
    ("end", "limits"),
    [
        (end_by_delete, Limits()),
        (end_by_eviction, Limits(sessions=1)),
        (end_by_itself, Limits(session_idle=0.2)),
        (end_by_itself, Limits(session_life=3, session_idle=8)),
    ],
    ids=["deleted", "evicted", "idle", "expired"],
)
async def test_a_session_over_http_ends_its_subscriptions(
    end: Callable[[Site, Session], Awaitable[None]], limits: Limits
) -> None:
    service = Listening(limits=limits)
    async with served(service) as (_, site):
        session = await site.greet()
        assert (await session.post(SUBSCRIBE)).status == 200
        await service.hears((URI, True))
        await end(site, session)
        await service.hears((URI, False))


async def test_an_application_that_closes_ends_all_subscriptions() -> None:
    service = Listening()
    async with served(service) as (app, site), socket_to(site) as peer:
        session = await site.greet()
        assert (await session.post(SUBSCRIBE)).status == 200
        await peer.send(json.dumps(SUBSCRIBE))
        await peer.recv()
        await listen(site)
        await service.hears((URI, True), (OTHER, True))
        await app.close()
        await service.hears_all((URI, False), (OTHER, False))


class Slow(Listening):
    """A service whose subscriptions take as long as the test wants, and go on if they are
    cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.cancelled = asyncio.Event(), asyncio.Event()
        self.go_on, self.done = asyncio.Event(), asyncio.Event()
        self.add_handlers({"resources/subscribe": self._subscribe})

    async def _subscribe(self, call: Call) -> Any:
        self.asked.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await self.go_on.wait()
        assert call.protocol_handler is not None
        try:
            return await call.protocol_handler(call)
        finally:
            self.done.set()


async def test_a_subscription_that_comes_after_the_end_of_its_session_does_not_begin() -> None:
    service = Slow()
    async with served(service) as (_, site):
        session = await site.greet()
        late = asyncio.create_task(session.post(SUBSCRIBE))
        await service.asked.wait()
        assert (await session.delete()).status == 204
        await service.cancelled.wait()
        service.go_on.set()
        await service.done.wait()
        await service.hears()
        late.cancel()


async def test_a_subscription_that_comes_after_the_end_of_its_connection_does_not_begin() -> None:
    service = Slow()
    async with served(service) as (_, site):
        async with socket_to(site) as peer:
            await peer.send(json.dumps(SUBSCRIBE))
            await service.asked.wait()
            peer.transport.abort()
            await service.cancelled.wait()
            service.go_on.set()
            await service.done.wait()
        await service.hears()


async def test_a_stream_that_begins_after_the_end_of_its_connection_ends_at_once() -> None:
    service = Listening(limits=Limits(shutdown=3600))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def late(call: Call) -> Any:
        asked.set()
        await go_on.wait()
        assert call.protocol_handler is not None
        return await call.protocol_handler(call)

    service.add_handlers({"subscriptions/listen": late})
    async with bare(service) as peer:
        wanted = {"notifications": {"resourceSubscriptions": [URI]}}
        peer.send(modern("subscriptions/listen", wanted)[0])
        await asked.wait()
        await peer.close()
        while service._listeners:
            await asyncio.sleep(0)
        go_on.set()
    await service.hears((URI, True), (URI, False))


# several threads, several processes


async def clients_of(service: EchoService, seed: int) -> None:
    """Clients that subscribe, unsubscribe and go away as chance has it."""
    dice = random.Random(seed)
    for _ in range(12):
        revision = dice.choice(["2025-11-25", "2026-07-28"])
        async with Client(service, revision=revision) as client:
            handles = [await client.subscribe(dice.choice([URI, OTHER]), print) for _ in range(4)]
            for handle in dice.sample(handles, 2):
                await handle.close()


def test_with_several_threads_begin_and_end_alternate() -> None:
    service = EchoService()
    heard: list[tuple[str, bool]] = []
    dice = random.Random(0)

    def hear(one: tuple[str, bool]) -> None:
        time.sleep(dice.random() / 500)  # so that another thread could overtake this one
        heard.append(one)

    service.hear = hear
    threads = [
        threading.Thread(target=lambda seed=seed: asyncio.run(clients_of(service, seed)))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for uri in (URI, OTHER):
        changes = [active for one, active in heard if one == uri]
        assert changes and changes == [True, False] * (len(changes) // 2)


@asynccontextmanager
async def on_a_bus() -> AsyncIterator[Callable[[], Awaitable[Bus]]]:
    path, waiting = private_socket()
    hub = Hub()
    await hub.start(waiting)
    try:
        yield lambda: join(path)
    finally:
        await hub.close()
        shutil.rmtree(os.path.dirname(path))


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_each_process_hears_of_the_sessions_that_it_knows() -> None:
    one, other = Listening(), Listening()
    async with (
        on_a_bus() as bus,
        served(one, bus=bus) as (_, here),
        served(other, bus=bus) as (elsewhere, there),
    ):
        await elsewhere.start()
        session = await here.greet()
        assert (await session.post(SUBSCRIBE)).status == 200
        await one.hears((URI, True))
        await other.hears((URI, True))
        moved = Session(there, session.id, session.version, session.result)
        assert (await moved.ask("resources/unsubscribe", {"uri": URI})).status == 200
        await one.hears((URI, False))
        await other.hears((URI, False))
        assert (await session.post(SUBSCRIBE)).status == 200
        await other.hears((URI, True))
        assert (await moved.delete()).status == 204
        await one.hears((URI, True), (URI, False))
        await other.hears((URI, False))


# services that fail, or take their time


async def test_a_service_that_fails_to_hear_does_not_fail_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(heard: Any) -> None:
        raise OSError("deaf")

    service = EchoService()
    service.hear = fail
    async with pair(service) as client:
        await client.subscribe(URI, print)
    messages = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert messages == [f"on_subscriptions failed for {URI}"] * 2


async def test_a_service_may_hold_a_subscription_while_it_prepares() -> None:
    """As a gateway does, which answers only when its upstream has answered."""
    service = Listening()
    ready: list[str] = []

    async def subscribe(call: Call) -> Any:
        assert call.protocol_handler is not None
        service.count_subscriptions([call.params.uri], ())
        try:
            await asyncio.sleep(0)
            ready.append(call.params.uri)
            return await call.protocol_handler(call)
        finally:
            service.count_subscriptions((), [call.params.uri])

    service.add_handlers({"resources/subscribe": subscribe})
    async with pair(service, revision="2025-11-25") as client:
        await client.subscribe(URI, print)
        assert ready == [URI]
        await service.hears((URI, True))
    await service.hears((URI, False))
