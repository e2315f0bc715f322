"""Pipes and process groups on Linux, macOS and other POSIX systems.

`_windows.py` defines the same names. The pipes are non-blocking, and the event loop polls them. The
loop also polls a pidfd to notice when a process exits; without pidfds, a thread waits for the exit.
In both cases, the leader of a group is reaped only after the group has been killed, so that no
other group can receive its ID before then.
"""

import asyncio
import os
import select
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import IO, Any

from ..limits import KIB

assert sys.platform != "win32"

INHERITED: frozenset[str] = frozenset()
OPTIONS: dict[str, Any] = {"start_new_session": True}
variable = str

# A large read requests a new buffer from the system (15 µs); a small buffer is reused (1 µs).
SMALL_CHUNK_BYTES, LARGE_CHUNK_BYTES = 64 * KIB, 256 * KIB


def resolve(argv: list[str], path: str | None) -> list[str]:
    """Return the command unchanged, because the system looks up the program itself."""
    return argv


def read(
    loop: asyncio.AbstractEventLoop, pipe: IO[bytes], feed: Callable[[bytes], None]
) -> Callable[[], Any]:
    """Pass each chunk read from the pipe to `feed`, one per loop iteration, then an empty chunk at
    the end of the input. Return a function that stops reading."""
    descriptor, size = pipe.fileno(), SMALL_CHUNK_BYTES

    def ready() -> None:
        nonlocal size
        try:
            chunk = os.read(descriptor, size)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            loop.remove_reader(descriptor)
        size = LARGE_CHUNK_BYTES if len(chunk) == size else SMALL_CHUNK_BYTES
        feed(chunk)

    os.set_blocking(descriptor, False)
    _enlarge(descriptor)
    loop.add_reader(descriptor, ready)
    return partial(loop.remove_reader, descriptor)


def pollable(descriptor: int) -> bool:
    """Return whether the event loop can poll a descriptor, that is, a pipe or a socket."""
    kind = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def has_unread(pipe: IO[bytes]) -> bool:
    """Return whether a pipe contains data that its reader has not read. Only Linux tells; elsewhere
    the answer is False."""
    if sys.platform == "linux" and not pipe.closed:
        import fcntl
        import termios

        return any(fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)))
    return False


def _enlarge(descriptor: int) -> None:
    """Enlarge a pipe to allow fewer, larger reads. If the system does not allow it, the pipe keeps
    its size."""
    if sys.platform == "linux":
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, LARGE_CHUNK_BYTES)
        except OSError:
            pass


class PosixPipeWriter:
    """A line writer for a pipe.

    The first line in a loop iteration is written immediately. If the peer sends one request at a
    time, this is the only line. The other lines in that iteration are written as one block when it
    ends, and each byte is copied once.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipe: IO[bytes],
        max_bytes: int,
        on_broken: Callable[[], Any],
    ) -> None:
        # Terminals and files stay in blocking mode: a terminal shares its mode with the shell, and
        # a file never blocks.
        if pollable(pipe.fileno()):
            os.set_blocking(pipe.fileno(), False)
        self._loop, self._pipe, self._max_bytes, self._on_broken = loop, pipe, max_bytes, on_broken
        self._queue: list[bytes] = []
        self._block = memoryview(b"")
        self._pending = 0
        self._polling = self._closing = self._flushing = self._large = False
        self.room = asyncio.Event()
        self.room.set()
        self._emptied: asyncio.Event | None = None

    def send(self, data: bytes) -> None:
        """Queue a line."""
        if self._closing:
            return
        self._queue += (data, b"\n")
        self._pending += len(data) + 1
        if self._pending > self._max_bytes:
            self.room.clear()
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._end_turn)
            if not self._polling:
                self._flush()

    def _end_turn(self) -> None:
        self._flushing = False
        if not self._polling:
            self._flush()

    def close(self) -> None:
        """Close the pipe after everything has been written."""
        self._closing = True
        if not self._pending:
            self._pipe.close()

    def abort(self) -> None:
        """Close the pipe now."""
        self._closing = True
        self._poll(False)
        self._queue.clear()
        self._block, self._pending = memoryview(b""), 0
        self._pipe.close()
        self.room.set()
        if self._emptied is not None:
            self._emptied.set()

    async def empty(self) -> None:
        """Wait until everything has been written."""
        if self._pending:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def _flush(self) -> None:
        if not self._pending:  # the pipe was aborted
            return
        if not self._block:
            self._block = memoryview(b"".join(self._queue))
            self._queue.clear()
        try:
            written = os.write(self._pipe.fileno(), self._block)
        except BlockingIOError:
            written = 0
        except OSError:
            self.abort()
            self._on_broken()
            return
        self._block = self._block[written:]
        self._pending -= written
        if self._block and not self._large:  # so a 2 MiB response takes 18 writes, not 28
            self._large = True
            _enlarge(self._pipe.fileno())
        if self._pending <= self._max_bytes:
            self.room.set()
        self._poll(self._pending > 0)
        if not self._pending:
            if self._emptied is not None:
                self._emptied.set()
            if self._closing:
                self._pipe.close()

    def _poll(self, on: bool) -> None:
        if on and not self._polling:
            self._loop.add_writer(self._pipe.fileno(), self._flush)
        elif self._polling and not on:
            self._loop.remove_writer(self._pipe.fileno())
        self._polling = on


class PosixProcessGroup:
    """A process group: a process and its children."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self._pidfd: int | None = None

    def watch(
        self, loop: asyncio.AbstractEventLoop, exited: Callable[[], None]
    ) -> Callable[[], Any]:
        """Call `exited` when the process exits, but do not reap the process. Return a function that
        stops watching."""
        self._pidfd = pidfd = _open_pidfd(self._popen.pid)
        if pidfd is None:
            name = f"wait-{self._popen.pid}"
            threading.Thread(target=self._wait, args=(loop, exited), name=name, daemon=True).start()
            return lambda: None

        def ready() -> None:
            loop.remove_reader(pidfd)
            exited()

        loop.add_reader(pidfd, ready)
        return partial(loop.remove_reader, pidfd)

    def terminate(self) -> None:
        """Send SIGTERM to the group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the group."""
        self._signal(signal.SIGKILL)

    def release(self) -> None:
        """Close all descriptors."""
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._popen.pid, number)
        except (ProcessLookupError, PermissionError):  # no process is left, or only zombies (macOS)
            pass

    def _wait(self, loop: asyncio.AbstractEventLoop, exited: Callable[[], None]) -> None:
        try:
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
            # macOS before Python 3.13: this reaps the process, so its ID is free for a moment
            else:
                self._popen.wait()
        except ChildProcessError:  # other code has already reaped it
            pass
        try:
            loop.call_soon_threadsafe(exited)
        except RuntimeError:  # the loop is closed
            pass


def _open_pidfd(pid: int) -> int | None:
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except (AttributeError, OSError):  # an old C library, an old kernel or a sandbox
            pass
    return None


def write_now(descriptor: int, data: bytes) -> None:
    """Write as much as possible without blocking."""
    view = memoryview(data)
    while view and select.select((), (descriptor,), (), 0)[1]:
        view = view[os.write(descriptor, view[: select.PIPE_BUF]) :]


PipeWriter = PosixPipeWriter
ProcessGroup = PosixProcessGroup
