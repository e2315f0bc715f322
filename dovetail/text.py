r"""Make untrusted text safe to show in a terminal, a log, an error message or a page.

Any text from a peer may be hostile. An escape sequence can retitle the window, fill the clipboard
(OSC 52), hide a link behind the text of another (OSC 8) or erase earlier output. A lone `\r`
overwrites the line. Direction marks change the order in which text is shown, and invisible
characters make one name look like another.

    escape_unsafe   for a terminal: each unsafe character becomes a visible escape such as `\x1b`
    one_line        for a message: one line of limited length, with spaces for unsafe characters
    quote           for a message: a value in quotes, as Python would write it, of limited length
    strip_unsafe    for a name that is compared or shown alone: unsafe characters are removed
    closest_name    for a message: the known name that is most similar to a misspelled one
    legal_name      for a tool or prompt: a name that hosts and models accept, from any text
    shorten_name    for such a name: a digest replaces the tail of a name that is too long

Escapes are meant for human readers: a backslash in the original text is not doubled. The joiners
U+200C and U+200D are kept between the characters that need them (Persian, Hindi, emoji). They are
escaped next to an ASCII letter, a digit or another joiner, where they only hide something.
"""

import re
from collections.abc import Iterable

MAX_MESSAGE_CHARS = 300
"""The number of characters from a peer's text that a message repeats."""
MAX_QUOTED_CHARS = 200
_DIGEST_CHARS = 8
_NOT_IN_NAMES = r"[^A-Za-z0-9_-]"

# Controls (C0 except tab and newline, DEL, C1), direction marks and overrides, invisible letters
# and format characters, line separators, lone surrogates, private use, tags, variation selectors
# other than those of emoji, and joiners that join nothing.
_UNSAFE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e"
    "\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
    "|(?<=[0-9A-Za-z_\u200c\u200d])[\u200c\u200d]|[\u200c\u200d](?=[0-9A-Za-z_\u200c\u200d])"
)
_JOINERS = "[\u200c\u200d]"


def escape_unsafe(text: str, *, keep_newlines: bool = False) -> str:
    """Escape every character that could control a terminal or that cannot be seen.

    Newlines and tabs are also escaped, unless `keep_newlines` is set.
    """
    text = re.sub(_UNSAFE, _escape, text.replace("\r\n", "\n"))
    return text if keep_newlines else text.replace("\n", r"\n").replace("\t", r"\t")


def escape_json(text: str) -> str:
    """Replace unsafe characters in a JSON document with JSON escapes, so that nothing is lost."""
    return re.sub(_UNSAFE, _escape_json, text)


def strip_unsafe(text: str) -> str:
    """Remove unsafe characters and joiners, and replace each run of white space with one space."""
    return re.sub(_JOINERS, "", re.sub(_UNSAFE, "", " ".join(text.split())))


def one_line(text: str, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Return a peer's text for use in a message: printable, on one line and of limited length."""
    line = "".join(char if char.isprintable() else " " for char in text[: max_chars + 1]).strip()
    return line if len(text) <= max_chars else f"{line[:max_chars]}…"


def quote(value: bytes | str, max_chars: int = MAX_QUOTED_CHARS) -> str:
    """Return a peer's value in quotes, escaped and limited in length."""
    text = value if isinstance(value, str) else value.decode("latin-1")
    return repr(text if len(text) <= max_chars else f"{text[:max_chars]}…")


def join_names(names: Iterable[str]) -> str:
    """Return names as a sentence lists them: `A`, `A and B`, `A, B and C`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def with_article(noun: str) -> str:
    """Return the noun with "a" or "an" in front of it."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    width, letter = (2, "x") if code < 0x100 else (4, "u") if code < 0x10000 else (8, "U")
    return f"\\{letter}{code:0{width}x}"


def _escape_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def closest_name(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar name, or None if none reaches the similarity `cutoff` (0 to 1)."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, sorted(names), n=1, cutoff=cutoff)), None)


def legal_name(text: str) -> str:
    """Return a text with `_` for each character that names of tools should not have. The name
    begins with a letter or `_`."""
    text = re.sub(_NOT_IN_NAMES, "_", text)
    return text if text[:1].isalpha() or text.startswith("_") else f"_{text}"


def shorten_name(name: str, whole: str, max_chars: int) -> str:
    """Return a name of at most `max_chars` characters. If the name is longer, it ends in a digest
    of `whole`, which identifies it."""
    return name if len(name) <= max_chars else add_digest(name, whole, max_chars)


def add_digest(name: str, whole: str, max_chars: int) -> str:
    """Return a name of at most `max_chars` characters that ends in a digest of `whole`."""
    from hashlib import sha256

    digest = sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: max_chars - _DIGEST_CHARS - 1]}_{digest}"
