"""What everything about tasks needs from a gateway, and the parts that several files use."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ...aio import TaskSet
from ...errors import DovetailError, NotFound
from ...limits import Limits
from ...net import network_of
from ...ports import Call
from ...protocol.methods import METHODS
from ...protocol.raw import RawObject, encode_raw
from ...protocol.tasks import DetailedTask, TaskParams
from ...protocol.tools import ToolResult
from ...sealing import KeyRing
from ..pool import PooledClient
from ..relay import Prepare, with_connection
from ..upstream import UpstreamServer
from ..upstreams import UpstreamSet
from .forms import TaskToken, owner_of, summarize, unknown_task
from .known import HeldQuestions, KnownTask, KnownTasks

LOCAL: Final = "gateway"
"""The connection of a task whose result the gateway has, because the server answered directly."""
NOTHING: Final = Raw()


class TaskContext(Struct, eq=False, kw_only=True):
    """The gateway, as its tasks see it."""

    upstreams: UpstreamSet
    """The servers."""
    limits: Limits
    known: KnownTasks
    """What is known of tasks."""
    background: TaskSet = msgspec.field(default_factory=TaskSet)
    """Everything that waits for a task."""
    ring: Callable[[], KeyRing]
    """Returns the keys that seal handles."""
    notify: Callable[[str, Any], None]
    """Sends a notification to the callers that it concerns."""
    is_masked: Callable[[], bool]
    """Returns whether callers may see only how the process of a server ended."""
    prepare: Prepare
    """Prepares a question of a server for a caller."""
    rename: Callable[[UpstreamServer, RawObject], RawObject]
    """Replaces the URIs in the result of a tool."""
    check: Callable[[Call, UpstreamServer, str], None]
    """Raises an error if a caller may not use a tool any more."""

    @property
    def is_offered(self) -> bool:
        """Whether at least one server has tasks, or may have them."""
        servers = self.upstreams.all().values()
        return any(server.is_unknown or server.catalog.tasks for server in servers)

    def find(self, server: UpstreamServer, connection_id: str, id: str) -> KnownTask | None:
        """Return what is known of a task, or None.

        Args:
            server: The server.
            connection_id: The connection on which the task was started, or which told of it.
            id: The server's own id of the task.
        """
        return self.known.get(server.name, server.task_scope(connection_id), id)

    def remember(
        self,
        server: UpstreamServer,
        call: Call,
        token: TaskToken,
        handle: str,
        task: DetailedTask,
        result: Raw = NOTHING,
    ) -> KnownTask:
        """Remember a task of a caller.

        Args:
            server: The server that runs it.
            call: The call that started it or asked for it.
            token: What its handle contains.
            handle: The handle; empty if the caller does not know of the task.
            task: Its state.
            result: Its result, if the server answered directly.
        """
        owner, caller = owner_of(call), call.caller
        place = caller.session_id or f"address {network_of(caller.address or '')}"
        return self.known.add(
            KnownTask(
                token=token,
                handle=handle,
                owner=owner,
                session="" if owner else place,
                scope=server.task_scope(token.connection),
                state=summarize(task),
                expires=monotonic() + self.lifetime(task.ttl_ms),
                result=result,
            )
        )

    def lifetime(self, ttl: float | None) -> float:
        """Return how long a task is remembered, in seconds.

        Args:
            ttl: How long the server keeps it, in milliseconds; None for ever.
        """
        longest = self.limits.task_life_max
        return longest if ttl is None or not 0 <= ttl / 1000 < longest else ttl / 1000

    async def with_connection(
        self,
        server: UpstreamServer,
        call: Call,
        token: TaskToken,
        work: Callable[[PooledClient], Awaitable[Any]],
    ) -> Any:
        """Do something with the connection on which a task was started, and return its result.

        Args:
            server: The server.
            call: A call about the task.
            token: What the handle of the task contains.
            work: What to do.

        Raises:
            ProtocolError: The server answered with an error, or could not be reached.
        """
        try:
            return await with_connection(server, call, work, self.is_masked(), token.connection)
        except NotFound:
            raise unknown_task(call.params.task_id) from None

    def rename_raw(self, server: UpstreamServer, raw: Raw) -> Raw:
        """Replace the URIs in the result of a tool.

        Args:
            server: The server.
            raw: The result.
        """
        try:
            renamed = self.rename(server, RawObject.parse(ToolResult, raw))
        except msgspec.MsgspecError:
            return raw
        return encode_raw(renamed.fields)

    def hold_questions(self, server: UpstreamServer, known: KnownTask, call: Call) -> HeldQuestions:
        """Ask a server for the result of a task in the core form, so that it can ask questions.
        They wait for a caller of the extension form.

        Args:
            server: The server.
            known: The task.
            call: The call that started it or asked for it.
        """
        # The arguments are not kept as long as the task runs.
        asker = replace(call, method=METHODS["tools/call"], raw_params=NOTHING)
        if isinstance(known.asks, HeldQuestions):
            known.asks.call = asker
            return known.asks
        held = known.asks = HeldQuestions(asker, request_about(known, call), self.limits)

        async def work(pooled: PooledClient) -> None:
            await pooled.client.remote_tasks.fetch_result(known.token.id, held)

        async def hold() -> None:
            try:
                await self.with_connection(server, held.request, known.token, work)
            except DovetailError:
                pass  # `tasks/get` returns the error
            finally:
                if known.asks is held:
                    known.asks = None

        held.waiting = self.background.start(hold())
        return held


def request_about(known: KnownTask, call: Call) -> Call:
    """Return a request for the state of a task.

    Args:
        known: The task.
        call: A call of the caller on whose behalf it is sent.
    """
    params = TaskParams(task_id=known.handle)
    return replace(call, method=METHODS["tasks/get"], params=params, raw_params=NOTHING)


async def do_nothing(pooled: PooledClient) -> None:
    """Only open a connection, so that it is known what its server offers."""
