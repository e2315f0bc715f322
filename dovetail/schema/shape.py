"""`Shape`: a compiled Python type.

A shape uses one of two engines with the same interface: `MsgspecEngine`, or `PydanticEngine` if the
walk over the type found a pydantic type. A value that fits is decoded by the engine alone.

Other readings of the value are tried only if decoding fails. For example, 3.0 is an integer to JSON
Schema and to models, but not to msgspec. If the caller allows it, a string may also contain a
value. If no reading fits, the engine explains why.
"""

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from ..errors import SchemaError
from .codec import (
    DECODE_ERRORS,
    Unencodable,
    convert,
    decoder,
    describe_value,
    encode,
    type_name,
)
from .json_schema import Defs, Schema, accepts_string, inline_definitions, repair_strings
from .walk import NeedsPydantic, TypeWalk, read_notes, unwrap

_REFUSALS: dict[type, str] = {
    NameError: "{label} cannot be used: it refers to {error.name}, which is not defined at the "
    "top level of its module",
    RecursionError: "{label} is an alias that refers to itself; use a class instead",
}
"""Error messages for the authors of types. For other errors, the first line is shown."""


class TypeMismatch(ValueError):
    """A value that does not fit its type. Each problem has a path into the value and a
    description."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(self.sentences("")))

    def sentences(self, name: str) -> list[str]:
        """Return the problems as sentences about a value with this name."""
        places = [(f"{name}{path}".lstrip("."), what) for path, what in self.problems]
        return [f"`{place}` {what}" if place else f"The value {what}" for place, what in places]


class Shape:
    """A compiled type.

    `native` is the type to pass to a msgspec decoder. It is `Raw` if the value is decoded later, by
    this class.
    """

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        try:
            self.description: str | None = read_notes(unwrap(annotation)[1]).get("description")
            self._engine = _engine(annotation)
        except SchemaError:
            raise
        except (
            Exception
        ) as error:  # any library may refuse the type; the author sees one type of error
            text = _REFUSALS.get(type(error), "{label} cannot be used: {reason}")
            reason = str(error).partition("\n")[0]
            raise SchemaError(
                text.format(label=type_name(annotation), error=error, reason=reason)
            ) from error
        self.native: Any = self._engine.native
        self.parts = self._engine.schema
        """The schema as a root and its definitions, for `merge_definitions` and
        `inline_definitions`."""
        self.encode: Callable[[Any], bytes] = self._engine.encode
        """Encode a value as JSON; raise Unencodable if it cannot be converted."""

    @classmethod
    def of(cls, annotation: Any) -> "Shape":
        """Return the cached shape of a type, or compile it."""
        try:
            # The spelling is part of the key: `date | str` equals `str | date`, but prefers a
            # different member.
            return _cached(annotation, repr(annotation))
        except TypeError:  # a note that cannot be hashed
            return cls(annotation)

    def __repr__(self) -> str:
        return f"Shape({type_name(self.annotation)})"

    @cached_property
    def schema(self) -> Schema:
        """The JSON schema (2020-12) of the values that `decode` accepts."""
        return self._with_description(self.parts)

    @cached_property
    def output_schema(self) -> Schema:
        """The JSON schema of the values that `encode` produces. It differs from `schema` only for
        pydantic types."""
        return self._with_description(self._engine.output_schema)

    @cached_property
    def accepts_string(self) -> bool:
        """Whether a JSON string can be a value of this type."""
        return accepts_string(*self.parts)

    def _with_description(self, parts: tuple[Schema, Defs]) -> Schema:
        return inline_definitions(*parts) | (
            {"description": self.description} if self.description else {}
        )

    def decode(self, data: bytes | Raw) -> Any:
        """Decode JSON bytes; raise TypeMismatch if the value does not fit."""
        try:
            return self._engine.decode(data)
        except (self._engine.failure, *DECODE_ERRORS):
            pass
        try:
            value = msgspec.json.decode(data)
        except DECODE_ERRORS as error:
            raise TypeMismatch([("", f"is not valid JSON: {error}")]) from None
        return self.convert(value)

    def repair(self, value: Any) -> Any:
        """Return a value with strings replaced by the JSON that they contain, at every depth,
        where this type does not accept a string."""
        return _integral(repair_strings(value, *self.parts))

    def convert(self, value: Any, *, strings: bool = False) -> Any:
        """Convert a value that was decoded from JSON.

        With `strings`, a string may also contain the value as JSON, or be the text of a number or
        boolean: prompt arguments and URI variables are always strings.
        """
        problems: list[tuple[str, str]] = []
        for reading, strict in _readings(value, strings):
            try:
                return self._engine.convert(reading, strict)
            except self._engine.failure as error:
                # Do not report problems of text that was only tried as something else.
                if not problems or not isinstance(value, str) or isinstance(reading, (dict, list)):
                    problems = self._engine.explain(error, reading)
        raise TypeMismatch(problems)


@lru_cache(256)
def _cached(annotation: Any, spelling: str) -> Shape:
    return Shape(annotation)


class MsgspecEngine:
    failure: type[Exception] = msgspec.ValidationError
    encode = staticmethod(encode)

    def __init__(self, hint: Any) -> None:
        walk = TypeWalk()
        schema, native = walk.type(hint)
        self.schema = self.output_schema = (schema, walk.defs)
        self.native = hint if walk.plain else native
        try:
            self.decode: Callable[[bytes | Raw], Any] = decoder(self.native).decode
        except TypeError:  # it contains a union whose members msgspec cannot tell apart
            self.native = native
            self.decode = decoder(native).decode

    def convert(self, value: Any, strict: bool = True) -> Any:
        return convert(value, self.native, strict)

    def explain(self, error: Exception, value: Any) -> list[tuple[str, str]]:
        from .explain import explain

        return [explain(error, value, *self.schema)]


class PydanticEngine:
    """An engine that decodes with pydantic. msgspec sees the type as `Raw`, so it leaves the bytes
    unchanged.

    Values always pass through JSON, even if they are already decoded, because pydantic applies
    different rules to Python values. The messages of pydantic are kept; only the path is rewritten
    in our notation.
    """

    native = Raw

    def __init__(self, hint: Any) -> None:
        from pydantic import TypeAdapter, ValidationError

        self.failure: type[Exception] = ValidationError
        self.adapter: Any = TypeAdapter(hint)
        self.schema = self._schema("validation")
        self.output_schema = self._schema("serialization")

    def _schema(self, mode: str) -> tuple[Schema, Defs]:
        schema = self.adapter.json_schema(mode=mode)
        return schema, schema.pop("$defs", {})

    def decode(self, data: bytes | Raw) -> Any:
        """Decode JSON bytes."""
        return self.adapter.validate_json(bytes(data))

    def convert(self, value: Any, strict: bool = True) -> Any:
        """Convert a value that was decoded from JSON."""
        return self.adapter.validate_json(encode(value))

    def encode(self, value: Any) -> bytes:
        """Encode a value as JSON."""
        try:
            return bytes(self.adapter.dump_json(value, by_alias=True, warnings=False))
        except (ValueError, TypeError, RecursionError) as error:
            raise Unencodable(
                f"{type(value).__qualname__} cannot be written as JSON: {error}"
            ) from error

    def explain(self, error: Any, value: Any) -> list[tuple[str, str]]:
        """Return the problems that pydantic found, in its own words."""
        problems = []
        for row in error.errors():
            path, here, missing = "", value, row["type"] == "missing"
            for step in row["loc"][:-1] if missing else row["loc"]:
                # Steps that are not in the value name the union member that was tried.
                if isinstance(here, list) and isinstance(step, int):
                    path, here = f"{path}[{step}]", here[step]
                elif isinstance(here, dict) and step in here:
                    path, here = f"{path}.{step}", here[step]
            text = row["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            should = text.removeprefix("Input should ")
            if missing:
                problems.append((f"{path}.{row['loc'][-1]}", "is missing"))
            elif should != text:
                problems.append((path, f"must {should}, got {describe_value(row['input'])}"))
            else:
                problems.append((path, f"is not valid: {text}"))
        return problems


def _engine(hint: Any) -> MsgspecEngine | PydanticEngine:
    try:
        return MsgspecEngine(hint)
    except NeedsPydantic:
        return PydanticEngine(hint)


def _readings(value: Any, strings: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the readings of a value, most likely first, and whether each reading is strict."""
    yield value, True
    if not isinstance(value, str):
        yield _integral(value), True
    elif strings:
        try:
            parsed = msgspec.json.decode(value)
        except DECODE_ERRORS:
            pass
        else:
            yield parsed, True
            yield _integral(parsed), True
        yield value, False


def _integral(value: Any) -> Any:
    """Return the value with whole floats as integers (3.0 as 3), within the range in which floats
    are exact."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= 2**53 else value
    if isinstance(value, list):
        return [_integral(item) for item in value]
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in value.items()}
    return value
