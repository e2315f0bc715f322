"""Convert the schemas of OpenAPI to JSON Schema, and gather their definitions.

$ref            leads to `$defs`, which hold what the schemas need and nothing else
readOnly        such properties are left out, because a request must not have them
discriminator   is kept, and each alternative requires its value, so that exactly one matches
nullable        and other keywords of OpenAPI 3.0 become JSON Schema
mistakes        such as `"required": true` in a property, and patterns that cannot be matched in
                linear time, are left out, so that one mistake does not make a tool unusable
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..errors import SchemaError
from ..limits import Limits
from ..schema.validation import is_usable_pattern
from .documents import ApiDocument, ApiDocuments, ApiNode
from .parser import is_legacy

_TYPES: Final = ("null", "boolean", "object", "array", "number", "string", "integer")
_NAMED: Final = ("properties", "patternProperties", "dependentSchemas")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE: Final = (
    "items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_DROPPED: Final = frozenset(
    (
        "$ref", "$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary",
        "$comment", "$defs", "definitions", "readOnly", "writeOnly", "nullable", "discriminator",
        "xml", "externalDocs", "example", "id",
    )
)  # fmt: skip
"""Keywords that are not copied; some of them are converted."""
_ABOUT: Final[tuple[str, ...]] = ("title", "description", "default")
_OWN_NAME = re.compile(r"[^A-Za-z0-9_.-]")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_type(value: Any) -> bool:
    return (
        value in _TYPES
        if isinstance(value, str)
        else (isinstance(value, list) and bool(value) and all(one in _TYPES for one in value))
    )


_VALID: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "required": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "uniqueItems": lambda value: isinstance(value, bool),
    "deprecated": lambda value: isinstance(value, bool),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "pattern": lambda value: isinstance(value, str) and is_usable_pattern(value),
    "examples": lambda value: isinstance(value, list),
    "dependentRequired": lambda value: isinstance(value, dict),
    **dict.fromkeys(("title", "description", "format"), _is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(
        (
            *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
            *("minContains", "maxContains"),
        ),
        _is_count,
    ),
}
"""What the values of keywords must be. A keyword with another value is left out."""


class SchemaBundle:
    """Schemas that share their definitions.

    Args:
        documents: The description of the API.
        limits: `schema_depth` and `schema_nodes` limit the schemas.
    """

    def __init__(self, documents: ApiDocuments, limits: Limits) -> None:
        self._documents, self._limits = documents, limits
        self._is_legacy = is_legacy(documents)
        self._names: dict[str, str] = {}
        self._waiting: dict[str, ApiNode] = {}
        self._definitions: dict[str, Any] = {}
        self._left = limits.schema_nodes

    def definitions(self) -> dict[str, Any]:
        """Return the definitions to which the converted schemas refer."""
        while self._waiting:
            name, node = next(iter(self._waiting.items()))
            del self._waiting[name]
            self._definitions[name] = self.convert(node)
        return self._definitions

    def convert(self, node: ApiNode, depth: int = 1) -> Any:
        """Return a schema as JSON Schema."""
        if not isinstance(node.value, Mapping):
            return node.value if isinstance(node.value, bool) else {}
        self._left -= 1
        if self._left < 0 or depth > self._limits.schema_depth:
            raise SchemaError(
                f"the schema has more than {self._limits.schema_nodes:,} parts or "
                f"{self._limits.schema_depth} levels (limits.schema_nodes, limits.schema_depth)"
            )
        made: dict[str, Any] = {}
        if isinstance(reference := node.value.get("$ref"), str):
            made["$ref"] = self._define(reference, node.document)
        for key, value in node.value.items():
            if key in _DROPPED or key.startswith("x-"):
                continue
            made.update(self._convert_keyword(key, ApiNode(value, node.document), depth))
        if "properties" in node.fields:
            self._leave_out_read_only(node, made)
        if "discriminator" in node.fields:
            self._discriminate(node, made)
        return _modernize(node.fields, made) if self._is_legacy else made

    def _convert_keyword(self, key: str, node: ApiNode, depth: int) -> Iterator[tuple[str, Any]]:
        value, document = node
        if key in _NAMED:
            if isinstance(value, Mapping):
                yield (
                    key,
                    {
                        name: self.convert(ApiNode(inner, document), depth + 1)
                        for name, inner in value.items()
                        if key != "patternProperties" or is_usable_pattern(name)
                    },
                )
        elif key in _LISTS:
            if isinstance(value, list) and value:
                yield key, [self.convert(ApiNode(inner, document), depth + 1) for inner in value]
        elif key in _SINGLE:
            if isinstance(value, Mapping | bool):
                yield key, self.convert(node, depth + 1)
        elif key not in _VALID or _VALID[key](value):
            yield key, value

    def _define(self, reference: str, document: ApiDocument) -> str:
        node, place = self._documents.resolve(reference, document)
        name = self._names.get(place)
        if name is None:
            wanted = _OWN_NAME.sub("_", place.rpartition("/")[2].rpartition("#")[2]) or "schema"
            name, number = wanted, 2
            while name in self._names.values():
                name, number = f"{wanted}_{number}", number + 1
            self._names[place] = name
            self._waiting[name] = node
        return f"#/$defs/{name}"

    def _leave_out_read_only(self, node: ApiNode, made: dict[str, Any]) -> None:
        names = read_only_names(node, self._documents)
        if not names:
            return
        made["properties"] = {k: v for k, v in made["properties"].items() if k not in names}
        made["required"] = [one for one in made.get("required", ()) if one not in names]

    def _discriminate(self, node: ApiNode, made: dict[str, Any]) -> None:
        """Keep the discriminator, and make each alternative require its value."""
        found = node.get("discriminator").fields
        name = found.get("propertyName")
        if not isinstance(name, str):
            return
        made["discriminator"] = {"propertyName": name}
        keyword = next((one for one in ("oneOf", "anyOf") if one in made), None)
        if keyword is None:
            return
        mapping = {
            str(value): self._define(_as_reference(target), node.document)
            for value, target in node.get("discriminator").get("mapping").fields.items()
            if isinstance(target, str)
        }
        if mapping:
            made["discriminator"]["mapping"] = mapping
        for schema, inner in zip(made[keyword], node.value[keyword], strict=True):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if reference is None or self._has_values(ApiNode(inner, node.document), name):
                continue
            values = [value for value, target in mapping.items() if target == reference]
            values = values or [inner["$ref"].rpartition("/")[2]]
            schema.setdefault("properties", {})[name] = {"enum": values}
            schema["required"] = [*schema.get("required", ()), name]

    def _has_values(self, node: ApiNode, name: str) -> bool:
        """Return whether an alternative itself says which values its discriminator has."""
        schema = self._documents.follow(node)
        found = self._documents.follow(schema.get("properties").get(name)).fields
        if "enum" in found or "const" in found:
            return True
        parts = schema.fields.get("allOf")
        return isinstance(parts, list) and any(
            "$ref" not in part and self._has_values(ApiNode(part, schema.document), name)
            for part in parts
            if isinstance(part, Mapping)
        )


def _as_reference(target: str) -> str:
    """Return the target of a discriminator's mapping as a reference; it may be a bare name."""
    is_name = not any(char in target for char in "#/") and not target.endswith((".json", ".yaml"))
    return f"#/components/schemas/{target}" if is_name else target


def read_only_names(node: ApiNode, documents: ApiDocuments) -> set[str]:
    """Return the properties of a schema that are read-only."""
    properties = node.get("properties")
    return {name for name in properties.fields if _is_read_only(properties.get(name), documents)}


def _is_read_only(schema: ApiNode, documents: ApiDocuments) -> bool:
    return (
        schema.fields.get("readOnly") is True
        or documents.follow(schema).fields.get("readOnly") is True
    )


def _modernize(old: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """Change the keywords of OpenAPI 3.0 that JSON Schema has replaced."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if old.get(exclusive) is True and limit in made:
            made[exclusive] = made.pop(limit)
    if old.get("nullable") is not True:
        return made
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    if isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    elif any(key in made for key in ("$ref", "allOf", "anyOf", "oneOf")):
        about = {key: made.pop(key) for key in _ABOUT if key in made}
        return {"anyOf": [made, {"type": "null"}], **about}
    return made
