"""Tasks in Redis: the queue, leases that end, what is left behind, and what somebody can do who has
access to Redis. What all stores promise is tested in `test_task_contract.py`."""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from dovetail.backend import Backend
from dovetail.backend.redis.task_queue import task_key
from dovetail.backend.redis.task_scripts import RELEASE_TASK
from dovetail.backend.redis.task_store import RedisTaskStore
from dovetail.errors import BackendAway
from dovetail.extensions.tasks.store import TaskMessage, TaskRecord
from dovetail.limits import Limits
from tests.system import needs_redis

from .conftest import KEY, PATIENT, MakeBackend
from .redis_server import RedisServer
from .test_task_contract import claimed, leased, record

pytestmark = needs_redis


class Processes:
    """Processes of one server, each with a store, and the keys that they share."""

    def __init__(self, make_backend: MakeBackend, redis: RedisServer) -> None:
        self.make_backend, self.redis = make_backend, redis
        self.base = f"{make_backend().prefix}tasks:"

    def start(self, **options: Any) -> RedisTaskStore:
        store = self.make_backend(**options).tasks()
        assert isinstance(store, RedisTaskStore)
        return store

    def names(self) -> list[str]:
        found = self.redis.keys(f"{self.base}*")
        return [key.decode().removeprefix(self.base) for key in found]

    def run(self, command: str, key: str, *arguments: Any) -> Any:
        """Send a command, and return the reply as it is in all versions of redis-py."""
        script = "return redis.call(unpack(ARGV))"
        return self.redis.run("EVAL", script, 0, command, self.base + key, *arguments)

    def consumers(self) -> set[str]:
        command = ("XINFO", "CONSUMERS", f"{self.base}queue", "dovetail")
        found = self.redis.run("EVAL", "return redis.call(unpack(ARGV))", 0, *command)
        return {one[1].decode() for one in found}

    def row(self, id: str) -> str:
        return f"task:{task_key(id)}"

    def end_leases(self) -> None:
        """Let all leases end, as if their processes had been silent for a while."""
        for stream in ("queue", "running"):
            if stream in self.names():
                for id, consumer, *_ in self.run("XPENDING", stream, "dovetail", "-", "+", 999):
                    self.run(
                        *("XCLAIM", stream, "dovetail", consumer, 0, id),
                        *("IDLE", 60_000, "JUSTID"),
                    )

    def let_expire(self) -> None:
        """Let all tasks expire, as if an hour had passed."""
        for key in self.names():
            if key.startswith(("task:", "messages:")):
                self.run("DEL", key)
        for task in self.run("ZRANGE", "expiry", 0, -1):
            self.run("ZADD", "expiry", 1, task)


@pytest.fixture
def processes(make_backend: MakeBackend, shared_redis: RedisServer) -> Processes:
    return Processes(make_backend, shared_redis)


# the queue


async def test_a_process_that_waits_receives_the_next_task(processes: Processes) -> None:
    adding, pulling = processes.start(), processes.start()
    waiting = asyncio.create_task(pulling.pull(4))
    await asyncio.sleep(0.05)
    assert await adding.add(record("one", params=b"secret"), claim=False) is None
    [(found, lease)] = await waiting
    assert found == await adding.get("one")
    assert (lease.id, lease.token) == ("one", 1)
    assert 0 < lease.until - time.monotonic() <= adding.lease_seconds
    found.status, found.result = "completed", b"{}"
    assert await pulling.put(found, lease)
    assert await adding.get("one") == found


async def test_tasks_are_shared_among_the_processes_that_have_room(processes: Processes) -> None:
    workers = [processes.start() for _ in range(3)]
    ids = {f"{number}" for number in range(30)}
    for id in sorted(ids):
        await workers[0].add(record(id), claim=False)
    pulled = await asyncio.gather(*(worker.pull(10) for worker in workers))
    assert [len(claims) for claims in pulled] == [10, 10, 10]
    assert {one.id for claims in pulled for one, _ in claims} == ids


