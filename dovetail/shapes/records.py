"""Classes with fields, whoever made them: dataclasses, attrs, structs, typed dicts, named tuples.

Each kind has a reader that lists its fields in our terms; the table at the end knows a kind by an
attribute that only its classes have. `mirror` makes a stand-in of what was read: a struct of the
same fields, decoded by msgspec, from which the class is then called. It is only ever used where
msgspec cannot decode the class itself.
"""

import typing
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Struct
from msgspec.structs import StructConfig, astuple, fields

from .codec import StandIn, convert, stand_in


class Field(Struct):
    """A field, what JSON calls it, and what the constructor calls it: nothing, if it does not take
    it. The default is the one to show: NODEFAULT where the field is required, UNSET where there is
    nothing to show."""

    hint: Any
    wire: str
    keyword: str
    default: Any
    native: Any = None
    """What msgspec is given for it in a mirror."""


class _Array(Struct, array_like=True, forbid_unknown_fields=True):
    pass


class Record(Struct):
    """A class with fields; how it is written, a struct can say of itself."""

    cls: Any
    fields: list[Field]
    config: StructConfig


def record_of(hint: Any) -> Record | None:
    """A class with fields as such; None for any other type."""
    cls = get_origin(hint) or hint
    for mark, read in _READERS.items():
        if hasattr(cls, mark):
            model = cls if read is _struct else _Array if issubclass(cls, tuple) else Struct
            return Record(cls, list(read(cls, _hints(hint, cls))), model.__struct_config__)
    return None


def mirror(record: Record) -> StandIn:
    """Stands for a class with fields: a struct with the same ones is decoded, and the class called
    with what it got."""
    struct: Any = None

    def build(value: Any) -> Any:
        nonlocal struct
        struct = struct or _defined(record)
        given = zip(record.fields, astuple(convert(value, struct)), strict=True)
        return record.cls(
            **{field.keyword: item for field, item in given if field.keyword and item is not UNSET}
        )

    return stand_in(
        build, {record.config.tag_field or "", *(field.wire for field in record.fields)}
    )


def _defined(record: Record) -> Any:
    names = {f"f{i}": field.wire for i, field in enumerate(record.fields)}
    rows: list[Any] = []
    for name, field in zip(names, record.fields, strict=True):
        # UNSET is the default of all, so that the class can apply its own.
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
    """The annotations of a class, with the parameters of `Page[int]` filled in."""
    if issubclass(cls, Struct):
        return {row.name: row.type for row in fields(hint)}
    hints = get_type_hints(cls, include_extras=True)
    filling = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))
    together: Any = tuple[tuple(hints.values())]  # type: ignore[misc]  # one type, to fill in all of them at once
    if filling and (parameters := together.__parameters__):
        together = together[tuple(filling.get(each, each) for each in parameters)]
    return dict(zip(hints, get_args(together), strict=True))


def _shown(value: Any, factory: Any, none: object = NODEFAULT) -> Any:
    """The default to show; a factory is not called, since it may do anything, but for the empty
    collections."""
    if callable(factory):
        return factory() if factory in (list, dict, set) else UNSET
    return NODEFAULT if value is none else value


def _struct(cls: Any, hints: dict[str, Any]) -> Iterator[Field]:
    for row in fields(cls):
        yield Field(
            hints[row.name], row.encode_name, row.name, _shown(row.default, row.default_factory)
        )


def _dataclass(cls: Any, hints: dict[str, Any]) -> Iterator[Field]:
    import dataclasses

    for row in dataclasses.fields(cls):
        default = _shown(row.default, row.default_factory, dataclasses.MISSING)
        yield Field(hints[row.name], row.name, row.name if row.init else "", default)


def _attrs(cls: Any, hints: dict[str, Any]) -> Iterator[Field]:
    from attrs import NOTHING

    for row in cls.__attrs_attrs__:
        default = _shown(row.default, getattr(row.default, "factory", None), NOTHING)
        yield Field(hints[row.name], row.name, row.alias if row.init else "", default)


def _typed_dict(cls: Any, hints: dict[str, Any]) -> Iterator[Field]:
    # With `from __future__ import annotations`, __required_keys__ has not seen Required and
    # NotRequired.
    marks = {typing.Required: True, typing.NotRequired: False}
    for name, hint in hints.items():
        required = marks.get(get_origin(hint), name in cls.__required_keys__)
        yield Field(hint, name, name, NODEFAULT if required else UNSET)


def _named_tuple(cls: Any, hints: dict[str, Any]) -> Iterator[Field]:
    for name in cls._fields:
        yield Field(hints.get(name, Any), name, name, cls._field_defaults.get(name, NODEFAULT))


_READERS: dict[str, Callable[[Any, dict[str, Any]], Iterator[Field]]] = {
    "__struct_fields__": _struct,
    "__dataclass_fields__": _dataclass,
    "__attrs_attrs__": _attrs,
    "__required_keys__": _typed_dict,
    "_field_defaults": _named_tuple,
}
