"""Arguments for a tool, derived from its schema: the same schema gives the same arguments."""

from typing import Any

SAMPLES: dict[str, Any] = {
    "string": "example",
    "integer": 3,
    "number": 2.5,
    "boolean": True,
    "null": None,
}
FORMATS = {
    "date": "2025-01-02",
    "date-time": "2025-01-02T03:04:05Z",
    "time": "03:04:05",
    "email": "a@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def make_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with every required property and every property that has no default.

    Args:
        schema: The input schema of a tool.
    """
    made = _make(schema, schema, depth=0)
    return made if isinstance(made, dict) else {}


def _make(schema: Any, root: dict[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > 8:
        return None
    if "$ref" in schema:
        return _make(_resolve(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return _make(schema[choice][0], root, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        required = schema.get("required", ())
        return {
            name: _make(each, root, depth + 1)
            for name, each in schema.get("properties", {}).items()
            if name in required
        }
    if kind == "array":
        return [_make(schema.get("items", {"type": "string"}), root, depth + 1)]
    return _make_scalar(schema, kind)


def _make_scalar(schema: dict[str, Any], kind: Any) -> Any:
    if kind in ("integer", "number"):
        sample = SAMPLES[kind]
        low = schema.get("minimum", schema.get("exclusiveMinimum", sample - 1) + 1)
        return min(max(sample, low), schema.get("maximum", 10**9))
    if kind == "string":
        text = FORMATS.get(schema.get("format", ""), SAMPLES["string"])
        text = text.ljust(schema.get("minLength", 0), "x")
        return text[: schema.get("maxLength", len(text))]
    return SAMPLES.get(kind, "example")


def _resolve(reference: str, root: dict[str, Any]) -> Any:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found
