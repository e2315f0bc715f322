"""Forms: what a server may ask a user for in the client's own interface, and what comes back.

A form is one flat object. Its fields are text, numbers, yes or no, one of several choices, or some
of several choices; the protocol has nothing else. `Form.of` makes one of a type (any class with
fields, or one bare field such as `bool` or `Literal["a", "b"]`, which travels as `{"value": …}`) or
of a JSON schema that is such a form already.

The subset of JSON Schema is written down once, in `_KINDS` and `_Field`: which keywords a kind of
field has, and what its answers are. A schema that is given must be just that. The schema of a type
is flattened first (`_flattened`): what may be null is not required, and what a form cannot say
(patterns, UUIDs, open bounds) is left out. So an answer is checked twice, by the form as the client
saw it and then by the type; people are slow.

An Enum whose members all have a `label` is shown by these labels. A schema says the same by `oneOf`
(by `anyOf` in a list) with `const` and `title`, or by the older `enumNames`.

Secrets must not be asked for by form, since the client and its model would see them:
https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#form-mode-security. A
field that looks like one by its name or title is refused (`_SECRET`), and so is a bare one by the
message that it comes with; yes or no and choices never do.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from math import ceil, floor
from typing import (
    Annotated,
    Any,
    Literal,
    get_args,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..errors import ConfigError, InvalidParams, SchemaError
from ..schema import Schema, Shape, TypeMismatch, default_schema, describe_value
from ..schema.json_schema import Defs, resolve_ref
from ..schema.walk import read_record, unwrap

Check = Callable[[Any], Any]
"""Gives the value of an answer, or raises TypeMismatch."""

BARE = "value"
"""What the only field is called where no class names it."""


class Form:
    """A form, compiled: `schema` is what the client is sent, `accept` reads what it sends back."""

    __slots__ = ("_checks", "_make", "schema")

    def __init__(
        self, schema: Schema, checks: dict[str, Check], make: Callable[[dict[str, Any]], Any]
    ) -> None:
        self.schema = schema
        self._checks = checks
        self._make = make

    @staticmethod
    def of(wanted: Any) -> "Form":
        """The form for a type or for a JSON schema; None asks for nothing but consent."""
        if wanted is None or isinstance(wanted, dict):
            return _given({"type": "object", "properties": {}} if wanted is None else wanted)
        try:
            return _known(wanted, repr(wanted))  # by its spelling too, as in Shape.of
        except TypeError:  # a note that cannot be hashed
            return _typed(wanted)

    def labelled(self, message: str) -> "Form":
        """The same, to be shown with this message, which is all that a bare field has for a
        title."""
        if self.schema["properties"].keys() == {BARE}:
            _checker(BARE, self.schema["properties"][BARE] | {"title": message})
        return self

    def accept(self, content: Any) -> Any:
        """The data in an answer, with defaults for what is missing; InvalidParams naming each field
        that is wrong."""
        if not isinstance(content, dict | None):
            raise InvalidParams(
                f"The form must be answered with an object, got {describe_value(content)}"
            )
        values: dict[str, Any] = {}
        problems: list[str] = []
        for name, check in self._checks.items():
            field = self.schema["properties"][name]
            value = (content or {}).get(
                name, field.get("default")
            )  # null is what was cleared, and has no default
            if field["type"] == "array" and isinstance(value, str):
                # What is typed in where the client's revision has no lists of choices.
                value = [part.strip() for part in value.split(",") if part.strip()]
            try:
                if value is not None:
                    values[name] = check(value)
                elif name in self.schema.get("required", ()):
                    problems.append(f"`{name}` is missing")
            except TypeMismatch as mismatch:
                problems += mismatch.sentences(name)
        try:
            data = None if problems else self._make(values)
        except TypeMismatch as mismatch:
            problems = mismatch.sentences("")
        except Exception as error:  # whatever the author's own class has against the values
            problems = [str(error) or type(error).__name__]
        if problems:
            raise InvalidParams(f"The form was not filled in as asked: {'; '.join(problems)}")
        return data


# --------------------------------------------------------------------------------------------------
# the subset

_KINDS = {
    ("string", None): {"minLength", "maxLength", "format"},
    ("string", "enum"): {"enum", "enumNames"},
    ("string", "oneOf"): {"oneOf"},
    ("array", "enum"): {"items", "minItems", "maxItems"},
    ("array", "anyOf"): {"items", "minItems", "maxItems"},
    ("number", None): {"minimum", "maximum"},
    ("integer", None): {"minimum", "maximum"},
    ("boolean", None): set[str](),
}
"""The kinds of fields, by their type and by the keyword that lists their choices; and what each has
besides `_ALL`."""
_ALL = {"type", "title", "description", "default"}
_ITEMS = {"enum": {"type", "enum"}, "anyOf": {"anyOf"}}
"""What the items of a list have, by the same keyword."""
_IN_WORDS = (
    "a field is text, a number, yes or no, one of several strings (Literal, Enum), or "
    "a list of such choices"
)

_TYPES = {"string": str, "number": float, "integer": int, "boolean": bool}

_Count = Annotated[int, Meta(ge=0)] | UnsetType
_Values = Annotated[list[str], Meta(min_length=1)] | UnsetType


class _Option(Struct, forbid_unknown_fields=True):
    const: str
    title: str


class _Choices(Struct, rename="camel", kw_only=True):
    """Whatever lists choices: a field, or the items of one."""

    type: str = ""
    enum: _Values = UNSET
    one_of: Annotated[list[_Option], Meta(min_length=1)] | UnsetType = UNSET
    any_of: Annotated[list[_Option], Meta(min_length=1)] | UnsetType = UNSET

    def values(self) -> Any:
        """The choices as a type."""
        titled = self.one_of or self.any_of or []
        return Literal[tuple(self.enum or [option.const for option in titled])]


class _Field(_Choices):
    """Every keyword that a field may have."""

    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    format: Literal["email", "uri", "date", "date-time"] | UnsetType = UNSET
    enum_names: _Values = UNSET
    items: _Choices | UnsetType = UNSET
    minimum: int | float | UnsetType = UNSET
    maximum: int | float | UnsetType = UNSET
    min_length: _Count = UNSET
    max_length: _Count = UNSET
    min_items: _Count = UNSET
    max_items: _Count = UNSET

    def answers(self) -> Any:
        """The type of its answers."""
        if self.items:
            items: Any = list[self.items.values()]  # type: ignore[misc]
            return _bounded(items, min_length=self.min_items, max_length=self.max_items)
        if self.enum or self.one_of:
            return self.values()
        least: Any = self.minimum
        most: Any = self.maximum
        if self.type == "integer":
            least, most = least and ceil(least), most and floor(most)
        limits = {
            "min_length": self.min_length,
            "max_length": self.max_length,
            "ge": least,
            "le": most,
        }
        return _bounded(_TYPES[self.type], **limits)


def _bounded(base: Any, **limits: Any) -> Any:
    """A type with those limits that are set."""
    limits = {name: limit for name, limit in limits.items() if limit is not UNSET}
    least, *most = limits.values() or [0]
    if most and least > most[0]:
        raise SchemaError(f"nothing is at least {least} and at most {most[0]}")
    return Annotated[base, Meta(**limits)] if limits else base


def _read(schema: Any) -> _Field:
    """A field, if the schema is one."""
    if not isinstance(schema, dict):
        raise SchemaError(f"a schema is an object, not {describe_value(schema)}")
    listing = schema.get("items") if schema.get("type") == "array" else schema
    listing = listing if isinstance(listing, dict) else {}
    by = next((word for word in ("enum", "oneOf", "anyOf") if word in listing), None)
    words = _KINDS.get((str(schema.get("type")), by))
    if words is None:
        raise SchemaError(_IN_WORDS)
    unknown = sorted(schema.keys() - words - _ALL)
    if unknown:
        raise SchemaError(f"{', '.join(unknown)} cannot be said there; {_IN_WORDS}")
    if "items" in words and (
        listing.keys() != _ITEMS[str(by)] or listing.get("type", "string") != "string"
    ):
        raise SchemaError(f"items are strings, with just type and enum, or just anyOf; {_IN_WORDS}")
    field: _Field = Shape.of(_Field).convert(schema)
    if field.enum_names and len(field.enum_names) != len(field.enum or ()):
        raise SchemaError("it must have as many enumNames as values")
    return field


def _checker(name: str, schema: Any) -> Check:
    """Compile a field; SchemaError or ConfigError where a form cannot have it."""
    if isinstance(schema, dict) and schema.get("format") == "password":
        raise _no_secrets(name, "a password")
    try:
        field = _read(schema)
        shape = Shape(field.answers())
    except (TypeMismatch, SchemaError) as error:
        raise SchemaError(f"Field `{name}` cannot be in a form: {error}") from None
    typed_in = not (field.items or field.enum or field.one_of or field.type == "boolean")
    secret = next(filter(None, map(_secret, (name, field.title or ""))), None) if typed_in else None
    if secret:
        raise _no_secrets(name, f"a secret ({secret})")
    wanted, fits = _FORMATS.get(field.format or "", ("", bool))

    def check(value: Any) -> Any:
        converted = shape.convert(value)
        if wanted and not fits(value):
            raise TypeMismatch([("", f"must be {wanted}, got {describe_value(value)}")])
        return value if field.type == "number" else converted  # 30 stays 30

    return check


_FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "email": ("an email address", re.compile(r"[^@\s]+@[^@\s]+").fullmatch),
    "uri": (
        "a URI like https://example.com",
        re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S+").fullmatch,
    ),
    "date": ("a date like 2026-07-28", lambda text: _converts(text, date)),
    "date-time": (
        "a time like 2026-07-28T12:00:00Z",
        lambda text: _converts(text, Annotated[datetime, Meta(tz=True)]),
    ),
}


def _converts(text: str, to: Any) -> bool:
    try:
        msgspec.convert(text, to)
    except msgspec.ValidationError:
        return False
    return True


# --------------------------------------------------------------------------------------------------
# no secrets

_SECRET = re.compile(
    r"\b(\w*pass(?:word|wd|phrase|code)s?|\w*secrets?|credentials?|\w*token|(?:access|auth|bearer|refresh|session) ?tokens"  # noqa: E501
    r"|otp|pin|ssn|cvv|cvc|(?:api|access|private|secret|signing|encryption|ssh) ?keys?|(?:seed|recovery) ?(?:phrase|words?)"  # noqa: E501
    r"|(?:recovery|backup|security|mfa|2fa|totp|verification|authentication|one time) ?codes?"
    r"|(?:credit|debit|payment) ?card|card ?number)\d*\b"
    r"(?! (?:count|limit|length|size|budget|name|type|kind|brand|id|symbol|hint|policy|manager|expiry)\b)"  # noqa: E501
)
"""Words for what grants access or authorizes payments; not where the next word makes them harmless
(`token_count`)."""
_BETWEEN_WORDS = re.compile(r"(?<=[a-z\d])(?=[A-Z])|[\W_]+")


def _secret(text: str) -> str | None:
    """The word in a name or title that means a secret."""
    found = _SECRET.search(_BETWEEN_WORDS.sub(" ", text).lower())
    return found[1] if found else None


def _no_secrets(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"Field `{name}` of the form looks like {what}, which must not be asked for by form, "
        "since the client and its model "
        "would see it; use ctx.elicit_url with a page of your own, or give the field another name"
    )


# --------------------------------------------------------------------------------------------------
# from a schema

_ROOT = {"type", "properties", "required", "$schema"}
_ROOT_UNSENT = {"title", "description", "additionalProperties"}
"""What generators of schemas write, and forms do not have."""


def _given(schema: Schema) -> Form:
    """The form that a schema is, if it is one."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise SchemaError('The schema of a form must have "type": "object" and "properties"')
    if unknown := schema.keys() - _ROOT - _ROOT_UNSENT:
        raise SchemaError(
            f"The schema of a form cannot have {', '.join(map(repr, sorted(unknown)))} "
            "besides its properties"
        )
    if not isinstance(required, list) or not set(map(str, required)) <= properties.keys():
        raise SchemaError(
            f"The schema of a form must list names of its properties as required, not {required!r}"
        )
    checks = {name: _checker(name, field) for name, field in properties.items()}
    for name, field in properties.items():
        try:
            if "default" in field:
                checks[name](field["default"])
        except TypeMismatch as mismatch:
            raise SchemaError(
                f"The default of field `{name}` does not fit it: {mismatch.sentences(name)[0]}"
            ) from None
    return Form({key: value for key, value in schema.items() if key in _ROOT}, checks, dict)


