"""A Python type as a JSON schema, a decoder and an encoder.

A `Shape` is compiled once: a server compiles what its functions take and return, a client what it expects. One walk
over the type (`_Walk`) writes its schema and finds out on the way who can decode it:

- msgspec, as the type stands: nearly always, and then nothing of this file lies between the bytes and the value;
- msgspec with stand-ins, where a union is ambiguous to it (`Circle | Square`, `date | str`) or a note or class is not
  its own (`annotated_types`, `pathlib`). A stand-in is a class that msgspec does not know and gives to `hook`, which
  builds the real value: a choice tries its members in order, a mirror decodes a struct of the same fields first;
- pydantic, as soon as any part of the type is of pydantic. This is the only file that knows pydantic; the user's module
  has imported it or nobody does. The same goes for `annotated_types` and attrs.

What does not fit raises `Mismatch`, worded from the schema, since a model often reads it. Only then are other readings
of the value tried: 3.0 is an integer to JSON Schema and to models, but not to msgspec.
"""

import datetime
import decimal
import enum
import re
import sys
import types
import typing
import uuid
from collections import abc
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, NewType, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Raw, Struct, UnsetType

from .errors import SchemaError

Schema: TypeAlias = dict[str, Any]
Defs: TypeAlias = dict[str, Schema]

_NO_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class Mismatch(ValueError):
    """A value that is not of its type. Each problem is a path into the value and what is wrong there."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(self.told("")))

    def told(self, name: str) -> list[str]:
        """The problems as sentences about a value of this name."""
        places = [(f"{name}{path}".lstrip("."), what) for path, what in self.problems]
        return [f"`{place}` {what}" if place else f"The value {what}" for place, what in places]


class Unencodable(TypeError):
    """A value that has no JSON form; the text names its type."""


class Shape:
    """A type, compiled. `native` is what a msgspec decoder takes for it: Raw where it is to be decoded here, later."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        try:
            self.description = _description(annotation)
            self._engine = _engine(annotation)
        except SchemaError:
            raise
        except NameError as error:
            reason = f"it refers to {error.name}, which its module does not define at the top level"
            raise SchemaError(f"{_label(annotation)} cannot be used: {reason}") from error
        except RecursionError as error:
            raise SchemaError(f"{_label(annotation)} is an alias that refers to itself; make it a class") from error
        except Exception as error:  # whatever a library has against a type, the author hears one kind of error
            reason = str(error).partition("\n")[0]
            raise SchemaError(f"{_label(annotation)} cannot be used: {reason}") from error
        self.native: Any = self._engine.native
        self.encode: Callable[[Any], bytes] = self._engine.encode
        """The value as JSON; Unencodable where it has no JSON form."""

    @classmethod
    def of(cls, annotation: Any) -> "Shape":
        """The shape of a type that may have been compiled before."""
        try:
            # By its spelling too, since `date | str` equals `str | date` but prefers another member.
            return _known(annotation, repr(annotation))
        except TypeError:  # a note that cannot be hashed
            return cls(annotation)

    def __repr__(self) -> str:
        return f"Shape({_label(self.annotation)})"

    @property
    def parts(self) -> tuple[Schema, Defs]:
        """The schema as a root and its definitions, for whoever puts several together with `merge` and `tidy`."""
        return self._engine.schema

    @cached_property
    def schema(self) -> Schema:
        """The JSON schema (2020-12) of what is decoded."""
        return self._described(self._engine.schema)

    @cached_property
    def output_schema(self) -> Schema:
        """The JSON schema of what is encoded; only pydantic makes a difference."""
        return self._described(self._engine.output_schema)

    @cached_property
    def accepts_string(self) -> bool:
        """Whether a JSON string can be a value of this type."""
        return _accepts_string(*self._engine.schema)

    def _described(self, parts: tuple[Schema, Defs]) -> Schema:
        return tidy(*parts) | ({"description": self.description} if self.description else {})

    def decode(self, data: bytes | Raw) -> Any:
        """The value in JSON bytes; Mismatch where it is not of this type."""
        try:
            return self._engine.decode(data)
        except (self._engine.failure, *_NO_JSON):
            pass
        try:
            value = msgspec.json.decode(data)
        except _NO_JSON as error:
            raise Mismatch([("", f"is not valid JSON: {error}")]) from None
        return self.convert(value)

    def convert(self, value: Any, *, strings: bool = False) -> Any:
        """The value of what JSON decodes to. With `strings`, text may also be the JSON of the value, or a number or
        boolean spelled out: prompt arguments and the variables of a URI are always text."""
        engine = self._engine
        try:
            return engine.convert(value)
        except engine.failure as error:
            problem, culprit = error, value
        for reading, strict in _readings(value, strings):
            try:
                return engine.convert(reading, strict)
            except engine.failure as error:
                if not isinstance(value, str) or isinstance(reading, (dict, list)):
                    problem, culprit = error, reading
        raise Mismatch(engine.explain(problem, culprit)) from None


