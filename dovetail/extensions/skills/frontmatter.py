"""The front matter of a SKILL.md: the YAML between its first line, `---`, and the next such line.

A server reads its own files with `portable=True`, which refuses the few plain scalars that versions
of YAML disagree about; in quotes they are strings everywhere. A client reads what others wrote, and
compares it with the entry, field by field. https://agentskills.io/specification
"""

import re
from typing import Any

from ...yaml_loader import MAX_CHARACTERS, YamlError, load_yaml

_OPEN, _CLOSE = re.compile(r"\ufeff?---\r?\n"), re.compile(r"^---[ \t]*\r?$\n?", re.MULTILINE)


class FrontMatterError(ValueError):
    """Front matter that is missing or cannot be read. The text names the line."""


def parse_frontmatter(text: str, *, portable: bool = False) -> tuple[dict[str, Any], str]:
    """Return the front matter of a SKILL.md, and the text below it."""
    opening = _OPEN.match(text)
    closing = None if opening is None else _CLOSE.search(text, opening.end())
    if opening is None or closing is None:
        raise FrontMatterError(
            "it does not begin with front matter: a line ---, YAML, and another line ---"
        )
    if closing.start() - opening.end() > MAX_CHARACTERS:
        raise FrontMatterError(f"its front matter is longer than {MAX_CHARACTERS:,} characters")
    try:
        value = load_yaml(text[opening.end() : closing.start()], portable=portable, first_line=2)
    except YamlError as error:
        raise FrontMatterError(str(error)) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise FrontMatterError("line 2: front matter must be a mapping: lines of `key: value`")
    return value, text[closing.end() :]


def differing_fields(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the fields in which two front matters differ. Null is the same as absent."""
    return sorted(
        key for key in one.keys() | other.keys() if not _equal(one.get(key), other.get(key))
    )


def _equal(one: Any, other: Any) -> bool:
    """Compare as JSON does: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
