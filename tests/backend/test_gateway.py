"""Replicas of a gateway that share consent, pins, lists and held calls."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from msgspec.structs import replace

from dovetail import Client, Server
from dovetail.backend import Backend
from dovetail.errors import ConnectFailed, InvalidParams, Overloaded
from dovetail.gateway.access import gateway_access
from dovetail.gateway.consent.shared_store import ConsentRow, SharedConsentStore
from dovetail.gateway.consent.store import SeenItem
from tests.behaviour.web import on_a_port
from tests.gateway.serving import (
    ANN,
    BOB,
    KEYS,
    answer_to,
    ask_order,
    asking_server,
    headers_of,
    post,
    recorded,
)
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import KEY, PATIENT, MakeBackend
from .gateways import Replica, gateway_replica, gateway_replicas
from .redis_server import RedisServer

pytestmark = needs_redis
ROOT = Path(__file__).parents[2]
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ASK = {"ask": "elicit", "rule": [{"effect": "ask", "name": "read"}, {"effect": "allow"}]}


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def files_server(description: str = "Read a file.") -> Server:
    server = Server("files")

    @server.tool(description=description)
    def read(path: str = "x") -> str:
        return f"contents of {path}"

    return server


class Answering:
    """A user who gives the same answer to every question."""

    def __init__(self, answer: str) -> None:
        self.answer, self.questions = answer, 0

    async def __call__(self, request: Any) -> Any:
        self.questions += 1
        return {"answer": self.answer}


async def read_file(replica: Replica, user: Answering | None, key: str = ANN) -> str:
    async with Client(replica.url, headers=headers_of(key), on_elicit=user) as client:
        result = await client.call_tool("files__read")
        return str(result.content[0].text)


READ: dict[str, Any] = {"name": "files__read", "arguments": {}}


class HasUrl(Protocol):
    @property
    def url(self) -> str: ...


async def call(replica: HasUrl, params: Any, key: str | None = None) -> Any:
    """Send one request of the stateless era, which is not repeated, and return the reply."""
    headers = None if key is None else headers_of(key)
    return (await asyncio.to_thread(post, replica.url, "tools/call", params, headers))[1]


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.02)


# consent


@pytest.mark.parametrize("answer", ["always", "session"])
async def test_an_answer_at_one_replica_holds_at_the_other(
    make_backend: MakeBackend, answer: str
) -> None:
    user = Answering(answer)
    options = {"policy": ASK, "auth": KEYS}
    async with recorded(files_server()) as (up, _):
        source = {"mcpServers": {"files": {"url": up}}}
        async with gateway_replicas(2, source, make_backend, **options) as (first, second):
            assert await read_file(first, user) == "contents of x"
            assert await read_file(second, None) == "contents of x"
            assert user.questions == 1
            with pytest.raises(InvalidParams, match="cannot be asked"):
                await read_file(second, None, BOB)


async def test_what_is_revoked_is_asked_about_again_at_every_replica(
    make_backend: MakeBackend,
) -> None:
    user = Answering("always")
    options = {"policy": ASK, "auth": KEYS}
    async with recorded(files_server()) as (up, _):
        source = {"mcpServers": {"files": {"url": up}}}
        async with gateway_replicas(2, source, make_backend, **options) as (first, second):
            await read_file(first, user)
            await read_file(second, None)
            store = second.gateway.access.consent.store
            assert isinstance(store, SharedConsentStore)
            store.remove_grants(store.find_grants(server="files"))
            await store.finish()
            for replica in (first, second):
                with pytest.raises(InvalidParams, match="cannot be asked"):
                    await read_file(replica, None)


async def test_many_answers_at_once_are_all_stored(make_backend: MakeBackend) -> None:
    server = Server("files")
    for number in range(8):
        server.add_tool(lambda: "done", name=f"read{number}")
    policy = {"ask": "elicit", "rule": [{"effect": "ask", "name": "read*"}]}

    async def read(replica: Replica, number: int, user: Answering | None) -> None:
        async with Client(replica.url, headers=headers_of(ANN), on_elicit=user) as client:
            await client.call_tool(f"files__read{number}")

    async with recorded(server) as (up, _):
        source = {"mcpServers": {"files": {"url": up}}}
        options = {"policy": policy, "auth": KEYS}
        async with gateway_replicas(2, source, make_backend, **options) as replicas:
            user = Answering("always")
            await asyncio.gather(*(read(replicas[each % 2], each, user) for each in range(8)))
            await asyncio.gather(*(read(replicas[0], each, None) for each in range(8)))


def consent_store(replica: Replica) -> SharedConsentStore:
    store = replica.gateway.access.consent.store
    assert isinstance(store, SharedConsentStore)
    return store


def compare_before_announcing(replica: Replica) -> None:
    """Let a replica compare lists with a row that it has stored but not announced yet, as another
    call can."""
    store = consent_store(replica)
    announce = store.announce

    def compare_and_announce(row: ConsentRow) -> None:
        for server in replica.gateway.upstreams.all().values():
            replica.gateway.access.pins.refresh(server)
        announce(row)

    store.announce = compare_and_announce


def changing_server() -> Server:
    """A server that lists something else to each of the first two clients, at the same time."""
    reads, both = 0, asyncio.Event()

    async def change(call: Any, call_next: Any) -> Any:
        nonlocal reads
        result = await call_next(call)
        if call.name == "tools/list":
            reads += 1
            text = f"Version {reads}"
            if reads > 1:
                both.set()
            await both.wait()
            result = replace(result, tools=[replace(result.tools[0], description=text)])
        return result

    server = Server("files", middleware=[change])
    server.add_tool(lambda: "contents", name="read")
    return server


@pytest.mark.parametrize("compared_first", [False, True])
async def test_of_two_replicas_that_start_at_once_only_one_approves_its_first_list(
    make_backend: MakeBackend, caplog: pytest.LogCaptureFixture, compared_first: bool
) -> None:
    async with recorded(changing_server()) as (up, _):
        entry = {"url": up, "dovetail": {"pin": "ask", "start": "lazy"}}
        source = {"mcpServers": {"files": entry}}
        async with gateway_replicas(2, source, make_backend, auth=KEYS) as replicas:
            if compared_first:
                for one in replicas:
                    compare_before_announcing(one)
            await asyncio.gather(*map(listed, replicas))
            for one in replicas:
                await consent_store(one).finish()
            lists = [await listed(one) for one in replicas]
            assert sorted(lists) == [[], ["files__read"]]
            refused = replicas[lists.index([])]
            reply = await call(refused, READ, ANN)
            assert "is withheld because it is new or has changed" in reply["error"]["message"]
    assert caplog.text.count("'tool:read' is new or has changed and is withheld") == 1


async def test_of_two_replicas_that_start_at_once_only_one_warns_of_a_difference(
    make_backend: MakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async with recorded(changing_server()) as (up, _):
        source = {"mcpServers": {"files": {"url": up, "dovetail": {"start": "lazy"}}}}
        async with gateway_replicas(2, source, make_backend, auth=KEYS) as replicas:
            assert await asyncio.gather(*map(listed, replicas)) == [["files__read"]] * 2
            await until(lambda: "'tool:read' is new or has changed" in caplog.text)
    assert caplog.text.count("'tool:read' is new or has changed") == 1


async def test_without_redis_only_what_a_replica_knows_is_allowed(own_redis: RedisServer) -> None:
    def backend() -> Backend:
        return Backend(own_redis.url, name="test", keys=[KEY])

    user = Answering("always")
    options = {"policy": ASK, "auth": KEYS}
    async with recorded(files_server()) as (up, _):
        source = {"mcpServers": {"files": {"url": up}}}
        async with gateway_replicas(2, source, backend, **options) as (first, second):
            await read_file(first, user)
            own_redis.stop()
            assert await read_file(first, None) == "contents of x"
            assert (await call(second, READ, ANN))["error"]["code"] == Overloaded.code
            reply = await call(first, READ, BOB)  # what is not known is not asked about either
            assert reply["error"]["code"] == Overloaded.code


async def test_an_answer_that_cannot_be_stored_is_not_remembered(own_redis: RedisServer) -> None:
    def backend() -> Backend:
        return Backend(own_redis.url, name="test", keys=[KEY])

    async with recorded(files_server()) as (up, _):
        source = {"mcpServers": {"files": {"url": up}}}
        async with gateway_replicas(1, source, backend, policy=ASK, auth=KEYS) as (only,):
            asked = (await call(only, READ, ANN))["result"]
            (question,) = asked["inputRequests"]
            own_redis.stop()
            given = {question: {"action": "accept", "content": {"answer": "always"}}}
            again = {**READ, "inputResponses": given, "requestState": asked["requestState"]}
            assert (await call(only, again, ANN))["error"]["code"] == Overloaded.code
            store = only.gateway.access.consent.store
            assert store.find_grants(server="files") == []


@pytest.mark.parametrize("attack", ["move", "change"])
async def test_a_grant_that_was_moved_or_changed_counts_as_missing(
    make_backend: MakeBackend, shared_redis: RedisServer, attack: str
) -> None:
    prefix = f"{make_backend().prefix}consent-grants:"
    options = {"policy": ASK, "auth": KEYS}
    async with recorded(files_server()) as (up, _):
        source = {"mcpServers": {"files": {"url": up}}}
        async with gateway_replicas(2, source, make_backend, **options) as (first, second):
            await read_file(first, Answering("session"), BOB)
            (row_of_bob,) = shared_redis.keys(f"{prefix}*")
            await read_file(first, Answering("always"), ANN)
            (row_of_ann,) = {*shared_redis.keys(f"{prefix}*")} - {row_of_bob}
            assert b"ann" not in shared_redis.run("GET", row_of_ann)
            value = bytearray(shared_redis.run("GET", row_of_ann))
            if attack == "move":
                shared_redis.run("COPY", row_of_ann, row_of_bob, "REPLACE")
            else:
                value[-1] ^= 1
                shared_redis.run("SET", row_of_bob, bytes(value))
            with pytest.raises(InvalidParams, match="cannot be asked"):
                await read_file(second, None, BOB)
            await read_file(second, None, ANN)
            await read_file(second, Answering("session"), BOB)  # replaces it
            await read_file(first, None, BOB)


# pins


async def test_an_approval_holds_at_every_replica(
    make_backend: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first replica pins what it lists first; a replica that is started later compares."""
    monkeypatch.setattr(gateway_access, "SHARED_WATCH_SECONDS", 600)
    async with AsyncExitStack() as stack:
        app = files_server().asgi("/mcp", hosts="*")
        changed = files_server("Send a file to a stranger.").asgi("/mcp", hosts="*")
        current = [app]

        async def upstream(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            else:
                await current[0](scope, receive, send)

        place = await stack.enter_async_context(on_a_port(upstream))
        entry = {"url": f"http://{place}/mcp", "dovetail": {"pin": "ask"}}
        source = {"mcpServers": {"files": entry}}
        first = await stack.enter_async_context(gateway_replica(source, make_backend(), auth=KEYS))
        assert await read_file(first, None) == "contents of x"
        store = first.gateway.access.consent.store
        assert isinstance(store, SharedConsentStore)
        await store.finish()
        current[0] = changed
        second = await stack.enter_async_context(gateway_replica(source, make_backend(), auth=KEYS))
        with pytest.raises(InvalidParams, match="is withheld because it is new or has changed"):
            await read_file(second, None)
        consent = second.gateway.access.consent
        assert await listed(second) == []
        await first.gateway.upstreams.servers["files"].read_again()
        assert await listed(first) == []

        digest = second.gateway.upstreams.servers["files"].entry.digest
        await consent.read_items("files", digest)
        found = [one.current for one in consent.changes("files", "read")]
        consent.store.approve_items(found)
        pins, known = first.gateway.access.pins, first.gateway.upstreams.servers["files"]
        await until(lambda: not pins.is_withheld(known, "tool:read"))  # it was announced
        for replica in (first, second):
            assert await read_file(replica, None) == "contents of x"
            assert await listed(replica) == ["files__read"]


async def test_an_approval_that_was_moved_to_another_server_counts_as_missing(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    prefix = f"{make_backend().prefix}consent-items:"
    first, second = SharedConsentStore(make_backend().rows), SharedConsentStore(make_backend().rows)
    rows = ConsentRow("good", "d"), ConsentRow("evil", "d")
    await first.read(*rows)
    first.approve_items([SeenItem(server="good", digest="d", item="tool:x", pin="p", content="{}")])
    await first.finish()
    (row,) = shared_redis.keys(f"{prefix}*")
    shared_redis.run("COPY", row, f"{prefix}{rows[1].key}")
    await second.read(*rows)
    assert len(second.find_items(server="good", digest="d")) == 1
    assert second.find_items(server="evil", digest="d") == []
    await second.read_all()
    assert [one.server for one in second.find_items()] == ["good"]


async def listed(replica: Replica) -> list[str]:
    async with Client(replica.url, headers=headers_of(ANN)) as client:
        return [tool.name for tool in await client.list_tools()]


async def test_a_replica_that_starts_without_redis_withholds_what_may_have_changed(
    own_redis: RedisServer,
) -> None:
    def backend() -> Backend:
        return Backend(own_redis.url, name="test", keys=[KEY])

    async with recorded(files_server()) as (up, _):
        entry = {"url": up, "dovetail": {"pin": "ask"}}
        source = {"mcpServers": {"files": entry}}
        own_redis.stop()
        async with gateway_replicas(1, source, backend, auth=KEYS) as (only,):
            assert "error" in await call(only, READ, ANN)
            assert await listed(only) == []
            own_redis.start()
            await until(lambda: only.gateway.backend.state == "connected")
            assert await read_file(only, None) == "contents of x"
            assert only.gateway.health()["backend"] == "connected"


# calls that are held


async def test_a_held_call_is_answered_at_another_replica(make_backend: MakeBackend) -> None:
    events: list[str] = []
    async with recorded(asking_server(HANDSHAKE, events)) as (up, _):
        source = {"mcpServers": {"up": {"url": up}}}
        async with gateway_replicas(3, source, make_backend, auth=KEYS) as replicas:
            params = answer_to(*await ask_order(replicas[0].url, ANN))
            reply = await call(replicas[1], params, BOB)
            assert "may have taken effect" in reply["error"]["message"]
            for replica in (replicas[2], replicas[1], replicas[0]):  # the result is kept
                reply = await call(replica, params, ANN)
                assert reply["result"]["content"][0]["text"] == "3 tea"
    assert events == ["called"]


async def test_a_held_call_whose_replica_has_left_is_not_sent_again(
    make_backend: MakeBackend,
) -> None:
    events: list[str] = []
    async with recorded(asking_server(HANDSHAKE, events)) as (up, _):
        source = {"mcpServers": {"up": {"url": up}}}
        async with gateway_replicas(2, source, make_backend) as (first, _):
            async with gateway_replica(source, make_backend()) as owner:
                params = answer_to(*await ask_order(owner.url))
            reply = await call(first, params)
            assert "may have taken effect" in reply["error"]["message"]
    assert events == ["called", "cancelled"]


async def test_without_redis_a_replica_has_the_calls_that_it_holds(own_redis: RedisServer) -> None:
    def backend() -> Backend:
        return Backend(own_redis.url, name="test", keys=[KEY])

    events: list[str] = []
    async with recorded(asking_server(HANDSHAKE, events)) as (up, _):
        source = {"mcpServers": {"up": {"url": up}}}
        async with gateway_replicas(2, source, backend) as (first, second):
            params = answer_to(*await ask_order(first.url))
            own_redis.stop()
            reply = await call(second, params)
            assert "may have taken effect" in reply["error"]["message"]
            reply = await call(first, params)
            assert reply["result"]["content"][0]["text"] == "3 tea"
    assert events == ["called"]


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_a_question_of_a_process_is_answered_at_another_replica(
    make_backend: MakeBackend, revision: str, search: bool
) -> None:
    """Only the process that asked can continue, and each replica has its own."""
    arguments = ["-m", "tests.backend.task_server", revision]
    entry = {"command": sys.executable, "args": arguments, "cwd": str(ROOT)}
    source = {"mcpServers": {"up": entry}, "dovetail": {"search": search}}
    params: dict[str, Any] = {"name": "up__order_two", "arguments": {}}
    if search:
        params = {"name": "call_tool", "arguments": {"name": "up__order_two", "arguments": {}}}
    async with gateway_replicas(3, source, make_backend, auth=KEYS) as replicas:
        asked = (await call(replicas[0], params, ANN))["result"]
        for number, replica in enumerate(replicas[1:], 1):
            (key,) = asked["inputRequests"]
            given = {key: {"action": "accept", "content": {"value": number}}}
            again = {**params, "inputResponses": given, "requestState": asked["requestState"]}
            stolen = await call(replica, again, BOB)
            assert "not valid" in stolen["error"]["message"]
            reply = await call(replica, again, ANN)
            assert "result" in reply, reply
            asked = reply["result"]
        assert asked["content"][0]["text"] == "1 tea, 2 milk"


# lists of servers


async def test_a_new_replica_knows_what_the_others_have_listed(
    make_backend: MakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recorded(files_server()) as (up, _):
        entry = {"url": up, "dovetail": {"start": "lazy"}}
        source = {"mcpServers": {"files": entry}}
        async with gateway_replica(source, make_backend(), auth=KEYS) as first:
            await read_file(first, None)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        async with gateway_replica(source, make_backend(), auth=KEYS) as second:
            assert second.gateway.upstreams.servers["files"].state == "known"
            assert await listed(second) == ["files__read"]
            assert second.gateway.upstreams.servers["files"].state == "known"
            assert await read_file(second, None) == "contents of x"


async def test_without_redis_lists_are_known_from_the_file(own_redis: RedisServer) -> None:
    def backend() -> Backend:
        return Backend(own_redis.url, name="test", keys=[KEY], limits=PATIENT)

    async with recorded(files_server()) as (up, _):
        entry = {"url": up, "dovetail": {"start": "lazy"}}
        source = {"mcpServers": {"files": entry}}
        async with gateway_replica(source, backend(), auth=KEYS) as first:
            await read_file(first, None)
        own_redis.stop()
        async with gateway_replica(source, backend(), auth=KEYS) as second:
            assert second.gateway.upstreams.servers["files"].state == "known"
            assert await listed(second) == ["files__read"]


# processes


@contextmanager
def gateway_process(source: Path, redis: RedisServer, folder: Path) -> Iterator["GatewayProcess"]:
    port = free_port()
    command = [sys.executable, "-m", "dovetail", "gateway", str(source), "--http"]
    command += ["--port", str(port), "--backend", redis.url]
    environment = {**os.environ, "DOVETAIL_KEYS": KEY, "XDG_STATE_HOME": str(folder)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield GatewayProcess(f"http://127.0.0.1:{port}/mcp", process)
    finally:
        process.kill()
        process.wait()


class GatewayProcess(NamedTuple):
    url: str
    process: "subprocess.Popen[bytes]"

    async def start(self) -> None:
        """Wait until it serves requests."""
        async with asyncio.timeout(60):
            while True:
                try:
                    async with Client(self.url):
                        return
                except ConnectFailed:
                    await asyncio.sleep(0.1)


async def test_a_held_call_of_a_process_that_was_killed_has_expired(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    arguments = ["-m", "tests.backend.task_server", HANDSHAKE]
    entry = {"command": sys.executable, "args": arguments, "cwd": str(ROOT)}
    source = tmp_path / "mcp.json"
    source.write_text(json.dumps({"mcpServers": {"up": entry}}))
    with (
        gateway_process(source, own_redis, tmp_path / "one") as first,
        gateway_process(source, own_redis, tmp_path / "two") as second,
    ):
        await asyncio.gather(first.start(), second.start())
        params = answer_to(*await ask_order(first.url))
        reply = await call(second, params)
        assert reply["result"]["content"][0]["text"] == "3 tea"
        params = answer_to(*await ask_order(first.url))
        first.process.kill()
        first.process.wait()
        reply = await call(second, params)
        assert "may have taken effect" in reply["error"]["message"]


async def test_a_plain_call_sends_no_command_to_redis(own_redis: RedisServer) -> None:
    backend = Backend(own_redis.url, name="test", keys=[KEY], limits=PATIENT)
    async with recorded(files_server()) as (up, _):
        source = {"mcpServers": {"files": {"url": up}}}
        async with gateway_replica(source, backend) as replica:
            await call(replica, READ)
            await replica.gateway.known.finish()
            store = replica.gateway.access.consent.store
            assert isinstance(store, SharedConsentStore)
            await store.finish()
            before = own_redis.command_counts()
            for _ in range(20):
                assert "result" in await call(replica, READ)
            after = own_redis.command_counts()
    kinds = {name for name in after if after[name] - before.get(name, 0) > 0}
    assert kinds.isdisjoint({"get", "set", "getdel", "unlink", "scan"}), kinds
