"""Store what became of a task.

An outcome that cannot be stored is replaced by an error, and an error that cannot be stored by a
shorter one. A store that is not available is tried again until it is.
"""

import asyncio
from contextlib import suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from ...connection.answer import as_protocol_error
from ...connection.multi_round_trip import call_until_answered
from ...errors import BackendAway, InternalError, Overloaded, ProtocolError, TooLarge, UrlRequired
from ...logs import get_logger
from ...ports import Call
from ...protocol.lifecycle import InputRequired
from .running_task import RunningTask
from .store import TaskRecord, TaskStoreBroken
from .wire import MAX_MESSAGE_LENGTH, describe, mark_completed, mark_failed

if TYPE_CHECKING:
    from .manager import TaskManager

log = get_logger("tasks")

SAVE_RETRY_SECONDS = (0.1, 1.0, 10.0, 30.0)
"""The pauses between attempts to store the final state of a task; the last pause is repeated."""
STOPPED = "The server stopped while this task was running, and the task cannot be resumed"
NOT_SAVED = "The task has finished, but its outcome could not be saved"


async def call_again(
    manager: "TaskManager", task: RunningTask, returned: InputRequired | UrlRequired
) -> Any:
    """Call a tool that returned questions again with the answers, until it returns something else.
    Return its result or its exception."""

    async def handle(call: Call) -> Any:
        task.used_keys.clear()  # it asks the same questions again
        return await task.handler(call)

    try:
        return await call_until_answered(task.call, handle, returned, manager.service)
    except BaseException as error:
        return error


async def save_outcome(manager: "TaskManager", task: RunningTask, outcome: Any) -> None:
    """Store the outcome of a tool: its result or its exception."""
    record, current = task.record, asyncio.current_task()
    if record.over or task.is_lost:
        return  # it was cancelled, has expired, or runs in another process
    is_stopped = task.call.cancelled or (current is not None and current.cancelling() > 0)
    if is_stopped or isinstance(outcome, asyncio.CancelledError):
        if record.resumable:
            await _leave_to_others(manager, task, is_stopped)
            return
        outcome = InternalError(STOPPED)
    if not isinstance(outcome, BaseException):
        try:
            await _save_end(manager, task, mark_completed(record, outcome, manager.limits))
            return
        except ProtocolError as error:  # it cannot be encoded, or there is no room for it
            outcome = error
        except Exception:
            log.exception("The outcome of task %s could not be saved", describe(record))
            outcome = InternalError(NOT_SAVED)
    await _save_error(manager, task, as_protocol_error(outcome, task.call))


async def _save_error(manager: "TaskManager", task: RunningTask, error: ProtocolError) -> None:
    """Store the error of a tool, a shorter one if it cannot be stored, or else that it cannot."""
    record, revision = task.record, task.call.revision
    shortened = ProtocolError(revision.code(error), error.message[:MAX_MESSAGE_LENGTH])
    for attempt in (error, shortened):
        try:
            failed = mark_failed(record, attempt, revision, manager.limits)
            await _save_end(manager, task, failed)
            return
        except Exception as problem:
            log.warning(
                "The error that task %s raised could not be saved: %r", describe(record), problem
            )
    unsaved = mark_failed(record, InternalError(NOT_SAVED), revision, manager.limits)
    await _save_end(manager, task, unsaved, Exception)


async def _leave_to_others(manager: "TaskManager", task: RunningTask, is_stopped: bool) -> None:
    """Let another process continue a task. A task that was stopped has not crashed. A tool that
    cancels itself may do so again, so its task has to wait until the lease ends."""
    record, store = task.record, manager.store
    if is_stopped or not store.queued:
        record.attempts = 0
    if store.queued:
        manager.on_lost(task)  # from now on, messages to the task are stored
    with suppress(TaskStoreBroken, BackendAway):
        async with task.save_lock:
            task.is_lost = store.queued
            if not await store.put(record, task.lease) or not store.queued:
                return
            if task.is_parked or is_stopped:
                await store.release(task.lease, queue=not task.is_parked)


async def _save_end(
    manager: "TaskManager",
    task: RunningTask,
    record: TaskRecord,
    retry_on: type[Exception] = Overloaded,
) -> None:
    """Store the final state of a task. Try again until this succeeds.

    Args:
        manager: The tasks.
        task: The task.
        record: Its final record.
        retry_on: The errors after which to try again (default: those of a store that is busy or
            away).
    """
    longest = manager.store.lease_seconds / 4  # before others may take over the task
    for pause in chain(SAVE_RETRY_SECONDS, repeat(SAVE_RETRY_SECONDS[-1])):
        try:
            await manager.save(task, record)
            return
        except TooLarge:
            raise
        except TaskStoreBroken:
            task.record = record  # it cannot be saved, but requests in this process find it
            task.signal_change()
            return
        except retry_on as error:
            log.warning(
                "The final state of task %s has not been saved yet: %s", describe(record), error
            )
        await asyncio.sleep(min(pause, longest))
