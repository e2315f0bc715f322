"""The numbered events that the page shows, in a ring buffer.

Each event is encoded once, when it is added. Every page follows the buffer at its own pace, so a
slow page costs no memory: if the buffer has moved on, the page gets a `gap` event and asks for a
snapshot. Long messages are cut in the event and kept whole beside it.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ..limits import KIB, MIB

MAX_EVENTS = 20_000
MAX_EVENT_BYTES = 64 * MIB
"""The size of all events, including the whole text of those that are cut."""
MAX_TEXT_BYTES = 256 * KIB
"""The length of a message that is shown whole."""
CUT_TEXT_BYTES = 64 * KIB
"""What is shown of a longer message."""
MAX_BATCH_BYTES = 256 * KIB
"""How much is sent to a page at a time."""


class StoredEvent(NamedTuple):
    """An event in the buffer."""

    data: bytes
    """The event as JSON."""
    whole: str | None = None
    """The text of a message that is cut in `data`."""

    @property
    def size(self) -> int:
        return len(self.data) + len(self.whole or "")


class EventBuffer:
    """The newest events, numbered from 1.

    Args:
        max_events: How many events are kept.
        max_bytes: How many bytes they may have in total. The newest event is always kept.
        clock: Returns the time of an event, in seconds since 1970.
    """

    def __init__(
        self,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_EVENT_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_events, self._max_bytes, self._clock = max_events, max_bytes, clock
        self._events: deque[StoredEvent] = deque()
        self._size = 0
        self.last = 0
        """The number of the newest event."""
        self._waiting: set[asyncio.Future[None]] = set()
        self.is_closed = False

    def add(self, kind: str, *, whole: str | None = None, **fields: Any) -> int:
        """Add an event and return its number.

        Args:
            kind: The kind of the event.
            whole: The text of a message that is cut in the fields.
            **fields: The other fields. Fields that are None are left out.
        """
        self.last += 1
        event = {"n": self.last, "at": round(self._clock(), 6), "kind": kind}
        event |= {name: value for name, value in fields.items() if value is not None}
        stored = StoredEvent(encode_event(event), whole)
        self._events.append(stored)
        self._size += stored.size
        while len(self._events) > self._max_events or (
            self._size > self._max_bytes and len(self._events) > 1
        ):
            self._size -= self._events.popleft().size
        self.wake()
        return self.last

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        self.wake()

    def read_after(self, number: int) -> tuple[bytes, int]:
        """Return the events after a number as frames of an event stream, and the number of the
        last one. Events that are no longer there are replaced with a `gap`."""
        first = self.last - len(self._events) + 1
        frames: list[bytes] = []
        size = 0
        if not first - 1 <= number <= self.last:
            number = first - 1
            frames.append(_frame(number, encode_event({"n": number, "kind": "gap"})))
        while number < self.last and size < MAX_BATCH_BYTES:
            data = self._events[number - first + 1].data
            number, size = number + 1, size + len(data)
            frames.append(_frame(number, data))
        return b"".join(frames), number

    def whole_text(self, number: int) -> str | None:
        """Return the text of a message that was cut, or None if it is no longer there."""
        first = self.last - len(self._events) + 1
        return self._events[number - first].whole if first <= number <= self.last else None

    async def wait_after(self, number: int, seconds: float) -> bool:
        """Wait for an event after a number, for `wake`, or for some seconds; return whether it was
        one of the first two."""
        if self.last > number or self.is_closed:
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.discard(future)
        return future.done()

    def wake(self) -> None:
        """End the waiting of all streams, so that they look again."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()


def encode_event(event: dict[str, Any]) -> bytes:
    """Encode an event, whatever text a server made it contain."""
    try:
        return msgspec.json.encode(event)
    except (UnicodeEncodeError, ValueError):  # half a surrogate pair, which only escapes can hold
        return json.dumps(event).encode()


def to_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a Struct as those of an event."""
    found: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)
    return found


def cut_text(data: bytes) -> tuple[str, str | None]:
    """Return a message as text, cut if it is long, and the whole text if it was cut."""
    text = data.decode(errors="replace")
    if len(data) <= MAX_TEXT_BYTES:
        return text, None
    return data[:CUT_TEXT_BYTES].decode(errors="ignore"), text


def _frame(number: int, data: bytes) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (number, data)
