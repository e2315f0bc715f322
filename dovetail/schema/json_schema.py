"""Build JSON schemas from parts.

An incomplete schema is a pair of a root and the definitions that its `$ref`s refer to. The
schema of a function is built from the schemas of its parameters: `merge_definitions` combines their
definitions, and `inline_definitions` turns the result into one schema.
"""

from collections.abc import Callable, Iterable
from types import NoneType
from typing import TYPE_CHECKING, Any, LiteralString, TypeAlias

import msgspec
from msgspec import NODEFAULT, UNSET

from ..errors import SchemaError
from .codec import Unencodable, encode, type_name

if TYPE_CHECKING:
    from .walk import RecordType

Schema: TypeAlias = dict[str, Any]
Defs: TypeAlias = dict[str, Schema]

REF = "#/$defs/"
_MAPS = {"properties", "patternProperties", "$defs", "dependentSchemas"}
_DATA = {"default", "enum", "const", "examples"}

TYPES = {
    NoneType: "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    LiteralString: "string",
}
_NAMES = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
"""JSON Schema keywords for limits that have different names in msgspec."""
_UNITS = {"string": "Length", "array": "Items", "object": "Properties"}


def enum_schema(base: Any, values: Iterable[Any]) -> Schema:
    """Return the schema of an enumeration."""
    values = list(values)
    kinds = {TYPES.get(type(value)) for value in values}
    if None in kinds:
        raise SchemaError(
            f"{type_name(base)} has values that cannot be converted to JSON; use strings or numbers"
        )
    return ({"type": kinds.pop()} if len(kinds) == 1 else {}) | {"enum": values}


