"""Encode and decode values of any type as JSON, with msgspec and hooks for the types that it does
not support.

Decoding: the hook handles the classes of pathlib, and stand-ins, which are deliberately classes
that msgspec does *not* support. So msgspec hands the plain value to `decode_hook`, and the stand-in
builds the real value. A union that msgspec refuses becomes a stand-in that tries its members in
order (`union_stand_in`); a class with fields becomes a stand-in if one of its parts needs a
stand-in (`walk.record_stand_in`).

Encoding: the hook handles paths, pydantic models and other collections. The module of a class shows
which library it comes from, so no library has to be imported.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Set
from typing import Any, get_args

import msgspec

DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)
"""Errors that decoding raises for bytes that are not JSON."""


class Unencodable(TypeError):
    """A value that cannot be converted to JSON. The message names the value's type."""


class StandIn(type):
    """The metaclass of stand-ins. msgspec requires the hook's result to be an instance, so every
    value counts as an instance."""

    build: Callable[[Any], Any]
    keys: Set[str] | None

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


def stand_in(build: Callable[[Any], Any], keys: Set[str] | None = None) -> StandIn:
    """Return a type whose values `build` creates. `keys` are its known object keys, if any."""
    return StandIn("StandIn", (), {"build": staticmethod(build), "keys": keys})


def union_stand_in(members: list[Any]) -> StandIn:
    """Return a stand-in for a union that msgspec refuses: the first member that accepts the value
    is used."""

    def build(value: Any) -> Any:
        def strange(member: Any) -> int:
            known = member.keys if isinstance(member, StandIn) and isinstance(value, dict) else None
            return 0 if known is None else len(value.keys() - known)

        errors = []
        # Try the class that knows most of the keys first; other classes would silently drop some.
        for member in sorted(members, key=strange):
            try:
                return convert(value, member)
            except msgspec.ValidationError as error:
                errors.append(error)
        raise errors[0] if isinstance(value, dict) else msgspec.ValidationError("Expected `union`")

    return stand_in(build)


def decode_hook(type_: Any, value: Any) -> Any:
    """Decode a type that only this module supports (msgspec's `dec_hook`)."""
    try:
        return type_.build(value) if isinstance(type_, StandIn) else type_(convert(value, str))
    except msgspec.ValidationError as error:
        raise ValueError(
            str(error)
        ) from None  # the only exception to which msgspec adds the outer path


def decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """Return a JSON decoder for a type made of `Shape.native` parts."""
    return msgspec.json.Decoder(type_, dec_hook=decode_hook)


def convert(value: Any, type_: Any, strict: bool = True) -> Any:
    """Convert a value that was decoded from JSON."""
    return msgspec.convert(value, type_, strict=strict, str_keys=True, dec_hook=decode_hook)


def _encode_hook(value: Any) -> Any:
    """Encode a type that msgspec does not support (its `enc_hook`)."""
    # msgspec encodes these, but not as keys
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        raise Unencodable(f"A {type(value).__qualname__} cannot be used as a JSON key")
    if is_pydantic(value):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value, by_alias=True)
    if top_package(type(value)) == "pathlib":
        return str(value)
    if isinstance(value, Collection):
        return dict(value) if isinstance(value, Mapping) else list(value)
    raise Unencodable(
        f"{type(value).__qualname__} cannot be converted to JSON; use a built-in type or a class "
        "with fields"
    )


_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)


def encode(value: Any) -> bytes:
    """Encode any value as JSON; raise Unencodable if it cannot be converted."""
    try:
        return _encoder.encode(value)
    except Unencodable:
        raise
    except RecursionError as error:
        raise Unencodable(
            f"{type(value).__qualname__} contains itself, or is nested too deeply for JSON"
        ) from error
    except (TypeError, ValueError) as error:  # a key that is not a string, a lone surrogate
        raise Unencodable(
            f"{type(value).__qualname__} cannot be written as JSON: {error}"
        ) from error


def describe_value(value: Any) -> str:
    """Describe a value in words: `the string "three"`."""
    if isinstance(value, (dict, list)):
        kind, parts = ("object", "entries") if isinstance(value, dict) else ("array", "items")
        return f"an {kind} of {len(value)} {parts}" if value else f"an empty {kind}"
    try:
        text = encode(value).decode()
    except Unencodable:
        return f"a value of type {type(value).__name__}"
    text = f"{text[:60]}…{text[-1]}" if len(text) > 80 else text
    return f"the string {text}" if isinstance(value, str) else text


def top_package(cls: Any) -> str:
    """Return the top-level package in which a class is defined."""
    return str(getattr(cls, "__module__", "")).partition(".")[0]


def is_pydantic(thing: Any) -> bool:
    """Return whether pydantic must handle this type or this annotation."""
    return "pydantic" in sys.modules and (
        hasattr(thing, "__get_pydantic_core_schema__")
        or hasattr(thing, "__pydantic_validator__")
        or top_package(type(thing)) == "pydantic"
    )


def type_name(hint: Any) -> str:
    """Return a type as a person would write it."""
    return hint.__qualname__ if isinstance(hint, type) and not get_args(hint) else str(hint)
