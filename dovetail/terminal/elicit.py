"""A ready-made `on_elicit` for a person at a terminal: `Client(target,
on_elicit=terminal_elicit())`.

`form_dialog.py` contains the dialogs. This module performs their I/O: it shows the text and reads
the answers without blocking the event loop, one question at a time. Ctrl-C cancels the open
question. A page is opened only after the user agrees, and nothing is fetched before that. The
answer is sent when the user returns from the page. Without a terminal, a question is declined, or a
form is answered with its defaults.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO
from weakref import WeakKeyDictionary

from ..aio import run_in_daemon_thread
from ..net import open_in_browser
from ..protocol.client_features import ElicitResult
from ..text import escape_unsafe
from .form_dialog import Dialog, KeyPrompt, answer_unattended, elicit_dialog, return_dialog

if TYPE_CHECKING:
    from ..client.callbacks import ElicitRequest

END_OF_INPUT = "\x04"
"""The character that Ctrl-D sends if keys are read one by one."""
_readers: "WeakKeyDictionary[TextIO, Future[str]]" = WeakKeyDictionary()
"""The threads that wait for a line, by the stream they read."""


class _Interrupted(Exception):
    pass


def terminal_elicit(
    stream_in: TextIO | None = None,
    stream_out: TextIO | None = None,
    *,
    defaults: bool = False,
    open_url: Callable[[str], Any] | None = None,
) -> "Callable[[ElicitRequest], Awaitable[ElicitResult]]":
    """Return an `on_elicit` callback that asks the person at the terminal.

    Args:
        stream_in: The stream from which answers are read (default: stdin).
        stream_out: The stream on which questions are shown (default: stderr).
        defaults: Whether to accept a form with its defaults if there is no terminal. If False, the
            form is declined.
        open_url: A function that opens a page and returns False if it fails (default: open the
            system's browser).
    """
    turn = asyncio.Lock()  # one question at a time

    async def elicit(request: "ElicitRequest") -> ElicitResult:
        source, screen = stream_in or sys.stdin, stream_out or sys.stderr
        if not (_is_terminal(source) and _is_terminal(screen)):
            return answer_unattended(request, defaults)
        async with turn:
            answer = await _run_dialog(elicit_dialog(request), source, screen)
            if request.mode == "url" and answer.action == "accept":
                opened = await asyncio.to_thread(open_url or open_in_browser, request.url or "")
                if opened is False:
                    _write(screen, "Could not open a browser. Open the URL yourself.\n")
                answer = await _run_dialog(return_dialog(), source, screen)
        return answer

    return elicit


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream is not None and stream.isatty())
    except ValueError:  # the stream is closed
        return False


async def _run_dialog(talk: Dialog, source: TextIO, screen: TextIO) -> ElicitResult:
    line: str | None = None
    try:
        with _catch_ctrl_c() as interrupted:
            text = next(talk)
            while True:
                with _single_key(source, text) as one_key:
                    _write(screen, text)
                    line = await _read_line(source, interrupted)
                if one_key and line is not None:
                    line = None if line.startswith(END_OF_INPUT) else line[:1]
                    _write(screen, f"{escape_unsafe(line.strip())}\n" if line else "")
                text = talk.send(line)
    except StopIteration as end:
        if line is None:
            _write(screen, "\n")  # the cursor is still on the line of the question
        return end.value  # type: ignore[no-any-return]
    except _Interrupted:
        _write(screen, "\n")
        return ElicitResult(action="cancel")
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
    termios.tcsetattr(number, termios.TCSADRAIN, changed)
    try:
        yield True
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _write(screen: TextIO, text: str) -> None:
    encoding = screen.encoding or "utf-8"
    screen.write(text.encode(encoding, "backslashreplace").decode(encoding))
    screen.flush()


async def _read_line(source: TextIO, interrupted: "asyncio.Future[None]") -> str | None:
    """Return the next line; None at the end of input."""
    with _watch_line(source) as line:
        either: set[asyncio.Future[Any]] = {line, interrupted}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if interrupted.done():
            raise _Interrupted
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