def with_notes(schema: Schema, meta: dict[str, Any]) -> Schema:
    """Return the schema with the content of the annotations added."""
    unit = _UNITS.get(schema.get("type", ""), "")
    words = {}
    for name, value in meta.items():
        if name in ("min_length", "max_length"):
            words[name[:3] + unit] = (
                4 * ((value + 2) // 3) if "contentEncoding" in schema else value
            )
        elif name not in ("tz", "extra_json_schema"):
            words[_NAMES.get(name, name)] = value
    return {**schema, **words, **meta.get("extra_json_schema", {})}


def record_schema(record: "RecordType", schemas: list[Schema]) -> Schema:
    """Return the schema of a class: an object, or an array for a named tuple."""
    config = record.config
    properties = (
        {} if config.tag is None else {str(config.tag_field): enum_schema(record.cls, [config.tag])}
    )
    required = [*properties]
    for field, schema in zip(record.fields, schemas, strict=True):
        properties[field.wire] = schema | default_schema(field.default)
        required += [field.wire] if field.default is NODEFAULT else []
    if config.array_like:
        closed: Schema = {"maxItems": len(properties)} if config.forbid_unknown_fields else {}
        return {
            "type": "array",
            "prefixItems": [*properties.values()],
            "minItems": len(required),
        } | closed
    closed = {"additionalProperties": False} if config.forbid_unknown_fields else {}
    return (
        {"type": "object", "properties": properties}
        | ({"required": required} if required else {})
        | closed
    )


def doc_description(cls: type) -> Schema:
    """Return the class's docstring as a description."""
    # Dataclasses and named tuples without a docstring get one that only repeats the signature.
    if not cls.__doc__ or cls.__doc__.startswith(f"{cls.__name__}("):
        return {}
    from inspect import cleandoc  # slow to import, and most types have no docstring

    return {"description": cleandoc(cls.__doc__)}


def default_schema(default: Any) -> Schema:
    """Return `{"default": …}`, or {} if there is no default or if it cannot be converted to
    JSON."""
    if default is NODEFAULT or default is UNSET:
        return {}
    try:
        return {"default": msgspec.json.decode(encode(default))}
    except Unencodable:
        return {}


def merge_definitions(schema: Schema, defs: Defs, into: Defs) -> Schema:
    """Return the schema with its definitions moved to `into`, renamed if another type has the same
    name."""
    suffix, count = "", 1
    while any(
        into.get(name + suffix, definition) != definition for name, definition in defs.items()
    ):
        count += 1
        suffix = f"_{count}"

    def rename(node: Schema) -> Schema:
        return node | {"$ref": node["$ref"] + suffix} if _ref_name(node) else node

    into.update({name + suffix: _rewrite(definition, rename) for name, definition in defs.items()})
    merged: Schema = _rewrite(schema, rename)
    return merged


def inline_definitions(schema: Schema, defs: Defs) -> Schema:
    """Combine a root and its definitions into one schema.

    A definition that is used once is written in place, because many clients mishandle references.
    Shared and recursive definitions stay. The root always shows its type.
    """
    uses: dict[str, int] = {}

    def count(node: Schema) -> Schema:
        if name := _ref_name(node):
            uses[name] = uses.get(name, 0) + 1
            if uses[name] == 1:
                _rewrite(defs[name], count)
        return node

    def inline(node: Schema) -> Schema:
        name = _ref_name(node)
        return inline(resolve_ref(node, defs)) if name and uses[name] == 1 else node

    _rewrite(schema, count)
    shared = {name: _rewrite(defs[name], inline) for name, number in uses.items() if number > 1}
    root: Schema = _rewrite(resolve_ref(schema, defs), inline)
    return root | ({"$defs": shared} if shared else {})


def resolve_ref(node: Schema, defs: Defs) -> Schema:
    """Return the definition that a reference names. Keys next to `$ref` take precedence."""
    name = _ref_name(node)
    return (
        defs[name] | {key: value for key, value in node.items() if key != "$ref"} if name else node
    )


def accepts_string(schema: Schema, defs: Defs) -> bool:
    """Return whether the schema can accept a JSON string."""
    schema = resolve_ref(schema, defs)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return any(accepts_string(option, defs) for option in options)
    if "enum" in schema or "const" in schema:
        return any(isinstance(value, str) for value in schema.get("enum", [schema.get("const")]))
    return "string" in schema.get("type", "string")


def repair_strings(value: Any, schema: Schema, defs: Defs) -> Any:
    """Return the value with strings replaced by the JSON that they contain, at every depth, but
    only where the schema does not accept a string: `"3"` for an integer, `"[1]"` for an array."""
    options = _options(schema, defs)
    if isinstance(value, str):
        if accepts_string(schema, defs):
            return value
        word = value.strip().lower()
        try:
            parsed = msgspec.json.decode(word if word in ("true", "false", "null") else value)
        except (ValueError, RecursionError):
            return value
        return value if isinstance(parsed, str) else repair_strings(parsed, schema, defs)
    if isinstance(value, list):
        return [
            repair_strings(item, {"anyOf": inner}, defs)
            if (inner := _item_schemas(at, options))
            else item
            for at, item in enumerate(value)
        ]
    if isinstance(value, dict):
        return {
            name: repair_strings(item, {"anyOf": inner}, defs)
            if (inner := _property_schemas(name, options))
            else item
            for name, item in value.items()
        }
    return value


def _options(schema: Schema, defs: Defs) -> list[Schema]:
    """Return the members of a union, or the schema itself if it is not a union."""
    schema = resolve_ref(schema, defs)
    members = schema.get("anyOf") or schema.get("oneOf")
    return [each for member in members for each in _options(member, defs)] if members else [schema]


def _item_schemas(at: int, options: list[Schema]) -> list[Schema]:
    """Return the schema that each member of a union has for an array item."""
    found = [
        option["prefixItems"][at]
        if at < len(option.get("prefixItems", ()))
        else option.get("items")
        for option in options
    ]
    return [schema for schema in found if isinstance(schema, dict)]


def _property_schemas(name: str, options: list[Schema]) -> list[Schema]:
    """Return the schema that each member of a union has for a property."""
    found = [
        option.get("properties", {}).get(name, option.get("additionalProperties"))
        for option in options
    ]
    return [schema for schema in found if isinstance(schema, dict)]


def _ref_name(node: Schema) -> str:
    ref = node.get("$ref")
    return ref.removeprefix(REF) if isinstance(ref, str) and ref.startswith(REF) else ""


def _rewrite(schema: Any, change: Callable[[Schema], Schema]) -> Any:
    """Return a copy of a schema with every subschema changed, outer subschemas first."""
    if isinstance(schema, list):
        return [_rewrite(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy: Schema = {}
    for key, value in change(schema).items():
        if key in _DATA:
            copy[key] = value
        elif key in _MAPS:
            copy[key] = {name: _rewrite(inner, change) for name, inner in value.items()}
        elif (
            key != "discriminator"
        ):  # an OpenAPI keyword; its mapping would name definitions that are gone
            copy[key] = _rewrite(value, change)
    return copy
