"""Forms that ask a user for input in the client's interface, and the answers to them.

A form is one flat object. Its fields are text, numbers, booleans, single choices or multiple
choices; the protocol supports nothing else. `Form.of` creates a form from a type or from a JSON
schema that already describes a form. The type is any class with fields, or the type of an
individual field, such as `bool` or `Literal["a", "b"]`, which is sent as `{"value": …}`.

The subset of JSON Schema is defined in `_KEYWORDS` and `_FieldSchema`: the keywords for each kind
of field, and the type of its answers. A schema that the user passes must stay within this subset.
The schema of a type is flattened first (`_flatten`): a field that may be null is not required, and
constraints that a form cannot express (patterns, UUIDs, open bounds) are omitted. So an answer is
checked twice: first against the form that the client saw, and then against the type. The cost does
not matter, because people answer slowly.

If all members of an Enum have a `label`, users see the labels. In a schema, labels are written as
`oneOf` (`anyOf` in a list) of `const` and `title`, or as the older `enumNames`.

A form must not ask for secrets, because the client and its model would see them:
https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#form-mode-security. A
field whose name or title looks like a secret is refused (`_SECRET`); an individual field is judged
by the message that it is shown with. Yes-or-no fields and choices are never secrets.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from math import ceil, floor
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..errors import ConfigError, InvalidParams, SchemaError
from ..schema import Schema, Shape, TypeMismatch, default_schema, describe_value
from ..schema.json_schema import Defs, resolve_ref
from ..schema.walk import read_record, unwrap

Check = Callable[[Any], Any]
"""A function that returns the value of an answer, or raises TypeMismatch."""

SINGLE_FIELD = "value"
"""The name of the only field in a form that was not created from a class."""


class Form(Struct, frozen=True, eq=False):
    """A compiled form. The client receives `schema`, and `accept` reads its answer."""

    schema: Schema
    checks: dict[str, Check]
    make: Callable[[dict[str, Any]], Any]
    """A function that creates the data of an answer from the values of its fields."""

    @staticmethod
    def of(source: Any) -> "Form":
        """Return the form for a type or for a JSON schema; None asks only for consent."""
        if source is None or isinstance(source, dict):
            schema = {"type": "object", "properties": {}} if source is None else source
            return _form_from_schema(schema)
        try:
            return _cached_form(source, repr(source))  # by its spelling too, as in Shape.of
        except TypeError:  # an annotation that cannot be hashed
            return _form_from_type(source)

    def labelled(self, message: str) -> "Form":
        """Return the form itself. Raise ConfigError if its only field, whose title is this message,
        asks for a secret."""
        if self.schema["properties"].keys() == {SINGLE_FIELD}:
            _compile_field(
                SINGLE_FIELD, self.schema["properties"][SINGLE_FIELD] | {"title": message}
            )
        return self

    def accept(self, content: Any) -> Any:
        """Return the data of an answer, with defaults for missing fields. Raise InvalidParams with
        a sentence about each invalid field."""
        if not isinstance(content, dict | None):
            raise InvalidParams(
                f"The answer to a form must be an object, got {describe_value(content)}",
                parameter="content",
            )
        values: dict[str, Any] = {}
        problems: list[str] = []
        for name, check in self.checks.items():
            field = self.schema["properties"][name]
            # null means that the user cleared the field, so it gets no default.
            value = (content or {}).get(name, field.get("default"))
            if field["type"] == "array" and isinstance(value, str):
                # The client's revision does not support lists of choices, so the user typed text.
                value = [part.strip() for part in value.split(",") if part.strip()]
            try:
                if value is not None:
                    values[name] = check(value)
                elif name in self.schema.get("required", ()):
                    problems.append(f"`{name}` is missing")
            except TypeMismatch as mismatch:
                problems += mismatch.sentences(name)
        try:
            data = None if problems else self.make(values)
        except TypeMismatch as mismatch:
            problems = mismatch.sentences("")
        except Exception as error:  # raised by the user's class
            problems = [str(error) or type(error).__name__]
        if problems:
            raise InvalidParams(
                f"The answer does not match the form: {'; '.join(problems)}", parameter="content"
            )
        return data


# --------------------------------------------------------------------------------------------------
# the subset of JSON Schema

_KEYWORDS = {
    ("string", None): {"minLength", "maxLength", "format"},
    ("string", "enum"): {"enum", "enumNames"},
    ("string", "oneOf"): {"oneOf"},
    ("array", "enum"): {"items", "minItems", "maxItems"},
    ("array", "anyOf"): {"items", "minItems", "maxItems"},
    ("number", None): {"minimum", "maximum"},
    ("integer", None): {"minimum", "maximum"},
    ("boolean", None): set[str](),
}
"""The keywords for each kind of field, besides `_COMMON_KEYWORDS`. A kind consists of a type and
the keyword that lists the choices."""
_COMMON_KEYWORDS = {"type", "title", "description", "default"}
_ITEMS = {"enum": {"type", "enum"}, "anyOf": {"anyOf"}}
"""The keywords that list items may have, for each keyword that can list the choices."""
_HELP = (
    "a field must be text, a number, a boolean, one of several strings (Literal, Enum), or a list "
    "of such strings"
)

_TYPES = {"string": str, "number": float, "integer": int, "boolean": bool}

_Count = Annotated[int, Meta(ge=0)] | UnsetType
_Values = Annotated[list[str], Meta(min_length=1)] | UnsetType


class _Option(Struct, forbid_unknown_fields=True):
    const: str
    title: str


class _Choices(Struct, rename="camel", kw_only=True):
    """A schema that lists choices, for a field or for its items."""

    type: str = ""
    enum: _Values = UNSET
    one_of: Annotated[list[_Option], Meta(min_length=1)] | UnsetType = UNSET
    any_of: Annotated[list[_Option], Meta(min_length=1)] | UnsetType = UNSET

    def literal_type(self) -> Any:
        """Return the choices as a Literal type."""
        titled = self.one_of or self.any_of or []
        return Literal[tuple(self.enum or [option.const for option in titled])]


class _FieldSchema(_Choices):
    """The schema of a field, with every keyword that it may have."""

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

    def answer_type(self) -> Any:
        """Return the type of the answers."""
        if self.items:
            items: Any = list[self.items.literal_type()]  # type: ignore[misc]
            return _bounded(items, min_length=self.min_items, max_length=self.max_items)
        if self.enum or self.one_of:
            return self.literal_type()
        minimum: Any = self.minimum
        maximum: Any = self.maximum
        if self.type == "integer":
            minimum, maximum = minimum and ceil(minimum), maximum and floor(maximum)
        limits = {
            "min_length": self.min_length,
            "max_length": self.max_length,
            "ge": minimum,
            "le": maximum,
        }
        return _bounded(_TYPES[self.type], **limits)


def _bounded(base: Any, **limits: Any) -> Any:
    """Return the type with its limits: a minimum, a maximum, or both."""
    limits = {name: limit for name, limit in limits.items() if limit is not UNSET}
    minimum, *maximum = limits.values() or [0]
    if maximum and minimum > maximum[0]:
        raise SchemaError(f"the minimum {minimum} is greater than the maximum {maximum[0]}")
    return Annotated[base, Meta(**limits)] if limits else base


def _read_field(schema: Any) -> _FieldSchema:
    """Read the schema of a field; raise SchemaError if the field is not allowed in a form."""
    if not isinstance(schema, dict):
        raise SchemaError(f"its schema must be an object, not {describe_value(schema)}")
    listing = schema.get("items") if schema.get("type") == "array" else schema
    listing = listing if isinstance(listing, dict) else {}
    choices = next((word for word in ("enum", "oneOf", "anyOf") if word in listing), None)
    keywords = _KEYWORDS.get((str(schema.get("type")), choices))
    if keywords is None:
        raise SchemaError(_HELP)
    unknown = sorted(schema.keys() - keywords - _COMMON_KEYWORDS)
    if unknown:
        raise SchemaError(f"it cannot have {', '.join(unknown)}; {_HELP}")
    if "items" in keywords and (
        listing.keys() != _ITEMS[str(choices)] or listing.get("type", "string") != "string"
    ):
        raise SchemaError(
            f"its items must be strings that have only type and enum, or only anyOf; {_HELP}"
        )
    field: _FieldSchema = Shape.of(_FieldSchema).convert(schema)
    if field.enum_names and len(field.enum_names) != len(field.enum or ()):
        raise SchemaError("it must have as many enumNames as enum values")
    return field


def _compile_field(name: str, schema: Any) -> Check:
    """Compile the check for a field; raise SchemaError or ConfigError if the field is not allowed
    in a form."""
    if isinstance(schema, dict) and schema.get("format") == "password":
        raise _secret_error(name, "a password")
    try:
        field = _read_field(schema)
        shape = Shape(field.answer_type())
    except (TypeMismatch, SchemaError) as error:
        raise SchemaError(f"The field `{name}` cannot be part of a form: {error}") from None
    is_typed = not (field.items or field.enum or field.one_of or field.type == "boolean")
    secret = (find_secret(name) or find_secret(field.title or "")) if is_typed else None
    if secret:
        raise _secret_error(name, f"a secret ({secret})")
    expected, fits = _FORMATS.get(field.format or "", ("", bool))

    def check(value: Any) -> Any:
        converted = shape.convert(value)
        if expected and not fits(value):
            raise TypeMismatch([("", f"must be {expected}, got {describe_value(value)}")])
        return value if field.type == "number" else converted  # 30 stays 30

    return check


_FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "email": ("an email address", re.compile(r"[^@\s]+@[^@\s]+").fullmatch),
    "uri": (
        "a URI like https://example.com",
        re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S+").fullmatch,
    ),
    "date": ("a date like 2026-07-28", lambda text: _can_convert(text, date)),
    "date-time": (
        "a time like 2026-07-28T12:00:00Z",
        lambda text: _can_convert(text, Annotated[datetime, Meta(tz=True)]),
    ),
}


def _can_convert(text: str, to: Any) -> bool:
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
"""Words for secrets that grant access or authorize payments, unless the next word makes them
harmless (`token_count`)."""
_WORD_BOUNDARY = re.compile(r"(?<=[a-z\d])(?=[A-Z])|[\W_]+")


def find_secret(text: str) -> str | None:
    """Return the word in a name or title that indicates a secret."""
    found = _SECRET.search(_WORD_BOUNDARY.sub(" ", text).lower())
    return found[1] if found else None


def _secret_error(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"The form field `{name}` looks like {what}. A form must not ask for secrets, because "
        "the client and its model would see them. Use ctx.elicit_url with your own page, or "
        "rename the field"
    )


# --------------------------------------------------------------------------------------------------
# from a schema

_ROOT = {"type", "properties", "required", "$schema"}
_ROOT_UNSENT = {"title", "description", "additionalProperties"}
"""Keywords that schema generators produce but that are not sent."""


def _form_from_schema(schema: Schema) -> Form:
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise SchemaError('A form schema must have "type": "object" and "properties"')
    if unknown := schema.keys() - _ROOT - _ROOT_UNSENT:
        raise SchemaError(
            "A form schema can have only properties and required, not "
            f"{', '.join(map(repr, sorted(unknown)))}"
        )
    if not isinstance(required, list) or not set(map(str, required)) <= properties.keys():
        raise SchemaError(
            f"In a form schema, `required` must be a list of property names, not {required!r}"
        )
    checks = {name: _compile_field(name, field) for name, field in properties.items()}
    for name, field in properties.items():
        try:
            if "default" in field:
                checks[name](field["default"])
        except TypeMismatch as mismatch:
            raise SchemaError(
                f"The default value of the field `{name}` is not valid: "
                f"{mismatch.sentences(name)[0]}"
            ) from None
    return Form({key: value for key, value in schema.items() if key in _ROOT}, checks, dict)


# --------------------------------------------------------------------------------------------------
# from a type


@lru_cache(256)
def _cached_form(source: Any, spelling: str) -> Form:
    return _form_from_type(source)


def _form_from_type(source: Any) -> Form:
    parts = _read_type(source)
    fields: dict[str, Schema] = {}
    checks: dict[str, Check] = {}
    nulls: dict[str, None] = {}
    for name, schema in parts.properties.items():
        field, nullable = _flatten(schema, parts.defs, parts.hints.get(name))
        default = field.pop("default", None)
        fields[name], checks[name] = field, _compile_field(name, field)
        # A default that does not fit the field is applied by the class, but not shown.
        if default is not None and _passes(default, checks[name]):
            field["default"] = default
        if nullable and name in parts.required:
            nulls[name] = None
    required = [name for name in parts.required if name not in nulls]
    form = {"type": "object", "properties": fields} | ({"required": required} if required else {})
    return Form(form, checks, lambda values: parts.make(nulls | values))


class _TypeParts(Struct):
    """The fields to ask for, and the function that creates a value of the type from them."""

    properties: dict[str, Schema]
    required: list[str]
    defs: Defs
    hints: dict[str, Any]
    make: Callable[[dict[str, Any]], Any]


def _read_type(source: Any) -> _TypeParts:
    base = unwrap(source)[0]
    if isinstance(base, type) and issubclass(base, tuple) and hasattr(base, "_field_defaults"):
        return _read_named_tuple(base)
    shape = Shape.of(source)
    schema = shape.schema
    defs = schema.get("$defs", {})
    if "properties" not in schema:
        return _TypeParts(
            {SINGLE_FIELD: schema},
            [SINGLE_FIELD],
            defs,
            {SINGLE_FIELD: source},
            lambda values: shape.convert(values[SINGLE_FIELD]),
        )
    record = read_record(base)
    hints = (
        {field.wire: field.hint for field in record.fields}
        if record
        else get_type_hints(base, include_extras=True)
    )
    return _TypeParts(schema["properties"], schema.get("required", []), defs, hints, shape.convert)


def _read_named_tuple(base: Any) -> _TypeParts:
    """Read the fields of a named tuple, which is an array in JSON."""
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
    return _TypeParts(
        properties, [name for name in shapes if name not in defaults], defs, hints, make
    )


_UNSUPPORTED = {
    "pattern", "multipleOf", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "examples",
    "writeOnly", "deprecated", "$defs",
}  # fmt: skip
"""Keywords in a type's schema that a form cannot have; the type itself checks them."""

