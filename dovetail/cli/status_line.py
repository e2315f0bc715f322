"""What a server says besides its answer: how far it has come, log messages, its stderr. All of it
goes to our stderr.

On a terminal, progress is one line that is drawn over and over and wiped at the end. Elsewhere
nothing is shown, unless `--verbose` asks for it: then each update, log message and line of the
server's stderr is a line of ours that says whose words it is, so that no server can speak in our
name.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..text import escape_unsafe
from .output import print_error

if TYPE_CHECKING:
    from ..protocol.lifecycle import ProgressParams
    from ..protocol.utilities import LogParams

MAX_BAR_COLUMNS = 24
"""Columns of the bar itself, at most."""


class StatusLine:
    """The listener that a conversation is opened with."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._verbose = options.verbose
        self._bar = not options.json and sys.stderr.isatty()
        self._drawn = 0
        self._pauses = 0

    def on_progress(self, update: "ProgressParams") -> None:
        """A call has come further."""
        if self._bar:
            if not self._pauses:
                self._draw(update)
        elif self._verbose:
            self.print_from("progress", " ".join(filter(None, (_count(update), update.message))))

    def on_log(self, entry: "LogParams") -> None:
        """The server logs something."""
        text = entry.data if isinstance(entry.data, str) else _json(entry.data)
        self.print_from(entry.level, f"{entry.logger}: {text}" if entry.logger else text)

    def on_stderr(self, line: str) -> None:
        """The server wrote to its stderr."""
        if self._verbose:
            self.print_from("server", line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No bar for as long as this lasts: a question stands where it was."""
        self.clear()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    def clear(self) -> None:
        """Wipe the bar."""
        if self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
            self._drawn = 0

    def print_from(self, source: str, text: str) -> None:
        """Print what somebody says, line by line under their name."""
        self.clear()
        for line in escape_unsafe(text, keep_newlines=True).split("\n"):
            print_error(f"{source}: {line}")

    def _draw(self, update: "ProgressParams") -> None:
        # The last column stays free: to fill it makes some terminals begin a new line.
        line = _clip(_line(update), _columns() - 1)
        drawn = _width(line)
        sys.stderr.write("\r" + line + " " * (self._drawn - drawn))
        sys.stderr.flush()
        self._drawn = drawn


def _line(update: "ProgressParams") -> str:
    message = escape_unsafe((update.message or "").replace("\t", " "))
    if not update.total or update.total <= 0:
        return f"{_count(update)}  {message}".strip()
    share = min(1.0, max(0.0, update.progress / update.total))
    width = min(MAX_BAR_COLUMNS, _columns() // 3)
    filled = int(share * width)
    full, empty = "█░" if "utf" in sys.stderr.encoding.lower() else "#."
    return f"{full * filled}{empty * (width - filled)} {share:4.0%}  {message}".rstrip()


def _count(update: "ProgressParams") -> str:
    """How far it is; a task says that in words, and its updates are merely counted."""
    from ..protocol.tasks import RELATED_TASK

    if update.total is None and update.message and RELATED_TASK in (update.meta or {}):
        return ""
    return (
        f"{update.progress:g}" if update.total is None else f"{update.progress:g}/{update.total:g}"
    )


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _columns() -> int:
    """The width of the terminal behind stderr; stdout may be a pipe."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    return columns or shutil.get_terminal_size().columns


def _width(text: str) -> int:
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _clip(text: str, columns: int) -> str:
    text = text[:columns]
    while _width(text) > columns:
        text = text[:-1]
    return text
