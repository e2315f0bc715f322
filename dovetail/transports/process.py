"""The client side of stdio: a server that runs as a child process, with its pipes as a `Channel`.

**Reading.** Each loop iteration reads one limited chunk from each pipe, so a flood on stderr cannot
starve the responses. Output is read even while messages are waiting to be written. A server may
write a response before it reads the next request, so if reading paused, both sides would wait for
each other.

**Writing.** The messages from one loop iteration are sent in one write. If the pipe does not accept
all of them, the rest is written when the pipe has room. Senders wait in `drain`.

**The end.** The output, stderr and the process itself may end in any order. When the last of them
has ended, `ended` is called with the reason, which includes the last lines of stderr. If only some
of them have ended, the others have a short grace period: a dead server's helper process may still
hold its pipes, or a live server may have closed its output.

**Closing** is a sequence of timed steps: stdin is closed, then the whole process group receives
SIGTERM, then SIGKILL. The sequence continues even if the tasks that wait for it are cancelled. A
finalizer kills the rest of the group, reaps the leader and closes the pipes. The finalizer runs
after the channel has ended, when the channel is garbage-collected, or when the interpreter exits.
A process that ends without its exit handlers calls `kill_servers` first.

`_posix.py` and `_windows.py` contain the platform-specific code, under the same names.
"""

import asyncio
import errno
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ConnectFailed, ConnectionClosed
from ..jsonrpc.framing import LineSplitter
from ..limits import DEFAULT, KIB, Limits
from ..ports import PIPE, OnClose, Receive
from ..text import escape_unsafe

if sys.platform == "win32":
    from . import _windows as system
else:
    from . import _posix as system

GRACE_SECONDS = 0.25
"""How long the other parts may continue after the output or the process has ended."""
STDERR_TAIL_BYTES = 8 * KIB
"""The number of bytes of stderr that are kept for error messages, and the maximum length of a
stderr line."""

INHERITED = system.INHERITED | {
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "TMP",
    "TEMP",
}
INHERITED_PREFIXES = ("LC_", "XDG_")

SIGNALS = {number.value: number.name for number in signal.Signals}
REMEDIES = {
    errno.EACCES: "make it executable (`chmod +x`), or start it with its interpreter",
    errno.ENOEXEC: "add a `#!` line to the script, or start it with its interpreter",
    errno.EMFILE: "close some connections, or raise the limit (`ulimit -n`)",
}


