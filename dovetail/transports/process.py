"""The client's side of stdio: a server started as a child process, its pipes as a `Channel`.

**Reading.** Each turn of the loop takes one bounded chunk from each pipe: a flood of stderr cannot
starve the answers. The output is read whatever waits to be written, for a server that answers one
request before it reads the next would otherwise wait for us while we wait for it.

**Writing.** What is sent in one turn of the loop goes out in one write; what the pipe does not take
follows when there is room. `drain` is where a sender waits.

**The end.** Three things end, in any order: the output, stderr and the process itself. When all
have, `ended` hears how it came, with the last words from stderr. When only some have (a helper of
the dead server holds its pipes, a live server closed its output), the others are given a short
grace.

**Closing** is a ladder of timers: stdin is closed, then the whole process group gets TERM, then
KILL. Waiting for it is apart from doing it, so it does not matter who waits, how many they are, or
whether they are cancelled. One finalizer does the last cleaning, be it after the end, for a process
that was forgotten, or when the interpreter exits: it kills what is left of the group, reaps the
leader and closes the pipes.

How pipes are moved, exits noticed and groups killed is the system's business: `_posix.py` and
`_windows.py` have the same names for it.
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

if sys.platform == "win32":
    from . import _windows as system
else:
    from . import _posix as system

GRACE = 0.25
"""Seconds between the first sign of an end and the end, if the other signs do not come."""
TAIL = 8 * KIB
"""How much of stderr is kept for last words; also the longest line of it."""

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
    errno.EACCES: "make it executable (`chmod +x`), or put its interpreter in front",
    errno.ENOEXEC: "give the script a `#!` line, or put its interpreter in front",
    errno.EMFILE: "close some connections, or raise the limit (`ulimit -n`)",
}


def safe_environment() -> dict[str, str]:
    """What a server gets of our environment: who and where it is, and none of our secrets."""
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
) -> "ProcessChannel":
    """Start `command` in a safe environment plus `env`. The lines of its stderr go to `on_stderr`,
    or else to ours."""
    words = list(command)
    shown = _shown(words)
    environment = safe_environment() | {
        system.variable(name): value for name, value in (env or {}).items()
    }
    try:
        popen = _popen(words, environment, cwd)
    except (OSError, ValueError, IndexError) as error:
        raise ConnectFailed(
            f"could not start `{shown}`: {_why_not(words, environment, cwd, error)}"
        ) from None
    return ProcessChannel(popen, shown, limits, on_stderr or _echo)


class ProcessChannel:
    """A running server as a Channel; `command` is its command line, for messages."""

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
        self._alive = {"output", "stderr", "process"}
        self._grace: asyncio.TimerHandle | None = None
        self._ladder: list[asyncio.TimerHandle] = []
        self._stops: list[Callable[[], Any]] = []
        self._asked = self._told = False
        self._done = asyncio.Event()
        self._family = system.ProcessGroup(popen)
        self._writer = system.PipeWriter(
            self._loop, popen.stdin, limits.write_buffer, partial(self._gone, "input")
        )
        # The finalizer must not know `self`, or `self` would never be forgotten.
        self._release = weakref.finalize(self, _release, popen, self._family, os.getpid())

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Begin to deliver what the server says."""
        assert self._popen.stdout and self._popen.stderr
        self._started, self._receive, self._ended = True, receive, ended
        self._stops = [
            system.read(self._loop, self._popen.stdout, self._on_output),
            system.read(self._loop, self._popen.stderr, self._on_stderr),
            self._family.watch(self._loop, partial(self._gone, "process")),
        ]

    def send(self, data: bytes) -> None:
        """Queue one message; all of one turn of the loop go out together."""
        self._writer.send(data)

    async def drain(self) -> None:
        """Wait until no more than `limits.write_buffer` waits to be written."""
        await self._writer.room.wait()

    async def close(self) -> None:
        """Send what is queued, close stdin, and see to it that the server ends with all its
        helpers."""
        if self._loop.is_closed():
            self._release()
        elif not self._done.is_set():
            if not self._started:
                self.start(_ignore, _ignore)
            self._asked = True
            self._shut()
            await self._done.wait()

    def _shut(self) -> None:
        if not self._ladder:
            self._writer.close()
            later, wait = self._loop.call_later, self._limits.shutdown
            self._ladder = [
                later(1 * wait, self._family.terminate),
                later(2 * wait, self._family.kill),
                later(
                    3 * wait, self._gone, "process"
                ),  # not even KILL ends one that hangs in the kernel
            ]

    def _on_output(self, chunk: bytes) -> None:
        for line in self._lines.feed(chunk) if chunk else (self._lines.rest(),):
            if line and not self._told:
                self._receive(line)
        if not chunk:
            self._gone("output")

    def _on_stderr(self, chunk: bytes) -> None:
        self._stderr.feed(chunk)
        if not chunk:
            self._gone("stderr")

    def _gone(self, part: str) -> None:
        """Output, stderr, process or input is no more; stderr alone means nothing."""
        self._alive.discard(part)
        if not self._alive:
            self._finish()
        elif part != "stderr" and self._grace is None and not self._done.is_set():
            self._grace = self._loop.call_later(GRACE, self._finish)

    def _finish(self) -> None:
        """Clean up after a process that has ended, or see to its end; then say so."""
        if self._done.is_set():
            return
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if "process" in self._alive:
            self._shut()
        else:
            for stop in (*self._stops, *(rung.cancel for rung in self._ladder)):
                stop()
            self._writer.abort()
            self._release()
            self._done.set()
        if not self._told:
            self._told = True
            self._ended(
                None
                if self._asked
                else ConnectionClosed(f"`{self.command}` {self._how()}{self._stderr.words()}")
            )

    def _how(self) -> str:
        if "process" in self._alive:
            return "closed its input" if "output" in self._alive else "closed its output"
        code = self._popen.returncode
        if code >= 0:
            return f"exited with code {code}"
        return f"was killed by {SIGNALS.get(-code, f'signal {-code}')}"


