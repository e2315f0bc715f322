"""Print to the terminal. No other command-line module prints.

Text from a server may be hostile. Every function here passes its text through `text.escape_unsafe`,
which turns each character that could affect the terminal into a visible escape. `--json` preserves
every character. Styles are given separately from the text (`bold(name)`), so only Dovetail's own
escape sequences are printed.

`StatusLine` shows the progress, the log messages and the stderr of a server. It writes to stderr.
On a terminal, progress is a single line that is redrawn and finally cleared. Otherwise, nothing is
shown unless `--verbose` is set. `--verbose` prints each progress update, log message and stderr
line with its source, so that it cannot be mistaken for Dovetail's own output.
"""

import io
import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import DovetailError
from ..text import escape_json, escape_unsafe

if TYPE_CHECKING:
    from ..protocol.lifecycle import ProgressParams
    from ..protocol.utilities import LogParams

Part = str | tuple[str, str]
"""A piece of a line: text, or a style and text."""

_JSON_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=:)|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)"
)
_TOKEN_STYLES = {"key": "34", "string": "32", "number": "36", "word": "35"}
"""The colours of JSON: blue keys, green strings, cyan numbers and magenta literals."""
_MAX_ERROR_CHARS = 600
_MAX_JSON_LINE = 88
"""The maximum length of JSON printed on one line."""
_MAX_BAR_COLUMNS = 24


class AlreadyPrinted(DovetailError):
    """A command failed after it had printed its result."""


def one_line(text: str) -> str:
    """Return the text as a single line of bounded length.

    If the text is too long, its middle is omitted, because the end of a traceback is the most
    useful part.
    """
    line = escape_unsafe(" ".join(text.split()))
    if len(line) > _MAX_ERROR_CHARS:
        line = f"{line[: _MAX_ERROR_CHARS // 3]} … {line[-_MAX_ERROR_CHARS * 2 // 3 :]}"
    return line


def print_line(*parts: Part) -> None:
    print(
        "".join(escape_unsafe(part) if isinstance(part, str) else _style(*part) for part in parts)
    )


def print_text(text: str) -> None:
    """Print text that may have several lines."""
    shown = escape_unsafe(text, keep_newlines=True)
    print(shown, end="" if shown.endswith("\n") else "\n")


def print_table(rows: list[tuple[str, str, str]], indent: int) -> None:
    """Print names, types and descriptions in columns."""
    rows = [tuple(map(escape_unsafe, row)) for row in rows]  # type: ignore[misc]
    margin = " " * indent
    if use_colour(sys.stdout):
        from .rich_display import render_table

        table = render_table(rows, max(20, shutil.get_terminal_size().columns - indent))
        if table is not None:
            print(*(f"{margin}{line.rstrip()}" for line in table.splitlines()), sep="\n")
            return
    name_width, type_width = (max((len(row[at]) for row in rows), default=0) for at in (0, 1))
    for name, type_, description in rows:
        shown = dim(f"{type_:{type_width}}") if description else dim(type_)
        print_line(f"{margin}{name:{name_width}}  ", shown, f"  {description}".rstrip())


def print_text_or_json(text: str) -> None:
    """Print text. Long JSON objects and arrays are indented, and JSON is coloured on a terminal."""
    if text[:1] in ("{", "["):
        import msgspec

        try:
            msgspec.json.decode(text)
        except ValueError:
            pass
        else:
            line = msgspec.json.format(text, indent=0)
            short = len(line) <= _MAX_JSON_LINE
            _print_document(line if short else msgspec.json.format(text, indent=2))
            return
    print_text(text)


