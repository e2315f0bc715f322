"""What surrounds a tool: the arguments that a model sends, and the schemas that a server
announces."""

import json
import re
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from dovetail.errors import InvalidParams, SchemaError
from dovetail.schema.validation import compile
from dovetail.server.signature import Signature

from .engine import Target
from .mutator import Mutator

# arguments


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(Struct):
    x: float
    y: float = 0.0


def paint(
    count: int,
    share: float,
    name: Annotated[str, Meta(min_length=1, max_length=20)],
    colours: list[Colour],
    at: Point | None = None,
    size: Literal["s", "m", 3] = "m",
    table: dict[str, list[int]] | None = None,
    either: int | str = 0,
    done: bool = False,
    rest: Any = None,
) -> None:
    """Takes something of everything."""


SIGNATURE = Signature(paint)
ANNOUNCED = compile(SIGNATURE.schema)
ARGUMENTS = {
    "count": 3,
    "share": 0.5,
    "name": "wall",
    "colours": ["red", "blue"],
    "at": {"x": 1, "y": 2.5},
    "size": 3,
    "table": {"a": [1, 2], "b": []},
    "either": "x",
    "done": True,
    "rest": {"deep": [None, {"a": 1}]},
}


BEYOND = re.compile(rb"e\+308|[01]{300}")
"""Numbers that a schema takes for integers, or for fractions, and that no integer or fraction here
has room for."""


def check_arguments(data: bytes) -> bool:
    """A call, or InvalidParams with reasons; and what the announced schema allows is never
    refused."""
    try:
        values = msgspec.json.decode(data)
        allowed = (
            isinstance(values, dict) and not ANNOUNCED.problems(values) and not BEYOND.search(data)
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        allowed = False
    try:
        args, kwargs = SIGNATURE.bind(data)
    except InvalidParams as error:
        assert str(error)
        assert not allowed, error
        return False
    assert len(args) + len(kwargs) == len(SIGNATURE.parameters)
    return True


# schemas

SCHEMAS: tuple[Any, ...] = (
    SIGNATURE.schema,
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {
        "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}},
        "$ref": "#/$defs/n",
    },
    {
        "anyOf": [
            {"type": "string", "pattern": "^a+$"},
            {"type": "array", "items": {"$ref": "#"}, "maxItems": 3},
        ],
        "title": "x",
    },
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"const": 1}},
        "allOf": [{"$ref": "#/definitions/a"}],
    },
    {
        "oneOf": [
            {"if": {"minLength": 2}, "then": {"maxLength": 9}, "else": False},
            {"prefixItems": [True], "unevaluatedItems": False},
        ]
    },
)
VALUES: tuple[Any, ...] = (
    ARGUMENTS,
    {"a": 1},
    {"next": {"next": {}}},
    "aaa",
    [["a"], []],
    1,
    None,
    [1, 2],
)


def make_schema(rng: Mutator) -> bytes:
    """A schema and a value, in a line each."""
    return b"\n".join(
        json.dumps(rng.value(rng.pick(options))).encode() for options in (SCHEMAS, VALUES)
    )


def check_schema(data: bytes) -> bool:
    """A validator, or SchemaError; a value is fine or there are reasons, the same each time."""
    schema, value = map(json.loads, data.split(b"\n"))
    try:
        validator = compile(schema)
    except SchemaError as error:
        assert str(error)
        return False
    found = validator.problems(value)
    assert validator.problems(value) == found and len(found) <= 5 and all(found)
    return True


TARGETS = (
    Target("tool arguments", lambda rng: rng.json(ARGUMENTS), check_arguments, 60_000),
    Target("json schemas", make_schema, check_schema, 20_000),
)
