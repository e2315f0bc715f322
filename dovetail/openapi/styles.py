"""How parameters and form fields are written: `style` and `explode` of OpenAPI.

Values are percent-encoded here, because separators between values must not be. A value in a path is
one segment: it cannot add a slash, a query or a fragment.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

Encode: TypeAlias = Callable[[str], str]
Pairs: TypeAlias = list[tuple[str, str]]
"""Names and values, both encoded."""

RESERVED: Final = ":/?@!$'()*,;"
"""Characters that `allowReserved` leaves as they are, except those that would end the value."""


class PathStyle(NamedTuple):
    """How a value in a path is written."""

    prefix: str
    separator: str
    """What separates the parts of an exploded value."""
    is_named: bool


PATH_STYLES: Final[Mapping[str, PathStyle]] = {
    "simple": PathStyle("", ",", False),
    "label": PathStyle(".", ".", False),
    "matrix": PathStyle(";", ";", True),
}
DELIMITERS: Final[Mapping[str, str]] = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
"""What separates the items of a list in a query; a comma for other styles."""


def percent_encode(text: str) -> str:
    """Encode everything except letters, digits and `-._~`."""
    return quote(text, safe="")


def encode_reserved(text: str) -> str:
    """Encode a value of a parameter with `allowReserved`."""
    return quote(text, safe=RESERVED)


def write_scalar(value: Any) -> str:
    """Return a value as text: a string unchanged, null as an empty text, others as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else write_json(value)


def write_json(value: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value).decode()


def write_simple(
    name: str, value: Any, style: str, explode: bool, encode: Encode = percent_encode
) -> str:
    """Return a value for a path or a header.

    Args:
        name: The name of the parameter.
        value: The value.
        style: `simple`, `label` or `matrix`.
        explode: Whether each item or entry is written separately.
        encode: How texts are encoded.
    """
    chosen = PATH_STYLES.get(style, PATH_STYLES["simple"])
    joined = chosen.separator if explode else ","
    if isinstance(value, Mapping):
        equals = "=" if explode else ","
        parts = [f"{encode(key)}{equals}{encode(write_scalar(one))}" for key, one in value.items()]
        has_name = chosen.is_named and not explode
    else:
        items = value if isinstance(value, list) else [value]
        parts = [encode(write_scalar(item)) for item in items]
        has_name = chosen.is_named
        if has_name and explode:
            return "".join(f"{chosen.prefix}{encode(name)}={part}" for part in parts)
    return chosen.prefix + (f"{encode(name)}=" if has_name else "") + joined.join(parts)


def write_pairs(
    name: str, value: Any, style: str, explode: bool, encode: Encode = percent_encode
) -> Pairs:
    """Return a value for a query, a cookie or a form. Null and empty containers are left out.

    Args:
        name: The name of the parameter or field.
        value: The value.
        style: `form`, `spaceDelimited`, `pipeDelimited` or `deepObject`.
        explode: Whether each item or entry becomes a separate pair.
        encode: How values are encoded.
    """
    if value is None or value in ({}, []):
        return []
    if style == "deepObject" and isinstance(value, Mapping | list):
        return list(_deep_pairs(percent_encode(name), value, encode))
    key = percent_encode(name)
    if isinstance(value, Mapping):
        if explode:
            return [
                (percent_encode(inner), encode(write_scalar(one)))
                for inner, one in value.items()
                if one is not None
            ]
        parts = [encode(write_scalar(one)) for pair in value.items() for one in pair]
    elif isinstance(value, list):
        parts = [encode(write_scalar(item)) for item in value]
        if explode:
            return [(key, part) for part in parts]
    else:
        return [(key, encode(write_scalar(value)))]
    return [(key, DELIMITERS.get(style, ",").join(parts))]


def _deep_pairs(name: str, value: Any, encode: Encode) -> Iterator[tuple[str, str]]:
    """Write nested values as `name[key][key]`. Lists of plain values are written as `name[]`, and
    lists of objects or lists by index, because `name[][key]` would be ambiguous."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _deep_pairs(f"{name}[{percent_encode(key)}]", one, encode)
    elif isinstance(value, list):
        is_plain = not any(isinstance(item, Mapping | list) for item in value)
        for index, item in enumerate(value):
            yield from _deep_pairs(f"{name}[{'' if is_plain else index}]", item, encode)
    elif value is not None:
        yield name, encode(write_scalar(value))