async def test_every_task_runs_once_and_nothing_is_left(processes: Processes) -> None:
    count, adding = 400, processes.start()
    workers = [processes.start() for _ in range(4)]
    ran: list[str] = []

    async def work(store: RedisTaskStore) -> None:
        while len(ran) < count:
            for found, lease in await store.pull(16):
                ran.append(found.id)
                found.status, found.result = "completed", b"{}"
                assert await store.put(found, lease)

    async def add() -> None:
        for number in range(count):
            await adding.add(record(f"{number}", owner="ada"), claim=False)

    working = [asyncio.create_task(work(store)) for store in workers]
    async with asyncio.timeout(120):
        await add()
        while len(ran) < count:
            await asyncio.sleep(0.01)
    for task in working:
        task.cancel()
    await asyncio.wait(working)
    assert len(ran) == len({*ran}) == count
    for id in ran:
        await adding.remove(id)
    for store in workers:
        await store.close()
    assert processes.names() == []


async def test_tasks_wait_in_order(processes: Processes) -> None:
    store = processes.start()
    for number in range(5):
        await store.add(record(f"{number}"), claim=False)
    found = [one.id for room in (2, 9) for one, _ in await store.pull(room)]
    assert found == ["0", "1", "2", "3", "4"]


async def test_a_task_that_ended_while_it_waited_does_not_run(processes: Processes) -> None:
    store = processes.start()
    for id in ("cancelled", "removed", "claimed", "left"):
        await store.add(record(id), claim=False)
    await store.end(record("cancelled", status="cancelled"))
    await store.remove("removed")
    claimed(await store.claim("claimed"))
    assert [one.id for one, _ in await store.pull(9)] == ["left"]


async def test_a_task_that_arrives_after_pull_was_cancelled_waits_for_another_process(
    processes: Processes,
) -> None:
    leaving, other = processes.start(), processes.start()
    other.bind(Limits(task_lease=3600))  # so that it does not take it over later
    waiting = asyncio.create_task(leaving.pull(1))
    while "queue" not in processes.names():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await other.add(record("one"), claim=False)
    async with asyncio.timeout(30):
        while not (found := await other.pull(1)):
            pass
    assert [one.id for one, _ in found] == ["one"]


async def test_a_task_that_is_being_taken_by_a_process_that_stops_waits_for_another(
    own_redis: RedisServer,
) -> None:
    if not str(own_redis.run("INFO", "server")["redis_version"]).startswith("7.0."):
        pytest.skip("CLIENT PAUSE of a newer server, or Valkey, also holds XREADGROUP back")
    leaving, other = backend_of(own_redis).tasks(), backend_of(own_redis).tasks()
    await other.add(record("one"))
    pulling = asyncio.create_task(leaving.pull(1))
    while own_redis.run("INFO", "clients")["blocked_clients"] == 0:
        await asyncio.sleep(0.01)
    base = f"{backend_of(own_redis).prefix}tasks:"
    _, _, *arguments = RELEASE_TASK.call([base], task_key("one"), 1, 1)
    with redis.Redis(port=own_redis.port) as admin, admin.pipeline() as commands:
        commands.execute_command("EVAL", RELEASE_TASK.source, *arguments)
        commands.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        commands.execute()  # the process reads the task, and cannot take it yet
        while not any("b" in one["flags"] for one in admin.client_list() if "eval" in one["cmd"]):
            assert not pulling.done()
            await asyncio.sleep(0.01)
        pulling.cancel()
        await asyncio.sleep(0)
        admin.execute_command("CLIENT", "UNPAUSE")
    with pytest.raises(asyncio.CancelledError):
        await pulling
    other.bind(Limits(task_lease=3600))  # so that it does not take it over later
    [(one, _)] = await other.pull(1)
    assert one.id == "one"