# --------------------------------------------------------------------------------------------------
# from a type


@lru_cache(256)
def _known(wanted: Any, spelling: str) -> Form:
    return _typed(wanted)


def _typed(wanted: Any) -> Form:
    """The form that asks for a value of a type."""
    parts = _parts(wanted)
    fields: dict[str, Schema] = {}
    checks: dict[str, Check] = {}
    nulls: dict[str, None] = {}
    for name, schema in parts.properties.items():
        field, nullable = _flattened(schema, parts.defs, parts.hints.get(name))
        default = field.pop("default", None)
        fields[name], checks[name] = field, _checker(name, field)
        if default is not None and _fits(
            default, checks[name]
        ):  # else the class has it, but no user is shown it
            field["default"] = default
        if nullable and name in parts.required:
            nulls[name] = None
    required = [name for name in parts.required if name not in nulls]
    form = {"type": "object", "properties": fields} | ({"required": required} if required else {})
    return Form(form, checks, lambda values: parts.make(nulls | values))


class _Parts(Struct):
    """A type as the fields to ask for, and how a value is made of them."""

    properties: dict[str, Schema]
    required: list[str]
    defs: Defs
    hints: dict[str, Any]
    make: Callable[[dict[str, Any]], Any]


def _parts(wanted: Any) -> _Parts:
    base = unwrap(wanted)[0]
    if isinstance(base, type) and issubclass(base, tuple) and hasattr(base, "_field_defaults"):
        return _parts_of_tuple(base)
    shape = Shape.of(wanted)
    schema = shape.schema
    defs = schema.get("$defs", {})
    if "properties" not in schema:
        return _Parts(
            {BARE: schema}, [BARE], defs, {BARE: wanted}, lambda values: shape.convert(values[BARE])
        )
    record = read_record(base)
    hints = (
        {field.wire: field.hint for field in record.fields}
        if record
        else get_type_hints(base, include_extras=True)
    )
    return _Parts(schema["properties"], schema.get("required", []), defs, hints, shape.convert)


