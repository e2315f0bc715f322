"""Tasks between their two forms, and the handles that callers get as task ids. Nothing here waits.

A handle is a sealed token. It names the server, the server's own id of the task, and the connection
on which the task was started. It is bound to the principal that started the task, so it means
nothing to any other.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ...client.tasks import as_detailed
from ...connection.extension import has_declared
from ...errors import InvalidParams, InvalidRequest, ProtocolError
from ...ports import Call
from ...protocol.decoding import decode
from ...protocol.raw import RawObject, encode_raw, encode_typed, split_meta, split_object
from ...protocol.tasks import (
    EXTENSION,
    RELATED_TASK,
    CoreCreateTaskResult,
    CoreTask,
    CreateTaskResult,
    DetailedTask,
    TaskForm,
)
from ...protocol.tools import ToolResult
from ...sealing import Forged, KeyRing

PURPOSE: Final = "task"
MAX_ID_CHARS: Final = 1024
"""The longest task id that is accepted from a server. A handle contains it, and may be sent in a
header."""
MAX_TIME_CHARS: Final = 64
MAX_SHOWN_CHARS: Final = 100
MAX_MESSAGE_CHARS: Final = 1000
"""The length of a status message that is remembered."""
NEVER: Final = 2**53


class TaskToken(Struct, frozen=True, array_like=True):
    """What a handle contains."""

    server: str
    """The name of the server in the configuration."""
    entry: str
    """The end of the digest of its entry, so that no other server gets the handle's id."""
    id: str
    """The server's own id of the task."""
    connection: str
    """The id of the connection on which the task was started."""
    tool: str
    """The server's own name of the tool."""
    created: str
    """When the task was created, as the server wrote it."""
    ttl: float | None
    """How long the task is kept, in milliseconds."""


_decode_token = msgspec.json.Decoder(TaskToken).decode


def owner_of(call: Call) -> str:
    """Return the id of the principal that a handle is bound to; empty without authentication."""
    return "" if call.principal is None else call.principal.id


def seal_token(ring: KeyRing, token: TaskToken, owner: str) -> str:
    """Return the handle of a task.

    Args:
        ring: The keys of the gateway.
        token: What the handle contains.
        owner: The id of the principal that it is bound to.
    """
    return ring.seal(PURPOSE, msgspec.json.encode(token), bound=owner.encode())


def open_handle(ring: KeyRing, handle: str, owner: str) -> TaskToken:
    """Return what a handle contains.

    Args:
        ring: The keys of the gateway.
        handle: The handle that a caller sent.
        owner: The id of the caller's principal.

    Raises:
        InvalidParams: The gateway did not give this handle to this principal.
    """
    try:
        return _decode_token(ring.open(PURPOSE, handle, bound=owner.encode()))
    except (Forged, msgspec.MsgspecError):
        raise unknown_task(handle) from None


def unknown_task(handle: str) -> InvalidParams:
    """Return the error for a task that does not exist for its caller."""
    return InvalidParams(
        f"There is no task with the id {handle[:MAX_SHOWN_CHARS]!r}; it may have expired",
        parameter="taskId",
    )


def form_of_caller(call: Call) -> TaskForm:
    """Return the form of tasks that a caller understands; empty if it understands none."""
    if call.revision.stateless:
        return "extension" if has_declared(call, EXTENSION) else ""
    return "core" if "tasks/result" in call.revision.methods else ""


# what a server answered


def is_task(fields: Mapping[str, Raw]) -> bool:
    """Return whether the answer to a call is a task, in either form.

    Args:
        fields: The fields of the answer.
    """
    return bytes(fields.get("resultType", b"")) == b'"task"' or (
        "task" in fields and "content" not in fields
    )


def created_task(raw: Raw, server: str) -> DetailedTask | None:
    """Return the task that a server created for a call, or None if it answered with a result.

    Args:
        raw: The answer.
        server: The name of the server, for errors.

    Raises:
        InvalidRequest: The task is malformed, or its id is too long.
    """
    fields = split_object(raw)
    if not is_task(fields):
        return None
    try:
        if "task" in fields:
            task = as_detailed(decode(fields["task"], CoreTask))
        else:
            task = as_detailed(decode(raw, CreateTaskResult))
    except msgspec.MsgspecError as problem:
        raise InvalidRequest(f"{server} returned a task that is malformed: {problem}") from None
    if not 0 < len(task.task_id) <= MAX_ID_CHARS:
        raise InvalidRequest(
            f"{server} returned a task id of {len(task.task_id)} characters; "
            f"1 to {MAX_ID_CHARS} are allowed"
        )
    return task