async def test_tasks_of_a_process_that_stops_while_it_gives_another_back_wait_again(
    processes: Processes,
) -> None:
    leaving, other = processes.start(), processes.start()
    for id in ("one", "foreign", "two"):
        await other.add(record(id), claim=False)

    def can_run(one: TaskRecord) -> bool:
        if one.id == "foreign":  # it is given back, and at that moment the process stops
            asyncio.get_running_loop().call_soon(pulling.cancel)
        return one.id != "foreign"

    pulling = asyncio.create_task(leaving.pull(3, can_run))
    with pytest.raises(asyncio.CancelledError):
        await pulling
    other.bind(Limits(task_lease=3600))  # so that it takes over nothing later
    await other.claim_orphans(include_own=False)
    found = await other.pull(3)
    assert {"one", "two"} <= {one.id for one, _ in found}


async def test_a_task_that_was_delivered_to_a_process_that_died_waits_again(
    processes: Processes,
) -> None:
    dead, other = processes.start(), processes.start()
    await dead.add(record("one"), claim=False)
    assert len(await dead._queue._read(1)) == 2  # it dies before it takes the task
    processes.end_leases()
    assert await other.claim_orphans(include_own=False) == [], "it was not running"
    assert [one.id for one, _ in await other.pull(1)] == ["one"]


async def test_pull_without_room_takes_nothing(processes: Processes) -> None:
    store = processes.start()
    await store.add(record("one"), claim=False)
    assert await store.pull(0) == []
    assert [one.id for one, _ in await store.pull(1)] == ["one"]


async def test_a_released_task_is_queued_by_a_message(processes: Processes) -> None:
    runner, other = processes.start(), processes.start()
    lease = leased(await runner.add(record("one", status="input_required")))
    await runner.release(lease)
    processes.end_leases()
    assert await other.claim_orphans(include_own=False) == []
    await other.send_message(TaskMessage("one", {"key": b"1"}))
    [(found, newer)] = await other.pull(1)
    assert found.id == "one" and newer.token > lease.token
    assert [each.answers for _, each in await other.receive_messages(["one"])] == [{"key": b"1"}]


# leases


async def test_a_task_whose_lease_has_ended_is_taken_over(processes: Processes) -> None:
    stopped, heir = processes.start(), processes.start()
    added = leased(await stopped.add(record("added")))
    await stopped.add(record("pulled"), claim=False)
    [(_, pulled)] = await stopped.pull(1)
    assert await heir.claim_orphans(include_own=True) == []
    processes.end_leases()
    claims = {one.id: lease for one, lease in await heir.claim_orphans(include_own=False)}
    assert claims.keys() == {"added", "pulled"}
    # the process continues, and may not do anything
    assert await stopped.renew([added, pulled]) == []
    for lease in (added, pulled):
        ended = record(lease.id, status="completed", result=b"stale")
        assert not await stopped.put(ended, lease)
        await stopped.give_back(lease)
        await stopped.release(lease)
    assert len(await heir.renew(list(claims.values()))) == 2
    for id, lease in claims.items():
        assert await heir.put(record(id, status="completed", result=b"fresh"), lease)


async def test_a_lease_that_is_renewed_does_not_end(processes: Processes) -> None:
    runner, other = processes.start(), processes.start()
    lease = leased(await runner.add(record("one")))
    processes.end_leases()
    [renewed] = await runner.renew([lease])
    assert renewed.token == lease.token and renewed.until > lease.until
    assert await other.claim_orphans(include_own=False) == []


async def test_a_lease_lasts_as_long_as_the_limit_says(processes: Processes) -> None:
    runner, other = processes.start(), processes.start()
    for store in (runner, other):
        store.bind(Limits(task_lease=0.2))
    assert runner.lease_seconds == 0.2
    lease = leased(await runner.add(record("one")))
    async with asyncio.timeout(30):
        while not (found := await other.claim_orphans(include_own=False)):
            await asyncio.sleep(0.01)
    assert time.monotonic() >= lease.until
    assert [one.id for one, _ in found] == ["one"]


async def test_many_orphans_are_taken_over_once_each(processes: Processes) -> None:
    dead, heirs = processes.start(), [processes.start() for _ in range(3)]
    for number in range(60):
        await dead.add(record(f"{number}"))
    processes.end_leases()
    found: list[str] = []
    async with asyncio.timeout(60):
        while len(found) < 60:
            claims = await asyncio.gather(
                *(heir.claim_orphans(include_own=False, room=7) for heir in heirs)
            )
            found += [one.id for each in claims for one, _ in each]
    assert sorted(found, key=int) == [f"{number}" for number in range(60)]


