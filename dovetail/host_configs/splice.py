"""What the editors of all formats share: splices, line ends, and errors.

An editor never writes a text again. It returns splices, each of which replaces a part of the text,
so that every byte outside them stays the same by construction.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..errors import ConfigError

KeyPath = tuple[str, ...]
"""The keys that lead to an entry, from the top level of the file."""
Span = tuple[int, int]
"""The start and the end of a part of a text."""

LINE_BREAK = re.compile(r"\r\n|\n|\r")
DEFAULT_INDENT = "  "
MAX_LINE_CHARS = 80
"""Lists that fit are written on one line."""


class EditError(ConfigError):
    """The text is not valid, or the entry cannot be changed without changing something else."""


class Splice(NamedTuple):
    """A change of a text: `text` replaces the part from `start` to `end`."""

    start: int
    end: int
    text: str


class Edit(NamedTuple):
    """A text after a change, and what was changed."""

    text: str
    """The new text."""
    splices: tuple[Splice, ...]
    """The changes of the old text, in order. They do not overlap."""

    @property
    def is_changed(self) -> bool:
        """Whether the new text differs from the old one."""
        return bool(self.splices)

    @property
    def inserted(self) -> tuple[Span, ...]:
        """The parts of the new text that were inserted. Without them, it is the old text. Empty if
        a part of the old text was removed."""
        if any(splice.start != splice.end for splice in self.splices):
            return ()
        return move_spans((), self.splices)


def apply(text: str, splices: Iterable[Splice]) -> Edit:
    """Change a text.

    Args:
        text: The text.
        splices: The changes, in any order. Those that change nothing are left out.
    """
    kept = sorted(each for each in splices if text[each.start : each.end] != each.text)
    parts, at = [], 0
    for splice in kept:
        assert at <= splice.start <= splice.end <= len(text), "splices overlap"
        parts += [text[at : splice.start], splice.text]
        at = splice.end
    return Edit("".join([*parts, text[at:]]), tuple(kept))


def remove_spans(text: str, spans: Iterable[Span]) -> Edit:
    """Delete parts of a text.

    Args:
        text: The text.
        spans: The parts.
    """
    return apply(text, [Splice(start, end, "") for start, end in spans])


def move_spans(spans: tuple[Span, ...], splices: tuple[Splice, ...]) -> tuple[Span, ...]:
    """Return where the parts of a text that Dovetail wrote are after a change by Dovetail.

    Inserted text belongs to them, and so does text that replaces a part of them. Text that replaces
    something else does not: without it, the old text would not come back.

    Args:
        spans: The parts of the old text, in order.
        splices: The changes of the old text, in order.
    """
    moved: list[Span] = []
    left, shift = list(spans), 0
    for splice in splices:
        while left and left[0][1] <= splice.start:
            start, end = left.pop(0)
            moved.append((start + shift, end + shift))
        if left and left[0][0] < splice.start:  # the part before the splice
            moved.append((left[0][0] + shift, splice.start + shift))
            left[0] = (splice.start, left[0][1])
        removed = splice.end - splice.start
        owned = 0
        while left and left[0][0] < splice.end:
            start, end = left.pop(0)
            owned += min(end, splice.end) - start
            if end > splice.end:
                left.insert(0, (splice.end, end))
        if splice.text and owned == removed:
            at = splice.start + shift
            moved.append((at, at + len(splice.text)))
        shift += len(splice.text) - removed
    return _join_spans([*moved, *((start + shift, end + shift) for start, end in left)])


def _join_spans(spans: list[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for start, end in spans:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    return tuple(joined)


def wrap(path: KeyPath, value: Any) -> Any:
    """Return a value inside the objects that a path of keys leads through.

    Args:
        path: The keys.
        value: The value.
    """
    for key in reversed(path):
        value = {key: value}
    return value


def find_line_break(text: str) -> str:
    r"""Return the line break that the text uses first, or `\n`.

    Args:
        text: The text.
    """
    found = LINE_BREAK.search(text)
    return found[0] if found else "\n"


def line_start(text: str, at: int) -> int:
    """Return where the line of a position starts.

    Args:
        text: The text.
        at: The position.
    """
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def line_end(text: str, at: int) -> int:
    """Return where the line of a position ends, before its line break.

    Args:
        text: The text.
        at: The position.
    """
    found = LINE_BREAK.search(text, at)
    return found.start() if found else len(text)


def break_before(text: str, at: int) -> int:
    """Return the start of the line break that ends before a position, or the position itself if
    there is none.

    Args:
        text: The text.
        at: The position, which is the start of a line.
    """
    if text.startswith("\r\n", at - 2) and at >= 2:
        return at - 2
    return at - 1 if at and text[at - 1] in "\r\n" else at


def break_after(text: str, at: int) -> int:
    """Return the end of the line break that starts at a position, or the position itself if there
    is none.

    Args:
        text: The text.
        at: The position.
    """
    found = LINE_BREAK.match(text, at)
    return found.end() if found else at


def indent_of(text: str, at: int) -> str:
    """Return the white space at the start of the line of a position.

    Args:
        text: The text.
        at: The position.
    """
    start = line_start(text, at)
    found = re.compile(r"[ \t]*").match(text, start)
    return found[0] if found else ""


def starts_line(text: str, at: int) -> bool:
    """Return whether there is only white space before a position in its line.

    Args:
        text: The text.
        at: The position.
    """
    return not text[line_start(text, at) : at].strip(" \t")
