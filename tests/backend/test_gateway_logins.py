"""Users who log in to servers behind a gateway with two replicas and a load balancer that sends
every request to the next one."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.aio import TaskSet
from dovetail.auth import Provider
from dovetail.auth.client.store import read_record
from dovetail.auth.urls import login_key
from dovetail.backend import Backend
from dovetail.errors import Overloaded
from dovetail.ports import HttpRequest, HttpResponse, PublicUrl
from tests.behaviour.web import on_a_port
from tests.gateway.connecting import (
    HASHES,
    KEYS,
    SCOPES,
    Browser,
    CountingProvider,
    Robot,
    Served,
    gateway_for,
    notes_server,
    serve_notes,
)
from tests.gateway.test_connect import visiting
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import MakeBackend
from .redis_server import RedisServer

pytestmark = needs_redis


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Balancer:
    """A load balancer in front of applications that run elsewhere."""

    def __init__(self) -> None:
        self.apps: list[Any] = []
        self.seen = [0, 0]
        self._next = cycle(range(2))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        number = next(self._next)
        self.seen[number] += 1
        await self.apps[number](scope, receive, send)


class LoginCounter(Provider):
    """Counts how often somebody logs in."""

    logins = 0

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        self.logins += b"grant_type=authorization_code" in request.body
        return await super().respond(request, public_url)


@asynccontextmanager
async def replicas(
    entries: Mapping[str, Any], make: MakeBackend
) -> AsyncIterator[tuple[Served, Served, Balancer]]:
    """Two replicas at one URL."""
    port, balancer = free_port(), Balancer()
    url = f"http://127.0.0.1:{port}/mcp"
    gateways = []
    for _ in range(2):
        guard = CountingProvider(users=HASHES, name="The gateway")
        gateway = gateway_for(entries, None, auth=guard, backend=make())  # type: ignore[arg-type]
        gateways.append(gateway)
        balancer.apps.append(gateway.asgi("/mcp", public_url=url, hosts="*", keys=KEYS))
    first, second = balancer.apps
    async with on_a_port(first), on_a_port(second), on_a_port(balancer, port):
        yield Served(gateways[0], url), Served(gateways[1], url), balancer


@asynccontextmanager
async def notes_replicas(
    make: MakeBackend, **settings: Any
) -> AsyncIterator[tuple[Served, Served, Balancer]]:
    async with serve_notes(**settings) as url:
        async with replicas({"notes": {"url": url, "auth": "oauth"}}, make) as found:
            yield found


async def test_a_login_that_begins_at_one_replica_may_come_back_at_another(
    make_backend: MakeBackend,
) -> None:
    async with notes_replicas(make_backend) as (first, second, balancer):
        window = Browser()
        link = await first.link("ann")
        callback = await window.log_in(await window.begin(link, "ann"), "ann")
        status, page, _ = await window.open(callback)
        assert (status, "notes is connected" in page) == (200, True)
        assert await first.connected() == await second.connected() == ["ann"]
        async with first.client("ann") as client:
            for _ in range(4):
                assert (await client.call_tool("notes__whoami")).data == "ann at notes"
        assert min(balancer.seen) > 5


async def test_a_link_works_once_at_all_replicas(make_backend: MakeBackend) -> None:
    async with notes_replicas(make_backend) as (first, second, _):
        link = await first.link("ann")
        await Robot("ann").connect(link)
        for _ in range(2):
            status, page, _ = await Browser().open(link)
            assert (status, "was used before" in page) == (400, True)
        assert await second.connected() == ["ann"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_call_goes_on_after_its_user_has_connected(
    make_backend: MakeBackend, revision: str
) -> None:
    async with notes_replicas(make_backend) as (first, _, balancer):
        visit = visiting(Robot("ann"))
        async with first.client("ann", on_elicit=visit, revision=revision) as client:
            if revision == "2026-07-28":
                assert (await client.call_tool("notes__whoami")).data == "ann at notes"
            else:
                await Robot("ann").connect(await first.link("ann"))
                assert (await client.call_tool("notes__whoami")).data == "ann at notes"
        assert min(balancer.seen) > 2


async def test_a_user_who_has_to_allow_more_is_asked_once(make_backend: MakeBackend) -> None:
    """The replica that gets the answer waits for the new token, which another one asked for."""
    provider = LoginCounter(users=HASHES, storage=":memory:", scopes=SCOPES)
    app = notes_server(provider).asgi("/mcp")

    async def demanding(scope: Any, receive: Any, send: Any) -> None:
        """Refuse a tool until the user has logged in again."""
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-name") != b"confirm" or provider.logins > 1:
            await app(scope, receive, send)
            return
        challenge = b'Bearer error="insufficient_scope", scope="notes:read notes:write"'
        start = {"type": "http.response.start", "status": 403}
        await send({**start, "headers": [(b"www-authenticate", challenge)]})
        await send({"type": "http.response.body", "body": b""})

    async with on_a_port(demanding) as place:
        entries = {"notes": {"url": f"http://{place}/mcp", "auth": "oauth"}}
        async with replicas(entries, make_backend) as (first, _, balancer):
            await Robot("ann").connect(await first.link("ann"))
            pages: list[str] = []
            visits = TaskSet()

            async def visit(url: str, before: int) -> None:
                while sum(balancer.seen) == before:  # until the call was sent again
                    await asyncio.sleep(0.01)
                await Robot("ann").connect(url)

            async def answer(request: Any) -> Any:
                if request.mode != "url":
                    return {"value": True}
                pages.append(request.url)
                visits.start(visit(request.url, sum(balancer.seen)))
                return True

            async with first.client("ann", on_elicit=answer, revision="2026-07-28") as client:
                for _ in range(4):  # both replicas have started the server for this user
                    await client.call_tool("notes__whoami")
                assert (await client.call_tool("notes__confirm")).data == "answered True"
            assert len(pages) == 1


async def expire_tokens(served: Served, user: str) -> None:
    store, key = served.notes.store(user), login_key(served.notes.url)
    record = read_record(await store.load(key))
    assert record.tokens is not None
    record.tokens = replace(record.tokens, issued_at=0.0, expires_at=1.0)
    await store.save(key, record.encode())


async def test_a_token_is_renewed_once_for_all_replicas(make_backend: MakeBackend) -> None:
    server = notes_server()
    assert isinstance(server.guard, CountingProvider)
    async with on_a_port(server.asgi("/mcp")) as place:
        entries = {"notes": {"url": f"http://{place}/mcp", "auth": "oauth"}}
        async with replicas(entries, make_backend) as (first, second, _):
            await Robot("ann").connect(await first.link("ann"))
            renewals = server.guard.renewals
            await expire_tokens(first, "ann")
            clients = [
                one.gateway.make_login_client(one.notes, one.notes.credentials("ann"))
                for one in (first, second, first, second)
            ]
            try:
                answers = await asyncio.gather(*(one.call_tool("whoami") for one in clients))
            finally:
                await asyncio.gather(*(one.close() for one in clients))
            assert [result.data for result in answers] == ["ann at notes"] * 4
            assert server.guard.renewals == renewals + 1
            assert await second.connected() == ["ann"]


@pytest.mark.parametrize("attack", ["move", "change"])
async def test_tokens_that_were_moved_or_changed_count_as_missing(
    make_backend: MakeBackend, shared_redis: RedisServer, attack: str
) -> None:
    prefix = f"{make_backend().prefix}connect:token:"
    async with notes_replicas(make_backend) as (first, second, _):
        await Robot("ann").connect(await first.link("ann"))
        rows = shared_redis.keys(f"{prefix}*")
        await first.notes.store("bob").save(login_key(first.notes.url), b"{}")
        (of_bob,) = {*shared_redis.keys(f"{prefix}*")} - {*rows}
        for row in rows:
            value = bytearray(shared_redis.run("GET", row))
            assert b"ann" not in value
            if attack == "move":
                shared_redis.run("COPY", row, of_bob, "REPLACE")
            else:
                value[-1] ^= 1
                shared_redis.run("SET", row, bytes(value))
        assert await second.connected() == (["ann"] if attack == "move" else [])


async def test_without_redis_calls_of_users_are_refused(own_redis: RedisServer) -> None:
    def make() -> Backend:
        return Backend(own_redis.url, name="test", keys=KEYS)

    async with notes_replicas(make) as (first, second, _):
        await Robot("ann").connect(await first.link("ann"))
        own_redis.stop()
        for one in (first, second):
            with pytest.raises(Overloaded):
                await one.connected()
        status, page, _ = await Browser().open(f"{first.base}/connect/{'x' * 40}")
        assert status == 400, page
        own_redis.start()  # it has lost everything
        async with asyncio.timeout(30):
            while first.gateway.backend.state != "connected":
                await asyncio.sleep(0.05)
        assert await first.connected() == []
