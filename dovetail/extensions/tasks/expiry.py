"""Stop tasks that run longer than their time to live."""

import asyncio
from math import inf
from typing import TYPE_CHECKING

from .running_task import RunningTask

if TYPE_CHECKING:
    from .manager import TaskManager

MIN_PAUSE_SECONDS = 0.02
"""The shortest pause before a search for tasks that have expired. It bounds the cost of many tasks
that expire one after the other."""


class ExpiryTimers:
    """One timer for each event loop: it fires when the first running task expires.

    A timer for each task would cost 6 µs, and four objects for as long as the task runs. Hardly any
    task expires, so a timer that searches all running tasks is cheaper.
    """

    def __init__(self, manager: "TaskManager") -> None:
        self._manager = manager
        self._timers: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}

    def start(self, task: RunningTask, life: float) -> None:
        """Make a task expire after `life` seconds.

        Args:
            task: The task.
            life: The number of seconds until it expires.
        """
        now = task.loop.time()
        task.expires_at = now + life
        self._search_at(task.loop, max(task.expires_at, now + MIN_PAUSE_SECONDS))

    def _search_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        timer = self._timers.get(loop)
        if timer is None:
            for one in list(self._timers):  # in place: other threads add theirs
                if one.is_closed():
                    self._timers.pop(one, None)
        elif when < timer.when():
            timer.cancel()
        else:
            return
        self._timers[loop] = loop.call_at(when, self._expire_due, loop)

    def _expire_due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timers.pop(loop, None)
        now, following = loop.time(), inf
        for task in self._manager.running_in(loop):
            if task.expires_at <= now:
                task.expires_at = inf
                self._manager.expire(task)
            else:
                following = min(following, task.expires_at)
        if following < inf:
            self._search_at(loop, max(following, now + MIN_PAUSE_SECONDS))
