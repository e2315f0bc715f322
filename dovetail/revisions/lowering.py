"""How a revision lowers typed values.

The lowering of a type is a function that is built once, by walking the type's fields. It is None if
the revision never changes values of the type. `raw_lowering.py` does the same for raw values.
"""

from collections.abc import Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields, replace

from ..protocol.base import Open

if TYPE_CHECKING:
    from .revision import Revision

Conversion = Callable[[Any], Any]
"""A function that receives a value and returns another, or the same object."""


class FieldRule(Struct, frozen=True, eq=False):
    """A conversion that changes one field of a type and needs to know only that field."""

    field: str
    convert: Conversion
    """A function that receives the field's value and returns the same object if nothing changes. If
    the field may have any type, its value may be raw JSON."""


def build_lowering(
    revision: "Revision", kind: type, _open: frozenset[type] = frozenset()
) -> Conversion | None:
    """Build the lowering for one type. Return None if its values never change."""
    instead: Conversion | None = lookup(revision.instead, kind)
    if issubclass(kind, Open):
        return _build_open_lowering(revision, kind, _open)
    if not issubclass(kind, Struct):
        return instead
    names = tuple(field.name for field in fields(kind))
    absent = tuple(name for name in lookup(revision.absent, kind) or () if name in names)
    stamp = tuple((lookup(revision.stamp, kind) or {}).items())
    hints = get_type_hints(kind)
    # Do not lower the parts of a dropped field: that would bring it back.
    inner = tuple(
        name
        for name in names
        if name not in absent and _needs_lowering(revision, hints[name], _open | {kind})
    )
    if instead is None and not absent and not stamp and not inner:
        return None
    lower = revision.lower
    rule, convert = "", None
    if isinstance(instead, FieldRule):
        rule, convert, instead = instead.field, instead.convert, None

    def step(value: Any) -> Any:
        if convert is not None:
            before = getattr(value, rule)
            after = convert(before)
            if after is not before:
                value = replace(value, **{rule: after})
        elif instead is not None:
            substitute = instead(value)
            if type(substitute) is not kind:
                return lower(substitute)
            value = substitute
        changed: dict[str, Any] = {}
        for name in absent:
            if getattr(value, name) is not None:
                changed[name] = None
        for name, needed in stamp:
            if getattr(value, name) is None:
                changed[name] = needed
        for name in inner:
            before = getattr(value, name)
            after = lower_items(before, lower)
            if after is not before:
                changed[name] = after
        return replace(value, **changed) if changed else value

    return step


def lower_items(value: Any, lower: Conversion) -> Any:
    """Apply `lower` to a field, which is one value, a list or a mapping. Returns the same object if
    nothing changed."""
    if isinstance(value, list):
        after = [lower(item) for item in value]
        return value if after == value else after
    if type(value) is dict:
        mapped = {key: lower(item) for key, item in value.items()}
        return value if mapped == value else mapped
    return lower(value)


def _needs_lowering(revision: "Revision", hint: Any, open_: frozenset[type]) -> bool:
    """Return whether a field of this type can hold a value that this revision changes."""
    origin = get_origin(hint)
    if origin in (list, dict, Union, UnionType):
        return any(_needs_lowering(revision, arg, open_) for arg in get_args(hint))
    if not isinstance(hint, type) or not issubclass(hint, (Struct, Open)) or hint in open_:
        return False
    related = [hint, *hint.__subclasses__()]
    return any(
        lookup(revision.instead, kind) or build_lowering(revision, kind, open_) for kind in related
    )


def lookup(table: Mapping[type, Any], kind: type) -> Any:
    """Return the entry for a type or its closest base."""
    return next((table[base] for base in kind.__mro__ if base in table), None)


def _build_open_lowering(
    revision: "Revision", kind: type[Open], open_: frozenset[type]
) -> Conversion | None:
    """Build the lowering for an Open object, whose keys are in wire form and whose unknown keys are
    kept."""
    hints = get_type_hints(kind)
    absent = frozenset(kind.known[name] for name in lookup(revision.absent, kind) or ())
    inner = tuple(
        key
        for name, key in kind.known.items()
        if _needs_lowering(revision, hints[name], open_ | {kind})
    )
    if not absent and not inner:
        return None
    lower = revision.lower

    def step(value: Any) -> Any:
        after = {key: lower(value[key]) for key in inner if key in value}
        if absent.isdisjoint(value) and all(after[key] is value[key] for key in after):
            return value
        return kind.of(
            {key: after.get(key, item) for key, item in value.items() if key not in absent}
        )

    return step