def created_result(
    raw: Raw, task: DetailedTask, handle: str, form: TaskForm, server_form: TaskForm
) -> RawObject:
    """Return the result that tells a caller of a new task.

    Args:
        raw: The server's answer. If it has the caller's form, only the id is replaced.
        task: The task.
        handle: The caller's id of it.
        form: The caller's form of tasks.
        server_form: The server's form of tasks.
    """
    fields = with_related_task(split_object(raw), handle)
    if form != server_form:
        meta = {"_meta": fields["_meta"]} if "_meta" in fields else {}
        is_core = form == "core"
        own = {"task": encode_raw(CoreTask(**core_fields(task)))} if is_core else _created(task)
        fields = meta | own
    if form == "core":
        own = {**split_object(fields["task"]), "taskId": encode_raw(handle)}
        return RawObject(CoreCreateTaskResult, {**fields, "task": encode_raw(own)})
    return RawObject(CreateTaskResult, {**fields, "taskId": encode_raw(handle)})


def _created(task: DetailedTask) -> dict[str, Raw]:
    created = CreateTaskResult(
        result_type="task",
        **{name: getattr(task, name) for name in COMMON_FIELDS},
        ttl_ms=task.ttl_ms,
        poll_interval_ms=task.poll_interval_ms,
    )
    return split_object(msgspec.json.encode(created))


def with_related_task(fields: dict[str, Raw], handle: str | None) -> dict[str, Raw]:
    """Return the fields of a result or question whose `_meta` names the caller's task, if it names
    one.

    Args:
        fields: The fields.
        handle: The caller's id of the task; None to remove it.
    """
    if RELATED_TASK.encode() not in bytes(fields.get("_meta", b"")):
        return fields
    meta = split_meta(fields)
    meta.pop(RELATED_TASK, None)
    if handle is not None:
        meta[RELATED_TASK] = {"taskId": handle}
    return {**fields, "_meta": encode_raw(meta)}


# from one form to the other

COMMON_FIELDS: Final = ("task_id", "status", "created_at", "last_updated_at", "status_message")


def core_fields(task: DetailedTask) -> dict[str, Any]:
    """Return the fields of a task in the core form, in which a failed tool is a failed task."""
    fields = {name: getattr(task, name) for name in COMMON_FIELDS}
    if task.status == "completed" and _is_error(task.result):
        fields["status"] = "failed"
    poll = task.poll_interval_ms
    return {
        **fields,
        "ttl": None if task.ttl_ms is None else round(min(task.ttl_ms, NEVER)),
        "poll_interval": None if poll is None else round(min(poll, NEVER)),
    }


def summarize(task: DetailedTask) -> DetailedTask:
    """Return what is remembered of a task: its state in the core form, without its questions and
    its outcome. A server may write texts of any length, of which only the beginning is kept.

    Args:
        task: The task.
    """
    message = task.status_message
    return DetailedTask(
        task_id=task.task_id,
        status=core_fields(task)["status"],
        status_message=None if message is None else message[:MAX_MESSAGE_CHARS],
        created_at=task.created_at[:MAX_TIME_CHARS],
        last_updated_at=task.last_updated_at[:MAX_TIME_CHARS],
        ttl_ms=task.ttl_ms,
        poll_interval_ms=task.poll_interval_ms,
    )


def _is_error(result: Raw) -> bool:
    if not bytes(result):
        return False
    try:
        return RawObject.parse(ToolResult, result).is_error is True
    except (msgspec.MsgspecError, AttributeError):
        return False


def as_completed(task: DetailedTask, result: ToolResult) -> DetailedTask:
    """Return a task with its result, in the extension form, in which even a failed tool is a
    completed task.

    Args:
        task: The task in the core form, which has no result.
        result: Its result.
    """
    meta = {key: value for key, value in (result.meta or {}).items() if key != RELATED_TASK}
    result.meta = meta or None
    return replace(task, status="completed", result=Raw(encode_typed(result)))


def as_failed(task: DetailedTask, error: ProtocolError) -> DetailedTask:
    """Return a task that failed with an error.

    Args:
        task: The task.
        error: The error.
    """
    fields: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        fields["data"] = error.data
    message = task.status_message or error.message
    return replace(task, status="failed", status_message=message, error=fields)


def started_task(token: TaskToken) -> DetailedTask:
    """Return a task of which only its handle is known.

    Args:
        token: What the handle contains.
    """
    return DetailedTask(
        task_id=token.id,
        status="working",
        created_at=token.created,
        last_updated_at=token.created,
        ttl_ms=token.ttl,
    )


def lost_task(token: TaskToken, handle: str, problem: ProtocolError) -> DetailedTask:
    """Return a task that failed because nobody runs it any more.

    Args:
        token: What is known of it.
        handle: The caller's id of it.
        problem: Why nobody runs it.
    """
    task = replace(started_task(token), task_id=handle, last_updated_at=current_time())
    return as_failed(task, problem)


def current_time() -> str:
    """Return the current time in ISO 8601 format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