@lru_cache(256)
def _known(annotation: Any, spelling: str) -> Shape:
    return Shape(annotation)


# ------------------------------------------------------------------------------------------------------- annotations

_WRAPPERS = {typing.ClassVar, typing.Final, typing.NotRequired, typing.Required, getattr(typing, "ReadOnly", Any)}
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_NUMBERS = (*_BOUNDS, "min_length", "max_length")
_LIMITS = (*_NUMBERS, "tz")
_SAYINGS = ("title", "description", "examples")


def _peel(hint: Any) -> tuple[Any, list[Any]]:
    """The type inside all that is wrapped around it, and the notes of each `Annotated` on the way, innermost first."""
    notes: list[Any] = []
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, notes = hint.__origin__, [*hint.__metadata__, *notes]
        elif origin in _WRAPPERS:
            hint = get_args(hint)[0]
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif type(origin).__name__ == "TypeAliasType":
            hint = origin.__value__[get_args(hint)]
        elif isinstance(hint, TypeVar):
            hint = hint.__bound__ or (_union(hint.__constraints__) if hint.__constraints__ else Any)
        else:
            return type(None) if hint is None else hint, notes


def _meta(note: Any) -> Meta | None:
    """A note of an `Annotated` in the terms of msgspec; None for a note that is not for us."""
    if isinstance(note, Meta):
        return note
    if type(note).__module__.partition(".")[0] == "annotated_types":
        limits = {name: limit for name in _NUMBERS if (limit := getattr(note, name, None)) is not None}
        if limits:
            return Meta(**limits)
    text = _text(note)
    return Meta(description=text) if text else None


def _text(note: Any) -> str | None:
    if not isinstance(note, str):
        note = getattr(note, "description", None) or getattr(note, "documentation", None)
    return note if isinstance(note, str) else None


def _description(annotation: Any) -> str | None:
    """What the author says of a value: a plain string, or the description in a note of msgspec, pydantic or another."""
    return next(filter(None, map(_text, reversed(_peel(annotation)[1]))), None)


def _union(members: Iterable[Any]) -> Any:
    union: Any = Union
    return union[tuple(members)]


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _is_path(hint: Any) -> bool:
    return isinstance(hint, type) and hint.__module__.partition(".")[0] == "pathlib"


def _is_pydantic(thing: Any) -> bool:
    """Whether a type, or a note on one, is pydantic's business."""
    return "pydantic" in sys.modules and (
        hasattr(thing, "__get_pydantic_core_schema__")
        or hasattr(thing, "__pydantic_validator__")
        or type(thing).__module__.partition(".")[0] == "pydantic"
    )


def _label(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def from_default(annotation: Any, default: Any) -> tuple[Any, Any]:
    """`days: int = Field(3, ge=1)` as annotation and plain default (NODEFAULT for none); other defaults as they are."""
    if not _is_pydantic(default) or type(default).__name__ != "FieldInfo":
        return annotation, default
    plain = NODEFAULT if default.is_required() else default.get_default(call_default_factory=True)
    return Annotated[annotation, default], plain


# ----------------------------------------------------------------------------------------------- classes with fields


class _Field(Struct):
    """A field, what JSON calls it, and what the constructor calls it: nothing, if it does not take it."""

    hint: Any
    wire: str
    keyword: str
    required: bool = True
    default: Any = UNSET


class _Record(Struct):
    """A class with fields, whoever made it."""

    cls: Any
    fields: list[_Field]
    array: bool = False
    closed: bool = False
    tag: tuple[str, Any] | None = None


def _hints(hint: Any, cls: type) -> dict[str, Any]:
    """The annotations of a class, with the parameters of `Page[int]` filled in."""
    filling = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))

    def fill(inner: Any) -> Any:
        if isinstance(inner, TypeVar):
            return filling.get(inner, inner)
        parameters = () if isinstance(inner, type) else getattr(inner, "__parameters__", ())
        return inner[tuple(filling.get(each, each) for each in parameters)] if parameters else inner

    return {name: fill(inner) for name, inner in get_type_hints(cls, include_extras=True).items()}


