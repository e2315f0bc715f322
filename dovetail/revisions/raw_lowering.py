"""How a revision lowers raw values.

The result is the same as that of lowering the typed value, except that unknown fields are kept.
Only fields that the revision may change are decoded: one level at a time, down to the objects that
it changes. Everything else is sent as it was received.

    tool result, 2025-11-25     the first byte of `structuredContent` is read
    tool result, 2024-11-05     `content` is split into blocks. Audio is decoded and replaced; other
                                blocks lose the fields that the revision lacks
    tools, 2025-06-18           `tools` is split into tools. Each loses its icons

An object that cannot be decoded is not changed.
"""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields

from ..jsonrpc.messages import encode
from ..protocol.base import Open
from ..protocol.content import OtherContent
from ..protocol.decoding import decode
from ..protocol.raw import NULL, RawObject, split_object
from .lowering import Conversion, FieldRule, lookup, lower_items

if TYPE_CHECKING:
    from .revision import Revision

Fields = dict[str, Any]
RawStep = Callable[[Raw], Raw]
"""A function that lowers raw JSON, and returns the same object if nothing changes."""
FieldStep = Callable[[Raw], Any]
"""A function that lowers a raw field, and returns None to drop it."""
_split_list = msgspec.json.Decoder(list[Raw]).decode
_UNREADABLE = (msgspec.MsgspecError, RecursionError)


class RawLowering:
    """The lowering of one revision for a RawObject of any type."""

    def __init__(self, revision: "Revision", kind: type) -> None:
        self._revision = revision
        self._objects: dict[type, ObjectLowering] = {}

    def __call__(self, value: RawObject) -> Fields:
        """Return the fields to encode."""
        found = self._objects.get(value.type)
        if found is None:
            found = self._objects[value.type] = ObjectLowering(
                self._revision, value.type, frozenset()
            )
        return found.lower(value.fields)


class ObjectLowering:
    """The lowering of one revision for the fields of one type."""

    def __init__(self, revision: "Revision", kind: type[Struct], open_: frozenset[type]) -> None:
        rule = lookup(revision.instead, kind)
        absent = lookup(revision.absent, kind) or ()
        hints = get_type_hints(kind)
        self._steps: list[tuple[str, FieldStep]] = []
        self._stamp: list[tuple[str, Raw]] = []
        required = lookup(revision.stamp, kind) or {}
        for field in fields(kind):
            name, wire_name = field.name, field.encode_name
            convert = rule.convert if isinstance(rule, FieldRule) and rule.field == name else None
            step = (
                _drop
                if name in absent
                else _field_step(revision, hints[name], convert, open_ | {kind})
            )
            if step is not None:
                self._steps.append((wire_name, step))
            if name in required:
                self._stamp.append((wire_name, Raw(encode(required[name]))))
        self.changes = bool(self._steps or self._stamp)

    def lower(self, before: Fields) -> Fields:
        """Return the fields to encode. Return the same dict if nothing changes."""
        after = before
        for name, step in self._steps:
            raw = before.get(name)
            if raw is None or (lowered := step(raw)) is raw:
                continue
            after = dict(before) if after is before else after
            if lowered is None:
                del after[name]
            else:
                after[name] = lowered
        for name, needed in self._stamp:
            if before.get(name, NULL) == NULL:
                after = dict(before) if after is before else after
                after[name] = needed
        return after


def _drop(raw: Raw) -> None:
    return None


def _field_step(
    revision: "Revision", hint: Any, convert: Conversion | None, open_: frozenset[type]
) -> FieldStep | None:
    """Build the lowering of one field. Return None if it never changes."""
    inner = _raw_step(revision, hint, open_)
    if inner is None and convert is None:
        return None
    lower = revision.lower

    def step(raw: Raw) -> Any:
        if convert is not None:
            try:
                before = raw if hint is Any else decode(raw, hint)
                after = convert(before)
            except _UNREADABLE:
                after = before = None
            if after is not before:
                return lower_items(after, lower)
        return raw if inner is None else inner(raw)

    return step