def _parts_of_tuple(base: Any) -> _Parts:
    """Of a named tuple, which is an array to JSON but has names to ask for."""
    hints = get_type_hints(base, include_extras=True)
    shapes = {name: Shape.of(hints.get(name, Any)) for name in base._fields}
    defaults = {name: default_schema(default) for name, default in base._field_defaults.items()}
    defs = {
        key: value
        for shape in shapes.values()
        for key, value in shape.schema.get("$defs", {}).items()
    }

    def make(values: dict[str, Any]) -> Any:
        return base(**{name: shapes[name].convert(value) for name, value in values.items()})

    properties = {name: shape.schema | defaults.get(name, {}) for name, shape in shapes.items()}
    return _Parts(properties, [name for name in shapes if name not in defaults], defs, hints, make)


_UNSAID = {
    "pattern", "multipleOf", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "examples",
    "writeOnly", "deprecated", "$defs",
}  # fmt: skip
"""What the schema of a type may say and a form cannot; the type itself will see to it."""

_CLOSED: dict[str, tuple[str, Callable[[float], int]]] = {
    "exclusiveMinimum": ("minimum", lambda bound: floor(bound) + 1),
    "exclusiveMaximum": ("maximum", lambda bound: ceil(bound) - 1),
}
"""Open bounds as those that integers have just as well."""