def _default(value: Any, factory: Any) -> Any:
    """The default to show in a schema; none for a factory that may do anything."""
    return factory() if factory in (list, dict, set) else UNSET if callable(factory) else value


def _struct(hint: Any, cls: Any) -> _Record:
    config = cls.__struct_config__
    fields = [
        _Field(row.type, row.encode_name, row.name, row.required, _default(row.default, row.default_factory))
        for row in msgspec.structs.fields(hint)
    ]
    tag = None if config.tag is None else (config.tag_field, config.tag)
    return _Record(cls, fields, config.array_like, config.forbid_unknown_fields, tag)


def _dataclass(hint: Any, cls: Any) -> _Record:
    from dataclasses import MISSING, fields

    hints, record = _hints(hint, cls), _Record(cls, [])
    for row in fields(cls):
        required = row.default is MISSING and row.default_factory is MISSING
        default = UNSET if required else _default(row.default, row.default_factory)
        record.fields.append(_Field(hints[row.name], row.name, row.name if row.init else "", required, default))
    return record


def _attrs(hint: Any, cls: Any) -> _Record:
    from attrs import NOTHING

    hints, record = _hints(hint, cls), _Record(cls, [])
    for row in cls.__attrs_attrs__:
        required = row.default is NOTHING
        default = UNSET if required else _default(row.default, getattr(row.default, "factory", None))
        record.fields.append(_Field(hints[row.name], row.name, row.alias if row.init else "", required, default))
    return record


def _typed_dict(hint: Any, cls: Any) -> _Record:
    # With `from __future__ import annotations`, __required_keys__ has not seen Required and NotRequired.
    marks = {typing.Required: True, typing.NotRequired: False}
    record = _Record(cls, [])
    for name, inner in _hints(hint, cls).items():
        required = marks.get(get_origin(inner), name in cls.__required_keys__)
        record.fields.append(_Field(inner, name, name, required))
    return record


def _named_tuple(hint: Any, cls: Any) -> _Record:
    hints, record = _hints(hint, cls), _Record(cls, [], array=True, closed=True)
    for name in cls._fields:
        required = name not in cls._field_defaults
        default = UNSET if required else cls._field_defaults[name]
        record.fields.append(_Field(hints.get(name, Any), name, name, required, default))
    return record


_READERS: dict[str, Callable[[Any, Any], _Record]] = {
    "__struct_fields__": _struct,
    "__dataclass_fields__": _dataclass,
    "__attrs_attrs__": _attrs,
    "__required_keys__": _typed_dict,
    "_field_defaults": _named_tuple,
}


def _record(hint: Any) -> _Record | None:
    cls = get_origin(hint) or hint
    marks = (mark for mark in _READERS if isinstance(cls, type) and hasattr(cls, mark))
    mark = next(marks, None)
    return _READERS[mark](hint, cls) if mark else None


# ---------------------------------------------------------------------------------------------------------- the walk

_BASE64 = {"type": "string", "contentEncoding": "base64"}
_SCALARS: dict[Any, Schema] = {
    Any: {},
    object: {},
    Raw: {},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    typing.LiteralString: {"type": "string"},
    bytes: _BASE64,
    bytearray: _BASE64,
    memoryview: _BASE64,
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    datetime.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "format": "decimal"},
}
_ARRAYS = {list, tuple, abc.Collection, abc.Iterable, abc.MutableSequence, abc.Sequence}
_SETS = {set, frozenset, abc.MutableSet, abc.Set}
_OBJECTS = {dict, abc.Mapping, abc.MutableMapping}
_INSTEAD: dict[Any, Any] = {object: Any, typing.LiteralString: str, abc.Iterable: list}
"""What msgspec does not know, and what it is given instead."""
_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class _UsesPydantic(Exception):
    """Ends the walk: pydantic decodes all of the type."""