def _raw_step(revision: "Revision", hint: Any, open_: frozenset[type]) -> RawStep | None:
    """Build the lowering of raw values of a type. Return None if they never change."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union_step(revision, [arg for arg in args if arg is not NoneType], open_)
    if origin in (list, dict):
        each = _raw_step(revision, args[-1], open_)
        return None if each is None else _lower_list(each) if origin is list else _lower_dict(each)
    if not isinstance(hint, type) or hint in open_:
        return None
    if issubclass(hint, Open):
        return _open_step(revision, hint, open_)
    if not issubclass(hint, Struct):
        return None
    instead = lookup(revision.instead, hint)
    if instead is not None and not isinstance(instead, FieldRule):
        return _substitute(revision, hint)
    lowering = ObjectLowering(revision, hint, open_)
    return _lower_object(lowering.lower) if lowering.changes else None


def _union_step(revision: "Revision", kinds: list[Any], open_: frozenset[type]) -> RawStep | None:
    """Build the lowering of a value that is a list, or an object of a type that its tag names."""
    of_list: RawStep | None = None
    of_object: RawStep | None = None
    by_tag: dict[str, RawStep] = {}
    for kind in kinds:
        # Content of an unknown kind is wrapped only when it is decoded.
        step = None if kind is OtherContent else _raw_step(revision, kind, open_)
        if step is None:
            continue
        if get_origin(kind) is list:
            of_list = step
        elif issubclass(kind, Struct) and isinstance(kind.__struct_config__.tag, str):
            by_tag[kind.__struct_config__.tag] = step
        else:
            of_object = step
    if by_tag:
        of_object = _lower_tagged(by_tag)
    if of_list is None:
        return of_object

    def lower(raw: Raw) -> Raw:
        step = of_list if bytes(memoryview(raw)[:1]) == b"[" else of_object
        return raw if step is None else step(raw)

    return lower


def _lower_tagged(by_tag: dict[str, RawStep]) -> RawStep:
    def lower(raw: Raw) -> Raw:
        try:
            step = by_tag.get(_peek_tag(raw).type)
        except _UNREADABLE:
            return raw
        return raw if step is None else step(raw)

    return lower


class _Tagged(Struct):
    type: str = ""


_peek_tag = msgspec.json.Decoder(_Tagged).decode


def _open_step(revision: "Revision", kind: type[Open], open_: frozenset[type]) -> RawStep | None:
    """Build the lowering of an Open object."""
    absent = {kind.known[name] for name in lookup(revision.absent, kind) or ()}
    hints = get_type_hints(kind)
    steps: dict[str, RawStep] = {
        key: step
        for name, key in kind.known.items()
        if key not in absent
        and (step := _raw_step(revision, hints[name], open_ | {kind})) is not None
    }
    if not absent and not steps:
        return None

    def lower(before: Fields) -> Fields:
        after = {
            key: steps[key](value) if key in steps else value
            for key, value in before.items()
            if key not in absent
        }
        return before if _is_same(after, before) else after

    return _lower_object(lower)


def _lower_object(lower: Callable[[Fields], Fields]) -> RawStep:
    def step(raw: Raw) -> Raw:
        try:
            before = split_object(raw)
        except _UNREADABLE:
            return raw
        after = lower(before)
        return raw if after is before else Raw(encode(after))

    return step


def _lower_list(each: RawStep) -> RawStep:
    def step(raw: Raw) -> Raw:
        try:
            before = _split_list(raw)
        except _UNREADABLE:
            return raw
        after = [each(item) for item in before]
        same = all(new is old for new, old in zip(after, before, strict=True))
        return raw if same else Raw(encode(after))

    return step


def _lower_dict(each: RawStep) -> RawStep:
    return _lower_object(lambda before: _map(each, before))


def _map(each: RawStep, before: Fields) -> Fields:
    after = {key: each(value) for key, value in before.items()}
    return before if _is_same(after, before) else after


def _is_same(after: Fields, before: Fields) -> bool:
    return len(after) == len(before) and all(after[key] is before[key] for key in before)


def _substitute(revision: "Revision", kind: type[Struct]) -> RawStep:
    """Build the lowering of a type that the revision replaces."""

    def step(raw: Raw) -> Raw:
        try:
            return Raw(encode(revision.lower(decode(raw, kind))))
        except _UNREADABLE:
            return raw

    return step