_CLOSED_BOUNDS: dict[str, tuple[str, Callable[[float], int]]] = {
    "exclusiveMinimum": ("minimum", lambda bound: floor(bound) + 1),
    "exclusiveMaximum": ("maximum", lambda bound: ceil(bound) - 1),
}
"""Open bounds for integers, expressed as closed bounds."""


def _flatten(schema: Schema, defs: Defs, hint: Any) -> tuple[Schema, bool]:
    """Turn the schema of a type into the schema of a field, as far as possible. Also return whether
    the field may be null."""
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
            for open, (word, nearest) in _CLOSED_BOUNDS.items()
            if open in schema
        } | schema
    field: Schema = {key: value for key, value in schema.items() if key not in _UNSUPPORTED}
    if field.get("format", "password") not in (*_FORMATS, "password"):
        del field["format"]
    if isinstance(field.get("items"), dict):
        items = resolve_ref(field["items"], defs)
        is_titled = all("const" in option for option in items.get("anyOf", ()))
        kept = ("type", "enum", "const", *(["anyOf"] if is_titled else []))
        field["items"] = _label_choices(
            {key: items[key] for key in kept if key in items}, "anyOf", hint
        )
    return _label_choices(field, "oneOf", hint), len(others) < len(options)


def _label_choices(schema: Schema, titled: str, hint: Any) -> Schema:
    """Add the labels of an Enum, if it has any, to the choices in a schema."""
    if "const" in schema:
        schema = schema | {"enum": [schema["const"]]}
        del schema["const"]
    labels = next(_find_labels(hint), None) if "enum" in schema else None
    if not labels:
        return schema
    rest = {
        key: value
        for key, value in schema.items()
        if key != "enum" and (key, titled) != ("type", "anyOf")
    }
    return rest | {titled: [{"const": value, "title": labels[value]} for value in schema["enum"]]}


def _find_labels(hint: Any) -> Iterator[dict[Any, str]]:
    """For each Enum with labels in a type, yield its labels by value."""
    base = unwrap(hint)[0]
    if isinstance(base, type) and issubclass(base, Enum):
        labels = {member.value: getattr(member, "label", None) for member in base}
        if all(isinstance(label, str) for label in labels.values()):
            yield labels  # type: ignore[misc]  # they are strings
    for inner in get_args(base):
        yield from _find_labels(inner)


def _passes(value: Any, check: Check) -> bool:
    try:
        check(value)
    except TypeMismatch:
        return False
    return True
