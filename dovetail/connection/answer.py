"""The heart: one function answers a request. Every transport calls it.

Whatever a handler does (raise anything, SystemExit included; await something that was cancelled;
return what cannot be written as JSON), the outcome is one reply, or None where nobody waits any
more. No exception leaves.
"""

import asyncio
import logging
import sys
from collections.abc import Coroutine, Mapping
from typing import Any

from msgspec import Raw

from ..errors import (
    CannotAsk,
    Forbidden,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    Overloaded,
    ProtocolError,
    ToolError,
)
from ..jsonrpc.messages import Id
from ..ports import Call, CallHandler
from .encode import MessageEncoder

log = logging.getLogger("dovetail.connection")


async def answer(call: Call, handle: CallHandler, outgoing: MessageEncoder) -> bytes | None:
    """The reply to a call, as bytes."""
    failure: BaseException | None = None
    revision = call.caller.revision
    try:
        if call.cancelled:
            raise asyncio.CancelledError
        result = await handle(call)
        if type(result) is not Raw:
            result = revision.lower_result(call.method, result)
    except BaseException as error:
        failure = error
    if call.cancelled:
        acknowledged = revision.cancelled_result
        return None if acknowledged is None else outgoing.encode_result(call.id, acknowledged)
    if call.progress is not None:
        call.progress.finish()
    failure = call.abort_error or failure
    if failure is not None:
        refusal = as_protocol_error(failure, call)
        call.error_code = revision.code(refusal)
        if isinstance(refusal, Forbidden):
            call.missing_scopes = refusal.scopes
        return outgoing.encode_failure(call.id, refusal, call.error_code)
    return outgoing.encode_result(call.id, result)


def as_protocol_error(error: BaseException, call: Call) -> ProtocolError:
    """What the caller is told of an exception. What was not meant for it is logged here and told
    without detail."""
    refusal = intended_error(error)
    if refusal is not None:
        return refusal
    if isinstance(error, asyncio.CancelledError):
        return InternalError(f"{call.name} was cancelled from within")
    log.error("%s failed", call.name, exc_info=error)
    return InternalError(f"{call.name} failed: {type(error).__name__}")


def intended_error(error: BaseException) -> ProtocolError | None:
    """What an exception says to the caller, where it was raised to be told."""
    if isinstance(error, ProtocolError):
        return error
    if isinstance(error, ToolError):
        return InvalidParams(str(error))
    if not isinstance(error, CannotAsk):
        return None
    if not error.required:  # nothing that the client could declare would help
        return InternalError(str(error))
    return MissingCapability(str(error), data={"requiredCapabilities": error.required})


EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
"""Where it can, a task takes its first step at once; most need no second."""


def check_in_flight(calls: Mapping[Id, Call], id: Id, limit: int) -> None:
    """Raise if a session may not begin one more call under this id."""
    if id in calls:
        raise InvalidRequest(f"Request id {id!r} is still in flight")
    if len(calls) >= limit:
        raise Overloaded(f"{len(calls)} requests are in flight; the limit is {limit}")


def start_task(
    call: Call, work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop
) -> None:
    """Answer a call in a task of its own: what loop.create_task does, without its checks."""
    call.task = asyncio.Task(work, loop=loop, **EAGER)


def cancel(call: Call) -> None:
    """Cancel, once: a second time would hit the handler while it cleans up."""
    if call.task is not None and not call.cancelled:
        # Not at once: a task that is cancelled before its first step never takes it, and its place
        # would never be free.
        call.task.get_loop().call_soon(call.task.cancel)
    call.cancelled = call.finished = True
