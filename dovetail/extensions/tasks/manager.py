"""Run tasks, and keep the store up to date.

`running` holds the tasks that this process runs, with their newest records. All other records are
read from the store. The start, the questions and the outcome of a task are stored before a client
sees them. A finished task never changes again.

If several processes share a store, answers and cancellations for a task in another process are sent
as messages (`Mailbox`).
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any

from msgspec import Struct

from ...connection.input_requests import ONCE_SEED, once_seed
from ...errors import BackendAway, InternalError, Overloaded, TooLarge, UrlRequired
from ...logs import get_logger
from ...ports import Bus, Call, CallHandler, ChangeListener, Service
from ...protocol.lifecycle import InputRequired
from ...protocol.tasks import TaskChangedParams, TaskStatusParams
from .expiry import ExpiryTimers
from .leases import LeaseRenewer
from .mailbox import Mailbox
from .outcome import call_again, save_outcome
from .running_task import RunningTask, TaskLeft, background
from .scheduler import TaskScheduler
from .settings import TaskSettings, TaskSupport
from .signals import CHANGE, TaskSignals, TaskWaiter
from .store import (
    InMemoryTaskStore,
    Lease,
    TaskMessage,
    TaskRecord,
    TaskStore,
    reset_when_forked,
)
from .wire import (
    call_from_record,
    describe,
    make_core_task,
    make_detailed_task,
    mark_cancelled,
    mark_failed,
    record_from_call,
)

log = get_logger("tasks")

DISCARD_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""The pauses before attempts to delete a task whose call has failed."""
EXPIRED = "The task ran longer than its time to live"


class TaskCounts(Struct, frozen=True):
    """The numbers of tasks, for metrics."""

    running: int
    """How many tasks this process runs."""
    taken_over: int
    """How many tasks this process has taken over from others since it started."""
    waiting: int
    """How many tasks wait for a process, in all processes together. This number is up to a quarter
    of `Limits.task_lease` old."""


