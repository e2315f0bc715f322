"""Run a dialog on a terminal: show its text and read the answers without blocking the event loop.

A dialog is a generator: it yields the text to show, receives the line that was typed (None at the
end of input), and returns its result. Ctrl-C ends the open dialog only. If the question is
cancelled, for example because the server no longer waits for the answer, the dialog says so.

`open_terminal` opens the terminal of the process itself, even if stdin and stdout lead elsewhere,
as they do in a program that speaks MCP on them.
"""

import asyncio
import os
import signal
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar
from weakref import WeakKeyDictionary

from ..aio import run_in_daemon_thread
from ..text import escape_unsafe
from .prompts import KeyPrompt

T = TypeVar("T")
END_OF_INPUT = "\x04"
"""The character that Ctrl-D sends if keys are read one by one."""
_readers: "WeakKeyDictionary[TextIO, Future[str]]" = WeakKeyDictionary()
"""The threads that wait for a line, by the stream they read."""
_terminal: tuple[TextIO, TextIO] | None = None


_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()


class Interrupted(Exception):
    """The user pressed Ctrl-C."""


def terminal_turn() -> asyncio.Lock:
    """Return the lock that lets the dialogs of an event loop take turns at the terminal."""
    return _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def open_terminal() -> tuple[TextIO, TextIO] | None:
    """Return streams that read from and write to the terminal of this process; None if it has none
    or runs in the background, where reading would stop it.

    The streams stay open: a thread may still be reading from them after its question was cancelled.
    """
    global _terminal
    if _terminal is None:
        names = ("CONIN$", "CONOUT$") if os.name == "nt" else ("/dev/tty", "/dev/tty")
        try:
            source = open(names[0], encoding="utf-8", errors="replace")  # noqa: SIM115
        except OSError:
            return None
        try:
            _terminal = source, open(names[1], "w", encoding="utf-8")  # noqa: SIM115
        except OSError:
            source.close()
            return None
    if os.name == "posix":
        try:
            if os.tcgetpgrp(_terminal[0].fileno()) != os.getpgrp():
                return None
        except OSError:  # the terminal is gone
            return None
    return _terminal


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is open and leads to a terminal."""
    try:
        return bool(stream is not None and stream.isatty())
    except ValueError:  # the stream is closed
        return False


async def run_dialog(talk: Generator[str, str | None, T], source: TextIO, screen: TextIO) -> T:
    """Return the result of a dialog.

    Raises:
        Interrupted: The user pressed Ctrl-C.
    """
    line: str | None = None
    try:
        with _catch_ctrl_c() as interrupted:
            text = next(talk)
            while True:
                if getattr(text, "discard_earlier_keys", False):
                    _discard_line(source)
                with _single_key(source, text) as one_key:
                    write(screen, text)
                    line = await _read_line(source, interrupted)
                if one_key and line is not None:
                    line = None if line.startswith(END_OF_INPUT) else line[:1]
                    write(screen, f"{escape_unsafe(line.strip())}\n" if line else "")
                text = talk.send(line)
    except StopIteration as end:
        if line is None:
            write(screen, "\n")  # the cursor is still on the line of the question
        return end.value  # type: ignore[no-any-return]
    except Interrupted:
        write(screen, "\n")
        raise
    except asyncio.CancelledError:
        write(screen, "\nThis question was withdrawn.\n")
        raise
    finally:
        talk.close()


@contextmanager
def _single_key(source: TextIO, text: str) -> Iterator[bool]:
    """Let a terminal send a key without Enter, if the text asks for a single key. Ctrl-C still
    interrupts. Yield False if the terminal does not support this; the caller then reads a line."""
    if not isinstance(text, KeyPrompt):
        yield False
        return
    try:
        import termios
    except ImportError:  # Windows
        yield False
        return
    try:
        number = source.fileno()
        before = termios.tcgetattr(number)
    except (OSError, ValueError, termios.error):
        yield False
        return
    changed = [*before]
    changed[3] &= ~(termios.ICANON | termios.ECHO)
    # A key that was typed before the question was shown does not answer it.
    when = termios.TCSAFLUSH if text.discard_earlier_keys else termios.TCSADRAIN
    termios.tcsetattr(number, when, changed)
    try:
        yield True
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def write(screen: TextIO, text: str) -> None:
    """Write text to the terminal; characters that its encoding lacks become escapes."""
    encoding = screen.encoding or "utf-8"
    screen.write(text.encode(encoding, "backslashreplace").decode(encoding))
    screen.flush()


async def _read_line(source: TextIO, interrupted: "asyncio.Future[None]") -> str | None:
    """Return the next line; None at the end of input."""
    with _watch_line(source) as line:
        either: set[asyncio.Future[Any]] = {line, interrupted}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if interrupted.done():
            raise Interrupted
        try:
            return line.result() or None
        except (OSError, ValueError):  # the terminal is gone, or closed
            return None


@contextmanager
def _watch_line(source: TextIO) -> Iterator["asyncio.Future[str]"]:
    """Read the next line in the event loop if the loop can watch the terminal, and in a thread
    otherwise."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def ready() -> None:
        # a terminal gives one line at a time; later lines are for later questions
        loop.remove_reader(number)
        try:
            line.set_result(os.read(number, 1 << 16).decode(errors="replace"))
        except OSError as problem:
            line.set_exception(problem)

    try:
        number = source.fileno()
        loop.add_reader(number, ready)
    except (OSError, ValueError, NotImplementedError):
        with _line_from_thread(source) as line:
            yield line
        return
    try:
        yield line
    finally:
        loop.remove_reader(number)


def _discard_line(source: TextIO) -> None:
    """Discard the line that a thread has read for a question that was cancelled."""
    reader = _readers.get(source)
    if reader is not None and reader.done():
        del _readers[source]


@contextmanager
def _line_from_thread(source: TextIO) -> Iterator["asyncio.Future[str]"]:
    """Read a line in the only thread that reads this stream. The thread cannot be stopped, so if
    this question is cancelled, the next one receives the line."""
    reader = _readers.get(source) or run_in_daemon_thread(source.readline, "dovetail-terminal")
    _readers[source] = reader
    line = asyncio.wrap_future(reader)
    try:
        yield line
    finally:
        if line.done():
            del _readers[source]
        line.cancel()


@contextmanager
def _catch_ctrl_c() -> Iterator["asyncio.Future[None]"]:
    """Let Ctrl-C cancel this question while it is open, and restore the previous signal handler
    afterwards."""
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[None] = loop.create_future()

    def interrupt() -> None:
        if not interrupted.done():
            interrupted.set_result(None)

    try:
        before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(interrupt))
    except ValueError:  # signals reach only the main thread
        yield interrupted
        return
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
