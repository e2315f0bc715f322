"""Worker threads for plain `def` functions: a pool of our own, bounded, of daemon threads.

Not asyncio's default executor: that one holds up the exit of the process and is shared with name
look-ups and the like. Whatever the function raises, SystemExit included, comes back to whoever
awaits; nothing is raised in the thread itself.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ..errors import Overloaded

Job = tuple[
    contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"
]


class Threads:
    """Threads are started as they are needed, and wait for more when they are done."""

    def __init__(self, most: int, queue: int) -> None:
        self._most = most
        self._queue_limit = queue
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._started = 0
        self._idle = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """The function's result. Cancelling stops the wait, not the thread."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        job = (contextvars.copy_context(), function, loop, done)
        with self._wake:
            if len(self._jobs) >= self._queue_limit:
                raise Overloaded(f"{self._queue_limit} calls already wait for a worker thread")
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._wake.notify()
            elif self._started < self._most:
                self._started += 1
                threading.Thread(
                    target=self._work, name=f"dovetail-{self._started}", daemon=True
                ).start()
        try:
            ok, value = await done
        except asyncio.CancelledError:
            with self._wake:
                if job in self._jobs:
                    self._jobs.remove(job)  # the place is for somebody who still waits
            raise
        if ok:
            return value
        raise value

    def _work(self) -> None:
        while True:
            with self._wake:
                self._idle += 1
                while not self._jobs:
                    self._wake.wait()
                self._idle -= 1
                context, function, loop, done = self._jobs.popleft()
            if done.cancelled():
                continue
            try:
                outcome = True, context.run(function)
            except BaseException as error:
                outcome = False, error
            try:
                loop.call_soon_threadsafe(_settle, done, outcome)
            except RuntimeError:
                pass  # the loop is closed: nobody waits
            del context, function, loop, done, outcome


def _settle(done: "asyncio.Future[Any]", outcome: tuple[bool, Any]) -> None:
    if not done.done():
        done.set_result(outcome)