def safe_environment() -> dict[str, str]:
    """Return the environment variables that a server inherits, which are user and system settings
    without secrets."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in INHERITED or name.startswith(INHERITED_PREFIXES))
        and not value.startswith("()")  # a shell function
    }


async def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    limits: Limits = DEFAULT,
    on_stderr: Callable[[str], None] | None = None,
    name: str | None = None,
) -> "ProcessChannel":
    """Start a server in a safe environment plus the variables in `env`.

    Each line that the server writes to stderr is passed to `on_stderr` (default: copied to this
    process's stderr). Messages refer to the server by `name` (default: its command line).
    """
    argv = list(command)
    shown = name or _command_line(argv)
    environment = safe_environment() | {
        system.variable(name): value for name, value in (env or {}).items()
    }
    try:
        popen = _popen(argv, environment, cwd)
    except (OSError, ValueError, IndexError) as error:
        raise ConnectFailed(
            f"Could not start `{shown}`: {_explain_failure(argv, environment, cwd, error)}"
        ) from None
    return ProcessChannel(popen, shown, limits, on_stderr or _echo)


class ProcessChannel:
    """A running server process. `command` is the server's command line, as shown in messages."""

    network = PIPE

    def __init__(
        self,
        popen: "subprocess.Popen[bytes]",
        command: str,
        limits: Limits,
        on_stderr: Callable[[str], None],
    ) -> None:
        assert popen.stdin
        self.pid, self.command = popen.pid, command
        self._popen, self._limits = popen, limits
        self._loop = asyncio.get_running_loop()
        self._lines = LineSplitter(limits.incoming)
        self._stderr = _StderrReader(self._loop, on_stderr)
        self._receive: Receive = _ignore
        self._ended: OnClose = _ignore
        self._started = False
        self._running = {"output", "stderr", "process"}
        self._grace: asyncio.TimerHandle | None = None
        self._shutdown_timers: list[asyncio.TimerHandle] = []
        self._stops: list[Callable[[], Any]] = []
        self._is_closing = self._has_ended = False
        self.died_unread = False
        """Whether the server ended before it had read everything that was sent to it, if known."""
        self._done = asyncio.Event()
        self._group = system.ProcessGroup(popen)
        self._writer = system.PipeWriter(
            self._loop, popen.stdin, limits.write_buffer, partial(self._part_ended, "input")
        )
        _groups[popen.pid] = self._group, os.getpid()
        # The finalizer must not reference `self`, or the channel would never be garbage-collected.
        self._release = weakref.finalize(self, _release, popen, self._group, os.getpid())

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Start delivering the server's messages."""
        assert self._popen.stdout and self._popen.stderr
        self._started, self._receive, self._ended = True, receive, ended
        self._stops = [
            system.read(self._loop, self._popen.stdout, self._on_output),
            system.read(self._loop, self._popen.stderr, self._on_stderr),
            self._group.watch(self._loop, partial(self._part_ended, "process")),
        ]

    def send(self, data: bytes) -> None:
        """Queue one message. All messages from one loop iteration are sent together."""
        self._writer.send(data)

    async def drain(self) -> None:
        """Wait until at most `Limits.write_buffer` bytes are queued."""
        await self._writer.room.wait()

    async def close(self) -> None:
        """Write the queued messages, close stdin, and make sure that the server and its helper
        processes exit."""
        if self._loop.is_closed():
            self._release()
        elif not self._done.is_set():
            if not self._started:
                self.start(_ignore, _ignore)
            self._is_closing = True
            self._begin_shutdown()
            await self._done.wait()

    def last_lines(self) -> str:
        """Return the last lines of stderr to append to an error message, or "" if stderr is
        empty."""
        return self._stderr.last_lines()

    def _begin_shutdown(self) -> None:
        if not self._shutdown_timers:
            self._writer.close()
            later, wait = self._loop.call_later, self._limits.shutdown
            self._shutdown_timers = [
                later(1 * wait, self._group.terminate),
                later(2 * wait, self._group.kill),
                # Even SIGKILL does not end a process that hangs in the kernel.
                later(3 * wait, self._part_ended, "process"),
            ]

    def _on_output(self, chunk: bytes) -> None:
        for line in self._lines.feed(chunk) if chunk else (self._lines.rest(),):
            if line and not self._has_ended:
                self._receive(line)
        if not chunk:
            self._part_ended("output")

    def _on_stderr(self, chunk: bytes) -> None:
        self._stderr.feed(chunk)
        if not chunk:
            self._part_ended("stderr")

    def _part_ended(self, part: str) -> None:
        """Record that the output, stderr, the process or the input has ended. The end of stderr
        alone does not start the grace period."""
        self._running.discard(part)
        if not self._running:
            self._finish()
        elif part != "stderr" and self._grace is None and not self._done.is_set():
            self._grace = self._loop.call_later(GRACE_SECONDS, self._finish)

    def _finish(self) -> None:
        """Clean up after the process or begin its shutdown, and report the end."""
        if self._done.is_set():
            return
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if "process" in self._running:
            self._begin_shutdown()
        else:
            assert self._popen.stdin
            self.died_unread = system.has_unread(self._popen.stdin)
            for stop in (*self._stops, *(timer.cancel for timer in self._shutdown_timers)):
                stop()
            self._writer.abort()
            self._release()
            self._done.set()
        if not self._has_ended:
            self._has_ended = True
            self._ended(
                None
                if self._is_closing
                else ConnectionClosed(
                    f"`{self.command}` {self._describe_end()}{self._stderr.last_lines()}"
                )
            )

    def _describe_end(self) -> str:
        if "process" in self._running:
            return "closed its input" if "output" in self._running else "closed its output"
        code = self._popen.returncode
        if code >= 0:
            return f"exited with code {code}"
        return f"was killed by {SIGNALS.get(-code, f'signal {-code}')}"


def _ignore(_: object) -> None:
    pass


def _popen(
    argv: list[str], environment: dict[str, str], cwd: str | Path | None
) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    command = system.resolve(argv, environment.get("PATH"))
    return subprocess.Popen(
        command,
        bufsize=0,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=cwd,
        env=environment,
        **system.OPTIONS,
    )


def _release(popen: "subprocess.Popen[bytes]", group: system.ProcessGroup, owner: int) -> None:
    """Kill the rest of the group and close the pipes, except in a fork of the owner."""
    _groups.pop(popen.pid, None)  # once the process is reaped, another one may get its id
    if os.getpid() == owner:
        group.kill()
        try:
            popen.wait(timeout=1)
        except subprocess.TimeoutExpired:
            pass
        group.release()


_groups: dict[int, tuple[system.ProcessGroup, int]] = {}
"""The running servers by pid, with the pid of the process that started them."""


def kill_servers() -> None:
    """Kill all servers that this process has started. This function may be called in a signal
    handler, and in any thread."""
    for group, owner in list(_groups.values()):
        if owner == os.getpid():
            group.kill()


class _StderrReader:
    """A reader that passes on a server's stderr line by line and keeps its tail for error
    messages."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_line: Callable[[str], None]) -> None:
        self._loop, self._on_line = loop, on_line
        self._tail = self._line = b""

    def feed(self, chunk: bytes) -> None:
        """Process a chunk. An empty chunk marks the end of stderr."""
        self._tail = (self._tail + chunk)[-STDERR_TAIL_BYTES:]
        *lines, self._line = (self._line + chunk).split(b"\n")
        if len(self._line) > STDERR_TAIL_BYTES or (self._line and not chunk):
            lines.append(self._line)
            self._line = b""
        for line in lines:
            try:
                self._on_line(line.decode(errors="replace").rstrip("\r"))
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "on_stderr failed", "exception": error}
                )

    def last_lines(self) -> str:
        """Return the tail, starting at its first complete line, to append to an error message."""
        text = self._tail.decode(errors="replace").strip()
        if len(self._tail) == STDERR_TAIL_BYTES and "\n" in text:
            text = text.partition("\n")[2]
        space = "\n" if "\n" in text else " "
        return f"; last lines of stderr:{space}{text}" if text else ""


def _echo(line: str) -> None:
    """Write to stderr as if the server had inherited it, but without blocking and without control
    over a terminal, on which the user may be asked for consent. Text that cannot be written
    immediately is dropped."""
    try:
        descriptor = sys.stderr.fileno()
        text = escape_unsafe(line, keep_newlines=True) if os.isatty(descriptor) else line
        system.write_now(descriptor, f"{text}\n".encode(errors="replace"))
    except (AttributeError, io.UnsupportedOperation):  # stderr is missing, or was replaced
        if sys.stderr is not None:
            sys.stderr.write(f"{line}\n")
    except (OSError, ValueError):  # stderr is closed
        pass


def _command_line(argv: Sequence[str]) -> str:
    text = " ".join(shlex.join(argv).split())
    return text if len(text) <= 120 else f"{text[:40]}…{text[-79:]}"  # the end names the file


def _explain_failure(
    argv: Sequence[str], environment: Mapping[str, str], cwd: str | Path | None, error: Exception
) -> str:
    if not argv:
        return "the command is empty. Pass at least the name of a program."
    if not isinstance(error, OSError):
        return str(error)
    why = (error.strerror or str(error)).lower()
    if cwd is not None and (error.filename == str(cwd) or not os.path.isdir(cwd)):
        return (
            f"the working directory {str(cwd)!r} is not accessible ({why}). Create it, or "
            "change `cwd`."
        )
    if isinstance(error, PermissionError | FileNotFoundError) and os.path.isdir(
        os.path.join(cwd or "", argv[0])
    ):
        return "it is a directory. Name a file in it, or a command."
    if not isinstance(error, FileNotFoundError):
        remedy = REMEDIES.get(error.errno or 0)
        return f"{why}; {remedy}" if remedy else why
    name, path = argv[0], environment.get("PATH", "")
    if os.path.dirname(name):
        found, where = (
            shutil.which(os.path.join(cwd or "", name)),
            f"not found in {str(cwd or os.getcwd())!r}",
        )
    else:
        found, where = shutil.which(name, path=path), "not found in PATH"
    if found:
        return (
            f"the interpreter in the first line of {found!r} does not exist. Install it, "
            "or change that line."
        )
    address = re.match(r"[\w.-]+:\d+(/|$)", name)
    hint = f" If it is a URL, add its scheme: http://{name}." if address else ""
    return f"{why} ({name!r} was {where}). Install it, or use its full path.{hint}"
