r"""The only way to the screen, and what may pass.

Whatever a server says may be hostile: an escape sequence can retitle the window, fill the clipboard
(OSC 52), hide a link behind another's text (OSC 8) or erase what was printed; a lone `\r`
overwrites the line; bidirectional overrides show text in another order than it has. `safe` makes
each such character visible as an escape, `\x1b`, so it does nothing. It is for the eye: a backslash
that was there before is not doubled. `--json` is what gives every character back.

All printing of this package is done by the functions below, and each of them sends what it is given
through `safe`. Styles are given apart from the text (`bold(name)`), so the only escape sequences on
the way out are ours.
"""

import io
import os
import re
import sys
from typing import Any

Part = str | tuple[str, str]
"""A piece of a line: text, or a style and text."""

# Controls (C0 but tab and newline, DEL, C1), marks and overrides of direction, invisible format
# characters, line separators, lone surrogates and tags. The joiners U+200C and U+200D stay:
# Persian, Hindi and emoji are written with them.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_LONGEST = 600
"""Characters of a failure line; of a longer one the middle is left out, for a traceback says most
at its end."""


def safe(text: str, *, lines: bool = False) -> str:
    r"""The text with every character visible that could do something to a terminal; `lines` lets
    newlines pass."""
    shown = _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))
    return shown if lines else shown.replace("\n", r"\n")


def one_line(text: str) -> str:
    """The text as a single line of bounded length."""
    line = safe(" ".join(text.split()))
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 3]} … {line[-_LONGEST * 2 // 3 :]}"
    return line


def say(*parts: Part) -> None:
    """Print one line."""
    print("".join(safe(part) if isinstance(part, str) else _painted(*part) for part in parts))


def say_text(text: str) -> None:
    """Print a text of many lines."""
    shown = safe(text, lines=True)
    print(shown, end="" if shown.endswith("\n") else "\n")


def say_json(value: Any) -> None:
    r"""Print a JSON document, in UTF-8 wherever it goes. JSON has escapes of its own, `\u001b`, so
    nothing is lost."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    encoded = _UNSAFE.sub(_json_escape, text).encode() + b"\n"
    sys.stdout.flush()
    sys.stdout.buffer.write(encoded)


def complain(text: str, *, lines: bool = False) -> None:
    """Print to stderr."""
    print(safe(text, lines=lines), file=sys.stderr)


def bold(text: str) -> Part:
    """A piece of a line that stands out."""
    return "1", text


def dim(text: str) -> Part:
    """A piece of a line that stands back."""
    return "2", text


def size(count: int) -> str:
    """A number of bytes, for people."""
    power = min((len(str(count)) - 1) // 3, 3)
    return f"{round(count / 1000**power, 1):g} {('B', 'kB', 'MB', 'GB')[power]}"


def prepare() -> None:
    """Let there be streams, even if they were closed, and no character that the terminal's encoding
    cannot show."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _painted(style: str, text: str) -> str:
    return f"\x1b[{style}m{safe(text)}\x1b[0m" if _colours() else safe(text)


def _colours() -> bool:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if sys.platform == "win32":  # its old console knows escape sequences only when told
        try:
            import colorama
        except ImportError:
            return False
        colorama.just_fix_windows_console()
    return True
