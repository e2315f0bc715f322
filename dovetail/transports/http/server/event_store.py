"""Event streams: what is said on one, kept so that it can be said again.

A `Stream` is a bounded list of numbered messages and at most one reader. Whoever speaks pushes and
never waits; the reader goes from number to number at its own pace. A reader that comes back with
the last number it saw goes on from there, which is all that resumption is. The oldest messages go
when the bound is reached; a reader that needs them is told that they are gone.

`Events` is where streams are found again by their id. `MemoryEvents` keeps them in this process,
for a while, up to a bound; a store that several machines share has the same two functions.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from secrets import token_hex
from typing import Protocol

from ....aio import Sweeper
from ....limits import Limits


class Gone(Exception):
    """The messages that a reader asks for are not held any more."""


class Stream:
    """One stream of messages, and whoever reads it."""

    __slots__ = (
        "_limit", "_messages", "_reader", "_room", "_size", "count", "done", "id", "left",
        "on_drop", "on_push", "owner", "sent", "weigh",
    )  # fmt: skip

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
        self.on_drop: Callable[[], None] | None = None
        """Told where it is not held any longer, though more was to be said on it."""
        self.weigh: Callable[[Stream, int], None] | None = None
        """Told when its reader comes and goes: by how many bytes it holds more, or less, for a
        client that has gone."""
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
        before = self._size
        while (
            self._size > self._limit
        ):  # the newest does not count: a long reply must not push out what came before it
            self._size -= len(self._messages.popleft())
        self._messages.append(data)
        self.count += 1
        self._size += len(data)
        if not self.attached and self.weigh is not None:
            self.weigh(self, self._size - before)
        self._changed(data)

    def finish(self) -> None:
        """Nothing more will be said."""
        if not self.done:
            self.done = True
            self._changed(None)

    def repeat(self, number: int, data: bytes) -> None:
        """Say what was said in another process, under the number that it has there."""
        if self.count == 0:  # what came before it is still on its way here
            self.count = number - 1
        if number == self.count + 1:
            self.push(data)
        elif number > self.count:
            self.finish()  # something was lost on the way: the client comes back for it

    def refill(self, count: int, messages: list[bytes], done: bool) -> None:
        """Begin with what another process holds, up to this number; what came from there meanwhile
        stays."""
        first = self.count - len(self._messages)
        lost = first > count
        later = [] if lost else self.held[count - first :]
        self._messages = deque([*messages, *later])
        self._size = sum(map(len, self._messages))
        self.count = count + len(later)
        self.done = self.done or done or lost

    @property
    def held(self) -> list[bytes]:
        """The messages that are held."""
        return list(self._messages)

    def since(self, number: int) -> list[bytes]:
        """The messages after this one; Gone where some of them are not held any more."""
        first = self.count - len(self._messages)
        if not first <= number <= self.count:
            raise Gone
        later = list(
            islice(reversed(self._messages), self.count - number)
        )  # from the end, where it is read
        later.reverse()
        return later

    def forget(self, number: int) -> None:
        """Messages up to this one are not needed again."""
        first = self.count - len(self._messages)
        for _ in range(number - first):
            self._size -= len(self._messages.popleft())

    # the reader

    def attach(self, after: int) -> "asyncio.Future[None]":
        """Read from here on, in place of whoever read before. The future is done when there is
        something to do."""
        self._wake()
        alone, self.left = not self.attached, None
        self.sent = after
        self._reader = asyncio.get_running_loop().create_future()
        if alone and self.weigh is not None:
            self.weigh(self, -self._size)
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
        if self._reader is not reader or reader is None:
            return
        self._reader = None
        self.left = asyncio.get_running_loop().time()
        self._make_room()
        if self.weigh is not None:
            self.weigh(self, self._size)

    def let_go(self) -> None:
        """Have whoever reads it leave, and perhaps come back."""
        self.detach(self.attach(self.sent))

    def passed(self, number: int) -> None:
        """The reader has passed on the messages up to this one."""
        self.sent = number
        if not self.owner:
            self.forget(number)  # nobody can come back for them
        if self._room is not None and not self.crowded:
            self._make_room()

    @property
    def crowded(self) -> bool:
        """Whether the reader lags behind by a quarter of what may be held."""
        return self.attached and self.sent < self.count and self._size > self._limit // 4

    @property
    def overrun(self) -> bool:
        """Whether the reader lags behind by more than is held."""
        return self.attached and self.sent < self.count - len(self._messages)

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

    def keep(self, stream: Stream) -> None:
        """Hold a stream that another process held until now."""

    def find(self, owner: str, id: str) -> Stream | None:
        """The stream of this session with this id, if it is still held."""

    def drop(self, stream: Stream) -> None:
        """This one is not needed again."""

    def end(self, owner: str) -> None:
        """The session ended: finish its streams, and drop them."""


class MemoryEvents:
    """Streams of this process: those that are being read or spoken on, and for a while those whose
    reader went."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streams: dict[str, Stream] = {}
        self._owned: dict[str, set[str]] = {}
        """The ids of each session's streams."""
        self._left: OrderedDict[str, Stream] = OrderedDict()
        """Those that nobody reads, the one whose reader went first at the front."""
        self._kept = 0
        """Bytes that are held for clients that have gone."""
        self._sweeper = Sweeper(limits.event_life / 4, self._sweep)

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, owner: str, kind: str = "") -> Stream:
        """A new stream of this session; its id begins with its kind."""
        stream = Stream(owner, self._limits.events, kind + token_hex(8))
        self.keep(stream)
        return stream

    def keep(self, stream: Stream) -> None:
        """Hold a stream that another process held until now."""
        if len(self._streams) >= 2 * self._limits.streams:
            self._make_room()
        stream.left = asyncio.get_running_loop().time()
        stream.weigh = self._weigh
        self._streams[stream.id] = stream
        self._owned.setdefault(stream.owner, set()).add(stream.id)
        self._weigh(stream, stream.size)
        self._sweeper.start()

    def find(self, owner: str, id: str) -> Stream | None:
        """The stream of this session with this id, if it is still held."""
        stream = self._streams.get(id)
        return stream if stream is not None and stream.owner == owner else None

    def end(self, owner: str) -> None:
        """The session ended: finish its streams, and drop them."""
        for id in list(self._owned.get(owner, ())):
            stream = self._streams[id]
            self.drop(stream)
            stream.finish()

    def drop(self, stream: Stream) -> None:
        """This one is not needed again."""
        if self._streams.pop(stream.id, None) is None:
            return
        stream.weigh = None
        self._left.pop(stream.id, None)
        if not stream.attached:
            self._kept -= stream.size
        owned = self._owned[stream.owner]
        owned.discard(stream.id)
        if not owned:
            del self._owned[stream.owner]
        if stream.on_drop is not None and stream.on_push is None and not stream.done:
            stream.on_drop()

    def _weigh(self, stream: Stream, more: int) -> None:
        if stream.left is None:
            self._left.pop(stream.id, None)
        else:
            self._left.setdefault(stream.id, stream)
        self._kept += more
        while self._kept > self._limits.events_kept and self._make_room():
            pass

    def _make_room(self) -> bool:
        """Drop the one that nobody has read for longest, if there is one."""
        if self._left:
            self.drop(next(iter(self._left.values())))
            return True
        return False

    def _sweep(self) -> bool:
        """Drop what nobody came back for."""
        oldest = asyncio.get_running_loop().time() - self._limits.event_life
        while (
            self._left
            and (stream := next(iter(self._left.values()))).left is not None
            and stream.left < oldest
        ):
            self.drop(stream)
        return bool(self._streams)
