"""Tasks: work that outlives the call that asked for it.

There are two forms. The extension's (`Task`, `DetailedTask`) is flat, says `ttlMs` and
`pollIntervalMs`, and shows what a task asks for or came to in the task itself. The core of one
handshake revision (`CoreTask`) says `ttl` and `pollInterval`, nests a new task in its result, gives
the outcome by `tasks/result`, and lets either side keep tasks. What a task is stands here once for
each place that it is told in (a list, an answer, a notification), as these differ in what else they
may carry and msgspec's structs have one base each.
https://modelcontextprotocol.io/seps/2663-tasks-extension
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

from typing import Any, Literal

from msgspec import Raw

from .base import Meta, Params, Result, Wire

EXTENSION = "io.modelcontextprotocol/tasks"
"""The identifier of the extension."""
RELATED_TASK = "io.modelcontextprotocol/related-task"
"""The key of `_meta` that says which task a message belongs to, in the core form."""
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: frozenset[Status] = frozenset(("completed", "failed", "cancelled"))
"""The statuses that a task does not leave again."""


class TaskParams(Params, kw_only=True):
    """Names a task: to look at it, to wait for it, or to cancel it; both forms."""

    task_id: str


class UpdateTaskParams(TaskParams, kw_only=True):
    """Answers questions of a task, all or some of them."""

    input_responses: dict[str, Raw]


class Task(Result, kw_only=True):
    """A task as it stands. `ttl_ms` counts from its creation; None is without end."""

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl_ms: float | None
    status_message: str | None = None
    poll_interval_ms: float | None = None


class CreateTaskResult(Task, kw_only=True):
    """The call goes on as a task."""


class DetailedTask(Task, kw_only=True):
    """A task with what it asks for, or what it came to."""

    input_requests: dict[str, dict[str, Any]] | None = None
    result: Raw = Raw()
    error: dict[str, Any] | None = None


class TaskChangedParams(Params, kw_only=True):
    """What `tasks/get` would say now."""

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl_ms: float | None
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, dict[str, Any]] | None = None
    result: Raw = Raw()
    error: dict[str, Any] | None = None


class CoreTask(Wire, kw_only=True):
    """A task as it stands, in the core form: in a list of them, or just made."""

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class CoreTaskResult(Result, kw_only=True):
    """The same, as the whole of an answer."""

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class CoreCreateTaskResult(Result, kw_only=True):
    """The request goes on as a task, in the core form."""

    task: CoreTask


class ListTasksResult(Result, kw_only=True):
    """One page of the caller's tasks."""

    tasks: list[CoreTask]
    next_cursor: str | None = None


class TaskStatusParams(Params, kw_only=True):
    """What `tasks/get` would say now, in the core form."""

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


def related(params: Params | None) -> Meta | None:
    """What marks all that belongs to the same task as these params, where they belong to one."""
    meta = None if params is None else params.meta
    return {RELATED_TASK: meta[RELATED_TASK]} if meta is not None and RELATED_TASK in meta else None
