"""Each script of the task store, called as the client calls it."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import ResponseError

from dovetail.backend.redis.scripts import Script
from dovetail.backend.redis.task_scripts import (
    ADD_TASK,
    CLAIM_TASK,
    CLOSE_QUEUE,
    COUNT_WAITING_TASKS,
    DELETE_EXPIRED_TASKS,
    DELETE_TASK_MESSAGE,
    GIVE_BACK_TASK,
    IDLE_CONSUMER_MS,
    LIST_TASKS,
    OPEN_QUEUE,
    PUT_TASK,
    RELEASE_TASK,
    REMOVE_TASK,
    RENEW_TASKS,
    SEND_TASK_MESSAGE,
    TAKE_OVER_TASKS,
    TAKE_READ_TASKS,
)
from tests.system import needs_redis

from .redis_server import RedisServer

pytestmark = needs_redis
MINUTE = 60_000
LIMITS = {"tasks": 100, "each": 100, "limit": 10_000}


class Tasks:
    """The tasks of one server."""

    def __init__(self, redis: RedisServer) -> None:
        self.redis = redis

    def run(self, script: Script, *arguments: Any) -> Any:
        _, _, *rest = script.call([""], *arguments)
        return self.redis.run("EVAL", script.source, *rest)

    def add(
        self,
        task: str,
        record: str = "record",
        result: str = "",
        *,
        life: int = MINUTE,
        payer: str = "",
        owner: str = "nobody",
        session: str = "",
        over: int = 0,
        anonymous: int = 1,
        consumer: str = "me",
        **limits: int,
    ) -> str:
        about = payer, owner, session, over, anonymous, consumer
        reply: bytes = self.run(
            ADD_TASK, task, record, result, life, *about, *(LIMITS | limits).values()
        )
        return reply.decode()

    def put(
        self, task: str, token: int | str, record: str = "new", result: str = "", *, over: int = 0
    ) -> int:
        done: int = self.run(PUT_TASK, task, token, record, result, over, LIMITS["limit"])
        return done

    def row(self, task: str, name: str) -> Any:
        return self.redis.run("HGET", f"task:{task}", name)

    def raw(self, *command: Any) -> Any:
        """Send a command, and return the reply as it is in all versions of redis-py."""
        return self.redis.run("EVAL", "return redis.call(unpack(ARGV))", 0, *command)

    def count_writes(self) -> int:
        """The number of changes since Redis started."""
        changes: int = self.redis.run("INFO", "persistence")["rdb_changes_since_last_save"]
        return changes

    def info(self) -> dict[bytes, bytes]:
        fields = self.raw("HGETALL", "info")
        return dict(zip(fields[::2], fields[1::2], strict=True))

    def read(self, consumer: str) -> list[bytes]:
        """Read from the queue, and return entries and tasks."""
        self.run(OPEN_QUEUE, consumer)
        found = self.raw(
            *("XREADGROUP", "GROUP", "dovetail", consumer, "COUNT", 9, "STREAMS", "queue", ">")
        )
        entries = [entry for _, stream in found or () for entry in stream]
        return [part for id, (_, task) in entries for part in (id, task)]

    def consumers(self) -> set[bytes]:
        return {one[1] for one in self.raw("XINFO", "CONSUMERS", "queue", "dovetail")}

    def entries(self, stream: str) -> list[tuple[bytes, bytes]]:
        return [(id, value) for id, (_, value) in self.raw("XRANGE", stream, "-", "+")]

    def pending(self, stream: str) -> dict[bytes, tuple[bytes, int]]:
        """The consumers and idle times of pending entries, by the task."""
        tasks = dict(self.entries(stream))
        found = self.raw("XPENDING", stream, "dovetail", "-", "+", 99)
        return {tasks[id]: (consumer, idle) for id, consumer, idle, _ in found}

    def age(self, stream: str, idle: int = MINUTE) -> None:
        """Let all leases of a stream be idle for a while."""
        for id, consumer, *_ in self.raw("XPENDING", stream, "dovetail", "-", "+", 99):
            self.raw("XCLAIM", stream, "dovetail", consumer, 0, id, "IDLE", idle, "JUSTID")

    def spoil(self, key: str) -> None:
        """Give a key the type that no script expects."""
        self.redis.run("DEL", key)
        self.redis.run("SET", key, "spoiled")

    def everything(self) -> dict[bytes, bytes]:
        return {key: self.redis.run("DUMP", key) for key in self.redis.keys("*")}

    def expire(self, task: str) -> None:
        self.redis.run("DEL", f"task:{task}")
        self.redis.run("ZADD", "expiry", 1, task)

    def take_over(self, consumer: str, room: int = 9, lease: int = 1000) -> list[Any]:
        taken: list[Any] = self.run(TAKE_OVER_TASKS, consumer, lease, room, "0-0", "0-0")[0]
        return taken


@pytest.fixture
def tasks(shared_redis: RedisServer) -> Iterator[Tasks]:
    shared_redis.run("FLUSHALL")
    yield Tasks(shared_redis)
    shared_redis.run("FLUSHALL")


def test_add_task_does_not_add_a_task_twice(tasks: Tasks) -> None:
    assert tasks.add("a", payer="p", consumer="") == "added"
    before, writes = tasks.info(), tasks.count_writes()
    assert tasks.add("a", "other", payer="p", consumer="", tasks=1, each=1) == "added"
    assert tasks.count_writes() > writes, "WAIT waits only for a write"
    assert tasks.row("a", "record") == b"record"
    assert tasks.info() == before
    assert len(tasks.entries("queue")) == 1


def test_add_task_stores_a_task_that_its_process_runs(tasks: Tasks) -> None:
    assert tasks.add("a", "record", "result", payer="p", session="s") == "added"
    redis = tasks.redis
    assert redis.run("HMGET", "task:a", "record", "result", "token", "over") == [
        *(b"record", b"result"),
        *(b"1", b"0"),
    ]
    assert tasks.pending("running")[b"a"][0] == b"me"
    assert tasks.info() == {
        b"t:a": b"p|nobody|s",
        b"s:a": b"12",
        b"bytes": b"12",
        b"p:p": b"1",
    }
    keys = redis.keys()
    assert keys == [b"expiry", b"info", b"owner:nobody", b"running", b"session:s", b"task:a"]
    assert all(MINUTE - 5000 < redis.run("PTTL", key) <= MINUTE for key in keys)


def test_add_task_lets_a_task_wait_that_nobody_runs(tasks: Tasks) -> None:
    assert tasks.add("a", consumer="") == "added"
    assert tasks.redis.run("EXISTS", "running") == 0
    assert tasks.pending("queue") == {} and tasks.read("me")[1::2] == [b"a"]
    assert tasks.row("a", "token") == b"0"


def test_add_task_appends_a_finished_task_to_no_stream(tasks: Tasks) -> None:
    assert tasks.add("a", over=1) == tasks.add("b", over=1, anonymous=0) == "added"
    assert tasks.redis.run("EXISTS", "running", "queue") == 0
    assert tasks.redis.run("ZRANGE", "finished", 0, -1) == [b"a"]


def test_add_task_refuses_what_exceeds_a_limit(tasks: Tasks) -> None:
    for task in ("a", "b"):
        tasks.add(task, payer="p", anonymous=0)
    assert tasks.add("c", payer="p", each=2, tasks=2) == "each"
    assert tasks.add("c", payer="q", each=2, tasks=2) == "tasks"
    assert tasks.add("c", "x" * 9, limit=20) == "bytes"
    assert tasks.add("c", "x" * 8, limit=20) == "added"
    assert tasks.redis.run("ZCARD", "expiry") == 3


def test_add_task_deletes_what_has_expired_then_what_has_finished(tasks: Tasks) -> None:
    tasks.add("finished", over=1)
    tasks.add("of a known caller", over=1, anonymous=0)
    tasks.add("expired")
    tasks.expire("expired")
    assert tasks.add("a", tasks=3) == "added"
    assert tasks.redis.run("EXISTS", "task:finished") == 1
    assert tasks.add("b", tasks=3) == "added"
    assert tasks.redis.run("EXISTS", "task:finished") == 0
    assert tasks.add("c", tasks=3) == "tasks"
    assert tasks.add("c", "x" * 9000, limit=9000) == "bytes"


def test_put_task_compares_the_token(tasks: Tasks) -> None:
    tasks.add("a")
    assert tasks.put("a", 1, "newer", "result") == 1
    assert tasks.put("a", 2) == tasks.put("b", 1) == tasks.put("b", "") == 0
    assert tasks.row("a", "record") == b"newer" and tasks.row("a", "result") == b"result"
    assert tasks.redis.run("HMGET", "info", "bytes", "s:a") == [b"11", b"11"]
    assert tasks.put("a", "", "end", over=1) == 1  # any process may end it
    assert tasks.put("a", 1) == tasks.put("a", "") == 0
    assert tasks.row("a", "result") is None and tasks.row("a", "record") == b"end"
    assert tasks.redis.run("EXISTS", "running") == 0
    assert tasks.redis.run("ZRANGE", "finished", 0, -1) == [b"a"]


def test_put_task_refuses_what_there_is_no_room_for(tasks: Tasks) -> None:
    tasks.add("a")
    assert tasks.put("a", 1, "x" * LIMITS["limit"]) == 1
    assert tasks.put("a", 1, "x" * (LIMITS["limit"] + 1)) == -1
    assert tasks.redis.run("HGET", "info", "bytes") == str(LIMITS["limit"]).encode()


def test_put_task_does_not_delete_the_task_itself_to_make_room(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.redis.run("ZADD", "expiry", 1, "a")  # it expires just now
    assert tasks.put("a", 1, "x" * (LIMITS["limit"] + 1)) == -1
    assert tasks.row("a", "record") == b"record"


def test_remove_task_leaves_nothing(tasks: Tasks) -> None:
    tasks.add("a", payer="p", session="s")
    tasks.add("b", over=1)
    tasks.run(SEND_TASK_MESSAGE, "a", "hello", 9, 9999)
    for task in ("a", "b", "a"):
        tasks.run(REMOVE_TASK, task)
    assert tasks.redis.keys() == []


def test_list_tasks_continues_after_a_number(tasks: Tasks) -> None:
    for task in ("a", "b", "c"):
        tasks.add(task, f"record {task}", owner="ada")
    page = tasks.run(LIST_TASKS, "owner:ada", 0, 2)
    assert [(task, record) for task, _, record in page] == [
        (b"a", b"record a"),
        (b"b", b"record b"),
    ]
    tasks.redis.run("DEL", "task:c")
    number = page[1][1].decode()
    assert number.isdecimal()
    assert [(each[0], each[2]) for each in tasks.run(LIST_TASKS, "owner:ada", number, 2)] == [
        (b"c", None)
    ]
    assert tasks.run(LIST_TASKS, "owner:bob", 0, 2) == []


def test_delete_expired_tasks_cleans_the_indexes(tasks: Tasks) -> None:
    for number in range(3):
        tasks.add(f"{number}", payer="p", session="s", consumer="")
    tasks.add("later", payer="p")
    for number in range(3):
        tasks.expire(f"{number}")
    assert [tasks.run(DELETE_EXPIRED_TASKS, 2) for _ in range(3)] == [2, 1, 0]
    assert tasks.info() == {
        b"t:later": b"p|nobody|",
        b"s:later": b"6",
        b"bytes": b"6",
        b"p:p": b"1",
    }
    assert tasks.redis.run("ZRANGE", "owner:nobody", 0, -1) == [b"later"]
    assert tasks.redis.run("EXISTS", "session:s") == 0


def test_delete_expired_tasks_keeps_processes_that_are_alive(tasks: Tasks) -> None:
    tasks.add("a", consumer="")
    tasks.read("me")
    tasks.read("idle")
    tasks.run(DELETE_EXPIRED_TASKS, 9)
    assert tasks.consumers() == {b"me", b"idle"}


def test_delete_expired_tasks_forgets_processes_that_disappeared(tasks: Tasks) -> None:
    for consumer in ("dead", "busy"):
        tasks.add(consumer, consumer="")
        tasks.run(TAKE_READ_TASKS, consumer, *tasks.read(consumer))
    tasks.run(REMOVE_TASK, "dead")
    now = DELETE_EXPIRED_TASKS.source.replace(f"> {IDLE_CONSUMER_MS}", ">= 0")
    tasks.redis.run("EVAL", now, 1, "", 9)
    assert tasks.consumers() == {b"busy"}


def test_open_queue_creates_the_queue_again(tasks: Tasks) -> None:
    for _ in range(2):
        tasks.run(OPEN_QUEUE, "me")
    assert 0 < tasks.redis.run("PTTL", "queue") <= MINUTE
    tasks.redis.run("XGROUP", "DESTROY", "queue", "dovetail")
    assert tasks.read("me") == []
    tasks.add("a", consumer="", life=10 * MINUTE)
    assert tasks.redis.run("PTTL", "queue") > MINUTE
    tasks.run(OPEN_QUEUE, "me")
    assert tasks.redis.run("PTTL", "queue") > MINUTE
    assert tasks.read("me")[1:] == [b"a"]
    tasks.put("a", "", over=1)
    assert 0 < tasks.redis.run("PTTL", "queue") <= MINUTE


def test_close_queue_deletes_it_after_the_last_process(tasks: Tasks) -> None:
    tasks.run(CLOSE_QUEUE, "me")
    tasks.add("a", consumer="")
    tasks.read("me")
    tasks.read("other")
    tasks.run(CLOSE_QUEUE, "me")
    assert tasks.pending("queue")[b"a"][0] == b"me", "its lease must not be forgotten"
    tasks.run(REMOVE_TASK, "a")
    tasks.run(CLOSE_QUEUE, "me")
    assert tasks.redis.keys() == [b"queue"]
    tasks.run(CLOSE_QUEUE, "other")
    assert tasks.redis.keys() == []


def test_take_read_tasks_begins_leases(tasks: Tasks) -> None:
    for task in ("a", "b", "gone"):
        tasks.add(task, f"record {task}", consumer="")
    entries = tasks.read("me")
    tasks.age("queue")
    tasks.run(REMOVE_TASK, "gone")
    taken = tasks.run(TAKE_READ_TASKS, "me", *entries)
    assert [each[:4] for each in taken] == [
        [b"a", 1, b"record a", 0],
        [b"b", 1, b"record b", 0],
    ]
    assert all(MINUTE - 5000 < each[4] <= MINUTE for each in taken)
    assert {task: owner for task, (owner, idle) in tasks.pending("queue").items()} == {
        b"a": b"me",
        b"b": b"me",
    }
    assert all(idle < MINUTE for _, idle in tasks.pending("queue").values())


def test_take_read_tasks_leaves_what_another_process_took_over(tasks: Tasks) -> None:
    tasks.add("a", consumer="")
    entries = tasks.read("me")
    tasks.age("queue")
    assert tasks.take_over("other") == []  # it has not been started
    assert tasks.run(TAKE_READ_TASKS, "me", *entries) == []
    read = tasks.read("other")
    assert tasks.run(TAKE_READ_TASKS, "me", *read) == []
    assert [each[:2] for each in tasks.run(TAKE_READ_TASKS, "other", *read)] == [[b"a", 1]]
    tasks.redis.run("FLUSHALL")
    assert tasks.run(TAKE_READ_TASKS, "me", *entries) == []


def test_take_over_tasks_takes_leases_that_have_ended(tasks: Tasks) -> None:
    tasks.add("running", "one")
    tasks.add("queued", "two", consumer="")
    tasks.run(TAKE_READ_TASKS, "me", *tasks.read("me"))
    assert tasks.take_over("other") == []
    for stream in ("running", "queue"):
        tasks.age(stream)
    assert [each[:4] for each in tasks.take_over("other", 1)] == [[b"queued", 2, b"two", 0]]
    assert [each[:4] for each in tasks.take_over("other")] == [[b"running", 2, b"one", 0]]
    assert tasks.take_over("other") == []
    assert tasks.put("running", 1) == 0 and tasks.put("running", 2) == 1


def test_take_over_tasks_drops_entries_without_a_task(tasks: Tasks) -> None:
    for number in range(30):
        tasks.add(f"{number}")
        tasks.redis.run("DEL", f"task:{number}")
    tasks.add("over")
    tasks.redis.run("HSET", "task:over", "over", 1)
    tasks.add("a")
    tasks.age("running")
    assert [each[0] for each in tasks.take_over("other", 5)] == [b"a"]
    assert tasks.redis.run("XLEN", "running") == 1


def test_claim_task_takes_what_waits_or_is_released(tasks: Tasks) -> None:
    tasks.add("waits", consumer="")
    tasks.add("runs")
    tasks.add("over", over=1)
    assert tasks.run(CLAIM_TASK, "waits", "me")[0][:4] == [b"waits", 1, b"record", 0]
    assert tasks.read("other") == []
    for task in ("waits", "runs", "over", "none"):
        assert tasks.run(CLAIM_TASK, task, "other") == []
    tasks.run(RELEASE_TASK, "runs", 1, 0)
    assert tasks.run(CLAIM_TASK, "runs", "other")[0][:4] == [b"runs", 3, b"record", 0]
    assert tasks.pending("running")[b"runs"][0] == b"other"


def test_renew_tasks_resets_the_idle_time_of_what_is_held(tasks: Tasks) -> None:
    for task in ("a", "lost", "over"):
        tasks.add(task)
    tasks.put("over", 1, over=1)
    tasks.age("running")
    tasks.redis.run("HINCRBY", "task:lost", "token", 1)
    leases = [part for task in ("a", "lost", "over", "none") for part in (task, 1)]
    assert tasks.run(RENEW_TASKS, "me", *leases) == [1, 0, 0, 0]
    pending = tasks.pending("running")
    assert pending[b"a"][1] < MINUTE <= pending[b"lost"][1]
    tasks.redis.run(
        "XACK", "running", "dovetail", *dict(tasks.redis.run("XRANGE", "running", "-", "+"))
    )
    assert tasks.run(RENEW_TASKS, "me", "a", 1) == [0]


def test_renew_tasks_does_not_take_the_lease_of_another_process(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.age("running")
    tasks.take_over("other")
    assert tasks.run(RENEW_TASKS, "me", "a", 1) == [0]
    assert tasks.pending("running")[b"a"][0] == b"other"


def test_give_back_task_lets_others_take_it_over_at_once(tasks: Tasks) -> None:
    tasks.add("a")
    assert tasks.run(GIVE_BACK_TASK, "a", 7, "me", 0, 0) == 0
    assert tasks.run(GIVE_BACK_TASK, "a", 1, "me", 0, 0) == 1
    assert tasks.put("a", 1) == 0
    [taken] = tasks.take_over("other", lease=10 * MINUTE)
    assert taken[:4] == [b"a", 3, b"record", 0]
    assert tasks.run(GIVE_BACK_TASK, "a", 1, "me", 0, 0) == 0


def test_refusals_of_a_task_count_when_all_processes_have_refused_it(tasks: Tasks) -> None:
    tasks.add("a", consumer="old")
    tasks.add("b", consumer="busy")
    for token, consumer in ((1, "old"), (3, "old"), (5, "web")):
        assert tasks.run(GIVE_BACK_TASK, "a", token, consumer, 1, 0) == 1
        for process in ("old", "busy"):  # they take tasks from the queue, unlike "web"
            tasks.run(OPEN_QUEUE, process)
        [taken] = tasks.take_over("old")
        assert taken[:4] == [b"a", token + 2, b"record", 0], "one process has not refused it"
    assert tasks.run(GIVE_BACK_TASK, "a", 7, "busy", 1, 0) == 1
    [taken] = tasks.take_over("old")
    assert taken[:4] == [b"a", 9, b"record", 4]
    assert tasks.put("a", 9) == 1
    assert tasks.row("a", "refusals") is tasks.row("a", "refusers") is None


def test_give_back_task_queues_a_task_again_that_was_not_started(tasks: Tasks) -> None:
    tasks.add("a", consumer="")
    for token in (1, 3):
        assert len(tasks.run(TAKE_READ_TASKS, "me", *tasks.read("me"))) == 1
        assert tasks.run(GIVE_BACK_TASK, "a", token, "me", 1, 1) == 1
        assert tasks.read("me") == []  # not yet
        assert tasks.take_over("other") == []
    tasks.raw("XGROUP", "DELCONSUMER", "queue", "dovetail", "other")
    [taken] = tasks.run(TAKE_READ_TASKS, "me", *tasks.read("me"))
    assert taken[:4] == [b"a", 5, b"record", 2]
    tasks.age("queue")
    [taken] = tasks.take_over("other")  # it may have been started
    assert taken[:4] == [b"a", 6, b"record", 0]
    assert tasks.redis.run("XLEN", "queue") == 1 and 0 < tasks.redis.run("PTTL", "queue") <= MINUTE


def test_release_task_ends_the_lease(tasks: Tasks) -> None:
    tasks.add("a")
    assert tasks.run(RELEASE_TASK, "a", 2, 0) == 0
    assert tasks.run(RELEASE_TASK, "a", 1, 0) == 1
    assert tasks.run(RELEASE_TASK, "a", 2, 0) == 0
    assert tasks.put("a", 1) == tasks.put("a", 2) == 0
    assert tasks.redis.run("EXISTS", "running", "queue") == 0


@pytest.mark.parametrize("why", ["message", "asked for"])
def test_release_task_queues_a_task_that_has_something_to_do(tasks: Tasks, why: str) -> None:
    tasks.add("a")
    if why == "message":
        tasks.run(SEND_TASK_MESSAGE, "a", "hello", 2, 100)
    assert tasks.run(RELEASE_TASK, "a", 1, int(why != "message")) == 1
    assert [task for _, task in tasks.entries("queue")] == [b"a"]
    assert tasks.redis.run("EXISTS", "running") == 0
    assert 0 < tasks.redis.run("PTTL", "queue") <= MINUTE


def test_count_waiting_tasks_counts_what_no_process_has(tasks: Tasks) -> None:
    assert tasks.run(COUNT_WAITING_TASKS) == 0
    tasks.add("running")
    for task in "abc":
        tasks.add(task, consumer="")
    assert tasks.run(COUNT_WAITING_TASKS) == 3
    tasks.run(TAKE_READ_TASKS, "me", *tasks.read("me")[:2])
    assert tasks.run(COUNT_WAITING_TASKS) == 0, "all were read"
    tasks.run(GIVE_BACK_TASK, "a", 1, "me", 1, 1)
    tasks.run(GIVE_BACK_TASK, "running", 1, "me", 0, 0)
    assert tasks.run(COUNT_WAITING_TASKS) == 2, "they wait for another process"
    tasks.take_over("other")
    assert tasks.run(COUNT_WAITING_TASKS) == 1, "one waits in the queue again, one runs"


def test_send_task_message_stores_a_message_with_its_task(tasks: Tasks) -> None:
    tasks.add("a")
    for reply in (1, 1, 0):
        assert tasks.run(SEND_TASK_MESSAGE, "a", "hello", 2, 100) == reply
    assert tasks.run(SEND_TASK_MESSAGE, "none", "hello", 2, 100) == 0
    assert tasks.run(SEND_TASK_MESSAGE, "a", "x" * 100, 9, 100) == -1
    assert [id for id, _ in tasks.entries("messages:a")] == [b"0-1", b"0-2"]
    assert tasks.redis.run("HGET", "info", "bytes") == b"16"
    assert 0 < tasks.redis.run("PTTL", "messages:a") <= MINUTE
    assert tasks.redis.run("EXISTS", "queue") == 0


def test_send_task_message_queues_a_task_that_was_released(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.run(RELEASE_TASK, "a", 1)
    for _ in range(2):
        tasks.run(SEND_TASK_MESSAGE, "a", "hello", 9, 999)
    assert tasks.read("me")[1::2] == [b"a"]
    tasks.add("over", over=1)
    tasks.run(SEND_TASK_MESSAGE, "over", "hello", 9, 999)
    assert tasks.read("me") == []


def test_delete_task_message_frees_its_room(tasks: Tasks) -> None:
    tasks.add("a")
    for _ in range(2):
        tasks.run(SEND_TASK_MESSAGE, "a", "hello", 9, 999)
    for number in (1, 1, 7):
        tasks.run(DELETE_TASK_MESSAGE, "a", number)
    assert tasks.redis.run("XLEN", "messages:a") == 1
    assert tasks.redis.run("HGET", "info", "bytes") == b"11"
    tasks.run(DELETE_TASK_MESSAGE, "a", 2)
    assert tasks.redis.run("EXISTS", "messages:a") == 0
    tasks.run(SEND_TASK_MESSAGE, "a", "hello", 9, 999)
    assert tasks.entries("messages:a") == [(b"0-3", b"hello")]


NEW = ("new", "record", "", MINUTE, "payer", "nobody", "session")
SPOILED: list[tuple[Script, str, tuple[Any, ...]]] = [
    (ADD_TASK, "owner:nobody", (*NEW, 0, 1, "")),
    (ADD_TASK, "session:session", (*NEW, 0, 1, "")),
    (ADD_TASK, "queue", (*NEW, 0, 1, "")),
    (ADD_TASK, "running", (*NEW, 0, 1, "me")),
    (ADD_TASK, "finished", (*NEW, 1, 1, "")),
    (PUT_TASK, "finished", ("runs", 1, "new", "result", 1, 10_000)),
    (PUT_TASK, "running", ("runs", 1, "new", "result", 1, 10_000)),
    (TAKE_OVER_TASKS, "queue", ("other", 1000, 9, "0-0", "0-0")),
    (TAKE_OVER_TASKS, "running", ("other", 1000, 9, "0-0", "0-0")),
    (CLAIM_TASK, "running", ("waits", "me")),
    (GIVE_BACK_TASK, "running", ("runs", 1, "me", 1, 1)),
    (RELEASE_TASK, "queue", ("runs", 1, 1)),
    (RELEASE_TASK, "running", ("runs", 1, 0)),
    (SEND_TASK_MESSAGE, "queue", ("released", "hello", 9, 10_000)),
    (SEND_TASK_MESSAGE, "messages:runs", ("runs", "hello", 9, 10_000)),
]


@pytest.mark.parametrize(
    ("script", "key", "arguments"), SPOILED, ids=[f"{one.name}, {key}" for one, key, _ in SPOILED]
)
def test_a_script_that_fails_has_changed_nothing(
    tasks: Tasks, script: Script, key: str, arguments: tuple[Any, ...]
) -> None:
    tasks.add("runs")
    tasks.add("orphan", consumer="")
    tasks.run(TAKE_READ_TASKS, "dead", *tasks.read("dead"))
    tasks.age("queue")
    tasks.add("released")
    tasks.run(RELEASE_TASK, "released", 1, 0)
    tasks.add("waits", consumer="")
    tasks.spoil(key)
    before = tasks.everything()
    with pytest.raises(ResponseError):
        tasks.run(script, *arguments, *(LIMITS.values() if script is ADD_TASK else ()))
    assert tasks.everything() == before
