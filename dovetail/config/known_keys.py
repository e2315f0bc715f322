"""Convert an object from a configuration file, and explain what is wrong with it.

The object belongs to Dovetail alone, so an unknown key is a mistake. The error names the most
similar key that exists. Messages name keys, and never repeat a value.
"""

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from ..text import closest_name, one_line

MAX_KEY_CHARS = 60
T = TypeVar("T", bound=Struct)


class InvalidObject(ValueError):
    """An object does not have the keys and types that it should have."""


def convert_known(value: Any, type_: type[T], what: str) -> T:
    """Return an object as a struct. A null counts as absent.

    Args:
        value: The decoded object.
        type_: The struct.
        what: What the object is, for messages.

    Raises:
        InvalidObject: The value is not an object, a key is unknown, or a value has the wrong type.
    """
    if not isinstance(value, Mapping):
        raise InvalidObject(f"{what} must be an object")
    known = {field.encode_name: field for field in fields(type_)}
    present = {str(key): item for key, item in value.items() if item is not None}
    for key, item in present.items():
        if key not in known:
            raise InvalidObject(f"{what} has the unknown key {_quote(key)}. {advise(key, known)}")
        choices = _choices(known[key].type)
        if choices and not (isinstance(item, str) and item in choices):
            raise InvalidObject(f"{what} has an unknown {_quote(key)}. {advise(item, choices)}")
    for key, field in known.items():
        if field.required and key not in present:
            advice = _list(_choices(field.type))
            raise InvalidObject(f"{what} has no {_quote(key)}. {advice}".strip())
    try:
        return msgspec.convert(present, type_)
    except msgspec.ValidationError as error:
        raise InvalidObject(f"{what} is not valid: {error}") from None


def advise(given: Any, known: Iterable[str]) -> str:
    """Return a sentence that names the known word that is closest to a given one, or all of them.

    Args:
        given: What the file contains.
        known: The words that are allowed.
    """
    close = closest_name(given, known) if isinstance(given, str) else None
    if close is not None:
        return f"Did you mean {_quote(close)}?"
    return _list(known)


def _list(known: Iterable[str]) -> str:
    words = ", ".join(map(_quote, known))
    return f"Use one of {words}." if words else ""


def _quote(text: str) -> str:
    return f'"{one_line(text, MAX_KEY_CHARS)}"'


def _choices(type_: Any) -> tuple[str, ...]:
    """Return the values that a `Literal`, or an optional one, allows."""
    options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    return next((get_args(one) for one in options if get_origin(one) is Literal), ())
