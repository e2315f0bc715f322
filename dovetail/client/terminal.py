"""A ready-made `on_elicit` for a person at a terminal: `Client(target, on_elicit=terminal_elicit())`.

What is said is decided elsewhere (`dialogue.py`). Here lines are moved: shown, and read without holding up the event loop,
one question at a time, with Ctrl-C for "cancel" while a question is open. A page is opened only after it was agreed to, and
nothing is fetched before. Where there is no terminal nobody is asked: the answer is no, or the form's defaults.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from ..protocol.elicitation import ElicitResult
from .callbacks import ElicitRequest
from .dialogue import Dialogue, dialogue, unattended

__all__ = ["terminal_elicit"]


class _Interrupted(Exception):
    """The person pressed Ctrl-C."""


def terminal_elicit(
    stream_in: TextIO | None = None,
    stream_out: TextIO | None = None,
    *,
    defaults: bool = False,
    open_url: Callable[[str], Any] | None = None,
) -> Callable[[ElicitRequest], Awaitable[ElicitResult]]:
    """Asks the person at the terminal (stdin and stderr); where there is none, the answer is no, or the `defaults`."""
    turn = asyncio.Lock()  # one question at a time, however many a server asks at once

    async def elicit(request: ElicitRequest) -> ElicitResult:
        source, screen = stream_in or sys.stdin, stream_out or sys.stderr
        if not (_is_terminal(source) and _is_terminal(screen)):
            return unattended(request, defaults)
        async with turn:
            answer = await _held(dialogue(request), source, screen)
            if request.mode == "url" and answer.action == "accept":
                opened = await asyncio.to_thread(open_url or _browse, request.url or "")
                if opened is False:
                    _show(screen, "No browser could be started: open the URL yourself.\n")
        return answer

    return elicit


def _browse(url: str) -> bool:
    import webbrowser

    return webbrowser.open(url)


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream is not None and stream.isatty())
    except ValueError:  # it is closed
        return False


async def _held(talk: Dialogue, source: TextIO, screen: TextIO) -> ElicitResult:
    """Carry a dialogue out."""
    line: str | None = None
    try:
        with _interruptible() as interrupted:
            text = next(talk)
            while True:
                _show(screen, text)
                line = await _typed(source, interrupted)
                text = talk.send(line)
    except StopIteration as end:
        if line is None:
            _show(screen, "\n")  # the cursor still stands behind the question
        return end.value  # type: ignore[no-any-return]
    except _Interrupted:
        _show(screen, "\n")
        return ElicitResult(action="cancel")
    finally:
        talk.close()


def _show(screen: TextIO, text: str) -> None:
    encoding = screen.encoding or "utf-8"
    screen.write(text.encode(encoding, "backslashreplace").decode(encoding))
    screen.flush()


async def _typed(source: TextIO, interrupted: "asyncio.Future[None]") -> str | None:
    """The next line; None at the end of input."""
    line: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    either: set[asyncio.Future[Any]] = {line, interrupted}
    with _listening(source, line):
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if interrupted.done():
        raise _Interrupted
    return line.result() or None


@contextmanager
def _listening(source: TextIO, line: "asyncio.Future[str]") -> Iterator[None]:
    """Have the next line set: by the event loop where it can watch the terminal, else by a thread that may be left alone."""
    loop = line.get_loop()

    def settle(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read(get: Callable[[], str]) -> str:
        try:
            return get()
        except (OSError, ValueError):  # it is gone, or closed
            return ""

    def ready() -> None:
        loop.remove_reader(number)  # a terminal gives one line at a time; the next is for the next question
        settle(read(lambda: os.read(number, 1 << 16).decode(errors="replace")))

    try:
        number = source.fileno()
        loop.add_reader(number, ready)
    except (OSError, ValueError, NotImplementedError):
        waiting = threading.Thread(
            target=lambda: loop.call_soon_threadsafe(settle, read(source.readline)), daemon=True, name="dovetail-terminal"
        )
        waiting.start()
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(number)


@contextmanager
def _interruptible() -> Iterator["asyncio.Future[None]"]:
    """Let Ctrl-C mean this question while it is open, and afterwards what it meant before."""
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[None] = loop.create_future()

    def interrupt() -> None:
        if not interrupted.done():
            interrupted.set_result(None)

    try:
        before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(interrupt))
    except ValueError:  # only the main thread hears signals
        yield interrupted
        return
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
