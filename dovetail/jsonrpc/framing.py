"""Newline framing: split chunks of bytes into lines.

Chunks are kept in a list until a newline arrives, and only the new chunk is searched, so reading a
line of many megabytes takes linear time. A line that exceeds the limit is discarded as it arrives,
up to its newline, and replaced by one `TooLong`. The lines before and after it are not lost.
"""

from typing import Final, final

from msgspec import Struct

HEAD_BYTES: Final = 256


@final
class TooLong(Struct, frozen=True):
    """A line that exceeded the limit. Its first bytes may show which request to answer."""

    head: bytes = b""
    limit: int | None = None
    """The limit, if it is not `Limits.incoming`."""


class LineSplitter:
    """A buffer that splits a byte stream into lines and removes their newlines. Empty lines are
    skipped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._dropping = False
        self._head = b""

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """Add the next chunk and return the lines that it completes."""
        end = chunk.rfind(b"\n")
        if end < 0:
            self._buffer(chunk)
            return []
        lines: list[bytes | TooLong] = list(chunk[:end].split(b"\n"))
        if self._parts or self._dropping:
            first = lines[0]
            assert isinstance(first, bytes)
            self._buffer(first)
            lines[0] = TooLong(self._head) if self._dropping else b"".join(self._parts)
        self._parts, self._size, self._dropping = [], 0, False
        if end + 1 < len(chunk):
            self._buffer(chunk[end + 1 :])
        if len(chunk) > self._limit:
            lines = [
                TooLong(line[:HEAD_BYTES])
                if isinstance(line, bytes) and len(line) > self._limit
                else line
                for line in lines
            ]
        return [line for line in lines if line and line != b"\r"]

    def rest(self) -> bytes:
        """Return the bytes after the last newline, which are the final line once the input has
        ended."""
        rest = b"" if self._dropping else b"".join(self._parts)
        self._parts, self._size, self._dropping = [], 0, False
        return rest

    def _buffer(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            if not self._dropping:
                self._head = b"".join([*self._parts, part[:HEAD_BYTES]])[:HEAD_BYTES]
            self._parts, self._dropping = [], True
        elif not self._dropping:
            self._parts.append(part)
