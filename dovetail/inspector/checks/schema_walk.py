"""Visit the parts of a JSON Schema, without following references."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

Schema = dict[str, Any]
MAX_NODES: Final = 20_000
"""The number of subschemas after which a walk ends: a hostile schema must not take forever."""
_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE: Final = (
    "items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else",
    "unevaluatedItems", "unevaluatedProperties", "additionalItems",
)  # fmt: skip


class SchemaNode(Struct, frozen=True, eq=False):
    """A subschema and its path."""

    path: str
    schema: Schema
    keyword: str = ""
    """The keyword under which it is, such as `properties`; empty at the root."""
    name: str = ""
    """Its name below that keyword."""


def walk_schema(schema: Any, path: str = "") -> Iterator[SchemaNode]:
    """Yield a schema and all schemas inside it, in the order of the text.

    Args:
        schema: The schema; anything that is not an object is skipped.
        path: The path of the schema itself.
    """
    waiting = [SchemaNode(path, schema)] if isinstance(schema, dict) else []
    for _ in range(MAX_NODES):
        if not waiting:
            return
        node = waiting.pop()
        yield node
        waiting += reversed(_children(node))


def _children(node: SchemaNode) -> list[SchemaNode]:
    found: list[SchemaNode] = []
    for keyword, value in node.schema.items():
        if keyword in _MAPS and isinstance(value, dict):
            parts = [(str(name), inner) for name, inner in value.items()]
        elif keyword in _LISTS and isinstance(value, list):
            parts = [(str(number), inner) for number, inner in enumerate(value)]
        elif keyword in _SINGLE:
            parts = [("", value)]
        else:
            continue
        path = f"{node.path}/{keyword}"
        found += [
            SchemaNode(f"{path}/{name}" if name else path, inner, keyword, name)
            for name, inner in parts
            if isinstance(inner, dict)
        ]
    return found


def resolve_reference(root: Schema, reference: str) -> Any:
    """Return what a local reference refers to; None if it leads nowhere.

    Args:
        root: The whole schema.
        reference: The reference, such as `#/$defs/City` or `#city`.
    """
    from urllib.parse import unquote

    pointer = unquote(reference.removeprefix("#"))
    if pointer and not pointer.startswith("/"):
        return next(
            (
                node.schema
                for node in walk_schema(root)
                if pointer in (node.schema.get("$anchor"), node.schema.get("$dynamicAnchor"))
            ),
            None,
        )
    target: Any = root
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            target = target.get(step)
        elif isinstance(target, list) and step.isdigit() and int(step) < len(target):
            target = target[int(step)]
        else:
            return None
    return target


def types_of(schema: Schema) -> set[str]:
    """Return the types that a schema names.

    Args:
        schema: The schema.
    """
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return {one for one in kinds if isinstance(one, str)}
