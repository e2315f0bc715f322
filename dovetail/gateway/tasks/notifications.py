"""Notifications about the tasks of the servers behind a gateway: status changes and progress.

A server with the core form sends them unasked. To a server with the extension, the gateway
subscribes while one of its callers does. Nobody relies on notifications, so those that cannot be
sent are dropped.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec.structs import replace

from ...client.client import Client
from ...client.tasks import as_detailed
from ...connection.extension import has_declared, missing_extension
from ...connection.subscriptions import related_task_id
from ...errors import DovetailError, MethodNotFound, ProtocolError
from ...ports import Call
from ...protocol.lifecycle import ProgressParams
from ...protocol.tasks import (
    EXTENSION,
    RELATED_TASK,
    DetailedTask,
    TaskChangedParams,
    TaskParams,
    TaskStatusParams,
)
from ..pool import PooledClient
from ..relay import report_progress, with_connection
from ..upstream import UpstreamServer
from .context import LOCAL, TaskContext, request_about
from .forms import TaskToken, core_fields, owner_of, summarize
from .known import KnownTask

LISTEN_SECONDS: Final = 1.0
"""The pause before a subscription is opened again."""
STATE_FIELDS: Final = tuple(
    name for name in DetailedTask.__struct_fields__ if name not in ("meta", "result_type", "result")
)
"""The fields that pass from a state to a notification."""
OpenTask = Callable[[Call], Awaitable[tuple[TaskToken, UpstreamServer]]]
FetchTask = Callable[[UpstreamServer, Call, TaskToken], Awaitable[DetailedTask]]


class TaskNotifications:
    """Passes on notifications about tasks.

    Args:
        context: The gateway.
        open_task: Returns what the handle in a request means.
        fetch: Returns the state of a task with its questions or outcome.
    """

    def __init__(self, context: TaskContext, open_task: OpenTask, fetch: FetchTask) -> None:
        self._context, self._open, self._fetch = context, open_task, fetch
        self._listened: dict[str, Call] = {}
        """The calls that listen to tasks, by handle."""

    def on_notification(self, server: UpstreamServer, client: Client, params: Any) -> None:
        """Pass on a change of a task, or its progress, to the callers that hold its handle.

        Args:
            server: The server that sent it.
            client: The client that received it.
            params: The params of the notification.
        """
        id = related_task_id(params)
        known = None if id is None else self._context.find(server, client.connection_id, id)
        if known is None:
            return
        if isinstance(params, ProgressParams):
            self._pass_on_progress(known, params)
            return
        state = as_detailed(params)
        known.state = summarize(state)
        if not known.handle:
            return
        shown = replace(state, task_id=known.handle)
        self._context.notify("notifications/tasks/status", TaskStatusParams(**core_fields(shown)))
        listener = self._listened.get(known.handle)
        if isinstance(params, TaskChangedParams) or state.status in ("working", "cancelled"):
            self._notify_listeners(server, shown)
        elif listener is not None:
            known.has_changed = True
            if not known.is_announcing:
                known.is_announcing = True
                work = self._notify_with_outcome(server, known, listener)
                self._context.background.start(work)

    def _pass_on_progress(self, known: KnownTask, params: ProgressParams) -> None:
        params = replace(params, meta=None)
        if isinstance(known.asks, Call) and not known.handle:
            report = report_progress(known.asks)
            if report is not None:
                report(params)
        elif known.progress_token is not None:
            params.progress_token = known.progress_token
            params.meta = {RELATED_TASK: {"taskId": known.handle}}
            self._context.notify("notifications/progress", params)

    def _notify_listeners(self, server: UpstreamServer, state: DetailedTask) -> None:
        fields = {name: getattr(state, name) for name in STATE_FIELDS}
        if bytes(state.result):  # an empty one would not be valid JSON
            fields["result"] = self._context.rename_raw(server, state.result)
        self._context.notify("notifications/tasks", TaskChangedParams(**fields))

    async def _notify_with_outcome(
        self, server: UpstreamServer, known: KnownTask, listener: Call
    ) -> None:
        """Notify the callers that listen to a task in the core form of its questions or outcome,
        which the server's notification does not contain. A server may announce any number of
        changes, so only one request at a time asks for them."""
        request = request_about(known, listener)
        try:
            while known.has_changed:
                known.has_changed = False
                state = await self._fetch(server, request, known.token)
                self._notify_listeners(server, replace(state, task_id=known.handle))
        except DovetailError:
            pass  # the caller polls, too
        finally:
            known.is_announcing = False

    @asynccontextmanager
    async def listening(self, call: Call) -> AsyncIterator[None]:
        """Listen to the tasks that a `subscriptions/listen` request names, and remove those that
        are not the caller's from it.

        Args:
            call: The request.
        """
        wanted = call.params.notifications
        if wanted.task_ids is None:
            yield
            return
        if not has_declared(call, EXTENSION):
            raise missing_extension("Listening to tasks", EXTENSION)
        tokens = await self._open_all(call, wanted.task_ids[: self._context.limits.subscriptions])
        call.params = replace(
            call.params, notifications=replace(wanted, task_ids=list(tokens) or None)
        )
        by_server: dict[str, list[TaskToken]] = {}
        for token in tokens.values():
            by_server.setdefault(token.server, []).append(token)
        self._listened |= dict.fromkeys(tokens, call)
        streams = [
            self._context.background.start(self._listen(call, each)) for each in by_server.values()
        ]
        try:
            yield
        finally:
            for stream in streams:
                stream.cancel()
            for handle in tokens:
                if self._listened.get(handle) is call:
                    del self._listened[handle]

    async def _open_all(self, call: Call, handles: Sequence[str]) -> dict[str, TaskToken]:
        found = {}
        for handle in handles:
            one = replace(call, params=TaskParams(task_id=handle))
            try:
                found[handle], _ = await self._open(one)
            except ProtocolError:
                pass
        return found

    async def _listen(self, call: Call, tokens: "Sequence[TaskToken]") -> None:
        """Subscribe to tasks of one server, if it has the extension. A server with the core form
        sends its notifications unasked."""
        server = self._context.upstreams.servers[tokens[0].server].known_for(owner_of(call))
        ids = [token.id for token in tokens if token.connection != LOCAL]
        if server.catalog.tasks != "extension" or not ids:
            return

        async def work(pooled: PooledClient) -> None:
            await pooled.client.remote_tasks.listen(ids)

        while True:
            try:
                await with_connection(server, call, work, self._context.is_masked())
            except MethodNotFound:
                return
            except DovetailError:
                pass  # polling is enough
            await asyncio.sleep(LISTEN_SECONDS)
