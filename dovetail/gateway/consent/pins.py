"""Digests of what a model sees of a server, and what changed in it.

A server can change a tool after a person approved it. So the digest of the approved definition is
kept, and each call is checked against it. It covers all that a model sees of a tool or prompt, and
the instructions of the server, but not `_meta` or icons.

The digest is that of canonical JSON: keys sorted by code point, no spaces, and numbers as they were
spelled. A field that is null counts as absent. Inside a schema, null counts, because a model may
read its key. A key that is repeated is not valid, because programs disagree on which one counts. A
digest is computed from the bytes that the server sent, so that nothing is lost on the way.

A pin is a set of up to `MAX_DIGESTS` digests for one tool, because a server may adapt to its caller
and to the revision of the protocol.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias
from unicodedata import normalize

import msgspec
from msgspec import Raw, Struct

from ...text import escape_unsafe, strip_unsafe

PinKind: TypeAlias = Literal["tool", "prompt", "instructions"]
FIELDS: Final[dict[PinKind, tuple[str, ...]]] = {
    "tool": ("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    "prompt": ("name", "title", "description", "arguments"),
}
"""What a model sees, by the names on the wire."""
MAX_DIGESTS: Final = 8
MAX_CHANGES: Final = 100
MAX_VALUE_CHARS: Final = 2000
"""The number of characters of each value that are shown. If there are more, the line says how
many."""
CONTEXT_CHARS: Final = 40
_ABSENT: Final = object()


class _Number(Struct, frozen=True):
    """A number as it was spelled."""

    text: str


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


_decode = json.JSONDecoder(
    parse_int=_Number,
    parse_float=_Number,
    parse_constant=_refuse_constant,
    object_pairs_hook=_refuse_repeated,
).decode

_encode = json.JSONEncoder(ensure_ascii=False).encode


def pinned_text(kind: PinKind, value: Raw | bytes | Mapping[str, Raw | bytes]) -> str:
    """Return the canonical JSON of what a model sees.

    Args:
        kind: What the value is.
        value: The definition as the server sent it, or its fields by name. The instructions are a
            JSON string.

    Raises:
        ValueError: The value is not valid JSON, or is nested too deeply.
    """
    try:
        if kind == "instructions" and not isinstance(value, Mapping):
            return _write(_decode(_text(value)))
        fields = (
            value
            if isinstance(value, Mapping)
            else msgspec.json.decode(bytes(value), type=dict[str, Raw])
        )
        seen = {name: _decode(_text(fields[name])) for name in FIELDS[kind] if name in fields}
        return _write({name: item for name, item in seen.items() if item is not None})
    except RecursionError:
        raise ValueError(f"the {kind} is nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise ValueError(f"the {kind} is not valid: {error}") from None


def digest(text: str) -> str:
    """Return the digest of a canonical text, as `sha256:…`."""
    return f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def describe_change(before: str | None, after: str | None) -> list[str]:
    """Return what changed, one line for each removed (`-`) or added (`+`) value, safe to show.

    Args:
        before: The canonical text that was approved; None if there is none.
        after: The current canonical text; None if there is none.
    """
    old, new = (_ABSENT if text is None else _decode(text) for text in (before, after))
    if isinstance(old, dict) or isinstance(new, dict):  # show each field of what is new or gone
        old, new = ({} if one is _ABSENT else one for one in (old, new))
    lines = [escape_unsafe(line) for line in _compare("", old, new)]
    if len(lines) > MAX_CHANGES:
        lines[MAX_CHANGES:] = [f"… and {len(lines) - MAX_CHANGES} more lines"]
    return lines


def _text(value: Raw | bytes) -> str:
    return bytes(value).decode("utf-8", "surrogatepass")


def _write(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{_encode(key)}:{_write(item)}" for key, item in sorted(value.items()))
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_write, value))}]"
    return value.text if isinstance(value, _Number) else _encode(value)


def _compare(path: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else key
            yield from _compare(inner, old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif _are_objects(old) and _are_objects(new):
        for at in range(max(len(old), len(new))):
            first, second = (one[at] if at < len(one) else _ABSENT for one in (old, new))
            yield from _compare(f"{path}[{at}]", first, second)
    else:
        label = f"{path}: " if path else ""
        shown = _show_pair(old, new)
        yield from (f"{sign} {label}{text}" for sign, text in zip("-+", shown, strict=True) if text)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _show_pair(old: Any, new: Any) -> tuple[str, str]:
    """Return two values as text, without what they have in common at both ends."""
    first, second = ("" if one is _ABSENT else _write(one) for one in (old, new))
    if isinstance(old, str) and isinstance(new, str):
        start = _common(first, second)
        end = _common(first[start:][::-1], second[start:][::-1])
        cut = max(0, start - CONTEXT_CHARS), max(0, end - CONTEXT_CHARS)
        first, second = (
            f"{'…' if cut[0] else ''}{text[cut[0] : len(text) - cut[1]]}{'…' if cut[1] else ''}"
            for text in (first, second)
        )
        if _appearance(first) == _appearance(second):
            first, second = ascii(first), ascii(second)
    return _cut(first), _cut(second)


def _appearance(text: str) -> str:
    """Return a text without what cannot be seen: invisible characters, and other ways to encode the
    same characters."""
    return normalize("NFKC", strip_unsafe(text))


def _common(first: str, second: str) -> int:
    """Return the number of characters that two texts have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _cut(text: str) -> str:
    if len(text) <= MAX_VALUE_CHARS:
        return text
    half = MAX_VALUE_CHARS // 2
    return f"{text[:half]} … ({len(text) - 2 * half} more characters) … {text[-half:]}"
