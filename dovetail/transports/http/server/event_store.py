"""Event streams, which keep their messages so that a client can resume a broken stream.

A stream is a bounded list of numbered messages with at most one reader. Senders push messages and
never wait. The reader proceeds from number to number at its own pace. To resume, a reader passes
the last number that it has seen. When the limit is reached, the oldest messages are dropped. A
reader that needs a dropped message receives an error.

An event store finds streams by their id. The in-memory store keeps this process's streams for a
limited time and up to a limited size. `logged_events.py` adds a log that other processes read.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from secrets import token_hex
from typing import Protocol

from msgspec import Struct, field

from ....aio import Sweeper
from ....limits import Limits
from ....ports import Principal

STANDALONE, POLL = "g", "p"
"""The first letters of the ids of streams that do not belong to a call, and of polls."""


class MessagesDropped(Exception):
    """The messages that a reader needs are no longer kept."""


class EventStream(Struct, eq=False):
    """A stream of messages, and its reader."""

    owner: str
    """The session to which the stream belongs. No other session may read the stream."""
    limit: int
    """The number of bytes to keep."""
    id: str
    count: int = 0
    """The number of the last message."""
    sent: int = 0
    """The number of the last message that the reader has sent to the client."""
    size: int = 0
    """The number of bytes that are kept."""
    done: bool = False
    principal: Principal | None = None
    """The reader of the stream, with the scopes of the token that opened or resumed it."""
    logged: int = 0
    """The number of the last message in the log, if there is one."""
    scanned: int = 0
    """The number of the last message at the last scan for unread messages."""
    detached_at: float | None = None
    """When the last reader left, or None while the stream has a reader."""
    on_push: "Callable[[EventStream, bytes | None], None] | None" = None
    """If the reader is in another process, a function that is called with each message, and with
    None at the end."""
    on_drop: Callable[[], None] | None = None
    """A function that is called when the stream is dropped before it is finished."""
    on_kept_bytes: "Callable[[EventStream, int], None] | None" = None
    """A function that is called with each change in the number of bytes kept for a disconnected
    client."""
    _messages: deque[bytes] = field(default_factory=deque)
    _reader: "asyncio.Future[None] | None" = None
    _room: "asyncio.Future[None] | None" = None

    @property
    def dropped(self) -> int:
        """The number of the last message that is no longer kept."""
        return self.count - len(self._messages)

    @property
    def attached(self) -> bool:
        """Whether the stream has a reader."""
        return self._reader is not None

    def push(self, data: bytes) -> None:
        """Add a message."""
        if self.done:
            return
        before = self.size
        # The newest message does not count: a long response must not push out earlier messages.
        while self.size > self.limit:
            self.size -= len(self._messages.popleft())
        self._messages.append(data)
        self.count += 1
        self.size += len(data)
        if not self.attached and self.on_kept_bytes is not None:
            self.on_kept_bytes(self, self.size - before)
        self._changed(data)

    def finish(self) -> None:
        """End the stream. No message follows."""
        if not self.done:
            self.done = True
            self._changed(None)

    def push_numbered(self, number: int, data: bytes) -> None:
        """Add a message from the original stream in another process, with its number in that
        stream."""
        if self.count == 0:  # earlier messages have not arrived yet
            self.count = number - 1
        if number == self.count + 1:
            self.push(data)
        elif number > self.count:
            self.finish()  # a message was lost, so the client must resume the stream

    def refill(self, count: int, messages: list[bytes], done: bool) -> None:
        """Insert messages from another process, up to number `count`. Keep later messages that have
        already arrived from that process."""
        lost = self.dropped > count
        later = [] if lost else self.held[count - self.dropped :]
        self._messages = deque([*messages, *later])
        self.size = sum(map(len, self._messages))
        self.count = count + len(later)
        self.done = self.done or done or lost

    @property
    def held(self) -> list[bytes]:
        """The messages that are kept."""
        return list(self._messages)

    def since(self, number: int) -> list[bytes]:
        """Return the messages after this number. Raise MessagesDropped if some of these messages
        are no longer kept."""
        if not self.dropped <= number <= self.count:
            raise MessagesDropped
        # A deque is fast at its ends, and readers need the messages at its end.
        later = list(islice(reversed(self._messages), self.count - number))
        later.reverse()
        return later

    def forget(self, number: int) -> None:
        """Drop the messages up to this number."""
        for _ in range(number - self.dropped):
            self.size -= len(self._messages.popleft())

    # the reader

    def attach(self, after: int) -> "asyncio.Future[None]":
        """Become the reader of the messages after this number, in place of any other reader. The
        returned future is done when a message is available."""
        self.wake()
        alone, self.detached_at = not self.attached, None
        self.sent = after
        self._reader = asyncio.get_running_loop().create_future()
        if alone and self.on_kept_bytes is not None:
            self.on_kept_bytes(self, -self.size)
        return self._reader

    def next_wait(self, reader: "asyncio.Future[None]") -> "asyncio.Future[None] | None":
        """Return the next future to wait for, or None if another reader has taken over."""
        if self._reader is not reader:
            return None
        if reader.done():
            self._reader = asyncio.get_running_loop().create_future()
        return self._reader

    def detach(self, reader: "asyncio.Future[None] | None") -> None:
        """Stop reading."""
        if self._reader is not reader or reader is None:
            return
        self._reader = None
        self.detached_at = asyncio.get_running_loop().time()
        self._make_room()
        if self.on_kept_bytes is not None:
            self.on_kept_bytes(self, self.size)

    def release(self) -> None:
        """Make the current reader stop; its client may reconnect."""
        self.detach(self.attach(self.sent))

    def mark_sent(self, number: int) -> None:
        """Record that the reader has sent the messages up to this number."""
        self.sent = number
        if not self.owner:
            self.forget(number)  # no client can resume this stream
        if self._room is not None and not self.is_lagging:
            self._make_room()

    @property
    def is_lagging(self) -> bool:
        """Whether the reader is behind by more than a quarter of the limit."""
        return self.attached and self.sent < self.count and self.size > self.limit // 4

    @property
    def has_missed(self) -> bool:
        """Whether the reader has missed messages that are no longer kept."""
        return self.attached and self.sent < self.dropped

    async def drain(self) -> None:
        """Wait until the reader has caught up or left."""
        while self.is_lagging and not self.done:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _changed(self, data: bytes | None) -> None:
        self.wake()
        if self.on_push is not None:
            self.on_push(self, data)

    def wake(self) -> None:
        """Wake the reader, even without a new message."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class EventStore(Protocol):
    """A store that finds a session's streams, so that clients can resume them."""

    def open(self, owner: str, kind: str = "") -> EventStream:
        """Open a stream for a session, with an id that begins with `kind`."""

    def keep(self, stream: EventStream) -> None:
        """Keep a stream that another process has kept so far."""

    def find(self, owner: str, id: str) -> EventStream | None:
        """Return the session's stream with this id, if it is still kept."""

    def drop(self, stream: EventStream) -> None:
        """Drop a stream that is no longer needed."""

    def end(self, owner: str) -> None:
        """Finish and drop all streams of a session that has ended."""