class TaskManager:
    """The tasks of one server in one process.

    Args:
        service: The server.
        settings: Where tasks are stored and how they are scheduled.
        support_of: A function that returns the task support of a tool, or None if there is no such
            tool.
        handler: The handler that runs the tool of a task whose original call no longer exists.
        notify: A function that sends a notification to the subscribed clients.
        slots: A function that returns how many tasks this process runs at the same time, if the
            store has a queue.
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
        slots: Callable[[], int],
        stop_with_lifespan: bool,
    ) -> None:
        self.service, self.limits, self.notify = service, service.limits, notify
        self.support_of = support_of
        self._store = settings.store
        self.engine, self.handler = settings.engine, handler
        self._slots, self._stop_with_lifespan = slots, stop_with_lifespan
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
        self.signals = TaskSignals(self.running.__contains__)
        self._mailbox, self._leases = Mailbox(self), LeaseRenewer(self)
        self._expiry = ExpiryTimers(self)
        self.scheduler = TaskScheduler(
            self, self._slots, stop_with_lifespan=self._stop_with_lifespan
        )

    @property
    def store(self) -> TaskStore:
        """Where tasks are stored: in the store of the settings, in the backend, or in memory. This
        is decided when it is first used, because a server may receive its backend late."""
        if self._store is None:
            backend = self.service.backend
            self._store = backend.tasks() if backend else InMemoryTaskStore()
            self._store.bind(self.limits)
        return self._store

    def connect_bus(self, bus: Bus) -> None:
        """Use the bus that connects the processes of the server, in this event loop."""
        self.signals.connect(bus)

    # beginning

    async def begin(self, call: Call, support: TaskSupport, handler: CallHandler) -> TaskRecord:
        """Turn a call into a task before its tool runs."""
        record = record_from_call(call, support.resumable, self.limits)
        claim = self.engine is None and self.scheduler.can_begin
        self.scheduler.reserved += claim
        try:
            lease = await self._add(record, claim=claim)
            try:
                self.schedule(record, lease, call, handler, is_new=True)
            except BaseException:
                await self._discard(record)
                raise
        finally:
            self.scheduler.reserved -= claim
        self._on_begun(record, call)
        return record

    def schedule(
        self,
        record: TaskRecord,
        lease: Lease | None,
        call: Call,
        handler: CallHandler,
        *,
        is_new: bool = False,
    ) -> None:
        """Run a task immediately in this process, hand it to the engine, or let it wait in the
        queue of the store."""
        if self.engine is not None:
            self.engine(record.id, self.perform)
        elif lease is not None:
            self._start(record, lease, call, handler, is_new=is_new)
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
        lease = await self._add(record, claim=True)
        assert lease is not None
        try:
            task = self._start(record, lease, call, handler, is_new=True)
        except BaseException:
            await self._discard(record)
            raise
        self._on_begun(record, call)
        task.asyncio_task, task.detached_call = asyncio_task, call
        return task

    async def _add(self, record: TaskRecord, *, claim: bool) -> Lease | None:
        """Add a record to the store; remove it if the call fails or is cancelled in the
        meantime."""
        try:
            return await self.store.add(record, claim=claim)
        except BaseException as error:
            if not (isinstance(error, BackendAway) and not error.sent):
                await self._discard(record)
            raise

    def _on_begun(self, record: TaskRecord, call: Call) -> None:
        if not call.revision.stateless:
            call.caller.remember_task(record.id)
            if call.caller.on_task is not None:
                call.caller.on_task(record.id)
        log.info("Task %s has started", describe(record))

    async def _discard(self, record: TaskRecord) -> None:
        """Delete a task that its caller does not know. If the backend is away, it may have the
        task, so try again later."""
        try:
            await self.store.remove(record.id)
        except BackendAway:
            background.start(self._discard_later(record))

    async def _discard_later(self, record: TaskRecord) -> None:
        for pause in DISCARD_SECONDS:
            await asyncio.sleep(pause)
            with suppress(BackendAway):
                await self.store.remove(record.id)
                return
        log.warning("Task %s may run, although its call has failed", describe(record))

    def _start(
        self,
        record: TaskRecord,
        lease: Lease,
        call: Call,
        handler: CallHandler,
        *,
        is_new: bool = False,
    ) -> RunningTask:
        task = RunningTask(record, lease, call, handler, self)
        self.running[record.id] = task
        if record.ttl is not None:
            life = record.expires - time.time() if lease.life is None else lease.life
            self._expiry.start(task, max(0.0, life))
        self._mailbox.start(task.loop, is_new=is_new)
        self._leases.start(task)
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
            state = self.scheduler.states.get(asyncio.get_running_loop())
            task = self._start(record, lease, call_from_record(record, state), self.handler)
        elif task.asyncio_task is not None:
            return  # it is running already
        task.asyncio_task = asyncio.current_task()
        if task.record.over or task.call.cancelled:  # it was stopped before its turn
            outcome: Any = asyncio.CancelledError()
        else:
            try:
                outcome = await task.handler(task.call)
            except BaseException as error:
                outcome = error
        await self.end(task, outcome)

    async def end(self, task: RunningTask, outcome: Any) -> None:
        """Store the outcome of a tool: its result or its exception. A tool that returns questions
        is first called again with the answers."""
        try:
            if isinstance(outcome, InputRequired | UrlRequired):
                outcome = await call_again(self, task, outcome)
            task.is_ending = True
            await save_outcome(self, task, outcome)
        except Exception as error:
            log.error(
                "The final state of task %s could not be saved: %s", describe(task.record), error
            )
            if isinstance(error, TooLarge):  # no task is better than one that seems to run forever
                await self.store.remove(task.record.id)
        finally:
            task.finish()
            if self.running.get(task.record.id) is task:
                del self.running[task.record.id]
            self.scheduler.on_end(task)
            task.signal_change()  # even if nothing was saved: waiting callers now read the store
            await self.scheduler.close_unused()

    def on_lost(self, task: RunningTask) -> None:
        """Forget a task that another process may run, although its tool has not stopped yet."""
        if self.running.get(task.record.id) is task:
            del self.running[task.record.id]
            self.scheduler.lost.add(task)
            task.signal_change()  # waiting callers now read the store

    def can_park(self, task: RunningTask) -> bool:
        """Return whether a task needs no process while it waits for input."""
        return self.store.queued and self.engine is None and task.record.resumable

    async def save(self, task: RunningTask, changed: TaskRecord | None = None) -> None:
        """Store the record of a task, or a changed copy that replaces it, and notify subscribers.
        Do nothing if the task has already finished.

        If the caller is cancelled, the record is still saved, because the store may have received
        it. No later save begins before that, so none is overwritten."""
        if not self.store.shared:
            await self._save(task, changed)  # a store in memory writes immediately
            return
        saved: asyncio.Future[None] = task.loop.create_future()
        background.start(self._save_to_end(task, changed, saved))
        await saved

    async def _save_to_end(
        self, task: RunningTask, changed: TaskRecord | None, saved: "asyncio.Future[None]"
    ) -> None:
        """Save, then tell the caller if it still waits. `asyncio.shield` would take 7 µs more."""
        try:
            await self._save(task, changed)
        except asyncio.CancelledError:
            saved.cancel()
            raise
        except Exception as error:
            if not saved.done():
                saved.set_exception(error)
        else:
            if not saved.done():
                saved.set_result(None)

    async def _save(self, task: RunningTask, changed: TaskRecord | None) -> None:
        async with task.save_lock:
            if task.record.over or task.is_lost:
                return
            record = task.record if changed is None else changed
            record.updated = time.time()
            questions, answers = record.questions, record.answers
            if record.status == "cancelled":
                stored = await self.store.end(record)  # in any process
            else:
                stored = await self.store.put(record, task.lease)
            if not stored:  # another process cancelled it or took it over, or it has expired
                found = await self.store.get(record.id)
                if found is not None and not found.over:
                    task.lose()
                    return
                record = found or mark_cancelled(record)
            if not stored or record.status == "cancelled":
                task.stop()
            task.record = record
            task.stored_questions, task.stored_answers = questions, answers
        if record.over:
            log.info("Task %s: %s", describe(record), record.status)
        task.signal_change()
        self._notify_change(task)

    def _notify_change(self, task: RunningTask) -> None:
        record, revision = task.visible_record, task.call.revision
        if revision.stateless:
            if self.is_listened(record.id) or (self.store.shared and self.signals.reach_others):
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

    def expire(self, task: RunningTask) -> None:
        """Stop a task that has run longer than its time to live, and delete it."""
        if not task.record.over:
            task.record = mark_failed(
                task.record, InternalError(EXPIRED), task.call.revision, self.limits
            )
            task.signal_change()
            task.stop()
            background.start(self._discard(task.record))

    # requests about tasks

    async def find(self, id: str) -> TaskRecord | None:
        """Return the newest record of a task. While the store is away, it is that of a task in this
        process."""
        task = self._local(id)
        if task is not None and not self.store.shared and not task.record.over:
            return task.visible_record  # nobody else changes the stored one (2 µs less)
        try:
            record = await self.store.get(id)
        except BackendAway:
            if (task := self._local(id)) is None:
                raise
            return task.visible_record
        return None if record is None else self.newest(record)

    def newest(self, record: TaskRecord) -> TaskRecord:
        """Return the local record of a task that this process runs, unless the stored task has
        finished."""
        task = self._local(record.id)
        return record if task is None or record.over else task.visible_record

    def _local(self, id: str) -> RunningTask | None:
        task = self.running.get(id)
        return None if task is None or task.loop.is_closed() else task

    def running_in(self, loop: asyncio.AbstractEventLoop) -> list[RunningTask]:
        """Return the tasks that this process runs in an event loop."""
        return [task for task in list(self.running.values()) if task.loop is loop]

    def is_running(self, id: str) -> bool:
        """Return whether this process runs a task."""
        return self._local(id) is not None

    async def wait_for_change(self, id: str, waiter: TaskWaiter) -> None:
        """Wait until a task changes, or may have changed in another process.

        Args:
            id: The task.
            waiter: Receives the signals about the task. It was created before the record was read,
                so no signal is missed.
        """
        task = self.running.get(id)
        if task is None or task.loop is not asyncio.get_running_loop():
            await waiter.wait()
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
        if task is not None:
            received = task.receive(message)
            try:
                if task.loop is asyncio.get_running_loop():
                    await received
                else:
                    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(received, task.loop))
                return
            except TaskLeft:  # our copy has the answers already, but the stored one may not
                record = await self.store.get(record.id) or record
        await self._mailbox.send(record, message)

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
    def counts(self) -> TaskCounts:
        """The numbers of tasks, for metrics."""
        scheduler = self.scheduler
        return TaskCounts(len(self.running), scheduler.taken_over, scheduler.waiting)

    @property
    def busy(self) -> bool:
        """Whether a task is running, or may start, in this process."""
        return self.scheduler.busy

    def lifespan(self, inner: AbstractAsyncContextManager[Any]) -> AbstractAsyncContextManager[Any]:
        """Wrap the server's lifespan: take tasks when it starts, and stop them when it ends."""
        return self.scheduler.lifespan(inner)
