"""What a server reports besides its answer: progress, log messages, its stderr. All of it goes to
our stderr.

On a terminal, progress is a single line that is redrawn and finally cleared. Otherwise nothing is
shown unless `--verbose` is given: then each progress update, log message and line of the server's
stderr becomes a line that names its source, so that a server cannot print in our name.
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


class StatusLine:
    """The callbacks for progress, logs and stderr that a client is given."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._verbose = options.verbose
        self._bar = not options.json and sys.stderr.isatty()
        self._drawn_columns = 0
        self._pauses = 0

    def on_progress(self, update: "ProgressParams") -> None:
        if self._bar:
            if not self._pauses:
                self._draw(update)
        elif self._verbose:
            count = _format_count(update)
            self.print_from("progress", " ".join(filter(None, (count, update.message))))

    def on_log(self, entry: "LogParams") -> None:
        text = entry.data if isinstance(entry.data, str) else _to_json(entry.data)
        self.print_from(entry.level, f"{entry.logger}: {text}" if entry.logger else text)

    def on_stderr(self, line: str) -> None:
        if self._verbose:
            self.print_from("server", line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Draw no progress in the meantime, because a question is on the screen."""
        self.clear()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    def clear(self) -> None:
        if self._drawn_columns:
            sys.stderr.write("\r" + " " * self._drawn_columns + "\r")
            sys.stderr.flush()
            self._drawn_columns = 0

    def print_from(self, source: str, text: str) -> None:
        """Print text to stderr, each line prefixed with its source."""
        self.clear()
        for line in escape_unsafe(text, keep_newlines=True).split("\n"):
            print_error(f"{source}: {line}")

    def _draw(self, update: "ProgressParams") -> None:
        # The last column stays free: filling it makes some terminals start a new line.
        line = _clip(_format_progress(update), _terminal_columns() - 1)
        columns = _display_width(line)
        sys.stderr.write("\r" + line + " " * (self._drawn_columns - columns))
        sys.stderr.flush()
        self._drawn_columns = columns


def _format_progress(update: "ProgressParams") -> str:
    message = escape_unsafe((update.message or "").replace("\t", " "))
    if not update.total or update.total <= 0:
        return f"{_format_count(update)}  {message}".strip()
    share = min(1.0, max(0.0, update.progress / update.total))
    width = min(MAX_BAR_COLUMNS, _terminal_columns() // 3)
    filled = int(share * width)
    full, empty = "█░" if "utf" in sys.stderr.encoding.lower() else "#."
    return f"{full * filled}{empty * (width - filled)} {share:4.0%}  {message}".rstrip()


def _format_count(update: "ProgressParams") -> str:
    """Format the progress as a number. A task describes its progress in words and its updates are
    merely counted, so that count is left out."""
    from ..protocol.tasks import RELATED_TASK

    if update.total is None and update.message and RELATED_TASK in (update.meta or {}):
        return ""
    return (
        f"{update.progress:g}" if update.total is None else f"{update.progress:g}/{update.total:g}"
    )


def _to_json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _terminal_columns() -> int:
    """Return the width of the terminal behind stderr; stdout may be a pipe."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    return columns or shutil.get_terminal_size().columns


def _display_width(text: str) -> int:
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _clip(text: str, columns: int) -> str:
    text = text[:columns]
    while _display_width(text) > columns:
        text = text[:-1]
    return text
