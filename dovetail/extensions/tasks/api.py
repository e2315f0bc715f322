"""The server side of tasks: the extension and the request handlers for both forms.

A call to a tool that may run as a task (`TaskSupport`) becomes a task if the caller supports tasks.
The extension form is used if the caller declared the extension, and the core form if the call
itself asks for a task. The record is stored before the call is answered with the task. Then the
tool's function runs as usual, with the same context (`RunningTask`). In the extension form, a tool
that detaches itself has all the features of a plain call until it detaches. Its previous answers
and `ctx.once` results are transferred to the task. In the core form, a caller that asks for a task
always receives a task.

A task belongs to the principal that started it, and is invisible to all other principals. If
callers are anonymous, a task is protected only by its id, which cannot be guessed. Tasks are listed
only for callers that can be told apart, by principal or by session. So `tasks/get` may find a task
from another session that `tasks/list` does not show. This behaviour deliberately departs from a
MUST in the specification of the core form. If the id were not enough, nobody could return to a task
after a restart, because its session no longer exists.

After a crash, the next process to start takes over the tasks that were running. A resumable task
runs again from the beginning, with its answers and `ctx.once` results. Any other task fails.
https://modelcontextprotocol.io/seps/2663-tasks-extension
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from ...connection.extension import Extension, has_declared, missing_extension
from ...connection.input_requests import QUESTIONS, ask_over_back_channel
from ...errors import ConfigError, InvalidParams, MethodNotFound, Overloaded, ToolError
from ...logs import get_logger
from ...ports import Call, CallHandler
from ...protocol.base import EmptyResult
from ...protocol.methods import TASKS_EXTENSION_METHODS
from ...protocol.tasks import (
    EXTENSION,
    RELATED_TASK,
    CoreTask,
    CoreTaskResult,
    DetailedTask,
    ListTasksResult,
)
from ...revisions import decode
from .manager import TaskManager
from .running_task import RunningTask, background
from .settings import TaskSettings, TaskSupport
from .signals import CHANGE, TaskWaiter
from .store import TaskMessage, TaskRecord, TaskStore
from .wire import (
    decode_cursor,
    describe,
    encode_cursor,
    get_outcome,
    make_core_task,
    make_created_result,
    make_detailed_task,
    owner_of,
)

if TYPE_CHECKING:
    from ...connection.instrumentation import Attributes

log = get_logger("tasks")

PAGE_SIZE = 100
"""The number of tasks per page of `tasks/list`."""
CORE_CAPABILITY: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
"""The capability that a server declares for tasks in the core form."""

TasksOption: TypeAlias = "str | os.PathLike[str] | TaskStore | TaskSettings | None"
"""The values that `Server(tasks=…)` accepts."""


class ServerTasks:
    """A server's tasks, as its callers see them."""

    def __init__(self, manager: TaskManager) -> None:
        self.manager, self._limits = manager, manager.limits
        self.extension = Extension(
            id=EXTENSION,
            methods=TASKS_EXTENSION_METHODS,
            handlers={
                "tasks/get": self.get,
                "tasks/update": self.update,
                "tasks/cancel": self.cancel,
            },
            instead={"tools/call": self.begin, "subscriptions/listen": self.listen},
            handshake=False,
        )
        self.core_handlers: Mapping[str, CallHandler] = {
            "tasks/result": self.result,
            "tasks/list": self.list,
        }
        """The methods that exist only in the core form. The extension's methods work in both
        forms."""

    def series(self) -> "Mapping[str, Mapping[Attributes, float]]":
        """Return the metrics of this process: for each instrument, its values by attributes."""
        counts = self.manager.counts
        return {
            "mcp.tasks.waiting": {(): counts.waiting},
            "mcp.tasks.running": {(): counts.running},
            "mcp.tasks.taken_over": {(): counts.taken_over},
        }

    async def perform(self, id: str) -> None:
        """Run a stored task to completion. An engine that runs tasks in other processes calls this
        method.

        Args:
            id: The id of the task. Nothing happens if the task has finished, or if a process is
                already running it.
        """
        await self.manager.perform(id)

    # starting a task

    async def begin(self, call: Call, next: CallHandler) -> Any:
        """Answer `tools/call` with a task, or pass it on as a plain call."""
        support = self.manager.support_of(call.params.name)
        if support is None or not call.params.has_object or not _becomes_task(call, support):
            return await next(call)  # also if it is malformed, to be refused like any other call
        if support.detaches and call.revision.stateless:
            return await self._run_until_detached(call, next, support)
        record = await self.manager.begin(call, support, next)
        call.progress = None  # the task reports its own; no cycle
        return make_created_result(record, self._limits, call.revision)

    async def _run_until_detached(self, call: Call, next: CallHandler, support: TaskSupport) -> Any:
        loop = asyncio.get_running_loop()
        detached: asyncio.Future[RunningTask] = loop.create_future()

        async def detach(current: Call) -> Call:
            task = await self.manager.detach(current, support, next, running)
            detached.set_result(task)
            return task.call

        async def run() -> Any:
            try:
                outcome: Any = await next(call)
            except BaseException as error:
                if not detached.done():
                    raise
                outcome = error
            if detached.done():
                return await self.manager.end(detached.result(), outcome)
            return outcome

        call.detach = detach
        running = background.start(run())
        try:
            await asyncio.wait((running, detached), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not detached.done():
                running.cancel()  # does nothing if it is done
        if detached.done():
            return make_created_result(detached.result().record, self._limits, call.revision)
        return await running

    # requests about a task

    async def get(self, call: Call) -> Any:
        """Answer `tasks/get` with the status of a task."""
        record = await self._own_task(call)
        if record.over:
            log.info("The outcome of task %s was fetched", describe(record))
        if call.revision.stateless:
            return make_detailed_task(DetailedTask, record, self._limits, call.revision)
        return make_core_task(CoreTaskResult, record, self._limits)

    async def update(self, call: Call) -> EmptyResult:
        """Accept the answers in `tasks/update`. Answers to questions that were not asked are
        ignored."""
        record = await self._own_task(call)
        if not record.over:
            answers = {key: bytes(raw) for key, raw in call.params.input_responses.items()}
            await self.manager.deliver(record, TaskMessage(record.id, answers))
        return EmptyResult()

    async def cancel(self, call: Call) -> Any:
        """Cancel a task (`tasks/cancel`)."""
        record = await self._own_task(call)
        was_over = record.over
        if not was_over:
            await self.manager.cancel(record)
        if call.revision.stateless:
            return EmptyResult()
        task = make_core_task(CoreTaskResult, await self._own_task(call), self._limits)
        if was_over or task.status != "cancelled":  # it may have ended just before
            raise InvalidParams(
                f"The task {record.id} cannot be cancelled: it is already {task.status}",
                parameter="taskId",
            )
        return task

    async def list(self, call: Call) -> ListTasksResult:
        """Answer `tasks/list` with the caller's tasks."""
        owner, session = owner_of(call), call.caller.session_id
        if not owner and not session:
            raise MethodNotFound(
                "This server does not support tasks/list, because it cannot tell its callers apart"
            )
        after = decode_cursor(call.params.cursor)
        rows = await self.manager.store.list_page(
            owner, "" if owner else session, after, PAGE_SIZE + 1
        )
        page = rows[:PAGE_SIZE]
        return ListTasksResult(
            tasks=[
                make_core_task(CoreTask, self.manager.newest(record), self._limits)
                for _, record in page
            ],
            next_cursor=encode_cursor(page[-1][0]) if len(rows) > PAGE_SIZE else None,
        )

    async def listen(self, call: Call, next: CallHandler) -> Any:
        """Limit the tasks in a `subscriptions/listen` request to the caller's tasks."""
        wanted = call.params.notifications
        if wanted.task_ids is None:
            return await next(call)
        if not has_declared(call, EXTENSION):
            raise missing_extension("Listening to tasks", EXTENSION)
        if len(wanted.task_ids) > self._limits.subscriptions:
            raise Overloaded(f"A subscription may name at most {self._limits.subscriptions} tasks")
        known = [id for id in {*wanted.task_ids} if await self._find(call, id) is not None]
        call.params = replace(call.params, notifications=replace(wanted, task_ids=known or None))
        with self.manager.listening(known):
            return await next(call)

    async def _find(self, call: Call, id: str) -> TaskRecord | None:
        record = await self.manager.find(id)
        return None if record is None or record.owner != owner_of(call) else record

    async def _own_task(self, call: Call) -> TaskRecord:
        record = await self._find(call, call.params.task_id)
        if record is None:
            log.info(
                "%s from %s refers to an unknown task",
                call.name,
                owner_of(call) or "an anonymous caller",
            )
            raise InvalidParams(
                f"There is no task with the id {call.params.task_id!r}; it may have expired",
                parameter="taskId",
            )
        return record

    # the core form: the result, and the questions before it

    async def result(self, call: Call) -> Any:
        """Answer `tasks/result`: wait until the task finishes, ask the client the task's questions
        in the meantime, and return the outcome."""
        with self.manager.signals.waiting(CHANGE, call.params.task_id) as waiter:
            record = await self._wait_for_end(call, waiter)
        log.info("The outcome of task %s was fetched", describe(record))
        return get_outcome(record, call.revision)

    async def _wait_for_end(self, call: Call, waiter: TaskWaiter) -> TaskRecord:
        record = await self._own_task(call)
        loop = asyncio.get_running_loop()
        task = self.manager.running.get(record.id)
        if task is not None and task.loop is loop:  # another loop must not write to this stream
            task.result_call = call
        asking: dict[str, asyncio.Task[None]] = {}
        try:
            while not record.over:
                for key in record.questions.keys() - asking.keys():
                    if (record.id, key) not in self.manager.asking:
                        self.manager.asking.add((record.id, key))
                        asking[key] = loop.create_task(self._ask(call, record, key))
                for key in asking.keys() - record.questions.keys():
                    asking.pop(key).cancel()
                for question in asking.values():
                    if question.done():
                        question.result()  # raises if a question cannot be asked
                await self.manager.wait_for_change(record.id, waiter)
                record = await self._own_task(call)
        finally:
            for question in asking.values():
                question.cancel()
            if asking:
                await asyncio.wait(asking.values())  # withdraw questions before the stream ends
            if task is not None and task.result_call is call:
                task.result_call = None
        return record

    async def _ask(self, call: Call, record: TaskRecord, key: str) -> None:
        """Send a task's question to the client that is waiting for the result."""
        name, raw = record.questions[key]
        params = decode(raw, QUESTIONS[name].params)
        params.meta = {**(params.meta or {}), RELATED_TASK: {"taskId": record.id}}
        try:
            answer = await ask_over_back_channel(call, name, params)
            await self.manager.deliver(record, TaskMessage(record.id, {key: bytes(answer)}))
        except (ToolError, InvalidParams) as error:
            await self.manager.deliver(record, TaskMessage(record.id, refused={key: str(error)}))
        finally:
            self.manager.asking.discard((record.id, key))
            # If it was not answered, another waiting client may be asked.
            self.manager.signal_change(record.id)


def task_settings(option: TasksOption) -> TaskSettings:
    """Return the settings for the value of `Server(tasks=…)`; raise ConfigError if it is
    invalid."""
    if isinstance(option, TaskSettings):
        return option
    if isinstance(option, str | os.PathLike):
        from .sqlite import SqliteStore

        return TaskSettings(store=SqliteStore(option))
    if option is not None and not hasattr(option, "claim_orphans"):
        raise ConfigError(
            f"tasks={option!r} must be a file path, a TaskStore, or TaskSettings(store=…, engine=…)"
        )
    return TaskSettings(store=option)


def _becomes_task(call: Call, support: TaskSupport) -> bool:
    """Return whether this call becomes a task; raise an error if the caller and the tool
    disagree."""
    name, required, forbidden = (
        call.params.name,
        support.mode == "required",
        support.mode == "forbidden",
    )
    if call.revision.stateless:
        declared = has_declared(call, EXTENSION)
        if required and not declared:
            raise missing_extension(f"Running the tool {name!r} as a task", EXTENSION)
        return declared and not forbidden
    task = call.params.task
    is_requested = task is not None and "tasks/get" in call.revision.methods
    if is_requested and not isinstance(task, dict):
        raise InvalidParams(f"task must be an object, not {task!r}", parameter="task")
    if is_requested and forbidden:
        raise MethodNotFound(f"Tool {name!r} cannot run as a task; call it without `task`")
    if required and not is_requested:
        raise MethodNotFound(f"Tool {name!r} runs only as a task; call it with `task`")
    return is_requested