@pytest.mark.parametrize("score", ["1.5", "inf", "1e300", "1e16"])
async def test_a_list_of_tasks_survives_a_number_that_somebody_changed(
    processes: Processes, score: str
) -> None:
    store = processes.start()
    for id in ("one", "two", "three"):
        await store.add(record(id, owner="me"))
    [index] = [name for name in processes.names() if name.startswith("owner:")]
    processes.run("ZADD", index, score, task_key("two"))
    processes.run("ZADD", index, score, b"\xff made up")
    after, found = 0, []
    async with asyncio.timeout(30):
        while page := await store.list_page("me", "", after, 1):
            [(after, one)] = page
            found.append(one.id)
    assert [id for id in found if id != "two"] == ["one", "three"]


async def test_a_task_waits_though_a_process_with_other_keys_has_read_it(
    processes: Processes,
) -> None:
    store, stranger = processes.start(), processes.start(keys=["another key, as long as the first"])
    await store.add(record("one"), claim=False)
    assert await store.count_waiting() == 1
    assert await stranger.pull(1) == []
    assert await store.count_waiting() == 1


async def test_a_task_that_no_process_can_start_is_left_to_the_next_after_three_refusals(
    processes: Processes,
) -> None:
    store = processes.start()
    await store.add(record("one", tool="new"), claim=False)
    for _ in range(3):
        process = processes.start()
        assert await process.pull(1, lambda one: False) == []
        assert await process.claim_orphans(include_own=False) == [], "it was never running"
    [(found, lease)] = await process.pull(1, lambda one: False)
    assert found.id == "one" and await process.put(found, lease)


async def test_a_task_that_three_processes_cannot_continue_is_left_to_the_fourth(
    processes: Processes,
) -> None:
    store = processes.start()
    await store.give_back(leased(await store.add(record("one", tool="new"))))
    for _ in range(3):
        process = processes.start()
        assert await process.claim_orphans(include_own=False, can_run=lambda one: False) == []
    last = processes.start()
    [(found, lease)] = await last.claim_orphans(include_own=False, can_run=lambda one: False)
    assert await last.put(found, lease)
    await last.give_back(lease)
    assert await last.claim_orphans(include_own=False, can_run=lambda one: False) == [], (
        "a task that ran has another three chances"
    )