class _Walk:
    """One walk over a type. Each step gives the schema of a part and the type that msgspec may be given instead of it;
    `plain` turns False where msgspec would take the part itself for something else than was meant."""

    def __init__(self) -> None:
        self.defs: Defs = {}
        self.mirrors: dict[Any, Any] = {}
        self.plain = True

    def type(self, hint: Any) -> tuple[Schema, Any]:
        base, notes = _peel(hint)
        if any(map(_is_pydantic, (base, get_origin(base), *notes))):
            raise _UsesPydantic
        metas = [meta for note in notes if (meta := _meta(note))]
        limits = [limit for meta in metas if (limit := _limit(meta))]
        self.plain &= not any(_limit(meta) for meta in metas if meta not in notes)
        if limits and _is_union(base):  # bounds on an optional number are bounds on the number
            base = _union(arg if arg is type(None) else Annotated[arg, *limits] for arg in get_args(base))
            limits, metas = [], [_words(meta) for meta in metas]
        schema, native = self.base(base)
        for meta in metas:
            _annotate(schema, meta)
        return schema, Annotated[native, *limits] if limits else native

    def base(self, base: Any) -> tuple[Schema, Any]:
        origin, args = get_origin(base) or base, get_args(base)
        self.plain &= origin not in _INSTEAD and not _is_path(base)
        if base in _SCALARS:
            return dict(_SCALARS[base]), _INSTEAD.get(base, base)
        if _is_path(base):
            return {"type": "string", "format": "path"}, _StandIn("Path", (_Path,), {"cls": base})
        if origin is Literal:
            return _enumeration(base, args), base
        if _is_union(base):
            return self.union(args)
        if origin in _ARRAYS | _SETS | _OBJECTS:
            return self.collection(_INSTEAD.get(origin, origin), args)
        if isinstance(base, type) and issubclass(base, enum.Enum):
            return _doc(base) | _enumeration(base, [member.value for member in base]), base
        if record := _record(base):
            return self.record(base, record)
        if isinstance(base, (str, typing.ForwardRef)):
            raise SchemaError(f"{base!r} is the name of a type, not the type, and cannot be looked up here")
        raise SchemaError(f"{_label(base)} has no JSON form; use a built-in type, a class with fields, or Any")

    def union(self, args: Iterable[Any]) -> tuple[Schema, Any]:
        pairs = [self.type(arg) for arg in args if arg is not UnsetType]
        options, members = [schema for schema, _ in pairs], [native for _, native in pairs]
        schema: Schema = {} if {} in options else {"anyOf": options} if len(options) > 1 else options[0]
        try:
            decoder(_union(members))
        except TypeError:  # msgspec cannot tell the members apart
            return schema, _StandIn("Choice", (_Choice,), {"members": members})
        return schema, _union(members)

    def collection(self, origin: Any, args: tuple[Any, ...]) -> tuple[Schema, Any]:
        pairs = [({}, ...) if arg is ... else self.type(arg) for arg in args]
        native = origin[tuple(native for _, native in pairs)] if pairs else origin
        schemas = [schema for schema, native in pairs if native is not ...]
        if origin in _OBJECTS:
            key, value = schemas or ({}, {})
            names = {"propertyNames": key} if key.pop("type", None) == "string" and key else {}
            return {"type": "object"} | names | ({"additionalProperties": value} if value else {}), native
        if origin is tuple and len(schemas) == len(pairs) > 0:
            count = {"minItems": len(pairs), "maxItems": len(pairs)}
            return {"type": "array", "prefixItems": schemas, "items": False} | count, native
        unique = {"uniqueItems": True} if origin in _SETS else {}
        return {"type": "array"} | ({"items": schemas[0]} if schemas and schemas[0] else {}) | unique, native

    def record(self, hint: Any, record: _Record) -> tuple[Schema, Any]:
        mirror: Any = self.mirrors.get(hint)
        if mirror is None:
            title = record.cls.__name__ + (f"[{', '.join(map(_label, get_args(hint)))}]" if get_args(hint) else "")
            name = wanted = re.sub(r"\W+", "_", title).strip("_")
            while name in self.defs:
                name = f"{wanted}_{len(self.defs)}"
            # Known before its fields are looked at, which may be of this very class.
            about = {"record": record, "ref": _REF + name}
            mirror = self.mirrors[hint] = _StandIn(record.cls.__name__, (_Mirror,), about)
            self.defs[name] = {}
            pairs = [self.type(field.hint) for field in record.fields]
            mirror.types = [native for _, native in pairs]
            members = _members(record, [schema for schema, _ in pairs])
            self.defs[name] = {"title": title} | _doc(record.cls) | members
        return {"$ref": mirror.ref}, mirror


