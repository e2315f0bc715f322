"""Summarize a tool's JSON schema for people: list its fields and the values that each accepts.

A schema comes from a server and may be hostile: it may refer to itself, be deeply nested, or
contain anything. Every traversal is bounded, and invalid parts are omitted.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

JSON_TYPES: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
}
MAX_STEPS = 64
"""The maximum number of references and union members to follow; a hostile schema may be endless."""
MAX_DEPTH, MAX_FIELDS, MAX_CHOICES, MAX_TYPE_CHARS = 3, 100, 12, 120
"""Limits on the part of a schema that is shown."""


class SchemaField(NamedTuple):
    """An argument of a tool or prompt, or a field within one."""

    path: str
    """The name in the form that `dovetail call` accepts: `note.title`."""
    type: str
    required: bool
    description: str


def schema_types(schema: Any, root: dict[str, Any]) -> set[str]:
    """Return the JSON types that a schema accepts; empty if the schema does not specify any."""
    found: set[str] = set()
    pending = [schema]
    for _ in range(MAX_STEPS):
        if not pending:
            break
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        type_ = node.get("type")
        found |= {name for name in (type_, *as_list(type_)) if isinstance(name, str)}
        if not type_:
            found |= {name for value in _choices(node) for name in JSON_TYPES[type(value)]}
            pending += _members(node, root, "anyOf", "oneOf")
    return found


def find_property(schema: Any, root: dict[str, Any], name: str) -> Any:
    """Return the schema of a declared property of an object; None if it is not declared."""
    for node in _alternatives(schema, root):
        properties = node.get("properties")
        if isinstance(properties, dict) and name in properties:
            return properties[name]
    return None


def find_items(schema: Any, root: dict[str, Any]) -> Any:
    """Return the schema of an array's items; None if it is not declared."""
    return next((node["items"] for node in _alternatives(schema, root) if "items" in node), None)


def list_fields(schema: dict[str, Any]) -> list[SchemaField]:
    """Return the fields of a schema, each followed by its subfields; long or deep lists are
    truncated."""
    found: list[SchemaField] = []
    _add_fields(schema, schema, "", 0, found)
    return found


def _add_fields(
    schema: Any, root: dict[str, Any], prefix: str, depth: int, found: list[SchemaField]
) -> None:
    for node in _alternatives(schema, root):
        properties, required = node.get("properties"), as_list(node.get("required"))
        for name, own in properties.items() if isinstance(properties, dict) else ():
            if len(found) >= MAX_FIELDS:
                return
            description = own.get("description") if isinstance(own, dict) else None
            path = prefix + name
            type_ = _cut(f"{_describe_type(own, root, 0)}{_default(own)}", MAX_TYPE_CHARS)
            found.append(SchemaField(path, type_, name in required, str(description or "")))
            if depth + 1 < MAX_DEPTH:
                _add_fields(own, root, f"{path}.", depth + 1, found)
                _add_fields(find_items(own, root), root, f"{path}[].", depth + 1, found)


def describe_result(schema: dict[str, Any]) -> str:
    """Summarize a tool's output schema: `{city: string, days: [{day: integer}]}`."""
    properties = schema.get("properties")
    wrapped = isinstance(properties, dict) and list(properties) == ["result"]
    inner = properties["result"] if wrapped and isinstance(properties, dict) else schema
    return _cut(_describe_shape(inner, schema, 0), 2 * MAX_TYPE_CHARS)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _describe_type(schema: Any, root: dict[str, Any], depth: int) -> str:
    """Return the types, choices and bounds of a schema in a few words."""
    from ..schema.explain import BOUNDS  # not needed to print help

    nodes = list(_alternatives(schema, root))
    choices = [choice for node in nodes for choice in _choices(node)]
    if choices:
        shown = [to_json(choice) for choice in choices[:MAX_CHOICES]]
        return "|".join([*shown, *(["…"] if len(choices) > MAX_CHOICES else [])])
    names = "|".join(sorted(schema_types(schema, root))) or "any"
    items = find_items(schema, root)
    if "array" in names and items is not None and depth < MAX_DEPTH:
        names = names.replace("array", f"array of {_describe_type(items, root, depth + 1)}")
    bounds = [
        text.format(node[key])
        for node in nodes
        for key, text in {**BOUNDS, "format": "{}"}.items()
        if isinstance(node.get(key), str | int | float)
    ]
    return f"{names} ({', '.join(bounds)})" if bounds else names


def _describe_shape(schema: Any, root: dict[str, Any], depth: int) -> str:
    types = schema_types(schema, root)
    if depth < MAX_DEPTH and types == {"array"}:
        return f"[{_describe_shape(find_items(schema, root), root, depth + 1)}]"
    properties = next(
        (node["properties"] for node in _alternatives(schema, root) if node.get("properties")), None
    )
    if depth < MAX_DEPTH and types == {"object"} and isinstance(properties, dict):
        most = MAX_CHOICES >> depth  # inner objects are shown in less detail
        fields = [
            f"{name}: {_describe_shape(own, root, depth + 1)}"
            for name, own in list(properties.items())[:most]
        ]
        return f"{{{', '.join([*fields, *(['…'] if len(properties) > most else [])])}}}"
    return _describe_type(schema, root, depth)


def _alternatives(schema: Any, root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas that it refers to or consists of, each once."""
    pending, seen = [schema], set[int]()
    for node in pending:  # which grows
        if isinstance(node, dict) and id(node) not in seen:
            seen.add(id(node))
            yield node
            room = MAX_STEPS - len(pending)
            pending += _members(node, root, "allOf", "anyOf", "oneOf")[: max(0, room)]


def _members(node: dict[str, Any], root: dict[str, Any], *unions: str) -> list[Any]:
    """Return the schemas that a schema refers to, and the members of its unions."""
    members = [_resolve_ref(node.get("$ref"), root)]
    for union in unions:
        members += as_list(node.get(union))[:MAX_STEPS]
    return members


def _choices(node: dict[str, Any]) -> list[Any]:
    return [*as_list(node.get("enum")), *([node["const"]] if "const" in node else [])]


def _default(schema: Any) -> str:
    default = schema.get("default") if isinstance(schema, dict) else None
    return "" if default is None else f" = {to_json(default)}"


def _resolve_ref(reference: Any, root: dict[str, Any]) -> Any:
    """Return the target of a reference within the same schema, or None."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, and an empty list otherwise."""
    return value if isinstance(value, list) else []


def to_json(value: Any) -> str:
    """Return a value as compact JSON."""
    from msgspec import json

    return json.encode(value).decode()
