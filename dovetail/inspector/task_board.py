"""The tasks of the server, as its messages show them.

Every task is in some message: the reply that starts it, the reply to `tasks/get`, `tasks/list` or
`tasks/cancel`, or a notification. The board reads them all, in both forms of tasks, so it knows the
tasks of every origin. It sends nothing itself.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import InvalidParams
from ..ports import Direction
from ..protocol.tasks import TERMINAL
from .calls import RunningCall
from .events import EventBuffer, to_fields

MAX_TASKS = 500
MAX_REQUESTS = 10_000
"""How many requests about tasks without a reply are remembered."""
MAX_ID_LENGTH = 1000
"""Tasks with a longer id are not shown."""
MAX_MESSAGE_LENGTH = 2000
MAX_WORD_LENGTH = 100
"""What is kept of a status or a time."""
FOLLOWING_METHODS = ("tools/call", "tasks/result")
"""The calls that wait for a task."""


class BoardTask(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A task, as the page sees it."""

    task: str
    connection: int
    """The number of the connection on which it was last seen."""
    status: str
    message: str | None = None
    created: str | None = None
    updated: str | None = None
    ttl: float | None = None
    """How long it is kept after its creation, in milliseconds."""
    poll_interval: float | None = None
    """In milliseconds."""
    tool: str | None = None
    call: str | None = None
    """The call that started it, or that has waited for it since."""
    polls: int = 0
    problem: str | None = None
    """Why the last request about it failed."""


class _TaskState(Struct, rename="camel"):
    """The fields of a task, in both forms."""

    task_id: str | None = None
    status: str | None = None
    status_message: str | None = None
    created_at: str | None = None
    last_updated_at: str | None = None
    ttl: float | None = None
    ttl_ms: float | None = None
    poll_interval: float | None = None
    poll_interval_ms: float | None = None


class _TaskBody(_TaskState):
    """Params or a result that may be a task, or contain tasks."""

    task: _TaskState | None = None
    tasks: list[_TaskState] = []


class _TaskError(Struct):
    code: int = 0
    message: str = ""


class _TaskMessage(Struct):
    id: Raw = Raw()
    method: str | None = None
    params: _TaskBody | None = None
    result: _TaskBody | None = None
    error: _TaskError | None = None


class _TaskRequest(Struct, frozen=True):
    """A request about one task, without a reply so far."""

    method: str
    task: str


_decoder = msgspec.json.Decoder(_TaskMessage)


class TaskBoard:
    """The newest tasks of the server, by id.

    Args:
        events: Where `task` events go.
        on_orphan: Called with the id of a task whose call was cancelled before the server answered
            with the task, so that nothing waits for it.
    """

    def __init__(self, events: EventBuffer, on_orphan: Callable[[str], None]) -> None:
        self._events, self._on_orphan = events, on_orphan
        self.records: dict[str, BoardTask] = {}
        self._requests: dict[tuple[int, bytes], _TaskRequest] = {}
        """By connection and id."""

    def on_message(
        self,
        direction: Direction,
        data: bytes,
        connection: int,
        id: bytes,
        running: RunningCall | None,
    ) -> None:
        """Read a message that may be about tasks.

        Args:
            direction: Where it goes.
            data: The message.
            connection: The number of its connection.
            id: The id of the message, as JSON; empty if it has none.
            running: The call that it belongs to.
        """
        key = connection, id
        if b'"taskId"' not in data and key not in self._requests:
            return
        try:
            message = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # not a task: the fields have other types
        if direction == "to_server":
            self._on_request(message, key, running)
            return
        request = self._requests.pop(key, None) if message.method is None else None
        body = message.params or message.result
        for state in [] if body is None else (body, body.task, *body.tasks):
            if state is not None and state.task_id and state.status is not None:
                self._on_state(state, connection, request, running)
        if message.error is not None and request is not None:
            self._on_error(message.error, request)

    def _on_request(
        self, message: _TaskMessage, key: tuple[int, bytes], running: RunningCall | None
    ) -> None:
        """Remember a request about a task, and that a call waits for the task."""
        task = None if message.params is None else message.params.task_id
        if task is None or message.method is None or not message.method.startswith("tasks/"):
            return
        if len(self._requests) >= MAX_REQUESTS:
            self._requests.clear()
        self._requests[key] = _TaskRequest(message.method, task)
        before = self.records.get(task)
        call = _following_call(running)
        if before is not None and call is not None and before.call != call:
            self._set(replace(before, call=call))

    def _on_state(
        self,
        state: _TaskState,
        connection: int,
        request: _TaskRequest | None,
        running: RunningCall | None,
    ) -> None:
        assert state.task_id is not None and state.status is not None
        if len(state.task_id) > MAX_ID_LENGTH:
            return
        before = self.records.get(state.task_id)
        polls, tool, call = (0, None, None) if before is None else _origin(before)
        if running is not None and running.record.method == "tools/call":
            tool = running.record.name
        found = BoardTask(
            task=state.task_id,
            connection=connection,
            status=state.status[:MAX_WORD_LENGTH],
            message=_cut(state.status_message, MAX_MESSAGE_LENGTH),
            created=_cut(state.created_at),
            updated=_cut(state.last_updated_at),
            ttl=state.ttl if state.ttl_ms is None else state.ttl_ms,
            poll_interval=state.poll_interval_ms or state.poll_interval,
            tool=tool,
            call=_following_call(running) or call,
            polls=polls + (request is not None and request.method == "tasks/get"),
        )
        if found != before:
            self._set(found)
        if before is None and running is not None and running.record.status == "cancelled":
            self._on_orphan(found.task)

    def _on_error(self, error: _TaskError, request: _TaskRequest) -> None:
        before = self.records.get(request.task)
        if before is None:
            return
        is_poll = request.method == "tasks/get"
        is_unknown = is_poll and error.code == InvalidParams.code
        self._set(
            replace(
                before,
                status="unknown" if is_unknown else before.status,
                polls=before.polls + is_poll,
                problem=error.message[:MAX_MESSAGE_LENGTH],
            )
        )

    def _set(self, record: BoardTask) -> None:
        if record.task not in self.records and len(self.records) >= MAX_TASKS:
            over = (id for id, one in self.records.items() if one.status in TERMINAL)
            del self.records[next(over, next(iter(self.records)))]
        self.records[record.task] = record
        self._events.add("task", **to_fields(record))


def _origin(record: BoardTask) -> tuple[int, str | None, str | None]:
    return record.polls, record.tool, record.call


def _following_call(running: RunningCall | None) -> str | None:
    """Return the id of a call that waits for a task."""
    if running is None or running.record.method not in FOLLOWING_METHODS:
        return None
    return running.record.call


def _cut(text: str | None, length: int = MAX_WORD_LENGTH) -> str | None:
    return None if text is None else text[:length]