def _ignore(_: object) -> None:
    pass


def _popen(
    words: list[str], environment: dict[str, str], cwd: str | Path | None
) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    command = system.resolve(words, environment.get("PATH"))
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


def _release(popen: "subprocess.Popen[bytes]", family: system.ProcessGroup, owner: int) -> None:
    """The last thing that is done for a process; what a fork of ours inherited is not its to
    kill."""
    if os.getpid() == owner:
        family.kill()
        try:
            popen.wait(timeout=1)
        except subprocess.TimeoutExpired:
            pass
        family.release()


class _StderrReader:
    """What a server says on the side: passed on line by line, the tail kept for its last words."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hear: Callable[[str], None]) -> None:
        self._loop, self._hear = loop, hear
        self._tail = self._line = b""

    def feed(self, chunk: bytes) -> None:
        """Take a chunk, or an empty one at the end."""
        self._tail = (self._tail + chunk)[-TAIL:]
        *lines, self._line = (self._line + chunk).split(b"\n")
        if len(self._line) > TAIL or (self._line and not chunk):
            lines.append(self._line)
            self._line = b""
        for line in lines:
            try:
                self._hear(line.decode(errors="replace").rstrip("\r"))
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "on_stderr failed", "exception": error}
                )

    def words(self) -> str:
        """The tail as the end of a sentence, from the first line that is whole."""
        text = self._tail.decode(errors="replace").strip()
        if len(self._tail) == TAIL and "\n" in text:
            text = text.partition("\n")[2]
        space = "\n" if "\n" in text else " "
        return f"; its last words:{space}{text}" if text else ""


def _echo(line: str) -> None:
    """Write to our stderr as if the server had inherited it, but never wait: what does not go at
    once is dropped."""
    try:
        system.write_now(sys.stderr.fileno(), f"{line}\n".encode(errors="replace"))
    except (
        AttributeError,
        io.UnsupportedOperation,
    ):  # there is none, or something else took its place
        if sys.stderr is not None:
            sys.stderr.write(f"{line}\n")
    except (OSError, ValueError):  # it is closed
        pass


def _shown(words: Sequence[str]) -> str:
    text = " ".join(shlex.join(words).split())
    return text if len(text) <= 120 else f"{text[:119]}…"


def _why_not(
    words: Sequence[str], environment: Mapping[str, str], cwd: str | Path | None, error: Exception
) -> str:
    if not words:
        return "the command is empty; give at least the name of a program"
    if not isinstance(error, OSError):
        return str(error)
    why = (error.strerror or str(error)).lower()
    if cwd is not None and (error.filename == str(cwd) or not os.path.isdir(cwd)):
        return (
            f"the working directory {str(cwd)!r} cannot be entered ({why}); create it, or "
            "change `cwd`"
        )
    if not isinstance(error, FileNotFoundError):
        return f"{why}; {REMEDIES[error.errno]}" if error.errno in REMEDIES else why
    name, path = words[0], environment.get("PATH", "")
    if os.path.dirname(name):
        found, where = (
            shutil.which(os.path.join(cwd or "", name)),
            f"looked for in {str(cwd or os.getcwd())!r}",
        )
    else:
        found, where = shutil.which(name, path=path), f"looked up in PATH={path}"
    if found:
        return (
            f"the interpreter in the first line of {found!r} does not exist; install it, "
            "or change the line"
        )
    address = re.match(r"[\w.-]+:\d+(/|$)", name)
    hint = f"; a URL begins with a scheme: http://{name}" if address else ""
    return f"{why} ({name!r} was {where}); install it, or give its full path{hint}"