class MemoryEventStore:
    """An in-memory event store, which keeps the streams that are in use and, for
    `Limits.event_life` seconds, the streams whose reader has left."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streams: dict[str, EventStream] = {}
        self._owned: dict[str, set[str]] = {}
        """The ids of each session's streams."""
        self._unread: OrderedDict[str, EventStream] = OrderedDict()
        """The streams without a reader, in the order in which their readers left."""
        self._kept_bytes = 0
        """The number of bytes kept for disconnected clients."""
        self._sweeper = Sweeper(limits.event_life / 4, self._sweep)

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, owner: str, kind: str = "") -> EventStream:
        """Open a stream for a session, with an id that begins with `kind`."""
        stream = EventStream(owner, self._limits.events, kind + token_hex(8))
        self.keep(stream)
        return stream

    def keep(self, stream: EventStream) -> None:
        """Keep a stream that another process has kept so far."""
        if len(self._streams) >= 2 * self._limits.streams:
            self._make_room()
        stream.detached_at = asyncio.get_running_loop().time()
        stream.on_kept_bytes = self._count_bytes
        self._streams[stream.id] = stream
        self._owned.setdefault(stream.owner, set()).add(stream.id)
        self._count_bytes(stream, stream.size)
        self._sweeper.start()

    def find(self, owner: str, id: str) -> EventStream | None:
        """Return the session's stream with this id, if it is still kept."""
        stream = self._streams.get(id)
        return stream if stream is not None and stream.owner == owner else None

    def end(self, owner: str) -> None:
        """Finish and drop all streams of a session that has ended."""
        for id in list(self._owned.get(owner, ())):
            stream = self._streams[id]
            self.drop(stream)
            stream.finish()

    def drop(self, stream: EventStream) -> None:
        """Drop a stream that is no longer needed."""
        if self._streams.pop(stream.id, None) is None:
            return
        stream.on_kept_bytes = None
        self._unread.pop(stream.id, None)
        if not stream.attached:
            self._kept_bytes -= stream.size
        owned = self._owned[stream.owner]
        owned.discard(stream.id)
        if not owned:
            del self._owned[stream.owner]
        if stream.on_drop is not None and stream.on_push is None and not stream.done:
            stream.on_drop()

    def _count_bytes(self, stream: EventStream, more: int) -> None:
        if stream.detached_at is None:
            self._unread.pop(stream.id, None)
        else:
            self._unread.setdefault(stream.id, stream)
        self._kept_bytes += more
        while self._kept_bytes > self._limits.events_kept and self._make_room():
            pass

    def _make_room(self) -> bool:
        """Drop the stream whose reader left first. Return False if no such stream exists."""
        if self._unread:
            self.drop(next(iter(self._unread.values())))
            return True
        return False

    def _sweep(self) -> bool:
        """Drop streams that no client resumed before the timeout."""
        oldest = asyncio.get_running_loop().time() - self._limits.event_life
        while (
            self._unread
            and (stream := next(iter(self._unread.values()))).detached_at is not None
            and stream.detached_at < oldest
        ):
            self.drop(stream)
        return bool(self._streams)
