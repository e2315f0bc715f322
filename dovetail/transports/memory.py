"""Two channels that are connected in memory, in one event loop.

Messages are passed as bytes, so they are encoded and decoded exactly as over a network. Only the
call on whose behalf a request is sent is passed on as an object.
"""

import asyncio
from typing import Any

from ..jsonrpc.framing import HEAD_BYTES, TooLong
from ..limits import DEFAULT, Limits
from ..ports import OnClose, Receive

CLOSE_PERIODS = 3
"""How long `close` waits, in multiples of `Limits.shutdown`: running calls and servers behind the
server have one each."""


class MemoryChannel:
    """One of the two ends that `pair()` returns."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._peer: MemoryChannel
        self._receive: Receive | None = None
        self._ended: OnClose | None = None
        self._queue: list[tuple[bytes, Any]] = []
        self.parent: Any = None
        """The `parent` of the message that is being delivered, or None."""
        self._scheduled = False
        self._closed = False
        self.served: asyncio.Task[None] | None = None
        """The task that serves the other end, which `close` waits for."""
        self._loop = asyncio.get_running_loop()

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Start delivering messages, including those that were sent earlier."""
        self._receive, self._ended = receive, ended
        self._schedule()

    def send(self, data: bytes, parent: Any = None) -> None:
        """Send one message to the other end, which receives it in its next loop iteration. The
        other end sees the `parent` while it does."""
        peer = self._peer
        if not self._closed and not peer._closed:
            peer._queue.append((data, parent))
            peer._schedule()

    async def drain(self) -> None:
        """Let the other end run if many messages are queued for it."""
        if len(self._peer._queue) > 1000:
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Close both directions. Messages that are already queued are still delivered. Wait until
        the server at the other end has released what it uses, if it runs in a task."""
        if not self._closed:
            self._closed = True
            self._schedule()
            self._peer._closed = True
            self._peer._schedule()
        if self.served is not None:
            # A server that closes its own client ends after its grace period.
            await asyncio.wait([self.served], timeout=CLOSE_PERIODS * self._limits.shutdown)

    def _schedule(self) -> None:
        if not self._scheduled and self._receive is not None:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        assert self._receive is not None
        queue, self._queue = self._queue, []
        for data, self.parent in queue:
            self._receive(
                data if len(data) <= self._limits.incoming else TooLong(data[:HEAD_BYTES])
            )
        self.parent = None
        if self._closed and self._ended is not None:
            ended, self._ended = self._ended, None
            ended(None)


def pair(limits: Limits = DEFAULT, theirs: Limits = DEFAULT) -> tuple[MemoryChannel, MemoryChannel]:
    """Return the two ends of a channel, each with its own limits."""
    ours, peer = MemoryChannel(limits), MemoryChannel(theirs)
    ours._peer, peer._peer = peer, ours
    return ours, peer
