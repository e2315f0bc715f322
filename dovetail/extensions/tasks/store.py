"""What is known of tasks, and where it is kept.

A `Record` is all there is to a task: what was called and by whom, how it stands, what it asked and
was answered, what it did once, and what came of it. Whoever has the record and the server's
functions can go on with the task; that is how one is resumed after a crash, and how an engine of
several machines would run it.

A `TaskStore` keeps records. `MemoryStore` is the default and ends with the process; `SqliteStore`
(`sqlite.py`) does not. A store that is `shared` among processes knows which of them runs a task,
and carries letters: an answer or a cancellation for a task that runs in another one. A letter is
addressed to the task; whoever runs it, also after a crash, finds it.

What has expired is never given back. There are bounds in number and in bytes (`Limits.tasks`,
`tasks_each`, `task_bytes`): whoever would go beyond them is refused, since a task that was promised
is kept for as long as it was promised.
"""

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import ConfigError, Overloaded, TooLarge
from ...limits import DEFAULT, Limits
from ...protocol.tasks import TERMINAL, Status
from .forking import tell_of_forks


class Origin(Struct, omit_defaults=True):
    """Who began a task, as far as it matters when it is run again."""

    revision: str
    capabilities: dict[str, Any] = {}
    info: Any = None
    principal: Any = None
    level: int | None = None


class Record(Struct, kw_only=True, omit_defaults=True):
    """All that is known of a task. Times are seconds, as `time.time()` counts."""

    id: str
    created: float
    updated: float
    ttl: float | None
    owner: str = ""
    """The principal that it belongs to; empty where nobody is known."""
    session: str = ""
    """The conversation that it was begun in, where there is such a thing."""
    tool: str
    params: bytes
    """The call, as JSON."""
    origin: Origin
    resumable: bool = False
    attempts: int = 0
    """How often it was taken up after a crash since it last got any further."""
    status: Status = "working"
    message: str | None = None
    asked: dict[str, tuple[str, bytes]] = {}
    """Questions that wait for an answer, by key: the method of each, and its params as JSON."""
    answers: dict[str, bytes] = {}
    kept: dict[str, bytes] = {}
    """What `ctx.once` did."""
    result: bytes = b""
    """What the tool gave, as JSON of the whole vocabulary."""
    is_error: bool = False
    error: dict[str, Any] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing changes any more."""
        return self.status in TERMINAL

    @property
    def expires(self) -> float:
        """When it may be forgotten."""
        return float("inf") if self.ttl is None else self.created + self.ttl


class Letter(Struct, omit_defaults=True):
    """What a task is told that runs in another process."""

    id: str
    answers: dict[str, bytes] = {}
    refused: dict[str, str] = {}
    """Questions that the client did not want to answer, and why."""
    cancel: bool = False


Able: TypeAlias = Callable[[Record], bool]
"""Whether a process can do something about a task; asked from any thread."""


def whatever(record: Record) -> bool:
    """Able to deal with all tasks."""
    return True


class TaskStore(Protocol):
    """Where tasks are kept. Calls may come from several event loops at once."""

    shared: bool
    """Whether other processes, and this one after a restart, find the same tasks in it."""

    def bind(self, limits: Limits) -> None:
        """The bounds to keep; called once, before anything else."""

    async def add(self, record: Record) -> None:
        """A new task, which this process runs. It is there for good when this returns; Overloaded
        where there are too many, TooLarge where there is no room for it."""

    async def get(self, id: str) -> Record | None:
        """A task; None where there is none, or not any more."""

    async def put(self, record: Record) -> bool:
        """A task as it is now. False, and nothing is done, where it is gone or was over already;
        TooLarge where there is no room for it, and Overloaded where it is worth another attempt."""

    async def remove(self, id: str) -> None:
        """Forget a task, and all letters to it."""

    async def page(
        self, owner: str, session: str, after: int, count: int
    ) -> list[tuple[int, Record]]:
        """Tasks of one owner and of one conversation (of any, where that is empty), oldest first,
        with their numbers and without their results."""

    async def release(self, id: str) -> None:
        """Leave a task of this process to whoever claims it. Until then nobody runs it, and nobody
        has to."""

    async def claim(self, id: str) -> Record | None:
        """A task that nobody runs: from now on this process does. None where there is no such
        task."""

    async def orphans(self, *, own: bool, able: Able = whatever) -> list[Record]:
        """Tasks that are not over and that no living process runs; they are this one's from now on.
        Those that it is not `able` to take up stay as they are, for another. With `own`, those come
        along that it has already: it knows best which of them it runs."""

    async def send(self, letter: Letter) -> None:
        """A letter to a task, for whoever runs it; Overloaded where too many wait there already."""

    async def receive(self) -> list[tuple[int, Letter]]:
        """Letters to the tasks of this process, oldest first, with their numbers. They stay until
        they are taken."""

    async def take(self, number: int) -> None:
        """A letter has done what it was to do."""

    async def sweep(self) -> None:
        """Forget what has expired."""

    async def close(self) -> None:
        """This process has no part in it any more."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


def pack(record: Record) -> bytes:
    """A record as it is kept: all but its result, which may be long and is there but once."""
    return _encode(replace(record, result=b""))


def unpack(data: bytes, result: bytes = b"") -> Record:
    """A record that was kept, with its result."""
    record = _decode(data)
    record.result = result
    return record


def payer(record: Record) -> str:
    """Under which name a task counts as one of `Limits.tasks_each`: its owner's, or its session's
    where nobody is known; none where there is neither."""
    return (
        f"owner {record.owner}"
        if record.owner
        else f"session {record.session}"
        if record.session
        else ""
    )


