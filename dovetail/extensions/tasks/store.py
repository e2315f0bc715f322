"""What is known of tasks, and where it is kept.

A `Record` is all there is to a task: what was called and by whom, how it stands, what it asked and was answered, what it did
once, and what came of it. Whoever has the record and the server's functions can go on with the task; that is how one is
resumed after a crash, and how an engine of several machines would run it.

A `TaskStore` keeps records. `MemoryStore` is the default and ends with the process; `SqliteStore` (`sqlite.py`) does not. A
store that is `shared` among processes also carries letters: an answer or a cancellation for a task that runs in another one.

What has expired is never given back. There are bounds in number and in bytes (`Limits.tasks`, `tasks_each`, `task_bytes`):
whoever would go beyond them is refused, since a task that was promised is kept for as long as it was promised.
"""

import time
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ...errors import Overloaded, TooLarge
from ...limits import DEFAULT, Limits
from ...protocol.tasks import TERMINAL, Status


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
    runner: str = ""
    """The process that runs it."""
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


class TaskStore(Protocol):
    """Where tasks are kept. Calls may come from several event loops at once."""

    shared: bool
    """Whether other processes, and this one after a restart, find the same tasks in it."""

    @property
    def runner(self) -> str:
        """What this process calls itself there."""

    def bind(self, limits: Limits) -> None:
        """The bounds to keep; called once, before anything else."""

    async def add(self, record: Record) -> None:
        """A new task. It is there for good when this returns; Overloaded where there are too many, TooLarge where there is
        no room for it."""

    async def get(self, id: str) -> Record | None:
        """A task; None where there is none, or not any more."""

    async def put(self, record: Record) -> None:
        """A task as it is now; nothing where it is gone or was over already. TooLarge where there is no room for it, and
        Overloaded where it is worth another attempt."""

    async def remove(self, id: str) -> None:
        """Forget a task."""

    async def page(self, owner: str, session: str, after: int, count: int) -> list[tuple[int, Record]]:
        """Tasks of one owner and of one conversation (of any, where that is empty), oldest first, with their numbers."""

    async def orphans(self) -> list[Record]:
        """Tasks that are not over and that no living process runs; they are this one's from now on."""

    async def send(self, runner: str, letter: Letter) -> None:
        """A letter to another process."""

    async def receive(self) -> list[Letter]:
        """Letters to this one, each of them once."""

    async def sweep(self) -> None:
        """Forget what has expired."""

    async def close(self) -> None:
        """This process has no part in it any more."""


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode


def full(limits: Limits) -> Overloaded:
    """The refusal of one task too many."""
    return Overloaded(f"There are too many tasks here; the limit is {limits.tasks}. Try again later")


def full_each(limits: Limits) -> Overloaded:
    """The refusal of one task too many of one caller."""
    return Overloaded(f"You have {limits.tasks_each} tasks here, which is the limit; they go when their time is over")


def full_bytes(limits: Limits) -> TooLarge:
    """The refusal of what there is no room for."""
    return TooLarge(f"There is no room for this task: all of them may take {limits.task_bytes} bytes. Try again later")


class MemoryStore:
    """Tasks in memory: one process, until it ends. They are kept encoded, so that nobody changes them by accident."""

    shared = False
    runner = "here"

    def __init__(self) -> None:
        self._limits = DEFAULT
        self._rows: dict[str, tuple[int, float, str, str, bool, bytes]] = {}
        """By id: number, expiry, owner, session, whether it is over, all of it."""
        self._owned: dict[str, int] = {}
        self._bytes = 0
        self._number = 0

    def bind(self, limits: Limits) -> None:
        """The bounds to keep."""
        self._limits = limits

    async def add(self, record: Record) -> None:
        """A new task."""
        if len(self._rows) >= self._limits.tasks:
            await self.sweep()
        if len(self._rows) >= self._limits.tasks:
            raise full(self._limits)
        if record.owner and self._owned.get(record.owner, 0) >= self._limits.tasks_each:
            raise full_each(self._limits)
        self._number += 1
        self._set(record, self._number)
        self._owned[record.owner] = self._owned.get(record.owner, 0) + 1

    async def get(self, id: str) -> Record | None:
        """A task."""
        row = self._rows.get(id)
        return None if row is None or row[1] <= time.time() else decode(row[5])

    async def put(self, record: Record) -> None:
        """A task as it is now."""
        row = self._rows.get(record.id)
        if row is not None and not row[4]:
            self._set(record, row[0])

    async def remove(self, id: str) -> None:
        """Forget a task."""
        row = self._rows.pop(id, None)
        if row is not None:
            self._bytes -= len(row[5])
            left = self._owned[row[2]] - 1
            self._owned[row[2]] = left
            if not left:
                del self._owned[row[2]]

    async def page(self, owner: str, session: str, after: int, count: int) -> list[tuple[int, Record]]:
        """Tasks of one owner and conversation."""
        now, found = time.time(), []
        for number, expires, whose, where, _, data in self._rows.values():
            if number > after and whose == owner and (not session or where == session) and expires > now:
                found.append((number, decode(data)))
                if len(found) == count:
                    break
        return found

    async def orphans(self) -> list[Record]:
        """All that is not over: whoever asks knows which of them run."""
        return [decode(row[5]) for row in list(self._rows.values()) if not row[4]]

    async def send(self, runner: str, letter: Letter) -> None:
        """There is nobody else."""

    async def receive(self) -> list[Letter]:
        """Nobody writes."""
        return []

    async def sweep(self) -> None:
        """Forget what has expired."""
        now = time.time()
        for id in [id for id, row in self._rows.items() if row[1] <= now]:
            await self.remove(id)

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _set(self, record: Record, number: int) -> None:
        data = encode(record)
        before = self._rows.get(record.id)
        size = self._bytes + len(data) - (0 if before is None else len(before[5]))
        if size > self._limits.task_bytes:
            raise full_bytes(self._limits)
        self._bytes = size
        self._rows[record.id] = number, record.expires, record.owner, record.session, record.over, data
