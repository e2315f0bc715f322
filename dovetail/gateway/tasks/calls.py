"""Calls that become tasks: how a tool is called, by the forms of tasks that caller and server have.

caller      server      what happens
core        core        everything passes as it came, with the id replaced by a handle
extension   extension   likewise
core        extension   converted. `tasks/result` polls the server and passes on its questions
extension   core        converted. `tasks/result` stays open at the server, so that it can ask
none        either      the gateway calls a tool that runs only as a task as a task, and waits
core        none        refused, like any tool that cannot run as a task
extension   none        a plain call, because the server decides
"""

import asyncio
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.structs import replace

from ...connection.notifications import read_progress_token
from ...errors import InvalidParams, InvalidRequest, MethodNotFound, MissingCapability
from ...ports import Call
from ...protocol.lifecycle import ClientCapabilities, ProgressParams
from ...protocol.raw import RawObject, encode_raw, encode_typed, split_object
from ...protocol.tasks import EXTENSION, DetailedTask, TaskForm
from ...protocol.tools import ToolResult
from ..input_requests import askable, with_extensions
from ..pool import SHARED, PooledClient
from ..relay import relay_call, report_progress, with_connection
from ..upstream import UpstreamServer
from .context import LOCAL, NOTHING, TaskContext, do_nothing
from .forms import (
    MAX_ID_CHARS,
    MAX_TIME_CHARS,
    TaskToken,
    created_result,
    created_task,
    current_time,
    form_of_caller,
    is_task,
    owner_of,
    seal_token,
    with_related_task,
)

POLL_MILLISECONDS: Final = 100


class TaskPlan(Struct, frozen=True):
    """How a tool is called."""

    form: TaskForm = ""
    """The form in which the caller gets a task; empty if it does not get one."""
    task: Raw | None = None
    """The `task` to send, which asks for a task in the core form."""
    declares: bool = False
    """Whether to declare the extension."""
    waits: bool = False
    """Whether the gateway waits for a task."""
    may_wait: bool = False
    """Whether to wait for a task if the server refuses a plain call."""


PLAIN: Final = TaskPlan()