async def test_a_task_that_was_refused_and_then_started_is_an_orphan_when_its_process_dies(
    processes: Processes,
) -> None:
    unable, dead, heir = (processes.start() for _ in range(3))
    await unable.add(record("one"), claim=False)
    assert await unable.pull(1, lambda one: False) == []
    assert await heir.claim_orphans(include_own=False) == []
    assert len(await dead.pull(1)) == 1  # it starts, and writes nothing
    processes.end_leases()
    assert [one.id for one, _ in await heir.claim_orphans(include_own=False)] == ["one"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_process_has_no_leases(processes: Processes) -> None:
    store = processes.start()
    name = store._queue.consumer
    child = os.fork()
    if not child:
        os._exit(0 if store._queue.consumer != name else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store._queue.consumer == name


# what is left


async def test_redis_is_empty_when_all_tasks_are_removed(processes: Processes) -> None:
    one, other = processes.start(), processes.start()
    for number in range(10):
        about = {"owner": "ada"} if number % 2 else {"network": "192.0.2.1", "session": "s"}
        await one.add(record(f"{number}", **about), claim=number % 3 == 0)
    for found, lease in await other.pull(9):
        await other.send_message(TaskMessage(found.id, cancel=True))
        found.status, found.result = "completed", b"{}"
        assert await other.put(found, lease)
    for number in range(10):
        await one.remove(f"{number}")
    await one.close()
    assert processes.names() == ["queue"], "somebody may still wait for tasks"
    await other.close()
    assert processes.names() == []


async def test_redis_is_empty_when_all_tasks_have_expired(processes: Processes) -> None:
    one, other = processes.start(), processes.start()
    for number in range(250):
        about = {"owner": "ada"} if number % 2 else {"session": f"{number}"}
        await one.add(record(f"{number}", **about), claim=number < 150)
    assert len(await other.pull(50)) == 50
    processes.let_expire()
    await one.delete_expired()
    processes.end_leases()
    for _ in range(50):
        assert await one.claim_orphans(include_own=False) == []
    waiting = asyncio.create_task(other.pull(99))
    async with asyncio.timeout(30):
        while processes.run("XLEN", "queue"):
            await asyncio.sleep(0.01)
    waiting.cancel()
    assert processes.names() == ["queue"]
    for store in (one, other):
        await store.close()
    assert processes.names() == []


async def test_every_key_expires_even_if_all_processes_are_killed(processes: Processes) -> None:
    store = processes.start()
    for number in range(4):
        await store.add(record(f"{number}", ttl=30.0 + number, session="s"), claim=number != 2)
    await store.send_message(TaskMessage("1", cancel=True))
    await store.end(record("0", status="completed"))
    keys = processes.names()
    assert {key.partition(":")[0] for key in keys} == {
        *("task", "messages", "expiry", "info", "owner", "session", "finished"),
        *("queue", "running"),
    }
    lives = {key: processes.run("PTTL", key) for key in keys}
    assert all(0 < life <= 33_000 for life in lives.values()), lives
    rows = [life for key, life in lives.items() if key.startswith("task:")]
    assert min(lives["expiry"], lives["info"]) >= max(rows) - 5000


async def test_a_task_without_an_end_is_kept(processes: Processes) -> None:
    store = processes.start()
    await store.add(record("eternal", ttl=None))
    await store.add(record("short"))
    year = 365 * 86_400_000
    for key in ("expiry", "info", "running", processes.row("eternal")):
        assert processes.run("PTTL", key) > 50 * year


async def test_the_clock_of_redis_decides_when_a_task_expires(processes: Processes) -> None:
    store = processes.start()
    slow = record("slow", created=time.time() - 59.95)  # 50 ms are left, by any clock
    await store.add(slow)
    async with asyncio.timeout(30):
        while await store.get("slow") is not None:
            await asyncio.sleep(0.01)
    assert not await store.end(record("slow", status="cancelled"))
    assert processes.row("slow") not in processes.names()


async def test_processes_that_disappeared_are_forgotten(processes: Processes) -> None:
    dead, living = processes.start(), processes.start()
    for store in (dead, living):
        await store.add(record("one"), claim=False)
        [(_, lease)] = await store.pull(1)
        await store.put(record("one", status="completed"), lease)
        await store.remove("one")
    names = {store._queue.consumer for store in (dead, living)}
    await living.delete_expired()
    assert processes.consumers() == names
    await dead.close()
    assert processes.consumers() == names - {dead._queue.consumer}


# faults


def backend_of(redis: RedisServer, query: str = "", **options: Any) -> Backend:
    return Backend(redis.url + query, **({"keys": [KEY], "limits": PATIENT} | options))


async def test_the_queue_works_again_after_redis_was_flushed(own_redis: RedisServer) -> None:
    one, other = backend_of(own_redis).tasks(), backend_of(own_redis).tasks()
    lease = leased(await one.add(record("running")))
    await one.add(record("waiting"), claim=False)
    waiting = asyncio.create_task(other.pull(1))
    assert [found.id for found, _ in await waiting] == ["waiting"]
    waiting = asyncio.create_task(other.pull(1))
    await asyncio.sleep(0.05)
    own_redis.run("FLUSHALL")
    assert await one.get("running") is None and not await one.put(record("running"), lease)
    assert await one.renew([lease]) == [] and await one.claim_orphans(include_own=False) == []
    await one.add(record("new"), claim=False)
    try:
        found = await waiting
    except BackendAway:  # it was told that its queue is gone
        found = await other.pull(1)
    assert [each.id for each, _ in found] == ["new"]


async def test_tasks_survive_a_restart_of_redis(tmp_path: Path) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    redis = RedisServer(tmp_path / "redis", *options)
    redis.start()
    try:
        store = backend_of(redis).tasks()
        lease = leased(await store.add(record("running", owner="ada")))
        await store.add(record("waiting"), claim=False)
        await store.send_message(TaskMessage("running", cancel=True))
        redis.stop()
        with pytest.raises(BackendAway):
            await store.put(record("running"), lease)
        redis.start()
        store = backend_of(redis).tasks()
        assert (found := await store.get("running")) is not None and found.owner == "ada"
        assert len(await store.receive_messages(["running"])) == 1
        assert [one.id for one, _ in await store.pull(9)] == ["waiting"]
        assert [one.id for one in await store.renew([lease])] == ["running"]
    finally:
        redis.stop()


async def test_while_redis_is_away_every_call_says_so(own_redis: RedisServer) -> None:
    store = backend_of(own_redis, limits=Limits(backend_timeout=0.3)).tasks()
    lease = leased(await store.add(record("one")))
    own_redis.pause()
    try:
        for call in (
            store.get("one"),
            store.add(record("two")),
            store.put(record("one"), lease),
            store.end(record("one", status="cancelled")),
            store.renew([lease]),
            store.pull(1),
            store.claim("one"),
            store.claim_orphans(include_own=False),
            store.give_back(lease),
            store.release(lease),
            store.send_message(TaskMessage("one", cancel=True)),
            store.receive_messages(["one"]),
            store.delete_message("one", 1),
            store.list_page("", "", 0, 9),
            store.remove("one"),
            store.delete_expired(),
        ):
            with pytest.raises(BackendAway) as caught:
                await call
            assert caught.value.data is not None and caught.value.data["retryAfter"] >= 1
        await store.close()
    finally:
        own_redis.resume()


async def test_a_task_that_no_replica_has_confirmed_was_not_accepted(
    own_redis: RedisServer,
) -> None:
    store = backend_of(own_redis, "?wait=1", limits=Limits(backend_timeout=0.5)).tasks()
    with pytest.raises(BackendAway):
        await store.add(record("one"))
    for write in (
        store.end(record("one", status="cancelled")),
        store.send_message(TaskMessage("one", cancel=True)),
    ):
        with pytest.raises(BackendAway):
            await write


async def test_a_full_redis_refuses_new_tasks_and_lets_others_go(own_redis: RedisServer) -> None:
    store = backend_of(own_redis).tasks()
    await store.add(record("one"))
    own_redis.run("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(BackendAway) as caught:
        await store.add(record("two"))
    assert caught.value.data == {"retryAfter": 1}
    assert await store.get("one") is not None and await store.get("two") is None
    await store.remove("one")
    assert own_redis.keys() == []


async def test_the_access_that_the_guide_recommends_is_enough(own_redis: RedisServer) -> None:
    rules = [
        "+@read",
        "+@write",
        "+@stream",
        "+@pubsub",
        "+@scripting",
        "+@connection",
        "+time",
        "-@dangerous",
    ]
    user = ("shop", "on", ">secret", "~{dovetail:shop}:*", "&{dovetail:shop}:*", *rules)
    own_redis.run("ACL", "SETUSER", *user)
    url = own_redis.url.replace("//", "//shop:secret@")
    store = Backend(url, name="shop", keys=[KEY], limits=PATIENT).tasks()
    lease = leased(await store.add(record("one")))
    await store.add(record("two"), claim=False)
    await store.send_message(TaskMessage("one", cancel=True))
    [(number, _)] = await store.receive_messages(["one"])
    await store.delete_message("one", number)
    [lease] = await store.renew([lease])
    await store.give_back(lease)
    for found, lease in [*await store.pull(1), *await store.claim_orphans(include_own=False)]:
        assert await store.put(found, lease)
        await store.release(lease)
        assert await store.claim(found.id) is not None
        assert await store.end(record(found.id, status="completed", result=b"{}"))
        await store.remove(found.id)
    assert await store.list_page("", "", 0, 9) == []
    await store.delete_expired()
    await store.close()
    assert own_redis.keys() == []


# what somebody can do who has access to Redis


async def test_redis_learns_nothing_about_a_task(
    processes: Processes, shared_redis: RedisServer
) -> None:
    store = processes.start()
    one = record(
        *("secret-id",),
        owner="secret-owner",
        session="secret-session",
        tool="secret-tool",
        params=b'{"secret": 1}',
        once_results={"secret": b"secret"},
        questions={"secret": ("elicitation/create", b"secret")},
    )
    lease = leased(await store.add(one))
    await store.add(record("secret-2", network="secret-network"), claim=False)
    await store.send_message(TaskMessage("secret-id", {"secret": b"secret"}))
    one.status, one.result = "completed", b'{"secret": 2}'
    await store.put(one, lease)
    for key in processes.names():
        assert "secret" not in key
        assert b"secret" not in shared_redis.run("DUMP", processes.base + key)


async def test_a_value_that_is_moved_to_another_task_counts_as_missing(
    processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    store = processes.start()
    alice, bob = (record(name, owner=name) for name in ("alice", "bob"))
    leases = [leased(await store.add(one)) for one in (alice, bob)]
    for one, lease in zip((alice, bob), leases, strict=True):
        one.status, one.result = "completed", b"{}"
        assert await store.put(one, lease)
    await store.add(record("eve", owner="eve"))
    for name in ("record", "result"):
        value = processes.run("HGET", processes.row("alice"), name)
        processes.run("HSET", processes.row("eve"), name, value)
    with caplog.at_level(logging.WARNING, "dovetail"):
        assert await store.get("eve") is None
        assert await store.list_page("eve", "", 0, 9) == []
    assert caplog.text.count("did not seal it") == 1
    result = processes.run("HGET", processes.row("alice"), "result")
    processes.run("HSET", processes.row("bob"), "result", result)
    assert await store.get("bob") is None, "a task without its result is not told"
    assert await store.get("alice") == alice


@pytest.mark.parametrize("change", ["garbage", "", "\x01", "bit", "record for result"])
@pytest.mark.parametrize("field", ["record", "result"])
async def test_a_changed_value_counts_as_missing(
    processes: Processes, field: str, change: str
) -> None:
    store = processes.start()
    one = record("one")
    lease = leased(await store.add(one))
    one.status, one.result = "completed", b"{}"
    await store.put(one, lease)
    row = processes.row("one")
    value = bytearray(processes.run("HGET", row, field))
    value[-1] ^= 1
    other = processes.run("HGET", row, "record" if field == "result" else "result")
    new = {"bit": bytes(value), "record for result": other}.get(change, change)
    processes.run("HSET", row, field, new)
    assert await store.get("one") is None
    processes.run("HDEL", row, field)
    assert await store.get("one") is None


async def test_a_result_opens_only_with_its_own_record(processes: Processes) -> None:
    store, row = processes.start(), processes.row("one")
    one = record("one")
    lease = leased(await store.add(one))
    one.result = b"first"
    await store.put(one, lease)
    first = processes.run("HGET", row, "result")
    one.result, one.updated = b"second", one.updated + 1
    await store.put(one, lease)
    processes.run("HSET", row, "result", first)
    assert await store.get("one") is None


async def test_a_message_that_is_moved_or_made_up_is_not_received(processes: Processes) -> None:
    store = processes.start()
    for id in ("alice", "bob"):
        await store.add(record(id))
    await store.send_message(TaskMessage("alice", cancel=True))
    inbox = f"messages:{task_key('alice')}"
    [[_, fields]] = processes.run("XRANGE", inbox, "-", "+")
    processes.run("XADD", f"messages:{task_key('bob')}", "0-1", *fields)
    processes.run("XADD", inbox, "0-2", "data", "garbage")
    assert await store.receive_messages(["bob"]) == []
    assert [number for number, _ in await store.receive_messages(["alice", "bob"])] == [1]


async def test_what_scripts_read_does_not_decide_what_a_client_is_told(
    processes: Processes,
) -> None:
    store, row = processes.start(), processes.row("one")
    one = record("one")
    lease = leased(await store.add(one))
    processes.run("HSET", row, "over", 1)
    found = await store.get("one")
    assert found is not None and found.status == "working"
    assert not await store.put(one, lease), "its runner stops"
    processes.run("HSET", row, "over", 0)
    one.status, one.result = "completed", b"{}"
    assert await store.put(one, lease)
    # a finished task is put back into the queue
    processes.run("HSET", row, "over", 0)
    await store.send_message(TaskMessage("one", {"key": b"1"}))
    await store.add(record("next"), claim=False)
    assert [each.id for each, _ in await store.pull(9)] == ["next"]
    assert await store.get("one") == one


@pytest.mark.parametrize("field", ["token", "size", "messages", "refusals", "entry", "stream"])
async def test_a_number_that_somebody_changed_harms_no_other_task(
    processes: Processes, field: str
) -> None:
    store = processes.start()
    one, other = record("one"), record("other")
    leases = [leased(await store.add(each)) for each in (one, other)]
    processes.run("HSET", processes.row("one"), field, "nonsense")
    for call in (store.put(one, leases[0]), store.send_message(TaskMessage("one", cancel=True))):
        try:
            await call
        except BackendAway:
            pass
    assert await store.get("one") == one
    assert await store.put(other, leases[1])
    assert [lease.id for lease in await store.renew(leases[1:])] == ["other"]


async def test_an_entry_that_somebody_added_to_the_queue_is_dropped(processes: Processes) -> None:
    store = processes.start()
    await store.add(record("one"), claim=False)
    [[_, fields]] = processes.run("XRANGE", "queue", "-", "+")
    processes.run("XADD", "queue", "*", "task", "nonsense")
    processes.run("XADD", "queue", "*", *fields)  # delivered twice
    await store.add(record("two"), claim=False)
    assert [one.id for one, _ in await store.pull(9)] == ["one", "two"]
    assert processes.run("XLEN", "queue") == 2


async def test_a_process_with_other_keys_does_not_lose_tasks(processes: Processes) -> None:
    store, stranger = processes.start(), processes.start(keys=["not the same key " * 2])
    await store.add(record("one"), claim=False)
    assert await stranger.get("one") is None
    for _ in range(5):
        assert await stranger.pull(1) == []
        assert await stranger.claim_orphans(include_own=False) == []
    [(found, lease)] = await store.pull(1)
    assert found.id == "one" and await store.put(found, lease)


async def test_tasks_that_cannot_be_read_keep_nobody_from_the_others(processes: Processes) -> None:
    store, stranger = processes.start(), processes.start(keys=["not the same key " * 2])
    for number in range(20):
        await stranger.give_back(leased(await stranger.add(record(f"{number}"))))
    await store.give_back(leased(await store.add(record("one"))))
    found: list[Any] = []
    for _ in range(20):
        found += await store.claim_orphans(include_own=False, room=2)
    assert [one.id for one, _ in found] == ["one"]


async def test_keys_are_rotated_without_losing_tasks(processes: Processes) -> None:
    old = processes.start()
    one = record("one")
    await old.add(one, claim=False)
    new = processes.start(keys=["the next key " * 3, KEY])
    assert await new.get("one") == one
    assert [found.id for found, _ in await new.pull(1)] == ["one"]


async def test_nobody_without_the_keys_can_try_all_addresses(processes: Processes) -> None:
    for number, key in enumerate(["one key" * 9, "another key" * 9]):
        await processes.start(keys=[key]).add(record(f"{number}", network="192.0.2.1"))
    fields = processes.run("HKEYS", "info")
    assert len([name for name in fields if name.startswith(b"p:")]) == 2


async def test_servers_with_other_names_have_other_tasks(processes: Processes) -> None:
    store, other = processes.start(), processes.start(name="another server of the test")
    await store.add(record("one"))
    assert await other.get("one") is None and await other.list_page("", "", 0, 9) == []
    await store.remove("one")
