r"""The only way to the screen, and what may pass.

Whatever a server says may be hostile. `text.escape_unsafe` turns each character that could do
something to the terminal into a visible escape. `--json` is what gives every character back.

All printing of this package is done by the functions below, and each of them sends what it is given
through `escape_unsafe`. Styles are given apart from the text (`bold(name)`), so the only escape
sequences on the way out are ours.
"""

import io
import os
import sys
from typing import Any

from ..text import escape_json, escape_unsafe

Part = str | tuple[str, str]
"""A piece of a line: text, or a style and text."""

_MAX_ERROR_CHARS = 600
"""Characters of a failure line; of a longer one the middle is left out, for a traceback says most
at its end."""


def one_line(text: str) -> str:
    """The text as a single line of bounded length."""
    line = escape_unsafe(" ".join(text.split()))
    if len(line) > _MAX_ERROR_CHARS:
        line = f"{line[: _MAX_ERROR_CHARS // 3]} … {line[-_MAX_ERROR_CHARS * 2 // 3 :]}"
    return line


def print_line(*parts: Part) -> None:
    """Print one line."""
    print(
        "".join(escape_unsafe(part) if isinstance(part, str) else _style(*part) for part in parts)
    )


def print_text(text: str) -> None:
    """Print a text of many lines."""
    shown = escape_unsafe(text, keep_newlines=True)
    print(shown, end="" if shown.endswith("\n") else "\n")


def print_json(value: Any) -> None:
    r"""Print a JSON document, in UTF-8 wherever it goes. JSON has escapes of its own, `\u001b`, so
    nothing is lost."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    encoded = escape_json(text).encode() + b"\n"
    sys.stdout.flush()
    sys.stdout.buffer.write(encoded)


def print_error(text: str, *, lines: bool = False) -> None:
    """Print to stderr."""
    print(escape_unsafe(text, keep_newlines=lines), file=sys.stderr)


def bold(text: str) -> Part:
    """A piece of a line that stands out."""
    return "1", text


def dim(text: str) -> Part:
    """A piece of a line that stands back."""
    return "2", text


def format_size(count: int) -> str:
    """A number of bytes, for people."""
    power = min((len(str(count)) - 1) // 3, 3)
    return f"{round(count / 1000**power, 1):g} {('B', 'kB', 'MB', 'GB')[power]}"


def prepare_streams() -> None:
    """Let there be streams, even if they were closed, and no character that the terminal's encoding
    cannot show."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _style(style: str, text: str) -> str:
    return f"\x1b[{style}m{escape_unsafe(text)}\x1b[0m" if _use_colour() else escape_unsafe(text)


def _use_colour() -> bool:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if sys.platform == "win32":  # its old console knows escape sequences only when told
        try:
            import colorama
        except ImportError:
            return False
        colorama.just_fix_windows_console()
    return True
