"""Leave read-only properties out of a body.

They are not in the input schema. But models often read an object, change a part of it and send it
back, and schemas usually allow other properties. So what the API does not accept is removed.
"""

from collections.abc import Mapping
from typing import Any, Final

from .documents import ApiDocuments, ApiNode
from .schema_bundle import read_only_names

MAX_DEPTH: Final = 250
"""The number of nesting levels, of the value and of schemas within schemas, that are searched."""


def drop_read_only(value: Any, schema: ApiNode, documents: ApiDocuments, depth: int = 0) -> Any:
    """Return a value without the properties that its schema calls read-only.

    Args:
        value: The value, which matches the schema.
        schema: The schema, as the description has it.
        documents: The description of the API.
        depth: How many calls of this function are in progress.
    """
    if depth > MAX_DEPTH or not isinstance(value, dict | list):
        return value
    schema = documents.follow(schema)
    if isinstance(value, list):
        items = schema.get("items")
        return [drop_read_only(one, items, documents, depth + 1) for one in value]
    for part in _parts(schema, documents):
        value = drop_read_only(value, part, documents, depth + 1)
    properties = schema.get("properties")
    names = read_only_names(schema, documents)
    return {
        name: drop_read_only(one, properties.get(name), documents, depth + 1)
        if isinstance(properties.fields.get(name), Mapping)
        else one
        for name, one in value.items()
        if name not in names
    }


def _parts(schema: ApiNode, documents: ApiDocuments) -> list[ApiNode]:
    """Return the schemas that apply to the same object: all of `allOf`, and an alternative if it is
    the only one for objects."""
    found: list[ApiNode] = []
    for keyword in ("allOf", "anyOf", "oneOf"):
        listed = schema.fields.get(keyword)
        parts = [
            ApiNode(part, schema.document) for part in (listed if isinstance(listed, list) else ())
        ]
        if keyword != "allOf":
            parts = [one for one in parts if documents.follow(one).fields.get("type") != "null"]
        if keyword == "allOf" or len(parts) == 1:
            found += parts
    return found
