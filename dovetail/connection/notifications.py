"""Running the functions that receive notifications, and throttling progress.

Each async callback runs in its own task. An error in a callback is logged and affects nothing else.
A peer may send any number of notifications, so the number of handlers that run at the same time is
limited.

Outgoing progress only ever increases, as the specification requires; an update that does not
increase the value is dropped. Frequent updates are coalesced: notifications are at least `interval`
seconds apart, and only the newest of the updates in between is sent. The last update is always
sent, before the reply.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ..aio import TaskSet
from ..errors import InvalidParams, Overloaded
from ..logs import get_logger
from ..ports import Call, Caller
from ..protocol.base import PROGRESS_TOKEN, Params
from ..protocol.lifecycle import ProgressParams
from .answer import new_task

log = get_logger("connection")

_background = TaskSet()
CallerKey = str | tuple[str, str]
"""A network, or `principal` and its id."""


def run_callback(function: Callable[..., Any], *args: Any) -> None:
    """Call a user's function, sync or async. Errors are logged, not raised."""
    try:
        outcome = function(*args)
    except Exception:
        log.exception("A callback failed")
        return
    if asyncio.iscoroutine(outcome):
        _background.start(_logged(lambda: outcome))


class NotificationRunner:
    """A runner for notification handlers. Each handler runs in its own task, and the number of
    tasks per caller is limited."""

    def __init__(self, limit_per_caller: int) -> None:
        self._limit_per_caller = limit_per_caller
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts: Counter[CallerKey] = Counter()

    def run(self, handler: Callable[[Call], Awaitable[Any]], call: Call, limit: int) -> None:
        """Start a handler. Raise Overloaded if too many handlers are running for this caller, or if
        `limit` handlers are running for all callers together."""
        key = counting_key(call.caller)
        for count, most in (
            (self._counts[key], self._limit_per_caller),
            (len(self._tasks), limit),
        ):
            if count >= most:
                raise Overloaded(
                    f"{count} notifications are already being handled; the limit is {most}"
                )
        # Start as eagerly as requests do; otherwise a later request would be handled first.
        task = new_task(_logged(handler, call), asyncio.get_running_loop())
        self._tasks.add(task)
        self._counts[key] += 1
        task.add_done_callback(partial(self._done, key))

    def _done(self, key: CallerKey, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]


def counting_key(caller: Caller) -> CallerKey:
    """Return the key used to count what a caller has: its principal or, if it has none, its
    network."""
    if caller.principal is not None:
        return "principal", caller.principal.id
    if caller.address is None:
        return ""
    from ..net import network_of

    return network_of(caller.address)


async def _logged(work: Callable[..., Awaitable[Any]], *args: Any) -> None:
    try:
        await work(*args)
    except Exception:
        log.exception("A callback failed")


Send = Callable[[ProgressParams], None]


def read_progress_token(params: Params) -> int | str | None:
    """Return the progress token of a request, or None if the request does not ask for progress."""
    if params.meta is None or PROGRESS_TOKEN not in params.meta:
        return None
    token: Any = params.meta[PROGRESS_TOKEN]
    if isinstance(token, str) or type(token) is int:
        return token
    raise InvalidParams(
        f"A progress token must be a string or an integer, not {token!r}",
        parameter=f"_meta.{PROGRESS_TOKEN}",
    )


class ProgressThrottle:
    """A throttle for the progress of one call. `finish()` sends the update that is still held
    back."""

    __slots__ = ("_highest", "_interval", "_next_send", "_pending", "_send", "_timer")

    def __init__(self, send: Send, interval: float) -> None:
        self._send = send
        self._interval = interval
        self._highest = float("-inf")
        self._next_send = 0.0
        self._pending: ProgressParams | None = None
        self._timer: asyncio.TimerHandle | None = None

    def update(self, params: ProgressParams) -> bool:
        """Send this update now, or hold it back if the last update was sent too recently. Return
        False if the update is dropped because its value did not increase or is not a number."""
        if not self._highest < params.progress < float("inf"):
            return False
        if params.total is not None and not params.total < float("inf"):
            params.total = None
        self._highest = params.progress
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._next_send:
            self._next_send = now + self._interval
            self._pending = None  # its timer is late: the loop was busy
            self._send(params)
            return True
        self._pending = params
        if self._timer is None:
            self._timer = loop.call_at(self._next_send, self._flush)
        return True

    def _flush(self) -> None:
        self._timer = None
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._next_send = asyncio.get_running_loop().time() + self._interval
            self._send(pending)

    def finish(self) -> None:
        """Send the update that was held back, and ignore later updates."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        self._highest = float("inf")
