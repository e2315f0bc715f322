"""The rules about the schemas of tools."""

import re
from collections.abc import Iterator
from typing import Any, Final

from ...client.function_calling import OPENAI_DESCRIPTION_CHARS
from ...errors import SchemaError
from ...schema import validation
from ...text import one_line, quote
from .listing import ListedItem
from .rules import Finding, found
from .schema_walk import Schema, SchemaNode, resolve_reference, types_of, walk_schema

REFUSED: Final = {
    "Gemini": (
        "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "const", "contains",
        "minContains", "maxContains", "patternProperties", "propertyNames", "not", "if",
        "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties",
    ),
    "OpenAI": ("not", "if", "dependentRequired", "dependentSchemas"),
}  # fmt: skip
"""The keywords inside a schema that the API of a model refuses. Gemini supports neither of them in
its two forms of schemas, and OpenAI refuses them if it has to follow a schema strictly."""
ROOT_ALTERNATIVES: Final = ("oneOf", "anyOf", "allOf", "enum", "not", "const", "$ref")
BEDROCK_ROOT: Final = ("type", "properties", "required")
"""The keywords that Bedrock's own models accept at the root."""
DEFINITIONS: Final = ("$defs", "definitions")
_HAS_TYPE: Final = frozenset(
    ("type", "enum", "const", "$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if")
)
_ARGUMENT_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_META_SCHEMA: Final = re.compile(r"https?://json-schema\.org/")
_MAX_NAMES: Final = 5


def check_schemas(item: ListedItem) -> Iterator[Finding]:
    """Check the schemas of one tool."""
    for field in ("inputSchema", "outputSchema"):
        schema = item.fields.get(field)
        if isinstance(schema, dict):
            yield from _check_any_schema(item, field, schema)
    schema = item.fields.get("inputSchema")
    if isinstance(schema, dict):
        nodes = list(walk_schema(schema, "inputSchema"))
        for check in (_check_root, _check_arguments, _check_keywords, _check_defaults):
            yield from check(item, schema, nodes)


def check_description(item: ListedItem) -> Iterator[Finding]:
    """Check the description of an item."""
    kind, text = item.source.kind, item.text("description")
    if not text.strip():
        rule = "no-description" if kind in ("tool", "prompt") else "resource-no-description"
        yield found(rule, item.place(), f"The {kind} has no description")
    elif kind == "tool" and len(text) > OPENAI_DESCRIPTION_CHARS:
        message = f"The description has {len(text):,} characters"
        yield found("description-too-long", item.place("description"), message)
    arguments = item.fields.get("arguments")
    named = (
        [one for one in arguments if isinstance(one, dict)]
        if kind == "prompt" and isinstance(arguments, list)
        else []
    )
    missing = [str(one.get("name")) for one in named if not one.get("description")]
    if missing:
        yield found("argument-no-description", item.place("arguments"), _list_names(missing))


def _list_names(names: list[str]) -> str:
    shown = ", ".join(quote(name, 64) for name in names[:_MAX_NAMES])
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    verb = "has" if len(names) == 1 else "have"
    return f"{shown}{more} {verb} no description"


# any schema


def _check_any_schema(item: ListedItem, field: str, schema: Schema) -> Iterator[Finding]:
    broken = False
    for node in walk_schema(schema, field):
        for finding in _check_node(item, schema, node):
            broken |= finding.level == "error"
            yield finding
    if not broken:
        yield from _check_compiles(item, field, schema)


def _check_node(item: ListedItem, root: Schema, node: SchemaNode) -> Iterator[Finding]:
    schema, place = node.schema, item.place(node.path)
    reference = schema.get("$ref")
    if isinstance(reference, str) and not _META_SCHEMA.match(reference):
        if not reference.startswith("#"):
            yield found("ref-outside", place, f"{quote(reference)} is in another document")
        elif not isinstance(resolve_reference(root, reference), dict | bool):
            yield found("ref-nowhere", place, f"{quote(reference)} does not exist")
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    is_closed = schema.get("additionalProperties") is False
    if is_closed and any(key in schema for key in ("allOf", "$ref", "anyOf", "oneOf")):
        others = {
            name
            for inner in walk_schema({key: schema[key] for key in _combining(schema)})
            if inner.keyword == "properties" and inner.path.count("/properties/") == 1
            for name in [inner.name]
        }
        if "$ref" in schema or others - {*known}:
            yield found("closed-combination", place, "additionalProperties is false")
    required = schema.get("required")
    if isinstance(properties, dict) and isinstance(required, list) and not _combining(schema):
        for name in required:
            if isinstance(name, str) and name not in known and "patternProperties" not in schema:
                yield found("required-undefined", place, f"{quote(name)} is not defined")


