"""Convert calls to records, and records back to calls and to the messages of both forms.

The two forms differ in more than names. In the extension form, a failed tool call is a completed
task with an error in its result. In the core form, a failed tool call is a failed task, and
`tasks/result` returns the error.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from secrets import token_urlsafe
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ...connection.encode import MessageEncoder, replace_surrogates
from ...connection.multi_round_trip import input_request
from ...errors import (
    BY_CODE,
    InternalError,
    InvalidParams,
    InvalidRequest,
    Overloaded,
    ProtocolError,
)
from ...jsonrpc.messages import encode
from ...limits import Limits
from ...net import network_of
from ...ports import Call, Caller, Principal
from ...protocol.base import Implementation
from ...protocol.lifecycle import ClientCapabilities
from ...protocol.methods import METHODS
from ...protocol.raw import RawObject
from ...protocol.tasks import (
    RELATED_TASK,
    CoreCreateTaskResult,
    CoreTask,
    CreateTaskResult,
    Status,
)
from ...protocol.tools import CallToolParams, ToolResult
from ...revisions import BY_NAME, Revision, decode
from .store import TaskOrigin, TaskRecord

MIN_POLL_SECONDS = 0.1
MAX_MESSAGE_LENGTH = 1000
"""The maximum length of a status message, in characters."""
CALL = METHODS["tools/call"]

T = TypeVar("T")

# calls and records


def record_from_call(call: Call, resumable: bool, limits: Limits) -> TaskRecord:
    """Return the task record for a call that becomes a task."""
    caller, params, now = call.caller, call.params, time.time()
    principal = call.principal or caller.principal
    return TaskRecord(
        id=token_urlsafe(24),
        created=now,
        updated=now,
        ttl=_ttl(None if caller.revision.stateless else params.task, limits),
        owner=owner_of(call),
        session=caller.session_id,
        network="" if principal is not None else network_of(call.address or ""),
        tool=params.name,
        params=encode(
            CallToolParams(name=params.name, arguments=params.arguments, meta=params.meta)
        ),
        origin=TaskOrigin(
            caller.revision.name,
            caller.capabilities,
            caller.info,
            _storable(principal),
            caller.log_level,
        ),
        resumable=resumable,
    )


def _storable(principal: Principal | None) -> Principal | None:
    """Return a principal without what a subclass adds, such as the token of the caller."""
    if principal is None or type(principal) is Principal:
        return principal
    return Principal(*(getattr(principal, name) for name in Principal.__struct_fields__))


def _ttl(task: dict[str, Any] | None, limits: Limits) -> float:
    ttl = None if task is None else task.get("ttl")
    if ttl is None:
        return limits.task_life
    if type(ttl) not in (int, float) or not 0 < ttl < float("inf"):
        raise InvalidParams(
            f"task.ttl must be a number of milliseconds greater than 0, not {ttl!r}",
            parameter="task.ttl",
        )
    # In this order, because an int may be larger than any float.
    return float(min(ttl, limits.task_life_max * 1000)) / 1000


def call_from_record(record: TaskRecord, lifespan_state: Any) -> Call:
    """Return the call that started a task, rebuilt from its record alone."""
    origin = record.origin
    info = None if origin.info is None else msgspec.convert(origin.info, Implementation)
    caller = Caller(
        BY_NAME[origin.revision],
        info,
        ClientCapabilities.lift(origin.capabilities),
        origin.log_level,
        lifespan_state,
    )
    if origin.principal is not None:
        caller.principal = msgspec.convert(origin.principal, Principal)
    call = Call(record.id, CALL, decode(record.params, CallToolParams), caller, None)
    call.principal = caller.principal
    return call


def owner_of(call: Call) -> str:
    """Return the id of the principal that owns a call's tasks; empty for an anonymous caller."""
    principal = call.principal or call.caller.principal
    return "" if principal is None else principal.id


def describe(record: TaskRecord) -> str:
    """Return the name of a task in logs. It omits most of the id, because the id may grant
    access."""
    return f"{record.id[:8]}… ({record.tool}, owner: {record.owner or 'anonymous'})"


# ends
#
# A task that is over does not run again, so everything that was kept for another run is dropped.
# The record becomes smaller and can always be stored.


def mark_cancelled(record: TaskRecord) -> TaskRecord:
    """Return the record of a cancelled task."""
    return _ended(record, "cancelled", message=None)


def mark_completed(record: TaskRecord, result: Any, limits: Limits) -> TaskRecord:
    """Return the record of a task with its result; raise an error if the result cannot be
    encoded."""
    if type(result) is RawObject:
        result = result.decode()
    if not isinstance(result, ToolResult):
        raise InternalError(
            f"Tool {record.tool!r}: middleware or an extension returned a {type(result).__name__}, "
            "which is not a tool result"
        )
    return _ended(
        record,
        "completed",
        message=replace_surrogates(result.text[:MAX_MESSAGE_LENGTH]) if result.is_error else None,
        result=MessageEncoder(limits.outgoing).encode(result),
        is_error=bool(result.is_error),
    )


