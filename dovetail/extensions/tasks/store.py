"""Task records, and the stores that hold them.

A `TaskRecord` holds everything about a task: the call and its caller, the status, questions and
answers, the results of `ctx.once`, and the outcome. A process that has the record and the server's
functions can continue the task. That is how a task is resumed after a crash, and how an engine can
run it on another machine.

A `TaskStore` stores records. `InMemoryTaskStore`, the default, loses them when the process ends;
`SqliteStore` (`sqlite.py`) does not. A store that is `shared` among processes records which process
runs each task. That process holds the `Lease` of the task, and names it when it writes, so that a
process that lost its task cannot change it. A shared store also carries task messages: answers and
cancellations for a task that runs in another process. A message is addressed to the task, so the
process that runs the task finds the message even if it took over the task after a crash.

A task is in one of these states: a process *runs* it (holds its lease); it *waits* for a process
that pulls it (only in a store that has a queue); it is an *orphan*, because its lease has ended; it
is *released*, and nobody takes it over without being told its id; or it has *finished*.

Expired tasks are never returned. The number of tasks in a store and their total size are limited
(`Limits.tasks`, `tasks_each`, `task_bytes`). If a store is full, the oldest finished tasks of
anonymous callers are deleted early, because nobody is accountable for them. Otherwise, new tasks
are refused, so that every accepted task is kept for as long as promised.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import inf
from threading import Lock
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ...errors import InternalError, Overloaded, TooLarge
from ...limits import DEFAULT, Limits
from ...protocol.tasks import TERMINAL, Status


class TaskOrigin(Struct, omit_defaults=True):
    """The details about a task's caller that are needed to run the task again."""

    revision: str
    """The name of the protocol revision."""
    capabilities: dict[str, Any] = {}
    """The capabilities of the client, as on the wire."""
    info: Any = None
    """The name and version of the client."""
    principal: Any = None
    """The authenticated principal; None if there is none."""
    log_level: int | None = field(default=None, name="level")
    """The lowest log level that the client requested, as a rank."""


class TaskRecord(Struct, kw_only=True, omit_defaults=True):
    """The complete record of a task. Times are in seconds since the epoch, as in `time.time()`.

    The names in `field(name=…)` are used in stored records, so changing a name breaks existing
    files.
    """

    id: str
    """A random id that cannot be guessed, because only the id protects the tasks of anonymous
    callers."""
    created: float
    """When the task was created."""
    updated: float
    """When the record last changed."""
    ttl: float | None
    """How long the task is kept after `created`, in seconds; None keeps it indefinitely."""
    owner: str = ""
    """The id of the principal that owns the task; empty if callers are anonymous."""
    session: str = ""
    """The session in which the task was started; empty if there is none."""
    network: str = ""
    """The network address of an anonymous caller; empty for callers on this machine."""
    tool: str
    """The name of the tool."""
    params: bytes
    """The params of the call, as JSON; empty once the task has finished."""
    origin: TaskOrigin
    """The caller that started the task."""
    resumable: bool = False
    """Whether the task runs again if its process ended before the task finished."""
    attempts: int = 0
    """How many times the task has been resumed after a crash since it last made progress."""
    status: Status = "working"
    """The status, as on the wire."""
    message: str | None = None
    """The status message."""
    questions: dict[str, tuple[str, bytes]] = field(default_factory=dict, name="asked")
    """Unanswered questions by key, each with its method and its params as JSON."""
    answers: dict[str, bytes] = {}
    """Answers by the key of their question, as JSON."""
    once_results: dict[str, bytes] = field(default_factory=dict, name="kept")
    """The results of `ctx.once` by key, as JSON."""
    result: bytes = b""
    """The result of the tool as JSON, with the fields from all revisions."""
    is_error: bool = False
    """Whether the result comes from a failed tool."""
    error: dict[str, Any] | None = None
    """The JSON-RPC error that the task failed with."""

    @property
    def over(self) -> bool:
        """Whether the task has finished and its record no longer changes."""
        return self.status in TERMINAL

    @property
    def expires(self) -> float:
        """When the record may be deleted; infinity if never."""
        return float("inf") if self.ttl is None else self.created + self.ttl


class TaskMessage(Struct, omit_defaults=True):
    """A message from another process to the process that runs a task."""

    id: str
    """The id of the task."""
    answers: dict[str, bytes] = {}
    """Answers by the key of their question, as JSON."""
    refused: dict[str, str] = {}
    """The reasons for questions that the client refused to answer, by key."""
    cancel: bool = False
    """Whether to cancel the task."""


CanRun: TypeAlias = Callable[[TaskRecord], bool]
"""A function that returns whether this process can continue a task. It may be called from any
thread."""


