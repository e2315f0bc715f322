"""Tasks: work that outlives the call that started it.

Tasks have two forms. The extension form (`Task`, `DetailedTask`) is flat, has `ttlMs` and
`pollIntervalMs`, and includes the questions or the outcome in the task itself. The core form in one
handshake revision (`CoreTask`) has `ttl` and `pollInterval`, and nests a new task in its result.
The core form returns the outcome with `tasks/result`, and lets either side run tasks. The fields of
a task are repeated for each place where a task appears (a list, a result, a notification). The
other fields differ, and a msgspec struct can have only one base with fields.
https://modelcontextprotocol.io/seps/2663-tasks-extension
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

from typing import Any, Literal

from msgspec import Raw

from .base import Meta, Params, Result, Wire

EXTENSION = "io.modelcontextprotocol/tasks"
"""The identifier of the extension."""
RELATED_TASK = "io.modelcontextprotocol/related-task"
"""The `_meta` key that, in the core form, names the task to which a message belongs."""
TaskForm = Literal["", "core", "extension"]
"""A form of tasks; empty for none."""
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: frozenset[Status] = frozenset(("completed", "failed", "cancelled"))
"""The final statuses of a task."""


class TaskParams(Params, kw_only=True):
    """In both forms, the task to get, wait for or cancel.

    Attributes:
        task_id: The id of the task.
    """

    task_id: str


class UpdateTaskParams(TaskParams, kw_only=True):
    """Answers to some or all of a task's questions.

    Attributes:
        input_responses: The answers, each under the key of its question.
    """

    input_responses: dict[str, Raw]


class Task(Result, kw_only=True):
    """A task in the extension form.

    Attributes:
        task_id: The id of the task.
        status: The status of the task.
        created_at: When the task was created, in ISO 8601 format.
        last_updated_at: When the task last changed, in ISO 8601 format.
        ttl_ms: How long the task is kept after its creation, in milliseconds, or None for no limit.
        status_message: A human-readable explanation of the status.
        poll_interval_ms: How long the client should wait between polls, in milliseconds.
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
        input_requests: The unanswered questions, each under its key, if the status is
            `input_required`.
        result: The result of the call, if the status is `completed`.
        error: The JSON-RPC error, if the status is `failed`.
    """

    input_requests: dict[str, dict[str, Any]] | None = None
    result: Raw = Raw()
    error: dict[str, Any] | None = None


class TaskChangedParams(Params, kw_only=True):
    """The current state of a task, as `tasks/get` would return it.

    Attributes:
        task_id: The id of the task.
        status: The status of the task.
        created_at: When the task was created, in ISO 8601 format.
        last_updated_at: When the task last changed, in ISO 8601 format.
        ttl_ms: How long the task is kept after its creation, in milliseconds, or None for no limit.
        status_message: A human-readable explanation of the status.
        poll_interval_ms: How long the client should wait between polls, in milliseconds.
        input_requests: The unanswered questions, each under its key, if the status is
            `input_required`.
        result: The result of the call, if the status is `completed`.
        error: The JSON-RPC error, if the status is `failed`.
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
    """A task in the core form, either newly created or from a list.

    Attributes:
        task_id: The id of the task.
        status: The status of the task.
        created_at: When the task was created, in ISO 8601 format.
        last_updated_at: When the task last changed, in ISO 8601 format.
        ttl: How long the task is kept after its creation, in milliseconds, or None for no limit.
        status_message: A human-readable explanation of the status.
        poll_interval: How long the requestor should wait between polls, in milliseconds.
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
        task_id: The id of the task.
        status: The status of the task.
        created_at: When the task was created, in ISO 8601 format.
        last_updated_at: When the task last changed, in ISO 8601 format.
        ttl: How long the task is kept after its creation, in milliseconds, or None for no limit.
        status_message: A human-readable explanation of the status.
        poll_interval: How long the requestor should wait between polls, in milliseconds.
    """

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


class CoreCreateTaskResult(Result, kw_only=True):
    """In the core form, the result of a request that became a task.

    Attributes:
        task: The new task.
    """

    task: CoreTask


class ListTasksResult(Result, kw_only=True):
    """One page of the caller's tasks.

    Attributes:
        tasks: The tasks on this page.
        next_cursor: The `cursor` for the next page, or None on the last page.
    """

    tasks: list[CoreTask]
    next_cursor: str | None = None


class TaskStatusParams(Params, kw_only=True):
    """The current state of a task in the core form, as `tasks/get` would return it.

    Attributes:
        task_id: The id of the task.
        status: The status of the task.
        created_at: When the task was created, in ISO 8601 format.
        last_updated_at: When the task last changed, in ISO 8601 format.
        ttl: How long the task is kept after its creation, in milliseconds, or None for no limit.
        status_message: A human-readable explanation of the status.
        poll_interval: How long the requestor should wait between polls, in milliseconds.
    """

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl: int | None
    status_message: str | None = None
    poll_interval: int | None = None


def related_task_meta(params: Params | None) -> Meta | None:
    """Return the `_meta` that links another message to the task that these params belong to, or
    None if they do not belong to a task."""
    meta = None if params is None else params.meta
    return {RELATED_TASK: meta[RELATED_TASK]} if meta is not None and RELATED_TASK in meta else None
