"""Decide which tasks this process runs, from the start of the server to its end.

A store with a queue lets tasks wait for a process that has a free slot (`Limits.task_slots`). Such
a process pulls them, and takes over the tasks of processes that died. When it is told to stop, it
pulls no more tasks. Another process continues the tasks that can be resumed; the others have until
`Limits.shutdown` to finish.

Without a queue, a task runs in the process in which it begins. After a crash, another process that
shares the store, or the next one to start, takes it over.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from random import uniform
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ...aio import backoff, run_on_loop
from ...errors import BackendAway, ConfigError, InternalError, Overloaded
from ...logs import get_logger
from ...revisions import BY_NAME
from .outcome import STOPPED
from .running_task import RunningTask
from .settings import FORBIDDEN
from .signals import CHANGE
from .store import Claim, Lease, TaskRecord, TaskStoreBroken
from .wire import call_from_record, describe, mark_failed

if TYPE_CHECKING:
    from .manager import TaskManager

log = get_logger("tasks")

SWEEP_SECONDS = 60.0
"""The longest interval at which expired tasks are deleted and orphaned tasks are resumed."""
GRACE_SHARE = 0.75
"""The part of `Limits.shutdown` after which tasks that have not finished are stopped. They need the
rest to store that they were stopped."""
GIVEN_UP = "The server stopped {} times while this task was running, and the task made no progress"
NOT_RESUMED = "The server stopped while this task was running, and the task could not be resumed"
NO_TOOL = "No process of this server has the tool {!r} any more, so the task cannot run"
NOT_STARTED = "The task could not be started"


class TaskScheduler:
    """What one process does about the tasks of its server.

    Args:
        manager: The tasks.
        slots: A function that returns how many tasks this process runs at the same time, if the
            store has a queue.
        stop_with_lifespan: Whether tasks stop when the server's lifespan ends, because tools may
            rely on it.
    """

    def __init__(
        self, manager: "TaskManager", slots: Callable[[], int], *, stop_with_lifespan: bool
    ) -> None:
        self._manager, self._slots = manager, slots
        self._stop_with_lifespan = stop_with_lifespan
        self.taken_over = 0
        """How many tasks this process has taken over from others."""
        self.waiting = 0
        """How many tasks waited in the queue when this process last looked."""
        self.lost: set[RunningTask] = set()
        """The tasks that other processes may run, although their tools have not stopped here yet.
        They still use their slots."""
        self.reserved = 0
        """The number of slots of tasks that are about to start."""
        self._lifespans: dict[asyncio.AbstractEventLoop, int] = {}
        """The number of open lifespans, by loop."""
        self.states: dict[asyncio.AbstractEventLoop, Any] = {}
        """The value of the lifespan, by loop."""
        self._draining: dict[asyncio.AbstractEventLoop, float] = {}
        """When each loop that takes no more tasks was told to stop."""
        self._pullers: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        """The task that pulls tasks from the queue, by loop."""
        self._slot_freed: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}
        """What wakes that task when there is a free slot, by loop."""

    # slots

    @property
    def free_slots(self) -> int:
        """How many more tasks this process may run, if the store has a queue."""
        return self._slots() - len(self._manager.running) - len(self.lost) - self.reserved

    @property
    def can_begin(self) -> bool:
        """Whether a new task runs in this process, in this event loop. Otherwise, it waits in the
        queue."""
        if not self._manager.store.queued:
            return True
        return self.free_slots > 0 and asyncio.get_running_loop() not in self._draining

    def on_end(self, task: RunningTask) -> None:
        """Free the slot of a task whose tool has ended."""
        self.lost.discard(task)
        for loop, freed in list(self._slot_freed.items()):
            run_on_loop(loop, freed.set)

    # the lifespan of the server

    @property
    def busy(self) -> bool:
        """Whether a task is running, or may start, in this process."""
        tasks = (*list(self._manager.running.values()), *self.lost)
        loops = (*self._lifespans, *(task.loop for task in tasks))
        return not all(loop.is_closed() for loop in loops)

    @asynccontextmanager
    async def lifespan(self, inner: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Wrap the server's lifespan: take tasks when it starts, and stop them when it ends."""
        loop = asyncio.get_running_loop()
        async with inner as state:
            self._reserve_store()
            running = list(self._manager.running.values())
            lost_a_loop = any(task.loop.is_closed() for task in running)
            first = not self._lifespans
            self._lifespans[loop] = self._lifespans.get(loop, 0) + 1
            self.states[loop] = state
            sweeper = loop.create_task(self._sweep())
            try:
                await self._recover(include_own=first or lost_a_loop)
                self._start_pulling(loop)
                yield state
            finally:
                sweeper.cancel()
                await asyncio.wait([sweeper])
                self._lifespans[loop] -= 1
                if not self._lifespans[loop]:
                    await self._close_loop(loop)

    def _reserve_store(self) -> None:
        """Make sure that no other server uses the store: each server would treat the other's tasks
        as orphans."""
        store = self._manager.store
        other = _last_managers.get(id(store))
        if other is not None and other is not self._manager and other.store is store and other.busy:
            raise ConfigError(
                f"Another server in this process already uses this {type(store).__name__}; give "
                "each server its own"
            )
        _last_managers[id(store)] = self._manager

    def drain(self) -> None:
        """Take no more tasks in this event loop, which will stop soon, and let other processes
        continue the tasks that can be resumed."""
        loop = asyncio.get_running_loop()
        if not self._manager.store.queued or loop in self._draining:
            return
        self._draining[loop] = time.monotonic()
        if (puller := self._pullers.get(loop)) is not None:
            puller.cancel()
        for task in self._manager.running_in(loop):
            if task.record.resumable and not task.once_running:
                _stop(task)

    async def _close_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the tasks of a loop when its last lifespan ends, if tools may rely on the lifespan
        or other processes can continue them."""
        self.drain()
        puller, drained_at = self._pullers.pop(loop, None), self._draining.pop(loop, None)
        del self._lifespans[loop], self.states[loop]
        self._slot_freed.pop(loop, None)
        shutdown = self._manager.limits.shutdown
        if puller is not None:
            await asyncio.wait([puller])
        if drained_at is not None:
            rest = drained_at + shutdown * GRACE_SHARE - time.monotonic()
            await self._wait_for_tasks(loop, max(0.0, rest))
        if self._stop_with_lifespan or drained_at is not None:
            for task in self._manager.running_in(loop):
                _stop(task)
            await self._wait_for_tasks(loop, shutdown)
        await self.close_unused()

    async def _wait_for_tasks(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        tasks = (
            *self._manager.running_in(loop),
            *(task for task in self.lost if task.loop is loop),
        )
        running = [task.asyncio_task for task in tasks if task.asyncio_task is not None]
        if running:
            await asyncio.wait(running, timeout=timeout)

    async def close_unused(self) -> None:
        """Close the store after the last lifespan and the last task, so that another server can
        resume what was stopped."""
        if not self._lifespans and not self._manager.running and not self.lost:
            await self._manager.store.close()

    # tasks that wait in the queue

    def _start_pulling(self, loop: asyncio.AbstractEventLoop) -> None:
        manager = self._manager
        is_wanted = manager.store.queued and manager.engine is None and self._slots()
        if is_wanted and loop not in self._pullers:
            self._slot_freed[loop] = asyncio.Event()
            self._pullers[loop] = loop.create_task(self._pull(self._slot_freed[loop]))

    async def _pull(self, slot_freed: asyncio.Event) -> None:
        store, failures = self._manager.store, 0
        while True:
            room = self.free_slots
            if room <= 0:
                slot_freed.clear()
                await slot_freed.wait()
                continue
            try:
                await self._run_all_pulled(await store.pull(room, self._has_tool))
                failures = 0
                continue
            except BackendAway:
                pass
            except Exception as error:
                log.warning("Tasks that wait could not be pulled: %r", error)
            await asyncio.sleep(backoff(failures, 0.2, 2.0))
            failures += 1

    async def _run_all_pulled(self, claims: list[Claim]) -> None:
        """Run tasks. Those for which there is no slot any more, because tasks began here in the
        meantime, wait in the queue again, and so does the rest if this process stops."""
        for index, (record, lease) in enumerate(claims):
            try:
                if self.free_slots > 0:
                    await self._run_pulled(record, lease)
                else:
                    await self._queue_again(lease)
            except asyncio.CancelledError:
                for _, unstarted in claims[index:]:
                    await self._queue_again(unstarted)
                raise

    async def _queue_again(self, lease: Lease) -> None:
        with suppress(BackendAway):  # then its lease ends
            await self._manager.store.release(lease, queue=True)

    async def _run_pulled(self, record: TaskRecord, lease: Lease) -> None:
        try:
            if self._has_tool(record):
                self._start(record, lease)
            else:
                await self.fail(record, NO_TOOL.format(record.tool), lease)
        except BackendAway:
            pass  # another process takes it over when the lease has ended
        except Exception:  # it must not harm other tasks, or the server
            log.exception("Task %s could not be started", describe(record))
            await self.fail(record, NOT_STARTED, lease)

    def _start(self, record: TaskRecord, lease: Lease) -> None:
        """Run a task, or hand it to the engine, without its original call."""
        manager = self._manager
        if (old := manager.running.get(record.id)) is not None:
            old.lose()  # another process had taken it over in the meantime
        state = self.states.get(asyncio.get_running_loop())
        manager.schedule(record, lease, call_from_record(record, state), manager.handler)

    def _has_tool(self, record: TaskRecord) -> bool:
        return self._manager.support_of(record.tool) not in (None, FORBIDDEN)

    # tasks that others have left

    async def _sweep(self) -> None:
        """Periodically delete expired tasks and resume tasks orphaned by other processes."""
        store = self._manager.store
        interval = min(SWEEP_SECONDS, store.lease_seconds / 4)
        cleaned_at = time.monotonic()
        while True:
            # Not at the same moment as all other processes.
            await asyncio.sleep(interval * (uniform(0.75, 1.25) if store.queued else 1.0))
            try:
                if time.monotonic() >= cleaned_at + SWEEP_SECONDS:
                    cleaned_at = time.monotonic()
                    await store.delete_expired()
                await self._recover(include_own=False)
                self.waiting = await store.count_waiting()
            except (TaskStoreBroken, BackendAway):
                pass
            except Exception as error:  # it is tried again
                log.warning("Failed to delete expired tasks or resume orphaned tasks: %s", error)

    async def _recover(self, *, include_own: bool) -> None:
        """Resume the tasks that no process runs any more, or mark them as failed."""
        store = self._manager.store
        room = self.free_slots if store.queued else None
        if room is not None and (room <= 0 or asyncio.get_running_loop() in self._draining):
            return
        try:
            orphans = await store.claim_orphans(
                include_own=include_own, can_run=self._can_resume, room=room
            )
        except ConfigError:
            raise  # there is no store at all
        except (TaskStoreBroken, BackendAway):
            return
        except Exception as error:
            log.warning(
                "Orphaned tasks could not be resumed: %s",
                error,
                exc_info=not isinstance(error, Overloaded),
            )
            return
        for record, lease in orphans:
            if not store.queued and self._manager.is_running(record.id):
                continue
            self.taken_over += 1
            try:
                await self._resume(record, lease)
            except BackendAway:
                pass  # it remains an orphan
            except Exception:  # it must not harm other tasks, or the server
                log.exception("The orphaned task %s could not be resumed", describe(record))

    def _can_resume(self, record: TaskRecord) -> bool:
        """Return whether to take over an orphaned task. A resumable task is left for a server that
        has its tool."""
        return not record.resumable or self._has_tool(record)

    async def _resume(self, record: TaskRecord, lease: Lease) -> None:
        store = self._manager.store
        reason = None
        if not record.resumable:
            reason = STOPPED
        elif not self._has_tool(record):
            reason = NO_TOOL.format(record.tool)
        elif record.attempts >= self._manager.limits.task_attempts:
            reason = GIVEN_UP.format(record.attempts + 1)
        if reason is not None:
            await self.fail(record, reason, lease)
            return
        record.attempts += 1
        if not await store.put(record, lease):  # before it can crash the process again
            return
        try:
            if self._manager.engine is not None:
                await store.release(lease)
            self._start(record, lease)
        except Exception as error:
            log.warning("The engine refused task %s: %r", describe(record), error)
            await self.fail(record, NOT_RESUMED)

    async def fail(self, record: TaskRecord, reason: str, lease: Lease | None = None) -> None:
        """Mark a task as failed that no process runs."""
        store, revision = self._manager.store, BY_NAME[record.origin.revision]
        failed = mark_failed(record, InternalError(reason), revision, self._manager.limits)
        if await (store.end(failed) if lease is None else store.put(failed, lease)):
            log.warning("Task %s has failed: %s", describe(record), reason)
            self._manager.signals.send(CHANGE, record.id)


def _stop(task: RunningTask) -> None:
    task.call.abort_error = InternalError(STOPPED)
    task.stop()


_last_managers: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""The last manager that used each store, by the identity of the store."""
