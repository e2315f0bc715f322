"""Turn msgspec's error messages into sentences that use the words of the schema.

msgspec says "Expected `int`, got `str` - at `$.days`". A model understands "must be an integer (at
least 1), got the string "three"" better. Only the path in the message is kept. It identifies the
part of the schema that was violated and the part of the value that violates it. All other messages
come from the user's classes and are passed on unchanged.
"""

import re
from typing import Any

import msgspec

from .codec import describe_value
from .json_schema import Defs, Schema, resolve_ref

_PLACE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_STANDARD = re.compile(
    r"Expected `|Invalid (enum )?value |Invalid (RFC3339|UUID|base64|decimal|ISO8601|epoch)|Only units "  # noqa: E501
    r"|(Integer value|Number|Timestamp|Duration)( is)? out of range"
)
_WORDS = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
    "date-time": "a date and time like 2026-07-28T12:00:00Z",
    "date": "a date like 2026-07-28",
    "time": "a time like 12:00:00",
    "duration": "a duration like PT90S",
    "uuid": "a UUID",
    "decimal": "a decimal number",
}
BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
    "pattern": "matching {}",
    "contentEncoding": "in {}",
}
"""How a message or a summary shows the keywords that bound a value."""


def explain(error: Exception, value: Any, schema: Schema, defs: Defs) -> tuple[str, str]:
    """Return the path to the problem, and a description of the problem."""
    text, *places = _PLACE.split(str(error))
    if "`key` in" in str(error):
        return "", f"has an invalid key: {text}"
    # A stand-in inside another appends its path after the inner one.
    path = "".join(reversed(places))
    found: Any = [value]
    for name, index in _STEP.findall(path):
        step = int(index) if index.isdigit() else name or None
        schema = _descend(schema, defs, step)
        try:
            found = [found[0][step]]
        except (LookupError, TypeError):
            found = []
    if field := _FIELD.fullmatch(text):
        known = ", ".join(resolve_ref(schema, defs).get("properties", ()))
        what = (
            "is missing"
            if field[1] == "missing required"
            else f"is not a field; the fields are: {known or 'none'}"
        )
        return f"{path}.{field[2]}", what
    if not _STANDARD.match(text):
        return path, f"is not valid: {text}"
    return path, f"must be {_describe_schema(schema, defs)}" + (
        f", got {describe_value(found[0])}" if found else ""
    )


def _descend(schema: Schema, defs: Defs, step: str | int | None) -> Schema:
    """Return the schema one level further down, or {} if it is unknown."""
    schema = resolve_ref(schema, defs)
    if isinstance(step, int):
        found = dict(enumerate(schema.get("prefixItems", ()))).get(step, schema.get("items"))
    else:
        found = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    options = (_descend(option, defs, step) for option in schema.get("anyOf", ()))
    return found or next(filter(None, options), {})


def _describe_schema(schema: Schema, defs: Defs) -> str:
    """Describe what a schema accepts: "an integer (at least 1)"."""
    schema = resolve_ref(schema, defs)
    if options := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_describe_schema(option, defs) for option in options))
    if values := schema.get("enum"):
        return ("one of " if len(values) > 1 else "") + ", ".join(
            msgspec.json.encode(v).decode() for v in values
        )
    words = _WORDS.get(schema.get("format", "")) or _WORDS.get(
        schema.get("type", ""), "something else"
    )
    details = [detail.format(schema[key]) for key, detail in BOUNDS.items() if key in schema]
    if items := schema.get("items"):
        details.append(f"each {_describe_schema(items, defs)}")
    if names := schema.get("properties"):
        details.append(f"with {', '.join(names)}")
    return f"{words} ({', '.join(details)})" if details else words