def _limit(meta: Meta) -> Meta | None:
    """Only what a note demands."""
    limits = {name: limit for name in _LIMITS if (limit := getattr(meta, name)) is not None}
    return Meta(**limits) if limits else None


def _words(meta: Meta) -> Meta:
    """Only what a note says."""
    return Meta(**{name: getattr(meta, name) for name in (*_SAYINGS, "extra_json_schema")})


def _annotate(schema: Schema, meta: Meta) -> None:
    words = {name: getattr(meta, name) for name in _SAYINGS}
    bounds = {keyword: getattr(meta, name) for name, keyword in _BOUNDS.items()}
    lengths = dict(zip(_LENGTHS.get(schema.get("type", ""), ()), (meta.min_length, meta.max_length), strict=False))
    if "contentEncoding" in schema:
        lengths = {keyword: limit and 4 * ((limit + 2) // 3) for keyword, limit in lengths.items()}
    said = words | bounds | lengths
    schema |= {keyword: value for keyword, value in said.items() if value is not None} | (meta.extra_json_schema or {})


def _enumeration(base: Any, values: Iterable[Any]) -> Schema:
    values = list(values)
    kinds = {_KINDS.get(type(value)) for value in values}
    if None in kinds:
        raise SchemaError(f"{_label(base)} has values that have no JSON form; use strings or numbers")
    return ({"type": kinds.pop()} if len(kinds) == 1 else {}) | {"enum": values}


def _members(record: _Record, schemas: list[Schema]) -> Schema:
    """The body of a class's schema: an object, or an array for a named tuple."""
    properties = {record.tag[0]: _enumeration(record.cls, [record.tag[1]])} if record.tag else {}
    required = [*properties]
    for field, schema in zip(record.fields, schemas, strict=True):
        properties[field.wire] = schema | default_schema(field.default)
        required += [field.wire] if field.required else []
    if record.array:
        closed: Schema = {"maxItems": len(properties)} if record.closed else {}
        return {"type": "array", "prefixItems": [*properties.values()], "minItems": len(required)} | closed
    closed = {"additionalProperties": False} if record.closed else {}
    return {"type": "object", "properties": properties} | ({"required": required} if required else {}) | closed


def _doc(cls: type) -> Schema:
    # Dataclasses and named tuples without a docstring are given one that only repeats their signature.
    if not cls.__doc__ or cls.__doc__.startswith(f"{cls.__name__}("):
        return {}
    from inspect import cleandoc

    return {"description": cleandoc(cls.__doc__)}


def default_schema(default: Any) -> Schema:
    """`{"default": …}`, or nothing where there is no default or it has no JSON form."""
    if default is NODEFAULT or default is UNSET:
        return {}
    try:
        return {"default": msgspec.json.decode(encode(default))}
    except Unencodable:
        return {}


# ---------------------------------------------------------------------------------------- putting schemas together

_REF = "#/$defs/"
_MAPS = {"properties", "patternProperties", "$defs", "dependentSchemas"}
_DATA = {"default", "enum", "const", "examples"}


def merge(schema: Schema, defs: Defs, into: Defs) -> Schema:
    """The schema with its definitions moved to those in `into`, renamed where another type already has the name."""
    suffix, count = "", 1
    while any(into.get(name + suffix, definition) != definition for name, definition in defs.items()):
        count += 1
        suffix = f"_{count}"

    def rename(node: Schema) -> Schema:
        return node | {"$ref": node["$ref"] + suffix} if _target(node) else node

    into.update({name + suffix: _rewritten(definition, rename) for name, definition in defs.items()})
    merged: Schema = _rewritten(schema, rename)
    return merged


def tidy(schema: Schema, defs: Defs) -> Schema:
    """One schema of a root and its definitions. What is used once is written in place, since many clients trip over
    references; what is shared or recursive stays a definition. The root itself always shows its type."""
    uses: dict[str, int] = {}

    def count(node: Schema) -> Schema:
        if name := _target(node):
            uses[name] = uses.get(name, 0) + 1
            if uses[name] == 1:
                _rewritten(defs[name], count)
        return node

    def inline(node: Schema) -> Schema:
        name = _target(node)
        return inline(_replaced(node, defs)) if name and uses[name] == 1 else node

    _rewritten(schema, count)
    shared = {name: _rewritten(defs[name], inline) for name, number in uses.items() if number > 1}
    root: Schema = _rewritten(_replaced(schema, defs), inline)
    return root | ({"$defs": shared} if shared else {})


def _target(node: Schema) -> str:
    ref = node.get("$ref")
    return ref.removeprefix(_REF) if isinstance(ref, str) and ref.startswith(_REF) else ""


def _replaced(node: Schema, defs: Defs) -> Schema:
    """A reference as what it refers to; what stands beside it wins."""
    name = _target(node)
    return defs[name] | {key: value for key, value in node.items() if key != "$ref"} if name else node


def _rewritten(schema: Any, change: Callable[[Schema], Schema]) -> Any:
    """A copy of a schema with each subschema changed, the outer before the inner ones."""
    if isinstance(schema, list):
        return [_rewritten(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy: Schema = {}
    for key, value in change(schema).items():
        if key in _DATA:
            copy[key] = value
        elif key in _MAPS:
            copy[key] = {name: _rewritten(inner, change) for name, inner in value.items()}
        elif key != "discriminator":  # a word of OpenAPI; its mapping would name definitions that are gone
            copy[key] = _rewritten(value, change)
    return copy


# ---------------------------------------------------------------------------------------------------------- decoding


def hook(type_: Any, value: Any) -> Any:
    """msgspec's `dec_hook`: the value that a stand-in stands for."""
    try:
        return type_.build(value)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None  # the only kind that msgspec adds the outer path to


def decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """A JSON decoder for a type made of `Shape.native` parts."""
    return msgspec.json.Decoder(type_, dec_hook=hook)


def _convert(value: Any, type_: Any, strict: bool = True) -> Any:
    return msgspec.convert(value, type_, strict=strict, str_keys=True, dec_hook=hook)


class _StandIn(type):
    """The class of stand-ins. msgspec checks that what `hook` gives is an instance: it is what it should be."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


class _Path(metaclass=_StandIn):
    """Stands for a class of pathlib."""

    cls: type

    @classmethod
    def build(cls, value: Any) -> Any:
        return cls.cls(_convert(value, str))


class _Mirror(metaclass=_StandIn):
    """Stands for a class with fields: a struct with the same ones is decoded, and the class called with what it got."""

    record: _Record
    ref: str
    types: list[Any]
    struct: Any = None

    @classmethod
    def build(cls, value: Any) -> Any:
        fields = cls.record.fields
        struct = cls.struct = cls.struct or cls.define()
        given = zip(fields, msgspec.structs.astuple(_convert(value, struct)), strict=True)
        make = dict if issubclass(cls.record.cls, dict) else cls.record.cls
        return make(**{field.keyword: item for field, item in given if field.keyword and item is not UNSET})

    @classmethod
    def define(cls) -> type[Struct]:
        record = cls.record
        names = {f"f{i}": field.wire for i, field in enumerate(record.fields)}
        # UNSET is the default of all, so that the class can apply its own.
        defaults = [() if field.required else (UNSET,) for field in record.fields]
        rows: Any = [(name, type_, *rest) for name, type_, rest in zip(names, cls.types, defaults, strict=True)]
        return msgspec.defstruct(
            record.cls.__name__,
            rows,
            rename=names,
            kw_only=not record.array,
            array_like=record.array,
            forbid_unknown_fields=record.closed,
            tag_field=record.tag and record.tag[0],
            tag=record.tag and record.tag[1],
        )


class _Choice(metaclass=_StandIn):
    """Stands for a union that msgspec refuses: the first member that takes the value has it."""

    members: list[Any]

    @classmethod
    def build(cls, value: Any) -> Any:
        errors = []
        # Of classes, the one that knows most of the keys comes first; the others would silently drop them.
        for member in sorted(cls.members, key=lambda member: _strange(value, member)):
            try:
                return _convert(value, member)
            except msgspec.ValidationError as error:
                errors.append(error)
        raise errors[0] if isinstance(value, dict) else msgspec.ValidationError("Expected `union`")


def _strange(value: Any, member: Any) -> int:
    """How many keys of an object a class does not know."""
    if not isinstance(value, dict) or not isinstance(member, type) or not issubclass(member, _Mirror):
        return 0
    record = member.record
    return len(value.keys() - {field.wire for field in record.fields} - set(record.tag or ()))


class _Msgspec:
    """Decodes with msgspec."""

    failure: type[Exception] = msgspec.ValidationError

    def __init__(self, hint: Any) -> None:
        walk = _Walk()
        schema, native = walk.type(hint)
        self.schema = self.output_schema = (schema, walk.defs)
        self.encode = encode
        try:
            self.native = hint if walk.plain else native
            self.decode: Callable[[bytes | Raw], Any] = decoder(self.native).decode
        except TypeError:  # a union somewhere inside that msgspec cannot tell apart
            self.native = native
            self.decode = decoder(native).decode

    def convert(self, value: Any, strict: bool = True) -> Any:
        return _convert(value, self.native, strict)

    def explain(self, error: Exception, value: Any) -> list[tuple[str, str]]:
        """The problem that msgspec found, in the words of the schema."""
        text, *places = _PLACE.split(str(error))
        if "`key` in" in str(error):
            return [("", f"has a wrong key: {text}")]
        # A stand-in inside a stand-in adds its place after the inner one.
        path = "".join(reversed(places))
        schema, defs = self.schema
        found: Any = [value]
        for name, index in _STEP.findall(path):
            step = int(index) if index.isdigit() else name or None
            schema = _within(schema, defs, step)
            try:
                found = [found[0][step]]
            except (LookupError, TypeError):
                found = []
        if field := _FIELD.fullmatch(text):
            known = ", ".join(_replaced(schema, defs).get("properties", ()))
            what = "is missing" if field[1] == "missing required" else f"is not a field: there are {known or 'none'}"
            return [(f"{path}.{field[2]}", what)]
        if not _STANDARD.match(text):
            return [(path, f"is not valid: {text}")]
        return [(path, f"must be {expected(schema, defs)}" + (f", got {said(found[0])}" if found else ""))]


class _Pydantic:
    """Decodes with pydantic, always from JSON: its rules for Python values are different ones."""

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
        return self.adapter.validate_json(bytes(data))

    def convert(self, value: Any, strict: bool = True) -> Any:
        return self.adapter.validate_json(encode(value))

    def encode(self, value: Any) -> bytes:
        try:
            return bytes(self.adapter.dump_json(value, by_alias=True, warnings=False))
        except (ValueError, TypeError, RecursionError) as error:
            raise Unencodable(f"{type(value).__qualname__} cannot be written as JSON: {error}") from error

    def explain(self, error: Any, value: Any) -> list[tuple[str, str]]:
        """The problems that pydantic found, in its own words."""
        problems = []
        for row in error.errors():
            path, here, missing = "", value, row["type"] == "missing"
            for step in row["loc"][:-1] if missing else row["loc"]:
                # Steps that are not in the value name the member of a union that was tried.
                if isinstance(here, list) and isinstance(step, int):
                    path, here = f"{path}[{step}]", here[step]
                elif isinstance(here, dict) and step in here:
                    path, here = f"{path}.{step}", here[step]
            path += f".{row['loc'][-1]}" if missing else ""
            text = row["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            should = text.removeprefix("Input should ")
            what = "is missing" if missing else f"must {should}, got {said(row['input'])}"
            problems.append((path, what if missing or should != text else f"is not valid: {text}"))
        return problems


def _engine(hint: Any) -> _Msgspec | _Pydantic:
    try:
        return _Msgspec(hint)
    except _UsesPydantic:
        return _Pydantic(hint)


def _readings(value: Any, strings: bool) -> Iterator[tuple[Any, bool]]:
    """What else a value may mean, and whether to be strict about it."""
    if not isinstance(value, str):
        yield _integral(value), True
    elif strings:
        try:
            parsed = msgspec.json.decode(value)
        except _NO_JSON:
            pass
        else:
            yield parsed, True
            yield _integral(parsed), True
        yield value, False


def _integral(value: Any) -> Any:
    """The value with 3.0 as 3, as far as a float is exact."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= 2**53 else value
    if isinstance(value, list):
        return [_integral(item) for item in value]
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in value.items()}
    return value


def _accepts_string(schema: Schema, defs: Defs) -> bool:
    schema = _replaced(schema, defs)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return any(_accepts_string(option, defs) for option in options)
    if "enum" in schema or "const" in schema:
        return any(isinstance(value, str) for value in schema.get("enum", [schema.get("const")]))
    return "string" in schema.get("type", "string")


# ---------------------------------------------------------------------------------------------------------- encoding


def _enc_hook(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple, set, frozenset)):  # which msgspec knows, but not as a key
        raise Unencodable(f"A {type(value).__qualname__} cannot be a key in JSON")
    if _is_pydantic(value):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value, by_alias=True)
    if _is_path(type(value)):
        return str(value)
    if isinstance(value, abc.Mapping):
        return dict(value)
    if isinstance(value, abc.Collection):
        return list(value)
    raise Unencodable(f"{type(value).__qualname__} has no JSON form; use a built-in type or a class with fields")


_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)