def print_json(value: Any) -> None:
    r"""Print a JSON document, always in UTF-8. Unsafe characters become JSON escapes (`\u001b`), so
    nothing is lost."""
    import msgspec

    _print_document(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _print_document(text: str) -> None:
    text = escape_json(text)
    if use_colour(sys.stdout):
        text = _JSON_TOKEN.sub(_colour_token, text)
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.buffer.flush()  # so that it comes before an error, if both go to one file


def _colour_token(match: re.Match[str]) -> str:
    style = _TOKEN_STYLES[match.lastgroup or ""]
    return f"\x1b[{style}m{match[0]}\x1b[0m"


def print_error(text: str, *, lines: bool = False) -> None:
    """Print to stderr; newlines are escaped unless `lines` is true."""
    print(escape_unsafe(text, keep_newlines=lines), file=sys.stderr)


def bold(text: str) -> Part:
    return "1", text


def dim(text: str) -> Part:
    return "2", text


def format_size(count: int) -> str:
    """Format a number of bytes for people: 1500 is "1.5 kB"."""
    power = min((len(str(count)) - 1) // 3, 3)
    return f"{round(count / 1000**power, 1):g} {('B', 'kB', 'MB', 'GB')[power]}"


def prepare_streams() -> None:
    """Replace closed streams, and escape characters that the terminal's encoding lacks."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _style(style: str, text: str) -> str:
    return (
        f"\x1b[{style}m{escape_unsafe(text)}\x1b[0m"
        if use_colour(sys.stdout)
        else escape_unsafe(text)
    )


def use_colour(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that should show colours."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if sys.platform == "win32":  # the old console needs a setting for escape sequences
        try:
            import colorama
        except ImportError:
            return False
        colorama.just_fix_windows_console()
    return True


# what a server reports in addition to its answer


class StatusLine:
    """The client's callbacks for progress, logs and stderr."""

    def __init__(self, options: Namespace) -> None:
        self._verbose = options.verbose
        self._bar = not options.json and sys.stderr.isatty()
        self._drawn_columns = 0
        self._pauses = 0

    def on_progress(self, update: "ProgressParams") -> None:
        if self._bar:
            if not self._pauses:
                self._draw(*_format_progress(update))
        elif self._verbose:
            count = _format_count(update)
            self.print_from("progress", " ".join(filter(None, (count, update.message))))

    def show(self, text: str) -> None:
        """Show a status text until `clear` is called."""
        if self._bar:
            self._draw("", escape_unsafe(text))

    def on_log(self, entry: "LogParams") -> None:
        text = entry.data if isinstance(entry.data, str) else _to_json(entry.data)
        self.print_from(entry.level, f"{entry.logger}: {text}" if entry.logger else text)

    def on_stderr(self, line: str) -> None:
        if self._verbose:
            self.print_from("server", line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide progress while a question is on the screen."""
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

    def _draw(self, bar: str, text: str, bar_columns: int = 0) -> None:
        # The last column stays free: filling it makes some terminals start a new line.
        text = _clip(text, _terminal_columns() - 1 - bar_columns)
        columns = bar_columns + _display_width(text)
        sys.stderr.write("\r" + bar + text + " " * (self._drawn_columns - columns))
        sys.stderr.flush()
        self._drawn_columns = columns


def _format_progress(update: "ProgressParams") -> tuple[str, str, int]:
    """Return the bar, the text after it, and the width of the bar in columns."""
    message = escape_unsafe((update.message or "").replace("\t", " "))
    if not update.total or update.total <= 0:
        return "", f"{_format_count(update)}  {message}".strip(), 0
    share = min(1.0, max(0.0, update.progress / update.total))
    width = min(_MAX_BAR_COLUMNS, _terminal_columns() // 3)
    return _format_bar(share, width), f" {share:4.0%}  {message}".rstrip(), width


def _format_bar(share: float, width: int) -> str:
    is_unicode = "utf" in sys.stderr.encoding.lower()
    if is_unicode and use_colour(sys.stderr):
        from .rich_display import render_bar

        bar = render_bar(share, width)
        if bar is not None:
            return bar
    filled = int(share * width)
    full, empty = "█░" if is_unicode else "#."
    return full * filled + empty * (width - filled)


def _format_count(update: "ProgressParams") -> str:
    """Format the progress as a number. Return an empty string for a task with a status message,
    because its number only counts updates."""
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
    """Return the width of the terminal on stderr; stdout may be a pipe."""
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
