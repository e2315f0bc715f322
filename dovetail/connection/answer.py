"""The function that answers requests for every transport.

A handler may raise any exception (even SystemExit), await something that was cancelled, or return a
value that JSON cannot represent. The outcome is always a single reply, or None if nobody is waiting
for it. No exception escapes.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any

from msgspec import Raw

from ..errors import (
    BackendAway,
    CannotAsk,
    Forbidden,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    ProtocolError,
    ToolError,
)
from ..jsonrpc.messages import Id
from ..logs import get_logger
from ..ports import Call, CallHandler
from .encode import MessageEncoder

log = get_logger("connection")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


Finish = Callable[[Call, Any, bytes | None], None]
"""A function that receives a call, the function that replies to it, and the encoded reply (None if
the call was cancelled)."""


async def run_call(
    call: Call, handle: CallHandler, outgoing: MessageEncoder, finish: Finish, reply: Any
) -> None:
    """Let a handler answer a call, and pass the reply to `finish`."""
    failure: BaseException | None = None
    result: Any = None
    try:
        if call.cancelled:
            raise asyncio.CancelledError
        result = await handle(call)
        if type(result) is not Raw:
            result = call.caller.revision.lower_result(call.method, result)
    except BaseException as error:
        failure = error
    finish(call, reply, _encode_reply(call, result, failure, outgoing))


def _encode_reply(
    call: Call, result: Any, failure: BaseException | None, outgoing: MessageEncoder
) -> bytes | None:
    """Return the reply to a call, or None if the call was cancelled."""
    revision = call.caller.revision
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
        elif isinstance(refusal, BackendAway):
            call.refusal = refusal
        return outgoing.encode_failure(call.id, refusal, revision)
    page = call.redacted_page
    return outgoing.encode_result(call.id, result, page is not None and result is page)


def as_protocol_error(error: BaseException, call: Call) -> ProtocolError:
    """Return the error to send to the caller. An unexpected exception is logged, and its details
    are not sent to the caller."""
    refusal = intended_error(error)
    if refusal is not None:
        return refusal
    if isinstance(error, asyncio.CancelledError):
        return InternalError(f"{call.name} was cancelled by its handler")
    log.error("%s failed", call.name, exc_info=users_exc_info(error))
    return InternalError(f"{call.name} failed: {type(error).__name__}")


def users_exc_info(error: BaseException) -> ExcInfo:
    """Return a handler's exception for `exc_info=`, with a traceback that starts in the user's code
    unless the whole traceback is in this package."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(PACKAGE):
        traceback = traceback.tb_next
    return type(error), error, traceback or error.__traceback__


def intended_error(error: BaseException) -> ProtocolError | None:
    """Return the error for an exception that was meant for the caller, or None for any other
    exception."""
    if isinstance(error, ProtocolError):
        return error if _can_be_sent(error) else None
    if isinstance(error, ToolError):
        return InvalidParams(str(error))
    if not isinstance(error, CannotAsk):
        return None
    if not error.required:  # no capability of the client would help
        return InternalError(str(error))
    return MissingCapability(str(error), data={"requiredCapabilities": error.required})


def _can_be_sent(error: ProtocolError) -> bool:
    """Return whether the error has a valid code and message. A handler may set the code and the
    message to any value."""
    code: Any = error.code
    return isinstance(code, int) and not isinstance(code, bool) and isinstance(error.message, str)


def new_task(
    work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop
) -> "asyncio.Task[None]":
    """Create a task, without the checks of `loop.create_task`. The task runs its first step
    immediately if this Python version supports that: most tasks finish in their first step."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return asyncio.Task(work, loop=loop)


def check_id(calls: Mapping[Id, Call], id: Id) -> None:
    """Raise an error if a session already has a request with this id in flight."""
    if id in calls:
        raise InvalidRequest(f"A request with id {id!r} is still in flight")


def cancel(call: Call) -> None:
    """Cancel a call, but only once: a second cancellation would interrupt the handler's cleanup."""
    if call.task is not None and not call.cancelled:
        # Not immediately: a task that is cancelled before its first step never runs, and its call
        # would stay in the in-flight table.
        call.task.get_loop().call_soon(call.task.cancel)
    call.cancelled = call.finished = True
