"""The texts of YAML: what a plain one means, what quotes and escapes stand for, and how lines
become one text.

A few plain words mean one thing to readers of YAML 1.2, as here, and another to those of 1.1
(`yes`, `2026-01-31`, `012`). https://yaml.org/spec/1.2.2/#103-core-schema
"""

import re
from typing import Any

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DOUBTFUL = re.compile(
    r"(?i:y|n|yes|no|on|off)|=|<<"  # truth, values and merging
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"  # dates
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # times, in base 60
    # other bases, digits in groups
    r"|[-+]?0[0-9_]+|[-+]?0[bxo][0-9a-fA-F_]+|[-+]?(?=.*_)[.0-9][0-9_]*(?:\.[0-9_]*)?"
    r"|[-+]?[0-9.]+[eE][0-9]+|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?[0-9]{16,}"
)
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "\t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
_HEX = re.compile("[0-9a-fA-F]+")
_CODES = {"x": 2, "u": 4, "U": 8}


class YamlError(ValueError):
    """What is no YAML, or more of it than is read here."""


def meaning(text: str, portable: bool) -> Any:
    """What a plain text in one line means. `portable`: refuse what readers of YAML disagree
    about."""
    if text in _WORDS:
        return _WORDS[text]
    if portable and _DOUBTFUL.fullmatch(text):
        raise YamlError(
            f"{text} is a text to some readers of YAML and something else to others; put it "
            "in quotes"
        )
    if _INTEGER.fullmatch(text) and len(text) < 19:
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    number = float(text) if _NUMBER.fullmatch(text) else None
    if number in (float("inf"), float("-inf")) or _NOT_JSON.fullmatch(text):
        raise YamlError(f"{text} is a number that JSON does not have")
    return text if number is None else number


def unquoted(parts: list[str], mark: str) -> str:
    """The lines of a text in quotes as the text they mean."""
    words: list[str] = []
    glued = False  # to the line before, by a backslash at its end
    for number, part in enumerate(parts):
        part = part.lstrip(" \t") if number else part
        escaped = mark == '"' and number < len(parts) - 1 and _odd_backslash(part)
        if escaped:
            part = part[:-1]
        elif number < len(parts) - 1:
            part = _rstripped(part) if mark == '"' else part.rstrip(" \t")
        word = part.replace("''", "'") if mark == "'" else _unescaped(part)
        if glued:
            words[-1] += word
        else:
            words.append(word)
        glued = escaped
    return folded(words)


def _unescaped(text: str) -> str:
    made, at = list[str](), 0
    while (slash := text.find("\\", at)) >= 0:
        letter = text[slash + 1 : slash + 2]
        digits = text[slash + 2 : slash + 2 + _CODES.get(letter, 0)]
        made.append(text[at:slash])
        at = slash + 2 + len(digits)
        if letter in _ESCAPES:
            made.append(_ESCAPES[letter])
        elif (
            len(digits) == _CODES.get(letter)
            and _HEX.fullmatch(digits)
            and int(digits, 16) < 0x110000
        ):
            made.append(chr(int(digits, 16)))
        else:
            raise YamlError(f"\\{letter}{digits} is no escape that YAML has for a character")
    try:  # JSON writes some characters as two halves
        return "".join([*made, text[at:]]).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise YamlError("an escape for half a character, without the other half") from None


def _odd_backslash(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _rstripped(text: str) -> str:
    """Without spaces at the end, but for one that is escaped."""
    bare = text.rstrip(" \t")
    return text[: len(bare) + 1] if _odd_backslash(bare) and len(bare) < len(text) else bare


def folded(lines: list[str]) -> str:
    """Lines as one text: a line break is a space, an empty line a line break."""
    made, breaks = lines[0], 0
    for number, line in enumerate(lines[1:], 2):
        if not line and number < len(lines):
            breaks += 1
        else:
            made, breaks = made + ("\n" * breaks or " ") + line, 0
    return made


def folded_block(lines: list[str]) -> str:
    """The same in a block, where lines that are indented more than the rest stay lines."""
    made, breaks, deeper_before = "", 0, False
    for line in lines:
        deeper = line[:1] in (" ", "\t") and line != ""
        if not line:
            breaks += 1
            continue
        if not made.strip("\n"):
            made = "\n" * breaks
        else:
            made += "\n" * (breaks + 1) if deeper or deeper_before else "\n" * breaks or " "
        made, breaks, deeper_before = made + line, 0, deeper
    return made
