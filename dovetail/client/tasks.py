"""Start tasks on a server, and wait for them.

    call ─→ result                                    most calls
         └→ task ─→ poll, wait, poll again ─→ over ─→ its result, or the error that it failed with
                     └→ it asks: the callbacks answer, as for any question, and the answers are sent

Both forms work this way. In the extension form, the state of a task contains its questions
and its outcome, and answers are sent with `tasks/update`. In the core form (handshake era),
`tasks/result` stays open while the client polls, so that questions can arrive, and then returns the
result. A notification saves a poll, but nothing relies on notifications.

`call_tool` cancels the task if it stops waiting. A `TaskHandle` (`task_handle.py`) leaves this
decision to its user.

https://modelcontextprotocol.io/seps/2663-tasks-extension
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..aio import TaskSet
from ..connection.connection import OnProgress
from ..connection.extension import Extension, ResultKind, settings_of
from ..connection.notifications import run_callback
from ..errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    NotFound,
    TaskCancelled,
)
from ..ports import Call
from ..protocol.base import PROGRESS_TOKEN
from ..protocol.content import Content
from ..protocol.lifecycle import ProgressParams
from ..protocol.methods import METHODS, TASKS_EXTENSION_METHODS, Method
from ..protocol.tasks import (
    EXTENSION,
    RELATED_TASK,
    TERMINAL,
    CoreTask,
    CreateTaskResult,
    DetailedTask,
    TaskForm,
    TaskParams,
    UpdateTaskParams,
)
from ..protocol.tools import CallToolParams, ToolResult
from ..protocol.utilities import ListenParams, SubscriptionFilter
from ..revisions import decode, error_from_wire
from .reconnect import TRANSIENT_ERRORS, Connector, backoff
from .task_handle import TaskHandle, TaskUpdate, WaitDeadline

LISTEN_SECONDS = 1.0
"""The shortest poll interval at which the client subscribes to changes."""


class TaskOrResult(ToolResult, kw_only=True):
    """The reply, in the core form, to a call that asked for a task: the task or the result."""

    content: list[Content] = []
    task: CoreTask | None = None


CALL_AS_TASK = Method("tools/call", "client", CallToolParams, TaskOrResult, "tools", asks=True)


class RemoteTasks:
    """The server's tasks that one client has started or follows."""

    def __init__(
        self,
        connector: Connector,
        request: Callable[..., Awaitable[Any]],
        check_result: Callable[[str, ToolResult, bool], ToolResult],
        enabled: bool,
    ) -> None:
        self.connector, self.limits, self.check_result = connector, connector.limits, check_result
        self._request, self._enabled = request, enabled
        self._handles: WeakValueDictionary[str | int, TaskHandle] = WeakValueDictionary()
        """Handles by task id and by progress token."""
        self._cancelling = TaskSet()
        self.extension = Extension(
            id=EXTENSION,
            methods=TASKS_EXTENSION_METHODS,
            handlers={"notifications/tasks": self._on_task_changed},
            kinds={"task": ResultKind(CreateTaskResult, self._finish_call)},
            handshake=False,
        )

    # starting

    @property
    def supports_core(self) -> bool:
        """Whether tools can be called as tasks in the core form."""
        session = self.connector.session
        if (
            not self._enabled
            or session is None
            or "tasks/result" not in session.agreed_revision.methods
        ):
            return False
        capability: Any = session.server_capabilities.tasks
        for key in ("requests", "tools", "call"):
            capability = capability.get(key) if isinstance(capability, dict) else None
        return capability is not None

    def as_task(self, params: CallToolParams, ttl: float | None) -> tuple[CallToolParams, str]:
        """Return the params, in the core form, for a call that asks for a task, and its progress
        token."""
        token = secrets.token_hex(8)
        task = {} if ttl is None else {"ttl": round(ttl * 1000)}
        meta = {**(params.meta or {}), PROGRESS_TOKEN: token}
        return replace(params, task=task, meta=meta), token

    @property
    def form(self) -> TaskForm:
        """The form of tasks that the server offers; empty if it offers none."""
        session = self.connector.session
        if self.supports_core:
            return "core"
        if session is None or not session.agreed_revision.stateless or not self._enabled:
            return ""
        return "" if settings_of(EXTENSION, session.server_capabilities) is None else "extension"

    def started(
        self, result: ToolResult | CreateTaskResult, token: str = "", manual: bool = False
    ) -> TaskHandle | None:
        """Return a handle if the server runs the call as a task, and None otherwise."""
        task = result.task if isinstance(result, TaskOrResult) else result
        if not isinstance(task, CoreTask | CreateTaskResult):
            return None
        handle = self.handle(task.task_id, manual)
        if task.status not in TERMINAL:  # otherwise a poll is needed to get its outcome
            handle._on_state(as_detailed(task))
        if token:
            self._handles[token] = handle
        return handle

    def handle(self, id: str, manual: bool = False) -> TaskHandle:
        """Return the handle for a task: the same object for as long as it is in use."""
        handle = self._handles.get(id)
        if handle is None or handle.manual != manual:
            handle = self._handles[id] = TaskHandle(self, id, manual)
        return handle

    # waiting

    async def wait_as_call(
        self, handle: TaskHandle, timeout: float | None, on_progress: OnProgress | None
    ) -> ToolResult:
        """Wait for a task as for a call, and cancel the task if the wait ends early.

        Every poll shows that the server is alive. So if `timeout` is None, only the total time is
        limited (`Limits.timeout_max`), not the time between two updates.
        """
        total = max(timeout or 0, self.limits.timeout_max)
        nothing: tuple[Any, ...] = (None, None, None)
        last, count = nothing, 0

        def report(update: TaskUpdate) -> None:
            nonlocal last, count
            news = update.message, update.progress, update.total
            if on_progress is not None and news not in (last, nothing):
                last, count = news, count + 1
                run_callback(on_progress, _as_progress(handle.id, update, count))

        try:
            return await handle._wait(WaitDeadline(timeout, total), report)
        except BaseException as problem:
            if not handle.over and not isinstance(problem, NotFound):
                self._cancel_in_background(handle.id)
            raise

    async def _finish_call(self, client: Any, params: Any, created: CreateTaskResult) -> ToolResult:
        if not isinstance(params, CallToolParams):
            raise InvalidRequest(
                "The server returned a task for a request that cannot run as a task"
            )
        handle = self.started(created)
        assert handle is not None
        return await self.wait_as_call(handle, None, client._on_progress)

    def is_transient(self, problem: DovetailError) -> bool:
        """Return whether the next poll may succeed after this error."""
        lost = isinstance(problem, ConnectionClosed | ConnectFailed)
        return isinstance(problem, TRANSIENT_ERRORS) and (self.connector.can_reconnect or not lost)

    async def fetch(self, id: str) -> DetailedTask:
        """Fetch the state of a task with `tasks/get`."""
        try:
            task = await self._request("tasks/get", TaskParams(task_id=id))
        except InvalidParams as unknown:
            raise NotFound(
                unknown.code,
                f"Task {id} does not exist, or the server has deleted it: {unknown.message}",
            ) from None
        if task.task_id != id:
            raise InvalidRequest(f"The server returned task {task.task_id} instead of {id}")
        return as_detailed(task)

    async def send_answers(self, id: str, answers: dict[str, Raw]) -> None:
        """Send answers with `tasks/update`; raise an error if the server does not accept them."""
        await self._request("tasks/update", UpdateTaskParams(task_id=id, input_responses=answers))

    @asynccontextmanager
    async def background_request(
        self, handle: TaskHandle
    ) -> "AsyncIterator[asyncio.Task[ToolResult] | None]":
        """Run the request that accompanies polling. In the core form, this request is
        `tasks/result`, which is yielded. In the extension form, it is `subscriptions/listen`, if
        the polls are far apart."""

        def on_done(task: "asyncio.Task[Any]") -> None:
            if not task.cancelled():
                task.exception()  # mark it as retrieved, in case nothing awaits it
                handle._wake()

        is_core = not (await self.connector.get_session()).agreed_revision.stateless
        work = self.fetch_result(handle.id, handle.parent) if is_core else self._listen(handle)
        task: asyncio.Task[Any] = asyncio.create_task(work)
        task.add_done_callback(on_done)
        try:
            yield task if is_core else None
        finally:
            task.cancel()

    async def fetch_result(self, id: str, parent: Any = None) -> ToolResult:
        """Send `tasks/result`, whose answer may arrive only when the task ends. The questions that
        arrive in the meantime carry this `parent`."""
        request = partial(
            self._request,
            "tasks/result",
            TaskParams(task_id=id),
            timeout=self.limits.timeout_max,
            parent=parent,
        )
        for failures in range(self.limits.restarts):
            try:
                return await request()  # type: ignore[no-any-return]
            except TRANSIENT_ERRORS as problem:
                if not self.is_transient(problem):
                    raise
            await asyncio.sleep(backoff(failures + 1))
        return await request()  # type: ignore[no-any-return]

    async def _listen(self, handle: TaskHandle) -> None:
        """Subscribe to a task as soon as a subscription would save polls. If the server does not
        support it, polling is enough."""
        for _ in range(self.limits.restarts):
            while handle._poll_seconds < LISTEN_SECONDS:  # noqa: ASYNC110  (not worth an event)
                await asyncio.sleep(LISTEN_SECONDS)
            try:
                await self.listen([handle.id])
            except DovetailError as problem:
                if not self.is_transient(problem):
                    return
            await asyncio.sleep(LISTEN_SECONDS)

    async def listen(self, ids: list[str]) -> None:
        """Subscribe to the changes of tasks in the extension form, until the server ends the
        subscription."""
        params = ListenParams(notifications=SubscriptionFilter(task_ids=ids))
        session = await self.connector.get_session()
        await session.request(METHODS["subscriptions/listen"], params, timeout=None)

    async def fetch_outcome(self, state: DetailedTask | None) -> ToolResult:
        """Return the result of a task that is over; raise an error if it failed or was
        cancelled."""
        assert state is not None
        if state.status == "cancelled":
            raise TaskCancelled(f"Task {state.task_id} was cancelled{_status_message(state)}")
        if not (await self.connector.get_session()).agreed_revision.stateless:
            return await self.fetch_result(state.task_id)
        if state.status == "failed":
            raise _failure(state)
        try:
            result: ToolResult = decode(state.result, ToolResult)
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(
                f"The result of task {state.task_id} is not valid: {problem}"
            ) from None
        return result

    # cancelling

    async def cancel(self, id: str) -> None:
        """Cancel a task, unless it is already over."""
        try:
            await self._request("tasks/cancel", TaskParams(task_id=id))
        except InvalidParams:
            # The core form refuses to cancel a task that is over. An unknown task is an error.
            await self.fetch(id)

    def _cancel_in_background(self, id: str) -> None:
        async def cancel() -> None:
            try:
                await self._request(
                    "tasks/cancel", TaskParams(task_id=id), timeout=self.limits.shutdown
                )
            except DovetailError:
                pass  # the task was already over, or expires on its own

        if self.connector.session is not None:
            self._cancelling.start(cancel())

    async def close(self) -> None:
        """Wait for the cancellations that are in progress."""
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=self.limits.shutdown)

    # notifications

    async def _on_task_changed(self, call: Call) -> None:
        self.on_notification(call.method.name, call.params)

    def on_notification(self, method: str, params: Any) -> None:
        """Handle a notification about a task or its progress."""
        self.connector.callbacks.on_task_notification(params)
        if isinstance(params, ProgressParams):
            handle = self._handles.get(params.progress_token)
            if handle is not None:
                handle._on_progress(params)
        elif (handle := self._handles.get(params.task_id)) is not None:
            state = as_detailed(params)
            if method != "notifications/tasks" or _is_complete(state):
                handle._on_state(state)
            handle._wake()  # if the notification is incomplete, poll


