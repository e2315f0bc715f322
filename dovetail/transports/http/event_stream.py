"""Server-sent events: encode events, and parse them from chunks. This module performs no I/O.

The parser ends a line at LF, CR or CRLF without waiting for more data: after a chunk that ends with
CR, an LF at the start of the next chunk is skipped. The parser searches only new bytes and keeps an
unfinished line in one growing buffer. The parser's running time is therefore linear in the length
of the stream, regardless of how the stream is split. Data that exceeds the limit is dropped as it
arrives and replaced by a `TooLong`.

An event is returned if it has data, an id or a `retry`. A server sends an empty event with an id to
mark a position from which a broken stream can be resumed. An event that is incomplete at the end of
the stream is dropped, as the standard requires.
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from codecs import BOM_UTF8
from typing import Final

from msgspec import Struct

from ...jsonrpc.framing import HEAD_BYTES, TooLong

MAX_ID_BYTES: Final = 4096
"""The maximum length of an id. Longer ids are ignored, because an id is sent back in a header."""
MAX_RETRY_DIGITS: Final = 9
"""The maximum number of digits in `retry`. Longer values are ignored. Nine digits of milliseconds
cover about 11 days."""
_FIELD_BYTES: Final = len(b"data: ")
COMMENT: Final = b":\n\n"
"""A comment, which keeps an idle stream alive. Parsers skip it."""


class Event(Struct, frozen=True):
    """One event, with its `id` and `retry` (in milliseconds) if the server sent them."""

    data: bytes | TooLong = b""
    name: str = "message"
    id: str | None = None
    retry: int | None = None


def event(
    data: bytes, *, id: str | None = None, name: str | None = None, retry: int | None = None
) -> bytes:
    """Encode one event. The data is JSON on a single line, in which a carriage return can only be
    white space. An empty event with an id lets a client resume a stream before its first
    message."""
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


class EventStreamParser:
    """A parser for an event stream that arrives in chunks. Data larger than `limit` bytes becomes a
    `TooLong`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._first = True
        self._after_return = False
        self._line = bytearray()
        self._cut = False
        """Whether the unfinished line was cut because it is too long."""
        self._reset()

    def _reset(self) -> None:
        self._name = "message"
        self._data: list[bytes] = []
        self._size = -1  # n data lines have n - 1 newlines between them, which count, too
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """Parse the next chunk and return the events that it completes."""
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
                self._append_to_line(line)
                line, self._line = bytes(self._line), bytearray()
            if self._first:
                self._first, line = False, line.removeprefix(BOM_UTF8)
            if line:
                self._parse_field(line)
            elif (ended := self._complete_event()) is not None:
                events.append(ended)
            self._cut = False
        self._append_to_line(rest)
        return events

    def _append_to_line(self, part: bytes) -> None:
        room = max(self._limit, MAX_ID_BYTES) + _FIELD_BYTES + len(BOM_UTF8) + 1 - len(self._line)
        self._cut = self._cut or len(part) > room
        self._line += part[:room] if len(part) > room else part

    def _parse_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add_data(value)
        elif self._cut or len(value) > MAX_ID_BYTES:
            return
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode(errors="replace")
        elif name == b"event":
            self._name = value.decode(errors="replace") or "message"
        elif name == b"retry" and value.isdigit() and len(value) <= MAX_RETRY_DIGITS:
            self._retry = int(value)

    def _add_data(self, value: bytes) -> None:
        fitted = self._size <= self._limit
        self._size += len(value) + 1
        if self._size <= self._limit:
            self._data.append(value)
        elif fitted:
            # This prefix is enough to find the id of the request that the event answers.
            self._data = [b"\n".join([*self._data, value[:HEAD_BYTES]])[:HEAD_BYTES]]

    def _complete_event(self) -> Event | None:
        data: bytes | TooLong = b"\n".join(self._data)
        if self._size > self._limit:
            data = TooLong(b"".join(self._data))
        ended = Event(data, self._name, self._id, self._retry)
        is_empty = not data and self._id is None and self._retry is None
        self._reset()
        return None if is_empty else ended
