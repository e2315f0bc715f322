"""Tasks in the core form that a client runs for its server: questions that may take a long time to
answer.

If a server adds `task` to `elicitation/create` or `sampling/createMessage`, the client replies
immediately with a task. It then handles the question like any other, and keeps the answer until the
server fetches it (`tasks/result`) or the task expires. A client has only one server, so all of its
tasks belong to that server, even across connections.
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

import asyncio
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..errors import DovetailError, InvalidParams, Overloaded, ProtocolError
from ..limits import Limits
from ..ports import Call, CallHandler
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

TASK_METHODS = ("elicitation/create", "sampling/createMessage")
"""The requests that can run as tasks."""
PAGE_SIZE = 100
"""The number of tasks on each page of `tasks/list`."""
MAX_CURSOR_DIGITS = 19
POLL_MILLISECONDS = 1000
"""The poll interval that is proposed to the server."""


class ClientTask(Struct, eq=False):
    """A question that is being answered, or has been answered."""

    number: int
    state: CoreTask
    answering: "asyncio.Future[Result]"
    expires: float

    def set_status(self, status: Status, message: str | None = None) -> None:
        """Set the status and the time of the last change."""
        self.state = replace(
            self.state, status=status, status_message=message, last_updated_at=_now()
        )


class ClientTasks:
    """The tasks that one client runs for its server."""

    def __init__(self, answers: Mapping[str, CallHandler], limits: Limits, enabled: bool) -> None:
        self._handlers = {
            name: answers[name] for name in TASK_METHODS if name in answers and enabled
        }
        """The handlers for the requests that can run as tasks."""
        self._limits = limits
        self._tasks: dict[str, ClientTask] = {}
        self._numbers = count(1)
        self.answers: dict[str, CallHandler] = dict(answers)
        """The handlers of this client, including those for tasks."""
        if self._handlers:
            self.answers |= dict.fromkeys(self._handlers, self._start_or_answer)
            self.answers |= {
                "tasks/get": self._get,
                "tasks/result": self._result,
                "tasks/list": self._list,
                "tasks/cancel": self._cancel,
            }

    @property
    def capability(self) -> dict[str, Any] | None:
        """The `tasks` capability to declare; None if no request can run as a task."""
        if not self._handlers:
            return None
        requests: dict[str, Any] = {}
        for name in self._handlers:
            feature, verb = name.split("/")
            requests[feature] = {verb: {}}
        return {"list": {}, "cancel": {}, "requests": requests}

    def close(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks.values():
            task.answering.cancel()
        self._tasks.clear()

    async def _start_or_answer(self, call: Call) -> Result:
        answer, wanted = self._handlers[call.method.name], call.params.task
        if wanted is None or "tasks/result" not in call.revision.methods:
            return await answer(call)  # type: ignore[no-any-return]
        self._remove_expired()
        if len(self._tasks) >= self._limits.tasks_each:
            raise Overloaded(
                f"This client already has {self._limits.tasks_each} tasks, which is the limit"
            )
        life, now = self._lifetime(wanted), _now()
        state = CoreTask(
            task_id=secrets.token_urlsafe(16),
            status="working",
            created_at=now,
            last_updated_at=now,
            ttl=round(life * 1000),
            poll_interval=POLL_MILLISECONDS,
        )
        answering: asyncio.Future[Result] = asyncio.ensure_future(answer(call))
        task = ClientTask(next(self._numbers), state, answering, monotonic() + life)
        self._tasks[state.task_id] = task
        answering.add_done_callback(lambda _: self._on_answered(task, call))
        return CoreCreateTaskResult(task=state)

    def _on_answered(self, task: ClientTask, call: Call) -> None:
        cancelled = task.answering.cancelled()
        problem = None if cancelled else task.answering.exception()
        if task.state.status in TERMINAL or task.state.task_id not in self._tasks:
            return
        if problem is not None:
            task.set_status("failed", _public_message(problem))
        else:
            task.set_status("cancelled" if cancelled else "completed")
        try:
            call.connection.notify(
                "notifications/tasks/status", TaskStatusParams(**asdict(task.state))
            )
        except DovetailError:
            pass  # the connection is closed; the server may ask on another one

    def _lifetime(self, wanted: Any) -> float:
        """Return how long to keep a task, in seconds: the time that the server requests, within the
        limits."""
        ttl = wanted.get("ttl") if isinstance(wanted, dict) else None
        if not isinstance(ttl, int | float) or isinstance(ttl, bool) or not ttl > 0:
            return self._limits.task_life
        return min(ttl, self._limits.task_life_max * 1000) / 1000

    def _remove_expired(self) -> None:
        now = monotonic()
        for id, task in list(self._tasks.items()):
            if task.expires <= now:
                task.answering.cancel()
                del self._tasks[id]

    def _find(self, call: Call) -> ClientTask:
        self._remove_expired()
        task = self._tasks.get(call.params.task_id)
        if task is None:
            raise InvalidParams(
                f"There is no task with the id {call.params.task_id!r}; it may have expired",
                parameter="taskId",
            )
        return task

    async def _get(self, call: Call) -> CoreTaskResult:
        return CoreTaskResult(**asdict(self._find(call).state))

    async def _list(self, call: Call) -> ListTasksResult:
        self._remove_expired()
        last = _number_before(call.params.cursor)
        rest = [task for task in self._tasks.values() if task.number > last]
        cursor = str(rest[PAGE_SIZE - 1].number) if len(rest) > PAGE_SIZE else None
        return ListTasksResult(tasks=[task.state for task in rest[:PAGE_SIZE]], next_cursor=cursor)

    async def _cancel(self, call: Call) -> CoreTaskResult:
        task = self._find(call)
        if task.state.status in TERMINAL:
            raise InvalidParams(
                f"Task {task.state.task_id} cannot be cancelled: it is already {task.state.status}",
                parameter="taskId",
            )
        task.set_status("cancelled", "Cancelled by the server")
        task.answering.cancel()
        return CoreTaskResult(**asdict(task.state))

    async def _result(self, call: Call) -> Result:
        task = self._find(call)
        await asyncio.wait([task.answering])
        if task.answering.cancelled() or task.state.status == "cancelled":
            raise InvalidParams(f"Task {task.state.task_id} was cancelled", parameter="taskId")
        result = task.answering.result()  # raises the error of a failed task
        return replace(
            result, meta={**(result.meta or {}), RELATED_TASK: {"taskId": task.state.task_id}}
        )


def _number_before(cursor: str | None) -> int:
    """Return the number of the last task before a page. That task may no longer exist."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= MAX_CURSOR_DIGITS):
        raise InvalidParams(
            f"{cursor!r} is not a valid cursor; request the list again without one",
            parameter="cursor",
        )
    return int(cursor)


def _public_message(problem: BaseException) -> str:
    """Describe a failure in words that are safe to send to the server."""
    return str(problem) if isinstance(problem, ProtocolError) else type(problem).__name__


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
