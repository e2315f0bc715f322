"""What a call becomes when it goes on as a task, the call that it is again where another process
goes on with it, and what it is when it is over. Then nobody runs it again, so all that was kept for
that is dropped: it takes less room than before, and can always be written down."""

import time
from secrets import token_urlsafe
from typing import Any

import msgspec
from msgspec.structs import replace

from ...connection.outgoing import valid
from ...errors import InternalError, InvalidParams, ProtocolError
from ...jsonrpc.codec import encode
from ...limits import Limits
from ...ports import Call, Caller, Principal
from ...protocol.base import Implementation
from ...protocol.lifecycle import ClientCapabilities
from ...protocol.methods import METHODS
from ...protocol.tasks import Status
from ...protocol.tools import CallToolParams, ToolResult
from ...revisions import BY_NAME, Revision, decode
from . import forms
from .store import Origin, Record
from .terms import Terms
from .work import MESSAGE


def record_of(call: Call, terms: Terms, limits: Limits) -> Record:
    """The record of a call that goes on as a task."""
    caller, params, now = call.caller, call.params, time.time()
    principal = call.principal or caller.principal
    origin = Origin(
        caller.revision.name, {**caller.capabilities}, caller.info, principal, caller.log_level
    )
    ttl = _ttl(None if caller.revision.stateless else params.task, limits)
    kept = CallToolParams(name=params.name, arguments=params.arguments, meta=params.meta)
    return Record(
        id=token_urlsafe(24),
        created=now,
        updated=now,
        ttl=ttl,
        owner=owner_of(call),
        session=caller.session,
        tool=params.name,
        params=encode(kept),
        origin=origin,
        resumable=terms.resumable,
    )


def _ttl(asked: dict[str, Any] | None, limits: Limits) -> float:
    wanted = None if asked is None else asked.get("ttl")
    if wanted is None:
        return limits.task_life
    if type(wanted) not in (int, float) or not 0 < wanted < float("inf"):
        raise InvalidParams(f"task.ttl must be a number of milliseconds above 0, not {wanted!r}")
    return (
        float(min(wanted, limits.task_life_max * 1000)) / 1000
    )  # in this order: an int may be larger than any float


def owner_of(call: Call) -> str:
    """Whose a call's tasks are; empty where nobody is known."""
    principal = call.principal or call.caller.principal
    return "" if principal is None else principal.id


def call_of(record: Record, state: Any) -> Call:
    """The call that a task was, where there is nothing left of it but the record."""
    origin = record.origin
    info = None if origin.info is None else msgspec.convert(origin.info, Implementation)
    caller = Caller(
        BY_NAME[origin.revision],
        info,
        ClientCapabilities.lift(origin.capabilities),
        origin.level,
        state,
    )
    if origin.principal is not None:
        caller.principal = msgspec.convert(origin.principal, Principal)
    call = Call(
        record.id, METHODS["tools/call"], decode(record.params, CallToolParams), caller, None
    )
    call.principal = caller.principal
    return call


def named(record: Record) -> str:
    """A task as a log has it: not by all of its id, for who knows that may have the task."""
    return f"{record.id[:8]}… ({record.tool}, of {record.owner or 'nobody known'})"


def cancelled(record: Record) -> Record:
    """The record of a task that nobody wants any more."""
    return _over(record, "cancelled", message=None)


def completed(record: Record, result: Any, limits: Limits) -> Record:
    """The record of a task with its result; raises where that cannot be written, or is none."""
    if not isinstance(result, ToolResult):
        kind = type(result).__name__
        raise InternalError(
            f"Tool {record.tool!r}: something around it gave a {kind}, which is no result of a tool"
        )
    text = valid(result.text[:MESSAGE]) if result.is_error else None
    written = forms.written(result, limits)
    return _over(record, "completed", message=text, result=written, is_error=bool(result.is_error))


def failed(record: Record, error: ProtocolError, revision: Revision, limits: Limits) -> Record:
    """The record of a task that came to nothing; raises where that cannot be written."""
    told: dict[str, Any] = {"code": revision.code(error), "message": str(error.message)}
    if error.data is not None:
        told["data"] = error.data
    told = msgspec.json.decode(
        forms.written(told, limits)
    )  # as it is sent: what JSON cannot say, no store has to keep
    return _over(record, "failed", message=told["message"][:MESSAGE], error=told)


def _over(record: Record, status: Status, **outcome: Any) -> Record:
    return replace(
        record,
        status=status,
        updated=time.time(),
        params=b"",
        asked={},
        answers={},
        kept={},
        **outcome,
    )
