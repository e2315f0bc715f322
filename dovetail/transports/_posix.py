"""Pipes and process groups where the event loop can wait for them: Linux, macOS and the like.

`_windows.py` has the same names. Pipes do not block and are polled by the loop. So is the exit of a
process, through a pidfd; where there is none, a thread waits for it. Either way the dead leader is
not reaped before its group was killed: until then its number, which is also the group's, cannot
become another's.
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

# A buffer of 256 KiB comes from the kernel anew for each read (15 µs), one of 64 KiB does not (1
# µs).
SMALL, LARGE = 64 * KIB, 256 * KIB


def resolve(words: list[str], path: str | None) -> list[str]:
    """The command as it can be executed."""
    return words


def read(
    loop: asyncio.AbstractEventLoop, pipe: IO[bytes], feed: Callable[[bytes], None]
) -> Callable[[], Any]:
    """Feed what comes, a chunk per turn of the loop, and an empty chunk at the end. Returns how to
    stop it."""
    descriptor, size = pipe.fileno(), SMALL

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
        size = LARGE if len(chunk) == size else SMALL
        feed(chunk)

    os.set_blocking(descriptor, False)
    _enlarge(descriptor)
    loop.add_reader(descriptor, ready)
    return partial(loop.remove_reader, descriptor)


def pollable(descriptor: int) -> bool:
    """Whether the loop can wait for it: a pipe or a socket."""
    kind = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def _enlarge(descriptor: int) -> None:
    """Fewer and larger reads; a user who has many pipes may be refused, which does no harm."""
    if sys.platform == "linux":
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, LARGE)
        except OSError:
            pass


class PosixPipeWriter:
    """What waits to be written. The first send of a turn of the loop is written at once, which is
    the whole story for a peer that asks one thing at a time; the others of that turn leave in one
    block at its end, each byte copied once."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipe: IO[bytes],
        bound: int,
        broken: Callable[[], Any],
    ) -> None:
        if pollable(
            pipe.fileno()
        ):  # a terminal's modes are shared with the shell, and a file never blocks
            os.set_blocking(pipe.fileno(), False)
        self._loop, self._pipe, self._bound, self._broken = loop, pipe, bound, broken
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
        if self._pending > self._bound:
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
        """Close the pipe once all is written."""
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
        """Wait until all is written."""
        if self._pending:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def _flush(self) -> None:
        if not self._pending:  # aborted since
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
            self._broken()
            return
        self._block = self._block[written:]
        self._pending -= written
        if self._block and not self._large:  # an answer of 2 MiB takes 18 writes then, not 28
            self._large = True
            _enlarge(self._pipe.fileno())
        if self._pending <= self._bound:
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
    """A process and its helpers, as a process group."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self._pidfd: int | None = None

    def watch(
        self, loop: asyncio.AbstractEventLoop, exited: Callable[[], None]
    ) -> Callable[[], Any]:
        """Hear of the exit of the process, which stays unreaped. Returns how to stop it."""
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
        """Ask all to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all."""
        self._signal(signal.SIGKILL)

    def release(self) -> None:
        """Give back all descriptors."""
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._popen.pid, number)
        except (ProcessLookupError, PermissionError):  # nobody is left, or (macOS) only the dead
            pass

    def _wait(self, loop: asyncio.AbstractEventLoop, exited: Callable[[], None]) -> None:
        try:
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
            # macOS before Python 3.13; it reaps, and leaves a moment in which the number is free
            else:
                self._popen.wait()
        except ChildProcessError:  # reaped by somebody else
            pass
        try:
            loop.call_soon_threadsafe(exited)
        except RuntimeError:  # the loop is closed, nobody wants to know
            pass


def _open_pidfd(pid: int) -> int | None:
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except (AttributeError, OSError):  # an old library, an old kernel, a sandbox
            pass
    return None


def write_now(descriptor: int, data: bytes) -> None:
    """Write as much as goes without waiting."""
    view = memoryview(data)
    while view and select.select((), (descriptor,), (), 0)[1]:
        view = view[os.write(descriptor, view[: select.PIPE_BUF]) :]


PipeWriter = PosixPipeWriter
ProcessGroup = PosixProcessGroup
