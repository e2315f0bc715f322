"""Run tasks, and keep the store up to date.

`running` holds the tasks that this process runs, with their newest records. A client may see a
question or an answer a moment before it is stored. All other records are read from the store. The
start and the outcome of a task are stored before anyone is notified of them. A finished task never
changes again.

If several processes share a store, answers and cancellations for a task in another process are sent
as messages (`Mailbox`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from itertools import chain, repeat
from typing import Any
from weakref import WeakValueDictionary

from ...connection.answer import as_protocol_error
from ...connection.input_requests import ONCE_SEED, once_seed
from ...connection.multi_round_trip import call_until_answered
from ...errors import (
    ConfigError,
    InternalError,
    Overloaded,
    ProtocolError,
    TooLarge,
    UrlRequired,
)
from ...logs import get_logger
from ...ports import Bus, Call, CallHandler, ChangeListener, Service
from ...protocol.lifecycle import InputRequired
from ...protocol.tasks import TaskChangedParams, TaskStatusParams
from ...revisions import BY_NAME
from .mailbox import Mailbox
from .running_task import RunningTask, background
from .settings import FORBIDDEN, TaskSettings, TaskSupport
from .signals import CHANGE, TaskSignals, TaskWaiter
from .store import (
    InMemoryTaskStore,
    Lease,
    TaskMessage,
    TaskRecord,
    TaskStore,
    TaskStoreBroken,
    reset_when_forked,
)
from .wire import (
    MAX_MESSAGE_LENGTH,
    call_from_record,
    describe,
    make_core_task,
    make_detailed_task,
    mark_cancelled,
    mark_completed,
    mark_failed,
    record_from_call,
)

log = get_logger("tasks")

SAVE_RETRY_SECONDS = (0.1, 1.0, 10.0, 30.0)
"""The pauses between attempts to store the final state of a task; the last pause is repeated."""
SWEEP_SECONDS = 60.0
"""The longest interval at which expired tasks are deleted and orphaned tasks are resumed."""
STOPPED = "The server stopped while this task was running, and the task cannot be resumed"
GIVEN_UP = "The server stopped {} times while this task was running, and the task made no progress"
NOT_SAVED = "The task has finished, but its outcome could not be saved"
NOT_RESUMED = "The server stopped while this task was running, and the task could not be resumed"
EXPIRED = "The task ran longer than its time to live"


class TaskManager:
    """The tasks of one server in one process.

    Args:
        service: The server.
        settings: Where tasks are stored and how they are scheduled.
        support_of: A function that returns the task support of a tool, or None if there is no such
            tool.
        handler: The handler that runs the tool of a task whose original call no longer exists.
        notify: A function that sends a notification to the subscribed clients.
        stop_with_lifespan: Whether tasks stop when the server's lifespan ends, because tools may
            rely on it.
    """

    def __init__(
        self,
        service: Service,
        settings: TaskSettings,
        support_of: Callable[[str], TaskSupport | None],
        handler: CallHandler,
        notify: ChangeListener,
        *,
        stop_with_lifespan: bool,
    ) -> None:
        self.service, self.limits, self.notify = service, service.limits, notify
        self.support_of = support_of
        self._store = settings.store
        self._engine, self._handler = settings.engine, handler
        self._stop_with_lifespan = stop_with_lifespan
        if self._store is not None:
            self._store.bind(service.limits)
        self.reset_after_fork()
        reset_when_forked.add(self)

    def reset_after_fork(self) -> None:
        """Start with no tasks, because the parent's tasks run in the parent."""
        self.running: dict[str, RunningTask] = {}
        """The tasks that this process runs, by id."""
        self._listened_ids: dict[object, frozenset[str]] = {}
        """For each stream in this process, the tasks whose changes it receives."""
        self.asking: set[tuple[str, str]] = set()
        """The questions that a client is being asked in the core form, by task and key."""
        self._lifespans: dict[asyncio.AbstractEventLoop, int] = {}
        """The number of open lifespans, by loop."""
        self._states: dict[asyncio.AbstractEventLoop, Any] = {}
        """The value of the lifespan, by loop."""
        self.signals = TaskSignals(self.running.__contains__)
        self._mailbox = Mailbox(self)

    @property
    def store(self) -> TaskStore:
        """Where tasks are stored. This is decided when it is first used, because a server may
        receive its backend late."""
        if self._store is None:
            self._store = InMemoryTaskStore()
            self._store.bind(self.limits)
        return self._store

    def connect_bus(self, bus: Bus) -> None:
        """Use the bus that connects the processes of the server, in this event loop."""
        self.signals.connect(bus)

    # beginning

    async def begin(self, call: Call, support: TaskSupport, handler: CallHandler) -> TaskRecord:
        """Turn a call into a task before its tool runs."""
        record = record_from_call(call, support.resumable, self.limits)
        async with self._stored(record, call, claim=self._engine is None) as lease:
            self._schedule(record, lease, call, handler)
        return record

    def _schedule(
        self, record: TaskRecord, lease: Lease | None, call: Call, handler: CallHandler
    ) -> None:
        """Run a task immediately in this process, or hand it to the engine."""
        if self._engine is not None:
            self._engine(record.id, self.perform)
        elif lease is not None:
            self._start(record, lease, call, handler)
            background.start(self.perform(record.id))

    async def detach(
        self,
        call: Call,
        support: TaskSupport,
        handler: CallHandler,
        asyncio_task: "asyncio.Task[Any]",
    ) -> RunningTask:
        """Turn a call into a task while its tool runs, and keep its answers and `ctx.once`
        results."""
        record = record_from_call(call, support.resumable, self.limits)
        record.answers = dict(call.run.answers) if call.run is not None else {}
        record.once_results = {
            key: done for key, done in (call.once_results or {}).items() if isinstance(done, bytes)
        } | {ONCE_SEED: once_seed(call)}
        async with self._stored(record, call, claim=True) as lease:
            assert lease is not None
            task = self._start(record, lease, call, handler)
        task.asyncio_task, task.detached_call = asyncio_task, call
        return task

    @asynccontextmanager
    async def _stored(
        self, record: TaskRecord, call: Call, *, claim: bool
    ) -> AsyncIterator[Lease | None]:
        """Add a record to the store; remove it if the call fails or is cancelled in the
        meantime."""
        try:
            yield await self.store.add(record, claim=claim)
        except BaseException:
            await self.store.remove(record.id)
            raise
        if not call.revision.stateless:
            call.caller.remember_task(record.id)
        log.info("Task %s has started", describe(record))

    def _start(
        self, record: TaskRecord, lease: Lease, call: Call, handler: CallHandler
    ) -> RunningTask:
        task = RunningTask(record, lease, call, handler, self)
        self.running[record.id] = task
        if record.ttl is not None:
            task.expiry_timer = task.loop.call_later(
                max(0.0, record.expires - time.time()), self._expire, task
            )
        self._mailbox.start(task.loop)
        return task

    # running

    async def perform(self, id: str) -> None:
        """Run a task to completion, whether it began in this process or exists only in the
        store."""
        task = self._local(id)
        if task is None:
            claimed = await self.store.claim(id)
            if claimed is None:
                return
            record, lease = claimed
            state = self._states.get(asyncio.get_running_loop())
            task = self._start(record, lease, call_from_record(record, state), self._handler)
        elif task.asyncio_task is not None:
            return  # it is running already
        task.asyncio_task, outcome = asyncio.current_task(), None
        if not task.record.over:  # it may have been cancelled before its turn
            try:
                outcome = await task.handler(task.call)
            except BaseException as error:
                outcome = error
        await self.end(id, outcome)

    async def end(self, id: str, outcome: Any) -> None:
        """Store the outcome of a tool: its result or its exception. A tool that returns questions
        is first called again with the answers."""
        task = self.running[id]
        try:
            if isinstance(outcome, InputRequired | UrlRequired):
                outcome = await self._call_again(task, outcome)
            await self._save_outcome(task, outcome)
        except Exception as error:
            log.error(
                "The final state of task %s could not be saved: %s", describe(task.record), error
            )
            if isinstance(error, TooLarge):  # no task is better than one that seems to run forever
                await self.store.remove(id)
        finally:
            task.finish()
            if task.expiry_timer is not None:
                task.expiry_timer.cancel()
            if self.running.get(id) is task:
                del self.running[id]
            task.signal_change()  # even if nothing was saved: waiting callers now read the store
            await self._close_unused()

    async def _call_again(self, task: RunningTask, returned: InputRequired | UrlRequired) -> Any:
        async def handle(call: Call) -> Any:
            task.used_keys.clear()  # it asks the same questions again
            return await task.handler(call)

        try:
            return await call_until_answered(task.call, handle, returned, self.service)
        except BaseException as error:
            return error

    async def _save_outcome(self, task: RunningTask, outcome: Any) -> None:
        record, current, revision = task.record, asyncio.current_task(), task.call.revision
        if record.over:
            return  # it was cancelled, or has expired
        if isinstance(outcome, asyncio.CancelledError) or (
            current is not None and current.cancelling()
        ):
            if record.resumable:  # another process continues it, and this was not a crash
                record.attempts = 0
                with suppress(TaskStoreBroken):
                    await self.store.put(record, task.lease)
                return
            outcome = InternalError(STOPPED)
        if not isinstance(outcome, BaseException):
            try:
                await self._save_end(task, mark_completed(record, outcome, self.limits))
                return
            except ProtocolError as error:  # it cannot be encoded, or there is no room for it
                outcome = error
            except Exception:
                log.exception("The outcome of task %s could not be saved", describe(record))
                outcome = InternalError(NOT_SAVED)
        whole = as_protocol_error(outcome, task.call)
        shortened = ProtocolError(revision.code(whole), whole.message[:MAX_MESSAGE_LENGTH])
        for attempt in (whole, shortened):
            try:
                await self._save_end(task, mark_failed(record, attempt, revision, self.limits))
                return
            except Exception as problem:
                log.warning(
                    "The error that task %s raised could not be saved: %r",
                    describe(record),
                    problem,
                )
        unsaved = mark_failed(record, InternalError(NOT_SAVED), revision, self.limits)
        await self._save_end(task, unsaved, Exception)

    async def _save_end(
        self, task: RunningTask, record: TaskRecord, retry_on: type[Exception] = Overloaded
    ) -> None:
        """Store the final state of a task. Try again until this succeeds."""
        for pause in chain(SAVE_RETRY_SECONDS, repeat(SAVE_RETRY_SECONDS[-1])):
            try:
                await self.save(task, record)
                return
            except TooLarge:
                raise
            except TaskStoreBroken:
                task.record = record  # it cannot be saved, but is given to those who wait here
                task.signal_change()
                return
            except retry_on as error:
                log.warning(
                    "The final state of task %s has not been saved yet: %s", describe(record), error
                )
            await asyncio.sleep(pause)

    async def save(self, task: RunningTask, changed: TaskRecord | None = None) -> None:
        """Store the record of a task, or a changed copy that replaces it, and notify subscribers.
        Do nothing if the task has already finished."""
        async with task.save_lock:
            if task.record.over:
                return
            record = task.record if changed is None else changed
            record.updated = time.time()
            if record.status == "cancelled":
                stored = await self.store.end(record)  # in any process
            else:
                stored = await self.store.put(record, task.lease)
            if not stored:  # another process cancelled it or took it over, or it has expired
                record = await self.store.get(record.id) or mark_cancelled(record)
                task.stop()
            task.record = record
        if record.over:
            log.info("Task %s: %s", describe(record), record.status)
        task.signal_change()
        self._notify_change(task)

    def _notify_change(self, task: RunningTask) -> None:
        record, revision = task.record, task.call.revision
        if revision.stateless:
            if self.store.shared or self.is_listened(record.id):
                params = make_detailed_task(TaskChangedParams, record, self.limits, revision)
                self.notify("notifications/tasks", params)
        elif record.status != task.notified_status:
            self.notify(
                "notifications/tasks/status", make_core_task(TaskStatusParams, record, self.limits)
            )
        state = (record.status, *record.questions)
        if not revision.stateless and self.store.shared and state != task.signalled_state:
            task.signalled_state = state
            self.signals.send(CHANGE, record.id)  # to `tasks/result` in other processes
        task.notified_status = record.status

    def _expire(self, task: RunningTask) -> None:
        if not task.record.over:
            task.record = mark_failed(
                task.record, InternalError(EXPIRED), task.call.revision, self.limits
            )
            task.signal_change()
            task.stop()
            background.start(self.store.remove(task.record.id))

    # requests about tasks

    async def find(self, id: str) -> TaskRecord | None:
        """Return the newest record of a task."""
        record = await self.store.get(id)
        return None if record is None else self.newest(record)

    def newest(self, record: TaskRecord) -> TaskRecord:
        """Return the local record of a task that this process runs, unless the stored task has
        finished."""
        task = self._local(record.id)
        return record if task is None or record.over else task.record

    def _local(self, id: str) -> RunningTask | None:
        task = self.running.get(id)
        return None if task is None or task.loop.is_closed() else task

    async def wait_for_change(self, id: str, elsewhere: TaskWaiter) -> None:
        """Wait until a task changes, or may have changed in another process.

        Args:
            id: The task.
            elsewhere: What waits for signals about the task, from before its record was read.
        """
        task = self.running.get(id)
        if task is None or task.loop is not asyncio.get_running_loop():
            await elsewhere.wait()
        else:
            await task.wait_for_change()

    def signal_change(self, id: str) -> None:
        """Wake everything that waits for a task to change. May be called from any thread."""
        if (task := self._local(id)) is not None:
            task.loop.call_soon_threadsafe(task.signal_change)

    def is_listened(self, id: str) -> bool:
        """Return whether a stream in this process receives notifications about a task."""
        return any(id in ids for ids in list(self._listened_ids.values()))  # other threads write

    @contextmanager
    def listening(self, ids: list[str]) -> Iterator[None]:
        """Send notifications about these tasks to a stream in this process."""
        stream = object()
        self._listened_ids[stream] = frozenset(ids)
        try:
            yield
        finally:
            self._listened_ids.pop(stream, None)  # a forked child has forgotten it

    async def deliver(self, record: TaskRecord, message: TaskMessage) -> None:
        """Deliver a message to a task in any process; raise InvalidParams if an answer does not fit
        its question."""
        task = self._local(record.id)
        if task is None:
            await self._mailbox.send(record, message)
        elif task.loop is asyncio.get_running_loop():
            await task.receive(message)
        else:
            await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(task.receive(message), task.loop)
            )

    async def cancel(self, record: TaskRecord) -> None:
        """Mark a task as cancelled immediately, even if its tool takes time to stop."""
        message = TaskMessage(record.id, cancel=True)
        log.info("Cancelling task %s", describe(record))
        if self._local(record.id) is not None:
            await self.deliver(record, message)
        elif await self.store.end(mark_cancelled(record)):  # else it was already over
            with suppress(Overloaded):  # then it stops at its next write
                await self._mailbox.send(record, message)

    # the lifespan of the server

    @property
    def busy(self) -> bool:
        """Whether a task is running, or may start, in this process."""
        loops = (*self._lifespans, *(task.loop for task in list(self.running.values())))
        return not all(loop.is_closed() for loop in loops)

    @asynccontextmanager
    async def lifespan(self, inner: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Wrap the server's lifespan: resume tasks when it starts, and stop them when it ends."""
        loop = asyncio.get_running_loop()
        async with inner as state:
            self._reserve_store()
            lost_a_loop = any(task.loop.is_closed() for task in list(self.running.values()))
            first = not self._lifespans
            self._lifespans[loop] = self._lifespans.get(loop, 0) + 1
            self._states[loop] = state
            sweeper = loop.create_task(self._sweep(state))
            try:
                await self._recover(state, include_own=first or lost_a_loop)
                yield state
            finally:
                sweeper.cancel()
                await asyncio.wait([sweeper])
                self._lifespans[loop] -= 1
                if not self._lifespans[loop]:
                    del self._lifespans[loop], self._states[loop]
                    await self._close_loop(loop)

    def _reserve_store(self) -> None:
        """Make sure that no other server uses the store: each server would treat the other's tasks
        as orphans."""
        store = self.store
        other = _last_managers.get(id(store))
        if other is not None and other is not self and other.store is store and other.busy:
            raise ConfigError(
                f"Another server in this process already uses this {type(store).__name__}; give "
                "each server its own"
            )
        _last_managers[id(store)] = self

    async def _close_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the tasks of a loop when its last lifespan ends, if tools may rely on the
        lifespan."""
        tasks = {
            task.asyncio_task: task
            for task in list(self.running.values())
            if task.loop is loop and task.asyncio_task is not None
        }
        if self._stop_with_lifespan and tasks:
            for task in tasks.values():
                task.call.abort_error = InternalError(STOPPED)
                task.stop()
            await asyncio.wait(tasks, timeout=self.limits.shutdown)
        await self._close_unused()

    async def _close_unused(self) -> None:
        """Close the store after the last lifespan and the last task, so that another server can
        resume what was stopped."""
        if not self._lifespans and not self.running:
            await self.store.close()

    async def _recover(self, state: Any, *, include_own: bool) -> None:
        """Resume the tasks that no process runs any more, or mark them as failed."""
        try:
            orphans = await self.store.claim_orphans(include_own=include_own, can_run=self._can_run)
        except ConfigError:
            raise  # there is no store at all
        except TaskStoreBroken:
            return
        except Exception as error:
            log.warning(
                "Orphaned tasks could not be resumed: %s",
                error,
                exc_info=not isinstance(error, Overloaded),
            )
            return
        for record, lease in orphans:
            if self._local(record.id) is not None:
                continue
            try:
                await self._resume(record, lease, state)
            except Exception:  # it must not harm other tasks, or the server
                log.exception("The orphaned task %s could not be resumed", describe(record))

    def _can_run(self, record: TaskRecord) -> bool:
        """Return whether to take over an orphaned task. A resumable task is left for a server that
        has its tool."""
        return not record.resumable or self.support_of(record.tool) not in (None, FORBIDDEN)

    async def _resume(self, record: TaskRecord, lease: Lease, state: Any) -> None:
        if not record.resumable:
            await self._fail(record, STOPPED, lease)
            return
        if record.attempts >= self.limits.task_attempts:
            await self._fail(record, GIVEN_UP.format(record.attempts + 1), lease)
            return
        record.attempts += 1
        if not await self.store.put(record, lease):  # before it can crash the process again
            return
        try:
            if self._engine is not None:
                await self.store.release(lease)
            self._schedule(record, lease, call_from_record(record, state), self._handler)
        except Exception as error:
            log.warning("The engine refused task %s: %r", describe(record), error)
            await self._fail(record, NOT_RESUMED)

    async def _fail(self, record: TaskRecord, reason: str, lease: Lease | None = None) -> None:
        revision = BY_NAME[record.origin.revision]
        failed = mark_failed(record, InternalError(reason), revision, self.limits)
        if await (self.store.end(failed) if lease is None else self.store.put(failed, lease)):
            log.warning("Task %s has failed: %s", describe(record), reason)

    async def _sweep(self, state: Any) -> None:
        """Periodically delete expired tasks and resume tasks orphaned by other processes."""
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.store.lease_seconds / 4))
            try:
                await self.store.delete_expired()
                await self._recover(state, include_own=False)
            except TaskStoreBroken:
                pass
            except Exception as error:  # it is tried again
                log.warning("Failed to delete expired tasks or resume orphaned tasks: %s", error)


_last_managers: WeakValueDictionary[int, TaskManager] = WeakValueDictionary()
"""The last manager that used each store, by the identity of the store."""
