"""Walk over a Python type once, and derive its JSON schema and the type that msgspec decodes.

Each step unwraps one part of the type (`unwrap`) and translates the metadata of every `Annotated`,
from any library, into the vocabulary of `msgspec.Meta` (`read_notes`). If msgspec can decode the
part, it receives the part itself; otherwise, it receives a stand-in (see `codec`). Every class with
fields is given a stand-in, because the walk must finish before it is known whether a field needs a
stand-in. If no field does, `plain` is still True, msgspec receives the original type, and the
stand-ins are discarded.

`msgspec.json.schema` is not used: it refuses the ambiguous unions that we accept, ignores the
metadata of other libraries, and sorts the values of enumerations. The walk is also needed for the
stand-ins.

The second half of the file reads classes with fields: dataclasses, attrs, structs, typed dicts and
named tuples. Each kind has a reader that lists its fields; the table at the end recognises a kind
by an attribute that only its classes have.
"""

import re
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    LiteralString,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import StructConfig, astuple, fields

from ..errors import SchemaError
from .codec import (
    StandIn,
    convert,
    decoder,
    is_pydantic,
    stand_in,
    top_package,
    type_name,
    union_stand_in,
)
from .header import KEYWORD, Header
from .json_schema import (
    REF,
    TYPES,
    Defs,
    Schema,
    doc_description,
    enum_schema,
    record_schema,
    with_notes,
)

_FORMATS = {
    datetime: "date-time",
    date: "date",
    time: "time",
    timedelta: "duration",
    UUID: "uuid",
    Decimal: "decimal",
}
_BINARY = (bytes, bytearray, memoryview)
_SCALARS: dict[Any, Schema] = {
    **{cls: {} for cls in (Any, object, Raw)},
    **{cls: {"type": name} for cls, name in TYPES.items()},
    **{cls: {"type": "string", "format": name} for cls, name in _FORMATS.items()},
    **{cls: {"type": "string", "contentEncoding": "base64"} for cls in _BINARY},
}
_SETS = {set, frozenset, abc.MutableSet, abc.Set}
_OBJECTS = {dict, abc.Mapping, abc.MutableMapping}
_COLLECTIONS = (
    {list, tuple, abc.Collection, abc.Iterable, abc.MutableSequence, abc.Sequence}
    | _SETS
    | _OBJECTS
)
_INSTEAD: dict[Any, Any] = {object: Any, LiteralString: str, abc.Iterable: list}
"""Types that msgspec does not support, and the types that replace them."""

_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "pattern", "min_length", "max_length")
_LIMITS = (*_BOUNDS, "tz")
"""Constraints that msgspec enforces. All other metadata is only descriptive."""
_META = (*_LIMITS, "title", "examples", "extra_json_schema")
_WRAPPERS = {typing.Final, typing.NotRequired, typing.Required, getattr(typing, "ReadOnly", Any)}


class NeedsPydantic(Exception):
    """Raised to end the walk when pydantic must decode the whole type."""


