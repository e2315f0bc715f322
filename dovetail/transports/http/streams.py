"""Event streams: what is said on one, kept so that it can be said again.

A `Stream` is a bounded list of numbered messages and at most one reader. Whoever speaks pushes and never waits; the reader
goes from number to number at its own pace. A reader that comes back with the last number it saw goes on from there, which
is all that resumption is. The oldest messages go when the bound is reached; a reader that needs them is told that they are
gone.

`Events` is where streams are found again by their id. `MemoryEvents` keeps them in this process, for a while, up to a
bound; a store that several machines share has the same two functions.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery
"""

import asyncio
from collections import deque
from collections.abc import Callable
from secrets import token_hex
from typing import Protocol

from ...limits import Limits


class Gone(Exception):
    """The messages that a reader asks for are not held any more."""


class Stream:
    """One stream of messages, and whoever reads it."""

    __slots__ = (
        "_limit",
        "_messages",
        "_reader",
        "_room",
        "_size",
        "count",
        "done",
        "id",
        "left",
        "on_push",
        "owner",
        "sent",
    )

    def __init__(self, owner: str, limit: int, id: str) -> None:
        self.id = id
        self.owner = owner
        """The session it belongs to; nobody else may read it."""
        self.count = 0
        """The number of the last message."""
        self.sent = 0
        """The number of the last message that the reader has passed on."""
        self.done = False
        self.left: float | None = None
        """When its last reader went; None while there is one."""
        self.on_push: Callable[[Stream, bytes | None], None] | None = None
        """Told each message, and None at the end: how a stream is read in another process."""
        self._limit = limit
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._size

    @property
    def attached(self) -> bool:
        """Whether somebody reads it."""
        return self._reader is not None

    def push(self, data: bytes) -> None:
        """Say one thing more."""
        if self.done:
            return
        self._messages.append(data)
        self.count += 1
        self._size += len(data)
        while self._size > self._limit and len(self._messages) > 1:
            self._size -= len(self._messages.popleft())
        self._changed(data)

    def finish(self) -> None:
        """Nothing more will be said."""
        if not self.done:
            self.done = True
            self._changed(None)

    def refill(self, count: int, messages: list[bytes], done: bool) -> None:
        """Begin with what another process holds; what came from there meanwhile stays."""
        later = [data for number, data in enumerate(self._messages, self.count - len(self._messages) + 1) if number > count]
        self._messages = deque([*messages, *later])
        self._size = sum(map(len, self._messages))
        self.count = count + len(later)
        self.done = self.done or done

    @property
    def held(self) -> list[bytes]:
        """The messages that are held."""
        return list(self._messages)

    def since(self, number: int) -> list[bytes]:
        """The messages after this one; Gone where some of them are not held any more."""
        first = self.count - len(self._messages)
        if not first <= number <= self.count:
            raise Gone
        return list(self._messages)[number - first :]

    def forget(self, number: int) -> None:
        """Messages up to this one are not needed again."""
        first = self.count - len(self._messages)
        for _ in range(number - first):
            self._size -= len(self._messages.popleft())

    # the reader

    def attach(self, after: int) -> "asyncio.Future[None]":
        """Read from here on, in place of whoever read before. The future is done when there is something to do."""
        self._wake()
        self.left = None
        self.sent = after
        self._reader = asyncio.get_running_loop().create_future()
        return self._reader

    def again(self, reader: "asyncio.Future[None]") -> "asyncio.Future[None] | None":
        """The next future to wait for; None where somebody else reads now."""
        if self._reader is not reader:
            return None
        if reader.done():
            self._reader = asyncio.get_running_loop().create_future()
        return self._reader

    def detach(self, reader: "asyncio.Future[None] | None") -> None:
        """This reader has gone."""
        if self._reader is reader:
            self._reader = None
            self.left = asyncio.get_running_loop().time()
            self._make_room()

    def passed(self, number: int) -> None:
        """The reader has passed on the messages up to this one."""
        self.sent = number
        if self._room is not None and not self.crowded:
            self._make_room()

    @property
    def crowded(self) -> bool:
        """Whether the reader lags behind by a quarter of what may be held."""
        return self.attached and self.sent < self.count and self._size > self._limit // 4

    def nudge(self) -> None:
        """Let the reader look around, though there is nothing new."""
        self._wake()

    async def room(self) -> None:
        """Wait until the reader has caught up, or gone."""
        while self.crowded and not self.done:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _changed(self, data: bytes | None) -> None:
        self._wake()
        if self.on_push is not None:
            self.on_push(self, data)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Events(Protocol):
    """Where streams are found again."""

    def open(self, owner: str, kind: str = "") -> Stream:
        """A new stream of this session; its id begins with its kind."""

    def find(self, owner: str, id: str) -> Stream | None:
        """The stream of this session with this id, if it is still held."""

    def drop(self, stream: Stream) -> None:
        """This one is not needed again."""

    def end(self, owner: str) -> None:
        """The session ended: finish its streams, and drop them."""


class MemoryEvents:
    """Streams of this process: those that are being read or spoken on, and for a while those whose reader went."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streams: dict[str, Stream] = {}
        self._owned: dict[str, set[str]] = {}
        """The ids of each session's streams."""
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, owner: str, kind: str = "") -> Stream:
        """A new stream of this session; its id begins with its kind."""
        if len(self._streams) >= 2 * self._limits.streams:
            self._make_room()
        loop = asyncio.get_running_loop()
        stream = Stream(owner, self._limits.events, kind + token_hex(8))
        stream.left = loop.time()
        self._streams[stream.id] = stream
        self._owned.setdefault(owner, set()).add(stream.id)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._limits.event_life / 4, self._sweep)
        return stream

    def find(self, owner: str, id: str) -> Stream | None:
        """The stream of this session with this id, if it is still held."""
        stream = self._streams.get(id)
        return stream if stream is not None and stream.owner == owner else None

    def end(self, owner: str) -> None:
        """The session ended: finish its streams, and drop them."""
        for id in self._owned.pop(owner, ()):
            self._streams.pop(id).finish()

    def drop(self, stream: Stream) -> None:
        """This one is not needed again."""
        if self._streams.pop(stream.id, None) is not None:
            owned = self._owned[stream.owner]
            owned.discard(stream.id)
            if not owned:
                del self._owned[stream.owner]

    def _make_room(self) -> None:
        """Drop the oldest that nobody reads."""
        for stream in self._streams.values():
            if stream.left is not None:
                self.drop(stream)
                return

    def _sweep(self) -> None:
        """Drop what nobody came back for, and of the rest the oldest, down to the bound."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._limits.event_life
        left = [stream for stream in self._streams.values() if stream.left is not None]
        kept = sum(stream.size for stream in left)
        for stream in left:
            if (stream.left or 0.0) < oldest or kept > self._limits.events_kept:
                kept -= stream.size
                self.drop(stream)
        self._sweeper = loop.call_later(self._limits.event_life / 4, self._sweep) if self._streams else None
