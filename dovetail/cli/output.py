"""Print to the terminal; the only module of the command line that does.

Text from a server may be hostile. Every function here passes its text through `text.escape_unsafe`,
which turns each character that could affect the terminal into a visible escape. `--json` preserves
every character. Styles are given separately from the text (`bold(name)`), so the only escape
sequences that are printed are our own.
"""

import io
import os
import sys
from typing import Any

from ..text import escape_json, escape_unsafe

Part = str | tuple[str, str]
"""A piece of a line: text, or a style and text."""

_MAX_ERROR_CHARS = 600


def one_line(text: str) -> str:
    """Return the text as a single line of bounded length.

    The middle is left out if it is too long: the end of a traceback says most.
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


def print_json(value: Any) -> None:
    r"""Print a JSON document, always in UTF-8. Unsafe characters become JSON escapes (`\u001b`), so
    nothing is lost."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    encoded = escape_json(text).encode() + b"\n"
    sys.stdout.flush()
    sys.stdout.buffer.write(encoded)


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
    return f"\x1b[{style}m{escape_unsafe(text)}\x1b[0m" if _use_colour() else escape_unsafe(text)


def _use_colour() -> bool:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if sys.platform == "win32":  # its old console understands escape sequences only if asked to
        try:
            import colorama
        except ImportError:
            return False
        colorama.just_fix_windows_console()
    return True
