"""A `Channel` over an asynchronous stream: ASGI, the `websockets` library or an HTTP response.

One task reads, and another writes the messages that `send` queues. A `MessageStream` implements the
part that differs between these streams.

A server stops reading while its client leaves too much output unread. A client never stops reading:
if each side waited for the other to read, both would wait forever.

**The end** of the stream is reported by the reading task, because it sees the close code. If a
write fails, reading usually fails a moment later, so the writing task waits for the reading task to
report its reason.
"""

import asyncio
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

from ..errors import ConnectionClosed
from ..limits import Limits
from ..logs import get_logger
from ..ports import Network, OnClose, Receive, RequestIdentity

log = get_logger("transports")

Event: TypeAlias = MutableMapping[str, Any]
AsgiReceive: TypeAlias = Callable[[], Awaitable[Event]]
AsgiSend: TypeAlias = Callable[[Event], Awaitable[None]]
Drain: TypeAlias = Callable[[], Awaitable[None]]


class MessageStream(Protocol):
    """The stream that a `StreamAdapter` reads from and writes to."""

    async def listen(self, receive: Receive, drain: Drain) -> None:
        """Deliver messages until the peer closes the stream. Raise an exception if the stream
        breaks."""

    async def write(self, data: bytes) -> None:
        """Write one message."""

    async def close(self) -> None:
        """Close the stream, regardless of its state."""


class StreamAdapter:
    """A channel over a message stream."""

    def __init__(self, stream: MessageStream, limits: Limits) -> None:
        self._stream, self._limits = stream, limits
        self.network: Network | None = getattr(stream, "network", None)
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._room, self._work = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._is_discarding = self._has_ended = False
        self._ended: OnClose
        self.identity: RequestIdentity | None = None
        """The sender of the next message to be delivered, if each message has its own
        credentials."""

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Start reading and writing."""
        loop = asyncio.get_running_loop()
        self._ended = ended
        self._tasks = [loop.create_task(self._listen(receive)), loop.create_task(self._write())]

    def send(self, data: bytes) -> None:
        """Queue one message."""
        if self._is_discarding or self._closing is not None:
            return
        self._queue.append(data)
        self._size += len(data)
        if self._size > self._limits.write_buffer:
            self._room.clear()
        self._work.set()

    @property
    def full(self) -> bool:
        """Whether more than `Limits.write_buffer` bytes are queued."""
        return not self._room.is_set()

    async def drain(self) -> None:
        """Wait until at most `Limits.write_buffer` bytes are queued."""
        await self._room.wait()

    async def close(self) -> None:
        """Write the queued messages within `Limits.shutdown` seconds, then close the stream."""
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
                await self._stream.close()
        except Exception as problem:
            log.debug("Closing the stream failed: %r", problem)
        finally:
            self._end(None)

    async def _listen(self, receive: Receive) -> None:
        try:
            await self._stream.listen(receive, self.drain)
        except Exception as problem:
            self._end(problem)
        else:
            self._end(None)

    async def _write(self) -> None:
        try:
            while True:
                while self._queue:
                    data = self._queue.popleft()
                    await self._stream.write(data)
                    self._size -= len(data)
                    if self._size <= self._limits.write_buffer:
                        self._room.set()
                if self._closing is not None:
                    return
                self._work.clear()
                await self._work.wait()
        except Exception as problem:
            self._discard_output()
            if not isinstance(problem, ConnectionClosed):
                await asyncio.wait(self._tasks[:1], timeout=self._limits.shutdown)
            self._end(problem)

    def _end(self, reason: Exception | None) -> None:
        if self._has_ended or not self._tasks:
            return
        self._has_ended = True
        self._discard_output()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._ended(reason)

    def _discard_output(self) -> None:
        """Drop the queue and wake waiting senders, because the peer no longer reads."""
        self._is_discarding = True
        self._queue.clear()
        self._room.set()


def describe_os_error(problem: OSError) -> str:
    """Return a description of a network error for use in a message."""
    if reason := getattr(problem, "verify_message", ""):
        return f"its certificate is not trusted ({reason})"
    # if several addresses failed, use the first error
    found = re.search(r"\[Errno (\d+)\]", str(problem))
    number = problem.errno or (int(found[1]) if found else 0)
    known = number > 0 and not getattr(problem, "library", None)
    return (os.strerror(number) if known else problem.strerror or str(problem)).lower() or type(
        problem
    ).__name__
