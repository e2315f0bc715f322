"""A record as callers see it: in the form of the extension, or in that of the core.

They differ in more than words. A tool that failed is a task that completed, with an error in it, to
the extension; to the core it is one that failed, and `tasks/result` has the error.
"""

import time
from typing import Any

import msgspec
from msgspec import Raw

from ...connection.outgoing import Outgoing
from ...connection.rounds import on_wire
from ...errors import BY_CODE, InvalidRequest, ProtocolError
from ...jsonrpc.codec import encode
from ...limits import Limits
from ...protocol.methods import METHODS
from ...protocol.tasks import (
    RELATED_TASK,
    CoreCreateTaskResult,
    CoreTask,
    CoreTaskResult,
    CreateTaskResult,
    DetailedTask,
    Status,
    TaskChangedParams,
    TaskStatusParams,
)
from ...protocol.tools import ToolResult
from ...revisions import Revision, decode
from .store import Record

SOON = 0.1
"""The least seconds between two looks at a task."""
CALL = METHODS["tools/call"]


def created(
    record: Record, limits: Limits, revision: Revision
) -> CreateTaskResult | CoreCreateTaskResult:
    """The answer to a call that goes on as a task."""
    if revision.stateless:
        return CreateTaskResult(result_type="task", **_flat(record, limits))
    return CoreCreateTaskResult(task=core(record, limits))


def detailed(record: Record, limits: Limits, revision: Revision) -> DetailedTask:
    """A task with what it asks for, or came to."""
    return DetailedTask(**_flat(record, limits), **_details(record, revision))


def changed(record: Record, limits: Limits, revision: Revision) -> TaskChangedParams:
    """The same, as those are told who listen."""
    return TaskChangedParams(**_flat(record, limits), **_details(record, revision))


def core(record: Record, limits: Limits) -> CoreTask:
    """A task, in the core form, as one of a list."""
    return CoreTask(**_nested(record, limits))


def core_alone(record: Record, limits: Limits) -> CoreTaskResult:
    """The same, as the whole of an answer."""
    return CoreTaskResult(**_nested(record, limits))


def status(record: Record, limits: Limits) -> TaskStatusParams:
    """The same, as its caller is told."""
    return TaskStatusParams(**_nested(record, limits))


def outcome(record: Record, revision: Revision) -> Raw:
    """What the call would have been answered with, had it waited; raises where that was an
    error."""
    if record.error is not None:
        code = record.error["code"]
        raise BY_CODE.get(code, ProtocolError)(
            code, record.error["message"], record.error.get("data")
        )
    if record.status == "cancelled":
        raise InvalidRequest(f"The task {record.id} was cancelled, and has no result")
    result = revision.lower_result(CALL, decode(record.result, ToolResult))
    result.meta = {**(result.meta or {}), RELATED_TASK: {"taskId": record.id}}
    return Raw(encode(result))


def written(result: Any, limits: Limits) -> bytes:
    """A result as it is kept, in the whole vocabulary; raises where it cannot be written or is too
    long."""
    return Outgoing(limits.outgoing).encode(result)


def poll(record: Record, limits: Limits) -> float:
    """Seconds after which it is worth another look: the longer it takes, the more."""
    return max(SOON, min(limits.task_poll, (time.time() - record.created) / 2))


def _flat(record: Record, limits: Limits) -> dict[str, Any]:
    return {
        **_times(record),
        "status": record.status,
        "ttl_ms": _milliseconds(record.ttl),
        "poll_interval_ms": _milliseconds(poll(record, limits)),
    }


def _nested(record: Record, limits: Limits) -> dict[str, Any]:
    status: Status = "failed" if record.status == "completed" and record.is_error else record.status
    return {
        **_times(record),
        "status": status,
        "ttl": _milliseconds(record.ttl),
        "poll_interval": _milliseconds(poll(record, limits)),
    }


def _times(record: Record) -> dict[str, Any]:
    return {
        "task_id": record.id,
        "status_message": record.message,
        "created_at": _iso(record.created),
        "last_updated_at": _iso(record.updated),
    }


def _details(record: Record, revision: Revision) -> dict[str, Any]:
    if record.status == "input_required":
        asked = {
            key: on_wire(METHODS[name], Raw(params)) for key, (name, params) in record.asked.items()
        }
        return {"input_requests": asked}
    if record.status == "completed":
        return {
            "result": Raw(encode(revision.lower_result(CALL, decode(record.result, ToolResult))))
        }
    return {} if record.error is None else {"error": record.error}


def _iso(seconds: float) -> str:
    whole = int(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((seconds - whole) * 1000):03}Z"  # noqa: E501


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def cursor(number: int) -> str:
    """Where a page of the list ends."""
    return msgspec.json.encode(["tasks", number]).hex()
