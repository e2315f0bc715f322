"""Pipes and process groups on Windows, where the event loop cannot poll pipes.

`_posix.py` defines the same names. A thread reads or writes each pipe and also closes it, because
closing a pipe during a blocked read hangs. A reading thread continues only after the loop has
processed its last chunk, so it buffers no more than a polled pipe does. A job object holds the
process and its children. When the job is closed, the system kills all these processes. Killing this
process also closes the job.
"""

import asyncio
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import IO, Any

from ..limits import KIB

INHERITED = frozenset(
    {
        "SYSTEMROOT",
        "SYSTEMDRIVE",
        "WINDIR",
        "COMSPEC",
        "PATHEXT",
        "USERNAME",
        "USERDOMAIN",
        "USERPROFILE",
        "HOMEDRIVE",
        "HOMEPATH",
        "APPDATA",
        "LOCALAPPDATA",
        "ALLUSERSPROFILE",
        "PROGRAMDATA",
        "PROGRAMFILES",
        "PROGRAMFILES(X86)",
        "PROGRAMW6432",
        "PUBLIC",
        "COMPUTERNAME",
        "NUMBER_OF_PROCESSORS",
        "PROCESSOR_ARCHITECTURE",
    }
)
CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW = 0x00000200, 0x08000000
OPTIONS: dict[str, Any] = {"creationflags": CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW}
variable = str.upper

CHUNK_BYTES = 64 * KIB


def resolve(argv: list[str], path: str | None) -> list[str]:
    """Return the command with its program resolved on PATH: `npx` becomes the path of `npx.cmd`."""
    return [shutil.which(argv[0], path=path) or argv[0], *argv[1:]]


def read(
    loop: asyncio.AbstractEventLoop, pipe: IO[bytes], feed: Callable[[bytes], None]
) -> Callable[[], Any]:
    """Pass each chunk read from the pipe to `feed`, one per loop iteration, then an empty chunk at
    the end of the input. Return a function that stops reading."""
    taken = threading.Semaphore(0)
    stopped = threading.Event()

    def take(chunk: bytes) -> None:
        taken.release()
        if not stopped.is_set():
            feed(chunk)

    def run() -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = pipe.read(CHUNK_BYTES)
            except (OSError, ValueError):
                chunk = b""
            if not _post(loop, take, chunk):
                break
            taken.acquire()
        pipe.close()

    threading.Thread(target=run, name="read-pipe", daemon=True).start()
    return stopped.set


def pollable(descriptor: int) -> bool:
    """Return True, because a thread reads every descriptor on Windows."""
    return True


def has_unread(pipe: IO[bytes]) -> bool:
    """Return False, because Windows does not tell whether a pipe contains unread data."""
    return False


class WindowsPipeWriter:
    """A line writer for a pipe: a thread writes all queued lines as one block."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipe: IO[bytes],
        max_bytes: int,
        on_broken: Callable[[], Any],
    ) -> None:
        self._loop, self._pipe, self._max_bytes, self._on_broken = loop, pipe, max_bytes, on_broken
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._pending = 0
        self._closing = False
        self.room = asyncio.Event()
        self.room.set()
        self._emptied: asyncio.Event | None = None
        threading.Thread(target=self._run, name="write-pipe", daemon=True).start()

    def send(self, data: bytes) -> None:
        """Queue a line."""
        if not self._closing:
            self._pending += len(data) + 1
            if self._pending > self._max_bytes:
                self.room.clear()
            self._queue.put(data)

    def close(self) -> None:
        """Close the pipe after everything has been written."""
        self._closing = True
        self._queue.put(None)

    def abort(self) -> None:
        """Close the pipe. The pipe's reader has exited, so no write blocks the thread."""
        self.close()
        self._pending = 0
        self.room.set()
        if self._emptied is not None:
            self._emptied.set()

    async def empty(self) -> None:
        """Wait until everything has been written."""
        if self._pending:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def _run(self) -> None:
        going = True
        try:
            while going:
                lines = [self._queue.get()]
                while not self._queue.empty():
                    lines.append(self._queue.get())
                going = None not in lines
                block = memoryview(b"".join(line + b"\n" for line in lines if line is not None))
                while block:
                    size = self._pipe.write(block[:CHUNK_BYTES])
                    block = block[size:]
                    _post(self._loop, self._written, size)
        except (OSError, ValueError):
            _post(self._loop, self._lost)
        finally:
            self._pipe.close()

    def _written(self, size: int) -> None:
        self._pending -= size
        if self._pending <= self._max_bytes:
            self.room.set()
        if self._pending <= 0 and self._emptied is not None:
            self._emptied.set()

    def _lost(self) -> None:
        self.abort()
        self._on_broken()


class WindowsJob:
    """A job object that holds a process and its children."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self._kill, self._close = _job(popen.pid)

    def watch(
        self, loop: asyncio.AbstractEventLoop, exited: Callable[[], None]
    ) -> Callable[[], Any]:
        """Call `exited` when the process exits. Return a function that stops watching."""

        def run() -> None:
            self._popen.wait()
            _post(loop, exited)

        threading.Thread(target=run, name=f"wait-{self._popen.pid}", daemon=True).start()
        return lambda: None

    def terminate(self) -> None:
        """Kill the job, because a process that has no window and runs on its own console cannot be
        asked to exit."""
        self.kill()

    def kill(self) -> None:
        """Kill all processes in the job."""
        self._popen.kill()
        self._kill()

    def release(self) -> None:
        """Close the job. The threads close the pipes."""
        self._close()


def _job(pid: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Put a process into a new job. Return a function that kills the job and a function that closes
    it."""
    if sys.platform != "win32":
        raise NotImplementedError
    import ctypes

    SET_QUOTA, TERMINATE, EXTENDED_LIMITS, KILL_ON_CLOSE = 0x0100, 0x0001, 9, 0x2000
    size, large, word = ctypes.c_size_t, ctypes.c_int64, ctypes.c_uint32

    class JobLimits(ctypes.Structure):  # JOBOBJECT_EXTENDED_LIMIT_INFORMATION
        _fields_ = [
            ("process_time", large),
            ("job_time", large),
            ("flags", word),
            ("least_set", size),
            ("most_set", size),
            ("processes", word),
            ("affinity", size),
            ("priority", word),
            ("scheduling", word),
            ("io", large * 6),
            ("memory", size * 4),
        ]

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    for name in ("CreateJobObjectW", "OpenProcess"):
        # A handle is wider than the int that ctypes assumes.
        getattr(kernel, name).restype = ctypes.c_void_p
    handle = ctypes.c_void_p
    job = handle(kernel.CreateJobObjectW(None, None))
    process = handle(kernel.OpenProcess(SET_QUOTA | TERMINATE, False, pid))
    limits = JobLimits(flags=KILL_ON_CLOSE)
    kernel.SetInformationJobObject(
        job, EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
    )
    kernel.AssignProcessToJobObject(job, process)
    kernel.CloseHandle(process)
    return partial(kernel.TerminateJobObject, job, 1), partial(kernel.CloseHandle, job)


def write_now(descriptor: int, data: bytes) -> None:
    """Write the data. Writing to a pipe may block, because Windows cannot check for free space
    beforehand."""
    os.write(descriptor, data)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> bool:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # the loop is closed
        return False
    return True


PipeWriter = WindowsPipeWriter
ProcessGroup = WindowsJob
