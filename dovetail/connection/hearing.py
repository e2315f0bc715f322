"""Functions that hear of something while nobody waits for them: callbacks of a user, and what
extensions hear with.

Each that is async runs in a task of its own. What goes wrong in one is logged and ends nothing.
Peers may tell as much as they like, so those that hear of their notifications are counted.
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


class Hearing:
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
