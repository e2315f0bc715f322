"""How a handler's function runs: `async def` on the loop, `def` on a worker thread.

Running out of time is answered at once. An `async def` is cancelled by it; a thread cannot be
stopped, but sees `ctx.cancelled`. What must really end is run in a child process (`isolation.py`).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ..limits import Limits
from ..ports import Call
from .threads import Threads

_pools: dict[tuple[int, int], Threads] = {}


def threads(limits: Limits) -> Threads:
    """The pool of worker threads for these bounds, started when it is first needed."""
    key = (limits.threads, limits.thread_queue)
    if key not in _pools:
        _pools[key] = Threads(*key)
    return _pools[key]


async def run_function(
    function: Callable[..., Any],
    is_async: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    limits: Limits,
) -> Any:
    """Call it, wherever it belongs."""
    if is_async:
        return await function(*args, **kwargs)
    outcome = await threads(limits).run(partial(function, *args, **kwargs))
    # A plain function may still hand back a coroutine, as functools.partial and lambdas do.
    return await outcome if asyncio.iscoroutine(outcome) else outcome


class Clock:
    """The time that a handler has. It stands still while the client is asked, until the last
    question is answered."""

    __slots__ = ("_left", "_stops", "_timer")

    def __init__(self, timer: asyncio.Timeout) -> None:
        self._timer = timer
        self._left: float | None = None
        self._stops = 0

    def stop(self) -> None:
        """One question more."""
        when = self._timer.when()
        if not self._stops and when is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._set(None)
        self._stops += 1

    def go(self) -> None:
        """One less."""
        self._stops -= 1
        if not self._stops and self._left is not None:
            self._set(asyncio.get_running_loop().time() + self._left)

    def _set(self, when: float | None) -> None:
        with suppress(RuntimeError):  # it is over already, and something it left behind still asks
            self._timer.reschedule(when)


async def within(seconds: float, name: str, call: Call, work: Any) -> Any:
    """Wait for `work` so long and no longer."""
    try:
        async with asyncio.timeout(seconds) as timer:
            call.clock = Clock(timer)
            return await work
    except TimeoutError:
        if not timer.expired():
            raise  # the function's own
        call.late = True
        raise TimeoutError(f"{name} did not finish within {seconds:g} s") from None
