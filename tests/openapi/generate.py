"""Arguments that match an input schema, made up from the schema."""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import lru_cache
from random import Random
from typing import Any

from hypothesis import find
from hypothesis.strategies import characters, from_regex

from dovetail.limits import Limits
from dovetail.schema.validation import compile

LARGE = Limits(schema_nodes=1_000_000)
MAX_DEPTH = 12
TEXTS = ["a b/c?d#e", "Hello", "a1", "1", "2024-01-31T10:00:00Z", "2024-01-31", "0a1b2c3d" * 5]


class ArgumentMaker:
    """Values for a schema: the smallest, and one with optional parts."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.definitions = schema.get("$defs", {})

    def make(self, schema: Any, full: bool, depth: int = 0) -> Any:
        if not isinstance(schema, dict):
            return "x"
        if "$ref" in schema:
            target = self.definitions[schema["$ref"].rpartition("/")[2]]
            value = self.make(target, full, depth + 1)
            return self.extend(schema, value, full, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return next((one for one in schema["enum"] if one is not None), None)
        for value in self.alternatives(schema, full, depth):
            if self.fits(schema, value):
                return value
        if "allOf" in schema:
            parts = [self.make(one, full, depth + 1) for one in schema["allOf"]]
            if all(isinstance(part, dict) for part in parts):
                value = {key: one for part in parts for key, one in part.items()}
                return self.extend(schema, value, full, depth)
            return parts[0]
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = next(one for one in (kinds if isinstance(kinds, list) else [kinds]) if one != "null")
        return getattr(self, f"make_{kind}")(schema, full, depth)

    def alternatives(self, schema: Any, full: bool, depth: int) -> Iterator[Any]:
        for keyword in ("oneOf", "anyOf"):
            for one in schema.get(keyword, ()):
                yield self.extend(schema, self.make(one, full, depth + 1), full, depth)
                if (
                    isinstance(one, dict) and "properties" in schema
                ):  # it only says what is required
                    needed = [*schema.get("required", ()), *one.get("required", ())]
                    yield self.make_object({**schema, "required": needed}, False, depth)

    def extend(self, schema: Any, value: Any, full: bool, depth: int) -> Any:
        """Add the properties that stand beside a reference or alternatives."""
        if "properties" in schema and isinstance(value, dict):
            return value | self.make_object(schema, full, depth)
        return value

    def make_object(self, schema: Any, full: bool, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        wanted = [*required, *(properties if full and depth < 3 else [])]
        if depth and not wanted:  # forms have no way to write an empty object
            wanted = list(properties)[:1]
        made = {
            name: self.make(properties.get(name, {}), full and depth < 2, depth + 1)
            for name in dict.fromkeys(wanted)
            if depth < MAX_DEPTH
        }
        is_open = schema.get("additionalProperties", True) is not False
        least = max(schema.get("minProperties", 0), 1 if depth and is_open else 0)
        while len(made) < least:
            free = [name for name in properties if name not in made] or [f"k{len(made)}"]
            more = schema.get("additionalProperties", {})
            made[free[0]] = self.make(properties.get(free[0], more), False, depth + 1)
        return made

    def make_array(self, schema: Any, full: bool, depth: int) -> list[Any]:
        count = max(schema.get("minItems", 0), 1 if depth < MAX_DEPTH else 0)
        return [self.make(schema.get("items", {}), full, depth + 1) for _ in range(count)]

    def make_string(self, schema: Any, full: bool, depth: int) -> str:
        if schema.get("contentEncoding") == "base64":
            return b64encode(b"\x00\x89bytes").decode()
        return next(self.texts(schema), "x")

    def texts(self, schema: Any) -> Iterator[str]:
        least, most = schema.get("minLength", 0), schema.get("maxLength", 10_000)
        pattern = schema.get("pattern")
        for text in TEXTS:
            for one in (text, text[:most], text.ljust(least, "a")):
                if least <= len(one) <= most and (pattern is None or re.search(pattern, one)):
                    yield one
        if pattern is not None:
            yield matching_text(pattern, least, most)

    def make_integer(self, schema: Any, full: bool, depth: int) -> int:
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return int(min(low, schema.get("maximum", low)))

    def make_number(self, schema: Any, full: bool, depth: int) -> float:
        return self.make_integer(schema, full, depth)

    def make_boolean(self, schema: Any, full: bool, depth: int) -> bool:
        return True

    def fits(self, schema: Any, value: Any) -> bool:
        whole = {**schema, "$defs": self.definitions}
        return not compile(whole, LARGE).problems(value)


@lru_cache
def matching_text(pattern: str, least: int, most: int) -> str:
    """Return a text that matches a pattern, the same one in each run."""
    texts = from_regex(pattern, alphabet=characters(min_codepoint=32, max_codepoint=126))
    return find(texts, lambda text: least <= len(text) <= most, random=Random(0))


def argument_sets(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the smallest arguments, and arguments with optional parts, if they match the schema."""
    maker = ArgumentMaker(schema)
    for full in (False, True):
        arguments = maker.make_object(schema, full, 0)
        if maker.fits(schema, arguments):
            yield arguments