class TypeWalk:
    """The state of one walk. `plain` becomes False if msgspec would misread a part."""

    def __init__(self) -> None:
        self.defs: Defs = {}
        self.plain = True
        self._records: dict[Any, tuple[Schema, Any]] = {}

    def type(self, hint: Any) -> tuple[Schema, Any]:
        """Return the schema of a type, and the type that msgspec decodes."""
        base, notes = unwrap(hint)
        if any(map(is_pydantic, (base, get_origin(base), *notes))):
            raise NeedsPydantic
        self.plain &= all(top_package(type(note)) != "annotated_types" for note in notes)
        meta = read_notes(notes)
        limits = {name: meta[name] for name in _LIMITS if name in meta}
        if limits and _is_union(base):  # bounds on an optional number are bounds on the number
            base = _join_union(
                arg if arg is NoneType else Annotated[arg, Meta(**limits)] for arg in get_args(base)
            )
            meta, limits = {name: text for name, text in meta.items() if name not in limits}, {}
        schema, native = self._base(base)
        return with_notes(schema, meta), Annotated[native, Meta(**limits)] if limits else native

    def _base(self, base: Any) -> tuple[Schema, Any]:
        origin, args = get_origin(base) or base, get_args(base)
        self.plain &= origin not in _INSTEAD
        if base in _SCALARS:
            return _SCALARS[base], _INSTEAD.get(base, base)
        if origin is Literal:
            return enum_schema(base, args), base
        if _is_union(base):
            return self._union(args)
        if origin in _COLLECTIONS:
            return self._collection(_INSTEAD.get(origin, origin), args)
        if isinstance(base, type) and top_package(base) == "pathlib":
            return {"type": "string", "format": "path"}, base
        if isinstance(base, type) and issubclass(base, Enum):
            return doc_description(base) | enum_schema(
                base, [member.value for member in base]
            ), base
        if isinstance(origin, type) and (found := self._record(base)):
            return found
        if isinstance(base, (str, ForwardRef)):
            raise SchemaError(
                f"{base!r} is the name of a type, not a type, and the name cannot be resolved"
            )
        raise SchemaError(
            f"{type_name(base)} cannot be converted to JSON; use a built-in type, a class with "
            "fields, or Any"
        )

    def _union(self, args: Sequence[Any]) -> tuple[Schema, Any]:
        # Beside `str`, binary types are left out: a JSON string is text, even if it looks encoded.
        ignored = (UnsetType, *_BINARY) if str in args else (UnsetType,)
        pairs = [self.type(arg) for arg in args if arg not in ignored]
        options, members = [schema for schema, _ in pairs], [native for _, native in pairs]
        schema: Schema = (
            {} if {} in options else {"anyOf": options} if len(options) > 1 else options[0]
        )
        native = _join_union(members)
        fixed = any(
            get_origin(member) is tuple and ... not in get_args(member)
            for member in get_args(native)
        )
        if fixed and any(get_origin(member) is Annotated for member in get_args(native)):
            # msgspec 0.22 crashes if bounds and a tuple of fixed length are in one union.
            self.plain = False
            return schema, union_stand_in(members)
        try:
            decoder(native)
        except TypeError:  # msgspec cannot tell the members apart
            return schema, union_stand_in(members)
        return schema, native

    def _collection(self, origin: Any, args: tuple[Any, ...]) -> tuple[Schema, Any]:
        pairs = [({}, ...) if arg is ... else self.type(arg) for arg in args]
        native = origin[tuple(native for _, native in pairs)] if pairs else origin
        schemas = [schema for schema, native in pairs if native is not ...]
        if origin in _OBJECTS:
            key, value = schemas or ({}, {})
            named = {"propertyNames": key} if key.pop("type", None) == "string" and key else {}
            return {"type": "object"} | named | (
                {"additionalProperties": value} if value else {}
            ), native
        if origin is tuple and len(schemas) == len(pairs) > 0:
            count = {"minItems": len(pairs), "maxItems": len(pairs)}
            return {"type": "array", "prefixItems": schemas, "items": False} | count, native
        unique = {"uniqueItems": True} if origin in _SETS else {}
        return {"type": "array"} | (
            {"items": schemas[0]} if schemas and schemas[0] else {}
        ) | unique, native

    def _record(self, hint: Any) -> tuple[Schema, Any] | None:

        if hint not in self._records:
            record = read_record(hint)
            if record is None:
                return None
            title = record.cls.__name__ + (
                f"[{', '.join(map(type_name, get_args(hint)))}]" if get_args(hint) else ""
            )
            name = wanted = re.sub(r"\W+", "_", title).strip("_")
            while name in self.defs:
                name = f"{wanted}_{len(self.defs)}"
            # Register the definition before its fields are walked: they may refer to this class.
            self.defs[name] = {}
            self._records[hint] = {"$ref": REF + name}, record_stand_in(record)
            schemas = []
            for field in record.fields:
                schema, field.native = self.type(field.hint)
                schemas.append(schema)
            self.defs[name] = (
                {"title": title} | doc_description(record.cls) | record_schema(record, schemas)
            )
        return self._records[hint]


