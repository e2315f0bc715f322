"""One HTTP/1.1 connection of a client, which carries one request and its response at a time.

**Backpressure.** Reading pauses while more than `MAX_BUFFERED_BYTES` of a body wait for the caller.
A large request is sent in pieces, as the server reads them. It is sent while the response is being
read, because a server may respond before it has read everything. If the response is a refusal,
sending stops.

**The end.** A connection is kept for another request if this request was sent completely, the
response has arrived completely, and the server did not announce that it closes the connection.
Otherwise, the connection is closed at once: this is how a server learns that a request was
cancelled. Data that arrives while no response is due closes the connection, too, so that it cannot
be taken for the next response.

The end of a stream often arrives a moment after its last event. A caller that has what it needs
therefore releases the response, and the connection gets `LINGER_SECONDS` and `LINGER_BYTES` to
become complete.
"""

import asyncio
import re
import select
from collections.abc import Callable
from typing import Any, Final

from ....errors import ConnectionClosed
from .http1 import ResponseParser

IDLE_SECONDS: Final = 4.0
"""How long an idle connection is kept. Servers keep idle connections longer, so the client does not
reuse a connection that the server is closing. A server that says how long is believed."""
MAX_BUFFERED_BYTES: Final = 256 * 1024
MIN_BUFFER_BYTES: Final = 16 * 1024
"""The size of a new receive buffer, which holds most responses. asyncio would allocate 256 KiB for
each read, which takes a third of the CPU time of a small request."""
MAX_BUFFER_BYTES: Final = 256 * 1024
"""The size to which the receive buffer grows for a large body."""
SEND_PIECE_BYTES: Final = 64 * 1024
"""Larger requests are sent in pieces of this size, so that they do not block the event loop."""
LINGER_SECONDS: Final = 0.25
LINGER_BYTES: Final = 64 * 1024
_KEEP_ALIVE_SECONDS = re.compile(r"\btimeout=(\d{1,6})\b")


class Http1Response(ResponseParser):
    """A response. Iterate over it to read its body as it arrives, then `release` or `close` it."""

    def __init__(self, connection: "Http1Connection", shown: str) -> None:
        super().__init__()
        self._connection: Http1Connection | None = connection
        self._shown = shown

    def __aiter__(self) -> "Http1Response":
        return self

    async def __anext__(self) -> bytes:
        """Return everything that has arrived since the last call."""
        while not (found := self.take()):
            if self.complete or self._connection is None:
                raise StopAsyncIteration
            await self._connection.wait(self)
        if self._connection is not None:
            self._connection.resume_reading()
        return found

    def raise_failure(self) -> None:
        """Raise ConnectionClosed if nothing more can be read."""
        if self.failure:
            raise ConnectionClosed(f"{self._shown}: {self.failure}")

    def stop_calling(self) -> None:
        """Await the rest of a response that was begun with `on_change`."""
        if self._connection is not None:
            self._connection.stop_calling()

    def release(self) -> None:
        """Release the connection when the rest of the response has arrived. Close it if that takes
        long."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.linger(self)

    def close(self) -> None:
        """Release the connection if the response is complete. Otherwise, close it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.finish(self)


OnChange = Callable[[Http1Response], None]