def encode(value: Any) -> bytes:
    """Any value as JSON, whatever its type; Unencodable where it has no JSON form."""
    try:
        return _encoder.encode(value)
    except Unencodable:
        raise
    except RecursionError as error:
        raise Unencodable(f"{type(value).__qualname__} contains itself, or is nested too deeply for JSON") from error
    except (TypeError, ValueError) as error:  # a key that is no string, a lone surrogate
        raise Unencodable(f"{type(value).__qualname__} cannot be written as JSON: {error}") from error


# ------------------------------------------------------------------------------------------------------------- words

_PLACE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_STANDARD = re.compile(
    r"Expected `|Invalid (enum )?value |Invalid (RFC3339|UUID|base64|decimal|ISO8601|epoch)|Only units "
    r"|(Integer value|Number|Timestamp|Duration)( is)? out of range"
)
_WORDS = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
_FORMATS = {
    "date-time": "a date and time like 2026-07-28T12:00:00Z",
    "date": "a date like 2026-07-28",
    "time": "a time like 12:00:00",
    "duration": "a duration like PT90S",
    "uuid": "a UUID",
    "decimal": "a decimal number",
}
_DETAILS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
    "pattern": "matching {}",
    "contentEncoding": "in {}",
}


def _within(schema: Schema, defs: Defs, step: str | int | None) -> Schema:
    """The schema one step of a path further; {} where that is not known."""
    schema = _replaced(schema, defs)
    options = [_within(option, defs, step) for option in schema.get("anyOf", ())]
    first = schema.get("prefixItems", ())
    found: Any = next(filter(None, options), {})
    if isinstance(step, str):
        found = schema.get("properties", {}).get(step, found)
    elif isinstance(step, int):
        found = first[step] if step < len(first) else schema.get("items", found)
    else:
        found = schema.get("additionalProperties", found)
    return found if isinstance(found, dict) else {}