def _is_complete(state: DetailedTask) -> bool:
    """Return whether a notification contains everything that `tasks/get` would return."""
    required = {
        "completed": bytes(state.result),
        "failed": state.error,
        "input_required": state.input_requests,
    }
    return bool(required.get(state.status, True))


def _status_message(state: DetailedTask) -> str:
    return f": {state.status_message}" if state.status_message else ""


_EXTENSION_NAMES = {"ttl": "ttl_ms", "poll_interval": "poll_interval_ms"}
"""The fields that have a different name in the core form."""


def as_detailed(task: Any) -> DetailedTask:
    """Convert a task of either form to the extension form."""
    if isinstance(task, DetailedTask):
        return task
    kind: type[Struct] = type(task)
    return DetailedTask(**{name: getattr(task, source) for name, source in _detailed_fields(kind)})


@cache
def _detailed_fields(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    """Return the fields of DetailedTask that a type has too, each with its name in that type."""
    names = ((_EXTENSION_NAMES.get(name, name), name) for name in kind.__struct_fields__)
    return tuple(pair for pair in names if pair[0] in DetailedTask.__struct_fields__)


def _failure(state: DetailedTask) -> DovetailError:
    fields = state.error or {}
    code, message = fields.get("code"), fields.get("message")
    if not isinstance(code, int) or not isinstance(message, str):
        said = _status_message(state)
        return InternalError(f"Task {state.task_id} failed without an error{said}")
    return error_from_wire("tools/call", code, message, fields.get("data"))


def _as_progress(id: str, update: TaskUpdate, count: int) -> ProgressParams:
    """Convert a task update to progress. If the update has no number, the progress is the number of
    updates."""
    return ProgressParams(
        progress_token=id,
        progress=float(count) if update.progress is None else update.progress,
        total=update.total,
        message=update.message,
        meta={RELATED_TASK: {"taskId": id}},
    )