def mark_failed(
    record: TaskRecord, error: ProtocolError, revision: Revision, limits: Limits
) -> TaskRecord:
    """Return the record of a failed task; raise an exception if the error cannot be encoded."""
    fields: dict[str, Any] = {"code": revision.code(error), "message": str(error.message)}
    if error.data is not None:
        fields["data"] = error.data
    if isinstance(error, Overloaded) and error.retry_after is not None:
        del fields["data"]  # to wait and to repeat `tasks/result` would not help
    # Convert to JSON and back: a store need not keep values that cannot be sent.
    fields = msgspec.json.decode(MessageEncoder(limits.outgoing).encode(fields))
    return _ended(record, "failed", message=fields["message"][:MAX_MESSAGE_LENGTH], error=fields)


def _ended(record: TaskRecord, status: Status, **outcome: Any) -> TaskRecord:
    return replace(
        record,
        status=status,
        updated=time.time(),
        params=b"",
        questions={},
        answers={},
        once_results={},
        **outcome,
    )


# records on the wire


def make_created_result(
    record: TaskRecord, limits: Limits, revision: Revision
) -> CreateTaskResult | CoreCreateTaskResult:
    """Return the reply to a call that became a task."""
    if revision.stateless:
        return CreateTaskResult(result_type="task", **_fields(record, limits, "_ms"))
    return CoreCreateTaskResult(task=make_core_task(CoreTask, record, limits))


def make_detailed_task(
    type: Callable[..., T], record: TaskRecord, limits: Limits, revision: Revision
) -> T:
    """Return a task with its questions or outcome, in the extension form."""
    fields = _fields(record, limits, "_ms")
    if record.status == "input_required":
        fields["input_requests"] = {
            key: input_request(METHODS[name], Raw(params))
            for key, (name, params) in record.questions.items()
        }
    elif record.status == "completed":
        fields["result"] = Raw(encode(_tool_result(record, revision)))
    elif record.error is not None:
        fields["error"] = record.error
    return type(**fields)


def make_core_task(type: Callable[..., T], record: TaskRecord, limits: Limits) -> T:
    """Return a task in the core form."""
    fields = _fields(record, limits, "")
    if record.is_error:
        fields["status"] = "failed"
    return type(**fields)


def get_outcome(record: TaskRecord, revision: Revision) -> Raw:
    """Return the result that a plain call would have returned, or raise its error."""
    if record.error is not None:
        code = record.error["code"]
        raise BY_CODE.get(code, ProtocolError)(
            code, record.error["message"], record.error.get("data")
        )
    if record.status == "cancelled":
        raise InvalidRequest(f"The task {record.id} was cancelled and has no result")
    result = _tool_result(record, revision)
    result.meta = {**(result.meta or {}), RELATED_TASK: {"taskId": record.id}}
    return Raw(encode(result))


def _tool_result(record: TaskRecord, revision: Revision) -> Any:
    return revision.lower_result(CALL, decode(record.result, ToolResult))


def _fields(record: TaskRecord, limits: Limits, unit: str) -> dict[str, Any]:
    """Return the fields of a task. In the extension form, the names of duration fields end with the
    unit."""
    # The longer a task takes, the longer the poll interval that we suggest.
    poll = max(MIN_POLL_SECONDS, min(limits.task_poll, (time.time() - record.created) / 2))
    created = _iso(record.created)
    return {
        "task_id": record.id,
        "status": record.status,
        "status_message": record.message,
        "created_at": created,
        "last_updated_at": created if record.updated == record.created else _iso(record.updated),
        f"ttl{unit}": None if record.ttl is None else round(record.ttl * 1000),
        f"poll_interval{unit}": round(poll * 1000),
    }


def _iso(seconds: float) -> str:
    whole, millis = divmod(int(seconds * 1000), 1000)
    return f"{_iso_second(whole)}.{millis:03d}Z"


@lru_cache(1024)
def _iso_second(seconds: int) -> str:
    """Return a time without its fraction and zone. It is cached, because most messages name one of
    the last seconds: formatting takes a fifth of the time (7.1 to 1.5 µs)."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


# cursors of `tasks/list`


def encode_cursor(number: int) -> str:
    """Return the cursor of the page that follows the task with this number."""
    return msgspec.json.encode(["tasks", number]).hex()


def decode_cursor(cursor: str | None) -> int:
    """Return the number of the last task before a page; raise InvalidParams for an invalid
    cursor."""
    if cursor is None:
        return 0
    try:
        kind, number = msgspec.json.decode(bytes.fromhex(cursor), type=tuple[str, int])
        if kind == "tasks" and 0 <= number < 2**63:
            return number
    except (ValueError, msgspec.MsgspecError):
        pass
    raise InvalidParams(
        f"{cursor!r} is not a valid cursor for this list; try again without a cursor",
        parameter="cursor",
    )