def unwrap(hint: Any) -> tuple[Any, list[Any]]:
    """Return the innermost type, and the metadata of each `Annotated` around it, innermost
    first."""
    notes: list[Any] = []
    while True:
        origin = get_origin(hint)
        alias = origin or hint
        if origin is Annotated:
            hint, notes = hint.__origin__, [*hint.__metadata__, *notes]
        elif origin in _WRAPPERS:
            hint = get_args(hint)[0]
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        elif isinstance(hint, TypeVar):
            hint = hint.__bound__ or Any
        elif type(alias).__name__ == "TypeAliasType":  # `type X = …`, from Python 3.12 on
            hint = alias.__value__[get_args(hint)] if origin else alias.__value__
        else:
            return NoneType if hint is None else hint, notes


def read_notes(notes: Iterable[Any]) -> dict[str, Any]:
    """Return the content of the metadata in the vocabulary of `Meta`. The outermost value takes
    precedence; a plain string is a description."""
    meta: dict[str, Any] = {}
    for note in notes:
        if note is Header:
            raise SchemaError('Header requires a header name, such as Header("Region")')
        if isinstance(note, Header):
            meta[KEYWORD] = note.name
        names = (
            _META
            if isinstance(note, Meta)
            else _BOUNDS
            if top_package(type(note)) == "annotated_types"
            else ()
        )
        meta |= {name: value for name in names if (value := getattr(note, name, None)) is not None}
        text = (
            note
            if isinstance(note, str)
            else getattr(note, "description", getattr(note, "documentation", None))
        )
        if text and isinstance(text, str):
            meta["description"] = text
    return meta


def _join_union(members: Iterable[Any]) -> Any:
    special: Any = Union
    return special[tuple(members)]


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def from_default(annotation: Any, default: Any) -> tuple[Any, Any]:
    """Split `days: int = Field(3, ge=1)` into its annotation and its plain default (NODEFAULT if
    there is none). This also finds the default of `days: Annotated[int, Field(default=3)]`."""
    if default is NODEFAULT and get_origin(annotation) is Annotated:
        defaults = map(_field_default, annotation.__metadata__)
        found = [value for value in defaults if value is not NODEFAULT]
        return annotation, found[-1] if found else default
    if not _is_field(default):
        return annotation, default
    return Annotated[annotation, default], _field_default(default)


def _is_field(value: Any) -> bool:
    return is_pydantic(value) and type(value).__name__ == "FieldInfo"


def _field_default(value: Any) -> Any:
    if not _is_field(value) or value.is_required():
        return NODEFAULT
    return value.get_default(call_default_factory=True)


class RecordField(Struct):
    """A class field with its type, its JSON name, and its keyword in the constructor (empty if the
    constructor does not accept the field).

    `default` is the default that the schema shows, NODEFAULT if the field is required, or UNSET if
    there is nothing to show.
    """

    hint: Any
    wire: str
    keyword: str
    default: Any
    native: Any = None
    """The type that msgspec decodes for this field in a stand-in."""


class _Array(Struct, array_like=True, forbid_unknown_fields=True):
    pass


class RecordType(Struct):
    """A class with fields. `config` defines how msgspec encodes the class."""

    cls: Any
    fields: list[RecordField]
    config: StructConfig


def read_record(hint: Any) -> RecordType | None:
    """Return the fields of a class, or None for any other type."""
    cls = get_origin(hint) or hint
    for mark, read in _READERS.items():
        if hasattr(cls, mark):
            model = cls if read is _struct else _Array if issubclass(cls, tuple) else Struct
            return RecordType(cls, list(read(cls, _hints(hint, cls))), model.__struct_config__)
    return None


def record_stand_in(record: RecordType) -> StandIn:
    """Return a stand-in for a class with fields. msgspec decodes a struct, and the class is called
    with its values."""
    struct: Any = None

    def build(value: Any) -> Any:
        nonlocal struct
        struct = struct or _define_struct(record)
        pairs = zip(record.fields, astuple(convert(value, struct)), strict=True)
        return record.cls(
            **{field.keyword: item for field, item in pairs if field.keyword and item is not UNSET}
        )

    return stand_in(
        build, {record.config.tag_field or "", *(field.wire for field in record.fields)}
    )


