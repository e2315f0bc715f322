"""Tasks that a client runs for its server: a question whose answer may take its time, in the core
form of tasks.

A server that adds `task` to `elicitation/create` or `sampling/createMessage` is answered at once
with a task; the question then takes the same road as any other, and its answer waits until the
server fetches it (`tasks/result`) or its time to live is over. There is one server to a client, so
all tasks are that server's, over as many conversations as it takes.
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

import asyncio
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

from msgspec.structs import asdict, replace

from ..errors import DovetailError, InvalidParams, Overloaded, ProtocolError
from ..limits import Limits
from ..ports import Answer, Call
from ..protocol.base import Result
from ..protocol.tasks import (
    RELATED_TASK,
    TERMINAL,
    CoreCreateTaskResult,
    CoreTask,
    CoreTaskResult,
    ListTasksResult,
    Status,
    TaskStatusParams,
)

REQUESTS = {
    "elicitation/create": ("elicitation", "create"),
    "sampling/createMessage": ("sampling", "createMessage"),
}
"""What may be asked as a task, and how that is declared."""
PAGE = 100
"""Tasks on a page of the list."""
DIGITS = 20
"""Fewer than that are in any number of a task."""
POLL = 1000
"""Milliseconds after which it is worth a server's while to look again."""


class Hosted:
    """One question that is being answered, or was."""

    __slots__ = ("expires", "number", "shown", "work")

    def __init__(
        self, number: int, shown: CoreTask, work: "asyncio.Task[Result]", expires: float
    ) -> None:
        self.number, self.shown, self.work, self.expires = number, shown, work, expires

    def become(self, status: Status, message: str | None = None) -> None:
        """The task stands otherwise."""
        self.shown = replace(
            self.shown, status=status, status_message=message, last_updated_at=_now()
        )


class Hosting:
    """The tasks of one client's server."""

    def __init__(self, answers: Mapping[str, Answer], limits: Limits, tasks: bool = True) -> None:
        self._direct = {name: answers[name] for name in REQUESTS if name in answers and tasks}
        self._limits = limits
        self._tasks: dict[str, Hosted] = {}
        self._numbers = count(1)
        own: dict[str, Answer] = {
            "tasks/get": self._get,
            "tasks/result": self._result,
            "tasks/list": self._list,
            "tasks/cancel": self._cancel,
        }
        asked: dict[str, Answer] = dict.fromkeys(self._direct, self._ask)
        self.answers: dict[str, Answer] = (
            {**answers, **asked, **own} if self._direct else dict(answers)
        )
        """What this client answers, as a task where it is asked so."""

    @property
    def capability(self) -> dict[str, Any] | None:
        """What is declared of it."""
        if not self._direct:
            return None
        requests: dict[str, Any] = {}
        for name in self._direct:
            feature, verb = REQUESTS[name]
            requests[feature] = {verb: {}}
        return {"list": {}, "cancel": {}, "requests": requests}

    def close(self) -> None:
        """The client closes: nobody will fetch the answers."""
        for task in self._tasks.values():
            task.work.cancel()
        self._tasks.clear()

    async def _ask(self, call: Call) -> Result:
        wanted = call.params.task
        if wanted is None or "tasks/result" not in call.revision.methods:
            return await self._answer(call)
        self._sweep()
        if len(self._tasks) >= self._limits.tasks_each:
            raise Overloaded(
                f"This client keeps {self._limits.tasks_each} tasks, which is the limit"
            )
        loop, life, now = asyncio.get_running_loop(), self._life(wanted), _now()
        shown = CoreTask(
            task_id=secrets.token_urlsafe(16),
            status="working",
            created_at=now,
            last_updated_at=now,
            ttl=round(life * 1000),
            poll_interval=POLL,
        )
        work = loop.create_task(self._answer(call))
        task = self._tasks[shown.task_id] = Hosted(
            next(self._numbers), shown, work, loop.time() + life
        )
        work.add_done_callback(lambda _: self._ended(task, call))
        return CoreCreateTaskResult(task=shown)

    async def _answer(self, call: Call) -> Result:
        result: Result = await self._direct[call.method.name](call)
        return result

    def _ended(self, task: Hosted, call: Call) -> None:
        cancelled = task.work.cancelled()
        problem = None if cancelled else task.work.exception()
        if task.shown.status in TERMINAL or task.shown.task_id not in self._tasks:
            return
        status: Status = "cancelled" if cancelled else "completed" if problem is None else "failed"
        task.become(status, None if problem is None else _told(problem))
        try:
            call.connection.notify(
                "notifications/tasks/status", TaskStatusParams(**asdict(task.shown))
            )
        except DovetailError:
            pass  # the conversation is over; another may come and look

    def _life(self, wanted: Any) -> float:
        """How long a task is kept: as the server wishes, within bounds."""
        ttl = wanted.get("ttl") if isinstance(wanted, dict) else None
        if not isinstance(ttl, int | float) or isinstance(ttl, bool) or not ttl > 0:
            return self._limits.task_life
        return min(ttl, self._limits.task_life_max * 1000) / 1000

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for id, task in list(self._tasks.items()):
            if task.expires <= now:
                task.work.cancel()
                del self._tasks[id]

    def _found(self, call: Call) -> Hosted:
        self._sweep()
        task = self._tasks.get(call.params.task_id)
        if task is None:
            raise InvalidParams(f"There is no task {call.params.task_id!r}, or not any more")
        return task

    async def _get(self, call: Call) -> CoreTaskResult:
        return CoreTaskResult(**asdict(self._found(call).shown))

    async def _list(self, call: Call) -> ListTasksResult:
        self._sweep()
        last = _number(call.params.cursor)
        rest = [task for task in self._tasks.values() if task.number > last]
        more = str(rest[PAGE - 1].number) if len(rest) > PAGE else None
        return ListTasksResult(tasks=[task.shown for task in rest[:PAGE]], next_cursor=more)

    async def _cancel(self, call: Call) -> CoreTaskResult:
        task = self._found(call)
        if task.shown.status in TERMINAL:
            raise InvalidParams(
                f"Task {task.shown.task_id} cannot be cancelled: it is {task.shown.status}"
            )
        task.become("cancelled", "The server cancelled it")
        task.work.cancel()
        return CoreTaskResult(**asdict(task.shown))

    async def _result(self, call: Call) -> Result:
        task = self._found(call)
        await asyncio.wait([task.work])
        if task.work.cancelled() or task.shown.status == "cancelled":
            raise InvalidParams(f"Task {task.shown.task_id} was cancelled")
        result = task.work.result()  # or the error that it came to, which is the answer then
        return replace(
            result, meta={**(result.meta or {}), RELATED_TASK: {"taskId": task.shown.task_id}}
        )


def _number(cursor: str | None) -> int:
    """The task that a page comes after, which need not be there any more."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < DIGITS):
        raise InvalidParams(f"{cursor!r} is not a cursor of this list; ask again without one")
    return int(cursor)


def _told(problem: BaseException) -> str:
    """What a server may know of a failure: the same as an error would tell it."""
    return str(problem) if isinstance(problem, ProtocolError) else type(problem).__name__


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