class TaskCalls:
    """Calls tools, as tasks if that is possible or required.

    Args:
        context: The gateway.
    """

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self.is_enabled = True
        """Whether callers get tasks. If not, the gateway waits for them."""

    async def call_tool(
        self,
        server: UpstreamServer,
        call: Call,
        tool: str,
        changed: Mapping[str, Any],
        safe: bool,
    ) -> Any:
        """Call a tool, and return its result, its questions, or the task that runs it.

        Args:
            server: The server.
            call: The call of the caller.
            tool: The server's own name of the tool.
            changed: The params that differ from those of the caller.
            safe: Whether the call may be sent again if the connection was lost.

        Raises:
            ProtocolError: The server answered with an error, or could not be reached.
        """
        if server.state != "started":  # its form of tasks is not known yet
            await with_connection(server, call, do_nothing, self._context.is_masked())
        plan = self._plan(server, call, tool)
        try:
            return await self._send(server, call, tool, changed, plan, safe)
        except MissingCapability as refusal:
            if not (plan.may_wait and _requires_tasks(refusal)):
                raise
        # The server refused the call, so it had no effect yet.
        waiting = TaskPlan(declares=True, waits=True)
        return await self._send(server, call, tool, changed, waiting, safe)

    def _plan(self, server: UpstreamServer, call: Call, tool: str) -> TaskPlan:
        """Return how to call a tool, by the forms of both sides."""
        offered, wanted = server.catalog.tasks, form_of_caller(call) if self.is_enabled else ""
        task = call.params.task if wanted == "core" else None
        if task is not None and not isinstance(task, dict):
            raise InvalidParams(f"task must be an object, not {task!r}", parameter="task")
        if not offered:
            if task is not None and self._context.is_offered and not server.is_unknown:
                raise MethodNotFound(
                    f"Tool {tool!r} of {server.name} cannot run as a task; call it without `task`"
                )
            return PLAIN
        if offered == "extension":
            if wanted == "extension" or task is not None:
                return TaskPlan(wanted, declares=True)
            return TaskPlan(may_wait=not call.revision.stateless or not self.is_enabled)
        if wanted == "core":
            return TaskPlan(wanted, encode_raw(task)) if task is not None else PLAIN
        support = _task_support(server, tool)
        if support == "required" or (support == "optional" and wanted):
            return TaskPlan(wanted, Raw(b"{}"), waits=not wanted)
        return PLAIN

    async def _send(
        self,
        server: UpstreamServer,
        call: Call,
        tool: str,
        changed: Mapping[str, Any],
        plan: TaskPlan,
        safe: bool,
    ) -> Any:
        form = server.catalog.tasks

        async def finish(pooled: PooledClient, raw: Raw) -> Any:
            task = created_task(raw, server.name)
            if task is not None:
                if plan.waits:
                    return await self._wait(server, pooled, call, task)
                return self._start(server, pooled, call, tool, raw, task, plan.form)
            if plan.form == "core" and form == "extension" and _is_result(raw):
                return self._keep_result(server, call, tool, raw)
            return raw

        expects_task = bool(plan.form or plan.waits)
        result = await relay_call(
            server,
            call,
            changed if plan.task is None else {**changed, "task": plan.task},
            prepare=self._context.prepare,
            safe=safe,
            masked=self._context.is_masked(),
            capabilities=self._declare(server, call, plan) if plan.declares else None,
            finish=finish if expects_task else None,
        )
        if not expects_task and type(result) is RawObject and is_task(result.fields):
            raise InvalidRequest(f"{server.name} returned a task for a call that asked for none")
        return result

    def _declare(self, server: UpstreamServer, call: Call, plan: TaskPlan) -> ClientCapabilities:
        """Return what to declare for a call that may become a task. The model of the gateway cannot
        answer the questions of a task that passes as it came."""
        model = None if plan.form == "extension" else server.model
        return with_extension(askable(call, server.settings, model))

    async def _wait(
        self, server: UpstreamServer, pooled: PooledClient, call: Call, task: DetailedTask
    ) -> RawObject:
        """Wait for a task on behalf of a caller that does not know of tasks."""
        remote, id = pooled.client.remote_tasks, task.task_id
        handle = remote.handle(id)
        handle.parent = call
        token = TaskToken(server.name, "", id, pooled.client.connection_id, "", "", None)
        known = self._context.remember(server, call, token, "", task)
        known.asks = call
        report = report_progress(call)

        def on_progress(update: ProgressParams) -> None:
            if report is not None:
                report(replace(update, meta=None))

        try:
            result = await remote.wait_as_call(handle, None, on_progress)
        finally:
            self._context.known.remove(known)
        fields = split_object(encode_typed(result))
        return RawObject(ToolResult, with_related_task(fields, None))

    def _start(
        self,
        server: UpstreamServer,
        pooled: PooledClient,
        call: Call,
        tool: str,
        raw: Raw,
        task: DetailedTask,
        form: TaskForm,
    ) -> RawObject:
        """Tell a caller of a new task."""
        connection = pooled.client.connection_id
        handle = self._give_handle(server, call, tool, connection, task)
        if pooled.key is not SHARED:
            now = asyncio.get_running_loop().time()
            pooled.tasks[task.task_id] = now + self._context.lifetime(task.ttl_ms)
            pooled.ran_tasks = True
        if form == "extension" and server.catalog.tasks == "core":
            known = self._context.find(server, connection, task.task_id)
            if known is not None:
                self._context.hold_questions(server, known, call)
        return created_result(raw, task, handle, form, server.catalog.tasks)

    def _keep_result(self, server: UpstreamServer, call: Call, tool: str, raw: Raw) -> RawObject:
        """Tell a caller that asked for a task of one that is already over: in the core form, it
        gets a task even if the server answered directly."""
        now, asked = current_time(), call.params.task.get("ttl")
        is_number = isinstance(asked, int | float) and asked > 0
        life = min(asked, self._context.limits.task_life_max * 1000) if is_number else None
        task = DetailedTask(
            task_id=token_hex(16),
            status="working",
            created_at=now,
            last_updated_at=now,
            ttl_ms=self._context.limits.task_life * 1000 if life is None else life,
            poll_interval_ms=POLL_MILLISECONDS,
        )
        handle = self._give_handle(server, call, tool, LOCAL, task, raw)
        return created_result(Raw(b"{}"), task, handle, "core", "extension")

    def _give_handle(
        self,
        server: UpstreamServer,
        call: Call,
        tool: str,
        connection: str,
        task: DetailedTask,
        result: Raw = NOTHING,
    ) -> str:
        token = TaskToken(
            server.name,
            entry_mark(server),
            task.task_id,
            connection,
            tool,
            task.created_at[:MAX_TIME_CHARS],
            task.ttl_ms,
        )
        handle = seal_token(self._context.ring(), token, owner_of(call))
        known = self._context.remember(server, call, token, handle, task, result)
        progress_token = read_progress_token(call.params)
        if len(str(progress_token)) <= MAX_ID_CHARS:
            known.progress_token = progress_token
        if not call.revision.stateless:
            call.caller.remember_task(handle)
        return handle


def _task_support(server: UpstreamServer, tool: str) -> str | None:
    """Return what a server says about a tool: forbidden, optional or required."""
    found = server.catalog.find_tool(tool)
    return None if found is None or found.execution is None else found.execution.task_support


def _requires_tasks(refusal: MissingCapability) -> bool:
    required = refusal.data.get("requiredCapabilities") if isinstance(refusal.data, dict) else None
    extensions = required.get("extensions") if isinstance(required, dict) else None
    return isinstance(extensions, dict) and EXTENSION in extensions


def with_extension(capabilities: ClientCapabilities) -> ClientCapabilities:
    """Return capabilities that also declare the extension."""
    return with_extensions(capabilities, {EXTENSION: {}})


def _is_result(raw: Raw) -> bool:
    return bytes(split_object(raw).get("resultType", b'"complete"')) == b'"complete"'


def entry_mark(server: UpstreamServer) -> str:
    """Return what a handle contains of the entry of a server."""
    return server.entry.digest[-16:]