def _define_struct(record: RecordType) -> Any:
    names = {f"f{i}": field.wire for i, field in enumerate(record.fields)}
    rows: list[Any] = []
    for name, field in zip(names, record.fields, strict=True):
        # Every optional field defaults to UNSET, so that the class applies its own default.
        rows.append(
            (name, field.native) if field.default is NODEFAULT else (name, field.native, UNSET)
        )
    config = record.config
    return msgspec.defstruct(
        record.cls.__name__,
        rows,
        rename=names,
        kw_only=not config.array_like,
        array_like=config.array_like,
        forbid_unknown_fields=config.forbid_unknown_fields,
        tag_field=config.tag_field,
        tag=config.tag,
    )


def _hints(hint: Any, cls: type) -> dict[str, Any]:
    """Return the annotations of a class, with the parameters of `Page[int]` filled in."""
    if issubclass(cls, Struct):
        return {row.name: row.type for row in fields(hint)}
    hints = get_type_hints(cls, include_extras=True)
    filling = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))
    together: Any = tuple[tuple(hints.values())]  # type: ignore[misc]  # one type, to fill in all of them at once
    if filling and (parameters := together.__parameters__):
        together = together[tuple(filling.get(each, each) for each in parameters)]
    return dict(zip(hints, get_args(together), strict=True))


def describe_attributes(cls: Any) -> Any:
    """Return a struct with the public annotated attributes of a plain class, or None if there are
    none or if the class is a collection."""
    if not isinstance(cls, type) or issubclass(cls, (Struct, abc.Collection)):
        return None
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):
        return None
    rows = [
        (name, hint, *_class_default(cls, name))
        for name, hint in hints.items()
        if name[0] != "_" and (get_origin(hint) or hint) is not typing.ClassVar
    ]
    space = {"__doc__": cls.__doc__}
    return msgspec.defstruct(cls.__name__, rows, kw_only=True, namespace=space) if rows else None


def _class_default(cls: type, name: str) -> tuple[Any, ...]:
    default = getattr(cls, name, NODEFAULT)
    if default is NODEFAULT or hasattr(default, "__get__"):  # a slot or a property
        return ()
    return (
        (msgspec.field(default_factory=lambda: default),)
        if default.__hash__ is None
        else (default,)
    )


def _visible_default(value: Any, factory: Any, none: object = NODEFAULT) -> Any:
    """Return the default that the schema shows. A factory may have side effects, so it is called
    only if it creates an empty collection."""
    if callable(factory):
        return factory() if factory in (list, dict, set) else UNSET
    return NODEFAULT if value is none else value


def _struct(cls: Any, hints: dict[str, Any]) -> Iterator[RecordField]:
    for row in fields(cls):
        yield RecordField(
            hints[row.name],
            row.encode_name,
            row.name,
            _visible_default(row.default, row.default_factory),
        )


def _dataclass(cls: Any, hints: dict[str, Any]) -> Iterator[RecordField]:
    import dataclasses

    for row in dataclasses.fields(cls):
        default = _visible_default(row.default, row.default_factory, dataclasses.MISSING)
        yield RecordField(hints[row.name], row.name, row.name if row.init else "", default)


def _attrs(cls: Any, hints: dict[str, Any]) -> Iterator[RecordField]:
    from attrs import NOTHING

    for row in cls.__attrs_attrs__:
        default = _visible_default(row.default, getattr(row.default, "factory", None), NOTHING)
        yield RecordField(hints[row.name], row.name, row.alias if row.init else "", default)


def _typed_dict(cls: Any, hints: dict[str, Any]) -> Iterator[RecordField]:
    # With `from __future__ import annotations`, `__required_keys__` ignores Required and
    # NotRequired.
    marks = {typing.Required: True, typing.NotRequired: False}
    for name, hint in hints.items():
        required = marks.get(get_origin(hint), name in cls.__required_keys__)
        yield RecordField(hint, name, name, NODEFAULT if required else UNSET)


def _named_tuple(cls: Any, hints: dict[str, Any]) -> Iterator[RecordField]:
    for name in cls._fields:
        yield RecordField(
            hints.get(name, Any), name, name, cls._field_defaults.get(name, NODEFAULT)
        )


_READERS: dict[str, Callable[[Any, dict[str, Any]], Iterator[RecordField]]] = {
    "__struct_fields__": _struct,
    "__dataclass_fields__": _dataclass,
    "__attrs_attrs__": _attrs,
    "__required_keys__": _typed_dict,
    "_field_defaults": _named_tuple,
}
