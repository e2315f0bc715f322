"""Protocol objects whose fields are not decoded, for programs that relay messages.

Decoding drops unknown fields. A `RawObject` keeps them: only its top level is decoded, and each
field stays as it was received.
"""

from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from typing import Any, Final, Self, TypeAlias

import msgspec
from msgspec import NODEFAULT, Raw, Struct
from msgspec.structs import replace

from .base import Meta, Params, open_hook
from .content import OtherContent
from .decoding import decode, plain

StructType: TypeAlias = type[Struct]
_encode = msgspec.json.Encoder().encode
NULL = Raw(b"null")
_OTHER_TAG = OtherContent.__struct_config__.tag
_OTHER = _encode(_OTHER_TAG)
split_object = msgspec.json.Decoder(dict[str, Raw]).decode
"""Decode the top level of a JSON object, and leave its values raw."""


class RawObject(Struct, eq=False):
    """A value of a protocol type whose fields are not decoded.

    Reading an attribute of the type (`result.is_error`) decodes that field. Setting an attribute
    replaces the field. The other fields, known or unknown, stay as they are.
    """

    type: StructType
    """The protocol type, such as `ToolResult`."""
    fields: dict[str, Raw]
    """The fields as raw JSON, by their names on the wire."""

    @classmethod
    def parse(cls, type: StructType, data: bytes | Raw) -> Self:
        """Decode the top level of a JSON object.

        Args:
            type: The protocol type of the object.
            data: The object as JSON.

        Raises:
            msgspec.DecodeError: The data is not a JSON object.
        """
        return cls(type, split_object(data))

    def __getattr__(self, name: str) -> Any:
        field = self._find(name)
        raw = self.fields.get(field.wire_name)
        if raw is None or (raw == NULL and not field.is_required):
            if field.is_required:
                raise AttributeError(f"This {self.type.__name__} has no {field.wire_name!r}")
            return field.make_default()
        try:
            return field.decode(raw)
        except msgspec.MsgspecError:
            return self._decode_repaired(name)

    def _decode_repaired(self, name: str) -> Any:
        try:
            return getattr(self.decode(), name)
        except msgspec.MsgspecError as problem:
            raise AttributeError(f"This {self.type.__name__} is malformed: {problem}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("type", "fields"):
            super().__setattr__(name, value)
        elif value is None:
            self.fields.pop(self._find(name).wire_name, None)
        else:
            self.fields[self._find(name).wire_name] = Raw(encode_typed(value))

    def _find(self, name: str) -> "_Field":
        found = _fields_of(self.type).get(name)
        if found is None:
            raise AttributeError(f"{self.type.__name__} has no attribute {name!r}")
        return found

    def decode(self) -> Any:
        """Return a value of the type, without the unknown fields.

        Raises:
            msgspec.ValidationError: A field does not have the expected type.
        """
        return decode(_encode(self.fields), self.type)


def encode_raw(value: Any) -> Raw:
    """Return a value as raw JSON."""
    return Raw(_encode(value))


def encode_typed(value: Any) -> bytes:
    """Encode a typed value as it is sent: content of an unknown kind is not wrapped."""
    data = _encode(value)
    return _encode(_unwrap(plain(data))) if _OTHER in data else data


def _unwrap(value: Any) -> Any:
    if isinstance(value, list):
        return [_unwrap(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == _OTHER_TAG and "value" in value:
        return value["value"]
    return {key: _unwrap(item) for key, item in value.items()}


class _Field:
    """How to decode one field of a type."""

    __slots__ = ("decode", "is_required", "make_default", "wire_name")

    def __init__(self, field: msgspec.structs.FieldInfo) -> None:
        self.wire_name = field.encode_name
        self.is_required = field.required
        self.decode = msgspec.json.Decoder(field.type, dec_hook=open_hook).decode
        factory = field.default_factory
        self.make_default = (lambda: field.default) if factory is NODEFAULT else factory


@cache
def _fields_of(type_: StructType) -> dict[str, _Field]:
    return {field.name: _Field(field) for field in msgspec.structs.fields(type_)}


def split_meta(fields: Mapping[str, Raw]) -> dict[str, Any]:
    """Return the `_meta` of a raw object, with raw values."""
    meta = fields.get("_meta", NULL)
    return {} if meta == NULL else split_object(meta)


MAX_CACHED_META_BYTES: Final = 1024


def keep_meta(meta: Raw, dropped: frozenset[str]) -> Mapping[str, Raw]:
    """Return the items of a raw `_meta` object, without these keys. Do not change the result: most
    clients send the same `_meta` with each message, so it is cached.

    Raises:
        msgspec.DecodeError: The `_meta` is not an object.
    """
    data = bytes(meta)
    keep = _keep_meta if len(data) <= MAX_CACHED_META_BYTES else _keep_meta.__wrapped__
    return keep(data, dropped)


@lru_cache(256)
def _keep_meta(meta: bytes, dropped: frozenset[str]) -> Mapping[str, Raw]:
    items = {} if meta == b"null" else split_object(meta)
    # Copies, so that the cache does not keep whole messages.
    return {key: Raw(bytes(value)) for key, value in items.items() if key not in dropped}


def without_meta(value: RawObject, keys: Collection[str]) -> RawObject:
    """Return a raw object without these keys in its `_meta`. A `_meta` that is not an object is
    dropped."""
    if "_meta" not in value.fields:
        return value
    try:
        meta = split_meta(value.fields)
    except msgspec.MsgspecError:
        meta = {}
    kept = {key: item for key, item in meta.items() if key not in keys}
    fields = {key: item for key, item in value.fields.items() if key != "_meta"}
    if kept:
        fields["_meta"] = Raw(_encode(kept))
    return RawObject(value.type, fields)


def with_meta(params: Any, meta: Meta) -> Any:
    """Return a copy of params, typed or raw, with these keys in their `_meta`. Params that are
    None count as empty."""
    if type(params) is RawObject:
        fields = {**params.fields, "_meta": Raw(_encode({**split_meta(params.fields), **meta}))}
        return RawObject(params.type, fields)
    params = Params() if params is None else params
    return replace(params, meta={**(params.meta or {}), **meta})
