"""The server side of stdio: one message per line, read from stdin and written to stdout.

At startup, the server claims the real streams. It duplicates stdout and replaces it with stderr, so
a stray `print` cannot break the protocol. It duplicates stdin and replaces it with the null device,
so a child process cannot consume messages. Spawned child processes do not inherit the duplicates,
and forked child processes close them.

The event loop polls pipes and sockets itself, without a thread. A thread reads terminals, whose
mode is shared with the shell, and regular files and the null device, which cannot be polled. While
the client does not read its responses, they are queued and reading pauses, so memory use stays
limited.
"""

import asyncio
import io
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any

from ..jsonrpc.framing import LineSplitter
from ..limits import DEFAULT, Limits
from ..ports import PIPE, OnClose, Receive

if sys.platform == "win32":
    from . import _windows as system
else:
    from . import _posix as system

CHUNK_BYTES = 64 * 1024


class StdioChannel:
    """A channel over stdin and stdout."""

    network = PIPE

    def __init__(
        self, limits: Limits = DEFAULT, streams: tuple[io.FileIO, io.FileIO] | None = None
    ) -> None:
        self._in, self._out = _claim() if streams is None else streams
        self._limits = limits
        self._lines = LineSplitter(limits.incoming)
        self._stop: Callable[[], Any] | None = None
        self._closed = False
        self._has_ended = False
        self._loop: asyncio.AbstractEventLoop
        self._writer: system.PipeWriter
        self._receive: Receive
        self._ended: OnClose
        kind = os.fstat(self._in.fileno()).st_mode
        self.endless = not stat.S_ISREG(kind)
        """Whether the end of stdin means that the client has disconnected, which is not the case
        for a file."""
        self._polled = system.pollable(self._in.fileno())

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Start reading."""
        self._loop = asyncio.get_running_loop()
        self._receive, self._ended = receive, ended
        self._writer = system.PipeWriter(
            self._loop, self._out, self._limits.write_buffer, self._lost
        )
        self._listen()

    def _listen(self) -> None:
        if self._polled:
            self._stop = system.read(self._loop, self._in, self._feed)
        else:
            threading.Thread(target=self._read, name="dovetail-stdin", daemon=True).start()

    def _feed(self, chunk: bytes) -> None:
        if self._closed:
            return
        receive = self._receive
        for line in self._lines.feed(chunk) if chunk else (self._lines.rest(),):
            if line:
                receive(line)
        if not chunk:
            self._end(None)
        elif self._stop is not None and not self._writer.room.is_set():
            self._stop()
            self._stop = None
            self._loop.create_task(self._resume(self._listen))

    async def _resume(self, proceed: Callable[[], None]) -> None:
        await self._writer.room.wait()
        if not self._closed and not self._has_ended:
            proceed()

    def _read(self) -> None:
        """Read a stream that cannot be polled. A thread reads one chunk at a time, without reading
        ahead."""
        while True:
            try:
                chunk = os.read(self._in.fileno(), CHUNK_BYTES)
            except (OSError, ValueError):
                chunk = b""
            taken = threading.Event()
            try:
                self._loop.call_soon_threadsafe(self._take, chunk, taken)
            except RuntimeError:
                return  # the loop is closed
            if not chunk:
                return
            taken.wait()

    def _take(self, chunk: bytes, taken: threading.Event) -> None:
        self._feed(chunk)
        if self._writer.room.is_set():
            taken.set()
        else:
            self._loop.create_task(self._resume(taken.set))

    def send(self, data: bytes) -> None:
        """Queue one message."""
        self._writer.send(data)

    @property
    def full(self) -> bool:
        """Whether more than `Limits.write_buffer` bytes are queued."""
        return not self._writer.room.is_set()

    async def drain(self) -> None:
        """Wait until at most `Limits.write_buffer` bytes are queued."""
        await self._writer.room.wait()

    async def close(self) -> None:
        """Write the queued messages within `Limits.shutdown` seconds, then release both streams."""
        if self._closed:
            return
        self._closed = True
        if self._stop is not None:
            self._stop()
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.empty(), self._limits.shutdown)
        except TimeoutError:
            self._writer.abort()

    def _lost(self) -> None:
        if self._stop is not None:
            self._stop()
        self._end(BrokenPipeError("The client closed the server's output stream"))

    def _end(self, reason: Exception | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._ended(reason)


def _claim() -> tuple[io.FileIO, io.FileIO]:
    """Claim stdin and stdout for the protocol, and replace them with harmless streams."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The descriptor was closed from the start, so it is the lowest free one, which open()
            # uses.
            os.open(os.devnull, os.O_RDWR)
    received, sent = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.stdout is not None:
        sys.stdout.flush()  # earlier output is not meant for the client either
    streams = io.FileIO(received, "r"), io.FileIO(sent, "w")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _close_streams(streams))
    return streams


def _close_streams(streams: tuple[io.FileIO, io.FileIO]) -> None:
    for stream in streams:
        try:
            stream.close()  # not os.close(): the descriptor may belong to another file by now
        except OSError:
            pass
