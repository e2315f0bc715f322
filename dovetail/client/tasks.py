"""Tasks of a server, as a client waits for them: work that outlives the call that asked for it.

    call ─→ result                                    most calls
         └→ task ─→ look, wait, look again ─→ over ─→ result, or the error that it came to
                     └→ it asks: the callbacks answer, as they do any question, and the
                        answers are sent

Both forms take this road. In the extension's a task shows what it asks and what it came to, and is
answered with `tasks/update`; in the core form of the handshake era `tasks/result` stays open beside
the looking, so that questions have a way to come, and brings the result. What a server tells by
itself saves a look: nobody relies on it.

Whoever calls a tool and stops waiting cancels the task; whoever holds a handle decides that for
themselves. How one task is waited for is in `task.py`.
https://modelcontextprotocol.io/seps/2663-tasks-extension
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..aio import TaskSet
from ..connection.calling import Calling
from ..connection.connection import OnProgress
from ..connection.extension import Extension, Kind
from ..connection.hearing import run_callback
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
from ..extensions.tasks.methods import CHANGED
from ..extensions.tasks.methods import METHODS as EXTENDED
from ..limits import Limits
from ..ports import Call
from ..protocol.base import PROGRESS_TOKEN
from ..protocol.content import Content
from ..protocol.lifecycle import InputRequiredResult, ProgressParams
from ..protocol.methods import METHODS, Method
from ..protocol.tasks import (
    EXTENSION,
    RELATED_TASK,
    TERMINAL,
    CoreTask,
    CreateTaskResult,
    DetailedTask,
    TaskParams,
    UpdateTaskParams,
)
from ..protocol.tools import CallToolParams, ToolResult
from ..protocol.utilities import ListenParams, SubscriptionFilter
from ..revisions import decode, error_from_wire
from .callbacks import AnyRequest, Callbacks
from .reconnect import ServerLink, backoff
from .task import PASSING, Patience, TaskHandle, TaskUpdate

LISTENED = 1.0
"""From which pause on the server is asked to tell of changes by itself."""


class Begun(ToolResult, kw_only=True):
    """What answers a call that was made as a task: the task, in the core form, or the result at
    once."""

    content: list[Content] = []
    task: CoreTask | None = None


AS_TASK = Method("tools/call", "client", CallToolParams, Begun, "tools", asks=True)


class Tasks:
    """The tasks that one client waits for."""

    def __init__(
        self,
        link: ServerLink,
        request: Callable[..., Awaitable[Any]],
        checked: Callable[[str, ToolResult, bool], ToolResult],
        callbacks: Callbacks,
        limits: Limits,
        wanted: bool = True,
    ) -> None:
        self.callbacks, self.limits, self.checked = callbacks, limits, checked
        self._link, self._request, self._wanted = link, request, wanted
        self._handles: WeakValueDictionary[str | int, TaskHandle] = WeakValueDictionary()
        """By the ids of tasks, and by the tokens under which they report progress."""
        self._leaving = TaskSet()
        self.extension = Extension(
            id=EXTENSION,
            methods=EXTENDED,
            handlers={CHANGED.name: self._told},
            kinds={"task": Kind(CreateTaskResult, self._finish)},
            handshake=False,
        )

    # beginning

    @property
    def core(self) -> bool:
        """Whether calls of tools can be made as tasks, in the core form."""
        return self._wanted and self._link.session is not None and _core(self._link.session)

    def asking(self, params: CallToolParams, ttl: float | None) -> tuple[CallToolParams, str]:
        """A call as one that is to become a task, in the core form, and the token under which it
        will report progress."""
        token = secrets.token_hex(8)
        task = {} if ttl is None else {"ttl": round(ttl * 1000)}
        return replace(
            params, task=task, meta={**(params.meta or {}), PROGRESS_TOKEN: token}
        ), token

    def begun(
        self, result: ToolResult | CreateTaskResult, token: str = "", manual: bool = False
    ) -> TaskHandle | None:
        """The task that a call became, if it did."""
        made = result.task if isinstance(result, Begun) else result
        if not isinstance(made, CoreTask | CreateTaskResult):
            return None
        handle = self.handle(made.task_id, manual)
        if made.status not in TERMINAL:  # else a look will tell what it came to
            handle.note(_lifted(made))
        if token:
            self._handles[token] = handle
        return handle

    def handle(self, id: str, manual: bool = False) -> TaskHandle:
        """The handle of a task, the same one as long as somebody has it."""
        found = self._handles.get(id)
        if found is None or found.manual != manual:
            found = self._handles[id] = TaskHandle(self, id, manual)
        return found

    def done(self, result: ToolResult) -> TaskHandle:
        """The handle of what was answered at once."""
        return TaskHandle(self, "", done=result)

    # waiting

    async def finish(
        self, handle: TaskHandle, timeout: float | None, on_progress: OnProgress | None
    ) -> ToolResult:
        """Wait for a task as a call is waited for: whoever stops waiting, or cannot go on, cancels
        it. Each look shows that the server is there, so without a timeout of its own the call may
        be silent for as long as any call may take."""
        longest = max(timeout or 0, self.limits.timeout_max)
        nothing: tuple[Any, ...] = (None, None, None)
        last, number = nothing, 0

        def report(update: TaskUpdate) -> None:
            nonlocal last, number
            said = update.message, update.progress, update.total
            if on_progress is not None and said not in (last, nothing):
                last, number = said, number + 1
                run_callback(on_progress, _as_progress(handle.id, update, number))

        try:
            return await handle.wait(Patience(timeout, longest), report)
        except BaseException as problem:
            if not handle.over and not isinstance(problem, NotFound):
                self._abandon(handle.id)
            raise

    async def _finish(self, client: Any, params: Any, created: CreateTaskResult) -> ToolResult:
        if not isinstance(params, CallToolParams):
            raise InvalidRequest("The server made a task of a request that cannot be one")
        handle = self.begun(created)
        assert handle is not None
        return await self.finish(handle, None, client._on_progress)

    def curable(self, problem: DovetailError) -> bool:
        """Whether what went wrong may be over by the next look."""
        lost = isinstance(problem, ConnectionClosed | ConnectFailed)
        return isinstance(problem, PASSING) and (self._link.can_reconnect or not lost)

    async def look(self, id: str) -> DetailedTask:
        """A task as it stands."""
        try:
            found = await self._request("tasks/get", TaskParams(task_id=id))
        except InvalidParams as unknown:
            raise NotFound(
                unknown.code,
                f"Task {id} is not known to the server, or not any more: {unknown.message}",
            ) from None
        if found.task_id != id:
            raise InvalidRequest(f"Asked for task {id}, the server told of {found.task_id}")
        return _lifted(found)

    async def update(self, id: str, answers: dict[str, Raw]) -> None:
        """Send answers. A server that does not take them says why: the task may be gone, or an
        answer no good."""
        await self._request("tasks/update", UpdateTaskParams(task_id=id, input_responses=answers))

    async def views(self, questions: dict[str, dict[str, Any]]) -> dict[str, AnyRequest]:
        """Questions as callbacks would see them."""
        calling = await self._link.get_session(self._link.timeout)
        return self.callbacks.describe_requests(questions, calling.spoken, calling)

    async def respond(
        self, questions: dict[str, dict[str, Any]], callbacks: Callbacks | None = None
    ) -> dict[str, Raw]:
        """The answers to questions, by this client's callbacks or by others."""
        calling = await self._link.get_session(self._link.timeout)
        asked = InputRequiredResult(input_requests=questions)
        return await (callbacks or self.callbacks).answer_all(asked, calling.spoken, calling)

    @asynccontextmanager
    async def beside(self, handle: TaskHandle) -> "AsyncIterator[asyncio.Task[ToolResult] | None]":
        """What runs while a task is looked at: in the core form what brings the result, else a
        stream of changes where looks are far between."""

        def ended(task: "asyncio.Task[Any]") -> None:
            if not task.cancelled():
                task.exception()  # somebody may look at it, nobody must
                handle.stir()

        core = not (await self._link.get_session(self._link.timeout)).spoken.stateless
        work = self._result(handle.id) if core else self._listen(handle)
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(ended)
        try:
            yield task if core else None
        finally:
            task.cancel()

    async def _result(self, id: str) -> ToolResult:
        """`tasks/result`, which may take as long as the task does."""
        ask = partial(
            self._request, "tasks/result", TaskParams(task_id=id), timeout=self.limits.timeout_max
        )
        for failures in range(self.limits.restarts):
            try:
                return await ask()  # type: ignore[no-any-return]
            except PASSING as problem:
                if not self.curable(problem):
                    raise
            await asyncio.sleep(backoff(failures + 1))
        return await ask()  # type: ignore[no-any-return]

    async def _listen(self, handle: TaskHandle) -> None:
        """`subscriptions/listen`, as soon as it saves looks. Where there is none, looking is
        enough."""
        params = ListenParams(notifications=SubscriptionFilter(task_ids=[handle.id]))
        for _ in range(self.limits.restarts):
            while handle.pause < LISTENED:  # noqa: ASYNC110  (it is not worth an event)
                await asyncio.sleep(LISTENED)
            try:
                calling = await self._link.get_session(self._link.timeout)
                await calling.request(METHODS["subscriptions/listen"], params, timeout=None)
            except DovetailError as problem:
                if not self.curable(problem):
                    return
            await asyncio.sleep(LISTENED)

    async def outcome(self, state: DetailedTask | None) -> ToolResult:
        """What a task that is over came to."""
        assert state is not None
        if state.status == "cancelled":
            raise TaskCancelled(f"Task {state.task_id} was cancelled{_said(state)}")
        calling = await self._link.get_session(self._link.timeout)
        if not calling.spoken.stateless:
            return await self._result(state.task_id)
        if state.status == "failed":
            raise _failure(state)
        try:
            found: ToolResult = decode(state.result, ToolResult)
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(
                f"The result of task {state.task_id} makes no sense: {problem}"
            ) from None
        return found

    # cancelling

    async def cancel(self, id: str) -> None:
        """End a task; one that is over stays so."""
        try:
            await self._request("tasks/cancel", TaskParams(task_id=id))
        except InvalidParams:
            await self.look(
                id
            )  # the core form refuses to cancel what is over; what is not there at all is an error

    def _abandon(self, id: str) -> None:
        """Cancel a task that nobody waits for, without making anybody wait for that."""

        async def leave() -> None:
            try:
                await self._request(
                    "tasks/cancel", TaskParams(task_id=id), timeout=self.limits.shutdown
                )
            except DovetailError:
                pass  # it was over before, or will end by its own time to live

        if self._link.session is not None:
            self._leaving.start(leave())

    async def close(self) -> None:
        """Let what is being cancelled be cancelled."""
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=self.limits.shutdown)

    # hearing

    async def _told(self, call: Call) -> None:
        self.heard(call.method.name, call.params)

    def heard(self, method: str, params: Any) -> None:
        """A server tells of a task, or of its progress, by itself."""
        if isinstance(params, ProgressParams):
            handle = self._handles.get(params.progress_token)
            if handle is not None:
                handle.progressed(params)
        elif (handle := self._handles.get(params.task_id)) is not None:
            told = _lifted(params)
            if method != CHANGED.name or _whole(told):
                handle.note(told)
            handle.stir()  # who is told too little looks