def _combining(schema: Schema) -> list[str]:
    return [key for key in ("allOf", "anyOf", "oneOf", "$ref", "if") if key in schema]


def _check_compiles(item: ListedItem, field: str, schema: Schema) -> Iterator[Finding]:
    try:
        validation.compile(schema)
    except SchemaError as error:
        try:
            validation.compile(_without_patterns(schema))
        except SchemaError:
            yield found("schema-invalid", item.place(field), one_line(str(error)))
        else:
            yield found("pattern-unsupported", item.place(field), one_line(str(error)))


def _without_patterns(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict) and depth < 200:
        kept = {key: one for key, one in value.items() if key != "patternProperties"}
        if isinstance(kept.get("pattern"), str):
            del kept["pattern"]
        return {key: _without_patterns(one, depth + 1) for key, one in kept.items()}
    if isinstance(value, list) and depth < 200:
        return [_without_patterns(one, depth + 1) for one in value]
    return value


# the arguments of a tool


def _check_root(item: ListedItem, schema: Schema, nodes: list[SchemaNode]) -> Iterator[Finding]:
    alternatives = [key for key in ROOT_ALTERNATIVES if key in schema]
    if alternatives:
        message = f"The root has {', '.join(alternatives)}"
        yield found("root-alternatives", item.place("inputSchema"), message)
    further = schema.get("additionalProperties")
    if schema.get("properties") and (further is True or isinstance(further, dict)):
        place = item.place("inputSchema/additionalProperties")
        yield found("open-arguments", place, "Any further argument is accepted")


def _check_arguments(
    item: ListedItem, schema: Schema, nodes: list[SchemaNode]
) -> Iterator[Finding]:
    undescribed = []
    for node in nodes:
        if node.keyword != "properties":
            continue
        if not _HAS_TYPE & node.schema.keys():
            message = f"{quote(node.name, 64)} has no type"
            yield found("argument-no-type", item.place(node.path), message)
        if not _ARGUMENT_NAME.fullmatch(node.name):
            message = f"{quote(node.name, 64)} is refused"
            yield found("argument-name", item.place(node.path), message)
        if node.path == f"inputSchema/properties/{node.name}" and not _is_described(schema, node):
            undescribed.append(node.name)
    if undescribed:
        place = item.place("inputSchema/properties")
        yield found("argument-no-description", place, _list_names(undescribed))


def _is_described(root: Schema, node: SchemaNode) -> bool:
    """Return whether a property, or what it refers to, has a description."""
    waiting, seen = [node.schema], 0
    while waiting and seen < 50:
        schema, seen = waiting.pop(), seen + 1
        if schema.get("description"):
            return True
        reference = schema.get("$ref")
        inner: list[Any] = (
            [resolve_reference(root, reference)] if isinstance(reference, str) else []
        )
        for key in ("allOf", "anyOf", "oneOf"):
            inner += schema[key] if isinstance(schema.get(key), list) else []
        waiting += [one for one in inner if isinstance(one, dict)]
    return False


def _check_keywords(item: ListedItem, schema: Schema, nodes: list[SchemaNode]) -> Iterator[Finding]:
    used = {key for node in nodes for key in node.schema}
    refused = [
        f"{api}: {', '.join(present)}"
        for api, keywords in REFUSED.items()
        if (present := [key for key in keywords if key in used])
    ]
    if refused:
        yield found("refused-keywords", item.place("inputSchema"), "; ".join(refused))
    for node in nodes:
        if "array" in types_of(node.schema) and not {"items", "prefixItems"} & node.schema.keys():
            yield found("array-without-items", item.place(node.path), "The array has no items")


def _check_defaults(item: ListedItem, schema: Schema, nodes: list[SchemaNode]) -> Iterator[Finding]:
    definitions: Schema = {key: schema[key] for key in DEFINITIONS if key in schema}
    for node in nodes:
        if "default" not in node.schema:
            continue
        try:
            problems = validation.compile({**definitions, **node.schema}).problems(
                node.schema["default"]
            )
        except SchemaError:
            continue  # reported for the whole schema
        if problems:
            message = one_line(problems[0].replace("`$`", "the default"))
            yield found("default-mismatch", item.place(node.path), message)
