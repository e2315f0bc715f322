"""Progress of one request, on its way out.

The value only ever rises, as the specification asks; what does not rise is dropped. A flood is
coalesced: between two notifications at least `interval` seconds pass, and of what comes in between
only the newest is sent. The last update is always sent, before the reply.
"""

import asyncio
from collections.abc import Callable

from ..protocol.lifecycle import ProgressParams

Send = Callable[[ProgressParams], None]


class Progress:
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