def _flattened(schema: Schema, defs: Defs, hint: Any) -> tuple[Schema, bool]:
    """The schema of a type as a field, as far as it can be one, and whether it may be null."""
    schema = resolve_ref(schema, defs)
    options = schema.get("anyOf", [])
    others = [option for option in options if option.get("type") != "null"]
    if len(others) == 1 < len(options):
        schema = resolve_ref(others[0], defs) | {
            key: value for key, value in schema.items() if key != "anyOf"
        }
    if schema.get("type") == "integer":
        schema = {
            word: nearest(schema[open])
            for open, (word, nearest) in _CLOSED.items()
            if open in schema
        } | schema
    field: Schema = {key: value for key, value in schema.items() if key not in _UNSAID}
    if field.get("format", "password") not in (*_FORMATS, "password"):
        del field["format"]
    if isinstance(field.get("items"), dict):
        items = resolve_ref(field["items"], defs)
        field["items"] = _choices(
            {key: items[key] for key in ("type", "enum", "const") if key in items}, "anyOf", hint
        )
    return _choices(field, "oneOf", hint), len(others) < len(options)


def _choices(schema: Schema, titled: str, hint: Any) -> Schema:
    """The choices in a schema by their labels, where they have some."""
    if "const" in schema:
        schema = schema | {"enum": [schema["const"]]}
        del schema["const"]
    labels = next(_labels(hint), None) if "enum" in schema else None
    if not labels:
        return schema
    rest = {
        key: value
        for key, value in schema.items()
        if key != "enum" and (key, titled) != ("type", "anyOf")
    }
    return rest | {titled: [{"const": value, "title": labels[value]} for value in schema["enum"]]}


def _labels(hint: Any) -> Iterator[dict[Any, str]]:
    """The labels of the Enums in a type."""
    base = unwrap(hint)[0]
    if isinstance(base, type) and issubclass(base, Enum):
        labels = {member.value: getattr(member, "label", None) for member in base}
        if all(isinstance(label, str) for label in labels.values()):
            yield labels  # type: ignore[misc]  # they are strings
    for inner in get_args(base):
        yield from _labels(inner)


def _fits(value: Any, check: Check) -> bool:
    try:
        check(value)
    except TypeMismatch:
        return False
    return True
