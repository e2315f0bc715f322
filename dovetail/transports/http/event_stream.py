"""Server-sent events: bytes out of events, and events out of chunks. Pure.

`Events.feed` ends a line at LF, CR or CRLF at once; a CR that ends a chunk may be half of a CRLF,
so an LF that comes next is dropped. Only what is new is searched, an unfinished line waits in one
growing buffer: time is linear in the length of the stream, however it is cut. Data over the bound
is dropped while it streams in, and a `TooLong` stands in its place.

An event is handed on where it brought data, an id or a `retry`: an empty event with an id is how a
server says from where a broken stream can be resumed. What the stream ends in the middle of is
lost, as the standard wants it. https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from codecs import BOM_UTF8
from typing import Final

from msgspec import Struct

from ...jsonrpc.framing import HEAD_BYTES, TooLong

ID: Final = 4096
"""The longest id that is kept: it has to go back in a header."""
RETRY: Final = 9
"""The digits of the longest `retry` that is heeded: some days, in milliseconds."""
_FIELD: Final = len(b"data: ")


class Event(Struct, frozen=True):
    """One event. `name` is "message" unless the server said otherwise; `id` and `retry` (ms) where
    it gave them."""

    data: bytes | TooLong = b""
    name: str = "message"
    id: str | None = None
    retry: int | None = None


def event(
    data: bytes, *, id: str | None = None, name: str | None = None, retry: int | None = None
) -> bytes:
    """One event as bytes. The data is JSON on a single line, where a carriage return is nothing but
    space."""
    if b"\r" in data:
        data = data.replace(b"\r", b" ")
    head = ""
    if name is not None:
        head += f"event: {name}\n"
    if id is not None:
        head += f"id: {id}\n"
    if retry is not None:
        head += f"retry: {retry}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


def priming(id: str, retry: int | None = None) -> bytes:
    """An empty event, from which the stream can be resumed before it has said anything."""
    return event(b"", id=id, retry=retry)


def comment() -> bytes:
    """What keeps a quiet stream alive; parsers skip it."""
    return b":\n\n"


class EventStreamParser:
    """`feed(chunk)` returns the events that are now complete."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._first = True
        self._after_return = False
        self._line = bytearray()
        self._cut = False
        """Whether the end of the unfinished line was dropped."""
        self._begin()

    def _begin(self) -> None:
        self._name = "message"
        self._data: list[bytes] = []
        self._size = -1  # the newlines between data lines count, and there is one less of them
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next chunk; return the events that it completes."""
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_return = chunk.endswith(b"\r")
        lines = chunk.splitlines()
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        events: list[Event] = []
        for line in lines:
            if self._line:
                self._keep(line)
                line, self._line = bytes(self._line), bytearray()
            if self._first:
                self._first, line = False, line.removeprefix(BOM_UTF8)
            if line:
                self._field(line)
            elif (ended := self._end()) is not None:
                events.append(ended)
            self._cut = False
        self._keep(rest)
        return events

    def _keep(self, part: bytes) -> None:
        room = max(self._limit, ID) + _FIELD + len(BOM_UTF8) + 1 - len(self._line)
        self._cut = self._cut or len(part) > room
        self._line += part[:room] if len(part) > room else part

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._take(value)
        elif self._cut or len(value) > ID:
            return
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode(errors="replace")
        elif name == b"event":
            self._name = value.decode(errors="replace") or "message"
        elif name == b"retry" and value.isdigit() and len(value) <= RETRY:
            self._retry = int(value)

    def _take(self, value: bytes) -> None:
        fitted = self._size <= self._limit
        self._size += len(value) + 1
        if self._size <= self._limit:
            self._data.append(value)
        elif fitted:
            self._data = [
                b"\n".join([*self._data, value[:HEAD_BYTES]])[:HEAD_BYTES]
            ]  # all that is needed to tell whom it was for

    def _end(self) -> Event | None:
        data: bytes | TooLong = b"\n".join(self._data)
        if self._size > self._limit:
            data = TooLong(b"".join(self._data))
        ended = Event(data, self._name, self._id, self._retry)
        nothing = not data and self._id is None and self._retry is None
        self._begin()
        return None if nothing else ended