class Http1Connection(asyncio.BufferedProtocol):
    """A connection. `on_idle` is called when it can be used again, and `on_lost` when it has been
    closed."""

    def __init__(
        self,
        on_idle: Callable[["Http1Connection"], None],
        on_lost: Callable[["Http1Connection"], None],
    ) -> None:
        self._on_idle, self._on_lost = on_idle, on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: Any
        self._has_input: Callable[[], bool]
        self._response: Http1Response | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._on_change: OnChange | None = None
        self._buffer = bytearray(MIN_BUFFER_BYTES)
        self._unsent = memoryview(b"")
        self._is_reading_paused = self._is_writing_paused = False
        self._linger_timer: asyncio.TimerHandle | None = None
        self._linger_bytes = 0
        self._expiry = 0.0
        self.is_closed = False

    @property
    def has_received(self) -> bool:
        """Whether any byte of the current response has arrived."""
        return self._response is not None and self._response.has_received

    async def exchange(self, head: bytes, body: bytes, shown: str) -> Http1Response:
        """Send a request. Return the response when its headers have arrived.

        Raises:
            ConnectionClosed: The connection broke, or the response is not valid.
        """
        self._response = response = Http1Response(self, shown)
        if len(body) <= SEND_PIECE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._unsent = memoryview(body)
            self._send_more()
        try:
            while not response.status:
                await self.wait(response)
        except BaseException:
            self.abort()
            raise
        return response

    def begin(self, request: bytes, shown: str, on_change: OnChange) -> Http1Response:
        """Send a small request without waiting. `on_change` is called whenever a part of the
        response has arrived, and when nothing more can arrive, until `stop_calling`."""
        self._response = response = Http1Response(self, shown)
        self._on_change = on_change
        self._transport.write(request)
        return response

    def stop_calling(self) -> None:
        """Do not call `on_change` any more, so that the response can be awaited."""
        self._on_change = None

    async def wait(self, response: Http1Response) -> None:
        """Wait until something happens on the connection, or raise the response's failure."""
        response.raise_failure()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def linger(self, response: Http1Response) -> None:
        """End the exchange when the rest of the response has arrived, if it is short and arrives
        soon."""
        if response.complete or self.is_closed or self._unsent:
            self.finish(response)
            return
        self._linger_bytes = 0
        self._linger_timer = self._loop.call_later(LINGER_SECONDS, self.abort)
        self.resume_reading()

    def finish(self, response: Http1Response) -> None:
        """End the exchange. Keep the connection if another one can follow."""
        self._response = self._on_change = None
        seconds = IDLE_SECONDS
        hint = response.headers.get("keep-alive")
        if hint is not None and (found := _KEEP_ALIVE_SECONDS.search(hint)):
            seconds = min(seconds, int(found[1]) - 1)
        can_keep = response.can_keep_alive and seconds > 0 and not self._unsent
        if self.is_closed or not can_keep:
            self.abort()
            return
        self._expiry = self._loop.time() + seconds
        if len(self._buffer) > MIN_BUFFER_BYTES:
            self._buffer = bytearray(MIN_BUFFER_BYTES)
        self.resume_reading()
        self._on_idle(self)

    def is_usable(self) -> bool:
        """Return whether an idle connection can be used again. If there is something to read, the
        server has closed the connection or has sent data that nobody asked for, and the event loop
        has not noticed it yet."""
        return not (self.is_closed or self._loop.time() >= self._expiry or self._has_input())

    def abort(self) -> None:
        """Close the connection without waiting for data that has not been sent."""
        self._stop_lingering()
        self.is_closed = True
        self._transport.abort()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        if self._is_reading_paused and not self.is_closed:
            self._is_reading_paused = False
            self._transport.resume_reading()

    def _send_more(self) -> None:
        """Send another piece of a large request. The next one follows when the event loop has done
        its other work."""
        is_refused = self._response is None or self._response.status >= 300
        if self.is_closed or self._is_writing_paused or is_refused or not self._unsent:
            return
        piece, self._unsent = self._unsent[:SEND_PIECE_BYTES], self._unsent[SEND_PIECE_BYTES:]
        self._transport.write(piece)
        self._loop.call_soon(self._send_more)

    def _stop_lingering(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _wake(self) -> None:
        if self._on_change is not None and self._response is not None:
            self._on_change(self._response)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self, is_orderly: bool) -> None:
        if self._response is not None:
            self._response.end(is_orderly)
        self._wake()

    # called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = transport
        self._has_input = _watch(transport.get_extra_info("socket").fileno())

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer for the next data."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the data in the buffer."""
        response = self._response
        if response is None:
            self.abort()  # nobody asked for this
            return
        response.feed(memoryview(self._buffer)[:nbytes])
        if response.failure:
            self.abort()
        elif self._linger_timer is not None:
            self._linger_bytes += len(response.take())
            if response.complete or self._linger_bytes > LINGER_BYTES:
                self._stop_lingering()
                self.finish(response)
            return
        elif response.buffered_bytes > MAX_BUFFERED_BYTES and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        if nbytes == len(self._buffer) < MAX_BUFFER_BYTES:
            self._buffer = bytearray(2 * nbytes)
        self._wake()

    def eof_received(self) -> None:
        """Close the connection, because a server that sends nothing more cannot respond."""
        self._end(is_orderly=True)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange, if any."""
        self._stop_lingering()
        self.is_closed = True
        self._end(is_orderly=exc is None)
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Stop sending a large request."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """Continue to send a large request."""
        self._is_writing_paused = False
        self._send_more()


def _watch(number: int) -> Callable[[], bool]:
    """Return a function that says whether there is something to read from a socket."""
    if not hasattr(select, "poll"):  # Windows
        return lambda: bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return lambda: bool(poll.poll(0))
