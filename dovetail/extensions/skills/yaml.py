"""A reader for the part of YAML 1.2 that front matter is written in.

    mappings and lists        in lines, or in brackets
    texts                     plain, in quotes, over several lines, as blocks (`|` and `>`)
    numbers, true, false, null, comments

Anything else is refused with the line that it is in: anchors and aliases (a few lines of which can
stand for gigabytes), tags, keys that are no texts, a key that comes twice, tabs as indentation. So
what is read means the same to every reader, and takes time in proportion to its length. It goes
line by line; what is in brackets has a reader of its own. https://yaml.org/spec/1.2.2/
"""

import re
from typing import Any, NamedTuple

from .scalars import YamlError, folded, folded_block, meaning, unquoted

DEEPEST = 16
"""How deep it may be nested."""
_QUOTED = {'"': re.compile(r'"(?:[^"\\]|\\.)*"'), "'": re.compile(r"'(?:[^']|'')*'(?!')")}
_CONTROL = re.compile(
    r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufeff\ufffe\uffff\ud800-\udfff]|\r(?!\n)"
)
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#")
_COLON = re.compile(r":(?=[ \t]|$)")
_FLOW_TEXT = re.compile(
    r"(?:[^,\[\]{}:# \t]|:(?![ \t,\[\]{}]|$)|(?<![ \t])#|[ \t]+(?![ \t#,\[\]{}]|:(?:[ \t,]|$)|$))+"
)
_HEADER = re.compile(r"([|>])(?:([-+])([1-9])?|([1-9])([-+])?)?(?:[ \t]+#.*|[ \t]*)")
_REFUSED = {
    "&": "anchors",
    "*": "aliases",
    "!": "tags",
    "%": "directives",
    "@": "a text that begins with @",
    "`": "a text that begins with a backquote",
    "?": "keys after ?",
    ",": "a text that begins with a comma",
    "]": "a closing bracket",
    "}": "a closing bracket",
    "|": "such a block",
    ">": "such a block",
}


def parse(text: str, *, portable: bool = False, first: int = 1) -> Any:
    """What a text in YAML means. `portable`: refuse what readers of YAML disagree about. `first`:
    the number of its line."""
    return _Reader(text, portable, first).document()


class _Line(NamedTuple):
    indent: int
    text: str


