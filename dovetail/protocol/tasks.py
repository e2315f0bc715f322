"""Tasks: work that outlives the call that started it.

There are two forms. The extension form (`Task`, `DetailedTask`) is flat, has `ttlMs` and
`pollIntervalMs`, and includes the questions or the outcome in the task itself. The core form of one
handshake revision (`CoreTask`) has `ttl` and `pollInterval`, nests a new task in its result,
returns the outcome with `tasks/result`, and lets either side run tasks. The fields of a task are
repeated for each place where a task appears (a list, a result, a notification). The other fields
differ, and a msgspec struct can have only one base with fields.
https://modelcontextprotocol.io/seps/2663-tasks-extension
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

from typing import Any, Literal

from msgspec import Raw

from .base import Meta, Params, Result, Wire

EXTENSION = "io.modelcontextprotocol/tasks"
"""The identifier of the extension."""
RELATED_TASK = "io.modelcontextprotocol/related-task"
"""The `_meta` key that names the task of a message, in the core form."""
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: frozenset[Status] = frozenset(("completed", "failed", "cancelled"))
"""The final statuses of a task."""


class TaskParams(Params, kw_only=True):
    """The task to get, wait for or cancel, in both forms.

    Attributes:
        task_id: Id of the task.
    """

    task_id: str


class UpdateTaskParams(TaskParams, kw_only=True):
    """Answers to some or all questions of a task.

    Attributes:
        input_responses: Answers by the key of their question.
    """

    input_responses: dict[str, Raw]


class Task(Result, kw_only=True):
    """A task, in the extension form.

    Attributes:
        task_id: Id of the task.
        status: Its status.
        created_at: When it was created, in ISO 8601.
        last_updated_at: When it last changed, in ISO 8601.
        ttl_ms: Milliseconds that it is kept after its creation; None for no limit.
        status_message: Explanation of the status, for people.
        poll_interval_ms: Milliseconds that the client should wait between two polls.
    """

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl_ms: float | None
    status_message: str | None = None
    poll_interval_ms: float | None = None


class CreateTaskResult(Task, kw_only=True):
    """The result of a call that became a task."""


class DetailedTask(Task, kw_only=True):
    """A task with its questions or its outcome.

    Attributes:
        input_requests: Unanswered questions by key, if the status is `input_required`.
        result: Result of the call, if the status is `completed`.
        error: JSON-RPC error, if the status is `failed`.
    """

    input_requests: dict[str, dict[str, Any]] | None = None
    result: Raw = Raw()
    error: dict[str, Any] | None = None


class TaskChangedParams(Params, kw_only=True):
    """The current state of a task, as `tasks/get` would return it.

    Attributes:
        task_id: Id of the task.
        status: Its status.
        created_at: When it was created, in ISO 8601.
        last_updated_at: When it last changed, in ISO 8601.
        ttl_ms: Milliseconds that it is kept after its creation; None for no limit.
        status_message: Explanation of the status, for people.
        poll_interval_ms: Milliseconds that the client should wait between two polls.
        input_requests: Unanswered questions by key, if the status is `input_required`.
        result: Result of the call, if the status is `completed`.
        error: JSON-RPC error, if the status is `failed`.
    """

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
    """A task in the core form, from a list or newly created.

    Attributes:
        task_id: Id of the task.
        status: Its status.
        created_at: When it was created, in ISO 8601.
        last_updated_at: When it last changed, in ISO 8601.
        ttl: Milliseconds that it is kept after its creation; None for no limit.
        status_message: Explanation of the status, for people.
        poll_interval: Milliseconds that the requestor should wait between two polls.
    """

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class CoreTaskResult(Result, kw_only=True):
    """A task in the core form, as the result of a request.

    Attributes:
        task_id: Id of the task.
        status: Its status.
        created_at: When it was created, in ISO 8601.
        last_updated_at: When it last changed, in ISO 8601.
        ttl: Milliseconds that it is kept after its creation; None for no limit.
        status_message: Explanation of the status, for people.
        poll_interval: Milliseconds that the requestor should wait between two polls.
    """

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class CoreCreateTaskResult(Result, kw_only=True):
    """The result of a request that became a task, in the core form.

    Attributes:
        task: The new task.
    """

    task: CoreTask


class ListTasksResult(Result, kw_only=True):
    """One page of the caller's tasks.

    Attributes:
        tasks: The tasks.
        next_cursor: Cursor of the next page; None on the last one.
    """

    tasks: list[CoreTask]
    next_cursor: str | None = None


class TaskStatusParams(Params, kw_only=True):
    """The current state of a task, as `tasks/get` would return it, in the core form.

    Attributes:
        task_id: Id of the task.
        status: Its status.
        created_at: When it was created, in ISO 8601.
        last_updated_at: When it last changed, in ISO 8601.
        ttl: Milliseconds that it is kept after its creation; None for no limit.
        status_message: Explanation of the status, for people.
        poll_interval: Milliseconds that the requestor should wait between two polls.
    """

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


def related_task_meta(params: Params | None) -> Meta | None:
    """Return the `_meta` that marks another message as part of the same task as these params, or
    None if they belong to no task."""
    meta = None if params is None else params.meta
    return {RELATED_TASK: meta[RELATED_TASK]} if meta is not None and RELATED_TASK in meta else None
