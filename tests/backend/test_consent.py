"""The contract of consent stores, for SQLite and for rows in Redis; and `dovetail consent` with a
backend."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dovetail.errors import InvalidParams
from dovetail.gateway.consent import shared_store
from dovetail.gateway.consent.consent import Consent
from dovetail.gateway.consent.pins import digest
from dovetail.gateway.consent.shared_store import ConsentRow, SharedConsentStore, grant_rows
from dovetail.gateway.consent.sqlite_store import SqliteConsentStore
from dovetail.gateway.consent.store import ConsentGrant, ConsentStore, SeenItem
from tests.cli.conftest import Done, dovetail
from tests.gateway.serving import KEYS, recorded
from tests.system import needs_redis

from .conftest import KEY, MakeBackend
from .gateways import Replica, gateway_replicas
from .redis_server import RedisServer
from .test_gateway import ASK, Answering, files_server, read_file, until

pytestmark = needs_redis
GRANT = ConsentGrant(kind="call", server="files", digest="d", name="read", pin="p", principal="ann")
OpenStore = Callable[[], Awaitable[ConsentStore]]


@pytest.fixture(params=["sqlite", "redis"])
def open_store(
    request: pytest.FixtureRequest, tmp_path: Path, make_backend: MakeBackend
) -> OpenStore:
    """A function that opens a store as another program would, after all changes were stored."""
    opened: list[SharedConsentStore] = []

    async def open_() -> ConsentStore:
        if request.param == "sqlite":
            return SqliteConsentStore(tmp_path / "consent.db")
        for one in opened:
            await one.finish()
        store = SharedConsentStore(make_backend().rows)
        await store.read_all()
        opened.append(store)
        return store

    return open_


def item(name: str, content: str = "{}") -> SeenItem:
    text = f'{{"name": "{name}", "is": "{content}"}}'
    return SeenItem(server="files", digest="d", item=f"tool:{name}", pin=digest(text), content=text)


async def test_grants_are_found_by_another_program(open_store: OpenStore) -> None:
    store = await open_store()
    other = ConsentGrant(kind="call", server="news", digest="n", name="read", principal="bob")
    store.add_grant(GRANT)
    store.add_grant(other)
    second = await open_store()
    assert [one.name for one in second.find_grants(server="files", principal="ann")] == ["read"]
    assert [one.server for one in second.find_grants()] == ["files", "news"]
    second.remove_grants(second.find_grants(server="files"))
    assert [one.server for one in (await open_store()).find_grants()] == ["news"]


async def test_items_are_found_with_their_contents_and_approvals(open_store: OpenStore) -> None:
    store = await open_store()
    store.record_items([item("read"), item("write")])
    store.approve_items([item("read")])
    store.record_items([item("read", "new"), item("write", "new")])
    found = (await open_store()).find_items(server="files", digest="d")
    assert [(one.content, one.approved is None) for one in found] == [
        (item("read").content, False),
        (item("read", "new").content, True),
        (item("write", "new").content, True),
    ]
    consent = Consent(await open_store())
    assert [one.current.item for one in consent.changes("files")] == ["tool:read", "tool:write"]
    store = await open_store()
    store.remove_items([item("read")])
    assert len((await open_store()).find_items(item="tool:read")) == 1


async def test_only_the_newest_approvals_are_kept(open_store: OpenStore) -> None:
    store = await open_store()
    for number in range(10):
        store.approve_items([item("read", str(number))])
    store = await open_store()
    found = store.find_items()
    assert {one.content for one in found} == {
        item("read", str(number)).content for number in range(2, 10)
    }
    store.approve_items([item("read", "5")], only=True)
    (only,) = (await open_store()).find_items()
    assert only.content == item("read", "5").content


async def test_only_what_is_recorded_first_is_approved_with_it(open_store: OpenStore) -> None:
    (await open_store()).record_items([item("read"), item("write")], approve_first=True)
    second = await open_store()
    second.record_items([item("read"), item("write", "new"), item("more")], approve_first=True)
    found = (await open_store()).find_items(server="files", digest="d")
    assert [(one.item, one.pin, one.approved is not None) for one in found] == [
        ("tool:more", item("more").pin, False),
        ("tool:read", item("read").pin, True),
        ("tool:write", item("write").pin, True),
        ("tool:write", item("write", "new").pin, False),
    ]


# rows


async def test_if_two_programs_record_a_first_list_at_once_one_is_approved(
    make_backend: MakeBackend,
) -> None:
    stores = [SharedConsentStore(make_backend().rows) for _ in range(4)]
    row = ConsentRow("files", "d")
    for store in stores:
        await store.read(row)  # there is nothing yet
    for number, store in enumerate(stores):
        store.record_items([item("read", str(number))], approve_first=True)
    await asyncio.gather(*(store.finish() for store in stores))
    approved = []
    for store in stores:
        await store.read(row)
        approved.append([one.pin for one in store.find_items() if one.approved is not None])
    assert len(approved[0]) == 1
    assert approved == [approved[0]] * 4


async def test_two_programs_change_the_same_row_at_once(make_backend: MakeBackend) -> None:
    stores = [SharedConsentStore(make_backend().rows) for _ in range(4)]
    row = ConsentRow("files", "d")
    for store in stores:
        await store.read(row)
    for number, store in enumerate(stores):
        store.approve_items([item(f"tool{number}")])
    await asyncio.gather(*(store.finish() for store in stores))
    for store in stores:
        await store.read(row)
        found = store.find_items(server="files", digest="d")
        assert [one.item for one in found] == [f"tool:tool{number}" for number in range(4)]


async def test_contents_of_versions_that_were_dropped_are_deleted(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    store = SharedConsentStore(backend.rows)
    await store.read(ConsentRow("files", "d"))
    for number in range(12):
        store.approve_items([item("read", str(number))])
        await store.finish()
    assert len(shared_redis.keys(f"{backend.prefix}consent-texts:*")) == 8
    store.remove_items(store.find_items())
    await store.finish()
    assert shared_redis.keys(f"{backend.prefix}consent-texts:*") == []


async def test_nothing_in_redis_says_who_allowed_what(
    make_backend: MakeBackend, shared_redis: RedisServer
) -> None:
    backend = make_backend()
    store = SharedConsentStore(backend.rows)
    await store.read(ConsentRow("files", "d"), *grant_rows("files", "d", "ann"))
    store.add_grant(GRANT)
    store.approve_items([item("read")])
    await store.finish()
    found = shared_redis.keys(f"{backend.prefix}*")
    assert len(found) == 3
    for key in found:
        for secret in (b"ann", b"files", b"read"):
            assert secret not in key.removeprefix(backend.prefix.encode())
            assert secret not in shared_redis.run("GET", key)


async def test_the_copy_of_a_process_is_bounded(
    make_backend: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_store, "MAX_ROWS", 10)
    store = SharedConsentStore(make_backend().rows)
    for number in range(20):
        rows = grant_rows("files", "d", f"user {number}")
        await store.read(*rows)
        store.add_grant(
            ConsentGrant(kind="call", server="files", digest="d", principal=f"user {number}")
        )
        await store.finish()
    assert len(store.find_grants()) < 10
    await store.read(*grant_rows("files", "d", "user 0"))
    assert len(store.find_grants(server="files", digest="d", principal="user 0")) == 1


# the command


@pytest.fixture
def run(
    make_backend: MakeBackend, shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Done]]:
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    name = make_backend().prefix.removeprefix("{dovetail:").removesuffix("}:").replace("%20", " ")
    options = ("--backend", shared_redis.url, "--name", name)

    async def run_(*words: str) -> Done:
        done: Done = await asyncio.to_thread(dovetail, "consent", *words, *options)
        assert done.code == 0, done.err
        return done

    return run_


async def test_the_command_shows_and_revokes_what_replicas_share(
    make_backend: MakeBackend, run: Callable[..., Awaitable[Done]]
) -> None:
    options = {"policy": ASK, "auth": KEYS}
    async with recorded(files_server()) as (up, _):
        source = {"mcpServers": {"files": {"url": up}}}
        async with gateway_replicas(2, source, make_backend, **options) as (first, second):
            await read_file(first, Answering("always"))
            await read_file(second, None)
            assert "call read  always for ann" in (await run("list")).out
            shown = (await run("show", "files", "read", "--json")).json
            assert shown["items"][0]["content"]["description"] == "Read a file."
            assert (await run("revoke", "files", "read")).out.startswith("Revoked call read")
            for replica in (first, second):
                with pytest.raises(InvalidParams, match="cannot be asked"):
                    await read_file(replica, None)
            assert "call read" not in (await run("list")).out


async def test_the_command_approves_what_replicas_withhold(
    make_backend: MakeBackend, run: Callable[..., Awaitable[Done]]
) -> None:
    async with recorded(files_server()) as (up, _):
        entry = {"url": up, "dovetail": {"pin": "ask"}}
        source = {"mcpServers": {"files": entry}}
        async with gateway_replicas(2, source, make_backend, auth=KEYS) as replicas:
            await asyncio.gather(*(read_file(one, None) for one in replicas))
            assert (await run("revoke", "files", "read")).out.startswith("Revoked the approval")
            for replica in replicas:
                with pytest.raises(InvalidParams, match="is withheld"):
                    await read_file(replica, None)
                await until(lambda: is_recorded(replica))  # noqa: B023
            assert "Approved tool:read" in (await run("approve", "files", "read", "--yes")).out
            for replica in replicas:
                assert await read_file(replica, None) == "contents of x"


def is_recorded(replica: Replica) -> bool:
    """Whether a replica has stored what it lists, so that it can be approved again."""
    return bool(replica.gateway.access.consent.store.find_items(server="files", item="tool:read"))


def test_the_command_says_that_redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    done = dovetail("consent", "list", "--backend", "redis://:secret@127.0.0.1:1/0")
    assert done.code != 0
    assert "redis://127.0.0.1:1/0 cannot be reached" in done.err
    assert "secret" not in done.err
    done = dovetail("consent", "list", "--backend", "redis://127.0.0.1:1/0", "--store", "x")
    assert "Use either --store or --backend" in done.err


def test_the_command_uses_the_backend_of_the_environment(
    shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)
    monkeypatch.setenv("DOVETAIL_BACKEND", shared_redis.url)
    done = dovetail("consent", "list", "--name", "nobody uses this name")
    assert (done.code, done.out) == (0, "Nothing has been allowed yet.\n")
