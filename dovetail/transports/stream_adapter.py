"""What can only be awaited (ASGI, the `websockets` library, an HTTP response) as a `Channel`: one
task listens, one writes what `send` queues. A `Way` is the small rest that differs: listen until
the end, write one message, leave. A server stops listening while its client leaves too much unread.
A client never does: two sides that both wait for the other to read would wait for ever.

**The end** is told by the listener, who hears the close code. A write that fails only means that
the listener is about to: it is given a moment, and its word goes first.
"""

import asyncio
import logging
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

from ..errors import ConnectionClosed
from ..limits import Limits
from ..ports import Network, OnClose, Receive, RequestIdentity

log = logging.getLogger("dovetail.transports")

Event: TypeAlias = MutableMapping[str, Any]
AsgiReceive: TypeAlias = Callable[[], Awaitable[Event]]
AsgiSend: TypeAlias = Callable[[Event], Awaitable[None]]
Drain: TypeAlias = Callable[[], Awaitable[None]]


class MessageStream(Protocol):
    """What a pump moves messages over."""

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Deliver until the peer ends in good order; raise where it did not."""

    async def write(self, data: bytes) -> None:
        """Write one message."""

    async def leave(self) -> None:
        """Let go, whatever state it is in."""


class StreamAdapter:
    """A way as a channel."""

    def __init__(self, way: MessageStream, limits: Limits) -> None:
        self._way, self._limits = way, limits
        self.network: Network | None = getattr(way, "network", None)
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._room, self._work = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._mute = self._told = False
        self._ended: OnClose
        self.identity: RequestIdentity | None = None
        """Who sent what is delivered next, where each message says that by itself."""

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Begin to listen, and to write."""
        loop = asyncio.get_running_loop()
        self._ended = ended
        self._tasks = [loop.create_task(self._listen(receive)), loop.create_task(self._write())]

    def send(self, data: bytes) -> None:
        """Queue one message."""
        if self._mute or self._closing is not None:
            return
        self._queue.append(data)
        self._size += len(data)
        if self._size > self._limits.write_buffer:
            self._room.clear()
        self._work.set()

    @property
    def full(self) -> bool:
        """Whether the peer leaves too much unread."""
        return not self._room.is_set()

    async def drain(self) -> None:
        """Wait while it does."""
        await self._room.wait()

    async def close(self) -> None:
        """Write what is queued, as long as somebody reads it, and leave."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._limits.shutdown
        self._work.set()
        if self._tasks:
            await asyncio.wait(self._tasks[1:], timeout=self._limits.shutdown)
        try:
            async with asyncio.timeout_at(deadline):
                await self._way.leave()
        except Exception as problem:
            log.debug("Took no leave: %r", problem)  # nobody is there to hear it
        finally:
            self._end(None)

    async def _listen(self, receive: Receive) -> None:
        try:
            await self._way.listen(receive, self.drain)
        except Exception as problem:
            self._end(problem)
        else:
            self._end(None)

    async def _write(self) -> None:
        try:
            while True:
                while self._queue:
                    data = self._queue.popleft()
                    await self._way.write(data)
                    self._size -= len(data)
                    if self._size <= self._limits.write_buffer:
                        self._room.set()
                if self._closing is not None:
                    return
                self._work.clear()
                await self._work.wait()
        except Exception as problem:
            self._hush()
            if not isinstance(problem, ConnectionClosed):
                await asyncio.wait(self._tasks[:1], timeout=self._limits.shutdown)
            self._end(problem)

    def _end(self, reason: Exception | None) -> None:
        if self._told or not self._tasks:
            return
        self._told = True
        self._hush()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._ended(reason)

    def _hush(self) -> None:
        """Nobody reads any more: nothing waits for it, and nobody waits for room."""
        self._mute = True
        self._queue.clear()
        self._room.set()


def describe_os_error(problem: OSError) -> str:
    """A failure of the network in a few words."""
    if verdict := getattr(problem, "verify_message", ""):
        return f"its certificate is not trusted ({verdict})"
    found = re.search(r"\[Errno (\d+)\]", str(problem))  # of several addresses, the first
    number = problem.errno or (int(found[1]) if found else 0)
    known = number > 0 and not getattr(problem, "library", None)
    return (os.strerror(number) if known else problem.strerror or str(problem)).lower() or type(
        problem
    ).__name__