def expected(schema: Schema, defs: Defs) -> str:
    """What a schema asks for, in words: "an integer (at least 1)"."""
    schema = _replaced(schema, defs)
    if options := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(expected(option, defs) for option in options))
    if values := schema.get("enum"):
        return ("one of " if len(values) > 1 else "") + ", ".join(msgspec.json.encode(v).decode() for v in values)
    words = _FORMATS.get(schema.get("format", "")) or _WORDS.get(schema.get("type", ""), "something else")
    details = [detail.format(schema[key]) for key, detail in _DETAILS.items() if key in schema]
    if isinstance(schema.get("items"), dict):
        details.append(f"each {expected(schema['items'], defs)}")
    if names := schema.get("properties"):
        details.append(f"with {', '.join(names)}")
    return f"{words} ({', '.join(details)})" if details else words


def said(value: Any) -> str:
    """A value in words: `the string "three"`."""
    if isinstance(value, (dict, list)):
        kind, parts = ("object", "entries") if isinstance(value, dict) else ("array", "items")
        return f"an {kind} of {len(value)} {parts}" if value else f"an empty {kind}"
    try:
        text = encode(value).decode()
    except Unencodable:
        return f"a value of {type(value).__name__}"
    text = f"{text[:60]}…{text[-1]}" if len(text) > 80 else text
    return f"the string {text}" if isinstance(value, str) else text
