"""Run the functions of handlers: `async def` on the event loop, and `def` on a worker thread.

A call that times out is answered immediately. An `async def` function is cancelled. A thread cannot
be stopped, but its function can check `ctx.cancelled`. Code that must be stoppable runs in a child
process (`isolation.py`).

The threads are a bounded pool of daemon threads, not asyncio's default executor, which delays the
exit of the process and is shared with DNS lookups and other work. Any exception from a function,
including SystemExit, is raised where the result is awaited, never in the thread.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from ..errors import Overloaded
from ..limits import Limits
from ..ports import Call

Job = tuple[
    contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"
]


class ThreadPool:
    """Worker threads that are started on demand and reused."""

    def __init__(self, max_threads: int, max_queued: int) -> None:
        self._max_threads = max_threads
        self._max_queued = max_queued
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._started = 0
        self._idle = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function and return its result. Cancelling ends the wait but does not stop the
        thread."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        job = (contextvars.copy_context(), function, loop, done)
        with self._wake:
            if len(self._jobs) >= self._max_queued:
                raise Overloaded(f"{self._max_queued} calls are already waiting for a thread")
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._wake.notify()
            elif self._started < self._max_threads:
                self._started += 1
                threading.Thread(
                    target=self._work, name=f"dovetail-{self._started}", daemon=True
                ).start()
        try:
            ok, value = await done
        except asyncio.CancelledError:
            with self._wake:
                if job in self._jobs:
                    self._jobs.remove(job)  # make room for a caller that is still waiting
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
                loop.call_soon_threadsafe(_set_outcome, done, outcome)
            except RuntimeError:
                pass  # the loop is closed: nobody is waiting
            del context, function, loop, done, outcome


def _set_outcome(done: "asyncio.Future[Any]", outcome: tuple[bool, Any]) -> None:
    if not done.done():
        done.set_result(outcome)


_pools: dict[tuple[str, int, int], ThreadPool] = {}


def thread_pool(purpose: str, max_threads: int, max_queued: int) -> ThreadPool:
    """Return the pool for a purpose with these limits. All servers in this process share the
    pool."""
    key = (purpose, max_threads, max_queued)
    return _pools.get(key) or _pools.setdefault(key, ThreadPool(max_threads, max_queued))


def run_in_thread(function: Callable[[], Any], limits: Limits) -> Coroutine[Any, Any, Any]:
    """Run a plain function on a worker thread."""
    return thread_pool("functions", limits.threads, limits.thread_queue).run(function)


async def run_function(
    function: Callable[..., Any],
    is_async: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    limits: Limits,
) -> Any:
    """Call a handler's function on the event loop or on a worker thread."""
    if is_async:
        return await function(*args, **kwargs)
    outcome = await run_in_thread(partial(function, *args, **kwargs), limits)
    # A plain function may still return a coroutine, as functools.partial and lambdas do.
    return await outcome if asyncio.iscoroutine(outcome) else outcome


class PausableTimeout(Struct, eq=False):
    """The time that a handler has left. The clock is paused while questions to the client are
    unanswered."""

    timer: asyncio.Timeout
    remaining: float | None = None
    pauses: int = 0

    def pause(self) -> None:
        """Pause until `resume` has been called as many times as `pause`."""
        when = self.timer.when()
        if not self.pauses and when is not None:
            self.remaining = when - asyncio.get_running_loop().time()
            self._reschedule(None)
        self.pauses += 1

    def resume(self) -> None:
        """Undo one `pause`."""
        self.pauses -= 1
        if not self.pauses and self.remaining is not None:
            self._reschedule(asyncio.get_running_loop().time() + self.remaining)

    def _reschedule(self, when: float | None) -> None:
        # The handler may have ended while a task that it left behind is still asking.
        with suppress(RuntimeError):
            self.timer.reschedule(when)


async def run_with_timeout(work: Awaitable[Any], seconds: float, name: str, call: Call) -> Any:
    """Wait for `work`; raise TimeoutError after this many seconds."""
    try:
        async with asyncio.timeout(seconds) as timer:
            call.timeout_clock = PausableTimeout(timer)
            return await work
    except TimeoutError:
        if not timer.expired():
            raise  # raised by the function itself
        call.timed_out = True
        raise TimeoutError(f"{name} did not finish within {seconds:g} s") from None
