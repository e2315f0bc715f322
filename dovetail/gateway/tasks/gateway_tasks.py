"""Tasks of the servers behind a gateway, as its callers see them.

`calls.py` says which forms of tasks meet, and how. A handle (`forms.py`) contains all that is
needed to find a task again. What is known of tasks besides (`known.py`) serves notifications,
questions and `tasks/list`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from ...client.client import Client
from ...client.task_handle import WaitDeadline
from ...connection.extension import Extension
from ...errors import InvalidParams, MethodNotFound, ProtocolError
from ...extensions.tasks.wire import decode_cursor, encode_cursor
from ...ports import Call, CallHandler
from ...protocol.base import EmptyResult
from ...protocol.methods import TASKS_EXTENSION_METHODS
from ...protocol.raw import RawObject, encode_typed, split_object, with_meta
from ...protocol.tasks import (
    EXTENSION,
    RELATED_TASK,
    TERMINAL,
    CoreTask,
    CoreTaskResult,
    DetailedTask,
    ListTasksResult,
    TaskParams,
)
from ...protocol.tools import ToolResult
from ..call_forwarder import CallForwarder
from ..input_requests import askable, prepare_requests
from ..pool import PooledClient
from ..relay import encode_text, relay_call
from ..upstream import TaskLost, UpstreamServer
from .calls import TaskCalls, entry_mark, with_extension
from .context import LOCAL, TaskContext, do_nothing, request_about
from .forms import (
    TaskToken,
    as_completed,
    as_failed,
    core_fields,
    form_of_caller,
    lost_task,
    open_handle,
    owner_of,
    started_task,
    summarize,
    unknown_task,
)
from .known import HeldQuestions, KnownTask
from .notifications import TaskNotifications

PAGE_SIZE: Final = 50
"""The number of tasks per page of `tasks/list`. The state of each is asked for."""
QUESTION_SECONDS: Final = 1.0
"""How long to wait for the question of a task that is said to wait for input."""
CANCEL_SECONDS: Final = 2.0
"""How long to wait until a task that was cancelled has ended, in the core form."""
POLL_SECONDS: Final = 0.1
CORE_CAPABILITY: Final[Mapping[str, Any]] = {
    "list": {}, "cancel": {}, "requests": {"tools": {"call": {}}},
}  # fmt: skip
"""The capability that a gateway declares for tasks in the core form."""
OVER: Final = frozenset(f'"{status}"'.encode() for status in TERMINAL)


class GatewayTasks:
    """The tasks of all servers of a gateway.

    Args:
        context: The gateway.
    """

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self.calls = TaskCalls(context)
        self.notifications = TaskNotifications(context, self._open, self._fetch)
        handlers: Mapping[str, CallHandler] = {
            "tasks/get": self.get,
            "tasks/update": self.update,
            "tasks/cancel": self.cancel,
            "tasks/result": self.result,
        }
        self.forwarder = CallForwarder("gateway/task", handlers, self._is_here, context.limits)
        anywhere = {
            name: partial(self._answer_anywhere, handler) for name, handler in handlers.items()
        }
        self.extension = Extension(
            id=EXTENSION,
            methods=TASKS_EXTENSION_METHODS,
            handlers={name: one for name, one in anywhere.items() if name != "tasks/result"},
            handshake=False,
        )
        self.core_handlers: Mapping[str, CallHandler] = {
            "tasks/result": anywhere["tasks/result"],
            "tasks/list": self.list,
        }
        """The methods that only the core form has."""

    @property
    def is_offered(self) -> bool:
        """Whether at least one server has tasks, or may have them."""
        return self._context.is_offered

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Stop everything that waits for a task at the end."""
        try:
            yield
        finally:
            await self._context.background.close()

    # other replicas

    async def _answer_anywhere(self, handler: CallHandler, call: Call) -> Any:
        """Answer a request about a task, or let the replica answer that started the task."""
        if not self.forwarder.is_alone and self._needs_other(call):
            reply = await self.forwarder.ask(call)
            if reply is not None:
                return reply
        return await handler(call)

    def _needs_other(self, call: Call) -> bool:
        """Return whether only the replica that started a task can answer, and this is another."""
        try:
            token = self._token(call)
        except InvalidParams:
            return False  # the handler says so
        server = self._context.upstreams.servers.get(token.server)
        if server is None or self._is_here(call):
            return False
        holds_questions = server.catalog.tasks != "extension" and form_of_caller(call) != "core"
        return token.connection == LOCAL or server.is_process or holds_questions

    def _is_here(self, call: Call) -> bool:
        """Return whether this replica started a task, and can still answer for it."""
        token = self._token(call)
        server = self._context.upstreams.servers.get(token.server)
        if server is None:
            return False
        if token.connection != LOCAL and server.is_process:
            return server.find_connection(token.connection) is not None
        return self._context.find(server, token.connection, token.id) is not None

    async def _open(self, call: Call) -> tuple[TaskToken, UpstreamServer]:
        """Return what the handle in a request means.

        Raises:
            InvalidParams: The task does not exist for this caller, or its server was removed.
            TaskLost: Nobody runs the task any more.
        """
        handle, owner, token = call.params.task_id, owner_of(call), self._token(call)
        server = self._context.upstreams.servers.get(token.server)
        if server is None or entry_mark(server) != token.entry:
            raise InvalidParams(
                f"The server {token.server!r}, which ran this task, was removed or changed",
                parameter="taskId",
            )
        server = await self._server_for(call, server)
        self._context.check(call, server, token.tool)
        known = self._context.find(server, token.connection, token.id)
        if known is not None and known.owner != owner:
            raise unknown_task(handle)
        if token.connection == LOCAL:
            if known is None:
                raise TaskLost("The gateway no longer has the result of this task")
        else:
            server.check_task(token.connection)
            if known is None:
                self._context.remember(server, call, token, handle, started_task(token))
        if not server.catalog.tasks:  # it was not started yet
            await self._context.with_connection(server, call, token, do_nothing)
        return token, server

    async def _server_for(self, call: Call, server: UpstreamServer) -> UpstreamServer:
        """Return a server as the caller of a task uses it."""
        owner = owner_of(call)
        if server.entry.tokens is None or server.known_for(owner) is not server:
            return server.known_for(owner)
        await self._context.upstreams.wait_for_catalogs(call.principal)
        found = server.known_for(owner)
        if found is server:
            raise InvalidParams(f"Connect your account at {server.name} first", parameter="taskId")
        return found

    async def get(self, call: Call) -> Any:
        """Answer `tasks/get` with the state of a task."""
        handle, form = call.params.task_id, form_of_caller(call)
        try:
            token, server = await self._open(call)
            if form == server.catalog.tasks and token.connection != LOCAL:
                return await self._relay_get(server, call, token)
            state = await self._fetch(server, call, token)
        except TaskLost as problem:
            state = lost_task(self._token(call), handle, problem)
        if form == "core":
            return CoreTaskResult(**core_fields(replace(state, task_id=handle)))
        return replace(state, task_id=handle, result_type=None, meta=None)

    async def _relay_get(self, server: UpstreamServer, call: Call, token: TaskToken) -> RawObject:
        result = await self._relay(server, call, token)
        fields = {**result.fields, "taskId": encode_text(call.params.task_id)}
        if "inputRequests" in fields:
            prepare = partial(self._context.prepare, server)
            fields["inputRequests"] = prepare_requests(fields["inputRequests"], call, prepare)
        if "result" in fields:
            fields["result"] = self._context.rename_raw(server, fields["result"])
        return RawObject(result.type, fields)

    async def update(self, call: Call) -> Any:
        """Answer `tasks/update`: pass on the caller's answers to the questions of a task."""
        try:
            token, server = await self._open(call)
        except TaskLost:
            return EmptyResult()
        if server.catalog.tasks == "extension":
            answers = split_object(call.raw_params)["inputResponses"]
            return await self._relay(server, call, token, inputResponses=answers)
        known = self._context.find(server, token.connection, token.id)
        if known is not None and isinstance(known.asks, HeldQuestions):
            known.asks.answer(call.params.input_responses)
        return EmptyResult()

    async def cancel(self, call: Call) -> Any:
        """Answer `tasks/cancel`."""
        form = form_of_caller(call)
        try:
            token, server = await self._open(call)
            if token.connection == LOCAL:
                raise TaskLost("it is already over")
        except TaskLost as problem:
            if form == "extension":
                return EmptyResult()
            raise InvalidParams(
                f"The task cannot be cancelled: {problem}", parameter="taskId"
            ) from None
        if form == server.catalog.tasks:
            result = await self._relay(server, call, token)
            if "taskId" in result.fields:
                result.fields["taskId"] = encode_text(call.params.task_id)
            return result
        if form == "core":
            return await self._cancel_extension(server, call, token)

        async def work(pooled: PooledClient) -> None:
            await pooled.client.remote_tasks.cancel(token.id)
            pooled.end_task(token.id, self._context.limits.upstream_idle)

        await self._context.with_connection(server, call, token, work)
        return EmptyResult()

    async def _cancel_extension(
        self, server: UpstreamServer, call: Call, token: TaskToken
    ) -> CoreTaskResult:
        """Cancel a task in the extension form, which may take effect later, and wait until it
        has."""

        async def work(pooled: PooledClient) -> DetailedTask:
            remote = pooled.client.remote_tasks
            state = await remote.fetch(token.id)
            if state.status in TERMINAL:
                raise InvalidParams(
                    f"The task cannot be cancelled: it is already {state.status}",
                    parameter="taskId",
                )
            await pooled.client.request("tasks/cancel", TaskParams(task_id=token.id))
            end = monotonic() + CANCEL_SECONDS
            while (state := await remote.fetch(token.id)).status not in TERMINAL:
                if monotonic() > end:
                    break
                await asyncio.sleep(POLL_SECONDS)
            return state

        state = await self._context.with_connection(server, call, token, work)
        return CoreTaskResult(**core_fields(replace(state, task_id=call.params.task_id)))

    async def result(self, call: Call) -> RawObject:
        """Answer `tasks/result`: wait for the result of a task, and ask the caller its questions in
        the meantime."""
        token, server = await self._open(call)
        known = self._context.find(server, token.connection, token.id)
        if known is not None:
            known.asks = call
        try:
            if token.connection == LOCAL:
                assert known is not None  # `_open` has checked it
                result = RawObject.parse(ToolResult, known.result)
            elif server.catalog.tasks == "core":
                result = await self._relay(server, call, token)
            else:
                result = await self._wait_for_result(server, call, token)
        finally:
            if known is not None and known.asks is call:
                known.asks = None
        renamed = self._context.rename(server, result)
        related: RawObject = with_meta(renamed, {RELATED_TASK: {"taskId": call.params.task_id}})
        return related

    async def _wait_for_result(
        self, server: UpstreamServer, call: Call, token: TaskToken
    ) -> RawObject:
        async def work(pooled: PooledClient) -> ToolResult:
            handle = pooled.client.remote_tasks.handle(token.id)
            handle.parent = call
            return await handle._wait(WaitDeadline(None, self._context.limits.timeout_max))

        result = await self._context.with_connection(server, call, token, work)
        return RawObject.parse(ToolResult, encode_typed(result))

    async def list(self, call: Call) -> ListTasksResult:
        """Answer `tasks/list` with the tasks of the caller at all servers."""
        owner, session = owner_of(call), call.caller.session_id
        if not owner and not session:
            raise MethodNotFound(
                "This gateway does not support tasks/list, because it cannot tell its callers apart"
            )
        after = decode_cursor(call.params.cursor)
        found = self._context.known.of_owner(owner, "" if owner else session, after)
        page = found[:PAGE_SIZE]
        states = await asyncio.gather(*(self._refresh(call, one) for one in page))
        return ListTasksResult(
            tasks=[CoreTask(**core_fields(state)) for state in states if state is not None],
            next_cursor=encode_cursor(page[-1].number) if len(found) > PAGE_SIZE else None,
        )

    async def _refresh(self, call: Call, known: KnownTask) -> DetailedTask | None:
        """Return the state of a task for a list; None if the server has deleted it."""
        one = request_about(known, call)
        if known.state.status not in TERMINAL:
            try:
                async with asyncio.timeout(self._context.limits.catalog_wait):
                    token, server = await self._open(one)
                    state = await self._fetch(server, one, token, with_outcome=False)
                known.state = summarize(state)
            except TaskLost as problem:
                known.state = lost_task(known.token, known.handle, problem)
            except InvalidParams:
                self._context.known.remove(known)
                return None
            except (ProtocolError, TimeoutError):
                pass  # the last known state is the best answer
        return replace(known.state, task_id=known.handle)

    # at the server

    def _token(self, call: Call) -> TaskToken:
        return open_handle(self._context.ring(), call.params.task_id, owner_of(call))

    async def _relay(
        self, server: UpstreamServer, call: Call, token: TaskToken, **changed: Any
    ) -> RawObject:
        """Pass on a request about a task to a server that has the same form of tasks."""

        async def finish(pooled: PooledClient, raw: Raw) -> Raw:
            if call.name == "tasks/result" or bytes(split_object(raw).get("status", b"")) in OVER:
                pooled.end_task(token.id, self._context.limits.upstream_idle)
            return raw

        result: RawObject = await relay_call(
            server,
            call,
            {"taskId": encode_text(token.id), **changed},
            prepare=self._context.prepare,
            safe=True,
            masked=self._context.is_masked(),
            capabilities=with_extension(askable(call, server.settings, server.model)),
            timeout=self._context.limits.timeout_max if call.name == "tasks/result" else None,
            connection_id=token.connection,
            finish=finish,
        )
        return result

    async def _fetch(
        self, server: UpstreamServer, call: Call, token: TaskToken, with_outcome: bool = True
    ) -> DetailedTask:
        """Return the state of a task, in the extension form."""
        known = self._context.find(server, token.connection, token.id)
        if token.connection == LOCAL:
            assert known is not None  # `_open` has checked it
            return replace(known.state, status="completed", result=known.result)

        async def work(pooled: PooledClient) -> DetailedTask:
            remote = pooled.client.remote_tasks
            state = await remote.fetch(token.id)
            if with_outcome and remote.form == "core" and state.status in ("completed", "failed"):
                try:
                    result = await remote.fetch_result(token.id)
                except ProtocolError as error:
                    state = as_failed(state, error)
                else:
                    state = as_completed(state, result)
                    state.result = self._context.rename_raw(server, state.result)
            if state.status in TERMINAL and with_outcome:
                pooled.end_task(token.id, self._context.limits.upstream_idle)
            return state

        state: DetailedTask = await self._context.with_connection(server, call, token, work)
        if with_outcome and server.catalog.tasks == "core" and known is not None:
            return await self._with_questions(server, known, call, state)
        return state

    async def _with_questions(
        self, server: UpstreamServer, known: KnownTask, call: Call, state: DetailedTask
    ) -> DetailedTask:
        """Return the state of a task with its open questions."""
        if state.status in TERMINAL:
            return state
        held = self._context.hold_questions(server, known, call)
        if state.status == "input_required" and not held.requests:
            await held.wait(QUESTION_SECONDS)
        if not held.requests:
            return replace(state, status="working")
        return replace(state, status="input_required", input_requests=dict(held.requests))

    def find_asker(
        self, server: UpstreamServer, client: Client, task_id: str
    ) -> "Call | HeldQuestions | None":
        """Return who is asked the questions of a task at the moment, or None.

        Args:
            server: The server that asks.
            client: The client that the server asks.
            task_id: The server's own id of the task.
        """
        known = self._context.find(server, client.connection_id, task_id)
        return None if known is None else known.asks
