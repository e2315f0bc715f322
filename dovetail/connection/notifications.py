"""Notifications: running the functions that receive them, and throttling progress on its way out.

Each async callback runs in its own task. An error in one is logged and ends nothing else. A peer
may send as many notifications as it likes, so the handlers that run at once are limited.

Outgoing progress only ever rises, as the specification requires; an update that does not rise is
dropped. A flood is coalesced: at least `interval` seconds pass between two notifications, and of
the updates in between only the newest is sent. The last update is always sent, before the reply.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ..aio import TaskSet
from ..errors import Overloaded
from ..net import network_of
from ..ports import Call, Caller
from ..protocol.lifecycle import ProgressParams
from .answer import EAGER

log = logging.getLogger("dovetail.connection")

_background = TaskSet()


def run_callback(function: Callable[..., Any], *args: Any) -> None:
    """Call a user's function, sync or async; its errors are logged and end nothing."""
    try:
        outcome = function(*args)
    except Exception:
        log.exception("A callback failed")
        return
    if asyncio.iscoroutine(outcome):
        _background.start(_logged(lambda: outcome))


class NotificationRunner:
    """The handlers that hear of notifications, each in a task of its own: so many at once of each
    caller, and no more."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts: Counter[str | tuple[str, str]] = Counter()

    def run(self, hear: Callable[[Call], Awaitable[Any]], call: Call, most: int) -> None:
        """Let one hear, unless so many are at it for this caller, or `most` for all of them: then
        Overloaded."""
        who = _who(call.caller)
        for count, limit in ((self._counts[who], self._each), (len(self._tasks), most)):
            if count >= limit:
                raise Overloaded(f"{count} notifications are being heard; the limit is {limit}")
        # As eagerly as requests are answered, or one that came later would be first.
        task = asyncio.Task(_logged(hear, call), loop=asyncio.get_running_loop(), **EAGER)
        self._tasks.add(task)
        self._counts[who] += 1
        task.add_done_callback(partial(self._heard, who))

    def _heard(self, who: str | tuple[str, str], task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._counts[who] -= 1
        if not self._counts[who]:
            del self._counts[who]


def _who(caller: Caller) -> str | tuple[str, str]:
    """Who is counted as one: whom we know, or all who call from one place."""
    return (
        ("principal", caller.principal.id)
        if caller.principal is not None
        else network_of(caller.address or "")
    )


async def _logged(work: Callable[..., Awaitable[Any]], *args: Any) -> None:
    try:
        await work(*args)
    except Exception:
        log.exception("A callback failed")


Send = Callable[[ProgressParams], None]


class ProgressThrottle:
    """Call it with updates; `finish()` sends what is still held back."""

    __slots__ = ("_best", "_held", "_interval", "_next", "_send", "_timer")

    def __init__(self, send: Send, interval: float) -> None:
        self._send = send
        self._interval = interval
        self._best = float("-inf")
        self._next = 0.0
        self._held: ProgressParams | None = None
        self._timer: asyncio.TimerHandle | None = None

    def update(self, params: ProgressParams) -> None:
        """Send this update now, or hold it back while others were sent a moment ago."""
        if not self._best < params.progress < float("inf"):
            return  # it does not rise, or is no number
        if params.total is not None and not params.total < float("inf"):
            params.total = None
        self._best = params.progress
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._next:
            self._next = now + self._interval
            self._send(params)
            return
        self._held = params
        if self._timer is None:
            self._timer = loop.call_at(self._next, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._held is not None:
            held, self._held = self._held, None
            self._next = asyncio.get_running_loop().time() + self._interval
            self._send(held)

    def finish(self) -> None:
        """The request is over: send what was held back, and nothing ever after."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        self._best = float("inf")