def refusal(limits: Limits, all: int, each: int) -> Overloaded | None:
    """Why there may not be one more, where there are so many in all, and so many of one payer."""
    if all >= limits.tasks:
        return Overloaded(
            f"There are too many tasks here; the limit is {limits.tasks}. Try again later"
        )
    if each >= limits.tasks_each:
        return Overloaded(
            f"You have {limits.tasks_each} tasks here, which is the limit; they go when their "
            "time is over"
        )
    return None


def full_bytes(limits: Limits) -> TooLarge:
    """The refusal of what there is no room for."""
    return TooLarge(
        f"There is no room for this task: all of them may take {limits.task_bytes} bytes. Try "
        "again later"
    )


class User(Protocol):
    """Whoever runs the tasks of a store in this process."""

    store: TaskStore

    @property
    def busy(self) -> bool:
        """Whether it does so now."""


_users: WeakValueDictionary[int, User] = WeakValueDictionary()
"""Who used a store last, by its identity."""


def reserve(user: User) -> None:
    """A store is for one at a time: another would take its tasks for such as nobody runs."""
    store = user.store
    other = _users.get(id(store))
    if other is not None and other is not user and other.store is store and other.busy:
        kind = type(store).__name__
        raise ConfigError(
            f"This {kind} is in use by another server of this process; give each a store of its own"
        )
    _users[id(store)] = user


class Row(Struct):
    """A task in memory."""

    number: int
    expires: float
    owner: str
    session: str
    payer: str
    over: bool
    data: bytes
    result: bytes
    released: bool = False

    @property
    def size(self) -> int:
        """The bytes that it counts for."""
        return len(self.data) + len(self.result)


class MemoryStore:
    """Tasks in memory: one process, until it ends. They are kept encoded, so that nobody changes
    them by accident."""

    shared = False

    def __init__(self) -> None:
        self._limits = DEFAULT
        self.forked()
        tell_of_forks(self)

    def forked(self) -> None:
        """In a child there are none: what is here is the parent's."""
        self._lock = Lock()  # servers may run on several loops, in several threads
        self._rows: dict[str, Row] = {}
        self._counts: dict[str, int] = {}
        """How many each payer has."""
        self._bytes = 0
        self._number = 0

    def bind(self, limits: Limits) -> None:
        """The bounds to keep."""
        self._limits = limits

    async def add(self, record: Record) -> None:
        """A new task."""
        who = payer(record)
        with self._lock:
            if self._refusal(who) is not None:
                self._sweep()
            if (refused := self._refusal(who)) is not None:
                raise refused
            self._number += 1
            self._set(record, self._number)
            self._counts[who] = self._counts.get(who, 0) + 1

    async def get(self, id: str) -> Record | None:
        """A task."""
        row = self._rows.get(id)
        return None if row is None or row.expires <= time.time() else unpack(row.data, row.result)

    async def put(self, record: Record) -> bool:
        """A task as it is now."""
        with self._lock:
            row = self._rows.get(record.id)
            if row is None or row.over:
                return False
            self._set(record, row.number)
            return True

    async def remove(self, id: str) -> None:
        """Forget a task."""
        with self._lock:
            self._remove(id)

    async def page(
        self, owner: str, session: str, after: int, count: int
    ) -> list[tuple[int, Record]]:
        """Tasks of one owner and conversation."""
        now, found = time.time(), []
        for row in list(self._rows.values()):
            if (
                row.number > after
                and row.owner == owner
                and session in ("", row.session)
                and row.expires > now
            ):
                found.append((row.number, unpack(row.data)))
                if len(found) == count:
                    break
        return found

    async def release(self, id: str) -> None:
        """Leave a task to whoever claims it."""
        with self._lock:
            if id in self._rows:
                self._rows[id].released = True

    async def claim(self, id: str) -> Record | None:
        """A task that nobody runs."""
        with self._lock:
            row = self._rows.get(id)
            if row is None or row.over or not row.released or row.expires <= time.time():
                return None
            row.released = False
            return unpack(row.data)

    async def orphans(self, *, own: bool, able: Able = whatever) -> list[Record]:
        """There are none but one's own."""
        left = [
            unpack(row.data)
            for row in list(self._rows.values())
            if own and not (row.over or row.released)
        ]
        return [record for record in left if able(record)]

    async def send(self, letter: Letter) -> None:
        """There is nobody else."""

    async def receive(self) -> list[tuple[int, Letter]]:
        """Nobody writes."""
        return []

    async def take(self, number: int) -> None:
        """Nobody writes."""

    async def sweep(self) -> None:
        """Forget what has expired."""
        with self._lock:
            self._sweep()

    async def close(self) -> None:
        """There is nothing to let go of."""

    # under the lock

    def _refusal(self, who: str) -> Overloaded | None:
        return refusal(self._limits, len(self._rows), self._counts.get(who, 0) if who else 0)

    def _set(self, record: Record, number: int) -> None:
        row = Row(
            number,
            record.expires,
            record.owner,
            record.session,
            payer(record),
            record.over,
            pack(record),
            record.result,
        )
        before = self._rows.get(record.id)
        more = row.size - (0 if before is None else before.size)
        if self._bytes + more > self._limits.task_bytes:
            self._sweep(spare=record.id)
        if self._bytes + more > self._limits.task_bytes:
            raise full_bytes(self._limits)
        self._bytes += more
        self._rows[record.id] = row

    def _remove(self, id: str) -> None:
        row = self._rows.pop(id, None)
        if row is not None:
            self._bytes -= row.size
            self._counts[row.payer] -= 1
            if not self._counts[row.payer]:
                del self._counts[row.payer]

    def _sweep(self, spare: str = "") -> None:
        now = time.time()
        for id in [id for id, row in self._rows.items() if row.expires <= now and id != spare]:
            self._remove(id)
