"""A custom transport that sends one message per line over a Unix or TCP socket.

A channel has four methods. This channel wraps a pair of asyncio streams, and works on both sides:

    accept = lambda *streams: server.serve(Lines(*streams))
    listener = await asyncio.start_unix_server(accept, path, limit=LIMIT)
    client = Client(Lines(*await asyncio.open_unix_connection(path, limit=LIMIT)))
"""

import asyncio
from collections.abc import Callable

LIMIT = 64 * 1024 * 1024
"""The maximum length of a message, in bytes; asyncio's default for a line is 64 KiB."""


class Lines:
    """A channel of newline-delimited messages over a pair of asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def start(
        self, receive: Callable[[bytes], None], ended: Callable[[Exception | None], None]
    ) -> None:
        """Pass each message to `receive`, and call `ended` once, after the last message."""
        self.task = asyncio.create_task(self._read(receive, ended))

    async def _read(
        self, receive: Callable[[bytes], None], ended: Callable[[Exception | None], None]
    ) -> None:
        reason: Exception | None = None
        try:
            while line := await self.reader.readline():
                if line.strip():
                    receive(line.rstrip(b"\n"))
        except (ConnectionError, ValueError) as error:  # ValueError: a line over the limit
            reason = error
        ended(reason)

    def send(self, data: bytes) -> None:
        """Queue a message. This must neither block nor raise, even if the peer is gone."""
        if not self.writer.is_closing():
            self.writer.write(data + b"\n")

    async def drain(self) -> None:
        """Wait while the peer has too much unread data."""
        try:
            await self.writer.drain()
        except ConnectionError:
            pass

    async def close(self) -> None:
        """Send the queued messages, then close both directions."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass
