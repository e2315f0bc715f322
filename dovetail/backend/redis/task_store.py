"""Tasks in Redis: a hash for each task, indexes, and a queue (`task_queue.py`).

Records, results and messages are sealed for their place, so a value that somebody moves to another
key, changes or makes up does not open. Such a task counts as missing. What the scripts read beside
the sealed values (`task_scripts.py`) decides who runs a task and when it is deleted, never what a
client is told about it.

Redis measures when a task expires. The clock of the process that adds a task is only used for the
time that is left until then.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from math import ceil
from typing import TypeVar

import msgspec

from ...errors import BackendAway, Overloaded
from ...extensions.tasks.store import (
    CanRun,
    Claim,
    Lease,
    TaskMessage,
    TaskRecord,
    TaskStore,
    can_run_all,
    out_of_room,
    pack,
    quota_error,
    quota_key,
    reset_when_forked,
    unpack,
)
from ...limits import DEFAULT, Limits
from ...logs import get_logger
from ...sealing import KeyRing
from .client import CommandRefused, RedisClient
from .scripts import Argument
from .sealed import SealedValues
from .task_queue import RedisTaskQueue, TakenTask, digest, task_key
from .task_scripts import (
    ADD_TASK,
    DELETE_EXPIRED_TASKS,
    DELETE_TASK_MESSAGE,
    LIST_TASKS,
    PUT_TASK,
    REMOVE_TASK,
    SEND_TASK_MESSAGE,
)

MAX_LIFE_SECONDS = 100 * 365 * 86400.0
"""The life of a task that does not expire."""
BATCH_SIZE = 100
"""The number of expired tasks that are deleted in one script, because Redis does nothing else
meanwhile."""
DIGEST_LENGTH = 32
"""The number of hexadecimal digits that stand for a payer."""
MAX_REFUSALS = 3
"""How often a task is given back by processes that cannot run it, and at least once by each. The
next process claims it."""
UNKNOWN_START = (
    "The server lost contact with its shared state while it started the task, and does not know "
    "whether the task will run. Check whether it had an effect before you call the tool again"
)
ALL_ORPHANS = 100
"""The number of orphans that are claimed at once if the caller sets no limit."""
NO_RESULT, HAS_RESULT = b"\0", b"\1"
"""What the sealed record begins with, so that nobody can take away the result."""

T = TypeVar("T")
log = get_logger("tasks")
_decode_message = msgspec.msgpack.Decoder(TaskMessage).decode


class RedisTaskStore(TaskStore):
    """The tasks of a server in Redis.

    Args:
        client: The connections.
        ring: The keys that seal records, results and messages.
        base: What all keys of the tasks begin with.
    """

    shared = True
    queued = True

    def __init__(self, client: RedisClient, ring: KeyRing, base: str) -> None:
        self._client, self._base = client, base
        self._queue = RedisTaskQueue(client, base)
        self._ring = ring
        self._records = SealedValues(ring, "backend task")
        self._results = SealedValues(ring, "backend task result")
        self._messages = SealedValues(ring, "backend task message")
        self._warned = False
        self.bind(DEFAULT)
        reset_when_forked.add(self)

    def reset_after_fork(self) -> None:
        """Forget the leases, which belong to the parent process."""
        self._queue.reset_after_fork()

    def bind(self, limits: Limits) -> None:
        self._limits = limits
        self._queue.lease_seconds = self.lease_seconds = limits.task_lease

    async def add(self, record: TaskRecord, *, claim: bool = True) -> Lease | None:
        key, limits, payer = task_key(record.id), self._limits, quota_key(record)
        sealed, result = self._seal(key, record)
        life = min(record.expires - time.time(), MAX_LIFE_SECONDS)
        until = self._queue.lease_end()
        reply = await self._run_add(
            *(key, sealed, result, ceil(life * 1000)),
            *(self._payer_digest(payer), *_indexes(record.owner, record.session)),
            *(int(record.over), int(not record.owner), self._queue.consumer if claim else ""),
            *(limits.tasks, limits.tasks_each, limits.task_bytes),
        )
        if reply == b"bytes":
            raise out_of_room(limits)
        if reply != b"added":
            of_caller = limits.tasks_each if reply == b"each" else 0
            error = quota_error(limits, limits.tasks, of_caller)
            assert error is not None
            raise error
        return Lease(record.id, 1, until) if claim else None

    async def _run_add(self, *arguments: Argument) -> bytes:
        """Add a task. If the reply is lost, try once more: the script does not add it twice."""
        for is_last in (False, True):
            try:
                reply: bytes = await self._client.run_script(
                    ADD_TASK, [self._base], *arguments, durable=True
                )
                return reply
            except BackendAway as error:
                if not is_last and (isinstance(error, CommandRefused) or not error.sent):
                    raise  # nothing was added
                if is_last:  # without the time to wait, so that no client repeats the call
                    raise BackendAway(UNKNOWN_START) from None
        raise AssertionError

    async def get(self, id: str) -> TaskRecord | None:
        key = task_key(id)
        sealed, result = await self._client.run("HMGET", self._row(key), "record", "result")
        return self._open(key, sealed, result)

    async def put(self, record: TaskRecord, lease: Lease) -> bool:
        return await self._replace(record, str(lease.token))

    async def end(self, record: TaskRecord) -> bool:
        return await self._replace(record, "")

    async def remove(self, id: str) -> None:
        await self._client.run_script(REMOVE_TASK, [self._base], task_key(id), durable=True)

    async def list_page(
        self, owner: str, session: str, after: int, count: int
    ) -> list[tuple[int, TaskRecord]]:
        by_owner, by_session = _indexes(owner, session)
        index = f"session:{by_session}" if session else f"owner:{by_owner}"
        page: list[tuple[int, TaskRecord]] = []
        start: Argument = after
        while len(page) < count:
            room = count - len(page)
            rows = await self._client.run_script(LIST_TASKS, [self._base], index, start, room)
            for key, number, sealed in rows:
                start = number
                name = key.decode(errors="replace")
                record = self._open(name, sealed, None, with_result=False)
                if record is not None and number.isdigit():  # somebody may have changed it
                    page.append((int(number), record))
            if len(rows) < room:
                break
        return page

    # leases

    async def claim(self, id: str) -> Claim | None:
        claims = await self._accept(await self._queue.claim(task_key(id)), can_run_all)
        return claims[0] if claims else None

    async def pull(self, room: int, can_run: CanRun = can_run_all) -> list[Claim]:
        taken = await self._queue.pull(room)
        try:
            return await self._accept(taken, can_run, unstarted=True)
        except asyncio.CancelledError:  # those that were given back have newer tokens
            await self._queue.release_all(taken)
            raise

    async def claim_orphans(
        self, *, include_own: bool, can_run: CanRun = can_run_all, room: int | None = None
    ) -> list[Claim]:
        room = ALL_ORPHANS if room is None else room
        return await self._accept(await self._queue.take_over(room) if room else [], can_run)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        return await self._queue.renew(leases)

    async def give_back(self, lease: Lease) -> None:
        await self._queue.give_back(task_key(lease.id), lease.token)

    async def release(self, lease: Lease, *, queue: bool = False) -> None:
        await self._queue.release(task_key(lease.id), lease.token, queue=queue)

    async def count_waiting(self) -> int:
        return await self._queue.count_waiting()

    async def _accept(
        self, taken: list[TakenTask], can_run: CanRun, *, unstarted: bool = False
    ) -> list[Claim]:
        """Return the tasks that this process can run, and give the others back."""
        claims: list[Claim] = []
        for task in taken:
            record = self._open(task.key, task.record, None, with_result=False)
            key, token = task.key, task.token
            with suppress(BackendAway):  # then its lease ends; the others run
                if record is None:  # other processes may have its key
                    await self._queue.give_back(key, token, unstarted=unstarted)
                elif record.over:  # somebody has changed what the scripts read
                    await self._queue.release(key, token)
                elif can_run(record) or task.refusals >= MAX_REFUSALS:
                    claims.append((record, Lease(record.id, token, task.until, task.life)))
                else:
                    await self._queue.give_back(key, token, refused=True, unstarted=unstarted)
        return claims

    # messages

    async def send_message(self, message: TaskMessage) -> None:
        key = task_key(message.id)
        sealed = self._messages.seal(self._inbox(key), msgspec.msgpack.encode(message))
        reply: int = await self._client.run_script(
            *(SEND_TASK_MESSAGE, [self._base], key, sealed),
            *(self._limits.asks, self._limits.task_bytes),
            durable=True,
        )
        if reply < 0:
            raise out_of_room(self._limits)
        if not reply:
            raise Overloaded(
                f"The task {message.id} no longer exists or has too many unread messages; try "
                "again later"
            )

    async def receive_messages(self, ids: Collection[str]) -> list[tuple[int, TaskMessage]]:
        if not ids:
            return []
        inboxes = [self._inbox(task_key(id)) for id in ids]
        found = await self._client.run("XREAD", "STREAMS", *inboxes, *["0"] * len(inboxes))
        messages: list[tuple[int, TaskMessage]] = []
        for inbox, entries in found or ():
            for entry, fields in entries:
                data = self._messages.open(inbox.decode(), fields[1])
                message = self._decode(_decode_message, data)
                if message is not None:
                    messages.append((int(entry.partition(b"-")[2]), message))
        return messages

    async def delete_message(self, id: str, number: int) -> None:
        await self._client.run_script(DELETE_TASK_MESSAGE, [self._base], task_key(id), number)

    # upkeep

    async def delete_expired(self) -> None:
        """Delete expired tasks from the indexes. Redis deletes their records itself."""
        deleted = BATCH_SIZE
        while deleted == BATCH_SIZE:
            deleted = await self._client.run_script(DELETE_EXPIRED_TASKS, [self._base], BATCH_SIZE)

    async def close(self) -> None:
        """Stop waiting for tasks. Leases that were not given back end in their time."""
        await self._queue.close()

    # rows

    def _payer_digest(self, payer: str) -> str:
        """Return what counts the tasks of a payer. It may be an address, and somebody could try all
        addresses, so it depends on the keys."""
        return self._ring.digest("task payer", payer.encode())[:DIGEST_LENGTH] if payer else ""

    def _row(self, key: str) -> str:
        return f"{self._base}task:{key}"

    def _inbox(self, key: str) -> str:
        return f"{self._base}messages:{key}"

    async def _replace(self, record: TaskRecord, token: str) -> bool:
        key, limits = task_key(record.id), self._limits
        sealed, result = self._seal(key, record)
        arguments: tuple[Argument, ...] = (key, token, sealed, result, int(record.over))
        reply: int = await self._client.run_script(
            PUT_TASK, [self._base], *arguments, limits.task_bytes, durable=True
        )
        if reply < 0:
            raise out_of_room(limits)
        return reply == 1

    def _seal(self, key: str, record: TaskRecord) -> tuple[bytes, bytes]:
        """Return the sealed record and result; a result that is empty is not sealed."""
        row = self._row(key)
        flag = HAS_RESULT if record.result else NO_RESULT
        sealed = self._records.seal(row, flag + pack(record))
        if not record.result:
            return sealed, b""
        return sealed, self._results.seal(_result_place(row, record), record.result)

    def _open(
        self, key: str, sealed: bytes | None, result: bytes | None, *, with_result: bool = True
    ) -> TaskRecord | None:
        """Return the record in a row; None if a part of it is missing, or does not open."""
        row = self._row(key)
        data = self._records.open(row, sealed)
        record = self._decode(lambda data: unpack(data[1:]), data)
        if data is None or record is None:
            return None
        if with_result and data[:1] == HAS_RESULT:
            opened = self._results.open(_result_place(row, record), result)
            if opened is None:
                return None
            record.result = opened
        return record

    def _decode(self, decode: Callable[[bytes], T], data: bytes | None) -> T | None:
        """Decode what another version may have written."""
        try:
            return None if data is None else decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            if not self._warned:
                self._warned = True
                log.error("A task in Redis is skipped, because it cannot be read: %s", error)
            return None


def _indexes(owner: str, session: str) -> tuple[str, str]:
    """Return the digests by which the tasks of an owner and of a session are listed."""
    return digest("owner", owner), digest("session", owner, session) if session else ""


def _result_place(row: str, record: TaskRecord) -> str:
    """Return the place of a result. It opens only together with the record of the same time."""
    return f"{row} {record.updated!r}"
