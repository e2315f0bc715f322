"""A proxy between a host and a server on stdio, which records what passes.

The host starts the proxy as if it were the server, and the proxy starts the server with the
environment that the host has given to it. Bytes are passed on exactly as they arrive, including
lines that are not messages. A message is recorded before it is passed on, so that a request is
always in front of its reply.

**Streams.** Each direction has a thread that blocks while its reader is slow, as the pipe itself
would. If one side closes a stream, the proxy closes the same stream on the other side. The server
inherits stderr.

**The end.** Signals are passed on to the server. When the server ends, the proxy passes on the rest
of its output and ends in the same way: with the same exit status or by the same signal. When the
host has disappeared and the server does not end, it is terminated, and then killed. On Linux, the
server is also killed if the proxy is.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import IO, Any, Final

from msgspec import Struct

from ...errors import ConnectFailed
from ...jsonrpc.framing import LineSplitter
from ...limits import DEFAULT, KIB, MIB
from ...mcplog import Direction, McplogWriter

CHUNK_BYTES: Final = 256 * KIB
IDLE_SECONDS: Final = 0.5
"""How long the output may be silent after the server has exited. A helper process of the server may
hold it open."""
CHECK_SECONDS: Final = 0.25
"""How often to check whether the host still exists, after it has closed its end."""
PASSED_ON: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
"""The signals that are passed on to the server."""


class ServerCommand(Struct, frozen=True):
    """How to start a server."""

    argv: list[str]
    env: dict[str, str] = {}
    """Variables in addition to those of this process."""
    cwd: str | None = None


def run_proxy(command: ServerCommand, writer: McplogWriter) -> int:
    """Start a server, connect it to stdin and stdout of this process, and return how it ended: its
    exit status, or the negative number of a signal.

    Args:
        command: The server.
        writer: The recording.

    Raises:
        ConnectFailed: The server cannot be started.
    """
    host_in, host_out = _claim_streams()
    process = _start(command)
    assert process.stdin and process.stdout
    for name in PASSED_ON:
        if number := getattr(signal, name, None):
            signal.signal(number, partial(_pass_on, process))
    exited = threading.Event()
    lock = threading.Lock()
    requests = _Stream(_Recorder(writer, lock, "to_server"), host_in, _detach(process.stdin))
    output = _Stream(_Recorder(writer, lock, "to_client"), _detach(process.stdout), host_out)
    requests.start(partial(_end_with_host, process, exited, host_out, os.getppid()))
    output.start()
    _wait(process)
    output.join_idle()
    _signal_group(process, "SIGKILL")
    output.join_idle()
    exited.set()
    return process.wait()


def end_like(status: int) -> None:
    """End this process as another one has ended.

    Args:
        status: The exit status, or the negative number of a signal.
    """
    if status < 0 and os.name == "posix":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the server has left its own dump
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    if status:
        raise SystemExit(status if status > 0 else 128 - status)


class _Recorder:
    """What records one direction, line by line."""

    def __init__(self, writer: McplogWriter, lock: threading.Lock, direction: Direction) -> None:
        self._writer, self._lock, self._direction = writer, lock, direction
        self._lines = LineSplitter(DEFAULT.incoming)

    def feed(self, chunk: bytes) -> None:
        """Record the lines that a chunk completes. An empty chunk is the end."""
        for line in self._lines.feed(chunk) if chunk else (self._lines.rest(),):
            with self._lock:
                if isinstance(line, bytes):
                    if line:
                        self._writer.message(self._direction, line, time.time())
                else:
                    reason = f"longer than {DEFAULT.incoming // MIB} MiB; only its start is known"
                    self._writer.lost(
                        {"direction": self._direction, "reason": reason, "data": line.head}
                    )


class _Stream:
    """One direction: a thread that reads, records and writes."""

    def __init__(self, recorder: _Recorder, source: int, sink: int) -> None:
        self._recorder, self._source, self._sink = recorder, source, sink
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._reading_since: float | None = None
        self._ended: Callable[[], None] | None = None

    def start(self, ended: Callable[[], None] | None = None) -> None:
        """Start copying, and call `ended` afterwards."""
        self._ended = ended
        self._thread.start()

    def join_idle(self) -> None:
        """Wait until the stream has ended, or has had nothing to read since this call."""
        began = time.monotonic()
        while self._thread.is_alive():
            since = self._reading_since
            # A read that began long ago may be about to return what the server wrote last.
            if since is not None and time.monotonic() - max(since, began) > IDLE_SECONDS:
                return
            self._thread.join(0.02)

    def _copy(self) -> None:
        try:
            while chunk := self._read():
                self._recorder.feed(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(self._sink, view) :]
        except OSError:  # one of the two has gone
            pass
        self._recorder.feed(b"")
        for descriptor in (self._source, self._sink):
            _close(descriptor)
        if self._ended is not None:
            self._ended()

    def _read(self) -> bytes:
        self._reading_since = time.monotonic()
        chunk = os.read(self._source, CHUNK_BYTES)
        self._reading_since = None
        return chunk


def _claim_streams() -> tuple[int, int]:
    """Take stdin and stdout, so that nothing else reads from or writes to them."""
    host_in, host_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return host_in, host_out


def _start(command: ServerCommand) -> "subprocess.Popen[bytes]":
    options: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {}
    if sys.platform == "linux":
        options["preexec_fn"] = _die_with_parent()
    try:
        return subprocess.Popen(
            command.argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | command.env,
            cwd=command.cwd,
            **options,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        where = f" in {command.cwd}" if command.cwd else ""
        raise ConnectFailed(f"Could not start {command.argv[0]!r}{where}: {why}") from None


def _die_with_parent() -> Callable[[], Any] | None:
    """Return a function that asks the kernel to kill a process as soon as its parent is killed."""
    try:
        import ctypes

        set_death_signal: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):  # an unusual C library
        return None
    return partial(set_death_signal, 1, signal.SIGKILL)


def _wait(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the server exits. Its id stays taken, so that its group can still be killed."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()


def _pass_on(process: "subprocess.Popen[bytes]", number: int, _: FrameType | None) -> None:
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        pass


def _end_with_host(
    process: "subprocess.Popen[bytes]", exited: threading.Event, host_out: int, parent: int
) -> None:
    """End the server if the host has gone. A host that has only closed its end may still want the
    last replies, and may end the server itself."""
    while not _is_gone(host_out, parent):
        if exited.wait(CHECK_SECONDS):
            return
    for name in ("SIGTERM", "SIGKILL"):
        if exited.wait(DEFAULT.shutdown):
            return
        _signal_group(process, name)


def _is_gone(host_out: int, parent: int) -> bool:
    """Return whether the host is no longer there to read, or to end the server."""
    if sys.platform == "win32":
        return True
    if os.getppid() != parent:
        return True
    import select

    poll = select.poll()
    poll.register(host_out, 0)
    return any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0))


def _signal_group(process: "subprocess.Popen[bytes]", name: str) -> None:
    try:
        if os.name == "posix":
            os.killpg(process.pid, getattr(signal, name))
        else:
            process.kill()
    except (ProcessLookupError, PermissionError):
        pass


def _detach(pipe: IO[bytes]) -> int:
    """Return a descriptor for a pipe that only its stream closes."""
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass
