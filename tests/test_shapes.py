"""A Python type as a JSON schema, a decoder and an encoder."""

import collections
import datetime as dt
import decimal
import enum
import functools
import pathlib
import re
import subprocess
import sys
import typing
import uuid
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)

import annotated_types as at
import attrs
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    HttpUrl,
    PositiveInt,
    field_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from dovetail.errors import SchemaError
from dovetail.schema import (
    Shape,
    TypeMismatch,
    Unencodable,
    encode,
    inline_definitions,
    merge_definitions,
)

from .conftest import named


class Colour(enum.Enum):
    """What it looks like."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Circle:
    radius: float


@dataclass
class Square:
    side: float
    name: str = "square"
    tags: list[str] = field(default_factory=list)


@dataclass
class Drawing:
    """Several shapes."""

    shapes: list[Circle | Square]
    when: dt.date | str
    file: pathlib.Path = pathlib.Path("/tmp")
    copies: Annotated[int, at.Ge(1), "how many to print"] = 1
    parent: "Drawing | None" = None


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("only positive numbers are welcome")


class Point(NamedTuple):
    x: int
    y: int = 0


class Movie(TypedDict):
    title: Annotated[str, "as on the poster"]
    year: NotRequired[int]


class Cat(msgspec.Struct, tag="cat", rename="camel"):
    nine_lives: bool = True


class Dog(msgspec.Struct, tag="dog", forbid_unknown_fields=True):
    owner: str
    friends: list["Dog"] = []
    chip: int | msgspec.UnsetType = msgspec.UNSET


class Left(msgspec.Struct):
    left: int


class Right(msgspec.Struct):
    right: int


@attrs.define
class Account:
    number: int = attrs.field(validator=attrs.validators.gt(9))
    _secret: str = "none"
    notes: list[str] = attrs.field(factory=list)


T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    items: list[T]
    first: T | None = None


class Model(BaseModel):
    """A model of pydantic."""

    number: int = Field(alias="No", ge=1)
    children: list["Model"] = []


@pydantic_dataclass
class Checked:
    number: int = Field(gt=0)


@dataclass
class Holder:
    model: Model


UserId = NewType("UserId", int)


# --------------------------------------------------------------------------------------------------
# schemas


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Any, {}),
        (object, {}),
        (None, {"type": "null"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (typing.LiteralString, {"type": "string"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (memoryview, {"type": "string", "contentEncoding": "base64"}),
        (bytes | memoryview | str, {"type": "string"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.time, {"type": "string", "format": "time"}),
        (dt.timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"type": "string", "format": "decimal"}),
        (pathlib.Path, {"type": "string", "format": "path"}),
        (UserId, {"type": "integer"}),
        (T, {}),
        (list, {"type": "array"}),
        (list[Any], {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (typing.Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (collections.abc.Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            tuple[int],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}],
                "items": False,
                "minItems": 1,
                "maxItems": 1,
            },
        ),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict[int, Any], {"type": "object"}),
        (dict[Literal["a"], Any], {"type": "object", "propertyNames": {"enum": ["a"]}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | Any, {}),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
        (Literal[1, "a", None], {"enum": [1, "a", None]}),
        (Colour, {"type": "string", "enum": ["red", "blue"], "description": "What it looks like."}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (
            Point,
            {
                "title": "Point",
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "integer", "default": 0}],
                "minItems": 1,
                "maxItems": 2,
            },
        ),
        (
            Movie,
            {
                "title": "Movie",
                "type": "object",
                "properties": {
                    "title": {"type": "string", "description": "as on the poster"},
                    "year": {"type": "integer"},
                },
                "required": ["title"],
            },
        ),
        (
            Cat,
            {
                "title": "Cat",
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": ["cat"]},
                    "nineLives": {"type": "boolean", "default": True},
                },
                "required": ["type"],
            },
        ),
        (
            Account,
            {
                "title": "Account",
                "type": "object",
                "properties": {
                    "number": {"type": "integer"},
                    "_secret": {"type": "string", "default": "none"},
                    "notes": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "required": ["number"],
            },
        ),
        (
            Page[int],
            {
                "title": "Page[int]",
                "type": "object",
                "properties": {
                    "items": {"type": "array", "items": {"type": "integer"}},
                    "first": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                },
                "required": ["items"],
            },
        ),
    ],
    ids=str,
)
def test_a_type_has_its_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert Shape(annotation).schema == schema
    jsonschema_rs.Draft202012Validator(schema)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, at.doc("how many")], {"type": "integer", "description": "how many"}),
        (
            Annotated[int, msgspec.Meta(description="how many")],
            {"type": "integer", "description": "how many"},
        ),
        (
            Annotated[int, Field(description="how many")],
            {"type": "integer", "description": "how many"},
        ),
        (
            Annotated[Annotated[int, "general"], "special"],
            {"type": "integer", "description": "special"},
        ),
        (Annotated[int, object()], {"type": "integer"}),
        (Annotated[dt.datetime, at.Timezone("UTC")], {"type": "string", "format": "date-time"}),
        (Annotated[int, at.Ge(1), at.Le(5)], {"type": "integer", "minimum": 1, "maximum": 5}),
        (
            Annotated[int, at.Interval(gt=1, lt=5)],
            {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 5},
        ),
        (Annotated[int, at.MultipleOf(5)], {"type": "integer", "multipleOf": 5}),
        (Annotated[str, at.Len(1, 3)], {"type": "string", "minLength": 1, "maxLength": 3}),
        (
            Annotated[bytes, at.MaxLen(4)],
            {"type": "string", "contentEncoding": "base64", "maxLength": 8},
        ),
        (
            Annotated[list[int], at.MinLen(1)],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        ),
        (Annotated[dict[str, Any], at.MaxLen(1)], {"type": "object", "maxProperties": 1}),
        (
            Annotated[str, msgspec.Meta(pattern="^a", examples=["ab"])],
            {"type": "string", "pattern": "^a", "examples": ["ab"]},
        ),
        (
            Annotated[int, msgspec.Meta(extra_json_schema={"x-unit": "m"})],
            {"type": "integer", "x-unit": "m"},
        ),
        (
            Annotated[int | None, at.Ge(1)],
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        ),
        (
            Annotated[int | None, msgspec.Meta(ge=1, title="Number", description="of something")],
            {
                "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
                "title": "Number",
                "description": "of something",
            },
        ),
        (PositiveInt, {"type": "integer", "exclusiveMinimum": 0}),
    ],
    ids=named,
)
def test_notes_show_in_the_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert Shape(annotation).schema == schema


def test_a_class_used_once_is_written_in_place_and_a_shared_one_is_a_definition() -> None:
    once = Shape(list[Circle]).schema
    assert once["items"]["properties"] == {"radius": {"type": "number"}}
    assert "$defs" not in once
    twice = Shape(Page[Circle]).schema
    assert twice["properties"]["items"]["items"] == {"$ref": "#/$defs/Circle"}
    assert list(twice["$defs"]) == ["Circle"]


def test_a_recursive_class_refers_to_its_definition_and_the_root_shows_its_type() -> None:
    schema = Shape(Dog).schema
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["properties"]["friends"]["items"] == {"$ref": "#/$defs/Dog"}
    assert schema["properties"]["chip"] == {"type": "integer"}
    validator = jsonschema_rs.Draft202012Validator(schema)
    assert validator.is_valid(
        {"type": "dog", "owner": "Ann", "friends": [{"type": "dog", "owner": "Bob"}]}
    )
    assert not validator.is_valid({"type": "dog", "owner": "Ann", "friends": [{"type": "dog"}]})


def test_notes_inside_classes_show_in_the_schema() -> None:
    properties = Shape(Drawing).schema["properties"]
    assert properties["copies"] == {
        "type": "integer",
        "minimum": 1,
        "description": "how many to print",
        "default": 1,
    }
    assert properties["file"] == {"type": "string", "format": "path", "default": "/tmp"}
    assert [option["title"] for option in properties["shapes"]["items"]["anyOf"]] == [
        "Circle",
        "Square",
    ]


def test_two_classes_of_one_name_keep_their_own_definitions() -> None:
    def other() -> type:
        @dataclass
        class Circle:
            diameter: int

        return Circle

    schema = Shape(tuple[Circle, Circle, other(), int]).schema
    first, second, third, _ = schema["prefixItems"]
    assert first == second == {"$ref": "#/$defs/Circle"}
    assert schema["$defs"]["Circle"]["properties"] == {"radius": {"type": "number"}}
    assert third["properties"] == {"diameter": {"type": "integer"}}


def test_merging_renames_definitions_that_clash_and_shares_those_that_do_not() -> None:
    into = {"A": {"type": "string"}}
    same = merge_definitions({"$ref": "#/$defs/A"}, {"A": {"type": "string"}}, into)
    other = merge_definitions({"$ref": "#/$defs/A"}, {"A": {"items": {"$ref": "#/$defs/A"}}}, into)
    assert same == {"$ref": "#/$defs/A"}
    assert other == {"$ref": "#/$defs/A_2"}
    assert into == {"A": {"type": "string"}, "A_2": {"items": {"$ref": "#/$defs/A_2"}}}


def test_tidying_leaves_data_alone_that_looks_like_a_reference() -> None:
    default = {"$ref": "#/$defs/A"}
    properties = {"$ref": {"type": "string"}, "x": {"default": default, "$ref": "#/$defs/A"}}
    assert inline_definitions({"properties": properties}, {"A": {"type": "object"}}) == {
        "properties": {"$ref": {"type": "string"}, "x": {"type": "object", "default": default}}
    }


def test_a_pydantic_model_has_the_schema_that_pydantic_gives_it() -> None:
    schema = Shape(Model).schema
    assert schema["type"] == "object"
    assert schema["properties"]["No"]["minimum"] == 1
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Model"}
    jsonschema_rs.Draft202012Validator(schema)


def test_input_and_output_schema_differ_where_pydantic_serialises_otherwise() -> None:
    class Stamp(BaseModel):
        at: dt.datetime

        @field_serializer("at")
        def seconds(self, at: dt.datetime) -> float:
            return at.timestamp()

    shape = Shape(Stamp)
    assert shape.schema["properties"]["at"]["type"] == "string"
    assert shape.output_schema["properties"]["at"]["type"] == "number"
    assert Shape(int).output_schema == {"type": "integer"}


def test_the_members_of_a_discriminated_union_are_found() -> None:
    class Small(BaseModel):
        kind: Literal["small"]

    class Large(BaseModel):
        kind: Literal["large"]

    shape = Shape(Annotated[Small | Large, Field(discriminator="kind")])
    validator = jsonschema_rs.Draft202012Validator(shape.schema)
    assert validator.is_valid({"kind": "large"})
    assert not validator.is_valid({"kind": "huge"})
    assert "#/$defs" not in str(shape.schema)
    assert shape.decode(b'{"kind": "large"}') == Large(kind="large")


def test_the_parameters_of_a_generic_class_are_filled_in() -> None:
    class Box(msgspec.Struct, Generic[T]):
        inside: T
        more: dict[str, T] = {}

    @dataclass
    class Shelf(Generic[T]):
        boxes: dict[str, list[T]]
        first: Circle | Square | T

    assert Shape(Box[int]).schema["properties"]["more"]["additionalProperties"] == {
        "type": "integer"
    }
    assert Shape(Box[int]).decode(b'{"inside": 1}') == Box(1)
    assert Shape(Shelf[int]).schema["properties"]["boxes"]["additionalProperties"]["items"] == {
        "type": "integer"
    }
    assert Shape(Shelf[int]).decode(b'{"boxes": {"a": [1]}, "first": 1}') == Shelf({"a": [1]}, 1)
    assert Shape(Shelf).schema["properties"]["boxes"] == {
        "type": "object",
        "additionalProperties": {"type": "array"},
    }
    with pytest.raises(TypeMismatch, match="`first` must be an object"):
        Shape(Shelf[int]).decode(b'{"boxes": {}, "first": "1"}')


def test_a_struct_that_is_an_array_has_the_schema_of_one() -> None:
    class Move(msgspec.Struct, array_like=True, tag="move"):
        x: int
        y: int = 0

    schema = Shape(Move).schema
    assert schema["prefixItems"][0] == {"type": "string", "enum": ["move"]}
    assert schema["minItems"] == 2
    assert Shape(Move | list[int]).decode(b'["move", 1]') == Move(1)


def test_a_factory_that_may_do_anything_is_not_called_for_the_schema() -> None:
    @dataclass
    class Ticket:
        number: uuid.UUID = field(default_factory=uuid.uuid4)

    assert Shape(Ticket).schema["properties"] == {"number": {"type": "string", "format": "uuid"}}


def test_a_default_without_a_json_form_is_left_out_of_the_schema() -> None:
    @dataclass
    class Odd:
        anything: Any = object  # a class

    assert Shape(Odd).schema["properties"] == {"anything": {}}


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (complex, "complex cannot be converted to JSON"),
        (list[complex], "complex cannot be converted to JSON"),
        (typing.Callable[[int], int], "Callable"),
        (5, "5 cannot be converted to JSON"),
        ("Unknown", "'Unknown' is the name of a type"),
        (list[typing.ForwardRef("Unknown")], "Unknown"),
        (Annotated[str, at.Ge(3)], "Can only set `ge` on a numeric type"),
        (Literal[b"x"], "cannot be converted to JSON"),
        (enum.Enum("Odd", {"A": 1, "B": "b"}), "Odd cannot be used"),
        (Left | Model, "cannot be used: Unable to generate pydantic-core schema"),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_used_is_refused_by_name(annotation: Any, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Shape(annotation)
    assert words in str(caught.value)


def test_a_field_whose_type_is_not_defined_is_refused_by_name() -> None:
    @dataclass
    class Lost:
        other: "Nowhere"  # noqa: F821

    with pytest.raises(SchemaError, match="Nowhere"):
        Shape(Lost)


# --------------------------------------------------------------------------------------------------
# decoding


@pytest.mark.parametrize(
    ("annotation", "data", "value"),
    [
        (int, b"3", 3),
        (float, b"3", 3.0),
        (object, b'{"a": 1}', {"a": 1}),
        (typing.LiteralString, b'"a"', "a"),
        (None, b"null", None),
        (dt.date, b'"2026-07-28"', dt.date(2026, 7, 28)),
        (pathlib.Path, b'"/tmp"', pathlib.Path("/tmp")),
        (pathlib.Path | None, b"null", None),
        (collections.abc.Iterable[int], b"[1]", [1]),
        (dict[int, str], b'{"1": "a"}', {1: "a"}),
        (Colour, b'"red"', Colour.RED),
        (Point, b"[1]", Point(1, 0)),
        (Movie, b'{"title": "M"}', {"title": "M"}),
        (Account, b'{"number": 10, "_secret": "s"}', Account(10, "s")),
        (Cat | Dog, b'{"type": "dog", "owner": "Ann"}', Dog("Ann")),
        (Page[Circle], b'{"items": [{"radius": 1}]}', Page([Circle(1.0)])),
        (Annotated[int, at.Ge(1)], b"1", 1),
        (Annotated[int | None, msgspec.Meta(ge=1)], b"1", 1),
        (Annotated[int | None, at.Ge(1)], b"null", None),
        (Model, b'{"No": 2}', Model(No=2)),
        (list[Checked], b'[{"number": 2}]', [Checked(2)]),
        (Holder, b'{"model": {"No": 2}}', Holder(Model(No=2))),
    ],
    ids=str,
)
def test_json_is_decoded_to_the_type(annotation: Any, data: bytes, value: Any) -> None:
    shape = Shape(annotation)
    assert shape.decode(data) == value
    assert shape.decode(msgspec.Raw(data)) == value
    assert shape.convert(msgspec.json.decode(data)) == value


@pytest.mark.parametrize(
    ("annotation", "data", "value"),
    [
        (Circle | Square, b'{"side": 1}', Square(1.0)),
        (Circle | Square | None, b"null", None),
        (Left | Right, b'{"right": 1}', Right(1)),
        (set[int] | list[int], b"[1, 1]", {1}),
        (list[int] | set[int], b"[1, 1]", [1, 1]),
        (dt.date | str, b'"2026-07-28"', dt.date(2026, 7, 28)),
        (dt.date | str, b'"someday"', "someday"),
        (str | dt.date, b'"2026-07-28"', "2026-07-28"),
        (bytes | memoryview | str | int, b'"test"', "test"),
        (bytes | None, b'"dGVzdA=="', b"test"),
        (Circle | dict[str, int], b'{"other": 1}', {"other": 1}),
        (pathlib.Path | int, b"3", 3),
        (dict[str, Circle | Square], b'{"a": {"radius": 1}}', {"a": Circle(1.0)}),
        (Cat | Account, b'{"type": "cat", "nineLives": false}', Cat(False)),
        (Movie | Point, b'{"title": "M"}', {"title": "M"}),
        (Movie | Circle, b'{"title": "M", "year": 1}', {"title": "M", "year": 1}),
        (Account | Circle, b'{"number": 10, "_secret": "s"}', Account(10, "s")),
        # These two msgspec takes, but crashes on later.
        (Annotated[int, msgspec.Meta(ge=1)] | tuple[int, int], b"[1, 2]", (1, 2)),
        (Annotated[str, at.MaxLen(9)] | None | tuple[int, int], b'"a"', "a"),
    ],
    ids=str,
)
def test_a_union_that_is_ambiguous_to_msgspec_is_decoded_in_order(
    annotation: Any, data: bytes, value: Any
) -> None:
    decoded = Shape(annotation).decode(data)
    assert decoded == value
    assert type(decoded) is type(value)


def test_of_several_classes_the_one_that_knows_the_keys_is_chosen() -> None:
    @dataclass
    class Loose:
        a: int = 0

    assert Shape(Loose | Square).decode(b'{"side": 1, "name": "s"}') == Square(1.0, "s")
    assert Shape(Loose | dict[str, int]).decode(b'{"b": 1}') == {"b": 1}


def test_ambiguity_and_foreign_notes_inside_classes_are_resolved_too() -> None:
    drawing = Shape(Drawing).decode(
        b'{"shapes": [{"radius": 1}, {"side": 2, "tags": ["a"]}], "when": "2026-07-28", '
        b'"file": "/a",'
        b' "parent": {"shapes": [], "when": "once"}}'
    )
    assert drawing == Drawing(
        [Circle(1.0), Square(2.0, tags=["a"])],
        dt.date(2026, 7, 28),
        pathlib.Path("/a"),
        parent=Drawing([], "once"),
    )


def test_a_class_gets_its_own_defaults_where_a_field_was_not_sent() -> None:
    first, second = (Shape(list[Circle | Square]).decode(b'[{"side": 1}]')[0] for _ in range(2))
    assert first.tags == []
    assert first.tags is not second.tags


@pytest.mark.parametrize("value", [3.0, 3e0, -0.0])
def test_a_whole_number_written_as_a_float_is_an_integer(value: float) -> None:
    assert Shape(int).convert(value) == int(value)
    assert Shape(list[dict[str, int]]).decode(encode([{"a": value}])) == [{"a": int(value)}]


def test_floats_stay_floats_where_a_float_or_anything_is_asked_for() -> None:
    assert type(Shape(float).convert(3.0)) is float
    assert type(Shape(Any).convert(3.0)) is float
    with pytest.raises(TypeMismatch):
        Shape(int).convert(1e300)


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "3", 3),
        (int, "3.0", 3),
        (float, "1e3", 1000.0),
        (bool, "true", True),
        (bool, "True", True),
        (bool, "0", False),
        (int | None, "null", None),
        (str, "3", "3"),
        (str | int, "3", "3"),
        (str | None, "null", "null"),
        (Any, "3", "3"),
        (int | dt.date, "3", 3),
        (int | dt.date, "2026-07-28", dt.date(2026, 7, 28)),
        (list[int], "[1, 2]", [1, 2]),
        (Circle, '{"radius": 1}', Circle(1.0)),
        (Level, "2", Level.HIGH),
        (Literal["a", 1], "1", 1),
        (Model, '{"No": 1}', Model(No=1)),
        (Annotated[int, Field(ge=1)], "3", 3),
    ],
    ids=str,
)
def test_strings_are_read_as_what_they_spell_only_where_that_is_asked_for(
    annotation: Any, text: str, value: Any
) -> None:
    converted = Shape(annotation).convert(text, strings=True)
    assert converted == value
    assert type(converted) is type(value)


def test_strings_are_not_read_as_other_types_by_default() -> None:
    for annotation in (int, bool, list[int], Circle):
        with pytest.raises(TypeMismatch):
            Shape(annotation).convert("1")


@pytest.mark.parametrize(
    ("annotation", "accepts"),
    [
        *(
            (one, True)
            for one in (
                Any,
                str,
                dt.datetime,
                uuid.UUID,
                decimal.Decimal,
                bytes,
                pathlib.Path,
                Colour,
            )
        ),
        *(
            (one, True)
            for one in (
                str | None,
                int | str,
                int | dt.date,
                Literal["a", 1],
                Annotated[str, "text"],
                HttpUrl,
            )
        ),
        *(
            (one, False)
            for one in (
                int,
                float,
                bool,
                None,
                list[str],
                dict[str, str],
                Circle,
                Movie,
                Point,
                Left,
                Level,
            )
        ),
        *(
            (one, False)
            for one in (
                int | None,
                Literal[1, 2],
                Circle | Square,
                Account,
                Model,
                Annotated[int, Field(ge=1)],
            )
        ),
    ],
    ids=str,
)
def test_a_shape_knows_whether_a_string_can_be_a_value(annotation: Any, accepts: bool) -> None:
    assert Shape(annotation).accepts_string is accepts


# --------------------------------------------------------------------------------------------------
# errors


@pytest.mark.parametrize(
    ("annotation", "value", "sentences"),
    [
        (int, "three", ['`x` must be an integer, got the string "three"']),
        (int, 3.5, ["`x` must be an integer, got 3.5"]),
        (int, True, ["`x` must be an integer, got true"]),
        (str, None, ["`x` must be a string, got null"]),
        (bool, 1, ["`x` must be true or false, got 1"]),
        (int | None, "a", ['`x` must be an integer or null, got the string "a"']),
        (list[int], {}, ["`x` must be an array (each an integer), got an empty object"]),
        (list[int], [1.0, "a"], ['`x[1]` must be an integer, got the string "a"']),
        (dict[str, int], {"a": "b"}, ["`x[...]` must be an integer"]),
        (dict[int, int], {"a": 1}, ["`x` has an invalid key: Expected `int`, got `str`"]),
        (
            tuple[int, str],
            [1],
            ["`x` must be an array (at least 2 items, at most 2 items), got an array of 1 items"],
        ),
        (tuple[int, str], [1, 2], ["`x[1]` must be a string, got 2"]),
        (Colour, "green", ['`x` must be one of "red", "blue", got the string "green"']),
        (Literal["a"], "b", ['`x` must be "a", got the string "b"']),
        (dt.date, "soon", ['`x` must be a date like 2026-07-28, got the string "soon"']),
        (uuid.UUID, "1", ['`x` must be a UUID, got the string "1"']),
        (bytes, "?", ['`x` must be a string (in base64), got the string "?"']),
        (
            Annotated[int, at.Interval(ge=1, lt=5)],
            9,
            ["`x` must be an integer (at least 1, less than 5), got 9"],
        ),
        (
            Annotated[str, msgspec.Meta(pattern="^a")],
            "b",
            ['`x` must be a string (matching ^a), got the string "b"'],
        ),
        (Circle, [], ["`x` must be an object (with radius), got an empty array"]),
        (Circle, {}, ["`x.radius` is missing"]),
        (Circle, {"radius": "1"}, ['`x.radius` must be a number, got the string "1"']),
        (
            Dog,
            {"type": "dog", "owner": "A", "cat": 1},
            ["`x.cat` is not a field; the fields are: type, owner, friends, chip"],
        ),
        (
            Circle | Square,
            3,
            ["`x` must be an object (with radius) or an object (with side, name, tags), got 3"],
        ),
        (Circle | Square, {"side": "a"}, ['`x.side` must be a number, got the string "a"']),
        (Positive, {"number": -1}, ["`x` is not valid: only positive numbers are welcome"]),
        (
            list[Positive | Circle],
            [{"number": -1}],
            ["`x[0]` is not valid: only positive numbers are welcome"],
        ),
        (Account, {"number": 1}, ["`x` is not valid: 'number' must be > 9: 1"]),
        (str, ["a" * 100], ["`x` must be a string, got an array of 1 items"]),
        (int, "a" * 100, [f'`x` must be an integer, got the string "{"a" * 59}…"']),
        (
            Model,
            {"No": 0, "children": [{}]},
            [
                "`x.No` must be greater than or equal to 1, got 0",
                "`x.children[0].No` is missing",
            ],
        ),
        (Model, 3, ["`x` must be an object, got 3"]),
        (
            int | Model,
            {"No": "a"},
            [
                "`x` must be a valid integer, got an object of 1 entries",
                "`x.No` must be a valid integer, unable to parse string as an integer, got the "
                'string "a"',
            ],
        ),
    ],
    ids=str,
)
def test_a_mismatch_is_told_in_words(annotation: Any, value: Any, sentences: list[str]) -> None:
    with pytest.raises(TypeMismatch) as caught:
        Shape(annotation).convert(value)
    assert caught.value.sentences("x") == sentences
    with pytest.raises(TypeMismatch) as caught:
        Shape(annotation).decode(encode(value))
    assert caught.value.sentences("x") == sentences


def test_the_place_of_a_problem_is_found_through_nested_stand_ins() -> None:
    wrong = {
        "shapes": [],
        "when": "x",
        "parent": {"shapes": [{"radius": 1}, {"side": "1"}], "when": "y"},
    }
    with pytest.raises(
        TypeMismatch, match=r"`parent.shapes\[1\].side` must be a number, got the string"
    ):
        Shape(Drawing).convert(wrong)
    with pytest.raises(TypeMismatch, match=r"`copies` must be an integer \(at least 1\), got 0"):
        Shape(Drawing).convert({"shapes": [], "when": "x", "copies": 0})


def test_a_message_of_a_pydantic_validator_is_passed_on() -> None:
    def refuse(number: int) -> int:
        raise ValueError("not today")

    with pytest.raises(TypeMismatch) as caught:
        Shape(Annotated[int, AfterValidator(refuse)]).convert(1)
    assert caught.value.sentences("day") == ["`day` is not valid: not today"]


def test_what_pydantic_misses_in_a_member_of_a_union_is_told_by_its_place() -> None:
    with pytest.raises(TypeMismatch) as caught:
        Shape(Model | int).convert({})
    assert caught.value.sentences("x")[0] == "`x.No` is missing"


def test_a_value_that_is_not_json_any_more_is_told_by_its_type() -> None:
    with pytest.raises(TypeMismatch) as caught:
        Shape(Annotated[int, BeforeValidator(lambda value: object())]).convert(1)
    assert caught.value.sentences("x") == [
        "`x` must be a valid integer, got a value of type object"
    ]


def test_json_inside_a_string_is_taken_strictly() -> None:
    with pytest.raises(TypeMismatch, match=r'`\[1\]` must be an integer, got the string "2"'):
        Shape(list[int]).convert('[1, "2"]', strings=True)


def test_what_is_inside_a_string_is_told_rather_than_the_string() -> None:
    with pytest.raises(TypeMismatch) as caught:
        Shape(list[int]).convert('[1, "a"]', strings=True)
    assert caught.value.sentences("x") == ['`x[1]` must be an integer, got the string "a"']


def test_a_mismatch_without_a_name_speaks_of_the_value() -> None:
    with pytest.raises(TypeMismatch, match=r"^The value must be an integer, got null$"):
        Shape(int).convert(None)
    with pytest.raises(TypeMismatch, match=r"^`radius` is missing$"):
        Shape(Circle).convert({})


@pytest.mark.parametrize("data", [b"{", b"", b'"\xff"', b"[" * 100_000])
def test_bytes_that_are_no_json_are_a_mismatch(data: bytes) -> None:
    with pytest.raises(TypeMismatch, match="is not valid JSON"):
        Shape(str).decode(data)


# --------------------------------------------------------------------------------------------------
# encoding


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Circle(1.0), b'{"radius":1.0}'),
        ([Model(No=1)], b'[{"No":1,"children":[]}]'),
        ({"a": (Model(No=1), Circle(1.0))}, b'{"a":[{"No":1,"children":[]},{"radius":1.0}]}'),
        (Holder(Model(No=1)), b'{"model":{"No":1,"children":[]}}'),
        (HttpUrl("https://example.org/"), b'"https://example.org/"'),
        (pathlib.Path("/tmp"), b'"/tmp"'),
        (Account(10, "s"), b'{"number":10,"notes":[]}'),
        ({pathlib.Path("a"): 1}, b'{"a":1}'),
        (collections.deque([1, 2]), b"[1,2]"),
        ({"a": 1}.keys(), b'["a"]'),
        (collections.ChainMap({"a": 1}), b'{"a":1}'),
        (float("nan"), b"null"),
        (msgspec.Raw(b"[1]"), b"[1]"),
    ],
    ids=named,
)
def test_any_value_with_a_json_form_is_encoded(value: Any, data: bytes) -> None:
    assert Shape(Any).encode(value) == encode(value)
    assert msgspec.json.decode(encode(value)) == msgspec.json.decode(data)


def test_pydantic_types_are_encoded_by_pydantic() -> None:
    assert Shape(Model).encode(Model(No=1)) == b'{"No":1,"children":[]}'
    assert Shape(dict[str, Model]).encode({"a": Model(No=1)}) == b'{"a":{"No":1,"children":[]}}'
    assert Shape(Model).encode({"No": 1}) == b'{"No":1}'


def _endless() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "object cannot be converted to JSON"),
        ([{"a": 1j}], "complex cannot be converted to JSON"),
        ({(1, 2): 3}, "A tuple cannot be used as a JSON key"),
        ("\ud800", "str cannot be written as JSON: .*surrogates"),
        (_endless(), "list contains itself"),
    ],
    ids=["object", "inner", "key", "surrogate", "endless"],
)
def test_a_value_without_a_json_form_is_refused_by_name(value: Any, words: str) -> None:
    with pytest.raises(Unencodable, match=words):
        Shape(Any).encode(value)


def test_a_value_that_pydantic_cannot_write_is_refused() -> None:
    with pytest.raises(Unencodable, match="object cannot be written as JSON"):
        Shape(Model | Any).encode(object())


UNION: Any = typing.Union
TYPES = st.deferred(
    lambda: (
        st.sampled_from(
            [
                int,
                float,
                bool,
                str,
                bytes,
                None,
                dt.date,
                uuid.UUID,
                Colour,
                Level,
                Point,
                Circle,
                Square,
                Movie,
                Left,
                Cat,
            ]
        )
        | st.builds(lambda one: list[one], TYPES)  # type: ignore[valid-type]
        | st.builds(lambda one: dict[str, one], TYPES)  # type: ignore[valid-type]
        | st.builds(lambda one, two: tuple[one, two], TYPES, TYPES)  # type: ignore[valid-type]
        | st.builds(lambda one, two: UNION[one, two], TYPES, TYPES)
    )
)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    None: st.none(),
    type(None): st.none(),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    Circle: st.builds(Circle, st.floats(0, 9)),
    Square: st.builds(Square, st.floats(0, 9)),
    Movie: st.fixed_dictionaries({"title": st.text("abc")}),
    Left: st.builds(Left, st.integers(0, 9)),
    Cat: st.builds(Cat, st.booleans()),
    Point: st.builds(Point, st.integers(0, 9), st.integers(0, 9)),
}


def values(annotation: Any) -> st.SearchStrategy[Any]:
    origin, args = (
        typing.get_origin(annotation),
        [values(arg) for arg in typing.get_args(annotation)],
    )
    if origin is list:
        return st.lists(args[0], max_size=3)
    if origin is dict:
        return st.dictionaries(st.text("abc", max_size=3), args[1], max_size=3)
    if origin is tuple:
        return st.tuples(*args)
    if args:
        return st.one_of(args)
    return VALUES[annotation] if annotation in VALUES else st.from_type(annotation)


@functools.cache
def compiled(annotation: Any, spelling: str) -> tuple[Shape, Any]:
    shape = Shape(annotation)
    return shape, jsonschema_rs.Draft202012Validator(shape.output_schema)


@given(st.data())
def test_what_is_encoded_fits_the_schema_and_decodes_again(data: st.DataObject) -> None:
    annotation = data.draw(TYPES)
    value = data.draw(values(annotation))
    shape, validator = compiled(annotation, repr(annotation))
    encoded = shape.encode(value)
    assert validator.is_valid(msgspec.json.decode(encoded))
    decoded = shape.decode(encoded)
    # Of a union, another member may have taken the value; it then keeps it.
    assert decoded == (
        shape.decode(shape.encode(decoded)) if re.search(r"Union|\|", repr(annotation)) else value
    )


# --------------------------------------------------------------------------------------------------
# weight


def test_a_shape_is_compiled_once_and_the_order_of_a_union_counts() -> None:
    assert Shape.of(list[Circle]) is Shape.of(list[Circle])
    assert Shape.of(dt.date | str).decode(b'"2026-07-28"') == dt.date(2026, 7, 28)
    assert Shape.of(str | dt.date).decode(b'"2026-07-28"') == "2026-07-28"
    assert Shape.of(Annotated[int, ["cannot be hashed"]]).decode(b"1") == 1
    assert repr(Shape.of(Circle)) == "Shape(Circle)"


def test_a_type_that_msgspec_takes_is_given_to_it_as_it_is() -> None:
    for annotation in (
        int,
        list[Square],
        Dog | Cat,
        Annotated[int, "described"],
        Annotated[int, msgspec.Meta(ge=1)],
    ):
        assert Shape(annotation).native is annotation
    assert Shape(Model).native is msgspec.Raw


def test_pydantic_attrs_and_annotated_types_are_not_imported_for_types_that_do_not_use_them() -> (
    None
):
    code = (
        "import sys, pathlib, datetime, typing, dataclasses\n"
        "from dovetail.schema import Shape\n"
        "A = dataclasses.make_dataclass('A', [('a', int)])\n"
        "B = dataclasses.make_dataclass('B', [('b', typing.Annotated[int, 'text'])])\n"
        "shape = Shape(list[A | B | pathlib.Path])\n"
        "assert shape.schema and shape.encode(shape.decode(b'[{\"b\": 1}]')) == b'[{\"b\":1}]'\n"
        "assert not {'pydantic', 'pydantic_core', 'attr', 'attrs', 'annotated_types'} & "
        "set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement")
def test_type_aliases_are_seen_through_and_endless_ones_refused() -> None:
    space: dict[str, Any] = {}
    exec("type Number = int | float\ntype Many[T] = list[T]\ntype Json = None | list[Json]", space)
    assert Shape(space["Number"]).schema == {"anyOf": [{"type": "integer"}, {"type": "number"}]}
    assert Shape(space["Many"][int]).schema == {"type": "array", "items": {"type": "integer"}}
    with pytest.raises(
        SchemaError, match="Json is an alias that refers to itself; use a class instead"
    ):
        Shape(space["Json"])
