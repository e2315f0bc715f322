"""Pipes and process groups on Windows, where the event loop can wait for neither.

`_posix.py` has the same names. A thread per pipe does the waiting and owns it: closing one under a
blocked read hangs. A reader goes on only when the loop has taken its last chunk, so it is as
bounded as a polled pipe. A job object holds the process and whatever it starts; the system kills
them all when the job is closed, also when we die.
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

CHUNK = 64 * KIB


def resolve(words: list[str], path: str | None) -> list[str]:
    """The command as it can be executed: `npx` is `npx.cmd` somewhere on the path."""
    return [shutil.which(words[0], path=path) or words[0], *words[1:]]


def read(
    loop: asyncio.AbstractEventLoop, pipe: IO[bytes], feed: Callable[[bytes], None]
) -> Callable[[], Any]:
    """Feed what comes, a chunk per turn of the loop, and an empty chunk at the end. Returns how to
    stop it."""
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
                chunk = pipe.read(CHUNK)
            except (OSError, ValueError):
                chunk = b""
            if not _post(loop, take, chunk):
                break
            taken.acquire()
        pipe.close()

    threading.Thread(target=run, name="read-pipe", daemon=True).start()
    return stopped.set


def pollable(descriptor: int) -> bool:
    """Everything is read by a thread here, so anything will do."""
    return True


class WindowsPipeWriter:
    """What waits to be written: a thread takes all there is and writes it in one block."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipe: IO[bytes],
        bound: int,
        broken: Callable[[], Any],
    ) -> None:
        self._loop, self._pipe, self._bound, self._broken = loop, pipe, bound, broken
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
            if self._pending > self._bound:
                self.room.clear()
            self._queue.put(data)

    def close(self) -> None:
        """Close the pipe once all is written."""
        self._closing = True
        self._queue.put(None)

    def abort(self) -> None:
        """Close the pipe; nobody reads any more, so nothing holds up the thread."""
        self.close()
        self._pending = 0
        self.room.set()
        if self._emptied is not None:
            self._emptied.set()

    async def empty(self) -> None:
        """Wait until all is written."""
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
                    size = self._pipe.write(block[:CHUNK])
                    block = block[size:]
                    _post(self._loop, self._written, size)
        except (OSError, ValueError):
            _post(self._loop, self._lost)
        finally:
            self._pipe.close()

    def _written(self, size: int) -> None:
        self._pending -= size
        if self._pending <= self._bound:
            self.room.set()
        if self._pending <= 0 and self._emptied is not None:
            self._emptied.set()

    def _lost(self) -> None:
        self.abort()
        self._broken()


class WindowsJob:
    """A process and its helpers, as a job."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self._kill, self._close = _job(popen.pid)

    def watch(
        self, loop: asyncio.AbstractEventLoop, exited: Callable[[], None]
    ) -> Callable[[], Any]:
        """Hear of the exit of the process. Returns how to stop it."""

        def run() -> None:
            self._popen.wait()
            _post(loop, exited)

        threading.Thread(target=run, name=f"wait-{self._popen.pid}", daemon=True).start()
        return lambda: None

    def terminate(self) -> None:
        """End all: there is no way to ask a process that has no window and a console of its own."""
        self.kill()

    def kill(self) -> None:
        """End all."""
        self._popen.kill()
        self._kill()

    def release(self) -> None:
        """Give back the job; the pipes belong to their threads."""
        self._close()


def _job(pid: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Put a process into a job of its own. Returns how to kill all in it, and how to close it."""
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
        getattr(
            kernel, name
        ).restype = ctypes.c_void_p  # a handle is wider than the int that ctypes assumes
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
    """Write; a console or file takes it at once, and a pipe cannot be asked."""
    os.write(descriptor, data)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> bool:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # the loop is closed, nobody wants to know
        return False
    return True


PipeWriter = WindowsPipeWriter
ProcessGroup = WindowsJob