def _core(calling: Calling) -> bool:
    where: Any = (
        calling.server_capabilities.tasks if "tasks/result" in calling.spoken.methods else None
    )
    for key in ("requests", "tools", "call"):
        where = where.get(key) if isinstance(where, dict) else None
    return where is not None


def _whole(state: DetailedTask) -> bool:
    """Whether this is all that `tasks/get` would tell."""
    wanted = {
        "completed": bytes(state.result),
        "failed": state.error,
        "input_required": state.input_requests,
    }
    return bool(wanted.get(state.status, True))


def _said(state: DetailedTask) -> str:
    return f": {state.status_message}" if state.status_message else ""


def _lifted(told: Any) -> DetailedTask:
    """A task of any form as the extension tells of it."""
    if isinstance(told, DetailedTask):
        return told
    fields = {_LIFTED.get(name, name): getattr(told, name) for name in told.__struct_fields__}
    return DetailedTask(
        **{name: value for name, value in fields.items() if name in DetailedTask.__struct_fields__}
    )


_LIFTED = {"ttl": "ttl_ms", "poll_interval": "poll_interval_ms"}
"""What the core form calls otherwise."""


def _failure(state: DetailedTask) -> DovetailError:
    told = state.error or {}
    code, message = told.get("code"), told.get("message")
    if not isinstance(code, int) or not isinstance(message, str):
        return InternalError(f"Task {state.task_id} failed, and does not say why{_said(state)}")
    return error_from_wire("tools/call", code, message, told.get("data"))


def _as_progress(id: str, update: TaskUpdate, count: int) -> ProgressParams:
    """What is new of a task for whoever hears of progress. A status message says in words how far
    it is; it is counted."""
    progress = float(count) if update.progress is None else update.progress
    meta = {RELATED_TASK: {"taskId": id}}
    return ProgressParams(
        progress_token=id, progress=progress, total=update.total, message=update.message, meta=meta
    )
