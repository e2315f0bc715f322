"""Signals between the processes that share a store, over the bus of the server.

A process signals that it has stored a message to a task (`MESSAGE`) or a change of a task
(`CHANGE`), so that another process reads the store at once. The bus may lose a signal, and some
processes have no bus. So a process that waits for a signal also reads the store periodically.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from ...aio import run_on_loop
from ...ports import Bus

MESSAGE, CHANGE = "task/message", "task/change"
ANY = ""
"""Instead of the id of a task: any task."""
POLL_SECONDS = 0.25
"""How often a process without a bus reads the store while it waits."""
LOST_SIGNAL_SECONDS = 2.0
"""How often a process with a bus reads the store while it waits, because a signal may be lost."""


class TaskSignals:
    """The signals of one process.

    Args:
        runs: A function that returns whether this process runs a task. Only then does it read the
            messages to the task.
    """

    def __init__(self, runs: Callable[[str], bool]) -> None:
        self._runs = runs
        self._buses: dict[asyncio.AbstractEventLoop, Bus] = {}
        self._waiters: dict[tuple[asyncio.AbstractEventLoop, str, str], set[TaskWaiter]] = {}
        """What waits for signals, by its event loop, topic and task."""

    def connect(self, bus: Bus) -> None:
        """Use a bus in this event loop."""
        loop = asyncio.get_running_loop()
        self._buses = {one: bus for one, bus in self._buses.items() if not one.is_closed()}
        self._buses[loop] = bus
        for topic in (MESSAGE, CHANGE):
            bus.on(topic, partial(self._on_signal, loop, topic))

    @property
    def reach_others(self) -> bool:
        """Whether a bus connects this process to others."""
        return any(not bus.alone for bus in list(self._buses.values()))  # other threads write

    def send(self, topic: str, id: str) -> None:
        """Wake what waits for a signal about this task in other processes and event loops. May be
        called from any thread."""
        current = asyncio._get_running_loop()
        # A bus does not deliver to its own event loop, so prefer the bus of the current one.
        for loop, bus in sorted(self._buses.items(), key=lambda one: one[0] is not current):
            run_on_loop(loop, bus.publish, topic, id)
            if not bus.alone:
                return

    @contextmanager
    def waiting(self, topic: str, id: str) -> "Iterator[TaskWaiter]":
        """Receive signals.

        Args:
            topic: `MESSAGE` or `CHANGE`.
            id: The task, or `ANY`.
        """
        loop = asyncio.get_running_loop()
        waiter, key = TaskWaiter(self._buses.get(loop)), (loop, topic, id)
        self._waiters.setdefault(key, set()).add(waiter)
        try:
            yield waiter
        finally:
            self._waiters[key].discard(waiter)
            if not self._waiters[key]:
                del self._waiters[key]

    def _on_signal(self, loop: asyncio.AbstractEventLoop, topic: str, id: str) -> None:
        if topic == MESSAGE and not self._runs(id):
            return
        for which in (id, ANY):
            for waiter in self._waiters.get((loop, topic, which), ()):
                waiter.wake()


class TaskWaiter:
    """Waits for signals. A signal that arrives between two waits ends the second one at once."""

    def __init__(self, bus: Bus | None) -> None:
        self._bus, self._event = bus, asyncio.Event()
        self.wake = self._event.set

    async def wait(self) -> None:
        """Wait for a signal, or until one may have been lost."""
        has_bus = self._bus is not None and not self._bus.alone
        with suppress(TimeoutError):
            async with asyncio.timeout(LOST_SIGNAL_SECONDS if has_bus else POLL_SECONDS):
                await self._event.wait()
        self._event.clear()