def can_run_all(record: TaskRecord) -> bool:
    """Accept every task."""
    return True


class Lease(Struct, frozen=True):
    """The right to run a task for a while."""

    id: str
    """The id of the task."""
    token: int = 0
    """The fencing token. It grows with each claim of the task, so that a write can be refused
    because a newer lease exists."""
    until: float = inf
    """When the lease ends, by `time.monotonic()` of this process. It ends no earlier in the store.
    Infinity if it ends only with the process."""
    life: float | None = None
    """The number of seconds until the task expires, by the clock of the store; None if that is the
    clock of this process."""


Claim: TypeAlias = tuple[TaskRecord, Lease]
"""A task that this process runs from now on, and its lease. The record has no result."""


class TaskStore(Protocol):
    """A store of task records. Its methods may be called from several event loops concurrently.

    A store that inherits from this class needs no queue: `pull` and `renew` do nothing by default.
    """

    shared: bool
    """Whether other processes, and this process after a restart, find the same tasks in the
    store."""
    queued: bool = False
    """Whether a task may wait for a process that has room for it (`pull`). Otherwise, tasks run in
    the process that adds them, or wherever an engine sends their ids."""
    lease_seconds: float = inf
    """How long a lease lasts unless it is renewed. Holders renew their leases, and all processes
    look for orphans, four times in that time. Infinity if nobody else can take over tasks."""

    def bind(self, limits: Limits) -> None:
        """Set the limits to enforce. This method is called once, before any other method."""

    async def add(self, record: TaskRecord, *, claim: bool = True) -> Lease | None:
        """Add a task. The task must be stored durably before this method returns.

        Args:
            record: The task.
            claim: Whether this process runs the task now. Otherwise, the task waits for a process
                that pulls it or, in a store without a queue, is released.

        Returns:
            The lease, if the task was claimed.

        Raises:
            Overloaded: There are too many tasks.
            TooLarge: There is not enough room for the record.
            TaskStoreBroken: The store can no longer be used. Any method may raise this error.
        """

    async def get(self, id: str) -> TaskRecord | None:
        """Return a task; None if it does not exist or has expired."""

    async def put(self, record: TaskRecord, lease: Lease) -> bool:
        """Replace the record of a task that this process runs. If the record is that of a finished
        task, the lease ends. Return False, and change nothing, if the task no longer exists, has
        already finished, or if the lease was lost: then the process must stop running the task.

        Raises:
            TooLarge: There is not enough room for the record.
            Overloaded: The write failed and can be tried again.
        """

    async def end(self, record: TaskRecord) -> bool:
        """Finish a task that any process runs: write its final record, and end its lease. Return
        False, and change nothing, if the task no longer exists or has already finished. Raises
        the same errors as `put`."""

    async def remove(self, id: str) -> None:
        """Delete a task that any process runs, and all messages to it."""

    async def list_page(
        self, owner: str, session: str, after: int, count: int
    ) -> list[tuple[int, TaskRecord]]:
        """Return up to `count` of an owner's tasks whose number is above `after`, oldest first.

        Args:
            owner: The owner of the tasks; empty for tasks of anonymous callers.
            session: The session of the tasks; empty for tasks from any session.
            after: The number of the last task on the previous page; 0 for the first page.
            count: The maximum number of tasks to return.

        Returns:
            (task number, record) pairs. The records do not include results.
        """

    async def claim(self, id: str) -> Claim | None:
        """Claim a task that is released or waits; return None if there is no such task."""

    async def pull(self, room: int, can_run: CanRun = can_run_all) -> list[Claim]:
        """Claim tasks that wait for a process. If there are none, wait for some seconds.

        Args:
            room: The maximum number of tasks to claim.
            can_run: See `claim_orphans`. A task that is left to others waits in the queue again.
        """
        return []

    async def claim_orphans(
        self, *, include_own: bool, can_run: CanRun = can_run_all, room: int | None = None
    ) -> list[Claim]:
        """Claim the unfinished tasks whose leases have ended, because no living process runs them.

        Args:
            include_own: Whether to include the tasks of this process, if their leases end only with
                the process. The caller ignores those that are still running.
            can_run: A function that decides which tasks to claim; the others are left for another
                process. If several processes have left a task, the next one claims it anyway; the
                caller then fails the task.
            room: The maximum number of tasks to claim (default: all).
        """

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Extend leases of this process to their full length. Return the new leases; those that
        are missing were lost. A lease that has ended can be renewed until somebody else claims the
        task. To check that a lease still holds, renew it."""
        return list(leases)

    async def give_back(self, lease: Lease) -> None:
        """End a lease, so that the task is an orphan at once. Do nothing if the lease was lost."""

    async def release(self, lease: Lease, *, queue: bool = False) -> None:
        """End a lease without making the task an orphan. Do nothing if the lease was lost.

        Args:
            lease: The lease.
            queue: Whether the task waits for another process at once, in a store with a queue.
                Otherwise, an engine has its id, or it waits for input: then a store with a queue
                lets it wait for a process as soon as there is a message to it.
        """

    async def count_waiting(self) -> int:
        """Return how many tasks wait for a process, in a store with a queue."""
        return 0

    async def send_message(self, message: TaskMessage) -> None:
        """Send a message to the process that runs a task.

        Raises:
            Overloaded: Too many messages to this task are waiting.
        """

    async def receive_messages(self, ids: Collection[str]) -> list[tuple[int, TaskMessage]]:
        """Return the messages to these tasks of this process, with their numbers. The messages to
        one task are in order, oldest first. They stay until they are deleted."""

    async def delete_message(self, id: str, number: int) -> None:
        """Delete a message to a task that has been delivered."""

    async def delete_expired(self) -> None:
        """Delete tasks that have expired."""

    async def close(self) -> None:
        """Release the resources of this process. The store may be used again later."""


# what every store needs

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TaskRecord).decode


def pack(record: TaskRecord) -> bytes:
    """Encode a record without its result, which may be long and is stored separately."""
    return _encode(replace(record, result=b""))


def unpack(data: bytes, result: bytes = b"") -> TaskRecord:
    """Decode a stored record."""
    record = _decode(data)
    record.result = result
    return record


def quota_key(record: TaskRecord) -> str:
    """Return the key under which `Limits.tasks_each` counts a task. The key is the owner or, for an
    anonymous caller, the address or the session. It is empty if the task is not counted."""
    if record.owner:
        return f"owner {record.owner}"
    if record.network:
        return f"address {record.network}"
    return f"session {record.session}" if record.session else ""


class TaskStoreBroken(InternalError):
    """The store can no longer be used. It has logged the reason."""


class TaskStoreFull(Overloaded):
    """The store holds the maximum number of tasks (`Limits.tasks`)."""


def quota_error(limits: Limits, total: int, of_caller: int) -> Overloaded | None:
    """Return the error if one more task would exceed a limit."""
    if of_caller >= limits.tasks_each:
        return Overloaded(
            f"You already have {limits.tasks_each} tasks, which is the limit. A task counts "
            "toward the limit until it expires"
        )
    if total >= limits.tasks:
        return TaskStoreFull(
            f"The server already has {limits.tasks} tasks, which is the limit. Try again later"
        )
    return None


def out_of_room(limits: Limits) -> TooLarge:
    """Return the error for a record that would exceed `Limits.task_bytes`."""
    return TooLarge(
        "There is not enough room for this task: all tasks together may use at most "
        f"{limits.task_bytes} bytes. Try again later"
    )


# forks


reset_when_forked: WeakSet[Any] = WeakSet()
"""The objects that track the tasks of this process. In a forked child, `reset_after_fork` is called
on each of them first, because the tasks belong to the parent."""


def _reset_all() -> None:
    for target in list(reset_when_forked):
        target.reset_after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_reset_all)


class StoredTask(Struct):
    """A task in memory, encoded so that it cannot be changed by accident."""

    number: int
    expires: float
    owner: str
    session: str
    payer: str
    """The quota key."""
    over: bool
    data: bytes
    result: bytes
    token: int = 1
    released: bool = False

    @property
    def size(self) -> int:
        """The bytes that count towards `Limits.task_bytes`."""
        return len(self.data) + len(self.result)


class InMemoryTaskStore(TaskStore):
    """A task store in the memory of one process."""

    shared = False

    def __init__(self) -> None:
        self._limits = DEFAULT
        self.reset_after_fork()
        reset_when_forked.add(self)

    def reset_after_fork(self) -> None:
        """Start empty, because the tasks belong to the parent process."""
        self._lock = Lock()  # a server may run on several loops, in several threads
        self._tasks: dict[str, StoredTask] = {}
        self._counts: Counter[str] = Counter()
        """The number of tasks for each quota key."""
        self._bytes = 0
        self._last_number = 0

    def bind(self, limits: Limits) -> None:
        self._limits = limits

    async def add(self, record: TaskRecord, *, claim: bool = True) -> Lease | None:
        key = quota_key(record)
        with self._lock:
            if self._quota_error(key) is not None:
                self._make_room(key)
            self._last_number += 1
            task = self._set(record, self._last_number, key)
            self._counts[key] += 1
            task.released = not claim
            return Lease(record.id, 1) if claim else None

    async def get(self, id: str) -> TaskRecord | None:
        task = self._tasks.get(id)
        if task is None or task.expires <= time.time():
            return None
        return unpack(task.data, task.result)

    async def put(self, record: TaskRecord, lease: Lease) -> bool:
        with self._lock:
            return self._holds(lease) and self._replace(record)

    async def end(self, record: TaskRecord) -> bool:
        with self._lock:
            return self._replace(record)

    async def remove(self, id: str) -> None:
        with self._lock:
            self._remove(id)

    async def list_page(
        self, owner: str, session: str, after: int, count: int
    ) -> list[tuple[int, TaskRecord]]:
        now, page = time.time(), []
        for task in list(self._tasks.values()):
            if (
                task.number > after
                and task.owner == owner
                and session in ("", task.session)
                and task.expires > now
            ):
                page.append((task.number, unpack(task.data)))
                if len(page) == count:
                    break
        return page

    async def claim(self, id: str) -> Claim | None:
        with self._lock:
            task = self._tasks.get(id)
            if task is None or task.over or not task.released or task.expires <= time.time():
                return None
            task.released, task.token = False, task.token + 1
            return unpack(task.data), Lease(id, task.token)

    async def claim_orphans(
        self, *, include_own: bool, can_run: CanRun = can_run_all, room: int | None = None
    ) -> list[Claim]:
        """Return the tasks of this process if `include_own` is true; there are no other tasks."""
        if not include_own:
            return []
        tasks = list(self._tasks.values())
        mine = ((unpack(task.data), task) for task in tasks if not (task.over or task.released))
        claims = [
            (record, Lease(record.id, task.token)) for record, task in mine if can_run(record)
        ]
        return claims[:room]

    async def give_back(self, lease: Lease) -> None:
        """Do nothing, because there is no other process."""

    async def release(self, lease: Lease, *, queue: bool = False) -> None:
        with self._lock:
            if self._holds(lease):
                self._tasks[lease.id].released = True

    async def send_message(self, message: TaskMessage) -> None:
        """Do nothing, because there is no other process."""

    async def receive_messages(self, ids: Collection[str]) -> list[tuple[int, TaskMessage]]:
        """Return nothing, because no other process sends messages."""
        return []

    async def delete_message(self, id: str, number: int) -> None:
        """Do nothing, because there are no messages."""

    async def close(self) -> None:
        """Do nothing, because the tasks are lost when the process ends."""

    async def delete_expired(self) -> None:
        with self._lock:
            self._delete_expired()

    # with the lock held

    def _quota_error(self, key: str) -> Overloaded | None:
        return quota_error(self._limits, len(self._tasks), self._counts[key] if key else 0)

    def _holds(self, lease: Lease) -> bool:
        task = self._tasks.get(lease.id)
        return task is not None and not task.released and task.token == lease.token

    def _replace(self, record: TaskRecord) -> bool:
        task = self._tasks.get(record.id)
        if task is None or task.over:
            return False
        self._set(record, task.number, task.payer).token = task.token
        return True

    def _make_room(self, key: str) -> None:
        """Delete tasks until one more is allowed; raise Overloaded if that is not possible."""
        self._delete_expired()
        while (error := self._quota_error(key)) is not None:
            if not isinstance(error, TaskStoreFull) or not self._delete_finished():
                raise error

    def _set(self, record: TaskRecord, number: int, key: str) -> StoredTask:
        task = StoredTask(
            number,
            record.expires,
            record.owner,
            record.session,
            key,
            record.over,
            pack(record),
            record.result,
        )
        before = self._tasks.get(record.id)
        growth = task.size - (0 if before is None else before.size)
        if self._bytes + growth > self._limits.task_bytes:
            self._delete_expired(spare=record.id)
        while self._bytes + growth > self._limits.task_bytes:
            if task.size <= self._limits.task_bytes and self._delete_finished():
                continue
            raise out_of_room(self._limits)
        self._bytes += growth
        self._tasks[record.id] = task
        return task

    def _remove(self, id: str) -> None:
        task = self._tasks.pop(id, None)
        if task is not None:
            self._bytes -= task.size
            self._counts[task.payer] -= 1
            if not self._counts[task.payer]:
                del self._counts[task.payer]

    def _delete_finished(self) -> bool:
        """Delete the oldest finished task of an anonymous caller. Return False if there is no such
        task."""
        tasks = self._tasks.items()  # oldest first
        oldest = next((id for id, task in tasks if task.over and not task.owner), None)
        if oldest is not None:
            self._remove(oldest)
        return oldest is not None

    def _delete_expired(self, spare: str = "") -> None:
        now = time.time()
        for id in [id for id, task in self._tasks.items() if task.expires <= now and id != spare]:
            self._remove(id)