class _Reader:
    """Reads line by line. `at` is the next line that is not read yet."""

    def __init__(self, text: str, portable: bool, first: int) -> None:
        self.lines = text.replace("\r\n", "\n").split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        self.portable, self.first = portable, first
        self.at = 0
        if stray := _CONTROL.search(text):
            raise self.error(
                "a character that YAML does not have", text.count("\n", 0, stray.start())
            )

    def error(self, what: str, at: int | None = None) -> YamlError:
        """What is wrong, in the line that was read last or in another."""
        return YamlError(f"line {self.first + (self.at - 1 if at is None else at)}: {what}")

    # lines

    def peek(self) -> _Line | None:
        """The next line that says something; those before it are passed over."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            text = line.lstrip(" ")
            if text.strip(" \t") and not text.lstrip("\t").startswith("#"):
                if text.startswith("\t"):
                    self.at += 1
                    raise self.error("a tab in the indentation; YAML takes spaces there")
                return _Line(len(line) - len(text), text)
            self.at += 1
        return None

    def document(self) -> Any:
        line = self.peek()
        if line is None:
            return {}
        value = self.block(line.indent, -1, 0)
        if self.peek() is not None:
            self.at += 1
            raise self.error("this does not belong to what is above it; look at the indentation")
        return value

    def block(self, indent: int, outer: int, depth: int) -> Any:
        """The value that begins in the next line, which has this indentation, within what is
        indented by `outer`."""
        line = self.peek()
        assert line is not None
        if depth > DEEPEST:
            raise self.error(f"nested deeper than {DEEPEST}")
        if _is_item(line.text):
            return self.sequence(indent, depth)
        if self.key_of(line.text) is not None:
            return self.mapping(indent, depth)
        self.at += 1
        return self.value(line.text, outer, depth)

    def mapping(self, indent: int, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while (line := self.peek()) is not None and line.indent >= indent:
            found = self.key_of(line.text)
            self.at += 1
            if line.indent > indent or found is None:
                raise self.error(
                    "neither a `key: value` nor part of the one above; look at the indentation"
                )
            key, rest = found
            if key in made:
                raise self.error(f"{key!r} comes a second time")
            made[key] = self.value(rest, indent, depth, item_at=indent)
        return made

    def sequence(self, indent: int, depth: int) -> list[Any]:
        made: list[Any] = []
        while (line := self.peek()) is not None and line.indent == indent and _is_item(line.text):
            rest = line.text[1:].lstrip(" ")
            if rest.startswith("\t"):
                raise self.error("a tab behind a dash; YAML takes spaces there", self.at)
            if _is_item(rest) or (rest and rest[0] not in "[{" and self.key_of(rest) is not None):
                # What begins behind the dash is indented as far as it stands there.
                inner = indent + len(line.text) - len(rest)
                self.lines[self.at] = " " * inner + rest
                made.append(self.block(inner, indent, depth + 1))
            else:
                self.at += 1
                made.append(self.value(rest, indent, depth))
        return made

    def key_of(self, text: str) -> tuple[str, str] | None:
        """The key that a line begins with, and what follows it; None where it begins with none."""
        if text[0] in "\"'":
            end = _closing(text)
            after = "" if end is None else text[end + 1 :].lstrip(" \t")
            if not after.startswith(":") or after[1:2].strip():
                return None
            return self.unquoted([text[1:end]], text[0]), after[1:].lstrip(" \t")
        if text[0] in "[{#" or _is_item(text):
            return None
        colon = _COLON.search(_uncommented(text))
        if colon is None:
            return None
        key = text[: colon.start()].rstrip(" \t")
        self.refuse(key, self.at)
        if not isinstance(self.scalar(key, self.at), str):
            raise self.error(
                f"{key or 'nothing'!r} is no text, so it cannot be a key; put it in quotes", self.at
            )
        return key, text[colon.end() :].lstrip(" \t")

    # values

    def value(self, rest: str, indent: int, depth: int, item_at: int | None = None) -> Any:
        """The value that begins with `rest`, which is in the line before `at`, or below it. What is
        below is indented more than `indent`; the items of a list may stand right at `item_at`."""
        first = rest[:1]
        if not first or first == "#":
            line = self.peek()
            if line is not None and (
                line.indent > indent or (line.indent == item_at and _is_item(line.text))
            ):
                return self.block(line.indent, indent, depth + 1)
            return None
        if header := _HEADER.fullmatch(rest):
            return self.block_text(header, indent)
        if first in "\"'":
            text, after = self.quoted(rest, indent)
            self.nothing_in(after)
            return text
        if first in "[{":
            flow = _Flow(self, rest, indent)
            value = flow.value(depth + 1)
            self.nothing_in(flow.text[flow.at :])
            return value
        self.refuse(rest)
        if _is_item(rest):
            raise self.error(
                "a list begins in a line of its own; a text that begins with a dash goes in quotes"
            )
        return self.plain(rest, indent)

    def refuse(self, text: str, at: int | None = None) -> None:
        """Raises where a plain text begins with what means more than a text."""
        if text[:1] in _REFUSED and (text[0] != "?" or not text[1:2].strip()):
            raise self.error(
                f"{_REFUSED[text[0]]}: YAML that is not read here; put the text in quotes", at
            )

    def nothing_in(self, after: str) -> None:
        """Raises where something follows a value in its line, other than a comment."""
        if after.startswith("#") or _uncommented(after).strip(" \t"):
            raise self.error(f"{after.strip()!r} follows where the value has ended")

    def plain(self, rest: str, indent: int) -> Any:
        """A plain text, which goes on in lines that are indented more; blank ones are line breaks
        in it."""
        line, start = rest, self.at - 1
        words: list[str] = []
        while True:
            text = _uncommented(line).strip(" \t")
            if _COLON.search(text):
                raise self.error("a colon and a space within a plain text; put the text in quotes")
            words.append(text)
            following = self.at
            while following < len(self.lines) and not self.lines[following].strip(" \t"):
                following += 1
            upcoming = self.lines[following] if following < len(self.lines) else ""
            bare = upcoming.lstrip(" \t")
            if (
                text != line.strip(" \t")
                or not bare
                or _indent(upcoming) <= indent
                or bare.startswith("#")
            ):
                break
            words += [""] * (following - self.at)
            self.at, line = following + 1, bare
        return self.scalar(words[0], start) if len(words) == 1 else folded(words)

    def scalar(self, text: str, at: int | None = None) -> Any:
        """What a plain text in one line means."""
        try:
            return meaning(text, self.portable)
        except YamlError as error:
            raise self.error(str(error), at) from None

    def unquoted(self, parts: list[str], mark: str) -> str:
        """The lines of a text in quotes as the text they mean."""
        try:
            return unquoted(parts, mark)
        except YamlError as error:
            raise self.error(str(error)) from None

    def quoted(self, text: str, indent: int) -> tuple[str, str]:
        """A text in quotes, and what follows it in its last line."""
        mark, parts, rest = text[0], list[str](), text[1:]
        while (end := _closing(mark + rest)) is None:
            parts.append(rest)
            if self.at >= len(self.lines):
                raise self.error("a text in quotes that never ends")
            rest = self.lines[self.at]
            self.at += 1
            if rest.strip(" \t") and _indent(rest) <= indent:
                raise self.error("a text in quotes goes on in lines that are indented")
        parts.append(rest[: end - 1])
        return self.unquoted(parts, mark), rest[end:]

    def block_text(self, header: re.Match[str], indent: int) -> str:
        """A block: `|` keeps its line breaks, `>` makes them spaces."""
        style, digit, end = header[1], header[3] or header[4], header[2] or header[5] or ""
        start, lines = self.at, list[str]()
        least = max(indent, 0) + int(digit) if digit else 0
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip(" "):
                least = least or _indent(line)
                if _indent(line) < least or least <= indent:
                    break
            lines.append(line)
            self.at += 1
        early = next((at for at, line in enumerate(lines) if line.strip(" ")), len(lines))
        if any(len(line) > least for line in lines[:early]) and early < len(lines):
            raise self.error(
                "an empty line at the start of a block is indented more than the block", start
            )
        lines = [line[least:] if early < len(lines) else "" for line in lines]
        kept = len(lines)
        while kept and not lines[kept - 1]:
            kept -= 1
        text = "\n".join(lines[:kept]) if style == "|" else folded_block(lines[:kept])
        trailing = len(lines) - kept + bool(kept)
        return text + "\n" * {"": bool(kept), "-": 0, "+": trailing}[end]


class _Flow:
    """What stands in brackets, over as many lines as it takes; the texts in it are of one line
    each."""

    def __init__(self, reader: _Reader, text: str, indent: int) -> None:
        self.reader, self.text, self.indent = reader, text, indent
        self.at = 0

    def skip(self) -> str:
        """Pass over spaces, comments and ends of lines; the next character."""
        while True:
            before, self.at = self.at, _end_of_space(self.text, self.at)
            first = self.text[self.at : self.at + 1]
            if first and not (first == "#" and (self.at == 0 or before < self.at)):
                return first
            if self.reader.at >= len(self.reader.lines):
                raise self.reader.error("a bracket that is never closed")
            self.text, self.at = self.reader.lines[self.reader.at], 0
            self.reader.at += 1
            if self.text.strip(" \t") and _indent(self.text) <= self.indent:
                raise self.reader.error(
                    "what is in brackets goes on in lines that are indented, the closing "
                    "bracket too"
                )

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise self.reader.error(f"nested deeper than {DEEPEST}")
        first = self.skip()
        if first in "[{":
            self.at += 1
            return self.items(depth) if first == "[" else self.pairs(depth)
        if first in "\"'":
            return self.quoted()
        return self.reader.scalar(self.plain())

    def items(self, depth: int) -> list[Any]:
        made: list[Any] = []
        while self.skip() != "]":
            made.append(self.value(depth + 1))
            self.separator("]")
        self.at += 1
        return made

    def pairs(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while (first := self.skip()) != "}":
            key = self.quoted() if first in "\"'" else self.reader.scalar(self.plain())
            if not isinstance(key, str) or key in made:
                raise self.reader.error(
                    f"{key!r} is no text, or comes a second time, so it cannot be a key"
                )
            if self.skip() != ":" or (
                first not in "\"'" and self.text[self.at + 1 : self.at + 2].strip(" \t,}")
            ):
                raise self.reader.error(f"{key!r} has no value; write `{key}: value`")
            self.at += 1
            made[key] = None if self.skip() in ",}" else self.value(depth + 1)
            self.separator("}")
        self.at += 1
        return made

    def separator(self, closing: str) -> None:
        found = self.skip()
        if found == ",":
            self.at += 1
        elif found != closing:
            raise self.reader.error(
                f"{self.text[self.at :].strip()!r} where a comma or {closing} should be"
            )

    def quoted(self) -> str:
        end = _closing(self.text, self.at)
        if end is None:
            raise self.reader.error("a text in quotes, within brackets, has to end in its line")
        text = self.reader.unquoted([self.text[self.at + 1 : end]], self.text[self.at])
        self.at = end + 1
        return text

    def plain(self) -> str:
        found = _FLOW_TEXT.match(self.text, self.at)
        text = found[0] if found else ""
        if not text or text[0] in _REFUSED or text[0] == "#" or _is_item(text):
            what = _REFUSED.get(self.text[self.at], f"{self.text[self.at]!r} here")
            raise self.reader.error(f"{what}: YAML that is not read here; put the text in quotes")
        self.at += len(text)
        return text


def _is_item(text: str) -> bool:
    return text[:2] in ("-", "- ", "-\t")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _uncommented(text: str) -> str:
    comment = _COMMENT.search(text)
    return text if comment is None else text[: comment.start()]


def _end_of_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _closing(text: str, at: int = 0) -> int | None:
    """Where the quotes close that open here."""
    found = _QUOTED[text[at]].match(text, at)
    return None if found is None else found.end() - 1
