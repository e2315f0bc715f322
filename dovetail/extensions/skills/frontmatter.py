"""The front matter of a SKILL.md: the YAML between its first line, `---`, and the next such line,
as JSON would have it.

A server reads its own files with `portable=True`, which refuses the few plain words that readers of
YAML disagree about: in quotes they are texts to everybody. A client reads what others wrote, and
compares it with the entry, field by field. https://agentskills.io/specification
"""

import re
from typing import Any

from .scalars import YamlError
from .yaml import parse

LONGEST = 64 * 1024
"""Characters of front matter."""
_OPEN, _CLOSE = re.compile(r"\ufeff?---\r?\n"), re.compile(r"^---[ \t]*\r?$\n?", re.MULTILINE)


class FrontMatterError(ValueError):
    """Front matter that is missing, or that cannot be read. The text names the line."""


def read(text: str, *, portable: bool = False) -> tuple[dict[str, Any], str]:
    """The front matter of a SKILL.md, and the text below it. `portable`: refuse what readers of
    YAML disagree about."""
    opening = _OPEN.match(text)
    closing = None if opening is None else _CLOSE.search(text, opening.end())
    if opening is None or closing is None:
        raise FrontMatterError(
            "it does not begin with front matter: a line of ---, YAML, and a line of --- again"
        )
    if closing.start() - opening.end() > LONGEST:
        raise FrontMatterError(f"its front matter is longer than {LONGEST:,} characters")
    try:
        value = parse(text[opening.end() : closing.start()], portable=portable, first=2)
    except YamlError as error:
        raise FrontMatterError(str(error)) from None
    if not isinstance(value, dict):
        raise FrontMatterError("line 2: front matter is a mapping: lines of `key: value`")
    return value, text[closing.end() :]


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The fields in which two front matters differ. One that is null is as good as absent."""
    return sorted(
        key for key in one.keys() | other.keys() if not _same(one.get(key), other.get(key))
    )


def _same(one: Any, other: Any) -> bool:
    """As JSON sees it: 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
