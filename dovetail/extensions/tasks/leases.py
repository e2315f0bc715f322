"""Renew the leases of running tasks, and stop the tasks whose lease is lost.

A lease is measured by two clocks: that of the store, and the monotonic clock of this process,
started before the lease was requested. So it ends here before it ends there. A task stops when
nine tenths of its lease have passed and it could not be renewed: its tool has the last tenth to
stop before another process takes over the task.
"""

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING

from ...errors import Overloaded
from ...logs import get_logger
from .running_task import RunningTask, background
from .store import TaskStoreBroken

if TYPE_CHECKING:
    from .manager import TaskManager

log = get_logger("tasks")


class LeaseRenewer:
    """Renews the leases of one process. All leases of an event loop are renewed together."""

    def __init__(self, manager: "TaskManager") -> None:
        self._manager = manager
        self._renewing: set[asyncio.AbstractEventLoop] = set()
        """The event loops in which a task renews leases."""

    def start(self, task: RunningTask) -> None:
        """Renew the lease of a task as long as the task runs."""
        if task.lease.until == inf:
            return  # it ends with this process
        task.set_lease(task.lease)
        if task.loop not in self._renewing:
            self._renewing.add(task.loop)
            background.start(self._renew(task.loop))

    async def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        store = self._manager.store
        interval = store.lease_seconds / 4
        next_time = time.monotonic() + interval
        try:
            while self._manager.running_in(loop):
                await asyncio.sleep(max(0.0, next_time - time.monotonic()))
                next_time = time.monotonic() + interval
                if (tasks := self._manager.running_in(loop)) and not await self._renew_all(tasks):
                    next_time = time.monotonic() + interval / 5  # the store may be back soon
        finally:
            self._renewing.discard(loop)

    async def _renew_all(self, tasks: list[RunningTask]) -> bool:
        """Renew the leases of these tasks. Return False if the store is not available."""
        try:
            renewed = await self._manager.store.renew([task.lease for task in tasks])
        except (Overloaded, TaskStoreBroken):
            return False  # if it stays away, the leases end
        except Exception as error:
            log.warning("The leases of tasks could not be renewed: %s", error)
            return False
        leases = {lease.id: lease for lease in renewed}
        for task in tasks:
            if (lease := leases.get(task.record.id)) is not None:
                task.set_lease(lease)
            elif not task.is_ending:  # otherwise the store decides about its last write
                task.lose()
        return True
